"""Items as commands that a sweep takes: `command = "reproduce ccesa.fig3"`.

A point's results are its claims (ours, as text and where it is a number, and the
verdict), and the data of its figure. Nothing here imports JAX.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.state import digest_of
from mrsa_jax.study.kinds import Kind
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.stores._runner import Machine, Variable
from mrsa_papers._charts import LETTERS, PARTS, packed
from mrsa_papers._config import (
    ReproduceConfig,
    check_targets,
    checked_settings,
    config_of,
    given_settings,
)
from mrsa_papers._functions import item_function
from mrsa_watch._base.errors import ConfigurationError, require

if TYPE_CHECKING:
    import xarray as xr

_MOST_CLAIMS = 64  # of an item
_CLAIM, _OURS, _VERDICT = 160, 120, 24  # letters
_BYTES = 2**30  # of a point's arrays and programs, roughly


@functools.cache
def _code() -> str:
    """Return a digest of this project's files, on which results depend."""
    folder = pathlib.Path(__file__).parent
    files = sorted(
        file for kind in ("py", "toml") for file in folder.rglob(f"*.{kind}")
    )
    return digest_of(b"".join(file.read_bytes() for file in files))


class _ItemKind(Kind):
    """The row of an item, whose points are computed by this project."""

    @property
    def code(self) -> str:
        """Digest of this project."""
        return _code()

    def runner(self) -> Any:
        """Return what computes its points."""
        return _Points(self.name.partition(" ")[2])

    def figures(self, results: xr.Dataset, folder: pathlib.Path) -> tuple[str, str]:
        """Draw the item's figure at each completed point."""
        from mrsa_papers._charts import figures

        (target,) = check_targets([self.name.partition(" ")[2]])
        return figures(target, results, folder)


def kind_of_item(item: str) -> Kind:
    """Return the row of an item for sweeps.

    Args:
        item: As `check_targets` takes it: `"ccesa.fig3"`.

    Raises:
        ConfigurationError: If it names no single item.
    """
    try:
        targets = check_targets([item])
    except ConfigurationError as error:
        # a sweep has no targets
        words = str(error).replace("`target`", "`command`", 1)
        raise ConfigurationError(words) from None
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
        """Return all settings but the seed, or raise if they make no sense together."""
        _check(self.item, config)
        content = to_dict(config)
        del content["seed"], content["out"]
        return json.dumps(content, sort_keys=True)

    def sizes(self, configs: Sequence[ReproduceConfig]) -> dict[str, int]:
        """Return the most claims: how many there are is known when an item is made."""
        return {"claim": _MOST_CLAIMS, "chart_part": PARTS}

    def variables(
        self, configs: Sequence[ReproduceConfig], kept: Collection[str]
    ) -> dict[str, Variable]:
        """Return the claims, what was found, the verdicts, and the figure's data."""
        dims = ("claim",)
        return {
            "claim_text": Variable(dims, f"<U{_CLAIM}", "1", "The claim"),
            "ours": Variable(dims, f"<U{_OURS}", "1", "What was found, as text"),
            "value": Variable(
                dims, "float64", "1", "What was found, where it is a number alone"
            ),
            "verdict": Variable(dims, f"<U{_VERDICT}", "1", "The claim's verdict"),
            "chart": Variable(
                ("chart_part",),
                f"<U{LETTERS}",
                "1",
                "Data of the item's figure, packed",
            ),
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
        """Make each item, and give its claims and the data of its figure."""
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
                "chart": packed(item),
            }


@functools.lru_cache(maxsize=4)
def _checking(seed: int, dataset: str, directory: Any) -> Any:
    """Return a context of checks, which keeps its data set."""
    from mrsa_papers.harness import Context  # which imports JAX

    return Context(seed, dataset=dataset, directory=directory, only_checks=True)


def _check(item: str, config: ReproduceConfig) -> None:
    """Raise where an item of these settings cannot be made."""
    from mrsa_papers._driver import check_item

    ((paper, name),) = targets = check_targets([item])
    context = _checking(config.seed, config.dataset, config.directory)
    chosen = checked_settings(targets, _given(config))
    check_item((paper, name), context, chosen, is_fast=config.fast)


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
