"""The lines of a report's legend: colours by day and by night, switches and samples.

The legend's boxes hide lines by style alone, without a script. The script adds the
values under the pointer, or under the cursor that the arrow keys move.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mrsa_jax.plotting.styles import look
from mrsa_jax.study.publishing._assets import piece
from mrsa_watch._base.html import Markup

PAPER = {"light": "#ffffff", "dark": "#16181c"}
"""Colour of the paper by day and by night."""

# contrast of a line; the palette itself has 2.2 on white
_LEAST = {"light": 2.0, "dark": 4.5}
_WIDTH = 2.2  # of a line, as the style has it


class Series(NamedTuple):
    """A line of the legend.

    Attributes:
        label: Its name.
        verdict: The badge: its kind ("good", "fair", "bad", "told") and its word; None
            without.
        words: One line about it.
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
    return piece("badge", kind, word)


def places(series: Iterable[Series]) -> dict[str, int]:
    """Return the place of each series in the legend, by its label."""
    return {line.label: place for place, line in enumerate(series)}


def colours(series: Sequence[Series]) -> str:
    """Return the style of all series: colours by day and night, dashes, what is hidden.

    Args:
        series: In the order of the legend.
    """
    night = []
    rules = []
    for place, line in enumerate(series):
        colour, _ = _look(line, place)
        night.append(f".s{place} {{ --c: {seen_on(colour, 'dark')}; }}")
        hidden = f"body:has(#k{place}:not(:checked))"
        rules.append(
            f"{hidden} .plot .s{place} {{ display: none; }} "
            f"{hidden} .keys .s{place} "
            "{ opacity: .7; text-decoration: line-through; }"
        )
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(night)} }}"
    return "\n".join([day_colours(series), dark, *rules])


def day_colours(series: Sequence[Series]) -> str:
    """Return the style of all series on a light page: a colour and dashes each."""
    rules = []
    for place, line in enumerate(series):
        colour, dashes = _look(line, place)
        shade = seen_on(colour, "light")
        rules.append(f".s{place} {{ --c: {shade}; --d: {dashes or 'none'}; }}")
    return "\n".join(rules)


def _look(line: Series, place: int) -> tuple[str, str]:
    """Return the colour of a series and its dashes."""
    colour, widths = look(line.label, place, is_scheme=line.is_scheme)
    return colour, " ".join(f"{_WIDTH * width:.3g}" for width in widths)


def legend(series: Sequence[Series], heading: str) -> Markup:
    """Return one line for each series: its switch, sample, name, verdict and words."""
    return piece("legend", series, heading)


def keys(series: Sequence[Series], *, is_switch: bool = True) -> Markup:
    """Return the legend again in short: a click on a name switches the same series."""
    return piece("keys", series, is_switch)


def _channels(colour: str) -> list[int]:
    """Return red, green and blue of a colour such as "#0072B2"."""
    return list(bytes.fromhex(colour[1:]))


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour such as "#0072B2", by WCAG 2."""
    total = 0.0
    for value, weight in zip(_channels(colour), (0.2126, 0.7152, 0.0722), strict=True):
        part = value / 255
        linear = part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        total += weight * linear
    return total


def contrast(colour: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21, by WCAG 2."""
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def seen_on(colour: str, theme: str, least: float | None = None) -> str:
    """Return a colour that a line can have on a page: lighter or darker where needed.

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
    least = _LEAST[theme] if least is None else least
    aim = 255 if theme == "dark" else 0
    # the first of 20 steps towards white or black that stands out enough
    for percent in range(0, 101, 5):
        mixed = colour
        if percent:
            parts = [round(p + (aim - p) * percent / 100) for p in _channels(colour)]
            mixed = f"#{bytes(parts).hex().upper()}"
        if contrast(mixed, PAPER[theme]) >= least:
            break
    return mixed
