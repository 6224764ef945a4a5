"""Time our code and a peer's in the same run: correctness first, compile time apart.

Habits: both sides warmed up, results blocked on, repeats interleaved (a loaded machine
slows both), the seconds and the processor seconds of every repeat kept, memory,
machine, versions and commit in every record.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.sources import commit, version_of
from mrsa_watch._base.errors import MrsaError, needed
from mrsa_watch._base.values import by_value


class ResultsDifferError(AssertionError):
    """Our result and the peer's, or the one that is known to be right, do not agree."""


@by_value
class Answer(dict[str, Any]):
    """Answer of a peer in a separate process, about one call.

    `seconds` and, if known, `cpu_seconds`.
    The seconds of this process are those of a pipe; `compare` takes the peer's own.
    """


class PeerError(MrsaError, RuntimeError):
    """A peer has ended before its answer; the message holds its last words."""


@dataclasses.dataclass(frozen=True)
@by_value
class Measurement:
    """One case of one benchmark, ours against a peer's.

    Attributes:
        benchmark: Topic, e.g. `"selection"`.
        case: What was run, with its sizes.
        unit: Unit of `work`, e.g. `"rounds"`.
        work: Units done in one call.
        first_call_seconds: Our first call, compilation included.
        compiled: What that call compiled: programs of XLA, and loops of numba.
        seconds: Of each of our calls after that.
        processor_seconds: Of all cores, of each of them; empty on an accelerator.
        peer: What we are compared with.
        peer_seconds: Of each of its calls, as if it did the same work; empty without a
            peer.
        peer_processor_seconds: The same of all cores; empty also where a peer in a
            separate process does not report them.
        memory_bytes: The most that a call takes beyond what the process held before it;
            None where the system does not say.
        made_bytes: Bytes that a call makes or sends (None where that says nothing).
        sizes: Settings of the case, where it was asked for by `--n` and the like.
        aim: Ratio of rates (ours over the peer's) that we aim at (None if there is
            none).
        note: Floor, caveats.
    """

    benchmark: str
    case: str
    unit: str
    work: float
    first_call_seconds: float
    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...] = ()
    compiled: dict[str, int] = dataclasses.field(default_factory=dict)
    peer: str | None = None
    peer_seconds: tuple[float, ...] = ()
    peer_processor_seconds: tuple[float, ...] = ()
    memory_bytes: int | None = None
    made_bytes: int | None = None
    sizes: dict[str, Any] = dataclasses.field(default_factory=dict)
    aim: float | None = None
    note: str = ""

    @property
    def rate(self) -> float:
        """Units a second at our fastest call."""
        return self.work / min(self.seconds)

    @property
    def ratio(self) -> float | None:
        """Our rate over the peer's, fastest call against fastest call."""
        return _quotient(self.peer_seconds, self.seconds)

    @property
    def core_ratio(self) -> float | None:
        """The same of processor seconds: one of our cores against one of the peer's."""
        return _quotient(self.peer_processor_seconds, self.processor_seconds)

    @property
    def best_ratio(self) -> float | None:
        """The ratio that is compared with the aim: for a core where it is known."""
        return self.ratio if self.core_ratio is None else self.core_ratio

    @property
    def spread(self) -> float:
        """The median repeat over the fastest, less 1; that of the worse side."""
        ours = self.processor_seconds or self.seconds
        sides = ours, self.peer_processor_seconds or self.peer_seconds
        return max(statistics.median(side) / min(side) - 1.0 for side in sides if side)

    @property
    def is_noise(self) -> bool:
        """Whether the repeats scatter too far for the row to be quoted."""
        return self.spread > MOST_SPREAD

    def derived(self) -> dict[str, Any]:
        """Return the values that a record holds in addition to the fields."""
        names = ("rate", "ratio", "core_ratio", "spread", "is_noise")
        return {name: getattr(self, name) for name in names}


MOST_SPREAD = 0.25
"""Spread beyond which a row is marked as noise."""


REPEATS: contextvars.ContextVar[int] = contextvars.ContextVar("repeats", default=0)
"""Timed calls of each side; 0 for as many as a case has itself."""


def _quotient(peer: Sequence[float], ours: Sequence[float]) -> float | None:
    return min(peer) / min(ours) if peer and ours and min(ours) > 0 else None


def _block(value: Any) -> Any:
    import jax

    return jax.block_until_ready(value)


class _Timed(NamedTuple):
    seconds: float
    processor: float | None  # None where another process did the work and does not say
    value: Any


