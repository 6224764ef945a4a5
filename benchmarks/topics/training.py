"""Local training of a cohort beside PyTorch's plain loop, in a separate environment.

It trains on the same samples in the same order, without padding, and its updates are
compared with ours before anything is timed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals import Peer
from mrsa_jax import federated
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients, sample_order

_RATE = 0.05


class _Network(NamedTuple):
    """A network as both sides build it, for ten classes."""

    build: Callable[[int], nn.Module]
    shape: tuple[int, int, int]  # of a sample
    convolutions: list[tuple[int, int]]  # features and padding, of 5 x 5 each
    dense: list[int]


_NETWORKS = {
    "CNN": _Network(federated.cnn, (28, 28, 1), [(32, 2), (64, 2)], [512, 10]),
    "LeNet": _Network(federated.lenet, (32, 32, 3), [(6, 0), (16, 0)], [120, 84, 10]),
    "MLP": _Network(federated.mlp, (28, 28, 1), [], [200, 200, 10]),
    "logistic": _Network(federated.logistic, (28, 28, 1), [], [10]),
}


def beside_pytorch(
    model: str, num_clients: int, size: int, batch_size: int
) -> Measurement:
    """Time a cohort beside PyTorch's loop over its clients."""
    network = _NETWORKS[model]
    shape = network.shape
    clients = random_clients(shape, num_clients, size)
    module = network.build(10)
    start = federated.initial_parameters(0, module, shape)
    trainer = federated.local_sgd(module, _RATE, batch_size=batch_size)
    settings = {
        "shape": shape,
        "convolutions": network.convolutions,
        "dense": network.dense,
        "learning_rate": _RATE,
        "batch_size": batch_size,
    }
    arrays = {
        "inputs": np.asarray(clients.inputs),
        "labels": np.asarray(clients.labels),
        "start": in_order(module, shape, start),
        "order": np.stack(
            [sample_order(clients, i, batch_size) for i in range(num_clients)]
        ),
    }
    # one device a core, over which clients are spread: faster than one device with two
    # threads
    mesh = jax.make_mesh((jax.device_count(),), ("clients",))
    everywhere = jax.device_put(clients, jax.NamedSharding(mesh, jax.P()))
    with Peer("pytorch", {"settings": settings, **arrays}, threads=num_cores()) as peer:

        def check(ours: jax.Array, theirs: Any) -> None:
            errors = []
            for update, other in zip(np.asarray(ours), peer.saved(), strict=True):
                wrong = in_order(module, shape, update) - other
                errors.append(np.linalg.norm(wrong) / np.linalg.norm(other))
            # Where a unit within rounding of zero, or a pool's place, switches for one
            # sample, an update moves by up to some percent (so it does beside the loop
            # in JAX, see the package's own cases); where none does, by 1e-6 to 1e-5.
            if not (min(errors) < 1e-3 and max(errors) < 0.1):
                raise ResultsDifferError(
                    f"updates differ, relative to their norm, by {errors}"
                )

        measured = compare(
            lambda: federated.client_updates(
                0, module, start, everywhere, trainer, mesh=mesh
            ),
            peer.run,
            work=num_clients * size,
            peer_name=f"{peer.title}, plain loop over clients, {num_cores()} threads",
            check=check,
        )
    if model != "CNN":
        return measured
    return dataclasses.replace(measured, note=_share_of_products(measured, network))


def _products_a_sample(network: _Network) -> float:
    """Count multiplications and additions of one sample's training, done directly."""
    _, (height, width, channels), convolutions, dense = network
    total = 0.0
    for number, (features, padding) in enumerate(convolutions):
        # of a 5 x 5 convolution; a pool halves them
        height, width = height + 2 * padding - 4, width + 2 * padding - 4
        passes = 2 if number == 0 else 3  # nobody needs the gradient of the images
        total += passes * 2.0 * height * width * 25 * channels * features
        height, width, channels = height // 2, width // 2, features
    inputs = height * width * channels
    for number, outputs in enumerate(dense):
        passes = 2 if number == 0 and not convolutions else 3
        total += passes * 2.0 * inputs * outputs
        inputs = outputs
    return total


def _rate_of_products() -> float:
    """Return the rate of large float32 matrix products, in operations a second."""
    size = 2048
    values = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        product(values, values).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)


def _share_of_products(measured: Measurement, network: _Network) -> str:
    rate = _rate_of_products()
    reached = measured.rate * _products_a_sample(network)
    return (
        f"{reached / 1e9:.0f} of {rate / 1e9:.0f} GFLOP/s measured for products of "
        "2048 x 2048, "
        f"{reached / rate:.2f} (the work counted as a direct convolution's)"
    )


def in_order(model: Any, shape: tuple[int, ...], flat: Any) -> np.ndarray:
    """Return biases and kernels, convolutions first, in the order of the peers."""
    layers = federated.unflatten(model, shape, on_device(flat))["params"]
    names = sorted(layers, key=lambda name: ("Conv" not in name, name))
    parts = [layers[name][kind] for name in names for kind in ("bias", "kernel")]
    return np.concatenate([np.asarray(part).ravel() for part in parts])
