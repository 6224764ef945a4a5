"""The one driver.

Remake the items that are asked for, and write them with their verdicts.
An item is written as soon as it is made, so that an interruption loses none that was
finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mrsa_jax.study import Progress, report
from mrsa_jax.study._progress import Notes, Silent
from mrsa_jax.study.stores import _store
from mrsa_papers import _folder as folder
from mrsa_papers._catalog import ITEMS
from mrsa_papers._config import (
    ReproduceConfig,
    Target,
    check_targets,
    checked_settings,
    given_settings,
    item_config,
    usual_seconds,
    with_papers,
)
from mrsa_papers._folder import Made
from mrsa_papers._summary import Standing, SummaryRow, judged, summary, verdicts
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Item,
    Row,
    rows_to_frame,
    substitution,
)
from mrsa_papers.harness._context import CheckedError
from mrsa_papers.harness._figures import Draw, labelled
from mrsa_papers.harness._items import VERDICTS, at_other_settings, on_other_data
from mrsa_papers.harness._settings import values_of
from mrsa_papers.harness._trainings import Trainings
from mrsa_watch._base.errors import DataNotFoundError, StoreError, require, writing

# What is left is estimated from what each item usually takes, scaled by how this
# machine did.
_TIMED_SECONDS = 10.0  # of rounds, before an item's time is shown on a line that stays


class Overall:
    """Passes the progress of items on, and says how many are done and what is left."""

    def __init__(
        self, progress: Progress, usual: Mapping[Target, float | None]
    ) -> None:
        """Begin.

        Args:
            progress: Where everything is reported to.
            usual: What each item to be made usually takes, in seconds; None for data or
                settings on which it was never timed.
        """
        self._progress = progress
        self._usual = dict(usual)
        self._count = len(usual)
        self._took = self._should_have_taken = 0.0
        self._target: Target | None = None
        self._start = self._last = self._noted = time.perf_counter()
        self._expected = self._trained = self._timed = 0
        self._seconds = 0.0  # that the timed rounds took
        if usual:
            timed = [seconds for seconds in usual.values() if seconds is not None]
            words = f", about {duration(sum(timed))}" if timed else ""
            if timed and len(timed) < len(usual):
                words += f" for {len(timed)} of them"
            items = "item" if len(usual) == 1 else "items"
            self.say(f"{len(usual)} {items} to make{words}")

    def begin(self, target: Target) -> None:
        """Begin an item."""
        self._target, self._start = target, time.perf_counter()
        self._expected = self._trained = self._timed = 0
        self._seconds = 0.0
        self._is_said = self._usual[target] is not None

    def end(self, words: str) -> None:
        """End the item, saying what became of it."""
        if self._target is None:
            return
        seconds = time.perf_counter() - self._start
        # items that are made leave `_usual`, which counts those to come
        usual = self._usual.pop(self._target)
        if usual is not None:
            self._took += seconds
            self._should_have_taken += usual
        name, done = ".".join(self._target), self._count - len(self._usual)
        self._target = None
        left = self.seconds_left() if self._usual else None
        rest = "" if left is None else f"; about {duration(left)} left"
        self.say(
            f"{done} of {self._count} done: {name}, {words}, {seconds:.1f} s{rest}"
        )

    def seconds_left(self) -> float | None:
        """Estimate the seconds that the remaining items take.

        Returns:
            None while an item is left that nothing was timed of.
        """
        others = [usual for at, usual in self._usual.items() if at != self._target]
        each = [usual for usual in others if usual is not None]
        own = self._own_seconds_left()
        if own is None or len(each) < len(others):
            return None
        return own + self._ratio() * sum(each)

    def _own_seconds_left(self) -> float | None:
        """Estimate what is left of the item in hand, 0 between items."""
        if self._target is None:
            return 0.0
        if self._timed and self._expected:
            # rounds that were timed say more of the item than the catalogue
            rounds = max(self._expected - self._trained, 0)
            return self._seconds / self._timed * rounds
        usual = self._usual[self._target]
        if usual is None:
            return None
        # only the rest counts, and never less than nothing
        gone = time.perf_counter() - self._start
        return max(self._ratio() * usual - gone, 0.0)

    def _ratio(self) -> float:
        """Return how much longer than usual the items take here, 1 at first."""
        # ten seconds on both sides damp the first items, which compile
        return (self._took + 10) / (self._should_have_taken + 10)

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of the item."""
        self._progress.stage(name, total)

    def update(self, done: int, total: int) -> None:
        """Say how many steps of the stage are done."""
        self._note_time()
        self._progress.update(done, total)

    def expect(self, rounds: int) -> None:
        """Take the number of rounds that the item will train, more or less."""
        self._expected += rounds

    def trained(self, rounds: int, *, is_first: bool) -> None:
        """Time rounds that were trained; the first of a training compile, too."""
        now = time.perf_counter()
        if not is_first:
            self._timed += rounds
            self._seconds += now - self._last
        self._trained, self._last = self._trained + rounds, now
        # once per second, as rounds can be fast
        if self._timed and now - self._noted > 1:
            self._noted = now
            self._note_time()
            left = self._own_seconds_left()
            # the very first rounds are slower
            if not self._is_said and self._seconds > _TIMED_SECONDS:
                self._is_said = True
                if left is not None and self._target is not None:
                    name = ".".join(self._target)
                    self.say(f"{name}: about {duration(left)}, by its first rounds")

    def _note_time(self) -> None:
        """Show which item is made, and the time that is left."""
        number = self._count - len(self._usual) + 1
        left = self.seconds_left()
        rest = "" if left is None else f", about {duration(left)} left in all"
        self.note(f"item {number} of {self._count}{rest}")

    def say(self, text: str) -> None:
        """Show a line that stays."""
        if isinstance(self._progress, Notes):
            self._progress.say(text)

    def note(self, text: str) -> None:
        """Show beside the stage what is true for now."""
        if isinstance(self._progress, Notes):
            self._progress.note(text)


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples:
        >>> duration(40.0), duration(400.0), duration(9000.0)
        ('40 s', '7 min', '2.5 h')
        >>> duration(3.5e6)
        '41 days'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:.0f} days"


