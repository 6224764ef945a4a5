"""Families of lines: what weak T says, how well clients are hidden, and how rare sums are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax.plotting._names import grow, plain
from mrsa_jax.plotting._style import SHADES, WARNING, caption, drawing, whole_numbers
from mrsa_jax.plotting.chart import Chart, Line, draw
from mrsa_watch._base.errors import check_known, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_DARK = SHADES[2]


def plot_designs(judgements: Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """Plot what families of lines promise for ever against the mean size of their sums.

    A row a family, the fullest sums on top: how many clients weak T counts (ring), among how many
    the worst client is hidden (dot), and how many always move together (bar, strong T). The line
    from dot to ring is what T overstates. On the right is the mean number of clients in a
    sum, with its interval where it was simulated.

    Args:
        judgements: What `design.judge` returns, or the options of `study.advise`, by name.
        ax: Where to draw; a figure of its own when None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If there is none.
    """
    require(len(judgements) > 0, "judgements", "must hold a family")
    order = sorted(judgements.items(), key=lambda item: item[1].cardinality)
    with drawing(ax) as ax:
        for place, (_, own) in enumerate(order):
            first = place == 0
            ax.plot([own.hidden_worst, own.weak_lower], [place, place], color=WARNING, lw=2,
                    label="what weak T overstates" if first else None)  # fmt: skip
            for value, marker, size, fill, label in (
                (own.weak_lower, "o", 11, "white", "weak T"),  # a ring around the others
                (own.hidden_worst, "o", 6, _DARK, "hidden among (worst client)"),
                (own.strong_privacy, "|", 15, _DARK, "strong T"),
            ):
                ax.plot(value, place, marker, ms=size, mfc=fill, mec=_DARK, mew=1.6,
                        label=label if first else None)  # fmt: skip
            low, high = own.cardinality_interval
            about = f" ({low:.4g} to {high:.4g})" if low < high else ""
            ax.annotate(
                f"{own.cardinality:.3g}{about}", (1, place), xycoords=("axes fraction", "data"),
                xytext=(6, 0), textcoords="offset points", va="center", fontsize=8,
            )  # fmt: skip
        most = max(own.weak_lower for own in judgements.values())
        ax.annotate("clients in\na mean sum", (1, 1), xycoords="axes fraction", xytext=(6, 2),
                    textcoords="offset points", va="bottom", fontsize=8)  # fmt: skip
        ax.set_yticks(range(len(order)), [plain(name) for name, _ in order])
        ax.set(xlabel="clients", xlim=(0, 1.08 * most + 0.3), ylim=(-0.6, len(order) - 0.4))
        ax.grid(visible=False, axis="y")
        whole_numbers(ax.xaxis)
        caption(ax, "What a family of sums promises for ever.")
        _legend_below(ax)
    return ax


def _legend_below(ax: Axes) -> None:
    """Put the legend under the axes, where rows of families leave no room beside them."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    down = ax.transAxes + ScaledTranslation(0, -31 / 72, figure.dpi_scale_trans)
    columns = 4 if figure.get_figwidth() >= 5 else 1
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=down, borderaxespad=0,
              ncols=columns, columnspacing=1.2)  # fmt: skip
    grow(figure, 4 // columns - 1)


# ---- Figure of how much privacy survives dropouts inside rounds, by policy for split blocks.

PolicyQuantity = Literal["weak", "strong", "rounds_kept", "cardinality"]

_POLICIES = {
    "ignore": "ignore: sum without the lost",
    "abort": "abort: no sum at all",
    "drop_block": "drop block: sum over whole blocks",
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
    check_known(quantity, "quantity", _LABELS, "a known quantity")
    field = "weak_lower" if quantity == "weak" else quantity
    values = np.asarray(getattr(results, field)) * (100 if quantity == "rounds_kept" else 1)
    rates = 100 * np.asarray(results.step_dropout_rates)
    lines: list[Line] = []
    for i, policy in enumerate(results.policies):
        low, mean, high = _spread(values[i])
        lines.append(Line(_POLICIES[policy], rates, mean, "", low, high))
        if quantity == "weak" and (results.weak_upper[i] != values[i]).any():
            upper = _spread(results.weak_upper[i])[1]
            lines.append(Line(_POLICIES[policy], rates, upper, "at most", weight="thin"))
    name, words = _LABELS[quantity]
    chart = Chart(
        words, f"{words}. Mean over trials; band: 5 to 95 %.", lines,
        "chance to leave at each step, q (%)", name, are_schemes=False, marks_points=True,
        whole="y" * (quantity in ("weak", "strong")),
    )  # fmt: skip
    return draw(chart, ax=ax)


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
