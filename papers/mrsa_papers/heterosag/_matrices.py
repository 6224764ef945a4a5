"""HeteroSAg's segment-selection matrices and small examples, compared with the print.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning", Section II-D (Example 1, Table II), III (Examples 2 to 4, Table III), IV-A
and V (Example 5). Rows that reached us damaged are said to be so; docs/errata.md lists
them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
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
from mrsa_papers.harness._figures import WARNING, panels
from mrsa_papers.harness._rows import printed_in
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_PALE = ("#BFE3F7", "#F6DDA6", "#B5E3D3", "#F3C9DD", "#F7F0A8", "#F3C7A8")

EXAMPLE_5 = (1, 2, 2)
"""Subgroups L_g of Example 5: 15 users in groups of 3, 6 and 6, three to a subgroup."""

_EXAMPLE_5_THRESHOLD = 2  # T of HC+
_MOST_CELLS = 100_000  # of an enumeration or of all drawn matrices


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """A matrix and what is printed of it.

    The print has one line per row, token by token as in the text; it is empty where the
    paper prints none.
    """

    name: str
    scheme: str
    subgroups: tuple[int, ...]
    threshold: int | None = None
    text: str = ""

    @property
    def case(self) -> tuple[str, tuple[int, ...], int | None]:
        """What the matrix follows from."""
        return self.scheme, self.subgroups, self.threshold

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.text.split("\n")]

    @property
    def matrix(self) -> np.ndarray:
        return hetero.segment_matrix_plus(self.scheme, self.subgroups, self.threshold)

    def ours(self) -> list[list[str]]:
        """Return our rows in the paper's labels."""
        plain = all(count == 1 for count in self.subgroups)
        text = hetero.format_matrix(self.matrix, None if plain else self.subgroups)
        return [line.split() for line in text.splitlines()]


_PRINTED = [
    _Matrix(**printed | {"subgroups": tuple(printed["subgroups"])})
    for printed in printed_in("heterosag")["matrices"]
]


def _chosen(settings: Values) -> list[_Matrix]:
    """Return the matrices of the settings, with the print where there is one."""
    printed = {each.case: each for each in _PRINTED}
    counts, threshold = settings.subgroups, settings.hybrid_threshold
    cases: list[tuple[str, str, tuple[int, ...], int | None]] = [
        (f"{scheme.upper()}, G = {size}", scheme, (1,) * size, None)
        for scheme in ("sc", "mc")
        for size in settings.num_groups
    ]
    cuts = ", ".join(map(str, counts))
    cases += [
        (f"SC+, subgroups {cuts}", "sc", counts, None),
        (f"MC+, subgroups {cuts}", "mc", counts, None),
        (f"HC+ (T = {threshold}), subgroups {cuts}", "hc", counts, threshold),
    ]
    return [
        printed.get((scheme, cut, end), _Matrix(name, scheme, cut, end))
        for name, scheme, cut, end in cases
    ]


