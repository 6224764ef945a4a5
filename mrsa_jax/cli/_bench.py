"""`mrsa-jax bench`.

Our rates compared with those of others, in one run, correctness first.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._core.flags import Count, File, Within, shown
from mrsa_jax.cli.console import (
    INTERRUPTS,
    Bars,
    error_console,
    escape,
    output_console,
    print_json,
    print_words,
    use_cores,
)
from mrsa_jax.cli.tables import coloured, print_table
from mrsa_watch._base.errors import require, writing
from mrsa_watch._base.html import counted

if TYPE_CHECKING:
    from mrsa_jax.bench import Report
    from mrsa_jax.bench.harness import Measurement
    from mrsa_jax.bench.scaling import Change, Curve

_WIDTH = 200  # of tables where there is no terminal
_TOPICS = shown("[TOPIC ...]")
_Values = Annotated[tuple[str, ...], shown("X [X ...]")]
_RECORDS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results"


@dataclasses.dataclass(frozen=True)
class BenchConfig:
    """Measure our rates and those of other systems, after comparing every result.

    With your own sizes, every combination of their values is a case, and a setting with
    several values gives a scaling curve with its power law.

    Examples:
      mrsa-jax bench rank --quick
      mrsa-jax bench round --n 50 100 200 --graph harary:20 --dim 1e4 --out curves
      mrsa-jax bench selection --n 120 --against before.jsonl
    """

    topics: Annotated[tuple[str, ...], tyro.conf.Positional, _TOPICS] = ()
    """Topics to measure: names that --list shows. Default: everything."""

    peers: bool = False
    """Compare with other systems too, each in a separate environment (--list shows
    them)."""

    quick: bool = False
    """Small sizes: all topics in about two minutes, as a smoke test; no rates to quote.
    """

    n: _Values = ()
    """Your own numbers of clients; 500, 1e4 and 2**10 are all understood."""

    dim: _Values = ()
    """Coordinates of an update (round, pads, hetero)."""

    groups: _Values = ()
    """Groups of clients, as equal as can be (hetero)."""

    graph: _Values = ()
    """Assignment graphs (round, pads): complete, harary:DEGREE, random_regular:DEGREE,
    ..."""

    modulus: _Values = ()
    """Sizes of the ring (round, pads)."""

    cohort_size: _Values = ()
    """Clients selected per round (selection, rank)."""

    scheme: _Values = ()
    """Selection schemes (selection), such as batch_partitioning:4."""

    rounds: _Values = ()
    """Rounds of each trial (selection)."""

    trials: _Values = ()
    """Trials at once: histories (selection), matrices (rank) or rounds (failures)."""

    model: _Values = ()
    """Models (training): MLP or LeNet."""

    samples: _Values = ()
    """Samples of each client (training)."""

    repeats: Annotated[Count, Within(1)] = None
    """Timed calls of each case and of its peer. Default: the number of the topic."""

    dry_run: bool = False
    """Only list the cases of your own sizes, with the memory that each of them takes.
    """

    against: File = None
    """Compare with the newest records of the same cases in this file, made on a machine
    like this one. Exit with status 3 if a case is slower by more than 10 %, by Welch's
    test. Default: no comparison."""

    list: bool = False
    """Only list the topics, and the other systems with the commands that make them
    available."""

    record: bool = False
    """Append the records to benchmarks/results of this checkout, one file of JSON lines
    per topic."""

    out: File = None
    """Append each record, as soon as its case is measured, to this file of JSON lines;
    or to records.jsonl in this folder, with the figures of scaling curves at the end.
    Default: not written."""

    json: bool = False
    """Print the result as JSON instead."""


_SIZES = ("n", "dim", "groups", "graph", "modulus", "cohort_size", "scheme", "rounds", "trials",
          "model", "samples")  # fmt: skip


def run_bench(config: BenchConfig) -> int:
    """Run the benchmarks and return the exit status.

    1 for a wrong result, 3 for a slower one.
    """
    from mrsa_jax import bench

    topics = bench.check_topics(config.topics)
    sizes = {
        name.replace("_", "-"): getattr(config, name)
        for name in _SIZES
        if getattr(config, name)
    }
    _check(config, bool(sizes))
    if config.list:
        return _list(topics, as_json=config.json)
    # no compile cache of our own: the first call of a case includes its compilation
    use_cores()
    # before the measurements, so that a file without such records is refused at once
    old = {} if config.against is None else _before(config.against, topics)
    if config.dry_run:
        return _show_cases(config, sizes)
    start = time.perf_counter()
    records = _Kept(config)
    if records.files:
        INTERRUPTS.kept = records.words
    with Bars() as bars:
        report = bench.run(
            config.topics,
            peers=config.peers,
            quick=config.quick,
            sizes=sizes or None,
            repeats=config.repeats or 0,
            watch=bars,
            keep=records.add,
        )
    rows = report.rows()
    curves, changed = bench.scaling.curves(rows), bench.scaling.changes(rows, old)
    if config.json:
        more = {
            "curves": [item._asdict() | {"law": item.law._asdict()} for item in curves],
            "changes": [item._asdict() for item in changed],
        }
        print_json(report.as_json() | more)
    else:
        _print_tables(report, time.perf_counter() - start)
        _print_curves(curves, changed)
    if records.folder is not None:
        _draw(curves, records.folder)
    # a wrong result is worse than a slow one
    if report.failures:
        return 1
    return 3 if any(change.verdict == "slower" for change in changed) else 0


def _check(config: BenchConfig, has_sizes: bool) -> None:
    quiet = not (
        config.peers
        or config.quick
        or config.record
        or config.out
        or has_sizes
        or config.against
        or config.repeats
        or config.dry_run
    )
    require(
        not config.list or quiet, "list", "must stand without other flags but --json"
    )
    rule = "must not be set with --quick: use --out"
    require(not (config.record and config.quick), "record", rule)
    rule = "needs a checkout of the project: here use --out FILE"
    require(not config.record or _RECORDS.is_dir(), "record", rule)
    rule = (
        "must be used in a checkout of the project, which has the other systems' "
        "adapters"
    )
    require(not config.peers or _RECORDS.is_dir(), "peers", rule)
    for name in ("quick", "peers", "record"):
        rule = "must not be set with your own sizes"
        require(not (has_sizes and getattr(config, name)), name, rule)
    rule = "must be used together with your own sizes, such as --n 100 500"
    require(has_sizes or not config.dry_run, "dry_run", rule)
    if config.out is not None:
        rule = "must be a file or a folder in a folder that exists"
        require(config.out.parent.is_dir(), "out", rule, str(config.out))


def _before(path: pathlib.Path, topics: Sequence[str]) -> dict[Any, Any]:
    """Return the records to compare with, by case."""
    from mrsa_jax.bench import harness, scaling

    where = harness.machine()
    old = scaling.like(scaling.read_records(path), where)
    old = {case: row for case, row in old.items() if case[0] in topics}
    rule = (
        "must hold records of these topics from a machine like this one "
        f"({where['processor']}, {where['cores']} cores, {where['device']})"
    )
    require(bool(old), "against", rule, str(path))
    return old


def _show_cases(config: BenchConfig, sizes: dict[str, tuple[str, ...]]) -> int:
    from mrsa_jax._core.memory import bytes_in_words
    from mrsa_jax.bench import own_cases

    cases_of = own_cases(config.topics, sizes).items()
    rows = [
        (topic, case.name, case.memory) for topic, cases in cases_of for case in cases
    ]
    if config.json:
        names = ("topic", "case", "memory_bytes")
        print_json({"cases": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        words = [(topic, case, bytes_in_words(memory)) for topic, case, memory in rows]
        _table(("Topic", "Case", "Memory"), words)
    return 0


class _Kept:
    """Writes each case when it is measured.

    An interruption costs only the one that runs.

    Attributes:
        folder: Of --out, where it is one; figures come into it at the end.
        files: Those that records are written to: the file of --out, and with --record
            the folder of the checkout's results.
    """

    def __init__(self, config: BenchConfig) -> None:
        out, self._records = config.out, _RECORDS if config.record else None
        # a name without a suffix is that of a folder to be made
        is_folder = out is not None and (out.is_dir() or not out.suffix)
        self.folder = out if is_folder else None
        self._file = out / "records.jsonl" if out is not None and is_folder else out
        self.files = [path for path in (self._file, self._records) if path is not None]
        self._count = 0
        if self.folder is not None:
            with writing(self.folder):
                self.folder.mkdir(exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Write a record."""
        from mrsa_jax.bench.harness import record

        if self._file is not None:
            with writing(self._file):
                record([row], self._file)
        if self._records is not None:
            with writing(self._records, "record"):
                record([row], self._records / f"{row['benchmark']}.jsonl")
        self._count += 1

    def words(self) -> str:
        """Say what is kept, and how to continue."""
        cases = counted(self._count, "measured case")
        verb = "is" if self._count == 1 else "are"
        where = " and ".join(map(str, self.files))
        return (
            f"{cases} {verb} kept in {where}; the same command measures all of them "
            "again"
        )