SUMMARY_HEADINGS = ("Paper", "Item", "What", "Verdicts", "Seconds", "Data")
CLAIM_HEADINGS = (
    "Claim",
    "Paper",
    "Ours",
    "Tolerance",
    "Verdict",
    "Why it differs",
    "Note",
)


def claim_cells(made: Made, config: ReproduceConfig) -> list[tuple[str, ...]]:
    """Return a row for each claim of an item, as `CLAIM_HEADINGS` names its cells."""
    return [
        (c.claim, c.paper, c.ours, c.tolerance, c.verdict, verdict.why, c.note)
        for verdict in judged(made, config)
        for c in (verdict.check,)
    ]


def summary_cells(row: SummaryRow) -> tuple[str, ...]:
    """Return a row's cells, as `SUMMARY_HEADINGS` names them."""
    return (
        row.paper,
        row.item,
        row.title,
        row.verdicts,
        f"{row.seconds:.1f}",
        row.data,
    )


def totals(rows: Sequence[SummaryRow]) -> str:
    """Say in one line how all items fared, those on other data than the paper's apart.

    Examples:
        >>> totals([]).partition(":")[0]
        '0 items, 0 claims'
    """
    counts = [
        sum(row.counts[place] for row in rows) for place in range(len(VERDICTS) - 1)
    ]
    # in the order of VERDICTS, without "no data"
    right, other, ours, elsewhere, read, silent, wrong, open_, differ = counts
    missed = sum(row.unexpected for row in rows)
    apart = f" {other} hold on data instead of the paper's," if other else ""
    apart += f" {ours} are ours," if ours else ""
    apart += f" {elsewhere} at other settings," if elsewhere else ""
    hang = f" {read} hang on our reading or settings," if read else ""
    hang += f" {silent} on what the paper does not state," if silent else ""
    between = f" {open_} undecided," if open_ else ""
    missing = sum(row.verdicts == "no data" for row in rows)
    seconds = sum(row.seconds for row in rows)
    return (
        f"{len(rows)} items, {sum(counts)} claims: {right} reproduced,{apart}{hang} "
        f"{wrong} paper errs,{between} {differ} differ ({missed} not expected), in "
        f"{seconds:.0f} s" + (f"; {missing} items have no data" if missing else "")
    )


