"""The server's side: tests of the global model, in batches."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from mrsa_jax._core.arrays import needs_values, on_device
from mrsa_jax.federated._models import num_outputs, unflatten
from mrsa_watch._base.errors import check_count, require


class Evaluation(NamedTuple):
    """Accuracy and mean cross-entropy on a test set."""

    accuracy: float
    loss: float


@needs_values
def evaluate(
    model: nn.Module,
    parameters: Float32[Array, " dim"] | np.ndarray,
    inputs: Float32[Array, "samples ..."] | np.ndarray,
    labels: Int32[Array, " samples"] | np.ndarray,
    *,
    batch_size: int = 500,
) -> Evaluation:
    """Return the model's accuracy and mean cross-entropy, computed in batches.

    Args:
        model: Flax module.
        parameters: f32 [d].
        inputs: f32 [m, ...], m at least 1.
        labels: int32 [m].
        batch_size: Samples at once; bounds the memory, changes nothing else.

    Returns:
        Accuracy in [0, 1] and loss in nats.

    Raises:
        ConfigurationError: If inputs and labels are not equally many, or none; if a label is
            none of the model's classes.

    Examples:
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits")
        >>> model = mj.federated.logistic(10)
        >>> loss = evaluate(model, jnp.zeros(650), digits.test_inputs, digits.test_labels).loss
        >>> round(loss, 4) == round(float(np.log(10)), 4)  # all classes equally likely
        True
    """
    test = batched(inputs, labels, batch_size, num_outputs(model, tuple(np.shape(inputs)[1:])))
    accuracy, loss = evaluation(model, on_device(parameters, jnp.float32), *test)
    return Evaluation(float(accuracy), float(loss))


def batched(
    inputs: Any, labels: Any, batch_size: int, num_classes: int | None = None
) -> tuple[Float32[Array, "batches batch ..."], Int32[Array, "batches batch"], Int32[Array, ""]]:
    """Cut a test set into equal batches, padded at the end, with the number of real samples.

    The labels must lie in [0, `num_classes`), or from 0 on if it is None.
    """
    require(
        len(inputs) == len(labels) and len(labels) > 0,
        "inputs",
        "must be as many as the labels, at least one",
        len(inputs),
        len(labels),
    )
    check_count(batch_size, "batch_size")
    lowest, highest = int(np.min(labels)), int(np.max(labels))
    is_inside = lowest >= 0 and (num_classes is None or highest < num_classes)
    rule = "must not be negative" if num_classes is None else f"must lie in [0, {num_classes})"
    require(is_inside, "labels", rule, lowest if lowest < 0 else highest)
    size = len(labels)
    width = min(int(batch_size), size)
    spare = -size % width
    here = np.asarray(inputs, np.float32), np.asarray(labels, np.int32)
    padded = [np.pad(each, ((0, spare), *[(0, 0)] * (each.ndim - 1))) for each in here]
    cut = [on_device(each.reshape(-1, width, *each.shape[1:])) for each in padded]
    return cut[0], cut[1], jnp.int32(size)


@functools.partial(jax.jit, static_argnums=0)
def evaluation(
    model: nn.Module,
    parameters: Float32[Array, " dim"],
    inputs: Float32[Array, "batches batch ..."],
    labels: Int32[Array, "batches batch"],
    size: Int32[Array, ""],
) -> tuple[Float32[Array, ""], Float32[Array, ""]]:
    """Return accuracy and mean loss over the first `size` samples of the batches."""
    num_batches, width = labels.shape
    starts = jnp.arange(num_batches, dtype=jnp.int32) * width

    def one(batch: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        images, truth, start = batch
        variables = unflatten(model, images.shape[1:], parameters)
        log_likelihoods = jax.nn.log_softmax(model.apply(variables, images))
        is_real = start + jnp.arange(width, dtype=jnp.int32) < size
        is_right = (jnp.argmax(log_likelihoods, axis=1).astype(jnp.int32) == truth) & is_real
        of_truth = jnp.take_along_axis(log_likelihoods, truth[:, None], axis=1)[:, 0]
        loss = -jnp.sum(jnp.where(is_real, of_truth, jnp.float32(0)))
        return jnp.sum(is_right, dtype=jnp.int32), loss

    right, losses = jax.lax.map(one, (inputs, labels, starts))
    count = size.astype(jnp.float32)
    return jnp.sum(right).astype(jnp.float32) / count, jnp.sum(losses) / count
