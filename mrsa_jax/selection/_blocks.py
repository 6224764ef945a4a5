"""Selection by blocks: random, weighted random, user partition and batch partitioning.

All four are one rule. Blocks of T neighbours are available when all their clients are;
K/T of the available blocks are chosen, the first few of them by least use, the rest
uniformly.

Source: Multi-RoundSecAgg (AAAI version), Section 4 and Appendix D, Algorithms 1 and 2.
Symbols: N `num_clients`, K `cohort_size`, T `privacy_target`, f `counts`, G_i `block`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from mrsa_jax._core.array_types import Flags, PerClient, TrialKeys
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax._core.factories import also_traced, is_whole, plain, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.traced import is_traced
from mrsa_jax.selection import _ranking
from mrsa_jax.selection._by_kernel import over_trials
from mrsa_jax.selection._metrics import (
    all_or_none,
    block_chances,
    chances_of_some,
    gap_of_some,
)
from mrsa_jax.selection._ranking import Steps, Words
from mrsa_jax.selection.checks import Fairness, check_sizes
from mrsa_watch._base.errors import check_known, check_size, require


@pytree
class BlockSelection:
    """Choose whole available blocks, some of them by least use.

    Build it with a factory.
    A round with fewer than `blocks_per_cohort` available blocks is skipped: nobody is
    asked.

    Attributes:
        block_size: int32 scalar, T; the block of client i is i // T.
        blocks_per_cohort: int32 scalar, K / T.
        least_used_blocks: int32 scalar, how many of them are chosen by least use (ties
            uniform) before the others are chosen uniformly among the remaining
            available blocks.
        num_clients: N, static.
    """

    cites = "selection of clients: so2023securing"

    block_size: Array
    blocks_per_cohort: Array
    least_used_blocks: Array
    num_clients: int = static()
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False

    @property
    def cohort_size(self) -> Array:
        """int32 scalar, K."""
        return self.block_size * self.blocks_per_cohort

    def cardinality(self, dropout_rates: np.ndarray) -> tuple[float, float]:
        """Return mean and deviation of the size of a round's sum (Theorem 1)."""
        size, wanted = int(self.block_size), int(self.blocks_per_cohort)
        return all_or_none(self.num_clients, size * wanted, size, dropout_rates)

    def chances(self, dropout_rates: np.ndarray) -> PerClient | None:
        """Return each client's chance to be in a round.

        Rounds are independent and alike.

        None where rounds depend on each other: some blocks are chosen by least use.
        """
        size, wanted = int(self.block_size), int(self.blocks_per_cohort)
        if int(self.least_used_blocks) > 0:
            return None
        return np.repeat(
            chances_of_some(block_chances(dropout_rates, size), wanted), size
        )

    def share_gap(self, dropout_rates: np.ndarray) -> float | None:
        """Return the gap of clients' expected shares of the rounds.

        None where some blocks are chosen by least use, unless all blocks are alike.
        """
        size, wanted = int(self.block_size), int(self.blocks_per_cohort)
        rates = np.sort(np.reshape(dropout_rates, (-1, size)), axis=1)
        # blocks of the same rates have one law, and all of them one share
        if wanted == len(rates) or (rates == rates[0]).all():
            return 0.0
        if int(self.least_used_blocks) > 0:
            return None
        return gap_of_some(block_chances(dropout_rates, size), wanted)

    def of_blocks(self) -> BlockSelection:
        """Return the same scheme over its blocks, each as one client.

        Equal in law for them.
        """
        count = self.num_clients // int(self.block_size)
        return dataclasses.replace(self, block_size=jnp.int32(1), num_clients=count)

    def typed(self) -> Calls:
        """Return the calls that may have made it."""
        n, t = self.num_clients, int(self.block_size)
        k = t * int(self.blocks_per_cohort)
        alone = [(scheme, n, k) for scheme in (uniform, weighted, partition)]
        modes = [(batch_partitioning, n, k, t, mode) for mode in ("uniform", "greedy")]
        return [*alone, (batch_partitioning, n, k, t), *modes]

    def _cells(self) -> np.ndarray:
        """Blocks: a row each, whose clients move together."""
        size = int(self.block_size)
        return np.eye(self.num_clients // size, dtype=np.uint8).repeat(size, axis=1)

    def init(self) -> SelectorState:
        """Return the state before the first round: nobody has taken part."""
        return SelectorState(zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: SelectorState,
        available: Flags,
    ) -> tuple[Flags, SelectorState]:
        """Return a cohort of K available clients in whole blocks, or nobody.

        Also the new state.

        Cost: a few passes over N; the family of possible cohorts is never enumerated.
        Takes trials as trailing axes (of `counts` too).
        """
        return over_trials(self, key, state, available)

    def _choose(
        self,
        steps: Steps,
        words: Words,
        state: SelectorState,
        available: Array,
    ) -> tuple[Array, SelectorState]:
        """Choose as `select` does."""
        eligible = _ranking.block_start_all(available, self.block_size, steps)
        works = _ranking.count(eligible) >= self.blocks_per_cohort
        by_use = jnp.where(works, self.least_used_blocks, 0)
        uniformly = jnp.where(works, self.blocks_per_cohort, 0) - by_use

        def least_used() -> Array:
            return _ranking.k_smallest(words(0), eligible, by_use, steps, state.counts)

        def others(chosen: Array) -> Array:
            rest = eligible & ~chosen
            return chosen | _ranking.k_smallest(words(1), rest, uniformly, steps)

        # which of the two searches run is data, so that one program serves all schemes
        first = self.least_used_blocks > 0
        then = self.blocks_per_cohort > self.least_used_blocks
        if steps == "bits":
            # what no round changes would make a kernel of four loops over the rounds
            first, then = _ranking.some(by_use > 0), _ranking.some(uniformly > 0)
        chosen = lax.cond(first, least_used, lambda: jnp.zeros_like(eligible))
        chosen = lax.cond(then, others, lambda chosen: chosen, chosen)
        cohort = _ranking.block_any(chosen, self.block_size, steps)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))


