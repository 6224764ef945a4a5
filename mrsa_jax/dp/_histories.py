"""Participation histories of a scheme.

Laws of counts that are known, simulations of others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from mrsa_jax import selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.selector import block_size_of, check_selector, cohort_size_of
from mrsa_jax._core.streams import threshold
from mrsa_jax.availability import Availability, Independent
from mrsa_jax.dp._mixtures import Known, Sampled
from mrsa_jax.dp._spending import Form
from mrsa_watch._base.errors import (
    POSITIVE,
    check_blind,
    check_number,
    check_size,
    require,
)

_ROWS = 256  # whose best partners are sought side by side


def most_counts(rounds: int, separation: int) -> int:
    """Return in how many of J rounds one client can be, b or more of them apart."""
    return -(-rounds // separation)


def largest_square(
    form: Float64[np.ndarray, "rounds rounds"], separation: int
) -> float:
    """Bound p^T F p over participations with separation b.

    Exact where F's entries beyond its diagonal are 0 for rounds b or more apart, and
    for b = 1: then p^T F p is a sum over the rounds of p. Else each round is given the
    best partners that it can have by itself, so that the sum is no less.

    Args:
        form: F, symmetric, no entry negative: |C^T C| of a strategy.
        separation: b >= 1.
    """
    rounds = len(form)
    gains = np.diagonal(form).copy()
    for start in range(0, rounds, _ROWS):
        rows = np.arange(start, min(start + _ROWS, rounds))
        values = form[rows].copy()
        values[np.abs(rows[:, None] - np.arange(rounds)) < separation] = 0.0
        gains[rows] += _best(values, separation)
    return float(_best(gains[None], separation)[0])


def _best(values: np.ndarray, separation: int) -> np.ndarray:
    """Return the largest sum of each row's entries at places b or more apart."""
    count, rounds = values.shape
    best = np.zeros((rounds + 1, count))
    for place in range(rounds):
        before = best[max(0, place + 1 - separation)]
        best[place + 1] = np.maximum(best[place], values[:, place] + before)
    return np.asarray(best[-1])


Progress = Callable[[int, int], None]
PARTS = 20
"""Of a simulation, after each of which progress is reported."""


