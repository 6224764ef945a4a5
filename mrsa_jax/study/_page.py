"""The page that every report is: one HTML file that needs no other file.

It carries its style and its figures inside and lets the browser fetch nothing, so it
opens offline; it fits a phone, prints, follows the reader's light or dark scheme, and
names its tables and figures for those who listen to it.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import struct
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from mrsa_jax.plotting.chart import Chart
from mrsa_jax.plotting.styles import look
from mrsa_jax.study._cite import papers_behind
from mrsa_jax.study._svg import drawn
from mrsa_watch._base.html import Markup, counted, settings_rows, shown, tidy

# ---- Charts as SVG: colours of the series, the legend that switches them, hover
# values, drawing.
#
# The legend's boxes hide lines by style alone, without a script; the script adds the
# values under
# the pointer, or under the cursor that the arrow keys move.

PAPER = {"light": "#ffffff", "dark": "#16181c"}
"""What a page is drawn on."""

# contrast of a line; the palette itself has 2.2 on white
_LEAST = {"light": 2.0, "dark": 4.5}
_WIDTH = 2.2  # of a line, as the style has it


@functools.cache
def asset(name: str) -> str:
    """Return a style sheet or a script that pages carry inside.

    Args:
        name: A file of `study/assets`. Scripts only ever add text as text.
    """
    return (resources.files("mrsa_jax.study") / "assets" / name).read_text(
        encoding="utf-8"
    )


@functools.cache
def text_of(name: str) -> str:
    """Return what pages say as it is, by its name in `words.toml`."""
    return str(tomllib.loads(asset("words.toml"))[name])


class Series(NamedTuple):
    """What one line of the legend stands for.

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
    return Markup(f'<span class="badge {kind}">{tidy(word)}</span>')


def places(series: Iterable[Series]) -> dict[str, int]:
    """Return the place of each series in the legend, by its label."""
    return {one.label: place for place, one in enumerate(series)}


