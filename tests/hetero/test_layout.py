"""Layouts: who sums which coordinates with whom, from the paper's matrices and by counting."""

import itertools

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.hetero import segment_layout, segment_matrix


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": [1, 2, 3]}, r"`levels` must lie in \[2, 2\*\*23\]; got 1"),
        (
            {"levels": [2, 3, 2**23 + 1]},
            r"`levels` must lie in \[2, 2\*\*23\]; got 8388609",
        ),
        ({"levels": [4, 2, 8]}, r"`levels` must not descend .* got \[4, 2, 8\]"),
        ({"levels": [2, 4]}, "`levels` must be one for each group; got 2 and 3"),
        ({"levels": np.asarray([2.5, 3, 4])}, "`levels` must be an integer; got .*2.5"),
        ({"dim": 2}, "`dim` must be at least the segments; got 2 and 3"),
        ({"groups": [2, 2, 1]}, "`groups` must leave two clients or more .* got 1"),
        (
            {"groups": [[0, 1], [2, 3], [5, 6]]},
            "`groups` must hold the slots 0 to n - 1",
        ),
        (
            {"groups": [[0, 1], [1, 2], [3, 4]]},
            "`groups` must hold the slots 0 to n - 1",
        ),
        (
            {"subgroups": [1, 2]},
            "`subgroups` must be one number for each group; got 2 and 3",
        ),
        ({"subgroups": [1, 1, 2]}, "`groups` must leave two clients or more .* got 1"),
        ({"scheme": "mcc"}, "`scheme` must be one of sc, mc, hc, groups"),
        ({"scheme": [[0, 0], [-1, -1]]}, "`scheme` must have a column for each group"),
        (
            {"scheme": "groups", "hybrid_threshold": 1},
            '`hybrid_threshold` must be given for "hc"',
        ),
        (
            {"groups": [200, 200, 200], "levels": [2, 2**23, 2**23]},
            r"`levels` must leave each block a ring below 2\*\*31 .* got '8388608 "
            r"levels for 400",
        ),
    ],
)
def test_rejects_what_makes_no_round(arguments, message):
    defaults = {"scheme": "sc", "groups": [2, 2, 2], "levels": [2, 4, 8], "dim": 9}
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_layout(**(defaults | arguments))


def test_small_groups_where_asked_for():
    layout = segment_layout("sc", [2, 1, 0], [2, 4, 8], 9, allow_small_groups=True)
    assert layout.num_participants == 3
    assert all(block.members for block in layout.blocks)


@pytest.mark.smoke
def test_single_chain_of_three_by_hand():
    # rows of B_SC: 0 0 * / * 1 1 / 0 * 0
    layout = segment_layout("sc", [[4, 0], [1, 5, 2], [3, 6]], [2, 4, 9], dim=8)
    found = [
        (b.segment, b.members, (b.start, b.stop), b.num_levels, b.modulus)
        for b in layout.blocks
    ]
    assert found == [
        (0, (0, 1, 2, 4, 5), (0, 3), 2, 6),
        (0, (3, 6), (0, 3), 9, 17),
        (1, (0, 4), (3, 6), 2, 3),
        (1, (1, 2, 3, 5, 6), (3, 6), 4, 16),
        (2, (0, 3, 4, 6), (6, 8), 2, 5),
        (2, (1, 2, 5), (6, 8), 4, 10),
    ]
    assert layout.levels_of().tolist() == [
        [2, 2, 2, 9, 2, 2, 9],
        [2, 4, 4, 4, 2, 4, 4],
        [2, 4, 4, 2, 2, 4, 2],
    ]
    assert [block.modulus for block in layout.plan] == [6, 17, 3, 16, 5, 10]


def test_powers_of_two_hold_the_same_sums():
    exact = segment_layout("mc", [3, 4, 5], [2, 5, 9], 10)
    power = segment_layout("mc", [3, 4, 5], [2, 5, 9], 10, modulus_rule="power_of_two")
    for small, large in zip(exact.blocks, power.blocks, strict=True):
        bits = (small.modulus - 1).bit_length()
        assert large.modulus == 2**bits
        assert small.members == large.members


@pytest.mark.parametrize("scheme", ["sc", "mc", "groups"])
@pytest.mark.parametrize(("groups", "dim"), [([2, 3, 2, 4], 11), ([2, 2, 2, 2, 2], 5)])
def test_every_client_is_in_one_block_of_each_segment(scheme, groups, dim):
    count = len(groups)
    layout = segment_layout(scheme, groups, list(range(2, 2 + count)), dim)
    bounds = layout.bounds
    assert (bounds[0][0], bounds[-1][1]) == (0, dim)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    widths = [stop - start for start, stop in bounds]
    assert max(widths) - min(widths) <= 1
    covered = np.zeros((layout.num_participants, dim), int)
    for block in layout.blocks:
        covered[list(block.members), block.start : block.stop] += 1
    assert (covered == 1).all()


def test_plain_groups_sum_whole_updates():
    layout = segment_layout("groups", [2, 3], [2, 4], 7)
    assert [(b.members, b.start, b.stop, b.modulus) for b in layout.blocks] == [
        ((0, 1), 0, 7, 3),
        ((2, 3, 4), 0, 7, 10),
    ]


def test_subgroups_follow_the_matrix_over_them():
    layout = segment_layout("mc", [4, 5], [2, 4], 9, subgroups=[2, 1])
    assert layout.columns == ((0, 1), (2, 3), (4, 5, 6, 7, 8))
    assert layout.levels == (2, 2, 4)
    assert np.array_equal(layout.matrix, segment_matrix("mc", 3))


def test_rows_hold_what_the_blocks_do():
    layout = segment_layout("mc", [2, 3, 2, 2], [2, 4, 5, 9], 10)
    for segment, row in enumerate(zip(*layout.rows, strict=True)):
        row = type(layout.rows)(*row)
        own = [block for block in layout.blocks if block.segment == segment]
        assert (int(row.segment), len(row.slots)) == (segment, len(row.moduli))
        for place, block in enumerate(own):
            slots = row.slots[place]
            assert slots[slots < 9].tolist() == list(block.members)
            assert layout.blocks[row.number[place]] == block
            assert (row.block_levels[place], row.moduli[place]) == (
                block.num_levels,
                block.modulus,
            )
            assert (row.modulus_of[list(block.members)] == block.modulus).all()
        assert (row.slots[len(own) :] == 9).all()
        assert (row.number[len(own) :] == len(layout.blocks)).all()
        assert set(row.rings.tolist()) - {1} == {block.modulus for block in own}
        assert row.levels.tolist() == layout.levels_of()[segment].tolist()


def test_layouts_are_values():
    one, two = (segment_layout("sc", [2, 2], [2, 4], 5) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != segment_layout("sc", [2, 2], [2, 4], 6)
