"""What the gate allows passes the audit, however clients are named, spelled, typed and weighted."""

from __future__ import annotations

import io
import json
import pathlib
import random
import uuid
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax import ConfigurationError
from mrsa_watch import Gate, Recorder
from mrsa_watch._command import main

# ---- Samples, each of which was allowed.

KINDS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "numpy": np.int64,
    "bytes": lambda i: f"site-{i}".encode(),
    "text": lambda i: f"site-{i}",
    "float": float,
    "uuid": lambda i: uuid.UUID(int=i),
    "tuple": lambda i: ("site", i),
}
Log = Callable[..., pathlib.Path]


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Log:
    """Return what records sums in a new log."""

    def write(
        *sums: Any, salt: bytes | None = b"", name: str = "log.jsonl"
    ) -> pathlib.Path:
        path = tmp_path / name
        with Recorder(path, system="test", aggregation="secagg", salt=salt) as recorder:
            for number, clients in enumerate(sums, start=1):
                weights = list(clients.values()) if isinstance(clients, dict) else None
                recorder.record(number, clients, weights=weights)
        return path

    return write


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("salt", [b"", b"s" * 32])
def test_a_restored_gate_answers_as_the_gate_did(
    log: Log, kind: str, salt: bytes
) -> None:
    """{1, 2, 3} - {1, 2} is client 3."""
    one, two, three = map(KINDS[kind], (1, 2, 3))
    gate = Gate(fail_below=2)
    gate.add([one, two, three])
    path = log([one, two, three], salt=salt)
    restored = Gate.from_log(path, fail_below=2, salt=salt or None)
    for own in (gate, restored):
        (answer,) = own.check([[one, two]])
        assert (answer.allowed, answer.known, answer.asked) == (False, 2, 2)
        assert set(answer.leave_out) == {one, two}
        assert own.check([[one, two, three]])[0].allowed
    assert restored.state.last_round == 1
    assert gate.state.last_round is None


@pytest.mark.parametrize(
    "name", ["A", "a\u200b", "а", "a:5001 ", " a", "'a'", "Á", "a\ufe0f", "ａ"]
)
@pytest.mark.parametrize("salt", [b"", b"s" * 32])
def test_a_name_that_is_like_a_known_one_is_an_error(
    log: Log, name: str, salt: bytes
) -> None:
    path = log(["a", "b", "c"], salt=salt)
    gate = Gate.from_log(path, fail_below=2, salt=salt or None, new_clients=True)
    with pytest.raises(ConfigurationError, match="`clients` must "):
        gate.check([[name, "b"]])
    assert not gate.check([["a", "b"]])[0].allowed


@pytest.mark.parametrize("names", [["a", "b"], [1, 2], ["site-1"], ["0" * 31], [b"a"]])
def test_a_log_of_pseudonyms_takes_no_plain_names(log: Log, names: list[Any]) -> None:
    gate = Gate.from_log(
        log(["a", "b", "c"], salt=None), fail_below=2, new_clients=True
    )
    with pytest.raises(
        ConfigurationError, match=r"must be pseudonyms as in the log .*--salt"
    ):
        gate.check([names])


def test_a_log_of_pseudonyms_without_a_sum_takes_no_plain_names(log: Log) -> None:
    gate = Gate.from_log(log(salt=None), fail_below=2, new_clients=True)
    with pytest.raises(ConfigurationError, match="must be pseudonyms as in the log"):
        gate.check([["a", "b"]])


def test_pseudonyms_are_names_too(log: Log) -> None:
    path = log(["a", "b", "c"], salt=None)
    salt = path.with_name("log.jsonl.salt")
    with Recorder(path, system="test", aggregation="secagg") as recorder:
        pseudonyms = [recorder.name(name) for name in "abc"]
    for settings in (
        {},
        {"salt": salt},
        {"salt": str(salt)},
        {"salt": salt.read_bytes()},
    ):
        gate = Gate.from_log(path, fail_below=2, **settings)
        assert [each.allowed for each in gate.check([pseudonyms[:2], pseudonyms])] == [
            False,
            True,
        ]
        with pytest.raises(ConfigurationError, match="must name a client as before"):
            Gate.from_log(path).check([[pseudonyms[0].upper()]])
    with pytest.raises(
        ConfigurationError, match="`salt` must be the one that made the log's"
    ):
        Gate.from_log(path, salt=b"another")
    with pytest.raises(
        ConfigurationError, match="`salt` must be a file that holds a salt"
    ):
        Gate.from_log(path, salt=path.with_name("nowhere"))
    with pytest.raises(
        ConfigurationError, match="`salt` must not be set for a log of plain names"
    ):
        Gate.from_log(log(["a", "b"], name="plain.jsonl"), salt=salt)


