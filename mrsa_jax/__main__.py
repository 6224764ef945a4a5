"""Entry point of `mrsa-jax` and `python -m mrsa_jax`."""

from __future__ import annotations

import atexit
import os
import sys

_FIRST = "starting"


def _say(text: str) -> None:
    """Write on the line that a terminal is at, for as long as nothing else is."""
    if sys.stderr is not None and sys.stderr.isatty() and len(sys.argv) > 1:
        sys.stderr.write(f"{text}\r")
        sys.stderr.flush()


def run() -> None:
    """Run the command line and leave with its exit status."""
    _say(_FIRST)
    from mrsa_jax.cli import INTERRUPTED, main  # takes some tenths of a second

    _say(" " * len(_FIRST))
    status = main()
    if status != INTERRUPTED:  # XLA may still be computing what was interrupted
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:  # a log's handler may have closed it
            try:
                stream.flush()
            except OSError:  # `main` has reported it, or cannot: leave nothing to flush
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # The package has cleaned up. The thread pools of Arrow and XLA now and then abort a
    # process that tears the interpreter down under them, and with it the exit status.
    os._exit(status)


if __name__ == "__main__":
    run()
