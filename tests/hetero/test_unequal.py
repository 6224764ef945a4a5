"""Example 1 and Table II by brute force in plain Python."""

import itertools

import pytest

import mrsa_jax as mj
from mrsa_jax.hetero import unequal_moduli_failures
from mrsa_jax.hetero._theory import unequal_moduli_tuples

# Table II, column by column
PRINTED = list(
    zip(
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
        [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0],
        [5, 4, 3, 2, 1, 0, 4, 3, 2, 1, 0, 5],
        strict=True,
    )
)


@pytest.mark.parametrize(
    ("moduli", "levels", "message"),
    [
        ([1, 6], [1, 1], "`moduli` must be at least 2; got 1"),
        ([], [], "`moduli` must hold a ring for each client"),
        ([2, 6], [2], "`levels` must be one for each of `moduli`"),
        ([2, 6], [3, 6], "`levels` must be one for each of `moduli`, no larger"),
        ([2, 6], [0, 6], "`levels` must be at least 1; got 0"),
        ([10**4] * 2, [1, 1], r"`moduli` must give at most 10\^7 combinations"),
    ],
)
def test_rejects_what_is_no_example(moduli, levels, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        unequal_moduli_failures(moduli, levels)


def test_table_two_lists_all_twelve_tuples():
    found = unequal_moduli_tuples([2, 6, 6])
    assert sorted(PRINTED) == list(found)
    brute = [
        z for z in itertools.product(range(2), range(6), range(6)) if sum(z) % 6 == 0
    ]
    assert list(found) == brute
    for client, ring in enumerate([2, 6, 6]):  # each pad is uniform over its ring
        counts = [sum(z[client] == value for z in found) for value in range(ring)]
        assert len(set(counts)) == 1


def test_example_one_distorts_54_of_216_sums():
    wrong = 0
    for z in PRINTED:
        for x in itertools.product(range(2), range(3), range(3)):
            y = (x[0] + z[0]) % 2, (x[1] + z[1]) % 6, (x[2] + z[2]) % 6
            wrong += sum(y) % 6 != sum(x)
    found = unequal_moduli_failures([2, 6, 6], [2, 3, 3])
    assert (found.wrong, found.cases) == (wrong, 12 * 18) == (54, 216)
    pads, inputs, got, true = found.example
    sent = [(a + b) % ring for a, b, ring in zip(inputs, pads, [2, 6, 6], strict=True)]
    assert (sum(sent) % 6, sum(inputs)) == (got, true)
    assert got != true


def test_the_papers_own_case():
    # pads (1, 1, 4) and inputs (1, 0, 0): 5 arrives instead of 1
    assert (1, 1, 4) in unequal_moduli_tuples([2, 6, 6])
    assert ((1 + 1) % 2 + (0 + 1) % 6 + (0 + 4) % 6) % 6 == 5


def test_equal_rings_never_fail():
    assert unequal_moduli_failures([6, 6, 6], [2, 3, 3]).wrong == 0
    assert unequal_moduli_failures([7, 7], [3, 4]).example is None
