"""Records together.

The law that times follow over a setting, and whether they have changed.
Everything here reads records as `Report.rows` and files of JSON lines hold them. Times
are processor seconds where records have them (on a CPU), else seconds: on a machine
that is shared, only the former repeat themselves.
"""

from __future__ import annotations

import json
import math
import pathlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_watch._base.errors import require
from mrsa_watch._base.values import by_value

if TYPE_CHECKING:
    from mrsa_jax.plotting.chart import Chart

MARGIN = 0.1
"""Change of a time that is too little to be called one."""
LEVEL = 0.01
"""Chance that any of the cases of a run is called slower, or any faster, where none is.
"""


@by_value
class Law(NamedTuple):
    """A power law, `seconds = factor * x ** exponent`.

    Attributes:
        exponent: Slope between logarithms, by least squares.
        factor: Seconds at x = 1.
        low: Lower end of the exponent's 95 % interval, by Student's t; None of two
            points, which have none.
        high: Its upper end.
    """

    exponent: float
    factor: float
    low: float | None
    high: float | None


def fit_law(x: Any, y: Any) -> Law:
    """Fit a power law to positive points, at least two of them.

    The interval holds where the points scatter alike, in their logarithms, about one
    law. Where a fixed cost bends the curve, it widens; more points then narrow it about
    no law at all.

    Args:
        x: float[n], e.g. numbers of clients.
        y: float[n], seconds.

    Raises:
        ConfigurationError: If there are fewer than two different x, or values are not
            positive.

    Examples:
        >>> import mrsa_jax as mj
        >>> law = mj.bench.scaling.fit_law([1, 10, 100], [2, 200, 20_000])
        >>> round(law.exponent, 12), round(law.factor, 12)
        (2.0, 2.0)
    """
    own, times = np.asarray(x, float), np.asarray(y, float)
    sound = (
        own.shape == times.shape
        and own.ndim == 1
        and bool((own > 0).all() & (times > 0).all())
    )
    require(sound, "x", "must be positive, one for each positive `y`")
    require(
        len(np.unique(own)) >= 2, "x", "must have at least two values", own.tolist()
    )
    logs, values = np.log(own), np.log(times)
    centred = logs - logs.mean()
    spread = float(centred @ centred)
    slope = float(centred @ values) / spread
    start, free = float(values.mean() - slope * logs.mean()), len(own) - 2
    if free == 0:
        return Law(slope, math.exp(start), None, None)
    left = values - start - slope * logs
    error = math.sqrt(float(left @ left) / free / spread)
    half = _quantile(float(free), 0.975) * error
    return Law(slope, math.exp(start), slope - half, slope + half)


@by_value
class Curve(NamedTuple):
    """Times over one setting, all others alike.

    Attributes:
        benchmark: The topic.
        setting: What differs.
        others: The other settings of the curve that differ between curves, in words.
        x: Values of the setting, in order.
        seconds: Of our fastest calls.
        peer_seconds: Of the peer's, of the same work; empty without a peer.
        law: What our times follow.
        clock: "processor time" or "time".
        peer: Who the peer is.
        is_noise: Whether repeats of a point scatter too far.
    """

    benchmark: str
    setting: str
    others: str
    x: tuple[float, ...]
    seconds: tuple[float, ...]
    peer_seconds: tuple[float, ...]
    law: Law
    clock: str
    peer: str | None
    is_noise: bool

    @property
    def words(self) -> str:
        """What the times follow, in a sentence."""
        at = f"{self.benchmark}, {self.others}" if self.others else self.benchmark
        text = f"{at}: {self.clock} grows as {self.setting}^{self.law.exponent:.2f}"
        if self.law.low is None or self.law.high is None:
            return f"{text} between two points"
        return (
            f"{text} (95 % interval {self.law.low:.2f} to {self.law.high:.2f}, "
            f"{len(self.x)} points)" + ", some of them noise" * self.is_noise
        )


