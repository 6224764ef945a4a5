"""What must hold of a model and the clients' samples before anything is trained.

Values are looked at once, here; inside a traced function (values unknown) only shapes are.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._errors import require
from mrsa_jax.data import ClientData
from mrsa_jax.federated._models import num_outputs, num_parameters

__all__ = ["check_count", "check_model", "check_number"]


def check_model(model: nn.Module, client_data: ClientData) -> int:
    """Return the number of parameters d; raise if model and samples do not fit or make no sense.

    One pass over the samples: call it once before a training, not in each round.

    Raises:
        ConfigurationError: If the inputs are not f32, not finite or of a shape that the model
            does not take, a label is outside the classes, the model has too few outputs, or a
            client's indices or size point outside the samples.
    """
    require(isinstance(model, nn.Module), "model", "must be a flax module", type(model).__name__)
    _check_arrays(client_data)
    input_shape = tuple(client_data.inputs.shape[1:])
    dim = num_parameters(model, input_shape)
    outputs = num_outputs(model, input_shape)
    require(
        outputs >= client_data.num_classes,
        "model",
        "must have an output for each class of the data",
        f"{outputs} outputs",
        f"{client_data.num_classes} classes",
    )
    _check_values(client_data)
    return dim


def check_number(value: Any, argument: str) -> None:
    """Raise unless `value` is a finite real number."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    require(is_number and math.isfinite(value), argument, "must be a finite number", value)


def check_count(value: Any, argument: str) -> None:
    """Raise unless `value` is a positive integer."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(is_integer and value >= 1, argument, "must be a positive integer", value)


def _check_arrays(client_data: ClientData) -> None:
    """Check dtypes and shapes."""
    inputs, labels = client_data.inputs, client_data.labels
    require(
        inputs.dtype == np.float32,
        "client_data.inputs",
        "must be float32 (scale pixels of 0 to 255 to [0, 1])",
        str(inputs.dtype),
    )
    require(
        inputs.ndim >= 2 and inputs.shape[0] >= 1,
        "client_data.inputs",
        "must have shape [samples, ...] with at least one sample",
        inputs.shape,
    )
    for name in ("labels", "indices", "sizes"):
        dtype = getattr(client_data, name).dtype
        require(dtype == np.int32, f"client_data.{name}", "must be int32", str(dtype))
    require(
        labels.shape == inputs.shape[:1],
        "client_data.labels",
        "must be one for each sample",
        labels.shape,
        inputs.shape,
    )
    indices, sizes = client_data.indices, client_data.sizes
    require(
        indices.ndim == 2 and indices.shape[1] >= 1 and sizes.shape == indices.shape[:1],
        "client_data.indices",
        "must be [clients, samples], with a size for each client",
        indices.shape,
        sizes.shape,
    )


def _check_values(client_data: ClientData) -> None:
    """Check the numbers, unless they are being traced."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(client_data)):
        return
    is_finite, label_range, index_range, size_range = jax.device_get(_summary(client_data))
    num_classes, num_samples = client_data.num_classes, client_data.inputs.shape[0]
    row = client_data.indices.shape[1]
    for name, found, stop in (
        ("labels", label_range, num_classes),
        ("indices", index_range, num_samples),
        ("sizes", size_range, row + 1),
    ):
        lowest, highest = (int(value) for value in found)
        require(
            lowest >= 0 and highest < stop,
            f"client_data.{name}",
            f"must lie in [0, {stop - 1}]",
            lowest if lowest < 0 else highest,
        )
    require(bool(is_finite), "client_data.inputs", "must be finite", "nan or inf")


@jax.jit
def _summary(client_data: ClientData) -> tuple[Array, Array, Array, Array]:
    """Return whether all inputs are finite, and the ranges of labels, indices and sizes."""
    ranges = [
        jnp.stack([jnp.min(values), jnp.max(values)])
        for values in (client_data.labels, client_data.indices, client_data.sizes)
    ]
    labels, indices, sizes = ranges
    return jnp.all(jnp.isfinite(client_data.inputs)), labels, indices, sizes
