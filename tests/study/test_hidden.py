"""What a study says that the worst and the median client is hidden among, in exact rationals."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, study
from mrsa_jax.selection import RoundHistory
from mrsa_jax.study.publishing import _report
from mrsa_jax.study.publishing._accessor import register
from mrsa_jax.study.runs import _trial
from mrsa_jax.study.runs._segments import analyse_segments

register()  # as every study does


def exact(rows: np.ndarray) -> list[tuple[Fraction, Fraction] | None]:
    """Return (worst, median) over who took part after each row.

    1/h, h by exact projections.
    """
    basis: list[list[Fraction]] = []
    shares = [Fraction(0)] * rows.shape[1]
    found: list[tuple[Fraction, Fraction] | None] = []
    for row in rows:
        rest = [Fraction(int(value)) for value in row]
        for own in basis:
            length = sum(value * value for value in own)
            share = sum(a * b for a, b in zip(rest, own, strict=True)) / length
            rest = [a - share * b for a, b in zip(rest, own, strict=True)]
        length = sum(value * value for value in rest)
        if length:
            basis.append(rest)
            shares = [
                h + value * value / length
                for h, value in zip(shares, rest, strict=True)
            ]
        hidden = [1 / h for h in shares if h]
        found.append((min(hidden), median(hidden)) if hidden else None)
    return found


def check(worst: np.ndarray, middle: np.ndarray, rows: np.ndarray) -> None:
    for low, half, wanted in zip(worst, middle, exact(rows), strict=True):
        if wanted is None:
            assert np.isnan([low, half]).all()
            continue
        # exactly 1 is said of who is exposed, of no other
        assert (low == 1) == (wanted[0] == 1)
        assert low == pytest.approx(float(wanted[0]), rel=1e-9)
        assert half == pytest.approx(float(wanted[1]), rel=1e-9)


@pytest.fixture(scope="module")
def trials() -> np.ndarray:
    """Histories of all kinds: empty rounds, repeated ones, single clients, everybody."""
    rng = np.random.default_rng(0)
    found = rng.random((60, 9, 7)) < rng.uniform(0.1, 0.9, (60, 1, 1))
    found[0] = False
    found[1, 1:] = False
    found[2] = np.repeat(np.repeat(np.eye(3, 4, dtype=bool), 3, axis=0), 2, axis=1)[
        :, :7
    ]
    return np.asarray(found)


@pytest.mark.long
def test_every_round_of_every_trial(trials: np.ndarray) -> None:
    found = _trial.analyse(trials)
    for b, rows in enumerate(trials):
        check(found.hidden_among_worst[b], found.hidden_among_median[b], rows)
    strong = found.strong_privacy.astype(float)
    assert (strong[strong > 0] <= found.hidden_among_worst[strong > 0] + 1e-9).all()


@pytest.mark.long
def test_the_first_rounds_are_those_of_a_shorter_study(trials: np.ndarray) -> None:
    whole, part = _trial.analyse(trials), _trial.analyse(trials[:, :4])
    for name in ("hidden_among_worst", "hidden_among_median"):
        np.testing.assert_allclose(
            getattr(whole, name)[:, :4], getattr(part, name), rtol=1e-9
        )


@pytest.mark.long
def test_of_each_sum_of_a_round_and_of_the_worst_segment() -> None:
    """By hand: {0,1} + {2} in a round, nothing, then {0,1,2,3}, then a failed round's {3}."""
    parts = np.array([[0, 0, 2, -1], [-1] * 4, [0, 0, 0, 0], [-1, -1, -1, 3]], np.int32)
    own = np.array([[1, 1, 1, 0], [0] * 4, [1, 1, 1, 1], [0] * 4], bool)
    status = np.array([0, 1, 0, 3], np.int32)
    found = _trial.analyse_rounds(
        RoundHistory(np.zeros((4, 5, 4), bool), own, status, None, parts)
    )
    assert found.hidden_among_worst.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(found.hidden_among_median, [2, 2, 1.5, 1.5])
    sums = [np.array([[1, 1, 1, 1]], bool), np.array([[1, 1, 0, 0]], bool)]
    segments = mj.hetero.SegmentHistory(
        participation=tuple(sums),
        rounds=(np.array([0]), np.array([1])),
        blocks=(np.array([0]), np.array([0])),
        bounds=((0, 1), (1, 2)),
        sizes=(np.array([4]), np.array([2])),
        plain=np.zeros((2, 4), bool),
    )
    judged = analyse_segments(segments, np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool))
    np.testing.assert_allclose(judged.hidden_among_worst, [4, 2])


