"""The front page's and the tutorials' code runs, their commands parse, and the notebooks run."""

from __future__ import annotations

import doctest
import os
import pathlib
import re
import shlex
import tomllib
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax.study import DemoConfig, SimulateConfig, TrainConfig, validate
from mrsa_jax.study.publishing._report import COLUMNS
from mrsa_jax.study.sweeps import parse_sweep

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HIDDEN = (ROOT / "docs" / "hidden_among.md").read_text(encoding="utf-8")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
TOUR, SCHEMES = PAGES["docs/tour.md"], PAGES["docs/schemes.md"]
# what the commands are for; other pages are run by tests/test_how_to.py
GUIDE = "\n".join(
    text for name, text in PAGES.items() if name.startswith("docs/tutorials/")
)


def _blocks(
    language: str, text: str = README + TOUR + PAGES["docs/install.md"] + GUIDE
) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.long
def test_the_tour_prints_what_it_says() -> None:
    session = "\n".join(_blocks("pycon", README + TOUR))
    test = doctest.DocTestParser().get_doctest(session, {}, "tour", "tour.md", 0)
    assert len(test.examples) > 25
    printed: list[str] = []
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        outcome = doctest.DocTestRunner().run(test, out=printed.append)
    plt.close("all")
    assert outcome.failed == 0, "".join(printed)


@pytest.mark.long
def test_python_snippets_run_and_say_what_they_promise() -> None:
    tutorials = [  # the others are run by tests/test_how_to.py
        PAGES[f"docs/tutorials/{name}.md"] for name in ("audit_a_log", "python_api")
    ]
    code = "\n".join(_blocks("python", "\n".join(tutorials)))
    names: dict[str, object] = {}
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(code, "tutorials", "exec"), names)
    plt.close("all")
    mj, participation = names["mj"], names["participation"]
    assert mj.privacy.strong_privacy(participation) == 4  # type: ignore[attr-defined]
    weak = names["weak"]
    assert (weak.lower, weak.upper, weak.certified) == (4, 4, True)  # type: ignore[attr-defined]
    assert np.isclose(mj.privacy.hidden_among(participation).min(), 4.0)  # type: ignore[attr-defined]
    assert names["plain"].certified  # type: ignore[attr-defined]
    assert names["plain"].upper == 3  # type: ignore[attr-defined]
    assert names["bits"] == 20
    result = names["result"]
    assert (result.status, result.is_private) == (0, True)  # type: ignore[attr-defined]
    expected = np.arange(40 * 8).reshape(40, 8)[3:].sum(axis=0)
    assert result.total.tolist() == expected.tolist()  # type: ignore[attr-defined]
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    first = mj.privacy.first_exposure(triangle)  # type: ignore[attr-defined]
    assert np.asarray(first).tolist() == [2, 2, 2]


@pytest.mark.long
def test_the_figures_of_hidden_among_are_those_of_its_page() -> None:
    names: dict[str, object] = {}
    (code,) = _blocks("python", HIDDEN)
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(code, "hidden_among.md", "exec"), names)
        mj, random = names["mj"], names["random"]
        weak = mj.privacy.weak_privacy(random)  # type: ignore[attr-defined]
    assert (weak.lower, weak.certified) == (8, True)
    assert np.allclose(names["worst"], (1.16, 4), atol=0.005)  # type: ignore[arg-type]


@pytest.mark.long
def test_commands_parse(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("rounds = 3\n")
    lines = [
        line
        for block in _blocks("bash")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    commands = [
        line for line in lines if "mrsa-jax" in line and not line.startswith("make")
    ]
    assert len(commands) > 30
    for line in commands:
        _, *words = shlex.split(line, comments=True)
        if words[0].startswith("--"):  # a script for tab completion, written to a file
            assert words[2] == ">"
            with pytest.raises(SystemExit, match=r"^0?$"):
                cli._parse(words[:2])
            continue
        words = words[: words.index(">")] if ">" in words else words
        config = cli._parse(words)
        if isinstance(config, DemoConfig | SimulateConfig | TrainConfig):
            validate(config)


def test_the_study_is_a_sweep_of_cells_that_make_sense() -> None:
    (text,) = _blocks("toml", PAGES["docs/tutorials/sweep.md"])
    points = list(parse_sweep(text).points())
    assert len(points) == 3 * 4 * 5
    assert not [point.problem for point in points if point.problem]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.smoke
def test_the_printed_table_has_todays_columns() -> None:
    (text,) = _blocks("text", TOUR)
    # shown where clients sum by segments, add noise, or have whole-number values, or
    # nothing is trained; explained in words
    others = {"Level", "Seconds", "Epsilon", "Mean if Gaussian", "Worst if Gaussian"}
    others |= {"Values determined", "Undecided", "Expected F"}
    for heading in COLUMNS:
        assert heading in others or heading in text
    explained = GUIDE + PAGES["docs/how_to/differential_privacy.md"]
    assert all(f"`{heading}`" in explained for heading in others)


@pytest.mark.parametrize("name", PAGES)
def test_figures_and_links_exist(name: str) -> None:
    folder = (ROOT / name).parent
    links = re.findall(
        r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", PAGES[name], flags=re.DOTALL)
    )
    for link in links:
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        page = folder / target if target else ROOT / name
        assert page.exists(), link
        if anchor:
            assert anchor in _anchors(page.read_text(encoding="utf-8")), link


@pytest.mark.smoke
def test_references_are_defined_and_used() -> None:
    for text in (README, SCHEMES):
        used = set(re.findall(r"\]\[([a-z]+)\]", text))
        defined = re.findall(r"^\[([a-z]+)\]: https://", text, re.MULTILINE)
        assert used == set(defined)
        assert len(defined) == len(used)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9_ -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_command_and_notebook_has_its_line() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGES["docs/commands.md"], re.MULTILINE)
    assert set(cli._COMMANDS) <= set(rows)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"(../notebooks/{notebook.name})" in PAGES["docs/notebooks.md"], (
            notebook.name
        )


def test_the_front_page_is_short_and_narrow() -> None:
    lines = README.splitlines()
    assert len(lines) <= 125
    assert max(len(line) for line in lines if not line.startswith(("|", "["))) <= 120


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {mj.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem
)
def test_notebooks_run_at_full_size(path: pathlib.Path) -> None:
    with warnings.catch_warnings():  # the kernel's own client warns on some platforms
        warnings.simplefilter("ignore")
        import nbclient
        import nbformat

        notebook = nbformat.read(path, as_version=4)
        environment = {k: v for k, v in os.environ.items() if k != "MRSA_JAX_SMALL"}
        nbclient.NotebookClient(notebook, timeout=600).execute(env=environment)
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    printed = "".join(output.get("text", "") for output in last.outputs)
    assert "claim holds" in printed
