"""Every table and figure of the papers, remade and judged against what was printed.

What needs JAX loads when first used: the command line's help lists the items and must not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
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

_LATE = {
    "_ccesa": ("ccesa",),
    "_echelon": ("echelon_estimate",),
    "_folder": ("Made",),
    "_heterosag": ("heterosag",),
    "_items": ("Check", "Item"),
    "_multiround": ("multiround",),
    "_save": ("SavedReproduction", "run_and_save"),
}
__getattr__, __dir__ = late_names(__name__, _LATE, __all__)
