"""What the items of one run share: seed, size, progress, and the paper's population.

Multi-RoundSecAgg, Section 6: N = 120, K = 12, dropout rates .1 to .5 shuffled over the clients
(the paper does not say how they are assigned), six schemes.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mrsa_jax import data
from mrsa_jax._checks import check_count
from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax.availability import Availability
from mrsa_jax.selection import Selector
from mrsa_jax.study import PopulationConfig, Progress, ResourceConfig, _build, parse_scheme
from mrsa_jax.study._config import SIX_SCHEMES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Context", "Silent", "make_context", "rows_to_frame", "schemes_for", "targets_of"]


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
        fast: Whether to run at the fast size.
        progress: Receives how far it is.
        dataset: What is trained on.
        directory: Folder of the data set, where it needs one.
    """

    seed: int
    fast: bool
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


def make_context(
    *,
    seed: int = 0,
    fast: bool = False,
    dataset: str = "mnist_5k",
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Context:
    """Return checked settings that items share.

    Raises:
        ConfigurationError: For an unknown data set (naming the nearest), or a seed out of range.

    Examples:
        >>> make_context(fast=True).seed
        0
    """
    check_count(seed, "seed", "must be an integer in [0, 2**32)", 0, 2**32 - 1)
    if dataset not in data.SOURCES and not dataset.startswith("tfds:"):
        choice = nearest(dataset, (*data.SOURCES, "tfds:NAME"))
        raise ConfigurationError(f"`dataset` must be a known data set; got {dataset!r}; {choice}")
    folder = None if directory is None else pathlib.Path(directory)
    return Context(seed, fast, progress or Silent(), dataset, folder)


def schemes_for(population: PopulationConfig) -> dict[str, Selector]:
    """Return the paper's six selectors for a population, by label."""
    schemes = [parse_scheme(text) for text in SIX_SCHEMES]
    return {scheme.label: _build.build_selector(scheme, population) for scheme in schemes}


def targets_of(schemes: Mapping[str, Selector]) -> dict[str, int]:
    """Return the T that each scheme aims at: 1 where there are no blocks."""
    return {label: _build.guaranteed_privacy(selector) for label, selector in schemes.items()}


def rows_to_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame."""
    import pandas as pd

    return pd.DataFrame(list(rows))
