"""Leverage of very many clients, piece by piece.

Piece by piece of the columns, from one Gram matrix of the rounds.
The rows that are made orthonormal are never held: the factors that make them so are,
one for each pass, and most histories need one. Two products a piece, of J x J with J x
(columns).

Rows made orthonormal, and bounds of what floats err by there, come first; they serve
histories of every size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float64

from mrsa_jax._core.arrays import on_device
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._exposure import (
    ROWS,
    first_exposure,
    first_of_wide,
    fits,
    gram_of,
    parts_of,
    piece,
)
from mrsa_watch._base.errors import require

# Orthonormal rows by matrix products: what leverage is read from, for all rounds at
# once.
#
# With Q the rows of a matrix made orthonormal one after another (Gram and Schmidt), the
# sum of the squares of the first j rows' entries in column i is p_i^T G^-1 p_i of those
# rows, G their Gram matrix: one factorisation serves every round and every client. It
# is done by Cholesky factors of Gram matrices, three times over, because one alone
# squares the condition of the rows: the first is shifted so that no rounding makes it
# indefinite, the others start from rows that are nearly orthonormal (shifted
# CholeskyQR3: Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa 2020). Products of
# matrices and few launches, where a loop over the rounds would take one each.
#
# **What floats err by.** Let R be the rows of length 1 and F the product of the
# factors, whatever numbers they hold: the rows of F R span exactly what those of R
# span, so leverages are h_i = q_i^T (Q Q^T)^-1 q_i of Q = F R without error. What is
# computed is Q + E. A product of floats errs, entry by entry, by at most g = u n times
# the product of absolute values (u = 2^-53, n terms in any order), the passes one after
# another; so with M = |F_3| |F_2| |F_1|
#
#     |E| <= (3 g + 5 u) M |R|,        |E_ki| <= (3 g + 5 u) |M_k| |R_:k,i|   (Cauchy),
#
# 5 u for what R itself was rounded by (2 of them for the roots of merged columns'
# sizes). The last pass starts from rows that are orthonormal up to less than a tenth
# (checked), and leaves Q + E orthonormal up to what its Gram matrix and its factor were
# rounded by, d. So relative to h_i the figure errs by at most 2 e + e^2 + d', e =
# |E_i|/|q_i|, d' = d + 2 |E| + |E|^2: the rows of M tell, that is how much a
# combination of the rows grows when it is made one long. The shortest rest of a row
# after those before it (a pivot) does not: rests of 1/2 can leave rows of M as long as
# 2^n (Kahan). For more than 64 terms 8 sqrt(n) u stands for n u: with rounding errors
# of mean zero it holds except with chance 2 e^-32 (Higham, Mary 2019, theorem 2.4).

PASSES = 3
# Of a row of length 1: what is nearer to the span of those before it is seen as in it.
_NOTHING = 1e-9
# and this is what rounding leaves of a row that is a combination of others
_NOTHING_AT_ALL = 1e-12
UNIT = 2.0**-53
_NO_LENGTH = 1e-300


class Units(NamedTuple):
    """Rows made orthonormal.

    Attributes:
        values: Q, `[rows, columns]`.
        rows: R, the rows that they were made of, of length 1.
        growth: The squared length of each row of M; not a number where nothing is known
            of Q.
        defect: The squared length of what Q is seen to differ from F R by, of each row.
    """

    values: Float64[Array, "rows columns"]
    rows: Float64[Array, "rows columns"]
    growth: Float64[Array, " rows"]
    defect: Float64[Array, " rows"]


def orthonormal(rows: Float64[Array, "rows columns"]) -> Units:
    """Make independent rows orthonormal one after another; rows of zeros stay."""
    first = values = unit_rows(rows)
    factors = []
    gram = first
    for step in range(PASSES):
        gram = jnp.matmul(values, values.T, precision=lax.Precision.HIGHEST)
        shift = jnp.float64(0.0 if step else rounding_of(len(values)))
        factors.append(factor(gram, shift))
        values = jnp.matmul(factors[-1], values, precision=lax.Precision.HIGHEST)
    growth = jnp.where(is_near_one(gram), growth_of(factors), jnp.nan)
    return Units(values, first, growth, jnp.zeros_like(growth))


def is_near_one(gram: Float64[Array, "rows rows"]) -> Bool[Array, ""]:
    """Return whether a Gram matrix is the identity to within a tenth, zeros apart."""
    off = gram - jnp.diag((jnp.diagonal(gram) > 0).astype(gram.dtype))
    return jnp.linalg.norm(off) < 0.1


def growth_of(
    factors: Sequence[Float64[Array, "rows rows"]],
) -> Float64[Array, " rows"]:
    """Return the squared length of each row of M, from above."""
    first, *others = factors
    lengths = jnp.sqrt(jnp.sum(first * first, axis=1))
    for each in others:
        lengths = jnp.abs(each) @ lengths
    return lengths * lengths


def relative_errors(
    units: Units, squares: Float64[Array, "rows columns"], last: Any
) -> Float64[Array, "rows columns"]:
    """Bound the relative error of sums of squares over the first rows.

    Args:
        units: The rows, or some columns of them.
        squares: The sums of these columns, or only those over all rows, `[1, columns]`.
        last: What the rows are not orthonormal by, d.
    """
    parts = units.rows * units.rows, units.growth[:, None], units.defect[:, None]
    if len(squares) == 1:
        rows, growth, more = (jnp.sum(each, axis=0)[None] for each in parts)
    else:
        rows, growth, more = (jnp.cumsum(each, axis=0) for each in parts)
    return errors_of(squares, rows, growth, more, len(units.rows), last, jnp)


def errors_of(
    squares: Any, rows: Any, growth: Any, more: Any, count: Any, last: Any, library: Any
) -> Any:
    """Return `relative_errors` from sums of R's squares, growth and defect."""
    unit = UNIT * (3 * terms(count) + 5)
    # one who is in no sum has none
    over = library.where(squares > 0, squares, _NO_LENGTH)
    error = unit * library.sqrt(growth * rows / over) + library.sqrt(more / over)
    others = unit * library.sqrt(growth * count) + library.sqrt(more)
    return error * (2 + error) + others * (2 + others) + last


