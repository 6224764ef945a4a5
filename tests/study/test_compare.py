"""Selectors that are values, and histories of any origin, as studies."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax import ConfigurationError

N, K = 12, 4
_online = functools.cache(lambda: mj.availability.independent(0.2))


class NoPytree:
    num_clients = N

    def init(self) -> Any: ...

    def select(self, key: Any, state: Any, available: Any) -> Any: ...


def test_what_is_no_selector_is_named() -> None:
    uniform = mj.selection.uniform(N, K)
    with pytest.raises(
        ConfigurationError, match="`schemes` must map labels to selectors"
    ):
        mj.study.compare({}, _online(), rounds=3, trials=2)
    with pytest.raises(ConfigurationError, match="`selector` must be a pytree"):
        mj.study.compare({"mine": NoPytree()}, _online(), rounds=3, trials=2)
    other = mj.selection.uniform(N + 1, K)
    with pytest.raises(
        ConfigurationError, match=r"one number of clients; got .*'b': 13"
    ):
        mj.study.compare({"a": uniform, "b": other}, _online(), rounds=3, trials=2)
    with pytest.raises(ConfigurationError, match="`trials` must be at least 1; got 0"):
        mj.study.compare({"a": uniform}, _online(), rounds=3, trials=0)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (np.ones((3, 4)), "must hold booleans or integers .*'mine'.*float64"),
        (np.ones(3, bool), r"must hold booleans or integers .*shape \(3,\)"),
        (np.ones((0, 4), bool), "must hold booleans or integers"),
        (np.ones((3, 5), bool), r"must be of one shape; got .*\(3, 4\).*\(3, 5\)"),
    ],
)
def test_what_is_no_history_is_named(history: np.ndarray, words: str) -> None:
    histories = {"first": np.ones((3, 4), bool), "mine": history}
    with pytest.raises(ConfigurationError, match=f"`histories` {words}"):
        mj.study.from_histories(histories)


@pytest.mark.long
def test_selectors_give_what_a_study_of_their_names_gives() -> None:
    """The same rates, seed and sizes: the same data set, but for what the settings are."""
    population = mj.study.PopulationConfig(
        N, K, dropout_rates=(0.1, 0.4), assignment="cyclic"
    )
    schemes = ("uniform", "batch_partitioning:2", "bernoulli:0.5")
    config = mj.study.SimulateConfig(
        seed=3, rounds=15, trials=3, schemes=schemes, population=population
    )
    theirs = mj.study.run(config)
    ours = mj.study.compare(
        {
            "Random": mj.selection.uniform(N, K),
            "Multi-RoundSecAgg (T=2)": mj.selection.batch_partitioning(N, K, 2),
            "Bernoulli (0.5)": mj.selection.bernoulli(N, 0.5),
        },
        mj.availability.independent(theirs["dropout_rate"].values),
        rounds=15,
        trials=3,
        seed=3,
    )
    xr.testing.assert_allclose(ours.drop_attrs(), theirs.drop_attrs(), rtol=1e-6)
    assert {str(n): v.dtype for n, v in ours.items()}.keys() == set(
        map(str, theirs.data_vars)
    )
    assert ours["guaranteed_privacy"].values.tolist() == [1, 2, 1]
    assert ours.mrsa.sentences() == theirs.mrsa.sentences()


@pytest.mark.long
def test_expectations_are_told_of_independent_rounds_alone() -> None:
    uniform = {"mine": mj.selection.uniform(N, K)}
    away = mj.availability.markov(0.3, 4.0)
    found = mj.study.compare(uniform, away, rounds=4, trials=2)
    assert np.isnan(found["expected_cardinality"].values).all()
    assert np.isnan(found["dropout_rate"].values).all()
    assert found.mrsa.table()["scheme"].tolist() == ["mine"]


@pytest.mark.long
def test_histories_are_judged_as_they_are() -> None:
    """By hand: a triangle of pairs, solved by its third round; a sum of one; weights."""
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    alone = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], bool)
    weighted = np.array([[1, 2, 0], [2, 4, 0], [0, 0, 0]])
    found = mj.study.from_histories({"a": triangle, "b": alone, "c": weighted})
    assert found["exposed_clients"].values.tolist() == [[0, 0, 3], [0, 1, 1], [0, 0, 0]]
    assert found["rank"].values.tolist() == [[1, 2, 3], [0, 1, 1], [1, 1, 1]]
    assert found["aggregation_cardinality"].values[:, -1].tolist() == pytest.approx(
        [2.0, 1 / 3, 4 / 3]
    )
    assert found["skipped"].values.sum(axis=1).tolist() == [0, 2, 1]
    row = found.mrsa.table().set_index("scheme").loc["a"]
    assert (row["first_exposed_after"], row["guaranteed_privacy"]) == (3, 1)
    several = mj.study.from_histories({"a": np.stack([triangle, triangle[::-1]])})
    assert several.sizes["trial"] == 2
    assert several["exposed_clients"].values[0, :, -1].tolist() == [3, 3]


@pytest.mark.long
def test_they_have_tables_pictures_pages_and_papers(tmp_path: pathlib.Path) -> None:
    chosen = {"worst off": mj.selection.power_of_choice(N, K, 8)}
    found = mj.study.compare(chosen, _online(), rounds=5, trials=2)
    assert "cho2020client" in found.mrsa.cite()
    page = found.mrsa.report(tmp_path / "page.html").read_text()
    assert "worst off" in page
    assert "@article{cho2020client," in page or "@misc{cho2020client," in page
    mine = mj.study.from_histories({"mine": np.eye(4, dtype=bool)})
    assert "cho2020client" not in mine.mrsa.cite()
    assert mine.mrsa.plot_privacy().get_lines()
    assert "4 of 4 clients under mine" in mine.mrsa.sentences()[0]
    assert "mine" in mine.mrsa.report(tmp_path / "mine.html").read_text()
