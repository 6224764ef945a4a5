"""Plans of many blocks.

Arrays against messages, bit for bit, and both against plain sums.
HeteroSAg's layouts over every pattern of losses for two groups of two (up to renaming
within a group) and random ones for up to twelve clients, over complete and random
graphs.
"""

import itertools

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.hetero import segment_layout

OUTCOME = ("status", "block_status", "summed", "learned", "learned_block", "is_reliable",
           "is_private")  # fmt: skip


def largest_without_loners(plan, sends):
    """The admitted by brute force.

    Of the sets of senders without a lonely one, the largest.
    """
    senders = np.flatnonzero(sends).tolist()
    for size in range(len(senders), 0, -1):
        for chosen in itertools.combinations(senders, size):
            if all(len(set(chosen) & set(block.members)) != 1 for block in plan):
                return set(chosen)
    return set()


def inputs_for(layout, rng):
    """Residues of each block's ring, its largest among them."""
    # in no block: never read
    inputs = np.full((layout.num_participants, layout.dim), -1)
    for block in layout.blocks:
        part = rng.integers(
            0, block.modulus, (len(block.members), block.stop - block.start)
        )
        part[:, 0] = block.modulus - 1
        inputs[list(block.members), block.start : block.stop] = part
    return inputs


def same_steps(one, other):
    rows = [
        [
            (step.name, step.num_clients, step.bytes_up, step.bytes_down)
            for step in result.steps
        ]
        for result in (one, other)
    ]
    assert rows[0] == rows[1]


def check(layout, adjacency, survivors, thresholds, rng):
    """Run both with the same seeds and compare everything that both say, and the plain sums."""
    plan, inputs = layout.plan, inputs_for(layout, rng)
    number = int(rng.integers(2**32))
    real = mj.protocol.run(
        inputs,
        adjacency,
        survivors,
        thresholds,
        plan=plan,
        entropy=number,
        round_index=number,
    )
    array = mj.secagg.aggregate(
        number,
        inputs,
        adjacency,
        survivors,
        thresholds,
        plan=plan,
        seeds=real.seeds,
        round_index=number,
    )
    outcome = mj.secagg.plan_outcome(adjacency, survivors, thresholds, plan)
    for field in OUTCOME:
        assert np.array_equal(getattr(array, field), getattr(real, field)), field
        assert np.array_equal(getattr(outcome, field), getattr(real, field)), field
    for field in ("survivors", "padded_inputs", "is_informative"):
        parts = [getattr(result.transcript, field) for result in (array, real)]
        assert np.array_equal(*parts), field
    assert array.unmasking_risk == real.unmasking_risk
    same_steps(array, real)
    sent = heard(adjacency, survivors, np.broadcast_to(thresholds, len(adjacency)))
    assert np.flatnonzero(real.transcript.survivors[3]).tolist() == sorted(sent)
    plain(layout, inputs, sent, real, array)
    return real.status


def heard(adjacency, survivors, thresholds):
    """Those of V3 who send.

    Of it and its neighbours not fewer than t_i in V2 who were in V1.
    """
    asked, shared, sends = (set(np.flatnonzero(row).tolist()) for row in survivors[1:4])
    near = [{i, *np.flatnonzero(row).tolist()} for i, row in enumerate(adjacency)]
    return {
        i
        for i in sends
        if not len(near[i] & shared) < thresholds[i] <= len(near[i] & asked)
    }


def plain(layout, inputs, sent, real, array):
    """Both against plain sums over the brute force's admitted.

    Every client once in each row.
    """
    sends = np.isin(np.arange(layout.num_participants), list(sent))
    admitted = largest_without_loners(layout.plan, sends)
    assert set(np.flatnonzero(real.summed).tolist()) == admitted
    counts = [0] * layout.num_segments
    for block, status, one, other in zip(
        layout.blocks, real.block_status, real.totals, array.totals, strict=True
    ):
        members = sorted(admitted & set(block.members))
        counts[block.segment] += len(members)
        expected = [0] * (block.stop - block.start)
        if status == mj.Status.OK:
            own = inputs[members, block.start : block.stop].sum(axis=0)
            expected = (own % block.modulus).tolist()
        assert (status == mj.Status.TOO_FEW_SURVIVORS) == (not members)
        assert one.dtype == other.dtype == np.uint32
        assert one.tolist() == other.tolist() == expected
    assert counts == [len(admitted)] * layout.num_segments
    if real.status == mj.Status.OK:
        assert admitted
        assert (real.block_status != mj.Status.UNRELIABLE).all()


def complete(n):
    return ~np.eye(n, dtype=bool)


def survivors_of(levels):
    """A client's level: in how many of V0 to V4 it is."""
    return np.asarray(levels)[None, :] > np.arange(5)[:, None]


TINY = {
    "sc": lambda: segment_layout("sc", [2, 2], [2, 3], 5),
    "mc": lambda: segment_layout("mc", [2, 2], [2, 5], 5, modulus_rule="power_of_two"),
    "groups": lambda: segment_layout("groups", [2, 2], [3, 3], 5),
    "halves": lambda: segment_layout([[-1, -1], [0, 0]], [[0, 3], [1, 2]], [2, 4], 5),
}


