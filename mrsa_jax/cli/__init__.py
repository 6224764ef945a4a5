"""The command line.

`mrsa-jax demo | simulate | train | audit | watch | secagg | attack | ...`.
Only tyro and rich are imported before a command is known, so that `--help` answers at
once. Exit status: 0 done, 1 failed (a full disk and a closed output too), 2 misuse, 3
below a gate's target, 130 interrupted, 141 no longer read, 143 terminated (SIGTERM).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tyro

from mrsa_jax._core.flags import renamed, with_user_paths
from mrsa_jax._core.papers import from_papers
from mrsa_jax._core.registry import load_plugins, loaded_plugins
from mrsa_jax.cli._attack import AttackCommand, defaults, run_attack
from mrsa_jax.cli._audit import WatchConfig, run_advise, run_audit, run_watch
from mrsa_jax.cli._bench import BenchConfig, run_bench
from mrsa_jax.cli._data import DataConfig, run_data
from mrsa_jax.cli._report import ReportConfig, run_report
from mrsa_jax.cli._run import INTERRUPTED, union_of
from mrsa_jax.cli._secagg import PlanConfig, run_plan, run_secagg
from mrsa_jax.cli._segments import run_segments
from mrsa_jax.cli._study import run_study
from mrsa_jax.cli._suite import SuiteCommand, run_suite_command
from mrsa_jax.cli._sweep import SweepCommand, run_sweep_command
from mrsa_jax.cli.console import (
    INTERRUPTS,
    Bars,
    error_console,
    escape,
    results_alone,
    use_cores,
)
from mrsa_jax.study import KINDS, TrainConfig, load_config
from mrsa_jax.study.kinds import attacks
from mrsa_jax.study.settings import in_settings
from mrsa_watch._base.errors import (
    ConfigurationError,
    DataNotFoundError,
    MrsaError,
    OutputExistsError,
    check_known,
    require,
)
from mrsa_watch._base.streams import bare_interrupts, run_with_outlets

__all__ = ["INTERRUPTED", "INTERRUPTS", "Bars", "main"]

# the entry point: settings of `reproduce` by its words, and what runs it
_OF_PAPERS = "mrsa_jax.commands"
_MISUSE = (ConfigurationError, DataNotFoundError, OutputExistsError)


class _Command(NamedTuple):
    # whose docstring is the command's own help, its first line that of all commands
    config: type
    run: Callable[[Any], int]  # configuration -> exit status
    # by --config and words
    defaults: Callable[[pathlib.Path | None, list[str]], Any] | None = None
    few: str = ""  # the flags that --help shows; all if empty, as --help-all does


@dataclasses.dataclass(frozen=True)
class _Reproduce:
    """Remake the papers' results and compare them; needs `mrsa-jax-papers`."""


_RUN = "seed out rounds json num-clients cohort-size dropout-rates"
_LEARN = f"{_RUN} dataset model learning-rate graph noise-multiplier"
_LOG = "round-column client-column where effort coalition fail-below fail-below-hidden"
_PLAN = "secagg plan"  # two words, read as one
_COMMANDS: dict[str, _Command] = {
    "demo": _Command(KINDS["demo"].config, run_study, few=f"{_LEARN} schemes"),
    "simulate": _Command(
        KINDS["simulate"].config,
        run_study,
        few=f"{_RUN} schemes trials availability graph",
    ),
    "audit": _Command(
        KINDS["audit"].config, run_audit, few=f"{_LOG} certificate out json"
    ),
    "watch": _Command(WatchConfig, run_watch),
    "advise": _Command(KINDS["advise"].config, run_advise),
    "secagg": _Command(KINDS["secagg"].config, run_secagg),
    _PLAN: _Command(PlanConfig, run_plan),
    "segments": _Command(KINDS["segments"].config, run_segments),
    "train": _Command(KINDS["train"].config, run_study, few=f"{_LEARN} scheme resume"),
    "attack": _Command(AttackCommand, run_attack, defaults),
    "sweep": _Command(SweepCommand, run_sweep_command),
    "suite": _Command(SuiteCommand, run_suite_command),
    "reproduce": _Command(
        _Reproduce, lambda config: from_papers(_OF_PAPERS)[1](config)
    ),
    "bench": _Command(BenchConfig, run_bench),
    "report": _Command(ReportConfig, run_report),
    "data": _Command(DataConfig, run_data),
}

