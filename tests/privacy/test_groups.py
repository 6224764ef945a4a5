"""Unweighted groups.

Misuse, small cases, and exhaustive search over all choices of signs.
"""

from __future__ import annotations

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES, FANO

import mrsa_jax as mj
from mrsa_jax.privacy import unweighted_group
from mrsa_jax.privacy._unweighted import UnweightedGroup

VALUES = {"plain": (0, 1), "plus_minus": (-1, 0, 1)}


def check(matrix, coefficients, **options):
    """Hold the group and its witness against the definition, in Python integers."""
    found = unweighted_group(
        np.array(matrix, object), coefficients=coefficients, **options
    )
    if found.upper is None:
        assert found.support == found.signs == found.witness == ()
        return found
    assert len(found.support) == len(found.signs) == found.upper
    assert list(found.support) == sorted(set(found.support))
    assert set(found.signs) <= set(VALUES[coefficients])
    assert len(found.witness) == len(matrix)
    assert all(type(z) is int for z in found.witness)
    sums = oracle.combination(found.witness, matrix)
    scale = sums[found.support[0]] * found.signs[0]
    coefficient = dict(zip(found.support, found.signs, strict=True))
    assert scale > 0
    assert sums == [scale * coefficient.get(i, 0) for i in range(len(matrix[0]))]
    return found


def random_history(seed, clients, size, rounds):
    rng = np.random.default_rng(seed)
    history = np.zeros((rounds, clients), int)
    for row in history:
        row[rng.choice(clients, size, replace=False)] = 1
    return history.tolist()


@pytest.mark.parametrize(
    ("history", "options", "message"),
    [
        ([[0.5, 1.0]], {}, r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], {}, r"`P` must hold bools or integers; got \[nan\]"),
        ([["1", "0"]], {}, r"`P` must hold bools or integers; got"),
        ([1, 0], {}, r"`P` must have at least 2 axes; got \(2,\)"),
        (np.zeros((2, 3, 4), bool), {}, r"`P` must have two axes; got \(2, 3, 4\)"),
        (np.zeros((0, 4), bool), {}, r"`P` must not be empty; got \(0, 4\)"),
        (
            [[1]],
            {"coefficients": "plane"},
            r"`coefficients` must be 'plain' or .*; got 'plane'",
        ),
        (
            [[1]],
            {"coefficients": None},
            r"`coefficients` must be 'plain' or .*; got None",
        ),
        ([[1]], {"max_size": 0}, r"`max_size` must be at least 1; got 0"),
        ([[1]], {"max_size": 1.5}, r"`max_size` must be an integer; got 1.5"),
        ([[1]], {"max_size": True}, r"`max_size` must be an integer; got True"),
        ([[1]], {"effort": 0}, r"`effort` must be positive and finite; got 0"),
        ([[1]], {"effort": -1.0}, r"`effort` must be positive and finite; got -1.0"),
        (
            [[1]],
            {"effort": float("nan")},
            r"`effort` must be positive and finite; got nan",
        ),
        ([[1]], {"effort": "1"}, r"`effort` must be a number; got '1'"),
    ],
)
def test_rejects_misuse(history, options, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        unweighted_group(history, **options)


@pytest.mark.smoke("matrix1-3-3")
@pytest.mark.parametrize(
    ("matrix", "plain", "plus_minus"),
    [
        ([[1, 1, 0], [0, 1, 1]], 2, 2),
        ([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]], 3, 3),
        ([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]], 3, 2),  # one round less another
        ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], 1, 1),  # half of a sum of sums
        ([[5, 5, 5, 0]], 3, 3),  # five times a plain sum
        ([[-1, -1, 0]], 2, 2),
        ([[1, -1, 0]], None, 2),
        ([[1, 2]], None, None),
        ([[1, 2, 0], [0, 0, 1]], 1, 1),
        ([[1, 2, 3], [1, 3, 4]], 2, 2),  # the second row less the first
        (FANO, 1, 1),
    ],
)
def test_worked_cases(matrix, plain, plus_minus):
    for coefficients, size in (("plain", plain), ("plus_minus", plus_minus)):
        assert oracle.unweighted_group(matrix, VALUES[coefficients]) == size
        found = check(matrix, coefficients)
        assert (found.lower, found.upper, found.certified) == (size, size, True)