def matrices(context: Context, settings: Values) -> Found:
    """Return matrices of all schemes, row by row, beside those that are printed."""
    check_threshold(settings)
    sizes = settings.num_groups, (sum(settings.subgroups),)
    cells = sum(size * size for each in sizes for size in each)
    require(
        cells <= _MOST_CELLS,
        "num_groups",
        f"must give matrices of at most {_MOST_CELLS:,} cells",
        settings.num_groups,
    )
    context.begin()
    checks: list[Check] = []
    rows: list[dict[str, Any]] = []
    chosen = _chosen(settings)
    for one in chosen:
        ours = one.ours()
        lines, states = [[""]] * len(ours), ["not printed"] * len(ours)
        if one.text:
            lines = _aligned(one)
            states = _readings(lines, ours)
            checks.append(_rows_check(one, states))
        for segment, (line, row, read) in enumerate(
            zip(lines, ours, states, strict=True)
        ):
            for group, label in enumerate(row):
                rows.append(
                    {
                        "matrix": one.name,
                        "segment": segment,
                        "group": group,
                        "label": label,
                        "block": int(one.matrix[segment, group]),
                        "print": read,
                        "printed row": " ".join(line),
                    }
                )
    # what is printed of matrices whose own print is lost
    for sums in printed_in("heterosag")["sums"]:
        answers = _sums_of(hetero.segment_matrix(sums["scheme"], 5), 0)
        number = f"{len(sums['groups'])} of 5 segments"
        checks.append(_sums_check(sums["claim"], sums["groups"], answers, number))
    first = hetero.blocks_of(hetero.segment_matrix("mc", 5))[0]
    row = printed_in("heterosag")["first_row"]
    checks.append(
        _sums_check("Section V-A: first row of MC, G = 5", row, first, "3 sums")
    )
    checks.append(_pairs_check(chosen))
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "Rows are segments, columns groups (or subgroups); equal labels in a row sum "
        "the segment together, * by itself. Framed rows cannot be read in the print "
        "and are ours alone, as are matrices that the paper does not print. The print "
        "of MC and HC at G = 5 is lost, as are Algorithms 2 and 5: Table III-B, "
        "Section V-A and the 6 x 6 matrix confirm the reconstruction, the inner loop "
        "of Algorithm 3.",
    )


def check_threshold(settings: Values) -> None:
    """Raise unless T of HC+ fits the settings' number of subgroups Z."""
    total = sum(settings.subgroups)
    rule = "must give at least 4 subgroups, below which HC+ has no T"
    require(total >= 4, "subgroups", rule, settings.subgroups)
    require(
        2 <= settings.hybrid_threshold <= total - 2,
        "hybrid_threshold",
        f"must lie in [2, {total - 2}], as Theorem 3 has it for Z = {total} subgroups",
        settings.hybrid_threshold,
    )


def _pairs_check(chosen: list[_Matrix]) -> Check:
    """Check which groups sum together under MC, whose rule is that all pairs do."""
    chains = [one for one in chosen if one.scheme == "mc"]
    counts = [_together(one.matrix) for one in chains]
    # above the diagonal: each pair of groups
    equal = [
        bool((count[np.triu_indices(len(count), 1)] == 1).all()) for count in counts
    ]
    return state(
        "segments that each pair of groups sums together under MC",
        all(equal),
        ours=f"one in {sum(equal)} of {len(equal)} matrices",
        tolerance="every pair",
    )


def _together(matrix: np.ndarray) -> np.ndarray:
    """Return in how many segments each pair of groups is in one sum, [G, G]."""
    counts = np.zeros(matrix.shape, np.int64)
    for row in hetero.blocks_of(matrix):
        for block in row:
            counts[np.ix_(block, block)] += 1
    return counts


def _aligned(printed: _Matrix) -> list[list[str]]:
    """Return one printed line per row, without lines that are printed twice."""
    lines = printed.rows
    # the print repeats some lines
    while len(lines) > len(printed.matrix):
        # removes the first of two equal neighbours
        lines.remove(next(a for a, b in itertools.pairwise(lines) if a == b))
    return lines


def _readings(lines: list[list[str]], ours: list[list[str]]) -> list[str]:
    """Compare each printed row with ours."""
    readings = []
    for k, (line, row) in enumerate(zip(lines, ours, strict=True)):
        # the line without one of its tokens
        shortened = [line[:j] + line[j + 1 :] for j in range(len(line))]
        if line == row:
            readings.append("equal")
        elif row in shortened:
            readings.append("equal but for one token too many")
        elif k > 0 and line == lines[k - 1]:
            readings.append("the row above, printed again")
        else:
            readings.append("an entry is lost" if len(line) < len(row) else "differs")
    return readings


