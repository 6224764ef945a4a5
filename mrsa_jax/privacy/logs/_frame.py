"""Participation logs in tables of pandas (or of a library that turns its own into them).

Long tables have a row for each client in each sum; wide ones a column for each client and the
rounds as their index, as a cross table has. Which of the two a table is must be plain from names
or entries: numbers of rounds and clients read as weights would answer wrongly.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.privacy.logs import _columns, _table, _wide
from mrsa_jax.privacy.logs._command import TABLE
from mrsa_jax.privacy.logs._decide import read_table
from mrsa_jax.privacy.logs._table import Column, Layout, ParticipationLog, fault

if TYPE_CHECKING:
    import pandas as pd


def read_frame(table: Any, options: Layout) -> ParticipationLog:
    """Read a table with a row for each participation, or a column for each client."""
    frame = _as_pandas(table)
    require(options.array is None, "array", "must be left out for a table", options.array)
    flat = _with_index(frame) if options.layout != "matrix" else frame
    header = [str(name) for name in flat.columns]

    @functools.cache
    def column(place: int) -> Column | None:
        return _column(flat.iloc[:, place])

    whole = _columns.Table(header, column, lambda row: f"{TABLE}: row {row}", TABLE, TABLE)
    if options.layout == "long" or (
        options.layout == "auto" and _columns.find(header, options, TABLE) is not None
    ):
        return read_table(whole, options)
    if options.layout == "auto":
        _wide.refuse_others(whole, options)
    return _read_wide(frame, options)


def _as_pandas(table: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    found: Any = table.to_pandas() if hasattr(table, "to_pandas") else None
    rule = "must be a file, or a table that pandas can take"
    require(isinstance(found, pd.DataFrame), "path", rule, type(table))
    return found


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the levels of its index that have names as columns."""
    named = [name for name in frame.index.names if name is not None]
    twice = [name for name in named if name in frame.columns or named.count(name) > 1]
    if twice:
        fault(TABLE, "columns and index of different names", f"{twice[0]!r} twice")
    unnamed = [i for i, name in enumerate(frame.index.names) if name is None]
    if not named:
        return frame
    return frame.reset_index(unnamed, drop=True).reset_index() if unnamed else frame.reset_index()


def _column(values: pd.Series) -> Column | None:
    """Return a column of a table, None where a value is missing; None for nested values."""
    plain = [
        None if missing else value.item() if isinstance(value, np.generic) else value
        for value, missing in zip(values.tolist(), values.isna().tolist(), strict=True)
    ]
    try:
        column = _table.distinct(plain)
    except TypeError:  # lists, mappings
        return None
    return Column(column.codes, _table.whole(column.names))


def _read_wide(frame: pd.DataFrame, options: Layout) -> ParticipationLog:
    header = [str(name) for name in frame.columns]
    rule = "a column for each client, and the rounds as the index"
    wide = _wide.wide_columns(header, options, TABLE, TABLE, rule)
    places = wide.clients
    array = np.empty((len(frame), len(places)), object)
    _table.check_memory(array.shape, 8, options, TABLE)
    for i, place in enumerate(places):
        column = frame.iloc[:, place]
        entries = column.tolist()
        for row, (entry, missing) in enumerate(zip(entries, column.isna().tolist(), strict=True)):
            if missing or not isinstance(entry, numbers.Real | np.bool_):
                fault(f"{TABLE}: row {row}, column {header[place]!r}",
                      "a number (or columns of rounds and of clients: read_log(table, "
                      "round_column=..., client_column=...))",
                      "nothing" if missing else repr(entry))  # fmt: skip
        array[:, i] = entries
    if options.layout == "auto" and array.size and not ((array == 0) | (array == 1)).all():
        shown = ", ".join(map(repr, header[:8]))
        fault(TABLE, "a table that can be read in one way only: read_log(table, round_column=..., "
              "client_column=...) says that its rows are of a round and a client, and "
              'read_log(table, layout="matrix") that its entries are weights',
              f"columns {shown} with entries other than 0 and 1")  # fmt: skip
    log = _wide.named_matrix(array, options, TABLE, header, wide)
    clients = tuple(_plain(frame.columns[place]) for place in places)
    own = frame.index if wide.rounds is None else frame.iloc[:, wide.rounds]
    rounds = _table.distinct([_plain(label) for label in own.tolist()])
    log = dataclasses.replace(log, clients=clients)
    return _wide.with_rounds(log, rounds, options, lambda row: f"{TABLE}: row {row}")


def _plain(label: Any) -> Hashable:
    return label.item() if isinstance(label, np.generic) else label
