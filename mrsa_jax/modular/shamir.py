"""Shamir's secret sharing of many secrets at once, as uint32 array operations.

Secrets are cut into limbs below a prime; each limb is the constant term of a polynomial
of degree t - 1, and a holder's share is its value at the holder's point (Shamir, "How
to share a secret", 1979). The default prime 2^31 - 1 reduces by shifts.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, UInt32

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.prime import multiply_wide
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular._ring import add, reduce_words, ring_sum_over, subtract
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.primes import is_prime

SHAMIR_PRIME = 2**31 - 1
"""Default field of shares."""
LIMBS = 9
"""Limbs of 30 bits that hold a secret of 256 bits."""
MOST_POINTS = 2**16 - 1
"""Largest point: one multiplication by a point then stays within 32 bits a part."""

_LIMB_BITS = 30


@jax.jit
def limbs_of(words: UInt32[Array, "secrets 8"]) -> UInt32[Array, "secrets 9"]:
    """Cut secrets of eight little-endian words into limbs of 30 bits, lowest first.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> limbs = mj.modular.shamir.limbs_of(jnp.full((1, 8), 2**32 - 1, "uint32"))
        >>> limbs[0, 0] == 2**30 - 1, limbs[0, 8] == 2**16 - 1
        (Array(True, dtype=bool), Array(True, dtype=bool))
    """
    # the last limb may reach beyond the eighth word
    padded = jnp.pad(words, ((0, 0), (0, 1)))
    limbs = []
    for k in range(LIMBS):
        word, bit = divmod(k * _LIMB_BITS, 32)
        value = padded[:, word] >> jnp.uint32(bit)
        if bit:
            value = value | (padded[:, word + 1] << jnp.uint32(32 - bit))
        limbs.append(value & (2**_LIMB_BITS - 1))
    return jnp.stack(limbs, axis=1)


@jax.jit
def words_of_limbs(limbs: UInt32[Array, "secrets 9"]) -> UInt32[Array, "secrets 8"]:
    """Put limbs of 30 bits together again: the inverse of `limbs_of`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> shamir = mj.modular.shamir
        >>> words = jnp.arange(16, dtype="uint32").reshape(2, 8) * jnp.uint32(
        ...     0x9E3779B9
        ... )
        >>> bool((shamir.words_of_limbs(shamir.limbs_of(words)) == words).all())
        True
    """
    words = []
    for w in range(8):
        limb, bit = divmod(w * 32, _LIMB_BITS)
        value = limbs[:, limb] >> jnp.uint32(bit)
        value = value | (limbs[:, limb + 1] << jnp.uint32(_LIMB_BITS - bit))
        if 2 * _LIMB_BITS - bit < 32:
            value = value | (limbs[:, limb + 2] << jnp.uint32(2 * _LIMB_BITS - bit))
        words.append(value)
    return jnp.stack(words, axis=1)


def share_secrets(
    secrets: UInt32[Array, "secrets limbs"],
    coefficients: UInt32[Array, "secrets degree limbs"],
    points: UInt32[Array, "secrets holders"],
    *,
    prime: int = SHAMIR_PRIME,
) -> UInt32[Array, "secrets limbs holders"]:
    """Return the shares of each secret at its holders' points.

    Share (i, l, j) = secrets[i, l] + sum_k coefficients[i, k, l] points[i, j]^(k + 1)
    mod p, by Horner's rule over all secrets, limbs and holders at once. Any t =
    degree + 1 of a secret's shares rebuild it and fewer say nothing, if the
    coefficients are uniform; zeros at the end of a row of coefficients give that secret
    a lower threshold.

    Args:
        secrets: Limbs below `prime`.
        coefficients: Below `prime`, lowest power first; may be none (t = 1).
        points: Distinct within a row, from 1 to `MOST_POINTS`, below `prime`. The share
            at 0 would be the secret itself.
        prime: p, a prime below 2^31.

    Returns:
        Shares below `prime`.

    Raises:
        ConfigurationError: If `prime` is no prime below 2^31. If a point is out of
            range or is there twice in a row, or another value is not below `prime`;
            traced values are not checked.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> shamir = mj.modular.shamir
        >>> row = lambda *values: jnp.asarray([values], "uint32")
        >>> polynomial = jnp.asarray([[[166], [94]]], "uint32")  # 1234 + 166 x + 94 x^2
        >>> shamir.share_secrets(row(1234), polynomial, row(1, 2, 3), prime=1613)[
        ...     0, 0
        ... ].tolist()
        [1494, 329, 965]

    Cost: degree multiplications for each secret, limb and holder.

    Source: Shamir (1979); t_i-out-of-(|Adj(i)| + 1) in CCESA, Algorithm 1.
    """
    p = _check_prime(prime)
    _check_points(points, np.True_, p)
    _check_residues(secrets, "secrets", p)
    _check_residues(coefficients, "coefficients", p)
    return _share(secrets, coefficients, points, p)


def _check_prime(prime: Any) -> int:
    p = check_integer(prime, "prime", 2, 2**31 - 1)
    require(
        is_prime(p),
        "prime",
        "must be a prime, because only a field has all inverses",
        p,
    )
    return p


def _check_points(points: Any, used: Any, prime: int) -> None:
    """Check the points that are used, unless they are traced."""
    if is_traced(points, used):
        return
    array = host_array(points, "points")
    require(
        array.ndim == 2 and array.dtype.kind in "iu",
        "points",
        "must be integers [secrets, holders]",
        f"{array.dtype} of shape {array.shape}",
    )
    counted = np.broadcast_to(used, array.shape)
    most = min(MOST_POINTS, prime - 1)
    outside = array[counted & ((array < 1) | (array > most))]
    require(
        outside.size == 0,
        "points",
        f"must lie in [1, {most}], because the share at 0 is the secret itself",
        *outside[:1].tolist(),
    )
    # Points that are not used become 0, which no point is, and are the first of each
    # row.
    ordered = np.sort(np.where(counted, array, 0), axis=1)
    is_repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] > 0)
    repeated = ordered[:, 1:][is_repeated]
    require(
        repeated.size == 0,
        "points",
        "must be distinct for each secret",
        *repeated[:1].tolist(),
    )


def _check_residues(
    values: Any,
    argument: str,
    prime: int,
) -> None:
    """Check that values are below the prime, unless they are traced."""
    if is_traced(values):
        return
    array = host_array(values, argument)
    require(
        array.dtype.kind in "iu",
        argument,
        "must hold integers",
        str(array.dtype),
    )
    outside = array[(array < 0) | (array >= prime)]
    require(
        outside.size == 0,
        argument,
        f"must lie in [0, {prime}), the residues modulo `prime`",
        *outside[:1].tolist(),
    )


@functools.partial(jax.jit, static_argnames=("prime",))
def _share(
    secrets: Array,
    coefficients: Array,
    points: Array,
    prime: int,
) -> Array:
    def horner(job: tuple[Array, ...]) -> Array:
        secret, higher, at = job
        x = at[None, :]
        # Horner from the highest power; the secret itself comes last
        start = jnp.zeros((secret.shape[0], at.shape[0]), jnp.uint32)
        start = varying_like(start, job)

        def step(value: Array, coefficient: Array) -> tuple[Array, None]:
            return add(
                _times_point(value, x, prime),
                coefficient[:, None],
                prime,
            ), None

        value, _ = lax.scan(step, start, higher, reverse=True)
        return add(_times_point(value, x, prime), secret[:, None], prime)

    batch = at_once("shares", 4 * secrets.shape[1] * points.shape[1])
    return lax.map(
        horner,
        (secrets, coefficients, points),
        batch_size=batch,
    )


def recover_secrets(
    shares: UInt32[Array, "secrets limbs holders"],
    points: UInt32[Array, "secrets holders"],
    used: ArrayLike,
    *,
    prime: int = SHAMIR_PRIME,
) -> UInt32[Array, "secrets limbs"]:
    """Return the secrets from some of their shares, by Lagrange interpolation at 0.

    Args:
        shares: As `share_secrets` made them; those not used may hold anything.
        points: The holders' points, as `share_secrets` takes them where used.
        used: bool[secrets, holders], which shares to use: at least t of each secret.
        prime: p of the shares.

    Returns:
        Limbs below `prime`. With fewer than t shares used they say nothing about the
        secret; with none they are 0.

    Raises:
        ConfigurationError: If `prime` is no prime below 2^31. If a point that is used
            is out of range or is there twice; traced values are not checked.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> shamir = mj.modular.shamir
        >>> shares, points = (
        ...     jnp.asarray([[[1494, 329, 965]]], "uint32"),
        ...     jnp.asarray([[1, 2, 3]]),
        ... )
        >>> everybody = jnp.ones((1, 3), bool)
        >>> shamir.recover_secrets(
        ...     shares, points.astype("uint32"), everybody, prime=1613
        ... ).tolist()
        [[1234]]

    Cost: holders^2 + 60 holders multiplications for each secret; pass only holders that
    count.

    Source: Shamir (1979).
    """
    p = _check_prime(prime)
    chosen = on_device(used)
    require(
        chosen.dtype == jnp.bool_,
        "used",
        "must be bool",
        chosen.dtype,
    )
    require(
        chosen.shape == points.shape,
        "used",
        "must match `points`",
        chosen.shape,
        points.shape,
    )
    _check_points(points, chosen, p)
    return _recover(shares, points, chosen, p)


@functools.partial(jax.jit, static_argnames=("prime",))
def _recover(
    shares: Array,
    points: Array,
    used: Array,
    prime: int,
) -> Array:
    def one(job: tuple[Array, ...]) -> Array:
        values, at, chosen = job
        weights = _lagrange(at, chosen, prime)
        terms = _multiply(
            values, jnp.broadcast_to(weights[None, :], values.shape), prime
        )
        terms = jnp.where(chosen[None, :], terms, 0)
        return ring_sum_over(terms, prime, axis=1)

    return lax.map(
        one,
        (shares, points, used),
        batch_size=at_once("shares", 4 * points.shape[1]),
    )


def _lagrange(points: Array, used: Array, prime: int) -> Array:
    """Return prod_k x_k / (x_k - x_j) over the used k other than j, for each used j."""
    unit = jnp.uint32(1)
    index = jnp.arange(points.shape[0], dtype=jnp.int32)

    def step(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        above, below = carry
        counts = used[k] & (index != k)
        x = jnp.where(used[k], points[k], unit)
        difference = subtract(jnp.broadcast_to(points[k], points.shape), points, prime)
        above = _multiply(above, x, prime)
        return above, _multiply(below, jnp.where(counts, difference, unit), prime)

    start = (unit % jnp.uint32(prime), jnp.ones_like(points))
    above, below = lax.fori_loop(
        0,
        points.shape[0],
        step,
        varying_like(start, points, used),
    )
    # the product of all x_k holds x_j once too often
    below = _multiply(below, jnp.where(used, points, unit), prime)
    return _multiply(
        jnp.broadcast_to(above, below.shape),
        _inverse(below, prime),
        prime,
    )


def _inverse(values: Array, prime: int) -> Array:
    """Return values^(p - 2)."""
    bits = np.asarray(
        [(prime - 2) >> k & 1 for k in range((prime - 2).bit_length())], np.bool_
    )

    def step(
        carry: tuple[Array, Array], bit: Array
    ) -> tuple[tuple[Array, Array], None]:
        result, square = carry
        result = jnp.where(bit, _multiply(result, square, prime), result)
        return (result, _multiply(square, square, prime)), None

    start = (varying_like(jnp.ones_like(values), values), values)
    return lax.scan(step, start, on_device(bits))[0][0]


def _times_point(
    values: Array,
    points: Array,
    prime: int,
) -> Array:
    """Return values * points mod p for points below 2^16."""
    points = jnp.broadcast_to(points, values.shape)
    if prime != SHAMIR_PRIME:
        return _multiply(values, points, prime)
    # values = high 2^16 + low; 2^31 = 1, so that multiplying by 2^16 turns 31 bits
    # round
    high = (values >> 16) * points
    low = (values & 0xFFFF) * points
    turned = ((high & 0x7FFF) << 16) + (high >> 15)
    return _fold(turned + _fold_once(low))


def _multiply(left: Array, right: Array, prime: int) -> Array:
    """Return left * right mod p."""
    high, low = multiply_wide(left, right)
    if prime != SHAMIR_PRIME:
        return reduce_words(high, low, prime)
    # high 2^32 + low = (2 high + top bit of low) 2^31 + rest of low
    upper = (high << 1) | (low >> 31)
    return _fold(upper + (low & SHAMIR_PRIME))


def _fold_once(values: Array) -> Array:
    return (values & SHAMIR_PRIME) + (values >> 31)


def _fold(values: Array) -> Array:
    """Return any words mod 2^31 - 1, below it."""
    once = _fold_once(values)
    return jnp.minimum(once, once - SHAMIR_PRIME)
