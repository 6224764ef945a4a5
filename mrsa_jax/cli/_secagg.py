"""`mrsa-jax secagg`: print one round of secure aggregation, or a failure study."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from mrsa_jax._core import flags
from mrsa_jax.cli._run import run_kind
from mrsa_jax.cli.console import print_json, print_sentences, use_cores
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study import SecaggConfig
from mrsa_watch._base.errors import require


def run_secagg(config: SecaggConfig) -> int:
    """Run a round or a study and return the exit status.

    0, or 1 for a round that failed.
    """
    findings, _ = run_kind(
        config, _print_round if config.trials is None else _print_failures
    )
    content = findings.content
    if config.trials is not None:
        return 0
    return (
        0
        if content["status"] == "OK" and content["total_is_plain_sum"] is not False
        else 1
    )


def _print_round(findings: Any) -> None:
    steps, modelled = findings.content["steps"], findings.content["modelled_seconds"]
    headings = [
        "step",
        "clients left",
        "clients (s)",
        "server (s)",
        "bytes up",
        "bytes down",
        "bytes of one",
    ]
    rows = [_cells(step) for step in (*steps, _all_steps(steps))]
    if modelled:
        headings.append("modelled (s)")
        for row, seconds in zip(
            rows, (*modelled["steps"], sum(modelled["steps"])), strict=True
        ):
            row.append(f"{seconds:.3g}")
    console = print_table(headings, rows, title=findings.title, has_total=True)
    print_sentences(console, findings.sentences)


def _all_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all steps together; those that were not measured add nothing to times."""
    # a step that was not measured is None, which no sum takes in
    totals = {}
    for name in _NUMBERS:
        measured = [step[name] for step in steps if step[name] is not None]
        totals[name] = sum(measured) if measured else None
    return {
        "name": "all four" if len(steps) == 4 else "all five",
        "num_clients": "",
        **totals,
    }


_NUMBERS = {
    "client_seconds": ".3f",
    "server_seconds": ".3f",
    "bytes_up": ",",
    "bytes_down": ",",
    "mean_bytes_of_a_client": ",.0f",
}
"""The numbers of a step, and their formats."""


def _cells(step: dict[str, Any]) -> list[str]:
    numbers = (
        "not measured" if step[name] is None else format(step[name], form)
        for name, form in _NUMBERS.items()
    )
    return [step["name"], str(step["num_clients"]), *numbers]


def _print_failures(findings: Any) -> None:
    from mrsa_jax.study.secagg import RATES, power

    bounds = findings.content["log10_bounds"]
    words = {
        "theorem_5": "Theorem 5",
        "union": "exact union",
        "first_moment": "first moment",
        "theorem_6": "Theorem 6",
        "exact": "exact",
    }
    rows = []
    for name, label in RATES.items():
        rate = findings.content["rates"][name]
        of_rate = {
            key.removeprefix(f"{name}_"): v
            for key, v in bounds.items()
            if key.startswith(name)
        }
        ends = f"{rate['lower']:.2g} to {rate['upper']:.2g}"
        limits = ", ".join(
            f"{words[key]} {power(value)}" for key, value in of_rate.items()
        )
        rows.append((label, str(rate["count"]), f"{rate['rate']:.3g}", ends, limits))
    headings = ("what happens", "rounds", "rate", "95 % interval", "bounds")
    console = print_table(headings, rows, title=findings.title, left=(0, 3, 4))
    print_sentences(console, findings.sentences)


@dataclasses.dataclass(frozen=True)
class PlanConfig:
    """Plan one round: the sparsest graph and the rule for t that keep two targets.

    Compares random and Harary graphs with CCESA's p*, SecAgg+'s finder and SecAgg.
      mrsa-jax secagg plan --num-clients 1000 --total-dropout-rate 0.1
      mrsa-jax secagg plan --num-clients 200 --step-dropout-rates 0.01 0.01 0.05 0.02

    Exit status: 0 done; 1 no graph keeps both targets; 2 misuse.
    """

    num_clients: Annotated[int, flags.Within(3)] = 1000
    """Number of clients, n."""

    total_dropout_rate: Annotated[flags.Number, flags.IS_SHARE] = None
    """Probability that a client is lost in one of the four steps, the same at each.
    Default: 0.1, unless --step-dropout-rates is set."""

    step_dropout_rates: Annotated[
        tuple[float, ...], flags.IS_CHANCE, flags.shown()
    ] = ()
    """Probability that a client is lost at a step: one for all, or four. Default: as
    --total-dropout-rate selects."""

    no_sum: flags.Inside = 1e-6
    """Largest probability that a round ends without a sum."""

    leak: flags.Inside = 1e-12
    """Largest probability that a round is not private (Theorem 2 of CCESA) or that the
    attack in its Appendix F could unmask a client."""

    dim: flags.Whole = 10_000
    """Residues in each client's input, for the costs."""

    modulus_bits: flags.Bits = 16
    """Sums are taken modulo 2**b, for the costs."""

    up_mbits: flags.Positive = 10.0
    """Mbit/s of a client's uplink, for the seconds; ten times that down."""

    block_size: Annotated[flags.Count, flags.Within(2)] = None
    """T: also plan over_blocks:T:K, blocks of T clients over a Harary graph. Default: no
    such design."""

    straggler_rate: flags.Share = 0.0
    """Probability that a client is a straggler in a round."""

    straggler_slowdown: Annotated[float, flags.IS_GROUP] = 10.0
    """Factor by which a straggler computes and sends more slowly."""

    deadline: Annotated[flags.Number, flags.IS_POSITIVE] = None
    """Seconds that the server waits at each step. Clients that need longer are lost at
    that step. Default: no limit."""

    json: bool = False
    """Print everything as JSON instead."""


