"""Sets of columns as single numbers, and the vectors that would be missed if one were lost."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mrsa_jax.privacy.solver import Plan, Space, _words, collapse, run

WHOLE = (np.uint64(63), np.uint64(0))  # no leading bits: all sets are of one part


def listed(columns, fixed, low, high, size, table):
    """Return the sets that `subsets` lists, as tuples, and check their sums of keys."""
    keys = np.random.default_rng(columns).integers(0, 2**62, columns, np.uint64)
    starts, items = np.array([0, columns]), np.arange(columns)
    room = np.empty(4, np.uint64), np.empty(4, np.uint64)
    sums, numbers, count, _ = _words.subsets(
        keys, low, high, fixed, size, *WHOLE, starts, items, *room, table
    )
    target = np.zeros(size, np.int64)
    found = []
    for number, total in zip(numbers[:count], sums[:count], strict=True):
        _words.unpack(number, size, table, target, 0)
        assert np.bitwise_xor.reduce(keys[target]) == total
        found.append(tuple(target.tolist()))
    return found


@pytest.mark.long
def test_a_table_that_numbers_too_many_sets_is_refused() -> None:
    with pytest.raises(
        OverflowError, match="sets of 40 of 80 columns do not fit 64 bits"
    ):
        _words.binomials(80, 40)
    with pytest.raises(OverflowError, match="no number in this table"):
        listed(9, 0, 1, 9, 4, _words.binomials(9, 3))
    with pytest.raises(OverflowError, match="no number in this table"):
        listed(9, 0, 1, 9, 3, _words.binomials(8, 3))
    empty = np.empty(4, np.uint64)
    with pytest.raises(OverflowError, match="places of 32 bits"):
        _words.insert(
            empty, empty, 1, np.empty(4, np.uint32), empty, np.uint64(62), 2**32 - 2
        )


@pytest.mark.parametrize("columns", [1, 5, 13])
def test_every_set_has_one_number_and_comes_back(columns) -> None:
    """Sets with a given smallest column, and with a given largest one."""
    table = _words.binomials(columns, columns)
    for size in range(1, columns + 1):
        above = [
            s
            for b in range(columns)
            for s in listed(columns, b, b + 1, columns, size, table)
        ]
        below = [
            s for b in range(columns) for s in listed(columns, b, 0, b, size, table)
        ]
        wanted = list(itertools.combinations(range(columns), size))
        assert sorted(above) == wanted
        assert sorted(below) == wanted


@pytest.mark.parametrize(("columns", "size"), [(34, 17), (65, 32), (300, 9), (4096, 6)])
def test_numbers_reach_as_far_as_the_table(columns, size) -> None:
    """The last sets of all, whose numbers are the largest, and random ones."""
    table = _words.binomials(columns, size)
    rng = np.random.default_rng(size)
    target = np.zeros(size, np.int64)
    sets = [np.arange(columns - size, columns), np.arange(size)]
    sets += [np.sort(rng.choice(columns, size, replace=False)) for _ in range(200)]
    for columns_of in sets:
        number = sum(math.comb(int(c), i + 1) for i, c in enumerate(columns_of))
        _words.unpack(np.uint64(number), size, table, target, 0)
        assert target.tolist() == columns_of.tolist()


def lightest(rows) -> int:
    """The minimum weight of the row space of three rows of full rank, in Python integers.

    A lightest vector's zeros span all of a plane in the coefficients: two of them fix
    it.
    """
    columns = [[int(value) for value in column] for column in np.asarray(rows).T]
    best = len(columns)
    for a, b in itertools.combinations(columns, 2):
        normal = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
        weight = sum(
            sum(z * v for z, v in zip(normal, c, strict=True)) != 0 for c in columns
        )
        best = min(best, weight or best)
    return best


def planted(weight, odd, rng):
    """Three rows of weight + 3 columns with one light vector.

    Its first entries odd, the rest not.
    A dense change of basis with entries to 2**20 hides it from everything but a search.
    """
    rows = rng.integers(1, 2**20, (3, weight + 3))
    rows[0] = 0
    entries = np.concatenate(
        [2 * rng.integers(0, 9, odd) + 1, 4 * rng.integers(0, 9, weight) + 2]
    )
    rows[0, rng.permutation(weight + 3)[:weight]] = entries[:weight]
    change = rng.integers(-(2**20), 2**20, (3, 3))
    return change @ rows


@pytest.mark.long("18")
@pytest.mark.parametrize(
    "weight",
    [pytest.param(w, marks=pytest.mark.slow if w > 18 else ()) for w in range(8, 25)],
)
def test_a_planted_vector_is_found_at_its_weight_and_not_below(weight) -> None:
    """All its entries odd (one long word of the code), few odd (a long list after it), or half."""
    rng = np.random.default_rng(weight)
    for odd in (weight, 2, weight // 2) if weight < 20 else (weight,):
        rows = planted(weight, odd, rng)
        assert lightest(rows) == weight
        groups = collapse(rows)
        space = Space(groups.matrix, groups.sizes)
        for method in ("girth", "lifting"):
            if method == "girth" and weight > 16:
                continue
            for limit in (weight - 1, weight):
                outcome = run(space.duals, Plan(method, limit, 99.0))
                assert outcome.is_proof == (limit < weight), (method, odd, limit)
                if limit == weight:
                    found = space.vector(outcome.subset, method)
                    assert found.weight == weight
                    assert max(outcome.subset) < weight + 3


@pytest.mark.slow
@pytest.mark.parametrize("weight", [17, 18])
def test_thirty_four_columns_of_rank_eight_are_no_proof(weight) -> None:
    rng = np.random.default_rng(weight)
    rows = rng.integers(1, 2**10, (8, 34))
    rows[0] = 0
    rows[0, rng.permutation(34)[:weight]] = 2 * rng.integers(0, 9, weight) + 1
    groups = collapse(rng.integers(-(2**20), 2**20, (8, 8)) @ rows)
    space = Space(groups.matrix, groups.sizes)
    outcome = run(space.duals, Plan("lifting", weight, 99.0))
    assert not outcome.is_proof
    assert space.vector(outcome.subset, "lifting").weight == weight
