"""Workflows run nothing but targets of the Makefile, which developers run too, and with few rights."""

from __future__ import annotations

import importlib.util
import itertools
import pathlib
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = [(name, job) for name, flow in WORKFLOWS.items() for job in flow["jobs"]]
# what a job may do beyond reading, and why
RIGHTS = {
    ("release", "build"): {
        "contents": "read",
        "id-token": "write",
        "attestations": "write",
    },
    ("release", "publish"): {"id-token": "write"},
    ("site", "deploy"): {"pages": "write", "id-token": "write"},
}
ACTIONS = {
    "actions/attest-build-provenance",
    "actions/checkout",
    "actions/deploy-pages",
    "actions/download-artifact",
    "actions/setup-python",
    "actions/upload-artifact",
    "actions/upload-pages-artifact",
    "pypa/gh-action-pypi-publish",
}


def _module(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cells(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the values of each job that a matrix makes."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    extra = matrix.pop("include", [])
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))
    yield from extra


def _filled(text: str, cell: dict[str, str]) -> str:
    for name, value in cell.items():
        text = text.replace(f"${{{{ matrix.{name} }}}}", value)
    return text


def _commands() -> list[str]:
    return sorted(
        {
            _filled(step["run"], cell)
            for flow, name in JOBS
            for cell in _cells(WORKFLOWS[flow]["jobs"][name])
            for step in WORKFLOWS[flow]["jobs"][name]["steps"]
            if "run" in step
        }
    )


