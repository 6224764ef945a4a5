"""CCESA's counts of bandwidth: as printed, and against what rounds really send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inside import inside

import mrsa_jax as mj
from mrsa_jax import secagg

costs = inside("ccesa.table1")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: secagg.costs.printed_bits(-1),
            "`degree` must be finite and at least 0",
        ),
        (
            lambda: secagg.costs.turbo_aggregate_bits(5, 9, 32, 6),
            "`num_groups` must lie",
        ),
        (lambda: secagg.costs.turbo_aggregate_bits(5, 0), "`dim` must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(call: Any, words: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=words):
        call()


def test_the_papers_bandwidths() -> None:
    """Verified: E|Adj| = (n - 1) p* at q = 0, printed p*.

    Ratios .638, .412, .333, .249.
    """
    for n, p, ratio in (
        (100, 0.6362, 0.638),
        (300, 0.4109, 0.412),
        (500, 0.3327, 0.333),
    ):
        own = secagg.costs.printed_bits((n - 1) * p) / secagg.costs.printed_bits(n - 1)
        assert own == pytest.approx(ratio, abs=5e-4)
    assert secagg.costs.printed_bits(99) == 178176
    # p* to 4 digits
    assert secagg.costs.printed_bits(99 * 0.6362) == pytest.approx(113639.5, abs=20)
    for n in (2, 57, 1000):
        assert secagg.costs.printed_bits(n - 1) == 2 * n * 256 + (5 * n - 4) * 256


@pytest.mark.parametrize("degree", [1, 4, 12])
def test_the_wires_terms_add_up_to_what_is_sent(degree: int) -> None:
    n = degree + 1
    counted = mj.secagg.round_costs(
        ~np.eye(n, dtype=bool), np.ones((5, n), bool), 2, dim=8, modulus=2**16
    )
    sent = int(counted.bytes_up[:, 0].sum() + counted.bytes_down[:, 0].sum()) - 16
    terms = costs.wire_terms(degree)
    assert sum(terms.values()) == sent
    paper = terms["public keys"] + terms["shares"]
    assert 8 * paper == 2 * (degree + 1) * 256 + (5 * degree + 1) * 256
    assert 1 < sent / paper < 2
