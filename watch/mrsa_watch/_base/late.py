"""Names of a package that load when they are first used."""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any


def late_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's `__getattr__`, `__dir__` and `__all__`.

    The names are those that its stub `__init__.pyi` imports, so that type checkers and
    the interpreter read one list. Packages inside it are found too.

    Args:
        package: The package's full name, `__name__`.
        file: Its `__file__`, next to the stub.
    """
    folder = pathlib.Path(file).parent
    stub = ast.parse((folder / "__init__.pyi").read_text(encoding="utf-8"))
    home = {
        alias.name: f"{package}.{line.module}"
        if line.level and line.module
        else line.module
        for line in stub.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }

    def get(name: str) -> Any:
        if home.get(name, "") is None or (folder / name / "__init__.pyi").exists():
            return importlib.import_module(f"{package}.{name}")
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    names = sorted(home)
    return get, lambda: names, names
