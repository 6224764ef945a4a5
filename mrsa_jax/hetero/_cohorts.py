"""Groups by which HeteroSAg sums, for the cohort that the server selects in a round.

HeteroSAg takes all clients in every round. With a cohort selected anew each round (for
instance by Multi-RoundSecAgg) something has to decide who is in which group, and what
happens to a group of which fewer than two clients are in the cohort. Neither paper
does; the rules here are this package's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int64

from mrsa_jax._core.round_rules import block_labels
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._layout import ModulusRule, SegmentLayout, segment_layout
from mrsa_watch._base.errors import check_integer, check_known, require
from mrsa_watch._base.values import by_value

_RULES = ("merge", "sit_out", "skip")
_APART = -1  # the group of a client who takes no part


@dataclasses.dataclass(frozen=True)
@by_value
class CohortGroups:
    """Groups of the clients of one round.

    Attributes:
        members: The clients who take part, ascending; a client's slot is its place
            here. Empty in a skipped round.
        groups: Slots of each group, slowest group first, ascending; groups without
            anybody keep their place and are empty.
        sitting_out: Clients who were asked and take no part, ascending.
        split_blocks: Numbers of the selection's blocks that are not whole: some of the
            block's clients are summed, and not all of them in one group. Sums of
            segments separate them, so that they no longer hide each other.
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
    """Cut each round's cohort by rate into G equal parts.

    Every round then has the same group sizes (one layout, compiled once) where cohorts
    are of one size, but a client's partners and levels change from round to round.

    Args:
        cohorts: bool[J, N], whom the server asked in each round.
        rates: float[N], transmission rates; equal ones are taken by client.
        num_groups: G; the slowest groups take one more where G does not divide the
            cohort.
        too_small: What becomes of a group of which fewer than `smallest`, but not none,
            are in the cohort, as happens in cohorts of fewer than `smallest` G. "merge"
            (the default: nobody is lost, nobody sends more bits than it would): from
            the fastest group down, it joins the next slower one that is there; the
            slowest has none and takes the next faster one in, at its own levels.
            "sit_out": its members take no part. "skip": nobody does, in the whole
            round. With "merge" a round of fewer than `smallest` in all is skipped too.
        smallest: Fewest clients of a group, from 2 (one client's sum would be its
            update).
        blocks: T, or int[N] numbers, of the selection's blocks (to report or to keep
            whole).
        aligned: Keep `blocks` whole: blocks are ranked by their slowest client and cut
            into G parts, evenly by their number.

    Returns:
        One `CohortGroups` for each round.

    Raises:
        ConfigurationError: If an argument is not as above, or a rate is not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> rates = [3.0, 9.0, 1.0, 4.0, 5.0, 2.0]
        >>> mj.hetero.ranked_groups([[1, 1, 1, 1, 0, 0]], rates, 2, blocks=2)[0]
        CohortGroups(members=(0, 1, 2, 3), groups=((0, 2), (1, 3)), sitting_out=(),
        split_blocks=(0, 1))
        >>> rounds = mj.hetero.ranked_groups(
        ...     [[1, 1, 1, 1, 0, 0]], rates, 2, blocks=2, aligned=True
        ... )
        >>> rounds[0].groups
        ((2, 3), (0, 1))

    Source: none of the papers (HeteroSAg lets everybody take part).
    """
    asked = _checked_cohorts(cohorts)
    num_clients = asked.shape[1]
    speed = np.asarray(rates)
    rule = "must be one finite number for each client"
    numeric = speed.dtype.kind in "iuf" and speed.shape == (num_clients,)
    require(numeric and bool(np.isfinite(speed).all()), "rates", rule, rates)
    count = check_integer(num_groups, "num_groups", 1)
    rule = "must be used together with `blocks`"
    require(not aligned or blocks is not None, "aligned", rule, aligned)
    labels = None if blocks is None else np.asarray(block_labels(blocks, num_clients))
    check_known(too_small, "too_small", _RULES, "a known rule")
    fewest = check_integer(smallest, "smallest", 2)
    # what stays whole when the cohort is cut: a block, or else a client
    units = labels if aligned and labels is not None else np.arange(num_clients)
    return tuple(
        settled(
            cohort,
            _ranked(cohort, speed, units, count),
            count,
            too_small,
            fewest,
            labels,
        )
        for cohort in asked
    )


