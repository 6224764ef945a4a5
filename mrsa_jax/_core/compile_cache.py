"""Keep compiled programs on disk, between runs. Nothing here imports JAX."""

from __future__ import annotations

import os
import pathlib
import sys
import warnings

from mrsa_watch._base.cache import cache_folder, say_not_kept

_FOLDER = "JAX_COMPILATION_CACHE_DIR"
# What takes less to compile is not worth a file.
_RULES = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0.3,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": -1,
}


def use_compile_cache(
    folder: str | os.PathLike[str] | None = None,
) -> pathlib.Path | None:
    """Keep compiled programs between runs of Python.

    What ran once starts in a fraction of a time.
    The commands do this by themselves. A library leaves JAX's settings alone, so there
    it takes this line, best before the first program runs. All of JAX's programs are
    kept, yours too; processes that this one starts inherit the folder. Nothing is ever
    removed from it.

    Args:
        folder: Where; if None, where JAX keeps them already
            (`JAX_COMPILATION_CACHE_DIR`), else in `mrsa_jax/jax` of the user's cache
            folder.

    Returns:
        The folder; None where the user has none that can be written.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax, tempfile
        >>> folder = mj.use_compile_cache(
        ...     jax.config.jax_compilation_cache_dir or tempfile.mkdtemp()
        ... )
        >>> str(folder) == jax.config.jax_compilation_cache_dir
        True
    """
    # JAX writes an entry in place: one that another process is writing, or that a kill
    # cut short, is compiled again, which is no news to the user.
    unread = "Error reading persistent compilation cache entry"
    warnings.filterwarnings("ignore", message=unread, category=UserWarning)
    jax = sys.modules.get("jax")
    current = (
        os.environ.get(_FOLDER) if jax is None else jax.config.jax_compilation_cache_dir
    )
    if folder is None and current is not None:
        return pathlib.Path(current)
    if folder is None:
        home = cache_folder()
        if home is None:
            say_not_kept(_FOLDER, "no folder for it can be written")
            return None
        folder = home / "mrsa_jax" / "jax"
    chosen = pathlib.Path(folder).absolute()
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
    # whether there is one is asked at the first program only
    compilation_cache.reset_cache()
