"""Tests of the global model.

In batches on the server's side, and on each client's own samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.programs import products_by_library
from mrsa_jax._core.traced import needs_values
from mrsa_jax.data import ClientData
from mrsa_jax.federated._models import check_loss, check_model, num_outputs, unflatten
from mrsa_watch._base.errors import check_count, require
from mrsa_watch._base.values import by_value


@by_value
class Evaluation(NamedTuple):
    """Accuracy and mean loss on a test set, or f32 [N] on those of clients."""

    accuracy: Any
    loss: Any


@needs_values
def evaluate(
    model: nn.Module,
    parameters: Float32[Array, " dim"] | np.ndarray,
    inputs: Float32[Array, "samples ..."] | np.ndarray,
    labels: Array | np.ndarray,
    *,
    batch_size: int = 500,
    loss: Any = None,
) -> Evaluation:
    """Return the model's accuracy and mean loss, computed in batches.

    Args:
        model: Flax module.
        parameters: f32 [d].
        inputs: f32 [m, ...], m at least 1.
        labels: int32 [m], or what `loss` takes.
        batch_size: Samples at once; bounds the memory, changes nothing else.
        loss: As `local_sgd` takes it; cross-entropy, in nats, if None.

    Returns:
        Accuracy in [0, 1] (of each token, where a label is several; nan where labels
        are no integers) and loss.

    Raises:
        ConfigurationError: If inputs and labels are not equally many, or none; if a
            label is none of the model's classes.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> digits = mj.data.load("digits")
        >>> model = mj.federated.logistic(10)
        >>> loss = mj.federated.evaluate(
        ...     model, jnp.zeros(650), digits.test_inputs, digits.test_labels
        ... ).loss
        >>> round(loss, 4) == round(float(np.log(10)), 4)  # all classes equally likely
        True
    """
    shape = tuple(np.shape(inputs)[1:])
    most = None if loss is not None else num_outputs(model, shape)
    if loss is not None:
        check_loss(loss, model, shape, as_labels(labels, is_own=True))
    test = batched(inputs, labels, batch_size, most, is_own=loss is not None)
    scores = evaluation(model, on_device(parameters, jnp.float32), *test, loss=loss)
    return Evaluation(*map(float, scores))


@needs_values
def evaluate_clients(
    model: nn.Module,
    parameters: Float32[Array, " dim"] | np.ndarray,
    client_data: ClientData,
    *,
    loss: Any = None,
) -> Evaluation:
    """Return the model's accuracy and mean loss on each client's own samples.

    Args:
        model: Flax module.
        parameters: f32 [d].
        client_data: Samples to test on, e.g. those that each client has kept from
            training.
        loss: As for `evaluate`.

    Returns:
        f32 [N] each, nan for a client without samples.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=4)
        >>> found = mj.federated.evaluate_clients(
        ...     mj.federated.logistic(10), jnp.zeros(650), clients
        ... )
        >>> bool(np.allclose(found.loss, np.log(10.0)))
        True
    """
    check_model(model, client_data, loss)
    scores = by_client(
        model, on_device(parameters, jnp.float32), client_data, loss=loss
    )
    return Evaluation(*map(np.asarray, scores))


def batched(
    inputs: Any,
    labels: Any,
    batch_size: int,
    num_classes: int | None = None,
    *,
    is_own: bool = False,
) -> tuple[Float32[Array, "batches batch ..."], Array, Int32[Array, ""]]:
    """Cut a test set into equal padded batches, and count its real samples.

    The labels must lie in [0, `num_classes`), or from 0 on if it is None, unless a loss
    of one's own takes them (`is_own`).
    """
    rule = "must be as many as the labels, at least one"
    require(len(inputs) == len(labels) > 0, "inputs", rule, len(inputs), len(labels))
    check_count(batch_size, "batch_size")
    given_labels = np.asarray(labels)
    if not is_own:
        lowest, highest = int(given_labels.min()), int(given_labels.max())
        is_inside = lowest >= 0 and (num_classes is None or highest < num_classes)
        rule = (
            "must not be negative"
            if num_classes is None
            else f"must lie in [0, {num_classes})"
        )
        require(is_inside, "labels", rule, lowest if lowest < 0 else highest)
    size = len(labels)
    width = min(int(batch_size), size)
    spare = -size % width
    here = np.asarray(inputs, np.float32), as_labels(given_labels, is_own=is_own)
    padded = [np.pad(each, ((0, spare), *[(0, 0)] * (each.ndim - 1))) for each in here]
    cut = [on_device(each.reshape(-1, width, *each.shape[1:])) for each in padded]
    return cut[0], cut[1], jnp.int32(size)


def as_labels(labels: Any, *, is_own: bool) -> np.ndarray:
    """Return labels as tests take them.

    Int32, or float32 where a loss of one's own takes such.
    """
    values = np.asarray(labels)
    return values.astype(
        np.float32 if is_own and values.dtype.kind == "f" else np.int32
    )


@products_by_library(static_argnums=0, static_argnames="loss")
def evaluation(
    model: nn.Module,
    parameters: Float32[Array, " dim"],
    inputs: Float32[Array, "batches batch ..."],
    labels: Array,
    size: Int32[Array, ""],
    loss: Any = None,
) -> tuple[Float32[Array, ""], Float32[Array, ""]]:
    """Return accuracy and mean loss over the first `size` samples of the batches."""
    num_batches, width = labels.shape[:2]
    starts = jnp.arange(num_batches, dtype=jnp.int32) * width

    def one(batch: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        images, truth, start = batch
        # The last batch is padded; sample i of the set is real if i < size.
        is_real = start + jnp.arange(width, dtype=jnp.int32) < size
        return _scores(model, parameters, images, truth, is_real, loss)

    right, losses = jax.lax.map(one, (inputs, labels, starts))
    count = size.astype(jnp.float32)
    return jnp.sum(right).astype(jnp.float32) / count, jnp.sum(losses) / count


@products_by_library(static_argnums=0, static_argnames="loss")
def by_client(
    model: nn.Module,
    parameters: Float32[Array, " dim"],
    data: ClientData,
    loss: Any = None,
) -> tuple[Float32[Array, " clients"], Float32[Array, " clients"]]:
    """Return accuracy and mean loss over each client's samples.

    Nan where there are none.
    """

    def one(client: tuple[Array, Array]) -> tuple[Array, Array]:
        indices, size = client
        is_real = jnp.arange(indices.shape[0], dtype=jnp.int32) < size
        count = size.astype(jnp.float32)
        samples = data.inputs[indices], data.labels[indices], is_real
        scores = _scores(model, parameters, *samples, loss)
        right, total = (score.astype(jnp.float32) / count for score in scores)
        return right, total

    right, losses = jax.lax.map(one, (data.indices, data.sizes))
    return right, losses


def _scores(
    model: nn.Module,
    parameters: Array,
    images: Array,
    truth: Array,
    is_real: Array,
    loss: Any,
) -> tuple[Array, Array]:
    """Count the real samples that are right, and add up their losses."""
    outputs = model.apply(unflatten(model, images.shape[1:], parameters), images)
    if loss is None:
        log_likelihoods = jax.nn.log_softmax(outputs)
        is_right = (
            jnp.argmax(log_likelihoods, axis=1).astype(jnp.int32) == truth
        ) & is_real
        of_truth = jnp.take_along_axis(log_likelihoods, truth[:, None], axis=1)[:, 0]
        total = -jnp.sum(jnp.where(is_real, of_truth, jnp.float32(0)))
        return jnp.sum(is_right, dtype=jnp.int32), total
    total = jnp.sum(jnp.where(is_real, loss(outputs, truth), jnp.float32(0)))
    if (
        not jnp.issubdtype(truth.dtype, jnp.integer)
        or outputs.shape[:-1] != truth.shape
    ):
        return jnp.float32(jnp.nan), total
    is_right = jnp.argmax(outputs, axis=-1).astype(truth.dtype) == truth
    # A sample may have several labels (tokens, pixels): it counts by its right
    # fraction.
    share = is_right.reshape(len(truth), -1).mean(axis=1, dtype=jnp.float32)
    return jnp.sum(jnp.where(is_real, share, jnp.float32(0))), total
