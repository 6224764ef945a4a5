"""Local training of a cohort.

One jitted call a round against a plain loop over its clients.
The peer is the loop that one writes first in JAX: for each client and minibatch one
jitted optax step, XLA's own convolution. It trains on the same samples in the same
order, without padding, and its updates are compared with ours before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from mrsa_jax import data, federated
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, Sized, compare
from mrsa_jax.federated.programs import shuffled
from mrsa_watch._base.errors import check_known

_SHAPE = (28, 28, 1)
_OF_LOOPS = {"LeNet": federated.lenet, "MLP": federated.mlp}
_RATE = 0.05


class _PlainLeNet(nn.Module):
    """The same network from flax's own layers."""

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        values = nn.relu(
            nn.Conv(
                6,
                (5, 5),
                padding="SAME",
                name="_ConvReluPool_0",
            )(inputs)
        )
        values = nn.max_pool(values, (2, 2), (2, 2))
        values = nn.relu(
            nn.Conv(
                16,
                (5, 5),
                padding="VALID",
                name="_ConvReluPool_1",
            )(values)
        )
        values = nn.max_pool(values, (2, 2), (2, 2)).reshape(inputs.shape[0], -1)
        for size in (120, 84):
            values = nn.relu(nn.Dense(size)(values))
        return nn.Dense(10)(values)


def _plain_loop(
    model: nn.Module,
    start: dict,
    batches: list[list[tuple]],
) -> Callable[[], list[dict]]:
    optimizer = optax.sgd(_RATE)

    @jax.jit
    def step(
        variables: dict,
        state: tuple,
        images: jax.Array,
        labels: jax.Array,
    ) -> tuple:
        def loss(variables: dict) -> jax.Array:
            logits = model.apply(variables, images)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, labels
            ).mean()

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


def random_clients(
    shape: tuple[int, ...],
    num_clients: int,
    size: int,
) -> data.ClientData:
    """Return clients of `size` images each, of ten classes.

    What is on them does not change the work. Pixels are centred and small, so that
    training is stable and rounding does not grow.
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


def sample_order(
    clients: Any,
    client: int,
    batch_size: int,
    round_index: int = 0,
) -> np.ndarray:
    """Return a client's samples in the order of its training in a round."""
    held, size = np.asarray(clients.indices)[client], int(clients.sizes[client])
    key = jax.random.fold_in(
        round_key(as_key(0), round_index, Stream.LOCAL_TRAINING), client
    )
    order = shuffled(
        key,
        len(held),
        jnp.int32(size),
        batch_size,
        1,
    )
    return held[np.asarray(order)[0, :size]]


def _mnist(size: int) -> Any:
    dataset = data.load("mnist_5k", seed=0)
    return data.iid(0, dataset, len(dataset.train_labels) // size)


def beside_a_loop(
    model: str,
    members: int,
    size: int,
    batch: int,
) -> Measurement:
    """Time a cohort on MNIST's images against the loop in JAX."""
    return _beside_a_loop(model, _mnist(size), members, batch)


def _beside_a_loop(
    name: str,
    clients: data.ClientData,
    num_members: int,
    batch_size: int,
) -> Measurement:
    model = _OF_LOOPS[name](10)
    plain = _PlainLeNet() if name == "LeNet" else model
    start = federated.initial_parameters(0, model, _SHAPE)
    members = np.arange(num_members)
    trainer = federated.local_sgd(model, _RATE, batch_size=batch_size)
    # the peer's minibatches, cut on the host before anything is timed
    batches, work = [], 0
    for client in members:
        samples = sample_order(clients, int(client), batch_size)
        # the last minibatch may be smaller: the loop needs no padding
        cuts = np.split(samples, range(batch_size, len(samples), batch_size))
        batches.append([(clients.inputs[c], clients.labels[c]) for c in cuts])
        work += len(samples)

    def check(ours: jax.Array, theirs: list[dict]) -> None:
        # A unit within rounding of zero may switch and move one client's update by some
        # percent (so does a change of the start by 3e-7 of itself), so: nearly all
        # clients to rounding.
        errors = []
        for update, variables in zip(np.asarray(ours), theirs, strict=True):
            leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(variables)]
            expected = np.concatenate(leaves) - np.asarray(start)
            errors.append(np.linalg.norm(update - expected) / np.linalg.norm(expected))
        if not (np.quantile(errors, 0.8) < 1e-4 and max(errors) < 0.2):
            raise ResultsDifferError(
                f"updates differ, relative to their norm, by {errors}"
            )

    return compare(
        lambda: federated.client_updates(0, model, start, clients, trainer, members),
        _plain_loop(plain, federated.unflatten(model, _SHAPE, start), batches),
        work=work,
        check=check,
    )


def sized(n: int, model: str, samples: int) -> Sized:
    """Return the cohort of n clients against the loop in JAX, on random images."""
    check_known(model, "model", _OF_LOOPS, "a known model")
    size = 62_000 if model == "LeNet" else 200_000  # parameters, about
    # weights, gradients and updates of both sides; images, and those that a step reads
    memory = 4 * n * (6 * size + 3 * samples * math.prod(_SHAPE))

    def measure() -> Measurement:
        return _beside_a_loop(
            model, random_clients(_SHAPE, n, samples), n, min(samples, 10)
        )

    return Sized(memory, measure)
