"""A measurement is honest: correctness before speed, both sides timed, everything recorded."""

from __future__ import annotations

import itertools
import json
import pathlib
import time

import numpy as np
import pytest

from mrsa_jax import bench
from mrsa_jax.bench import _harness


def _compare(**changes: object) -> bench.Measurement:
    arguments = {
        "work": 10.0,
        "unit": "sums",
        "peer_name": "peer",
        "check": np.testing.assert_array_equal,
        "repeats": 3,
        "aim": 2.0,
    }
    return _harness.compare(lambda: np.ones(3), lambda: np.ones(3), **(arguments | changes))


def test_a_wrong_result_is_never_timed() -> None:
    calls = []
    with pytest.raises(_harness.ResultsDifferError):
        _harness.compare(
            lambda: calls.append(1) or np.ones(3),
            lambda: np.zeros(3),
            work=1.0,
            unit="x",
            check=np.testing.assert_array_equal,
        )
    assert len(calls) == 1


def test_rates_and_ratios_follow_from_the_times() -> None:
    item = _compare()
    assert item.peer_seconds_min is not None
    assert item.rate == 10 / item.seconds_min
    assert item.ratio == item.peer_seconds_min / item.seconds_min
    assert item.seconds_min <= item.seconds_median


def test_a_peer_that_does_less_work_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that ticks once a reading, every call takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    item = _compare(peer_work=1.0)
    assert (item.seconds_min, item.peer_seconds_min) == (1.0, 10.0)
    assert (item.rate, item.ratio) == (10.0, 10.0)


def test_a_peer_may_tell_its_own_seconds() -> None:
    item = _harness.compare(
        lambda: 1, lambda: {"seconds": 2.0}, work=3.0, unit="x",
        peer_work=1.0, peer_seconds=lambda told: told["seconds"], repeats=2,
    )  # fmt: skip
    assert item.peer_seconds_min == item.peer_seconds_median == 6.0


def test_ours_alone_is_checked_too() -> None:
    def check(found: int, nothing: None) -> None:
        assert nothing is None
        np.testing.assert_equal(found, 2)

    _harness.compare(lambda: 2, work=1.0, unit="x", check=check, repeats=1)
    with pytest.raises(_harness.ResultsDifferError, match="not equal"):
        _harness.compare(lambda: 1, work=1.0, unit="x", check=check, repeats=1)


def test_records_are_json_lines_with_machine_and_time(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results" / "topic.jsonl"
    where = bench.machine()
    rows = [_harness.row(_compare(), where, "2026-01-01T00:00:00+00:00")] * 3
    bench.record(rows[:2], path)
    bench.record(rows[2:], path)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == rows
    assert found[0]["machine"]["versions"]["jax"]
    assert found[0]["machine"]["cores"] >= 1
    assert found[0]["ratio"] > 0
