"""Leverage of very many clients: piece by piece of the columns, from one Gram matrix of the rounds.

The rows that are made orthonormal are never held: the factors that make them so are, one for each
pass, and most histories need one. Two products a piece, of J x J with J x (columns).
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64

from mrsa_jax._errors import require
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._exposure_wide import ROWS, first_rounds, fits, gram_of, parts_of, piece
from mrsa_jax.privacy._orthonormal import PASSES, factor, rounding_of

_HIGH = lax.Precision.HIGHEST
# The squared lengths of the first factor's rows, up to which one pass is accurate to 1e-12.
_WELL = 1e4


class Wide:
    """A history of many clients, ready to be followed piece by piece.

    Args:
        history: Integers `[rounds, clients]`.
        root: Of the noise over the spread's square, as for `_leverage.leverages`.
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
            ranks = np.asarray(rank_trajectory(exact.astype(np.int64)))
            self._first = first_rounds(quiet, exact)
        else:
            ranks = np.asarray(rank_trajectory(quiet))
            self._first = np.asarray(first_exposure(quiet))
        is_new = is_noisy | (np.diff(ranks, prepend=0) > 0)
        lengths = np.sqrt(np.diagonal(plain) + (noise * noise).sum(axis=1))
        self._scale = np.where(is_new & (lengths > 0), 1 / np.where(lengths > 0, lengths, 1), 0.0)
        self._noise = noise * self._scale[:, None]
        with jax.enable_x64(True):
            unit = plain * self._scale[:, None] * self._scale + self._noise @ self._noise.T
            self._factors = self._find_factors(jnp.asarray(unit))

    def _part(self, part: slice) -> Array:
        return piece(self._history, part, self._width, np.float64)

    def _find_factors(self, unit: Array) -> tuple[Array, ...]:
        once = factor(unit, jnp.float64(0))
        if float(jnp.max(jnp.sum(once * once, axis=1))) < _WELL:
            return (once,)
        factors: tuple[Array, ...] = (factor(unit, jnp.float64(rounding_of(len(unit)))),)
        scale = jnp.asarray(self._scale)
        while len(factors) < PASSES:
            total = _product(factors, jnp.asarray(self._noise))
            total = jnp.matmul(total, total.T, precision=_HIGH)
            for part in self._parts:
                total = _add_gram(total, _product(factors, scale[:, None] * self._part(part)))
            factors = (*factors, factor(total, jnp.float64(0)))
        rule = "must be a positive definite covariance where there are so many clients"
        require(bool(jnp.isfinite(factors[-1]).all()), "noise", rule, "one that is nearly singular")
        return factors

    def shares(self, last_only: bool) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the leverages of some clients after each round, `[rounds, part]`; or the last."""
        rounds = np.arange(len(self._history))[:, None]
        over = rounds[-1:] if last_only else rounds
        for part in self._parts:
            with jax.enable_x64(True):
                own = self._part(part)
                found = np.asarray(_followed(self._factors, self._scale, own, last_only))
            first = self._first[part]
            found = np.minimum(found[:, : len(first)], np.nextafter(1.0, 0.0))
            yield part, np.where((first >= 0) & (first <= over), 1.0, found)


@jax.jit
def _add_gram(total: Array, part: Array) -> Array:
    return total + jnp.matmul(part, part.T, precision=_HIGH).astype(total.dtype)


@jax.jit
def _product(factors: tuple[Array, ...], rows: Array) -> Float64[Array, "rounds columns"]:
    for each in factors:
        ends = range(ROWS, len(each) + ROWS, ROWS)
        pieces = [
            jnp.matmul(each[end - ROWS : end, :end], rows[:end], precision=_HIGH) for end in ends
        ]
        rows = jnp.concatenate(pieces)
    return rows


@jax.jit(static_argnames=("last_only",))
def _followed(
    factors: tuple[Array, ...], scale: Array, rows: Array, last_only: bool
) -> Float64[Array, "rounds columns"]:
    units = _product(factors, scale[:, None] * rows)
    squares = units * units
    return jnp.sum(squares, axis=0)[None] if last_only else jnp.cumsum(squares, axis=0)
