"""Items of CCESA that are formulas: Figure 3, Table G.2, Remark 4 and Proposition 1.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation for
Federated Learning". Printed values as the text has them; errata as docs/errata.md lists
them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import secagg
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import MARKERS, beside, in_turn, legend
from mrsa_papers.harness._rows import printed_in
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

SIZES = tuple(range(100, 1001, 100))
TOTALS = (0.0, 0.01, 0.05, 0.1)

TABLE_2_PARAMETERS = tuple(map(tuple, printed_in("ccesa")["parameters"]))
"""n, q_total, t and p of CCESA in Table 2."""


# One colour for each q_total, in order.
COLOURS = ("#000000", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#0072B2")
_DASHES = {
    "P_r, t rounded up": "-",
    "P_r, real t": ":",
    "P_r, exact union bound": "--",
    "P_p": "-",
}


def step_rate(total: float) -> float:
    """Return q of one step from q_total = 1 - (1 - q)^4."""
    # by logarithms, since 1 - (1 - total)^(1/4) loses the digits of a small total
    return -math.expm1(0.25 * math.log1p(-total))


def thresholds_of(n: int, total: float) -> tuple[float, float, int]:
    """Return p*, q of one step, and Remark 4's t at p*."""
    p = secagg.connection_probability(n, total)
    return p, step_rate(total), secagg.share_threshold(n, p)


def check_thresholds(
    sizes: Sequence[int], totals: Sequence[float], name: str = "total_rates"
) -> None:
    """Raise unless p* is a probability for each n and q_total of an item.

    `name` is that of the setting with q_total.
    """
    for total, n in itertools.product(totals, sizes):
        rule = "must leave a p* of at most 1 at each of `num_sizes`"
        require(
            total < 0.5 and secagg.connection_probability(n, total) <= 1.0,
            name,
            rule,
            f"{total:g} at n = {n}",
        )


def real_threshold(n: int, p: float) -> float:
    """Return Remark 4's t before it is rounded up."""
    # Remark 4: half of the mean degree and a deviation, plus one
    return ((n - 1) * p + math.sqrt((n - 1) * math.log(n - 1)) + 1.0) / 2.0


def bandwidth_share(n: int, p: float) -> float:
    """Return CCESA's additional bandwidth over SecAgg's, by Appendix D.1's count."""
    return secagg.costs.printed_bits((n - 1) * p) / secagg.costs.printed_bits(n - 1)


def error_bounds(context: Context, settings: Values) -> Found:
    """Return Figure 3: the bounds of Theorems 5 and 6 at p = p*."""
    check_thresholds(settings.num_sizes, settings.total_rates)
    context.begin()
    rows = []
    # what the paper states of its own n and q_total
    limits = {} if settings.missed else {"P_r, t rounded up": -2, "P_p": -40}
    jobs = itertools.product(settings.total_rates, settings.num_sizes)
    for total, n in context.steps("Figure 3: bounds at p*", jobs):
        p, q, t = thresholds_of(n, total)
        words = {"q_total": total, "n": n, "p": p, "t": t}
        bounds = {
            "P_r, t rounded up": secagg.reliability_bound(n, p, q, t),
            "P_r, real t": secagg.reliability_bound(n, p, q, real_threshold(n, p)),
            "P_r, exact union bound": secagg.failures.exact_reliability_union_bound(
                n, p, q, t
            ),
            "P_p": secagg.privacy_bound(n, p, q),
        }
        rows += [
            words
            | {
                "bound": b,
                "log10": log / math.log(10),
                "limit": limits.get(b, math.nan),
            }
            for b, log in bounds.items()
        ]
    data = rows_to_frame(rows)
    return Found(
        (*_figure_3_checks(data), _simulated(context, settings)),
        data,
        "Theorem 5 (unreliable) and Theorem 6 (not private) at the threshold "
        "connection probability and Remark 4's t. Dotted: t before it is rounded up, "
        "with which the paper's figure was most likely drawn.",
    )


