"""Weak T after each round as a variable of simulations and sweeps."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import numpy as np
import pytest

from mrsa_jax import plotting, study
from mrsa_jax.study import PopulationConfig, ProtocolConfig, SimulateConfig
from mrsa_jax.study.runs import _simulate_points, _weak
from mrsa_jax.study.stores._runner import TRAJECTORIES, Machine
from mrsa_watch._base.errors import ConfigurationError

SCHEMES = ("uniform", "weighted", "batch_partitioning:2")
SMALL = SimulateConfig(
    rounds=12,
    trials=2,
    population=PopulationConfig(8, 4, (0.1, 0.4)),
    schemes=SCHEMES,
)


def weak_t(rows: np.ndarray) -> int:
    """Return weak T by all sets of clients; -1 without a client.

    A set holds a combination of the rows if, and only if, the other columns have a
    smaller rank. Minors of a 0/1 matrix of 12 columns are integers, so a singular value
    that is not 0 is far above the tolerance.
    """
    clients = rows.shape[1]
    if not rows.any():
        return -1
    sets = np.array(list(itertools.product([False, True], repeat=clients)))
    others = np.where(sets[:, None], 0.0, rows.astype(float))
    ranks = np.linalg.matrix_rank(others, tol=1e-7)
    return int(sets.sum(axis=1)[ranks < ranks.max()].min())


def paths(config: SimulateConfig, keep: str) -> dict[str, np.ndarray]:
    kept = (TRAJECTORIES, keep)
    (values,) = _simulate_points.run_points([config], Machine(), kept, 1)
    return values


def check(config: SimulateConfig, places: range) -> None:
    """Compare bounds and proofs with the enumeration after some rounds."""
    found = study.run(dataclasses.replace(config, keep=("weak_privacy:certified:0.1",)))
    bounds = study.run(dataclasses.replace(config, keep=("weak_privacy",)))
    assert "weak_certified" not in bounds
    dims = ("scheme", "trial", "round")
    assert found["weak_lower"].dims == bounds["weak_upper"].dims == dims
    for place, text in enumerate(config.schemes):
        one = dataclasses.replace(config, schemes=(text,))
        history = _simulate_points._histories([one], Machine(), 1, 0)
        (cohorts,) = history
        for trial, j in itertools.product(range(config.trials), places):
            at = {"scheme": place, "trial": trial, "round": j}
            here, less = found.isel(at), bounds.isel(at)
            true = weak_t(cohorts[trial, : j + 1])
            if true < 0:
                assert np.isnan(here["weak_lower"])
                assert np.isnan(less["weak_upper"])
                assert np.isnan(here["weak_certified"])
                continue
            assert here["weak_certified"] == 1
            assert here["weak_lower"] == here["weak_upper"] == true
            assert less["weak_lower"] <= true <= less["weak_upper"]


@pytest.mark.long
def test_weak_t_is_that_of_all_sets_of_clients() -> None:
    check(SMALL, range(0, 12, 3))


@pytest.mark.long
def test_weak_t_is_that_of_all_sets_of_twelve_clients() -> None:
    population = PopulationConfig(12, 4, (0.1, 0.5))
    check(dataclasses.replace(SMALL, population=population, rounds=16), range(3, 16, 4))


@pytest.mark.long
def test_sums_that_lost_clients_count_after_their_round() -> None:
    protocol = ProtocolConfig(step_dropout_rate=0.1, threshold=3)
    config = dataclasses.replace(
        SMALL, protocol=protocol, schemes=("batch_partitioning:2",), trials=2
    )
    values = paths(config, "weak_privacy:certified")
    lower, upper = values["weak_lower_by_round"], values["weak_upper_by_round"]
    assert lower.shape == (2, 12)
    # T is 1 exactly where a client is exposed, which other code decides
    is_exposed = values["exposed_clients_by_round"] > 0
    has_sums = values["rank_by_round"] > 0
    assert is_exposed.any()
    np.testing.assert_array_equal(upper == 1, is_exposed)
    np.testing.assert_array_equal(lower > 0, has_sums)
    assert (values["weak_certified_by_round"] == np.where(has_sums, 1, -1)).all()
    np.testing.assert_array_equal(values["weak_lower"], lower[:, -1])


@pytest.mark.long
def test_a_sweep_keeps_bounds_and_never_takes_them_for_proofs(
    tmp_path: pathlib.Path,
) -> None:
    content = {
        "rounds": 9,
        "trials": 2,
        "population": {"num_clients": 8, "cohort_size": 4},
        "schemes": ["uniform", "batch_partitioning:2"],
        "grid": {"seed": [0, 1]},
        "keep": ["weak_privacy"],
    }
    found = study.sweep(content, out=tmp_path).load()
    path = found["weak_lower_by_round"]
    assert path.dims == ("scheme", "seed", "trial", "round")
    np.testing.assert_array_equal(found["weak_lower"], path.isel(round=-1))
    assert "weak_certified" not in found
    # least over the trials, as of strong T
    table = found.mrsa.table()
    least = found["weak_upper"].min("trial").values.ravel()
    assert table["weak_upper"].tolist() == least.tolist()
    ax = found.mrsa.plot_weak_privacy()
    series = {str(text.get_text()) for text in ax.texts}
    assert any("seed 1" in text for text in series)
    proven = content | {"keep": ["weak_privacy:certified"]}
    assert study.sweep(proven, out=tmp_path, dry_run=True)["there"] == 0


def test_sums_of_a_round_count_when_it_is_over() -> None:
    rows = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]], np.bool_)
    none = rows[:0], np.zeros(0, np.int64)
    trials = [(rows, np.array([1, 1, 3])), none]
    found = _weak.weak_values(trials, 5, ("weak_privacy:certified:0",))
    # a + b, b + c and a + c give a
    assert found["weak_upper_by_round"].tolist() == [[-1, 2, 2, 1, 1], [-1] * 5]
    assert found["weak_lower"].tolist() == [1, -1]
    assert found["weak_certified_by_round"].tolist() == [[-1, 1, 1, 1, 1], [-1] * 5]
    assert _weak.weak_values(trials, 5, ("skipped",)) == {}


@pytest.mark.parametrize(
    "keep",
    [
        ["weak_privacy:proven"],
        ["weak_privacy:certified:nan"],
        ["weak_privacy:certified:-1"],
        ["weak_privacy:certified:1:1"],
        ["weak_privacy", "weak_privacy:certified"],
        ["weak"],
        ["weak_privacy_by_round"],
    ],
)
def test_other_wishes_are_refused(tmp_path: pathlib.Path, keep: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="`keep` must name"):
        study.validate(dataclasses.replace(SMALL, keep=tuple(keep)))
    with pytest.raises(ConfigurationError, match="`keep` must name"):
        study.sweep({"keep": keep, "rounds": 5}, out=tmp_path, dry_run=True)


def test_what_is_kept_is_no_axis_and_trainings_have_no_weak_t(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(ConfigurationError, match=r"`grid.keep` must not be an axis"):
        study.sweep({"grid": {"keep": [["weak_privacy"]]}}, out=tmp_path, dry_run=True)
    with pytest.raises(ConfigurationError, match="points of train can have"):
        study.sweep(
            {"command": "train", "keep": ["weak_privacy"], "grid": {"seed": [0]}},
            out=tmp_path,
            dry_run=True,
        )


def test_the_figure_shows_means_of_bounds(tmp_path: pathlib.Path) -> None:
    found = study.run(
        dataclasses.replace(SMALL, schemes=("uniform",), keep=("weak_privacy",))
    )
    plotting.save_study_figures(found, tmp_path, formats=["png"])
    data = np.genfromtxt(tmp_path / "weak_privacy.csv", delimiter=",", names=True)
    upper = found["weak_upper"].isel(scheme=0).mean("trial").values
    np.testing.assert_allclose(data["Random_mean_at_most"], upper)
    with pytest.raises(ConfigurationError, match="must be of a study with weak_lower"):
        plotting.plot_study(
            found.drop_vars(["weak_lower", "weak_upper"]), "weak_privacy"
        )
    assert "error chance below 2^-30" in plotting.study_charts.weak_chart(found).caption
