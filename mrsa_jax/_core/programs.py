"""Compile functions as `jax.jit` does: inside others, or sooner for little work."""

from __future__ import annotations

import contextlib
import functools
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
            return jax.jit(function, compiler_options=_quick_options(), **options)

        @functools.wraps(function)
        def chosen(*arguments: object, **named: object) -> Any:
            is_much = (
                platform() != "cpu" or is_tracing() or entries(*arguments) > LITTLE
            )
            return (full if is_much else quick())(*arguments, **named)

        chosen.in_full = full  # type: ignore[attr-defined]
        return chosen

    return decorated


@functools.cache
def _quick_options() -> dict[str, Any]:
    """Return the options that this version of XLA has."""
    options = {}
    for name, value in QUICK.items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0, compiler_options={name: value})()
            options[name] = value
    return options