@dataclasses.dataclass(frozen=True)
class Histories:
    """Participation histories of a scheme over some rounds.

    Attributes:
        selector: Whom the server asks.
        availability: Who is online, for that many clients.
        rounds: J.
        separation: b, least difference of two rounds of one client.
        coins: float64 `[clients]`, chance of each to be in a round in which it is
            rested, where that is independent and alike in all rounds; None where it is
            not.
    """

    selector: Any
    availability: Any
    rounds: int
    separation: int
    coins: Float64[np.ndarray, " clients"] | None

    @staticmethod
    def of(selector: Any, availability: Availability, rounds: int) -> Histories:
        """Return the histories of a scheme under an availability model."""
        bound = availability.for_clients(check_selector(selector).num_clients)
        separation = int(getattr(selector, "separation", 1))
        inside = getattr(selector, "selector", selector)
        coins, chances = None, getattr(inside, "chances", None)
        rests_alone = separation == 1 or getattr(inside, "joins_alone", False)
        if isinstance(bound, Independent) and chances is not None and rests_alone:
            coins = chances(bound.dropout_rates)
        return Histories(selector, bound, rounds, separation, coins)

    @property
    def most(self) -> int:
        """Rounds that one client can be in."""
        return most_counts(
            self.rounds, int(getattr(self.selector, "num_bins", self.separation))
        )

    def known(self, client: int, noise_multiplier: float) -> Known:
        """Return the law of a client's mu, where coins are known.

        It is in its k-th round by round J where k coins fall in J rounds less the (k -
        1)(b - 1) in which it rests in between.
        """
        from scipy import stats

        assert self.coins is not None
        counts = np.arange(1, self.most + 1)
        tossed = self.rounds - (counts - 1) * (self.separation - 1)
        if self.separation == 1:
            masses = stats.binom.pmf(
                np.arange(self.rounds + 1), self.rounds, self.coins[client]
            )
        else:
            reached = stats.binom.sf(counts - 1, tossed, self.coins[client])
            masses = -np.diff(reached, prepend=1.0, append=0.0)
        return Known.of_counts(np.maximum(masses, 0.0), noise_multiplier)

    @property
    def _scheme(self) -> tuple[Any, Availability, int]:
        return self.selector, self.availability, self.rounds

    @property
    def units(self) -> Histories:
        """Histories of blocks as clients, equal in law for them, where known."""
        size = block_size_of(self.selector)
        if size == 1 or not self._is_symmetric:
            return self
        online = np.prod(
            (1.0 - self.availability.dropout_rates).reshape(-1, size), axis=1
        )
        away = Independent(on_device(threshold(1.0 - online)))
        return dataclasses.replace(
            self, selector=self.selector.of_blocks(), availability=away
        )

    @property
    def alike(self) -> Int[np.ndarray, " clients"]:
        """Numbers of clients, equal for those whose counts have the same law."""
        if not self._is_symmetric:
            return np.arange(self.selector.num_clients)
        return np.asarray(
            np.unique(self.availability.dropout_rates, return_inverse=True)[1]
        )

    @property
    def _is_symmetric(self) -> bool:
        """Whether blocks differ in nothing but their chance to be available."""
        return isinstance(self.availability, Independent) and hasattr(
            self.selector, "of_blocks"
        )

    def sampled(
        self, seed: Any, trials: int, noise_multiplier: float, progress: Progress | None
    ) -> Callable[[np.ndarray], Sampled]:
        """Simulate how often clients take part.

        Return what gives those of some clients.
        """
        dtype = np.uint16 if self.most < 2**16 else np.int32
        counts = np.empty((trials, self.selector.num_clients), dtype)
        for first, number in parts(trials, -(-trials // PARTS)):
            run = selection.rollout_counts(seed, *self._scheme, number, first=first)
            counts[first : first + number] = np.asarray(run)
            tell(progress, first + number, trials)
        mu = np.sqrt(np.arange(self.most + 1.0)) / noise_multiplier
        wanted = cohort_size_of(self.selector)

        def of(some: np.ndarray) -> Sampled:
            share = 1.0 if wanted is None else min(1.0, wanted / len(some))
            budget = min(self.rounds * share, float(self.most)) / noise_multiplier**2
            return Sampled.of_counts(mu, counts[:, some], budget)

        return of

    def sampled_with(
        self,
        strategy: np.ndarray,
        seed: Any,
        trials: int,
        noise_multiplier: float,
        progress: Progress | None,
    ) -> Callable[[np.ndarray], Sampled]:
        """Simulate histories under a strategy.

        Returns a function that gives mu of some clients.
        """
        form, clients = Form.of(strategy), self.selector.num_clients
        squares_of_trials = np.empty((trials, clients))
        step = min(at_once("columns", 32 * self.rounds * clients), -(-trials // PARTS))
        for first, number in parts(trials, step):
            run = selection.rollout_trials(seed, *self._scheme, number, first=first)
            rows = np.moveaxis(np.asarray(run), 1, 0).reshape(self.rounds, -1)
            squares = form.squares(rows.astype(np.float64))
            squares_of_trials[first : first + number] = squares.reshape(number, clients)
            tell(progress, first + number, trials)
        mu = np.sqrt(squares_of_trials) / noise_multiplier
        most = worst_mu(strategy, self.separation, noise_multiplier)

        def of(some: np.ndarray) -> Sampled:
            values = np.ascontiguousarray(mu[:, some])
            return Sampled(
                values.ravel(),
                np.arange(values.size).reshape(values.shape),
                most,
                most**2,
            )

        return of


def checked_histories(selector: Any, availability: Any, rounds: Any) -> Histories:
    """Return the histories of a scheme that does not look at data, or raise."""
    count = check_size(rounds, "rounds")
    check_selector(selector)
    check_blind(
        getattr(selector, "depends_on_data", None), "selector", type(selector).__name__
    )
    rule = "must have `for_clients`, `init` and `sample`"
    require(isinstance(availability, Availability), "availability", rule, availability)
    return Histories.of(selector, availability, count)


def check_noise(noise_multiplier: Any) -> float:
    """Return a noise multiplier as a float, or raise."""
    rule = (
        "must be positive and finite: "
        "without noise, or with endless noise, there is no account"
    )
    return check_number(noise_multiplier, "noise_multiplier", rule, POSITIVE)


def worst_mu(strategy: np.ndarray, separation: int, noise_multiplier: float) -> float:
    """Bound mu of any participation with a separation."""
    square = largest_square(np.abs(strategy.T @ strategy), separation)
    return float(np.sqrt(square) / noise_multiplier)


def parts(trials: int, step: int) -> list[tuple[int, int]]:
    """Return first trial and number of trials of each part.

    All are equal except the last.
    """
    return [(first, min(step, trials - first)) for first in range(0, trials, step)]


def tell(progress: Progress | None, done: int, total: int) -> None:
    """Tell progress, if it is asked for."""
    if progress is not None:
        progress(done, total)
