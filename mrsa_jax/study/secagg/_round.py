"""One round of secure aggregation: run it at a fidelity, and compare its bytes and seconds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mrsa_jax import protocol, secagg
from mrsa_jax._errors import require
from mrsa_jax._status import Status
from mrsa_jax.secagg._admission import heeded, signing
from mrsa_jax.secagg._round_costs import CHECK, STEPS, STEPS_WITH_CHECK
from mrsa_jax.study._findings import Findings
from mrsa_jax.study._progress import Progress, stages
from mrsa_jax.study._secagg_config import SecaggConfig
from mrsa_jax.study.secagg._setting import Setting, finite

__all__ = ["run_round"]

_MOST_TWICE = 2**31  # words of keystream up to which a round runs again, once compiled
_WORDS = {
    Status.OK: "the sum was learnt",
    Status.TOO_FEW_SURVIVORS: "fewer than two padded inputs arrived, so clients refuse to unmask",
    Status.UNRELIABLE: "too few shares came back to remove every pad from the sum (Theorem 1)",
}


@dataclasses.dataclass(frozen=True, eq=False)
class _Round:
    """What a round came to, whatever its fidelity.

    Attributes:
        survivors: bool[5, n], V0 to V4.
        steps: As in `AggregateResult`.
        total_is_right: Whether the total is the plain sum over V3; None where there is none.
        is_first: Whether times include compilation.
    """

    survivors: np.ndarray
    status: Status
    learned: np.ndarray
    is_reliable: bool
    is_private: bool
    num_at_risk: int
    steps: tuple[secagg.StepReport, ...]
    total_is_right: bool | None
    is_first: bool


def run_round(config: SecaggConfig, progress: Progress) -> Findings:
    """Run one round and say what it cost and what the server learnt."""
    setting = Setting.of(config)
    adjacency, survivors = setting.adjacency(), setting.survivors()
    at_risk = _check_risk(setting, adjacency)
    fidelity = config.fidelity or "array"
    run = {"real": _real, "array": _array, "sets": _sets}[fidelity]
    outcome = run(setting, adjacency, survivors, at_risk, progress)
    content = _content(setting, fidelity, adjacency, outcome)
    title = (
        f"{setting.title()}\n{content['num_edges']:,} edges, {config.dim:,} residues modulo "
        f"{_ring(setting.modulus)}, fidelity {fidelity}, seed {config.seed}"
    )
    return Findings(title, _sentences(setting, outcome, content), content)


def _check_risk(setting: Setting, adjacency: np.ndarray) -> int:
    """Return how many clients CCESA's Appendix F attack could unmask, none unless allowed."""
    count = int(secagg.unmasking_risk(adjacency, setting.threshold).sum())
    safe = (int(adjacency.sum(axis=1).max()) + 1) // 2 + 1
    rule = (
        f"must be at least {safe} in this graph, or CCESA's Appendix F attack could unmask single "
        f"clients, {count} of {len(adjacency)} (--allow-unmasking-risk accepts that)"
    )
    allowed = count == 0 or setting.config.allow_unmasking_risk
    require(allowed, "threshold", rule, setting.threshold)
    return count


def _real(
    setting: Setting, adjacency: np.ndarray, survivors: np.ndarray, at_risk: int, progress: Progress
) -> _Round:
    inputs = setting.inputs()
    result = protocol.run(
        inputs,
        adjacency,
        survivors,
        setting.threshold,
        modulus=setting.modulus,
        entropy=setting.secret_seed(),
        progress=stages(progress),
        consistency=setting.config.consistency,
    )
    return _of(result, inputs, setting.modulus, at_risk)


