"""The figures of a finished folder once more, as wide as a paper's column asks.

Everything is drawn from what the folder holds; nothing is run again.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from mrsa_jax import plotting
from mrsa_jax._errors import ConfigurationError, writing
from mrsa_jax.plotting._axes import draw
from mrsa_jax.study._plots import Plots, advice_plots, attack_plots, audit_plots
from mrsa_jax.study._run_folder import read_json, read_part


def redraw(folder: pathlib.Path, column: Any) -> tuple[pathlib.Path, ...]:
    """Draw a folder's figures again as PNG, SVG and PDF, and return the PNGs.

    A study's are those that its command drew. A sweep, whose command draws none, gets one of each
    quantity on its page, and its points as `points.csv`.

    Args:
        folder: Complete folder of a command.
        column: "single" or "double".

    Raises:
        ConfigurationError: If the width is unknown, or nothing in the folder is drawn from
            numbers: a reproduction's figures are as wide as their panels, images as their pixels.
        StoreError: If they cannot be written.
    """
    with plotting.style(column), writing(folder):
        if (folder / "results.zarr").is_dir():
            return _of_results(folder)
        plots = _plots(folder)
        if not plots:
            raise ConfigurationError(
                "`column` must be left out where figures are not drawn from numbers of the folder, "
                "as those of reproduce (several panels wide) and of images; got "
                f"{column!r} for {str(folder)!r}"
            )
        return _saved(plots, folder)


def _saved(plots: Plots, folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    return tuple(
        plotting.save_figure(plot, folder / name, apart=True)[0] for name, plot in plots.items()
    )


def _of_results(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Draw a study's figures, or a sweep's."""
    from mrsa_jax.study._store import open_study

    results = open_study(folder).load()
    if (read_json(folder / "study.json") or {}).get("command") != "sweep":
        return tuple(plotting.save_study_figures(results, folder).values())
    from mrsa_jax.study import _points
    from mrsa_jax.study._report_sweep import default_axes
    from mrsa_jax.study._sweep_figures import sweep_charts

    table = _points.points(results)
    x, hue = default_axes(results, table)
    charts = sweep_charts(results, table, x, hue)
    table.to_csv(folder / "points.csv", index=False)
    return _saved({name: functools.partial(draw, own) for name, own in charts.items()}, folder)


def _plots(folder: pathlib.Path) -> Plots:
    """Return what draws the figures of a folder without a data set."""
    if (folder / "scores.json").is_file():
        content = read_part(folder / "scores.json", "summary", "scores")
        return attack_plots(content["summary"], content["scores"])
    if (folder / "advice.json").is_file():
        return advice_plots(read_part(folder / "advice.json", "options")["options"])
    if (folder / "recipe.csv").is_file():  # of an audit in which somebody took part
        import pandas as pd

        found = read_part(folder / "audit.json", "findings")["findings"]
        rounds = pd.read_csv(folder / "rounds.csv")
        return audit_plots(rounds, found.get("num_clients"), is_exposed=bool(found["exposed"]))
    return {}
