"""The distance of HeteroSAg's quantized mean from the true one.

Bounds and the exact expectation.
HeteroSAg, Theorem 2 with equation (11). Symbols: K_g -> `levels`, n (of a subgroup:
n-bar) -> `group_size`, m -> `dim`, [r1, r2] -> `value_range`, epsilon -> the returned
error, of the MEAN update, squared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.arrays import check_integers, host_array
from mrsa_jax._core.traced import needs_values
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.hetero._segments import (
    blocks_of,
    check_levels,
    check_scheme,
    check_subgroups,
)
from mrsa_watch._base.errors import check_integer, require

_Integers = Sequence[int | np.integer] | np.ndarray
_Range = tuple[float | int, float | int]


@needs_values
def quantization_error_bound(
    matrix: ArrayLike | Sequence[Any],
    levels: _Integers,
    group_size: int | np.integer | _Integers,
    dim: int | np.integer,
    value_range: _Range = (0.0, 1.0),
) -> float:
    """Bound the expected squared error of the quantized mean, by counting a matrix.

    epsilon <= (r2 - r1)^2 / (4 N^2) sum_i sum_l d_l / (K_l^i - 1)^2 with K_l^i the
    levels with which client i quantizes the d_l coordinates of segment l; met where
    every value lies halfway between two levels. For values inside the range and all
    clients present; `quantization_error` is exact for given updates.

    Args:
        matrix: int[segments, columns]; [[-1]] for one sum of everybody.
        levels: K of each column, from 2, never descending.
        group_size: Clients of each column, one number or one each.
        dim: m, at least the number of segments; cut as `segment_layout` does, so that
            segments may differ by one coordinate.
        value_range: (r1, r2).

    Returns:
        The bound on (1/N^2) E ||sum_i Q(x_i) - sum_i x_i||^2.

    Raises:
        ConfigurationError: If the matrix is none or an argument out of range or of
            wrong length.

    Examples:
        >>> import mrsa_jax as mj
        >>> levels = [2, 4, 8, 10, 12]  # Experiment 1
        >>> for scheme in ("sc", "mc"):
        ...     mj.hetero.quantization_error_bound(
        ...         mj.hetero.segment_matrix(scheme, 5), levels, 4, 199210
        ...     )
        771.3528888659841
        988.5915869580156
        >>> mj.hetero.quantization_error_bound([[-1]], [2], 20, 199210)
        2490.125

    Source: HeteroSAg, Theorem 2, equation (11); ragged segments are ours.
    """
    rows = blocks_of(matrix)
    columns = sum(len(block) for block in rows[0])
    own_levels = check_levels(levels, columns, "column")
    sizes = _sizes(group_size, columns)
    width = check_integer(dim, "dim", 1)
    require(
        width >= len(rows), "dim", "must be at least the segments", width, len(rows)
    )
    short, longer = divmod(width, len(rows))
    total = Fraction(0)
    for segment, blocks in enumerate(rows):
        length = short + (segment < longer)
        for block in blocks:
            clients = sum(sizes[column] for column in block)
            # Per coordinate and client the variance is at most step^2 / 4, with step
            # proportional to 1 / (K - 1).
            total += Fraction(length * clients, (own_levels[block[0]] - 1) ** 2)
    low, high = _checked_range(value_range)
    return float((Fraction(high) - Fraction(low)) ** 2 * total / (4 * sum(sizes) ** 2))


@needs_values
def scheme_error_bound(
    scheme: str,
    levels: _Integers,
    group_size: int | np.integer,
    dim: int | np.integer,
    *,
    subgroups: _Integers | None = None,
    hybrid_threshold: int | np.integer | None = None,
    value_range: _Range = (0.0, 1.0),
    as_printed: bool = False,
) -> float:
    """Return the paper's closed form of `quantization_error_bound` for a scheme.

    Args:
        scheme: "sc", "mc" or "hc"; with `subgroups` SC+, MC+ and HC+.
        levels: K_g of each group, at least 2, never descending.
        group_size: Clients of each group, n; of each subgroup, n-bar, with `subgroups`.
        dim: m, a multiple of the number of segments.
        subgroups: L_g of each group; one each if None.
        hybrid_threshold: T of "hc", 1 to Z - 1.
        value_range: (r1, r2).
        as_printed: Keep the first term of (18) where g_T = G - 1, which counts the
            subgroups of the last group twice.

    Returns:
        The bound, equal to `quantization_error_bound` of the scheme's matrix.

    Raises:
        ConfigurationError: If an argument is out of range or of wrong length.

    Examples:
        >>> import mrsa_jax as mj
        >>> levels = [2, 4, 8, 10, 12]  # Experiment 1
        >>> mj.hetero.scheme_error_bound("sc", levels, 4, 199210)
        771.3528888659841

    Source: HeteroSAg, (12) to (14) and (16) to (18). (18) double counts where g_T is
    the last group, and its d_T is z_T - Z_(g_T - 1) here (docs/errata.md).
    """
    numbers = check_integers(levels, "levels", 2)
    check_levels(numbers, len(numbers), "group")
    parts = [1] * len(numbers)
    if subgroups is not None:
        parts = check_subgroups(subgroups, len(numbers))
    segments, threshold = check_scheme(scheme, sum(parts), hybrid_threshold)
    clients = check_integer(group_size, "group_size", 1)
    width = check_integer(dim, "dim", 1)
    rule = "must be a multiple of the number of segments"
    require(width % segments == 0, "dim", rule, width, segments)
    if scheme == "sc":
        counts = _chain_counts(parts)
    elif scheme == "mc":
        counts = [
            _multiple_count(parts, group, part) for group, part in enumerate(parts)
        ]
    else:
        counts = _hybrid_counts(parts, threshold, as_printed)
    total = sum(
        (
            Fraction(number, (level - 1) ** 2)
            for number, level in zip(counts, numbers, strict=True)
        ),
        Fraction(0),
    )
    low, high = _checked_range(value_range)
    square = (Fraction(high) - Fraction(low)) ** 2
    # n clients in each column, m/Z coordinates each, over 4 N^2 with N = n Z
    return float(square * total * (width // segments) / (4 * clients * segments**2))


@needs_values
def quantization_error(
    updates: ArrayLike | Sequence[Any], layout: SegmentLayout, value_range: _Range
) -> float:
    """Return the exact expected squared error of the quantized mean of given updates.

    (1/N^2) E ||sum_i Q(x_i) - sum_i x_i||^2 over the quantizers' randomness: the
    variance (B(l + 1) - x)(x - B(l)) of every value between its two levels, and the
    square of what clipping takes from the sum, which is a bias.

    Args:
        updates: [N, d], finite numbers, a row for each slot of the layout.
        layout: Who quantizes which coordinates with how many levels.
        value_range: (r1, r2).

    Returns:
        The error, in float64; at most `quantization_error_bound` where nothing is
        clipped.

    Raises:
        ConfigurationError: If shapes do not fit, a value is not finite or the range is
            reversed.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("groups", [2], [2], dim=2)

        Three values in the middle between levels have variance 1/4 each, over n^2 = 4:

        >>> mj.hetero.quantization_error([[0.5, 0.5], [0.5, 1.0]], layout, (0, 1))
        0.1875

    Source: HeteroSAg, Appendix A, step (c) of (21), and (4).
    """
    low, high = _checked_range(value_range)
    vectors = np.asarray(updates)
    require(
        vectors.dtype.kind in "fiu",
        "updates",
        "must hold numbers",
        f"dtype {vectors.dtype}",
    )
    wanted = (layout.num_participants, layout.dim)
    require(
        vectors.shape == wanted,
        "updates",
        f"must have the shape {list(wanted)}",
        vectors.shape,
    )
    require(bool(np.isfinite(vectors).all()), "updates", "must be finite")
    variance = 0.0
    clipped_away = np.zeros(layout.dim, np.float64)
    for block in layout.blocks:
        values = vectors[list(block.members), block.start : block.stop].astype(
            np.float64
        )
        inside = np.clip(values, low, high)
        # Clipping is a bias: it adds up over clients before it is squared.
        clipped_away[block.start : block.stop] += (inside - values).sum(axis=0)
        step = (high - low) / (block.num_levels - 1)
        scaled = (inside - low) / step
        over = scaled - np.floor(scaled)
        # Rounding to one of two neighbours with mean x has variance f (1 - f) step^2, f
        # the distance from the lower one.
        variance += step * step * float((over * (1.0 - over)).sum())
    return (variance + float((clipped_away**2).sum())) / layout.num_participants**2


def _chain_counts(parts: list[int]) -> list[int]:
    """Count the pairs (subgroup, segment) with each group's quantizer, (16)."""
    # every segment of every subgroup; the chain of segments joins neighbours
    counts = [sum(parts) * part for part in parts]
    # a pair takes the coarser quantizer: two more for the first group, two fewer for
    # the last
    counts[0] += 2
    counts[-1] -= 2
    return counts


