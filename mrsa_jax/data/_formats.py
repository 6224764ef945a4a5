"""Readers of IDX files (MNIST, Fashion-MNIST) and of CIFAR's binary files.

An IDX file, plain or gzipped, is two zero bytes, a type code, the number of axes, each
axis as a big-endian uint32, and the values in row-major order. Source: LeCun's
description next to the MNIST files.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any, NamedTuple

import numpy as np

from mrsa_watch._base.errors import ConfigurationError, DataNotFoundError, require
from mrsa_watch._base.untrusted import read_bytes

# A record is one label byte (CIFAR-100: coarse label, then fine label) and 3,072 bytes:
# the red, green and blue planes of 32x32 pixels, row by row. Source: Krizhevsky's
# description of the files.
_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


class CifarFormat(NamedTuple):
    """Names and label bytes of one of the two sets.

    Attributes:
        name: `"cifar10"` or `"cifar100"`.
        folder: Name of the folder in its archive.
        train: Training files.
        test: Test file.
        label_classes: Classes of each label byte; the last is the label that is used.
    """

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    label_classes: tuple[int, ...]


_FORMATS = (
    CifarFormat(
        "cifar10",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        "test_batch.bin",
        (10,),
    ),
    CifarFormat("cifar100", "cifar-100-binary", ("train.bin",), "test.bin", (20, 100)),
)


def find_cifar(
    directory: pathlib.Path,
) -> tuple[CifarFormat, pathlib.Path, list[pathlib.Path]]:
    """Find the CIFAR set of a folder, or of its archive's folder, and its files.

    Returns:
        The format, the folder, and the training files followed by the test file.

    Raises:
        DataNotFoundError: If it holds neither set, or not all files of one; says what
            is missing.
        ConfigurationError: If it holds both.
    """
    matches: list[tuple[CifarFormat, pathlib.Path, list[pathlib.Path]]] = []
    missing: list[str] = []
    for kind in _FORMATS:
        for folder in (directory, directory / kind.folder):
            paths = [folder / name for name in (*kind.train, kind.test)]
            absent = [path.name for path in paths if not path.is_file()]
            if not absent:
                matches.append((kind, folder, paths))
            # Some files of a set are there: name the missing ones, not all that were
            # looked for.
            elif len(absent) < len(paths):
                missing += [f"{folder / name} is missing" for name in absent]
    both = " and ".join(kind.name for kind, _, _ in matches)
    require(
        len(matches) <= 1,
        "directory",
        "must hold one CIFAR set, not both",
        f"{both} there",
    )
    if matches:
        return matches[0]
    names = ("data_batch_1", "train", "cifar-10-batches-py", "cifar-100-python")
    hint = ""
    if any((directory / name).exists() for name in names):
        hint = (
            "; these look like the Python version's files: the binary version is needed"
        )
    sets = (f"{', '.join((*kind.train, kind.test))} ({kind.name})" for kind in _FORMATS)
    what = "; ".join(missing) or f"looked for {', or '.join(sets)}"
    raise DataNotFoundError(f"no CIFAR data set in {directory}: {what}{hint}")


def read_cifar(kind: CifarFormat, paths: list[pathlib.Path]) -> dict[str, np.ndarray]:
    """Read the training files and the test file of one set.

    Raises:
        ConfigurationError: If a file is not a whole number of records, or a label lies
            outside its classes; names the file.
    """
    parts = [_read_file(kind, path) for path in paths]
    return {
        "train_inputs": np.concatenate([images for images, _ in parts[:-1]]),
        "train_labels": np.concatenate([labels for _, labels in parts[:-1]]),
        "test_inputs": parts[-1][0],
        "test_labels": parts[-1][1],
        "num_classes": np.asarray(kind.label_classes[-1]),
    }


def _read_file(kind: CifarFormat, path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    num_labels = len(kind.label_classes)
    record = num_labels + _PIXELS
    size = path.stat().st_size
    rule = f"must hold a whole number of {kind.name} records of {record} bytes"
    require(size > 0 and size % record == 0, str(path), rule, f"{size} bytes")
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    for byte, num_classes in enumerate(kind.label_classes):
        largest = int(records[:, byte].max())
        rule = f"must hold labels in [0, {num_classes}) in byte {byte} of each record"
        require(largest < num_classes, str(path), rule, largest)
    # Planes by channel become pixels with the channel last.
    planes = records[:, num_labels:].reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[
        :, num_labels - 1
    ].copy()


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
            f"`{path}` must be an IDX file (two zero bytes and a type code first); got "
            f"{data[:4]!r}"
        )
    dtype, num_axes = _TYPES[data[2]], data[3]
    start = 4 + 4 * num_axes
    # A cut header is filled with zeros, so that the length check below reports it.
    header = np.frombuffer(data[4:start].ljust(4 * num_axes, b"\0"), ">u4")
    shape = tuple(int(length) for length in header)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) < start or len(data) != expected:
        raise ConfigurationError(
            f"`{path}` must hold {expected} bytes, as its header says; got {len(data)}"
        )
    if num_axes > _MOST_AXES:
        raise ConfigurationError(
            f"`{path}` must have at most {_MOST_AXES} axes; got {num_axes}"
        )
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
    files = idx_files(directory)
    missing = [
        _candidates(*names)[0] for names in _STEMS if _find(directory, *names) is None
    ]
    if missing:
        raise DataNotFoundError(
            f"no IDX data set in {directory}: looked for {', '.join(missing)} (plain "
            "or with .gz; '.idx3-ubyte' for '-idx3-ubyte' will do). The files are "
            "those of MNIST and Fashion-MNIST; the system package "
            "dataset-fashion-mnist of Debian and Ubuntu installs the latter under "
            "/usr/share/datasets/fashion-mnist"
        )
    train_images, train_labels, test_images, test_labels = map(read_idx, files)
    _check_pair(files[0], train_images, train_labels)
    _check_pair(files[2], test_images, test_labels)
    return train_images, train_labels, test_images, test_labels


def idx_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return those of the four standard files that a folder has."""
    paths = [_find(directory, stem, axes) for stem, axes in _STEMS]
    return [path for path in paths if path is not None]


def _check_pair(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    is_uint8 = images.dtype == np.uint8 and labels.dtype == np.uint8
    if not is_uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        raise ConfigurationError(
            f"`{path}` must hold one uint8 image for each uint8 label; got "
            f"{images.dtype} {images.shape} and {labels.dtype} {labels.shape}"
        )


def _candidates(stem: str, axes: str) -> list[str]:
    plain = [f"{stem}-{axes}-ubyte", f"{stem}.{axes}-ubyte"]
    return plain + [f"{name}.gz" for name in plain]


def _find(directory: pathlib.Path, stem: str, axes: str) -> pathlib.Path | None:
    for name in _candidates(stem, axes):
        if (directory / name).is_file():
            return directory / name
    return None
