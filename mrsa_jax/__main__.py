"""Entry point of `mrsa-jax` and `python -m mrsa_jax`."""

from __future__ import annotations

import atexit
import os
import signal
import sys

_FIRST = "starting"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _say(text: str) -> None:
    """Write on the line that a terminal is at, for as long as nothing else is."""
    if sys.stderr is not None and sys.stderr.isatty() and len(sys.argv) > 1:
        sys.stderr.write(f"{text}\r")
        sys.stderr.flush()


def _leave(number: int, _frame: object) -> None:
    """End what was interrupted before it had begun."""
    os.write(2, b"interrupted; nothing was begun\n")
    os._exit(128 + number)


def run() -> None:
    """Run the command line and leave with its exit status."""
    heard = [
        number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in heard:
        signal.signal(number, _leave)
    _say(_FIRST)
    from mrsa_jax.cli import INTERRUPTS, main  # takes some tenths of a second

    _say(" " * len(_FIRST))
    INTERRUPTS.ends_process = True
    status = main()
    for number in heard:  # the command has ended: its status stays
        signal.signal(number, signal.SIG_IGN)
    if status not in [128 + number for number in _SIGNALS]:
        atexit._run_exitfuncs()  # XLA may still be computing what was interrupted
    for stream in (sys.stdout, sys.stderr):
        # a log's handler may have closed it
        if stream is not None and not stream.closed:
            try:
                stream.flush()
            except OSError:  # `main` has reported it, or cannot: leave nothing to flush
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # The package has cleaned up. The thread pools of Arrow and XLA now and then abort a
    # process that tears the interpreter down under them, and with it the exit status.
    os._exit(status)


if __name__ == "__main__":
    run()
