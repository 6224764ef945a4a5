"""The gate: its figures are the batch's after every sum, its answers those of exhaustion."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import pathlib
import random
from fractions import Fraction
from typing import Any

import hostile
import numpy as np
import pytest
import row_space_oracle as oracle
from flint import fmpz

from mrsa_jax import ConfigurationError, MrsaError, live, privacy
from mrsa_jax.modular import rank_trajectory
from mrsa_watch import _history, _leave_out, _leverages
from mrsa_watch._base.primes import draw_wide_primes, wide_error_bits
from mrsa_watch._rows import Row

Matrix = list[list[int]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fail_below": 0}, "`fail_below` must be an integer of at least 1; got 0"),
        (
            {"fail_below_hidden": 0.5},
            "`fail_below_hidden` must be a finite number of at least 1",
        ),
        ({"effort": -1}, "`effort` must be a finite number of at least 0; got -1"),
    ],
)
def test_bars_that_are_none(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        live.Gate(**settings)


@pytest.mark.long("clients0-None-`clients` must be named once each; got 'a'")
@pytest.mark.parametrize(
    ("clients", "weights", "message"),
    [
        (["a", "b", "a"], None, "`clients` must not contain duplicates; got 'a'"),
        (["a", "b"], [1], "`weights` must be 2, one for each client; got .1.$"),
        (
            ["a"],
            [0],
            "`weights` must be positive integers, fractions, or text .*; got 0",
        ),
        (["a"], ["-1/2"], "`weights` must be positive .*; got '-1/2'"),
        (["a"], ["1/0"], "`weights` must be positive .*; got '1/0'"),
        (["a"], [True], "`weights` must be positive .*; got True"),
        (["a"], [0.5], "`weights` must be positive .*; got 0.5"),
        (
            [["a"]],
            None,
            "`clients` must be text or integers, or have a text that lasts; got",
        ),
        ("ab", None, "`clients` must be a collection of names; got 'ab'"),
        (5, None, "`clients` must be a collection of names; got 5"),
        (None, None, "`clients` must be a collection of names; got None"),
        (["a"], 5, "`weights` must be 1, one for each client; got 5"),
        ({"a": 2}, [2], "`weights` must not be set if clients are a mapping"),
    ],
)
def test_a_sum_that_is_none_changes_nothing(
    clients: Any, weights: Any, message: str
) -> None:
    gate = live.Gate()
    gate.add(["a", "b", "c"])
    before = gate.state
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(live.Gate.add)(gate, clients, weights)
    assert gate.state is before
    assert gate.add(["a", "c"]).lower == 1


@pytest.mark.parametrize("candidates", ["ab", {"a": 1}, 5, None])
def test_a_cohort_in_place_of_several(candidates: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="`candidates` must be a sequence of cohorts"
    ):
        inspect.unwrap(live.Gate.check)(live.Gate(), candidates)


def test_by_hand() -> None:
    gate = live.Gate(fail_below=2, fail_below_hidden=1.5)
    assert gate.state == live.GateState()
    assert (
        gate.check([[], ["a"]], new_clients=True)[1].reason
        == "weak T would be 1, below 2"
    )
    assert gate.add([]) == live.GateState(sums=1)  # no client took part: nothing fails
    state = gate.add(["a", "b", "c", "d"])
    assert (state.lower, state.upper, state.strong, state.hidden) == (4, 4, 4, 4.0)
    state = gate.add(["a", "b"], ["1/3", Fraction(1, 3)])
    assert (state.clients, state.rank, state.lower, state.hidden, state.breaches) == (
        4,
        2,
        2,
        2,
        (),
    )
    again = gate.add({"c": 5, "d": 5})  # the difference of both
    assert again == dataclasses_replaced(state, sums=4)
    state = gate.add(["a", "e", "f"])
    assert state.exposed == ()
    state = gate.add(["e", "f"])
    assert state.exposed == ("a", "b")
    assert state.breaches == (
        "weak T is 1, below 2",
        "client a is hidden among 1, below 1.5",
    )
    refused = gate.check([["x", "y", "z"]], new_clients=True)[0]
    assert not refused.allowed
    assert set(refused.leave_out) == {"x", "y", "z"}


def test_what_is_not_proven_is_a_breach() -> None:
    """Of weak T between 3 and 4, 3 is known, 4 is not, and 5 is missed."""
    between = "weak T is between 3 and 4"
    for is_searched, more in (
        (True, " at this effort: 4 is not proven, more effort may decide"),
        (False, ": 4 is not proven, and nothing was searched for it (mrsa_jax does)"),
    ):
        figures = _history.Figures(3, 4, 3, np.zeros(9, bool), None, is_searched)
        said = [
            live.Gate(fail_below=bar)._whole._weak_breach(figures, "is")
            for bar in (3, 4, 5)
        ]
        assert said == ["", f"{between}{more}", f"{between}, below 5"]


def dataclasses_replaced(state: live.GateState, **changes: Any) -> live.GateState:
    return live.GateState(**{**vars(state), **changes})


def _random_log(generator: random.Random, kind: int) -> Matrix:
    """Return a small history; of weights, blocks, repeated and nested rows by turns."""
    clients, rounds = generator.randint(2, 12), generator.randint(1, 10)
    rows: Matrix = []
    for _ in range(rounds):
        chance = generator.choice([0.2, 0.5, 0.8])
        row = [int(generator.random() < chance) for _ in range(clients)]
        if kind == 1:
            row = [value * generator.choice([1, 1, 2, 3, 10**4]) for value in row]
        elif kind == 2:
            width = generator.choice([2, 3])
            row = [row[i // width] for i in range(clients)]
        elif kind == 3 and rows:
            row = list(generator.choice(rows))
            row[generator.randrange(clients)] ^= 1
            row = row if generator.random() < 0.7 else list(generator.choice(rows))
        rows.append(row)
    return rows


def _check_against_batch(logs: list[Matrix], *, with_hidden: bool = True) -> int:
    """Hold a gate's figures after every line to the batch's, which see all logs at once.

    Returns how often floats could not tell among how many the worst client is hidden.
    """
    unknown = 0
    padded = np.zeros((len(logs), 10, 12), object)
    for log, rows in zip(padded, logs, strict=True):
        log[: len(rows), : len(rows[0])] = rows
    first = np.asarray(privacy.first_exposure(padded))
    strong = np.asarray(privacy.strong_privacy_trajectory(padded))
    hidden = (
        np.asarray(privacy.hidden_among_trajectory(padded))
        if with_hidden
        else np.empty(0)
    )
    rank = np.asarray(rank_trajectory(padded))
    for k, rows in enumerate(logs):
        gate = live.Gate()
        for j, row in enumerate(rows):
            names = [i for i, value in enumerate(row) if value]
            state = gate.add(names, [row[i] for i in names])
            assert state.rank == rank[k, j]
            if not state.rank:
                assert state == live.GateState(j + 1)
                continue
            assert set(state.exposed) == set(
                np.flatnonzero((first[k] >= 0) & (first[k] <= j))
            )
            assert state.strong == strong[k, j]
            weak = oracle.weak_privacy(rows[: j + 1])
            assert weak is not None
            assert state.lower <= weak <= state.upper
            assert weak == state.lower == state.upper if weak < 3 else state.lower >= 3
            assert state.error_bits >= 60
            if not with_hidden:
                continue
            if state.hidden is None:
                unknown += 1
                continue
            assert state.hidden == pytest.approx(hidden[k, j].min(), rel=1e-9)
            assert (state.hidden == 1.0) == bool(state.exposed)
            assert hidden[k, j, state.hidden_client] == pytest.approx(
                state.hidden, rel=1e-9
            )
    return unknown


@pytest.mark.long
def test_streaming_is_batch() -> None:
    generator = random.Random(22)
    assert (
        _check_against_batch([_random_log(generator, kind % 4) for kind in range(40)])
        == 0
    )


@pytest.mark.long
def test_streaming_is_batch_on_histories_made_to_deceive() -> None:
    assert _check_against_batch(np.abs(hostile.small(48, 22)).tolist()) < 20


@pytest.mark.slow
def test_streaming_is_batch_on_two_hundred_logs() -> None:
    generator = random.Random(2022)
    assert (
        _check_against_batch([_random_log(generator, kind % 4) for kind in range(200)])
        == 0
    )


# Logs that passed while a residue crossed between compiled loops as another type.
_LARGE = 2**57
DECEIVED = [
    [
        [1, 0, 1, 0, 1],
        [0, 1, 0, 2**62, 1],
        [1, 0, 0, 1, 0],
        [2**63, 2**63, 1, 0, 2**62],
        [0, 1, 1, 0, 1],
    ],
    [[0, 0, _LARGE, 1], [1, _LARGE, 0, 1], [1, 0, _LARGE, 0], [1, 1, 0, _LARGE]],
]


def _powers_log(generator: random.Random) -> Matrix:
    """Return a small history with weights beside powers of two up to 2**63."""
    clients, rounds = generator.randint(2, 6), generator.randint(2, 6)
    near = [*(2**e + more for e in range(64) for more in (-1, 0, 1)), *[1] * 64]
    return [
        [
            max(0, generator.choice(near)) if generator.random() < 0.6 else 0
            for _ in range(clients)
        ]
        for _ in range(rounds)
    ]


def _check_against_certified(log: Matrix) -> None:
    """Hold a gate's figures after the last line to those that a batch proves."""
    gate = live.Gate()
    for row in log:
        state = gate.add({i: value for i, value in enumerate(row) if value})
    whole = privacy.weak_privacy(np.asarray(log, object), effort=0)
    assert state.rank == whole.rank
    assert state.strong == whole.strong
    assert set(state.exposed) == set(whole.exposed)
    if whole.certified and state.lower is not None and state.upper is not None:
        assert whole.lower is not None
        assert state.lower <= whole.lower <= state.upper


