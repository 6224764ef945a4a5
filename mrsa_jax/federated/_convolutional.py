"""The papers' convolutional models: McMahan's CNN, LeNet-5, VGG-11.

The smooth LeNet of attacks.
Their convolutions go through `conv`, which run at the speed of matrix products in a
loop or a batch over clients. Kernels and biases are named as in flax's own layers.
Source: McMahan et al. 2017; LeCun et al. 1998; Simonyan, Zisserman 2015; Wu, He 2018;
Zhu, Liu, Han 2019.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array

from mrsa_jax.federated._models import dense_layers
from mrsa_jax.federated.conv import (
    conv,
    conv_relu,
    conv_relu_pool,
    patch_conv,
    strided_patch_conv,
)
from mrsa_watch._base.errors import check_count, nearest, require

_NUM_GROUPS = 32
# Features of VGG-11's convolutions, and whether a 2x2 max-pool follows.
_VGG11 = (
    (64, True),
    (128, True),
    (256, False),
    (256, True),
    (512, False),
    (512, True),
    (512, False),
    (512, True),
)


def cnn(num_classes: int = 10) -> nn.Module:
    """Return McMahan's CNN (1,663,370 parameters on 28x28x1 images).

    5x5 convolution to 32 channels ('same'), relu, 2x2 max-pool, 5x5 convolution to 64
    ('same'), relu, pool, fully connected 512, relu, classes. The images must have at
    least 4 x 4 pixels.

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, height, width, channels] to logits.

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2; when the
            model is first used, if the samples are no images or too small.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.cnn(10), (28, 28, 1))
        1663370

    Source: McMahan et al. 2017, Section 3; Multi-RoundSecAgg, Section 5 (MNIST).
    """
    check_count(num_classes, "num_classes", minimum=2)
    return _CNN(int(num_classes))


def lenet(num_classes: int = 10) -> nn.Module:
    """Return LeNet-5 with relu and max-pool.

    It has 62,006 parameters on 32x32x3 and 61,706 on 28x28x1.

    5x5 convolution to 6 channels, pool, 5x5 convolution to 16, pool, fully connected
    120, 84, classes. LeNet-5 sees 32 x 32 pixels and MNIST's 28 x 28 set in a frame of
    zeros: the first convolution pads images below 32 pixels by 2, and larger ones not
    at all. Images must have at least 12 x 12 pixels, any channels.

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, height, width, channels] to logits.

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2; when the
            model is first used, if the samples are no images or too small.

    Examples:
        >>> import mrsa_jax as mj
        >>> (
        ...     mj.federated.num_parameters(mj.federated.lenet(10), (28, 28, 1)),
        ...     mj.federated.num_parameters(mj.federated.lenet(10), (32, 32, 3)),
        ... )
        (61706, 62006)

    Source: LeCun et al. 1998, Section II.B, with relu and max-pool instead of tanh and
    trained averages; Multi-RoundSecAgg, Section 5 (CIFAR-10; its variant of LeNet is
    not stated).
    """
    check_count(num_classes, "num_classes", minimum=2)
    return _LeNet(int(num_classes))


def vgg11(num_classes: int = 10, norm: str | None = None) -> nn.Module:
    """Return VGG-11 for 32x32 images.

    It has 9,225,610 parameters with 3 channels and 10 classes.

    3x3 convolutions ('same') to 64 M 128 M 256 256 M 512 512 M 512 512 M channels, each
    with relu, M a 2x2 max-pool, then one dense layer on the remaining 512 features;
    kernels start He normal, as relu would otherwise halve the signal's power in each of
    the eight layers.

    With `norm="group"` each convolution is group-normalised before its relu (5,504
    parameters more; 32 groups), which is meant for learning rates that the plain
    network does not tolerate. Batch normalisation is not offered: its statistics mix
    the samples of a minibatch, so that a padded sample would touch the others'
    gradients, and its running means are state in addition to the parameters, which
    averaging over clients of different classes mixes and the sum of updates would have
    to carry.

    Args:
        num_classes: Number of classes, at least 2.
        norm: None or "group".

    Returns:
        A flax module from images [batch, height, width, channels], height and width at
        least 32, to logits.

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2, or `norm`
            unknown; when the model is first used, if the samples are no images or too
            small.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.vgg11(100), (32, 32, 3))
        9271780

    Source: Simonyan, Zisserman 2015, Table 1 (A), with one dense layer as is usual on
    32x32; Multi-RoundSecAgg, Section 5 (CIFAR-100) and CCESA, Fig. 4 (CIFAR-10),
    neither of which states the variant; Wu, He 2018 (group normalisation).
    """
    check_count(num_classes, "num_classes", minimum=2)
    normalisations = ("group",)
    hint = "batch normalisation mixes samples; " if norm in ("batch", "bn") else ""
    rule = f"must be None or 'group'; {hint}{nearest(str(norm), normalisations)}"
    require(norm is None or norm in normalisations, "norm", rule, norm)
    return _VGG(int(num_classes), norm, _VGG11)


def smooth_lenet(num_classes: int = 10) -> nn.Module:
    """Return the small LeNet with sigmoids that gradient inversion is measured on.

    Three 5x5 convolutions to 12 channels ('same'; strides 2, 2, 1), a sigmoid after
    each, one dense layer: 15,826 parameters on 32x32x3. It has second derivatives
    everywhere, which relu and max-pool have not, computed as matrix products of
    patches; train other models for accuracy.

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, height, width, channels] to logits.

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2; when the
            model is first used, if the samples are no images.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.smooth_lenet(10), (32, 32, 3))
        15826

    Source: Zhu, Liu, Han, "Deep Leakage from Gradients" (2019), Section 4; kernels
    start as in flax (LeCun normal) where theirs are drawn from [-0.5, 0.5].
    """
    check_count(num_classes, "num_classes", minimum=2)
    return _SmoothLeNet(int(num_classes))


class _ConvReluPool(nn.Module):
    """A form of convolution with parameters named as in flax's own."""

    features: int
    kernel_size: int
    padding: int
    initializer: Any = nn.initializers.lecun_normal()
    form: Callable[..., Array] = conv_relu_pool

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        shape = (self.kernel_size, self.kernel_size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.initializer, shape)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        return self.form(inputs, kernel, bias, padding=self.padding)


