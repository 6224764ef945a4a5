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

from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.streams import Stream, client_words, round_key, trial_key
from mrsa_jax.availability import independent_steps
from mrsa_jax.graphs import GraphModel
from mrsa_jax.secagg.failures._judging import draw_arrays
from mrsa_jax.secagg.failures._theory import _log_arrivals
from mrsa_jax.secagg.failures._verdicts import planted_byte
from mrsa_jax.secagg.failures.tails import (
    log_factorials,
    log_pmf,
    log_sum,
    log_tails_below,
)
from mrsa_jax.secagg.thresholds import more_than_half

_LOG2 = math.log(2.0)
_WORDS = 2  # a client: its place in a random order, how long it lasts
_PAIRS = 3  # a round: its cell, its client, its shares, two words each


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


def isolated_cuts(n: int, p: float, rates: np.ndarray) -> np.ndarray:
    """Tabulate log E[cuts of V3 into k and m - k without an edge] as [m, k].

    k runs from 1 to m/2.

    Even splits count once; -inf elsewhere. The expectation includes the chance of |V3|
    = m.
    """
    factorials = log_factorials(n)
    table = np.full((n + 1, n // 2 + 1), -np.inf)
    missing = math.log1p(-p) if p < 1.0 else -math.inf
    arrive = _log_arrivals(n, rates)
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
    rates: np.ndarray,
) -> Planted:
    """Draw rounds with a cut of V3 without edges, chosen by its chance."""
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, len(table) - 1))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    summed, size = np.divmod(cell, table.shape[1])
    place = _places(words[0])
    arrived = place < summed[:, None]
    # of clients that arrive, whether they also answer; of the others, the step at which
    # they were lost
    lasts = _unit(words[1])
    lost = rates[:3] * np.cumprod([1.0, *(1.0 - rates[:2])])
    level = np.minimum(_step_of_loss(lost, lasts), 2)
    level = np.where(arrived, 3 + (lasts < 1.0 - rates[3]), level)
    nobody = np.full(count, -1, np.int32)
    cut = place < size[:, None]
    return Planted(_nested(level), cut, nobody, np.zeros_like(cut))


