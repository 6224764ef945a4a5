"""Variables that the data sets of all studies share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.study import _build, _trial
from mrsa_jax.study._config import DemoConfig, PopulationConfig, Scheme, SimulateConfig, TrainConfig

__all__ = [
    "coordinates",
    "guarantees",
    "history_variables",
    "missing_below",
    "of_point",
    "rates_and_expectations",
    "without_expectation",
]


def missing_below(least: int, values: Any) -> np.ndarray:
    """Return float32 values, nan where there is none: a number in its place would enter means.

    Args:
        least: The smallest value that is one; what stands for none lies below.
        values: Integers below 2**24, which float32 holds exactly.
    """
    own = np.asarray(values)
    return np.where(own >= least, own, np.nan).astype(np.float32)


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
    selectors = [_build.build_selector(scheme, population) for scheme in schemes]
    expected = [_build.expected_cardinality(selector, rates) for selector in selectors]
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": ("scheme", np.array([deviation for _, deviation in expected])),
    }


def guarantees(
    config: DemoConfig | SimulateConfig | TrainConfig, schemes: tuple[Scheme, ...]
) -> dict[str, Any]:
    """Return the T that each scheme keeps however many rounds follow."""
    segments = None if isinstance(config, SimulateConfig) else config.hetero
    kept = [
        _build.guaranteed_privacy(
            _build.build_selector(scheme, config.population), config.protocol, segments
        )
        for scheme in schemes
    ]
    about = "T that the scheme keeps whatever the rounds bring; 1 where nothing is guaranteed"
    return {
        "guaranteed_privacy": (
            "scheme",
            np.array(kept, np.int32),
            {"units": "clients", "description": about},
        )
    }


def of_point(config: SimulateConfig | TrainConfig, scheme: Scheme) -> dict[str, np.ndarray]:
    """Return what a sweep keeps of a point before it is played: the T that lasts, and N."""
    kept = guarantees(config, (scheme,))["guaranteed_privacy"][1]
    return {
        "guaranteed_privacy": np.asarray(kept[0]),
        "largest_rank": np.asarray(config.population.num_clients),
    }


def without_expectation(shared: dict[str, Any]) -> dict[str, Any]:
    """Return the shared variables, of C no expectation: losses inside rounds have none here."""
    names = ("expected_cardinality", "cardinality_deviation")
    return shared | {name: ("scheme", np.full_like(shared[name][1], np.nan)) for name in names}


def history_variables(histories: list[_trial.History], *axes: str) -> dict[str, Any]:
    """Return what the server can know of each scheme's rounds; `axes` lie behind `scheme`.

    What a trial has not (T before the first sum, the exposure of a client who never is) is nan.
    """

    def stack(name: str, *dims: str) -> tuple[tuple[str, ...], np.ndarray]:
        return (("scheme", *axes, *dims), np.stack([getattr(h, name) for h in histories]))

    def some(least: int, about: str, name: str, *dims: str) -> tuple[Any, ...]:
        own, values = stack(name, *dims)
        return own, missing_below(least, values), {"description": about}

    return {
        "strong_privacy": some(
            1, "Strong multi-round privacy T; nan before the first sum", "strong_privacy", "round"
        ),
        "rank": stack("rank", "round"),
        "exposed_clients": stack("exposed_clients", "round"),
        "first_exposure": some(
            0, "Round, from 0, that exposes the client; nan: never", "first_exposure", "client"
        ),
        "fairness_gap": stack("fairness_gap", "round"),
        "aggregation_cardinality": stack("aggregation_cardinality", "round"),
        "skipped": stack("skipped", "round"),
    }
