"""Charts as SVG: colours of the series, the legend that switches them, hover values, drawing.

The legend's boxes hide lines by style alone, without a script; the script adds the values under
the pointer, or under the cursor that the arrow keys move.
"""

from __future__ import annotations

import functools
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import NamedTuple

from mrsa_jax._core.html import Markup, tidy
from mrsa_jax.plotting._style import look

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


_MOST_BYTES = 1_000_000
_MOST_DEPTH = 40
_SMALL = 7.5  # units: smaller text is an exponent, drawn as large as what it stands beside
_READ = 11.0  # px that the smallest text has on any screen
_LARGE = 1.2  # times that size, where there is room
_TEXT, _LINE = 4.7, 3.0  # least contrast of text, and in the dark of what else is drawn
_GREY = 12  # levels between the channels of a colour that is none

_KEPT = {
    "g": (), "defs": (), "path": ("d",), "clipPath": (), "text": ("x", "y"), "tspan": ("x", "y"),
    "rect": ("x", "y", "width", "height"), "use": ("x", "y"),
}  # fmt: skip
_STYLES = {
    "fill-rule", "fill-opacity", "stroke-width", "stroke-linecap", "stroke-linejoin",
    "stroke-dasharray", "stroke-dashoffset", "stroke-opacity", "opacity", "text-anchor",
    "font-weight", "font-style",
}  # fmt: skip
_NUMBERS = re.compile(r"[-+\d.eE,\s]*")
_PATH = re.compile(r"[-+\d.eE,\sMLHVCSQTAZmlhvcsqtaz]*")
_MOVED = re.compile(r"(?:(?:translate|scale|rotate|matrix)\([-+\d.eE,\s]*\)\s*)*")
_VALUE = re.compile(r"[\w.,%\s-]*")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_LONG = re.compile(r"-?\d+\.\d{2,}")
_FONT = re.compile(r"(?:^|[\s:])([\d.]+)px")


