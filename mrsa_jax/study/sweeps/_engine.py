"""How a sweep is run.

What its folder lacks is computed, and the results are put together.
By one process, or by several: workers of dask.distributed, or hosts that share each
point. Workers write into the store themselves and claim points as any process does, so
a worker that dies loses the points in flight only, and dask gives these to another. All
of them must see the folder.

On several hosts, by `jax.distributed`, every point is shared by all.
All processes go through the same points in the same order, each with its devices' share
of the trials or clients. The first one claims points as a process alone does, so that
other sweeps on the store leave them to it, says which come next, and writes them.
(Separate points for each process need no such thing: start several sweeps on one store,
or use dask's workers.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mrsa_jax._core.registry import load_plugins, loaded_plugins
from mrsa_jax.study import _store
from mrsa_jax.study._progress import Progress, checked_progress, note, warn
from mrsa_jax.study._records import Index
from mrsa_jax.study._runner import Runner
from mrsa_jax.study.sweeps._main_guard import check_main
from mrsa_jax.study.sweeps._plan import Plan, Task
from mrsa_jax.study.sweeps._store import SweepStore
from mrsa_watch._base.errors import ConfigurationError, MrsaError, needed, require

if TYPE_CHECKING:
    import xarray as xr

_SECONDS_TO_WAIT = 0.5  # for points that another process computes


class Count:
    """Counts the cells that are done and passes that on."""

    def __init__(self, plan: Plan, store: SweepStore, progress: Progress) -> None:
        """Look at what is done already, and begin the stage."""
        self._plan = plan
        self._store = store
        self._total = sum(plan.num_cells.values())
        self._progress = progress
        store.index.refresh()
        read = [store.index]
        if plan.sweep.reuse is not None:
            read.append(Index(plan.sweep.reuse).refresh())
            self._reuse(read[-1])
        self.missing = set(plan.points)
        self._left = 0  # cells of the points that are missing
        self._forget_done()
        for text in (own for index in read for own in index.losses()):
            warn(progress, f"{text}: points that they held are computed again")
        progress.stage(f"sweep of {plan.sweep.kind.name}", self._total)
        for words in plan.changed(store.index):
            note(progress, words)
        there = self._total - self._left
        if there:
            note(progress, f"{there} of {self._total} points are there already")
        self._show()

    def add(self, number: int) -> None:
        """Count a computed point, with all cells that it fills."""
        if number in self.missing:
            self.missing.discard(number)
            self._left -= self._plan.num_cells[number]
        self._show()

    def passes(self) -> Iterator[list[Task]]:
        """Give all tasks that are to be done, again and again until nothing is missing.

        What another process holds is tried again, after a little where nothing else was
        done: it may have been killed.
        """
        while self.missing:
            before = len(self.missing)
            yield self._plan.tasks(self._store.index)
            if len(self.missing) == before:
                time.sleep(_SECONDS_TO_WAIT)
            if self.missing:
                self._store.index.refresh()
                self._forget_done()
                self._show()

    def _reuse(self, other: Index) -> None:
        """Take the records of another folder that are further than those that are here."""
        plan, store = self._plan, self._store
        for number in plan.identities:
            there = plan.there(store.index, number)
            for part in plan.parts(other, number):
                if part.end > there:
                    store.take(part.frame())

    def _forget_done(self) -> None:
        own = self._plan
        self.missing = {
            n for n in self.missing if own.there(self._store.index, n) < own.trials(n)
        }
        self._left = sum(own.num_cells[number] for number in self.missing)

    def _show(self) -> None:
        self._progress.update(self._total - self._left, self._total)


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
    complete(plan, progress)
    return _store.open_study(plan.sweep.out)


def complete(plan: Plan, progress: Progress | None = None) -> int:
    """Do what `run_sweep` does without opening the store, which loads xarray.

    Returns:
        How many cells are done: all that are possible.
    """
    plan.check_memory()
    with contextlib.closing(plan.open_store()) as store:
        count = Count(plan, store, checked_progress(progress))
        for tasks in count.passes():
            for task in tasks:
                compute(plan, store, task, count.add)
        store.show()
    return sum(plan.num_cells.values())


def compute(
    plan: Plan,
    store: SweepStore,
    task: Task,
    on_done: Callable[[int], None],
    on_claimed: Callable[[Task], None] | None = None,
) -> None:
    """Compute points that nobody else does, and write each as it is done.

    Args:
        plan: With these points.
        store: Its store.
        task: Which trials of which points.
        on_done: Called with the number of each point that was written.
        on_claimed: Called before anything is computed, with what will be.
    """
    with store.claim(
        {number: plan.identities[number].key for number in task.numbers}
    ) as held:
        own = tuple(
            number for number in held if plan.there(store.index, number) == task.first
        )
        if not own:
            return
        plan.check_unchanged(own)
        task = dataclasses.replace(task, numbers=own)
        if on_claimed is not None:
            on_claimed(task)
        start = time.perf_counter()
        for number, values in zip(own, computed(plan, task), strict=True):
            seconds = time.perf_counter() - start
            # again: a file may have been replaced meanwhile
            plan.check_unchanged([number])
            first, count = task.first, task.count
            if plan.is_whole and first:
                (before,) = plan.parts(store.index, number, first)
                runner = plan.sweep.kind.runner()
                values = runner.joined(
                    (before.values(plan.variables), values), (first, count)
                )
                first, count, seconds = 0, first + count, seconds + before.seconds
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
    # of this machine; those of a scheduler have separate memory
    if workers is not None:
        plan.check_memory(workers)
    with (
        _client(workers, scheduler) as client,
        contextlib.closing(plan.open_store()) as store,
    ):
        cut = _cut(plan, max(1, len(client.scheduler_info()["workers"])))
        count = Count(cut, store, checked_progress(progress))
        for tasks in count.passes():
            _compute_all(client, cut, tasks, count)
        store.show()
    return _store.open_study(plan.sweep.out)


def _cut(plan: Plan, workers: int) -> Plan:
    """Return the plan in tasks of which each worker has some."""
    groups = []
    for group in plan.groups:
        share = -(-len(group.numbers) // (workers * _TASKS_EACH))
        groups.append(
            dataclasses.replace(group, together=max(1, min(group.together, share)))
        )
    return dataclasses.replace(plan, groups=tuple(groups))


def _compute_all(client: Any, plan: Plan, tasks: Sequence[Task], count: Count) -> None:
    from distributed import KilledWorker, as_completed

    futures = [
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
        client.cancel(futures)


def _work(plugins: dict[str, dict[str, str]], plan: Plan, task: Task) -> list[int]:
    """Compute points on a worker; return those that were written."""
    # what they print, now or later, does not get among the first process's results
    if plugins:
        sys.stdout = sys.stderr
    if plugins != loaded_plugins():
        load_plugins(plugins)
    written: list[int] = []
    with contextlib.closing(SweepStore(plan.sweep)) as store:
        compute(plan, store, task, written.append)
    return written


@contextlib.contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Connect to a scheduler, or start a cluster of processes for the time of the block."""
    rule = "`workers` must not be set if dask is missing"
    distributed = needed("distributed", "dask", rule)
    if scheduler is None:
        check_main(distributed, workers)
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


