"""Clients with equal columns, merged exactly.

What they say about how well clients are hidden.
A class of s clients with equal columns c enters the Gram matrix P P^T as s c c^T, as
one client with the column sqrt(s) c would. The class's leverage, that of this one
column, is at most 1, and each member has 1/s of it: no client is hidden among fewer
than s. It is exactly 1 where the sum of the class follows from the sums, which exact
elimination of the merged history decides. Floats see that history too where they do not
know enough of the whole one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

from mrsa_jax.privacy.solver import column_codes

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no entry is lost modulo 2^64


class Merged(NamedTuple):
    """Histories in which one client of each class of equal columns takes part.

    Attributes:
        histories: `[batch, rounds, clients]`, the shape of those that were merged.
        sizes: float64 `[batch, clients]`, clients in the class of each; 1 for those in
            no sum.
        owner: int32 `[batch, clients]`, the client who takes part for each.
    """

    histories: np.ndarray
    sizes: Float64[np.ndarray, "batch clients"]
    owner: Int32[np.ndarray, "batch clients"]


def merge_equal_columns(histories: np.ndarray) -> Merged:
    """Merge the classes of equal columns of histories `[batch, rounds, clients]`.

    Examples:
        >>> found = merge_equal_columns(np.array([[[1, 1, 0, 2], [1, 1, 0, 1]]]))
        >>> found.sizes.tolist(), found.owner.tolist()
        ([[2.0, 2.0, 1.0, 1.0]], [[0, 0, 2, 3]])
        >>> found.histories.tolist()
        [[[1, 0, 0, 2], [1, 0, 0, 1]]]
    """
    order, begins = sorted_columns(histories, last_only=True)
    batch, clients = order.shape
    sizes = _run_lengths(begins)[:, 0]
    place = np.arange(clients, dtype=np.int32)
    start = np.maximum.accumulate(np.where(begins[:, 0], place, 0), axis=-1)
    owner = np.empty((batch, clients), np.int32)
    np.put_along_axis(owner, order, np.take_along_axis(order, start, axis=-1), axis=-1)
    own_sizes = np.empty((batch, clients))
    np.put_along_axis(own_sizes, order, sizes, axis=-1)
    is_merged = owner != place
    nothing = histories.dtype.type(0) if histories.dtype != object else 0
    merged = (
        np.where(is_merged[:, None, :], nothing, histories)
        if is_merged.any()
        else histories
    )
    is_in = (histories != 0).any(axis=1)
    return Merged(
        merged, np.where(is_in, own_sizes, 1.0), np.where(is_in, owner, place)
    )


def class_sizes(
    histories: np.ndarray, *, last_only: bool
) -> Float64[np.ndarray, "batch _ clients"]:
    """Count the clients with the column of each, after each round or the last one.

    Args:
        histories: Integers `[batch, rounds, clients]`.
        last_only: Whether to return only what holds after the last round,
            `[batch, 1, clients]`.

    Examples:
        >>> class_sizes(np.array([[[1, 1, 0], [1, 0, 0]]]), last_only=False).tolist()
        [[[2.0, 2.0, 1.0], [1.0, 1.0, 1.0]]]
    """
    order, begins = sorted_columns(histories, last_only=last_only)
    sizes = np.empty(begins.shape)
    np.put_along_axis(sizes, order[:, None, :], _run_lengths(begins), axis=-1)
    return sizes


def least_hidden(sizes: np.ndarray) -> np.ndarray:
    """Return the largest shares 1/s whose inverses are not below s in floats."""
    shares = 1 / sizes
    return np.where(1 / shares < sizes, np.nextafter(shares, 0.0), shares)


def wide_classes(history: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return one client of each class of equal columns, and the class of every client.

    For histories of very many clients: little memory next to them. None where classes
    are more than half as many as clients, and merging them is not worth its while.
    """
    if history.dtype == object:
        return None
    clients = history.shape[1]
    codes = np.zeros(clients, np.uint64)
    for row in history:
        codes = codes * _MULTIPLIER + row.astype(np.uint64)
    _, members, label = np.unique(codes, return_index=True, return_inverse=True)
    if 2 * len(members) > clients:
        return None
    # codes only propose classes: columns decide
    is_equal = all(bool((row == row[members][label]).all()) for row in history)
    return (members, label) if is_equal else None


def sorted_columns(
    histories: np.ndarray, *, last_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Order columns so that equal ones follow each other, and mark the classes.

    In lexicographic order, so that the classes of fewer rounds are runs as well.

    Returns:
        `[batch, clients]`; bool `[batch, rounds or 1, clients]`.
    """
    batch, _, clients = histories.shape
    lines = np.concatenate(
        [np.ascontiguousarray(column_codes(history)) for history in histories]
    ).reshape(batch, clients)
    order = np.argsort(lines, axis=-1, kind="stable").astype(np.int32)
    if last_only:
        lines = np.take_along_axis(lines, order, axis=-1)
        letters = lines.view(np.uint8).reshape(batch, clients, -1)
        differs = (letters[:, 1:] != letters[:, :-1]).any(axis=-1)[:, None]
    else:
        columns = np.take_along_axis(histories, order[:, None, :], axis=-1)
        differs = np.asarray(columns[..., 1:] != columns[..., :-1], np.bool_)
        np.logical_or.accumulate(differs, axis=1, out=differs)
    first = np.ones((*differs.shape[:-1], 1), np.bool_)
    return order, np.concatenate([first, differs], axis=-1)


def _run_lengths(begins: np.ndarray) -> np.ndarray:
    """Return the length of the run that each place is in; each line begins one."""
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=begins.size)
    return np.repeat(lengths, lengths).reshape(begins.shape).astype(np.float64)
