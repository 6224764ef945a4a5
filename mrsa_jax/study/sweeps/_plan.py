"""Plan a sweep: check its cells, and sort its points by program and into tasks.

Its points by program, and its tasks.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.memory import memory_words
from mrsa_jax.study.settings._config import WEAK_PRIVACY, weak_wish
from mrsa_jax.study.stores._records import Index, Layout, Record
from mrsa_jax.study.stores._runner import DETAILS, SHARES, Machine, Runner
from mrsa_jax.study.stores._sources import changes, changes_since
from mrsa_jax.study.stores._view import CELL, num_files
from mrsa_jax.study.sweeps._axes import Point, Sweep
from mrsa_jax.study.sweeps._keys import COMPUTES_ALIKE, RANGED, Identities, Identity
from mrsa_jax.study.sweeps._store import SweepStore
from mrsa_watch._base.errors import ConfigurationError, check_known, require
from mrsa_watch._base.html import counted

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
    """A sweep before anything is computed.

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
        """Points with their own settings."""
        return sum(len(group.numbers) for group in self.groups)

    def left_empty(self) -> list[str]:
        """Return a line for each cause of impossible cells, which names these."""
        return _named_with_causes(self.sweep, self.impossible)

    @property
    def memory_bytes(self) -> int:
        """Estimate of the largest group's memory, in addition to JAX itself."""
        return max((group.memory_bytes for group in self.groups), default=0)

    def check_memory(self, processes: int = 1) -> str:
        """Return words about the memory of all processes, or refuse it.

        Raises:
            ConfigurationError: If memory does not suffice, naming the point that needs
                most.
        """
        if not self.groups:
            return ""
        # groups run one after the other, so the largest decides
        largest = max(self.groups, key=lambda group: group.memory_bytes)
        name = self.sweep.named(self.points[largest.numbers[0]].index)
        reduce = "the sizes of that point" + (" or workers" if processes > 1 else "")
        return memory_words(processes * self.memory_bytes, "grid", name, reduce)

    @functools.cached_property
    def layout(self) -> Layout:
        """The arrays in the records of its points."""
        return Layout(self.variables, self.inner)

    @functools.cached_property
    def num_cells(self) -> dict[int, int]:
        """For each point, how many cells show it."""
        # cells with equal keys show one point
        counts = collections.Counter(self.cells["key"].tolist())
        return {
            n: counts[identity.key.encode()] for n, identity in self.identities.items()
        }

    def unread(self) -> list[str]:
        """Say where an axis changes nothing, because no other setting reads it."""
        grid, lines_of_words = self.cells.reshape(self.sweep.shape), []
        for k, axis in enumerate(self.sweep.axes):
            # lines along the axis in which all cells show one point
            lines = np.moveaxis(grid, k, -1)
            same = (lines == lines[..., :1]).all(axis=-1) & (
                lines["key"][..., 0] != b""
            )
            if len(axis.values) > 1 and same.any():
                # 0 stands for any place on axis k, along which nothing changes
                places = [
                    (*place[:k], 0, *place[k:]) for place in np.argwhere(same).tolist()
                ]
                where = self.sweep.among(places, but=k) or "everywhere"
                count = (
                    f"{len(places) * len(axis.values)} of {counted(grid.size, 'cell')}"
                )
                lines_of_words.append(
                    f"{axis.name} changes nothing in {count}: {where}"
                )
        return lines_of_words

    @property
    def is_ranged(self) -> bool:
        """Whether points are a number of trials, to which more can be added."""
        return self.sweep.kind.name in RANGED

    @property
    def is_whole(self) -> bool:
        """Whether a record of several trials says something of all of them together."""
        return "trial" not in self.inner

    def trials(self, number: int) -> int:
        """Return the number of trials of a point."""
        return int(self.points[number].config.trials) if self.is_ranged else 1

    def config(self, task: Task, number: int) -> Any:
        """Return the settings of a point with the trials of a task."""
        config = self.points[number].config
        return (
            dataclasses.replace(config, trials=task.count) if self.is_ranged else config
        )

    def tasks(self, index: Index | None = None) -> list[Task]:
        """Return the tasks to do, group by group: all, or those that a folder lacks.

        All of it, or what a folder lacks.
        """
        tasks = []
        for group in self.groups:
            ranges: dict[tuple[int, int], list[int]] = {}
            for number in group.numbers:
                first, end = self.there(index, number), self.trials(number)
                if first < end:
                    # points that lack the same trials can share a task
                    ranges.setdefault((first, end - first), []).append(number)
            for (first, count), numbers in ranges.items():
                tasks += [
                    Task(
                        tuple(numbers[i : i + group.together]),
                        first,
                        count,
                        group.together,
                    )
                    for i in range(0, len(numbers), group.together)
                ]
        return tasks

    def parts(
        self, index: Index, number: int, trials: int | None = None
    ) -> list[Record]:
        """Return the records of a point, or of its first trials, without a gap."""
        trials, key = trials or self.trials(number), self.identities[number].key
        keep = self.sweep.kept
        return index.parts(key, trials, keep, whole=self.is_whole, layout=self.layout)

    def there(self, index: Index | None, number: int) -> int:
        """Return the number of a point's trials in a folder, without a gap."""
        parts = self.parts(index, number) if index is not None else []
        # a folder may have more trials than this sweep asks for
        return min(parts[-1].end, self.trials(number)) if parts else 0

    def standing(self, *indices: Index) -> dict[str, Any]:
        """Count complete and missing points of folders together, and their cost.

        Returns:
            How many points are `there`, those that lack `more_trials`, by what
            they have and are to have; how many are `new`; `changed` gives the reason
            why points with the same settings are computed again. `seconds` are those
            that records of points in the same groups took per trial, for all that is
            missing of these groups; `unknown` points are in groups without any.
        """
        num_complete, seconds, unknown = 0, 0.0, 0
        partly: collections.Counter[tuple[int, int]] = collections.Counter()
        for group in self.groups:
            # folders do not complete each other: the one with the most trials counts
            has = {
                n: max((self.there(index, n) for index in indices), default=0)
                for n in group.numbers
            }
            lack = {n: self.trials(n) - has[n] for n in has if has[n] < self.trials(n)}
            num_complete += len(has) - len(lack)
            partly.update((has[n], self.trials(n)) for n in lack if has[n])
            keys = [self.identities[n].key for n in group.numbers]
            # seconds per trial of records of the same program
            took = [
                r.seconds / r.count
                for key in keys
                for index in indices
                for r in index.records.get(key, ())
            ]
            # the median, as the first record of a program includes its compilation
            seconds += float(np.median(took)) * sum(lack.values()) if took else 0.0
            unknown += 0 if took else len(lack)
        return {
            "there": num_complete,
            "more_trials": [[*ends, count] for ends, count in sorted(partly.items())],
            "new": self.num_computed - num_complete - partly.total(),
            "changed": [
                words for index in indices[:1] for words in self.changed(index)
            ],
            "seconds": seconds,
            "unknown": unknown,
        }

    def content(self) -> dict[str, Any]:
        """Return the size and the state of the sweep as plain values."""
        sweep = self.sweep
        folders = (sweep.out, *([] if sweep.reuse is None else [sweep.reuse]))
        standing = self.standing(*(Index(folder).refresh() for folder in folders))
        return {
            "out": str(sweep.out),
            "command": sweep.kind.name,
            "axes": {axis.name: len(axis.values) for axis in sweep.axes},
            "cells": sweep.size,
            "impossible": [
                sweep.named(p.index) + ": " + p.problem for p in self.impossible
            ],
            "points": self.num_computed,
            "unread": self.unread(),
            "groups": [len(group.numbers) for group in self.groups],
            "memory_bytes": self.memory_bytes,
            "store_bytes": self.store_bytes,
            "files": num_files(sweep.shape, self.variables, self.inner),
            **standing,
        }

    def changed(self, index: Index) -> list[str]:
        """Report the changes that make points of the same settings computed again."""
        before = {
            record.settings: record
            for records in index.records.values()
            for record in records
        }
        counts: collections.Counter[str] = collections.Counter()
        for record in self.identities.values():
            old = before.get(record.settings)
            # same settings, but no record under the key of the present code
            if old is not None and record.key not in index.records:
                words = changes(json.loads(old.made_by), record.made_by)
                code = [word for word in words if not word.startswith("mrsa_jax is")]
                reasons = COMPUTES_ALIKE.get(self.sweep.kind.name, ())[-1:]
                usual = "the platform is another"
                if self.sweep.kind.code:
                    usual = f"the code of the papers' items has changed, or {usual}"
                counts["; ".join(code or (*words, *reasons)) or usual] += 1
        return [
            f"{words} since {counted(count, 'point')} "
            f"{'was' if count == 1 else 'were'} computed: "
            f"{'it is' if count == 1 else 'they are'} computed anew"
            for words, count in counts.items()
        ]

    def of_task(self, task: Task) -> Plan:
        """Return the plan of some points of one group alone, small enough to send."""
        return dataclasses.replace(
            self,
            points={number: self.points[number] for number in task.numbers},
            identities={number: self.identities[number] for number in task.numbers},
            # workers write records only; the grid is the first process's
            cells=self.cells[:0],
            impossible=(),
            groups=(Group(task.numbers, task.together, 0),),
        )

    def open_store(self) -> SweepStore:
        """Lay the store out, or open it where it is."""
        return SweepStore.create(self.sweep, self.cells, self.variables, self.inner)

    def check_unchanged(self, numbers: Sequence[int]) -> None:
        """Check that code and files are the same as when the sweep was planned.

        Raises:
            ConfigurationError: Naming what differs.
        """
        for number in numbers:
            before = self.identities[number].made_by
            changed = changes_since(before, self.points[number].config)
            if changed:
                raise ConfigurationError(
                    "`out` must be filled by one state of code and files, also on "
                    "every worker; "
                    f"got {str(self.sweep.out)!r}, and since the sweep began "
                    f"{'; '.join(changed)}: "
                    "what is complete is kept; start the workers and the same command "
                    "again"
                )


