"""Run one round of secure aggregation, and compare its bytes and seconds.

`run` is that of the command: of one round, or of many that may fail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import protocol, secagg
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.secagg.lists import heeded, signing
from mrsa_jax.study._findings import Findings, as_json
from mrsa_jax.study._progress import Progress, note, stages
from mrsa_jax.study.secagg._points import Setting, run_failures, stated_memory
from mrsa_jax.study.settings._commands import SecaggConfig
from mrsa_watch._base.errors import require

check = stated_memory


def run(config: SecaggConfig, progress: Progress) -> Findings:
    """Run a round or a study."""
    note(progress, check(config))
    return (run_round if config.trials is None else run_failures)(config, progress)


_MOST_TWICE = 2**31  # words of keystream up to which a round runs again, once compiled
_WORDS = {
    Status.OK: "the sum was learnt",
    Status.TOO_FEW_SURVIVORS: "fewer than two padded inputs arrived, so clients refuse "
    "to unmask",
    Status.UNRELIABLE: "too few shares came back to remove every pad from the sum "
    "(Theorem 1)",
}


class _Round(NamedTuple):
    """The outcome of a round, at any fidelity.

    Attributes:
        survivors: bool[5, n], V0 to V4.
        steps: As in `AggregateResult`.
        total_is_right: Whether the total is the plain sum over V3; None without a
            total.
        is_first: Whether times include compilation.
    """

    survivors: np.ndarray
    status: Status
    learned: np.ndarray
    is_reliable: bool
    is_private: bool
    steps: tuple[secagg.StepReport, ...]
    total_is_right: bool | None = None
    is_first: bool = False


def run_round(config: SecaggConfig, progress: Progress) -> Findings:
    """Run one round and report its cost and what the server learnt."""
    setting = Setting.of(config)
    adjacency, survivors = setting.adjacency(), setting.survivors()
    at_risk = _check_risk(setting, adjacency)
    fidelity = config.fidelity or "array"
    outcome = (
        _sets(setting, adjacency, survivors)
        if fidelity == "sets"
        else _summed(setting, adjacency, survivors, progress)
    )
    content = _content(setting, fidelity, adjacency, outcome, at_risk)
    modulus = setting.modulus
    # a power of two has one bit, which subtracting 1 clears
    is_power = modulus & (modulus - 1) == 0
    ring = f"2**{modulus.bit_length() - 1}" if is_power else str(modulus)
    title = (
        f"{setting.title()}\n{content['num_edges']:,} edges, {config.dim:,} residues "
        "modulo "
        f"{ring}, fidelity {fidelity}, seed {config.seed}"
    )
    return Findings(title, _sentences(config, content), content)


def _check_risk(setting: Setting, adjacency: np.ndarray) -> int:
    """Count clients that CCESA's Appendix F attack could unmask; 0 unless allowed."""
    count = int(secagg.unmasking_risk(adjacency, setting.threshold).sum())
    # more than half of the largest neighbourhood, itself included, as the attack needs
    # two disjoint sets of t
    safe = (int(adjacency.sum(axis=1).max()) + 1) // 2 + 1
    rule = (
        f"must be at least {safe} in this graph, or CCESA's Appendix F attack could "
        "unmask single "
        f"clients, {count} of {len(adjacency)} (--allow-unmasking-risk accepts that)"
    )
    allowed = count == 0 or setting.config.allow_unmasking_risk
    require(allowed, "threshold", rule, setting.threshold)
    return count