def _rows_check(printed: _Matrix, states: list[str]) -> Check:
    lost = ("the row above, printed again", "an entry is lost")
    readable = [word for word in states if word not in lost]
    equal = sum(word.startswith("equal") for word in readable)
    odd = [
        f"row {row}: {state_of_row}"
        for row, state_of_row in enumerate(states)
        if state_of_row != "equal"
    ]
    if len(printed.rows) > len(states):
        odd.append(f"{len(printed.rows)} rows are printed, one of them more than once")
    return state(
        f"{printed.name}: rows equal to ours, of those that can be read",
        equal == len(readable),
        depends=(),  # of this matrix alone
        paper=f"{len(readable)} readable rows of {len(states)}",
        ours=f"{equal} equal",
        tolerance="every token",
        note="; ".join(odd),
    )


def _sums_of(matrix: np.ndarray, group: int) -> tuple[tuple[int, ...], ...]:
    """Return for each segment the groups whose sum contains a group."""
    return tuple(
        next(block for block in row if group in block)
        for row in hetero.blocks_of(matrix)
    )


def _sums_check(claim: str, paper: Any, ours: Any, tolerance: str) -> Check:
    equal = paper == [list(block) for block in ours]
    return state(
        claim,
        equal,
        depends=(),  # of its own G
        paper=_sets(paper),
        ours=_sets(ours),
        tolerance=tolerance,
    )


def _sets(groups: Any) -> str:
    return " ".join("{" + ",".join(map(str, block)) + "}" for block in groups)


_TABLE_II = np.asarray(printed_in("heterosag")["pads"]).T


def examples(context: Context, settings: Values) -> Found:
    """Return Example 1 with Table II by enumeration, and Example 5's numbers."""
    _check_example(settings)
    context.begin()
    ranges, modulus = settings.ring_sizes, settings.modulus
    # pads must cancel modulo the server's ring
    tuples = [
        pads
        for pads in itertools.product(*map(range, ranges))
        if sum(pads) % modulus == 0
    ]
    rows = []
    for pads, codes in itertools.product(
        tuples, itertools.product(*map(range, settings.levels))
    ):
        # each user reduces by the size of its range
        sent = [(c + z) % r for c, z, r in zip(codes, pads, ranges, strict=True)]
        over = [c + z >= r for c, z, r in zip(codes, pads, ranges, strict=True)]
        rows.append(
            {f"Z_{user}": pad for user, pad in enumerate(pads, 1)}
            | {
                "codes": " ".join(map(str, codes)),
                "server": sum(sent) % modulus,
                "truth": sum(codes),
                "overflow": any(over),
                # in a ring that is not the server's
                "overflow elsewhere": any(
                    is_over and r % modulus
                    for is_over, r in zip(over, ranges, strict=True)
                ),
            }
        )
    data = rows_to_frame(rows)
    data["is wrong"] = data["server"] != data["truth"]
    numbers = range(1, len(ranges) + 1)
    odd = [user for user, r in zip(numbers, ranges, strict=True) if r % modulus]
    is_table = sorted(map(tuple, _TABLE_II.tolist())) == sorted(tuples)
    checks = [
        state(
            f"Table II against all pads of the users that sum to 0 mod {modulus}",
            is_table,
            depends=("ring_sizes", "modulus"),
            paper="12 triples",
            ours=f"{len(tuples)}, {'the same' if is_table else 'others'}",
        ),
        *_binary(data),
        _overflow_check(data, settings, odd),
        *_example_5(settings),
    ]
    spoilt = " and ".join(map(str, odd))
    which = f"user {spoilt}, whose" if len(odd) == 1 else "a user whose"
    return Found(
        tuple(checks),
        data,
        "Every pad of Table II with every input of Example 1: where the server's sum "
        f"mod {modulus} is not the sum of the inputs. Only {which} range is not the "
        f"server's{',' * (len(odd) == 1)} can spoil it.",
    )


