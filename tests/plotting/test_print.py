"""Figures as a reader of a paper sees them.

Text apart, whole numbers, every curve visible.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import types
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from mrsa_jax import ConfigurationError, plotting
from mrsa_jax.plotting.names import spread

pytestmark = pytest.mark.long

WIDTHS = {"single": 3.5, "double": 7.16}
OWN = "_my $chem$ <e>"
SCHEMES = [
    "Random",
    "Weighted random",
    "User partition",
    "Multi-RoundSecAgg (T=4)",
    OWN,
]
TARGETS = np.array([1, 1, 12, 4, 4])
ROUNDS = 30


def _study() -> xr.Dataset:
    """Return schemes of which two reach all 120 clients together, and three stay at none."""
    rng = np.random.default_rng(0)
    rounds, tests = np.arange(ROUNDS), np.arange(5, ROUNDS + 1, 5)
    n = len(SCHEMES)
    exposed = np.zeros((n, ROUNDS))
    exposed[:2] = np.where(rounds < 15, 0, 120)
    strong = np.broadcast_to(TARGETS[:, None], (n, ROUNDS)).astype(float)
    spent = np.cumsum(rng.uniform(0.1, 0.2, (n, len(tests))), 1)
    over, test = ("scheme", "round"), ("scheme", "evaluation")
    return xr.Dataset(
        {
            "strong_privacy": (over, strong),
            "exposed_clients": (over, exposed),
            "hidden_among_worst": (over, 1.5 * strong),
            "hidden_among_median": (over, 2 * strong),
            "fairness_gap": (over, np.tile(0.4 / np.sqrt(1 + rounds), (n, 1))),
            "aggregation_cardinality": (
                over,
                np.tile([[12.0], [12.0], [7], [10], [9]], ROUNDS),
            ),
            "expected_cardinality": ("scheme", np.array([12.0, 12, 7, 10, 9])),
            "weak_lower": (over, strong),
            "weak_upper": (over, strong + 2 * (rounds < 9)),
            "guaranteed_privacy": ("scheme", TARGETS),
            "accuracy": (test, np.tile(0.95 - 0.8 * np.exp(-tests / 15), (n, 1))),
            "epsilon_mean": (test, spent),
            "epsilon_worst": (test, 1.6 * spent),
            "reconstruction_error": (
                ("scheme", "client"),
                10 ** rng.normal(-2, 1, (n, 20)),
            ),
            "bits_median": (("scheme", "rounds_done"), spent),
            "bits_worst": (("scheme", "rounds_done"), 1.5 * spent),
            "correlation": (
                ("scheme", "lag"),
                np.tile(0.7 * 0.9 ** np.arange(1, 9), (n, 1)),
            ),
            "correlation_pairs": (("scheme", "lag"), np.full((n, 8), 90)),
            "update_memory": ("scheme", np.full(n, 0.9)),
            "update_lasting": ("scheme", np.full(n, 0.7)),
        },
        coords={
            "scheme": SCHEMES,
            "round": rounds,
            "evaluation": tests,
            "rounds_done": tests,
            "lag": np.arange(1, 9),
            "client": np.arange(20),
        },
    )


STUDY = _study()
POINTS = pd.DataFrame(
    [
        {
            "scheme": label,
            "dropout_rate": rate,
            "strong_privacy": float(target),
            "exposed_clients": 120 * (target == 1),
            "aggregation_cardinality": 12 - target / 4,
            "accuracy": 0.9 - rate / 3,
            "noise_multiplier": z,
            "epsilon_worst": 8 / z,
            "epsilon_mean": 5 / z,
        }
        for label, target in zip(SCHEMES, TARGETS, strict=True)
        for rate, z in ((0.0, 0.5), (0.1, 1.0), (0.3, 2.0))
    ]
)
LOG = pd.DataFrame(
    {
        "round": range(1, 21),
        "exposed_clients": [0] * 12 + [1] * 3 + [4] * 5,
        "weak_lower": [-1] * 2 + [5] * 6 + [2] * 4 + [1] * 8,
        "weak_upper": [-1] * 2 + [9] * 6 + [2] * 4 + [1] * 8,
        "strong_privacy": [-1] * 2 + [2] * 10 + [1] * 8,
    }
)
PROMISES = {
    name: types.SimpleNamespace(
        weak_lower=weak,
        strong_privacy=1,
        hidden_worst=weak / 2,
        cardinality=size,
        cardinality_interval=(size - 0.5, size + 0.5),
    )
    for name, weak, size in (("affine plane", 4, 7.5), ("user partition", 8, 3.25))
}
COSTS = types.SimpleNamespace(
    privacy_targets=(1, 3, 12),
    blocks=np.array([1.0, 2, 3]),
    server=np.full(3, 4.0),
    one_by_one=np.array([1.2, 1.6, 2.2]),
    hidden_among=np.array([1.0, 3, 12]),
    cardinality=np.array([11.9, 10.2, 9]),
    delta=1e-5,
    rounds=1000,
    noise_multiplier=3.0,
)
RATES = pd.DataFrame(
    [
        {
            "scheme": label,
            "whose": whose,
            "mu": 1.0,
            "fpr": rate,
            "tpr": 0.5,
            "lower": 0.4,
            "upper": 0.6,
        }
        for label in SCHEMES[:2]
        for whose in ("worst", "median")
        for rate in (0.01, 0.1)
    ]
)
POLICIES = types.SimpleNamespace(
    policies=("ignore", "abort", "drop_block"),
    step_dropout_rates=np.array([0, 0.01, 0.05]),
    strong=np.stack(
        [np.tile([[6], [3], [1]], 4), np.full((3, 4), 6), np.full((3, 4), 6)]
    ),
    rounds_kept=np.ones((3, 3, 4)),
)
PLOTS: dict[str, Callable[..., Any]] = {
    name: functools.partial(getattr(plotting, f"plot_{name}"), *given)
    for name, *given in (
        ("designs", PROMISES),
        ("audit_exposure", LOG),
        ("audit_privacy", LOG),
        ("amplification", COSTS),
        ("roc", RATES),
        ("policies", POLICIES),
        ("accuracy_epsilon", POINTS),
        ("privacy_cost", POINTS),
        ("error_histogram", POINTS.rename(columns={"accuracy": "error"})),
        (
            "tradeoff",
            POINTS.iloc[::3]
            .rename(columns={"strong_privacy": "T", "aggregation_cardinality": "C"})
            .assign(C_low=6, C_high=12),
        ),
    )
}
PLOTS |= {
    name: functools.partial(plotting.plot_study, STUDY, figure)
    for name, figure in (
        ("privacy", "strong_privacy"),
        ("exposure", "exposed_clients"),
        ("fairness", "fairness_gap"),
        ("cardinality", "aggregation_cardinality"),
        ("accuracy", "accuracy"),
        ("reconstruction", "reconstruction_error"),
        ("hidden_among", "hidden_among_worst"),
        ("epsilon", "epsilon"),
        ("learning_epsilon", "accuracy_epsilon"),
        ("bits", "bits_worst"),
        ("drift", "correlation"),
        ("overstatement", "weak_and_hidden"),
    )
}
PLOTS |= {
    "nobody": functools.partial(
        plotting.plot_study,
        STUDY.assign(exposed_clients=STUDY.exposed_clients * 0),
        "exposed_clients",
    ),
    "points": functools.partial(
        plotting.plot_points, POINTS, "strong_privacy", x="dropout_rate", hue="scheme"
    ),
    "names": functools.partial(
        plotting.plot_points, POINTS, "exposed_clients", x="scheme"
    ),
}
WHOLE = {  # axes on which only whole numbers can stand
    "privacy": "xy", "exposure": "xy", "nobody": "xy", "hidden_among": "x", "audit_exposure": "xy",
    "audit_privacy": "xy", "accuracy": "x", "cardinality": "x", "epsilon": "x", "bits": "x",
    "fairness": "x", "overstatement": "x", "drift": "x", "points": "y", "policies": "y",
    "privacy_cost": "x", "tradeoff": "x", "designs": "y", "names": "y",
}  # fmt: skip


def _draw(plot: Callable[..., Any], column: Any) -> Figure:
    with plotting.style(column):
        figure = plot().figure
    plt.close(figure)
    figure.set_dpi(150)
    for _ in range(2):  # as a file is written: it is laid out before it is drawn
        FigureCanvasAgg(figure).draw()
    return figure


@pytest.fixture(scope="module")
def figures() -> dict[tuple[str, str], Figure]:
    return {
        (width, name): _draw(plot, width)
        for width in WIDTHS
        for name, plot in PLOTS.items()
    }


def _texts(figure: Figure) -> list[Text]:
    """Return all that is written.

    Labels, ticks within the limits, names, legends, notes.
    """
    found = []
    for ax in figure.axes:
        legend = ax.get_legend()
        found += [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax.title]
        found += [] if legend is None else [legend.get_title(), *legend.get_texts()]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [
                tick.label1
                for tick in axis.get_major_ticks()
                if low <= tick.get_loc() <= high
            ]
    return [one for one in found if one.get_visible() and one.get_text().strip()]


def test_every_figure_of_the_package_is_here() -> None:
    elsewhere = {
        "plot_image_grid",
        "plot_exposure_routes",
        "plot_participation",
        "plot_rounds",
        "plot_study",
    }
    drawn = {f"plot_{name}" for name in PLOTS} | elsewhere
    assert {name for name in plotting.__all__ if name.startswith("plot_")} <= drawn


def test_text_is_readable_in_a_column_and_nothing_is_written_over_it(
    figures: dict[tuple[str, str], Figure],
) -> None:
    for (column, name), figure in figures.items():
        assert figure.get_figwidth() == WIDTHS[column]
        assert figure.get_figheight() <= 4.5
        texts = _texts(figure)
        assert all(7 <= one.get_fontsize() <= 9 for one in texts), name
        assert not any(ax.get_title(loc="left") + ax.get_title() for ax in figure.axes)
        flat = [one for one in texts if one.get_rotation() in (0, 90)]
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        boxes = [Text.get_window_extent(one, renderer) for one in flat]
        for i, (one, box) in enumerate(zip(flat, boxes, strict=True)):
            least = min(
                box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1
            )
            assert least >= -1, (column, name, one)
            for other, theirs in zip(flat[:i], boxes, strict=False):
                wide = min(box.x1, theirs.x1) - max(box.x0, theirs.x0)
                high = min(box.y1, theirs.y1) - max(box.y0, theirs.y0)
                assert min(wide, high) <= 2, (column, name, one, other)


def test_whole_numbers_stand_on_axes_of_whole_numbers(
    figures: dict[tuple[str, str], Figure],
) -> None:
    for (_, name), figure in figures.items():
        for which in WHOLE.get(name, ""):
            axis = getattr(figure.axes[0], f"{which}axis")
            low, high = sorted(axis.get_view_interval())
            ticks = [one for one in axis.get_majorticklocs() if low <= one <= high]
            assert len(ticks) > 0, name
            assert all(one == round(one) for one in ticks), name


def test_every_scheme_is_named_once_and_shown_as_it_is_called(
    figures: dict[tuple[str, str], Figure],
) -> None:
    for name in (
        "privacy",
        "exposure",
        "accuracy",
        "cardinality",
        "points",
        "learning_epsilon",
    ):
        for column in WIDTHS:
            texts = [one.get_text().strip() for one in _texts(figures[column, name])]
            written = [text.replace("\\$", "$") for text in texts]
            short = "MRSA T=4" if column == "single" else "Multi-RoundSecAgg (T=4)"
            for label in (*SCHEMES[:3], OWN):
                assert written.count(label) == 1, (name, column, label)
            assert written.count(short) == 1, (name, column)


def _pixels(figure: Figure, level: float, width: int = 4) -> np.ndarray:
    """Return the colours of a strip of a figure at a height of its axes."""
    ax = figure.axes[0]
    x0, x1 = int(ax.bbox.x0) + 2, int(ax.bbox.x1) - 2
    row = ax.transData.transform((ax.get_xlim()[1], level))[1]
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
    top = image.shape[0] - round(row)
    return image[top - width : top + width, x0:x1].reshape(-1, 3).astype(int)


def _count(pixels: np.ndarray, label: str) -> int:
    own = 255 * np.array(colors.to_rgb(plotting.scheme_colour(label)))
    return int((np.abs(pixels - own).max(-1) <= 30).sum())


@pytest.mark.parametrize("column", WIDTHS)
def test_curves_that_coincide_are_all_seen(
    figures: dict[tuple[str, str], Figure], column: str
) -> None:
    cases = {
        "exposure": {0: SCHEMES, 120: SCHEMES[:2]},
        "nobody": {0: SCHEMES},
        "privacy": {1: SCHEMES[:2], 4: SCHEMES[3:]},
        "cardinality": {12: SCHEMES[:2]},
        "points": {1: SCHEMES[:2], 4: SCHEMES[3:]},
    }
    for name, levels in cases.items():
        for level, labels in levels.items():
            counts = [
                _count(_pixels(figures[column, name], level), label) for label in labels
            ]
            assert min(counts) > 0.3 * max(counts) > 10, (name, level, counts)
    # five curves on one another, none of them level
    whole = figures[column, "fairness"]
    box = whole.axes[0].bbox
    image = np.asarray(whole.canvas.buffer_rgba())  # type: ignore[attr-defined]
    high = slice(len(image) - int(box.y1), len(image) - int(box.y0) - 4)
    inside = image[high, int(box.x0) + 4 : int(box.x1), :3].reshape(-1, 3).astype(int)
    counts = [_count(inside, label) for label in SCHEMES]
    assert min(counts) > 0.3 * max(counts) > 10, counts


def test_no_value_is_moved_to_be_seen(figures: dict[tuple[str, str], Figure]) -> None:
    for name, variable in (
        ("exposure", "exposed_clients"),
        ("fairness", "fairness_gap"),
    ):
        found = 0
        for line in figures["double", name].axes[0].get_lines():
            if line.get_label() != "_coinciding":
                continue
            found += 1
            colour = str(line.get_color())
            label = next(
                one for one in SCHEMES if plotting.scheme_colour(one) == colour
            )
            own = STUDY[variable].sel(scheme=label).values
            points = np.asarray(line.get_xydata(), float)
            points = points[np.isfinite(points).all(1)]
            for x, y in points:  # a step also ends where the next begins
                assert y in own[max(int(x) - 2, 0) : int(x)]
        assert found >= len(SCHEMES)


def test_nobody_is_written_where_all_is_zero_and_nowhere_else(
    figures: dict[tuple[str, str], Figure],
) -> None:
    for (_, name), figure in figures.items():
        words = " ".join(one.get_text() for one in _texts(figure))
        assert ("no client is exposed" in words) == (name == "nobody")
    zero = LOG.assign(exposed_clients=0)
    none = POINTS.assign(exposed_clients=0)
    for ax in (
        plotting.plot_audit_exposure(zero, num_clients=5),
        plotting.plot_points(none, "exposed_clients", x="dropout_rate"),
    ):
        assert "no client is exposed" in [one.get_text() for one in ax.texts]
        plt.close(ax.figure)


def test_files_for_print_hold_text_and_few_bytes(tmp_path: pathlib.Path) -> None:
    for name in ("exposure", "accuracy_epsilon"):
        files = plotting.save_figure(PLOTS[name], tmp_path / name)
        again = plotting.save_figure(PLOTS[name], tmp_path / "again")
        assert [one.name for one in files] == [
            f"{name}.png",
            f"{name}.svg",
            f"{name}.pdf",
        ]
        for one, other in zip(files, again, strict=True):
            assert one.read_bytes() == other.read_bytes()
            assert 1000 < one.stat().st_size < 200_000
        root = ElementTree.parse(files[1]).getroot()
        assert root.get("width") == "515.52pt"
        texts = [one for one in root.iter() if one.tag.endswith("}text")]
        written = ["".join(one.itertext()).strip() for one in texts]
        assert OWN in written
        assert "Random" in written
        used = [str(one.attrib) for one in root.iter() if one.tag.endswith("}use")]
        assert not [one for one in used if "DejaVu" in one]  # no paths of glyphs
        pdf = files[2].read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
    assert b"Clients whose own update" in (tmp_path / "exposure.svg").read_bytes()


def test_very_many_points_are_pixels_in_files_for_print(tmp_path: pathlib.Path) -> None:
    errors = np.random.default_rng(0).lognormal(size=(1, 30_000))
    many = xr.Dataset(
        {"reconstruction_error": (("scheme", "client"), errors)},
        coords={"scheme": ["Random"]},
    )
    plot = functools.partial(plotting.plot_study, many, "reconstruction_error")
    svg, pdf = plotting.save_figure(
        plot, tmp_path / "many", formats=("svg", "pdf"), apart=True
    )
    assert (svg.parent.name, pdf.parent.name) == ("figures", "figures")
    assert svg.stat().st_size < 600_000
    assert pdf.stat().st_size < 600_000
    tags = [one.tag.split("}")[-1] for one in ElementTree.parse(svg).getroot().iter()]
    assert tags.count("image") == 1
    assert "text" in tags


def test_widths_nest_and_misuse_is_named(tmp_path: pathlib.Path) -> None:
    before = dict(mpl.rcParams)
    with plotting.style("single"), plotting.style():
        assert mpl.rcParams["figure.figsize"][0] == 3.5
        with plotting.style("double"):
            assert mpl.rcParams["figure.figsize"][0] == 7.16
        ax = PLOTS["privacy"]()
        assert ax.get_figure().get_figwidth() == 3.5
        plt.close(ax.figure)
    assert dict(mpl.rcParams) == before
    with pytest.raises(ConfigurationError, match="`column` must be a known width"):
        next(inspect.unwrap(plotting.style)("tripel"))  # type: ignore[call-overload,arg-type]
    for formats, message in (
        ((), "must name a format"),
        (("pgn",), "did you mean 'png'"),
    ):
        with pytest.raises(ConfigurationError, match=f"`formats` .*{message}"):
            plotting.save_figure(PLOTS["privacy"], tmp_path / "x", formats=formats)
    figure, axes = plt.subplots(1, 2)
    assert isinstance(PLOTS["privacy"](ax=axes[0]), Axes)
    assert plotting.save_figure(axes[1], tmp_path / "pair", formats=["png"])[
        0
    ].is_file()
    plt.close(figure)


def test_names_move_as_little_as_keeps_them_apart() -> None:
    """Against the best of many piles in the same order, which a search over gaps finds."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        n = int(rng.integers(1, 6))
        wanted, heights = rng.uniform(-2, 12, n), rng.uniform(0.5, 1.5, n)
        got = spread(wanted.tolist(), heights.tolist(), 0.0, 10.0)
        order = np.argsort(wanted, kind="stable")
        gaps = np.diff(got[order]) - (heights[order][1:] + heights[order][:-1]) / 2
        assert (gaps > -1e-9).all()
        assert (got - heights / 2)[order[0]] > -1e-9
        assert (got + heights / 2)[order[-1]] < 10 + 1e-9
        free = 10 - heights.sum()
        starts = np.sort(rng.uniform(0, free, (300, n)), axis=1)
        others = starts + np.cumsum(heights[order]) - heights[order] / 2
        costs = ((others - wanted[order]) ** 2).sum(1)
        assert ((got - wanted) ** 2).sum() <= costs.min() + 1e-9
    crowded = spread([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 0.0, 2.0)
    np.testing.assert_allclose(crowded, [2.0, 1.0, 0.0])