def _summed(
    setting: Setting, adjacency: np.ndarray, survivors: np.ndarray, progress: Progress
) -> _Round:
    """Run a round with pads: by messages, or as arrays, once more if that is cheap."""
    config, inputs, is_first = setting.config, setting.inputs(), False
    arguments = inputs, adjacency, survivors, setting.threshold
    options: Any = {"modulus": setting.modulus, "consistency": config.consistency}
    if config.fidelity == "real":
        entropy = setting.secret_seed()
        result = protocol.run(
            *arguments, entropy=entropy, progress=stages(progress), **options
        )
    else:
        # a pad for each edge, made once for both ends, and one of each client itself
        words = (adjacency.sum() // 2 + len(adjacency)) * config.dim
        is_first = bool(words > _MOST_TWICE)
        # the second round is compiled, so its times are the ones to report
        for stage in ["round, with compilation"] + ["round, compiled"] * (not is_first):
            progress.stage(stage, 1)
            result = secagg.aggregate(
                setting.secret_seed(), *arguments, keep_padded=False, **options
            )
            progress.update(1, 1)
    alive, is_right = result.transcript.survivors, None
    if result.status == Status.OK:
        # V3: the clients whose padded inputs arrived, which are in the sum
        total = inputs[alive[3]].sum(axis=0, dtype=np.uint64)
        plain = total % np.uint64(setting.modulus)
        is_right = bool(np.array_equal(result.total, plain))
    return _Round(
        alive,
        result.status,
        result.learned,
        result.is_reliable,
        result.is_private,
        result.steps,
        is_right,
        is_first,
    )


def _sets(setting: Setting, adjacency: np.ndarray, survivors: np.ndarray) -> _Round:
    """Judge a round without its pads."""
    t = secagg.check_round(adjacency, survivors, setting.threshold)[2]
    signs, size = None, (setting.config.dim, setting.modulus)
    plan = secagg.complete_plan(len(adjacency), *size)
    # clients that received too little leave the round, in whatever step they were
    alive = heeded(plan, adjacency, survivors, t).survivors
    if setting.config.consistency:
        alive, signs = signing(adjacency, alive, t)
    is_reliable = bool(secagg.is_reliable(adjacency, alive, t))
    costs = secagg.round_costs(adjacency, alive, t, *size, signers=signs)
    up, down, counts = (
        costs.server_bytes_up,
        costs.server_bytes_down,
        costs.sends.sum(axis=-1),
    )
    nan = float("nan")
    good = Status.OK if is_reliable else Status.UNRELIABLE
    return _Round(
        alive,
        Status.TOO_FEW_SURVIVORS if alive[3].sum() < 2 else good,
        secagg.learned_sets(adjacency, alive, t),
        is_reliable,
        bool(secagg.is_private(adjacency, alive, t)),
        tuple(
            secagg.StepReport(name, int(count), nan, nan, int(sent), int(answered))
            for name, count, sent, answered in zip(
                costs.steps, counts, up, down, strict=True
            )
        ),
    )


def _content(
    setting: Setting,
    fidelity: str,
    adjacency: np.ndarray,
    outcome: _Round,
    at_risk: int,
) -> dict[str, Any]:
    """Return everything as JSON has it."""
    config, alive = setting.config, outcome.survivors
    n, arrived = config.num_clients, int(alive[3].sum())
    size = (config.dim, setting.modulus)
    # SecAgg with a majority as threshold, to compare with
    complete = secagg.round_costs(~np.eye(n, dtype=bool), alive, n // 2 + 1, *size)
    plain = secagg.fedavg_costs(arrived, *size) if arrived else None
    return {
        "fidelity": fidelity,
        **setting.to_dict(),
        "dim": config.dim,
        "modulus": setting.modulus,
        "dropped_before_unmasking": config.dropped_before_unmasking,
        "num_edges": int(adjacency.sum()) // 2,
        "mean_degree": float(adjacency.sum() / n),
        "status": outcome.status.name,
        "is_reliable": outcome.is_reliable,
        "is_private": outcome.is_private,
        "clients_at_unmasking_risk": at_risk,
        "total_is_plain_sum": outcome.total_is_right,
        "survivors": alive.sum(axis=1).tolist(),
        "learned": [np.flatnonzero(row).tolist() for row in outcome.learned],
        "steps": [_step(report) for report in outcome.steps],
        "times_include_compilation": outcome.is_first,
        "bytes": {
            "round": sum(
                report.bytes_up + report.bytes_down for report in outcome.steps
            ),
            "complete_graph": _all_bytes(complete),
            "fedavg": _all_bytes(plain) if plain else 0,
        },
        "modelled_seconds": _modelled(setting, adjacency, alive, complete),
    }


def _step(report: secagg.StepReport) -> dict[str, Any]:
    sent = report.bytes_up + report.bytes_down
    mean = sent / report.num_clients if report.num_clients else 0.0
    return as_json(report) | {"mean_bytes_of_a_client": mean}


def _all_bytes(costs: secagg.RoundCosts) -> int:
    return int(costs.server_bytes_up.sum() + costs.server_bytes_down.sum())


def _modelled(
    setting: Setting,
    adjacency: np.ndarray,
    survivors: np.ndarray,
    complete: secagg.RoundCosts,
) -> dict[str, Any] | None:
    """Return a round's modelled seconds: this graph, the complete one, a plain sum."""
    config = setting.config
    if config.up_mbits is None:
        return None
    size = (config.dim, setting.modulus)
    usual = vars(secagg.costs.operation_seconds())
    slower = {
        name: float(seconds) * config.compute_slowdown
        for name, seconds in usual.items()
    }
    # 1 Mbit/s is 1.25e5 bytes per second; downlinks are ten times as fast
    model = secagg.costs.latency_model(
        up_bytes_per_second=config.up_mbits * 1.25e5,
        down_bytes_per_second=config.up_mbits * 1.25e6,
        client_seconds=secagg.costs.operation_seconds(**slower),
    )

    def steps(costs: secagg.RoundCosts) -> list[float]:
        return secagg.costs.round_latency(costs, model).tolist()

    signers = survivors[4] if config.consistency else None
    costs = secagg.round_costs(
        adjacency, survivors, setting.threshold, *size, signers=signers
    )
    return {
        "steps": steps(costs),
        "complete_graph": sum(steps(complete)),
        "fedavg": sum(steps(secagg.fedavg_costs(config.num_clients, *size))),
    }


def _sentences(config: SecaggConfig, report: dict[str, Any]) -> list[str]:
    status = report["status"]
    lines = [f"{status}: {_WORDS[Status[status]]}.", _learned(report)]
    lines.append(
        f"{_theorems(report)} Clients that CCESA's Appendix F attack could unmask: "
        f"{report['clients_at_unmasking_risk']}."
    )
    if report["total_is_plain_sum"] is not None:
        lines.append(
            f"The total is the plain sum: {_yes(report['total_is_plain_sum'])}."
        )
    lines += [
        f"The consistency check: {2 * step['num_clients']} messages, "
        f"{step['bytes_up'] + step['bytes_down']:,} bytes, and signed keys and longer "
        "lists of "
        "survivors before it."
        for step in report["steps"][3:-1]  # the one that it adds, before the last
    ]
    lines += _comparisons(config, report)
    notes: dict[str, str] = {
        "array": "Times are of all clients together; each keystream is made once, for "
        "both ends.",
        "real": "Times are of all clients together, one after the other in one "
        "process.",
        "sets": "No pads were made, so times were not measured; bytes are those of "
        "real messages.",
    }
    lines.append(notes[report["fidelity"]])
    if report["times_include_compilation"]:
        lines.append("They include compilation.")
    return lines


def _theorems(report: dict[str, Any]) -> str:
    """Report the theorems, unless there was nothing to unmask: both hold then."""
    arrived = report["survivors"][3]
    if arrived < FEWEST_IN_A_SUM:
        return f"Theorems 1 and 2 speak of two inputs or more; {arrived} arrived."
    return (
        f"Reliable (Theorem 1): {_yes(report['is_reliable'])}. "
        f"Private (Theorem 2): {_yes(report['is_private'])}."
    )


def _comparisons(config: SecaggConfig, report: dict[str, Any]) -> list[str]:
    """Compare bytes and modelled seconds with those of a plain sum and of SecAgg."""
    lines, sizes = [], report["bytes"]
    is_secagg = Graph.parse(config.graph).row.is_complete
    if sizes["fedavg"]:
        ratio = sizes["round"] / sizes["complete_graph"]
        beside = (
            ""
            if is_secagg
            else f", {ratio:.3g} times those over the complete graph (SecAgg)"
        )
        plain = sizes["round"] / sizes["fedavg"]
        lines.append(
            f"Bytes of the round: {plain:.3g} times those of a plain sum{beside}."
        )
    modelled = report["modelled_seconds"]
    if modelled:
        complete = f"{modelled['complete_graph']:.3g} s over the complete graph, "
        lines.append(
            f"Modelled at {config.up_mbits:g} Mbit/s: {sum(modelled['steps']):.3g} s a "
            f"round; {'' if is_secagg else complete}{modelled['fedavg']:.3g} s for a "
            "plain sum."
        )
    return lines


def _learned(report: dict[str, Any]) -> str:
    """Report the sums that a curious server computes from the messages."""
    rows, arrived = report["learned"], report["survivors"][3]
    if not rows:
        return "A curious server learns nothing."
    if len(rows) == 1 and len(rows[0]) == arrived:
        return (
            f"A curious server learns the sum over {arrived} clients, and of no part "
            "of them."
        )
    single = [str(row[0]) for row in rows if len(row) == 1]
    many = "a sum" if len(rows) == 1 else f"{len(rows)} sums"
    parts = f"A curious server learns {many} over part of the {arrived} clients"
    exposed = f"; exposed are the inputs of: {_first(single)}" if single else ""
    return f"{parts} (sizes {_first([str(len(row)) for row in rows])}){exposed}."


def _first(words: list[str]) -> str:
    """Join the first few words of a list."""
    return ", ".join([*words[:6], *["..."] * (len(words) > 6)])


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
