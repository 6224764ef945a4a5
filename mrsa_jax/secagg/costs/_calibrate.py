"""How long this machine takes for each operation of the protocol, with the real primitives.

For `latency_model`: X25519, HKDF-SHA256, AES-256-GCM and ChaCha20 through `cryptography`, field
products in NumPy, as `mrsa_jax.protocol` uses them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax.secagg.costs._latency import OperationSeconds, operation_seconds

_PRIME = 2**31 - 1
_WORDS = 10_000  # of keystream, a pad of Table 2
_FIELD = (50, 18)  # points and limbs: a step of sharing among 50 neighbours


def calibrate(budget_seconds: float | int = 0.2) -> OperationSeconds:
    """Measure the time of each operation on one core of this machine.

    Each is the least time of many short batches, so that other load matters little.

    Args:
        budget_seconds: About how long to measure each of the six kinds, positive.

    Returns:
        Seconds for `latency_model`; interpolation products count as those of sharing.

    Raises:
        ConfigurationError: If the budget is not positive and finite.

    Examples:
        >>> measured = calibrate(0.01)
        >>> bool(measured.key_agreements > measured.prg_words)
        True
    """
    budget = float(budget_seconds)
    fits = 0.0 < budget < float("inf")
    require(fits, "budget_seconds", "must be positive and finite", budget_seconds)
    seconds = {name: _least(operation, budget) for name, operation in _operations().items()}
    field = seconds.pop("field") / (_FIELD[0] * _FIELD[1])
    seconds["prg_words"] /= _WORDS
    return operation_seconds(share_products=field, interpolation_products=field, **seconds)


def _least(operation: Callable[[], Any], budget: float, batch: int = 10) -> float:
    """Return the least mean time of a batch of operations within the budget."""
    operation()
    best, end = float("inf"), time.perf_counter() + budget
    while True:
        start = time.perf_counter()
        for _ in range(batch):
            operation()
        now = time.perf_counter()
        best = min(best, (now - start) / batch)
        if now > end:
            return best


def _operations() -> dict[str, Callable[[], Any]]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    signer = Ed25519PrivateKey.generate()
    signature, public = signer.sign(bytes(400)), signer.public_key()
    zeros, total = bytes(4 * _WORDS), np.zeros(_WORDS, np.uint32)

    def add_pad() -> np.ndarray:
        stream = Cipher(ChaCha20(bytes(32), bytes(16)), None).encryptor().update(zeros)
        return np.add(total, np.frombuffer(stream, "<u4"), out=total)

    values = np.full(_FIELD, _PRIME - 2, np.uint64)
    points = np.arange(1, _FIELD[0] + 1, dtype=np.uint64)[:, None]
    row, prime = np.full(_FIELD[1], _PRIME - 3, np.uint64)[None], np.uint64(_PRIME)
    return {
        "key_pairs": lambda: X25519PrivateKey.generate().public_key().public_bytes_raw(),
        "key_agreements": lambda: HKDF(SHA256(), 32, None, b"pad").derive(own.exchange(other)),
        "field": lambda: (values * points + row) % prime,
        "encryptions": lambda: AESGCM(bytes(32)).encrypt(bytes(12), bytes(72), b""),
        "prg_words": add_pad,
        "signatures": lambda: public.verify(signature, bytes(400)),
    }
