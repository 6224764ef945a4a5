"""Locks on files; the system takes them back however a process ends."""

from __future__ import annotations

import contextlib
import errno
from typing import IO, Any


def locked(file: IO[Any] | int, *place: int, waits: bool = False) -> bool:
    """Lock an open file and return whether it is ours.

    True also where there are no locks.

    Args:
        file: Open for writing, or its number; a lock of the whole belongs to this
            opening of it.
        *place: Length and start of a part of it, or (0, 0) for all parts: such locks
            work on network file systems too, and belong to the process.
        waits: Whether to wait for the whole file until another lets it go.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    how = fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB)
    try:
        fcntl.lockf(file, how, *place) if place else fcntl.flock(file, how)
    except OSError as error:
        # else: no locks on this disk
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def unlock(file: IO[Any], *place: int) -> None:
    """Let a part of a file go."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_UN, *place)
