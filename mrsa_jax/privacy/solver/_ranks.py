"""The rank of every prefix of a history: proven, or with a stated chance of error.

The rank modulo any prime is a proven lower bound. Primes are drawn at random for each call, so
that no history can be made to deceive them: k of them err together with a chance that the size of
the minors bounds, and once their product exceeds every larger minor nothing is left to chance.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import secrets
from collections.abc import Callable

import numpy as np

from mrsa_jax.privacy.solver._exact import (
    collapse,
    column_codes,
    independent_rows,
    log2_length,
    residues_of,
)
from mrsa_watch._base.primes import draw_primes, enough_primes, error_bits

# What is not proven about one history errs with a chance below 2**-40.
AUDIT_BITS = 40
# What costs less is always done, whatever the effort.
CHEAP_SECONDS = 0.3
SECONDS_PER_PRODUCT = 2.2e-9  # of residues, in an elimination; measured on one core
_SPARE = 16
_PRIME_BITS = 30
_MOST_COUNTED = 10**8  # entries of all prefixes whose columns are counted; else the last one's


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Which rows of a matrix raise its rank.

    Attributes:
        kept: int64 `[rank]`, the rows that are no combinations of earlier ones.
        prefix: int64 `[rows]`, the rank of the first j + 1 rows.
        proven: bool `[rows]`, whether that is proven; a proven lower bound everywhere.
        error_bits: None where all is proven. Otherwise k: some rank is too small with error
            chance below 2**-k, whatever the matrix was made for.
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

    It is proven equal where it meets the number of distinct non-zero columns or rows so far, or
    once the product of the primes tried exceeds every larger minor (Hadamard): a larger minor would
    be a multiple of all. That is tried if it is predicted to take at most `seconds` of a core.
    """
    lengths = [log2_length(row) for row in matrix]
    longest = sorted(lengths, reverse=True)[: min(matrix.shape)]
    all_bits = math.fsum(longest) * (1 + 1e-9) + 1e-6
    enough = enough_primes(all_bits, bits=AUDIT_BITS)
    width = len(matrix) + _SPARE
    ranks = np.zeros(len(matrix), np.int64)
    bounds = ranks
    needed = np.zeros(len(matrix))
    whole_bits = 0.0  # of the product of the primes modulo which the whole matrix was ranked
    primes: list[int] = []
    kept: np.ndarray | None = None
    mixes = matrix.shape[1] > 2 * width
    rng = np.random.default_rng(secrets.randbits(128))
    while True:
        primes.extend(draw_primes(1, primes))
        prime = primes[-1]
        if mixes:  # random sums of the columns: as many keep every rank but for a chance of p**-16
            rows = product(matrix, rng.integers(0, prime, (matrix.shape[1], width)), prime)
        else:
            rows = residues_of(matrix, prime)
        found = np.cumsum(independent_rows(rows, prime))
        if (found > ranks).any():
            ranks = np.maximum(ranks, found)
            needed = _minor_bits(lengths, ranks)
            bounds = _prefix_bounds(matrix, ranks)
            kept = None
        if kept is None and (found == ranks).all():
            kept = np.flatnonzero(np.diff(ranks, prepend=0))
        whole_bits += 0.0 if mixes else math.log2(prime)
        proven = (ranks == bounds) | (whole_bits > needed)
        if kept is not None and proven.all():
            return Ranks(kept, ranks, proven, None, all_bits)
        if kept is not None and len(primes) >= enough:
            left = math.ceil(float((needed - whole_bits)[~proven].max()) / _PRIME_BITS)
            each = SECONDS_PER_PRODUCT * matrix.size * max(1, int(ranks[-1]))
            if left * each > seconds:
                bits = error_bits(all_bits, len(primes))
                return Ranks(kept, ranks, proven, bits, all_bits)
            mixes = False
            if progress is not None and left * each > 1.0:
                progress("proving the rank", len(primes), len(primes) + left)


def product(matrix: np.ndarray, factors: np.ndarray, prime: int) -> np.ndarray:
    """Return matrix @ factors modulo a prime, uint64; sums are split so that none overflows."""
    from scipy import sparse

    rows, columns = np.nonzero(matrix)
    entries = residues_of(matrix[rows, columns], prime).astype(np.int64)
    left = sparse.csr_array((entries, (rows, columns)), shape=matrix.shape)
    low, high = factors & 0xFFFF, factors >> 16
    largest = int(entries.max()) if len(entries) else 0
    bits = largest.bit_length() + 16 + int(matrix.shape[1]).bit_length()
    parts = [(left, low, 0), (left, high, 16)]
    if bits > 62:
        small, large = left.copy(), left.copy()
        small.data &= 0xFFFF
        large.data >>= 16
        parts = [(small, low, 0), (small, high, 16), (large, low, 16), (large, high, 32)]
    total = np.zeros((left.shape[0], factors.shape[1]), np.int64)
    for half, factor, shift in parts:
        total = (total + (half @ factor) % prime * pow(2, shift, prime)) % prime
    return total.astype(np.uint64)


def _prefix_bounds(matrix: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return min(distinct non-zero columns, distinct non-zero rows) of every prefix.

    Columns are counted only where the rows leave the rank open, of large histories in the end.
    """
    _, first = np.unique(column_codes(matrix.T), return_index=True)
    new = np.zeros(len(matrix), np.int64)
    new[first] = 1
    bounds = np.cumsum(new * (matrix != 0).any(axis=1))
    left = np.flatnonzero(ranks < bounds)
    if matrix.size * len(left) > _MOST_COUNTED:
        left = left[left == len(matrix) - 1]
    for j in left:
        bounds[j] = min(bounds[j], collapse(matrix[: j + 1]).num_groups)
    return bounds


def _minor_bits(lengths: list[float], ranks: np.ndarray) -> np.ndarray:
    """Return log2 of a bound on the minors one larger than the rank, for every prefix."""
    longest: list[float] = []
    bits = []
    for length, rank in zip(lengths, ranks, strict=True):
        bisect.insort(longest, -length)
        bits.append(-math.fsum(longest[: int(rank) + 1]) * (1 + 1e-9) + 1e-6)
    return np.asarray(bits)
