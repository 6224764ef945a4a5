"""The contract that every availability model keeps."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Key


@runtime_checkable
class Availability(Protocol):
    """Who is online: a pytree whose numbers are leaves.

    `state` is what the next round needs (None for a model without memory). `sample` is written
    for one trial; a model whose class has `takes_trials = True` also takes keys [B] (its state's
    last axis, if any, being the trials) and returns [N, B]. Other models are mapped by `jax.vmap`.
    One whose rounds and clients are independent, with the same chances in every round, has these
    as `dropout_rates`.
    """

    def for_clients(self, num_clients: int) -> Availability:
        """Return the model for `num_clients` clients; a single number serves them all."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Return the state before the first round."""
        ...

    def sample(self, key: Key[Array, ""], state: Any) -> tuple[Bool[Array, " clients"], Any]:
        """Return who is online in a round, bool[N], and the next state."""
        ...
