"""Columns and names that would turn a verdict.

None is passed over, or taken apart, in silence.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import ParticipationLog, audit, read_log
from mrsa_watch.logs._identity import likeness

Writer = Callable[[pathlib.Path, dict[str, list[Any]]], pathlib.Path]


def _text(mark: str, end: str = "\n", quote: str = "") -> Writer:
    def write(folder: pathlib.Path, table: dict[str, list[Any]]) -> pathlib.Path:
        rows = [list(table), *zip(*table.values(), strict=True)]
        lines = [mark.join(f"{quote}{field}{quote}" for field in row) for row in rows]
        path = folder / "log.csv"
        path.write_bytes((end.join(lines) + end).encode())
        return path

    return write


def _parquet(folder: pathlib.Path, table: dict[str, list[Any]]) -> pathlib.Path:
    pd.DataFrame(table).to_parquet(folder / "log.parquet", index=False)
    return folder / "log.parquet"


WRITERS: dict[str, Writer] = {
    "comma": _text(","),
    "quoted": _text(";", "\r\n", '"'),
    "tab": _text("\t", "\r"),
    "parquet": _parquet,
}
# c took part in both rounds, but its first update never reached the sum: a is alone
# there
ROUNDS = {"round": [1, 1, 2, 2], "client": ["a", "c", "b", "c"]}
REACHED = [True, False, True, True]

SPEAKING_NAMES = (
    "status Status client_status updateStatus state success succeeded is_success "
    "completed "
    "is_complete finished done failed failure is_failed dropped drop_out dropout "
    "dropped_out "
    "outcome result error error_message exception accepted rejected aborted cancelled "
    "crashed "
    "excluded included skipped aggregated participated responded survived is_straggler "
    "timeout "
    "timed_out disconnected used is_used valid active online available received in_sum "
    "num_examples numExamples n_samples samples sample_count train_samples numsamples "
    "examples "
    "example_count dataset_size count n size agg_weight weight_factor coefficient "
    "staleness"
)
SILENT_NAMES = [
    "loss",
    "train_loss",
    "accuracy",
    "seconds",
    "timestamp",
    "hostname",
    "lr",
    "cpu",
]
SPEAKING_VALUES = [
    ("completed", "failed"), ("ok", "error"), ("OK", "TIMEOUT"), ("aggregated", "dropped"),
    ("SUCCESS", "FAILURE"), ("TrainCompleted", "TrainFailed"), ("fit_ok", "fit_error"),
    ("yes", "no"), ("true", "false"), ("1", "0"), ("Y", "N"), ("1", ""), (True, False), (1, 0),
    (1.0, 0.0), ("accepted", "late"), ("done", "disconnected"),
]  # fmt: skip


@pytest.fixture(params=WRITERS)
def write(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Callable[[dict[str, list[Any]]], pathlib.Path]:
    """Return what writes a table in one of the formats."""
    return lambda table: WRITERS[request.param](tmp_path, table)


def _read(path: pathlib.Path, **settings: Any) -> ParticipationLog:
    # the type checker's checks are not the point
    return inspect.unwrap(read_log)(path, **settings)


def _exposed(log: ParticipationLog) -> set[Any]:
    rows = tuple(map(tuple, log.participation.tolist()))
    return {log.clients[client] for client in _exposed_in(rows)}


@functools.cache
def _exposed_in(rows: tuple[tuple[int, ...], ...]) -> list[int]:
    """Of the same few histories, in one file after the other."""
    return [client for client, _ in audit(np.array(rows), effort=0).exposed]


@pytest.mark.long
def test_a_column_that_speaks_of_participation_waits_for_a_decision(write: Any) -> None:
    """By its name, whatever it holds; by its values, whatever its name."""
    speaking = [(name, (7, 9)) for name in SPEAKING_NAMES.split()]
    speaking += [("phase", values) for values in SPEAKING_VALUES]
    for name, (yes, no) in speaking:
        table = {**ROUNDS, name: [yes if reached else no for reached in REACHED]}
        path = write(table)
        with pytest.raises(
            ConfigurationError, match=rf"a decision on column '{name}' \("
        ):
            read_log(path)
        plain = read_log(path, ignore_columns=[name])
        assert (plain.columns_used, plain.columns_ignored) == (
            ("round", "client"),
            (name,),
        )
        assert _exposed(plain) == set()
        chosen = _read(path, where={name: yes}) if yes != "" else plain
        assert chosen.columns_used == ("round", "client", name)
        assert _exposed(chosen) == {"a"}, (name, yes)


@pytest.mark.long("comma")
def test_columns_that_say_nothing_are_listed_as_ignored(write: Any) -> None:
    for name in SILENT_NAMES:
        log = read_log(write({**ROUNDS, name: [0.25, 0.5, 0.125, 0.75]}))
        assert log.columns_ignored == (name,)
        found = audit(log, effort=0)
        assert found.to_dict()["columns_ignored"] == [name]
        words = f"Columns used: round and client; columns ignored: {name}."
        assert words in found.sentences()
    # chooses no row, either way
    constant = read_log(write({**ROUNDS, "job": [1, 1, 1, 1]}))
    assert constant.columns_ignored == ("job",)


def test_where_keeps_what_a_filter_of_the_rows_keeps(write: Any) -> None:
    """Every subset of three texts, alone and with a second condition, against pandas."""
    rng = np.random.default_rng(1)
    rows = [(j, f"c{i}") for j in range(6) for i in range(5)]
    states = rng.choice(["completed", "failed", "late, but in"], len(rows)).tolist()
    frame = pd.DataFrame(rows, columns=["round", "client"]).assign(
        status=states, job=rng.integers(1, 3, len(rows)), loss=rng.random(len(rows))
    )
    quoted = frame.assign(status=[state.replace(", ", " / ") for state in states])
    path = write({name: values.tolist() for name, values in quoted.items()})
    kinds = sorted(set(quoted["status"]))
    for size in (1, 2, 3):
        for chosen in itertools.combinations(kinds, size):
            for job in (None, 1):
                kept = quoted[quoted["status"].isin(chosen)]
                kept = kept if job is None else kept[kept["job"] == job]
                want = pd.crosstab(kept["round"], kept["client"]).astype(bool)
                words = [f"status={','.join(chosen)}"] + ["job=1"] * (job is not None)
                mapping = {"status": chosen} | ({} if job is None else {"job": job})
                for where in (words, mapping):
                    log = _read(path, where=where, ignore_columns="" if job else "job")
                    assert log.rounds == tuple(want.index)
                    assert log.clients == tuple(want.columns)
                    assert (log.participation == want.to_numpy()).all()


def test_weights_wait_for_a_decision_too(write: Any) -> None:
    """Three rounds of two clients: as weighted sums they leave nothing hidden."""
    table = {
        "round": [1, 1, 2, 2],
        "client": ["a", "b", "a", "b"],
        "num_examples": [3, 5, 4, 5],
    }
    path = write(table)
    with pytest.raises(
        ConfigurationError, match="--weight-column COLUMN takes it as weights"
    ):
        read_log(path)
    assert _exposed(read_log(path, ignore_columns="num_examples")) == set()
    weighted = read_log(path, weight_column="num_examples")
    assert weighted.participation.tolist() == [[3, 5], [4, 5]]
    assert _exposed(weighted) == {"a", "b"}
    usual = write({**table, "weight": [1, 2, 1, 2]})
    for settings in ({}, {"weight_column": "num_examples"}):
        with pytest.raises(
            ConfigurationError, match=r"a decision on column '(num_ex|weight)"
        ):
            _read(usual, **settings)
    log = read_log(usual, ignore_columns="weight, num_examples")
    assert (log.participation.tolist(), log.columns_used) == (
        [[True] * 2] * 2,
        ("round", "client"),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"where": "status"}, "`where` must be COLUMN=TEXT.*; got 'status'"),
        ({"where": ["=x"]}, "`where` must be COLUMN=TEXT"),
        (
            {"where": {"status": []}},
            "`where` must give each column a text; got 'status'",
        ),
        (
            {"where": "state=completed"},
            "expected one column 'state'; found columns 'round'",
        ),
        (
            {"where": "status=complete"},
            "rows with 'complete' in column 'status'; found 'ok', 'fa",
        ),
        (
            {"ignore_columns": "statsu"},
            "expected a column 'statsu' to ignore; found columns",
        ),
        (
            {"ignore_columns": "status", "where": "status=ok"},
            "either used or ignored; found both",
        ),
        (
            {"ignore_columns": "client"},
            "a round and a client column|found a column 'status'",
        ),
        (
            {"weight_column": "status"},
            "expected a weight, a number of 0 or more; found 'ok'",
        ),
        ({"where": "status=ok", "layout": "matrix"}, "and 'status' asked for"),
    ],
)
def test_choices_that_do_not_fit(
    write: Any, settings: dict[str, Any], message: str
) -> None:
    path = write({**ROUNDS, "status": ["ok", "failed", "ok", "ok"]})
    with pytest.raises(ConfigurationError, match=message):
        _read(path, **settings)


def test_columns_of_a_matrix_are_clients_or_ignored(tmp_path: pathlib.Path) -> None:
    """A column of rounds or of a status would be a client that takes part."""
    P = {"a": [1, 0, 1], "b": [1, 1, 0]}
    for name in ("round", "server_round", "client", "status", "num_samples"):
        table = {name: [0, 1, 1], **P}
        for path, settings in (
            (_text(",")(tmp_path, table), {"layout": "matrix"}),
            (_parquet(tmp_path, table), {}),
            (_parquet(tmp_path, table), {"layout": "matrix"}),
        ):
            message = (
                f"found a column '{name}'|and a client c|each round once in the index"
            )
            with pytest.raises(ConfigurationError, match=message):
                _read(path, **settings)
            log = _read(path, ignore_columns=name, **settings)
            assert (log.clients, log.columns_ignored) == (("a", "b"), (name,))
            assert log.participation.tolist() == [[1, 1], [0, 1], [1, 0]]
    for settings in ({"where": "a=1"}, {"ignore_columns": "a"}, {"weight_column": "a"}):
        path = tmp_path / "plain.csv"
        path.write_text("1,0\n0,1\n")
        with pytest.raises(ConfigurationError, match="expected names of columns"):
            _read(path, **settings)
        np.save(tmp_path / "plain.npy", np.eye(2))
        with pytest.raises(ConfigurationError, match="expected names of columns"):
            _read(tmp_path / "plain.npy", **settings)
    path.write_text("a,01,1\n1,0,1\n")
    with pytest.raises(
        ConfigurationError, match=r"one way to write a client .*; found '1' and"
    ):
        read_log(path, layout="matrix")


def _strays(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield every text with one stray quote, and the line that it is on."""
    for number, line in enumerate(lines):
        for place in range(len(line) + 1):
            changed = [*lines]
            changed[number] = f'{line[:place]}"{line[place:]}'
            yield number + 1, "\n".join(changed) + "\n"


