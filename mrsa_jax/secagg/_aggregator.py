"""From client updates to their average through one secure sum.

Encode, sum in the ring, decode: three executables of their own, so that a trained model is
bit-identical whether the ring sum computes the pads or not. HeteroSAg's decoding with a single
block (FACTS: divide by the survivors).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Integer, Key

from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax.modular._inputs import check_integer
from mrsa_jax.quantize import Quantizer
from mrsa_jax.secagg._masking import Fidelity, ring_sum
from mrsa_jax.secagg._seeds import derive_seeds
from mrsa_jax.secagg._seeds import key_material as material_of
from mrsa_jax.secagg._types import SegmentPlan, complete_plan

__all__ = ["AggregateOut", "Aggregator", "AggregatorState", "RingAverage", "ring_average"]


class AggregatorState(NamedTuple):
    """What the next round needs.

    Attributes:
        round_index: int32, rounds aggregated so far; part of every nonce.
    """

    round_index: Array


class AggregateOut(NamedTuple):
    """What a round gives.

    Attributes:
        update: float32[d], mean of the present clients' quantized updates; zeros unless OK.
        status: int32, a `Status`.
        learned: uint32[d], the ring total that the server learns; zeros unless OK.
        clipped_fraction: float32, share of the present clients' coordinates that were clipped.
    """

    update: Array
    status: Array
    learned: Array
    clipped_fraction: Array


@runtime_checkable
class Aggregator(Protocol):
    """How a round's updates become one: a pytree with a state."""

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        ...

    def aggregate(
        self,
        key: Key[Array, ""],
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        present: Bool[Array, " participants"],
    ) -> tuple[AggregateOut, AggregatorState]:
        """Aggregate one round."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RingAverage:
    """Mean of quantized updates through one ring sum (build it with `ring_average`).

    Attributes:
        quantizer: Turns updates into codes.
        key_material: uint32[8], from which every seed is derived.
        plan: One block of all participants (static).
        fidelity: "array" or "sets" (static).
    """

    quantizer: Any  # a Quantizer; while JAX rebuilds the pytree, anything
    key_material: Array
    plan: SegmentPlan = dataclasses.field(metadata={"static": True})
    fidelity: Fidelity = dataclasses.field(metadata={"static": True})

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        return AggregatorState(jnp.int32(0))

    def aggregate(
        self,
        key: Key[Array, ""],
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        present: Bool[Array, " participants"],
    ) -> tuple[AggregateOut, AggregatorState]:
        """Average one round's updates.

        Call it outside `jit`: encoding, sum and decoding are compiled apart, which is what
        makes the result independent of `fidelity` to the last bit.

        Args:
            key: Randomness of the rounding; a client's draw depends on its id, not its slot.
            state: State before the round.
            updates: One update for each slot; those of absent clients are not read.
            members: Global client ids by slot.
            present: Whose update arrives.

        Returns:
            The round's outcome (zeros and `Status.TOO_FEW_SURVIVORS` for fewer than two
            present clients) and the state after it.
        """
        members = jnp.asarray(members).astype(jnp.int32)
        present = jnp.asarray(present)
        codes, clipped = _encode(self.quantizer, key, jnp.asarray(updates), members, present)
        seeds = derive_seeds(self.key_material, members, state.round_index)
        result = ring_sum(
            seeds, codes, self.plan, state.round_index, present=present, fidelity=self.fidelity
        )
        status = result.status[0]
        update = _decode(self.quantizer, result.total, present, status)
        out = AggregateOut(update, status, result.total, clipped)
        return out, AggregatorState(state.round_index + jnp.int32(1))


def ring_average(
    quantizer: Quantizer,
    num_participants: int | np.integer,
    dim: int | np.integer,
    *,
    modulus_bits: int | np.integer = 32,
    fidelity: Fidelity = "array",
    key_material: int | np.integer | bytes | ArrayLike = 0,
) -> RingAverage:
    """Build the aggregator that averages updates through one secure sum of everybody.

    Args:
        quantizer: E.g. `quantize.stochastic(2**16, clip=1.0)`.
        num_participants: n, slots of a round (the cohort size), at least 2.
        dim: d, length of an update.
        modulus_bits: b of the ring of 2**b elements, 1 to 32.
        fidelity: "array" computes the sum from padded inputs, "sets" without pads; the results
            are bit-equal.
        key_material: Seed (integer or bytes) or uint32[8] of key material; reproducible, hence
            no secret.

    Returns:
        A frozen pytree with `init` and `aggregate`.

    Raises:
        ConfigurationError: If n codes can exceed the ring, or an argument is out of range.

    Examples:
        >>> from mrsa_jax.quantize import stochastic
        >>> average = ring_average(stochastic(3, 1.0), 2, 4, modulus_bits=8)
        >>> updates = jnp.asarray([[1.0, 0.0, -1.0, 0.0], [1.0, 1.0, -1.0, 0.0]])
        >>> out, state = average.aggregate(
        ...     jax.random.key(0), average.init(), updates, jnp.arange(2), jnp.ones(2, bool))
        >>> out.update.tolist(), int(state.round_index)
        ([1.0, 0.5, -1.0, 0.0], 1)

    Source:
        HeteroSAg, Section III (quantize, sum in Z_R, decode), with one group.
    """
    check_integer(num_participants, "num_participants", 2)
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    require(fidelity in ("array", "sets"), "fidelity", 'must be "array" or "sets"', fidelity)
    levels = int(quantizer.num_levels)
    plan = complete_plan(num_participants, dim, 2**bits, levels=levels)
    if isinstance(key_material, int | np.integer | bytes):
        words = material_of(key_material)
    else:
        words = jnp.asarray(key_material)
        valid = words.dtype == jnp.uint32 and words.shape == (8,)
        require(valid, "key_material", "must be uint32[8], an integer or bytes", words.shape)
    return RingAverage(quantizer, words, plan, fidelity)


@jax.jit
def _encode(
    quantizer: Quantizer, key: Array, updates: Array, members: Array, present: Array
) -> tuple[Array, Array]:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, members)
    codes = jax.vmap(lambda own, values: quantizer.encode(own, values))(keys, updates)
    fractions = jnp.where(present, quantizer.clipped_fraction(updates), jnp.float32(0))
    count = jnp.sum(present, dtype=jnp.float32)
    return codes, jnp.sum(fractions) / jnp.maximum(count, jnp.float32(1))


@jax.jit
def _decode(quantizer: Quantizer, total: Array, present: Array, status: Array) -> Array:
    count = jnp.sum(present, dtype=jnp.int32)
    mean = quantizer.decode(total, count) / jnp.maximum(count, jnp.int32(1)).astype(jnp.float32)
    return jnp.where(status == jnp.int32(Status.OK), mean, jnp.float32(0))
