"""A figure in a file and in a report.

One chart, of which both drawers show the same data.
The oracle reads a report's drawing back into values, and compares them with the curves
on the axes.
"""

from __future__ import annotations

import base64
import io
import re
import types
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

from mrsa_jax.plotting.attack_charts import (
    attribute_chart,
    errors_line,
    histogram_chart,
    members_chart,
    rates_chart,
)
from mrsa_jax.plotting.audit_charts import (
    amplification_chart,
    exposure_chart,
    privacy_chart,
    routes_chart,
)
from mrsa_jax.plotting.chart import Chart, draw
from mrsa_jax.plotting.design_charts import designs_chart, participation_chart
from mrsa_jax.plotting.names import short
from mrsa_jax.plotting.points import (
    accuracy_epsilon_chart,
    points_chart,
    tradeoff_chart,
)
from mrsa_jax.plotting.study_charts import FIGURES, study_charts
from mrsa_jax.privacy import collusion_risk
from mrsa_jax.study.publishing import _points
from mrsa_jax.study.publishing._points import cost_charts
from mrsa_jax.study.publishing._report_sweep import sweep_charts
from mrsa_jax.study.publishing._svg import drawn

SCHEMES = ("Random", "Multi-RoundSecAgg (T=3)")


def everything(trials: int) -> xr.Dataset:
    """Return a study that measured all there is to draw; of one trial, or of several."""
    rng = np.random.default_rng(trials)
    over = ("scheme", "trial") if trials > 1 else ("scheme",)
    sizes = {
        "scheme": 2,
        "trial": trials,
        "round": 7,
        "evaluation": 3,
        "client": 5,
        "rounds_done": 4,
        "lag": 6,
    }

    def made(*axes: str, least: float = 0.1) -> tuple[tuple[str, ...], np.ndarray]:
        values = np.cumsum(
            rng.uniform(least, 1.0, [sizes[one] for one in axes]), axis=-1
        )
        values[..., :1] = np.nan if "round" in axes else values[..., :1]
        return axes, values

    names = (
        "strong_privacy",
        "exposed_clients",
        "hidden_among_worst",
        "hidden_among_median",
        "fairness_gap",
        "aggregation_cardinality",
    )
    found = {name: made(*over, "round") for name in names}
    found |= {
        name: made("scheme", "evaluation")
        for name in ("accuracy", "loss", "epsilon_mean", "epsilon_worst")
    }
    found |= {
        name: made("scheme", "rounds_done") for name in ("bits_median", "bits_worst")
    }
    found |= {
        name: made("scheme")
        for name in ("expected_cardinality", "update_memory", "update_lasting")
    }
    found |= {"correlation": made("scheme", "lag", least=-0.5)}
    found["correlation_pairs"] = (
        ("scheme", "lag"),
        np.array([[90, 50, 20, 9, 30, 1], [5] * 6]),
    )
    found |= {"reconstruction_error": made("scheme", "client")}
    lower = made(*over, "round")[1]
    gap = np.array([0.5, 0.0]).reshape(-1, *[1] * len(over))
    found["weak_lower"] = (*over, "round"), lower
    found["weak_upper"] = (*over, "round"), lower + gap
    found["guaranteed_privacy"] = ("scheme",), np.array([1, 3])
    axes = {name: np.arange(size) for name, size in sizes.items() if name != "trial"}
    return xr.Dataset(
        found,
        coords=axes
        | {"scheme": list(SCHEMES), "evaluation": [2, 4, 6], "lag": np.arange(1, 7)},
    )


def corners(path: str) -> list[np.ndarray]:
    """Return the corners of a drawn line in the units of its axes, an array for each part of it."""
    parts: list[list[tuple[float, float]]] = []
    for kind, rest in re.findall(r"([MHV])([^MHVZ]*)", path):
        values = [float(text) for text in rest.split()]
        if kind == "M":
            parts.append(list(zip(values[::2], values[1::2], strict=True)))
        else:
            x, y = parts[-1][-1]
            parts[-1].append((values[0], y) if kind == "H" else (x, values[0]))
    return [np.array(part) for part in parts]


def value_at(parts: list[np.ndarray], x: float, is_step: bool) -> float:
    """Return what a drawn line, of six digits, shows at a place.

    Nan where it has a gap.
    """
    near = 1e-5 * abs(x)
    for part in parts:
        if part[0, 0] - near <= x <= part[-1, 0] + near:
            if is_step:
                return float(part[part[:, 0] <= x + near][-1, 1])
            return float(np.interp(x, part[:, 0], part[:, 1]))
    return float("nan")


