"""The page of all cards: tables that a reader can sort, and a figure."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from mrsa_jax.plotting import style
from mrsa_jax.plotting.chart import Chart, Line, draw
from mrsa_jax.study.suite._card import Card, check_form
from mrsa_jax.study.suite._page import value_words
from mrsa_jax.study.suite._scenarios import load_version
from mrsa_watch._base.errors import require
from mrsa_watch._base.files import write_whole

SHOWN = "mixed_shuffled"
"""Scenario of the figure."""
COLUMNS = {
    "strong T": ("strong_privacy",),
    "weak T": ("weak_lower", "weak_upper"),
    "exposed": ("exposed_clients",),
    "hidden among": (
        "update_hidden_worst_1000",
        "update_hidden_worst_200",
        "update_hidden_worst_50",
    ),
    "what lasts": ("lasting_hidden_worst_200",),
    "AUC": ("attribute_auc",),
    "bound": ("attribute_bound",),
    "epsilon": ("epsilon",),
    "C": ("cardinality",),
    "F": ("fairness_gap",),
    "skipped": ("skipped_rounds",),
    "accuracy": ("accuracy",),
    "rounds to accuracy": ("rounds_to_accuracy",),
}
"""Columns of the tables: the first figure that the scenario has, or both bounds."""
_DIGITS = 6  # of sizes that are ranked
_OPENING = """# Selectors in the suite

This page ranks the selection schemes of this package, and three rules of other
systems, in the scenarios of suite {suite}. `mrsa-jax suite table` makes it from the
cards of the schemes. [Rank your own selector](how_to/suite.md) shows how to make,
verify and compare cards.

![{alt}]({picture})

*{caption}*

Each value is the mean over the seeds of a scenario. Where the seeds differ, half of
its 95 % interval by Student's t follows. Strong T, exposed clients, C, F and skipped
rounds are exact. Weak T is a pair of certified bounds. The size that the worst client
is hidden among, the bound on the AUC, and epsilon are certified. The AUC of the
attribute attack, the accuracy of the training, and the rounds to an accuracy are
estimated. A dash means that the scheme has no such value, or none for one of the seeds.
The scheme that hides its worst client best comes first, and in the training the most
accurate one. On the site, a click on a heading sorts a table.
"""
_CAPTION = (
    "Among how many clients the worst client is hidden after 200 rounds, against the "
    "mean clients per round C. 120 clients, 12 per round, are offline in 10 to 50 % of "
    "the rounds. Upper right is better."
)
_ALT = "Size that the worst client is hidden among, against C, one mark per scheme"


def write_table(
    cards: Sequence[Card], file: str | os.PathLike[str]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Write a Markdown page of the tables of cards, and its figure next to it as SVG.

    Args:
        cards: Of one version of the suite, as `read_card` returns them.
        file: The page to write.

    Returns:
        The paths of the page and of the figure.

    Raises:
        ConfigurationError: If there is no card, or they are of different versions.
    """
    page = pathlib.Path(file)
    picture = page.with_suffix(".svg")
    write_whole(page, table_page(cards, picture.name))
    with style("double"):
        axes = draw(suite_chart(cards))
        figure = axes.figure
        # without a date, the same cards give the same file
        figure.savefig(picture, metadata={"Date": None})  # type: ignore[union-attr]
    return page, picture


def table_page(cards: Sequence[Card], picture: str) -> str:
    """Return the Markdown page of cards, with a link to its picture."""
    require(len(cards) > 0, "cards", "must hold at least one card", len(cards))
    for card in cards:
        check_form(card)
    names = {(card["suite"], card["suite_sha256"]) for card in cards}
    rule = "must be of one version of the suite"
    require(len(names) == 1, "cards", rule, *sorted(name for name, _ in names))
    version = load_version(cards[0]["suite"])
    words = {"suite": version.name, "alt": _ALT, "picture": picture}
    parts = [_OPENING.format(caption=_CAPTION, **words)]
    measured = {name for card in cards for name in card["scenarios"]}
    for name, scenario in version.scenarios.items():
        if name not in measured:
            continue
        parts.append(f"\n## {name.replace('_', ' ').capitalize()}\n")
        parts.append(f"{_sentences(scenario.about)}\n")
        parts.append(_table(cards, name))
    return "\n".join(parts)


def _sentences(about: str) -> str:
    """Return a description as sentences: each part between semicolons is one."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in about.split("; "))


def _table(cards: Sequence[Card], scenario: str) -> str:
    """Return the table of a scenario, the best hidden worst client first.

    Of schemes that hide it equally well, that with more clients per round is first; of
    trained models, the most accurate.
    """
    ranked = sorted(cards, key=lambda card: _rank(card, scenario))
    rows = [[card["label"], *_cells(_figures(card, scenario))] for card in ranked]
    columns = ["scheme", *COLUMNS]
    # columns without a value in any card say nothing
    places = [
        k for k in range(len(columns)) if k == 0 or any(row[k] != "-" for row in rows)
    ]
    lines = [":::{table}", ":class: sortable", ""]
    lines += [
        f"| {' | '.join(row[k] for k in places)} |"
        for row in (columns, ["---"] * len(columns), *rows)
    ]
    return "\n".join([*lines, ":::", ""])


def _figures(card: Card, scenario: str) -> dict[str, Any]:
    figures: dict[str, Any] = card["scenarios"].get(scenario, {}).get("figures", {})
    return figures


def _rank(card: Card, scenario: str) -> tuple[float, float, float, str]:
    figures = _figures(card, scenario)

    def value(names: Sequence[str]) -> float:
        values = (figures.get(name, {}).get("value") for name in names)
        return next((float(v) for v in values if v is not None), -1.0)

    sizes = (value(COLUMNS[column]) for column in ("hidden among", "C", "accuracy"))
    hidden, size, accuracy = (round(number, _DIGITS) for number in sizes)
    return -hidden, -size, -accuracy, card["label"]


def _cells(figures: dict[str, Any]) -> list[str]:
    cells = []
    for column, names in COLUMNS.items():
        words = [value_words(figures.get(name)) for name in names]
        if column == "weak T":
            cells.append(words[0] if words[0] == words[1] else " to ".join(words))
        else:
            cells.append(next((word for word in words if word != "-"), "-"))
    return cells


def suite_chart(cards: Sequence[Card], scenario: str = SHOWN) -> Chart:
    """Return the chart of hiding against C in a scenario, a mark for each card."""
    lines = []
    for card in cards:
        figures = _figures(card, scenario)
        pair = [figures.get(n, {}) for n in ("cardinality", "update_hidden_worst_200")]
        if any(entry.get("value") is None for entry in pair):
            continue
        x, y = (entry["value"] for entry in pair)
        lines.append(Line(card["label"], [x], [y], kind="marks"))
    return Chart(
        _ALT,
        _CAPTION,
        lines,
        x_label="C, mean clients per round",
        y_label="hidden among, clients",
        x_from=0.0,
        y_range=(0.0,),
        whole="",
        are_schemes=True,
    )
