"""Logs with known answers, damaged as real systems damage them.

Refused, or not safer than so.
The answers are exact, by brute force over fractions. Each refusal that ends in a
command is run, and what the command reads must not look safer either.
"""

from __future__ import annotations

import bz2
import gzip
import inspect
import json
import lzma
import math
import pathlib
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import row_space_oracle as oracle
from refusals import pasted

from mrsa_watch import ConfigurationError, read_log
from mrsa_watch.logs import ParticipationLog
from mrsa_watch.logs._identity import likeness

Row = tuple[Any, Any, Any]  # round, client, weight
STYLES: dict[str, Callable[[int], str]] = {
    "site": lambda i: f"site-{i + 1}",
    "number": lambda i: str(i + 1),
    "word": lambda i: ("Mayo", "Charité", "Köln Nord", "Basel", "Oslo", "Zürich")[i],
    "letter": lambda i: "abcdef"[i],
    "long": lambda i: str(1582218195625938945 + 7 * i),
    "long32": lambda i: str(4294967290 + 977 * i),
    "hex": lambda i: f"{0xA3F1C09B7D + 7919 * i:010x}",
    "address": lambda i: f"10.0.0.{i + 2}",
    "pair": lambda i: f"{i + 1}-{i + 2}",
}


class History(NamedTuple):
    """Who was in which sum, in truth."""

    names: tuple[str, ...]
    rows: tuple[tuple[Fraction, ...], ...]

    def cells(self) -> list[Row]:
        """Return a row for each client in each sum."""
        return [
            (j + 1, name, weight)
            for j, row in enumerate(self.rows)
            for name, weight in zip(self.names, row, strict=True)
            if weight
        ]


class Damaged(NamedTuple):
    """A log as it was left, with what there is to say of it.

    Attributes:
        log: A file or a table.
        truth: The history, where it is not the one that was drawn.
    """

    log: Any
    truth: History | None = None


