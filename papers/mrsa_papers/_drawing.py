"""A figure's SVG inside a page.

What is kept of it, and its colours by day and by night.
"""

from __future__ import annotations

import pathlib
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterator
from importlib import resources

from mrsa_jax.study.publishing._page import figure
from mrsa_jax.study.publishing._series import PAPER, seen_on
from mrsa_watch._base.html import tidy

_MOST_BYTES = 1_000_000
_MOST_DEPTH = 40
# units: smaller text is an exponent, drawn as large as what it belongs to
_SMALL = 7.5
_READ = 11.0  # px that the smallest text has on any screen
_LARGE = 1.2  # times that size, where there is room
_TEXT, _LINE = 4.7, 3.0  # least contrast of text, and in the dark of what else is drawn
_GREY = 12  # levels between the channels of a colour that is none
_XLINK = "http://www.w3.org/1999/xlink"

_KEPT = {
    "g": (),
    "defs": (),
    "clipPath": (),
    "path": ("d",),
    "text": ("x", "y"),
    "tspan": ("x", "y"),
    "use": ("x", "y"),
    "rect": ("x", "y", "width", "height"),
}
_STYLES = {
    "fill-rule",
    "fill-opacity",
    "stroke-width",
    "stroke-linecap",
    "stroke-linejoin",
    "stroke-dasharray",
    "stroke-dashoffset",
    "stroke-opacity",
    "opacity",
    "text-anchor",
    "font-weight",
    "font-style",
}
_NUMBERS = re.compile(r"[-+\d.eE,\s]*")
_PATH = re.compile(r"[-+\d.eE,\sMLHVCSQTAZmlhvcsqtaz]*")
_MOVED = re.compile(r"(?:(?:translate|scale|rotate|matrix)\([-+\d.eE,\s]*\)\s*)*")
_VALUE = re.compile(r"[\w.,%\s-]*")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_LONG = re.compile(r"-?\d+\.\d{2,}")
_FONT = re.compile(r"(?:^|[\s:])([\d.]+)px")


def read_drawing(path: pathlib.Path, name: str) -> str | None:
    """Return an SVG file as an `<svg>` of a page.

    None where the PNG beside it is better.
    It is where there is no file, a part of it is pixels, its text is not text, or it is
    very large or not what Matplotlib writes.

    Args:
        path: The file.
        name: Of the figure, which no other on the page has.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
        # entities could grow without end
        root = None if "<!ENTITY" in text else ElementTree.fromstring(text)
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    if root is None or _tag(root) != "svg":
        return None
    tags = {_tag(element) for element in root.iter()}
    size = _NUMBERS.fullmatch(root.get("viewBox", ""))
    box = [] if size is None else size.group().split()
    if "image" in tags or "text" not in tags or len(box) != 4:
        return None
    try:
        width = float(box[2])
        sizes = [
            float(size)
            for element in root.iter()
            for size in _FONT.findall(element.get("style", ""))
        ]
        smallest = min((size for size in sizes if size >= _SMALL), default=_SMALL)
        inner = "".join(_Reader(re.sub(r"\W+", "-", name), smallest).parts(root, 0))
    except (RecursionError, ValueError):
        return None
    # the smallest text decides how small the whole may be shown
    least = _READ / smallest * width
    if not 0 < least < 10_000:
        return None
    style = f"min-width: {least:.0f}px; max-width: {_LARGE * least:.0f}px"
    view = " ".join(f"{float(part):.6g}" for part in box)
    return f'<svg viewBox="{view}" style="{style}" aria-hidden="true">{inner}</svg>'


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


class _Reader:
    """Builds a drawing whose names begin with that of its figure."""

    def __init__(self, name: str, smallest: float) -> None:
        self.name = name
        self.smallest = smallest

    def parts(self, element: ElementTree.Element, depth: int) -> Iterator[str]:
        """Yield the kept parts of an element's content."""
        if depth > _MOST_DEPTH:
            raise ValueError("too deep")
        for child in element:
            tag = _tag(child)
            if tag not in _KEPT:
                continue
            inner = "".join(self.parts(child, depth + 1))
            if tag in ("text", "tspan"):
                inner = tidy(re.sub(r"\s", " ", child.text or "").strip()) + inner
            # a group that holds nothing kept
            elif not inner and tag in ("g", "defs", "clipPath"):
                continue
            markup = "".join(
                f' {key}="{value}"' for key, value in self.attributes(child, tag)
            )
            yield (
                inner
                if tag == "g" and not markup
                else f"<{tag}{markup}>{inner}</{tag}>"
            )

    def attributes(
        self, element: ElementTree.Element, tag: str
    ) -> Iterator[tuple[str, str]]:
        """Yield the attributes that are kept."""
        for key in _KEPT[tag]:
            value = element.get(key, "")
            rule = _PATH if key == "d" else _NUMBERS
            if value and rule.fullmatch(value):
                yield key, _short(value)
        moved = element.get("transform", "")
        if moved and _MOVED.fullmatch(moved) and not moved.startswith("rotate(-0 "):
            yield "transform", _short(moved)
        for key, full, start in (
            ("id", "id", ""),
            ("href", f"{{{_XLINK}}}href", "#"),
            ("clip-path", "clip-path", "url(#"),
        ):
            value = (
                element.get(full, "")
                .removeprefix(start)
                .removesuffix(")" * (key == "clip-path"))
            )
            # only what others refer to needs a name, and only `use` may refer
            wanted = (key != "id" or tag in ("path", "clipPath")) and (
                key != "href" or tag == "use"
            )
            if wanted and re.fullmatch(r"\w+", value):
                named = f"{self.name}-{value}"
                yield key, f"url(#{named})" if key == "clip-path" else start + named
        is_text = tag in ("text", "tspan")
        style = ";".join(
            _styles(element.get("style", ""), self.smallest, is_text=is_text)
        )
        if style:
            yield "style", style