def _draw(curves: Sequence[Curve], folder: pathlib.Path) -> None:
    if not curves:
        return
    from mrsa_jax._core.drawing import named_if_not_drawn
    from mrsa_jax.bench.scaling import scaling_charts
    from mrsa_jax.plotting import save_figure

    with writing(folder):
        for name, chart in scaling_charts(curves).items():
            with named_if_not_drawn(name):
                save_figure(chart, folder / name)


def _list(topics: tuple[str, ...], *, as_json: bool) -> int:
    from mrsa_jax import bench

    systems: dict[str, Any] = {}
    for topic in topics:
        systems |= bench.TOPICS[topic].systems()
    if as_json:
        peers = {
            name: {"python": each.python and str(each.python), "make": each.make}
            for name, each in systems.items()
        }
        listed = {topic: bench.TOPICS[topic]._asdict() for topic in topics}
        print_json({"topics": listed, "peers": peers})
        return 0
    rows = []
    for topic in topics:
        about = bench.TOPICS[topic]
        titles = ", ".join(systems[name].title for name in about.peers)
        rows.append((topic, about.ours, about.beside, titles))
    console = _table(("Topic", "What is measured", "Against", "With --peers"), rows)
    for name, each in systems.items():
        path = each.python
        state = f"at {path}" if path is not None else "no environment here; make it:"
        console.print(
            f"{name}: {each.title}, {each.what}; {state}", highlight=False, markup=False
        )
        for command in each.make if path is None else ():
            print_words(console, f"    {command}")
    return 0


