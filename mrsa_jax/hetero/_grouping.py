"""From transmission rates of clients their groups, and the groups' numbers of levels.

HeteroSAg, Sections II-A and III: clients are grouped by transmission rate, slowest group first,
and a group that sends faster may use more levels. Rates are in bits per second, towards the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.arrays import needs_values
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.quantize.budgets import largest_levels
from mrsa_watch._base.errors import check_integer, nearest, require

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
        method: "equal": sizes as equal as possible, the larger ones first. "natural": the cuts
            that minimize the squared deviations of log rates from their groups' means.
        boundaries: G - 1 ascending rates that cut in place of `method`: group g holds the rates
            from the g-th on, below the next.

    Returns:
        For each group its clients, ascending, ready for `segment_layout`. Clients of one rate go
        by their numbers, and "equal" may part them.

    Raises:
        ConfigurationError: If an argument is out of range, or a group would have fewer than two.

    Examples:
        >>> rate_groups([5.0, 1.0, 9.0, 1.1, 5.2, 8.0], 3)
        ((1, 3), (0, 4), (2, 5))
        >>> rate_groups([5.0, 1.0, 9.0, 1.1, 1.2, 8.0], 2, method="natural")
        ((1, 3, 4), (0, 2, 5))

    Cost: O(N log N); "natural" O(G N^2) by dynamic programming, exact.

    Source: HeteroSAg, Section II-A, which leaves open how; "natural": Fisher, "On grouping for
    maximum homogeneity" (1958).
    """
    speeds = check_rates(rates, "rates")
    groups = check_integer(num_groups, "num_groups", 1)
    room = 2 * groups <= len(speeds)
    require(room, "num_groups", "must leave two clients for each group", groups, len(speeds))
    known = ("equal", "natural")
    require(method in known, "method", f"must be a known method ({nearest(str(method), known)})",
            method)  # fmt: skip
    order = np.argsort(speeds, kind="stable")
    if boundaries is not None:
        cuts = _given_cuts(speeds[order], boundaries, groups)
    elif method == "equal":
        size, rest = divmod(len(speeds), groups)
        cuts = [part * size + min(part, rest) for part in range(groups + 1)]
    else:
        cuts = _natural_cuts(np.log(speeds[order]), groups)
    return tuple(tuple(sorted(order[a:b].tolist())) for a, b in itertools.pairwise(cuts))


@needs_values
def levels_for_rates(
    rates: _Numbers,
    slowest_levels: int | np.integer = 2,
    *,
    num_summed: int | np.integer = 1,
    max_levels: int | np.integer = 2**16,
) -> tuple[int, ...]:
    """Choose each group's number of levels so that none takes longer than the slowest.

    A coordinate that n' clients sum takes b(K) = ceil(log2(n' (K - 1) + 1)) bits. A group after
    the slowest gets the largest K with b(K) / rate_g <= b(K_0) / rate_0; for n' = 1 that is
    2^(floor of b(K_0) r) levels at r times the rate.

    Args:
        rates: [G], of each group (its slowest client's, say), ascending.
        slowest_levels: K_0 of the slowest group, at least 2.
        num_summed: n', clients of a block. 1 counts plain bits, as the paper's times do. On the
            wire the pads' ring costs log2 n' more; give the blocks' size, and a faster group's
            levels make use of what it has left.
        max_levels: No group gets more.

    Returns:
        K_g of each group, never descending.

    Raises:
        ConfigurationError: If rates descend, or an argument is out of range.

    Examples:
        >>> levels_for_rates([1e6, 2e6, 3.9e6])
        (2, 4, 8)
        >>> levels_for_rates([1e6, 2e6, 3.9e6], num_summed=4)  # 3, 6 and 11 bits of ring
        (2, 16, 512)

    Source: HeteroSAg, Section II-A ("proportional to their available bandwidth"); the rule is
    ours.
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
    faster = [max(least, min(most, largest_levels(2**own, summed))) for own in allowed[1:]]
    return (least, *faster)


def check_rates(rates: _Numbers, argument: str = "rates") -> np.ndarray:
    """Return transmission rates as float64[N], or raise naming `argument`.

    Examples:
        >>> check_rates([1, 2]).tolist()
        [1.0, 2.0]
    """
    values = np.asarray(rates)
    require(values.dtype.kind in "fiu", argument, "must hold numbers", f"dtype {values.dtype}")
    proper = values.ndim == 1 and values.size > 0
    require(proper, argument, "must be a vector with one entry each", f"shape {values.shape}")
    values = values.astype(np.float64)
    bad = values[~((values > 0) & np.isfinite(values))]
    require(bad.size == 0, argument, "must be positive and finite", *bad[:1].tolist())
    return values


def _given_cuts(ordered: np.ndarray, boundaries: _Numbers, num_groups: int) -> list[int]:
    limits = check_rates(boundaries, "boundaries") if num_groups > 1 else np.zeros(0)
    proper = len(limits) == num_groups - 1 and bool((np.diff(limits) > 0).all())
    require(proper, "boundaries", "must be num_groups - 1 ascending rates", limits.tolist(),
            num_groups)  # fmt: skip
    cuts = [0, *np.searchsorted(ordered, limits, side="left").tolist(), len(ordered)]
    sizes = np.diff(cuts).tolist()
    require(
        min(sizes) >= FEWEST_IN_A_SUM, "boundaries", "must leave two clients for each group", sizes
    )
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
        own = costs(stop)
        totals = best[:num_groups] + own[None]
        cut[1:, stop] = np.argmin(totals, axis=1)
        best[1:, stop] = np.min(totals, axis=1)
    cuts = [count]
    for group in range(num_groups, 0, -1):
        cuts.append(int(cut[group, cuts[-1]]))
    return cuts[::-1]
