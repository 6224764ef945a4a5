"""The contract that every availability model keeps."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Key

__all__ = ["Availability"]


@runtime_checkable
class Availability(Protocol):
    """Who is online: a pytree whose numbers are leaves.

    `state` is what the next round needs (None for a model without memory).
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
