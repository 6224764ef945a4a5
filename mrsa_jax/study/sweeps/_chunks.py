"""An array of a sweep's store, whose every cell is a chunk: a file that is written by itself.

zarr lays the arrays out and reads them. Its writes go through an event loop, about a millisecond
each however small the chunk; a point has ten arrays or more. Here a chunk is compressed and renamed
into its place, as zarr's second format says. A whole sweep of small points takes 1.9 times the CPU
with zarr's writes, and 1.1 to 1.4 times with one of each array for all points of a task together.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
from typing import Any

import numpy as np

_BINARY = getattr(os, "O_BINARY", 0)  # of Windows
_NAMED_FILLS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class CellArray:
    """An array [*axes, *inner] in a folder, of one chunk a cell.

    Args:
        folder: Of the array, laid out by zarr.
        num_axes: Axes of the sweep.
    """

    def __init__(self, folder: pathlib.Path, num_axes: int) -> None:
        """Read what the array is."""
        content = json.loads((folder / ".zarray").read_text(encoding="utf-8"))
        shape, chunks = tuple(content["shape"]), tuple(content["chunks"])
        inner = shape[num_axes:]
        is_ours = chunks == (1,) * num_axes + inner and content["order"] == "C"
        if not is_ours or content.get("filters"):
            raise ValueError(f"{folder} must be an array of one chunk a cell; got {content}")
        self.inner = inner
        self.dtype = np.dtype(content["dtype"])
        self._folder = str(folder)
        self._shape = shape[:num_axes]
        self._separator = content.get("dimension_separator", ".")
        self._inside = ["0"] * len(inner)
        fill = content["fill_value"]
        self._fill = np.asarray(_NAMED_FILLS.get(fill, fill), self.dtype)
        self._codec = _codec(content["compressor"])

    def put(self, index: tuple[int, ...], content: bytes) -> None:
        """Write what `encoded` returned of a cell's value."""
        path = self._path(index)
        if content:
            _replace(path, content)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def stored(self, index: tuple[int, ...]) -> bytes:
        """Return the content of a cell's file; none where there is no file."""
        with contextlib.suppress(FileNotFoundError), open(self._path(index), "rb") as file:
            return file.read()
        return b""

    def encoded(self, value: Any) -> bytes:
        """Return the content of a cell's file; what is missing of its shape is filled up.

        As zarr does, nothing is kept of a cell that holds the fill value alone.
        """
        own = np.asarray(value, self.dtype)
        if own.shape != self.inner:
            whole = np.full(self.inner, self._fill, self.dtype)
            whole[tuple(slice(length) for length in own.shape)] = own
            own = whole
        if self._is_empty(own):
            return b""
        own = np.ascontiguousarray(own)
        return own.tobytes() if self._codec is None else bytes(self._codec.encode(own))

    def has(self, index: tuple[int, ...]) -> bool:
        """Return whether a cell holds anything but the fill value."""
        return os.path.exists(self._path(index))

    def present(self) -> np.ndarray:
        """Return for each cell whether it holds anything but the fill value, bool [*axes]."""
        found = np.zeros(self._shape, np.bool_)
        with os.scandir(self._folder) as entries:
            names = [one.name for one in entries]
        for name in names:
            parts = name.split(self._separator)
            if all(part.isdigit() for part in parts):  # others are metadata and half-written
                found[tuple(map(int, parts[: found.ndim]))] = True
        return found

    def _is_empty(self, own: np.ndarray) -> bool:
        if self.dtype.kind == "f":
            return bool(((own == self._fill) | (np.isnan(own) & np.isnan(self._fill))).all())
        return bool((own == self._fill).all())

    def _path(self, index: tuple[int, ...]) -> str:
        # joined as text: a pathlib.Path for each file would cost as much as the file
        key = self._separator.join([*map(str, map(int, index)), *self._inside])
        return f"{self._folder}/{key}"


def _codec(config: dict[str, Any] | None) -> Any:
    if config is None:
        return None
    import numcodecs  # type: ignore[import-untyped]

    return numcodecs.get_codec(config)


def _replace(path: str, content: Any) -> None:
    """Put a file in its place whole, or not at all; two writers of one do not meet."""
    part = f"{path}.{os.getpid()}-{threading.get_ident()}.partial"
    try:
        # not `open`, whose file objects ask the system twice as much as a small file takes
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
