"""Draw rounds of secure aggregation as sets and judge them by Theorems 1 and 2, many at once.

On the CPU the Erdős–Rényi and the complete graph run in compiled loops (`_loops`);
everything else, and every other device, runs as array operations, judged by a kernel on
an NVIDIA GPU. All give the same rounds. Paper: CCESA (Choi, Sohn, Han, Moon), Sections
4.2 and 4.3.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32, Key, UInt8, UInt32

from mrsa_jax._core.arrays import on_device, spread
from mrsa_jax._core.device import at_once, chosen_form, over_ranges
from mrsa_jax._core.streams import (
    ALWAYS,
    Stream,
    client_words,
    key_words,
    round_key,
    trial_key,
)
from mrsa_jax.availability import IndependentSteps, StepDropout, independent_steps
from mrsa_jax.graphs import GraphModel
from mrsa_jax.graphs.models import Complete, ErdosRenyi
from mrsa_jax.secagg.failures._theory import (
    _log_arrivals,
    log_factorials,
    log_pmf,
    log_sum,
)
from mrsa_jax.secagg.failures._verdicts import (
    MOST_IN_REGISTERS,
    planted_verdict,
    verdict,
    verdicts_in_registers,
)

# ---- Rounds drawn under the condition that one failure is in them, for rates too small
# to count.
#
# Paper: CCESA, Theorems 1, 2, 5 and 6. The union bounds behind Theorems 5 and 6 are
# sums over
# possible failures; here one of them is chosen in proportion to its exact chance, a
# round is drawn
# given it, and the round counts when the chosen failure is the first one in it (Karp
# and Luby).
# Everything here is NumPy in float64 on counter-based words, the same on every device.

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
    """Return log E[cuts of V3 into k and m - k without an edge] as [m, k], 1 <= k <= m/2.

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
    key: Array, first: int, count: int, table: np.ndarray, q: float
) -> Planted:
    """Return rounds each with a cut of V3 without edges, chosen by its chance in `table`."""
    client, scalar = map(np.array, _draw(key, jnp.uint32(first), count, len(table) - 1))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    summed, size = np.divmod(cell, table.shape[1])
    place = _places(client[0])
    arrived = place < summed[:, None]
    kept = 1.0 - q
    # Of those who arrive, who also answers; of the others, the step at which they were
    # lost.
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

    Level 0, 1, 2: the client is in V2 but not V3, in V3 but not V4, in V4. Shares are
    those of its neighbours in V4, at most t - 1, or t - 2 where its own share is there.
    """
    kept = 1.0 - q
    law = log_pmf(n - 1, p * kept**4)
    with np.errstate(divide="ignore"):
        levels = np.log(np.asarray([kept**2 * q, kept**3 * q, kept**4]))
    shares = np.arange(n)
    most = thresholds.astype(np.int64)[:, None] - np.asarray([1, 1, 2])
    return np.where(shares <= most[:, :, None], levels[:, None] + law, -np.inf)


def plant_lost_secrets(
    key: Array, first: int, count: int, table: np.ndarray, p: float, q: float
) -> Planted:
    """Return rounds each with a client of too few shares, chosen by its chance in `table`."""
    n = len(table)
    words, scalar = map(np.array, _draw(key, jnp.uint32(first), count, n))
    cell = _choose(table.ravel(), _unit(scalar[0], scalar[1]))
    client, level, shares = np.unravel_index(cell, table.shape)
    own = np.arange(n) == client[:, None]
    # A random set of the others gives shares: these are joined and last; nobody else is
    # both.
    gives = _places(np.where(own, np.int64(2) ** 32, words[0])) < shares[:, None]
    kept = 1.0 - q
    lasts = p * kept**4
    chances = np.asarray([q, kept * q, kept**2 * q, kept**3 * q, kept**4 * (1.0 - p)])
    bounds = np.cumsum(chances / max(1.0 - lasts, 1e-300))
    drawn = np.searchsorted(bounds[:4], _unit(words[1]).ravel(), side="right").reshape(
        own.shape
    )
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
    np.put_along_axis(
        places, order, np.broadcast_to(np.arange(words.shape[1]), words.shape), 1
    )
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
    keys = jax.vmap(lambda trial: round_key(trial_key(key, trial), 0, Stream.STEPS))(
        trials
    )
    client = jnp.stack([client_words(keys, n, word).T for word in range(_WORDS)])
    return client, jnp.stack([client_words(keys, 1, _WORDS + i)[0] for i in range(2)])


# ---- Draw rounds of secure aggregation as sets and judge them by Theorems 1 and 2,
# many at once.


def default_chunk(num_clients: int, compiled: bool) -> int:
    """Return how many rounds to run at once: megabytes of graphs on the CPU.

    On an accelerator as many as fill it; drawing and judging them takes about three
    times the bytes of their adjacency matrices.
    """
    kind, least_bytes = ("judged", 2**12) if compiled else ("graphs", 2**10)
    return at_once(kind, max(num_clients**2, least_bytes))


def is_compiled(graph: GraphModel, steps: StepDropout) -> bool:
    """Return whether rounds of these models run in compiled loops."""
    kinds = isinstance(graph, ErdosRenyi | Complete) and isinstance(
        steps, IndependentSteps
    )
    return kinds and _runs_loops()


def _runs_loops() -> bool:
    return chosen_form(("loops", "xla")) == "loops"


def edge_limit(graph: ErdosRenyi | Complete) -> np.uint32:
    """Return the threshold below which the word of a pair makes an edge."""
    return np.uint32(ALWAYS if isinstance(graph, Complete) else int(graph.threshold))


def judge_trials(
    graph: GraphModel,
    steps: StepDropout,
    thresholds: np.ndarray,
    key: Array,
    first: int,
    count: int,
    chunk: int,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes and |V3| of trials first, ..., first + count - 1, of a chunk at most.

    With a mesh the chunk is dealt out to its devices, of which it is a multiple.
    """
    start, limits = jnp.uint32(first), on_device(thresholds)
    if mesh is None and is_compiled(graph, steps):
        return _judge_loops(
            graph, steps, thresholds, _loop_keys(key, start, chunk), count
        )
    if mesh is None:
        judged = judge_arrays(*draw_arrays(graph, steps, key, start, chunk), limits)
    else:
        trials = np.uint32(first) + np.arange(chunk, dtype=np.uint32)
        drawn = _draw_over_mesh(graph, steps, key, trials, mesh)
        judged = _judge_drawn_over_mesh(limits, *drawn, mesh)
    verdicts, sums = (np.asarray(each)[:count] for each in judged)
    return verdicts, sums


