"""Whole rounds of federated averaging beside other systems in their environments.

Every system trains the same dense networks from the same start: all clients in every
round, one epoch of plain SGD over the same minibatches in the same order, equal
weights. Ours quantizes each update and sums in the ring besides; theirs average in
floating point. The models after the last round are compared before anything is timed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.rivals import Peer
from benchmarks.topics.training import in_order
from mrsa_jax import federated, quantize, secagg
from mrsa_jax._core.cores import num_cores
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients, sample_order

_SHAPE = (28, 28, 1)
_CLASSES = 10
_MODELS = {"logistic": federated.logistic, "MLP": federated.mlp}
_HIDDEN = {"logistic": (), "MLP": (200, 200)}
_RATE, _BATCH, _ROUNDS = 0.05, 50, 3
_LEVELS, _CLIP = 2**20, 0.5
# Steps of a millisecond gain nothing from threads, and a loaded machine makes them many
# times slower: PyTorch gets its better setting. Flower's clients run on a core each.
_THREADS = {"pfl": 1, "flower": 1}


def _order(clients: Any, num_rounds: int) -> np.ndarray:
    """Return the samples of each client in the order in which training takes them."""
    order = [
        sample_order(clients, client, _BATCH, number)
        for number in range(num_rounds)
        for client in range(clients.num_clients)
    ]
    return np.stack(order).reshape(num_rounds, clients.num_clients, -1)


def _words(system: str) -> str:
    """Say on how many cores a system runs here."""
    if system == "flower":
        return f"clients on {num_cores()} cores, one thread each"
    threads = _THREADS.get(system, num_cores())
    return f"{threads} thread{'' if threads == 1 else 's'}"


def _workload(name: str, clients: Any, start: Any) -> dict[str, Any]:
    settings = {
        "learning_rate": _RATE,
        "batch_size": _BATCH,
        "widths": [int(np.prod(_SHAPE)), *_HIDDEN[name], _CLASSES],
        "kind": "rounds",
    }
    return {
        "settings": settings,
        "inputs": np.asarray(clients.inputs).reshape(len(clients.labels), -1),
        "labels": np.asarray(clients.labels),
        "start": in_order(_MODELS[name](_CLASSES), _SHAPE, start),
        "order": _order(clients, _ROUNDS),
    }


def rounds(model: str, system: str, num_clients: int, size: int) -> Measurement:
    """Time rounds of federated averaging beside another system's."""
    clients = random_clients(_SHAPE, num_clients, size)
    network = _MODELS[model](_CLASSES)
    start = federated.initial_parameters(0, network, _SHAPE)
    trainer = federated.local_sgd(network, _RATE, batch_size=_BATCH)
    quantizer = quantize.stochastic(_LEVELS, _CLIP)
    aggregator = secagg.ring_average(
        quantizer, num_clients, start.shape[0], fidelity="sets"
    )
    # all clients in every round
    participation = np.ones((_ROUNDS, num_clients), bool)
    training = federated.Training(
        network, clients, participation, trainer, aggregator, initial_parameters=start
    )
    mesh = jax.make_mesh((jax.device_count(),), ("clients",))

    def trained() -> np.ndarray:
        return federated.train(0, training, mesh=mesh).parameters

    threads = _THREADS.get(system, num_cores())
    workload = _workload(model, clients, start)
    with Peer(system, workload, threads=threads) as peer:

        def check(ours: np.ndarray, _: Any) -> None:
            theirs = peer.saved()
            # errors are relative to the distance that training moved the model
            moved = np.linalg.norm(theirs - in_order(network, _SHAPE, start))
            error = np.linalg.norm(in_order(network, _SHAPE, ours) - theirs) / moved
            # Rounding to 2**20 levels of [-0.5, 0.5] moves a coordinate of a mean by
            # 1e-6 at most; a unit within rounding of zero may switch, as in the topic
            # `training`.
            if not (moved > 0 and error < 0.01):
                text = f"models differ by {error} of the way from the start"
                raise ResultsDifferError(text)

        return compare(
            trained,
            peer.run,
            work=_ROUNDS * num_clients * size,
            peer_name=f"{peer.title}, {_words(system)}",
            check=check,
        )
