"""What every command shares: the error console, progress bars and the compile cache."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import TaskID


def use_compile_cache() -> None:
    """Keep compiled programs between runs, unless the user has set a place of their own."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(home, "mrsa_jax", "jax")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


class Bars:
    """Progress on standard error: bars on a terminal, a line for each stage elsewhere."""

    def __init__(self) -> None:
        from rich import progress

        self._console = error_console()
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

    def __enter__(self) -> Bars:
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


def error_console() -> Any:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def escape(text: str) -> str:
    from rich import markup

    return markup.escape(text)
