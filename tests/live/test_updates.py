"""The worst update after every sum, against answers by hand and against the batch function."""

from __future__ import annotations

import json
import math
import pathlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, privacy
from mrsa_jax.cli import main
from mrsa_jax.live import Recorder
from mrsa_watch import _updates
from mrsa_watch._command import main as watch_main
from mrsa_watch._updates import Updates

A = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]])


def _told(updates: Updates, P: np.ndarray) -> list[float | None]:
    found = []
    for j, row in enumerate(P):
        own = np.flatnonzero(row)
        found.append(updates.add(j, own.tolist(), row[own].tolist()).hidden)
    return found


@pytest.mark.parametrize(("share", "worst"), [(1.0, 527 / 980), (0.5, 333 / 656)])
def test_answers_by_hand(share: float, worst: float) -> None:
    """Three sums of four clients, memory 1/2.

    The last round's update of the third and fourth.
    """
    assert _told(Updates(0.5, share), A)[-1] == pytest.approx(1 / worst, rel=1e-12)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.99])
def test_after_every_sum_it_is_what_the_batch_function_says(memory: float) -> None:
    rng = np.random.default_rng(3)
    for share in (1.0, 0.4):
        P = rng.integers(0, 3, (9, 6)) * (rng.random((9, 6)) < 0.5)
        P[:, 5] = P[:, 4]  # mates
        P = P[(P != 0).sum(axis=1) > 1]
        for j, hidden in enumerate(_told(Updates(memory, share), P), start=1):
            expected = np.min(privacy.hidden_among(P[:j], memory=memory, share=share))
            assert hidden == pytest.approx(float(expected), rel=1e-9)


SCALES = [10**155, 10**160, 10**400, Fraction(1, 10**170), Fraction(1, 3**999)]


@pytest.mark.parametrize("scale", SCALES, ids=["155", "160", "400", "-170", "3**-999"])
def test_the_scale_of_weights_changes_nothing(scale: Any) -> None:
    """Weights whose squares, or which themselves, are no floats."""
    rows = [{"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 1}, {"b": 1, "c": 5, "d": 1}]
    plain, scaled = Updates(0.5, 0.9), Updates(0.5, 0.9)
    for number, row in enumerate(rows):
        weights = list(row.values())
        expected = plain.add(number, list(row), weights)
        found = scaled.add(number, list(row), [weight * scale for weight in weights])
        assert found == (pytest.approx(expected.hidden, rel=1e-12), expected.client)


def test_a_weight_that_vanishes_beside_another_keeps_its_client() -> None:
    updates = Updates(0.5)
    found = updates.add(0, ["a", "b"], [Fraction(1, 10**400), 1])
    assert found == (pytest.approx(1.0, abs=1e-12), "b")
    assert found.hidden > 1.0


def test_a_client_alone_is_exposed_and_stays_so() -> None:
    updates = Updates(0.9)
    assert updates.add(0, ["a", "b"]).hidden == pytest.approx(2.0)
    assert updates.add(1, ["c"]) == (1.0, "c")
    assert updates.add(2, ["a", "b", "c"]) == (1.0, "c")
    assert Updates(0.9).add(0, ["a", "b"], [1, 0]) == (1.0, "a")
    assert Updates(0.9).add(0, [], []).hidden is None


def test_parts_are_judged_apart_and_whole_sums_count_in_each() -> None:
    """Of part y the server knows {a, b, c} and then {a, b}.

    Stacked with x these would be more.
    """
    updates = Updates(0.5)
    updates.add(0, ["a", "b", "c"])
    assert updates.add(1, ["a", "b", "c"], part="x").hidden == pytest.approx(3.0)
    found = updates.add(1, ["a", "b"], part="y")
    alone = np.min(privacy.hidden_among([[1, 1, 1], [1, 1, 0]], memory=0.5))
    assert found.hidden == pytest.approx(float(alone))


def test_what_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = Updates(0.5)
    updates.add(0, ["a", "b"])
    assert updates.add(0, ["a", "c"]).hidden is None  # two sums of one round
    assert updates.add(1, ["a", "c"]).hidden is None
    near_one = Updates(0.999999)
    assert near_one.add(0, ["a", "b"]).hidden == pytest.approx(2.0)
    for j in range(1, 60):
        last = near_one.add(j, ["a", "b"] if j % 2 else ["b", "c"])
    assert last.hidden is None  # of sixty rounds floats know five digits
    monkeypatch.setattr(_updates, "_MOST_ENTRIES", 9)
    small = Updates(0.5)
    assert [small.add(j, ["a", "b"]).hidden is None for j in range(4)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1.0, 1.0), "`memory` must lie in"),
        ((math.nan, 1.0), "`memory` must lie in"),
        ((0.5, 2.0), "`share` must lie in"),
        ((None, 0.5), "`share` must be used together with memory"),
    ],
)
def test_numbers_that_make_no_sense(
    given: tuple[float | None, float], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        _updates.checked_updates(*given)


@pytest.mark.parametrize("run", [lambda words: main(words), watch_main])
def test_watch_tells_of_the_worst_update_and_judges_it(
    run: object, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    with Recorder(log, system="s", aggregation="secagg", salt=b"") as recorder:
        for j, row in enumerate(A):
            recorder.record(j, [f"c{i}" for i in np.flatnonzero(row)])
    words = ["watch", str(log), "--once", "--memory", "0.5"]
    metrics = tmp_path / "metrics"
    assert run([*words, "--json", "--metrics", str(metrics)]) == 0  # type: ignore[operator]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["update_hidden"] == pytest.approx(980 / 527)
    assert lines[-1]["update_client"] in ("c2", "c3")
    assert "mrsa_watch_update_hidden_among{" in metrics.read_text()
    # the bar is on updates that drift: those that never change would be exposed
    assert run([*words, "--fail-below-hidden", "1.8"]) == 0  # type: ignore[operator]
    assert "worst update hidden among 1.86" in capsys.readouterr().out
    assert run([*words, "--fail-below-hidden", "1.9"]) == 3  # type: ignore[operator]
    printed = capsys.readouterr().out
    assert printed.count("BREACH") == 1
    assert "if updates drift with memory 0.5, below 1.9" in printed
