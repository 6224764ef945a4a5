"""JSON of other systems as rows.

An object for each client, or for each round with its clients.
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
from mrsa_watch.logs._command import refuse
from mrsa_watch.logs._json import decoding, load_items, load_object, load_value, short
from mrsa_watch.logs._names import fault
from mrsa_watch.logs._patterns import skeleton
from mrsa_watch.logs._table import Layout
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
        lines = ((n, line) for n, line in enumerate(lines_of(data), 1) if line.strip())
        for n, line in lines:
            fields = load_object(line, f"{path}:{n}", number)
            inner = (
                _records_in(fields, path)
                if len(data.strip()) == len(line.strip())
                else None
            )
            yield from (
                _numbered(inner, path)
                if inner is not None
                else [(f"{path}:{n}", fields)]
            )
        return
    if data.lstrip().startswith(b"["):
        with decoding(path, data):
            text = data.decode().lstrip()
        yield from _numbered(load_items(text, path, number), path)
        return
    if len(data) > _MOST_DOCUMENT:
        fault(
            path,
            f"an object a line, or one object of at most {_MOST_DOCUMENT} bytes",
            f"{len(data)} bytes",
        )
    found = load_value(data, path, number)
    inner = _records_in(found, path) if isinstance(found, dict) else None
    yield from _numbered([found] if inner is None else inner, path)


def _numbered(items: Iterable[Any], path: str) -> Iterator[Record]:
    for n, item in enumerate(items, 1):
        if not isinstance(item, dict):
            fault(f"{path}, element {n}", "a JSON object", f"{item!a:.60}")
        yield f"{path}, element {n}", item


def _records_in(found: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """Return the records that one object holds; None where it is a record itself."""
    if any(
        plain_name(key) in ROUND_NAMES and not isinstance(value, list)
        for key, value in found.items()
    ):
        return None
    lists = {
        key: value for key, value in found.items() if isinstance(value, list) and value
    }
    of_objects = [
        key for key, own in lists.items() if all(isinstance(one, dict) for one in own)
    ]
    if len(of_objects) > 1:
        fault(path, "one list of records", " and ".join(map(short, of_objects)))
    if of_objects:
        return [dict(one) for one in lists[of_objects[0]]]
    # a table, column by column
    if any(plain_name(key) in ROUND_NAMES for key in lists):
        lengths = {len(own) for own in lists.values()}
        if len(lengths) > 1 or len(lists) < len(found):
            fault(path, "columns of one length", ", ".join(map(short, found)))
        return [
            dict(zip(lists, row, strict=True))
            for row in zip(*lists.values(), strict=True)
        ]
    forms = {skeleton(key) for key in found}
    if len(forms) == 1 and "#" in forms.pop():  # a round under each key
        if all(isinstance(value, dict) for value in found.values()):
            return [{"round": key, **value} for key, value in found.items()]
        if len(lists) == len(found):
            return [{"round": key, "clients": value} for key, value in found.items()]
    return None


# ---- From a record of a round to a row for each of its clients.


def rows_of(
    records: Callable[[], Iterator[Record]], options: Layout, path: str
) -> tuple[Layout, Iterator[Record]]:
    """Return settings that name the column of the clients, and a row for each client of a record.

    Args:
        records: Yields the objects of the file, each time from the first.
        options: How to read it.
        path: The file.
    """
    found = _lists_in(records)
    key = _members_among(found, options, path)
    if key is None:
        return options, records()
    if options.client_column is None and not found[key].has_names:
        options = dataclasses.replace(options, client_column=key)
    lists = {name: own for name, own in found.items() if name != key}
    return options, _rows(records, key, lists)


@dataclasses.dataclass
class _List:
    """What is known of the lists under one key.

    Attributes:
        is_parallel: Whether each is as long as the first list of clients in its record.
        is_of_clients: Whether its name says that it names clients.
        has_names: Whether its elements are objects that name their clients by a usual
            key.
    """

    is_parallel: bool = True
    is_of_clients: bool = False
    has_names: bool = False


def _lists_in(records: Callable[[], Iterator[Record]]) -> dict[str, _List]:
    """Return the keys that hold lists, or mappings of clients, by what their names say."""
    found: dict[str, _List] = {}
    seen: dict[str, int] = {}
    count = 0
    for _, fields in records():
        if count == _MOST_PLAIN and not found:
            return {}
        count += 1
        nested = {
            key: value
            for key, value in fields.items()
            if isinstance(value, list | dict)
        }
        lengths = {
            len(value) for key, value in nested.items() if isinstance(value, list)
        }
        for key, value in nested.items():
            plain = plain_name(key)
            has_members = is_members(plain)
            if isinstance(value, dict) and not has_members:
                continue
            if (
                isinstance(value, list)
                and not has_members
                and any(isinstance(one, list | dict) for one in value)
            ):
                continue
            own = found.setdefault(key, _List())
            own.is_of_clients |= has_members or bool(_OTHERS.search(plain))
            own.is_parallel &= len(lengths) == 1
            own.has_names |= isinstance(value, list) and any(
                isinstance(one, dict) and _has_name(one) for one in value
            )
            seen[key] = seen.get(key, 0) + 1
    for key, own in found.items():
        own.is_parallel &= seen[key] == count
    return found


def _has_name(element: Mapping[str, Any]) -> bool:
    return any(plain_name(key) in CLIENT_NAMES for key in element)


def _members_among(
    found: Mapping[str, _List], options: Layout, path: str
) -> str | None:
    """Return the key of the clients in each sum; None where each object is a row."""
    if options.client_column is not None:
        return options.client_column if options.client_column in found else None
    plain = {key: plain_name(key) for key in found}
    members = [key for key in found if is_members(plain[key])]
    if len(members) == 1:
        return members[0]
    rest = members or [key for key in found if found[key].is_of_clients]
    if not rest:
        return None
    return _refuse_lists(rest, options, path)


def _refuse_lists(keys: Sequence[str], options: Layout, path: str) -> NoReturn:
    """Refuse lists of which none says that its clients are in the sum."""
    likely = min(keys, key=lambda key: bool(_LOST.search(plain_name(key))))
    told = ", ".join(map(short, keys))
    expected = "one list of the clients in each sum (--client-column NAME)"
    found = (
        f"lists {told}, which may be of other clients; this takes all of "
        f"{short(likely)} for the "
        "clients in the sum, which is right only if none of them was lost"
    )
    refuse(
        path, expected, found, path, dataclasses.replace(options, client_column=likely)
    )


def _rows(
    records: Callable[[], Iterator[Record]], key: str, lists: Mapping[str, _List]
) -> Iterator[Record]:
    """Yield a row for each client of each record."""
    for place, fields in records():
        value = fields.get(key)
        if value is not None and not isinstance(value, list | dict):
            fault(
                place,
                f"plain values in column {short(key)}, or a list in each record",
                repr(value),
            )
        if value is None:
            yield place, fields  # of which the clients are missing
            continue
        common = {name: own for name, own in fields.items() if name != key}
        beside = {}
        for name, own in lists.items():
            other = common.get(name)
            if other is None and own.is_of_clients:  # who was lost where none is named?
                common[name] = not _LOST.search(plain_name(name))
            if not isinstance(other, list):
                continue
            if own.is_of_clients:  # who of them is also in another list
                del common[name]
                members = {
                    cell_of(one) for one in other if not isinstance(one, list | dict)
                }
                common[name] = members
            elif own.is_parallel and len(other) == len(value):
                del common[name]
                beside[name] = other
        for n, (client, more) in enumerate(_clients_in(value, key)):
            row = {
                name: (client in own if isinstance(own, set) else own)
                for name, own in common.items()
            }
            row |= {name: own[n] for name, own in beside.items()}
            yield place, {**row, **more}


def _clients_in(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the clients of a list or mapping, with the values of each."""
    if isinstance(value, dict):
        for client, own in value.items():
            more = own if isinstance(own, dict) else {_VALUE: own}
            yield client, {key: client, **more}
        return
    for one in value:
        if not isinstance(one, dict):
            yield cell_of(one), {key: one}
            continue
        name = next((own for own in one if plain_name(own) in CLIENT_NAMES), None)
        named = next((own for own in ("id", "name") if own in one), None)
        client = one.get(name or named or "")
        rest = one if name is not None else {k: v for k, v in one.items() if k != named}
        yield cell_of(client), rest if name is not None else {key: client, **rest}


def cell_of(value: Any) -> str:
    """Return a value as text, as a table in text has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
