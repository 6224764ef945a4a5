"""`mrsa-jax watch FILE`: what a growing participation log leaks, a line a sum, and a gate."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sys
from typing import Annotated, Any

import tyro

from mrsa_jax._core.checks import POSITIVE
from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.errors import require
from mrsa_jax._core.flags import IS_GROUP, File, Within, check_ranges
from mrsa_jax._core.html import hidden_words
from mrsa_jax._core.untrusted import printable
from mrsa_jax.cli._audit import BELOW_TARGET
from mrsa_jax.cli._console import Interrupts, error_console, escape, use_cores

_MOST_NAMED = 3
_IS_TIME = Within(POSITIVE, rule="must be positive and finite")


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """Follow a participation log while it grows: a line a sum of what leaks, and a gate.

    The log is the JSON Lines of `mrsa_jax.live.Recorder` and its adapters; mrsa-jax audit reads
    logs of other kinds. Each learnt sum gives one line: the clients so far, the rank of the sums,
    exposed clients, strong T, the bounds of weak T, and the worst hidden client. The log is all the
    state there is: start again at any time, and the figures are the same to the last digit.
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
    """Stop with status 3 unless weak T of at least this is known (2: nobody is exposed)."""

    fail_below_hidden: Annotated[float | None, IS_GROUP, tyro.conf.arg(metavar="CLIENTS")] = None
    """Stop with status 3 unless each client is hidden among so many; noise is not counted."""

    wait: bool = False
    """Wait for FILE if it is not there yet; without this flag its absence is an error."""

    keep_going: bool = False
    """Go on after a breach."""

    once: bool = False
    """Stop at the end of the file in place of waiting for more."""

    out: File = None
    """Keep one line of JSON a sum in this file, each once however often watch starts anew."""

    poll: Annotated[float, _IS_TIME, tyro.conf.arg(metavar="SECONDS")] = 0.5
    """How often to look for more."""

    effort: Annotated[float, Within(0.0, rule="must be a finite number of at least 0")] = 0.01
    """What weak T may take where cheap bounds leave T above 3 open: 1 is 90 seconds of a core."""

    json: bool = False
    """Print a line of JSON a sum instead."""


def run_watch(config: WatchConfig) -> int:
    """Follow the log and return the exit status: 0, or 3 where a bar does not hold."""
    _check(config)
    use_compile_cache()
    use_cores(1)
    if not config.file.exists():
        _warn(f"{config.file} is not there yet: waiting for it")
    from mrsa_jax.live import Gate
    from mrsa_watch._watch import Kept, watch

    gate = Gate(config.fail_below, config.fail_below_hidden, config.effort)
    is_below, is_plain = False, False
    with contextlib.ExitStack() as stack:
        kept = None if config.out is None else stack.enter_context(Kept(config.out))
        interrupts = stack.enter_context(Interrupts())
        for found in watch(config.file, gate, None if config.once else config.poll):
            interrupts.check()
            content = found.to_dict()
            is_new = kept is None or kept.put(content)
            if found.aggregation == "plain" and not is_plain:
                is_plain = True
                _warn("in this log the server saw every update by itself (aggregation: plain); "
                      "what follows is what the sums alone would leak")  # fmt: skip
            if is_new:
                sys.stdout.write(f"{json.dumps(content) if config.json else _words(found)}\n")
                sys.stdout.flush()
            is_below = is_below or bool(found.state.breaches)
            if is_below and not config.keep_going:
                break
            if not config.once and getattr(sys.stdout, "failure", None) is not None:
                break  # nobody reads what is found
    return BELOW_TARGET if is_below else 0


def _check(config: WatchConfig) -> None:
    may_come = config.wait and not config.once
    more = "" if config.once else " (--wait waits for one that is not there yet)"
    rule = f"must be a participation log that is there{more}"
    require(may_come or config.file.exists(), "file", rule, str(config.file))
    check_ranges(config)


def _words(found: Any) -> str:
    """Return a sum's line for people."""
    line, state = found.line, found.state
    name = f"round {line.round}" + (f" sum {line.sum}" if line.sum else "")
    name = f"run {line.run} {name}" if line.run else name
    exposed = f"{len(state.exposed)} exposed"
    if found.newly_exposed:
        told = ", ".join(printable(client) for client in found.newly_exposed[:_MOST_NAMED])
        more = len(found.newly_exposed) - _MOST_NAMED
        exposed += f" (new: {told}{f' and {more} others' if more > 0 else ''})"
    interval = str(state.lower)
    if state.lower != state.upper:
        interval += f" to {state.upper}"
    hidden = "worst hidden not known"
    if state.hidden is not None:
        who = printable(state.hidden_client)
        hidden = f"worst hidden among {hidden_words(state.hidden)} ({who})"
    parts = [
        f"{state.clients} clients, rank {state.rank}",
        exposed,
        f"strong T {state.strong}",
        f"weak T {interval}{' (searched)' if state.is_searched else ''}",
        hidden,
        *(f"BREACH: {why}" for why in found.new_breaches),
    ]
    return f"{name}: {'; '.join(parts)}"


def _warn(text: str) -> None:
    error_console().print(f"[yellow]warning:[/] {escape(text)}", highlight=False)
