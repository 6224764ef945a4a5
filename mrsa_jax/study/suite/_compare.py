"""Compare cards: what is better beyond the intervals over the seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mrsa_jax.study.suite._card import Card, check_form, version_figures
from mrsa_jax.study.suite._figures import Figure
from mrsa_jax.study.suite._scenarios import load_version
from mrsa_watch._base.errors import require


@dataclasses.dataclass(frozen=True)
class Row:
    """A figure of a scenario in all cards.

    Attributes:
        scenario: Its name.
        figure: Its name.
        word: Its certainty.
        entries: Of each card, with `value`, `low` and `high`; None where the card has
            no value.
        better: Pairs (a, b) of numbers of cards: the interval of a is better than that
            of b, and the two do not overlap.
    """

    scenario: str
    figure: str
    word: str
    entries: tuple[dict[str, Any] | None, ...]
    better: tuple[tuple[int, int], ...]


def compare_cards(cards: Sequence[Card]) -> tuple[Row, ...]:
    """Compare the figures of two or more cards of one version of the suite.

    Args:
        cards: As `read_card` returns them.

    Returns:
        A row for each figure that two cards or more have.

    Raises:
        ConfigurationError: If there are fewer than two cards, or they are of different
            versions.
    """
    require(len(cards) >= 2, "cards", "must be at least two", len(cards))
    for card in cards:
        check_form(card)
    names = {(card["suite"], card["suite_sha256"]) for card in cards}
    rule = "must be of one version of the suite"
    require(len(names) == 1, "cards", rule, *sorted(name for name, _ in names))
    version = load_version(cards[0]["suite"])
    rows: list[Row] = []
    for scenario in version.scenarios:
        tables = [
            card["scenarios"].get(scenario, {}).get("figures", {}) for card in cards
        ]
        for figure, about in version_figures(version, scenario).items():
            rows += rows_of(scenario, figure, about, [t.get(figure) for t in tables])
    return tuple(rows)


def rows_of(
    scenario: str,
    figure: str,
    about: Figure,
    summaries: Sequence[dict[str, Any] | None],
) -> list[Row]:
    """Return the row of a figure, or none if fewer than two summaries have a value."""
    entries = tuple(map(_entry, summaries))
    if sum(entry is not None for entry in entries) < 2:
        return []
    better = tuple(
        (a, b)
        for a, first in enumerate(entries)
        for b, second in enumerate(entries)
        if a != b and _is_better(first, second, about.better)
    )
    return [Row(scenario, figure, about.word, entries, better)]


def _entry(entry: dict[str, Any] | None) -> dict[str, Any] | None:
    if entry is None or entry["value"] is None:
        return None
    return {name: entry[name] for name in ("value", "low", "high")}


def _is_better(
    first: dict[str, Any] | None, second: dict[str, Any] | None, direction: int
) -> bool:
    """Return whether an interval lies beyond another, in the better direction."""
    if first is None or second is None or None in (first["low"], second["low"]):
        return False
    if direction > 0:
        return bool(first["low"] > second["high"])
    return bool(direction < 0 and first["high"] < second["low"])
