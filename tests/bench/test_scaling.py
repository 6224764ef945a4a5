"""Laws of scaling and changes between records, on times whose truth is known."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax.bench import harness, scaling
from mrsa_watch._base.errors import ConfigurationError

X = [50, 100, 200, 500, 1_000]


@pytest.mark.parametrize(
    ("x", "y"),
    [([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2], [1]), ([-1, 2], [1, 1]), ([2], [1])],
)
def test_points_without_a_law(x: list[float], y: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="`x` must"):
        scaling.fit_law(x, y)


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_an_exact_law_is_found_to_rounding(exponent: float) -> None:
    law = scaling.fit_law(X, [3e-6 * x**exponent for x in X])
    np.testing.assert_allclose(law.exponent, exponent, atol=1e-12)
    np.testing.assert_allclose(law.factor, 3e-6)
    assert law.low is not None
    np.testing.assert_allclose([law.low, law.high], exponent, atol=1e-9)


def test_two_points_have_no_interval() -> None:
    law = scaling.fit_law([10, 100], [1.0, 1e3])
    assert law[0] == pytest.approx(3.0)
    assert law[2:] == (None, None)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(2_000):
        law = scaling.fit_law(
            X, 2.0 * np.power(X, 1.5) * np.exp(0.2 * rng.standard_normal(5))
        )
        assert law.low is not None
        covered += law.low <= 1.5 <= (law.high or 0.0)
    assert abs(covered / 2_000 - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 2_000)


def _row(case: str, seconds: Any, peer: Any = (), **more: Any) -> dict[str, Any]:
    return {
        "benchmark": "sums",
        "case": case,
        "peer": "NumPy" if len(peer) else None,
        "processor_seconds": list(seconds),
        "seconds": list(seconds),
        "peer_processor_seconds": list(peer),
        "peer_seconds": list(peer),
        "is_noise": False,
        "machine": {"processor": "p", "cores": 2, "device": "d"},
    } | more


def test_curves_are_apart_by_every_other_setting() -> None:
    rows = [
        _row(
            "",
            [2e-3 * n * d, 1e-3 * n * d],
            [1.0],
            sizes={"n": n, "dim": d, "graph": g, "r": 7},
        )
        for n in (10, 20)
        for d in (100, 1_000, 4_000)
        for g in ("complete", "ring")
    ]
    found = scaling.curves(rows)
    assert len(found) == 2 * 3 + 2 * 2
    assert {curve.setting for curve in found} == {"n", "dim"}
    first = found[0]
    assert (first.others, first.x) == ("dim 100, graph complete", (10.0, 20.0))
    assert first.seconds == (1.0, 2.0)
    for curve in found:
        assert curve.law.exponent == pytest.approx(1.0)
    assert ": processor time grows as n^1.00 between two points" in first.words
    assert "95 % interval 1.00 to 1.00, 3 points" in found[-1].words
    charts = scaling.scaling_charts(found)
    assert set(charts) == {"sums_n", "sums_dim"}
    lines = charts["sums_n"].lines
    assert len(lines) == 3 * 6
    assert {line.series for line in lines[:3]} == {"dim 100, graph complete"}
    assert [line.name for line in lines[:3]] == ["n^1.00", "", "peer"]
    np.testing.assert_allclose([line.y for line in lines[:3]], [[1, 2], [1, 2], [1, 1]])
    assert charts["sums_n"].y_label == "processor time of a call (s)"
    assert scaling.curves([_row("a", [1.0], sizes={"n": 3})]) == []
    # of the topics' own sizes
    assert scaling.curves([_row("a", [1.0]), _row("b", [1.0])]) == []


def test_a_single_curve_names_its_peer_and_a_point_without_processor_seconds_its_clock() -> (
    None
):
    rows = [_row("", [2.0 * n], [1.0], sizes={"n": n}) for n in (10, 20)]
    rows[1]["peer_processor_seconds"] = []
    (curve,) = scaling.curves(rows)
    assert curve.words == "sums: time grows as n^1.00 between two points"
    (chart,) = scaling.scaling_charts([curve]).values()
    names = [(line.series, line.name) for line in chart.lines]
    assert names == [("mrsa_jax", "n^1.00"), ("mrsa_jax", ""), ("NumPy", "")]
    assert chart.y_label == "time of a call (s)"


def _times(
    rng: np.random.Generator, scale: float, scatter: float, count: int = 5
) -> np.ndarray:
    return scale * np.exp(scatter * np.abs(rng.standard_normal(count)))


def test_a_planted_slowdown_is_found_in_its_case_alone() -> None:
    rng = np.random.default_rng(1)
    cases = "abcdef"
    old = {("sums", name): _row(name, _times(rng, 1.0, 0.03)) for name in cases}
    new = [
        _row(name, _times(rng, {"b": 1.5, "e": 0.6}.get(name, 1.0), 0.03))
        for name in cases
    ]
    found = {
        change.case: change
        for change in scaling.changes([*new, _row("new", [1.0, 1.0])], old)
    }
    assert [found[name].verdict for name in cases] == [
        "same",
        "slower",
        "same",
        "same",
        "faster",
        "same",
    ]
    assert found["b"].low < 1.5 < found["b"].high
    assert len(found) == 6  # what was not measured before is not compared


def test_a_slower_machine_is_no_slowdown_where_the_peer_tells() -> None:
    rng = np.random.default_rng(2)
    old = {("sums", "a"): _row("a", _times(rng, 1.0, 0.02), _times(rng, 3.0, 0.02))}
    loaded = _row("a", _times(rng, 2.0, 0.02), _times(rng, 6.0, 0.02))
    assert scaling.changes([loaded], old)[0].verdict == "same"
    alone = loaded | {"peer": None, "peer_seconds": [], "peer_processor_seconds": []}
    assert scaling.changes([alone], old)[0].verdict == "slower"


def test_noise_is_seldom_called_a_change() -> None:
    """Twenty cases a run, heavy scatter, no change.

    At most 1 % of runs fail by each side.
    """
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(100):
        old = {("sums", str(i)): _row(str(i), _times(rng, 1.0, 0.4)) for i in range(20)}
        new = [_row(str(i), _times(rng, 1.0, 0.4)) for i in range(20)]
        found = scaling.changes(new, old)
        wrong += any(change.verdict in ("slower", "faster") for change in found)
        assert any(change.verdict == "unclear" for change in found)
    assert wrong <= 8  # 2 of 100 expected at most: beyond 8 with a chance below 1e-3


def test_a_single_repeat_says_nothing() -> None:
    found = scaling.changes([_row("a", [9.0])], {("sums", "a"): _row("a", [1.0])})
    assert found[0].verdict == "unclear"


def test_records_of_other_machines_are_no_measure() -> None:
    here = {"processor": "p", "cores": 2, "device": "d", "commit": "x"}
    rows = [_row("a", [1.0]), _row("a", [2.0]), _row("b", [1.0])]
    rows[2]["machine"] = rows[2]["machine"] | {"cores": 4}
    found = scaling.like(rows, here)
    assert list(found) == [("sums", "a")]
    assert found["sums", "a"]["seconds"] == [2.0]  # the newest


def test_a_line_that_a_kill_cut_off_is_named_and_costs_no_other(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "records.jsonl"
    rows = [_row(name, [1.0]) for name in "abc"]
    harness.record(rows[:2], path)
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.warns(
            RuntimeWarning, match=r"line 2 of .*records\.jsonl is no whole record"
        ):
            assert scaling.read_records(path) == rows[:1]
    path.write_bytes(whole[:-9])
    harness.record(rows[2:], path)  # on a line that is not cut off
    with pytest.warns(RuntimeWarning, match="line 2"):
        assert scaling.read_records(path) == [rows[0], rows[2]]
    path.write_bytes(whole)
    harness.record(rows[2:], path)
    assert scaling.read_records(path) == rows
    path.write_bytes(whole[:9])
    with (
        pytest.warns(RuntimeWarning, match="line 1"),
        pytest.raises(ConfigurationError, match="`against` must hold records"),
    ):
        scaling.read_records(path)
