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

from mrsa_jax._core.sources import PLUGIN, file_of, module_sources
from mrsa_watch._base.errors import ConfigurationError, require

_LOADED: dict[str, dict[str, str]] = {}  # digests of each one's own text and its neighbours'
_loading: list[str] = []


def loaded_plugins() -> dict[str, dict[str, str]]:
    """Return what has been loaded, for processes that are to do as this one: paths, modules."""
    return dict(_LOADED)


def loading() -> tuple[str, ...]:
    """Return the names of the modules of plugins that are being loaded."""
    return tuple(_loading)


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
        own = f"{PLUGIN}{path.stem}" if is_file else name
        _loading.append(own)
        try:
            _run_file(own, path) if is_file else importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a user's code raises what it likes
            raise ConfigurationError(
                f"`plugin` must run without an error; got {name!r}: {_where(error, path)}"
                f"{type(error).__name__}: {error}"
            ) from error
        finally:
            _loading.pop()
        there = path if is_file else file_of(name)
        key = str(path) if is_file else name
        _LOADED[key] = {} if there is None else module_sources(own, there)


def _run_file(own: str, path: pathlib.Path) -> None:
    """Run a file's text, never an older compiled one, with neighbours as they are now."""
    before = _LOADED.get(str(path), {})
    if any(before.get(one) != text for one, text in module_sources(own, path).items()):
        for name in before:
            sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module  # where dataclasses and pickle look for its classes
    try:
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[own]
        raise


def _where(error: BaseException, path: pathlib.Path) -> str:
    """Return the last line of the file that led to an error, if one did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"line {lines[-1]}: " if lines else ""
