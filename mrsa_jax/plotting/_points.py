"""Points of a sweep, or schemes of a study: a quantity over an axis, and strong T against C.

Each takes a data frame with a row a point, as `results.mrsa.table()` gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax._checks import check_known
from mrsa_jax._errors import ConfigurationError, nearest, require
from mrsa_jax.plotting._colours import is_scheme, scheme_colour
from mrsa_jax.plotting._names import legend, name_curves, plain, short
from mrsa_jax.plotting._style import (
    PALETTE,
    caption,
    drawing,
    ends,
    nobody,
    scheme_line,
    slant,
    whole_numbers,
)
from mrsa_jax.plotting._together import interleave, staggered

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_LABELS = {
    "strong_privacy": "strong T (clients)",
    "hidden_among_worst": "worst hidden among (clients)",
    "hidden_among_median": "median hidden among (clients)",
    "aggregation_cardinality": "cardinality C (clients)",
    "exposed_clients": "exposed clients",
    "fairness_gap": "fairness gap F",
    "accuracy": "test accuracy (%)",
    "epsilon_worst": "worst client's epsilon",
    "epsilon_mean": "clients' mean epsilon",
    "noise_multiplier": "noise multiplier",
    "clip_norm": "norm to which updates are clipped",
    "skipped_rounds": "rounds without a sum",
    "first_exposed_round": "first round that exposes a client",
    "rank": "rank of the sums",
    "loss": "test loss",
    "seconds": "time (s)",
    "privacy_target": "privacy target T (clients)",
    "dropout_rates": "dropout rate",
}
_SYMBOLS = {"privacy_target": "T", "strong_privacy": "T", "noise_multiplier": "z",
            "num_clients": "N", "cohort_size": "K"}  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_COUNTS = {"strong_privacy", "exposed_clients", "skipped_rounds", "first_exposed_round", "rank"}
_MOST_NAMED = 14  # points that are named in the picture
_MOST_CURVES = 24
_MOST_MARKED = 40  # points of a curve that has marks
_MOST_TICKS = 6


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " "))


def _known(table: pd.DataFrame, argument: str, name: str | None) -> None:
    if name is not None and name not in table:
        hint = nearest(name, [str(column) for column in table.columns])
        raise ConfigurationError(f"`{argument}` must be a column; got {name!r}; {hint}")


def plot_points(
    table: pd.DataFrame,
    variable: str,
    *,
    x: str,
    hue: str | None = None,
    log: Literal["", "x", "y", "xy"] = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot a quantity over an axis, a curve for each value of another.

    Where several points share both (other axes, seeds) the curve is their mean and the band spans
    their extremes. Values of `x` that are no numbers stand side by side, and no line joins them.
    Curves of many points have no marks.

    Args:
        table: A row a point.
        variable: Column that is shown; accuracy is shown in percent.
        x: Column along the axis.
        hue: Column that tells curves apart; one curve when None. Values of a column `curve` are
            names that stand for themselves.
        log: Axes with a logarithmic scale.
        ax: Where to draw; a figure of its own when None.

    Raises:
        ConfigurationError: If a name is no column, there is nothing to show, or `log` names other
            axes, or one of values that are no numbers.
    """
    check_known(log, "log", ("", "x", "y", "xy"), "axes")
    for argument, name in (("variable", variable), ("x", x), ("hue", hue)):
        _known(table, argument, name)
    scale = 100 if variable == "accuracy" else 1
    shown = table[table[variable].notna()]
    require(len(shown) > 0, "variable", "must have values", variable)
    groups = [("", shown)] if hue is None else list(shown.groupby(hue, sort=False))
    require(len(groups) <= _MOST_CURVES, "hue", f"must have at most {_MOST_CURVES} values",
            len(groups))  # fmt: skip
    is_number = shown[x].dtype.kind in "iuf"
    require(is_number or "x" not in log, "log", "must not name an axis without numbers", log)
    names = [str(value) for value in dict.fromkeys(shown[x])]
    lines: list[Line2D] = []
    with drawing(ax) as ax:
        for index, (value, rows) in enumerate(groups):
            key = rows[x] if is_number else rows[x].astype(str).map(names.index)
            values = (scale * rows[variable].astype(float)).groupby(key.to_numpy())
            mean = values.mean()
            draw = _line(hue, value, index)
            draw |= {} if is_number else {"ls": ""}
            draw |= {"clip_on": False}
            if len(mean) <= _MOST_MARKED:
                draw |= {"marker": _MARKERS[index % len(_MARKERS)], "ms": 4.5}
            lines += ax.plot(mean.index, mean, **draw)
            low, high, colour = values.min(), values.max(), draw["color"]
            if (low < high).any() and is_number and len(mean) > 1:
                ax.fill_between(mean.index, low, high, color=colour, alpha=0.13, lw=0)
            elif (low < high).any():
                ax.vlines(mean.index, low, high, color=colour, alpha=0.4, lw=1.4)
        _scales(ax, shown, x, variable, names if not is_number else [], log)
        if is_number and all(
            np.array_equal(one.get_xdata(), lines[0].get_xdata()) for one in lines
        ):
            interleave(ax, lines)
        staggered(ax, lines)
        if hue is not None and is_number:
            name_curves(ax, gap=6.0)
        elif hue is not None:
            legend(ax)
    return ax


