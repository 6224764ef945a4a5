"""Files that their owner alone may read."""

from __future__ import annotations

import contextlib
import os
import pathlib


def write_private(path: pathlib.Path, content: bytes) -> None:
    """Put a file that its owner alone may read in its place as a whole, flushed to the disk.

    Raises:
        OSError: If it cannot be written; what was there stays.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
    flush_folder(path.parent)


def flush_folder(path: pathlib.Path) -> None:
    """Flush the names in a folder to the disk, where the system can do so."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
