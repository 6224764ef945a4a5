"""A measurement is honest.

Correctness before speed, both sides timed, everything recorded.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import math
import pathlib
import time

import jax
import numba  # type: ignore[import-untyped]
import numpy as np
import pytest

from mrsa_jax.bench import harness


def _compare(**changes: object) -> harness.Measurement:
    arguments = {
        "work": 10.0,
        "unit": "sums",
        "peer_name": "peer",
        "check": np.testing.assert_array_equal,
        "repeats": 3,
        "aim": 2.0,
    }
    return harness.compare(
        lambda: np.ones(3), lambda: np.ones(3), **(arguments | changes)
    )


def test_a_wrong_result_is_never_timed() -> None:
    calls = []
    with pytest.raises(harness.ResultsDifferError):
        harness.compare(
            lambda: calls.append(1) or np.ones(3),
            lambda: np.zeros(3),
            work=1.0,
            unit="x",
            check=np.testing.assert_array_equal,
        )
    assert len(calls) == 1


def test_rates_and_ratios_follow_from_the_times() -> None:
    item = _compare()
    assert (
        len(item.seconds) == len(item.peer_seconds) == len(item.processor_seconds) == 3
    )
    assert item.rate == 10 / min(item.seconds)
    assert item.ratio == min(item.peer_seconds) / min(item.seconds)
    assert item.core_ratio == min(item.peer_processor_seconds) / min(
        item.processor_seconds
    )
    assert item.best_ratio == item.core_ratio


def test_repeats_that_scatter_are_noise() -> None:
    quiet = _compare(repeats=1)
    assert quiet.spread == 0.0
    assert not quiet.is_noise
    steady = dataclasses.replace(
        quiet, processor_seconds=(1.0, 1.2, 9.0), peer_processor_seconds=(1.0, 1.0)
    )
    assert steady.spread == pytest.approx(0.2)
    assert not steady.is_noise  # one slow repeat of three tells of the machine alone
    wild = dataclasses.replace(steady, peer_processor_seconds=(1.0, 1.3, 1.4))
    assert wild.is_noise
    assert wild.derived()["is_noise"]


def test_the_memory_of_a_call_is_what_it_takes_at_most() -> None:
    if not pathlib.Path("/proc/self/clear_refs").exists():
        pytest.skip("the system does not say")
    taken = harness._memory_of(lambda: np.ones(2**23).sum())
    assert taken is not None
    assert 0.98 * 2**26 <= taken < 2**27  # some pages of what was there may go
    assert harness._memory_of(lambda: 1) < 2**22  # type: ignore[operator]


def test_what_any_thread_compiles_in_the_first_call_is_counted() -> None:
    program, loop = jax.jit(lambda x: x * 3 + 1), numba.njit(lambda x: x + 1)
    given = iter([np.ones(5), np.ones(7), np.ones(5), np.ones(5)])

    def ours() -> None:
        values = jax.device_put(next(given))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(program, values).result()
            pool.submit(loop, 1).result()

    # the second call has a new shape
    item = harness.compare(ours, work=1.0, unit="x", repeats=2)
    assert item.compiled == {"xla": 1, "numba": 1}
    assert harness.compare(lambda: loop(2), work=1.0, unit="x").compiled == {
        "xla": 0,
        "numba": 0,
    }


def test_a_peer_that_does_less_work_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that ticks once a reading, every call takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    item = _compare(peer_work=1.0)
    assert (min(item.seconds), min(item.peer_seconds)) == (1.0, 10.0)
    assert (item.rate, item.ratio) == (10.0, 10.0)


def test_a_peer_in_another_process_is_timed_there() -> None:
    """Not by the seconds of a pipe, of the clock or of the processor."""
    told = iter([(9.0, 9.0), (2.0, 6.0), (3.0, 5.0)])

    def peer() -> harness.Answer:
        seconds, processor = next(told)
        return harness.Answer(seconds=seconds, cpu_seconds=processor, version="1.2")

    def ours() -> float:
        return sum(math.sqrt(number) for number in range(20_000))

    item = harness.compare(ours, peer, work=4.0, peer_work=2.0, unit="x", repeats=2)
    assert item.peer_seconds == (4.0, 6.0)
    assert item.peer_processor_seconds == (12.0, 10.0)
    assert item.core_ratio == pytest.approx(10.0 / min(item.processor_seconds))
    silent = harness.compare(
        ours,
        lambda: harness.Answer(seconds=2.0, cpu_seconds=None),
        work=1.0,
        unit="x",
        repeats=2,
    )
    assert silent.peer_seconds == (2.0, 2.0)
    assert silent.core_ratio is None


def test_first_calls_of_fresh_processes_are_repeats() -> None:
    ours, theirs = iter(range(9)), iter(range(9))
    item = harness.compare(
        lambda: next(ours),
        lambda: next(theirs),
        work=1.0,
        repeats=2,
        is_elsewhere=True,
    )
    # three calls of each side, and none for the memory
    assert (
        next(ours) == next(theirs) == len(item.seconds) == len(item.peer_seconds) == 3
    )
    assert item.seconds[0] == item.first_call_seconds


def test_ours_alone_is_checked_too() -> None:
    def check(found: int, nothing: None) -> None:
        assert nothing is None
        np.testing.assert_equal(found, 2)

    harness.compare(lambda: 2, work=1.0, unit="x", check=check, repeats=1)
    with pytest.raises(harness.ResultsDifferError, match="not equal"):
        harness.compare(lambda: 1, work=1.0, unit="x", check=check, repeats=1)


def test_records_are_json_lines_with_machine_and_time(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results" / "topic.jsonl"
    where = harness.machine()
    rows = [harness.row(_compare(), where, "2026-01-01T00:00:00+00:00")] * 3
    harness.record(rows[:2], path)
    harness.record(rows[2:], path)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == json.loads(json.dumps(rows))
    is_checkout = pathlib.Path(__file__).parents[2].joinpath(".git").exists()
    assert bool(found[0]["machine"]["commit"]) == is_checkout
    assert len(found[0]["seconds"]) == 3
    assert found[0]["machine"]["versions"]["jax"]
    assert found[0]["machine"]["cores"] >= 1
    assert found[0]["ratio"] > 0
