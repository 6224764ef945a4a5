"""Selection rounds per second of every scheme, against NumPy over all trials."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import availability, selection
from mrsa_jax.bench.harness import Measurement, ResultsDifferError, Sized, compare

if TYPE_CHECKING:
    import jax  # scripts in NumPy use the peer without it

    from mrsa_jax.selection import Scheme

_AT_ONCE = 250  # trials whose state stays in the peer's cache
_COMPARED = 1_000  # of our trials: the more, the smaller a difference is seen
_FEWEST = 20  # trials from which on statistics are compared


@dataclasses.dataclass(frozen=True)
class NumPySelection:
    """A scheme in NumPy: each round is a few operations on all trials of a chunk.

    Attributes:
        clients: N.
        cohort: K.
        size: Clients of a block; 1 for schemes without blocks.
        order: Which blocks come first: `"random"`, `"least_used"` (the first one
            alone), `"greedy"` (all), or `"joins"` for each by chance K / N.
    """

    clients: int
    cohort: int
    size: int = 1
    order: str = "random"

    def rollouts(
        self,
        rates: np.ndarray,
        trials: int,
        rounds: int,
    ) -> np.ndarray:
        """Return bool[B, J, N]."""
        history = np.zeros((trials, rounds, self.clients), bool)
        rng = np.random.Generator(np.random.SFC64(0))
        # chunk by chunk, as fast as NumPy gets: the peer's better setting
        for first in range(0, trials, _AT_ONCE):
            self._fill(history[first : first + _AT_ONCE], rates.astype(np.float32), rng)
        return history

    def _fill(
        self,
        history: np.ndarray,
        rates: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        trials, units = len(history), self.clients // self.size
        rows, wanted = np.arange(trials), self.cohort // self.size
        counts, single = np.zeros((trials, units), np.float32), np.float32
        draws = np.empty((trials, self.clients), single)
        for j in range(history.shape[1]):
            online = rng.random(dtype=single, out=draws) >= rates
            for client in range(1, self.size):
                online[:, :: self.size] &= online[:, client :: self.size]
            # a block is there if all its clients are
            online = online[:, :: self.size]
            keys = rng.random((trials, units), single)
            if self.order == "joins":
                history[:, j] = online & (keys < single(self.cohort / self.clients))
                continue
            if self.order == "greedy":
                keys += counts
            keys[~online] = np.inf
            if self.order == "least_used":
                # ties apart from the keys, or blocks as little used would come too
                # seldom after it
                ties = keys if wanted == 1 else rng.random((trials, units), single)
                least = np.where(online, ties + counts, single(np.inf))
                keys[rows, least.argmin(axis=1)] -= 1
            chosen = np.zeros((trials, units), bool)
            picked = (
                np.argpartition(keys, wanted - 1, axis=1)[:, :wanted]
                if wanted > 1
                else keys.argmin(axis=1)[:, None]
            )
            chosen[rows[:, None], picked] = (online.sum(axis=1) >= wanted)[:, None]
            counts += chosen
            history[:, j] = (
                chosen if self.size == 1 else np.repeat(chosen, self.size, axis=1)
            )


def _final_figures(history: np.ndarray) -> np.ndarray:
    """Return F and C after the last round, [B, 2]."""
    counts = history.sum(axis=1)
    gap = (counts.max(axis=1) - counts.min(axis=1)) / history.shape[1]
    return np.column_stack([gap, counts.sum(axis=1) / history.shape[1]])


FALSE_ALARM = 1e-6
"""The chance at most that equal schemes are called different, whatever their law."""


def _same_statistics(ours: jax.Array, theirs: np.ndarray) -> None:
    """Raise if the means of F or C differ more than chance allows (`FALSE_ALARM`)."""
    a, b = _final_figures(np.asarray(ours[:_COMPARED])), _final_figures(theirs)
    chances = [chance_of_means(*both) for both in zip(a.T, b.T, strict=True)]
    if min(chances) * len(chances) < FALSE_ALARM:
        raise ResultsDifferError(
            f"F and C differ: {a.mean(axis=0)} and {b.mean(axis=0)}"
        )


def chance_of_means(a: np.ndarray, b: np.ndarray) -> float:
    """Bound the chance of means as far apart if both samples have one distribution.

    Then each division of all values into two samples is as likely. The mean of the
    smaller one is that of a sample without replacement, whose exponential moments are
    at most those of one with replacement (Hoeffding 1963, Theorem 4): Chernoff's bound
    holds with the pooled values. A rare value that one sample lacks, and with it all
    variance, is no alarm.

    Examples:
        >>> chance_of_means(np.ones(100), np.ones(250))
        1.0
        >>> chance_of_means(np.zeros(100), np.repeat([0.0, 1.0], [248, 2])) > 0.1
        True
        >>> chance_of_means(np.zeros(100), np.repeat([0.0, 1.0], [125, 125])) < 1e-6
        True
    """
    few, pooled = min(a, b, key=len), np.concatenate([a, b])
    if (pooled == pooled[0]).all():
        return 1.0
    spread = float(pooled.std())
    # standardised, so that one grid of rates serves all figures
    values = (pooled - pooled.mean()) / spread
    apart = abs(float(few.mean() - pooled.mean()) / spread)
    if few.mean() < pooled.mean():
        values = -values
    rates = np.geomspace(1e-3, 1e3, 400)
    exponents = rates[:, None] * values
    # logarithms of means of exponentials, without overflow
    highest = exponents.max(axis=1)
    moments = highest + np.log(np.exp(exponents - highest[:, None]).mean(axis=1))
    exponent = float((rates * apart - moments).max())
    return float(min(1.0, 2.0 * np.exp(-len(few) * max(exponent, 0.0))))


def rollouts(
    scheme: str,
    clients: int,
    cohort: int,
    rounds: int,
    trials: int,
) -> Measurement:
    """Measure one scheme with the papers' mixed rates, shuffled."""
    parsed = selection.Scheme.parse(scheme)
    selector = parsed.build(clients, cohort)
    peer = peer_of(parsed, clients, cohort)
    rates = availability.assign_rates(0, [0.1, 0.2, 0.3, 0.4, 0.5], clients)
    online = availability.independent(rates)
    peer_trials = min(trials, _AT_ONCE)

    def theirs() -> np.ndarray:
        assert peer is not None
        return peer.rollouts(np.asarray(rates), peer_trials, rounds)

    def check(ours: jax.Array, other: np.ndarray | None) -> None:
        if other is not None and trials >= _FEWEST:
            _same_statistics(ours, other)

    return compare(
        lambda: selection.rollout_trials(0, selector, online, rounds, trials),
        None if peer is None else theirs,
        work=rounds * trials,
        peer_work=rounds * peer_trials,
        check=check,
        made_bytes=rounds * trials * clients,
    )


def peer_of(
    scheme: Scheme,
    clients: int,
    cohort: int,
) -> NumPySelection | None:
    """Return the same scheme in NumPy; None where nobody wrote it."""
    name, parameters = scheme.name, scheme.parameters
    if name in ("uniform", "weighted"):
        return NumPySelection(
            clients, cohort, 1, "random" if name == "uniform" else "greedy"
        )
    if name == "partition":
        return NumPySelection(clients, cohort, cohort, "least_used")
    if name == "batch_partitioning":
        target, fairness = (*parameters, "least_used")[:2]
        order = "random" if fairness == "uniform" else fairness
        return NumPySelection(clients, cohort, target, order)
    if name == "bernoulli" and parameters[0] == cohort / clients:
        return NumPySelection(clients, cohort, 1, "joins")
    return None


def sized(
    n: int,
    cohort_size: int,
    scheme: str,
    rounds: int,
    trials: int,
) -> Sized:
    """Return rollouts of one scheme."""
    selection.Scheme.parse(scheme).check(n, cohort_size)

    # the history as it is made and on the device, and the peer's
    memory = n * rounds * (2 * trials + min(trials, _AT_ONCE))
    return Sized(memory, lambda: rollouts(scheme, n, cohort_size, rounds, trials))
