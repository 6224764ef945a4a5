"""Every table and figure of the papers, remade and judged against what was printed.

What needs JAX loads when first used: the command line's help lists the items and must not wait.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mrsa_jax.reproduce._catalog import ITEMS
from mrsa_jax.reproduce._config import ReproduceConfig, check_items, check_targets

if TYPE_CHECKING:
    from mrsa_jax.reproduce._ccesa import ccesa
    from mrsa_jax.reproduce._echelon import echelon_estimate
    from mrsa_jax.reproduce._folder import Made
    from mrsa_jax.reproduce._heterosag import heterosag
    from mrsa_jax.reproduce._items import Check, Item
    from mrsa_jax.reproduce._multiround import multiround
    from mrsa_jax.reproduce._save import SavedReproduction, run_and_save

__all__ = [
    "ITEMS",
    "Check",
    "Item",
    "Made",
    "ReproduceConfig",
    "SavedReproduction",
    "ccesa",
    "check_items",
    "check_targets",
    "echelon_estimate",
    "heterosag",
    "multiround",
    "run_and_save",
]

_HOME = {
    "Check": "_items",
    "Item": "_items",
    "Made": "_folder",
    "SavedReproduction": "_save",
    "ccesa": "_ccesa",
    "echelon_estimate": "_echelon",
    "heterosag": "_heterosag",
    "multiround": "_multiround",
    "run_and_save": "_save",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"mrsa_jax.reproduce.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mrsa_jax.reproduce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
