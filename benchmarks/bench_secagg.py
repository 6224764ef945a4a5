"""Whole rounds as arrays against the real protocol, secret sharing, and time as edges grow."""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import mrsa_jax as mj
from mrsa_jax import protocol, secagg
from mrsa_jax.bench import Measurement, compare, record, table
from mrsa_jax.modular import LIMBS, SHAMIR_PRIME, share_secrets

DIM, BITS = 10_000, 16
TOTAL_DROPOUT = 0.1


def lost_before_unmasking(num_clients: int, share: float) -> np.ndarray:
    """Everybody shares keys; the last of the clients are gone when padded inputs are due."""
    here = np.arange(num_clients) < round(num_clients * (1 - share))
    survivors = np.ones((5, num_clients), bool)
    survivors[3:] = here
    return survivors


def residues(num_clients: int, dim: int = DIM) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**BITS, (num_clients, dim)).astype(np.uint32)


def whole_round() -> Measurement:
    inputs, survivors = residues(100), lost_before_unmasking(100, 0.1)
    arguments = (inputs, ~np.eye(100, dtype=bool), survivors, 51, BITS)

    def check(ours: secagg.AggregateResult, real: secagg.AggregateResult) -> None:
        assert ours.status == real.status == mj.Status.OK
        np.testing.assert_array_equal(ours.total, real.total)

    return compare(
        "secagg",
        "round, complete graph, n = 100, d = 10,000, 10 % lost",
        lambda: secagg.aggregate(0, *arguments),
        lambda: protocol.run(*arguments, entropy=0),
        work=1,
        unit="rounds",
        peer_name="the real protocol, all parties in one process",
        check=check,
        repeats=3,
        note="aims: 1 s for arrays, 10 s for the real protocol (Flower's own functions need 240 "
        "CPU-seconds); floor of the real one: 21,600 X25519 agreements of 36 us",
    )


def sparse_round(num_clients: int) -> Measurement:
    p = secagg.connection_probability(num_clients, TOTAL_DROPOUT)
    threshold = secagg.share_threshold(num_clients, p)
    graph = np.asarray(mj.graphs.erdos_renyi(num_clients, p).sample(jax.random.key(0)))
    survivors = lost_before_unmasking(num_clients, 0.025)
    inputs = residues(num_clients)
    expected = inputs[survivors[3]].sum(axis=0) % 2**BITS

    def check(ours: secagg.AggregateResult, _: secagg.AggregateResult) -> None:
        np.testing.assert_array_equal(ours.total, expected)

    return compare(
        "secagg",
        f"round, CCESA at p*, n = {num_clients}, d = 10,000, q = 0.1",
        lambda: secagg.aggregate(0, inputs, graph, survivors, threshold, BITS),
        lambda: secagg.aggregate(0, inputs, ~np.eye(num_clients, dtype=bool), survivors,
                                 num_clients // 2 + 1, BITS),
        work=1,
        unit="rounds",
        peer_name="SecAgg: the same over the complete graph",
        check=check,
        repeats=3,
        note="aim: 20 s at n = 500; the ratio to be expected of the pads alone is 1 / p",
    )  # fmt: skip


def sharing(num_clients: int) -> Measurement:
    rng = np.random.default_rng(0)
    degree = num_clients // 2
    secrets = rng.integers(0, 2**30, (num_clients, LIMBS), dtype=np.uint32)
    coefficients = rng.integers(0, SHAMIR_PRIME, (num_clients, degree, LIMBS), dtype=np.uint32)
    points = np.tile(np.arange(1, num_clients + 1, dtype=np.uint32), (num_clients, 1))
    arrays = [jnp.asarray(array) for array in (secrets, coefficients, points)]

    def loop() -> np.ndarray:
        x = points[0].astype(np.uint64)
        shares = []
        for secret, rows in zip(secrets, coefficients, strict=True):
            value = np.zeros((LIMBS, num_clients), np.uint64)
            for row in (*rows[::-1], secret):
                value = (value * x + row.astype(np.uint64)[:, None]) % np.uint64(SHAMIR_PRIME)
            shares.append(value)
        return np.stack(shares)

    return compare(
        "secagg",
        f"shares of one secret for each of n = {num_clients}, t = n/2 + 1",
        lambda: share_secrets(*arrays),
        loop,
        work=num_clients,
        unit="secrets",
        peer_name="Horner's rule in NumPy, a client at a time",
        check=lambda ours, theirs: np.testing.assert_array_equal(np.asarray(ours), theirs),
        aim=1.0,
        repeats=3,
        note="aim: about a second at n = 500; floor: n^2 t 9 products of 31 by 16 bits",
    )


def growth(degree: int) -> Measurement:
    num_clients = 400
    graph = np.asarray(mj.graphs.harary(num_clients, degree).sample(jax.random.key(0)))
    survivors = np.ones((5, num_clients), bool)
    inputs = residues(num_clients)
    return compare(
        "secagg",
        f"round, {degree}-regular graph, n = {num_clients}, d = 10,000",
        lambda: secagg.aggregate(0, inputs, graph, survivors, degree // 2 + 1, BITS),
        work=num_clients * degree // 2,
        unit="edges",
        repeats=3,
        note="time grows as the edges do where this rate stays",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    rows = [whole_round(), sparse_round(300), sparse_round(500), sharing(500)]
    rows += [growth(degree) for degree in (20, 80, 320)]
    print(table(rows))
    if record_it:
        record(rows, pathlib.Path(__file__).parent / "results" / "secagg.jsonl")


if __name__ == "__main__":
    main()
