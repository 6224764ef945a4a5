"""Closed forms: the paper's tables, enumeration, and Monte Carlo."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.selection import enumerate_family, expected_cardinality, family_size

TARGETS = (1, 2, 3, 4, 6, 12)
# Theorem 1 for N = 120, K = 12: rate -> C for each T; None is less than 5e-11 below 12.
TABLE = {
    0.1: (None, None, None, 11.9999999998, 11.9999260526, 11.5656630406),
    0.2: (None, None, 11.9999999491, 11.9996219672, 11.7774659210, 6.1117471833),
    0.3: (
        None,
        11.9999999998,
        11.9990075008,
        11.8287969868,
        8.4001348921,
        1.5612281178,
    ),
    0.4: (None, 11.9999897681, 11.8024724385, 9.1813501624, 2.8678532317, 0.2586699507),
    0.5: (None, 11.9885264551, 9.0434741468, 3.4599581542, 0.4620062767, 0.0292647094),
}
RATES = [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((4, 5, 1), r"`cohort_size` must be at most `num_clients`; got 5 and 4"),
        (
            (12, 10, 4),
            r"`cohort_size` must be a multiple of `privacy_target`; got 10 and 4",
        ),
        (
            (10, 4, 4),
            r"`num_clients` must be a multiple of `privacy_target`; got 10 and 4",
        ),
        ((0, 1, 1), r"`num_clients` must be at least 1; got 0"),
        ((8, 4, 0), r"`privacy_target` must be at least 1; got 0"),
        ((8, 4.0, 2), r"`cohort_size` must be an integer; got 4.0"),
        ((8, True, 1), r"`cohort_size` must be an integer; got True"),
    ],
)
def test_sizes_that_make_no_sense(sizes: tuple[int, int, int], message: str) -> None:
    for function in (family_size, enumerate_family):
        with pytest.raises(ConfigurationError, match=message):
            inspect.unwrap(function)(*sizes)
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(expected_cardinality)(*sizes, 0.1)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (1.5, r"`dropout_rate` must lie in \[0, 1\]; got 1.5"),
        (-0.1, r"`dropout_rate` must lie in \[0, 1\]; got -0.1"),
        (math.nan, r"`dropout_rate` must lie in \[0, 1\]; got nan"),
        (
            [0.1] * 7,
            r"`dropout_rate` must hold one rate for each client; got '7 rates, 8 "
            r"clients'",
        ),
        ("x", r"`dropout_rate` must be a number or one number per client; got 'x'"),
    ],
)
def test_rates_that_make_no_sense(rate: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(expected_cardinality)(8, 4, 2, rate)


def test_families_too_large_to_list() -> None:
    with pytest.raises(
        ValueError, match="`max_rows` must be at least the size of the family"
    ):
        enumerate_family(120, 12, 1)
    assert enumerate_family(8, 4, 2, max_rows=6).shape == (6, 8)
    with pytest.raises(ValueError, match="got 5 and 6"):
        enumerate_family(8, 4, 2, max_rows=5)


@pytest.mark.smoke
def test_family_sizes_of_the_paper() -> None:
    sizes = [family_size(120, 12, t) for t in TARGETS]
    assert sizes == [10542859559688820, 50063860, 91390, 4060, 190, 10]


def test_figure_2() -> None:
    """The matrix printed in the paper's Example 1."""
    printed = [
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1],
    ]
    family = enumerate_family(8, 4, 2)
    assert family.dtype == np.bool_
    assert (family == np.array(printed, bool)).all()


@pytest.mark.parametrize(
    "sizes", [(6, 2, 1), (12, 6, 2), (12, 6, 3), (6, 6, 2), (6, 3, 3), (1, 1, 1)]
)
def test_families_by_definition(sizes: tuple[int, int, int]) -> None:
    """All subsets of K clients that are unions of blocks, in decreasing order of their bits."""
    n, k, t = sizes
    rows = [
        row
        for row in itertools.product((True, False), repeat=n)
        if sum(row) == k and all(len(set(row[i : i + t])) == 1 for i in range(0, n, t))
    ]
    assert enumerate_family(n, k, t).tolist() == [list(row) for row in rows]
    assert len(rows) == family_size(n, k, t)