def colours(series: Sequence[Series]) -> str:
    """Return the style of all series.

    Colours by day and by night, dashes, and what is hidden.

    Args:
        series: In the order of the legend.
    """
    night, rules = [], []
    for place, one in enumerate(series):
        night.append(f".s{place} {{ --c: {seen_on(_look(one, place)[0], 'dark')}; }}")
        hidden = f"body:has(#k{place}:not(:checked))"
        rules.append(
            f"{hidden} .plot .s{place} {{ display: none; }} "
            f"{hidden} .keys .s{place} "
            f"{{ opacity: .7; text-decoration: line-through; }}"
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
        switch = f'<input type="checkbox" id="k{place}" checked=""/>' * (
            len(series) > 1
        )
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
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return how far two colours stand apart, from 1 to 21, by WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def seen_on(colour: str, theme: str, least: float | None = None) -> str:
    """Return a colour that a line can have on a page.

    The same, or as much lighter or darker.

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


# ---- The page that every report is: one HTML file that needs no other file.

_MOST_ROWS = 400
_TALL = 25  # rows of a table that scrolls inside the page
# of a picture's pixels: its smallest text has 11, and 16, screen pixels
_READ, _MOST = 0.62, 0.9

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: Its heading, as plain text.
        content: Its HTML.
    """

    title: str
    content: str

    @property
    def anchor(self) -> str:
        """The name that links jump to."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def page(
    title: str,
    lead: Sequence[str],
    sections: Sequence[Section],
    *,
    series: Sequence[Series] = (),
    style: str = "",
) -> str:
    """Return a whole page.

    Args:
        title: Its heading and title.
        lead: Short lines below the heading.
        sections: Its parts, in reading order; those without content are left out.
        series: What is drawn on it, in the order of its legend.
        style: More of its style sheet.
    """
    kept = [section for section in sections if section.content]
    links = "".join(f'<li><a href="#{s.anchor}">{tidy(s.title)}</a></li>' for s in kept)
    body = "".join(
        f'<section aria-labelledby="{s.anchor}"><h2 '
        f'id="{s.anchor}">{tidy(s.title)}</h2>'
        f"{s.content}</section>\n"
        for s in kept
    )
    lines = "".join(f'<p class="lead">{tidy(line)}</p>' for line in lead if line)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{tidy(title)}</title><style>"
        f"\n{asset('report.css')}\n{asset('chart.css')}"
        f"{colours(series)}{style}</style></head>\n<body>"
        f"<header><h1>{tidy(title)}</h1>{lines}</header>\n"
        f'<nav aria-label="Sections" tabindex="0"><ul>{links}</ul></nav>\n'
        f"<main>{body}</main>"
        + f"<script>\n{asset('chart.js')}</script>" * ('class="plot"' in body)
        + "</body></html>\n"
    )


def paragraphs(texts: Iterable[str]) -> str:
    """Return sentences, a paragraph each."""
    return "".join(f"<p>{tidy(text)}</p>" for text in texts)


def data_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    caption: str,
    *,
    most: int = _MOST_ROWS,
    where: str = "",
) -> str:
    """Return a table that scrolls inside the page where it is too wide for it.

    Args:
        headings: Of the columns.
        rows: Cells as text or `Markup`; columns of numbers stand to the right.
        caption: What it shows.
        most: Rows that are shown.
        where: Where the rest is, if there are more.
    """
    texts = [[str(row[i]) for row in rows] for i in range(len(headings))]
    is_text = [not all(map(_NUMBER.fullmatch, column)) for column in texts]
    is_long = [any(len(text) > 40 for text in column) for column in texts]
    css = [
        " ".join(["text"] * words + ["long"] * long)
        for words, long in zip(is_text, is_long, strict=True)
    ]
    head = "".join(
        f'<th scope="col"{_css(kind)}>{tidy(heading)}</th>'
        for heading, kind in zip(headings, css, strict=True)
    )
    lines = []
    for row in rows[:most]:
        first = f'<th scope="row"{_css(css[0])}>{tidy(row[0])}</th>'
        cells = zip(row[1:], css[1:], strict=True)
        lines.append(
            first + "".join(f"<td{_css(k)}>{tidy(cell)}</td>" for cell, k in cells)
        )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    left = len(rows) - most
    rest = f'<p class="note">{left} more rows{" in " + where if where else ""}.</p>'
    kind = "wide tall" if len(lines) > _TALL else "wide"
    return (
        f'<div class="{kind}" tabindex="0" role="region" '
        f'aria-label="{tidy(caption)}"><table>'
        f"<caption>{tidy(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>" + rest * (left > 0)
    )


def _css(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


_NUMBER = re.compile(
    r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[%±/].*)?|-|–|nan|none|inf", re.IGNORECASE
)


def figures_section(
    pictures: Mapping[str, bytes], captions: Mapping[str, str]
) -> Section:
    """Return figures side by side, by name as PNG.

    What one shows is its name, or its caption.
    """
    shown_ones = "".join(
        figure(captions.get(name, name.replace("_", " ").capitalize()), png)
        for name, png in pictures.items()
    )
    return Section(
        "Pictures", f'<div class="figures">{shown_ones}</div>' if pictures else ""
    )


def charts_section(
    charts: Mapping[str, Chart], series: Sequence[Series], title: str = "Figures"
) -> Section:
    """Return charts side by side, below the legend in short."""
    order = places(series)
    figures = "".join(drawn(chart, order) for chart in charts.values())
    content = f'{keys(series)}<div class="figures">{figures}</div>'
    return Section(title, content if figures else "")


def verdicts(told: Iterable[tuple[str, str, str]]) -> str:
    """Return verdicts, a line each: the badge's kind and word, and what it is about."""
    return "".join(
        f'<p class="verdict">{badge(kind, word)} {tidy(words)}</p>'
        for kind, word, words in told
    )


def opening(charts: Sequence[Chart], series: Sequence[Series]) -> str:
    """Return what a page opens with.

    One large chart, and next to it a second one, if any.
    """
    order = places(series)
    figures = [drawn(chart, order, is_large=True) for chart in charts]
    kind = "opening two" if len(figures) > 1 else "opening"
    return f'<div class="{kind}">{"".join(figures)}</div>' if any(figures) else ""


def figure(caption: str, png: bytes) -> str:
    """Return one figure with its picture inside."""
    width, height = struct.unpack(">II", png[16:24]) if len(png) >= 24 else (0, 0)
    picture = base64.b64encode(png).decode()
    sizes = f"--least: {_READ * width:.0f}px; --most: {_MOST * width:.0f}px"
    return (
        f'<figure><div class="picture" tabindex="0"><img alt="{tidy(caption)}" '
        f'width="{width}" '
        f'height="{height}" style="{sizes}" '
        f'src="data:image/png;base64,{picture}"></div>'
        f"<figcaption>{tidy(caption)}</figcaption></figure>"
    )


_HIDDEN = ("json", "out", "overwrite", "resume")  # what one call asked of its output


def settings_section(
    values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Section:
    """Return settings as tables, a table for each section, changed values marked in words.

    Args:
        values: Nested settings.
        defaults: The same with the defaults; None where they are not known.
    """
    kept, known = (
        {name: value for name, value in own.items() if name not in _HIDDEN}
        for own in (values, defaults or {})
    )
    parts, count = [], 0
    for section, rows in settings_rows(kept, known):
        lines = []
        for name, value, default, is_changed in rows:
            text = tidy(shown(value, 400))
            if is_changed:
                count += 1
                text = (
                    f'<span class="changed">{text}</span> <span class="note">changed; '
                    f"default {tidy(shown(default, 200))}</span>"
                )
            lines.append(f'<tr><th scope="row">{tidy(name)}</th><td>{text}</td></tr>')
        heading = tidy(section or "general")
        parts.append(
            f'<div><h3>{heading}</h3><table aria-label="Settings: {heading}">'
            f"<tbody>{''.join(lines)}</tbody></table></div>"
        )
    changes = "All settings have their defaults."
    if count:
        changes = (
            f"{counted(count, 'setting')} changed from the default, in bold and marked."
        )
    words = "" if defaults is None else f'<p class="note">{changes}</p>'
    return Section("Settings", f'{words}<div class="settings">{"".join(parts)}</div>')


_PROVENANCE = ("command", "swept", "seed", "config_hash", "created", "commit", "device", "python",
               "schema", "is_complete")  # fmt: skip


def provenance_section(manifest: Mapping[str, Any]) -> Section:
    """Return what is needed to repeat the study.

    Seed, hash, commit, versions, machine, time.
    """
    own = {
        name: manifest[name] for name in _PROVENANCE if manifest.get(name) is not None
    }
    if "device" in own:  # "cpu cpu" says it twice
        own["device"] = " ".join(dict.fromkeys(str(own["device"]).split()))
    rows = [(name.replace("_", " "), value) for name, value in own.items()]
    versions = manifest.get("versions", {})
    rows += [("versions", shown(versions, 1000).replace(": ", " "))] if versions else []
    known = {*_PROVENANCE, "versions", "config", "axes"}
    rest = {name: value for name, value in manifest.items() if name not in known}
    lines = "".join(
        f'<tr><th scope="row">{tidy(name)}</th><td>{tidy(value)}</td></tr>'
        for name, value in rows
    )
    more = ""
    if rest:
        text = json.dumps(rest, indent=2, default=str)
        more = f"<details><summary>More</summary><pre>{tidy(text)}</pre></details>"
    table = f'<table aria-label="Provenance"><tbody>{lines}</tbody></table>'
    return Section("Provenance", f'<div class="settings">{table}</div>{more}')


def papers_section(spec: Any) -> Section:
    """Return the papers behind a study, each with what of it they stand for, and BibTeX."""
    found = papers_behind(spec)
    items = []
    for paper, why in found:
        text = tidy(paper.reference)
        if paper.link:
            text += (
                f' <a href="{tidy(paper.link)}">{tidy(paper.link.split("//")[1])}</a>'
            )
        items.append(f'<li>{text} <span class="note">For: {tidy(why)}.</span></li>')
    bibtex = "\n\n".join(paper.bibtex for paper, _ in found)
    return Section(
        "Papers",
        f"<ul>{''.join(items)}</ul><details><summary>BibTeX of these papers</summary>"
        f'<pre tabindex="0">{tidy(bibtex)}</pre></details>',
    )
