"""The rank of every prefix of a history: proven, or with a stated chance of error.

The rank modulo any prime is a proven lower bound. Primes are drawn at random for each
call, so that no history can be made to deceive them: k of them err together with a
chance that the size of the minors bounds, and once their product exceeds every larger
minor nothing is left to chance.

Exact combinations of rounds and the groups of equal columns, on which all searches
rest, come first.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from mrsa_jax._core.prime import host_residues
from mrsa_watch._base.primes import draw_primes, enough_primes, error_bits

# Exact integers: combinations of rounds that are checked, and the eliminations behind
# them.
#
# Everything here is decided over the integers. Residues only choose which system is
# solved.


def residues_of(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return integers of any size as uint64 residues."""
    return host_residues(matrix, prime, np.uint64)


def independent_rows(residues: np.ndarray, prime: int) -> np.ndarray:
    """Mark the rows that are no combinations of those before them, modulo a prime.

    Bool.
    """
    from mrsa_jax._core import compiled

    rows = np.ascontiguousarray(residues)
    return np.asarray(
        compiled.independent_rows_of_each(rows[None], np.uint64(prime))[0]
    )


def reduced_echelon(residues: np.ndarray, prime: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the non-zero rows of the reduced echelon form, and their pivot columns."""
    from mrsa_jax._core import compiled

    form, pivots = compiled.reduced_echelon(
        np.ascontiguousarray(residues), np.uint64(prime)
    )
    return form, pivots


def kernel_of(residues: np.ndarray, prime: int) -> np.ndarray:
    """Return a kernel basis modulo a prime, transposed: uint64 `[columns, corank]`."""
    form, pivots = reduced_echelon(residues, prime)
    columns = residues.shape[1]
    free = np.setdiff1d(np.arange(columns), pivots)
    kernel = np.zeros((columns, len(free)), np.uint64)
    kernel[free, np.arange(len(free))] = 1
    kernel[pivots] = (np.uint64(prime) - form[:, free]) % np.uint64(prime)
    return kernel


def combination_on(
    matrix: np.ndarray, support: Any, weights: np.ndarray, column: int | None = None
) -> tuple[list[int], np.ndarray] | None:
    """Find a combination of rows that vanishes outside a set of columns, exactly.

    Args:
        matrix: Integers `[rank, columns]` whose rows are independent.
        support: Column indices; what comes back is supported on a subset of them.
        weights: Of the columns: heavier ones are left out where there is a choice.
        column: One of the support at which the combination must not be zero, if any.

    Returns:
        Coefficients (coprime Python integers) and the boolean support of the
        combination, or None when there is none: the columns outside `support` already
        have full rank, or the others span `column`.
    """
    rank, columns = matrix.shape
    (prime,) = draw_primes(1)
    through = np.asarray([] if column is None else [column], np.int64)
    inside = np.zeros(columns, np.bool_)
    inside[np.asarray(list(support), np.int64)] = True
    inside[through] = False
    inner, outside = (
        np.flatnonzero(inside),
        np.setdiff1d(np.flatnonzero(~inside), through),
    )
    order = np.concatenate([outside, through, inner[np.argsort(-weights[inner])]])
    basis = order[independent_rows(residues_of(matrix, prime).T[order], prime)]
    if len(basis) < rank:
        return None
    # The last column that raises the rank is inside `support` unless those outside have
    # it all.
    last = basis[-1] if column is None else column
    if (column is None and not inside[last]) or last not in basis:
        return None
    return solve_on(matrix, np.append(basis[basis != last], last))


def solve_on(
    matrix: np.ndarray, basis: np.ndarray
) -> tuple[list[int], np.ndarray] | None:
    """Return z with z M zero on all columns of a basis but the last, and its support.

    None when the columns are no basis after all (dependent over the rationals).
    """
    solved = solve_each(matrix, basis, [len(basis) - 1])
    return None if solved is None else (solved[0], support_of(solved[0], matrix))


def solve_each(
    matrix: np.ndarray, basis: np.ndarray, places: Sequence[int]
) -> list[list[int]] | None:
    """Return a z for each of some places.

    Z M is zero on all columns of a basis but that one.
    Coprime Python integers; None when the columns are no basis after all.
    """
    import flint

    square = flint.fmpz_mat(
        [[int(value) for value in row] for row in matrix[:, basis].T]
    )
    target = flint.fmpz_mat(len(basis), len(places))
    for column, place in enumerate(places):
        target[place, column] = 1
    try:
        solution = square.solve(target)
    except ZeroDivisionError:
        return None
    numerators, _ = cast(Any, solution).numer_denom()
    every = []
    for column in numerators.transpose().tolist():
        values = [int(value) for value in column]
        divisor = math.gcd(*values)
        every.append([value // divisor for value in values])
    return every


def support_of(coefficients: list[int], matrix: np.ndarray) -> np.ndarray:
    """Mark the columns at which a combination of rows is not zero, exactly."""
    used = [j for j, z in enumerate(coefficients) if z]
    total = [0] * matrix.shape[1]
    for j in used:
        z, row = coefficients[j], matrix[j]
        for k in np.flatnonzero(row):
            total[k] += z * int(row[k])
    return np.asarray([value != 0 for value in total])


# Clients with equal columns of P seen as one group with a weight.
#
# Every vector of the row space is constant on such a group, so weak privacy is decided
# on one column a group, a client's column counting as many times as the group has
# members.


@dataclasses.dataclass(frozen=True)
class Groups:
    """A participation history with equal columns taken together.

    Attributes:
        matrix: Integers `[rounds, groups]` (int64 below 2^62, so that two add up, or
            Python integers where one is larger), one column for each class of identical
            non-zero columns, lighter groups first.
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
    """Group the columns of a history `[rounds, columns]` that are equal and not zero.

    `weights` counts the clients behind each column, one unless given.
    """
    part = np.flatnonzero((history != 0).any(axis=0))
    counts = np.ones(len(part), np.int64) if weights is None else weights[part]
    codes = column_codes(history)[part]
    _, first, label = np.unique(codes, return_index=True, return_inverse=True)
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, label, counts)
    # lighter groups first, then by their first client
    order = np.lexsort((first, sizes))
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
    """Return the integers as int64 where the sum of any two fits."""
    if matrix.dtype == object or matrix.dtype.itemsize == 8:
        most = max(
            (abs(int(end(matrix))) for end in (np.min, np.max) if matrix.size),
            default=0,
        )
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


