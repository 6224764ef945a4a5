"""`mrsa-jax audit FILE`: print what a log of any system leaks, and a gate for pipelines."""

from __future__ import annotations

import sys
from typing import Any

from mrsa_jax.cli._console import escape, print_sentences, print_table
from mrsa_jax.cli._run import INTERRUPTED, run_kind
from mrsa_jax.study import AdviseConfig, AuditConfig

BELOW_TARGET = 3  # exit status of a gate that failed


def run_audit(config: AuditConfig) -> int:
    """Audit a log and return the exit status: 0, 3 where the gate fails, 130 if interrupted."""
    out = {} if config.out is None else {"out": str(config.out)}
    proofs = {} if config.certificate is None else {"certificate": str(config.certificate)}
    found, _ = run_kind(config, _print, as_json=lambda found: found.content | out | proofs)
    if proofs and not config.json:
        sys.stdout.write(
            f"\nCertificate written to {config.certificate}; anybody can check it by Python alone: "
            f"python mrsa_check.py {config.certificate} {config.file}\n"
        )
    if out and not config.json:
        sys.stdout.write(
            f"\nWritten to {config.out}; mrsa-jax report {config.out} makes a page of it\n"
        )
    if not found.is_complete:
        return INTERRUPTED
    return 0 if all(gate.passed for gate in found.gates) else BELOW_TARGET


def _print(found: Any) -> None:
    headings = ("question", "answer", "how sure")
    console = print_table(headings, found.summary, title=found.title, left=(0, 1, 2))
    print_sentences(console, found.sentences)
    if found.audit.recipe is not None:
        console.print(
            "Exact where a client's update stays the same over the rounds; otherwise the recipe "
            "gives it up to the change.",
            style="dim",
        )
    for gate in found.gates:
        verdict = "[green]PASSED[/]" if gate.passed else "[bold red]FAILED[/]"
        console.print(f"\n{verdict}: {escape(gate.reason)}", highlight=False)


# ---- `mrsa-jax advise`: print what each selection scheme gives, and which to take.


def run_advise(config: AdviseConfig) -> int:
    """Choose a scheme and return the exit status: 0, or 3 if none gives what is demanded."""
    out = {} if config.out is None else {"out": str(config.out)}
    found, _ = run_kind(config, _print_advice, as_json=lambda found: found.content | out)
    if out and not config.json:
        sys.stdout.write(f"\nWritten to {config.out}\n")
    return 0 if found.chosen is not None else BELOW_TARGET


def _print_advice(found: Any) -> None:
    console = print_table(found.headings, found.table, title=found.title)
    print_sentences(console, found.sentences)
    if found.policies:
        loss = f"{100 * found.policy_loss:.3g} %"
        title = f"{found.policies[0].scheme}, {loss} lost inside rounds, and then:"
        print_table(("", *found.headings[1:-1]), found.policy_table, title=title)
    console.print(found.reading, style="dim", highlight=False, markup=False)
