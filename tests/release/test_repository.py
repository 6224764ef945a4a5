"""The container file (no engine is needed), hooks, templates and completion do what they say."""

from __future__ import annotations

import fnmatch
import pathlib
import re
import shlex
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _instructions() -> list[tuple[str, str]]:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    kept = "\n".join(line for line in lines if line and not line.startswith("#"))
    words = (line.split(" ", 1) for line in kept.replace("\\\n", " ").splitlines())
    return [(name, rest) for name, rest in words]


def _copied() -> list[str]:
    copies = (shlex.split(rest) for name, rest in _instructions() if name == "COPY")
    return [
        path
        for words in copies
        if not words[0].startswith("--from")
        for path in words[:-1]
    ]


def test_the_image_copies_what_the_build_is_sent() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert kept == set(_copied())
    assert not [path for path in kept if not (ROOT / path).exists()]
    # what pyproject.toml names must be in the build's folder
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in ("mrsa_jax", "LICENSE"):
        assert f'"{path}"' in text
        assert path in kept


def test_the_image_runs_the_command_as_nobody_special() -> None:
    steps = _instructions()
    bases = [rest.split()[0] for name, rest in steps if name == "FROM"]
    assert all(fnmatch.fnmatch(base, "python:3.11-slim") for base in bases)
    names = [name for name, _ in steps]
    values = dict(steps)  # the last of each
    assert values["ENTRYPOINT"] == '["mrsa-jax"]'
    assert values["USER"] == "mrsa"
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")
    volumes, *_ = [yaml.safe_load(rest) for name, rest in steps if name == "VOLUME"]
    assert volumes == ["/cache", f"{values['WORKDIR']}/results"]
    (users,) = [rest for name, rest in steps if name == "RUN" and "useradd" in rest]
    made = shlex.split(users.split("mkdir -p")[1])[:2]
    assert made == volumes  # a volume takes its owner from the folder that it covers
    assert re.search(r"XDG_CACHE_HOME=/cache\b", values["ENV"])
    installs = [rest for name, rest in steps if name == "RUN" and "pip install" in rest]
    assert (
        [rest for rest in installs if "-c /tmp/constraints.txt" in rest]
        == installs
        != []
    )


def test_the_hook_is_the_lint_and_fetches_nothing() -> None:
    content = yaml.safe_load(
        (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    )
    (hooks,) = [repo["hooks"] for repo in content["repos"] if repo["repo"] == "local"]
    assert len(content["repos"]) == 1
    assert [(one["entry"], one["language"]) for one in hooks] == [
        ("make lint", "system")
    ]
    assert not hooks[0]["pass_filenames"]
    assert re.search(
        r"^lint:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    workflow = yaml.safe_load(
        (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    )
    steps = [
        step["run"] for step in workflow["jobs"]["tests"]["steps"] if "run" in step
    ]
    assert steps == [line for line in commands if line.startswith("make ")]
    assert steps == ["make lint", "make test", "make test-long"]


def test_issue_forms_are_what_the_platform_reads() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = {
        path.stem: yaml.safe_load(path.read_text("utf-8"))
        for path in folder.glob("*.yml")
    }
    assert forms.pop("config") == {"blank_issues_enabled": True}
    assert set(forms) == {"bug", "scheme", "wrong_number"}
    for form in forms.values():
        assert set(form) == {"name", "description", "labels", "body"}
        ids = [item["id"] for item in form["body"]]
        assert len(set(ids)) == len(ids)
        for item in form["body"]:
            assert item["type"] in {"textarea", "input", "dropdown"}
            assert item["attributes"]["label"]
            assert (item["type"] == "dropdown") == ("options" in item["attributes"])
        assert any(item.get("validations", {}).get("required") for item in form["body"])
        pages = re.findall(r"docs/[\w.]+", str(form))
        assert not [page for page in pages if not (ROOT / page.rstrip(".")).exists()]


def test_links_and_targets_of_the_contributors_page() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make ([a-z-]+)(?=[ `\n])", text)) - {"takes"}
    assert targets >= {"lint", "test", "test-slow", "test-forms", "test-lowest", "dist"}
    assert not [
        name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)
    ]
    pairs = re.findall(r"\]\(([^)#]+)|`((?:tests|mrsa)[\w/.]+)`", text)
    paths = {path for pair in pairs for path in pair if path}
    assert len(paths) > 8
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_completion_is_a_script_that_knows_the_commands() -> None:
    """Bash itself completes a half-typed command and a half-typed flag."""
    command = [sys.executable, "-m", "mrsa_jax", "--tyro-print-completion", "bash"]
    script = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    ask = (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); f=$(complete -p mrsa-jax); '
        "f=${f#*-F }; "
        '"${f%% *}" 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    def completed(*words: str) -> set[str]:
        found = subprocess.run(
            ["bash", "-c", f"{script}\n{ask}", "bash", "mrsa-jax", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return set(found.stdout.split())

    assert completed("rep") == {"reproduce", "report"}
    assert "--fail-below-hidden" in completed("audit", "--fail-b")
    assert completed("reproduce", "--fas") == {"--fast"}