def markdown(items: Sequence[Made], config: ReproduceConfig) -> str:
    """Return the summary and all claims as Markdown."""
    rows = summary(items, config)
    claims = [
        (made.name, *cells) for made in items for cells in claim_cells(made, config)
    ]
    return (
        f"{totals(rows)}.\n\n"
        + _markdown_table(SUMMARY_HEADINGS, map(summary_cells, rows))
        + "\n"
        + _markdown_table(("Item", *CLAIM_HEADINGS), claims)
    )


def _markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n"
        for row in lines
    )


@dataclasses.dataclass(frozen=True)
class SavedReproduction:
    """A reproduction that has run and is on disk, or is about to be.

    Attributes:
        config: What was asked for.
        items: The items that were asked for, with their checks and data.
        others: Those of earlier runs that the folder holds as well.
    """

    config: ReproduceConfig
    items: tuple[Made, ...]
    others: tuple[Made, ...] = ()

    @functools.cached_property
    def everything(self) -> list[Made]:
        """All items of the folder, in the papers' order."""
        order = [f"{paper}.{name}" for paper, rows in ITEMS.items() for name in rows]
        return sorted(
            (*self.items, *self.others), key=lambda made: order.index(made.name)
        )

    @property
    def out(self) -> pathlib.Path:
        """Its folder."""
        return self.config.out

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return {
            "as_expected": self.is_as_expected,
            "summary": [row._asdict() for row in summary(self.everything, self.config)],
            "items": verdicts(self.everything, self.config),
            "manifest": _store.provenance(self.config),
        }

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the items with a claim that differs and was not expected to."""
        return self._having("missed")

    @property
    def without_data(self) -> tuple[str, ...]:
        """Names of the items that were not made for want of data."""
        return self._having("no data")

    @property
    def holds_after_all(self) -> tuple[str, ...]:
        """Names of the items with a claim that was expected to differ and does not."""
        return self._having("holds after all")

    @property
    def is_as_expected(self) -> bool:
        """Whether every item was made, and each miss is an expected one."""
        return not self.missed and not self.without_data

    def _having(self, what: Standing) -> tuple[str, ...]:
        return tuple(
            made.name
            for made in self.items
            if any(verdict.standing == what for verdict in judged(made, self.config))
        )


def remake(
    targets: str | Iterable[str] = (),
    *,
    fast: bool = False,
    seed: int = 0,
    dataset: str = "mnist_5k",
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Item]:
    """Remake tables and figures of the papers, and judge each by the paper's claims.

    Args:
        targets: Papers (`"ccesa"`) and items (`"ccesa.fig2"`), as in `ITEMS`; nothing
            for all. A figure's name stands for the table that it belongs to
            (`"multiround.fig6"`).
        fast: Fewer trials, rounds and seeds and smaller models, which can show the
            order of schemes but not how near they are: minutes instead of hours.
        seed: Integer in [0, 2**32) of everything random.
        dataset: What items that train are trained on, as `data.load` takes it; the
            papers' are in `ITEMS`.
        directory: Folder of the data set, where it needs one.
        progress: Receives how far it is.
        settings: Of the item, where `targets` is a single one: `mrsa-jax reproduce ITEM
            --help` lists them with the paper's values. A number that the paper printed
            of other settings is then left out.

    Returns:
        One `Item` for each target, in the papers' order; its `verdict` is
        `"reproduced"`, `"paper errs"` (ours differs and is proven right),
        `"undecided"`, `"differs"` or another of `harness.Verdict`.

    Raises:
        ConfigurationError: For an unknown target, data set or setting (naming the
            nearest), or a value out of range.
        DataNotFoundError: If the data set is not on this machine.

    Examples:
        >>> (table,) = remake("multiround.table1")
        >>> table.verdict  # 91389 is printed where C(40, 4) = 91390
        'paper errs'
        >>> (figure,) = remake("ccesa.tableg2", num_sizes=[100, 250])
        >>> figure.data["n"].unique().tolist()
        [100, 250]

    Source: the three papers; errata and open readings as docs/errata.md lists them.
    """
    wanted = check_targets(targets)
    receiver = Silent() if progress is None else progress
    context = Context(seed, fast, receiver, dataset, directory)
    chosen = checked_settings(wanted, settings)
    if any(ITEMS[paper][name].trains for paper, name in wanted):
        _ = context.images  # data that are missing are named before any work
    return [_item(target, context, chosen) for target in wanted]


def function_of(paper: str, where: str) -> Callable[..., Any]:
    """Return the function that a row names: a maker, or what draws a figure."""
    module, name = where.split(".")
    loaded = importlib.import_module(f"mrsa_papers.{paper}._{module}")
    function: Callable[..., Any] = getattr(loaded, name)
    return function


def figure_of(target: Target) -> Draw:
    """Return the function that draws an item's data on its figure."""
    paper, name = target
    row = ITEMS[paper][name]
    draw = function_of(paper, row.figure)
    return draw if row.axes is None else labelled(draw, row.axes)


