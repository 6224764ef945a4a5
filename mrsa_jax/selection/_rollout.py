"""Roll participation histories out: a scan over rounds, vmapped over trials.

Schemes never look at the updates, so the whole history is known before any training.
Cohorts are taken as participation: nobody drops out inside a round here.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float32, Int32

from mrsa_jax._core.array_types import PRNGKey
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import cores_for, trials_at_once, within_memory
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import platform
from mrsa_jax._core.mesh import checked_mesh, spread, varying_like
from mrsa_jax._core.programs import LITTLE, one_program, quick_for_little
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.selector import Selector, check_selector
from mrsa_jax._core.streams import (
    Seed,
    Stream,
    as_key,
    fold,
    round_key,
    trial_key,
)
from mrsa_jax._core.threads import in_context
from mrsa_jax._core.traced import is_traced
from mrsa_jax.availability import Availability
from mrsa_jax.selection._by_kernel import (
    history_by_kernel,
    runs_kernel,
    statistics_by_kernel,
)
from mrsa_jax.selection._by_loops import Rollout, history_by_loops, runs_loops
from mrsa_jax.selection._metrics import Running
from mrsa_watch._base.errors import check_integer, check_size, require
from mrsa_watch._base.html import brief, telling
from mrsa_watch._base.values import by_value

_BEFORE_ROUNDS = 2**32 - 1  # the round index that stands for "before the first round"


@by_value
class RolloutMetrics(NamedTuple):
    """Statistics of many rollouts, gathered without keeping their histories.

    Attributes:
        fairness_gap: float32[B, J], F after each round.
        aggregation_cardinality: float32[B, J], C after each round.
        skipped: bool[B, J], rounds in which no client was summed.
        counts: int32[B, N], rounds in whose sum each client was, over all J.
    """

    fairness_gap: Float32[Array, "*trials rounds"]
    aggregation_cardinality: Float32[Array, "*trials rounds"]
    skipped: Bool[Array, "*trials rounds"]
    counts: Int32[Array, "*trials clients"]

    def __repr__(self) -> str:
        """Describe the arrays."""
        return brief(self)

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return telling(self)


def rollout(
    seed: Seed,
    selector: Selector,
    availability: Availability,
    num_rounds: int,
) -> Bool[Array, "rounds clients"]:
    """Return participation in each round of one trial.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks, e.g. `batch_partitioning(120, 12, 3)`.
        availability: Who is online, e.g. `mrsa_jax.availability.independent(0.1)`.
        num_rounds: J >= 1.

    Returns:
        bool[J, N]; a skipped round is a row of zeros. Rates, T, K, and the seed are
        data: new values compile nothing new.

    Raises:
        ConfigurationError: If J is not a positive integer, the availability model is
            for another number of clients, or the seed is neither an integer nor a key.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.uniform(10, 4)
        >>> online = mj.availability.independent(0.2)
        >>> history = mj.selection.rollout(3, selector, online, num_rounds=7)
        >>> bool(
        ...     (
        ...         history
        ...         == mj.selection.rollout_trials(
        ...             3, selector, online, 7, num_trials=2
        ...         )[0]
        ...     ).all()
        ... )
        True
    """
    job = checked(seed, selector, availability, num_rounds, 1)
    if runs_loops(job.key, *job.schemes):
        return on_device(history_by_loops(job)[0])
    return _roll(trial_key(job.key, 0), *job.schemes, job.num_rounds)


def rollout_trials(
    seed: Seed,
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    *,
    mesh: Mesh | None = None,
    first: int = 0,
) -> Bool[Array, "trials rounds clients"]:
    """Return participation in each round of many independent trials.

    Trials run in chunks that stay in cache, or fill an accelerator: one chunk and its
    result take at most about a quarter of its memory, in addition to the result of all.
    A trial's history does not depend on how many others run with it.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks.
        availability: Who is online.
        num_rounds: J >= 1.
        num_trials: B >= 1.
        mesh: Devices of one axis that the trials are dealt out to; the result is the
            same to the bit.
        first: Number of the first trial, so that more can be added to the existing
            ones.

    Returns:
        bool[B, J, N]; row 0 equals `rollout` of the same seed.

    Raises:
        ConfigurationError: As `rollout`, if B is not a positive integer, if `first` is
            no number from 0 to 2^31 - B, if the mesh has more than one axis, and if the
            device's memory does not hold the result.

    Examples:
        >>> import mrsa_jax as mj
        >>> online = mj.availability.independent(0.5)
        >>> mj.selection.rollout_trials(
        ...     0, mj.selection.partition(4, 2), online, 5, num_trials=3
        ... ).shape
        (3, 5, 4)
    """
    job = checked(seed, selector, availability, num_rounds, num_trials, first)
    if mesh is None and runs_loops(job.key, *job.schemes):
        return on_device(history_by_loops(job))
    return _in_chunks(_roll_chunk, job, job.num_clients, checked_mesh(mesh))


def rollout_metrics(
    seed: Seed,
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    *,
    mesh: Mesh | None = None,
) -> RolloutMetrics:
    """Return F and C over rounds of many trials without keeping who took part.

    For studies whose histories would not fit: memory is O(N + J) a trial. Trials are
    those of `rollout_trials` with the same seed.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks.
        availability: Who is online.
        num_rounds: J >= 1.
        num_trials: B >= 1.
        mesh: As for `rollout_trials`.

    Returns:
        The statistics, axes [B, J] and [B, N].

    Raises:
        ConfigurationError: As `rollout_trials`.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector, online = (
        ...     mj.selection.weighted(6, 2),
        ...     mj.availability.independent(0.3),
        ... )
        >>> streamed = mj.selection.rollout_metrics(
        ...     5, selector, online, 9, num_trials=2
        ... )
        >>> kept = mj.selection.fairness_gap(
        ...     mj.selection.rollout_trials(5, selector, online, 9, num_trials=2)
        ... )
        >>> bool((streamed.fairness_gap == kept).all())
        True
    """
    job = checked(seed, selector, availability, num_rounds, num_trials)
    return _in_chunks(_metrics_chunk, job, 9, checked_mesh(mesh))


def checked(
    seed: Seed,
    selector: Any,
    availability: Any,
    num_rounds: Any,
    num_trials: Any,
    first: Any = 0,
) -> Rollout:
    """Return a rollout of these arguments, or raise."""
    rounds = check_size(num_rounds, "num_rounds")
    check_selector(selector)
    require(
        isinstance(availability, Availability),
        "availability",
        "must have `for_clients`, `init` and `sample`",
        availability,
    )
    online = availability.for_clients(selector.num_clients)
    schemes = kept_apart(selector), kept_apart(online)
    trials = check_size(num_trials, "num_trials")
    start = check_integer(first, "first", 0, 2**31 - trials)
    return Rollout(as_key(seed), schemes, rounds, trials, start)


def _in_chunks(
    run: Callable[..., Any],
    job: Rollout,
    row_bytes: int,
    mesh: Mesh | None = None,
) -> Any:
    """Run B trials in equal chunks (one compile) on all cores, and join the results.

    If an accelerator's memory does not hold a chunk, all is done again in chunks of
    half of it.

    `row_bytes` is what a trial's round adds to the result. With a mesh each device runs
    a chunk.
    """
    key, schemes, num_rounds, num_trials, first = job
    num_clients = job.num_clients
    # what is compiled in less time runs more slowly: all chunks together decide
    if num_trials * num_rounds * num_clients > LITTLE:
        run = run.in_full  # type: ignore[attr-defined]
    workers = _workers((key, schemes))
    shares = 1
    if mesh is not None:
        workers = 1
        shares = mesh.size
        run = functools.partial(_over_mesh, run, mesh)
    elif workers > 1:
        shares = cores_for("selection", num_trials)
    limit = trials_at_once(num_clients, num_rounds, row_bytes)
    chunk = min(limit, -(-num_trials // shares))

    def in_chunks_of(chunk: int) -> Any:
        size = chunk if mesh is None else chunk * mesh.size

        def part(start: int) -> Any:
            # the last chunk is filled up with trials that are dropped below
            trials = on_device(np.uint32(start) + np.arange(size, dtype=np.uint32))
            return run(key, trials, *schemes, num_rounds)

        starts = range(first, first + num_trials, size)
        parts = _side_by_side(part, starts, workers)
        if len(parts) == 1 and size == num_trials:
            return parts[0]
        return _concatenated(parts, num_trials)

    if is_traced(key, schemes):
        return in_chunks_of(chunk)
    what = (
        f"{num_trials:,} trials of {num_rounds:,} rounds with {num_clients:,} clients"
    )
    return within_memory(
        lambda chunk: jax.block_until_ready(in_chunks_of(chunk)),
        chunk,
        "num_trials",
        what,
    )


@functools.partial(one_program, static_argnums=1)
def _concatenated(parts: list[Any], count: int) -> Any:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)


@functools.partial(jax.jit, static_argnames=("run", "mesh", "num_rounds"))
def _over_mesh(
    run: Callable[..., Any],
    mesh: Mesh,
    key: PRNGKey,
    trials: Array,
    selector: Any,
    availability: Any,
    num_rounds: int,
) -> Any:
    """Run a chunk of trials, each device its share."""

    def share(key: Array, schemes: Any, trials: Array) -> Any:
        return run(key, trials, *schemes, num_rounds)

    return spread(share, mesh, 2, 1)(key, (selector, availability), trials)


def _side_by_side(
    run: Callable[[int], Any],
    starts: Iterable[int],
    workers: int,
) -> list[Any]:
    """Call a function for each start, several at once under the caller's settings."""
    if workers == 1:
        return list(map(run, starts))
    # threads of a pool do not inherit a context such as the default device
    call = in_context(lambda start: jax.block_until_ready(run(start)))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(call, starts))


