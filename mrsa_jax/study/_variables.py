"""Variables that the data sets of all studies share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.study import _build, _trial
from mrsa_jax.study._config import PopulationConfig, Scheme

__all__ = ["coordinates", "history_variables", "rates_and_expectations", "without_expectation"]


def coordinates(schemes: tuple[Scheme, ...], rounds: int, num_clients: int) -> dict[str, Any]:
    """Return the axes of a study."""
    return {
        "scheme": [scheme.label for scheme in schemes],
        "round": np.arange(rounds),
        "client": np.arange(num_clients),
    }


def rates_and_expectations(
    seed: int, population: PopulationConfig, schemes: tuple[Scheme, ...], clients: Any = None
) -> dict[str, Any]:
    """Return the clients' dropout rates, and what C of each scheme is expected to be."""
    rates = _build.build_rates(seed, population, clients)
    expected = [_build.expected_cardinality(s, population, rates) for s in schemes]
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": ("scheme", np.array([deviation for _, deviation in expected])),
    }


def without_expectation(shared: dict[str, Any]) -> dict[str, Any]:
    """Return the shared variables, of C no expectation: losses inside rounds have none here."""
    names = ("expected_cardinality", "cardinality_deviation")
    return shared | {name: ("scheme", np.full_like(shared[name][1], np.nan)) for name in names}


def history_variables(histories: list[_trial.History], *axes: str) -> dict[str, Any]:
    """Return what the server can know of each scheme's rounds; `axes` lie behind `scheme`."""

    def stack(name: str, *dims: str) -> tuple[tuple[str, ...], np.ndarray]:
        return (("scheme", *axes, *dims), np.stack([getattr(h, name) for h in histories]))

    return {
        "strong_privacy": stack("strong_privacy", "round"),
        "rank": stack("rank", "round"),
        "exposed_clients": stack("exposed_clients", "round"),
        "first_exposure": stack("first_exposure", "client"),
        "fairness_gap": stack("fairness_gap", "round"),
        "aggregation_cardinality": stack("aggregation_cardinality", "round"),
        "skipped": stack("skipped", "round"),
    }
