"""The minibatch steps of one client's local training, whichever optimizer takes them.

Clients are ragged: each takes the number of steps that its own size asks for, its last
minibatch of an epoch is a mean over the samples that it has, and a padded sample never
touches a gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32, Key

from mrsa_jax._core.device import platform
from mrsa_jax.federated._models import unflatten
from mrsa_jax.federated.programs import shuffled
from mrsa_watch._base.errors import require

Loss = Callable[[Array, Array], Array]
"""(outputs, labels) -> f32 [batch], the loss of each sample."""


def loss_of(trainer: Any) -> Loss | None:
    """Return the loss of a trainer; None for cross-entropy of classes."""
    return getattr(trainer, "loss", None)


def checked_loss(loss: Any) -> Loss | None:
    """Return a loss, or None; raise for what is neither."""
    rule = "must be a function of outputs and labels, or None"
    require(loss is None or callable(loss), "loss", rule, loss)
    checked: Loss | None = loss
    return checked


def trained_locally(
    trainer: Any,
    key: Key[Array, ""],
    parameters: Float32[Array, " dim"],
    samples: tuple[Array, Array, Array, Array],
    begun: Callable[[Any], Any],
    moved: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
) -> tuple[Float32[Array, " dim"], Int32[Array, ""]]:
    """Train on a client's samples.

    Return new minus old parameters, and the steps taken.
    A loss that is NaN makes the update so.

    Args:
        trainer: Has `model`, `batch_size`, `num_epochs`, `num_steps`, `compute_dtype`
            and `loss`.
        key: Shuffles the samples, anew in each epoch.
        parameters: f32 [d], where training starts.
        samples: The pool's inputs and labels, the client's indices, and how many are
            its own.
        begun: From the variables at the start, what steps remember.
        moved: (variables, remembered, gradient, variables at the start) -> (variables,
            remembered), one step.
    """
    inputs, labels, indices, size = samples
    num_slots = indices.shape[0]
    batch_size = min(trainer.batch_size, num_slots)
    steps_per_epoch = (size + batch_size - 1) // batch_size
    if trainer.num_steps is None:
        places = shuffled(key, num_slots, size, batch_size, trainer.num_epochs)
        # Compose the shuffle with the client's indices: rows are read from the pool,
        # never copied.
        order = indices[places]
        num_steps = trainer.num_epochs * steps_per_epoch
    else:
        num_steps = jnp.where(size > 0, trainer.num_steps, jnp.int32(0))
    start = unflatten(trainer.model, inputs.shape[1:], parameters)

    def step(index: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        variables, memory = carry
        # One loop over all epochs: the number of steps is data, not part of a program.
        if trainer.num_steps is None:
            epoch, position = index // steps_per_epoch, index % steps_per_epoch
            first = position * batch_size
            chosen = jax.lax.dynamic_slice(order, (epoch, first), (1, batch_size))[0]
        else:
            # The first minibatch of a new shuffle: drawn uniformly, without repetition
            # inside it, and independently of the other steps.
            first = jnp.int32(0)
            places = shuffled(key, num_slots, size, batch_size, 1, index)
            chosen = indices[places[0, :batch_size]]
        is_real = first + jnp.arange(batch_size, dtype=jnp.int32) < size
        with _products(trainer.compute_dtype):
            samples = inputs[chosen], labels[chosen], is_real
            value, gradient = jax.value_and_grad(_mean_loss)(
                variables, trainer, *samples
            )
        # one that is no number has a gradient all the same
        if trainer.loss is not None:
            gradient = jax.tree.map(
                lambda g: jnp.where(jnp.isnan(value), value, g), gradient
            )
        return moved(variables, memory, gradient, start)

    trained, _ = jax.lax.fori_loop(0, num_steps, step, (start, begun(start)))
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(trained)])
    return flat - parameters, num_steps


def _products(compute_dtype: str | None) -> contextlib.AbstractContextManager[Any]:
    """Say how matrix products round: by itself JAX lets accelerators take fewer bits.

    Not on a CPU, which has but one way, and not where the user has said it.
    """
    is_set = jax.config.jax_default_matmul_precision is not None  # type: ignore[attr-defined]
    if platform() == "cpu" or is_set or compute_dtype == "bfloat16":
        return contextlib.nullcontext()
    # by the name of its algorithm: "tensorfloat32" compiles to plain float32 for NVIDIA
    tf32 = "TF32_TF32_F32" if platform() == "cuda" else "tensorfloat32"
    return jax.default_matmul_precision(tf32 if compute_dtype == "tf32" else "float32")


def _mean_loss(
    variables: Any, trainer: Any, inputs: Array, labels: Array, is_real: Array
) -> Float32[Array, ""]:
    """Loss averaged over the real samples; the others have no part in it."""
    dtype, loss = trainer.compute_dtype, trainer.loss
    if dtype not in (None, "tf32"):  # gradients come back through the cast as float32
        variables, inputs = jax.tree.map(
            lambda leaf: leaf.astype(dtype), (variables, inputs)
        )
    logits = trainer.model.apply(variables, inputs).astype(jnp.float32)
    if loss is None:
        classes = jnp.arange(logits.shape[-1], dtype=jnp.int32)
        is_label = (labels[:, None] == classes[None, :]) & is_real[:, None]
        log_likelihood = jnp.where(is_label, jax.nn.log_softmax(logits), jnp.float32(0))
        total = -jnp.sum(log_likelihood)
    else:
        total = jnp.sum(jnp.where(is_real, loss(logits, labels), jnp.float32(0)))
    count = jnp.maximum(jnp.sum(is_real, dtype=jnp.int32), 1).astype(jnp.float32)
    return total / count
