"""What a sweep comes to before anything is computed: its points, sorted by program."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax._memory import memory_words
from mrsa_jax.study._config import studied, to_dict
from mrsa_jax.study._run_folder import changes, digest_of_file, made_by
from mrsa_jax.study._runner import DETAILS, Machine, Runner
from mrsa_jax.study.sweeps._axes import Point, Sweep
from mrsa_jax.study.sweeps._store import SweepStore

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
    return Plan(
        sweep,
        machine,
        good,
        same,
        made,
        tuple(bad),
        tuple(sized),
        variables,
        inner,
        each * sweep.size,
    )


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
