"""The share of an aggregate that a round of HeteroSAg keeps from the server.

The privacy level delta.
HeteroSAg, Section II-B and Theorems 1 and 3, whose claims for MC and HC are wrong for
most numbers of groups (docs/errata.md). Symbols: G, Z -> `num_groups`, T ->
`hybrid_threshold`, S -> `groups`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mrsa_jax._core.arrays import check_integers
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.hetero._privacy_search import Blocks, most_learned
from mrsa_jax.hetero._segments import blocks_of, check_scheme, segment_matrix
from mrsa_watch._base.errors import check_integer, check_number, require

# The law of HC was compared with the search for every T up to here.
_CHECKED_GROUPS = 64


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """A privacy level and a union of groups that attains it.

    `privacy_report` builds it.

    Attributes:
        level: 1 - (segments learnt of `groups`) / (all segments): delta where
            `certified`, and otherwise the least level found, an upper bound of delta.
        guaranteed: A lower bound of delta; `level` where `certified`.
        groups: A worst union of groups S, ascending; empty where there is but one
            group.
        learned: The segments of the sum over S that the server learns, ascending.
        num_segments: Rows of the matrix.
        two_level_sums: Segment, number of clients and rate of each sum of codes of two
            levels, where a layout was given. A sum of n such codes that is 0 or n
            reveals all of them; the rate is the probability of that, for one coordinate
            in one round.
    """

    level: Fraction
    guaranteed: Fraction
    groups: tuple[int, ...]
    learned: tuple[int, ...]
    num_segments: int
    two_level_sums: tuple[tuple[int, int, float], ...] = ()

    @property
    def certified(self) -> bool:
        """Return whether the level is proved."""
        return self.level == self.guaranteed


def privacy_level(matrix: ArrayLike | Sequence[Any], *, groups: Any = None) -> float:
    """Return the exact privacy level of a segment-selection matrix, by definition.

    delta = 1 - max_S (segments l that the server learns of the sum over S) /
    (segments), over every proper, non-empty union S of groups; segment l is learnt iff
    S is a union of blocks of row l. 0: some union gives its whole aggregate away; 1: no
    union gives anything away.

    Args:
        matrix: int[segments, groups] (see `segment_matrix`).
        groups: As for `privacy_report`.

    Returns:
        delta in [0, 1]. 1 for a single group, which has no proper union.

    Raises:
        ConfigurationError: If the matrix is none, or a group is not one of it.

    Cost: a search (`privacy_report` can bound it). No polynomial algorithm is known for
    arbitrary matrices; all schemes up to 64 groups take at most a few seconds.

    Examples:
        >>> import mrsa_jax as mj
        >>> [
        ...     mj.hetero.privacy_level(mj.hetero.segment_matrix(scheme, 5))
        ...     for scheme in ("sc", "mc")
        ... ]
        [0.4, 0.8]
        >>> mj.hetero.privacy_level(mj.hetero.segment_matrix("mc", 6))  # the paper: 2/3
        0.5

    Source: HeteroSAg, Section II-B.
    """
    return float(privacy_report(matrix, groups=groups).level)


def privacy_report(
    matrix: ArrayLike | Sequence[Any] | SegmentLayout,
    *,
    budget: int | np.integer | None = None,
    chance: float = 0.5,
    groups: Any = None,
) -> PrivacyReport:
    """Return the privacy level of a matrix with a union of groups that attains it.

    Args:
        matrix: int[segments, groups]; or a layout, whose levels and clients count too.
        budget: Largest number of steps of the search, at least 0; each takes about 0.1
            to 1 ms. No limit if None.
        chance: Probability that a code of two levels is the upper one, for the rates of
            such sums. Codes are independent, and alike; 1/2 gives the least rate.
        groups: Different groups with a client in the round's sums, as integers; all if
            None. The others lost their clients and are in no block.

    Returns:
        The report: `level`, the `groups` of the union and the segments that it reveals
        (`learned`). If the budget ran out, it is not `certified` and has bounds on both
        sides.

    Raises:
        ConfigurationError: If the matrix is none, the budget negative, the chance
            outside [0, 1], or a group not one of the matrix.

    Examples:
        >>> import mrsa_jax as mj
        >>> report = mj.hetero.privacy_report(mj.hetero.segment_matrix("mc", 6))
        >>> report.groups, report.learned, report.certified
        ((0, 2, 4), (1, 3, 5), True)
        >>> layout = mj.hetero.segment_layout("sc", [[0, 1], [2, 3]], [2, 4], 8)
        >>> mj.hetero.privacy_report(layout).two_level_sums  # 2 / 2^4
        ((0, 4, 0.125), (1, 4, 0.125))

    Source: HeteroSAg, Section II-B; the definition ranges over sets of users, and a
    union of blocks is one of groups.
    """
    if isinstance(matrix, SegmentLayout):
        report = privacy_report(np.asarray(matrix.matrix), budget=budget, groups=groups)
        sums = _two_level_sums(matrix, chance)
        return dataclasses.replace(report, two_level_sums=sums)
    rows = blocks_of(matrix)
    num_groups = sum(len(block) for block in rows[0])
    present = list(range(num_groups))
    if groups is not None:
        present = _present(groups, num_groups)
        rows, num_groups = _among(rows, present), len(present)
    steps = None if budget is None else check_integer(budget, "budget", 0)
    if num_groups == 1:
        return PrivacyReport(Fraction(1), Fraction(1), (), (), len(rows))
    search = most_learned(rows, num_groups, steps)
    # `side` holds the union as bits of groups.
    inside = {group for group in range(num_groups) if search.side >> group & 1}
    learned = tuple(
        segment
        for segment, blocks in enumerate(rows)
        # A segment is learnt if no block crosses the border of the union.
        if all(inside.issuperset(block) or inside.isdisjoint(block) for block in blocks)
    )
    level, guaranteed = (
        1 - Fraction(count, len(rows)) for count in (search.learned, search.bound)
    )
    union = tuple(present[group] for group in sorted(inside))
    return PrivacyReport(level, guaranteed, union, learned, len(rows))


def _present(groups: Any, num_groups: int) -> list[int]:
    """Return the groups that are in a round, ascending, or raise."""
    present = sorted(check_integers(groups, "groups", 0))
    is_different = len(set(present)) == len(present) > 0
    rule = "must hold one group or more, each once"
    require(is_different, "groups", rule, present)
    rule = f"must be groups of the matrix, below {num_groups}"
    require(present[-1] < num_groups, "groups", rule, present[-1])
    return present


def _among(rows: Blocks, present: Sequence[int]) -> Blocks:
    """Return the blocks of each row among some groups, numbered by their places."""
    place = {group: number for number, group in enumerate(present)}
    return tuple(
        tuple(
            tuple(place[group] for group in block if group in place)
            for block in blocks
            if not place.keys().isdisjoint(block)
        )
        for blocks in rows
    )


def _two_level_sums(
    layout: SegmentLayout, chance: float
) -> tuple[tuple[int, int, float], ...]:
    upper = check_number(chance, "chance", "must lie in [0, 1]", 0.0, 1.0)
    return tuple(
        (
            block.segment,
            count,
            # All codes are at the upper level, or all at the lower: the sum then shows
            # each one.
            upper**count + (1 - upper) ** count if count > 1 else 1.0,
        )
        for block in layout.blocks
        if block.num_levels == 2
        for count in [len(block.members)]
    )


def claimed_privacy_level(
    scheme: str,
    num_groups: int | np.integer,
    hybrid_threshold: int | np.integer | None = None,
) -> Fraction:
    """Return the privacy level that the paper claims.

    `scheme_privacy_level` has the true one.

    Args:
        scheme: "sc", "mc" or "hc".
        num_groups: G, at least 2; for SC+, MC+ and HC+ the number of subgroups Z.
        hybrid_threshold: T of "hc", 1 to G - 1.

    Returns:
        SC: 2/G. MC: (G - 1)/G for odd G, (G - 2)/G for even G. HC: (G - T)/G.

    Raises:
        ConfigurationError: If the scheme is unknown or a number out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> [str(mj.hetero.claimed_privacy_level("mc", size)) for size in (5, 6, 9)]
        ['4/5', '2/3', '8/9']
        >>> [str(mj.hetero.scheme_privacy_level("mc", size)) for size in (5, 6, 9)]
        ['4/5', '1/2', '2/3']

    Source: HeteroSAg, Theorems 1 and 3 ((i) of the latter is labelled MC+ and is SC+).
    """
    size, threshold = check_scheme(scheme, num_groups, hybrid_threshold)
    if scheme == "sc":
        return Fraction(2, size)
    if scheme == "mc":
        return Fraction(size - 2 + size % 2, size)
    return Fraction(size - threshold, size)


def scheme_privacy_level(
    scheme: str,
    num_groups: int | np.integer,
    hybrid_threshold: int | np.integer | None = None,
) -> Fraction:
    """Return the true privacy level of a scheme, from its law.

    Args:
        scheme: "sc", "mc" or "hc".
        num_groups: G, at least 2; for SC+, MC+ and HC+ the number of subgroups Z.
        hybrid_threshold: T of "hc", 1 to G - 1.

    Returns:
        SC: 2/G. MC: 1 - 1/p with p the smallest prime factor of G: row l is the
        reflection i -> l + 1 - i of the residues mod G; those that keep S are as many
        as the rotations that keep S, or none, and a proper S is kept by G/p rotations
        at most. HC: 1 - learned/G with learned = max(T, G/2 - floor(T/2)) for even G
        and max(T, G/p) for odd G.

    Raises:
        ConfigurationError: If the scheme is unknown or a number out of range.

    The laws of SC and MC are proved. That of HC is an observation, equal to the search
    for every G up to 64 and every T; above 64 the search itself is run, which takes
    longer and longer.

    Examples:
        >>> import mrsa_jax as mj
        >>> [str(mj.hetero.scheme_privacy_level("hc", 8, T)) for T in (1, 2, 3, 6)]
        ['1/2', '5/8', '5/8', '1/4']

    Source: differs from HeteroSAg, Theorems 1 and 3, (ii) and (iii), and Remark 2:
    delta of MC does not tend to 1 as G grows unless G is prime (docs/errata.md).
    """
    size, threshold = check_scheme(scheme, num_groups, hybrid_threshold)
    if scheme == "sc":
        return Fraction(2, size)
    # G / p for the smallest prime factor p of G, and 1 for a prime: the most rotations
    # that keep a proper union of groups, hence the most rows that it learns.
    of_coset = max(
        (size // d for d in range(2, math.isqrt(size) + 1) if size % d == 0), default=1
    )
    if scheme == "mc":
        return 1 - Fraction(of_coset, size)
    if size > _CHECKED_GROUPS:
        return privacy_report(segment_matrix("hc", size, threshold)).level
    if size % 2 == 0:
        of_coset -= threshold // 2
    return 1 - Fraction(max(threshold, of_coset), size)