def settled(
    cohort: np.ndarray,
    group_of: np.ndarray,
    num_groups: int,
    too_small: str,
    fewest: int,
    labels: np.ndarray | None,
) -> CohortGroups:
    """Return a cohort's groups after too small ones were merged or excluded."""
    _settle_small(group_of, num_groups, too_small, fewest)
    members = np.flatnonzero(group_of >= 0)
    slots = [np.flatnonzero(group_of[members] == group) for group in range(num_groups)]
    return CohortGroups(
        tuple(members.tolist()),
        tuple(tuple(group.tolist()) for group in slots),
        tuple(np.flatnonzero(cohort & (group_of < 0)).tolist()),
        () if labels is None else _split(group_of, labels),
    )


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
        rounds: Groups of each round, as `ranked_groups` returns them.
        levels: K_g of each of the G groups.
        dim: d.
        hybrid_threshold: T of "hc".
        modulus_rule: As in `segment_layout`.
        empty_groups: "keep" the matrix of all G groups, so that segments stay the same,
            and groups whose partner is absent sum by themselves; or "drop" them and use
            the matrix of the present groups, with fewer segments (one sum of all
            clients if one group is present, and T at most the number of groups less
            one).

    Returns:
        A layout for each round; None if it is skipped.

    Raises:
        ConfigurationError: As `segment_layout`, or if a round has other groups than
            levels.

    Examples:
        >>> import mrsa_jax as mj
        >>> cohorts = [[1, 1, 0, 0, 1, 1], [0] * 6]
        >>> rounds = mj.hetero.ranked_groups(cohorts, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3)
        >>> kept, skipped = mj.hetero.cohort_layouts("mc", rounds, [2, 4, 8], 6)
        >>> kept.num_segments, skipped is None
        (3, True)
        >>> mj.hetero.cohort_layouts("mc", rounds, [2, 4, 8], 6, empty_groups="drop")[
        ...     0
        ... ].num_segments
        2
    """
    all_levels = [check_integer(level, "levels", 2) for level in levels]
    is_known = empty_groups in ("keep", "drop")
    require(is_known, "empty_groups", 'must be "keep" or "drop"', empty_groups)
    rule = "must have as many groups as levels"
    for number, cohort in enumerate(rounds):
        counts = len(cohort.groups), len(all_levels)
        require(counts[0] == counts[1], "rounds", rule, *counts, f"round {number}")

    @functools.cache
    def lay_out(groups: tuple[tuple[int, ...], ...]) -> SegmentLayout:
        chosen = list(range(len(groups)))
        name = scheme
        threshold = hybrid_threshold
        if empty_groups == "drop":
            # "drop": the scheme is built over the present groups only, so T may need to
            # shrink.
            chosen = [number for number, slots in enumerate(groups) if slots]
            if len(chosen) == 1:
                name, threshold = "groups", None
            elif threshold is not None:
                threshold = min(int(threshold), len(chosen) - 1)
        return segment_layout(
            name,
            [groups[number] for number in chosen],
            [all_levels[number] for number in chosen],
            dim,
            hybrid_threshold=threshold,
            modulus_rule=modulus_rule,
            allow_small_groups=True,  # empty ones: `rounds` has no lonely clients
        )

    return tuple(
        lay_out(cohort.groups) if cohort.members else None for cohort in rounds
    )


def _ranked(
    cohort: Bool[np.ndarray, " clients"],
    speed: np.ndarray,
    units: np.ndarray,
    num_groups: int,
) -> Int64[np.ndarray, " clients"]:
    """Return the group of each client, -1 outside the cohort; units stay whole."""
    group_of = np.full(len(cohort), _APART, np.int64)
    names, of_member = np.unique(units[cohort], return_inverse=True)
    slowest = np.full(len(names), np.inf)
    # A unit (a block or a client) ranks by its slowest client.
    np.minimum.at(slowest, of_member, speed[cohort].astype(np.float64))
    # the units from the slowest on, cut into equal parts, the slower ones larger
    group_of_unit = np.empty(len(names), np.int64)
    order = np.argsort(slowest, kind="stable")
    for group, part in enumerate(np.array_split(order, num_groups)):
        group_of_unit[part] = group
    group_of[cohort] = group_of_unit[of_member]
    return group_of


def _settle_small(
    group_of: np.ndarray, num_groups: int, too_small: str, fewest: int
) -> None:
    """Merge or leave out groups that are too small, in place."""
    sizes = np.bincount(group_of[group_of >= 0], minlength=num_groups)
    is_small = (sizes > 0) & (sizes < fewest)
    if too_small == "sit_out":
        group_of[(group_of >= 0) & is_small[group_of]] = _APART
        return
    if (too_small == "skip" and is_small.any()) or sizes.sum() < fewest:
        group_of[:] = _APART
        return
    # From the fastest group down. A merged group takes the levels of the slower one, so
    # no client sends more bits than planned; `while` because the result may be small
    # still.
    for group in range(num_groups - 1, -1, -1):
        while 0 < sizes[group] < fewest:
            slower = np.flatnonzero(sizes[:group])
            if len(slower):
                source, target = group, int(slower[-1])
            else:  # the slowest group takes the next faster one in
                faster = np.flatnonzero(sizes[group + 1 :])
                source, target = group + 1 + int(faster[0]), group
            group_of[group_of == source] = target
            sizes[target] += sizes[source]
            sizes[source] = 0


def _split(group_of: np.ndarray, labels: np.ndarray) -> tuple[int, ...]:
    """Return the blocks with summed clients that are not whole within one group."""
    touched = np.unique(labels[group_of >= 0])
    return tuple(
        int(block) for block in touched if len(np.unique(group_of[labels == block])) > 1
    )


def _checked_cohorts(cohorts: Any) -> Bool[np.ndarray, "rounds clients"]:
    array = np.asarray(cohorts)
    rule = "must hold zeros and ones, [rounds, clients]"
    proper = array.ndim == 2 and array.size > 0 and array.dtype.kind in "biu"
    require(proper, "cohorts", rule, f"{array.dtype} of shape {array.shape}")
    is_binary = bool(((array == 0) | (array == 1)).all())
    require(is_binary, "cohorts", rule, int(array.max()))
    return array.astype(np.bool_)