@pytest.mark.parametrize("rate", TABLE)
def test_theorem_1(rate: float) -> None:
    for target, printed in zip(TARGETS, TABLE[rate], strict=True):
        value = expected_cardinality(120, 12, target, rate)
        if printed is None:
            assert 12.0 - 5e-11 < value <= 12.0
        else:
            assert value == pytest.approx(printed, abs=1e-9)
        assert expected_cardinality(120, 12, target, [rate] * 120) == value


def test_mixed_rates_of_facts() -> None:
    """Sorted and round-robin assignments of five rates."""
    ordered, cyclic = np.repeat(RATES, 24), np.tile(RATES, 24)
    for target, a, b in [
        (3, 11.99998, 11.99896),
        (4, 11.9912, 11.7455),
        (6, 11.3753, 7.6953),
    ]:
        assert expected_cardinality(120, 12, target, ordered) == pytest.approx(
            a, abs=6e-5
        )
        assert expected_cardinality(120, 12, target, cyclic) == pytest.approx(
            b, abs=6e-5
        )
    assert expected_cardinality(120, 12, 12, ordered) == pytest.approx(6.8137, abs=6e-5)
    assert expected_cardinality(120, 12, 12, cyclic) == pytest.approx(1.2791, abs=6e-5)
    assert expected_cardinality(120, 24, 24, ordered) == pytest.approx(2.02, abs=6e-3)


@pytest.mark.parametrize("target", [1, 2, 4])
def test_mixed_rates_by_enumeration(target: int) -> None:
    rates = np.array([0.0, 0.9, 0.3, 0.5, 0.2, 0.6, 1.0, 0.1])
    expected = 0.0
    for online in itertools.product((0, 1), repeat=8):
        chance = math.prod(
            1 - p if on else p for p, on in zip(rates.tolist(), online, strict=True)
        )
        blocks = sum(all(online[i : i + target]) for i in range(0, 8, target))
        expected += chance * (4 if blocks >= 4 // target else 0)
    assert expected_cardinality(8, 4, target, rates) == pytest.approx(
        expected, rel=1e-13
    )


def test_extremes() -> None:
    assert expected_cardinality(10, 4, 2, 1.0) == 0.0
    assert expected_cardinality(10, 10, 10, 0.0) == 10.0
    assert expected_cardinality(1, 1, 1, 0.25) == 0.75
    tiny = expected_cardinality(120, 12, 12, 0.9)  # relative precision far below 1
    assert tiny == pytest.approx(
        12 * -math.expm1(10 * math.log1p(-(0.1**12))), rel=1e-12
    )
    large = expected_cardinality(100_000, 1000, 10, 0.5)
    assert 0.0 < large < 1000.0


@pytest.mark.smoke
def test_expectation_of_large_populations_against_the_binomial_law() -> None:
    from scipy import stats

    value = expected_cardinality(50_000, 500, 5, 0.6)
    law = stats.binom(10_000, 0.4**5)
    assert value == pytest.approx(500 * law.sf(99), rel=1e-9)


def test_public_names_are_reachable() -> None:
    assert mj.selection.family_size is family_size


# ---- blocks given by name


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            [0, 0, 1],
            r"`blocks` must hold one integer for each client; got 'shape \(3,\)'",
        ),
        (
            [0, 0, 0, 1, 2, 2],
            "`blocks` must name each block as often .* 'block 0: 3 times' and 2",
        ),
        ([0.0] * 6, "`blocks` must be an integer or one integer per client"),
        ([True] * 6, "`blocks` must be an integer or one integer per client"),
    ],
)
def test_blocks_that_make_no_sense(blocks: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(expected_cardinality)(6, 2, 2, 0.1, blocks=blocks)


def test_blocks_by_name_are_a_permutation_of_clients() -> None:
    rng = np.random.default_rng(4)
    rates, order = rng.random(12), rng.permutation(12)
    consecutive = np.arange(12) // 3
    value = expected_cardinality(12, 6, 3, rates)
    assert expected_cardinality(12, 6, 3, rates, blocks=consecutive) == value
    renamed = 10 - 7 * consecutive  # any integers
    assert expected_cardinality(12, 6, 3, rates, blocks=renamed) == pytest.approx(
        value, rel=1e-14
    )
    moved = expected_cardinality(12, 6, 3, rates[order], blocks=consecutive[order])
    assert moved == pytest.approx(value, rel=1e-14)
    assert expected_cardinality(12, 6, 3, rates[order]) != pytest.approx(
        value, rel=1e-3
    )
