"""Normalisation and augmentation, against hand-made images and plain NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros


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


@pytest.mark.parametrize("padding", [-1, 1.0, True, 1025])
def test_bad_padding(padding: Any) -> None:
    with pytest.raises(
        (mj.ConfigurationError, TypeError), match=r"`padding` must be|padding"
    ):
        mj.data.augment(
            jax.random.key(0), zeros((1, 2, 2, 1), np.float32), padding=padding
        )


def test_without_padding_and_flip_nothing_changes() -> None:
    images = jnp.arange(24, dtype=jnp.bfloat16).reshape(2, 3, 4, 1)
    out = mj.data.augment(jax.random.key(1), images, padding=0, flip=False)
    assert out.dtype == images.dtype
    np.testing.assert_array_equal(out, images)


def _all_crops(image: np.ndarray, padding: int, flip: bool) -> dict[bytes, int]:
    """Return every outcome of one image: its bytes to an index."""
    height, width, _ = image.shape
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    outcomes = {}
    for down in range(2 * padding + 1):
        for right in range(2 * padding + 1):
            crop = padded[down : down + height, right : right + width]
            for mirrored in (crop, crop[:, ::-1])[: 1 + flip]:
                outcomes[np.ascontiguousarray(mirrored).tobytes()] = len(outcomes)
    return outcomes


@pytest.mark.parametrize(("padding", "flip"), [(1, True), (2, False)])
def test_every_crop_is_equally_likely(padding: int, flip: bool) -> None:
    # distinct positive pixels, not square: every crop and mirror image is told apart
    image = np.arange(1, 25, dtype=np.float32).reshape(3, 4, 2)
    outcomes = _all_crops(image, padding, flip)
    num = (2 * padding + 1) ** 2 * (1 + flip)
    assert len(outcomes) == num
    batch = 9000
    images = on_device(np.broadcast_to(image, (batch, *image.shape)))
    out = np.asarray(
        mj.data.augment(jax.random.key(2), images, padding=padding, flip=flip)
    )
    counts = np.zeros(num)
    for crop in out:
        counts[outcomes[crop.tobytes()]] += 1  # a KeyError: no crop of the image
    # chi-square with 17 or 24 degrees of freedom: 73 is above both at a chance of 1e-6
    expected = batch / num
    assert np.square(counts - expected).sum() / expected < 73


def test_an_image_keeps_its_draw_in_another_batch() -> None:
    images = on_device(np.random.default_rng(0).random((5, 4, 4, 3), np.float32))
    key = jax.random.key(3)
    whole, part = mj.data.augment(key, images), mj.data.augment(key, images[:3])
    np.testing.assert_array_equal(whole[:3], part)
    assert not np.array_equal(whole, mj.data.augment(jax.random.key(4), images))


def test_inside_vmap_scan_and_x64() -> None:
    images = jnp.asarray(np.random.default_rng(0).random((2, 3, 4, 4, 1), np.float32))
    keys = jax.random.split(jax.random.key(5), 2)
    alone = np.stack(
        [mj.data.augment(key, x) for key, x in zip(keys, images, strict=True)]
    )
    np.testing.assert_array_equal(jax.vmap(mj.data.augment)(keys, images), alone)
    _, scanned = jax.lax.scan(
        lambda _, kx: (None, mj.data.augment(*kx)), None, (keys, images)
    )
    np.testing.assert_array_equal(scanned, alone)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(mj.data.augment(keys[0], images[0]), alone[0])
