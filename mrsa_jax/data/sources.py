"""Data sets by name: those inside this package, files in a folder, and prepared sets.

Nothing here downloads anything. A set that is not on the machine raises
`DataNotFoundError`, whose message says where was looked and how to get it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Key

from mrsa_jax._core.packaged import packaged_file
from mrsa_jax._core.streams import Stream, as_key, host_generator
from mrsa_jax.data._dataset import Dataset
from mrsa_jax.data._formats import (
    face_files,
    find_cifar,
    idx_files,
    idx_folder,
    read_cifar,
    read_faces,
    read_idx_directory,
    read_records,
)
from mrsa_jax.data._recognise import (
    BINARY_MD5,
    are_published,
    are_published_examples,
    digest_of_arrays,
    remember,
)
from mrsa_jax.data.cache import Arrays, cached, read_cached
from mrsa_watch._base.errors import (
    DataNotFoundError,
    MrsaError,
    nearest,
    needed,
    require,
)

# 400 photographs of 40 people, ten of each, 64x64 grey pixels (the original's are
# 112x92).
_OLIVETTI_FILE = "olivetti_py3.pkz"


def olivetti_file(directory: str | os.PathLike[str] | None) -> pathlib.Path:
    """Return the path at which scikit-learn keeps the faces, without importing it."""
    if directory is None:
        directory = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return pathlib.Path(directory).expanduser() / _OLIVETTI_FILE


def read_olivetti(directory: str | os.PathLike[str] | None) -> Arrays:
    """Read the faces and who they are; nothing is downloaded.

    Raises:
        DataNotFoundError: If they are not there; says how to get them.
    """
    path = olivetti_file(directory)
    if not path.is_file():
        folders = None if directory is None else [path.parent]
        faces = read_cached("olivetti", folders)
        if faces is not None:
            return faces
        raise DataNotFoundError(
            f"data set 'olivetti' is not here: looked for {path}. Fetch it once (4 MB, "
            "from the network) in Python with sklearn.datasets.fetch_olivetti_faces(), "
            "or name the folder that has it as `directory`"
        )
    return cached("olivetti", path.parent, [path], lambda: _read_faces(path.parent))


def _read_faces(home: pathlib.Path) -> Arrays:
    rule = "data set 'olivetti' is read by scikit-learn, which cannot be imported"
    datasets = needed("sklearn.datasets", "scikit-learn", rule, DataNotFoundError)
    try:
        faces = datasets.fetch_olivetti_faces(
            data_home=os.fspath(home), download_if_missing=False
        )
    except Exception as error:  # a broken file raises whatever unpickling meets
        raise DataNotFoundError(
            f"data set 'olivetti' cannot be read from {home / _OLIVETTI_FILE}: "
            f"{type(error).__name__}: {error}; remove it and fetch it again"
        ) from error
    return {
        "inputs": np.asarray(faces.images, np.float32)[..., None],
        "labels": np.asarray(faces.target, np.int32),
    }


# Reading needs neither TensorFlow nor the network; a set that is cached needs not even
# tensorflow-datasets. Decoding is slow, so it happens once.
def tfds_directory(directory: str | os.PathLike[str] | None) -> pathlib.Path:
    """Return the folder of tensorflow-datasets or its default; nothing is imported."""
    if directory is None:
        directory = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(directory).expanduser()


def prepared_folder(
    name: str, directory: str | os.PathLike[str] | None = None
) -> pathlib.Path | None:
    """Return the folder of a prepared set's newest version, or None.

    Args:
        name: As tensorflow-datasets spells it, `NAME`, `NAME/CONFIG` or
            `NAME/CONFIG:VERSION`.
        directory: Its data folder; the default one if None.
    """
    path, _, wanted = name.partition(":")
    root = tfds_directory(directory) / path
    if not root.is_dir():
        return None
    # Versions as tuples of integers: 10.0.0 is newer than 9.0.0.
    versions = [
        (tuple(int(number) for number in folder.name.split(".")), folder)
        for folder in root.iterdir()
        if re.fullmatch(r"\d+(\.\d+)*", folder.name)
        and (folder / "dataset_info.json").is_file()
    ]
    matching = [pair for pair in versions if not wanted or pair[1].name == wanted]
    return max(matching)[1] if matching else None


def read_tfds(name: str, directory: str | os.PathLike[str] | None) -> Arrays:
    """Read the train and test splits: from the cache, or decoded and then cached.

    Raises:
        DataNotFoundError: If the set is not prepared; says how to do that.
        ConfigurationError: If it is not a set of labelled images of one size, or if
            there are cached copies from several folders and none of the folders.
    """
    folder = prepared_folder(name, directory)
    if folder is not None:
        wanted, said = re.split("[/:]", name)[0], _stated_name(folder)
        rule = f"must hold {wanted!r}; `name` in {folder}/dataset_info.json is"
        require(said in (None, wanted), "directory", rule, said)
        files = [path for path in folder.iterdir() if path.is_file()]
        arrays = cached(f"tfds-{name}", folder, files, lambda: _decode(name, folder))
        return _remembered(name, arrays)
    folders = None if directory is None else [pathlib.Path(directory).expanduser()]
    copy = read_cached(f"tfds-{name}", folders)
    if copy is not None:
        return _remembered(name, copy)
    if directory is not None:
        raise _not_prepared(
            name, directory, "there is no such folder of a prepared set"
        )
    # where else tensorflow-datasets may look is left to itself
    return _remembered(name, _decode(name, None))


def import_tfds(name: str, extra: str = "tfds") -> Any:
    """Import tensorflow-datasets, an extra, for a data set of some name."""
    rule = (
        f"data set {name!r} needs the package 'tensorflow_datasets', which cannot be "
        "imported"
    )
    return needed("tensorflow_datasets", extra, rule, DataNotFoundError)


def prepared_formats(folder: pathlib.Path) -> tuple[str, ...]:
    """Return the file formats of a prepared set, as tensorflow-datasets names them.

    A `dataset_info.json` that names none is of a time when there was one format.
    """
    try:
        info = _described(folder)
        names = [
            info.get("fileFormat", _RECORDS),
            *info.get("alternativeFileFormats", ()),
        ]
    except (OSError, ValueError, AttributeError, TypeError):
        return ()
    return tuple(dict.fromkeys(str(name).lower() for name in names))


def _described(folder: pathlib.Path) -> Any:
    return json.loads((folder / "dataset_info.json").read_text(encoding="utf-8"))


def _stated_name(folder: pathlib.Path) -> Any:
    """Return the name that tensorflow-datasets gave a prepared set, None without one."""
    try:
        return _described(folder).get("name")
    except (OSError, ValueError, AttributeError):
        return None  # an error when it is read


_RECORDS = "tfrecord"
_BY_INDEX = ("array_record", "parquet")  # read by tensorflow-datasets alone
READABLE = (*_BY_INDEX, _RECORDS)
"""File formats of tensorflow-datasets that `load` reads."""


class _Records:
    """Examples of one split in TFRecord files.

    tensorflow-datasets parses an example without TensorFlow, but needs it to find one
    in a file.
    """

    def __init__(self, builder: Any, split: str) -> None:
        files = builder.info.splits[split].filepaths
        self.dataset_info = builder.info
        self._records = [
            record for path in files for record in read_records(pathlib.Path(path))
        ]
        rule = f"must hold all examples of split {split!r}"
        count = int(builder.info.splits[split].num_examples)
        require(len(self._records) == count, str(files[0]), rule, len(self), count)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Any:
        return self.dataset_info.features.deserialize_example_np(self._records[index])


def _open_split(tfds: Any, name: str, folder: pathlib.Path | None, split: str) -> Any:
    """Open a split for reading by index; tensorflow-datasets finds a missing folder."""
    if folder is None:
        return tfds.data_source(name, split=split, download=False)
    builder = tfds.builder_from_directory(folder)
    formats = prepared_formats(folder)
    is_records = _RECORDS in formats and not set(formats).intersection(_BY_INDEX)
    return _Records(builder, split) if is_records else builder.as_data_source(split)


def _decode(name: str, folder: pathlib.Path | None) -> Arrays:
    """Decode both splits; without a folder, tensorflow-datasets finds its own."""
    tfds = import_tfds(name)
    arrays: Arrays = {}
    examples: list[list[Any]] = []
    num_classes = 0
    for split in ("train", "test"):
        try:
            source = _open_split(tfds, name, folder, split)
            examples.append([source[index] for index in range(len(source))])
            images, labels = _collect(examples[-1], name)
        except MrsaError:
            raise
        except Exception as error:
            reason = f"split {split!r}: {type(error).__name__}: {error}"
            if folder is None:
                raise _not_prepared(name, folder, reason) from error
            formats = " and ".join(prepared_formats(folder)) or "an unknown format"
            raise DataNotFoundError(
                f"data set {name!r} in {folder} is prepared as {formats} and cannot be "
                f"read: {reason}. `mrsa-jax data prepare {name} --directory OTHER` "
                "prepares it in another folder, as array_record"
            ) from error
        arrays |= {f"{split}_inputs": images, f"{split}_labels": labels}
        # The stated number may be missing, and one split may lack the highest label.
        num_classes = max(num_classes, _num_classes(source), int(labels.max()) + 1)
    base = name.partition(":")[0]
    if base in BINARY_MD5 and are_published_examples(base, *examples):
        arrays = _proven(arrays)
    return {**arrays, "num_classes": np.asarray(num_classes)}


def _not_prepared(
    name: str, where: str | os.PathLike[str] | None, reason: str
) -> DataNotFoundError:
    return DataNotFoundError(
        f"data set {name!r} is not prepared (looked in {tfds_directory(where)}); "
        f"`mrsa-jax data prepare {name}` does that once, as array_record. It said: "
        f"{reason}"
    )


def _num_classes(source: Any) -> int:
    """Return the number of classes that the set states, 0 if it states none."""
    try:
        return int(source.dataset_info.features["label"].num_classes)
    except (AttributeError, KeyError, TypeError):
        return 0


def _collect(examples: list[Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Stack the `image` and `label` features of examples."""
    features = set(examples[0]) if examples else set()
    rule = "must be a set of labelled images (features `image` and `label`)"
    require(
        {"image", "label"} <= features,
        "name",
        rule,
        f"tfds:{name} with {sorted(features)}",
    )
    images = [np.asarray(example["image"]) for example in examples]
    shapes = {image.shape for image in images}
    require(
        len(shapes) == 1,
        "name",
        "must be a set of images of one size",
        sorted(shapes)[:4],
    )
    return np.stack(images), np.asarray(
        [example["label"] for example in examples], np.int32
    )