def _short(numbers: str) -> str:
    """Return numbers to a tenth or two of a unit."""
    return " ".join(
        _LONG.sub(lambda match: f"{float(match.group()):.5g}", numbers).split()
    )


def _styles(text: str, smallest: float, *, is_text: bool) -> Iterator[str]:
    """Yield the properties that are kept.

    Colours as those of the page, by day and by night.
    """
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
    """Return the style of the drawings on a page.

    Each of their colours by day and by night.

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
    css = (resources.files("mrsa_papers") / "drawing.css").read_text(encoding="utf-8")
    return (
        f"\n{css}.drawn {{ {day} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ .drawn {{ {night} }} }}\n"
    )


def _shade(name: str, theme: str) -> str:
    """Return a colour for a page: greys follow its theme, and text is readable."""
    if name == "cffffff":
        return "var(--paper)"
    colour = f"#{name[1:]}"
    levels = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    if theme == "dark" and max(levels) - min(levels) <= _GREY:
        # the scale of greys is turned round: white becomes the paper
        white, black = (int(end[1:3], 16) for end in (PAPER["dark"], "#e8e8e8"))
        colour = "#" + 3 * f"{round(black + (white - black) * levels[0] / 255):02x}"
        least = 1.0
    else:
        least = 1.0 if theme == "light" else _LINE
    return seen_on(colour, theme, _TEXT if name[0] == "t" else least)


def best_figure(caption: str, picture: pathlib.Path, drawing: pathlib.Path) -> str:
    """Return a figure as SVG if it has one, else as PNG.

    The SVG scrolls in its place on a narrow screen.

    Args:
        caption: What it shows.
        picture: The PNG.
        drawing: The SVG, if there is one that fits a page.
    """
    # wherever the folder lies, the page is the same
    place = "/".join(drawing.parts[-2:])
    markup = read_drawing(drawing, f"f{zlib.crc32(place.encode()):08x}")
    if markup is None:
        return figure(caption, picture.read_bytes())
    return (
        '<figure><div class="picture drawn" tabindex="0" role="img" '
        f'aria-label="{tidy(caption)}">'
        f"{markup}</div><figcaption>{tidy(caption)}</figcaption></figure>"
    )
