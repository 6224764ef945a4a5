"""How charts look and answer: colours of the series, the legend that switches them, hover values.

The legend's boxes hide lines by style alone, without a script; the script adds the values under
the pointer, or under the cursor that the arrow keys move.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mrsa_jax._html import Markup, tidy
from mrsa_jax.plotting import scheme_colour, scheme_dashes

STYLE = """
.chart { margin: 0; min-width: 0; } .chart h3 { margin: .3rem 0 0; font-size: 1rem; }
.axis { color: var(--soft); font-size: .8rem; margin: 0; max-width: none; }
.axis.below { text-align: right; }
.plot { position: relative; height: 13.5rem; margin: .55rem .7rem 1.5rem 3.4rem; }
.large .plot { height: 21rem; }
.plot:focus-visible { outline: 2px solid var(--link); outline-offset: 6px; }
.plot svg { display: block; max-width: none; overflow: visible; }
.plot text { fill: var(--soft); font-size: 12px; } .plot .up, text.rule { text-anchor: end; }
.plot .on, .plot .empty { text-anchor: middle; }
.plot line { stroke: var(--line); } .plot line.rule { stroke: var(--bad); stroke-dasharray: 2 4; }
.plot text.rule { fill: var(--bad); stroke: var(--paper); stroke-width: 3px; paint-order: stroke;
                  stroke-linejoin: round; }
 .plot line.cursor { stroke: var(--soft); }
.plot path { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round;
             stroke-linecap: round; stroke-dasharray: var(--d); vector-effect: non-scaling-stroke; }
.plot .thin path { stroke-width: 1; } .plot .thick path { stroke-width: 3.4; }
.plot .solid path { stroke-dasharray: none; } .plot .dashed path { stroke-dasharray: 7 4; }
.plot path.band { fill: var(--c); stroke: none; opacity: .15; }
.plot circle { fill: var(--c); stroke: var(--paper); stroke-width: .8; }
.plot circle.near { stroke: var(--ink); stroke-width: 2; }
.tip { position: absolute; top: 0; z-index: 2; pointer-events: none; max-width: 100%;
       background: var(--paper); color: var(--ink); border: 1px solid var(--line);
       border-radius: .35rem; padding: .3rem .55rem; font-size: .8rem; line-height: 1.4;
       box-shadow: 0 2px 8px rgba(0,0,0,.25); overflow-wrap: anywhere; }
.tip div { display: flex; gap: .45rem; align-items: baseline; }
.dot { flex: none; width: .65rem; height: .65rem; border-radius: 50%; background: var(--c); }
.lines { list-style: none; margin: .8rem 0; padding: 0; }
.lines li { display: grid; grid-template-columns: minmax(13rem, 22rem) 9.5rem 1fr;
            gap: .1rem .9rem; align-items: baseline; padding: .35rem 0; margin: 0;
            border-bottom: 1px solid var(--line); }
.lines label { display: flex; gap: .55rem; align-items: center; font-weight: 600; min-width: 0; }
.lines label span { min-width: 0; overflow-wrap: anywhere; }
.key { flex: none; width: 2.4rem; height: .9rem; } .key line { stroke: var(--c);
       stroke-width: 3; stroke-dasharray: var(--d); } .key circle { fill: var(--c); }
.lines input { flex: none; width: 1.05rem; height: 1.05rem; margin: 0; accent-color: var(--link); }
.keys { display: flex; flex-wrap: wrap; gap: .15rem .9rem; font-size: .9rem; margin: .4rem 0 1rem; }
.keys .item { display: inline-flex; gap: .4rem; align-items: center; padding: .2rem 0;
              min-width: 0; overflow-wrap: anywhere; } label.item { cursor: pointer; }
.badge { display: inline-block; border-radius: 1rem; padding: .02rem .65rem; font-size: .85rem;
         font-weight: 600; white-space: nowrap; justify-self: start; }
.good { color: var(--good); background: var(--good-g); }
.fair { color: var(--fair); background: var(--fair-g); }
.bad { color: var(--bad); background: var(--bad-g); }
.told { color: var(--link); background: var(--shade); }
@media (max-width: 46rem) {
  .lines li { grid-template-columns: 1fr auto; } .lines .words { grid-column: 1 / -1; }
  .plot { margin-left: 2.9rem; } .large .plot { height: 16rem; } }