PREPARED = {"mnist": 10, "fashion_mnist": 10, "cifar10": 10, "cifar100": 100}
"""Sets that tensorflow-datasets prepares, and their classes."""


class _Packaged(NamedTuple):
    """Square grey images in a file of this package, one row each.

    The label comes after the pixels.
    """

    side: int
    white: int  # value of a white pixel


PACKAGED = {"mnist_5k": _Packaged(28, 255), "digits": _Packaged(8, 16)}
"""Sets that this package holds."""

SOURCES = (*PACKAGED, *PREPARED, "idx", "cifar", "att", "olivetti")
"""Names that `load` knows; `"tfds:<name>"` is any prepared tensorflow-datasets set."""

FASHION_DIRECTORY = pathlib.Path("/usr/share/datasets/fashion-mnist")
"""Where the system package dataset-fashion-mnist of Debian and Ubuntu puts its files.
"""

_TEST_FRACTION = 5  # one sample in five of each class, if a source has no test set


def load(
    name: str,
    *,
    directory: str | os.PathLike[str] | None = None,
    seed: int | Key[Array, ""] = 0,
) -> Dataset:
    """Load a data set that is already on this machine.

    A set that is slow to read is read once and kept as .npz in a cache: in the folder
    that the environment variable `MRSA_JAX_CACHE` names, or else in the user's cache
    folder. The cache is made again when its source has changed, and suffices if the
    source is gone.

    Args:
        name: One of these.
            `"mnist_5k"` (5,000 real MNIST digits; 4,000 to train, 1,000 to test) and
            `"digits"` (scikit-learn's 1,797 8x8 digits) are inside this package.
            `"mnist"`, `"fashion_mnist"`, `"cifar10"` and `"cifar100"` are read where
            `mrsa-jax data prepare NAME` has prepared them, or from torchvision's
            folders, e.g. `MNIST/raw` and `cifar-10-batches-py` in `directory`;
            Fashion-MNIST also where the system package dataset-fashion-mnist has
            installed it. `"tfds:<name>"` is any other labelled set that
            tensorflow-datasets has prepared (splits `train`, `test`), as array_record
            or as TFRecords. `"idx"` (MNIST, Fashion-MNIST or any set in their four IDX
            files, plain or gzipped) and `"cifar"` (the binary or the Python version of
            CIFAR-10 or CIFAR-100) are read from a folder. `"olivetti"` is the AT&T
            faces, where scikit-learn has fetched them; `"att"` is the same people's
            pictures as they were published, 112x92, in `s1/*.pgm` to `s40/*.pgm` of a
            folder. No name says that samples are those of a published set: `recognise`
            compares them.
        directory: Folder of the files (required for `"idx"`, `"cifar"`, `"att"`), the data
            folder of tensorflow-datasets, of torchvision or of scikit-learn (the
            defaults of the first and last if None). If that of a set is gone, its
            cached copy is read, with a warning that names it. The first two names take
            none.
        seed: Orders the training samples. For `"mnist_5k"`, `"digits"`, `"att"` and
            `"olivetti"`, which have no test set, it also chooses one sample in five of
            each class.

    Returns:
        The data set, inputs in [0, 1], height x width x channels.

    Raises:
        ConfigurationError: If the name is unknown, `directory` does not go with it, a
            file is broken, or several folders or cached copies would serve.
        DataNotFoundError: If the data, or the package that holds them, is not
            installed.

    Examples:
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits", seed=1)
        >>> digits.train_inputs.shape, digits.num_classes
        ((1442, 8, 8, 1), 10)
        >>> len(digits.train_inputs) + len(digits.test_inputs)
        1797
    """
    require(isinstance(name, str), "name", "must be a string", name)
    kind, _, rest = name.partition(":")
    rule = f"must be a known data set: {nearest(name, (*SOURCES, 'tfds:<name>'))}"
    require(name in _READERS or (kind == "tfds" and bool(rest)), "name", rule, name)
    rule = f"must not be set for {name!r}, which this package holds"
    require(directory is None or name not in PACKAGED, "directory", rule, directory)
    key = as_key(seed)
    if kind == "tfds":
        return _from_splits(name, read_tfds(rest, directory), key)
    return _READERS[name](directory, key)


