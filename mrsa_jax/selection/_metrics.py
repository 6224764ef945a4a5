"""Fairness gap and aggregation cardinality.

Of participation histories, and in closed form.
Source: Multi-RoundSecAgg (AAAI version), Section 3.2, F of eq. (6) and C of eq. (7),
and their instantaneous forms of Section 6; both after the same number of rounds,
skipped ones counted (docs/errata.md). Closed forms: Section 4 (R_BP) and Theorem 1;
NumPy and Python integers, exact or float64, but where rates are traced.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Float64, Int32, UInt32

from mrsa_jax._core.array_types import Integers, Nested, Numbers
from mrsa_jax._core.arrays import host_array, integer_or_vector, on_device
from mrsa_jax._core.factories import is_chance, nan_unless
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.streams import check_chances
from mrsa_jax._core.traced import is_traced
from mrsa_jax.selection.checks import check_sizes
from mrsa_watch._base.errors import check_size, require
from mrsa_watch._base.tables import require_array

_MOST_BY_NUMPY = 2**20  # entries, whose counts are four bytes each


class Running(NamedTuple):
    """Numbers from which F and C of the rounds so far follow.

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
        """Return the state before the first round, of rows of `shape` (N, ...)."""
        zero = jnp.zeros(shape[1:], jnp.uint32)
        return Running(jnp.zeros(shape, jnp.int32), zero, zero, jnp.int32(0))

    def add(self, participation: Bool[Array, " clients *lead"]) -> Running:
        """Return the state after one more round."""
        size = jnp.sum(participation, axis=0, dtype=jnp.uint32)
        # totals of long histories pass 32 bits, and JAX may have no wider words
        low = self.low + size
        high = self.high + (low < size).astype(jnp.uint32)
        return Running(
            self.counts + participation.astype(jnp.int32), low, high, self.rounds + 1
        )

    def fairness_gap(self) -> Float32[Array, "*lead"]:
        """Return F of the rounds so far (at least one)."""
        spread = jnp.max(self.counts, axis=0) - jnp.min(self.counts, axis=0)
        return spread.astype(jnp.float32) / self.rounds.astype(jnp.float32)

    def cardinality(self) -> Float32[Array, "*lead"]:
        """Return C of the rounds so far (at least one)."""
        total = self.high.astype(jnp.float32) * 2.0**32 + self.low.astype(jnp.float32)
        return total / self.rounds.astype(jnp.float32)


def as_history(
    participation: Nested,
) -> Bool[Array, "*lead rounds clients"]:
    """Return a participation history as a boolean array, or raise if it is not one."""
    rule = "must be a boolean (or 0/1 integer) array [..., rounds, clients]"
    require_array(participation, "participation")
    array: Any = participation
    if not isinstance(array, jax.Array):
        array = host_array(array, "participation")
    require(
        array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.integer),
        "participation",
        rule,
        f"dtype {array.dtype}",
    )
    require(
        array.ndim >= 2 and min(array.shape) > 0,
        "participation",
        rule,
        f"shape {array.shape}",
    )
    if array.dtype != jnp.bool_ and not isinstance(array, jax.core.Tracer):
        extremes = {int(np.min(array)), int(np.max(array))}
        require(extremes <= {0, 1}, "participation", rule, *sorted(extremes))
    return on_device(array).astype(jnp.bool_)


def fairness_gap(
    participation: Nested,
) -> Float32[Array, "*lead rounds"]:
    """Return F after each round: how unequally often clients took part.

    Entry j is (max_i f_i - min_i f_i) / (j + 1), f_i the rounds among the first j + 1
    in which client i took part; skipped rounds (zero rows) count. 0 is perfectly fair.

    Args:
        participation: bool[..., J, N] (0/1 integers are taken too).

    Returns:
        float32[..., J] in [0, 1].

    Raises:
        ConfigurationError: If it is not binary, or has fewer than two axes, or an empty
            one.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.fairness_gap([[1, 1, 0, 0], [0, 0, 1, 1]]).tolist()
        [1.0, 0.0]

    Source: Multi-RoundSecAgg, Section 3.2, average fairness gap; one sample path of it,
    without the expectation.
    """
    return _paths(participation)[0]


