"""Figures of a multi-round study, from its data set: learning, privacy, cost, drift.

Where the data set has a `trial` axis a line is the mean and its band spans the 5 % to
95 % quantiles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.plotting.attack_charts import errors_line
from mrsa_jax.plotting.chart import Chart, Line, draw
from mrsa_jax.plotting.points import QUANTITIES
from mrsa_watch._base.errors import check_known, require

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

OPENING = "weak_and_hidden"
"""The figure at the top of a report on privacy, where it was measured."""

LEARNING = ("accuracy", "loss")
"""Figures of learning, where something was trained."""

# of updates, behind a correlation that is drawn where others have as many
_FEWEST_PAIRS = 10
_BAND = " Lines: means of {trials} trials; bands: from 5 % to 95 % of them."


def study_charts(results: xr.Dataset) -> dict[str, Chart]:
    """Return the charts of all that a study has, by name and in reading order.

    Args:
        results: Data set of a study.
    """
    found = {}
    for name, (needed, make) in _CHARTS.items():
        if needed in results and bool(np.isfinite(results[needed]).any()):
            chart = make(results)
            if chart.lines:
                found[name] = chart
    return found


def _labels(results: xr.Dataset) -> list[str]:
    return [str(label) for label in results["scheme"].values]


def _rounds(results: xr.Dataset, axis: str) -> np.ndarray:
    """Return the places along an axis; rounds are counted from 1."""
    return np.asarray(results[axis].values, float) + (1 if axis == "round" else 0)


def _over(
    results: xr.Dataset, name: str, axis: str = "round", **look: Any
) -> Iterable[Line]:
    """Return a line for each scheme: a mean and its band where there are trials."""
    values = results[name] * (100.0 if name == "accuracy" else 1.0)
    for label in _labels(results):
        own = values.sel(scheme=label)
        edges: dict[str, Any] = {}
        if "trial" in own.dims:
            own = own.transpose("trial", axis)
            if own.sizes["trial"] > 1:
                edges = {side: quantile(own.values, q) for side, q in _EDGES.items()}
            own = own.mean("trial")
        yield Line(label, _rounds(results, axis), own.values, **edges, **look)


_EDGES = {"low": 0.05, "high": 0.95}


def quantile(values: np.ndarray, q: float) -> np.ndarray:
    """Return a quantile over trials; nan, quietly, where no trial has a value yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        return np.asarray(np.nanquantile(values, q, axis=0))


def _simple(
    name: str, axis: str = "round", kind: str = "line", **more: Any
) -> Callable[[xr.Dataset], Chart]:
    """Return a function that makes the chart of one quantity over rounds."""
    own = QUANTITIES[name]

    def make(results: xr.Dataset) -> Chart:
        trials = results.sizes.get("trial", 1)
        words = own.words + (
            _BAND.format(trials=trials) if "trial" in results[name].dims else ""
        )
        lines = tuple(_over(results, name, axis, kind=kind))
        return Chart(own.title, words, lines, y_label=own.label, **more)

    return make


def _overstatement(results: xr.Dataset) -> Chart:
    """Return weak T and what the worst is hidden among.

    Random selection against blocks.
    """
    lines = []
    rounds = _rounds(results, "round")
    for label in compared(results):
        one = results.sel(scheme=label)
        lower, upper = (
            one[name].values.astype(float) for name in ("weak_lower", "weak_upper")
        )
        weak: dict[str, Any] = {"kind": "step", "weight": "main dashed"}
        if (lower < upper).any():
            thin = weak | {"weight": "thin dashed"}
            lines.append(
                Line(label, rounds, lower, "weak T at least", lower, upper, **thin)
            )
            lines.append(Line(label, rounds, upper, "weak T at most", **thin))
        else:
            lines.append(Line(label, rounds, upper, "weak T", **weak))
        hidden = one["hidden_among_worst"].values
        lines.append(
            Line(
                label,
                rounds,
                hidden,
                "worst hidden among",
                kind="step",
                weight="thick solid",
            )
        )
    return Chart.named(OPENING, lines)


