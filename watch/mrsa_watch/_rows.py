"""The independent rows of a growing history, sparse, and classes of like clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """One learnt sum.

    Attributes:
        places: int32, the sorted indices of its clients.
        weights: Their weights as integers without a common factor; None where all are
            1.
    """

    places: np.ndarray
    weights: tuple[int, ...] | None

    @staticmethod
    def of(places: Sequence[int], weights: Iterable[Any] | None) -> Row:
        """Return the row of clients and their positive weights, scaled to integers."""
        unsorted = np.asarray(places, np.int32)
        order = np.argsort(unsorted, kind="stable")
        row = Row(unsorted[order], None)
        if weights is None:
            return row
        pairs = [weight.as_integer_ratio() for weight in weights]
        # integers without a common factor, so that proportional weights give one row
        scale = math.lcm(*(below for _, below in pairs))
        integers = [above * (scale // below) for above, below in pairs]
        common = math.gcd(*integers)
        if all(value == common for value in integers):
            return row
        return row._replace(weights=tuple(integers[k] // common for k in order))

    def picked(self, at: np.ndarray) -> Row | None:
        """Return the row of some of its clients, as if alone; None if empty."""
        if not len(at):
            return None
        weights = self.weights
        if weights is not None:
            weights = tuple(weights[k] for k in at)
        return Row(self.places[at], weights)

    @property
    def bits(self) -> float:
        """Return log2 of its length."""
        square = len(self.places)
        if self.weights is not None:
            square = sum(weight * weight for weight in self.weights)
        return 0.5 * math.log2(square)

    @property
    def scale(self) -> float:
        """Return the factor of `floats` for a length of 1."""
        return 1 / math.sqrt(len(self.places)) if self.weights is None else 1.0

    @property
    def floats(self) -> np.ndarray:
        """Return its entries, float64: ones, or weights scaled to a length of 1."""
        if self.weights is None:
            return np.ones(len(self.places))
        # what is beyond the floats is nothing next to the largest
        excess = max(0, max(self.weights).bit_length() - 500)
        entries = np.asarray([float(value >> excess) for value in self.weights])
        entries /= entries.max()
        return entries / math.sqrt(math.fsum(entries * entries))

    @property
    def codes(self) -> np.ndarray:
        """Return int64 numbers that are equal where weights are."""
        if self.weights is None:
            return np.zeros(len(self.places), np.int64)
        numbers = {value: k for k, value in enumerate(dict.fromkeys(self.weights))}
        return np.asarray([numbers[value] for value in self.weights], np.int64)


class Rows:
    """Rows kept one after another; `starts[j]` to `starts[j + 1]` are those of row j.

    Attributes:
        rows: The rows as they came.
        starts: int64.
        clients: int32, sorted within each row.
        held: int64, where a weighted row's weights begin; -1 where they are all 1.
        values: float64, the weighted rows' entries, those of a row of length 1.
        scales: float64, what each row's entries are multiplied by for a length of 1.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.starts = np.zeros(1, np.int64)
        self.clients = np.zeros(0, np.int32)
        self.held = np.zeros(0, np.int64)
        self.values = np.zeros(0)
        self.scales = np.zeros(0)
        self._num_held = 0

    def append(self, row: Row) -> None:
        """Keep one more row."""
        count = len(self.rows)
        begin = int(self.starts[count])
        end = begin + len(row.places)
        self.starts = grown(self.starts, count + 2)
        self.clients = grown(self.clients, end)
        self.held = grown(self.held, count + 1)
        self.scales = grown(self.scales, count + 1)
        self.starts[count + 1] = end
        self.clients[begin:end] = row.places
        self.held[count] = -1
        self.scales[count] = row.scale
        if row.weights is not None:
            last = self._num_held + len(row.places)
            self.values = grown(self.values, last)
            self.values[self._num_held : last] = row.floats
            self.held[count] = self._num_held
            self._num_held = last
        self.rows.append(row)


class Classes:
    """Clients by their columns: equal ones share a number, those in no row have 0.

    Attributes:
        of: int64 `[clients]`.
        sizes: int64, of each number; 0 for those not in use, and for 0.
    """

    def __init__(self, of: np.ndarray, sizes: np.ndarray) -> None:
        self.of = of
        self.sizes = sizes

    @staticmethod
    def empty() -> Classes:
        """Return the classes of no clients."""
        return Classes(np.zeros(0, np.int64), np.zeros(1, np.int64))

    def joined(self, count: int) -> Classes:
        """Return the classes with clients up to so many."""
        more = max(0, count - len(self.of))
        return Classes(np.pad(self.of, (0, more)), self.sizes)

    def split(self, row: Row) -> Classes:
        """Return the classes with one more row."""
        width = len(row.places)
        # clients of one class stay together where they have one weight
        keys = self.of[row.places] * width + row.codes
        parts, part_of, counts = np.unique(
            keys, return_inverse=True, return_counts=True
        )
        old = parts // width
        # a class that the row holds as a whole, with one weight, keeps its number
        is_new = (counts < self.sizes[old]) | (old == 0)
        # new numbers follow all earlier ones, of which none is used again
        number = np.where(is_new, len(self.sizes) - 1 + np.cumsum(is_new), old)
        sizes = np.concatenate([self.sizes, counts[is_new]])
        is_cut = is_new & (old > 0)
        # several parts may come out of one class, which `sizes[...] -=` counts once
        np.subtract.at(sizes, old[is_cut], counts[is_cut])
        of = self.of.copy()
        of[row.places] = number[part_of]
        return Classes(of, sizes)


def grown(array: np.ndarray, *shape: int) -> np.ndarray:
    """Return an array of at least this shape with the same entries, zeros elsewhere.

    Each axis at least doubles where it grows, so that growing by ones costs little.
    """
    if np.less_equal(shape, array.shape).all():
        return array
    more = [
        (0, 0 if has >= needs else max(needs, 2 * has) - has)
        for has, needs in zip(array.shape, shape, strict=True)
    ]
    return np.pad(array, more)
