"""Bernoulli selection: every available client joins by its own coin.

Source: Multi-RoundSecAgg (AAAI version), Appendix H.1 (i.i.d. random selection).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float64, Key

from mrsa_jax._core import streams as _chance
from mrsa_jax._core.arrays import on_device, one_program, pytree, zeros
from mrsa_jax._core.factories import also_traced
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.streams import client_words
from mrsa_watch._base.errors import check_size, require


@pytree
class BernoulliSelection:
    """Every available client joins independently; build it with `bernoulli`.

    Attributes:
        threshold: uint32, one for all clients or [N] (`poisson`); a client joins when its word is
            below; the largest value: always.
        num_clients: N, static.
    """

    cites = "selection of clients: so2023securing"

    threshold: Array
    num_clients: int = dataclasses.field(metadata={"static": True})
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False
    joins_alone: ClassVar[bool] = True

    def typed(self) -> list[tuple[Any, ...]]:
        """Return the call that may have made it."""
        scheme = poisson if self.threshold.ndim else bernoulli
        return [(scheme, self.num_clients, _chance.chances_typed(self.threshold))]

    def init(self) -> SelectorState:
        """Return the state before the first round: nobody has taken part."""
        return SelectorState(zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: Key[Array, "*trials"],
        state: SelectorState,
        available: Bool[Array, " clients *trials"],
    ) -> tuple[Bool[Array, " clients *trials"], SelectorState]:
        """Return the available clients whose coin came up, perhaps nobody, and the new state.

        Takes trials as trailing axes (of `counts` too).
        """
        words = client_words(key, self.num_clients)
        cohort = available & _chance.happens(words, self.threshold)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))

    def chances(self, dropout_rates: np.ndarray) -> Float64[np.ndarray, " clients"]:
        """Return each client's chance to be in a round, the same and independent in all rounds."""
        return (1.0 - dropout_rates) * _chance.threshold_chance(np.asarray(self.threshold))

    def cardinality(self, dropout_rates: np.ndarray) -> tuple[float, float]:
        """Return mean and deviation of a Poisson-binomial number that counts as 0 where it is 1.

        A sum of one is withheld.
        """
        chances = self.chances(dropout_rates)
        certain = chances == 1
        others = 1 - chances[~certain]
        nobody = float(others.prod())
        if certain.sum() == 0:
            one = nobody * float((chances / others).sum())
        else:
            one = nobody if certain.sum() == 1 else 0.0
        mean = float(chances.sum())
        square = float((chances * (1 - chances)).sum()) + mean**2 - one
        return mean - one, float(np.sqrt(max(square - (mean - one) ** 2, 0.0)))


@also_traced
def bernoulli(num_clients: int, probability: ArrayLike) -> BernoulliSelection:
    """Return Bernoulli selection: each available client joins with one chance, independently.

    The only scheme here whose sums vary in size; the model of Theorem 3, in which a square
    participation matrix is almost surely invertible.

    Args:
        num_clients: N >= 1.
        probability: Chance to join when available, in [0, 1]; rounded to a multiple of 2^-32.

    Returns:
        A selector.

    Raises:
        ConfigurationError: If N is not a positive integer or the chance outside [0, 1] or NaN.

    Examples:
        >>> import mrsa_jax as mj
        >>> everybody = mj.selection.rollout(
        ...     0, mj.selection.bernoulli(4, 1.0), mj.availability.independent(0.0), num_rounds=2)
        >>> bool(everybody.all())
        True

    Source: Multi-RoundSecAgg (AAAI version), Appendix H.1 and Theorem 3.
    """
    n = check_size(num_clients, "num_clients")
    chance = _chance.check_chances(probability, "probability", as_data=True)
    require(chance.ndim == 0, "probability", "must be one number", f"shape {chance.shape}")
    return BernoulliSelection(on_device(_chance.threshold(chance)), n)


# ---- Poisson sampling: every available client joins by its own coin, perhaps each with its own
# chance.
#
# The sampling that differentially private training assumes; with one chance for all it is
# Bernoulli selection (survey statistics keep "Poisson" for unequal chances).


@also_traced
def poisson(num_clients: int, probability: ArrayLike | Sequence[float | int]) -> BernoulliSelection:
    """Return Poisson sampling: each available client joins independently, with its own chance.

    The same scheme as `bernoulli`, which it equals draw for draw when one chance serves all;
    in addition chances may differ, e.g. be proportional to sample counts.

    Args:
        num_clients: N >= 1.
        probability: Chance to join when available, in [0, 1]: a number, or [N] of them; rounded
            to multiples of 2^-32.

    Returns:
        A selector; sums vary in size, and nobody may join.

    Raises:
        ConfigurationError: If N is not a positive integer, a chance is outside [0, 1] or NaN, or
            the chances are not N.

    Examples:
        >>> import mrsa_jax as mj
        >>> online = mj.availability.independent(0.2)
        >>> ours = mj.selection.rollout(0, mj.selection.poisson(6, 0.5), online, num_rounds=9)
        >>> theirs = mj.selection.rollout(0, mj.selection.bernoulli(6, 0.5), online, num_rounds=9)
        >>> bool((ours == theirs).all())
        True

    Source: none of the papers for unequal chances; for equal ones Multi-RoundSecAgg (AAAI
        version), Appendix H.1 ("I.I.D. random selection").
    """
    n = check_size(num_clients, "num_clients")
    chances = _chance.check_chances(probability, "probability", as_data=True)
    rule = "must be one number or one for each client"
    fits = chances.ndim == 0 or chances.size == n
    require(fits, "probability", rule, f"{chances.size} numbers, {n} clients")
    return BernoulliSelection(on_device(_chance.threshold(chances)), n)
