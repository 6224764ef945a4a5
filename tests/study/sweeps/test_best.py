"""The best value along an axis, and how surely it is: against all draws one by one."""

import itertools
import json
import math
import pathlib
import typing

import numpy as np
import pytest
import xarray as xr

from mrsa_jax import ConfigurationError, study
from mrsa_jax._core.statistics import best_of, half_interval_of_two
from mrsa_jax.cli import main
from mrsa_jax.study import sweeps
from mrsa_jax.study.publishing._accessor import register


def by_all_draws(scores: list[list[int]]) -> tuple[int, float, float]:
    """Return what `best_of` does, from all ordered draws; whole numbers have no rounding."""
    count = len(scores[0])
    totals = [sum(row) for row in scores]
    place = totals.index(max(totals))
    alone = 0
    for column in zip(*scores, strict=True):
        alone += column.index(max(column)) == place
    wins = 0
    for drawn in itertools.product(range(count), repeat=count):
        sums = [sum(row[k] for k in drawn) for row in scores]
        wins += sums.index(max(sums)) == place
    return place, alone / count, wins / count**count


def test_the_best_value_and_its_certainty_are_those_of_all_draws() -> None:
    generator = np.random.default_rng(3)
    for count in (2, 3, 4, 5):
        for _ in range(6):
            # few different numbers, so that equals occur
            scores = generator.integers(0, 4, (3, count)).tolist()
            place, alone, certainty = by_all_draws(scores)
            found = best_of(scores)
            assert found.place == place
            assert found.share == pytest.approx(alone)
            assert found.certainty == pytest.approx(certainty)


def test_many_repetitions_are_drawn() -> None:
    """Two values, the second better by 1 in 14 of 24 and worse by 1 in 10: binomial."""
    scores = np.zeros((2, 24))
    scores[1] = [1] * 14 + [-1] * 10
    exact = sum(
        math.comb(24, k) * (14 / 24) ** k * (10 / 24) ** (24 - k)
        for k in range(13, 25)  # 12 of 24 is a tie, which the first wins
    )
    found = best_of(scores)
    assert (found.place, found.share) == (1, 14 / 24)
    assert abs(found.certainty - exact) < 5 * math.sqrt(exact * (1 - exact) / 4000)
    assert best_of(scores) == found


def test_a_failed_repetition_is_worse_than_any_number() -> None:
    fails = [math.nan, 9.0]
    assert best_of([fails, [-5.0, -5.0]]).place == 1
    assert best_of([[1.0], [2.0]])[:2] == (1, 1.0)
    assert math.isnan(best_of([[1.0], [2.0]]).certainty)


def test_an_interval_over_seeds_and_samples_holds_what_it_should() -> None:
    """2,000 tables of seeds times parts with known variances: at least 94 % of them."""
    generator = np.random.default_rng(5)
    for seeds, of_seeds, of_parts in ((3, 1.0, 0.5), (5, 0.2, 4.0), (5, 0.0, 0.0)):
        held, narrow = 0, 0
        for _ in range(700):
            table = (
                of_seeds * generator.standard_normal((seeds, 1))
                + of_parts * generator.standard_normal((1, 40))
                + generator.standard_normal((seeds, 40))
            )
            rows = table.mean(axis=1)
            half = half_interval_of_two(rows, table.mean(axis=0))
            held += abs(table.mean()) <= half
            narrow += half < 50
        assert held / 700 >= 0.94
        assert narrow == 700


def test_without_spread_over_samples_it_is_the_interval_of_seeds() -> None:
    # by hand: s = 1, n = 3, t = 4.302652730
    found = half_interval_of_two([1.0, 2.0, 3.0], [2.0, 2.0])
    assert found == pytest.approx(4.302652730 / math.sqrt(3))
    assert half_interval_of_two([2.0, 2.0], [2.0, 2.0]) == 0.0


def made_up(**more: typing.Any) -> xr.Dataset:
    """Return a sweep of two schemes, three rates and five seeds that nobody ran."""
    register()
    scores = np.asarray(
        [
            [[5, 1, 4, 4, 4], [3, 3, 3, 3, 3], [0, 9, 0, 0, 0]],
            [[1, 1, 1, 1, 1], [2, 2, 2, 2, 2], [3, 3, 3, 3, 3]],
        ],
        float,
    )
    done = np.ones((2, 3, 5), bool)
    coords: dict[str, typing.Any] = {
        "scheme": ("scheme", ["Random", "User partition"], {"field": "scheme"}),
        "learning_rate": (
            "learning_rate",
            [0.1, 0.03, 0.01],
            {"field": "training.learning_rate"},
        ),
        "seed": ("seed", range(5), {"field": "seed"}),
    }
    dims = ("scheme", "learning_rate", "seed")
    return xr.Dataset(
        {"accuracy": (dims, scores), "done": (dims, done)},
        coords,
        {"axes": json.dumps([{"name": name} for name in dims]), **more},
    )


