"""Cohorts mapped to groups: by hand, and what must hold for any cohort."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from fixed_groups import fixed_groups

import mrsa_jax as mj
from mrsa_jax.hetero import cohort_layouts, ranked_groups

EVERYBODY = [[1, 1, 1, 1, 1, 1]]
THREE = [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ranked_groups([1, 1], [1, 1], 1),
            r"`cohorts` must hold zeros and ones, \[rounds",
        ),
        (
            lambda: ranked_groups([[0.5, 1]], [1, 1], 1),
            "`cohorts` must hold zeros and ones",
        ),
        (
            lambda: ranked_groups([[2, 1]], [1, 1], 1),
            "`cohorts` must hold zeros and ones.*got 2",
        ),
        (
            lambda: ranked_groups(EVERYBODY, THREE, 2, too_small="merg"),
            "`too_small` must be a known rule: did you mean 'merge'",
        ),
        (
            lambda: ranked_groups(EVERYBODY, THREE, 2, smallest=1),
            "`smallest` must be at least 2",
        ),
        (
            lambda: ranked_groups(EVERYBODY, THREE, 2, aligned=True),
            "`aligned` must be used together with",
        ),
        (lambda: ranked_groups(EVERYBODY, THREE, 2, blocks=0), "`blocks`"),
        (
            lambda: ranked_groups(EVERYBODY, THREE, 2, blocks=[0, 0]),
            "`blocks` must be a block",
        ),
        (
            lambda: ranked_groups(EVERYBODY, [1.0, 2.0], 2),
            "`rates` must be one finite number",
        ),
        (
            lambda: ranked_groups([[1, 1]], [1.0, np.nan], 2),
            "`rates` must be one finite number",
        ),
        (
            lambda: ranked_groups(EVERYBODY, np.ones(6), 0),
            "`num_groups` must be at least 1",
        ),
        (
            lambda: cohort_layouts("mc", fixed_groups(EVERYBODY, THREE), [2, 4], 9),
            "`rounds` must have as many groups as levels; got 3 and 2 and 'round 0'",
        ),
        (
            lambda: cohort_layouts(
                "mc",
                fixed_groups(EVERYBODY, THREE),
                [2, 4, 8],
                9,
                empty_groups="hide",
            ),
            "`empty_groups` must be",
        ),
    ],
)
def test_rejects(call, message) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


@pytest.mark.smoke("cohort1-merge-members1-groups1-out1")
@pytest.mark.parametrize(
    ("cohort", "too_small", "members", "groups", "out"),
    [
        ([1, 1, 1, 1, 1, 1], "merge", (0, 1, 2, 3, 4, 5), ((0, 1), (2, 3), (4, 5)), ()),
        # one of the fastest joins the next slower
        ([1, 1, 1, 1, 1, 0], "merge", (0, 1, 2, 3, 4), ((0, 1), (2, 3, 4), ()), ()),
        # which is two steps down where the middle one is empty
        ([1, 1, 0, 0, 0, 1], "merge", (0, 1, 5), ((0, 1, 2), (), ()), ()),
        # the slowest cannot join a faster one: that joins it
        ([1, 0, 1, 1, 1, 1], "merge", (0, 2, 3, 4, 5), ((0, 1, 2), (), (3, 4)), ()),
        # two lonely ones make a group, at the slower one's levels
        ([0, 0, 1, 0, 1, 0], "merge", (2, 4), ((), (0, 1), ()), ()),
        ([1, 0, 1, 0, 1, 1], "merge", (0, 2, 4, 5), ((0, 1), (), (2, 3)), ()),
        ([0, 0, 1, 0, 0, 0], "merge", (), ((), (), ()), (2,)),
        ([0, 0, 0, 0, 0, 0], "merge", (), ((), (), ()), ()),
        ([1, 1, 1, 1, 1, 0], "sit_out", (0, 1, 2, 3), ((0, 1), (2, 3), ()), (4,)),
        ([1, 0, 1, 0, 1, 0], "sit_out", (), ((), (), ()), (0, 2, 4)),
        ([1, 1, 1, 1, 1, 0], "skip", (), ((), (), ()), (0, 1, 2, 3, 4)),
        ([1, 1, 0, 0, 1, 1], "skip", (0, 1, 4, 5), ((0, 1), (), (2, 3)), ()),
    ],
)
def test_groups_that_are_too_small(cohort, too_small, members, groups, out) -> None:
    (found,) = fixed_groups([cohort], THREE, too_small=too_small)
    assert found.members == members
    assert found.groups == groups
    assert found.sitting_out == out
    assert found.present == tuple(g for g in range(3) if groups[g])


def test_ranks_are_taken_anew_each_round() -> None:
    rates = [30, 10, 20, 20, 40, 5]  # slowest first: 5 1 2 3 0 4
    first, second, third = ranked_groups(
        [[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 0], [1, 1, 1, 0, 1, 1]], rates, 2
    )
    assert first.groups == ((1, 2, 5), (0, 3, 4))
    assert second.members == (0, 2, 3, 4)
    assert second.groups == ((1, 2), (0, 3))
    assert third.members == (0, 1, 2, 4, 5)
    assert third.groups == ((1, 2, 4), (0, 3))  # the slowest take the odd one


def test_small_cohorts_of_ranks_merge() -> None:
    (found,) = ranked_groups(EVERYBODY, [1, 2, 3, 4, 5, 6], 5)  # sizes 2, 1, 1, 1, 1
    assert found.groups == ((0, 1), (2, 3), (), (4, 5), ())


def test_split_blocks_are_reported() -> None:
    def split(cohort, group_of, **options):
        return fixed_groups([cohort], group_of, blocks=2, **options)[0].split_blocks

    assert split([1] * 6, THREE) == ()
    assert split([1] * 6, [0, 1, 1, 1, 0, 1]) == (0, 2)
    assert split([1, 1, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]) == ()  # block 1 was not asked
    # half of it was: no scheme of blocks
    assert split([1, 1, 1, 0, 1, 1], [0] * 6) == (1,)
    assert split([1] * 6, [0, 0, 0, 0, 1, 0], too_small="sit_out") == (2,)
    numbers = [1, 0, 0, 1, 1, 0]  # blocks {1, 2, 5} and {0, 3, 4}
    groups = [0, 1, 1, 0, 0, 1]
    assert fixed_groups([[1] * 6], groups, blocks=numbers)[0].split_blocks == ()
    groups = [0, 1, 0, 0, 0, 1]
    assert fixed_groups([[1] * 6], groups, blocks=numbers)[0].split_blocks == (0,)


def test_blocks_align_with_their_slowest_client() -> None:
    rates = [9, 1, 8, 7, 2, 6, 5, 4]  # blocks' slowest: 1 7 2 4
    (found,) = ranked_groups([[1] * 8], rates, 2, blocks=2, aligned=True)
    assert found.groups == ((0, 1, 4, 5), (2, 3, 6, 7))


@hypothesis.given(st.integers(0, 2**32 - 1))
def test_what_holds_for_any_cohort(seed) -> None:
    rng = np.random.default_rng(seed)
    clients, count = int(rng.choice([4, 11, 24])), int(rng.integers(1, 6))
    cohorts = rng.random((3, clients)) < rng.random()
    rule = ("merge", "sit_out", "skip")[seed % 3]
    size = int(rng.integers(1, 4))
    blocks, aligned = np.arange(clients) // size, bool(rng.integers(2))
    whole = cohorts.copy()  # whole blocks only, as batch partitioning selects
    for block in range(blocks.max() + 1):
        whole[:, blocks == block] = whole[:, blocks == block][:, :1]
    group_of = rng.integers(0, count, clients)
    rates = rng.integers(1, 9, clients)
    options = {"too_small": rule, "blocks": size}
    fixed = fixed_groups(whole, group_of, num_groups=count, **options)
    ranked = ranked_groups(whole, rates, count, **options, aligned=aligned)
    for found in (fixed, ranked):
        for cohort, own in zip(whole, found, strict=True):
            slots = sorted(slot for group in own.groups for slot in group)
            assert slots == list(range(len(own.members)))
            assert (
                sorted(own.members + own.sitting_out) == np.flatnonzero(cohort).tolist()
            )
            assert len(own.groups) == count
            assert all(len(own.groups[group]) >= 2 for group in own.present)
            assert not (aligned and found is ranked and own.split_blocks)
            if rule == "merge":
                assert (len(own.members) == 0) == (cohort.sum() < 2)
    for own in fixed:  # merged by whole groups, and towards the slower one
        for number, group in enumerate(own.groups):
            original = {int(group_of[own.members[slot]]) for slot in group}
            if original:
                assert number == min(original)
            for other in own.groups[:number]:
                assert original.isdisjoint(
                    group_of[own.members[slot]] for slot in other
                )
    for own in ranked:  # a slower group has no faster client, and sizes are even
        present = [
            [rates[own.members[slot]] for slot in own.groups[g]] for g in own.present
        ]
        if not aligned:
            assert all(max(a) <= min(b) for a, b in itertools.pairwise(present))
            if len(own.present) == count:
                sizes = [len(group) for group in own.groups]
                assert max(sizes) - min(sizes) <= 1


def test_rounds_become_layouts() -> None:
    cohorts = [
        [1] * 6,
        [1, 1, 0, 0, 1, 1],
        [1] * 6,
        [1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
    ]
    rounds = fixed_groups(cohorts, THREE)
    kept = cohort_layouts("mc", rounds, [2, 4, 8], 10, modulus_rule="power_of_two")
    assert kept[0] is kept[2]
    assert kept[4] is None
    assert [layout.num_segments for layout in kept[:4]] == [3, 3, 3, 3]
    assert all(
        len(block.members) >= 2 for layout in kept[:4] for block in layout.blocks
    )
    assert kept[1].plan[0].modulus in (2, 4, 8, 16, 32, 64)
    dropped = cohort_layouts(
        "hc", rounds, [2, 4, 8], 10, hybrid_threshold=2, empty_groups="drop"
    )
    assert [layout.num_segments for layout in dropped[:4]] == [3, 2, 3, 1]
    assert dropped[1].levels == (2, 8)
    assert dropped[3].levels == (2,)
    assert [block.members for block in dropped[3].blocks] == [(0, 1, 2)]
