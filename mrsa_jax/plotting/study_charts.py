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
    charts = {}
    for name, (needed, make) in _CHARTS.items():
        if needed in results and bool(np.isfinite(results[needed]).any()):
            chart = make(results)
            if chart.lines:
                charts[name] = chart
    return charts


def _labels(results: xr.Dataset) -> list[str]:
    return [str(label) for label in results["scheme"].values]


def _schemes(results: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Return the part of the results of each scheme, by its label."""
    return [(label, results.sel(scheme=label)) for label in _labels(results)]


def _rounds(results: xr.Dataset, axis: str) -> np.ndarray:
    """Return the places along an axis; rounds are counted from 1."""
    return np.asarray(results[axis].values, float) + (axis == "round")


def _over(
    results: xr.Dataset,
    name: str,
    axis: str = "round",
    **look: Any,
) -> Iterable[Line]:
    """Return a line for each scheme: a mean and its band where there are trials."""
    values = results[name] * (100.0 if name == "accuracy" else 1.0)
    for label in _labels(results):
        line = values.sel(scheme=label)
        edges: dict[str, Any] = {}
        if "trial" in line.dims:
            line = line.transpose("trial", axis)
            if line.sizes["trial"] > 1:
                edges = {side: quantile(line.values, q) for side, q in _EDGES.items()}
            line = line.mean("trial")
        yield Line(
            label,
            _rounds(results, axis),
            line.values,
            **edges,
            **look,
        )


_EDGES = {"low": 0.05, "high": 0.95}


def quantile(values: np.ndarray, q: float) -> np.ndarray:
    """Return a quantile over trials; nan, quietly, where no trial has a value yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        return np.asarray(np.nanquantile(values, q, axis=0))


def _simple(
    name: str,
    axis: str = "round",
    kind: str = "line",
    **more: Any,
) -> Callable[[xr.Dataset], Chart]:
    """Return a function that makes the chart of one quantity over rounds."""
    quantity = QUANTITIES[name]

    def make(results: xr.Dataset) -> Chart:
        words = quantity.words
        if "trial" in results[name].dims:
            words += _BAND.format(trials=results.sizes["trial"])
        lines = tuple(_over(results, name, axis, kind=kind))
        return Chart(quantity.title, words, lines, y_label=quantity.label, **more)

    return make


def _overstatement(results: xr.Dataset) -> Chart:
    """Return weak T and what the worst is hidden among.

    Random selection against blocks.
    """
    lines = []
    rounds = _rounds(results, "round")
    # of several trials the chart of weak T shows all schemes
    for label in () if "trial" in results["weak_lower"].dims else compared(results):
        scheme = results.sel(scheme=label)
        lower = scheme["weak_lower"].values.astype(float)
        upper = scheme["weak_upper"].values.astype(float)
        weak = Line(
            label,
            rounds,
            upper,
            "weak T",
            kind="step",
            weight="main dashed",
        )
        if (lower < upper).any():
            most = weak._replace(name="weak T at most", weight="thin dashed")
            least = most._replace(y=lower, name="weak T at least")
            lines += [least._replace(low=lower, high=upper), most]
        else:
            lines.append(weak)
        hidden = scheme["hidden_among_worst"].values
        step = weak._replace(y=hidden, name="worst hidden among", weight="thick solid")
        lines.append(step)
    return Chart.named(OPENING, lines)


def weak_chart(results: xr.Dataset) -> Chart:
    """Return weak T after each round, a mean over trials, in the band of its bounds.

    Nothing without trials: the chart of weak T and hidden among shows one history.
    """
    if "trial" not in results["weak_lower"].dims:
        return Chart.named("weak_privacy", words={"trials": "", "proof": ""})
    lines = []
    rounds = _rounds(results, "round")
    for label, scheme in _schemes(results):
        lower, upper = weak_means(scheme)
        meets = np.where(upper - lower < 1e-9, upper, np.nan)
        band = Line(label, rounds, lower, "at least", lower, upper, "step", "thin")
        lines += [
            band,
            Line(label, rounds, upper, "at most", kind="step", weight="thin"),
        ]
        lines.append(Line(label, rounds, meets, "bounds meet", kind="step"))
    words = {"trials": f"{results.sizes['trial']} trials", "proof": _proof(results)}
    return Chart.named("weak_privacy", lines, words=words)


def weak_means(scheme: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return both bounds of a scheme's weak T, means over trials that had a sum."""
    bounds = (scheme[name].transpose("trial", "round") for name in _WEAK_BOUNDS)
    lower, upper = (values.mean("trial", skipna=True).values for values in bounds)
    return lower, upper


def _proof(results: xr.Dataset) -> str:
    """Say what the bounds of weak T rest on."""
    if "weak_certified" not in results:
        return "Bounds hold with an error chance below 2^-30 per trial."
    certified = results["weak_certified"].values
    share = np.nanmean(certified) if np.isfinite(certified).any() else 0.0
    return f"Certified in {100 * share:.3g} % of the rounds."


_WEAK_BOUNDS = ("weak_lower", "weak_upper")


def compared(results: xr.Dataset) -> list[str]:
    """Return a scheme without a T, and the one with a T that has the largest sums."""
    labels = _labels(results)
    targets = results["guaranteed_privacy"].values.astype(int)
    sums = results["aggregation_cardinality"].isel(round=-1).values
    loose = [labels[k] for k in np.flatnonzero(targets <= 1)]
    tight = [labels[k] for k in np.argsort(-sums, kind="stable") if targets[k] > 1]
    return [*loose[:1], *tight[:1]]


def _hidden(results: xr.Dataset) -> Chart:
    lines = [
        line._replace(name="worst") for line in _over(results, "hidden_among_worst")
    ]
    if "hidden_among_median" in results:
        lines += [
            line._replace(
                name="median client",
                low=None,
                high=None,
                weight="thin",
            )
            for line in _over(results, "hidden_among_median")
        ]
    return Chart.named("hidden_among_worst", lines)


def _cardinality(results: xr.Dataset) -> Chart:
    lines = list(_over(results, "aggregation_cardinality"))
    rounds = _rounds(results, "round")[[0, -1]]
    for label, scheme in _schemes(results):
        expected = float(scheme["expected_cardinality"])
        if np.isfinite(expected):
            lines.append(Line(label, rounds, [expected] * 2, "expected", weight="thin"))
    return Chart.named("aggregation_cardinality", lines)


def _between(
    name: str,
    axis: str,
    thick: tuple[str, str],
    thin: tuple[str, str],
) -> Callable[[xr.Dataset], Chart]:
    """Return a function that makes a chart of two lines per scheme and their band.

    Variable, name of each.
    """

    def make(results: xr.Dataset) -> Chart:
        lines = []
        x = _rounds(results, axis)
        for label, scheme in _schemes(results):
            main, other = scheme[thick[0]].values, scheme[thin[0]].values
            low, high = np.minimum(main, other), np.maximum(main, other)
            lines.append(Line(label, x, main, thick[1], low, high))
            lines.append(Line(label, x, other, thin[1], weight="thin"))
        return Chart.named(name, lines)

    return make


def _accuracy_epsilon(results: xr.Dataset) -> Chart:
    lines = []
    for label, scheme in _schemes(results):
        accuracy = 100 * scheme["accuracy"].values
        worst, mean = scheme["epsilon_worst"].values, scheme["epsilon_mean"].values
        lines.append(Line(label, worst, accuracy, "worst client's epsilon"))
        lines.append(
            Line(label, mean, accuracy, "clients' mean epsilon", weight="thin")
        )
    return Chart.named("accuracy_epsilon_so_far", lines)


def _drift(results: xr.Dataset) -> Chart:
    lines = []
    lags = _rounds(results, "lag")
    for label, scheme in _schemes(results):
        rho, lasting = float(scheme["update_memory"]), float(scheme["update_lasting"])
        is_known = scheme["correlation_pairs"].values >= _FEWEST_PAIRS
        # where no lag has enough pairs, all are drawn
        is_known |= not is_known.any()
        measured = np.where(is_known, scheme["correlation"].values, np.nan)
        lines.append(Line(label, lags, measured, "measured", weight="thin solid"))
        lines.append(Line(label, lags, lasting * rho**lags, "fitted"))
    return Chart.named("correlation", lines)


def _reconstruction(results: xr.Dataset) -> Chart:
    """Chart each scheme's errors in rising order."""
    name = "reconstruction_error"
    lines = [
        errors_line(label, scheme[name].values) for label, scheme in _schemes(results)
    ]
    return Chart.named(name, lines)


_CHARTS: dict[str, tuple[str, Callable[[xr.Dataset], Chart]]] = {
    "accuracy": ("accuracy", _simple("accuracy", "evaluation", y_range=(0.0, 100.0))),
    "loss": ("loss", _simple("loss", "evaluation")),
    "accuracy_epsilon": ("epsilon_worst", _accuracy_epsilon),
    OPENING: ("weak_lower", _overstatement),
    "weak_privacy": ("weak_lower", weak_chart),
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
    - `weak_privacy`: weak T over rounds between its bounds, of a simulation that keeps
      it (`keep = ["weak_privacy"]`).
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
        >>> history = [[1, 1, 0], [0, 1, 1], [0, 1, 0]]
        >>> found = mj.study.from_histories({"Random": history})
        >>> ax = mj.plotting.plot_study(found, "exposed_clients")
        >>> ax.lines[0].get_ydata().tolist()
        [0.0, 0.0, 3.0]
        >>> import xarray as xr  # a study that trains has epsilons, say
        >>> axes = ("scheme", "evaluation")
        >>> rows = {"epsilon_mean": (axes, [[1.0, 2.0]])}
        >>> rows["epsilon_worst"] = (axes, [[2.0, 4.0]])
        >>> found = xr.Dataset(rows, {"scheme": ["Random"], "evaluation": [10, 20]})
        >>> worst, mean = mj.plotting.plot_study(found, "epsilon").lines
        >>> mean.get_ydata().tolist(), worst.get_ydata().tolist()
        ([1.0, 2.0], [2.0, 4.0])
    """
    check_known(figure, "figure", _CHARTS, "a figure of studies")
    needed, make = _CHARTS[figure]
    require(needed in results, "figure", f"must be of a study with {needed}", figure)
    return draw(make(results), ax=ax)
