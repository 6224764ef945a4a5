"""Local training of a cohort beside PyTorch's plain loop, in a separate environment.

It trains on the same samples in the same order, without padding, and its updates are
compared with ours before anything is timed.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals import Peer
from mrsa_jax import federated
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients, sample_order

_RATE = 0.05
# name -> sample shape, (features, padding) of 5x5 convolutions, widths of
# dense layers, clients, samples a client, minibatch
_Workload = tuple[tuple[int, ...], list[tuple[int, int]], list[int], int, int, int]
_WORKLOADS: dict[str, _Workload] = {
    "CNN": ((28, 28, 1), [(32, 2), (64, 2)], [512, 10], 12, 500, 100),
    "LeNet": ((32, 32, 3), [(6, 0), (16, 0)], [120, 84, 10], 12, 417, 50),
    "MLP": ((28, 28, 1), [], [200, 200, 10], 20, 3000, 50),
    "logistic": ((28, 28, 1), [], [10], 20, 3000, 50),
}
_MODELS = {
    "CNN": federated.cnn,
    "LeNet": federated.lenet,
    "MLP": federated.mlp,
    "logistic": federated.logistic,
}


def _beside_pytorch(name: str, workload: _Workload) -> Measurement:
    shape, convolutions, dense, num_clients, size, batch_size = workload
    clients, model = random_clients(shape, num_clients, size), _MODELS[name](10)
    start = federated.initial_parameters(0, model, shape)
    trainer = federated.local_sgd(model, _RATE, batch_size=batch_size)
    settings = {
        "shape": shape,
        "convolutions": convolutions,
        "dense": dense,
        "learning_rate": _RATE,
        "batch_size": batch_size,
    }
    arrays = {
        "inputs": np.asarray(clients.inputs),
        "labels": np.asarray(clients.labels),
        "start": in_order(model, shape, start),
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
                own = in_order(model, shape, update)
                errors.append(np.linalg.norm(own - other) / np.linalg.norm(other))
            # Where a unit within rounding of zero, or a pool's place, switches for one
            # sample, an update moves by up to some percent (so it does beside the loop
            # in JAX, see the package's own cases); where none does, by 1e-6 to 1e-5.
            if not (min(errors) < 1e-3 and max(errors) < 0.1):
                raise ResultsDifferError(
                    f"updates differ, relative to their norm, by {errors}"
                )

        measured = compare(
            lambda: federated.client_updates(
                0, model, start, everywhere, trainer, mesh=mesh
            ),
            peer.run,
            work=num_clients * size,
            unit="samples",
            peer_name=f"{peer.title}, plain loop over clients, {num_cores()} threads",
            check=check,
            aim=1.0,
            repeats=7,
        )
    if name != "CNN":
        return measured
    return dataclasses.replace(measured, note=_share_of_products(measured, workload))


def _products_a_sample(workload: _Workload) -> float:
    """Return the multiplications and additions of training on one sample, convolved directly."""
    (height, width, channels), convolutions, dense, *_ = workload
    total = 0.0
    for number, (features, padding) in enumerate(convolutions):
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


def _share_of_products(measured: Measurement, workload: _Workload) -> str:
    rate = _rate_of_products()
    reached = measured.rate * _products_a_sample(workload)
    return (
        f"{reached / 1e9:.0f} of {rate / 1e9:.0f} GFLOP/s measured for products of "
        "2048 x 2048, "
        f"{reached / rate:.2f} (the work counted as a direct convolution's)"
    )


def in_order(model: Any, shape: tuple[int, ...], flat: Any) -> np.ndarray:
    """Return biases and kernels, convolutions first, as the peers' networks have them."""
    layers = federated.unflatten(model, shape, on_device(flat))["params"]
    names = sorted(layers, key=lambda name: ("Conv" not in name, name))
    parts = [layers[name][kind] for name in names for kind in ("bias", "kernel")]
    return np.concatenate([np.asarray(part).ravel() for part in parts])


def cases(quick: bool) -> list[Case]:
    """Return PyTorch's loop beside cohorts of every model."""

    def pytorch(name: str) -> Case:
        workload = _WORKLOADS[name]
        if quick:
            workload = (*workload[:3], 4, 100, 50)
        _, _, _, clients, size, batch = workload
        return Case(
            f"{name}, {clients} clients x {size}, batch {batch}",
            lambda: _beside_pytorch(name, workload),
            "pytorch",
        )

    return [pytorch(name) for name in (["MLP"] if quick else _WORKLOADS)]
