"""The bound of a block on what a client *is*, after any number of rounds.

An update drifts, but an attribute of a client does not: whether it holds a label, which
hospital it is, whether a record is among its data. If the T mates of a block are alike
in advance, and every sum holds all of them with equal weights or none, the server's
view depends on their data only as a multiset. So no test of one mate's attribute is
better than the best one that knows how many of the mates have it.

Symbols: m = T - c mates who do not collude, q the share of clients with the attribute,
B ~ Bin(m - 1, q) the number of other mates with it, z_k = P(B = k).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from mrsa_jax._core.factories import nan_unless
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import check_integer, check_number, require

_LARGEST_TRACED = 256
"""The largest T of a traced bound, whose curves all have this many points."""

_RARE = 0.01
_FEW_ALARMS = 0.01


@pytree
class AttributeBound:
    """The best test of whether a client of a block has an attribute, as its ROC curve.

    Tests that draw a coin between two thresholds are on the straight line between their
    points. `attribute_bound` returns it.

    Attributes:
        false_positive_rates: float64 [points], from 0 to 1: the chance that the test
            says "yes" of a client without the attribute.
        true_positive_rates: float64 [points], of a client with the attribute.
        auc: Area under the curve: the chance to tell a client with the attribute from
            one without it; 1/2 is guessing.
        advantage: Largest difference of both rates; 0 is guessing.
    """

    false_positive_rates: Any
    true_positive_rates: Any
    auc: Any
    advantage: Any

    def true_positive_rate(self, false_positive_rate: Any) -> Any:
        """Return the largest share of true positives at a share of false positives.

        Examples:
            >>> import mrsa_jax as mj
            >>> round(mj.privacy.attribute_bound(4).true_positive_rate(0.01), 4)
            0.155
        """
        curve = self.false_positive_rates, self.true_positive_rates
        if is_traced(false_positive_rate, curve):
            return jnp.interp(false_positive_rate, *curve)
        rule = "must be a number from 0 to 1"
        rate = check_number(false_positive_rate, "false_positive_rate", rule, 0.0, 1.0)
        false_rates, true_rates = map(np.asarray, curve)
        return float(np.interp(rate, false_rates, true_rates))


def attribute_bound(
    privacy_target: Any, prevalence: Any = 0.5, colluders: Any = 0
) -> AttributeBound:
    """Bound every test of a client's attribute from sums over whole blocks.

    It holds after any number of rounds, for any models and cohorts that the server
    chooses, and for any computing power, **if** the mates of a block are alike in
    advance (given all other clients, their data and coins are independent and
    identically distributed), all of them get the same models, each sum holds all of
    them with equal weights or none, and which of them are absent does not depend on
    their data and coins. The server may know everything about all other clients.

    The attribute is any bit that depends on the client's data alone. Let S be the
    number of mates with it: 1 + B for a client with the attribute, B for one without.
    The likelihood ratio of S = k is k(1 - q) / ((m - k) q), which rises with k, so the
    best test says "yes" from some k on. Hence

        TPR_k = P(B >= k - 1),  FPR_k = P(B >= k),  advantage = max_k z_k,
        AUC = 1/2 + C(2m, m) / 4^m at q = 1/2, about 1/2 + 1/sqrt(pi m).

    A block hides nothing rare: at q = .01, T = 12 leaves a TPR of .148 at an FPR of
    .01.

    Args:
        privacy_target: T, the size of the block (strong T of a history).
        prevalence: q in (0, 1), the share of clients with the attribute.
        colluders: c, the mates who tell the server their data, 0 to T - 1.

    Returns:
        The curve and its figures, in float64. `privacy_target` and `prevalence` may be
        traced: then arrays of JAX's float type, and NaN where one is out of range. A
        traced T is at most 256, and its curves have 258 points.

    Raises:
        ConfigurationError: If an argument is of another type or out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> bound = mj.privacy.attribute_bound(4)
        >>> round(bound.auc, 4), round(bound.advantage, 4)
        (0.7734, 0.375)
        >>> round(mj.privacy.attribute_bound(4, prevalence=0.01).auc, 4)
        0.9854

    Source: this package's. The server's view is a function of the multiset of the
    mates' data, since exchanging two mates changes no sum; the rest is Neyman and
    Pearson's lemma.
    """
    if is_traced(privacy_target, prevalence, colluders):
        return _traced(privacy_target, prevalence, colluders)
    from scipy import special  # `scipy.stats` would take most of a second

    target = check_integer(privacy_target, "privacy_target", 1)
    rule = "must be a number between 0 and 1, without both ends"
    least = float(np.finfo(np.float64).tiny)
    q = check_number(prevalence, "prevalence", rule, least, 1.0 - 2.0**-53)
    mates = target - check_integer(colluders, "colluders", 0, target - 1)
    # z_k, k = 0 .. m - 1, and P(B >= k), k = 0 .. m
    others = mates - 1
    k = np.arange(mates)
    logs = special.gammaln(mates) - special.gammaln(k + 1)
    logs -= special.gammaln(mates - k)
    logs += k * np.log(q) + (others - k) * np.log1p(-q)
    chances = np.exp(logs)
    # P(B >= k) is I_q(k, m - k) for k of 1 to m - 1
    inner = special.betainc(k[1:], mates - k[1:], q)
    tails = np.concatenate([[1.0], inner, [0.0]])
    bound = _curve(chances, tails, np)
    return dataclasses.replace(
        bound, auc=float(bound.auc), advantage=float(bound.advantage)
    )


def _traced(privacy_target: Any, prevalence: Any, colluders: Any) -> AttributeBound:
    """Compute the bound in a program, of all k that a traced T may have."""
    if is_traced(privacy_target, colluders):
        most = _LARGEST_TRACED
    else:
        most = check_integer(privacy_target, "privacy_target", 1)
    mates = jnp.asarray(privacy_target) - jnp.asarray(colluders)
    rule = "must be an integer; got an array of floats"
    require(jnp.issubdtype(mates.dtype, jnp.integer), "privacy_target", rule)
    q = jnp.asarray(prevalence, float)
    is_legal = (q > 0) & (q < 1)
    is_legal &= (mates >= 1) & (jnp.asarray(colluders) >= 0)
    is_legal &= jnp.asarray(privacy_target) <= most
    others = jnp.clip(mates, 1, most).astype(q.dtype) - 1
    counts = jnp.arange(most, dtype=q.dtype)
    is_possible = counts <= others
    # numbers beyond the block would have no logarithm, nor a slope
    k = jnp.where(is_possible, counts, 0)
    safe = jnp.where(is_legal, q, 0.5)
    logs = gammaln(others + 1) - gammaln(k + 1) - gammaln(others - k + 1)
    logs += k * jnp.log(safe) + (others - k) * jnp.log1p(-safe)
    chances = jnp.where(is_possible, jnp.exp(logs), 0.0)
    sums = jnp.cumsum(chances[::-1])[::-1]
    tails = jnp.concatenate([jnp.minimum(sums, 1.0).at[0].set(1.0), jnp.zeros(1)])
    bound = _curve(chances, tails, jnp)
    return jax.tree.map(lambda value: nan_unless(is_legal, value), bound)


def _curve(
    chances: Float[np.ndarray | Array, " mates"],
    tails: Float[np.ndarray | Array, " points"],
    library: Any,
) -> AttributeBound:
    """Build the bound from z_k and P(B >= k).

    The thresholds fall from m + 1, where the test never says "yes", to 0.
    """
    falling = tails[::-1]
    false_rates = library.concatenate([library.zeros(1), falling])
    true_rates = library.concatenate([falling, library.ones(1)])
    means = (true_rates[1:] + true_rates[:-1]) / 2
    area = (means * library.diff(false_rates)).sum()
    return AttributeBound(false_rates, true_rates, area, chances.max())


def smallest_target(
    prevalence: float = 0.5,
    *,
    max_auc: float = 1.0,
    max_advantage: float = 1.0,
    most: int = 2**20,
) -> int | None:
    """Find the least T whose bound is at most an AUC and an advantage.

    Returns:
        T without colluders, or None if it exceeds `most`.

    Examples:
        >>> import mrsa_jax as mj
        >>> [mj.privacy.smallest_target(max_auc=auc) for auc in (0.75, 0.7, 0.6)]
        [5, 8, 32]
    """

    def is_enough(target: int) -> bool:
        bound = attribute_bound(target, prevalence)
        return bool(bound.auc <= max_auc and bound.advantage <= max_advantage)

    # both figures fall as T rises: double it, then halve the interval
    high = 1
    while not is_enough(high):
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def bound_in_words(
    targets: int | Mapping[str, int], colluders: int = 0, prevalence: float = 0.5
) -> str:
    """State the bound of a block with its conditions and its limit in one sentence.

    Args:
        targets: T, the size of the block; or that of several schemes by their names.
        colluders: c, the mates who tell the server their data.
        prevalence: q of the AUC that is stated.

    Raises:
        ConfigurationError: As `attribute_bound`.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.bound_in_words(4).split(", ")[0]
        'no test of what one of them is does better than AUC .773'
    """
    schemes = targets if isinstance(targets, Mapping) else {"": targets}
    areas = {}
    detected = {}
    for name, target in schemes.items():
        area = attribute_bound(target, prevalence, colluders).auc
        rare = attribute_bound(target, _RARE, colluders)
        areas[name] = f"{area:.3f}"
        detected[name] = f"{rare.true_positive_rate(_FEW_ALARMS):.2f}"
    held = "half" if prevalence == 0.5 else f"{100 * prevalence:.3g} %"
    return (
        f"no test of what one of them is does better than AUC {_by_scheme(areas)}, "
        "after any number of rounds, if mates always take part together, are alike in "
        f"advance and all get one model, and {held} of the clients are so; a property "
        "that one client in a hundred has stays visible "
        f"(TPR {_by_scheme(detected)} at FPR .01)"
    )


def _by_scheme(rates: Mapping[str, str]) -> str:
    """Join rates, each with the name of its scheme if there are several."""
    return " and ".join(
        rate.removeprefix("0") + (f" under {name}" if name else "")
        for name, rate in rates.items()
    )
