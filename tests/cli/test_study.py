"""How a study is shown while it is on its way, and what its terminal says meanwhile."""

from __future__ import annotations

import io
import pathlib
import re
import sys
import types
from typing import Any

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from mrsa_jax.cli import Bars, _study, console
from mrsa_jax.cli._study import sparkline
from mrsa_jax.study import DemoConfig, TrainConfig
from mrsa_jax.study.publishing._report import table_of
from mrsa_jax.study.publishing._summary import Row

NAN = float("nan")


def _row(scheme: str, accuracy: float | None = None, error: float | None = None) -> Row:
    return Row(
        scheme=scheme,
        strong_privacy=1,
        rank=3.0,
        num_clients=4,
        guaranteed_privacy=1,
        exposed_clients=4.0,
        first_exposed_after=3,
        all_exposed_after=3,
        fairness_gap=0.25,
        aggregation_cardinality=2.0,
        expected_cardinality=None,
        cardinality_error=None,
        skipped_rounds=0.0,
        accuracy=accuracy,
        reconstruction_error=error,
        hidden_among_worst=1.0,
        hidden_among_median=2.0,
    )


def _saved(*rows: Row, worst: Any = ((2.0, 1.5, 1.0), (NAN, 2.0, 2.0))) -> Any:
    results = xr.Dataset(
        {"hidden_among_worst": (("scheme", "round"), np.asarray(worst))}
    )
    sentences = ("The server knows.", "It costs.")
    return types.SimpleNamespace(
        rows=rows,
        table=table_of(rows),
        results=results,
        sentences=sentences,
        reading="Read.",
        out=pathlib.Path("here"),
        performance={row.scheme: "so fast" for row in rows},
    )


@pytest.mark.parametrize(
    ("values", "most", "bars"),
    [
        ([12.0, 6.0, 1.0], 12.0, "█▄▁"),
        ([NAN, 1.0, 2.0], 2.0, " ▁█"),
        ([1.0, 1.0], 1.0, "▁▁"),  # nobody was ever hidden
        ([float("inf"), 3.0], 3.0, "██"),
        ([], 3.0, ""),
    ],
)
def test_a_sparkline_goes_from_the_exposed_to_the_best_hidden(
    values: list[float], most: float, bars: str
) -> None:
    assert sparkline(values, most) == bars


def test_curves_share_a_scale_and_end_with_the_last_round() -> None:
    path = np.ones((2, 40))
    path[0, 0], path[0, -1], path[1, :] = 8.0, 4.0, NAN
    results = xr.Dataset({"hidden_among_worst": (("scheme", "round"), path)})
    assert _study._curves(results) == ["█▁▁▁▁▄", " " * 6]
    trials = xr.concat([results, 0 * results + 1.0], "trial")
    assert _study._curves(trials)[0] == "▁" * 6  # the worst of all trials


def test_elsewhere_than_on_a_terminal_lines_come_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show = _study._as_it_comes(DemoConfig(schemes=("uniform", "partition", "weighted")))
    with Bars(device=False) as bars:
        assert not bars.is_live
        worst = np.ones((3, 3))
        rows = [_row("A"), _row("B"), _row("C")]
        show(_saved(*rows, worst=worst), bars)
        first = capsys.readouterr().out
        assert first.startswith("The server knows.\n")
        assert "Accuracy" not in first
        assert "It costs" not in first
        assert "▁▁▁ 1 / 2" in first
        rows[0] = _row("A", 0.5, 0.01)
        show(_saved(*rows, worst=worst), bars)
        told = "A: 50.0 % accuracy, error 0.01 if updates never changed\n"
        assert capsys.readouterr().out == told
        rows[1] = _row("B", 0.25)
        show(_saved(*rows, worst=worst), bars)
        assert capsys.readouterr().out == "B: 25.0 % accuracy\n"
        rows[2] = _row("C", 0.75)
        show(_saved(*rows, worst=worst), bars)
        assert capsys.readouterr().out == ""  # the whole table comes next


def test_a_training_of_one_scheme_says_how_fast_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _study._print(DemoConfig(), _saved(_row("A", 0.5), _row("B", 0.5)))
    many = capsys.readouterr().out
    assert "so fast" not in many  # that is in the page
    assert (
        many.index("50.0 %") < many.index("The server knows.") < many.index("It costs.")
    )
    _study._print(TrainConfig(), _saved(_row("A", 0.5), worst=[[2.0, 1.0]]))
    assert "so fast" in capsys.readouterr().out


def _terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr(
        console,
        "error_console",
        lambda: Console(file=screen, force_terminal=True, width=150, soft_wrap=True),
    )
    return screen


def test_on_a_terminal_the_table_fills_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = _terminal(monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    show = _study._as_it_comes(DemoConfig(schemes=("uniform", "partition")))
    with Bars(device=False, show=show) as bars:
        assert bars.is_live
        bars.found(_saved(_row("A"), _row("B")))
        bars.stage("A: training", 1)
        bars.update(1, 1)
        long = _saved(_row("A", 0.5), _row("B"))
        long.sentences = ("so many words " * 40 + "to the end.",)
        bars.found(long)
        bars.stage("B: training", 1)
        assert [task.description for task in bars._bars.tasks] == ["B: training"]
        bars.rest()
        last = len(screen.getvalue())
    drawn = screen.getvalue()
    assert "The server knows." in drawn
    lines = (
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r", "\n").splitlines()
    )
    assert max(map(len, lines)) <= 150  # a longer one would move what is drawn in place
    assert "to the end." in drawn
    assert "50.0 %" in drawn
    assert bars._bars.above is None  # it is printed whole where results go
    assert len(drawn) == last


def test_what_goes_to_a_file_is_not_drawn_among_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = _terminal(monkeypatch)
    show = _study._as_it_comes(DemoConfig(schemes=("uniform", "partition")))
    with Bars(device=False, show=show) as bars:
        assert not bars.is_live
        bars.stage("A: training", 1)
        bars.found(_saved(_row("A"), _row("B")))
    assert "The server knows." in capsys.readouterr().out
    assert "The server knows." not in screen.getvalue()


def test_a_terminal_is_never_still(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _terminal(monkeypatch)
    with Bars(device=False) as bars:

        def moving() -> list[str]:
            return [task.description for task in bars._bars.tasks if not task.finished]

        assert moving() == ["starting"]
        bars.stage("work", 2)
        bars.update(1, 2)
        assert moving() == ["work"]
        bars.update(2, 2)
        assert moving() == ["..."]
        bars.stage("more", 1)
        assert moving() == ["more"]
        bars.rest()
        bars.go_on("writing")
        assert moving() == ["writing"]
        assert len(bars._bars.tasks) == 1
    assert "starting" in screen.getvalue()
    assert "writing" in screen.getvalue()
