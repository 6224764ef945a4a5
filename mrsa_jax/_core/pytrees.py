"""Make frozen dataclasses pytrees that print as one types them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform

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
    return told_apart(frozen(by_value(cls)))


def told_apart(cls: type[_Value]) -> type[_Value]:
    """Make a dataclass a pytree of its non-static fields, equal to that of no other.

    `jax.tree_util.register_dataclass` (JAX 0.10 to 0.12) compares classes by their
    static values and numbers of fields alone: a graph of one class may run through the
    program that was compiled for one of another.
    """
    fields = [field for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    is_static = [bool(field.metadata.get("static")) for field in fields]
    names = [field.name for field in fields]
    leaves = [name for name, no in zip(names, is_static, strict=True) if not no]
    statics = [name for name, yes in zip(names, is_static, strict=True) if yes]
    keys = [jax.tree_util.GetAttrKey(name) for name in leaves]

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children = tuple(getattr(value, name) for name in leaves)
        return children, tuple(getattr(value, name) for name in statics)

    def flatten_with_keys(value: Any) -> tuple[Any, tuple[Any, ...]]:
        children, decides = flatten(value)
        return tuple(zip(keys, children, strict=True)), decides

    def unflatten(decides: Any, children: Any) -> Any:
        given = dict(zip(leaves, children, strict=True))
        return cls(**given, **dict(zip(statics, decides, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    _TOLD_APART.add(cls)
    return cls


_TOLD_APART: set[type] = set()


def kept_apart(value: _Value) -> _Value:
    """Return a scheme that runs through no program compiled for another class.

    For what users write, often with `register_dataclass`: a scheme that holds such a
    class, be it the class of a notebook whose cell runs again, comes back with its
    classes as a static field. It has the same attributes and methods.
    """
    kinds = tuple(_not_told_apart(jax.tree.structure(value)))
    return cast("_Value", _Apart(value, kinds)) if kinds else value


def _not_told_apart(structure: Any) -> Iterator[type]:
    node = structure.node_data()
    if node is None:
        return
    kind: type = node[0]
    if kind not in _TOLD_APART and dataclasses.is_dataclass(kind):
        yield kind
    for child in structure.children():
        yield from _not_told_apart(child)


@told_apart
@dataclasses.dataclass(frozen=True, repr=False)
class _Apart:
    value: Any
    kinds: tuple[type, ...] = static()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a copy that has no fields yet
            raise AttributeError(name)
        return getattr(self.value, name)

    def __repr__(self) -> str:
        return repr(self.value)
