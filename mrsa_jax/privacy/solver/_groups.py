"""Clients with equal columns of P seen as one group with a weight.

Every vector of the row space is constant on such a group, so weak privacy is decided on one
column a group, a client's column counting as many times as the group has members.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Groups:
    """A participation history with equal columns taken together.

    Attributes:
        matrix: Integers `[rounds, groups]` (int64 below 2^62, so that two add up, or Python
            integers where one is larger), one column for each class of identical non-zero columns,
            lighter groups first.
        sizes: int64 `[groups]`, clients in each.
        members: Client indices of each group.
    """

    matrix: np.ndarray
    sizes: np.ndarray
    members: tuple[np.ndarray, ...]

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.sizes)

    def clients(self, groups: Any) -> tuple[int, ...]:
        """Return the sorted clients of some groups."""
        return tuple(sorted(int(i) for k in groups for i in self.members[k]))


def collapse(history: np.ndarray, weights: np.ndarray | None = None) -> Groups:
    """Group the columns of a history `[rounds, columns]` that are identical and not zero.

    `weights` counts the clients behind each column, one unless given.
    """
    part = np.flatnonzero((history != 0).any(axis=0))
    counts = np.ones(len(part), np.int64) if weights is None else weights[part]
    codes = column_codes(history)[part]
    _, first, label = np.unique(codes, return_index=True, return_inverse=True)
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, label, counts)
    order = np.lexsort((first, sizes))  # lighter groups first, then by their first client
    ends = np.cumsum(np.bincount(label, minlength=len(first)))[:-1]
    by_label = np.split(part[np.argsort(label, kind="stable")], ends)
    matrix = _smallest_type(history[:, part[first[order]]])
    return Groups(matrix, sizes[order], tuple(by_label[k] for k in order))


def column_codes(matrix: np.ndarray) -> np.ndarray:
    """Return values that are equal exactly where the columns of a matrix are."""
    if matrix.dtype == object:
        matrix = np.unique(matrix, return_inverse=True)[1].reshape(matrix.shape)
    if matrix.dtype == np.bool_:
        matrix = np.packbits(matrix, axis=0)
    lines = np.ascontiguousarray(matrix.T)
    return lines.view(np.dtype((np.void, lines.shape[1] * lines.dtype.itemsize)))[:, 0]


def _smallest_type(matrix: np.ndarray) -> np.ndarray:
    """Return the integers as int64 where the sum of any two fits, as Python integers elsewhere."""
    if matrix.dtype == object or matrix.dtype.itemsize == 8:
        most = max((abs(int(end(matrix))) for end in (np.min, np.max) if matrix.size), default=0)
        if most >= 1 << 62:
            return matrix.astype(object)
    return matrix.astype(np.int64)


def log2_length(row: np.ndarray) -> float:
    """Return log2 of a row's Euclidean length, 0 for a zero row."""
    if row.dtype == object:
        total: Any = sum(int(value) ** 2 for value in row if value)
    else:
        total = float((row.astype(np.float64) ** 2).sum())
    return 0.5 * math.log2(total) if total else 0.0
