"""Items of CCESA on its two thresholds: Table G.2's p* and Remark 4's t.

Printed values as the text has them; errata as docs/errata.md lists them.
"""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import secagg
from mrsa_papers.ccesa._theory import (
    COLOURS,
    SIZES,
    TABLE_2_PARAMETERS,
    TOTALS,
    check_thresholds,
)
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import in_turn
from mrsa_papers.harness._rows import printed_in
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

# Table G.2: p* for each q_total over n = 100, ..., 1000, and its misprinted entries.
_TABLE_G2 = printed_in("ccesa")["thresholds"]
_MISPRINTS = set(map(tuple, printed_in("ccesa")["misprints"]))


_PRINTED = "#CC79A7"


def threshold_probabilities(context: Context, settings: Values) -> Found:
    """Return Table G.2: p* for pairs of n and q_total."""
    for total in settings.total_rates:
        rule = "must be less than 0.5, where eq. (5) ends"
        require(total < 0.5, "total_rates", rule, total)
    context.begin()
    printed = {
        (total, n): value
        for total in TOTALS
        for n, value in zip(SIZES, _TABLE_G2[str(total)], strict=True)
    }
    data = rows_to_frame(
        {
            "q_total": total,
            "n": n,
            # a pair that is not in the table has no printed value
            "printed": printed.get((total, n), math.nan),
            "ours": secagg.connection_probability(n, total),
            "50 digits": _in_decimals(n, total),
        }
        for total in settings.total_rates
        for n in settings.num_sizes
    )
    in_table = data[data["printed"].notna()]
    agree = (in_table["printed"] - in_table["ours"].round(3)).abs() < 1e-9
    gap = float((data["ours"] - data["50 digits"]).abs().max())
    checks = [
        compare(
            "largest gap to eq. (5) in 50-digit decimals",
            0.0,
            gap,
            tolerance=1e-12,
            depends=(),
        ),
        compare(
            "entries that equal eq. (5) rounded to three digits, of 40",
            40,
            int(agree.sum()),
            truth=40 - len(_MISPRINTS),
            note="the others are listed below",
        ),
    ]
    for _, row in in_table[~agree].iterrows():
        is_misprinted = (row["q_total"], row["n"]) in _MISPRINTS
        checks.append(
            compare(
                f"p* at q_total = {row['q_total']:g}, n = {int(row['n'])}",
                row["printed"],
                round(row["ours"], 5),
                tolerance=0.0005,
                truth=row["50 digits"] if is_misprinted else None,
                note=(
                    "no base of the logarithm and no way of rounding explains all five"
                ),
                depends=(),  # each entry is of its own n and q_total
            )
        )
    return Found(
        tuple(checks), data, "Eq. (5), lines, and the printed values, crosses."
    )


def _in_decimals(n: int, total: float) -> float:
    """Compute p* of eq. (5) in 50-digit decimals, without the library's arithmetic."""
    with decimal.localcontext() as settings:
        settings.prec = 50
        stays = 1 - decimal.Decimal(str(total))
        size = decimal.Decimal(n)
        log_term = (
            size * (stays.ln() * decimal.Decimal("0.75")).exp()
            - (size * size.ln()).sqrt()
        )
        # whole clients
        fewest = log_term.to_integral_value(decimal.ROUND_CEILING)
        private = fewest.ln() / fewest
        reliable = (3 * ((size - 1) * (size - 1).ln()).sqrt() - 1) / (
            (size - 1) * (2 * stays - 1)
        )
        return float(max(private, reliable))


def share_thresholds(context: Context, settings: Values) -> Found:
    """Return Remark 4's t and eq. (5)'s p as the paper uses them elsewhere."""
    check_thresholds(settings.num_sizes, settings.total_rates)
    context.begin()
    table = {(n, total): (t, p) for n, total, t, p in TABLE_2_PARAMETERS}
    rows, checks = [], []
    for n, total in itertools.product(settings.num_sizes, settings.total_rates):
        exact, where = secagg.connection_probability(n, total), "at p*"
        printed, p = None, exact
        if (n, total) in table:
            (printed, p), where = table[n, total], "Table 2"
            name = f"Table 2, n = {n}, q_total = {total:g}"
            t = secagg.share_threshold(n, exact)
            # each row is of its own n and q_total
            checks.append(compare(f"{name}: p*", p, round(exact, 4), depends=()))
            checks.append(compare(f"{name}: t", printed, t, depends=()))
        rows.append(_threshold_row(where, n, total, p, printed))
    rows.append(_threshold_row("Figure 4", 1000, 0.1, 0.3106, None))
    rows.append(_threshold_row("Figure B.1", 40, math.nan, 0.7, 21))
    data = rows_to_frame(rows)
    checks += [*_of_figures(), _between(data)]
    return Found(
        tuple(checks),
        data,
        "t of Remark 4 (bars), the mean number of share holders left, (n - 1) p (1 - "
        "q)^4 + 1, and half of all holders: t lies between them, so that shares "
        "suffice after dropouts and two disjoint sets of holders do not.",
    )


