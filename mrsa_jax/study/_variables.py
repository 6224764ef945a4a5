"""Variables that the data sets of all studies and sweeps share: what is known of who took part.

An integer that has no value (strong T before the first sum, the round that exposes who never is)
is -1 in arrays and in the stores of sweeps, and nan in every data set.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mrsa_jax.availability import Availability
from mrsa_jax.study import _build, _trial
from mrsa_jax.study._config import DemoConfig, Scheme, SimulateConfig, TrainConfig, schemes_of
from mrsa_jax.study._runner import DETAILS, TRAJECTORIES, Variable

# Type, units, description.
_HIDDEN = "As in a sum of how many clients one is hidden"
_AT_END = {
    "strong_privacy": ("int32", "clients", "Strong T; nan before any sum"),
    "hidden_among_worst": ("float64", "clients", f"{_HIDDEN}, the worst client of those in sums"),
    "hidden_among_median": ("float64", "clients", f"{_HIDDEN}, the median client of those"),
    "rank": ("int32", "1", "Rank of the participation matrix"),
    "exposed_clients": ("int32", "clients", "Clients whose update follows from the sums"),
    "first_exposed_round": ("int32", "rounds", "Round, from 0, that exposes the first; nan: none"),
    "skipped_rounds": ("int32", "rounds", "Rounds in which nobody was summed"),
    "fairness_gap": ("float32", "1", "F: most less least often summed, a round"),
    "aggregation_cardinality": ("float32", "clients", "C: mean number of clients in a sum"),
}
_AFTER_EACH_ROUND = (
    "strong_privacy",
    "hidden_among_worst",
    "hidden_among_median",
    "rank",
    "exposed_clients",
    "fairness_gap",
    "aggregation_cardinality",
)
_LASTS = ("clients", "Weak T that lasts whatever the rounds bring; 1 where nothing is guaranteed")
EVERYTHING = (TRAJECTORIES, *DETAILS)
"""What a study keeps, and a sweep where it is asked to."""


def history_variables(dims: tuple[str, ...], kept: Collection[str]) -> dict[str, Variable]:
    """Return what a sweep keeps of who took part: at the end, after each round, and for ever."""
    found = {name: Variable(dims, *facts) for name, facts in _AT_END.items()}
    found["guaranteed_privacy"] = Variable((), "int32", *_LASTS)
    found["largest_rank"] = Variable((), "int32", "1", "N, the rank at which all are exposed")
    for name in _AFTER_EACH_ROUND if TRAJECTORIES in kept else ():
        dtype, units, text = _AT_END[name]
        words = f"{text}, after each round"
        found[f"{name}_by_round"] = Variable((*dims, "round"), dtype, units, words)
    for name, (dim, dtype, units, words) in DETAILS.items():
        if name in kept:
            found[name] = Variable((*dims, dim), dtype, units, words)
    return found


def known_of(history: _trial.History, kept: Collection[str]) -> dict[str, np.ndarray]:
    """Return of histories [..., J, N] what `history_variables` says, but for statuses."""
    paths = {name: getattr(history, name) for name in _AFTER_EACH_ROUND}
    found = {name: path[..., -1] for name, path in paths.items()}
    never, first = np.iinfo(np.int32).max, history.first_exposure
    least = np.where(first >= 0, first, never).min(axis=-1)
    found["first_exposed_round"] = np.where(least == never, -1, least).astype(np.int32)
    found["skipped_rounds"] = history.skipped.sum(axis=-1).astype(np.int32)
    if TRAJECTORIES in kept:
        found |= {f"{name}_by_round": path for name, path in paths.items()}
    details = {"first_exposure": first, "skipped": history.skipped}
    return found | {name: own for name, own in details.items() if name in kept}


def study_variables(points: Sequence[dict[str, np.ndarray]], *axes: str) -> dict[str, Any]:
    """Return points that keep everything, a scheme each, as a study has them.

    Its trajectories have plain names, and `axes` lie behind `scheme`.
    """
    found: dict[str, Any] = {}
    for name in (*_AFTER_EACH_ROUND, *DETAILS):
        is_path = name in _AFTER_EACH_ROUND
        stored = f"{name}_by_round" if is_path else name
        if stored not in points[0]:
            continue
        values = np.stack([own[stored] for own in points])
        dim, _, units, words = ("round", *_AT_END[name]) if is_path else DETAILS[name]
        if name in ("strong_privacy", "first_exposure"):
            values = nan_if_negative(values)
        found[name] = (("scheme", *axes, dim), values, {"units": units, "description": words})
    return found


def nan_if_negative(values: Any) -> np.ndarray:
    """Return integers below 2**24 as float32, which holds them exactly; -1 would enter means."""
    own = np.asarray(values)
    return np.where(own >= 0, own, np.nan).astype(np.float32)


def coordinates(labels: list[str], rounds: int, num_clients: int) -> dict[str, Any]:
    """Return the axes of a study."""
    return {"scheme": labels, "round": np.arange(rounds), "client": np.arange(num_clients)}


def scheme_variables(
    rates: np.ndarray, expected: list[tuple[float, float]], kept: list[int]
) -> dict[str, Any]:
    """Return the clients' dropout rates, what C of each scheme is expected to be, and strong T."""
    units, words = _LASTS
    facts = {"units": units, "description": words}
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": ("scheme", np.array([deviation for _, deviation in expected])),
        "guaranteed_privacy": ("scheme", np.array(kept, np.int32), facts),
    }


def known_before(
    config: DemoConfig | SimulateConfig | TrainConfig,
    schemes: tuple[Scheme, ...],
    available: Availability | None,
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


def of_point(
    config: SimulateConfig | TrainConfig, available: Availability | None, rates: Any
) -> dict[str, np.ndarray]:
    """Return what is known of a point before it is played: C expected, T that lasts, and N."""
    before = known_before(config, schemes_of(config), available, rates)
    names = ("expected_cardinality", "guaranteed_privacy")
    own = {name: np.asarray(before[name][1][0]) for name in names}
    return own | {"largest_rank": np.asarray(config.population.num_clients)}
