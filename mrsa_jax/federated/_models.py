"""Models as flax modules, their parameters as one flat vector.

Secure aggregation sums vectors, so parameters travel as f32[d]; a module is static (hashable by
its fields) and used through `apply` only. Any flax module from images to logits will do, as long
as its only variables are parameters (no dropout, no batch statistics).
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from mrsa_jax._errors import ConfigurationError, require
from mrsa_jax._streams import Stream, as_key, fold
from mrsa_jax.federated._layers import conv_relu_pool, pooled_size

__all__ = [
    "apply_flat",
    "initial_parameters",
    "lenet",
    "logistic",
    "mlp",
    "num_outputs",
    "num_parameters",
    "unflatten",
]


class _Dense(nn.Module):
    """Fully connected layers with relu between them."""

    num_classes: int
    hidden_sizes: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        values = inputs.reshape(inputs.shape[0], -1)
        for size in self.hidden_sizes:
            values = nn.relu(nn.Dense(size)(values))
        return nn.Dense(self.num_classes)(values)


class _ConvReluPool(nn.Module):
    """`conv_relu_pool` with parameters named as in flax's own convolution."""

    features: int
    kernel_size: int
    padding: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        shape = (self.kernel_size, self.kernel_size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        return conv_relu_pool(inputs, kernel, bias, padding=self.padding)


class _LeNet(nn.Module):
    """LeNet-5 with relu and max-pool."""

    num_classes: int

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        sides = [pooled_size(pooled_size(side, 5, 2), 5, 0) for side in inputs.shape[1:3]]
        require(
            min(sides) >= 1,
            "model",
            "must fit the images: LeNet needs at least 12 x 12 pixels",
            f"{inputs.shape[1]} x {inputs.shape[2]}",
        )
        values = _ConvReluPool(6, 5, padding=2)(inputs)
        values = _ConvReluPool(16, 5, padding=0)(values)
        values = values.reshape(values.shape[0], -1)
        for size in (120, 84):
            values = nn.relu(nn.Dense(size)(values))
        return nn.Dense(self.num_classes)(values)


def logistic(num_classes: int = 10) -> nn.Module:
    """Return multinomial logistic regression (7,850 parameters on 28x28 images).

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, ...] to logits [batch, num_classes].

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2.

    Examples:
        >>> num_parameters(logistic(10), (28, 28, 1)) == 784 * 10 + 10
        True

    Source: HeteroSAg (Elkordy, Avestimehr), Experiment 2.
    """
    _check_integer(num_classes, "num_classes", 2)
    return _Dense(int(num_classes))


def mlp(num_classes: int = 10, *, hidden_sizes: Sequence[int] = (200, 200)) -> nn.Module:
    """Return a fully connected network with relu (784-200-200-10: 199,210 parameters).

    Args:
        num_classes: Number of classes, at least 2.
        hidden_sizes: Width of each hidden layer.

    Returns:
        A flax module from images [batch, ...] to logits [batch, num_classes].

    Raises:
        ConfigurationError: If a width is not a positive integer.

    Examples:
        >>> num_parameters(mlp(10), (28, 28, 1))
        199210

    Source: HeteroSAg (Elkordy, Avestimehr), Experiment 1.
    """
    _check_integer(num_classes, "num_classes", 2)
    for size in hidden_sizes:
        _check_integer(size, "hidden_sizes", 1)
    return _Dense(int(num_classes), tuple(int(size) for size in hidden_sizes))


def lenet(num_classes: int = 10) -> nn.Module:
    """Return LeNet-5 with relu and max-pool (61,706 parameters on 28x28x1 images).

    5x5 convolution to 6 channels ('same'), pool, 5x5 convolution to 16 ('valid'), pool, fully
    connected 120, 84, classes. The images must have at least 12 x 12 pixels, any channels.

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, height, width, channels] to logits.

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2; when the model is
            first used, if the images are too small.

    Examples:
        >>> num_parameters(lenet(10), (28, 28, 1))
        61706

    Source: Multi-RoundSecAgg, Section 5 (LeNet; its variant is not stated there).
    """
    _check_integer(num_classes, "num_classes", 2)
    return _LeNet(int(num_classes))


def num_parameters(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Return d, the length of the model's flat parameter vector for one input shape.

    Args:
        model: A flax module.
        input_shape: Shape of one sample, e.g. (28, 28, 1).

    Examples:
        >>> num_parameters(logistic(3), (2, 2, 1))
        15
    """
    leaves, _ = _structure(model, tuple(input_shape))
    return sum(math.prod(leaf.shape) for leaf in leaves)


def num_outputs(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Return how many logits the model gives for one sample."""
    return _traced_outputs(model, tuple(input_shape))


def initial_parameters(
    seed: int | Key[Array, ""], model: nn.Module, input_shape: Sequence[int]
) -> Float32[Array, " dim"]:
    """Draw the model's initial parameters as one flat vector.

    Args:
        seed: Integer or key (the named stream `MODEL_INIT` of it is used).
        model: A flax module.
        input_shape: Shape of one sample.

    Returns:
        f32 [d].

    Examples:
        >>> initial_parameters(0, logistic(3), (2, 2, 1)).shape
        (15,)
    """
    _structure(model, tuple(input_shape))
    return _initialise(model, tuple(input_shape), fold(as_key(seed), Stream.MODEL_INIT))


def unflatten(
    model: nn.Module, input_shape: Sequence[int], parameters: Float32[Array, " dim"]
) -> Any:
    """Return the flax variables whose raveled leaves, one after another, are `parameters`.

    Examples:
        >>> from jax.flatten_util import ravel_pytree
        >>> flat = initial_parameters(0, logistic(3), (2, 2, 1))
        >>> bool((ravel_pytree(unflatten(logistic(3), (2, 2, 1), flat))[0] == flat).all())
        True
    """
    leaves, tree = _structure(model, tuple(input_shape))
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    starts = np.cumsum([0, *sizes])
    require(
        parameters.shape == (int(starts[-1]),),
        "parameters",
        f"must have the model's {int(starts[-1])} entries",
        parameters.shape,
    )
    parts = [
        parameters[int(start) : int(start) + size].reshape(leaf.shape)
        for leaf, start, size in zip(leaves, starts[:-1], sizes, strict=True)
    ]
    return jax.tree.unflatten(tree, parts)


def apply_flat(
    model: nn.Module,
    parameters: Float32[Array, " dim"],
    inputs: Float32[Array, "batch ..."],
) -> Float32[Array, "batch classes"]:
    """Return the logits of a batch, for parameters given as a flat vector."""
    return model.apply(unflatten(model, inputs.shape[1:], parameters), inputs)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _initialise(
    model: nn.Module, input_shape: tuple[int, ...], key: Key[Array, ""]
) -> Float32[Array, " dim"]:
    variables = model.init(key, jnp.zeros((1, *input_shape), jnp.float32))
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(variables)])


@functools.lru_cache(maxsize=64)
def _traced_outputs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    leaves, tree = _structure(model, input_shape)
    images = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    logits = jax.eval_shape(model.apply, jax.tree.unflatten(tree, leaves), images)
    return int(logits.shape[-1])


@functools.lru_cache(maxsize=64)
def _structure(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[list[Any], Any]:
    """Return shapes of the model's variables and their tree; reject what is not parameters."""
    images = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    require(
        set(variables) == {"params"},
        "model",
        "must have parameters only (no batch statistics, no other state)",
        sorted(variables),
    )
    leaves, tree = jax.tree.flatten(variables)
    dtypes = {leaf.dtype for leaf in leaves}
    if dtypes != {jnp.dtype(jnp.float32)}:
        names = sorted(map(str, dtypes))
        raise ConfigurationError(f"`model` must have float32 parameters; got {names}")
    return leaves, tree


def _check_integer(value: Any, argument: str, least: int) -> None:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(
        is_integer and value >= least, argument, f"must be an integer of at least {least}", value
    )
