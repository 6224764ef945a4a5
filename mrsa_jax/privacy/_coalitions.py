"""Clients who tell the server their own updates: what is left to find out of all others.

The server subtracts what it knows. A combination of the sums then shows the others' updates with
the coefficients that it has for them, so the members' columns of the participation matrix count as
if they were zero: the row space is projected on the others' coordinates, and every definition of
privacy reads on as it stands.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._arrays import check_integers, host_array
from mrsa_jax._errors import require
from mrsa_jax.privacy._history import as_history


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
        require(client not in members[:place], "coalition", "must name a client once", client)
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
