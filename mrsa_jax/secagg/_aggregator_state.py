"""What averages through ring sums have in common.

Contract, state, and who survives a round.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Int, Integer, Key, UInt32

from mrsa_jax._core.arrays import are_finite, needs_values, on_device
from mrsa_jax._core.device import is_traced
from mrsa_jax._core.round_rules import whole_blocks
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.availability import StepDropout
from mrsa_jax.quantize import ClipRule, LatticeQuantizer, Quantizer, RingNoise
from mrsa_jax.quantize.wrapping import has_left, lifted
from mrsa_jax.secagg._types import SegmentPlan, key_material as material_of
from mrsa_watch._base.errors import check_integer, require, require_methods
from mrsa_watch._base.values import by_value

# ---- Which clients may be in the sums of a plan of many blocks, and which lists
# clients refuse.
#
# A client's input of all its blocks arrives or is lost together, and its self seed b_i,
# once
# revealed, opens all of them. HeteroSAg (Section VI-B) leaves open what to do where one
# client of a
# block is left: here it counts as lost, and its self pads still hide what it sent.
# Bonawitz et
# al. (CCS 2017), Figure 4: clients refuse lists of fewer than the threshold.


@needs_values
def admitted(
    plan: SegmentPlan,
    sends: Bool[np.ndarray, "*rounds participants"],
    blocks: Int[np.ndarray, " participants"] | None = None,
) -> Bool[np.ndarray, "*rounds participants"]:
    """Return the largest set of senders of which no block of the plan holds exactly one.

    Args:
        plan: Blocks of the round.
        sends: bool[n], whose padded inputs arrived, V3; leading axes are rounds.
        blocks: int[n], the blocks that clients keep, whose numbers say who are mates: a
            block that lost a member is left out. Each must be within one block of the
            plan.

    Returns:
        bool[n]: V3 less those who would be alone in a block, again and again, since
        each who leaves may leave another alone. The union of sets without lonely
        clients has none either, so that there is a largest one and this finds it.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> plan = (mj.secagg.Block((0, 1), 0, 1, 8), mj.secagg.Block((1, 2, 3), 1, 2, 8))
        >>> mj.secagg.admitted(plan, np.asarray([False, True, True, True])).tolist()
        [False, False, True, True]
    """
    # sums of ones, exact in float32, so that many rounds are two products of matrices
    members = memberships(plan, sends.shape[-1]).astype(np.float32)
    left = np.array(sends if blocks is None else whole_blocks(sends, blocks), bool)
    while True:
        # which OpenBLAS may report of finite numbers
        with np.errstate(invalid="ignore"):
            lonely = left & (
                ((left.astype(np.float32) @ members.T == 1.0) @ members) > 0.0
            )
        if not lonely.any():
            return left
        left &= ~lonely


def memberships(
    plan: SegmentPlan, participants: int
) -> Bool[np.ndarray, "blocks participants"]:
    """Return who is in which block."""
    members = np.zeros((len(plan), participants), bool)
    for row, block in zip(members, plan, strict=True):
        row[list(block.members)] = True
    return members


def check_blocks(
    blocks: Int[np.ndarray, " n"],
    adjacency: Bool[np.ndarray, "n n"],
    thresholds: Integer[np.ndarray, " n"],
    colluders: int = 0,
) -> None:
    """Check that clients can keep blocks over a graph.

    Those without neighbours are not in it.

    Raises:
        ConfigurationError: If mates have different neighbours or thresholds, or a
            threshold is below floor((|Adj(i)| + 1 + colluders) / 2) + 1.
    """
    closed = adjacency | np.eye(len(adjacency), dtype=bool)
    mates = blocks[:, None] == blocks
    asked = (mates & adjacency.any(axis=1)).any(axis=1)
    if not asked.any():
        return
    own = np.column_stack([closed, thresholds])[asked]
    first = np.argmax(mates[np.ix_(asked, asked)], axis=1)
    rule = "must give the clients of a block the same neighbours and the same threshold"
    require(bool((own == own[first]).all()), "adjacency", rule)
    least = (closed.sum(axis=1) + colluders) // 2 + 1
    short = np.flatnonzero(asked & (thresholds < least))[:1]
    rule = "must be more than half of a client's neighbourhood and the colluders in it"
    found = [f"{thresholds[i]} for client {i}, not {least[i]}" for i in short]
    require(not found, "thresholds", rule, *found)


def check_plan(blocks: Int[np.ndarray, " n"], plan: SegmentPlan) -> None:
    """Raise `ConfigurationError` if a sum of the plan is over a part of a block."""
    members = memberships(plan, len(blocks))
    same = bool((whole_blocks(members, blocks) == members).all())
    require(
        same, "plan", "must sum whole blocks in each of its blocks", blocks.tolist()
    )


def heeded(
    plan: SegmentPlan,
    adjacency: Bool[np.ndarray, "n n"],
    survivors: Bool[np.ndarray, "5 n"],
    thresholds: ArrayLike,
    blocks: Int[np.ndarray, " n"] | None = None,
) -> Bool[np.ndarray, "5 n"]:
    """Return V0 to V4 less those who refuse what an honest server tells them.

    A client continues only while of it and its neighbours at least t_i are there: in V2
    before it sends its input (unless fewer were in V1 already, so that nobody can ever
    rebuild its secrets), among those summed before it hands out shares. Only rounds
    that Theorem 1 calls unreliable are changed by it.

    Args:
        plan: Blocks of the round.
        adjacency: bool[n, n].
        survivors: bool[5, n], who is there at each step.
        thresholds: t_i, one or int[n].
        blocks: int[n], the blocks that clients keep: a client sends nothing unless all
            its mates are in V2, and the server sums whole blocks.

    Returns:
        bool[5, n]: V3 are those who send, and in V4 is nobody who is not summed
        (`admitted`).

    Examples:
        >>> from mrsa_jax.secagg import complete_plan
        >>> survivors = np.asarray([[True] * 3] * 2 + [[True, True, False]] * 3)
        >>> heeded(complete_plan(3, 1, 8), ~np.eye(3, dtype=bool), survivors, 3).sum(axis=1)
        array([3, 3, 2, 0, 0])
    """
    alive = survivors.copy()
    asked, shared = (holders(adjacency, alive[step]) for step in (1, 2))
    alive[3] &= (shared >= thresholds) | (asked < thresholds)
    if blocks is not None:
        alive[3] &= whole_blocks(alive[2], blocks)
    summed = admitted(plan, alive[3], blocks)
    alive[4] &= summed & (holders(adjacency, summed) >= thresholds)
    return alive


def signing(
    adjacency: Bool[np.ndarray, "n n"],
    alive: Bool[np.ndarray, "5 n"],
    thresholds: ArrayLike,
) -> tuple[Bool[np.ndarray, "5 n"], Bool[np.ndarray, " n"]]:
    """Return V0 to V4 with the consistency check, and who signs: V4 without it.

    In V4 are left those of whom, with their neighbours, at least t_i sign.
    """
    signs, checked = alive[4].copy(), alive.copy()
    checked[4] &= holders(adjacency, signs) >= thresholds
    return checked, signs


def holders(
    adjacency: Bool[np.ndarray, "n n"], here: Bool[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Return how many of those who hold shares of each client's secrets are among `here`."""
    return np.asarray((adjacency & here).sum(axis=1) + here)


