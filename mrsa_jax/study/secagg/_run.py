"""Runs what `SecaggConfig` asks for: one round, or a study of failures."""

from __future__ import annotations

from mrsa_jax.study._findings import Findings
from mrsa_jax.study._progress import Progress, note
from mrsa_jax.study._secagg_config import SecaggConfig
from mrsa_jax.study.secagg._failures import run_failures
from mrsa_jax.study.secagg._memory import stated_memory
from mrsa_jax.study.secagg._round import run_round

check = stated_memory


def run(config: SecaggConfig, progress: Progress) -> Findings:
    """Run a round or a study."""
    note(progress, check(config))
    return (run_round if config.trials is None else run_failures)(config, progress)