_SECONDS_TO_JOIN = 60
_NONE, _END = -1, -2  # instead of a first trial


def join_hosts(
    coordinator: str | None,
    num_processes: int | None = None,
    process_index: int | None = None,
) -> None:
    """Connect this process to the others; to be called before JAX computes anything.

    Args:
        coordinator: Address of the first process, such as `"10.0.0.1:1234"`; None where
            the cluster's manager says all (SLURM, Open MPI, Kubernetes, cloud TPUs).
        num_processes: Their number.
        process_index: Which one this is, from 0.

    Raises:
        ConfigurationError: If the others do not come within a minute, or an index is
            out of range.
    """
    if num_processes is not None and process_index is not None:
        require(
            num_processes >= 1, "num_processes", "must be at least 1", num_processes
        )
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
            f"`coordinator` must answer, and all processes come; got {coordinator!r}: "
            f"{error}"
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
        ConfigurationError: If code or files differ between the processes.
    """
    _check_alike(plan)
    if jax.process_index() == 0:
        return _lead(plan, checked_progress(progress))
    _follow(plan)
    return None


def _check_alike(plan: Plan) -> None:
    """Raise in all processes unless all have the same code and files."""
    from jax.experimental import multihost_utils

    own = hashlib.sha256(plan.cells.tobytes()).digest()
    several = multihost_utils.process_allgather(
        np.frombuffer(own, np.uint8), tiled=False
    )
    if len(np.unique(np.reshape(several, (-1, len(own))), axis=0)) > 1:
        names = sorted(
            {name for one in plan.identities.values() for name in one.made_by}
        )
        raise ConfigurationError(
            "`coordinator` must join processes of the same code and files; got "
            "others: compare "
            f"{', '.join(names)} on the hosts, and start all of them again"
        )


def _lead(plan: Plan, progress: Progress) -> xr.Dataset:
    """Claim points as any process does, tell the others which come next, and write them."""
    plan = _on_all_devices(plan)
    with contextlib.closing(plan.open_store()) as store:
        try:
            count = Count(plan, store, progress)
        except MrsaError:  # the others must not wait for points
            _tell(plan, None, _END)
            raise
        for tasks in count.passes():
            for task in tasks:
                compute(plan, store, task, count.add, functools.partial(_tell, plan))
            if count.missing:
                # another process holds them: the others of this one must not wait for a
                # message longer than their network does
                _tell(plan, None)
        _tell(plan, None, _END)
        store.show()
    return _store.open_study(plan.sweep.out)


def _follow(plan: Plan) -> None:
    """Compute what the first process says, each device its share."""
    plan = _on_all_devices(plan)
    while True:
        first, count, together, *numbers = _broadcast(
            np.zeros(3 + _room(plan), np.int32)
        ).tolist()
        if first == _END:
            return
        if first != _NONE:
            own = tuple(number for number in numbers if number >= 0)
            for _ in computed(plan, Task(own, first, count, together)):
                pass  # the first process writes it


def _on_all_devices(plan: Plan) -> Plan:
    machine = dataclasses.replace(plan.machine, devices=len(jax.devices()))
    return dataclasses.replace(plan, machine=machine)


def _room(plan: Plan) -> int:
    """Return how many points a message has room for: those of the largest task."""
    return max((group.together for group in plan.groups), default=1)


def _tell(plan: Plan, task: Task | None, what: int = _NONE) -> None:
    """Say what comes next.

    Without a task: that nothing does yet, or that it is the end.
    """
    message = np.full(3 + _room(plan), what, np.int32)
    if task is not None:
        own = (task.first, task.count, task.together, *task.numbers)
        message[: len(own)] = own
    _broadcast(message)


def _broadcast(message: np.ndarray) -> np.ndarray:
    """Return the message of the first process, in all of them."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(message))
