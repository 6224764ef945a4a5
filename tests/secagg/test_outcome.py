"""Rounds over many blocks judged by sets.

Misuse, by hand, one block, and the oracle of pads.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import pathlib
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import Status, secagg
from mrsa_jax.secagg import Block, admitted, complete_plan, plan_outcome

_PATH = pathlib.Path(__file__).with_name("pad_oracle.py")
_SPEC = importlib.util.spec_from_file_location("pad_oracle", _PATH)
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

# two groups of two, three segments: alone, together, alone
PLAN = (
    Block((0, 1), 0, 2, 8),
    Block((2, 3), 0, 2, 37),
    Block((0, 1, 2, 3), 2, 4, 16),
    Block((0, 1), 4, 5, 3),
    Block((2, 3), 4, 5, 2**32),
)
COMPLETE = ~np.eye(4, dtype=bool)
OK, FEW, BAD = (int(Status[name]) for name in ("OK", "TOO_FEW_SURVIVORS", "UNRELIABLE"))


def lost(*levels: int) -> np.ndarray:
    """Return survivors: client i is in so many of V_0 to V_4."""
    return np.arange(5)[:, None] < np.asarray(levels)[None, :]


# --- misuse


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (PLAN[0], "`plan` must be a tuple of `Block`s; got Block"),
        ((), "`plan` must be a tuple of `Block`s"),
        (((0, 1), (2, 3)), "`plan` must be a tuple of `Block`s"),
        (PLAN[:1], "`plan` must put each client into a block; got 'client 2 in none'"),
        (
            (*PLAN, Block((4,), 0, 1, 8)),
            r"`members` must lie in \[0, num_participants\)",
        ),
        (
            (*PLAN, Block((0, 2), 1, 3, 8)),
            "`blocks` must not cover a participant's coordinate tw",
        ),
        ((*PLAN, Block((0, 2), 5, 5, 8)), "`start` must satisfy"),
        ((*PLAN, Block((0, 2), 5, 6, 1)), "`modulus` must"),
    ],
)
def test_plans_that_make_no_sense(plan: Any, message: str) -> None:
    calls = [
        lambda: inspect.unwrap(plan_outcome)(COMPLETE, lost(5, 5, 5, 5), 2, plan),
        lambda: inspect.unwrap(secagg.aggregate)(
            0, np.zeros((4, 6), int), COMPLETE, lost(5, 5, 5, 5), 2, plan=plan
        ),
        lambda: inspect.unwrap(mj.protocol.run)(
            np.zeros((4, 6), int), COMPLETE, lost(5, 5, 5, 5), 2, plan=plan
        ),
        lambda: inspect.unwrap(secagg.round_costs)(
            COMPLETE, lost(5, 5, 5, 5), 2, plan=plan
        ),
    ]
    for call in calls:
        with pytest.raises(mj.ConfigurationError, match=message):
            call()


GOOD = np.asarray(
    [[7, 7, 15, 15, 2], [7, 7, 15, 15, 2], [36, 36, 15, 15, 2**32 - 1]] * 2
)[:4]
GOOD[3] = GOOD[2]


def changed(at: tuple[int, int], value: int) -> np.ndarray:
    inputs = GOOD.copy()
    inputs[at] = value
    return inputs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"modulus": 8},
            "`plan` must be given without `modulus_bits` and `modulus`.*None and 8",
        ),
        (
            {"modulus_bits": 8},
            "`plan` must be given without `modulus_bits` and `modulus`",
        ),
        (
            {"inputs": GOOD[:, :4]},
            "`inputs` must have a column for each coordinate; got 4 and 5",
        ),
        ({"inputs": GOOD[:3]}, "`inputs` must have a row for each client; got 3 and 4"),
        ({"inputs": GOOD / 1}, "`inputs` must hold integers"),
        (
            {"inputs": changed((1, 0), 8)},
            r"`inputs` must lie in \[0, 8\), the ring's residues of block 0; got 7 and "
            r"8",
        ),
        (
            {"inputs": changed((3, 1), 37)},
            r"\[0, 37\), the ring's residues of block 1; got 36 and",
        ),
        (
            {"inputs": changed((2, 2), -1)},
            r"\[0, 16\), the ring's residues of block 2; got -1 and",
        ),
        ({"inputs": changed((3, 4), 2**32)}, "ring's residues of block 4"),
    ],
)
def test_inputs_are_checked_block_by_block(
    change: dict[str, Any], message: str
) -> None:
    arguments = {
        "inputs": GOOD,
        "adjacency": COMPLETE,
        "survivors": lost(5, 5, 5, 5),
        "thresholds": 2,
        "plan": PLAN,
    } | change
    for call in (secagg.aggregate, mj.protocol.run):
        seed = {"seed": 0} if call is secagg.aggregate else {}
        with pytest.raises(mj.ConfigurationError, match=message):
            inspect.unwrap(call)(**seed, **arguments)


def test_costs_take_a_plan_or_a_ring() -> None:
    everybody = lost(5, 5, 5, 5)
    for arguments, message in (
        ({}, "`dim` must be given, with `modulus`, where there is no `plan`"),
        ({"dim": 3}, "`dim` must be given, with `modulus`"),
        ({"dim": 3, "plan": PLAN}, "`plan` must be given without `dim` and `modulus`"),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            secagg.round_costs(COMPLETE, everybody, 2, **arguments)


@pytest.mark.long
def test_what_lies_outside_a_clients_blocks_is_never_read() -> None:
    plan = (Block((0, 1), 0, 2, 8), Block((2, 3), 1, 3, 8))
    inputs = np.asarray(
        [[1, 2, -9, -9], [3, 4, 99, 99], [-7, 5, 6, -1], [2**40, 7, 1, -1]]
    )
    for result in (
        secagg.aggregate(0, inputs, COMPLETE, lost(5, 5, 5, 5), 2, plan=plan),
        mj.protocol.run(inputs, COMPLETE, lost(5, 5, 5, 5), 2, plan=plan),
    ):
        assert [total.tolist() for total in result.totals] == [[4, 6], [4, 7]]
        assert result.transcript.padded_inputs.shape == (4, 3)
        assert not result.transcript.padded_inputs[[0, 1, 2, 3], [2, 2, 0, 0]].any()
        with pytest.raises(
            mj.ConfigurationError, match="`total` needs a plan of one block; got 2"
        ):
            _ = result.total


# --- by hand


@pytest.mark.smoke("levels10-1-statuses10-summed10")
@pytest.mark.parametrize(
    ("levels", "thresholds", "statuses", "summed"),
    [
        ((5, 5, 5, 5), 4, [OK] * 5, [0, 1, 2, 3]),
        ((5, 5, 5, 5), 5, [BAD] * 5, [0, 1, 2, 3]),
        ((5, 5, 5, 4), 4, [BAD] * 5, [0, 1, 2, 3]),
        ((5, 5, 5, 4), 3, [OK] * 5, [0, 1, 2, 3]),
        # 3 is lost before its input: 2 would be alone in two blocks and leaves the
        # third too
        ((5, 5, 5, 3), 2, [OK, FEW, OK, OK, FEW], [0, 1]),
        # 2's key is needed there
        ((5, 5, 5, 3), [2, 2, 3, 3], [OK, FEW, BAD, OK, FEW], [0, 1]),
        ((5, 5, 5, 3), 3, [BAD, FEW, BAD, BAD, FEW], [0, 1]),  # 2 answers no more
        ((5, 5, 5, 2), [2, 2, 2, 9], [OK, FEW, OK, OK, FEW], [0, 1]),  # shared no pads
        ((5, 5, 5, 3), [2, 2, 2, 9], [OK, FEW, BAD, OK, FEW], [0, 1]),
        ((5, 4, 5, 3), 1, [OK, FEW, OK, OK, FEW], [0, 1]),
        ((5, 3, 5, 3), 1, [FEW] * 5, []),
        ((5, 3, 3, 3), 1, [FEW] * 5, []),
        ((0, 0, 0, 0), 1, [FEW] * 5, []),
    ],
)
def test_statuses_by_hand(
    levels: tuple[int, ...], thresholds: Any, statuses: list[int], summed: list[int]
) -> None:
    outcome = plan_outcome(COMPLETE, lost(*levels), thresholds, PLAN)
    assert outcome.block_status.tolist() == statuses
    assert outcome.block_status.dtype == np.int32
    assert np.flatnonzero(outcome.summed).tolist() == summed
    expected = Status.OK if summed else Status.TOO_FEW_SURVIVORS
    assert outcome.status == (Status.UNRELIABLE if BAD in statuses else expected)
    assert outcome.is_private
    assert outcome.is_reliable == (
        outcome.status == Status.OK or not any(n > 3 for n in levels)
    )
    good = [number for number, status in enumerate(statuses) if status == OK]
    assert outcome.learned_block.tolist() == good
    for number, row in zip(good, outcome.learned, strict=True):
        assert np.flatnonzero(row).tolist() == [
            i for i in PLAN[number].members if i in summed
        ]


def test_admission_spreads_from_block_to_block() -> None:
    """A chain of pairs: one loss at its end leaves everybody alone in turn."""
    chain = tuple(Block((i, i + 1), i, i + 1, 8) for i in range(5))
    sends = np.ones((3, 6), bool)
    sends[0, 0] = sends[1, 3] = False
    assert admitted(chain, sends).tolist() == [[False] * 6, [False] * 6, [True] * 6]
    loop = (*chain[:2], Block((0, 2, 3), 5, 6, 8), Block((3, 4, 5), 6, 7, 8))
    assert admitted(loop, np.asarray([1, 1, 1, 0, 1, 1], bool)).tolist() == [
        True,
        True,
        True,
        False,
        True,
        True,
    ]


def test_admission_is_the_largest_set_without_loners() -> None:
    rng = np.random.default_rng(0)
    sizes = set()
    for _ in range(200):
        members = [
            set(np.flatnonzero(row).tolist()) for row in rng.random((4, 6)) < 0.4
        ]
        plan = tuple(
            Block(tuple(sorted(group)), k, k + 1, 8)
            for k, group in enumerate(members)
            if group
        )
        sends = rng.random(6) < 0.8
        found = set(np.flatnonzero(admitted(plan, sends)).tolist())
        assert found == oracle.without_loners(
            [set(block.members) for block in plan], sends
        )
        sizes.add(len(found))
    assert len(sizes) > 4


def test_a_block_may_give_parts_away_where_the_whole_graph_is_connected() -> None:
    """0 and 1 are joined through 2 and 3 alone, who are in none of their own blocks."""
    path = np.zeros((4, 4), bool)
    for i, j in ((0, 2), (2, 3), (3, 1)):
        path[i, j] = path[j, i] = True
    plan = (
        Block((0, 1), 0, 1, 8),
        Block((2, 3), 0, 1, 8),
        Block((0, 1, 2, 3), 1, 2, 8),
    )
    outcome = plan_outcome(path, lost(5, 5, 5, 5), 2, plan)
    assert secagg.is_private(path, lost(5, 5, 5, 5), 2)
    assert (outcome.status, outcome.is_reliable, outcome.is_private) == (
        Status.OK,
        True,
        False,
    )
    assert outcome.learned_block.tolist() == [0, 0, 1, 2]
    assert outcome.learned.astype(int).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 1],
        [1, 1, 1, 1],
    ]


def test_totals_that_are_known_stand_in_an_unreliable_round() -> None:
    """2 counts as lost, and its key, which only the third block needs, is not recovered."""
    inputs = np.asarray([[1, 2, 3, 4, 0], [2, 3, 4, 5, 1], [0] * 5, [0] * 5])
    arguments = (inputs, COMPLETE, lost(5, 5, 5, 3), [2, 2, 3, 3])
    array = secagg.aggregate(0, *arguments, plan=PLAN)
    real = mj.protocol.run(*arguments, plan=PLAN, entropy=0)
    for result in (array, real):
        assert result.status is Status.UNRELIABLE
        assert [total.tolist() for total in result.totals] == [
            [3, 5],
            [0, 0],
            [0, 0],
            [1],
            [0],
        ]
        assert result.transcript.padded_inputs[2].any()  # it was sent
        assert result.transcript.survivors[3:, 2].tolist() == [True, False]


# --- against what is known already, and the pads


def test_one_block_is_judged_as_theorems_1_and_2_say() -> None:
    graphs, given, limits = oracle.random_rounds(np.random.default_rng(1), 6, 40)
    cases = list(zip(graphs, given, limits, strict=True))
    alive = np.stack(
        [oracle.without_refusals(*case, [set(range(6))]) for case in cases]
    )
    verdicts = (
        f(graphs, alive, limits) for f in (secagg.is_reliable, secagg.is_private)
    )
    plan, seen = complete_plan(6, 1, 8), set()
    for case, left, reliable, private in zip(cases, alive, *verdicts, strict=True):
        outcome = plan_outcome(*case, plan)
        few = left[3].sum() < 2
        assert outcome.is_private == private
        assert np.array_equal(
            outcome.learned, secagg.learned_sets(case[0], left, case[2])
        )
        assert outcome.is_reliable == (reliable if not few else not left[3].any())
        wanted = Status.OK if reliable else Status.UNRELIABLE
        assert outcome.status == (Status.TOO_FEW_SURVIVORS if few else wanted)
        assert outcome.block_status.tolist() == [int(outcome.status)]
        seen.add((outcome.status, outcome.is_private))
    assert len(seen) >= 5


LAYOUTS = [
    PLAN[:3],
    (Block((0, 1, 2, 3), 0, 1, 8), Block((0, 1, 2, 3), 1, 2, 8)),
    (
        Block((0, 2), 0, 1, 8),
        Block((1, 3), 0, 1, 8),
        Block((0, 1), 1, 2, 8),
        Block((2, 3), 1, 2, 8),
    ),
    (Block((0, 1, 2), 0, 1, 8), Block((1, 2, 3), 1, 2, 8)),
]


def assert_as_the_pads_say(graph: Any, alive: Any, limits: Any, plan: Any) -> Any:
    """What the equations of all blocks together give away is what `learned` spans."""
    outcome = plan_outcome(graph, alive, limits, plan)
    blocks = [set(block.members) for block in plan]
    alive = oracle.without_refusals(graph, alive, limits, blocks)
    inputs, known = oracle.given_away_by_blocks(graph, alive, limits, blocks)
    rows = [
        [int(k == number and row[i]) for i, k in inputs]
        for number, row in zip(outcome.learned_block, outcome.learned, strict=True)
    ]
    assert oracle.rank(rows) == len(rows) == len(known) == oracle.rank([*rows, *known])
    members = [int(outcome.summed[list(block.members)].sum()) for block in plan]
    for number, row in zip(outcome.learned_block, outcome.learned, strict=True):
        assert outcome.is_private <= (row.sum() == members[number])
    spans = [
        sum(
            r.sum()
            for k, r in zip(outcome.learned_block, outcome.learned, strict=True)
            if k == number
        )
        for number in range(len(plan))
    ]
    assert [s == OK for s in outcome.block_status] == [
        0 < count == span for count, span in zip(members, spans, strict=True)
    ]
    return outcome


@pytest.mark.parametrize("plan", LAYOUTS)
def test_what_the_pads_of_all_blocks_give_away_together(plan: Any) -> None:
    rng = np.random.default_rng(2)
    seen = [
        assert_as_the_pads_say(*case, plan)
        for case in zip(*oracle.random_rounds(rng, 4, 120), strict=True)
    ]
    assert sum(len(outcome.learned) > 0 for outcome in seen) > 5
    assert sum(not outcome.is_private for outcome in seen) > 0


@pytest.mark.slow
@pytest.mark.parametrize("plan", LAYOUTS)
def test_every_loss_gives_away_what_the_pads_of_all_blocks_say(plan: Any) -> None:
    rng = np.random.default_rng(3)
    for levels in itertools.product(range(1, 6), repeat=4):
        limits = rng.integers(1, 5, 4)
        assert_as_the_pads_say(COMPLETE, lost(*levels), limits, plan)
        graph = np.triu(rng.random((4, 4)) < 0.6, 1)
        assert_as_the_pads_say(graph | graph.T, lost(*levels), limits, plan)


@pytest.mark.smoke
def test_the_oracle_sees_what_one_keystream_for_two_blocks_would_give_away() -> None:
    """Were a client's pads the same in two blocks, the difference of its inputs would be known."""
    plan = [{0, 1}, {0, 1}]
    pair, alive = ~np.eye(2, dtype=bool), np.ones((5, 2), bool)
    inputs, known = oracle.given_away_by_blocks(pair, alive, [9, 9], plan)
    assert known == []  # no secret comes back
    # the same two padded inputs of client 0, pads shared: columns b_0, s_01, two inputs
    rows = oracle.echelon([[1, 1, 1, 0], [1, 1, 0, 1]])
    assert [row[2:] for row in rows if not any(row[:2])] == [[-1, 1]]
    assert len(inputs) == 4
