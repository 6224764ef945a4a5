"""Studies with segments (HeteroSAg).

The registry of their rules and attacks, layout, leakage.
A cohort is ranked by upload rate and cut into groups, slowest first; its sums are those
of the groups' blocks, segment by segment, and what leaks is judged sum by sum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mrsa_jax import attacks, federated, hetero, quantize
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, fold, round_key
from mrsa_jax.availability import assign_rates
from mrsa_jax.selection import RoundHistory, Selector
from mrsa_jax.study import _trial
from mrsa_jax.study._build import build_noise, sizes_of
from mrsa_jax.study._config import AggregationConfig
from mrsa_jax.study._tables import SegmentConfig
from mrsa_watch._base.errors import ConfigurationError, require

COMBINE: dict[str, Callable[[SegmentConfig], Any]] = {
    "mean": lambda config: None,
    "median": lambda config: hetero.robust.coordinate_median(),
    "trimmed": lambda config: hetero.robust.trimmed_mean(config.trim),
    "geometric": lambda config: hetero.robust.geometric_median(),
    "krum": lambda config: hetero.robust.krum(config.num_byzantine),
}
"""Rules over a segment's sums by name."""

ATTACKS: dict[str, Callable[[np.ndarray], Any]] = {
    "none": lambda who: None,
    "wrong_pads": lambda who: hetero.byzantine.wrong_pads(who),
    "gaussian": lambda who: hetero.byzantine.gaussian_blocks(who),
    "sign_flip": lambda who: hetero.byzantine.sign_flip(who),
    "scaling": lambda who: hetero.byzantine.scaling(who),
    "collusion": lambda who: hetero.byzantine.collusion(who),
}
"""What Byzantine clients do, by name."""


