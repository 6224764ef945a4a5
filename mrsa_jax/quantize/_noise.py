"""What a sum in the ring asks of the noise that its clients add."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Int32, Key


@runtime_checkable
class RingNoise(Protocol):
    """Noise of one client on a lattice of integers: a frozen pytree, the same law for each.

    `mrsa_jax.dp` has the laws; what sums and decodes knows them by these methods alone.
    """

    @property
    def variance(self) -> float:
        """Return its variance, in squared units of what it is added to."""
        ...

    def on(self, step: float) -> RingNoise:
        """Return the same noise on a lattice of this step: its variance over step squared."""
        ...

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int32[Array, "*shape"]:
        """Draw independent integers; nothing but the key decides them."""
        ...

    def tail(self, bound: Any) -> Any:
        """Return the probability that one draw exceeds `bound` in absolute value."""
        ...
