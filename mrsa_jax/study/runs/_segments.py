"""Groups and segments of a study (HeteroSAg): their layout, sums and rules.

A cohort is ranked by upload rate and cut into groups, slowest first. Its sums are those
of the groups' blocks, segment by segment, and leakage is analysed sum by sum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import graphs, hetero, quantize, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.status import Status, ThresholdRule
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.availability import assign_rates
from mrsa_jax.secagg.thresholds import before_graphs, in_graphs
from mrsa_jax.selection import Selector
from mrsa_jax.study.runs import _trial
from mrsa_jax.study.runs._build import build_noise, sizes_of
from mrsa_jax.study.settings._config import AggregationConfig
from mrsa_jax.study.settings._tables import SegmentConfig
from mrsa_watch._base.errors import ConfigurationError, require

COMBINE: dict[str, Callable[[SegmentConfig], Any]] = {
    "mean": lambda config: None,
    "median": lambda config: hetero.robust.coordinate_median(
        weighted=config.weigh_sums
    ),
    "trimmed": lambda config: hetero.robust.trimmed_mean(
        config.trim, weighted=config.weigh_sums
    ),
    "geometric": lambda config: hetero.robust.geometric_median(
        weighted=config.weigh_sums
    ),
    "krum": lambda config: hetero.robust.krum(len(config.attackers)),
}
"""Rules over a segment's sums by name."""


ATTACKS: dict[str, Callable[..., Any]] = {
    "none": lambda attackers: None,
    "wrong_pads": hetero.byzantine.wrong_pads,
    "gaussian": hetero.byzantine.gaussian_blocks,
    "sign_flip": hetero.byzantine.sign_flip,
    "scaling": hetero.byzantine.scaling,
    "collusion": lambda attackers, strength=1.5: hetero.byzantine.collusion(
        attackers, strength=strength
    ),
}
"""Behaviour of the Byzantine clients bool[N], of a strength if it is set, by name."""


def byzantine_of(config: SegmentConfig, num_clients: int) -> Any:
    """Return the behaviour of a configuration's Byzantine clients; None without one."""
    attackers = np.zeros(num_clients, np.bool_)
    attackers[list(config.attackers)] = True
    strength = config.attack_strength
    return ATTACKS[config.attack](attackers, *[] if strength is None else [strength])


