"""Remark 6 and Appendix C of Multi-RoundSecAgg.

No family of cohorts offers more choice.
A family keeps T if every non-zero column of its matrix occurs T times or more. For few
clients all families are gone through; for more, all ways to group clients, with every
union of groups that holds K clients, which is the largest family of that grouping.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mrsa_jax import selection
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import SHADES

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

# N, K, T: 2^6 and 2^15 families
_FAMILIES = ((4, 2, 1), (4, 2, 2), (6, 2, 1), (6, 2, 2))


def necessity(context: Context, settings: Values) -> Found:
    """Return Remark 6.

    The most cohorts of any family that keeps T, against C(N/T, K/T).
    """
    context.begin()
    most = settings.num_clients
    sizes = [
        (n, k, t)
        # K <= N/2, as Remark 6 assumes
        for n in range(2, most + 1)
        for k in range(1, n // 2 + 1)
        for t in range(1, k + 1)
        if n % t == 0 and k % t == 0
    ]
    rows = [
        {
            "N": n,
            "K": k,
            "T": t,
            "most": largest_union_family(n, k, t).cohorts,
            "bound": selection.family_size(n, k, t),
        }
        for n, k, t in context.steps("Remark 6: groupings", sizes)
    ]
    data = rows_to_frame(rows)
    over = data[data["most"] > data["bound"]]
    short = data[data["most"] < data["bound"]]
    checks = (
        state(
            f"groupings of up to {most} clients that allow more cohorts than C(N/T, "
            "K/T)",
            over.empty,
            paper="none for K <= N/2",
            ours=f"{len(over)} of {len(data)} triples N, K, T",
            tolerance="exact; T divides K and N",
        ),
        state(
            "triples at which batch partitioning does not reach the most",
            short.empty,
            paper="none: achieved",
            ours=f"{len(short)} of {len(data)}",
        ),
        *_family_checks(most),
        _equal_numbers(most),
    )
    return Found(
        checks,
        data,
        "The most cohorts of K that groups of T or more clients allow, over all "
        f"groupings of up to {most} clients, against batch partitioning's C(N/T, K/T).",
    )


def _family_checks(most: int) -> Iterator[Check]:
    """Judge the bound and the structure over all families of few clients."""
    cases = [case for case in _FAMILIES if case[0] <= most]
    largest = {case: largest_family(*case) for case in cases}
    bounds = {case: selection.family_size(*case) for case in cases}
    yield state(
        "largest of all families that keep T",
        largest == bounds,
        paper=", ".join(map(str, bounds.values())),
        ours=", ".join(map(str, largest.values())),
        tolerance=(
            f"exact; every set of cohorts at (N, K, T) = {', '.join(map(str, cases))}"
        ),
    )


def _equal_numbers(most: int) -> Check:
    """Judge (29), which counts cohorts of one number of groups each."""
    mixed = [
        (n, k, t)
        for n in range(2, most + 1)
        for t in range(2, n // 2 + 1)
        for k in range(t, n // 2 + 1, t)
        if n % t == 0 and largest_union_family(n, k, t).is_mixed
    ]
    first = f", first at N, K, T = {', '.join(map(str, mixed[0]))}" if mixed else ""
    return state(
        "groupings whose cohorts consist of different numbers of groups, as (29) does "
        "not count",
        not mixed,
        paper="none: E groups in each round",
        ours=f"at {len(mixed)} triples{first}",
        otherwise="our reading",
        note=(
            "E may be meant as a most. In groups of 2, 2 and 4 clients cohorts of 4 "
            "have one group or two; the bound then needs the LYM inequality (no cohort "
            "contains another)"
        ),
    )


class Largest(NamedTuple):
    """The most cohorts of a grouping, and whether group numbers differ."""

    cohorts: int
    is_mixed: bool


@functools.cache
def largest_union_family(n: int, k: int, t: int) -> Largest:
    """Return the most unions of groups with k clients, over groupings into t or more.

    Examples:
        >>> largest_union_family(8, 4, 2).cohorts
        6
    """
    most, is_mixed = 0, False
    for sizes in _groupings(n, t):
        # a generating function in clients and groups, one factor per group
        ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})  # clients held, groups
        for size in sizes:
            # each group is taken or not; `ways` is read whole before it changes
            ways.update(
                {(held + size, groups + 1): c for (held, groups), c in ways.items()}
            )
        counts = {groups: count for (held, groups), count in ways.items() if held == k}
        most, is_mixed = max(most, sum(counts.values())), is_mixed or len(counts) > 1
    return Largest(most, is_mixed)


def _groupings(n: int, least: int, low: int | None = None) -> Iterator[tuple[int, ...]]:
    """Go through sizes of `least` or more, not falling, that sum to n or less."""
    yield ()
    for size in range(least if low is None else low, n + 1):
        # sizes never fall, so that each grouping comes once
        yield from ((size, *rest) for rest in _groupings(n - size, least, size))


def largest_family(n: int, k: int, t: int) -> int:
    """Return the largest number of cohorts of k whose non-zero columns occur t times.

    Examples:
        >>> largest_family(4, 2, 2)
        2
    """
    cohorts = list(itertools.combinations(range(n), k))
    # a family is a number whose bits are its cohorts
    families = np.arange(2 ** len(cohorts))
    # a client's column as a number: which cohorts of the family contain it
    columns = np.stack(
        [
            families
            & sum(
                1 << place for place, cohort in enumerate(cohorts) if client in cohort
            )
            for client in range(n)
        ]
    )
    # clients that are in the same cohorts, themselves included
    alike = (columns[:, None] == columns[None]).sum(axis=1)
    keeps = ((alike >= t) | (columns == 0)).all(axis=0)
    counts = np.array([int(family).bit_count() for family in families[keeps]])
    return int(counts.max())


def draw_necessity(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the most cohorts against the bound on log axes.

    The columns are N, K, T, most and bound.
    """
    ends = (0.8, 1.3 * data["bound"].max())
    ax.plot(ends, ends, color="#777777", ls=":", label="equal")
    for number, (target, rows) in enumerate(data.groupby("T")):
        colour = SHADES[number % len(SHADES)]
        ax.plot(
            rows["bound"], rows["most"], "o", color=colour, ms=6, label=f"T = {target}"
        )
