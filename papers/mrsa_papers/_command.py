"""`mrsa-jax reproduce [PAPER[.ITEM] ...]`.

Remake the papers' tables and figures and judge them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.flags import shown
from mrsa_jax.cli.console import (
    drawn,
    output_console,
    print_json,
    print_words,
    use_cores,
)
from mrsa_jax.cli.tables import coloured, print_table
from mrsa_papers._catalog import ITEMS, PAPERS
from mrsa_papers._config import (
    ReproduceConfig,
    Target,
    check_targets,
    runtime_of,
    with_settings,
)
from mrsa_papers._kind import kind_of_item
from mrsa_papers.harness._settings import fields_of, flag_of
from mrsa_watch._base.errors import ConfigurationError, require

if TYPE_CHECKING:
    from mrsa_papers._driver import SavedReproduction

_WIDTH = 170  # of tables where there is no terminal
_COLOURS = {
    "as expected": "green",
    "explained": "yellow",
    "undecided": "yellow",
    "missed": "bold red",
    "holds after all": "cyan",
    "no data": "bold red",
}


@dataclasses.dataclass(frozen=True)
class ReproduceCommand(ReproduceConfig):
    """Remake the papers' tables and figures and compare them with what they printed."""

    targets: tyro.conf.Positional[Annotated[tuple[str, ...], shown("[ITEM ...]")]] = ()
    """What to make: multiround (Multi-RoundSecAgg), ccesa (CCESA), heterosag
    (HeteroSAg), or one of their items, such as multiround.fig4a. Default: all three
    papers."""
    list_items: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only list the items: what each is, how long it takes, whether it trains and on
    what, and its settings."""


def run_reproduce(command: ReproduceCommand) -> int:
    """Remake the items.

    Return 1 when one misses its tolerance unexpectedly, or has no data.
    An undecided claim is no miss: it is listed and counted.
    """
    fields = dataclasses.fields(ReproduceConfig)
    config = ReproduceConfig(
        **{field.name: getattr(command, field.name) for field in fields}
    )
    # before JAX is imported: misuse is answered at once
    targets = check_targets(config.targets)
    usual = {field.name for field in dataclasses.fields(ReproduceCommand)}
    settings = {
        field.name: getattr(command, field.name)
        for field in dataclasses.fields(command)
        if field.name not in usual
    }
    chosen = {name: value for name, value in settings.items() if value is not None}
    config = with_settings(config, chosen)
    if command.list_items:
        _list(targets, config)
        return 0
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)
    use_compile_cache()
    use_cores()
    from mrsa_papers._driver import run_and_save

    def show(saved: SavedReproduction) -> None:
        print_json(saved.content) if config.json else _print_tables(saved)

    saved, seconds = drawn(run_and_save, config, show)
    if not config.json:
        _say(f"Written in {seconds:.0f} s; open {saved.out / 'report.html'}")
    return 0 if saved.is_as_expected else 1


def _list(targets: Sequence[Target], config: ReproduceConfig) -> None:
    items = [
        (
            ".".join(target),
            ITEMS[target[0]][target[1]],
            runtime_of(target, config),
        )
        for target in targets
    ]
    if config.json:
        names = ("item", "title", "runtime", "trains", "data", "settings")
        rows = [
            (
                name,
                item.title,
                runtime,
                item.trains,
                item.data_words,
                {
                    each.name: {
                        "default": each.value,
                        "paper": each.paper,
                        "fast": each.fast,
                        "help": each.words,
                    }
                    for each in item.settings
                },
            )
            for name, item, runtime in items
        ]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    words = []
    for name, item, runtime in items:
        trains = (
            f"yes, the paper on {item.data_words}"
            if item.data_words
            else "yes" * item.trains
        )
        settings = ", ".join(flag_of(each.name) for each in item.settings)
        words.append((name, item.title, runtime, trains, settings))
    _table(("Item", "What", "Full size takes", "Trains", "Settings"), words)
    _say("mrsa-jax reproduce ITEM --help explains the settings of an item")


def _print_tables(saved: SavedReproduction) -> None:
    """Print the claims, then one table over all items.

    Of a whole paper, only claims that differ are printed.
    """
    from mrsa_papers._driver import SUMMARY_HEADINGS, summary_cells, totals
    from mrsa_papers._summary import judged, summary

    config = saved.config
    are_all_shown = bool(config.targets) and not {*config.targets} & {*PAPERS}
    lines = []
    for made in saved.items:
        for judged_claim in judged(made, config):
            check = judged_claim.check
            if are_all_shown or judged_claim.standing != "as expected":
                verdict = coloured(check.verdict, _COLOURS[judged_claim.standing])
                why = (
                    check.note
                    if judged_claim.standing == "no data"
                    else judged_claim.why
                )
                words = (
                    made.name,
                    check.claim,
                    check.paper,
                    check.ours,
                    check.tolerance,
                )
                lines.append((*words, verdict, why))
    if lines:
        _table(("Item", "Claim", "Paper", "Ours", "Tolerance", "Verdict", "Why"), lines)
    rows = summary(saved.items, config)
    _table(SUMMARY_HEADINGS, [summary_cells(row) for row in rows])
    _say(totals(rows))
    if saved.holds_after_all:
        _say(
            "Expected to differ, and holds after all: "
            f"{', '.join(saved.holds_after_all)}"
        )
    if commits := _other_commits(saved):
        _say(
            f"Items of other commits are kept ({', '.join(commits)}); --overwrite "
            "makes them anew"
        )
    if saved.missed:
        _say(f"Missed without an explanation: {', '.join(saved.missed)}")


def _other_commits(saved: SavedReproduction) -> list[str]:
    """Return the commits, other than this run's, that made items which were kept."""
    ours = saved.content["manifest"]["commit"]
    theirs = [
        made.commit for made in saved.items if made.is_kept and made.commit is not None
    ]
    return (
        []
        if ours is None
        else [commit for commit in dict.fromkeys(theirs) if commit != ours]
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print_table(headings, rows, left=range(len(headings)), width=_WIDTH)


def _say(text: str) -> None:
    print_words(output_console(_WIDTH), text)


def command_for(words: Sequence[str] = ()) -> ReproduceCommand:
    """Return the default settings of the command that these words give.

    Those of a single item are among them.

    Args:
        words: Behind `mrsa-jax reproduce`.
    """
    # what stands before the first flag: values of flags may be names of items, too
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if len(names) != 1:
        return ReproduceCommand()
    try:
        targets = check_targets(names)
    except ConfigurationError:
        return ReproduceCommand()  # said when the command runs
    if len(targets) != 1:
        return ReproduceCommand()
    paper, name = targets[0]
    row = ITEMS[paper][name]
    made = dataclasses.make_dataclass(
        ReproduceCommand.__name__,
        fields_of(row.settings),
        bases=(ReproduceCommand,),
        frozen=True,
        namespace={
            "__doc__": f"{row.title} ({PAPERS[paper]}).",
            "__module__": __name__,
        },
    )
    return made()


COMMAND = (command_for, run_reproduce, kind_of_item)
"""Entry point by which `mrsa-jax` and sweeps load this project."""
