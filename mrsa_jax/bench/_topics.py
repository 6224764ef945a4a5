"""The topics of `mrsa-jax bench`: what each measures, and the cases of one when it is wanted."""

from __future__ import annotations

import importlib
import pathlib
import tomllib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mrsa_jax.bench.harness import Case


class Topic(NamedTuple):
    """What a topic measures.

    Attributes:
        ours: What is timed.
        beside: What it is compared with in this process.
        peers: Systems in separate environments that `--peers` compares it with.
        sizes: Settings that a user's own sizes may name, with what they are otherwise.
    """

    ours: str
    beside: str
    peers: tuple[str, ...] = ()
    sizes: Mapping[str, str] = MappingProxyType({})


def _listed(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Return the topics of a folder; none where it is not there, as in an installed package."""
    table = folder / "topics.toml"
    return tomllib.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}


_OWN = _listed(pathlib.Path(__file__).parent)
_ADDED = _listed(pathlib.Path(__file__).parents[2] / "benchmarks" / "topics")

TOPICS: dict[str, Topic] = {
    name: Topic(**(_OWN.get(name, {}) | _ADDED.get(name, {}))) for name in _OWN | _ADDED
}


def of_checkout(name: str) -> Any:
    """Return a module of `benchmarks/`, which only a checkout has."""
    return importlib.import_module(f"benchmarks.{name}")


def topic_module(topic: str) -> Any:
    """Return the module of one of the package's own topics."""
    return importlib.import_module(f"mrsa_jax.bench._{topic}")


def cases_of(topic: str, *, quick: bool) -> list[Case]:
    """Return the cases of a topic; imports JAX and what the topic needs.

    Args:
        topic: A name of `TOPICS`.
        quick: Sizes of seconds instead of those that the records hold.

    Returns:
        The cases in the order in which they are run; those that a checkout adds come last.
    """
    modules = [topic_module(topic)] if topic in _OWN else []
    if topic in _ADDED:
        modules.append(of_checkout(f"topics.{topic}"))
    return [case for module in modules for case in module.cases(quick)]
