"""Leverage of very many clients: piece by piece of the columns, from one Gram matrix of the rounds.

The rows that are made orthonormal are never held: the factors that make them so are, one for each
pass, and most histories need one. Two products a piece, of J x J with J x (columns).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64

from mrsa_jax._arrays import on_device
from mrsa_jax._errors import require
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._exposure_wide import ROWS, first_rounds, fits, gram_of, parts_of, piece
from mrsa_jax.privacy._orthonormal import (
    PASSES,
    UNIT,
    Units,
    factor,
    growth_of,
    is_near_one,
    relative_errors,
    rest_of_three,
    rounding_of,
    terms,
)

_HIGH = lax.Precision.HIGHEST
_WELL = 5e-10  # what rows may not be orthonormal by, for one pass to do


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
            self._find_factors(on_device(unit))

    def _part(self, part: slice) -> Array:
        return piece(self._history, part, self._width, np.float64)

    def _find_factors(self, unit: Array) -> None:
        """Keep the factors, how rows grow by them, and what these may not be orthonormal by."""
        rounds, clients = self._history.shape
        once = factor(unit, jnp.float64(0))
        # what the Gram matrix and its factor are rounded by, by the sums of the factor's rows
        summed = 2 * terms(rounds) + (0 if fits(self._history) else terms(clients)) + 4
        lengths = np.abs(np.asarray(once)).sum(axis=1)
        self._last = float(UNIT * summed * (lengths @ lengths))
        self._factors: tuple[Array, ...] = (once,)
        growth = growth_of([once])
        if not self._last < _WELL:
            self._last = rest_of_three(rounds, clients)
            self._factors, growth = self._three(unit)
        self._growth = growth

    def _three(self, unit: Array) -> tuple[tuple[Array, ...], Array]:
        total = unit
        factors: tuple[Array, ...] = (factor(unit, jnp.float64(rounding_of(len(unit)))),)
        scale = on_device(self._scale)
        while len(factors) < PASSES:
            total = _product(factors, on_device(self._noise))
            total = jnp.matmul(total, total.T, precision=_HIGH)
            for part in self._parts:
                total = _add_gram(total, _product(factors, scale[:, None] * self._part(part)))
            factors = (*factors, factor(total, jnp.float64(0)))
        rule = "must be a positive definite covariance where there are so many clients"
        require(bool(jnp.isfinite(factors[-1]).all()), "noise", rule, "one that is nearly singular")
        return factors, jnp.where(is_near_one(total), growth_of(factors), jnp.float64(np.nan))

    def shares(self, last_only: bool) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield the leverages of some clients after each round, `[rounds, part]`; or the last.

        And what they err by, relative to them.
        """
        rounds = np.arange(len(self._history))[:, None]
        over = rounds[-1:] if last_only else rounds
        for part in self._parts:
            with jax.enable_x64(True):
                own = self._part(part)
                both = _followed(
                    self._factors, self._growth, self._scale, own, self._last, last_only
                )
                found, errors = (np.asarray(each) for each in both)
            first = self._first[part]
            found, errors = found[:, : len(first)], errors[:, : len(first)]
            is_exposed = (first >= 0) & (first <= over)
            # exact arithmetic knows who is exposed, and who is in no sum
            is_in = np.logical_or.accumulate(self._history[:, part] != 0, axis=0)
            is_known = is_exposed | ~(is_in[-1:] if last_only else is_in)
            found = np.where(is_exposed, 1.0, np.minimum(found, np.nextafter(1.0, 0.0)))
            yield part, found, np.where(is_known, 0.0, errors)


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
    factors: tuple[Array, ...], growth: Array, scale: Array, rows: Array, last: Any,
    last_only: bool,
) -> tuple[Float64[Array, "rounds columns"], Float64[Array, "rounds columns"]]:  # fmt: skip
    rows = scale[:, None] * rows
    units = Units(_product(factors, rows), rows, growth, jnp.zeros_like(growth))
    squares = units.values * units.values
    found = jnp.sum(squares, axis=0)[None] if last_only else jnp.cumsum(squares, axis=0)
    return found, relative_errors(units, found, last)