# spellings of version 1.0 that are still read; help shows the others
_OLD_FLAGS = {"advise": {"clients": "num_clients", "cohort": "cohort_size"}}

_DESCRIPTION = """Simulate multi-round secure aggregation in federated learning.

A server sees only securely aggregated sums, round after round. Which clients' updates
can it solve for, and what does it cost in accuracy to prevent this? Start with
`mrsa-jax demo`. Each command also reads a TOML file: `mrsa-jax demo --config study.toml
--seed 1`; flags take precedence. Each command also takes your own schemes, graphs,
availability models and attacks from a Python file: `mrsa-jax simulate --plugin mine.py
--schemes mine`.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: Words after the program's name; `sys.argv` when None.

    Examples:
        >>> main(["demo", "--rounds", "0"])
        2
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_with_outlets(lambda: _interruptible(words), _say_error)


def _interruptible(words: list[str]) -> int:
    """Run a command; if it is interrupted, report what it kept."""
    try:
        # two levels: an interrupt may strike while the first one is being reported
        with INTERRUPTS:
            try:
                with bare_interrupts():
                    status = _run(words)
            except KeyboardInterrupt:
                status = INTERRUPTED
            if status == INTERRUPTED:
                words_kept = f"interrupted; {INTERRUPTS.kept()}"
                error_console().print(
                    words_kept, markup=False, highlight=False, soft_wrap=True
                )
                status = INTERRUPTS.status
    except KeyboardInterrupt:  # a second one, while that was said
        return INTERRUPTS.status
    return status


def _run(words: list[str]) -> int:
    config: Any = None
    start = time.time()
    try:
        config = _parse(words)
        # only now is it known what the command writes
        INTERRUPTS.kept = functools.partial(_left_behind, config, start)
        commands = (
            command_row
            for command_row in _COMMANDS.values()
            if isinstance(config, command_row.config)
        )
        # the settings of `reproduce` are of another project
        command = next(commands, _COMMANDS["reproduce"])
        # with --json nothing else may be on standard output; `watch` prints lines as it
        # goes
        is_alone = getattr(config, "json", False) and not isinstance(
            config, WatchConfig
        )
        # plugins may print
        with (
            results_alone()
            if loaded_plugins() and is_alone
            else contextlib.nullcontext()
        ):
            return command.run(config)
    except (MrsaError, OSError) as error:
        _say_error(_by_flags(str(error), config))
        return 2 if isinstance(error, _MISUSE) else 1
    except (MemoryError, RuntimeError, AssertionError) as error:
        # JAX reports a lack of memory as a RuntimeError with this word
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(
            error
        ):
            problem = _device_problem()
            if problem is None:
                raise
            _say_error(problem)
            return 2
        _say_error(
            f"the memory of this machine did not suffice: {str(error) or 'it ran out'}"
        )
        return 1
    except (
        SystemExit
    ) as stop:  # tyro's way to end after --help, completion or a misspelt flag
        return (
            0 if stop.code is None else stop.code if isinstance(stop.code, int) else 2
        )


def _device_problem() -> str | None:
    """Return why JAX cannot start, if that is why a command failed."""
    # JAX that was never imported cannot be the cause
    if "jax" not in sys.modules:
        return None
    from mrsa_jax._core.device_words import device_in_words

    try:
        device_in_words()
    except ConfigurationError as error:
        return str(error)
    return None


def _say_error(text: str) -> None:
    error_console().print(f"[bold red]error:[/] {escape(text)}", highlight=False)


def _by_flags(text: str, config: Any) -> str:
    """Return a message about settings that names their flags."""
    settings = config.attack if isinstance(config, AttackCommand) else config  # type: ignore[attr-defined]
    if settings is None:
        return text
    text = in_settings(text, settings)
    for field, flag in renamed(type(settings)).items():
        text = text.replace(f"`{field}`", f"`{flag}`")
    return text


def _left_behind(config: Any, start: float) -> str:
    """Say what an interrupted command keeps, and how to continue.

    Args:
        config: Its settings.
        start: When it began, in seconds since 1970.
    """
    out = getattr(config, "out", None)
    if isinstance(out, pathlib.Path) and (out / "items").is_dir():  # of `reproduce`
        return f"finished items are kept in {out}; the same command makes the rest"
    if isinstance(config, TrainConfig) and (config.out / "run.json").is_file():
        return f"--resume continues it from its newest checkpoint in {config.out}"
    settings = config.attack if isinstance(config, AttackCommand) else config  # type: ignore[attr-defined]
    written = [getattr(settings, name, None) for name in _WRITTEN]
    written_now = [
        str(path) for path in written if path is not None and _changed(path) >= start
    ]
    if written_now:
        return (
            f"finished parts are kept in {' and '.join(written_now)}; the same command "
            "starts again"
        )
    return "nothing half-written was left behind; the same command starts again"


# settings that name what is written
_WRITTEN = ("out", "certificate", "recipe_file", "metrics")
_CLOCK_SECONDS = 0.05  # by which times of files may be behind


def _changed(path: pathlib.Path) -> float:
    """Return when a file, or what is in a folder, was last written.

    0 where there is none.
    """
    paths = [entry for entry in (path, *path.glob("*")) if entry.exists()]
    return max((entry.stat().st_mtime for entry in paths), default=0.0) + _CLOCK_SECONDS


def _parse(words: list[str]) -> Any:
    if words in (["--version"], ["-V"]):
        from mrsa_jax._version import __version__

        sys.stdout.write(f"mrsa-jax {__version__}\n")
        raise SystemExit(0)
    # before tyro reads the words, which must know what plugins register
    plugins, words = _take_flag(words, "plugin", "a Python file or a module")
    if plugins:
        use_cores()  # before they start JAX
        load_plugins(plugins)
    files, words = _take_flag(words, "config", "a file")
    require(len(files) <= 1, "config", "must be given once", *files)
    path = pathlib.Path(files[0]) if files else None
    if words[:2] == _PLAN.split():
        words = [_PLAN, *words[2:]]
    if words and not words[0].startswith("-"):
        check_known(words[0], "command", _COMMANDS, "a known command")
    # every command's settings, since tyro parses a union of all
    settings = {name: command.config() for name, command in _COMMANDS.items()}
    is_asked = words[:1] == ["reproduce"]
    # completion shows all flags
    if is_asked or (words and words[0].startswith("--tyro-")):
        # asked for, it must be installed; completion does without it
        with contextlib.suppress(*() if is_asked else (ConfigurationError,)):
            settings["reproduce"] = from_papers(_OF_PAPERS)[0](words[1:] * is_asked)
    chosen = _COMMANDS.get(words[0]) if words else None
    if path is not None and chosen is None:
        raise ConfigurationError(
            "`config` must follow a command, as in: demo --config FILE"
        )
    if chosen is not None and chosen.defaults is not None:
        settings[words[0]] = chosen.defaults(path, words[1:])
    elif chosen is not None and path is not None:
        settings[words[0]] = load_config(type(settings[words[0]]), path)
    words = _with_new_flags(words, settings)
    union = union_of(
        (name, type(value), words[:1] == [name], {"default": value})
        for name, value in settings.items()
    )
    parser: Any = tyro.conf.OmitArgPrefixes[union]  # type: ignore[misc]
    # as tyro asks; by frames flags are found in its text
    has_frames = getattr(sys.stdout, "encoding", "") == "utf-8"
    few = (
        chosen.few.split()
        if chosen and has_frames and {"-h", "--help"} & {*words}
        else []
    )
    # tyro shows all flags, and the short help leaves most out again
    words = ["--help" if word == "--help-all" else word for word in words]
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    rows: Any = _Rows(printed if few else sys.stdout)
    try:
        with _flowing(), contextlib.redirect_stdout(rows):
            parsed = tyro.cli(
                parser, prog="mrsa-jax", description=_DESCRIPTION, args=words
            )
            return with_user_paths(parsed)
    except SystemExit as stop:
        if few:
            printed.seek(0)
            sys.stdout.write(_shortened(printed.read(), few, words[0]))
        # tyro takes values one by one, so a,b was read as one value
        joined = [word for word in words if "," in word]
        if stop.code and joined:
            hint = (
                f"hint: separate several values with spaces: "
                f"{joined[0].replace(',', ' ')}"
            )
            error_console().print(hint, markup=False, highlight=False)
        raise


@contextlib.contextmanager
def _flowing() -> Iterator[None]:
    """Let the texts of flags flow, and end as tyro's do where they state a default.

    Tyro begins a line wherever a docstring's line is indented.
    """
    import docstring_parser

    reader: Any = docstring_parser
    usual = reader.parse_from_object

    def flowing(settings: Any) -> Any:
        parsed = usual(settings)
        for parameter in parsed.params:
            text = " ".join((parameter.description or "").split())
            parameter.description = (
                re.sub(r" Default: (.+)\.$", r" (default: \1)", text) or None
            )
        return parsed

    reader.parse_from_object = flowing
    try:
        yield
    finally:
        reader.parse_from_object = usual


_CODES = r"(?:\x1b\[[\d;]*m)*"
_EMPTY_ROW = re.compile(rf"{_CODES}│{_CODES} +{_CODES}│{_CODES}")


class _Rows:
    """A stream for help without empty rows.

    One follows a text that just fills its last line.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_empty = False  # the row whose end comes next

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        is_end = self._is_empty and text == "\n"
        self._is_empty = _EMPTY_ROW.fullmatch(text) is not None
        return len(text) if is_end or self._is_empty else self._stream.write(text)


