"""Where T changes at N = 120, K = 12 with dropout rates drawn from .1 to .5.

The ranges are those of an independent prototype's survey of 27 to 31 histories a scheme
(its table of changes by rank); the tail law T = min(K, N - rank + 1) is the generic
one.
"""

from __future__ import annotations

import numpy as np
import pytest

import mrsa_jax as mj

CLIENTS, COHORT = 120, 12


def history(selector, seed, rounds):
    rates = np.random.default_rng(seed).choice([0.1, 0.2, 0.3, 0.4, 0.5], CLIENTS)
    online = mj.availability.independent(rates.astype(np.float32))
    return np.asarray(mj.selection.rollout(seed, selector, online, rounds))


def changes(found):
    """Return (T, rank) at the first round and wherever T changes."""
    seen = found.rank > 0
    upper, rank = found.upper[seen], found.rank[seen]
    at = np.flatnonzero(np.r_[True, np.diff(upper) != 0])
    return [(int(upper[j]), int(rank[j])) for j in at]


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "values", "ranks"),
    [
        (12, {12}, {12: (1, 1)}),
        pytest.param(6, {12, 6}, {6: (4, 20)}, marks=pytest.mark.slow),
        pytest.param(4, {12, 8, 4}, {4: (19, 30)}, marks=pytest.mark.slow),
        (3, {12, 9, 6, 3}, {3: (37, 40)}),
    ],
)
def test_blocks_are_exact_in_every_round(target, values, ranks) -> None:
    for seed in range(6):
        selector = mj.selection.batch_partitioning(CLIENTS, COHORT, target)
        found = mj.privacy.weak_privacy_trajectory(history(selector, seed, 150))
        assert found.certified.all()
        steps = changes(found)
        assert {value for value, _ in steps} <= values
        assert steps[0][0] == 12
        assert steps[-1][0] == target
        first = dict(steps)
        for value, (low, high) in ranks.items():
            assert low <= first[value] <= high
        bounds = mj.privacy.weak_privacy_trajectory(
            history(selector, seed, 150), "bounds"
        )
        np.testing.assert_array_equal(bounds.lower, found.lower)
        np.testing.assert_array_equal(bounds.upper, found.upper)


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        pytest.param(6, {6: (24, 6)}, marks=pytest.mark.slow),
        pytest.param(4, {8: (11, 4), 4: (29, 2)}, marks=pytest.mark.slow),
        (3, {3: (40, 1)}),
    ],
)
def test_median_rounds_of_change_are_those_measured(target, rounds) -> None:
    """Medians of 30 histories against those of the survey, within the survey's scatter."""
    selector = mj.selection.batch_partitioning(CLIENTS, COHORT, target)
    histories = np.stack([history(selector, seed, 100) for seed in range(30)])
    found = mj.privacy.weak_privacy_trajectory(histories, "bounds")
    assert (found.lower == found.upper).all()
    for value, (median, scatter) in rounds.items():
        first = [np.flatnonzero(upper == value)[0] + 1 for upper in found.upper]
        assert abs(np.median(first) - median) <= scatter


@pytest.mark.long
@pytest.mark.parametrize("name", ["uniform", "weighted"])
def test_the_tail_of_random_selection_is_exact(name) -> None:
    selector = getattr(mj.selection, name)(CLIENTS, COHORT)
    rows = history(selector, 1, 130)
    ranks = mj.privacy.weak_privacy_trajectory(rows[None], "bounds").rank[0]
    for rank in (116, 117, 118, 119, 120):
        rounds = int(np.flatnonzero(ranks == rank)[0]) + 1
        found = mj.privacy.weak_privacy(rows[:rounds])
        assert found.certified
        assert found.upper == CLIENTS - rank + 1
        assert len(found.exposed) == (CLIENTS if rank == CLIENTS else 0)
        total = np.array(found.witness, object) @ rows[:rounds].astype(object)
        assert np.flatnonzero(total).tolist() == list(found.support)


@pytest.mark.slow
def test_random_selection_is_exact_to_rank_96_and_from_114() -> None:
    rows = history(mj.selection.uniform(CLIENTS, COHORT), 2, 140)
    ranks = mj.privacy.weak_privacy_trajectory(rows[None], "bounds").rank[0]
    at = {
        int(rank): int(np.flatnonzero(ranks == rank)[0]) + 1
        for rank in set(ranks.tolist())
    }
    early = mj.privacy.weak_privacy_trajectory(rows[: at[96]], effort=4.0)
    assert early.certified.all()
    late = mj.privacy.weak_privacy(rows[: at[114]])
    assert late.certified
    assert late.upper == 7


@pytest.mark.slow
def test_all_ranks_are_exact_at_sixty_clients() -> None:
    for seed, name in ((0, "uniform"), (1, "weighted")):
        selector = getattr(mj.selection, name)(60, 10)
        online = mj.availability.independent(0.3)
        rows = np.asarray(mj.selection.rollout(seed, selector, online, 64))
        found = mj.privacy.weak_privacy_trajectory(rows)
        assert found.certified.all()
        generic = np.minimum(10, 60 - found.rank + 1)
        assert (found.upper <= generic).all()
        assert (found.upper < generic).any()