def source_files(
    name: str, directory: str | os.PathLike[str] | None
) -> list[pathlib.Path]:
    """Return the files that a set is read from, those that are there.

    Args:
        name: As `load` takes it; one of this package or of a user has none.
        directory: Its folder; where `load` looks by itself if None.
    """
    if directory is None:
        return _default_files(name)
    folder = pathlib.Path(directory).expanduser()
    if name == "idx":
        with contextlib.suppress(MrsaError):  # an error when it is read
            return idx_files(folder)
        return []
    if name in PREPARED:
        with contextlib.suppress(MrsaError):  # an error when it is read
            unpacked = unpacked_folder(name, folder)
            if unpacked is not None:
                return source_files("cifar" if "cifar" in name else "idx", unpacked)
    if name == "cifar":
        with contextlib.suppress(MrsaError):
            return find_cifar(folder)[2]
        return []
    if name == "att":
        with contextlib.suppress(MrsaError):
            return [path for _, path in face_files(folder)]
        return []
    return _files_of(name, folder)


def _default_files(name: str) -> list[pathlib.Path]:
    """Return the files of a set that needs no folder."""
    if name not in PREPARED and name != "olivetti" and not name.startswith("tfds:"):
        return []
    files = _files_of(name, None)
    is_installed = name == "fashion_mnist" and FASHION_DIRECTORY.is_dir()
    return files or (source_files("idx", FASHION_DIRECTORY) if is_installed else [])