def plan_sweep(sweep: Sweep, machine: Machine | None = None) -> Plan:
    """Check every cell and sort the points into groups.

    Args:
        sweep: As `load_sweep` returns it.
        machine: What points may use.

    Raises:
        ConfigurationError: Naming the cells that make no sense, unless the sweep leaves
            these empty; or where no cell makes sense.
    """
    machine = machine or Machine()
    runner: Runner = sweep.kind.runner()
    identify = Identities(sweep.kind)
    cells = np.zeros(sweep.size, CELL)
    points: dict[int, Point] = {}
    identities: dict[int, Identity] = {}
    numbers: dict[str, int] = {}  # of the first cell with a key
    programs: dict[int, Any] = {}
    bad: list[Point] = []
    is_ranged = sweep.kind.name in RANGED
    # in the order of the grid, so that a point has the number of its first cell
    for number, point in enumerate(sweep.points()):
        if point.problem:
            bad.append(point)
            continue
        identity = identify.of(point.config)
        trials = point.config.trials if is_ranged else 1
        cells[number] = identity.key, identity.settings, trials
        first = numbers.get(identity.key, number)
        # cells of one key are one point, with the most trials that any of them asks for
        if first in points and trials <= getattr(
            points[first].config, "trials", trials
        ):
            continue
        try:
            programs[first] = runner.group_of(point.config)
        except ConfigurationError as error:  # shows only when its schemes are built
            cells[number]["key"] = b""
            bad.append(Point(point.index, None, str(error)))
            continue
        if first == number:
            numbers[identity.key] = number
            points[number] = point
            identities[number] = identity
        else:
            # the same key with more trials: the point keeps its number
            points[first] = dataclasses.replace(points[first], config=point.config)
    _check_possible(sweep, len(points), bad)
    configs = [point.config for point in points.values()]
    variables = runner.variables(configs, sweep.kept)
    is_weak = weak_wish(sweep.kept) is not None and "weak_lower" in variables
    for name in sweep.keep or ():
        is_kept = name in variables or (is_weak and name.startswith(WEAK_PRIVACY))
        require(is_kept, "keep", _rule_of_kept(sweep, configs), name)
    if sweep.best_over is not None:
        quantities = [
            name
            for name, variable in variables.items()
            if set(variable.dims) <= {"trial"} and variable.dtype[:1] in "fi"
        ]
        by = sweep.best_over.get("by", "accuracy")
        kind = "a number of each point or trial"
        check_known(by, "best_over.by", quantities, kind)
    inner = runner.sizes(configs)
    each = sum(
        np.dtype(variable.dtype).itemsize
        * int(np.prod([inner[d] for d in variable.dims], dtype=np.int64))
        for variable in variables.values()
    )
    return Plan(
        sweep,
        machine,
        cells,
        points,
        identities,
        tuple(bad),
        _grouped(sweep, points, programs, machine),
        variables,
        inner,
        each * sweep.size,
    )


