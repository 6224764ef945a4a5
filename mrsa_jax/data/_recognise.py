"""Recognition of published data sets by their samples, from any file and in any order.

A name, a size and a number of classes are shared by many sets: KMNIST, QMNIST and
corrupted MNIST have those of MNIST, and the last has its labels too. So every pixel and
every label enters a digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_jax.data._dataset import Dataset, check_dataset
from mrsa_jax.data.cache import Arrays, cache_directory

DIGESTS = {
    "b01030ccd93435926830fd9950ea00de": "mnist",
    "4846c1ebc53dc8b7213a642317491f88": "fashion_mnist",
}
"""Digests of samples, by `digest`, and the names of the published sets.

Source: the true files, whose MD5 sums are those published for the unpacked IDX files
(MNIST's training images 6bbc9ace898e44ae57da46a324031adb and labels
a25bea736e30d166cdddb491f175f624; Fashion-MNIST's f4a8712d7a061bf5bd6d2ca38dc4d50a and
9018921c3c673c538a1fc5bad174d6f9).
"""

# Training samples, test samples, and shape of the sets that have a digest: others are
# not worth the second that a digest takes.
_SIZES = {(60_000, 10_000, (28, 28, 1)), (50_000, 10_000, (32, 32, 3))}

PYTHON_MD5 = {
    "cifar10": (
        "c99cafc152244af753f735de768cd75f",
        "d4bba439e000b95fd0a9bffe97cbabec",
        "54ebc095f3ab1f0389bbae665268c751",
        "634d18415352ddfa80567beed471001a",
        "482c414d41f54cd18b22e5b47cb7c3cb",
        "40351d587109b95175f43aff81a1287e",
    ),
    "cifar100": (
        "16019d7e3df5f24257cddd939b257f8d",
        "f0ef6b0ae62326f3e7ffdfab6717acfc",
    ),
}
"""MD5 sums of the training files and the test file of CIFAR's Python version.

Source: torchvision.datasets.CIFAR10 and CIFAR100, `train_list` and `test_list`.
"""

BINARY_MD5 = {
    "cifar10": (
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ),
    "cifar100": (
        "6172c7755cfe09b2fe270c85cebc1b15",
        "4499cfba6c016c1be1438163640a0898",
    ),
}
"""MD5 sums of the files of CIFAR's binary version.

Source: rai-project/dldataset, vision/cifar10.go and vision/cifar100.go.
"""

# The AT&T faces have no test set, so that a digest would depend on the split. Pixels
# are multiples of 1/242. Of three faces of the first person: first and last three.
# Source: scikit-learn's `fetch_olivetti_faces().data`, as NumPy prints it.
_FACES = 400, 40, (64, 64, 1)
_LEVELS = 242
_FACE_ENDS = (
    (75, 89, 101, 37, 39, 38),
    (110, 114, 124, 37, 37, 37),
)


def recognise(dataset: Dataset) -> str:
    """Name the published data set that samples are, by their digest.

    Args:
        dataset: The data set, from any source, its samples in any order, as `load`
            scales them: pixels are multiples of 1/255.

    Returns:
        `"mnist"`, `"fashion_mnist"`, `"cifar10"`, `"cifar100"` or `"olivetti"` if all
        samples and labels are those of the published set, with its split into training
        and test samples; empty for any other, also for a part of one. CIFAR's two have
        published MD5 sums of files only: `load` compares these with files of both
        versions and with examples of tensorflow-datasets, and keeps the digest of the
        samples in its cache. Of `"olivetti"`, the numbers of faces and a few pixels of
        two faces are compared.

    Raises:
        ConfigurationError: If the data set is invalid.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.data.recognise(mj.data.load("mnist_5k"))
        ''
    """
    check_dataset(dataset)
    train, test = len(dataset.train_labels), len(dataset.test_labels)
    if (train + test, dataset.num_classes, dataset.input_shape) == _FACES:
        return "olivetti" if _are_faces(dataset) else ""
    if (train, test, dataset.input_shape) not in _SIZES:
        return ""
    found = _digest_of(dataset)
    return DIGESTS.get(found) or _remembered(found)


def remember_samples(name: str, dataset: Dataset) -> None:
    """Keep the digest of a data set whose archive is known to be the published one."""
    found = _digest_of(dataset)
    if name in BINARY_MD5 and found:
        remember(name, found)


def _digest_of(dataset: Dataset) -> str:
    """Return the digest of a data set's bytes, empty if inputs are no bytes / 255."""
    train, test = _bytes_of(dataset.train_inputs), _bytes_of(dataset.test_inputs)
    if train is None or test is None:
        return ""
    return digest(train, dataset.train_labels, test, dataset.test_labels)


