"""From whom the server asked in a round to the groups that HeteroSAg sums by.

HeteroSAg takes all clients in every round; with a cohort selected anew each round (for instance
by Multi-RoundSecAgg) someone has to say who is in which group, and what happens to a group of
which fewer than two are there. Neither paper does; the rules here are this package's.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int64

from mrsa_jax._core.arrays import needs_values
from mrsa_jax._core.round_rules import block_labels
from mrsa_jax.hetero._layout import ModulusRule, SegmentLayout, segment_layout
from mrsa_watch._base.errors import check_integer, nearest, require

SmallGroups = Literal["merge", "sit_out", "skip"]
_RULES = typing.get_args(SmallGroups)
_APART = -1  # the group of a client who takes no part


@dataclasses.dataclass(frozen=True)
class CohortGroups:
    """Who sums in which group in one round.

    Attributes:
        members: The clients who take part, ascending; a client's slot is its place here. Empty
            in a skipped round.
        groups: Slots of each group, slowest group first, ascending; groups without anybody
            keep their place and are empty.
        sitting_out: Clients who were asked and take no part, ascending.
        split_blocks: Numbers of the selection's blocks that are not whole: some of the block's
            clients are summed, and not all of them in one group. Sums of segments separate them,
            so that they no longer hide each other.
    """

    members: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    sitting_out: tuple[int, ...] = ()
    split_blocks: tuple[int, ...] = ()

    @property
    def present(self) -> tuple[int, ...]:
        """Return the numbers of the groups with somebody in them."""
        return tuple(number for number, slots in enumerate(self.groups) if slots)


@needs_values
def ranked_groups(
    cohorts: ArrayLike | Sequence[Any],
    rates: ArrayLike | Sequence[float | int],
    num_groups: int | np.integer,
    *,
    too_small: str = "merge",
    smallest: int | np.integer = 2,
    blocks: ArrayLike | Sequence[int] | int | None = None,
    aligned: bool = False,
) -> tuple[CohortGroups, ...]:
    """Return the groups of each round, cut anew: the cohort by rate, into G equal parts.

    Every round then has the same group sizes (one layout, compiled once) where cohorts are of
    one size, but a client's partners and levels change from round to round.

    Args:
        cohorts: bool[J, N], whom the server asked in each round.
        rates: float[N], transmission rates; equal ones are taken by client.
        num_groups: G; the slowest groups take one more where G does not divide the cohort.
        too_small: What becomes of a group of which fewer than `smallest`, but not none, are in
            the cohort, as happens in cohorts of fewer than `smallest` G. "merge" (the default:
            nobody is lost, nobody sends more bits than it would): from the fastest group down, it
            joins the next slower one that is there; the slowest has none and takes the next
            faster one in, at its own levels. "sit_out": its members take no part. "skip": nobody
            does, in the whole round. With "merge" a round of fewer than `smallest` in all is
            skipped too.
        smallest: Fewest clients of a group, from 2 (one client's sum would be its update).
        blocks: T, or int[N] numbers, of the selection's blocks (to report or to keep whole).
        aligned: Keep `blocks` whole: blocks are ranked by their slowest client and cut into G
            parts, evenly by their number.

    Returns:
        One `CohortGroups` for each round.

    Raises:
        ConfigurationError: If an argument is not as above, or a rate is not finite.

    Examples:
        >>> rates = [3.0, 9.0, 1.0, 4.0, 5.0, 2.0]
        >>> ranked_groups([[1, 1, 1, 1, 0, 0]], rates, 2, blocks=2)[0]
        CohortGroups(members=(0, 1, 2, 3), groups=((0, 2), (1, 3)), sitting_out=(),
        split_blocks=(0, 1))
        >>> ranked_groups([[1, 1, 1, 1, 0, 0]], rates, 2, blocks=2, aligned=True)[0].groups
        ((2, 3), (0, 1))

    Source: none of the papers (HeteroSAg lets everybody take part).
    """
    asked = _checked_cohorts(cohorts)
    speed = np.asarray(rates)
    rule = "must be one finite number for each client"
    numeric = speed.dtype.kind in "iuf" and speed.shape == (asked.shape[1],)
    require(numeric and bool(np.isfinite(speed).all()), "rates", rule, rates)
    count = check_integer(num_groups, "num_groups", 1)
    labels = _checked_blocks(blocks, aligned, asked.shape[1])
    finish = _finisher(count, too_small, smallest, labels)
    units = labels if aligned else np.arange(len(speed))
    return tuple(finish(cohort, _ranked(cohort, speed, units, count)) for cohort in asked)


def cohort_layouts(
    scheme: str,
    rounds: Sequence[CohortGroups],
    levels: Sequence[int | np.integer] | np.ndarray,
    dim: int | np.integer,
    *,
    hybrid_threshold: int | np.integer | None = None,
    modulus_rule: ModulusRule = "exact",
    empty_groups: str = "keep",
) -> tuple[SegmentLayout | None, ...]:
    """Return the layout of each round; equal groups share one.

    Args:
        scheme: "sc", "mc", "hc" or "groups" (see `segment_layout`).
        rounds: Groups of each round.
        levels: K_g of each of the G groups.
        dim: d.
        hybrid_threshold: T of "hc".
        modulus_rule: As in `segment_layout`.
        empty_groups: "keep" the matrix of all G groups, so that segments stay the same, and
            groups who would sum with an absent one sum by themselves; or "drop" them and use the
            matrix of those present (one sum of everybody where that is one group, and T at most
            the groups less one), with fewer segments.

    Returns:
        A layout for each round, None where it is skipped.

    Raises:
        ConfigurationError: As `segment_layout`, or if a round has other groups than levels.

    Examples:
        >>> cohorts = [[1, 1, 0, 0, 1, 1], [0] * 6]
        >>> rounds = ranked_groups(cohorts, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3)
        >>> kept, skipped = cohort_layouts("mc", rounds, [2, 4, 8], 6)
        >>> kept.num_segments, skipped is None
        (3, True)
        >>> cohort_layouts("mc", rounds, [2, 4, 8], 6, empty_groups="drop")[0].num_segments
        2
    """
    own_levels = tuple(check_integer(level, "levels", 2) for level in levels)
    known = empty_groups in ("keep", "drop")
    require(known, "empty_groups", 'must be "keep" or "drop"', empty_groups)
    for number, own in enumerate(rounds):
        fits = len(own.groups) == len(own_levels)
        require(fits, "rounds", "must have as many groups as levels", len(own.groups),
                len(own_levels), f"round {number}")  # fmt: skip
    is_dropped = empty_groups == "drop"

    @functools.cache
    def lay_out(groups: tuple[tuple[int, ...], ...]) -> SegmentLayout:
        columns, chosen, threshold = groups, own_levels, hybrid_threshold
        name = scheme
        if is_dropped:
            there = [number for number, slots in enumerate(groups) if slots]
            columns = tuple(groups[number] for number in there)
            chosen = tuple(own_levels[number] for number in there)
            if len(there) == 1:
                name, threshold = "groups", None
            elif threshold is not None:
                threshold = min(int(threshold), len(there) - 1)
        return segment_layout(
            name,
            columns,
            chosen,
            dim,
            hybrid_threshold=threshold,
            modulus_rule=modulus_rule,
            allow_small_groups=True,  # empty ones: `rounds` has no lonely clients
        )

    return tuple(lay_out(own.groups) if own.members else None for own in rounds)


def _ranked(
    cohort: Bool[np.ndarray, " clients"], speed: np.ndarray, units: np.ndarray, num_groups: int
) -> Int64[np.ndarray, " clients"]:
    """Return the group of each client, -1 outside the cohort; units stay whole."""
    groups = np.full(len(cohort), _APART, np.int64)
    names, of_member = np.unique(units[cohort], return_inverse=True)
    slowest = np.full(len(names), np.inf)
    np.minimum.at(slowest, of_member, speed[cohort].astype(np.float64))
    size, rest = divmod(len(names), num_groups)
    parts = np.repeat(np.arange(num_groups), [size + (g < rest) for g in range(num_groups)])
    group_of_unit = np.empty(len(names), np.int64)
    group_of_unit[np.argsort(slowest, kind="stable")] = parts
    groups[cohort] = group_of_unit[of_member]
    return groups


def _finisher(num_groups: int, too_small: Any, smallest: Any, labels: np.ndarray | None) -> Any:
    """Return what turns a cohort and its clients' groups into `CohortGroups`."""
    hint = f"must be a known rule: {nearest(str(too_small), _RULES)}"
    require(too_small in _RULES, "too_small", hint, too_small)
    fewest = check_integer(smallest, "smallest", 2)

    def finish(cohort: np.ndarray, group_of: np.ndarray) -> CohortGroups:
        kept = _without_small(group_of, num_groups, too_small, fewest)
        members = np.flatnonzero(kept >= 0)
        own = kept[members]
        return CohortGroups(
            tuple(members.tolist()),
            tuple(tuple(np.flatnonzero(own == group).tolist()) for group in range(num_groups)),
            tuple(np.flatnonzero(cohort & (kept < 0)).tolist()),
            () if labels is None else _split(kept, labels),
        )

    return finish


def _without_small(
    group_of: np.ndarray, num_groups: int, too_small: str, fewest: int
) -> np.ndarray:
    """Return each client's group after groups that are too small merged or left."""
    kept = np.array(group_of, np.int64)
    sizes = np.bincount(kept[kept >= 0], minlength=num_groups)
    small = (sizes > 0) & (sizes < fewest)
    if too_small == "sit_out":
        kept[(kept >= 0) & small[kept]] = _APART
        return kept
    if (too_small == "skip" and small.any()) or sizes.sum() < fewest:
        return np.full_like(kept, _APART)
    for group in range(num_groups - 1, -1, -1):
        while 0 < sizes[group] < fewest:
            slower = np.flatnonzero(sizes[:group])
            faster = group + 1 + np.flatnonzero(sizes[group + 1 :])
            source, target = (group, slower[-1]) if len(slower) else (faster[0], group)
            kept[kept == source] = target
            sizes[target] += sizes[source]
            sizes[source] = 0
    return kept


def _split(kept: np.ndarray, labels: np.ndarray) -> tuple[int, ...]:
    touched = np.unique(labels[kept >= 0])
    return tuple(int(block) for block in touched if len(set(kept[labels == block].tolist())) > 1)


def _checked_cohorts(cohorts: Any) -> Bool[np.ndarray, "rounds clients"]:
    array = np.asarray(cohorts)
    rule = "must hold zeros and ones, [rounds, clients]"
    proper = array.ndim == 2 and array.size > 0 and array.dtype.kind in "biu"
    require(proper, "cohorts", rule, f"{array.dtype} of shape {array.shape}")
    require(bool(((array == 0) | (array == 1)).all()), "cohorts", rule, int(array.max()))
    return array.astype(np.bool_)


def _checked_blocks(blocks: Any, aligned: bool, num_clients: int) -> Any:
    require(not aligned or blocks is not None, "aligned", "must come with `blocks`", aligned)
    return None if blocks is None else np.asarray(block_labels(blocks, num_clients))
