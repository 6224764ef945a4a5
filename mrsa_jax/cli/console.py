"""Share among commands: interrupts, the error console, progress bars, the device."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mrsa_jax._core.cores import num_cores
from mrsa_jax.cli.compiling import SlowPrograms
from mrsa_watch._base.untrusted import printable

if TYPE_CHECKING:
    from types import FrameType

    from rich.progress import TaskID

FoundT = TypeVar("FoundT")
# each holds a copy of the data; a round has few clients to share out
_MOST_CPU_DEVICES = 8
_COMPILERS = {"jax", "jaxlib", "llvmlite", "numba"}
_WAITS = "jax._src.array"  # for values: not a compiler's work
_SECONDS_TO_COMPILE = 0.02  # after which an interrupt asks again whether it may strike
_SECONDS_BETWEEN_LINES = 20.0  # of progress where there is no terminal to draw bars on


def use_cores(devices: int | None = None) -> None:
    """Let JAX see a device a core where it finds only a CPU.

    To be called before JAX starts.
    Clients trained by a core each are mostly faster than one after the other by all
    cores (benchmarks/README.md); large models in very small minibatches are not. A
    number that the user has set for JAX stays.

    Args:
        devices: How many are asked for; as many as are of use if None.
    """
    # an older way to set the same number
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    count = min(num_cores(), _MOST_CPU_DEVICES if devices is None else devices)
    # `setdefault`: what the user has set stays
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(count))


def _compiles(frame: FrameType | None) -> bool:
    """Return whether a frame or one of its callers belongs to a compiler."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] in _COMPILERS and name != _WAITS:
            return True
        frame = frame.f_back
    return False


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, by which schedulers end a job.

    An interrupt like any other, with its own status.
    """


_STATUS = 128  # plus the number of a signal: the status in a shell of what it ended
_SECONDS_TO_LISTEN = 8.0  # after which a program that hears no signal is ended
_SECONDS_OF_ECHOES = 1.0  # `timeout` sends its signal to a process and to its group


class Interrupts:
    """Ctrl-C and SIGTERM that are not lost.

    A context of the main thread, which may be nested.
    An interrupt that strikes inside a compiler is swallowed by one of its callbacks or
    leaves it in a state that may abort the process: it comes again when that has
    returned. `check` raises what has not got through by then. A script's background
    commands start with interrupts ignored, and keep ignoring them. While results are
    saved after an interrupt, another SIGTERM asks for nothing new.

    Attributes:
        kept: Says what is kept of the work and how to continue; each command sets its
            own.
        ends_process: Whether a thread ends the process where the main thread, in a long
            call, does not hear the signal within eight seconds.
    """

    def __init__(self) -> None:
        self._heard: int | None = None
        self._is_raised = threading.Event()
        self._raised_at = 0.0
        self._again = threading.Timer(0, lambda: None)  # what a compiler delays
        self._previous: dict[int, Any] = {}
        self._depth = 0
        self._watcher: _Watcher | None = None
        self.kept: Callable[[], str] = _nothing
        self.ends_process = False

    def __enter__(self) -> Interrupts:
        self._depth += 1
        is_main = threading.current_thread() is threading.main_thread()
        # only the main thread may set handlers, and only once
        if self._depth > 1 or not is_main:
            return self
        self._heard = None
        self._is_raised.clear()
        self.kept = _nothing
        for number in (signal.SIGINT, signal.SIGTERM):
            # ignored signals stay ignored, as for a script's background commands
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._hear)
        if self.ends_process:
            self._watcher = _Watcher(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        # first: nothing may be sent while handlers change back
        self._again.cancel()
        # it may be sending: not to the handler that comes back
        if self._again.is_alive():
            self._again.join()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        for number, before in self._previous.items():
            signal.signal(number, before)
        self._previous.clear()

    @property
    def status(self) -> int:
        """Exit status of what was interrupted: 143 after SIGTERM, else 130."""
        return _STATUS + (self._heard or signal.SIGINT)

    def end_if_unheard(self, number: int) -> None:
        """End the process, from a thread, if the main one does not hear a signal."""
        is_heard = number not in self._previous or self._is_raised.wait(
            _SECONDS_TO_LISTEN
        )
        if not is_heard and self._depth > 0:
            # no buffers and no locks: the main thread may hold them
            os.write(2, f"interrupted; {self.kept()}\n".encode(errors="replace"))
            # without cleaning up, which would wait for the main thread
            os._exit(_STATUS + number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._depth == 0:  # the work has ended
            return
        if self._is_raised.is_set():
            # `timeout` sends its signal twice, which is one request
            since = time.monotonic() - self._raised_at
            if number == signal.SIGTERM or since < _SECONDS_OF_ECHOES:
                return
        self._heard = number
        self._again.cancel()
        # else the timer sends the signal again until the compiler has returned
        if not _compiles(frame):
            self._raise()
        main = threading.main_thread().ident or 0
        # a real signal ends what the main thread waits for
        self._again = threading.Timer(
            _SECONDS_TO_COMPILE, signal.pthread_kill, (main, number)
        )
        self._again.daemon = True
        self._again.start()

    def _raise(self) -> NoReturn:
        self._raised_at = time.monotonic()
        self._is_raised.set()
        raise TerminatedError if self._heard == signal.SIGTERM else KeyboardInterrupt

    def check(self) -> None:
        """Raise an interrupt that was heard."""
        if self._heard is not None:
            self._again.cancel()
            self._raise()


def _nothing() -> str:
    return "nothing was begun"


class _Watcher:
    """A thread that hears of signals at once.

    Python's handlers wait for the main thread.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._before = signal.set_wakeup_fd(
            self._mouth.fileno(), warn_on_full_buffer=False
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        # before the socket closes, as a signal may come in between
        signal.set_wakeup_fd(self._before)
        # ends the thread: `recv` returns nothing
        self._mouth.close()

    def _watch(self) -> None:
        with self._ear:
            while numbers := self._ear.recv(1):
                self._interrupts.end_if_unheard(numbers[0])


