"""Tables of pandas, long and wide.

The same verdict and names as the log on disk, or a refusal.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import ParticipationLog, audit, read_log

ENTRIES: dict[str, Callable[[Any], Any]] = {
    "audit": lambda P: inspect.unwrap(audit)(P, effort=0).to_dict(),
    "strong_privacy": mj.privacy.strong_privacy,
    "strong_privacy_trajectory": mj.privacy.strong_privacy_trajectory,
    "weak_privacy": lambda P: mj.privacy.weak_privacy(P, effort=0),
    "weak_privacy_trajectory": lambda P: mj.privacy.weak_privacy_trajectory(
        P, method="bounds"
    ),
    "first_exposure": mj.privacy.first_exposure,
    "hidden_among": mj.privacy.hidden_among,
    "hidden_among_trajectory": mj.privacy.hidden_among_trajectory,
    "unweighted_group": lambda P: mj.privacy.unweighted_group(P, effort=0.01),
}
REFUSE: dict[str, Callable[[Any], Any]] = {
    "least_squares": lambda P: mj.attacks.least_squares(P, np.zeros((len(P), 1))),
    "rank": mj.modular.rank,
}
LONG = pd.DataFrame(
    {"round": [3, 3, 3, 9, 9, 12, 12], "client": [17, 18, 41, 50, 60, 17, 18]}
)
LOG = ParticipationLog(
    np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 0, 0, 0]], bool),
    (3, 9, 12),
    (17, 18, 41, 50, 60),
)


def _read(table: Any, **settings: Any) -> ParticipationLog:
    return inspect.unwrap(read_log)(table, **settings)


def _same(log: ParticipationLog, other: ParticipationLog) -> bool:
    same = log.participation.tolist() == other.participation.tolist()
    return same and (log.rounds, log.clients) == (other.rounds, other.clients)


def _forms() -> dict[str, Any]:
    """Return one history in every form that a table can have."""
    cross = pd.crosstab(LONG["round"], LONG["client"])
    gaps = LONG.astype(object).convert_dtypes()
    return {
        "long": LONG,
        "any order": LONG.sample(frac=1, random_state=3).iloc[:, ::-1],
        "other names": LONG.rename(columns={"round": "server_round", "client": "cid"}),
        "more columns": LONG.assign(loss=np.linspace(0.1, 0.9, 7), host="h"),
        "floats": LONG.astype(float),
        "nullable": gaps,
        "categories": LONG.astype({"client": "category"}),
        "index": LONG.set_index("round"),
        "both in the index": LONG.set_index(["round", "client"]),
        "arrow": pa.Table.from_pandas(LONG, preserve_index=False),
        "crosstab": cross,
        "crosstab of bools": cross.astype(bool),
        "crosstab, shuffled": cross.iloc[[2, 0, 1]],
        "crosstab of floats": cross.astype(float),
        "wide, unnamed axes": cross.rename_axis(index=None, columns=None),
    }


def test_every_form_of_a_table_is_read_alike() -> None:
    for form, table in _forms().items():
        settings = {"restarts": "same"} if form == "any order" else {}
        assert _same(_read(table, **settings), LOG), form


@pytest.mark.long("weak_privacy_trajectory")
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_takes_a_table_for_the_log_that_it_is(entry: str) -> None:
    """A long table of integers was read as a matrix of weights, whatever the question."""
    call = ENTRIES[entry]
    wanted = repr(call(LOG)) if entry == "audit" else repr(call(LOG.participation))
    for form in ("long", "crosstab"):  # those between are read alike, as above
        found = call(_forms()[form])
        if entry == "audit":
            assert found["exposed"] == [{"client": 41, "first_round": 12}], form
            found = {**found, "columns_used": [], "columns_ignored": []}
        assert repr(found) == wanted, form
    assert repr(call(LOG)) == wanted
    with pytest.raises(
        ConfigurationError, match=r"read_log reads a file; got 'log\.csv'"
    ):
        call("log.csv")
    with pytest.raises(ConfigurationError, match="read_log reads a file"):
        call(pathlib.Path("log.csv"))
    for table in (
        LONG.rename(columns={"client": "who"}),
        LONG.set_axis([0, 1], axis=1),
    ):
        with pytest.raises(ConfigurationError, match="table: expected a"):
            call(table)


@pytest.mark.parametrize("entry", REFUSE)
def test_what_takes_arrays_alone_says_how_to_make_one(entry: str) -> None:
    for table in (LONG, _forms()["crosstab"]):
        with pytest.raises(
            ConfigurationError, match=r"read_log\(table\)\.participation"
        ):
            REFUSE[entry](table)


def test_names_of_any_kind_are_kept() -> None:
    days = pd.to_datetime(["2024-01-09", "2024-01-10"])
    for rounds, clients in (
        (["r9", "r10"], ["site a", "site b"]),
        (list(days), ["a", "b"]),
        ([1, 2], [("eu", 1), ("eu", 2)]),
    ):
        long = pd.DataFrame(
            {"round": [*rounds, rounds[1]], "client": [clients[0], *clients]}
        )
        log = read_log(long)
        assert (log.rounds, log.clients) == (tuple(rounds), tuple(clients))
        assert log.participation.tolist() == [[True, False], [True, True]]
        wide = pd.DataFrame(
            [[1, 1], [1, 0]], rounds[::-1], pd.Index(clients, tupleize_cols=False)
        )
        assert _same(read_log(wide), log)
        assert read_log(wide, round_order="file").rounds == tuple(rounds[::-1])


def test_weights_of_tables_are_asked_for() -> None:
    table = LONG.assign(num_examples=[3, 5, 7, 2, 2, 4, 5])
    with pytest.raises(ConfigurationError, match="a decision on column 'num_examples'"):
        audit(table)
    log = read_log(table, weight_column="num_examples")
    assert log.participation.tolist() == [
        [3, 5, 7, 0, 0],
        [0, 0, 0, 2, 2],
        [4, 5, 0, 0, 0],
    ]
    wide = table.pivot_table("num_examples", "round", "client", fill_value=0)
    with pytest.raises(
        ConfigurationError, match=r'layout="matrix"\) that its entries are weights'
    ):
        audit(wide)
    assert _same(read_log(wide, layout="matrix"), log)
    halves = wide.map(lambda value: Fraction(int(value), 2)).iloc[::-1]
    log = read_log(halves, layout="matrix")
    assert (log.participation[0].tolist(), log.scales) == ([3, 5, 7, 0, 0], (2, 1, 2))
    assert (
        mj.privacy.integer_weights(halves).tolist()
        == mj.privacy.integer_weights(log.participation).tolist()
    )
    done = LONG.assign(status=["ok"] * 6 + ["failed"])
    assert (
        read_log(done, where={"status": "ok"}).participation[2].tolist()
        == [True] + [False] * 4
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            LONG.rename(columns={"client": "who"}),
            "table: expected a table that can be read in one",
        ),
        (
            LONG.rename(columns={"round": "when", "client": "who"}),
            "in one way only: .*round_c",
        ),
        (LONG.set_axis([0, 1], axis=1), "read in one way only"),
        (
            pd.DataFrame({"round": [1, 1], "a": [1, 0], "b": [1, 1]}),
            "each round once in the index",
        ),
        (
            pd.DataFrame({"who": ["a", "b"]}),
            "row 0, column 'who': expected a number .*; found 'a'",
        ),
        (
            pd.DataFrame({"a": [1, None], "b": [0, 1]}),
            "row 1, column 'a': .*; found nothing",
        ),
        (
            pd.DataFrame([[1, 0], [1, 1]], [2, 2]),
            "row 1: expected each round once in the index",
        ),
        (
            pd.DataFrame([[1, 0], [1, 1]], columns=["a", "a"]),
            "found a column 'a' again",
        ),
        (pd.DataFrame([[1, 0], [1, 1]], ["1", "01"]), "one way to write a round"),
        (pd.DataFrame(), "expected a column for each client"),
        (
            pd.DataFrame({"a": []}),
            "expected two axes, rounds and clients, and at least one entry",
        ),
        (
            LONG.assign(client=None),
            "row 0: expected the name or number of a client; found nothing",
        ),
        (LONG.assign(client=[[1]] * 7), "expected plain values in column 'client'"),
        (
            LONG.assign(notes=[{}] * 7),
            r"a decision on column 'notes' \(nested values\)",
        ),
        (
            LONG.set_index("round", drop=False),
            "table: expected columns and index of different na",
        ),
        (
            pd.concat([LONG, LONG]),
            "table: row 7: expected the rows of round 3 next to each other",
        ),
        (LONG.iloc[[0, 1, 1, 3]], "table: row 2: expected each client once in a round"),
    ],
)
def test_tables_that_are_ambiguous_or_broken(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_log(table)


@pytest.mark.long
def test_random_tables_are_read_as_their_files_are(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(5)
    for trial in range(20):
        history = rng.random(rng.integers(1, 8, 2)) < 0.5
        history[0, 0] = True
        rows, columns = np.nonzero(history)
        order = rng.permutation(len(rows))
        table = pd.DataFrame(
            {"round": rows[order] * 3, "cid": [f"c{i}" for i in columns[order]]}
        )
        table.to_csv(tmp_path / "log.csv", index=False)
        log = read_log(tmp_path / "log.csv", restarts="same")
        assert _same(read_log(table, restarts="same"), log), trial
        cross = pd.crosstab(table["round"], table["cid"])
        assert _same(read_log(cross), log), trial
