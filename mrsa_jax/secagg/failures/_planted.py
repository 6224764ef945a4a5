"""Draw rounds given that one failure is in them, for rates too small to count.

Paper: CCESA, Theorems 1, 2, 5 and 6. The union bounds behind Theorems 5 and 6 are sums
over possible failures; here one of them is chosen in proportion to its exact chance, a
round is drawn given it, and the round counts when the chosen failure is the first one
in it (Karp and Luby). Tables and draws are NumPy in float64 on counter-based words, the
same on every device.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key, UInt8, UInt32

from mrsa_jax._core.streams import Stream, client_words, round_key, trial_key
from mrsa_jax.availability import independent_steps
from mrsa_jax.graphs import GraphModel
from mrsa_jax.secagg.failures._judging import draw_arrays
from mrsa_jax.secagg.failures._theory import _log_arrivals
from mrsa_jax.secagg.failures._verdicts import planted_byte
from mrsa_jax.secagg.failures.tails import log_factorials, log_pmf, log_sum

_LOG2 = math.log(2.0)
# a client: its place in a random order, how long it lasts, whether it is joined
_WORDS = 3


class Planted(NamedTuple):
    """Rounds without the edges that nothing is known of.

    Attributes:
        survivors: bool[B, 5, n].
        cut: bool[B, n], a part of V3 without edges to the rest of V3 (nobody: no cut).
        client: int32[B], whose row of the adjacency matrix is given; -1 for nobody's.
        row: bool[B, n], that row.
    """

    survivors: np.ndarray
    cut: np.ndarray
    client: np.ndarray
    row: np.ndarray


def isolated_cuts(n: int, p: float, q: float) -> np.ndarray:
    """Tabulate log E[cuts of V3 into k and m - k without an edge] as [m, k].

    k runs from 1 to m/2.

    Even splits count once; -inf elsewhere. The expectation includes the chance of |V3|
    = m.
    """
    factorials = log_factorials(n)
    table = np.full((n + 1, n // 2 + 1), -np.inf)
    missing = math.log1p(-p) if p < 1.0 else -math.inf
    arrive = _log_arrivals(n, q)
    for m in range(2, n + 1):
        k = np.arange(1, m // 2 + 1)
        ways = (
            factorials[m]
            - factorials[k]
            - factorials[m - k]
            - np.where(2 * k == m, _LOG2, 0.0)
        )
        table[m, 1 : m // 2 + 1] = (
            arrive[m] + ways + (k * (m - k)).astype(np.float64) * missing
        )
    return table


def plant_cuts(
    key: Array,
    first: int,
    count: int,
    table: np.ndarray,
    q: float,
) -> Planted:
    """Draw rounds with a cut of V3 without edges, chosen by its chance."""
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, len(table) - 1))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    summed, size = np.divmod(cell, table.shape[1])
    place = _places(words[0])
    arrived = place < summed[:, None]
    stays = 1.0 - q
    # of clients that arrive, whether they also answer; of the others, the step at which
    # they were lost
    lasts = _unit(words[1])
    level = np.minimum(_step_of_loss([q, stays * q, stays * stays * q], lasts), 2)
    level = np.where(arrived, 3 + (lasts < stays), level)
    nobody = np.full(count, -1, np.int32)
    cut = place < size[:, None]
    return Planted(_nested(level), cut, nobody, np.zeros_like(cut))


def _step_of_loss(chances: list[float], uniform: np.ndarray) -> np.ndarray:
    """Choose a step in proportion to the chances to be lost there."""
    bounds = np.cumsum(chances)
    bounds = bounds / max(bounds[-1], 1e-300)
    return np.searchsorted(bounds, uniform.ravel(), side="right").reshape(uniform.shape)


def lost_secrets(n: int, p: float, q: float, thresholds: np.ndarray) -> np.ndarray:
    """Tabulate log chances of too few shares as [client, level, shares].

    Level 0, 1, 2: the client is in V2 but not V3, in V3 but not V4, in V4. Shares are
    those of its neighbours in V4, at most t - 1, or t - 2 where its own share is there.
    """
    stays = 1.0 - q
    # neighbours that are joined and last to the end
    law = log_pmf(n - 1, p * stays**4)
    with np.errstate(divide="ignore"):
        levels = np.log(np.asarray([stays**2 * q, stays**3 * q, stays**4]))
    shares = np.arange(n)
    most = thresholds.astype(np.int64)[:, None] - np.asarray([1, 1, 2])
    return np.where(shares <= most[:, :, None], levels[:, None] + law, -np.inf)


def plant_lost_secrets(
    key: Array,
    first: int,
    count: int,
    table: np.ndarray,
    q: float,
    *,
    p: float,
) -> Planted:
    """Draw rounds with a client of too few shares, chosen by its chance."""
    n = len(table)
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, n))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    client, level, shares = np.unravel_index(cell, table.shape)
    is_client = np.arange(n) == client[:, None]
    # A random set of the others gives shares: these are joined and last; nobody else is
    # both.
    last_place = np.int64(2) ** 32
    gives = _places(np.where(is_client, last_place, words[0])) < shares[:, None]
    stays = 1.0 - q
    lasts = p * stays**4
    chances = [q, stays * q, stays**2 * q, stays**3 * q, stays**4 * (1.0 - p)]
    bounds = np.cumsum(np.asarray(chances) / max(1.0 - lasts, 1e-300))
    uniform = _unit(words[1])
    step = np.searchsorted(bounds[:4], uniform.ravel(), side="right")
    step = step.reshape(uniform.shape)
    joined = (_unit(words[2]) < p) & (step < 4)
    levels = np.where(gives, 4, step)
    levels = np.where(is_client, level[:, None] + 2, levels)
    row = (gives | joined) & ~is_client
    return Planted(_nested(levels), np.zeros_like(row), client.astype(np.int32), row)


def _nested(level: np.ndarray) -> np.ndarray:
    """Return V0 to V4 as bool[B, 5, n], given the last step of each client."""
    return level[:, None, :] >= np.arange(5)[None, :, None]


def _choose(log_weights: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Choose indices in proportion to exp(log_weights)."""
    possible = np.flatnonzero(log_weights > -np.inf)
    total = log_sum(log_weights[possible])
    cumulative = np.cumsum(np.exp(log_weights[possible] - total))
    places = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return possible[np.minimum(places, len(possible) - 1)]


