"""What a sweep comes to before anything is computed, its points by program, and how it is run."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.memory import memory_words
from mrsa_jax.study import _store
from mrsa_jax.study._config import studied, to_dict
from mrsa_jax.study._progress import Progress, checked_progress, note, warn
from mrsa_jax.study._run_folder import changes, digest_of_file, made_by
from mrsa_jax.study._runner import DETAILS, Machine, Runner
from mrsa_jax.study.sweeps._axes import Point, Sweep, load_sweep, sweep_of
from mrsa_jax.study.sweeps._store import SweepStore, check_sweep_output
from mrsa_watch._base.errors import ConfigurationError, OutputExistsError, check_count, require

if TYPE_CHECKING:
    import xarray as xr

_SHOWN = 20  # impossible cells in a message


@dataclasses.dataclass(frozen=True)
class Group:
    """Points that one compiled program computes.

    Attributes:
        numbers: Of its points, counted over the grid, the last axis fastest.
        together: How many are computed in one go.
        memory_bytes: What these need, about.
    """

    numbers: tuple[int, ...]
    together: int
    memory_bytes: int

    def tasks(self) -> Iterator[tuple[int, ...]]:
        """Return the points that are computed in one go."""
        for start in range(0, len(self.numbers), self.together):
            yield self.numbers[start : start + self.together]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a sweep comes to before anything is computed.

    Attributes:
        sweep: It.
        machine: What it may use.
        points: By number, the possible ones.
        same: For the number of each possible point, that of the first with the same settings.
        made_by: For each of these first ones, what it depends on beside its settings.
        impossible: The others, which are left empty.
        groups: Points by the program that computes them, each setting once.
        variables: What each point has.
        inner: Lengths of the dimensions within a point.
        store_bytes: Size of the store before compression.
    """

    sweep: Sweep
    machine: Machine
    points: dict[int, Point]
    same: dict[int, int]
    made_by: dict[int, dict[str, str]]
    impossible: tuple[Point, ...]
    groups: tuple[Group, ...]
    variables: dict[str, Any]
    inner: dict[str, int]
    store_bytes: int

    @property
    def num_computed(self) -> int:
        """Points with settings of their own."""
        return sum(len(group.numbers) for group in self.groups)

    @property
    def memory_bytes(self) -> int:
        """What the largest group needs at once, about, beside JAX itself."""
        return max((group.memory_bytes for group in self.groups), default=0)

    def check_memory(self, processes: int = 1) -> str:
        """Say what is needed where several processes of this machine compute, or refuse it.

        Raises:
            ConfigurationError: If memory does not suffice, naming the point that needs most.
        """
        if not self.groups:
            return ""
        largest = max(self.groups, key=lambda group: group.memory_bytes)
        name = self.sweep.named(self.points[largest.numbers[0]].index)
        reduce = "the sizes of that point" + (" or workers" if processes > 1 else "")
        return memory_words(processes * self.memory_bytes, "grid", name, reduce)

    @functools.cached_property
    def twins(self) -> dict[int, list[int]]:
        """For each computed point, all cells that it fills."""
        found: dict[int, list[int]] = {}
        for number, first in self.same.items():
            found.setdefault(first, []).append(number)
        return found

    def tasks(self) -> list[tuple[int, ...]]:
        """Return all points in the order in which they are computed, group by group."""
        return [task for group in self.groups for task in group.tasks()]

    def of_task(self, task: Sequence[int]) -> Plan:
        """Return the plan of some points of one group alone, small enough to send."""
        return dataclasses.replace(
            self,
            points={number: self.points[number] for number in task},
            same={cell: number for number in task for cell in self.twins[number]},
            made_by={number: self.made_by[number] for number in task},
            impossible=(),
            groups=(Group(tuple(task), self.together[task[0]], 0),),
        )

    @functools.cached_property
    def together(self) -> dict[int, int]:
        """How many of its group are computed in one go with each point, where all are missing."""
        return {number: group.together for group in self.groups for number in group.numbers}

    def open_store(self) -> SweepStore:
        """Lay the store out, or open it where it is."""
        return SweepStore.create(self.sweep, self.variables, self.inner)

    def check_unchanged(self, numbers: Sequence[int]) -> None:
        """Check that code and files are here what they were where the sweep was planned.

        Raises:
            ConfigurationError: Naming what differs.
        """
        for number in numbers:
            changed = changes(self.made_by[number], made_by(self.points[number].config))
            if changed:
                raise ConfigurationError(
                    "`out` must be filled by one state of code and files, also on every worker; "
                    f"got {str(self.sweep.out)!r}, and since the sweep began {'; '.join(changed)}: "
                    "what is complete is kept; start the workers and the same command again"
                )


