"""Items that train, on files in the true layout of MNIST and CIFAR-10 with random pixels."""

from __future__ import annotations

import pathlib
import struct

import numpy as np
import pytest
from small import smallest

from mrsa_papers import ITEMS, check_targets
from mrsa_papers._functions import item_function
from mrsa_papers.harness import ANY

_COUNT = 2_500  # pictures to train on, and as many to test on
_TRAIN = [
    # in the format of the paper's data, or that of MNIST
    (f"{paper}.{name}", "cifar" if (row.data or "").startswith("cifar") else "idx")
    for paper, rows in ITEMS.items()
    for name, row in rows.items()
    if row.trains
]


def _idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Write random pictures of ten classes; return the folder of each format."""
    generator = np.random.default_rng(4)
    labels = np.resize(np.arange(10, dtype=np.uint8), _COUNT)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("idx", "cifar")}
    for part in ("train", "t10k"):
        pixels = generator.integers(0, 256, (_COUNT, 28, 28), dtype=np.uint8)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            (folders["idx"] / f"{part}-{kind}-ubyte").write_bytes(_idx(array))
    for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = generator.integers(0, 256, (_COUNT // 5, 3073), dtype=np.uint8)
        records[:, 0] = labels[: len(records)]
        (folders["cifar"] / f"{part}.bin").write_bytes(records.tobytes())
    return folders


@pytest.mark.slow
@pytest.mark.parametrize(("target", "dataset"), _TRAIN)
def test_items_read_files_in_the_real_formats(
    target: str, dataset: str, files: dict[str, pathlib.Path]
) -> None:
    words = {"dataset": dataset, "directory": files[dataset]}
    item = item_function(target)(fast=True, **words, **smallest(target))
    assert item.checks
    assert not item.data.empty
    ((paper, name),) = check_targets(target)
    if ITEMS[paper][name].data == ANY:
        return
    # random pixels are no data of a paper, though they have its layout
    found = [check for check in item.checks if check.of_data and check.depends != ()]
    assert "reproduced" not in [check.verdict for check in found]
