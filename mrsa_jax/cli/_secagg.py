"""`mrsa-jax secagg`: print one round of secure aggregation, or a failure study."""

from __future__ import annotations

import json
import sys
from typing import Any

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax.cli._console import Bars, print_table
from mrsa_jax.study._findings import Findings
from mrsa_jax.study._kinds import validate
from mrsa_jax.study._secagg_config import SecaggConfig

__all__ = ["DESCRIPTION", "DETAILS", "run_secagg"]

DESCRIPTION = "Run one round of secure aggregation and see what it costs, or count failures."

DETAILS = """

SecAgg, SecAgg+ and CCESA are one protocol over different graphs: complete, regular, random.
  mrsa-jax secagg --dropped-before-unmasking 0.1
  mrsa-jax secagg --fidelity real --num-clients 30 --dim 1000
  mrsa-jax secagg --graph erdos_renyi --num-clients 500 --step-dropout-rate 0.026
  mrsa-jax secagg --graph harary --degree 20 --up-mbits 10
  mrsa-jax secagg --fidelity real --num-clients 30 --consistency
  mrsa-jax secagg --graph erdos_renyi --trials 10000 --step-dropout-rate 0.01

Exit status: 0 done; 1 the round failed, so that no sum was learnt; 2 misuse.
"""


def run_secagg(config: SecaggConfig) -> int:
    """Run a round or a study and return the exit status: 0, or 1 for a round that failed."""
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    from mrsa_jax import study

    with Bars() as bars:
        found = study.run(config, bars)
    content = found.content
    if config.json:
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        console = _print_round(found) if config.trials is None else _print_failures(found)
        for sentence in found.sentences:
            console.print(sentence, highlight=False, markup=False)
    if config.trials is not None:
        return 0
    return 0 if content["status"] == "OK" and content["total_is_plain_sum"] is not False else 1


def _print_round(found: Findings) -> Any:
    steps, modelled = found.content["steps"], found.content["modelled_seconds"]
    headings = ["step", "clients left", "clients (s)", "server (s)", "bytes up", "bytes down",
                "bytes of one"]  # fmt: skip
    rows = [_cells(step) for step in (*steps, _all_steps(steps))]
    if modelled:
        headings.append("modelled (s)")
        for row, seconds in zip(rows, (*modelled["steps"], sum(modelled["steps"])), strict=True):
            row.append(f"{seconds:.3g}")
    return print_table(headings, rows, title=found.title, has_total=True)


def _all_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all steps together; those that were not measured add nothing to times."""

    def added(name: str) -> Any:
        known = [step[name] for step in steps if step[name] is not None]
        return sum(known) if known else None

    names = ("client_seconds", "server_seconds", "bytes_up", "bytes_down",
             "mean_bytes_of_a_client")  # fmt: skip
    totals = {name: added(name) for name in names}
    return {"name": "all four" if len(steps) == 4 else "all five", "num_clients": "", **totals}


def _cells(step: dict[str, Any]) -> list[str]:
    def seconds(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.3f}"

    return [
        step["name"],
        str(step["num_clients"]),
        seconds(step["client_seconds"]),
        seconds(step["server_seconds"]),
        f"{step['bytes_up']:,}",
        f"{step['bytes_down']:,}",
        f"{step['mean_bytes_of_a_client']:,.0f}",
    ]


def _print_failures(found: Findings) -> Any:
    from mrsa_jax.study.secagg._failures import RATES, power

    bounds = found.content["log10_bounds"]
    words = {
        "theorem_5": "Theorem 5",
        "union": "exact union",
        "first_moment": "first moment",
        "theorem_6": "Theorem 6",
        "exact": "exact",
    }
    rows = []
    for name, label in RATES.items():
        rate = found.content["rates"][name]
        own = {key.removeprefix(f"{name}_"): v for key, v in bounds.items() if key.startswith(name)}
        rows.append(
            (
                label,
                str(rate["count"]),
                f"{rate['rate']:.3g}",
                f"{rate['lower']:.2g} to {rate['upper']:.2g}",
                ", ".join(f"{words[key]} {power(value)}" for key, value in own.items()),
            )
        )
    headings = ("failure", "rounds", "rate", "95 % interval", "bounds")
    return print_table(headings, rows, title=found.title, left=(0, 3, 4))
