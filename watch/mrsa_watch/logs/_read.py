"""Read the participation log of any system: who was in which sum.

The participation log of `mrsa_watch`, JSON Lines of any system, NVFlare's log, CSV,
Parquet, NPY and NPZ, told apart by their content; names of rounds and clients are kept,
and whatever is malformed is named with file and line.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from mrsa_watch._base.errors import check_known, require
from mrsa_watch._base.files import user_path
from mrsa_watch._base.tables import is_table
from mrsa_watch._base.untrusted import start_of
from mrsa_watch.logs import _columns
from mrsa_watch.logs._command import Layout, Refusal, settled
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._table import ParticipationLog
from mrsa_watch.logs._text import text_format

LayoutName = Literal["auto", "long", "matrix"]
OrderName = Literal["auto", "sorted", "file"]
RestartsName = Literal["ask", "new", "same"]
AlikeName = Literal["ask", "same", "different"]
OddName = Literal["ask", "keep"]
DecimalName = Literal["ask", "point", "comma"]
FormatName = Literal["auto", "csv", "parquet", "npy", "npz", "jsonl", "nvflare"]
_DEFAULT_MEMORY_BYTES = 2 * 2**30


def read_log(
    path: str | pathlib.Path | Any,
    *,
    format: FormatName = "auto",
    layout: LayoutName = "auto",
    round_column: str | None = None,
    client_column: str | None = None,
    weight_column: str | None = None,
    round_order: OrderName = "auto",
    array: str | None = None,
    memory_bytes: int = _DEFAULT_MEMORY_BYTES,
    where: Mapping[str, Any] | Sequence[str] | str = (),
    ignore_columns: Sequence[str] | str = (),
    sum_columns: Sequence[str] | str = (),
    restarts: RestartsName = "ask",
    part_column: str | None = None,
    alike_names: AlikeName = "ask",
    odd_names: OddName = "ask",
    decimal: DecimalName = "ask",
    client_separator: str | None = None,
) -> ParticipationLog:
    r"""Read a participation history from a file, or a table, of any system.

    The participation log that `mrsa_watch.Recorder` writes needs no settings. It also
    has noise and clip (`noise`, `clip` and `aggregation` of the result; `notes` lists
    repetitions and lines that a crash cut short). Its sums are ordered by run, round
    and sum. Other JSON (an object a line, an array, or the one list in an object) is a
    long table: each object is a row, and its keys are columns. An object may be a round
    that lists its clients, `{"round": 1, "clients": ["a", "b"]}`, with lists of the
    same length next to it, or that maps each to a value. Of NVFlare's server log, text
    or JSON, the lines count by which its aggregator accepted a contribution; jobs,
    workflows and starts of a round are separate sums.

    A table has one of two layouts. *Long*: a row for each client in each sum, under a
    header that names a round and a client column (usual names such as `server_round` or
    `cid` are known; name others by an argument). Rounds and clients may be numbers or
    any text, with gaps; a round in which no client took part cannot be written and is
    not missed. *Matrix*: 0 and 1, a line for each round and a field for each client,
    without a header.

    An unused column is ignored if it cannot change the verdict: if it is the same in
    all rows of each sum, or is known to vary freely (times, hosts, metrics, other names
    of the clients, numbers of rows). Any other column may distinguish several sums of a
    round, state that a row is in none, or hold weights. It is refused until the caller
    decides. So is a round whose rows are in several places of a log that is otherwise
    in the order of its rounds, for instance if its numbering restarted. The error names
    all columns at once and ends in a command, or a call, that decides by their names
    and values; check it. Separate sums never look safer than their sum, so
    `sum_columns` and `restarts="new"` err on the safe side.

    The same holds for a name that may be no client (the server, a missing value, a name
    unlike most), or another's (in other case, with another dash or port), an identifier
    that lost digits, a number with two conventions, and a cell with several clients.
    Leaving out what is no client never makes others look safer.

    Args:
        path: JSON, NVFlare's log or CSV (comma, semicolon, tab, bar or spaces), in
            UTF-8 or UTF-16, each also packed by gzip, bzip2, xz or (with pyarrow) zstd;
            Parquet, NPY or NPZ. Lines of comment begin with #. Or a table of pandas: a
            row for each client in each sum, or a column for each client and the rounds
            as the index, as a cross table has; levels of the index that have names
            count as columns. The files of such a table's `to_csv` and `to_parquet` are
            read alike, with its index and without.
        format: `"auto"` recognises the format by the file's content; a table of pandas
            has none.
        layout: `"auto"` distinguishes long and matrix by the header. `"matrix"` also
            allows weights as entries, and names of clients in a first line. `"long"`
            also allows a table without a header: round, client and maybe weight, in
            this order.
        round_column: Name of the round's column.
        client_column: Name of the client's column.
        weight_column: Name of the column with each client's weight in the sum; `weight`
            is known, others (`num_examples`) are used only if named. Decimal fractions
            are exact.
        round_order: `"sorted"` by the round's number or name (round-9 before round-10),
            or as in the `"file"`. `"auto"` sorts them if all names show their order:
            numbers, dates, ISO times (by instant), ordered categories, one text with a
            number in it. Otherwise they have that of the file, and `is_ordered` of the
            result is False.
        array: Which array of an NPZ archive that holds several.
        memory_bytes: Most memory of the history as a dense matrix: one byte per entry,
            eight with weights. A text may be as long, or of 256 MiB.
        where: Rows that are in the sums: `"status=completed"`,
            `"status=completed,late"` for one of several texts, `"loss!=nan"` for all
            others, a sequence of such conditions that must all hold, or a mapping of
            columns to a text or texts. A text must be the whole value of a row.
        ignore_columns: Names of columns to ignore, as a sequence or comma-separated.
        sum_columns: Names of columns that distinguish several sums of one round, such
            as `group`, `job` or `attempt`: each combination of their values is a
            separate sum.
        restarts: Meaning of a round that continues after others: `"new"`, another sum,
            of a run that began there; `"same"`, one sum whose rows are separated;
            `"ask"` refuses it.
        part_column: Name of the column with the part of the vector that a row's sum is
            over, if some clients train only some coordinates; an empty value is a sum
            of whole updates. Each part is then evaluated by itself
            (`ParticipationLog.by_part`), so it must not distinguish sums of one vector:
            use `sum_columns` for those.
        alike_names: Meaning of clients' names that are alike, such as Site-1 and
            site-1: `"same"`, one client, by its first name; `"different"`, several;
            `"ask"` refuses them.
        odd_names: `"keep"` takes every name for a client's, and every identifier for a
            whole one; `"ask"` refuses names unlike most, and identifiers that lost
            digits.
        decimal: The decimal mark of weights such as 1.500 in a file of semicolons, or
            1,500: `"point"` or `"comma"`, of which the other groups thousands; `"ask"`
            refuses them.
        client_separator: Text between the clients of one cell, such as `";"` in 3;5.
            Each client is then a row. None: a cell holds one client.

    Returns:
        The history with its names.

    Raises:
        ConfigurationError: For a malformed file, by file and line: no header, a missing
            field, a quote that its line does not close, a weight or entry that is NaN,
            negative or no number, a client twice in a round, names that may be one (1,
            01 and 1.0), a round that is no number where most are, an empty file; for
            columns or restarts that need a decision; for names, numbers or cells that
            can be read in two ways; or for a history that needs more memory than
            allowed.
        DataNotFoundError: If there is no such file.

    Examples:
        >>> from mrsa_watch import read_log
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.csv")
        >>> _ = path.write_text("round,client\n1,anna\n1,bob\n4,bob\n")
        >>> log = read_log(path)
        >>> log.rounds, log.clients, log.participation.astype(int).tolist()
        ((1, 4), ('anna', 'bob'), [[1, 1], [0, 1]])

    Cost: a million rows take about two seconds.
    """
    for name, value, kind in (
        ("format", format, FormatName),
        ("layout", layout, LayoutName),
        ("round_order", round_order, OrderName),
        ("restarts", restarts, RestartsName),
        ("alike_names", alike_names, AlikeName),
        ("odd_names", odd_names, OddName),
        ("decimal", decimal, DecimalName),
    ):
        what = "a known format" if name == "format" else "a known name"
        check_known(value, name, typing.get_args(kind), what)
    require(memory_bytes >= 1, "memory_bytes", "must be at least 1", memory_bytes)
    rule = "must be the text between clients of one cell, such as ';'"
    require(client_separator != "", "client_separator", rule, client_separator)
    options = Layout(
        format,
        layout,
        array,
        round_column,
        client_column,
        weight_column,
        part_column,
        round_order,
        restarts,
        alike_names,
        odd_names,
        decimal,
        client_separator,
        _columns.conditions(where),
        _columns.names_of(sum_columns),
        _columns.names_of(ignore_columns),
        int(memory_bytes),
    )
    try:
        log = _read(path, options)
    except Refusal as refusal:
        first = refusal.with_traceback(None)  # whose frames hold the log
    else:
        return _with_decisions(log, options)
    raise settled(first, lambda settings: _read(path, settings))


def _with_decisions(log: ParticipationLog, options: Layout) -> ParticipationLog:
    """Return a log with what the user decided on its names and numbers."""
    decisions = tuple(
        f"{name}={getattr(options, name)}"
        for name in ("alike_names", "odd_names", "decimal", "client_separator")
        if getattr(options, name) not in (None, "ask")
    )
    if not decisions:
        return log
    note = f"Names and numbers were read with {', '.join(decisions)}."
    return dataclasses.replace(log, decisions=decisions, notes=(*log.notes, note))


def _read(path: Any, options: Layout) -> ParticipationLog:
    """Read a file or a table by some settings."""
    if is_table(path):
        return _reader("frame")(path, options)
    file = user_path(path)
    magic = start_of(file, 6)
    kind = _format_of(file, magic) if options.format == "auto" else options.format
    return _reader(kind)(file, options)


def _format_of(file: pathlib.Path, magic: bytes) -> str:
    """Return the name of a file's format."""
    if magic.startswith(b"\xd0\xcf\x11\xe0"):
        received = "a workbook (save its sheet as CSV)"
        fault(str(file), "CSV, JSON Lines, Parquet, NPY or NPZ", received)
    starts = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK": "npz"}
    binary = (name for start, name in starts.items() if magic.startswith(start))
    return next(binary, None) or text_format(file)


# the module of each format's reader
_READERS = {
    "csv": "_csv",
    "frame": "_frame",
    "parquet": "_frame",
    "npy": "_frame",
    "npz": "_frame",
    "jsonl": "_participation",
    "nvflare": "_nvflare_lines",
}


def _reader(kind: str) -> Callable[[Any, Layout], ParticipationLog]:
    """Return the reader of a format, loaded when it is asked for."""
    module = importlib.import_module(f"mrsa_watch.logs.{_READERS[kind]}")
    reader: Callable[[Any, Layout], ParticipationLog] = getattr(module, f"read_{kind}")
    return reader
