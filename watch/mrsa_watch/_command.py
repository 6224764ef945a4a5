"""`mrsa-watch record | watch | gate | check | preflight`: what a server needs, without JAX."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mrsa_watch._base.errors import MrsaError, require
from mrsa_watch._version import __version__

MISUSE, BELOW, INTERRUPTED = 2, 3, 130
# spellings of version 1.0 that are still read
_OLD_FLAGS = {"--clients": "--num-clients", "--cohort": "--cohort-size", "--loss": "--loss-rate",
              "--away": "--dropout-rates"}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    given = list(sys.argv[1:] if words is None else words)
    if given[:1] == ["check"]:  # a program by itself, which its holders may run without us
        from mrsa_watch import mrsa_check

        return mrsa_check.main(given[1:])
    if given[:1] == ["preflight"]:
        given = [_in_new_spelling(word) for word in given]
    chosen = _parser().parse_args(given)
    run: Callable[[Any], int] = chosen.run
    try:
        return run(chosen)
    except MrsaError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # no reader is left; Python would flush once more, and report it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _in_new_spelling(word: str) -> str:
    flag, equals, value = word.partition("=")
    return _OLD_FLAGS.get(flag, flag) + equals + value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mrsa-watch",
        description="Record the members of each sum of a federation, and watch what sums reveal.",
    )
    parser.add_argument("--version", action="version", version=f"mrsa-watch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add = _command(commands, "record", _record, "append one line per sum, read from standard input",
                   'Each line of input is JSON of one sum, such as {"round": 1, "clients": ["anna"'
                   ', "bob"]}, with weights, status, asked, lost, noise and clip where they are '
                   "known, and part if the sum is over some coordinates only. A line is on the "
                   "disk before the next one is read.")  # fmt: skip
    add("log", type=pathlib.Path, help="participation log; a new file, or one that is continued")
    add("--system", required=True, help="recorded system, with its version")
    add("--aggregation", required=True, help='"secagg+", "secagg", "plain" or other text')
    add("--plain-names", action="store_true", help="keep clients' names instead of pseudonyms")

    add = _command(commands, "watch", _watch, "follow a log: one line per sum",
                   "Exit status 3 at the first sum that breaks a requirement.")  # fmt: skip
    add("log", type=pathlib.Path, help="participation log in JSON Lines")
    _bars(add)
    add("--memory", type=float, metavar="RHO",
        help="correlation of a client's updates from round to round: report the worst update of "
        "any one round, which --fail-below-hidden then compares")  # fmt: skip
    add("--share", type=float, default=1.0, metavar="A",
        help="fraction of an update's variance that lasts (%(default)s)")  # fmt: skip
    add("--once", action="store_true", help="stop at the end of the file")
    add("--wait", action="store_true", help="wait for a log that does not exist yet")
    add("--keep-going", action="store_true", help="continue after a breach")
    add(
        "--poll",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="seconds between two looks at the log",
    )
    add("--out", type=pathlib.Path, metavar="FILE", help="keep one line of JSON per sum, each once")
    add("--metrics", type=pathlib.Path, metavar="FILE",
        help="keep the latest values in Prometheus's text format")  # fmt: skip
    add("--json", action="store_true", help="print JSON instead of words")

    add = _command(commands, "gate", _gate, "check whether the sums of cohorts may be learnt",
                   "Each line of standard input is a JSON list of clients, named as in the log, or "
                   'of a sum over a part of the vector {"clients": [...], "part": "..."}; '
                   "each line of output states whether their sum is allowed too, and which "
                   "clients to exclude. Exit status 3 if one was refused.")  # fmt: skip
    add("log", type=pathlib.Path, help="participation log in JSON Lines")
    _bars(add)

    _command(commands, "check", _gate, "check a certificate of an audit against its log",
             "mrsa-watch check CERTIFICATE LOG; `mrsa-watch check --help` shows more.")  # fmt: skip

    add = _command(commands, "preflight", _preflight, "compute what to expect of a plan",
                   "How likely rounds are to work, and what the sums of simulated histories "
                   "reveal. Exit status 3 if a requirement does not hold.")  # fmt: skip
    for flag, metavar, text in (
        ("--num-clients", "N", "enrolled clients"),
        ("--cohort-size", "K", "clients selected per round"),
        ("--rounds", "R", "planned rounds"),
    ):
        add(flag, type=int, required=True, metavar=metavar, help=text)
    add("--threshold", type=int, metavar="t", help="fewest updates for a sum (default: 2)")
    add("--loss-rate", type=float, default=0.0, metavar="P",
        help="probability that a selected client is lost")  # fmt: skip
    add("--dropout-rates", type=float, default=0.0, metavar="P",
        help="probability that a client is offline")  # fmt: skip
    add("--blocks", type=int, default=1, metavar="T", help="clients that always move together")
    add("--trials", type=int, default=5, help="histories to simulate (%(default)s)")
    add("--seed", type=int, default=0, help="seed of the simulations (%(default)s)")
    _bars(add)
    add("--fail-below-chance", type=float, metavar="P", help="least probability that a round works")
    add("--json", action="store_true", help="print JSON instead of words")
    return parser


def _command(
    commands: Any, name: str, run: Callable[[Any], int], summary: str, more: str
) -> Callable[..., Any]:
    parser = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}. {more}")
    parser.set_defaults(run=run)
    return parser.add_argument


def _bars(add: Callable[..., Any]) -> None:
    add("--fail-below", type=int, metavar="T",
        help="least weak T that must be known (2: no client is exposed)")  # fmt: skip
    add("--fail-below-hidden", type=float, metavar="CLIENTS",
        help="least number that each client must be hidden among")  # fmt: skip


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _told_speed() -> None:
    if importlib.util.find_spec("numba") is None:
        _warn("numba is not installed: the same figures, slower")


def _objects(kind: type | tuple[type, ...], what: str) -> Any:
    """Yield the JSON values of standard input's lines."""
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        require(isinstance(value, kind), "input", f"must hold {what} a line", f"line {number}")
        yield number, value


