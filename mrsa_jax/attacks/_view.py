"""What an adversary sees: one type for each threat model, and nothing in it that is not seen.

An attack takes a view and no more, so what it needs is what its threat model grants. Ground truth
(the clients' updates, their images, who was a member) is for the scores alone and in no view.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax.federated import num_parameters, unflatten
from mrsa_watch._base.errors import ConfigurationError, check_number, require
from mrsa_watch._base.html import finding

if TYPE_CHECKING:
    from mrsa_jax.quantize import StochasticQuantizer


# ---- Checks that several attacks share: their numbers, the pixels' range, a model's parameters.


def check_not_negative(**values: Any) -> None:
    """Raise unless each number is finite and at least 0; the keywords are the arguments' names."""
    for name, value in values.items():
        check_number(value, name, "must be a finite number from 0", 0.0)


def checked_range(pixel_range: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest and largest value of a pixel; raise unless finite and in this order."""
    low, high = pixel_range
    is_range = bool(np.isfinite([low, high]).all()) and low < high
    require(is_range, "pixel_range", "must be two finite numbers, the smaller first", pixel_range)
    return float(low), float(high)


def logits_of(model: nn.Module, flat: Float32[Array, " dim"], inputs: Array) -> Array:
    """Return the logits of a batch, for parameters given as a flat vector."""
    return model.apply(unflatten(model, inputs.shape[1:], flat), inputs)


def checked_parameters(
    model: nn.Module, input_shape: tuple[int, ...], values: Any, argument: str
) -> Float32[Array, "... dim"]:
    """Return parameters or updates of a model as f32 [..., d]; raise unless d fits and finite."""
    dim = num_parameters(model, input_shape)
    given = on_device(values, jnp.float32)
    fits = given.ndim >= 1 and given.shape[-1] == dim
    require(fits, argument, f"must have the model's {dim} entries", given.shape)
    require(bool(np.isfinite(given).all()), argument, "must be finite", "nan or infinity")
    return given


# ---- What an adversary sees: one type for each threat model, and nothing in it that is not seen.


@finding
class AggregateView:
    """An honest but curious server of secure aggregation: who took part, and the sums.

    Attributes:
        participation: bool or integer weights [J, N], one row for each sum that was learnt.
        aggregates: float [J, d], the sums P @ X.
    """

    participation: np.ndarray
    aggregates: np.ndarray


@finding
class CountView:
    """A server that is not told who took part, but how often each client did.

    Attributes:
        aggregates: float [J, d], the sums in the order of their rounds.
        counts: int [M, N], in how many sums of each interval each client was: what usage
            statistics of the devices tell.
        interval_lengths: int [M], rounds of each interval; they add up to J.

    Source: Lam, Wei, Brooks, Reddi, Mitzenmacher, "Gradient Disaggregation" (2021), Section 3.
    """

    aggregates: np.ndarray
    counts: np.ndarray
    interval_lengths: np.ndarray


@finding
class WireView:
    """An eavesdropper on the lines of one round: padded uploads and what is public.

    Attributes:
        uploads: uint32 [n, d], what each client sent, modulo the ring's size.
        modulus: Size of the ring.
        quantizer: How codes stand for numbers, which is public.

    Source: CCESA, Section 2 (a passive eavesdropper), Section 5.3.
    """

    uploads: np.ndarray
    modulus: int
    quantizer: StochasticQuantizer


@finding
class ModelView:
    """Whoever holds a model: its parameters, and what goes in and comes out.

    Attributes:
        model: Flax module.
        parameters: f32 [d].
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
    """

    model: nn.Module
    parameters: Array
    input_shape: tuple[int, ...]
    num_classes: int


@finding
class UpdateView:
    """Whoever holds a model and updates trained from it: of one client, or sums of several.

    Attributes:
        model: Flax module.
        parameters: f32 [d], the model that the clients trained from.
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
        update: f32 [..., d], new minus old parameters, or the mean of several such; leading axes
            are separate updates, attacked side by side.
        num_images: Images behind each update, all in one step of SGD (a client's own minibatch,
            or those of a sum's clients, whose mean step it is).
        labels: int32 [..., num_images] where they are known, or None.
    """

    model: nn.Module
    parameters: Array
    input_shape: tuple[int, ...]
    num_classes: int
    update: Array
    num_images: int
    labels: Array | None = None


@finding
class MembershipView:
    """Whoever holds a client's model, candidates for its samples, and separate samples.

    Attributes:
        model: Flax module.
        parameters: f32 [..., d], the model that the client sent, as it was read off the line or
            solved for; leading axes are several such models, asked for the same candidates.
        start: f32 [d], the global model that training started from.
        input_shape: Shape of one sample.
        num_classes: Classes that the model tells apart.
        inputs: f32 [m, ...], the candidates.
        labels: int32 [m].
        own_inputs: f32 [k, ...], the adversary's own samples, from the same distribution.
        own_labels: int32 [k].
    """

    model: nn.Module
    parameters: Array
    start: Array
    input_shape: tuple[int, ...]
    num_classes: int
    inputs: Array
    labels: Array
    own_inputs: Array
    own_labels: Array


_View = TypeVar("_View")


@runtime_checkable
class Attack(Protocol):
    """An attack: its numbers and settings, applied to what is seen."""

    def run(self, key: Key[Array, ""], view: Any) -> Any:
        """Return what the attack makes of a view; `key` is for what it draws."""
        ...


def checked_view(view: Any, wanted: type[_View]) -> _View:
    """Return the view if it is of the type that an attack needs.

    Raises:
        ConfigurationError: Naming the type, and the fields that the given view lacks.

    Examples:
        >>> checked_view(AggregateView(np.ones((1, 2)), np.ones((1, 3))), CountView)
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `view` must be a CountView; got AggregateView, which
        lacks counts, interval_lengths
    """
    if isinstance(view, wanted):
        return view
    needed: Any = wanted
    lacking = [f.name for f in dataclasses.fields(needed) if not hasattr(view, f.name)]
    what = f", which lacks {', '.join(lacking)}" if lacking else ""
    raise ConfigurationError(f"`view` must be a {wanted.__name__}; got {type(view).__name__}{what}")
