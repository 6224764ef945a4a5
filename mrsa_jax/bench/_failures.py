"""Failures of CCESA rounds by simulation against a plain NumPy loop over rounds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import availability, graphs, secagg
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.bench._harness import Case, Measurement, ResultsDifferError, compare

_PEER_ROUNDS = 300


def _peer_round(
    rng: np.random.Generator, n: int, p: float, q: float, t: int
) -> tuple[bool, bool, bool]:
    """Return whether one random round is unreliable, not private, disconnected, with NumPy."""
    upper = np.triu(rng.random((n, n)) < p, 1)
    adjacency = upper | upper.T
    stays = rng.random((4, n)) >= q
    v2, v3, v4 = (np.logical_and.reduce(stays[:steps]) for steps in (2, 3, 4))
    informed = (adjacency & v4).sum(1) + v4 >= t
    beside = v2 & (adjacency & v3).any(1)
    reliable = informed[v3 | beside].all()
    parts, leaks, left = 0, False, v3.copy()
    while left.any():
        part = np.zeros(n, bool)
        grown = np.arange(n) == left.argmax()
        while (grown != part).any():
            part = grown
            grown = part | (adjacency[part].any(0) & v3)
        left &= ~part
        parts += 1
        leaks |= bool(informed[part | (v2 & adjacency[part].any(0))].all())
    return not reliable, parts > 1 and leaks, parts > 1


def _peer(seed: int, n: int, p: float, q: float, t: int, rounds: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sum([_peer_round(rng, n, p, q, t) for _ in range(rounds)], axis=0)


def _agree(ours: secagg.failures.FailureRates, theirs: np.ndarray, rounds: int) -> None:
    """Raise unless both sides' rates agree within five standard errors."""
    for mine, count in zip(
        (ours.unreliable, ours.not_private, ours.disconnected), theirs, strict=True
    ):
        pooled = (mine.count + count) / (mine.trials + rounds)
        error = np.sqrt(pooled * (1 - pooled) * (1 / mine.trials + 1 / rounds))
        if abs(mine.rate - count / rounds) > 5 * error + 1e-12:
            raise ResultsDifferError(f"{mine} against {count} of {rounds}")


def _same_rounds(n: int, p: float, q: float, t: int) -> None:
    """Raise unless our counts are those of the public predicates on the documented rounds."""
    graph, steps = graphs.erdos_renyi(n, p), availability.independent_steps(q)

    def one(trial: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = trial_key(as_key(0), trial)
        survivors = steps.sample(round_key(own, 0, Stream.STEPS), jnp.ones(n, jnp.bool_))
        return graph.sample(round_key(own, 0, Stream.ASSIGNMENT)), survivors

    adjacency, survivors = jax.jit(jax.vmap(one))(jnp.arange(64, dtype=jnp.uint32))
    reliable = secagg.is_reliable(adjacency, survivors, t)
    private = secagg.is_private(adjacency, survivors, t)
    rates = secagg.failure_rates(0, n, p, q, t, 64)
    counts = [rates.unreliable.count, rates.not_private.count]
    np.testing.assert_array_equal(counts, [jnp.sum(~reliable), jnp.sum(~private)])


def _measure(n: int, p: float, q: float, t: int, rounds: int, note: str) -> Measurement:
    def check(ours: secagg.failures.FailureRates, theirs: np.ndarray) -> None:
        _same_rounds(n, p, q, t)
        _agree(ours, theirs, _PEER_ROUNDS)

    return compare(
        lambda: secagg.failure_rates(0, n, p, q, t, rounds),
        lambda: _peer(0, n, p, q, t, _PEER_ROUNDS),
        work=rounds,
        unit="rounds",
        peer_name="NumPy, loop over rounds",
        peer_work=_PEER_ROUNDS,
        check=check,
        aim=10,
        repeats=3,
        note=note,
    )


def cases(quick: bool) -> list[Case]:
    """Return the papers' connection probability, and one that mostly disconnects."""
    n, total, rounds = 100, 0.1, 2_000 if quick else 100_000
    q = 1.0 - (1.0 - total) ** 0.25
    p = secagg.connection_probability(n, total)
    t = secagg.share_threshold(n, p)
    floor = (
        "aim 10,000 rounds/s at n = 100; floor: 4,950 words of Threefry-2x32 a round, about 100 "
        "vector operations on 8 lanes each; graphs, losses and verdicts are bit sets"
    )
    apart = "rounds with several components"
    return [
        Case(
            f"n = {n}, p* = {p:.4f}, q_total = .1, t = {t}",
            lambda: _measure(n, p, q, t, rounds, floor),
        ),
        Case(
            f"n = {n}, p = .05, q_total = .1, t = 2: disconnected rounds",
            lambda: _measure(n, 0.05, q, 2, rounds, apart),
        ),
    ]
