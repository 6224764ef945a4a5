"""Clients of random images: what is on them does not change the work."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from mrsa_jax import data

__all__ = ["random_clients"]


def random_clients(shape: tuple[int, ...], num_clients: int, size: int) -> data.ClientData:
    """Return clients of `size` images each, of ten classes.

    Pixels are centred and small, so that training is stable and rounding does not grow.
    """
    generator = np.random.default_rng(0)
    count = num_clients * size
    return data.ClientData(
        inputs=jnp.asarray(0.3 * generator.standard_normal((count, *shape), np.float32)),
        labels=jnp.asarray(generator.integers(0, 10, count), jnp.int32),
        indices=jnp.arange(count, dtype=jnp.int32).reshape(num_clients, size),
        sizes=jnp.full(num_clients, size, jnp.int32),
        num_classes=10,
    )
