"""Figures that cannot be drawn: named, while everything else is written."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from mrsa_watch._base.errors import MrsaError

_LOG = logging.getLogger("mrsa_jax")


@contextlib.contextmanager
def named_if_not_drawn(name: str) -> Iterator[None]:
    """Log the name of a figure that Matplotlib cannot draw; raise nothing.

    Errors of settings, of the disk and of memory are raised.

    Args:
        name: Of the figure.
    """
    try:
        yield
    except (MrsaError, OSError, MemoryError):
        raise
    except (
        Exception
    ) as error:  # Matplotlib runs programs and reads fonts, which fail as they like
        why = " ".join(f"{type(error).__name__}: {error}".split())
        _LOG.warning(
            "figure %s could not be drawn, everything else is written (%s)", name, why
        )
