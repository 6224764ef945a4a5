"""Follows a file that grows: each line once, as soon as it is whole."""

from __future__ import annotations

import collections
import os
import pathlib
import time
import weakref
from collections.abc import Iterator
from typing import NoReturn

from mrsa_watch._base.errors import (
    POSITIVE,
    ConfigurationError,
    check_integer,
    check_number,
    require,
)
from mrsa_watch._base.files import user_path
from mrsa_watch.logs import MOST_LINE_BYTES

_CHUNK_BYTES = 2**20
_TAIL_BYTES = 64  # of what was read, compared before more is


def follow(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    poll_seconds: float | int | None = 0.2,
) -> Iterator[bytes]:
    r"""Yield the complete lines of a file that grows, with their ends.

    A line without its end does not count yet. The offset of the next line is `start`
    and the lengths of all that were yielded, so a reader who kept it can continue from
    there.

    Args:
        path: The file; waited for if it is not there yet.
        start: Where to begin, in bytes: 0, or where a line ended.
        poll_seconds: How often to look for more. None ends where the file has no
            further complete line now.

    Yields:
        Each line.

    Raises:
        ConfigurationError: If the file became shorter, was replaced or changed in what
            was read, if `start` is not where a line begins, or if a line is longer than
            128 MiB.

    Examples:
        >>> from mrsa_watch import follow
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
        >>> _ = path.write_bytes(b"one\ntwo\nthr")
        >>> [list(follow(path, start=k, poll_seconds=None)) for k in (0, 4)]
        [[b'one\n', b'two\n'], [b'two\n']]
    """
    start = check_integer(start, "start", 0)
    if poll_seconds is not None:
        rule = "must be positive"
        poll_seconds = check_number(poll_seconds, "poll_seconds", rule, POSITIVE)
    return _follow(user_path(path), start, poll_seconds)


def _follow(
    path: pathlib.Path, start: int, poll_seconds: float | None
) -> Iterator[bytes]:
    while True:
        try:
            tail = Tail(path, start)
            break
        except FileNotFoundError:
            if poll_seconds is None:
                return
        time.sleep(poll_seconds)
    with tail:
        while True:
            yield from tail.lines()
            if poll_seconds is None:
                return
            time.sleep(poll_seconds)


class Tail:
    """A file that grows, and how far it was read; a context.

    Args:
        path: The file.
        start: Where to begin, in bytes: 0, or where a line ended.

    Raises:
        ConfigurationError: If `start` is not where a line begins.
        FileNotFoundError: If there is no such file.
    """

    def __init__(self, path: pathlib.Path, start: int = 0) -> None:
        self._path = path
        self._stream = path.open("rb", buffering=0)
        try:
            self._before = self._go_to(start)
        except BaseException:
            self._stream.close()
            raise
        weakref.finalize(self, self._stream.close)  # of a gate that nobody closes
        self._parts: list[bytes] = []  # of the line that is not whole yet
        # read and not yielded yet
        self._whole: collections.deque[bytes] = collections.deque()

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines completed since the last call, with their ends.

        Raises:
            ConfigurationError: If the file became shorter, was replaced or changed in
                what was read, or if a line is longer than 128 MiB.
        """
        while True:
            while self._whole:
                yield self._whole.popleft()
            self._check_same()
            chunk = self._stream.read(_CHUNK_BYTES)
            if not chunk:
                return
            # compared at the next look, to notice a change in what was read
            self._before = (self._before + chunk)[-_TAIL_BYTES:]
            # a line may span chunks: its pieces are joined once it is whole
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                self._whole.append(b"".join([*self._parts, end, b"\n"]))
                self._parts = []
            if rest:
                self._parts.append(rest)
            if sum(map(len, self._parts)) > MOST_LINE_BYTES:
                self._refuse(f"must have lines of at most {MOST_LINE_BYTES} bytes")

    def _go_to(self, start: int) -> bytes:
        """Go to where reading starts, and return the bytes before."""
        size = os.fstat(self._stream.fileno()).st_size
        rule = f"must lie within the {size} bytes of {self._path}"
        require(start <= size, "start", rule, start)
        self._stream.seek(max(start - _TAIL_BYTES, 0))
        tail = self._stream.read(min(start, _TAIL_BYTES))
        is_start = not tail or tail.endswith(b"\n")
        require(
            is_start, "start", f"must be where a line of {self._path} begins", start
        )
        return tail

    def _check_same(self) -> None:
        """Raise unless the path still leads to the file being read, grown only."""
        file = self._stream.fileno()
        opened = os.fstat(file)
        try:
            now = self._path.stat()
        except FileNotFoundError:
            self._refuse("must stay in its place while it is followed")
        if not os.path.samestat(opened, now):
            self._refuse("must not be replaced while it is followed")
        read = self._stream.tell()
        if opened.st_size < read:
            self._refuse(f"must only grow (it had {read} bytes, now {opened.st_size})")
        before = self._before
        if os.pread(file, len(before), read - len(before)) != before:
            self._refuse(f"must only grow (what it held before byte {read} changed)")

    def _refuse(self, rule: str) -> NoReturn:
        raise ConfigurationError(f"`path` {rule}; got {str(self._path)!r}")
