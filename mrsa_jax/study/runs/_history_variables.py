"""Variables of participation, which the data sets of all studies and sweeps share.

An integer without a value (strong T before the first sum, the round that exposes a
client that stays hidden) is -1 in arrays and in the stores of sweeps, and nan in every
data set.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from mrsa_jax.availability import Availability
from mrsa_jax.study.runs import _build, _trial
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._config import Config, SimulateConfig
from mrsa_jax.study.stores._runner import (
    DETAILS,
    TRAJECTORIES,
    VARIABLES,
    VARIABLES_OF_WEAK,
    Variable,
)

UPDATES = ("update_hidden_worst", "update_hidden_median")
"""Variables that exist if updates are assumed to drift."""
LASTING = ("lasting_hidden_worst", "lasting_hidden_median")
"""Variables that exist if a part of each update lasts, and the rest is fresh."""
_AT_END = VARIABLES["history"]
_AFTER_EACH_ROUND = (
    "strong_privacy",
    "hidden_among_worst",
    "hidden_among_median",
    *UPDATES,
    *LASTING,
    "rank",
    "exposed_clients",
    "fairness_gap",
    "aggregation_cardinality",
)
EVERYTHING = (TRAJECTORIES, *DETAILS)
"""Variables that a study keeps, and a sweep on request."""


def history_variables(
    dims: tuple[str, ...],
    kept: Collection[str],
    *,
    drifts: bool = False,
    lasts: bool = False,
) -> dict[str, Variable]:
    """Return the variables of participation that a sweep keeps of a point.

    Args:
        dims: Dimensions of a point, such as `("trial",)`.
        kept: Names of further variables, as for `Runner.variables`.
        drifts: Whether updates are assumed to drift.
        lasts: Whether a part of each update is assumed to last, and the rest to be
            fresh.
    """
    within = functools.partial(dataclasses.replace, dims=dims)
    absent = (*(() if drifts else UPDATES), *(() if lasts else LASTING))
    ends = {name: about for name, about in _AT_END.items() if name not in absent}
    variables = {name: within(about) for name, about in ends.items()}
    variables |= VARIABLES["before"]
    for name in _AFTER_EACH_ROUND if TRAJECTORIES in kept else ():
        if name in ends:
            words = f"{ends[name].description}, after each round"
            variables[f"{name}_by_round"] = within(
                ends[name], dims=(*dims, "round"), description=words
            )
    for name, about in DETAILS.items():
        if name in kept:
            variables[name] = within(about, dims=(*dims, *about.dims))
    return variables


def history_values(
    history: _trial.History,
    kept: Collection[str],
    updates: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Return the values of `history_variables`, except for statuses.

    Args:
        history: Analysed histories [..., J, N].
        kept: As for `history_variables`.
        updates: Paths of the variables of updates that drift, [..., J].
    """
    names = [name for name in _AFTER_EACH_ROUND if name not in (*UPDATES, *LASTING)]
    paths = {name: getattr(history, name) for name in names} | dict(updates or {})
    # a path's last entry is its value at the end, also where it is the only one
    values = {name: path[..., -1] for name, path in paths.items()}
    first = history.first_exposure
    values["first_exposed_round"] = _trial.earliest(first, axis=-1)
    values["skipped_rounds"] = history.skipped.sum(axis=-1).astype(np.int32)
    if TRAJECTORIES in kept:
        values |= {f"{name}_by_round": path for name, path in paths.items()}
    if "first_exposure" in kept:
        values["first_exposure"] = first
    if "skipped" in kept:
        values["skipped"] = history.skipped
    return values


def study_variables(
    points: Sequence[dict[str, np.ndarray]], *axes: str
) -> dict[str, Any]:
    """Return points that keep everything, one per scheme, as variables of a study.

    Its trajectories have plain names, and `axes` lie behind `scheme`.
    """
    variables: dict[str, Any] = {}
    for name in (*_AFTER_EACH_ROUND, *VARIABLES_OF_WEAK, *DETAILS):
        is_path = name not in DETAILS
        stored = f"{name}_by_round" if is_path else name
        if stored not in points[0]:
            continue
        values = np.stack([point[stored] for point in points])
        about = (_AT_END | VARIABLES_OF_WEAK | DETAILS)[name]
        if name in ("strong_privacy", "first_exposure", *VARIABLES_OF_WEAK):
            # points keep -1 in integers; studies are read by xarray's means
            values = nan_if_negative(values)
        dims = ("scheme", *axes, *(about.dims or ("round",)))
        variables[name] = (dims, values, about.facts)
    return variables


def stacked_by_scheme(
    variables: Mapping[str, Variable], columns: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return variables of a study from the values of each scheme, by name."""
    return {
        name: (
            ("scheme", *about.dims),
            np.stack([np.asarray(column[name]) for column in columns]),
            about.facts,
        )
        for name, about in variables.items()
    }


def nan_if_negative(values: np.ndarray) -> np.ndarray:
    """Return integers below 2**24 as float32, which holds them exactly.

    A -1 would enter means, and becomes nan.
    """
    return np.where(values >= 0, values, np.nan).astype(np.float32)


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
    """Return variables of schemes before their rounds.

    Args:
        rates: float[N], dropout rates of the clients.
        expected: Mean and deviation of C, by scheme.
        kept: Weak T that lasts for any number of rounds, by scheme.
    """
    means, deviations = np.array(expected).T
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", means),
        "cardinality_deviation": ("scheme", deviations),
    } | kept_variable(kept)


def kept_variable(kept: Sequence[int]) -> dict[str, Any]:
    """Return the variable of the weak T that lasts, by scheme."""
    facts = VARIABLES["before"]["guaranteed_privacy"].facts
    return {"guaranteed_privacy": ("scheme", np.array(kept, np.int32), facts)}


def known_before(
    config: Config,
    schemes: tuple[_config.Scheme, ...],
    available: Availability | None,
    rates: np.ndarray,
) -> dict[str, Any]:
    """Return `scheme_variables` of a study.

    C is unknown if clients are lost inside rounds, or rounds depend on each other.
    """
    segments = None if isinstance(config, SimulateConfig) else config.hetero
    selectors = [_build.build_selector(scheme, config.population) for scheme in schemes]
    # only models of independent rounds have rates for each client
    is_known = config.protocol.is_plain and hasattr(available, "dropout_rates")
    return scheme_variables(
        rates,
        [
            _build.expected_cardinality(selector, rates if is_known else None)
            for selector in selectors
        ],
        [
            _build.guaranteed_privacy(selector, config.protocol, segments)
            for selector in selectors
        ],
    )


def shares_variables(gaps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return F of eq. (6) and its error of each scheme; nan where unknown."""
    return {
        name: ("scheme", np.asarray(values), about.facts)
        for (name, about), values in zip(
            VARIABLES["shares"].items(), zip(*gaps, strict=True), strict=True
        )
    }


def point_values(
    config: Config, available: Availability | None, rates: Any
) -> dict[str, np.ndarray]:
    """Return the values of a point before its rounds: expected C, lasting T, and N."""
    before = known_before(config, _config.schemes_of(config), available, rates)
    values = {
        name: before[name][1][0]
        for name in ("expected_cardinality", "guaranteed_privacy")
    }
    values["largest_rank"] = config.population.num_clients
    return {name: np.asarray(value) for name, value in values.items()}