@pytest.mark.smoke("object-matrix3")
@pytest.mark.parametrize(
    "matrix",
    [
        [[2**63 - 1, 0, 1], [2**63 - 3, 4, 3]],
        [[-(2**63), 5, 0], [-(2**63), 0, 5]],
        [[-(2**63), 2**62, 1], [2**62, -(2**63), 0]],
        [[2**62, 2**62, 7], [2**62, 2**62, -7]],
        [[2**62 - 1, 3, 0], [2**62 - 1, 0, 3]],
    ],
)
@pytest.mark.parametrize("kind", [np.int64, object])
def test_sums_of_two_rows_beyond_64_bits(matrix, kind):
    for coefficients, values in VALUES.items():
        size = oracle.unweighted_group(matrix, values)
        found = unweighted_group(np.array(matrix, kind), coefficients=coefficients)
        assert (found.lower, found.upper, found.certified) == (size, size, True)
        check(matrix, coefficients)


@pytest.mark.long
def test_random_rows_around_every_power_of_two_against_exhaustive_search():
    rng = np.random.default_rng(33)
    for bits in range(1, 64):
        near = [
            0,
            1,
            -1,
            *(sign * (2**bits + by) for sign in (1, -1) for by in (-1, 0)),
        ]
        matrix = [
            [near[k] for k in row] for row in rng.integers(len(near), size=(2, 4))
        ]
        for coefficients, values in VALUES.items():
            size = oracle.unweighted_group(matrix, values)
            found = check(matrix, coefficients)
            assert (found.lower, found.upper, found.certified) == (size, size, True)


def test_nobody_took_part():
    assert unweighted_group([[0, 0], [0, 0]]) == UnweightedGroup(
        None, None, True, (), (), ()
    )


def test_the_result_is_a_frozen_dataclass():
    found = unweighted_group([[1, 1, 0], [0, 1, 1]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.lower = 3


@pytest.mark.long(
    "circulants-plain",
    "graphs-plain",
    "weighted_integers-plain",
    "weighted_integers-plus_minus",
)
@pytest.mark.parametrize("coefficients", VALUES)
@pytest.mark.parametrize("name", FAMILIES)
def test_families_against_exhaustive_search(name, coefficients):
    for matrix, _ in FAMILIES[name]():
        if len(oracle.classes(matrix)) > (12 if coefficients == "plain" else 8):
            continue
        size = oracle.unweighted_group(matrix, VALUES[coefficients])
        found = check(matrix, coefficients)
        assert (found.lower, found.upper, found.certified) == (size, size, True), matrix


@pytest.mark.parametrize("coefficients", VALUES)
@hypothesis.given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([-2, -1, 0, 0, 1, 1, 2]), min_size=n, max_size=n),
            min_size=1,
            max_size=7,
        )
    )
)
def test_any_small_matrix_against_exhaustive_search(coefficients, matrix):
    size = oracle.unweighted_group(matrix, VALUES[coefficients])
    found = check(matrix, coefficients)
    assert (found.lower, found.upper, found.certified) == (size, size, True)


def test_never_below_weak_privacy_and_signs_only_help():
    for seed in range(12):
        matrix = random_history(seed, 12, 4, 3 + seed % 8)
        plain, signed = check(matrix, "plain"), check(matrix, "plus_minus")
        assert oracle.weak_privacy(matrix) <= signed.upper <= plain.upper <= 4


def hidden_group(seed, sizes, signs):
    """A history of which two long sums differ by a group, mixed until no round shows it."""
    rng = np.random.default_rng(seed)
    clients = len(sizes)
    rows = rng.integers(0, 6, (10, clients))
    target = np.zeros(clients, int)
    target[rng.choice(clients, len(signs), replace=False)] = signs
    rows[-1] = 3 * target - rows[0] + 2 * rows[4] - rows[7]
    return np.repeat(rows, sizes, axis=1).tolist()


