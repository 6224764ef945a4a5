"""Clients of random images, and how other systems are made to train on them as ours does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import data, federated
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax.federated.programs import shuffled


def random_clients(shape: tuple[int, ...], num_clients: int, size: int) -> data.ClientData:
    """Return clients of `size` images each, of ten classes.

    What is on them does not change the work. Pixels are centred and small, so that training is
    stable and rounding does not grow.
    """
    generator = np.random.default_rng(0)
    count = num_clients * size
    return data.ClientData(
        inputs=on_device(0.3 * generator.standard_normal((count, *shape), np.float32)),
        labels=on_device(generator.integers(0, 10, count), jnp.int32),
        indices=jnp.arange(count, dtype=jnp.int32).reshape(num_clients, size),
        sizes=jnp.full(num_clients, size, jnp.int32),
        num_classes=10,
    )


def sample_order(clients: Any, client: int, batch_size: int, round_index: int = 0) -> np.ndarray:
    """Return a client's samples in the order in which our training takes them in a round."""
    held, size = np.asarray(clients.indices)[client], int(clients.sizes[client])
    key = jax.random.fold_in(round_key(as_key(0), round_index, Stream.LOCAL_TRAINING), client)
    order = shuffled(key, len(held), jnp.int32(size), batch_size, 1)
    return held[np.asarray(order)[0, :size]]


def in_order(model: Any, shape: tuple[int, ...], flat: Any) -> np.ndarray:
    """Return biases and kernels, convolutions first, as the peers' networks have them."""
    layers = federated.unflatten(model, shape, on_device(flat))["params"]
    names = sorted(layers, key=lambda name: ("Conv" not in name, name))
    parts = [layers[name][kind] for name in names for kind in ("bias", "kernel")]
    return np.concatenate([np.asarray(part).ravel() for part in parts])