def _scales(
    ax: Axes, shown: pd.DataFrame, x: str, variable: str, names: list[str], log: str
) -> None:
    """Set limits, ticks and labels; of values that are no numbers `names` stand at the ticks."""
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
        ax.margins(x=0)
    else:
        ends(ax, bottom=0.0 if (shown[variable] >= 0).all() else None)
    if names:
        ax.set_xticks(range(len(names)), [short(name) for name in names])
        slant(ax, len(names) > 3)
        ax.set_xlim(-0.5, len(names) - 0.5)
    elif shown[x].nunique() <= _MOST_TICKS:
        ticks = sorted(set(shown[x]))
        ax.set_xticks(ticks, [f"{tick:.4g}" for tick in ticks])
        ax.xaxis.minorticks_off()
    elif shown[x].dtype.kind in "iu" and "x" not in log:
        whole_numbers(ax.xaxis)
    if variable in _COUNTS and "y" not in log:
        whole_numbers(ax.yaxis)
    if variable == "exposed_clients":
        nobody(ax, shown[variable], "nobody is exposed")
    ax.set(xlabel=_label(x), ylabel=_label(variable))


def _line(hue: str | None, value: Any, index: int) -> dict[str, Any]:
    """Return how a curve is drawn: schemes as in every figure, other values in order."""
    if hue is None:
        return {"color": PALETTE[0]}
    if hue in ("scheme", "schemes") or is_scheme(str(value)):
        return {"color": scheme_colour(str(value)), "ls": scheme_line(str(value)),
                "label": plain(str(value))}  # fmt: skip
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if hue in _SYMBOLS:
        text = f"{_SYMBOLS[hue]} = {text}"
    elif hue != "curve":
        text = f"{_label(hue)} {text}"
    return {"color": PALETTE[index % len(PALETTE)], "label": plain(text)}


