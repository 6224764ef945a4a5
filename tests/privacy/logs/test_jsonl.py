"""The participation log, version 1.

Each line is held to the format's rules and named by number.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mrsa_watch import ConfigurationError, Gate
from mrsa_watch.logs import TORN, LineParser, SumLine, integer_rows
from mrsa_watch.logs._jsonl import STAGES

HEADER = {
    "format": "mrsa-jax participation log", "version": 1, "system": "a system 1.0",
    "aggregation": "secagg+", "pseudonyms": None, "run": 0,
}  # fmt: skip


def _line(fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _feed(*lines: bytes | dict[str, Any]) -> tuple[LineParser, list[SumLine]]:
    parser = LineParser("log.jsonl")
    fed = [
        parser.feed(line if isinstance(line, bytes) else _line(line)) for line in lines
    ]
    return parser, [found for found in fed if found is not None]


SUM: dict[str, Any] = {"round": 3, "clients": ["a", "b"]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"version": 2},
            "expected version 1 of the format; found 2 .a newer mrsa-jax may read",
        ),
        ({"version": "1"}, "expected version 1 of the format; found '1'"),
        ({"version": True}, "expected version 1"),
        (
            {"format": "CSV"},
            "expected the format 'mrsa-jax participation log'; found 'CSV'",
        ),
        ({"system": 7}, "expected a text in one line as 'system'; found 7"),
        ({"system": "a\nb"}, "expected a text in one line as 'system'"),
        ({"aggregation": ""}, "expected a text in one line as 'aggregation'; found ''"),
        ({"pseudonyms": "3F2A9C01"}, "expected 8 hex digits or null as 'pseudonyms'"),
        ({"pseudonyms": "3f2a"}, "expected 8 hex digits or null as 'pseudonyms'"),
        ({"run": -1}, "expected an integer of 0 or more as 'run'; found -1"),
        ({"run": 1.0}, "expected an integer of 0 or more as 'run'; found 1"),
        (
            {"sytem": "x"},
            "expected known keys .*; found 'sytem', did you mean 'system'",
        ),
    ],
)
def test_malformed_headers(header: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^log.jsonl:1: {message}"):
        _feed(HEADER | header)


@pytest.mark.parametrize(
    "key", ["version", "system", "aggregation", "pseudonyms", "run"]
)
def test_a_header_needs_all_its_keys(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"log.jsonl:1: expected .*{key}"):
        _feed({own: value for own, value in HEADER.items() if own != key})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\n", "expected a JSON object on one line; found .*Expecting value"),
        (b'{"round": 3, "clients": ["a"\n', "expected a JSON object on one line"),
        (b'{"round": 3} {"round": 4}\n', "expected a JSON object on one line"),
        (b"[3]\n", "expected a JSON object; found "),
        (b"\xff\xfe{}\n", "expected UTF-8 text"),
        (
            b'{"round": 3, "clients": ["a"], "noise": NaN}\n',
            "finite numbers and .*; found NaN",
        ),
        (
            b'{"round": 3, "clients": ["a"], "clip": -Infinity}\n',
            "finite .*; found -Infinity",
        ),
        (
            b'{"round": 3, "round": 4, "clients": ["a"]}\n',
            "different keys; found key 'round' tw",
        ),
        (
            b'{"round": 3, "clients": ["a"], "extra": {"x": 1, "x": 1}}\n',
            "found key 'x' twice",
        ),
        (
            b'{"round": ' + b"9" * 5000 + b"}\n",
            "found 9+..., a number of too many digits",
        ),
        (b'{"round": 1e9999}\n', "a number of too many digits"),
        (
            b'{"a":' * 200_000 + b"\n",
            "expected a JSON object; found values nested too deeply",
        ),
        (
            b"[" * 200_000 + b"\n",
            "expected a JSON object; found values nested too deeply",
        ),
        ({"clients": ["a"]}, "expected 'round' in the line of a sum; found 'clients'"),
        ({}, "expected 'round' in the line of a sum; found no keys"),
        (
            {"round": -1, "clients": ["a"]},
            "an integer of 0 or more as 'round'; found -1",
        ),
        (
            {"round": True, "clients": ["a"]},
            "an integer of 0 or more as 'round'; found True",
        ),
        (
            {"round": "3", "clients": ["a"]},
            "an integer of 0 or more as 'round'; found '3'",
        ),
        (
            {"round": 2**63, "clients": ["a"]},
            "an integer of 0 or more as 'round'; found 92233",
        ),
        ({**SUM, "sum": 0.5}, "an integer of 0 or more as 'sum'; found 1/2"),
        (
            {**SUM, "status": "learned"},
            r"expected a status \(learnt, aborted, refused\); found",
        ),
        ({**SUM, "status": None}, "expected a status"),
        ({**SUM, "status": "aborted"}, "expected no clients in one aborted; found 2"),
        ({**SUM, "status": "refused"}, "expected no clients in one refused; found 2"),
        ({"round": 3, "clients": []}, "expected clients in a learnt sum; found 0"),
        ({"round": 3}, "expected clients in a learnt sum; found 0"),
        (
            {"round": 3, "clients": "ab"},
            "expected a list of clients as 'clients'; found 'ab'",
        ),
        (
            {"round": 3, "clients": ["a", 7]},
            "expected clients as text in 'clients'; found 7",
        ),
        (
            {"round": 3, "clients": ["a", None]},
            "expected clients as text in 'clients'; found N",
        ),
        (
            {"round": 3, "clients": ["a", "b", "a"]},
            "each client once in 'clients'; found 'a' ag",
        ),
        ({"round": 3, "clients": [""]}, "expected names in one line.*; found ''"),
        ({"round": 3, "clients": [" a"]}, "expected names in one line.*; found ' a'"),
        (
            {"round": 3, "clients": ["a\nb"]},
            r"expected names in one line.*; found 'a\\nb'",
        ),
        (
            {"round": 3, "clients": ["\ud800"]},
            r"expected names in one line.*; found '\\ud800'",
        ),
        (
            {"round": 3, "clients": ["a" * 1001]},
            "expected names in one line, .* 1000 characters",
        ),
        (
            {**SUM, "weights": [1]},
            "expected a list of 2 'weights', one for each client; found 1",
        ),
        (
            {**SUM, "weights": 1},
            "expected a list of 2 'weights', one for each client; found 1",
        ),
        (
            {**SUM, "weights": [1, 0]},
            "expected positive numbers.* as 'weights'; found 0",
        ),
        (
            {**SUM, "weights": [1, "-1/2"]},
            "expected positive numbers.* as 'weights'; found '-1/2'",
        ),
        (
            {**SUM, "weights": [1, "1/0"]},
            "expected positive numbers.* as 'weights'; found '1/0'",
        ),
        (
            {**SUM, "weights": [1, "true"]},
            "expected positive numbers.* as 'weights'; found 'true'",
        ),
        (
            {**SUM, "weights": [1, True]},
            "expected positive numbers.* as 'weights'; found True",
        ),
        (
            {**SUM, "weights": [1, [2]]},
            r"expected positive numbers.* as 'weights'; found \[2\]",
        ),
        ({**SUM, "asked": ["a"]}, "expected only clients who were asked; found 'b'"),
        (
            {**SUM, "asked": ["a", "b"], "lost": {"upload": ["c"]}},
            "only clients who.*; found 'c'",
        ),
        (
            {**SUM, "lost": {"uplaod": ["c"]}},
            "known stages in 'lost'; found 'uplaod', did you mea",
        ),
        ({**SUM, "lost": ["c"]}, "an object of stages and lists of clients as 'lost'"),
        (
            {**SUM, "lost": {"upload": "c"}},
            "a list of clients as 'lost' at 'upload'; found 'c'",
        ),
        (
            {**SUM, "lost": {"upload": ["a"]}},
            "a sum without those lost at 'upload'; found 'a' in",
        ),
        (
            {**SUM, "lost": {"train": ["b"]}},
            "a sum without those lost at 'train'; found 'b' in",
        ),
        (
            {**SUM, "lost": {"unmask": ["c"]}},
            "those lost at 'unmask' in the sum; found 'c' outsi",
        ),
        (
            {**SUM, "lost": {"setup": ["c"], "upload": ["c"]}},
            "each client lost once; found 'c' again at 'upload'",
        ),
        (
            {**SUM, "noise": -1},
            "expected a number of 0 or more, finite as a float, as 'noise'",
        ),
        (
            {**SUM, "noise": "1"},
            "expected a number of 0 or more, finite as a float, as 'noise'",
        ),
        ({**SUM, "noise": 10**400}, "a number of too many digits"),
        (
            {**SUM, "clip": 0},
            "expected a positive number, finite as a float, as 'clip'; found 0",
        ),
        (
            b'{"round": 3, "clients": ["a"], "clip": 1e-400}\n',
            "positive .* as 'clip'; found 1/1",
        ),
        (
            b'{"round": 3, "clients": ["a"], "noise": 1e309}\n',
            "finite as a float, as 'noise'",
        ),
        ({**SUM, "time": 12}, "expected a text as 'time'; found 12"),
        (
            {**SUM, "wieghts": [1, 1]},
            "known keys .*; found 'wieghts', did you mean 'weights'",
        ),
    ],
)
def test_malformed_sums_are_named_by_line(
    line: bytes | dict[str, Any], message: str
) -> None:
    """And the parser goes on as if the line had not been there."""
    parser, _ = _feed(HEADER)
    with pytest.raises(ConfigurationError, match=f"^log.jsonl:2: .*{message}"):
        parser.feed(line if isinstance(line, bytes) else _line(line))
    found = parser.feed(_line(SUM))
    assert found is not None
    assert (found.key, found.line) == ((0, 3, 0), 3)


def test_a_sum_needs_a_header_above_it() -> None:
    with pytest.raises(
        ConfigurationError, match=r"log.jsonl:1: expected the header .* 'round', 'c"
    ):
        _feed(SUM)


def test_a_line_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrsa_watch.logs._json.MOST_LINE_BYTES", 200)
    with pytest.raises(
        ConfigurationError, match="expected a line of at most 200 bytes; found 1000"
    ):
        _feed(HEADER, b"x" * 1000)


def test_a_sum_by_hand() -> None:
    parser, (found,) = _feed(
        HEADER,
        b'{"round": 12, "sum": 1, "status": "learnt", "clients": ["a", "b", "c"], '
        b'"weights": [10, "3/7", 0.1], "asked": ["c", "b", "a", "d", "e"], '
        b'"lost": {"upload": ["d"], "unmask": ["a"], "setup": ["e"]}, "noise": 0.8, "clip": 1, '
        b'"time": "2026-11-23T05:36:37Z", "extra": {"loss": [0.25, null]}}\r\n',
    )
    tenth = Fraction(1, 10)  # as it is written, not the float beside it
    assert found == SumLine(
        0,
        12,
        1,
        "learnt",
        ("a", "b", "c"),
        (Fraction(10), Fraction(3, 7), tenth),
        ("c", "b", "a", "d", "e"),
        {"upload": ("d",), "unmask": ("a",), "setup": ("e",)},
        0.8,
        1.0,
        2,
    )
    assert [(one.system, one.run, one.line) for one in parser.headers] == [
        ("a system 1.0", 0, 1)
    ]
    assert parser.headers[0].pseudonyms is None
    assert (parser.line, parser.repeated, parser.torn) == (2, [], [])


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_may_lose_clients_of_a_round_that_failed(stage: str) -> None:
    _, (found,) = _feed(
        HEADER, {"round": 1, "status": "aborted", "lost": {stage: ["x"]}}
    )
    assert found.lost == {stage: ("x",)}
    assert found.clients == ()


def test_names_may_be_any_text_in_one_line() -> None:
    names = ["Ångström 7", "a\x1b[2J", "0", "01", "mä-b", "b\u202e"]
    _, (found,) = _feed(HEADER, {"round": 1, "clients": names})
    assert found.clients == tuple(names)


REPETITIONS: list[dict[str, Any]] = [
    SUM,
    {**SUM, "time": "2001-01-01T00:00:00Z"},
    {**SUM, "clients": ["b", "a"]},
    {**SUM, "sum": 0, "status": "learnt", "lost": {}},
    {**SUM, "weights": [1, "1"]},
    {**SUM, "lost": {"upload": []}},
]
CONTRADICTIONS: list[dict[str, Any]] = [
    {**SUM, "clients": ["a", "c"]},
    {**SUM, "clients": ["a"]},
    {**SUM, "weights": [1, 2]},
    {**SUM, "asked": ["a", "b"]},
    {**SUM, "lost": {"upload": ["c"]}},
    {**SUM, "noise": 0},
    {**SUM, "clip": 1},
    {**SUM, "extra": {}},
    {"round": 3, "status": "aborted"},
]


@pytest.mark.parametrize("again", REPETITIONS)
def test_the_same_sum_again_counts_once(again: dict[str, Any]) -> None:
    parser, found = _feed(HEADER, SUM, {"round": 4, "clients": ["a"]}, again)
    assert [one.round for one in found] == [3, 4]
    assert parser.repeated == [4]


@pytest.mark.parametrize("again", CONTRADICTIONS)
def test_another_content_of_a_sum_is_a_contradiction(again: dict[str, Any]) -> None:
    expected = "log.jsonl:4: expected of round 3, sum 0 of run 0 what line 2 says; found somethin"
    with pytest.raises(ConfigurationError, match=expected):
        _feed(HEADER, SUM, {"round": 4, "clients": ["a"]}, again)


@pytest.mark.smoke
def test_weights_count_by_their_client() -> None:
    first = {"round": 1, "clients": ["a", "b"], "weights": [1, 2]}
    _, found = _feed(
        HEADER, first, {"round": 1, "clients": ["b", "a"], "weights": ["2/1", 1]}
    )
    assert len(found) == 1
    with pytest.raises(ConfigurationError, match="what line 2 says"):
        _feed(HEADER, first, {"round": 1, "clients": ["b", "a"], "weights": [1, 2]})


def test_a_server_that_starts_again_from_round_one() -> None:
    """Pairs (run, round) name a round.

    Sums of a round and rounds that come back are others.
    """
    parser, found = _feed(
        HEADER,
        SUM,
        {**SUM, "sum": 1, "clients": ["c"]},
        {"round": 1, "clients": ["a"]},
        {**HEADER, "run": 2, "system": "a system 1.1"},
        {**SUM, "clients": ["c"]},
    )
    assert [one.key for one in found] == [(0, 3, 0), (0, 3, 1), (0, 1, 0), (2, 3, 0)]
    assert [one.run for one in parser.headers] == [0, 2]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"clients": ["c", "b\u200b"]},
            r"one way to write a client .*; found 'b\\u200b' and 'b'",
        ),
        (
            {"clients": ["c", "01", "1"]},
            "one way to write a client .*; found '1' and '01'",
        ),
        ({"clients": ["c"], "asked": ["c", "\uff41"]}, r"; found '\\uff41' and 'a'"),
        ({"clients": ["c"], "lost": {"upload": ["a\xa0\u2060x", "a x"]}}, "and 'a"),
    ],
)
def test_names_that_may_be_one_are_not_two_clients(
    more: dict[str, Any], message: str
) -> None:
    """Else a gate would count a client twice.

    A line that is refused leaves no names behind.
    """
    parser, _ = _feed(HEADER, SUM)
    with pytest.raises(ConfigurationError, match=f"^log.jsonl:3: .*{message}"):
        parser.feed(_line({"round": 4} | more))
    found = parser.feed(
        _line({"round": 4, "clients": ["a", "b", "1", "\uff43", "a x"]})
    )
    assert found is not None


def test_weights_that_would_stop_a_reader_are_refused() -> None:
    """The common denominator of all has 18,000 digits, and so would every client's integer."""
    weights = [f"1/{2 ** (900 + i) + 1}" for i in range(60)]
    parser, _ = _feed(HEADER)
    names = [f"c{i}" for i in range(60)]
    with pytest.raises(
        ConfigurationError, match=r"^log.jsonl:2: .* a common denominator of at"
    ):
        parser.feed(_line({"round": 1, "clients": names, "weights": weights}))
    rows = np.array([[Fraction(weight) for weight in weights]], object)
    with pytest.raises(
        ConfigurationError, match=r"`weights` must have a common denominator below"
    ):
        integer_rows(rows, "weights")
    with pytest.raises(
        ConfigurationError, match=r"`weights` must have a common denominator below"
    ):
        Gate().add(names, weights)
    tiny = [Fraction(5e-324), Fraction(1, 3)]
    assert integer_rows(np.array([tiny], object), "weights")[0].shape == (1, 2)


