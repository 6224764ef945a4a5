"""The contract of attacks, and the checks of their views, numbers and models."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, TypeVar, runtime_checkable

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax.attacks.views import MembershipView, ModelView, UpdateView
from mrsa_jax.federated import num_parameters, unflatten
from mrsa_watch._base.errors import ConfigurationError, check_number, require


def check_not_negative(**values: Any) -> None:
    """Raise unless each number is finite and at least 0.

    The keywords are the arguments' names.
    """
    for name, value in values.items():
        check_number(value, name, "must be a finite number from 0", 0.0)


def check_finite_values(**values: Any) -> None:
    """Raise unless all entries are finite; keywords are the arguments' names."""
    for name, value in values.items():
        require(
            bool(np.isfinite(value).all()),
            name,
            "must be finite",
            "nan or infinity",
        )


def checked_range(pixel_range: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest and largest value of a pixel.

    Raise unless finite and in this order.
    """
    low, high = map(float, pixel_range)
    require(
        -np.inf < low < high < np.inf,
        "pixel_range",
        "must be two finite numbers, the smaller first",
        pixel_range,
    )
    return low, high


def logits_of(model: nn.Module, flat: Float32[Array, " dim"], inputs: Array) -> Array:
    """Return the logits of a batch, for parameters given as a flat vector."""
    return model.apply(unflatten(model, inputs.shape[1:], flat), inputs)


def checked_parameters(
    view: ModelView | UpdateView | MembershipView, argument: str = "parameters"
) -> Float32[Array, "... dim"]:
    """Return a view's parameters or updates as f32 [..., d].

    Raise unless d fits and finite.
    """
    dim = num_parameters(view.model, view.input_shape)
    vectors = on_device(getattr(view, argument), jnp.float32)
    require(
        vectors.shape[-1:] == (dim,),
        argument,
        f"must have the model's {dim} entries",
        vectors.shape,
    )
    check_finite_values(**{argument: vectors})
    return vectors


_View = TypeVar("_View")


@runtime_checkable
class Attack(Protocol):
    """An attack: its numbers and settings, applied to what is seen."""

    def run(self, key: Key[Array, ""], view: Any) -> Any:
        """Attack a view; `key` is for what the attack draws."""
        ...


def checked_view(view: Any, wanted: type[_View]) -> _View:
    """Return the view if it is of the type that an attack needs.

    Raises:
        ConfigurationError: Naming the type, and the fields that the given view lacks.

    Examples:
        >>> from mrsa_jax.attacks.views import AggregateView, CountView
        >>> checked_view(AggregateView(np.ones((1, 2)), np.ones((1, 3))), CountView)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `view` must be a CountView; got AggregateView,
        which lacks counts, interval_lengths
    """
    if isinstance(view, wanted):
        return view
    needed: Any = wanted
    lacking = [f.name for f in dataclasses.fields(needed) if not hasattr(view, f.name)]
    what = f", which lacks {', '.join(lacking)}" if lacking else ""
    raise ConfigurationError(
        f"`view` must be a {wanted.__name__}; got {type(view).__name__}{what}"
    )
