"""Local training of a cohort: one jitted call a round against a plain loop over its clients.

The peer is the loop that one writes first: for each client and minibatch one jitted optax step,
outside any loop of JAX, XLA's own convolution in LeNet. It trains on the same samples in the
same order, without padding, and its updates are compared with ours before anything is timed.
Run with --record to append to results/training.jsonl.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import mrsa_jax as mj
from mrsa_jax._streams import Stream, as_key, round_key
from mrsa_jax.bench import Measurement, compare, record, table
from mrsa_jax.federated import _local

_RESULTS = pathlib.Path(__file__).parent / "results" / "training.jsonl"
_SHAPE = (28, 28, 1)
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


def _case(name: str, num_members: int, size: int, batch_size: int) -> Measurement:
    dataset = mj.data.load("mnist_5k", seed=0)
    clients = mj.data.iid(0, dataset, len(dataset.train_labels) // size)
    model = {"LeNet": mj.federated.lenet, "MLP": mj.federated.mlp}[name](10)
    plain = _PlainLeNet() if name == "LeNet" else model
    start = mj.federated.initial_parameters(0, model, _SHAPE)
    members = np.arange(num_members)
    trainer = mj.federated.local_sgd(model, _RATE, batch_size=batch_size)
    key = round_key(as_key(0), 0, Stream.LOCAL_TRAINING)
    batches, work = [], 0
    for client in members:
        own = np.asarray(clients.indices)[client]
        count = int(clients.sizes[client])
        order = _local._shuffled(
            jax.random.fold_in(key, int(client)), len(own), jnp.int32(count), batch_size, 1
        )
        own = own[np.asarray(order)[0, :count]]
        cuts = np.split(own, range(batch_size, count, batch_size))
        batches.append([(dataset.train_inputs[c], dataset.train_labels[c]) for c in cuts])
        work += count

    def check(ours: jax.Array, theirs: list[dict]) -> None:
        # A unit within rounding of zero may switch and move one client's update by some percent
        # (so does a change of the start by 3e-7 of itself), so: nearly all clients to rounding.
        errors = []
        for update, variables in zip(np.asarray(ours), theirs, strict=True):
            leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(variables)]
            expected = np.concatenate(leaves) - np.asarray(start)
            errors.append(np.linalg.norm(update - expected) / np.linalg.norm(expected))
        if not (np.quantile(errors, 0.8) < 1e-4 and max(errors) < 0.2):
            raise AssertionError(f"updates differ, relative to their norm, by {errors}")

    return compare(
        "training",
        f"{name}, {num_members} clients x {size}, batch {batch_size}",
        lambda: mj.federated.client_updates(0, model, start, clients, trainer, members),
        _plain_loop(plain, mj.federated.unflatten(model, _SHAPE, start), batches),
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


def main() -> None:
    measurements = [
        _case("LeNet", 12, 33, 10),
        _case("LeNet", 12, 100, 10),
        _case("LeNet", 32, 100, 20),
        _case("MLP", 12, 33, 10),
        _case("MLP", 12, 100, 10),
        _case("MLP", 32, 100, 20),
    ]
    print(table(measurements))
    if "--record" in sys.argv[1:]:
        record(measurements, _RESULTS)


if __name__ == "__main__":
    main()