def plan_sweep(sweep: Sweep, machine: Machine | None = None) -> Plan:
    """Check every cell and sort the points into groups.

    Args:
        sweep: As `load_sweep` returns it.
        machine: What points may use.

    Raises:
        ConfigurationError: Naming the cells that make no sense, unless the sweep leaves these
            empty; or where no cell makes sense.
    """
    machine = machine or Machine()
    runner: Runner = sweep.kind.runner()
    good: dict[int, Point] = {}
    bad: list[Point] = []
    first: dict[str, int] = {}
    same: dict[int, int] = {}
    groups: dict[Any, list[int]] = {}
    for number, point in enumerate(sweep.points()):
        if not point.problem:
            key = json.dumps(studied(to_dict(point.config)), sort_keys=True, default=str)
            try:
                if key not in first:
                    groups.setdefault(runner.group_of(point.config), []).append(number)
            except ConfigurationError as error:  # shows only when its schemes are built
                point = Point(point.index, None, str(error))
            else:
                good[number] = point
                same[number] = first.setdefault(key, number)
        if point.problem:
            bad.append(point)
    _check_possible(sweep, good, bad)
    configs = [point.config for point in good.values()]
    digest = functools.cache(digest_of_file)
    made = {n: made_by(good[n].config, digest) for numbers in groups.values() for n in numbers}
    variables = runner.variables(configs, sweep.kept)
    for name in sweep.keep or ():
        rule = f"must name what points of {sweep.kind.name} can have"
        require(name in variables, "keep", f"{rule}: {', '.join(DETAILS)} of who took part", name)
    inner = runner.sizes(configs)
    sized = []
    for numbers in groups.values():
        config = good[numbers[0]].config
        tasks = -(-len(numbers) // runner.together(config, machine))
        count = -(-len(numbers) // tasks)  # tasks of about one size
        sized.append(Group(tuple(numbers), count, runner.memory_bytes(config, machine, count)))
    each = sum(
        np.dtype(one.dtype).itemsize * int(np.prod([inner[d] for d in one.dims], dtype=np.int64))
        for one in variables.values()
    )
    size = each * sweep.size
    return Plan(sweep, machine, good, same, made, tuple(bad), tuple(sized), variables, inner, size)


def _check_possible(sweep: Sweep, good: dict[int, Point], bad: Sequence[Point]) -> None:
    if not bad or (sweep.skip_impossible and good):
        return
    lines = [f"  {sweep.named(point.index)}: {point.problem}" for point in bad[:_SHOWN]]
    if len(bad) > _SHOWN:
        lines.append(f"  and {len(bad) - _SHOWN} more")
    raise ConfigurationError(
        f"`grid` must hold only cells that make sense; {len(bad)} of {sweep.size} do not (nothing "
        "was run; skip_impossible = true leaves them empty):\n" + "\n".join(lines)
    )


_SECONDS_TO_WAIT = 0.5  # for points that another process computes


class Count:
    """Counts the cells that are done and passes that on."""

    def __init__(self, plan: Plan, store: SweepStore, progress: Progress) -> None:
        """Look at what is done already, and begin the stage."""
        self._plan = plan
        self._twins = plan.twins
        self._tasks = plan.tasks()
        self._store = store
        self._total = len(plan.points)
        self._progress = progress
        for index in store.drop_damaged():
            text = f"{plan.sweep.named(index)} is damaged in {plan.sweep.out}: it is computed again"
            warn(progress, text)
        self._drop_changed()
        done = store.done().ravel()
        self.missing = {number for number in plan.points if not done[number]}
        progress.stage(f"sweep of {plan.sweep.kind.name}", self._total)
        there = self._total - len(self.missing)
        if there:
            note(progress, f"{there} of {self._total} points are there already")
        self._show()

    def add(self, number: int) -> None:
        """Count a computed point, with all cells that it fills."""
        self.missing.difference_update(self._twins[number])
        self._show()

    def passes(self) -> Iterator[list[tuple[int, ...]]]:
        """Give all tasks that are to be done, again and again until nothing is missing.

        What another process holds is tried again, after a little where nothing else was done: it
        may have been killed.
        """
        while self.missing:
            before = len(self.missing)
            tasks = [tuple(filter(self._lacks, task)) for task in self._tasks]
            yield [task for task in tasks if task]
            if len(self.missing) == before:
                time.sleep(_SECONDS_TO_WAIT)
            if self.missing:
                done = self._store.done().ravel()
                others = {number for number in self.missing if done[number]}
                self._refuse(self._changed(others))
                self.missing -= others
                self._show()

    def _changed(self, numbers: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Say of complete cells what has changed since they were made."""
        found = {number: self._store.changed(*self._cell(number)) for number in numbers}
        return {number: words for number, words in found.items() if words}

    def _cell(self, number: int) -> tuple[tuple[int, ...], dict[str, str] | None]:
        """Return the place of a cell, and what would make it now; None where it is impossible."""
        index = np.unravel_index(number, self._plan.sweep.shape)
        first = self._plan.same.get(number)
        return tuple(map(int, index)), None if first is None else self._plan.made_by[first]

    def _drop_changed(self) -> None:
        """Drop cells that other code or files have made, or refuse them."""
        changed = self._changed(np.flatnonzero(self._store.done()).tolist())
        if not self._plan.sweep.recompute:
            self._refuse(changed)
        for number in changed:
            self._store.drop(*self._cell(number))
        if changed:
            note(self._progress, f"{_in_words(changed)}; computed again")

    def _refuse(self, changed: Mapping[int, tuple[str, ...]]) -> None:
        if changed:
            out = str(self._plan.sweep.out)
            raise OutputExistsError(
                "`out` must hold points that the same code made of the same files; got "
                f"{out!r}, with {_in_words(changed)}: choose another --out, or compute these "
                "points alone again with --recompute"
            )

    def _lacks(self, number: int) -> bool:
        """Return whether a point, or a cell that it fills, is missing."""
        return not self.missing.isdisjoint(self._twins[number])

    def _show(self) -> None:
        self._progress.update(self._total - len(self.missing), self._total)


def _in_words(changed: Mapping[int, tuple[str, ...]]) -> str:
    """Say of how many cells what has changed."""
    counts = collections.Counter(itertools.chain.from_iterable(changed.values()))
    return "; ".join(
        f"{count} cell{'s' * (count != 1)} of another state: {words}"
        for words, count in counts.items()
    )


def sweep(
    study: str | pathlib.Path | Mapping[str, Any],
    *,
    out: str | pathlib.Path | None = None,
    overwrite: bool = False,
    recompute: bool = False,
    memory_bytes: int | None = None,
    devices: int | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Compute a grid of settings into one store, or what is missing of it, and open the store.

    Use it for any comparison of more than a few settings: equal points are computed once, those
    that differ in numbers alone are compiled once, and a kill loses the points in flight only.

    Args:
        study: A TOML file, or what one holds: settings of `simulate` or `train` (named by
            `command`), and the axes in `grid` and `zip` (`mrsa-jax sweep --help`).
        out: Folder of the store; as the study says, or `results/sweep`, if left out.
        overwrite: Replace another study there, or start this one anew.
        recompute: Compute points again that other code, other files or another version of the
            package has made; they are refused otherwise.
        memory_bytes: Bound on the memory of the points that are computed at once.
        devices: Devices that a point's trials, or clients, are dealt out to.
        progress: Receives how many points are done.

    Returns:
        Data set with an axis for each line of the grid, and `done` for each point. A result with
        the name of an axis ends in `_found`.

    Raises:
        ConfigurationError: By the path of the field that breaks a rule, or with the cells that
            make no sense; nothing is run then.
        OutputExistsError: If the folder holds something else, or points that would not be made so
            again, naming the file, the code or the version that has changed.
        StoreError: If it cannot be written.

    Examples:
        >>> import tempfile
        >>> grid = {"scheme": ["uniform", "batch_partitioning"], "privacy_target": [2, 3]}
        >>> small = {"num_clients": 12, "cohort_size": 6}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = sweep({"rounds": 9, "trials": 2, "population": small, "grid": grid},
        ...                   out=folder).load()
        >>> found["strong_privacy"].sel(scheme="Multi-RoundSecAgg").min("trial").values.tolist()
        [2.0, 3.0]
    """
    is_file = isinstance(study, str | os.PathLike)
    rule = "must be a TOML file's path, or a mapping of what one holds"
    require(is_file or isinstance(study, Mapping), "study", rule, study)
    is_path = out is None or isinstance(out, str | os.PathLike)
    require(is_path, "out", "must be the path of a folder", out)
    for name, flag in (("overwrite", overwrite), ("recompute", recompute)):
        require(isinstance(flag, bool), name, "must be True or False", flag)
    for name, value in (("memory_bytes", memory_bytes), ("devices", devices)):
        if value is not None:
            check_count(value, name, "must be a positive integer or None")
    progress = checked_progress(progress)
    read: Any = load_sweep if is_file else sweep_of
    asked: Sweep = read(study)
    asked = dataclasses.replace(
        asked,
        out=asked.out if out is None else pathlib.Path(out),
        overwrite=overwrite or asked.overwrite,
        recompute=recompute,
    )
    check_sweep_output(asked)
    return run_sweep(plan_sweep(asked, Machine(memory_bytes, devices)), progress)


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
        ConfigurationError: If a point needs more memory than there is.
    """
    check_sweep_output(plan.sweep)
    plan.check_memory()
    with contextlib.closing(plan.open_store()) as store:
        count = Count(plan, store, checked_progress(progress))
        for tasks in count.passes():
            for task in tasks:
                compute(plan, store, task, count.add)
    return _store.open_study(plan.sweep.out)


def compute(
    plan: Plan,
    store: SweepStore,
    task: Sequence[int],
    on_done: Callable[[int], None],
    on_claimed: Callable[[Sequence[int]], None] | None = None,
) -> None:
    """Compute points that nobody else does, and write each as it is done.

    Args:
        plan: With these points.
        store: Its store.
        task: Numbers of points, all of one group.
        on_done: Called with the number of each point that was written.
        on_claimed: Called before anything is computed, with the points that will be.
    """
    runner: Runner = plan.sweep.kind.runner()
    with store.claim(task) as own:
        if not own:
            return
        plan.check_unchanged(own)
        if on_claimed is not None:
            on_claimed(own)
        start = time.perf_counter()
        configs = [plan.points[number].config for number in own]
        together = plan.together[own[0]]
        results = runner.run(configs, plan.machine, plan.sweep.kept, together)
        for number, values in zip(own, results, strict=True):
            seconds = time.perf_counter() - start
            plan.check_unchanged([number])  # again: a file may have been replaced meanwhile
            for cell in reversed(plan.twins[number]):  # its own last: its flag tells of all
                index = np.unravel_index(cell, plan.sweep.shape)
                store.write(tuple(map(int, index)), values, seconds, plan.made_by[number])
            on_done(number)
            start = time.perf_counter()
