"""The rules that the settings of attacks keep, checked before any work, without JAX."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from mrsa_jax._checks import POSITIVE, check_least, check_number
from mrsa_jax._errors import require
from mrsa_jax.study import _attack_config as setting
from mrsa_jax.study import _config
from mrsa_jax.study._availability import parse_availability

__all__ = ["check_attack", "pictures"]

_PICTURES = (".png", ".jpg", ".jpeg")


def check_attack(config: setting.AttackSettings) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    require(0 <= config.seed < 2**32, "seed", "must lie in [0, 2**32)", config.seed)
    rules: dict[type, Callable[[Any], None]] = {
        setting.LeastSquaresConfig: _least_squares,
        setting.DisaggregationConfig: _disaggregation,
        setting.GradientsConfig: _gradients,
        setting.ModelInversionConfig: _model_inversion,
        setting.MembershipConfig: _membership,
        setting.InconsistencyConfig: _inconsistency,
    }
    rules[type(config)](config)


def _least_squares(config: setting.LeastSquaresConfig) -> None:
    _population(config)
    _training(config)
    check_least(config, warm_up=0, window=1)
    _positive(config, ridge=0.0, noise=0.0)
    require(config.ridge == 0 or config.noise == 0, "noise", "must be 0 with --ridge", config.noise)
    _exists(config, "aggregates", "participation", "updates")
    from_run = config.run is not None
    if from_run:
        is_run = config.run is not None and (config.run / "results.zarr").is_dir()
        rule = "must be the folder of a complete run of `mrsa-jax train`"
        require(is_run, "run", rule, str(config.run))
        rule = "must be left out with --run, whose store has it"
        require(config.participation is None, "participation", rule, str(config.participation))
    else:
        given = (config.aggregates is None) == (config.participation is None)
        rule = "must be given with --participation, and the other way round"
        require(given, "aggregates", rule, _name(config.aggregates), _name(config.participation))
    is_known = config.updates is None or config.aggregates is not None
    require(is_known, "updates", "must be left out without --aggregates", _name(config.updates))
    is_own = config.aggregates is not None or from_run
    rule = "must be left out with --run or --aggregates: these rounds have happened"
    require(not (is_own and config.frozen), "frozen", rule, config.frozen)
    if config.window is not None and not is_own:
        rule = "must be no longer than --rounds"
        require(config.window <= config.rounds, "window", rule, config.window, config.rounds)


def _disaggregation(config: setting.DisaggregationConfig) -> None:
    _population(config)
    check_least(config, interval=1, dim=1, restarts=1)
    _positive(config, drift=0.0, seconds=0.0)
    _exists(config, "aggregates", "counts", "participation")
    if config.aggregates is None:
        for name in ("counts", "participation"):
            value = getattr(config, name)
            require(value is None, name, "must be left out without --aggregates", _name(value))
        rule = "must be left out without --aggregates"
        require(not config.interval_lengths, "interval_lengths", rule, config.interval_lengths)
        return
    is_told = config.counts is not None or config.participation is not None
    require(is_told, "counts", "must be given with --aggregates, or --participation to count from")
    for length in config.interval_lengths:
        require(length >= 1, "interval_lengths", "must be at least 1", length)


def _gradients(config: setting.GradientsConfig) -> None:
    _training(config, has_epochs=False)
    _seen(config.seen, "seen")
    check_least(config, num_summed=2, num_images=1, iterations=1, restarts=1)
    _positive(config, step_size=0.0, smoothness=0.0)
    given = [n for n in ("photo", "dataset", "folder") if getattr(config, n) is not None]
    rule = "must be left out where the images are from elsewhere"
    require(len(given) <= 1, given[0] if given else "photo", rule, *given)
    if config.folder is not None:
        rule = f"must be a folder with pictures ({', '.join(_PICTURES)})"
        require(bool(pictures(config.folder)), "folder", rule, str(config.folder))


def _model_inversion(config: setting.ModelInversionConfig) -> None:
    _seen(config.seen, "seen")
    check_least(config, num_clients=2, num_epochs=1, iterations=1)
    _positive(config, learning_rate=None, step_size=None, smoothness=0.0)
    chance = config.connection_probability
    rule = "must lie in (0, 1]"
    require(0 < chance <= 1, "connection_probability", rule, chance)


def _membership(config: setting.MembershipConfig) -> None:
    _training(config)
    _seen(config.seen, "seen")
    _seen(config.methods, "methods")
    check_least(config, num_summed=2, client_size=2, num_targets=1, num_shadows=2)
    noise = config.label_noise
    require(0 <= noise <= 1, "label_noise", "must lie in [0, 1]", noise)


def _inconsistency(config: setting.InconsistencyConfig) -> None:
    _seen(config.pads, "pads")
    check_least(config, cohort_size=2, target=0, hidden_size=1, num_epochs=1)
    _positive(config, learning_rate=None)
    rule = "must be one of the round's clients, below --cohort-size"
    require(config.target < config.cohort_size, "target", rule, config.target, config.cohort_size)


def pictures(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return a folder's pictures in the order of their names."""
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.suffix.lower() in _PICTURES)


# --- parts --------------------------------------------------------------------------------------


def _population(config: Any) -> None:
    n, k, rounds = config.num_clients, config.cohort_size, config.rounds
    require(n >= 2, "num_clients", "must be at least 2", n)
    require(2 <= k <= n, "cohort_size", "must lie in [2, num_clients]", k, n)
    require(rounds >= 1, "rounds", "must be at least 1", rounds)
    require(len(config.dropout_rates) >= 1, "dropout_rates", "must hold at least one rate", ())
    for rate in config.dropout_rates:
        require(0 <= rate < 1, "dropout_rates", "must lie in [0, 1)", rate)
    parse_availability(config.availability, config.dropout_rates)
    _seen(config.schemes, "schemes")
    for text in config.schemes:
        _config.parse_scheme(text).check(n, k)


def _training(config: Any, *, has_epochs: bool = True) -> None:
    _positive(config, learning_rate=None)
    if has_epochs:
        check_least(config, batch_size=1, num_epochs=1)


def _seen(values: tuple[str, ...], name: str) -> None:
    require(len(values) >= 1, name, "must name at least one", values)
    require(len(set(values)) == len(values), name, "must not repeat", values)


def _positive(config: Any, **least: float | None) -> None:
    """Check finite numbers: at least a bound, or positive where it is None."""
    for name, bound in least.items():
        value = getattr(config, name)
        rule = "must be finite and positive" if bound is None else f"must be finite, from {bound:g}"
        check_number(value, name, rule, POSITIVE if bound is None else bound)


def _exists(config: Any, *names: str) -> None:
    for name in names:
        path = getattr(config, name)
        if path is not None:
            is_array = path.is_file() and path.suffix in (".npy", ".npz")
            require(is_array, name, "must be an existing .npy or .npz file", str(path))


def _name(path: pathlib.Path | None) -> str | None:
    return None if path is None else str(path)