def patterns():
    """Levels of two groups of two, up to renaming within a group: 21^2 of 6^4."""
    pairs = list(itertools.combinations_with_replacement(range(6), 2))
    return [(*one, *two) for one in pairs for two in pairs]


@pytest.mark.long
def test_losses_of_two_groups_of_two():
    """Every tenth pattern, each for one layout; the slow test has all of them for each."""
    rng = np.random.default_rng(0)
    seen = {
        check(layout, complete(4), survivors_of(levels), int(rng.integers(1, 5)), rng)
        for levels, layout in zip(
            patterns()[::-10],
            itertools.cycle([make() for make in TINY.values()]),
            strict=False,
        )
    }
    assert seen == {mj.Status.OK, mj.Status.UNRELIABLE, mj.Status.TOO_FEW_SURVIVORS}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TINY])
def test_every_loss_of_two_groups_of_two(name):
    rng = np.random.default_rng(1)
    for levels in patterns():
        check(
            TINY[name](),
            complete(4),
            survivors_of(levels),
            int(rng.integers(1, 6)),
            rng,
        )


def random_layout(rng, n):
    """A scheme over three to six groups, or over subgroups, with slots in any order."""
    count = int(rng.integers(3, 7))
    cuts = np.sort(rng.choice(np.arange(1, n), count - 1, replace=False))
    slots = np.split(rng.permutation(n), cuts)
    levels = sorted(rng.integers(2, 20, count).tolist())
    scheme = str(rng.choice(["sc", "mc", "hc", "groups"]))
    subgroups = (
        [2] + [1] * (count - 1) if rng.random() < 0.3 and len(slots[0]) > 1 else None
    )
    columns = count + (subgroups is not None)
    return segment_layout(
        scheme,
        [group.tolist() for group in slots],
        levels,
        int(rng.integers(columns, 40)),
        subgroups=subgroups,
        hybrid_threshold=2 if scheme == "hc" else None,
        modulus_rule=str(rng.choice(["exact", "power_of_two"])),
        allow_small_groups=True,
    )


def random_case(rng, n):
    layout = random_layout(rng, n)
    adjacency = np.triu(rng.random((n, n)) < rng.choice([0.5, 0.9, 1.0]), 1)
    adjacency |= adjacency.T
    stays = rng.random((5, n)) > rng.choice([0.0, 0.05, 0.2])
    thresholds = rng.integers(1, 2 + adjacency.sum(axis=1) // 2)
    return layout, adjacency, np.logical_and.accumulate(stays, axis=0), thresholds


@pytest.mark.long
def test_random_layouts_graphs_and_losses():
    rng = np.random.default_rng(2)
    seen = [check(*random_case(rng, n), rng) for n in (7, 12) for _ in range(9)]
    assert {status.name for status in seen} == {"OK", "UNRELIABLE", "TOO_FEW_SURVIVORS"}
    assert seen.count(mj.Status.OK) >= 6


@pytest.mark.slow
def test_many_random_layouts_graphs_and_losses():
    rng = np.random.default_rng(3)
    for trial in range(350):
        check(*random_case(rng, 6 + trial % 7), rng)


@pytest.mark.long("sc-exact-1.0")
@pytest.mark.parametrize(
    ("scheme", "rule", "p"),
    [
        ("sc", "exact", 1.0),
        ("mc", "power_of_two", 0.8),
        ("hc", "exact", 0.8),
        ("groups", "power_of_two", 1.0),
    ],
)
def test_nobody_lost_sums_everybody_in_every_block(scheme, rule, p):
    """Over the complete graph and CCESA's every block is OK."""
    rng = np.random.default_rng(4)
    layout = segment_layout(
        scheme,
        [3, 3, 3, 3],
        [2, 3, 8, 13],
        22,
        modulus_rule=rule,
        hybrid_threshold=2 if scheme == "hc" else None,
    )
    adjacency = np.triu(rng.random((12, 12)) < p, 1)
    adjacency |= adjacency.T
    status = check(layout, adjacency, np.ones((5, 12), bool), 2, rng)
    assert status == mj.Status.OK


def test_rounds_repeat_no_pad_between_blocks_or_rounds():
    """The same input in two blocks or two rounds is sent as words that have nothing in common."""
    layout = segment_layout(
        [[0, 0]] * 3, [2, 2], [2**16, 2**16], 30, modulus_rule="power_of_two"
    )
    inputs = np.zeros((4, 30), int)
    arguments = (inputs, complete(4), np.ones((5, 4), bool), 3)
    sent = [
        mj.protocol.run(
            *arguments, plan=layout.plan, entropy=7, round_index=number
        ).transcript
        for number in (0, 1)
    ]
    words = np.concatenate(
        [part.padded_inputs.reshape(4, 3, 10) for part in sent], axis=1
    )
    # 24 rows of ten residues mod 2^18: chance of two equal rows below 24^2 / 2^180
    assert len({tuple(row) for row in words.reshape(24, 10).tolist()}) == 24
