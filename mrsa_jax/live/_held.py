"""A file that one process extends, a whole piece at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import NoReturn

from mrsa_jax._errors import StoreError, require, writing
from mrsa_jax._locks import locked
from mrsa_jax.live._private import flush_folder


class HeldFile:
    """A file that this process alone extends, readable by its owner alone.

    What `append` cannot write and flush as a whole is cut off again. Nothing is written to a file
    that another process renamed, deleted or changed, since whoever reads the path would miss it.

    Args:
        path: The file, absolute; made if it is not there.

    Raises:
        ConfigurationError: If another recorder holds it.
        StoreError: If it cannot be written.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._process = path, os.getpid()
        self._size = 0  # as this process left it
        self._fault = ""  # why nothing more may be written
        with writing(path, "path"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if not locked(self._file):
            self.close()
            require(False, "path", "must be a log that no other recorder holds", str(path))
        flush_folder(path.parent)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def lines(self, most: int) -> Iterator[bytes]:
        """Yield what the file holds: lines with their ends, cut after `most` bytes."""
        with open(self._file, "rb", closefd=False) as stream:
            for line in iter(lambda: stream.readline(most), b""):
                self._size += len(line)
                yield line

    def start(self, count: int) -> bytes:
        """Return the first bytes."""
        return os.pread(self._file, count, 0)

    def empty(self) -> None:
        """Take away all that the file holds."""
        with writing(self._path, "path"):
            os.ftruncate(self._file, 0)
        self._size = 0

    def check(self) -> None:
        """Raise unless the file is open, in its place, and as this process left it.

        Raises:
            ConfigurationError: If it is closed, or was opened before this process was forked.
            StoreError: If it was renamed, deleted, replaced, shortened or extended.
        """
        require(self._file >= 0, "recorder", "must be open")
        is_own = os.getpid() == self._process
        require(is_own, "recorder", "must be used in the process that made it, not in a fork of it")
        if self._fault:
            self._refuse(self._fault)
        with writing(self._path, "path"):
            own, now = os.fstat(self._file), None
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                now = self._path.stat()
        if now is None or not os.path.samestat(own, now):
            if not own.st_nlink:
                self._refuse("it was deleted or replaced; until this process ends, its lines can "
                             f"be copied from /proc/{self._process}/fd/{self._file}")  # fmt: skip
            self._refuse("it was renamed or replaced; put it back, or close this recorder and "
                         "make another (before a log is rotated, close its recorder)")  # fmt: skip
        if own.st_size != self._size:
            self._refuse(f"it has {own.st_size} bytes, and this recorder left {self._size}; stop "
                         "what else writes to it, close this recorder and make "
                         "another")  # fmt: skip

    def append(self, data: bytes) -> None:
        """Write at once and flush to the disk; where that fails, the file ends as it did before.

        Raises:
            StoreError: As `check`, or if it cannot be written. If what was written of it cannot be
                cut off either, the error says so, and nothing more is written.
        """
        self.check()
        before = self._size
        try:
            with writing(self._path, "path"):
                left = data
                while left:
                    count = os.write(self._file, left)
                    if not count:
                        raise OSError(errno.EIO, "nothing more is taken")
                    left = left[count:]
                os.fsync(self._file)
            self._size += len(data)
            self.check()  # it may have been renamed meanwhile
        except BaseException as error:
            self._size = before
            self._cut_off(data)
            if isinstance(error, StoreError):
                end = self._fault or "the line is not in it"
                raise StoreError(f"{error}; {end}") from error
            raise

    def _cut_off(self, data: bytes) -> None:
        """Take back what was written of `data`; where that fails, forbid to write more."""
        self._fault = ("what was written of a line could not be cut off, so that the line may be "
                       "in it; close this recorder and make another")  # fmt: skip
        with contextlib.suppress(OSError):
            more = os.fstat(self._file).st_size - self._size
            rest = os.pread(self._file, len(data) + 1, self._size)
            if more >= 0 and data.startswith(rest):  # else another process wrote as well
                if more:
                    os.ftruncate(self._file, self._size)
                self._fault = ""

    def _refuse(self, why: str) -> NoReturn:
        rule = "must stay as it is and where it is while it is recorded"
        raise StoreError(f"`path` {rule}; got {str(self._path)!r}: {why}")
