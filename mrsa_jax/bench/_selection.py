"""Selection rounds a second, every scheme against a straightforward NumPy loop on one core."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from mrsa_jax import availability, selection
from mrsa_jax.bench._harness import Case, Measurement, ResultsDifferError, compare

_N, _K = 120, 12
_PEER_TRIALS = 5
_NOTE = (
    "floor: the words alone (availability and one word a client, Threefry-2x32-20, fused) take "
    "about half of the time of `random`; the peer is one Python loop over rounds, its time scaled"
)
_Choose = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


# --- the peer: what one would write in NumPy --------------------------------------------------


def _numpy_random(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
    """Return K of the clients online, uniformly."""
    del counts
    return rng.choice(online, _K, replace=False) if online.size >= _K else online[:0]


def _numpy_weighted(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
    """Return the K least used clients online, ties random."""
    if online.size < _K:
        return online[:0]
    order = np.lexsort((rng.random(online.size), counts[online]))
    return online[order[:_K]]


def _numpy_blocks(size: int, fairness: str) -> _Choose:
    """Return batch partitioning (user partition for size K) without listing its family."""
    wanted = _K // size

    def choose(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
        available = np.zeros(_N, bool)
        available[online] = True
        blocks = np.flatnonzero(available.reshape(-1, size).all(axis=1))
        if blocks.size < wanted:
            return online[:0]
        blocks = rng.permutation(blocks)
        if fairness == "least_used":
            first = int(np.argmin(counts[blocks * size]))
            blocks[[0, first]] = blocks[[first, 0]]
        elif fairness == "greedy":
            blocks = blocks[np.argsort(counts[blocks * size], kind="stable")]
        return (blocks[:wanted, None] * size + np.arange(size)).ravel()

    return choose


def _numpy_bernoulli(
    rng: np.random.Generator, counts: np.ndarray, online: np.ndarray
) -> np.ndarray:
    """Return each client online with chance K/N."""
    del counts
    return online[rng.random(online.size) < _K / _N]


def _numpy_rollouts(choose: _Choose, rates: np.ndarray, trials: int, rounds: int) -> np.ndarray:
    """Return bool[B, J, N], one round after the other."""
    history = np.zeros((trials, rounds, _N), bool)
    for b in range(trials):
        rng = np.random.default_rng((0, b))
        counts = np.zeros(_N, np.int64)
        for j in range(rounds):
            online = np.flatnonzero(rng.random(_N) >= rates)
            cohort = choose(rng, counts, online)
            counts[cohort] += 1
            history[b, j, cohort] = True
    return history


# --- comparison -------------------------------------------------------------------------------


def _final_figures(history: np.ndarray) -> np.ndarray:
    """Return F and C after the last round, [B, 2]."""
    counts = history.sum(axis=1)
    gap = (counts.max(axis=1) - counts.min(axis=1)) / history.shape[1]
    return np.column_stack([gap, counts.sum(axis=1) / history.shape[1]])


def _same_statistics(ours: jax.Array, theirs: np.ndarray) -> None:
    """Raise unless F and C agree within six standard errors."""
    a, b = _final_figures(np.asarray(ours[:100])), _final_figures(theirs)
    error = np.sqrt(a.var(axis=0) / len(a) + a.var(axis=0) / len(b)) + 1e-9
    z = (a.mean(axis=0) - b.mean(axis=0)) / error
    if np.abs(z).max() > 6:
        raise ResultsDifferError(f"F and C differ: {a.mean(axis=0)} and {b.mean(axis=0)}")


def _measure(
    selector: selection.Selector, choose: _Choose, rounds: int, trials: int
) -> Measurement:
    """Measure one scheme with the papers' mixed rates, shuffled."""
    rates = availability.assign_rates(0, [0.1, 0.2, 0.3, 0.4, 0.5], _N)
    online = availability.independent(rates)
    peer_trials = min(trials, _PEER_TRIALS)
    return compare(
        lambda: selection.rollout_trials(0, selector, online, rounds, trials),
        lambda: _numpy_rollouts(choose, rates, peer_trials, rounds),
        work=rounds * trials,
        peer_work=rounds * peer_trials,
        unit="rounds",
        peer_name="NumPy loop, one core",
        check=_same_statistics,
        aim=5,
        repeats=3,
        note=_NOTE,
    )


def cases(quick: bool) -> list[Case]:
    """Return every scheme at the papers' size."""
    s = selection
    schemes: list[tuple[str, selection.Selector, _Choose]] = [
        ("random", s.uniform(_N, _K), _numpy_random),
        ("T=3", s.batch_partitioning(_N, _K, 3), _numpy_blocks(3, "least_used")),
    ]
    if not quick:
        schemes += [
            ("weighted random", s.weighted(_N, _K), _numpy_weighted),
            ("user partition", s.partition(_N, _K), _numpy_blocks(_K, "least_used")),
            ("bernoulli", s.bernoulli(_N, _K / _N), _numpy_bernoulli),
            ("T=3 greedy", s.batch_partitioning(_N, _K, 3, "greedy"), _numpy_blocks(3, "greedy")),
        ]
        for t in (6, 4):
            blocks = _numpy_blocks(t, "least_used")
            schemes.append((f"T={t}", s.batch_partitioning(_N, _K, t), blocks))
    rounds, trials = (100, 50) if quick else (1_000, 1_000)
    size = f"N={_N} K={_K} {rounds} rounds x {trials} trials"

    def case(name: str, selector: selection.Selector, choose: _Choose) -> Case:
        return Case(f"{name}, {size}", lambda: _measure(selector, choose, rounds, trials))

    return [case(*scheme) for scheme in schemes]
