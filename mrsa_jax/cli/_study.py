"""`mrsa-jax demo | simulate | train`: run a study, print its table, write its folder.

What a server can know is printed before anything is trained. On a terminal the table
then fills in place, that of `simulate` scheme by scheme; elsewhere a line follows for
each scheme that is trained, and the whole table last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mrsa_jax.cli._run import run_kind
from mrsa_jax.cli.console import Bars, output_console, print_sentences
from mrsa_jax.cli.tables import Table
from mrsa_jax.study import DemoConfig, SimulateConfig, TrainConfig

_Config = DemoConfig | SimulateConfig | TrainConfig

_WIDTH = 164
_SPARE = ("Expected C", "Skipped", "Rank", "F", "Expected F", "From", "Weak T")
_LEVELS = "▁▂▃▄▅▆▇█"
_MOST_LEVELS = 6  # of a curve, side by side
_READING = " Bars: the worst client, from the first round to the last."
_NEXT = (
    "Next: mrsa-jax audit FILE says the same of your own system's participation log.\n"
)


def run_study(config: _Config) -> int:
    """Run a configured study and return the exit status."""
    devices = 1 if isinstance(config, SimulateConfig) else config.resources.devices
    saved, seconds = run_kind(
        config,
        lambda saved: _print(config, saved),
        devices=devices,
        early=_as_it_comes(config),
    )
    if not config.json:
        path = saved.out / "report.html"
        sys.stdout.write(f"\nWritten in {seconds:.0f} s; open {path}\n")
        if isinstance(config, DemoConfig):
            sys.stdout.write(_NEXT)
    return 0


def _as_it_comes(config: _Config) -> Callable[[Any, Bars], None]:
    """Return a function that shows a study in progress."""
    num_printed = 0

    def show(saved: Any, bars: Bars) -> None:
        nonlocal num_printed
        learnt = [row for row in saved.rows if row.accuracy is not None]
        if bars.is_live:
            from rich.console import Group
            from rich.text import Text

            first = Text(saved.sentences[0], no_wrap=False, overflow="fold")
            bars.draw(Group(first, "", _table(config, saved)))
        elif isinstance(config, SimulateConfig):
            return
        elif not learnt:
            console = output_console(_WIDTH)
            print_sentences(console, saved.sentences[:1])
            console.print(_table(config, saved))
        elif len(learnt) < len(saved.rows):  # the whole table comes after the last
            for row in learnt[num_printed:]:
                error = row.reconstruction_error
                more = (
                    ""
                    if error is None
                    else f", error {error:.2g} if updates never changed"
                )
                sys.stdout.write(
                    f"{row.scheme}: {row.percent_right:.1f} % accuracy{more}\n"
                )
        num_printed = len(learnt)
        sys.stdout.flush()

    return show


def _table(config: _Config, saved: Any) -> Any:
    population = config.population
    trials = f"{config.trials} trials, " if isinstance(config, SimulateConfig) else ""
    headings, rows = saved.table
    if "Hidden among" in headings:
        place = headings.index("Hidden among")
        for row, bars in zip(rows, _curves(saved.results), strict=True):
            row[place] = f"{bars} {row[place]}"
    title = f"{population.num_clients} clients, {population.cohort_size} per round, "
    title += f"{config.rounds} rounds, {trials}seed {config.seed}"
    return Table(headings, rows, title, spare=_SPARE)


def _curves(results: Any) -> list[str]:
    """Return each scheme's hidden among of the worst client, over rounds, as bars."""
    import numpy as np

    worst = results["hidden_among_worst"]
    worst = worst.min("trial") if "trial" in worst.dims else worst
    paths = worst.transpose("scheme", "round").values
    # one scale for all schemes, so that their bars can be compared
    most = float(np.nanmax(paths, initial=1.0, where=np.isfinite(paths)))
    rounds = paths.shape[1]
    # rounds evenly spread, the first and the last among them
    places = np.linspace(0, rounds - 1, min(rounds, _MOST_LEVELS)).round().astype(int)
    return [sparkline(path[places].tolist(), most) for path in paths]


def sparkline(values: list[float], most: float) -> str:
    """Return values from 1 to `most` as bars; a blank where there is none.

    Examples:
        >>> sparkline([12.0, 4.0, 1.0, float("nan")], 12.0)
        '█▃▁ '
    """
    # the lowest bar is 1, an exposed client, and not 0
    step = (len(_LEVELS) - 1) / max(most - 1, 1e-9)
    return "".join(
        _LEVELS[round((min(value, most) - 1) * step)] if value >= 1 else " "
        for value in values
    )


def _print(config: _Config, saved: Any) -> None:
    console = output_console(_WIDTH)
    console.print(_table(config, saved))
    reading = saved.reading + _READING * any(row.hidden_among for row in saved.rows)
    console.print(reading, style="dim", highlight=False)
    print_sentences(console, saved.sentences, "\n")
    if len(saved.rows) == 1:
        for words in saved.performance.values():
            console.print(f"\n{words}", style="dim", highlight=False, markup=False)