def rest_of_one(rows: int, squares: float) -> float:
    """Bound how far rows are from orthonormal after one pass from an exact Gram matrix.

    That is what the factor is rounded by: `squares` are of its rows' absolute sums,
    added up.
    """
    return UNIT * (2 * terms(rows) + 4) * squares


def rest_of_three(rows: int, columns: int) -> float:
    """Bound how far rows are from orthonormal after the last pass, d."""
    return UNIT * rows * (terms(columns) + 4 * terms(rows))


def terms(count: int) -> float:
    """Bound the rounding error of a sum of products, in units of one rounding."""
    return min(float(count), 8 * math.sqrt(count))


def orthonormal_by_rows(
    rows: Float64[Array, "rows columns"], is_new: Bool[Array, " rows"]
) -> Units:
    """Make rows orthonormal where they may depend on others.

    Those become zeros.
    One row after another, each twice; F is followed together with them, and what Q
    differs from F R by is seen afterwards.

    Args:
        rows: They.
        is_new: Which are known to be no combinations of those before.
    """
    zero, unity = 0.0, 1.0

    def one_row(carry: tuple[Array, Array], step: tuple[Array, ...]) -> Any:
        units, inverse = carry
        index, row, is_known = step
        once = units @ row
        rest = row - once @ units
        twice = units @ rest
        rest = rest - twice @ units
        length = jnp.sqrt(jnp.sum(rest * rest))
        is_kept = length > _NOTHING
        over = jnp.where(is_kept, length, unity)
        combination = (-(once + twice) @ inverse).at[index].set(unity) / over
        # one that is left out although it is known to be new, or perhaps is
        is_lost = ~is_kept & (is_known | (length > _NOTHING_AT_ALL))
        unit, combination = (
            jnp.where(is_kept, each, zero) for each in (rest / over, combination)
        )
        return (units.at[index].set(unit), inverse.at[index].set(combination)), is_lost

    rows = unit_rows(rows)
    index = jnp.arange(len(rows), dtype=jnp.int32)
    start = jnp.zeros_like(rows), jnp.zeros((len(rows),) * 2, rows.dtype)
    (values, inverse), is_lost = lax.scan(one_row, start, (index, rows, is_new))
    growth = jnp.where(is_lost, jnp.nan, growth_of([inverse]))
    defect = values - jnp.matmul(inverse, rows, precision=lax.Precision.HIGHEST)
    return Units(values, rows, growth, jnp.sum(defect * defect, axis=1))


