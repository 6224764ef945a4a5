"""The rules that the settings of attacks keep, checked before any work, without JAX."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from mrsa_jax._checks import POSITIVE, check_blind, check_integer, check_least, check_number
from mrsa_jax._errors import require
from mrsa_jax._status import FEWEST_IN_A_SUM
from mrsa_jax.availability._registry import parse_availability
from mrsa_jax.study import _attack_config as setting
from mrsa_jax.study._config import parse_scheme
from mrsa_jax.study._validate import check_seed, check_sizes

_PICTURES = (".png", ".jpg", ".jpeg")
# What a setting of each name keeps, whatever the attack.
_LEAST = {
    "num_clients": FEWEST_IN_A_SUM,
    "cohort_size": FEWEST_IN_A_SUM,
    "num_summed": FEWEST_IN_A_SUM,
    "warm_up": 0,
    "target": 0,
    "client_size": 2,
    "num_shadows": 2,
} | dict.fromkeys(
    ("rounds", "window", "interval", "dim", "restarts", "num_images", "iterations", "batch_size",
     "num_epochs", "num_targets", "hidden_size", "trials", "trainings"), 1)  # fmt: skip
_IS_POSITIVE = ("must be finite and positive", POSITIVE)
_NOT_NEGATIVE = ("must be finite, from 0", 0.0)
_NUMBERS: dict[str, tuple[Any, ...]] = {
    "learning_rate": _IS_POSITIVE,
    "shift": _IS_POSITIVE,
    "noise_multiplier": _IS_POSITIVE,
    "clip_norm": _IS_POSITIVE,
    "spread": _IS_POSITIVE,
    "connection_probability": ("must lie in (0, 1]", POSITIVE, 1.0),
    "label_noise": ("must lie in [0, 1]", 0.0, 1.0),
} | dict.fromkeys(("ridge", "noise", "drift", "seconds", "smoothness"), _NOT_NEGATIVE)
_CHOICES = ("schemes", "seen", "methods", "pads", "others", "clients",
            "false_positive_rates")  # fmt: skip
_FILES = ("aggregates", "participation", "updates", "counts")


def check_attack(config: setting.AttackSettings) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    check_seed(config)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for name in filter(values.__contains__, _CHOICES):
        _check_choice(values[name], name)
    if "dropout_rates" in values:
        _check_population(config)
    check_least(config, **{name: least for name, least in _LEAST.items() if name in values})
    for name in filter(values.__contains__, _NUMBERS):
        check_number(values[name], name, *_NUMBERS[name])
    for name in _FILES:
        if (path := values.get(name)) is not None:
            is_array = path.is_file() and path.suffix in (".npy", ".npz")
            require(is_array, name, "must be an existing .npy or .npz file", str(path))
    if type(config) in _RULES:
        _RULES[type(config)](config)


def _check_choice(values: tuple[Any, ...], name: str) -> None:
    require(len(values) >= 1, name, "must name at least one", values)
    require(len(set(values)) == len(values), name, "must not repeat", values)


def _check_population(config: Any) -> None:
    check_sizes(config)
    for rate in config.dropout_rates:
        require(0 <= rate < 1, "dropout_rates", "must lie in [0, 1)", rate)
    parse_availability(config.availability, config.dropout_rates)
    for text in config.schemes:
        parse_scheme(text).check(config.num_clients, config.cohort_size)


def _least_squares(config: setting.LeastSquaresConfig) -> None:
    require(config.ridge == 0 or config.noise == 0, "noise", "must be 0 with --ridge", config.noise)
    given = (config.aggregates is None) == (config.participation is None)
    if config.run is not None:
        rule = "must be the folder of a complete run of `mrsa-jax train`"
        require((config.run / "results.zarr").is_dir(), "run", rule, str(config.run))
        rule = "must be left out with --run, whose store has it"
        require(config.participation is None, "participation", rule, str(config.participation))
    else:
        rule = "must be given with --participation, and the other way round"
        require(given, "aggregates", rule, _name(config.aggregates), _name(config.participation))
    is_known = config.updates is None or config.aggregates is not None
    require(is_known, "updates", "must be left out without --aggregates", _name(config.updates))
    is_own = config.aggregates is not None or config.run is not None
    rule = "must be left out with --run or --aggregates: these rounds have happened"
    require(not (is_own and config.frozen), "frozen", rule, config.frozen)
    if config.window is not None and not is_own:
        rule = "must be no longer than --rounds"
        require(config.window <= config.rounds, "window", rule, config.window, config.rounds)


def _disaggregation(config: setting.DisaggregationConfig) -> None:
    lengths = config.interval_lengths
    if config.aggregates is None:
        rule = "must be left out without --aggregates"
        for name in ("counts", "participation"):
            value = getattr(config, name)
            require(value is None, name, rule, _name(value))
        require(not lengths, "interval_lengths", rule, lengths)
        return
    is_told = config.counts is not None or config.participation is not None
    require(is_told, "counts", "must be given with --aggregates, or --participation to count from")
    for length in lengths:
        require(length >= 1, "interval_lengths", "must be at least 1", length)


def _distinguish(config: setting.DistinguishConfig | setting.CanariesConfig) -> None:
    for rate in config.false_positive_rates:
        require(0 < rate < 1, "false_positive_rates", "must lie in (0, 1)", rate)


def _canaries(config: setting.CanariesConfig) -> None:
    _distinguish(config)
    delta = config.target_delta
    require(0 < delta < 1, "target_delta", "must lie in (0, 1)", delta)
    check_integer(config.modulus_bits, "modulus_bits", 1, 32)
    for text in config.schemes:  # the ledger's epsilon stands beside what is found
        own = parse_scheme(text).depends_on_data(config.num_clients, config.cohort_size)
        check_blind(own, "schemes", text)


def _gradients(config: setting.GradientsConfig) -> None:
    check_number(config.step_size, "step_size", *_NOT_NEGATIVE)
    given = [n for n in ("photo", "dataset", "folder") if getattr(config, n) is not None]
    rule = "must be left out where the images are from elsewhere"
    require(len(given) <= 1, given[0] if given else "photo", rule, *given)
    if config.folder is not None:
        rule = f"must be a folder with pictures ({', '.join(_PICTURES)})"
        require(bool(pictures(config.folder)), "folder", rule, str(config.folder))


def _model_inversion(config: setting.ModelInversionConfig) -> None:
    check_number(config.step_size, "step_size", *_IS_POSITIVE)


def _inconsistency(config: setting.InconsistencyConfig) -> None:
    rule = "must be one of the round's clients, below --cohort-size"
    require(config.target < config.cohort_size, "target", rule, config.target, config.cohort_size)


_RULES: dict[type, Callable[[Any], None]] = {
    setting.LeastSquaresConfig: _least_squares,
    setting.DistinguishConfig: _distinguish,
    setting.CanariesConfig: _canaries,
    setting.DisaggregationConfig: _disaggregation,
    setting.GradientsConfig: _gradients,
    setting.ModelInversionConfig: _model_inversion,
    setting.InconsistencyConfig: _inconsistency,
}


def pictures(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return a folder's pictures in the order of their names."""
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.suffix.lower() in _PICTURES)


def _name(path: pathlib.Path | None) -> str | None:
    return None if path is None else str(path)