def _check_example(settings: Values) -> None:
    """Raise unless the settings of Example 1 are those of users and a server."""
    check_threshold(settings)
    levels, ranges, modulus = settings.levels, settings.ring_sizes, settings.modulus
    rule = f"must have a size for each of the {len(levels)} users of `levels`"
    require(len(ranges) == len(levels), "ring_sizes", rule, ranges)
    rule = "must hold the levels of each user"
    require(
        all(k <= r for k, r in zip(levels, ranges, strict=True)),
        "ring_sizes",
        rule,
        ranges,
    )
    most = sum(level - 1 for level in levels)
    rule = f"must be above the largest sum of codes, {most}"
    require(modulus > most, "modulus", rule, modulus)
    cells = math.prod(levels) * math.prod(ranges)
    rule = f"must leave at most {_MOST_CELLS:,} pairs of pads and codes to go through"
    require(cells <= _MOST_CELLS, "ring_sizes", rule, f"{cells:,}")


def _binary(data: pd.DataFrame) -> Iterator[Check]:
    """Yield Example 1's sum in numbers, where its pads and codes are gone through."""
    pads, names = (1, 1, 4), [name for name in data if str(name).startswith("Z_")]
    if len(names) != len(pads):
        return
    chosen = data[
        (data[names].to_numpy() == pads).all(axis=1) & (data["codes"] == "1 0 0")
    ]
    for server in chosen["server"]:
        yield compare(
            f"Example 1: the sum 1 + 0 + 0 with pads {pads}",
            5,
            int(server),
            note="the truth is 1",
            depends=("ring_sizes", "modulus"),
        )


def _overflow_check(data: pd.DataFrame, settings: Values, odd: list[int]) -> Check:
    wrong, modulus = int(data["is wrong"].sum()), settings.modulus
    users = ", ".join(f"{user} (mod {settings.ring_sizes[user - 1]})" for user in odd)
    return state(
        'Example 1: "distorted whenever an overflow happens for any user"',
        bool((data["is wrong"] == data["overflow"]).all()),
        depends=("levels", "ring_sizes", "modulus"),
        paper="every overflow",
        ours=(
            f"{wrong} of {len(data)} sums wrong, of {int(data['overflow'].sum())} with "
            "overflow"
        ),
        tolerance="every pad and input, equally weighted",
        otherwise=(
            "paper errs"
            if bool((data["is wrong"] == data["overflow elsewhere"]).all())
            else "differs"
        ),
        note=(
            f"a user whose ring is the server's, mod {modulus}, may overflow without "
            f"harm: exactly the overflows of user {users} distort the sum"
            if len(odd) == 1
            else "a user whose ring is the server's may overflow without harm"
        ),
    )


def _example_5(settings: Values) -> Iterator[Check]:
    counts, size = settings.subgroups, settings.subgroup_size
    sizes, levels = [size * count for count in counts], range(2, 2 + len(counts))
    layout = hetero.segment_layout(
        "sc", sizes, list(levels), sum(counts), subgroups=counts
    )
    numbers = {len(column) for column in layout.columns}
    matrix = hetero.segment_matrix_plus("sc", counts)
    alone = [
        int((matrix[:, column] < 0).sum()) / len(matrix)
        for column in range(len(matrix))
    ]
    yield compare(
        "Example 5: users in each subgroup",
        3,
        max(numbers),
        note=f"{sum(sizes)} users",
        depends=("subgroup_size",),
    )
    learnt = "Example 5, SC+: segments that the server learns of one subgroup"
    note = f"{len(set(alone))} value over all subgroups"
    yield compare(
        learnt, 0.6, max(alone), tolerance=1e-12, note=note, depends=("subgroups",)
    )
    yield _pair_check(settings)


