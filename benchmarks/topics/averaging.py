"""Whole rounds of federated averaging beside other systems, each in an environment of its own.

Every system trains the same dense networks from the same start: all clients in every
round, one epoch of plain SGD over the same minibatches in the same order, equal
weights. Ours quantizes each update and sums in the ring besides; theirs average in
floating point. The models after the last round are compared before anything is timed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.rivals import SYSTEMS, Peer
from benchmarks.topics.training import in_order
from mrsa_jax import federated, quantize, secagg
from mrsa_jax._core.cores import num_cores
from mrsa_jax.bench import TOPICS
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients, sample_order

_SHAPE = (28, 28, 1)
_CLASSES = 10
_HIDDEN = {"logistic": (), "MLP": (200, 200)}
_RATE, _BATCH, _ROUNDS = 0.05, 50, 3
_LEVELS, _CLIP = 2**20, 0.5
# Steps of a millisecond gain nothing from threads, and a loaded machine makes them many
# times slower: PyTorch gets its better setting. Flower's clients run on a core each.
_THREADS = {"pfl": 1, "flower": 1}
_Sizes = tuple[int, int]  # clients, samples a client


def _model(name: str) -> Any:
    if name == "MLP":
        return federated.mlp(_CLASSES)
    return federated.logistic(_CLASSES)


def _order(clients: Any, num_rounds: int) -> np.ndarray:
    """Return the samples of each client in the order in which our training takes them."""
    return np.stack(
        [
            [
                sample_order(clients, client, _BATCH, number)
                for client in range(clients.num_clients)
            ]
            for number in range(num_rounds)
        ]
    )


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
        "start": in_order(_model(name), _SHAPE, start),
        "order": _order(clients, _ROUNDS),
    }


def _measure(system: str, name: str, sizes: _Sizes, repeats: int) -> Measurement:
    num_clients, size = sizes
    clients, model = random_clients(_SHAPE, num_clients, size), _model(name)
    start = federated.initial_parameters(0, model, _SHAPE)
    trainer = federated.local_sgd(model, _RATE, batch_size=_BATCH)
    quantizer = quantize.stochastic(_LEVELS, _CLIP)
    aggregator = secagg.ring_average(
        quantizer, num_clients, start.shape[0], fidelity="sets"
    )
    participation = np.ones((_ROUNDS, num_clients), bool)
    training = federated.Training(
        model, clients, participation, trainer, aggregator, initial_parameters=start
    )
    mesh = jax.make_mesh((jax.device_count(),), ("clients",))

    def ours() -> np.ndarray:
        return federated.train(0, training, mesh=mesh).parameters

    threads = _THREADS.get(system, num_cores())
    with Peer(system, _workload(name, clients, start), threads=threads) as peer:

        def check(mine: np.ndarray, _: Any) -> None:
            begun, theirs = in_order(model, _SHAPE, start), peer.saved()
            moved = np.linalg.norm(theirs - begun)
            error = np.linalg.norm(in_order(model, _SHAPE, mine) - theirs) / moved
            # Rounding to 2**20 levels of [-0.5, 0.5] moves a coordinate of a mean by
            # 1e-6 at most; a unit within rounding of zero may switch, as in the topic
            # `training`.
            if not (moved > 0 and error < 0.01):
                raise ResultsDifferError(
                    f"models differ by {error} of the way from the start"
                )

        return compare(
            ours,
            peer.run,
            work=_ROUNDS * num_clients * size,
            unit="samples",
            peer_name=f"{peer.title}, {_words(system)}",
            check=check,
            aim=1.0,
            repeats=repeats,
            note="ours quantizes and sums in the ring of 2**32 besides; theirs average floats",
        )


def cases(quick: bool) -> list[Case]:
    """Return the same rounds beside each system."""
    names = ["logistic"] if quick else ["logistic", "MLP"]
    sizes = (4, 100) if quick else (20, 300)

    def case(system: str, name: str) -> Case:
        words = f"{name}, {_ROUNDS} rounds x {sizes[0]} clients x {sizes[1]}, batch {_BATCH}"
        repeats = 2 if quick or system == "flower" else 5
        return Case(
            f"{words}, {SYSTEMS[system].title}",
            lambda: _measure(system, name, sizes, repeats),
            system,
        )

    return [
        case(system, name) for name in names for system in TOPICS["averaging"].peers
    ]