def _record(chosen: Any) -> int:
    from mrsa_watch._recorder import Recorder

    known = {"round", "clients", "sum", "weights", "status", "asked", "lost", "noise", "clip",
             "part"}  # fmt: skip
    salt = b"" if chosen.plain_names else None
    names = {"system": chosen.system, "aggregation": chosen.aggregation}
    with Recorder(chosen.log, salt=salt, **names) as recorder:
        for number, fields in _objects(dict, "a JSON object"):
            missing, other = {"round", "clients"} - fields.keys(), fields.keys() - known
            rule = f"must hold round, clients and no others than {', '.join(sorted(known))}"
            require(not missing and not other, "input", rule,
                    f"line {number}: {', '.join(sorted(missing | other))}")  # fmt: skip
            recorder.record(**fields)
    return 0


def _watch(chosen: Any) -> int:
    from mrsa_watch._gate import Gate
    from mrsa_watch._updates import checked_updates
    from mrsa_watch._watch import print_sums

    updates = checked_updates(chosen.memory, chosen.share)
    is_there = chosen.log.exists()
    rule = "must be a participation log that is there (--wait waits for one that is not there yet)"
    require(is_there or (chosen.wait and not chosen.once), "log", rule, str(chosen.log))
    require(chosen.poll > 0, "poll", "must be positive", chosen.poll)
    _told_speed()
    is_below = print_sums(
        chosen.log,
        Gate(chosen.fail_below, None if updates else chosen.fail_below_hidden),
        poll_seconds=None if chosen.once else chosen.poll,
        updates=updates,
        least_hidden=chosen.fail_below_hidden,
        out=chosen.out,
        metrics=chosen.metrics,
        keep_going=chosen.keep_going,
        as_json=chosen.json,
        warn=_warn,
    )
    return BELOW if is_below else 0


def _gate(chosen: Any) -> int:
    from mrsa_watch._gate import Gate

    _told_speed()
    bars = {"fail_below": chosen.fail_below, "fail_below_hidden": chosen.fail_below_hidden}
    gate = Gate.from_log(chosen.log, **bars)
    is_refused = False
    for number, asked in _objects((list, dict), "a JSON list of clients, or an object with them"):
        named = asked if isinstance(asked, dict) else {"clients": asked}
        good = "clients" in named and named.keys() <= {"clients", "part"}
        require(good, "input", "must hold clients, and part or nothing else", f"line {number}")
        (answer,) = gate.check([named["clients"]], named.get("part"))
        is_refused = is_refused or not answer.allowed
        told = {"allowed": answer.allowed, "leave_out": list(answer.leave_out),
                "reason": answer.reason}  # fmt: skip
        print(json.dumps(told), flush=True)
    return BELOW if is_refused else 0


def _preflight(chosen: Any) -> int:
    from mrsa_watch._preflight import preflight

    found = preflight(
        chosen.num_clients,
        chosen.cohort_size,
        chosen.threshold,
        num_rounds=chosen.rounds,
        loss=chosen.loss_rate,
        away=chosen.dropout_rates,
        block_size=chosen.blocks,
        trials=chosen.trials,
        seed=chosen.seed,
        fail_below=chosen.fail_below,
        fail_below_hidden=chosen.fail_below_hidden,
        fail_below_chance=chosen.fail_below_chance,
    )
    print(json.dumps(found.to_dict()) if chosen.json else found.to_words())
    return BELOW if found.breaches else 0
