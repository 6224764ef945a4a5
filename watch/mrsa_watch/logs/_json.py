"""JSON from outside, an object a line: read within bounds, or refused by a sentence."""

from __future__ import annotations

import collections
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from mrsa_watch.logs._names import fault, shown

MOST_LINE_BYTES = 2**27


def load_object(
    line: bytes, where: str, number: Callable[[str], Any]
) -> dict[str, Any]:
    """Return the JSON object of a line, as `load_value` does."""
    value = load_value(line, where, number)
    if not isinstance(value, dict):
        fault(where, "a JSON object", shown(value))
    return value


def load_value(line: bytes, where: str, number: Callable[[str], Any]) -> Any:
    """Return the JSON value of a line, or raise naming the place.

    Args:
        line: Its bytes.
        where: The place.
        number: Reads a number as it is written; a `ValueError` says what is wrong with
            it.
    """
    if len(line) > MOST_LINE_BYTES:
        fault(where, f"a line of at most {MOST_LINE_BYTES} bytes", f"{len(line)} bytes")
    with decoding(where, line):
        return _decoder(number).decode(line.decode())


def load_items(text: str, where: str, number: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the elements of a JSON array one after the other, holding only one."""
    # element by element: the whole array would need many times the memory of its text
    decoder = _decoder(number)
    space = re.compile(r"\s*")
    end = _after(text, 0, "[", where)
    is_first = True
    while True:
        start = space.match(text, end).end()  # type: ignore[union-attr]
        if text.startswith("]", start):
            break
        if not is_first:
            start = space.match(text, _after(text, start, ",", where)).end()  # type: ignore[union-attr]
        is_first = False
        with decoding(where, text[start : start + 60].encode(errors="replace")):
            item, end = decoder.raw_decode(text, start)
        yield item
    rest = text[start + 1 :].strip()
    if rest:
        fault(where, "one JSON array", f"{rest[:60]!r} behind it")


def _after(text: str, start: int, mark: str, where: str) -> int:
    if not text.startswith(mark, start):
        fault(where, f"{mark!r} in a JSON array", repr(text[start : start + 60]))
    return start + 1


def _decoder(number: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_once,
        parse_int=number,
        parse_float=number,
        parse_constant=_no_constant,
    )


@contextlib.contextmanager
def decoding(where: str, line: bytes) -> Iterator[None]:
    """Name the place and the reason where JSON cannot be read."""
    try:
        yield
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line[:60])[1:])
    except RecursionError:
        fault(where, "a JSON object", "values nested too deeply")
    except json.JSONDecodeError as error:
        fault(
            where,
            "a JSON object on one line",
            f"{line[:60].decode(errors='replace')!r}"
            f" ({error.msg} at column {error.colno})",
        )
    except ValueError as error:
        fault(where, "a JSON object of finite numbers and different keys", str(error))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"key {shown(twice(key for key, _ in pairs))} twice")
    return fields


def twice(names: Iterable[str]) -> str:
    return collections.Counter(names).most_common(1)[0][0]


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