def compared(results: xr.Dataset) -> list[str]:
    """Return a scheme without a T, and the one with a T that has the largest sums."""
    labels = _labels(results)
    kept = [int(value) for value in results["guaranteed_privacy"].values]
    sums = results["aggregation_cardinality"].isel(round=-1).values
    loose = [label for label, lasts in zip(labels, kept, strict=True) if lasts <= 1]
    tight = [labels[k] for k in np.argsort(-sums, kind="stable") if kept[k] > 1]
    return [*loose[:1], *tight[:1]]


def _hidden(results: xr.Dataset) -> Chart:
    lines = [
        line._replace(name="worst") for line in _over(results, "hidden_among_worst")
    ]
    if "hidden_among_median" in results:
        lines += [
            line._replace(name="median client", low=None, high=None, weight="thin")
            for line in _over(results, "hidden_among_median")
        ]
    return Chart.named("hidden_among_worst", lines)


def _cardinality(results: xr.Dataset) -> Chart:
    lines = list(_over(results, "aggregation_cardinality"))
    rounds = _rounds(results, "round")[[0, -1]]
    for label in _labels(results):
        expected = float(results["expected_cardinality"].sel(scheme=label))
        if np.isfinite(expected):
            lines.append(Line(label, rounds, [expected] * 2, "expected", weight="thin"))
    return Chart.named("aggregation_cardinality", lines)


def _between(
    name: str, axis: str, thick: tuple[str, str], thin: tuple[str, str]
) -> Callable[[xr.Dataset], Chart]:
    """Return a function that makes a chart of two lines per scheme and their band.

    Variable, name of each.
    """

    def make(results: xr.Dataset) -> Chart:
        lines = []
        x = _rounds(results, axis)
        for label in _labels(results):
            own = results.sel(scheme=label)
            main, other = own[thick[0]].values, own[thin[0]].values
            low, high = np.minimum(main, other), np.maximum(main, other)
            lines.append(Line(label, x, main, thick[1], low, high))
            lines.append(Line(label, x, other, thin[1], weight="thin"))
        return Chart.named(name, lines)

    return make


def _accuracy_epsilon(results: xr.Dataset) -> Chart:
    lines = []
    for label in _labels(results):
        own = results.sel(scheme=label)
        accuracy = 100 * own["accuracy"].values
        for name, weight in (("worst", "main"), ("mean", "thin")):
            spent = own[f"epsilon_{name}"].values
            told = "worst client's" if name == "worst" else "clients' mean"
            lines.append(Line(label, spent, accuracy, f"{told} epsilon", weight=weight))
    return Chart.named("accuracy_epsilon_so_far", lines)


def _drift(results: xr.Dataset) -> Chart:
    lines = []
    lags = _rounds(results, "lag")
    for label in _labels(results):
        own = results.sel(scheme=label)
        rho, share = (float(own[f"update_{name}"]) for name in ("memory", "lasting"))
        is_known = own["correlation_pairs"].values >= _FEWEST_PAIRS
        measured = np.where(
            is_known | ~is_known.any(), own["correlation"].values, np.nan
        )
        lines.append(Line(label, lags, measured, "measured", weight="thin solid"))
        lines.append(Line(label, lags, share * rho**lags, "fitted"))
    return Chart.named("correlation", lines)


def _reconstruction(results: xr.Dataset) -> Chart:
    """Chart each scheme's errors in rising order."""
    errors = results["reconstruction_error"]
    lines = [
        errors_line(label, errors.sel(scheme=label).values)
        for label in _labels(results)
    ]
    return Chart.named("reconstruction_error", lines)


