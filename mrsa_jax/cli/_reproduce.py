"""`mrsa-jax reproduce [PAPER[.ITEM] ...]`: remake the papers' tables and figures and judge them."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax._errors import require
from mrsa_jax.cli._console import Bars, escape, use_cores
from mrsa_jax.reproduce._catalog import ITEMS
from mrsa_jax.reproduce._config import ReproduceConfig, Target, check_targets

if TYPE_CHECKING:
    from mrsa_jax.reproduce import SavedReproduction

__all__ = ["ReproduceCommand", "run_reproduce"]

_COLOURS = {
    "as expected": "green",
    "explained": "yellow",
    "missed": "bold red",
    "holds after all": "cyan",
    "no data": "bold red",
}


@dataclasses.dataclass(frozen=True)
class ReproduceCommand(ReproduceConfig):
    """Remake the papers' tables and figures and compare them with what they printed."""

    targets: tyro.conf.Positional[tuple[str, ...]] = ()
    """What to make: multiround (Multi-RoundSecAgg), ccesa (CCESA), heterosag (HeteroSAg), or one
    of their items, such as multiround.fig4a; all three papers when left out."""
    list_items: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only list the items: what each is, how long it takes, whether it trains and on what."""


def run_reproduce(command: ReproduceCommand) -> int:
    """Remake the items; return 1 when one misses its tolerance unexpectedly, or has no data."""
    fields = dataclasses.fields(ReproduceConfig)
    config = ReproduceConfig(**{field.name: getattr(command, field.name) for field in fields})
    targets = check_targets(config.targets)  # before JAX is imported: misuse is answered at once
    if command.list_items:
        _list(targets, as_json=config.json)
        return 0
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)
    use_compile_cache()
    use_cores()
    from mrsa_jax import reproduce

    start = time.perf_counter()
    with Bars() as bars:

        def show(saved: SavedReproduction) -> None:
            bars.rest()
            if config.json:
                sys.stdout.write(json.dumps(saved.content, indent=2) + "\n")
            else:
                _print_tables(saved)

        saved = reproduce.run_and_save(config, bars, show)
    if not config.json:
        seconds = time.perf_counter() - start
        _say(f"Written in {seconds:.0f} s; open {saved.out / 'report.html'}")
    return 0 if saved.is_as_expected else 1


def _list(targets: Sequence[Target], *, as_json: bool) -> None:
    rows = []
    for paper, name in targets:
        own = ITEMS[paper][name]
        rows.append((f"{paper}.{name}", own.title, own.runtime, own.trains, own.data_words))
    if as_json:
        names = ("item", "title", "runtime", "trains", "data")
        content = [dict(zip(names, row, strict=True)) for row in rows]
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    words = [
        (name, title, runtime, f"yes, the paper on {data}" if data else "yes" if trains else "")
        for name, title, runtime, trains, data in rows
    ]
    _table(("Item", "What", "Full size takes", "Trains"), words)


def _print_tables(saved: SavedReproduction) -> None:
    """Print the claims (of whole papers those that differ), then one table over all items."""
    from mrsa_jax.reproduce._summary import judged, summary
    from mrsa_jax.reproduce._words import SUMMARY_HEADINGS, summary_cells, totals

    config = saved.config
    are_all_shown = bool(config.targets) and all("." in word for word in config.targets)
    lines = []
    for made in saved.items:
        for one in judged(made, config):
            check = one.check
            if are_all_shown or one.standing != "as expected":
                verdict = f"[{_COLOURS[one.standing]}]{escape(check.verdict)}[/]"
                why = check.note if one.standing == "no data" else one.why
                words = (made.name, check.claim, check.paper, check.ours, check.tolerance)
                lines.append((*map(escape, words), verdict, escape(why)))
    if lines:
        _table(("Item", "Claim", "Paper", "Ours", "Tolerance", "Verdict", "Why"), lines)
    rows = summary(saved.items, config)
    _table(SUMMARY_HEADINGS, [tuple(map(escape, summary_cells(row))) for row in rows])
    _say(totals(rows))
    if saved.holds_after_all:
        _say(f"Expected to differ, and holds after all: {', '.join(saved.holds_after_all)}")
    if commits := _other_commits(saved):
        _say(f"Items of other commits are kept ({', '.join(commits)}); --overwrite makes them anew")
    if saved.missed:
        _say(f"Missed without an explanation: {', '.join(saved.missed)}")


def _other_commits(saved: SavedReproduction) -> list[str]:
    """Return the commits, other than this run's, that made items which were kept."""
    ours = saved.content["manifest"]["commit"]
    theirs = [made.commit for made in saved.items if made.is_kept and made.commit is not None]
    return [] if ours is None else [one for one in dict.fromkeys(theirs) if one != ours]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _say(text: str) -> None:
    _console().print(text, highlight=False, markup=False, soft_wrap=True)


def _console() -> Any:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=170)
