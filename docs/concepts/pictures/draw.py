"""Draw the pictures of concepts and of how-tos.

`python docs/concepts/pictures/draw.py`.
Every number in them is computed here. They follow the reader's light or dark mode, and
are narrow enough to be read on a telephone.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import numpy as np

import mrsa_jax as mj

HERE = pathlib.Path(__file__).parent
_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 14px; }
.paper { fill: #ffffff; } .cell { fill: #eceff4; } .ink { fill: #1f2430; } .faint { fill: #5f6775; }
.line { stroke: #5f6775; stroke-width: 1.5; fill: none; } .warn { fill: #b3261e; }
.c0 { fill: #3b6fb6; } .c1 { fill: #c8761d; } .c2 { fill: #3f8f5b; } .c3 { fill: #8a57a8; }
.on { fill: #ffffff; } .rule { fill: #c3c9d4; } .pale { opacity: 0.45; }
.grid { stroke: #8a94a6; stroke-width: 0.5; }
.small { font-size: 12px; } .big { font-size: 15px; font-weight: 600; }
.mono { font-family: ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
.paper { fill: #14181e; } .cell { fill: #252b36; } .ink { fill: #e6e9ef; } .faint { fill: #a3acba; }
.line { stroke: #a3acba; } .warn { fill: #ff8a80; }
.c0 { fill: #6d9ee0; } .c1 { fill: #e59a4a; } .c2 { fill: #6fbf8b; } .c3 { fill: #b98ad6; }
.on { fill: #14181f; } .rule { fill: #414a5a; }
}
"""


class Picture:
    """Shapes in a box 480 wide; classes of `_STYLE` give them their colours."""

    def __init__(self, height: int, says: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 {height}" '
            f'width="560" role="img" aria-label="{says}"><title>{says}</title>'
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="480" height="{height}"/>',
        ]

    def box(self, x: float, y: float, w: float, h: float, kind: str) -> None:
        """Draw a box by its corner and size."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" '
            'rx="3"/>'
        )

    def text(
        self, x: float, y: float, words: object, kind: str = "ink", at: str = "middle"
    ) -> None:
        """Write words at a point."""
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" '
            f'text-anchor="{at}">{words}</text>'
        )

    def line(self, *points: tuple[float, float], kind: str = "line") -> None:
        """Draw a line through points, or what it surrounds."""
        path = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def dot(self, x: float, y: float, r: float, kind: str) -> None:
        """Draw a circle by its middle."""
        self.parts.append(
            f'<circle class="{kind}" cx="{x:.4g}" cy="{y:.4g}" r="{r:g}"/>'
        )

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through points with a head at its end."""
        self.line(*points)
        (x0, y0), (x, y) = points[-2:]
        dx, dy = float(np.sign(x - x0)), float(np.sign(y - y0))
        wings = ((x - 7 * dx + s * 4 * dy, y - 7 * dy + s * 4 * dx) for s in (-1, 1))
        self.line((x, y), *wings, kind="faint")

    def chip(self, x: float, y: float, w: float, words: object, kind: str) -> None:
        """Draw a coloured box with words in it."""
        self.box(x, y, w, 30, kind)
        self.text(
            x + w / 2,
            y + 20,
            str(words),
            "on mono" if kind[0] == "c" and kind != "cell" else "ink mono",
        )

    def svg(self) -> str:
        """Return the file's text."""
        return "\n".join([*self.parts, "</svg>", ""])


def pads() -> Picture:
    """Three clients with pads modulo 100."""
    updates, pairs = [3, 5, 7], {(0, 1): 41, (0, 2): 17, (1, 2): 88}
    picture = Picture(230, "Pads hide each update and cancel in the sum")
    picture.text(90, 28, "update", "faint")
    picture.text(250, 28, "pads of each pair", "faint")
    picture.text(428, 28, "server sees", "faint")
    total = 0
    for client, update in enumerate(updates):
        y = 42 + 44 * client
        picture.text(10, y + 20, f"client {client}", at="start")
        picture.chip(70, y, 40, update, f"c{client}")
        padded, x = update, 148
        for (first, second), pad in pairs.items():
            if client in (first, second):
                sign = 1 if client == first else -1
                padded += sign * pad
                picture.text(x - 14, y + 20, "+" if sign > 0 else "−", "big ink")
                picture.chip(x, y, 50, pad, "cell")
            x += 78
        picture.text(376, y + 20, "=", "big ink")
        picture.chip(403, y, 50, padded % 100, "cell")
        total += padded % 100
    picture.line((70, 176), (453, 176))
    picture.text(10, 206, "sum", at="start")
    picture.chip(70, 186, 40, sum(updates), "c3")
    picture.text(245, 206, "all pads cancel (modulo 100)", "faint")
    picture.chip(403, 186, 50, total % 100, "c3")
    assert total % 100 == sum(updates)
    return picture


