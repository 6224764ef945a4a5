"""Data sets built by hand: what is refused, and by which words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj


def _dataset(**changes: Any) -> mj.data.Dataset:
    inputs = np.arange(12, dtype=np.float32).reshape(3, 2, 2, 1)
    labels = np.array([0, 1, 0], np.int32)
    dataset = mj.data.Dataset("toy", inputs, labels, inputs[:2], labels[:2], 2)
    return dataclasses.replace(dataset, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "`num_classes` must be a positive integer; got 0"),
        ({"num_classes": True}, "`num_classes` must be a positive integer; got True"),
        (
            {"train_labels": np.array([0, 2, 1], np.int32)},
            "`train_labels` must lie in [0, 2) (1 do not, the first at index 1); got 2",
        ),
        (
            {"test_labels": np.array([0, -1])},
            "`test_labels` must lie in [0, 2) (1 do not,",
        ),
        (
            {"train_labels": np.array([0, 1])},
            "`train_labels` must be one integer for each of 3",
        ),
        (
            {"train_labels": np.array([0.0, 1, 0])},
            "`train_labels` must be one integer for each of",
        ),
        (
            {"train_inputs": np.zeros((3, 2, 2, 1))},
            "`train_inputs` must be float32 images",
        ),
        (
            {"train_inputs": np.zeros((3, 4), np.float32)},
            "`train_inputs` must be float32 images",
        ),
        (
            {"test_inputs": np.zeros((2, 2, 2, 1), np.uint8)},
            "`test_inputs` must be float32 images",
        ),
        (
            {"test_inputs": np.zeros((2, 2, 3, 1), np.float32)},
            "`test_inputs` must be images of the shape of `train_inputs`; got (2, 3, "
            "1) and",
        ),
        (
            {"train_inputs": np.full((3, 2, 2, 1), np.nan, np.float32)},
            "`train_inputs` must be finite",
        ),
        (
            {
                "train_inputs": np.array([np.inf, -np.inf, 0], np.float32).reshape(
                    3, 1, 1, 1
                )
            },
            "`train_inputs` must be finite",
        ),
        (
            {"train_labels": np.zeros(0, np.int32)},
            "`train_labels` must hold at least one sample",
        ),
    ],
)
def test_unsound_data_sets_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.iid(0, _dataset(**changes), 1)
    assert message in str(caught.value)


def test_sound_data_sets_pass() -> None:
    dataset = _dataset()
    mj.data.iid(0, dataset, 1)
    assert dataset.input_shape == (2, 2, 1)
    empty = _dataset(
        test_inputs=np.zeros((0, 2, 2, 1), np.float32),
        test_labels=np.zeros(0, np.int32),
    )
    mj.data.iid(0, empty, 1)
    # the largest finite values are finite
    largest = np.full((3, 2, 2, 1), np.finfo(np.float32).max, np.float32)
    mj.data.iid(0, _dataset(train_inputs=largest), 1)
