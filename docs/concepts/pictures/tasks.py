"""The pictures of how-tos, which `draw.py` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from draw import Picture

import mrsa_jax as mj
import mrsa_papers


def _flow(
    picture: Picture, y: float, names: Sequence[str], yours: Sequence[int]
) -> None:
    """Draw boxes that lead to one another; the reader's own have another colour."""
    width, step = 480 / len(names) - 26, (480 - 4) / len(names)
    for place, name in enumerate(names):
        x = 12 + step * place
        picture.box(x, y, width, 44, "c1" if place in yours else "c0")
        for row, words in enumerate(lines := name.split("\n")):
            at = y + 27 + 16 * (row - (len(lines) - 1) / 2)
            picture.text(x + width / 2, at, words, "on")
        if place:
            picture.arrow((x - step + width + 3, y + 22), (x - 3, y + 22))


def scheme() -> Picture:
    """A selector of the reader's own among parts of the package."""
    picture = Picture(150, "Your selector takes the place of any other")
    _flow(
        picture,
        24,
        ["who is\nonline", "your\nselector", "sums of\ncohorts", "T, C, F,\nerrors"],
        [1],
    )
    picture.text(
        12,
        104,
        "The package's availability models, protocols, measures",
        "faint",
        "start",
    )
    picture.text(12, 124, "and attacks work with any selector.", "faint", "start")
    return picture


def loop() -> Picture:
    """A round in a program of the reader's own."""
    picture = Picture(
        150, "Your step and optimiser between the selector and the secure sum"
    )
    _flow(
        picture,
        24,
        ["selector", "your local\nstep", "secure\nsum", "your\noptimiser"],
        [1, 3],
    )
    picture.arrow((414, 72), (414, 100), (58, 100), (58, 72))
    picture.text(
        236, 126, "one lax.scan over rounds, compiled once for many schemes", "faint"
    )
    return picture


def exported() -> Picture:
    """A program that travels without the package."""
    picture = Picture(130, "A program leaves the package, and runs where only JAX is")
    _flow(
        picture,
        24,
        ["mrsa_jax", "exported\nprogram", "file", "JAX alone,\nany batch"],
        [3],
    )
    picture.text(236, 104, "the batch stays open; N and J are fixed", "faint")
    return picture


def training() -> Picture:
    """What a training is made of."""
    picture = Picture(176, "Your model, loss, optimiser and data make a trainer")
    for place, name in enumerate(("model", "loss", "optimiser", "data")):
        y = 14 + 38 * place
        picture.box(12, y, 104, 30, "c1")
        picture.text(64, y + 20, name, "on")
        picture.line((116, y + 15), (136, y + 15), (136, 86))
    picture.arrow((136, 86), (156, 86))
    for x, words in ((160, "trainer"), (272, "updates"), (384, "sums")):
        picture.box(x, 64, 84, 44, "c0")
        picture.text(x + 42, 91, words, "on")
        if x > 160:
            picture.arrow((x - 25, 86), (x - 3, 86))
    picture.arrow((426, 112), (426, 138), (202, 138), (202, 112))
    picture.text(314, 160, "the next round's model", "faint")
    return picture


def paper() -> Picture:
    """Two pages with a figure in one column, and in both."""
    picture = Picture(214, "A figure is as wide as one column, or as both")
    for x, name, inches in ((20, "single", 3.5), (260, "double", 7.16)):
        picture.box(x, 12, 200, 166, "cell")
        for column in (0, 1):
            for row in range(10):
                if row > 4 or (name == "single" and column == 1):
                    picture.box(x + 12 + 92 * column, 24 + 15 * row, 84, 5, "rule")
        picture.box(x + 12, 22, 84 if name == "single" else 176, 70, "c0")
        picture.text(
            x + 100, 202, f"style(&quot;{name}&quot;): {inches:g} in", "ink mono"
        )
    return picture


def mu() -> Picture:
    """Two laws of what the server sees, mu apart."""
    picture = Picture(
        200, "mu is how far apart the server's view lies with and without a client"
    )
    at = np.linspace(-4, 5, 91)
    for centre, kind in ((0, "c0"), (1, "c1")):
        up = 150 - 120 * np.exp(-((at - centre) ** 2) / 2)
        points = list(zip(30 + 47 * (at + 4), up, strict=True))
        picture.line(*points, kind=f"{kind} pale")
        picture.line(*points, kind="line")
    middle = 30 + 47 * 4
    picture.line((20, 150), (464, 150))
    picture.arrow((middle, 22), (middle + 47, 22))
    picture.text(middle + 62, 27, "mu = 1", "big ink", "start")
    picture.text(middle - 80, 90, "not in the sum", "ink", "end")
    picture.text(middle + 120, 90, "in the sum", "ink", "start")
    picture.text(
        240, 178, "what the server sees, in standard deviations of the noise", "faint"
    )
    return picture


