"""Time our code beside a peer's in the same run: correctness first, compile time apart.

Habits: both sides warmed up, results blocked on, repeats interleaved (a loaded machine slows
both), minimum and median kept, machine and versions in every record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mrsa_jax._core.cores import num_cores
from mrsa_watch._base.errors import needed


class ResultsDifferError(AssertionError):
    """Our result and the peer's, or the one that is known to be right, do not agree."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One case of one benchmark, ours beside a peer's.

    Attributes:
        benchmark: Topic, e.g. `"selection"`.
        case: What was run, with its sizes.
        unit: Unit of `work`, e.g. `"rounds"`.
        work: Units done in one call.
        first_call_seconds: Our first call, compilation included.
        seconds_min: Our fastest call after that.
        seconds_median: Our median call.
        peer: What we are compared with.
        peer_seconds_min: Its fastest call (None without a peer).
        peer_seconds_median: Its median call (None without a peer).
        aim: Ratio of rates (ours over the peer's) that we aim at (None if there is none).
        note: Floor, caveats.
    """

    benchmark: str
    case: str
    unit: str
    work: float
    first_call_seconds: float
    seconds_min: float
    seconds_median: float
    peer: str | None = None
    peer_seconds_min: float | None = None
    peer_seconds_median: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def rate(self) -> float:
        """Units a second at our fastest call."""
        return self.work / self.seconds_min

    @property
    def ratio(self) -> float | None:
        """Our rate over the peer's, fastest call against fastest call."""
        return None if self.peer_seconds_min is None else self.peer_seconds_min / self.seconds_min

    def derived(self) -> dict[str, Any]:
        """Return what a record holds beside the fields."""
        return {"rate": self.rate, "ratio": self.ratio}


def _block(value: Any) -> Any:
    import jax

    return jax.block_until_ready(value)


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = _block(function())
    return time.perf_counter() - start, value


def compare(
    ours: Callable[[], Any],
    peer: Callable[[], Any] | None = None,
    *,
    work: float | int,
    unit: str,
    peer_work: float | int | None = None,
    peer_name: str | None = None,
    peer_seconds: Callable[[Any], float] | None = None,
    check: Callable[[Any, Any], None] | None = None,
    aim: float | int | None = None,
    repeats: int = 5,
    note: str = "",
) -> Measurement:
    """Measure `ours` against `peer`, after `check(our_result, peer_result)` has passed.

    Args:
        ours: Call without arguments; its result is blocked on.
        peer: The same work done by the peer.
        work: Units that `ours` does in one call.
        unit: Name of the unit.
        peer_work: Units that `peer` does in one call, if fewer than `work` (its time is scaled).
        peer_name: Who the peer is.
        peer_seconds: Reads the seconds from the peer's result, where what surrounds its work (a
            pipe to its process, its start) must not count.
        check: Raises AssertionError if the two results disagree, or if ours is wrong (without a
            peer it gets None); left out only where they cannot be compared.
        aim: Ratio aimed at.
        repeats: Timed calls of each side, interleaved.
        note: Anything a reader must know.

    Returns:
        The measurement; whoever runs the case names its topic and it.

    Raises:
        ResultsDifferError: If `check` has found a difference; nothing is timed then.

    Examples:
        >>> compare(lambda: 1, lambda: 1, work=1.0, unit="sums").ratio > 0
        True
    """
    first, value = _timed(ours)
    scale = 1.0 if peer_work is None else work / peer_work
    peer_value = None if peer is None else _timed(peer)[1]
    if check is not None:
        _checked(check, value, peer_value)
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(repeats):
        mine.append(_timed(ours)[0])
        if peer is not None:
            seconds, told = _timed(peer)
            theirs.append((seconds if peer_seconds is None else peer_seconds(told)) * scale)
    return Measurement(
        "",
        "",
        unit=unit,
        work=float(work),
        first_call_seconds=first,
        seconds_min=min(mine),
        seconds_median=statistics.median(mine),
        peer=peer_name,
        peer_seconds_min=min(theirs) if theirs else None,
        peer_seconds_median=statistics.median(theirs) if theirs else None,
        aim=None if aim is None else float(aim),
        note=note,
    )


def _checked(check: Callable[[Any, Any], None], ours: Any, theirs: Any) -> None:
    try:
        check(ours, theirs)
    except ResultsDifferError:
        raise
    except AssertionError as error:
        raise ResultsDifferError(str(error)) from error


def machine() -> dict[str, Any]:
    """Describe where the benchmark ran: processor, cores, load, devices and versions.

    Examples:
        >>> machine()["versions"]["jax"] is not None
        True
    """
    import jax

    from mrsa_jax._core.device_words import device_name  # imports JAX

    names = ("mrsa_jax", "jax", "jaxlib", "numpy", "flax", "optax", "cryptography")
    return {
        "processor": _processor(),
        "cores": num_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "device": device_name(),
        "devices": jax.device_count(),
        "compile_cache": bool(getattr(jax.config, "jax_compilation_cache_dir", None)),
        "versions": {name: version_of(name) for name in names},
    }


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def row(item: Measurement, where: dict[str, Any], when: str) -> dict[str, Any]:
    """Return a measurement as one record: its fields, what follows, the machine and the time.

    Args:
        item: The measurement.
        where: What `machine` has returned.
        when: Time, as ISO 8601 with its zone.

    Examples:
        >>> item = Measurement("sums", "one", "sums", 6.0, 1.0, 2.0, 2.0)
        >>> row(item, {}, "2026-01-01T00:00:00+00:00")["rate"]
        3.0
    """
    return dataclasses.asdict(item) | item.derived() | {"machine": where, "time": when}


def record(rows: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Append records to a file, one JSON line each; its folder is made if need be.

    Args:
        rows: Records as `row` makes them.
        path: The file.
    """
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in rows)


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which NumPy's linear algebra runs on one thread.

    Small matrices gain nothing from threads, and a loaded machine makes them a hundred times
    slower: a peer gets its better setting.
    """
    library = needed("threadpoolctl", "bench", "`threadpoolctl` must be there for this peer")
    return library.threadpool_limits(1)


def now() -> str:
    """Return the time as records carry it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


# ---- The topics of `mrsa-jax bench`: what each measures, and the cases of one when it is wanted.
#
# Nothing here imports JAX: `--help` and `--list` answer at once. A topic `x` lives in the module
# `_x.py`, whose `cases(quick)` returns its cases in order.


class Case(NamedTuple):
    """One measurement to be made.

    Attributes:
        name: What is run, with its sizes.
        measure: Sets up, compares and times.
        needs: The system of `PEERS` that it is compared with; None if it needs none.
    """

    name: str
    measure: Callable[[], Measurement]
    needs: str | None = None


class Topic(NamedTuple):
    """What a topic measures.

    Attributes:
        ours: What of ours is timed.
        beside: What it is compared with in this process.
        peers: Systems in environments of their own that `--peers` compares it with.
    """

    ours: str
    beside: str
    peers: tuple[str, ...] = ()


TOPICS: dict[str, Topic] = {
    name: Topic(own["ours"], own["beside"], tuple(own.get("peers", ())))
    for name, own in tomllib.loads(
        (pathlib.Path(__file__).parent / "topics.toml").read_text(encoding="utf-8")
    ).items()
}


def cases_of(topic: str, *, quick: bool) -> list[Case]:
    """Return the cases of a topic; imports JAX and what the topic needs.

    Args:
        topic: A name of `TOPICS`.
        quick: Sizes of seconds instead of those that the records hold.

    Returns:
        The cases in the order in which they are run.
    """
    module = importlib.import_module(f"mrsa_jax.bench._{topic}")
    found: list[Case] = module.cases(quick)
    return found
