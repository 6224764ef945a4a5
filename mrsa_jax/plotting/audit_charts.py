"""Figures of an audit.

Who is exposed by when, and the bounds of privacy over the rounds of a log.
All take columns with a value for each round, as `mrsa-jax audit --out` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax.plotting.chart import Chart, Line, draw
from mrsa_watch._base.errors import check_known, require

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from mrsa_jax.dp import Amplification
    from mrsa_jax.privacy import CollusionRisk


def amplification_chart(costs: Amplification) -> Chart:
    """Return epsilon over T, with what each T buys below it."""
    at = np.arange(len(costs.privacy_targets), dtype=float)
    columns = costs.privacy_targets, costs.hidden_among, costs.cardinality
    ticks = [
        (float(k), f"{target} ({among:.3g}, {mean:.3g})")
        for k, (target, among, mean) in enumerate(zip(*columns, strict=True))
    ]
    blocks = Line("blocks of T against models, at least", at, costs.blocks)
    lines = [
        Line("against the server (exact)", at, costs.server),
        blocks._replace(low=costs.blocks, high=costs.server),
        Line("one by one against models (Poisson)", at, costs.one_by_one),
    ]
    return Chart.named("amplification", lines, words=vars(costs), ticks=ticks)


def plot_amplification(costs: Amplification, *, ax: Axes | None = None) -> Axes:
    """Plot epsilon over T.

    Against the server, against models in blocks, and one by one.
    The band is where the epsilon of blocks against models lies. Next to each T stands
    what it buys: among how many clients the worst is hidden from the server without any
    noise, and the mean clients per round.

    Args:
        costs: What `dp.amplification` returns.
        ax: Where to draw; a new figure if None.

    Returns:
        The axes.

    Examples:
        >>> import mrsa_jax as mj
        >>> costs = mj.dp.amplification(12, 6, [1, 3], 20, 2.0)
        >>> ax = mj.plotting.plot_amplification(costs)
        >>> ax.get_ylabel()
        'ε at δ = 1e-05'
    """
    return draw(amplification_chart(costs), ax=ax)


EXPOSED = "Exposed clients"
WEAK, STRONG, HIDDEN = "Weak T", "Strong T", "Worst client hidden among"
UPDATES = "Worst update hidden among"
LASTING = "What lasts, hidden among"
_UPDATES_WORDS = (
    " Worst update: the same of the update of one round so far, if clients are alike "
    "and their "
    "updates drift."
)
_LASTING_WORDS = (
    " What lasts: the same of what never changes about the worst client's updates, such "
    "as an attribute of the client."
)


def exposure_chart(data: Mapping[Any, Any], num_clients: int | None = None) -> Chart:
    """Chart the number of exposed clients after each round.

    All clients of the log are a level, where they are known.
    """
    rounds, label = _rounds(data)
    counts = np.asarray(data["exposed_clients"], float)
    line = Line(EXPOSED, rounds, counts, kind="step")
    # the level of all clients, where they are known
    everyone = () if num_clients is None else (float(num_clients),)
    return Chart.named(
        "exposure",
        [line],
        x_label=label,
        y_range=(0.0, *everyone),
        rules=tuple((level, "all clients of the log") for level in everyone),
    )


def privacy_chart(data: Mapping[Any, Any]) -> Chart:
    """Chart weak T after each round, and strong T and hidden among where known."""
    rounds, label = _rounds(data)
    lower, upper = (_above_zero(data[name]) for name in ("weak_lower", "weak_upper"))
    lines = [Line(WEAK, rounds, upper, kind="step")]
    if (lower < upper).any():
        lines = [
            Line(WEAK, rounds, lower, "at least", lower, upper, "step"),
            Line(WEAK, rounds, upper, "at most", kind="step"),
        ]
    for series, name in (
        (STRONG, "strong_privacy"),
        (HIDDEN, "hidden_among_worst"),
        (UPDATES, "update_hidden_worst"),
        (LASTING, "lasting_hidden_worst"),
    ):
        values = _above_zero(data[name]) if name in data else np.zeros(0)
        if np.isfinite(values).any():
            lines.append(Line(series, rounds, values, kind="step"))
    drawn = {line.series for line in lines}
    words = _UPDATES_WORDS * (UPDATES in drawn) + _LASTING_WORDS * (LASTING in drawn)
    return Chart.named("privacy", lines, words={"updates": words}, x_label=label)


def plot_audit_exposure(
    data: pd.DataFrame,
    *,
    num_clients: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how many clients' updates could be solved for after each round of a log.

    Args:
        data: Columns round and exposed_clients. Rounds without numbers are counted from
            1.
        num_clients: All of them, drawn as a line.
        ax: Where to draw; a new figure if None.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> rounds = pd.DataFrame({"round": [1, 2, 3], "exposed_clients": [0, 0, 2]})
        >>> ax = mj.plotting.plot_audit_exposure(rounds, num_clients=4)
        >>> ax.lines[0].get_ydata().tolist()
        [0.0, 0.0, 2.0]
    """
    return draw(exposure_chart(data.to_dict("list"), num_clients), ax=ax)