def test_a_stray_quote_anywhere_is_named_by_its_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    lines = ["round,client", "1,anna", '1,"bob, the ""1st"""', '"2",anna', "2,bob"]
    path.write_text("\n".join(lines) + "\n")
    assert read_log(path).clients == ("anna", "bob", 'bob, the "1st"')
    count = 0
    for number, text in _strays(lines):
        path.write_text(text)
        with pytest.raises(
            ConfigurationError, match=f"log.csv:{number}: expected quotes around"
        ):
            read_log(path)
        count += 1
    assert count == sum(len(line) + 1 for line in lines)
    for text in (
        'round,client\n1,x"a,"\n2,b\n',
        'round,client\n1,"a\n2,"b\n',
        '1,0\n"1,0\n',
    ):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match="expected quotes around"):
            read_log(path)


def test_line_breaks_in_names_are_refused(tmp_path: pathlib.Path) -> None:
    for name in ("a\nb", "a\rb", "a\r\nb"):
        for column in ("round", "client"):
            table = {**ROUNDS, column: ["x", name, "y", "z"]}
            with pytest.raises(
                ConfigurationError, match="row 1: expected a name in one line"
            ):
                read_log(_parquet(tmp_path, table))


@pytest.mark.parametrize(
    "names",
    [
        "1 01",
        "1 1.0",
        "1 +1",
        "1000 1e3",
        "0 -0",
        "0.5 .5",
        "007 7",
        "10 1e1",
        "-1 -01",
        "5 5.",
        "anna anna\u200b",
        "anna \u202eanna",
        "caf\u00e9 cafe\u0301",
        "a\x1bb ab",
        "７ 7",
    ],
)
def test_names_that_may_be_one_are_not_taken_for_two(write: Any, names: str) -> None:
    one, two = names.split()
    for column in ("round", "client"):
        if column == "round" and one.startswith("-"):
            continue
        table = {"round": ["3", "3", "4", "4"], "client": ["b", "c", "b", "c"]}
        table[column] = ["3", one, "4", two]
        path = write(table)
        place = "log.parquet: row 3" if path.suffix == ".parquet" else "log.csv:5"
        message = f"{place}: expected one way to write a {column} .*; found .* and"
        with pytest.raises(ConfigurationError, match=message):
            read_log(path)


