"""How far a run of many items is, and how long the rest will take.

What is left is estimated from what each item usually takes, scaled by how this machine did so far.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from mrsa_jax.study import Progress
from mrsa_jax.study._progress import Notes
from mrsa_papers._config import Target


class Overall:
    """Passes the progress of items on, and says how many are done and what is left."""

    def __init__(self, progress: Progress, usual: Mapping[Target, float]) -> None:
        """Begin.

        Args:
            progress: Where everything is reported to.
            usual: What each item to be made usually takes, in seconds.
        """
        self._progress = progress
        self._usual = dict(usual)
        self._count = len(usual)
        self._took = self._should_have_taken = 0.0
        self._target: Target | None = None
        self._start = time.perf_counter()
        if usual:
            self.say(f"{len(usual)} items to make, about {duration(sum(usual.values()))}")

    def begin(self, target: Target) -> None:
        """Begin an item."""
        self._target, self._start = target, time.perf_counter()

    def end(self, words: str) -> None:
        """End the item, saying what became of it."""
        if self._target is None:
            return
        seconds = time.perf_counter() - self._start
        self._took += seconds
        self._should_have_taken += self._usual.pop(self._target)
        name, done = ".".join(self._target), self._count - len(self._usual)
        self._target = None
        rest = f"; about {duration(self.seconds_left())} left" if self._usual else ""
        self.say(f"{done} of {self._count} done: {name}, {words}, {seconds:.1f} s{rest}")

    def seconds_left(self) -> float:
        """Return how long the items that are not done will take."""
        own = 0.0 if self._target is None else self._usual[self._target]
        ratio = (self._took + 10) / (self._should_have_taken + 10)  # at first as usual
        gone = 0.0 if self._target is None else time.perf_counter() - self._start
        return ratio * (sum(self._usual.values()) - own) + max(ratio * own - gone, 0.0)

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of the item."""
        self._progress.stage(name, total)

    def update(self, done: int, total: int) -> None:
        """Say how many steps of the stage are done."""
        if isinstance(self._progress, Notes):
            number = self._count - len(self._usual) + 1
            left = duration(self.seconds_left())
            self._progress.note(f"item {number} of {self._count}, about {left} left in all")
        self._progress.update(done, total)

    def say(self, text: str) -> None:
        """Show a line that stays."""
        if isinstance(self._progress, Notes):
            self._progress.say(text)

    def note(self, text: str) -> None:
        """Show beside the stage what is true for now."""
        if isinstance(self._progress, Notes):
            self._progress.note(text)


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples:
        >>> duration(40.0), duration(400.0), duration(9000.0)
        ('40 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
