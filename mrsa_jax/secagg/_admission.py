"""Who may be in the sums of a plan of many blocks, so that none is a sum over one client.

A client's input of all its blocks arrives or is lost together, and its self seed b_i, once
revealed, opens all of them. HeteroSAg (Section VI-B) leaves open what to do where one client of a
block is left: here it counts as lost, and its self pads go on hiding what it sent.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from mrsa_jax.secagg._types import SegmentPlan

__all__ = ["admitted", "memberships"]


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
