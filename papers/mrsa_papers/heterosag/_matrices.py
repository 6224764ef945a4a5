"""HeteroSAg's segment-selection matrices and small examples, compared with the print.

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning", Section II-D (Example 1, Table II), III (Examples 2 to 4, Table III), IV-A
and V (Example 5). Rows that reached us damaged are said to be so; docs/errata.md lists
them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import hetero
from mrsa_papers.harness import Check, Context, Found, compare, rows_to_frame, state
from mrsa_papers.harness._figures import WARNING, panels
from mrsa_papers.harness._rows import printed_in

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_PALE = ("#BFE3F7", "#F6DDA6", "#B5E3D3", "#F3C9DD", "#F7F0A8", "#F3C7A8")

EXAMPLE_5 = (1, 2, 2)
"""Subgroups L_g of Example 5: 15 users in groups of 3, 6 and 6, three to a subgroup."""


@dataclasses.dataclass(frozen=True)
class _Printed:
    """A printed matrix: one line per row, token by token as in the text."""

    name: str
    scheme: str
    text: str
    subgroups: tuple[int, ...]
    threshold: int | None = None

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
    _Printed(**printed | {"subgroups": tuple(printed["subgroups"])})
    for printed in printed_in("heterosag")["matrices"]
]


def matrices(context: Context) -> Found:
    """Return every printed matrix beside ours, row by row."""
    checks: list[Check] = []
    rows: list[dict[str, Any]] = []
    for printed in _PRINTED:
        lines, ours = _aligned(printed), printed.ours()
        states = _readings(lines, ours)
        checks.append(_rows_check(printed, states))
        for segment, (line, row, read) in enumerate(
            zip(lines, ours, states, strict=True)
        ):
            for group, label in enumerate(row):
                rows.append(
                    {
                        "matrix": printed.name,
                        "segment": segment,
                        "group": group,
                        "label": label,
                        "block": int(printed.matrix[segment, group]),
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
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "Rows are segments, columns groups (or subgroups); equal labels in a row sum "
        "the segment together, * by itself. Framed rows cannot be read in the print "
        "and are ours alone. The print of MC and HC at G = 5 is lost, as are "
        "Algorithms 2 and 5: Table III-B, Section V-A and the 6 x 6 matrix confirm the "
        "reconstruction, the inner loop of Algorithm 3.",
    )


def _aligned(printed: _Printed) -> list[list[str]]:
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


def _rows_check(printed: _Printed, states: list[str]) -> Check:
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
        claim, equal, paper=_sets(paper), ours=_sets(ours), tolerance=tolerance
    )


def _sets(groups: Any) -> str:
    return " ".join("{" + ",".join(map(str, block)) + "}" for block in groups)


# Example 1: three users with 2, 3 and 3 levels, pads over 2, 6 and 6 values, sums mod
# 6.
_LEVELS, _RANGES, _MODULUS = (2, 3, 3), (2, 6, 6), 6
_TABLE_II = np.asarray(printed_in("heterosag")["pads"]).T


def examples(context: Context) -> Found:
    """Return Example 1 with Table II by enumeration, and Example 5's numbers."""
    # pads must cancel modulo the server's ring
    tuples = [
        pads for pads in itertools.product(*map(range, _RANGES)) if sum(pads) % 6 == 0
    ]
    rows = []
    for pads, codes in itertools.product(
        tuples, itertools.product(*map(range, _LEVELS))
    ):
        # each user reduces by the size of its range
        sent = [(c + z) % r for c, z, r in zip(codes, pads, _RANGES, strict=True)]
        rows.append(
            {
                "Z_1": pads[0],
                "Z_2": pads[1],
                "Z_3": pads[2],
                "codes": "".join(map(str, codes)),
                "server": sum(sent) % _MODULUS,
                "truth": sum(codes),
                "overflow": any(
                    c + z >= r for c, z, r in zip(codes, pads, _RANGES, strict=True)
                ),
            }
        )
    data = rows_to_frame(rows)
    data["is wrong"] = data["server"] != data["truth"]
    chosen = (data["Z_1"] == 1) & (data["Z_2"] == 1) & (data["Z_3"] == 4)
    binary = data[chosen & (data["codes"] == "100")]
    return Found(
        (
            state(
                "Table II against all triples of pads that sum to 0 mod 6",
                sorted(map(tuple, _TABLE_II.tolist())) == sorted(tuples),
                paper="12 triples",
                ours=f"{len(tuples)} triples, the same",
            ),
            compare(
                "Example 1: the sum 1 + 0 + 0 with pads (1, 1, 4)",
                5,
                int(binary["server"].sum()),
                note="the truth is 1",
            ),
            _overflow_check(data),
            *_example_5(),
        ),
        data,
        "Every pad of Table II with every input of Example 1: where the server's sum "
        "mod 6 is not the sum of the inputs. Only user 1, whose range is not the "
        "server's, can spoil it.",
    )


