"""Plan a round of HeteroSAg, run one, or count its losses.

`run` is that of `mrsa-jax segments`. Slots are the clients, slowest first.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mrsa_jax import availability, hetero
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.study._findings import Findings, as_json
from mrsa_jax.study._progress import Progress, note
from mrsa_jax.study.runs._segments import (
    COMBINE,
    byzantine_of,
    check_krum,
    client_rates,
    tolerated_by_rule,
)
from mrsa_jax.study.settings._commands import SegmentsConfig

# bytes of a command at its smallest, of each pair of clients, and of each coordinate
_PROGRAMS, _PAIR, _ENTRY = 2**28, 3000, 64
_OFFSET = 0x5E6  # keeps the updates' generator apart from others of the same seed
_BUDGET = 20_000  # steps of the search for a privacy level, a few seconds


def check(config: SegmentsConfig) -> str:
    """State the memory, or refuse more than the machine has.

    Raises:
        ConfigurationError: If memory does not suffice.
    """
    size = segments_bytes(config)
    argument = "group_sizes" if config.group_sizes else "num_clients"
    named = f"{config.participants} with dim {config.dim}"
    return memory_words(size, argument, named, f"{argument}, dim or trials")


def segments_bytes(config: SegmentsConfig) -> int:
    """Estimate the bytes that a plan, its round and its losses need."""
    n = config.participants
    runs = config.fidelity is not None
    size = _PROGRAMS + _PAIR * n * n + _ENTRY * n * config.dim * runs
    # the clients that each group sums in each round, and seconds
    return size + 16 * (config.num_columns + 4) * (config.trials or 0)


def run(config: SegmentsConfig, progress: Progress) -> Findings:
    """Plan a round, and run one or count many where that is set."""
    note(progress, check(config))
    layout, rates = layout_of(config), sorted_rates(config)
    content = planned_round(config, layout, rates)
    sentences = _plan_sentences(config, content)
    if config.fidelity is not None:
        progress.stage("round", layout.num_segments)
        content["round"] = _round(config, layout, progress)
        sentences += _round_sentences(content["round"])
    if config.trials is not None:
        content["losses"] = losses_of(config, layout, rates)
        sentences += _losses_sentences(config, content["losses"])
    name = config.segments + "+" * bool(config.subgroups)
    title = (
        f"{config.participants} clients in {len(config.group_levels)} groups, "
        f"{name.upper() if name != 'groups' else 'a sum for each group'}, "
        f"{layout.num_segments} segments of {config.dim:,} coordinates, seed "
        f"{config.seed}"
    )
    return Findings(title, sentences, as_json(content))


def layout_of(config: SegmentsConfig) -> hetero.SegmentLayout:
    """Return the groups and segments of a round.

    Raises:
        ConfigurationError: If Krum has too few sums for its attackers.
    """
    layout = hetero.segment_layout(
        config.segments,
        list(config.sizes),
        list(config.group_levels),
        config.dim,
        subgroups=list(config.subgroups) or None,
        hybrid_threshold=config.hybrid_threshold,
        modulus_rule=config.modulus_rule,
        allow_small_groups=config.allow_small_groups,
    )
    check_krum(config, layout)
    return layout


def sorted_rates(config: SegmentsConfig) -> np.ndarray:
    """Return the upload rate of each slot: slots are filled from the slowest on."""
    return np.sort(client_rates(config.seed, config, config.participants))


def planned_round(
    config: SegmentsConfig, layout: hetero.SegmentLayout, rates: np.ndarray
) -> dict[str, Any]:
    """Return what is known of a round before it runs."""
    matrix = np.asarray(layout.matrix)
    report = hetero.privacy_report(layout, budget=_BUDGET)
    times = hetero.costs.communication_times(layout, rates)
    sizes = [len(column) for column in layout.columns]
    cuts = list(config.subgroups) or None
    ends = (-config.clip, config.clip)
    bounds = {
        str(name): hetero.quantization_error_bound(
            [[-1]], [levels], config.participants, config.dim, ends
        )
        for name, levels in (
            ("slowest", layout.levels[0]),
            ("fastest", layout.levels[-1]),
        )
    }
    bounds["scheme"] = hetero.quantization_error_bound(
        matrix, list(layout.levels), sizes, config.dim, ends
    )
    claimed = None
    if config.segments != "groups":
        claimed = hetero.claimed_privacy_level(
            config.segments, len(sizes), config.hybrid_threshold
        )
    names = [str(column) for column in range(len(sizes))]
    if cuts is not None:
        names = [f"({g},{d})" for g, number in enumerate(cuts) for d in range(number)]
    return {
        "num_clients": config.participants,
        "segments": config.segments,
        "matrix": matrix.tolist(),
        "matrix_as_printed": hetero.format_matrix(matrix, cuts).splitlines(),
        "privacy_level": str(report.level),
        "privacy_level_at_least": str(report.guaranteed),
        "worst_union": list(report.groups),
        "learned_segments": list(report.learned),
        "claimed_privacy_level": None if claimed is None else str(claimed),
        "two_level_sums": max((r for *_, r in report.two_level_sums), default=0.0),
        "error_bounds": bounds,
        "groups": [
            {
                "name": names[column],
                "num_clients": len(slots),
                "levels": layout.levels[column],
                "slowest_mbits": float(rates[list(slots)].min() / 1e6),
                "bits_per_coordinate": float(times.bits[list(slots)].max())
                / config.dim,
                "expansion": float(times.expansion[list(slots)].max()),
                "seconds": float(times.group_seconds[column]),
            }
            for column, slots in enumerate(layout.columns)
        ],
        "round_seconds": times.round_seconds,
        "plain_round_seconds": times.plain_round_seconds,
        "same_levels_seconds": {
            name: hetero.costs.communication_times(
                hetero.segment_layout(
                    "groups", [config.participants], [levels], config.dim
                ),
                rates,
            ).round_seconds
            for name, levels in (
                ("slowest", layout.levels[0]),
                ("fastest", layout.levels[-1]),
            )
        },
        "combine": config.combine,
        "tolerated_byzantine": tolerated_by_rule(config, matrix, tuple(sizes)),
        "claimed_tolerance": 0.25 * len(sizes) - 1.0
        if config.segments == "mc"
        else None,
    }


def _plan_sentences(config: SegmentsConfig, plan: dict[str, Any]) -> list[str]:
    level = plan["privacy_level"]
    is_exact = level == plan["privacy_level_at_least"]
    union = ", ".join(map(str, plan["worst_union"]))
    bounds = "" if is_exact else f" at most, {plan['privacy_level_at_least']} at least"
    line = f"Privacy level: {level}{bounds}"
    if union:
        many = "group" if len(plan["worst_union"]) == 1 else "groups"
        line += (
            f"; the server learns {len(plan['learned_segments'])} of "
            f"{len(plan['matrix'])} segments of the sum over {many} {union}"
        )
    lines = [f"{line}."]
    claimed = plan["claimed_privacy_level"]
    if claimed is not None and claimed != level and is_exact:
        lines.append(f"The paper's theorem claims {claimed}, which this union refutes.")
    rate = plan["two_level_sums"]
    if rate > 0:
        lines.append(
            "A sum of two-level codes that are all alike reveals each of them: up to "
            f"{rate:.3g} per coordinate and round, if both codes are as likely."
        )
    bounds = plan["error_bounds"]
    lines.append(
        f"Expected squared error of the mean update: at most {bounds['scheme']:.4g}; "
        f"{bounds['slowest']:.4g} if all clients use the slowest group's levels, "
        f"{bounds['fastest']:.4g} with the fastest group's."
    )
    same = plan["same_levels_seconds"]
    lines.append(
        f"The last input arrives after {plan['round_seconds']:.3g} s; after "
        f"{same['slowest']:.3g} s in one sum with the slowest group's levels, "
        f"{same['fastest']:.3g} s with the fastest group's."
    )
    most = plan["tolerated_byzantine"]
    if config.combine == "mean":
        lines.append("The mean tolerates no Byzantine client (--combine median does).")
    else:
        many = "client" if most == 1 else "clients"
        paper = plan["claimed_tolerance"]
        claims = "" if paper is None else f" (the paper's 0.25 G - 1: {paper:g})"
        lines.append(
            f"The rule {config.combine} tolerates {most} Byzantine {many} in any "
            f"places{claims}."
        )
    return lines


def _round(
    config: SegmentsConfig, layout: hetero.SegmentLayout, progress: Progress
) -> dict[str, Any]:
    """Run one round of random updates, the losses those of trial 0."""
    n = config.participants
    updates = np.random.default_rng([_OFFSET, config.seed]).uniform(
        -config.clip, config.clip, (n, config.dim)
    )
    updates = updates.astype(np.float32)
    key = round_key(trial_key(as_key(config.seed), 0), 0, Stream.STEPS)
    steps = availability.independent_steps(config.step_dropout_rate)
    survivors = np.asarray(steps.sample(key, on_device(np.ones(n, np.bool_))))
    assert config.fidelity is not None  # else no round is run
    result = hetero.aggregate(
        config.seed,
        updates,
        layout,
        (-config.clip, config.clip),
        survivors=survivors,
        thresholds=config.threshold,
        fidelity=config.fidelity,
        combine=COMBINE[config.combine](config),
        byzantine=byzantine_of(config, n),
        progress=progress.update,
    )
    found: dict[str, Any] = {
        "fidelity": config.fidelity,
        "status": result.status.name,
        "survivors": survivors.sum(axis=1).tolist(),
        "summed": int(result.summed.sum()),
        "lonely": int(survivors[3].sum() - result.summed.sum())
        if result.status == Status.OK
        else None,
        "squared_error": None,
        "bytes": None,
    }
    if result.status == Status.OK:
        honest = result.summed.copy()
        honest[list(config.attackers)] = False
        if honest.any():
            mean = updates[honest].astype(np.float64).mean(axis=0)
            found["squared_error"] = float(((result.update - mean) ** 2).sum())
        column_of = np.zeros(n, np.int64)
        for column, slots in enumerate(layout.columns):
            column_of[list(slots)] = column
        counts = np.bincount(column_of, result.summed, len(layout.columns))
        groups = np.flatnonzero(counts)
        level = hetero.privacy_report(layout, groups=groups, budget=_BUDGET).guaranteed
        found["privacy_level"] = str(level)
        found["tolerated_byzantine"] = tolerated_by_rule(
            config, np.asarray(layout.matrix), tuple(counts.astype(int).tolist())
        )
    if result.result is not None:
        steps_of = result.result.steps
        found["bytes"] = sum(step.bytes_up + step.bytes_down for step in steps_of)
    return found


def _round_sentences(found: dict[str, Any]) -> list[str]:
    if found["status"] != Status.OK.name:
        return [f"The round failed: {found['status']}. No sum was learnt."]
    lines = [
        f"The round: {found['summed']} clients are in the mean, "
        f"{found['lonely']} were excluded because they would be alone in a sum. "
        f"Privacy level of their groups: {found['privacy_level']}."
    ]
    if found["squared_error"] is not None:
        lines.append(
            "Squared error against the mean of the honest clients in the sum: "
            f"{found['squared_error']:.4g}."
        )
    if found["bytes"] is not None:
        lines.append(f"Messages of the round: {found['bytes']:,} bytes.")
    return lines


def losses_of(
    config: SegmentsConfig, layout: hetero.SegmentLayout, rates: np.ndarray
) -> dict[str, Any]:
    """Count the rounds with a sum by level and tolerance."""
    is_median = config.combine in ("median", "trimmed", "geometric")
    counted = hetero.round_rates(
        layout,
        config.step_dropout_rate,
        config.threshold,
        num_trials=config.trials or 1,
        seed=config.seed,
        trim=config.trim if config.combine == "trimmed" else None,
        weighted=config.weigh_sums,
        budget=_BUDGET,
        rates_bits_per_second=rates,
        straggler_rate=config.straggler_rate,
        straggler_slowdown=config.straggler_slowdown,
    )
    seconds = counted.seconds
    assert seconds is not None  # rates are set
    arrived = seconds[~np.isnan(seconds)]
    below = counted.below_plan
    return {
        "trials": counted.trials,
        "no_sum": dataclasses.asdict(counted.no_sum),
        "lonely": dataclasses.asdict(counted.lonely),
        "mean_inputs": counted.mean_inputs,
        "mean_lonely": counted.mean_lonely,
        "mean_summed": counted.mean_summed,
        "planned_level": str(counted.planned_level),
        "below_plan": None if below is None else dataclasses.asdict(below),
        "levels": {str(level): count for level, count in counted.levels},
        "certified": counted.certified,
        # the mean tolerates none, and Krum's number is no count of blocks
        "tolerated": {str(most): count for most, count in counted.tolerated}
        if is_median
        else None,
        "seconds": {
            name: float(value)
            for name, value in zip(
                ("median", "95 %", "most"),
                np.quantile(arrived, (0.5, 0.95, 1.0)) if len(arrived) else (),
                strict=bool(len(arrived)),
            )
        },
    }


def _losses_sentences(config: SegmentsConfig, found: dict[str, Any]) -> list[str]:
    trials, ended = found["trials"], found["no_sum"]["count"]
    sums = trials - ended
    lines = [
        f"{ended:,} of {trials:,} rounds ended without a sum at q = "
        f"{config.step_dropout_rate:g} per step.",
        f"{found['mean_inputs']:.1f} inputs per round arrive; "
        f"{found['mean_lonely']:.2f} of them are excluded because their clients would "
        "be alone in a sum.",
    ]
    if sums:
        below = found["below_plan"]
        shares = ", ".join(
            f"{level} in {100 * count / sums:.3g} %"
            for level, count in found["levels"].items()
        )
        at_least = "" if found["certified"] else " (lower bounds)"
        lines.append(
            f"Privacy level of the {sums:,} rounds with a sum{at_least}: {shares}. "
            f"Below the planned {found['planned_level']}: {100 * below['rate']:.3g} % "
            f"(95 %: {100 * below['lower']:.3g} to {100 * below['upper']:.3g})."
        )
    if sums and found["tolerated"] is not None:
        shares = ", ".join(
            f"{most} in {100 * count / sums:.3g} %"
            for most, count in found["tolerated"].items()
        )
        lines.append(f"Byzantine clients tolerated in any places: {shares}.")
    seconds = found["seconds"]
    if seconds:
        late = (
            f", with {100 * config.straggler_rate:g} % stragglers "
            f"{config.straggler_slowdown:g} times slower"
            if config.straggler_rate
            else ""
        )
        lines.append(
            f"The last input arrives after {seconds['median']:.3g} s in half of the "
            f"rounds, {seconds['95 %']:.3g} s in 95 %{late}."
        )
    return lines