def aggregation_cardinality(
    participation: Nested,
) -> Float32[Array, "*lead rounds"]:
    """Return C after each round.

    The mean number of clients in a sum, skipped rounds counted as 0.
    Entry j is the mean row sum over the first j + 1 rounds. More clients per sum mean
    faster training; `expected_cardinality` is its limit.

    Args:
        participation: bool[..., J, N] (0/1 integers are taken too).

    Returns:
        float32[..., J].

    Raises:
        ConfigurationError: If it is not binary, or has fewer than two axes, or an empty
            one.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.aggregation_cardinality([[1, 1, 0, 0], [0, 0, 0, 0]]).tolist()
        [2.0, 1.0]

    Source: Multi-RoundSecAgg, Section 3.2, average aggregation cardinality; one sample
    path.
    """
    return _paths(participation)[1]


def _paths(participation: Nested) -> tuple[Array, ...]:
    """Return F and C after each round."""
    history = as_history(participation)
    if is_traced(history) or history.ndim > 2 or history.size > _MOST_BY_NUMPY:
        return _trajectories(history)
    # one history by itself is not worth a program; the same bits
    rows = np.asarray(history)
    counts = np.cumsum(rows, axis=0, dtype=np.int32)
    rounds = np.arange(1, len(rows) + 1).astype(np.float32)
    spread, total = counts.max(axis=1) - counts.min(axis=1), np.cumsum(rows.sum(axis=1))
    return tuple(
        on_device(totals.astype(np.float32) / rounds) for totals in (spread, total)
    )


@jax.jit
def _trajectories(
    history: Bool[Array, "*lead rounds clients"],
) -> tuple[Float32[Array, "*lead rounds"], Float32[Array, "*lead rounds"]]:
    rows = jnp.moveaxis(history, (-2, -1), (0, 1))

    def step(running: Running, row: Array) -> tuple[Running, tuple[Array, Array]]:
        running = running.add(row)
        return running, (running.fairness_gap(), running.cardinality())

    _, (gaps, sizes) = lax.scan(
        step, varying_like(Running.start(rows.shape[1:]), rows), rows
    )
    return jnp.moveaxis(gaps, 0, -1), jnp.moveaxis(sizes, 0, -1)


