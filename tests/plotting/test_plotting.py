"""Figures show the numbers they are given; what they show is written beside them."""

from __future__ import annotations

import pathlib
from inspect import unwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.figure import Figure

from mrsa_jax import ConfigurationError, plotting
from mrsa_jax.plotting.chart import interleave
from mrsa_jax.plotting.saved import Ahead
from mrsa_jax.plotting.study_charts import study_charts

SCHEMES = ["Random", "Multi-RoundSecAgg (T=3)"]


def _results(trials: int | None) -> xr.Dataset:
    rng = np.random.default_rng(0)
    axes = ("scheme",) if trials is None else ("scheme", "trial")
    shape = (2,) if trials is None else (2, trials)

    def draw(*names: str, n: int) -> tuple[tuple[str, ...], np.ndarray]:
        return ((*axes, *names), rng.uniform(0.1, 0.9, (*shape, n)))

    variables = {
        "strong_privacy": (
            (*axes, "round"),
            rng.choice([np.nan, 1, 2, 3, 4], (*shape, 6)),
        ),
        "exposed_clients": ((*axes, "round"), rng.integers(0, 5, (*shape, 6))),
        "hidden_among_worst": draw("round", n=6),
        "hidden_among_median": draw("round", n=6),
        "fairness_gap": draw("round", n=6),
        "aggregation_cardinality": draw("round", n=6),
        "expected_cardinality": ("scheme", np.array([0.5, 0.6])),
    }
    if trials is None:
        variables["accuracy"] = draw("evaluation", n=3)
        variables["loss"] = draw("evaluation", n=3)
        variables["reconstruction_error"] = draw("client", n=8)
    coordinates = {"scheme": SCHEMES, "round": np.arange(6), "client": np.arange(8)}
    return xr.Dataset(variables, coords=coordinates | {"evaluation": [2, 4, 6]})


@pytest.mark.parametrize(
    "variable",
    [
        "strong_privacy",
        "hidden_among_worst",
        "exposed_clients",
        "fairness_gap",
        "aggregation_cardinality",
        "accuracy",
    ],
)
def test_curves_are_the_data(variable: str) -> None:
    results = _results(None)
    ax = plotting.plot_study(results, variable)
    lines = {line.get_label(): line for line in ax.get_lines()}
    for label in SCHEMES:
        shown = np.asarray(lines[label].get_ydata(), float)
        wanted = results[variable].sel(scheme=label).values.astype(float)
        if variable == "accuracy":
            wanted = 100 * wanted
        np.testing.assert_allclose(shown, wanted)
        assert lines[label].get_color() == plotting.scheme_colour(label)
    first = 2 if variable == "accuracy" else 1
    assert np.asarray(lines["Random"].get_xdata())[0] == first
    assert ax.get_xlabel() == "rounds"
    assert ax.get_ylabel()
    plt.close("all")


def test_trials_become_a_mean_and_a_band() -> None:
    results = _results(5)
    ax = plotting.plot_study(results, "fairness_gap")
    line = next(line for line in ax.get_lines() if line.get_label() == "Random")
    wanted = results["fairness_gap"].sel(scheme="Random").values.mean(0)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), wanted)
    assert len(ax.collections) == len(SCHEMES)
    edges = np.quantile(
        results["fairness_gap"].sel(scheme="Random"), [0.05, 0.95], axis=0
    )
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [edges.min(), edges.max()])
    plt.close("all")


def test_curves_on_one_another_are_dashed_in_turn() -> None:
    """At each place of a period, in widths of a line, one of three curves is drawn."""
    ax = Figure().subplots()
    lines = [ax.plot([1, 2], [3, 3])[0] for _ in range(3)]
    drawn: list[tuple[float, tuple[float, float]]] = []

    def plot(*_: object, ls: tuple[float, tuple[float, float]], **__: object) -> None:
        drawn.append(ls)

    ax.plot = plot  # type: ignore[method-assign,assignment]
    interleave(ax, lines)
    assert len(drawn) == 3
    for place in np.arange(0.5, 24):
        seen = [(place + start) % (on + off) < on for start, (on, off) in drawn]
        assert sum(seen) == 1


@pytest.mark.smoke
def test_the_reconstruction_figure_has_every_client_in_the_order_of_the_errors() -> (
    None
):
    results = _results(None)
    ax = plotting.plot_study(results, "reconstruction_error")
    for label, line in zip(SCHEMES, ax.get_lines(), strict=False):
        errors = results["reconstruction_error"].sel(scheme=label).values
        np.testing.assert_array_equal(line.get_ydata(), np.sort(errors))
        np.testing.assert_allclose(line.get_xdata(), 100 * np.arange(1, 9) / 8)
    assert ax.get_yscale() == "log"
    plt.close("all")


