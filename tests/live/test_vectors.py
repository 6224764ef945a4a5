"""Residues as arrays against Python's integers, and what stands in for loops against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mrsa_watch import _vectors
from mrsa_watch._base.primes import draw_wide_primes

WORD = 1 << 64


@pytest.fixture(scope="module")
def field() -> tuple[int, np.uint64, np.uint64, np.uint64]:
    (prime,) = draw_wide_primes(1)
    return (
        prime,
        np.uint64(WORD % prime),
        np.uint64(prime),
        np.uint64(pow(prime, -1, WORD)),
    )


def _drawn(prime: int, *shape: int) -> Any:
    """Return residues, the least and the largest among them."""
    found = np.random.default_rng(shape).integers(0, prime, shape, np.uint64)
    found.flat[:2] = 0, prime - 1
    return found


def test_arithmetic_is_that_of_integers(field: Any) -> None:
    prime, one, *own = field
    a, b = _drawn(prime, 40), _drawn(prime, 1, 40)[0, ::-1]
    back = pow(WORD, -1, prime)
    expected = [int(x) * int(y) * back % prime for x, y in zip(a, b, strict=True)]
    assert _vectors.times(a, b, *own).tolist() == expected
    summed = [(int(x) + int(y)) % prime for x, y in zip(a, b, strict=True)]
    assert _vectors.plus(a, b, own[0]).tolist() == summed
    assert _vectors.plus(a, _vectors.negative(a, own[0]), own[0]).tolist() == [0] * 40
    table = _drawn(prime, 3, 500)
    table[2] = prime - 1  # halves at their largest
    expected = [sum(map(int, row)) % prime for row in table]
    assert _vectors.total(table, 1, *own).tolist() == expected
    units = [_vectors.reciprocal(x, own[0]) for x in a[1:]]
    assert (_vectors.times(a[1:], np.asarray(units), *own) == one).all()


@pytest.mark.long
def test_what_stands_in_for_loops_does_what_they_do(field: Any) -> None:
    pytest.importorskip("numba")
    from mrsa_watch import _loops

    prime, one, *own = field
    for count in (1, 2, 5, 8, 33):
        top, bottom = _drawn(prime, 2, count)
        bottom[::3] = 0
        ours, theirs = (
            each.ratios(top, bottom, one, *own) for each in (_vectors, _loops)
        )
        assert ours.tolist() == theirs.tolist()
    solver = [_drawn(prime, 6, 6) for _ in range(2)]
    row, by_column = _drawn(prime, 2, 4)
    for each, at in zip((_vectors, _loops), solver, strict=True):
        each.grow(at, 4, row, by_column, np.uint64(7), *own)
    np.testing.assert_array_equal(*solver)
    vectors, classes = _drawn(prime, 3, 90), np.arange(90) % 7
    vectors[2] = prime - 1
    sums = [each.class_sums(vectors, classes, 9, *own) for each in (_vectors, _loops)]
    np.testing.assert_array_equal(*sums)


def test_class_sums_are_those_of_integers(field: Any) -> None:
    prime, _, *own = field
    classes = np.random.default_rng(0).integers(0, 7, 60)
    vectors = _drawn(prime, 3, 60)
    expected = [
        [sum(map(int, row[classes == k])) % prime for k in range(9)] for row in vectors
    ]
    assert _vectors.class_sums(vectors, classes, 9, *own).tolist() == expected


def _lightest(keys: Any, is_alone: Any, sizes: Any) -> tuple[int, int, int]:
    """Return the weights of `lightest`, by one group after another."""
    groups: dict[Any, list[int]] = {}
    singles = []
    columns = zip(*keys.tolist(), is_alone.tolist(), sizes.tolist(), strict=True)
    for first, second, alone, size in columns:
        if size and alone:
            singles.append(size)
        elif size:
            groups.setdefault((first, second), []).append(size)
    heads = sorted(map(min, groups.values()))[:3]
    pairs = [sum(sorted(group)[:2]) for group in groups.values() if len(group) > 1]
    return (
        min(singles, default=-1),
        min(pairs, default=-1),
        sum(heads) if len(heads) == 3 else -1,
    )


def test_light_combinations_are_those_of_all_groups() -> None:
    rng = np.random.default_rng(1)
    for kinds in (1, 2, 4, 30):
        for count in (1, 2, 3, 40):
            keys = rng.integers(0, kinds, (2, count)).astype(np.uint64)
            sizes = rng.integers(0, 4, count)
            is_alone = rng.random(count) < 0.1
            expected = _lightest(keys, is_alone, sizes)
            assert _vectors.lightest(*keys, is_alone, sizes) == expected


@pytest.mark.long("False")
@pytest.mark.parametrize("is_weighted", [False, True])
def test_floats_are_those_of_loops(is_weighted: bool) -> None:
    pytest.importorskip("numba")
    from mrsa_watch import _loops

    rng = np.random.default_rng(2)
    starts = np.asarray([0, 5, 6, 13])
    clients = np.concatenate([rng.permutation(20)[:n] for n in (5, 1, 7)]).astype(
        np.int32
    )
    held = np.asarray([0, -1, 5] if is_weighted else [-1] * 3)
    values, vectors, factors = rng.random(12), rng.random((4, 20)), rng.random((3, 4))
    rows = starts, held, clients, values
    lower = np.tril(rng.random((3, 3))) + np.eye(3)
    results = []
    for each in (_vectors, _loops):
        changed = vectors.copy()
        each.spread(*rows, factors, changed)
        results.append((each.inner(*rows, 3, vectors), changed))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for name in ("solve_lower", "solve_upper"):
        solved = [factors.copy(), factors.copy()]
        for each, right in zip((_vectors, _loops), solved, strict=True):
            getattr(each, name)(lower, right)
        np.testing.assert_allclose(*solved, rtol=1e-12)
        matrix = lower if name == "solve_lower" else lower.T
        np.testing.assert_allclose(matrix @ solved[0], factors, rtol=1e-9)
