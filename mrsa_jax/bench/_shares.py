"""Shamir's shares of one secret for each of n clients, against Horner's rule in NumPy."""

from __future__ import annotations

import numpy as np

from mrsa_jax._core.arrays import on_device
from mrsa_jax.bench.harness import Case, Measurement, Sized, compare
from mrsa_jax.modular.shamir import LIMBS, SHAMIR_PRIME, share_secrets
from mrsa_jax.protocol.shamir import evaluate
from mrsa_watch._base.errors import require


def _measure(num_clients: int) -> Measurement:
    rng = np.random.default_rng(0)
    degree = num_clients // 2
    secrets = rng.integers(0, 2**30, (num_clients, LIMBS), dtype=np.uint32)
    coefficients = rng.integers(
        0, SHAMIR_PRIME, (num_clients, degree, LIMBS), dtype=np.uint32
    )
    points = np.tile(np.arange(1, num_clients + 1, dtype=np.uint32), (num_clients, 1))
    arrays = [on_device(array) for array in (secrets, coefficients, points)]

    def loop() -> np.ndarray:
        rows = np.concatenate([secrets[:, None], coefficients], axis=1)
        return np.stack(
            [evaluate(own, points[0].tolist(), SHAMIR_PRIME).T for own in rows]
        )

    return compare(
        lambda: share_secrets(*arrays),
        loop,
        work=num_clients,
        unit="secrets",
        peer_name="Horner's rule in NumPy, all shares of a secret at once",
        check=lambda ours, theirs: np.testing.assert_array_equal(
            np.asarray(ours), theirs
        ),
        aim=1.0,
        repeats=3,
        made_bytes=4 * LIMBS * num_clients**2,
        note="aim: about a second at n = 500; floor: n^2 t 9 products of 31 by 16 bits",
    )


def cases(quick: bool) -> list[Case]:
    """Return the shares of one number of clients."""
    size = 60 if quick else 500
    return [
        Case(
            f"shares of one secret for each of n = {size}, t = n/2 + 1",
            lambda: _measure(size),
        )
    ]


def sized(n: int) -> Sized:
    """Return the shares of n clients."""
    require(2 <= n <= 65_535, "n", "must lie in [2, 65535]", n)
    return Sized(n * n * LIMBS * (4 * 3 + 8 * 2), lambda: _measure(n))