def unit_rows(rows: Float64[Array, "rows columns"]) -> Float64[Array, "rows columns"]:
    """Return rows of length 1; zero where a row is."""
    # the square of a large entry may be no number
    for size in (jnp.max, jnp.linalg.norm):
        length = size(jnp.abs(rows), axis=-1, keepdims=True)
        rows = rows / jnp.where(length > 0, length, 1.0)
    return rows


def rounding_of(rows: int) -> float:
    """Bound what rounding takes from the eigenvalues of a Gram matrix of rows."""
    return 4e-16 * rows * rows


def factor(
    gram: Float64[Array, "rows rows"], shift: Float64[Array, ""]
) -> Float64[Array, "rows rows"]:
    """Return the inverse of a Gram matrix' lower Cholesky factor; 1 for rows of zeros.

    Args:
        gram: Of rows of length at most 1.
        shift: Is added to the diagonal.
    """
    empty = jnp.where(jnp.diagonal(gram) > 0, jnp.float64(0), jnp.float64(1))
    whole = gram + jnp.diag(empty + shift)
    return _lower_inverse(lax.linalg.cholesky(whole, symmetrize_input=False))


def _lower_inverse(lower: Float64[Array, "rows rows"]) -> Float64[Array, "rows rows"]:
    """Invert a lower triangular matrix by doubling the blocks on its diagonal.

    Products of ever larger blocks, log2 of the rows in number: a triangular solve takes
    a CPU fifteen times as long, and an accelerator as many steps as rows.
    """
    rows = lower.shape[-1]
    size = 1 << (rows - 1).bit_length()
    ones = (jnp.arange(size) >= rows).astype(lower.dtype)
    lower = jnp.pad(lower, ((0, size - rows),) * 2) + jnp.diag(ones)
    blocks = (1.0 / jnp.diagonal(lower))[:, None, None]
    width = 1
    while width < size:
        pairs = size // (2 * width)
        at = jnp.arange(pairs)
        below = lower.reshape(pairs, 2, width, pairs, 2, width)[at, 1, :, at, 0, :]
        first, second = blocks[0::2], blocks[1::2]
        high = lax.Precision.HIGHEST
        corner = -jnp.matmul(
            jnp.matmul(second, below, precision=high), first, precision=high
        )
        upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=2)
        blocks = jnp.concatenate(
            [upper, jnp.concatenate([corner, second], axis=2)], axis=1
        )
        width *= 2
    return blocks[0, :rows, :rows]


_HIGH = lax.Precision.HIGHEST
WELL = 5e-10  # what rows may not be orthonormal by, for one pass to do


