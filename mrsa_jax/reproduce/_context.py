"""What the items of one run share: seed, size, progress, and the paper's population.

Multi-RoundSecAgg, Section 6: N = 120, K = 12, dropout rates .1 to .5 shuffled over the clients
(the paper does not say how they are assigned), six schemes.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mrsa_jax import data
from mrsa_jax.availability import Availability
from mrsa_jax.selection import Selector
from mrsa_jax.study import PopulationConfig, Progress, ResourceConfig, _build, parse_scheme
from mrsa_jax.study._config import SIX_SCHEMES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Context", "Silent", "rows_to_frame"]


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None:
        """Do nothing."""

    def update(self, done: int, total: int) -> None:
        """Do nothing."""


@dataclasses.dataclass(frozen=True)
class Context:
    """Shared settings of the items.

    Attributes:
        seed: Seed of everything random.
        small: Whether to run at the small size.
        progress: Receives how far it is.
        dataset: What is trained on.
        directory: Folder of the data set, where it needs one.
    """

    seed: int
    small: bool
    progress: Progress
    dataset: str = "mnist_5k"
    directory: pathlib.Path | None = None

    @functools.cached_property
    def rates(self) -> np.ndarray:
        """Dropout rate of each of the 120 clients, shuffled by the seed."""
        return _build.build_rates(self.seed, PopulationConfig())

    @property
    def available(self) -> Availability:
        """Who is online: independent dropouts at these rates."""
        return _build.build_availability(self.rates)

    @property
    def schemes(self) -> dict[str, Selector]:
        """The six selectors at N = 120, K = 12 by their label."""
        return schemes_for(PopulationConfig())

    @functools.cached_property
    def images(self) -> data.Dataset:
        """The data set asked for, or the five thousand digits that are always here."""
        return data.load(self.dataset, directory=self.directory, seed=self.seed)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices over which a round's clients are spread; None for a single one."""
        return _build.build_mesh(ResourceConfig())

    @functools.cached_property
    def cache(self) -> dict[str, Any]:
        """Results that several items need."""
        return {}


def schemes_for(population: PopulationConfig) -> dict[str, Selector]:
    """Return the paper's six selectors for a population, by label."""
    schemes = [parse_scheme(text) for text in SIX_SCHEMES]
    return {scheme.label: _build.build_selector(scheme, population) for scheme in schemes}


def target_of(label: str) -> int:
    """Return the T that a scheme aims at, at K = 12: 1 where there are no blocks."""
    if label.startswith("Multi"):
        return int(label.split("=")[1].rstrip(")"))
    return 12 if label == "User partition" else 1


def rows_to_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame."""
    import pandas as pd

    return pd.DataFrame(list(rows))
