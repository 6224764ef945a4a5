"""Readers of IDX files (MNIST, Fashion-MNIST), of CIFAR's and of the AT&T faces.

An IDX file, plain or gzipped, is two zero bytes, a type code, the number of axes, each
axis as a big-endian uint32, and the values in row-major order. Source: LeCun's
description next to the MNIST files.
"""

from __future__ import annotations

import io
import math
import pathlib
import pickle
import re
from collections.abc import Sequence
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
    """Names and label bytes of one of the two sets in one of its two versions.

    Attributes:
        name: `"cifar10"` or `"cifar100"`.
        folder: Name of the folder in its archive.
        train: Training files.
        test: Test file.
        label_classes: Classes of each label byte; the last is the label that is used.
        labels: Key of that label in the Python version; empty for the binary one.
    """

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    label_classes: tuple[int, ...]
    labels: str = ""


_FORMATS = (
    CifarFormat(
        "cifar10",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        "test_batch.bin",
        (10,),
    ),
    CifarFormat("cifar100", "cifar-100-binary", ("train.bin",), "test.bin", (20, 100)),
    CifarFormat(
        "cifar10",
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        (10,),
        "labels",
    ),
    CifarFormat(
        "cifar100", "cifar-100-python", ("train",), "test", (20, 100), "fine_labels"
    ),
)


