"""The topics of `mrsa-jax bench`, their cases, cases of your own sizes, and a run.

Topics and cases are tables: `topics.toml` and `cases.toml`, here and in a checkout's
`benchmarks/topics`. A run reports what cannot be compared; one failure ends nothing.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import importlib
import itertools
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from mrsa_jax._core.memory import memory_words
from mrsa_jax.bench.harness import (
    REPEATS,
    Case,
    Measurement,
    PeerError,
    ResultsDifferError,
    Row,
    machine,
    now,
    row,
)
from mrsa_jax.bench.scaling import written
from mrsa_watch._base.errors import nearest, require
from mrsa_watch._base.values import by_value

if TYPE_CHECKING:
    from mrsa_jax.study import Progress


class Topic(NamedTuple):
    """A topic of benchmarks.

    Attributes:
        ours: What is timed.
        beside: What it is compared with in this process.
        peers: Systems in separate environments that `--peers` compares it with.
        sizes: Settings that a user's own sizes may name, with what they are otherwise.
    """

    ours: str
    beside: str
    peers: tuple[str, ...] = ()
    sizes: Mapping[str, str] = MappingProxyType({})

    def systems(self) -> dict[str, Any]:
        """Return the systems of `peers` by name, which only a checkout has."""
        return {name: _of_checkout("rivals").SYSTEMS[name] for name in self.peers}


def _tables(name: str) -> list[dict[str, dict[str, Any]]]:
    """Return a file of tables of the package, and that of a checkout if any."""
    here = pathlib.Path(__file__)
    folders = here.parent, here.parents[2] / "benchmarks" / "topics"
    files = [folder / name for folder in folders if (folder / name).is_file()]
    return [tomllib.loads(file.read_text(encoding="utf-8")) for file in files]


_OURS, *_ADDED = _tables("topics.toml")


def _topics() -> dict[str, Topic]:
    topics = {name: dict(fields) for name, fields in _OURS.items()}
    for added in _ADDED:
        for name, fields in added.items():
            topics.setdefault(name, {}).update(fields)
    return {name: Topic(**fields) for name, fields in topics.items()}


TOPICS: dict[str, Topic] = _topics()


def _of_checkout(name: str) -> Any:
    """Return a module of `benchmarks/`, which only a checkout has."""
    return importlib.import_module(f"benchmarks.{name}")


def topic_module(topic: str) -> Any:
    """Return the module of a topic: the package's, or else that of a checkout."""
    if topic in _OURS:
        return importlib.import_module(f"mrsa_jax.bench.{topic}")
    return _of_checkout(f"topics.{topic}")


def cases_of(topic: str, *, quick: bool) -> list[Case]:
    """Return the cases of a topic; imports JAX and what the topic needs.

    Args:
        topic: A name of `TOPICS`.
        quick: Sizes of seconds instead of those that the records hold.

    Returns:
        The cases in the order in which they are run; those that a checkout adds come
        last.
    """
    modules = [topic_module(topic)]
    if topic in _OURS:
        modules += [
            _of_checkout(f"topics.{topic}") for added in _ADDED if topic in added
        ]
    # a topic of both folders has its table, and its module, in each
    tables = [file[topic] for file in _tables("cases.toml") if topic in file]
    cases = []
    for module, functions in zip(modules, tables, strict=True):
        for name, table in functions.items():
            rows = _rows(table.get("quick" if quick else "full", ()))
            cases += [_case(getattr(module, name), table | fields) for fields in rows]
    return cases


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
        require(
            topic in TOPICS,
            "topics",
            f"must be a known topic; {nearest(topic, TOPICS)}",
            topic,
        )
    return tuple(dict.fromkeys(topics)) or tuple(TOPICS)


# settings that are names; all others are whole numbers
_WORDS = ("graph", "scheme", "model")
_WHOLE = re.compile(r"\d[\d_]*(\.\d+)?([eE]\+?\d{1,2})?")
_POWER = re.compile(r"(\d{1,6})\*\*(\d{1,2})")
_MOST_CASES = 1_000


_NO_SIZES = {*Row._fields, "name", "needs", "words", "each", "quick", "full"}


