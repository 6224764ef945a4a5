"""Clients who tell the server their own updates: what is left to find out of all others.

The server subtracts what it knows. A combination of the sums then shows the others' updates with
the coefficients that it has for them, so the members' columns of the participation matrix count as
if they were zero: the row space is projected on the others' coordinates, and every definition of
privacy reads on as it stands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import check_integers, host_array
from mrsa_jax.privacy._weights import as_history
from mrsa_watch._base.errors import require
from mrsa_watch.logs import ParticipationLog


def check_coalition(coalition: Any, num_clients: int) -> tuple[int, ...]:
    """Return a coalition's members in ascending order, or raise.

    Args:
        coalition: Indices of clients: a list, tuple or array of integers that are known.
        num_clients: How many there are.

    Raises:
        ConfigurationError: If an index is none or out of range, a client is named twice, or all
            are: nobody would be left to be hidden.
    """
    if isinstance(coalition, jax.Array):
        coalition = host_array(coalition, "coalition")
    members = tuple(sorted(check_integers(coalition, "coalition", 0)))
    for place, client in enumerate(members):
        rule = f"must hold indices below {num_clients}, the number of clients"
        require(client < num_clients, "coalition", rule, client)
        is_again = place > 0 and client == members[place - 1]
        require(not is_again, "coalition", "must name a client once", client)
    everybody = 0 < num_clients == len(members)
    require(not everybody, "coalition", "must leave a client out", f"all {num_clients}")
    return members


def without(P: Any, coalition: Any) -> np.ndarray | Array:
    """Return a history in which the members of a coalition take no part.

    Their columns are zero instead of deleted, so that all others keep their indices and no
    program is compiled again; the row space is the same but for zeros at the members.

    Args:
        P: A history of any kind, or of several with leading axes; its values may be traced.
        coalition: As `check_coalition`; P is returned as it is where it is empty.

    Raises:
        ConfigurationError: As `as_history` and `check_coalition`.
    """
    history = as_history(P)
    members = check_coalition(coalition, history.shape[-1])
    if not members:
        return history
    is_member = np.zeros(history.shape[-1], np.bool_)
    is_member[list(members)] = True
    library: Any = np if isinstance(history, np.ndarray) else jnp
    nothing = history.dtype.type(0) if history.dtype != object else 0
    return library.where(is_member.reshape((1,) * (history.ndim - 1) + (-1,)), nothing, history)


def log_without(
    log: ParticipationLog, coalition: Any
) -> tuple[ParticipationLog, tuple[Hashable, ...]]:
    """Return a log in which clients, given by their names, take no part, and those names.

    A name may be given as text, as on a command line, where the log has a number.

    Raises:
        ConfigurationError: If the log has no client of a name, or as `check_coalition`.
    """
    is_list = isinstance(coalition, list | tuple)
    require(is_list, "coalition", "must be a list of clients' names", coalition)
    places = {str(name): place for place, name in enumerate(log.clients)}
    for name in coalition:
        require(str(name) in places, "coalition", "must name clients of the log", name)
    members = [places[str(name)] for name in coalition]
    left = host_array(without(log.participation, members), "coalition")
    names = tuple(log.clients[place] for place in sorted(members))
    return dataclasses.replace(log, participation=left), names