def run_plan(config: PlanConfig) -> int:
    """Print the designs of a round and return the exit status."""
    flags.check_ranges(config)
    total, steps = config.total_dropout_rate, config.step_dropout_rates
    rule = "must not be set together with --step-dropout-rates"
    require(total is None or not steps, "total_dropout_rate", rule, total)
    rule = "must be one probability or four"
    require(len(steps) in (0, 1, 4), "step_dropout_rates", rule, *steps)
    use_cores()
    from mrsa_jax import secagg

    of_all = 0.1 if total is None else total
    usual = -math.expm1(math.log1p(-of_all) / 4)
    losses = list(steps) if len(steps) == 4 else [*steps, usual][0]
    plan = secagg.plan(
        config.num_clients,
        losses,
        no_sum=config.no_sum,
        leak=config.leak,
        dim=config.dim,
        modulus_bits=config.modulus_bits,
        model=secagg.costs.latency_model(
            up_bytes_per_second=config.up_mbits * 1.25e5,
            down_bytes_per_second=config.up_mbits * 1.25e6,
        ),
        block_size=config.block_size,
        straggler_rate=config.straggler_rate,
        straggler_slowdown=config.straggler_slowdown,
        deadline=config.deadline,
    )
    if config.json:
        print_json(_plan_content(plan))
    else:
        _print_plan(plan)
    return 0 if plan.best is not None else 1


def _log10(natural: float) -> float | None:
    """Return a logarithm to base 10; None of zero, which JSON cannot hold."""
    return None if natural == -math.inf else natural / math.log(10.0)


def _plan_content(plan: Any) -> dict[str, Any]:
    designs = []
    for planned in plan.rounds:
        design = dataclasses.asdict(planned)
        logs = [name for name in design if name.startswith("log_")]
        for name in logs:
            design[f"log10_{name.removeprefix('log_')}"] = _log10(design.pop(name))
        designs.append(design)
    return dataclasses.asdict(plan) | {"rounds": designs}


def _print_plan(plan: Any) -> None:
    from mrsa_jax.study.secagg import power

    def chance(natural: float) -> str:
        return power(_log10(natural))

    rows = []
    for planned in plan.rounds:
        number = "" if planned.number is None else f" {planned.number:g}"
        risks = (planned.log_no_sum, planned.log_not_private, planned.log_unmaskable)
        rows.append(
            [
                planned.name,
                f"{planned.graph}{number}",
                str(planned.threshold),
                *map(chance, risks),
                f"{1.0 - math.prod(1.0 - rate for rate in planned.losses):.3g}",
                "yes" if planned.keeps else "NO",
                f"{planned.client_bytes:,.0f}",
                f"{planned.keystream_words:,.0f}",
                f"{planned.seconds:.3g}",
            ]
        )
    headings = (
        "design",
        "graph",
        "t",
        "no sum",
        "not private",
        "unmaskable",
        "lost",
        "keeps both",
        "bytes",
        "keystream words",
        "seconds",
    )
    rates = ", ".join(f"{rate:.3g}" for rate in plan.losses)
    title = (
        f"{plan.num_clients:,} clients, lost at the four steps with probability {rates}"
        f"\ntargets: no sum {plan.no_sum:g}, leak {plan.leak:g}; bytes and words per "
        "client"
    )
    console = print_table(headings, rows, title=title, left=(0, 1))
    best = plan.best
    if best is None:
        print_sentences(
            console, ["No graph keeps both targets, not even the complete."]
        )
        return
    number = "" if best.number is None else f" with {best.number:g}"
    print_sentences(
        console,
        [
            f"Fewest bytes: {best.graph}{number}, t = {best.threshold}.",
            "Probabilities are upper bounds for independent losses.",
        ],
    )
