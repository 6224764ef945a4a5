"""Points of a sweep, or schemes of a study.

A quantity over an axis, and strong T against C.
Each takes a data frame with a row a point, as `results.mrsa.table()` gives it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mrsa_jax.plotting.chart import ALL, Chart, Line, draw
from mrsa_watch._base.errors import check_known, require
from mrsa_watch._base.html import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Quantity(NamedTuple):
    """Names of a column of points, and how to read it.

    "" where its own name says it.

    Attributes:
        heading: Over a table.
        label: Along an axis.
        title: Of a chart.
        words: How that is read.
        symbol: What stands for it in a key.
        statistic: What of several trials a table holds: "mean", "least" or "earliest".
        is_count: Whether it counts, so that its ticks are whole numbers.
        is_place: Whether it is a place from 0 in data sets, which is shown counted from
            1.
    """

    heading: str = ""
    label: str = ""
    title: str = ""
    words: str = ""
    symbol: str = ""
    statistic: str = "mean"
    is_count: bool = False
    is_place: bool = False


QUANTITIES = {
    name: Quantity(**own)
    for name, own in tomllib.loads(
        (pathlib.Path(__file__).parent / "quantities.toml").read_text(encoding="utf-8")
    ).items()
}
"""Values with a separate name, in the order of a table's columns."""

MOST_CURVES = 24
"""Curves that one figure shows at most."""


def quantity(name: str) -> Quantity:
    """Return the names of a column."""
    return QUANTITIES.get(name, Quantity())


def axis_label(name: str) -> str:
    """Return the label of an axis that shows a column."""
    return quantity(name).label or _plain(name)


def heading(name: str) -> str:
    """Return the heading of a column in a table."""
    return quantity(name).heading or _plain(name)


def _plain(name: str) -> str:
    return name.replace("_", " ") + " (%)" * name.endswith("accuracy")


def as_shown(name: str, values: Any) -> Any:
    """Return values of a quantity as they are shown.

    Accuracies in percent, rounds from 1.
    """
    if name.endswith("accuracy"):
        return 100.0 * values
    return values + 1 if quantity(name).is_place else values


def by_hue(table: pd.DataFrame, hue: str | None) -> list[tuple[str, pd.DataFrame]]:
    """Return the series of a table: what each is called, and its rows."""
    if hue is None:
        return [(ALL, table)]
    words = ""
    if table[hue].dtype.kind in "iuf":
        symbol = quantity(hue).symbol
        words = f"{symbol} = " if symbol else hue.replace("_", " ") + " "
    groups = table.groupby(hue, sort=False)
    return [(words + label_of(value), rows) for value, rows in groups]


def label_of(value: Any) -> str:
    """Return the name of an axis' value in the key."""
    is_float = isinstance(value, float | np.floating)
    return number(float(value)) if is_float else str(value)


def points_chart(
    table: pd.DataFrame,
    variable: str,
    x: str,
    hue: str | None,
    *,
    log: str = "",
) -> Chart:
    """Return a quantity over an axis, a series for each value of another."""
    drawn = table[table[variable].notna()]
    is_number = table[x].dtype.kind in "iuf"
    names: dict[Any, int] = {}
    if not is_number:
        names = {value: k for k, value in enumerate(dict.fromkeys(table[x]))}
    # a count holds until the next round
    is_count = x in ("round", "rounds") and drawn[variable].dtype.kind in "iu"
    lines = []
    for label, rows in by_hue(drawn, hue):
        places = (rows[x] if is_number else rows[x].map(names)).to_numpy()
        values = as_shown(variable, rows[variable].astype(float)).groupby(places)
        # points that share a place differ in other axes or seeds
        mean, edges = values.mean(), _range(values)
        at = mean.index.to_numpy(float)
        line = Line(label, at, mean.to_numpy(), **edges)
        if is_count:
            line = line._replace(kind="step")
        if not is_number:
            values_of_x = [label_of(list(names)[int(place)]) for place in at]
            line = line._replace(kind="marks", words=_words(line, values_of_x))
        lines.append(line)
    is_free = variable in ("accuracy", "loss") or "y" in log
    is_free |= bool(drawn[variable].min() < 0)
    return Chart(
        axis_label(variable).capitalize(),
        "",
        lines,
        axis_label(x),
        axis_label(variable),
        y_range=() if is_free else (0.0,),
        is_log_x="x" in log,
        is_log_y="y" in log,
        whole="y" * quantity(variable).is_count + "x" * (table[x].dtype.kind in "iu"),
        ticks=[(float(k), label_of(value)) for value, k in names.items()],
        empty="no client is exposed" if variable == "exposed_clients" else "",
        are_schemes=hue in ("scheme", "schemes"),
        marks_points=True,
    )


