"""Closed forms: family sizes, small families in full, and the expected size of a round's sum.

Source: Multi-RoundSecAgg (AAAI version), Section 4 (R_BP) and Theorem 1. Everything here
is NumPy and Python integers: exact, or float64.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float64, Int32, Key

from mrsa_jax._arrays import integer_or_vector, zeros
from mrsa_jax._chance import check_chances
from mrsa_jax._checks import check_size
from mrsa_jax._errors import require
from mrsa_jax._html import brief
from mrsa_jax._selector import Selector, check_selector
from mrsa_jax._tracing import one_program
from mrsa_jax.selection._checks import check_sizes


def family_size(num_clients: int, cohort_size: int, privacy_target: int) -> int:
    """Return how many cohorts batch partitioning can choose from: C(N/T, K/T), exactly.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T; 1 counts the cohorts of random selection, K those of user partition.

    Returns:
        R_BP as a Python integer.

    Raises:
        ConfigurationError: If a size is not a positive integer, K > N, or T divides not both.

    Examples:
        >>> family_size(120, 12, 3)  # the paper's Table 1 misprints 91389
        91390

    Source: Multi-RoundSecAgg, Section 4, and Table 1 with its erratum (docs/errata.md).
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    return math.comb(n // t, k // t)


def enumerate_family(
    num_clients: int, cohort_size: int, privacy_target: int, max_rows: int = 100_000
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
        >>> enumerate_family(8, 4, 2).astype(int)[:2].tolist()
        [[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0]]

    Source: Multi-RoundSecAgg, Algorithm 1; Figure 2 is the family of (8, 4, 2).
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    cap = check_size(max_rows, "max_rows")
    size = family_size(n, k, t)
    require(size <= cap, "max_rows", "must be at least the size of the family", cap, size)
    chosen = np.array(list(itertools.combinations(range(n // t), k // t)), dtype=np.int64)
    blocks = np.zeros((size, n // t), dtype=np.bool_)
    blocks[np.arange(size)[:, None], chosen] = True
    return np.repeat(blocks, t, axis=1)


def expected_cardinality(
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    dropout_rate: ArrayLike | Sequence[float | int],
    *,
    blocks: ArrayLike | Sequence[int] | None = None,
) -> float:
    """Return C, the expected number of clients in a round's sum.

    A round sums K clients if at least K/T blocks are fully available, else none:
    C = K · P(B >= K/T), where B counts the available blocks; block b is available with chance
    prod over its clients of (1 - p_i). Holds for every fairness mode; T = 1 gives random and
    weighted random selection, T = K user partition.

    Args:
        num_clients: N, a multiple of T.
        cohort_size: K, a multiple of T.
        privacy_target: T.
        dropout_rate: p in [0, 1], or one for each client, [N].
        blocks: The block of each client, integers [N], each block T times; i // T by default.

    Returns:
        C in [0, K], float64, relative error about N · 1e-16 (only positive terms are added).

    Raises:
        ConfigurationError: If a size is wrong (as `family_size`), or a rate is NaN or outside
            [0, 1], or the rates are not N, or a block does not have T clients.

    Examples:
        >>> round(expected_cardinality(120, 12, 12, 0.1), 10)
        11.5656630406
        >>> expected_cardinality(8, 4, 2, 0.0)
        4.0

    Cost: O(N/T · K/T).

    Source: Multi-RoundSecAgg, Theorem 1 (equal rates); the Poisson-binomial form for mixed rates
        is this package's: with mixed rates C depends on who shares a block.
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    rates = check_chances(dropout_rate, "dropout_rate")
    if rates.ndim == 1:
        rule = "must hold one rate for each client"
        require(rates.size == n, "dropout_rate", rule, f"{rates.size} rates, {n} clients")
    online = 1.0 - np.broadcast_to(rates, (n,))
    if blocks is not None:
        online = online[_by_block(blocks, n, t)]
    chances = np.prod(online.reshape(n // t, t), axis=1)
    return k * _at_least(chances, k // t)


def all_or_none(
    num_clients: int, cohort_size: Any, block_size: Any, dropout_rates: np.ndarray
) -> tuple[float, float]:
    """Return mean and standard deviation of a sum of K clients in whole blocks, or of nobody.

    It is K times a Bernoulli variable, whatever available blocks are chosen.
    """
    k = int(cohort_size)
    mean = expected_cardinality(num_clients, k, int(block_size), dropout_rates)
    share = min(max(mean / k, 0.0), 1.0)
    return mean, float(k * np.sqrt(share * (1 - share)))


def block_chances(dropout_rates: np.ndarray, size: int) -> Float64[np.ndarray, " blocks"]:
    """Return the chance that all clients of each block are available."""
    return np.prod(1.0 - np.asarray(dropout_rates, np.float64).reshape(-1, size), axis=1)


def chances_of_some(available: np.ndarray, wanted: int) -> Float64[np.ndarray, " blocks"]:
    """Return each block's chance to be among `wanted` drawn uniformly from the available ones.

    None is drawn where fewer are available. With A the number of the other available blocks it is
    a_b E[1{A + 1 >= k} k / (A + 1)]. The expectation over all blocks but one is the product of the
    law of those before it with that of those behind: only positive terms are added.

    Args:
        available: float64[M], chance of each block to be available, independently.
        wanted: k, from 1 to M.

    Cost: O(M^2) in time; 8 M^2 bytes where chances differ.
    """
    count = len(available)
    with_it = np.arange(1, count + 1)  # available blocks, this one among them
    share = np.where(with_it >= wanted, wanted / with_it, 0.0)
    if (available == available[0]).all():
        from scipy import stats

        others = stats.binom.pmf(np.arange(count), count - 1, available[0])
        return np.full(count, available[0] * float(others @ share))
    before = np.zeros((count, count))  # [b, a]: chance that a of the blocks before b are available
    before[0, 0] = 1.0
    for place, chance in enumerate(available[:-1].tolist()):
        before[place + 1] = before[place] * (1.0 - chance)
        before[place + 1, 1:] += before[place, :-1] * chance
    found, behind = np.empty(count), share  # [a]: mean share with a before this block
    for place in range(count - 1, -1, -1):
        chance = float(available[place])
        found[place] = chance * float(before[place, : place + 1] @ behind[: place + 1])
        following = np.append(behind[1:], 0.0)
        behind = (1.0 - chance) * behind + chance * following
    return found


def _by_block(blocks: Any, n: int, t: int) -> np.ndarray:
    """Return the clients sorted by block, or raise unless every block has T of them."""
    labels = integer_or_vector(blocks, "blocks")
    rule = "must hold one integer for each client"
    require(labels.ndim == 1 and labels.size == n, "blocks", rule, f"shape {labels.shape}")
    names, sizes = np.unique(labels, return_counts=True)
    wrong = sizes != t
    rule = "must name each block as often as `privacy_target`"
    got = [f"block {names[wrong][0]}: {sizes[wrong][0]} times", t] if wrong.any() else []
    require(not wrong.any(), "blocks", rule, *got)
    return np.argsort(labels, kind="stable")


def _at_least(chances: np.ndarray, m: int) -> float:
    """Return P(at least m of independent events happen), from above and below by recurrence.

    `law[i]` is the chance of exactly i < m events so far and `reached` that of m or more: sums
    and products of non-negative numbers, so nothing cancels.
    """
    law = np.zeros(m)
    law[0] = 1.0
    reached = 0.0
    for chance in chances.tolist():
        reached += law[-1] * chance
        law[1:] = law[1:] * (1.0 - chance) + law[:-1] * chance
        law[0] *= 1.0 - chance
    missed = float(law.sum())
    return reached if reached < 0.5 else 1.0 - missed


# ---- Minimum separation: whoever took part rests for some rounds, under any other scheme.
#
# What deployed systems and differentially private training with correlated noise ask of a schedule
# ("b-min-separated participation"). A wrapper: the scheme inside sees rested clients only.


class SeparationState(NamedTuple):
    """What minimum separation remembers between rounds.

    Attributes:
        inner: State of the scheme inside.
        rest: int32[N], further rounds in which each client may not be asked.
    """

    inner: Any
    rest: Int32[Array, " clients *trials"]

    @property
    def counts(self) -> Int32[Array, " clients *trials"]:
        """Rounds in whose sum each client was."""
        return self.inner.counts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SeparatedSelection:
    """A scheme that asks only rested clients; build it with `minimum_separation`.

    Attributes:
        selector: The scheme inside.
        separation: int32 scalar, b: least difference of two rounds of one client.
    """

    __repr__ = brief

    selector: Any
    separation: Array

    @property
    def num_clients(self) -> int:
        """N."""
        return self.selector.num_clients

    @property
    def cohort_size(self) -> Any:
        """K of the scheme inside, if it has one."""
        return self.selector.cohort_size

    @property
    def block_size(self) -> Any:
        """T of the scheme inside, whose blocks rest as a whole, if it has any."""
        return self.selector.block_size

    @property
    def privacy_target(self) -> Any:
        """Weak T that the scheme inside keeps, if it states one."""
        return self.selector.privacy_target

    @property
    def depends_on_data(self) -> Any:
        """Whether the scheme inside looks at what clients have learnt, if it says."""
        return self.selector.depends_on_data

    @property
    def joins_alone(self) -> bool:
        """Whether clients join by coins of their own: rest is each one's own matter."""
        return getattr(self.selector, "joins_alone", False)

    @property
    def of_blocks(self) -> Callable[[], SeparatedSelection]:
        """Returns the same scheme over blocks as clients, if the one inside can."""
        inside = self.selector.of_blocks
        return lambda: SeparatedSelection(inside(), self.separation)

    @property
    def takes_trials(self) -> bool:
        """Whether the scheme inside takes trials as trailing axes."""
        return getattr(self.selector, "takes_trials", False)

    def init(self) -> SeparationState:
        """Return the state before the first round: everybody is rested."""
        return SeparationState(self.selector.init(), zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: Key[Array, "*trials"],
        state: SeparationState,
        available: Bool[Array, " clients *trials"],
    ) -> tuple[Bool[Array, " clients *trials"], SeparationState]:
        """Return the inner scheme's cohort among the available clients who are rested.

        A skipped round counts as a round of rest.
        """
        cohort, inner = self.selector.select(key, state.inner, available & (state.rest == 0))
        rest = jnp.where(cohort, self.separation - 1, jnp.maximum(state.rest - 1, 0))
        return cohort, SeparationState(inner, rest)


def minimum_separation(selector: Selector, separation: int) -> SeparatedSelection:
    """Return a scheme in which a client takes part at most once in any b consecutive rounds.

    Wraps any scheme: `minimum_separation(uniform(N, K), b)` picks K uniformly among the
    available clients who did not take part in the last b - 1 rounds; around
    `batch_partitioning` blocks rest as a whole and T is kept. The scheme inside skips a round in
    which it finds too few rested clients; with cohorts of K that happens for ever and ever where
    b K > N, whatever the availability.

    Args:
        selector: The scheme inside.
        separation: b >= 1, least difference of two rounds in which a client takes part; 1 leaves
            the scheme as it is.

    Returns:
        A selector; b is data.

    Raises:
        ConfigurationError: If `selector` is none, or b is no positive integer.

    Examples:
        >>> import mrsa_jax as mj
        >>> scheme = minimum_separation(mj.selection.uniform(6, 2), 3)
        >>> history = mj.selection.rollout(0, scheme, mj.availability.independent(0.0), 6)
        >>> history.reshape(2, 3, 6).sum(axis=1).tolist()  # everybody once in three rounds
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]

    Source: none of the papers; Choquette-Choo et al., "(Amplified) Banded Matrix Factorization"
        (2023), Definition of b-min-separation.
    """
    check_selector(selector)
    b = check_size(separation, "separation")
    return SeparatedSelection(selector, jnp.int32(b))
