"""Local training of a cohort: one jitted call a round against plain loops over its clients.

Peers: PyTorch's plain loop (in a separate environment), and the loop that one writes first in
JAX: for each client and minibatch one jitted optax step, XLA's own convolution. They train on the
same samples in the same order, without padding, and their updates are compared with ours before
anything is timed.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from mrsa_jax import data, federated
from mrsa_jax._core.cores import num_cores
from mrsa_jax.bench._random_clients import in_order, random_clients, sample_order
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, Sized, compare
from mrsa_jax.bench.rivals import Peer
from mrsa_watch._base.errors import check_known

_SHAPE = (28, 28, 1)
_OF_LOOPS = {"LeNet": federated.lenet, "MLP": federated.mlp}
_RATE = 0.05


class _PlainLeNet(nn.Module):
    """The same network from flax's own layers."""

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        values = nn.relu(nn.Conv(6, (5, 5), padding="SAME", name="_ConvReluPool_0")(inputs))
        values = nn.max_pool(values, (2, 2), (2, 2))
        values = nn.relu(nn.Conv(16, (5, 5), padding="VALID", name="_ConvReluPool_1")(values))
        values = nn.max_pool(values, (2, 2), (2, 2)).reshape(inputs.shape[0], -1)
        for size in (120, 84):
            values = nn.relu(nn.Dense(size)(values))
        return nn.Dense(10)(values)


def _plain_loop(
    model: nn.Module, start: dict, batches: list[list[tuple]]
) -> Callable[[], list[dict]]:
    optimizer = optax.sgd(_RATE)

    @jax.jit
    def step(variables: dict, state: tuple, images: jax.Array, labels: jax.Array) -> tuple:
        def loss(variables: dict) -> jax.Array:
            logits = model.apply(variables, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        moves, state = optimizer.update(jax.grad(loss)(variables), state)
        return optax.apply_updates(variables, moves), state

    def run() -> list[dict]:
        trained = []
        for client in batches:
            variables, state = start, optimizer.init(start)
            for images, labels in client:
                variables, state = step(variables, state, images, labels)
            trained.append(variables)
        return trained

    return run


def _mnist(size: int) -> Any:
    dataset = data.load("mnist_5k", seed=0)
    return data.iid(0, dataset, len(dataset.train_labels) // size)


def _beside_a_loop(name: str, clients: Any, num_members: int, batch_size: int) -> Measurement:
    model = _OF_LOOPS[name](10)
    plain = _PlainLeNet() if name == "LeNet" else model
    start = federated.initial_parameters(0, model, _SHAPE)
    members = np.arange(num_members)
    trainer = federated.local_sgd(model, _RATE, batch_size=batch_size)
    batches, work = [], 0
    for client in members:
        own = sample_order(clients, int(client), batch_size)
        cuts = np.split(own, range(batch_size, len(own), batch_size))
        batches.append([(clients.inputs[c], clients.labels[c]) for c in cuts])
        work += len(own)

    def check(ours: jax.Array, theirs: list[dict]) -> None:
        # A unit within rounding of zero may switch and move one client's update by some percent
        # (so does a change of the start by 3e-7 of itself), so: nearly all clients to rounding.
        errors = []
        for update, variables in zip(np.asarray(ours), theirs, strict=True):
            leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(variables)]
            expected = np.concatenate(leaves) - np.asarray(start)
            errors.append(np.linalg.norm(update - expected) / np.linalg.norm(expected))
        if not (np.quantile(errors, 0.8) < 1e-4 and max(errors) < 0.2):
            raise ResultsDifferError(f"updates differ, relative to their norm, by {errors}")

    return compare(
        lambda: federated.client_updates(0, model, start, clients, trainer, members),
        _plain_loop(plain, federated.unflatten(model, _SHAPE, start), batches),
        work=work,
        unit="samples",
        peer_name="loop over clients, one jitted optax step at a time",
        check=check,
        aim=1.0,
        repeats=7,
        note=(
            "Floor: the matrix products alone, forward and backward, take about half of our time "
            "for LeNet; the MLP is bound by reading and writing each client's weights."
        ),
    )


# the workloads: name -> sample shape, (features, padding) of 5x5 convolutions, widths of
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
        "order": np.stack([sample_order(clients, i, batch_size) for i in range(num_clients)]),
    }
    # one device a core, over which clients are spread: faster than one device with two threads
    mesh = jax.make_mesh((jax.device_count(),), ("clients",))
    everywhere = jax.device_put(clients, jax.NamedSharding(mesh, jax.P()))
    with Peer("pytorch", {"settings": settings, **arrays}, threads=num_cores()) as peer:

        def check(ours: jax.Array, theirs: Any) -> None:
            errors = []
            for update, other in zip(np.asarray(ours), peer.saved(), strict=True):
                own = in_order(model, shape, update)
                errors.append(np.linalg.norm(own - other) / np.linalg.norm(other))
            # Where a unit within rounding of zero, or a pool's place, switches for one sample, an
            # update moves by up to some percent (see `_beside_a_loop`); where none does, by 1e-6
            # to 1e-5.
            if not (min(errors) < 1e-3 and max(errors) < 0.1):
                raise ResultsDifferError(f"updates differ, relative to their norm, by {errors}")

        measured = compare(
            lambda: federated.client_updates(0, model, start, everywhere, trainer, mesh=mesh),
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
        f"{reached / 1e9:.0f} of {rate / 1e9:.0f} GFLOP/s measured for products of 2048 x 2048, "
        f"{reached / rate:.2f} (the work counted as a direct convolution's)"
    )


def sized(n: int, model: str, samples: int) -> Sized:
    """Return the cohort of n clients against the loop in JAX, on random images."""
    check_known(model, "model", _OF_LOOPS, "a known model")
    size = 62_000 if model == "LeNet" else 200_000  # parameters, about
    # weights, gradients and updates of both sides; images, and those that a step reads
    memory = 4 * n * (6 * size + 3 * samples * math.prod(_SHAPE))

    def measure() -> Measurement:
        return _beside_a_loop(model, random_clients(_SHAPE, n, samples), n, min(samples, 10))

    return Sized(memory, measure)


def cases(quick: bool) -> list[Case]:
    """Return the loop in JAX against cohorts of several sizes, then PyTorch's loop."""
    sizes = [("LeNet", 12, 33, 10), ("LeNet", 12, 100, 10), ("LeNet", 32, 100, 20)]
    sizes += [("MLP", 12, 33, 10), ("MLP", 12, 100, 10), ("MLP", 32, 100, 20)]
    names = ["MLP"] if quick else list(_WORKLOADS)

    def loop(name: str, members: int, size: int, batch: int) -> Case:
        return Case(
            f"{name}, {members} clients x {size}, batch {batch}",
            lambda: _beside_a_loop(name, _mnist(size), members, batch),
        )

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

    found = [loop(*each) for each in ([("MLP", 4, 33, 10)] if quick else sizes)]
    return found + [pytorch(name) for name in names]
