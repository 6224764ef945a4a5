"""The two searches for light vectors.

Against exhaustion, against each other, and their limits.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax.privacy import weak_privacy
from mrsa_jax.privacy.solver import (
    Groups,
    Sieve,
    Space,
    collapse,
    combination_on,
    parity_checks,
    ranks_of,
    support_of,
)
from mrsa_jax.privacy.solver._ranks import _distinct_columns
from mrsa_watch._base.primes import draw_primes

SOLVER = "mrsa_jax.privacy.solver"


def space_of(matrix):
    groups = collapse(np.asarray(matrix))
    return Space(groups.matrix[ranks_of(groups.matrix).kept], groups.sizes)


def small_matrices(count, seed):
    """Random histories of every kind.

    Cohorts, dense, signed weights, groups of unequal size.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        clients, rounds = int(rng.integers(8, 15)), int(rng.integers(3, 11))
        if number % 4 == 0:
            matrix = np.array([rng.permutation(clients) < 4 for _ in range(rounds)])
        elif number % 4 == 1:
            matrix = rng.random((rounds, clients)) < 0.5
        elif number % 4 == 2:
            matrix = rng.integers(-2, 3, (rounds, clients))
        else:
            half = np.array([rng.permutation(clients // 2) < 2 for _ in range(rounds)])
            matrix = np.repeat(half, rng.integers(1, 3, clients // 2), axis=1)
        if np.any(matrix):
            yield matrix


def hidden_matrices(count, seed):
    """Histories in which only a search sees anything.

    Light vectors under dense changes of basis.
    Odd entries, entries with factors 2 and multiples of the small primes; groups of
    equal and of unequal sizes; rows that nearly repeat others.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        rank = int(rng.integers(1, 7))
        clients = int(rng.integers(rank + 3, 15))
        rows = rng.integers(-9, 10, (rank, clients))
        entries = [[1], [2, 1], [1, -1, 2, 4], [3, 6, 12, 5], [8191, 1, 8179]][
            number % 5
        ]
        rows[0] = rng.choice(entries, clients) * (
            rng.permutation(clients) < number % clients
        )
        if number % 3 == 0:
            rows[1:] *= 2 ** rng.integers(0, 3, (rank - 1, 1))
        if number % 4 == 0 and rank > 1:
            rows[-1] = rows[0]
            rows[-1, rng.integers(clients)] += 1
        mixed = rng.integers(-99, 100, (rank + number % 2, rank)) @ rows
        if number % 7 == 0:
            mixed = np.repeat(mixed, rng.integers(1, 4, clients), axis=1)
        if np.any(mixed):
            yield mixed


@pytest.mark.long
@pytest.mark.parametrize("method", ["girth", "lifting"])
@pytest.mark.parametrize("count", [80, pytest.param(3000, marks=pytest.mark.slow)])
def test_each_search_finds_exactly_what_is_there(method, count) -> None:
    """For every limit below the Singleton bound: a proof iff no vector is that light.

    Neither where sets are dependent modulo a small prime alone: hardly ever, unless by
    design.
    """
    looked, undecided = 0, 0
    for matrix in itertools.chain(
        small_matrices(count, 4), hidden_matrices(count // 2, 5)
    ):
        space = space_of(matrix)
        truth = oracle.weak_privacy(matrix)
        for limit in range(space.strong, space.singleton):
            chosen = space.plan(limit)
            if chosen is None or space.duals.checks is None:
                continue
            is_proof, vector = space.search(
                dataclasses.replace(chosen, method=method), None
            )
            looked += 1
            if not is_proof and vector is None:
                undecided += 1
                continue
            assert is_proof == (truth > limit), (matrix.tolist(), limit)
            if not is_proof:
                assert truth <= vector.weight <= limit
                total = np.array(vector.coefficients, object) @ space.rows.astype(
                    object
                )
                assert ((total != 0) == vector.columns).all()
    assert looked > 2 * count
    assert undecided < looked / 10


@pytest.mark.parametrize("method", ["girth", "lifting"])
def test_a_hidden_light_vector_is_found_and_is_the_lightest(method) -> None:
    """Thirty clients, a combination of all rounds that leaves five.

    Random rows have none.
    """
    rng = np.random.default_rng(12)
    for coefficients in (
        [1, -1, 2, -2, 4],
        [1, 1, 1, 1, 1],
        [2, 2, 2, 2, 1],
        [4, 4, 4, 2, 1],
    ):
        hidden = np.zeros(30, np.int64)
        hidden[rng.choice(30, 5, replace=False)] = coefficients
        rows = rng.integers(0, 2, (14, 30))
        rows[-1] = hidden - rows[:-1].sum(axis=0)
        space = space_of(rows)
        chosen = space.plan(4)
        assert space.search(dataclasses.replace(chosen, method=method), None)[0]
        chosen = space.plan(5)
        _, vector = space.search(dataclasses.replace(chosen, method=method), None)
        assert vector is not None
        found = np.flatnonzero(hidden)
        assert vector.weight == 5
        original = collapse(rows)
        assert original.clients(np.flatnonzero(vector.columns)) == tuple(found)


@pytest.mark.long
def test_parts_of_a_search_cover_it_all(monkeypatch) -> None:
    """However finely a search is cut, the same vector is found in one part and no other."""
    rng = np.random.default_rng(3)
    rows = np.array([rng.permutation(40) < 8 for _ in range(12)])
    space = space_of(rows)
    truth = weak_privacy(rows).upper
    assert truth >= 5
    reports = []

    def report(*state):
        reports.append(state)

    for method in ("girth", "lifting"):
        chosen = dataclasses.replace(space.plan(truth), method=method)
        below = dataclasses.replace(space.plan(truth - 1), method=method)
        monkeypatch.setattr(f"{SOLVER}._search._SECONDS_A_TASK", 1e-7)
        monkeypatch.setattr(f"{SOLVER}._costs._HALVES_A_PART", 1)
        reports.clear()
        is_proof, vector = space.search(below, report)
        assert is_proof
        assert vector is None
        assert reports[-1][1] == reports[-1][2] > 8
        is_proof, vector = space.search(chosen, None)
        assert not is_proof
        assert vector.weight == truth


@pytest.mark.smoke
def test_parity_checks_are_those_of_the_saturated_lattice() -> None:
    """Rows with a factor 2 in every minor.

    The integer vectors of their span, enumerated.
    """
    for rows in (
        [[2, 0, 2], [0, 2, 2]],
        [[1, 1, 0, 0], [1, -1, 0, 2]],
        [[3, 1, 1, 1, 2]],
    ):
        matrix = np.array(rows)
        checks = parity_checks(matrix)
        values = np.stack(
            np.meshgrid(*[range(-3, 4)] * matrix.shape[1], indexing="ij"), -1
        )
        vectors = values.reshape(-1, matrix.shape[1])
        inside = [
            v for v in vectors.tolist() if oracle.rank([*rows, v]) == oracle.rank(rows)
        ]
        for vector in inside:
            assert not (checks.digits.astype(int) @ vector % 4).any()
        odd = {tuple(np.array(vector) % 2) for vector in inside}
        assert len(odd) == 2 ** oracle.rank(rows)
        assert checks.is_even == all(sum(word) % 2 == 0 for word in odd)


def test_parity_checks_give_up_without_digits_left() -> None:
    assert parity_checks(np.array([[2**63, 0]], object)) is None


def test_ranks_of_all_prefixes_are_proven() -> None:
    for matrix in small_matrices(60, 9):
        ranks = ranks_of(collapse(matrix).matrix)
        assert ranks.proven.all()
        assert ranks.error_bits is None
        prefix = [oracle.rank(matrix[: j + 1].tolist()) for j in range(len(matrix))]
        assert ranks.prefix.tolist() == prefix
        assert len(ranks.kept) == prefix[-1]


@pytest.mark.parametrize("kind", [bool, np.int64, object])
def test_distinct_columns_of_every_prefix_are_counted(kind: type) -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        shape = rng.integers(1, 9), rng.integers(1, 12)
        matrix = rng.integers(0, 2 if kind is bool else 4, shape).astype(kind)
        if kind is object:
            matrix *= 2**70
        expected = [
            len({c for c in zip(*matrix[: j + 1].tolist(), strict=True) if any(c)})
            for j in range(len(matrix))
        ]
        assert _distinct_columns(matrix).tolist() == expected


def test_a_rank_that_primes_lose_is_found_by_others(monkeypatch) -> None:
    """Bad primes, put where the drawn ones go, cost neither the rank nor the rows behind it."""
    bad = [1_199_999_993, 1_199_999_963]
    matrix = np.array([[1, 1], [1, 1 + bad[0] * bad[1]], [2, 2]], object)
    drawn = iter(bad)
    monkeypatch.setattr(
        f"{SOLVER}._ranks.draw_primes",
        lambda n, w: (p,) if (p := next(drawn, None)) else draw_primes(n, w),
    )
    ranks = ranks_of(matrix)
    assert (ranks.prefix.tolist(), ranks.kept.tolist()) == ([1, 2, 2], [0, 1])
    assert ranks.proven.all()


def test_an_unproven_rank_states_its_chance_of_error() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-(2**40), 2**40, (12, 30))
    matrix = np.concatenate([rows, rows[:6] + rows[6:], rows[:5] - rows[3:8]])
    quick, whole = ranks_of(matrix, 0.0), ranks_of(matrix)
    assert quick.prefix.tolist() == whole.prefix.tolist() == [*range(1, 13)] + [12] * 11
    assert quick.proven.tolist() == [True] * 12 + [False] * 11
    assert quick.error_bits >= 40
    assert whole.proven.all()
    assert whole.error_bits is None
    # bad primes are fewer than bits / 30, each as likely as one in seven million
    share = whole.minor_bits / 30 / 7e6
    assert 2.0**-quick.error_bits <= 2 * share**2


def test_combinations_vanish_outside_and_units_are_units() -> None:
    for matrix in small_matrices(60, 10):
        space = space_of(matrix)
        columns = space.rows.shape[1]
        for support in ([0], list(range(columns // 2)), list(range(columns))):
            outside = [k for k in range(columns) if k not in support]
            rest = [[int(v) for v in row] for row in space.rows[:, outside]]
            exists = (oracle.rank(rest) if outside else 0) < space.rank
            found = combination_on(space.rows, support, space.weights)
            assert (found is not None) == exists
            if found is not None:
                assert set(np.flatnonzero(found[1])) <= set(support)
                assert (support_of(found[0], space.rows) == found[1]).all()
        units = [
            k
            for k in range(columns)
            if oracle.rank(
                [*space.rows.tolist(), [int(j == k) for j in range(columns)]]
            )
            == space.rank
        ]
        sieve = Sieve(Groups(space.rows, space.weights, ()), space.rows, 200.0)
        alone = sieve.alone(list(range(columns)), 1.0)
        assert (alone.groups, alone.error_bits) == (tuple(units), None)
        unlifted = sieve.alone(list(range(columns)), 0.0)
        assert (unlifted.groups, unlifted.last_rows) == (alone.groups, alone.last_rows)
        assert (unlifted.error_bits is None) == (not units)
        for k, row in zip(alone.groups, alone.last_rows, strict=True):
            unit = [int(j == k) for j in range(columns)]
            for rows, there in ((row, False), (row + 1, True)):
                before = space.rows[:rows].tolist()
                assert (oracle.rank([*before, unit]) == oracle.rank(before)) == there


@pytest.mark.long
def test_many_columns_are_decided_without_a_kernel_basis(monkeypatch) -> None:
    """The way of wide histories, run on narrow ones.

    True bounds, exact up to two clients.
    """
    exact = 0
    for matrix in small_matrices(200, 11):
        truth = weak_privacy(matrix)
        with monkeypatch.context() as patch:
            patch.setattr("mrsa_jax.privacy._weak._MOST_GROUPS", 0)
            wide = weak_privacy(matrix)
        assert wide.rank == truth.rank
        assert wide.exposed == truth.exposed
        assert wide.lower <= truth.upper
        assert wide.upper >= truth.upper
        total = np.array(wide.witness, object) @ np.asarray(matrix).astype(object)
        assert np.flatnonzero(total).tolist() == list(wide.support)
        if wide.certified:
            assert wide.upper == truth.upper
        distinct = len(np.unique(matrix[np.any(matrix, axis=1)], axis=0))
        if truth.upper <= 2 and truth.rank == min(distinct, truth.num_groups):
            assert wide.certified
            exact += 1
    assert exact > 30
