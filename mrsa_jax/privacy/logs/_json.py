"""JSON from outside, an object a line: read within bounds, or refused by a sentence."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NoReturn

from mrsa_jax.privacy.logs._table import fault

MOST_LINE_BYTES = 2**27


def load_object(line: bytes, where: str, number: Callable[[str], Any]) -> dict[str, Any]:
    """Return the JSON object of a line, or raise naming the place.

    Args:
        line: Its bytes.
        where: The place.
        number: Reads a number as it is written; a `ValueError` says what is wrong with it.
    """
    if len(line) > MOST_LINE_BYTES:
        fault(where, f"a line of at most {MOST_LINE_BYTES} bytes", f"{len(line)} bytes")
    try:
        found = json.loads(
            line.decode(),
            object_pairs_hook=_once,
            parse_int=number,
            parse_float=number,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line[:60])[1:])
    except RecursionError:
        fault(where, "a JSON object", "values nested too deeply")
    except json.JSONDecodeError as error:
        fault(where, "a JSON object on a line of its own", f"{line[:60].decode(errors='replace')!r}"
              f" ({error.msg} at column {error.colno})")  # fmt: skip
    except ValueError as error:
        fault(where, "a JSON object of finite numbers and different keys", str(error))
    if not isinstance(found, dict):
        fault(where, "a JSON object", shown(found))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"key {shown(twice(key for key, _ in pairs))} twice")
    return found


def twice(names: Iterable[str]) -> str:
    return collections.Counter(names).most_common(1)[0][0]


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, Fraction):
        return str(value)
    return ascii(value if not isinstance(value, str) else value[:100])