@media print { .plot { break-inside: avoid; } .large .plot { height: 9cm; } .plot { height: 5cm; }
  .key, .plot, .dot, .badge { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
"""The look of charts and of the legend; colours of text are a page's."""

SCRIPT = """
(function () {
  function short(v) {
    if (Number.isInteger(v)) { return v.toLocaleString('en-US'); }
    var a = Math.abs(v);
    return a >= 1e4 || a < 1e-4 ? Number(v.toPrecision(4)).toExponential().replace('e+', 'e')
                                : String(Number(v.toPrecision(4)));
  }
  function points(path) {
    var found = [], x = 0, y = 0;
    path.getAttribute('d').replace(/([MHV])([^MHV]*)/g, function (_, kind, rest) {
      var n = rest.trim().split(/\\s+/).map(Number);
      if (kind === 'H') { x = n[0]; found.push([x, y, 1]); }
      else if (kind === 'V') { y = n[0]; found[found.length - 1][1] = y; }
      else {
        for (var k = 0; k < n.length; k += 2) { x = n[k]; y = n[k + 1]; found.push([x, y, k > 0]); }
      }
    });
    return found;
  }
  function at(own, x, step) {
    for (var k = own.length - 1; k >= 0; k--) {
      if (own[k][0] > x) { continue; }
      if (own[k][0] === x || step && own[k + 1] && own[k + 1][2]) { return own[k][1]; }
      var a = own[k], b = own[k + 1];
      return b && b[2] ? a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]) : null;
    }
    return null;
  }
  function seen(one) { return getComputedStyle(one).display !== 'none'; }
  document.querySelectorAll('.plot').forEach(function (plot) {
    var inner = plot.querySelector('svg svg'), box = inner.viewBox.baseVal;
    var logs = plot.dataset.log, whole = 'whole' in plot.dataset, tip = null, cursor = null, now;
    var lines = [].map.call(inner.querySelectorAll('g[data-s]'), function (g) {
      var path = g.querySelector('path:not(.band)');
      return { g: g, own: points(path), step: /[HV]/.test(path.getAttribute('d')) };
    });
    var dots = [].slice.call(plot.querySelectorAll('circle'));
    var xs = [];
    lines.forEach(function (l) { l.own.forEach(function (p) { xs.push(p[0]); }); });
    xs = xs.sort(function (a, b) { return a - b; }).filter(function (x, k) {
      return !k || x !== xs[k - 1];
    });
    function back(v, axis) { return logs.indexOf(axis) < 0 ? v : Math.pow(10, v); }
    function hide() {
      if (tip) { tip.remove(); cursor.remove(); tip = cursor = null; }
      dots.forEach(function (d) { d.classList.remove('near'); });
    }
    function row(css, text) {
      var div = document.createElement('div'), dot = document.createElement('span');
      if (css) { dot.className = 'dot ' + css; div.appendChild(dot); }
      div.appendChild(document.createTextNode(text));
      tip.appendChild(div);
    }
    function open(share) {
      hide();
      tip = document.createElement('div');
      tip.className = 'tip'; tip.setAttribute('role', 'status');
      plot.appendChild(tip);
      cursor = document.createElementNS(inner.namespaceURI, 'line');
      cursor.setAttribute('class', 'cursor'); cursor.setAttribute('y2', '100%');
      cursor.setAttribute('x1', 100 * share + '%'); cursor.setAttribute('x2', 100 * share + '%');
      if (lines.length) { plot.querySelector('svg').appendChild(cursor); }
      tip.style[share > .5 ? 'left' : 'right'] = '0';
    }
    function show(x) {
      now = x;
      open((x - box.x) / box.width);
      row('', plot.dataset.x + ' ' + short(back(x, 'x')));
      lines.forEach(function (l) {
        var y = seen(l.g) ? at(l.own, x, l.step) : null;
        if (y === null) { return; }
        var name = l.g.dataset.n ? ', ' + l.g.dataset.n : '';
        row(l.g.classList[0], l.g.dataset.s + name + ': ' + short(back(y, 'y')));
      });
    }
    function showDot(dot) {
      var words = dot.querySelector('title');
      now = dot;
      open(parseFloat(dot.getAttribute('cx')) / 100);
      dot.classList.add('near');
      row(dot.classList[0], words ? words.textContent : '');
    }
    plot.addEventListener('pointermove', function (event) {
      var r = plot.getBoundingClientRect(), best = null, least = Infinity;
      if (!lines.length) {
        dots.filter(seen).forEach(function (d) {
          var c = d.getBoundingClientRect();
          var far = Math.hypot(c.x + c.width / 2 - event.clientX,
                               c.y + c.height / 2 - event.clientY);
          if (far < least) { least = far; best = d; }
        });
        if (best && least < 60) { showDot(best); } else { hide(); }
        return;
      }
      var x = box.x + box.width * Math.min(1, Math.max(0, (event.clientX - r.x) / r.width));
      if (whole && logs.indexOf('x') < 0) { x = Math.round(x); }
      else {
        xs.forEach(function (one) {
          if (Math.abs(one - x) < least) { least = Math.abs(one - x); best = one; }
        });
        x = best;
      }
      if (x !== null) { show(Math.min(xs[xs.length - 1], Math.max(xs[0], x))); }
    });
    plot.addEventListener('pointerleave', hide);
    plot.addEventListener('blur', hide);
    plot.addEventListener('keydown', function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], k;
      if (event.key === 'Escape') { hide(); }
      if (!step) { return; }
      event.preventDefault();
      if (!lines.length) {
        var row = dots.filter(seen).sort(function (a, b) {
          return parseFloat(a.getAttribute('cx')) - parseFloat(b.getAttribute('cx'));
        });
        k = row.indexOf(now);
        if (row.length) {
          showDot(row[k < 0 ? 0 : Math.min(row.length - 1, Math.max(0, k + step))]);
        }
        return;
      }
      if (typeof now !== 'number') { return show(xs[step > 0 ? 0 : xs.length - 1]); }
      if (whole && logs.indexOf('x') < 0) {
        return show(Math.min(xs[xs.length - 1], Math.max(xs[0], now + step)));
      }
      k = xs.indexOf(now) + step;
      show(xs[Math.min(xs.length - 1, Math.max(0, k))]);
    });
  });
})();
"""
"""What answers the pointer and the arrow keys; text is only ever added as text."""

PAPER = {"light": "#ffffff", "dark": "#16181c"}
"""What a page is drawn on."""

_LEAST = {"light": 2.0, "dark": 4.5}  # contrast of a line; the palette itself has 2.2 on white
_OWN = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6B6ECF", "#8C6D31")
_DASHES = ("", "7 4", "8 3 2 3", "2 4", "11 3", "8 3 2 3 2 3")
_WIDTH = 2.2  # of a line, as the style has it


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
    if one.is_scheme:
        widths = scheme_dashes(one.label)
        return scheme_colour(one.label), " ".join(f"{_WIDTH * width:.3g}" for width in widths)
    return _OWN[place % len(_OWN)], _DASHES[place % len(_DASHES)]


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
