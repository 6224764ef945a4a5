"""Keep compiled programs on disk, between runs. Nothing here imports JAX."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import sys
import warnings
from typing import IO, Any

# ---- Locks on files; the system takes them back however a process ends.


def locked(file: IO[Any] | int, *place: int, waits: bool = False) -> bool:
    """Lock an open file and return whether it is ours; True also where there are no locks.

    Args:
        file: Open for writing, or its number; a lock of the whole belongs to this opening of it.
        *place: Length and start of a part of it, or (0, 0) for all parts: such locks work on
            network file systems too, and belong to the process.
        waits: Whether to wait for the whole file until another lets it go.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    how = fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB)
    try:
        fcntl.lockf(file, how, *place) if place else fcntl.flock(file, how)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)  # else: no locks on this disk
    return True


def unlock(file: IO[Any], *place: int) -> None:
    """Let a part of a file go."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_UN, *place)


# ---- Keep compiled programs on disk, between runs. Nothing here imports JAX.

_FOLDER = "JAX_COMPILATION_CACHE_DIR"
# What takes less to compile is not worth a file.
_RULES = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.3,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
}


def use_compile_cache(folder: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Keep compiled programs between runs of Python: what ran once starts in a fraction of a time.

    The commands do this by themselves. A library leaves JAX's settings alone, so there it takes
    this line, best before the first program runs. All of JAX's programs are kept, yours too;
    processes that this one starts inherit the folder. Nothing is ever removed from it.

    Args:
        folder: Where; if None, where JAX keeps them already (`JAX_COMPILATION_CACHE_DIR`), else in
            `mrsa_jax/jax` of the user's cache folder.

    Returns:
        The folder.

    Examples:
        >>> import jax, tempfile
        >>> folder = use_compile_cache(jax.config.jax_compilation_cache_dir or tempfile.mkdtemp())
        >>> str(folder) == jax.config.jax_compilation_cache_dir
        True
    """
    # JAX writes an entry in place: one that another process is writing, or that a kill cut short,
    # is compiled again, which is no news to the user.
    unread = "Error reading persistent compilation cache entry"
    warnings.filterwarnings("ignore", message=unread, category=UserWarning)
    jax = sys.modules.get("jax")
    known = os.environ.get(_FOLDER) if jax is None else jax.config.jax_compilation_cache_dir
    if folder is None and known is not None:
        return pathlib.Path(known)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    chosen = pathlib.Path(home, "mrsa_jax", "jax") if folder is None else pathlib.Path(folder)
    chosen = chosen.absolute()
    os.environ[_FOLDER] = str(chosen)
    for name, value in _RULES.items():
        os.environ.setdefault(name, str(value))
    if jax is not None:
        _tell_jax(chosen)
    return chosen


def _tell_jax(folder: pathlib.Path) -> None:
    """Change the settings of a JAX that has read the environment already."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update(_FOLDER.lower(), str(folder))
    for name in _RULES:
        jax.config.update(name.lower(), type(_RULES[name])(os.environ[name]))
    compilation_cache.reset_cache()  # whether there is one is asked at the first program only
