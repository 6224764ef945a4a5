"""Lay rounds out in slots, so that shapes do not change with the cohort."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32


def padded_slots(
    cohorts: Bool[np.ndarray, "*rounds clients"],
    width: int,
    order: Int32[np.ndarray, " clients"] | None = None,
) -> tuple[Int32[np.ndarray, "*rounds slots"], Bool[np.ndarray, "*rounds slots"]]:
    """Return the members of each round by slot, and which slots hold one.

    Client 0 fills up.

    Args:
        cohorts: Members of each round.
        width: Slots of a round, at least as many as any has members.
        order: All clients, in the order in which members take slots; ascending if None.

    Examples:
        >>> members, present = padded_slots(np.asarray([False, True, True]), 3)
        >>> members.tolist(), present.tolist()
        ([1, 2, 0], [True, True, False])
    """
    ordered = cohorts if order is None else cohorts[..., order]
    present = np.arange(width) < ordered.sum(axis=-1, keepdims=True)
    members = np.zeros(present.shape, np.int32)
    chosen = np.nonzero(ordered)[-1]
    members[present] = chosen if order is None else order[chosen]
    return members, present
