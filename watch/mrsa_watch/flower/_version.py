"""Says at import of the adapter whether there is a Flower that it can work with."""

from __future__ import annotations

import importlib.metadata
import re

from mrsa_watch._base.errors import EXTRAS, MrsaError, how_to_install

FIRST, BEFORE = (1, 38), (1, 43)
"""Versions that were tried: from the first on, before the second."""
_HOW = f"must have {EXTRAS['flower']} ({how_to_install('flower')})"


class UnsupportedFlowerError(MrsaError, ImportError):
    """There is no Flower, or one of a version that the adapter was not tried with."""


def check_version() -> str:
    """Return the version of Flower that is installed.

    Raises:
        UnsupportedFlowerError: If there is none, or none in the range.
    """
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise UnsupportedFlowerError(f"`mrsa_watch.flower` {_HOW}; got none") from None
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not FIRST <= numbers < BEFORE:
        raise UnsupportedFlowerError(f"`mrsa_watch.flower` {_HOW}; got flwr {version}")
    return version
