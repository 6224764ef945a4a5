"""What draws the figures of attacks, audits and advices, from what their folders hold too."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax import plotting
from mrsa_jax.plotting._attacks import Rows
from mrsa_jax.plotting._axes import draw
from mrsa_jax.study._attack_charts import attack_charts

if TYPE_CHECKING:
    import pandas as pd

Plots = dict[str, Callable[..., Any]]
"""What draws a figure on the axes `ax`, by name."""

_SIZES = {"num_clients": "N", "cohort_size": "K"}
_SHOWN = ("weak_lower", "strong_privacy", "hidden_worst", "cardinality", "cardinality_interval")


def attack_plots(summary: Rows, scores: Rows) -> Plots:
    """Return what draws an attack's figures; nothing where its scores are of images.

    Args:
        summary: A row for each thing that was attacked.
        scores: A row for each client, or for each rate of false positives.
    """
    charts = attack_charts(summary, scores)
    return {name: functools.partial(draw, chart) for name, chart in charts.items()}


def audit_plots(rounds: pd.DataFrame, num_clients: int | None, *, is_exposed: bool) -> Plots:
    """Return what draws an audit's figures.

    Args:
        rounds: What was known after each round of the log.
        num_clients: All clients of the log.
        is_exposed: Whether anybody is.
    """
    plots: Plots = {"weak_privacy": functools.partial(plotting.plot_audit_privacy, rounds)}
    if is_exposed:
        plots["exposed_clients"] = functools.partial(
            plotting.plot_audit_exposure, rounds, num_clients=num_clients
        )
    return plots


def option_labels(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a label for each scheme of an advice, with its sizes where others have the same.

    Args:
        options: The schemes, as its `advice.json` has them.
    """
    labels = [str(one["label"]) for one in options]
    found = []
    for label, own in zip(labels, options, strict=True):
        alike = [one for other, one in zip(labels, options, strict=True) if other == label]
        sizes = [f"{symbol} = {own.get(name)}" for name, symbol in _SIZES.items()
                 if len({str(one.get(name)) for one in alike}) > 1]  # fmt: skip
        found.append(f"{label} ({', '.join(sizes)})" if sizes else label)
    return found


def advice_plots(options: Sequence[Mapping[str, Any]]) -> Plots:
    """Return what draws an advice's figure; nothing where no scheme's sums are known.

    Args:
        options: The schemes, as its `advice.json` has them.
    """
    drawn = {
        label: types.SimpleNamespace(**{name: one[name] for name in _SHOWN})
        for label, one in zip(option_labels(options), options, strict=True)
        if all(one[name] is not None for name in _SHOWN)
    }
    return {"options": functools.partial(plotting.plot_designs, drawn)} if drawn else {}
