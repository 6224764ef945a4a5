"""How often rounds fail over p: counted, with intervals, beside the theory's bounds.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation", Section 5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.plotting._study import _axes
from mrsa_jax.plotting._style import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_failure_rates"]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LOWEST = 1e-5


def plot_failure_rates(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the share of simulated rounds that fail over p, with intervals and bounds.

    Where no round failed, a triangle marks the upper end of the interval.

    Args:
        data: Columns q_total, p, count, rate, lower, upper, theorem 5, exact union.
        ax: Where to draw; a figure of its own when None.
    """
    with style():
        ax = _axes(ax)
        for i, (total, rows) in enumerate(data.groupby("q_total")):
            curve, colour = rows.sort_values("p"), _COLOURS[i % 6]
            failed, none = curve[curve["count"] > 0], curve[curve["count"] == 0]
            reach = np.stack([failed["rate"] - failed["lower"], failed["upper"] - failed["rate"]])
            ax.errorbar(
                failed["p"], failed["rate"], yerr=reach, color=colour, ls="none", capsize=2.5,
                marker=_MARKERS[i % 6], ms=5, lw=1.2,
                label=f"simulated, $q_{{total}}$ = {total:g}",
            )  # fmt: skip
            ax.plot(none["p"], none["upper"], marker=7, ls="none", ms=7, mfc="none", color=colour)
            ax.plot(curve["p"], curve["exact union"], color=colour, lw=1.4)
            ax.plot(curve["p"], curve["theorem 5"], color=colour, lw=1.4, ls="--")
        for look, label in (("-", "exact union bound"), ("--", "Theorem 5")):
            ax.plot([], [], color="#444444", lw=1.4, ls=look, label=label)
        if (data["count"] == 0).any():
            label = "none failed: end of the interval"
            ax.plot([], [], marker=7, ls="none", ms=7, mfc="none", color="#444444", label=label)
        ax.set_yscale("log")
        ax.set(xlabel="connection probability p", ylabel="share of rounds that fail (log axis)",
               ylim=(_LOWEST, 2))  # fmt: skip
        ax.legend(loc="best")
    return ax
