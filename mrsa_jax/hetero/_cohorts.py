"""From whom the server asked in a round to the groups that HeteroSAg sums by.

HeteroSAg takes all clients in every round; with a cohort selected anew each round (for
instance by Multi-RoundSecAgg) someone has to say who is in which group, and what
happens to a group of which fewer than two are there. Neither paper does; the rules here
are this package's.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int64

from mrsa_jax._core.round_rules import block_labels
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._layout import ModulusRule, SegmentLayout, segment_layout
from mrsa_jax.quantize.budgets import largest_levels
from mrsa_watch._base.errors import check_integer, nearest, require
from mrsa_watch._base.values import by_value

# ---- From transmission rates of clients their groups, and the groups' numbers of
# levels.
#
# HeteroSAg, Sections II-A and III: clients are grouped by transmission rate, slowest
# group first,
# and a group that sends faster may use more levels. Rates are in bits per second, to
# the server.

_Numbers = ArrayLike | Sequence[Any]


@needs_values
def rate_groups(
    rates: _Numbers,
    num_groups: int | np.integer,
    *,
    method: str = "equal",
    boundaries: _Numbers | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Group clients by transmission rate, slowest group first.

    Args:
        rates: [N], positive, bits per second (any unit does).
        num_groups: G, at least 1; at most N / 2, so that each group has two clients.
        method: "equal": sizes as equal as possible, the larger ones first. "natural":
            the cuts that minimize the squared deviations of log rates from their
            groups' means.
        boundaries: G - 1 ascending rates that cut instead of `method`: group g holds
            the rates from the g-th on, below the next.

    Returns:
        For each group its clients, ascending, ready for `segment_layout`. Clients of
        one rate go by their numbers, and "equal" may part them.

    Raises:
        ConfigurationError: If an argument is out of range, or a group would have fewer
            than two.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.hetero.rate_groups([5.0, 1.0, 9.0, 1.1, 5.2, 8.0], 3)
        ((1, 3), (0, 4), (2, 5))
        >>> mj.hetero.rate_groups([5.0, 1.0, 9.0, 1.1, 1.2, 8.0], 2, method="natural")
        ((1, 3, 4), (0, 2, 5))

    Cost: O(N log N); "natural" O(G N^2) by dynamic programming, exact.

    Source: HeteroSAg, Section II-A, which leaves open how; "natural": Fisher, "On
    grouping for maximum homogeneity" (1958).
    """
    speeds = check_rates(rates, "rates")
    groups = check_integer(num_groups, "num_groups", 1)
    room = 2 * groups <= len(speeds)
    require(
        room, "num_groups", "must leave two clients for each group", groups, len(speeds)
    )
    known = ("equal", "natural")
    require(
        method in known,
        "method",
        f"must be a known method ({nearest(str(method), known)})",
        method,
    )
    order = np.argsort(speeds, kind="stable")
    if boundaries is not None:
        cuts = _given_cuts(speeds[order], boundaries, groups)
    elif method == "equal":
        size, rest = divmod(len(speeds), groups)
        cuts = [part * size + min(part, rest) for part in range(groups + 1)]
    else:
        cuts = _natural_cuts(np.log(speeds[order]), groups)
    return tuple(
        tuple(sorted(order[a:b].tolist())) for a, b in itertools.pairwise(cuts)
    )


@needs_values
def levels_for_rates(
    rates: _Numbers,
    slowest_levels: int | np.integer = 2,
    *,
    num_summed: int | np.integer = 1,
    max_levels: int | np.integer = 2**16,
) -> tuple[int, ...]:
    """Choose each group's number of levels so that none takes longer than the slowest.

    A coordinate that n' clients sum takes b(K) = ceil(log2(n' (K - 1) + 1)) bits. A
    group after the slowest gets the largest K with b(K) / rate_g <= b(K_0) / rate_0;
    for n' = 1 that is 2^(floor of b(K_0) r) levels at r times the rate.

    Args:
        rates: [G], of each group (its slowest client's, say), ascending.
        slowest_levels: K_0 of the slowest group, at least 2.
        num_summed: n', clients of a block. 1 counts plain bits, as the paper's times
            do. On the wire the pads' ring costs log2 n' more; give the blocks' size,
            and a faster group's levels make use of what it has left.
        max_levels: No group gets more.

    Returns:
        K_g of each group, never descending.

    Raises:
        ConfigurationError: If rates descend, or an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.hetero.levels_for_rates([1e6, 2e6, 3.9e6])
        (2, 4, 8)
        >>> mj.hetero.levels_for_rates([1e6, 2e6, 3.9e6], num_summed=4)  # 3, 6 and 11 bits of ring
        (2, 16, 512)

    Source: HeteroSAg, Section II-A ("proportional to their available bandwidth"); the
    rule is ours.
    """
    speeds = check_rates(rates, "rates")
    ascending = bool((np.diff(speeds) >= 0).all())
    require(ascending, "rates", "must ascend from the slowest group", speeds.tolist())
    summed = check_integer(num_summed, "num_summed", 1)
    most = check_integer(max_levels, "max_levels", 2, 2**23)
    least = check_integer(slowest_levels, "slowest_levels", 2, most)
    bits = (summed * (least - 1)).bit_length()
    # a ratio that is whole on paper must not lose a bit to rounding
    allowed = [min(int(bits * float(speed / speeds[0]) + 1e-9), 64) for speed in speeds]
    faster = [
        max(least, min(most, largest_levels(2**own, summed))) for own in allowed[1:]
    ]
    return (least, *faster)


