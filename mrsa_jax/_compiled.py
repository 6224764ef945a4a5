"""Compiled loops for exact searches on the CPU.

XLA splits the small, branching steps of an elimination or an enumeration over threads and loses
most of its time there; such loops are compiled by numba instead. Modules of compiled loops are
imported only by the functions that use them, so that the package starts without numba.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mrsa_jax._device import chosen_form


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of NumPy arrays and integers; it runs without Python's lock.

    The machine code is kept between runs, beside the source or in `NUMBA_CACHE_DIR`. It holds all
    that the function calls: a loop called by another is a part of that one's machine code, and has
    its own only once Python calls it. Arguments of other types compile the function anew; types
    whose integers would meet in a float (int64 and uint64) raise numba's `TypingError` instead.

    Raises:
        ConfigurationError: If numba is not there.
    """
    chosen_form(("loops",))
    import numba

    from mrsa_jax._integer_loops import IntegerCompiler, LoopCache, PartCompiler, call_by_part

    # A type checker may have wrapped the function on import; the loop itself is compiled.
    own = inspect.unwrap(function)
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    loop = numba.njit(own, pipeline_class=IntegerCompiler, **settings)
    settings["no_cpython_wrapper"] = True
    call_by_part(loop, numba.njit(own, pipeline_class=PartCompiler, **settings))
    loop._cache = LoopCache(loop.py_func)
    return loop