def round_keys(key: Key[Array, ""], trial: Array) -> tuple[Array, Array]:
    """Return the keys of a trial's graph and of its losses.

    Those of round 0 of the trial.
    """
    own = trial_key(key, trial)
    return round_key(own, 0, Stream.ASSIGNMENT), round_key(own, 0, Stream.STEPS)


@functools.partial(jax.jit, static_argnames="chunk")
def _loop_keys(
    key: Key[Array, ""], first: UInt32[Array, ""], chunk: int
) -> tuple[UInt32[Array, "trials 2"], UInt32[Array, "trials 2"]]:
    keys = jax.vmap(lambda trial: round_keys(key, trial))(
        first + jax.lax.iota(jnp.uint32, chunk)
    )
    graph, steps = (jnp.stack(key_words(each), axis=-1) for each in keys)
    return graph, steps


# Drawing and judging are separate executables: in one, XLA draws a graph's words again
# for each of its uses, in loops without vectors (measured: five times slower).
@functools.partial(jax.jit, static_argnames="chunk")
def draw_arrays(
    graph: GraphModel,
    steps: StepDropout,
    key: Key[Array, ""],
    first: UInt32[Array, ""],
    chunk: int,
) -> tuple[Bool[Array, "trials n n"], Bool[Array, "trials 5 n"]]:
    return _drawn(graph, steps, key, first + jax.lax.iota(jnp.uint32, chunk))


def _drawn(
    graph: GraphModel, steps: StepDropout, key: Array, trials: Array
) -> tuple[Array, Array]:
    everybody = jnp.ones(graph.num_clients, jnp.bool_)

    def one(trial: Array) -> tuple[Array, Array]:
        graph_key, step_key = round_keys(key, trial)
        return graph.sample(graph_key), steps.sample(step_key, everybody)

    return jax.vmap(one)(trials)


@functools.partial(jax.jit, static_argnames="mesh")
def _draw_over_mesh(
    graph: GraphModel, steps: StepDropout, key: Array, trials: Array, mesh: Mesh
) -> Any:
    return spread(_drawn, mesh, 3, 1)(graph, steps, key, trials)


