"""Entry point of `mrsa-jax` and `python -m mrsa_jax`."""

from __future__ import annotations

import os
import sys

from mrsa_jax.cli import INTERRUPTED, main


def run() -> None:
    """Run the command line and leave with its exit status."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:  # `main` has said so, or nobody can be told: leave nothing to flush
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if status == INTERRUPTED:
        # XLA may still be computing what was interrupted, and crashes a process that tears the
        # interpreter down under it; everything of ours is already cleaned up.
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
