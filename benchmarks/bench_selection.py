"""Selection rounds a second, every scheme against a straightforward NumPy loop on one core.

Run with `--record` to append the measurements to results/selection.jsonl.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable

import jax
import numpy as np

import mrsa_jax as mj
from mrsa_jax.bench import Measurement, compare, record, table

N, K, ROUNDS, TRIALS, PEER_TRIALS = 120, 12, 1_000, 1_000, 5
RESULTS = pathlib.Path(__file__).parent / "results" / "selection.jsonl"
NOTE = (
    "floor: the words alone (availability and one word a client, Threefry-2x32-20, fused) take "
    "about half of the time of `random`; the peer is one Python loop over rounds, its time scaled"
)
Choose = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


# --- the peer: what one would write in NumPy --------------------------------------------------


def numpy_random(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
    """Return K of the clients online, uniformly."""
    del counts
    return rng.choice(online, K, replace=False) if online.size >= K else online[:0]


def numpy_weighted(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
    """Return the K least used clients online, ties random."""
    if online.size < K:
        return online[:0]
    order = np.lexsort((rng.random(online.size), counts[online]))
    return online[order[:K]]


def numpy_blocks(size: int, fairness: str) -> Choose:
    """Return batch partitioning (user partition for size K) without listing its family."""
    wanted = K // size

    def choose(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
        available = np.zeros(N, bool)
        available[online] = True
        blocks = np.flatnonzero(available.reshape(-1, size).all(axis=1))
        if blocks.size < wanted:
            return online[:0]
        blocks = rng.permutation(blocks)
        if fairness == "least_used":
            first = np.argmin(counts[blocks * size])
            blocks[[0, first]] = blocks[[first, 0]]
        elif fairness == "greedy":
            blocks = blocks[np.argsort(counts[blocks * size], kind="stable")]
        return (blocks[:wanted, None] * size + np.arange(size)).ravel()

    return choose


def numpy_bernoulli(rng: np.random.Generator, counts: np.ndarray, online: np.ndarray) -> np.ndarray:
    """Return each client online with chance K/N."""
    del counts
    return online[rng.random(online.size) < K / N]


def numpy_rollouts(choose: Choose, rates: np.ndarray, trials: int, seed: int) -> np.ndarray:
    """Return bool[B, J, N], one round after the other."""
    history = np.zeros((trials, ROUNDS, N), bool)
    for b in range(trials):
        rng = np.random.default_rng((seed, b))
        counts = np.zeros(N, np.int64)
        for j in range(ROUNDS):
            online = np.flatnonzero(rng.random(N) >= rates)
            cohort = choose(rng, counts, online)
            counts[cohort] += 1
            history[b, j, cohort] = True
    return history


# --- comparison -------------------------------------------------------------------------------


def final_figures(history: np.ndarray) -> np.ndarray:
    """Return F and C after the last round, [B, 2]."""
    counts = history.sum(axis=1)
    gap = (counts.max(axis=1) - counts.min(axis=1)) / history.shape[1]
    return np.column_stack([gap, counts.sum(axis=1) / history.shape[1]])


def same_statistics(ours: jax.Array, theirs: np.ndarray) -> None:
    """Raise unless F and C agree within six standard errors."""
    a, b = final_figures(np.asarray(ours[:100])), final_figures(theirs)
    error = np.sqrt(a.var(axis=0) / len(a) + a.var(axis=0) / len(b)) + 1e-9
    z = (a.mean(axis=0) - b.mean(axis=0)) / error
    if np.abs(z).max() > 6:
        raise AssertionError(f"F and C differ: {a.mean(axis=0)} and {b.mean(axis=0)}")


def measure(name: str, selector: mj.selection.Selector, choose: Choose) -> Measurement:
    """Measure one scheme with the papers' mixed rates, shuffled."""
    rates = mj.availability.assign_rates(0, [0.1, 0.2, 0.3, 0.4, 0.5], N)
    online = mj.availability.independent(rates)
    return compare(
        "selection",
        f"{name}, N={N} K={K} {ROUNDS} rounds x {TRIALS} trials",
        lambda: mj.selection.rollout_trials(0, selector, online, ROUNDS, TRIALS),
        lambda: numpy_rollouts(choose, rates, PEER_TRIALS, 0),
        work=ROUNDS * TRIALS,
        peer_work=ROUNDS * PEER_TRIALS,
        unit="rounds",
        peer_name="NumPy loop, one core",
        check=same_statistics,
        aim=5,
        repeats=3,
        note=NOTE,
    )


def main() -> None:
    """Print the table; record it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="append to results/selection.jsonl")
    arguments = parser.parse_args()
    s = mj.selection
    cases: list[tuple[str, mj.selection.Selector, Choose]] = [
        ("random", s.uniform(N, K), numpy_random),
        ("weighted random", s.weighted(N, K), numpy_weighted),
        ("user partition", s.partition(N, K), numpy_blocks(K, "least_used")),
        ("bernoulli", s.bernoulli(N, K / N), numpy_bernoulli),
        ("T=3 greedy", s.batch_partitioning(N, K, 3, "greedy"), numpy_blocks(3, "greedy")),
    ]
    for t in (6, 4, 3):
        cases.append((f"T={t}", s.batch_partitioning(N, K, t), numpy_blocks(t, "least_used")))
    measurements = [measure(*case) for case in cases]
    print(table(measurements))
    if arguments.record:
        record(measurements, RESULTS)


if __name__ == "__main__":
    main()