def _files_of(name: str, folder: pathlib.Path | None) -> list[pathlib.Path]:
    """Return the files of a set that another package has prepared."""
    if name == "olivetti":
        files = [olivetti_file(folder)]
    else:
        prepared = prepared_folder(name.removeprefix("tfds:"), folder)
        files = [] if prepared is None else sorted(prepared.iterdir())
    return [path for path in files if path.is_file()]


def packaged(name: str) -> pathlib.Path:
    """Return the file of a set that this package holds."""
    return packaged_file(f"{name}.npz")


def _read_packaged(name: str, directory: Any, key: Key[Array, ""]) -> Dataset:
    """Read a table of pixels and labels."""
    table = np.load(packaged(name))["table"]
    picture = PACKAGED[name]
    inputs = table[:, :-1].reshape(-1, picture.side, picture.side, 1).astype(np.float32)
    return _stratified(name, inputs / np.float32(picture.white), table[:, -1], key)


def _read_olivetti(directory: Any, key: Key[Array, ""]) -> Dataset:
    faces = read_olivetti(directory)
    return _stratified("olivetti", faces["inputs"], faces["labels"], key)


def _read_att(directory: str | os.PathLike[str] | None, key: Key[Array, ""]) -> Dataset:
    folder = _required(directory, "the pictures", "att")
    images, labels = read_faces(face_files(folder))
    return _stratified("att", _normalised(images), labels, key)


