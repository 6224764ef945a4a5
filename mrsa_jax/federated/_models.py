"""Models as flax modules, their parameters as one flat vector.

Secure aggregation sums vectors, so parameters travel as f32[d]; a module is static
(hashable by its fields) and used through `apply` only. Any flax module from images to
logits will do, or to what a loss of one's own takes, as long as its only variables are
parameters (no dropout, no batch statistics); `flax.nnx.bridge.to_linen` makes one of a
class of `flax.nnx`.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.programs import one_program
from mrsa_jax._core.streams import Seed, Stream, as_key, fold
from mrsa_jax._core.traced import is_traced
from mrsa_jax.data import ClientData, check_client_data
from mrsa_watch._base.errors import ConfigurationError, check_count, require


class _Dense(nn.Module):
    """Fully connected layers with relu between them."""

    num_classes: int
    hidden_sizes: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        return dense_layers(inputs, self.hidden_sizes, self.num_classes)


def dense_layers(values: Array, hidden_sizes: Sequence[int], num_classes: int) -> Array:
    """Apply fully connected layers of the module at hand, with relu between them."""
    values = values.reshape(values.shape[0], -1)
    for size in hidden_sizes:
        values = nn.relu(nn.Dense(size)(values))
    return nn.Dense(num_classes)(values)


def logistic(num_classes: int = 10) -> nn.Module:
    """Return softmax regression: one dense layer (7,850 parameters on 28x28 images).

    With cross-entropy this is multinomial logistic regression, the papers' "logistic
    regression" and "softmax regression" alike; the loss is convex, so what it reaches
    does not depend on the initial parameters.

    Args:
        num_classes: Number of classes, at least 2.

    Returns:
        A flax module from images [batch, ...] to logits [batch, num_classes].

    Raises:
        ConfigurationError: If `num_classes` is not an integer of at least 2.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.logistic(10), (28, 28, 1))
        7850

    Source: HeteroSAg (Elkordy, Avestimehr), Experiment 2; CCESA, Appendix B.2.
    """
    check_count(num_classes, "num_classes", minimum=2)
    return _Dense(int(num_classes))


def mlp(
    num_classes: int = 10, *, hidden_sizes: Sequence[int] = (200, 200)
) -> nn.Module:
    """Return a fully connected network with relu (784-200-200-10: 199,210 parameters).

    Args:
        num_classes: Number of classes, at least 2.
        hidden_sizes: Width of each hidden layer.

    Returns:
        A flax module from images [batch, ...] to logits [batch, num_classes].

    Raises:
        ConfigurationError: If a width is not a positive integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.mlp(10), (28, 28, 1))
        199210

    Source: HeteroSAg (Elkordy, Avestimehr), Experiment 1.
    """
    check_count(num_classes, "num_classes", minimum=2)
    for size in hidden_sizes:
        check_count(size, "hidden_sizes", "must be an integer of at least 1")
    return _Dense(int(num_classes), tuple(int(size) for size in hidden_sizes))


def num_parameters(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Return d, the length of the model's flat parameter vector for one input shape.

    Args:
        model: A flax module.
        input_shape: Shape of one sample, e.g. (28, 28, 1).

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.federated.num_parameters(mj.federated.logistic(3), (2, 2, 1))
        15
    """
    leaves, _ = _structure(model, tuple(input_shape))
    return sum(math.prod(leaf.shape) for leaf in leaves)


