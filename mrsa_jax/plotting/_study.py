"""Figures of a multi-round study: privacy, exposure, fairness, cardinality, accuracy, attack.

Each takes the study's xarray data set and draws on `ax`, or on a figure of its own. Where the
data set has a `trial` axis the line is the mean and the band spans the 5 % to 95 % quantiles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import name_curves, plain, short
from mrsa_jax.plotting._style import (
    WARNING,
    caption,
    drawing,
    ends,
    nobody,
    scheme_line,
    single,
    slant,
    whole_numbers,
)
from mrsa_jax.plotting._together import interleave

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def _curves(
    results: xr.Dataset, name: str, axis: str, ax: Axes, *, step: bool = False
) -> list[Line2D]:
    values = results[name]
    x = results[axis].values + (1 if axis == "round" else 0)
    draw: dict[str, Any] = {"drawstyle": "steps-post"} if step else {}
    lines = []
    for label in map(str, results["scheme"].values):
        curve = values.sel(scheme=label)
        colour = scheme_colour(label)
        if "trial" in curve.dims:
            low, high = (quantile_of(curve, q) for q in (0.05, 0.95))
            ax.fill_between(
                x, low, high, color=colour, alpha=0.15, lw=0, step="post" if step else None
            )
            curve = curve.mean("trial")
        look = draw | single(curve.values)
        lines += ax.plot(
            x, curve.values, color=colour, ls=scheme_line(label), label=plain(label), **look
        )
    return lines


def quantile_of(curve: xr.DataArray, q: float) -> np.ndarray:
    """Return a quantile over trials; nan, quietly, where no trial has a value yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        return np.asarray(curve.quantile(q, "trial").values)


def over_rounds(
    results: xr.Dataset,
    name: str,
    ax: Axes | None,
    label: str,
    words: str,
    *,
    axis: str = "round",
    step: bool = False,
    counts: bool = False,
    most: float | None = None,
    gap: float = 2.0,
    more: Callable[[Axes], None] | None = None,
) -> Axes:
    """Plot a curve for each scheme, and whatever `more` draws.

    Args:
        results: Data set of a study.
        name: The variable.
        ax: Where to draw; a figure of its own when None.
        label: Of the upright axis.
        words: What the figure shows, kept outside it; what curves and bands are of is added.
        axis: Along which curves run.
        step: Whether values stay until the next round.
        counts: Whether values are whole numbers.
        most: The largest value there can be, where the axis should show it.
        gap: As of `name_curves`.
        more: Draws the rest.
    """
    with drawing(ax) as ax:
        lines = _curves(results, name, axis, ax, step=step)
        if more is not None:
            more(ax)
        ends(ax, top=most)
        interleave(ax, lines)
        ax.set(xlabel="rounds", ylabel=label)
        whole_numbers(ax.xaxis, *([ax.yaxis] if counts else []))
        name_curves(ax, gap=gap)
        trials = results.sizes.get("trial", 1) if "trial" in results[name].dims else 1
        spread = f" Mean of {trials} trials; band: 5 to 95 %." if trials > 1 else ""
        caption(ax, f"{words}.{spread}")
    return ax


def plot_privacy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot strong T over rounds, from the first sum on."""
    words = "Fewest clients whose updates move only together"
    label = "strong T (clients)"
    return over_rounds(results, "strong_privacy", ax, label, words, step=True, counts=True)


def plot_exposure(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot how many clients' own updates the server can solve for, over rounds."""

    def more(ax: Axes) -> None:
        nobody(ax, results["exposed_clients"].values, "nobody is exposed")

    words, label = "Clients whose own update follows from the sums", "exposed clients"
    return over_rounds(
        results, "exposed_clients", ax, label, words, step=True, counts=True, more=more
    )


def plot_fairness(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the fairness gap F over rounds."""
    words = "Share of the rounds of the client who is summed most often, minus the least often"
    return over_rounds(results, "fairness_gap", ax, "fairness gap F", words)


def plot_cardinality(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the aggregation cardinality C over rounds, its expectation as a mark at the right."""

    def more(ax: Axes) -> None:
        for label in map(str, results["scheme"].values):
            expected = float(results["expected_cardinality"].sel(scheme=label))
            ax.plot([1.0], [expected], transform=ax.get_yaxis_transform(), marker="<", ms=5,
                    color=scheme_colour(label), clip_on=False)  # fmt: skip

    words = "Mean number of clients in a sum; marks at the right: its expectation"
    label = "cardinality C (clients)"
    return over_rounds(results, "aggregation_cardinality", ax, label, words, more=more, gap=5.0)


def plot_accuracy(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot the test accuracy of the global model over rounds."""
    shown = results.assign(accuracy=100 * results["accuracy"])
    label, words = "test accuracy (%)", "Accuracy of the global model on the test set"
    return over_rounds(shown, "accuracy", ax, label, words, axis="evaluation", most=100.0)


def plot_reconstruction(results: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Plot each client's reconstruction error by scheme (eq. (35); a point a client)."""
    with drawing(ax) as ax:
        labels = [str(label) for label in results["scheme"].values]
        rng = np.random.default_rng(0)  # only spreads the points sideways
        for position, label in enumerate(labels):
            errors = results["reconstruction_error"].sel(scheme=label).values
            errors = errors[np.isfinite(errors)]
            offsets = rng.uniform(-0.25, 0.25, errors.size)
            ax.scatter(
                position + offsets, errors, s=9, alpha=0.55, color=scheme_colour(label), lw=0
            )
            if errors.size:
                ax.hlines(np.median(errors), position - 0.35, position + 0.35, color=WARNING, lw=2)
        ax.axhline(1, color="#777777", lw=0.8, ls=":")
        ax.set_yscale("log")
        ax.set_xticks(range(len(labels)), [short(label) for label in labels])
        slant(ax)
        ax.set(ylabel="relative squared error")
        caption(ax, "Error of each client's update, rebuilt by least squares; bar: median.")
    return ax
