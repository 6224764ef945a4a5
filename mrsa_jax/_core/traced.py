"""Tell traced values from known ones, and refuse what a function cannot work on.

A function whose work is a program takes traced arrays as they come. One that must know
the values (its result is a Python value, a search on the CPU, an array whose shape
depends on them) refuses them with a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import numpy as np

from mrsa_jax._core.floats import usual_floats
from mrsa_watch._base.errors import KNOWN, require

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def is_traced(*values: object) -> bool:
    """Return whether a leaf of these pytrees is known to a transformation only."""
    # a loop: this runs at every door, and a generator would cost a call for each leaf
    for leaf in jax.tree.leaves(values):  # noqa: SIM110
        if isinstance(leaf, jax.core.Tracer):
            return True
    return False


def needs_values(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Make a function refuse traced arguments.

    With values it runs as it does outside, even where it is called while a caller's
    function is traced.

    Args:
        function: Of arrays whose values it has to know.

    Returns:
        The function; it raises `ConfigurationError`, which names the argument.

    Examples:
        >>> total = needs_values(lambda weights: float(sum(weights)))
        >>> total([1.0, 2.0])
        3.0
        >>> jax.jit(total)([1.0, 2.0])
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `weights` must be known, not traced: call this ...
    """
    usual = usual_floats(function)

    @functools.wraps(function)
    def checked(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if holds_traced((arguments, named)):
            bound = inspect.signature(function).bind(*arguments, **named).arguments
            argument, value = next(
                item for item in bound.items() if holds_traced(item[1])
            )
            require(False, argument, KNOWN, value)
        # what is compiled in another context is compiled once more
        if not is_tracing():
            return usual(*arguments, **named)
        with jax.ensure_compile_time_eval():
            return usual(*arguments, **named)

    return checked


def is_tracing() -> bool:
    """Return whether a caller's function is being traced.

    Then constants are traced as well.
    """
    return isinstance(jax.device_put(np.int32(0)), jax.core.Tracer)


def holds_traced(values: object) -> bool:
    """Return whether anything in these values is traced.

    Fields of plain dataclasses count.
    """
    leaves = jax.tree.leaves(values)
    records = [leaf for leaf in leaves if dataclasses.is_dataclass(leaf)]
    return is_traced(leaves) or any(
        is_traced(list(vars(record).values())) for record in records
    )