def num_outputs(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Return the number of logits that the model gives for a sample."""
    return _traced_outputs(model, tuple(input_shape))


def initial_parameters(
    seed: Seed, model: nn.Module, input_shape: Sequence[int]
) -> Float32[Array, " dim"]:
    """Draw the model's initial parameters as one flat vector.

    Args:
        seed: Integer or key (the named stream `MODEL_INIT` of it is used).
        model: A flax module.
        input_shape: Shape of one sample.

    Returns:
        f32 [d].

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.federated.logistic(3)
        >>> mj.federated.initial_parameters(0, model, (2, 2, 1)).shape
        (15,)
    """
    _structure(model, tuple(input_shape))
    return _initialise(model, tuple(input_shape), fold(as_key(seed), Stream.MODEL_INIT))


def unflatten(
    model: nn.Module, input_shape: Sequence[int], parameters: Float32[Array, " dim"]
) -> Any:
    """Return the flax variables whose raveled leaves in order are `parameters`.

    Examples:
        >>> import mrsa_jax as mj
        >>> from jax.flatten_util import ravel_pytree
        >>> model, shape = mj.federated.logistic(3), (2, 2, 1)
        >>> flat = mj.federated.initial_parameters(0, model, shape)
        >>> variables = mj.federated.unflatten(model, shape, flat)
        >>> bool((ravel_pytree(variables)[0] == flat).all())
        True
    """
    leaves, tree = _structure(model, tuple(input_shape))
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    fits = parameters.shape == (sum(sizes),)
    require(
        fits,
        "parameters",
        f"must have the model's {sum(sizes)} entries",
        parameters.shape,
    )
    return jax.tree.unflatten(
        tree, _parts(parameters, tuple(leaf.shape for leaf in leaves))
    )


@functools.partial(one_program, static_argnums=1)
def _parts(parameters: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Cut a vector into arrays of these shapes."""
    parts = jnp.split(
        parameters, np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    )
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def layers_of(model: nn.Module, input_shape: Sequence[int]) -> dict[str, range]:
    """Return the range of each layer in the flat parameters.

    Weights and biases of a layer are together.

    Examples:
        >>> layers_of(mlp(3, hidden_sizes=(2,)), (4,))
        {'Dense_0': range(0, 10), 'Dense_1': range(10, 19)}
    """
    leaves, tree = _structure(model, tuple(input_shape))
    named = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, leaves))[0]
    ranges: dict[str, range] = {}
    start = 0
    for path, leaf in named:
        # Paths are params / layer / leaf: the layer's name is all between. Leaves of a
        # layer are neighbours in the flat vector.
        name = "/".join(str(key.key) for key in path[1:-1]) or str(path[-1].key)
        first = ranges[name].start if name in ranges else start
        start += math.prod(leaf.shape)
        ranges[name] = range(first, start)
    return ranges


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
    return int(
        jax.eval_shape(model.apply, jax.tree.unflatten(tree, leaves), images).shape[-1]
    )


