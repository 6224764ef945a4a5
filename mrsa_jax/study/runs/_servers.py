"""Server optimizers by the names that configurations use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax  # type: ignore[import-untyped]


def _at_any_rate(
    base: optax.GradientTransformation,
) -> Callable[[float], optax.GradientTransformation]:
    """Make an optimizer's learning rate data, so that all rates share one program.

    `base` has the rate 1. Its steps are multiplied by the rate, which lies in the
    state.
    """

    def update(gradient: Any, state: Any, parameters: Any = None) -> tuple[Any, Any]:
        rate, inner = state
        step, inner = base.update(gradient, inner, parameters)
        return jax.tree.map(lambda leaf: rate * leaf, step), (rate, inner)

    def at(rate: float) -> optax.GradientTransformation:
        def init(parameters: Any) -> tuple[Any, Any]:
            return jax.numpy.float32(rate), base.init(parameters)

        return optax.GradientTransformation(init, update)

    return at


_average = _at_any_rate(optax.sgd(1.0))
_momentum = _at_any_rate(optax.sgd(1.0, momentum=0.9))
# decay rates and the floor of the denominator as in Reddi et al., FedAdam
_adam = _at_any_rate(optax.adam(1.0, b1=0.9, b2=0.99, eps=1e-3))

SERVERS: dict[str, Callable[[float | None], optax.GradientTransformation | None]] = {
    "average": lambda rate: None if rate is None or rate == 1 else _average(rate),
    "momentum": lambda rate: _momentum(1.0 if rate is None else rate),
    "adam": lambda rate: _adam(0.01 if rate is None else rate),
}
"""Server optimizers by name, each of its learning rate; None is plain averaging."""