class Wide:
    """A history of many clients, ready to be followed piece by piece.

    Args:
        history: Integers `[rounds, clients]`.
        root: Of the noise over the spread's square, as for `_leverage.leverages`.

    Attributes:
        ranks: int `[rounds]`, of the rounds without noise.
        first: int `[clients]`, from which round each is exposed, -1 for never.
    """

    def __init__(self, history: np.ndarray, root: np.ndarray | None) -> None:
        rounds = len(history)
        self._history = history
        self._parts, self._width = parts_of(history)
        is_noisy = np.zeros(rounds, np.bool_)
        noise = np.zeros((rounds, 0))
        if root is not None:
            noise = root if root.ndim == 2 else np.diag(root)
            is_noisy = (noise != 0).any(axis=1)
        plain = gram_of(history)
        quiet = history if not is_noisy.any() else history * ~is_noisy[:, None]
        if fits(history):
            exact = plain * ~(is_noisy[:, None] | is_noisy[None, :])
            self.ranks = np.asarray(rank_trajectory(exact.astype(np.int64)))
            self.first = first_of_wide(quiet, exact)
        else:
            self.ranks = np.asarray(rank_trajectory(quiet))
            self.first = np.asarray(first_exposure(quiet))
        is_new = is_noisy | (np.diff(self.ranks, prepend=0) > 0)
        lengths = np.sqrt(np.diagonal(plain) + (noise * noise).sum(axis=1))
        self._scale = np.where(
            is_new & (lengths > 0), 1 / np.where(lengths > 0, lengths, 1), 0.0
        )
        self._noise = noise * self._scale[:, None]
        with jax.enable_x64(True):
            unit = (
                plain * self._scale[:, None] * self._scale + self._noise @ self._noise.T
            )
            self._find_factors(on_device(unit))

    def _part(self, part: slice) -> Array:
        return piece(self._history, part, self._width, np.float64)

    def _find_factors(self, unit: Array) -> None:
        """Keep the factors, and bound what they leave of the rows' errors."""
        rounds, clients = self._history.shape
        once, self._growth = _one_pass(unit)
        lengths = np.abs(np.asarray(once)).sum(axis=1)
        self._last = rest_of_one(rounds, lengths @ lengths)
        self._last += (
            0.0 if fits(self._history) else UNIT * terms(clients) * (lengths @ lengths)
        )
        self._factors: tuple[Array, ...] = (once,)
        if not self._last < WELL:
            self._last = rest_of_three(rounds, clients)
            self._factors, self._growth = self._three(unit)

    def _three(self, unit: Array) -> tuple[tuple[Array, ...], Array]:
        total = unit
        factors: tuple[Array, ...] = (
            _factor(unit, np.float64(rounding_of(len(unit)))),
        )
        while len(factors) < PASSES:
            total = _add_gram(np.float64(0), _product(factors, self._noise))
            for part in self._parts:
                columns = self._scale[:, None] * self._part(part)
                total = _add_gram(total, _product(factors, columns))
            factors = (*factors, _factor(total, np.float64(0)))
        rule = "must be a positive definite covariance where there are so many clients"
        is_finite = bool(np.isfinite(np.asarray(factors[-1])).all())
        require(is_finite, "noise", rule, "one that is nearly singular")
        return factors, _growth_where_near_one(total, factors)

    def shares(self, last_only: bool) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield the leverages of some clients after each round, `[rounds, part]`.

        Or the last.
        And what they err by, relative to them.
        """
        rounds = np.arange(len(self._history))[:, None]
        over = rounds[-1:] if last_only else rounds
        made = self._factors, self._growth, self._scale
        for part in self._parts:
            with jax.enable_x64(True):
                both = _followed(*made, self._part(part), self._last, last_only)
                shares, errors = (np.asarray(each) for each in both)
            first = self.first[part]
            shares, errors = shares[:, : len(first)], errors[:, : len(first)]
            is_exposed = (first >= 0) & (first <= over)
            # exact arithmetic knows who is exposed, and who is in no sum
            is_in = np.logical_or.accumulate(self._history[:, part] != 0, axis=0)
            is_known = is_exposed | ~(is_in[-1:] if last_only else is_in)
            shares = np.where(
                is_exposed, 1.0, np.minimum(shares, np.nextafter(1.0, 0.0))
            )
            yield part, shares, np.where(is_known, 0.0, errors)


_factor = jax.jit(factor)


@jax.jit
def _one_pass(unit: Array) -> tuple[Array, Array]:
    once = factor(unit, jnp.float64(0))
    return once, growth_of([once])


@jax.jit
def _growth_where_near_one(
    gram: Array, factors: tuple[Array, ...]
) -> Float64[Array, " rows"]:
    return jnp.where(is_near_one(gram), growth_of(factors), jnp.nan)


@jax.jit
def _add_gram(total: Array, part: Array) -> Array:
    return total + jnp.matmul(part, part.T, precision=_HIGH).astype(total.dtype)


@jax.jit
def _product(
    factors: tuple[Array, ...], rows: Array
) -> Float64[Array, "rounds columns"]:
    for each in factors:
        ends = range(ROWS, len(each) + ROWS, ROWS)
        pieces = [
            jnp.matmul(each[end - ROWS : end, :end], rows[:end], precision=_HIGH)
            for end in ends
        ]
        rows = jnp.concatenate(pieces)
    return rows


@jax.jit(static_argnames=("last_only",))
def _followed(
    factors: tuple[Array, ...],
    growth: Array,
    scale: Array,
    rows: Array,
    last: Any,
    last_only: bool,
) -> tuple[Float64[Array, "rounds columns"], Float64[Array, "rounds columns"]]:
    rows = scale[:, None] * rows
    units = Units(_product(factors, rows), rows, growth, jnp.zeros_like(growth))
    squares = units.values * units.values
    shares = (
        jnp.sum(squares, axis=0)[None] if last_only else jnp.cumsum(squares, axis=0)
    )
    return shares, relative_errors(units, shares, last)
