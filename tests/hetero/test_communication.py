"""Bits and seconds of a layout's clients, against real messages and the paper's comparison."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mrsa_jax import hetero, protocol
from mrsa_watch._base.errors import ConfigurationError

LEVELS = (2, 4, 8, 10, 12)  # of the paper's Experiment 1: N = 20, G = 5


def experiment(
    scheme: str, dim: int = 199_210, rule: str = "exact"
) -> hetero.SegmentLayout:
    return hetero.segment_layout(scheme, [4] * 5, LEVELS, dim, modulus_rule=rule)


def homogeneous(
    levels: int, dim: int = 199_210, number: int = 20
) -> hetero.SegmentLayout:
    return hetero.segment_layout("groups", [number], [levels], dim)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        (
            [1.0] * 19,
            "`rates_bits_per_second` must have one rate for each slot; got 19 and 20",
        ),
        (
            [1.0] * 19 + [0.0],
            "`rates_bits_per_second` must be positive and finite; got 0.0",
        ),
        ([[1.0] * 20], "`rates_bits_per_second` must be a vector"),
        (["fast"] * 20, "`rates_bits_per_second` must hold numbers"),
    ],
)
def test_misuse_is_named(rates, message):
    with pytest.raises(ConfigurationError, match=message):
        hetero.costs.communication_times(experiment("mc"), rates)


def test_a_small_layout_by_hand():
    """Three groups of two, segments of 3, 2 and 2.

    Rings 5 (3 bits), 15 (4 bits), 3 and so on.
    """
    layout = hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], dim=7)
    times = hetero.costs.communication_times(layout, [1.0, 1.0, 2.0, 3.0, 4.0, 8.0])
    # rows: {0,1} {2} | {0,2} {1} | {0} {1,2}; R = 4+1, 14+1 | 4+1, 6+1 | 2+1, 12+1
    first, second, third = (
        3 * 3 + 2 * 3 + 2 * 2,
        3 * 3 + 2 * 3 + 2 * 4,
        3 * 4 + 2 * 3 + 2 * 4,
    )
    assert times.bits.tolist() == [first] * 2 + [second] * 2 + [third] * 2
    # K of each row: 2 2 2 | 2 4 4 | 8 2 4
    assert times.plain_bits.tolist() == [7] * 2 + [11] * 2 + [9 + 2 + 4] * 2
    assert times.seconds.tolist() == [19.0, 19.0, 23 / 2, 23 / 3, 26 / 4, 26 / 8]
    assert times.group_seconds.tolist() == [19.0, 11.5, 6.5]
    assert (times.slowest_group, times.round_seconds, times.plain_round_seconds) == (
        0,
        19.0,
        7.0,
    )
    assert (
        str(times)
        == "the round waits 19 s for group 0 of 3; the fastest group takes 6.5 s"
    )
    np.testing.assert_allclose(
        times.expansion, np.repeat([19 / 7, 23 / 11, 26 / 15], 2)
    )


@pytest.mark.parametrize("rule", ["exact", "power_of_two"])
@pytest.mark.parametrize("scheme", ["sc", "mc", "groups"])
def test_bytes_are_those_of_messages(scheme, rule):
    layout = experiment(scheme, 23, rule)
    times = hetero.costs.communication_times(layout, np.ones(20))
    for slot in range(20):
        own = [block for block in layout.plan if slot in block.members]
        stretches = tuple((block.stop - block.start, block.modulus) for block in own)
        residues = np.concatenate([np.full(w, r - 1, np.uint32) for w, r in stretches])
        message = protocol.messages.MaskedInput(0, slot, stretches, residues).to_bytes()
        assert len(message) == times.message_bytes[slot]
        assert -(-times.bits[slot] // 8) == len(
            message
        ) - protocol.messages.MaskedInput.size([])


def test_bytes_are_those_of_a_real_round():
    layout = hetero.segment_layout("mc", [2, 3, 2], [2, 4, 8], 11)
    number = layout.num_participants
    adjacency = ~np.eye(number, dtype=bool)
    inputs = np.ones((number, 11), np.int64)
    result = protocol.run(
        inputs, adjacency, np.ones((5, number), bool), 4, entropy=1, plan=layout.plan
    )
    times = hetero.costs.communication_times(layout, np.ones(number))
    assert result.steps[2].bytes_up == times.message_bytes.sum()


@pytest.mark.smoke
def test_experiment_1_takes_the_papers_times():
    """As K = 2 for all and a quarter of K = 12 in plain bits.

    5, 8 and under 4 bits of ring.
    """
    same = np.full(20, 1e6)
    slow = hetero.costs.communication_times(homogeneous(2), same)
    fast = hetero.costs.communication_times(homogeneous(12), same)
    assert slow.plain_round_seconds * 4 == fast.plain_round_seconds
    assert fast.round_seconds / slow.round_seconds == 8 / 5
    for scheme in ("sc", "mc"):
        # groups at rates that the paper's levels go with: as much plain time as the
        # slowest
        rates = np.repeat([1e6 * math.ceil(math.log2(levels)) for levels in LEVELS], 4)
        times = hetero.costs.communication_times(experiment(scheme), rates)
        assert times.plain_round_seconds == slow.plain_round_seconds
        assert times.slowest_group == 0
        # a group by itself needs log2 5, two together log2 9 bits of ring
        shares = np.asarray(
            [row.count(0) for row in zip(*experiment(scheme).matrix, strict=True)]
        )
        alone = 5 - shares[0]
        assert times.bits[0] == 39_842 * (4 * shares[0] + 3 * alone)
        assert times.round_seconds < slow.round_seconds


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "levels", "factor"),
    [(2**14, 2**16, 30 / 16), (14, 2**16, 20 / 16), (2**14, 2, 15.0), (14, 2, 4.0)],
)
def test_expansion_is_the_papers(number, levels, factor):
    """Section VI-A: sums of all 2^14 clients, and of two subgroups of seven."""
    times = hetero.costs.communication_times(
        homogeneous(levels, 3, number), np.ones(number)
    )
    assert set(times.expansion.tolist()) == {factor}