def _figure_3_checks(data: pd.DataFrame) -> Iterator[Check]:
    worst = data.loc[data.groupby("bound")["log10"].idxmax()].set_index("bound")
    rounded = data[data["bound"] == "P_r, t rounded up"]
    # the points at which the claim fails as printed
    above = rounded[rounded["log10"] >= -2]
    where = ", ".join(
        f"{10 ** row['log10']:.4f} at q_total = {row['q_total']:g}"
        for _, row in above.iterrows()
    )
    only = set(above["n"]) or {"none"}
    yield state(
        "P_e^(p) over all n and q_total",
        bool(worst["log10"]["P_p"] < -40),
        paper="below 1e-40",
        ours=f"at most 1e{worst['log10']['P_p']:.2f}",
        tolerance="every point",
    )
    yield state(
        "P_e^(r) with Remark 4's t before rounding",
        bool(worst["log10"]["P_r, real t"] < -2),
        paper="below 1e-2",
        ours=f"at most {10 ** worst['log10']['P_r, real t']:.5f}",
        tolerance="every point",
    )
    yield state(
        "P_e^(r) with Remark 4's t",
        above.empty,
        paper="below 1e-2",
        ours=f"above it at n = {', '.join(map(str, sorted(only)))}: {where}",
        tolerance="every point",
        otherwise="paper errs",
        note=(
            "Theorem 5 evaluated at the t that Remark 4 prescribes and Table 2 uses; "
            "the exact binomial tail, without Chernoff's step, is at most "
            f"{10 ** worst['log10']['P_r, exact union bound']:.4f}"
        ),
    )
    yield _bounds_fall_with_p()


def _simulated(context: Context, settings: Values) -> Check:
    """Count unreliable rounds at the least n, where the bound may exceed the claim."""
    trials, least = settings.num_trials, min(settings.num_sizes)
    rows = []
    for total in settings.total_rates:
        rates = secagg.failure_rates(
            context.seed, least, *thresholds_of(least, total), trials
        )
        rows.append(rates.unreliable)
    counts = ", ".join(str(rate.count) for rate in rows)
    worst = max(rate.upper for rate in rows)
    return state(
        f"simulated P_e^(r) at n = {least} with Remark 4's t",
        worst < 0.01,
        paper="below 1e-2",
        ours=f"{counts} of {trials} rounds by q_total: at most {worst:.4f}",
        tolerance="upper ends of 95 % intervals",
        note="the claim about the chance itself is true; only its bound is larger",
    )


def _bounds_fall_with_p() -> Check:
    """Both bounds at p* and above, at fixed t, as the text says of Figure 3."""
    rises = []
    for n, total in ((100, 0.0), (100, 0.1), (400, 0.05)):
        start, q, t = thresholds_of(n, total)
        # p = 1 is left out: there the chances are 0 and their logarithms infinite
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


