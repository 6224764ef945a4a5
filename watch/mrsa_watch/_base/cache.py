"""Places for compiled code: a help where it works, and a condition of nothing."""

from __future__ import annotations

import functools
import logging
import os
import pathlib

_LOG = logging.getLogger("mrsa_watch")


def cache_folder() -> pathlib.Path | None:
    """Return the user's folder for what can be made again.

    None where nobody may have one.
    A user without a home (a container's number, a service) has none: `~` would be a
    folder of that name in the working folder.
    """
    setting = os.environ.get("XDG_CACHE_HOME")
    folder = pathlib.Path(setting or os.path.expanduser("~/.cache"))
    return folder if folder.is_absolute() and may_write(folder) else None


def may_write(folder: pathlib.Path) -> bool:
    """Return whether a folder, or the nearest one above it that exists, takes files."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@functools.cache
def say_not_kept(variable: str, why: str) -> None:
    """Say once that compiled code is not kept, and which variable names its folder.

    Args:
        variable: Name of the environment variable.
        why: What stands in the way.
    """
    _LOG.warning(
        "compiled code is not kept for the next run (%s); set %s to a folder that can "
        "be written",
        why,
        variable,
    )
