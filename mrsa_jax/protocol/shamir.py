"""Shamir's secret sharing of 256-bit secrets over GF(2^31 - 1), limb by limb.

A secret is nine limbs of 30 bits, little-endian; each limb is the value at 0 of a
separate random polynomial of degree t - 1, and the holder at point x gets all nine
values there. Products of two field elements fit into uint64. A. Shamir, "How to share a
secret" (1979); CCESA, Algorithm 1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax.protocol._primitives import Entropy
from mrsa_jax.protocol.errors import ForgedShareError
from mrsa_watch._base.errors import check_integer, is_integer, require

PRIME = 2**31 - 1
LIMBS = 9
_LIMB_BITS = 30
_SECRET_BYTES = 32


def share(
    secret: bytes,
    threshold: int | np.integer,
    points: Sequence[int],
    entropy: Entropy | int | np.integer | bytes | None = None,
) -> np.ndarray:
    """Split a secret: any `threshold` shares recover it, fewer reveal nothing.

    Args:
        secret: 32 bytes.
        threshold: t, at least 1; above the number of points, no one can ever recover
            it.
        points: Distinct x in [1, 2^31 - 1) of the holders.
        entropy: Source of the polynomials: None for the operating system, or a seed.

    Returns:
        uint32[points, 9], values in the field.

    Raises:
        ConfigurationError: If an argument breaks a rule.

    Examples:
        >>> import mrsa_jax as mj
        >>> shares = mj.protocol.share(bytes(range(32)), 2, [1, 2, 5], 0)
        >>> mj.protocol.recover([5, 1], shares[[2, 0]], 2) == bytes(range(32))
        True

    Edge case: with t = 1 every share is the secret itself.
    """
    return share_all([secret], threshold, points, entropy)[0]


def share_all(
    secrets: Sequence[Any],
    threshold: Any,
    points: Any,
    entropy: Entropy | int | np.integer | bytes | None = None,
) -> np.ndarray:
    """Share several secrets with the same holders: uint32[secrets, points, 9]."""
    for secret in secrets:
        require(isinstance(secret, bytes), "secret", "must be bytes", secret)
        require(
            len(secret) == _SECRET_BYTES,
            "secret",
            f"must be {_SECRET_BYTES} bytes long",
            len(secret),
        )
    t = check_integer(threshold, "threshold", 1)
    where = _checked_points(points)
    # Values at m points are as random under degree m as under any larger one.
    degree = min(t - 1, len(where))
    # a caller's source continues where its last draw ended
    source = entropy if isinstance(entropy, Entropy) else Entropy(entropy)
    limbs = np.stack([_to_limbs(secret) for secret in secrets])
    random = _uniform(source, degree * limbs.size).reshape(degree, *limbs.shape)
    coefficients = np.concatenate([limbs[None], random]).reshape(degree + 1, limbs.size)
    values = evaluate(coefficients, where, PRIME).astype(np.uint32)
    return values.reshape(len(where), *limbs.shape).swapaxes(0, 1)


def recover(
    points: Sequence[int],
    shares: np.ndarray,
    threshold: int | np.integer,
) -> bytes:
    """Recover a secret from `threshold` shares, and check all others.

    Args:
        points: Distinct x of the holders.
        shares: uint32[points, 9], in the same order.
        threshold: t.

    Returns:
        The 32 bytes.

    Raises:
        ConfigurationError: If there are fewer than t shares, or an argument breaks a
            rule.
        ForgedShareError: If the shares lie on no polynomial of degree t - 1, or what
            they give is no 256-bit number: at least one is wrong. With exactly t shares
            a wrong one goes unnoticed unless the result is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> shares = mj.protocol.share(bytes(32), 3, [1, 2, 3, 4], 0)
        >>> mj.protocol.recover([1, 2, 3, 4], shares, 3) == bytes(32)
        True
    """
    t = check_integer(threshold, "threshold", 1)
    where = _checked_points(points)
    require(len(where) >= t, "points", "must be at least `threshold`", len(where), t)
    values = host_array(shares, "shares")
    shape = (len(where), LIMBS)
    require(
        values.shape == shape, "shares", f"must have the shape {shape}", values.shape
    )
    require(values.dtype == np.uint32, "shares", "must be uint32", values.dtype)
    require(
        bool((values < PRIME).all()),
        "shares",
        "must lie below 2**31 - 1",
        int(values.max()),
    )
    # the secret, and the other holders, whose shares must lie on the same polynomial
    targets = (0, *where[t:])
    recovered = combine(
        _weights(where[:t], targets, PRIME), values[:t].astype(np.uint64), PRIME
    )
    if (recovered[1:] != values[t:]).any():
        raise ForgedShareError(
            f"{len(where)} shares lie on no polynomial of degree {t - 1}"
        )
    return _from_limbs(recovered[0])


def evaluate(coefficients: np.ndarray, points: Sequence[int], prime: int) -> np.ndarray:
    """Return polynomials [degree + 1, columns] at points.

    Uint64[points, columns] (Horner).
    """
    x = np.asarray(points, np.uint64)[:, None]
    value = np.zeros((len(points), coefficients.shape[1]), np.uint64)
    # products of two residues below 2^31 fit into uint64
    for row in coefficients[::-1]:
        value = (value * x + row) % np.uint64(prime)
    return value


def combine(weights: np.ndarray, values: np.ndarray, prime: int) -> np.ndarray:
    """Return weights [out, t] times values [t, columns] modulo a prime below 2^31.

    Split into halves of 16 and 15 bits, so that the sums of up to 2^16 products fit.
    """
    p = np.uint64(prime)
    # a product of 31 by 16 bits leaves room for 2^16 terms below 2^63
    low, high = values & np.uint64(0xFFFF), values >> np.uint64(16)
    return ((weights @ high % p << np.uint64(16)) + weights @ low) % p


@functools.lru_cache(maxsize=64)
def _weights(
    points: tuple[int, ...],
    targets: tuple[int, ...],
    prime: int,
) -> np.ndarray:
    """Return the Lagrange weights that carry values at `points` to `targets`."""
    p = np.uint64(prime)
    x = np.asarray(points, np.uint64)
    y = np.asarray(targets, np.uint64)
    # Lagrange: l_k(y) is the product of (y - x_j) / (x_k - x_j) over j != k, here as
    # prod_j (y - x_j) / ((y - x_k) prod_j (x_k - x_j))
    between = (x[:, None] + p - x[None, :]) % p  # x_k - x_j
    np.fill_diagonal(between, np.uint64(1))
    distance = (y[:, None] + p - x[None, :]) % p  # y - x_k, never 0
    scale = _power(_product(between, p) * np.uint64(1), prime - 2, p)
    return (
        _product(distance, p)[:, None]
        * _power(distance, prime - 2, p)
        % p
        * scale[None, :]
        % p
    )


def _product(factors: np.ndarray, p: np.uint64) -> np.ndarray:
    """Return the product of each row modulo p."""
    result = np.ones(len(factors), np.uint64)
    for column in factors.T:
        result = result * column % p
    return result


def _power(base: np.ndarray, exponent: int, p: np.uint64) -> np.ndarray:
    result = np.ones_like(base)
    # square and multiply, from the highest bit
    for bit in bin(exponent)[2:]:
        result = result * result % p
        if bit == "1":
            result = result * base % p
    return result


def _checked_points(points: Any) -> tuple[int, ...]:
    listed = host_array(points, "points")
    require(listed.ndim == 1, "points", "must be a list of integers", points)
    require(listed.size > 0, "points", "must hold at least one")
    require(all(map(is_integer, points)), "points", "must hold integers", points)
    where = tuple(map(int, points))
    require(
        all(0 < point < PRIME for point in where),
        "points",
        "must lie in [1, 2**31 - 1), the field's non-zero elements",
        where,
    )
    require(len(set(where)) == len(where), "points", "must be distinct", where)
    return where


def _to_limbs(secret: bytes) -> np.ndarray:
    number = int.from_bytes(secret, "little")
    mask = 2**_LIMB_BITS - 1
    return np.asarray(
        [number >> _LIMB_BITS * k & mask for k in range(LIMBS)], np.uint64
    )


def _from_limbs(limbs: np.ndarray) -> bytes:
    values = [int(limb) for limb in limbs]
    number = sum(limb << _LIMB_BITS * k for k, limb in enumerate(values))
    if max(values) >> _LIMB_BITS or number >> 8 * _SECRET_BYTES:
        raise ForgedShareError("shares combine to no 256-bit number")
    return number.to_bytes(_SECRET_BYTES, "little")


def _uniform(source: Entropy, count: int) -> np.ndarray:
    """Draw uniform field elements: 31 random bits, drawn again if they are p."""
    elements = np.zeros(0, np.uint64)
    while len(elements) < count:
        words = np.frombuffer(
            source.draw(4 * (count - len(elements))), "<u4"
        ) & np.uint32(PRIME)
        elements = np.concatenate([elements, words[words != PRIME].astype(np.uint64)])
    return elements