def exposure() -> Picture:
    """Three sums of pairs, and the combination that leaves one client."""
    P, updates = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]), np.array([3, 5, 7])
    signs = np.array([1, -1, 1])
    assert mj.privacy.first_exposure(P).tolist() == [2, 2, 2]
    picture = Picture(
        220, "The first sum less the second plus the third is twice one update"
    )
    for client in range(3):
        picture.text(131 + 58 * client, 28, f"client {client}", "faint small")
    picture.text(331, 28, "sum", "faint")
    for j, (row, sign) in enumerate(zip(P, signs, strict=True)):
        y = 40 + 40 * j
        picture.text(88, y + 20, "+" if sign > 0 else "−", "big ink")
        picture.text(10, y + 20, f"round {j}", at="start")
        for client in np.flatnonzero(row):
            picture.chip(106 + 58 * client, y, 50, "?", f"c{client}")
        picture.text(290, y + 20, "=")
        picture.chip(306, y, 50, row @ updates, "cell")
    left = signs @ P
    assert left.tolist() == [2, 0, 0]
    picture.line((80, 168), (356, 168))
    picture.text(10, 198, "combined", at="start")
    picture.chip(106, 178, 50, "2 × ?", "c0")
    picture.text(290, 198, "=")
    picture.chip(306, 178, 50, signs @ P @ updates, "cell")
    picture.text(366, 198, f"client 0 sent {signs @ P @ updates // 2}", "warn", "start")
    return picture


def blocks() -> Picture:
    """Twelve clients, six per round: at random, and in blocks of three."""
    picture = Picture(214, "Random cohorts separate clients; blocks keep them together")
    none = mj.availability.independent(0.0)
    for x, name, scheme in (
        (10, "random", mj.selection.uniform(12, 6)),
        (254, "blocks of 3", mj.selection.batch_partitioning(12, 6, 3)),
    ):
        sums = np.asarray(mj.selection.rollout(3, scheme, none, 7))
        strong = int(mj.privacy.strong_privacy(sums))
        picture.text(x + 108, 26, f"{name}: strong T = {strong}", "big ink")
        for j, row in enumerate(sums):
            for client, is_in in enumerate(row):
                kind = f"c{client // 3}" if is_in else "cell"
                picture.box(
                    x + 17 * client + 5 * (client // 3), 40 + 21 * j, 15, 17, kind
                )
    picture.text(240, 204, "one column per client, one row per round", "faint")
    return picture


def hidden() -> Picture:
    """How much each client weighs in the estimate of the worst one's update."""
    picture = Picture(
        220, "One update stands out at random; in a block all weigh the same"
    )
    none = mj.availability.independent(0.0)
    for y, name, scheme in (
        (20, "random", mj.selection.uniform(12, 6)),
        (118, "blocks of 3", mj.selection.batch_partitioning(12, 6, 3)),
    ):
        sums = np.asarray(mj.selection.rollout(3, scheme, none, 8), float)
        among = np.asarray(mj.privacy.hidden_among(sums))
        worst = int(among.argmin())
        weights = (np.linalg.pinv(sums) @ sums)[worst]
        # the sums' estimate of its update plus these times the others'
        weights /= weights[worst]
        np.testing.assert_allclose(weights @ weights, among[worst], rtol=1e-5)
        picture.text(10, y + 40, name, "big ink", "start")
        picture.text(10, y + 62, f"hidden among {among[worst]:.1f}", "faint", "start")
        picture.line((140, y + 50), (470, y + 50))
        for client, weight in enumerate(weights):
            height = max(abs(38 * weight), 1)
            top = y + 50 - (height if weight > 0 else 0)
            picture.box(
                146 + 27 * client, top, 20, height, "c1" if client == worst else "c0"
            )
    picture.text(305, 206, "weight of each client in the best estimate", "faint")
    return picture


def families() -> Picture:
    """What families of lines keep: weak T, hidden among and strong T."""
    picture = Picture(282, "Weak T overstates how well crossing lines hide a client")
    shown = {
        "nets 5 x 5, 3 ways": mj.design.nets(25, 5, 3),
        "blocks of 4": mj.design.blocks(12, 4),
        "grids 5 x 5": mj.design.grids(25, 5),
        "grids 6 x 6": mj.design.grids(36, 6),
        "blocks of 5": mj.design.blocks(15, 5),
        "rectangles 2 x 6": mj.design.rectangles(12, 6, 2),
        "blocks of 6": mj.design.blocks(12, 6),
    }
    for T in range(7):
        picture.line((164 + 48 * T, 14), (164 + 48 * T, 216), kind="grid")
        picture.text(164 + 48 * T, 234, T, "faint")
    for row, (name, lines) in enumerate(shown.items()):
        weak, strong = (
            mj.privacy.weak_privacy(lines),
            int(mj.privacy.strong_privacy(lines)),
        )
        assert weak.certified
        hidden = float(np.asarray(mj.privacy.hidden_among(lines)).min())
        y = 26 + 29 * row
        picture.text(152, y + 5, name, at="end")
        low, high = (164 + 48 * value for value in (hidden, weak.lower))
        picture.box(low, y - 2, high - low, 4, "c1")
        picture.dot(high, y, 8, "line")
        picture.dot(low, y, 5, "c0")
        picture.box(162 + 48 * strong, y - 11, 4, 22, "c2")
    picture.dot(24, 262, 8, "line")
    picture.text(38, 267, "weak T", at="start")
    picture.dot(118, 262, 5, "c0")
    picture.text(130, 267, "hidden among (worst client)", at="start")
    picture.box(352, 252, 4, 20, "c2")
    picture.text(364, 267, "strong T", at="start")
    return picture


def witness() -> Picture:
    """What a certificate holds: one integer combination that anyone can add up."""
    P = np.array([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 1]])
    picture = Picture(214, "A certificate holds whole numbers that anyone can add up")
    z = np.array([1, 0, -1])
    left = z @ P
    picture.text(88, 28, "the log", "faint")
    picture.text(226, 28, "the witness", "faint")
    picture.text(372, 28, "the claim", "faint")
    for j, row in enumerate(P):
        for client, is_in in enumerate(row):
            picture.box(
                10 + 40 * client, 42 + 40 * j, 36, 30, f"c{client}" if is_in else "cell"
            )
        picture.text(186, 62 + 40 * j, "×", "faint")
        picture.chip(
            203, 42 + 40 * j, 46, f"{z[j]:+d}".replace("-", "−") if z[j] else 0, "cell"
        )
    picture.line((10, 166), (249, 166))
    for client, is_in in enumerate(left):
        words = f"{is_in:+d}".replace("-", "−") if is_in else "0"
        picture.chip(
            10 + 40 * client, 174, 36, words, f"c{client}" if is_in else "cell"
        )
    assert np.count_nonzero(left) == mj.privacy.weak_privacy(P).upper == 2
    picture.text(372, 74, "a combination of the sums", "ink")
    picture.text(372, 96, "holds 2 updates only:", "ink")
    picture.text(372, 120, "weak T is at most 2", "big ink")
    return picture


