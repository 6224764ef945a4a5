"""mu of clients from their weights in the sums, and from the noise of each sum.

A law takes columns of weights, one per client. Where noise is independent mu^2 is the
sum over the client's sums of (weight x clip)^2 / variance: Gaussian mechanisms compose
by adding squares (Dong, Roth, Su, "Gaussian differential privacy", 2022, Corollary 2).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.array_types import PerClient
from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.matrices import lower_triangle
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import check_size, require
from mrsa_watch._base.values import by_value

# A matrix mechanism with strategy C (lower triangular, [J, J]) releases C y + z: y_r
# the plain sum of round r, z_r independent noise. That says as much as the sums with
# noise C^-1 z, which is what a server adds that draws z_r in round r and adds some of
# older rounds' noise again. A client with weights p in the rounds and contributions x_r
# of length at most clip moves C y by C (p_r x_r), whose squared length, in units of the
# noise's deviations D^1/2, is sum_ab (C^T D^-1 C)_ab p_a p_b <x_a, x_b>: at most p^T
# |C^T D^-1 C| p with the entries' absolute values, and no less where they are not
# negative, as all x_r may be the same. C lower triangular, it holds for contributions
# that depend on what was released before.
#
# Sources: Choquette-Choo, Dvijotham, Pillutla, Ganesh, Steinke, Thakurta, "Correlated
# noise provably beats independent noise for differentially private learning" (2023),
# and Choquette-Choo, McMahan, Rush, Thakurta, "Multi-epoch matrix factorization
# mechanisms for private machine learning" (2023), for the absolute values; Denisov,
# McMahan, Rush, Smith, Thakurta (2022) for the adaptive releases.

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)
# fastest of 32 to 512 on two cores, for bands of 10 and for full matrices
_ROWS_AT_ONCE = 128


@needs_values
def toeplitz(coefficients: Any, rounds: Any) -> Float64[np.ndarray, "rounds rounds"]:
    """Return the strategy with the same coefficients in all rounds.

    C[r, s] = coefficients[r - s].
    With b coefficients it is banded: noise comes back for b - 1 rounds in C y + z, so
    that clients who take part every b rounds or more rarely have mu^2 added over their
    rounds.

    Args:
        coefficients: C's first column as far as it is not 0; those from `rounds` on are
            left out.
        rounds: J.

    Returns:
        The lower-triangular matrix.

    Raises:
        ConfigurationError: If the coefficients are no list of finite numbers, or the
            first is 0.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.dp.toeplitz([1, 0.5], 3).tolist()
        [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]]
    """
    from scipy import linalg

    size = check_size(rounds, "rounds")
    values = host_array(coefficients, "coefficients")
    is_list = values.dtype.kind in "fiu" and values.ndim == 1 and values.size > 0
    require(is_list, "coefficients", "must be a list of numbers", coefficients)
    values = values.astype(np.float64)
    require(
        bool(np.isfinite(values).all()), "coefficients", "must be finite", coefficients
    )
    require(bool(values[0] != 0), "coefficients", "must not start with 0", coefficients)
    first = np.pad(values[:size], (0, max(0, size - len(values))))
    return linalg.toeplitz(first, np.zeros(size))


def check_strategy(strategy: Any, rounds: int) -> Float64[np.ndarray, "rounds rounds"]:
    """Return a strategy matrix as float64, or raise.

    Raises:
        ConfigurationError: If it is no matrix `[rounds, rounds]` of finite numbers, has
            an entry above the diagonal (noise of later rounds), or a 0 on it (a sum
            that is not released).
    """
    array = host_array(strategy, "strategy")
    kind = f"must be a matrix of numbers [{rounds}, {rounds}], by the rounds"
    require(array.dtype.kind in "fiu", "strategy", kind, f"dtype {array.dtype}")
    require(array.shape == (rounds, rounds), "strategy", kind, f"shape {array.shape}")
    values = array.astype(np.float64)
    wrong = values[~np.isfinite(values)]
    require(wrong.size == 0, "strategy", "must be finite", *wrong[:1].tolist())
    rule = "must be lower triangular: a round's noise cannot wait for later rounds"
    values = lower_triangle(array, "strategy", rule)
    zeros = np.flatnonzero(np.diagonal(values) == 0)
    require(
        zeros.size == 0,
        "strategy",
        "must have no 0 on its diagonal",
        *zeros[:1].tolist(),
    )
    return values


def without_rounds(strategy: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """Return the strategy of some rounds.

    The others had no noise and no sum.

    The sums' noise is B z, B = C^-1; with z_r = 0 in the others it is that of B's kept
    rows and columns, whose inverse is the strategy.
    """
    count = int(is_kept.sum())
    if is_kept[:count].all():
        return strategy[:count, :count]
    from scipy.linalg import solve_triangular

    inverse = solve_triangular(strategy, np.eye(len(strategy)), lower=True)
    noise = inverse[np.ix_(is_kept, is_kept)]
    return np.tril(solve_triangular(noise, np.eye(count), lower=True))


class Form(NamedTuple):
    """p^T |C^T C| p by the lower triangle of |C^T C|.

    Entries off the diagonal are doubled.

    Attributes:
        lower: float64 `[rounds, rounds]`.
        band: Entries further than this below the diagonal are 0.
        is_exact: Whether no entry is an absolute value of a negative one.
    """

    lower: np.ndarray
    band: int
    is_exact: bool

    @staticmethod
    def of(unit: np.ndarray) -> Form:
        """Return the form of C whose rows are in units of the noise."""
        gram, size = unit.T @ unit, np.abs(unit).T @ np.abs(unit)
        gram[np.abs(gram) <= _ROUNDING * size] = 0.0  # of entries that cancel
        rows, columns = np.nonzero(gram)
        lower = np.tril(2.0 * np.abs(gram))
        lower[np.diag_indices_from(lower)] /= 2.0
        return Form(
            lower,
            int((rows - columns).max(initial=0)),
            bool(gram.min(initial=0.0) >= 0),
        )

    def squares(self, columns: np.ndarray) -> np.ndarray:
        """Return p^T |C^T C| p of each column p."""
        rounds, count = columns.shape
        total = np.zeros(count)
        for start in range(0, rounds, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, rounds)
            low = max(0, start - self.band)
            part = self.lower[start:stop, low:stop] @ columns[low:stop]
            total += np.einsum("jm,jm->m", columns[start:stop], part)
        return total


Columns = Float64[np.ndarray, "sums clients"]


@runtime_checkable
class Law(Protocol):
    """Law of mu by weights."""

    @property
    def is_exact(self) -> bool:
        """Whether contributions of these lengths reach mu; else it is a bound."""

    def mu(self, columns: Columns) -> PerClient:
        """Return mu after all sums; infinite where noise is missing."""

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each sum."""