def test_rounds_that_are_no_rounds_are_named(write: Any) -> None:
    for odd, message in (
        ("-0.5", "a round .a number from 0 on, or a name.; found '?-0.5"),
        ("-1", "a round .a number from 0 on, or a name.; found '?-1"),
        ("x", "a round's number, as most rounds are .*; found 'x'"),
        ("1/2", "a round's number, as most rounds are .*; found '1/2'"),
        ("9" * 999, "a round's number, as most rounds are .*; found '999"),
        ("9" * 5000, "a name in one line, of at most 1000 characters; found '999"),
    ):
        for place in range(4):
            rounds = ["1", "2", "3", "4"]
            rounds[place] = odd
            path = write({"round": rounds, "client": ["a", "b", "a", "b"]})
            where = f"row {place}" if path.suffix == ".parquet" else f"csv:{place + 2}"
            with pytest.raises(
                ConfigurationError, match=f"{where}: expected {message}"
            ):
                read_log(path)
    named = {"round": ["1/2", "2/4", "init", "7"], "client": ["a", "b", "a", "b"]}
    # dates, not fractions
    assert set(read_log(write(named)).rounds) == set(named["round"])


def test_names_that_differ_stay_apart(write: Any) -> None:
    """Hundreds of random names of which no two are alike.

    None is refused, none is lost.
    """
    rng = np.random.default_rng(2)
    marks = np.array(list("abcXYZ019-_.:/é"))
    names = {"".join(rng.choice(marks, rng.integers(3, 9))) for _ in range(1000)}
    number = re.compile(r"[-.0-9]+")
    names = {
        name for name in names if any(map(str.isalnum, name)) and "..." not in name
    }
    by_likeness = {
        likeness(name): name for name in sorted(names) if not number.fullmatch(name)
    }
    names = sorted(by_likeness.values())
    assert len(names) > 500
    log = read_log(write({"round": [1] * len(names), "client": names}))
    assert set(log.clients) == set(names)
    assert log.participation.all()
