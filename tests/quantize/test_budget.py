"""The ring that a weighted sum needs, against exact integers and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mrsa_jax import ConfigurationError
from mrsa_jax.quantize import budget, stochastic
from mrsa_jax.quantize.budgets import (
    check_fits,
    check_weights,
    largest_levels,
    largest_total_weight,
    ring_size,
)
from mrsa_jax.quantize.wrapping import wrap_probability


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ring_size(4, 2, 0), "`max_weight` must be at least 1; got 0"),
        (lambda: ring_size(4, 2, True), "`max_weight` must be an integer; got True"),
        (
            lambda: ring_size(4, 2, [1.5, 2.0]),
            "`max_weight` must be integers; got 'dtype float64'",
        ),
        (
            lambda: ring_size(4, 3, [1, 2]),
            "`max_weight` must hold `count` weights or more; got 2",
        ),
        (
            lambda: ring_size(4, 2, [0, 0, 0]),
            "`max_weight` must hold a weight above 0; got 0",
        ),
        (
            lambda: ring_size(4, 2, [3, -1]),
            r"`max_weight` must lie in \[0, 4294967295\]; got -1",
        ),
        (lambda: check_weights([[1, 2]]), "`weights` must be one weight a client"),
        (
            lambda: check_weights([True, False]),
            "`weights` must be integers; got 'dtype bool'",
        ),
        (
            lambda: check_weights([1, 9], largest=8),
            r"`weights` must lie in \[0, 8\]; got 1 and 9",
        ),
        (
            lambda: largest_levels(8, 2, 4),
            "`modulus` must exceed the largest sum of weights",
        ),
        (
            lambda: check_fits(2**16, 12, 2**32, 5462),
            "total weight .* and 4295426040",
        ),
        (
            lambda: budget(2**16, 12, 5462),
            r"`modulus_bits` must lie in \[1, 32\]; got 33",
        ),
        (
            lambda: budget(2**16, 2, modulus_bits=16),
            "`modulus` must exceed total weight",
        ),
        (lambda: check_fits(5, 4, 16), r"`modulus` must exceed count .* got 16 and 16"),
    ],
)
def test_a_sum_that_could_wrap_is_an_error(call, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_sums_leave_the_window_exactly_where_they_do() -> None:
    """Without noise nothing is left to chance.

    S less the middle lies in [-R / 2, R / 2) or not.
    """
    for count, levels in itertools.product(range(1, 5), range(2, 7)):
        quantizer, largest = stochastic(levels, 1.0), count * (levels - 1)
        for modulus in range(2, 2 * largest + 4, 2):
            apart = [own - largest // 2 for own in range(largest + 1)]
            fits = -modulus // 2 <= min(apart) and max(apart) < modulus // 2
            chance = wrap_probability(quantizer, None, count, modulus)
            assert chance == (0.0 if fits else 1.0), (count, levels, modulus)


@pytest.mark.smoke
def test_worked_numbers() -> None:
    assert ring_size(12, 20, 1) == ring_size(12, 20) == 221
    assert ring_size(2, 3, [7, 1, 5, 2]) == 7 + 5 + 2 + 1
    # beyond any machine word
    assert largest_total_weight(3, 2**32 - 1) == 3 * (2**32 - 1)
    found = budget(2**10, 4, 50, modulus_bits=20)
    assert (found.total_weight, found.largest_sum) == (200, 200 * 1023)
    assert (found.required_bits, found.headroom) == (18, (2**20 - 1) // 1023 - 200)
    assert "need 18 bits" in str(found)
    assert budget(2**10, 4, 50).modulus == 2**18


@given(
    levels=st.integers(2, 5),
    weights=st.lists(st.integers(0, 4), min_size=2, max_size=4).filter(any),
    data=st.data(),
)
def test_the_largest_sum_is_reached_and_never_passed(levels, weights, data) -> None:
    """Every cohort of `count` clients and every choice of codes, enumerated."""
    count = data.draw(st.integers(1, len(weights)))
    largest = max(
        sum(w * code for w, code in zip(chosen, codes, strict=True))
        for chosen in itertools.combinations(weights, count)
        for codes in itertools.product((0, levels - 1), repeat=count)
    )
    if largest == 0:
        return
    assert ring_size(levels, count, np.asarray(weights)) == largest + 1
    bits = budget(levels, count, weights).required_bits
    assert 2 ** (bits - 1) <= largest < 2**bits
    check_fits(levels, count, largest + 1, weights)
    with pytest.raises(ConfigurationError, match="`modulus` must exceed"):
        check_fits(levels, count, largest, weights)
    found = budget(levels, count, weights, modulus_bits=bits)
    assert found.required_bits == bits
    assert (found.total_weight + found.headroom) * (levels - 1) < 2**bits
    assert (found.total_weight + found.headroom + 1) * (levels - 1) >= 2**bits


@given(st.integers(2, 2**32), st.integers(1, 1000), st.integers(1, 10**6))
def test_the_most_levels_fit_and_one_more_does_not(modulus, count, weight) -> None:
    if modulus <= count * weight:
        with pytest.raises(ConfigurationError, match="`modulus` must exceed"):
            largest_levels(modulus, count, weight)
        return
    levels = largest_levels(modulus, count, weight)
    assert count * weight * (levels - 1) < modulus <= count * weight * levels
    assert (
        ring_size(levels, count, weight)
        <= modulus
        < ring_size(levels + 1, count, weight)
    )
