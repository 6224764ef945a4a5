"""Strong multi-round privacy: the T clients that only ever move together.

Multi-RoundSecAgg, equation (5), in the closed form of the smallest class of identical
non-zero columns of the participation matrix P (a generic combination of the rounds
separates all distinct columns). Exact: classes are refined, nothing is hashed.
"""

from __future__ import annotations

import collections
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.device import platform
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.prime import codes
from mrsa_jax._core.traced import is_traced
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._equal_columns import sorted_columns
from mrsa_jax.privacy.solver import column_codes
from mrsa_watch._base.errors import require


@overload
def strong_privacy(P: jax.core.Tracer, *, coalition: Any = ()) -> Int32[Array, ""]: ...
@overload
def strong_privacy(P: Any, *, coalition: Any = ()) -> int | None: ...
def strong_privacy(P: Any, *, coalition: Any = ()) -> int | Int32[Array, ""] | None:
    """Return the strong multi-round privacy T of a participation history.

    Any combination of the learnt sums that involves a client involves at least T
    clients with one and the same coefficient. Never larger than weak privacy, and cheap
    for any N.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`.
        coalition: Indices of clients who reveal their updates to the server, known and
            not all: they count as if they had taken no part.

    Returns:
        T, or None when no client took part. Inside `jit`, `vmap` or `shard_map` an
        int32, -1 when no client took part.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has not two axes or
            an empty one; if a coalition is none.

    Edge cases: clients who never took part are left out; one client alone in a round
    gives 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> mj.privacy.strong_privacy([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
        2
        >>> mj.privacy.strong_privacy([[0, 0]]) is None
        True
        >>> many = jnp.asarray([[[1, 1, 0], [1, 1, 1]], [[0, 0, 0], [0, 0, 0]]])
        >>> jax.vmap(mj.privacy.strong_privacy)(many).tolist()
        [1, -1]

    Source:
        Multi-RoundSecAgg, equation (5) with disjoint level sets S_i (the AAAI version;
        without them the definition is vacuous).
    """
    history = without(P, coalition)
    require(history.ndim == 2, "P", "must have two axes", history.shape)
    if is_traced(history):
        return strong_privacy_trajectory(history)[-1]
    array = host_array(history, "P")
    classes = collections.Counter(
        column_codes(array)[(array != 0).any(axis=0)].tolist()
    )
    return min(classes.values(), default=None)


def strong_privacy_trajectory(
    P: Any, *, coalition: Any = ()
) -> Int32[Array, "... rounds"]:
    """Return the strong privacy T after each round.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`;
            leading axes are separate histories.
        coalition: As for `strong_privacy`.

    Returns:
        int32 `[..., rounds]`: entry j after rows 0..j, -1 while no client took part.
        From then on it never rises: classes of equal columns only split.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, or P has fewer than two
            axes or an empty one; if a coalition is none.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.strong_privacy_trajectory(
        ...     [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]]
        ... ).tolist()
        [-1, 3, 3, 1]

    Cost: one sort of N pairs per round.

    Source:
        Multi-RoundSecAgg, equation (5).
    """
    array = without(P, coalition)
    if not is_traced(array) and platform() == "cpu":
        weights = codes(host_array(array, "P"))
        classes = _of_values(weights.reshape(-1, *weights.shape[-2:]))
        return on_device(classes.reshape(weights.shape[:-1]))
    if isinstance(array, jax.Array) and array.dtype.itemsize <= 4:
        return _trajectory(array.astype(jnp.int32))
    return _trajectory(on_device(codes(host_array(array, "P"))))


def _of_values(weights: np.ndarray) -> np.ndarray:
    """Return `_trajectory` of known histories `[batch, rounds, clients]`.

    Side by side in lexicographic order, equal columns are runs that each round splits.
    A tenth of the time that XLA's sorts take on a CPU, and nothing to compile.
    """
    batch, rounds, clients = weights.shape
    order, begins = sorted_columns(weights, last_only=False)
    columns = np.take_along_axis(weights, order[:, None], axis=-1)
    ever = np.logical_or.accumulate(columns != 0, axis=1)
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=begins.size)
    sizes[~ever.flat[starts]] = clients + 1
    of_round = np.searchsorted(starts, np.arange(0, begins.size, clients))
    least = np.minimum.reduceat(sizes, of_round).reshape(batch, rounds)
    return np.where(least > clients, -1, least).astype(np.int32)


@jax.jit
def _trajectory(
    weights: Int32[Array, "*batch rounds clients"],
) -> Int32[Array, "*batch rounds"]:
    def one_history(weights: Array) -> Array:
        clients = weights.shape[1]
        start = (jnp.zeros(clients, jnp.int32), jnp.zeros(clients, jnp.bool_))
        return lax.scan(_refine, varying_like(start, weights), weights)[1]

    classes = jax.vmap(one_history)(weights.reshape((-1, *weights.shape[-2:])))
    return classes.reshape(weights.shape[:-1])


def _refine(
    carry: tuple[Array, Array], weights: Array
) -> tuple[tuple[Array, Array], Array]:
    """Split every class of equal columns by the new row.

    Return the smallest class in use.
    Sorting the pairs (class, weight) puts equal columns next to each other; a class is
    named by its place in that order.
    """
    classes, ever = carry
    clients = classes.shape[0]
    ever = ever | (weights != 0)
    places = jnp.arange(clients, dtype=jnp.int32)
    old, value, member = lax.sort((classes, weights, places), num_keys=2)
    changed = (old[1:] != old[:-1]) | (value[1:] != value[:-1])
    begins = jnp.concatenate([jnp.ones(1, jnp.bool_), changed])
    place = jnp.cumsum(begins, dtype=jnp.int32) - 1
    sizes = jnp.zeros(clients, jnp.int32).at[place].add(1)[place]
    smallest = jnp.min(jnp.where(ever[member], sizes, clients + 1))
    smallest = jnp.where(smallest > clients, -1, smallest)
    return (jnp.zeros_like(classes).at[member].set(place), ever), smallest