def test_headers_that_contradict_each_other() -> None:
    hidden = {**HEADER, "pseudonyms": "3f2a9c01"}
    for other in ("3f2a9c02", None):
        with pytest.raises(
            ConfigurationError,
            match=r"log.jsonl:3: expected pseudonyms of the salt "
            "of line 1 .3f2a9c01.: with another, clients would count twice",
        ):
            _feed(hidden, SUM, {**hidden, "run": 1, "pseudonyms": other})
    with pytest.raises(
        ConfigurationError, match=r"log.jsonl:2: expected a run above 0, that of l"
    ):
        _feed(HEADER, {**HEADER, "system": "another"})


def test_a_log_joined_to_itself_says_everything_twice() -> None:
    lines = [HEADER, SUM, {**HEADER, "run": 1}, {**SUM, "clients": ["c"]}]
    parser, found = _feed(*lines, *lines)
    assert [one.key for one in found] == [(0, 3, 0), (1, 3, 0)]
    assert parser.repeated == [5, 6, 7, 8]


def test_a_line_marked_as_torn_is_told_of() -> None:
    parser, found = _feed(
        HEADER, b'{"round": 1, "cli ' + TORN + b"\n", {**HEADER, "run": 1}, SUM
    )
    assert parser.torn == [2]
    assert [(one.key, one.line) for one in found] == [((1, 3, 0), 4)]


def test_sums_in_any_order_are_the_same_sums() -> None:
    rounds = [
        {"round": j, "clients": [f"c{j}", "a"], "time": f"{2030 - j}"} for j in range(9)
    ]
    _, forwards = _feed(HEADER, *rounds)
    _, backwards = _feed(HEADER, *rounds[::-1])
    assert [(one.key, one.clients) for one in forwards] == [
        (one.key, one.clients) for one in backwards[::-1]
    ]


@pytest.mark.smoke
def test_noise_that_is_zero_is_known_to_be_zero() -> None:
    _, (found,) = _feed(HEADER, {**SUM, "noise": 0, "clip": 1e-300})
    assert found.noise == 0.0
    assert found.clip is not None
    assert math.isclose(found.clip, 1e-300)
