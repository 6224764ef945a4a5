"""Items of CCESA that are formulas: Figure 3, Table G.2, Remark 4 and Proposition 1.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation for Federated
Learning". Printed values as the text has them; errata as docs/errata.md lists them.
"""

from __future__ import annotations

import decimal
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import secagg
from mrsa_jax.reproduce._context import Context, rows_to_frame
from mrsa_jax.reproduce._items import Check, Item, compare, state

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SIZES",
    "TOTALS",
    "error_bounds",
    "share_thresholds",
    "step_rate",
    "threshold_probabilities",
    "unmasking",
]

SIZES = tuple(range(100, 1001, 100))
TOTALS = (0.0, 0.01, 0.05, 0.1)

# Table G.2: p* for each q_total over n = 100, ..., 1000, as printed.
_TABLE_G2 = {
    0.0: (0.636, 0.484, 0.411, 0.365, 0.333, 0.308, 0.289, 0.273, 0.260, 0.248),
    0.01: (0.649, 0.494, 0.419, 0.373, 0.340, 0.315, 0.295, 0.280, 0.265, 0.254),
    0.05: (0.707, 0.538, 0.457, 0.406, 0.370, 0.344, 0.321, 0.304, 0.289, 0.276),
    0.1: (0.795, 0.605, 0.513, 0.456, 0.416, 0.385, 0.361, 0.341, 0.325, 0.311),
}
# Its entries that differ from eq. (5) in the third digit; no log base or rounding explains all.
_MISPRINTS = {(0.01, 400), (0.01, 800), (0.05, 600), (0.05, 800), (0.1, 300)}

# Table 2: n, q_total, t and p of CCESA.
TABLE_2_PARAMETERS = (
    (100, 0.0, 43, 0.6362),
    (100, 0.1, 51, 0.7953),
    (300, 0.0, 83, 0.4109),
    (300, 0.1, 98, 0.5136),
    (500, 0.0, 112, 0.3327),
    (500, 0.1, 133, 0.4159),
)


def step_rate(total: float) -> float:
    """Return q of one step from q_total = 1 - (1 - q)^4."""
    return -math.expm1(0.25 * math.log1p(-total))


def error_bounds(context: Context) -> Item:
    """Return Figure 3: the bounds of Theorems 5 and 6 at p = p*."""
    steps = list(itertools.product(TOTALS, SIZES))
    context.progress.stage("Figure 3: bounds at p*", len(steps))
    rows = []
    for done, (total, n) in enumerate(steps):
        p, q = secagg.connection_probability(n, total), step_rate(total)
        t = secagg.share_threshold(n, p)
        bounds = {
            "P_r, t rounded up": secagg.reliability_bound(n, p, q, t),
            "P_r, real t": secagg.reliability_bound(n, p, q, secagg.share_threshold_real(n, p)),
            "P_r, exact union bound": secagg.exact_reliability_union_bound(n, p, q, t),
            "P_p": secagg.privacy_bound(n, p, q),
        }
        for name, log in bounds.items():
            rows.append(
                {
                    "q_total": total,
                    "n": n,
                    "p": p,
                    "t": t,
                    "bound": name,
                    "log10": log / math.log(10),
                }
            )
        context.progress.update(done + 1, len(steps))
    data = rows_to_frame(rows)
    return Item(
        "fig3",
        "Figure 3: bounds on the chances of failure at p = p*",
        (*_figure_3_checks(data), _simulated(context)),
        data,
        "Theorem 5 (unreliable) and Theorem 6 (not private) at the threshold connection "
        "probability and Remark 4's t. Dotted: t before it is rounded up, with which the paper's "
        "figure was most likely drawn.",
    )


def _figure_3_checks(data: pd.DataFrame) -> tuple[Check, ...]:
    worst = data.loc[data.groupby("bound")["log10"].idxmax()].set_index("bound")
    rounded = data[data["bound"] == "P_r, t rounded up"]
    above = rounded[rounded["log10"] >= -2]
    where = ", ".join(
        f"{10 ** row['log10']:.4f} at q_total = {row['q_total']:g}" for _, row in above.iterrows()
    )
    only = set(above["n"]) or {"none"}
    return (
        state(
            "P_e^(p) over all n and q_total",
            bool(worst["log10"]["P_p"] < -40),
            paper="below 1e-40",
            ours=f"at most 1e{worst['log10']['P_p']:.2f}",
            tolerance="every point",
        ),
        state(
            "P_e^(r) with Remark 4's t before rounding",
            bool(worst["log10"]["P_r, real t"] < -2),
            paper="below 1e-2",
            ours=f"at most {10 ** worst['log10']['P_r, real t']:.5f}",
            tolerance="every point",
        ),
        state(
            "P_e^(r) with Remark 4's t",
            above.empty,
            paper="below 1e-2",
            ours=f"above it at n = {', '.join(map(str, sorted(only)))}: {where}",
            tolerance="every point",
            otherwise="paper errs",
            note="Theorem 5 evaluated at the t that Remark 4 prescribes and Table 2 uses; the "
            "exact binomial tail, without Chernoff's step, is at most "
            f"{10 ** worst['log10']['P_r, exact union bound']:.4f}",
        ),
        _bounds_fall_with_p(),
    )


