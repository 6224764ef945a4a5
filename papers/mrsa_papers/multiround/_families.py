"""Items of Multi-RoundSecAgg on families of cohorts: Table 1 and Figure 2.

Printed values are those of the AAAI version; errata as docs/errata.md lists them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import selection
from mrsa_papers.harness import Context, Found, Values, compare, rows_to_frame, state
from mrsa_papers.harness._figures import WARNING, beside, scheme_colour, short
from mrsa_papers.harness._rows import printed_in
from mrsa_papers.multiround._population import check_population
from mrsa_papers.multiround._windows import label_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd


def family_sizes(context: Context, settings: Values) -> Found:
    """Return Table 1: how many cohorts each scheme can choose from."""
    check_population(settings)
    n, k = settings.num_clients, settings.cohort_size
    log_most = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    rule = "must leave fewer than 10^200 cohorts of cohort_size"
    require(log_most < 200 * math.log(10), "num_clients", rule, n)
    context.begin()
    schemes = [("Random", 1), ("Weighted random", 1), ("User partition", k)]
    schemes += [(label_of(target), target) for target in settings.privacy_targets]
    table = {scheme: size for scheme, _, size in printed_in("multiround")["sizes"]}
    depends = ("num_clients", "cohort_size")
    is_printed = not settings.missed.keys() & set(depends)
    checks, rows = [], []
    for scheme, target in schemes:
        size, printed = selection.family_size(n, k, target), table.get(scheme)
        beside = printed if is_printed and printed else math.nan
        rows.append({"scheme": scheme, "T": target, "paper": beside, "ours": size})
        truth = math.comb(n // target, k // target)
        if printed is None:
            claim, words = f"{scheme}: size, C(N/T, K/T)", f"{size}"
            checks.append(state(claim, size == truth, ours=words))
        elif target == 1:
            exponent = compare(
                f"{scheme}: log10 of the size",
                16,
                math.log10(size),
                tolerance=0.5,
                depends=depends,
            )
            checks.append(exponent)
        else:
            is_misprint = is_printed and target == 3
            note = "91389 is a misprint of C(40, 4) = 91390" if is_misprint else ""
            checks.append(
                compare(
                    f"{scheme}: size",
                    printed,
                    size,
                    truth=truth,
                    note=note,
                    depends=depends,
                )
            )
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        f"Cohorts of K = {k} of N = {n} clients that each scheme can choose from, "
        "C(N/T, K/T): printed and exact.",
    )


def family_figure(context: Context, settings: Values) -> Found:
    """Return Figure 2: the family B of N = 8, K = 4, T = 2, every entry compared."""
    n, k, t = settings.num_clients, settings.cohort_size, settings.privacy_target
    require(k <= n, "cohort_size", f"must be at most num_clients, {n}", k)
    for name, size in (("num_clients", n), ("cohort_size", k)):
        require(size % t == 0, "privacy_target", f"must divide {name}, {size}", t)
    blocks, chosen = n // t, k // t
    # C(b, 1) and C(b, b - 1) are b: more blocks have more cohorts, but for all of them
    is_small = blocks <= _MOST_ROWS and math.comb(blocks, chosen) <= _MOST_ROWS
    rule = f"must leave at most {_MOST_ROWS:,} blocks and cohorts to draw"
    require(is_small, "num_clients", rule, n)
    context.begin()
    lines = printed_in("multiround")["family"]
    printed = np.array([list(line) for line in lines]) == "1"
    ours = selection.enumerate_family(n, k, t)
    rows = [
        {"row": row + 1, "client": client + 1, "member": int(member)}
        for (row, client), member in np.ndenumerate(ours)
    ]
    checks = [
        compare(
            f"rows of B, R = C({blocks}, {chosen})",
            math.comb(blocks, chosen),
            len(ours),
            depends=(),
        )
    ]
    # a matrix of other clients has no printed entries
    if printed.shape == ours.shape:
        wrong = int((printed != ours).sum())
        checks.append(
            compare("entries of the printed 6 x 8 matrix that differ", 0, wrong)
        )
    words = [",".join(map(str, block)) for block in np.arange(1, n + 1).reshape(-1, t)]
    some = words if blocks <= 8 else [*words[:2], "...", words[-1]]
    listed = ", ".join(word if word == "..." else f"{{{word}}}" for word in some)
    caption = f"Every cohort is a union of {chosen} of the {blocks} blocks {listed}."
    return Found(tuple(checks), rows_to_frame(rows), caption)


_MOST_ROWS = 1000


def draw_family_sizes(ax: Axes, data: pd.DataFrame) -> None:
    """Draw printed and exact family sizes on a log axis.

    The columns are scheme, paper and ours.
    """
    places = np.arange(len(data))[::-1]
    for place, (_, row) in zip(places, data.iterrows(), strict=True):
        colour = scheme_colour(row["scheme"])
        ax.hlines(place, 1, float(row["ours"]), color=colour, lw=1.5, alpha=0.4)
        ax.plot(float(row["ours"]), place, "o", color=colour, ms=6)
        size = int(row["ours"])
        text = f"{size:,}" if size < 10**24 else f"{float(size):.2e}"
        text = text.replace(",", "\N{NARROW NO-BREAK SPACE}")
        beside(ax, text, (float(row["ours"]), place), (12, 0), va="center")
    printed = data["paper"].astype(float)
    ax.plot(printed, places, "o", mfc="none", mec=WARNING, ms=11)
    ax.set_yticks(places, [short(label) for label in data["scheme"]])
    most = max(10.0, float(data["ours"].max()))
    # room for the numbers
    ax.set(ylim=(-0.6, len(data) - 0.4), xlim=(1, most**1.5))
    ax.grid(axis="y", visible=False)


def draw_family(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a family of cohorts (columns row, client, member) as the matrix B."""
    matrix = data.pivot(index="row", columns="client", values="member").to_numpy()
    ax.imshow(matrix, cmap="Greys", vmin=0, vmax=1.4, aspect="equal")
    written = np.ndenumerate(matrix) if matrix.size <= 1000 else ()
    for (row, client), member in written:
        colour = "white" if member else "#555555"
        ax.text(
            client, row, str(member), ha="center", va="center", color=colour, fontsize=9
        )
    # at most some twenty numbers on an axis
    rows, clients = (np.arange(0, size, 1 + size // 24) for size in matrix.shape)
    ax.set_xticks(clients, [str(client + 1) for client in clients])
    ax.set_yticks(rows, [str(row + 1) for row in rows])
    ax.grid(visible=False)