class _ConvSigmoid(_ConvReluPool):
    """With a sigmoid instead of relu and pool: named for it."""


def _conv_sigmoid(
    inputs: Array, kernel: Array, bias: Array, *, padding: int, stride: int
) -> Array:
    """Return a sigmoid of `patch_conv`, or of `strided_patch_conv` if `stride` is 2."""
    del padding  # as much as keeps the size
    convolved = patch_conv if stride == 1 else strided_patch_conv
    return nn.sigmoid(convolved(inputs, kernel) + bias.reshape(1, 1, 1, -1))


class _CNN(nn.Module):
    """McMahan's CNN."""

    num_classes: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        _check_images(inputs, "the CNN", 4)
        values = _ConvReluPool(32, 5, padding=2)(inputs)
        values = _ConvReluPool(64, 5, padding=2)(values)
        return dense_layers(values, (512,), self.num_classes)


class _LeNet(nn.Module):
    """LeNet-5 with relu and max-pool."""

    num_classes: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        _check_images(inputs, "LeNet", 12)
        padding = 0 if min(inputs.shape[1:3]) >= 32 else 2
        values = _ConvReluPool(6, 5, padding=padding)(inputs)
        values = _ConvReluPool(16, 5, padding=0)(values)
        return dense_layers(values, (120, 84), self.num_classes)


class _SmoothLeNet(nn.Module):
    """Three convolutions with sigmoids and one dense layer."""

    num_classes: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        _check_images(inputs, "the smooth LeNet", 1)
        values = inputs
        for stride in (2, 2, 1):
            form = functools.partial(_conv_sigmoid, stride=stride)
            values = _ConvSigmoid(12, 5, padding=2, form=form)(values)
        return dense_layers(values, (), self.num_classes)


class _VGG(nn.Module):
    """3x3 convolutions, some with a pool after them, and one dense layer."""

    num_classes: int
    norm: str | None
    layers: tuple[tuple[int, bool], ...]

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        num_pools = sum(is_pooled for _, is_pooled in self.layers)
        # which the pools halve to one pixel
        _check_images(inputs, "VGG-11", 2**num_pools)
        values = inputs
        he_normal = nn.initializers.he_normal()
        for place, (features, is_pooled) in enumerate(self.layers):
            name = f"Conv_{place}"
            if self.norm is None:
                form = conv_relu_pool if is_pooled else conv_relu
                values = _ConvReluPool(features, 3, 1, he_normal, form, name=name)(
                    values
                )
            else:
                values = _ConvReluPool(features, 3, 1, he_normal, conv, name=name)(
                    values
                )
                values = nn.GroupNorm(num_groups=_NUM_GROUPS)(values)
                values = nn.relu(_max_pool(values) if is_pooled else values)
        return dense_layers(values, (), self.num_classes)


def _max_pool(values: Array) -> Array:
    """Return the 2x2 max-pool; a last odd row or column is dropped."""
    batch, height, width, features = values.shape
    cells = values[:, : height // 2 * 2, : width // 2 * 2]
    cells = cells.reshape(batch, height // 2, 2, width // 2, 2, features)
    rows = jnp.maximum(cells[:, :, 0], cells[:, :, 1])
    return jnp.maximum(rows[:, :, :, 0], rows[:, :, :, 1])


def _check_images(inputs: Array, name: str, least: int) -> None:
    """Raise unless the samples are images of enough pixels."""
    shape = inputs.shape[1:]
    rule = f"must fit the samples: {name} takes images [height, width, channels]"
    require(len(shape) == 3, "model", rule, f"samples of shape {shape}")
    rule = f"must fit the images: {name} needs at least {least} x {least} pixels"
    require(
        min(shape[:2]) >= least and shape[2] >= 1,
        "model",
        rule,
        f"{shape[0]} x {shape[1]}",
    )