def _pair_check(settings: Values) -> Check:
    """Judge the printed rule for d_T, the place of z_T in its group."""
    counts, threshold = settings.subgroups, settings.hybrid_threshold
    before = [0, *itertools.accumulate(counts)]  # before[g] = Z_(g-1)
    first = sum(counts) - threshold - 1  # z_T
    group = max(g for g in range(len(counts)) if before[g] <= first)
    by_difference = first - before[group]
    # of the first group the rule's modulus is 0
    by_rule = first % before[group] if before[group] else first
    return state(
        f"Example 5, HC+ at T = {threshold}: (g_T, d_T) by the printed rule d_T = z_T "
        "mod Z_(g_T - 1)",
        by_rule == by_difference,
        depends=("subgroups", "hybrid_threshold"),
        paper=f"({group},{by_difference}) in the example",
        ours=f"({group},{by_rule}) by the rule, ({group},{by_difference}) by z_T - "
        "Z_(g_T - 1)",
        otherwise="paper errs" if by_difference < counts[group] else "differs",
        note=(
            f"the matrix printed for the example has ({group},{by_difference})"
            if (counts, threshold) == (EXAMPLE_5, _EXAMPLE_5_THRESHOLD)
            else ""
        ),
    )


def draw_matrices(figure: Figure, data: pd.DataFrame) -> None:
    """Draw each matrix on axes of its own."""
    count = data["matrix"].nunique()
    columns = min(count, 4)
    rows = -(-count // columns)
    figure.set_size_inches(3.6 * columns, 3.8 * rows)
    title = {"fontsize": 10}
    panels(
        figure, data, "matrix", _draw_matrix, rows=rows, columns=columns, title=title
    )


def _draw_matrix(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a segment-selection matrix (columns segment, group, label, block, print)."""
    from matplotlib.patches import Rectangle

    segments, groups = data["segment"].max() + 1, data["group"].max() + 1
    for _, cell in data.iterrows():
        at = (cell["group"] - 0.5, cell["segment"] - 0.5)
        face = "#f4f4f4" if cell["block"] < 0 else _PALE[cell["block"] % len(_PALE)]
        ax.add_patch(Rectangle(at, 1, 1, fc=face, ec="white", lw=1.5))
        small = len(str(cell["label"])) > 2
        size = 7.5 if small else 10
        place = (cell["group"], cell["segment"])
        ax.text(*place, cell["label"], ha="center", va="center", fontsize=size)
    read = data["print"].str.startswith("equal") | (data["print"] == "not printed")
    unread = data[~read]["segment"].unique()
    for segment in unread:
        at = (-0.47, segment - 0.45)
        ax.add_patch(Rectangle(at, groups - 0.06, 0.9, fc="none", ec=WARNING, lw=1.6))
    ax.set(xlim=(-0.55, groups - 0.45), ylim=(segments - 0.45, -0.55))
    ax.set_xticks(range(groups))
    ax.set_yticks(range(segments))
    ax.set(
        xlabel="group"
        if groups > 5 or data["label"].str.len().max() < 3
        else "subgroup",
        ylabel="segment",
    )
    ax.set_aspect("equal")
    ax.grid(visible=False)


def draw_examples(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the wrong sums of Example 1.

    The columns are Z_1, Z_2 and so on, codes and is wrong.
    """
    names = [name for name in data if str(name).startswith("Z_")]
    pads = list(dict.fromkeys(data[names].itertuples(index=False, name=None)))
    codes = sorted(data["codes"].unique())
    table = data.set_index([*names, "codes"])["is wrong"]
    grid = np.asarray([[table[(*pad, code)] for pad in pads] for code in codes])
    from matplotlib.colors import ListedColormap

    ax.imshow(
        grid, cmap=ListedColormap(["#e8eef2", WARNING]), aspect="auto", vmin=0, vmax=1
    )
    ax.set_xticks(range(len(pads)), ["\n".join(map(str, pad)) for pad in pads])
    ax.set_yticks(range(len(codes)), codes, fontsize=7.5)
    ax.set_title(f"Wrong sums (orange): {int(grid.sum())} of {grid.size}")
    ax.grid(visible=False)