def test_unknown_names_are_refused_unless_they_may_be_new(log: Log) -> None:
    gate = Gate.from_log(log(["a", "b", "c", "d"]), fail_below=2)
    (answer,) = gate.check([["a", "b", "x", "y"]])
    assert (answer.allowed, answer.leave_out) == (False, ("x", "y"))
    assert (answer.known, answer.asked) == (2, 4)
    assert answer.reason.startswith("x, y: not in the history")
    assert gate.check([["a", "b", "x", "y"]], new_clients=True)[0].allowed
    assert gate.check([["a", "b"]])[0].allowed
    (answer,) = gate.check([["a", "b", "c", "x"]])
    assert set(answer.leave_out) > {"x"}, "without x, the rest exposes d"
    assert Gate(fail_below=2, new_clients=True).check([["a", "b"]])[0].allowed
    assert not Gate(fail_below=2).check([["a", "b"]])[0].allowed


def test_clients_who_were_asked_are_known(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="test", aggregation="secagg", salt=b"") as recorder:
        recorder.record(1, ["a", "b"], asked=["a", "b", "c"], lost={"upload": ["c"]})
    (answer,) = Gate.from_log(path, fail_below=2).check([["c", "b", "a"]])
    assert (answer.known, answer.allowed, answer.leave_out) == (3, False, ("c",))


# ---- Weights.


def test_the_latest_weights_are_used(log: Log) -> None:
    """10 a + 20 b + 30 c, then 10 a + 20 b: c. Weights of 1 would pass."""
    path = log({"a": 10, "b": 20, "c": 30})
    gate = Gate.from_log(path, fail_below=2)
    plain, weighted, other = gate.check(
        [["a", "b"], {"a": 10, "b": 20}, {"a": 1, "b": 1}]
    )
    assert not plain.allowed
    assert "with each client's latest weight" in gate.check([["a", "b", "c"]])[0].reason
    assert (weighted.allowed, other.allowed) == (False, True)
    gate.add({"d": 7, "e": 7, "f": 1})
    assert gate.check([["d", "e", "x"]], new_clients=True)[0].allowed, (
        "whatever the weight of x"
    )
    assert not gate.check([["a", "b", "c", "x"]], new_clients=True)[0].allowed


def test_a_client_without_a_weight_is_refused_where_weights_decide(log: Log) -> None:
    path = log({"a": 10, "b": 20, "c": 30}, {"d": 7, "e": 7, "f": 1})
    gate = Gate.from_log(path, fail_below=2, fail_below_hidden=1.05, new_clients=True)
    (answer,) = gate.check([["d", "e", "f", "x"]])
    assert (answer.allowed, answer.leave_out) == (False, ("x",))
    assert "without a weight, in a history of weighted sums" in answer.reason
    assert gate.check([{"d": 1, "e": 3, "x": 5}])[0].allowed
    assert not gate.check([{"d": 1, "e": 3, "x": 1000}])[0].allowed


def test_equal_weights_are_no_weights(log: Log) -> None:
    gate = Gate.from_log(log({"a": 10, "b": 10, "c": 10}), fail_below=2)
    (answer,) = gate.check([["a", "b"]])
    assert (answer.allowed, answer.reason) == (False, "weak T would be 1, below 2")
    assert gate.check([["a", "b", "x", "y"]], new_clients=True)[0].allowed


# ---- A gate that stays open.


def test_an_open_gate_follows_its_log(log: Log) -> None:
    path = log(["a", "b", "c", "e"])
    gate = Gate.from_log(path, fail_below=2)
    assert gate.check([["b", "c", "d", "e"]], new_clients=True)[0].allowed
    # by another process: a restart, with e alone in the difference
    log(["a", "b", "c"])
    (answer,) = gate.check([["a", "b", "c", "e"]])
    assert (answer.allowed, answer.last_round) == (False, "1:1")
    assert gate.state.exposed == ("e",)


