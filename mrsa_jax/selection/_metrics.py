"""Fairness gap and aggregation cardinality of participation histories.

Source: Multi-RoundSecAgg (AAAI version), Section 3.2, F of eq. (6) and C of eq. (7), and their
instantaneous forms of Section 6; both after the same number of rounds, skipped ones counted
(docs/errata.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from mrsa_jax._core.arrays import host_array, on_device, varying_like
from mrsa_jax._core.device import is_traced
from mrsa_watch._base.errors import require
from mrsa_watch._base.tables import require_array

_MOST_BY_NUMPY = 2**20  # entries, whose counts are four bytes each


class Running(NamedTuple):
    """What F and C need to know of the rounds so far.

    Attributes:
        counts: int32[N, ...], rounds in which each client took part.
        low: uint32[...], total participation modulo 2^32.
        high: uint32[...], its carry.
        rounds: int32[], rounds so far.
    """

    counts: Int32[Array, " clients *lead"]
    low: UInt32[Array, "*lead"]
    high: UInt32[Array, "*lead"]
    rounds: Int32[Array, ""]

    @staticmethod
    def start(shape: tuple[int, ...]) -> Running:
        """Return the state before the first round of histories with rows of `shape` (N, ...)."""
        zero = jnp.zeros(shape[1:], jnp.uint32)
        return Running(jnp.zeros(shape, jnp.int32), zero, zero, jnp.int32(0))

    def add(self, participation: Bool[Array, " clients *lead"]) -> Running:
        """Return the state after one more round."""
        size = jnp.sum(participation, axis=0, dtype=jnp.uint32)
        low = self.low + size
        high = self.high + (low < size).astype(jnp.uint32)
        return Running(self.counts + participation.astype(jnp.int32), low, high, self.rounds + 1)

    def fairness_gap(self) -> Float32[Array, "*lead"]:
        """Return F of the rounds so far (at least one)."""
        spread = jnp.max(self.counts, axis=0) - jnp.min(self.counts, axis=0)
        return spread.astype(jnp.float32) / self.rounds.astype(jnp.float32)

    def cardinality(self) -> Float32[Array, "*lead"]:
        """Return C of the rounds so far (at least one)."""
        total = self.high.astype(jnp.float32) * 2.0**32 + self.low.astype(jnp.float32)
        return total / self.rounds.astype(jnp.float32)


def as_history(participation: ArrayLike | Sequence[Any]) -> Bool[Array, "*lead rounds clients"]:
    """Return a participation history as a boolean array, or raise if it is not one."""
    rule = "must be a boolean (or 0/1 integer) array [..., rounds, clients]"
    require_array(participation, "participation")
    array: Any = participation
    if not isinstance(array, jax.Array):
        array = host_array(array, "participation")
    dtype_ok = array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.integer)
    require(dtype_ok, "participation", rule, f"dtype {array.dtype}")
    require(array.ndim >= 2 and min(array.shape) > 0, "participation", rule, f"shape {array.shape}")
    if array.dtype != jnp.bool_ and not isinstance(array, jax.core.Tracer):
        extremes = {int(np.min(array)), int(np.max(array))}
        require(extremes <= {0, 1}, "participation", rule, *sorted(extremes))
    return on_device(array).astype(jnp.bool_)


def fairness_gap(participation: ArrayLike | Sequence[Any]) -> Float32[Array, "*lead rounds"]:
    """Return F after each round: how unequally often clients took part.

    Entry j is (max_i f_i - min_i f_i) / (j + 1), f_i the rounds among the first j + 1 in which
    client i took part; skipped rounds (zero rows) count. 0 is perfectly fair.

    Args:
        participation: bool[..., J, N] (0/1 integers are taken too).

    Returns:
        float32[..., J] in [0, 1].

    Raises:
        ConfigurationError: If it is not binary, or has fewer than two axes, or an empty one.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.fairness_gap([[1, 1, 0, 0], [0, 0, 1, 1]]).tolist()
        [1.0, 0.0]

    Source: Multi-RoundSecAgg, Section 3.2, average fairness gap; one sample path of it, without
        the expectation.
    """
    return _paths(participation)[0]


def aggregation_cardinality(
    participation: ArrayLike | Sequence[Any],
) -> Float32[Array, "*lead rounds"]:
    """Return C after each round: the mean number of clients in a sum, skipped rounds counted as 0.

    Entry j is the mean row sum over the first j + 1 rounds. More clients per sum mean faster
    training; `expected_cardinality` is its limit.

    Args:
        participation: bool[..., J, N] (0/1 integers are taken too).

    Returns:
        float32[..., J].

    Raises:
        ConfigurationError: If it is not binary, or has fewer than two axes, or an empty one.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.aggregation_cardinality([[1, 1, 0, 0], [0, 0, 0, 0]]).tolist()
        [2.0, 1.0]

    Source: Multi-RoundSecAgg, Section 3.2, average aggregation cardinality; one sample path.
    """
    return _paths(participation)[1]


def _paths(participation: ArrayLike | Sequence[Any]) -> tuple[Array, ...]:
    """Return F and C after each round."""
    history = as_history(participation)
    if is_traced(history) or history.ndim > 2 or history.size > _MOST_BY_NUMPY:
        return _trajectories(history)
    # one history by itself is not worth a program; the same bits
    rows = np.asarray(history)
    counts = np.cumsum(rows, axis=0, dtype=np.int32)
    rounds = np.arange(1, len(rows) + 1).astype(np.float32)
    spread, total = counts.max(axis=1) - counts.min(axis=1), np.cumsum(rows.sum(axis=1))
    return tuple(on_device(own.astype(np.float32) / rounds) for own in (spread, total))


@jax.jit
def _trajectories(
    history: Bool[Array, "*lead rounds clients"],
) -> tuple[Float32[Array, "*lead rounds"], Float32[Array, "*lead rounds"]]:
    rows = jnp.moveaxis(history, (-2, -1), (0, 1))

    def step(running: Running, row: Array) -> tuple[Running, tuple[Array, Array]]:
        running = running.add(row)
        return running, (running.fairness_gap(), running.cardinality())

    _, (gaps, sizes) = lax.scan(step, varying_like(Running.start(rows.shape[1:]), rows), rows)
    return jnp.moveaxis(gaps, 0, -1), jnp.moveaxis(sizes, 0, -1)
