"""Shamir's shares of a secret for each of n clients, against Horner's rule in NumPy."""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.arrays import on_device
from mrsa_jax.bench.harness import Measurement, Sized, compare
from mrsa_jax.modular.shamir import LIMBS, SHAMIR_PRIME, share_secrets
from mrsa_jax.protocol.shamir import evaluate
from mrsa_watch._base.errors import require


def shares(num_clients: int) -> Measurement:
    """Time the shares of one secret for each client."""
    rng = np.random.default_rng(0)
    degree = num_clients // 2
    secrets = rng.integers(
        0,
        2**30,
        (num_clients, LIMBS),
        dtype=np.uint32,
    )
    coefficients = rng.integers(
        0, SHAMIR_PRIME, (num_clients, degree, LIMBS), dtype=np.uint32
    )
    points = np.tile(np.arange(1, num_clients + 1, dtype=np.uint32), (num_clients, 1))
    arrays = [on_device(array) for array in (secrets, coefficients, points)]

    def loop() -> np.ndarray:
        rows = np.concatenate([secrets[:, None], coefficients], axis=1)
        return np.stack(
            [evaluate(row, points[0].tolist(), SHAMIR_PRIME).T for row in rows]
        )

    return compare(
        lambda: share_secrets(*arrays),
        loop,
        work=num_clients,
        check=lambda ours, theirs: np.testing.assert_array_equal(
            np.asarray(ours), theirs
        ),
        made_bytes=4 * LIMBS * num_clients**2,
    )


def sized(n: int) -> Sized:
    """Return the shares of n clients."""
    require(2 <= n <= 65_535, "n", "must lie in [2, 65535]", n)
    return Sized(n * n * LIMBS * (4 * 3 + 8 * 2), lambda: shares(n))
