"""Known others against Google's accountant, which composes privacy losses and knows no mu."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from mrsa_jax.privacy import distinguishability

GRID = 1e-4  # of the accountant's privacy losses, which it rounds up


def composed(deviations):
    """Return the privacy loss of one Gaussian mechanism of sensitivity 1 after the other."""
    parts = [
        privacy_loss_distribution.from_gaussian_mechanism(
            float(own), value_discretization_interval=GRID
        )
        for own in deviations
    ]
    return functools.reduce(lambda one, other: one.compose(other), parts)


@pytest.mark.long("column0-variances0-1.0")
@pytest.mark.parametrize(
    ("column", "variances", "shift"),
    [
        ([1, 1, 1, 1, 1], [4.0] * 5, 1.0),
        ([1, 0, 1, 0, 1, 1], [1.0, 2.0, 9.0, 0.5, 16.0, 25.0], 0.5),
        ([3, 0, -1], [30.0, 1.0, 2.0], 1.0),
        ([1], [100.0], 0.3),
    ],
)
def test_known_others_are_composed_gaussian_mechanisms(column, variances, shift):
    # the others are whatever they are: they are known
    history = np.stack([column, np.ones_like(column)], axis=1)
    found = distinguishability(history, shift, None, variances)
    took_part = np.flatnonzero(column)
    deviations = [variances[r] ** 0.5 / abs(column[r]) / shift for r in took_part]
    theirs = composed(deviations)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        own = found.delta(epsilon)[0]
        assert own <= theirs.get_delta_for_epsilon(epsilon) * (1 + 1e-6) + 1e-12
        np.testing.assert_allclose(
            own, theirs.get_delta_for_epsilon(epsilon), rtol=2e-3, atol=1e-9
        )
    for delta in (1e-2, 1e-5, 1e-8):
        own = found.epsilon(delta)[0]
        np.testing.assert_allclose(
            own, theirs.get_epsilon_for_delta(delta), rtol=2e-3, atol=1e-3
        )
