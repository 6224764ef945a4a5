"""The tutorial's code runs, and what its comments promise holds."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import GraphModel, registry as graphs
from mrsa_jax.selection import Selector
from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study.settings._parts import KINDS as PARTS

TEXT = (
    pathlib.Path(__file__).resolve().parent.parent / "docs" / "extending.md"
).read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def _file(name: str) -> str:
    """Write a user's file of the page into the working folder, with its study, and return it."""
    stem = name.removesuffix(".py")
    for rows in (ROWS, graphs.ROWS, availability.ROWS):
        rows.pop(stem, None)
    mj.study.KINDS.pop(f"attack {stem}", None)
    (block,) = (one for one in BLOCKS if re.search(rf'\.register\w*\("{stem}"', one))
    pathlib.Path(name).write_text(block)
    for toml in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL):
        if f"{stem}.toml" in toml:
            pathlib.Path(f"{stem}.toml").write_text(toml)
    return block


@pytest.fixture(autouse=True, scope="module")
def nothing_stays() -> Iterator[None]:
    parts = (kind.rows for kind in PARTS.values())
    registries: Any = (ROWS, graphs.ROWS, availability.ROWS, mj.study.KINDS, *parts)
    before = [dict(rows) for rows in registries]
    yield
    plt.close("all")
    for rows, old in zip(registries, before, strict=True):
        rows.clear()
        rows.update(old)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    assert len(BLOCKS) == 10
    found: dict[str, Any] = {"__name__": "__main__"}
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile("\n".join(BLOCKS), "docs/extending.md", "exec"), found)
    return found


@pytest.mark.long
def test_the_selector(names: dict[str, Any]) -> None:
    assert isinstance(names["selector"], Selector)
    history = np.asarray(names["history"])
    sizes = history.sum(axis=1)
    assert set(sizes.tolist()) <= {0, 12}
    # in turns: no client is in a sum twice more often than somebody who was never away
    # for long
    assert float(names["fairness"]) < 0.05
    assert int(names["exposed"]) == 120
    always = mj.selection.rollout(
        0, names["selector"], mj.availability.independent(0.0), 20
    )
    assert (np.asarray(always)[:10].sum(axis=0) == 1).all()
    assert (np.asarray(always)[10:].sum(axis=0) == 1).all()


@pytest.mark.long
def test_it_is_studied_compared_and_told_of(names: dict[str, Any]) -> None:
    results = names["results"]
    assert results["scheme"].values.tolist() == ["Longest waiting", "User partition"]
    assert "under Longest waiting" in results.mrsa.sentences()[0]
    assert names["axes"].collections or names["axes"].get_lines()
    table = names["table"].set_index("scheme")
    assert table.loc["pairs", "exposed_clients"] == 0
    assert table.loc["pairs", "guaranteed_privacy"] == 2
    assert table.loc["in turns", "guaranteed_privacy"] == 1
    judged = names["judged"]
    assert judged["scheme"].values.tolist() == ["as logged", "every second"]
    assert int(judged["rank"][0, -1]) == 24
    assert int(judged["rank"][1, -1]) == 12


