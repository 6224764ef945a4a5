"""Draw the pictures of the pages on concepts: `python docs/concepts/pictures/draw.py`.

Every number in them is computed here. They follow the reader's light or dark mode.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable

import numpy as np

import mrsa_jax as mj

HERE = pathlib.Path(__file__).parent
_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 14px; }
.paper { fill: #ffffff; } .cell { fill: #eceff4; } .ink { fill: #1f2430; } .faint { fill: #5f6775; }
.line { stroke: #5f6775; stroke-width: 1.5; fill: none; } .warn { fill: #b3261e; }
.c0 { fill: #3b6fb6; } .c1 { fill: #c8761d; } .c2 { fill: #3f8f5b; } .c3 { fill: #8a57a8; }
.on { fill: #ffffff; } .big { font-size: 16px; font-weight: 600; }
.mono { font-family: ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
.paper { fill: #14181f; } .cell { fill: #252b36; } .ink { fill: #e6e9ef; } .faint { fill: #a3acba; }
.line { stroke: #a3acba; } .warn { fill: #ff8a80; }
.c0 { fill: #6d9ee0; } .c1 { fill: #e59a4a; } .c2 { fill: #6fbf8b; } .c3 { fill: #b98ad6; }
.on { fill: #14181f; }
}
"""  # fmt: skip


class Picture:
    """Shapes in a box of a fixed size; classes of `_STYLE` give them their colours."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" role="img" aria-label="{says}"><title>{says}</title>'
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
        ]

    def box(self, x: float, y: float, w: float, h: float, kind: str) -> None:
        """Draw a box by its corner and size."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "ink", at: str = "middle") -> None:
        """Write words at a point."""
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{at}">{words}</text>'
        )

    def line(self, *points: tuple[float, float]) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="line" points="{path}"/>')

    def chip(self, x: float, y: float, w: float, words: object, kind: str) -> None:
        """Draw a coloured box with words in it."""
        self.box(x, y, w, 30, kind)
        self.text(x + w / 2, y + 20, str(words), "on mono" if kind[0] == "c" and kind != "cell"
                  else "ink mono")  # fmt: skip

    def svg(self) -> str:
        """Return the file's text."""
        return "\n".join([*self.parts, "</svg>", ""])


def pads() -> Picture:
    """Three clients with pads modulo 100."""
    updates, pairs = [3, 5, 7], {(0, 1): 41, (0, 2): 17, (1, 2): 88}
    picture = Picture(720, 230, "Pads hide each update and cancel in the sum")
    picture.text(110, 28, "update", "faint")
    picture.text(310, 28, "pads that each pair shares", "faint")
    picture.text(590, 28, "what the server sees", "faint")
    total = 0
    for client, update in enumerate(updates):
        y = 42 + 44 * client
        picture.text(20, y + 20, f"client {client}", at="start")
        picture.chip(90, y, 40, update, f"c{client}")
        padded, x = update, 190
        for (first, second), pad in pairs.items():
            if client in (first, second):
                sign = 1 if client == first else -1
                padded += sign * pad
                picture.text(x - 16, y + 20, "+" if sign > 0 else "−", "big ink")
                picture.chip(x, y, 60, pad, "cell")
            x += 90
        picture.text(545, y + 20, "mod 100 =", "faint", "end")
        picture.chip(560, y, 60, padded % 100, "cell")
        total += padded % 100
    picture.line((90, 176), (620, 176))
    picture.text(20, 206, "sum", at="start")
    picture.chip(90, 186, 40, sum(updates), "c3")
    picture.text(310, 206, "every pad is added once and subtracted once", "faint")
    picture.chip(560, 186, 60, total % 100, "c3")
    assert total % 100 == sum(updates)
    return picture


def exposure() -> Picture:
    """Three sums of pairs, and the combination that leaves one client."""
    P, updates = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]), np.array([3, 5, 7])
    signs = np.array([1, -1, 1])
    assert mj.privacy.first_exposure(P).tolist() == [2, 2, 2]
    picture = Picture(720, 220, "The first sum less the second plus the third is twice one update")
    for client in range(3):
        picture.text(270 + 60 * client, 28, f"client {client}", "faint")
    picture.text(500, 28, "sum", "faint")
    for j, (row, sign) in enumerate(zip(P, signs, strict=True)):
        y = 40 + 40 * j
        picture.text(196, y + 20, "+" if sign > 0 else "−", "big ink")
        picture.text(90, y + 20, f"round {j}")
        for client in np.flatnonzero(row):
            picture.chip(245 + 60 * client, y, 50, "?", f"c{client}")
        picture.text(448, y + 20, "=")
        picture.chip(475, y, 50, row @ updates, "cell")
    left = signs @ P
    assert left.tolist() == [2, 0, 0]
    picture.line((180, 168), (525, 168))
    picture.text(90, 198, "combined")
    picture.chip(245, 178, 50, "2 × ?", "c0")
    picture.text(448, 198, "=")
    picture.chip(475, 178, 50, signs @ P @ updates, "cell")
    picture.text(545, 198, f"so client 0 sent {signs @ P @ updates // 2}", "warn", "start")
    return picture


