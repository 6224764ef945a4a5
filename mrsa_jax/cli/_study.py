"""`mrsa-jax demo | simulate | train`: run a study, print its table, write its folder."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax.cli._console import Bars, print_table, use_cores
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
    from mrsa_jax.study import _report

    population = config.population
    trials = f"{config.trials} trials, " if isinstance(config, _config.SimulateConfig) else ""
    used = _report.used_columns(saved.rows)
    lines = map(_report.cells, saved.rows)
    console = print_table(
        [_report.COLUMNS[i] for i in used],
        [[line[i] for i in used] for line in lines],
        title=f"{population.num_clients} clients, {population.cohort_size} a round, "
        f"{config.rounds} rounds, {trials}seed {config.seed}",
    )
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
