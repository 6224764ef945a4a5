"""What comes from outside: bytes read within bounds, names shown without their tricks.

Nothing here imports NumPy or JAX.
"""

from __future__ import annotations

import gzip
import pathlib
import re
import zlib
from typing import Any

from mrsa_watch._base.errors import DataNotFoundError

_GZIP = b"\x1f\x8b"
_CHUNK_BYTES = 2**20
_FORMULA = "=+-@\t\r"  # what makes a spreadsheet compute a cell, or reach another one
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def start_of(path: pathlib.Path, count: int) -> bytes:
    """Return the first bytes of a file as it is.

    Raises:
        DataNotFoundError: If there is none that can be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataNotFoundError(
            f"{path}: expected a file; found none that can be read ({reason})"
        ) from error


def read_bytes(path: pathlib.Path, most: int) -> bytes:
    """Return the bytes of a file, unpacked where they are gzip's, or say why not.

    Args:
        path: The file.
        most: Bytes that may come of it; a small file can unpack to any size.

    Raises:
        ValueError: With a phrase for "found ...": more bytes than that, or broken gzip.
        OSError: If the file cannot be read.
    """
    parts, left = [], most
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            while part := stream.read(min(_CHUNK_BYTES, left + 1)):
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise ValueError(f"more than {most} bytes{' when unpacked' if packed else ''}")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"gzip that is broken or cut short ({error})") from error
    return b"".join(parts)


def printable(value: Any, keep: str = "") -> str:
    r"""Return a value as text in which nothing commands a terminal or hides what is written.

    Control and format characters (escapes, line breaks, marks that turn the direction of writing)
    and halves of characters stand as their codes.

    Args:
        value: Anything.
        keep: Characters that stay as they are.

    Examples:
        >>> printable("anna\x1b[2J\u202e"), printable("Ångström 7")
        ('anna\\x1b[2J\\u202e', 'Ångström 7')
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() or mark in keep else ascii(mark)[1:-1] for mark in text
    )


def cell(value: Any) -> Any:
    """Return a value for a cell of CSV that no spreadsheet takes for a formula.

    Text that begins with =, +, -, @, a tab or a carriage return gets an apostrophe before it;
    numbers and text that is a number stay as they are.

    Examples:
        >>> cell("=1+1"), cell("@anna"), cell("-1"), cell(-1), cell("anna")
        ("'=1+1", "'@anna", '-1', -1, 'anna')
    """
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = str(value)
    if text[:1] and text[0] in _FORMULA and not _NUMBER.fullmatch(text):
        return "'" + text
    return value