def points() -> Picture:
    """Points of a sweep that four processes claim."""
    picture = Picture(
        196, "Each process claims points of one store, and none is computed twice"
    )
    rng = np.random.default_rng(2)
    for place in range(40):
        kind = "cell" if place > 28 else f"c{rng.integers(4)}"
        picture.box(150 + 32 * (place % 10), 22 + 32 * (place // 10), 28, 28, kind)
    for process in range(4):
        y = 22 + 32 * process
        picture.box(12, y, 92, 28, f"c{process}")
        picture.text(58, y + 19, f"process {process}", "on")
        picture.arrow((108, y + 14), (142, y + 14))
    picture.text(308, 176, "one folder: done in colour, open in grey", "faint")
    return picture


def forms() -> Picture:
    """One operation in three forms."""
    picture = Picture(166, "Three forms of an operation give the same integers")
    history = mj.selection.rollout(
        0, mj.selection.uniform(24, 6), mj.availability.independent(0.2), 60
    )
    rank = int(mj.modular.rank(np.asarray(history, np.int64)))
    for place, (name, where) in enumerate(
        (("loops", "CPU"), ("array programs", "TPU, any"), ("kernels", "NVIDIA GPU"))
    ):
        x = 12 + 158 * place
        picture.box(x, 14, 140, 50, f"c{place}")
        picture.text(x + 70, 35, name, "on")
        picture.text(x + 70, 54, where, "on")
        picture.arrow((x + 70, 68), (x + 70, 98))
        picture.chip(x + 40, 102, 60, rank, "cell")
    picture.text(240, 154, "the rank of 60 sums of 24 clients, in each form", "faint")
    return picture


def flower() -> Picture:
    """A recorder and a gate at a server."""
    picture = Picture(
        150, "A recorder writes who was in each sum; a gate asks before the next"
    )
    _flow(picture, 60, ["Flower's\nserver", "recorder", "log.jsonl", "audit"], [0])
    picture.arrow((295, 56), (295, 26), (58, 26), (58, 56))
    picture.text(176, 18, "gate: may this cohort be summed?", "faint")
    picture.text(
        12, 136, "names of clients and rounds only, never an update", "faint", "start"
    )
    return picture


def site() -> Picture:
    """A site's own filters around the code of a job."""
    picture = Picture(130, "The site's filters stand between the server and the job")
    _flow(
        picture,
        24,
        [
            "server's\nmodel",
            "ledger:\nits digest",
            "the job's\ncode",
            "ledger:\na result",
        ],
        [1, 3],
    )
    picture.text(
        236, 104, "the owner of the data installs them, not the researcher", "faint"
    )
    return picture


def advice() -> Picture:
    """How many clients a round keeps on average, by the size of blocks."""
    picture = Picture(232, "Larger blocks hide better and lose more rounds")
    picture.text(12, 24, "block", "faint", "start")
    picture.text(196, 24, "mean clients per round, of 12", "faint", "start")
    for row, T in enumerate((1, 2, 3, 4, 6, 12)):
        y, mean = 36 + 30 * row, mj.selection.expected_cardinality(120, 12, T, 0.2)
        for member in range(T):
            picture.box(12 + 13 * member, y, 11, 20, "c0")
        picture.box(196, y, 18 * mean, 20, "c1")
        picture.text(204 + 18 * mean, y + 15, f"{mean:.1f}", "ink", "start")
    picture.text(240, 224, "120 clients, each offline in 20 % of the rounds", "faint")
    return picture


def gate() -> Picture:
    """Three learnt sums, and a cohort that would expose a client."""
    learnt = np.array(
        [[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0, 1, 1]]
    )
    asked = np.array([[1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]])
    picture = Picture(218, "A gate refuses the sum that would leave a single update")
    for j, row in enumerate((*learnt, *asked)):
        y = 14 + 32 * j + 24 * (j > 2)
        picture.text(12, y + 18, f"round {j + 1}" if j < 3 else "asked", at="start")
        for client, is_in in enumerate(row):
            picture.box(
                70 + 27 * client, y, 24, 26, f"c{client // 2}" if is_in else "cell"
            )
        if j > 2:
            exposed = np.flatnonzero(
                np.asarray(mj.privacy.first_exposure([*learnt, row])) >= 0
            )
            assert exposed.tolist() == ([3] if j == 3 else [])
            words = "refused: one exposed" if j == 3 else "allowed"
            picture.text(296, y + 18, words, "warn" if j == 3 else "ink", "start")
    picture.line((12, 120), (468, 120))
    picture.text(296, 64, "learnt", "faint", "start")
    return picture


def parts() -> Picture:
    """Clients who train other numbers of LoRA ranks."""
    picture = Picture(226, "Each part of the vector has its own clients")
    ranks = [8, 8, 8, 4, 4, 4, 4, 4]
    for client, own in enumerate(ranks):
        for rank in range(8):
            kind = "cell" if rank >= own else f"c{rank // 4}"
            picture.box(86 + 30 * client, 14 + 22 * rank, 26, 18, kind)
    for rank in range(8):
        picture.text(76, 28 + 22 * rank, f"rank {rank + 1}", "faint", "end")
    picture.text(205, 214, "one column per client", "faint")
    for y, words in ((50, "8 clients"), (138, f"{ranks.count(8)} clients")):
        picture.text(340, y, f"a sum of {words},", "ink", "start")
        picture.text(340, y + 20, "its own history", "ink", "start")
    return picture


def log() -> Picture:
    """Lines of a log, and the matrix that they are."""
    picture = Picture(164, "A line of the log is a row of the participation matrix")
    names = ["ann", "bob", "cleo", "dan"]
    rows = [[0, 1], [1, 2, 3], [0, 3]]
    for client, name in enumerate(names):
        picture.text(327 + 40 * client, 26, name, "faint")
    for j, row in enumerate(rows):
        y = 38 + 38 * j
        listed = ", ".join(f"&quot;{names[client]}&quot;" for client in row)
        picture.text(
            12, y + 20, f"round {j + 1}: [{listed}]", "ink mono small", "start"
        )
        picture.arrow((266, y + 15), (296, y + 15))
        for client in range(4):
            picture.box(
                310 + 40 * client, y, 34, 30, f"c{client}" if client in row else "cell"
            )
    return picture


def statistics() -> Picture:
    """Sums of bits that expose no client, and the bits that follow all the same."""
    P = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0], [1, 1, 0, 1, 0, 1]])
    sums = P @ np.array([1, 1, 1, 0, 0, 0])
    found = mj.privacy.determined(P, sums)
    assert found.is_determined.all()
    assert (np.asarray(mj.privacy.first_exposure(P)) < 0).all()
    picture = Picture(232, "Sums of bits reveal values that linear algebra does not")
    for i, name in enumerate(("ann", "bonn", "cork", "delft", "essen", "fano")):
        picture.text(112 + 48 * i, 24, name, "faint")
    for j, (row, total) in enumerate(zip(P, sums, strict=True)):
        y = 38 + 40 * j
        picture.text(76, y + 20, f"query {j + 1}", at="end")
        for i, is_in in enumerate(row):
            picture.box(92 + 48 * i, y, 40, 30, "c0" if is_in else "cell")
        picture.text(398, y + 20, f"sum {total} of {row.sum()}", at="start")
    picture.line((92, 164), (372, 164))
    picture.text(76, 196, "values", at="end")
    for i, value in enumerate(found.lower):
        picture.chip(92 + 48 * i, 176, 40, value, "c1")
    picture.text(232, 224, "exposed over the real numbers: none", "faint")
    return picture


