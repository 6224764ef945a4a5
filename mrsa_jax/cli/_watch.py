"""`mrsa-jax watch FILE`: what a growing participation log leaks, one line per sum, and a gate."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Annotated, Any

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.flags import IS_CHANCE, IS_GROUP, File, Within, check_ranges
from mrsa_jax.cli._audit import BELOW_TARGET
from mrsa_jax.cli._console import Interrupts, error_console, escape, use_cores
from mrsa_watch._base.errors import POSITIVE, require

_IS_TIME = Within(POSITIVE, rule="must be positive and finite")


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """Follow a participation log while it grows: one line per sum, and a gate.

    The log is the JSON Lines of `mrsa_jax.live.Recorder` and its adapters; mrsa-jax audit reads
    logs of other kinds. Each learnt sum gives one line: the clients so far, the rank of the sums,
    exposed clients, strong T, the bounds of weak T, and the worst hidden client. The log is the
    only state: start again at any time, and the figures are the same to the last digit.
    Rounds are numbered as the log numbers them.
      mrsa-jax watch participation.jsonl --fail-below 3 --fail-below-hidden 2
      mrsa-jax watch participation.jsonl --wait
      mrsa-jax watch participation.jsonl --once --json
      mrsa-jax watch participation.jsonl --fail-below 2 --out state.jsonl --keep-going

    Exit status: 0 the end of the file (--once), 2 misuse or a line that is none, 3 at the first
    sum after which a bar does not hold (with --keep-going at the end), 130 on Ctrl-C.
    """

    file: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = (
        tyro.MISSING
    )
    """Participation log in JSON Lines."""

    fail_below: Annotated[int | None, Within(1), tyro.conf.arg(metavar="T")] = None
    """Stop with status 3 unless weak T of at least this is known (2: no client is exposed)."""

    fail_below_hidden: Annotated[float | None, IS_GROUP, tyro.conf.arg(metavar="CLIENTS")] = None
    """Stop with status 3 unless each client is hidden among at least this many clients; noise is
    not counted."""

    memory: Annotated[float | None, IS_CHANCE, tyro.conf.arg(metavar="RHO")] = None
    """Correlation of a client's updates from one round to the next, below 1: report the worst
    update of any one round, which --fail-below-hidden then judges."""

    share: Annotated[float, IS_CHANCE, tyro.conf.arg(metavar="A")] = 1.0
    """Share of an update's variance that lasts, with --memory; the rest is fresh in each round."""

    wait: bool = False
    """Wait for FILE if it is not there yet; without this flag its absence is an error."""

    keep_going: bool = False
    """Continue after a breach."""

    once: bool = False
    """Stop at the end of the file instead of waiting for more."""

    out: File = None
    """Keep one line of JSON a sum in this file, each once however often watch starts anew."""

    metrics: File = None
    """Hold the figures after the last sum in this file, for Prometheus to read (OpenMetrics)."""

    poll: Annotated[float, _IS_TIME, tyro.conf.arg(metavar="SECONDS")] = 0.5
    """How often to look for more."""

    effort: Annotated[float, Within(0.0, rule="must be a finite number of at least 0")] = 0.01
    """What weak T may take where cheap bounds leave T above 3 open: 1 is 90 seconds of a core."""

    json: bool = False
    """Print a line of JSON a sum instead."""


def run_watch(config: WatchConfig) -> int:
    """Follow the log and return the exit status: 0, or 3 where a bar does not hold."""
    _check(config)
    updates = _updates(config)
    use_compile_cache()
    use_cores(1)
    if not config.file.exists():
        _warn(f"{config.file} is not there yet: waiting for it")
    from mrsa_jax.live import Gate
    from mrsa_watch._watch import print_sums

    with Interrupts() as interrupts:

        def goes_on() -> bool:
            interrupts.check()
            # nobody may read what is found
            return config.once or getattr(sys.stdout, "failure", None) is None

        is_below = print_sums(
            config.file,
            Gate(config.fail_below, None if updates else config.fail_below_hidden, config.effort),
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
    may_come = config.wait and not config.once
    more = "" if config.once else " (--wait waits for one that is not there yet)"
    rule = f"must be a participation log that is there{more}"
    require(may_come or config.file.exists(), "file", rule, str(config.file))
    check_ranges(config)


def _updates(config: WatchConfig) -> Any:
    from mrsa_watch._updates import checked_updates  # with NumPy, which `--help` does without

    return checked_updates(config.memory, config.share)


def _warn(text: str) -> None:
    error_console().print(f"[yellow]warning:[/] {escape(text)}", highlight=False)
