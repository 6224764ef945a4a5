"""Name kinds of optional settings, as the command line's help shows them."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
import typing
from typing import Annotated, Any

import tyro

from mrsa_jax._core.status import ThresholdRule
from mrsa_watch._base.errors import POSITIVE, check_number
from mrsa_watch._base.files import user_path


def _unless_unset(default: str) -> str:
    """Show a default in help.

    The text of a setting without one ends with what happens.
    """
    return "" if default in ("None", "", "''") else f"(default: {default})"


def shown(metavar: str | None = None, name: str | None = None) -> Any:
    """Show a setting in help.

    Its value, and its flag if that is not its field's name.

    Examples:
        >>> norm = Annotated[float | None, shown("C", name="clip-norm")]
    """
    return tyro.conf.arg(metavar=metavar, name=name, help_behavior_hint=_unless_unset)


Count = Annotated[int | None, shown("N")]
File = Annotated[pathlib.Path | None, shown("FILE")]
Folder = Annotated[pathlib.Path | None, shown("DIR")]
Name = Annotated[str | None, shown("NAME")]
Number = Annotated[float | None, shown("X")]
Shares = Annotated[int | ThresholdRule | None, shown("N|RULE")]


def _renamed(cls: object) -> dict[str, str]:
    """Return the fields of settings whose flags have other names, and these names.

    Examples:
        >>> from mrsa_jax.study import AuditConfig
        >>> renamed(AuditConfig)["clip"]
        'clip_norm'
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    marks = (
        (field, mark)
        for field, hint in hints.items()
        for mark in getattr(hint, "__metadata__", ())
    )
    return {
        field: mark.name.replace("-", "_")
        for field, mark in marks
        if getattr(mark, "name", None)
    }


renamed: Any = functools.cache(_renamed)  # each point of a sweep is read


class Cites:
    """Cite papers for values of a setting, as a remark of its type."""

    def __init__(self, **values: str) -> None:
        """Take by value the purpose and the keys of its papers: "data: key key"."""
        self.values = values


class Within:
    """The numbers that a setting may be, each of several too: a remark of its type.

    Attributes:
        low: The least.
        high: The largest.
        rule: Both in words.
    """

    def __init__(
        self,
        low: int | float,
        high: int | float = sys.float_info.max,
        rule: str = "",
    ) -> None:
        """Take the ends, and the words for them where it is not the least alone."""
        self.low, self.high = low, high
        self.rule = rule or f"must be at least {low}"


def check_ranges(config: object) -> None:
    """Raise `ConfigurationError` for the first setting out of its range.

    A class that gives a setting of its base another default leaves it its range.
    """
    cls: object = type(config)
    for name, ranges in _ranges(cls).items():
        value = getattr(config, name)
        for number in value if isinstance(value, tuple | list) else (value,):
            # names that a setting may have instead of a number have no range
            has_range = number is not None and not isinstance(number, str)
            for allowed in ranges if has_range else ():
                check_number(
                    number, name, allowed.rule, float(allowed.low), float(allowed.high)
                )


@functools.cache
def _ranges(cls: Any) -> dict[str, list[Within]]:
    ranges: dict[str, list[Within]] = {}
    for base in reversed(cls.__mro__):
        for name, hint in typing.get_type_hints(base, include_extras=True).items():
            within = [
                mark
                for mark in getattr(hint, "__metadata__", ())
                if isinstance(mark, Within)
            ]
            ranges |= {name: within} if within else {}
    return ranges


BELOW_ONE = 1 - 2**-53
IS_POSITIVE = Within(POSITIVE, rule="must be positive")
IS_GROUP = Within(1.0, rule="must be a finite number of at least 1")
IS_CHANCE = Within(0.0, 1.0, "must lie in [0, 1]")
IS_SHARE = Within(0.0, BELOW_ONE, "must lie in [0, 1)")
IS_INSIDE = Within(POSITIVE, BELOW_ONE, "must lie in (0, 1)")
IS_PART = Within(POSITIVE, 1.0, "must lie in (0, 1]")
IS_BITS = Within(1, 32, "must lie in [1, 32]")
Several = Annotated[int, Within(2)]
Whole = Annotated[int, Within(1)]
Size = Annotated[Whole, Within(1, 2**31 - 1, "must be below 2**31")]
Natural = Annotated[int, Within(0)]
Seed = Annotated[int, Within(0, 2**32 - 1, "must lie in [0, 2**32)")]
Positive = Annotated[float, IS_POSITIVE]
NotNegative = Annotated[float, Within(0.0, rule="must be 0 or positive")]
Chance = Annotated[float, IS_CHANCE]
Share = Annotated[float, IS_SHARE]
Inside = Annotated[float, IS_INSIDE]
AtMostOne = Annotated[float, IS_PART]
Bits = Annotated[int, IS_BITS]


def with_user_paths(config: Any) -> Any:
    """Replace ~ by the user's folder in the paths of settings and their tables."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, pathlib.Path):
            changes[field.name] = user_path(value, field.name)
        elif isinstance(value, tuple) and any(
            isinstance(item, pathlib.Path) for item in value
        ):
            changes[field.name] = tuple(user_path(item, field.name) for item in value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = with_user_paths(value)
    changed = {
        name: new for name, new in changes.items() if new != getattr(config, name)
    }
    return dataclasses.replace(config, **changed) if changed else config
