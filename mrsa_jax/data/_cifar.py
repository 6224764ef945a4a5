"""Reader of the binary versions of CIFAR-10 and CIFAR-100.

A record is one label byte (CIFAR-100: coarse label, then fine label) and 3,072 bytes: the red,
green and blue planes of 32x32 pixels, row by row. Source: Krizhevsky's description of the files.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import numpy as np

from mrsa_jax._errors import DataNotFoundError, require

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


def find_cifar(directory: pathlib.Path) -> tuple[CifarFormat, pathlib.Path, list[pathlib.Path]]:
    """Find which set a folder holds, itself or in its archive's folder, and the files of it.

    Returns:
        The format, the folder, and the training files followed by the test file.

    Raises:
        DataNotFoundError: If it holds neither set, or not all files of one; says what is missing.
        ConfigurationError: If it holds both.
    """
    found: list[tuple[CifarFormat, pathlib.Path, list[pathlib.Path]]] = []
    missing: list[str] = []
    for kind in _FORMATS:
        for folder in (directory, directory / kind.folder):
            paths = [folder / name for name in (*kind.train, kind.test)]
            absent = [path.name for path in paths if not path.is_file()]
            if not absent:
                found.append((kind, folder, paths))
            elif len(absent) < len(paths):
                missing += [f"{folder / name} is missing" for name in absent]
    names = " and ".join(kind.name for kind, _, _ in found)
    require(len(found) <= 1, "directory", "must hold one CIFAR set, not both", f"{names} there")
    if found:
        return found[0]
    raise DataNotFoundError(
        f"no CIFAR data set in {directory}: {'; '.join(missing) or _looked_for()}{_hint(directory)}"
    )


def read_cifar(kind: CifarFormat, paths: list[pathlib.Path]) -> dict[str, np.ndarray]:
    """Read the training files and the test file of one set.

    Raises:
        ConfigurationError: If a file is not a whole number of records, or a label lies outside
            its classes; names the file.
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
    require(
        size > 0 and size % record == 0,
        str(path),
        f"must hold a whole number of {kind.name} records of {record} bytes",
        f"{size} bytes",
    )
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    for byte, num_classes in enumerate(kind.label_classes):
        largest = int(records[:, byte].max())
        rule = f"must hold labels in [0, {num_classes}) in byte {byte} of each record"
        require(largest < num_classes, str(path), rule, largest)
    planes = records[:, num_labels:].reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, num_labels - 1].copy()


def _looked_for() -> str:
    sets = (f"{', '.join((*kind.train, kind.test))} ({kind.name})" for kind in _FORMATS)
    return f"looked for {', or '.join(sets)}"


def _hint(directory: pathlib.Path) -> str:
    names = ("data_batch_1", "train", "cifar-10-batches-py", "cifar-100-python")
    if any((directory / name).exists() for name in names):
        return "; these look like the Python version's files: the binary version is needed"
    return ""
