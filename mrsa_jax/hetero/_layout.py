"""A round of HeteroSAg laid out: who sums which coordinates with whom, in which ring.

HeteroSAg, Sections III and V-B. A layout is static and becomes the `SegmentPlan` that
the ring sums and the real protocol run: no second path for pads, losses or shares.
Symbols: S_g^d -> a column's slots, x^l -> coordinates of segment l, K_g -> `levels`, R
= |S| (K_g - 1) + 1.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int

from mrsa_jax._core.pictures import with_picture
from mrsa_jax._core.pytrees import as_typed
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._segments import (
    ALONE,
    SCHEMES,
    blocks_of,
    check_levels,
    check_matrix,
    check_subgroups,
    segment_matrix,
)
from mrsa_jax.quantize.budgets import ring_size
from mrsa_jax.secagg import Block, PlanOutcome, SegmentPlan
from mrsa_jax.secagg.plans import memberships
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

ModulusRule = Literal["exact", "power_of_two"]
# as in `quantize.stochastic`: float32 tells no more apart
_MAX_LEVELS = 2**23


@dataclasses.dataclass(frozen=True)
class SegmentBlock:
    """One secure sum of a layout.

    Attributes:
        segment: Row of the matrix, l.
        columns: Groups (or subgroups) in the sum, ascending.
        num_levels: K of its quantizer, the smallest column's.
        members: Slots of the round in it, ascending.
        start: First coordinate.
        stop: One past the last coordinate.
        modulus: R of its ring.
    """

    segment: int
    columns: tuple[int, ...]
    num_levels: int
    members: tuple[int, ...]
    start: int
    stop: int
    modulus: int


@by_value
class SegmentRows(NamedTuple):
    """Segments of a layout as arrays, side by side (Z of them, or a part).

    Attributes:
        segment: int32[Z], l.
        levels: int32[Z, n], K with which each slot quantizes it.
        modulus_of: uint32[Z, n], R of each slot's block; 0 stands for 2^32.
        rings: uint32[Z, D], the different R of its blocks, ascending; 1 beyond the
            last.
        slots: int32[Z, B, m], members of each block, B and m the most of all rows;
            padded with n.
        number: int32[Z, B], of the block among all blocks; their count beyond the last.
        block_levels: int32[Z, B], K of each block; 2 beyond the last.
        moduli: uint32[Z, B], R of each block, 0 for 2^32; 2 beyond the last.
    """

    segment: Any
    levels: Any
    modulus_of: Any
    rings: Any
    slots: Any
    number: Any
    block_levels: Any
    moduli: Any


@dataclasses.dataclass(frozen=True)
class SegmentLayout:
    """Groups, segments and blocks of a round (build it with `segment_layout`).

    Static and hashable.

    Attributes:
        matrix: B, [segments, columns] as tuples; -1 for a column by itself.
        columns: Slots of each column (a group, or a subgroup), ascending.
        levels: K of each column's quantizer.
        dim: d, length of an update.
        modulus_rule: "exact": R = |S| (K - 1) + 1; "power_of_two": the next power of
            two, which takes as many bits on the wire and half the keystream.
        modulus_bits: b of every block's ring of 2**b elements, instead of the rule; or
            None.
    """

    cites = "heterosag"

    matrix: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    levels: tuple[int, ...]
    dim: int
    modulus_rule: ModulusRule = "exact"
    modulus_bits: int | None = None

    __repr__ = as_typed
    _repr_html_ = with_picture

    def typed(self) -> list[tuple[Any, ...]]:
        """Return the calls that may have made it."""
        sizes = [len(column) for column in self.columns]
        rest = sizes, list(self.levels), self.dim
        return [(segment_layout, scheme, *rest) for scheme in ("sc", "mc", "groups")]

    def _cells(self) -> np.ndarray:
        """Segments: a row each.

        Groups of one colour are in one sum, grey ones by themselves.
        """
        return np.asarray(self.matrix) + 1

    @property
    def num_participants(self) -> int:
        """Return n, the slots of a round."""
        return sum(len(column) for column in self.columns)

    @property
    def num_segments(self) -> int:
        """Return Z, the rows of the matrix."""
        return len(self.matrix)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """Return (start, stop) of each segment; their lengths differ by one at most."""
        size, rest = divmod(self.dim, self.num_segments)
        # The first `rest` segments are one longer, so segment l starts after min(l,
        # rest) extra coordinates.
        starts = [row * size + min(row, rest) for row in range(self.num_segments + 1)]
        return tuple(itertools.pairwise(starts))

    @functools.cached_property
    def blocks(self) -> tuple[SegmentBlock, ...]:
        """Return all sums, by segment and then by smallest column.

        None without members.
        """
        blocks = []
        for segment, row in enumerate(blocks_of(np.asarray(self.matrix))):
            start, stop = self.bounds[segment]
            for columns in row:
                slots = itertools.chain.from_iterable(
                    self.columns[column] for column in columns
                )
                members = tuple(sorted(slots))
                if members:
                    # Levels do not descend from column to column: the first column has
                    # the fewest, which every client of the block can afford.
                    levels = self.levels[columns[0]]
                    modulus = self._modulus(levels, len(members))
                    blocks.append(
                        SegmentBlock(
                            segment, columns, levels, members, start, stop, modulus
                        )
                    )
        return tuple(blocks)

    def _modulus(self, levels: int, count: int) -> int:
        """Return R of a sum of codes of some clients."""
        if self.modulus_bits is not None:
            return 1 << self.modulus_bits
        modulus = ring_size(levels, count)
        if self.modulus_rule == "power_of_two":
            # The smallest power of two that is at least R.
            return 1 << (modulus - 1).bit_length()
        return modulus

    @functools.cached_property
    def plan(self) -> SegmentPlan:
        """Return the plan that `secagg` and `protocol` run, one block per `blocks`."""
        return tuple(
            Block(
                block.members, block.start, block.stop, block.modulus, block.num_levels
            )
            for block in self.blocks
        )

    @functools.cached_property
    def rows(self) -> SegmentRows:
        """Return the segments as arrays, which encode, sum and decode them."""
        count = self.num_participants
        segments = self.num_segments
        blocks = self.blocks
        # Blocks per segment. Rows differ in it, and blocks in members: both are padded
        # to the most, so that one program serves all segments.
        sizes = np.bincount([block.segment for block in blocks])
        most = sizes.max()
        widest = max(len(block.members) for block in blocks)
        rows = SegmentRows(
            segment=np.arange(segments, dtype=np.int32),
            levels=np.zeros((segments, count), np.int32),
            modulus_of=np.zeros((segments, count), np.uint32),
            rings=np.ones((segments, most), np.uint32),
            slots=np.full((segments, most, widest), count, np.int32),
            number=np.full((segments, most), len(blocks), np.int32),
            block_levels=np.full((segments, most), 2, np.int32),
            moduli=np.full((segments, most), 2, np.uint32),
        )
        # blocks are in the order of their segments
        firsts = np.cumsum(sizes) - sizes
        for number, block in enumerate(blocks):
            segment = block.segment
            members = list(block.members)
            at = segment, number - firsts[segment]
            rows.levels[segment, members] = block.num_levels
            # 2^32 does not fit uint32 and becomes 0, which the kernels read as 2^32.
            rows.modulus_of[segment, members] = block.modulus % 2**32
            rows.slots[at][: len(members)] = members
            rows.number[at] = number
            rows.block_levels[at] = block.num_levels
            rows.moduli[at] = block.modulus % 2**32
        for segment, size in enumerate(sizes):
            # Attacks on residues run once per different ring of a row, not once per
            # block.
            rings = np.unique(rows.moduli[segment, :size])
            rows.rings[segment, : len(rings)] = rings
        return rows

    @functools.cached_property
    def memberships(self) -> np.ndarray:
        """Return bool[blocks, n], who is in which block."""
        return memberships(self.plan, self.num_participants)

    def outcome(
        self,
        survivors: Bool[np.ndarray, "5 n"],
        thresholds: int | Int[np.ndarray, " *n"] | None = None,
        *,
        adjacency: Bool[np.ndarray, "n n"] | None = None,
    ) -> PlanOutcome:
        """Decide the outcome of a round from sets alone, as the real protocol would.

        Args:
            survivors: bool[5, n], V0 to V4, nested.
            thresholds: t_i, one integer or int[n]; more than half of each client's
                shares if None.
            adjacency: bool[n, n], who shares secrets (and pads within a block) with
                whom; everybody in V0 if None.

        Returns:
            Status of the round and of each block, who is summed, and what is learnt.

        Examples:
            >>> import mrsa_jax as mj
            >>> import numpy as np
            >>> layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], dim=6)
            >>> survivors = np.ones((5, 6), bool)
            >>> survivors[3:, 0] = False  # leaves client 1 alone wherever group 0 is
            >>> layout.outcome(survivors).summed.tolist()
            [False, False, True, True, True, True]
        """
        graph, limits = graph_and_limits(survivors[0], adjacency, thresholds)
        return PlanOutcome.of(graph, survivors, limits, self.plan)

    def levels_of(self) -> np.ndarray:
        """Return int32[segments, n], each slot's number of levels in each segment."""
        return self.rows.levels.copy()