def _array(
    setting: Setting, adjacency: np.ndarray, survivors: np.ndarray, at_risk: int, progress: Progress
) -> _Round:
    inputs = setting.inputs()

    def once() -> secagg.AggregateResult:
        return secagg.aggregate(
            setting.secret_seed(),
            inputs,
            adjacency,
            survivors,
            setting.threshold,
            modulus=setting.modulus,
            keep_padded=False,
            consistency=setting.config.consistency,
        )

    progress.stage("round, with compilation", 1)
    result = once()
    progress.update(1, 1)
    words = (adjacency.sum() // 2 + len(adjacency)) * setting.config.dim
    is_first = bool(words > _MOST_TWICE)
    if not is_first:
        progress.stage("round, compiled", 1)
        result = once()
        progress.update(1, 1)
    return dataclasses.replace(_of(result, inputs, setting.modulus, at_risk), is_first=is_first)


def _of(result: secagg.AggregateResult, inputs: np.ndarray, modulus: int, at_risk: int) -> _Round:
    is_right = None
    if result.status == Status.OK:
        plain = inputs[result.transcript.survivors[3]].sum(axis=0, dtype=np.uint64)
        is_right = bool(np.array_equal(result.total, plain % np.uint64(modulus)))
    return _Round(
        survivors=result.transcript.survivors,
        status=result.status,
        learned=result.learned,
        is_reliable=result.is_reliable,
        is_private=result.is_private,
        num_at_risk=at_risk,
        steps=result.steps,
        total_is_right=is_right,
        is_first=False,
    )


def _sets(
    setting: Setting, adjacency: np.ndarray, survivors: np.ndarray, at_risk: int, progress: Progress
) -> _Round:
    del progress
    t, n = setting.threshold, setting.config.num_clients
    plan = secagg.complete_plan(n, setting.config.dim, setting.modulus)
    alive = heeded(plan, adjacency, survivors, t)
    names: tuple[str, ...] = STEPS
    signs = None
    if setting.config.consistency:
        names = STEPS_WITH_CHECK
        alive, signs = signing(adjacency, alive, t)
    few = alive[3].sum() < 2
    is_reliable = bool(secagg.is_reliable(adjacency, alive, t))
    size = (setting.config.dim, setting.modulus)
    costs = secagg.round_costs(adjacency, alive, t, *size, signers=signs)
    up, down, counts = costs.server_bytes_up, costs.server_bytes_down, costs.sends.sum(axis=-1)
    nan = float("nan")
    steps = tuple(
        secagg.StepReport(name, int(count), nan, nan, int(sent), int(answered))
        for name, count, sent, answered in zip(names, counts, up, down, strict=True)
    )
    good = Status.OK if is_reliable else Status.UNRELIABLE
    return _Round(
        survivors=alive,
        status=Status.TOO_FEW_SURVIVORS if few else good,
        learned=secagg.learned_sets(adjacency, alive, t),
        is_reliable=is_reliable,
        is_private=bool(secagg.is_private(adjacency, alive, t)),
        num_at_risk=at_risk,
        steps=steps,
        total_is_right=None,
        is_first=False,
    )


def _content(
    setting: Setting, fidelity: str, adjacency: np.ndarray, outcome: _Round
) -> dict[str, Any]:
    """Return everything as JSON has it."""
    config, alive = setting.config, outcome.survivors
    n, arrived = config.num_clients, int(alive[3].sum())
    size = (config.dim, setting.modulus)
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
        "clients_at_unmasking_risk": outcome.num_at_risk,
        "total_is_plain_sum": outcome.total_is_right,
        "survivors": alive.sum(axis=1).tolist(),
        "learned": [np.flatnonzero(row).tolist() for row in outcome.learned],
        "steps": [_step(report) for report in outcome.steps],
        "times_include_compilation": outcome.is_first,
        "bytes": {
            "round": sum(report.bytes_up + report.bytes_down for report in outcome.steps),
            "complete_graph": _all_bytes(complete),
            "fedavg": _all_bytes(plain) if plain else 0,
        },
        "modelled_seconds": _modelled(setting, adjacency, alive),
    }


def _step(report: secagg.StepReport) -> dict[str, Any]:
    sent = report.bytes_up + report.bytes_down
    return {
        "name": report.name,
        "num_clients": report.num_clients,
        "client_seconds": finite(report.client_seconds),
        "server_seconds": finite(report.server_seconds),
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "mean_bytes_of_a_client": sent / report.num_clients if report.num_clients else 0.0,
    }


def _all_bytes(costs: secagg.RoundCosts) -> int:
    return int(costs.server_bytes_up.sum() + costs.server_bytes_down.sum())


