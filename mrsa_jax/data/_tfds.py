"""Reader of sets that tensorflow-datasets has prepared as array_record, through the cache.

Reading needs neither TensorFlow nor the network; a set that is cached needs not even
tensorflow-datasets. Decoding is slow, so it happens once.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

import numpy as np

from mrsa_jax.data._cache import Arrays, cached, read_cached
from mrsa_watch._base.errors import DataNotFoundError, require
from mrsa_watch._base.extras import needed


def tfds_directory(directory: str | os.PathLike[str] | None) -> pathlib.Path:
    """Return the data folder of tensorflow-datasets, its default if None, without importing it."""
    if directory is None:
        directory = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(directory).expanduser()


def prepared_folder(
    name: str, directory: str | os.PathLike[str] | None = None
) -> pathlib.Path | None:
    """Return the folder of a prepared set's newest version, or None.

    Args:
        name: As tensorflow-datasets spells it, `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        directory: Its data folder; the default one if None.
    """
    path, _, wanted = name.partition(":")
    root = tfds_directory(directory) / path
    if not root.is_dir():
        return None
    versions = [
        (tuple(int(number) for number in folder.name.split(".")), folder)
        for folder in root.iterdir()
        if re.fullmatch(r"\d+(\.\d+)*", folder.name) and (folder / "dataset_info.json").is_file()
    ]
    kept = [pair for pair in versions if not wanted or pair[1].name == wanted]
    return max(kept)[1] if kept else None


def read_tfds(name: str, directory: str | os.PathLike[str] | None) -> Arrays:
    """Read the train and test splits: from the cache, or decoded and then cached.

    Raises:
        DataNotFoundError: If the set is not prepared; says how to do that.
        ConfigurationError: If it is not a set of labelled images of one size.
    """
    folder = prepared_folder(name, directory)
    if folder is not None:
        files = [path for path in folder.iterdir() if path.is_file()]
        return cached(f"tfds-{name}", folder, files, lambda: _decode(name, folder))
    if directory is not None:
        raise _not_prepared(name, directory, "there is no such folder of a prepared set")
    found = read_cached(f"tfds-{name}")
    # where else tensorflow-datasets may look is left to itself
    return _decode(name, None) if found is None else found


def import_tfds(name: str, extra: str = "tfds") -> Any:
    """Import tensorflow-datasets, which an extra brings, for a data set of some name."""
    rule = f"data set {name!r} needs the package 'tensorflow_datasets', which cannot be imported"
    return needed("tensorflow_datasets", extra, rule, DataNotFoundError)


def _decode(name: str, folder: pathlib.Path | None) -> Arrays:
    """Decode both splits; without a folder wherever tensorflow-datasets itself looks."""
    tfds = import_tfds(name)
    arrays: Arrays = {}
    num_classes = 0
    for split in ("train", "test"):
        try:
            if folder is None:
                source = tfds.data_source(name, split=split, download=False)
            else:
                source = tfds.builder_from_directory(folder).as_data_source(split=split)
        except Exception as error:
            reason = f"split {split!r}: {type(error).__name__}: {error}"
            raise _not_prepared(name, folder, reason) from error
        images, labels = _collect(source, name)
        arrays |= {f"{split}_inputs": images, f"{split}_labels": labels}
        num_classes = max(num_classes, _num_classes(source), int(labels.max()) + 1)
    return {**arrays, "num_classes": np.asarray(num_classes)}


def _not_prepared(
    name: str, where: str | os.PathLike[str] | None, reason: str
) -> DataNotFoundError:
    return DataNotFoundError(
        f"data set {name!r} is not prepared (looked in {tfds_directory(where)}); "
        f"`mrsa-jax data prepare {name}` does that once, as array_record. It said: {reason}"
    )


def _num_classes(source: Any) -> int:
    """Return what the set itself says, 0 where it does not."""
    try:
        return int(source.dataset_info.features["label"].num_classes)
    except (AttributeError, KeyError, TypeError):
        return 0


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
    images = [np.asarray(example["image"]) for example in examples]
    shapes = {image.shape for image in images}
    require(len(shapes) == 1, "name", "must be a set of images of one size", sorted(shapes)[:4])
    return np.stack(images), np.asarray([example["label"] for example in examples], np.int32)
