"""Rounds beside CCESA's sparse graphs and Flower's protocol, and time as edges grow."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.rivals import Peer
from mrsa_jax import graphs, protocol, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.status import Status
from mrsa_jax.bench.harness import Case, Measurement, ResultsDifferError, compare
from mrsa_jax.bench.round import BITS, lost_before_unmasking, residues

_LEVELS = 2**16  # of quantized updates, beside Flower
_TOTAL_DROPOUT = 0.1


def _sparse_round(num_clients: int, dim: int) -> Measurement:
    p = secagg.connection_probability(num_clients, _TOTAL_DROPOUT)
    threshold = secagg.share_threshold(num_clients, p)
    graph = np.asarray(graphs.erdos_renyi(num_clients, p).sample(jax.random.key(0)))
    survivors = lost_before_unmasking(num_clients, 0.025)
    inputs = residues(num_clients, dim)
    expected = inputs[survivors[3]].sum(axis=0) % 2**BITS

    def check(ours: secagg.AggregateResult, _: secagg.AggregateResult) -> None:
        np.testing.assert_array_equal(ours.total, expected)

    return compare(
        lambda: secagg.aggregate(0, inputs, graph, survivors, threshold, BITS),
        lambda: secagg.aggregate(
            0,
            inputs,
            ~np.eye(num_clients, dtype=bool),
            survivors,
            num_clients // 2 + 1,
            BITS,
        ),
        work=1,
        unit="rounds",
        peer_name="SecAgg: the same over the complete graph",
        check=check,
        repeats=3,
        note="aim: 20 s at n = 500; the ratio to be expected of the pads alone is 1 / p",
    )


def _growth(num_clients: int, degree: int, dim: int) -> Measurement:
    graph = np.asarray(graphs.harary(num_clients, degree).sample(jax.random.key(0)))
    survivors = np.ones((5, num_clients), bool)
    inputs = residues(num_clients, dim)
    return compare(
        lambda: (
            secagg.aggregate(0, inputs, graph, survivors, degree // 2 + 1, BITS).total
        ),
        check=lambda ours, _: np.testing.assert_array_equal(
            ours, inputs.sum(axis=0) % 2**BITS
        ),
        work=num_clients * degree // 2,
        unit="edges",
        repeats=3,
        note="time grows as the edges do where this rate stays",
    )


def _beside_flower(n: int, degree: int, dim: int, *, is_real: bool) -> Measurement:
    """One round from float updates to their mean.

    Of degree n - 1 for the complete graph.
    """
    lost, threshold = max(1, n // 12), (degree + 1) // 2 + 1
    updates = np.random.default_rng(0).uniform(-1, 1, (n, dim)).astype(np.float32)
    survivors = lost_before_unmasking(n, lost / n)
    graph = np.asarray(graphs.harary(n, degree).sample(jax.random.key(0)))
    quantizer = quantize.stochastic(_LEVELS, 1.0)
    expected, step = updates[survivors[3]].mean(axis=0), 2.0 / (_LEVELS - 1)

    def ours() -> np.ndarray:
        codes = np.asarray(quantizer.encode(jax.random.key(0), on_device(updates)))
        arguments = (codes, graph, survivors, threshold, 32)
        result = (
            protocol.run(*arguments) if is_real else secagg.aggregate(0, *arguments)
        )
        if result.status != Status.OK:
            raise ResultsDifferError(f"the round ended with {result.status!r}")
        return np.asarray(quantizer.decode(on_device(result.total), n - lost)) / (
            n - lost
        )

    settings = {
        "kind": "secagg",
        "lost": lost,
        "num_shares": degree + 1,
        "threshold": threshold,
        "clip": 1.0,
        "levels": _LEVELS,
    }
    with Peer(
        "flower", {"settings": settings, "updates": updates}, threads=num_cores()
    ) as peer:

        def check(mine: np.ndarray, _: Any) -> None:
            """Stochastic rounding moves each client, and so the mean, by less than a step."""
            np.testing.assert_array_less(np.abs(mine - expected), step)
            np.testing.assert_array_less(np.abs(peer.saved() - expected), step)

        return compare(
            ours,
            peer.run,
            work=1,
            unit="rounds",
            peer_name=f"{peer.title}, its SecAgg+ with all parties in one process",
            check=check,
            aim=1.0,
            repeats=2,
            note="both quantize floats and decode their mean; Flower's pads are Mersenne Twister's "
            "from a seed of 32 bits, ours ChaCha20's of 256 bits",
        )


def cases(quick: bool) -> list[Case]:
    """Return CCESA against SecAgg, growth, and rounds beside Flower's."""
    dim = 1_000 if quick else 10_000
    clients, degrees = (40, (10, 20)) if quick else (400, (20, 80, 320))

    def sparse(n: int) -> Case:
        case = f"round, CCESA at p*, n = {n}, d = {dim:,}, q = 0.1"
        return Case(case, lambda: _sparse_round(n, dim))

    def growth(degree: int) -> Case:
        case = f"round, {degree}-regular graph, n = {clients}, d = {dim:,}"
        return Case(case, lambda: _growth(clients, degree, dim))

    found = [sparse(n) for n in ((60,) if quick else (300, 500))]
    found += [growth(degree) for degree in degrees]

    def flower(n: int, degree: int, is_real: bool) -> Case:
        graph = "complete graph" if degree == n - 1 else f"{degree}-regular graph"
        ours = "the real protocol" if is_real else "arrays"
        return Case(
            f"round, {graph}, n = {n}, d = {dim:,}, {ours}, Flower",
            lambda: _beside_flower(n, degree, dim, is_real=is_real),
            "flower",
        )

    beside = [(6, 5)] if quick else [(24, 23), (48, 10)]
    return found + [
        flower(*size, is_real) for size in beside for is_real in (False, True)
    ]
