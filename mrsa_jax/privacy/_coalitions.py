"""Clients who reveal their updates to the server, and histories without them.

The server subtracts what it knows. A combination of the sums then shows the others'
updates with the coefficients that it has for them, so the members' columns of the
participation matrix count as if they were zero: the row space is projected on the
others' coordinates, and every definition of privacy reads on as it stands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import as_integers, check_integers, host_array
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import require
from mrsa_watch._base.tables import is_table
from mrsa_watch.logs import ParticipationLog, integer_rows, read_log


def as_log(P: Any) -> ParticipationLog | None:
    """Return a log, or a table as the log that `read_log` makes of it.

    None for an array.
    """
    if isinstance(P, ParticipationLog):
        return P
    return read_log(P) if is_table(P) else None


def in_time(P: Any) -> Any:
    """Return a history whose rows follow each other in time.

    Of a table, the log that it is.

    Raises:
        ConfigurationError: If it is a log whose rounds have names that do not show
            their order.
    """
    log = as_log(P)
    if log is None:
        return P
    rule = (
        "must be of rounds in a known order, which the names of this log's rounds do "
        "not show: "
        'read it with round_order="file" or "sorted" (--round-order file, '
        "--round-order sorted)"
    )
    require(log.is_ordered, "memory", rule, *log.rounds[:2])
    return log


def as_history(P: Any) -> np.ndarray | Array:
    """Return a history of any kind as an exact array.

    Of a log or a table, its participation.

    Raises:
        ConfigurationError: If there are fewer than two axes, an empty one, a fraction
            or a NaN; if P names a file, or is a table that can be read in two ways.
    """
    log = as_log(P)
    parts = set() if log is None else {*(log.parts or ())} - {None}
    rule = (
        "must be a history of one part of the vector: sums of several must not be "
        "stacked; "
        "take the log of each from its `by_part()`"
    )
    require(len(parts) < 2, "P", rule, f"a log of {len(parts)}")
    return as_integers(P if log is None else log.participation, "P")


@needs_values
def integer_weights(weights: Any) -> np.ndarray:
    """Return integer rows that span what rational weights span, exactly.

    Use it before `weak_privacy`, `strong_privacy` or `first_exposure` where sums are
    weighted. Row j is the smallest integral multiple of row j of the weights: zero
    weights stay zero, nothing is rounded. A float stands for the fraction that it holds
    in binary, so 0.5**s is exact but 1/3 is not a third: where the rule is rational, as
    1/(1+s), pass `fractions.Fraction`.

    What weights change, compared with the same history of zeros and ones:

    - a positive factor for each round (the mean instead of the sum): nothing;
    - a positive factor for each client, the same in all rounds (sample counts): neither
      rank nor weak privacy, exposed clients or supports of witnesses, whose
      coefficients alone differ. A client's column is scaled, and strong privacy counts
      equal columns, so that its classes split: it becomes the smallest class of clients
      who share both column and factor;
    - factors that vary from round to round (staleness): everything, in general
      downwards.

    Args:
        weights: `[rounds, clients]` of fractions, integers, floats or bools, NumPy, JAX
            or nested lists.

    Returns:
        The rows as int64, or as Python integers (object array) where they do not fit.

    Raises:
        ConfigurationError: If an entry is NaN, infinite or no number, or there are not
            two axes.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.integer_weights([[0.5, 0.25, 0.0], [600, 600, 1200]]).tolist()
        [[2, 1, 0], [1, 1, 2]]
        >>> from fractions import Fraction
        >>> weights = [Fraction(1, 1 + staleness) for staleness in range(3)]
        >>> mj.privacy.integer_weights([weights]).tolist()
        [[6, 3, 2]]

    Source: Multi-RoundSecAgg, Remark 1, asks for the row space of P only.
    """
    if is_table(weights):
        weights = read_log(weights, layout="matrix").participation
    return integer_rows(weights, "weights")[0]


def check_coalition(coalition: Any, num_clients: int) -> tuple[int, ...]:
    """Return a coalition's members in ascending order, or raise.

    Args:
        coalition: Indices of clients: a list, tuple or array of integers that are
            known.
        num_clients: Their number.

    Raises:
        ConfigurationError: If an index is none or out of range, a client is named
            twice, or all are: nobody would be left to be hidden.
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

    Their columns are zero instead of deleted, so that all others keep their indices and
    no program is compiled again; the row space is the same except for zeros at the
    members.

    Args:
        P: A history of any kind, or of several with leading axes; its values may be
            traced.
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
    return library.where(
        is_member.reshape((1,) * (history.ndim - 1) + (-1,)), nothing, history
    )


def log_without(
    log: ParticipationLog, coalition: Any
) -> tuple[ParticipationLog, tuple[Hashable, ...]]:
    """Return a log without the clients of some names, and those names.

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
    others = host_array(without(log.participation, members), "coalition")
    names = tuple(log.clients[place] for place in sorted(members))
    return dataclasses.replace(log, participation=others), names
