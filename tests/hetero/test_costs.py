"""Costs and losses: misuse, the paper's numbers, counted operations, all patterns of losses."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mrsa_jax import secagg
from mrsa_jax.hetero import segment_layout
from mrsa_jax.hetero.costs import (
    expansion_factor,
    segment_costs,
    survival_probability,
)
from mrsa_watch._base.errors import ConfigurationError

FIVE = partial(segment_layout, "mc", [2] * 5, [2, 3, 3, 4, 5], dim=12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expansion_factor(1, 4), "`num_levels` must be at least 2; got 1"),
        (lambda: expansion_factor(2, 0), "`num_summed` must be at least 1; got 0"),
        (lambda: survival_probability(0, 0.1), "`subgroup_size` must be at least 1; got 0"),
        (lambda: survival_probability(4, 1.1), r"`dropout_rate` must lie in \[0, 1\]; got"),
        (lambda: survival_probability(4, math.nan), r"`dropout_rate` must lie in \[0, 1\]"),
        (lambda: survival_probability(4, 0.1, 0), "`num_subgroups` must be at least 1"),
        (lambda: segment_costs(FIVE(), [True] * 3), "`present` must .* bool for each slot"),
        (lambda: segment_costs(FIVE(), np.ones(10)), "`present` must .* bool for each slot"),
    ],
)  # fmt: skip
def test_misuse_names_argument_rule_and_value(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_the_papers_expansion_factors_and_its_formula():
    everybody, pair = 2**14, 14
    factors = [expansion_factor(levels, summed)
               for levels in (2**16, 2) for summed in (everybody, pair)]  # fmt: skip
    assert factors == [1.875, 1.25, 15.0, 4.0]
    exact = [expansion_factor(levels, summed, rounded=False)
             for levels in (2**16, 2) for summed in (everybody, pair)]  # fmt: skip
    assert np.round(exact, 6).tolist() == [1.874999, 1.237958, 14.000088, 3.906891]
    assert all(0 <= up - real < 1 for up, real in zip(factors, exact, strict=True))
    assert expansion_factor(2, 1) == 1.0


@pytest.mark.parametrize(
    ("size", "rate", "wanted"),
    [(4, 0.1, 0.9963), (4, 0.2, 0.9728), (4, 0.5, 0.6875), (7, 0.1, 0.9999936),
     (7, 0.2, 0.9996288), (7, 0.5, 0.9375)],
)  # fmt: skip
def test_theorem_4_for_one_subgroup_and_for_all(size, rate, wanted):
    one = survival_probability(size, rate)
    assert one == pytest.approx(wanted, abs=1e-12)
    exact = 1 - sum(math.comb(size, left) * (1 - Fraction(rate)) ** left
                    * Fraction(rate) ** (size - left) for left in (0, 1))  # fmt: skip
    for count in (2, 31):
        every = survival_probability(size, rate, count)
        assert every == pytest.approx(float(exact**count), rel=1e-13)


def test_extreme_rates():
    assert survival_probability(3, 0) == 1.0
    assert survival_probability(3, 1, 4) == 0.0
    assert survival_probability(1, 0) == 0.0  # one client is never two


def counted(layout, present):
    """Return operations by going through every pair, block and coordinate."""
    number = layout.num_participants
    summed = secagg.admitted(layout.plan, present)
    words, bits = [0] * number, [0] * number
    pads, server_words = [set() for _ in range(number)], 0
    recovered = set()
    for block in layout.plan:
        for client in block.members:
            for _ in range(block.start, block.stop):
                bits[client] += math.ceil(math.log2(block.modulus))
                size = 1 if math.log2(block.modulus).is_integer() else 2
                words[client] += size * len(block.members)
                if summed[client]:
                    server_words += size  # its self pad
                    server_words += size * sum(not summed[other] for other in block.members)
            for other in block.members:
                if other != client:
                    pads[client].add(other)
                    if summed[client] and not summed[other]:
                        recovered.add((client, other))
    agreements = [number - 1 + len(own) for own in pads]
    secrets = int(summed.sum()) + len({lost for _, lost in recovered})
    return agreements, words, bits, len(recovered), secrets, server_words


LAYOUTS = [
    FIVE,
    partial(segment_layout, "sc", [2, 3, 2, 4], [2, 3, 5, 9], dim=11, modulus_rule="power_of_two"),
    partial(segment_layout, "hc", [4, 4], [2, 4], dim=9, subgroups=[2, 2], hybrid_threshold=2),
    partial(segment_layout, "groups", [7], [5], dim=6),
]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LAYOUTS), st.data())
def test_costs_are_those_of_the_operations_one_by_one(layout, data):
    layout = layout()
    number = layout.num_participants
    drawn = data.draw(st.lists(st.booleans(), min_size=number, max_size=number))
    present = np.asarray(drawn)
    costs = segment_costs(layout, present)
    agreements, words, bits, server_agreements, secrets, server_words = counted(layout, present)
    assert costs.key_agreements.tolist() == agreements
    assert costs.keystream_words.tolist() == words
    assert costs.payload_bits.tolist() == bits
    assert costs.server_key_agreements == server_agreements
    assert costs.server_secrets == secrets
    assert costs.server_keystream_words == server_words
    assert (costs.shares == 2 * number).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_costs_are_those_of_the_protocols_own_count(layout):
    layout = layout()
    number = layout.num_participants
    present = np.arange(number) % 3 > 0
    survivors = np.ones((5, number), bool)
    survivors[3:] = present
    everybody = ~np.eye(number, dtype=bool)
    whole = secagg.round_costs(everybody, survivors, number // 2 + 1, plan=layout.plan)
    costs = segment_costs(layout, present)
    assert costs.server_keystream_words == whole.server.prg_words.sum()
    assert costs.server_key_agreements == whole.server.key_agreements.sum()
    sent = whole.client.prg_words[2] > 0  # the protocol charges those whose input arrives
    assert (sent == present).all()
    assert (costs.keystream_words[sent] == whole.client.prg_words[2, sent]).all()
    agreements = whole.client.key_agreements.sum(axis=0)
    assert (costs.key_agreements[sent] == agreements[sent]).all()


def test_pads_of_a_scheme_cost_what_section_6a_says():
    """O(n-bar m) words for a user instead of N m, and rings of 2 n-bar clients at most."""
    size, groups, dim = 4, 16, 16 * 9
    number = size * groups
    one = segment_costs(segment_layout("groups", [number], [16], dim))
    for scheme in ("sc", "mc"):
        layout = segment_layout(scheme, [size] * groups, [16] * groups, dim)
        costs = segment_costs(layout)
        assert (costs.keystream_words <= 2 * dim * 2 * size).all()
        assert (one.keystream_words == 2 * dim * number).all()
        assert (costs.key_agreements <= one.key_agreements).all()
        largest = expansion_factor(16, 2 * size)
        assert (costs.expansion <= largest).all()
        assert (one.expansion == expansion_factor(16, number)).all()
        assert costs.server_keystream_words == one.server_keystream_words == 2 * dim * number