def find_cifar(
    directory: pathlib.Path,
) -> tuple[CifarFormat, pathlib.Path, list[pathlib.Path]]:
    """Find the CIFAR set of a folder, or of its archive's folder, and its files.

    Returns:
        The format, the folder, and the training files followed by the test file. Of a
        set in both versions it is the Python version, whose files can be recognised.

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
    both = " and ".join(sorted({kind.name for kind, _, _ in matches}))
    require(
        " and " not in both,
        "directory",
        "must hold one CIFAR set, not both",
        f"{both} there",
    )
    if matches:
        return matches[-1]
    sets = (f"{', '.join((*kind.train, kind.test))} ({kind.name})" for kind in _FORMATS)
    what = "; ".join(missing) or f"looked for {', or '.join(sets)}"
    raise DataNotFoundError(f"no CIFAR data set in {directory}: {what}")


def read_cifar(kind: CifarFormat, paths: list[pathlib.Path]) -> dict[str, np.ndarray]:
    """Read the training files and the test file of one set.

    Raises:
        ConfigurationError: If a file is not a whole number of records, or not a pickle
            of arrays, or a label lies outside its classes; names the file.
    """
    read = _read_pickle if kind.labels else _read_file
    parts = [read(kind, path) for path in paths]
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
    return _images(records[:, num_labels:]), records[:, num_labels - 1].copy()


def _images(planes: np.ndarray) -> np.ndarray:
    """Turn planes by channel into pixels with the channel last."""
    stacked = planes.reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(stacked.transpose(0, 2, 3, 1))


# Python's pickles can run any code, so nothing of them is looked up by name: of an
# array that NumPy wrote, the parts are taken as data, and NumPy rebuilds none of it.
class _Parts:
    """State of an array or of a type of numbers, as a pickle lists it."""

    arguments: tuple[Any, ...] = ()
    state: Any = ()

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Latin:
    """Bytes that Python 3 writes as text in a pickle of protocol 2."""

    def __new__(cls, text: Any, encoding: Any) -> Any:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("its bytes are in an unknown encoding")
        return text.encode("latin-1")

    # so that no pickle sets attributes of the class
    def __setstate__(self, state: Any) -> None: ...


# The form in Python: that in C makes room for as many objects as ten bytes name.
class _Unpickler(pickle._Unpickler):
    """Reader of dictionaries, lists, numbers, texts, bytes and arrays, nothing else."""

    _PARTS = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "dtype"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._PARTS:
            return _Parts
        if (module, name) == ("numpy", "ndarray"):
            return None  # an argument of `_reconstruct`, which needs no class
        if (module, name) == ("_codecs", "encode"):
            return _Latin
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not read")


def _read_pickle(
    kind: CifarFormat, path: pathlib.Path
) -> tuple[np.ndarray, np.ndarray]:
    """Read one file of a Python version: pixels of all images, and their labels."""
    try:
        data = read_bytes(path, _MOST_BYTES)
        table = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises whatever its reader meets
        raise ConfigurationError(
            f"`{path}` must be a pickle of dictionaries, lists, numbers, bytes and "
            f"arrays only; got {type(error).__name__}: {error}"
        ) from error
    names = ("data", kind.labels)
    rule = f"must hold a dictionary with {' and '.join(names)}"
    require(isinstance(table, dict), str(path), rule, type(table).__name__)
    pixels, labels = (table.get(name.encode(), table.get(name)) for name in names)
    images = _array(path, pixels)
    num_classes = kind.label_classes[-1]
    rule = f"must hold a list of {len(images)} integers in [0, {num_classes})"
    fits = isinstance(labels, list) and len(labels) == len(images)
    fits = fits and all(type(i) is int and 0 <= i < num_classes for i in labels)
    require(fits, str(path), rule, f"{kind.labels}: {type(labels).__name__}")
    return _images(images), np.asarray(labels, np.uint8)


def _array(path: pathlib.Path, pixels: Any) -> np.ndarray:
    """Rebuild an array from its parts: version, shape, type, order and bytes."""
    state: Any = pixels.state if isinstance(pixels, _Parts) else ()
    is_array = isinstance(state, tuple) and len(state) == 5
    _, shape, dtype, is_by_column, data = state if is_array else (0, (), 0, 0, b"")
    fits = (
        isinstance(dtype, _Parts)
        and dtype.arguments[:1] in ((b"u1",), ("u1",))
        and isinstance(shape, tuple)
        and len(shape) == 2
        and isinstance(data, bytes)
        and not is_by_column
        and type(shape[0]) is int
        and shape[0] > 0
        and shape[1] == _PIXELS
        and len(data) == shape[0] * _PIXELS
    )
    rule = f"must hold data: a uint8 array [images, {_PIXELS}] with its bytes"
    require(fits, str(path), rule, f"shape {shape!r}"[:80])
    return np.frombuffer(data, np.uint8).reshape(shape)


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
    directory = idx_folder(directory)
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


def idx_folder(directory: pathlib.Path) -> pathlib.Path:
    """Find the folder of IDX files: this one, or `raw` or `SET/raw` below it.

    The latter two are torchvision's, e.g. `MNIST/raw`.

    Raises:
        ConfigurationError: If it holds several; names them.
    """
    below = [
        directory,
        *sorted(directory.glob("raw")),
        *sorted(directory.glob("*/raw")),
    ]
    folders = [folder for folder in below if _files_in(folder)]
    rule = f"must hold one IDX data set; there are {', '.join(map(str, folders))}"
    require(len(folders) <= 1, "directory", rule, str(directory))
    return folders[0] if folders else directory


def idx_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return those of the four standard files that a folder has."""
    return _files_in(idx_folder(directory))


def _files_in(directory: pathlib.Path) -> list[pathlib.Path]:
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


_PGM = re.compile(
    # magic number, width, height, greatest value; comments end at the line's end
    rb"P5(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})\s"
)
_PERSON = re.compile(r"s(\d{1,4})")


