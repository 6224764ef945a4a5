"""Hidden among in weighted blocks: the closed form against general computations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import hidden_among, hidden_among_mates, hidden_in_blocks
from mrsa_watch._base.errors import ConfigurationError


def test_a_block_that_moves_alone_is_as_the_general_computation() -> None:
    rng = np.random.default_rng(61)
    for size in (1, 2, 3, 7, 12):
        weights = rng.integers(1, 400, size)
        expected = hidden_among(weights[None].repeat(3, axis=0))
        np.testing.assert_allclose(hidden_in_blocks(weights), expected, rtol=1e-12)
        # the formula in rationals
        total = sum(int(w) ** 2 for w in weights)
        exact = [float(Fraction(total, int(w) ** 2)) for w in weights]
        np.testing.assert_array_equal(hidden_in_blocks(weights), exact)


def test_blocks_that_can_be_told_apart_are_as_the_general_computation() -> None:
    weights = np.array([3, 5, 2, 7, 1, 1, 9, 4, 6, 2, 2, 8])
    blocks = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    family = mj.selection.enumerate_family(12, 6, 3).astype(np.int64)
    closed = hidden_in_blocks(weights, blocks)
    np.testing.assert_allclose(hidden_among(family * weights), closed, rtol=1e-12)
    # before all sums are known no client is hidden worse
    assert (hidden_among(family[:2] * weights) >= closed * (1 - 1e-12)).all()
    mates = hidden_among_mates(family * weights, memory=0.5)
    np.testing.assert_allclose(mates, closed, rtol=1e-12)
    assert closed.min() < 3 < closed.max()
    order = np.random.default_rng(0).permutation(12)
    mixed = hidden_in_blocks(weights[order], blocks[order] - 7)
    np.testing.assert_array_equal(mixed, closed[order])


def test_ends() -> None:
    assert hidden_in_blocks([2, 0, -2]).tolist() == [2.0, np.inf, 2.0]
    assert hidden_in_blocks([True, True]).tolist() == [2.0, 2.0]
    assert hidden_in_blocks([0.1, 0.1, 0.1]).tolist() == [3.0, 3.0, 3.0]
    large = hidden_in_blocks([10**400, 10**400, Fraction(1, 3)])
    assert large[:2].tolist() == [2.0, 2.0]
    assert np.isfinite(large[2])
    assert large[2] > 1e300
    # squares that no float holds
    assert hidden_in_blocks([1e300, 1e300]).tolist() == [2.0, 2.0]
    small = hidden_in_blocks([1e-200, 1.0])
    assert np.isfinite(small).all()


@pytest.mark.parametrize(
    ("weights", "blocks", "name"),
    [
        ([], None, "weights"),
        ([[1, 2]], None, "weights"),
        ([1.0, np.nan], None, "weights"),
        ([1.0, np.inf], None, "weights"),
        (["a", "b"], None, "weights"),
        ([1, None], None, "weights"),
        ([1, 2], [0], "blocks"),
        ([1, 2], [0.0, 1.0], "blocks"),
        ([1, 2], 0, "blocks"),
    ],
)
def test_wrong_arguments_are_refused(weights: Any, blocks: Any, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}` must"):
        hidden_in_blocks(weights, blocks)
