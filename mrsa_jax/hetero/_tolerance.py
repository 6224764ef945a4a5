"""The exact number of Byzantine clients that a rule over blocks tolerates.

HeteroSAg, Section V-A: one attacker spoils the block that its group is in, in every
row, and a median needs less than half of each row spoilt. Symbols: n_B -> the counts
here, G -> columns.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Int64

from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._segments import blocks_of
from mrsa_watch._base.errors import check_integer, check_number, require

_Numbers = ArrayLike | Sequence[Any]


@dataclasses.dataclass(frozen=True)
class ByzantineTolerance:
    """Number of attackers that a matrix tolerates (see `tolerated_byzantine`).

    Attributes:
        anywhere: The most attackers that spoil no row too far, wherever they sit.
        together: The most that do so where they sit best: all clients of `best_groups`.
        best_groups: Such groups, ascending.
        together_at_most: Equal to `together`, unless the search was cut short.
        num_blocks: Of each row, those with anybody in them.
        limits: For each row, the weight of blocks that may be bad.
        claimed: The paper's 0.25 G - 1, of "mc" and attackers in different groups.
    """

    anywhere: int
    together: int
    best_groups: tuple[int, ...]
    together_at_most: int
    num_blocks: tuple[int, ...]
    limits: tuple[int, ...]
    claimed: float

    @property
    def certified(self) -> bool:
        """Whether `together` is proved the most."""
        return self.together == self.together_at_most


@needs_values
def tolerated_byzantine(
    matrix: ArrayLike | Sequence[Any],
    *,
    trim: float | Fraction | None = None,
    weighted: bool = True,
    weights: _Numbers | None = None,
    group_sizes: _Numbers | None = None,
    max_nodes: int | np.integer = 5_000,
) -> ByzantineTolerance:
    """Return the number of attackers that a coordinate-wise rule tolerates.

    A group with an attacker spoils one block of each row. A row is lost where its bad
    blocks weigh half or more (of the median; of the trimmed mean, more than `trim`).
    Attackers in different groups spoil different blocks of some row at worst, so that
    `anywhere` is the fewest blocks that can lose a row, less one: for the unweighted
    median ceil(B / 2) - 1 with B the blocks of the shortest row, the most n_B below B /
    2. `together` is found by branch and bound.

    Like the rules of `robust`, blocks count by their clients unless `weighted` is
    False.

    Args:
        matrix: int[segments, groups]; groups are the columns, subgroups for the +
            schemes.
        trim: Share that a `trimmed_mean` leaves out at each end, in [0, 1/2); None for
            the median.
        weighted: Count blocks by the clients in them; otherwise each once, as in the
            paper. Must be that of the rule (`robust.coordinate_median(weighted=)`).
        weights: Clients summed in each group [G]; a group of 0 is not there.
            `group_sizes` if None.
        group_sizes: Clients in each group [G], all of which may be attackers in
            `together`; one each if None, so that `together` counts groups.
        max_nodes: Steps of the search (half a millisecond each at G = 31), after which
            `together` is a lower bound.

    Returns:
        Both counts, and what they are made of.

    Raises:
        ConfigurationError: If the matrix is none, or an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> five = mj.hetero.tolerated_byzantine(mj.hetero.segment_matrix("mc", 5))
        >>> five.anywhere, five.num_blocks, five.claimed
        (1, (3, 3, 3, 3, 3), 0.25)
        >>> mj.hetero.tolerated_byzantine(
        ...     mj.hetero.segment_matrix("mc", 5), group_sizes=[4] * 5
        ... ).together
        4

        A row of a chain of four has a block of two groups and two of one:

        >>> chain = mj.hetero.segment_matrix("sc", 4)
        >>> mj.hetero.tolerated_byzantine(chain).anywhere
        0
        >>> mj.hetero.tolerated_byzantine(chain, weighted=False).anywhere
        1

    Source: HeteroSAg, Section V-A. Differs from the paper, whose n_B <= 0.25 G - 1 is
    exact only where 4 divides G: G = 5 tolerates one attacker (its own Experiment 2),
    not 0.25.
    """
    rows = blocks_of(np.asarray(matrix))
    columns = np.asarray(matrix).shape[1]
    sizes = _counts(group_sizes, columns, "group_sizes", 1)
    counts = sizes if weights is None else _counts(weights, columns, "weights", 0)
    nodes = check_integer(max_nodes, "max_nodes", 1)
    share = None if trim is None else check_trim(trim)
    # weight of the block of each group
    table = np.zeros((len(rows), columns), np.int64)
    block_of = np.zeros((len(rows), columns), np.int64)
    for segment, blocks in enumerate(rows):
        for number, block in enumerate(blocks):
            block_of[segment, list(block)] = number
            # Unweighted, a block counts 1 if any client of it counts, else 0.
            heavy = sum(int(counts[group]) for group in block)
            table[segment, list(block)] = heavy if weighted else min(heavy, 1)
    # the weight of each block of each row, 0 beyond the last
    heavy_blocks = np.zeros((len(rows), columns), np.int64)
    heavy_blocks[np.arange(len(rows))[:, None], block_of] = table
    limits = spoilt_limits(heavy_blocks.sum(axis=1), share)
    search = _Search(table, block_of, limits, sizes, nodes)
    together, groups, bound = search.run([g for g in range(columns) if counts[g] > 0])
    return ByzantineTolerance(
        int(tolerated_anywhere(heavy_blocks, limits)),
        together,
        groups,
        bound,
        tuple((heavy_blocks > 0).sum(axis=1).tolist()),
        tuple(limits.tolist()),
        0.25 * columns - 1.0,
    )


def _counts(
    values: _Numbers | None, columns: int, argument: str, least: int
) -> np.ndarray:
    if values is None:
        return np.ones(columns, np.int64)
    counts = [
        check_integer(value, argument, least)
        for value in np.asarray(values).reshape(-1)
    ]
    require(
        len(counts) == columns,
        argument,
        "must have one entry for each group",
        len(counts),
        columns,
    )
    require(sum(counts) > 0, argument, "must not all be 0", counts)
    return np.asarray(counts, np.int64)


def check_trim(trim: Any) -> Fraction:
    """Return the fraction that a trimmed mean leaves out at each end, or raise."""
    below_half = math.nextafter(0.5, 0.0)
    check_number(
        trim, "trim", "must lie in [0, 0.5)", 0.0, below_half, kind="must be a number"
    )
    # a third given as a float means a third
    return Fraction(trim).limit_denominator(10**6)


def spoilt_limits(
    totals: Int64[np.ndarray, "*_"], trim: Fraction | None
) -> Int64[np.ndarray, "*_"]:
    """Return the weight of bad blocks up to which a row of a total weight is safe."""
    if trim is None:
        # strictly less than half
        return np.maximum((totals - 1) // 2, 0)
    return totals * trim.numerator // trim.denominator


def tolerated_anywhere(
    weights: Int64[np.ndarray, "*rounds rows blocks"],
    limits: Int64[np.ndarray, "*rounds rows"],
) -> Int64[np.ndarray, "*rounds"]:
    """Return the most bad blocks of any row that weigh at most its limit together."""
    heaviest_first = -np.sort(-weights, axis=-1)
    safe = np.cumsum(heaviest_first, axis=-1) <= limits[..., None]
    return np.asarray(safe.sum(axis=-1).min(axis=-1))


class _Search:
    """Search the largest set of groups whose blocks keep the limit of every row."""

    def __init__(
        self,
        table: np.ndarray,
        block_of: np.ndarray,
        limits: np.ndarray,
        sizes: np.ndarray,
        max_nodes: int,
    ) -> None:
        self.table, self.block_of, self.sizes = table, block_of, sizes
        self.limits, self.nodes_left = limits, max_nodes
        self.rows = np.arange(len(limits))
        # held[row, block, group]: whether the group is in the block
        self.held = (
            block_of[:, None, :] == np.arange(int(block_of.max()) + 1)[None, :, None]
        )
        self.block_weight = (self.held * table[:, None, :]).max(axis=2)
        self.best, self.cap = 0, 0
        self.groups: tuple[int, ...] = ()
        self.open_bound = 0  # largest bound of a branch that was given up

    def run(self, candidates: list[int]) -> tuple[int, tuple[int, ...], int]:
        """Return the best size found, its groups, and a proved upper bound."""
        self.cap = int(self.sizes[candidates].sum())
        if (self.sizes == 1).all() and self.block_weight.max() == 1:
            self.cap = min(self.cap, self._bound_by_pairs(candidates))
        hit = np.zeros(self.block_weight.shape, bool)
        self._extend([], 0, candidates, hit, self.limits.copy())
        return self.best, self.groups, min(self.cap, max(self.best, self.open_bound))

    def _extend(
        self,
        chosen: list[int],
        size: int,
        candidates: list[int],
        hit: np.ndarray,
        slack: np.ndarray,
    ) -> None:
        if size > self.best:
            self.best, self.groups = size, tuple(chosen)
        # A block that is spoilt already costs nothing more.
        needs = np.where(hit[self.rows[:, None], self.block_of], 0, self.table)
        candidates = [g for g in candidates if (needs[:, g] <= slack).all()]
        # Only later candidates follow a chosen one, so each set is tried once.
        for place, group in enumerate(candidates):
            bound = min(self.cap, size + self._bound(candidates[place:], hit, slack))
            if bound <= self.best:
                return
            if self.nodes_left <= 0:
                self.open_bound = max(self.open_bound, bound)
                return
            self.nodes_left -= 1
            after = hit.copy()
            after[self.rows, self.block_of[:, group]] = True
            self._extend(
                [*chosen, group],
                size + int(self.sizes[group]),
                candidates[place + 1 :],
                after,
                slack - needs[:, group],
            )

    def _bound(self, candidates: list[int], hit: np.ndarray, slack: np.ndarray) -> int:
        """Return the most that candidates can add: in each row, spoilt blocks are free.

        The others are a knapsack, of which the last block is taken in part.
        """
        gain = (self.held[:, :, candidates] * self.sizes[candidates]).sum(axis=2)
        free = np.where(hit, gain, 0).sum(axis=1)
        gain = np.where(hit, 0, gain)
        weight = np.maximum(self.block_weight, 1)
        # A fractional knapsack for each row, best gain per weight first; the least row
        # bounds the whole.
        order = np.argsort(-(gain / weight), axis=1, kind="stable")
        gain, weight = (
            np.take_along_axis(gain, order, 1),
            np.take_along_axis(weight, order, 1),
        )
        room = slack[:, None] - (np.cumsum(weight, axis=1) - weight)
        taken = np.clip(room / weight, 0.0, 1.0) * gain
        # 1e-9 against rounding down a whole number; a bound may only be too large.
        return int((free + np.floor(taken.sum(axis=1) + 1e-9)).min())

    def _bound_by_pairs(self, candidates: list[int]) -> int:
        """Return a bound on the number of groups from all rows at once.

        k groups hit k blocks a row, less one at most for each two of them in one block;
        so over all rows k times the rows less the pairs may not exceed the limits' sum.
        """
        same = (self.block_of[:, :, None] == self.block_of[:, None, :]).sum(axis=0)
        np.fill_diagonal(same, 0)
        same = same[np.ix_(candidates, candidates)]
        most = -np.sort(-same, axis=1)
        for count in range(1, len(candidates) + 1):
            # The most shared blocks that `count` groups can have: the `count - 1`
            # largest entries of each, where every pair is counted twice.
            pairs = np.sort(most[:, : count - 1].sum(axis=1))[::-1][:count].sum() // 2
            # Inclusion and exclusion: spoilt blocks are at least memberships less
            # shared pairs.
            if count * len(self.rows) - pairs > self.limits.sum():
                # not monotone in general: a larger set would contain one of this size
                return count - 1
        return len(candidates)