@pytest.mark.long
@pytest.mark.parametrize("trials", [None, 4])
def test_saved_figures_have_their_data_beside_them(
    tmp_path: pathlib.Path, trials: int | None
) -> None:
    results = _results(trials)
    written = plotting.save_study_figures(results, tmp_path)
    assert {"accuracy", "loss"} & set(written) == (
        {"accuracy", "loss"} if trials is None else set()
    )
    for name, path in written.items():
        assert path.read_bytes().startswith(b"\x89PNG")
        data = pd.read_csv(tmp_path / f"{name}.csv", index_col=0)
        if data.index.name == "round":
            assert data.index.tolist() == list(range(1, len(data) + 1)), (
                "as in the figure"
            )
        column = "Random" if trials is None else "Random mean"
        wanted = results[name].sel(scheme="Random")
        wanted = wanted if trials is None else wanted.mean("trial")
        np.testing.assert_allclose(data[column].to_numpy(float), wanted.values)


def test_figures_drawn_ahead_are_those_of_the_same_charts_alone(
    tmp_path: pathlib.Path,
) -> None:
    """Of results that are not whole yet.

    What they show already, and what changes later.
    """
    results = _results(None)
    later = results.assign(fairness_gap=results["fairness_gap"] / 2)
    (tmp_path / "alone").mkdir()
    (tmp_path / "both").mkdir()
    kept = {"strong_privacy", "fairness_gap"}
    alone = plotting.save_study_figures(
        later[[*kept]], tmp_path / "alone", formats=["png"]
    )
    assert set(alone) == kept
    with Ahead() as ahead:
        ahead.begin(results[[*kept]])
        # all before it in the one thread is drawn by then
        ahead._pool.submit(int).result()
        drawn = [
            ahead.png(chart) is not None
            for chart in study_charts(later[[*kept]]).values()
        ]
        assert sorted(drawn) == [False, True]
        both = plotting.save_study_figures(
            later[[*kept]], tmp_path / "both", formats=["png"], ahead=ahead
        )
    assert [both[name].read_bytes() == alone[name].read_bytes() for name in kept] == [
        True
    ] * 2
    assert Ahead().png(next(iter(study_charts(results).values()))) is None


@pytest.mark.usefixtures("undrawn_figures")
def test_the_opening_figure_sets_random_selection_against_blocks(
    tmp_path: pathlib.Path,
) -> None:
    """Of those that keep no T the first, of those that do the one with the largest sums."""
    third = _results(None).isel(scheme=[0]).assign_coords(scheme=["User partition"])
    results = xr.concat([third * 0.1, _results(None)], "scheme")
    lower = np.array([[12] * 6, [np.nan, 4, 4, 3, 1, 1], [3] * 6], float)
    upper = np.array([[12] * 6, [np.nan, 4, 6, 5, 1, 1], [3] * 6], float)
    results = results.assign(
        weak_lower=(("scheme", "round"), lower),
        weak_upper=(("scheme", "round"), upper),
        guaranteed_privacy=("scheme", [12, 1, 3]),
    )
    written = plotting.save_study_figures(results, tmp_path)
    assert "weak_and_hidden" in written
    data = pd.read_csv(tmp_path / "weak_and_hidden.csv", index_col=0)
    assert not [name for name in data if "User partition" in name]
    for place, label in enumerate(SCHEMES, 1):
        for name, wanted in (("weak T at least", lower), ("weak T at most", upper)):
            np.testing.assert_array_equal(data[f"{label} {name}"], wanted[place])
        hidden = results["hidden_among_worst"].sel(scheme=label)
        np.testing.assert_allclose(data[f"{label} worst hidden among"], hidden)
    ax = plotting.plot_study(results, "weak_and_hidden")
    lines = {
        line.get_label(): np.asarray(line.get_ydata(), float) for line in ax.get_lines()
    }
    np.testing.assert_array_equal(lines["Random, weak T at least"], lower[1])
    np.testing.assert_array_equal(lines["Random, weak T at most"], upper[1])
    np.testing.assert_array_equal(lines["MRSA T=3, weak T"], [3] * 6)
    np.testing.assert_allclose(
        lines["Random, worst hidden among"],
        results["hidden_among_worst"].sel(scheme="Random"),
    )
    plt.close("all")
    alone = results.isel(scheme=[1])  # nothing to set it against
    # and the level of 1
    assert len(plotting.plot_study(alone, "weak_and_hidden").get_lines()) == 4
    plt.close("all")


def test_style_leaves_the_users_settings_alone() -> None:
    before = plt.rcParams["axes.grid"], plt.rcParams["font.size"]
    with plotting.style():
        assert plt.rcParams["axes.grid"]
    assert (plt.rcParams["axes.grid"], plt.rcParams["font.size"]) == before