@functools.lru_cache(maxsize=64)
def _structure(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[list[Any], Any]:
    """Return shapes of the model's variables and their tree.

    Reject what is not parameters.
    """
    images = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    rule = "must have parameters only (no batch statistics, no other state)"
    require(set(variables) == {"params"}, "model", rule, sorted(variables))
    leaves, tree = jax.tree.flatten(variables)
    dtypes = {leaf.dtype for leaf in leaves}
    if dtypes != {jnp.dtype(jnp.float32)}:
        names = sorted(map(str, dtypes))
        raise ConfigurationError(f"`model` must have float32 parameters; got {names}")
    return leaves, tree


# Values are looked at once, here; inside a traced function (values unknown) only shapes
# are.
_SOUND: weakref.WeakSet[ClientData] = weakref.WeakSet()


def check_model(model: nn.Module, client_data: ClientData, loss: Any = None) -> int:
    """Return the number of parameters d.

    Raise if model and samples do not fit or make no sense.
    One pass over the samples, the first time that it sees them.

    Raises:
        ConfigurationError: If the inputs are not float32, not finite or of a shape that
            the model does not take, if the model has too few outputs or the loss
            another shape, or if `data.check_client_data` finds a label outside the
            classes or indices outside the samples.
    """
    require(
        isinstance(model, nn.Module),
        "model",
        "must be a flax module",
        type(model).__name__,
    )
    _check_inputs(client_data.inputs)
    input_shape = tuple(client_data.inputs.shape[1:])
    dim = num_parameters(model, input_shape)
    if loss is None:
        classes, outputs = client_data.num_classes, num_outputs(model, input_shape)
        require(
            classes > 0,
            "loss",
            "must be given to a trainer for labels that are no classes",
        )
        rule = "must have an output for each class of the data"
        require(
            outputs >= classes,
            "model",
            rule,
            f"{outputs} outputs",
            f"{classes} classes",
        )
    else:
        check_loss(loss, model, input_shape, client_data.labels)
    _check_values(client_data)
    return dim


def check_loss(
    loss: Any, model: nn.Module, input_shape: tuple[int, ...], labels: Any
) -> None:
    """Raise unless a loss gives each sample a float that other samples do not change.

    A mean over the batch, or outputs [B, 1] against labels [B], which broadcast to [B,
    B], would train on pairs of one sample's output and another's label. So the loss of
    a few samples is compared with that of each alone, and its gradient too.

    Args:
        loss: Of outputs and labels.
        model: What the outputs are of.
        input_shape: Of one sample.
        labels: Those of the samples; traced ones are not looked at.

    Raises:
        ConfigurationError: If the loss has another shape or depends on other samples.
    """
    leaves, tree = _structure(model, input_shape)
    variables = jax.tree.unflatten(tree, leaves)
    samples = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    outputs = jax.eval_shape(model.apply, variables, samples)
    # Two samples, so that a loss that averages or sums the batch shows in its shape.
    two = jax.ShapeDtypeStruct((2, *labels.shape[1:]), labels.dtype)
    each = jax.eval_shape(loss, outputs, two)
    rule = "must give one float for each sample"
    is_each = each.shape == (2,) and jnp.issubdtype(each.dtype, jnp.floating)
    require(is_each, "loss", rule, f"{each.dtype} {each.shape} of 2 samples")
    if is_traced(labels):
        return
    few = _distinct(np.asarray(labels))
    shape = (len(few), *outputs.shape[1:])
    # all different and in (0, 1), where losses of numbers, logits and probabilities are
    # defined
    values = np.modf((1 + np.arange(math.prod(shape))) * _GOLDEN)[0].reshape(shape)
    # known, though a caller's function is being traced
    with jax.ensure_compile_time_eval():
        together, alone = _losses(values.astype(np.float32), few, loss=loss)
    rule = (
        "must not depend on the other samples of a batch (outputs [B, 1] against "
        "labels [B] broadcast to [B, B])"
    )
    for name, in_batch, by_itself in zip(
        ("loss", "gradient"), together, alone, strict=True
    ):
        alone_too, other = np.asarray(in_batch), np.asarray(by_itself)
        scale = np.abs(other[np.isfinite(other)]).max(initial=1e-6)
        # Relative to the largest value, as entries near zero round at its scale.
        differs = ~np.isclose(
            alone_too, other, rtol=0, atol=_SAME * scale, equal_nan=True
        )
        if differs.any():
            first = tuple(np.argwhere(differs)[0])
            words = (
                f"a {name} of {alone_too[first]:.4g} for a sample in a batch of "
                f"{len(few)}"
            )
            require(
                False, "loss", rule, f"{words}, and of {other[first]:.4g} for it alone"
            )


_GOLDEN = (math.sqrt(5) - 1) / 2
# to which losses of a batch and of its samples agree, relative to the largest
_SAME = 1e-3
_MOST_LABELS = 2**10


def _distinct(labels: np.ndarray) -> np.ndarray:
    """Return up to three labels, of different values where there are any."""
    first = labels[:_MOST_LABELS]
    _, places = np.unique(first.reshape(len(first), -1), axis=0, return_index=True)
    chosen = np.concatenate([np.sort(places), np.arange(min(3, len(first)))])[:3]
    return first[chosen]


@functools.partial(jax.jit, static_argnames="loss")
def _losses(outputs: Array, labels: Array, *, loss: Any) -> tuple[Any, Any]:
    """Return losses and their gradients of a batch, and of each of its samples alone.

    A sample alone is a batch of copies: a loss may need more than one, as after
    `squeeze`.
    """

    def total(outputs: Array, labels: Array) -> tuple[Array, Array]:
        each = loss(outputs, labels)
        return jnp.sum(each), each

    def of_batch(outputs: Array, labels: Array) -> tuple[Array, Array]:
        gradient, each = jax.grad(total, has_aux=True)(outputs, labels)
        return each, gradient

    def of_copies(output: Array, label: Array) -> tuple[Array, Array]:
        copies = (
            jnp.broadcast_to(array, (count, *array.shape)) for array in (output, label)
        )
        each, gradient = of_batch(*copies)
        return each[0], gradient[0]

    count = len(outputs)
    # Each sample in a batch of copies of itself: the batch has the same size, but no
    # other sample.
    return of_batch(outputs, labels), jax.vmap(of_copies)(outputs, labels)


def _check_inputs(inputs: Array) -> None:
    """Check dtype and shape of the pooled samples."""
    rule = "must be float32 (scale pixels of 0 to 255 to [0, 1])"
    require(inputs.dtype == np.float32, "client_data.inputs", rule, str(inputs.dtype))
    rule = "must have shape [samples, ...]"
    require(inputs.ndim >= 2, "client_data.inputs", rule, inputs.shape)


def _check_values(client_data: ClientData) -> None:
    """Check the numbers, unless they are being traced or were found sound before."""
    leaves = jax.tree.leaves(client_data)
    if client_data in _SOUND or any(
        isinstance(leaf, jax.core.Tracer) for leaf in leaves
    ):
        return
    check_client_data(client_data)
    for name in ("indices", "sizes", *(["labels"] if client_data.num_classes else [])):
        dtype = getattr(client_data, name).dtype
        require(dtype == np.int32, f"client_data.{name}", "must be int32", str(dtype))
    # known, though a caller's function is being traced
    with jax.ensure_compile_time_eval():
        is_finite = bool(_all_finite(client_data.inputs))
    require(is_finite, "client_data.inputs", "must be finite", "nan or inf")
    # a NumPy array may change later
    if all(isinstance(leaf, jax.Array) for leaf in leaves):
        _SOUND.add(client_data)


@jax.jit
def _all_finite(values: Array) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(values))
