"""Objects on the axes of a sweep, which get a name while the sweep lasts.

An object is registered as a plugin's row would be, with a digest of its code and of
all that it holds. So everything behind it, keys and stores among them, sees a name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mrsa_jax._core.registry import label_of_words, no_parameters
from mrsa_jax._core.sources import Code
from mrsa_jax._core.state import digest_of
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as selection
from mrsa_jax.study.settings import _parts
from mrsa_watch._base.errors import require

_MOST_CHARACTERS = 80


@dataclasses.dataclass(frozen=True)
class _Family:
    """A family of values that may be given as objects.

    Attributes:
        rows: Those that have names.
        register: (name, factory) -> None.
        has: What a value has, and a factory that makes one has not.
        made: A value -> the factory that returns it.
    """

    rows: dict[str, Any]
    register: Callable[[str, Any], None]
    has: tuple[str, ...]
    made: Callable[[Any], Callable[..., Any]] = lambda value: lambda *arguments: value

    def has_value(self, thing: Any) -> bool:
        """Return whether an object is a value of the family."""
        has_all = all(
            any(hasattr(thing, name) for name in names.split(" or "))
            for names in self.has
        )
        return has_all and not isinstance(thing, type)


def _of_its_sizes(selector: Any) -> Callable[..., Any]:
    def factory(num_clients: int, cohort_size: int) -> Any:
        # a selector without a cohort size fits any
        sizes = selector.num_clients, int(getattr(selector, "cohort_size", cohort_size))
        rule = "must be made for the clients and the cohort of the population"
        require(
            sizes == (num_clients, cohort_size),
            "scheme",
            rule,
            sizes,
            (num_clients, cohort_size),
        )
        return selector

    return factory


def _of_its_model(trainer: Any) -> Callable[..., Any]:
    def factory(model: Any, training: Any) -> Any:
        other = getattr(trainer, "model", model)
        require(
            other == model,
            "trainer",
            "must be made for the model that is trained",
            other,
            model,
        )
        return trainer

    return factory


_SCHEMES = _Family(
    selection.ROWS, selection.register, ("init", "select"), _of_its_sizes
)
_FAMILIES = {
    "scheme": _SCHEMES,
    "schemes": _SCHEMES,
    "availability": _Family(
        availability.ROWS, availability.register, ("for_clients", "sample")
    ),
    "graph": _Family(graphs.ROWS, graphs.register, ("num_clients", "sample")),
    **{
        kind: _Family(part.rows, functools.partial(_parts.register, kind), part.has)
        for kind, part in _parts.KINDS.items()
    },
}
_FAMILIES["trainer"] = dataclasses.replace(_FAMILIES["trainer"], made=_of_its_model)


class Objects:
    """Gives names to the objects of a study.

    Args:
        stack: Takes the names back when it ends.
        depends: What they depend on in addition to what they reach.

    Attributes:
        names: Those that were given.
    """

    def __init__(self, stack: contextlib.ExitStack, depends: Any = None) -> None:
        """Begin with none."""
        self._depends = depends
        self.names: list[str] = []
        self._stack = stack

    def named(self, content: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return settings in which names stand for the objects.

        Raises:
            ConfigurationError: If an object has no name, the name of another, or no
                digest.
        """
        return {
            name: self._named(str(name), value, path) for name, value in content.items()
        }

    def _named(self, name: str, value: Any, path: str) -> Any:
        family, path = _FAMILIES.get(name.rpartition(".")[2]), f"{path}{name}"
        if isinstance(value, list):
            places = [(item, f"{path}[{i}]") for i, item in enumerate(value)]
            if family is not None:
                return [
                    own for item, at in places for own in self._names(family, item, at)
                ]
            tables = all(isinstance(item, Mapping) for item in value)  # [[zip]]
            return (
                [self.named(item, f"{at}.") for item, at in places] if tables else value
            )
        if family is not None:
            several = self._names(family, value, path)
            return several[0] if len(several) == 1 else several
        return self.named(value, f"{path}.") if isinstance(value, Mapping) else value

    def _names(self, family: _Family, item: Any, path: str) -> list[Any]:
        """Return the name of an object, or those of a table of some.

        Another value as it is.
        """
        if isinstance(item, Mapping):
            for name, thing in item.items():
                rule = "must be an object, or a function that makes one"
                good = family.has_value(thing) or callable(thing)
                require(good, f"{path}.{name}", rule, thing)
                self._register(family, name, thing, path)
            return list(item)
        if not family.has_value(item) and not callable(item):
            return [item]
        name = getattr(item, "__name__", None) or repr(item)
        self._register(family, name, item, path)
        return [name]

    def _register(self, family: _Family, name: Any, thing: Any, path: str) -> None:
        good = (
            isinstance(name, str)
            and 0 < len(name) <= _MOST_CHARACTERS
            and name.isprintable()
        )
        good = good and not any(mark in name for mark in (":", " at 0x", "<lambda>"))
        rule = (
            "must have a name that tables can show, without a colon, as "
            "{'mine': object} gives"
        )
        require(good, path, rule, name)
        # a digest of the code and of all values that the object holds
        code = Code(thing, name, path, self._depends)
        digests = code()
        rows = family.rows
        if name in rows:
            rule = (
                "must have a name that nothing else has, as {'another': object} gives"
            )
            require(
                name in self.names and rows[name].code() == digests, path, rule, name
            )
            return
        # registries take names of letters, digits and underscores only: the row is
        # registered under such a name, and then moved to the object's own
        value, legal = _linen(thing), f"object_{digest_of(name.encode())}"
        is_value = family.has_value(value)
        family.register(legal, family.made(value) if is_value else value)
        row = rows.pop(legal)
        changes: dict[str, Any] = {
            "code": code.again,
            "rule": row.rule.replace(legal, name),
        }
        if hasattr(row, "label"):
            changes["label"] = label_of_words(name)
        if is_value:
            changes |= {"read": no_parameters, "rule": ""}
        rows[name] = dataclasses.replace(row, **changes)
        # names end with the study, as another may use them for other objects
        self._stack.callback(rows.pop, name)
        self.names.append(name)


def _linen(thing: Any) -> Any:
    """Return a class of `flax.nnx` as the linen module that trainings take."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(thing, type) and issubclass(thing, nnx.Module):
        return nnx.bridge.to_linen(thing)
    return thing