SMALL = study.SimulateConfig(
    rounds=14,
    trials=3,
    schemes=("uniform", "batch_partitioning:2"),
    population=study.PopulationConfig(
        num_clients=12, cohort_size=4, dropout_rates=(0.3,)
    ),
)


def test_updates_of_several_sums_a_round_and_of_rounds_that_were_skipped() -> None:
    """By hand: {0,1} and {1,2} in one round tell 2/3 of each.

    {0,1,2} later 19/28 at rho 1/2.
    """
    rows = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    found = _trial.hidden_updates(rows, np.array([0, 0, 1]), 2, 0.5, 1.0)
    np.testing.assert_allclose(found, [[1.5, 1.5], [28 / 19, 28 / 19]])
    found = _trial.hidden_updates(rows, np.array([1, 1, 3]), 5, 0.5**0.5, 1.0)
    np.testing.assert_allclose(found[1:, 0], [1.5, 1.5, 28 / 19, 28 / 19])
    assert np.isnan(found[0]).all()
    assert np.isnan(
        _trial.hidden_updates(rows[:0], np.zeros(0, int), 2, 0.5, 1.0)
    ).all()


@pytest.mark.long
def test_a_simulation_with_a_memory_says_so_of_updates() -> None:
    drifting = dataclasses.replace(SMALL, memory=0.9, share=0.8)
    results = study.run(drifting)
    online = mj.availability.independent(0.3)
    played = np.asarray(
        mj.selection.rollout_trials(0, mj.selection.uniform(12, 4), online, 14, 3)
    )
    own = results.sel(scheme="Random")
    hidden = np.asarray(mj.privacy.hidden_among(played, memory=0.9, share=0.8))
    worst = own["update_hidden_worst"].values
    np.testing.assert_allclose(worst[:, -1], hidden.min(axis=1), rtol=1e-9)
    assert (np.diff(worst, axis=1) <= 1e-12).all()
    taken = np.where(np.isinf(hidden), np.nan, hidden)
    middle = own["update_hidden_median"].values[:, -1]
    np.testing.assert_allclose(middle, np.nanmedian(taken, axis=1), rtol=1e-9)
    row, blocks = study.summarise(results)
    assert row.update_hidden_worst == pytest.approx(hidden.min())
    # updates that never change are worst
    assert row.hidden_among_worst < row.update_hidden_worst
    assert blocks.update_hidden_worst >= 2
    headings, _ = _report.table_of([row])
    assert "Update hidden" in headings
    assert results["update_hidden_worst"].attrs["units"] == "clients"


def _by_the_whole_model(
    rows: np.ndarray, rounds: np.ndarray, share: float
) -> np.ndarray:
    """Return 1/h of what is constant about each client: every unknown is a column."""
    clients = rows.shape[1]
    fresh = np.equal.outer(rounds, np.unique(rounds))
    apart = (fresh[:, :, None] * rows[:, None]).reshape(len(rows), -1)
    seen = np.hstack([np.sqrt(share) * rows, np.sqrt(1 - share) * apart])
    gains = np.linalg.pinv(seen @ seen.T) @ seen[:, :clients]
    return np.asarray(1 / np.einsum("ji,ji->i", seen[:, :clients], gains))


