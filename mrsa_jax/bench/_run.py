"""Run topics one after another: what cannot be compared is said, and one failure ends nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax.bench._sizes import own_cases
from mrsa_jax.bench._topics import TOPICS, cases_of, of_checkout
from mrsa_jax.bench.harness import (
    REPEATS,
    Case,
    Measurement,
    PeerError,
    ResultsDifferError,
    machine,
    now,
    row,
)
from mrsa_watch._base.errors import nearest, require

if TYPE_CHECKING:
    from mrsa_jax.study import Progress


@dataclasses.dataclass(frozen=True)
class Failure:
    """A case that was not measured because something was wrong.

    Attributes:
        benchmark: Its topic.
        case: Its name.
        reason: The difference between two results, or a peer's last words.
    """

    benchmark: str
    case: str
    reason: str


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Cases that were not measured because something is not installed.

    Attributes:
        why: E.g. "against FedJAX: no environment".
        make: Commands that install it.
        cases: Their names.
    """

    why: str
    make: tuple[str, ...]
    cases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a run found.

    Attributes:
        measurements: One for each case that was measured.
        failures: One for each case that was not, because a result was wrong or a peer broke down.
        left_out: System in a separate environment that has none here -> the cases left out.
        machine: Where it ran.
        time: When it began.
    """

    measurements: tuple[Measurement, ...]
    failures: tuple[Failure, ...]
    left_out: dict[str, LeftOut]
    machine: dict[str, Any]
    time: str

    def rows(self) -> list[dict[str, Any]]:
        """Return one record for each measurement, as it is kept in a file of JSON lines."""
        return [row(item, self.machine, self.time) for item in self.measurements]

    def as_json(self) -> dict[str, Any]:
        """Return everything that was found, for JSON."""
        left_out = {name: dataclasses.asdict(each) for name, each in self.left_out.items()}
        failures = [dataclasses.asdict(failure) for failure in self.failures]
        return {"measurements": self.rows(), "failures": failures, "left_out": left_out}


def check_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """Return the topics, all of them if none is given.

    Raises:
        ConfigurationError: If a topic is unknown; the message names the nearest.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.bench.check_topics(["rank"])
        ('rank',)
        >>> mj.bench.check_topics([]) == tuple(mj.bench.TOPICS)
        True
    """
    for topic in topics:
        rule = f"must be a known topic; {nearest(topic, TOPICS)}"
        require(topic in TOPICS, "topics", rule, topic)
    return tuple(dict.fromkeys(topics)) or tuple(TOPICS)


def run(
    topics: Sequence[str] = (),
    *,
    peers: bool = False,
    quick: bool = False,
    sizes: Mapping[str, Sequence[str]] | None = None,
    repeats: int = 0,
    watch: Progress | None = None,
) -> Report:
    """Run the benchmarks of some topics.

    Args:
        topics: Names of `TOPICS`; all of them if empty.
        peers: Whether to compare with other systems too, each in a separate environment.
        quick: Small sizes, for seconds instead of minutes.
        sizes: Sizes of your own instead of the topics': setting -> its values, as written, such
            as `{"n": ["100", "500"], "dim": ["1e4"]}`; a case for each combination.
        repeats: Timed calls of each side; 0 for as many as a case has itself.
        watch: Told how far the run is.

    Returns:
        Measurements, failures, and the cases left out for want of an environment.

    Raises:
        ConfigurationError: If a topic is unknown, and before any work if sizes are unsound or do
            not fit into memory.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.bench.run(["averaging"], quick=True).measurements  # all cases need another system
        ()
    """
    chosen = check_topics(topics)
    if sizes is None:
        planned = {topic: cases_of(topic, quick=quick) for topic in chosen}
    else:
        planned = own_cases(chosen if topics else (), sizes)
    when, where = now(), machine()
    found, before = _Found([], [], {}), REPEATS.set(repeats)
    try:
        for topic, everything in planned.items():
            cases = [case for case in everything if peers or case.needs is None]
            if watch is not None:
                watch.stage(topic, len(cases))
            for done, case in enumerate(cases):
                _measure(topic, case, found)
                if watch is not None:
                    watch.update(done + 1, len(cases))
    finally:
        REPEATS.reset(before)
    return Report(tuple(found.measurements), tuple(found.failures), found.left_out, where, when)


@dataclasses.dataclass
class _Found:
    measurements: list[Measurement]
    failures: list[Failure]
    left_out: dict[str, LeftOut]

    def leave_out(self, system: Any, case: str) -> None:
        before = self.left_out.get(system.name, LeftOut(f"against {system.title}", system.make))
        self.left_out[system.name] = dataclasses.replace(before, cases=(*before.cases, case))


def _measure(topic: str, case: Case, found: _Found) -> None:
    if case.needs is not None:
        system = of_checkout("rivals").SYSTEMS[case.needs]
        if system.python is None:
            found.leave_out(system, case.name)
            return
    try:
        item = case.measure()
    except (ResultsDifferError, PeerError) as error:
        found.failures.append(Failure(topic, case.name, str(error).strip()))
    else:
        item = dataclasses.replace(item, benchmark=topic, case=case.name, sizes=dict(case.sizes))
        found.measurements.append(item)
