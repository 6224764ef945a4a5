"""From client updates to their average through one secure sum.

Encode, decide what is learnt, sum in the ring, decode: separate executables, so that a
trained model is bit-identical whether the ring sum computes the pads or not.
HeteroSAg's decoding with a single block (divided by the survivors).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Integer, UInt32

from mrsa_jax._core.array_types import PRNGKey, Whole
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.pytrees import kept_apart, pytree, static
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.availability import StepDropout
from mrsa_jax.quantize import ClipRule, LatticeQuantizer, Quantizer, RingNoise
from mrsa_jax.quantize.budgets import check_fits, check_weights, largest_total_weight
from mrsa_jax.quantize.wrapping import check_wraps
from mrsa_jax.secagg._graph_rule import GraphRule, SlotRound
from mrsa_jax.secagg._pad_tables import status_of
from mrsa_jax.secagg._ring_sum import Fidelity, plain_sums, ring_sum
from mrsa_jax.secagg.averages import (
    AggregateOut,
    AggregatorState,
    key_words,
    survivors_by_step,
)
from mrsa_jax.secagg.codes import (
    encoded,
    is_centred,
    on_lattice,
    totals_of,
    uploaded,
    with_noise,
)
from mrsa_jax.secagg.plans import RingResult, SegmentPlan, complete_plan
from mrsa_jax.secagg.seeds import derive_seeds, graph_edges
from mrsa_watch._base.errors import check_integer, require, require_methods


@pytree
class RingAverage:
    """Mean of quantized updates through one ring sum (build it with `ring_average`).

    Attributes:
        quantizer: Turns updates into codes.
        key_material: uint32[8], from which every seed is derived.
        plan: One block of all participants (static).
        fidelity: "array" or "sets" (static).
        rule: A `GraphRule`; None for the complete graph, all of whose rounds can be
            unmasked.
        steps: Draws who survives the steps of a round whose caller does not say; None
            for nobody is lost.
        clip_rule: Moves the clip range from round to round; None for the quantizer's
            own.
        total_weight: The most that the weights of a sum may add up to; None without
            weights (static).
        noise: Integers that each client adds to its codes, on the quantizer's lattice;
            or None.
    """

    cites = "secure aggregation: bonawitz2017practical shamir1979share rfc8439"

    quantizer: Any  # a Quantizer; while JAX rebuilds the pytree, anything
    key_material: Array
    plan: SegmentPlan = static()
    fidelity: Fidelity = static()
    rule: Any = None
    steps: Any = None
    clip_rule: Any = None
    total_weight: int | None = static(default=None)
    noise: Any = None

    @property
    def dim(self) -> int:
        """Return d, the length of an update."""
        if isinstance(self.quantizer, LatticeQuantizer):
            return self.quantizer.dim
        return self.plan[0].stop - (self.total_weight is not None)

    @property
    def bits(self) -> int:
        """Return b of the ring of 2**b elements."""
        return self.plan[0].modulus.bit_length() - 1

    @property
    def num_participants(self) -> int:
        """Return n, the slots of a round."""
        return len(self.plan[0].members)

    def init(self) -> AggregatorState:
        """Return the state before the first round."""
        return AggregatorState.first(self.clip_rule, self.quantizer)

    def aggregate(
        self,
        key: PRNGKey,
        state: AggregatorState,
        updates: Float32[Array, "participants dim"],
        members: Integer[Array, " participants"],
        survivors: Bool[Array, " participants"] | Bool[Array, "5 participants"],
        weights: ArrayLike | Sequence[object] | None = None,
        *,
        assignment_key: PRNGKey | None = None,
    ) -> tuple[AggregateOut, AggregatorState]:
        """Average one round's updates.

        Encoding, sum and decoding are compiled apart, which is what makes the result
        independent of `fidelity` to the last bit. Under `jit`, `vmap` or `scan` (rounds
        of a training in one program) it gives the same; there nothing raises for what
        is known to the program only.

        Args:
            key: Randomness of the rounding; a client's draw depends on its id, not its
                slot.
            state: State before the round.
            updates: One update for each slot; those of clients outside V3 are not read.
                One that is not finite is not sent: its client is lost before V3.
            members: Global client ids by slot; with a graph, ascending.
            survivors: V0 to V4 by slot; or one row, who was asked, whereupon `steps`
                draws who is left (nobody is lost without it).
            weights: Integers w_i by slot, if the aggregator is a weighted one (1 each
                if None). Each client multiplies its codes by its weight before it pads
                them, and sends the weight as one more padded coordinate. Traced ones
                (or a traced cohort) are not held to the budget: beyond it the sum wraps
                round.
            assignment_key: From which the graph is drawn; derived from `key` if None.

        Returns:
            The round's outcome (zeros unless `Status.OK`; `Status.TOO_FEW_SURVIVORS`
            for fewer than two inputs) and the state after it. Where all weights are 0
            nothing can be averaged: the update is 0 and the status OK, as the sum was
            learnt.

        Raises:
            ConfigurationError: If weights are given to an aggregator without, or are no
                integers, negative, or more than its budget together.
        """
        members, values = on_device(members).astype(jnp.int32), on_device(updates)
        alive = survivors_by_step(
            self.steps, key, on_device(survivors), self.num_participants
        )
        shape = (self.num_participants, self.dim)
        require(
            values.shape == shape,
            "updates",
            f"must have the shape {shape}",
            values.shape,
        )
        # a rule moves the clip range from round to round
        quantizer = state.present(self.clip_rule, self.quantizer)
        graph_key = (
            fold(key, int(Stream.ASSIGNMENT))
            if assignment_key is None
            else assignment_key
        )
        codes, shares, is_finite = encoded(quantizer, key, values, members)
        rule = kept_apart(self.rule)
        round_, failed = _decide(rule, graph_key, alive, members, is_finite)
        clipped, summed, present = _present(alive, failed, shares, round_)
        dim, wrapped = codes.shape[1], jnp.int32(0)
        if self.total_weight is not None or weights is not None:
            codes = _weigh(codes, self.checked_weights(weights, alive[0]))
        is_about_middle = is_centred(quantizer, self.noise)
        if is_about_middle:
            codes, wrapped = with_noise(
                quantizer, self.noise, key, codes, members, summed, bits=self.bits
            )
        result = _ring_sum(
            self, codes, members, state.round_index, round_.adjacency, present
        )
        totals = _totals(result, round_.status, summed, wrapped, dim)
        total, weight, status, wrapped, is_learnt = totals
        bits = self.bits if is_about_middle else None
        update = _decode(quantizer, total, weight, status, bits=bits)
        after = state.after(self.clip_rule, update, is_learnt)
        out = AggregateOut(
            update,
            status,
            total,
            clipped,
            summed,
            round_.components,
            weight,
            wrapped,
            failed_uploads=failed,
        )
        return out, after

    def checked_weights(
        self, weights: ArrayLike | Sequence[Any] | None, cohort: Any
    ) -> UInt32[Array, " participants"]:
        """Return uint32[n], 0 for those who were not asked.

        Traced weights are not held to budget.

        Raises:
            ConfigurationError: As `aggregate`.
        """
        require(
            self.total_weight is not None,
            "weights",
            "must not be set: the aggregator was built without `max_weight`",
        )
        passed: Any = (
            np.ones(self.num_participants, np.uint32) if weights is None else weights
        )
        if isinstance(passed, jax.core.Tracer):
            require(
                bool(jnp.issubdtype(passed.dtype, jnp.integer)),
                "weights",
                "must be integers",
                f"dtype {passed.dtype}",
            )
            checked: Any = passed.astype(jnp.uint32)
        else:
            checked = check_weights(passed, "weights")
        require(
            checked.shape == (self.num_participants,),
            "weights",
            f"must be {self.num_participants}, one a slot",
            checked.shape,
        )
        if is_traced(checked, cohort):
            return jnp.where(cohort, checked, 0)
        checked = np.where(np.asarray(cohort), checked, np.uint32(0))
        total, most = int(checked.sum(dtype=np.uint64)), self.total_weight or 0
        require(
            total <= most,
            "weights",
            "must not add up to more than the ring's budget allows",
            total,
            most,
        )
        return on_device(checked)


@needs_values
def ring_average(
    quantizer: Quantizer,
    num_participants: Whole,
    dim: Whole,
    *,
    modulus_bits: Whole = 32,
    fidelity: Fidelity = "array",
    key_material: Whole | bytes | ArrayLike = 0,
    rule: GraphRule | None = None,
    steps: StepDropout | None = None,
    max_weight: Whole | ArrayLike | Sequence[object] | None = None,
    clip_rule: ClipRule | None = None,
    noise: RingNoise | None = None,
) -> RingAverage:
    """Build the aggregator that averages updates through one secure sum.

    By itself everybody shares pads with everybody and each sum can be unmasked. A
    `rule` makes it SecAgg, SecAgg+ or CCESA with thresholds: a round whose sum cannot
    be unmasked shows this in its status, and what was learnt nevertheless is in
    `components`.

    Args:
        quantizer: E.g. `quantize.stochastic(2**16, clip=1.0)`.
        num_participants: n, slots of a round (the cohort size), at least 2.
        dim: d, length of an update.
        modulus_bits: b of the ring of 2**b elements, 1 to 32.
        fidelity: "array" computes the sum from padded inputs, "sets" without pads; the
            results are bit-equal.
        key_material: Seed (integer or bytes) or uint32[8] of key material;
            reproducible, hence no secret.
        rule: What is learnt over which graph, e.g.
            `graph_rule(graphs.erdos_renyi(n, p), N)`.
        steps: Who survives the protocol's steps, where the caller does not say, e.g.
            `availability.independent_steps(0.01)`; a rate, or one for each slot.
        max_weight: For a weighted mean: the largest integer weight, or all clients'
            weights. Each client multiplies its codes by its weight and sends the weight
            as one more coordinate of the same secure sum; the server learns both sums
            and no single weight. What one client's update leaks over many rounds
            (`privacy`), its weight leaks too.
        clip_rule: How the clip range moves, e.g. `quantize.following_range(4.0)`.
        noise: What each client adds to its own codes, in units of updates and drawn on
            the quantizer's lattice, e.g. `dp.skellam(1e-4)`; clients lost after sending
            have added theirs. A total then stands for an integer in a window about the
            middle of the sums of codes, and a sum outside it wraps round:
            `quantize.wrapping.wrap_probability` bounds the chance,
            `AggregateOut.wrapped` counts. Not with `max_weight`, which would multiply
            what a client can add, nor with `clip_rule`, by which others' data would.

    Returns:
        A frozen pytree with `init` and `aggregate`.

    Raises:
        ConfigurationError: If the (weighted) codes of n clients can exceed the ring,
            with noise if a coordinate wraps round with a chance that may pass 0.05, or
            if an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> average = mj.secagg.ring_average(
        ...     mj.quantize.stochastic(3, 1.0), 2, 4, modulus_bits=8
        ... )
        >>> updates = jnp.asarray([[1.0, 0.0, -1.0, 0.0], [1.0, 1.0, -1.0, 0.0]])
        >>> out, state = average.aggregate(
        ...     jax.random.key(0),
        ...     average.init(),
        ...     updates,
        ...     jnp.arange(2),
        ...     jnp.ones(2, bool),
        ... )
        >>> out.update.tolist(), int(state.round_index)
        ([1.0, 0.5, -1.0, 0.0], 1)
        >>> weighted = mj.secagg.ring_average(
        ...     mj.quantize.stochastic(3, 1.0), 2, 4, modulus_bits=8, max_weight=3
        ... )
        >>> out, _ = weighted.aggregate(
        ...     jax.random.key(0),
        ...     weighted.init(),
        ...     updates,
        ...     jnp.arange(2),
        ...     jnp.ones(2, bool),
        ...     np.asarray([1, 3]),
        ... )
        >>> out.update.tolist(), int(out.total_weight)
        ([1.0, 0.75, -1.0, 0.0], 4)

    Source:
        HeteroSAg, Section III (quantize, sum in Z_R, decode), with one group; CCESA for
        `rule`.
    """
    count = check_integer(num_participants, "num_participants", 2)
    require(count < 2**31, "num_participants", "must be below 2**31", count)
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    require(
        fidelity in ("array", "sets"), "fidelity", 'must be "array" or "sets"', fidelity
    )
    require_methods(quantizer, "quantizer", "encode", "decode")
    if rule is not None:
        slots = rule.num_participants
        require(
            slots == count,
            "rule",
            "must be over `num_participants` slots",
            slots,
            count,
        )
    if isinstance(quantizer, LatticeQuantizer):
        require(
            quantizer.dim == dim,
            "dim",
            "must be that of the lattice",
            dim,
            quantizer.dim,
        )
        require(
            clip_rule is None,
            "clip_rule",
            "must not be set: a lattice has a norm, no range",
        )
    length = int(getattr(quantizer, "padded_dim", check_integer(dim, "dim", 1)))
    levels, total = int(quantizer.num_levels), None
    if noise is not None:
        unset = "must not be set with `noise`: "
        problem = "a weight multiplies what one client adds to a sum"
        require(max_weight is None, "max_weight", unset + problem)
        problem = "a range that follows updates bounds nobody's by itself"
        require(clip_rule is None, "clip_rule", unset + problem)
        check_wraps(quantizer, noise, count, bits)
        plan = complete_plan(count, length, 2**bits)
    elif max_weight is None:
        plan = complete_plan(count, length, 2**bits, levels=levels)
    else:
        check_fits(levels, count, 2**bits, max_weight)
        total = largest_total_weight(count, max_weight)
        plan = complete_plan(count, length + 1, 2**bits)
    drawn = None if noise is None else on_lattice(noise, quantizer)
    words = key_words(key_material)
    return RingAverage(
        quantizer, words, plan, fidelity, rule, steps, clip_rule, total, drawn
    )


_OK = np.int32(Status.OK)


@jax.jit
def _decide(
    rule: GraphRule | None,
    key: Array,
    alive: Array,
    members: Array,
    is_finite: Array,
) -> tuple[SlotRound, Array]:
    """Decide what is learnt, and whose upload fails as their update is not finite.

    Without a rule that is the sum over V3 of the complete graph.
    """
    alive, failed = uploaded(alive, is_finite)
    if rule is not None:
        return rule.decide(key, alive, members), failed
    sent = alive[3]
    status = status_of(jnp.sum(sent, dtype=jnp.int32))
    is_open = sent & (status == jnp.int32(Status.OK))
    components = jnp.where(is_open, jnp.argmax(sent).astype(jnp.int32), -1)
    adjacency = (
        alive[0][:, None] & alive[0][None, :] & ~jnp.eye(sent.shape[0], dtype=jnp.bool_)
    )
    return SlotRound(adjacency, alive, components, status), failed


@jax.jit
def _present(
    alive: Array,
    failed: Array,
    shares: Array,
    round_: SlotRound,
) -> tuple[Array, Array, Array]:
    """Return the share of the senders' coordinates that was clipped, and who is summed.

    Then the survivors; of a round that failed, nobody.
    """
    sent, summed = alive[3] & ~failed, round_.summed
    count = jnp.sum(sent, dtype=jnp.float32)
    clipped = jnp.sum(jnp.where(sent, shares, 0)) / jnp.maximum(count, 1)
    return clipped, summed, round_.survivors & summed.any()


def _ring_sum(
    average: RingAverage,
    codes: Array,
    members: Array,
    round_index: Array,
    adjacency: Array,
    alive: Array,
) -> RingResult:
    """Sum over V3 with pads along the round's graph.

    Nobody's inputs if the round failed.
    """
    if average.fidelity == "sets":
        return plain_sums(codes, alive[3], average.plan)
    edges = None if average.rule is None else graph_edges(adjacency)
    seeds = derive_seeds(average.key_material, members, round_index, edges)
    return ring_sum(seeds, codes, average.plan, round_index, survivors=alive)


@jax.jit
def _weigh(codes: Array, weights: Array) -> Array:
    """Multiply each client's codes by its weight and append it.

    The budget rules out wrapping.
    """
    return jnp.concatenate([codes * weights[:, None], weights[:, None]], axis=1)


@functools.partial(jax.jit, static_argnames=("dim",))
def _totals(
    result: RingResult,
    of_round: Array,
    summed: Array,
    wrapped: Array,
    dim: int,
) -> tuple[Array, Array, Array, Array, Array]:
    """Split a ring total into codes and weight.

    The weight is the count where none was summed.
    Then the status, how many coordinates wrapped round, and whether the update is
    learnt.
    """
    status = jnp.where(of_round == _OK, result.status[0], of_round)
    count, is_ok = jnp.sum(summed, dtype=jnp.uint32), status == _OK
    weight = result.total[dim] if result.total.shape[0] > dim else count
    weight = jnp.where(is_ok, weight, 0)
    wrapped = jnp.where(is_ok, wrapped, 0)
    return result.total[:dim], weight, status, wrapped, is_ok & (weight > 0)


@functools.partial(jax.jit, static_argnames=("bits",))
def _decode(
    quantizer: Quantizer,
    total: Array,
    weight: Array,
    status: Array,
    *,
    bits: int | None,
) -> Array:
    # as when compiled apart: fused, the last bits could differ between fidelities
    quantizer, total, weight = lax.optimization_barrier((quantizer, total, weight))
    # weights of 0 divide nothing: the mean is withheld below
    divisor = jnp.maximum(weight, 1).astype(jnp.float32)
    mean = quantizer.decode(totals_of(quantizer, total, weight, bits), weight) / divisor
    mean = jnp.where((status == _OK) & (weight > 0), mean, 0)
    return lax.optimization_barrier(mean)
