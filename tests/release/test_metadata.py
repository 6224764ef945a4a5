"""What is declared is what is imported, hints to install are declared, versions agree."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import markdown_it
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mrsa_jax
import mrsa_watch
from mrsa_watch._base.errors import EXTRAS, how_to_install
from mrsa_watch.flower import _version as flower

pytestmark = pytest.mark.long

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
HOME = PROJECT["urls"]["Homepage"]
OWN = ("mrsa_jax", "watch/mrsa_watch")
# a distribution that need not be installed, by what it is imported as
ELSEWHERE = {"tensorflow": "tensorflow-cpu"}
SOURCES = sorted(path for own in OWN for path in (ROOT / own).rglob("*.py"))
PAPERS = tomllib.loads(
    (ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def _imported(text: str) -> set[str]:
    """Return the top packages that a module imports or looks for, of others' making."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module))
        elif isinstance(node, ast.Call):
            looks = getattr(node.func, "attr", "") in ("import_module", "find_spec")
            if looks and node.args and isinstance(node.args[0], ast.Constant):
                names.add(str(node.args[0].value))
    tops = {name.split(".")[0] for name in names}
    return (
        tops
        - sys.stdlib_module_names
        - {"mrsa_jax", "mrsa_papers", "mrsa_watch", "__future__"}
    )


@functools.cache
def _installed() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _distributions(name: str) -> set[str]:
    """Return whom a top package may come from."""
    found = _installed().get(name) or [ELSEWHERE.get(name, name)]
    return {canonicalize_name(one) for one in found}


def _names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


@functools.cache
def _of_package() -> frozenset[str]:
    return frozenset().union(
        *(_imported(path.read_text(encoding="utf-8")) for path in SOURCES)
    )


def _undeclared(tops: Iterable[str], declared: set[str]) -> set[str]:
    return {top for top in tops if not _distributions(top) & declared}


def test_every_imported_package_is_declared() -> None:
    core, extras = _names(PROJECT["dependencies"]), PROJECT["optional-dependencies"]
    used = [lines for name, lines in extras.items() if name not in ("test", "dev")]
    declared = core | _names([line for lines in used for line in lines])
    assert _undeclared(_of_package(), declared) == set()

    paths = [
        *(ROOT / "tests").rglob("*.py"),
        ROOT / "conftest.py",
        ROOT / "hatch_build.py",
    ]
    scripts = [*paths, *(ROOT / "docs").rglob("*.py")]
    # our own; of flwr[simulation]
    own = {path.stem for path in scripts} | {"benchmarks", "ray"}
    tests = set().union(
        *(_imported(path.read_text(encoding="utf-8")) for path in paths)
    )
    assert _undeclared(tests, declared | _names(extras["test"])) - own == set()

    wrong = _imported(
        "import os\nfrom PIL import Image\nimportlib.import_module('nowhere.to')"
    )
    assert _undeclared(wrong, declared) == {"nowhere"}
    assert _undeclared(wrong, declared - {"pillow"}) == {"nowhere", "PIL"}


def test_the_papers_declare_what_they_import() -> None:
    paths = (ROOT / "papers" / "mrsa_papers").rglob("*.py")
    used = set().union(*(_imported(path.read_text(encoding="utf-8")) for path in paths))
    declared = _names(PAPERS["dependencies"]) - {"mrsa-jax"}
    assert _undeclared(used, declared) == set()
    assert declared == set().union(*map(_distributions, used))


def test_every_declared_package_is_used() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    # what is looked for by name
    words = set(re.findall(r"[\"']([A-Za-z_0-9]+)[\"']", text))
    used = set().union(*map(_distributions, words | _of_package()))
    assert _names(PROJECT["dependencies"]) - used == set()


def test_extras_are_those_declared() -> None:
    """Hints repeat them, because an installed package need not have its metadata beside it."""
    extras = PROJECT["optional-dependencies"]
    for name, requirements in EXTRAS.items():
        assert extras[name] == requirements.split()
    whole = {"test", "dev", "docs"}  # of developers, whom no hint speaks to
    assert set(extras) - whole == set(EXTRAS)
    jax = next(line for line in PROJECT["dependencies"] if line.startswith("jax>"))
    for name in ("cuda12", "cuda13"):
        assert EXTRAS[name] == jax.replace("jax", f"jax[{name}]")
    supported = Requirement(EXTRAS["flower"]).specifier
    first, before = (".".join(map(str, pair)) for pair in (flower.FIRST, flower.BEFORE))
    assert supported.contains(first)
    assert not supported.contains(before)
    assert str(supported) == f"<{before},>={first}"


