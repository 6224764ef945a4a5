"""What a study says of its groups, recomputed by exhaustive search on its own rounds."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re
import types
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.study import (
    PopulationConfig,
    ProtocolConfig,
    SegmentConfig,
    TrainConfig,
    validate,
)
from mrsa_jax.study.publishing import _summary
from mrsa_jax.study.runs import _segments, _trial
from mrsa_jax.study.runs._build import build_online
from mrsa_jax.study.runs._training import segment_variables
from mrsa_jax.study.runs._training_setting import Played, play
from mrsa_jax.study.settings._config import schemes_of

DIM = 61
FAR = Fraction(10**9)


@pytest.fixture(autouse=True)
def _without_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what is said of exposure, which costs most of the time."""

    def judged(history: Any, participation: np.ndarray, **_: Any) -> Any:
        nothing = np.zeros(len(participation))
        names = [field.name for field in dataclasses.fields(_trial.History)]
        return _trial.History(
            **dict.fromkeys(names, nothing) | {"participation": participation}
        )

    monkeypatch.setattr(_segments, "analyse_segments", judged)


def played_rounds(config: TrainConfig) -> Played:
    """Roll out the rounds of a training, without training."""
    setting: Any = types.SimpleNamespace(config=config, dim=DIM)
    available, _ = build_online(config.seed, config.population, None)
    return play(setting, schemes_of(config)[0], available)


def drawn_rounds(config: TrainConfig) -> Played:
    """Draw the rounds of a training with uniform cohorts, by NumPy.

    Nothing is compiled.
    """
    population, rng = config.population, np.random.default_rng(config.seed)
    clients, cohort = population.num_clients, population.cohort_size
    cohorts = np.zeros((config.rounds, clients), bool)
    for row in cohorts:
        row[rng.choice(clients, cohort, replace=False)] = True
    stays = rng.random((config.rounds, 4, clients)) >= config.protocol.step_dropout_rate
    survivors = np.stack([cohorts, *np.moveaxis(stays, 1, 0)], axis=1)
    alive = np.logical_and.accumulate(survivors, axis=1)
    # what the rule of a plain sum makes of them is not read where there are segments
    status = np.zeros(config.rounds, np.int32)
    rounds = mj.selection.RoundHistory(
        on_device(alive), on_device(cohorts), on_device(status)
    )
    selector = mj.selection.uniform(clients, cohort)
    made = _segments.build_segments(config.seed, config.hetero, selector, DIM, None)
    assert made is not None
    history, sums = made.play(alive)
    return Played(history, cohorts, rounds, segments=made, sums=sums)


SEGMENTS = (
    "privacy_level",
    "privacy_level_most",
    "round_seconds",
    "tolerated_byzantine",
    "tolerated_byzantine_most",
)


def row_of(played: Played, scheme: str = "Random") -> _summary.Row:
    """Return a table's row of a training's rounds."""
    one = xr.Dataset(segment_variables([played])).isel(scheme=0)
    # a row needs what is not read here, too
    rest = (
        "rank",
        "exposed_clients",
        "fairness_gap",
        "aggregation_cardinality",
        "skipped_rounds",
    )
    unknown = (
        "strong_privacy",
        "first_exposed_after",
        "all_exposed_after",
        "expected_cardinality",
        "cardinality_error",
    )
    return _summary.Row(
        scheme=scheme,
        num_clients=1,
        guaranteed_privacy=1,
        **dict.fromkeys(rest, 0.0),
        **dict.fromkeys(unknown),
        **{name: _summary._latest(one, name) for name in SEGMENTS},
    )


def sentence_of(config: TrainConfig, played: Played) -> str:
    """Return what is printed of the groups."""
    return _summary._segment_sentence((row_of(played),), config.hetero.combine)


# ---- the protocol, by sets of clients


