"""`results.mrsa` on a study and on a sweep, both made by hand."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.publishing._accessor import register

register()  # as every study does


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close every figure behind a test."""
    yield
    plt.close("all")


def test_what_is_no_study_says_so() -> None:
    other = xr.Dataset({"a": ("x", [1.0])})
    for ask in (
        "table",
        "sentences",
        "explore",
        "cite",
        "plot_privacy",
        "plot_tradeoff",
    ):
        with pytest.raises(
            ConfigurationError, match="`results` must be those of a study"
        ):
            getattr(other.mrsa, ask)()


def test_misspelt_quantities_and_axes_are_named(swept: xr.Dataset) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'accuracy'"):
        swept.mrsa.plot("acuracy")
    with pytest.raises(
        ConfigurationError, match=r"`x` must be a column: .*; got 'clients'"
    ):
        swept.mrsa.plot("accuracy", x="clients")
    with pytest.raises(ConfigurationError, match="`hue` must be a column"):
        swept.mrsa.plot("accuracy", hue="colour")
    with pytest.raises(ConfigurationError, match="`variable` must have values"):
        swept.assign(empty=swept["accuracy"] * np.nan).mrsa.plot("empty")


def test_a_study_without_training_has_no_accuracy(results: xr.Dataset) -> None:
    with pytest.raises(ConfigurationError, match="must be of a study that trains"):
        results.drop_vars("accuracy").mrsa.plot_accuracy()
    with pytest.raises(
        ConfigurationError,
        match="`axes` must not be set unless these are results of sweeps",
    ):
        results.mrsa.plot_privacy(x="round")


def test_a_sweep_is_a_row_for_each_point_that_is_done(swept: xr.Dataset) -> None:
    table = swept.mrsa.table()
    assert list(table["scheme"]) == ["Random", "Random", "Multi-RoundSecAgg (T=2)"]
    assert list(table["num_clients"]) == [8, 16, 8]
    assert list(table["cohort_size"]) == [4, 6, 4]  # zipped with it
    # the worst trial, nan is no value
    assert list(table["strong_privacy"]) == [1.0, 1.0, 2.0]
    assert list(table["exposed_clients"]) == [2.0, 3.0, 0.0]  # means
    assert list(table["first_exposed_round"][:2]) == [3.0, 7.0]  # the earliest
    assert math.isnan(table["first_exposed_round"][2])
    assert list(table["aggregation_cardinality"]) == [4.0, 2.0, 3.5]
    assert not {"done", "rank_by_round", "loss_of"} & set(table)


def test_the_order_of_a_variable_s_axes_does_not_matter(swept: xr.Dataset) -> None:
    turned = swept.transpose("trial", "num_clients", "scheme", ...)
    assert turned.mrsa.table().equals(swept.mrsa.table())


def test_axes_follow_from_done_where_nothing_names_them(swept: xr.Dataset) -> None:
    bare = swept.assign_attrs(axes=[])
    assert list(bare.mrsa.table())[:2] == ["scheme", "num_clients"]
    assert bare.mrsa.table().equals(swept.mrsa.table())


def test_a_study_is_a_row_for_each_scheme(results: xr.Dataset) -> None:
    table = results.mrsa.table()
    assert list(table["scheme"]) == ["Random", "User partition"]
    assert list(table["exposed_clients"]) == [2.0, 0.0]
    assert list(table["accuracy"]) == [0.9, 0.8]
    assert "privacy_level" not in table  # there are no segments


def test_sentences_say_how_far_a_sweep_is_and_what_is_best(swept: xr.Dataset) -> None:
    assert swept.mrsa.sentences() == (
        "3 of 4 points are done.",
        "In 1 of them the server can solve for no client's own update.",
        "At num_clients 8, no T that lasts keeps 90 % of K; the most is kept by scheme "
        "Multi-RoundSecAgg (T=2), cohort_size 4 (strong T = 2, C = 3.5 of K = 4, 75.0 "
        "% test "
        "accuracy).",
        "At num_clients 16, no setting both sums updates and makes weak T last.",
    )
    nothing = swept.assign(done=xr.zeros_like(swept["done"]))
    assert nothing.mrsa.sentences() == ("0 of 4 points are done.",)
    assert len(nothing.mrsa.table()) == 0
    assert "<table" in nothing.mrsa.explore().html


