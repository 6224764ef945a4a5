"""Histories of schemes that an attack's settings name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from mrsa_jax import selection
from mrsa_jax.data import ClientData
from mrsa_jax.study._attack_rows import SumsOfRounds
from mrsa_jax.study.runs._build import build_online, build_selector
from mrsa_jax.study.runs._trial import learnt_sums
from mrsa_jax.study.settings._config import PopulationConfig, parse_scheme


def histories(
    settings: SumsOfRounds, rounds: int, clients: ClientData | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Roll out each scheme; yield its label and bool[rounds, clients]."""
    # a value that can be the key of a cache, of the population alone
    population = PopulationConfig(
        **{
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(PopulationConfig)
        }
    )
    needed = clients if population.assignment == "by_label" else None
    online, _ = build_online(settings.seed, population, needed)
    for scheme in map(parse_scheme, settings.schemes):
        selector = build_selector(scheme, population)
        cohorts = selection.rollout(settings.seed, selector, online, rounds)
        yield scheme.label, learnt_sums(cohorts)