def _of_figures() -> Iterator[Check]:
    """Yield what Figures 4 and B.1 use, whatever the table's sizes."""
    yield compare(
        "Figure 4, n = 1000, q_total = 0.1: p*",
        0.3106,
        round(secagg.connection_probability(1000, 0.1), 4),
        note="Remark 4 gives t = 198 there",
        depends=(),
    )
    yield compare(
        "Figure B.1, n = 40: t at p = 0.7",
        21,
        secagg.share_threshold(40, 0.7),
        note="also n/2 + 1, the complete graph's",
        depends=(),
    )
    yield state(
        "Figure B.1, n = 40, q_total = 0.1: p*",
        secagg.connection_probability(40, 0.1) <= 1.0,
        depends=(),
        paper="a connection probability",
        ours=f"{secagg.connection_probability(40, 0.1):.4f}",
        tolerance="at most 1",
        otherwise="not stated",
        note=(
            "the figure's two q_total are lost; no graph meets Remark 1 at 0.1, "
            "where p* is at most 1 from n = 55 on. At q_total = 0 it is "
            f"{secagg.connection_probability(40, 0.0):.3f}"
        ),
    )


def _between(data: pd.DataFrame) -> Check:
    """Check that t is over half of all holders, and that as many are left."""
    chosen = data[data["where"] != "Figure B.1"]
    inside = (chosen["t"] > chosen["half of holders"]) & (
        chosen["t"] <= chosen["holders left"]
    )
    return state(
        "t between half of all holders and those left on average",
        bool(inside.all()),
        ours=f"at {int(inside.sum())} of {len(chosen)} settings",
        tolerance="every n and q_total at p*",
    )


def _threshold_row(
    where: str, n: int, total: float, p: float, printed: int | None
) -> dict:
    stays = 1.0 if math.isnan(total) else 1.0 - total
    return {
        "where": where,
        "n": n,
        "q_total": total,
        "p": p,
        "printed": printed,
        "t": secagg.share_threshold(n, p),
        "holders left": (n - 1) * p * stays + 1,
        "half of holders": ((n - 1) * p + 1) / 2,
    }


def draw_probabilities(ax: Axes, data: pd.DataFrame) -> None:
    """Draw p* over n, computed and printed (columns q_total, n, ours, printed)."""
    wrong = (data["printed"] - data["ours"].round(3)).abs() > 1e-9
    for _, curve, look in in_turn(
        data, "q_total", "$q_{{total}}$ = {:g}", color=COLOURS
    ):
        ax.plot(curve["n"], curve["ours"], lw=1.4, **look)
    ax.plot(
        data["n"],
        data["printed"],
        "x",
        color="#444444",
        ms=6,
        label="printed in Table G.2",
    )
    ringed = data[wrong]
    ax.plot(
        ringed["n"],
        ringed["printed"],
        "o",
        mfc="none",
        mec=_PRINTED,
        ms=12,
        label="third digit differs",
    )


def draw_thresholds(ax: Axes, data: pd.DataFrame) -> None:
    """Draw t between the survivors and half of all holders, as shares of their mean."""
    places = np.arange(len(data))[::-1]
    holders = 2 * data["half of holders"]
    ax.barh(
        places, data["t"] / holders, height=0.55, color="#56B4E9", label="t of Remark 4"
    )
    share_left = data["holders left"] / holders
    ax.plot(
        share_left,
        places,
        "D",
        color="#009E73",
        ms=7,
        label="holders left after dropouts, mean",
    )
    ax.axvline(
        0.5, color=_PRINTED, lw=1.6, label="half: below it a liar learns both secrets"
    )
    for place, t in zip(places, data["t"], strict=True):
        ax.text(0.02, place, f"t = {t}", va="center", fontsize=8.5)
    ax.set_yticks(places, [_setting(row) for _, row in data.iterrows()])
    ax.grid(axis="y", visible=False)


def _setting(row: Any) -> str:
    total = "" if np.isnan(row["q_total"]) else f", $q_{{total}}$ = {row['q_total']:g}"
    return f"{row['where']}: n = {row['n']}{total}"
