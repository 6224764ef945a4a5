"""Follows a file that grows: each line once, as soon as it is whole."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from io import FileIO
from typing import NoReturn

from mrsa_watch._base.errors import (
    POSITIVE,
    ConfigurationError,
    check_integer,
    check_number,
    require,
)
from mrsa_watch.logs import MOST_LINE_BYTES

_CHUNK_BYTES = 2**20
_TAIL_BYTES = 64  # of what was read, compared before more is


def follow(
    path: str | os.PathLike[str], *, start: int = 0, poll_seconds: float | int | None = 0.2
) -> Iterator[bytes]:
    r"""Yield the complete lines of a file that grows, with their ends.

    A line without its end does not count yet. The offset of the next line is `start` and the
    lengths of all that were yielded, so a reader who kept it can continue from there.

    Args:
        path: The file; waited for if it is not there yet.
        start: Where to begin, in bytes: 0, or where a line ended.
        poll_seconds: How often to look for more. None ends where the file has no further
            complete line now.

    Yields:
        Each line.

    Raises:
        ConfigurationError: If the file became shorter, was replaced or changed in what was read,
            if `start` is not where a line begins, or if a line is longer than 128 MiB.

    Examples:
        >>> from mrsa_watch import follow
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
        >>> _ = path.write_bytes(b"one\ntwo\nthr")
        >>> list(follow(path, poll_seconds=None)), list(follow(path, start=4, poll_seconds=None))
        ([b'one\n', b'two\n'], [b'two\n'])
    """
    start = check_integer(start, "start", 0)
    if poll_seconds is not None:
        poll_seconds = check_number(poll_seconds, "poll_seconds", "must be positive", POSITIVE)
    return _follow(pathlib.Path(path), start, poll_seconds)


def _follow(path: pathlib.Path, start: int, poll_seconds: float | None) -> Iterator[bytes]:
    stream = _opened(path, poll_seconds)
    if stream is None:
        return
    with stream:
        tail = _tail_before(stream, path, start)
        parts: list[bytes] = []  # of the line that is not whole yet
        while True:
            _check_same(stream, path, tail)
            chunk = stream.read(_CHUNK_BYTES)
            tail = (tail + chunk)[-_TAIL_BYTES:]
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield b"".join([*parts, end, b"\n"])
                parts = []
            parts += [rest] if rest else []
            if sum(map(len, parts)) > MOST_LINE_BYTES:
                _refuse(path, f"must have lines of at most {MOST_LINE_BYTES} bytes")
            if not chunk:
                if poll_seconds is None:
                    return
                time.sleep(poll_seconds)


def _opened(path: pathlib.Path, poll_seconds: float | None) -> FileIO | None:
    """Return the file, once it is there."""
    while True:
        try:
            return path.open("rb", buffering=0)
        except FileNotFoundError:
            if poll_seconds is None:
                return None
        time.sleep(poll_seconds)


def _tail_before(stream: FileIO, path: pathlib.Path, start: int) -> bytes:
    """Go to where reading starts, and return the bytes before."""
    size = os.fstat(stream.fileno()).st_size
    require(start <= size, "start", f"must lie within the {size} bytes of {path}", start)
    stream.seek(max(start - _TAIL_BYTES, 0))
    tail = stream.read(min(start, _TAIL_BYTES))
    whole = not tail or tail.endswith(b"\n")
    require(whole, "start", f"must be where a line of {path} begins", start)
    return tail


def _check_same(stream: FileIO, path: pathlib.Path, tail: bytes) -> None:
    """Raise unless the file at the path is still the one that is read, and only grew."""
    own = os.fstat(stream.fileno())
    try:
        now = path.stat()
    except FileNotFoundError:
        _refuse(path, "must stay in its place while it is followed")
    if (own.st_dev, own.st_ino) != (now.st_dev, now.st_ino):
        _refuse(path, "must not be replaced while it is followed")
    read = stream.tell()
    if own.st_size < read:
        _refuse(path, f"must only grow (it had {read} bytes, now {own.st_size})")
    if os.pread(stream.fileno(), len(tail), read - len(tail)) != tail:
        _refuse(path, f"must only grow (what it held before byte {read} changed)")


def _refuse(path: pathlib.Path, rule: str) -> NoReturn:
    raise ConfigurationError(f"`path` {rule}; got {str(path)!r}")
