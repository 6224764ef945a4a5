"""What lies inside an item.

The module that makes it, with its judges, settings and panels.
"""

from __future__ import annotations

import importlib
from typing import Any

from mrsa_papers import ITEMS, check_targets
from mrsa_papers._driver import function_of
from mrsa_papers.harness import Values
from mrsa_papers.harness._settings import values_of


def inside(target: str) -> Any:
    """Return the module in which an item is made: `inside("multiround.fig4a")`."""
    ((paper, name),) = check_targets(target)
    return importlib.import_module(
        function_of(paper, ITEMS[paper][name].maker).__module__
    )


def values_of_item(target: str, *, fast: bool = False, **given: Any) -> Values:
    """Return the values of an item's settings, as its maker takes them."""
    ((paper, name),) = check_targets(target)
    return values_of(target, ITEMS[paper][name].settings, given, is_fast=fast)
