"""Items of Multi-RoundSecAgg on families of cohorts: Table 1 and Figure 2.

Printed values are those of the AAAI version; errata as docs/errata.md lists them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import selection
from mrsa_papers.harness import Context, Found, compare, rows_to_frame
from mrsa_papers.harness._figures import WARNING, beside, scheme_colour, short
from mrsa_papers.harness._rows import printed_in

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd


def family_sizes(context: Context) -> Found:
    """Return Table 1: how many cohorts each scheme can choose from."""
    checks, rows = [], []
    for scheme, target, printed in printed_in("multiround")["sizes"]:
        size = selection.family_size(120, 12, target)
        rows.append({"scheme": scheme, "T": target, "paper": printed, "ours": size})
        if target == 1:
            exponent = compare(
                f"{scheme}: log10 of the size", 16, math.log10(size), tolerance=0.5
            )
            checks.append(exponent)
            continue
        note = "91389 is a misprint of C(40, 4) = 91390" if target == 3 else ""
        truth = math.comb(120 // target, 12 // target)
        checks.append(compare(f"{scheme}: size", printed, size, truth=truth, note=note))
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "Cohorts that each scheme can choose from, C(N/T, K/T): printed and exact.",
    )


def family_figure(context: Context) -> Found:
    """Return Figure 2: the family B of N = 8, K = 4, T = 2, every entry compared."""
    lines = printed_in("multiround")["family"]
    printed = np.array([list(line) for line in lines]) == "1"
    ours = selection.enumerate_family(8, 4, 2)
    wrong = (
        int((printed != ours).sum()) if printed.shape == ours.shape else printed.size
    )
    rows = [
        {"row": row + 1, "client": client + 1, "member": int(member)}
        for (row, client), member in np.ndenumerate(ours)
    ]
    checks = (
        compare("rows of B, R = C(4, 2)", 6, len(ours)),
        compare("entries of the printed 6 x 8 matrix that differ", 0, wrong),
    )
    caption = (
        "Every cohort is a union of two of the four blocks {1,2}, {3,4}, {5,6}, {7,8}."
    )
    return Found(checks, rows_to_frame(rows), caption)


def draw_family_sizes(ax: Axes, data: pd.DataFrame) -> None:
    """Draw printed and exact family sizes on a log axis.

    The columns are scheme, paper and ours.
    """
    places = np.arange(len(data))[::-1]
    for place, (_, row) in zip(places, data.iterrows(), strict=True):
        colour = scheme_colour(row["scheme"])
        ax.hlines(place, 1, float(row["ours"]), color=colour, lw=1.5, alpha=0.4)
        ax.plot(float(row["ours"]), place, "o", color=colour, ms=6)
        text = f"{int(row['ours']):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        beside(ax, text, (float(row["ours"]), place), (12, 0), va="center")
    printed = data["paper"].astype(float)
    ax.plot(printed, places, "o", mfc="none", mec=WARNING, ms=11)
    ax.set_yticks(places, [short(label) for label in data["scheme"]])
    ax.set(ylim=(-0.6, len(data) - 0.4))
    ax.grid(axis="y", visible=False)


def draw_family(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a family of cohorts (columns row, client, member) as the matrix B."""
    matrix = data.pivot(index="row", columns="client", values="member").to_numpy()
    ax.imshow(matrix, cmap="Greys", vmin=0, vmax=1.4, aspect="equal")
    for (row, client), member in np.ndenumerate(matrix):
        colour = "white" if member else "#555555"
        ax.text(
            client, row, str(member), ha="center", va="center", color=colour, fontsize=9
        )
    rows, clients = (np.arange(size) for size in matrix.shape)
    ax.set_xticks(clients, [str(client + 1) for client in clients])
    ax.set_yticks(rows, [str(row + 1) for row in rows])
    ax.grid(visible=False)