# What is not proven about one history errs with a chance below 2**-40.
AUDIT_BITS = 40
# What costs less is always done, whatever the effort.
CHEAP_SECONDS = 0.3
SECONDS_PER_PRODUCT = 2.2e-9  # of residues, in an elimination; measured on one core
_SPARE = 16
_PRIME_BITS = 30
# entries of a matrix whose columns are counted after each row; else after the last
_MOST_COUNTED = 10**8


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Which rows of a matrix raise its rank.

    Attributes:
        kept: int64 `[rank]`, the rows that are no combinations of earlier ones.
        prefix: int64 `[rows]`, the rank of the first j + 1 rows.
        proven: bool `[rows]`, whether that is proven; a proven lower bound everywhere.
        error_bits: None where all is proven. Otherwise k: some rank is too small with
            error chance below 2**-k, whatever the matrix was made for.
        minor_bits: log2 of a bound on every minor.
    """

    kept: np.ndarray
    prefix: np.ndarray
    proven: np.ndarray
    error_bits: int | None
    minor_bits: float


def ranks_of(
    matrix: np.ndarray,
    seconds: float = math.inf,
    progress: Callable[[str, int, int], None] | None = None,
) -> Ranks:
    """Return the rank of the first j + 1 rows for every j.

    It is proven equal where it meets the number of distinct non-zero columns or rows so
    far, or once the product of the primes tried exceeds every larger minor (Hadamard):
    a larger minor would be a multiple of all. That is tried if it is predicted to take
    at most `seconds` of a core.
    """
    lengths = [log2_length(row) for row in matrix]
    longest = sorted(lengths, reverse=True)[: min(matrix.shape)]
    all_bits = math.fsum(longest) * (1 + 1e-9) + 1e-6
    enough = enough_primes(all_bits, bits=AUDIT_BITS)
    width = len(matrix) + _SPARE
    ranks = np.zeros(len(matrix), np.int64)
    bounds = ranks
    needed = np.zeros(len(matrix))
    # of the product of the primes modulo which the whole matrix was ranked
    whole_bits = 0.0
    primes: list[int] = []
    basis: np.ndarray | None = None
    mixes = matrix.shape[1] > 2 * width
    rng = np.random.default_rng(secrets.randbits(128))
    while True:
        primes.extend(draw_primes(1, primes))
        prime = primes[-1]
        # random sums of the columns: as many keep every rank except with chance p**-16
        if mixes:
            rows = product(
                matrix, rng.integers(0, prime, (matrix.shape[1], width)), prime
            )
        else:
            rows = residues_of(matrix, prime)
        modular = np.cumsum(independent_rows(rows, prime))
        if (modular > ranks).any():
            ranks = np.maximum(ranks, modular)
            needed = _minor_bits(lengths, ranks)
            bounds = _prefix_bounds(matrix, ranks)
            basis = None
        if basis is None and (modular == ranks).all():
            basis = np.flatnonzero(np.diff(ranks, prepend=0))
        whole_bits += 0.0 if mixes else math.log2(prime)
        proven = (ranks == bounds) | (whole_bits > needed)
        if basis is not None and proven.all():
            return Ranks(basis, ranks, proven, None, all_bits)
        if basis is not None and len(primes) >= enough:
            missing = math.ceil(
                float((needed - whole_bits)[~proven].max()) / _PRIME_BITS
            )
            each = SECONDS_PER_PRODUCT * matrix.size * max(1, int(ranks[-1]))
            if missing * each > seconds:
                return Ranks(
                    basis, ranks, proven, error_bits(all_bits, len(primes)), all_bits
                )
            mixes = False
            if progress is not None and missing * each > 1.0:
                progress("proving the rank", len(primes), len(primes) + missing)


def product(matrix: np.ndarray, factors: np.ndarray, prime: int) -> np.ndarray:
    """Return matrix @ factors modulo a prime, uint64.

    Sums are split so that none overflows.
    """
    from scipy import sparse

    rows, columns = np.nonzero(matrix)
    entries = residues_of(matrix[rows, columns], prime).astype(np.int64)
    sparse_matrix = sparse.csr_array((entries, (rows, columns)), shape=matrix.shape)
    low, high = factors & 0xFFFF, factors >> 16
    largest = int(entries.max()) if len(entries) else 0
    bits = largest.bit_length() + 16 + int(matrix.shape[1]).bit_length()
    parts = [(sparse_matrix, low, 0), (sparse_matrix, high, 16)]
    if bits > 62:
        small, large = sparse_matrix.copy(), sparse_matrix.copy()
        small.data &= 0xFFFF
        large.data >>= 16
        parts = [
            (small, low, 0),
            (small, high, 16),
            (large, low, 16),
            (large, high, 32),
        ]
    total = np.zeros((sparse_matrix.shape[0], factors.shape[1]), np.int64)
    for half, factor, shift in parts:
        total = (total + (half @ factor) % prime * pow(2, shift, prime)) % prime
    return total.astype(np.uint64)


def _prefix_bounds(matrix: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return min(distinct non-zero columns, distinct non-zero rows) of every prefix.

    Columns are counted only if the rows leave a rank open, of large histories in the
    end.
    """
    _, first = np.unique(column_codes(matrix.T), return_index=True)
    new = np.zeros(len(matrix), np.int64)
    new[first] = 1
    bounds = np.cumsum(new * (matrix != 0).any(axis=1))
    if not (ranks < bounds).any():
        return bounds
    if matrix.size > _MOST_COUNTED:
        bounds[-1] = min(bounds[-1], collapse(matrix).num_groups)
        return bounds
    return np.minimum(bounds, _distinct_columns(matrix))


def _distinct_columns(matrix: np.ndarray) -> np.ndarray:
    """Return the number of distinct columns that are not zero, of every prefix."""
    columns = matrix.shape[1]
    # equal columns of the rows so far have one label
    labels, has_entry = np.zeros(columns, np.int64), np.zeros(columns, bool)
    counts = np.zeros(len(matrix), np.int64)
    for j, row in enumerate(matrix):
        _, values = np.unique(row, return_inverse=True)
        classes, labels = np.unique(labels * columns + values, return_inverse=True)
        has_entry |= row != 0
        counts[j] = len(classes) - (not has_entry.all())
    return counts


def _minor_bits(lengths: list[float], ranks: np.ndarray) -> np.ndarray:
    """Bound the minors one larger than the rank of every prefix, as log2."""
    longest: list[float] = []
    bits = []
    for length, rank in zip(lengths, ranks, strict=True):
        bisect.insort(longest, -length)
        bits.append(-math.fsum(longest[: int(rank) + 1]) * (1 + 1e-9) + 1e-6)
    return np.asarray(bits)
