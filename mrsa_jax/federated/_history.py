"""Rounds to train: who was asked, who survived, and in which slots of the aggregator.

A history says whom the server asked, or (`selection.RoundHistory`) also who was left after each
step of the protocol, V0 to V4 of CCESA, and which key each round's graph is drawn from.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from mrsa_jax._core.arrays import host_array, padded_slots
from mrsa_jax._core.errors import require
from mrsa_jax._core.status import Status
from mrsa_jax.data import ClientData, check_client_data
from mrsa_jax.federated._models import num_outputs, num_parameters
from mrsa_jax.federated._tracking import Metrics
from mrsa_jax.quantize.budgets import check_weights
from mrsa_jax.selection import RoundHistory

# ---- What must hold of a model and the clients' samples before anything is trained.
#
# Values are looked at once, here; inside a traced function (values unknown) only shapes are.

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


# ---- Rounds to train: who was asked, who survived, and in which slots of the aggregator.

# ---- What a training has reported so far, and what of it is told round by round.


class Log(NamedTuple):
    """What was reported so far, in host memory; written in place."""

    status: np.ndarray
    clipped_fraction: np.ndarray
    wrapped: np.ndarray
    participation: np.ndarray
    components: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray

    @classmethod
    def empty(cls, cohorts: np.ndarray, num_evaluations: int) -> Log:
        """Return the log of a training that is to begin: every round skipped."""
        num_rounds = len(cohorts)
        return cls(
            np.full(num_rounds, int(Status.SKIPPED), np.int32),
            np.full(num_rounds, np.nan, np.float32),
            np.zeros(num_rounds, np.int32),
            np.zeros(cohorts.shape, np.bool_),
            np.full(cohorts.shape, -1, np.int32),
            np.full(num_evaluations, np.nan, np.float32),
            np.full(num_evaluations, np.nan, np.float32),
        )

    def metrics(
        self, index: int, cohort_size: int, evaluated: np.ndarray, diverged: int
    ) -> Metrics:
        """Return what is known of a round that is over, as plain numbers.

        Args:
            index: The round.
            cohort_size: How many were asked.
            evaluated: int [E], the rounds after which the model is tested.
            diverged: The round in which the training diverged, after which nothing is tested; -1
                for none.
        """
        found: Metrics = {
            "step": index,
            "status": Status(int(self.status[index])).name,
            "cohort_size": cohort_size,
            "summed_clients": int(self.participation[index].sum()),
            "wrapped": int(self.wrapped[index]),
        }
        if not np.isnan(self.clipped_fraction[index]):
            found["clipped_fraction"] = float(self.clipped_fraction[index])
        if index == diverged:
            return found | {"diverged": True}
        tested = int(np.searchsorted(evaluated, index))
        if tested < len(evaluated) and evaluated[tested] == index:
            found |= {"accuracy": float(self.accuracy[tested]), "loss": float(self.loss[tested])}
        return found


# ---- Rounds to train: who was asked, who survived, and in which slots of the aggregator.


class Rounds(NamedTuple):
    """The rounds to train: who survived, and the keys of their graphs where there are any."""

    survivors: np.ndarray  # bool [J, 5, N]; [J, 1, N] without steps
    keys: Any

    @property
    def cohorts(self) -> np.ndarray:
        """Who was asked, bool [J, N]."""
        return np.asarray(self.survivors[:, 0])


def slots(
    rows: np.ndarray, aggregator: Any, order: np.ndarray | None = None
) -> tuple[Int32[np.ndarray, "rounds slots"], Bool[np.ndarray, "rounds slots"]]:
    """Return each round's members, padded to the width of the aggregator.

    Ascending, or in the order of a list of all clients.
    """
    largest = int(rows.sum(axis=1).max(initial=1))
    width = int(getattr(aggregator, "num_participants", largest))
    require(
        width >= largest,
        "aggregator",
        "must have a participant for each member of the largest cohort",
        f"{width} participants",
        f"{largest} members",
    )
    return padded_slots(rows, width, order)


def checked_order(order: Any, num_clients: int) -> np.ndarray | None:
    """Return the clients in the order in which slots are filled, or raise."""
    if order is None:
        return None
    own = host_array(order, "slot_order")
    rule = f"must hold the clients 0 to {num_clients - 1}, each once"
    proper = own.shape == (num_clients,) and own.dtype.kind in "iu"
    require(proper and np.array_equal(np.sort(own), np.arange(num_clients)), "slot_order", rule,
            own.shape)  # fmt: skip
    return own.astype(np.int32)


def checked_rounds(participation: Any, survivors: Any, num_clients: int) -> Rounds:
    keys = None
    if isinstance(participation, RoundHistory):
        require(survivors is None, "survivors", "must be left out: the history has its own")
        survivors, keys = participation.survivors, participation.assignment_keys
        participation = host_array(survivors, "survivors")[..., 0, :]
    history = host_array(participation, "participation")
    require(history.dtype == np.bool_, "participation", "must be boolean", f"dtype {history.dtype}")
    require(
        history.ndim == 2 and history.shape[1] == num_clients,
        "participation",
        f"must have one row for each round and {num_clients} columns, one for each client",
        history.shape,
    )
    if survivors is None:
        return Rounds(history[:, None], None)
    alive = host_array(survivors, "survivors")
    require(alive.dtype == np.bool_, "survivors", "must be boolean", f"dtype {alive.dtype}")
    shape = (len(history), 5, num_clients)
    require(alive.shape == shape, "survivors", f"must have the shape {shape}", alive.shape)
    is_nested = not (alive[:, 1:] & ~alive[:, :-1]).any()
    require(is_nested, "survivors", "must be nested, each of V0 to V4 within the one before")
    starts = bool((alive[:, 0] == history).all())
    require(starts, "survivors", "must start with `participation`, the clients who were asked")
    return Rounds(alive, keys)


def checked_weights(weights: Any, num_clients: int) -> np.ndarray | None:
    if weights is None:
        return None
    own = check_weights(weights, "weights")
    rule = f"must be {num_clients} integers, one for each client"
    require(own.shape == (num_clients,), "weights", rule, own.shape)
    return own
