"""Errors that name arguments of functions, in the names of a command's settings.

Nothing here imports JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from mrsa_jax._core.flags import renamed
from mrsa_watch._base.errors import MrsaError

_QUOTED = re.compile(r"`(\w+)`")
_SETTINGS: dict[str, tuple[str, ...]] = {
    "fairness": ("the fairness rule of `schemes`", "the fairness rule of `scheme`"),
    "name": ("`dataset`",),
    "path": ("`run`", "`folder`", "`drift`"),
    "privacy_target": (
        "the privacy target of `schemes`",
        "the privacy target of `scheme`",
    ),
    "scheme": ("`schemes`", "`candidates`"),
    "shadow_size": ("`client_size`",),
}
"""Arguments of functions, and words with the settings that decide them.

A command takes the first words whose settings it has.
"""


def names_of(settings: Any) -> set[str]:
    """Return the names of all settings of a command, and of their flags.

    Args:
        settings: An instance of its settings, whose tables are instances too.

    Examples:
        >>> import pathlib
        >>> from mrsa_jax.study import AuditConfig, SimulateConfig
        >>> {"num_clients", "graph"} <= names_of(SimulateConfig())
        True
        >>> {"clip", "clip_norm"} <= names_of(AuditConfig(pathlib.Path("log")))
        True
    """
    names = {*renamed(type(settings)).values()}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        names |= names_of(value) if dataclasses.is_dataclass(value) else {field.name}
    return names


def in_settings(text: str, *settings: Any) -> str:
    """Return a message whose rule names settings instead of arguments of functions.

    Args:
        text: The message.
        *settings: Of the command; more than one where a point has its own.

    Examples:
        >>> from mrsa_jax.study import SimulateConfig
        >>> in_settings("`scheme` must be a known scheme; got 'x'", SimulateConfig())
        "`schemes` must be a known scheme; got 'x'"
    """
    known = set().union(*map(names_of, settings))

    def of_the_command(match: re.Match[str]) -> str:
        if match[1] in known:
            return match[0]
        fitting = (
            words
            for words in _SETTINGS.get(match[1], ())
            if known.issuperset(_QUOTED.findall(words))
        )
        return next(fitting, match[0])

    rule, got, values = text.partition("; got ")
    return _QUOTED.sub(of_the_command, rule) + got + values


@contextlib.contextmanager
def named_by(*settings: Any) -> Iterator[None]:
    """Raise errors whose messages name the settings of a command.

    Args:
        *settings: As `in_settings` takes them.
    """
    try:
        yield
    except MrsaError as error:
        # the same error, so that its class and traceback stay
        error.args = (in_settings(str(error), *settings), *error.args[1:])
        raise
