"""What a plan is to expect, against enumeration and against exact ranks of its histories."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from mrsa_watch import ConfigurationError, preflight
from mrsa_watch._preflight import _history, _tail


def tail_by_enumeration(count: int, chance: Fraction, least: int) -> Fraction:
    """Go through all outcomes."""
    total = Fraction(0)
    for outcome in itertools.product((0, 1), repeat=count):
        if sum(outcome) >= least:
            ones = sum(outcome)
            total += chance**ones * (1 - chance) ** (count - ones)
    return total


@pytest.mark.parametrize(
    "chance", [Fraction(0), Fraction(1, 3), Fraction(9, 10), Fraction(1)]
)
def test_tails_by_enumeration(chance: Fraction) -> None:
    for count, least in itertools.product(range(7), range(9)):
        wanted = float(tail_by_enumeration(count, chance, least))
        assert _tail(count, float(chance), least) == pytest.approx(wanted, rel=1e-12), (
            count,
            least,
        )


def test_tails_of_large_cohorts_stay_chances() -> None:
    assert _tail(100_000, 0.9, 80_000) == pytest.approx(1.0, abs=1e-9)
    assert 0 < _tail(100_000, 0.9, 90_000) < 1
    assert _tail(100_000, 0.5, 60_000) < 1e-300


def exposed_by_ranks(rows: list[list[int]], width: int) -> set[int]:
    """Return the clients whose unit vector is in the span of the rows, by fractions."""

    def rank(matrix: list[list[int]]) -> int:
        left = [[Fraction(value) for value in row] for row in matrix]
        found = 0
        for place in range(width):
            pivot = next((row for row in left if row[place]), None)
            if pivot is None:
                continue
            left.remove(pivot)
            found += 1
            left = [
                [
                    a - b * row[place] / pivot[place]
                    for a, b in zip(row, pivot, strict=True)
                ]
                for row in left
            ]
        return found

    base = rank(rows)
    units = np.eye(width, dtype=int).tolist()
    return {i for i in range(width) if rank([*rows, units[i]]) == base}


def test_simulated_histories_are_judged_as_their_exact_ranks_say() -> None:
    rows: list[list[int]] = []
    firsts = []
    gate, first = _history(np.random.default_rng((3, 0)), 7, 3, 2, 0.9, 0.8, 12)
    # the same draws once more, round by round
    rng = np.random.default_rng((3, 0))
    for number in range(1, 13):
        here = np.flatnonzero(rng.random(7) < 0.9)
        if len(here) < 3:
            continue
        chosen = rng.choice(here, 3, replace=False)
        left = chosen[rng.random(3) < 0.8]
        if len(left) < 2:
            continue
        rows.append([int(i in left) for i in range(7)])
        if exposed_by_ranks(rows, 7):
            firsts.append(number)
    assert gate.state.sums == len(rows) > 4
    assert set(gate.state.exposed) == exposed_by_ranks(rows, 7)
    assert first == (firsts[0] if firsts else None)


def test_blocks_that_stay_whole_never_expose() -> None:
    found = preflight(24, 12, 6, num_rounds=80, loss=0.05, away=0.1, block_size=3)
    assert (found.exposed, found.first_exposure) == (0.0, None)
    assert found.weak_lower == 3
    assert found.hidden == pytest.approx(3.0)
    single = preflight(24, 12, 6, num_rounds=80, loss=0.05, away=0.1)
    assert single.exposed == 24
    assert single.weak_upper == 1
    assert single.first_exposure is not None


def test_the_smallest_sum_holds_in_its_share_of_plans() -> None:
    plan = {"num_rounds": 40, "loss": 0.2}
    found = preflight(30, 10, 4, trials=1, **plan)
    assert found.smallest_sum is not None
    rng = np.random.default_rng(0)
    sizes = rng.binomial(10, 0.8, (4000, 40))
    sizes = np.where(sizes >= 4, sizes, 10)  # a round without a sum has no small one
    share = (sizes.min(axis=1) >= found.smallest_sum).mean()
    above = (sizes.min(axis=1) >= found.smallest_sum + 1).mean()
    assert share > 0.94
    assert above < 0.95


def test_plans_without_sums() -> None:
    found = preflight(
        10, 5, 5, num_rounds=3, loss=1.0, fail_below=5, fail_below_hidden=9
    )
    assert (found.success, found.smallest_sum, found.learnt) == (0.0, None, 0.0)
    assert (found.weak_lower, found.hidden, found.breaches) == (None, None, ())
    assert "no sum" in found.to_words()
    assert preflight(10, 5, num_rounds=3, away=1.0, fail_below_chance=0.5).breaches == (
        "a round works with chance 0.0000, below 0.5",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_clients": 0}, "`num_clients` must be at least 1"),
        ({"cohort_size": 13}, "`cohort_size` must be at most `num_clients`"),
        ({"threshold": 7}, "`threshold` must be at most `cohort_size`"),
        ({"block_size": 4}, "`cohort_size` must be a multiple of `block_size` 4"),
        ({"loss": 1.5}, "`loss` must lie in"),
        ({"away": float("nan")}, "`away` must lie in"),
        ({"trials": 0}, "`trials` must be at least 1"),
        ({"fail_below": 0}, "`fail_below` must be"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1"),
    ],
)
def test_wrong_plans(changes: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "num_clients": 12,
        "cohort_size": 6,
        "num_rounds": 3,
        **changes,
    }
    with pytest.raises(ConfigurationError, match=message):
        preflight(**given)  # type: ignore[arg-type]