def unmasking(context: Context, settings: Values) -> Found:
    """Return Proposition 1: the chance of the unmasking attack at Remark 4's t."""
    check_thresholds(settings.num_sizes, settings.total_rates)
    context.begin()
    rows = []
    for total, n in itertools.product(settings.total_rates, settings.num_sizes):
        p, _, t = thresholds_of(n, total)
        exact = secagg.failures.unmasking_bound(n, p, t)
        # Hoeffding: n / (n - 1)^2
        bound = min(0.0, math.log(n) - 2.0 * math.log(n - 1))
        chances = {"exact": math.exp(exact), "bound": math.exp(bound)}
        rows.append({"q_total": total, "n": n, "p": p, "t": t} | chances)
    data = rows_to_frame(rows)
    share = data["exact"] / data["bound"]
    largest = data.iloc[int(share.to_numpy().argmax())]
    # the attack needs 2t - 1 neighbours, of which the complete graph gives n - 1 < 2t -
    # 1
    complete = max(
        secagg.failures.unmasking_bound(n, 1.0, n // 2 + 1) for n in settings.num_sizes
    )
    checks = (
        state(
            "chance that some degree allows the attack, n P(|Adj| >= 2t - 1)",
            bool((data["exact"] <= data["bound"]).all()),
            depends=(),
            paper="at most n/(n-1)^2",
            ours=f"at most {float(share.max()):.3g} of it "
            f"(n = {int(largest['n'])}, q_total = {largest['q_total']:g})",
            tolerance="every point; exact binomial tail",
        ),
        state(
            "the same on the complete graph at t = n/2 + 1",
            complete == -math.inf,
            depends=(),
            paper="impossible",
            ours="impossible" if complete == -math.inf else f"{math.exp(complete):.3g}",
        ),
    )
    return Found(
        checks,
        data,
        "Chance that some client has at least 2t - 1 neighbours, so that the attack of "
        "Appendix F could collect both of its secrets: exact tails at p* and Remark "
        "4's t, and Hoeffding's bound n/(n-1)^2.",
    )


def draw_bounds(figure: Figure, data: pd.DataFrame) -> None:
    """Draw Theorem 5 with t rounded up and real, and Theorem 6 beside it."""
    figure.set_size_inches(12.4, 4.2)
    first, right = figure.subplots(1, 2)
    reliability = ("P_r, t rounded up", "P_r, real t", "P_r, exact union bound")
    _draw_bound(first, data, reliability)
    _draw_bound(right, data, ("P_p",))
    first.set_title("Unreliable: Theorem 5 at p*")
    right.set_title("Not private: Theorem 6 at p*")
    first.get_legend().remove()
    handles, labels = first.get_legend_handles_labels()
    right.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0
    )


def _draw_bound(ax: Axes, data: pd.DataFrame, bounds: Sequence[str]) -> None:
    """Draw bounds on a chance of failure over n.

    The columns are q_total, n, bound, log10 and limit.
    """
    for _, curves, look in in_turn(
        data, "q_total", "$q_{{total}}$ = {:g}", color=COLOURS, marker=MARKERS
    ):
        rest = {"color": look["color"], "lw": 1.2}  # of all but the first bound
        for name in bounds:
            curve = curves[curves["bound"] == name].sort_values("n")
            look_of_line = look | {"lw": 1.8} if name == bounds[0] else rest
            ax.plot(
                curve["n"],
                curve["log10"],
                ls=_DASHES.get(name, "--"),
                ms=5,
                **look_of_line,
            )
    for name in bounds[1:]:
        ax.plot(
            [], [], color="#444444", lw=1.2, ls=_DASHES.get(name, "--"), label=name[5:]
        )
    for limit in data[data["bound"] == bounds[0]]["limit"].dropna().unique():
        ax.axhline(limit, color="#777777", lw=0.9, ls=(0, (1, 2)))
        words = f"the paper's limit, $10^{{{limit:g}}}$"
        place = {"ha": "right", "fontsize": 8, "color": "#555555"}
        beside(ax, words, (data["n"].max(), limit), (0, 3), **place)
    ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$")
    ax.set(xlabel="clients n", ylabel="bound on the chance (log axis)")
    legend(ax)


def draw_unmasking(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the chance of the unmasking attack over n.

    The columns are q_total, n, exact and bound.
    """
    bound = data.drop_duplicates("n")
    ax.plot(
        bound["n"],
        bound["bound"],
        color="#777777",
        ls="--",
        label="Proposition 1, n/(n-1)²",
    )
    for _, curve, look in in_turn(
        data, "q_total", "exact, $q_{{total}}$ = {:g}", color=COLOURS, marker=MARKERS
    ):
        # no degree is high enough: not shown
        seen = curve["exact"].where(curve["exact"] > 0)
        ax.plot(curve["n"], seen, ms=5, lw=1.2, **look)