def sizes_as_data(
    num_clients: Any,
    cohort_size: Any,
    privacy_target: Any = 1,
) -> tuple[int, Any, Any]:
    """Return N, K and T as `check_sizes` does; K and T may be traced.

    Where these make no sense together they come back as N + 1 and 1: every round is
    skipped.
    """
    if not is_traced(cohort_size, privacy_target):
        return check_sizes(num_clients, plain(cohort_size), plain(privacy_target))
    n = check_size(num_clients, "num_clients")
    k = unless_traced(check_size, cohort_size, "cohort_size")
    t = unless_traced(check_size, privacy_target, "privacy_target")
    legal = is_whole(k, 1, n) & is_whole(t, 1, n) & (k % t == 0) & (n % t == 0)
    return n, jnp.where(legal, k, n + 1), jnp.where(legal, t, 1)


def _build(
    num_clients: int,
    block_size: Any,
    blocks: Any,
    least_used: Any,
) -> BlockSelection:
    size, wanted, by_use = (
        on_device(each, np.int32) for each in (block_size, blocks, least_used)
    )
    return BlockSelection(size, wanted, by_use, num_clients)


@also_traced
def uniform(num_clients: int, cohort_size: int | Array) -> BlockSelection:
    """Return random selection: K of the available clients, uniformly.

    The baseline of the papers ("Random"); with N = 120, K = 12 the server can solve for
    every client after about N rounds. A round with fewer than K available clients is
    skipped.

    Args:
        num_clients: N >= 1.
        cohort_size: K, from 1 to N.

    Returns:
        A selector.

    Raises:
        ConfigurationError: If a size is not a positive integer or K > N.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0,
        ...     mj.selection.uniform(6, 2),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=5,
        ... )
        >>> history.sum(axis=1).tolist()
        [2, 2, 2, 2, 2]

    Source: Multi-RoundSecAgg, Section 3.3, "Random Selection".
    """
    n, k, _ = sizes_as_data(num_clients, cohort_size)
    return _build(n, 1, k, 0)