@pytest.mark.parametrize("trials", [None, 4])
@pytest.mark.parametrize("most", [0, 1, 7, 120])
def test_no_number_of_clients_is_below_none(trials: int | None, most: int) -> None:
    results = _results(trials)
    exposed = xr.zeros_like(results["exposed_clients"])
    exposed[..., -1] = most
    ax = plotting.plot_study(results.assign(exposed_clients=exposed), "exposed_clients")
    low, high = ax.get_ylim()
    assert high >= max(most, 1)
    assert -0.05 * high <= low <= 0
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert all(tick >= 0 and tick == round(tick) for tick in ticks)
    assert (
        "no client is exposed" in " ".join(text.get_text() for text in ax.texts)
    ) == (most == 0)
    assert ax.get_title(loc="left") + ax.get_title() == ""
    assert ("Lines: means of 4 trials; bands" in str(ax.get_label())) == (
        trials is not None
    )
    plt.close("all")


def test_a_backend_that_loads_in_a_style_still_shows_figures() -> None:
    """A notebook's does when the first figure is one of ours.

    All were hidden from there on.
    """
    import matplotlib

    before = matplotlib.is_interactive()
    try:
        for shows in (True, False):
            matplotlib.interactive(not shows)
            with plotting.style(), plotting.style("single"):
                matplotlib.interactive(shows)  # as matplotlib_inline does
            assert matplotlib.is_interactive() == shows
    finally:
        matplotlib.interactive(before)


def test_points_over_logarithmic_axes_with_curves_by_name() -> None:
    table = pd.DataFrame(
        {
            "p": [1.0, 10.0, 100.0] * 2,
            "chance": np.geomspace(1e-12, 1.0, 6),
            "curve": ["bound"] * 3 + ["counted"] * 3,
        }
    )
    ax = plotting.plot_points(table, "chance", x="p", hue="curve", log="xy")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    lines = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["bound", "counted"]
    np.testing.assert_array_equal(lines[0].get_ydata(), table["chance"][:3])
    low, high = ax.get_ylim()
    assert 0 < low <= 1e-12
    assert high >= 1.0
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "10", "100"]
    words = table.assign(p=["a", "b", "c"] * 2)
    assert plotting.plot_points(words, "chance", x="p", log="y").get_yscale() == "log"
    for other, axes in ((table, "z"), (words, "x")):
        with pytest.raises(ConfigurationError, match="`log`"):
            unwrap(plotting.plot_points)(other, "chance", x="p", log=axes)  # type: ignore[call-overload]
    plt.close("all")


def test_counts_over_rounds_are_steps_and_a_t_looks_as_its_blocks_do() -> None:
    table = pd.DataFrame(
        {"round": [1, 2, 3], "exposed": [0, 2, 5], "C": [1.0, 2.5, 2.0]}
    )
    drawn = {
        (name, x): plotting.plot_points(table, name, x=x).lines[0].get_drawstyle()
        for name, x in (("exposed", "round"), ("C", "round"), ("exposed", "C"))
    }
    assert [names for names, style in drawn.items() if style == "steps-post"] == [
        ("exposed", "round")
    ]
    swept = pd.DataFrame({"p": [0.1, 0.1], "privacy_target": [4, 5], "C": [3.0, 2.0]})
    lines = plotting.plot_points(swept, "C", x="p", hue="privacy_target").lines
    colours = [plotting.scheme_colour(f"Multi-RoundSecAgg (T={t})") for t in (4, 5)]
    assert [line.get_color() for line in lines] == colours
    plt.close("all")


def test_accuracy_over_an_axis_is_in_percent() -> None:
    table = pd.DataFrame(
        {"dropout_rate": [0.0, 0.1, 0.3], "accuracy": [0.75, 0.5, 0.25]}
    )
    ax = plotting.plot_points(table, "accuracy", x="dropout_rate")
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), [75, 50, 25])
    plt.close("all")


def test_many_points_have_no_marks_and_panels_that_share_an_axis_hold_both() -> None:
    table = pd.DataFrame({"x": range(100), "y": np.linspace(0, 50, 100)})
    with plotting.style():
        _, (left, right) = plt.subplots(1, 2, sharey=True, layout="constrained")
        plotting.plot_points(table, "y", x="x", ax=left)
        plotting.plot_points(table[:10] / 5, "y", x="x", ax=right)
    assert left.get_lines()[0].get_marker() == "None"
    assert right.get_lines()[0].get_marker() == "o"
    assert left.get_ylim() == right.get_ylim()
    assert right.get_ylim()[1] > 50
    assert right.get_ylim()[0] < 0
    plt.close("all")