def test_studies_speak_as_before(results: xr.Dataset) -> None:
    assert results.mrsa.sentences() == study.sentences(results)


def test_curves_run_along_the_numbers_and_schemes_tell_them_apart(
    swept: xr.Dataset,
) -> None:
    ax = swept.mrsa.plot_privacy()
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert set(lines) == {"Random", "Multi-RoundSecAgg (T=2)"}
    assert lines["Random"].get_xydata().tolist() == [[8.0, 1.0], [16.0, 1.0]]
    assert ax.get_xlabel() == "num clients"
    percent = swept.mrsa.plot_accuracy().get_lines()[0].get_ydata()
    assert list(percent) == [50.0, 25.0]


def test_points_that_share_a_place_are_averaged_within_a_band(
    swept: xr.Dataset,
) -> None:
    ax = swept.mrsa.plot("aggregation_cardinality", x="cohort_size", hue="num_clients")
    first = ax.get_lines()[0]
    assert first.get_xydata().tolist() == [[4.0, 3.75]]  # the mean of 4 and 3.5
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (3.5, 4.0)


def test_an_axis_of_words_stands_side_by_side(swept: xr.Dataset) -> None:
    ax = swept.mrsa.plot("exposed_clients", x="scheme", hue="num_clients")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Random", "MRSA T=2"]
    assert ax.get_lines()[0].get_xydata().tolist() == [[0.0, 2.0], [1.0, 0.0]]


def test_the_trade_off_holds_every_point(
    results: xr.Dataset, swept: xr.Dataset
) -> None:
    ax = results.mrsa.plot_tradeoff()
    for marks in (
        np.concatenate([one.get_xydata() for one in ax.get_lines()]),
        np.concatenate([one.get_offsets() for one in ax.collections]),
    ):
        assert marks.tolist() == [[1.0, 5 / 3], [2.0, 4 / 3]]
    shades = np.concatenate([one.get_array() for one in ax.collections])
    np.testing.assert_allclose(shades, [90, 80])
    assert [one.get_text() for one in ax.get_legend().get_texts()] == [
        "Random",
        "User partition",
    ]
    assert len(ax.figure.axes) == 2  # the accuracy's scale
    plain = swept.drop_vars("accuracy").mrsa.plot_tradeoff()
    assert len(np.concatenate([one.get_xydata() for one in plain.get_lines()])) == 3
    assert len(plain.collections) == 0


def test_an_explorer_is_one_piece_that_fetches_nothing(
    swept: xr.Dataset, tmp_path: pathlib.Path
) -> None:
    shown = swept.mrsa.explore()
    page = shown._repr_html_()
    assert page == shown.html
    # T, C, accuracy in pairs; and the one trajectory, of who is picked
    assert page.count('class="plot"') == 3 + 1
    assert len(re.findall(r"<circle [^>]*data-i=", page)) == 3 * 3
    assert page.count("<tr data-i=") == 3
    for fetched in ("src=", "href=", "@import", "url(", "http"):
        assert fetched not in page
    own = re.findall(r'<div id="(mrsa-[0-9a-f]{8})">', page)
    assert len(own) == 1
    assert "ID" not in re.sub(r"Multi-\w+", "", page.split("<svg")[0])
    path = shown.save(tmp_path / "look.html")
    assert page in path.read_text(encoding="utf-8")


@pytest.mark.long
def test_an_explorer_escapes_and_stays_bounded() -> None:
    evil = '"><script>alert(1)</script>'
    points = xr.Dataset(
        {"cost": ("size", np.full(3000, 1.5)), "done": ("size", np.ones(3000, bool))},
        coords={"size": np.arange(3000), "name": ("size", [evil] * 3000)},
    )
    page = points.mrsa.explore().html
    assert "<script>alert" not in page
    assert page.count("<tr data-i=") == 2000
    assert "1000 more rows" in page
    assert "Cost against size" in page


def test_values_to_sort_by_are_numbers_and_what_is_missing_has_none(
    swept: xr.Dataset,
) -> None:
    page = swept.mrsa.explore().html
    assert '<td data-v="75">75</td>' in page  # accuracy in percent
    assert "<td>-</td>" in page  # nobody is ever exposed
    assert 'data-v="Random"' in page


