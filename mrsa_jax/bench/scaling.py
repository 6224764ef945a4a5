"""The law that times follow over a setting, and whether a new run is slower.

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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

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


_SECONDS = "processor_seconds seconds peer_processor_seconds peer_seconds"
_FIELDS = {"benchmark", "case", "machine", "peer", *_SECONDS.split()}


Record: TypeAlias = Mapping[str, Any]
"""A measurement as `Report.rows` and files of JSON lines hold it."""


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
    sizes = np.asarray(x, float)
    times = np.asarray(y, float)
    is_positive = bool((sizes > 0).all() and (times > 0).all())
    require(
        sizes.shape == times.shape and sizes.ndim == 1 and is_positive,
        "x",
        "must be positive, one for each positive `y`",
    )
    require(
        len(np.unique(sizes)) >= 2,
        "x",
        "must have at least two values",
        sizes.tolist(),
    )
    logs = np.log(sizes)
    # a power law is a line between logarithms
    slope, start = np.polyfit(logs, np.log(times), 1)
    free = len(sizes) - 2.0
    law = Law(float(slope), math.exp(start), None, None)
    if free == 0:
        return law
    residuals = np.log(times) - start - slope * logs
    error = math.sqrt(residuals @ residuals / free) / np.linalg.norm(logs - logs.mean())
    # Student's interval of the slope
    half = _quantile(free, 0.975) * error
    return law._replace(low=float(slope - half), high=float(slope + half))


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
        """The law of the times, in a sentence."""
        at = f"{self.benchmark}, {self.others}" if self.others else self.benchmark
        text = f"{at}: {self.clock} grows as {self.power}"
        if self.law.low is None:
            return f"{text} between two points"
        ends = f"{self.law.low:.2f} to {self.law.high:.2f}"
        noise = ", some of them noise" * self.is_noise
        return f"{text} (95 % interval {ends}, {len(self.x)} points){noise}"

    @property
    def power(self) -> str:
        """The setting with its exponent."""
        return f"{self.setting}^{self.law.exponent:.2f}"


def curves(rows: Iterable[Record]) -> list[Curve]:
    """Return a curve for each setting that varies in records, all others alike."""
    sized = [row for row in rows if row.get("sizes")]
    drawn = []
    for topic in dict.fromkeys(row["benchmark"] for row in sized):
        records = [row for row in sized if row["benchmark"] == topic]
        first = records[0]["sizes"]
        varied = [
            name for name in first if len({row["sizes"][name] for row in records}) > 1
        ]
        for setting in varied:
            if not isinstance(first[setting], int):
                continue
            # a curve for each combination of the other settings
            groups: dict[str, list[Record]] = {}
            for row in records:
                values = row["sizes"]
                others = (f"{o} {written(values[o])}" for o in varied if o != setting)
                groups.setdefault(", ".join(others), []).append(row)
            drawn += [_curve(topic, setting, *group) for group in groups.items()]
    return drawn


def written(value: Any) -> str:
    """Return a value of a setting as text, with separated thousands."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _curve(
    topic: str,
    setting: str,
    others: str,
    rows: list[Record],
) -> Curve:
    rows = sorted(rows, key=lambda row: row["sizes"][setting])
    x = tuple(float(row["sizes"][setting]) for row in rows)
    clock, field = "processor time", "processor_seconds"
    # seconds, unless both sides of every point have those of processors
    if not all(
        row[field] and (row[f"peer_{field}"] or not row["peer"]) for row in rows
    ):
        clock, field = "time", "seconds"
    seconds = tuple(min(row[field]) for row in rows)
    peers = [row[f"peer_{field}"] for row in rows]
    peer_seconds = tuple(min(times) for times in peers) if all(peers) else ()
    return Curve(
        topic,
        setting,
        others,
        x,
        seconds,
        peer_seconds,
        fit_law(x, seconds),
        clock,
        rows[0]["peer"],
        any(row["is_noise"] for row in rows),
    )


def scaling_charts(drawn: Sequence[Curve]) -> dict[str, Chart]:
    """Return a chart for each topic and setting of curves, by a name for its files."""
    from mrsa_jax.plotting.chart import Chart, Line

    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in drawn:
        groups.setdefault((curve.benchmark, curve.setting), []).append(curve)
    charts = {}
    for (topic, setting), group in groups.items():
        lines = []
        for curve in group:
            name = curve.others or "mrsa_jax"
            x = np.asarray(curve.x)
            law = curve.law.factor * x**curve.law.exponent
            lines.append(Line(name, x, law, curve.power, weight="broad solid"))
            lines.append(Line(name, x, curve.seconds))
            if curve.peer_seconds:
                peer = str(curve.peer).partition(",")[0]
                whose = (name, "peer") if curve.others else (peer, "")
                name, part = whose
                times = curve.peer_seconds
                lines.append(Line(name, x, times, part, weight="thin dashed"))
        words = {
            "topic": topic,
            "setting": setting,
            "clock": group[0].clock,
            "peer": group[0].peer or "no peer",
        }
        name = f"{topic}_{setting}".replace("-", "_")
        charts[name] = Chart.named("scaling", lines, words=words)
    return charts


