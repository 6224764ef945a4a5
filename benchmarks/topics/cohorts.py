"""Choices in training cohorts, each against its alternative.

Seeds side by side, bfloat16, draws.
Peers are our own other way to the same result: one seed after another, float32, JAX's
own random bits. The first call of a row includes compilation, for every model (run
without a persistent cache; the aim is 30 s a model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import federated, quantize, secagg
from mrsa_jax._core.streams import random_words
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients

_RATE = 0.05
_MODELS: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...]]] = {
    "CNN": (federated.cnn, (28, 28, 1)),
    "LeNet": (federated.lenet, (32, 32, 3)),
    "VGG-11": (federated.vgg11, (32, 32, 3)),
    "MLP": (federated.mlp, (28, 28, 1)),
    "logistic": (federated.logistic, (28, 28, 1)),
}


def seeds(model: str, size: int) -> Measurement:
    """Four rounds of whole training, with quantization and the sum in the ring."""
    num_clients, num_seeds, batch_size = 12, 5, 10
    build, shape = _MODELS[model]
    clients = random_clients(shape, num_clients, size)
    network = build(10)
    trainer = federated.local_sgd(network, _RATE, batch_size=batch_size)
    start = federated.initial_parameters(0, network, shape)
    aggregator = secagg.ring_average(
        quantize.stochastic(2**16, 0.5), num_clients, start.shape[0]
    )
    participation = np.ones((4, num_clients), bool)
    training = federated.Training(
        network, clients, participation, trainer, aggregator, initial_parameters=start
    )

    def together() -> np.ndarray:
        numbers = list(range(num_seeds))
        return _parameters(
            federated.train_many(numbers, training, side_by_side=num_seeds)
        )

    def in_turn() -> np.ndarray:
        return _parameters(federated.train(seed, training) for seed in range(num_seeds))

    def check(ours: np.ndarray, theirs: np.ndarray) -> None:
        moved = np.linalg.norm(theirs - np.asarray(start), axis=1)
        apart = np.linalg.norm(ours - theirs, axis=1)
        np.testing.assert_array_less(apart, 0.05 * moved)

    return compare(
        together,
        in_turn,
        work=num_seeds * int(participation.sum()) * size,
        check=check,
    )


def _parameters(results: Iterable[federated.TrainingResult]) -> np.ndarray:
    return np.stack([np.asarray(result.parameters) for result in results])


def updates(model: str, num_clients: int, size: int, batch_size: int) -> Measurement:
    """A cohort's first call."""
    trained = _trainer(model, num_clients, size, batch_size)
    return compare(
        lambda: trained(None),
        work=num_clients * size,
        check=lambda ours, _: _check_moved(ours),
    )


def halves(model: str, num_clients: int, size: int, batch_size: int) -> Measurement:
    """A cohort in half precision beside float32."""
    trained = _trainer(model, num_clients, size, batch_size)

    def check(ours: jax.Array, theirs: jax.Array) -> None:
        _check_moved(ours)
        # half precision has three digits, which rounds of training lose
        difference, length = jnp.linalg.norm(ours - theirs), jnp.linalg.norm(theirs)
        if not float(difference) < 0.2 * float(length):
            text = f"updates of length {length} differ by {difference}"
            raise ResultsDifferError(text)

    return compare(
        lambda: trained("bfloat16"),
        lambda: trained(None),
        work=num_clients * size,
        check=check,
    )


def _trainer(
    model: str, num_clients: int, size: int, batch_size: int
) -> Callable[[str | None], jax.Array]:
    """Build the function that trains a cohort in a precision."""
    build, shape = _MODELS[model]
    network = build(10)
    clients = random_clients(shape, num_clients, size)
    start = federated.initial_parameters(0, network, shape)

    def trained(dtype: str | None) -> jax.Array:
        trainer = federated.local_sgd(
            network, _RATE, batch_size=batch_size, compute_dtype=dtype
        )
        return federated.client_updates(0, network, start, clients, trainer)

    return trained


def _check_moved(updates: jax.Array) -> None:
    lengths = np.linalg.norm(updates, axis=1)
    np.testing.assert_array_equal(np.isfinite(lengths) & (lengths > 0), True)


def draws(num_clients: int, dim: int) -> Measurement:
    """The words of stochastic quantization, as a cohort draws them."""
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), num_clients)
    ours = jax.jit(jax.vmap(lambda key: random_words(key, (dim,))))
    theirs = jax.jit(jax.vmap(lambda key: jax.random.bits(key, (dim,), jnp.uint32)))
    return compare(
        lambda: ours(keys),
        lambda: theirs(keys),
        work=num_clients * dim,
        check=lambda mine, other: np.testing.assert_array_equal(mine, other),
    )
