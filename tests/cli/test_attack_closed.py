"""Settings that would have no effect on an attack are refused."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from mrsa_jax.study import validate
from mrsa_jax.study.attacks_on_sums import DisaggregationConfig, LeastSquaresConfig
from mrsa_watch._base.errors import ConfigurationError

_USED = {"participation", "updates", "window", "prior", "ridge", "noise", "memory"}
_USED |= {"share", "seed", "out", "overwrite", "json", "run", "aggregates"}
"""Settings of the estimate, its score and its folder, which use sums of any source."""

_OTHERS: dict[str, Any] = {
    "partition": "dirichlet",
    "dataset": "mnist_5k",
    "directory": pathlib.Path(),
    "assignment": "cyclic",
    "availability": "markov:3",
    "model": "mlp",
    "schemes": ("weighted",),
    "local_steps": 3,
    "decay_rounds": (3,),
    "dropout_rates": (0.25,),
    "clip_norm": 0.5,
    "decay_factor": 0.3,
}


def _another(field: dataclasses.Field[Any]) -> Any:
    """Choose a valid value that is not the default."""
    if field.name in _OTHERS:
        return _OTHERS[field.name]
    if isinstance(field.default, bool):
        return not field.default
    assert isinstance(field.default, int | float), field.name
    return type(field.default)(field.default * 2 or 2)


@pytest.mark.parametrize("source", ["run", "aggregates"])
@pytest.mark.parametrize(
    "field",
    [f for f in dataclasses.fields(LeastSquaresConfig) if f.name not in _USED],
    ids=lambda field: field.name,
)
def test_what_simulates_rounds_is_refused_with_sums_of_elsewhere(
    field: dataclasses.Field[Any], source: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "results.zarr").mkdir()
    files: dict[str, Any] = {"run": tmp_path}
    if source == "aggregates":
        path = tmp_path / "array.npy"
        path.touch()
        files = {"aggregates": path, "participation": path}
    validate(LeastSquaresConfig(**files))
    value = _another(field)
    rule = f"`{field.name}` must not be set with --run or --aggregates"
    with pytest.raises(ConfigurationError, match=rule):
        validate(LeastSquaresConfig(**files, **{field.name: value}))


_SOLVED = {"counts", "participation", "interval_lengths", "interval", "restarts"}
_SOLVED |= {"seconds", "seed", "out", "overwrite", "json", "aggregates", "run"}
"""Settings of disaggregation that use sums of any source."""


@pytest.mark.parametrize(
    "field",
    [f for f in dataclasses.fields(DisaggregationConfig) if f.name not in _SOLVED],
    ids=lambda field: field.name,
)
def test_what_simulates_rounds_is_refused_by_disaggregation_of_files(
    field: dataclasses.Field[Any], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "array.npy"
    path.touch()
    files: dict[str, Any] = {"aggregates": path, "counts": path}
    validate(DisaggregationConfig(**files))
    value = _another(field)
    rule = f"`{field.name}` must not be set with --run or --aggregates"
    with pytest.raises(ConfigurationError, match=rule):
        validate(DisaggregationConfig(**files, **{field.name: value}))


def test_an_interval_is_refused_with_counts_of_intervals(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "array.npy"
    path.touch()
    rule = "`interval` must not be set with --counts or --interval-lengths"
    for files in (
        {"counts": path},
        {"participation": path, "interval_lengths": (3,)},
    ):
        settings: dict[str, Any] = {"aggregates": path, **files}
        validate(DisaggregationConfig(**settings))
        with pytest.raises(ConfigurationError, match=rule):
            validate(DisaggregationConfig(**settings, interval=5))