@pytest.mark.long
def test_a_user_s_file_goes_through_every_command(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's file and study.

    A sweep from the command line, a figure and a page of it.
    """
    monkeypatch.chdir(tmp_path)
    ROWS.pop("longest_waiting", None)
    pathlib.Path("waiting.py").write_text(BLOCKS[0])
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) < 35
    (toml,) = re.findall(r"```toml\n(command[^\n]*# study.toml.*?)```", TEXT, re.DOTALL)
    pathlib.Path("study.toml").write_text(toml)
    assert cli.main(["sweep", "study.toml", "--dry-run"]) == 2
    assert "got 'longest_waiting'" in capsys.readouterr().err
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert cli.main(["sweep", "study.toml", "--plugin", "waiting.py"]) == 0
    results = mj.study.open_study("results/sweep").load()
    waiting = results.sel(scheme="longest_waiting")
    assert waiting["scheme"].item() == "Longest waiting"
    assert (waiting["exposed_clients"].sel(dropout_rates=0.4).values == 24).all()
    assert (
        results.sel(scheme="batch_partitioning:2")["exposed_clients"].values == 0
    ).all()
    assert results.mrsa.plot(
        "exposed_clients", x="dropout_rates", hue="scheme"
    ).get_lines()
    assert cli.main(["report", "results/sweep"]) == 0
    assert "Longest waiting" in pathlib.Path("results/sweep/report.html").read_text()
    _check_commands("waiting")


@pytest.mark.long
def test_a_user_s_availability_is_swept_and_reported(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = _file("outages.py")
    assert len([line for line in text.splitlines() if line.strip()]) <= 25
    assert cli.main(["simulate", "--availability", "outages:0.5"]) == 2
    assert (
        "`availability` must be a known model; got 'outages'" in capsys.readouterr().err
    )
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert cli.main(["sweep", "outages.toml", "--plugin", "outages.py"]) == 0
    results = mj.study.open_study("results/sweep").load()
    skipped = results["skipped_rounds"].squeeze()
    assert (skipped.sel(availability="independent") <= 1).all()
    # 3 deviations of 40
    assert (abs(skipped.sel(availability="outages:0.5") - 20) <= 10).all()
    assert cli.main(["report", "results/sweep"]) == 0
    assert "outages:0.5" in pathlib.Path("results/sweep/report.html").read_text()


def _check_commands(word: str) -> list[list[str]]:
    """Parse and check the page's commands that name a file, and return their words."""
    lines = re.findall(rf"^mrsa-jax .*{word}.*$", TEXT, re.MULTILINE)
    assert lines
    commands = [shlex.split(line)[1:] for line in lines]
    for words in commands:
        if "--help" in words:
            continue
        config = cli._parse(words)
        if hasattr(config, "num_clients") or hasattr(config, "population"):
            mj.study.validate(config)
    return commands


@pytest.mark.long
def test_a_user_s_graph_is_simulated_swept_and_reported(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = _file("cliques.py")
    assert len([line for line in text.splitlines() if line.strip()]) <= 25
    assert cli.main(["secagg", "--graph", "cliques:4"]) == 2
    assert "`graph` must be a known graph; got 'cliques'" in capsys.readouterr().err
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        command = "secagg --plugin cliques.py --graph cliques:4 --num-clients 12 --fidelity sets"
        assert cli.main(command.split()) == 0
        said = capsys.readouterr().out
        assert "12 clients, cliques (4), t = 3" in said
        assert "A curious server learns 3 sums over part of the 12 clients" in " ".join(
            said.split()
        )
        assert cli.main(["sweep", "cliques.toml", "--plugin", "cliques.py"]) == 0
    results = mj.study.open_study("results/sweep").load()
    assert (results["not_private_rate"].sel(graph="cliques:4") == 1).all()
    assert (results["not_private_rate"].sel(graph="complete") == 0).all()
    assert results.mrsa.plot(
        "not_private_rate", x="step_dropout_rate", hue="graph"
    ).get_lines()
    assert cli.main(["report", "results/sweep"]) == 0
    assert "cliques:4" in pathlib.Path("results/sweep/report.html").read_text()
    _check_commands("cliques")


@pytest.mark.parametrize(
    ("plugin", "text", "words"),
    [
        (
            "none.py",
            None,
            "`plugin` must be an existing Python file (.py), or an installed module",
        ),
        (
            "no_such_module",
            None,
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "bad.py",
            "import mrsa_jax\n\nx = 1 / 0\n",
            "line 3: ZeroDivisionError: division by zero",
        ),
        ("bad.py", "def f(:\n", "SyntaxError"),
        ("bad.py", "raise SystemExit(0)\n", "line 1: SystemExit: 0"),
        (
            "bad.py",
            "import mrsa_jax as mj\nmj.selection.register('uniform', print)\n",
            "line 2: ConfigurationError: `name` must be none of the package's own "
            "schemes",
        ),
    ],
)
def test_a_file_that_cannot_be_run_is_named(
    plugin: str,
    text: str | None,
    words: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        pathlib.Path(plugin).write_text(text)
    assert cli.main(["simulate", "--plugin", plugin]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"got '{plugin}'" in said
    assert words in said
    assert cli.main(["simulate", "--plugin"]) == 2


@pytest.mark.long
def test_settings_cannot_name_code(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('plugins = ["waiting.py"]\n[grid]\nseed = [1, 2]\n')
    with pytest.raises(mj.ConfigurationError, match="`plugins` is not a field"):
        mj.study.sweep(path)


@pytest.mark.long
def test_the_graph(names: dict[str, Any]) -> None:
    assert isinstance(names["cliques"](12, 4), GraphModel)
    graph = np.asarray(names["graph"])
    assert (graph == graph.T).all()
    assert (graph.sum(axis=1) == 3).all()
    assert names["is_private"] is False
    assert np.asarray(names["apart"]).sum(axis=1).tolist() == [4, 4, 4]
    assert names["rates"].not_private.rate == 1.0


@pytest.mark.long
def test_the_attack(names: dict[str, Any]) -> None:
    isolated = np.asarray(mj.privacy.first_exposure(names["who"])) >= 0
    by_difference = names["error"] < 1e-20
    assert by_difference.any()
    assert not (by_difference & ~isolated).any()
    assert ((names["solved"] < 1e-20) == isolated).all()


@pytest.mark.long
def test_a_user_s_attack_is_run_swept_drawn_and_reported(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = _file("differences.py")
    assert len([line for line in text.splitlines() if line.strip()]) <= 26
    assert cli.main(["attack", "differences"]) == 2
    said = capsys.readouterr().err
    assert "`attack` must be a known attack: " in said
    assert "got 'differences'" in said
    command, flags = _check_commands("attack differences")
    assert cli.main([*command, "--out", "found"]) == 0
    assert "Subtract any two sums that differ by one client" in capsys.readouterr().out
    content = json.loads(pathlib.Path("found/scores.json").read_text())
    rows = {row["scheme"]: row["recovered"] for row in content["summary"]}
    assert rows["Bernoulli (0.5)"] > 0
    assert rows["Multi-RoundSecAgg (T=2)"] == 0
    assert pathlib.Path("found/errors.png").stat().st_size > 0
    assert cli.main(["report", "found"]) == 0
    page = pathlib.Path("found/report.html").read_text()
    assert "mrsa_jax attack differences" in page
    assert cli.main(flags) == 0
    assert "Rounds whose sums the server keeps." in " ".join(
        capsys.readouterr().out.split()
    )
    assert cli.main(["sweep", "differences.toml", "--plugin", "differences.py"]) == 0
    results = mj.study.open_study("results/sweep").load()
    few, many = results["recovered"].values.ravel()
    assert few <= many
    assert many > 0
    pathlib.Path("differences.py").write_text(text.replace("0.05", "0.01"))
    assert cli.main(["sweep", "differences.toml", "--plugin", "differences.py"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "differences.py has changed (attack differences) since 2 points were computed"
        in said
    )
