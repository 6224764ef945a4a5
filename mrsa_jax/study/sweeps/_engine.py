"""What a sweep comes to before anything is computed, its points by program, and how it is run."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.memory import memory_words
from mrsa_jax.study import _store
from mrsa_jax.study._progress import Progress, checked_progress, note, warn
from mrsa_jax.study._records import Index
from mrsa_jax.study._run_folder import changes, digest_of_file, made_by
from mrsa_jax.study._runner import DETAILS, Machine, Runner
from mrsa_jax.study._view import CELL
from mrsa_jax.study.sweeps._axes import Point, Sweep, load_sweep, sweep_of
from mrsa_jax.study.sweeps._keys import COMPUTES_ALIKE, RANGED, Identity, identity
from mrsa_jax.study.sweeps._store import SweepStore, check_sweep_output
from mrsa_watch._base.errors import ConfigurationError, check_count, require

if TYPE_CHECKING:
    import xarray as xr

_SHOWN = 20  # causes of impossible cells in a message


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


@dataclasses.dataclass(frozen=True)
class Task:
    """Trials of some points of one group, computed in one go.

    Attributes:
        numbers: Of the points.
        first: Of the trials.
        count: Of the trials.
        together: How many points the program is made for.
    """

    numbers: tuple[int, ...]
    first: int
    count: int
    together: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a sweep comes to before anything is computed.

    Attributes:
        sweep: It.
        machine: What it may use.
        cells: What each cell is to show: key and trials.
        points: The different ones that are possible, by the number of their first cell.
        identities: What each of them is.
        impossible: Cells that are left empty.
        groups: Points by the program that computes them.
        variables: What each point has.
        inner: Lengths of the dimensions within a point.
        store_bytes: Size of the results before compression.
    """

    sweep: Sweep
    machine: Machine
    cells: np.ndarray
    points: dict[int, Point]
    identities: dict[int, Identity]
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
    def num_cells(self) -> dict[int, int]:
        """For each point, how many cells show it."""
        counts = collections.Counter(self.cells["key"].tolist())
        return {n: counts[own.key.encode()] for n, own in self.identities.items()}

    @property
    def is_ranged(self) -> bool:
        """Whether points are a number of trials, to which more can be added."""
        return self.sweep.kind.name in RANGED

    @property
    def is_whole(self) -> bool:
        """Whether a record of several trials says something of all of them together."""
        return "trial" not in self.inner

    def trials(self, number: int) -> int:
        """Return how many trials a point has."""
        return int(self.points[number].config.trials) if self.is_ranged else 1

    def config(self, task: Task, number: int) -> Any:
        """Return the settings of a point with the trials of a task."""
        config = self.points[number].config
        return dataclasses.replace(config, trials=task.count) if self.is_ranged else config

    def tasks(self, store: SweepStore | None = None) -> list[Task]:
        """Return what is to be computed, group by group: all of it, or what a store lacks."""
        found = []
        for group in self.groups:
            ranges: dict[tuple[int, int], list[int]] = {}
            for number in group.numbers:
                first, end = self.there(store, number), self.trials(number)
                if first < end:
                    ranges.setdefault((first, end - first), []).append(number)
            for (first, count), own in ranges.items():
                found += [
                    Task(tuple(own[i : i + group.together]), first, count, group.together)
                    for i in range(0, len(own), group.together)
                ]
        return found

    def there(self, store: SweepStore | None, number: int) -> int:
        """Return how many trials of a point a store has, from the first on without a gap."""
        if store is None:
            return 0
        trials = self.trials(number)
        parts = store.parts(self.identities[number].key, trials, whole=self.is_whole)
        return min(parts[-1].end, trials) if parts else 0

    def changed(self, index: Index) -> list[str]:
        """Say since when points that are there with the same settings have to be computed anew."""
        before = {own.settings: own for records in index.records.values() for own in records}
        counts: collections.Counter[str] = collections.Counter()
        for own in self.identities.values():
            old = before.get(own.settings)
            if old is not None and own.key not in index.records:
                words = changes(json.loads(old.made_by), own.made_by)
                code = [one for one in words if not one.startswith("mrsa_jax is")]
                reasons = COMPUTES_ALIKE.get(self.sweep.kind.name, ())[-1:]
                counts["; ".join(code or (*words, *reasons)) or "the platform is another"] += 1
        return [
            f"{words} since {counted(count, 'point')} {'was' if count == 1 else 'were'} computed: "
            f"{'it is' if count == 1 else 'they are'} computed anew"
            for words, count in counts.items()
        ]

    def of_task(self, task: Task) -> Plan:
        """Return the plan of some points of one group alone, small enough to send."""
        return dataclasses.replace(
            self,
            points={number: self.points[number] for number in task.numbers},
            identities={number: self.identities[number] for number in task.numbers},
            cells=self.cells[:0],
            impossible=(),
            groups=(Group(task.numbers, task.together, 0),),
        )

    def open_store(self) -> SweepStore:
        """Lay the store out, or open it where it is."""
        return SweepStore.create(self.sweep, self.cells, self.variables, self.inner)

    def check_unchanged(self, numbers: Sequence[int]) -> None:
        """Check that code and files are here what they were where the sweep was planned.

        Raises:
            ConfigurationError: Naming what differs.
        """
        for number in numbers:
            before, now = self.identities[number].made_by, made_by(self.points[number].config)
            changed = changes(before, now)
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
    digest = functools.cache(digest_of_file)
    cells = np.zeros(sweep.size, CELL)
    points: dict[int, Point] = {}
    identities: dict[int, Identity] = {}
    first: dict[str, int] = {}
    programs: dict[int, Any] = {}
    bad: list[Point] = []
    for number, point in enumerate(sweep.points()):
        if not point.problem:
            own = identity(sweep.kind, point.config, digest)
            trials = getattr(point.config, "trials", 1) if sweep.kind.name in RANGED else 1
            same = first.get(own.key)
            try:
                if same is None:
                    programs[number] = runner.group_of(point.config)
                    first[own.key], points[number], identities[number] = number, point, own
                elif trials > getattr(points[same].config, "trials", trials):
                    programs[same] = runner.group_of(point.config)
                    points[same] = dataclasses.replace(points[same], config=point.config)
            except ConfigurationError as error:  # shows only when its schemes are built
                point = Point(point.index, None, str(error))
                own = dataclasses.replace(own, key="")
            cells[number] = own.key, own.settings, trials
        if point.problem:
            bad.append(point)
    _check_possible(sweep, len(points), bad)
    configs = [point.config for point in points.values()]
    variables = runner.variables(configs, sweep.kept)
    for name in sweep.keep or ():
        rule = f"must name what points of {sweep.kind.name} can have"
        require(name in variables, "keep", f"{rule}: {', '.join(DETAILS)} of who took part", name)
    inner = runner.sizes(configs)
    each = sum(
        np.dtype(one.dtype).itemsize * int(np.prod([inner[d] for d in one.dims], dtype=np.int64))
        for one in variables.values()
    )
    return Plan(
        sweep, machine, cells, points, identities, tuple(bad),
        _grouped(runner, points, programs, machine),
        variables, inner, each * sweep.size,
    )  # fmt: skip