def client_rates(seed: int, config: SegmentConfig, num_clients: int) -> np.ndarray:
    """Return each client's upload rate in bits per second, float64[N]."""
    given = np.asarray(config.client_rates, np.float64) * 1e6
    share = np.linspace(0.0, 1.0, len(given)) if len(given) > 1 else np.zeros(1)
    # the rates' places, spread as dropout rates are
    key = fold(as_key(seed), int(Stream.ASSIGNMENT), 1)
    spread = np.asarray(assign_rates(key, share.tolist(), num_clients), np.float64)
    return np.asarray(given[np.rint(spread * (len(given) - 1)).astype(np.int64)])


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentStudy:
    """A scheme's groups and segments.

    Attributes:
        config: Its settings.
        layout: Who sums what with whom, by slot.
        order: int[N], clients as slots are filled: by rate, blocks of the selection
            together where groups can hold them whole.
        rates: float64[N], bits per second.
        threshold: t, or None for majorities.
    """

    config: SegmentConfig
    layout: hetero.SegmentLayout
    order: np.ndarray
    rates: np.ndarray
    threshold: int | None

    def aggregator(
        self, secret_seed: bytes, aggregation: AggregationConfig, clip_rule: Any
    ) -> Any:
        """Return the aggregator.

        Quantize by groups, pad, sum in rings, decode, combine.
        """
        who = np.arange(len(self.order)) < self.config.num_byzantine
        return hetero.segment_average(
            self.layout,
            (-aggregation.clip, aggregation.clip),
            key_material=secret_seed,
            fidelity=aggregation.fidelity,
            combine=COMBINE[self.config.combine](self.config),
            byzantine=ATTACKS[self.config.attack](who),
            threshold=self.threshold,
            clip_rule=clip_rule,
            noise=self.noise(aggregation),
            clip_norm=aggregation.clip_norm,
        )

    def noise(self, aggregation: AggregationConfig) -> Any:
        """Return what each client adds, or None."""
        size, step = self.layout.num_participants, self.coarsest_step(aggregation)
        return build_noise(aggregation, size, step)

    def coarsest_step(self, aggregation: AggregationConfig) -> float:
        """Return the largest step of a block's lattice, in units of updates."""
        return 2 * aggregation.clip / (min(self.layout.levels) - 1)

    def wrap_probability(self, aggregation: AggregationConfig) -> float:
        """Return a bound on the chance that a coordinate of any block's sum wraps round."""
        noise, ends = self.noise(aggregation), (-aggregation.clip, aggregation.clip)
        kinds = {
            (own.num_levels, len(own.members), own.modulus)
            for own in self.layout.blocks
        }
        return max(
            quantize.wrapping.wrap_probability(
                quantize.stochastic(levels, value_range=ends), noise, count, modulus
            )
            for levels, count, modulus in kinds
        )

    def members(self, cohort: np.ndarray) -> np.ndarray:
        """Return the clients of a cohort bool[N] in the order of their slots."""
        return np.asarray(self.order[cohort[self.order]])

    def learnt(self, survivors: np.ndarray) -> tuple[hetero.SegmentHistory, np.ndarray]:
        """Return the sums that the server learns, and who is in each round's mean.

        Args:
            survivors: bool[J, 5, N], or bool[J, 1, N] where nobody is lost.

        Returns:
            The sums by segment, and bool[J, N].
        """
        slots = self.layout.num_participants
        limits = None if self.threshold is None else np.full(slots, self.threshold)
        participation = np.zeros((len(survivors), survivors.shape[-1]), np.bool_)
        sends, members, status = [], [], []
        for number, rows in enumerate(survivors):
            # where nobody was asked, nobody sends, whoever has the slots
            own = self.members(rows[0]) if rows[0].any() else self.order[:slots]
            alive = np.broadcast_to(rows[:, own], (5, slots)).copy()
            round_ = self.layout.outcome(alive, limits)
            members.append(own)
            sends.append(alive[3])
            status.append(round_.block_status)
            participation[number, own[round_.summed & (round_.status == Status.OK)]] = (
                True
            )
        history = hetero.segment_participation(
            self.layout,
            sends,
            members=members,
            status=status,
            num_clients=participation.shape[1],
        )
        return history, participation

    def facts(self, survivors: np.ndarray, summed: np.ndarray) -> RoundFacts:
        """Return what the groups of a study's own rounds mean.

        Privacy, times, attackers.
        A group of which nobody is summed is not in its round: level and tolerance are
        those of the matrix of the groups that are.

        Args:
            survivors: bool[J, 5, N], or bool[J, 1, N] where nobody is lost.
            summed: bool[J, N], who is in each round's mean.
        """
        rounds, slots = len(survivors), self.layout.num_participants
        level, tolerated, seconds = (np.full(rounds, np.nan) for _ in range(3))
        slowest = np.full(rounds, -1)
        equal = hetero.costs.communication_times(self.layout, np.ones(slots))
        group_of = np.zeros(slots, np.int64)
        for group, column in enumerate(self.layout.columns):
            group_of[list(column)] = group
        level_of, tolerated_of = (
            functools.cache(self._level),
            functools.cache(self._tolerated),
        )
        for number, rows in enumerate(survivors):
            if not rows[0].any():
                continue
            members = self.members(rows[0])
            is_sent = self._sends(rows)[members]
            if is_sent.any():
                taken = np.where(is_sent, equal.bits / self.rates[members], 0.0)
                seconds[number] = taken.max()
                slowest[number] = group_of[taken.argmax()]
            is_summed = summed[number, members]
            if is_summed.any():
                counts = np.bincount(group_of, is_summed, len(self.layout.columns))
                level[number] = level_of(tuple(np.flatnonzero(counts).tolist()))
                tolerated[number] = tolerated_of(tuple(counts.astype(int).tolist()))
        return RoundFacts(
            level, tolerated, seconds, slowest, float(equal.expansion.max())
        )

    def _sends(self, rows: np.ndarray) -> np.ndarray:
        """Return whose inputs arrive.

        V3, unless so many were lost that all of it refuses.
        """
        if len(rows) == 1:
            return rows[0]
        asked, advertised, shared = rows[:3].sum(axis=1)
        limit = max(asked // 2 + 1, 2) if self.threshold is None else self.threshold
        refuses = shared < limit <= advertised
        return np.zeros_like(rows[3]) if refuses else rows[3]

    def _level(self, groups: tuple[int, ...]) -> float:
        """Return the privacy level of a round in which these groups are summed."""
        return hetero.privacy_level(_matrix_of(self.layout.matrix, groups))

    def _tolerated(self, weights: tuple[int, ...]) -> int:
        """Return how many attackers the study's rule tolerates in any places, given the counts."""
        tolerance = TOLERANCE[self.config.combine]
        return tolerance(self.config, np.asarray(self.layout.matrix), weights)


@dataclasses.dataclass(frozen=True)
class RoundFacts:
    """What groups and segments mean in each of a study's rounds.

    Attributes:
        level: float64[J], the privacy level; nan where no sum was learnt.
        tolerated: float64[J], Byzantine clients that the rule tolerates wherever they
            are; nan as above.
        seconds: float64[J], until the last client whose input arrives has sent it; nan
            where none arrives.
        slowest: int64[J], the group (or subgroup) of that client; -1 as above.
        expansion: The largest bandwidth expansion factor of any client.
    """

    level: np.ndarray
    tolerated: np.ndarray
    seconds: np.ndarray
    slowest: np.ndarray
    expansion: float

    def variables(self) -> dict[str, Any]:
        """Return the study's variables: of each round, and what all rounds come to."""
        waits = self.slowest[self.slowest >= 0]
        return {
            "privacy_level": _over(np.fmin, self.level),
            "privacy_level_most": _over(np.fmax, self.level),
            "privacy_level_by_round": self.level,
            "tolerated_byzantine": _over(np.fmin, self.tolerated),
            "tolerated_byzantine_most": _over(np.fmax, self.tolerated),
            "tolerated_byzantine_by_round": self.tolerated,
            "round_seconds": float(np.nanmean(self.seconds)) if waits.size else np.nan,
            "round_seconds_by_round": self.seconds,
            "slowest_group": float(np.bincount(waits).argmax())
            if waits.size
            else np.nan,
            "expansion": self.expansion,
        }


def _matrix_of(matrix: Sequence[Sequence[int]], groups: Sequence[int]) -> np.ndarray:
    """Return the matrix of some groups: the others are in no sum of the round."""
    place = {group: number for number, group in enumerate(groups)}
    rows = hetero.blocks_of(np.asarray(matrix))
    found = np.full((len(rows), len(place)), -1, np.int32)  # each by itself
    for row, blocks in zip(found, rows, strict=True):
        for block in blocks:
            kept = [place[group] for group in block if group in place]
            if len(kept) > 1:
                row[kept] = kept[0]
    return found


def _over(reduce: np.ufunc, values: np.ndarray) -> float:
    """Return the least or the largest of the rounds that have a value; nan if none has."""
    return float(reduce.reduce(values, initial=np.nan))


def _of_median(
    config: SegmentConfig, matrix: np.ndarray, weights: tuple[int, ...]
) -> int:
    return hetero.tolerated_byzantine(matrix, weights=weights, max_nodes=1).anywhere


def _of_trimmed(
    config: SegmentConfig, matrix: np.ndarray, weights: tuple[int, ...]
) -> int:
    found = hetero.tolerated_byzantine(
        matrix, trim=config.trim, weights=weights, max_nodes=1
    )
    return found.anywhere


def _of_krum(
    config: SegmentConfig, matrix: np.ndarray, weights: tuple[int, ...]
) -> int:
    """Return f where each row has 2 f + 3 sums, as Blanchard et al. ask.

    Else nothing is known.
    """
    sums = hetero.tolerated_byzantine(matrix, weights=weights, max_nodes=1).num_blocks
    return config.num_byzantine if min(sums) >= 2 * config.num_byzantine + 3 else 0


TOLERANCE: dict[str, Callable[[SegmentConfig, np.ndarray, tuple[int, ...]], int]] = {
    "mean": lambda config, matrix, weights: 0,
    "median": _of_median,
    "trimmed": _of_trimmed,
    # bad sums of less than half of the weight move it by a bounded distance
    "geometric": _of_median,
    "krum": _of_krum,
}
"""How many Byzantine clients each rule of `COMBINE` tolerates, given who is summed."""


def build_segments(
    seed: int,
    config: SegmentConfig,
    selector: Selector,
    dim: int,
    threshold: int | None,
    modulus_bits: int | None = None,
) -> SegmentStudy | None:
    """Return a scheme's groups and segments; None where the study has none.

    With noise all blocks' rings have `modulus_bits`; without they are as small as sums
    are.

    Raises:
        ConfigurationError: If the update has fewer coordinates than there are segments,
            or Krum has too few sums for its attackers.
    """
    if config.is_plain:
        return None
    size, block = sizes_of(selector)
    if size is None:
        rule = "must be none where cohorts differ in size"
        raise ConfigurationError(f"`segments` {rule}; got {config.segments!r}")
    sizes = config.column_sizes(size, block)
    first = rates = client_rates(seed, config, selector.num_clients)
    # groups hold whole blocks: one goes where its slowest does
    if size // block >= len(sizes):
        first = np.repeat(rates.reshape(-1, block).min(axis=1), block)
    order = np.lexsort((np.arange(len(rates)), first))
    layout = hetero.segment_layout(
        config.segments,
        sizes,
        config.group_levels,
        dim,
        subgroups=config.subgroups or None,
        hybrid_threshold=config.hybrid_threshold,
        modulus_bits=modulus_bits,
        allow_small_groups=config.allow_small_groups,
    )
    if config.combine == "krum":
        fewest = min(len(row) for row in hetero.blocks_of(np.asarray(layout.matrix)))
        least = 2 * config.num_byzantine + 3
        rule = f"must be another rule: krum needs {least} sums of each segment, 2 f + 3"
        require(fewest >= least, "combine", rule, f"{fewest} sums")
    return SegmentStudy(config, layout, order, rates, threshold)


def analyse_segments(
    history: hetero.SegmentHistory, participation: np.ndarray, *, at_end: bool = False
) -> _trial.History:
    """Judge every segment's sums and return the worst of them.

    Strong T and what the worst and the median client is hidden among are the least of
    any segment, the rank is the largest, and a client is exposed as soon as any segment
    of its update is. F and C are of the rounds' own sums.
    """
    distinct: dict[bytes, _trial.History] = {}
    for rows, rounds in zip(history.participation, history.rounds, strict=True):
        key = rows.tobytes() + rounds.tobytes()
        if key not in distinct:
            distinct[key] = _trial.analyse_sums(
                rows, rounds, participation, at_end=at_end
            )
    found = list(distinct.values())
    strong = np.stack([own.strong_privacy for own in found])
    first = np.stack([own.first_exposure for own in found])
    return dataclasses.replace(
        found[0],
        strong_privacy=strong.min(axis=0),
        rank=np.stack([own.rank for own in found]).max(axis=0),
        hidden_among_worst=_least(found, "hidden_among_worst"),
        hidden_among_median=_least(found, "hidden_among_median"),
        first_exposure=_trial.earliest(first, axis=0),
    )


def _least(found: list[_trial.History], name: str) -> np.ndarray:
    """Return the least of the segments' sums.

    Nan where there are none, or one is not known.
    """
    values = np.stack([getattr(own, name) for own in found])
    is_unknown = np.isnan(values) & (np.stack([own.rank for own in found]) > 0)
    least = np.fmin.reduce(values)
    return np.where(is_unknown.any(axis=0) & (least != 1.0), np.nan, least)


def play_segments(
    study: SegmentStudy,
    cohorts: np.ndarray,
    rounds: RoundHistory | None,
    *,
    at_end: bool = False,
) -> tuple[_trial.History, hetero.SegmentHistory]:
    """Return what a server can know of a scheme's rounds, judged and sum by sum."""
    survivors = cohorts[:, None] if rounds is None else np.asarray(rounds.survivors)
    return judged(study, survivors, at_end=at_end)


def judged(
    study: SegmentStudy, survivors: np.ndarray, *, at_end: bool = False
) -> tuple[_trial.History, hetero.SegmentHistory]:
    """Return what a server can know of rounds with these survivors, judged and sum by sum."""
    history, participation = study.learnt(survivors)
    return analyse_segments(history, participation, at_end=at_end), history


def attack_segments(
    seed: int,
    training: federated.Training,
    parameters: Any,
    study: SegmentStudy,
    cohorts: np.ndarray,
    history: hetero.SegmentHistory,
    aggregation: AggregationConfig,
    progress: Callable[[int, int], None],
) -> np.ndarray:
    """Attack sums of segments with frozen models, as `attack_frozen` does whole ones.

    Each segment has a separate least squares, over its sums of unequally quantized
    updates.

    Returns:
        float64[N], relative squared error of each client's update over all segments;
        nan for clients whose true update is zero.
    """
    key = fold(as_key(seed), int(Stream.ATTACK))
    data, model = training.client_data, training.model
    trainer: Any = training.trainer  # without state: that of a demo
    everyone = np.arange(data.num_clients)
    truth = np.asarray(
        federated.client_updates(key, model, parameters, data, trainer, everyone),
        np.float32,
    )
    layout, clip, added = study.layout, aggregation.clip, study.noise(aggregation)
    sent = truth
    if aggregation.clip_norm is not None:
        norm = jnp.float32(aggregation.clip_norm)
        sent = np.stack(
            [np.asarray(quantize.shortened(on_device(row), norm)) for row in truth]
        )
    sums = [
        np.zeros((len(rows), stop - start), np.float32)
        for rows, (start, stop) in zip(
            history.participation, history.bounds, strict=True
        )
    ]
    played = sorted({int(when) for rounds in history.rounds for when in rounds})
    for done, when in enumerate(played):
        own = study.members(cohorts[when])
        noise = round_key(key, when, Stream.QUANTIZATION)
        codes = np.asarray(
            hetero.encode(noise, sent[own], layout, (-clip, clip), own, added)[0]
        )
        slot_of = np.full(len(study.order), -1)
        slot_of[own] = np.arange(len(own))
        for segment, (start, stop) in enumerate(history.bounds):
            for place in np.flatnonzero(history.rounds[segment] == when):
                clients = np.flatnonzero(history.participation[segment][place])
                block = layout.blocks[int(history.blocks[segment][place])]
                total = codes[slot_of[clients], start:stop].sum(axis=0, dtype=np.int64)
                # the integer in the ring's window about the middle
                if added is not None:
                    low = (
                        len(clients) * (block.num_levels - 1) // 2 - block.modulus // 2
                    )
                    total = (total - low) % block.modulus + low
                step = 2 * clip / (block.num_levels - 1)
                sums[segment][place] = total * step - clip * len(clients)
        progress(done + 1, len(played))
    estimates = np.zeros(truth.shape, np.float64)
    for (start, stop), rows, known in zip(
        history.bounds, history.participation, sums, strict=True
    ):
        if len(rows):
            estimates[:, start:stop] = np.asarray(attacks.least_squares(rows, known))
    return np.asarray(attacks.reconstruction_error(truth, estimates))
