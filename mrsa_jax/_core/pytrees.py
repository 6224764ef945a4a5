"""Make frozen dataclasses pytrees that print as one types them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import jax
import numpy as np

from mrsa_jax._core.pictures import with_picture
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import ConfigurationError
from mrsa_watch._base.html import brief
from mrsa_watch._base.values import by_value

Calls: TypeAlias = list[tuple[Any, ...]]
"""Calls that may have made a scheme: a factory and its arguments each."""

_Value = TypeVar("_Value")


def as_typed(value: Any) -> str:
    """Return the call that makes a scheme, as one types it.

    It is made again and compared, so that only a true call is printed; where none is
    found, as for rates of many clients or numbers that only a transformation knows,
    what `brief` says.

    Examples:
        >>> import mrsa_jax as mj
        >>> (
        ...     mj.selection.batch_partitioning(120, 12, 4),
        ...     mj.availability.independent(0.1),
        ... )
        (batch_partitioning(120, 12, 4), independent(0.1))
    """
    leaves, shape = jax.tree.flatten(value)
    try:
        calls = [] if is_traced(leaves) else value.typed()
    except (
        TypeError,
        ValueError,
    ):  # schemes of many trials, or what JAX puts into a pytree
        calls = []
    for factory, *arguments in calls:
        try:
            again, form = jax.tree.flatten(factory(*arguments))
        except ConfigurationError:
            continue
        if str(form) == str(shape) and all(map(np.array_equal, again, leaves)):
            return f"{factory.__name__}({', '.join(map(repr, arguments))})"
    return brief(value)


def static(default: Any = dataclasses.MISSING) -> Any:
    """Return the field of a `pytree` that decides on programs, instead of a leaf."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[_Value]) -> type[_Value]:
    """Make a class a frozen dataclass and a pytree of its non-static fields.

    It prints as `brief` does unless the class says how, or has `typed()`, which lists
    calls that may have made it: a factory and its arguments each. Notebooks then show
    its fields too, and where it has `_cells()` a picture. It compares and hashes by
    value, arrays by type, shape and bytes.
    """
    shown_as = as_typed if hasattr(cls, "typed") else brief
    cls.__repr__ = cls.__dict__.get("__repr__", shown_as)  # type: ignore[method-assign]
    if shown_as is as_typed or hasattr(cls, "_cells"):
        cls._repr_html_ = with_picture  # type: ignore[attr-defined]
    frozen = dataclasses.dataclass(frozen=True, eq=False, repr=False)
    return jax.tree_util.register_dataclass(frozen(by_value(cls)))