def _read_idx(directory: str | os.PathLike[str] | None, key: Key[Array, ""]) -> Dataset:
    folder = idx_folder(_required(directory, "the IDX files", "idx"))
    # torchvision keeps MNIST's files in MNIST/raw
    named = folder.parent if folder.name == "raw" else folder
    return _from_splits(f"idx:{named.name}", _idx_arrays(folder), key)


def _read_cifar(
    directory: str | os.PathLike[str] | None, key: Key[Array, ""]
) -> Dataset:
    folder = _required(directory, "the CIFAR files", "cifar")
    kind, arrays = _cifar_arrays(folder)
    return _from_splits(f"cifar:{kind}", arrays, key)


def _cifar_arrays(directory: pathlib.Path) -> tuple[str, Arrays]:
    """Read CIFAR's files, and remember their digest if they are the published ones."""
    kind, folder, paths = find_cifar(directory)

    def read() -> Arrays:
        arrays = read_cifar(kind, paths)
        return _proven(arrays) if are_published(kind.name, paths) else arrays

    arrays = cached(kind.name, folder, paths, read)
    return kind.name, _remembered(kind.name, arrays)


def _proven(arrays: Arrays) -> Arrays:
    """Add the digest of samples that are known to be the published ones."""
    return {**arrays, "digest": np.asarray(digest_of_arrays(arrays))}


def _remembered(name: str, arrays: Arrays) -> Arrays:
    """Remember the digest, if there is one, and return the other arrays."""
    rest = {key: array for key, array in arrays.items() if key != "digest"}
    if "digest" in arrays:
        remember(name.partition(":")[0], str(arrays["digest"]))
    return rest


def _read_prepared(
    name: str, directory: str | os.PathLike[str] | None, key: Key[Array, ""]
) -> Dataset:
    """Read one of the four sets by its plain name."""
    unpacked = None if directory is None else unpacked_folder(name, directory)
    if unpacked is not None:
        arrays = _unpacked_arrays(name, unpacked)
    else:
        try:
            arrays = read_tfds(name, directory)
        except DataNotFoundError:
            is_installed = name == "fashion_mnist" and FASHION_DIRECTORY.is_dir()
            if not is_installed or directory is not None or prepared_folder(name):
                raise
            arrays = _unpacked_arrays(name, FASHION_DIRECTORY)
    rule = f"must hold {name!r}, which has {PREPARED[name]} classes"
    count = int(arrays["num_classes"])
    require(count <= PREPARED[name], "directory", rule, f"{count} classes")
    return _from_splits(name, arrays | {"num_classes": np.asarray(PREPARED[name])}, key)


