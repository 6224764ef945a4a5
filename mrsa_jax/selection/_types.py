"""What every selection scheme offers, and the state that it keeps.

A scheme is a frozen pytree: T, K and chances are leaves, only the number of clients is static.
Its state is a named tuple of arrays, `counts` among them; most schemes need nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Int32, Key

__all__ = ["Selector", "SelectorState"]


class SelectorState(NamedTuple):
    """What a selector without further memory keeps between rounds.

    Attributes:
        counts: int32[N], rounds in whose sum each client was (the papers' f).
    """

    counts: Int32[Array, " clients"]


@runtime_checkable
class Selector(Protocol):
    """Whom the server asks in each round: a pytree with pure methods.

    `select` is written for one trial. A scheme whose class has `takes_trials = True` also takes
    many at once: keys [B], availability and the state's arrays [N, B], cohorts [N, B]; trials
    innermost is what makes rollouts of many trials fast. Other schemes are mapped by `jax.vmap`.
    """

    @property
    def num_clients(self) -> int:
        """N."""
        ...

    def init(self) -> Any:
        """Return the state before the first round: a `SelectorState`, or one with more fields.

        Every state has `.counts`, int32[N], rounds in whose sum each client was.
        """
        ...

    def select(
        self, key: Key[Array, ""], state: Any, available: Bool[Array, " clients"]
    ) -> tuple[Bool[Array, " clients"], Any]:
        """Return the cohort among the available clients (nobody: a skipped round), and the state.

        `key` is the round's; the cohort has K clients or none, any number for Bernoulli and
        Poisson sampling.
        """
        ...
