"""Every table and figure of the papers, remade and judged against what was printed.

What needs JAX loads when first used: the command line's help lists the items and must not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_papers._catalog import ITEMS
from mrsa_papers._config import ReproduceConfig, check_targets

if TYPE_CHECKING:
    from mrsa_papers._driver import SavedReproduction, remake, run_and_save
    from mrsa_papers._folder import Made
    from mrsa_papers.harness._items import Check, Item
    from mrsa_papers.multiround._echelon import echelon_estimate

__all__ = [
    "ITEMS",
    "Check",
    "Item",
    "Made",
    "ReproduceConfig",
    "SavedReproduction",
    "check_targets",
    "echelon_estimate",
    "remake",
    "run_and_save",
]

__getattr__, __dir__ = late_names(__name__)
