"""The page of a card: the same figures as one HTML file."""

from __future__ import annotations

from typing import Any

from mrsa_jax.study.publishing._page import Section, data_table, note, page, paragraphs
from mrsa_jax.study.suite._card import version_figures
from mrsa_jax.study.suite._scenarios import load_version
from mrsa_watch._base.html import number

_ROUNDING = 1e-9
_LEAD = (
    "Each value is the mean over the seeds of the scenario, with its 95 % interval by "
    "Student's t."
)
_WORDS = (
    "Exact: decided in integers, perhaps with an error of probability below 2^-30. "
    "Certified: a bound, or a float whose error is bounded. Estimated: dependent on "
    "random draws beyond the history."
)


def card_page(card: dict[str, Any]) -> str:
    """Return the page of a card."""
    version = load_version(card["suite"])
    sections = []
    for name, scenario in version.scenarios.items():
        entry = card["scenarios"].get(name)
        if entry is None:
            continue
        title = name.replace("_", " ").capitalize()
        if "problem" in entry:
            reasons = [f"{scenario.about}.", f"Not measured: {entry['problem']}."]
            sections.append(Section(title, paragraphs(reasons)))
            continue
        rows = [
            (about.label, value_words(entry["figures"][figure]), about.word)
            for figure, about in version_figures(version, name).items()
            if entry["figures"][figure]["value"] is not None
        ]
        caption = f"{scenario.about}; {len(entry['seeds'])} seeds"
        table = data_table(("figure", "value", "certainty"), rows, caption)
        digests = ", ".join(entry["histories"])
        words = f"Scheme {entry['scheme']}. SHA-256 of the histories: {digests}"
        sections.append(Section(title, table + note(words)))
    lead = (
        f"Suite {card['suite']}, package {card['package']}, scheme {card['scheme']}",
        _LEAD,
        _WORDS,
    )
    return page(f"Card of {card['label']}", lead, sections)


def value_words(entry: dict[str, Any] | None) -> str:
    """Return a value with its interval as text; "-" for none.

    Args:
        entry: With `value`, `low` and `high`, or None.

    Examples:
        >>> value_words({"value": 4.0, "low": 4.0, "high": 4.0})
        '4'
        >>> value_words({"value": 0.5, "low": 0.25, "high": 0.75})
        '0.5 ± 0.25'
    """
    if entry is None or entry["value"] is None:
        return "-"
    value, high = entry["value"], entry["high"]
    half = 0.0 if high is None else high - value
    # rounding leaves a little where all seeds agree
    if half <= _ROUNDING * abs(value):
        return number(value)
    return f"{number(value, 3)} ± {number(half, 2)}"