def _processor_seconds() -> float:
    """Return the processor seconds of this process's threads and of ended children."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def _timed(function: Callable[[], Any]) -> _Timed:
    before, start = _processor_seconds(), time.perf_counter()
    value = _block(function())
    seconds = time.perf_counter() - start
    return _Timed(seconds, _processor_seconds() - before, value)


def _memory_of(function: Callable[[], Any]) -> int | None:
    """Return the most memory that a call takes beyond that held before it, on Linux."""
    process = pathlib.Path("/proc/self")
    try:
        (process / "clear_refs").write_text("5")  # restarts the high-water mark
        held = kibibytes(process, "VmRSS:")
        _block(function())
        return 1024 * max(kibibytes(process, "VmHWM:") - held, 0)
    except OSError:
        return None


def kibibytes(process: pathlib.Path, name: str) -> int:
    """Read a number of a process's memory, such as "VmRSS:", from its /proc folder."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


@functools.cache
def _compilations() -> collections.Counter[str]:
    """Return counters of all that this process compiles from now on."""
    import jax

    from mrsa_watch._base.numba_here import numba

    events = numba.core.event

    counts = collections.Counter(xla=0, numba=0)

    class Loops(events.Listener):
        def on_start(self, event: Any) -> None:
            counts["numba"] += 1

        def on_end(self, event: Any) -> None:
            pass

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        counts["xla"] += event == "/jax/core/compile/backend_compile_duration"

    # listeners stay: there is no public way to take one back
    jax.monitoring.register_event_duration_secs_listener(listen)
    events.register("numba:compile", Loops())
    return counts


def compare(
    ours: Callable[[], Any],
    peer: Callable[[], Any] | None = None,
    *,
    work: float | int,
    unit: str = "",
    peer_work: float | int | None = None,
    peer_name: str | None = None,
    check: Callable[[Any, Any], None] | None = None,
    aim: float | int | None = None,
    repeats: int = 5,
    made_bytes: int | None = None,
    is_elsewhere: bool = False,
    note: str = "",
) -> Measurement:
    """Measure `ours` against `peer`, after `check(our_result, peer_result)` has passed.

    Args:
        ours: Call without arguments; its result is blocked on.
        peer: The same work done by the peer.
        work: Units that `ours` does in one call.
        unit: Name of the unit.
        peer_work: Units that `peer` does in one call, if fewer than `work` (its time is
            scaled).
        peer_name: Who the peer is.
        check: Raises AssertionError if the two results disagree, or if ours is wrong
            (without a peer it gets None); left out only where they cannot be compared.
        aim: Ratio aimed at.
        repeats: Timed calls of each side, interleaved.
        made_bytes: Bytes that one call of `ours` makes or sends.
        is_elsewhere: Each call of both is another process, whose memory the caller
            knows; the first calls are repeats like all others then. Else a further call
            measures the memory.
        note: Anything a reader must know.

    Returns:
        The measurement; whoever runs the case names its topic and it.

    Raises:
        ResultsDifferError: If `check` has found a difference; nothing is timed then.

    Examples:
        >>> import mrsa_jax as mj
        >>> one = mj.bench.harness.compare(lambda: 1, lambda: 1, work=1.0, unit="sums")
        >>> one.ratio > 0
        True
    """
    import jax

    before = _compilations().copy()
    first = _timed(ours)
    compiled = {name: count - before[name] for name, count in _compilations().items()}
    scale = 1.0 if peer_work is None else work / peer_work
    peer_first = None if peer is None else _timed(peer)
    if check is not None:
        _checked(check, first.value, None if peer_first is None else peer_first.value)
    first_seconds = first.seconds
    calls: list[_Timed] = []
    peer_calls: list[_Timed] = []
    if is_elsewhere:  # as cold as any further call
        calls.append(first._replace(value=None))
        if peer_first is not None:
            peer_calls.append(_as_reported(peer_first))
    del first, peer_first  # a second result would be counted as memory of the call
    memory = None if is_elsewhere else _memory_of(ours)
    # interleaved, so that a loaded machine slows both sides
    for _ in range(REPEATS.get() or repeats):
        calls.append(_timed(ours)._replace(value=None))
        if peer is not None:
            peer_calls.append(_as_reported(_timed(peer)))
    is_cpu = jax.default_backend() == "cpu"
    processor = [call.processor for call in peer_calls if call.processor is not None]
    is_known = is_cpu and len(processor) == len(peer_calls)
    return Measurement(
        "",
        "",
        unit=unit,
        work=float(work),
        first_call_seconds=first_seconds,
        compiled=compiled,
        seconds=tuple(call.seconds for call in calls),
        processor_seconds=tuple(call.processor or 0.0 for call in calls if is_cpu),
        peer=peer_name,
        peer_seconds=tuple(scale * call.seconds for call in peer_calls),
        peer_processor_seconds=tuple(scale * spent for spent in processor if is_known),
        memory_bytes=memory,
        made_bytes=made_bytes,
        aim=None if aim is None else float(aim),
        note=note,
    )