def test_hints_to_install_come_from_one_place() -> None:
    """This package's name is in no registry that it controls.

    No hint may ask one for it.
    """
    hints = {
        (path.name, hint)
        for path in SOURCES
        for hint in re.findall(
            r"pip install ['\"]?([^\s'\"]+)", path.read_text(encoding="utf-8")
        )
    }
    assert {name for name, _ in hints} <= {"errors.py", "papers.py"}
    assert (
        how_to_install("dask")
        == f"pip install '{PROJECT['optional-dependencies']['dask'][0]}'"
    )
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    lines = [
        line
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\S*(uv )?pip install", line)
    ]
    assert lines
    assert not [
        line
        for line in lines
        if re.search(r"install .*(?<![/#])mrsa[_-]jax(?!-\d)", line)
    ]


def test_versions_agree() -> None:
    version = mrsa_jax.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert "version" in PROJECT["dynamic"]
    assert PAPERS["version"] == version
    assert f"mrsa_jax=={version}" in PAPERS["dependencies"]
    headings = re.findall(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    assert headings[:2] == ["Unreleased", version]
    lowest, above = (3, 11), (3, 15)
    assert PROJECT["requires-python"] == f">=3.{lowest[1]},<3.{above[1]}"
    listed = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
    assert listed == [f"3.{minor}" for minor in range(lowest[1], above[1])]
    assert (
        f"({lowest} <= sys.version_info[:2] < {above})"
        in (ROOT / "Makefile").read_text()
    )


def test_the_long_description_links_to_the_home() -> None:
    pytest.importorskip("hatchling")
    sys.path.insert(0, str(ROOT))
    try:
        import hatch_build
    finally:
        sys.path.remove(str(ROOT))
    metadata: dict[str, Any] = {"urls": PROJECT["urls"]}
    hatch_build.LongDescription(str(ROOT), {}).update(metadata)
    tokens = markdown_it.MarkdownIt().enable("table").parse(metadata["readme"]["text"])
    inline = [child for token in tokens for child in token.children or ()]
    links = [str(one.attrs["href"]) for one in inline if one.type == "link_open"]
    images = [str(one.attrs["src"]) for one in inline if one.type == "image"]
    assert len(links) > 30
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    shown = ("docs/gallery/images/plot_participation.png", "docs/demo.svg")
    assert images == [f"{HOME}/raw/HEAD/{path}" for path in shown]
    own = {
        link.removeprefix(f"{HOME}/blob/HEAD/").split("#")[0]
        for link in links
        if HOME in link
    }
    assert own
    assert not [path for path in own if not (ROOT / path).exists()]


def test_the_home_is_named_in_one_place() -> None:
    """It is where the repository is to go: nothing may be fetched from there by name."""
    told = HOME.removeprefix("https://")
    texts = [*ROOT.glob("*.*"), ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *SOURCES]
    found = [path.name for path in texts if path.is_file() and told in _text(path)]
    assert found == ["pyproject.toml"]
    assert _text(ROOT / "pyproject.toml").count(told) == 1


def _text(path: pathlib.Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def test_the_small_distribution_declares_what_it_uses() -> None:
    project = tomllib.loads(
        (ROOT / "watch" / "pyproject.toml").read_text(encoding="utf-8")
    )
    extras = project["project"]["optional-dependencies"]
    own = {
        name: requirements for name, requirements in extras.items() if name != "fast"
    }
    assert own == {name: EXTRAS[name].split() for name in own}
    wanted = [
        line for line in PROJECT["dependencies"] if line.startswith(("numpy", "numba"))
    ]
    assert {*project["project"]["dependencies"], *extras["fast"]} == set(wanted)
    paths = (ROOT / "watch" / "mrsa_watch").rglob("*.py")
    used = set().union(*(_imported(path.read_text(encoding="utf-8")) for path in paths))
    lists = [project["project"]["dependencies"], *extras.values()]
    declared = _names([line for lines in lists for line in lines])
    # given a table of it, it is there
    assert _undeclared(used - {"pandas"}, declared) == set()
    assert mrsa_watch.__version__ == mrsa_jax.__version__