def settings() -> Picture:
    """An item at the paper's sizes and at another one, which has no printed number."""
    sizes = (100, 150, 200, 250)
    item = mrsa_papers.ccesa.tableg2(num_sizes=sizes, total_rates=(0.0,))
    rows = item.data.set_index("n")
    picture = Picture(178, "Printed numbers stand next to the settings of the paper")
    for i, n in enumerate(sizes):
        x, printed = 136 + 84 * i, rows["printed"][n]
        picture.text(x + 32, 30, f"n = {n}", "faint")
        if np.isnan(printed):
            picture.box(x, 44, 64, 34, "cell")
            picture.text(x + 32, 66, "left out", "faint small")
        else:
            picture.chip(x, 44, 64, f"{printed:.3f}", "c1")
        picture.chip(x, 92, 64, f"{rows['ours'][n]:.3f}", "c0")
    picture.text(120, 66, "printed", at="end")
    picture.text(120, 114, "here", at="end")
    picture.text(240, 162, "Table G.2 of CCESA: p* without losses", "faint")
    return picture


TASKS: Sequence[Callable[[], Picture]] = (
    scheme,
    loop,
    exported,
    training,
    paper,
    mu,
    points,
    forms,
    flower,
    site,
    advice,
    gate,
    parts,
    log,
    statistics,
    settings,
)
