"""Arrays in one file that is whole or known not to be.

An .npz with a digest of it at its end.
What reads .npz files reads these too. The digest covers every byte and a label, so that
neither damage nor a file in another's place goes unseen, and nothing damaged is parsed.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import secrets
from typing import IO

import numpy as np

Arrays = dict[str, np.ndarray]

_BLOCK = 2**20
_DIGEST = 64  # hexadecimal digits of a SHA-256


def write_sealed(path: pathlib.Path, label: str, arrays: Arrays) -> None:
    """Write arrays to a file, whole or not at all.

    Args:
        path: The file; one that is there is replaced.
        label: What the file must be read as.
        arrays: By name; no Python objects.
    """
    # not tempfile's: its files are for their owner alone, and a cache may be shared
    part = path.with_name(f"{path.stem}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("x+b") as file:
            np.savez(file, allow_pickle=False, **arrays)
            size = file.seek(0, os.SEEK_END)
            digest = _digest(file, size, label)
            file.write(digest)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # also an interrupt leaves nothing half-written
        part.unlink(missing_ok=True)
        raise


def read_sealed(path: pathlib.Path, label: str) -> Arrays | None:
    """Return the arrays of a file; None unless it is exactly as written."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - _DIGEST
            if size < 0 or _digest(file, size, label) != file.read():
                return None
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except OSError:
        return None


def _digest(file: IO[bytes], size: int, label: str) -> bytes:
    """Digest a label and a file's first `size` bytes, and stay behind them."""
    digest = hashlib.sha256(f"{label}\n".encode())
    file.seek(0)
    while block := file.read(min(_BLOCK, size - file.tell())):
        digest.update(block)
    return digest.hexdigest().encode()
