"""Grids of settings of a command: their axes, one store, and what computes its points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_jax.study.sweeps._axes import Sweep, load_sweep, parse_sweep, sweep_of

if TYPE_CHECKING:
    from mrsa_jax.study._runner import Machine
    from mrsa_jax.study.sweeps._dask import run_on_workers
    from mrsa_jax.study.sweeps._engine import run_sweep
    from mrsa_jax.study.sweeps._hosts import join_hosts, run_on_hosts
    from mrsa_jax.study.sweeps._plan import Plan, plan_sweep
    from mrsa_jax.study.sweeps._store import SweepStore, check_sweep_output

__all__ = [
    "Machine",
    "Plan",
    "Sweep",
    "SweepStore",
    "check_sweep_output",
    "join_hosts",
    "load_sweep",
    "parse_sweep",
    "plan_sweep",
    "run_on_hosts",
    "run_on_workers",
    "run_sweep",
    "sweep_of",
]

__getattr__, __dir__ = late_names(__name__)