_CHARTS: dict[str, tuple[str, Callable[[xr.Dataset], Chart]]] = {
    "accuracy": ("accuracy", _simple("accuracy", "evaluation", y_range=(0.0, 100.0))),
    "loss": ("loss", _simple("loss", "evaluation")),
    "accuracy_epsilon": ("epsilon_worst", _accuracy_epsilon),
    OPENING: ("weak_lower", _overstatement),
    "hidden_among_worst": ("hidden_among_worst", _hidden),
    "strong_privacy": (
        "strong_privacy",
        _simple("strong_privacy", kind="step", whole="xy"),
    ),
    "exposed_clients": (
        "exposed_clients",
        _simple(
            "exposed_clients", kind="step", whole="xy", empty="no client is exposed"
        ),
    ),
    "aggregation_cardinality": ("aggregation_cardinality", _cardinality),
    "fairness_gap": ("fairness_gap", _simple("fairness_gap")),
    "epsilon": (
        "epsilon_worst",
        _between(
            "epsilon",
            "evaluation",
            ("epsilon_worst", "worst client"),
            ("epsilon_mean", "mean client"),
        ),
    ),
    "reconstruction_error": ("reconstruction_error", _reconstruction),
    "bits_worst": (
        "bits_worst",
        _between(
            "bits_worst",
            "rounds_done",
            ("bits_worst", "worst client"),
            ("bits_median", "median client"),
        ),
    ),
    "correlation": ("correlation", _drift),
}

FIGURES: Sequence[str] = tuple(_CHARTS)
"""Names of a study's charts, in reading order."""


def plot_study(results: xr.Dataset, figure: str, *, ax: Axes | None = None) -> Axes:
    """Plot a figure of a study, as `save_study_figures` writes it under its name.

    Lines over trials are means, in bands from 5 % to 95 % of them. The figures:

    - `strong_privacy`: strong T over rounds, from the first sum on.
    - `exposed_clients`: how many clients' updates the server can solve for, over
      rounds.
    - `hidden_among_worst`: size of a single sum that would hide the worst client
      equally well, over rounds; thin lines show the median client.
    - `weak_and_hidden`: weak T next to it, of a random scheme and of one of blocks.
    - `fairness_gap`: F over rounds.
    - `aggregation_cardinality`: C over rounds, its expectation as a thin line.
    - `accuracy`, `loss`: of the global model, at each test.
    - `epsilon`: over rounds, a band from the worst client (thick) to the clients' mean
      (thin).
    - `accuracy_epsilon`: accuracy against the epsilon spent until then, the worst
      client's (thick) and the clients' mean (thin).
    - `reconstruction_error`: clients' errors in rising order (eq. (35)).
    - `correlation`: how a client's updates correlate over rounds, with the fit of a
      memory.
    - `bits_worst`: bits per coordinate that sums reveal of a client's updates, over
      rounds, from the worst client (thick) to the median one of those who took part
      (thin).

    Args:
        results: Data set of a study that has what the figure shows: one that trains,
            with noise for epsilons, and that measures how updates drift for the last
            two.
        figure: Which of them.
        ax: Where to draw; a new figure if None.

    Raises:
        ConfigurationError: If there is no such figure, or the study has not what it
            shows.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.study.from_histories({"Random": [[1, 1, 0], [0, 1, 1], [0, 1, 0]]})
        >>> ax = mj.plotting.plot_study(found, "exposed_clients")
        >>> ax.lines[0].get_ydata().tolist()
        [0.0, 0.0, 3.0]
        >>> import xarray as xr  # a study that trains has epsilons, say
        >>> axes = ("scheme", "evaluation")
        >>> rows = {"epsilon_mean": (axes, [[1.0, 2.0]]), "epsilon_worst": (axes, [[2.0, 4.0]])}
        >>> found = xr.Dataset(rows, {"scheme": ["Random"], "evaluation": [10, 20]})
        >>> worst, mean = mj.plotting.plot_study(found, "epsilon").lines
        >>> mean.get_ydata().tolist(), worst.get_ydata().tolist()
        ([1.0, 2.0], [2.0, 4.0])
    """
    check_known(figure, "figure", _CHARTS, "a figure of studies")
    needed, make = _CHARTS[figure]
    require(needed in results, "figure", f"must be of a study with {needed}", figure)
    return draw(make(results), ax=ax)