def test_the_best_rate_of_each_scheme() -> None:
    results = made_up()
    found = results.mrsa.best_over("training.learning_rate")
    assert found["best"].to_series().to_dict() == {
        "Random": 0.1,
        "User partition": 0.01,
    }
    rows = results["accuracy"].to_numpy().astype(int).tolist()
    for row, name in zip(rows, found["scheme"].values, strict=True):
        _, alone, certainty = by_all_draws(row)
        assert float(found["share"].sel(scheme=name)) == pytest.approx(alone)
        assert float(found["certainty"].sel(scheme=name)) == pytest.approx(certainty)
    assert found["mean"].values.tolist() == [3.6, 3.0]
    assert found["compared"].values.tolist() == [3, 3]
    least = results.mrsa.best_over("learning_rate", least=True)
    assert least["best"].values.tolist() == [0.01, 0.1]
    assert least["mean"].values.tolist() == [1.8, 1.0]
    # one value has lost a seed, and is compared no more; a diverged one is the worst
    results["done"][0, 0, 2] = False
    results["accuracy"][1, 2, 1] = np.nan
    found = results.mrsa.best_over("learning_rate")
    assert found["best"].values.tolist() == [0.03, 0.03]
    assert found["compared"].values.tolist() == [2, 3]


def test_what_the_study_asks_for_is_stated() -> None:
    asked = {"axis": "learning_rate", "by": "accuracy"}
    results = made_up(config=json.dumps({"best_over": asked}))
    first, second = sweeps.best_sentences(results)
    assert first.startswith(
        "Random: learning rate 0.1 is the best of 3 by mean accuracy, 3.6; the best in 80 %"
        " of 5 repetitions and in "
    )
    assert "User partition: learning rate 0.01" in second
    assert "100 % of 5 repetitions and in 100 % of their bootstrap draws" in second
    assert results.mrsa.sentences()[-2:] == (first, second)
    assert sweeps.best_sentences(made_up()) == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"axis": "learning_rat"}, "did you mean 'learning_rate'"),
        ({"axis": "learning_rate", "by": "acuracy"}, "did you mean 'accuracy'"),
        ({"axis": "seed"}, "`axis` must not be an axis of seeds"),
        ({}, "`axis` must name the axis, as the study has no `best_over`"),
    ],
)
def test_misuse_is_named(words: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        made_up().mrsa.best_over(**words)


SMALL: dict[str, typing.Any] = {
    "rounds": 12,
    "trials": 4,
    "population": {"num_clients": 12, "cohort_size": 4, "dropout_rates": [0.3]},
    "grid": {"scheme": ["batch_partitioning"], "privacy_target": [2, 4]},
}


@pytest.mark.parametrize(
    ("best_over", "message"),
    [
        ("privacy_target", "`best_over` must be a table"),
        ({"axis": "cohort_size"}, "`best_over.axis` must be an axis of the sweep"),
        (
            {"axis": "privacy_target", "by": "cardinality"},
            "`best_over.by` must be a number of each point or trial",
        ),
        ({"axis": "privacy_target", "most": True}, "`best_over` must be a field of"),
        (
            {"axis": "privacy_target", "least": 1},
            "`best_over.least` must be true or false",
        ),
    ],
)
def test_a_study_that_asks_for_something_else_is_refused(
    best_over: object, message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        study.sweep({**SMALL, "best_over": best_over}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_sweep_prints_the_best_value_and_computes_no_point_again(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of two are whole more often than blocks of four, so C is larger."""
    out = tmp_path / "out"
    before = study.sweep(SMALL, out=out).load()
    file = tmp_path / "study.toml"
    file.write_text(
        "rounds = 12\ntrials = 4\n"
        'best_over = { axis = "privacy_target", by = "aggregation_cardinality" }\n'
        "[population]\nnum_clients = 12\ncohort_size = 4\ndropout_rates = [0.3]\n"
        '[grid]\nscheme = ["batch_partitioning"]\nprivacy_target = [2, 4]\n'
    )
    assert main(["sweep", str(file), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (row,) = printed["best_over"]
    assert (row["best"], row["compared"]) == (2, 2)
    results = study.open_study(out).load()
    xr.testing.assert_equal(results["seconds"], before["seconds"])  # nothing computed
    sizes = results["aggregation_cardinality"].sel(privacy_target=2).squeeze()
    assert row["mean"] == pytest.approx(float(sizes.mean()))
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert "privacy target 2 is the best of 2 by mean" in " ".join(
        capsys.readouterr().out.split()
    )
    study.report(out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "privacy target 2 is the best of 2" in page
