"""Normalisation, against hand-made images and plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj


def _dataset(images: Any) -> mj.data.Dataset:
    images = np.asarray(images, np.float32)
    labels = np.zeros(len(images), np.int32)
    return mj.data.Dataset("toy", images, labels, images[:1] + 1, labels[:1], 1)


TWO_CHANNELS = _dataset([[[[0.0, 10.0], [2.0, 30.0]]], [[[4.0, 10.0], [6.0, 30.0]]]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mean": [1.0, 2.0, 3.0]},
            "`mean` must be one finite number or one for each of 2",
        ),
        ({"mean": float("nan")}, "`mean` must be one finite number"),
        ({"std": [1.0, np.inf]}, "`std` must be one finite number"),
        ({"std": 0.0}, "`std` must be positive in every channel; got [0.0, 0.0]"),
        ({"std": [1, -2]}, "`std` must be positive in every channel; got [1.0, -2.0]"),
    ],
)
def test_bad_scales(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError) as caught:
        mj.data.normalise(TWO_CHANNELS, **arguments)
    assert message in str(caught.value)


def test_a_blank_channel_needs_a_scale_of_its_own() -> None:
    blank = _dataset(np.full((7, 3, 1, 1), 0.1))
    with pytest.raises(mj.ConfigurationError, match="`std` must be positive"):
        mj.data.normalise(blank)
    np.testing.assert_array_equal(
        mj.data.normalise(blank, mean=np.float32(0.1), std=2.0).train_inputs, 0
    )


@pytest.mark.smoke
def test_training_statistics_by_hand() -> None:
    scaled = mj.data.normalise(TWO_CHANNELS)
    # channel 0 holds 0, 2, 4, 6: mean 3, variance 5; channel 1 holds 10, 30, 10, 30: 20
    # and 100
    root = np.sqrt(5.0)
    np.testing.assert_allclose(
        scaled.train_inputs[..., 0].ravel(), np.array([-3, -1, 1, 3]) / root, rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.train_inputs[..., 1].ravel(), [-1, 1, -1, 1], rtol=1e-6
    )
    # the test image is the first training image plus 1, scaled by the training
    # statistics
    np.testing.assert_allclose(
        scaled.test_inputs[..., 0].ravel(),
        np.array([-2, 0]) / root,
        rtol=1e-6,
        atol=1e-7,
    )
    np.testing.assert_allclose(
        scaled.test_inputs[..., 1].ravel(), [-0.9, 1.1], rtol=1e-6
    )
    assert scaled.train_inputs.dtype == np.float32
    # left alone
    np.testing.assert_array_equal(TWO_CHANNELS.train_inputs[0, 0, 0], [0, 10])


def test_given_numbers() -> None:
    scaled = mj.data.normalise(TWO_CHANNELS, 1.0, (2.0, 4.0))
    np.testing.assert_allclose(scaled.train_inputs[0, 0], [[-0.5, 2.25], [0.5, 7.25]])
    mj.data.iid(0, scaled, 1)
