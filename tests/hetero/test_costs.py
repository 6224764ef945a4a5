"""Costs and losses.

Misuse, the paper's numbers, counted operations, all patterns of losses.
"""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mrsa_jax import secagg
from mrsa_jax.hetero import segment_layout
from mrsa_jax.hetero.costs import segment_costs
from mrsa_watch._base.errors import ConfigurationError

FIVE = partial(segment_layout, "mc", [2] * 5, [2, 3, 3, 4, 5], dim=12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: segment_costs(FIVE(), [True] * 3),
            "`present` must .* bool for each slot",
        ),
        (
            lambda: segment_costs(FIVE(), np.ones(10)),
            "`present` must .* bool for each slot",
        ),
    ],
)
def test_misuse_names_argument_rule_and_value(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


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
                    server_words += size * sum(
                        not summed[other] for other in block.members
                    )
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
    partial(
        segment_layout,
        "sc",
        [2, 3, 2, 4],
        [2, 3, 5, 9],
        dim=11,
        modulus_rule="power_of_two",
    ),
    partial(
        segment_layout,
        "hc",
        [4, 4],
        [2, 4],
        dim=9,
        subgroups=[2, 2],
        hybrid_threshold=2,
    ),
    partial(segment_layout, "groups", [7], [5], dim=6),
]


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LAYOUTS), st.data())
def test_costs_are_those_of_the_operations_one_by_one(layout, data):
    layout = layout()
    number = layout.num_participants
    drawn = data.draw(st.lists(st.booleans(), min_size=number, max_size=number))
    present = np.asarray(drawn)
    costs = segment_costs(layout, present)
    agreements, words, bits, server_agreements, secrets, server_words = counted(
        layout, present
    )
    assert costs.key_agreements.tolist() == agreements
    assert costs.keystream_words.tolist() == words
    assert costs.payload_bits.tolist() == bits
    assert costs.server_key_agreements == server_agreements
    assert costs.server_secrets == secrets
    assert costs.server_keystream_words == server_words
    assert (costs.shares == 2 * number).all()


@pytest.mark.smoke("layout0")
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
    # the protocol charges those whose input arrives
    sent = whole.client.prg_words[2] > 0
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
        # of residues
        bits = [(summed * 15).bit_length() for summed in (2 * size, number)]
        assert (costs.expansion <= bits[0] / 4).all()
        assert (one.expansion == bits[1] / 4).all()
        assert (
            costs.server_keystream_words
            == one.server_keystream_words
            == 2 * dim * number
        )
