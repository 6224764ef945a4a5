"""Rounds of a layout as they happen: which give a sum, and how private that sum is.

HeteroSAg, Sections II-B and V. The paper's privacy level and tolerance are those of a
round without losses. A group that loses its clients leaves the matrix, and the level of
the other groups can be lower. Symbols: q -> `step_dropout_rate`, delta -> `levels`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32

from mrsa_jax._core.array_types import Integers, Numbers, PRNGKey, Real, Whole
from mrsa_jax._core.arrays import check_thresholds
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import (
    Stream,
    as_key,
    check_chances,
    client_words,
    fold,
    happens,
    round_key,
    threshold,
    trial_key,
)
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import StepDropout, independent_steps
from mrsa_jax.hetero._layout import SegmentLayout
from mrsa_jax.hetero._privacy import privacy_report
from mrsa_jax.hetero._round import judge
from mrsa_jax.hetero._segments import blocks_of
from mrsa_jax.hetero._tolerance import (
    check_trim,
    spoilt_limits,
    tolerated_anywhere,
)
from mrsa_jax.hetero.costs import communication_times
from mrsa_jax.secagg.failures import Rate
from mrsa_watch._base.errors import check_integer, check_number, require
from mrsa_watch._base.html import number, telling, told
from mrsa_watch._base.values import by_value

_IN_FLIGHT = 2**24  # booleans of the rounds that are judged at once


@dataclasses.dataclass(frozen=True)
@by_value
class RoundRates:
    """Outcomes of simulated rounds of a layout (build it with `round_rates`).

    Levels and tolerances are of the rounds with a sum, over the clients in it.

    Attributes:
        trials: Rounds simulated.
        no_sum: Rounds whose sum was not learnt: their status is not OK.
        lonely: Rounds in which a client whose input arrives is excluded, because it
            would be alone in a block.
        mean_inputs: Clients per round whose inputs arrive, on average.
        mean_lonely: Clients per round that are excluded as lonely, on average.
        mean_summed: Clients in the sum, on average over the rounds with a sum; nan
            without one.
        planned_level: Privacy level of the layout without losses.
        below_plan: Rounds whose level is below that, among the rounds with a sum; None
            without one.
        levels: (level, rounds) for each privacy level that occurs, ascending.
        certified: Whether each level is proven; False if `budget` ended a search, whose
            rounds then count at their proven lower bound.
        tolerated: (Byzantine clients, rounds): the most that the robust rule tolerates
            wherever they are, by the clients that each block sums; ascending.
        seconds: float64[trials], until the last client whose input arrives has sent its
            residues; nan in rounds without inputs. None without upload rates.
    """

    __repr__ = told
    _repr_html_ = telling

    trials: int
    no_sum: Rate
    lonely: Rate
    mean_inputs: float
    mean_lonely: float
    mean_summed: float
    planned_level: Fraction
    below_plan: Rate | None
    levels: tuple[tuple[Fraction, int], ...]
    certified: bool
    tolerated: tuple[tuple[int, int], ...]
    seconds: np.ndarray | None = None

    @property
    def least_level(self) -> Fraction | None:
        """The lowest level of a round with a sum, None without one."""
        return self.levels[0][0] if self.levels else None

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("rounds", f"{self.trials:,}")]
        for name in ("no_sum", "lonely", "below_plan"):
            rate = getattr(self, name)
            if rate is not None:
                ends = f"{number(rate.lower)} to {number(rate.upper)}"
                rows.append((name.replace("_", " "), f"{number(rate.rate)} ({ends})"))
        return [
            *rows,
            ("clients in a sum", number(self.mean_summed)),
            *((f"level {level}", f"{count:,}") for level, count in self.levels),
            *((f"tolerates {most}", f"{count:,}") for most, count in self.tolerated),
        ]


@needs_values
def round_rates(
    layout: SegmentLayout,
    step_dropout_rate: Numbers | StepDropout,
    thresholds: Integers | None = None,
    *,
    num_trials: Whole = 2_000,
    seed: int | PRNGKey = 0,
    trim: float | Fraction | None = None,
    weighted: bool = True,
    budget: Whole | None = None,
    rates_bits_per_second: Numbers | None = None,
    straggler_rate: Numbers = 0.0,
    straggler_slowdown: Real = 1.0,
) -> RoundRates:
    """Count how often a layout's rounds give a sum, and at which privacy level.

    Rounds run over the complete graph. A client that would be alone in a block is not
    summed, and a group without summed clients is not in its round: level and tolerance
    are those of the matrix of the other groups. A sum over one group has level 1, as no
    union of groups is smaller.

    Args:
        layout: Groups, segments and blocks (`segment_layout`).
        step_dropout_rate: q in [0, 1], one for all clients or [n]; or a model of the
            losses by step (`availability.independent_steps`).
        thresholds: t_i, one integer or int[n]; more than half of the clients if None.
        num_trials: Rounds, at least 1.
        seed: Integer or key. Trial b has the losses of round 0 of trial b.
        trim: As for `tolerated_byzantine`: None for the median.
        weighted: As for `tolerated_byzantine`.
        budget: Most steps of the search for each level (`privacy_report`); no limit if
            None.
        rates_bits_per_second: Upload rate of each slot [n], for `seconds`.
        straggler_rate: Probability that a client is a straggler in a round, one for all
            or [n].
        straggler_slowdown: Factor, at least 1, by which a straggler sends more slowly.

    Returns:
        Rates with Clopper-Pearson 95 % intervals, and counts of levels and tolerances.

    Raises:
        ConfigurationError: If an argument is out of range or of the wrong kind.

    Cost: blocks x n operations per round, all rounds of a chunk at once; and one search
    for each different set of groups that occurs. Memory: 16 bytes per round and group.

    Examples:
        >>> import mrsa_jax as mj
        >>> layout = mj.hetero.segment_layout("mc", [2] * 5, [2, 4, 8, 10, 12], 10)
        >>> rates = mj.hetero.round_rates(layout, 0.02, num_trials=500)
        >>> str(rates.planned_level), str(rates.least_level)
        ('4/5', '2/5')
        >>> nobody_lost = mj.hetero.round_rates(layout, 0.0, num_trials=5)
        >>> nobody_lost.levels == ((rates.planned_level, 5),)
        True

    Source: HeteroSAg, Section II-B (level) and V-A (tolerance), for rounds with losses.
    """
    trials = check_integer(num_trials, "num_trials", 1, 2**32 - 1)
    fraction = None if trim is None else check_trim(trim)
    limits = None
    if thresholds is not None:
        count = layout.num_participants
        limits = check_thresholds(thresholds, "thresholds", count)
        limits = np.broadcast_to(limits, (count,))
    steps = _steps_of(step_dropout_rate, layout.num_participants)
    sending = _sending_of(
        layout, rates_bits_per_second, straggler_rate, straggler_slowdown
    )
    rounds = _play(layout, steps, limits, sending, as_key(seed), trials)
    counts = rounds.counts[rounds.is_ok]
    levels, certified = _count_levels(layout, counts, budget)
    planned = privacy_report(np.asarray(layout.matrix), budget=budget)
    below = sum(number for level, number in levels if level < planned.guaranteed)
    sums = len(counts)
    lonely = rounds.inputs - rounds.counts.sum(axis=1)
    return RoundRates(
        trials,
        no_sum=Rate.of(trials - sums, trials),
        lonely=Rate.of(int((lonely > 0).sum()), trials),
        mean_inputs=float(rounds.inputs.mean()),
        mean_lonely=float(lonely.mean()),
        mean_summed=float(counts.sum(axis=1).mean()) if sums else math.nan,
        planned_level=planned.guaranteed,
        below_plan=Rate.of(below, sums) if sums else None,
        levels=levels,
        certified=certified and planned.certified,
        tolerated=_count_tolerated(layout, counts, fraction, weighted),
        seconds=None if rates_bits_per_second is None else rounds.seconds,
    )


class _Rounds(NamedTuple):
    """Rounds that were judged.

    Attributes:
        is_ok: bool[trials], whether the sum was learnt.
        inputs: int64[trials], clients whose inputs arrive.
        counts: int64[trials, columns], clients of each group that are summed, whether
            or not the sum can be unmasked.
        seconds: float64[trials], until the last input has arrived, nan without inputs.
    """

    is_ok: Any
    inputs: Any
    counts: Any
    seconds: Any


class _Sending(NamedTuple):
    """Seconds of each slot's input.

    Attributes:
        seconds: float32[n], of a client that is no straggler.
        stragglers: uint32[] or [n], thresholds of their probability.
        slowdown: float32, of a straggler.
    """

    seconds: Any
    stragglers: Any
    slowdown: Any


def _sending_of(
    layout: SegmentLayout, rates: Any, straggler_rate: Any, slowdown: Any
) -> _Sending:
    count = layout.num_participants
    argument = "straggler_rate"
    chances = check_chances(straggler_rate, argument)
    rule = f"must be one rate or {count}, one for each client"
    require(chances.shape in ((), (count,)), argument, rule, f"shape {chances.shape}")
    rule = "must be at least 1 and finite"
    factor = check_number(slowdown, "straggler_slowdown", rule, 1.0)
    rule = "must be set with `straggler_rate`, whose clients send more slowly"
    is_used = rates is not None or not chances.any()
    require(is_used, "rates_bits_per_second", rule, rates)
    seconds = np.zeros(count)
    if rates is not None:
        seconds = communication_times(layout, rates).seconds
    return _Sending(seconds.astype(np.float32), threshold(chances), np.float32(factor))


def _steps_of(rate: Any, count: int) -> StepDropout:
    """Return the model of losses of a rate, of one for each client, or the model."""
    argument = "step_dropout_rate"
    if isinstance(rate, StepDropout):
        return rate
    rates = check_chances(rate, argument)
    rule = f"must be one rate or {count}, one for each client"
    require(rates.shape in ((), (count,)), argument, rule, f"shape {rates.shape}")
    return independent_steps(rates)


def _play(
    layout: SegmentLayout,
    steps: Any,
    limits: Any,
    sending: _Sending,
    key: PRNGKey,
    trials: int,
) -> _Rounds:
    """Draw and judge rounds, a chunk of them at a time."""
    count = layout.num_participants
    inside = layout.memberships
    chunk = min(trials, max(1, _IN_FLIGHT // (count * (len(inside) + 5))))
    column_of = np.zeros((count, len(layout.columns)), np.float32)
    for column, slots in enumerate(layout.columns):
        column_of[list(slots), column] = 1.0
    parts = []
    for first in range(0, trials, chunk):
        drawn = _judge_chunk(
            steps, limits, sending, key, np.uint32(first), inside, column_of, chunk
        )
        last = min(chunk, trials - first)
        parts.append([np.asarray(part)[:last] for part in drawn])
    is_ok, inputs, counts, seconds = map(np.concatenate, zip(*parts, strict=True))
    seconds = np.where(inputs > 0, seconds.astype(np.float64), np.nan)
    return _Rounds(is_ok, inputs.astype(np.int64), counts.astype(np.int64), seconds)


@functools.partial(jax.jit, static_argnames="chunk")
def _judge_chunk(
    steps: Any,
    limits: Any,
    sending: _Sending,
    key: PRNGKey,
    first: Array,
    inside: Bool[Array, "blocks n"],
    column_of: Float32[Array, "n columns"],
    chunk: int,
) -> _Rounds:
    everybody = jnp.ones(inside.shape[1], jnp.bool_)

    def judged(trial: Array) -> _Rounds:
        steps_key = round_key(trial_key(key, trial), 0, Stream.STEPS)
        survivors = steps.sample(steps_key, everybody)
        verdict = judge(inside, survivors, limits)
        summed = verdict.survivors[3]
        # float32 counts clients exactly, and multiplies fast
        counts = summed.astype(jnp.float32) @ column_of
        is_ok = verdict.status == jnp.int32(Status.OK)
        # a stream apart from the losses of the same round
        words = client_words(fold(steps_key, 1), inside.shape[1])
        is_slow = happens(words, sending.stragglers)
        taken = sending.seconds * jnp.where(is_slow, sending.slowdown, jnp.float32(1))
        seconds = jnp.max(jnp.where(survivors[3], taken, jnp.float32(0)))
        inputs = jnp.sum(survivors[3], dtype=jnp.int32)
        return _Rounds(is_ok, inputs, counts, seconds)

    return jax.vmap(judged)(first + lax.iota(jnp.uint32, chunk))


def _count_levels(
    layout: SegmentLayout, counts: np.ndarray, budget: Any
) -> tuple[tuple[tuple[Fraction, int], ...], bool]:
    """Count rounds by the level of their groups, and whether all levels are proven."""
    matrix = np.asarray(layout.matrix)
    seen, numbers = np.unique(counts > 0, axis=0, return_counts=True)
    levels: collections.Counter[Fraction] = collections.Counter()
    certified = True
    for present, rounds in zip(seen, numbers.tolist(), strict=True):
        groups = np.flatnonzero(present)
        report = privacy_report(matrix, groups=groups, budget=budget)
        certified &= report.certified
        levels[report.guaranteed] += rounds
    return tuple(sorted(levels.items())), certified


def _count_tolerated(
    layout: SegmentLayout, counts: np.ndarray, trim: Fraction | None, weighted: bool
) -> tuple[tuple[int, int], ...]:
    """Count rounds by the attackers that the rule over their blocks tolerates."""
    rows = blocks_of(np.asarray(layout.matrix))
    # the clients that each block sums, 0 beyond the last of a row
    weights = np.zeros((len(counts), len(rows), max(map(len, rows))), np.int64)
    for row, blocks in enumerate(rows):
        for place, block in enumerate(blocks):
            weights[:, row, place] = counts[:, list(block)].sum(axis=1)
    if not weighted:
        weights = np.minimum(weights, 1)
    limits = spoilt_limits(weights.sum(axis=-1), trim)
    values, numbers = np.unique(tolerated_anywhere(weights, limits), return_counts=True)
    return tuple(zip(values.tolist(), numbers.tolist(), strict=True))
