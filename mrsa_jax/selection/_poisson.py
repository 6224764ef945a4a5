"""Poisson sampling: every available client joins by its own coin, perhaps each with its own chance.

The sampling that differentially private training assumes; with one chance for all it is
Bernoulli selection (survey statistics keep "Poisson" for unequal chances).
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.typing import ArrayLike

from mrsa_jax import _chance
from mrsa_jax._arrays import on_device
from mrsa_jax._checks import check_size
from mrsa_jax._errors import require
from mrsa_jax._tracing import needs_values
from mrsa_jax.selection._bernoulli import BernoulliSelection


@needs_values
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
        >>> ours = mj.selection.rollout(0, poisson(6, 0.5), online, num_rounds=9)
        >>> theirs = mj.selection.rollout(0, mj.selection.bernoulli(6, 0.5), online, num_rounds=9)
        >>> bool((ours == theirs).all())
        True

    Source: none of the papers for unequal chances; for equal ones Multi-RoundSecAgg (AAAI
        version), Appendix H.1 ("I.I.D. random selection").
    """
    n = check_size(num_clients, "num_clients")
    chances = _chance.check_chances(probability, "probability")
    rule = "must be one number or one for each client"
    fits = chances.ndim == 0 or chances.size == n
    require(fits, "probability", rule, f"{chances.size} numbers, {n} clients")
    return BernoulliSelection(on_device(_chance.threshold(chances)), n)