def plot_privacy_cost(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot strong T against C, a mark a point; where models were trained its shade is the accuracy.

    Args:
        table: Columns strong_privacy, aggregation_cardinality, and scheme and accuracy if any;
            points that gave no sum are left out.
        ax: Where to draw; a figure of its own when None.

    Raises:
        ConfigurationError: If the table lacks either column.
    """
    for name in ("strong_privacy", "aggregation_cardinality"):
        _known(table, "table", name)
    shown = table[table["strong_privacy"].notna()]
    is_scheme = "scheme" in shown
    groups = list(shown.groupby("scheme", sort=False)) if is_scheme else [("", shown)]
    is_trained = "accuracy" in shown and bool(shown["accuracy"].notna().any())
    with drawing(ax) as ax:
        shade: dict[str, Any] = {}
        if is_trained:
            low, high = 100 * shown["accuracy"].min(), 100 * shown["accuracy"].max()
            shade = {"cmap": "cividis", "vmin": low - 1e-9, "vmax": high + 1e-9}
        marks = None
        for index, (label, rows) in enumerate(groups):
            colour: dict[str, Any] = {"color": scheme_colour(str(label))}
            if is_trained:
                colour = {"c": 100 * rows["accuracy"], **shade}
            marks = ax.scatter(
                rows["strong_privacy"], rows["aggregation_cardinality"],
                s=62 * (1 + 0.9 * _hiding(rows, groups[index + 1 :])), zorder=3,
                marker=_MARKERS[index % len(_MARKERS)], edgecolors="#333333", linewidths=0.6,
                label=short(str(label)) or None, **colour,
            )  # fmt: skip
        if is_trained and marks is not None:
            ax.figure.colorbar(marks, ax=ax, label="test accuracy (%)", pad=0.02)
        ax.set(xlabel=_LABELS["strong_privacy"], ylabel=_LABELS["aggregation_cardinality"])
        for name, limits in (
            ("strong_privacy", ax.set_xlim),
            ("aggregation_cardinality", ax.set_ylim),
        ):
            limits(0, 1.1 * max(float(shown[name].max()), 1.0) if len(shown) else 1.0)
        whole_numbers(ax.xaxis)
        caption(ax, "What privacy costs: up and to the right is better.")
        if is_scheme and len(groups) == len(shown) <= _MOST_NAMED:
            _name_points(ax, shown)
        elif is_scheme:
            legend(ax, above=True)
    return ax


def _hiding(rows: pd.DataFrame, later: list[Any]) -> int:
    """Return how many of the groups drawn later have a mark on one of these: all are to be seen."""
    names = ["strong_privacy", "aggregation_cardinality"]
    own = rows[names].to_numpy(float)
    return sum(
        bool((np.abs(own[:, None] - other[names].to_numpy(float)) < 0.2).all(-1).any())
        for _, other in later
    )


def _name_points(ax: Axes, shown: pd.DataFrame) -> None:
    """Write each point's scheme beside it, on the side where there is room, clear of others."""
    right = 0.6 * float(shown["strong_privacy"].max())
    taken: list[tuple[float, float]] = []
    for _, row in shown.sort_values("aggregation_cardinality").iterrows():
        x, y = float(row["strong_privacy"]), float(row["aggregation_cardinality"])
        near = sum(abs(x - a) < 0.5 and abs(y - b) < 0.6 for a, b in taken)
        taken.append((x, y))
        side = "right" if x > right else "left"
        offset = (-8 if side == "right" else 8, -3 + 11 * near)
        ax.annotate(
            short(str(row["scheme"])), (x, y), xytext=offset, textcoords="offset points",
            ha=side, fontsize=8,
        )  # fmt: skip


def plot_tradeoff(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the strong T that schemes keep against their C (columns scheme, T, C, C_low, C_high)."""
    with drawing(ax) as ax:
        for i, (_, row) in enumerate(data.iterrows()):
            spread = np.array([[row["C"] - row["C_low"]], [row["C_high"] - row["C"]]])
            ax.errorbar(
                row["C"],
                row["T"],
                xerr=np.maximum(spread, 0),
                marker="oPsD^v"[i % 6],
                ms=11 - 5 * (row["scheme"] == "Weighted random"),
                capsize=3,
                color=scheme_colour(row["scheme"]),
                label=row["scheme"],
                ls="none",
            )
        ax.set(xlabel="average cardinality C (clients)", xlim=(0, 12.6))
        ax.set(ylabel="strong T kept for ever (clients)", ylim=(0, 13))
        whole_numbers(ax.yaxis)
        caption(ax, "Privacy against cardinality (N = 120, K = 12).")
        legend(ax)
    return ax
