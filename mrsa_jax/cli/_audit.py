"""`mrsa-jax audit FILE` and `watch FILE`.

What a log of any system leaks, whole or as it grows.
Both are a gate for pipelines.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Annotated, Any

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.flags import IS_CHANCE, IS_GROUP, File, Within, check_ranges, shown
from mrsa_jax.cli._run import INTERRUPTED, run_kind
from mrsa_jax.cli.console import (
    INTERRUPTS,
    error_console,
    escape,
    print_sentences,
    use_cores,
)
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study import AdviseConfig, AuditConfig
from mrsa_watch._base.errors import POSITIVE, require

BELOW_TARGET = 3  # exit status of a gate that failed


def run_audit(config: AuditConfig) -> int:
    """Audit a log and return the exit status.

    0, 3 where the gate fails, 130 if cut short.
    """
    out = {} if config.out is None else {"out": str(config.out)}
    proofs = (
        {} if config.certificate is None else {"certificate": str(config.certificate)}
    )
    findings, _ = run_kind(
        config, _print, as_json=lambda findings: findings.content | out | proofs
    )
    if proofs and not config.json:
        sys.stdout.write(
            f"\nCertificate written to {config.certificate}; anybody can check it by "
            "Python alone: "
            f"python mrsa_check.py {config.certificate} {config.file}\n"
        )
    if out and not config.json:
        page = f"mrsa-jax report {config.out} makes a page of it"
        sys.stdout.write(f"\nWritten to {config.out}; {page}\n")
    if not findings.is_complete:
        return INTERRUPTED
    return 0 if all(gate.passed for gate in findings.gates) else BELOW_TARGET


def _print(findings: Any) -> None:
    headings = ("question", "answer", "how sure")
    console = print_table(
        headings, findings.summary, title=findings.title, left=(0, 1, 2)
    )
    print_sentences(console, findings.sentences)
    if findings.audit.recipe is not None:
        words = (
            "Exact where a client's update stays the same over the rounds; otherwise "
            "the "
        )
        console.print(f"{words}recipe gives it up to the change.", style="dim")
    for gate in findings.gates:
        verdict = "[green]PASSED[/]" if gate.passed else "[bold red]FAILED[/]"
        console.print(f"\n{verdict}: {escape(gate.reason)}", highlight=False)


def run_advise(config: AdviseConfig) -> int:
    """Choose a scheme and return the exit status.

    0, or 3 if none gives what is demanded.
    """
    out = {} if config.out is None else {"out": str(config.out)}
    advice, _ = run_kind(
        config, _print_advice, as_json=lambda advice: advice.content | out
    )
    if out and not config.json:
        sys.stdout.write(f"\nWritten to {config.out}\n")
    return 0 if advice.chosen is not None else BELOW_TARGET


def _print_advice(advice: Any) -> None:
    console = print_table(advice.headings, advice.table, title=advice.title)
    print_sentences(console, advice.sentences)
    if advice.policies:
        loss = f"{100 * advice.policy_loss:.3g} %"
        title = f"{advice.policies[0].scheme}, {loss} lost inside rounds, and then:"
        print_table(("", *advice.headings[1:-1]), advice.policy_table, title=title)
    console.print(advice.reading, style="dim", highlight=False, markup=False)


_IS_TIME = Within(POSITIVE, rule="must be positive and finite")


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """Follow a participation log while it grows: one line per sum, and a gate.

    The log is the JSON Lines of `mrsa_jax.live.Recorder` and its adapters; mrsa-jax
    audit reads logs of other kinds. Each learnt sum gives one line: the clients so far,
    the rank of the sums, exposed clients, strong T, the bounds of weak T, and the worst
    hidden client. The log is the only state: a restart gives the same values to the
    last digit. Rounds have the numbers of the log.
      mrsa-jax watch participation.jsonl --fail-below 3 --fail-below-hidden 2
      mrsa-jax watch participation.jsonl --wait
      mrsa-jax watch participation.jsonl --once --json
      mrsa-jax watch participation.jsonl --fail-below 2 --out state.jsonl --keep-going

    Exit status: 0 the end of the file (--once), 2 misuse or an invalid line, 3 at the
    first sum that breaks a requirement (with --keep-going at the end), 130 on Ctrl-C,
    143 on SIGTERM.
    """

    file: Annotated[pathlib.Path, tyro.conf.Positional, shown("FILE")] = tyro.MISSING
    """Participation log in JSON Lines."""

    fail_below: Annotated[int | None, Within(1), shown("T")] = None
    """Stop with status 3 unless weak T is known to be at least this (2: no client is
    exposed). Default: no requirement."""

    fail_below_hidden: Annotated[float | None, IS_GROUP, shown("CLIENTS")] = None
    """Stop with status 3 unless every client is hidden among at least this many
    clients; noise is not counted. Default: no requirement."""

    memory: Annotated[float | None, IS_CHANCE, shown("RHO")] = None
    """Correlation of a client's updates from one round to the next, below 1: report how
    well the update of one round is hidden, which --fail-below-hidden then compares.
    Default: not reported."""

    share: Annotated[float, IS_CHANCE, shown("A")] = 1.0
    """Fraction of an update's variance that lasts, with --memory; the rest is fresh in
    each round. Below 1, what lasts of a client's updates is reported and compared as
    well."""

    wait: bool = False
    """Wait for FILE if it does not exist yet; without this flag, a missing file is an
    error."""

    keep_going: bool = False
    """Continue after a breach."""

    once: bool = False
    """Stop at the end of the file instead of waiting for more."""

    out: File = None
    """Keep one line of JSON per sum in this file, exactly one even after restarts.
    Default: not kept."""

    metrics: File = None
    """Keep the values after the last sum in this file, for Prometheus to read
    (OpenMetrics). Default: not kept."""

    poll: Annotated[float, _IS_TIME, shown("SECONDS")] = 0.5
    """Seconds between two looks at the file."""

    effort: Annotated[
        float, Within(0.0, rule="must be a finite number of at least 0")
    ] = 0.01
    """Computing allowance if cheap bounds do not decide a weak T above 3: 1 is 90
    seconds of a core."""

    json: bool = False
    """Print one line of JSON per sum instead."""


def run_watch(config: WatchConfig) -> int:
    """Follow the log and return the exit status: 0, or 3 where a bar does not hold."""
    _check(config)
    # with NumPy, which `--help` does without
    from mrsa_watch._updates import checked_updates

    updates = checked_updates(config.memory, config.share)
    use_compile_cache()
    use_cores(1)
    if not config.file.exists():
        _warn(f"{config.file} is not there yet: waiting for it")
    from mrsa_jax.live import Gate
    from mrsa_watch._watch import print_sums

    with INTERRUPTS as interrupts:
        if config.out is not None:
            words = (
                f"all sums that were printed are in {config.out}; the same command "
                "continues"
            )
            interrupts.kept = lambda: words

        def goes_on() -> bool:
            interrupts.check()
            # nobody may read what is found
            return config.once or getattr(sys.stdout, "failure", None) is None

        is_below = print_sums(
            config.file,
            Gate(
                config.fail_below,
                None if updates else config.fail_below_hidden,
                config.effort,
            ),
            poll_seconds=None if config.once else config.poll,
            updates=updates,
            least_hidden=config.fail_below_hidden,
            out=config.out,
            metrics=config.metrics,
            keep_going=config.keep_going,
            as_json=config.json,
            warn=_warn,
            goes_on=goes_on,
        )
    return BELOW_TARGET if is_below else 0


def _check(config: WatchConfig) -> None:
    check_ranges(config)
    if config.once:
        rule = "must not be set with --once, which waits for nothing"
        require(not config.wait, "wait", rule, config.wait)
        require(config.poll == WatchConfig.poll, "poll", rule, config.poll)
    more = "" if config.once else " (--wait waits for one that is not there yet)"
    rule = f"must be a participation log that is there{more}"
    require(config.wait or config.file.exists(), "file", rule, str(config.file))


def _warn(text: str) -> None:
    error_console().print(f"[yellow]warning:[/] {escape(text)}", highlight=False)