@needs_values
def segment_layout(
    scheme: str | ArrayLike | Sequence[Any],
    groups: Sequence[Any] | np.ndarray,
    levels: Sequence[int | np.integer] | np.ndarray,
    dim: int | np.integer,
    *,
    subgroups: Sequence[int | np.integer] | np.ndarray | None = None,
    hybrid_threshold: int | np.integer | None = None,
    modulus_rule: ModulusRule = "exact",
    modulus_bits: int | np.integer | None = None,
    allow_small_groups: bool = False,
) -> SegmentLayout:
    """Lay out a round: cut clients into groups and updates into segments.

    Args:
        scheme: "sc", "mc" or "hc"; "groups" for the plain multi-group sums, one for
            each group over whole updates (privacy level 0 of two groups or more); or a
            matrix int[segments, columns].
        groups: The slots of each group, slowest group first; or their sizes, for
            consecutive slots.
        levels: K_g of each group, from 2 to 2**23, never descending.
        dim: d, at least the number of segments.
        subgroups: L_g: into how many subgroups each group is cut, as evenly as
            possible; one each if None.
        hybrid_threshold: T of "hc".
        modulus_rule: "exact" or "power_of_two".
        modulus_bits: b, at most 32: gives every block a ring of 2**b elements, so that
            there is room for noise (`segment_average`); instead of the rule.
        allow_small_groups: Accept groups (or subgroups) of fewer than two clients,
            whose own sums are no sums.

    Returns:
        The layout; segments are as many as the matrix has rows, of ragged length where
        that does not divide d.

    Raises:
        ConfigurationError: If slots are not 0 to n - 1, each once; levels are out of
            range, descending or not one for each group; there are more segments than
            coordinates; a group is too small; a ring would pass 32 bits; or the matrix
            does not fit.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("mc", [2, 2, 2], [2, 4, 8], dim=7)
        >>> layout.bounds
        ((0, 3), (3, 5), (5, 7))
        >>> [block.modulus for block in layout.blocks if block.segment == 0]
        [5, 15]

    Source: HeteroSAg, Section III (Steps 3 and 4 for R) and V-B.
    """
    slots = _checked_groups(groups)
    bounds = "must lie in [2, 2**23]"
    own_levels = [
        check_integer(level, "levels", 2, _MAX_LEVELS, rule=bounds) for level in levels
    ]
    check_levels(own_levels, len(slots), "group")
    is_rule = modulus_rule in ("exact", "power_of_two")
    require(is_rule, "modulus_rule", 'must be "exact" or "power_of_two"', modulus_rule)
    columns, column_levels = _cut(slots, own_levels, subgroups)
    smallest = min(len(column) for column in columns)
    # Even a column that sums by itself ("*") must hide its clients among two or more.
    rule = (
        "must leave two clients or more in each group or subgroup "
        "(`allow_small_groups`)"
    )
    require(allow_small_groups or smallest >= FEWEST_IN_A_SUM, "groups", rule, smallest)
    matrix = _matrix(scheme, len(columns), hybrid_threshold)
    width = check_integer(dim, "dim", 1)
    rule = "must be at least the segments"
    require(width >= len(matrix), "dim", rule, width, len(matrix))
    rows = tuple(map(tuple, matrix.tolist()))
    layout = SegmentLayout(rows, columns, column_levels, width, modulus_rule)
    largest = max(layout.blocks, key=lambda block: block.modulus)
    if modulus_bits is not None:
        bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
        rule = "must leave room for the largest sum of codes"
        fits = largest.modulus <= 2**bits
        require(fits, "modulus_bits", rule, bits, largest.modulus - 1)
        return dataclasses.replace(layout, modulus_bits=bits)
    # Sums modulo a ring that is no power of two double a residue in uint32
    # (`plain_row`), which needs R below 2^31.
    most = 2**32 if modulus_rule == "power_of_two" else 2**31 - 1
    rule = "must leave each block a ring below 2**31 (|S| (K - 1) + 1)"
    block = f"{largest.num_levels} levels for {len(largest.members)} clients"
    require(largest.modulus <= most, "levels", rule, block)
    return layout