def _grouped(
    runner: Any, points: dict[int, Point], programs: dict[int, Any], machine: Machine
) -> tuple[Group, ...]:
    """Return points by the program that computes them."""
    groups: dict[Any, list[int]] = {}
    for number, program in programs.items():
        groups.setdefault(program, []).append(number)
    found = []
    for numbers in groups.values():
        config = points[numbers[0]].config
        tasks = -(-len(numbers) // runner.together(config, machine))
        count = -(-len(numbers) // tasks)  # tasks of about one size
        found.append(Group(tuple(numbers), count, runner.memory_bytes(config, machine, count)))
    return tuple(found)


def _check_possible(sweep: Sweep, num_good: int, bad: Sequence[Point]) -> None:
    if not bad or (sweep.skip_impossible and num_good):
        return
    causes: dict[str, list[Point]] = {}
    for point in bad:
        causes.setdefault(point.problem.partition("; got ")[0], []).append(point)
    lines = []
    for cells in list(causes.values())[:_SHOWN]:
        more = f" ({len(cells)} cells, the first of which)" if len(cells) > 1 else ""
        where = sweep.among([point.index for point in cells]) if more else ""
        lines.append(f"  {where or sweep.named(cells[0].index)}{more}: {cells[0].problem}")
    if len(causes) > _SHOWN:
        lines.append(f"  and {len(causes) - _SHOWN} more causes")
    raise ConfigurationError(
        f"`grid` must hold only cells that make sense; {len(bad)} of {sweep.size} do not (nothing "
        "was run; skip_impossible = true leaves them empty):\n" + "\n".join(lines)
    )


def counted(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}{'s' * (number != 1)}"


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
        self._forget_done()
        progress.stage(f"sweep of {plan.sweep.kind.name}", self._total)
        for words in plan.changed(store.index):
            note(progress, words)
        there = self._total - self._left()
        if there:
            note(progress, f"{there} of {self._total} points are there already")
        self._show()

    def add(self, number: int) -> None:
        """Count a computed point, with all cells that it fills."""
        self.missing.discard(number)
        self._show()

    def passes(self) -> Iterator[list[Task]]:
        """Give all tasks that are to be done, again and again until nothing is missing.

        What another process holds is tried again, after a little where nothing else was done: it
        may have been killed.
        """
        while self.missing:
            before = len(self.missing)
            yield self._plan.tasks(self._store)
            if len(self.missing) == before:
                time.sleep(_SECONDS_TO_WAIT)
            if self.missing:
                self._store.index.refresh()
                self._forget_done()
                self._show()

    def _reuse(self, other: Index) -> None:
        """Take the records of another folder that are further than those that are here."""
        plan, store = self._plan, self._store
        for number, own in plan.identities.items():
            there = plan.there(store, number)
            parts = other.parts(own.key, plan.trials(number), plan.sweep.kept, whole=plan.is_whole)
            for part in parts:
                if part.end > there:
                    store.take(part.frame())

    def _forget_done(self) -> None:
        own = self._plan
        self.missing = {n for n in self.missing if own.there(self._store, n) < own.trials(n)}

    def _left(self) -> int:
        return sum(self._plan.num_cells[number] for number in self.missing)

    def _show(self) -> None:
        self._progress.update(self._total - self._left(), self._total)


def sweep(
    study: str | pathlib.Path | Mapping[str, Any],
    *,
    out: str | pathlib.Path | None = None,
    overwrite: bool = False,
    reuse: str | pathlib.Path | None = None,
    memory_bytes: int | None = None,
    devices: int | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Compute a grid of settings into one store, or what is missing of it, and open the store.

    Use it for any comparison of more than a few settings: equal points are computed once, those
    that differ in numbers alone are compiled once, and a kill loses the points in flight only. The
    same folder with a larger grid, or more trials, computes what is new; a point whose plugin or
    files have changed since is computed anew.

    Args:
        study: A TOML file, or what one holds: settings of `simulate` or `train` (named by
            `command`), and the axes in `grid` and `zip` (`mrsa-jax sweep --help`).
        out: Folder of the store; as the study says, or `results/sweep`, if left out.
        overwrite: Replace another study there, or start this one anew.
        reuse: Folder of another sweep: points that it has are taken from there.
        memory_bytes: Bound on the memory of the points that are computed at once.
        devices: Devices that a point's trials, or clients, are dealt out to.
        progress: Receives how many points are done.

    Returns:
        Data set with an axis for each line of the grid, and `done` for each point. A result with
        the name of an axis ends in `_found`.

    Raises:
        ConfigurationError: By the path of the field that breaks a rule, or with the cells that
            make no sense; nothing is run then.
        OutputExistsError: If the folder holds something else, or a sweep with points that this one
            has not.
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
    for name, path in (("out", out), ("reuse", reuse)):
        is_path = path is None or isinstance(path, str | os.PathLike)
        require(is_path, name, "must be the path of a folder", path)
    require(isinstance(overwrite, bool), "overwrite", "must be True or False", overwrite)
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
        reuse=None if reuse is None else pathlib.Path(reuse),
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
        store.show()
    return _store.open_study(plan.sweep.out)


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
        own = tuple(number for number in held if plan.there(store, number) == task.first)
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
                (before,) = store.parts(plan.identities[number].key, first, whole=True)
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
    return runner.run(configs, plan.machine, plan.sweep.kept, task.together, **more)