def _simulated(context: Context) -> Check:
    """Count unreliable rounds at n = 100, where the bound itself exceeds the claim."""
    trials = 4_000 if context.fast else 40_000
    found = []
    for total in TOTALS:
        p = secagg.connection_probability(100, total)
        t = secagg.share_threshold(100, p)
        rates = secagg.failure_rates(context.seed, 100, p, step_rate(total), t, trials)
        found.append(rates.unreliable)
    counts = ", ".join(str(rate.count) for rate in found)
    worst = max(rate.upper for rate in found)
    return state(
        "simulated P_e^(r) at n = 100 with Remark 4's t",
        worst < 0.01,
        paper="below 1e-2",
        ours=f"{counts} of {trials} rounds for the four q_total: at most {worst:.4f}",
        tolerance="upper ends of 95 % intervals",
        note="the claim about the chance itself is true; only its bound is larger",
    )


def _bounds_fall_with_p() -> Check:
    """Both bounds at p* and above, at fixed t, as the text says of Figure 3."""
    rises = []
    for n, total in ((100, 0.0), (100, 0.1), (400, 0.05)):
        start, q = secagg.connection_probability(n, total), step_rate(total)
        t = secagg.share_threshold(n, start)
        grid = np.linspace(start, 1.0, 9)[:-1]
        for log in (
            [secagg.reliability_bound(n, float(p), q, t) for p in grid],
            [secagg.privacy_bound(n, float(p), q) for p in grid],
        ):
            rises.append(bool((np.diff(log) > 1e-9).any()))
    return state(
        "both bounds as functions of p, from p* on",
        not any(rises),
        paper="decreasing",
        ours="never rise" if not any(rises) else "rise somewhere",
        tolerance="3 pairs of n and q_total, 8 values of p, t fixed",
    )


def threshold_probabilities(context: Context) -> Item:
    """Return Table G.2: p* for 40 pairs of n and q_total."""
    del context
    rows = [
        {
            "q_total": total,
            "n": n,
            "printed": _TABLE_G2[total][k],
            "ours": secagg.connection_probability(n, total),
            "50 digits": _in_decimals(n, total),
        }
        for total in TOTALS
        for k, n in enumerate(SIZES)
    ]
    data = rows_to_frame(rows)
    agree = (data["printed"] - data["ours"].round(3)).abs() < 1e-9
    gap = float((data["ours"] - data["50 digits"]).abs().max())
    checks = [
        compare("largest gap to eq. (5) in 50-digit decimals", 0.0, gap, tolerance=1e-12),
        compare(
            "entries that equal eq. (5) rounded to three digits, of 40",
            40,
            int(agree.sum()),
            truth=40 - len(_MISPRINTS),
            note="the others are listed below",
        ),
    ]
    for _, row in data[~agree].iterrows():
        known = (row["q_total"], row["n"]) in _MISPRINTS
        checks.append(
            compare(
                f"p* at q_total = {row['q_total']:g}, n = {int(row['n'])}",
                row["printed"],
                round(row["ours"], 5),
                tolerance=0.0005,
                truth=row["50 digits"] if known else None,
                note="no base of the logarithm and no way of rounding explains all five",
            )
        )
    return Item(
        "tableg2",
        "Table G.2: connection probabilities p*",
        tuple(checks),
        data,
        "Eq. (5), lines, and the printed values, crosses.",
    )


def _in_decimals(n: int, total: float) -> float:
    """Return p* of eq. (5) in 50-digit decimals, apart from the library's own arithmetic."""
    with decimal.localcontext() as settings:
        settings.prec = 50
        kept = 1 - decimal.Decimal(str(total))
        size = decimal.Decimal(n)
        left = size * (kept.ln() * decimal.Decimal("0.75")).exp() - (size * size.ln()).sqrt()
        fewest = left.to_integral_value(decimal.ROUND_CEILING)
        private = fewest.ln() / fewest
        reliable = (3 * ((size - 1) * (size - 1).ln()).sqrt() - 1) / ((size - 1) * (2 * kept - 1))
        return float(max(private, reliable))


