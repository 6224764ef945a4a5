"""Choices in training cohorts, each against its alternative.

Seeds side by side, bfloat16, draws.
Peers are our own other way to the same result: one seed after another, float32, JAX's
own random bits. The first call of a row includes compilation, for every model (run
without a persistent cache; the aim is 30 s a model).
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import federated, quantize, secagg
from mrsa_jax._core.streams import random_words
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare
from mrsa_jax.bench.training import random_clients

_RATE = 0.05
# name -> model, sample shape, clients, samples a client, minibatch
_MODELS: dict[
    str, tuple[Callable[[int], nn.Module], tuple[int, ...], int, int, int]
] = {
    "CNN": (federated.cnn, (28, 28, 1), 12, 100, 100),
    "LeNet": (federated.lenet, (32, 32, 3), 12, 100, 50),
    "VGG-11": (federated.vgg11, (32, 32, 3), 2, 50, 50),
    "MLP": (federated.mlp, (28, 28, 1), 12, 300, 50),
    "logistic": (federated.logistic, (28, 28, 1), 12, 300, 50),
}


def _seeds(name: str, size: int) -> Measurement:
    """Four rounds of whole training, with quantization and the sum in the ring."""
    build, shape, num_clients, _, _ = _MODELS[name]
    num_seeds, batch_size = 5, 10
    clients, model = random_clients(shape, num_clients, size), build(10)
    trainer = federated.local_sgd(model, _RATE, batch_size=batch_size)
    start = federated.initial_parameters(0, model, shape)
    aggregator = secagg.ring_average(
        quantize.stochastic(2**16, 0.5), num_clients, start.shape[0]
    )
    participation = np.ones((4, num_clients), bool)
    training = federated.Training(
        model, clients, participation, trainer, aggregator, initial_parameters=start
    )
    seeds = list(range(num_seeds))

    def together() -> np.ndarray:
        results = federated.train_many(seeds, training, side_by_side=num_seeds)
        return np.stack([np.asarray(result.parameters) for result in results])

    def apart() -> np.ndarray:
        results = [federated.train(seed, training) for seed in seeds]
        return np.stack([np.asarray(result.parameters) for result in results])

    def check(ours: np.ndarray, theirs: np.ndarray) -> None:
        moved = np.linalg.norm(theirs - np.asarray(start), axis=1)
        np.testing.assert_array_less(
            np.linalg.norm(ours - theirs, axis=1), 0.05 * moved
        )

    return compare(
        together,
        apart,
        work=num_seeds * int(participation.sum()) * size,
        unit="samples",
        peer_name="one seed after another",
        check=check,
        aim=1.0,
    )


def _updates(name: str, compute_dtype: str | None) -> Measurement:
    """A cohort's first call; in half precision beside float32."""
    build, shape, num_clients, size, batch_size = _MODELS[name]
    clients, model = random_clients(shape, num_clients, size), build(10)
    start = federated.initial_parameters(0, model, shape)

    def trained(dtype: str | None) -> jax.Array:
        trainer = federated.local_sgd(
            model, _RATE, batch_size=batch_size, compute_dtype=dtype
        )
        return federated.client_updates(0, model, start, clients, trainer)

    def check(ours: jax.Array, theirs: jax.Array | None) -> None:
        lengths = np.linalg.norm(ours, axis=1)
        np.testing.assert_array_equal(np.isfinite(lengths) & (lengths > 0), True)
        if theirs is None:
            return
        difference, length = jnp.linalg.norm(ours - theirs), jnp.linalg.norm(theirs)
        if not float(difference) < 0.2 * float(length):
            raise ResultsDifferError(
                f"updates of length {length} differ by {difference}"
            )

    notes = {
        None: "first_call_seconds: tracing, compiling and one run (aim: under 30 s)",
        "bfloat16": "this processor has no bfloat16 arithmetic: the choice is for accelerators",
    }
    return compare(
        lambda: trained(compute_dtype),
        None if compute_dtype is None else lambda: trained(None),
        work=num_clients * size,
        unit="samples",
        peer_name=None if compute_dtype is None else "float32",
        check=check,
        note=notes[compute_dtype],
    )


def _draws(num_clients: int, dim: int) -> Measurement:
    """The words of stochastic quantization, as a cohort draws them."""
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), num_clients)
    ours = jax.jit(jax.vmap(lambda key: random_words(key, (dim,))))
    theirs = jax.jit(jax.vmap(lambda key: jax.random.bits(key, (dim,), jnp.uint32)))
    return compare(
        lambda: ours(keys),
        lambda: theirs(keys),
        work=num_clients * dim,
        unit="words",
        peer_name="jax.random.bits",
        check=lambda mine, other: np.testing.assert_array_equal(mine, other),
        note="floor: about 80 vector operations for 8 words (AVX2), on each core",
    )


def cases(quick: bool) -> list[Case]:
    """Return first calls of every model, then each choice beside its alternative."""
    models = ["logistic"] if quick else list(_MODELS)
    together = (
        [("logistic", 30)] if quick else [("logistic", 30), ("MLP", 30), ("LeNet", 33)]
    )
    halves = [] if quick else ["CNN", "MLP"]
    dim = 100_000 if quick else 1_663_370

    def updates(name: str, dtype: str | None = None) -> Case:
        _, _, clients, size, batch = _MODELS[name]
        words = "" if dtype is None else f", {dtype}"
        case = f"{name}{words}, {clients} x {size}, batch {batch}"
        return Case(case, lambda: _updates(name, dtype))

    def seeds(name: str, size: int) -> Case:
        case = f"{name}, 5 seeds x 4 rounds x {_MODELS[name][2]} x {size}, batch 10"
        return Case(case, lambda: _seeds(name, size))

    words = Case(f"random words, 12 x {dim:,}", lambda: _draws(12, dim))
    halved = (updates(name, "bfloat16") for name in halves)
    return [*map(updates, models), *(seeds(*each) for each in together), *halved, words]