@also_traced
def weighted(num_clients: int, cohort_size: int | Array) -> BlockSelection:
    """Return weighted random selection: the K least often chosen available clients.

    Fairer than `uniform` and as leaky. Available clients are sorted by (frequency,
    random) and the first K taken, also when fewer than K share the least frequency
    (docs/errata.md). A round with fewer than K available clients is skipped.

    Args:
        num_clients: N >= 1.
        cohort_size: K, from 1 to N.

    Returns:
        A selector.

    Raises:
        ConfigurationError: If a size is not a positive integer or K > N.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0,
        ...     mj.selection.weighted(6, 2),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=3,
        ... )
        >>> history.sum(axis=0).tolist()  # everybody once in N/K rounds
        [1, 1, 1, 1, 1, 1]

    Source: Multi-RoundSecAgg, Section 3.3, "Random Weighted Selection".
    """
    n, k, _ = sizes_as_data(num_clients, cohort_size)
    return _build(n, 1, k, k)


@also_traced
def partition(num_clients: int, cohort_size: int | Array) -> BlockSelection:
    """Return user partition.

    One of N/K fixed groups, the least often chosen available one.
    The most private scheme (T = K), whose sums are rare: a group is available only when
    all of its K clients are. Equal to `batch_partitioning` with T = K (docs/errata.md).
    Ties are uniform; a round without an available group is skipped.

    Args:
        num_clients: N >= 1.
        cohort_size: K, a divisor of N. The group of client i is i // K.

    Returns:
        A selector.

    Raises:
        ConfigurationError: If a size is not a positive integer or K does not divide N.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0,
        ...     mj.selection.partition(6, 2),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=3,
        ... )
        >>> bool((history[:, ::2] == history[:, 1::2]).all())
        True

    Source: Multi-RoundSecAgg, Section 3.3, "User Partitioning (Grouping)".
    """
    if is_traced(cohort_size):
        n, k, t = sizes_as_data(num_clients, cohort_size, cohort_size)
        return _build(n, t, k // t, 1)
    n, k, _ = check_sizes(num_clients, plain(cohort_size))
    require(n % k == 0, "num_clients", "must be a multiple of `cohort_size`", n, k)
    return _build(n, k, 1, 1)


@also_traced
def batch_partitioning(
    num_clients: int,
    cohort_size: int | Array,
    privacy_target: int | Array,
    fairness: Fairness = "least_used",
) -> BlockSelection:
    """Return Multi-RoundSecAgg.

    K/T of the N/T blocks of T clients, who only move together.
    Every sum is a union of whole blocks, so after any number of rounds the server
    learns nothing finer than the sum of T clients. A round with fewer than K/T fully
    available blocks is skipped. The family of C(N/T, K/T) cohorts is never enumerated.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, from T to N, a multiple of T.
        privacy_target: T >= 1. The block of client i is i // T. T = K is `partition`; T
            = 1 is neither `uniform` nor `weighted` unless `fairness` makes it so.
        fairness: Which of the available cohorts.
            "least_used" (the paper's lambda = 1): one that holds the least used block
            among those fully available, ties uniform, the other K/T - 1 blocks uniform
            among the rest; "uniform" (lambda = 0, meant for equal dropout rates): any,
            uniformly; "greedy" (ours, not in the paper): the K/T least used available
            blocks, ties uniform; its F of eq. (6) was never above that of "least_used" at
            unequal rates, and is 0 only if rare blocks are available often enough; the
            same for T = K (docs/errata.md).

    Returns:
        A selector; T, K and the fairness mode are data, so sweeping them compiles
        nothing new. T and K may be traced, and are not checked then.

    Raises:
        ConfigurationError: If a size is not a positive integer, K > N, T does not
            divide K or N, or `fairness` is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.batch_partitioning(12, 6, 3)
        >>> history = mj.selection.rollout(
        ...     1, selector, mj.availability.independent(0.1), 20
        ... )
        >>> blocks = history.reshape(20, 4, 3)
        >>> bool((blocks.all(-1) == blocks.any(-1)).all())  # never split
        True

    Source: Multi-RoundSecAgg (AAAI version), Appendix D, Algorithms 1 and 2. Differs
    from the paper in the meaning of l_min: the least used among clients whose whole
    block is available, not among all available ones, for whom no cohort may exist; and
    in drawing the tied block first instead of listing rows, which gives the same
    distribution (docs/errata.md).
    """
    n, k, t = sizes_as_data(num_clients, cohort_size, privacy_target)
    by_use = {"least_used": 1, "uniform": 0, "greedy": k // t}
    return _build(
        n, t, k // t, by_use[check_known(fairness, "fairness", by_use, "a known mode")]
    )
