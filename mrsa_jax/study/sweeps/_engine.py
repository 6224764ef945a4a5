"""How a sweep is run: what its folder lacks is computed, and the results are put together."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax.study import _store
from mrsa_jax.study._progress import Progress, checked_progress, note, warn
from mrsa_jax.study._records import Index
from mrsa_jax.study._runner import Runner
from mrsa_jax.study.sweeps._plan import Plan, Task
from mrsa_jax.study.sweeps._store import SweepStore

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
        if plan.sweep.reuse is not None:
            self._reuse(Index(plan.sweep.reuse).refresh())
        for name, size in store.index.damaged.items():
            if size:
                text = f"{size} bytes of {name} in {plan.sweep.out} are damaged"
                warn(progress, f"{text}: points that they held are computed again")
        self.missing = set(plan.points)
        self._left = 0  # cells of the points that are missing
        self._forget_done()
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

        What another process holds is tried again, after a little where nothing else was done: it
        may have been killed.
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
        self.missing = {n for n in self.missing if own.there(self._store.index, n) < own.trials(n)}
        self._left = sum(own.num_cells[number] for number in self.missing)

    def _show(self) -> None:
        self._progress.update(self._total - self._left, self._total)


def run_sweep(plan: Plan, progress: Progress | None = None) -> xr.Dataset:
    """Compute the points that are missing in the store, and open it.

    An interruption loses only the points in flight; a later call, or another process at the same
    time, does the rest.

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
    with store.claim({number: plan.identities[number].key for number in task.numbers}) as held:
        own = tuple(number for number in held if plan.there(store.index, number) == task.first)
        if not own:
            return
        plan.check_unchanged(own)
        task = dataclasses.replace(task, numbers=own)
        if on_claimed is not None:
            on_claimed(task)
        start = time.perf_counter()
        for number, values in zip(own, computed(plan, task), strict=True):
            seconds = time.perf_counter() - start
            plan.check_unchanged([number])  # again: a file may have been replaced meanwhile
            first, count = task.first, task.count
            if plan.is_whole and first:
                (before,) = plan.parts(store.index, number, first)
                runner = plan.sweep.kind.runner()
                values = runner.joined((before.values(), values), (first, count))
                first, count, seconds = 0, first + count, seconds + before.seconds
            store.write(plan.identities[number], first, count, values, seconds)
            on_done(number)
            start = time.perf_counter()


def computed(plan: Plan, task: Task) -> Iterator[dict[str, np.ndarray]]:
    """Compute the trials of a task's points, one after another."""
    runner: Runner = plan.sweep.kind.runner()
    configs = [plan.config(task, number) for number in task.numbers]
    more = {"first": task.first} if task.first else {}
    return runner.run_points(configs, plan.machine, plan.sweep.kept, task.together, **more)
