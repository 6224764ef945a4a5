"""Logs in text: which format one is of, and its bytes."""

from __future__ import annotations

import gzip
import pathlib
import re
import zlib
from collections.abc import Iterator

from mrsa_watch._base.untrusted import read_bytes, start_of
from mrsa_watch.logs._names import fault

_MARK = b"\xef\xbb\xbf"  # of the order of bytes
LEAST_BYTES = 2**28  # that a text may have where less memory is allowed for the matrix
_START_BYTES = 2**16  # by which a format is recognised
_GZIP = b"\x1f\x8b"
# A contribution in NVFlare's log, or the time with which a line of it begins.
_NVFLARE = re.compile(
    rb" (?:ACCEPTED|REJECTED) by the aggregator at round \d"
    rb"|\A\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - |\A\{\"asctime\": .*\"fl_ctx\": "
)


def text_of(path: pathlib.Path, memory_bytes: int) -> bytes:
    """Return the bytes of a text, unpacked where they are gzip's, without a mark of their order."""
    try:
        data = read_bytes(path, max(memory_bytes, LEAST_BYTES))
    except (OSError, ValueError) as error:
        fault(str(path), "a text that can be read", str(error))
    return data.removeprefix(_MARK)


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a text with their ends."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def text_format(path: pathlib.Path) -> str:
    """Return the name of a text's format by its first lines."""
    start = _first_bytes(path).removeprefix(_MARK).lstrip()
    if _NVFLARE.search(start):
        return "nvflare"
    return "jsonl" if start.startswith(b"{") else "csv"


def _first_bytes(path: pathlib.Path) -> bytes:
    """Return the first bytes of a text, unpacked."""
    if start_of(path, 2) != _GZIP:
        return start_of(path, _START_BYTES)
    with gzip.open(path) as stream:
        try:
            return bytes(stream.read(_START_BYTES))
        except (gzip.BadGzipFile, EOFError, zlib.error):  # said when it is read
            return b""
