"""Models, data sets, trainers and quantizers by name.

In settings, sweeps, citations and codes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax.study.settings._parts import KINDS
from mrsa_jax.study.stores._sources import made_by

_BIBTEX = "@misc{mine2026, author = {Me}, title = {It}}"
TEXT = (
    pathlib.Path(__file__).parents[2].joinpath("docs/extending.md").read_text("utf-8")
)
_SMALL = mj.study.TrainConfig(
    rounds=4,
    scheme="uniform",
    population=mj.study.PopulationConfig(6, 3),
    data=mj.study.DataConfig("digits"),
    training=mj.study.TrainingConfig("logistic"),
)


@pytest.fixture(autouse=True)
def rows_go() -> Any:
    before = {kind: dict(own.rows) for kind, own in KINDS.items()}
    yield
    for kind, own in KINDS.items():
        own.rows.clear()
        own.rows.update(before[kind])


def _with(**names: str) -> mj.study.TrainConfig:
    tables = {"model": "training", "trainer": "training", "quantizer": "aggregation"}
    config = _SMALL
    for kind, text in names.items():
        table = tables.get(kind, "data")
        own = dataclasses.replace(getattr(config, table), **{kind: text})
        config = dataclasses.replace(config, **{table: own})
    return config


@pytest.mark.long
def test_names_are_read_before_any_work() -> None:
    for kind in ("model", "trainer", "quantizer"):
        with pytest.raises(
            mj.ConfigurationError, match=f"`{kind}` must be a known {kind}"
        ):
            mj.study.validate(_with(**{kind: "mine"}))
        mj.study.register(kind, "mine", lambda *given: None, papers=_BIBTEX)
        mj.study.validate(_with(**{kind: "mine"}))
        assert "@misc{mine2026" in mj.cite(_with(**{kind: "mine"}))
        assert any(
            name.startswith(f"{kind} mine") for name in made_by(_with(**{kind: "mine"}))
        )
        with pytest.raises(mj.ConfigurationError, match="`factory` must"):
            mj.study.run(_with(**{kind: "mine"}))
    mj.study.register("model", "wide", lambda classes, size: None)
    with pytest.raises(
        mj.ConfigurationError, match="`model` must be written wide:SIZE"
    ):
        mj.study.validate(_with(model="wide"))
    with pytest.raises(
        mj.ConfigurationError, match="`dataset` must be a known data set"
    ):
        mj.study.run(_with(dataset="mine"))


@pytest.mark.long
def test_misuse() -> None:
    with pytest.raises(mj.ConfigurationError, match="`kind` must be a kind of part"):
        mj.study.register("models", "mine", lambda classes: None)
    for kind, name in (("model", "cnn"), ("dataset", "digits"), ("trainer", "sgd")):
        with pytest.raises(
            mj.ConfigurationError, match=f"none of the package's own {kind}s"
        ):
            mj.study.register(kind, name, lambda *given: None)
    segments = mj.study.SegmentConfig("groups", group_levels=(2,))
    config = dataclasses.replace(_with(quantizer="stochastic"), hetero=segments)
    with pytest.raises(
        mj.ConfigurationError, match="`quantizer` must not be set with segments"
    ):
        mj.study.validate(config)
    own = mj.study.TrainingConfig("logistic", trainer="scaffold", momentum=0.5)
    with pytest.raises(
        mj.ConfigurationError, match="`momentum` must not be set with the train"
    ):
        mj.study.run(dataclasses.replace(_SMALL, training=own))
    demo = mj.study.DemoConfig(
        rounds=2,
        schemes=("uniform",),
        data=_SMALL.data,
        population=_SMALL.population,
        training=mj.study.TrainingConfig("logistic", trainer="scaffold"),
    )
    with pytest.raises(
        mj.ConfigurationError, match="`trainer` must be one without state in a"
    ):
        mj.study.run(demo)


@pytest.mark.long
def test_the_package_s_own_by_name_are_what_they_were() -> None:
    plain, named = (
        mj.study.run(config)
        for config in (_SMALL, _with(trainer="sgd", quantizer="stochastic"))
    )
    np.testing.assert_array_equal(plain["accuracy"], named["accuracy"])
    assert plain.attrs["config_hash"] != named.attrs["config_hash"]
    # so stores of old stay good
    assert "trainer" not in plain.attrs["config"]["training"]


@pytest.mark.long
def test_the_page_s_parts_are_axes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cell is the training of its settings alone.

    Parameters pass to the factories.
    """
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(
        r"```python\n((?:(?!```).)*\"blobs\", blobs.*?)```", TEXT, re.S
    )
    (toml,) = re.findall(r"```toml\n([^\n]*blobs.toml.*?)```", TEXT, re.S)
    pathlib.Path("blobs.py").write_text(block)
    pathlib.Path("blobs.toml").write_text(toml)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert cli.main(["sweep", "blobs.toml", "--plugin", "blobs.py"]) == 0
        found = mj.study.open_study("results/sweep").load()
        assert found["accuracy"].shape == (3, 2, 2)
        assert (found["done"].values).all()
        own = mj.study.TrainingConfig("wide:8", trainer="scaffold")
        alone = mj.study.run(
            dataclasses.replace(
                _with(dataset="blobs", quantizer="coarse"),
                rounds=6,
                training=own,
            )
        )
    cell = found.sel(trainer="scaffold", model="wide:8", quantizer="coarse")
    assert float(cell["accuracy"]) == float(alone["accuracy"][0, -1])
    assert len(np.unique(found["loss"].values)) == 12
