"""Every page in a real browser.

It fits, is readable, fetches nothing, and its curves answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
from browsing import Page, browser, drivers

from mrsa_jax import study
from mrsa_jax.cli import main
from mrsa_jax.plotting.chart import Chart, Line
from mrsa_jax.study.publishing._page import Section, charts_section, opening, page
from mrsa_jax.study.publishing._series import Series, legend

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        drivers() is None, reason="needs Chromium and chromedriver on the PATH"
    ),
]

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\u202egnp"
SMALL = ["--num-clients", "12", "--cohort-size", "4"]
LEARN = ["--dataset", "digits", "--model", "logistic"]
SWEEP = """command = "{command}"
out = "{out}"
{more}
"""
SWEEPS = {
    "sweep": ("simulate", 'rounds = 12\ntrials = 2\n[population]\nnum_clients = 12\ncohort_size = 4'
              '\n[grid]\nscheme = ["uniform", "batch_partitioning:2"]\nseed = [0, 1]\n'
              '"population.dropout_rates" = [[0.1], [0.3]]'),
    "secagg": ("secagg", 'trials = 200\nnum_clients = 30\ngraph = "erdos_renyi"\n'
               'connection_probability = 0.7\n[grid]\nstep_dropout_rate = [0.01, 0.05, '
               '0.1]\n'
               "threshold = [16, 20]"),
}  # fmt: skip
COMMANDS = {
    "demo": [
        "demo",
        *SMALL,
        *LEARN,
        "--rounds",
        "12",
        "--evaluate-every",
        "4",
        "--schemes",
        "uniform",
        "partition",
        "batch_partitioning:2",
    ],
    "simulate": [
        "simulate",
        *SMALL,
        "--rounds",
        "20",
        "--trials",
        "3",
        "--schemes",
        "uniform",
        "weighted",
        "batch_partitioning:2",
    ],
    "train": [
        "train",
        *SMALL,
        *LEARN,
        "--rounds",
        "8",
        "--evaluate-every",
        "2",
        "--scheme",
        "batch_partitioning:2",
    ],
    "noise": [
        "train",
        *SMALL,
        *LEARN,
        "--rounds",
        "6",
        "--evaluate-every",
        "2",
        "--scheme",
        "batch_partitioning:2",
        "--noise-multiplier",
        "0.5",
        "--clip-norm",
        "1",
    ],
    "attack": ["attack", "least-squares", *SMALL, "--rounds", "20"],
    "distinguish": [
        "attack",
        "distinguish",
        *SMALL,
        "--rounds",
        "6",
        "--others",
        "gaussian",
        "--trials",
        "300",
    ],
    "images": [
        "attack",
        "model-inversion",
        "--dataset",
        "digits",
        "--num-clients",
        "4",
        "--iterations",
        "5",
    ],
    "advise": [
        "advise",
        "--num-clients",
        "12",
        "--cohort-size",
        "4",
        "--dropout-rates",
        "0.2",
        "--rounds",
        "20",
        "--trials",
        "2",
    ],
    "reproduce": [
        "reproduce",
        "multiround.fig2",
        "multiround.table1",
        "heterosag.theorem1",
        "ccesa.bandwidth",
        "--fast",
    ],
}
DISPLAYS = "return [...document.querySelectorAll('.plot .s{}')].map(e => getComputedStyle(e).display)"
PAGES = (*COMMANDS, "audit", *SWEEPS, "members", "hostile")
WITHOUT_CURVES = ("reproduce", "images")  # that answer: drawings and pictures


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Return a page of each command, of runs as small as they can be."""
    root = tmp_path_factory.mktemp("pages")

    def made(name: str, words: list[str], status: int = 0) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(words) == status, name
            assert main(["report", str(root / name)]) == 0, name

    for name, words in COMMANDS.items():
        made(name, [*words, "--out", str(root / name)])
    for name, (command, more) in SWEEPS.items():
        path = root / f"{name}.toml"
        path.write_text(SWEEP.format(command=command, out=root / name, more=more))
        made(name, ["sweep", str(path)])
    rng = np.random.default_rng(0)
    names = [EVIL.replace(",", ""), *(f"device-{k}" for k in range(11))]
    rows = [
        f'{r},"{names[c].replace(chr(34), chr(34) * 2)}"'
        for r in range(20)
        for c in rng.choice(12, 4, replace=False)
    ]
    log = root / "a <b> log.csv"
    log.write_text("\n".join(["round,client", *rows]) + "\n", encoding="utf-8")
    made(
        "audit",
        [
            "audit",
            str(log),
            "--effort",
            "0.01",
            "--fail-below",
            "2",
            "--out",
            str(root / "audit"),
        ],
        status=3,
    )
    members = [
        {"method": method, "seen": seen, "accuracy": 0.5, "auc": auc}
        for method in ("loss", EVIL)
        for seen, auc in (("plain", 0.9), ("sum of 4", 0.5), (EVIL, 0.4))
    ]
    content = {"title": EVIL, "summary": members, "scores": [], "sentences": [EVIL]}
    (root / "members").mkdir()
    (root / "members" / "scores.json").write_text(json.dumps(content))
    known = {"schema": 1, "command": "membership", "config_hash": "0", "seed": 0}
    (root / "members" / "study.json").write_text(json.dumps(known))
    study.report(root / "members")
    histories = {EVIL: np.eye(6, dtype=bool), "b" * 90: np.ones((6, 6), bool)}
    (root / "hostile").mkdir()
    study.from_histories(histories).mrsa.report(root / "hostile")
    return {name: root / name / "report.html" for name in PAGES}


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    with browser() as own:
        yield own


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_is_readable_and_asks_for_nothing(
    pages: dict[str, pathlib.Path], screen: Page, name: str, width: int, theme: str
) -> None:
    screen.open(pages[name], width, theme)
    if theme == "light":  # what is folded does not fold with the colours
        assert screen.faults() == []
    screen.run(
        "document.querySelectorAll('details').forEach(one => { one.open = true; })"
    )
    assert screen.faults() == []


