"""`mrsa-jax demo | simulate | train`: run a study, print its table, write its folder."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax.cli._console import Bars, escape, use_cores
from mrsa_jax.study import _config, validate

if TYPE_CHECKING:
    from mrsa_jax.study import SavedStudy


def run_study(config: _config.Config) -> int:
    """Run a configured study and return the exit status."""
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    if not isinstance(config, _config.SimulateConfig):
        use_cores(config.resources.devices)
    from mrsa_jax import study

    study.check(config)
    start = time.perf_counter()
    with Bars() as bars:

        def show(saved: SavedStudy) -> None:
            bars.rest()
            _print_json(saved) if config.json else _print_table(config, saved)

        saved = study.run_and_save(config, bars, show)
    if not config.json:
        path, seconds = saved.out / "report.html", time.perf_counter() - start
        sys.stdout.write(f"\nWritten in {seconds:.0f} s; open {path}\n")
    return 0


def _print_json(saved: SavedStudy) -> None:
    content = {
        "out": str(saved.out),
        "rows": [dataclasses.asdict(row) for row in saved.rows],
        "sentences": list(saved.sentences),
        "performance": saved.results.attrs.get("performance", {}),
    }
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def _print_table(config: _config.Config, saved: SavedStudy) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from mrsa_jax.study import _report

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    population = config.population
    trials = f"{config.trials} trials, " if isinstance(config, _config.SimulateConfig) else ""
    table = Table(
        title=f"{population.num_clients} clients, {population.cohort_size} a round, "
        f"{config.rounds} rounds, {trials}seed {config.seed}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    used = _report.used_columns(saved.rows)
    for i in used:
        table.add_column(_report.COLUMNS[i], justify="left" if i == 0 else "right")
    for row in saved.rows:
        line = _report.cells(row)
        table.add_row(*(escape(line[i]) for i in used))
    console.print(table)
    console.print(_report.reading(saved.rows), style="dim", highlight=False)
    for sentence in saved.sentences:
        console.print(f"\n{sentence}", highlight=False, markup=False)
    for record in saved.results.attrs.get("performance", {}).items():
        _print_performance(console, *record, is_alone=len(saved.rows) == 1)


def _print_performance(console: Any, label: str, record: dict[str, Any], *, is_alone: bool) -> None:
    from mrsa_jax.study._progress import performance_words

    words = performance_words(record)
    text = words if is_alone else f"{label}: {words}"
    console.print(f"\n{text}" if is_alone else text, style="dim", highlight=False, markup=False)
