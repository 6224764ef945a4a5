"""`mrsa-jax secagg`: print one round of secure aggregation, or a failure study."""

from __future__ import annotations

from typing import Any

from mrsa_jax.cli._run import run_kind
from mrsa_jax.cli.console import print_sentences
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study import SecaggConfig


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
