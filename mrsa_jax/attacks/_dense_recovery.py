"""Inputs of a dense layer read off its gradient, without any search.

The gradient of a unit's weights is the sum over samples of (slope of the unit times
input), that of its bias the sum of the slopes, so their ratio is a mean of the inputs,
weighted by slopes: of a single sample its input, exactly; of a batch the input of
whichever sample is the only one that a rectified unit fires for. Source: Geiping,
Bauermeister, Dröge, Moeller, "Inverting Gradients" (2020), Proposition 3.1; Boenisch et
al., "When the Curious Abandon Honesty" (2023), for batches.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import checked_parameters, checked_view
from mrsa_jax.attacks.views import UpdateView
from mrsa_jax.federated import unflatten
from mrsa_watch._base.errors import require
from mrsa_watch._base.values import by_value


@by_value
class RecoveredInputs(NamedTuple):
    """Inputs told by a dense layer's gradient; leading axes as of the view's updates.

    Attributes:
        inputs: f32 [..., m, features], the inputs that most units agree on, most first;
            NaN where fewer than m differ. Reshape to the view's `input_shape` where the
            layer reads images.
        agreeing: int [..., m], how many units tell each of them. Two or more: one
            sample's own input, or a mean of samples that move together; one: most
            likely a mixture.
    """

    inputs: np.ndarray
    agreeing: np.ndarray


@dataclasses.dataclass(frozen=True)
class DenseRecovery:
    """The attack (built by `dense_recovery`).

    Attributes:
        layer: Path of the dense layer, or None for the one that reads the images.
        tolerance: Relative distance below which two units tell the same input.
    """

    cites = "inputs of a dense layer: geiping2020inverting boenisch2023curious"

    layer: str | None
    tolerance: float

    @needs_values
    def run(self, key: Key[Array, ""] | int, view: UpdateView) -> RecoveredInputs:
        """Read the layer's inputs off each update of a view.

        Args:
            key: Not used: nothing is drawn.
            view: Model, updates, and how many inputs m to return for each.

        Raises:
            ConfigurationError: If the view is of another type or its shapes do not fit,
                or the model has no such layer.
        """
        del key
        seen = checked_view(view, UpdateView)
        updates = checked_parameters(seen, "update")
        path = _path(seen, self.layer)
        lead = updates.shape[:-1]
        recovered = []
        for flat in updates.reshape(-1, updates.shape[-1]):
            kernel, bias = map(np.asarray, _layers(seen, flat)[path])
            agreed = _most_agreed(kernel, bias, seen.num_images, self.tolerance)
            recovered.append(agreed)
        inputs, agreeing = map(np.stack, zip(*recovered, strict=True))
        agreeing = agreeing.reshape(*lead, seen.num_images)
        return RecoveredInputs(inputs.reshape(*lead, *inputs.shape[1:]), agreeing)


def dense_recovery(
    layer: str | None = None, *, tolerance: float = 1e-2
) -> DenseRecovery:
    """Return the attack that reads a dense layer's inputs off its gradient.

    It needs an update of one step of plain SGD; the learning rate cancels.

    Args:
        layer: Path of the dense layer, as "Dense_0"; None for the first with a weight
            for each pixel, whose inputs are the images. Of a later layer it reads that
            layer's inputs.
        tolerance: Relative distance below which two units tell the same input, in (0,
            1): wide enough for the rounding of quantized sums.

    Raises:
        ConfigurationError: If the tolerance is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> import jax
        >>> model = mj.federated.logistic(3)
        >>> images = jnp.full((1, 2, 2, 1), 0.25)
        >>> flat = mj.federated.initial_parameters(0, model, (2, 2, 1))
        >>> def loss(flat):
        ...     parameters = mj.federated.unflatten(model, (2, 2, 1), flat)
        ...     logits = model.apply(parameters, images)
        ...     return -jax.nn.log_softmax(logits)[0, 1]
        >>> step = -0.1 * jax.grad(loss)(flat)
        >>> view = mj.attacks.views.UpdateView(model, flat, (2, 2, 1), 3, step, 1)
        >>> mj.attacks.dense_recovery().run(0, view).inputs.round(4)
        array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    require(0 < tolerance < 1, "tolerance", "must lie between 0 and 1", tolerance)
    return DenseRecovery(layer, float(tolerance))


def _layers(
    view: UpdateView, flat: Float32[Array, " dim"]
) -> dict[str, tuple[Array, Array]]:
    """Return kernel and bias of each dense layer by its path."""
    parameters = unflatten(view.model, view.input_shape, flat)["params"]
    leaves = flatten_dict(parameters, sep="/")
    layers = {}
    for name, leaf in leaves.items():
        path, _, kind = name.rpartition("/")
        if kind == "kernel" and leaf.ndim == 2 and f"{path}/bias" in leaves:
            layers[path] = leaf, leaves[f"{path}/bias"]
    return layers


def _path(view: UpdateView, wanted: str | None) -> str:
    layers = _layers(view, on_device(view.parameters, jnp.float32))
    if wanted is not None:
        require(wanted in layers, "layer", f"must be one of {sorted(layers)}", wanted)
        return wanted
    pixels = int(np.prod(view.input_shape))
    reading = [path for path, (kernel, _) in layers.items() if len(kernel) == pixels]
    layer = f"a dense layer with a bias that reads {pixels} pixels"
    require(
        bool(reading),
        "model",
        f"must have {layer}, or `layer` be named",
        f"dense layers {sorted(layers)}",
    )
    return reading[0]


def _most_agreed(
    weights: np.ndarray,
    bias: np.ndarray,
    num_inputs: int,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs [m, features] of most units, and the units of each [m].

    Units with strong slopes come first: theirs is the least rounding.
    """
    slopes = np.abs(bias)
    units = np.argsort(-slopes, kind="stable")
    units = units[slopes[units] > 0]
    # slope times input over slope: the input, if one sample fires the unit
    ratios = (weights[:, units] / bias[units]).T
    inputs = np.full((num_inputs, weights.shape[0]), np.nan, np.float32)
    agreeing = np.zeros(num_inputs, np.int64)
    is_left = np.isfinite(ratios).all(axis=1)
    groups: list[np.ndarray] = []
    # greedy: the unit of the strongest slope takes all units that agree with it
    while is_left.any():
        first = int(np.argmax(is_left))
        distance = np.linalg.norm(ratios - ratios[first], axis=1)
        is_same = is_left & (distance <= tolerance * np.linalg.norm(ratios[first]))
        is_same[first] = True
        groups.append(units[is_same])
        is_left &= ~is_same
    groups.sort(key=len, reverse=True)
    for place, group in enumerate(groups[:num_inputs]):
        # the input x that fits weights = x * bias best over the units that agree
        inputs[place] = weights[:, group] @ bias[group] / np.square(bias[group]).sum()
        agreeing[place] = len(group)
    return inputs, agreeing
