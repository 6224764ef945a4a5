"""Charts of attacks: errors by scheme, true against false positives, images.

Errors of single clients by scheme, and what is distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core import gaussian as _gaussian
from mrsa_jax.plotting.chart import Chart, Line, draw
from mrsa_jax.plotting.styles import CHANCE, style
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Rows = Sequence[Mapping[Any, Any]]

_LEAST = 1e-6  # smaller errors are drawn in the first bin of a histogram by scheme
_TINY = 1e-12  # of an error on a logarithmic axis


def errors_line(label: str, errors: Any) -> Line:
    """Return errors in rising order: how many clients are known how well."""
    values = np.sort(np.ravel(np.asarray(errors, float)))
    values = values[np.isfinite(values)]
    # the k-th smallest error stands at the fraction of clients with at most that
    fraction = 100 * (np.arange(values.size) + 1) / max(values.size, 1)
    return Line(label, fraction, np.maximum(values, _TINY))


def members_chart(summary: Rows) -> Chart:
    """Chart the accuracy of each method in telling members from others."""
    seen = list(dict.fromkeys(str(row["seen"]) for row in summary))
    lines = []
    for method in dict.fromkeys(row["method"] for row in summary):
        rows = [row for row in summary if row["method"] == method]
        name = spoken(method)
        words = [
            f"{name}, {row['seen']}: AUC {size(row['auc']):.3g}, right about "
            f"{100 * size(row['accuracy']):.3g} %"
            for row in rows
        ]
        x = [float(seen.index(str(row["seen"]))) for row in rows]
        y = [size(row["auc"]) for row in rows]
        lines.append(Line(name, x, y, kind="marks", words=words))
    ticks = [(float(k), name) for k, name in enumerate(seen)]
    return Chart.named("members", lines, ticks=ticks)


def attribute_chart(scores: Rows) -> Chart:
    """Chart the mean AUC of an attribute after rounds, with each scheme's bound."""
    methods = {row["method"] for row in scores}
    groups: dict[tuple[str, str], dict[int, list[float]]] = {}
    bounds: dict[str, float] = {}
    for row in scores:
        label = str(row["scheme"])
        areas = groups.setdefault((label, str(row["method"])), {})
        areas.setdefault(int(row["rounds"]), []).append(size(row["auc"]))
        if row["bound_auc"] is not None and not np.isnan(row["bound_auc"]):
            bounds[label] = float(row["bound_auc"])
    lines = []
    for (label, method), areas in groups.items():
        rounds = sorted(areas)
        means = [float(np.mean(areas[stop])) for stop in rounds]
        name = method if len(methods) > 1 else ""
        weight = "main solid" if method == "joint" else "thin solid"
        lines.append(Line(label, rounds, means, name, weight=weight))
        if label in bounds and method == "joint":
            level = [bounds[label]] * 2
            ends = [rounds[0], rounds[-1]]
            lines.append(Line(label, ends, level, "bound", weight="thin dashed"))
    return Chart.named("attribute", lines)


def rates_chart(scores: Rows, others: str = "") -> Chart:
    """Chart measured rates with their intervals next to those of the formula.

    Args:
        scores: Rows of an attack that tells apart, of any schemes.
        others: The words about the other clients' updates.
    """
    lines = []
    least = min(float(row["fpr"]) for row in scores)
    # formulas are drawn where rates were measured
    along = np.logspace(np.log10(least), np.log10(0.999), 60)
    groups: dict[tuple[str, str, str], list[Mapping[Any, Any]]] = {}
    for row in scores:
        group = str(row["scheme"]), str(row["whose"]), str(row.get("others", ""))
        groups.setdefault(group, []).append(row)
    kinds = {kind for *_, kind in groups}
    for (label, whose, kind), rows in groups.items():
        rows.sort(key=lambda row: float(row["fpr"]))
        names = ("fpr", "tpr", "lower", "upper")  # None becomes nan
        table = np.array([[row[name] for row in rows] for name in names], float)
        x, (y, low, high) = table[0], 100 * table[1:]
        width = "main" if whose == "worst" else "thin"
        formula = 100 * _gaussian.true_positive_rate(size(rows[0]["mu"]), along)
        seen = f"{whose} client" + f", {kind} updates" * (len(kinds) > 1)
        name = f"{seen}, formula"
        lines.append(Line(label, along, formula, name, weight=f"{width} dashed"))
        lines.append(
            Line(
                label,
                x,
                y,
                seen,
                low,
                high,
                weight=f"{width} solid",
            )
        )
    name = "as many as false alarms"
    lines.append(Line(CHANCE, along, 100 * along, name, weight="thin"))
    kind = "Gaussian" if others == "gaussian" else others
    given = f", if the others' updates are {kind}," * bool(kind)
    words = {"given": given, "told": f" ({kind} updates)" * bool(kind)}
    return Chart.named("rates", lines, words=words)


