"""Logs in text: which format one is of, and its bytes."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from mrsa_watch._base.untrusted import first_bytes, read_bytes
from mrsa_watch.logs._names import fault

_MARK = b"\xef\xbb\xbf"  # of the order of bytes
LEAST_BYTES = 2**28  # that a text may have where less memory is allowed for the matrix
_START_BYTES = 2**16  # by which a format is recognised
_FEW_BYTES = 200  # by which an encoding is
_MARKS = {  # of other encodings
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
# A contribution in NVFlare's log, or the time with which a line of it begins.
_NVFLARE = re.compile(
    rb" (?:ACCEPTED|REJECTED) by the aggregator at round \d"
    rb"|\A\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - |\A\{\"asctime\": .*\"fl_ctx\": "
)


def text_of(path: pathlib.Path, memory_bytes: int) -> bytes:
    """Return the bytes of a text in UTF-8, unpacked, without a mark of their order."""
    try:
        data = read_bytes(path, max(memory_bytes, LEAST_BYTES))
    except (OSError, ValueError) as error:
        fault(str(path), "a text that can be read", str(error))
    encoding = _encoding_of(data)
    if encoding is not None:
        try:
            data = data.decode(encoding).encode()
        except UnicodeError as error:
            expected = f"text in {encoding.upper()}, as its first bytes say"
            fault(str(path), expected, str(error))
    return data.removeprefix(_MARK)


def _encoding_of(data: bytes) -> str | None:
    """Return the encoding of a text that is not UTF-8, by its mark or its NULs."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return encoding
    start = data[:_FEW_BYTES]
    if len(start) < 4:
        return None
    odd = start[1::2]
    even = start[::2]
    # most letters of Latin texts have a NUL on one side
    if 0 not in even and 2 * odd.count(0) >= len(odd):
        return "utf-16-le"
    if 0 not in odd and 2 * even.count(0) >= len(even):
        return "utf-16-be"
    return None


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a text with their ends."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def text_format(path: pathlib.Path) -> str:
    """Return the name of a text's format by its first lines."""
    start = first_bytes(path, _START_BYTES)
    encoding = _encoding_of(start)
    if encoding is not None:
        start = start[: len(start) // 4 * 4].decode(encoding, errors="ignore").encode()
    start = start.removeprefix(_MARK).lstrip()
    if _NVFLARE.search(start):
        return "nvflare"
    return "jsonl" if start.startswith((b"{", b"[")) else "csv"
