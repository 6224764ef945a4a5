"""Figure of who is exposed by any route when a fraction of the clients colludes with the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mrsa_jax._checks import check_known
from mrsa_jax._errors import require
from mrsa_jax.plotting._colours import scheme_colour
from mrsa_jax.plotting._names import legend, plain
from mrsa_jax.plotting._style import caption, drawing, nobody

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mrsa_jax.privacy import CollusionRisk

_WHO = {
    "each": "An honest client is exposed, mean over clients",
    "any": "Some honest client is exposed",
}
_ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "either": ("by any route", {"ls": "-", "lw": 6.0, "alpha": 0.22, "solid_capstyle": "butt"}),
    "sums": ("by the sums", {"ls": "-", "marker": "o", "ms": 3.5}),
    "neighbours": ("by corrupt neighbours", {"ls": "--", "lw": 1.4}),
}  # fmt: skip


def plot_exposure_routes(
    results: Mapping[str, CollusionRisk],
    *,
    who: Literal["each", "any"] = "each",
    ax: Axes | None = None,
) -> Axes:
    """Plot the chance of exposure against the fraction of clients who collude, by route.

    A colour for each scheme: a line for exposure by combinations of the sums, a dashed one by
    corrupt neighbours in SecAgg+'s graphs where there are any, and a broad one by either.

    Args:
        results: Label -> what `privacy.collusion_risk` returns for one history.
        who: `"each"` for the mean over honest clients, with a band from the client that is exposed
            least often to the one most often; `"any"` for the chance that somebody is, with its
            exact 95 % interval.
        ax: Where to draw; a figure of its own if None.

    Returns:
        The axes.

    Raises:
        ConfigurationError: If there are no results, those of several histories, or `who` is
            unknown.

    Examples:
        >>> import matplotlib.pyplot as plt
        >>> from mrsa_jax.privacy import collusion_risk
        >>> P = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]]
        >>> ax = plot_exposure_routes({"mine": collusion_risk(0, P, [0.0, 0.25, 0.5], 100)})
        >>> len(ax.get_lines())
        1
        >>> plt.close(ax.figure)
    """
    from matplotlib.lines import Line2D

    check_known(who, "who", _WHO, "a known choice of clients")
    single = bool(results) and all(own.either.exposing.ndim == 1 for own in results.values())
    require(single, "results", "must map labels to chances of one history each", list(results))
    has_graph = any(own.neighbours is not None for own in results.values())
    routes = _ROUTES if has_graph else {"sums": _ROUTES["sums"]}
    with drawing(ax) as ax:
        for label, own in results.items():
            order = np.argsort(own.fractions)
            shares = 100 * np.asarray(own.fractions)[order]
            colour = scheme_colour(label)
            for name, (_, look) in routes.items():
                route = getattr(own, name)
                if route is None:  # of a result without a graph
                    continue
                low, rate, high = (values[order] for values in _values(route, who))
                if name == "sums":
                    ax.fill_between(shares, low, high, color=colour, alpha=0.13, lw=0)
                ax.plot(shares, rate, color=colour, **look)
        ax.set(xlabel="clients who collude with the server (%)", ylabel="chance of exposure",
               ylim=(-0.02, 1.02))  # fmt: skip
        caption(ax, f"{_WHO[who]}.")
        chances = [_values(own.either, who)[2] for own in results.values()]
        nobody(ax, np.concatenate(chances), "nobody is exposed in any draw")
        keys = [Line2D([], [], color=scheme_colour(label), label=plain(label)) for label in results]
        if has_graph:
            keys += [Line2D([], [], color="#555555", label=own, **look)
                     for own, look in routes.values()]  # fmt: skip
        legend(ax, handles=keys)
    return ax


def _values(route: Any, who: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower end, rate and upper end for each fraction."""
    if who == "any":
        chance = route.any_client
        return chance.lower, chance.rate, chance.upper
    each = route.each_client.rate
    return (
        each.min(axis=-1),
        route.exposed.sum(axis=-1) / route.honest.sum(axis=-1),
        each.max(axis=-1),
    )