def _shortened(text: str, few: list[str], command: str) -> str:
    """Return a command's help with these flags alone, and the panels around them."""
    lines: list[str] = []
    panel: list[str] = []
    is_kept, left_out = True, 0
    for line in text.splitlines():
        flag = re.match(r"│ (?:-h, )?--([a-z-]+)", line)
        if line.startswith("╭"):
            panel, is_kept = [], True
        elif flag:
            is_kept = flag[1] in ("help", *few)
            left_out += not is_kept
        # a panel is printed only if a flag of it is
        if line.startswith("╰"):
            # a list times a truth value: none unless the panel has a flag
            lines += [*panel, line] * any(re.match("│ -", row) for row in panel)
        elif is_kept:
            # lines outside of panels are kept at once
            (panel if line.startswith(("╭", "│")) else lines).append(line)
    more = f"{left_out} more settings: mrsa-jax {command} --help-all"
    return "\n".join([*lines, more, ""])


def _with_new_flags(words: list[str], settings: dict[str, Any]) -> list[str]:
    """Return words with flags of version 1.0 in the spelling that help shows."""
    if not words or words[0] not in settings:
        return words
    cls = type(settings[words[0]])
    if words[0] == "attack" and words[1:2] and words[1] in attacks():
        cls = attacks()[words[1]].settings
    new = renamed(cls) | _OLD_FLAGS.get(words[0], {})
    renamed_words = []
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        is_old = flag.startswith("--") and name in new
        renamed_words.append(
            f"--{new[name].replace('_', '-')}{equals}{value}" if is_old else word
        )
    return renamed_words


def _take_flag(words: list[str], flag: str, what: str) -> tuple[list[str], list[str]]:
    """Split a flag that all commands take off, with its values.

    Return them, and the rest.
    """
    values, rest = [], []
    remaining = iter(words)
    for word in remaining:
        if word == f"--{flag}":
            value = next(remaining, None)
            if value is None:
                raise ConfigurationError(f"`{flag}` must be followed by {what}")
            values.append(value)
        elif word.startswith(f"--{flag}="):
            values.append(word.partition("=")[2])
        else:
            rest.append(word)
    return values, rest
