"""A page as a browser shows it.

What sticks out, what is too small or too faint, what it fetches.
Contrast is WCAG 2's, computed here from the colours that the browser has worked out:
those of text, of all grounds behind it, and opacity. Nothing of the package is used.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

SMALLEST = 11.0  # px
FAINTEST = 4.5  # to 1

_MEASURE = """
const found = [], root = document.documentElement, wide = root.clientWidth;
if (root.scrollWidth > wide) {
  found.push(['overflow', 'the page is ' + root.scrollWidth + ' wide, of ' + wide]);
}
function boxed(el) {
  for (let p = el.parentElement; p && p !== document.body; p = p.parentElement) {
    if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(p).overflowX)
        && !(p instanceof SVGElement)) { return true; }
  }
  return false;
}
function named(el) {
  return el.tagName + '.' + (el.getAttribute('class') || '') + ' ' +
         (el.textContent || '').trim().slice(0, 40);
}
for (const el of document.querySelectorAll('body *')) {
  const r = el.getBoundingClientRect();
  if (r.width && r.height && (r.right > wide + 1 || r.left < -1) && !boxed(el)) {
    found.push(['overflow', named(el) + ' from ' + r.left + ' to ' + r.right]);
  }
}
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
function rgba(text) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = '#000'; canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data;
  return [d[0], d[1], d[2], d[3] / 255];
}
function over(top, below) {
  return [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);
}
function luminance(c) {
  const [r, g, b] = c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const night = matchMedia('(prefers-color-scheme: dark)').matches;
function ground(el) {
  const layers = [];
  for (let p = el; p; p = p.parentElement) {
    const c = rgba(getComputedStyle(p).backgroundColor);
    if (c[3] > 0) { layers.push(c); if (c[3] === 1) { break; } }
  }
  let under = night ? [18, 18, 18, 1] : [255, 255, 255, 1];
  for (const c of layers.reverse()) { under = over(c, under); }
  return under;
}
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let texts = 0;
for (let node = walk.nextNode(); node; node = walk.nextNode()) {
  const el = node.parentElement, words = node.data.trim();
  if (!words || ['SCRIPT', 'STYLE', 'TITLE', 'title'].includes(el.tagName)) { continue; }
  if (!el.checkVisibility({ visibilityProperty: true })) { continue; }
  const style = getComputedStyle(el), inSvg = el instanceof SVGElement;
  texts += 1;
  let size = parseFloat(style.fontSize);
  if (inSvg) { const m = el.getScreenCTM(); size *= Math.hypot(m.a, m.b); }
  if (size < SMALLEST - 0.01) { found.push(['small', size.toFixed(1) + ' px: ' + named(el)]); }
  const under = ground(el), ink = rgba(inSvg ? style.fill : style.color);
  for (let p = el; p; p = p.parentElement) { ink[3] *= parseFloat(getComputedStyle(p).opacity); }
  const pair = [luminance(over(ink, under)), luminance(under)].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < FAINTEST) { found.push(['faint', ratio.toFixed(2) + ': ' + named(el)]); }
}
return [texts, found];
"""


def drivers() -> tuple[str, str] | None:
    """Return where Chromium and its driver are; None if one of them is missing."""
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None
    )
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Page:
    """A browser with a page open."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.url = ""

    def open(self, path: pathlib.Path, width: int = 1400, theme: str = "light") -> None:
        """Open a file at a width, by day or by night."""
        size = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": width < 500,
        }
        theme_now = [{"name": "prefers-color-scheme", "value": theme}]
        self.logs()
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": theme_now}
        )
        self.url = path.absolute().as_uri()
        self.driver.get(self.url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        """Return the elements of a selector."""
        return self.driver.find_elements("css selector", selector)

    def logs(self) -> list[tuple[str, str]]:
        """Return errors and warnings of the console, and what was asked of the network."""
        found = [
            ("console", entry["message"]) for entry in self.driver.get_log("browser")
        ]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url, by = (
                    message["params"]["request"]["url"],
                    message["params"]["documentURL"],
                )
                if by == self.url and url != by and not url.startswith("data:"):
                    found.append(("network", url))
        return found

    def faults(self) -> list[tuple[str, str]]:
        """Return all that is wrong with the page as it stands: kind, what and where."""
        script = _MEASURE.replace("SMALLEST", str(SMALLEST)).replace(
            "FAINTEST", str(FAINTEST)
        )
        texts, found = self.run(script)
        assert texts > 0
        return [(kind, words) for kind, words in found] + self.logs()


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """Start Chromium without a window; nothing is downloaded."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = drivers()
    assert found is not None
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "disable-dev-shm-usage",
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options=options, service=Service(found[1]))
        try:
            yield Page(driver)
        finally:
            driver.quit()
