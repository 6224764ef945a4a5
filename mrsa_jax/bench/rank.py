"""Exact ranks of participation matrices against eigenvalues in floats by NumPy."""

from __future__ import annotations

import numpy as np

from mrsa_jax.bench.harness import Measurement, Sized, compare, one_thread
from mrsa_jax.modular import rank
from mrsa_watch._base.errors import require

_PEER_MATRICES = 200


def _histories(
    count: int,
    clients: int,
    cohort: int,
    block: int,
    seed: int,
) -> np.ndarray:
    """Random cohorts of whole blocks.

    `block` 1 is random selection, else batch partitioning.
    """
    rng = np.random.default_rng(seed)
    # blocks first, then their clients: a block moves as one
    chosen = np.zeros((count, clients, clients // block), bool)
    for history in chosen:
        for row in history:
            row[rng.choice(clients // block, cohort // block, replace=False)] = True
    return np.repeat(chosen, block, axis=-1)


def _dependent(
    count: int,
    clients: int,
    cohort: int,
) -> np.ndarray:
    """Return histories in which one round is a combination of three others."""
    rounds = _histories(count, clients, cohort, 1, 2).astype(np.int32)
    rounds[:, -1] = rounds[:, 0] + rounds[:, 1] - rounds[:, 2]
    return rounds


def float_ranks(matrices: np.ndarray) -> np.ndarray:
    """Return ranks of matrices of small integers by eigenvalues of their Gram matrices.

    All in one call, which is faster than singular values; as `matrix_rank`, by a
    tolerance.
    """
    floats = matrices.astype(float)
    values = np.linalg.eigvalsh(floats @ floats.swapaxes(1, 2))
    tolerance = values.max(axis=1) * matrices.shape[2] * np.finfo(float).eps
    return np.asarray((values > tolerance[:, None]).sum(axis=1))


def ranks(
    kind: str,
    count: int,
    size: int,
    cohort: int,
) -> Measurement:
    """Time ranks of random rounds, of whole blocks, or with a dependent round."""
    if kind == "dependent round":
        return _measure(_dependent(count, size, cohort))
    block = 3 if kind == "blocks of 3" else 1
    return _measure(
        _histories(
            count,
            size,
            cohort,
            block,
            seed=block // 3,
        )
    )


def _measure(matrices: np.ndarray) -> Measurement:
    # the peer ranks a few, and its time is scaled up
    some = matrices[:_PEER_MATRICES]

    def peer() -> np.ndarray:
        with one_thread():
            return float_ranks(some)

    return compare(
        lambda: rank(matrices),
        peer,
        work=len(matrices),
        peer_work=len(some),
        check=lambda ours, theirs: np.testing.assert_array_equal(
            ours[: len(theirs)], theirs
        ),
        made_bytes=matrices.nbytes,
    )


def sized(n: int, cohort_size: int, trials: int) -> Sized:
    """Return ranks of random histories of n rounds of n clients."""
    require(cohort_size <= n, "cohort_size", "must be at most `n`", cohort_size, n)
    # the peer's matrices, Gram matrices and work
    floats = 8 * 3 * min(trials, _PEER_MATRICES)
    memory = n * n * (6 * trials + floats)
    return Sized(memory, lambda: ranks("random", trials, n, cohort_size))
