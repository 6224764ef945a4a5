"""A strongly convex problem with known constants, and federated averaging on it.

The ground on which Theorem 2's bound is checked against what selection really does to
training. Source: Multi-RoundSecAgg (AAAI version), Section 5.2, Assumptions 1 to 4, and
Appendix B, eq. (12) to (15), with the cases of (15) in the right order
(docs/errata.md).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.streams import (
    Stream,
    as_key,
    client_words,
    fold,
    round_key,
    trial_key,
)
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.federated._convergence import ConvexConstants
from mrsa_jax.selection import Selector, rollout_trials
from mrsa_watch._base.errors import check_integer, check_number, check_size, require

_MOST_SAMPLES = 2**16  # below which the modulus of a 32-bit word is almost uniform


@pytree
class QuadraticProblem:
    """Clients with quadratic losses on their own samples.

    Build a random one with `quadratic_problem`, or give your own arrays to `of`.
    L_i(x) = mean over samples c of client i of (x - c)' H_i (x - c) / 2, H_i diagonal;
    L(x) = mean of L_i(x). A stochastic gradient is that of one sample, H_i (x - c).

    Attributes:
        curvatures: float32[N, d], the diagonals of H_i.
        samples: float32[N, M, d].
    """

    curvatures: Array
    samples: Array

    @classmethod
    @needs_values
    def of(cls, curvatures: Any, samples: Any) -> QuadraticProblem:
        """Return the problem of your own arrays.

        Args:
            curvatures: [N, d], the diagonals of H_i, positive.
            samples: [N, M, d], from 1 to 2^16 samples per client.

        Raises:
            ConfigurationError: If shapes do not fit, or a value is not finite or a
                curvature not positive.

        Examples:
            >>> import mrsa_jax as mj
            >>> problem = mj.federated.QuadraticProblem.of([[1.0]], [[[0.0], [2.0]]])
            >>> problem.optimum.tolist(), problem.constants().gradient_variance
            ([1.0], 1.0)
        """
        h, c = (np.asarray(values, np.float32) for values in (curvatures, samples))
        rule = "must be finite numbers [clients, dim]"
        good = h.ndim == 2 and h.size > 0 and bool(np.isfinite(h).all())
        require(good, "curvatures", rule, f"shape {h.shape}")
        require(bool((h > 0).all()), "curvatures", "must be positive", float(h.min()))
        rule = "must be finite numbers [clients, samples, dim] that fit `curvatures`"
        good = c.ndim == 3 and 0 < c.shape[1] <= _MOST_SAMPLES
        good = good and (len(c), c.shape[-1]) == h.shape and bool(np.isfinite(c).all())
        require(good, "samples", rule, f"shape {c.shape}")
        return cls(on_device(h), on_device(c))

    @property
    def optimum(self) -> np.ndarray:
        """x*, the minimiser of L, float64[d]."""
        h, c = _as_float64(self.curvatures, self.samples)
        return (h * c.mean(axis=1)).sum(axis=0) / h.sum(axis=0)

    def loss(self, x: ArrayLike) -> float:
        """Return L(x) in float64."""
        h, c = _as_float64(self.curvatures, self.samples)
        point = np.asarray(x, np.float64)
        return float((h[:, None] * (point - c) ** 2).mean(axis=(0, 1)).sum() / 2.0)

    def gap(self, x: Float32[Array, " dim"]) -> Float32[Array, ""]:
        """Return L(x) - L*, from the distance to x*, so that nothing cancels.

        Traceable.
        """
        h = jnp.mean(self.curvatures, axis=0)
        weighted = jnp.sum(self.curvatures * jnp.mean(self.samples, axis=1), axis=0)
        distance = x - weighted / jnp.sum(self.curvatures, axis=0)
        return jnp.sum(h * distance * distance) / 2.0

    def constants(
        self, initial: ArrayLike | Sequence[float | int] | None = None
    ) -> ConvexConstants:
        """Return the constants of Theorem 2 for training from `initial` (default 0).

        All are exact except G: with step sizes up to 1/rho no coordinate leaves the
        range of the samples and the start, and G^2 is the largest mean squared gradient
        in that box.
        """
        h, c = _as_float64(self.curvatures, self.samples)
        start = _start(initial, c.shape[-1]).astype(np.float64)
        # steps up to 1/rho are averages of the model and a sample, which stay in this
        # box
        low = np.minimum(c.min(axis=(0, 1)), start)
        high = np.maximum(c.max(axis=(0, 1)), start)
        # a square is largest at an end of the box
        worst = np.maximum(
            ((low - c) ** 2).mean(axis=1), ((high - c) ** 2).mean(axis=1)
        )
        deviations = (c - c.mean(axis=1, keepdims=True)) ** 2
        minima = (h * deviations.mean(axis=1)).sum(axis=1) / 2.0
        return ConvexConstants(
            smoothness=float(h.max()),
            strong_convexity=float(h.min()),
            gradient_variance=float(
                (h**2 * deviations.mean(axis=1)).sum(axis=1).mean()
            ),
            gradient_bound=float(np.sqrt((h**2 * worst).sum(axis=1).max())),
            squared_distance=float(((start - self.optimum) ** 2).sum()),
            minimum=self.loss(self.optimum),
            client_minima=tuple(minima.tolist()),
        )


@needs_values
def quadratic_problem(
    seed: int | Key[Array, ""],
    num_clients: int,
    dim: int,
    *,
    num_samples: int = 8,
    curvature: tuple[float, float] = (1.0, 4.0),
    spread: float = 1.0,
    noise: float = 1.0,
    block_size: int = 1,
) -> QuadraticProblem:
    """Return a random strongly convex problem with known constants.

    Args:
        seed: Integer or key.
        num_clients: N >= 1.
        dim: d >= 1.
        num_samples: M >= 1 samples per client, at most 2^16.
        curvature: (least, largest) diagonal entry of H_i, 0 < least <= largest; uniform
            between.
        spread: Standard deviation of the clients' centres, >= 0: how unlike clients
            are.
        noise: Standard deviation of a client's samples about its centre, >= 0.
        block_size: Neighbours i // block_size share centre and curvature: the case in
            which drawing whole blocks costs most. Divides N.

    Returns:
        The problem.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> problem = mj.federated.quadratic_problem(0, num_clients=6, dim=2)
        >>> problem.loss(problem.optimum) == problem.constants().minimum
        True
    """
    check_size(num_clients, "num_clients")
    check_size(dim, "dim")
    check_integer(num_samples, "num_samples", 1, _MOST_SAMPLES)
    check_size(block_size, "block_size")
    rule = "must be a multiple of `block_size`"
    require(num_clients % block_size == 0, "num_clients", rule, num_clients, block_size)
    rule = "must be two numbers, 0 < least <= largest"
    is_pair = isinstance(curvature, tuple) and len(curvature) == 2
    require(is_pair and 0 < curvature[0] <= curvature[1], "curvature", rule, curvature)
    for name, scale in (("spread", spread), ("noise", noise)):
        check_number(scale, name, "must be 0 or more", 0.0)
    keys = jax.random.split(fold(as_key(seed), int(Stream.PARTITION)), 3)
    blocks = (num_clients // block_size, dim)
    least, most = map(np.float32, curvature)
    h = (
        np.asarray(jax.random.uniform(keys[0], blocks, jnp.float32)) * (most - least)
        + least
    )
    centres = np.asarray(jax.random.normal(keys[1], blocks, jnp.float32)) * np.float32(
        spread
    )
    drawn = np.asarray(
        jax.random.normal(keys[2], (num_clients, num_samples, dim), jnp.float32)
    )
    # clients of a block share a centre, but their samples differ
    samples = np.repeat(centres, block_size, axis=0)[:, None] + drawn * np.float32(
        noise
    )
    curvatures = np.repeat(np.clip(h, least, most), block_size, axis=0)
    return QuadraticProblem.of(curvatures, samples)


def simulate_convergence(
    seed: int | Key[Array, ""],
    problem: QuadraticProblem,
    selector: Selector,
    availability: Availability,
    num_rounds: int,
    num_trials: int,
    *,
    local_steps: int = 1,
    initial: ArrayLike | Sequence[float | int] | None = None,
) -> Float32[Array, "trials points"]:
    """Return L(x(t)) - L* of federated averaging after t = 0..J rounds of many trials.

    In a round every client of the cohort takes E gradient steps on samples drawn
    uniformly from its own, and their mean is the next model; a skipped round leaves it.
    Step sizes are Theorem 2's, 2 / (mu (gamma + j)) at executed step j, gamma = max(8
    rho/mu, E). The mean over trials estimates what
    `convergence_bound(..., form="corrected")` bounds.

    Args:
        seed: Integer or typed key; histories are those of `rollout_trials` with this
            seed.
        problem: E.g. `quadratic_problem`.
        selector: Whom the server asks.
        availability: Who is online.
        num_rounds: J >= 1.
        num_trials: B >= 1.
        local_steps: E >= 1.
        initial: x(0), [d]; zeros by default.

    Returns:
        float32[B, J + 1].

    Raises:
        ConfigurationError: As `selection.rollout_trials`; or if the problem has not as
            many clients as the selector, or `local_steps` or `initial` does not fit.

    Examples:
        >>> import mrsa_jax as mj
        >>> one_optimum = mj.federated.quadratic_problem(
        ...     0, 4, 2, noise=0.0, spread=0.0
        ... )
        >>> uniform = mj.selection.uniform(4, 2)
        >>> online = mj.availability.independent(0.5)
        >>> gaps = mj.federated.simulate_convergence(
        ...     0, one_optimum, uniform, online, 30, 3, initial=[1.0, -1.0]
        ... )
        >>> bool((gaps[:, 0] > 0).all() and (gaps[:, 1:] <= gaps[:, :-1]).all())
        True

    Cost: N d E a round and trial: all clients' steps are taken, the cohort's kept.
    """
    is_problem = isinstance(problem, QuadraticProblem)
    require(is_problem, "problem", "must be a QuadraticProblem", problem)
    clients = len(problem.curvatures)
    rule = "must have as many clients as the selector"
    require(selector.num_clients == clients, "problem", rule, clients)
    steps = check_integer(local_steps, "local_steps", 1)
    history = rollout_trials(seed, selector, availability, num_rounds, num_trials)
    start = on_device(_start(initial, problem.samples.shape[-1]))
    return _train_trials(as_key(seed), problem, history, start, steps)


class _Model(NamedTuple):
    x: Array  # float32[d]
    executed: Array  # int32[], local steps taken so far


@functools.partial(jax.jit, static_argnames=("steps",))
def _train_trials(
    key: Key[Array, ""],
    problem: QuadraticProblem,
    history: Bool[Array, "trials rounds clients"],
    start: Float32[Array, " dim"],
    steps: int,
) -> Float32[Array, "trials points"]:
    trials = jnp.arange(history.shape[0], dtype=jnp.uint32)

    def one(trial: Array, participation: Array) -> Array:
        return _train(trial_key(key, trial), problem, participation, start, steps)

    return jax.vmap(one)(trials, history)


def _train(
    key: Array, problem: QuadraticProblem, history: Array, start: Array, steps: int
) -> Any:
    """Return L(x(t)) - L* for t = 0..J of one trial."""
    mu, rho = jnp.min(problem.curvatures), jnp.max(problem.curvatures)
    gamma = jnp.maximum(8.0 * rho / mu, jnp.float32(steps))
    num_clients, num_samples, dim = problem.samples.shape

    def round_(model: _Model, inputs: tuple[Array, Array]) -> tuple[_Model, Array]:
        j, cohort = inputs
        round_stream = round_key(key, j, Stream.LOCAL_TRAINING)
        local = jnp.broadcast_to(model.x, (num_clients, dim))
        # unrolled: E is small and known when compiled
        for step in range(steps):
            words = client_words(fold(round_stream, jnp.uint32(step)), num_clients)
            # the modulus is almost uniform: M is at most 2^16, and words have 32 bits
            index = (words % jnp.uint32(num_samples)).astype(jnp.int32)[:, None, None]
            sample = jnp.take_along_axis(problem.samples, index, axis=1)[:, 0]
            rate = 2.0 / (mu * (gamma + (model.executed + step).astype(jnp.float32)))
            local = local - rate * problem.curvatures * (local - sample)
        size = jnp.sum(cohort, dtype=jnp.int32)
        # all clients have trained; those outside of the cohort are masked out
        total = jnp.sum(jnp.where(cohort[:, None], local, jnp.float32(0.0)), axis=0)
        # a skipped round leaves the model
        x = jnp.where(
            size > 0, total / jnp.maximum(size, 1).astype(jnp.float32), model.x
        )
        # step sizes fall by executed steps only, so skipped rounds cost none
        executed = model.executed + jnp.where(size > 0, jnp.int32(steps), jnp.int32(0))
        return _Model(x, executed), problem.gap(x)

    rounds = jnp.arange(history.shape[0], dtype=jnp.uint32)
    # on a mesh the carry must vary over devices as the inputs do
    first = varying_like(_Model(start, jnp.int32(0)), key, problem, history, start)
    _, gaps = lax.scan(round_, first, (rounds, history))
    return jnp.concatenate([problem.gap(start)[None], gaps])


def _as_float64(*arrays: Array) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float64) for array in arrays)


def _start(initial: ArrayLike | Sequence[float | int] | None, dim: int) -> np.ndarray:
    """Return x(0) as float32[d], zeros if None."""
    start = np.asarray(np.zeros(dim) if initial is None else initial, np.float32)
    good = start.shape == (dim,) and bool(np.isfinite(start).all())
    require(good, "initial", f"must be {dim} finite numbers", f"shape {start.shape}")
    return start