@pytest.mark.parametrize("share", [0.03, 0.5, 0.96])
def test_what_lasts_is_what_the_whole_model_says(share: float) -> None:
    """Also of several sums in a round, whose fresh parts are the same."""
    draw = np.random.default_rng(int(100 * share))
    rows = draw.random((8, 5)) < 0.6
    rows[:, 0] |= ~rows.any(axis=1)
    for rounds in (np.arange(8), np.array([0, 0, 1, 3, 3, 3, 4, 6])):
        found = _trial.hidden_lasting(rows, rounds, 8, share)
        for after in range(8):
            sums = rounds <= after
            if not sums.any():
                continue
            size = _by_the_whole_model(
                rows[sums][:, rows[sums].any(axis=0)].astype(float),
                rounds[sums],
                share,
            )
            expected = [size.min(), np.median(size)]
            np.testing.assert_allclose(found[after], expected, rtol=1e-6)


def test_a_simulation_says_what_lasts_beside_each_update() -> None:
    results = study.run(dataclasses.replace(SMALL, memory=0.9, share=0.8))
    for row in study.summarise(results):
        assert row.lasting_hidden_worst is not None
        assert row.update_hidden_worst is not None
        # never better than what cannot be told from one update that never changes
        assert row.hidden_among_worst is not None
        assert row.lasting_hidden_worst >= row.hidden_among_worst * (1 - 1e-9)
        # what is fresh averages out, so it hides better in a single update
        assert row.lasting_hidden_worst < row.update_hidden_worst
    headings, _ = _report.table_of(study.summarise(results))
    assert {"Update hidden", "What lasts hidden"} <= set(headings)
    worst = results["lasting_hidden_worst"]
    assert worst.dims == ("scheme", "trial", "round")
    assert "never changes" in worst.attrs["description"]
    for share in (0.0, 1.0):  # nothing lasts, or nothing is fresh
        whole = study.run(dataclasses.replace(SMALL, memory=0.9, share=share))
        assert "lasting_hidden_worst" not in whole


def test_share_is_an_axis_of_a_sweep(tmp_path: pathlib.Path) -> None:
    text = (
        'command = "simulate"\nrounds = 10\ntrials = 2\nschemes = ["uniform"]\n'
        "memory = 0.9\n"
        "population.num_clients = 8\npopulation.cohort_size = 4\n[grid]\nshare = "
        "[0.1, 0.5, 0.9, 1.0]\n"
    )
    (tmp_path / "study.toml").write_text(text)
    results = study.sweep(tmp_path / "study.toml", out=tmp_path / "out")
    worst = results["lasting_hidden_worst"].squeeze("scheme")
    values = worst.transpose("share", "trial").values
    assert (np.diff(values[:3], axis=0) < 0).all()  # the less is fresh, the worse
    assert np.isnan(values[3]).all()


