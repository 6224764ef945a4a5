"""A sweep on the workers of dask.distributed: processes of this machine, or a cluster's.

Workers write into the store themselves and claim points as any process does, so a worker that
dies loses the points in flight only, and dask gives these to another. All of them must see the
folder of the store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, MrsaError
from mrsa_jax._extras import needed
from mrsa_jax._plugins import load_plugins, loaded_plugins
from mrsa_jax.study import _store
from mrsa_jax.study._progress import Progress, Silent
from mrsa_jax.study.sweeps._count import Count
from mrsa_jax.study.sweeps._engine import compute
from mrsa_jax.study.sweeps._plan import Plan
from mrsa_jax.study.sweeps._store import SweepStore, check_sweep_output

if TYPE_CHECKING:
    import xarray as xr

_TASKS_EACH = 4  # of each worker, so that they end at about the same time
_SECONDS_TO_CONNECT = 10


class WorkersError(MrsaError, RuntimeError):
    """Workers died again and again over the same points."""


def run_on_workers(
    plan: Plan,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> xr.Dataset:
    """Compute the points that are missing in the store on dask's workers, and open it.

    Args:
        plan: As `plan_sweep` returns it.
        progress: Receives how many points are done.
        workers: Processes of this machine to start.
        scheduler: Address of a scheduler that is running, such as `"tcp://host:8786"`.

    Returns:
        The store, lazily loaded.

    Raises:
        ConfigurationError: If dask is not installed, or the scheduler does not answer.
        WorkersError: If workers die again and again.
        StoreError: If the store cannot be written.
    """
    check_sweep_output(plan.sweep)
    if workers is not None:  # of this machine; a scheduler's have memory of their own
        plan.check_memory(workers)
    with (
        _client(workers, scheduler) as client,
        contextlib.closing(plan.open_store()) as store,
    ):
        cut = _cut(plan, max(1, len(client.scheduler_info()["workers"])))
        count = Count(cut, store, progress or Silent())
        for tasks in count.passes():
            _compute_all(client, cut, tasks, count)
    return _store.open_study(plan.sweep.out)


def _cut(plan: Plan, workers: int) -> Plan:
    """Return the plan in tasks of which each worker has some."""
    groups = []
    for group in plan.groups:
        share = -(-len(group.numbers) // (workers * _TASKS_EACH))
        groups.append(dataclasses.replace(group, together=max(1, min(group.together, share))))
    return dataclasses.replace(plan, groups=tuple(groups))


def _compute_all(client: Any, plan: Plan, tasks: Sequence[tuple[int, ...]], count: Count) -> None:
    from distributed import KilledWorker, as_completed

    futures = [
        client.submit(_work, loaded_plugins(), plan.of_task(task), pure=False) for task in tasks
    ]
    try:
        for done in as_completed(futures):
            for number in done.result():
                count.add(number)
    except KilledWorker as error:
        raise WorkersError(
            "workers died again and again over the same points (out of memory?); what is complete "
            f"is kept in {plan.sweep.out}: {error}"
        ) from error
    finally:
        client.cancel(futures)


def _work(plugins: dict[str, dict[str, str]], plan: Plan) -> list[int]:
    """Compute points on a worker; return those that were written."""
    if plugins != loaded_plugins():
        load_plugins(plugins)
    written: list[int] = []
    with contextlib.closing(SweepStore(plan.sweep)) as store:
        compute(plan, store, list(plan.points), written.append)
    return written


@contextlib.contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Connect to a scheduler, or start a cluster of processes for the time of the block."""
    rule = "`workers` must be left out where dask is missing"
    distributed = needed("distributed", "dask", rule)
    if scheduler is None:
        with (
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(scheduler, timeout=_SECONDS_TO_CONNECT)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"`scheduler` must answer; got {scheduler!r}, which does not within "
            f"{_SECONDS_TO_CONNECT} s: {error}"
        ) from error
    with client:
        yield client
