"""Whole participation logs and JSON Lines of any system, as `read_log` and `audit` read them."""

from __future__ import annotations

import gzip
import inspect
import json
import pathlib
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import audit, read_log

HEADER = {
    "format": "mrsa-jax participation log", "version": 1, "system": "a system 1.0",
    "aggregation": "secagg+", "pseudonyms": None, "run": 0,
}  # fmt: skip


def _log(
    path: pathlib.Path, *lines: dict[str, Any] | str, header: Any = HEADER
) -> pathlib.Path:
    all_lines = [header, *lines]
    texts = [
        line if isinstance(line, str) else json.dumps(line) + "\n" for line in all_lines
    ]
    path.write_text("".join(texts))
    return path


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log"


SUM = {"round": 1, "clients": ["a", "b"]}


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ((), {}, "log: expected a learnt sum; found none$"),
        (
            ({"round": 1, "status": "aborted"},),
            {},
            "a learnt sum; found none .1 aborted.$",
        ),
        ((SUM, "{\n", SUM), {}, "log:3: expected a JSON object on one line"),
        ((SUM, "\n", SUM), {}, "log:3: expected a JSON object on one line"),
        (
            (SUM, {**SUM, "clients": ["c"]}),
            {},
            "log:3: expected of round 1.* what line 2 says",
        ),
        (
            (SUM, {"round": 2, "clients": ["a", "A\u200b", "A"]}),
            {},
            r"log:3: expected one way to write a client .*; found 'A\\u200b' and 'a'",
        ),
        (
            (SUM, {"round": 2, "clients": ["1", "01", "c"]}),
            {},
            "log:3: expected one way to write",
        ),
        (
            (SUM,),
            {"memory_bytes": 1},
            "`memory_bytes` must hold .* 1 rounds x 2 clients",
        ),
        (
            (SUM,),
            {"round_column": "round"},
            "a participation log, which has its own keys, and 'ro",
        ),
        (
            (SUM,),
            {"where": "status=learnt"},
            "a participation log, which has its own keys, and 's",
        ),
        ((SUM,), {"ignore_columns": "time"}, "none in a participation log"),
        ((SUM,), {"format": "csv"}, "log:1: expected CSV .*; found JSON"),
        ((SUM,), {"format": "parquet"}, "expected a Parquet file"),
        ((SUM,), {"format": "nvflare"}, "expected a line 'Contribution from"),
    ],
)
def test_logs_that_cannot_be_read(
    path: pathlib.Path, lines: tuple[Any, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_log(_log(path, *lines), **settings)


def test_a_log_whose_header_is_missing(path: pathlib.Path) -> None:
    for more in (
        {"status": "learnt"},
        {"asked": ["a", "b"]},
        {"part": "low"},
        {"sum": 0},
    ):
        path.write_text(json.dumps({**SUM, **more}) + "\n")
        message = "log:1: expected the header of a participation lo"
        with pytest.raises(ConfigurationError, match=message):
            read_log(path)
    path.write_text(json.dumps(SUM) + "\n")  # what other systems write, too
    assert read_log(path).clients == ("a", "b")


def test_a_format_that_is_not_known(path: pathlib.Path) -> None:
    with pytest.raises(
        ConfigurationError, match="`format` must be a known format: did you mean 'js"
    ):
        inspect.unwrap(read_log)(_log(path, SUM), format="json")  # type: ignore[arg-type]


def test_a_log_by_hand(path: pathlib.Path) -> None:
    """Rows are learnt sums by round; noise and clip stand beside them."""
    log = read_log(
        _log(
            path,
            {"round": 9, "clients": ["bob", "anna"], "noise": 0.5, "clip": 2},
            {
                "round": 7,
                "status": "aborted",
                "asked": ["zoe"],
                "lost": {"upload": ["zoe"]},
            },
            {"round": 2, "clients": ["carl"]},
            {"round": 8, "status": "refused"},
        )
    )
    assert (log.rounds, log.clients) == ((2, 9), ("anna", "bob", "carl"))
    assert log.participation.tolist() == [[False, False, True], [True, True, False]]
    assert (log.noise, log.clip, log.scales) == ((None, 0.5), (None, 2.0), None)
    assert log.aggregation == ("secagg+",)
    assert log.notes == (
        "Sums of which nothing was learnt, and which do not count: 1 aborted and 1 "
        "refused.",
    )


def test_weights_are_exact_and_rows_are_scaled(path: pathlib.Path) -> None:
    log = read_log(
        _log(
            path,
            {"round": 1, "clients": ["a", "b", "c"], "weights": ["1/3", "1/2", 1]},
            {"round": 2, "clients": ["a", "b"], "weights": ["0.1", 2]},
            {"round": 3, "clients": ["c"]},
        )
    )
    assert log.participation.tolist() == [[2, 3, 6], [1, 20, 0], [0, 0, 1]]
    assert log.scales == (Fraction(6), Fraction(10), Fraction(1))


def test_sums_and_runs_have_names_of_their_own(path: pathlib.Path) -> None:
    lines: list[dict[str, Any]] = [
        {"round": 10, "clients": ["a"]},
        {"round": 9, "clients": ["b"]},
    ]
    assert read_log(_log(path, *lines)).rounds == (9, 10)
    assert read_log(path, round_order="file").rounds == (10, 9)
    two = [*lines, {"round": 9, "sum": 1, "clients": ["c"]}]
    assert read_log(_log(path, *two)).rounds == ("9/0", "9/1", "10/0")
    again = [*lines, {**HEADER, "run": 1}, {"round": 9, "clients": ["c"]}]
    assert read_log(_log(path, *again)).rounds == ("0:9", "0:10", "1:9")
    both = [*again, {"round": 1, "sum": 2, "clients": ["d"]}]
    assert read_log(_log(path, *both)).rounds == ("0:9/0", "0:10/0", "1:1/2", "1:9/0")


def test_lines_in_any_order_are_one_history(path: pathlib.Path) -> None:
    """Clocks may jump, and lines of several writers may be mixed.

    Rounds order the rows.
    """
    lines = [
        {
            "round": j,
            "sum": j % 2,
            "clients": [f"c{j % 5}", "x"],
            "time": f"{2040 - j}-01-01",
        }
        for j in range(12)
    ]
    first = read_log(_log(path, *lines))
    random.Random(1).shuffle(lines)
    again = read_log(_log(path, *lines))
    assert (first.rounds, first.clients) == (again.rounds, again.clients)
    np.testing.assert_array_equal(first.participation, again.participation)


def test_repetitions_and_cut_lines_are_told_of_by_line(path: pathlib.Path) -> None:
    again = [SUM] * 10
    log = read_log(
        _log(
            path,
            SUM,
            *again,
            '{"rou #torn\n',
            {**HEADER, "run": 1},
            SUM,
            '{"round": 2, "clients": ["z"]}',
        )
    )
    assert log.rounds == ("0:1", "1:1")
    assert log.notes == (
        "Lines 3, 4, 5, 6, 7, 8, 9, 10 and 2 more say what earlier ones say: each sum "
        "counts once.",
        "Line 13 was cut short, before the recorder confirmed what stood there: not "
        "counted.",
        "Line 16, the last, has no end yet: not counted.",
    )
    told = audit(log, effort=0).sentences()
    assert [told.index(note) for note in log.notes] == sorted(
        map(told.index, log.notes)
    )
    assert audit(log, effort=0).to_dict()["notes"] == list(log.notes)


@pytest.mark.long
def test_every_cut_of_a_log_is_a_log(path: pathlib.Path) -> None:
    """Whole lines count, the rest is told of, and nothing else changes."""
    lines = [
        {"round": j, "clients": ["a", f"b{j}"], "weights": [1, j + 1]} for j in range(4)
    ]
    text = _log(path, *lines).read_bytes()
    whole = read_log(path).participation
    ends = [place + 1 for place, byte in enumerate(text) if byte == ord("\n")]
    for cut in range(ends[1], len(text) + 1):
        path.write_bytes(text[:cut])
        log = read_log(path)
        count = sum(end <= cut for end in ends) - 1
        np.testing.assert_array_equal(log.participation, whole[:count, : count + 1])
        assert len(log.notes) == (cut not in ends)


def test_a_plain_server_saw_everything(path: pathlib.Path) -> None:
    """And the audit says so first."""
    plain = {**HEADER, "aggregation": "plain"}
    told = audit(read_log(_log(path, SUM, header=plain)), effort=0).sentences()
    assert told[0] == (
        "The server saw every update by itself (plain aggregation): what follows is "
        "what secure "
        "aggregation of these sums would hide."
    )
    both = _log(path, SUM, {**plain, "run": 1}, SUM)
    assert (
        audit(read_log(both), effort=0)
        .sentences()[0]
        .startswith("In part of the runs the serv")
    )
    assert audit(read_log(both), effort=0).to_dict()["aggregation"] == [
        "secagg+",
        "plain",
    ]
    assert "saw every update" not in " ".join(
        audit(read_log(_log(path, SUM))).sentences()
    )


def test_noise_that_the_log_tells_of(path: pathlib.Path) -> None:
    """mu^2 is the sum over a client's rounds of (weight x clip / noise)^2, others known."""
    noisy = {"noise": 2.0, "clip": 4.0}
    log = read_log(
        _log(
            path,
            {"round": 1, "clients": ["a", "b"], "weights": [1, "1/2"], **noisy},
            {"round": 2, "clients": ["b", "c"], "noise": 3, "clip": 1},
        )
    )
    found = audit(log, effort=0).noisy
    assert found is not None
    mu = {str(name): own for name, own, _ in found.known}
    assert mu == pytest.approx({"a": 2.0, "b": (1 + 1 / 9) ** 0.5, "c": 1 / 3})
    assert found.sentences()[0].startswith(
        "With the noise that the log records (noise multiplier 0.5 to 3) all of this "
        "is up to tha"
    )
    # what the caller says counts
    told = audit(log, effort=0, noise_multiplier=1.0, clip=1.0).noisy
    assert told is not None
    assert {str(name): own for name, own, _ in told.known}["c"] == pytest.approx(1.0)
    # blocks scaled by what the log says of each sum: the same as with one multiplier
    # for all
    same = read_log(
        _log(path, {**SUM, **noisy}, {"round": 2, "clients": ["b", "c"], **noisy})
    )
    one = audit(same, effort=0).noisy
    other = audit(same, effort=0, noise_multiplier=0.5, clip=4.0).noisy
    assert one is not None
    assert other is not None
    assert [own[0] for own in one.known] == [own[0] for own in other.known]
    np.testing.assert_allclose(
        [own[1:] for own in one.known], [own[1:] for own in other.known]
    )


def test_sums_without_noise_or_clip_count_as_without(path: pathlib.Path) -> None:
    lines = [
        {"round": 1, "clients": ["a", "b"], "noise": 1, "clip": 1},
        {"round": 2, "clients": ["b", "c"], "noise": 1},
        {"round": 3, "clients": ["c", "d"], "clip": 1, "noise": 0},
    ]
    found = audit(read_log(_log(path, *lines)), effort=0).noisy
    assert found is not None
    mu = {str(name): own for name, own, _ in found.known}
    assert mu == {"a": 1.0, "b": np.inf, "c": np.inf, "d": np.inf}
    assert (
        "(noise multiplier 1; it records none, or no clip, in 2 of 3 sums)"
        in (found.sentences()[0])
    )
    assert audit(read_log(_log(path, *lines[1:])), effort=0).noisy is None


def test_packed_logs(path: pathlib.Path) -> None:
    text = _log(path, SUM).read_bytes()
    path.write_bytes(gzip.compress(text))
    assert read_log(path).clients == ("a", "b")
    path.write_bytes(b"\xef\xbb\xbf\r\n" + b'{"round": 1, "client": "a"}\r\n')
    assert read_log(path).clients == ("a",)


# JSON Lines of any system: the same checks as of a table in text.


def _rows(path: pathlib.Path, *rows: Any) -> pathlib.Path:
    path.write_text(
        "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    )
    return path


ROWS = [
    {"round": 1, "client": "a"},
    {"round": 1, "client": "b"},
    {"round": 3, "client": "b"},
]


def test_json_lines_are_a_long_table(path: pathlib.Path) -> None:
    log = read_log(_rows(path, *ROWS, "\n"))
    assert (log.rounds, log.clients) == ((1, 3), ("a", "b"))
    assert log.participation.tolist() == [[True, True], [False, True]]
    assert (log.columns_used, log.columns_ignored) == (("round", "client"), ())
    assert log.notes == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("{}\n",), "log:1: expected a header with a round and a client column"),
        (
            ({"time": 1, "who": "a"},),
            "log:1: expected a header with a round and a client column",
        ),
        (
            (*ROWS, {"round": 4}),
            "log:4: expected the name or number of a client; found nothing",
        ),
        ((*ROWS, {"client": "a"}), "log:4: expected a round .*; found nothing"),
        (
            (*ROWS, {"round": 4, "client": None}),
            "log:4: expected the name or number of a client",
        ),
        (
            (*ROWS, {"round": 4, "client": ["a"]}),
            "log:1: expected plain values in column 'client', or a",
        ),
        (
            (*ROWS, ROWS[1]),
            "log:4: expected each client once in a round .*; found client 'b' in",
        ),
        (
            (*ROWS, {"round": 1.0, "client": "c"}),
            "log:4: expected one way to write a round",
        ),
        ((*ROWS, {"round": -1, "client": "c"}), "log:4: expected a round"),
        (
            (*ROWS, '{"round": 4, "client": "c"'),
            "log:4: expected a JSON object on one li",
        ),
        (
            (*ROWS, '{"round": NaN, "client": "c"}\n'),
            "log:4: expected .* finite.*; found NaN",
        ),
        (
            (*ROWS, '{"round": 4, "round": 5}\n'),
            "log:4: .*different keys; found key 'round' twic",
        ),
        (
            (*ROWS, "[" * 100_000 + "\n"),
            "log:4: expected a JSON object; found values nested too d",
        ),
        (
            (*ROWS, {"round": 4, "client": "c", "weight": -1}),
            "log:1: expected a weight, .*; found nothing",
        ),
        (
            ({"round": 1, "client": "a", "status": "ok"}, *ROWS[1:]),
            r"a decision on column 'status' \('', 'ok'\)",
        ),
        (
            ({**ROWS[0], "num_examples": 5}, {**ROWS[1], "num_examples": 6}),
            "a decision on column 'num_examples'",
        ),
        (
            ({"round": 1, "client": "a", "metrics": {"x": 1}},),
            "column 'metrics' .nested values.",
        ),
    ],
)
def test_malformed_rows_are_named_by_line(
    path: pathlib.Path, rows: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_log(_rows(path, *rows))


@pytest.mark.smoke
def test_rows_wait_for_decisions_as_those_of_a_table_do(path: pathlib.Path) -> None:
    rows = [
        {"round": 1, "client": 7, "status": "ok", "num_examples": 10, "loss": 0.5},
        {"round": 1, "client": 12, "status": "lost", "num_examples": 3},
        {"round": 2, "client": 12, "status": "ok", "num_examples": 0.1, "loss": None},
    ]
    log = read_log(_rows(path, *rows), where="status=ok", weight_column="num_examples")
    assert (log.rounds, log.clients) == ((1, 2), (7, 12))
    assert log.participation.tolist() == [[10, 0], [0, 1]]
    assert log.scales == (Fraction(1), Fraction(10))
    assert log.columns_ignored == ("loss",)
    assert (
        read_log(path, ignore_columns="status,num_examples,loss").participation.sum()
        == 3
    )


def test_booleans_and_names_that_are_keys_elsewhere(path: pathlib.Path) -> None:
    rows = [{"round": 1, "client": True, "selected": True}, {"round": 1, "client": "x"}]
    with pytest.raises(ConfigurationError, match="found 'true', which names none"):
        read_log(_rows(path, *rows), where={"selected": "true"})
    log = read_log(path, where={"selected": "true"}, odd_names="keep")
    assert log.clients == ("true",)
