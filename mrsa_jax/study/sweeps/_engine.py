"""Run a sweep: compute the points that its folder lacks, and put the results together.

One process computes them, or several workers of dask.distributed. Workers write into
the store themselves and claim points as any process does, so a worker that dies loses
the points in flight only, and dask gives these to another. All of them must see the
folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.registry import load_plugins, loaded_plugins
from mrsa_jax.study._progress import Progress, checked_progress, note, warn
from mrsa_jax.study.publishing._accessor import open_study
from mrsa_jax.study.stores._records import Index
from mrsa_jax.study.stores._runner import Runner
from mrsa_jax.study.sweeps._main_guard import check_main
from mrsa_jax.study.sweeps._plan import Plan, Task
from mrsa_jax.study.sweeps._store import SweepStore
from mrsa_watch._base.errors import ConfigurationError, MrsaError, needed

if TYPE_CHECKING:
    import xarray as xr

_SECONDS_TO_WAIT = 0.5  # for points that another process computes
_SECONDS_TO_CONNECT = 10  # to a scheduler
_TASKS_EACH = 4  # of each worker, so that they end at about the same time


class WorkersError(MrsaError, RuntimeError):
    """Workers died again and again over the same points."""


class Count:
    """Count the cells that are done, and report them as progress."""

    def __init__(self, plan: Plan, store: SweepStore, progress: Progress) -> None:
        """Read the store, and begin the stage."""
        self._plan = plan
        self._store = store
        self._total = sum(plan.num_cells.values())
        self._progress = progress
        # before anything is counted: other processes may have filled the folder
        store.index.refresh()
        indices = [store.index]
        if plan.sweep.reuse is not None:
            indices.append(Index(plan.sweep.reuse).refresh())
            self._reuse(indices[-1])
        self.missing = set(plan.points)
        self._forget_done()
        for index in indices:
            for loss in index.losses():
                warn(progress, f"{loss}: points that they held are computed again")
        progress.stage(f"sweep of {plan.sweep.kind.name}", self._total)
        for words in plan.changed(store.index):
            note(progress, words)
        done = self._num_done()
        if done:
            note(progress, f"{done} of {self._total} points are there already")
        self._show()

    def add(self, number: int) -> None:
        """Count a computed point, with all cells that it fills."""
        self.missing.discard(number)
        self._show()

    def passes(self) -> Iterator[list[Task]]:
        """Yield all tasks to be done, again and again until nothing is missing.

        Points that another process holds are tried again, after a pause if nothing else
        was done: that process may have been killed.
        """
        while self.missing:
            # points of this pass shorten `missing` by `add`, while the caller runs the
            # tasks
            before = len(self.missing)
            yield self._plan.tasks(self._store.index)
            # all points left are held by others: poll, do not spin
            if len(self.missing) == before:
                time.sleep(_SECONDS_TO_WAIT)
            if self.missing:
                self._store.index.refresh()
                self._forget_done()
                self._show()

    def _reuse(self, other: Index) -> None:
        """Take the records of another folder that have more trials than this store."""
        plan = self._plan
        for number in plan.identities:
            trials_here = plan.there(self._store.index, number)
            for record in plan.parts(other, number):
                # a record that ends no later adds no trials here
                if record.end > trials_here:
                    self._store.take(record.frame())

    def _forget_done(self) -> None:
        plan = self._plan
        index = self._store.index
        self.missing = {
            number
            for number in self.missing
            if plan.there(index, number) < plan.trials(number)
        }

    def _num_done(self) -> int:
        return self._total - sum(self._plan.num_cells[n] for n in self.missing)

    def _show(self) -> None:
        self._progress.update(self._num_done(), self._total)


def run_sweep(plan: Plan, progress: Progress | None = None) -> xr.Dataset:
    """Compute the points that are missing in the store, and open it.

    An interruption loses only the points in flight; a later call, or another process at
    the same time, does the rest.

    Args:
        plan: As `plan_sweep` returns it.
        progress: Receives how many points are done.

    Returns:
        The store, lazily loaded.

    Raises:
        OutputExistsError: If the folder holds something else.
        StoreError: If it cannot be written.
        ConfigurationError: If a point needs more memory than this machine has.
    """
    return run_on_workers(plan, progress)


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
    complete(plan, progress, workers=workers, scheduler=scheduler)
    return open_study(plan.sweep.out)


def complete(
    plan: Plan,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> int:
    """Compute what is missing without opening the store, which loads xarray.

    Args:
        plan: As `plan_sweep` returns it.
        progress: Receives how many points are done.
        workers: Processes of this machine to start; None: this process, or a scheduler.
        scheduler: Address of a running scheduler.

    Returns:
        Number of cells that are done: all that are possible.
    """
    # the memory of a scheduler's workers is that of other machines
    if scheduler is None:
        plan.check_memory(workers or 1)
    with contextlib.ExitStack() as stack:
        client = None
        if workers is not None or scheduler is not None:
            client = stack.enter_context(_client(workers, scheduler))
            plan = _cut(plan, max(1, len(client.scheduler_info()["workers"])))
        # after the workers: a scheduler that does not answer creates no folder
        store = stack.enter_context(contextlib.closing(plan.open_store()))
        count = Count(plan, store, checked_progress(progress))
        for tasks in count.passes():
            if client is not None:
                _compute_all(client, plan, tasks, count)
                continue
            for task in tasks:
                compute(plan, store, task, count.add)
        store.show()
    return sum(plan.num_cells.values())


def compute(
    plan: Plan, store: SweepStore, task: Task, on_done: Callable[[int], None]
) -> None:
    """Compute points that no other process computes, and write each as it is done.

    Args:
        plan: With these points.
        store: Its store.
        task: Which trials of which points.
        on_done: Called with the number of each point that was written.
    """
    keys = {number: plan.identities[number].key for number in task.numbers}
    # claimed first and checked then: a point finished in between is skipped
    with store.claim(keys) as claimed:
        numbers = tuple(
            number
            for number in claimed
            if plan.there(store.index, number) == task.first
        )
        if not numbers:
            return
        plan.check_unchanged(numbers)
        task = dataclasses.replace(task, numbers=numbers)
        # points come one by one from a lazy iterator, so each is timed by itself
        start = time.perf_counter()
        for number, values in zip(numbers, computed(plan, task), strict=True):
            seconds = time.perf_counter() - start
            # again: a file may have been replaced meanwhile
            plan.check_unchanged([number])
            first = task.first
            count = task.count
            # a record of all trials together is replaced by one of them and the new
            if plan.is_whole and first:
                (before,) = plan.parts(store.index, number, first)
                values = plan.sweep.kind.runner().joined(
                    (before.values(plan.variables), values), (first, count)
                )
                count += first
                first = 0
                seconds += before.seconds
            store.write(plan.identities[number], first, count, values, seconds)
            on_done(number)
            start = time.perf_counter()


def computed(plan: Plan, task: Task) -> Iterator[dict[str, np.ndarray]]:
    """Compute the trials of a task's points, one after another."""
    runner: Runner = plan.sweep.kind.runner()
    configs = [plan.config(task, number) for number in task.numbers]
    more = {"first": task.first} if task.first else {}
    return runner.run_points(
        configs, plan.machine, plan.sweep.kept, task.together, **more
    )


