"""`mrsa-jax bench`: our rates beside those of others, in one run, correctness first."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._errors import require, writing
from mrsa_jax.cli._console import Bars, error_console, escape, use_cores

if TYPE_CHECKING:
    from mrsa_jax.bench import Measurement, Reading, Report

__all__ = ["DESCRIPTION", "BenchConfig", "run_bench"]

DESCRIPTION = "Measure our rates beside those of others, each result compared before it is timed."
_WIDTH = 170  # of tables where there is no terminal
_TOPICS = tyro.conf.arg(metavar="[TOPIC ...]")
_RECORDS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results"


@dataclasses.dataclass(frozen=True)
class BenchConfig:
    """Measure our rates beside those of others."""

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

    out: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
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
        _print_json(report.as_json())
    else:
        _print_tables(report, time.perf_counter() - start)
    _keep(report, config)
    return 1 if report.failures else 0


def _check(config: BenchConfig) -> None:
    quiet = not (config.peers or config.quick or config.record or config.out)
    require(
        not config.list or quiet, "list", "must stand without --peers, --quick, --record, --out"
    )
    require(
        not (config.record and config.quick), "record", "must be left out with --quick: use --out"
    )
    if config.record:
        rule = "needs a checkout of the project: here use --out FILE"
        require(_RECORDS.is_dir(), "record", rule)
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
        _print_json({"topics": listed, "peers": peers})
        return 0
    console = _console()
    table = _table("Topic", "What is measured", "Beside", "With --peers")
    for topic in topics:
        about = bench.TOPICS[topic]
        titles = ", ".join(bench.PEERS[name][0] for name in about.peers)
        table.add_row(topic, about.ours, about.beside, titles)
    console.print(table)
    for name in names:
        title, what = bench.PEERS[name]
        path = bench.python_of(name)
        state = f"at {path}" if path is not None else "no environment here; make it:"
        console.print(f"{name}: {title}, {what}; {state}", highlight=False, markup=False)
        for command in bench.how_to_make(name) if path is None else ():
            _print_words(console, f"    {command}")
    return 0


def _print_tables(report: Report, seconds: float) -> None:
    from mrsa_jax.bench import Reading

    console = _console()
    readings = [item for item in report.measurements if isinstance(item, Reading)]
    rest = [item for item in report.measurements if not isinstance(item, Reading)]
    if rest:
        table = _table("Topic", "Case", "Rate", "Ratio", "Aim", "Beside")
        for item in rest:
            table.add_row(*_cells(item))
        console.print(table)
    if readings:
        table = _table(*_READ)
        for reading in readings:
            table.add_row(*_reading_cells(reading))
        console.print(table)
    where = report.machine
    _print_words(
        console,
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
            _print_words(errors, f"    {command}")


def _cells(item: Measurement) -> tuple[str, ...]:
    rate = f"{item.rate:,.0f}" if item.rate >= 10 else f"{item.rate:.3g}"
    ratio = ""
    if item.ratio is not None:
        colour = "" if item.aim is None else "[green]" if item.ratio >= item.aim else "[yellow]"
        ratio = f"{colour}{item.ratio:.2f}"
    aim = "" if item.aim is None else f"{item.aim:g}"
    words = (item.benchmark, item.case, f"{rate} {item.unit}/s")
    return (*map(escape, words), ratio, aim, escape(item.peer or ""))


_READ = (
    "Device", "Program", "Form", "Launches", "bound", "Moved / least", "bound ", "GB",
    "Open loops", "Seconds", "Of the limits",
)  # fmt: skip
_NUMBERS = {"Rate", "Ratio", "Aim", *_READ[3:10]}


def _reading_cells(item: Reading) -> tuple[str, ...]:
    """Return a row of counts; what is beyond its bound is red."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in item.shares.items())
    return (
        item.device,
        escape(item.case.split(": ", 1)[-1].removesuffix(f", {item.form}")),
        item.form or "best",
        _bounded(f"{item.launches:,}", item.launches, item.most_launches),
        "" if item.most_launches is None else f"{item.most_launches:,}",
        _bounded(f"{item.moved:,.2f}", item.moved, item.most_moved),
        "" if item.most_moved is None else f"{item.most_moved:g}",
        f"{item.moved_bytes / 1e9:,.3f}",
        _bounded(f"{item.unknown_loops}", item.unknown_loops, item.most_unknown_loops),
        "" if item.seconds_min is None else f"{item.seconds_min:.3g}",
        shares,
    )


def _bounded(words: str, value: float | int, most: float | int | None) -> str:
    if most is None:
        return words
    return f"[{'green' if value <= most else 'red'}]{words}"


def _table(*headings: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        side: Any = "right" if heading in _NUMBERS else "left"
        table.add_column(heading, overflow="fold", justify=side)
    return table


def _console() -> Any:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _print_words(console: Any, words: str) -> None:
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
