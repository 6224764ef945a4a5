"""Items of HeteroSAg on privacy and robustness.

Theorems 1, 3 and 4, and tolerated attackers.
Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning". The privacy level by its definition: 1 less the largest share of segments
whose sum over some union of groups the server knows. Errata as docs/errata.md lists
them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import hetero
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import WARNING, beside, panels
from mrsa_papers.heterosag._matrices import check_threshold
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_MOST_GROUPS = 40  # whose levels are certified in seconds
_MOST_RUNS = 50_000  # of Algorithm 6, in Python


def segments_known(matrix: np.ndarray, groups: Iterable[int]) -> int:
    """Return of how many segments the server knows the sum over a union of groups.

    Counted from the definition: the union must be a union of the row's blocks.
    """
    # a row tells the sum over the union if no block of it is cut
    union = set(groups)
    rows = hetero.blocks_of(matrix)
    return sum(all(set(b) <= union or not set(b) & union for b in row) for row in rows)


def _least_prime_factor(number: int) -> int:
    return next(p for p in range(2, number + 1) if number % p == 0)


@functools.cache
def _truth(
    scheme: str, size: int, threshold: int | None
) -> tuple[Fraction, tuple[int, ...]]:
    """Return the true level and a union of groups that attains it, checked twice."""
    matrix = hetero.segment_matrix(scheme, size, threshold)
    report = hetero.privacy_report(matrix)
    groups = tuple(int(group) for group in report.groups)
    leaked = segments_known(matrix, groups)
    level = Fraction(report.level)
    # the level is counted again from its witness
    if not report.certified or level != 1 - Fraction(leaked, size):
        raise ArithmeticError(
            f"no certified privacy level for {scheme}, {size}, {threshold}"
        )
    return level, groups


def levels(context: Context, settings: Values) -> Found:
    """Return Theorem 1: the privacy level claimed and true, for numbers of groups."""
    sizes = _checked_sizes(settings.num_groups, "num_groups")
    context.begin()
    cases = [(size, *case) for size in sizes for case in _schemes(size)]
    rows: list[dict[str, Any]] = []
    for size, scheme, threshold in context.steps("Theorem 1: privacy levels", cases):
        claim = hetero.claimed_privacy_level(scheme, size, threshold)
        true, groups = _truth(scheme, size, threshold)
        rows.append(
            {
                "scheme": scheme.upper(),
                "G": size,
                "T": threshold,
                "claimed": float(claim),
                "true": float(true),
                "claimed fraction": str(claim),
                "true fraction": str(true),
                "groups": " ".join(map(str, groups)),
                "holds": claim == true,
            }
        )
    data = rows_to_frame(rows)
    parts = (
        ("SC", (0, 1), "2/G"),
        ("MC", (1,), "(G-1)/G for odd G"),
        ("MC", (0,), "(G-2)/G for even G"),
        ("HC", (0, 1), "(G-T)/G for 2 <= T <= G-2"),
    )
    return Found(
        (
            *(check for part in parts for check in _part(data, *part)),
            *_printed_levels(),
            _corrected(data),
            *_growing(data),
        ),
        data,
        "Lines: Theorem 1. Marks: the level by its definition, each with a union of "
        "groups that attains it, over which the segments that the server knows were "
        "counted again. MC reaches its claim where G is prime (and at G = 4), HC where "
        "T is large enough.",
    )


def _checked_sizes(sizes: Iterable[int], name: str) -> list[int]:
    """Return numbers of groups in order; raise for one that takes too long."""
    ordered = sorted(set(sizes))
    rule = f"must be at most {_MOST_GROUPS}, whose privacy levels take a minute"
    require(ordered[-1] <= _MOST_GROUPS, name, rule, ordered[-1])
    return ordered


def _in_words(sizes: Iterable[int]) -> str:
    """Return numbers in words: neighbours by their ends.

    Examples:
        >>> _in_words([2, 3, 4]), _in_words([2, 5])
        ('2 to 4', '2, 5')
    """
    ordered = sorted(set(sizes))
    first, last = ordered[0], ordered[-1]
    if len(ordered) > 2 and last - first == len(ordered) - 1:
        return f"{first} to {last}"
    return ", ".join(map(str, ordered))


def _part(
    data: pd.DataFrame, scheme: str, parities: tuple[int, ...], claim: str
) -> Iterator[Check]:
    """Yield a part of Theorem 1, if there are cases of it."""
    cases = data[(data["scheme"] == scheme) & data["G"].mod(2).isin(parities)]
    if cases.empty:
        return
    wrong = cases[~cases["holds"]]
    words, note = f"holds in all {len(cases)} cases", ""
    if len(wrong):
        names = ", ".join(_case(row) for _, row in wrong.iterrows())
        words = f"fails in {len(wrong)} of {len(cases)}: {names}"
        gaps = (wrong["claimed"] - wrong["true"]).abs().to_numpy()
        worst = wrong.iloc[int(gaps.argmax())]
        note = (
            f"{_case(worst)}: of the groups {worst['groups'].replace(' ', ', ')} "
            f"together the server knows {round((1 - worst['true']) * worst['G'])} "
            "segments; the proof looks at one group and at pairs of groups only"
        )
    yield state(
        f"{scheme}: {claim}",
        wrong.empty,
        depends=(),
        paper="every G",
        ours=words,
        tolerance=f"exact, G = {_in_words(data['G'])}",
        otherwise="paper errs",
        note=note,
    )


def _case(row: pd.Series) -> str:
    label = f"G = {int(row['G'])}"
    if not np.isnan(row["T"]):
        label += f", T = {int(row['T'])}"
    return f"{label} ({row['true fraction']}, not {row['claimed fraction']})"


def _printed_levels() -> Iterator[Check]:
    for name, scheme, threshold, paper in (
        ("Example 2, SC", "sc", None, 0.4),
        ("Example 3, MC", "mc", None, 0.8),
        ("Example 4, HC at T = 2", "hc", 2, 0.6),
    ):
        ours = float(_truth(scheme, 5, threshold)[0])
        yield compare(
            f"{name}: privacy level", paper, ours, tolerance=1e-12, depends=()
        )
    matrix = hetero.segment_matrix("mc", 6)
    level, leaked = _truth("mc", 6, None)[0], segments_known(matrix, (0, 2, 4))
    yield state(
        "Section IV-A: privacy level of the printed 6 x 6 matrix",
        1 - Fraction(leaked, 6) == Fraction(2, 3),
        depends=(),  # of G = 6
        paper="2/3",
        ours=str(level),
        otherwise="paper errs" if level == 1 - Fraction(leaked, 6) else "differs",
        note=(
            "of the groups 0, 2 and 4 together the server knows segments 1, 3 and 5 of "
            "6"
        ),
    )


def _corrected(data: pd.DataFrame) -> Check:
    rows = data[data["scheme"] == "MC"]
    # every p-th group together is a union of blocks in one segment of p
    law = [1 - Fraction(1, _least_prime_factor(size)) for size in rows["G"]]
    levels_proved = [hetero.scheme_privacy_level("mc", int(size)) for size in rows["G"]]
    agree = [str(level) for level in law] == rows["true fraction"].tolist()
    return state(
        "MC: 1 - 1/p, p the smallest prime factor of G (our correction)",
        agree and law == levels_proved,
        ours=f"{'equal' if agree else 'differs'} for G = {_in_words(data['G'])}",
    )


def _growing(data: pd.DataFrame) -> Iterator[Check]:
    """Yield Remark 2, if there are even numbers of groups, of which it fails."""
    even = data[(data["scheme"] == "MC") & (data["G"] % 2 == 0)]
    if even.empty:
        return
    stays = bool((even["true"] == 0.5).all())
    yield state(
        "Remark 2: MC's level approaches 1 as G grows",
        not stays,
        depends=(),
        paper="for any G",
        ours="1/2 for every even G" if stays else "grows",
        tolerance=f"exact, G = {_in_words(data['G'])}",
        otherwise="paper errs",
        note="true along the primes: choose a prime number of groups",
    )


def levels_plus(context: Context, settings: Values) -> Found:
    """Return Theorem 3: levels over subgroups, and Algorithm 6 against its base."""
    check_threshold(settings)
    sizes = _checked_sizes(settings.num_subgroups, "num_subgroups")
    runs_to_make = sum(
        max(total - 3, 0) * math.comb(total - 1, count - 1)
        for total in sizes
        for count in range(1, min(settings.most_groups, total) + 1)
    )
    rule = f"must leave at most {_MOST_RUNS:,} runs of Algorithm 6"
    require(runs_to_make <= _MOST_RUNS, "num_subgroups", rule, f"{runs_to_make:,}")
    context.begin()
    rows: list[dict[str, Any]] = []
    runs, equal = 0, 0
    for total in context.steps("Theorem 3: subgroups", sizes):
        cuts = _compositions(total, settings.most_groups)
        for counts, chain_end in itertools.product(cuts, range(2, total - 1)):
            runs += 1
            ours = hetero.segment_matrix_plus("hc", counts, chain_end)
            equal += bool((_algorithm_6(counts, chain_end) == ours).all())
        for scheme, threshold in _schemes(total):
            true, _ = _truth(scheme, total, threshold)
            claim = hetero.claimed_privacy_level(scheme, total, threshold)
            rows.append(
                {
                    "scheme": scheme.upper() + "+",
                    "Z": total,
                    "T": threshold,
                    "claimed": float(claim),
                    "true": float(true),
                    "ways to cut": len(cuts),
                    "holds": claim == true,
                }
            )
    data = rows_to_frame(rows)
    return Found(
        (
            state(
                "Algorithm 6 against the base scheme over Z subgroups",
                runs == equal,
                depends=(),
                paper="HC+ over (g, d)",
                ours=f"{equal} of {runs} equal",
                tolerance="every entry, all ways to cut Z into up to "
                f"{settings.most_groups} groups",
                note=(
                    "Algorithm 6 with d_T = z_T - Z_(g_T - 1), s starting at d and its "
                    "lost branch, s = s + 1; as printed it contradicts Example 5"
                ),
            ),
            *(
                check
                for scheme in ("SC+", "MC+", "HC+")
                for check in _plus_part(data, scheme)
            ),
            *_example_5_levels(settings),
        ),
        data,
        "Levels depend on the number of subgroups Z alone: lines Theorem 3, marks the "
        f"definition. Z = {_in_words(sizes)}; larger Z as in Theorem 1.",
    )


def _schemes(size: int) -> list[tuple[str, int | None]]:
    """Return SC, MC, and HC with each of its thresholds."""
    return [
        ("sc", None),
        ("mc", None),
        *(("hc", threshold) for threshold in range(2, size - 1)),
    ]


def _compositions(total: int, most: int) -> list[tuple[int, ...]]:
    """Return all ways to cut a number of subgroups into at most so many groups.

    Examples:
        >>> _compositions(3, 2)
        [(3,), (1, 2), (2, 1)]
    """
    cuts = (
        places
        for count in range(min(most, total))
        for places in itertools.combinations(range(1, total), count)
    )
    return [
        tuple(end - start for start, end in itertools.pairwise((0, *places, total)))
        for places in cuts
    ]


def _algorithm_6(counts: tuple[int, ...], threshold: int) -> np.ndarray:
    """Run Algorithm 6 as it must have been meant, on pairs (g, d); -1 for '*'."""
    total = sum(counts)
    before = [0, *itertools.accumulate(counts)]  # before[g] = Z_(g-1)
    column = {
        (g, d): before[g] + d for g, count in enumerate(counts) for d in range(count)
    }
    matrix = np.full((total, total), -1, np.int32)
    first = total - threshold - 1  # z_T
    start = max(g for g in range(len(counts)) if before[g] <= first)
    pair = (start, first - before[start])  # (g_T, d_T)
    for (g, d), codes in column.items():
        # the last subgroup has no later one to sum with
        if codes == total - 1:
            continue
        # before the chain: with each later subgroup once, as under MC
        if (g, d) < pair:
            i, s = 0, d
            for r in range(total - before[g] - d - 1):
                # the end of a group: the next group begins with its first subgroup
                if (d + r + 1) == before[g + i + 1] - before[g]:
                    i, s = i + 1, 0
                else:
                    s = s + 1
                # segments are shifted by two for each subgroup, as under MC
                row = (2 * (before[g] + d) + r) % total
                matrix[row, [codes, column[g + i, s]]] = codes
        else:
            # in the chain: with the next subgroup only, as under SC
            row = (before[start] + before[g] + d + pair[1]) % total
            other = column[(g, d + 1) if d != counts[g] - 1 else (g + 1, 0)]
            matrix[row, [codes, other]] = codes
    return matrix


def _plus_part(data: pd.DataFrame, scheme: str) -> Iterator[Check]:
    """Yield a part of Theorem 3, if there are cases of it."""
    rows = data[data["scheme"] == scheme]
    if rows.empty:
        return
    wrong = rows[~rows["holds"]]
    claims = {"SC+": "2/Z", "MC+": "(Z-1)/Z odd, (Z-2)/Z even", "HC+": "(Z-T)/Z"}
    names = ", ".join(
        f"Z = {int(row['Z'])}"
        + ("" if np.isnan(row["T"]) else f", T = {int(row['T'])}")
        for _, row in wrong.iterrows()
    )
    label = " (printed as that of MC+)" if scheme == "SC+" else ""
    yield state(
        f"{scheme}: level {claims[scheme]}{label}",
        wrong.empty,
        depends=(),
        paper="every Z",
        ours="holds in all cases" if wrong.empty else f"fails at {names}",
        otherwise="paper errs",
        note="" if wrong.empty else "as Theorem 1; choose a prime number of subgroups",
    )


def _example_5_levels(settings: Values) -> Iterator[Check]:
    threshold = settings.hybrid_threshold
    printed = (
        ("SC+", "sc", None, 0.4),
        ("MC+", "mc", None, 0.8),
        (f"HC+, T = {threshold}", "hc", threshold, 0.6),
    )
    for name, scheme, end, paper in printed:
        matrix = hetero.segment_matrix_plus(scheme, settings.subgroups, end)
        yield compare(
            f"Example 5, {name}: privacy level",
            paper,
            hetero.privacy_level(matrix),
            tolerance=1e-12,
            depends=("subgroups", *(("hybrid_threshold",) if end else ())),
        )


def draw_levels(figure: Figure, data: pd.DataFrame) -> None:
    """Draw SC, MC and HC side by side."""
    figure.set_size_inches(13, 4)
    panels(figure, data, "scheme", _draw_levels_of)


def _draw_levels_of(ax: Axes, data: pd.DataFrame) -> None:
    """Draw claimed and true privacy levels over the number of groups or subgroups."""
    size, many = ("G", "groups G") if "G" in data else ("Z", "subgroups Z")
    ax.set_xticks(range(int(data[size].min()), int(data[size].max()) + 1))
    if data["T"].notna().any():
        looks = {
            True: ("o", "#0072B2", "claim holds"),
            False: ("X", WARNING, "claim too high (true level beside)"),
        }
        for holds, rows in data.groupby("holds"):
            marker, colour, label = looks[bool(holds)]
            ax.scatter(
                rows[size], rows["T"], s=34, marker=marker, color=colour, label=label
            )
        for _, row in data[~data["holds"]].iterrows():
            words, place = f"{row['true']:.2f}", (row[size], row["T"])
            beside(ax, words, place, (0, 5), fontsize=6.5, ha="center")
        ax.set(xlabel=f"number of {many}", ylabel="threshold T")
        ax.set(ylim=(1.3, data["T"].max() + 2.2))
        ax.legend(loc="upper left")
        return
    ax.plot(data[size], data["claimed"], color="#777777", lw=1.3, label="claimed")
    for holds, rows in data.groupby("holds"):
        ax.plot(
            rows[size],
            rows["true"],
            "o" if holds else "X",
            ms=7,
            ls="none",
            color="#0072B2" if holds else WARNING,
            label="true, as claimed" if holds else "true, not as claimed",
        )
    ax.set(xlabel=f"number of {many}", ylabel="privacy level", ylim=(-0.03, 1.03))
    ax.legend(loc="best")