def _check_against_fractions(log: Matrix) -> int:
    """Hold a gate's figures after every line to exact ones.

    Return how many sums were judged.
    """
    gate, judged = live.Gate(fail_below=2), 0
    for j, row in enumerate(log):
        names = [i for i, value in enumerate(row) if value]
        before, rows = gate.state, log[: j + 1]
        answer = gate.check([{i: row[i] for i in names}], new_clients=True)[0]
        state = gate.add(names, [row[i] for i in names])
        assert state.rank == oracle.rank(rows)
        if not state.rank:
            continue
        judged += 1
        if state.rank > before.rank:
            exposed, weak = oracle.exposed(rows), oracle.weak_privacy(rows)
        assert weak is not None
        assert set(state.exposed) == set(exposed)
        assert state.strong == oracle.strong_privacy(rows)
        assert state.lower is not None
        assert state.upper is not None
        assert state.lower <= weak <= state.upper
        assert weak == state.lower == state.upper if weak < 3 else state.lower >= 3
        assert answer.allowed == (not state.breaches) == (weak >= 2)
    return judged


@pytest.mark.long
def test_weights_around_every_power_of_two() -> None:
    generator = random.Random(64)
    logs = [_powers_log(generator) for _ in range(120)]
    assert sum(map(_check_against_fractions, logs)) > 300
    assert _check_against_batch(logs[:40], with_hidden=False) == 0
    for log in logs[:20]:
        _check_against_certified(log)


