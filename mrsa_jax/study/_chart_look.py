"""Charts as SVG: colours of the series, the legend that switches them, hover values, drawing.

The legend's boxes hide lines by style alone, without a script; the script adds the values under
the pointer, or under the cursor that the arrow keys move.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import NamedTuple

from mrsa_jax.plotting._style import look
from mrsa_watch._base.html import Markup, tidy

PAPER = {"light": "#ffffff", "dark": "#16181c"}
"""What a page is drawn on."""

_LEAST = {"light": 2.0, "dark": 4.5}  # contrast of a line; the palette itself has 2.2 on white
_WIDTH = 2.2  # of a line, as the style has it


@functools.cache
def asset(name: str) -> str:
    """Return a style sheet or a script that pages carry inside.

    Args:
        name: A file of `study/assets`. Scripts only ever add text as text.
    """
    return (resources.files("mrsa_jax.study") / "assets" / name).read_text(encoding="utf-8")


class Series(NamedTuple):
    """What one line of the legend stands for.

    Attributes:
        label: Its name.
        verdict: The badge: its kind ("good", "fair", "bad", "told") and its word; None without.
        words: What is said of it in one line.
        is_scheme: Whether its colour is that of a scheme, else the next of a few.
    """

    label: str
    verdict: tuple[str, str] | None = None
    words: str = ""
    is_scheme: bool = True


def badge(kind: str, word: str) -> Markup:
    """Return a verdict in colour and word.

    Args:
        kind: "good", "fair", "bad" or "told" (no judgement).
        word: What it says.
    """
    return Markup(f'<span class="badge {kind}">{tidy(word)}</span>')


def places(series: Iterable[Series]) -> dict[str, int]:
    """Return the place of each series in the legend, by its label."""
    return {one.label: place for place, one in enumerate(series)}


def colours(series: Sequence[Series]) -> str:
    """Return the style of all series: colours by day and by night, dashes, and what is hidden.

    Args:
        series: In the order of the legend.
    """
    night, rules = [], []
    for place, one in enumerate(series):
        night.append(f".s{place} {{ --c: {seen_on(_look(one, place)[0], 'dark')}; }}")
        hidden = f"body:has(#k{place}:not(:checked))"
        rules.append(
            f"{hidden} .plot .s{place} {{ display: none; }} "
            f"{hidden} .keys .s{place} {{ opacity: .7; text-decoration: line-through; }}"
        )
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(night)} }}"
    return "\n".join([day_colours(series), dark, *rules])


def day_colours(series: Sequence[Series]) -> str:
    """Return the style of all series on a light page: a colour and dashes each."""
    looks = [_look(one, place) for place, one in enumerate(series)]
    return "\n".join(
        f".s{place} {{ --c: {seen_on(colour, 'light')}; --d: {dash or 'none'}; }}"
        for place, (colour, dash) in enumerate(looks)
    )


def _look(one: Series, place: int) -> tuple[str, str]:
    """Return the colour of a series and its dashes."""
    colour, widths = look(one.label, place, is_scheme=one.is_scheme)
    return colour, " ".join(f"{_WIDTH * width:.3g}" for width in widths)


def legend(series: Sequence[Series], heading: str) -> str:
    """Return one line for each series: its switch, sample, name, verdict and words."""
    items = []
    for place, one in enumerate(series):
        switch = f'<input type="checkbox" id="k{place}" checked=""/>' * (len(series) > 1)
        told = badge(*one.verdict) if one.verdict else "<span></span>"
        items.append(
            f"<li><label>{switch}{_sample(place)}<span>{tidy(one.label)}</span></label>{told}"
            f'<span class="words">{tidy(one.words)}</span></li>'
        )
    return f'<ul class="lines" aria-label="{tidy(heading)}">{"".join(items)}</ul>'


def keys(series: Sequence[Series], *, is_switch: bool = True) -> str:
    """Return the legend again in short: a click on a name switches the same series."""
    if len(series) < 2:
        return ""
    tag = "label" if is_switch else "span"
    switched = ' for="k{}"' if is_switch else ""
    items = "".join(
        f'<{tag}{switched.format(place)} class="item s{place}">{_sample(place)}'
        f"<span>{tidy(one.label)}</span></{tag}>"
        for place, one in enumerate(series)
    )
    return f'<div class="keys">{items}</div>'


def _sample(place: int) -> str:
    return (
        f'<svg class="key s{place}" viewBox="0 0 38 14" aria-hidden="true">'
        '<line x1="1" x2="37" y1="7" y2="7"/><circle cx="19" cy="7" r="4"/></svg>'
    )


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour such as "#0072B2", by WCAG 2."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return how far two colours stand apart, from 1 to 21, by WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def seen_on(colour: str, theme: str, least: float | None = None) -> str:
    """Return a colour that a line can have on a page: the same, or as much lighter or darker.

    Args:
        colour: As "#0072B2".
        theme: "light" or "dark".
        least: Contrast that it has; that of lines when None.

    Examples:
        >>> seen_on("#0072B2", "light"), seen_on("#000000", "dark") != "#000000"
        ('#0072B2', True)
    """
    if not re.fullmatch(r"#[0-9A-Fa-f]{6}", colour):
        return "currentColor"
    paper, least = PAPER[theme], _LEAST[theme] if least is None else least
    aim = 255 if theme == "dark" else 0
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    for percent in range(0, 101, 5):
        mixed = [round(p + (aim - p) * percent / 100) for p in parts]
        found = "#" + "".join(f"{p:02X}" for p in mixed) if percent else colour
        if contrast(found, paper) >= least:
            return found
    return found