def digest(
    train_inputs: np.ndarray,
    train_labels: np.ndarray,
    test_inputs: np.ndarray,
    test_labels: np.ndarray,
) -> str:
    """Compute the digest of labelled images of bytes, which their order leaves alone.

    Returns:
        32 hexadecimal digits: SHA-256 over the sorted digests of the training samples
        and then of the test samples, with their numbers and shapes; cut to 128 bits.
    """
    whole = hashlib.sha256()
    for inputs, labels in ((train_inputs, train_labels), (test_inputs, test_labels)):
        rows = np.ascontiguousarray(inputs).reshape(len(inputs), -1)
        marks = labels.astype("<u4")
        samples = sorted(
            hashlib.blake2b(row.data, digest_size=16, salt=mark.tobytes()).digest()
            for row, mark in zip(rows, marks, strict=True)
        )
        # an image [28, 28] has one channel
        shape = (*inputs.shape, 1)[:4]
        whole.update(repr(tuple(int(length) for length in shape)).encode())
        whole.update(b"".join(samples))
    return whole.hexdigest()[:32]


def digest_of_arrays(arrays: Arrays) -> str:
    """Compute the digest of the four arrays that a reader of files returns."""
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    return digest(*(arrays[name] for name in names))


def are_published(name: str, paths: list[pathlib.Path]) -> bool:
    """Return whether files have the published MD5 sums of one of CIFAR's versions."""
    sums = tuple(_md5(path.read_bytes()) for path in paths)
    return sums in (PYTHON_MD5[name], BINARY_MD5[name])


def are_published_examples(
    name: str, train: Sequence[Any], test: Sequence[Any]
) -> bool:
    """Return whether examples of tensorflow-datasets fill CIFAR's binary files.

    They are in another order; their `id` ends in their place. A binary file holds, for
    each image, its labels (CIFAR-100: coarse, then fine) and its three planes.
    """
    labels = ("coarse_label", "label") if name == "cifar100" else ("label",)
    sums: list[str] = []
    for examples, num_files in ((train, len(BINARY_MD5[name]) - 1), (test, 1)):
        if not {"id", "image", *labels} <= set(examples[0]):
            return False
        records = [
            bytes(int(example[label]) for label in labels)
            + np.asarray(example["image"]).transpose(2, 0, 1).tobytes()
            for example in sorted(examples, key=lambda example: example["id"])
        ]
        size = -(-len(records) // num_files)
        sums += [
            _md5(b"".join(records[start : start + size]))
            for start in range(0, len(records), size)
        ]
    return tuple(sums) == BINARY_MD5[name]


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def remember(name: str, found: str) -> None:
    """Keep the digest of a set whose files are known to be the published ones.

    In this process, and in the cache for others; a cache that cannot be written is no
    error.
    """
    _REMEMBERED[found] = name
    path = _note(found)
    with contextlib.suppress(OSError):
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name}\n", encoding="utf-8")


_REMEMBERED: dict[str, str] = {}


def _remembered(found: str) -> str:
    if found in _REMEMBERED:
        return _REMEMBERED[found]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        name = _note(found).read_text(encoding="utf-8").strip()
        return name if name in BINARY_MD5 else ""
    return ""


def _note(found: str) -> pathlib.Path:
    return cache_directory() / f"recognised-{found}.txt"


def _bytes_of(inputs: np.ndarray) -> np.ndarray | None:
    """Return the bytes that were divided by 255, or None if inputs are no such."""
    scaled = np.rint(inputs * np.float32(255))
    if scaled.size and not (scaled.min() >= 0 and scaled.max() <= 255):
        return None
    pixels = scaled.astype(np.uint8)
    is_exact = np.array_equal(np.divide(pixels, np.float32(255), dtype="f4"), inputs)
    return pixels if is_exact else None


def _are_faces(dataset: Dataset) -> bool:
    faces = np.concatenate([dataset.train_inputs, dataset.test_inputs])
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    rows = faces.reshape(len(faces), -1) * _LEVELS
    ends = np.rint(np.concatenate([rows[:, :3], rows[:, -3:]], axis=1))
    is_level = np.abs(rows - np.rint(rows)).max() < 1e-3
    has_ends = all(
        bool(((ends == face).all(axis=1) & (labels == 0)).sum() == 1)
        for face in _FACE_ENDS
    )
    ten_each = np.array_equal(np.bincount(labels), [10] * _FACES[1])
    return bool(is_level) and has_ends and ten_each