def _item(target: Target, context: Context, chosen: Mapping[str, Any]) -> Item:
    """Make an item, its claims marked where data or settings are not the paper's."""
    paper, name = target
    row = ITEMS[paper][name]
    maker = function_of(paper, row.maker)
    values = values_of(".".join(target), row.settings, chosen, is_fast=context.fast)
    parts: Found = maker(context, values) if row.settings else maker(context)
    item = Item(name, row.title, *parts)
    # data first: a claim that holds on other data is lowered again by other settings
    item = on_other_data(item) if all(_data_words(context, row)) else item
    return at_other_settings(item, values.missed, values.unstated)


def check_item(
    target: Target, context: Context, chosen: Mapping[str, Any], *, is_fast: bool
) -> None:
    """Raise where the settings of an item make no sense; nothing is made.

    Args:
        target: The item.
        context: Of checks alone. It keeps the data set for further checks.
        chosen: Settings by name, as `checked_settings` returns them.
        is_fast: Whether the others are those of the fast size.

    Raises:
        ConfigurationError: As the item itself would raise.
        DataNotFoundError: If its data set is not on this machine.
    """
    paper, name = target
    row = ITEMS[paper][name]
    values = values_of(".".join(target), row.settings, chosen, is_fast=is_fast)
    if row.trains:
        _ = context.images
    with contextlib.suppress(CheckedError):
        function_of(paper, row.maker)(context, values)


def _data_words(context: Context, row: Row) -> tuple[str, str]:
    """Return the words for an item's data set in the paper and for its substitute."""
    return ("", "") if row.data is None else substitution(context.images, row.data)


