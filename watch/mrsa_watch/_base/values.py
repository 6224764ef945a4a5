"""Values that compare by what they hold.

`==` gives one bool, and equal values have one hash.
Nothing here imports NumPy or JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, in which a long list of names is easier to read."""
    return tuple(text.split())


def by_value(cls: _Class) -> _Class:
    """Let instances of a dataclass or named tuple compare and hash by their contents.

    What Python generates compares arrays with `==`, which gives arrays, and does not
    hash them. A class that says itself how its values compare keeps that.
    """
    if "__eq__" in cls.__dict__:
        return cls
    cls.__eq__ = _is_equal  # type: ignore[assignment]
    cls.__ne__ = _differs  # type: ignore[assignment]  # tuples do not ask __eq__ for it
    cls.__hash__ = _hash  # type: ignore[assignment]
    return cls


def contents(value: Any) -> Hashable:
    """Return the content of a value, in a form that hashes and compares to one bool.

    Arrays count by type, shape and bytes, so that NaN is equal to itself; random keys
    by their words. Of what is traced, nothing is known but which object it is.

    Examples:
        >>> import numpy as np
        >>> contents([np.arange(2), 3]) == contents([np.arange(2), 3])
        True
        >>> contents(np.float32(1)) == contents(np.float64(1))
        False
    """
    kind = type(value)
    if value is None or isinstance(value, bool | int | str | bytes | type):
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _of_array(value)
    if isinstance(value, float):
        return value if value == value else (kind, "nan")
    if isinstance(value, tuple | list):
        return kind, tuple(map(contents, value))
    if isinstance(value, Mapping):
        return kind, frozenset(
            (contents(key), contents(entry)) for key, entry in value.items()
        )
    if isinstance(value, set):
        return kind, frozenset(value)
    if isinstance(value, functools.partial):
        return kind, contents((value.func, value.args, value.keywords))
    if kind.__eq__ is not _is_equal and _is_hashable(value):
        return value
    if dataclasses.is_dataclass(value):
        fields = (field for field in dataclasses.fields(value) if field.compare)
        return kind, tuple(contents(getattr(value, field.name)) for field in fields)
    return kind, id(value)


def _of_array(value: Any) -> Hashable:
    # imported by who made the array
    numpy, jax = sys.modules["numpy"], sys.modules.get("jax")
    if jax is not None:
        if isinstance(value, jax.core.Tracer):
            return "traced", id(value)
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str(value.dtype), contents(jax.random.key_data(value))
    array = numpy.asarray(value)
    if array.dtype == object:
        return "object", array.shape, tuple(map(contents, array.flat))
    return str(array.dtype), array.shape, array.tobytes()


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # of a class whose values do not hash, or that holds one
        return False
    return True


def _is_equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return self is other or contents(self) == contents(other)


def _differs(self: Any, other: Any) -> Any:
    return (
        NotImplemented if type(self) is not type(other) else not _is_equal(self, other)
    )


def _hash(self: Any) -> int:
    return hash(contents(self))