def _as_reported(call: _Timed) -> _Timed:
    """Return a peer's times, as it reports them if its process is another."""
    answer = call.value
    if not isinstance(answer, Answer):
        return call._replace(value=None)
    return _Timed(answer["seconds"], answer.get("cpu_seconds"), None)


def _checked(
    check: Callable[[Any, Any], None],
    ours: Any,
    theirs: Any,
) -> None:
    try:
        check(ours, theirs)
    except ResultsDifferError:
        raise
    except AssertionError as error:
        raise ResultsDifferError(str(error)) from error


def machine() -> dict[str, Any]:
    """Describe where the benchmark ran: processor, cores, load, devices and versions.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.bench.harness.machine()["versions"]["jax"] is not None
        True
    """
    import jax

    from mrsa_jax._core.device_words import device_name  # imports JAX

    names = ("mrsa_jax", "jax", "jaxlib", "numpy", "flax", "optax", "cryptography")
    return {
        "commit": commit(),
        "processor": _processor(),
        "cores": num_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "device": device_name(),
        "devices": jax.device_count(),
        "compile_cache": bool(getattr(jax.config, "jax_compilation_cache_dir", None)),
        "versions": {name: version_of(name) for name in names},
    }


def _processor() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def row(
    item: Measurement,
    where: dict[str, Any],
    when: str,
) -> dict[str, Any]:
    """Return a measurement as one record.

    Its fields, what follows, the machine and the time.

    Args:
        item: The measurement.
        where: What `machine` has returned.
        when: Time, as ISO 8601 with its zone.

    Examples:
        >>> from mrsa_jax.bench import harness
        >>> item = harness.Measurement("sums", "one", "sums", 6.0, 1.0, (2.0, 2.5))
        >>> harness.row(item, {}, "2026-01-01T00:00:00+00:00")["rate"]
        3.0
    """
    # one flat record per measurement
    return dataclasses.asdict(item) | item.derived() | {"machine": where, "time": when}


def record(rows: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Append records to a file, one JSON line each; its folder is made if need be.

    Args:
        rows: Records as `row` makes them.
        path: The file.
    """
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(fields) + "\n" for fields in rows)
    with target.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        is_torn = file.read() not in (b"", b"\n")  # a kill cut its last line off
        file.write((is_torn * "\n" + text).encode())


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which NumPy's linear algebra runs on one thread.

    Small matrices gain nothing from threads, and a loaded machine makes them a hundred
    times slower: a peer gets its better setting.
    """
    rule = "`threadpoolctl` must be there for this peer"
    library = needed("threadpoolctl", "bench", rule)
    return library.threadpool_limits(1)


def now() -> str:
    """Return the time as records carry it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Row(NamedTuple):
    """A description of a measurement, as tables of cases have it.

    Attributes:
        unit: Unit of its work.
        peer: Name of the peer, where there is one and the measurement names none.
        aim: Ratio of rates that is aimed at.
        repeats: Timed calls of each side; 0 for those of `compare`.
        note: Floor, caveats; what the measurement itself notes comes first.
    """

    unit: str = ""
    peer: str | None = None
    aim: float | None = None
    repeats: int = 0
    note: str = ""

    def describe(self, item: Measurement) -> Measurement:
        """Return a measurement with what it does not say itself."""
        return dataclasses.replace(
            item,
            unit=item.unit or self.unit,
            peer=item.peer or (self.peer if item.peer_seconds else None),
            aim=item.aim or self.aim,
            note=item.note or self.note,
        )


@by_value
class Case(NamedTuple):
    """One measurement to be made.

    Attributes:
        name: What is run, with its sizes.
        measure: Sets up, compares and times.
        needs: The system that it is compared with; None if it needs none.
        sizes: Settings of the case, where it is of a user's own sizes.
        memory: Bytes that it takes, about, in that case.
        row: Its description in a table.
    """

    name: str
    measure: Callable[[], Measurement]
    needs: str | None = None
    sizes: Mapping[str, Any] = {}  # never changed
    memory: int = 0
    row: Row = Row()


class Sized(NamedTuple):
    """A case of a user's own sizes, which were checked.

    Attributes:
        memory: Bytes that it takes, about.
        measure: Sets up, compares and times.
    """

    memory: int
    measure: Callable[[], Measurement]
