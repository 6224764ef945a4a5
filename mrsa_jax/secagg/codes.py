"""Encode updates as clients put them under their pads: codes, and their noise on top.

Integers decide all of it, so that the array simulation and the real protocol sum the
same inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Key, UInt32

from mrsa_jax._core.arrays import are_finite, on_device
from mrsa_jax._core.streams import Stream
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.quantize import LatticeQuantizer, Quantizer, RingNoise
from mrsa_jax.quantize.wrapping import has_left, lifted
from mrsa_watch._base.errors import check_integer, require, require_methods

_NOISE = int(Stream.NOISE)


def noisy_codes(
    quantizer: Quantizer,
    noise: RingNoise | None,
    key: Key[Array, ""],
    updates: ArrayLike | Sequence[object],
    members: ArrayLike | Sequence[int],
    modulus_bits: int | np.integer,
) -> UInt32[Array, "participants coordinates"]:
    """Encode updates as each client puts them under its pads.

    Its codes and its noise, in the ring. A `ring_average` with this quantizer and noise
    sums the same: passed to `protocol.run` the total is the aggregator's `learned`, bit
    for bit.

    Args:
        quantizer: Turns updates into codes.
        noise: Of one client, in units of updates (`mrsa_jax.dp.skellam`); None for
            none.
        key: As given to `aggregate`.
        updates: float32[n, d].
        members: Global client ids by slot.
        modulus_bits: b of the ring of 2**b elements.

    Returns:
        uint32[n, d] below 2**b; of a rotated lattice, d is its `padded_dim`.

    Raises:
        ConfigurationError: If shapes do not fit, an argument is out of range or an
            update is not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> codes = mj.secagg.noisy_codes(
        ...     mj.quantize.stochastic(3, 1.0),
        ...     None,
        ...     jax.random.key(0),
        ...     jnp.asarray([[1.0, -1.0]] * 2),
        ...     [4, 7],
        ...     8,
        ... )
        >>> codes.tolist()
        [[2, 0], [2, 0]]
    """
    require_methods(quantizer, "quantizer", "encode", "decode")
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    values, ids = on_device(updates, jnp.float32), on_device(members).astype(jnp.int32)
    require(
        values.ndim == 2 and ids.shape == values.shape[:1],
        "members",
        "must be one id for each row of `updates`",
        ids.shape,
        values.shape,
    )
    everybody = jnp.ones(ids.shape, jnp.bool_)
    codes, _, is_finite = encoded(quantizer, key, values, ids)
    if not is_traced(is_finite):
        lost = np.flatnonzero(~np.asarray(is_finite)).tolist()
        require(
            not lost,
            "updates",
            "must be finite: a client whose update is not must not send it",
            *(f"row {row}" for row in lost[:1]),
        )
    on_steps = None if noise is None else on_lattice(noise, quantizer)
    return with_noise(quantizer, on_steps, key, codes, ids, everybody, bits=bits)[0]


@needs_values
def on_lattice(noise: Any, quantizer: Any) -> Any:
    """Return noise in steps of a quantizer's lattice."""
    require_methods(noise, "noise", "on", "sample")
    return noise.on(float(quantizer.step))


class Encoded(NamedTuple):
    """Hold the codes that clients are about to send.

    Attributes:
        codes: uint32[n, coordinates].
        clipped: float32[n], share of each client's coordinates that was clipped.
        is_finite: bool[n]; the codes of an update that is not stand for nothing.
    """

    codes: Array
    clipped: Array
    is_finite: Array


@jax.jit
def encoded(
    quantizer: Quantizer,
    key: Array,
    updates: Array,
    members: Array,
) -> Encoded:
    """Encode each client's update, and mark those that are finite."""
    # as when compiled apart
    quantizer, updates = lax.optimization_barrier((quantizer, updates))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, members)
    codes = jax.vmap(lambda rounding, values: quantizer.encode(rounding, values))(
        keys, updates
    )
    return Encoded(codes, quantizer.clipped_fraction(updates), are_finite(updates))


def uploaded(
    alive: Bool[Array, "5 participants"], is_finite: Bool[Array, " participants"]
) -> tuple[Bool[Array, "5 participants"], Bool[Array, " participants"]]:
    """Exclude uploads that are not finite from V3 and V4, and mark their slots.

    A client learns that its update is not finite when it has trained, so it is lost at
    the upload.
    """
    failed = alive[3] & ~is_finite
    reached = jnp.concatenate([alive[:3], alive[3:] & ~failed[None]])
    return reached, failed


@functools.partial(jax.jit, static_argnames=("bits",))
def with_noise(
    quantizer: Any,
    noise: Any,
    key: Array,
    codes: Array,
    members: Array,
    summed: Array,
    *,
    bits: int,
) -> tuple[Array, Array]:
    """Add each client's noise as residues, and count sums outside the window.

    A client's noise comes from its key of the rounding, folded with a separate stream.
    """
    wrapped, top = jnp.int32(0), jnp.uint32(2**bits - 1)
    if noise is not None:
        keys = jax.vmap(
            lambda i: jax.random.fold_in(jax.random.fold_in(key, i), _NOISE)
        )(members)
        drawn = jax.vmap(lambda noise_key: noise.sample(noise_key, codes.shape[1:]))(
            keys
        )
        codes = codes + drawn.astype(jnp.uint32)
        middle = quantizer.middle(jnp.sum(summed, dtype=jnp.uint32))
        wrapped = jnp.sum(has_left(codes, summed, middle, top), dtype=jnp.int32)
    return codes & top, wrapped


def is_centred(quantizer: object, noise: object) -> bool:
    """Return whether totals stand for integers about a middle, not from 0 on."""
    return noise is not None or isinstance(quantizer, LatticeQuantizer)


def totals_of(quantizer: Any, total: Array, count: Array, bits: int | None) -> Array:
    """Return ring totals as the quantizer decodes them.

    `bits` is None where they are sums.
    """
    if bits is None:
        return total
    return lifted(total, quantizer.middle(count), jnp.uint32(2**bits - 1))
