"""What must hold of a model and the clients' samples before anything is trained.

Values are looked at once, here; inside a traced function (values unknown) only shapes are.
"""

from __future__ import annotations

import weakref
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from mrsa_jax._errors import require
from mrsa_jax.data import ClientData, check_client_data
from mrsa_jax.federated._models import num_outputs, num_parameters

_SOUND: weakref.WeakSet[ClientData] = weakref.WeakSet()


def check_model(model: nn.Module, client_data: ClientData) -> int:
    """Return the number of parameters d; raise if model and samples do not fit or make no sense.

    One pass over the samples, the first time that it sees them.

    Raises:
        ConfigurationError: If the inputs are not float32, not finite or of a shape that the model
            does not take, if the model has too few outputs, or if `data.check_client_data` finds
            a label outside the classes or indices outside the samples.
    """
    require(isinstance(model, nn.Module), "model", "must be a flax module", type(model).__name__)
    _check_inputs(client_data.inputs)
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


def check_clients(client_data: Any) -> None:
    """Raise unless the clients' samples are a `ClientData`."""
    is_data = isinstance(client_data, ClientData)
    require(is_data, "client_data", "must be a `data.ClientData`", type(client_data).__name__)


def _check_inputs(inputs: Array) -> None:
    """Check dtype and shape of the pooled samples."""
    require(
        inputs.dtype == np.float32,
        "client_data.inputs",
        "must be float32 (scale pixels of 0 to 255 to [0, 1])",
        str(inputs.dtype),
    )
    require(
        inputs.ndim >= 2,
        "client_data.inputs",
        "must have shape [samples, ...]",
        inputs.shape,
    )


def _check_values(client_data: ClientData) -> None:
    """Check the numbers, unless they are being traced or were found sound before."""
    leaves = jax.tree.leaves(client_data)
    if client_data in _SOUND or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    check_client_data(client_data)
    for name in ("labels", "indices", "sizes"):
        dtype = getattr(client_data, name).dtype
        require(dtype == np.int32, f"client_data.{name}", "must be int32", str(dtype))
    with jax.ensure_compile_time_eval():  # known, though a caller's function is being traced
        is_finite = bool(_all_finite(client_data.inputs))
    require(is_finite, "client_data.inputs", "must be finite", "nan or inf")
    if all(isinstance(leaf, jax.Array) for leaf in leaves):  # a NumPy array may change later
        _SOUND.add(client_data)


@jax.jit
def _all_finite(values: Array) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(values))
