"""Bernoulli selection: every available client joins by its own coin.

Source: Multi-RoundSecAgg (AAAI version), Appendix H.1 (i.i.d. random selection).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int32

from mrsa_jax._core import streams as _chance
from mrsa_jax._core.array_types import Counts, Flags, Numbers, PerClient, TrialKeys
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax._core.factories import also_traced, is_whole, unless_traced
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import Calls, pytree, static
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.traced import is_traced
from mrsa_jax.selection._ranking import Steps, Words, by_key
from mrsa_watch._base.errors import check_integer, check_size, require
from mrsa_watch._base.values import by_value


@pytree
class BernoulliSelection:
    """Every available client joins independently; build it with `bernoulli`.

    Attributes:
        threshold: uint32, one for all clients or [N] (`poisson`); a client joins when
            its word is below; the largest value: always.
        num_clients: N, static.
    """

    cites = "selection of clients: so2023securing"

    threshold: Array
    num_clients: int = static()
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False
    joins_alone: ClassVar[bool] = True

    def typed(self) -> Calls:
        """Return the call that may have made it."""
        scheme = poisson if self.threshold.ndim else bernoulli
        return [(scheme, self.num_clients, _chance.chances_typed(self.threshold))]

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
        """Return the available clients whose coin came up, and the new state.

        Takes trials as trailing axes (of `counts` too).
        """
        return self._choose(None, by_key(key, self.num_clients), state, available)

    def _choose(
        self,
        steps: Steps | None,
        words: Words,
        state: SelectorState,
        available: Array,
    ) -> tuple[Array, SelectorState]:
        """Choose as `select` does."""
        del steps
        cohort = available & _chance.happens(words(0), self.threshold)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))

    def chances(self, dropout_rates: np.ndarray) -> PerClient:
        """Return each client's chance to be in a round.

        Rounds are independent and alike.
        """
        return (1.0 - dropout_rates) * _chance.threshold_chance(
            np.asarray(self.threshold)
        )

    def cardinality(self, dropout_rates: np.ndarray) -> tuple[float, float]:
        """Return mean and deviation of a Poisson-binomial number.

        It counts as 0 where it is 1: a sum of one is withheld.
        """
        chances = self.chances(dropout_rates)
        # P(exactly one joins) is P(none) times the sum of odds, unless some surely join
        certain = chances == 1
        others = 1 - chances[~certain]
        nobody = float(others.prod())
        if certain.sum() == 0:
            single = nobody * float((chances / others).sum())
        else:
            single = nobody if certain.sum() == 1 else 0.0
        mean = float(chances.sum())
        square = float((chances * (1 - chances)).sum()) + mean**2 - single
        return mean - single, float(np.sqrt(max(square - (mean - single) ** 2, 0.0)))


@also_traced
def bernoulli(num_clients: int, probability: ArrayLike) -> BernoulliSelection:
    """Return Bernoulli selection.

    Each available client joins with one chance, independently.
    The only scheme here whose sums vary in size; the model of Theorem 3, in which a
    square participation matrix is almost surely invertible.

    Args:
        num_clients: N >= 1.
        probability: Chance to join when available, in [0, 1]; rounded to a multiple of
            2^-32.

    Returns:
        A selector.

    Raises:
        ConfigurationError: If N is not a positive integer or the chance outside [0, 1]
            or NaN.

    Examples:
        >>> import mrsa_jax as mj
        >>> everybody = mj.selection.rollout(
        ...     0,
        ...     mj.selection.bernoulli(4, 1.0),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=2,
        ... )
        >>> bool(everybody.all())
        True

    Source: Multi-RoundSecAgg (AAAI version), Appendix H.1 and Theorem 3.
    """
    n = check_size(num_clients, "num_clients")
    chance = _chance.check_chances(probability, "probability", as_data=True)
    require(
        chance.ndim == 0, "probability", "must be one number", f"shape {chance.shape}"
    )
    return BernoulliSelection(on_device(_chance.threshold(chance)), n)


# The sampling that differentially private training assumes; with one chance for all it
# is Bernoulli selection (survey statistics keep "Poisson" for unequal chances).


@also_traced
def poisson(num_clients: int, probability: Numbers) -> BernoulliSelection:
    """Return Poisson sampling.

    Each available client joins independently, with its own chance.
    The same scheme as `bernoulli`, which it equals draw for draw when one chance serves
    all; in addition chances may differ, e.g. be proportional to sample counts.

    Args:
        num_clients: N >= 1.
        probability: Chance to join when available, in [0, 1]: a number, or [N] of them;
            rounded to multiples of 2^-32.

    Returns:
        A selector; sums vary in size, and nobody may join.

    Raises:
        ConfigurationError: If N is not a positive integer, a chance is outside [0, 1]
            or NaN, or the chances are not N.

    Examples:
        >>> import mrsa_jax as mj
        >>> online = mj.availability.independent(0.2)
        >>> ours = mj.selection.rollout(
        ...     0, mj.selection.poisson(6, 0.5), online, num_rounds=9
        ... )
        >>> theirs = mj.selection.rollout(
        ...     0, mj.selection.bernoulli(6, 0.5), online, num_rounds=9
        ... )
        >>> bool((ours == theirs).all())
        True

    Source: none of the papers for unequal chances; for equal ones Multi-RoundSecAgg
    (AAAI version), Appendix H.1 ("I.I.D. random selection").
    """
    n = check_size(num_clients, "num_clients")
    chances = _chance.check_chances(probability, "probability", as_data=True)
    require(
        chances.ndim == 0 or chances.size == n,
        "probability",
        "must be one number or one for each client",
        f"{chances.size} numbers, {n} clients",
    )
    return BernoulliSelection(on_device(_chance.threshold(chances)), n)


@by_value
class BinsState(NamedTuple):
    """State of balls in bins between rounds.

    Attributes:
        counts: int32[N], rounds in whose sum each client was.
        bins: int32[N], the bin of each client, drawn in the first round, or that of an
            epoch.
        played: int32, rounds so far.
    """

    counts: Counts
    bins: Counts
    played: Int32[Array, "*trials"]


@pytree
class BinSelection:
    """Clients take part once in each epoch of b rounds; build it with the factory.

    Attributes:
        num_bins: int32 scalar, b; 0 asks nobody.
        num_clients: N, static.
        fresh: Whether bins are drawn in each epoch, static.
    """

    num_bins: Array
    num_clients: int = static()
    fresh: bool = static(default=False)
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False
    joins_alone: ClassVar[bool] = True

    def typed(self) -> Calls:
        """Return the call that may have made it."""
        return [(balls_in_bins, self.num_clients, int(self.num_bins))]

    @property
    def separation(self) -> Array:
        """int32 scalar, least difference of two rounds of one client."""
        return jnp.int32(1) if self.fresh else self.num_bins

    def init(self) -> BinsState:
        """Return the state before the first round, in which bins are drawn."""
        nothing = zeros(self.num_clients, jnp.int32)
        return BinsState(nothing, nothing, jnp.int32(0))

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: BinsState,
        available: Flags,
    ) -> tuple[Flags, BinsState]:
        """Return the available clients whose bin has its turn, and the new state.

        Takes trials as trailing axes.
        """
        return self._choose(None, by_key(key, self.num_clients), state, available)

    def _choose(
        self,
        steps: Steps | None,
        words: Words,
        state: BinsState,
        available: Array,
    ) -> tuple[Array, BinsState]:
        """Choose as `select` does."""
        del steps
        bins = jnp.maximum(self.num_bins, 1)
        drawn = words(0) % bins.astype(jnp.uint32)
        turn = state.played % bins
        is_first = (turn if self.fresh else state.played) == 0
        # in later rounds what was drawn in the first one holds
        bins = jnp.where(is_first[None], drawn.astype(jnp.int32), state.bins)
        cohort = available & (bins == turn[None]) & (self.num_bins > 0)
        return cohort, BinsState(
            state.counts + cohort.astype(jnp.int32), bins, state.played + 1
        )


@also_traced
def balls_in_bins(
    num_clients: int,
    num_bins: int | Array,
    *,
    fresh: bool = False,
) -> BinSelection:
    """Return the scheme in which each client draws one of b bins, uniformly, by itself.

    In round j, from 0, those of bin j mod b are asked: an epoch of b rounds asks
    everybody once. Sums vary in size. Differential privacy is amplified by the unknown
    bin against who sees models only: more by bins that are drawn in each epoch, as then
    one epoch says nothing of another. Bins drawn once keep a minimum separation of b.

    Args:
        num_clients: N >= 1.
        num_bins: b, from 1 to 2^16; the chances of bins differ by less than 2^-16 of
            their size.
        fresh: Whether each epoch draws them; else the order stays that of the first.

    Returns:
        A selector; b is data.

    Raises:
        ConfigurationError: If a size is no positive integer, there are too many bins,
            or `fresh` is no bool.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0,
        ...     mj.selection.balls_in_bins(9, 3),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=6,
        ... )
        >>> history[:3].sum(axis=0).tolist(), bool((history[:3] == history[3:]).all())
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], True)
        >>> drawn = mj.selection.rollout(
        ...     0,
        ...     mj.selection.balls_in_bins(9, 3, fresh=True),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=6,
        ... )
        >>> drawn[3:].sum(axis=0).tolist(), bool((drawn[:3] == drawn[3:]).all())
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], False)

    Source: none of the papers; Chua, Ghazi, Harrison, Kamath, Kumar, Leeman,
    Manurangsi, Sinha, Zhang, "Balls-and-bins sampling for DP-SGD" (2024); bins of each
    epoch: Feldman, Shenfeld, "Privacy amplification by random allocation" (2025).
    """
    n = check_size(num_clients, "num_clients")
    require(isinstance(fresh, bool), "fresh", "must be True or False", fresh)
    bins = unless_traced(check_integer, num_bins, "num_bins", 1, 2**16)
    if is_traced(bins):
        bins = jnp.where(is_whole(bins, 1, 2**16), bins, 0)
    return BinSelection(jnp.int32(bins), n, fresh)
