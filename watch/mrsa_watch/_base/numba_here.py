"""numba, regardless of settings with which it compiles nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import sys


def _set_aside() -> None:
    """Take away settings with which numba cannot compile, or not even be imported.

    Loops of words of 64 bits have no form in plain Python, so they are compiled while a
    debugger or a measure of coverage has numba's compiler off.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        del os.environ["NUMBA_DISABLE_JIT"]
        logging.getLogger("mrsa_watch").warning(
            "NUMBA_DISABLE_JIT is ignored: loops are compiled"
        )
    with contextlib.suppress(ValueError):
        if int(os.environ.get("NUMBA_NUM_THREADS", "1")) < 1:
            del os.environ["NUMBA_NUM_THREADS"]


if "numba" not in sys.modules:
    _set_aside()

import numba  # noqa: E402

if numba.config.DISABLE_JIT:
    raise ImportError(
        "numba was imported with NUMBA_DISABLE_JIT set, so it can compile nothing"
    )

__all__ = ["numba"]