def plot_audit_privacy(data: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot weak T after each round of a log, and strong T and hidden among if known.

    Weak T lies in the band between its bounds, where these differ.

    Args:
        data: Columns round, weak_lower, weak_upper and maybe strong_privacy,
            hidden_among_worst, update_hidden_worst and lasting_hidden_worst; below 1 is
            left out. Rounds without numbers are counted from 1.
        ax: Where to draw; a new figure if None.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pandas as pd
        >>> rounds = pd.DataFrame({"round": [1, 2], "weak_lower": [3, 2]})
        >>> rounds["weak_upper"] = rounds["weak_lower"]
        >>> mj.plotting.plot_audit_privacy(rounds).lines[0].get_ydata().tolist()
        [3.0, 2.0]
    """
    return draw(privacy_chart(data.to_dict("list")), ax=ax)


def _rounds(data: Mapping[Any, Any]) -> tuple[np.ndarray, str]:
    """Return the rounds' places on the axis: their numbers, if these rise."""
    try:
        numbers = np.asarray(data["round"], float)
    except ValueError:
        numbers = np.zeros(0)
    if numbers.size and np.isfinite(numbers).all() and (np.diff(numbers) > 0).all():
        return numbers, "round"
    return np.arange(1.0, len(data["round"]) + 1), "rounds of the log, counted from 1"


def _above_zero(values: Any) -> np.ndarray:
    numbers = np.asarray(values, float)
    return np.where(numbers > 0, numbers, np.nan)


_WHO = {
    "each": "An honest client is exposed, mean over clients",
    "any": "Some honest client is exposed",
}
_ROUTES = {
    "either": ("by any route", "broad"),
    "sums": ("by the sums", "main solid"),
    "neighbours": ("by corrupt neighbours", "main dashed"),
}


def routes_chart(results: Mapping[str, CollusionRisk], who: str) -> Chart:
    """Chart the chance of exposure by the fraction of colluders, a line per route.

    Where no graph is known, the sums are the only route.
    """
    has_graph = any(risk.neighbours is not None for risk in results.values())
    lines = []
    for label, risk in results.items():
        order = np.argsort(risk.fractions)
        fractions = 100 * np.asarray(risk.fractions)[order]
        for name, (words, weight) in _ROUTES.items():
            route = getattr(risk, name)
            # without a graph the sums are the only route, and "either" repeats them
            if route is not None and (has_graph or name == "sums"):
                low, rate, high = (values[order] for values in _values(route, who))
                line = Line(label, fractions, rate, words * has_graph, weight=weight)
                if name == "sums":
                    line = line._replace(low=low, high=high)
                lines.append(line)
    return Chart.named("routes", lines, words={"who": _WHO[who]}, names_lines=has_graph)


def plot_exposure_routes(
    results: Mapping[str, CollusionRisk],
    *,
    who: Literal["each", "any"] = "each",
    ax: Axes | None = None,
) -> Axes:
    """Plot the chance of exposure against the fraction of colluders, by route.

    A colour for each scheme: a line for exposure by combinations of the sums, a dashed
    one by corrupt neighbours in SecAgg+'s graphs where there are any, and a broad pale
    one by either.

    Args:
        results: Label -> what `privacy.collusion_risk` returns for one history.
        who: `"each"` for the mean over honest clients, with a band from the client that
            is exposed least often to the one most often; `"any"` for the chance that
            somebody is, with its exact 95 % interval.
        ax: Where to draw; a new figure if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If there are no results, those of several histories, or
            `who` is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> import matplotlib.pyplot as plt
        >>> P = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]]
        >>> ax = mj.plotting.plot_exposure_routes(
        ...     {"mine": mj.privacy.collusion_risk(0, P, [0.0, 0.25, 0.5], 100)}
        ... )
        >>> len(ax.get_lines())
        1
        >>> plt.close(ax.figure)
    """
    check_known(who, "who", _WHO, "a known choice of clients")
    are_single = all(risk.either.exposing.ndim == 1 for risk in results.values())
    require(
        bool(results) and are_single,
        "results",
        "must map labels to chances of one history each",
        list(results),
    )
    return draw(routes_chart(results, who), ax=ax)


def _values(route: Any, who: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower end, rate and upper end for each fraction."""
    if who == "any":
        chance = route.any_client
        return chance.lower, chance.rate, chance.upper
    each = route.each_client.rate
    mean = route.exposed.sum(axis=-1) / route.honest.sum(axis=-1)
    return each.min(axis=-1), mean, each.max(axis=-1)