def share_thresholds(context: Context) -> Item:
    """Return Remark 4's t and eq. (5)'s p as the paper uses them elsewhere."""
    del context
    rows, checks = [], []
    for n, total, t, p in TABLE_2_PARAMETERS:
        own = secagg.connection_probability(n, total)
        rows.append(_threshold_row("Table 2", n, total, p, t))
        name = f"Table 2, n = {n}, q_total = {total:g}"
        checks.append(compare(f"{name}: p*", p, round(own, 4)))
        checks.append(compare(f"{name}: t", t, secagg.share_threshold(n, own)))
    rows.append(_threshold_row("Figure 4", 1000, 0.1, 0.3106, None))
    rows.append(_threshold_row("Figure B.1", 40, math.nan, 0.7, 21))
    checks += [
        compare(
            "Figure 4, n = 1000, q_total = 0.1: p*",
            0.3106,
            round(secagg.connection_probability(1000, 0.1), 4),
            note="Remark 4 gives t = 198 there",
        ),
        compare(
            "Figure B.1, n = 40: t at p = 0.7",
            21,
            secagg.share_threshold(40, 0.7),
            note="also n/2 + 1, the complete graph's",
        ),
        state(
            "Figure B.1, n = 40, q_total = 0.1: p*",
            secagg.connection_probability(40, 0.1) <= 1.0,
            paper="a connection probability",
            ours=f"{secagg.connection_probability(40, 0.1):.4f}",
            tolerance="at most 1",
            otherwise="paper errs",
            note="no graph meets Remark 1 there; p* is at most 1 from n = 55 on. At q_total = 0 "
            f"it is {secagg.connection_probability(40, 0.0):.3f}",
        ),
    ]
    return Item(
        "remark4",
        "Remark 4: the share threshold t",
        tuple(checks),
        rows_to_frame(rows),
        "t of Remark 4 (bars), the mean number of share holders left, (n - 1) p (1 - q)^4 + 1, "
        "and half of all holders: t lies between them, so that shares suffice after dropouts and "
        "two disjoint sets of holders do not.",
    )


def _threshold_row(where: str, n: int, total: float, p: float, printed: int | None) -> dict:
    kept = 1.0 if math.isnan(total) else 1.0 - total
    return {
        "where": where,
        "n": n,
        "q_total": total,
        "p": p,
        "printed": printed,
        "t": secagg.share_threshold(n, p),
        "holders left": (n - 1) * p * kept + 1,
        "half of holders": ((n - 1) * p + 1) / 2,
    }


def unmasking(context: Context) -> Item:
    """Return Proposition 1: the chance of the unmasking attack at Remark 4's t."""
    del context
    rows = []
    for total, n in itertools.product(TOTALS, SIZES):
        p = secagg.connection_probability(n, total)
        t = secagg.share_threshold(n, p)
        rows.append(
            {
                "q_total": total,
                "n": n,
                "p": p,
                "t": t,
                "exact": math.exp(secagg.unmasking_bound(n, p, t)),
                "bound": math.exp(secagg.proposition1_bound(n)),
            }
        )
    data = rows_to_frame(rows)
    share = data["exact"] / data["bound"]
    largest = data.iloc[int(share.to_numpy().argmax())]
    complete = max(secagg.unmasking_bound(n, 1.0, n // 2 + 1) for n in SIZES)
    checks = (
        state(
            "chance that some degree allows the attack, n P(|Adj| >= 2t - 1)",
            bool((data["exact"] <= data["bound"]).all()),
            paper="at most n/(n-1)^2",
            ours=f"at most {float(share.max()):.3g} of it "
            f"(n = {int(largest['n'])}, q_total = {largest['q_total']:g})",
            tolerance="every point; exact binomial tail",
        ),
        state(
            "the same on the complete graph at t = n/2 + 1",
            complete == -math.inf,
            paper="impossible",
            ours="impossible" if complete == -math.inf else f"{math.exp(complete):.3g}",
            tolerance="exact",
        ),
    )
    return Item(
        "proposition1",
        "Proposition 1: the unmasking attack",
        checks,
        data,
        "Chance that some client has at least 2t - 1 neighbours, so that the attack "
        "of Appendix F could collect both of its secrets: exact tails at p* and Remark 4's t, and "
        "Hoeffding's bound n/(n-1)^2.",
    )
