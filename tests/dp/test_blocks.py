"""Sums of segments in the ledger.

Against all that a server sees, block by block, draw by draw.
"""

from __future__ import annotations

import functools
import itertools
import math

import jax
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, hetero
from mrsa_jax.dp._mechanism import BlockMechanism

_layout = functools.cache(
    lambda: hetero.segment_layout("mc", [2, 2, 3], [3, 5, 9], dim=3, modulus_bits=12)
)
_groups = functools.cache(
    lambda: hetero.segment_layout("mc", [3, 3, 4], [3, 5, 9], dim=3)
)
SENT = np.ones((3, 10), bool)
# client 3 is then alone where its group is by itself, and not summed
SENT[1, [4, 5]] = False
SENT[2, [2, 9]] = False
CLIP, Z, K = 0.5, 1.5, 10


def sums_of(history: hetero.SegmentHistory, when: int) -> list[tuple[int, np.ndarray]]:
    """Return (segment, who) of each sum of a round."""
    return [
        (segment, rows[place])
        for segment, (rows, rounds) in enumerate(
            zip(history.participation, history.rounds, strict=True)
        )
        for place in np.flatnonzero(rounds == when)
    ]


def told_apart(shift: np.ndarray, covariance: np.ndarray) -> float:
    """Return mu from densities.

    At the mean of the second, log of their ratio is mu^2 / 2.
    """
    logs = [
        stats.multivariate_normal(mean, covariance).logpdf(shift)
        for mean in (shift, 0 * shift)
    ]
    return math.sqrt(2 * (logs[0] - logs[1]))


def seen(
    history: hetero.SegmentHistory, client: int, shares: int | None, colluding=()
) -> float:
    """Return the most that a client's clipped updates of all rounds are told apart by.

    Each sum is seen in the direction in which it is moved; each client draws its own
    noise.
    """
    random, square = np.random.default_rng(client), 0.0
    for when in range(len(history.plain)):
        sums = sums_of(history, when)
        variance = [
            (Z * CLIP) ** 2
            * (
                1
                if shares is None
                else len(set(np.flatnonzero(who)) - {*colluding}) / shares
            )
            for _, who in sums
        ]
        mine = [place for place, (_, who) in enumerate(sums) if who[client]]
        if not mine:
            continue
        assert len(mine) == history.num_segments
        moved = [np.eye(len(mine))[place] for place in range(len(mine))]
        moved += list(np.abs(random.normal(size=(20, len(mine)))))
        found = []
        for parts in moved:
            shift = np.zeros(len(sums))
            shift[mine] = CLIP * parts / np.linalg.norm(parts)
            found.append(told_apart(shift, np.diag(variance)))
        assert max(found[: len(mine)]) >= max(found) - 1e-9  # nothing between is worse
        square += max(found) ** 2
    return math.sqrt(square)


@pytest.mark.long
def test_a_round_counts_by_its_sum_with_the_least_noise() -> None:
    history = hetero.segment_participation(_groups(), SENT)
    assert [len(sums_of(history, when)) for when in range(3)] == [6, 5, 6]
    whole = hetero.segment_participation(_groups(), SENT | True)
    for colluding in ((), (1,), (0, 3)):
        told = mj.dp.ledger(history, Z, planned=K, colluding=colluding)
        others = [client for client in range(10) if client not in colluding]
        wanted = [seen(history, client, K, colluding) for client in others]
        np.testing.assert_allclose(told.mu[others], wanted, rtol=1e-9)
        assert np.isnan(told.mu[list(colluding)]).all()
        assert told.trajectory().shape == (3, 10)
        np.testing.assert_array_equal(told.trajectory()[-1], told.mu)
        if not colluding:
            # as planned: the same sums with all who are laid out in them
            plan = mj.dp.ledger(whole, Z, planned=K)
            assert plan.mu.tolist() == plan.planned_mu.tolist()
            rounds = np.stack(
                [rows.any(axis=0) for rows in told.trajectory()[:, None] > 0]
            )
            first = mj.dp.ledger(whole.until(1), Z, planned=K).mu
            took = np.array(
                [
                    any(who[i] for _, who in sums_of(history, when))
                    for when in range(3)
                    for i in range(10)
                ]
            ).reshape(3, 10)
            assert rounds[-1].tolist() == took.any(axis=0).tolist()
            np.testing.assert_allclose(
                told.planned_mu, first * np.sqrt(took.sum(axis=0))
            )
            assert told.short == 1  # of a group that is gone no noise is missing
            assert "1 of 3 rounds have a block with less noise" in told.notes[0]
        assert (told.planned_mu[others] <= told.mu[others] + 1e-12).all()
    once = mj.dp.ledger(history, Z)
    np.testing.assert_allclose(
        once.mu, [seen(history, client, None) for client in range(10)]
    )


def logs_of(noise: mj.dp.LatticeNoise, count: int) -> np.ndarray:
    reach = int(34 * math.sqrt(noise.variance))
    one = noise.mass(np.arange(-reach, reach + 1)).astype(np.longdouble)
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    return np.log(total[middle - reach : middle + reach + 1])


def renyi(logs: np.ndarray, shift: int, order: float) -> float:
    if shift == 0:
        return 0.0
    terms = order * logs[:-shift] + (1 - order) * logs[shift:]
    return float(np.log(np.exp(terms - terms.max()).sum()) + terms.max()) / (order - 1)


