"""Fairness gap and aggregation cardinality of participation histories.

Source: Multi-RoundSecAgg (AAAI version), Section 3.2, F of eq. (6) and C of eq. (7), and their
instantaneous forms of Section 6; both after the same number of rounds, skipped ones counted
(docs/errata.md).
"""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from mrsa_jax._arrays import host_array, on_device, require_array
from mrsa_jax._checks import POSITIVE, check_known, check_number, check_size
from mrsa_jax._errors import require
from mrsa_jax._tracing import varying_like
from mrsa_jax.selection._checks import check_sizes


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
        counts = self.counts + participation.astype(jnp.int32)
        return Running(counts, low, high, self.rounds + 1)

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
        >>> fairness_gap([[1, 1, 0, 0], [0, 0, 1, 1]]).tolist()
        [1.0, 0.0]

    Source: Multi-RoundSecAgg, Section 3.2, average fairness gap; one sample path of it, without
        the expectation.
    """
    return _trajectories(as_history(participation))[0]


def aggregation_cardinality(
    participation: ArrayLike | Sequence[Any],
) -> Float32[Array, "*lead rounds"]:
    """Return C after each round: the mean number of clients in a sum, skipped rounds counted as 0.

    Entry j is the mean row sum over the first j + 1 rounds. More clients a sum mean faster
    training; `expected_cardinality` is its limit.

    Args:
        participation: bool[..., J, N] (0/1 integers are taken too).

    Returns:
        float32[..., J].

    Raises:
        ConfigurationError: If it is not binary, or has fewer than two axes, or an empty one.

    Examples:
        >>> aggregation_cardinality([[1, 1, 0, 0], [0, 0, 0, 0]]).tolist()
        [2.0, 1.0]

    Source: Multi-RoundSecAgg, Section 3.2, average aggregation cardinality; one sample path.
    """
    return _trajectories(as_history(participation))[1]


@jax.jit
def _trajectories(
    history: Bool[Array, "*lead rounds clients"],
) -> tuple[Float32[Array, "*lead rounds"], Float32[Array, "*lead rounds"]]:
    rows = jnp.moveaxis(history, (-2, -1), (0, 1))

    def step(running: Running, row: Array) -> tuple[Running, tuple[Array, Array]]:
        running = running.add(row)
        return running, (running.fairness_gap(), running.cardinality())

    start = varying_like(Running.start(rows.shape[1:]), rows)
    _, (gaps, sizes) = lax.scan(step, start, rows)
    return jnp.moveaxis(gaps, 0, -1), jnp.moveaxis(sizes, 0, -1)


# ---- Theorem 3 (random selection leaks everything after N rounds) and Appendix C (how many
# cohorts).
#
# Source: Multi-RoundSecAgg (AAAI version), Appendix H.1, eq. (31) and (32), and Appendix C,
# eq. (29) and (30). Python integers and float64.

RandomScheme = Literal["bernoulli", "uniform"]


def full_rank_probability_bound(
    num_clients: int,
    cohort_size: int,
    scheme: RandomScheme = "bernoulli",
    rate_constant: float | None = None,
) -> float:
    """Return Theorem 3's lower bound on the chance that N rounds reveal every client.

    That is, that the N x N participation matrix is invertible, when rounds are independent:

        "bernoulli": each client joins with chance t = K/N:
            1 - 2 N (1 - t)^N - N (N - 1) (t^2 + (1 - t)^2)^N, eq. (32) with o(1) = 0;
        "uniform": K of N, uniformly: 1 - 2 exp(-c' N), eq. (31). The theorem says only that some
            c' > 0 exists, so it has no numeric value: c' must be given.

    The terms of (32) are the chances of a zero row or column, and of two equal ones; it is
    asymptotic, but within one standard error of simulations for the paper's sizes (docs/errata.md).

    Args:
        num_clients: N >= 1, and as many rounds.
        cohort_size: K, mean number of clients a round, from 1 to N.
        scheme: "bernoulli" or "uniform".
        rate_constant: c' > 0, for "uniform" only.

    Returns:
        The bound in [0, 1]; 0 where the formula is negative and says nothing.

    Raises:
        ConfigurationError: If a size is wrong, the scheme unknown, or c' missing, not positive,
            or given for "bernoulli".

    Examples:
        >>> round(full_rank_probability_bound(40, 8), 9)
        0.989054659

    Source: Multi-RoundSecAgg, Theorem 3; (32) after Jain, Sah, Sawhney (2020), (31) after Tran
        (2020).
    """
    n, k, _ = check_sizes(num_clients, cohort_size)
    check_known(scheme, "scheme", typing.get_args(RandomScheme), "a known scheme")
    if scheme == "bernoulli":
        require(rate_constant is None, "rate_constant", 'must be None for "bernoulli"')
        t = k / n
        zero = 0.0 if k == n else 2.0 * n * math.exp(n * math.log1p(-t))
        equal = n * (n - 1) * math.exp(n * math.log(t * t + (1.0 - t) ** 2))
        return max(0.0, 1.0 - zero - equal)
    rule = 'must be given for "uniform": eq. (31) has an unknown constant c\''
    require(rate_constant is not None, "rate_constant", rule)
    rule, kind = "must be positive and finite", "must be a number"
    constant = check_number(rate_constant, "rate_constant", rule, POSITIVE, kind=kind)
    return max(0.0, -2.0 * math.expm1(-constant * n) - 1.0)


def family_size_bound(num_clients: int, cohort_size: int, privacy_target: int) -> int:
    """Return how many distinct cohorts of K any scheme with privacy T can use, at most.

    Privacy T means that the distinct non-zero columns of the family's matrix occur T times or
    more: D <= N/T groups of clients who only move together. A cohort is a set of s groups that
    hold K clients; K >= s T, and the D - s others hold at most N - K >= (D - s) T. Cohorts have
    equal weight, so none contains another, and by the inequality of Lubell, Yamamoto and Meshalkin
    there are at most max over s of C(D, s). With T dividing K and N this is C(N/T, K/T), the
    family of `batch_partitioning`: no scheme offers more choice.

    Args:
        num_clients: N >= 1.
        cohort_size: K, from 1 to N.
        privacy_target: T, from 1 to K; need not divide anything.

    Returns:
        The bound as a Python integer, at least 1; `family_size` attains it where T divides K and N.

    Raises:
        ConfigurationError: If a size is not a positive integer, or T <= K <= N does not hold.

    Examples:
        >>> from mrsa_jax.selection import family_size
        >>> family_size_bound(120, 12, 3) == family_size(120, 12, 3)
        True

    Cost: K/T binomials where T does not divide both, one where it does.

    Source: Multi-RoundSecAgg, Appendix C. Its (29) counts only cohorts of E groups each; rows
        may use different numbers of groups, hence the inequality (docs/errata.md). Its step (ii)
        asks for E <= D/2; counting the groups left out too makes the bound hold for every K.
    """
    n = check_size(num_clients, "num_clients")
    k = check_size(cohort_size, "cohort_size")
    t = check_size(privacy_target, "privacy_target")
    require(k <= n, "cohort_size", "must be at most `num_clients`", k, n)
    require(t <= k, "privacy_target", "must be at most `cohort_size`", t, k)
    if n % t == 0 and k % t == 0:
        return math.comb(n // t, k // t)
    inside, outside = k // t, (n - k) // t
    sizes = ((chosen, min(outside, n // t - chosen)) for chosen in range(1, inside + 1))
    return max(math.comb(chosen + others, chosen) for chosen, others in sizes)