@pytest.mark.parametrize(
    ("values", "from_zero", "ticks"),
    [
        ([1, 12], True, [0, 2.5, 5, 7.5, 10, 12.5]),
        ([0.5, 0.5], False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([82.5, 97], False, [80, 85, 90, 95, 100]),
        ([0, 0], True, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([-2, -2], True, [-2, -1.5, -1, -0.5, 0]),
        ([-1e-3, 1e-3], False, [-1e-3, -5e-4, 0, 5e-4, 1e-3]),
    ],
)
def test_pictures_have_round_ticks_around_all_values(
    values: list[float], from_zero: bool, ticks: list[float]
) -> None:
    """Accuracies, shown in percent, need not begin at zero; everything else does."""
    name = "aggregation_cardinality" if from_zero else "accuracy"
    heights = np.asarray(values) / (1 if from_zero else 100)
    number = np.arange(1.0, len(values) + 1)
    points = xr.Dataset(
        {
            "strong_privacy": ("n", number),
            name: ("n", heights),
            "done": ("n", number > 0),
        },
        coords={"n": np.arange(len(values))},
    )
    page = points.mrsa.explore().html
    found = re.findall(r'<text class="up"[^>]*>([^<]+)<', page)
    np.testing.assert_allclose([float(text) for text in found], ticks, atol=1e-12)
    lines = [float(y) for y in re.findall(r'<line x2="100%" y1="([^"]+)%"', page)]
    places = re.findall(r'<circle [^>]*cx="[^"]+" cy="([^"]+)%"', page)
    assert len(places) == len(values)
    # the lines stand in the order of the ticks, from the bottom up, and marks at their
    # values
    found_places = np.interp(100 * heights if not from_zero else heights, ticks, lines)
    np.testing.assert_allclose([float(one) for one in places], found_places, atol=0.01)


@pytest.mark.long
def test_results_of_a_run_know_what_they_are_of(tmp_path: pathlib.Path) -> None:
    config = study.SimulateConfig(
        rounds=8,
        trials=2,
        schemes=("partition", "uniform"),
        population=study.PopulationConfig(12, 4),
    )
    results = study.run(config)
    assert results.attrs["command"] == "simulate"
    assert results.attrs["config"] == study.to_dict(config)
    assert results.attrs["config_hash"] == study.config_hash(config)
    assert results.mrsa.cite() == study.cite(config)
    assert "explore" in repr(results.mrsa)
    page = results.mrsa.report(tmp_path)
    assert page == tmp_path / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    # over the rounds, and what privacy costs
    assert text.count('class="plot"') == 5 + 2
    assert "12 clients, 8 rounds, 2 trials, seed 0" in text
    with pytest.raises(
        ConfigurationError, match="`out` must be a file that can be written"
    ):
        results.mrsa.report(tmp_path / "none" / "page.html")


def test_a_sweep_reports_without_a_folder(
    swept: xr.Dataset, tmp_path: pathlib.Path
) -> None:
    text = swept.mrsa.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "3 of 4 points are done." in text
    assert text.count("<tr data-i=") == 3
    assert "<img" not in text
    # T, C, accuracy in pairs; four quantities
    assert text.count('class="plot"') == 3 + 4


@pytest.mark.smoke
def test_what_a_point_attacks_are_rows_of_their_own() -> None:
    """Two points of an attack; the second has attacked one thing only."""
    dims = ("rounds", "row")
    attacked = xr.Dataset(
        {
            "label": (dims, np.array([["Random", "Blocks"], ["Random", ""]])),
            "mean_error": (dims, np.array([[0.1, 0.9], [0.2, np.nan]])),
            "seconds": (dims[:1], np.array([1.0, 2.0])),
            "done": (dims[:1], np.array([True, True])),
        },
        coords={"rounds": [10, 20], "row": [0, 1]},
        attrs={"axes": [{"name": "rounds", "fields": ["rounds"]}]},
    )
    table = attacked.mrsa.table()
    assert list(table["rounds"]) == [10, 10, 20]
    assert list(table["label"]) == ["Random", "Blocks", "Random"]
    assert list(table["mean_error"]) == [0.1, 0.9, 0.2]
    assert list(table["seconds"]) == [1.0, 1.0, 2.0]
    assert attacked.mrsa.sentences() == ("All 2 points are done.",)
    lines = {
        line.get_label(): line for line in attacked.mrsa.plot("mean_error").get_lines()
    }
    assert lines["Random"].get_xydata().tolist() == [[10.0, 0.1], [20.0, 0.2]]
    single = attacked.isel(row=[0])
    assert list(single.mrsa.table()["label"]) == ["Random", "Random"]
    assert list(single.mrsa.table()["mean_error"]) == [0.1, 0.2]


def test_what_tells_most_comes_first() -> None:
    names = [
        "b_count",
        "a_upper",
        "zeta",
        "unreliable_rate",
        "mean_error",
        "no_sum_rate",
    ]
    values = {name: ("n", [1.0]) for name in names} | {"done": ("n", [True])}
    assert list(xr.Dataset(values, coords={"n": [3]}).mrsa.table()) == [
        "n",
        "no_sum_rate",
        "mean_error",
        "unreliable_rate",
        "zeta",
        "a_upper",
        "b_count",
    ]


def _seeds() -> xr.Dataset:
    """A sweep over three seeds, two dropout rates and three schemes under another axis name.

    Random exposes everybody at one rate; the first seed of blocks sums nothing at the
    other.
    """
    dims = ("seed", "rate", "kind")
    cardinality = np.array(
        [
            [[12.0, 1.0, 6.0], [12.0, 2.0, 0.0]],
            [[12.0, 3.0, 8.0], [12.0, 4.0, 3.0]],
            [[12.0, 5.0, 7.0], [12.0, 6.0, 6.0]],
        ]
    )
    strong = np.tile([1.0, 12.0, 3.0], (3, 2, 1))
    strong[0, 1, 2] = np.nan
    exposed = np.zeros((3, 2, 3))
    exposed[:, 1, 0] = 24
    rank = np.tile([20.0, 2.0, 8.0], (3, 2, 1))
    rank[1, 0, 0] = 18
    labels = ["Random", "User partition", "Multi-RoundSecAgg (T=3)"]
    return xr.Dataset(
        {
            "strong_privacy": (dims, strong),
            "aggregation_cardinality": (dims, cardinality),
            "exposed_clients": (dims, exposed),
            "rank": (dims, rank),
            "guaranteed_privacy": (dims, np.tile([1, 12, 3], (3, 2, 1))),
            "largest_rank": (dims, np.full((3, 2, 3), 24)),
            "done": (dims, np.ones((3, 2, 3), bool)),
        },
        coords={
            "seed": ("seed", [0, 1, 2], {"field": "seed"}),
            "rate": ("rate", [0.1, 0.3], {"field": "population.dropout_rates"}),
            "kind": ("kind", labels, {"field": "scheme"}),
        },
        attrs={
            "command": "sweep",
            "config": {"base": {"population": {"cohort_size": 7}}},
            "axes": [{"name": name, "fields": [name]} for name in dims],
        },
    )


def test_seeds_are_pooled_and_no_setting_that_only_starts_is_advised() -> None:
    assert _seeds().mrsa.sentences() == (
        "All 18 points are done.",
        "In 15 of them the server can solve for no client's own update.",
        "In 3 of these no client is exposed yet, but nothing makes weak T last: rounds "
        "left, "
        "N - rank: 4 to 6.",
        "At rate 0.1, the largest T that keeps 90 % of K is 3: kind Multi-RoundSecAgg "
        "(T=3) "
        "(strong T = 3, C = 7 of K = 7, over 3 seeds).",
        "At rate 0.3, no T that lasts keeps 90 % of K; the most is kept by kind User "
        "partition "
        "(strong T = 12, C = 4 of K = 7, over 3 seeds).",
    )


def test_no_setting_that_nobody_chooses_is_advised() -> None:
    """Whatever T is worth at the easiest dropout rate says nothing of the others."""
    for field in ("population.dropout_rates", "population.num_clients", "rounds"):
        given = _seeds()
        given["rate"].attrs["field"] = field
        said = given.mrsa.sentences()[3:]
        assert [text.split(",")[0] for text in said] == ["At rate 0.1", "At rate 0.3"]
    chosen = _seeds()
    chosen["rate"].attrs["field"] = "population.cohort_size"
    chosen["rate"] = chosen["rate"].copy(data=[7.0, 6.5])
    (text,) = chosen.mrsa.sentences()[3:]
    assert text.startswith(
        "The largest T that keeps 90 % of K is 3: rate 7, kind Multi-Round"
    )


def test_a_share_of_just_ninety_percent_is_kept_and_the_largest_t_comes_before_accuracy() -> (
    None
):
    just = _seeds()
    cardinality = just["aggregation_cardinality"] * 0 + np.float32(0.9) * np.float32(
        7.0
    )
    just = just.assign(aggregation_cardinality=cardinality)
    just = just.assign(accuracy=just["rank"] * 0 + [[[0.99, 0.5, 0.9]]])
    assert just.mrsa.sentences()[3].startswith(
        "At rate 0.1, the largest T that keeps 90 % of K is 12: kind User partition "
        "(strong T"
    )


def test_many_given_values_are_cut_short() -> None:
    many = xr.concat(
        [_seeds().isel(rate=[0]).assign_coords(rate=[r / 100]) for r in range(15)],
        "rate",
        data_vars="minimal",
    )
    many["rate"].attrs["field"] = "population.dropout_rates"
    said = many.mrsa.sentences()
    assert len([text for text in said if text.startswith("At rate")]) == 12
    assert said[-1] == "The table has 3 more such values."


@pytest.mark.parametrize("ways", [{}, {"x": "kind"}, {"x": "rate"}, {"hue": "kind"}])
def test_no_curve_is_of_several_schemes_and_what_is_pooled_is_named(
    ways: dict[str, str],
) -> None:
    results = _seeds()
    ax = results.mrsa.plot("aggregation_cardinality", **ways)
    curves = {
        str(line.get_label()): line.get_xydata()[:, 1].tolist()
        for line in ax.get_lines()
    }
    if ways.get("x") == "kind":
        assert curves == {"rate 0.1": [12.0, 3.0, 7.0], "rate 0.3": [12.0, 4.0, 3.0]}
        assert {line.get_linestyle() for line in ax.get_lines()} == {"None"}
    else:
        wanted = {
            "Random": [12.0, 12.0],
            "User partition": [3.0, 4.0],
            "Multi-RoundSecAgg (T=3)": [7.0, 3.0],
        }
        assert curves == wanted
        assert ax.get_xlabel() == "rate"
        assert ax.get_lines()[0].get_color() == "#000000"  # Random's, everywhere
    assert str(ax.get_label()).endswith("sum. Mean and range over seed (3).")
    single = results.isel(seed=[0]).mrsa.plot("aggregation_cardinality", **ways)
    assert str(single.get_label()).endswith("number of clients in a sum.")


def test_what_is_pooled_beside_seeds_is_named_and_seeds_stand_side_by_side() -> None:
    results = _seeds()
    by_seed = results.mrsa.plot("exposed_clients", x="seed", hue="rate")
    assert str(by_seed.get_label()).endswith(". Mean and range over kind (3).")
    assert {line.get_linestyle() for line in by_seed.get_lines()} == {"None"}
    alone = results.isel(rate=[0], kind=[1]).mrsa.plot("exposed_clients")
    assert alone.get_lines()[0].get_linestyle() == "None"
    assert -0.1 < alone.get_ylim()[0] < 0 < 1 < alone.get_ylim()[1] < 1.1
    trials = results.expand_dims(trial=4).assign(done=results["done"])
    words = trials.mrsa.plot_privacy()
    text = words.get_label()
    assert str(text).endswith(
        " Points: least of 4 trials; mean and range over seed (3)."
    )


def test_one_wanted_picture_has_a_hue_whatever_else_differs() -> None:
    """An attack's rows (Random, partition, blocks) and two axes.

    Rows are never averaged.
    """
    dims = ("rounds", "noise", "row")
    labels = np.broadcast_to(np.array(["Random", "User partition"]), (2, 2, 2))
    attacked = xr.Dataset(
        {
            "label": (dims, labels.copy()),
            "mean_error": (dims, np.arange(8.0).reshape(2, 2, 2)),
            "done": (dims[:2], np.ones((2, 2), bool)),
        },
        coords={"rounds": [10, 20], "noise": [0.0, 0.1]},
        attrs={"axes": [{"name": n, "fields": [n]} for n in dims[:2]]},
    )
    ax = attacked.mrsa.plot("mean_error")
    assert [str(line.get_label()) for line in ax.get_lines()] == [
        "Random",
        "User partition",
    ]
    assert ax.get_lines()[0].get_xydata().tolist() == [[10.0, 1.0], [20.0, 5.0]]
    assert ax.get_label() == "Mean and range over noise (2)."
