"""A figure's SVG inside a page: what is kept of it, what is refused, and its colours."""

from __future__ import annotations

import pathlib
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from mrsa_jax import plotting
from mrsa_papers._drawing import drawing_colours, read_drawing

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
GOOD = HEAD + 'viewBox="0 0 200 100"><text style="font: 10px sans">a</text>{}</svg>'


def drawn(path: pathlib.Path, text: str) -> str | None:
    path.write_text(text, encoding="utf-8")
    return read_drawing(path, "own")


@pytest.mark.smoke("text7")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml <",
        "<html/>",
        GOOD.format(
            '<image xlink:href="data:image/png;base64,AAAA" width="3" height="3"/>'
        ),
        # text that is paths
        HEAD + 'viewBox="0 0 200 100"><path d="M 0 0 L 1 1"/></svg>',
        HEAD + 'viewBox="0 0 200"><text>a</text></svg>',
        HEAD + 'viewBox="0 0 x 100"><text>a</text></svg>',
        HEAD + 'viewBox="0 0 -200 100"><text>a</text></svg>',
        HEAD + 'viewBox="0 0 1e9 100"><text>a</text></svg>',
        HEAD + "><text>a</text></svg>",
        '<!DOCTYPE svg [<!ENTITY a "b">]>' + GOOD.format("<text>&a;</text>"),
        GOOD.format("<g>" * 60 + "</g>" * 60),
        GOOD.format("<path d='M 0 0'/>" * 70_000),  # more than a page should hold
    ],
)
def test_what_the_picture_beside_it_shows_better(
    tmp_path: pathlib.Path, text: str
) -> None:
    assert drawn(tmp_path / "a.svg", text) is None


def test_what_is_no_file(tmp_path: pathlib.Path) -> None:
    assert read_drawing(tmp_path / "none.svg", "x") is None
    (tmp_path / "a.svg").write_bytes(b"\xff\xfe\x00<")
    assert read_drawing(tmp_path / "a.svg", "x") is None


def test_nothing_that_runs_or_fetches_is_kept(tmp_path: pathlib.Path) -> None:
    evil = (
        "<script>alert(1)</script><foreignObject><body "
        'onload="alert(2)"/></foreignObject>'
        "<style>* { background: url(http://a.b) }</style><a "
        'xlink:href="javascript:alert(3)">'
        '<path d="M 0 0"/></a><path d="M 0 0&quot; onclick=&quot;x" id="a b"/>'
        '<path onmouseover="alert(4)" d="M 1 2 L 3 4" style="fill: url(http://a.b); '
        'stroke: #0072b2; stroke-width: 2; filter: url(#x); opacity: expression(1)"/>'
        '<use xlink:href="http://a.b/c.svg#d"/><use xlink:href="#m1" x="5" onload="x"/>'
        '<defs><path id="m1" d="M 0 0 L 1 1"/><clipPath id="p1"><rect width="9" '
        'height="9"/>'
        '</clipPath></defs><path d="M 5 5 L 6 6" clip-path="url(#p1)"/>'
        '<path d="M 7 7" clip-path="url(http://a.b#p)" transform="evil(1)"/>'
        "<text>&lt;script&gt;alert(5)&lt;/script&gt; 4\u202f060\u202e</text>"
        "<animate/><set/>"
    )
    own = drawn(tmp_path / "a.svg", GOOD.format(evil))
    assert own is not None
    root = ElementTree.fromstring(own)  # well-formed, in which every piece was checked
    known = {"svg", "g", "path", "defs", "clipPath", "rect", "use", "text"}
    assert {one.tag for one in root.iter()} <= known
    names = {name for one in root.iter() for name in one.attrib}
    assert names <= {
        "viewBox",
        "style",
        "aria-hidden",
        "d",
        "x",
        "width",
        "height",
        "id",
        "href",
        "clip-path",
    }
    styles = " ".join(one.get("style", "") for one in root.iter())
    for word in ("url", "http", "filter", "expression", "alert"):
        assert word not in styles
    assert "stroke:var(--c0072b2);stroke-width:2" in styles
    assert [one.get("href") for one in root.iter("use")] == [None, "#own-m1"]
    assert [one.get("clip-path") for one in root.iter() if one.get("clip-path")] == [
        "url(#own-p1)"
    ]
    assert {one.get("id") for one in root.iter() if one.get("id")} == {
        "own-m1",
        "own-p1",
    }
    assert [one.text for one in root.iter("text")][1] == (
        "<script>alert(5)</script> 4 060\\u202e"
    )


@pytest.mark.usefixtures("drawn_figures")
def test_a_figure_of_matplotlib_keeps_all_its_text_and_curves(
    tmp_path: pathlib.Path,
) -> None:
    """Read back from the page.

    Texts, the curve's corners in the file's own units, and its size.
    """

    def draw(ax: object) -> None:
        ax.plot([1, 10, 100], [3, 1, 2], color="#D55E00", label="curve & co")  # type: ignore[attr-defined]
        ax.set(xscale="log", xlabel="along", ylabel="up")  # type: ignore[attr-defined]
        ax.legend()  # type: ignore[attr-defined]

    (path,) = plotting.save_figure(draw, tmp_path / "a", formats=["svg"])
    own = read_drawing(path, "own")
    assert own is not None
    theirs = ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    said = [
        "".join("".join(one.itertext()).split()) for one in theirs.iter(f"{space}text")
    ]
    page = ElementTree.fromstring(own)
    assert [
        "".join("".join(one.itertext()).split()) for one in page.iter("text")
    ] == said
    assert {"100", "102", "curve&co", "along", "up"} <= set(said)
    curves = [
        next(
            one.get("d", "")
            for one in root.iter(tag)
            if "d55e00" in one.get("style", "")
        )
        for root, tag in ((theirs, f"{space}path"), (page, "path"))
    ]
    before, after = (np.array(re.findall(r"[\d.]+", d), float) for d in curves)
    np.testing.assert_allclose(after, before, atol=0.01)
    # exponents of the axis are as large as the smallest text beside them, and that has
    # 11 px
    sizes = {float(size) for size in re.findall(r"font-size:([\d.]+)px", own)}
    width = float(page.get("viewBox", "").split()[2])
    least = float(re.findall(r"min-width: (\d+)px", own)[0])
    assert min(sizes) == 8.0
    assert least * min(sizes) / width == pytest.approx(11, abs=0.02)


def test_colours_turn_with_the_page() -> None:
    body = "".join(
        f"var(--{name})"
        for name in ("cffffff", "c000000", "t000000", "cdddddd", "c0072b2", "t56b4e9")
    )
    style = drawing_colours(body)
    day, night = re.findall(r"\.drawn \{ (--[^}]*)\}", style)
    by_day, by_night = (
        dict(re.findall(r"--(\w+): ([^;]+);", part)) for part in (day, night)
    )
    assert by_day["c000000"] == "#000000"
    assert by_day["c0072b2"] == "#0072b2"
    assert by_day["cffffff"] == by_night["cffffff"] == "var(--paper)"

    def light(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [
            p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        ]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    def apart(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for colours, paper in ((by_day, "#ffffff"), (by_night, "#16181c")):
        assert (
            min(apart(colours[name], paper) for name in ("t000000", "t56b4e9")) >= 4.5
        )
        assert apart(colours["c0072b2"], paper) >= 3
    assert drawing_colours("no drawing") == ""
