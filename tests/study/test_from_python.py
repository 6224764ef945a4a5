"""Settings and sweeps from Python.

NumPy's numbers and Python's sequences are what TOML holds.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.settings._attributes import JsonText, attributes, with_attributes
from mrsa_jax.study.settings._load import load_config, plain_values
from mrsa_jax.study.sweeps import parse_sweep, sweep_of

SMALL = {"rounds": 5, "trials": 2, "population": {"num_clients": 12, "cohort_size": 6}}
TOML = """
rounds = 5
trials = 2
population = {num_clients = 12, cohort_size = 6}
[grid]
population.dropout_rates = [0.1, 0.25]
privacy_target = [2, 3]
scheme = ["batch_partitioning"]
"""
LISTS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "of NumPy's": lambda values: [np.asarray(value)[()] for value in values],
    "of arrays": lambda values: [np.asarray(value) for value in values],
    "series": pd.Series,
    "index": pd.Index,
    "xarray": xr.DataArray,
    "wide": lambda values: np.asarray(values).astype(object),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_sweep_is_the_same_however_its_values_are_held(kind: str) -> None:
    held = LISTS[kind]
    given = {
        "rounds": np.int32(5),
        "trials": np.asarray(2),
        "population": {"num_clients": np.int64(12), "cohort_size": np.uint8(6)},
        "grid": {
            "population": {"dropout_rates": held([0.1, 0.25])},
            "privacy_target": held([2, 3]),
            "scheme": held(["batch_partitioning"]),
        },
    }
    _check_same(sweep_of(plain_values(given)), parse_sweep(TOML))


def _check_same(found: Any, expected: Any) -> None:
    assert dataclasses.replace(found, source="") == dataclasses.replace(
        expected, source=""
    )
    for one, other in zip(found.points(), expected.points(), strict=True):
        assert study.config_hash(one.config) == study.config_hash(other.config)
        assert repr(one.config) == repr(other.config)


def test_ranges_of_python_and_of_the_file() -> None:
    expected = sweep_of({"grid": {"rounds": [2, 4, 6]}})
    _check_same(sweep_of(plain_values({"grid": {"rounds": range(2, 8, 2)}})), expected)
    _check_same(
        sweep_of(plain_values({"grid": {"rounds": {"range": (2, 8, 2)}}})), expected
    )
    _check_same(
        sweep_of(plain_values({"grid": {"rounds": np.arange(2, 8, 2)}})), expected
    )
    assert plain_values(range(3, 0, -1)) == [3, 2, 1]
    for many in (range(10**7), range(10**40), range(0, -(10**40), -1)):
        with pytest.raises(
            ConfigurationError, match=r"`grid.rounds` must have at most 1000000"
        ):
            plain_values({"grid": {"rounds": many}})


def test_numbers_are_exact() -> None:
    assert plain_values(np.float32(0.1)) == float(np.float32(0.1)) != 0.1
    assert plain_values(jnp.arange(3)) == [0, 1, 2]
    kinds = [
        type(plain_values(value))
        for value in (np.bool_(True), np.str_("a"), np.float16(1))
    ]
    assert kinds == [bool, str, float]
    assert plain_values(pathlib.Path("a")) == "a"
    thing = object()
    assert plain_values({"mine": thing})["mine"] is thing
    scheme = mj.selection.uniform(4, 2)
    assert plain_values([scheme])[0] is scheme


@pytest.mark.long
def test_what_has_no_value_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"`grid\.rounds` must have no masked entries"
    ):
        plain_values({"grid": {"rounds": np.ma.masked_array([1, 2], [False, True])}})
    for values in (
        pd.array([1, None]),
        np.array([1.5, 2.0]),
        {1, 2},
        iter([1]),
        [[1, 2]],
    ):
        with pytest.raises(ConfigurationError, match=r"grid.rounds"):
            study.sweep(SMALL | {"grid": {"rounds": values}}, dry_run=True)


@pytest.mark.long
def test_a_store_of_the_file_s_points_has_those_of_arrays(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "study.toml").write_text(TOML)
    study.sweep(tmp_path / "study.toml", out=tmp_path / "out")
    grid = {
        "population.dropout_rates": np.array([0.1, 0.25]),
        "privacy_target": range(2, 4),
        "scheme": ("batch_partitioning",),
    }
    plan = study.sweep(SMALL | {"grid": grid}, out=tmp_path / "out", dry_run=True)
    assert (plan["points"], plan["there"], plan["new"]) == (4, 4, 0)


def _holding(config: Any, **values: Any) -> Any:
    """Return settings that hold these values, which the suite's checks of types refuse."""
    for name, value in values.items():
        object.__setattr__(config, name, value)
    return config


