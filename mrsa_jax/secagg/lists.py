"""Decide which clients may be in the sums of a plan, and which lists clients refuse.

A client's input of all its blocks arrives or is lost together, and its self seed b_i,
once revealed, opens all of them. HeteroSAg (Section VI-B) leaves open what to do where
one client of a block is left: here it counts as lost, and its self pads still hide what
it sent. Bonawitz et al. (CCS 2017), Figure 4: clients refuse lists of fewer than the
threshold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int, Integer

from mrsa_jax._core.round_rules import whole_blocks
from mrsa_jax._core.traced import needs_values
from mrsa_jax.secagg.plans import SegmentPlan, memberships
from mrsa_watch._base.errors import require

_Graph = Bool[np.ndarray, "n n"]
_Alive = Bool[np.ndarray, "5 n"]
_Clients = Bool[np.ndarray, " n"]


@needs_values
def admitted(
    plan: SegmentPlan,
    sends: Bool[np.ndarray, "*rounds participants"],
    blocks: Int[np.ndarray, " participants"] | None = None,
) -> Bool[np.ndarray, "*rounds participants"]:
    """Return the largest set of senders of which no block holds exactly one.

    Args:
        plan: Blocks of the round.
        sends: bool[n], whose padded inputs arrived, V3; leading axes are rounds.
        blocks: int[n], the blocks that clients keep, whose numbers say who are mates: a
            block that lost a member is left out. Each must be within one block of the
            plan.

    Returns:
        bool[n]: V3 less those who would be alone in a block, again and again, since
        each who leaves may leave another alone. The union of sets without lonely
        clients has none either, so that there is a largest one and this finds it.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> plan = (
        ...     mj.secagg.Block((0, 1), 0, 1, 8),
        ...     mj.secagg.Block((1, 2, 3), 1, 2, 8),
        ... )
        >>> mj.secagg.admitted(plan, np.asarray([False, True, True, True])).tolist()
        [False, False, True, True]
    """
    return without_lonely(plan, sends, blocks)


def without_lonely(
    plan: SegmentPlan,
    sends: Bool[np.ndarray, "*rounds participants"],
    blocks: Int[np.ndarray, " participants"] | None,
) -> Bool[np.ndarray, "*rounds participants"]:
    """Return `admitted` of NumPy arrays."""
    # sums of ones, exact in float32, so that many rounds are two products of matrices
    members = memberships(plan, sends.shape[-1]).astype(np.float32)
    senders = np.array(sends if blocks is None else whole_blocks(sends, blocks), bool)
    while True:
        # OpenBLAS may report invalid values of finite numbers
        with np.errstate(invalid="ignore"):
            # blocks with exactly one sender, then the senders in such a block
            is_single = senders.astype(np.float32) @ members.T == 1.0
            lonely = senders & (is_single @ members > 0.0)
        if not lonely.any():
            return senders
        senders &= ~lonely


def check_blocks(
    blocks: Int[np.ndarray, " n"],
    adjacency: _Graph,
    thresholds: Integer[np.ndarray, " n"],
    colluders: int = 0,
) -> None:
    """Check that clients can keep blocks over a graph.

    Those without neighbours are not in it.

    Raises:
        ConfigurationError: If mates have different neighbours or thresholds, or a
            threshold is below floor((|Adj(i)| + 1 + colluders) / 2) + 1.
    """
    closed = adjacency | np.eye(len(adjacency), dtype=bool)
    mates = blocks[:, None] == blocks
    # all mates of a client with neighbours take part
    in_graph = (mates & adjacency.any(axis=1)).any(axis=1)
    if not in_graph.any():
        return
    # a client's neighbourhood and threshold in one row, to be compared with its mates'
    settings = np.column_stack([closed, thresholds])[in_graph]
    first_mate = np.argmax(mates[np.ix_(in_graph, in_graph)], axis=1)
    require(
        bool((settings == settings[first_mate]).all()),
        "adjacency",
        "must give the clients of a block the same neighbours and the same threshold",
    )
    least = (closed.sum(axis=1) + colluders) // 2 + 1
    short = np.flatnonzero(in_graph & (thresholds < least))[:1]
    problems = [f"{thresholds[i]} for client {i}, not {least[i]}" for i in short]
    require(
        not problems,
        "thresholds",
        "must be more than half of a client's neighbourhood and the colluders in it",
        *problems,
    )


def check_plan(blocks: Int[np.ndarray, " n"], plan: SegmentPlan) -> None:
    """Raise `ConfigurationError` if a sum of the plan is over a part of a block."""
    members = memberships(plan, len(blocks))
    require(
        bool((whole_blocks(members, blocks) == members).all()),
        "plan",
        "must sum whole blocks in each of its blocks",
        blocks.tolist(),
    )


class Heeded(NamedTuple):
    """A round without the clients that refuse.

    Attributes:
        survivors: bool[5, n]: V3 are those who send, and in V4 is nobody who is not
            summed.
        summed: bool[n], V3 less those who count as lost (`admitted`).
    """

    survivors: _Alive
    summed: _Clients


def heeded(
    plan: SegmentPlan,
    adjacency: _Graph,
    survivors: _Alive,
    thresholds: ArrayLike,
    blocks: Int[np.ndarray, " n"] | None = None,
) -> Heeded:
    """Exclude the clients who refuse the lists of an honest server.

    A client continues only while of it and its neighbours at least t_i are there: in V2
    before it sends its input (unless fewer were in V1 already, so that nobody can ever
    rebuild its secrets), among those summed before it hands out shares. Only rounds
    that Theorem 1 calls unreliable are changed by it.

    Args:
        plan: Blocks of the round.
        adjacency: bool[n, n].
        survivors: bool[5, n], who is there at each step.
        thresholds: t_i, one or int[n].
        blocks: int[n], the blocks that clients keep: a client sends nothing unless all
            its mates are in V2, and the server sums whole blocks.

    Examples:
        >>> from mrsa_jax.secagg import complete_plan
        >>> survivors = np.asarray([[True] * 3] * 2 + [[True, True, False]] * 3)
        >>> round_ = heeded(
        ...     complete_plan(3, 1, 8), ~np.eye(3, dtype=bool), survivors, 3
        ... )
        >>> round_.survivors.sum(axis=1)
        array([3, 3, 2, 0, 0])
    """
    alive = survivors.copy()
    advertised = holders(adjacency, alive[1])
    shared = holders(adjacency, alive[2])
    alive[3] &= (shared >= thresholds) | (advertised < thresholds)
    if blocks is not None:
        alive[3] &= whole_blocks(alive[2], blocks)
    summed = without_lonely(plan, alive[3], blocks)
    alive[4] &= summed & (holders(adjacency, summed) >= thresholds)
    return Heeded(alive, summed)


def signing(
    adjacency: _Graph,
    alive: _Alive,
    thresholds: ArrayLike,
) -> tuple[_Alive, _Clients]:
    """Return V0 to V4 with the consistency check, and the clients that sign.

    V4 without the check signs; of those remain in V4 the ones of whom, with their
    neighbours, at least t_i sign.
    """
    signs = alive[4].copy()
    checked = alive.copy()
    checked[4] &= holders(adjacency, signs) >= thresholds
    return checked, signs


def holders(adjacency: _Graph, present: _Clients) -> Int[np.ndarray, " n"]:
    """Count the present holders of shares of each client's secrets."""
    return np.asarray((adjacency & present).sum(axis=1) + present)