def test_sums_that_are_recorded_and_added_count_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="test", aggregation="secagg", salt=b"") as recorder:
        recorder.record(1, ["a", "b", "c"])
        gate = Gate.from_log(path, fail_below=2)
        gate.add(["a", "b", "c"])  # another one, of the same clients
        assert gate.state.sums == 2
        recorder.record(2, ["a", "b", "c"])
        recorder.record(3, ["a", "b", "d"])
        gate.add(["a", "b", "d"])
        assert gate.state.sums == 3
        gate.add(["c", "d", "e"])
        recorder.record(4, ["c", "d", "e"])
        gate.check([["a", "b", "c"]])
        assert gate.state.sums == 4
        recorder.record(5, ["c", "d", "e"])
        gate.check([["a", "b", "c"]])
        assert gate.state.sums == 5
        gate.add({"c": 1, "d": 1, "e": 2})
        assert gate.state.sums == 6


def test_a_gate_takes_learnt_sums_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    with Recorder(path, system="test", aggregation="secagg", salt=b"") as recorder:
        recorder.record(1, ["a", "b", "c"])
        recorder.record(2, [], status="aborted", asked=["a", "b"])
        recorder.record(3, [], status="refused")
        gate = Gate.from_log(path, fail_below=2)
        assert (gate.state.sums, gate.state.last_round) == (1, 3)
        recorder.record(4, [], status="aborted")
        gate.check([["a", "b", "c"]])
        assert (gate.state.sums, gate.state.last_round) == (1, 4)


@pytest.mark.parametrize("what", ["replaced", "shortened", "gone", "spoilt"])
def test_a_gate_that_cannot_follow_its_log_refuses(log: Log, what: str) -> None:
    path = log(["a", "b", "c"], ["a", "b", "d"])
    gate = Gate.from_log(path, fail_below=2)
    whole = path.read_bytes()
    if what == "replaced":
        path.rename(path.with_suffix(".old"))
        path.write_bytes(whole)
    elif what == "shortened":
        path.write_bytes(whole[: whole.index(b"\n") + 1])
    elif what == "gone":
        path.rename(path.with_suffix(".old"))
    else:
        path.write_bytes(
            whole + b'{"round": 3, "clients": ["A"]}\n{"round": 4, "clients": ["a"]}\n'
        )
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            gate.check([["a", "b", "c"]])
        with pytest.raises(ConfigurationError):
            gate.add(["a", "b", "c"])
    if what in ("replaced", "gone"):  # and answers again where it is put back
        path.with_suffix(".old").rename(path)
        assert gate.check([["a", "b", "c"]])[0].allowed
    elif what == "spoilt":  # the lines below were not passed over in silence
        path.write_bytes(whole)
        with pytest.raises(ConfigurationError):
            gate.check([["a", "b", "c"]])


# ---- The command.


def ask(monkeypatch: pytest.MonkeyPatch, words: str, *lines: bytes) -> int:
    stream = io.TextIOWrapper(io.BytesIO(b"\n".join(lines) + b"\n"), encoding="ascii")
    monkeypatch.setattr("sys.stdin", stream)
    return main(words.split())


