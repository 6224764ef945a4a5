"""Time our code beside a peer's in the same run: correctness first, compile time apart.

Habits: both sides warmed up, results blocked on, repeats interleaved (a loaded machine slows
both), minimum and median kept, machine and versions in every record.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Measurement", "compare", "machine", "record", "table"]


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


def _block(value: Any) -> Any:
    import jax

    return jax.block_until_ready(value)


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = _block(function())
    return time.perf_counter() - start, value


def compare(
    benchmark: str,
    case: str,
    ours: Callable[[], Any],
    peer: Callable[[], Any] | None = None,
    *,
    work: float,
    unit: str,
    peer_work: float | None = None,
    peer_name: str | None = None,
    check: Callable[[Any, Any], None] | None = None,
    aim: float | None = None,
    repeats: int = 5,
    note: str = "",
) -> Measurement:
    """Measure `ours` against `peer`, after `check(our_result, peer_result)` has passed.

    Args:
        benchmark: Topic of the record.
        case: Name of the case, sizes included.
        ours: Call without arguments; its result is blocked on.
        peer: The same work done by the peer.
        work: Units that `ours` does in one call.
        unit: Name of the unit.
        peer_work: Units that `peer` does in one call, if fewer than `work` (its time is scaled).
        peer_name: Who the peer is.
        check: Raises if the two results disagree; None only where they cannot be compared.
        aim: Ratio aimed at.
        repeats: Timed calls of each side, interleaved.
        note: Anything a reader must know.

    Returns:
        The measurement.
    """
    first, value = _timed(ours)
    scale = 1.0 if peer_work is None else work / peer_work
    if peer is not None:
        _, peer_value = _timed(peer)
        if check is not None:
            check(value, peer_value)
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(repeats):
        mine.append(_timed(ours)[0])
        if peer is not None:
            theirs.append(_timed(peer)[0] * scale)
    return Measurement(
        benchmark=benchmark,
        case=case,
        unit=unit,
        work=float(work),
        first_call_seconds=first,
        seconds_min=min(mine),
        seconds_median=statistics.median(mine),
        peer=peer_name,
        peer_seconds_min=min(theirs) if theirs else None,
        peer_seconds_median=statistics.median(theirs) if theirs else None,
        aim=aim,
        note=note,
    )


def machine() -> dict[str, Any]:
    """Describe where the benchmark ran: processor, cores, load, device and versions."""
    import jax

    versions: dict[str, str | None] = {}
    for name in ("mrsa_jax", "jax", "jaxlib", "numpy", "flax", "optax", "cryptography"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "device": f"{jax.devices()[0].platform} {jax.devices()[0].device_kind}",
        "versions": versions,
    }


def _processor() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def record(measurements: Sequence[Measurement], path: str | os.PathLike[str]) -> None:
    """Append one JSON line for each measurement, with the machine and the time, to `path`."""
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    where = machine()
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with target.open("a", encoding="utf-8") as file:
        for item in measurements:
            row = dataclasses.asdict(item) | {
                "rate": item.rate,
                "ratio": item.ratio,
                "machine": where,
                "time": when,
            }
            file.write(json.dumps(row) + "\n")


def table(measurements: Sequence[Measurement]) -> str:
    """Return the measurements as a plain-text table, one line each."""
    lines = [f"{'case':58} {'rate':>22} {'ratio':>7} {'aim':>5}  peer"]
    for item in measurements:
        rate = (
            f"{item.rate:,.0f} {item.unit}/s"
            if item.rate >= 10
            else f"{item.rate:.3g} {item.unit}/s"
        )
        ratio = "-" if item.ratio is None else f"{item.ratio:.2f}"
        aim = "-" if item.aim is None else f"{item.aim:g}"
        lines.append(f"{item.case:58} {rate:>22} {ratio:>7} {aim:>5}  {item.peer or '-'}")
    return "\n".join(lines)