def _unpacked_arrays(name: str, folder: pathlib.Path) -> Arrays:
    return _cifar_arrays(folder)[1] if name.startswith("cifar") else _idx_arrays(folder)


def unpacked_folder(
    name: str, directory: str | os.PathLike[str]
) -> pathlib.Path | None:
    """Return the folder of a set's own files, in torchvision's layout, or None.

    Raises:
        ConfigurationError: If the directory holds the set twice.
    """
    root = pathlib.Path(directory).expanduser()
    # of CIFAR's two versions the Python one, whose files can be recognised
    folders = [root / sub for sub in _UNPACKED[name] if (root / sub).is_dir()][:1]
    prepared = prepared_folder(name, directory)
    each = [str(folder) for folder in (*folders, prepared) if folder is not None]
    rule = f"must hold {name!r} once; it is in {' and '.join(each)}"
    require(len(each) <= 1, "directory", rule, str(directory))
    return folders[0] if folders else None


_UNPACKED = {
    "mnist": ("MNIST/raw",),
    "fashion_mnist": ("FashionMNIST/raw",),
    "cifar10": ("cifar-10-batches-py", "cifar-10-batches-bin"),
    "cifar100": ("cifar-100-python", "cifar-100-binary"),
}
"""Folders of each set's own files, as torchvision and the archives name them."""


def _required(
    directory: str | os.PathLike[str] | None, what: str, name: str
) -> pathlib.Path:  # a folder that has no default
    rule = f"must name the folder of {what} for the data set {name!r}"
    require(directory is not None, "directory", rule, directory)
    assert directory is not None  # for the type checker: `require` has raised
    return pathlib.Path(directory).expanduser()


def _idx_arrays(folder: pathlib.Path) -> Arrays:
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    arrays = dict(zip(names, read_idx_directory(folder), strict=True))
    largest = max(int(arrays["train_labels"].max()), int(arrays["test_labels"].max()))
    return arrays | {"num_classes": np.asarray(largest + 1)}


def _from_splits(name: str, arrays: Arrays, key: Key[Array, ""]) -> Dataset:
    """Scale bytes to [0, 1], add a missing channel axis, and shuffle the training."""
    labels = arrays["train_labels"].astype(np.int32)
    order = host_generator(key, Stream.PARTITION, 0).permutation(len(labels))
    return Dataset(
        name=name,
        train_inputs=_normalised(arrays["train_inputs"][order]),
        train_labels=labels[order],
        test_inputs=_normalised(arrays["test_inputs"]),
        test_labels=arrays["test_labels"].astype(np.int32),
        num_classes=int(arrays["num_classes"]),
    )


def _normalised(images: np.ndarray) -> np.ndarray:
    scaled = np.divide(images, np.float32(255), dtype=np.float32)
    return scaled[..., None] if scaled.ndim == 3 else scaled


def _stratified(
    name: str, inputs: np.ndarray, labels: np.ndarray, key: Key[Array, ""]
) -> Dataset:
    """Take one sample in five of each class to test, and shuffle both parts."""
    generator = host_generator(key, Stream.PARTITION, 0)
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for label in np.unique(labels):
        # Class by class, so that small classes are in both parts.
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


_READERS: dict[str, Callable[[Any, Key[Array, ""]], Dataset]] = {
    "idx": _read_idx,
    "cifar": _read_cifar,
    "att": _read_att,
    "olivetti": _read_olivetti,
    **{name: functools.partial(_read_packaged, name) for name in PACKAGED},
    **{name: functools.partial(_read_prepared, name) for name in PREPARED},
}
