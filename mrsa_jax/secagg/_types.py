"""What a round of secure sums consists of: a static plan, the seeds of its pads, its result.

SecAgg, SecAgg+ and CCESA are plans of one block; HeteroSAg (segments l, groups g, rings R) is a
plan of many. The same plan drives the array simulation and the real protocol.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from mrsa_jax.modular import check_modulus
from mrsa_jax.quantize.budgets import check_fits
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import brief


@dataclasses.dataclass(frozen=True)
class Block:
    """One secure sum of a round: some participants over some coordinates in one ring.

    Attributes:
        members: Participants (slots 0..n-1 of the round), ascending.
        start: First coordinate.
        stop: One past the last coordinate.
        modulus: R of the sum's ring.
        levels: Levels of the codes that are summed, or None for residues of no known range.
    """

    members: tuple[int, ...]
    start: int
    stop: int
    modulus: int
    levels: int | None = None


SegmentPlan = tuple[Block, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seeds:
    """The 256-bit seeds of one round's pads.

    Attributes:
        client_ids: int32[n], global ids: of a pair, the smaller id adds the pad and the larger
            one subtracts it.
        self_seed: uint32[n, 8], b_i of each participant, fresh in every round.
        pair_seed: uint32[E, 8], s_ij of each pair of slots that shares one.
        edges: int32[E, 2], those pairs i < j in lexicographic order; all n (n - 1) / 2 of them
            in the complete graph.
    """

    __repr__ = brief

    client_ids: Array
    self_seed: Array
    pair_seed: Array
    edges: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RingResult:
    """What the server learns from a round, block by block.

    Attributes:
        totals: One uint32[stop - start] for each block: the sum of its present members' inputs
            mod R; zeros where the sum was withheld.
        status: int32[blocks], a `Status` for each block.
    """

    __repr__ = brief

    totals: tuple[Array, ...]
    status: Array

    @property
    def total(self) -> Array:
        """Return the only block's sum."""
        require(len(self.totals) == 1, "total", "needs a plan of one block", len(self.totals))
        return self.totals[0]


def complete_plan(
    num_participants: int | np.integer,
    dim: int | np.integer,
    modulus: int | np.integer,
    *,
    levels: int | np.integer | None = None,
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
        >>> complete_plan(3, 10, 2**16)[0].members
        (0, 1, 2)
    """
    members = tuple(range(check_integer(num_participants, "num_participants", 1)))
    bound = None if levels is None else int(levels)
    block = Block(members, 0, check_integer(dim, "dim", 1), check_modulus(modulus), bound)
    return segment_plan([block], num_participants, dim)


def segment_plan(
    blocks: Any, num_participants: int | np.integer, dim: int | np.integer | None = None
) -> SegmentPlan:
    """Check blocks against a round's sizes and against each other.

    Args:
        blocks: `Block`s, at least one; two that share a participant may not share a coordinate.
        num_participants: n.
        dim: d; if None, where the last block ends, and then each participant must be in a block.

    Returns:
        The blocks as a static, hashable plan.

    Raises:
        ConfigurationError: If members are not ascending slots, a range is empty or outside
            [0, d), a ring is impossible or too small for its codes, or blocks overlap.

    Examples:
        >>> halves = [Block((0, 1), 0, 5, 2**8), Block((0, 1), 5, 10, 37)]
        >>> [block.modulus for block in segment_plan(halves, 2, 10)]
        [256, 37]
    """
    participants = check_integer(num_participants, "num_participants", 1)
    width = _width(blocks) if dim is None else check_integer(dim, "dim", 1)
    plan = tuple(_checked(block, participants, width) for block in blocks)
    require(len(plan) > 0, "blocks", "must hold at least one block")
    for number, block in enumerate(plan):
        for other in plan[:number]:
            if block.start < other.stop and other.start < block.stop:
                apart = set(block.members).isdisjoint(other.members)
                require(apart, "blocks", "must not cover a participant's coordinate twice", other,
                        block)  # fmt: skip
    missing = set(range(participants)).difference(*(block.members for block in plan))
    first = f"client {min(missing, default=0)} in none"
    whole = dim is not None or not missing
    require(whole, "plan", "must put each client into a block", first)
    return plan


def _width(blocks: Any) -> int:
    """Return where the last of some blocks ends."""
    given = tuple(blocks) if isinstance(blocks, tuple | list) else ()
    proper = len(given) > 0 and all(isinstance(block, Block) for block in given)
    require(proper, "plan", "must be a tuple of `Block`s", blocks)
    return max(int(block.stop) for block in given)


def _checked(block: Block, num_participants: int, dim: int) -> Block:
    members = tuple(int(member) for member in block.members)
    ascending = all(low < high for low, high in itertools.pairwise(members))
    require(len(members) > 0 and ascending, "members", "must be ascending and not empty", members)
    inside = members[0] >= 0 and members[-1] < num_participants
    require(inside, "members", "must lie in [0, num_participants)", members, num_participants)
    start, stop = int(block.start), int(block.stop)
    require(0 <= start < stop <= dim, "start", "must satisfy 0 <= start < stop <= dim",
            start, stop, dim)  # fmt: skip
    modulus = check_modulus(block.modulus)
    if block.levels is not None:
        check_fits(block.levels, len(members), modulus)
    return Block(members, start, stop, modulus, block.levels)


def edge_rows(first: np.ndarray, second: np.ndarray, num_participants: int) -> np.ndarray:
    low, high = np.minimum(first, second), np.maximum(first, second)
    return (low * num_participants - low * (low + 1) // 2 + high - low - 1).astype(np.int32)
