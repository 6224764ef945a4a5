"""What segments' sums leak over rounds, against exact rationals and against a real attack."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from fixed_groups import fixed_groups

import mrsa_jax as mj
from mrsa_jax.hetero import (
    cohort_layouts,
    ranked_groups,
    segment_layout,
    segment_leakage,
    segment_matrix,
    segment_participation,
)
from mrsa_jax.hetero._leakage import SegmentLeakage, SumLeakage

PAIRS = partial(segment_layout, "mc", [2, 2, 2], [2, 4, 8], 7)
OTHER = partial(segment_layout, "mc", [2, 2], [2, 4], 6)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PAIRS,), {}, "`num_rounds` must be given where nothing else says it"),
        ((PAIRS,), {"num_rounds": 0}, "`num_rounds` must be at least 1; got 0"),
        (([],), {}, "`layouts` must hold a round; got 0"),
        (([None],), {}, "`layouts` must hold a round that is not skipped"),
        (
            ([PAIRS, OTHER],),
            {},
            "`layouts` must be of one length of updates; got 6 and 7",
        ),
        (
            ([PAIRS, PAIRS], np.ones((3, 6), bool)),
            {},
            "`survivors` must be for as many rounds as `layouts`; got 3 and 2",
        ),
        (
            (PAIRS, [[1, 1]]),
            {},
            "`survivors` must be V3, or V0 to V4.*round 0.*6 slots",
        ),
        ((PAIRS, [[1, 1, 1, 1, 1, 2]]), {}, "`survivors` must be V3.*got 2"),
        ((PAIRS, [[0.5] * 6]), {}, "`survivors` must be V3.*float64"),
        ((PAIRS,), {"members": [[0, 1]]}, "`members` must be one client for each slot"),
        (
            (PAIRS,),
            {"members": [[0, 1, 2, 3, 4, 4]]},
            "`members` must be different numbers",
        ),
        (
            (PAIRS,),
            {"num_rounds": 1, "num_clients": 5},
            "`num_clients` must be more than every client in `members`; got 5",
        ),
        (
            (PAIRS,),
            {"status": [[0, 0]]},
            "`status` must be a code for each round.*6 blocks",
        ),
        ((PAIRS,), {"status": [0.0]}, "`status` must be a code"),
    ],
)
def test_rejects(arguments, options, message) -> None:
    arguments = jax.tree.map(lambda leaf: leaf() if callable(leaf) else leaf, arguments)
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_participation(*arguments, **options)


def test_rejects_an_effort_that_is_none() -> None:
    history = segment_participation(PAIRS(), num_rounds=1)
    with pytest.raises(mj.ConfigurationError, match="`effort`"):
        segment_leakage(history, effort=-1.0)


@pytest.mark.smoke
def test_rows_by_hand() -> None:
    """MC with three groups: row l pairs i with l + 1 - i mod 3."""
    history = segment_participation(PAIRS(), [[1] * 6, [1, 1, 1, 0, 1, 1]])
    assert history.bounds == ((0, 3), (3, 5), (5, 7))
    assert np.allclose(history.shares, [3 / 7, 2 / 7, 2 / 7])
    both = [  # segment 0: {0, 1}, {2}; 1: {0, 2}, {1}; 2: {0}, {1, 2}
        [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]],
        [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]],
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]],
    ]
    # client 3 is lost; 2 would be alone in segment 1, and so is lost in all of them
    then = [
        [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]],
        [[1, 1, 0, 0, 1, 1]],
        [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]],
    ]
    for segment in range(3):
        found = history.participation[segment].astype(int).tolist()
        assert found == both[segment] + then[segment]
        assert history.rounds[segment].tolist() == [0, 0] + [1] * len(then[segment])
    assert history.blocks[1].tolist() == [2, 3, 2]  # block 3 had nobody left in round 1
    assert history.plain.astype(int).tolist() == [[1] * 6, [1, 1, 1, 0, 1, 1]]


def test_all_five_rows_are_read_by_the_fourth() -> None:
    rows = np.ones((2, 5, 6), bool)
    rows[1, 3:, 3] = False  # V3 and V4
    rows[0, 4, 2] = False  # lost after its input arrived: it is in the sum
    one = segment_participation(PAIRS(), rows)
    other = segment_participation(PAIRS(), rows[:, 3])
    for a, b in zip(one.participation, other.participation, strict=True):
        assert np.array_equal(a, b)
    assert one.participation[0][0].all() == other.participation[0][0].all()
    assert one.plain[0].all()


def test_what_failed_was_not_learnt() -> None:
    failed = int(mj.Status.UNRELIABLE)
    history = segment_participation(PAIRS(), status=[0, failed, 0])
    assert history.rounds[0].tolist() == [0, 0, 2, 2]
    assert history.plain.any(axis=1).tolist() == [True, False, True]
    history = segment_participation(PAIRS(), status=[[0, failed, 0, 0, failed, failed]])
    assert [rows.sum() for rows in history.participation] == [4, 6, 0]
    assert history.plain.all()
    found = segment_leakage(history)
    assert [own.strong for own in found.segments] == [4, 2, None]
    assert [own.weak_upper for own in found.segments] == [4, 2, None]
    assert found.strong == found.weak_upper == 2
    assert found.first_any == found.first_whole == -1


def test_clients_of_the_slots_and_skipped_rounds() -> None:
    history = segment_participation(
        [PAIRS(), None, PAIRS()],
        members=[[9, 7, 5, 3, 1, 0], [], [0, 1, 2, 3, 4, 5]],
        num_clients=11,
    )
    assert history.participation[0].shape == (4, 11)
    assert np.flatnonzero(history.participation[0][0]).tolist() == [3, 5, 7, 9]
    assert history.rounds[0].tolist() == [0, 0, 2, 2]
    same = segment_participation(PAIRS(), members=[4, 5, 6, 7, 8, 9], num_rounds=2)
    assert same.participation[0].shape == (4, 10)
    assert not same.participation[0][:, :4].any()


def test_layouts_that_cut_differently_are_refined() -> None:
    three = segment_layout("sc", [2, 2, 2], [2, 4, 8], 6)  # cuts at 2 and 4
    two = segment_layout("mc", [2, 4], [2, 4], 6)  # cut at 3
    history = segment_participation([three, two])
    assert history.bounds == ((0, 2), (2, 3), (3, 4), (4, 6))
    for piece, (start, stop) in enumerate(history.bounds):
        rows = []
        for layout in (three, two):
            for block in layout.blocks:
                if block.start <= start and stop <= block.stop:
                    rows.append(np.isin(np.arange(6), block.members))
        assert np.array_equal(history.participation[piece], rows)


# The oracle: who sums with whom from the printed matrix, lonely clients one by one, row
# spaces in fractions.


def learnt_sets(matrix, groups, sends):
    """Return the sets summed for each row of the matrix, in terms of slots."""
    blocks = []
    for row in matrix:
        labels = {(int(x) if x >= 0 else f"alone {g}") for g, x in enumerate(row)}
        name = [int(x) if x >= 0 else f"alone {g}" for g, x in enumerate(row)]
        blocks.append(
            [
                {s for g, group in enumerate(groups) if name[g] == label for s in group}
                for label in labels
            ]
        )
    left = set(sends)
    while lonely := [
        s for row in blocks for b in row if len(b & left) == 1 for s in b & left
    ]:
        left.discard(lonely[0])
    return [[b & left for b in row if b & left] for row in blocks]


def in_span(rows, vector) -> bool:
    basis: list[tuple[int, list[Fraction]]] = []

    def reduce(values):
        values = [Fraction(int(x)) for x in values]
        for pivot, other in basis:
            factor = values[pivot]
            values = [a - factor * b for a, b in zip(values, other, strict=True)]
        return values

    for row in rows:
        row = reduce(row)
        pivot = next((k for k, x in enumerate(row) if x), None)
        if pivot is not None:
            basis.append((pivot, [x / row[pivot] for x in row]))
    return not any(reduce(vector))


def smallest_support(rows, clients: int) -> int | None:
    """Weak privacy.

    The fewest clients such that without their columns the rank is smaller.
    """

    def rank(columns):
        kept = [[int(row[c]) for c in columns] for row in rows]
        found = [row for k, row in enumerate(kept) if not in_span(kept[:k], row)]
        return len(found)

    full = rank(range(clients))
    for size in range(1, clients + 1):
        for gone in itertools.combinations(range(clients), size):
            if rank([c for c in range(clients) if c not in gone]) < full:
                return size
    return None


def setting(seed):
    """Return layouts, members, survivors and, for each segment, the learnt sets by round."""
    rng = np.random.default_rng(seed)
    clients, rounds, count = 7, int(rng.integers(1, 7)), 3
    scheme = ("mc", "sc", "hc")[seed % 3]
    threshold = 2 if scheme == "hc" else None
    cohorts = rng.random((rounds, clients)) < 0.8
    if rng.integers(2):
        group_of = rng.integers(0, count, clients)
        groups = fixed_groups(cohorts, group_of, num_groups=count)
    else:
        groups = ranked_groups(cohorts, rng.random(clients), count)
    layouts = cohort_layouts(scheme, groups, [2, 3, 5], 6, hybrid_threshold=threshold)
    survivors = [rng.random(len(own.members)) < 0.8 for own in groups]
    matrix = segment_matrix(scheme, count, threshold)
    sets: list[list[list[set[int]]]] = [[] for _ in range(count)]
    for own, sends in zip(groups, survivors, strict=True):
        found = learnt_sets(matrix, own.groups, np.flatnonzero(sends).tolist())
        for segment in range(count):
            sets[segment].append(
                [{own.members[s] for s in block} for block in found[segment]]
            )
    return clients, groups, layouts, survivors, sets


@pytest.mark.long
@hypothesis.given(st.integers(0, 2**32 - 1))
def test_equals_row_spaces_in_fractions(seed) -> None:
    clients, groups, layouts, survivors, sets = setting(seed)
    hypothesis.assume(any(layout is not None for layout in layouts))
    history = segment_participation(
        layouts, survivors, members=[own.members for own in groups], num_clients=clients
    )
    found = segment_leakage(history, effort=1.0)
    for segment, by_round in enumerate(sets):
        rows: list[list[int]] = []
        first = [-1] * clients
        for number, blocks in enumerate(by_round):
            mine = history.participation[segment][history.rounds[segment] == number]
            assert {frozenset(np.flatnonzero(row).tolist()) for row in mine} == {
                frozenset(block) for block in blocks
            }
            assert len(mine) == len(blocks)
            rows += [[int(c in block) for c in range(clients)] for block in blocks]
            for c in range(clients):
                unit = [int(k == c) for k in range(clients)]
                if first[c] < 0 and in_span(rows, unit):
                    first[c] = number
        own = found.segments[segment]
        assert own.exposure.tolist() == found.exposure[segment].tolist() == first
        assert own.rank == sum(not in_span(rows[:k], rows[k]) for k in range(len(rows)))
        columns = [c for c in zip(*rows, strict=True) if any(c)]
        strong = min((columns.count(column) for column in columns), default=None)
        assert own.strong == strong
        assert own.weak_lower == own.weak_upper == smallest_support(rows, clients)
        assert own.certified or strong is None
    assert np.allclose(
        found.exposed_share[-1], (found.exposure >= 0).mean(axis=0)
    )  # segments of equal length
    sends = [
        set(np.asarray(g.members)[s].tolist())
        for g, s in zip(groups, survivors, strict=True)
    ]
    plain = [sent if len(sent) >= 2 else set() for sent in sends]
    assert [set(np.flatnonzero(row).tolist()) for row in history.plain] == plain


@pytest.mark.long
@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("rounds", [6, 40])
def test_least_squares_recovers_just_what_is_exposed(ranked: bool, rounds: int) -> None:
    """Updates that stay the same; a server with the segments' sums and nothing else."""
    clients, dim = 18, 17
    rng = np.random.default_rng(4)
    cohorts = np.asarray(
        mj.selection.rollout(
            3,
            mj.selection.uniform(clients, 10),
            mj.availability.independent(0.1),
            rounds,
        )
    )
    if ranked:
        groups = ranked_groups(cohorts, rng.random(clients), 3)
    else:
        groups = fixed_groups(cohorts, np.arange(clients) % 3)
    layouts = cohort_layouts("mc", groups, [2, 4, 8], dim)
    survivors = [rng.random(len(own.members)) < 0.95 for own in groups]
    members = [own.members for own in groups]
    history = segment_participation(
        layouts, survivors, members=members, num_clients=clients
    )
    found = segment_leakage(history, effort=None)
    updates = rng.normal(size=(clients, dim))
    matches = np.zeros((3, clients), bool)
    for segment, (start, stop) in enumerate(history.bounds):
        sums = []
        for number, block in zip(
            history.rounds[segment], history.blocks[segment], strict=True
        ):
            own = layouts[number].blocks[block]
            assert (own.start, own.stop) == (start, stop)
            sums.append(np.zeros(stop - start))
            plan = layouts[number].plan
            for slot in np.flatnonzero(mj.secagg.admitted(plan, survivors[number])):
                if slot in own.members:
                    sums[-1] += updates[members[number][slot], start:stop]
        guess = mj.attacks.least_squares(history.participation[segment], np.stack(sums))
        error = np.abs(guess - updates[:, start:stop]).max(axis=1)
        matches[segment] = error < 1e-6
        assert (matches[segment] | (error > 1e-3)).all()
    assert np.array_equal(matches, found.exposure >= 0)
    assert matches.any()
    if rounds == 6:
        assert not matches.all()
    assert found.exposed_segments.tolist() == matches.sum(axis=0).tolist()


