"""The names that compiled code looks up, read from its bytecode."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable
from typing import NamedTuple


class Use(NamedTuple):
    """A name that code looks up.

    Attributes:
        name: A global, or the module that is imported.
        attributes: Those that follow it at once; of an import, what is imported from
            it.
        level: Of an import, the dots before its name; -1 for a global.
    """

    name: str
    attributes: tuple[str, ...]
    level: int = -1


_FILLING = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


@functools.cache
def names_used(code: types.CodeType) -> tuple[tuple[Use, ...], frozenset[str]]:
    """List the names that a function looks up, and all attributes it reads.

    Functions inside it count.

    Examples:
        >>> names_used((lambda: collections.deque.append).__code__)[0]
        (Use(name='collections', attributes=('deque', 'append'), level=-1),)
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in _FILLING]
    looked_up: dict[Use, None] = {}
    attributes = {step.argval for step in steps if step.opname in _ATTRIBUTES}
    for place, step in enumerate(steps):
        if step.opname in _GLOBALS:
            behind = _leading(steps[place + 1 :])
            looked_up[Use(step.argval, behind)] = None
        elif step.opname == "IMPORT_NAME":
            level, names = (before.argval for before in steps[place - 2 : place])
            looked_up[Use(step.argval, tuple(names or ()), level)] = None
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner, more = names_used(const)
            looked_up |= dict.fromkeys(inner)
            attributes |= more
    return tuple(looked_up), frozenset(attributes)


def _leading(steps: Iterable[dis.Instruction]) -> tuple[str, ...]:
    """Return the attributes that are read one of another, from the first step on."""
    attributes = []
    for step in steps:
        if step.opname not in _ATTRIBUTES:
            break
        attributes.append(step.argval)
    return tuple(attributes)
