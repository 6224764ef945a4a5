"""What each scheme leaks under each availability model.

T kept by blocks alone, and always.
"""

from __future__ import annotations

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.availability import cyclic, diurnal, independent, markov, replay
from mrsa_jax.selection import (
    Selector,
    batch_partitioning,
    minimum_separation,
    poisson,
    power_of_choice,
    rollout_trials,
    uniform,
)

N, K, T, ROUNDS = 24, 6, 3, 150
AVAILABILITY = {
    "independent": lambda: independent(0.1),
    "markov": lambda: markov(0.1, 12.0),
    "cyclic": lambda: cyclic([0.0, 0.3]),
    "diurnal": lambda: diurnal(0.2, 0.2, 12, np.arange(N) // 6 * 3),
    "replay": lambda: replay(
        np.random.default_rng(1).random((40, N)) < 0.9, start="random"
    ),
}
WITH_BLOCKS = {
    "batch_partitioning": lambda: batch_partitioning(N, K, T),
    "separated": lambda: minimum_separation(batch_partitioning(N, K, T), 2),
}
WITHOUT = {
    "power_of_choice": lambda: power_of_choice(N, K, 12),
    "separated": lambda: minimum_separation(uniform(N, K), 3),
    "poisson": lambda: poisson(N, np.linspace(0.1, 0.4, N)),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("separated", "markov"),
        *(("batch_partitioning", model) for model in AVAILABILITY),
    ],
)
def test_blocks_keep_the_target(name: str, model: str) -> None:
    """Whatever the availability.

    Columns are equal within blocks, and no client is exposed.
    """
    history = rollout_trials(1, WITH_BLOCKS[name](), AVAILABILITY[model](), ROUNDS, 2)
    assert history.any(axis=(1, 2)).all()
    for trial in np.asarray(history):
        strong = mj.privacy.strong_privacy(trial)
        assert strong is not None
        assert strong % T == 0
        assert (mj.privacy.first_exposure(trial) == -1).all()


@pytest.mark.long
@pytest.mark.parametrize("name", WITHOUT)
def test_schemes_without_blocks_expose_everybody(name: str) -> None:
    """After several times N rounds the server has every client's update."""
    selector: Selector = WITHOUT[name]()
    history = np.asarray(
        rollout_trials(2, selector, AVAILABILITY["markov"](), ROUNDS, 1)
    )[0]
    first = mj.privacy.first_exposure(history)
    assert (first >= 0).all()
    assert first.max() >= N - 1  # full rank needs N sums
    assert mj.privacy.strong_privacy(history) == 1


@pytest.mark.long
def test_long_absences_delay_exposure() -> None:
    """The same dropout rate, but away for 30 rounds at a time.

    Fewer distinct sums, later leaks.
    Everybody available joins; compared is the mean round in which the last client is
    exposed.
    """
    last = []
    for mean_absence in (1.25, 30.0):
        model = markov(0.2, mean_absence)
        trials = np.asarray(rollout_trials(3, poisson(12, 1.0), model, 200, 20))
        first = np.array([mj.privacy.first_exposure(trial) for trial in trials])
        last.append(np.where(first < 0, 200, first).max(axis=1).mean())
    assert last[0] * 2 < last[1]


def test_a_short_trace_bounds_what_leaks() -> None:
    """Everybody available joins, L recorded rounds: never more than L independent sums."""
    trace = np.random.default_rng(2).random((5, 12)) < 0.7
    history = np.asarray(rollout_trials(0, poisson(12, 1.0), replay(trace), 60, 1))[0]
    assert np.linalg.matrix_rank(history.astype(float)) == np.linalg.matrix_rank(
        trace.astype(float)
    )
    assert (mj.privacy.first_exposure(history) < 5).all()