def _print_tables(report: Report, seconds: float) -> None:
    if report.measurements:
        headings = (
            "Topic",
            "Case",
            "Rate",
            "Seconds",
            "Core seconds",
            "Compiled",
            "Memory",
            "Ratio",
            "For a core",
            "Aim",
            "Against",
        )
        _table(headings, [_cells(item) for item in report.measurements])
    where = report.machine
    print_words(
        output_console(_WIDTH),
        f"{seconds:.0f} s on {where['processor']}, {where['cores']} cores, "
        f"{where['device']}, "
        f"Python {where['python']}, JAX {where['versions']['jax']}; load at the start "
        f"{where['load'] or 0:.1f}. Seconds: of our fastest call, and of all cores "
        "that it took. "
        "Compiled: programs and loops by its first call. Ratio: our rate over theirs, "
        "fastest call "
        "against fastest; for a core, by processor seconds, where both sides' are "
        "known.",
    )
    errors = error_console()
    for failure in report.failures:
        words = f"[bold red]wrong:[/] {escape(f'{failure.benchmark}, {failure.case}')}"
        errors.print(f"{words}: {escape(failure.reason)}", highlight=False)
    for each in report.left_out.values():
        count = f"{len(each.cases)} case{'' if len(each.cases) == 1 else 's'}"
        errors.print(f"[yellow]left out:[/] {count} {escape(each.why)}; to make it:")
        for command in each.make:
            print_words(errors, f"    {command}")


def _print_curves(curves: Sequence[Curve], changed: Sequence[Change]) -> None:
    console = output_console(_WIDTH)
    for curve in curves:
        print_words(console, curve.words)
    if changed:
        headings = ("Topic", "Case", "New time over old", "Change")
        rows = [
            (
                change.benchmark,
                change.case,
                f"{change.ratio:.2f} ({change.low:.2f} to {change.high:.2f})",
                coloured(
                    change.verdict,
                    {"slower": "red", "faster": "green"}.get(change.verdict, "dim"),
                ),
            )
            for change in changed
        ]
        _table(headings, rows)


def _cells(item: Measurement) -> tuple[Any, ...]:
    from mrsa_jax._core.memory import bytes_in_words

    rate = f"{item.rate:,.0f}" if item.rate >= 10 else f"{item.rate:.3g}"
    ratios = [item.ratio, item.core_ratio]
    ratio, core = ("" if value is None else f"{value:.2f}" for value in ratios)
    if item.best_ratio is not None and item.aim is not None:
        colour = "green" if item.best_ratio >= item.aim else "yellow"
        ratio, core = (
            (ratio, coloured(core, colour)) if core else (coloured(ratio, colour), core)
        )
    aim = "" if item.aim is None else f"{item.aim:g}"
    memory = "" if item.memory_bytes is None else bytes_in_words(item.memory_bytes)
    words = (
        f"{item.case} (noise: spread {item.spread:.0%})" if item.is_noise else item.case
    )
    times = (
        f"{min(each):.3g}" if each else ""
        for each in (item.seconds, item.processor_seconds)
    )
    compiled = " + ".join(str(count) for count in item.compiled.values())
    first_cells = (
        item.benchmark,
        words,
        f"{rate} {item.unit}/s",
        *times,
        compiled,
        memory,
    )
    return (*first_cells, ratio, core, aim, item.peer or "")


_WORDS = {"Topic", "Case", "What is measured", "Against", "With --peers", "Change"}


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    text_columns = [i for i, heading in enumerate(headings) if heading in _WORDS]
    return print_table(headings, rows, left=text_columns, width=_WIDTH)
