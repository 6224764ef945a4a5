"""The command line: `mrsa-jax demo | simulate | train`.

Only tyro and rich are imported before a command is known, so that `--help` answers at once.
Exit status: 0 done, 1 failed, 2 misuse, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._errors import ConfigurationError, MrsaError, nearest
from mrsa_jax.study import _config, validate

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mrsa_jax.study import SavedStudy

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130

_COMMANDS: dict[str, tuple[type, str]] = {
    "demo": (
        _config.DemoConfig,
        "Compare six selection schemes on real digits: what leaks, what it costs.",
    ),
    "simulate": (
        _config.SimulateConfig,
        "Study client selection alone, without training: many trials of each scheme.",
    ),
    "train": (
        _config.TrainConfig,
        "Train one model under one scheme with secure aggregation, on real data.",
    ),
}

_DESCRIPTION = """Simulate multi-round secure aggregation in federated learning.

Which clients' updates can a server solve for that sees only securely aggregated sums, round
after round, and what does preventing it cost in accuracy? Start with `mrsa-jax demo`.
Each command also reads a TOML file: `mrsa-jax demo --config study.toml --seed 1`; flags win.
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
    try:
        config = _parse(words)
        return _run(config)
    except MrsaError as error:
        _error_console().print(f"[bold red]error:[/] {_escape(str(error))}", highlight=False)
        return 2
    except KeyboardInterrupt:
        _error_console().print("interrupted; nothing half-written was left behind")
        return INTERRUPTED
    except SystemExit as stop:  # tyro's way to end after --help or a misspelt flag
        return stop.code if isinstance(stop.code, int) else 2


def _parse(words: list[str]) -> _config.Config:
    if words in (["--version"], ["-V"]):
        from mrsa_jax import __version__

        sys.stdout.write(f"mrsa-jax {__version__}\n")
        raise SystemExit(0)
    path, words = _take_config_flag(words)
    if words and not words[0].startswith("-") and words[0] not in _COMMANDS:
        raise ConfigurationError(
            f"`command` must be a known command; got {words[0]!r}; {nearest(words[0], _COMMANDS)}"
        )
    defaults = {name: cls() for name, (cls, _) in _COMMANDS.items()}
    if path is not None:
        if not words or words[0] not in _COMMANDS:
            raise ConfigurationError("`config` must follow a command, as in: demo --config FILE")
        defaults[words[0]] = _config.load_config(_COMMANDS[words[0]][0], path)
    parser: Any = tyro.conf.OmitArgPrefixes[_union(defaults)]  # type: ignore[misc]
    return tyro.cli(parser, prog="mrsa-jax", description=_DESCRIPTION, args=words)


def _union(defaults: dict[str, Any]) -> Any:
    members = [
        Annotated[cls, tyro.conf.subcommand(name, default=defaults[name], description=text)]
        for name, (cls, text) in _COMMANDS.items()
    ]
    result = members[0]
    for member in members[1:]:
        result |= member
    return result


def _take_config_flag(words: list[str]) -> tuple[pathlib.Path | None, list[str]]:
    """Split `--config FILE` off: it sets the defaults that the other flags change."""
    for i, word in enumerate(words):
        if word == "--config":
            if i + 1 == len(words):
                raise ConfigurationError("`config` must be followed by a file")
            return pathlib.Path(words[i + 1]), words[:i] + words[i + 2 :]
        if word.startswith("--config="):
            return pathlib.Path(word.split("=", 1)[1]), words[:i] + words[i + 1 :]
    return None, words


def _run(config: _config.Config) -> int:
    validate(config)  # before JAX is imported: a misuse is answered at once
    _use_compile_cache()
    from mrsa_jax import study

    study.check(config)
    start = time.perf_counter()
    with _Bars() as bars:
        saved = study.run_and_save(config, bars)
    if config.json:
        _print_json(saved)
    else:
        _print_table(config, saved, time.perf_counter() - start)
    return 0


def _use_compile_cache() -> None:
    """Keep compiled programs between runs, unless the user has set a place of their own."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(home, "mrsa_jax", "jax")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


class _Bars:
    """Progress on standard error: bars on a terminal, a line for each stage elsewhere."""

    def __init__(self) -> None:
        from rich import progress

        self._console = _error_console()
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:38}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._start = time.perf_counter()
        self._is_interrupted = False
        self._previous: Any = None

    def __enter__(self) -> _Bars:
        self._bars.start()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        self._bars.stop()

    def _interrupt(self, *_: object) -> None:
        # An interrupt that strikes inside a callback of the compiler is swallowed there; the next
        # progress report raises it again.
        self._is_interrupted = True
        raise KeyboardInterrupt

    def _check_interrupt(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def stage(self, name: str, total: int) -> None:
        self._check_interrupt()
        if not self._console.is_terminal:
            elapsed = time.perf_counter() - self._start
            self._console.print(f"[{elapsed:6.1f} s] {name} ({total})", markup=False)
        self._task = self._bars.add_task(name, total=total)

    def update(self, done: int, total: int) -> None:
        self._check_interrupt()
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total)


def _error_console() -> Any:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_json(saved: SavedStudy) -> None:
    content = {
        "out": str(saved.out),
        "rows": [dataclasses.asdict(row) for row in saved.rows],
        "sentences": list(saved.sentences),
    }
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def _print_table(config: _config.Config, saved: SavedStudy, seconds: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from mrsa_jax.study import _report

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    population = config.population
    trials = f"{config.trials} trials, " if isinstance(config, _config.SimulateConfig) else ""
    table = Table(
        title=f"{population.num_clients} clients, {population.cohort_size} a round, "
        f"{config.rounds} rounds, {trials}seed {config.seed}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    used = _report.used_columns(saved.rows)
    for i in used:
        table.add_column(_report.COLUMNS[i], justify="left" if i == 0 else "right")
    for row in saved.rows:
        line = _report.cells(row)
        table.add_row(*(_escape(line[i]) for i in used))
    console.print(table)
    console.print(_report.reading(saved.rows), style="dim", highlight=False)
    for sentence in saved.sentences:
        console.print(f"\n{sentence}", highlight=False, markup=False)
    path = saved.out / "report.html"
    console.print(f"\nWritten in {seconds:.0f} s; open {path}", highlight=False, markup=False)
