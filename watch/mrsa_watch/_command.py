"""`mrsa-watch record | watch | gate | check | preflight`: commands without JAX."""

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
from mrsa_watch._base.streams import bare_interrupts, run_with_outlets
from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import words_of
from mrsa_watch._version import __version__

FAILED, MISUSE, BELOW, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MISUSE = (ConfigurationError, DataNotFoundError, OutputExistsError)
# spellings of version 1.0 that are still read
_OLD_FLAGS = {
    "--clients": "--num-clients",
    "--cohort": "--cohort-size",
    "--loss": "--loss-rate",
    "--away": "--dropout-rates",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = list(sys.argv[1:] if words is None else words)
    with _termination_heard():
        return run_with_outlets(lambda: _run(arguments), _say_error)


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


def _run(words: list[str]) -> int:
    try:
        # a program by itself, which its holders may run without us
        if words[:1] == ["check"]:
            if any(word.startswith("--roster") for word in words):
                from mrsa_watch import _evidence

                return _evidence.main(words[1:])
            from mrsa_watch import mrsa_check

            return mrsa_check.main(words[1:])
        if words[:1] == ["preflight"]:
            words = [_in_new_spelling(word) for word in words]
        chosen = _parser().parse_args(words)
        run: Callable[[Any], int] = chosen.run
        with bare_interrupts():
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


_NUMBER: dict[str, Any] = {"type": int}
_REAL: dict[str, Any] = {"type": float}
_PATH: dict[str, Any] = {"type": user_path}
_SWITCH: dict[str, Any] = {"action": "store_true"}
_POLL = 0.5  # seconds between two looks at a log
# flags of commands: name, kind, text of its help, what stands for its value, default
_LOG = ("log", _PATH, "participation log in JSON Lines")
_BARS = (
    (
        "--fail-below",
        _NUMBER,
        "least weak T that must be known (2: no client is exposed)",
        "T",
    ),
    (
        "--fail-below-hidden",
        _REAL,
        "least number that each client must be hidden among",
        "CLIENTS",
    ),
)
_NEEDED: dict[str, Any] = {"required": True}
_JSON = ("--json", _SWITCH, "print JSON instead of words")
_RECORD = (
    ("log", _PATH, "participation log; a new file, or one that is continued"),
    ("--system", _NEEDED, "recorded system, with its version"),
    ("--aggregation", _NEEDED, '"secagg+", "secagg", "plain" or other text'),
    ("--plain-names", _SWITCH, "keep clients' names instead of pseudonyms"),
)
_WATCH = (
    _LOG,
    *_BARS,
    (
        "--memory",
        _REAL,
        "correlation of a client's updates from round to round: report how well the "
        "update of one round is hidden, which --fail-below-hidden then compares",
        "RHO",
    ),
    (
        "--share",
        _REAL,
        "fraction of an update's variance that lasts (%(default)s); below 1, what "
        "lasts is reported and compared as well",
        "A",
        1.0,
    ),
    ("--once", _SWITCH, "stop at the end of the file"),
    ("--wait", _SWITCH, "wait for a log that does not exist yet"),
    ("--keep-going", _SWITCH, "continue after a breach"),
    ("--poll", _REAL, "seconds between two looks at the log", "SECONDS", _POLL),
    ("--out", _PATH, "keep one line of JSON per sum, each once", "FILE"),
    ("--metrics", _PATH, "keep the latest values in Prometheus's text format", "FILE"),
    _JSON,
)
_GATE = (
    _LOG,
    *_BARS,
    (
        "--salt",
        _PATH,
        "salt of the log's pseudonyms (LOG.salt), to ask with clients' names",
        "FILE",
    ),
    (
        "--new-clients",
        _SWITCH,
        "take names that the log does not know as new clients (default: refuse)",
    ),
)
_PLAN = (
    ("--num-clients", _NUMBER | _NEEDED, "enrolled clients", "N"),
    ("--cohort-size", _NUMBER | _NEEDED, "clients selected per round", "K"),
    ("--rounds", _NUMBER | _NEEDED, "planned rounds", "R"),
    ("--threshold", _NUMBER, "fewest updates for a sum (default: 2)", "t"),
    ("--loss-rate", _REAL, "probability that a selected client is lost", "P", 0.0),
    ("--dropout-rates", _REAL, "probability that a client is offline", "P", 0.0),
    ("--blocks", _NUMBER, "clients that always move together", "T", 1),
    ("--trials", _NUMBER, "histories to simulate (%(default)s)", None, 5),
    ("--seed", _NUMBER, "seed of the simulations (%(default)s)", None, 0),
    *_BARS,
    ("--fail-below-chance", _REAL, "least probability that a round works", "P"),
    _JSON,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mrsa-watch",
        description="Record the members of each sum of a federation, "
        "and watch what sums reveal.",
    )
    version = f"mrsa-watch {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run, flags, name, summary, more in (
        (
            _record,
            _RECORD,
            "record",
            "append one line per sum, read from standard input",
            'Each line of input is JSON of one sum, such as {"round": 1, "clients": '
            '["anna", "bob"]}, with weights, status, asked, lost, noise and clip where '
            "they are known, and part if the sum is over some coordinates only. A line "
            "is on the disk before the next one is read.",
        ),
        (
            _watch,
            _WATCH,
            "watch",
            "follow a log: one line per sum",
            "Exit status 3 at the first sum that breaks a requirement.",
        ),
        (
            _gate,
            _GATE,
            "gate",
            "check whether the sums of cohorts may be learnt",
            "Each line of standard input is a JSON list of clients, named as in the "
            'log, or an object {"clients": [...], "weights": [...], "part": "..."}, of '
            "which weights and part may be absent; clients may map each name to its "
            "weight. Each line of output states whether their sum is allowed too, "
            "which clients to exclude, how many of them the log knows, and its last "
            "round. The log is read on before each answer. Exit status 3 if one was "
            "refused.",
        ),
        (
            _gate,
            (),
            "check",
            "check a certificate of an audit, or the signatures of a log",
            "mrsa-watch check CERTIFICATE LOG; `mrsa-watch check --help` shows more. "
            "mrsa-watch check --roster KEYS [--receipts FILE] LOG follows the clients' "
            "signatures; without them, a log is the server's word.",
        ),
        (
            _preflight,
            _PLAN,
            "preflight",
            "compute what to expect of a plan",
            "How likely rounds are to work, and what the sums of simulated histories "
            "reveal. Exit status 3 if a requirement does not hold.",
        ),
    ):
        command = commands.add_parser(
            name, help=summary, description=f"{summary.capitalize()}. {more}"
        )
        command.set_defaults(run=run)
        for flag, kind, text, *rest in flags:
            settings: Any = dict(zip(("metavar", "default"), rest, strict=False))
            command.add_argument(flag, **kind, help=text, **settings)
    return parser


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _warn_if_slow() -> None:
    if importlib.util.find_spec("numba") is None:
        _warn("numba is not installed: the same figures, slower")


