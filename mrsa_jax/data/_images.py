"""Image preparation of the papers' kind: a standard scale, random crops and mirror images.

Source: the usual treatment of CIFAR (4 pixels of padding, random crop, horizontal flip), which
Multi-RoundSecAgg and CCESA train VGG-11 and LeNet with but do not describe.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mrsa_jax._core.streams import client_words
from mrsa_jax.data._dataset import Dataset, check_dataset
from mrsa_watch._base.errors import check_count, require

PerChannel = float | int | np.floating | Sequence[Any] | np.ndarray | None

_MAX_PADDING = 1024


def normalise(dataset: Dataset, mean: PerChannel = None, std: PerChannel = None) -> Dataset:
    """Shift and scale each channel: (inputs - mean) / std.

    Args:
        dataset: What to scale, training and test images alike.
        mean: One number, or one for each channel; None for the mean of the training images.
        std: One positive number, or one for each channel; None for the standard deviation of
            the training images.

    Returns:
        The data set with the same labels. With None for both, the training images have mean 0
        and standard deviation 1 in every channel; test images are scaled by the same numbers.

    Raises:
        ConfigurationError: If a number is not finite, `std` is not positive (a channel without
            variation needs a separate `std`), or there is not one for each channel.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> digits = mj.data.normalise(mj.data.load("digits"))
        >>> bool(abs(digits.train_inputs.std() - 1) < 1e-4)
        True
    """
    check_dataset(dataset)
    channels = dataset.train_inputs.shape[-1]
    shift = _per_channel("mean", mean, channels)
    if shift is None:
        shift = dataset.train_inputs.mean(axis=(0, 1, 2), dtype=np.float64)
    scale = _per_channel("std", std, channels)
    if scale is None:
        scale = np.asarray([_deviation(dataset.train_inputs[..., c]) for c in range(channels)])
    require(bool((scale > 0).all()), "std", "must be positive in every channel", scale.tolist())
    shift, scale = shift.astype(np.float32), scale.astype(np.float32)
    return dataclasses.replace(
        dataset,
        train_inputs=(dataset.train_inputs - shift) / scale,
        test_inputs=(dataset.test_inputs - shift) / scale,
    )


def augment(
    key: Key[Array, ""],
    images: Float[Array, "batch height width channels"],
    *,
    padding: int | np.integer = 4,
    flip: bool = True,
) -> Float[Array, "batch height width channels"]:
    """Crop each image at random from its padded self, and mirror it with chance one half.

    A pure jitted function, for use inside local training: give it the minibatch and a key of the
    step. Image i's draw depends on the key and on i, not on the size of the batch. The padding
    is zeros: the mean colour of normalised images, black of others.

    Args:
        key: One typed JAX key.
        images: Of any floating type.
        padding: Pixels added on each side before a crop of the old size, 0 for no shift. Each of
            the (2 padding + 1)^2 places is equally likely within 2^-15.
        flip: Whether to mirror left and right.

    Returns:
        Images of the same shape and type; with padding 0 and no flip the images themselves.

    Raises:
        ConfigurationError: If `padding` is not an integer in [0, 1024].

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax, jax.numpy as jnp
        >>> images = jnp.ones((3, 8, 8, 1), jnp.float32)
        >>> out = mj.data.augment(jax.random.key(0), images, padding=0)  # ones mirrored are ones
        >>> bool((out == images).all())
        True
    """
    rule = f"must be an integer in [0, {_MAX_PADDING}]"
    border = check_count(padding, "padding", rule, 0, _MAX_PADDING)
    require(isinstance(flip, bool), "flip", "must be True or False", flip)
    return _augment(key, images, border, flip)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _augment(key: Array, images: Array, padding: int, flip: bool) -> Array:
    batch, height, width, _ = images.shape
    place = client_words(key, batch)
    # halves of a word, scaled to [0, 2 padding]: no modulus, whose remainder is dearer
    span = jnp.uint32(2 * padding + 1)
    down = ((place >> 16) * span) >> 16
    right = ((place & jnp.uint32(0xFFFF)) * span) >> 16
    rows = jnp.arange(height, dtype=jnp.int32)[None, :] + down.astype(jnp.int32)[:, None]
    columns = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32)[None, :], (batch, width))
    if flip:
        is_mirrored = (client_words(key, batch, 1) >> 31).astype(bool)
        columns = jnp.where(is_mirrored[:, None], columns[:, ::-1], columns)
    columns = columns + right.astype(jnp.int32)[:, None]
    # One gather: 2 us an image of 32x32x3 on one loaded core. A dynamic slice an image took 1.6
    # times that under vmap and 36 times inside a loop, one-hot products 12 times.
    border = (padding, padding)
    padded = jnp.pad(images, ((0, 0), border, border, (0, 0)))
    index = jnp.arange(batch, dtype=jnp.int32)[:, None, None]
    return padded[index, rows[:, :, None], columns[:, None, :]]


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation of float32 values, exactly 0 where all are equal."""
    centre = np.float32(values.mean(dtype=np.float64))
    return math.sqrt(np.square(values - centre).mean(dtype=np.float64))


def _per_channel(name: str, value: Any, channels: int) -> np.ndarray | None:
    """Return float64 [channels] of one number or one for each channel; None stays None."""
    if value is None:
        return None
    try:
        numbers_ = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers_ = np.full(0, math.nan)
    rule = f"must be one finite number or one for each of {channels} channels"
    is_one = numbers_.ndim == 0 or numbers_.shape == (channels,)
    require(is_one and bool(np.isfinite(numbers_).all()), name, rule, value)
    return np.broadcast_to(numbers_, (channels,))
