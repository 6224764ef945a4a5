"""Clients who drop out of each round independently, each at its own rate.

Multi-RoundSecAgg (AAAI version), Section 4: client i is available with chance 1 - p_i,
independently over clients and rounds. p_i -> `dropout_rate`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._arrays import on_device
from mrsa_jax._chance import check_chances, happens, spread, threshold, threshold_chance
from mrsa_jax._checks import check_count
from mrsa_jax._errors import ConfigurationError, nearest, require
from mrsa_jax._html import brief
from mrsa_jax._streams import as_key, client_words
from mrsa_jax._tracing import needs_values, one_program

_WAYS = ("shuffled", "cyclic", "sorted")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Independent:
    """Independent dropouts; built by `independent`.

    Attributes:
        thresholds: uint32, one for all clients or [N]: a client is away in a round when its word is
            below, so that rates are exact to 2**-32.
    """

    __repr__ = brief

    thresholds: Array
    takes_trials: ClassVar[bool] = True

    @property
    def dropout_rates(self) -> np.ndarray:
        """float64 of the thresholds' shape: chance to be offline, the same in every round."""
        return threshold_chance(np.asarray(self.thresholds))

    def for_clients(self, num_clients: int) -> Independent:
        """Return the model with a rate for each of `num_clients` clients.

        Raises:
            ConfigurationError: If it holds rates of another number of clients.
        """
        return Independent(spread(self.thresholds, "dropout_rate", num_clients, "rate"))

    def init(self, key: Key[Array, ""]) -> None:
        """Return None: rounds do not depend on each other."""
        del key

    @one_program
    def sample(
        self, key: Key[Array, "*trials"], state: None
    ) -> tuple[Bool[Array, " clients *trials"], None]:
        """Draw who is online; client i's draw does not depend on the number of clients.

        Keys of many trials give trials as trailing axes. One rate for an unknown number of
        clients must be spread by `for_clients` first.
        """
        rule = "must be one rate for each client (`for_clients` spreads a single one)"
        require(self.thresholds.ndim == 1, "dropout_rate", rule, f"shape {self.thresholds.shape}")
        words = client_words(key, self.thresholds.shape[-1])
        return ~happens(words, self.thresholds), state


@needs_values
def independent(dropout_rate: Any) -> Independent:
    """Return the model in which clients drop out of each round independently.

    Args:
        dropout_rate: p, chance to be offline in a round: a number in [0, 1] for everybody (any
            number of clients), or [N] of them. 0 means always online, 1 never; others are
            rounded to multiples of 2^-32.

    Returns:
        The model, a pytree; rates are traced, so that changing them compiles nothing new.

    Raises:
        ConfigurationError: If a rate is not a number in [0, 1], or there is none.

    Examples:
        >>> import jax
        >>> model = independent([0.0, 1.0])
        >>> available, _ = model.sample(jax.random.key(0), model.init(jax.random.key(1)))
        >>> available.tolist()
        [True, False]

    Source: Multi-RoundSecAgg, Section 4, and Section 6, "Modeling dropouts".
    """
    rates = check_chances(dropout_rate, "dropout_rate")
    return Independent(on_device(threshold(rates)))


@needs_values
def assign_rates(
    seed: int | Key[Array, ""],
    rates: Sequence[float],
    num_clients: int,
    how: Literal["shuffled", "cyclic", "sorted"] = "shuffled",
) -> Float32[np.ndarray, " clients"]:
    """Spread a few dropout rates evenly over clients.

    With blocks of consecutive clients the assignment decides who shares a block, and moves the
    aggregation cardinality a lot; the papers do not say which they use.

    Args:
        seed: Integer or key of the shuffle.
        rates: The rates; each goes to as many clients as the others, give or take one.
        num_clients: N.
        how: `"shuffled"` over the clients (mixed blocks), `"cyclic"`, or `"sorted"` in the order
            given (blocks of equal rates).

    Returns:
        float32[N].

    Raises:
        ConfigurationError: For no rates, rates outside [0, 1], or an unknown way.

    Examples:
        >>> assign_rates(0, [0.25, 0.5], 4, how="cyclic").tolist()
        [0.25, 0.5, 0.25, 0.5]
        >>> sorted(assign_rates(7, [0.25, 0.5], 4).tolist())
        [0.25, 0.25, 0.5, 0.5]
    """
    if how not in _WAYS:
        raise ConfigurationError(f"`how` must be a known way; got {how!r}; {nearest(how, _WAYS)}")
    check_count(num_clients, "num_clients", "must be at least 1")
    given = np.atleast_1d(check_chances(rates, "rates"))
    values = given.astype(np.float32)
    # what is between 0 and 1 stays so in float32
    inside = np.clip(values, np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0)))
    values = np.where((given > 0.0) & (given < 1.0), inside, values)
    place = np.arange(num_clients) % values.size
    if how == "sorted":
        place = np.sort(place)
    elif how == "shuffled":
        words = np.asarray(client_words(as_key(seed), num_clients))
        place = place[np.argsort(words, kind="stable")]
    return values[place]
