"""Compile functions as `jax.jit` does: inside others, or in less time."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import jax

from mrsa_jax._core.device import platform
from mrsa_jax._core.traced import is_tracing

one_program = functools.partial(jax.jit, inline=True)
"""Decorates what people call by itself.

One program there, nothing separate in another one.
"""


# What XLA leaves out for a CPU's program that is to be there soon: it is compiled in a
# quarter to a half of the time and runs up to seventeen times as long.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
# Entries up to which compiling is most of the work: of 180 clients and 180 rounds.
# There a first call saves 0.7 to 4 seconds, a later one loses 0.01 to 0.8; at 360 of
# each, about a second each.
LITTLE = 2**15


def quick_for_little(
    entries: Callable[..., int], **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `jax.jit` does, but in less time for little work on a CPU.

    Integers are the same either way; floats may differ in their last digits.

    Args:
        entries: How many there are to work on, of the function's arguments, which come
            by place.
        options: Of `jax.jit`.

    Returns:
        Decorates the function, whose attribute `in_full` never compiles so: for parts
        of much.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        full = jax.jit(function, **options)

        @functools.cache
        def quick() -> Callable[..., Any]:
            return jax.jit(function, compiler_options=_known(QUICK), **options)

        @functools.wraps(function)
        def chosen(*arguments: object, **named: object) -> Any:
            is_much = (
                platform() != "cpu" or is_tracing() or entries(*arguments) > LITTLE
            )
            return (full if is_much else quick())(*arguments, **named)

        chosen.in_full = full  # type: ignore[attr-defined]
        return chosen

    return decorated


# For NVIDIA GPUs XLA compiles each matrix product in many forms by Triton, and keeps the
# fastest. In float32 one form takes up to 13 seconds, which is the likely reason why
# the program of a CNN was not ready after 130. NVIDIA's library is tried in several
# ways as well, none of which is compiled.
BY_LIBRARY = {"xla_gpu_enable_triton_gemm": False}
# Who sets one of these in `XLA_FLAGS` has decided.
_DECIDING = ("enable_triton_gemm", "autotune_level", "exhaustive_tiling_search")


def products_by_library(
    function: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """Compile a function as `jax.jit` does, for NVIDIA GPUs in less time.

    There its matrix products are those of NVIDIA's library, unless `XLA_FLAGS` says how
    XLA is to choose among them. Floats may differ in their last digits.

    Args:
        function: What is compiled; if None, a decorator is returned.
        options: Of `jax.jit`.

    Returns:
        The program, with `lower`, `trace` and `eval_shape`.
    """
    if function is None:
        return functools.partial(products_by_library, **options)
    plain = jax.jit(function, **options)

    @functools.cache
    def by_library() -> Any:
        return jax.jit(function, compiler_options=_known(BY_LIBRARY), **options)

    def chosen() -> Any:
        # options are for whole programs: inside another one there are none
        is_plain = platform() != "cuda" or _is_decided() or is_tracing()
        return plain if is_plain else by_library()

    @functools.wraps(function)
    def program(*arguments: Any, **named: Any) -> Any:
        return chosen()(*arguments, **named)

    for name in ("lower", "trace", "eval_shape", "_cache_size"):
        method: Any = functools.partial(
            lambda name, *arguments, **named: getattr(chosen(), name)(
                *arguments, **named
            ),
            name,
        )
        setattr(program, name, method)
    return program


def _is_decided() -> bool:
    """Return whether the user has set how XLA chooses among forms of products."""
    flags = os.environ.get("XLA_FLAGS", "")
    return any(f"xla_gpu_{name}" in flags for name in _DECIDING)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Return those of the options that this version of XLA has."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda: 0, compiler_options={name: value})()
        return True
    return False
