"""Entry point of `mrsa-jax` and `python -m mrsa_jax`."""

from __future__ import annotations

import os
import sys

from mrsa_jax.cli import INTERRUPTED, main

_BROKEN_PIPE = 141  # what a shell says of a program that SIGPIPE ended


def run() -> None:
    """Run the command line and leave with its exit status."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough: no news, and nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_BROKEN_PIPE)
    if status == INTERRUPTED:
        # XLA may still be computing what was interrupted, and crashes a process that tears the
        # interpreter down under it; everything of ours is already cleaned up.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