@pytest.mark.long
def test_configurations_take_them_too() -> None:
    usual = study.SimulateConfig(
        rounds=5,
        trials=2,
        schemes=("uniform",),
        population=study.PopulationConfig(12, 6, dropout_rates=(0.1,)),
    )
    population = _holding(
        study.PopulationConfig(),
        num_clients=np.int64(12),
        cohort_size=np.int16(6),
        dropout_rates=np.array([0.1]),
    )
    values = {
        "rounds": np.int64(5),
        "trials": np.asarray(2),
        "schemes": np.array(["uniform"]),
    }
    config = _holding(study.SimulateConfig(population=population), **values)
    assert study.run(config).identical(study.run(usual))
    study.validate(config)
    assert type(config.rounds) is np.int64  # what was given stays as it is


def test_a_file_may_begin_with_a_mark(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbfrounds = 7\n")
    assert load_config(study.SimulateConfig, path).rounds == 7
    path.write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    _check_same(typing.cast(Any, study.sweeps).load_sweep(path), parse_sweep(TOML))
    _check_same(parse_sweep("\ufeff" + TOML), parse_sweep(TOML))


# ---- Data sets as files of other formats.


def _data_sets(folder: pathlib.Path) -> dict[str, xr.Dataset]:
    history = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], bool)
    grid = {"scheme": ["uniform", "partition"], "rounds": [3, 4]}
    config = study.SimulateConfig(
        rounds=3,
        trials=2,
        schemes=("uniform",),
        population=study.PopulationConfig(12, 6),
    )
    study.run_and_save(dataclasses.replace(config, out=folder / "saved"))
    return {
        "run": study.run(config),
        "saved": study.open_study(folder / "saved"),
        "sweep": study.sweep(
            SMALL | {"trajectories": True, "grid": grid}, out=folder / "sweep"
        ),
        "histories": study.from_histories({"a": history, "b": history}),
    }


@pytest.mark.long
def test_data_sets_are_saved_as_netcdf_and_read(tmp_path: pathlib.Path) -> None:
    for name, results in _data_sets(tmp_path).items():
        results.load().to_netcdf(tmp_path / f"{name}.nc")
        with xr.open_dataset(tmp_path / f"{name}.nc") as opened:
            again = opened.load()
        xr.testing.assert_equal(again, results)
        assert attributes(again) == attributes(results), name
        assert again.mrsa.sentences() == results.mrsa.sentences()
        assert again.mrsa.cite() == results.mrsa.cite()
        pd.testing.assert_frame_equal(
            again.mrsa.table(), results.mrsa.table(), check_dtype=False
        )
        page = again.mrsa.report(tmp_path / "page.html").read_text()
        assert page == results.mrsa.report(tmp_path / "page.html").read_text()


def test_settings_in_attributes_read_as_settings() -> None:
    config = study.to_dict(study.SimulateConfig())
    given = {
        "config": config,
        "axes": [{"name": "a"}],
        "papers": (("k", "v"),),
        "commit": None,
    }
    results = with_attributes(xr.Dataset(), given)
    assert "commit" not in results.attrs
    told = results.attrs["config"]
    assert isinstance(told, str)
    assert isinstance(told, JsonText)
    assert told == config != told["population"]
    assert not told != config  # noqa: SIM202
    assert told["population"]["num_clients"] == 120
    assert "rounds" in told
    assert told.get("nothing", 3) == 3
    assert (
        dict(told.items())
        == dict(zip(told.keys(), told.values(), strict=True))
        == config
    )
    assert [axis["name"] for axis in results.attrs["axes"]] == ["a"]
    assert attributes(results)["papers"] == [["k", "v"]]
    assert attributes(xr.Dataset(attrs={"title": "[draft] a"}))["title"] == "[draft] a"
