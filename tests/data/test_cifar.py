"""CIFAR's binary files: written here by the format's description, read back."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj

TEN = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
HUNDRED = ["train.bin", "test.bin"]


def _write(folder: pathlib.Path, names: list[str], num_labels: int) -> list[list[Any]]:
    """Write two records a file, plane by plane.

    Return each file's [image, label] pairs.
    """
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(num_labels)
    files = []
    for number, name in enumerate(names):
        pairs, data = [], b""
        for record in range(2):
            image = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            fine = (7 * number + 3 * record) % (10 if num_labels == 1 else 100)
            data += bytes([fine // 5] * (num_labels - 1) + [fine])
            for channel in range(3):
                for row in range(32):
                    data += bytes(image[row, :, channel].tolist())
            pairs.append([image, fine])
        (folder / name).write_bytes(data)
        files.append(pairs)
    return files


def _same(inputs: np.ndarray, labels: np.ndarray, pairs: list[Any]) -> None:
    """Assert that samples are those of the files, in any order."""
    read = np.rint(inputs * 255).astype(np.uint8)
    found = {
        (image.tobytes(), int(label)) for image, label in zip(read, labels, strict=True)
    }
    assert found == {(image.tobytes(), label) for image, label in pairs}
    assert len(labels) == len(pairs)


@pytest.mark.smoke("1")
@pytest.mark.parametrize("size", [0, 1, 3072, 3073 * 2 + 1, 3073 * 2 - 1])
def test_wrong_sizes_are_named(tmp_path: pathlib.Path, size: int) -> None:
    _write(tmp_path, TEN, 1)
    (tmp_path / TEN[2]).write_bytes(bytes(size))
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.load("cifar", directory=tmp_path)
    message = str(caught.value)
    assert str(tmp_path / TEN[2]) in message
    assert (
        f"a whole number of cifar10 records of 3073 bytes; got '{size} bytes'"
        in message
    )


@pytest.mark.parametrize(
    ("names", "num_labels", "place", "value", "rule"),
    [
        (TEN, 1, 3073, 10, "labels in [0, 10) in byte 0 of each record; got 10"),
        (HUNDRED, 2, 3074, 20, "labels in [0, 20) in byte 0 of each record; got 20"),
        (HUNDRED, 2, 1, 100, "labels in [0, 100) in byte 1 of each record; got 100"),
    ],
)
def test_labels_outside_the_classes(
    tmp_path: pathlib.Path,
    names: list[str],
    num_labels: int,
    place: int,
    value: int,
    rule: str,
) -> None:
    _write(tmp_path, names, num_labels)
    data = bytearray((tmp_path / names[0]).read_bytes())
    data[place] = value
    (tmp_path / names[0]).write_bytes(data)
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.load("cifar", directory=tmp_path)
    assert rule in str(caught.value)
    assert names[0] in str(caught.value)


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`directory` must name the folder of the CIFA"
    ):
        mj.data.load("cifar")
    with pytest.raises(
        mj.DataNotFoundError, match=r"looked for data_batch_1\.bin.*train\.bin"
    ):
        mj.data.load("cifar", directory=tmp_path)
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(mj.DataNotFoundError, match=r"test_batch \(cifar10\)"):
        mj.data.load("cifar", directory=tmp_path)
    _write(tmp_path, TEN, 1)
    (tmp_path / TEN[3]).unlink()
    with pytest.raises(mj.DataNotFoundError, match=r"data_batch_4\.bin is missing"):
        mj.data.load("cifar", directory=tmp_path)


def test_two_sets_in_one_folder(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, TEN, 1)
    _write(tmp_path, HUNDRED, 2)
    with pytest.raises(
        mj.ConfigurationError, match="must hold one CIFAR set, not both"
    ):
        mj.data.load("cifar", directory=tmp_path)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("names", "num_labels"), [(TEN, 1), (HUNDRED, 2)])
def test_round_trip(
    tmp_path: pathlib.Path, names: list[str], num_labels: int, inside: bool
) -> None:
    """The folder itself, or the one that holds the archive's folder."""
    archive = "cifar-10-batches-bin" if num_labels == 1 else "cifar-100-binary"
    files = _write(tmp_path / archive if inside else tmp_path, names, num_labels)
    dataset = mj.data.load("cifar", directory=tmp_path, seed=4)
    mj.data.iid(0, dataset, 1)
    assert dataset.name == ("cifar:cifar10" if num_labels == 1 else "cifar:cifar100")
    assert dataset.num_classes == (10 if num_labels == 1 else 100)
    assert dataset.input_shape == (32, 32, 3)
    _same(
        dataset.train_inputs,
        dataset.train_labels,
        [p for pairs in files[:-1] for p in pairs],
    )
    _same(dataset.test_inputs, dataset.test_labels, files[-1])


def test_the_second_time_comes_from_the_cache(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, HUNDRED, 2)
    first = mj.data.load("cifar", directory=tmp_path)

    def fail(*_: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("mrsa_jax.data._formats._read_file", fail)
    again = mj.data.load("cifar", directory=tmp_path)
    np.testing.assert_array_equal(first.train_inputs, again.train_inputs)
    _write(tmp_path, HUNDRED, 2)  # other times: read anew
    with pytest.raises(AssertionError, match="read again"):
        mj.data.load("cifar", directory=tmp_path)