def _cut(plan: Plan, workers: int) -> Plan:
    """Return the plan with smaller tasks, some for each worker."""
    groups = []
    for group in plan.groups:
        # rounded up: about `_TASKS_EACH` tasks per worker, more where memory keeps them
        # small
        most = -(-len(group.numbers) // (workers * _TASKS_EACH))
        together = max(1, min(group.together, most))
        groups.append(dataclasses.replace(group, together=together))
    return dataclasses.replace(plan, groups=tuple(groups))


def _compute_all(client: Any, plan: Plan, tasks: Sequence[Task], count: Count) -> None:
    """Let workers compute tasks, and count their points as they come."""
    from distributed import KilledWorker, as_completed

    futures = [
        # `pure=False`: a task that ran before is not answered from dask's cache
        client.submit(_work, loaded_plugins(), plan.of_task(task), task, pure=False)
        for task in tasks
    ]
    try:
        for done in as_completed(futures):
            for number in done.result():
                count.add(number)
    except KilledWorker as error:
        raise WorkersError(
            "workers died again and again over the same points (out of memory?); what "
            "is complete "
            f"is kept in {plan.sweep.out}: {error}"
        ) from error
    finally:
        # after an interruption too, so that workers do not fill the store unobserved
        client.cancel(futures)


def _work(plugins: dict[str, dict[str, str]], plan: Plan, task: Task) -> list[int]:
    """Compute points on a worker; return those that were written."""
    # plugins may print, which must not get among the first process's results
    if plugins:
        sys.stdout = sys.stderr
    if plugins != loaded_plugins():
        load_plugins(plugins)
    written: list[int] = []
    # opened for each task, as dask may send the next one elsewhere
    with contextlib.closing(SweepStore(plan.sweep)) as store:
        compute(plan, store, task, written.append)
    return written


@contextlib.contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Connect to a scheduler, or start processes of this machine for the block."""
    rule = "`workers` must not be set if dask is missing"
    distributed = needed("distributed", "dask", rule)
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            check_main(distributed, workers)
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            address = stack.enter_context(cluster)
        else:
            address = scheduler
        try:
            client = distributed.Client(address, timeout=_SECONDS_TO_CONNECT)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"`scheduler` must answer; got {scheduler!r}, which does not within "
                f"{_SECONDS_TO_CONNECT} s: {error}"
            ) from error
        yield stack.enter_context(client)
