"""Draw rounds of secure aggregation as sets and judge them by Theorems 1 and 2, many at once.

On the CPU the Erdős–Rényi and the complete graph run in compiled loops (`_loops`);
everything else, and every other device, runs as array operations, judged by a kernel on an NVIDIA
GPU. All give the same rounds.
Paper: CCESA (Choi, Sohn, Han, Moon), Sections 4.2 and 4.3.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32, Key, UInt8, UInt32

from mrsa_jax._arrays import on_device
from mrsa_jax._chance import ALWAYS
from mrsa_jax._device import at_once, chosen_form, over_ranges
from mrsa_jax._mesh import spread
from mrsa_jax._streams import Stream, key_words, round_key, trial_key
from mrsa_jax.availability import IndependentSteps, StepDropout, independent_steps
from mrsa_jax.graphs import Complete, ErdosRenyi, GraphModel
from mrsa_jax.secagg.failures._planting import Planted
from mrsa_jax.secagg.failures._verdicts import (
    MOST_IN_REGISTERS,
    planted_verdict,
    verdict,
    verdicts_in_registers,
)


def default_chunk(num_clients: int, compiled: bool) -> int:
    """Return how many rounds to run at once: megabytes of graphs on the CPU.

    On an accelerator as many as fill it; drawing and judging them takes about three times the
    bytes of their adjacency matrices.
    """
    kind, least_bytes = ("judged", 2**12) if compiled else ("graphs", 2**10)
    return at_once(kind, max(num_clients**2, least_bytes))


def is_compiled(graph: GraphModel, steps: StepDropout) -> bool:
    """Return whether rounds of these models run in compiled loops."""
    kinds = isinstance(graph, ErdosRenyi | Complete) and isinstance(steps, IndependentSteps)
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
        return _judge_loops(graph, steps, thresholds, _loop_keys(key, start, chunk), count)
    if mesh is None:
        judged = judge_arrays(*draw_arrays(graph, steps, key, start, chunk), limits)
    else:
        trials = np.uint32(first) + np.arange(chunk, dtype=np.uint32)
        drawn = _draw_over_mesh(graph, steps, key, trials, mesh)
        judged = _judge_drawn_over_mesh(limits, *drawn, mesh)
    verdicts, sums = (np.asarray(each)[:count] for each in judged)
    return verdicts, sums


def round_keys(key: Key[Array, ""], trial: Array) -> tuple[Array, Array]:
    """Return the keys of a trial's graph and of its losses: those of round 0 of the trial."""
    own = trial_key(key, trial)
    return round_key(own, 0, Stream.ASSIGNMENT), round_key(own, 0, Stream.STEPS)


@functools.partial(jax.jit, static_argnames="chunk")
def _loop_keys(
    key: Key[Array, ""], first: UInt32[Array, ""], chunk: int
) -> tuple[UInt32[Array, "trials 2"], UInt32[Array, "trials 2"]]:
    trials = first + jax.lax.iota(jnp.uint32, chunk)
    keys = jax.vmap(lambda trial: round_keys(key, trial))(trials)
    graph, steps = (jnp.stack(key_words(each), axis=-1) for each in keys)
    return graph, steps


# Drawing and judging are executables of their own: in one, XLA draws a graph's words again for
# each of its uses, in loops without vectors (measured: five times slower).
@functools.partial(jax.jit, static_argnames="chunk")
def draw_arrays(
    graph: GraphModel,
    steps: StepDropout,
    key: Key[Array, ""],
    first: UInt32[Array, ""],
    chunk: int,
) -> tuple[Bool[Array, "trials n n"], Bool[Array, "trials 5 n"]]:
    return _drawn(graph, steps, key, first + jax.lax.iota(jnp.uint32, chunk))


def _drawn(graph: GraphModel, steps: StepDropout, key: Array, trials: Array) -> tuple[Array, Array]:
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
def _judge_drawn_over_mesh(thresholds: Array, edges: Array, alive: Array, mesh: Mesh) -> Any:
    def share(thresholds: Array, edges: Array, alive: Array) -> Any:
        return judge_arrays(edges, alive, thresholds)

    return spread(share, mesh, 1, 2)(thresholds, edges, alive)