# ---- What averages through ring sums have in common: contract, state, and who survives
# a round.


@by_value
class AggregatorState(NamedTuple):
    """What the next round needs.

    Attributes:
        round_index: int32, rounds aggregated so far; part of every nonce.
        half_width: float32, half width of the clip range where a rule moves it, else
            None.
    """

    round_index: Array
    half_width: Array | None = None

    @classmethod
    def first(cls, clip_rule: ClipRule | None, quantizer: Quantizer) -> AggregatorState:
        """Return the state before the first round."""
        return cls(
            jnp.int32(0), None if clip_rule is None else clip_rule.init(quantizer)
        )

    def present(self, clip_rule: ClipRule | None, quantizer: Any) -> Any:
        """Return the quantizer with the clip range of this round."""
        if clip_rule is None or self.half_width is None:
            return quantizer
        return clip_rule.apply(quantizer, self.half_width)

    def after(
        self, clip_rule: ClipRule | None, update: Array, is_learnt: Array
    ) -> AggregatorState:
        """Return the state after a round."""
        width = self.half_width
        if clip_rule is not None:
            width = _advance(clip_rule, width, update, is_learnt)
        return AggregatorState(self.round_index + jnp.int32(1), width)


@by_value
class AggregateOut(NamedTuple):
    """What a round gives.

    Attributes:
        update: float32[d], (weighted) mean of the quantized updates that were summed,
            or what a robust rule made of the blocks' averages; zeros unless OK.
        status: int32, a `Status`.
        learned: uint32[d], the ring total that the server learns; zeros unless OK. Of a
            rotated lattice, d is its `padded_dim`. Of sums of segments uint32[segments,
            B, w], w the widest segment's length: a row for each block of a segment
            (zero rows beyond the last, and where none was learnt; zeros beyond a
            segment's own length).
        clipped_fraction: float32, share of the coordinates that were clipped, of the
            clients who sent an input.
        summed: bool[n], the slots that are in the sum, or in every segment's; none
            unless OK.
        components: int32[n], for each slot the smallest slot of the learnt sum that it
            is in, -1 for none: more than one number where the graph became
            disconnected, in failed rounds
                too.
        total_weight: uint32, the sum of the weights, learnt in the same secure sum; the
            number of clients where there are none; 0 unless OK.
        wrapped: int32, coordinates whose true sum is outside the ring's window, so that
            the total stands for another one: by noise alone, and known to the
            simulation only.
        counts: int32[blocks], of sums of segments: clients in each block's sum; 0 where
            it was not learnt.
        block_status: int32[blocks], of sums of segments.
        failed_uploads: bool[n], the slots whose update was not finite: nothing of it is
            in a sum.
    """

    update: Array
    status: Array
    learned: Array
    clipped_fraction: Array
    summed: Array
    components: Array
    total_weight: Array
    wrapped: Any = np.int32(0)
    counts: Any = None
    block_status: Any = None
    failed_uploads: Any = None