class Draw:
    """One history, one folder, and the chance to damage it."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.count = self.random.randint(3, 6)
        self.sums = self.random.randint(2, 5)

    def history(self, style: str | None = None, *, weighted: bool = False) -> History:
        """Return a history in which each client is in a sum, and no sum is empty."""
        style = style or self.random.choice(["site", "number", "word", "letter", "hex"])
        while True:
            bits = [
                [self.random.random() < 0.6 for _ in range(self.count)]
                for _ in range(self.sums)
            ]
            if all(map(any, bits)) and all(map(any, zip(*bits, strict=True))):
                break
        weights = [
            [Fraction(self.random.randint(1, 4)) if weighted else Fraction(1)] * 1
            for _ in range(self.count * self.sums)
        ]
        drawn = iter(weights)
        rows = tuple(tuple(next(drawn)[0] * bit for bit in row) for row in bits)
        return History(tuple(map(STYLES[style], range(self.count))), rows)

    def some(self, cells: Sequence[Row], change: Callable[[str], Any]) -> list[Row]:
        """Return rows of which some name their client otherwise.

        At least one in a later sum.
        """
        last = self.random.choice(
            [n for n, row in enumerate(cells) if row[0] > 1] or [0]
        )
        return [
            (
                j,
                change(name) if n == last or self.random.random() < 0.2 else name,
                weight,
            )
            for n, (j, name, weight) in enumerate(cells)
        ]

    def csv(
        self,
        cells: Sequence[Sequence[Any]],
        head: str = "round,client",
        mark: str = ",",
        *,
        before: str = "",
        encoding: str = "utf-8",
    ) -> pathlib.Path:
        """Write rows as text, with as many fields as the header has."""
        width = head.count(",") + 1
        lines = [head.replace(",", mark)]
        for row in cells:
            texts = [str(field) for field in row[:width]]
            quoted = [f'"{text}"' if mark in text else text for text in texts]
            lines.append(mark.join(quoted))
        path = self.folder / "log.csv"
        path.write_bytes((before + "\n".join(lines) + "\n").encode(encoding))
        return path

    def text(self, text: str | bytes, name: str = "log") -> pathlib.Path:
        """Write a text."""
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def wide(self, history: History, **more: Sequence[Any]) -> pathlib.Path:
        """Write a column for each client and more columns behind."""
        columns = {
            name: [int(row[i]) for row in history.rows]
            for i, name in enumerate(history.names)
        }
        columns |= {name: list(values) for name, values in more.items()}
        lines = [",".join(["round", *columns])]
        rows = zip(*columns.values(), strict=True)
        lines += [",".join([str(j + 1), *map(str, row)]) for j, row in enumerate(rows)]
        return self.text("\n".join(lines) + "\n", "log.csv")

    def flags(self) -> list[int]:
        """Return a column of 0 and 1, both of them."""
        return [n % 2 if n < 2 else self.random.randint(0, 1) for n in range(self.sums)]


DAMAGES: dict[str, Callable[[Draw], Damaged]] = {}


def damage(make: Callable[[Draw], Damaged]) -> Callable[[Draw], Damaged]:
    DAMAGES[make.__name__] = make
    return make


def _row_of(name: str, *, everywhere: bool = True) -> Callable[[Draw], Damaged]:
    def make(draw: Draw) -> Damaged:
        history = draw.history()
        rounds = range(1, draw.sums + 1) if everywhere else [draw.sums]
        cells = history.cells() + [(j, name, 1) for j in rounds]
        return Damaged(draw.csv(sorted(cells, key=lambda row: row[0])), truth=history)

    return make


for _name in (
    "server",
    "aggregator",
    "-1",
    "admin",
    "rank0",
    "None",
    "null",
    "N/A",
    "?",
    "Server",
    "coordinator",
    "<NA>",
    "--",
    "-99",
    "#REF!",
    "global_model",
):
    DAMAGES[f"a row of {_name}"] = _row_of(_name)
for _name in ("Total", "Average", "grand total", "client", "(5 rows)"):
    DAMAGES[f"a last row of {_name}"] = _row_of(_name, everywhere=False)


def _column_of(name: str) -> Callable[[Draw], Damaged]:
    def make(draw: Draw) -> Damaged:
        history = draw.history()
        return Damaged(draw.wide(history, **{name: draw.flags()}), truth=history)

    return make


for _name in (
    "is_eval",
    "converged",
    "total",
    "seed",
    "epoch",
    "has_failed",
    "was_skipped",
    "early_stopping",
    "num_clients",
    "checkpoint",
    "server",
    "Unnamed: 7",
):
    DAMAGES[f"a column of {_name}"] = _column_of(_name)


@damage
def a_column_of_no_known_word(draw: Draw) -> Damaged:
    history = draw.history(draw.random.choice(["site", "number", "letter", "hex"]))
    word = draw.random.choice(["plateau", "quorum", "hello", "zzz"])
    return Damaged(draw.wide(history, **{word: draw.flags()}), truth=history)


@damage
def long_ids_through_floats(draw: Draw) -> Damaged:
    history = draw.history("long")
    cells = [(j, repr(float(name)), w) for j, name, w in history.cells()]
    return Damaged(draw.csv(sorted(set(cells))), truth=history)


@damage
def long_ids_of_a_spreadsheet(draw: Draw) -> Damaged:
    history = draw.history("long")
    cells = {(j, f"{float(name):.2E}", w) for j, name, w in history.cells()}
    return Damaged(draw.csv(sorted(cells)), truth=history)


@damage
def long_ids_without_their_last_digits(draw: Draw) -> Damaged:
    history = draw.history("long")
    cells = {(j, name[:15] + "0000", w) for j, name, w in history.cells()}
    return Damaged(draw.csv(sorted(cells)), truth=history)


@damage
def float_columns_of_long_ids(draw: Draw) -> Damaged:
    history = draw.history("long")
    table = pd.DataFrame(
        [(j, float(int(name))) for j, name, _ in history.cells()],
        columns=["round", "client"],
    ).drop_duplicates()
    if draw.random.random() < 0.5:
        return Damaged(table, truth=history)
    table.to_parquet(draw.folder / "log.parquet", index=False)
    return Damaged(draw.folder / "log.parquet", truth=history)


@damage
def columns_of_short_floats(draw: Draw) -> Damaged:
    base = 16777216 if draw.random.random() < 0.5 else 2048
    kind = np.float32 if base > 5000 else np.float16
    history = draw.history()._replace(
        names=tuple(str(base + i) for i in range(draw.count))
    )
    table = pd.DataFrame(
        [(j, kind(int(name))) for j, name, _ in history.cells()],
        columns=["round", "client"],
    ).drop_duplicates()
    table["client"] = table["client"].astype(kind)
    return Damaged(table, truth=history)


@damage
def ids_that_overflowed(draw: Draw) -> Damaged:
    history = draw.history()._replace(
        names=tuple(str(2**31 + i) for i in range(draw.count))
    )
    cells = draw.some(history.cells(), lambda name: str(int(name) - 2**32))
    names = {name for _, name, _ in cells}
    if not any(str(int(name) + 2**32) in names for name in names):
        cells = history.cells()  # each client has one name, if another
    return Damaged(draw.csv(cells), truth=history)


@damage
def other_case_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history(draw.random.choice(["site", "word", "letter", "hex"]))
    change = draw.random.choice([str.upper, str.title, str.swapcase])
    return Damaged(draw.csv(draw.some(history.cells(), change)), truth=history)


@damage
def other_dashes_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("site")
    dash = draw.random.choice("\u2010\u2011\u2013\u2212_ ")
    return Damaged(
        draw.csv(draw.some(history.cells(), lambda n: n.replace("-", dash))),
        truth=history,
    )


@damage
def ports_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("address")
    cells = draw.some(
        history.cells(), lambda n: f"{n}:{draw.random.randint(40000, 60000)}"
    )
    return Damaged(draw.csv(cells), truth=history)


@damage
def zeros_before_some_numbers(draw: Draw) -> Damaged:
    history = draw.history("number")
    return Damaged(
        draw.csv(draw.some(history.cells(), lambda n: f"00{n}")), truth=history
    )


@damage
def floats_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("number")
    return Damaged(
        draw.csv(draw.some(history.cells(), lambda n: f"{n}.0")), truth=history
    )


@damage
def invisible_marks_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history()
    mark = draw.random.choice("\u200b\u00a0\ufeff\u2060\ufe0f")
    return Damaged(
        draw.csv(draw.some(history.cells(), lambda n: n + mark)), truth=history
    )


@damage
def letters_of_another_alphabet(draw: Draw) -> Damaged:
    history = draw.history("site")
    return Damaged(
        draw.csv(draw.some(history.cells(), lambda n: n.replace("s", "ѕ"))),
        truth=history,
    )


@damage
def utf8_read_as_cp1252_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("word")
    cells = draw.some(history.cells(), lambda n: n.encode().decode("cp1252"))
    return Damaged(draw.csv(cells), truth=history)


@damage
def a_file_in_cp1252(draw: Draw) -> Damaged:
    history = draw.history("word")
    return Damaged(draw.csv(history.cells(), encoding="cp1252"), truth=history)


@damage
def quotes_that_stayed_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history()
    cells = draw.some(history.cells(), lambda n: f"'{n}'")
    return Damaged(draw.csv(cells), truth=history)


@damage
def names_cut_short(draw: Draw) -> Damaged:
    names = tuple(f"hospital-of-the-city-{i}" for i in range(draw.count))
    history = draw.history()._replace(names=names)
    end = draw.random.choice(["...", "…"])
    cells = {
        (j, name[:12] + end if name[-1] in "01" else name, w)
        for j, name, w in history.cells()
    }
    return Damaged(draw.csv(sorted(cells)), truth=history)


@damage
def dates_for_ids_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("pair")
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul")

    def dated(name: str) -> str:
        day, month = map(int, name.split("-"))
        return f"{day}-{months[month - 1]}"

    return Damaged(draw.csv(draw.some(history.cells(), dated)), truth=history)


@damage
def encodings_and_packings(draw: Draw) -> Damaged:
    history = draw.history()
    how = draw.random.choice(["utf-8-sig", "utf-16", "utf-16-le", "gzip", "bz2", "xz"])
    if how.startswith("utf"):
        return Damaged(draw.csv(history.cells(), encoding=how), truth=history)
    path = draw.csv(history.cells())
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[how]
    path.write_bytes(pack(path.read_bytes()))
    return Damaged(path, truth=history)


@damage
def packed_files_cut_short(draw: Draw) -> Damaged:
    history = draw.history()
    path = draw.csv(history.cells())
    pack = draw.random.choice([gzip.compress, bz2.compress, lzma.compress])
    data = pack(path.read_bytes())
    path.write_bytes(data[: draw.random.randint(7, len(data) - 1)])
    return Damaged(path, truth=history)


@damage
def lines_of_a_spreadsheet_and_comments(draw: Draw) -> Damaged:
    history = draw.history()
    mark, before = draw.random.choice(
        [(";", "sep=;\n"), (",", "# by hand\n"), ("\t", "#a\n#b\n")]
    )
    return Damaged(draw.csv(history.cells(), mark=mark, before=before), truth=history)


def _nvflare(cells: Sequence[tuple[int, str, str]], end: str) -> str:
    return "".join(
        f"2026-01-05 10:00:0{j % 10},123 - ScatterAndGather - INFO - {context}{end} "
        "Contribution "
        f"from {name} ACCEPTED by the aggregator at round {j}.\n"
        for j, name, context in cells
    )


@damage
def two_jobs_in_one_server_log(draw: Draw) -> Damaged:
    history = draw.history("site")
    kind = draw.random.choice(["run", "wf", "none"])
    cells = []
    rows = []
    for j, row in enumerate(history.rows):
        both = [[], []]
        for name, weight in zip(history.names, row, strict=True):
            if weight:
                both[draw.random.random() < 0.5].append(name)
        for which, own in enumerate(both):
            told = {
                "run": f"[run={which}, wf=sag, peer=x]",
                "wf": f"[run=1, wf=w{which}, peer=x]",
                "none": "[run=1, wf=w]" if which else "",
            }[kind]
            cells += [(j, name, told) for name in own]
            if own:
                rows.append(tuple(Fraction(name in own) for name in history.names))
    if draw.random.random() < 0.5:  # lines of two jobs come as they come
        draw.random.shuffle(cells)
        cells.sort(key=lambda cell: cell[0])
    end = draw.random.choice([":", " -"])
    text = _nvflare(cells, end)
    return Damaged(
        draw.text(text, "log.txt"), truth=History(history.names, tuple(rows))
    )


@damage
def a_server_that_started_anew(draw: Draw) -> Damaged:
    history = draw.history("site")
    context = "[run=1, wf=sag, peer=x]"
    cells = [(j - 1, name, context) for j, name, _ in history.cells()]
    start = f"2026-01-05 10:00:00,123 - ScatterAndGather - INFO - {context}: Round 0 started.\n"
    lines = _nvflare(cells, ":").splitlines(keepends=True)
    first = [line for line, cell in zip(lines, cells, strict=True) if cell[0] == 0]
    cut = draw.random.randint(1, len(first))
    text = "".join([start, *lines[:cut], start, *lines[cut:]])
    own = [name for j, name, _ in cells[:cut]]
    rest = [name for j, name, _ in cells[cut : len(first)]]
    rows = [
        tuple(Fraction(name in part) for name in history.names)
        for part in (own, rest)
        if part
    ]
    return Damaged(
        draw.text(text, "log.txt"),
        truth=History(history.names, (*rows, *history.rows[1:])),
    )


@damage
def rounds_numbered_anew(draw: Draw) -> Damaged:
    history = draw.history()
    cut = draw.random.randint(1, draw.sums - 1)
    cells = [(j if j <= cut else j - cut, name, w) for j, name, w in history.cells()]
    in_both = any(a and b for a, b in zip(*history.rows[:2], strict=True))
    # round 1 of two runs stands there as one: nothing shows it
    if cut == 1 and not in_both:
        return Damaged(draw.csv(history.cells()), truth=history)
    return Damaged(draw.csv(cells), truth=history)


@damage
def runs_side_by_side(draw: Draw) -> Damaged:
    history = draw.history()
    name = draw.random.choice(["run_id", "job", "attempt", "seed"])
    cells = [((j + 1) // 2, client, j % 2) for j, client, _ in history.cells()]
    if draw.random.random() < 0.5:
        draw.random.shuffle(cells)
    cells.sort(key=lambda row: row[0])
    return Damaged(draw.csv(cells, f"round,client,{name}"), truth=history)


@damage
def rows_of_evaluation(draw: Draw) -> Damaged:
    history = draw.history()
    cells: list[Any] = []
    for j, row in enumerate(history.rows, 1):
        for name, weight in zip(history.names, row, strict=True):
            if weight:
                cells.append((j, name, "train"))
            elif draw.random.random() < 0.7:
                cells.append((j, name, "evaluate"))
    head = draw.random.choice(["round,client,phase", "round,client,message_type"])
    return Damaged(draw.csv(cells, head), truth=history)


@damage
def rows_that_failed(draw: Draw) -> Damaged:
    history = draw.history()
    good, bad = draw.random.choice([("ok", "failed"), ("1", "0"), ("True", "False")])
    cells: list[Any] = []
    for j, row in enumerate(history.rows, 1):
        cells += [
            (j, name, good if weight else bad)
            for name, weight in zip(history.names, row, strict=True)
        ]
    return Damaged(draw.csv(cells, "round,client,success"), truth=history)


@damage
def rows_there_twice(draw: Draw) -> Damaged:
    history = draw.history()
    cells = history.cells()
    place = draw.random.randrange(len(cells))
    at = draw.random.choice([place + 1, len(cells)])
    return Damaged(draw.csv([*cells[:at], cells[place], *cells[at:]]), truth=history)


@damage
def a_header_in_between(draw: Draw) -> Damaged:
    history = draw.history()
    cells: list[Any] = history.cells()
    cells.insert(draw.random.randint(1, len(cells)), ("round", "client", "weight"))
    return Damaged(draw.csv(cells), truth=history)


@damage
def missing_values(draw: Draw) -> Damaged:
    history = draw.history()
    cells: list[Any] = history.cells()
    place = draw.random.randrange(len(cells))
    gap = draw.random.choice(["", "nan", "NaN", "NULL", "None"])
    j, name, weight = cells[place]
    cells[place] = (
        (gap, name, weight) if draw.random.random() < 0.5 else (j, gap, weight)
    )
    return Damaged(draw.csv(cells), truth=history)


@damage
def thousands_with_points(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    rows = tuple(tuple(1000 * w + 250 * (w > 1) for w in row) for row in history.rows)
    truth = History(history.names, rows)
    cells = [(j, n, f"{int(w):,}".replace(",", ".")) for j, n, w in truth.cells()]
    mark = draw.random.choice([";", "\t", "|"])
    return Damaged(draw.csv(cells, "round,client,weight", mark), truth=truth)


@damage
def thousands_with_commas(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    rows = tuple(tuple(500 * w for w in row) for row in history.rows)
    truth = History(history.names, rows)
    cells = [(j, n, f"{int(w):,}") for j, n, w in truth.cells()]
    return Damaged(draw.csv(cells, "round,client,weight"), truth=truth)


@damage
def decimal_commas(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    rows = tuple(tuple(w / 4 for w in row) for row in history.rows)
    truth = History(history.names, rows)
    cells = [(j, n, str(float(w)).replace(".", ",")) for j, n, w in truth.cells()]
    return Damaged(
        draw.csv(cells, "round,client,weight", draw.random.choice(";,")), truth=truth
    )


@damage
def other_units_from_some_round_on(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    cells = [
        (j, n, w if j > 1 else f"{float(w) / 1024:.12g}") for j, n, w in history.cells()
    ]
    return Damaged(draw.csv(cells, "round,client,weight"), truth=history)


@damage
def units_in_the_cells(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    cells = [
        (j, n, f"{w}kB" if draw.random.random() < 0.3 else w)
        for j, n, w in history.cells()
    ]
    if not any("kB" in str(w) for *_, w in cells):
        cells[0] = (*cells[0][:2], "3kB")
    return Damaged(draw.csv(cells, "round,client,weight"), truth=history)


@damage
def samples_that_nobody_asked_for(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    return Damaged(
        draw.csv(history.cells(), "round,client,num_examples"), truth=history
    )


@damage
def lists_in_a_cell(draw: Draw) -> Damaged:
    history = draw.history(draw.random.choice(["number", "site", "letter"]))
    form = draw.random.choice(["{};", "{}|", "[{}, ]", "{} ", "{},"])
    if history.names[0].startswith(("site", "a")) and form == "{} ":
        form = "{};"
    left, mark = form.split("{}")[0], form.split("{}")[1].rstrip("]")
    cells = []
    for j, row in enumerate(history.rows, 1):
        own = [name for name, weight in zip(history.names, row, strict=True) if weight]
        half = max(1, len(own) // 2)
        for part in (own[:half], own[half:]):
            if part:
                cells.append((j, left + mark.join(part) + "]" * bool(left)))
    return Damaged(draw.csv(cells), truth=history)


@damage
def columns_in_another_order(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    cells = [(w, n, 0.5, j) for j, n, w in history.cells()]
    return Damaged(draw.csv(cells, "weight,client,loss,round"), truth=history)


@damage
def rows_in_any_order(draw: Draw) -> Damaged:
    history = draw.history()
    cells = history.cells()
    draw.random.shuffle(cells)
    return Damaged(draw.csv(cells), truth=history)


@damage
def tables_on_their_side(draw: Draw) -> Damaged:
    history = draw.history(draw.random.choice(["site", "word", "letter"]))
    head = draw.random.choice([[], ["client"]]) or [""]
    rounds = draw.random.choice(["{}", "round_{}", "r{}"])
    lines = [",".join([*head, *(rounds.format(j + 1) for j in range(draw.sums))])]
    for i, name in enumerate(history.names):
        lines.append(",".join([name, *(str(int(row[i])) for row in history.rows)]))
    return Damaged(draw.text("\n".join(lines) + "\n", "log.csv"), truth=history)


@damage
def columns_shifted_in_some_rows(draw: Draw) -> Damaged:
    history = draw.history("site")
    cells: list[Any] = history.cells()
    place = draw.random.randrange(len(cells))
    j, name, weight = cells[place]
    cells[place] = (name, weight, "") if draw.random.random() < 0.5 else ("", j, name)
    return Damaged(draw.csv(cells, "round,client,weight"), truth=history)


@damage
def rounds_of_rounded_times(draw: Draw) -> Damaged:
    history = draw.history()
    times = [1700000000000000000 + 40 * j for j in range(draw.sums + 1)]
    cells = {(repr(float(times[j])), n, w) for j, n, w in history.cells()}
    return Damaged(draw.csv(sorted(cells)), truth=history)


@damage
def a_client_of_two_columns(draw: Draw) -> Damaged:
    history = draw.history("site")
    names = [*history.names, history.names[0].title()]
    cut = draw.random.randint(1, draw.sums - 1)
    rows = [
        [*row, Fraction(0)] if j < cut else [Fraction(0), *row[1:], row[0]]
        for j, row in enumerate(history.rows)
    ]
    damaged = History(tuple(names), tuple(map(tuple, rows)))
    return Damaged(draw.wide(damaged), truth=history)


def _records(history: History, key: str = "clients") -> list[dict[str, Any]]:
    return [
        {
            "round": j + 1,
            key: [name for name, w in zip(history.names, row, strict=True) if w],
        }
        for j, row in enumerate(history.rows)
    ]


def _lines(records: Sequence[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@damage
def records_of_rounds(draw: Draw) -> Damaged:
    history = draw.history()
    key = draw.random.choice(
        ["clients", "participating_clients", "participants", "cids"]
    )
    records = _records(history, key)
    form = draw.random.choice(["lines", "array", "object"])
    if form == "lines":
        return Damaged(draw.text(_lines(records)), truth=history)
    whole: Any = records if form == "array" else {"name": "x", "history": records}
    return Damaged(
        draw.text(json.dumps(whole, indent=draw.random.choice([None, 1]))),
        truth=history,
    )


@damage
def records_with_those_who_were_lost(draw: Draw) -> Damaged:
    history = draw.history()
    records = _records(history)
    says_selected = draw.random.random() < 0.5
    for record, row in zip(records, history.rows, strict=True):
        lost = [name for name, w in zip(history.names, row, strict=True) if not w]
        if says_selected:
            record["selected"] = [*record["clients"], *lost]
        record["dropped"] = lost
        record["clients"] = [*record["clients"], *lost]
    return Damaged(draw.text(_lines(records)), truth=history)


@damage
def records_with_weights(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    records = _records(history)
    is_mapping = draw.random.random() < 0.5
    for record, row in zip(records, history.rows, strict=True):
        weights = [int(w) for w in row if w]
        if is_mapping:
            record["clients"] = dict(zip(record["clients"], weights, strict=True))
        else:
            record["num_examples"] = weights
    return Damaged(draw.text(_lines(records)), truth=history)


@damage
def json_cut_short(draw: Draw) -> Damaged:
    history = draw.history()
    text = (
        json.dumps(_records(history))
        if draw.random.random() < 0.5
        else _lines([{"round": j, "client": n} for j, n, _ in history.cells()])
    )
    end = draw.random.randint(3, len(text) - 2)
    if text[end - 1] in "}\n":
        end -= 2
    return Damaged(draw.text(text[:end]), truth=history)


@damage
def lines_cut_short(draw: Draw) -> Damaged:
    history = draw.history(weighted=True)
    path = draw.csv(history.cells(), "round,client,weight")
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b",")])
    return Damaged(path, truth=history)


@damage
def lines_of_two_writers(draw: Draw) -> Damaged:
    history = draw.history()
    lines = [f"{j},{name}" for j, name, _ in history.cells()]
    place = draw.random.randrange(len(lines) - 1)
    lines[place : place + 2] = [lines[place] + lines[place + 1]]
    return Damaged(
        draw.text("round,client\n" + "\n".join(lines) + "\n", "log.csv"), truth=history
    )


@damage
def masked_ids(draw: Draw) -> Damaged:
    history = draw.history("number")
    table = pd.DataFrame(
        [(j, int(n)) for j, n, _ in history.cells()], columns=["round", "client"]
    )
    table["client"] = table["client"].astype("Int64")
    table.loc[draw.random.randrange(len(table)), "client"] = pd.NA
    return Damaged(table, truth=history)


@damage
def nothing_at_all(draw: Draw) -> Damaged:
    """Whole logs in every form: these are read, and as they are."""
    history = draw.history(draw.random.choice(list(STYLES)))
    form = draw.random.choice(
        ["csv", "rows", "wide", "table", "cross", "nvflare", "hash"]
    )
    cells = history.cells()
    if form == "rows":
        log: Any = draw.text(_lines([{"round": j, "client": n} for j, n, _ in cells]))
    elif form == "wide":
        log = draw.wide(history)
    elif form in ("table", "cross"):
        log = pd.DataFrame([row[:2] for row in cells], columns=["round", "client"])
        log = pd.crosstab(log["round"], log["client"]) if form == "cross" else log
    elif form == "nvflare":
        log = draw.text(
            _nvflare([(j, n, "[run=1, wf=w, peer=x]") for j, n, _ in cells], " -")
        )
    elif form == "hash":
        log = draw.csv([(f"{j * 7919:04x}x", n, 1) for j, n, _ in cells])
    else:
        log = draw.csv(cells, mark=draw.random.choice(",;\t|"))
    return Damaged(log, truth=history)


READ = {
    "nothing_at_all",
    "encodings_and_packings",
    "lines_of_a_spreadsheet_and_comments",
    "records_of_rounds",
    "columns_in_another_order",
}
"""Damages that are none to a reader: what they leave is read without a question."""
REFUSED = {
    "packed_files_cut_short",
    "json_cut_short",
    "a_file_in_cp1252",
    "masked_ids",
    "lines_cut_short",
    "lines_of_two_writers",
    "units_in_the_cells",
    "missing_values",
    "rounds_of_rounded_times",
    "tables_on_their_side",
    "a_header_in_between",
    "columns_shifted_in_some_rows",
}
"""Damages that no setting mends: a refusal of these need not end in a command."""
RISKY = "is right only if"
"""Says of a command that it rests on what only the user can know."""


def check_not_safer(log: ParticipationLog, truth: History, *, all_named: bool) -> None:
    """Assert that what was read makes nobody look safer than the truth.

    Args:
        log: What was read.
        truth: What is so.
        all_named: Whether each client of the truth must be in it.
    """
    rows = [[int(value) for value in row] for row in log.participation.tolist()]
    places = {likeness(str(name)): i for i, name in enumerate(log.clients)}
    same = {
        i: places[likeness(name)]
        for i, name in enumerate(truth.names)
        if likeness(name) in places
    }
    if all_named:
        assert len(same) == len(truth.names), "a client was lost"
    scale = math.lcm(*(w.denominator for row in truth.rows for w in row))
    whole = [[int(w * scale) for w in row] for row in truth.rows]
    exposed, known = set(oracle.exposed(rows)), oracle.exposed(whole)
    assert all(same[i] in exposed for i in known if i in same), (
        "an exposed client looks hidden"
    )
    found, exact = oracle.leverages(rows), oracle.leverages(whole)
    assert all(found[j] >= exact[i] for i, j in same.items()), "hidden among too many"
    if len(same) == len(truth.names):
        assert (oracle.strong_privacy(rows) or 0) <= (
            oracle.strong_privacy(whole) or 0
        ), "strong T"
        assert (oracle.weak_privacy(rows) or 0) <= (oracle.weak_privacy(whole) or 0), (
            "weak T"
        )


def play(name: str, seed: int, folder: pathlib.Path) -> str:
    """Damage one log in one way, and hold its reading to the rule.

    Return what became of it.
    """
    made = DAMAGES[name](Draw(seed, folder))
    assert made.truth is not None
    log = _read(made.log)
    if isinstance(log, ParticipationLog):
        check_not_safer(log, made.truth, all_named=True)
        return "read"
    assert name not in READ, (name, seed, str(log))
    found = pasted(log, made.log)
    if found is None:
        return "refused"
    if RISKY not in str(log):
        check_not_safer(found, made.truth, all_named=False)
    return "read by the command"


def _read(log: Any, **settings: Any) -> ParticipationLog | ConfigurationError:
    try:
        return inspect.unwrap(read_log)(log, **settings)
    except ConfigurationError as error:
        return error


def test_there_are_forty_damages() -> None:
    assert len(DAMAGES) >= 60
    assert set(DAMAGES) >= READ | REFUSED


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_logs_are_refused_or_not_safer(
    name: str, tmp_path: pathlib.Path
) -> None:
    """Four of each, some 300 in all."""
    found = {play(name, seed, tmp_path) for seed in range(4)}
    assert found != {"refused"} or name in REFUSED, "no refusal ends in a command"


@pytest.mark.slow
def test_ten_thousand_damaged_logs_are_refused_or_not_safer(
    tmp_path: pathlib.Path,
) -> None:
    names = list(DAMAGES)
    for seed in range(10_000):
        play(names[seed % len(names)], 100 + seed, tmp_path)
