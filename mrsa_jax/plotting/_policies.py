"""Figure of how much privacy survives dropouts inside rounds, by policy for split blocks."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax._errors import nearest, require
from mrsa_jax.plotting._names import name_curves
from mrsa_jax.plotting._style import caption, drawing, ends, whole_numbers
from mrsa_jax.plotting._together import interleave, staggered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

PolicyQuantity = Literal["weak", "strong", "rounds_kept", "cardinality"]

_LOOKS = {
    "ignore": ("#D55E00", "-", "o", "ignore: sum without the lost"),
    "abort": ("#000000", "--", "s", "abort: no sum at all"),
    "drop_block": ("#0072B2", "-.", "^", "drop block: sum over whole blocks"),
}
_LABELS = {
    "weak": ("weak T (clients)", "Fewest clients in any combination of sums"),
    "strong": ("strong T (clients)", "Fewest clients whose updates move only together"),
    "rounds_kept": ("rounds with a sum (%)", "Rounds that were not lost"),
    "cardinality": ("cardinality C (clients)", "Mean number of clients in a sum"),
}


def plot_policies(
    results: Any, *, quantity: PolicyQuantity = "strong", ax: Axes | None = None
) -> Axes:
    """Plot privacy, or what it costs, over step dropout rates, a curve for each policy.

    Lines are means over trials, bands their 5 % to 95 % quantiles; where nothing was learnt in a
    trial, it is left out. For weak privacy the line is the proven lower bound, and a thin line
    the upper bound where it differs.

    Args:
        results: What `privacy.policy_privacy` returns.
        quantity: `"strong"` or `"weak"` privacy, `"rounds_kept"` or `"cardinality"`.
        ax: Where to draw; a figure of its own if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If the quantity is unknown.
    """
    known = typing.get_args(PolicyQuantity)
    rule = f"must be a known quantity: {nearest(str(quantity), known)}"
    require(quantity in known, "quantity", rule, quantity)
    field = "weak_lower" if quantity == "weak" else quantity
    values = np.asarray(getattr(results, field)) * (100 if quantity == "rounds_kept" else 1)
    rates = 100 * np.asarray(results.step_dropout_rates)
    with drawing(ax) as ax:
        lines: list[Line2D] = []
        for i, policy in enumerate(results.policies):
            colour, line, marker, label = _LOOKS[policy]
            low, mean, high = _spread(values[i])
            ax.fill_between(rates, low, high, color=colour, alpha=0.13, lw=0)
            lines += ax.plot(rates, mean, color=colour, ls=line, marker=marker, ms=4.5,
                             label=label, clip_on=False)  # fmt: skip
            if quantity == "weak" and (results.weak_upper[i] != values[i]).any():
                ax.plot(rates, _spread(results.weak_upper[i])[1], color=colour, lw=0.8)
        name, words = _LABELS[quantity]
        ax.set(xlabel="chance to leave at each step, q (%)", ylabel=name)
        ends(ax)
        interleave(ax, lines)
        staggered(ax, lines)
        caption(ax, f"{words}. Mean over trials; band: 5 to 95 %.")
        if quantity in ("weak", "strong"):
            whole_numbers(ax.yaxis)
        name_curves(ax, gap=6.0)
    return ax


def _spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 5 % quantile, mean and 95 % quantile over trials, without those that are -1."""
    shown = np.where(values < 0, np.nan, values.astype(np.float64))
    rows = [row[np.isfinite(row)] for row in shown]
    empty = (np.nan, np.nan, np.nan)
    spread = [
        (np.quantile(row, 0.05), row.mean(), np.quantile(row, 0.95)) if row.size else empty
        for row in rows
    ]
    low, mean, high = (np.array(column) for column in zip(*spread, strict=True))
    return low, mean, high