def test_shares_and_firsts_by_hand() -> None:
    """Two of two groups: sums over all in one segment, by group in the other."""
    # segment 0 (3 of 5): both, 1: apart
    layout = segment_layout("mc", [2, 3], [2, 4], 5)
    gone = np.ones((3, 5), bool)
    gone[1, 4] = False
    history = segment_participation(layout, gone)
    found = segment_leakage(history)
    assert found.exposure[0].tolist() == [-1, -1, -1, -1, 1]
    assert found.exposure[1].tolist() == [-1, -1, -1, -1, 1]
    assert found.first_any == found.first_whole == 1
    assert found.exposed_share[:, 4].tolist() == [0.0, 1.0, 1.0]
    assert found.exposed_share[:, :4].sum() == 0
    assert (found.strong, found.weak_lower, found.weak_upper) == (1, 1, 1)
    assert found.plain.exposure.tolist() == [-1, -1, -1, -1, 1]
    # In round 1 client 0 is lost, and then 1 as the only one left in segment 1's block:
    # the server learns x2 + x3 + x4 in both segments, and nothing is exposed that was
    # not before.
    gone = np.ones((2, 5), bool)
    gone[1, 0] = False
    found = segment_leakage(segment_participation(layout, gone))
    assert found.exposure.max() == -1
    assert found.strong == 2
    assert found.plain.exposure.tolist() == [1, -1, -1, -1, -1]


