"""A sweep on several hosts at once by `jax.distributed`: every point is shared by all of them.

All processes go through the same points in the same order, each with its devices' share of the
trials or clients; the first one decides what is missing, and writes. (Points of their own for each
process need no such thing: start several sweeps on one store, or use dask's workers.)
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax.study import _store
from mrsa_jax.study._progress import Progress, Silent
from mrsa_jax.study._sweep import Count, Plan
from mrsa_jax.study._sweep_kinds import runner_of
from mrsa_jax.study._sweep_points import Runner
from mrsa_jax.study._sweep_store import SweepStore, check_sweep_output

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["join_hosts", "run_on_hosts"]

_SECONDS_TO_JOIN = 60


def join_hosts(
    coordinator: str | None, num_processes: int | None = None, process_index: int | None = None
) -> None:
    """Connect this process to the others; to be called before JAX computes anything.

    Args:
        coordinator: Address of the first process, such as `"10.0.0.1:1234"`; None where the
            cluster's manager says all (SLURM, Open MPI, Kubernetes, cloud TPUs).
        num_processes: How many there are.
        process_index: Which one this is, from 0.

    Raises:
        ConfigurationError: If the others do not come within a minute, or an index is out of range.
    """
    if num_processes is not None and process_index is not None:
        require(num_processes >= 1, "num_processes", "must be at least 1", num_processes)
        rule = "must lie in [0, num_processes)"
        good = 0 <= process_index < num_processes
        require(good, "process_index", rule, process_index, num_processes)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes=num_processes,
            process_id=process_index,
            initialization_timeout=_SECONDS_TO_JOIN,
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(
            f"`coordinator` must answer, and all processes come; got {coordinator!r}: {error}"
        ) from error


def run_on_hosts(plan: Plan, progress: Progress | None = None) -> xr.Dataset | None:
    """Compute the points that are missing with the devices of all hosts.

    Args:
        plan: As `plan_sweep` returns it, the same in all processes.
        progress: Receives how many points are done; of use in the first process.

    Returns:
        In the first process the store, lazily loaded; None in the others.

    Raises:
        OutputExistsError: If the folder holds something else.
        StoreError: If it cannot be written.
    """
    is_first = jax.process_index() == 0
    store = _opened(plan) if is_first else None
    runner: Runner = runner_of(plan.sweep.kind)
    machine = dataclasses.replace(plan.machine, devices=len(jax.devices()))
    count = None if store is None else Count(plan, store, progress or Silent())
    try:
        for task in plan.tasks():
            wanted = None
            if count is not None:
                wanted = [any(c in count.missing for c in plan.twins[n]) for n in task]
            chosen = _told(wanted, len(task))
            jobs = plan.jobs([n for n, own in zip(task, chosen, strict=True) if own])
            if not jobs:
                continue
            configs = [job.config for job in jobs]
            results = runner.run(configs, machine, plan.sweep.trajectories, jobs[0].together)
            for job, values in zip(jobs, results, strict=True):
                if store is not None and count is not None:
                    for index in job.cells:
                        store.write(index, values, np.nan)
                    count.add(job.number)
    finally:
        if store is not None:
            store.close()
    return _store.open_study(plan.sweep.out) if is_first else None


def _opened(plan: Plan) -> SweepStore:
    check_sweep_output(plan.sweep)
    return plan.open_store()


def _told(values: list[bool] | None, length: int) -> np.ndarray:
    """Return what the first process says, in all of them."""
    from jax.experimental import multihost_utils

    own: Any = np.zeros(length, bool) if values is None else np.asarray(values, bool)
    return np.asarray(multihost_utils.broadcast_one_to_all(own))
