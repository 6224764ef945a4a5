"""HeteroSAg's closed forms.

As printed, against counting a matrix, and in exact rationals.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import hetero


@pytest.mark.smoke
def test_equations_12_to_14_as_they_are_printed() -> None:
    for size in range(2, 8):
        n, m, total = 3, 2 * size, 3 * size
        levels = [2 + 3 * group for group in range(size)]
        error = [Fraction(1, (level - 1) ** 2) for level in levels]
        factor = Fraction(m * n, 4 * total**2 * size)
        sc = (size + 2) * error[0] + (size - 2) * error[-1] + size * sum(error[1:-1])
        mc = sum((2 * (size - g) - 1) * error[g] for g in range(size))
        assert hetero.scheme_error_bound("sc", levels, n, m) == float(factor * sc)
        assert hetero.scheme_error_bound("mc", levels, n, m) == float(factor * mc)
        for t in range(1, size):
            g_t = size - t - 1
            hc = (t + 2) * error[g_t] + t * error[-1]
            hc += sum((2 * (size - g) - 1) * error[g] for g in range(g_t))
            hc += sum((t + 1) * error[g] for g in range(g_t + 1, size - 1))
            bound = hetero.scheme_error_bound("hc", levels, n, m, hybrid_threshold=t)
            assert bound == float(factor * hc)


def test_equations_16_to_18_count_what_the_matrices_say() -> None:
    wrong = compared = 0
    for groups in range(1, 4):
        for parts in itertools.product(range(1, 5 - groups // 3), repeat=groups):
            total = sum(parts)
            levels = [2 + group * (group + 1) for group in range(groups)]
            columns = [
                level
                for level, part in zip(levels, parts, strict=True)
                for _ in range(part)
            ]
            cases = [("sc", None), ("mc", None), *(("hc", t) for t in range(1, total))]
            for scheme, threshold in cases if total > 1 else []:
                closed = [
                    hetero.scheme_error_bound(
                        scheme,
                        levels,
                        2,
                        3 * total,
                        subgroups=parts,
                        hybrid_threshold=threshold,
                        as_printed=as_printed,
                    )
                    for as_printed in (False, True)
                ]
                matrix = mj.hetero.segment_matrix_plus(scheme, parts, threshold)
                truth = mj.hetero.quantization_error_bound(
                    matrix, columns, 2, 3 * total
                )
                assert closed[0] == truth, (scheme, parts, threshold)
                in_last = scheme == "hc" and total - threshold - 1 >= total - parts[-1]
                assert (closed[1] != truth) == in_last, (scheme, parts, threshold)
                wrong, compared = wrong + in_last, compared + 1
    assert (wrong, compared) == (57, 297)


def test_the_papers_expansion_factors_and_its_formula() -> None:
    everybody, pair = 2**14, 14
    factors = [
        hetero.costs.expansion_factor(levels, summed)
        for levels in (2**16, 2)
        for summed in (everybody, pair)
    ]
    assert factors == [1.875, 1.25, 15.0, 4.0]
    exact = [
        hetero.costs.expansion_factor(levels, summed, rounded=False)
        for levels in (2**16, 2)
        for summed in (everybody, pair)
    ]
    assert np.round(exact, 6).tolist() == [1.874999, 1.237958, 14.000088, 3.906891]
    assert all(0 <= up - real < 1 for up, real in zip(factors, exact, strict=True))
    assert hetero.costs.expansion_factor(2, 1) == 1.0


@pytest.mark.parametrize(
    ("size", "rate", "wanted"),
    [
        (4, 0.1, 0.9963),
        (4, 0.2, 0.9728),
        (4, 0.5, 0.6875),
        (7, 0.1, 0.9999936),
        (7, 0.2, 0.9996288),
        (7, 0.5, 0.9375),
    ],
)
def test_theorem_4_for_one_subgroup_and_for_all(
    size: int, rate: float, wanted: float
) -> None:
    one = hetero.costs.survival_probability(size, rate)
    assert one == pytest.approx(wanted, abs=1e-12)
    exact = 1 - sum(
        math.comb(size, left)
        * (1 - Fraction(rate)) ** left
        * Fraction(rate) ** (size - left)
        for left in (0, 1)
    )
    for count in (2, 31):
        every = hetero.costs.survival_probability(size, rate, count)
        assert every == pytest.approx(float(exact**count), rel=1e-13)


def test_extreme_rates() -> None:
    assert hetero.costs.survival_probability(3, 0.0) == 1.0
    assert hetero.costs.survival_probability(3, 1.0, 4) == 0.0
    assert hetero.costs.survival_probability(1, 0.0) == 0.0  # one client is never two
