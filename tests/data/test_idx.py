"""IDX files: written here by the format's description, read back."""

from __future__ import annotations

import gzip
import pathlib
import struct

import numpy as np
import pytest

import mrsa_jax as mj

_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 0x08, array.ndim])
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _arrays() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    train = generator.integers(0, 256, (6, 5, 4), dtype=np.uint8)
    test = generator.integers(0, 256, (3, 5, 4), dtype=np.uint8)
    train[0, 0, 0], test[0, 0, 0] = 255, 0
    return [
        train,
        np.array([0, 1, 2, 0, 1, 2], np.uint8),
        test,
        np.array([2, 1, 0], np.uint8),
    ]


def _write(directory: pathlib.Path, how: str) -> list[np.ndarray]:
    arrays = _arrays()
    for name, array in zip(_NAMES, arrays, strict=True):
        data = _idx_bytes(array)
        if how == "gz":
            (directory / f"{name}.gz").write_bytes(gzip.compress(data))
        elif how == "dots":
            (directory / name.replace("-idx", ".idx")).write_bytes(data)
        else:
            (directory / name).write_bytes(data)
    return arrays


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, "plain")
    (tmp_path / _NAMES[2]).unlink()
    with pytest.raises(mj.DataNotFoundError) as caught:
        mj.data.load("idx", directory=tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert _NAMES[2] in message
    assert _NAMES[0] not in message
    assert "dataset-fashion-mnist" in message


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda data: data[:-1], "must hold"),
        (lambda data: data + b"\0", "must hold"),
        (lambda data: data[:6], "must hold"),
        (lambda data: b"\x89PNG" + data, "must be an IDX file"),
        (lambda data: b"", "must be an IDX file"),
        (
            lambda data: gzip.compress(data)[:-9],
            "must be a whole file, plain or by gzip",
        ),
    ],
)
def test_broken_files_are_rejected(
    tmp_path: pathlib.Path, damage: object, rule: str
) -> None:
    _write(tmp_path, "plain")
    path = tmp_path / _NAMES[1]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(mj.ConfigurationError, match=rule) as caught:
        mj.data.load("idx", directory=tmp_path)
    assert str(path) in str(caught.value)


def test_images_and_labels_must_belong_together(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, "plain")
    (tmp_path / _NAMES[1]).write_bytes(_idx_bytes(np.zeros(5, np.uint8)))
    with pytest.raises(
        mj.ConfigurationError, match="one uint8 image for each uint8 label"
    ):
        mj.data.load("idx", directory=tmp_path)


@pytest.mark.parametrize("how", ["plain", "gz", "dots"])
def test_round_trip(tmp_path: pathlib.Path, how: str) -> None:
    arrays = _write(tmp_path, how)
    dataset = mj.data.load("idx", directory=tmp_path, seed=5)
    assert dataset.num_classes == 3
    assert dataset.train_inputs.shape == (6, 5, 4, 1)
    np.testing.assert_array_equal(
        dataset.test_inputs, arrays[2][..., None].astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(dataset.test_labels, arrays[3])
    # the training samples are those of the file in another order, with their labels
    pairs = {
        (image.tobytes(), int(label))
        for image, label in zip(arrays[0], arrays[1], strict=True)
    }
    read = np.rint(dataset.train_inputs[..., 0] * 255).astype(np.uint8)
    assert pairs == {
        (image.tobytes(), int(label))
        for image, label in zip(read, dataset.train_labels, strict=True)
    }