def family_size(num_clients: int, cohort_size: int, privacy_target: int) -> int:
    """Count the cohorts of batch partitioning: C(N/T, K/T), exactly.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T; 1 counts the cohorts of random selection, K those of user
            partition.

    Returns:
        R_BP as a Python integer.

    Raises:
        ConfigurationError: If a size is not a positive integer, K > N, or T divides not
            both.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.family_size(120, 12, 3)  # the paper's Table 1 misprints 91389
        91390

    Source: Multi-RoundSecAgg, Section 4, and Table 1 with its erratum (docs/errata.md).
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    return math.comb(n // t, k // t)


def enumerate_family(
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    max_rows: int = 100_000,
) -> np.ndarray:
    """Return every cohort that batch partitioning can choose, the paper's matrix B.

    For tests, plots and small examples: rollouts never need it.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T. The block of client i is i // T.
        max_rows: The cap on R.

    Returns:
        bool[R, N] in lexicographic order of the chosen blocks.

    Raises:
        ConfigurationError: (a ValueError) If R exceeds `max_rows`, or as `family_size`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.enumerate_family(8, 4, 2).astype(int)[:2].tolist()
        [[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0]]

    Source: Multi-RoundSecAgg, Algorithm 1; Figure 2 is the family of (8, 4, 2).
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    cap = check_size(max_rows, "max_rows")
    size = family_size(n, k, t)
    require(
        size <= cap, "max_rows", "must be at least the size of the family", cap, size
    )
    chosen = np.array(
        list(itertools.combinations(range(n // t), k // t)), dtype=np.int64
    )
    blocks = np.zeros((size, n // t), dtype=np.bool_)
    blocks[np.arange(size)[:, None], chosen] = True
    return np.repeat(blocks, t, axis=1)


def expected_cardinality(
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    dropout_rate: Numbers,
    *,
    blocks: Integers | None = None,
) -> Any:
    """Return C, the expected number of clients in a round's sum.

    A round sums K clients if at least K/T blocks are fully available, else none:
    C = K · P(B >= K/T), where B counts the available blocks; block b is available with
    chance prod over its clients of (1 - p_i). Holds for every fairness mode; T = 1
    gives random and weighted random selection, T = K user partition.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T.
        dropout_rate: p in [0, 1], or one for each client, [N].
        blocks: The block of each client, integers [N], each block T times; i // T by
            default.

    Returns:
        C in [0, K], float64, relative error about N · 1e-16 (only positive terms are
        added). Of traced rates, a traced number of their type, which can be
        differentiated.

    Raises:
        ConfigurationError: If a size is wrong (as `family_size`), or a rate is NaN or
            outside [0, 1], or the rates are not N, or a block does not have T clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> round(mj.selection.expected_cardinality(120, 12, 12, 0.1), 10)
        11.5656630406
        >>> mj.selection.expected_cardinality(8, 4, 2, 0.0)
        4.0

    Cost: O(N/T · K/T).

    Source: Multi-RoundSecAgg, Theorem 1 (equal rates); the Poisson-binomial form for
    mixed rates is this package's: with mixed rates C depends on who shares a block.
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    rates = check_chances(dropout_rate, "dropout_rate", as_data=True)
    numbers: Any = jnp if is_traced(rates) else np
    if rates.ndim == 1:
        require(
            rates.size == n,
            "dropout_rate",
            "must hold one rate for each client",
            f"{rates.size} rates, {n} clients",
        )
    if is_traced(rates):
        rates = nan_unless(is_chance(rates).all(), rates)
    online = 1.0 - numbers.broadcast_to(rates, (n,))
    if blocks is not None:
        online = online[_by_block(blocks, n, t)]
    chances = numbers.prod(online.reshape(n // t, t), axis=1)
    return k * (_at_least if numbers is np else _at_least_traced)(chances, k // t)


def all_or_none(
    num_clients: int,
    cohort_size: Any,
    block_size: Any,
    dropout_rates: np.ndarray,
) -> tuple[float, float]:
    """Return mean and deviation of a sum of K clients in whole blocks, or of nobody.

    It is K times a Bernoulli variable, whatever available blocks are chosen.
    """
    k = int(cohort_size)
    mean = expected_cardinality(num_clients, k, int(block_size), dropout_rates)
    # probability that a round has a sum
    share = min(max(mean / k, 0.0), 1.0)
    return mean, float(k * np.sqrt(share * (1 - share)))


def block_chances(
    dropout_rates: np.ndarray, size: int
) -> Float64[np.ndarray, " blocks"]:
    """Return the chance that all clients of each block are available."""
    return np.prod(
        1.0 - np.asarray(dropout_rates, np.float64).reshape(-1, size), axis=1
    )


def chances_of_some(
    available: np.ndarray, wanted: int
) -> Float64[np.ndarray, " blocks"]:
    """Return each block's chance to be among `wanted` that are drawn uniformly.

    None is drawn where fewer are available. With A the number of the other available
    blocks it is a_b E[1{A + 1 >= k} k / (A + 1)]. The expectation over all blocks but
    one is the product of the law of those before it with that of those behind: only
    positive terms are added.

    Args:
        available: float64[M], chance of each block to be available, independently.
        wanted: k, from 1 to M.

    Cost: O(M^2) in time; 8 M^2 bytes where chances differ.
    """
    count = len(available)
    share = _share_of_drawn(count, wanted)
    if (available == available[0]).all():
        from scipy import stats

        others = stats.binom.pmf(np.arange(count), count - 1, available[0])
        return np.full(count, available[0] * float(others @ share))
    # [b, a]: chance that a of the blocks before b are available
    before = np.zeros((count, count))
    before[0, 0] = 1.0
    for place, chance in enumerate(available[:-1].tolist()):
        before[place + 1] = before[place] * (1.0 - chance)
        before[place + 1, 1:] += before[place, :-1] * chance
    chances = np.empty(count)
    behind = share  # [a]: mean share with a available before this block
    for place in range(count - 1, -1, -1):
        chance = float(available[place])
        mean = float(before[place, : place + 1] @ behind[: place + 1])
        chances[place] = chance * mean
        # take the block to those behind: with it one more is available before them
        behind = (1.0 - chance) * behind + chance * np.append(behind[1:], 0.0)
    return chances


def _share_of_drawn(most: int, wanted: int) -> Float64[np.ndarray, " counts"]:
    """Return the chance of an available block to be drawn, by the number available.

    Entry a is for a + 1 available blocks, this one among them, up to `most`.
    """
    with_it = np.arange(1, most + 1)
    return np.where(with_it >= wanted, wanted / with_it, 0.0)


def gap_of_some(available: np.ndarray, wanted: int) -> float:
    """Return the gap of the chances of `chances_of_some`, in less memory.

    A block that is available more often is drawn more often: where both of two are
    available they have one chance. So the gap is that of the most and the least
    available block, (a - a') E[1{S + 1 >= k} k / (S + 1)], with S the number of other
    available blocks besides these two. Only positive terms are added.

    Args:
        available: float64[M], chance of each block to be available, independently.
        wanted: k, from 1 to M.

    Cost: O(M^2) in time.
    """
    from scipy import stats

    ordered = np.sort(available)
    spread = float(ordered[-1] - ordered[0])
    if spread == 0:
        return 0.0
    law = np.ones(1)
    for chance, count in zip(
        *np.unique(ordered[1:-1], return_counts=True), strict=True
    ):
        law = np.convolve(law, stats.binom.pmf(np.arange(count + 1), count, chance))
    share = _share_of_drawn(len(ordered) - 1, wanted)
    return spread * float(law @ share)


def _by_block(blocks: Any, n: int, t: int) -> np.ndarray:
    """Return the clients sorted by block, or raise unless every block has T of them."""
    labels = integer_or_vector(blocks, "blocks")
    require(
        labels.ndim == 1 and labels.size == n,
        "blocks",
        "must hold one integer for each client",
        f"shape {labels.shape}",
    )
    names, sizes = np.unique(labels, return_counts=True)
    rule = "must name each block as often as `privacy_target`"
    for name, size in zip(names, sizes, strict=True):
        require(size == t, "blocks", rule, f"block {name}: {size} times", t)
    return np.argsort(labels, kind="stable")


def _at_least(chances: np.ndarray, m: int) -> float:
    """Return P(at least m of independent events happen).

    By recurrence, from above and below.

    `law[i]` is the chance of exactly i < m events so far and `reached` that of m or
    more: sums and products of non-negative numbers, so nothing cancels.
    """
    law = np.zeros(m)
    law[0] = 1.0
    reached = 0.0
    for chance in chances.tolist():
        reached += law[-1] * chance
        law[1:] = law[1:] * (1.0 - chance) + law[:-1] * chance
        law[0] *= 1.0 - chance
    # of the two complements the smaller one has more digits
    return reached if reached < 0.5 else 1.0 - float(law.sum())


def _at_least_traced(chances: Array, m: int) -> Array:
    """Evaluate `_at_least` in a program."""

    def step(
        state: tuple[Array, Array], chance: Array
    ) -> tuple[tuple[Array, Array], None]:
        law, reached = state
        fewer = jnp.concatenate([jnp.zeros(1, law.dtype), law[:-1]])
        return (law * (1 - chance) + fewer * chance, reached + law[-1] * chance), None

    start = jnp.zeros(m, chances.dtype).at[0].set(1), jnp.zeros((), chances.dtype)
    (law, reached), _ = jax.lax.scan(step, varying_like(start, chances), chances)
    return jnp.where(reached < 0.5, reached, 1 - law.sum())