def test_some_segments_fall_before_others() -> None:
    layout = segment_layout("mc", [4, 3, 3], [2, 4, 8], 10)
    gone = np.ones((2, 10), bool)
    # alone: {0} where group 0 is apart, {9} likewise; together elsewhere
    gone[1, [0, 9]] = False
    found = segment_leakage(segment_participation(layout, gone))
    assert found.exposure[:, 0].tolist() == [1, -1, 1]
    assert found.exposure[:, 9].tolist() == [1, -1, 1]
    assert np.allclose(found.exposed_share[1, [0, 9]], 0.7)  # segments of 4, 3 and 3
    assert found.first_any == 1
    assert found.first_whole == -1
    assert [own.strong for own in found.segments] == [1, 2, 1]
    assert [own.weak_upper for own in found.segments] == [1, 2, 1]
    assert found.plain.strong == 2


N, K, T, ROUNDS = 24, 12, 4, 80


@pytest.mark.long
@pytest.mark.parametrize("ranked", [False, True])
def test_blocks_that_are_split_lose_their_guarantee(ranked: bool) -> None:
    """Batch partitioning with T = 4: blocks cut by groups hide in their pieces only."""
    cohorts = np.asarray(
        mj.selection.rollout(
            0,
            mj.selection.batch_partitioning(N, K, T),
            mj.availability.independent(0.05),
            ROUNDS,
        )
    )
    pieces = np.arange(N) // 2 % 3  # pairs: every block of four lies in two groups

    def leakage(aligned):
        if ranked or aligned:
            found = ranked_groups(cohorts, pieces, 3, blocks=T, aligned=aligned)
        else:
            found = fixed_groups(cohorts, pieces, blocks=T)
        layouts = cohort_layouts("mc", found, [2, 4, 8], 9)
        history = segment_participation(
            layouts, members=[own.members for own in found], num_clients=N
        )
        return found, segment_leakage(history)

    groups, split = leakage(False)
    assert any(own.split_blocks for own in groups)
    assert split.plain.strong == T
    assert split.strong is not None
    assert split.strong < T
    if not ranked:
        assert [own.strong for own in split.segments] == [2, 2, 2]
    groups, whole = leakage(True)
    assert not any(own.split_blocks for own in groups)
    for own in whole.segments:
        assert own.strong is not None
        assert own.strong >= T
        assert own.strong % T == 0
    assert whole.first_any == -1


