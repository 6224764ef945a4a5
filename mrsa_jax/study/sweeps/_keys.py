"""Keys of points: digests of their settings, and of the code and files behind them.

A digest of its settings, and of the code and files it is made of.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from mrsa_jax.availability.registry import Model
from mrsa_jax.study.kinds import Kind
from mrsa_jax.study.settings._config import PopulationConfig, studied
from mrsa_jax.study.settings._load import each_once, own_and_tables, to_dict
from mrsa_jax.study.settings._tables import AggregationConfig
from mrsa_jax.study.settings._training_tables import (
    PARTITIONS,
    DataConfig,
    TrainingConfig,
)
from mrsa_jax.study.stores._sources import Sources

COMPUTES_ALIKE: dict[str, tuple[str, ...]] = {
    "simulate": (),
    "train": (
        "figures of the weights that sums had, clipped values and failed uploads kept",
    ),
    "secagg": ("rounds without a sum are counted",),
}
"""By which changes results of a kind came to differ, oldest first, in a few words each.

Versions of the package with as many changes compute alike, and take each other's
points; no other part of a key depends on the version. A change of any figure of the
golden points adds its words.
"""
RANGED = ("simulate", "secagg")
"""Kinds whose points are a number of trials, each by itself: more can be added."""


def _of_population(table: PopulationConfig) -> Iterable[str]:
    read = Model.parse(table.availability).row.reads(table.dropout_rates)
    # whose rates lie between those that are given
    by_label = table.assignment == "by_label"
    return {"dropout_rates", "assignment"}.difference(
        read, {"assignment"} if by_label else ()
    )


def _of_data(table: DataConfig) -> Iterable[str]:
    read = PARTITIONS[table.partition][1:]
    return {name for _, *names in PARTITIONS.values() for name in names}.difference(
        read
    )


def _of_aggregation(table: AggregationConfig) -> Iterable[str]:
    moves = () if table.clip_rule != "fixed" else ("clip_multiplier", "clip_floor")
    return *moves, *(() if table.is_noisy else ("noise", "target_delta"))


UNREAD: dict[type, Callable[[Any], Iterable[str]]] = {
    PopulationConfig: _of_population,
    DataConfig: _of_data,
    TrainingConfig: lambda table: () if table.decay_rounds else ("decay_factor",),
    AggregationConfig: _of_aggregation,
}
"""Fields of a table that what its other fields choose does not read."""


def as_read(table: Any) -> Any:
    """Return a table of settings in which what nothing reads has its default.

    So points that differ in that alone are one.

    Examples:
        >>> as_read(DataConfig(partition="iid", concentration=3.0)) == DataConfig()
        True
        >>> as_read(DataConfig(partition="dirichlet", concentration=3.0)).concentration
        3.0
    """
    usual = type(table)() if type(table) in UNREAD else None
    unread = UNREAD[type(table)](table) if usual is not None else ()
    changed = {
        name: getattr(usual, name)
        for name in unread
        if getattr(table, name) != getattr(usual, name)
    }
    return dataclasses.replace(table, **changed) if changed else table


@dataclasses.dataclass(frozen=True)
class Identity:
    """The identity of a point.

    Attributes:
        key: 64 hexadecimal digits of all that decides on its results, except the number
            of trials.
        settings: Of its settings alone, as they were written.
        made_by: Versions, code and files, by name.
    """

    key: str
    settings: str
    made_by: dict[str, str]


class Identities:
    """Identify the points of a sweep.

    Each table, file and piece of code is looked at once.

    Args:
        kind: Of the points.
    """

    def __init__(self, kind: Kind) -> None:
        """Begin with no point."""
        self._kind = kind
        self._usual = self._studied(_defaults(kind.config))
        self._sources = Sources()
        self._tables: dict[str, Callable[[Any], list[Any]]] = {}

    def of(self, config: Any) -> Identity:
        """Return the identity of the point with these settings."""
        kind, made = self._kind, self._sources.of(config)
        unusual, written = self._differing(config)
        content = {
            "kind": kind.name,
            "computes": len(COMPUTES_ALIKE.get(kind.name, ())),
            "settings": unusual,
            # what a file of a trace is called says nothing
            "made of": {
                name: digest.partition(" ")[0]
                # the package's code counts by `computes`: a change without effect keeps
                # keys
                for name, digest in made.items()
                if "," in name or not name.startswith(("mrsa_jax", "availability "))
            },
        }
        if kind.code:
            content["code"] = kind.code
        if kind.name not in RANGED:  # floats of trainings differ between platforms
            import jax

            content["platform"] = jax.default_backend()
        return Identity(_digest(content), _digest([kind.name, written]), made)

    def _studied(self, content: dict[str, Any]) -> dict[str, Any]:
        # more trials extend a point, and do not make another
        dropped = ("trials",) if self._kind.name in RANGED else ()
        return {
            name: value
            for name, value in studied(content).items()
            if name not in dropped
        }

    def _differing(self, config: Any) -> list[dict[str, Any]]:
        """Return settings that are not usual.

        With files by their content, and as written.
        """
        fields, tables = map(self._studied, own_and_tables(config))
        usual = {
            name: value for name, value in self._usual.items() if name not in tables
        }
        differing = [_less(self._without_paths(fields), usual), _less(fields, usual)]
        for name, table in tables.items():
            if name not in self._tables:
                self._tables[name] = each_once(functools.partial(self._of_table, name))
            for content, inner in zip(
                differing, self._tables[name](table), strict=True
            ):
                # a table of defaults is left out, unless the command has none of it
                if inner != {} or name not in self._usual:
                    content[name] = inner
        return differing

    def _of_table(self, name: str, table: Any) -> list[Any]:
        plain, usual = to_dict(table), self._usual.get(name, {})
        return [
            _less(content, usual) for content in (self._without_paths(plain), plain)
        ]

    def _without_paths(self, value: Any) -> Any:
        """Return settings with the content of a trace instead of its path."""
        if isinstance(value, dict):
            # the digest of the data stands for their folder
            dropped = {"directory"} if "dataset" in value else set()
            return {
                name: self._without_paths(item)
                for name, item in value.items()
                if name not in dropped
            }
        if isinstance(value, str) and value.startswith("replay:"):
            path, mode = Model.parse(value).parameters
            return f"replay:{self._sources.digest(path)}:{mode}"
        return value


@functools.cache
def _defaults(config: type) -> dict[str, Any]:
    """Return the default of each field; a new field with that value changes no key.

    A new field of that value changes no key.
    """
    try:
        return to_dict(config())
    except TypeError:  # of a user's own, which must be set
        return {}


def _less(content: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    unusual: dict[str, Any] = {}
    for name, value in content.items():
        usual = defaults.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            value = _less(value, usual)
            if value:
                unusual[name] = value
        elif value != usual:
            unusual[name] = value
    # None, where that is not usual
    gone = [name for name in defaults if name not in content]
    return unusual | dict.fromkeys(gone)


def _digest(content: Any) -> str:
    # equal settings must give equal text: sorted names, no spaces, numbers alike
    text = json.dumps(
        _canonical(content), sort_keys=True, separators=(",", ":"), default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Return plain values of which equal numbers are written alike.

    1.0 as 1, -0.0 as 0.
    """
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
