"""`mrsa-jax bench`: our rates beside those of others, in one run, correctness first."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._core.flags import File
from mrsa_jax.cli._console import (
    Bars,
    coloured,
    error_console,
    escape,
    output_console,
    print_json,
    print_table,
    print_words,
    use_cores,
)
from mrsa_watch._base.errors import require, writing

if TYPE_CHECKING:
    from mrsa_jax.bench import Measurement, Report

_WIDTH = 170  # of tables where there is no terminal
_TOPICS = tyro.conf.arg(metavar="[TOPIC ...]")
_RECORDS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results"


@dataclasses.dataclass(frozen=True)
class BenchConfig:
    """Measure our rates beside those of others, each result compared before it is timed."""

    topics: Annotated[tuple[str, ...], tyro.conf.Positional, _TOPICS] = ()
    """What to measure: names that --list shows; everything if none is named."""

    peers: bool = False
    """Compare with other systems too, each in an environment of its own (--list says which)."""

    quick: bool = False
    """Small sizes: all topics in about two minutes, to see that they work; no rates to quote."""

    list: bool = False
    """Only list the topics, and the other systems with the commands that make them available."""

    record: bool = False
    """Append the records to benchmarks/results of this checkout, a file of JSON lines a topic."""

    out: File = None
    """Append the records to this file of JSON lines."""

    json: bool = False
    """Print the result as JSON instead."""


def run_bench(config: BenchConfig) -> int:
    """Run the benchmarks and return the exit status: 1 when a result was wrong."""
    from mrsa_jax import bench

    topics = bench.check_topics(config.topics)
    _check(config)
    if config.list:
        return _list(topics, as_json=config.json)
    # no compile cache of our own: the first call of a case includes its compilation
    use_cores()
    start = time.perf_counter()
    with Bars() as bars:
        report = bench.run(topics, peers=config.peers, quick=config.quick, watch=bars)
    if config.json:
        print_json(report.as_json())
    else:
        _print_tables(report, time.perf_counter() - start)
    _keep(report, config)
    return 1 if report.failures else 0


def _check(config: BenchConfig) -> None:
    quiet = not (config.peers or config.quick or config.record or config.out)
    rule = "must stand without --peers, --quick, --record, --out"
    require(not config.list or quiet, "list", rule)
    rule = "must be left out with --quick: use --out"
    require(not (config.record and config.quick), "record", rule)
    rule = "needs a checkout of the project: here use --out FILE"
    require(not config.record or _RECORDS.is_dir(), "record", rule)
    if config.out is not None:
        rule = "must be a file in a folder that exists"
        fits = config.out.parent.is_dir() and not config.out.is_dir()
        require(fits, "out", rule, str(config.out))


def _keep(report: Report, config: BenchConfig) -> None:
    from mrsa_jax import bench

    rows = report.rows()
    if config.out is not None:
        with writing(config.out):
            bench.record(rows, config.out)
    if config.record:
        for topic in dict.fromkeys(row["benchmark"] for row in rows):
            own = [row for row in rows if row["benchmark"] == topic]
            with writing(_RECORDS, "record"):
                bench.record(own, _RECORDS / f"{topic}.jsonl")


# --- what is printed --------------------------------------------------------------------------


def _list(topics: tuple[str, ...], *, as_json: bool) -> int:
    from mrsa_jax import bench

    names = dict.fromkeys(name for topic in topics for name in bench.TOPICS[topic].peers)
    if as_json:
        found = {name: bench.python_of(name) for name in names}
        peers = {
            name: {"python": None if path is None else str(path), "make": bench.how_to_make(name)}
            for name, path in found.items()
        }
        listed = {topic: bench.TOPICS[topic]._asdict() for topic in topics}
        print_json({"topics": listed, "peers": peers})
        return 0
    rows = []
    for topic in topics:
        about = bench.TOPICS[topic]
        titles = ", ".join(bench.PEERS[name][0] for name in about.peers)
        rows.append((topic, about.ours, about.beside, titles))
    console = _table(("Topic", "What is measured", "Beside", "With --peers"), rows)
    for name in names:
        title, what = bench.PEERS[name]
        path = bench.python_of(name)
        state = f"at {path}" if path is not None else "no environment here; make it:"
        console.print(f"{name}: {title}, {what}; {state}", highlight=False, markup=False)
        for command in bench.how_to_make(name) if path is None else ():
            print_words(console, f"    {command}")
    return 0


def _print_tables(report: Report, seconds: float) -> None:
    if report.measurements:
        headings = ("Topic", "Case", "Rate", "Ratio", "Aim", "Beside")
        _table(headings, [_cells(item) for item in report.measurements])
    where = report.machine
    print_words(
        output_console(_WIDTH),
        f"{seconds:.0f} s on {where['processor']}, {where['cores']} cores, {where['device']}, "
        f"Python {where['python']}, JAX {where['versions']['jax']}; load at the start "
        f"{where['load'] or 0:.1f}. Ratio: our rate over theirs, fastest call against fastest.",
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


def _cells(item: Measurement) -> tuple[Any, ...]:
    rate = f"{item.rate:,.0f}" if item.rate >= 10 else f"{item.rate:.3g}"
    ratio = "" if item.ratio is None else f"{item.ratio:.2f}"
    if item.ratio is not None and item.aim is not None:
        ratio = coloured(ratio, "green" if item.ratio >= item.aim else "yellow")
    aim = "" if item.aim is None else f"{item.aim:g}"
    words = (item.benchmark, item.case, f"{rate} {item.unit}/s")
    return (*words, ratio, aim, item.peer or "")


_NUMBERS = {"Rate", "Ratio", "Aim"}


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    left = [i for i, heading in enumerate(headings) if heading not in _NUMBERS]
    return print_table(headings, rows, left=left, width=_WIDTH)
