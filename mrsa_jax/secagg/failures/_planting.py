"""Rounds drawn under the condition that one failure is in them, for rates too small to count.

Paper: CCESA, Theorems 1, 2, 5 and 6. The union bounds behind Theorems 5 and 6 are sums over
possible failures; here one of them is chosen in proportion to its exact chance, a round is drawn
given it, and the round counts when the chosen failure is the first one in it (Karp and Luby).
Everything here is NumPy in float64 on counter-based words, the same on every device.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt32

from mrsa_jax._streams import Stream, client_words, round_key, trial_key
from mrsa_jax.secagg.failures._binomial import log_factorials, log_pmf, log_sum
from mrsa_jax.secagg.failures._theory import _log_arrivals

_LOG2 = math.log(2.0)
_WORDS = 3  # a client: its place in a random order, how long it lasts, whether it is joined


class Planted(NamedTuple):
    """Rounds but for the edges that nothing is known of.

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
    """Return log E[cuts of V3 into k and m - k without an edge] as [m, k], 1 <= k <= m/2.

    Even splits count once; -inf elsewhere. The expectation includes the chance of |V3| = m.
    """
    factorials = log_factorials(n)
    table = np.full((n + 1, n // 2 + 1), -np.inf)
    missing = math.log1p(-p) if p < 1.0 else -math.inf
    arrive = _log_arrivals(n, q)
    for m in range(2, n + 1):
        k = np.arange(1, m // 2 + 1)
        ways = factorials[m] - factorials[k] - factorials[m - k] - np.where(2 * k == m, _LOG2, 0.0)
        table[m, 1 : m // 2 + 1] = arrive[m] + ways + (k * (m - k)).astype(np.float64) * missing
    return table


def plant_cuts(key: Array, first: int, count: int, table: np.ndarray, q: float) -> Planted:
    """Return rounds each with a cut of V3 without edges, chosen by its chance in `table`."""
    n = len(table) - 1
    client, scalar = map(np.array, _draw(key, jnp.uint32(first), count, n))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    summed, size = np.divmod(cell, table.shape[1])
    place = _places(client[0])
    arrived = place < summed[:, None]
    kept = 1.0 - q
    # Of those who arrive, who also answers; of the others, the step at which they were lost.
    lasts = _unit(client[1])
    lost = np.cumsum([q, kept * q, kept * kept * q])
    by_step = np.searchsorted(lost / max(lost[-1], 1e-300), lasts.ravel(), side="right")
    level = np.minimum(by_step.reshape(lasts.shape), 2)
    level = np.where(arrived, 3 + (lasts < kept), level)
    nobody = np.full(count, -1, np.int32)
    cut = place < size[:, None]
    return Planted(_nested(level), cut, nobody, np.zeros_like(cut))


def lost_secrets(n: int, p: float, q: float, thresholds: np.ndarray) -> np.ndarray:
    """Return the log chance that a client's shares are too few, as [client, level, shares].

    Level 0, 1, 2: the client is in V2 but not V3, in V3 but not V4, in V4. Shares are those of
    its neighbours in V4, at most t - 1, or t - 2 where its own share is there.
    """
    kept = 1.0 - q
    law = log_pmf(n - 1, p * kept**4)
    with np.errstate(divide="ignore"):
        levels = np.log(np.asarray([kept**2 * q, kept**3 * q, kept**4]))
    shares = np.arange(n)
    most = thresholds.astype(np.int64)[:, None] - np.asarray([1, 1, 2])
    few = shares <= most[:, :, None]
    return np.where(few, levels[:, None] + law, -np.inf)


def plant_lost_secrets(
    key: Array, first: int, count: int, table: np.ndarray, p: float, q: float
) -> Planted:
    """Return rounds each with a client of too few shares, chosen by its chance in `table`."""
    n = len(table)
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, n))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    client, level, shares = np.unravel_index(cell, table.shape)
    own = np.arange(n) == client[:, None]
    # A random set of the others gives shares: these are joined and last; nobody else is both.
    order = np.where(own, np.int64(2) ** 32, words[0])
    gives = _places(order) < shares[:, None]
    kept = 1.0 - q
    lasts = p * kept**4
    chances = np.asarray([q, kept * q, kept**2 * q, kept**3 * q, kept**4 * (1.0 - p)])
    bounds = np.cumsum(chances / max(1.0 - lasts, 1e-300))
    drawn = np.searchsorted(bounds[:4], _unit(words[1]).ravel(), side="right").reshape(own.shape)
    joined = (_unit(words[2]) < p) & (drawn < 4)
    levels = np.where(gives, 4, drawn)
    levels = np.where(own, level[:, None] + 2, levels)
    row = (gives | joined) & ~own
    return Planted(_nested(levels), np.zeros_like(row), client.astype(np.int32), row)


def _nested(level: np.ndarray) -> np.ndarray:
    """Return V0 to V4 as bool[B, 5, n] from the last step that each client lives through."""
    return level[:, None, :] >= np.arange(5)[None, :, None]


def _choose(log_weights: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return indices drawn in proportion to exp(log_weights)."""
    possible = np.flatnonzero(log_weights > -np.inf)
    total = log_sum(log_weights[possible])
    cumulative = np.cumsum(np.exp(log_weights[possible] - total))
    places = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return possible[np.minimum(places, len(possible) - 1)]


def _places(words: np.ndarray) -> np.ndarray:
    """Return each client's place in the order of its words."""
    places = np.empty(words.shape, np.int64)
    order = np.argsort(words, axis=1, kind="stable")
    np.put_along_axis(places, order, np.broadcast_to(np.arange(words.shape[1]), words.shape), 1)
    return places


def _unit(high: np.ndarray, low: np.ndarray | None = None) -> np.ndarray:
    """Return floats in [0, 1) from one word, or from two to the last bit of a float."""
    value = high.astype(np.float64)
    if low is None:
        return value * 2.0**-32
    return (value * 2.0**21 + (low >> np.uint32(11)).astype(np.float64)) * 2.0**-53


@functools.partial(jax.jit, static_argnames=("count", "n"))
def _draw(
    key: Key[Array, ""], first: UInt32[Array, ""], count: int, n: int
) -> tuple[UInt32[Array, "words count n"], UInt32[Array, "2 count"]]:
    """Return words of clients and of trials."""
    trials = first + jax.lax.iota(jnp.uint32, count)
    keys = jax.vmap(lambda trial: round_key(trial_key(key, trial), 0, Stream.STEPS))(trials)
    client = jnp.stack([client_words(keys, n, word).T for word in range(_WORDS)])
    scalar = jnp.stack([client_words(keys, 1, _WORDS + i)[0] for i in range(2)])
    return client, scalar