@pytest.mark.parametrize(
    ("signs", "coefficients"),
    [
        ([1] * 2, "plain"),
        ([1] * 3, "plain"),
        ([1] * 4, "plain"),
        ([1] * 5, "plain"),
        ([1] * 6, "plain"),
        ([1, -1], "plus_minus"),
        ([1, -1, -1], "plus_minus"),
        ([1, -1, 1, -1], "plus_minus"),
        ([1, -1, -1, -1, 1], "plus_minus"),
    ],
)
def test_finds_a_hidden_group_of_every_size(signs, coefficients):
    # with ten rows of random weights on thirty clients there is no other small one
    for seed in range(3):
        matrix = hidden_group(seed, [1] * 30, signs)
        found = check(matrix, coefficients, max_size=len(signs))
        assert (found.lower, found.upper, found.certified) == (
            len(signs),
            len(signs),
            True,
        )
        less = check(matrix, coefficients, max_size=len(signs) - 1)
        assert (less.lower, less.upper, less.certified) == (len(signs), None, False)


def test_groups_of_unequal_sizes_are_weighed():
    for seed in range(3):
        sizes = np.random.default_rng(seed).integers(1, 5, 18).tolist()
        matrix = hidden_group(seed, sizes, [1, 1, 1])
        found = check(matrix, "plain", max_size=12)
        rows = np.array(matrix)
        expected = len(found.support)
        assert found.certified
        assert len({tuple(rows[:, i]) for i in found.support}) == 3
        too_small = check(matrix, "plain", max_size=expected - 1)
        assert (too_small.lower, too_small.upper) == (expected, None)


@pytest.mark.parametrize("coefficients", VALUES)
def test_many_small_tables_find_what_one_finds(monkeypatch, coefficients):
    signs = [1, 1, 1, 1, 1] if coefficients == "plain" else [1, -1, 1, -1, 1]
    matrix = hidden_group(1, [1] * 26, signs)
    whole = check(matrix, coefficients, max_size=5)
    monkeypatch.setattr("mrsa_jax.privacy._unweighted._plan", lambda *_: (0.0, 5))
    parts = check(matrix, coefficients, max_size=5)
    assert whole == parts
    assert parts.certified


def test_a_full_table_grows(monkeypatch):
    monkeypatch.setattr("mrsa_jax.privacy._unweighted._count", lambda *_: 1)
    for sizes in ([1] * 26, [1] * 20 + [2] * 6):
        matrix = hidden_group(2, sizes, [1, 1, 1, 1])
        found = check(matrix, "plain", max_size=8)
        assert 4 <= found.lower == found.upper <= 8


def test_a_sum_that_vanishes_by_accident_is_no_group(monkeypatch):
    # one set in some twenty
    monkeypatch.setattr("mrsa_watch._base.primes._WIDE_BITS", 4)
    for seed in range(4):
        matrix = random_history(seed, 9, 3, 5)
        for coefficients, values in VALUES.items():
            size = oracle.unweighted_group(matrix, values)
            found = check(matrix, coefficients)
            assert (found.lower, found.upper) == (size, size)


def test_little_effort_gives_a_true_interval():
    matrix = random_history(1, 60, 9, 40)
    found = check(matrix, "plain", effort=1e-6)
    assert 1 <= found.lower < found.upper <= 9
    assert not found.certified
    more = check(matrix, "plain", effort=1e-2)
    assert found.lower < more.lower <= more.upper <= found.upper


def test_no_prime_deceives_and_none_is_kept():
    p = 2**61 - 1
    found = check([[1, 1, 0], [1, 1 + p, 0]], "plain")
    assert (found.lower, found.upper, found.certified) == (1, 1, True)
    # modulo p a plain sum, for every kernel vector
    found = check([[p + 1, 1]], "plain")
    assert (found.lower, found.upper, found.certified) == (None, None, True)
