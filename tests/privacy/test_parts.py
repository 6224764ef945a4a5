"""Sums of parts of the vector: each part judged by itself, and the worst of them told."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
from fractions import Fraction

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import (
    ParticipationLog,
    audit,
    certificate,
    hidden_among,
    read_log,
    weak_privacy,
)
from mrsa_watch import Gate, Recorder, mrsa_check
from mrsa_watch.logs import PartNames

NAMES = ("anna", "bob", "cleo", "dan")


def log_of(rows, parts, weights=None) -> ParticipationLog:
    """Return a log of sums named by their places and parts."""
    names = [
        f"{j}" + ("" if part is None else f"[{part}]") for j, part in enumerate(parts)
    ]
    P = np.array(rows, np.int64 if weights else bool)
    return ParticipationLog(P, tuple(names), NAMES[: P.shape[1]], parts=tuple(parts))


def unknowns(log: ParticipationLog) -> list[list[int]]:
    """Return all that is learnt of one coordinate of each part, and of one that is in none.

    A column is one client's update in one coordinate. A sum of whole updates is an
    equation in each coordinate, one of a part an equation in that part's. Rows may be
    combined over coordinates.
    """
    places = [*sorted({part for part in log.parts or () if part is not None}), None]
    count, rows = len(log.clients), []
    for row, part in zip(
        log.participation.astype(int).tolist(), log.parts or (), strict=True
    ):
        for k, place in enumerate(places):
            if part in (None, place) and any(row):
                rows.append([0] * count * k + row + [0] * count * (len(places) - k - 1))
    return rows


def leverages(rows: list[list[int]]) -> list[Fraction]:
    """Return the diagonal of the projection on the row space, exactly."""
    found = [Fraction(0)] * len(rows[0])
    basis: list[list[Fraction]] = []
    for row in rows:
        own = [Fraction(value) for value in row]
        for other in basis:
            size = sum(a * a for a in other)
            factor = sum(a * b for a, b in zip(own, other, strict=True)) / size
            own = [a - factor * b for a, b in zip(own, other, strict=True)]
        size = sum(a * a for a in own)
        if size:
            basis.append(own)
            found = [a + b * b / size for a, b in zip(found, own, strict=True)]
    return found


def random_log(draw: random.Random) -> ParticipationLog:
    parts = [*draw.choices([None, "low", "high"], k=2), "low", "high", "low"]
    most = draw.choice([1, 1, 3])
    rows = [
        [draw.randint(1, most) * (draw.random() < 0.6) for _ in NAMES] for _ in parts
    ]
    rows[0][0] = 1
    return log_of(rows, parts, most > 1)


@pytest.mark.long
def test_what_is_told_is_what_all_coordinates_together_say() -> None:
    draw = random.Random(5)
    for _ in range(8):
        log = random_log(draw)
        rows = unknowns(log)
        found = audit(log, effort=0.0)
        shares, count = leverages(rows), len(log.clients)
        own = [max(shares[i::count]) for i in range(count)]
        assert found.weak.lower == found.weak.upper == oracle.plain_weak_privacy(rows)
        assert found.weak.certified
        columns = [column for column in zip(*rows, strict=True) if any(column)]
        assert found.strong == min(map(columns.count, columns))
        assert {name for name, _ in found.exposed} == {
            name for name, share in zip(log.clients, own, strict=True) if share == 1
        }
        assert found.hidden is not None
        expected = [float(1 / share) if share else np.inf for share in own]
        np.testing.assert_allclose(found.hidden.values, expected, rtol=1e-9)
        combined = np.array(found.weak.witness) @ log.participation.astype(int)
        # in the log's own numbering
        assert tuple(np.flatnonzero(combined)) == found.weak.support


@pytest.mark.long
def test_what_is_known_after_each_round_is_what_the_sums_until_then_say() -> None:
    draw = random.Random(11)
    for _ in range(2):
        log = random_log(draw)
        after = audit(log, effort=0.0).over_rounds(log)
        for j in range(len(log.rounds)):
            cut = log_of(log.participation[: j + 1], log.parts[: j + 1], True)
            found = audit(cut, effort=0.0)
            assert after.exposed[j] == len(found.exposed)
            assert after.strong[j] == (found.strong or -1)
            assert after.lower[j] <= (found.weak.lower or -1) <= after.upper[j]
            least = np.nan if found.hidden is None else found.hidden.least
            np.testing.assert_allclose(after.hidden[j], least, rtol=1e-9)


def test_parts_are_never_stacked() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0]], ["low", "high"])
    found = audit(log, effort=0.0)
    assert found.exposed == ()
    assert (found.weak.lower, found.strong) == (3, 3)
    assert found.gate(3).passed
    assert found.gate(4).reason == "in part high: weak T is 3, below 4"
    assert found.gate(4, "strong").reason == "in part high: strong T is 3, below 4"
    assert (
        "in part high: client anna is hidden among 3"
        in found.gate(3.5, "hidden").reason
    )
    for judge in (weak_privacy, hidden_among):
        with pytest.raises(
            ConfigurationError, match="sums of several must not be stacked"
        ):
            judge(log)
    # dan does not train `high`
    assert [own.num_clients for _, own in found.parts] == [4, 3]


def test_a_sum_of_whole_updates_is_learnt_in_every_part() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], [None, "low", "high"])
    found = audit(log, effort=0.0)
    assert found.exposed == (("dan", "1[low]"),)
    told = found.sentences()
    assert "2 parts of the vector" in told[0]
    assert "part low: weak T 1, strong T 1, 1 of 4 clients exposed" in told[0]
    assert "Round 0 minus round 1[low] is client dan's update alone." in told
    assert [own["exposed"] for own in found.to_dict()["parts"]] == [["dan"], []]
    assert "parts" not in audit(log.by_part()["high"].participation).to_dict()


def test_who_alone_trains_a_part_is_exposed_in_it() -> None:
    found = audit(log_of([[1, 1, 1, 1], [0, 0, 0, 1]], ["low", "high"]), effort=0.0)
    assert found.exposed == (("dan", "1[high]"),)
    assert found.gate(2).reason.startswith("in part high: weak T is 1")


@pytest.mark.long
def test_a_coalition_is_left_out_of_each_part() -> None:
    log = log_of([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]], ["low", "high", "top"])
    found = audit(log, effort=0.0, coalition=["dan", "cleo"])
    assert found.exposed == (("bob", "1[high]"),)
    # nobody is left who trains `top`
    assert [name for name, _ in found.parts] == ["low", "high"]
    assert found.coalition == ("cleo", "dan")
    assert found.over_rounds(log).exposed.tolist() == [0, 1, 1]


def test_noise_adds_up_over_all_sums_and_says_nothing_of_gaussian_others() -> None:
    log = log_of([[1, 1, 1, 1], [1, 1, 1, 0]], ["low", "high"])
    found = audit(log, effort=0.0, noise_multiplier=2.0, clip=1.0)
    mu = {name: mu for name, mu, _ in found.noisy.known}
    np.testing.assert_allclose([mu["anna"], mu["dan"]], [np.sqrt(2) / 2, 1 / 2])
    with pytest.raises(
        ConfigurationError, match="`spread` must not be set for a log of several"
    ):
        audit(log, effort=0.0, noise_multiplier=2.0, clip=1.0, spread=1.0)


def test_sums_of_one_round_are_of_one_update_under_drift() -> None:
    log = ParticipationLog(
        np.array([[1, 1, 1], [1, 1, 0]], bool),
        ("7", "7[low]"),
        NAMES[:3],
        parts=(None, "low"),
    )
    found = audit(log, effort=0.0, memory=0.5)
    assert found.updates.least == 1.0  # of cleo, whatever lasts until another round
    log = ParticipationLog(
        log.participation, ("7", "8[low]"), NAMES[:3], parts=log.parts
    )
    assert audit(log, effort=0.0, memory=0.5).updates.least > 1.0


@pytest.mark.long
def test_a_gate_says_after_each_sum_what_all_coordinates_together_say() -> None:
    draw = random.Random(7)
    for _ in range(12):
        log = random_log(draw)
        gate, heaviest = Gate(), [0] * len(NAMES)
        for j, part in enumerate(log.parts):
            row = log.participation[j].astype(int).tolist()
            cohort = {
                name: weight for name, weight in zip(NAMES, row, strict=True) if weight
            }
            state = gate.add(cohort, part=part)
            heaviest = np.maximum(heaviest, row)
            rows = unknowns(
                log_of(log.participation[: j + 1], log.parts[: j + 1], True)
            )
            if not rows:
                continue
            shares = leverages(rows)
            own = [max(shares[i :: len(NAMES)]) for i in range(len(NAMES))]
            assert state.lower <= oracle.plain_weak_privacy(rows) <= state.upper
            if state.lower <= 3:
                assert state.lower == oracle.plain_weak_privacy(rows)
            columns = [column for column in zip(*rows, strict=True) if any(column)]
            assert state.strong == min(map(columns.count, columns))
            assert set(state.exposed) == {
                n for n, s in zip(NAMES, own, strict=True) if s == 1
            }
            np.testing.assert_allclose(state.hidden, float(1 / max(own)), rtol=1e-9)
            assert state.clients == sum(map(bool, heaviest))


def test_a_gate_asks_all_parts_about_a_sum_of_whole_updates() -> None:
    gate = Gate(fail_below=2, fail_below_hidden=1.5)
    gate.add([*"abcd"])
    gate.add([*"abc"], part="low")  # d is exposed in it
    assert gate.state.breaches == (
        "in part low, weak T is 1, below 2",
        "in part low, client d is hidden among 1, below 1.5",
    )
    assert (gate.state.weak_part, gate.state.hidden_part, gate.state.parts) == (
        "low",
        "low",
        1,
    )
    gate = Gate(fail_below=2)
    gate.add([*"abcd"], part="low")
    gate.add([*"abef"], part="high")
    yes, no = gate.check([[*"abcd"], [*"cd"]], "low")
    assert (yes.allowed, no.allowed) == (True, True)
    (never_seen,) = gate.check([["a"]], "top")
    assert (never_seen.allowed, never_seen.reason) == (
        False,
        "in part top, weak T would be 1, below 2",
    )
    (whole,) = gate.check([[*"abc"]])  # minus abcd: d in `low`, and fine in `high`
    assert whole.reason == "in part low, weak T would be 1, below 2"
    assert len(whole.leave_out) == 1
    kept = set("abc") - set(whole.leave_out)
    assert gate.check([kept])[0].allowed
    assert gate.add(kept).breaches == ()
    assert gate.state.parts == 2  # what is only asked about is no part of the history
    gate.add([*"a"], part="high")
    refused = gate.check([[*"abcd"]], "low")[0]  # as another part is exposed already
    assert (refused.allowed, refused.reason) == (
        False,
        "in part high, weak T is 1, below 2",
    )


@pytest.mark.parametrize("part", ["lo w\n", "", 3, b"low", ["low"]])
def test_parts_that_are_no_names(part, tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="as the part of the vector"):
        inspect.unwrap(PartNames.check)(PartNames(), part, "`part`")
    with Recorder(
        tmp_path / "log.jsonl", system="s", aggregation="secagg", salt=b""
    ) as recorder:
        with pytest.raises(ConfigurationError, match="part"):
            inspect.unwrap(Recorder.record)(recorder, 1, ["a", "b"], part=part)
        recorder.record(1, ["a", "b"], part="low")
        recorder.record(
            1, ["a"], part="high", weights=[Fraction(1, 3)]
        )  # another sum, of one round
        with pytest.raises(ConfigurationError, match="one way to write a part"):
            recorder.record(1, ["b"], part="high\u200b")
    log = read_log(tmp_path / "log.jsonl")
    assert (log.rounds, log.parts) == (("1[high]", "1[low]"), ("high", "low"))
    assert Gate.from_log(tmp_path / "log.jsonl").state.exposed == ("a",)


def test_too_many_parts_are_refused_in_words(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    head = '{"format": "mrsa-jax participation log", "version": 1, "system": "s", "aggregation": '
    lines = [head + '"secagg", "pseudonyms": null, "run": 0}']
    lines += [
        f'{{"round": 1, "clients": ["a", "b"], "part": "rank {k}"}}' for k in range(257)
    ]
    path.write_text("\n".join([*lines, ""]))
    message = (
        "log.jsonl:258: expected sums of at most 256 parts of the vector .*'rank 256'"
    )
    with pytest.raises(ConfigurationError, match=message):
        read_log(path)
    table = tmp_path / "log.csv"
    table.write_text(
        "round,client,part\n" + "".join(f"1,a,r{k}x\n" for k in range(257))
    )
    with pytest.raises(
        ConfigurationError, match="`part_column` must name at most 256 parts"
    ):
        read_log(table, part_column="part")


def test_a_column_of_parts_is_not_one_of_sums(tmp_path) -> None:
    path = tmp_path / "log.csv"
    rows = [
        "1,a,low",
        "1,b,low",
        "1,c,low",
        "1,a,high",
        "1,b,high",
        "2,a,",
        "2,b,",
        "2,c,",
    ]
    path.write_text("\n".join(["round,client,part", *rows, ""]))
    with pytest.raises(ConfigurationError, match="--part-column COLUMN names the part"):
        read_log(path)
    sums, parts = read_log(path, sum_columns="part"), read_log(path, part_column="part")
    assert (sums.rounds, sums.parts) == (("1/high", "1/low", "2/"), None)
    assert parts.rounds == ("1[high]", "1[low]", "2")
    assert parts.parts == ("high", "low", None)
    assert audit(sums, effort=0.0).exposed == (("c", "1/low"),)
    assert audit(parts, effort=0.0).exposed == (("c", "2"),)  # 2 less 1[high]
    with pytest.raises(ConfigurationError, match="either used or ignored"):
        read_log(path, part_column="part", ignore_columns="part")
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("1,0\n1,1\n")
    with pytest.raises(ConfigurationError, match="names of columns"):
        read_log(matrix, part_column="part")


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> tuple[dict, bytes]:
    """A certificate of two parts, one of which exposes dan, and its log."""
    path = tmp_path_factory.mktemp("certified") / "log.jsonl"
    with Recorder(path, system="s", aggregation="secagg", salt=b"") as recorder:
        recorder.record(1, NAMES)
        recorder.record(2, NAMES[:3], part="low")
        recorder.record(2, NAMES[:2], part="high", weights=[1, Fraction(1, 3)])
    log = read_log(path)
    return certificate(log, audit(log, effort=0.0), path), path.read_bytes()


def outcome(made, log: bytes, **options) -> tuple[set[str], str]:
    data = json.dumps(made).encode()
    found = mrsa_check.check(data, log, **options)
    return {status for status, _ in found}, "\n".join(
        f"{status}: {said}" for status, said in found
    )


def test_a_certificate_of_parts_is_checked_part_by_part(certified) -> None:
    made, log = certified
    statuses, text = outcome(made, log)
    assert statuses == {"checked", "not checked, no short proof"}
    assert "part 'low', claim" in text
    assert "client 'dan' is exposed" in text
    for claim, expected in {
        "weak T >= 1": "checked",
        "weak T = 1": "checked",
        "weak T >= 2": "REFUSED",  # it is 1 in `low`, whatever it is in `high`
        "strong T = 1": "checked",
        "strong T <= 1": "checked",
        "exposed dan": "checked",
        "exposed bob": "REFUSED",
        "not exposed anna bob cleo": "checked",
        "not exposed dan": "REFUSED",  # though dan is not exposed in `high`
        "not exposed": "REFUSED",
        "hidden among >= 1.05 anna": "checked",
        "hidden among >= 3 anna": "REFUSED",  # as `low` would say
        "rank = 2": "REFUSED",
        "exposed eve": "REFUSED",
    }.items():
        told = mrsa_check.check(json.dumps(made).encode(), log, asked=[claim])
        assert told[-1][0] == expected, (claim, told[-1])


def test_forged_certificates_of_parts_are_refused(certified) -> None:
    made, log = certified
    high, low = made["parts"]

    def refused(why: str, *parts, **changes) -> None:
        statuses, text = outcome(made | {"parts": list(parts)} | changes, log)
        assert "REFUSED" in statuses, why
        assert why in text, text

    # the exposed part is dropped
    refused("its parts of the vector are 'high', 'low'", high)
    refused("a text twice", high, high)
    refused("no parts")
    renamed = json.loads(json.dumps(low).replace("[low]", "[high]")) | {"part": "high"}
    refused("a text twice", renamed, high)
    refused("it has another matrix", low | {"part": "high"}, high | {"part": "low"})
    both = high | {
        "rounds": [*high["rounds"], low["rounds"][1]],
        "sums": [*high["sums"], low["sums"][1]],
        "kernel": [],
        "claims": [{"claim": "strong T", "value": 1}],
    }
    refused("it has another matrix", low, both)  # rows of two parts are stacked
    hidden = low | {
        "rounds": low["rounds"][:1],
        "sums": low["sums"][:1],
        "kernel": [],
        "claims": [{"claim": "strong T", "value": 4}],
    }
    refused("it has another matrix", hidden, high)
    refused("parts that may be one", low, high, low | {"part": "low\u200b"})
    whole = {key: value for key, value in made.items() if key != "parts"}
    whole |= {key: value for key, value in low.items() if key != "part"}
    assert "it has another matrix" in outcome(whole, log)[1]
    # a log of whole updates has no parts to hide behind
    lines = [line for line in log.splitlines(keepends=True) if b'"high"' not in line]
    plain = b"".join(lines).replace(b', "part": "low"', b"")
    digest = {"name": "log", "sha256": hashlib.sha256(plain).hexdigest()}
    assert (
        "its parts of the vector are none" in outcome(made | {"log": digest}, plain)[1]
    )


def test_a_column_taken_for_parts_waits_for_the_word_of_who_checks(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("round,client,group\n1,a,x\n1,b,x\n1,c,x\n1,a,y\n1,b,y\n")
    log = read_log(path, part_column="group")
    made = certificate(log, audit(log, effort=0.0), path)
    assert made["reading"]["columns"] == ["round", "client", None, "group"]
    data = json.dumps(made).encode()
    assert (
        mrsa_check.check(data, path.read_bytes(), asked=["not exposed"])[-1][0]
        == "not checked"
    )
    told = mrsa_check.check(
        data, path.read_bytes(), asked=["not exposed"], reading=made["reading"]
    )
    assert told[-1][0] == "checked"


def test_a_certificate_names_whom_the_server_knows_in_each_part(
    certified, tmp_path
) -> None:
    _, log = certified
    (tmp_path / "log.jsonl").write_bytes(log)
    read = read_log(tmp_path / "log.jsonl")
    found = audit(read, effort=0.0, coalition=["dan", "cleo"])
    made = certificate(read, found, tmp_path / "log.jsonl")
    assert outcome(made, log)[0] == {"checked", "not checked, no short proof"}
    told = mrsa_check.check(json.dumps(made).encode(), log, asked=["exposed bob"])
    assert told[0][0] == "REFUSED"  # who checks did not say that anybody tells
    for coalition, expected in (
        (["cleo", "dan"], "checked"),
        (["cleo", "dan", "eve"], "REFUSED"),
    ):
        told = mrsa_check.check(
            json.dumps(made).encode(),
            log,
            asked=["exposed anna bob"],
            coalition=coalition,
        )
        assert told[-1 if expected == "checked" else 0][0] == expected
