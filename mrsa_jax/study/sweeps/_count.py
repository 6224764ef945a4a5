"""Which cells of a sweep are missing: those that are not done, are damaged, or have changed."""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from mrsa_jax._errors import OutputExistsError
from mrsa_jax.study._progress import Progress, note, warn
from mrsa_jax.study.sweeps._plan import Plan
from mrsa_jax.study.sweeps._store import SweepStore

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