def units(values: object, is_log: bool) -> np.ndarray:
    own = np.asarray(values, float)
    return np.log10(own) if is_log else own


def agree(chart: Chart) -> None:
    """Check that both drawers show the points, edges and names of each line of a chart."""
    places = {label: place for place, label in enumerate(chart.series)}
    figure = ET.fromstring(drawn(chart, places))
    ax = draw(chart)
    box = [
        float(part) for part in str(figure.find(".//svg/svg").get("viewBox")).split()
    ]  # type: ignore[union-attr]
    groups = iter(figure.findall(".//g[@data-s]"))
    for line, own in zip(chart.lines, ax.get_lines(), strict=False):
        full = f"{line.series}, {line.name}".removesuffix(", ")
        named = short(line.series) + full.removeprefix(line.series)
        assert str(own.get_label()).removeprefix("_") in (line.series, full, named)
        x, y = (
            units(own.get_xdata(), chart.is_log_x),
            units(own.get_ydata(), chart.is_log_y),
        )
        if line.kind == "marks":
            circles = figure.findall(f".//circle[@class='s{places[line.series]}']")
            found = [
                [float(str(one.get(c)).rstrip("%")) / 100 for c in ("cx", "cy")]
                for one in circles
            ]
            shown, wanted = (
                np.array(found) * box[2:] + box[:2],
                np.column_stack([x, -y]),
            )
            np.testing.assert_allclose(shown, wanted, rtol=2e-3, atol=1e-3 * box[3])
            continue
        group = next(groups)
        assert (group.get("data-s"), group.get("data-n") or "") == (
            line.series,
            line.name,
        )
        paths = {
            str(path.get("class")): str(path.get("d")) for path in group.findall("path")
        }
        parts = corners(paths["None"])
        read = [value_at(parts, at, line.kind == "step") for at in x]
        known = np.isfinite(y)
        np.testing.assert_allclose(
            np.array(read)[known], y[known], rtol=1e-5, atol=1e-5 * box[3]
        )
        assert {float(f"{at:.6g}") for at in x[known]} >= {
            float(part[0, 0]) for part in parts
        }
        if line.low is not None:
            edges = np.concatenate(corners(paths["band"]))[:, 1]
            ends = units([np.nanmin(line.low), np.nanmax(line.high)], chart.is_log_y)
            np.testing.assert_allclose([edges.min(), edges.max()], ends, rtol=1e-5)
    assert next(groups, None) is None
    assert ax.get_ylabel() == chart.y_label in "".join(figure.itertext())
    assert ax.get_xlabel() == chart.x_label in "".join(figure.itertext())
    assert ax.get_label() == figure.findtext("figcaption") == chart.caption
    texts = [one.get_text() for one in ax.texts]
    for _, words in chart.rules:
        assert (words in texts) == (words in "".join(figure.itertext()))
    plt.close(ax.figure)


@pytest.mark.parametrize("trials", [1, 3])
def test_every_figure_of_a_study(trials: int) -> None:
    charts = study_charts(everything(trials))
    # hidden among and weak T of trials are not in one figure
    absent = "weak_and_hidden" if trials > 1 else "weak_privacy"
    assert set(FIGURES) - set(charts) == {absent}
    for chart in charts.values():
        agree(chart)


def test_every_figure_of_a_sweep(swept: xr.Dataset) -> None:
    table = _points.points(swept)
    for x, hue in (
        ("num_clients", "scheme"),
        ("scheme", "num_clients"),
        ("num_clients", None),
    ):
        charts = sweep_charts(swept, table, x, hue)
        assert {"accuracy", "strong_privacy", "exposed_clients"} <= set(charts)
        for chart in [*charts.values(), *cost_charts(table, ("scheme",), hue).values()]:
            agree(chart)
    noisy = pd.DataFrame(
        {
            "scheme": ["Random"] * 4 + ["mine"] * 2,
            "noise_multiplier": [2.0, 2, 1, 0, 2, 1],
            "accuracy": [0.5, 0.7, 0.8, 0.9, 0.4, 0.6],
            "epsilon_worst": [1.0, 3, 10, np.inf, 2, 9],
            "epsilon_mean": [0.5, 1.5, 5, np.inf, 1, 4],
        }
    )
    agree(accuracy_epsilon_chart(noisy, "scheme"))
    agree(points_chart(noisy, "accuracy", "noise_multiplier", None, log="y"))


