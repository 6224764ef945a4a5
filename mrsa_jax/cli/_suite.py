"""`mrsa-jax suite`: rank selection schemes, and verify and compare their cards."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.flags import Count, File, Within, check_ranges, shown
from mrsa_jax.cli.console import (
    INTERRUPTS,
    Bars,
    output_console,
    print_json,
    print_words,
    use_cores,
)
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study.settings import check_unset
from mrsa_watch._base.errors import check_known, require
from mrsa_watch._base.html import counted

if TYPE_CHECKING:
    from mrsa_jax.study.suite import Row

_MEASURING = ("schemes", "suite", "seeds", "out", "train", "workers", "scheduler")
# flags of each task, which no other takes; without a word, schemes are measured
_FLAGS = {
    "": _MEASURING,
    "verify": ("all", "draw", "fresh_seeds"),
    "compare": (),
    "table": ("table",),
}
_DIFFERS = 1  # exit status of a card that does not hold
_HIGHLIGHTS = ("strong_privacy", "update_hidden_worst_200", "exposed_clients",
               "cardinality", "fairness_gap", "accuracy")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SuiteCommand:
    """Rank selection schemes in the scenarios of a frozen suite; verify their cards.

      mrsa-jax suite --schemes uniform partition         # writes a card of each
      mrsa-jax suite --plugin mine.py --schemes mine     # the same of your own
      mrsa-jax suite verify results/suite/mine/card.json # recomputes a random third
      mrsa-jax suite verify CARD --all                   # recomputes every point
      mrsa-jax suite compare CARD CARD                   # better beyond the intervals
      mrsa-jax suite table CARD CARD --table suite.md    # a page of all cards

    The scenarios of a version never change. A run can be resumed after an interruption,
    and --seeds adds seeds. Exit status: 0 done, 1 if a card does not hold, 2 misuse,
    130 interrupted, 143 terminated.
    """

    words: tyro.conf.Positional[
        Annotated[tuple[str, ...], shown("[verify | compare | table] CARD")]
    ] = ()
    """Nothing, to measure schemes; or a task, and the cards that it is about."""
    schemes: Annotated[tuple[str, ...], shown()] = ()
    """Schemes to measure, or your own (--plugin). A name of the suite takes its
    parameters from each scenario. Default: all schemes of the suite."""
    suite: str = "v1"
    """Version of the suite."""
    seeds: Annotated[Count, Within(1)] = None
    """Seeds of each scenario. Default: three to five, as the version states."""
    out: pathlib.Path = pathlib.Path("results/suite")
    """Folder of the results; each scheme has a folder in it."""
    train: bool = True
    """Also train models for the accuracy; --no-train leaves these scenarios out."""
    workers: Annotated[Count, Within(1)] = None
    """Compute in N processes of this machine, by dask. Default: in this process."""
    scheduler: Annotated[str | None, shown("ADDRESS")] = None
    """Compute on the workers of a dask scheduler, such as tcp://host:8786, all of which
    see --out. Default: on this machine."""
    all: bool = False
    """With verify: recompute every point instead of a random third."""
    draw: Annotated[Count, Within(0)] = None
    """With verify: seed of the random third and of fresh seeds, to repeat it. Default: a
    number from the operating system, which is printed."""
    fresh_seeds: Annotated[Count, Within(2)] = None
    """With verify: also measure each scenario with N seeds that no card has, and list
    the figures that are worse beyond the intervals. Default: not measured."""
    table: File = None
    """With table: the Markdown file to write; the figure goes next to it, as SVG.
    Default: suite.md."""
    json: bool = False
    """Print the results as JSON on standard output."""


def run_suite_command(command: SuiteCommand) -> int:
    """Do what the words of the command name, and return the exit status."""
    task, *cards = command.words or ("",)
    if task:
        check_known(task, "words", _FLAGS, "verify, compare or table")
    _check(command, task)
    if not task:
        return _measure(command)
    require(len(cards) > 0, "words", f"must name a card behind {task}", task)
    use_compile_cache()
    use_cores(1)
    if task == "verify":
        return max(_verify(command, card) for card in cards)
    return (_compare if task == "compare" else _tabulate)(command, cards)


def _check(command: SuiteCommand, task: str) -> None:
    """Check that all flags are those of the task, and ranges."""
    check_ranges(command)
    words = f"suite {task}".rstrip()
    for names in _FLAGS.values():
        others = [name for name in names if name not in _FLAGS[task]]
        check_unset(command, f"must not be set with `{words}`", *others)
    rule = "must not be set with `all`, which draws nothing"
    require(command.draw is None or not command.all, "draw", rule, command.draw)
    rule = "must not be set with `scheduler`, which has its own"
    both = command.workers is not None and command.scheduler is not None
    require(not both, "workers", rule, command.workers)


def _measure(command: SuiteCommand) -> int:
    use_compile_cache()
    use_cores(1)
    from mrsa_jax.study import suite

    version = suite.load_version(command.suite)
    schemes = command.schemes or tuple(version.schemes)
    start, made = time.perf_counter(), []
    is_here = command.workers is None and command.scheduler is None
    with Bars(device=is_here) as bars:
        INTERRUPTS.kept = lambda: (
            f"complete points are kept in {command.out}; the same command computes the "
            "others"
        )
        for scheme in schemes:
            card = suite.run_suite(
                scheme,
                out=command.out,
                suite=command.suite,
                seeds=command.seeds,
                trainings=command.train,
                workers=command.workers,
                scheduler=command.scheduler,
                progress=bars,
            )
            made.append(card)
    if command.json:
        print_json({"cards": made})
        return 0
    for card in made:
        _print_card(card)
    words = f"{counted(len(made), 'card')} in {command.out}"
    seconds = time.perf_counter() - start
    print_words(output_console(), f"Wrote {words} in {seconds:.0f} s")
    return 0


def _print_card(card: dict[str, Any]) -> None:
    from mrsa_jax.study.suite import value_words

    rows = []
    for name, entry in card["scenarios"].items():
        figures = entry.get("figures", {})
        cells = [value_words(figures.get(figure)) for figure in _HIGHLIGHTS]
        rows.append([name, *cells])
    headings = ["scenario", "strong T", "hidden among", "exposed", "C", "F", "accuracy"]
    print_table(headings, rows, title=card["label"])


def _verify(command: SuiteCommand, path: str) -> int:
    from mrsa_jax.study import suite

    with Bars() as bars:
        result = suite.verify_card(
            path, every=command.all, seed=command.draw, progress=bars
        )
        fresh = _fresh(command, path, result.seed, bars) if result.holds else None
    names = [f"{name}, seed {seed}" for name, seed in result.cases]
    differences = [dataclasses.asdict(one) for one in result.differences]
    if command.json:
        content = {"card": path, "holds": result.holds, "recomputed": names}
        content |= {"points": result.num_cases, "draw": result.seed}
        content["differences"] = differences
        if fresh is not None:
            content["worse_with_fresh_seeds"] = [dataclasses.asdict(r) for r in fresh]
        print_json(content)
        return 0 if result.holds else _DIFFERS
    words = f"{path}: {len(names)} of {result.num_cases} points recomputed"
    console = output_console()
    print_words(console, f"{words}; the card {'holds' if result.holds else 'differs'}")
    for difference in result.differences:
        print_words(console, f"  {difference}")
    if result.seed is not None:
        words = f"The points were drawn by --draw {result.seed}"
        print_words(console, words)
    if fresh is not None:
        _show_fresh(command, fresh)
    return 0 if result.holds else _DIFFERS


def _fresh(
    command: SuiteCommand, path: str, draw: int | None, bars: Bars
) -> list[Row] | None:
    """Return the figures that fresh seeds make worse; None if none are to be drawn."""
    from mrsa_jax.study import suite

    if command.fresh_seeds is None:
        return None
    rows = suite.fresh_seeds(path, command.fresh_seeds, seed=draw, progress=bars)
    return [row for row in rows if (0, 1) in row.better]


def _show_fresh(command: SuiteCommand, rows: list[Row]) -> None:
    from mrsa_jax.study.suite import value_words

    if rows:
        table = [
            [row.scenario, row.figure.replace("_", " "), *map(value_words, row.entries)]
            for row in rows
        ]
        headings = ["scenario", "figure", "card", "fresh seeds"]
        print_table(headings, table, left=(0, 1))
    words = (
        f"{counted(len(rows), 'figure')} worse beyond the intervals with "
        f"{command.fresh_seeds} fresh seeds"
    )
    print_words(output_console(), words)


def _compare(command: SuiteCommand, paths: list[str]) -> int:
    from mrsa_jax.study import suite

    cards = [suite.read_card(path) for path in paths]
    rows = suite.compare_cards(cards)
    labels = [card["label"] for card in cards]
    if command.json:
        content = [dataclasses.asdict(row) for row in rows]
        print_json({"cards": labels, "figures": content})
        return 0
    table = [_row(row, labels) for row in rows if row.better]
    print_table(["scenario", "figure", *labels, "better"], table, left=(0, 1))
    for a, label in enumerate(labels):
        for b, other in enumerate(labels):
            count = sum((a, b) in row.better for row in rows)
            if a != b:
                words = (
                    f"{label} is better than {other} in {count} of {len(rows)} figures"
                )
                print_words(output_console(), words)
    return 0


def _row(row: Row, labels: list[str]) -> list[str]:
    from mrsa_jax.study.suite import value_words

    beaten = [sum(a == place for a, _ in row.better) for place in range(len(labels))]
    best = max(beaten)
    names = [labels[place] for place, count in enumerate(beaten) if count == best]
    cells = [value_words(entry) for entry in row.entries]
    return [row.scenario, row.figure.replace("_", " "), *cells, ", ".join(names)]


def _tabulate(command: SuiteCommand, paths: list[str]) -> int:
    from mrsa_jax.study import suite

    cards = [suite.read_card(path) for path in paths]
    file = command.table or pathlib.Path("suite.md")
    written = suite.write_table(cards, file)
    if command.json:
        print_json({"files": [str(path) for path in written]})
    else:
        names = " and ".join(map(str, written))
        print_words(output_console(), f"Wrote {names}")
    return 0