def _workers(inputs: Any) -> int:
    """Count the chunks to run at once: a program this small keeps one core busy.

    One under a transformation, and on accelerators, which parallelise within a chunk.
    """
    return 1 if is_traced(inputs) or platform() != "cpu" else num_cores()


def _start(
    key: Array,
    selector: Selector,
    availability: Availability,
) -> tuple[Any, Any]:
    """Return the states before the first round, trials (the key's axes) innermost."""

    def of_trials(leaf: Array) -> Array:
        column = leaf.reshape(leaf.shape + (1,) * key.ndim)
        return jnp.broadcast_to(column, leaf.shape + key.shape)

    # every trial begins with the same state of the selector
    chosen = jax.tree.map(of_trials, selector.init())

    def init(trial: Array) -> Any:
        before = fold(trial, jnp.uint32(_BEFORE_ROUNDS), int(Stream.AVAILABILITY))
        return availability.init(before)

    states = chosen, _over_trials(init, key.ndim)(key)
    return varying_like(states, key, selector, availability)


def _over_trials(function: Any, ndim: int) -> Any:
    """Map a function of one trial over trailing trial axes."""
    for _ in range(ndim):
        function = jax.vmap(function, in_axes=-1, out_axes=-1)
    return function


def _play(
    key: Array,
    selector: Any,
    availability: Any,
    states: Any,
    j: Array,
) -> tuple[Any, Array]:
    """Play round j; with an array of keys, of all their trials, which are innermost."""
    chosen_state, online_state = states

    def stream(name: Stream) -> Array:
        return _over_trials(lambda trial: round_key(trial, j, name), key.ndim)(key)

    sample = _method(availability, "sample", key.ndim)
    available, online_state = sample(stream(Stream.AVAILABILITY), online_state)
    select = _method(selector, "select", key.ndim)
    cohort, chosen_state = select(stream(Stream.SELECTION), chosen_state, available)
    return (chosen_state, online_state), cohort