@pytest.mark.parametrize("kind", ["skellam", "discrete_gaussian"])
def test_divergences_of_all_shifts_are_within_the_bound(kind: str) -> None:
    """A coordinate a segment.

    Every change of codes that the norm allows, in laws by masses.
    """
    noise = getattr(mj.dp, kind)(0.35)
    average = hetero.segment_average(
        _layout(), (-1.0, 1.0), noise=noise, clip_norm=CLIP
    )
    made = BlockMechanism.of(average)
    orders = np.array([1.1, 1.5, 2.0, 3.0, 6.0])
    history = hetero.segment_participation(_layout(), num_rounds=1)
    sizes = {
        (s, i): int(who.sum())
        for s, who in sums_of(history, 0)
        for i in np.flatnonzero(who)
    }
    tightest = np.zeros(len(orders))
    for client in (0, 2, 4):
        steps = 2.0 / (_layout().levels_of()[:, client] - 1.0)
        counts = [sizes[segment, client] for segment in range(3)]
        logs = [
            logs_of(noise.on(float(step)), count)
            for step, count in zip(steps, counts, strict=True)
        ]
        bound = made.rdp(orders, [min(counts)])[0]
        most = (average.sensitivity / steps).astype(int)
        single = [
            [[renyi(law, shift, order) for order in orders] for shift in range(top + 1)]
            for law, top in zip(logs, most, strict=True)
        ]
        for shift in itertools.product(*(range(top + 1) for top in most)):
            if np.linalg.norm(steps * shift) <= average.sensitivity:
                spent = np.sum(
                    [one[at] for one, at in zip(single, shift, strict=True)], axis=0
                )
                assert (spent <= bound * (1 + 1e-9)).all()
                tightest = np.maximum(tightest, spent / bound)
    assert (tightest[2:] > 0.3).all()


def test_what_is_proven_of_fine_lattices_is_little_more_than_the_gaussian_s() -> None:
    layout = hetero.segment_layout(
        "sc", [2, 2], [2**12, 2**14], dim=650, modulus_bits=22
    )
    average = hetero.segment_average(
        layout, (-0.5, 0.5), noise=mj.dp.skellam((Z * CLIP) ** 2 / 4), clip_norm=CLIP
    )
    history = hetero.segment_participation(layout, num_rounds=20)
    told = mj.dp.ledger(history, Z * CLIP / average.sensitivity, planned=4)
    proven = mj.dp.ledger(history, mechanism=average)
    np.testing.assert_allclose(proven.mu, told.mu, rtol=1e-6)
    np.testing.assert_allclose(proven.planned_mu, told.planned_mu, rtol=1e-6)
    exact, found = told.epsilon(1e-5), proven.epsilon(1e-5)
    assert (exact < found).all()
    assert (found < 1.1 * exact).all()
    # SC at two groups sums both segments over everybody: the same as without segments
    whole = mj.dp.ledger(
        np.ones((20, 4), bool), Z * CLIP / average.sensitivity, planned=4
    )
    np.testing.assert_allclose(told.mu, whole.mu, rtol=1e-12)


def test_refuses_what_is_no_account() -> None:
    history = hetero.segment_participation(_layout(), num_rounds=2)
    noise = mj.dp.skellam(0.35)
    plain = hetero.segment_average(_layout(), (-1.0, 1.0), noise=noise)
    ring = mj.dp.ring_mechanism(
        "skellam", 1.0, 1.0, dim=3, num_clients=7, modulus_bits=14
    )
    thin = hetero.segment_average(
        _layout(), (-1.0, 1.0), noise=mj.dp.discrete_gaussian(0.2), clip_norm=CLIP
    )
    for given, message in (
        (
            {"mechanism": plain},
            "`mechanism` must be a `hetero.segment_average` with `noise` and",
        ),
        (
            {"mechanism": ring},
            "`mechanism` must be a `hetero.segment_average` with `noise` and",
        ),
        (
            {"mechanism": thin},
            "`levels` must leave a client's noise 0.5 steps or more.*got 3 and",
        ),
        (
            {"noise_multiplier": Z, "strategy": np.eye(2)},
            "`strategy` must not be set with segm",
        ),
        (
            {"noise_multiplier": Z, "colluding": range(7)},
            "`colluding` must leave a client out",
        ),
        (
            {"noise_multiplier": Z, "colluding": [7]},
            "`colluding` must hold indices below 7",
        ),
        ({}, "`noise_multiplier` must be given"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            mj.dp.ledger(history, **given)


def test_a_law_with_room_for_more_columns_is_the_same_law() -> None:
    """Laws of different deviations share a program, and draw what they would alone."""
    tables = [mj.dp.skellam(variance).table for variance in (1000.0, 4000.0)]
    assert tables[0].columns.shape == tables[1].columns.shape == (2**12, 2)
    assert [int(table.mask) for table in tables] == [2**9 - 1, 2**10 - 1]
    key = jax.random.key(0)
    draws = mj.dp.skellam(4000.0).sample(key, (4000,))
    assert abs(float(np.var(np.asarray(draws))) / 4000 - 1) < 5 * math.sqrt(2 / 4000)