@runtime_checkable
class Aggregator(Protocol):
    """How a round's updates become one: a pytree with a state.

    `aggregate` may take two more: `weights`, one integer a slot, and `assignment_key`,
    from which the round's graph is drawn. `federated.train` passes them only where it
    has them.

    One that JAX can trace runs on accelerators inside programs of many rounds; any
    other (work on the host, real messages, no pytree) is called once a round. What is
    traced receives no weights beyond its budget: a `checked_weights` method is asked
    before.

    One whose outcome has `failed_uploads` leaves updates that are not finite out of its
    sums, as an `AggregateOut` shows; under any other a training ends at the first such
    update.
    """

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        ...

    def aggregate(
        self,
        key: Key[Array, ""],
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        survivors: Bool[Array, " participants"] | Bool[Array, "5 participants"],
    ) -> tuple[AggregateOut, AggregatorState]:
        """Aggregate one round."""
        ...


def survivors_by_step(
    steps: StepDropout | None, key: Key[Array, ""], survivors: Any, count: int
) -> Bool[Array, "5 participants"]:
    """Return V0 to V4 by slot: as given, or of those asked by an average's own steps."""
    require(survivors.dtype == np.bool_, "survivors", "must be bool", survivors.dtype)
    rule = f"must have one row, or V0 to V4, of {count} slots"
    require(
        survivors.shape in ((count,), (5, count)), "survivors", rule, survivors.shape
    )
    own = on_device(survivors)
    if own.ndim == 2:
        return own
    if steps is not None:
        return _sample(steps, fold(key, int(Stream.STEPS)), own)
    return jnp.broadcast_to(own, (5, count))


def key_words(key_material: Any) -> Array:
    """Return uint32[8] of key material from an integer, bytes or such words, or raise."""
    if isinstance(key_material, int | np.integer | bytes):
        return material_of(key_material)
    words = on_device(key_material)
    valid = words.dtype == jnp.uint32 and words.shape == (8,)
    require(
        valid, "key_material", "must be uint32[8], an integer or bytes", words.shape
    )
    return words


@jax.jit
def _sample(steps: StepDropout, key: Array, cohort: Array) -> Array:
    return steps.sample(key, cohort)


@jax.jit
def _advance(
    clip_rule: ClipRule, width: Array, update: Array, is_learnt: Array
) -> Array:
    return clip_rule.advance(width, update, is_learnt)


