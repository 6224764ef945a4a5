"""Whole rounds as arrays against the real protocol, and against their keystreams."""

from __future__ import annotations

import dataclasses

import numpy as np

from mrsa_jax import protocol, secagg
from mrsa_jax._core.status import Status
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, Sized, compare
from mrsa_jax.bench.pads import adjacency_of, keystreams, num_edges

BITS = 16


def lost_before_unmasking(num_clients: int, share: float) -> np.ndarray:
    """Everybody shares keys.

    The last of the clients are gone when padded inputs are due.
    """
    here = np.arange(num_clients) < round(num_clients * (1 - share))
    survivors = np.ones((5, num_clients), bool)
    survivors[3:] = here
    return survivors


def residues(num_clients: int, dim: int) -> np.ndarray:
    """Draw every client's input in the ring of 16 bits."""
    return (
        np.random.default_rng(0)
        .integers(0, 2**BITS, (num_clients, dim))
        .astype(np.uint32)
    )


def whole_round(n: int, dim: int) -> Measurement:
    """Time a round as arrays against the real protocol."""
    inputs, survivors = residues(n, dim), lost_before_unmasking(n, 0.1)
    arguments = (inputs, ~np.eye(n, dtype=bool), survivors, n // 2 + 1, BITS)

    def check(ours: secagg.AggregateResult, real: secagg.AggregateResult) -> None:
        if not ours.status == real.status == Status.OK:
            raise ResultsDifferError(
                f"rounds ended with {ours.status!r} and {real.status!r}"
            )
        np.testing.assert_array_equal(ours.total, real.total)

    return compare(
        lambda: secagg.aggregate(0, *arguments),
        lambda: protocol.run(*arguments, entropy=0),
        work=1,
        check=check,
    )


def sized(
    n: int,
    dim: int,
    graph: str,
    modulus: int,
) -> Sized:
    """Return a whole round over a graph, nobody lost."""
    edges = num_edges(graph, n, modulus)
    # inputs, residues and sums; each client's shares of two secrets of nine limbs; the
    # graph
    memory = 16 * n * dim + 400 * (2 * edges + n) + 2 * n * n
    return Sized(memory, lambda: _own_round(n, dim, graph, modulus))


def _own_round(
    n: int,
    dim: int,
    graph: str,
    modulus: int,
) -> Measurement:
    adjacency = adjacency_of(graph, n)
    # the least that every client's neighbourhood can reach
    threshold = (int(adjacency.sum(axis=1).min()) + 1) // 2 + 1
    survivors = np.ones((5, n), bool)
    limit = min(modulus, 2**16)
    inputs = np.random.default_rng(0).integers(0, limit, (n, dim)).astype(np.uint32)
    arguments = (0, inputs, adjacency, survivors, threshold)

    def ours() -> secagg.AggregateResult:
        return secagg.aggregate(*arguments, modulus=modulus, keep_padded=False)

    def check(result: secagg.AggregateResult, _: int) -> None:
        expected = inputs.sum(axis=0, dtype=np.uint64) % modulus
        np.testing.assert_array_equal(result.total.astype(np.uint64), expected)

    streams = int(np.triu(adjacency).sum()) + n
    measured = compare(
        ours,
        keystreams(streams, dim, modulus),
        work=1,
        check=check,
    )
    sent = sum(step.bytes_up + step.bytes_down for step in ours().steps)
    return dataclasses.replace(measured, made_bytes=sent)