def blocks() -> Picture:
    """Twelve clients, six per round: at random, and in blocks of three."""
    picture = Picture(720, 250, "Random cohorts separate clients; blocks keep them together")
    none = mj.availability.independent(0.0)
    for x, name, scheme in (
        (30, "random", mj.selection.uniform(12, 6)),
        (390, "blocks of 3", mj.selection.batch_partitioning(12, 6, 3)),
    ):
        sums = np.asarray(mj.selection.rollout(3, scheme, none, 7))
        strong = int(mj.privacy.strong_privacy(sums))
        picture.text(x + 150, 28, f"{name}: strong T = {strong}", "big ink")
        for j, row in enumerate(sums):
            for client, is_in in enumerate(row):
                kind = f"c{client // 3}" if is_in else "cell"
                gap = 8 * (client // 3)
                picture.box(x + 23 * client + gap, 44 + 25 * j, 21, 21, kind)
        picture.text(x + 150, 238, "a column per client, a row per round", "faint")
    return picture


def witness() -> Picture:
    """What a certificate holds: one integer combination that anyone can add up."""
    P = np.array([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 1]])
    picture = Picture(720, 214, "A certificate holds whole numbers that anyone can add up")
    z = np.array([1, 0, -1])
    left = z @ P
    picture.text(150, 28, "the log", "faint")
    picture.text(395, 28, "the witness", "faint")
    picture.text(590, 28, "the claim", "faint")
    for j, row in enumerate(P):
        for client, is_in in enumerate(row):
            picture.box(60 + 44 * client, 42 + 40 * j, 40, 30, f"c{client}" if is_in else "cell")
        picture.text(300, 62 + 40 * j, "×", "faint")
        picture.chip(370, 42 + 40 * j, 50, f"{z[j]:+d}".replace("-", "−") if z[j] else 0, "cell")
    picture.line((60, 166), (420, 166))
    for client, is_in in enumerate(left):
        words = f"{is_in:+d}".replace("-", "−") if is_in else "0"
        picture.chip(60 + 44 * client, 174, 40, words, f"c{client}" if is_in else "cell")
    assert np.count_nonzero(left) == mj.privacy.weak_privacy(P).upper == 2
    picture.text(590, 74, "a combination of the sums", "ink")
    picture.text(590, 96, "holds 2 updates only:", "ink")
    picture.text(590, 120, "weak T is at most 2", "big ink")
    return picture


def segments() -> Picture:
    """Which groups add which segment together, and with how many levels."""
    levels = [2, 4, 8, 16, 32]
    matrix = mj.hetero.segment_matrix("mc", 5)
    picture = Picture(720, 268, "Groups add a segment in pairs, with the coarser of two quantizers")
    for g, most in enumerate(levels):
        x = 150 + 108 * g
        picture.text(x + 48, 26, f"group {g}")
        picture.text(x + 48, 44, f"≤ {most} levels", "faint")
    for row, labels in enumerate(matrix):
        y = 56 + 40 * row
        picture.text(120, y + 20, f"segment {row}", at="end")
        for g, label in enumerate(labels):
            mates = [h for h, other in enumerate(labels) if other == label and label >= 0] or [g]
            words = f"{levels[min(mates)]} levels"
            picture.chip(150 + 108 * g, y, 96, words, "cell" if len(mates) == 1 else f"c{label}")
    return picture


def ledger() -> Picture:
    """Sums that a client was in, and what they cost it."""
    blocks_of_3 = mj.selection.batch_partitioning(12, 6, 3)
    online = mj.availability.independent(0.2)
    sums = np.asarray(mj.selection.rollout(0, blocks_of_3, online, 8))
    mu = mj.dp.ledger(sums, noise_multiplier=4.0, planned=6).mu
    count = sums.sum(0)
    np.testing.assert_allclose(mu, np.sqrt(count) / 4)
    picture = Picture(720, 300, "A client pays for the sums that it was in")
    for client in range(12):
        x = 130 + 47 * client
        for j in range(8):
            picture.box(x, 20 + 22 * j, 40, 18, f"c{client // 3}" if sums[j, client] else "cell")
        picture.text(x + 20, 222, count[client], "ink mono")
        height = 40 * mu[client]
        picture.box(x + 8, 262 - height, 24, height, f"c{client // 3}")
        picture.text(x + 20, 284, f"{mu[client]:.2f}", "ink mono")
    picture.text(110, 112, "rounds", "faint", "end")
    picture.text(110, 222, "sums", "faint", "end")
    picture.text(110, 284, "mu", "faint", "end")
    return picture


PICTURES: Iterable[Callable[[], Picture]] = (pads, exposure, blocks, witness, segments, ledger)

if __name__ == "__main__":
    for own in PICTURES:
        (HERE / f"{own.__name__}.svg").write_text(own().svg(), encoding="utf-8")