def _words(line: Line, names: list[str]) -> list[str]:
    """Return the words about marks that stand over names."""
    words = [
        f"{line.series}, {n}: {number(y)}" for n, y in zip(names, line.y, strict=True)
    ]
    if line.low is not None:
        for k, (low, high) in enumerate(zip(line.low, line.high, strict=True)):
            words[k] += f" ({number(low)} to {number(high)})" * bool(low < high)
    return words


def _range(values: Any) -> dict[str, Any]:
    """Return the band from least to largest of groups of values.

    None where each has one.
    """
    low, high = values.min().to_numpy(), values.max().to_numpy()
    return {"low": low, "high": high} if (low < high).any() else {}


def check_columns(table: pd.DataFrame, /, **names: str | None) -> None:
    """Raise unless a table has the columns that arguments name; None names none."""
    for argument, name in names.items():
        if name is not None:
            check_known(name, argument, map(str, table.columns), "a column")


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

    Where several points share both (other axes, seeds) the curve is their mean and the
    band spans their extremes. Values of `x` that are no numbers stand side by side, and
    no line joins them. Curves of many points have no marks; whole numbers over rounds
    are drawn as steps.

    Args:
        table: A row a point.
        variable: Column that is shown; accuracy is shown in percent.
        x: Column along the axis.
        hue: Column that tells curves apart; one curve when None. Values of a column
            `curve` are names that stand for themselves.
        log: Axes with a logarithmic scale.
        ax: Where to draw; a new figure if None.

    Raises:
        ConfigurationError: If a name is no column, there is nothing to show, or `log`
            names other axes, or one of values that are no numbers.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> table = pd.DataFrame({"dropout_rate": [0.0, 0.2], "accuracy": [0.75, 0.5]})
        >>> ax = mj.plotting.plot_points(table, "accuracy", x="dropout_rate")
        >>> ax.lines[0].get_ydata().tolist()
        [75.0, 50.0]
    """
    check_known(log, "log", ("", "x", "y", "xy"), "axes")
    check_columns(table, variable=variable, x=x, hue=hue)
    drawn = table[table[variable].notna()]
    require(len(drawn) > 0, "variable", "must have values", variable)
    is_number = drawn[x].dtype.kind in "iuf"
    require(
        is_number or "x" not in log,
        "log",
        "must not name an axis without numbers",
        log,
    )
    chart = points_chart(drawn, variable, x, hue, log=log)
    count = len(chart.lines)
    require(
        count <= MOST_CURVES,
        "hue",
        f"must have at most {MOST_CURVES} values",
        count,
    )
    return draw(chart, ax=ax)


def accuracy_epsilon_chart(table: pd.DataFrame, hue: str | None) -> Chart:
    """Return accuracy against epsilon.

    Of the worst client, of their mean, and without noise.
    """
    drawn = table[table["accuracy"].notna() & table["epsilon_worst"].notna()]
    is_finite = np.isfinite(drawn["epsilon_worst"])
    ends = drawn.loc[is_finite, ["epsilon_worst", "epsilon_mean"]]
    lines = []
    for label, rows in by_hue(drawn, hue):
        is_noisy = np.isfinite(rows["epsilon_worst"])
        noisy, without = rows[is_noisy], rows[~is_noisy]
        by = "noise_multiplier" if "noise_multiplier" in rows else "epsilon_worst"
        alike = noisy.groupby(noisy[by].to_numpy())
        # a curve runs from the most noise to the least
        order = np.argsort(alike["epsilon_worst"].mean().to_numpy())
        accuracy = 100 * alike["accuracy"].mean().to_numpy()[order]
        band = _range(alike["accuracy"])
        edges = {end: 100 * values[order] for end, values in band.items()}
        worst = alike["epsilon_worst"].mean().to_numpy()[order]
        mean = alike["epsilon_mean"].mean().to_numpy()[order]
        lines.append(Line(label, worst, accuracy, "worst client", **edges))
        lines.append(Line(label, mean, accuracy, "mean client", weight="thin"))
        if len(without):
            level = [100 * float(without["accuracy"].mean())] * 2
            across = [ends.min().min(), ends.max().max()]
            lines.append(Line(label, across, level, "no noise", weight="thin dashed"))
    return Chart.named(
        "accuracy_epsilon", lines, are_schemes=hue in ("scheme", "schemes")
    )


def plot_accuracy_epsilon(
    table: pd.DataFrame,
    *,
    hue: str | None = "scheme",
    ax: Axes | None = None,
) -> Axes:
    """Plot accuracy against epsilon, a mark a point and a curve a scheme, or its T.

    The thick curve is at the worst client's epsilon, the thin one at the clients' mean.
    Points of one curve and noise are averaged over what else differs (seeds), a band
    reaching to the extremes. What is trained without noise has no epsilon: it is a
    dashed level.

    Args:
        table: Columns accuracy (in [0, 1]), epsilon_worst, epsilon_mean, and `hue`; a
            column noise_multiplier tells which points are of one noise, else epsilon
            does.
        hue: Column that tells curves apart; one curve when None.
        ax: Where to draw; a new figure if None.

    Raises:
        ConfigurationError: If a column is missing, or no point has noise and an
            accuracy.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> table = pd.DataFrame({"accuracy": [0.5, 0.75], "epsilon_worst": [2.0, 8.0],
        ...                       "epsilon_mean": [1.0, 4.0]})
        >>> at_worst, at_mean = mj.plotting.plot_accuracy_epsilon(table, hue=None).lines
        >>> at_worst.get_xdata().tolist(), at_worst.get_ydata().tolist()
        ([2.0, 8.0], [50.0, 75.0])
    """
    needed = ["accuracy", "epsilon_worst", "epsilon_mean"]
    if hue is not None:
        needed.append(hue)
    missing = [name for name in needed if name not in table]
    require(not missing, "table", f"must have the columns {', '.join(needed)}", missing)
    noisy = np.isfinite(table["epsilon_worst"]) & table["accuracy"].notna()
    require(
        bool(noisy.any()),
        "table",
        "must have a point with noise and an accuracy",
        len(table),
    )
    return draw(accuracy_epsilon_chart(table, hue), ax=ax)


def pair_chart(
    table: pd.DataFrame,
    x: str,
    y: str,
    hue: str | None,
    words: Sequence[str] = (),
) -> Chart:
    """Return one quantity against another, one mark per point.

    `words` are shown with each.
    """
    is_known = np.isfinite(table[[x, y]].to_numpy(np.float64)).all(axis=1)
    numbered = table.assign(_row=np.arange(len(table)))[is_known]
    lines = []
    for label, rows in by_hue(numbered, hue):
        across = as_shown(x, rows[x].to_numpy(np.float64))
        up = as_shown(y, rows[y].to_numpy(np.float64))
        places = rows["_row"].tolist()
        texts = [words[place] for place in places] if words else ()
        lines.append(
            Line(
                label,
                across,
                up,
                kind="marks",
                words=texts,
                rows=places,
            )
        )
    along, axis = axis_label(x), axis_label(y)
    names = [label.partition(" (")[0] for label in (axis, along)]
    is_free = [name.endswith("accuracy") for name in (x, y)]
    return Chart(
        f"{names[0][:1].upper()}{names[0][1:]} against {names[1]}",
        "",
        lines,
        along,
        axis,
        x_from=None if is_free[0] else 0.0,
        y_range=() if is_free[1] else (0.0,),
        whole="x" * quantity(x).is_count,
        are_schemes=hue in ("scheme", "schemes"),
    )


def plot_privacy_cost(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot C against strong T, one mark per point, shaded by the accuracy of models.

    Args:
        table: Columns strong_privacy, aggregation_cardinality, and scheme and accuracy
            if any; points that gave no sum are left out.
        ax: Where to draw; a new figure if None.

    Raises:
        ConfigurationError: If the table lacks either column.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> table = pd.DataFrame({"strong_privacy": [2, 6]})
        >>> table["aggregation_cardinality"] = [12.0, 9.0]
        >>> ax = mj.plotting.plot_privacy_cost(table)
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('strong T (clients)', 'cardinality C (clients)')
    """
    pair = ("strong_privacy", "aggregation_cardinality")
    for name in pair:
        check_columns(table, table=name)
    chart = pair_chart(table, *pair, "scheme" if "scheme" in table else None)
    lines = chart.lines
    # a line keeps the table's rows of its marks, by which they are shaded
    if "accuracy" in table and table["accuracy"].notna().any():
        accuracy = 100 * table["accuracy"].to_numpy(float)
        lines = [line._replace(shade=accuracy[list(line.rows)]) for line in lines]
    caption = "What privacy costs: up and to the right is better."
    return draw(dataclasses.replace(chart, lines=lines, caption=caption), ax=ax)


def tradeoff_chart(data: pd.DataFrame) -> Chart:
    """Return the strong T that schemes keep and their C, a mark a scheme."""
    lines = []
    for label, rows in data.groupby("scheme", sort=False):
        target, mean, low, high = rows[["T", "C", "C_low", "C_high"]].to_numpy(float).T
        lines.append(Line(str(label), target, mean, "", low, high, "marks"))
    return Chart.named("tradeoff", lines)


def plot_tradeoff(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the C of schemes against the strong T that they keep, with intervals.

    Args:
        data: Columns scheme, T, C, C_low and C_high.
        ax: Where to draw; a new figure if None.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> table = pd.DataFrame({"scheme": ["Random", "Blocks"], "T": [1, 4]})
        >>> table = table.assign(C=[12.0, 11.0], C_low=[11.9, 10.8])
        >>> table["C_high"] = [12.0, 11.2]
        >>> ax = mj.plotting.plot_tradeoff(table)
        >>> ax.lines[0].get_xdata().tolist()
        [1.0]
    """
    return draw(tradeoff_chart(data), ax=ax)
