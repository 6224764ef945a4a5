"""What is measured of a training, from times made up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mrsa_jax import Status
from mrsa_jax._core.memory import bytes_in_words
from mrsa_jax.cli import Bars
from mrsa_jax.study import Progress
from mrsa_jax.study._progress import Meter, Notes, Silent, performance_words


class _Watcher:
    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def stage(self, name: str, total: int) -> None:
        self.said.append((name, total))

    def update(self, done: int, total: int) -> None:
        self.said.append((done, total))

    def note(self, text: str) -> None:
        self.said.append((text,))

    def say(self, text: str) -> None:
        self.said.append((text,))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give a clock whose only entry is the time."""
    now = [100.0]
    monkeypatch.setattr("mrsa_jax.study._progress.time.perf_counter", lambda: now[0])
    return now


def test_the_first_round_of_a_process_is_left_out_of_the_rates(
    clock: list[float],
) -> None:
    """Resumed after 2 of 6 rounds; rounds 3 to 6 end at 130, 131, 133 and 134 seconds."""
    watcher = _Watcher()
    meter = Meter(watcher, np.array([4, 4, 4, 2, 3, 4]))
    for done, when in ((3, 130.0), (4, 131.0), (5, 133.0), (6, 134.0)):
        clock[0] = when
        if done == 5:
            meter.note_test({"step": 7, "accuracy": 0.875, "loss": 0.5})
            meter.note_test({"step": 8})
        meter.update(done, 6)
    status = np.full(9, Status.OK, np.int32)
    status[:3], status[5] = Status.SKIPPED, 3
    record = meter.record(status, 2**20)
    assert record["resumed_after_rounds"] == 2
    assert (
        record["rounds_trained"],
        record["rounds_skipped"],
        record["rounds_failed"],
    ) == (
        6,
        3,
        1,
    )
    assert record["first_round_seconds"] == 30.0
    assert record["training_seconds"] == 34.0
    assert record["seconds_per_round"] == 1.0  # the median of 1, 2, 1
    assert record["updates_per_second"] == 2.25  # 2 + 3 + 4 in 4 seconds
    assert record["stated_peak_bytes"] == 2**20
    assert watcher.said[0:2] == [("",), (3, 6)]
    assert watcher.said[4:6] == [("87.5 % right, 1.67 updates/s",), (5, 6)]
    words = performance_words(
        record | {"peak_process_bytes": 2**30, "peak_device_bytes": None}
    )
    assert words == (
        "6 rounds trained, 3 skipped, 1 failed (the first 2 by an earlier process); 1 "
        "s per round, "
        "2.25 clients' updates per second; memory: 1 MiB stated for training, "
        "1 GiB at most (whole process)"
    )


def test_a_training_of_no_rounds_has_no_rates(clock: list[float]) -> None:
    record = Meter(Silent(), np.zeros(0, np.int64)).record(
        np.full(4, Status.SKIPPED), 5
    )
    assert (record["rounds_trained"], record["rounds_skipped"]) == (0, 4)
    for name in ("first_round_seconds", "seconds_per_round", "updates_per_second"):
        assert record[name] is None
    assert "a round" not in performance_words(record)


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 MiB"), (3 * 2**19, "1.5 MiB"), (5 * 2**29, "2.5 GiB")]
)
def test_bytes_are_given_in_a_unit_that_fits(number: int, words: str) -> None:
    assert bytes_in_words(number) == words


def test_where_there_is_no_terminal_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("mrsa_jax.cli.console.time.perf_counter", lambda: now[0])
    with Bars() as bars:
        assert isinstance(bars, Progress)
        assert isinstance(bars, Notes)
        assert not isinstance(Silent(), Notes)
        bars.stage("Random: training", 50)
        for done in range(1, 51):
            now[0] = 3.0 * done
            bars.note("90.0 % right")
            bars.update(done, 50)
    device, *lines = capsys.readouterr().err.splitlines()
    assert device.startswith("device: ")
    assert lines[0] == "[   0.0 s] Random: training (50)"
    # each 20 seconds, so each 7 rounds of 3 seconds
    assert lines[1] == "[  21.0 s] Random: training: 7 of 50, 129 s left, 90.0 % right"
    assert len(lines) == 1 + 50 // 7
