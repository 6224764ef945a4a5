"""Mean clients per round of blocks whose clients stay away for long, against the exact law."""

from __future__ import annotations

import numpy as np
import pytest

import mrsa_jax as mj

N, K, T, J, P, TRIALS = 60, 12, 6, 100, 0.3, 400


def _one_more(law: np.ndarray, axis: int) -> np.ndarray:
    """Return the law after one more whole block; the last place stands for K/T or more."""
    moved = np.roll(law, 1, axis)
    first: list[int | slice] = [slice(None)] * 3
    last = list(first)
    first[axis], last[axis] = 0, -1
    moved[tuple(last)] += law[tuple(last)]
    moved[tuple(first)] = 0.0
    return moved


def _exact_deviation(absence: float) -> float:
    """Return the standard deviation of C over J rounds.

    From the joint law of how many blocks are whole in two rounds, d apart: a client's
    states in them are correlated by r^d.
    """
    q, r, most = 1 - P, 1 - 1 / absence - P / ((1 - P) * absence), K // T
    d = np.arange(1, J)
    one, both = q**T, ((q * (q + P * r**d)) ** T)[:, None, None]
    law = np.zeros((len(d), most + 1, most + 1))
    law[:, 0, 0] = 1.0
    for _ in range(N // T):
        now = _one_more(law, 1)
        law = (
            law * (1 - 2 * one + both)
            + (now + _one_more(law, 2)) * (one - both)
            + _one_more(now, 2) * both
        )
    works = mj.selection.expected_cardinality(N, K, T, P) / K
    covariance = law[:, -1, -1] - works**2
    total = J * works * (1 - works) + 2 * ((J - d) * covariance).sum()
    return K * float(np.sqrt(total)) / J


def test_independent_rounds_have_no_covariance() -> None:
    works = mj.selection.expected_cardinality(N, K, T, P) / K
    assert _exact_deviation(1 / (1 - P)) == pytest.approx(
        K * np.sqrt(works * (1 - works) / J)
    )


@pytest.mark.parametrize("absence", [5.0, 60.0])
def test_the_mean_stays_and_histories_differ_as_much_as_they_should(
    absence: float,
) -> None:
    found = mj.selection.rollout_metrics(
        1,
        mj.selection.batch_partitioning(N, K, T),
        mj.availability.markov(P, absence),
        J,
        TRIALS,
    )
    means = np.asarray(found.aggregation_cardinality[:, -1], np.float64)
    exact = _exact_deviation(absence)
    expected = mj.selection.expected_cardinality(N, K, T, P)
    assert abs(means.mean() - expected) < 5 * exact / np.sqrt(TRIALS)
    assert abs(means.var() / exact**2 - 1) < 6 * np.sqrt(2 / TRIALS)
    assert exact > 1.5 * _exact_deviation(1 / (1 - P))
