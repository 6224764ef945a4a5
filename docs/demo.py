"""Draw `demo.svg`.

What `mrsa-jax demo` shows on a terminal, from a real run, in ten seconds.
Run it as `python docs/demo.py`. The frames are what the command draws above its bars,
from when it draws them; all waits are shortened by one factor.
"""

from __future__ import annotations

import io
import pathlib
import tempfile
import time
from typing import Any

from rich.console import Console

from mrsa_jax.cli._study import _as_it_comes
from mrsa_jax.cli.console import Bars
from mrsa_jax.study import DemoConfig, run_and_save
from mrsa_watch._base.html import tidy

WIDTH, SECONDS, REST = 100, 7.0, 3.0  # letters; of the run; of its last frame
_LETTER, _LINE, _EDGE = 8.0, 18, 14
_STYLE = """
svg { --ink: #1f2328; --paper: #f6f8fa; --bad: #b54708; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --paper: #161b22; --bad: #f0a35e; } }
rect { fill: var(--paper); } text { fill: var(--ink); font: 13px ui-monospace, Menlo, Consolas,
  "DejaVu Sans Mono", monospace; white-space: pre; } .bad { fill: var(--bad); }
g { visibility: hidden; animation: %s infinite step-end; }
@media (prefers-reduced-motion: reduce) { g { animation: none; } g:last-of-type {
  visibility: visible; } }
"""


class Frames(Bars):
    """Bars that keep what they would draw."""

    def __init__(self, show: Any) -> None:
        super().__init__(device=False, show=show)
        self.is_live = True
        self.frames: list[tuple[float, list[str]]] = [(0.0, [])]
        self._bad: tuple[str, ...] = ()

    def found(self, so_far: Any) -> None:
        """Note which schemes expose somebody."""
        self._bad = tuple(
            f" {row.scheme} " for row in so_far.rows if row.exposed_clients
        )
        super().found(so_far)

    def draw(self, above: Any) -> None:
        """Keep a frame."""
        out = io.StringIO()
        Console(file=out, width=WIDTH).print(above)
        lines = [
            f"{'!' * line.startswith(self._bad)}{line}"
            for line in out.getvalue().splitlines()
        ]
        self.frames.append((time.perf_counter() - self._start, lines))


def svg(frames: list[tuple[float, list[str]]]) -> str:
    """Return the frames as one picture."""
    whole, last = SECONDS + REST, frames[-1][0]
    starts = [100 * at / last * SECONDS / whole for at, _ in frames]
    rows = 2 + max(len(lines) for _, lines in frames)
    width, height = WIDTH * _LETTER + 2 * _EDGE, rows * _LINE + 2 * _EDGE
    steps, drawn = [], []
    for k, (_, lines) in enumerate(frames):
        when = {0.0: "hidden", starts[k]: "visible"}  # the first frame is there at once
        if k < len(frames) - 1:
            when[starts[k + 1]] = "hidden"
        own = "".join(
            f"{at:.2f}% {{ visibility: {what}; }} " for at, what in when.items()
        )
        steps.append(f"@keyframes f{k} {{ {own}}}")
        text = "".join(
            _text(i + 3, line) for i, line in enumerate(lines) if line.strip()
        )
        drawn.append(f'<g style="animation-name: f{k}">{text}</g>')
    width_of_prompt = 15 * _LETTER
    prompt = (
        f'<text x="{_EDGE}" y="{_EDGE + _LINE}" textLength="{width_of_prompt}">'
        "$ mrsa-jax demo</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}">'
        f"<title>What mrsa-jax demo prints, in ten seconds</title>"
        f"<style>{_STYLE % f'{whole:g}s'}{''.join(steps)}</style>"
        f'<rect width="100%" height="100%" rx="8"/>{prompt}{"".join(drawn)}</svg>\n'
    )


def _text(row: int, line: str) -> str:
    words = line.removeprefix("!")
    return (
        f'<text class="{"bad" * (words != line)}" x="{_EDGE}" '
        f'y="{_EDGE + row * _LINE}" '
        f'textLength="{len(words) * _LETTER:g}">{tidy(words)}</text>'
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        config = DemoConfig(out=folder)
        with Frames(_as_it_comes(config)) as bars:
            run_and_save(config, bars, bars.found)
    pathlib.Path(__file__).with_suffix(".svg").write_text(
        svg(bars.frames), encoding="utf-8"
    )
