"""Report the progress and speed of a study, to the command line and to records."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from mrsa_jax._core.memory import bytes_in_words
from mrsa_jax._core.status import Status
from mrsa_watch._base.errors import require

Item = TypeVar("Item")


@runtime_checkable
class Progress(Protocol):
    """Receives how far a study is; the command line draws it."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` steps."""
        ...

    def update(self, done: int, total: int) -> None:
        """Report the number of finished steps of the stage."""
        ...


@runtime_checkable
class Notes(Protocol):
    """Receives words together with the steps, if a `Progress` has these methods."""

    def say(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def note(self, text: str) -> None:
        """Show a remark next to the stage until the next one."""
        ...


@runtime_checkable
class Finds(Protocol):
    """Receives results before all are complete."""

    def found(self, so_far: Any) -> None:
        """Show the results so far instead of those shown before."""
        ...


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None:
        """Do nothing."""

    def update(self, done: int, total: int) -> None:
        """Do nothing."""


def checked_progress(progress: Any) -> Progress:
    """Return a receiver of progress, silent for None; raise for anything else."""
    is_one = progress is None or isinstance(progress, Progress)
    require(is_one, "progress", "must have the methods `stage` and `update`", progress)
    return Silent() if progress is None else progress


class Meter:
    """Measures one scheme's training while it passes its progress on.

    The first round of a process compiles and is left out of the rates.
    """

    def __init__(self, progress: Progress, updates: np.ndarray) -> None:
        """Start the clock.

        Args:
            progress: Where rounds are reported to.
            updates: int[J'], how many clients' updates each trained round sends.
        """
        self._progress = progress
        self._before = np.concatenate([[0], np.cumsum(updates)])
        self._start = time.perf_counter()
        self._times: list[float] = []
        self._first = 0  # rounds done when this process had trained one
        self._done = 0
        self._accuracy: float | None = None

    def update(self, done: int, total: int) -> None:
        """Count a round; `federated.train` calls it."""
        if not self._times:
            self._first = done
        self._times.append(time.perf_counter())
        self._done = done
        if isinstance(self._progress, Notes):
            self._progress.note(self._note())
        self._progress.update(done, total)

    def note_test(self, metrics: dict[str, Any]) -> None:
        """Take note of a test; `federated.train` calls it after each round."""
        self._accuracy = metrics.get("accuracy", self._accuracy)

    @property
    def resumed_after(self) -> int:
        """Number of rounds that an earlier process has trained."""
        return max(self._first - 1, 0)

    @property
    def updates_per_second(self) -> float | None:
        """Clients' updates per second, without the first round."""
        if len(self._times) < 2:
            return None
        updates = int(self._before[self._done] - self._before[self._first])
        return updates / max(self._times[-1] - self._times[0], 1e-9)

    def _note(self) -> str:
        right, rate = self._accuracy, self.updates_per_second
        words = [] if right is None else [f"{100 * right:.1f} % right"]
        return ", ".join(words if rate is None else [*words, f"{rate:.3g} updates/s"])

    def record(self, status: np.ndarray, stated_bytes: int) -> dict[str, Any]:
        """Return the measures for a record, units in the names; None if unmeasured.

        Args:
            status: int[J], status of each round.
            stated_bytes: Peak memory as stated before the run.
        """
        spacing = np.diff(self._times)
        counts = {Status.OK: 0, Status.SKIPPED: 0} | {
            Status(int(code)): int((status == code).sum()) for code in np.unique(status)
        }
        skipped = counts[Status.SKIPPED]
        record = {
            "rounds_trained": len(status) - skipped,
            "rounds_skipped": skipped,
            "rounds_failed": len(status) - skipped - counts[Status.OK],
            "resumed_after_rounds": self.resumed_after,
            "training_seconds": time.perf_counter() - self._start,
            "first_round_seconds": self._times[0] - self._start
            if self._times
            else None,
            "seconds_per_round": float(np.median(spacing)) if len(spacing) else None,
            "updates_per_second": self.updates_per_second,
            "stated_peak_bytes": int(stated_bytes),
            "peak_process_bytes": peak_process_bytes(),
            "peak_device_bytes": peak_device_bytes(),
        }
        return {
            k: float(f"{v:.4g}") if isinstance(v, float) else v
            for k, v in record.items()
        }


def note(progress: Progress, text: str) -> None:
    """Show a line that stays, if the receiver shows such lines."""
    if isinstance(progress, Notes):
        progress.say(text)


def warn(progress: Progress, text: str) -> None:
    """Show a line that stays, or warn if the receiver shows no such lines."""
    if isinstance(progress, Notes):
        progress.say(text)
    else:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def steps(progress: Progress, name: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yield items as one stage; each is done when the next is taken."""
    progress.stage(name, len(items))
    for done, item in enumerate(items, 1):
        yield item
        progress.update(done, len(items))


def stages(progress: Progress) -> Callable[[str, int, int], None]:
    """Return a function that forwards (stage, parts done, parts) and ends stages."""
    last, size = "", 0

    def report(stage: str, done: int, total: int) -> None:
        nonlocal last, size
        if stage != last:
            if last:
                progress.update(size, size)
            progress.stage(stage, total)
        last, size = stage, total
        progress.update(done, total)

    return report


def peak_process_bytes() -> int | None:
    """Return the peak memory of this process, JAX and its compiler included."""
    try:
        import resource
    except ImportError:  # not on this system
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else int(most) * 1024


def peak_device_bytes() -> int | None:
    """Return the most memory that any accelerator has held; None if none counts."""
    import jax  # takes a second: not to say that a file is being read

    most = [
        (device.memory_stats() or {}).get("peak_bytes_in_use")
        for device in jax.local_devices()
    ]
    return max((int(peak) for peak in most if peak is not None), default=None)


def performance_words(record: dict[str, Any]) -> str:
    """Describe a training in one line."""
    text = (
        f"{record['rounds_trained']} rounds trained, {record['rounds_skipped']} "
        "skipped, "
        f"{record['rounds_failed']} failed"
    )
    if record["resumed_after_rounds"]:
        text += f" (the first {record['resumed_after_rounds']} by an earlier process)"
    if record["seconds_per_round"] is not None:
        text += f"; {record['seconds_per_round']:.3g} s per round"
    if record["updates_per_second"] is not None:
        text += f", {record['updates_per_second']:.3g} clients' updates per second"
    text += (
        f"; memory: {bytes_in_words(record['stated_peak_bytes'])} stated for training"
    )
    for name, where in (
        ("peak_process_bytes", "whole process"),
        ("peak_device_bytes", "device"),
    ):
        if record[name] is not None:
            text += f", {bytes_in_words(record[name])} at most ({where})"
    return text