def test_commands_are_targets_of_the_makefile() -> None:
    """Make itself knows each target, and prints the commands that it would run."""
    commands = _commands()
    assert {"make dist", "make site", "make tagged", "make test-newest"} <= set(
        commands
    )
    for command in commands:
        target = re.fullmatch(r"make ([a-z-]+)", command)
        assert target, f"{command!r} must be one target of make"
        done = subprocess.run(
            ["make", "--dry-run", target[1], "PYTHON=python3"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip(), target[1]


@pytest.mark.parametrize(("flow", "name"), JOBS)
def test_jobs_end_and_may_do_little(flow: str, name: str) -> None:
    job = WORKFLOWS[flow]["jobs"][name]
    assert WORKFLOWS[flow]["permissions"] == {"contents": "read"}
    # the Makefile would take the oldest Python of the machine
    assert WORKFLOWS[flow]["env"] == {"PYTHON": "python"}
    assert job.get("permissions", {}) == RIGHTS.get((flow, name), {})
    assert 0 < job["timeout-minutes"] <= 360
    for step in job["steps"]:
        assert len({"run", "uses"} & set(step)) == 1
        action, _, version = step.get("uses", "/@").partition("@")
        assert "uses" not in step or (action in ACTIONS and version)
        # what others choose, as the name of a tag, reaches no shell as text
        assert not re.search(r"\$\{\{ (?!matrix\.)", step.get("run", ""))
    needs = job.get("needs")
    assert needs is None or needs in WORKFLOWS[flow]["jobs"]


def test_what_is_published_was_checked_and_built_before() -> None:
    build = WORKFLOWS["release"]["jobs"]["build"]["steps"]
    steps = [step.get("run") or step["uses"].partition("@")[0] for step in build]
    order = [
        "make tagged",
        "make test",
        "make dist",
        "actions/attest-build-provenance",
        "actions/upload-artifact",
    ]
    assert [step for step in steps if step in order] == order
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert not [step for step in publish["steps"] if "run" in step]
    # YAML reads `on` as true
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}


def test_pythons_are_those_of_the_metadata() -> None:
    listed = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
    (tests,) = WORKFLOWS["tests"]["jobs"].values()
    assert tests["strategy"]["matrix"]["python"] == listed
    (nightly,) = WORKFLOWS["nightly"]["jobs"].values()
    newest = {
        cell["python"] for cell in _cells(nightly) if cell["target"] == "test-newest"
    }
    assert newest == {listed[0], listed[-1]}


def test_the_stable_site_is_that_of_the_highest_release(tmp_path: pathlib.Path) -> None:
    publish = _module("docs/_site/publish.py")
    assert (
        publish.newest(["v1.9.0", "v1.10.0", "v2.0.0rc1", "old", "1.11.0"]) == "v1.10.0"
    )
    assert publish.newest(["v2.0.0rc1"]) is None
    for name in ("now", "then"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name)
    out = tmp_path / "out"
    publish.lay_out(tmp_path / "now", None, out)
    assert 'href="latest/index.html"' in (out / "index.html").read_text()
    assert not (out / "stable").exists()
    publish.lay_out(tmp_path / "now", tmp_path / "then", out)
    assert 'href="stable/index.html"' in (out / "index.html").read_text()
    assert (out / "latest" / "index.html").read_text() == "now"
    assert (out / "stable" / "index.html").read_text() == "then"


def test_a_tag_is_published_only_when_all_is_of_it(tmp_path: pathlib.Path) -> None:
    tag = _module("tests/release/tag.py")
    files = {
        "mrsa_jax/_version.py": '__version__ = "1.2.3"',
        "watch/mrsa_watch/_version.py": '__version__ = "1.2.3"',
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 1.2.3\n\n- news\n\n## 1.2.2\n",
        "tests/release/surface.txt": "1.2.3\nname\n",
        "docs/versions.md": "# Versions\n\n## What breaks since 1.2.3\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert tag.problems("v1.2.3", tmp_path) == []
    assert len(tag.problems("v1.2.4", tmp_path)) == 5
    assert (
        len(tag.problems("1.2.3", tmp_path))
        == len(tag.problems("v1.2.3; ls", tmp_path))
        == 1
    )
    for path, text in files.items():
        (tmp_path / path).write_text(text.replace("1.2.3", "1.2.2"))
        (problem,) = tag.problems("v1.2.3", tmp_path)
        assert path in problem
        (tmp_path / path).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(
        files["CHANGELOG.md"].replace("ased\n", "ased\n- more\n")
    )
    assert tag.problems("v1.2.3", tmp_path) == [
        "CHANGELOG.md must have an empty section Unreleased"
    ]


def test_the_command_names_what_is_missing() -> None:
    words = [sys.executable, str(ROOT / "tests" / "release" / "tag.py"), "v0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "mrsa_jax/_version.py must state 0.0.0" in done.stderr.splitlines()


def test_the_history_is_that_of_the_records(tmp_path: pathlib.Path) -> None:
    history = _module("docs/benchmark_history.py")
    assert (ROOT / "docs" / "benchmark_history.md").read_text(
        "utf-8"
    ) == history.page(), "`make history` makes docs/benchmark_history.md"
    line = (
        '{{"case": "{}", "unit": "rounds", "rate": {}, "ratio": {}, "time": "{}T00:00", '
        '"machine": {{"load": 1.26, "device": "cpu cpu", "versions": {{"mrsa_jax": "1.0.0"}}}}}}'
    )
    records = [
        ("twice", 3000, 2.5, "2026-02-01"),
        ("once", 1, 1, "2026-01-01"),
        ("twice", 2000, "null", "2026-01-01"),
        ("twice", "null", "null", "2026-03-01"),
    ]
    (tmp_path / "rank.jsonl").write_text(
        "\n".join(line.format(*one) for one in records)
    )
    (tmp_path / "none.jsonl").write_text(line.format(*records[1]))
    assert history.page(tmp_path).split("## ")[1:] == [
        "rank\n\n| case | recorded | version | JAX | load | rate | ratio |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| `twice` | 2026-01-01 | 1.0.0 |  | 1.3 | 2e+03 rounds |  |\n"
        "|  | 2026-02-01 | 1.0.0 |  | 1.3 | 3e+03 rounds | 2.50 |\n"
    ]
