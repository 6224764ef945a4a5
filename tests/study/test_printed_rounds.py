"""One convention of rounds in whatever is printed.

By the log's names, and otherwise from 1.
"""

from __future__ import annotations

import csv
import json
import pathlib
import re
import tomllib

import numpy as np
import pandas as pd
import pytest

import mrsa_jax as mj
from mrsa_jax import privacy, study
from mrsa_jax.cli import main
from mrsa_jax.plotting.points import as_shown, quantity
from mrsa_jax.study.advice import _by_hand
from mrsa_jax.study.publishing import _explorer
from mrsa_watch.logs import read_log

# the first less the third is client 0, and the first less the fifth is client 1
P = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]])
FIRST = 4  # as Python counts


def test_the_history_is_exposed_where_it_seems() -> None:
    assert privacy.first_exposure(P).tolist() == [2, FIRST, -1, -1]


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "header", "python"])
def test_rounds_without_names_are_counted_from_1(
    kind: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"log.{'csv' if kind == 'header' else kind}"
    if kind == "npy":
        np.save(path, P)
    elif kind == "npz":
        np.savez(path, P)
    else:
        head = "a,b,c,d\n" * (kind == "header")
        path.write_text(
            head + "".join(",".join(map(str, row)) + "\n" for row in P.tolist())
        )
    found = privacy.audit(P if kind == "python" else read_log(path), effort=0)
    assert [first for _, first in found.exposed] == [2, FIRST], (
        "arrays of Python count from 0"
    )
    said = " ".join(found.sentences())
    assert "(from round 3 on)" in said
    assert "(from round 5 on)" in said
    assert f"{found.recipe.text()}" in said
    if kind == "python":
        return
    out = tmp_path / "out"
    words = ["audit", str(path), "--effort", "0", "--out", str(out)]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2, first after round 3" in printed
    assert main([*words[:4], "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [one["first_round"] for one in content["exposed"]] == [3, 5]
    with (out / "rounds.csv").open(newline="") as stream:
        assert [row["round"] for row in csv.DictReader(stream)] == [
            "1",
            "2",
            "3",
            "4",
            "5",
        ]
    with (out / "clients.csv").open(newline="") as stream:
        assert [row["first_exposed"] for row in csv.DictReader(stream)] == [
            "3",
            "5",
            "",
            "",
        ]
    recipe = {row["round"] for row in content["recipe"]["rounds"]}
    lines = (out / "recipe.csv").read_text().splitlines()
    assert {line.split(",")[1] for line in lines if line.startswith("round")} == {
        str(name) for name in recipe
    }
    log = json.loads((out / "study.json").read_text())["log"]
    assert (log["first_round"], log["last_round"]) == ("1", "5")


def test_a_recipe_names_the_rows_that_it_adds() -> None:
    """Multiplied out, the printed rounds less one give the client."""
    found = privacy.audit(P, effort=0).recipe
    assert found is not None
    rows = [(name - 1, coefficient) for name, coefficient in found.printed_rounds]
    left = sum(coefficient * P[row] for row, coefficient in rows)
    assert np.flatnonzero(left).tolist() == [client for client, _ in found.clients]
    assert all(f"{name}" in found.text() for name, _ in found.printed_rounds)


@pytest.mark.parametrize("start", [0, 1, 7])
def test_rounds_with_names_keep_them(start: int, tmp_path: pathlib.Path) -> None:
    rows = [f"{start + j},c{i}" for j, row in enumerate(P) for i in np.flatnonzero(row)]
    (tmp_path / "log.csv").write_text("round,client\n" + "\n".join(rows) + "\n")
    wide = "round,a,b,c,d\n" + "".join(
        f"{start + j}," + ",".join(map(str, row)) + "\n"
        for j, row in enumerate(P.tolist())
    )
    (tmp_path / "wide.csv").write_text(wide)
    for name in ("log.csv", "wide.csv"):
        found = privacy.audit(read_log(tmp_path / name), effort=0)
        said = " ".join(found.sentences())
        assert f"(from round {start + 2} on)" in said
        assert f"(from round {start + FIRST} on)" in said
        assert found.to_dict()["exposed"][0]["first_round"] == start + 2
    log = privacy.ParticipationLog(P, tuple(range(5)), ("a", "b", "c", "d"))
    assert "(from round 2 on)" in " ".join(privacy.audit(log, effort=0).sentences())
    frame = pd.DataFrame(P, columns=list("abcd"))
    frame.index = pd.Index(range(start, start + 5), name="round")
    assert f"(from round {start + 2} on)" in " ".join(
        privacy.audit(frame, effort=0).sentences()
    )


def test_a_study_an_explorer_and_an_attack_agree(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = study.from_histories({"mine": P})
    (row,) = study.summarise(results)
    assert row.first_exposed_after == 3
    assert "(from round 3)" in study.sentences(results)[0]
    rng = np.random.default_rng(0)
    np.save(tmp_path / "who.npy", P)
    np.save(tmp_path / "sums.npy", P @ rng.normal(size=(4, 3)))
    words = [
        "attack",
        "least-squares",
        "--aggregates",
        str(tmp_path / "sums.npy"),
        "--participation",
        str(tmp_path / "who.npy"),
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert [one["exposed_in_sum"] for one in scores] == [3, 5, None, None]


def test_what_is_moved_by_hand_counts_from_1() -> None:
    at = {
        "num_clients": 6,
        "cohort_size": 3,
        "privacy_target": 1,
        "dropout_rate": 0.0,
        "availability": "independent",
        "rounds": 12,
        "seed": 0,
    }
    state = _by_hand.state_of(at)
    first = int(state.first_exposure[state.first_exposure >= 0].min())
    assert f"the first in round {first + 1}<" in _by_hand.shown(at).html
    _, hidden = _by_hand.charts_of(state)
    assert all(line.x.tolist() == list(range(1, 13)) for line in hidden.lines)


def test_pictures_of_rounds_count_from_1() -> None:
    ax = mj.plotting.plot_participation(P)
    assert ax.get_ylim() == (5.5, 0.5)
    assert ax.get_xlim() == (-0.5, 3.5)
    (image,) = ax.get_images()
    assert list(image.get_extent()) == [-0.5, 3.5, 5.5, 0.5]


def test_columns_of_places_are_shown_from_1() -> None:
    """Whatever a data set describes as a round from 0 is marked so, and shown one higher."""
    text = (
        pathlib.Path(study.__file__)
        .with_name("stores")
        .joinpath("variables.toml")
        .read_text(encoding="utf-8")
    )
    found = re.findall(
        r"^(\w+) = \[[^\]]*?Round, from 0", text, re.MULTILINE | re.DOTALL
    )
    assert set(found) == {"first_exposed_round", "first_exposure", "diverged_round"}
    assert tomllib.loads(text)
    for name in found:
        assert quantity(name).is_place
        assert as_shown(name, np.array([0.0, np.nan])).tolist()[0] == 1.0
    assert as_shown("strong_privacy", 3) == 3
    table = pd.DataFrame({"scheme": ["a"], "first_exposed_round": [2.0]})
    html = _explorer.linked(
        table, ["scheme"], "", {(0, "first_exposed_round"): (2.0, 4.0)}
    )
    assert ">3 (3 to 5)<" in html
