"""Whether processes can be started where a script stands.

Each of them runs the script again.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import types
from typing import Any

from mrsa_watch._base.errors import ConfigurationError, require

_GUARD = 'if __name__ == "__main__":'


def check_main(distributed: Any, workers: int | None) -> None:
    """Raise where a worker process would run the statement again that starts it.

    Python starts a process by running the main script's text, but under another name:
    what stands below the guard is left out. Notebooks, `python -c` and modules with a
    `__main__` have no text that is run.

    Args:
        distributed: The library that starts them.
        workers: How many are asked for.

    Raises:
        ConfigurationError: If the statement is not below a guard, or the script is no
            file.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    # python -m package: nothing is run again under another name
    is_package = spec is not None and spec.name.rpartition(".")[2] == "__main__"
    starts_anew = (
        distributed.config.get("distributed.worker.multiprocessing-method") != "fork"
    )
    if file is None or is_package or not starts_anew:
        return
    path = pathlib.Path(file)
    rule = (
        "must not be set in a script from standard input, which other processes cannot "
        "read"
    )
    require(path.name != "<stdin>", "workers", f"{rule}: save it in a file", workers)
    line = _line_of(main)
    if line is not None and not _is_guarded(path, line):
        raise ConfigurationError(
            f"`workers` must be set below `{_GUARD}`, because each worker process runs "
            "the script "
            f"again; got {workers} in {path.name}, line {line}"
        )


def _line_of(main: types.ModuleType) -> int | None:
    """Return the line of the main script that is being run; None in another thread."""
    # the outermost statement of the script that leads here
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


def _is_guarded(path: pathlib.Path, line: int) -> bool:
    """Return whether a line is part of a condition on the script's name."""
    try:
        tree = ast.parse(path.read_bytes())
    except (
        OSError,
        SyntaxError,
        ValueError,
    ):  # what is not Python's text is not run again
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.lineno <= line <= (node.end_lineno or 0):
            names = (
                name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)
            )
            if "__name__" in names:
                return True
    return False
