"""The sliders of `mj.explore` in a real browser, which asks the real widget for what it shows."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Page, browser, drivers

import mrsa_jax as mj
from mrsa_jax.study.publishing._assets import asset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        drivers() is None, reason="needs Chromium and chromedriver on the PATH"
    ),
]

# What anywidget hands to `render`: traits to read and set, and who listens to their
# changes.
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>explore</title>
<style>CSS</style></head><body><div id="place"></div><script>
const traits = {}, heard = {}; let due = [];
const model = { get: name => traits[name], on: (event, call) => { heard[event] = call; },
                set: (name, value) => { traits[name] = value; },
                save_changes: () => { due.push(traits.asked); } };
function put(changes) {
  Object.assign(traits, changes);
  Object.keys(changes).forEach(name => (heard['change:' + name] || (() => 0))());
}
function start(source) {
  import('data:text/javascript,' + encodeURIComponent(source)).then(
    own => { own.default.render({ model, el: document.getElementById('place') });
             document.body.dataset.ready = 'yes'; });
}
</script></body></html>"""
TRAITS = ("controls", "values", "html", "code", "shown")


class Live:
    """A page with a widget.

    What the browser asks goes to it, what it answers comes back.
    """

    def __init__(self, page: Page, folder: pathlib.Path, explorer: Any) -> None:
        self.page, self.panel = page, explorer.widget
        path = folder / "explore.html"
        path.write_text(PAGE.replace("CSS", asset("explore.css")))
        page.open(path)
        self.put(*TRAITS)
        page.run("start(arguments[0])", asset("explore.js"))
        end = time.monotonic() + 20
        while page.run("return document.body.dataset.ready") != "yes":
            assert time.monotonic() < end

    def put(self, *names: str) -> None:
        self.page.run(
            "put(arguments[0])", {name: getattr(self.panel, name) for name in names}
        )

    def answer(self) -> int:
        """Answer all that the browser asks, and return how often it has asked."""
        asked = 0
        while found := self.page.run("const own = due; due = []; return own"):
            for one in found:
                self.panel.asked = one
                self.put(*TRAITS[1:])
                asked += 1
        return asked

    def move(self, name: str, value: Any) -> None:
        self.page.run(
            "const own = document.querySelector(`[name=${arguments[0]}]`);"
            "own.value = arguments[1]; own.dispatchEvent(new Event('input'));",
            name,
            value,
        )

    def text(self) -> str:
        return str(self.page.run("return document.getElementById('place').textContent"))


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    with browser() as own:
        yield own


def test_sliders_show_what_the_package_finds(
    screen: Page, tmp_path: pathlib.Path
) -> None:
    explorer = mj.explore(24, 6, 3, rounds=60)
    live = Live(screen, tmp_path, explorer)
    assert "0 of 24" in live.text()
    live.move("privacy_target", 1)
    assert live.answer() == 1
    assert explorer.values["privacy_target"] == 1
    history = mj.selection.rollout(
        0, mj.selection.uniform(24, 6), mj.availability.independent(0.1), 60
    )
    exposed = int((mj.privacy.first_exposure(history) >= 0).sum())
    assert f"{exposed} of 24" in live.text()
    assert "selector = mj.selection.uniform(24, 6)" in live.text()
    live.move("cohort_size", 7)
    # while the first is not answered: only the last is asked
    live.move("privacy_target", 3)
    live.move("privacy_target", 4)
    assert live.answer() == 2
    fields = {
        own.get_attribute("name"): own.get_attribute("value")
        for own in screen.all("input, select")
    }
    assert (fields["cohort_size"], fields["privacy_target"]) == ("4", "4")
    before = live.text()
    screen.run(
        "[...document.querySelectorAll('button')].find(b => b.textContent === "
        "'another seed').click()"
    )
    assert live.answer() == 1
    assert explorer.values["seed"] == 1
    assert live.text() != before
    assert screen.faults() == []


def test_columns_of_a_sweep_are_chosen(screen: Page, tmp_path: pathlib.Path) -> None:
    settings = {
        "command": "simulate",
        "rounds": 20,
        "trials": 2,
        "schemes": ["uniform"],
        "grid": {"population.dropout_rates": [[0.1], [0.3]], "seed": [0, 1]},
    }
    swept = mj.study.sweep({**settings, "out": str(tmp_path / "sweep")})
    live = Live(screen, tmp_path, swept.mrsa.explore())
    live.move("y", "hidden_among_worst")
    assert live.answer() == 1
    assert "hidden among" in screen.all("h3")[0].text.lower()
    live.move("facet", "seed")
    assert live.answer() == 1
    assert [own.text for own in screen.all("h3")] == ["seed 0", "seed 1"]
    assert screen.faults() == []


def test_picked_points_show_their_curves(screen: Page, tmp_path: pathlib.Path) -> None:
    settings = {
        "command": "simulate",
        "rounds": 20,
        "trials": 3,
        "schemes": ["uniform"],
        "trajectories": True,
        "out": str(tmp_path / "sweep"),
        "grid": {"population.dropout_rates": [[0.1], [0.3]], "seed": [0, 1]},
    }
    swept = mj.study.sweep(settings)
    screen.open(swept.mrsa.explore().save(tmp_path / "page.html"))
    seen = """return [...document.querySelectorAll('.picked figure')].map(one => [
        one.querySelector('h3').textContent,
        [...one.querySelectorAll('g[data-i]')].filter(g => getComputedStyle(g).display !== 'none')
            .map(g => [g.dataset.i, g.querySelector('path').getAttribute('d')])])"""
    assert {len(curves) for _, curves in screen.run(seen)} == {0}
    for row in (1, 2):
        screen.run(
            "document.querySelector(`tr[data-i='${arguments[0]}']`).click()", row
        )
    found = dict(screen.run(seen))
    assert {tuple(i for i, _ in curves) for curves in found.values()} == {("1", "2")}
    # the last height of each curve is what the table says of its row
    last = {
        i: float(d.replace("H", " ").replace("V", " ").replace("M", " ").split()[-2])
        for i, d in found["F"]
    }
    table = swept.mrsa.table()
    assert last == pytest.approx(
        {str(i): table["fairness_gap"][i] for i in (1, 2)}, rel=1e-3
    )
    screen.run("document.querySelector(`tr[data-i='1']`).click()")
    assert {tuple(i for i, _ in curves) for _, curves in screen.run(seen)} == {("2",)}
    assert screen.faults() == []
