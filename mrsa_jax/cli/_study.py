"""`mrsa-jax demo | simulate | train`: run a study, print its table, write its folder."""

from __future__ import annotations

import sys
from typing import Any

from mrsa_jax.cli._console import print_sentences, print_table
from mrsa_jax.cli._run import run_kind
from mrsa_jax.study import DemoConfig, SimulateConfig, TrainConfig


def run_study(config: DemoConfig | SimulateConfig | TrainConfig) -> int:
    """Run a configured study and return the exit status."""
    devices = 1 if isinstance(config, SimulateConfig) else config.resources.devices
    saved, seconds = run_kind(config, lambda saved: _print(config, saved), devices=devices)
    if not config.json:
        path = saved.out / "report.html"
        sys.stdout.write(f"\nWritten in {seconds:.0f} s; open {path}\n")
    return 0


def _print(config: DemoConfig | SimulateConfig | TrainConfig, saved: Any) -> None:
    population = config.population
    trials = f"{config.trials} trials, " if isinstance(config, SimulateConfig) else ""
    console = print_table(
        *saved.table,
        title=f"{population.num_clients} clients, {population.cohort_size} a round, "
        f"{config.rounds} rounds, {trials}seed {config.seed}",
        width=136,
    )
    console.print(saved.reading, style="dim", highlight=False)
    print_sentences(console, saved.sentences, "\n")
    is_alone = len(saved.rows) == 1
    for label, words in saved.performance.items():
        text = f"\n{words}" if is_alone else f"{label}: {words}"
        console.print(text, style="dim", highlight=False, markup=False)
