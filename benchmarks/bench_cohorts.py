"""Choices in training cohorts, each against its alternative: seeds side by side, bfloat16, draws.

Peers are our own other way to the same result: one seed after another, float32, JAX's own random
bits. The first call of a row includes compilation, for every model (run without a persistent
cache; the aim is 30 s a model).
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from random_clients import random_clients

import mrsa_jax as mj
from mrsa_jax._streams import random_words
from mrsa_jax.bench import Measurement, compare, record, table

_RESULTS = pathlib.Path(__file__).parent / "results" / "cohorts.jsonl"
_RATE = 0.05
# name -> model, sample shape, clients, samples a client, minibatch
_MODELS: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...], int, int, int]] = {
    "CNN": (mj.federated.cnn, (28, 28, 1), 12, 100, 100),
    "LeNet": (mj.federated.lenet, (32, 32, 3), 12, 100, 50),
    "VGG-11": (mj.federated.vgg11, (32, 32, 3), 2, 50, 50),
    "MLP": (mj.federated.mlp, (28, 28, 1), 12, 300, 50),
    "logistic": (mj.federated.logistic, (28, 28, 1), 12, 300, 50),
}


def seeds_side_by_side(name: str, num_seeds: int, size: int, batch_size: int) -> Measurement:
    """Four rounds of whole training, with quantization and the sum in the ring."""
    build, shape, num_clients, _, _ = _MODELS[name]
    clients, model = random_clients(shape, num_clients, size), build(10)
    trainer = mj.federated.local_sgd(model, _RATE, batch_size=batch_size)
    start = mj.federated.initial_parameters(0, model, shape)
    aggregator = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 0.5), num_clients, start.shape[0]
    )
    participation = np.ones((4, num_clients), bool)
    seeds = list(range(num_seeds))

    def together() -> np.ndarray:
        results = mj.federated.train_many(
            seeds, model, clients, participation, trainers=trainer, aggregators=aggregator,
            initial_parameters=start,
        )  # fmt: skip
        return np.stack([np.asarray(result.parameters) for result in results])

    def apart() -> np.ndarray:
        results = [
            mj.federated.train(
                seed, model, clients, participation, trainer=trainer, aggregator=aggregator,
                initial_parameters=start,
            )
            for seed in seeds
        ]  # fmt: skip
        return np.stack([np.asarray(result.parameters) for result in results])

    def check(ours: np.ndarray, theirs: np.ndarray) -> None:
        moved = np.linalg.norm(theirs - np.asarray(start), axis=1)
        np.testing.assert_array_less(np.linalg.norm(ours - theirs, axis=1), 0.05 * moved)

    return compare(
        "cohorts",
        f"{name}, {num_seeds} seeds x 4 rounds x {num_clients} x {size}, batch {batch_size}",
        together,
        apart,
        work=num_seeds * participation.sum() * size,
        unit="samples",
        peer_name="one seed after another",
        check=check,
        aim=1.0,
    )


def half_precision(name: str) -> Measurement:
    build, shape, num_clients, size, batch_size = _MODELS[name]
    clients, model = random_clients(shape, num_clients, size), build(10)
    start = mj.federated.initial_parameters(0, model, shape)
    half, single = (
        mj.federated.local_sgd(model, _RATE, batch_size=batch_size, compute_dtype=dtype)
        for dtype in ("bfloat16", None)
    )

    def check(ours: jax.Array, theirs: jax.Array) -> None:
        assert float(jnp.linalg.norm(ours - theirs)) < 0.2 * float(jnp.linalg.norm(theirs))

    return compare(
        "cohorts",
        f"{name}, bfloat16, {num_clients} x {size}, batch {batch_size}",
        lambda: mj.federated.client_updates(0, model, start, clients, half),
        lambda: mj.federated.client_updates(0, model, start, clients, single),
        work=num_clients * size,
        unit="samples",
        peer_name="float32",
        check=check,
        note="this processor has no bfloat16 arithmetic: the choice is for accelerators",
    )


def first_call(name: str) -> Measurement:
    build, shape, num_clients, size, batch_size = _MODELS[name]
    clients, model = random_clients(shape, num_clients, size), build(10)
    start = mj.federated.initial_parameters(0, model, shape)
    trainer = mj.federated.local_sgd(model, _RATE, batch_size=batch_size)
    return compare(
        "cohorts",
        f"{name}, {num_clients} x {size}, batch {batch_size}",
        lambda: mj.federated.client_updates(0, model, start, clients, trainer),
        work=num_clients * size,
        unit="samples",
        note="first_call_seconds: tracing, compiling and one run (aim: under 30 s)",
    )


def draws(num_clients: int, dim: int) -> Measurement:
    """The words of stochastic quantization, as a cohort draws them."""
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), num_clients)
    ours = jax.jit(jax.vmap(lambda key: random_words(key, (dim,))))
    theirs = jax.jit(jax.vmap(lambda key: jax.random.bits(key, (dim,), jnp.uint32)))
    return compare(
        "cohorts",
        f"random words, {num_clients} x {dim:,}",
        lambda: ours(keys),
        lambda: theirs(keys),
        work=num_clients * dim,
        unit="words",
        peer_name="jax.random.bits",
        check=lambda mine, other: np.testing.assert_array_equal(mine, other),
        note="floor: about 80 vector operations for 8 words (AVX2), on each core",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    rows = [first_call(name) for name in _MODELS]
    print(f"slowest first call: {max(row.first_call_seconds for row in rows):.1f} s")
    rows += [
        seeds_side_by_side("logistic", 5, 30, 10),
        seeds_side_by_side("MLP", 5, 30, 10),
        seeds_side_by_side("LeNet", 5, 33, 10),
        half_precision("CNN"),
        half_precision("MLP"),
        draws(12, 1_663_370),
    ]
    print(table(rows))
    if record_it:
        record(rows, _RESULTS)


if __name__ == "__main__":
    main()
