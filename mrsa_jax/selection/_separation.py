"""Minimum separation: whoever took part rests for some rounds, under any other scheme.

What deployed systems and differentially private training with correlated noise ask of a schedule
("b-min-separated participation"). A wrapper: the scheme inside sees rested clients only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import one_program, pytree, zeros
from mrsa_jax._core.factories import also_traced, unless_traced
from mrsa_jax._core.selector import Selector, check_selector
from mrsa_watch._base.errors import check_size


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


@pytree
class SeparatedSelection:
    """A scheme that asks only rested clients; build it with `minimum_separation`.

    Attributes:
        selector: The scheme inside.
        separation: int32 scalar, b: least difference of two rounds of one client.
    """

    selector: Any
    separation: Array

    def typed(self) -> list[tuple[Any, ...]]:
        """Return the call that made it."""
        return [(minimum_separation, self.selector, int(self.separation))]

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
        """Whether clients join by their own coins: rest is each one's own matter."""
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


@also_traced
def minimum_separation(selector: Selector, separation: int | Array) -> SeparatedSelection:
    """Return a scheme in which a client takes part at most once in any b consecutive rounds.

    Wraps any scheme: `minimum_separation(uniform(N, K), b)` picks K uniformly among the
    available clients who did not take part in the last b - 1 rounds; around
    `batch_partitioning` blocks rest as a whole and T is kept. The scheme inside skips a round in
    which it finds too few rested clients; with cohorts of K that happens permanently where
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
        >>> scheme = mj.selection.minimum_separation(mj.selection.uniform(6, 2), 3)
        >>> history = mj.selection.rollout(0, scheme, mj.availability.independent(0.0), 6)
        >>> history.reshape(2, 3, 6).sum(axis=1).tolist()  # everybody once in three rounds
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]

    Source: none of the papers; Choquette-Choo et al., "(Amplified) Banded Matrix Factorization"
        (2023), Definition of b-min-separation.
    """
    check_selector(selector)
    b = unless_traced(check_size, separation, "separation")
    return SeparatedSelection(selector, jnp.int32(b))