def _rule_of_kept(sweep: Sweep, configs: Sequence[Any]) -> str:
    """Say what points of a sweep can keep besides their results."""
    names = (*DETAILS, SHARES, WEAK_PRIVACY)
    every = sweep.kind.runner().variables(configs, names)
    known = [name for name in names if any(word.startswith(name) for word in every)]
    if "weak_lower" in every:
        known.append(WEAK_PRIVACY)
    if not known:
        return f"must not be set: points of {sweep.kind.name} keep nothing else"
    return f"must name what points of {sweep.kind.name} can have: {', '.join(known)}"


def _grouped(
    sweep: Sweep, points: dict[int, Point], programs: dict[int, Any], machine: Machine
) -> tuple[Group, ...]:
    """Return points by the program that computes them."""
    runner: Any = sweep.kind.runner()
    groups: dict[Any, list[int]] = {}
    for number, program in programs.items():
        groups.setdefault(program, []).append(number)
    sorted_groups = []
    for numbers in groups.values():
        config = points[numbers[0]].config
        # as few tasks as memory allows, by division that rounds up
        tasks = -(-len(numbers) // runner.together(config, machine))
        count = -(-len(numbers) // tasks)  # tasks of about one size
        needed = runner.memory_bytes(config, machine, count, sweep.kept)
        sorted_groups.append(Group(tuple(numbers), count, needed))
    return tuple(sorted_groups)


def _check_possible(sweep: Sweep, num_good: int, bad: Sequence[Point]) -> None:
    if not bad or (sweep.skip_impossible and num_good):
        return
    lines = _named_with_causes(sweep, bad)
    raise ConfigurationError(
        f"`grid` must hold only cells that make sense; {len(bad)} of {sweep.size} do "
        "not (nothing "
        "was run; skip_impossible = true leaves them empty):\n" + "\n".join(lines)
    )


def _named_with_causes(sweep: Sweep, bad: Sequence[Point]) -> list[str]:
    """Return a line for each cause of impossible cells, which names these."""
    causes: dict[str, list[Point]] = {}
    for point in bad:
        # messages that differ in the value alone have one cause
        causes.setdefault(point.problem.partition("; got ")[0], []).append(point)
    lines = []
    for cells in list(causes.values())[:_SHOWN]:
        more = f" ({len(cells)} cells, the first of which)" if len(cells) > 1 else ""
        where = sweep.among([point.index for point in cells]) if more else ""
        lines.append(
            f"  {where or sweep.named(cells[0].index)}{more}: {cells[0].problem}"
        )
    if len(causes) > _SHOWN:
        lines.append(f"  and {len(causes) - _SHOWN} more causes")
    return lines
