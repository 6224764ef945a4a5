"""Items as commands that a sweep takes: `command = "reproduce ccesa.fig3"`.

A point's results are its claims: ours, as text and where it is a number, and the
verdict. Nothing here imports JAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax.study.kinds import Kind
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.stores._runner import Machine, Variable
from mrsa_papers._config import (
    ReproduceConfig,
    check_targets,
    config_of,
    given_settings,
)
from mrsa_papers._functions import item_function
from mrsa_watch._base.errors import require

_MOST_CLAIMS = 64  # of an item
_CLAIM, _OURS, _VERDICT = 160, 120, 24  # letters
_BYTES = 2**30  # of a point's arrays and programs, roughly


class _ItemKind(Kind):
    """The row of an item, whose points are computed by this project."""

    def runner(self) -> Any:
        """Return what computes its points."""
        return _Points(self.name.partition(" ")[2])


def kind_of_item(item: str) -> Kind:
    """Return the row of an item for sweeps.

    Args:
        item: As `check_targets` takes it: `"ccesa.fig3"`.

    Raises:
        ConfigurationError: If it names no single item.
    """
    targets = check_targets([item])
    rule = "must name one item of `mrsa-jax reproduce`"
    require(len(targets) == 1, "command", rule, item)
    target = targets[0]
    settings = config_of(target)
    return _ItemKind(
        f"reproduce {'.'.join(target)}",
        settings,
        lambda config: None,
        "",
        "item",
        settings,
    )


class _Points:
    """The `Runner` of an item."""

    def __init__(self, item: str) -> None:
        self.item = item

    def group_of(self, config: ReproduceConfig) -> Hashable:
        """Return all settings but the seed."""
        content = to_dict(config)
        del content["seed"], content["out"]
        return json.dumps(content, sort_keys=True)

    def sizes(self, configs: Sequence[ReproduceConfig]) -> dict[str, int]:
        """Return the most claims: how many there are is known when an item is made."""
        return {"claim": _MOST_CLAIMS}

    def variables(
        self, configs: Sequence[ReproduceConfig], kept: Collection[str]
    ) -> dict[str, Variable]:
        """Return the claims, what was found, and the verdicts."""
        dims = ("claim",)
        return {
            "claim_text": Variable(dims, f"<U{_CLAIM}", "1", "The claim"),
            "ours": Variable(dims, f"<U{_OURS}", "1", "What was found, as text"),
            "value": Variable(
                dims, "float64", "1", "What was found, where it is a number alone"
            ),
            "verdict": Variable(dims, f"<U{_VERDICT}", "1", "The claim's verdict"),
        }

    def is_trained(self, name: str) -> bool:
        """Return True: numbers may follow from trainings."""
        return True

    def together(self, config: ReproduceConfig, machine: Machine) -> int:
        """Return 1: an item fills the machine."""
        return 1

    def memory_bytes(
        self,
        config: ReproduceConfig,
        machine: Machine,
        count: int,
        kept: Collection[str] = (),
    ) -> int:
        """Return about what items need."""
        return count * _BYTES

    def run_points(
        self,
        configs: Sequence[ReproduceConfig],
        machine: Machine,
        kept: Collection[str],
        together: int,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Make each item, and give its claims."""
        make: Callable[..., Any] = item_function(self.item)
        for config in configs:
            item = make(
                fast=config.fast,
                seed=config.seed,
                dataset=config.dataset,
                directory=config.directory,
                **_given(config),
            )
            checks = item.checks[:_MOST_CLAIMS]
            yield {
                "claim_text": _texts([check.claim for check in checks], _CLAIM),
                "ours": _texts([check.ours for check in checks], _OURS),
                "value": _numbers([check.ours for check in checks]),
                "verdict": _texts([check.verdict for check in checks], _VERDICT),
            }


def _given(config: ReproduceConfig) -> dict[str, Any]:
    settings = given_settings(config)
    return {name: value for name, value in settings.items() if value is not None}


def _texts(words: Sequence[str], length: int) -> np.ndarray:
    filled = [*words, *[""] * (_MOST_CLAIMS - len(words))]
    return np.asarray([word[:length] for word in filled], f"<U{length}")


def _numbers(words: Sequence[str]) -> np.ndarray:
    values = np.full(_MOST_CLAIMS, math.nan)
    for place, word in enumerate(words):
        try:
            values[place] = float(word)
        except ValueError:
            continue  # a sentence
    return values