def curves(rows: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """Return a curve for each setting of records that has several values, all others alike."""
    known = [row for row in rows if row.get("sizes")]
    found = []
    for topic in dict.fromkeys(row["benchmark"] for row in known):
        own = [row for row in known if row["benchmark"] == topic]
        varied = [
            name
            for name in own[0]["sizes"]
            if len({row["sizes"][name] for row in own}) > 1
        ]
        for setting in varied:
            if not isinstance(own[0]["sizes"][setting], int):
                continue
            groups: dict[str, list[Mapping[str, Any]]] = {}
            for row in own:
                rest = (
                    f"{o} {_written(row['sizes'][o])}" for o in varied if o != setting
                )
                groups.setdefault(", ".join(rest), []).append(row)
            found += [_curve(topic, setting, *group) for group in groups.items()]
    return found


def _written(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _curve(
    topic: str, setting: str, others: str, rows: list[Mapping[str, Any]]
) -> Curve:
    rows = sorted(rows, key=lambda row: row["sizes"][setting])
    x = tuple(float(row["sizes"][setting]) for row in rows)
    # of processors, where both sides of every point have those
    known = all(row["processor_seconds"] for row in rows) and all(
        row["peer_processor_seconds"] for row in rows if row["peer"]
    )
    clock, field = (
        ("processor time", "processor_seconds") if known else ("time", "seconds")
    )
    seconds = tuple(min(row[field]) for row in rows)
    peers = [row[f"peer_{field}"] for row in rows]
    theirs = tuple(min(times) for times in peers) if all(peers) else ()
    noise = any(row["is_noise"] for row in rows)
    law = fit_law(x, seconds)
    return Curve(
        topic, setting, others, x, seconds, theirs, law, clock, rows[0]["peer"], noise
    )


def scaling_charts(found: Sequence[Curve]) -> dict[str, Chart]:
    """Return a chart for each topic and setting of curves, by a name for its files."""
    from mrsa_jax.plotting.chart import Chart, Line

    charts = {}
    for topic, setting in dict.fromkeys(
        (curve.benchmark, curve.setting) for curve in found
    ):
        own = [c for c in found if (c.benchmark, c.setting) == (topic, setting)]
        lines = []
        for curve in own:
            name, x = curve.others or "mrsa_jax", np.asarray(curve.x)
            law = curve.law.factor * x**curve.law.exponent
            power = f"{setting}^{curve.law.exponent:.2f}"
            lines.append(Line(name, x, law, power, weight="broad solid"))
            lines.append(Line(name, x, np.asarray(curve.seconds)))
            if curve.peer_seconds:
                times, peer = (
                    np.asarray(curve.peer_seconds),
                    str(curve.peer).partition(",")[0],
                )
                whose = (name, "peer") if curve.others else (peer, "")
                lines.append(Line(whose[0], x, times, whose[1], weight="thin dashed"))
        charts[f"{topic}_{setting}".replace("-", "_")] = Chart(
            f"Time of {topic} over {setting}",
            f"Seconds of the fastest call over {setting}. Broad: the power law that a "
            "line of "
            f"least squares between logarithms gives. Thin: {own[0].peer or 'no peer'}.",
            lines,
            setting,
            f"{own[0].clock} of a call (s)",
            y_range=(),
            is_log_x=True,
            is_log_y=True,
            whole="",
            are_schemes=False,
            names_lines=True,
            marks_points=True,
        )
    return charts


# ---- Records of two runs: has a case become slower?


@by_value
class Change(NamedTuple):
    """What became of the time of a case.

    Attributes:
        benchmark: The topic.
        case: Its name.
        ratio: New time over old, between geometric means of repeats; both over the
            peer's of the same minutes where both records have the same peer.
        low: Lower end of the ratio's 95 % interval (Welch's).
        high: Its upper end.
        verdict: "slower" or "faster" where it is surely more than `MARGIN`; "same"
            where the interval lies within it; else "unclear".
    """

    benchmark: str
    case: str
    ratio: float
    low: float
    high: float
    verdict: str


def read_records(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines, those without repeats left out.

    A line that is no whole record, because its writer was killed, is named by a
    warning.

    Raises:
        ConfigurationError: If there is no such file, or it holds no records of this
            version.
    """
    rule = "must be a file of records, as `bench --out` writes it"
    require(path.is_file(), "against", rule, str(path))
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            rows.append(json.loads(line or b"null"))
        except (ValueError, RecursionError):
            text = f"line {number} of {path} is no whole record and is left out"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    fields = {
        "benchmark",
        "case",
        "machine",
        "peer",
        "seconds",
        "processor_seconds",
        "peer_seconds",
        "peer_processor_seconds",
    }
    known = [row for row in rows if isinstance(row, dict) and fields <= row.keys()]
    rule = (
        "must hold records with the times of every repeat; measure again what is older"
    )
    require(bool(known), "against", rule, str(path))
    return known


def like(
    old: Iterable[dict[str, Any]], where: Mapping[str, Any]
) -> dict[Any, dict[str, Any]]:
    """Return the newest record of each case that was made on a machine like this one."""
    return {
        (row["benchmark"], row["case"]): row
        for row in old
        if all(
            row["machine"].get(name) == where[name]
            for name in ("processor", "cores", "device")
        )
    }


def changes(
    rows: Iterable[Mapping[str, Any]], old: Mapping[Any, Mapping[str, Any]]
) -> list[Change]:
    """Compare records with those of the same cases before.

    Welch's t between the logarithms of repeats asks whether the ratio is beyond
    `MARGIN`; with several cases by Holm's steps, so that all of them together are wrong
    with a chance of `LEVEL`.

    Args:
        rows: New records.
        old: (benchmark, case) -> the record before, as of `like`.
    """
    found, slower, faster = [], [], []
    for row in rows:
        before = old.get((row["benchmark"], row["case"]))
        if before is None:
            continue
        difference, error, free = _welch(*_samples(row, before))
        half = _quantile(free, 0.975) * error
        margin = math.log1p(MARGIN)
        slower.append(_tail((difference - margin) / error, free))
        faster.append(_tail((-difference - margin) / error, free))
        low, high = math.exp(difference - half), math.exp(difference + half)
        verdict = "same" if abs(difference) + half < margin else "unclear"
        ratio = math.exp(difference)
        found.append(Change(row["benchmark"], row["case"], ratio, low, high, verdict))
    for word, chances in (("slower", slower), ("faster", faster)):
        for place in _holm(chances):
            found[place] = found[place]._replace(verdict=word)
    return found


def _samples(
    new: Mapping[str, Any], old: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms of both records' times, over the peer's where both have it."""
    beside = new["peer"] == old["peer"] and new["peer_seconds"] and old["peer_seconds"]
    kind = (
        "processor_seconds"
        if new["processor_seconds"] and old["processor_seconds"]
        else "seconds"
    )
    if beside and not (new[f"peer_{kind}"] and old[f"peer_{kind}"]):
        kind = "seconds"  # a peer in a process that tells its own
    sides = []
    for row in (new, old):
        values = np.log(np.maximum(row[kind], 1e-9))
        sides.append(
            values - np.log(np.maximum(row[f"peer_{kind}"], 1e-9)) if beside else values
        )
    return sides[0], sides[1]


def _welch(new: np.ndarray, old: np.ndarray) -> tuple[float, float, float]:
    """Return the difference of two means, its standard error, and its degrees of freedom."""
    parts = [
        float(side.var(ddof=1)) / len(side) if len(side) > 1 else math.inf
        for side in (new, old)
    ]
    error = max(math.sqrt(sum(parts)), 1e-12)
    if not math.isfinite(error):  # a single repeat says nothing
        return float(new.mean() - old.mean()), math.inf, 1.0
    below = sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (new, old), strict=True)
    )
    free = error**4 / below if below > 0 else float(len(new) + len(old) - 2)
    return float(new.mean() - old.mean()), error, free


def _quantile(free: float, level: float) -> float:
    from scipy import special

    return float(special.stdtrit(free, level))


def _tail(statistic: float, free: float) -> float:
    from scipy import special

    return float(special.stdtr(free, -statistic))


def _holm(chances: Sequence[float]) -> list[int]:
    """Return the places whose hypotheses Holm's steps reject."""
    rejected: list[int] = []
    for step, place in enumerate(np.argsort(chances).tolist()):
        if chances[place] > LEVEL / (len(chances) - step):
            break
        rejected.append(place)
    return rejected
