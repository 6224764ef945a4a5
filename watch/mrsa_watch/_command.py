"""`mrsa-watch record | watch | gate | check | preflight`.

What a server needs, without JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from mrsa_watch._base.errors import (
    ConfigurationError,
    DataNotFoundError,
    MrsaError,
    OutputExistsError,
    require,
)
from mrsa_watch._base.files import user_path
from mrsa_watch._base.streams import run_with_outlets
from mrsa_watch._base.untrusted import printable
from mrsa_watch._version import __version__

FAILED, MISUSE, BELOW, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MISUSE = (ConfigurationError, DataNotFoundError, OutputExistsError)
# spellings of version 1.0 that are still read
_OLD_FLAGS = {"--clients": "--num-clients", "--cohort": "--cohort-size", "--loss": "--loss-rate",
              "--away": "--dropout-rates"}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    given = list(sys.argv[1:] if words is None else words)
    with _termination_heard():
        return run_with_outlets(lambda: _run(given), _say_error)


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, by which supervisors and schedulers end a process."""


@contextlib.contextmanager
def _termination_heard() -> Iterator[None]:
    """Take SIGTERM for an interrupt, in the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough
    raise _TerminatedError


def _run(given: list[str]) -> int:
    try:
        # a program by itself, which its holders may run without us
        if given[:1] == ["check"]:
            from mrsa_watch import mrsa_check

            return mrsa_check.main(given[1:])
        if given[:1] == ["preflight"]:
            given = [_in_new_spelling(word) for word in given]
        chosen = _parser().parse_args(given)
        run: Callable[[Any], int] = chosen.run
        return run(chosen)
    except (MrsaError, OSError) as error:
        _say_error(str(error))
        return MISUSE if isinstance(error, _MISUSE) else FAILED
    except RecursionError:
        _say_error("a value is nested too deeply")
        return MISUSE
    except MemoryError:
        _say_error("the memory of this machine did not suffice")
        return FAILED
    except KeyboardInterrupt as interrupt:
        said = "interrupted; each line that was printed, kept or recorded is whole"
        print(f"{said}, and the same command continues", file=sys.stderr)
        return TERMINATED if isinstance(interrupt, _TerminatedError) else INTERRUPTED
    except SystemExit as stop:  # of --help, or of a flag that is unknown
        return stop.code if isinstance(stop.code, int) else MISUSE


def _say_error(text: str) -> None:
    print(f"error: {printable(text)}", file=sys.stderr)


def _in_new_spelling(word: str) -> str:
    flag, equals, value = word.partition("=")
    return _OLD_FLAGS.get(flag, flag) + equals + value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mrsa-watch",
        description="Record the members of each sum of a federation, and watch what sums reveal.",
    )
    parser.add_argument(
        "--version", action="version", version=f"mrsa-watch {__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add = _command(
        commands,
        "record",
        _record,
        "append one line per sum, read from standard input",
        'Each line of input is JSON of one sum, such as {"round": 1, "clients": ["anna"'
        ', "bob"]}, with weights, status, asked, lost, noise and clip where they are '
        "known, and part if the sum is over some coordinates only. A line is on the "
        "disk before the next one is read.",
    )
    add(
        "log",
        type=user_path,
        help="participation log; a new file, or one that is continued",
    )
    add("--system", required=True, help="recorded system, with its version")
    add(
        "--aggregation",
        required=True,
        help='"secagg+", "secagg", "plain" or other text',
    )
    add(
        "--plain-names",
        action="store_true",
        help="keep clients' names instead of pseudonyms",
    )

    add = _command(
        commands,
        "watch",
        _watch,
        "follow a log: one line per sum",
        "Exit status 3 at the first sum that breaks a requirement.",
    )
    add("log", type=user_path, help="participation log in JSON Lines")
    _bars(add)
    add(
        "--memory",
        type=float,
        metavar="RHO",
        help="correlation of a client's updates from round to round: report how well the update "
        "of one round is hidden, which --fail-below-hidden then compares",
    )
    add(
        "--share",
        type=float,
        default=1.0,
        metavar="A",
        help="fraction of an update's variance that lasts (%(default)s); below 1, what lasts is "
        "reported and compared as well",
    )
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
    add(
        "--out",
        type=user_path,
        metavar="FILE",
        help="keep one line of JSON per sum, each once",
    )
    add(
        "--metrics",
        type=user_path,
        metavar="FILE",
        help="keep the latest values in Prometheus's text format",
    )
    add("--json", action="store_true", help="print JSON instead of words")

    add = _command(
        commands,
        "gate",
        _gate,
        "check whether the sums of cohorts may be learnt",
        "Each line of standard input is a JSON list of clients, named as in the log, "
        "or "
        'an object {"clients": [...], "weights": [...], "part": "..."}, of which '
        "weights and part may be absent; clients may map each name to its weight. "
        "Each line of output states whether their sum is allowed too, which clients to "
        "exclude, how many of them the log knows, and its last round. The log is read "
        "on before each answer. Exit status 3 if one was refused.",
    )
    add("log", type=user_path, help="participation log in JSON Lines")
    _bars(add)
    add(
        "--salt",
        type=user_path,
        metavar="FILE",
        help="salt of the log's pseudonyms (LOG.salt), to ask with clients' names",
    )
    add(
        "--new-clients",
        action="store_true",
        help="take names that the log does not know as new clients (default: refuse)",
    )

    _command(
        commands,
        "check",
        _gate,
        "check a certificate of an audit against its log",
        "mrsa-watch check CERTIFICATE LOG; `mrsa-watch check --help` shows more.",
    )

    add = _command(
        commands,
        "preflight",
        _preflight,
        "compute what to expect of a plan",
        "How likely rounds are to work, and what the sums of simulated histories "
        "reveal. Exit status 3 if a requirement does not hold.",
    )
    for flag, metavar, text in (
        ("--num-clients", "N", "enrolled clients"),
        ("--cohort-size", "K", "clients selected per round"),
        ("--rounds", "R", "planned rounds"),
    ):
        add(flag, type=int, required=True, metavar=metavar, help=text)
    add(
        "--threshold",
        type=int,
        metavar="t",
        help="fewest updates for a sum (default: 2)",
    )
    add(
        "--loss-rate",
        type=float,
        default=0.0,
        metavar="P",
        help="probability that a selected client is lost",
    )
    add(
        "--dropout-rates",
        type=float,
        default=0.0,
        metavar="P",
        help="probability that a client is offline",
    )
    add(
        "--blocks",
        type=int,
        default=1,
        metavar="T",
        help="clients that always move together",
    )
    add("--trials", type=int, default=5, help="histories to simulate (%(default)s)")
    add("--seed", type=int, default=0, help="seed of the simulations (%(default)s)")
    _bars(add)
    add(
        "--fail-below-chance",
        type=float,
        metavar="P",
        help="least probability that a round works",
    )
    add("--json", action="store_true", help="print JSON instead of words")
    return parser


def _command(
    commands: Any, name: str, run: Callable[[Any], int], summary: str, more: str
) -> Callable[..., Any]:
    parser = commands.add_parser(
        name, help=summary, description=f"{summary.capitalize()}. {more}"
    )
    parser.set_defaults(run=run)
    return parser.add_argument


def _bars(add: Callable[..., Any]) -> None:
    add(
        "--fail-below",
        type=int,
        metavar="T",
        help="least weak T that must be known (2: no client is exposed)",
    )
    add(
        "--fail-below-hidden",
        type=float,
        metavar="CLIENTS",
        help="least number that each client must be hidden among",
    )


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _told_speed() -> None:
    if importlib.util.find_spec("numba") is None:
        _warn("numba is not installed: the same figures, slower")


def _objects(read: Callable[[bytes, str], Any]) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of standard input's lines, and the place of each.

    The input is UTF-8, whatever the locale says.
    """
    require(sys.stdin is not None, "input", "must be open")
    for number, text in enumerate(getattr(sys.stdin, "buffer", sys.stdin), start=1):
        line = (
            text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        )
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.strip():
            where = f"input, line {number}"
            yield where, read(line, where)