def test_a_drawing_scrolls_in_its_place_on_a_small_screen_and_fits_a_large_one(
    pages: dict[str, pathlib.Path], screen: Page
) -> None:
    width = "const b = arguments[0]; return [b.scrollWidth, b.clientWidth]"
    screen.open(pages["reproduce"], 1400)
    boxes = screen.all(".drawn")
    assert len(boxes) == 3  # of four items; one is a matrix of pixels
    fitting = [
        inner <= outer for inner, outer in (screen.run(width, box) for box in boxes)
    ]
    assert sum(fitting) >= 2  # one has panels beside each other
    screen.open(pages["reproduce"], 390)
    for box in screen.all(".drawn"):
        inner, outer = screen.run(width, box)
        assert inner > outer
        screen.run("arguments[0].scrollLeft = 50", box)
        assert screen.run("return arguments[0].scrollLeft", box) == 50


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", PAGES)
def test_curves_answer_and_links_lead(
    pages: dict[str, pathlib.Path], screen: Page, name: str, width: int
) -> None:
    screen.open(pages[name], width)
    plots = screen.all(".plot")
    assert plots or name in WITHOUT_CURVES
    for plot in plots:
        words = hovered(screen, plot)
        assert re.search(r"\d", words), plot.get_attribute("aria-label")
        assert screen.run(
            "const t = arguments[0].querySelector('.tip').getBoundingClientRect();"
            "return t.left >= 0 && t.right <= innerWidth",
            plot,
        )
    links = screen.all("nav a")
    assert len(links) == len(screen.all("h2")) > 2
    for link in links:
        target = link.get_attribute("href").split("#")[1]
        screen.run("arguments[0].click()", link)
        top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
        assert screen.run("return location.hash") == f"#{target}"
        assert 0 <= screen.run(top, target) < 900
    # by the keyboard: the first curve answers the arrows
    for plot in plots[:1]:
        screen.run("arguments[0].focus()", plot)
        plot.send_keys("\ue014")  # the right arrow
        assert re.search(r"\d", plot.find_element("css selector", ".tip").text)
        plot.send_keys("\ue00c")  # escape
        assert not plot.find_elements("css selector", ".tip")


@pytest.mark.parametrize("name", ["demo", "simulate", "audit", "sweep", "hostile"])
def test_a_switch_hides_its_lines_in_all_figures(
    pages: dict[str, pathlib.Path], screen: Page, name: str
) -> None:
    screen.open(pages[name])
    switches = screen.all(".lines input")
    assert len(switches) > 1
    drawn = DISPLAYS.format(0)
    assert "none" not in screen.run(drawn)
    assert screen.run(drawn)
    switches[0].send_keys(" ")  # by the keyboard
    assert set(screen.run(drawn)) == {"none"}
    label = screen.all(".lines label")[0].text
    for plot in screen.all(".plot"):
        assert label not in hovered(screen, plot)
    keys = screen.all(".keys label")
    if keys:  # the legend's short form switches it back
        screen.run("arguments[0].click()", keys[0])
        assert "none" not in screen.run(drawn)


def hovered(screen: Page, plot: object) -> str:
    """Return what a figure says when the pointer is over its middle, and over all its marks."""
    return str(
        screen.run(
            "const p = arguments[0], r = p.getBoundingClientRect(); let said = '';"
            "const at = [[r.x + r.width / 2, r.y + r.height / 2]];"
            "for (const c of p.querySelectorAll('circle')) {"
            "  const b = c.getBoundingClientRect(); at.push([b.x + b.width / 2, b.y]); "
            "}"
            "for (const [x, y] of at) { p.dispatchEvent(new PointerEvent('pointermove',"
            "  { clientX: x, clientY: y }));"
            "  const tip = p.querySelector('.tip'); if (tip) { said += tip.textContent "
            "+ '\\n'; } }"
            "return said",
            plot,
        )
    )