@functools.partial(jax.jit, static_argnames="mesh")
def _judge_drawn_over_mesh(
    thresholds: Array, edges: Array, alive: Array, mesh: Mesh
) -> Any:
    def share(thresholds: Array, edges: Array, alive: Array) -> Any:
        return judge_arrays(edges, alive, thresholds)

    return spread(share, mesh, 1, 2)(thresholds, edges, alive)


@jax.jit
def judge_arrays(
    adjacency: Bool[Array, "trials n n"],
    survivors: Bool[Array, "trials 5 n"],
    thresholds: Int32[Array, " n"],
) -> tuple[UInt8[Array, " trials"], Int32[Array, " trials"]]:
    # `_loops` judges the same rounds one after the other on a CPU, `verdict` here is
    # the rule itself
    fits = adjacency.shape[-1] <= MOST_IN_REGISTERS
    if fits and chosen_form(("xla", "pallas")) == "pallas":
        verdicts = verdicts_in_registers(adjacency, survivors, thresholds)
    else:
        verdicts = jax.vmap(verdict, (0, 0, None))(adjacency, survivors, thresholds)
    return verdicts, jnp.sum(survivors[:, 3], axis=1, dtype=jnp.int32)


def _judge_loops(
    graph: Any,
    steps: Any,
    thresholds: np.ndarray,
    keys: tuple[Array, Array],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    from mrsa_jax.secagg.failures import _loops

    graph_keys, step_keys = (np.asarray(own)[:count] for own in keys)
    limit, rates = edge_limit(graph), np.asarray(steps.thresholds).reshape(4, -1)
    rates = np.ascontiguousarray(np.broadcast_to(rates, (4, graph.num_clients)))
    verdicts, sums = np.zeros(count, np.uint8), np.zeros(count, np.int32)

    def part(rows: slice) -> None:
        drawn = (graph_keys[rows], step_keys[rows])
        _loops.judge_rounds(
            *drawn, limit, rates, thresholds, verdicts[rows], sums[rows]
        )

    over_ranges("judged", part, count)
    return verdicts, sums


def judge_planted(
    graph: ErdosRenyi,
    rounds: Planted,
    thresholds: np.ndarray,
    key: Array,
    first: int,
    count: int,
) -> np.ndarray:
    """Return the bytes of the first `count` rounds, of which all but the free edges is given."""
    if not _runs_loops():
        everybody_stays = independent_steps(0.0)
        drawn, _ = draw_arrays(
            graph, everybody_stays, key, jnp.uint32(first), len(rounds.client)
        )
        return np.asarray(_judge_planted_arrays(drawn, rounds, thresholds))[:count]
    from mrsa_jax.secagg.failures import _loops

    graph_keys = np.asarray(_loop_keys(key, jnp.uint32(first), len(rounds.client))[0])
    alive, cuts, given = (
        _packed(each) for each in (rounds.survivors, rounds.cut, rounds.row)
    )
    verdicts, limit = np.zeros(count, np.uint8), edge_limit(graph)

    def part(rows: slice) -> None:
        planted = (alive[rows], cuts[rows], rounds.client[rows], given[rows])
        _loops.judge_planted(
            graph_keys[rows], limit, *planted, thresholds, verdicts[rows]
        )

    over_ranges("judged", part, count)
    return verdicts


@jax.jit
def _judge_planted_arrays(
    adjacency: Bool[Array, "trials n n"], rounds: Any, thresholds: Int32[Array, " n"]
) -> UInt8[Array, " trials"]:
    index = jax.lax.iota(jnp.int32, thresholds.shape[0])

    def one(edges: Array, planted: Any) -> Array:
        alive, cut, client, row = planted
        summed, own = alive[3], index == client
        apart = (cut[:, None] != cut[None, :]) & summed[:, None] & summed[None, :]
        edges = edges & ~apart & ~own[:, None] & ~own[None, :]
        edges = edges | (own[:, None] & row[None, :]) | (row[:, None] & own[None, :])
        return planted_verdict(edges, alive, thresholds, cut, client)

    return jax.vmap(one)(adjacency, rounds)


def _packed(members: np.ndarray) -> np.ndarray:
    """Return sets of clients as 64-bit words, client i at bit i % 64 of word i // 64."""
    padding = [(0, 0)] * (members.ndim - 1) + [(0, -members.shape[-1] % 64)]
    packed = np.packbits(np.pad(members, padding), axis=-1, bitorder="little")
    return packed.view("<u8").astype(np.uint64)
