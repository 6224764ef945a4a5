"""The server's step along the mean update.

The server optimizer is any `optax.GradientTransformation`, applied to minus the mean update;
plain averaging is SGD with learning rate 1.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool, Float32

PLAIN_AVERAGE = optax.sgd(1.0)


def server_step(
    optimizer: optax.GradientTransformation,
    parameters: Float32[Array, " dim"],
    state: Any,
    update: Float32[Array, " dim"],
    is_learnt: Bool[Array, ""],
) -> tuple[Float32[Array, " dim"], Any, Bool[Array, ""]]:
    """Apply the server optimizer to minus the mean update; a round without a sum changes nothing.

    Optimizers with the same `update` share a program: what they start from is data.

    Returns:
        New parameters, new optimizer state, and whether all parameters are finite.
    """
    found: Any = _step(optimizer.update, parameters, state, update, is_learnt)
    return found


@functools.partial(jax.jit, static_argnums=0)
def _step(
    transform: Any, parameters: Array, state: Any, update: Array, is_learnt: Array
) -> tuple[Array, Any, Array]:
    def moved(update: Array) -> tuple[Array, Any]:
        # optimizers rely on standard promotion (Adam: float ** int), whatever the user has set
        with jax.numpy_dtype_promotion("standard"):
            step, after = transform(-update, state, parameters)
            return optax.apply_updates(parameters, step), after

    def kept(update: Array) -> tuple[Array, Any]:
        return parameters, state

    # a branch is never fused with what made the update: it rounds alike in any program
    after, state_after = jax.lax.cond(is_learnt, moved, kept, update)
    return after, state_after, jnp.all(jnp.isfinite(after))