INTERRUPTS = Interrupts()
"""Those of the command that runs: it sets what is kept, and `main` reads the status."""


def _board(console: Any) -> Any:
    """Return bars, below what is drawn above them and changes in place."""
    from rich import progress

    class Board(progress.Progress):
        above: Any = None

        def get_renderables(self) -> Iterator[Any]:
            if self.above is not None:
                yield self.above
            yield from super().get_renderables()

    return Board(
        progress.TextColumn("{task.description:38}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}", markup=False),
        console=console,
        disable=not console.is_terminal,
        # else it goes to a file, not among the bars
        redirect_stdout=sys.stdout.isatty(),
    )


class Bars:
    """Progress on standard error: bars on a terminal, a line for each stage elsewhere.

    On a terminal something moves all the time, between stages too.

    Args:
        device: Whether to say first what programs run on, which starts JAX.
        show: Shows what is found before all of it is.

    Attributes:
        is_live: Whether what is drawn is seen where results are printed.
        done: How far the stage is.
    """

    def __init__(
        self, device: bool = True, show: Callable[[Any, Bars], None] | None = None
    ) -> None:
        self._console = error_console()
        # asked here: once bars are drawn, rich's stand-in for standard output denies it
        self.is_live = bool(self._console.is_terminal) and sys.stdout.isatty()
        self._bars = _board(self._console)
        self._show = show
        self._pulse: TaskID | None = None  # what moves while no stage is on its way
        self._task: TaskID | None = None
        self._start = self._last_line = time.perf_counter()
        self._name = self._note = ""
        self.done = 0
        # its first report: when, how far
        self._stage_start: tuple[float, int] | None = None
        self._interrupts = INTERRUPTS
        self._names_device = device
        self._slow = SlowPrograms(self.say)

    def __enter__(self) -> Bars:
        self._bars.start()
        self._beat("starting")
        self._interrupts.__enter__()
        self._slow.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._slow.close()
        self._interrupts.__exit__()
        self.rest()

    def rest(self) -> None:
        """Draw nothing more, so that something else can be printed."""
        self._bars.above = None
        self._beat(None)
        # nothing that still moves is left on the terminal
        self._bars.live.transient = not self._bars.task_ids
        self._bars.stop()

    def go_on(self, name: str) -> None:
        """Draw again, after a rest, that work continues."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._task = None
        self._bars.start()
        self._beat(name)

    def _beat(self, name: str | None) -> None:
        """Show that work without stages continues; with None, that a stage begins."""
        if self._pulse is not None:
            self._bars.remove_task(self._pulse)
        self._pulse = (
            None if name is None else self._bars.add_task(name, total=None, note="")
        )

    def found(self, so_far: Any) -> None:
        """Show what is known by now."""
        self._interrupts.check()
        if self._show is not None:
            self._show(so_far, self)

    def draw(self, above: Any) -> None:
        """Draw something above the bars, instead of what was there."""
        self._bars.above = above
        self._bars.refresh()

    def stage(self, name: str, total: int) -> None:
        """Begin a stage: a bar, or a line where there is no terminal."""
        self._interrupts.check()
        if self._names_device:
            self._names_device = False
            self.say_device()
        self._slow.listen()
        self._name, self._note, self.done = name, "", 0
        self._stage_start = None
        self._beat(None)
        if not self._console.is_terminal:
            self.say(f"{name} ({total})")
        if self._bars.above is not None and self._task is not None:
            self._bars.remove_task(self._task)  # there is less room
        self._task = self._bars.add_task(escape(name), total=total, note="")

    def update(self, done: int, total: int) -> None:
        """Show the progress of the stage, and let an interrupt through."""
        self._interrupts.check()
        self.done = done
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total, note=self._note)
            if done >= total and self._pulse is None:
                self._beat("...")
        now = time.perf_counter()
        if self._stage_start is None:
            self._stage_start = (now, done)
        if (
            not self._console.is_terminal
            and now - self._last_line >= _SECONDS_BETWEEN_LINES
        ):
            self.say(
                f"{self._name}: {done} of "
                f"{total}{self._left(now, done, total)}{self._note}"
            )

    def note(self, text: str) -> None:
        """Show next to the stage what is true for now; drawn with its next step."""
        self._note = text if self._console.is_terminal or not text else f", {text}"

    def say_device(self) -> None:
        """Say what programs run on, and if that is not the GPU which is there, why."""
        from mrsa_jax._core.device_words import device_in_words, unused_gpu

        self._console.print(
            f"device: {device_in_words()}", markup=False, highlight=False
        )
        unused = unused_gpu()
        if unused is not None:
            self._console.print(
                f"[yellow]warning:[/] {escape(unused)}", highlight=False
            )

    def _left(self, now: float, done: int, total: int) -> str:
        then, before = self._stage_start or (now, done)
        if done <= before:
            return ""
        return f", {(now - then) / (done - before) * (total - done):.0f} s left"

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._last_line = time.perf_counter()
        elapsed = self._last_line - self._start
        words = f"[{elapsed:6.1f} s] {printable(text)}"
        self._console.print(words, markup=False, highlight=False)


def drawn(
    run: Callable[[Any, Bars, Callable[[Any], None]], FoundT],
    config: Any,
    show: Callable[[FoundT], None],
    early: Callable[[Any, Bars], None] | None = None,
) -> tuple[FoundT, float]:
    """Run what reports its progress under bars; return what it found, and its seconds.

    Args:
        run: Takes the settings, what receives the progress, and what prints.
        config: The settings.
        show: Prints what was found, once the bars are gone.
        early: Shows what is found before all of it is.
    """
    start = time.perf_counter()
    with Bars(show=early) as bars:

        def shown(findings: FoundT) -> None:
            bars.rest()
            show(findings)
            sys.stdout.flush()
            bars.go_on("writing")

        findings = run(config, bars, shown)
    return findings, time.perf_counter() - start


# standard output, while everything else goes to standard error
_for_results: list[Any] = []


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """Send what is printed to standard error, except what `print_json` prints."""
    _for_results.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _for_results.pop()


def print_json(content: object) -> None:
    """Print for machines."""
    stream = _for_results[-1] if _for_results else sys.stdout
    stream.write(json.dumps(content, indent=2) + "\n")


def output_console(width: int = 120) -> Any:
    """Return a console for results, of a fixed width without a terminal."""
    from rich.console import Console

    console = Console(emoji=False)  # a name such as :x: is no picture
    return console if console.is_terminal else Console(width=width, emoji=False)


def print_words(console: Any, words: str) -> None:
    """Print words as they are, in one line however long."""
    console.print(printable(words, "\n"), highlight=False, markup=False, soft_wrap=True)


def print_sentences(console: Any, sentences: Sequence[str], before: str = "") -> None:
    """Print what was found in words, each with something before it."""
    for sentence in sentences:
        console.print(f"{before}{sentence}", highlight=False, markup=False)


def error_console() -> Any:
    """Return a console that writes to standard error and breaks no line."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, emoji=False)


def escape(text: str) -> str:
    """Return a text without rich's markup and without control characters."""
    from rich import markup

    return markup.escape(printable(text, "\n"))