def test_the_command_asks_by_real_names_with_the_salt(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(["anna", "Zoë", "cleo"], salt=None)
    question = '["anna", "Zoë"]'.encode()
    words = f"gate {path} --fail-below 2"
    assert ask(monkeypatch, words, question) == 2
    assert "input, line 1: `clients` must be pseudonyms" in capsys.readouterr().err
    assert ask(monkeypatch, f"{words} --new-clients", question) == 2
    capsys.readouterr()
    salted = f"{words} --salt {path}.salt"
    assert ask(monkeypatch, salted, b"\xef\xbb\xbf" + question) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["allowed"] is False
    assert set(answer["leave_out"]) == {"anna", "Zoë"}
    assert (answer["known"], answer["asked"], answer["last_round"]) == (2, 2, 1)
    assert ask(monkeypatch, salted, question.decode().encode("cp1252")) == 2
    assert "expected UTF-8 text" in capsys.readouterr().err
    assert ask(monkeypatch, salted, '["anna", "ZoÃ«"]'.encode()) == 2, "read in cp1252"


WRONG = [
    (b'["a", "b", "a"]', "must not contain duplicates"),
    (b'{"clients": ["a"], "clients": ["a", "b"]}', "key 'clients' twice"),
    (b'{"clients": {"a": 1, "a": 2}}', "key 'a' twice"),
    (b'[["a"], "b"]', "`clients` must be text or integers"),
    (b'[{"a": 1}]', "`clients` must be text or integers"),
    (b'[null, "b"]', "`clients` must be text or integers"),
    (b'[true, "b"]', "`clients` must be text or integers"),
    (b'["null", "b"]', "`clients` must name clients"),
    (b'[1.5, "b"]', "`clients` must be text or integers"),
    (b'"ab"', "must hold a JSON list of clients"),
    (b"7", "must hold a JSON list of clients"),
    (b"[" * 100000, "values nested too deeply"),
    (b'["a", NaN]', "finite numbers"),
    (b'{"clients": "ab"}', "`clients` must be a collection of names"),
    (b'{"clients": ["a", "b"], "weights": [1]}', "one of as many weights"),
    (b'{"clients": ["a", "b"], "weights": [1, 0]}', "`weights` must be positive"),
    (b'{"clients": ["a", "b"], "weights": [1, "x"]}', "`weights` must be positive"),
    (
        b'{"clients": ["a", "b"], "wieghts": [1, 2]}',
        "must hold clients, and weights, part",
    ),
    (b'{"clients": ["a", "A"], "weights": [1, 2]}', "must name a client as before"),
    (b"\xff", "expected UTF-8 text"),
    (b"PK\x03\x04\x00", "expected"),
]


@pytest.mark.parametrize(("question", "message"), WRONG)
def test_a_question_that_is_none_is_refused_by_its_line(
    log: Log,
    question: bytes,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = log(["a", "b", "c"])
    words = f"gate {path} --fail-below 2 --new-clients"
    assert ask(monkeypatch, words, b'["a", "b", "c"]', question) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert "input, line 2" in printed.err
    assert message in printed.err


def test_the_command_takes_weights(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log({"a": 1, "b": Fraction(1, 3), "c": 2})
    words = f"gate {path} --fail-below 2"
    questions = [
        b'{"clients": ["a", "b"], "weights": [3, 1]}',
        b'{"clients": {"a": 0.6, "b": 0.2}}',
        b'{"clients": ["b", "a"], "weights": ["1/3", 1]}',
        b'["a", "b"]',
        b'{"clients": ["a", "b"], "weights": [1, 1]}',
    ]
    assert ask(monkeypatch, words, *questions) == 3
    allowed = [
        json.loads(line)["allowed"] for line in capsys.readouterr().out.splitlines()
    ]
    assert allowed == [False, False, False, False, True]


# ---- The property: allowed implies that the log with this sum passes the audit.


class Case(NamedTuple):
    """Clients by number, as they were truly in sums, and how each is named."""

    rows: list[list[Fraction]]
    names: list[Any]
    salt: bytes | None


SPELLINGS: list[Callable[[str], Any]] = [
    str,
    str,
    str,
    str.upper,
    str.title,
    lambda text: text + " ",
    lambda text: f" {text}",
    lambda text: text + "\u200b",
    lambda text: text.replace("a", "а"),
    lambda text: f"'{text}'",
    lambda text: text.replace("-", "\u2011"),
    lambda text: text.replace("-", "_"),
    str.encode,
    lambda text: text.replace("e", "é"),
    lambda text: text.replace("0", "O"),
    lambda text: text.encode().decode("cp1252", "replace"),
    lambda text: text if text.isdigit() else f"{text}:5001",
    lambda text: text.replace("-", "-0"),
    lambda text: [text],
    lambda text: None,
    lambda text: int(text) if text.isdigit() else text,
    lambda text: text + ".0" * (text[-1].isdigit() and len(text) < 20),
    lambda text: np.float64(text) if text.isdigit() else text,
    lambda text: f"{text}\ufe0f",
]
NAMES: list[Callable[[int], Any]] = [
    lambda i: i,
    lambda i: f"site-{i}",
    lambda i: f"client_{i}",
    lambda i: "ade"[i % 3] * (1 + i // 3),
    lambda i: f"10.0.0.{i}",
    np.int32,
    lambda i: f"Zoë {i}",
    lambda i: str(uuid.UUID(int=i + 10**20)),
    lambda i: f"node{i}.example.org",
    lambda i: 2**60 + i,
    lambda i: f"é{i}a-0",
]


def _cases(seed: int, count: int) -> Iterator[tuple[random.Random, Case]]:
    for number in range(count):
        generator = random.Random(f"{seed} {number}")
        clients = generator.randint(3, 6)
        named = generator.choice(NAMES)
        is_weighted = generator.random() < 0.4
        rows = [
            _row(generator, clients, is_weighted)
            for _ in range(generator.randint(1, 4))
        ]
        yield (
            generator,
            Case(rows, list(map(named, range(clients))), generator.choice([b"", b"s"])),
        )


def _row(generator: random.Random, clients: int, is_weighted: bool) -> list[Fraction]:
    inside = generator.sample(range(clients), generator.randint(1, clients))
    weights = [
        Fraction(generator.randint(1, 3)) if is_weighted else Fraction(1)
        for _ in inside
    ]
    at = dict(zip(inside, weights, strict=True))
    return [at.get(i, Fraction(0)) for i in range(clients)]


def _record(path: pathlib.Path, case: Case, rows: list[list[Fraction]]) -> None:
    with Recorder(path, system="t", aggregation="secagg", salt=case.salt) as recorder:
        for number, row in enumerate(rows, start=1):
            inside = [i for i, weight in enumerate(row) if weight]
            weights = [row[i] for i in inside]
            names = [case.names[i] for i in inside]
            recorder.record(
                number, names, weights=None if set(weights) == {1} else weights
            )


def _integers(rows: list[list[Fraction]]) -> list[list[int]]:
    return [[int(6 * value) for value in row] for row in rows]


def _ask(
    generator: random.Random, gate: Gate, case: Case
) -> tuple[Any, list[Fraction], Any]:
    """Ask about a random cohort, spelled in random ways.

    Return answer, true row, question.
    """
    row = _row(generator, len(case.names), generator.random() < 0.5)
    inside = [i for i, weight in enumerate(row) if weight]
    spelled = [_spelled(generator, case.names[i]) for i in inside]
    weights = [row[i] for i in inside]
    question: Any = spelled
    if set(weights) != {1}:
        question = dict(zip(spelled, weights, strict=True))
        # one float for two numbers: nobody can see this
        if len(question) < len(spelled):
            raise TypeError
    return gate.check([question])[0], row, question


def _spelled(generator: random.Random, name: Any) -> Any:
    return generator.choice(SPELLINGS)(str(name)) if generator.random() < 0.2 else name


def _check(folder: pathlib.Path, seed: int, count: int) -> tuple[int, int]:
    """Return how many cohorts were allowed, and how many of the refused were truly unsafe."""
    allowed = unsafe = 0
    for number, (generator, case) in enumerate(_cases(seed, count)):
        path = folder / f"{number}.jsonl"
        later = generator.randint(0, 1) if len(case.rows) > 1 else 0
        before = len(case.rows) - later
        _record(path, case, case.rows[:before])
        by_salt = case.salt or None
        asks_by_pseudonym = bool(case.salt) and generator.random() < 0.3
        gate = Gate.from_log(
            path,
            fail_below=2,
            salt=None if asks_by_pseudonym else by_salt,
            new_clients=generator.random() < 0.6,
        )
        if later:
            _record(path, case, case.rows[before:])
        try:
            answer, row, question = _ask(generator, gate, case)
        except (ConfigurationError, TypeError):  # a list is no key of a mapping either
            continue
        rows = list(case.rows)
        is_implied = all(weight in (0, 1) for weight in row)
        if is_implied and any(len(set(filter(None, each))) > 1 for each in rows):
            row = _with_latest(row, rows)  # as the answer says
        exposed = oracle.exposed(_integers([*rows, row]))
        if answer.allowed:
            allowed += 1
            assert not exposed, f"{number}: {case.names}, {question}, {answer}"
        else:
            unsafe += bool(exposed)
    return allowed, unsafe


def _with_latest(row: list[Fraction], rows: list[list[Fraction]]) -> list[Fraction]:
    latest = [Fraction(1)] * len(row)
    for each in rows:
        latest = [new or old for new, old in zip(each, latest, strict=True)]
    return [weight and last for weight, last in zip(row, latest, strict=True)]


@pytest.mark.long("300-30-60")
@pytest.mark.parametrize(("count", "fewest", "refused"), [(60, 5, 10), (300, 30, 60)])
def test_allowed_implies_that_the_audit_passes(
    tmp_path: pathlib.Path, count: int, fewest: int, refused: int
) -> None:
    allowed, unsafe = _check(tmp_path, seed=1, count=count)
    assert allowed > fewest
    assert unsafe > refused


@pytest.mark.slow
def test_allowed_implies_that_the_audit_passes_ten_thousand_times(
    tmp_path: pathlib.Path,
) -> None:
    allowed, unsafe = _check(tmp_path, seed=2, count=10_000)
    assert allowed > 1000
    assert unsafe > 2000
