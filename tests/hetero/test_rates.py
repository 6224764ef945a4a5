"""Rounds with losses: exact chances by enumeration, levels by exhaustive search."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import availability, hetero
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key

LEVELS = (2, 4, 8, 10, 12)
ONE = Fraction(1)


def level_among(matrix: np.ndarray, present: Sequence[int]) -> Fraction:
    """Search every proper union of the groups that are in a round."""
    most = 0
    for size in range(1, len(present)):
        for union in itertools.combinations(present, size):
            learned = 0
            for row in matrix.tolist():
                sides: dict[int, set[bool]] = collections.defaultdict(set)
                for group in present:
                    label = row[group] if row[group] >= 0 else group
                    sides[label].add(group in union)
                learned += all(len(side) == 1 for side in sides.values())
            most = max(most, learned)
    return 1 - Fraction(most, len(matrix))


def without_lonely(matrix: np.ndarray, counts: Sequence[int]) -> tuple[int, ...]:
    """Empty the groups whose one client is alone in a block, until none is."""
    left = list(counts)
    while True:
        for row in matrix.tolist():
            blocks: dict[int, list[int]] = collections.defaultdict(list)
            for group, label in enumerate(row):
                blocks[label if label >= 0 else group].append(group)
            alone = [b for b in blocks.values() if sum(left[g] for g in b) == 1]
            if alone:
                for group in alone[0]:
                    left[group] = 0
                break
        else:
            return tuple(left)


def binomial(n: int, k: int, chance: Fraction) -> Fraction:
    return math.comb(n, k) * chance**k * (ONE - chance) ** (n - k)


def exact_levels(
    matrix: np.ndarray, sizes: Sequence[int], q: Fraction, t: int
) -> dict[Fraction, Fraction]:
    """Return P(sum learnt at this level) by enumerating the groups' counts.

    t is a majority: whoever lacks shares before sending lacks them at the end too.
    """
    stays = (ONE - q) ** 3
    of_group = [[binomial(size, k, stays) for k in range(size + 1)] for size in sizes]
    chances: collections.Counter[tuple[int, ...]] = collections.Counter()
    for counts in itertools.product(*(range(size + 1) for size in sizes)):
        chance = math.prod(
            (row[k] for row, k in zip(of_group, counts, strict=True)), start=ONE
        )
        chances[without_lonely(matrix, counts)] += chance
    levels: collections.Counter[Fraction] = collections.Counter()
    found: dict[tuple[int, ...], Fraction] = {}
    for counts, chance in chances.items():
        total = sum(counts)
        unmasked = sum(
            (binomial(total, k, ONE - q) for k in range(t, total + 1)),
            start=Fraction(0),
        )
        present = tuple(np.flatnonzero(counts).tolist())
        if unmasked:
            if present not in found:
                found[present] = level_among(matrix, present)
            levels[found[present]] += chance * unmasked
    return dict(levels)


def within(count: int, trials: int, chance: Fraction, errors: float = 4.5) -> bool:
    spread = math.sqrt(trials * chance * (1 - chance))
    return abs(count - trials * chance) <= errors * spread + 1e-9


PRINTED = {
    ("mc", 2): (0.44, 0.74, 0.89),
    ("mc", 4): (0.002, 0.049, 0.17),
    ("sc", 4): (0.003, 0.050, 0.18),
}


@pytest.mark.parametrize(
    "scheme",
    ["mc", pytest.param("sc", marks=pytest.mark.long)],
)
def test_levels_of_five_groups_of_two_follow_their_exact_law(scheme: str) -> None:
    matrix = hetero.segment_matrix(scheme, 5)
    layout = hetero.segment_layout(scheme, [2] * 5, LEVELS, 10)
    for q in (Fraction(1, 50), Fraction(1, 20), Fraction(1, 10)):
        exact = exact_levels(matrix, [2] * 5, q, 6)
        rates = hetero.round_rates(layout, float(q), num_trials=20_000)
        counted = dict(rates.levels)
        assert counted.keys() <= exact.keys()
        for level, chance in exact.items():
            assert within(counted.get(level, 0), 20_000, chance), (q, level)
        assert within(rates.no_sum.count, 20_000, 1 - sum(exact.values()))
        assert rates.certified


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "size"), PRINTED)
def test_rounds_below_the_planned_level_are_as_often_as_by_other_code(
    scheme: str, size: int
) -> None:
    layout = hetero.segment_layout(scheme, [size] * 5, LEVELS, 10)
    for q, expected in zip((0.02, 0.05, 0.1), PRINTED[scheme, size], strict=True):
        below = hetero.round_rates(layout, q).below_plan
        assert below is not None
        # both are samples of 2,000 rounds, of which only some have a sum
        spread = math.sqrt(2 * expected * (1 - expected) / below.trials)
        assert abs(below.rate - expected) < 3.5 * spread + 0.005, q


def test_levels_of_four_clients_per_group_follow_their_exact_law() -> None:
    matrix = hetero.segment_matrix("mc", 3)
    layout = hetero.segment_layout(
        "mc", [1, 2, 4], LEVELS[:3], 9, allow_small_groups=True
    )
    exact = exact_levels(matrix, [1, 2, 4], Fraction(1, 10), 4)
    rates = hetero.round_rates(layout, 0.1, num_trials=20_000)
    for level, chance in exact.items():
        assert within(dict(rates.levels).get(level, 0), 20_000, chance), level


def some_matrices() -> Iterator[np.ndarray]:
    for size in range(2, 10):
        yield hetero.segment_matrix("sc", size)
        yield hetero.segment_matrix("mc", size)
        if size > 3:
            yield hetero.segment_matrix("hc", size, 2)


def test_the_level_of_the_groups_left_is_that_of_exhaustive_search() -> None:
    rng = np.random.default_rng(57)
    for matrix in some_matrices():
        size = len(matrix)
        for _ in range(3):
            count = int(rng.integers(1, size + 1))
            present = sorted(rng.choice(size, count, replace=False).tolist())
            report = hetero.privacy_report(matrix, groups=present)
            assert report.level == level_among(matrix, present)
            assert report.certified
            assert set(report.groups) < set(present) or len(present) == 1
            assert hetero.privacy_level(matrix, groups=present) == float(report.level)


def one_by_one(
    layout: hetero.SegmentLayout, steps: Any, limits: Any, trials: int
) -> Iterator[Any]:
    """Judge the same draws round by round, by the rule of any graph."""
    everybody = jnp.ones(layout.num_participants, bool)
    for trial in range(trials):
        key = round_key(trial_key(as_key(0), trial), 0, Stream.STEPS)
        survivors = np.asarray(steps.sample(key, everybody))
        yield survivors, layout.outcome(survivors, limits)


def test_rounds_are_judged_as_one_by_one() -> None:
    layout = hetero.segment_layout(
        "hc", [2, 3, 2, 2], [2, 3, 4, 5], 8, hybrid_threshold=2
    )
    steps = availability.independent_steps(np.linspace(0.0, 0.4, 9))
    limits = np.asarray([2, 3, 4, 5, 2, 3, 4, 5, 6])
    rates = hetero.round_rates(layout, steps, limits, num_trials=60)
    column_of = np.repeat(np.arange(4), [2, 3, 2, 2])
    levels: collections.Counter[Fraction] = collections.Counter()
    tolerated: collections.Counter[int] = collections.Counter()
    lonely = inputs = 0
    for survivors, outcome in one_by_one(layout, steps, limits, 60):
        summed = outcome.summed
        inputs += survivors[3].sum()
        lonely += bool((survivors[3] & ~summed).any())
        if outcome.status != mj.Status.OK:
            continue
        counts = np.bincount(column_of, summed, 4).astype(int)
        present = np.flatnonzero(counts).tolist()
        levels[level_among(np.asarray(layout.matrix), present)] += 1
        tolerance = hetero.tolerated_byzantine(layout.matrix, weights=counts)
        tolerated[tolerance.anywhere] += 1
    assert dict(rates.levels) == levels
    assert dict(rates.tolerated) == tolerated
    assert rates.lonely.count == lonely
    assert rates.mean_inputs == inputs / 60
    assert rates.no_sum.count == 60 - sum(levels.values())


def test_seconds_are_those_of_the_slowest_input_with_stragglers() -> None:
    layout = hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], 60)
    speeds = np.asarray([1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
    trials, late, q = 4_000, 0.1, 0.1
    rates = hetero.round_rates(
        layout,
        q,
        num_trials=trials,
        rates_bits_per_second=speeds,
        straggler_rate=late,
        straggler_slowdown=10.0,
    )
    seconds = rates.seconds
    assert seconds is not None
    usual = hetero.costs.communication_times(layout, speeds).seconds
    # P(all done within s): each input is lost, or in time
    stays = (1 - q) ** 3
    for limit in (usual.max(), 10 * usual.min(), 10 * usual.max() * 0.99):
        chance = 1.0
        for own in usual:
            in_time = (1 - late) * (own <= limit) + late * (10 * own <= limit)
            chance *= 1 - stays * (1 - in_time)
        count = int((seconds <= limit * (1 + 1e-6)).sum())
        count += int(np.isnan(seconds).sum())
        assert within(count, trials, Fraction(chance)), limit
    assert hetero.round_rates(layout, q, num_trials=9).seconds is None
    with pytest.raises(mj.ConfigurationError, match="`rates_bits_per_second` must be"):
        hetero.round_rates(layout, q, straggler_rate=0.1)


def test_no_client_is_lost_without_losses_and_no_sum_is_learnt_without_clients() -> (
    None
):
    layout = hetero.segment_layout("sc", [2, 2], [2, 4], 4)
    whole = hetero.round_rates(layout, 0, num_trials=3)
    assert whole.levels == ((ONE, 3),)
    assert (whole.lonely.count, whole.mean_summed) == (0, 4.0)
    empty = hetero.round_rates(layout, 1, num_trials=3)
    assert empty.no_sum.rate == 1.0
    assert (empty.below_plan, empty.least_level, empty.tolerated) == (None, None, ())
    assert math.isnan(empty.mean_summed)


def test_chunks_do_not_change_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from mrsa_jax.hetero import _rates

    layout = hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], 6)
    whole = hetero.round_rates(layout, 0.1, num_trials=50)
    monkeypatch.setattr(_rates, "_IN_FLIGHT", 7 * 6 * (len(layout.blocks) + 5))
    assert hetero.round_rates(layout, 0.1, num_trials=50) == whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step_dropout_rate": 1.5}, "`step_dropout_rate` must lie in"),
        (
            {"step_dropout_rate": [0.1, 0.2]},
            "`step_dropout_rate` must be one rate or 4",
        ),
        ({"thresholds": 0}, "`thresholds` must"),
        ({"num_trials": 0}, "`num_trials` must lie in"),
        ({"trim": 0.5}, "`trim` must lie in"),
    ],
)
def test_an_argument_out_of_range_is_named(arguments: Any, words: str) -> None:
    layout = hetero.segment_layout("sc", [2, 2], [2, 4], 4)
    usual = {"layout": layout, "step_dropout_rate": 0.1}
    with pytest.raises(mj.ConfigurationError, match=words):
        hetero.round_rates(**usual | arguments)


@pytest.mark.parametrize("groups", [[], [0, 0], [-1], [2], [0.5]])
def test_groups_that_are_not_of_the_matrix_are_refused(groups: Any) -> None:
    with pytest.raises(mj.ConfigurationError, match="`groups` must"):
        hetero.privacy_report(hetero.segment_matrix("sc", 2), groups=groups)