@dataclasses.dataclass(frozen=True)
@by_value
class Independent:
    """Independent noise in each sum.

    Attributes:
        ratios: float64 `[sums]`, clip over the noise's deviation; infinite without
            noise.
    """

    ratios: Float64[np.ndarray, " sums"]
    is_exact: bool = True

    @staticmethod
    def of(clips: np.ndarray, deviations: np.ndarray) -> Independent:
        """Return the law of sums with these clips and deviations of their noise."""
        with np.errstate(divide="ignore", over="ignore"):
            return Independent(clips / deviations)

    def mu(self, columns: Columns) -> PerClient:
        """Return mu after all sums."""
        unit, scale, bare = self._parts()
        mu = scale * np.sqrt(np.square(unit) @ np.square(columns))
        mu[(columns[bare] != 0).any(axis=0)] = np.inf
        return mu

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each sum."""
        unit, scale, bare = self._parts()
        squares = np.square(unit[:, None] * columns)
        squares[bare] = np.where(columns[bare] != 0, np.inf, 0.0)
        return scale * np.sqrt(np.cumsum(squares, axis=0))

    def _parts(self) -> tuple[np.ndarray, float, np.ndarray]:
        bare = np.isinf(self.ratios)
        finite = np.where(bare, 0.0, self.ratios)
        scale = float(finite.max(initial=0.0)) or 1.0
        return finite / scale, scale, np.flatnonzero(bare)


@dataclasses.dataclass(frozen=True)
@by_value
class Correlated:
    """Noise that a strategy correlates over the rounds, one sum each.

    Attributes:
        kept: bool `[rounds]`; the others had neither sum nor noise.
        unit: The strategy of the rounds that are kept times clips, in units of the
            noise and of the scale; zeros where there is none.
        scale: A common factor, so that nothing overflows.
        bare: bool, what of the strategy's rows without noise is not 0.
        form: Of `unit`.
    """

    kept: np.ndarray
    unit: np.ndarray
    scale: float
    bare: np.ndarray
    form: Form

    @staticmethod
    def of(
        strategy: np.ndarray,
        clips: np.ndarray,
        deviations: np.ndarray,
        kept: np.ndarray,
    ) -> Correlated:
        """Return the law of a strategy with these clips and deviations of z."""
        reduced = without_rounds(strategy, kept)
        noise = deviations[kept]
        is_bare = noise == 0
        over = np.where(is_bare, np.inf, noise)[:, None]
        whitened = reduced * (clips[kept] / over)
        scale = float(np.abs(whitened).max(initial=0.0)) or 1.0
        unit = whitened / scale
        return Correlated(kept, unit, scale, reduced[is_bare] != 0, Form.of(unit))

    @property
    def is_exact(self) -> bool:
        """Whether C^T D^-1 C holds nothing negative."""
        return self.form.is_exact

    def mu(self, columns: Columns) -> PerClient:
        """Return mu after all rounds."""
        weights = np.abs(columns if self.kept.all() else columns[self.kept])
        mu = self.scale * np.sqrt(self.form.squares(weights))
        mu[(self.bare @ (weights != 0)).any(axis=0)] = np.inf
        return mu

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each round."""
        weights = np.abs(columns[self.kept])
        squares = self._squares(weights)
        is_bare = np.zeros(weights.shape, np.bool_)
        is_bare[np.flatnonzero(~self.unit.any(axis=1))] = self.bare @ (weights != 0)
        squares[np.logical_or.accumulate(is_bare, axis=0)] = np.inf
        places = np.cumsum(self.kept)
        return np.concatenate(
            [np.zeros((1, weights.shape[1])), self.scale * np.sqrt(squares)]
        )[places]

    def _squares(self, weights: np.ndarray) -> np.ndarray:
        if (self.unit >= 0).all():
            return np.cumsum(np.square(self.unit @ weights), axis=0)
        gram, squares = np.zeros_like(self.unit), np.empty(weights.shape)
        for place, row in enumerate(self.unit):
            gram += np.outer(row, row)
            squares[place] = np.einsum("jm,jm->m", weights, np.abs(gram) @ weights)
        # what is released later hides nothing: a bound after later rounds holds before
        return np.minimum.accumulate(squares[::-1], axis=0)[::-1]


def of_clients(law: Law, rows: np.ndarray) -> PerClient:
    """Return mu of all clients, a bounded number of them at once."""
    mu = np.empty(rows.shape[1])
    step = at_once("columns", 4 * 8 * len(rows))
    for start in range(0, len(mu), step):
        some = slice(start, start + step)
        mu[some] = law.mu(rows[:, some].astype(np.float64))
    return mu