def test_exposure_in_the_first_round_and_in_all_segments_counts() -> None:
    exposure = np.array([[0, -1, 2, 4], [3, -1, -1, 1]], np.int32)
    plain = SumLeakage(None, None, None, False, 0, exposure[0])
    found = SegmentLeakage((), plain, exposure, np.zeros((5, 4)))
    assert found.exposed_segments.tolist() == [2, 0, 1, 2]
    assert (found.first_any, found.first_whole) == (0, 3)


def test_equal_segments_are_judged_alike_and_relabelling_permutes() -> None:
    rng = np.random.default_rng(5)
    order = rng.permutation(10)
    survivors = rng.random((30, 10)) < 0.8
    matrix = [[0, 0, -1], [0, 0, -1], [-1, 1, 1], [0, 0, -1]]
    layout = segment_layout(matrix, [3, 3, 4], [2, 2, 2], 8)
    one = segment_leakage(segment_participation(layout, survivors))
    assert one.segments[0] is one.segments[1] is one.segments[3]
    assert one.segments[0] is not one.segments[2]
    other = segment_leakage(
        segment_participation(layout, survivors, members=order, num_clients=10)
    )
    assert np.array_equal(other.exposure[:, order], one.exposure)
    assert [own.strong for own in other.segments] == [
        own.strong for own in one.segments
    ]
