"""Variables that the data sets of all studies share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrsa_jax.availability import Availability
from mrsa_jax.study import _build, _trial
from mrsa_jax.study._config import DemoConfig, Scheme, SimulateConfig, TrainConfig
from mrsa_jax.study._runner import AFTER_EACH_ROUND, AT_END


def missing_below(least: int, values: Any) -> np.ndarray:
    """Return float32 values, nan where there is none: a number in its place would enter means.

    Args:
        least: The smallest value that is one; what stands for none lies below.
        values: Integers below 2**24, which float32 holds exactly.
    """
    own = np.asarray(values)
    return np.where(own >= least, own, np.nan).astype(np.float32)


def coordinates(labels: list[str], rounds: int, num_clients: int) -> dict[str, Any]:
    """Return the axes of a study."""
    return {
        "scheme": labels,
        "round": np.arange(rounds),
        "client": np.arange(num_clients),
    }


def scheme_variables(
    rates: np.ndarray, expected: list[tuple[float, float]], kept: list[int]
) -> dict[str, Any]:
    """Return the clients' dropout rates, what C of each scheme is expected to be, and strong T."""
    about = "Weak T that lasts whatever the rounds bring; 1 where nothing is guaranteed"
    facts = {"units": "clients", "description": about}
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": ("scheme", np.array([deviation for _, deviation in expected])),
        "guaranteed_privacy": ("scheme", np.array(kept, np.int32), facts),
    }


def known_before(
    config: DemoConfig | SimulateConfig | TrainConfig,
    schemes: tuple[Scheme, ...],
    available: Availability,
    rates: np.ndarray,
) -> dict[str, Any]:
    """Return what is known of schemes before their rounds.

    Of C nothing is where clients are lost inside rounds, or rounds depend on each other.
    """
    segments = None if isinstance(config, SimulateConfig) else config.hetero
    selectors = [_build.build_selector(scheme, config.population) for scheme in schemes]
    is_known = config.protocol.is_plain and hasattr(available, "dropout_rates")
    own = rates if is_known else None
    return scheme_variables(
        rates,
        [_build.expected_cardinality(selector, own) for selector in selectors],
        [_build.guaranteed_privacy(one, config.protocol, segments) for one in selectors],
    )


def of_point(config: SimulateConfig | TrainConfig, scheme: Scheme) -> dict[str, np.ndarray]:
    """Return what a sweep keeps of a point before it is played: the weak T that lasts, and N."""
    selector = _build.build_selector(scheme, config.population)
    segments = None if isinstance(config, SimulateConfig) else config.hetero
    kept = _build.guaranteed_privacy(selector, config.protocol, segments)
    return {
        "guaranteed_privacy": np.asarray(kept),
        "largest_rank": np.asarray(config.population.num_clients),
    }


# What has a value in some rounds, or of some clients, only: from which number on.
_SOME = {
    "strong_privacy": 1,
    "first_exposure": 0,
}
_NAMES = (*AFTER_EACH_ROUND, "first_exposure", "skipped")
_OWN = {
    "first_exposure": ("rounds", "Round, from 0, that exposes the client; nan: never"),
    "skipped": ("1", "Rounds in which nobody was summed"),
}


def history_variables(histories: list[_trial.History], *axes: str) -> dict[str, Any]:
    """Return what the server can know of each scheme's rounds; `axes` lie behind `scheme`.

    What a trial has not (strong T before the first sum, the exposure of who never is) is nan.
    """
    found: dict[str, Any] = {}
    for name in _NAMES:
        dims = ("scheme", *axes, "client" if name == "first_exposure" else "round")
        values = np.stack([getattr(history, name) for history in histories])
        if name in _SOME:
            values = missing_below(_SOME[name], values)
        units, words = _OWN[name] if name in _OWN else AT_END[name][1:]
        found[name] = (dims, values, {"units": units, "description": words})
    return found


def known_of(history: _trial.History, trajectories: bool) -> dict[str, np.ndarray]:
    """Return what a sweep keeps of histories [..., J, N]: after the last round, and after each."""
    paths = {name: getattr(history, name) for name in AFTER_EACH_ROUND}
    ends = {name: path[..., -1] for name, path in paths.items()}
    ends["first_exposed_round"] = first_exposed(history.first_exposure)
    ends["skipped_rounds"] = history.skipped.sum(axis=-1).astype(np.int32)
    return ends | {f"{name}_by_round": path for name, path in paths.items() if trajectories}


def first_exposed(first_exposure: np.ndarray) -> np.ndarray:
    """Return int32[...], the round that exposes the first of the clients [..., N]; -1 for none."""
    never = np.iinfo(np.int32).max
    least = np.where(first_exposure >= 0, first_exposure, never).min(axis=-1)
    return np.where(least == never, -1, least).astype(np.int32)
