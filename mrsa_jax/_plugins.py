"""Files and modules of a user's that register schemes; they run with the rights of who names them.

Only a caller names them (`--plugin` on the command line), never a file of settings: a study that
was sent by somebody else is data.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import sys
import traceback
from collections.abc import Iterable

from mrsa_jax._errors import ConfigurationError, require

_LOADED: dict[str, None] = {}


def loaded_plugins() -> tuple[str, ...]:
    """Return what has been loaded, for processes that are to do as this one: paths, modules."""
    return tuple(_LOADED)


def load_plugins(names: Iterable[str]) -> None:
    """Run Python files, and import modules.

    Args:
        names: Paths that end in .py, or dotted names of modules that are installed.

    Raises:
        ConfigurationError: If there is none of a name, or it cannot be run, with where and why.
    """
    for name in names:
        is_file = name.endswith(".py") or os.sep in name
        path = pathlib.Path(name).absolute()
        rule = "must be an existing Python file (.py), or an installed module"
        require(not is_file or (path.suffix == ".py" and path.is_file()), "plugin", rule, name)
        try:
            _run_file(path) if is_file else importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a user's code raises what it likes
            raise ConfigurationError(
                f"`plugin` must run without an error; got {name!r}: {_where(error, path)}"
                f"{type(error).__name__}: {error}"
            ) from error
        _LOADED[str(path) if is_file else name] = None


def _run_file(path: pathlib.Path) -> None:
    own = f"mrsa_jax_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module  # where dataclasses and pickle look for its classes
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise


def _where(error: BaseException, path: pathlib.Path) -> str:
    """Return the last line of the file that led to an error, if one did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"line {lines[-1]}: " if lines else ""