def graph_and_limits(
    members: np.ndarray, adjacency: np.ndarray | None, thresholds: Any
) -> tuple[np.ndarray, Any]:
    """Return a round's graph, complete by default, and its thresholds.

    By default they are more than half.
    """
    graph = adjacency
    if graph is None:
        # The complete graph on V0 without loops.
        graph = members[:, None] & members[None, :] & ~np.eye(len(members), dtype=bool)
    if thresholds is None:
        # More than half of a neighbourhood, the client itself included: two disjoint
        # halves cannot both rebuild a secret.
        thresholds = np.maximum((graph.sum(axis=1) + 1) // 2 + 1, 2).astype(np.int32)
    return graph, thresholds


def _checked_groups(groups: Sequence[Any] | np.ndarray) -> list[tuple[int, ...]]:
    listed = list(groups)
    require(len(listed) > 0, "groups", "must hold at least one group", listed)
    # Plain numbers are sizes of groups, which take consecutive slots.
    if all(np.ndim(group) == 0 for group in listed):
        sizes = [check_integer(size, "groups", 0) for size in listed]
        ends = np.cumsum(sizes).tolist()
        slots = [
            tuple(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)
        ]
    else:
        slots = [
            tuple(sorted(check_integer(slot, "groups", 0) for slot in group))
            for group in listed
        ]
    everybody = sorted(itertools.chain.from_iterable(slots))
    proper = len(everybody) > 0 and everybody == list(range(len(everybody)))
    rule = "must hold the slots 0 to n - 1, each once"
    require(proper, "groups", rule, everybody[:8])
    return slots


def _cut(
    groups: list[tuple[int, ...]], levels: list[int], subgroups: Any
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    if subgroups is None:
        return tuple(groups), tuple(levels)
    counts = check_subgroups(subgroups, len(groups))
    columns, level_of_segment = [], []
    for group, level, count in zip(groups, levels, counts, strict=True):
        # The subgroups of a group stay neighbours, so the pairs (g, d) are in the order
        # of the columns; all keep the levels of their group.
        columns += [tuple(part.tolist()) for part in np.array_split(group, count)]
        level_of_segment += [level] * count
    return tuple(columns), tuple(level_of_segment)


def _matrix(scheme: Any, num_columns: int, hybrid_threshold: Any) -> np.ndarray:
    if isinstance(scheme, str) and scheme == "groups":
        rule = 'must be given for "hc" alone'
        is_unset = hybrid_threshold is None
        require(is_unset, "hybrid_threshold", rule, scheme, hybrid_threshold)
        return np.full((1, num_columns), ALONE, np.int32)
    if isinstance(scheme, str):
        rule = f"must be one of {', '.join((*SCHEMES, 'groups'))}, or a matrix"
        require(scheme in SCHEMES, "scheme", rule, scheme)
        return segment_matrix(scheme, num_columns, hybrid_threshold)
    matrix = check_matrix(scheme)
    shape = matrix.shape
    rule = "must have a column for each group or subgroup"
    require(shape[1] == num_columns, "scheme", rule, shape, num_columns)
    return matrix