def _overflow_check(data: Any) -> Check:
    wrong = int(data["is wrong"].sum())
    # overflows of user 1 alone, whose ring is smaller than the server's
    spoilt = data["codes"].str[0].astype(int) + data["Z_1"] >= _RANGES[0]
    return state(
        'Example 1: "distorted whenever an overflow happens for any user"',
        bool((data["is wrong"] == data["overflow"]).all()),
        paper="every overflow",
        ours=(
            f"{wrong} of {len(data)} sums wrong, of {int(data['overflow'].sum())} with "
            "overflow"
        ),
        tolerance="every pad and input, equally weighted",
        otherwise="paper errs"
        if bool((data["is wrong"] == spoilt).all())
        else "differs",
        note=(
            "a user whose ring is the server's, mod 6, may overflow without harm: "
            "exactly the overflows of user 1 (mod 2) distort the sum"
        ),
    )


def _example_5() -> Iterator[Check]:
    sizes = [3 * count for count in EXAMPLE_5]
    layout = hetero.segment_layout("sc", sizes, [2, 4, 8], 5, subgroups=EXAMPLE_5)
    numbers = {len(column) for column in layout.columns}
    matrix = hetero.segment_matrix_plus("sc", EXAMPLE_5)
    alone = [
        int((matrix[:, column] < 0).sum()) / len(matrix)
        for column in range(len(matrix))
    ]
    first = len(matrix) - 2 - 1  # z_T at T = 2
    by_rule, by_difference = first % EXAMPLE_5[0], first - EXAMPLE_5[0]
    yield compare("Example 5: users in each subgroup", 3, max(numbers), note="15 users")
    learnt = "Example 5, SC+: segments that the server learns of one subgroup"
    note = f"{len(set(alone))} value over all subgroups"
    yield compare(learnt, 0.6, max(alone), tolerance=1e-12, note=note)
    yield state(
        "Example 5, HC+ at T = 2: (g_T, d_T) by the printed rule d_T = z_T mod Z_(g_T "
        "- 1)",
        (1, by_rule) == (1, 1),
        paper="(1,1) in the example",
        ours=f"(1,{by_rule}) by the rule, (1,{by_difference}) by z_T - Z_(g_T - 1)",
        otherwise="paper errs" if by_difference == 1 else "differs",
        note="the matrix printed for the example has (1,1)",
    )


def draw_matrices(figure: Figure, data: pd.DataFrame) -> None:
    """Draw each matrix on axes of its own."""
    figure.set_size_inches(11.5, 7.6)
    title = {"fontsize": 10}
    panels(figure, data, "matrix", _draw_matrix, rows=2, columns=3, title=title)


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
    unread = data[~data["print"].str.startswith("equal")]["segment"].unique()
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

    The columns are Z_1, Z_2, Z_3, codes and is wrong.
    """
    pads = list(dict.fromkeys(zip(data["Z_1"], data["Z_2"], data["Z_3"], strict=True)))
    codes = sorted(data["codes"].unique())
    table = data.set_index(["Z_1", "Z_2", "Z_3", "codes"])["is wrong"]
    grid = np.asarray([[table[(*pad, code)] for pad in pads] for code in codes])
    from matplotlib.colors import ListedColormap

    ax.imshow(
        grid, cmap=ListedColormap(["#e8eef2", WARNING]), aspect="auto", vmin=0, vmax=1
    )
    ax.set_xticks(range(len(pads)), ["\n".join(map(str, pad)) for pad in pads])
    ax.set_yticks(range(len(codes)), [" ".join(code) for code in codes], fontsize=7.5)
    ax.set_title(f"Wrong sums (orange): {int(grid.sum())} of {grid.size}")
    ax.grid(visible=False)