# ---- What clients put under their pads: codes of their updates, and their noise on
# top.
#
# Integers decide all of it, so that the array simulation and the real protocol sum the
# same inputs.


def noisy_codes(
    quantizer: Quantizer,
    noise: RingNoise | None,
    key: Key[Array, ""],
    updates: ArrayLike | Sequence[Any],
    members: ArrayLike | Sequence[int],
    modulus_bits: int | np.integer,
) -> UInt32[Array, "participants coordinates"]:
    """Return what each client puts under its pads.

    Its codes and its noise, in the ring.
    What `ring_average(quantizer, ..., noise=noise)` sums: given to `protocol.run` the
    total is the aggregator's `learned`, bit for bit.

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
        >>> codes = mj.secagg.noisy_codes(mj.quantize.stochastic(3, 1.0), None, jax.random.key(0),
        ...                     jnp.asarray([[1.0, -1.0]] * 2), [4, 7], 8)
        >>> codes.tolist()
        [[2, 0], [2, 0]]
    """
    require_methods(quantizer, "quantizer", "encode", "decode")
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    values, ids = on_device(updates, jnp.float32), on_device(members).astype(jnp.int32)
    fits = values.ndim == 2 and ids.shape == values.shape[:1]
    require(
        fits,
        "members",
        "must be one id for each row of `updates`",
        ids.shape,
        values.shape,
    )
    everybody = jnp.ones(ids.shape, jnp.bool_)
    codes, _, is_finite = encoded(quantizer, key, values, ids)
    if not is_traced(is_finite):
        rule = "must be finite: a client whose update is not must not send it"
        lost = np.flatnonzero(~np.asarray(is_finite)).tolist()
        require(not lost, "updates", rule, *(f"row {row}" for row in lost[:1]))
    own = None if noise is None else on_lattice(noise, quantizer)
    return with_noise(quantizer, own, key, codes, ids, everybody, bits=bits)[0]


@needs_values
def on_lattice(noise: Any, quantizer: Any) -> Any:
    """Return noise in steps of a quantizer's lattice."""
    require_methods(noise, "noise", "on", "sample")
    return noise.on(float(quantizer.step))


class Encoded(NamedTuple):
    """What clients are about to send.

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
    quantizer: Quantizer, key: Array, updates: Array, members: Array
) -> Encoded:
    """Return each client's codes, how much of them was clipped, and whose update is finite."""
    # as when compiled apart
    quantizer, updates = lax.optimization_barrier((quantizer, updates))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, members)
    codes = jax.vmap(lambda own, values: quantizer.encode(own, values))(keys, updates)
    return Encoded(codes, quantizer.clipped_fraction(updates), are_finite(updates))


def uploaded(
    alive: Bool[Array, "5 participants"], is_finite: Bool[Array, " participants"]
) -> tuple[Bool[Array, "5 participants"], Bool[Array, " participants"]]:
    """Return V0 to V4 where only finite updates are uploaded, and the slots that failed to.

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
    """Return codes with each client's noise as residues, and how many true sums leave the window.

    A client's noise comes from its key of the rounding, folded with a separate stream.
    """
    wrapped, top = jnp.int32(0), jnp.uint32(2**bits - 1)
    if noise is not None:
        keys = jax.vmap(
            lambda i: jax.random.fold_in(jax.random.fold_in(key, i), _NOISE)
        )(members)
        drawn = jax.vmap(lambda own: noise.sample(own, codes.shape[1:]))(keys)
        codes = codes + drawn.astype(jnp.uint32)
        middle = quantizer.middle(jnp.sum(summed, dtype=jnp.uint32))
        wrapped = jnp.sum(has_left(codes, summed, middle, top), dtype=jnp.int32)
    return codes & top, wrapped


def is_centred(quantizer: Any, noise: Any) -> bool:
    """Return whether totals stand for integers about a middle, not for those from 0 on."""
    return noise is not None or isinstance(quantizer, LatticeQuantizer)


def totals_of(quantizer: Any, total: Array, count: Array, bits: int | None) -> Array:
    """Return ring totals as the quantizer decodes them.

    `bits` is None where they are sums.
    """
    if bits is None:
        return total
    return lifted(total, quantizer.middle(count), jnp.uint32(2**bits - 1))


_NOISE = int(Stream.NOISE)