def segments() -> Picture:
    """Which groups add which segment together, and with how many levels."""
    levels = [2, 4, 8, 16, 32]
    matrix = mj.hetero.segment_matrix("mc", 5)
    picture = Picture(
        284, "Groups add a segment in pairs, with the coarser of two quantizers"
    )
    for g, most in enumerate(levels):
        picture.text(130 + 76 * g, 24, f"group {g}")
        picture.text(130 + 76 * g, 42, f"≤ {most}", "faint")
    for row, labels in enumerate(matrix):
        y = 52 + 40 * row
        picture.text(84, y + 20, f"segment {row}", at="end")
        for g, label in enumerate(labels):
            mates = [
                h for h, other in enumerate(labels) if other == label and label >= 0
            ] or [g]
            kind = "cell" if len(mates) == 1 else f"c{label}"
            picture.chip(96 + 76 * g, y, 68, levels[min(mates)], kind)
    picture.text(282, 272, "levels of each sum: one colour per sum in a row", "faint")
    return picture


def ledger() -> Picture:
    """Sums that a client was in, and what they cost it."""
    blocks_of_3 = mj.selection.batch_partitioning(12, 6, 3)
    online = mj.availability.independent(0.2)
    sums = np.asarray(mj.selection.rollout(0, blocks_of_3, online, 8))
    mu = mj.dp.ledger(sums, noise_multiplier=4.0, planned=6).mu
    count = sums.sum(0)
    np.testing.assert_allclose(mu, np.sqrt(count) / 4)
    picture = Picture(300, "A client pays for the sums that it was in")
    for client in range(12):
        x = 66 + 34 * client
        for j in range(8):
            picture.box(
                x, 16 + 22 * j, 29, 18, f"c{client // 3}" if sums[j, client] else "cell"
            )
        picture.text(x + 15, 214, count[client], "ink mono")
        height = 52 * mu[client]
        picture.box(x + 4, 266 - height, 22, height, f"c{client // 3}")
        picture.text(x + 15, 286, f"{mu[client]:.2f}", "ink small")
    for y, words in ((108, "rounds"), (214, "sums"), (286, "mu")):
        picture.text(56, y, words, "faint", "end")
    return picture


CONCEPTS: Sequence[Callable[[], Picture]] = (
    pads,
    exposure,
    blocks,
    hidden,
    families,
    witness,
    segments,
    ledger,
)

if __name__ == "__main__":
    from tasks import TASKS

    for own in (*CONCEPTS, *TASKS):
        (HERE / f"{own.__name__}.svg").write_text(own().svg(), encoding="utf-8")
