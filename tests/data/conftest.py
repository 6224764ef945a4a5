"""Every test of data sets has a cache of its own, and none of the machine's own data folders."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    """Return the folder of this test's cache, which does not exist yet."""
    folder = tmp_path_factory.mktemp("folders")
    monkeypatch.setenv("MRSA_JAX_CACHE", str(folder / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(folder / "sklearn"))
    return folder / "cache"


@pytest.fixture
def toy_builder() -> Callable[[str, pathlib.Path], Any]:
    """Return a maker of builders of a small set that need neither TensorFlow nor a network.

    Six training and three test images of 2x3 pixels; all pixels of image i are i, from
    0 in the training and from 100 in the test set; the label is i mod 3, of 5 classes.
    """
    tfds = pytest.importorskip("tensorflow_datasets")

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.2.0")

        def _info(self) -> Any:
            image = tfds.features.Tensor(shape=(2, 3, 1), dtype=np.uint8)
            label = tfds.features.ClassLabel(num_classes=5)
            features = tfds.features.FeaturesDict({"image": image, "label": label})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> Any:
            return {
                "train": self._generate_examples(0, 6),
                "test": self._generate_examples(100, 3),
            }

        def _generate_examples(self, start: int, num: int) -> Any:
            for i in range(start, start + num):
                yield i, {"image": np.full((2, 3, 1), i, np.uint8), "label": i % 3}

    def make(name: str, folder: pathlib.Path) -> Any:
        Builder.name = name
        return Builder(data_dir=str(folder), file_format="array_record")

    return make
