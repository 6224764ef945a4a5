"""Who may be in the sums of a plan of many blocks, and whom clients refuse to follow there.

A client's input of all its blocks arrives or is lost together, and its self seed b_i, once
revealed, opens all of them. HeteroSAg (Section VI-B) leaves open what to do where one client of a
block is left: here it counts as lost, and its self pads go on hiding what it sent. Bonawitz et
al. (CCS 2017), Figure 4: clients refuse lists of fewer than the threshold.
"""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int

from mrsa_jax._tracing import needs_values
from mrsa_jax.secagg._types import SegmentPlan


@needs_values
def admitted(
    plan: SegmentPlan, sends: Bool[np.ndarray, "*rounds participants"]
) -> Bool[np.ndarray, "*rounds participants"]:
    """Return the largest set of senders of which no block holds exactly one.

    Args:
        plan: Blocks of the round.
        sends: bool[n], whose padded inputs arrived, V3; leading axes are rounds.

    Returns:
        bool[n]: V3 less those who would be alone in a block, again and again, since each who
        leaves may leave another alone. The union of sets without lonely clients has none either,
        so that there is a largest one and this finds it.

    Examples:
        >>> from mrsa_jax.secagg import Block
        >>> plan = (Block((0, 1), 0, 1, 8), Block((1, 2, 3), 1, 2, 8))
        >>> admitted(plan, np.asarray([False, True, True, True])).tolist()
        [False, False, True, True]
    """
    # sums of ones, exact in float32, so that many rounds are two products of matrices
    members = memberships(plan, sends.shape[-1]).astype(np.float32)
    left = np.array(sends, bool)
    while True:
        with np.errstate(invalid="ignore"):  # which OpenBLAS may report of finite numbers
            lonely = left & (((left.astype(np.float32) @ members.T == 1.0) @ members) > 0.0)
        if not lonely.any():
            return left
        left &= ~lonely


def memberships(plan: SegmentPlan, participants: int) -> Bool[np.ndarray, "blocks participants"]:
    """Return who is in which block."""
    members = np.zeros((len(plan), participants), bool)
    for row, block in zip(members, plan, strict=True):
        row[list(block.members)] = True
    return members


def heeded(
    plan: SegmentPlan,
    adjacency: Bool[np.ndarray, "n n"],
    survivors: Bool[np.ndarray, "5 n"],
    thresholds: ArrayLike,
) -> Bool[np.ndarray, "5 n"]:
    """Return V0 to V4 less those who refuse what an honest server tells them.

    A client goes on only while of it and its neighbours at least t_i are there: in V2 before it
    sends its input (unless fewer were in V1 already, so that nobody can ever rebuild its secrets),
    among those summed before it hands out shares. Only rounds that Theorem 1 calls unreliable are
    changed by it.

    Args:
        plan: Blocks of the round.
        adjacency: bool[n, n].
        survivors: bool[5, n], who is there at each step.
        thresholds: t_i, one or int[n].

    Returns:
        bool[5, n]: V3 are those who send, and in V4 is nobody who is not summed (`admitted`).

    Examples:
        >>> from mrsa_jax.secagg import complete_plan
        >>> survivors = np.asarray([[True] * 3] * 2 + [[True, True, False]] * 3)
        >>> heeded(complete_plan(3, 1, 8), ~np.eye(3, dtype=bool), survivors, 3).sum(axis=1)
        array([3, 3, 2, 0, 0])
    """
    alive = survivors.copy()
    asked, shared = (holders(adjacency, alive[step]) for step in (1, 2))
    alive[3] &= (shared >= thresholds) | (asked < thresholds)
    summed = admitted(plan, alive[3])
    alive[4] &= summed & (holders(adjacency, summed) >= thresholds)
    return alive


def signing(
    adjacency: Bool[np.ndarray, "n n"], alive: Bool[np.ndarray, "5 n"], thresholds: ArrayLike
) -> tuple[Bool[np.ndarray, "5 n"], Bool[np.ndarray, " n"]]:
    """Return V0 to V4 with the consistency check, and who signs: V4 without it.

    In V4 are left those of whom, with their neighbours, at least t_i sign.
    """
    signs, checked = alive[4].copy(), alive.copy()
    checked[4] &= holders(adjacency, signs) >= thresholds
    return checked, signs


def holders(
    adjacency: Bool[np.ndarray, "n n"], here: Bool[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Return how many of those who hold shares of each client's secrets are among `here`."""
    return np.asarray((adjacency & here).sum(axis=1) + here)
