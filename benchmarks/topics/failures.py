"""Failures of CCESA rounds by simulation against NumPy over many rounds at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import availability, graphs, secagg
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.bench.harness import (
    Measurement,
    ResultsDifferError,
    Sized,
    compare,
    one_thread,
)

_PEER_ROUNDS = 1_000
_TOTAL_DROPOUT = 0.1
_AT_ONCE = 50  # rounds of the peer whose graphs stay in cache


def _peer(seed: int, n: int, p: float, q: float, t: int, rounds: int) -> np.ndarray:
    """Count rounds that are unreliable, not private, disconnected, with NumPy."""
    rng, counts = np.random.Generator(np.random.SFC64(seed)), np.zeros(3, np.int64)
    for first in range(0, rounds, _AT_ONCE):
        counts += _peer_rounds(rng, min(_AT_ONCE, rounds - first), n, p, q, t)
    return counts


def _beside(graphs_: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Count the members that each client is joined to, [B, n]."""
    counts: np.ndarray = (graphs_ @ members.astype(np.float32)[..., None])[..., 0]
    return counts


def _peer_rounds(
    rng: np.random.Generator, count: int, n: int, p: float, q: float, t: int
) -> np.ndarray:
    single = np.float32
    upper = (rng.random((count, n, n), single) < single(p)) & np.triu(
        np.ones((n, n), bool), 1
    )
    joined = (upper | upper.swapaxes(1, 2)).astype(single)
    stays = rng.random((4, count, n), single) >= single(q)
    v2, v3, v4 = (np.logical_and.reduce(stays[:steps]) for steps in (2, 3, 4))
    # enough neighbours answer, oneself included
    informed = _beside(joined, v4) + v4 >= t
    needed = v3 | (v2 & (_beside(joined, v3) > 0))
    reliable = (informed | ~needed).all(axis=1)
    parts, leaks, rest = np.zeros(count, int), np.zeros(count, bool), v3.copy()
    rows = np.flatnonzero(rest.any(axis=1))
    while rows.size:  # the next component of every round that has one
        alive, graph = rest[rows], joined[rows]
        part, grown = np.zeros_like(alive), np.zeros_like(alive)
        grown[np.arange(rows.size), alive.argmax(axis=1)] = True
        # flood from one client until the component stops growing
        while (grown != part).any():
            part = grown
            around = _beside(graph, part) > 0
            grown = part | (around & alive)
        leaks[rows] |= (informed[rows] | ~(part | (v2[rows] & around))).all(axis=1)
        parts[rows] += 1
        rest[rows] = alive & ~part
        rows = rows[rest[rows].any(axis=1)]
    return np.array([(~reliable).sum(), ((parts > 1) & leaks).sum(), (parts > 1).sum()])


def _agree(ours: secagg.failures.FailureRates, theirs: np.ndarray, rounds: int) -> None:
    """Raise unless both sides' rates agree within five standard errors."""
    for rate, count in zip(
        (ours.unreliable, ours.not_private, ours.disconnected), theirs, strict=True
    ):
        # the standard error under one common rate
        pooled = (rate.count + count) / (rate.trials + rounds)
        error = np.sqrt(pooled * (1 - pooled) * (1 / rate.trials + 1 / rounds))
        if abs(rate.rate - count / rounds) > 5 * error + 1e-12:
            raise ResultsDifferError(f"{rate} against {count} of {rounds}")


def _same_rounds(n: int, p: float, q: float, t: int) -> None:
    """Raise unless our counts are those of the public predicates on the same rounds."""
    graph, steps = graphs.erdos_renyi(n, p), availability.independent_steps(q)

    def one(trial: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = trial_key(as_key(0), trial)
        survivors = steps.sample(
            round_key(key, 0, Stream.STEPS), jnp.ones(n, jnp.bool_)
        )
        return graph.sample(round_key(key, 0, Stream.ASSIGNMENT)), survivors

    adjacency, survivors = jax.jit(jax.vmap(one))(jnp.arange(64, dtype=jnp.uint32))
    reliable = secagg.is_reliable(adjacency, survivors, t)
    private = secagg.is_private(adjacency, survivors, t)
    rates = secagg.failure_rates(0, n, p, q, t, 64)
    counts = [rates.unreliable.count, rates.not_private.count]
    np.testing.assert_array_equal(counts, [jnp.sum(~reliable), jnp.sum(~private)])


def failures(n: int, rounds: int, p: float = 0.0, threshold: int = 0) -> Measurement:
    """Time failures at CCESA's p* and t, where one of ten clients is lost."""
    p = p or min(secagg.connection_probability(n, _TOTAL_DROPOUT), 1.0)
    t = threshold or secagg.share_threshold(n, p)
    q = 1.0 - (1.0 - _TOTAL_DROPOUT) ** 0.25  # at each of four steps
    few = min(rounds, _PEER_ROUNDS)

    def theirs() -> np.ndarray:
        with one_thread():
            return _peer(0, n, p, q, t, few)

    def check(ours: secagg.failures.FailureRates, other: np.ndarray) -> None:
        _same_rounds(n, p, q, t)
        _agree(ours, other, few)

    return compare(
        lambda: secagg.failure_rates(0, n, p, q, t, rounds),
        theirs,
        work=rounds,
        peer_work=few,
        check=check,
    )


def sized(n: int, trials: int) -> Sized:
    """Return failures at CCESA's p* and threshold, one of ten clients lost."""
    # verdicts and keys; the peer's graphs
    memory = 16 * trials + 13 * _AT_ONCE * n * n + 2**20
    return Sized(memory, lambda: failures(n, trials))