def _record(chosen: Any) -> int:
    from mrsa_watch._recorder import Recorder
    from mrsa_watch.logs import load_exactly

    known = {
        "round",
        "clients",
        "sum",
        "weights",
        "status",
        "asked",
        "lost",
        "noise",
        "clip",
        "part",
    }
    salt = b"" if chosen.plain_names else None
    names = {"system": chosen.system, "aggregation": chosen.aggregation}
    with Recorder(chosen.log, salt=salt, **names) as recorder:
        for where, fields in _objects(load_exactly):
            require(isinstance(fields, dict), where, "must hold a JSON object")
            missing, other = {"round", "clients"} - fields.keys(), fields.keys() - known
            rule = f"must hold round, clients and no others than {', '.join(sorted(known))}"
            require(
                not missing and not other,
                where,
                rule,
                ", ".join(sorted(missing | other)),
            )
            for key in ("noise", "clip"):
                if isinstance(fields.get(key), Fraction):
                    fields[key] = float(fields[key])
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
    from mrsa_watch.logs import load_exactly

    _told_speed()
    gate = Gate.from_log(
        chosen.log,
        salt=chosen.salt,
        fail_below=chosen.fail_below,
        fail_below_hidden=chosen.fail_below_hidden,
        new_clients=chosen.new_clients,
    )
    is_refused = False
    for where, asked in _objects(load_exactly):
        try:
            (answer,) = gate.check([_cohort(asked, where)], _part(asked))
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        is_refused = is_refused or not answer.allowed
        print(json.dumps(dataclasses.asdict(answer)), flush=True)
    return BELOW if is_refused else 0


def _cohort(asked: Any, where: str) -> Any:
    """Return the clients of a question, as a mapping to their weights where it has some."""
    from mrsa_watch.logs import client_text

    is_one = isinstance(asked, list | dict)
    require(is_one, where, "must hold a JSON list of clients, or an object with them")
    if isinstance(asked, list):
        return [client_text(client) for client in asked]
    is_known = "clients" in asked and asked.keys() <= {"clients", "weights", "part"}
    rule = "must hold clients, and weights, part or nothing else"
    require(is_known, where, rule, ", ".join(sorted(asked)))
    clients, weights = asked["clients"], asked.get("weights")
    if weights is None:
        return (
            [client_text(client) for client in clients]
            if isinstance(clients, list)
            else clients
        )
    are_lists = isinstance(clients, list) and isinstance(weights, list)
    is_fit = are_lists and len(clients) == len(weights)
    require(is_fit, where, "must hold a list of clients and one of as many weights")
    texts = [client_text(client) for client in clients]
    require(len(set(texts)) == len(texts), where, "must not name a client twice")
    return dict(zip(texts, weights, strict=True))


def _part(asked: Any) -> str | None:
    return asked.get("part") if isinstance(asked, dict) else None


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