@pytest.mark.slow
def test_ten_thousand_histories_around_every_power_of_two() -> None:
    generator = random.Random(63)
    logs = [_powers_log(generator) for _ in range(10**4)]
    assert sum(map(_check_against_fractions, logs)) > 30_000
    assert _check_against_batch(logs, with_hidden=False) == 0
    for log in logs:
        _check_against_certified(log)


@pytest.mark.long("log1")
@pytest.mark.parametrize("log", DECEIVED)
def test_residues_of_64_bits_expose(log: Matrix) -> None:
    for _ in range(4):  # the primes are drawn: not every pair of them was deceived
        _check_against_fractions(log)
    batch = privacy.first_exposure(np.asarray(log, object))
    assert (np.asarray(batch) >= 0).all()


@pytest.mark.parametrize("broken", ["bounds", "rank"])
def test_figures_that_contradict_each_other_pass_nothing(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = live.Gate(fail_below=2)
    gate.add(["a", "b", "c"])
    with monkeypatch.context() as patched:
        if broken == "bounds":  # weak T of at least 3 beside a combination of 2
            patched.setattr(gate._whole.history, "_upper", 2)
        else:  # more independent sums than clients
            patched.setattr(_history.History, "rank", 9)
        with pytest.raises(
            MrsaError, match="contradict each other, so no sum may be learnt"
        ):
            gate.check([["a", "b", "c", "d", "e", "f"]], new_clients=True)
    # for good: also of a sum that would be fine
    with pytest.raises(MrsaError, match="contradict each other"):
        gate.check([["a", "b", "c"]], new_clients=True)
    with pytest.raises(MrsaError, match="contradict each other"):
        gate.add(["a", "b", "c"])


def _hidden(rows: Matrix) -> Fraction:
    """Return in rationals among how many the worst hidden client is."""
    return 1 / max(oracle.leverages(rows))


def _passes(rows: Matrix, weak: int | None, hidden: float | None) -> bool:
    if not any(map(any, rows)):
        return True
    if weak is not None and (oracle.weak_privacy(rows) or 0) < weak:
        return False
    return hidden is None or _hidden(rows) >= Fraction(hidden) * (
        1 - Fraction(1, 10**9)
    )


def _check_by_exhaustion(generator: random.Random) -> list[bool]:
    """Ask about cohorts of a small history; return what was answered."""
    clients = generator.randint(3, 9)
    weak = generator.choice([None, 1, 2, 3, 4])
    hidden = generator.choice([None, 1.5, 2, 2.5, 3])
    gate = live.Gate(weak, hidden, effort=0.2)
    rows: Matrix = []
    width = generator.choice([1, 1, 2, 3])
    for _ in range(generator.randint(0, 5)):
        blocks = [int(generator.random() < 0.6) for _ in range(clients)]
        row = [blocks[i // width] for i in range(clients)]
        if any(row) and (
            _passes([*rows, row], weak, hidden) or generator.random() < 0.2
        ):
            rows.append(row)
            gate.add([i for i in range(clients) if row[i]])
    cohorts = [
        [i for i in range(clients) if generator.random() < 0.6] for _ in range(3)
    ]
    if rows:
        known = {i for i in range(clients) if generator.choice(rows)[i]}
        cohorts += [sorted(known), sorted(known | {clients - 1})]
    before = gate.state
    answers = gate.check(cohorts, new_clients=True)
    assert gate.state is before
    for cohort, answer in zip(cohorts, answers, strict=True):

        def keeps(left: Any, cohort: list[int] = cohort) -> bool:
            row = [int(i in cohort and i not in left) for i in range(clients)]
            return _passes([*rows, row], weak, hidden)

        assert answer.allowed == keeps(())
        assert set(answer.leave_out) <= set(cohort)
        if answer.allowed:
            assert answer.leave_out == ()
        elif _passes(rows, weak, hidden):
            assert keeps(answer.leave_out)
            for fewer in range(1, len(answer.leave_out)):
                assert not any(map(keeps, itertools.combinations(cohort, fewer)))
        else:
            assert sorted(answer.leave_out) == sorted(cohort)
    return [answer.allowed for answer in answers]


@pytest.mark.long
def test_answers_are_those_of_exhaustion() -> None:
    generator = random.Random(3)
    said = list(itertools.chain(*(_check_by_exhaustion(generator) for _ in range(40))))
    assert 40 < sum(said) < len(said) - 40


@pytest.mark.slow
def test_many_answers_are_those_of_exhaustion() -> None:
    generator = random.Random(4)
    for _ in range(1500):
        _check_by_exhaustion(generator)


def test_a_large_cohort_keeps_its_whole_blocks() -> None:
    gate = live.Gate(fail_below=4)
    blocks = [[f"{block}.{i}" for i in range(4)] for block in range(400)]
    generator = random.Random(5)
    for _ in range(30):
        gate.add(list(itertools.chain(*generator.sample(blocks, 200))))
    learnt = list(itertools.chain(*blocks[:300]))
    gate.add(learnt)
    cohorts = [learnt, [*learnt, "new"], [name for name in learnt if name != "7.0"]]
    cohorts.append([*cohorts[-1], "new"])
    whole, joined, broken, both = gate.check(cohorts, new_clients=True)
    assert whole.allowed
    assert joined.leave_out == ("new",)
    # the fewest are not searched for among so many kinds: what is left of a block goes
    assert (broken.allowed, set(broken.leave_out)) == (False, {"7.1", "7.2", "7.3"})
    # block and newcomer: five clients
    assert set(both.leave_out) == {"7.1", "7.2", "7.3"}


def test_cohorts_are_weighed_as_they_are_asked_about() -> None:
    gate = live.Gate(fail_below=2)
    gate.add({"a": 1, "b": 2, "c": 3})
    same, other = gate.check([{"a": 2, "b": 4, "c": 6}, {"a": 1, "b": 1, "c": 1}])
    assert same.reason == "nothing new would be learnt"
    assert other.allowed  # b + 2c, and the like
    assert [one.allowed for one in gate.check([{"a": 1, "b": 2, "c": 4}])] == [False]


@pytest.mark.long
def test_a_reread_history_gives_the_same_figures_to_the_last_bit(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "log.jsonl"
    generator = np.random.default_rng(6)
    names = np.asarray([f"c{i}" for i in range(300)])
    states = []
    gate = live.Gate(fail_below=3, fail_below_hidden=2)
    with live.Recorder(
        path, system="test", aggregation="secagg+", salt=b""
    ) as recorder:
        for j in range(60):
            clients = generator.choice(names, 40, replace=False).tolist()
            weights = generator.integers(1, 9, 40).tolist() if j % 3 == 0 else None
            recorder.record(j, clients, weights=weights)
            states.append(gate.add(clients, weights))
        recorder.record(60, [], status="aborted")
    again = live.Gate.from_log(path, fail_below=3, fail_below_hidden=2)
    assert (again.state.last_round, gate.state.last_round) == (60, None)
    read = dataclasses.replace(again.state, last_round=None)
    assert read == states[-1] == gate.state
    assert json.dumps(vars(read)) == json.dumps(vars(states[-1]))
    with pytest.raises(
        ConfigurationError, match=r"`path` must be a participation log; got .*no"
    ):
        live.Gate.from_log(tmp_path / "no")


def test_a_prime_that_divides_what_matters_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody but one, four times: the determinant is 3."""

    def with_three(count: int, without: Any = ()) -> tuple[int, ...]:
        return (
            draw_wide_primes(count, without)
            if count == 1
            else (3, *draw_wide_primes(1))
        )

    monkeypatch.setattr(_history, "draw_wide_primes", with_three)
    for scale in ({}, {"d": "7/3"}):  # the inverse of one of 3 is none
        gate = live.Gate()
        for left in "abcd":
            state = gate.add(
                {name: scale.get(name, 1) for name in "abcd" if name != left}
            )
        assert (state.rank, sorted(state.exposed)) == (4, ["a", "b", "c", "d"])
        assert gate._whole.history._kernels[0].value > 2**60


def test_overlaps_are_whole_numbers() -> None:
    """They bound weak T from above: none may come of rounding."""
    sizes = (3, 5, 6, 7, 96, 97)
    history = _history.History()
    history.join([f"{i:03}" for i in range(200)])
    drawn = [sorted(random.Random(size).sample(range(200), size)) for size in sizes]
    rows = [Row.of(places, None) for places in drawn]
    for row in rows[:-2]:
        history.add(row)
    inside = [[len(set(a) & set(b)) for b in drawn[:-2]] for a in drawn[-2:]]
    own = history._leverages
    for rest, counts in zip(
        own.rests(history._rows, rows[-2:], 200), inside, strict=True
    ):
        assert rest.overlaps.tolist() == counts
    for row, counts in zip(rows[-2:], inside, strict=True):
        assert own.rest(history._rows, row).overlaps.tolist() == counts


def test_weights_of_numpy_do_not_overflow() -> None:
    large = np.array([2**62, 2**62 - 1])
    for weights in ([*large, "1/9"], [*large, Fraction(np.int64(1), np.int64(9))]):
        gate = live.Gate()
        gate.add(["a", "b", "c"], weights)
        same = {"a": 9 * 2**62, "b": 9 * (2**62 - 1), "c": 1}
        assert gate.check([same])[0].reason == "nothing new would be learnt"


def test_rows_that_floats_cannot_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    large = 10**12
    near = {"a": large, "b": large, "c": large + 1, "d": large + 1}
    gate = live.Gate(fail_below=2, fail_below_hidden=2)
    gate.add(["a", "b", "c", "d"])
    # integers know it of small histories: two blocks of 2
    assert gate.check([near])[0].allowed
    assert gate.add(near).hidden == 2.0
    monkeypatch.setattr(_history, "_MOST_BY_BALLS", 0)
    gate = live.Gate(fail_below=2, fail_below_hidden=1)
    gate.add(["a", "b", "c", "d"])
    unknown = "among how many the worst client is hidden is not known to nine digits"
    (answer,) = gate.check([near])
    assert (answer.allowed, answer.reason) == (False, unknown)
    state = gate.add(near)
    assert (state.lower, state.upper, state.hidden, state.breaches) == (
        2,
        2,
        None,
        (unknown,),
    )
    state = gate.add({"c": 1, "d": 2})  # who is exposed, is known all the same
    assert (state.exposed, state.hidden) == (("c", "d"), 1.0)


def test_bars_above_three_are_searched_only_where_cheap_bounds_do_not_say() -> None:
    edges = list(itertools.combinations(range(5), 2))
    for bar, is_searched in ((3, False), (4, True), (5, False)):
        gate = live.Gate(fail_below=bar, effort=0.2)
        states = [
            gate.add([edge for edge in edges if vertex in edge]) for vertex in range(5)
        ]
        assert [bool(state.breaches) for state in states] == [bar > 4] * 5
        assert states[-1].is_searched == is_searched
        assert (states[-1].lower, states[-1].upper) == (4 if is_searched else 3, 4)
    open_gate = live.Gate(fail_below=4, effort=0)
    open_gate.add([edge for edge in edges if 0 in edge])
    assert open_gate.state.breaches == ()


def test_wide_primes_are_primes() -> None:
    drawn = draw_wide_primes(20)
    assert len(set(drawn)) == 20
    assert all(2**60 < prime < 2**61 and fmpz(prime).is_prime() for prime in drawn)
    assert draw_wide_primes(1, without=drawn)[0] not in drawn
    assert wide_error_bits(60 * 2.0**20, 2) == 69


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, list(range(12))),
        (1, [0, 1, 2, 3, 7, 8, 9, 10, 11]),
        (5, [0, 1, 2, 3, 7, 8, 9, 10, 11]),
        (6, [3, 11]),
    ],
)
def test_what_stays_is_allowed_however_little_may_be_tried(
    most: int, expected: list[int]
) -> None:
    """Three of the four new clients may stay, and four of the five of another kind."""
    asked = []

    def allowed(kept: list[np.ndarray]) -> list[bool]:
        asked.extend(kept)
        return [
            sum(place < 4 for place in own) < 4 and sum(place > 6 for place in own) < 5
            for own in kept
        ]

    sizes = np.asarray([0, 3, 5])
    kinds = [0] * 4 + [1] * 3 + [2] * 5
    assert _leave_out.fewest_left_out(kinds, [0] * 12, sizes, allowed, most) == expected
    assert len(asked) <= 5 * most


def test_how_many_ways_there_are() -> None:
    for counts in ([1, 1, 1], [3, 1, 2], [4], [2, 2, 2, 2]):
        for number in range(1, sum(counts) + 1):
            ways = list(_leave_out._ways(counts, number))
            assert len(set(ways)) == len(ways) == _leave_out._num_ways(counts, number)
            assert all(sum(way) == number for way in ways)
    assert _leverages.VECTORS == 3


@pytest.mark.parametrize(
    "part", ["LoRA", "lora\ufe0f", "l\u043era", " lora", "lo\u200bra"]
)
def test_two_parts_that_may_be_one_are_refused(part: str) -> None:
    gate = live.Gate(fail_below=2)
    gate.add(["a", "b", "c"], part="lora")
    for act in (
        lambda: gate.add(["a", "b"], part=part),
        lambda: gate.check([["a"]], part=part),
    ):
        with pytest.raises(ConfigurationError, match="`part`: expected"):
            act()