def _method(scheme: Any, name: str, ndim: int) -> Any:
    """Return a method over trailing trial axes.

    The scheme's own if it takes them, else mapped.
    """
    method = getattr(scheme, name)
    if getattr(scheme, "takes_trials", False):
        return method
    return _over_trials(method, ndim)


def _history(key: Array, selector: Any, availability: Any, num_rounds: int) -> Array:
    """Return bool[*trials, J, N]."""
    start = _start(key, selector, availability)
    if runs_kernel(key, selector, availability):
        return history_by_kernel(key, (selector, availability), start, num_rounds)
    step = functools.partial(_play, key, selector, availability)
    rows = lax.scan(step, start, jnp.arange(num_rounds, dtype=jnp.uint32))[1]
    return jnp.moveaxis(rows, (0, 1), (-2, -1))


@quick_for_little(
    lambda key, selector, online, rounds: selector.num_clients * rounds,
    static_argnames=("num_rounds",),
)
def _roll(
    key: PRNGKey,
    selector: Any,
    availability: Any,
    num_rounds: int,
) -> Bool[Array, "rounds clients"]:
    return _history(key, selector, availability, num_rounds)


def _entries(key: Array, trials: Array, selector: Any, online: Any, *rest: Any) -> int:
    """Count the entries of a chunk's histories."""
    return trials.size * selector.num_clients * rest[-1]


@quick_for_little(_entries, static_argnames=("num_rounds",))
def _roll_chunk(
    key: PRNGKey,
    trials: Array,
    selector: Any,
    availability: Any,
    num_rounds: int,
) -> Bool[Array, "trials rounds clients"]:
    keys = jax.vmap(lambda trial: trial_key(key, trial))(trials)
    return _history(keys, selector, availability, num_rounds)


@quick_for_little(_entries, static_argnames=("num_rounds",))
def _metrics_chunk(
    key: PRNGKey,
    trials: Array,
    selector: Any,
    availability: Any,
    num_rounds: int,
) -> RolloutMetrics:
    keys = jax.vmap(lambda trial: trial_key(key, trial))(trials)
    start = _start(keys, selector, availability)
    if runs_kernel(keys, selector, availability):
        schemes = selector, availability
        running, sizes, spread = statistics_by_kernel(keys, schemes, start, num_rounds)
        gaps = spread.astype(jnp.float32) / running.rounds.astype(jnp.float32)
        return RolloutMetrics(gaps, running.cardinality(), sizes == 0, running.counts.T)

    def step(carry: Any, j: Array) -> tuple[Any, Any]:
        states, running = carry
        states, cohort = _play(keys, selector, availability, states, j)
        running = running.add(cohort)
        row = (running.fairness_gap(), running.cardinality(), ~jnp.any(cohort, axis=0))
        return (states, running), row

    running = varying_like(Running.start((selector.num_clients, *keys.shape)), start)
    rounds = jnp.arange(num_rounds, dtype=jnp.uint32)
    (_, running), (gaps, sizes, skipped) = lax.scan(step, (start, running), rounds)
    return RolloutMetrics(gaps.T, sizes.T, skipped.T, running.counts.T)