def plot_roc(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot true against false positive rates.

    Those of the formula (dashed), and measured ones.

    Args:
        data: Rows of `scores.csv` of `mrsa-jax attack distinguish`: columns scheme,
            whose, mu, fpr, tpr, and the interval's lower and upper.
        ax: Where to draw; a new figure if None.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> worst = {"scheme": "Random", "whose": "worst", "mu": 1.0}
        >>> scores = pd.DataFrame(
        ...     [worst | {"fpr": rate, "tpr": rate**0.5} for rate in (0.25, 1.0)]
        ... ).assign(lower=0.0, upper=1.0)
        >>> ax = mj.plotting.plot_roc(scores)
        >>> values = [line.get_ydata().tolist() for line in ax.lines]
        >>> [value for value in values if len(value) == 2]
        [[50.0, 100.0]]
    """
    return draw(rates_chart(data.to_dict("records")), ax=ax)


def size(value: Any) -> float:
    """Return a number of a score, infinite where JSON has none."""
    return float("inf") if value is None else float(value)


def spoken(name: Any) -> str:
    """Return a name as words."""
    return str(name).replace("_", " ")


def histogram_chart(
    data: pd.DataFrame,
    column: str = "error",
    least: float = _LEAST,
) -> Chart:
    """Chart the clients by their error, as steps over bins of a logarithmic axis.

    Steps over bins of a logarithmic axis.
    """
    largest = np.clip(np.nan_to_num(data[column].max()), 10.0, 1e6)
    top = float(np.ceil(np.log10(largest)))
    bins = np.logspace(np.log10(least), top, 4 * int(top - np.log10(least)) + 1)
    lines = []
    for label, rows in data.groupby("scheme", sort=False):
        values = rows[column].dropna()
        # errors beyond the ends count in the outermost bins
        counts, _ = np.histogram(np.clip(values, 1.01 * least, 0.99 * bins[-1]), bins)
        fraction = np.append(100 * counts / max(len(values), 1), 0.0)
        mean = values.mean()
        name = f"mean {mean:.0f}" if 100 <= mean < 1e6 else f"mean {mean:.2g}"
        ends = (
            ("below", bins[0], values < least),
            ("above", bins[-1], values > bins[-1]),
        )
        for side, end, outside in ends:
            if outside.any():
                name += f", {100 * outside.mean():.3g} % {side} {end:.3g}"
        zeros = np.zeros(len(bins))
        lines.append(
            Line(
                str(label),
                bins,
                fraction,
                name,
                zeros,
                fraction,
                "step",
            )
        )
    return Chart.named("histogram", lines)


def plot_error_histogram(
    data: pd.DataFrame,
    *,
    column: str = "error",
    least: float = _LEAST,
    ax: Axes | None = None,
) -> Axes:
    """Plot the fraction of clients recovered with each error, one histogram per scheme.

    Args:
        data: Columns scheme and the error, a row for each client and seed.
        column: Which error.
        least: Smaller errors are drawn as this.
        ax: Where to draw; a new figure if None.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> errors = pd.DataFrame({"error": [1e-4, 1e-4, 1e-4, 1.0]})
        >>> errors = errors.assign(scheme="Random")
        >>> ax = mj.plotting.plot_error_histogram(errors)
        >>> float(max(ax.lines[0].get_ydata()))
        75.0
    """
    return draw(histogram_chart(data, column, least), ax=ax)


_SIDE = 1.05  # inches of an image
_SCORE = 0.2  # of the line under it
_LETTER = 0.068  # of a letter of a score
_LABEL = 0.078  # of a letter of the rows' labels


def plot_image_grid(
    rows: Sequence[tuple[str, Any]],
    *,
    scores: Sequence[Sequence[Any] | None] | None = None,
    value_range: tuple[float, float] | None = (0.0, 1.0),
    title: str | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Draw rows of images under one another, originals first, with scores below.

    Args:
        rows: A label (of one line or several) and real images [n, height, width,
            channels] for each row, with one channel (drawn in grey) or three; n and
            sizes may differ by row.
        scores: For each row what to write under its images, numbers (three digits are
            shown) or words, or None to write nothing; None for no scores at all.
        value_range: What is drawn black and white, the same for all; images are clipped
            to it. None stretches each image by its own smallest and largest pixel.
        title: Above the grid.
        figure: Where to draw, which is made as large as the grid, in the width of
            `style` if the scores have room there; a new one if None.

    Returns:
        The figure; a row's axes follow one another in `figure.axes`, left to right.

    Raises:
        ConfigurationError: If a row has no images, other than one or three channels or
            a pixel that is not finite, or if scores are not one for each image.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).random((2, 8, 8, 1))
        >>> rows = [("original", noise), ("recovered", noise)]
        >>> figure = mj.plotting.plot_image_grid(rows, scores=[None, ["22 dB", 18.26]])
        >>> [ax.get_xlabel() for ax in figure.axes]
        ['', '', '22 dB', '18.3']
    """
    labels = [label for label, _ in rows]
    images = _checked_rows(rows)
    texts = _checked_scores(images, scores)
    columns = max(len(row) for row in images)
    with style():
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained") if figure is None else figure
        lines = [line for label in labels for line in label.splitlines() or [""]]
        indent = _LABEL * max(map(len, lines))
        side = _side(columns, indent + 0.15, texts)
        height = sum(side + _SCORE * (text is not None) for text in texts)
        height += 0.3 * (title is not None)
        figure.set_size_inches(side * columns + indent + 0.15, height)
        axes = figure.subplots(len(images), columns, squeeze=False)
        for line, label, row, text in zip(axes, labels, images, texts, strict=True):
            for k, ax in enumerate(line):
                if k < len(row):
                    _draw(ax, row[k], value_range, "" if text is None else text[k])
                else:
                    ax.remove()
            line[0].set_ylabel(
                label,
                rotation=0,
                ha="right",
                va="center",
                fontsize=8,
            )
        if title is not None:
            figure.suptitle(title, fontsize=9)
    return figure


def _side(columns: int, beside: float, texts: list[list[str] | None]) -> float:
    """Return the inches of an image that fits the column with its score."""
    import matplotlib as mpl

    width = float(mpl.rcParams["figure.figsize"][0])
    scores = [score for text in texts for score in text or ()]
    longest = max(map(len, scores), default=0)
    return max(min(_SIDE, (width - beside) / columns), 0.3, _LETTER * longest)


def _draw(
    ax: Axes,
    image: np.ndarray,
    value_range: tuple[float, float] | None,
    text: str,
) -> None:
    low, high = (image.min(), image.max()) if value_range is None else value_range
    pixels = np.clip((image - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    ax.imshow(
        pixels,
        cmap="gray",
        vmin=0.0,
        vmax=1.0,
        interpolation="none",
    )
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color="#999999", linewidth=0.6)
    ax.set_xlabel(text, fontsize=8, labelpad=2)


def _checked_rows(rows: Sequence[tuple[str, Any]]) -> list[np.ndarray]:
    require(len(rows) > 0, "rows", "must hold a row at least", len(rows))
    images = [np.asarray(row, np.float64) for _, row in rows]
    for row in images:
        require(
            row.ndim == 4 and row.shape[-1] in (1, 3) and row.size > 0,
            "rows",
            "must be images [n, height, width, 1 or 3], n at least 1",
            row.shape,
        )
        require(
            bool(np.isfinite(row).all()),
            "rows",
            "must be finite",
            "nan or infinity",
        )
    return images


def _checked_scores(
    images: list[np.ndarray], scores: Sequence[Sequence[Any] | None] | None
) -> list[list[str] | None]:
    """Return the text below each image of each row."""
    lines = [None] * len(images) if scores is None else list(scores)
    counts = len(lines), len(images)
    require(counts[0] == counts[1], "scores", "must be one a row", *counts)
    texts: list[list[str] | None] = []
    for row, line in zip(images, lines, strict=True):
        if line is None:
            texts.append(None)
            continue
        require(
            len(line) == len(row),
            "scores",
            "must be one for each image",
            line,
            len(row),
        )
        texts.append([v if isinstance(v, str) else f"{float(v):.3g}" for v in line])
    return texts