def check_rates(rates: _Numbers, argument: str = "rates") -> np.ndarray:
    """Return transmission rates as float64[N], or raise naming `argument`.

    Examples:
        >>> check_rates([1, 2]).tolist()
        [1.0, 2.0]
    """
    values = np.asarray(rates)
    require(
        values.dtype.kind in "fiu",
        argument,
        "must hold numbers",
        f"dtype {values.dtype}",
    )
    proper = values.ndim == 1 and values.size > 0
    require(
        proper,
        argument,
        "must be a vector with one entry each",
        f"shape {values.shape}",
    )
    values = values.astype(np.float64)
    bad = values[~((values > 0) & np.isfinite(values))]
    require(bad.size == 0, argument, "must be positive and finite", *bad[:1].tolist())
    return values


def _given_cuts(
    ordered: np.ndarray, boundaries: _Numbers, num_groups: int
) -> list[int]:
    limits = check_rates(boundaries, "boundaries") if num_groups > 1 else np.zeros(0)
    proper = len(limits) == num_groups - 1 and bool((np.diff(limits) > 0).all())
    require(
        proper,
        "boundaries",
        "must be num_groups - 1 ascending rates",
        limits.tolist(),
        num_groups,
    )
    cuts = [0, *np.searchsorted(ordered, limits, side="left").tolist(), len(ordered)]
    sizes = np.diff(cuts).tolist()
    rule = "must leave two clients for each group"
    require(min(sizes) >= FEWEST_IN_A_SUM, "boundaries", rule, sizes)
    return cuts


def _natural_cuts(values: np.ndarray, num_groups: int) -> list[int]:
    """Return the cuts of ascending values with the least squares within groups of two or more."""
    count = len(values)
    centred = values - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    squares = np.concatenate([[0.0], np.cumsum(centred**2)])
    starts = np.arange(count + 1)

    def costs(stop: int) -> np.ndarray:
        """Return the cost of the group [start, stop) for each start; infinite below two."""
        size = np.maximum(stop - starts, 1)
        spread = squares[stop] - squares - (sums[stop] - sums) ** 2 / size
        return np.where(starts <= stop - 2, np.maximum(spread, 0.0), np.inf)

    best = np.full((num_groups + 1, count + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((num_groups + 1, count + 1), np.int64)
    for stop in range(2, count + 1):
        totals = best[:num_groups] + costs(stop)[None]
        cut[1:, stop] = np.argmin(totals, axis=1)
        best[1:, stop] = np.min(totals, axis=1)
    cuts = [count]
    for group in range(num_groups, 0, -1):
        cuts.append(int(cut[group, cuts[-1]]))
    return cuts[::-1]


# ---- From whom the server asked in a round to the groups that HeteroSAg sums by.

SmallGroups = Literal["merge", "sit_out", "skip"]
_RULES = typing.get_args(SmallGroups)
_APART = -1  # the group of a client who takes no part


@dataclasses.dataclass(frozen=True)
@by_value
class CohortGroups:
    """Who sums in which group in one round.

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
    """Return the groups of each round, cut anew.

    The cohort by rate, into G equal parts.
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
        >>> mj.hetero.ranked_groups([[1, 1, 1, 1, 0, 0]], rates, 2, blocks=2, aligned=True)[
        ...     0
        ... ].groups
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
    return tuple(
        finish(cohort, _ranked(cohort, speed, units, count)) for cohort in asked
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
    own_levels = tuple(check_integer(level, "levels", 2) for level in levels)
    known = empty_groups in ("keep", "drop")
    require(known, "empty_groups", 'must be "keep" or "drop"', empty_groups)
    for number, own in enumerate(rounds):
        fits = len(own.groups) == len(own_levels)
        require(
            fits,
            "rounds",
            "must have as many groups as levels",
            len(own.groups),
            len(own_levels),
            f"round {number}",
        )
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
    cohort: Bool[np.ndarray, " clients"],
    speed: np.ndarray,
    units: np.ndarray,
    num_groups: int,
) -> Int64[np.ndarray, " clients"]:
    """Return the group of each client, -1 outside the cohort; units stay whole."""
    groups = np.full(len(cohort), _APART, np.int64)
    names, of_member = np.unique(units[cohort], return_inverse=True)
    slowest = np.full(len(names), np.inf)
    np.minimum.at(slowest, of_member, speed[cohort].astype(np.float64))
    size, rest = divmod(len(names), num_groups)
    parts = np.repeat(
        np.arange(num_groups), [size + (g < rest) for g in range(num_groups)]
    )
    group_of_unit = np.empty(len(names), np.int64)
    group_of_unit[np.argsort(slowest, kind="stable")] = parts
    groups[cohort] = group_of_unit[of_member]
    return groups


def _finisher(
    num_groups: int, too_small: Any, smallest: Any, labels: np.ndarray | None
) -> Any:
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
            tuple(
                tuple(np.flatnonzero(own == group).tolist())
                for group in range(num_groups)
            ),
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
    return tuple(
        int(block) for block in touched if len(set(kept[labels == block].tolist())) > 1
    )


def _checked_cohorts(cohorts: Any) -> Bool[np.ndarray, "rounds clients"]:
    array = np.asarray(cohorts)
    rule = "must hold zeros and ones, [rounds, clients]"
    proper = array.ndim == 2 and array.size > 0 and array.dtype.kind in "biu"
    require(proper, "cohorts", rule, f"{array.dtype} of shape {array.shape}")
    require(
        bool(((array == 0) | (array == 1)).all()), "cohorts", rule, int(array.max())
    )
    return array.astype(np.bool_)


def _checked_blocks(blocks: Any, aligned: bool, num_clients: int) -> Any:
    rule = "must be used together with `blocks`"
    require(not aligned or blocks is not None, "aligned", rule, aligned)
    return None if blocks is None else np.asarray(block_labels(blocks, num_clients))