@jax.jit
def judge_arrays(
    adjacency: Bool[Array, "trials n n"],
    survivors: Bool[Array, "trials 5 n"],
    thresholds: Int32[Array, " n"],
) -> tuple[UInt8[Array, " trials"], Int32[Array, " trials"]]:
    fits = adjacency.shape[-1] <= MOST_IN_REGISTERS
    if fits and chosen_form(("xla", "pallas")) == "pallas":
        verdicts = verdicts_in_registers(adjacency, survivors, thresholds)
    else:
        verdicts = jax.vmap(verdict, (0, 0, None))(adjacency, survivors, thresholds)
    return verdicts, jnp.sum(survivors[:, 3], axis=1, dtype=jnp.int32)


def _judge_loops(
    graph: Any, steps: Any, thresholds: np.ndarray, keys: tuple[Array, Array], count: int
) -> tuple[np.ndarray, np.ndarray]:
    from mrsa_jax.secagg.failures import _loops

    graph_keys, step_keys = (np.asarray(own)[:count] for own in keys)
    limit, rates = edge_limit(graph), np.asarray(steps.thresholds).reshape(4, -1)
    rates = np.ascontiguousarray(np.broadcast_to(rates, (4, graph.num_clients)))
    verdicts, sums = np.zeros(count, np.uint8), np.zeros(count, np.int32)

    def part(rows: slice) -> None:
        drawn = (graph_keys[rows], step_keys[rows])
        _loops.judge_rounds(*drawn, limit, rates, thresholds, verdicts[rows], sums[rows])

    over_ranges("judged", part, count)
    return verdicts, sums


def judge_planted(
    graph: ErdosRenyi, rounds: Planted, thresholds: np.ndarray, key: Array, first: int, count: int
) -> np.ndarray:
    """Return the bytes of the first `count` rounds, of which all but the free edges is given."""
    if not _runs_loops():
        everybody_stays = independent_steps(0.0)
        drawn, _ = draw_arrays(graph, everybody_stays, key, jnp.uint32(first), len(rounds.client))
        arrays = (on_device(each) for each in (*rounds, thresholds))
        return np.asarray(_judge_planted_arrays(drawn, *arrays))[:count]
    from mrsa_jax.secagg.failures import _loops

    graph_keys = np.asarray(_loop_keys(key, jnp.uint32(first), len(rounds.client))[0])
    alive, cuts, given = (_packed(each) for each in (rounds.survivors, rounds.cut, rounds.row))
    verdicts, limit = np.zeros(count, np.uint8), edge_limit(graph)

    def part(rows: slice) -> None:
        planted = (alive[rows], cuts[rows], rounds.client[rows], given[rows])
        _loops.judge_planted(graph_keys[rows], limit, *planted, thresholds, verdicts[rows])

    over_ranges("judged", part, count)
    return verdicts


@jax.jit
def _judge_planted_arrays(
    adjacency: Bool[Array, "trials n n"],
    survivors: Bool[Array, "trials 5 n"],
    cuts: Bool[Array, "trials n"],
    clients: Int32[Array, " trials"],
    given: Bool[Array, "trials n"],
    thresholds: Int32[Array, " n"],
) -> UInt8[Array, " trials"]:
    index = jax.lax.iota(jnp.int32, thresholds.shape[0])

    def one(edges: Array, alive: Array, cut: Array, client: Array, row: Array) -> Array:
        summed, own = alive[3], index == client
        apart = (cut[:, None] != cut[None, :]) & summed[:, None] & summed[None, :]
        edges = edges & ~apart & ~own[:, None] & ~own[None, :]
        edges = edges | (own[:, None] & row[None, :]) | (row[:, None] & own[None, :])
        return planted_verdict(edges, alive, thresholds, cut, client)

    return jax.vmap(one)(adjacency, survivors, cuts, clients, given)


def _packed(members: np.ndarray) -> np.ndarray:
    """Return sets of clients as 64-bit words, client i at bit i % 64 of word i // 64."""
    padding = [(0, 0)] * (members.ndim - 1) + [(0, -members.shape[-1] % 64)]
    packed = np.packbits(np.pad(members, padding), axis=-1, bitorder="little")
    return packed.view("<u8").astype(np.uint64)
