"""Charts as SVG.

What is drawn is what was measured, nothing hostile gets out, and it stays small.
The oracle is a small reader of what is drawn, written apart from the writer: it turns
the drawing back into values.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from mrsa_jax.plotting.chart import Chart, Line
from mrsa_jax.study.publishing._series import (
    Series,
    badge,
    colours,
    contrast,
    keys,
    legend,
    places,
    seen_on,
)
from mrsa_jax.study.publishing._svg import Scale, drawn
from mrsa_watch._base.html import number

EVIL = "</title></svg><script>alert('x')</script>\"'\u202egnp"


def made(*lines: Line, **look: object) -> ET.Element:
    chart = Chart("title", "caption", lines, y_label="clients", **look)  # type: ignore[arg-type]
    series = [Series(label) for label in chart.series]
    return ET.fromstring(drawn(chart, places(series)))


def read_back(path: str) -> list[list[tuple[float, float]]]:
    """Return the corners of a drawn line, a list for each part of it."""
    parts: list[list[tuple[float, float]]] = []
    for kind, rest in re.findall(r"([MHV])([^MHVZ]*)", path):
        values = [float(text) for text in rest.split()]
        if kind == "M":
            parts.append(list(zip(values[::2], values[1::2], strict=True)))
        elif kind == "H":
            parts[-1].append((values[0], parts[-1][-1][1]))
        else:
            parts[-1].append((parts[-1][-1][0], values[0]))
    return parts


def paths(figure: ET.Element) -> list[str]:
    found = figure.findall(".//g/g/path") + figure.findall(".//g/path")
    return [
        str(one.get("d")) for one in dict.fromkeys(found) if one.get("class") != "band"
    ]


@pytest.mark.parametrize("kind", ["line", "step"])
def test_what_is_drawn_reads_back_as_what_was_measured(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = np.arange(1.0, 41.0)
    y = np.where(rng.random(40) < 0.7, rng.integers(0, 4, 40), np.nan) + rng.random()
    (path,) = paths(made(Line("a", x, y, kind=kind)))
    parts = read_back(path)
    runs = np.split(np.arange(40), np.flatnonzero(np.diff(np.isnan(y))) + 1)
    runs = [run for run in runs if not np.isnan(y[run[0]])]
    assert len(parts) == len(runs)
    for part, run in zip(parts, runs, strict=True):
        ends = [part[0][0], part[-1][0]]
        assert ends == [x[run[0]], x[run[-1]]]
        for k in run:  # at each place the line has the value, or jumps to it
            if kind == "step":
                found = [b for a, b in part if a <= x[k]][-1]
            else:
                found = np.interp(x[k], *zip(*part, strict=True))
            assert found == pytest.approx(y[k], rel=1e-5)


def test_a_logarithmic_axis_leaves_out_what_it_has_not() -> None:
    figure = made(Line("a", [1, 2, 3, 4], [100.0, 0.0, -1.0, 0.01]), is_log_y=True)
    (first,), (last,) = (dict.fromkeys(part) for part in read_back(paths(figure)[0]))
    assert (first, last) == ((1.0, 2.0), (4.0, -2.0))
    assert figure.find(".//div[@data-log='y']") is not None


def test_nothing_to_draw_draws_nothing() -> None:
    for values in ([], [np.nan, np.inf]):
        chart = Chart("t", "c", [Line("a", np.arange(len(values)), np.array(values))])
        assert drawn(chart, {"a": 0}) == ""
    assert drawn(Chart("t", "c", []), {}) == ""
    zero = made(Line("a", [1.0, 2.0], [0.0, 0.0]), empty="nobody")
    assert "nobody" in "".join(zero.itertext())


def test_long_lines_stay_small_and_keep_their_extremes() -> None:
    rng = np.random.default_rng(1)
    y = rng.random(100_000)
    y[77_777], y[55_555] = 9.0, -9.0
    figure = made(Line("a", np.arange(1e5), y, low=y - 1, high=y + 1))
    (part,) = read_back(paths(figure)[0])
    values = [b for _, b in part]
    assert (max(values), min(values)) == (9.0, -9.0)
    assert (part[0][0], part[-1][0]) == (0.0, 99_999.0)
    assert len(ET.tostring(figure)) < 40_000


def test_hostile_names_are_text_everywhere() -> None:
    lines = [
        Line(EVIL, [1.0, 2.0], [1.0, 2.0], EVIL),
        Line("b", [1.0], [2.0], kind="marks", words=[EVIL]),
    ]
    chart = Chart(
        EVIL,
        EVIL,
        lines,
        EVIL,
        EVIL,
        rules=((1.0, EVIL),),
        ticks=[(1.0, EVIL)],
        empty=EVIL,
    )
    series = [Series(EVIL, ("bad", EVIL), EVIL), Series("b")]
    for text in (drawn(chart, places(series)), legend(series, EVIL), keys(series)):
        root = ET.fromstring(text)  # still well-formed
        assert {one.tag for one in root.iter()}.isdisjoint({"script", "iframe"})
        assert "\u202e" not in text
        assert "alert('x')" not in text
    # nothing of a name is in a style
    assert "alert" not in colours(series)
    assert "alert('" not in badge("good", EVIL)


def test_lines_stand_out_by_day_and_by_night() -> None:
    """Of the scheme's palette the lightest is 2.2 to 1 on white.

    By night all are lightened.
    """
    paper = {"light": "#ffffff", "dark": "#16181c"}
    for colour in ("#000000", "#ffffff", "#56B4E9", "#004B3C", "#E69F00"):
        assert contrast(seen_on(colour, "light"), paper["light"]) >= 2
        assert contrast(seen_on(colour, "dark"), paper["dark"]) >= 4.5
    assert seen_on("red;}body{display:none", "light") == "currentColor"
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.smoke
def test_the_legend_switches_each_series_and_one_alone_has_no_switch() -> None:
    series = [Series(f"s {k}") for k in range(3)]
    found = legend(series, "x")
    assert re.findall(r'id="k(\d)"', found) == ["0", "1", "2"]
    assert re.findall(r'for="k(\d)"', keys(series)) == ["0", "1", "2"]
    style = colours(series)
    assert all(f"body:has(#k{k}:not(:checked)) .plot .s{k}" in style for k in range(3))
    assert "checkbox" not in legend(series[:1], "x")
    assert keys(series[:1]) == ""


@pytest.mark.parametrize("is_log", [False, True])
def test_axes_hold_their_values_between_few_round_ticks(is_log: bool) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        low, high = np.sort(10 ** rng.uniform(-6, 6, 2))
        if not is_log and rng.random() < 0.5:
            low = -low
        for look in (
            {},
            {"is_tight": True},
            {"is_padded": True},
            {"is_whole": not is_log},
        ):
            scale = Scale.of(float(low), float(high), is_log=is_log, **look)
            ends = [scale.place(float(low)), scale.place(float(high))]
            assert -1e-9 <= ends[0] < ends[1] <= 1 + 1e-9
            assert len(scale.ticks) <= 10
            assert all(-1e-9 <= scale.place(tick) <= 1 + 1e-9 for tick in scale.ticks)
            if look.get("is_whole"):
                assert all(tick == int(tick) for tick in scale.ticks)
            leads = {f"{tick:.3e}".lstrip("-")[0] for tick in scale.ticks if tick}
            assert is_log is False or leads <= set("1234568")


def test_numbers_have_sensible_digits() -> None:
    rng = np.random.default_rng(3)
    for value in 10 ** rng.uniform(-12, 14, 500) * rng.choice([-1, 1], 500):
        text = number(value)
        assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4)
        assert len(text) <= 20
    assert [number(v) for v in (3, np.int64(3), np.float32(0.5), True)] == [
        "3",
        "3",
        "0.5",
        "1",
    ]
    assert [number(v) for v in (0.09996, 0.99999, 9.99999, 9999.99)] == [
        "0.09996",
        "1",
        "10",
        "10,000",
    ]