def _step_of_loss(chances: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Choose a step in proportion to the chances to be lost there."""
    bounds = np.cumsum(chances)
    bounds = bounds / max(bounds[-1], 1e-300)
    return np.searchsorted(bounds, uniform.ravel(), side="right").reshape(uniform.shape)


class LostSecrets(NamedTuple):
    """Chances that a client has too few shares; clients of one threshold are alike.

    Attributes:
        log_weights: float64[kinds, 3, degrees], the log of each expected number. Level
            0, 1, 2: the client is in V2 but not V3, in V3 but not V4, in V4.
        most: int[kinds, 3, degrees], the most shares of neighbours that are too few.
        clients: The clients of each kind, ascending.
    """

    log_weights: np.ndarray
    most: np.ndarray
    clients: tuple[np.ndarray, ...]


def lost_secrets(
    n: int, p: float, rates: np.ndarray, thresholds: np.ndarray | None
) -> LostSecrets:
    """Tabulate expected lost secrets by kind of client, level and degree.

    Too few are t - 1 shares of neighbours in V4, or t - 2 where the client's own share
    is there. No thresholds are majorities of the neighbourhoods.
    """
    degrees = np.arange(n)
    clients: tuple[np.ndarray, ...]
    if thresholds is None:
        limits, clients = more_than_half(degrees)[None], (degrees,)
    else:
        values = np.unique(thresholds)
        limits = np.broadcast_to(values[:, None], (len(values), n)).astype(np.int64)
        clients = tuple(np.flatnonzero(thresholds == value) for value in values)
    stays = np.cumprod(1.0 - rates)
    most = limits[:, None] - np.asarray([1, 1, 2])[:, None]
    few = [
        log_tails_below(degrees, float(stays[3]), row + 1)
        for row in most.reshape(-1, n)
    ]
    with np.errstate(divide="ignore"):
        counts = np.log([float(len(kind)) for kind in clients])
        levels = np.log([stays[1] * rates[2], stays[2] * rates[3], stays[3]])
    law = counts[:, None, None] + levels[:, None] + log_pmf(n - 1, p)
    return LostSecrets(law + np.reshape(few, most.shape), most, clients)


def plant_lost_secrets(
    key: Array,
    first: int,
    count: int,
    table: LostSecrets,
    rates: np.ndarray,
) -> Planted:
    """Draw rounds with a client of too few shares, chosen by its chance."""
    n = table.log_weights.shape[-1]
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, n))
    cell = _choose(table.log_weights.ravel(), _unit(scalar[0], scalar[1]))
    kind, level, degree = np.unravel_index(cell, table.log_weights.shape)
    uniform = _unit(scalar[2], scalar[3])
    client = np.asarray(
        [
            table.clients[k][int(u * len(table.clients[k]))]
            for k, u in zip(kind, uniform, strict=True)
        ]
    )
    stays = np.cumprod(1.0 - rates)
    shares = _shares(
        degree, table.most[kind, level, degree], float(stays[3]), _unit(*scalar[4:])
    )
    # The others in random order: the first are neighbours that last to the end, the
    # next neighbours that do not, the rest no neighbours.
    is_client = np.arange(n) == client[:, None]
    last_place = np.int64(2) ** 32
    place = _places(np.where(is_client, last_place, words[0]))
    gives, joined = place < shares[:, None], place < degree[:, None]
    bounds = np.cumsum(rates * np.concatenate([[1.0], stays[:3]]))
    # a neighbour without a share is lost at one of the four steps
    reach = np.where(joined, bounds[3], 1.0)
    lost_at = _unit(words[1]) * reach
    step = np.searchsorted(bounds, lost_at.ravel(), side="right").reshape(lost_at.shape)
    step = np.where(joined, np.minimum(step, 3), step)
    levels = np.where(gives, 4, step)
    levels = np.where(is_client, level[:, None] + 2, levels)
    row = joined & ~is_client
    return Planted(_nested(levels), np.zeros_like(row), client.astype(np.int32), row)


def _shares(
    degree: np.ndarray, most: np.ndarray, lasts: float, uniform: np.ndarray
) -> np.ndarray:
    """Draw how many of each client's neighbours last, given that at most `most` do."""
    found = [
        _choose(log_pmf(int(size), lasts)[: int(few) + 1], u[None])[0]
        for size, few, u in zip(degree, most, uniform, strict=True)
    ]
    return np.asarray(found)


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
) -> tuple[UInt32[Array, "words count n"], UInt32[Array, "pairs count"]]:
    """Draw words of clients and of trials."""
    trials = first + jax.lax.iota(jnp.uint32, count)
    trial_keys = jax.vmap(trial_key, (None, 0))(key, trials)
    keys = jax.vmap(lambda of_trial: round_key(of_trial, 0, Stream.STEPS))(trial_keys)
    client = jnp.stack([client_words(keys, n, word).T for word in range(_WORDS)])
    return client, jnp.stack(
        [client_words(keys, 1, _WORDS + i)[0] for i in range(2 * _PAIRS)]
    )


def judge_planted(
    graph: GraphModel,
    rounds: Planted,
    thresholds: np.ndarray | None,
    key: Array,
    first: int,
    count: int,
) -> UInt8[np.ndarray, " trials"]:
    """Judge the first `count` rounds, of which all but the free edges is given."""
    everybody_stays = independent_steps(0.0)
    drawn = draw_arrays(
        kept_apart(graph), everybody_stays, key, jnp.uint32(first), len(rounds.client)
    )
    return np.asarray(_judge_planted(drawn.adjacency, rounds, thresholds))[:count]


@jax.jit
def _judge_planted(
    adjacency: Bool[Array, "trials n n"],
    rounds: Planted,
    thresholds: Int32[Array, " n"] | None,
) -> UInt8[Array, " trials"]:
    clients = jax.lax.iota(jnp.int32, adjacency.shape[-1])

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
