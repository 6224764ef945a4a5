"""What mates of unlike drift hide of each other.

Spectra against matrices, and the exact share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import mrsa_jax as mj
from mrsa_jax.privacy import hidden_among, hidden_among_mates


def kernel(rho: float, share: float, rounds: int) -> np.ndarray:
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    return np.where(lags == 0, 1.0, share * rho**lags)


def shares(
    P: np.ndarray, kernels: list[np.ndarray], variances: np.ndarray
) -> np.ndarray:
    """Return h[r, i] by its definition, each client with its own kernel."""
    M = sum(
        v * np.outer(p, p) * R
        for p, R, v in zip(P.T.astype(float), kernels, variances, strict=True)
    )
    found = np.zeros(P.shape)
    for i, (p, R) in enumerate(zip(P.T.astype(float), kernels, strict=True)):
        c = p[:, None] * R
        found[:, i] = variances[i] * np.einsum("sr,sr->r", c, np.linalg.pinv(M) @ c)
    return np.where(P != 0, found, 0)


def test_published_examples() -> None:
    """Blocks of 4 alone.

    The bounds that were derived, and what 200 rounds tell, below them.
    """
    P = np.ones((200, 4), np.int64)
    for rho, share, told, cap in (
        ([0.988, 0.95, 0.95, 0.95], [0.43, 0.3, 0.3, 0.3], 0.3119, 0.6587),
        ([0.99, 0.98, 0.98, 0.98], [0.6, 0.4, 0.4, 0.4], 0.2909, 0.4983),
    ):
        kernels = [kernel(*own, 200) for own in zip(rho, share, strict=True)]
        assert shares(P, kernels, np.ones(4))[:, 0].max() == pytest.approx(
            told, abs=5e-5
        )
        found = hidden_among_mates(P, memory=rho, share=share)
        assert 1 / found[0] == pytest.approx(cap, abs=5e-5)


def test_known_shares_of_unequal_variances_and_of_unlike_memories() -> None:
    """Two answers by hand.

    Variances 1 to 4 at memory 1/2, and a constant mate of a fresh one.
    """
    P = np.asarray([[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]])
    variance = np.arange(1, 5)
    told = shares(P, [kernel(0.5, 1.0, 3)] * 4, variance)
    expected = [
        [989 / 5436, 989 / 2718, 989 / 1812, 0],
        [233 / 1359, 466 / 1359, 0, 96 / 151],
        [0, 0, 221 / 453, 93 / 151],
    ]
    np.testing.assert_allclose(told, expected, rtol=1e-12)
    found = hidden_among_mates(P, memory=0.5, variance=variance)
    # the first two are mates: v_i of 1 + 2
    assert found.tolist() == pytest.approx([3, 1.5, 1, 1])
    assert (told.max(axis=0) <= 1 / found).all()
    for rounds in (2, 3):  # t / (t + 1) of both, whom equal columns do not protect
        told = shares(
            np.ones((rounds, 2)),
            [np.ones((rounds, rounds)), np.eye(rounds)],
            np.ones(2),
        )
        np.testing.assert_allclose(told, rounds / (rounds + 1), rtol=1e-12)


def test_it_is_the_least_ratio_of_long_histories() -> None:
    rng, rounds = np.random.default_rng(0), 120
    for _ in range(6):
        rho, share = rng.random(2) * 0.9, rng.random(2)
        matrices = [kernel(*own, rounds) for own in zip(rho, share, strict=True)]
        least = scipy.linalg.eigh(matrices[1], matrices[0], subset_by_index=[0, 0])[0][
            0
        ]
        found = hidden_among_mates([[1, 1]], memory=rho, share=share)[0] - 1
        assert found <= least * (1 + 1e-9)
        assert found == pytest.approx(least, rel=0.02)


def test_no_linear_estimate_tells_more() -> None:
    """Weights, variances, strangers.

    The exact share of each update stays within the bound.
    """
    rng = np.random.default_rng(1)
    for _ in range(20):
        blocks = (rng.random((12, 3)) < 0.6).astype(np.int64)
        P = (
            np.repeat(blocks, 3, axis=1)
            * rng.integers(1, 4, 9)
            * rng.choice([-1, 1], 9)
        )
        rho, share, variance = rng.random(9), rng.random(9), rng.random(9) + 0.1
        kernels = [kernel(*own, 12) for own in zip(rho, share, strict=True)]
        found = hidden_among_mates(P, memory=rho, share=share, variance=variance)
        assert (found >= 1).all()
        known = shares(P, kernels, variance).max(axis=0)
        assert (known <= (1 / found) * (1 + 1e-9)).all()


def test_mates_who_drift_alike_are_t() -> None:
    P = np.repeat(np.eye(2, dtype=np.int64), [3, 2], axis=1)
    assert hidden_among_mates(P, memory=0.999999).tolist() == [3, 3, 3, 2, 2]
    assert hidden_among_mates(P, memory=0.5, coalition=[0]).tolist()[1:] == [2, 2, 2, 2]
    weighted = hidden_among_mates([[1, 2, 0], [2, 4, 1]], memory=0.5)
    assert weighted.tolist() == [5, 1.25, 1]
    unknown = hidden_among_mates([[1, 1, 0]], memory=[0.5, np.nan, 0.1])
    np.testing.assert_array_equal(unknown, [1, np.nan, np.inf])
    apart = hidden_among(
        np.ones((2, 2), np.int64), memory=np.asarray([[1, 0.5], [0.5, 1]])
    )
    assert (np.asarray(apart) >= 2 - 1e-9).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": 1.0}, "`memory` must lie in"),
        ({"memory": [0.5]}, "`memory` must lie in"),
        ({"memory": 0.5, "share": -0.1}, "`share` must lie in"),
        ({"memory": 0.5, "variance": 0}, "`variance` must be positive"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        hidden_among_mates([[1, 1]], **settings)
