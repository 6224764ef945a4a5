"""Names of a package that load when they are first used."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any


def late_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    What it imports `if TYPE_CHECKING` loads when it is first asked for, so that type checkers and
    the interpreter read one list.

    Args:
        package: The package's full name.
    """

    @functools.cache
    def home() -> dict[str, str]:
        """Return the module of each name."""
        import ast  # not before a name is asked for

        spec: Any = sys.modules[package].__spec__
        guarded = (one for one in ast.parse(spec.loader.get_source(package)).body
                   if isinstance(one, ast.If))  # fmt: skip
        lines = (line for block in guarded for line in block.body)
        return {
            alias.name: f"{line.module}"
            for line in lines
            if isinstance(line, ast.ImportFrom)
            for alias in line.names
        }

    def get(name: str) -> Any:
        if name not in home():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home()[name] == package:  # a module of its own
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(home()[name]), name)

    return get, lambda: sorted(sys.modules[package].__all__)