def run_and_save(
    config: ReproduceConfig,
    progress: Progress | None = None,
    show: Callable[[SavedReproduction], None] | None = None,
) -> SavedReproduction:
    """Remake the selected items and write each to `config.out` as soon as it is made.

    For each item, in `items/PAPER.ITEM`, a PNG, an SVG and the CSV of what they show;
    for all of them `verdicts.json`, `verdicts.md` and `report.html`, which needs
    nothing beside it. Items that are there already, of the same settings, are taken as
    they are; an item whose data set is not on this machine has the verdict `"no data"`.

    Args:
        config: Which items, at which size, and where to.
        progress: Receives how far it is.
        show: Receives all items before their summary is written, and those that were
            made where one of them cannot be written.

    Raises:
        StoreError: If something cannot be written.
        ConfigurationError: For an unknown target or data set, or an output that is no
            folder.
        OutputExistsError: If the folder holds something else, or an item of other
            settings, other data or another version of the package.
    """
    # misuse is answered before anything is loaded, made or written
    targets = check_targets(config.targets)
    config = dataclasses.replace(config, targets=with_papers(config.targets))
    _check_dataset(config, targets)
    trainings = Trainings(config.out / "items" / "trainings", is_new=config.overwrite)
    context = Context(
        config.seed,
        config.fast,
        dataset=config.dataset,
        directory=config.directory,
        trainings=trainings,
    )
    folder.check_folder(config.out)
    configs = {target: item_config(config, target) for target in targets}
    already_made = {target for target in targets if folder.is_made(configs[target])}
    # before anything is made: a folder of other settings is refused as a whole
    folder.check_unchanged(
        {".".join(t): configs[t] for t in targets if t in already_made}, config.out
    )
    usual = {
        target: usual_seconds(target, config)
        for target in targets
        if target not in already_made
    }
    overall = Overall(progress or context.progress, usual)
    if already_made:
        overall.say(
            f"{len(already_made)} items of an earlier run are kept (--overwrite starts "
            "anew)"
        )
    done: list[Made] = []
    show_all = show or (lambda _: None)
    for paper, name in targets:
        if not done or done[-1].paper != paper:
            # with a separate cache
            context = dataclasses.replace(context, progress=overall)
        target = (paper, name)
        if target in already_made:
            done.append(folder.kept_item(configs[target]))
            continue
        made = _make(target, context, overall, given_settings(config))
        try:
            done.append(_written(configs[target], target, made, overall))
        except StoreError:
            # the item that could not be written is shown at least
            show_all(SavedReproduction(config, (*done, made)))
            raise
    trainings.clear()
    others = folder.other_items(config.out, targets)
    saved = SavedReproduction(config, tuple(done), tuple(others))
    show_all(saved)
    with writing(config.out):
        _write_summary(saved)
    return saved


def _make(
    target: Target, context: Context, overall: Overall, chosen: Mapping[str, Any]
) -> Made:
    """Make an item; where its data are missing, say so instead."""
    paper, name = target
    row = ITEMS[paper][name]
    overall.begin(target)
    try:
        words = _data_words(context, row)
    except DataNotFoundError as error:
        check = Check("all claims", "", "", "", "no data", str(error))
        return Made(
            paper,
            Item(name, row.title, (check,), rows_to_frame([]), ""),
            0.0,
            row.data_words,
        )
    # without the loading of data, which all items share
    start = time.perf_counter()
    item = _item(target, context, chosen)
    return Made(paper, item, time.perf_counter() - start, *words)


def _written(
    config: ReproduceConfig, target: Target, made: Made, overall: Overall
) -> Made:
    """Write an item, but for one without data."""
    if not made.item.data.empty:
        made = folder.written_item(config, figure_of(target), made)
    overall.end(made.item.verdict)
    return made


def _write_summary(saved: SavedReproduction) -> None:
    """Write the verdicts and the report, each file whole or not at all."""
    config, items, content = saved.config, saved.everything, saved.content
    config.out.mkdir(parents=True, exist_ok=True)
    folder.write_file(config.out / "verdicts.md", markdown(items, config))
    folder.write_file(
        config.out / "verdicts.json", json.dumps(content, indent=2) + "\n"
    )
    report(config.out)


def _check_dataset(config: ReproduceConfig, targets: tuple[Target, ...]) -> None:
    """Raise where a data set is chosen for items that need none."""
    is_chosen = (
        config.dataset != ReproduceConfig().dataset or config.directory is not None
    )
    trains = any(ITEMS[paper][name].trains for paper, name in targets)
    rule = "must not be set if no item trains (--list marks those that do)"
    require(trains or not is_chosen, "dataset", rule, config.dataset)