def limit_of(alive: list[set[int]], t: int | None) -> int:
    return max(len(alive[0]) // 2 + 1, 2) if t is None else t


def senders(alive: list[set[int]], t: int | None) -> set[int]:
    """Return V3, unless clients find too few others in V2, who were enough in V1."""
    limit = limit_of(alive, t)
    refuses = len(alive[2]) < limit <= len(alive[1])
    return set() if refuses else set(alive[3])


def sums_of(layout: Any, alive: list[set[int]], t: int | None) -> list[list[set[int]]]:
    """Return the sets of slots whose sums a round gives by segment.

    Nothing if it failed.
    """
    v4, limit = alive[4], limit_of(alive, t)
    summed = senders(alive, t)
    blocks = [(block.segment, set(block.members)) for block in layout.blocks]
    lonely = True
    while lonely:
        alone = [
            members & summed for _, members in blocks if len(members & summed) == 1
        ]
        lonely = bool(alone)
        summed -= set().union(*alone)
    answers = v4 & summed if len(summed) >= limit else set()
    if not summed or len(answers) < limit:
        return []
    found: list[list[set[int]]] = [[] for _ in range(layout.num_segments)]
    for segment, members in blocks:
        if members & summed:
            found[segment].append(members & summed)
    return found


def slots_of(config: TrainConfig, rates: np.ndarray, asked: np.ndarray) -> list[int]:
    """Return the clients of a cohort as slots are filled.

    Slowest first, blocks together.
    """
    size, block = (
        config.population.cohort_size,
        int(config.scheme.partition(":")[2] or 1),
    )
    if config.scheme == "partition":
        block = size
    whole = size // block >= len(config.hetero.group_levels)

    def place(client: int) -> tuple[float, int]:
        first = client // block * block
        mates = rates[first : first + block] if whole else rates[client : client + 1]
        return float(min(mates)), client

    return sorted(np.flatnonzero(asked).tolist(), key=place)


# ---- levels and tolerances, by their definitions


def level_of(sums: list[list[set[int]]]) -> float:
    """Return 1 less the largest share of segments that some union of clients gives away."""
    users = sorted(set().union(*sums[0]))
    rows = [
        [sum(1 << users.index(slot) for slot in block) for block in row] for row in sums
    ]
    most = 0
    for union in range(1, 2 ** len(users) - 1):
        given = sum(all(union & block in (0, block) for block in row) for row in rows)
        most = max(most, given)
    return 1 - most / len(sums)


def middle(values: Sequence[tuple[Fraction, int]]) -> Fraction:
    """Return the median of values with weights.

    The middle of the lower and the upper one.
    """
    total = sum(weight for _, weight in values)

    def first(reaches: Any) -> Fraction:
        return min(v for v, _ in values if reaches(sum(w for u, w in values if u <= v)))

    low = first(lambda weight: 2 * weight >= total)
    return (low + first(lambda weight: 2 * weight > total)) / 2


def trimmed(values: Sequence[tuple[Fraction, int]], trim: Fraction) -> Fraction:
    """Return the mean of values over the weight from trim W to (1 - trim) W."""
    total, at, kept = sum(weight for _, weight in values), Fraction(0), Fraction(0)
    for value, weight in sorted(values):
        start, stop = max(at, trim * total), min(at + weight, (1 - trim) * total)
        kept += max(stop - start, Fraction(0)) * value
        at += weight
    return kept / ((1 - 2 * trim) * total)


def is_moved(
    config: SegmentConfig, weights: Sequence[int], bad: Sequence[bool]
) -> bool:
    """Return whether bad sums take a rule out of the range of the others, or arbitrarily far."""
    if not any(bad):
        return False
    if config.combine == "mean" or all(bad):
        return True
    values = [
        (FAR if is_bad else Fraction(number % 3), weight)
        for number, (is_bad, weight) in enumerate(zip(bad, weights, strict=True))
    ]
    if config.combine == "median":
        return middle(values) > 2
    if config.combine == "trimmed":
        return trimmed(values, Fraction(config.trim).limit_denominator(1000)) > 2
    # the geometric median: the pull of all good sums is at most their weight
    assert config.combine == "geometric"
    return sum(w for w, is_bad in zip(weights, bad, strict=True) if is_bad) * 2 >= sum(
        weights
    )


def tolerance_of(config: SegmentConfig, sums: list[list[set[int]]]) -> int:
    """Return the most attackers that no placement of them, and no fewer, turns into harm."""
    if config.combine == "krum":  # what its paper asks for
        enough = all(len(row) >= 2 * config.num_byzantine + 3 for row in sums)
        return config.num_byzantine if enough else 0
    users = sorted(set().union(*sums[0]))
    moved = functools.cache(lambda weights, bad: is_moved(config, weights, bad))
    for count in range(1, len(users) + 1):
        for chosen in itertools.combinations(users, count):
            attackers = set(chosen)
            for row in sums:
                weights = tuple(len(block) for block in row)
                if moved(weights, tuple(bool(block & attackers) for block in row)):
                    return count - 1
    return len(users)


def seconds_of(layout: Any, rates: Sequence[float], sent: set[int]) -> float:
    """Return when the last of those who send has sent its residues, ceil(log2 R) bits each."""
    bits = [0] * layout.num_participants
    for block in layout.blocks:
        for slot in block.members:
            modulus = len(block.members) * (block.num_levels - 1) + 1
            bits[slot] += (block.stop - block.start) * (modulus - 1).bit_length()
    return max(bits[slot] / rates[slot] for slot in sent)


# ---- the words


def words_of(values: list[float], one: Any, many: Any, unknown: str) -> str:
    if not values:
        return unknown
    return (
        one(min(values))
        if min(values) == max(values)
        else many(min(values), max(values))
    )


def expected_sentence(config: TrainConfig, played: Played) -> list[str]:
    """Return the parts of the sentence that a person would write of these rounds."""
    levels, tolerances, seconds = [], [], []
    own: Any = played.segments
    for number, rows in enumerate(played.survivors):
        if not rows[0].any():
            continue
        slots = slots_of(config, own.rates, rows[0])
        alive = [
            {
                slot
                for slot, client in enumerate(slots)
                if rows[min(step, len(rows) - 1), client]
            }
            for step in range(5)
        ]
        sent = senders(alive, config.protocol.threshold)
        if sent:
            seconds.append(seconds_of(own.layout, own.rates[slots], sent))
        sums = sums_of(own.layout, alive, config.protocol.threshold)
        learnt = [
            sorted(
                map(
                    tuple, np.asarray(played.sums.participation[segment])[when].tolist()
                )
            )
            for segment, when in enumerate(r == number for r in played.sums.rounds)
        ]
        for segment, row in enumerate(sums):
            as_rows = [
                tuple(
                    client in {slots[slot] for slot in block}
                    for client in range(len(own.rates))
                )
                for block in row
            ]
            assert learnt[segment] == sorted(as_rows)
        assert bool(sums) == any(learnt)
        if sums:
            levels.append(level_of(sums))
            tolerances.append(tolerance_of(config.hetero, sums))
    level = words_of(
        levels,
        "{:.3g}".format,
        "{:.3g} to {:.3g}".format,
        "unknown (no sum was learnt)",
    )
    plural = {0: "no Byzantine client", 1: "1 Byzantine client, in any group"}
    tolerated = words_of(
        tolerances,
        lambda n: plural.get(n, f"{n} Byzantine clients, in any group"),
        "{} to {} Byzantine clients, by the round".format,
        "an unknown number of Byzantine clients (no sum was learnt)",
    )
    wait = f"{round_up(np.mean(seconds))} s on average" if seconds else "no time"
    return [
        f"at privacy level {level} in one round (",
        f"A round waits {wait} for its last input.",
        f"over each segment's sums tolerates {tolerated}.",
    ]


def round_up(seconds: float) -> str:
    """Return three digits, of halves the larger ones.

    Sums of floats do not tell them apart.
    """
    return f"{seconds * (1 + 1e-9):.3g}"


def drawn_config(number: int) -> TrainConfig | None:
    """Return the settings of a random study; None if they are not allowed."""
    rng = random.Random(number)
    clients, cohort = rng.choice([(12, 6), (12, 9), (16, 8), (20, 10)])
    groups = rng.randint(1, 5)
    segments = rng.choice(["groups", "sc", "mc", "hc"]) if groups > 1 else "groups"
    combine = rng.choice(["mean", "median", "median", "trimmed", "geometric", "krum"])
    scheme = rng.choice(["uniform", "uniform", "partition", "batch_partitioning:2"])
    is_attacked = combine == "krum"
    config = TrainConfig(
        seed=number,
        rounds=8,
        scheme=scheme,
        population=PopulationConfig(
            num_clients=clients,
            cohort_size=cohort,
            dropout_rates=(rng.choice([0.0, 0.2]),),
        ),
        protocol=ProtocolConfig(
            step_dropout_rate=rng.choice([0.0, 0.05, 0.1, 0.3]),
            threshold=rng.choice([None, None, cohort // 2 + 1, cohort - 1]),
        ),
        hetero=SegmentConfig(
            segments,
            group_levels=tuple(sorted(rng.choices([2, 4, 8, 12], k=groups))),
            subgroups=tuple(rng.randint(1, 2) for _ in range(groups))
            * (rng.random() < 0.3),
            hybrid_threshold=rng.randint(1, groups - 1) if segments == "hc" else None,
            client_rates=tuple(
                rng.choice([1.0, 2.0, 5.0]) for _ in range(rng.randint(1, 4))
            ),
            combine=combine,
            trim=rng.choice([0.1, 0.35, 0.4]) if combine == "trimmed" else 0.25,
            attack="sign_flip" if is_attacked else "none",
            num_byzantine=rng.randint(1, 2) if is_attacked else 0,
            allow_small_groups=rng.random() < 0.2,
        ),
    )
    try:
        validate(config)
        played_rounds(config)
    except mj.ConfigurationError:
        return None
    return config


def check_words(config: TrainConfig, played: Played) -> str:
    """Compare what is printed with exhaustive search; return it."""
    text = sentence_of(config, played)
    wait = re.search(r"A round waits (\S+) s", text)
    if wait:
        exact = float(xr.Dataset(segment_variables([played]))["round_seconds"][0])
        text = text.replace(wait[0], f"A round waits {round_up(exact)} s")
    for part in expected_sentence(config, played):
        assert part in text, (part, text)
    return text


def study_of(hetero: SegmentConfig, cohort: int = 10, loss: float = 0.0) -> TrainConfig:
    population = PopulationConfig(
        num_clients=20, cohort_size=cohort, dropout_rates=(0.0,)
    )
    protocol = ProtocolConfig(step_dropout_rate=loss)
    return TrainConfig(
        rounds=28,
        scheme="uniform",
        population=population,
        protocol=protocol,
        hetero=hetero,
    )


def words_of_study(hetero: SegmentConfig, cohort: int = 10, loss: float = 0.0) -> str:
    config = study_of(hetero, cohort, loss)
    return check_words(config, drawn_rounds(config))


def test_plain_secagg_gives_no_union_away() -> None:
    text = words_of_study(SegmentConfig("groups", (12,)))
    assert "at privacy level 1 in one round" in text
    assert "at privacy level 0 in one round" in words_of_study(
        SegmentConfig("groups", (2, 12))
    )


def test_a_level_is_that_of_the_rounds_own_losses() -> None:
    text = words_of_study(SegmentConfig("mc"), loss=0.05)
    assert "at privacy level 0.4 to 0.8 in one round" in text
    assert "at privacy level 0.8 in one round" in words_of_study(SegmentConfig("mc"))


@pytest.mark.parametrize(
    ("combine", "name"),
    [
        ("mean", "mean"),
        ("median", "median"),
        ("trimmed", "trimmed mean"),
        ("geometric", "geometric median"),
    ],
)
def test_a_tolerance_is_that_of_the_rule_in_use(combine: Any, name: str) -> None:
    """Single chains over four groups: a block of two groups holds half of the clients."""
    text = words_of_study(SegmentConfig("sc", (2, 4, 8, 8), combine=combine), cohort=8)
    assert f"The {name} over each segment's sums tolerates no Byzantine client." in text


def test_more_groups_tolerate_more() -> None:
    text = words_of_study(SegmentConfig("sc", (2,) * 5, combine="median"))
    assert (
        "The median over each segment's sums tolerates 1 Byzantine client, in any "
        "group." in text
    )
    text = words_of_study(SegmentConfig("sc", (2,) * 5, combine="median"), loss=0.05)
    assert "tolerates 0 to 1 Byzantine clients, by the round." in text
    text = words_of_study(
        SegmentConfig("groups", (2,) * 5, combine="trimmed", trim=0.4)
    )
    assert (
        "The trimmed mean over each segment's sums tolerates 2 Byzantine clients"
        in text
    )


def test_krum_tolerates_what_it_was_built_for() -> None:
    hetero = SegmentConfig(
        "groups", (2,) * 5, combine="krum", attack="scaling", num_byzantine=1
    )
    assert "The Krum over" not in words_of_study(hetero)
    assert (
        "Krum over each segment's sums tolerates 1 Byzantine client"
        in words_of_study(hetero)
    )
    assert "tolerates 0 to 1 Byzantine clients, by the round." in words_of_study(
        hetero, loss=0.05
    )


def test_schemes_with_other_rounds_are_named() -> None:
    """Not the first scheme's figures for all of them."""
    lossless, lossy = (
        study_of(SegmentConfig("mc")),
        study_of(SegmentConfig("mc"), loss=0.05),
    )
    rows = row_of(drawn_rounds(lossless), "A"), row_of(drawn_rounds(lossy), "B")
    text = _summary._segment_sentence(rows, "mean")
    assert "at privacy level 0.8 under A and 0.4 to 0.8 under B in one round" in text
    assert "s on average under A and " in text
    assert "The mean over each segment's sums tolerates no Byzantine client." in text


def test_a_study_without_a_sum_knows_nothing_of_its_groups() -> None:
    text = words_of_study(SegmentConfig("mc"), loss=1.0)
    assert "at privacy level unknown (no sum was learnt) in one round" in text
    assert "A round waits no time for its last input." in text


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_every_printed_word_of_random_studies(part: int) -> None:
    """Two hundred studies in all: ten a part."""
    seen = 0
    for number in itertools.count(1000 * part):
        config = drawn_config(number)
        if config is not None:
            check_words(config, played_rounds(config))
            seen += 1
        if seen == 10:
            return


# ---- over sparse graphs


def settings_over(graph: str, rate: float) -> TrainConfig:
    number: dict[str, Any] = {"degree": 4}
    if graph == "erdos_renyi":
        number = {"connection_probability": 0.45}
    return TrainConfig(
        rounds=12,
        scheme="uniform",
        population=PopulationConfig(num_clients=14, cohort_size=10),
        protocol=ProtocolConfig(
            graph=graph, threshold="majority", step_dropout_rate=rate, **number
        ),
        hetero=SegmentConfig(segments="mc", group_levels=(2, 4, 8), combine="median"),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("graph", "rate"), [("erdos_renyi", 0.0), ("erdos_renyi", 0.03), ("harary", 0.03)]
)
def test_sums_over_sparse_graphs_are_those_of_real_messages(
    graph: str, rate: float
) -> None:
    config = settings_over(graph, rate)
    played = played_rounds(config)
    assert played.segments is not None
    assert played.rounds is not None
    layout, order = played.segments.layout, played.segments.order
    model: Any = (
        mj.graphs.erdos_renyi(10, 0.45)
        if graph == "erdos_renyi"
        else mj.graphs.harary(10, 4)
    )
    facts = played.segment_facts
    parts = 0
    for number, survivors in enumerate(played.survivors):
        clients = [c for c in order.tolist() if survivors[0, c]]
        if not clients:
            continue
        assert played.rounds.assignment_keys is not None
        drawn = np.asarray(model.sample(played.rounds.assignment_keys[number]))
        places = [sorted(clients).index(client) for client in clients]
        near = drawn[np.ix_(places, places)]
        limits = np.maximum((near.sum(axis=1) + 1) // 2 + 1, 2)
        real = mj.protocol.run(
            np.zeros((len(clients), DIM), np.uint32),
            near,
            survivors[:, clients],
            limits,
            plan=layout.plan,
        )
        expected: list[set[frozenset[int]]] = [set() for _ in layout.bounds]
        for row, block in zip(real.learned, real.learned_block, strict=True):
            members = frozenset(np.asarray(clients)[row].tolist())
            expected[layout.blocks[block].segment].add(members)
        for segment, sums in enumerate(expected):
            here = played.sums.rounds[segment] == number
            rows = played.sums.participation[segment][here]
            assert {frozenset(np.flatnonzero(row).tolist()) for row in rows} == sums
            assert len(rows) == len(sums)
        mean = set(np.asarray(clients)[real.summed].tolist())
        is_ok = real.status == mj.Status.OK
        summed = np.flatnonzero(played.history.participation[number]).tolist()
        assert set(summed) == (mean if is_ok else set())
        parts += not real.is_private
        level = facts["privacy_level_by_round"][number]
        if not is_ok:
            assert np.isnan(level)
            continue
        group = {clients[slot]: g for g, c in enumerate(layout.columns) for slot in c}
        present = {group[client] for client in mean}
        worst = 0
        for size in range(1, len(present)):
            for union in itertools.combinations(sorted(present), size):
                inside = {client for client in mean if group[client] in union}
                # learnt where no sum is partly inside
                whole = [
                    all(s <= inside or not s & inside for s in sums)
                    for sums in expected
                ]
                worst = max(worst, sum(whole))
        assert level == pytest.approx(1 - worst / len(expected))
    if graph == "erdos_renyi":
        assert parts
