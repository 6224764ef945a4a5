"""Studies of what is no configuration: selectors that are values, and histories of any origin."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import selection
from mrsa_jax._core.selector import check_selector
from mrsa_jax.study import _accessor, _build, _cite, _trial
from mrsa_jax.study._accessor import find_schemes
from mrsa_jax.study._simulate_points import (
    EVERYTHING,
    coordinates,
    known_of,
    scheme_variables,
    study_variables,
)
from mrsa_watch._base.errors import ConfigurationError, check_size, require

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.availability import Availability
    from mrsa_jax.selection import Selector


def compare(
    schemes: Mapping[str, Selector],
    availability: Availability,
    *,
    rounds: int,
    trials: int,
    seed: int = 0,
) -> xr.Dataset:
    """Roll selectors out over many trials and return what `run` does of a `SimulateConfig`.

    For selectors and availability models that are values, a user's own among them; a scheme that
    has a name (`selection.register`) can also be studied from settings, files and flags.

    Args:
        schemes: Label -> selector, all over the same clients.
        availability: Who is online.
        rounds: J >= 1.
        trials: B >= 1 of each scheme.
        seed: Of everything random; trials are those of `selection.rollout_trials`.

    Returns:
        Data set as of `run`, with `results.mrsa`: axes `scheme`, `trial`, `round`, `client`.
        Expected C is nan where a selector or the availability model does not know it, and strong T
        is guaranteed only of a selector that says so (`block_size`).

    Raises:
        ConfigurationError: If there is no scheme, one is no selector or no pytree, or they differ
            in their number of clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> blocks = mj.selection.batch_partitioning(12, 4, 2)
        >>> found = compare({"pairs": blocks}, mj.availability.markov(0.2, 3.0), rounds=9, trials=2)
        >>> found["strong_privacy"].isel(round=-1).values.tolist()
        [[2.0, 2.0]]
    """
    rule = "must map labels to selectors, at least one"
    labels = _labels(schemes, "schemes", rule)
    sizes = {label: check_selector(schemes[label]).num_clients for label in labels}
    rule = "must be over one number of clients"
    require(len(set(sizes.values())) == 1, "schemes", rule, sizes)
    num_rounds, num_trials = check_size(rounds, "rounds"), check_size(trials, "trials")
    histories = {
        label: _trial.learnt_sums(
            selection.rollout_trials(seed, selector, availability, num_rounds, num_trials)
        )
        for label, selector in schemes.items()
    }
    known = getattr(availability.for_clients(sizes[labels[0]]), "dropout_rates", None)
    rates = None if known is None else np.asarray(known)
    expected = [_build.expected_cardinality(schemes[label], rates) for label in labels]
    kept = [_build.guaranteed_privacy(schemes[label]) for label in labels]
    settings: dict[str, Any] = {"rounds": num_rounds, "trials": num_trials, "seed": seed}
    settings["availability"] = type(availability).__name__
    papers: list[Any] = []
    for label in labels:
        with contextlib.suppress(ConfigurationError, TypeError):  # a user's own class
            found = _cite.papers_of_value(schemes[label])
            papers += [[key, reason, label] for key, reason, _ in found]
    return _study("compare", histories, rates, expected, kept, settings, papers)


def from_histories(histories: Mapping[str, Any]) -> xr.Dataset:
    """Return a study's data set of participation histories that exist, of any origin.

    Args:
        histories: Label -> who was in which learnt sum, booleans or integer weights [J, N], or
            [B, J, N] for several trials; all of one shape. A round without a sum is a row of
            zeros, and a sum of one client counts as learnt.

    Returns:
        Data set as of `run`, with `results.mrsa`; without an axis `trial` for histories [J, N].
        Nothing is known of rates and expectations, and no strong T is guaranteed.

    Raises:
        ConfigurationError: If there is no history, or one is no such array or of another shape.

    Examples:
        >>> import numpy as np
        >>> found = from_histories({"mine": np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]])})
        >>> found["exposed_clients"].values.tolist()
        [[0, 0, 3]]
    """
    labels = _labels(histories, "histories", "must map labels to histories, at least one")
    arrays = {label: np.asarray(histories[label]) for label in labels}
    for label, array in arrays.items():
        rule = f"must hold booleans or integers [rounds, clients] or with trials first ({label!r})"
        good = array.dtype.kind in "biu" and array.ndim in (2, 3) and array.size > 0
        require(good, "histories", rule, f"{array.dtype} of shape {array.shape}")
    shapes = {label: array.shape for label, array in arrays.items()}
    require(len(set(shapes.values())) == 1, "histories", "must be of one shape", shapes)
    unknown = [(np.nan, np.nan)] * len(labels)
    settings = {"rounds": int(arrays[labels[0]].shape[-2])}
    return _study("histories", arrays, None, unknown, [1] * len(labels), settings, [])


def _labels(values: Any, argument: str, rule: str) -> list[str]:
    good = isinstance(values, Mapping) and len(values) > 0
    require(good and all(isinstance(label, str) for label in values), argument, rule, values)
    return list(values)


def _study(
    command: str,
    histories: Mapping[str, np.ndarray],
    rates: np.ndarray | None,
    expected: list[tuple[float, float]],
    kept: list[int],
    settings: dict[str, Any],
    papers: list[Any],
) -> xr.Dataset:
    """Return the data set of histories [..., J, N] and what is known of their schemes."""
    import xarray as xr  # takes a second: not before the first trial

    *trials, rounds, clients = next(iter(histories.values())).shape
    known = [known_of(_trial.analyse(history), EVERYTHING) for history in histories.values()]
    variables = study_variables(known, *["trial"] * len(trials)) | scheme_variables(
        np.full(clients, np.nan) if rates is None else rates, expected, kept
    )
    axes = coordinates(list(histories), rounds, clients)
    if trials:
        axes["trial"] = np.arange(trials[0])
    _accessor.register()
    config = settings | {"labels": list(histories)}
    attrs = {"command": command, "config": config, "papers": papers}
    attrs["seed"] = settings.get("seed", "unknown")
    return find_schemes(xr.Dataset(variables, coords=axes)).assign_attrs(attrs)
