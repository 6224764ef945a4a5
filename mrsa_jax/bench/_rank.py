"""Exact ranks of participation matrices against a loop over `numpy.linalg.matrix_rank`."""

from __future__ import annotations

import numpy as np

from mrsa_jax.bench._harness import Case, Measurement, compare, one_thread
from mrsa_jax.modular import rank

_PEER_MATRICES = 200
_FLOOR = (
    "floor: 120**3 / 3 multiply-adds mod p in exact float32, 4 vector operations each on 8 lanes, "
    "is 0.1 ms a matrix; kept rows cost 1.7 times that"
)


def _histories(count: int, clients: int, cohort: int, block: int, seed: int) -> np.ndarray:
    """Random cohorts of whole blocks: `block` 1 is random selection, else batch partitioning."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros((count, clients, clients // block), bool)
    for history in chosen:
        for row in history:
            row[rng.choice(clients // block, cohort // block, replace=False)] = True
    return np.repeat(chosen, block, axis=-1)


def _dependent(count: int, clients: int, cohort: int) -> np.ndarray:
    """Return histories in which one round is a combination of three others."""
    rounds = _histories(count, clients, cohort, 1, 2).astype(np.int32)
    rounds[:, -1] = rounds[:, 0] + rounds[:, 1] - rounds[:, 2]
    return rounds


def _measure(matrices: np.ndarray, note: str) -> Measurement:
    floats = matrices[:_PEER_MATRICES].astype(float)

    def peer() -> np.ndarray:
        with one_thread():
            return np.asarray([np.linalg.matrix_rank(matrix) for matrix in floats])

    return compare(
        lambda: rank(matrices),
        peer,
        work=len(matrices),
        unit="matrices",
        peer_name="numpy.linalg.matrix_rank, loop",
        peer_work=len(floats),
        check=lambda ours, theirs: np.testing.assert_array_equal(ours[: len(theirs)], theirs),
        aim=5,
        repeats=3,
        note=note,
    )


def cases(quick: bool) -> list[Case]:
    """Return ranks of random rounds, of whole blocks, and of rounds that depend on others."""
    count, size, cohort = (60, 36, 6) if quick else (1000, 120, 12)
    shape, few = f"[{size}, {size}], K = {cohort}", count * 3 // 10
    return [
        Case(
            f"random, {count:,} x {shape}",
            lambda: _measure(_histories(count, size, cohort, 1, 0), _FLOOR),
        ),
        Case(
            f"blocks of 3, {count:,} x {shape}",
            lambda: _measure(
                _histories(count, size, cohort, 3, 1),
                "the rank is proven by the number of distinct columns; " + _FLOOR,
            ),
        ),
        Case(
            f"dependent round, {few} x {shape}",
            lambda: _measure(
                _dependent(few, size, cohort),
                "a rank which nothing proves: all three primes run, two of them of 31 bits",
            ),
        ),
    ]