def read_drawing(path: pathlib.Path, name: str) -> str | None:
    """Return an SVG file as an `<svg>` of a page; None where the PNG beside it is better.

    It is where there is no file, a part of it is pixels, its text is not text, or it is very large
    or not what Matplotlib writes.

    Args:
        path: The file.
        name: Of the figure, which no other on the page has.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
        root = None if "<!ENTITY" in text else ElementTree.fromstring(text)
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    if root is None or _tag(root) != "svg":
        return None
    tags = {_tag(one) for one in root.iter()}
    size = _NUMBERS.fullmatch(root.get("viewBox", ""))
    box = [] if size is None else size.group().split()
    if "image" in tags or "text" not in tags or len(box) != 4:
        return None
    try:
        width = float(box[2])
        sizes = [float(size) for one in root.iter() for size in _FONT.findall(one.get("style", ""))]
        smallest = min((size for size in sizes if size >= _SMALL), default=_SMALL)
        inner = "".join(_Reader(re.sub(r"\W+", "-", name), smallest).parts(root, 0))
    except (RecursionError, ValueError):
        return None
    least = _READ / smallest * width
    if not 0 < least < 10_000:
        return None
    style = f"min-width: {least:.0f}px; max-width: {_LARGE * least:.0f}px"
    view = " ".join(f"{float(part):.6g}" for part in box)
    return f'<svg viewBox="{view}" style="{style}" aria-hidden="true">{inner}</svg>'


def _tag(one: ElementTree.Element) -> str:
    return str(one.tag).rpartition("}")[2]


class _Reader:
    """Builds a drawing whose names begin with that of its figure."""

    def __init__(self, name: str, smallest: float) -> None:
        self.name = name
        self.smallest = smallest

    def parts(self, element: ElementTree.Element, depth: int) -> Iterator[str]:
        """Yield what is kept of what an element holds."""
        if depth > _MOST_DEPTH:
            raise ValueError("too deep")
        for one in element:
            tag = _tag(one)
            if tag not in _KEPT:
                continue
            inner = "".join(self.parts(one, depth + 1))
            if tag in ("text", "tspan"):
                inner = tidy(re.sub(r"\s", " ", one.text or "").strip()) + inner
            elif not inner and tag in ("g", "defs", "clipPath"):
                continue
            own = "".join(f' {key}="{value}"' for key, value in self.attributes(one, tag))
            yield inner if tag == "g" and not own else f"<{tag}{own}>{inner}</{tag}>"

    def attributes(self, one: ElementTree.Element, tag: str) -> Iterator[tuple[str, str]]:
        """Yield the attributes that are kept."""
        for key in _KEPT[tag]:
            value = one.get(key, "")
            rule = _PATH if key == "d" else _NUMBERS
            if value and rule.fullmatch(value):
                yield key, _short(value)
        moved = one.get("transform", "")
        if moved and _MOVED.fullmatch(moved) and not moved.startswith("rotate(-0 "):
            yield "transform", _short(moved)
        for key, full, start in (
            ("id", "id", ""),
            ("href", "{http://www.w3.org/1999/xlink}href", "#"),
            ("clip-path", "clip-path", "url(#"),
        ):
            value = one.get(full, "").removeprefix(start).removesuffix(")" * (key == "clip-path"))
            wanted = (key != "id" or tag in ("path", "clipPath")) and (
                key != "href" or tag == "use"
            )
            if wanted and re.fullmatch(r"\w+", value):
                named = f"{self.name}-{value}"
                yield key, f"url(#{named})" if key == "clip-path" else start + named
        is_text = tag in ("text", "tspan")
        style = ";".join(_styles(one.get("style", ""), self.smallest, is_text=is_text))
        if style:
            yield "style", style


def _short(numbers: str) -> str:
    """Return numbers to a tenth or two of a unit."""
    return " ".join(_LONG.sub(lambda found: f"{float(found.group()):.5g}", numbers).split())


def _styles(text: str, smallest: float, *, is_text: bool) -> Iterator[str]:
    """Yield the properties that are kept; colours as those of the page, by day and by night."""
    for part in text.split(";"):
        key, _, value = (piece.strip() for piece in part.partition(":"))
        if key in ("fill", "stroke"):
            if _COLOUR.fullmatch(value):
                yield f"{key}:var(--{'t' if is_text else 'c'}{value[1:].lower()})"
            elif key == "fill" or value == "none":
                yield f"{key}:none"
        elif key in ("font", "font-size"):
            size = _FONT.search(value)
            if size is not None:
                yield f"font-size:{max(float(size.group(1)), smallest):g}px"
        elif key in _STYLES and _VALUE.fullmatch(value):
            yield f"{key}:{value}"


def drawing_colours(body: str) -> str:
    """Return the style of the drawings on a page: each of their colours by day and by night.

    Args:
        body: The page's body; "" comes back where no drawing is in it.
    """
    names = sorted(set(re.findall(r"var\(--([ct][0-9a-f]{6})\)", body)))
    if not names:
        return ""
    day, night = (
        " ".join(f"--{name}: {_shade(name, theme)};" for name in names)
        for theme in ("light", "dark")
    )
    return (
        f"\n{asset('drawing.css')}.drawn {{ {day} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ .drawn {{ {night} }} }}\n"
    )


def _shade(name: str, theme: str) -> str:
    """Return a colour of a drawing on a page: greys turn with it, and text can be read."""
    if name == "cffffff":
        return "var(--paper)"
    colour = f"#{name[1:]}"
    levels = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    if theme == "dark" and max(levels) - min(levels) <= _GREY:
        white, black = (int(end[1:3], 16) for end in (PAPER["dark"], "#e8e8e8"))
        colour = "#" + 3 * f"{round(black + (white - black) * levels[0] / 255):02x}"
        least = 1.0
    else:
        least = 1.0 if theme == "light" else _LINE
    return seen_on(colour, theme, _TEXT if name[0] == "t" else least)