@by_value
class Change(NamedTuple):
    """Change of the time of a case.

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
    require(
        path.is_file(),
        "against",
        "must be a file of records, as `bench --out` writes it",
        str(path),
    )
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            rows.append(json.loads(line or b"null"))
        except (ValueError, RecursionError):
            text = f"line {number} of {path} is no whole record and is left out"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    records = [row for row in rows if isinstance(row, dict) and row.keys() >= _FIELDS]
    rule = (
        "must hold records with the times of every repeat; measure again what is older"
    )
    require(bool(records), "against", rule, str(path))
    return records


def like(
    old: Iterable[dict[str, Any]], where: Mapping[str, Any]
) -> dict[Any, dict[str, Any]]:
    """Return the newest record of each case from a machine like this one."""
    names = ("processor", "cores", "device")
    return {
        (row["benchmark"], row["case"]): row
        for row in old
        if all(row["machine"].get(name) == where[name] for name in names)
    }


def changes(rows: Iterable[Record], old: Mapping[Any, Record]) -> list[Change]:
    """Compare records with those of the same cases before.

    Welch's t between the logarithms of repeats asks whether the ratio is beyond
    `MARGIN`; with several cases by Holm's steps, so that all of them together are wrong
    with a chance of `LEVEL`.

    Args:
        rows: New records.
        old: (benchmark, case) -> the record before, as of `like`.
    """
    compared: list[Change] = []
    chances: dict[str, list[float]] = {"slower": [], "faster": []}
    # a ratio of times is a difference of their logarithms
    margin = math.log1p(MARGIN)
    for row in rows:
        before = old.get((row["benchmark"], row["case"]))
        if before is None:
            continue
        # of logarithms: the ratio is what is asked about
        difference, error, free = _welch(*_samples(row, before))
        half = _quantile(free, 0.975) * error
        for word, sign in (("slower", 1), ("faster", -1)):
            statistic = (sign * difference - margin) / error
            chances[word].append(_tail(statistic, free))
        low, ratio, high = np.exp([difference - half, difference, difference + half])
        verdict = "same" if abs(difference) + half < margin else "unclear"
        names = row["benchmark"], row["case"]
        compared.append(
            Change(
                *names,
                float(ratio),
                float(low),
                float(high),
                verdict,
            )
        )
    for word, tails in chances.items():
        for place in _holm(tails):
            compared[place] = compared[place]._replace(verdict=word)
    return compared


def _samples(new: Record, old: Record) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms of both records' times, over the peer's where both have it."""
    has_peer = (
        new["peer"] == old["peer"] and new["peer_seconds"] and old["peer_seconds"]
    )
    kinds = ["processor_seconds", "peer_processor_seconds"][: 1 + bool(has_peer)]
    # a peer in another process may report seconds alone
    is_known = all(row[kind] for row in (new, old) for kind in kinds)
    kind = "processor_seconds" if is_known else "seconds"
    # a peer's time of the same minutes takes out how loaded the machine was
    sides = []
    for row in (new, old):
        values = np.log(np.maximum(row[kind], 1e-9))
        if has_peer:
            values -= np.log(np.maximum(row[f"peer_{kind}"], 1e-9))
        sides.append(values)
    return sides[0], sides[1]


def _welch(new: np.ndarray, old: np.ndarray) -> tuple[float, float, float]:
    """Return two means' difference, its standard error and degrees of freedom."""
    difference = float(new.mean() - old.mean())
    if min(len(new), len(old)) == 1:  # a single repeat says nothing
        return difference, math.inf, 1.0
    sizes = np.array([len(new), len(old)])
    parts = np.array([new.var(ddof=1), old.var(ddof=1)]) / sizes
    error = max(math.sqrt(parts.sum()), 1e-12)
    # Welch and Satterthwaite's degrees of freedom; those of Student without any spread
    below = float((parts**2 / (sizes - 1)).sum())
    free = error**4 / below if below > 0 else float(sizes.sum() - 2)
    return difference, error, free


def _quantile(free: float, level: float) -> float:
    from scipy import special

    return float(special.stdtrit(free, level))


def _tail(statistic: float, free: float) -> float:
    from scipy import special

    return float(special.stdtr(free, -statistic))


def _holm(chances: Sequence[float]) -> list[int]:
    """Return the places whose hypotheses Holm's steps reject."""
    rejected: list[int] = []
    # the smallest chance against LEVEL / n, the next against LEVEL / (n - 1), ...
    for step, place in enumerate(np.argsort(chances).tolist()):
        if chances[place] > LEVEL / (len(chances) - step):
            break
        rejected.append(place)
    return rejected
