"""The topics of `mrsa-jax bench`: what each measures, and the cases of one when it is wanted."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
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


_OWN = pathlib.Path(__file__).parent
_CHECKOUT = pathlib.Path(__file__).parents[2] / "benchmarks" / "topics"


def _topics(folder: pathlib.Path) -> dict[str, Topic]:
    """Return the topics of a folder; none where it is not there, as in an installed package."""
    table = folder / "topics.toml"
    listed = tomllib.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}
    return {
        name: Topic(own["ours"], own["beside"], tuple(own.get("peers", ())), own.get("sizes", {}))
        for name, own in listed.items()
    }


TOPICS: dict[str, Topic] = _topics(_OWN) | _topics(_CHECKOUT)


def topic_module(topic: str) -> Any:
    """Return the module of a topic: of the package, or a file of the checkout."""
    path = _CHECKOUT / f"{topic}.py"
    if not path.is_file():
        return importlib.import_module(f"mrsa_jax.bench._{topic}")
    name = f"benchmarks.topics.{topic}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def cases_of(topic: str, *, quick: bool) -> list[Case]:
    """Return the cases of a topic; imports JAX and what the topic needs.

    Args:
        topic: A name of `TOPICS`.
        quick: Sizes of seconds instead of those that the records hold.

    Returns:
        The cases in the order in which they are run.
    """
    found: list[Case] = topic_module(topic).cases(quick)
    return found
