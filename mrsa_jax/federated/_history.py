"""Rounds to train: who was asked, who survived, and in which slots of the aggregator.

A history says whom the server asked, or (`selection.RoundHistory`) also who was left after each
step of the protocol, V0 to V4 of CCESA, and which key each round's graph is drawn from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from mrsa_jax._arrays import host_array
from mrsa_jax._errors import require
from mrsa_jax._slots import padded_slots
from mrsa_jax.quantize import check_weights
from mrsa_jax.selection import RoundHistory


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
