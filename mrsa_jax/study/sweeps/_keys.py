"""What a point is found by: a digest of its settings, and of the code and files it is made of."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

from mrsa_jax.availability.registry import Model
from mrsa_jax.study._config import studied
from mrsa_jax.study._kinds import Kind
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._run_folder import digest_of_file, made_by

COMPUTES_ALIKE: dict[str, tuple[str, ...]] = {"simulate": (), "train": (), "secagg": ()}
"""By which changes results of a kind came to differ, oldest first, in a few words each.

Versions of the package with as many changes compute alike, and take each other's points; no other
part of a key depends on the version. A change of any figure of the golden points adds its words.
"""
RANGED = ("simulate", "secagg")
"""Kinds whose points are a number of trials, each by itself: more can be added."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a point is.

    Attributes:
        key: 64 hexadecimal digits of all that decides on its results, but for how many trials.
        settings: Of its settings alone, as they were written.
        made_by: Versions, code and files, by name.
    """

    key: str
    settings: str
    made_by: dict[str, str]


def identity(
    kind: Kind, config: Any, file_digest: Callable[[pathlib.Path], str] = digest_of_file
) -> Identity:
    """Return what a point is.

    Args:
        kind: Of the point.
        config: Its settings.
        file_digest: Gives a file's digest, where many points read the same ones.
    """
    written, usual = studied(to_dict(config)), dict(_defaults(kind.config))
    if kind.name in RANGED:
        for own in (written, usual):
            own.pop("trials", None)
    made = made_by(config, file_digest)
    content = {
        "kind": kind.name,
        "computes": len(COMPUTES_ALIKE.get(kind.name, ())),
        "settings": _less(_without_paths(written, file_digest), usual),
        # what a file of a trace is called says nothing
        "made of": {
            name: own.partition(" ")[0]
            for name, own in made.items()
            if "," in name or not name.startswith(("mrsa_jax", "availability "))
        },
    }
    if kind.name not in RANGED:  # floats of trainings differ between platforms
        import jax

        content["platform"] = jax.default_backend()
    return Identity(_digest(content), _digest([kind.name, _less(written, usual)]), made)


@functools.cache
def _defaults(config: type) -> dict[str, Any]:
    """Return what a field is where nobody sets it: a new field of that value changes no key."""
    try:
        return studied(to_dict(config()))
    except TypeError:  # of a user's own, which must be set
        return {}


def _less(content: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        usual = defaults.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            value = _less(value, usual)
            if value:
                found[name] = value
        elif value != usual:
            found[name] = value
    gone = [name for name in defaults if name not in content]  # None, where that is not usual
    return found | dict.fromkeys(gone)


def _without_paths(value: Any, file_digest: Callable[[pathlib.Path], str]) -> Any:
    """Return settings with the content of a trace in place of its path."""
    if isinstance(value, dict):
        left = {"directory"} if "dataset" in value else set()
        return {name: _without_paths(one, file_digest) for name, one in value.items()
                if name not in left}  # fmt: skip
    if isinstance(value, str) and value.startswith("replay:"):
        path, mode = Model.parse(value).parameters
        return f"replay:{file_digest(path)}:{mode}"
    return value


def _digest(content: Any) -> str:
    text = json.dumps(_canonical(content), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Return plain values of which equal numbers are written alike: 1.0 as 1, -0.0 as 0."""
    if isinstance(value, dict):
        return {name: _canonical(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
