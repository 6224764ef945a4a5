"""Print the report: one HTML file with print styles, and a PDF by matplotlib."""

from __future__ import annotations

import base64
import functools
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

# in points, 72 to the inch; A4
WIDTH, HEIGHT, MARGIN = 595.0, 842.0, 64.0
BODY, REFERENCES, SMALL = 9.0, 8.0, 7.0
LEADING = 1.4
KEY = 130.0  # next to a figure
STYLE = """
@page { size: A4; margin: 22mm }
body { font: 11pt/1.45 Georgia, serif; max-width: 46em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-size: 85%; margin: 1em 0 }
td, th { border-bottom: 1px solid #bbb; padding: .25em .6em; text-align: left }
pre, code { font-family: monospace; font-size: 90% }
pre { white-space: pre-wrap } img { max-width: 100% }
h1, h2, h3 { break-after: avoid } table, img, pre { break-inside: avoid }
"""


def parser() -> MarkdownIt:
    """Return the parser of the report's Markdown."""
    return MarkdownIt("commonmark", {"html": True}).enable("table")


def as_html(markdown: str, folder: pathlib.Path) -> str:
    """Return one HTML file, with the figures of `folder` in it."""

    def embedded(found: re.Match[str]) -> str:
        content = base64.b64encode((folder / found[1]).read_bytes()).decode()
        return f'src="data:image/svg+xml;base64,{content}"'

    body = re.sub(r'src="([^":]+\.svg)"', embedded, parser().render(markdown))
    (title,) = re.findall(r"^# (.*)$", markdown, re.MULTILINE)[:1]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{body}</body></html>\n"
    )


class Word(NamedTuple):
    """A word, and how it is set."""

    text: str
    bold: bool = False
    italic: bool = False
    mono: bool = False


@functools.cache
def font(bold: bool, italic: bool, mono: bool, size: float) -> FontProperties:
    """Return a face that comes with matplotlib."""
    return FontProperties(
        family="DejaVu Sans Mono" if mono else "DejaVu Serif",
        weight="bold" if bold else "normal",
        style="italic" if italic else "normal",
        size=size * (0.9 if mono else 1.0),
    )


@functools.cache
def width_of(word: Word, size: float) -> float:
    """Return the width of a word in points."""
    face = font(word.bold, word.italic, word.mono, size)
    measured = text_to_path.get_text_width_height_descent(word.text, face, False)
    return float(measured[0])


def words_of(children: list[Token], bold: bool = False) -> Iterator[Word]:
    """Yield the words of a paragraph, a cell or a heading."""
    italic = mono = False
    for token in children:
        if token.type in ("strong_open", "strong_close"):
            bold = token.type == "strong_open"
        elif token.type in ("em_open", "em_close"):
            italic = token.type == "em_open"
        elif token.type == "softbreak":
            yield Word(" ")
        elif token.type in ("text", "code_inline"):
            mono = token.type == "code_inline"
            for part in re.findall(r"\s+|\S+", token.content):
                yield Word(" " if part.isspace() else part, bold, italic, mono)


def lines_of(words: list[Word], width: float, size: float) -> list[list[Word]]:
    """Break words into lines of at most a width; words that touch stay together."""
    lines: list[list[Word]] = [[]]
    used, number = 0.0, 0
    while number < len(words):
        end = number + 1
        if words[number].text != " ":
            while end < len(words) and words[end].text != " ":
                end += 1
        group = words[number:end]
        needed = sum(width_of(word, size) for word in group)
        if used + needed > width and lines[-1] and group[0].text != " ":
            lines.append([])
            used = 0.0
        if lines[-1] or group[0].text != " ":
            lines[-1] += group
            used += needed
        number = end
    return lines


