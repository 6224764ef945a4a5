"""Rounds beside CCESA's sparse graphs and Flower's protocol, and time as edges grow."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from benchmarks.rivals import Peer
from mrsa_jax import graphs, protocol, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.status import Status
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, compare
from mrsa_jax.bench.round import BITS, lost_before_unmasking, residues

_LEVELS = 2**16  # of quantized updates, beside Flower
_TOTAL_DROPOUT = 0.1


def sparse_round(n: int, dim: int) -> Measurement:
    """Time a round over CCESA's graph against the complete one."""
    p = secagg.connection_probability(n, _TOTAL_DROPOUT)
    threshold = secagg.share_threshold(n, p)
    graph = np.asarray(graphs.erdos_renyi(n, p).sample(jax.random.key(0)))
    survivors = lost_before_unmasking(n, 0.025)
    inputs = residues(n, dim)
    complete = ~np.eye(n, dtype=bool)
    expected = inputs[survivors[3]].sum(axis=0) % 2**BITS

    def check(ours: secagg.AggregateResult, _: secagg.AggregateResult) -> None:
        np.testing.assert_array_equal(ours.total, expected)

    return compare(
        lambda: secagg.aggregate(0, inputs, graph, survivors, threshold, BITS),
        lambda: secagg.aggregate(0, inputs, complete, survivors, n // 2 + 1, BITS),
        work=1,
        check=check,
    )


def growth(n: int, degree: int, dim: int) -> Measurement:
    """Time a round over a regular graph."""
    graph = np.asarray(graphs.harary(n, degree).sample(jax.random.key(0)))
    inputs = residues(n, dim)
    arguments = inputs, graph, np.ones((5, n), bool), degree // 2 + 1, BITS
    total = inputs.sum(axis=0) % 2**BITS
    return compare(
        lambda: secagg.aggregate(0, *arguments).total,
        check=lambda ours, _: np.testing.assert_array_equal(ours, total),
        work=n * degree // 2,
    )


def beside_flower(n: int, degree: int, dim: int, ours: str) -> Measurement:
    """One round from float updates to their mean.

    Of degree n - 1 for the complete graph.
    """
    # one in twelve is lost after the pads were agreed
    lost, threshold = max(1, n // 12), (degree + 1) // 2 + 1
    updates = np.random.default_rng(0).uniform(-1, 1, (n, dim)).astype(np.float32)
    survivors = lost_before_unmasking(n, lost / n)
    graph = np.asarray(graphs.harary(n, degree).sample(jax.random.key(0)))
    quantizer = quantize.stochastic(_LEVELS, 1.0)
    expected, step = updates[survivors[3]].mean(axis=0), 2.0 / (_LEVELS - 1)

    form = protocol.run
    if ours == "arrays":
        form = functools.partial(secagg.aggregate, 0)

    def mean() -> np.ndarray:
        codes = np.asarray(quantizer.encode(jax.random.key(0), on_device(updates)))
        result = form(codes, graph, survivors, threshold, 32)
        if result.status != Status.OK:
            raise ResultsDifferError(f"the round ended with {result.status!r}")
        total = quantizer.decode(on_device(result.total), n - lost)
        return np.asarray(total) / (n - lost)

    settings = {
        "kind": "secagg",
        "lost": lost,
        "num_shares": degree + 1,
        "threshold": threshold,
        "clip": 1.0,
        "levels": _LEVELS,
    }
    workload = {"settings": settings, "updates": updates}
    with Peer("flower", workload, threads=num_cores()) as peer:

        def check(ours: np.ndarray, _: Any) -> None:
            """Allow a step: stochastic rounding moves each client by less."""
            np.testing.assert_array_less(np.abs(ours - expected), step)
            np.testing.assert_array_less(np.abs(peer.saved() - expected), step)

        return compare(
            mean,
            peer.run,
            work=1,
            peer_name=f"{peer.title}, its SecAgg+ with all parties in one process",
            check=check,
        )