@pytest.mark.long
def test_memory_is_an_axis_of_a_sweep(tmp_path: pathlib.Path) -> None:
    text = (
        'command = "simulate"\nrounds = 10\ntrials = 2\nschemes = ["uniform"]\nshare = '
        "0.8\n"
        "population.num_clients = 8\npopulation.cohort_size = 4\n[grid]\nmemory = "
        "[0.0, 0.5, 1.0]\n"
    )
    (tmp_path / "study.toml").write_text(text)
    results = study.sweep(tmp_path / "study.toml", out=tmp_path / "out")
    worst = results["update_hidden_worst"].squeeze("scheme")
    assert worst.dims == ("memory", "trial")
    values = worst.transpose("memory", "trial").values
    assert (np.diff(values, axis=0) < 0).all()  # the longer the memory, the worse
    table = results.mrsa.table().set_index("memory")
    assert table.loc[0.5, "update_hidden_worst"] == values[1].min()
    # all rounds have four clients
    assert table.loc[0.0, "update_hidden_worst"] == pytest.approx(4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.5}, "`share` must be used together with memory"),
        ({"memory": -0.1}, "`memory` must lie in"),
        ({"memory": 0.5, "share": 1.1}, "`share` must lie in"),
    ],
)
def test_a_drift_that_makes_no_sense(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        study.run(dataclasses.replace(SMALL, **settings))


@pytest.mark.long
def test_a_study_s_data_set_table_and_sentences() -> None:
    results = study.run(SMALL)
    for name in ("hidden_among_worst", "hidden_among_median"):
        assert results[name].dims == ("scheme", "trial", "round")
        assert results[name].attrs["units"] == "clients"
        assert "hide" in results[name].attrs["description"]
    online = mj.availability.independent(0.3)
    for label, selector in (
        ("Random", mj.selection.uniform(12, 4)),
        ("Multi-RoundSecAgg (T=2)", mj.selection.batch_partitioning(12, 4, 2)),
    ):
        own = results.sel(scheme=label)
        played = np.asarray(mj.selection.rollout_trials(0, selector, online, 14, 3))
        for b, rows in enumerate(played):
            worst, middle = (
                own[f"hidden_among_{n}"].values[b] for n in ("worst", "median")
            )
            check(worst, middle, rows)
    rows = study.summarise(results)
    table = results.mrsa.table().set_index("scheme")
    for row in rows:
        last = results.sel(scheme=row.scheme).isel(round=-1)
        assert row.hidden_among_worst == last["hidden_among_worst"].min()
        assert row.hidden_among_median == pytest.approx(
            float(last["hidden_among_median"].mean())
        )
        assert table.loc[row.scheme, "hidden_among_worst"] == row.hidden_among_worst
    assert rows[1].hidden_among_worst == pytest.approx(2)  # the cap of blocks of two
    assert "Hidden among (worst)" in results.mrsa.explore().html


def test_an_older_study_still_opens_and_says_nothing_of_it(results: xr.Dataset) -> None:
    """The data set of `conftest` has no such variables, as those of earlier versions."""
    rows = study.summarise(results)
    assert [(row.hidden_among, row.weak_privacy) for row in rows] == [(None, None)] * 2
    headings, _ = _report.table_of(rows)
    assert not {"Hidden among", "Weak T"} & set(headings)
    assert "hidden_among_worst" not in results.mrsa.table()


def test_the_table_shows_both_and_1_only_of_who_is_exposed(results: xr.Dataset) -> None:
    worst = np.array([[2, 1.5, 1], [2, 2, 2]], float)
    middle = np.array([[2, 2, 1.0004], [2, 2, 12]], float)
    dims = ("scheme", "round")
    own = results.assign(
        hidden_among_worst=(dims, worst),
        hidden_among_median=(dims, middle),
        weak_lower=(dims, worst // 1),
        weak_upper=(dims, np.array([[2, 2, 1], [2, 2, 3]])),
    )
    headings, lines = _report.table_of(study.summarise(own))
    assert [line[headings.index("Hidden among")] for line in lines] == [
        "1 / 1.0004",
        "2.00 / 12.00",
    ]
    assert [line[headings.index("Weak T")] for line in lines] == ["1", "2-3"]
    page = _report.study_page(
        {"command": "demo", "seed": 0}, own, {"weak_and_hidden": b""}
    )
    assert page.index("How well clients are hidden") < page.index(">Findings</h2>")


@pytest.mark.long
def test_an_older_sweep_opens_without_it(tmp_path: pathlib.Path) -> None:
    text = 'command = "simulate"\nrounds = 6\ntrials = 2\ntrajectories = true\nschemes = ["uniform"]\n'
    text += "population.num_clients = 6\npopulation.cohort_size = 3\n[grid]\nseed = [0, 1]\n"
    path, out = tmp_path / "study.toml", tmp_path / "out"
    path.write_text(text)
    study.sweep(path, out=out)
    found = study.open_study(out)
    own = found["hidden_among_worst_by_round"]
    assert own.attrs["units"] == "clients"
    np.testing.assert_array_equal(own.isel(round=-1), found["hidden_among_worst"])
    table = found.mrsa.table()
    np.testing.assert_allclose(
        table["hidden_among_worst"],
        found["hidden_among_worst"].min("trial").values.ravel(),
    )
    told = json.loads((out / "study.json").read_text())
    kept = [own for own in told["view"]["variables"] if "hidden_among" not in own[0]]
    told["view"]["variables"] = kept
    (out / "study.json").write_text(json.dumps(told))
    assert "hidden_among_worst" not in study.open_study(out).mrsa.table()