def test_the_values_are_those_that_were_drawn(
    tmp_path: pathlib.Path, screen: Page
) -> None:
    """A page made by hand.

    Lines, steps, a logarithmic axis, a gap and marks, at a real pointer.
    """
    from selenium.webdriver import ActionChains

    x = np.arange(1.0, 6.0)
    chart = Chart(
        "t",
        "c",
        [
            Line("line", x, [1.0, 10.0, 100.0, 1000.0, 10_000.0], "n"),
            Line("step", x, [1.0, 2.0, 7.0, 4.0, 4.0], kind="step"),
            Line("gap", x, [5.0, 5.0, np.nan, 5.0, 5.0]),
        ],
        is_log_y=True,
        y_label="y",
    )
    marks = Chart(
        "m", "c", [Line("line", [3.0], [0.5], kind="marks", words=["just <here>"])]
    )
    series = [Series(label) for label in ("line", "step", "gap")]
    sections = [
        Section("First", opening([chart], series) + legend(series, "x")),
        charts_section({"m": marks}, series),
    ]
    path = tmp_path / "page.html"
    path.write_text(page("t", [], sections, series=series), encoding="utf-8")
    screen.open(path)
    first, second = screen.all(".plot")
    ActionChains(screen.driver).move_to_element(first).perform()
    assert first.find_element("css selector", ".tip").text.split("\n") == [
        "rounds 3",
        "line, n: 100",
        "step: 7",
    ]
    for _ in range(2):
        first.send_keys("\ue014")
    assert (
        first.find_element("css selector", ".tip").text
        == "rounds 5\nline, n: 10,000\nstep: 4\ngap: 5"
    )
    (circle,) = second.find_elements("css selector", "circle")
    ActionChains(screen.driver).move_to_element(circle).perform()
    assert second.find_element("css selector", ".tip").text == "just <here>"
    ActionChains(screen.driver).move_to_element(screen.all("h1")[0]).perform()
    assert not screen.all(".tip")
    assert screen.faults() == []


def test_without_scripts_a_page_stands_and_switches(
    pages: dict[str, pathlib.Path], screen: Page
) -> None:
    off = "Emulation.setScriptExecutionDisabled"
    screen.driver.execute_cdp_cmd(off, {"value": True})
    try:
        screen.open(pages["demo"])
        screen.all(".lines input")[0].send_keys(" ")
    finally:
        screen.driver.execute_cdp_cmd(off, {"value": False})
    assert set(screen.run(DISPLAYS.format(0))) == {"none"}
    assert "none" not in screen.run(DISPLAYS.format(1))
    # no script has run
    assert not re.search(r"\d", hovered(screen, screen.all(".plot")[0]))


BROKEN = {
    "overflow": '<div style="width: 3000px">wide</div>',
    "sticking": '<div style="overflow: hidden; width: 100%"></div>'
                '<div style="position: absolute; left: -60px; width: 50px">out</div>',
    "small": '<p style="font-size: 10.5px">tiny</p>',
    "small svg": '<svg viewBox="0 0 1000 99" width="99"><text y="50" font-size="40">a</text></svg>',
    "faint": '<p style="color: #808080; background: #fff">grey</p>',
    "faint opacity": '<p style="color: #000; background: #fff; opacity: .5">pale</p>',
    "faint svg": '<div style="background: #fff"><svg width="99" height="20">'
                 '<text y="15" fill="#999">pale</text></svg></div>',
    "console": "<script>console.error('no')</script>",
    "thrown": "<script>throw new Error('no')</script>",
    "network": '<img alt="" width="1" height="1" src="http://127.0.0.1:9/x.png">',
}  # fmt: skip
KINDS = {"sticking": "overflow", "thrown": "console"}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_page_that_breaks_a_rule_is_found(
    tmp_path: pathlib.Path, screen: Page, rule: str
) -> None:
    path = tmp_path / "broken.html"
    text = (
        '<!doctype html><meta name="viewport" content="width=device-width"><p>good</p>'
    )
    path.write_text(text)
    screen.open(path, 390)
    assert screen.faults() == []
    path.write_text(text + BROKEN[rule])
    screen.open(path, 390)
    kinds = {kind for kind, _ in screen.faults()}
    wanted = KINDS.get(rule, rule.split()[0])
    assert wanted in kinds
    # a failed request is an error in the console, too
    assert kinds <= {wanted} | ({"console"} if wanted == "network" else set())


def test_what_scrolls_in_its_own_box_sticks_out_of_nothing(
    tmp_path: pathlib.Path, screen: Page
) -> None:
    path = tmp_path / "boxed.html"
    path.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width">'
        '<div style="overflow-x: auto"><table><tr><td style="min-width: '
        '3000px">x</td></tr></table>'
    )
    screen.open(path, 390)
    assert screen.faults() == []