def _read(name: str, text: str) -> int | str:
    """Return a value of a setting.

    A name, or a whole number such as `500`, `1e6` or `2**32`.

    Raises:
        ConfigurationError: If it is no positive whole number below 2**63.

    Examples:
        >>> _read("dim", "1e6"), _read("modulus", "2**32"), _read("graph", "complete")
        (1000000, 4294967296, 'complete')
    """
    if name in _WORDS:
        return text
    power, number = _POWER.fullmatch(text), decimal.Decimal(0)
    if power is not None:
        number = decimal.Decimal(int(power[1]) ** int(power[2]))
    # exact, where a float would round 2**63 - 1
    elif _WHOLE.fullmatch(text):
        number = decimal.Decimal(text.replace("_", ""))
    require(
        0 < number < 2**63 and number == number.to_integral_value(),
        name.replace("-", "_"),
        "must be a positive whole number, such as 500, 1e6 or 2**32",
        text,
    )
    return int(number)


def own_cases(
    topics: Sequence[str], given: Mapping[str, Sequence[str]]
) -> dict[str, list[Case]]:
    """Return for each topic a case for every combination of the values that were given.

    Settings that were not given have the values of `TOPICS`. Nothing is measured, but
    all settings are checked, and that each case fits into memory.

    Args:
        topics: Names of topics with sizes.
        given: Setting -> its values, as written.

    Raises:
        ConfigurationError: For a topic without sizes, a setting that no topic reads, a
            value that is none of its kind or comes twice, and a case that memory does
            not hold.

    Examples:
        >>> import mrsa_jax as mj
        >>> cases = mj.bench.own_cases(["shares"], {"n": ["100", "1e3"]})["shares"]
        >>> [case.name for case in cases]
        ['n = 100', 'n = 1,000']
    """
    sized = {name for name, topic in TOPICS.items() if topic.sizes}
    require(
        bool(topics) and sized.issuperset(topics),
        "topics",
        f"must be named with your own sizes, each one of {', '.join(sorted(sized))}",
        *topics,
    )
    for name, values in given.items():
        argument = name.replace("-", "_")
        readers = [topic for topic in TOPICS if name in TOPICS[topic].sizes]
        require(
            not set(topics).isdisjoint(readers),
            argument,
            f"must not be set: only {', '.join(readers)} read it",
        )
        require(
            len({_read(name, value) for value in values}) == len(values),
            argument,
            "must not contain duplicates",
            *values,
        )
    cases = {topic: _cases(topic, given) for topic in topics}
    count = sum(map(len, cases.values()))
    require(
        count <= _MOST_CASES,
        "topics",
        f"must make at most {_MOST_CASES} cases",
        count,
    )
    return cases


def _cases(topic: str, settings: Mapping[str, Sequence[str]]) -> list[Case]:
    sizes = {
        name: settings.get(name) or (value,)
        for name, value in TOPICS[topic].sizes.items()
    }
    tables = next(file[topic] for file in _tables("cases.toml") if topic in file)
    row = _row(tables.get("sized") or next(iter(tables.values())))
    cases = []
    for combination in itertools.product(*sizes.values()):
        # a setting as written, and as the number that the topic takes
        texts = dict(zip(sizes, combination, strict=True))
        values = {name: _read(name, text) for name, text in texts.items()}
        sized = topic_module(topic).sized(**_arguments(values))
        # memory grows with the numbers, except that of a ring
        growing = [name for name in values if name not in (*_WORDS, "modulus")]
        largest = max(growing, key=lambda name: int(values[name]))
        argument = largest.replace("-", "_")
        memory_words(sized.memory, argument, texts[largest], "the sizes")
        name = ", ".join(f"{k} = {written(v)}" for k, v in _arguments(values).items())
        cases.append(Case(name, sized.measure, None, values, sized.memory, row))
    return cases


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of settings by the names of arguments."""
    return {name.replace("-", "_"): value for name, value in values.items()}


def _rows(tables: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a table for each combination of the values in its `each`."""
    for table in tables:
        each = table.get("each", {})
        for values in itertools.product(*each.values()):
            yield {**table, **dict(zip(each, values, strict=True))}


def _row(table: Mapping[str, Any]) -> Row:
    return Row(**{name: table[name] for name in Row._fields if name in table})


