"""Reader of IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

A file is two zero bytes, a type code, the number of axes, each axis as a big-endian uint32, and
the values in row-major order. Source: LeCun's description beside the MNIST files.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np

from mrsa_jax._errors import ConfigurationError, DataNotFoundError
from mrsa_jax._untrusted import read_bytes

_MOST_BYTES = 2**32
_MOST_AXES = 8
_TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_STEMS = (
    ("train-images", "idx3"),
    ("train-labels", "idx1"),
    ("t10k-images", "idx3"),
    ("t10k-labels", "idx1"),
)


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Read one IDX file, gzipped or not (told by its first bytes, not by its name).

    Raises:
        ConfigurationError: If the file is not a complete IDX file.
    """
    try:
        data = read_bytes(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"`{path}` must be a whole file, plain or by gzip; got {error}"
        ) from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise ConfigurationError(
            f"`{path}` must be an IDX file (two zero bytes and a type code first); got {data[:4]!r}"
        )
    dtype, num_axes = _TYPES[data[2]], data[3]
    start = 4 + 4 * num_axes
    header = np.frombuffer(data[4:start].ljust(4 * num_axes, b"\0"), ">u4")
    shape = tuple(int(length) for length in header)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) < start or len(data) != expected:
        raise ConfigurationError(
            f"`{path}` must hold {expected} bytes, as its header says; got {len(data)}"
        )
    if num_axes > _MOST_AXES:
        raise ConfigurationError(f"`{path}` must have at most {_MOST_AXES} axes; got {num_axes}")
    values = np.frombuffer(data, dtype, offset=start)
    return values.reshape(shape).astype(dtype.newbyteorder("="))


def read_idx_directory(
    directory: pathlib.Path,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the four standard files: training images and labels, test images and labels.

    Raises:
        DataNotFoundError: If a file is missing; names what was looked for.
        ConfigurationError: If a file is broken, or the files do not belong together.
    """
    paths = [_find(directory, stem, axes) for stem, axes in _STEMS]
    found = idx_files(directory)
    if len(found) < len(paths):
        missing = [
            _candidates(*names)[0]
            for names, path in zip(_STEMS, paths, strict=True)
            if path is None
        ]
        raise DataNotFoundError(
            f"no IDX data set in {directory}: looked for {', '.join(missing)} "
            "(plain or with .gz; '.idx3-ubyte' for '-idx3-ubyte' will do). The files are those of "
            "MNIST and Fashion-MNIST; the system package dataset-fashion-mnist of Debian and "
            "Ubuntu installs the latter under /usr/share/datasets/fashion-mnist"
        )
    train_images, train_labels, test_images, test_labels = map(read_idx, found)
    _check_pair(found[0], train_images, train_labels)
    _check_pair(found[2], test_images, test_labels)
    return train_images, train_labels, test_images, test_labels


def idx_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return those of the four standard files that a folder has."""
    paths = [_find(directory, stem, axes) for stem, axes in _STEMS]
    return [path for path in paths if path is not None]


def _check_pair(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    is_uint8 = images.dtype == np.uint8 and labels.dtype == np.uint8
    if not is_uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        raise ConfigurationError(
            f"`{path}` must hold one uint8 image for each uint8 label; "
            f"got {images.dtype} {images.shape} and {labels.dtype} {labels.shape}"
        )


def _candidates(stem: str, axes: str) -> list[str]:
    plain = [f"{stem}-{axes}-ubyte", f"{stem}.{axes}-ubyte"]
    return plain + [f"{name}.gz" for name in plain]


def _find(directory: pathlib.Path, stem: str, axes: str) -> pathlib.Path | None:
    for name in _candidates(stem, axes):
        if (directory / name).is_file():
            return directory / name
    return None