def face_files(directory: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Find the pictures of people, `sN/*.pgm`, and the number N of each one's person.

    Returns:
        Ascending by person and by the picture's number.

    Raises:
        DataNotFoundError: If there are none.
    """
    pictures: list[tuple[int, pathlib.Path]] = []
    for folder in directory.glob("s*"):
        person = _PERSON.fullmatch(folder.name)
        if person is not None:
            pictures += [(int(person[1]), path) for path in folder.glob("*.pgm")]
    if not pictures:
        raise DataNotFoundError(
            f"no pictures of people in {directory}: looked for s1/1.pgm and the like, "
            "the files of the AT&T Database of Faces"
        )
    return sorted(pictures, key=lambda pair: (pair[0], len(pair[1].stem), pair[1].stem))


def read_faces(files: list[tuple[int, pathlib.Path]]) -> tuple[np.ndarray, np.ndarray]:
    """Read pictures of people.

    Returns:
        uint8[pictures, height, width], and int32[pictures], people counted from 0.

    Raises:
        ConfigurationError: If a file is no whole grey picture of 8 bits, or they differ
            in size; names the file.
    """
    images = [_read_pgm(path) for _, path in files]
    for image, (_, path) in zip(images, files, strict=True):
        rule = f"must have the size of {files[0][1]}, {images[0].shape}"
        require(image.shape == images[0].shape, str(path), rule, image.shape)
    people = sorted({person for person, _ in files})
    labels = [people.index(person) for person, _ in files]
    return np.stack(images), np.asarray(labels, np.int32)


def _read_pgm(path: pathlib.Path) -> np.ndarray:
    data = read_bytes(path, _MOST_BYTES)
    header = _PGM.match(data)
    rule = "must be a binary PGM file (P5) with values up to 255"
    require(header is not None, str(path), rule, data[:4])
    assert header is not None  # for the type checker
    width, height, greatest = map(int, header.groups())
    require(greatest == 255, str(path), rule, f"values up to {greatest}")
    rule = f"must hold {width} x {height} bytes after its header"
    size = len(data) - header.end()
    require(0 < size == width * height, str(path), rule, size)
    return np.frombuffer(data, np.uint8, offset=header.end()).reshape(height, width)


_CRC_MASK = 0xA282EAD8


def read_records(path: pathlib.Path) -> list[bytes]:
    """Read the records of a TFRecord file.

    Of each record, it is eight bytes of its length, four that check the length, the
    record, and four that check the record; little-endian. Source: TensorFlow's
    `tf.io.TFRecordWriter`.

    Raises:
        ConfigurationError: If the file is broken; names it and the byte.
    """
    try:
        data = read_bytes(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"`{path}` must be a whole file; got {error}"
        ) from error
    records: list[bytes] = []
    heads: list[bytes] = []
    starts, sums = [], []
    start = 0
    while start < len(data):
        head = data[start : start + 8]
        first = start + 12
        after = first + int.from_bytes(head, "little")
        starts.append(start)
        heads.append(head)
        sums.append(data[start + 8 : first])
        if after + 4 > len(data):
            break
        records.append(data[first:after])
        sums.append(data[after : after + 4])
        start = after + 4
    # sums of a head and of its record take turns; of a cut record there is no second
    texts = [text for pair in zip(heads, records, strict=False) for text in pair]
    is_whole = len(records) == len(heads)
    texts += [] if is_whole else [heads[-1]]
    found = np.array([int.from_bytes(each, "little") for each in sums], np.uint32)
    broken = (np.flatnonzero(_masked_crcs(texts) != found) // 2).tolist()
    broken += [] if is_whole else [len(heads) - 1]
    what = f"a broken one at byte {starts[broken[0]]}" if broken else ""
    require(not broken, str(path), "must be whole TFRecords", what)
    return records


def _masked_crcs(texts: Sequence[bytes]) -> np.ndarray:
    """Return the masked CRC-32C of each text, uint32; a byte of all texts at a time."""
    # longest first, so that texts with one more byte are the first ones
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    lengths = np.array([len(texts[index]) for index in order], np.int64)
    ends = np.cumsum(lengths)
    whole = np.frombuffer(b"".join(texts[index] for index in order), np.uint8)
    crcs = np.full(len(texts), 0xFFFFFFFF, np.uint32)
    for place in range(int(lengths.max(initial=0))):
        count = int(np.searchsorted(-lengths, -place, "left"))
        now = crcs[:count]
        byte = whole[ends[:count] - lengths[:count] + place]
        crcs[:count] = now >> 8 ^ _CRC_TABLE[(now ^ byte) & 0xFF]
    crcs = ~crcs
    masked = np.empty_like(crcs)
    masked[order] = (crcs >> 15 | crcs << 17) + np.uint32(_CRC_MASK)
    return masked


def _crc_table() -> np.ndarray:
    """Return the CRC-32C of each byte (polynomial 0x82F63B78, reflected)."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> 1 ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


_CRC_TABLE = _crc_table()