def _objects(read: Callable[[bytes, str], Any]) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of standard input's lines, and the place of each.

    The input is UTF-8, whatever the locale says.
    """
    require(sys.stdin is not None, "input", "must be open")
    for number, text in enumerate(getattr(sys.stdin, "buffer", sys.stdin), start=1):
        line = text
        if isinstance(text, str):
            line = text.encode("utf-8", "surrogateescape")
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.strip():
            where = f"input, line {number}"
            yield where, read(line, where)


def _record(chosen: Any) -> int:
    from mrsa_watch._recorder import Recorder
    from mrsa_watch.logs import load_exactly

    keys = sorted(
        words_of("round clients sum weights status asked lost noise clip part evidence")
    )
    rule = f"must hold round, clients and no others than {', '.join(keys)}"
    salt = b"" if chosen.plain_names else None
    names = {"system": chosen.system, "aggregation": chosen.aggregation}
    with Recorder(chosen.log, salt=salt, **names) as recorder:
        for where, fields in _objects(load_exactly):
            require(isinstance(fields, dict), where, "must hold a JSON object")
            missing = {"round", "clients"} - fields.keys()
            odd = missing | (fields.keys() - set(keys))
            require(not odd, where, rule, ", ".join(sorted(odd)))
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
    require(chosen.poll > 0, "poll", "must be positive", chosen.poll)
    if chosen.once:
        rule = "must not be set with --once, which waits for nothing"
        require(not chosen.wait, "wait", rule, chosen.wait)
        require(chosen.poll == _POLL, "poll", rule, chosen.poll)
    more = "" if chosen.once else " (--wait waits for one that is not there yet)"
    rule = f"must be a participation log that is there{more}"
    require(chosen.log.exists() or chosen.wait, "log", rule, str(chosen.log))
    _warn_if_slow()
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

    _warn_if_slow()
    gate = Gate.from_log(
        chosen.log,
        salt=chosen.salt,
        fail_below=chosen.fail_below,
        fail_below_hidden=chosen.fail_below_hidden,
        new_clients=chosen.new_clients,
    )
    is_refused = False
    for where, question in _objects(load_exactly):
        part = question.get("part") if isinstance(question, dict) else None
        try:
            (answer,) = gate.check([_cohort(question, where)], part)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        is_refused = is_refused or not answer.allowed
        print(json.dumps(dataclasses.asdict(answer)), flush=True)
    return BELOW if is_refused else 0


def _cohort(question: Any, where: str) -> Any:
    """Return the clients of a question, mapped to their weights if it has some."""
    from mrsa_watch.logs import client_text

    if isinstance(question, list):
        return [client_text(client) for client in question]
    rule = "must hold a JSON list of clients, or an object with them"
    require(isinstance(question, dict), where, rule)
    is_fine = "clients" in question and question.keys() <= {
        "clients",
        "weights",
        "part",
    }
    rule = "must hold clients, and weights, part or nothing else"
    require(is_fine, where, rule, ", ".join(sorted(question)))
    clients = question["clients"]
    weights = question.get("weights")
    if weights is None and not isinstance(clients, list):
        return clients
    if weights is None:
        return [client_text(client) for client in clients]
    are_lists = isinstance(clients, list) and isinstance(weights, list)
    is_fit = are_lists and len(clients) == len(weights)
    require(is_fit, where, "must hold a list of clients and one of as many weights")
    texts = [client_text(client) for client in clients]
    require(len(set(texts)) == len(texts), where, "must not name a client twice")
    return dict(zip(texts, weights, strict=True))


def _preflight(chosen: Any) -> int:
    from mrsa_watch._preflight import preflight

    report = preflight(
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
    print(json.dumps(report.to_dict()) if chosen.json else report.to_words())
    return BELOW if report.breaches else 0
