"""Draw rounds of secure aggregation as sets and judge them by Theorems 1 and 2.

Many rounds are drawn and judged at once. Paper: CCESA (Choi, Sohn, Han, Moon), Sections
4.2 and 4.3.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32, Key, UInt8, UInt32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.mesh import spread
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.streams import Stream, round_key, trial_key
from mrsa_jax.availability import StepDropout
from mrsa_jax.graphs import GraphModel
from mrsa_jax.secagg.failures._verdicts import verdict

_LEAST_BYTES = 2**10  # of a round, whose graph may be smaller than what else it holds


class Judged(NamedTuple):
    """Judged rounds.

    Attributes:
        bytes: uint8[trials], see `_verdicts`.
        num_summed: int32[trials], |V3|.
    """

    bytes: UInt8[Array | np.ndarray, " trials"]
    num_summed: Int32[Array | np.ndarray, " trials"]


class Drawn(NamedTuple):
    """Drawn rounds.

    Attributes:
        adjacency: bool[trials, n, n].
        survivors: bool[trials, 5, n], V0 to V4.
    """

    adjacency: Bool[Array, "trials n n"]
    survivors: Bool[Array, "trials 5 n"]


def default_chunk(num_clients: int) -> int:
    """Choose how many rounds run at once: megabytes of graphs on the CPU.

    On an accelerator as many as fill it; drawing and judging them takes about three
    times the bytes of their adjacency matrices.
    """
    return at_once("graphs", max(num_clients**2, _LEAST_BYTES))


def judge_trials(
    graph: GraphModel,
    steps: StepDropout,
    thresholds: np.ndarray | None,
    key: Array,
    first: int,
    count: int,
    chunk: int,
    mesh: Mesh | None = None,
) -> Judged:
    """Judge trials first, ..., first + count - 1, of a chunk at most.

    With a mesh the chunk is dealt out to its devices, of which it is a multiple. No
    thresholds are majorities of the neighbourhoods.
    """
    limits = None if thresholds is None else on_device(thresholds)
    graph, steps = kept_apart(graph), kept_apart(steps)
    if mesh is None:
        drawn = draw_arrays(graph, steps, key, jnp.uint32(first), chunk)
        judged = judge_arrays(*drawn, limits)
    else:
        trials = np.uint32(first) + np.arange(chunk, dtype=np.uint32)
        drawn = _draw_over_mesh(graph, steps, key, trials, mesh)
        judged = _judge_drawn_over_mesh(limits, *drawn, mesh)
    return Judged(*(np.asarray(part)[:count] for part in judged))


# Drawing and judging are separate executables: in one, XLA draws a graph's words again
# for each of its uses, in loops without vectors (measured: five times slower).
@functools.partial(jax.jit, static_argnames="chunk")
def draw_arrays(
    graph: GraphModel,
    steps: StepDropout,
    key: Key[Array, ""],
    first: UInt32[Array, ""],
    chunk: int,
) -> Drawn:
    """Draw a range of trials."""
    return _drawn(graph, steps, key, first + jax.lax.iota(jnp.uint32, chunk))


def _drawn(
    graph: GraphModel,
    steps: StepDropout,
    key: Array,
    trials: UInt32[Array, " trials"],
) -> Drawn:
    """Draw the graph and the losses of round 0 of each trial."""
    everybody = jnp.ones(graph.num_clients, jnp.bool_)

    def draw(trial: Array) -> Drawn:
        of_trial = trial_key(key, trial)
        adjacency = graph.sample(round_key(of_trial, 0, Stream.ASSIGNMENT))
        survivors = steps.sample(round_key(of_trial, 0, Stream.STEPS), everybody)
        return Drawn(adjacency, survivors)

    return jax.vmap(draw)(trials)


@functools.partial(jax.jit, static_argnames="mesh")
def _draw_over_mesh(
    graph: GraphModel,
    steps: StepDropout,
    key: Array,
    trials: Array,
    mesh: Mesh,
) -> Drawn:
    drawn: Drawn = spread(_drawn, mesh, 3, 1)(graph, steps, key, trials)
    return drawn


@functools.partial(jax.jit, static_argnames="mesh")
def _judge_drawn_over_mesh(
    thresholds: Array | None,
    adjacency: Array,
    survivors: Array,
    mesh: Mesh,
) -> Judged:
    def judge(thresholds: Array | None, adjacency: Array, survivors: Array) -> Judged:
        return judge_arrays(adjacency, survivors, thresholds)

    judged: Judged = spread(judge, mesh, 1, 2)(thresholds, adjacency, survivors)
    return judged


@jax.jit
def judge_arrays(
    adjacency: Bool[Array, "trials n n"],
    survivors: Bool[Array, "trials 5 n"],
    thresholds: Int32[Array, " n"] | None,
) -> Judged:
    """Judge drawn rounds; no thresholds are majorities of the neighbourhoods."""
    judged = jax.vmap(verdict, (0, 0, None))(adjacency, survivors, thresholds)
    return Judged(judged.byte, jnp.sum(survivors[:, 3], axis=1, dtype=jnp.int32))