def test_every_figure_of_an_audit_and_an_attack() -> None:
    log = {
        "round": [3, 9, 12, 40],
        "exposed_clients": [0, 0, 1, 4],
        "weak_lower": [-1, 2, 1, 1],
        "weak_upper": [-1, 3, 1, 1],
        "hidden_among_worst": [np.nan, 2.5, 1, 1],
    }
    rates = [
        {
            "scheme": label,
            "whose": whose,
            "mu": mu,
            "fpr": fpr,
            "tpr": 0.5,
            "lower": 0.4,
            "upper": 0.6,
        }
        for label in SCHEMES
        for whose, mu in (("worst", None), ("median", 1.0))
        for fpr in (0.01, 0.1, 0.5)
    ]
    members = [
        {"method": method, "seen": seen, "accuracy": 0.5, "auc": auc}
        for method in ("loss", "shadow")
        for seen, auc in (("plain", 0.9), ("sum", 0.5))
    ]
    areas = [
        {"scheme": label, "method": method, "rounds": stop, "auc": auc} | bound
        for label, bound in zip(
            SCHEMES, ({"bound_auc": None}, {"bound_auc": 0.8125}), strict=True
        )
        for method in ("joint", "prolin")
        for stop, auc in ((10, 0.6), (10, 0.7), (20, 0.8))
    ]
    errors = [errors_line(label, [0.5, np.nan, 1e-20, 3.0]) for label in SCHEMES]
    for chart in (
        exposure_chart(log),
        exposure_chart(log, 9),
        privacy_chart(log),
        rates_chart(rates, "gaussian"),
        members_chart(members),
        attribute_chart(areas),
        Chart.named("errors", errors),
    ):
        agree(chart)


def test_every_figure_of_designs_costs_and_routes() -> None:
    kept = pd.DataFrame(
        {
            "scheme": SCHEMES,
            "T": [1, 3],
            "C": [8.0, 7.5],
            "C_low": [8.0, 7.0],
            "C_high": [8.0, 7.9],
        }
    )
    errors = pd.DataFrame({"scheme": [*SCHEMES, "Random"], "error": [1e-9, 0.8, 2.0]})
    costs = types.SimpleNamespace(
        privacy_targets=(1, 3),
        blocks=np.array([1.0, 2]),
        server=np.array([4.0, 4]),
        delta=1e-5,
        one_by_one=np.array([1.2, 1.6]),
        hidden_among=np.array([1.0, 3]),
        rounds=1000,
        cardinality=np.array([11.9, 10.2]),
        noise_multiplier=3.0,
    )
    families = {
        name: types.SimpleNamespace(
            weak_lower=4,
            strong_privacy=1,
            hidden_worst=2.25,
            cardinality=mean,
            cardinality_interval=(mean, 8.0),
        )
        for name, mean in (("grids", 7.5), ("nets", 7.0))
    }
    sums = [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 1, 0, 1]]
    routes = {
        "Random": collusion_risk(0, sums, [0.4, 0.0, 0.2], 50, degree=2, threshold=1)
    }
    for chart in (
        tradeoff_chart(kept),
        histogram_chart(errors),
        amplification_chart(costs),
        designs_chart(families),
        routes_chart(routes, "each"),
        routes_chart(routes, "any"),
    ):
        agree(chart)


def test_cells_are_one_pixel_each_in_a_report() -> None:
    history = np.array([[1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]])
    chart = participation_chart(history, 3)
    figure, ax = ET.fromstring(drawn(chart, {})), draw(chart)
    address = str(figure.find(".//image").get("href"))  # type: ignore[union-attr]
    image = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
    cells = np.asarray(ax.images[0].get_array())
    np.testing.assert_array_equal(np.asarray(image), cells)
    looks = np.asarray(ax.images[0].to_rgba(cells, bytes=True))[..., :3]
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), looks)
    assert figure.find(".//path[@class='edge']").get("d") == "M3 0V3"  # type: ignore[union-attr]
    assert [own.tail for own in figure.findall(".//*[@class='item']/span")] == [
        text.get_text()
        for text in ax.get_legend().get_texts()  # type: ignore[union-attr]
    ]
    ups = [(own.text, own.get("y")) for own in figure.findall(".//text[@class='up']")]
    assert ups[0] == ("0", "0%")  # the first round is at the top
    plt.close("all")