def client_rates(seed: int, config: SegmentConfig, num_clients: int) -> np.ndarray:
    """Return each client's upload rate in bits per second, float64[N]."""
    rates = np.asarray(config.client_rates, np.float64) * 1e6
    # the places of the rates in [0, 1], spread as dropout rates are
    places = np.linspace(0.0, 1.0, len(rates)) if len(rates) > 1 else np.zeros(1)
    # 1: another stream than that of the dropout rates
    key = fold(as_key(seed), int(Stream.ASSIGNMENT), 1)
    spread = np.asarray(assign_rates(key, places.tolist(), num_clients), np.float64)
    # places are multiples of 1 / (n - 1), so rounding finds the index again
    return np.asarray(rates[np.rint(spread * (len(rates) - 1)).astype(np.int64)])


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentStudy:
    """A scheme's groups and segments.

    Attributes:
        config: Its settings.
        layout: The blocks of participants that sum each segment, by slot.
        order: int[N], clients as slots are filled: by rate, blocks of the selection
            together where groups can hold them whole.
        rates: float64[N], bits per second.
        threshold: t, or None for majorities, or those of `rule`.
        rule: Draws each round's graph; None for the complete graph.
    """

    config: SegmentConfig
    layout: hetero.SegmentLayout
    order: np.ndarray
    rates: np.ndarray
    threshold: int | None
    rule: secagg.GraphRule | None = None

    def aggregator(
        self, secret_seed: bytes, aggregation: AggregationConfig, clip_rule: Any = None
    ) -> Any:
        """Build the aggregator: quantize by groups, pad, sum in rings, combine."""
        return hetero.segment_average(
            self.layout,
            (-aggregation.clip, aggregation.clip),
            key_material=secret_seed,
            fidelity=aggregation.fidelity,
            combine=COMBINE[self.config.combine](self.config),
            byzantine=byzantine_of(self.config, len(self.order)),
            threshold=self.threshold,
            clip_rule=clip_rule,
            noise=self.noise(aggregation),
            clip_norm=aggregation.clip_norm,
            rule=self.rule,
        )

    def noise(self, aggregation: AggregationConfig) -> Any:
        """Return the noise that each client adds, or None."""
        size = self.layout.num_participants
        return build_noise(aggregation, size, self.coarsest_step(aggregation))

    def coarsest_step(self, aggregation: AggregationConfig) -> float:
        """Return the largest step of a block's lattice, in units of updates."""
        # the fewest levels have the widest steps
        return 2 * aggregation.clip / (min(self.layout.levels) - 1)

    def wrap_probability(self, aggregation: AggregationConfig) -> float:
        """Bound the probability that a coordinate of any sum wraps round."""
        noise = self.noise(aggregation)
        ends = (-aggregation.clip, aggregation.clip)
        # blocks that are alike have the same bound
        kinds = {
            (block.num_levels, len(block.members), block.modulus)
            for block in self.layout.blocks
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

    def play(
        self, survivors: np.ndarray, keys: Any = None, *, at_end: bool = False
    ) -> tuple[_trial.History, hetero.SegmentHistory]:
        """Return the server's knowledge of rounds, and the sums by segment.

        Args:
            survivors: bool[J, 5, N], V0 to V4 of each round.
            keys: key[J], from which the graph of each round is drawn, if `rule` is set.
            at_end: As for `_trial.analyse`.
        """
        participation = np.zeros((len(survivors), survivors.shape[-1]), np.bool_)
        sends, members, outcomes = [], [], []
        for summed, round_ in zip(
            participation, self._rounds(survivors, keys), strict=True
        ):
            outcome = self.layout.outcome(
                round_.alive, round_.limits, adjacency=round_.adjacency
            )
            members.append(round_.clients)
            sends.append(round_.alive[3])
            outcomes.append(outcome)
            # in place: `summed` is a row of `participation`
            is_summed = outcome.summed & (outcome.status == Status.OK)
            summed[round_.clients[is_summed]] = True
        history = hetero.segment_participation(
            self.layout,
            sends,
            members=members,
            outcomes=outcomes,
            num_clients=participation.shape[1],
        )
        return analyse_segments(history, participation, at_end=at_end), history

    def _rounds(self, survivors: np.ndarray, keys: Any) -> Iterator[_Slots]:
        """Seat each round's cohort and draw its graph."""
        slots = self.layout.num_participants
        for number, rows in enumerate(survivors):
            # in a round without a cohort no one sends, whichever clients have the slots
            clients = self.members(rows[0]) if rows[0].any() else self.order[:slots]
            alive = rows[:, clients]
            if self.rule is None:
                graph = alive[0][:, None] & alive[0] & ~np.eye(slots, dtype=bool)
                limits = in_graphs(self.threshold or "majority", "threshold", graph)
            else:
                members = on_device(clients)
                drawn = self.rule.seated(keys[number], on_device(alive[0]), members)
                graph, limits = map(np.asarray, drawn)
            yield _Slots(clients, alive, graph, np.broadcast_to(limits, slots))

    def facts(
        self,
        survivors: np.ndarray,
        summed: np.ndarray,
        keys: Any = None,
        sums: hetero.SegmentHistory | None = None,
    ) -> dict[str, Any]:
        """Return variables of the groups of a study's rounds, and over all rounds.

        `privacy_level`, and `tolerated_byzantine` clients that the rule tolerates in
        any places: nan in rounds without a learnt sum. `round_seconds` until the last
        client whose input arrives has sent it, and the `slowest_group` (or subgroup)
        that it is in. `expansion`: the largest bandwidth expansion factor of any
        client. A group of which no client is summed is not in its round: level and
        tolerance are those of the matrix of the other groups. Where the graph of a
        block is disconnected, the level is that of the groups that its parts join.

        Args:
            survivors: bool[J, 5, N], V0 to V4 of each round.
            summed: bool[J, N], the clients in each round's mean.
            keys: As for `play`.
            sums: The learnt sums by segment, as `play` returns them, if `rule` is set.
        """
        from mrsa_jax.secagg.lists import heeded  # a simulation needs no lists

        layout = self.layout
        slots = layout.num_participants
        level, tolerated, seconds = np.full((3, len(survivors)), np.nan)
        slowest = []
        # at one bit per second, times are the bits that each slot sends
        equal = hetero.costs.communication_times(layout, np.ones(slots))
        group_of = np.zeros(slots, np.int64)
        for group, column in enumerate(layout.columns):
            group_of[list(column)] = group
        matrix = np.asarray(layout.matrix)
        # cached: most rounds have the groups and counts of an earlier one
        level_of = functools.cache(
            lambda rows, groups: hetero.privacy_level(np.array(rows), groups=groups)
        )
        tolerated_of = functools.cache(
            lambda counts: tolerated_by_rule(self.config, matrix, counts)
        )
        planned = tuple(map(tuple, matrix.tolist()))
        for number, round_ in enumerate(self._rounds(survivors, keys)):
            members = round_.clients
            heeds = heeded(
                self.layout.plan, round_.adjacency, round_.alive, round_.limits
            )
            is_sent = heeds.survivors[3]
            if is_sent.any():
                taken = np.where(is_sent, equal.bits / self.rates[members], 0.0)
                seconds[number] = taken.max()
                slowest.append(group_of[taken.argmax()])
            is_summed = summed[number, members]
            if is_summed.any():
                # the clients of each group in the sum
                counts = np.bincount(group_of, is_summed, len(layout.columns))
                groups = tuple(np.flatnonzero(counts).tolist())
                learnt = planned
                if sums is not None and self.rule is not None:
                    column_of = np.full(survivors.shape[-1], -1)
                    column_of[members] = group_of
                    learnt = learnt_matrix(sums, number, column_of, len(counts))
                level[number] = level_of(learnt, groups)
                tolerated[number] = tolerated_of(tuple(counts.astype(int).tolist()))
        return {
            # fmin skips nan, the rounds without a sum
            "privacy_level": np.fmin.reduce(level, initial=np.nan),
            "privacy_level_most": np.fmax.reduce(level, initial=np.nan),
            "privacy_level_by_round": level,
            "tolerated_byzantine": np.fmin.reduce(tolerated, initial=np.nan),
            "tolerated_byzantine_most": np.fmax.reduce(tolerated, initial=np.nan),
            "tolerated_byzantine_by_round": tolerated,
            "round_seconds": np.nanmean(seconds) if slowest else np.nan,
            "round_seconds_by_round": seconds,
            "slowest_group": float(np.bincount(slowest).argmax())
            if slowest
            else np.nan,
            "expansion": float(equal.expansion.max()),
        }


class _Slots(NamedTuple):
    """The slots of a round: clients, V0 to V4, the graph and its thresholds."""

    clients: np.ndarray
    alive: np.ndarray
    adjacency: np.ndarray
    limits: np.ndarray


def learnt_matrix(
    sums: hetero.SegmentHistory, number: int, group_of: np.ndarray, num_groups: int
) -> tuple[tuple[int, ...], ...]:
    """Return a round's segment matrix as its learnt sums have it.

    Two groups have one label in a segment if a learnt sum, or a chain of them, joins
    them. So a set of groups has a learnt sum in a segment if it parts no label.

    Args:
        sums: The learnt sums by segment.
        number: The round, of which every block was learnt.
        group_of: int[N], the group of each client in the round; -1 for no group.
        num_groups: G.
    """
    matrix = []
    for rows, rounds in zip(sums.participation, sums.rounds, strict=True):
        label = list(range(num_groups))
        for row in rows[rounds == number]:
            joined = {label[group] for group in np.unique(group_of[row]).tolist()}
            first = min(joined)
            label = [first if name in joined else name for name in label]
        alone = [label.count(name) == 1 for name in label]
        matrix.append(
            tuple(-1 if a else name for name, a in zip(label, alone, strict=True))
        )
    return tuple(matrix)


def tolerated_by_rule(
    config: SegmentConfig, matrix: np.ndarray, counts: tuple[int, ...]
) -> int:
    """Return the number of attackers, anywhere, that a rule of `COMBINE` tolerates.

    Args:
        config: Names the rule.
        matrix: The segment matrix.
        counts: The clients of each group that are summed.
    """
    if config.combine == "mean":
        return 0
    # `anywhere` needs no search: one node, as `together` is not used
    tolerance = hetero.tolerated_byzantine(
        matrix,
        trim=config.trim if config.combine == "trimmed" else None,
        weighted=config.weigh_sums,
        weights=counts,
        max_nodes=1,
    )
    if config.combine == "krum":
        # Blanchard et al. ask for 2 f + 3 sums in each row; else nothing is known
        attackers = len(config.attackers)
        enough = min(tolerance.num_blocks) >= 2 * attackers + 3
        return attackers if enough else 0
    # the median's number also holds for the geometric median: bad sums of less than
    # half of the weight move it by a bounded distance
    return tolerance.anywhere


def build_segments(
    seed: int,
    config: SegmentConfig,
    selector: Selector,
    dim: int,
    threshold: int | ThresholdRule | None,
    modulus_bits: int | None = None,
    rule: secagg.GraphRule | None = None,
) -> SegmentStudy | None:
    """Return a scheme's groups and segments; None if the study has none.

    `rule` draws each round's graph and has its thresholds, instead of `threshold` over
    the complete graph. With noise the rings of all blocks have `modulus_bits`; without
    noise they are as small as sums are.

    Raises:
        ConfigurationError: If the update has fewer coordinates than there are segments,
            or Krum has too few sums for its attackers.
    """
    if config.is_plain:
        return None
    size, block = sizes_of(selector)
    if size is None:
        words = "must be none where cohorts differ in size"
        raise ConfigurationError(f"`segments` {words}; got {config.segments!r}")
    sizes = config.column_sizes(size, block)
    rates = client_rates(seed, config, selector.num_clients)
    slowest = rates
    # groups hold whole blocks: each goes where its slowest client does
    if size // block >= len(sizes) and all(part % block == 0 for part in sizes):
        # blocks are runs of consecutive clients, so each row of the reshape is one
        slowest = np.repeat(rates.reshape(-1, block).min(axis=1), block)
    # the last key sorts first: by rate, ties by number
    order = np.lexsort((np.arange(len(rates)), slowest))
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
    check_krum(config, layout)
    t = None
    if rule is None:
        everybody = graphs.complete(layout.num_participants)
        t = before_graphs(threshold or "majority", "threshold", everybody)
    limit = None if t is None else int(t)
    return SegmentStudy(config, layout, order, rates, limit, rule)


def check_krum(config: SegmentConfig, layout: hetero.SegmentLayout) -> None:
    """Refuse Krum where a segment has too few sums for its attackers."""
    if config.combine == "krum":
        fewest = min(len(row) for row in hetero.blocks_of(np.asarray(layout.matrix)))
        least = 2 * len(config.attackers) + 3
        rule = f"must be another rule: krum needs {least} sums of each segment, 2 f + 3"
        require(fewest >= least, "combine", rule, f"{fewest} sums")


def analyse_segments(
    history: hetero.SegmentHistory, participation: np.ndarray, *, at_end: bool = False
) -> _trial.History:
    """Analyse every segment's sums and return the worst of them.

    Strong T and the sizes that the worst and the median client are hidden among are the
    least of any segment, the rank is the largest, and a client is exposed as soon as
    any segment of its update is. F and C are of the rounds' sums.
    """
    # segments with equal sums are analysed once
    distinct: dict[bytes, _trial.History] = {}
    for rows, rounds in zip(history.participation, history.rounds, strict=True):
        key = rows.tobytes() + rounds.tobytes()
        if key not in distinct:
            distinct[key] = _trial.analyse_sums(
                rows, rounds, participation, at_end=at_end
            )

    def stack(name: str) -> np.ndarray:
        return np.stack([getattr(segment, name) for segment in distinct.values()])

    rank = stack("rank")

    def least(name: str) -> np.ndarray:
        """Return the least of the segments, nan if there is none or one is unknown."""
        values = stack(name)
        # nan with a rank of 0 only means that there is no sum yet
        is_unknown = (np.isnan(values) & (rank > 0)).any(axis=0)
        # no unknown value could be below 1, the value of an exposed client
        lowest = np.fmin.reduce(values)
        return np.where(is_unknown & (lowest != 1.0), np.nan, lowest)

    return dataclasses.replace(
        next(iter(distinct.values())),
        strong_privacy=stack("strong_privacy").min(axis=0),
        rank=rank.max(axis=0),
        hidden_among_worst=least("hidden_among_worst"),
        hidden_among_median=least("hidden_among_median"),
        first_exposure=_trial.earliest(stack("first_exposure"), axis=0),
    )
