"""One table over the verdicts of many items, and each claim's expected verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from mrsa_papers._catalog import ITEMS, PAPERS
from mrsa_papers._config import ReproduceConfig, given_settings
from mrsa_papers._folder import Made
from mrsa_papers.harness._items import VERDICTS, Check

Standing = Literal[
    "as expected", "explained", "undecided", "missed", "holds after all", "no data"
]
"""A verdict against what was expected. `explained`: an expected miss.

`missed`: an unexpected one;
`undecided`: neither a miss nor reproduced; `holds after all`: an expected miss that was
reproduced.
"""


class Judged(NamedTuple):
    """A claim with its verdict, how that stands against what was expected, and why."""

    check: Check
    standing: Standing
    why: str


_REMARKS = {
    "missed": "Not expected.",
    "holds after all": "Was expected to differ, and holds. ",
}


class SummaryRow(NamedTuple):
    """One item's row in the table over all papers."""

    paper: str
    item: str
    title: str
    reproduced: int
    on_other_data: int
    ours: int
    other_settings: int
    our_reading: int
    not_stated: int
    paper_errs: int
    undecided: int
    differs: int
    unexpected: int
    seconds: float
    data: str

    @property
    def counts(self) -> tuple[int, ...]:
        """Claims by verdict, in the order of `VERDICTS` without the last (no data)."""
        return (
            self.reproduced,
            self.on_other_data,
            self.ours,
            self.other_settings,
            self.our_reading,
            self.not_stated,
            self.paper_errs,
            self.undecided,
            self.differs,
        )

    @property
    def verdicts(self) -> str:
        """The numbers of its verdicts in words."""
        counts = self.counts
        if not sum(counts):
            return "no data"
        named = zip(counts, VERDICTS, strict=False)
        words = ", ".join(f"{count} {verdict}" for count, verdict in named if count)
        return words + (f" ({self.unexpected} not expected)" if self.unexpected else "")


def judged(made: Made, config: ReproduceConfig) -> tuple[Judged, ...]:
    """Return an item's claims beside what was expected of them.

    Args:
        made: The item.
        config: The run's settings, where the item has none of its own.
    """
    config = made.config or config
    misses = ITEMS[made.paper][made.item.name].misses
    fast, dataset = config.fast, config.dataset
    is_own = any(value is not None for value in given_settings(config).values())
    reasons = {m.claim: m.why for m in misses if m.applies(fast=fast, dataset=dataset)}
    result = []
    for check in made.item.checks:
        why = reasons.get(check.name)
        how = standing(check, why)
        if is_own and how == "missed":
            # nothing was expected of a user's settings
            how = "undecided"
        words = [_REMARKS.get(how, "") + (why or "")]
        # the verdict was lowered, but the miss is judged as it was made
        if check.as_made is not None and check.verdict != "ours":
            words.insert(0, "Not at the paper's settings.")
        result.append(Judged(check, how, " ".join(filter(None, words))))
    return tuple(result)


def summary(items: Sequence[Made], config: ReproduceConfig) -> list[SummaryRow]:
    """Return a row for each item."""
    rows = []
    for made in items:
        outcomes = [check.verdict for check in made.item.checks]
        counts = map(outcomes.count, VERDICTS[:-1])
        missed = sum(verdict.standing == "missed" for verdict in judged(made, config))
        took = round(made.seconds, 1)
        names = (PAPERS[made.paper], made.name, made.item.title)
        values = (*names, *counts, missed, took, made.data_words)
        rows.append(SummaryRow._make(values))
    return rows


def verdicts(items: Sequence[Made], config: ReproduceConfig) -> list[dict[str, Any]]:
    """Return the items' claims and verdicts as plain JSON values."""
    return [
        made.content(verdict=made.item.verdict)
        | {
            "checks": [
                dataclasses.asdict(verdict.check)
                | {"standing": verdict.standing, "why": verdict.why}
                for verdict in judged(made, config)
            ]
        }
        for made in items
    ]


def standing(check: Check, why: str | None) -> Standing:
    """Compare a verdict with the expected one, at the settings that were run.

    Args:
        check: The claim.
        why: Why it is expected to differ; None where it is expected to hold.

    Examples:
        >>> standing(Check("T", "12", "11", "exact", "differs"), None)
        'missed'
        >>> standing(Check("T", "12", "11", "exact", "differs"), "no such T exists")
        'explained'
    """
    if check.verdict == "other settings":
        return "as expected"  # nothing is compared
    # other settings lower a verdict, but do not excuse a miss
    verdict = check.as_made or check.verdict
    if verdict == "no data":
        return "no data"
    if verdict == "differs":
        return "missed" if why is None else "explained"
    if verdict == "undecided":
        return "undecided"
    if why is None:
        return "as expected"
    is_held = verdict in ("reproduced", "holds on other data")
    return "holds after all" if is_held else "explained"