def _modelled(
    setting: Setting, adjacency: np.ndarray, survivors: np.ndarray
) -> dict[str, Any] | None:
    """Return a round's modelled seconds, for this graph, the complete one and a plain sum."""
    config = setting.config
    if config.up_mbits is None:
        return None
    n, size = config.num_clients, (config.dim, setting.modulus)
    usual = secagg.operation_seconds()
    fields = [field.name for field in dataclasses.fields(usual)]
    slower = {name: float(getattr(usual, name)) * config.compute_slowdown for name in fields}
    model = secagg.latency_model(
        up_bytes_per_second=config.up_mbits * 1.25e5,
        down_bytes_per_second=config.up_mbits * 1.25e6,
        client_seconds=secagg.operation_seconds(**slower),
    )

    def steps(costs: secagg.RoundCosts) -> list[float]:
        return secagg.round_latency(config.seed, costs, model, 1).seconds[0].tolist()

    everybody = ~np.eye(n, dtype=bool)
    return {
        "steps": steps(
            secagg.round_costs(
                adjacency,
                survivors,
                setting.threshold,
                *size,
                signers=survivors[4] if config.consistency else None,
            )
        ),
        "complete_graph": sum(steps(secagg.round_costs(everybody, survivors, n // 2 + 1, *size))),
        "fedavg": sum(steps(secagg.fedavg_costs(n, *size))),
    }


def _sentences(setting: Setting, outcome: _Round, report: dict[str, Any]) -> list[str]:
    lines = [f"{outcome.status.name}: {_WORDS[outcome.status]}.", _learned(outcome)]
    lines.append(
        f"Reliable (Theorem 1): {_yes(outcome.is_reliable)}. "
        f"Private (Theorem 2): {_yes(outcome.is_private)}. "
        f"Clients that CCESA's Appendix F attack could unmask: {outcome.num_at_risk}."
    )
    if outcome.total_is_right is not None:
        lines.append(f"The total is the plain sum: {_yes(outcome.total_is_right)}.")
    lines += _check_words(report["steps"])
    lines += _comparisons(setting, report)
    notes: dict[str, str] = {
        "array": "Times are of all clients together; each keystream is made once, for both ends.",
        "real": "Times are of all clients together, one after the other in one process.",
        "sets": "No pads were made, so times were not measured; bytes are those of real messages.",
    }
    lines.append(notes[report["fidelity"]])
    if outcome.is_first:
        lines.append("They include compilation.")
    return lines


def _check_words(steps: list[dict[str, Any]]) -> list[str]:
    """Say what the consistency check adds, if there is one."""
    return [
        f"The consistency check: {2 * step['num_clients']} messages, "
        f"{step['bytes_up'] + step['bytes_down']:,} bytes, and longer lists of survivors before it."
        for step in steps
        if step["name"] == CHECK
    ]


def _comparisons(setting: Setting, report: dict[str, Any]) -> list[str]:
    """Set bytes and modelled seconds beside those of a plain sum and of SecAgg."""
    lines, sizes = [], report["bytes"]
    is_secagg = setting.config.graph == "complete"
    if sizes["fedavg"]:
        ratio = sizes["round"] / sizes["complete_graph"]
        beside = "" if is_secagg else f", {ratio:.3g} times those over the complete graph (SecAgg)"
        plain = sizes["round"] / sizes["fedavg"]
        lines.append(f"Bytes of the round: {plain:.3g} times those of a plain sum{beside}.")
    modelled = report["modelled_seconds"]
    if modelled:
        complete = f"{modelled['complete_graph']:.3g} s over the complete graph, "
        lines.append(
            f"Modelled at {setting.config.up_mbits:g} Mbit/s: {sum(modelled['steps']):.3g} s a "
            f"round; {'' if is_secagg else complete}{modelled['fedavg']:.3g} s for a plain sum."
        )
    return lines


def _learned(outcome: _Round) -> str:
    """Say what a curious server computes from what it saw."""
    rows = [np.flatnonzero(row) for row in outcome.learned]
    arrived = int(outcome.survivors[3].sum())
    if not rows:
        return "A curious server learns nothing."
    if len(rows) == 1 and len(rows[0]) == arrived:
        return f"A curious server learns the sum over {arrived} clients, and of no part of them."
    single = [str(row[0]) for row in rows if len(row) == 1]
    many = "a sum" if len(rows) == 1 else f"{len(rows)} sums"
    parts = f"A curious server learns {many} over part of the {arrived} clients"
    sizes = ", ".join(str(len(row)) for row in rows[:6]) + (", ..." if len(rows) > 6 else "")
    alone = ", ".join(single[:6]) + (", ..." if len(single) > 6 else "")
    exposed = f"; exposed are the inputs of: {alone}" if single else ""
    return f"{parts} (sizes {sizes}){exposed}."


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def _ring(modulus: int) -> str:
    is_power = modulus & (modulus - 1) == 0
    return f"2**{modulus.bit_length() - 1}" if is_power else str(modulus)