def _multiple_count(parts: list[int], group: int, subgroups: int) -> int:
    """Count the pairs of the first subgroups of a group in MC+, (17)."""
    # subgroups of coarser groups, whose quantizers count where they sum together
    before = sum(parts[:group])
    # with each later subgroup it sums one segment, by its own coarser quantizer for
    # both; and one segment alone
    return sum(
        2 * (sum(parts) - before - subgroup) - 1 for subgroup in range(subgroups)
    )


def _hybrid_counts(parts: list[int], threshold: int, as_printed: bool) -> list[int]:
    """Return the counts of (18)."""
    last = len(parts) - 1
    first_of_chain = sum(parts) - threshold - 1  # z_T
    # g_T
    group = next(g for g in range(last + 1) if sum(parts[: g + 1]) > first_of_chain)
    chain_place = first_of_chain - sum(parts[:group])  # d_T
    # groups before the chain count as in MC+
    counts = [_multiple_count(parts, g, parts[g]) for g in range(group)]
    counts += [part * (threshold + 1) for part in parts[group:]]
    counts[last] = (parts[last] - 1) * (threshold + 1) + threshold
    in_group = _multiple_count(parts, group, chain_place) + threshold + 2
    in_group += (
        (parts[group] - chain_place - 2) * (threshold + 1) + threshold + (group != last)
    )
    counts[group] = in_group + (counts[last] if as_printed and group == last else 0)
    return counts


def _sizes(group_size: Any, columns: int) -> list[int]:
    if host_array(group_size, "group_size").ndim == 0:
        return [check_integer(group_size, "group_size", 1)] * columns
    sizes = check_integers(group_size, "group_size", 0)
    rule = "must be one number, or one for each column"
    require(len(sizes) == columns, "group_size", rule, len(sizes), columns)
    require(sum(sizes) > 0, "group_size", "must count one client or more", sizes)
    return sizes


def _checked_range(value_range: Any) -> tuple[float, float]:
    pair = host_array(value_range, "value_range")
    is_pair = pair.shape == (2,) and pair.dtype.kind in "iuf"
    require(is_pair, "value_range", "must hold two numbers", value_range)
    low, high = map(float, pair)
    proper = math.isfinite(low) and math.isfinite(high) and low < high
    require(proper, "value_range", "must be finite with r1 < r2", value_range)
    return low, high
