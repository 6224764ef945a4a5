"""Untrusted input: bytes read within bounds, names shown without their tricks.

Nothing here imports NumPy or JAX.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pathlib
import re
import zlib
from typing import IO, Any

from mrsa_watch._base.errors import DataNotFoundError

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_MOST_DICTIONARY = 2**28  # bytes that unpacking itself may take
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
    """Return the bytes of a file, unpacked where they are packed, or say why not.

    Args:
        path: The file: as it is, or packed by gzip, bzip2, xz, or (with pyarrow) zstd.
        most: Bytes that may come of it; a small file can unpack to any size.

    Raises:
        ValueError: With a phrase for "found ...": more bytes than that, or a broken
            file.
        OSError: If the file cannot be read.
    """
    data, is_whole = _unpacked(path, most)
    if not is_whole:
        more = " when unpacked" if packing_of(start_of(path, 6)) else ""
        raise ValueError(f"more than {most} bytes{more}")
    return data


def first_bytes(path: pathlib.Path, most: int) -> bytes:
    """Return the first bytes of a file, unpacked.

    None where it is broken, as reading it reports.

    Raises:
        DataNotFoundError: If there is none that can be read.
    """
    if packing_of(start_of(path, 6)) is None:
        return start_of(path, most)
    try:
        return _unpacked(path, most)[0]
    except ValueError:
        return b""


def packing_of(start: bytes) -> str | None:
    """Return by what a file is packed that starts so; None if it is not."""
    return next(
        (name for mark, name in _PACKED.items() if start.startswith(mark)), None
    )


def _unpacked(path: pathlib.Path, most: int) -> tuple[bytes, bool]:
    """Return the first bytes that come of a file, and whether they are all."""
    parts, room = [], most
    with path.open("rb") as raw:
        packing = packing_of(raw.read(6))
        raw.seek(0)
        stream = _stream_of(raw, packing)
        try:
            while room >= 0 and (part := stream.read(min(_CHUNK_BYTES, room + 1))):
                parts.append(part)
                room -= len(part)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            if packing is None:
                raise
            raise ValueError(
                f"{packing} that is broken or cut short ({error})"
            ) from error
    data = b"".join(parts)
    return data[:most], room >= 0


def _stream_of(raw: IO[bytes], packing: str | None) -> Any:
    if packing == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if packing == "bzip2":
        return bz2.BZ2File(raw)
    if packing == "xz":
        return io.BufferedReader(_Xz(raw))
    if packing == "zstd":
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ValueError(
                "zstd, which pyarrow unpacks (it is not installed)"
            ) from error
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    return raw


class _Xz(io.RawIOBase):
    """A file packed by xz, unpacked in bounded memory.

    `lzma.LZMAFile` trusts what a file asks.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 at the end."""
        while True:
            packed = b""
            if self._unpacker.eof:
                rest = self._unpacker.unused_data or self._raw.read(_CHUNK_BYTES)
                packed = rest.lstrip(b"\0") if rest else b""  # streams may be padded
                if not packed:
                    return 0
                self._unpacker = lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY)
            elif self._unpacker.needs_input:
                packed = self._raw.read(_CHUNK_BYTES)
                if not packed:
                    raise EOFError("its end is missing")
            part = self._unpacker.decompress(packed, len(buffer))
            if part:
                buffer[: len(part)] = part
                return len(part)


def printable(value: Any, keep: str = "") -> str:
    r"""Return a value as text that can neither command a terminal nor hide a part.

    Control and format characters (escapes, line breaks, marks that turn the direction
    of writing) and halves of characters stand as their codes.

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
        mark if mark.isprintable() or mark in keep else ascii(mark)[1:-1]
        for mark in text
    )


def cell(value: Any) -> Any:
    """Return a value for a cell of CSV that no spreadsheet takes for a formula.

    Text that begins with =, +, -, @, a tab or a carriage return gets an apostrophe
    before it; numbers and text that is a number stay as they are.

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
