"""mu of clients from their weights in the sums, and from the noise of each sum.

A law takes columns of weights, one a client. Where noise is independent mu^2 is the sum over the
client's sums of (weight x clip)^2 / variance: Gaussian mechanisms compose by adding squares (Dong,
Roth, Su, "Gaussian differential privacy", 2022, Corollary 2). Where a strategy correlates it, see
`_strategies`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.device import at_once
from mrsa_jax.dp._strategies import Form, without_rounds
from mrsa_watch._base.errors import needed

# ---- Clients who each join by a coin of their own, against those who do not see who took part.
#
# Then a round without client i has the law N(y, s^2), and with it the mixture of N(y, s^2) and
# N(y + x, s^2) by its coin, whatever y is: the others' coins say nothing of it. Rounds compose, so
# `dp_accounting`'s privacy loss distribution of the sampled Gaussian is that of the whole training.

_STEP = 1e-4  # of privacy losses, which are rounded up to multiples of it, or down


def privacy_loss_distribution() -> Any:
    """Return dp_accounting's module of that name, which an extra brings."""
    rule = "distributions of privacy losses need the package dp_accounting"
    return needed("dp_accounting.pld.privacy_loss_distribution", "dp-accounting", rule)


@dataclasses.dataclass(frozen=True)
class Losses:
    """Privacy losses of one client's rounds, rounded so that epsilon is never too small.

    Attributes:
        above: `PrivacyLossDistribution`, rounded up.
        below: The same, rounded down.
    """

    above: Any
    below: Any

    @staticmethod
    def of(coin: float, rounds: int, noise_multiplier: float) -> Losses:
        """Return those of a client who joins each of J rounds with this chance, above 0."""
        library = privacy_loss_distribution()

        def composed(is_above: bool) -> Any:
            one = library.from_gaussian_mechanism(
                noise_multiplier,
                value_discretization_interval=_STEP,
                pessimistic_estimate=is_above,
                use_connect_dots=is_above,
                sampling_prob=coin,
            )
            return one.self_compose(rounds)

        return Losses(composed(is_above=True), composed(is_above=False))

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, rounded up."""
        return float(self.above.get_delta_for_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon with which delta is kept, rounded up."""
        return float(self.above.get_epsilon_for_delta(delta))

    def interval(self, delta: float, error: float) -> tuple[float, float]:
        """Return that epsilon rounded down, and rounded up."""
        del error
        return float(self.below.get_epsilon_for_delta(delta)), self.epsilon(delta)


# ---- mu of clients from their weights in the sums, and from the noise of each sum.

Columns = Float64[np.ndarray, "sums clients"]


@runtime_checkable
class Law(Protocol):
    """How mu comes from weights."""

    @property
    def is_exact(self) -> bool:
        """Whether contributions of these lengths reach mu; else it is an upper bound."""

    def mu(self, columns: Columns) -> Float64[np.ndarray, " clients"]:
        """Return mu after all sums; infinite where noise is missing."""

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each sum."""


@dataclasses.dataclass(frozen=True, eq=False)
class Independent:
    """Noise of its own in each sum.

    Attributes:
        ratios: float64 `[sums]`, clip over the noise's deviation; infinite without noise.
    """

    ratios: Float64[np.ndarray, " sums"]
    is_exact: bool = True

    @staticmethod
    def of(clips: np.ndarray, deviations: np.ndarray) -> Independent:
        """Return the law of sums with these clips and deviations of their noise."""
        with np.errstate(divide="ignore", over="ignore"):
            return Independent(clips / deviations)

    def mu(self, columns: Columns) -> Float64[np.ndarray, " clients"]:
        """Return mu after all sums."""
        unit, scale, bare = self._parts()
        found = scale * np.sqrt(np.square(unit) @ np.square(columns))
        found[(columns[bare] != 0).any(axis=0)] = np.inf
        return found

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each sum."""
        unit, scale, bare = self._parts()
        squares = np.square(unit[:, None] * columns)
        squares[bare] = np.where(columns[bare] != 0, np.inf, 0.0)
        return scale * np.sqrt(np.cumsum(squares, axis=0))

    def _parts(self) -> tuple[np.ndarray, float, np.ndarray]:
        bare = np.isinf(self.ratios)
        own = np.where(bare, 0.0, self.ratios)
        scale = float(own.max(initial=0.0)) or 1.0
        return own / scale, scale, np.flatnonzero(bare)


@dataclasses.dataclass(frozen=True, eq=False)
class Correlated:
    """Noise that a strategy correlates over the rounds, one sum each.

    Attributes:
        kept: bool `[rounds]`; the others had neither sum nor noise.
        unit: The strategy of the rounds that are kept times clips, in units of the noise and of
            the scale; zeros where there is none.
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
        strategy: np.ndarray, clips: np.ndarray, deviations: np.ndarray, kept: np.ndarray
    ) -> Correlated:
        """Return the law of a strategy with these clips and deviations of z."""
        own = without_rounds(strategy, kept)
        noise = deviations[kept]
        is_bare = noise == 0
        over = np.where(is_bare, np.inf, noise)[:, None]
        whitened = own * (clips[kept] / over)
        scale = float(np.abs(whitened).max(initial=0.0)) or 1.0
        unit = whitened / scale
        return Correlated(kept, unit, scale, own[is_bare] != 0, Form.of(unit))

    @property
    def is_exact(self) -> bool:
        """Whether C^T D^-1 C holds nothing negative."""
        return self.form.is_exact

    def mu(self, columns: Columns) -> Float64[np.ndarray, " clients"]:
        """Return mu after all rounds."""
        own = np.abs(columns if self.kept.all() else columns[self.kept])
        found = self.scale * np.sqrt(self.form.squares(own))
        found[(self.bare @ (own != 0)).any(axis=0)] = np.inf
        return found

    def after_each(self, columns: Columns) -> Columns:
        """Return mu after each round."""
        own = np.abs(columns[self.kept])
        squares = self._squares(own)
        is_bare = np.zeros(own.shape, np.bool_)
        rows = np.flatnonzero(~self.unit.any(axis=1))
        is_bare[rows] = self.bare @ (own != 0)
        squares[np.logical_or.accumulate(is_bare, axis=0)] = np.inf
        places = np.cumsum(self.kept)
        return np.concatenate([np.zeros((1, own.shape[1])), self.scale * np.sqrt(squares)])[places]

    def _squares(self, own: np.ndarray) -> np.ndarray:
        if (self.unit >= 0).all():
            return np.cumsum(np.square(self.unit @ own), axis=0)
        gram, found = np.zeros_like(self.unit), np.empty(own.shape)
        for place, row in enumerate(self.unit):
            gram += np.outer(row, row)
            found[place] = np.einsum("jm,jm->m", own, np.abs(gram) @ own)
        # what is released later hides nothing: a bound after later rounds holds before
        return np.minimum.accumulate(found[::-1], axis=0)[::-1]


def of_clients(law: Law, rows: np.ndarray) -> Float64[np.ndarray, " clients"]:
    """Return mu of all clients, a bounded number of them at once."""
    found = np.empty(rows.shape[1])
    step = at_once("columns", 4 * 8 * len(rows))
    for start in range(0, len(found), step):
        some = slice(start, start + step)
        found[some] = law.mu(rows[:, some].astype(np.float64))
    return found