def _places(words: np.ndarray) -> np.ndarray:
    """Return each client's place in the order of its words."""
    # the inverse of a permutation is the order that sorts it
    return np.argsort(np.argsort(words, axis=1, kind="stable"), axis=1)


def _unit(high: np.ndarray, low: np.ndarray | None = None) -> np.ndarray:
    """Turn one word into floats in [0, 1), or two words for all 53 bits."""
    value = high.astype(np.float64)
    if low is None:
        return value * 2.0**-32
    return (value * 2.0**21 + (low >> np.uint32(11)).astype(np.float64)) * 2.0**-53


@functools.partial(jax.jit, static_argnames=("count", "n"))
def _draw(
    key: Key[Array, ""],
    first: UInt32[Array, ""],
    count: int,
    n: int,
) -> tuple[UInt32[Array, "words count n"], UInt32[Array, "2 count"]]:
    """Draw words of clients and of trials."""
    trials = first + jax.lax.iota(jnp.uint32, count)
    trial_keys = jax.vmap(trial_key, (None, 0))(key, trials)
    keys = jax.vmap(lambda of_trial: round_key(of_trial, 0, Stream.STEPS))(trial_keys)
    client = jnp.stack([client_words(keys, n, word).T for word in range(_WORDS)])
    return client, jnp.stack([client_words(keys, 1, _WORDS + i)[0] for i in range(2)])


def judge_planted(
    graph: GraphModel,
    rounds: Planted,
    thresholds: np.ndarray,
    key: Array,
    first: int,
    count: int,
) -> UInt8[np.ndarray, " trials"]:
    """Judge the first `count` rounds, of which all but the free edges is given."""
    everybody_stays = independent_steps(0.0)
    drawn = draw_arrays(
        graph, everybody_stays, key, jnp.uint32(first), len(rounds.client)
    )
    return np.asarray(_judge_planted(drawn.adjacency, rounds, thresholds))[:count]


@jax.jit
def _judge_planted(
    adjacency: Bool[Array, "trials n n"],
    rounds: Planted,
    thresholds: Int32[Array, " n"],
) -> UInt8[Array, " trials"]:
    clients = jax.lax.iota(jnp.int32, thresholds.shape[0])

    def judge(edges: Array, planted: Any) -> Array:
        survivors, cut, client, row = planted
        summed = survivors[3]
        is_client = clients == client
        apart = jnp.logical_xor.outer(cut, cut) & jnp.logical_and.outer(summed, summed)
        touched = jnp.logical_or.outer(is_client, is_client)
        planted_edges = jnp.logical_and.outer(is_client, row)
        edges = (edges & ~apart & ~touched) | planted_edges | planted_edges.T
        return planted_byte(edges, survivors, thresholds, cut, client)

    return jax.vmap(judge)(adjacency, rounds)
