"""Weighted participation: exact integer rows, and what weights do to privacy."""

from __future__ import annotations

import collections
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import flint
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import (
    first_exposure,
    integer_weights,
    strong_privacy,
    weak_privacy,
)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, math.nan]], "`weights` must hold finite real numbers; got nan"),
        (
            [[Fraction(1, 2), math.inf]],
            "`weights` must hold finite real numbers; got inf",
        ),
        ([[0.5, math.inf]], "`weights` must hold finite real numbers; got inf"),
        (
            [[Decimal("nan"), 1]],
            r"`weights` must hold finite real numbers; got Decimal\('NaN'\)",
        ),
        ([["1/2"]], "`weights` must hold finite real numbers; got dtype"),
        ([[None]], "`weights` must hold finite real numbers; got None"),
        ([[1j]], "`weights` must hold finite real numbers; got dtype"),
        ([1, 2], r"`weights` must have two axes, rounds and clients; got \(2,\)"),
        ([[1], [1, 2]], "`weights` must have two axes"),
        ([[]], r"`weights` must not be empty; got \(1, 0\)"),
    ],
)
def test_weights_that_make_no_sense(weights: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        integer_weights(weights)


@pytest.mark.smoke("weights4-wanted4")
@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ([[True, False], [True, True]], [[1, 0], [1, 1]]),
        ([[600, 0, 1200], [7, 7, 7]], [[1, 0, 2], [1, 1, 1]]),
        ([[0, 0], [4, 6]], [[0, 0], [2, 3]]),
        ([[0.0, -0.0], [-0.5, 1.5]], [[0, 0], [-1, 3]]),
        ([[Fraction(1, 2), Fraction(1, 3), 0, 1]], [[3, 2, 0, 6]]),
        ([[Decimal("0.1"), Fraction(1, 3), np.int32(2), True]], [[3, 10, 60, 30]]),
        (np.array([[2**63, 1]], np.uint64), [[2**63, 1]]),
        ([[2**70, 3 * 2**69]], [[2, 3]]),
        (np.array([[-(2**63), 2]]), [[-(2**62), 1]]),
        (np.array([[0.5, 3]], np.float16), [[1, 6]]),
        (np.array([[0.25, 2]], jnp.bfloat16), [[1, 8]]),
        ([[0.1, 1.0]], [[3602879701896397, 2**55]]),  # the double next to a tenth
    ],
)
def test_worked_rows(weights: Any, wanted: list[list[int]]) -> None:
    found = integer_weights(weights)
    assert found.tolist() == wanted
    fits = all(abs(v) < 2**63 for row in wanted for v in row)
    assert found.dtype == (np.int64 if fits else object)


def test_rows_are_multiples_without_common_factors() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        shape = (rng.integers(1, 5), rng.integers(1, 6))
        kinds = [
            rng.random(shape) * 10.0 ** rng.integers(-5, 5),
            rng.integers(-9, 9, shape),
            rng.integers(0, 4, shape) / 2.0 ** rng.integers(0, 60, shape),
        ]
        for weights in kinds:
            found = integer_weights(weights)
            for row, whole in zip(weights.tolist(), found.tolist(), strict=True):
                assert math.gcd(*whole) in (0, 1)
                for a, b in itertools.pairwise(zip(row, whole, strict=True)):
                    assert Fraction(a[0]) * b[1] == Fraction(b[0]) * a[1]
                assert all((a > 0) == (b > 0) for a, b in zip(row, whole, strict=True))
                assert all(
                    (a == 0) == (b == 0) for a, b in zip(row, whole, strict=True)
                )


def _rank(matrix: np.ndarray) -> int:
    rows = matrix.astype(object).tolist()
    return (
        flint.fmpz_mat([[int(v) for v in row] for row in rows]).rank() if rows[0] else 0
    )


def _weak_by_subsets(P: np.ndarray) -> int | None:
    """Return the size of the smallest set outside of which some combination vanishes."""
    rank, clients = _rank(P), range(P.shape[1])
    for size in clients:
        for inside in itertools.combinations(clients, size + 1):
            outside = [i for i in clients if i not in inside]
            if _rank(P[:, outside]) < rank:
                return size + 1
    return None


def _histories(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    pairs = [np.repeat(rng.random((4, 3)) < 0.5, 2, axis=1) for _ in range(count // 2)]
    return pairs + [rng.random((4, 6)) < 0.4 for _ in range(count - len(pairs))]


@pytest.mark.long
def test_sample_counts_leave_weak_privacy_and_split_classes() -> None:
    """One positive factor for each client: columns are scaled, the supports of V stay."""
    rng = np.random.default_rng(1)
    split = 0
    for P in _histories(25):
        counts = rng.choice([200, 350, 600], P.shape[1])
        weighted = integer_weights(P * counts)
        plain, scaled = (
            weak_privacy(P, effort=0.01),
            weak_privacy(weighted, effort=0.01),
        )
        assert scaled.upper == plain.upper == _weak_by_subsets(P)
        assert (scaled.lower, scaled.rank, scaled.exposed) == (
            plain.lower,
            plain.rank,
            plain.exposed,
        )
        assert (first_exposure(weighted) == first_exposure(P)).all()
        # the same combination of unscaled rows isolates the same clients
        whole = P * counts
        combination = np.array(plain.witness, dtype=object) @ whole.astype(object)
        assert tuple(np.flatnonzero(combination)) == plain.support
        classes = collections.Counter(
            (column.tobytes(), factor)
            for column, factor in zip(P.T, counts, strict=True)
            if column.any()
        )
        assert strong_privacy(weighted) == min(classes.values(), default=None)
        split += strong_privacy(weighted) != strong_privacy(P)
    assert split > 0


@pytest.mark.smoke
def test_equal_counts_change_nothing() -> None:
    for P in _histories(5):
        assert (integer_weights(P * 600) == P).all()
        assert (
            integer_weights(P / np.maximum(P.sum(axis=1, keepdims=True), 1)) == P
        ).all()


def test_factors_of_rounds_change_nothing() -> None:
    rng = np.random.default_rng(2)
    for P in _histories(10):
        scaled = P * rng.choice([0.125, 0.3, 7.0], (len(P), 1))
        assert (integer_weights(scaled) == P).all()
        assert strong_privacy(integer_weights(scaled)) == strong_privacy(P)


def test_factors_that_vary_from_round_to_round_change_everything() -> None:
    """Two rounds of the same three clients: equal sums tell nothing new, stale ones do."""
    P = np.array([[1, 1, 1], [1, 1, 1]])
    staleness = np.array([[0, 0, 0], [0, 1, 1]])
    assert (strong_privacy(P), weak_privacy(P, effort=0.01).upper) == (3, 3)
    for discount in (lambda s: Fraction(1, 1 + int(s)), lambda s: 0.5 ** int(s)):
        weights = [[discount(s) for s in row] for row in staleness]
        found = integer_weights(weights)
        assert found.tolist() == [[1, 1, 1], [2, 1, 1]]
        weak = weak_privacy(found, effort=0.01)
        assert (strong_privacy(found), weak.upper, weak.exposed) == (1, 1, (0,))


def test_a_float_third_is_not_a_third() -> None:
    """Exactness is of what the float holds: pass fractions where the rule is rational."""
    exact = integer_weights([[Fraction(1, 3), 1], [1, 3]])
    assert exact.tolist() == [[1, 3], [1, 3]]
    floats = integer_weights([[1 / 3, 1], [1, 3]])
    assert weak_privacy(exact, effort=0.01).rank == 1
    assert weak_privacy(floats, effort=0.01).rank == 2
