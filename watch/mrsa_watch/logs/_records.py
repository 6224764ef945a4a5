"""JSON of other systems as rows: objects per client, or per round with its clients.

A record of a round lists its clients, alone or with values of each
(`"num_examples": [10, 20]`), or maps each to a value. Only a list whose name says that
its clients are in the sum is taken as such: those who were selected need not have
answered.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from mrsa_watch.logs._columns import CLIENT_NAMES, ROUND_NAMES, is_members, plain_name
from mrsa_watch.logs._command import Layout, Source, refuse
from mrsa_watch.logs._json import decoding, load_items, load_object, load_value
from mrsa_watch.logs._names import fault, short
from mrsa_watch.logs._patterns import skeleton
from mrsa_watch.logs._text import lines_of

Record = tuple[str, dict[str, Any]]
"""The place of an object, and the object."""
# bytes of one object that is not on one line: all of it is held at once
_MOST_DOCUMENT = 2**26
_TORN = b"#torn"
_MOST_PLAIN = 100  # objects without a list, after which none is looked for
_VALUE = "value"  # the column of what a mapping has for each client
_OTHERS = re.compile(
    r"select|sampl|invit|asked|avail|online|candidate|eligible|drop|fail|lost|exclu|offline|eval|"
    r"test|valid|pending|waiting|target|assigned|scheduled|reject|timeout|timed|straggl|miss|skip|"
    r"cancel|abort"
)
_LOST = re.compile(
    r"drop|fail|lost|exclu|offline|reject|timeout|timed|straggl|miss|skip|cancel|abort"
)


def is_document(data: bytes) -> bool:
    """Return whether JSON is one array, or one object that is not on one line."""
    start = data.lstrip()
    first = start.split(b"\n", 1)[0].strip()
    if first.endswith(_TORN):  # of this package's log
        return False
    if start.startswith(b"[") or first == b"{":
        return True
    is_cut = first.startswith(b"{") and not first.endswith(b"}")
    return is_cut and start.rstrip().endswith(b"}") and len(data) <= _MOST_DOCUMENT


def records_of(
    data: bytes, path: str, number: Callable[[str], Any]
) -> Iterator[Record]:
    """Yield the objects of JSON Lines, of an array, or of the one list in an object."""
    if not is_document(data):
        is_single = b"\n" not in data.strip()
        lines = ((n, line) for n, line in enumerate(lines_of(data), 1) if line.strip())
        for n, line in lines:
            fields = load_object(line, f"{path}:{n}", number)
            inner = _records_in(fields, path) if is_single else None
            if inner is None:
                yield f"{path}:{n}", fields
            else:
                yield from _numbered(inner, path)
        return
    if data.lstrip().startswith(b"["):
        with decoding(path, data):
            text = data.decode().lstrip()
        yield from _numbered(load_items(text, path, number), path)
        return
    if len(data) > _MOST_DOCUMENT:
        expected = f"an object a line, or one object of at most {_MOST_DOCUMENT} bytes"
        fault(path, expected, f"{len(data)} bytes")
    value = load_value(data, path, number)
    inner = _records_in(value, path) if isinstance(value, dict) else None
    yield from _numbered([value] if inner is None else inner, path)


def _numbered(items: Iterable[Any], path: str) -> Iterator[Record]:
    for n, item in enumerate(items, 1):
        if not isinstance(item, dict):
            fault(f"{path}, element {n}", "a JSON object", f"{item!a:.60}")
        yield f"{path}, element {n}", item


def _records_in(fields: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """Return the records that one object holds; None where it is a record itself."""
    names_round = {key for key in fields if plain_name(key) in ROUND_NAMES}
    if any(not isinstance(fields[key], list) for key in names_round):
        return None
    lists = {
        key: value for key, value in fields.items() if isinstance(value, list) and value
    }
    of_objects = [
        key
        for key, values in lists.items()
        if all(isinstance(value, dict) for value in values)
    ]
    if len(of_objects) > 1:
        fault(path, "one list of records", " and ".join(map(short, of_objects)))
    if of_objects:
        return list(map(dict, lists[of_objects[0]]))
    # a table, column by column
    if not names_round.isdisjoint(lists):
        if len(set(map(len, lists.values()))) > 1 or len(lists) < len(fields):
            fault(path, "columns of one length", ", ".join(map(short, fields)))
        rows = zip(*lists.values(), strict=True)
        return [dict(zip(lists, row, strict=True)) for row in rows]
    forms = set(map(skeleton, fields))
    if len(forms) == 1 and "#" in forms.pop():  # a round under each key
        if all(isinstance(value, dict) for value in fields.values()):
            return [{"round": key, **value} for key, value in fields.items()]
        if len(lists) == len(fields):
            return [{"round": key, "clients": value} for key, value in fields.items()]
    return None


def rows_of(
    records: Callable[[], Iterator[Record]], source: Source
) -> tuple[Layout, Iterator[Record]]:
    """Return settings with the column of clients, and a row for each in a record.

    Args:
        records: Yields the objects of the file, each time from the first.
        source: The file, and how to read it.
    """
    options = source.options
    lists = _lists_in(records)
    key = _members_among(lists, source)
    if key is None:
        return options, records()
    members = lists.pop(key)
    if options.client_column is None and not members.has_names:
        options = dataclasses.replace(options, client_column=key)
    return options, _rows(records, key, lists)


@dataclasses.dataclass
class _List:
    """Properties that the lists under one key have in common.

    Attributes:
        is_parallel: Whether each is as long as the first list of clients in its record.
        is_of_clients: Whether its name says that it names clients.
        has_names: Whether its elements are objects that name their clients by a usual
            key.
        count: In how many records there is one.
    """

    is_parallel: bool = True
    is_of_clients: bool = False
    has_names: bool = False
    count: int = 0


def _lists_in(records: Callable[[], Iterator[Record]]) -> dict[str, _List]:
    """Return the keys that hold lists, or mappings of clients, by their names."""
    lists: dict[str, _List] = {}
    count = 0
    for _, fields in records():
        if count == _MOST_PLAIN and not lists:
            return {}
        count += 1
        lengths = {len(value) for value in fields.values() if isinstance(value, list)}
        for key, value in fields.items():
            if not isinstance(value, list | dict):
                continue
            plain = plain_name(key)
            has_members = is_members(plain)
            is_list = isinstance(value, list)
            if not has_members and (
                not is_list or any(isinstance(each, list | dict) for each in value)
            ):
                continue
            column = lists.setdefault(key, _List())
            column.is_of_clients |= has_members or bool(_OTHERS.search(plain))
            column.is_parallel &= len(lengths) == 1
            column.has_names |= is_list and any(
                isinstance(each, dict) and _name_in(each) is not None for each in value
            )
            column.count += 1
    for column in lists.values():
        column.is_parallel &= column.count == count
    return lists


def _name_in(element: Mapping[str, Any]) -> str | None:
    """Return the first usual key of a client; None where there is none."""
    return next((key for key in element if plain_name(key) in CLIENT_NAMES), None)


def _members_among(lists: Mapping[str, _List], source: Source) -> str | None:
    """Return the key of the clients in each sum; None where each object is a row."""
    column = source.options.client_column
    if column is not None:
        return column if column in lists else None
    members = [key for key in lists if is_members(plain_name(key))]
    if len(members) == 1:
        return members[0]
    rest = members or [key for key in lists if lists[key].is_of_clients]
    return _refuse_lists(rest, source) if rest else None


def _refuse_lists(rest: Sequence[str], source: Source) -> NoReturn:
    """Refuse lists of which none says that its clients are in the sum."""
    likely = min(rest, key=lambda key: bool(_LOST.search(plain_name(key))))
    refuse(
        source,
        source.path,
        "one list of the clients in each sum (--client-column NAME)",
        f"lists {', '.join(map(short, rest))}, which may be of other clients; this "
        f"takes all of {short(likely)} for the clients in the sum, which is right only "
        "if none of them was lost",
        client_column=likely,
    )


def _rows(
    records: Callable[[], Iterator[Record]], key: str, lists: Mapping[str, _List]
) -> Iterator[Record]:
    """Yield a row for each client of each record."""
    for place, fields in records():
        value = fields.get(key)
        if value is None:
            yield place, fields  # of which the clients are missing
            continue
        if not isinstance(value, list | dict):
            expected = f"plain values in column {short(key)}, or a list in each record"
            fault(place, expected, repr(value))
        common = {name: other for name, other in fields.items() if name != key}
        parallel: dict[str, list[Any]] = {}
        for name, column in lists.items():
            other = common.get(name)
            if other is None and column.is_of_clients:
                # who was lost where none is named?
                common[name] = not _LOST.search(plain_name(name))
            if not isinstance(other, list):
                continue
            if column.is_of_clients:  # who of them is also in another list
                del common[name]
                common[name] = {
                    cell_of(each) for each in other if not isinstance(each, list | dict)
                }
            elif column.is_parallel and len(other) == len(value):
                parallel[name] = common.pop(name)
        for n, (client, more) in enumerate(_clients_in(value, key)):
            row = {
                name: client in other if isinstance(other, set) else other
                for name, other in common.items()
            }
            row |= {name: values[n] for name, values in parallel.items()}
            yield place, {**row, **more}


def _clients_in(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the clients of a list or mapping, with the values of each."""
    if isinstance(value, dict):
        for client, values in value.items():
            more = values if isinstance(values, dict) else {_VALUE: values}
            yield client, {key: client, **more}
        return
    for element in value:
        if not isinstance(element, dict):
            yield cell_of(element), {key: element}
            continue
        name = _name_in(element)
        if name is not None:
            yield cell_of(element[name]), element
            continue
        name = next((usual for usual in ("id", "name") if usual in element), None)
        client = element.get(name or "")
        rest = {other: value for other, value in element.items() if other != name}
        yield cell_of(client), {key: client, **rest}


def cell_of(value: Any) -> str:
    """Return a value as text, as a table in text has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
