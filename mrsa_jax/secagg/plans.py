"""Plan the sums of a round: blocks of participants over ranges of coordinates.

SecAgg, SecAgg+ and CCESA are plans of one block; HeteroSAg (segments l, groups g, rings
R) is a plan of many. The same plan drives the array simulation and the real protocol.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from jaxtyping import Array, Bool

from mrsa_jax._core.array_types import Whole
from mrsa_jax._core.pytrees import pytree
from mrsa_jax.modular import check_modulus
from mrsa_jax.quantize.budgets import check_fits
from mrsa_watch._base.errors import check_integer, is_integer, require


@dataclasses.dataclass(frozen=True)
class Block:
    """One secure sum of a round: some participants over some coordinates in one ring.

    Attributes:
        members: Participants (slots 0..n-1 of the round), ascending.
        start: First coordinate.
        stop: One past the last coordinate.
        modulus: R of the sum's ring.
        levels: Levels of the codes that are summed, or None for residues of no known
            range.
    """

    members: tuple[int, ...]
    start: int
    stop: int
    modulus: int
    levels: int | None = None


SegmentPlan = tuple[Block, ...]


def only_total(result: Any) -> Any:
    """Return the only block's sum; raises for a plan of many."""
    count = len(result.totals)
    require(count == 1, "total", "needs a plan of one block", count)
    return result.totals[0]


@pytree
class RingResult:
    """Hold the sums of a round, block by block.

    Attributes:
        totals: One uint32[stop - start] for each block: the sum of its present members'
            inputs mod R; zeros where the sum was withheld.
        status: int32[blocks], a `Status` for each block.
    """

    totals: tuple[Array, ...]
    status: Array

    total = property(only_total)


def complete_plan(
    num_participants: Whole,
    dim: Whole,
    modulus: Whole,
    *,
    levels: Whole | None = None,
) -> SegmentPlan:
    """Plan one sum of everybody over all coordinates, in one ring.

    Args:
        num_participants: n, at least 1.
        dim: d, at least 1.
        modulus: R (see `modular.check_modulus`).
        levels: Levels of the codes, if the plan is to check that n of them fit.

    Returns:
        A plan of one block.

    Raises:
        ConfigurationError: If an argument is out of range or the sum could wrap round.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.secagg.complete_plan(3, 10, 2**16)[0].members
        (0, 1, 2)
    """
    participants = check_integer(num_participants, "num_participants", 1)
    width = check_integer(dim, "dim", 1)
    ring = check_modulus(modulus)
    bound = None if levels is None else int(levels)
    if bound is not None:
        check_fits(bound, participants, ring)
    return (Block(tuple(range(participants)), 0, width, ring, bound),)


def segment_plan(
    blocks: Any,
    num_participants: Whole,
    dim: Whole | None = None,
) -> SegmentPlan:
    """Check blocks against a round's sizes and against each other.

    Args:
        blocks: `Block`s, at least one; two that share a participant may not share a
            coordinate.
        num_participants: n.
        dim: d; if None, where the last block ends, and then each participant must be in
            a block.

    Returns:
        The blocks as a static, hashable plan.

    Raises:
        ConfigurationError: If members are not ascending slots, a range is empty or
            outside [0, d), a ring is impossible or too small for its codes, or blocks
            overlap.

    Examples:
        >>> import mrsa_jax as mj
        >>> halves = [
        ...     mj.secagg.Block((0, 1), 0, 5, 2**8),
        ...     mj.secagg.Block((0, 1), 5, 10, 37),
        ... ]
        >>> [block.modulus for block in mj.secagg.segment_plan(halves, 2, 10)]
        [256, 37]
    """
    participants = check_integer(num_participants, "num_participants", 1)
    width = _width(blocks) if dim is None else check_integer(dim, "dim", 1)
    plan = tuple(_checked(block, participants, width) for block in blocks)
    require(len(plan) > 0, "blocks", "must hold at least one block")
    rule = "must not cover a participant's coordinate twice"
    for other, block in itertools.combinations(plan, 2):
        if block.start < other.stop and other.start < block.stop:
            require(
                set(block.members).isdisjoint(other.members),
                "blocks",
                rule,
                other,
                block,
            )
    if dim is None:
        absent = set(range(participants)).difference(*(b.members for b in plan))
        first = f"client {min(absent, default=0)} in none"
        require(not absent, "plan", "must put each client into a block", first)
    return plan


def _width(blocks: Any) -> int:
    """Return the coordinate at which the last of some blocks ends."""
    is_sequence = isinstance(blocks, tuple | list) and len(blocks) > 0
    require(
        is_sequence and all(isinstance(block, Block) for block in blocks),
        "plan",
        "must be a tuple of `Block`s",
        blocks,
    )
    return max(check_integer(block.stop, "stop", 1) for block in blocks)


def _checked(block: Block, num_participants: int, dim: int) -> Block:
    are_integers = all(map(is_integer, block.members))
    require(are_integers, "members", "must hold integers", block.members)
    members = tuple(map(int, block.members))
    ascending = all(low < high for low, high in itertools.pairwise(members))
    require(
        len(members) > 0 and ascending,
        "members",
        "must be ascending and not empty",
        members,
    )
    require(
        members[0] >= 0 and members[-1] < num_participants,
        "members",
        "must lie in [0, num_participants)",
        members,
        num_participants,
    )
    start = check_integer(block.start, "start", 0)
    stop = check_integer(block.stop, "stop", 1)
    require(
        start < stop <= dim,
        "start",
        "must satisfy 0 <= start < stop <= dim",
        start,
        stop,
        dim,
    )
    modulus = check_modulus(block.modulus)
    if block.levels is not None:
        check_fits(block.levels, len(members), modulus)
    return Block(members, start, stop, modulus, block.levels)


def memberships(
    plan: SegmentPlan, participants: int
) -> Bool[np.ndarray, "blocks participants"]:
    """Mark the members of each block."""
    members = np.zeros((len(plan), participants), bool)
    for row, block in zip(members, plan, strict=True):
        row[list(block.members)] = True
    return members