def _case(function: Callable[..., Measurement], table: Mapping[str, Any]) -> Case:
    """Return the case of a table: its other keys are the function's arguments."""
    sizes = {name: value for name, value in table.items() if name not in _NO_SIZES}
    name = table["name"].format(**sizes, **table.get("words", {}))
    measure = functools.partial(function, **sizes)
    return Case(
        name,
        measure,
        table.get("needs"),
        row=_row(table),
    )


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
@by_value
class Report:
    """Results of a run.

    Attributes:
        measurements: One for each case that was measured.
        failures: One for each case that was not, because a result was wrong or a peer
            broke down.
        left_out: System in a separate environment that has none here -> the cases left
            out.
        machine: Where it ran.
        time: When it began.
    """

    measurements: tuple[Measurement, ...]
    failures: tuple[Failure, ...]
    left_out: dict[str, LeftOut]
    machine: dict[str, Any]
    time: str

    def rows(self) -> list[dict[str, Any]]:
        """Return one record for each measurement, as files of JSON lines keep it."""
        return [row(item, self.machine, self.time) for item in self.measurements]

    def as_json(self) -> dict[str, Any]:
        """Return everything that was found, for JSON."""
        left_out = {
            name: dataclasses.asdict(each) for name, each in self.left_out.items()
        }
        failures = [dataclasses.asdict(failure) for failure in self.failures]
        return {"measurements": self.rows(), "failures": failures, "left_out": left_out}


def run(
    topics: Sequence[str] = (),
    *,
    peers: bool = False,
    quick: bool = False,
    sizes: Mapping[str, Sequence[str]] | None = None,
    repeats: int = 0,
    watch: Progress | None = None,
    keep: Callable[[dict[str, Any]], object] | None = None,
) -> Report:
    """Run the benchmarks of some topics.

    Args:
        topics: Names of `TOPICS`; all of them if empty.
        peers: Whether to compare with other systems too, each in a separate
            environment.
        quick: Small sizes, for seconds instead of minutes.
        sizes: Sizes of your own instead of the topics': setting -> its values, as
            written, such as `{"n": ["100", "500"], "dim": ["1e4"]}`; a case for each
            combination.
        repeats: Timed calls of each side; 0 for as many as a case has itself.
        watch: Told how far the run is.
        keep: Receives the record of each case as soon as it is measured, as
            `Report.rows` has it.

    Returns:
        Measurements, failures, and the cases left out for want of an environment.

    Raises:
        ConfigurationError: If a topic is unknown, and before any work if sizes are
            unsound or do not fit into memory.

    Examples:
        >>> import mrsa_jax as mj
        >>> # all cases need another system
        >>> mj.bench.run(["averaging"], quick=True).measurements
        ()
    """
    chosen = check_topics(topics)
    if sizes is None:
        planned = {topic: cases_of(topic, quick=quick) for topic in chosen}
    else:
        planned = own_cases(chosen if topics else (), sizes)
    when, where = now(), machine()
    results = _Results([], [], {})
    # a context variable: cases read it wherever they compare
    before = REPEATS.set(repeats)
    try:
        for topic, everything in planned.items():
            cases = [case for case in everything if peers or case.needs is None]
            if watch is not None:
                watch.stage(topic, len(cases))
            for done, case in enumerate(cases):
                item = _measure(topic, case, results)
                if item is not None and keep is not None:
                    keep(row(item, where, when))
                if watch is not None:
                    watch.update(done + 1, len(cases))
    finally:
        REPEATS.reset(before)
    return Report(
        tuple(results.measurements),
        tuple(results.failures),
        results.left_out,
        where,
        when,
    )


@dataclasses.dataclass
class _Results:
    measurements: list[Measurement]
    failures: list[Failure]
    left_out: dict[str, LeftOut]

    def leave_out(self, system: Any, case: str) -> None:
        nothing = LeftOut(f"against {system.title}", system.make)
        before = self.left_out.get(system.name, nothing)
        cases = (*before.cases, case)
        self.left_out[system.name] = dataclasses.replace(before, cases=cases)


def _measure(
    topic: str,
    case: Case,
    results: _Results,
) -> Measurement | None:
    """Measure a case and return the measurement, None if it fails or is left out."""
    if case.needs is not None:
        system = TOPICS[topic].systems()[case.needs]
        if system.python is None:
            results.leave_out(system, case.name)
            return None
    before = REPEATS.set(REPEATS.get() or case.row.repeats)
    try:
        item = case.row.describe(case.measure())
    except (ResultsDifferError, PeerError) as error:
        results.failures.append(Failure(topic, case.name, str(error).strip()))
        return None
    finally:
        REPEATS.reset(before)
    sizes = dict(case.sizes)
    item = dataclasses.replace(
        item,
        benchmark=topic,
        case=case.name,
        sizes=sizes,
    )
    results.measurements.append(item)
    return item