class Printer:
    """Pages that fill from the top."""

    def __init__(self, pages: PdfPages, figures: dict[str, Callable[..., Any]]) -> None:
        """Begin the first page; `figures` are drawn on axes by their names."""
        self.pages, self.figures, self.number = pages, figures, 0
        self.page = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        self.height = HEIGHT - MARGIN

    def finish(self) -> None:
        """End the page and begin another."""
        self.number += 1
        self._set(WIDTH / 2, MARGIN / 2, str(self.number), font(False, False, False, 8))
        self.pages.savefig(self.page)
        self.page = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        self.height = HEIGHT - MARGIN

    def room(self, needed: float) -> None:
        """Begin another page unless this much of the current one is left."""
        if self.height - needed < MARGIN:
            self.finish()

    def _set(self, x: float, y: float, text: str, face: FontProperties) -> None:
        # no mathematics: a dollar is a dollar
        self.page.text(
            x / WIDTH, y / HEIGHT, text, fontproperties=face, parse_math=False
        )

    def line(self, words: list[Word], x: float, y: float, size: float) -> None:
        """Set a line, in runs of one style."""
        for word in words:
            if word.text != " ":
                face = font(word.bold, word.italic, word.mono, size)
                self._set(x, y, word.text, face)
            x += width_of(word, size)

    def paragraph(self, words: list[Word], size: float, indent: float = 0.0) -> None:
        """Set a paragraph, of which no page holds a single line."""
        step = size * LEADING
        lines = lines_of(words, WIDTH - 2 * MARGIN - indent, size)
        fits = int((self.height - MARGIN) / step)
        stop = min(fits, len(lines) - 2)
        for number, line in enumerate(lines):
            if fits < len(lines) and number == (stop if stop > 1 else 0):
                self.finish()
            self.room(step)
            self.height -= step
            self.line(line, MARGIN + indent, self.height, size)

    def code(self, content: str) -> None:
        """Set lines as they are on one page, and what is too long in several."""
        lines = content.rstrip("\n").split("\n")
        self.room(8.0 * LEADING * len(lines))
        for line in lines:
            for part in re.findall(r".{1,95}", line) or [""]:
                self.paragraph([Word(part, mono=True)], 8.0, 12.0)

    def table(self, rows: list[list[list[Word]]]) -> None:
        """Set a table whose columns are as wide as their cells need.

        Where they are too wide, heads and the first column are broken first.
        """
        columns = list(zip(*rows, strict=True))
        gap = 6.0

        def widest(cells: Any, size: float, whole: bool) -> float:
            widths = [
                sum(width_of(word, size) for word in cell)
                if whole
                else max((width_of(word, size) for word in cell), default=0.0)
                for cell in cells
            ]
            return max(widths) + gap

        least = [widest(cells, SMALL, False) for cells in columns]
        whole = [widest(cells, SMALL, True) for cells in columns]
        of_body = [widest(cells[1:], SMALL, True) for cells in columns]
        unbroken = [*least[:1], *map(max, least[1:], of_body[1:])]
        if sum(unbroken) <= WIDTH - 2 * MARGIN:
            least = unbroken
        spare = WIDTH - 2 * MARGIN - sum(least)
        wanted = sum(whole) - sum(least)
        part = min(1.0, max(spare, 0.0) / wanted) if wanted else 0.0
        widths = [a + part * (b - a) for a, b in zip(least, whole, strict=True)]
        step = SMALL * LEADING
        broken = [
            [
                lines_of(cell, width - gap, SMALL)
                for cell, width in zip(row, widths, strict=True)
            ]
            for row in rows
        ]
        heights = [max(map(len, cells)) * step + 4 for cells in broken]
        # a short table stays together, and a head stays with its first row
        is_short = sum(heights) < HEIGHT / 3
        self.room(sum(heights) if is_short else sum(heights[:2]))
        for place, (cells, tall) in enumerate(zip(broken, heights, strict=True)):
            self.room(tall)
            x = MARGIN
            for lines, width in zip(cells, widths, strict=True):
                for number, line in enumerate(lines):
                    y = self.height - (number + 1) * step
                    self.line(line, x, y, SMALL)
                x += width
            self.height -= tall
            self._rule(MARGIN, x, 0.8 if place == 0 else 0.3)
        self.height -= 6

    def _rule(self, left: float, right: float, thick: float) -> None:
        from matplotlib.lines import Line2D

        y = self.height / HEIGHT
        ends = [left / WIDTH, right / WIDTH]
        rule = Line2D(ends, [y, y], linewidth=thick, color="0.4")
        self.page.add_artist(rule)

    def figure(self, name: str) -> None:
        """Draw a figure over the width of the page."""
        tall = 190.0
        self.room(tall + 20)
        bottom = self.height - tall + 24
        ax = self.page.add_axes(
            (
                (MARGIN + 40) / WIDTH,
                bottom / HEIGHT,
                (WIDTH - 2 * MARGIN - 40 - KEY) / WIDTH,
                (tall - 34) / HEIGHT,
            )
        )
        self.figures[name](ax)
        self.height -= tall + 6


def as_pdf(
    markdown: str, figures: dict[str, Callable[..., Any]], path: pathlib.Path
) -> int:
    """Write the PDF, and return its pages.

    Args:
        markdown: The report.
        figures: How each figure is drawn on axes, by the name of its file.
        path: The PDF.
    """
    with PdfPages(path, metadata={"CreationDate": None}) as pages:
        printer = Printer(pages, figures)
        tokens = parser().parse(markdown)
        rows: list[list[list[Word]]] = []
        body, size, bold, indent, is_cell = BODY, BODY, False, 0.0, False
        for token in tokens:
            if token.type == "heading_open":
                size, bold = {"h1": 17.0, "h2": 12.5}.get(token.tag, 10.5), True
                # with the space around it, and three lines below it
                printer.room((1 + LEADING) * size + 3 + 3 * BODY * LEADING)
                printer.height -= size
            elif token.type == "heading_close":
                size, bold = body, False
                printer.height -= 3
            elif token.type == "paragraph_close":
                printer.height -= 3 if indent else 6
            elif token.type in ("bullet_list_open", "bullet_list_close"):
                indent = 14.0 if token.type == "bullet_list_open" else 0.0
                printer.height -= 0.0 if indent else 4.0
            elif token.type == "list_item_open":
                printer.room(2 * size * LEADING)
                y = printer.height - size * LEADING
                printer.line([Word("•")], MARGIN + 3, y, size)
            elif token.type in ("fence", "code_block"):
                printer.code(token.content)
                printer.height -= 6
            elif token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                is_cell, bold = True, token.type == "th_open"
            elif token.type in ("th_close", "td_close"):
                is_cell = bold = False
            elif token.type == "table_close":
                printer.table(rows)
                rows = []
            elif token.type == "inline":
                children = token.children or []
                images = [child for child in children if child.type == "image"]
                if is_cell:
                    rows[-1].append(list(words_of(children, bold)))
                elif images:
                    printer.figure(pathlib.Path(str(images[0].attrs["src"])).stem)
                else:
                    printer.paragraph(list(words_of(children, bold)), size, indent)
                    # what follows is the bibliography
                    body = REFERENCES if token.content == "References" else body
        printer.finish()
        return printer.number
