"""`mrsa-jax audit FILE`: print what a log of any system leaks, and a gate for pipelines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax.cli._console import Bars, escape, print_table
from mrsa_jax.study._kinds import validate

if TYPE_CHECKING:
    from mrsa_jax.study._audit_config import AuditConfig
    from mrsa_jax.study.audit._findings import AuditFindings

__all__ = ["BELOW_TARGET", "run_audit"]

BELOW_TARGET = 3  # exit status of a gate that failed
INTERRUPTED = 130


def run_audit(config: AuditConfig) -> int:
    """Audit a log and return the exit status: 0, 3 where the gate fails, 130 if interrupted."""
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    from mrsa_jax import study

    with Bars() as bars:

        def show(found: AuditFindings) -> None:
            bars.rest()
            _show(config, found)

        found = study.run_and_save(config, bars, show)
    if config.out is not None and not config.json:
        sys.stdout.write(
            f"\nWritten to {config.out}; mrsa-jax report {config.out} makes a page of it\n"
        )
    if not found.is_complete:
        return INTERRUPTED
    return 0 if found.gate is None or found.gate.passed else BELOW_TARGET


def _show(config: AuditConfig, found: AuditFindings) -> None:
    if config.json:
        content = found.content
        if config.out is not None:
            content["out"] = str(config.out)
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    headings = ("question", "answer", "how sure")
    console = print_table(headings, found.summary, title=found.title, left=(0, 1, 2))
    for sentence in found.sentences:
        console.print(sentence, highlight=False, markup=False)
    if found.audit.recipe is not None:
        console.print(
            "Exact where a client's update stays the same over the rounds; otherwise the recipe "
            "gives it up to the change.",
            style="dim",
        )
    gate = found.gate
    if gate is not None:
        verdict = "[green]PASSED[/]" if gate.passed else "[bold red]FAILED[/]"
        console.print(f"\n{verdict}: {escape(gate.reason)}", highlight=False)
