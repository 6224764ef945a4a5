"""Your own sizes: a case for each combination of the values that settings were given."""

from __future__ import annotations

import decimal
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mrsa_jax._core.memory import memory_words
from mrsa_jax.bench._topics import TOPICS, topic_module
from mrsa_jax.bench.harness import Case
from mrsa_watch._base.errors import require

WORDS = ("graph", "scheme", "model")
"""Settings that are names; all others are whole numbers."""
_WHOLE = re.compile(r"\d[\d_]*(\.\d+)?([eE]\+?\d{1,2})?")
_POWER = re.compile(r"(\d{1,6})\*\*(\d{1,2})")
_MOST_CASES = 1_000


def read(name: str, text: str) -> int | str:
    """Return a value of a setting: a name, or a whole number such as `500`, `1e6` or `2**32`.

    Raises:
        ConfigurationError: If it is no positive whole number below 2**63.

    Examples:
        >>> read("dim", "1e6"), read("modulus", "2**32"), read("graph", "complete")
        (1000000, 4294967296, 'complete')
    """
    if name in WORDS:
        return text
    power, number = _POWER.fullmatch(text), decimal.Decimal(0)
    if power is not None:
        number = decimal.Decimal(int(power[1]) ** int(power[2]))
    elif _WHOLE.fullmatch(text):
        number = decimal.Decimal(text.replace("_", ""))
    rule = "must be a positive whole number, such as 500, 1e6 or 2**32"
    fits = 0 < number < 2**63 and number == number.to_integral_value()
    require(fits, name.replace("-", "_"), rule, text)
    return int(number)


def own_cases(topics: Sequence[str], given: Mapping[str, Sequence[str]]) -> dict[str, list[Case]]:
    """Return for each topic a case for every combination of the values that were given.

    Settings that were not given have the values of `TOPICS`. Nothing is measured, but all
    settings are checked, and that each case fits into memory.

    Args:
        topics: Names of topics with sizes.
        given: Setting -> its values, as written.

    Raises:
        ConfigurationError: For a topic without sizes, a setting that no topic reads, a value that
            is none of its kind or comes twice, and a case that memory does not hold.
    """
    known = {name for name, topic in TOPICS.items() if topic.sizes}
    rule = f"must be named with your own sizes, each one of {', '.join(sorted(known))}"
    require(bool(topics) and known.issuperset(topics), "topics", rule, *topics)
    for name, values in given.items():
        argument = name.replace("-", "_")
        readers = [topic for topic in TOPICS if name in TOPICS[topic].sizes]
        rule = f"must not be set: only {', '.join(readers)} read it"
        require(any(topic in readers for topic in topics), argument, rule)
        apart = {read(name, value) for value in values}
        require(len(apart) == len(values), argument, "must not contain duplicates", *values)
    found = {topic: _cases(topic, given) for topic in topics}
    count = sum(map(len, found.values()))
    require(count <= _MOST_CASES, "topics", f"must make at most {_MOST_CASES} cases", count)
    return found


def _cases(topic: str, given: Mapping[str, Sequence[str]]) -> list[Case]:
    sizes = {name: given.get(name) or (value,) for name, value in TOPICS[topic].sizes.items()}
    module, found = topic_module(topic), []
    for combination in itertools.product(*sizes.values()):
        written = dict(zip(sizes, combination, strict=True))
        values = {name: read(name, value) for name, value in written.items()}
        own = module.sized(**{name.replace("-", "_"): value for name, value in values.items()})
        largest = max(_sizes_in_use(values), key=lambda name: int(values[name]))
        memory_words(own.memory, largest.replace("-", "_"), written[largest], "the sizes")
        found.append(Case(_name(values), own.measure, None, values, own.memory))
    return found


def _sizes_in_use(values: Mapping[str, Any]) -> list[str]:
    """Return the settings that memory grows with."""
    return [name for name in values if name not in (*WORDS, "modulus")]


def _name(values: Mapping[str, Any]) -> str:
    parts = (
        f"{name.replace('-', '_')} = {value:,}" if isinstance(value, int) else f"{name} = {value}"
        for name, value in values.items()
    )
    return ", ".join(parts)
