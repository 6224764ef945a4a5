"""A user's settings of floats, plotting and terminals change nothing that is found."""

from __future__ import annotations

import io
import json
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pytest
from rich.console import Console

import mrsa_jax as mj
from mrsa_jax import cli, plotting
from mrsa_jax.cli import console as consoles, tables
from mrsa_jax.plotting import saved, styles
from mrsa_watch._base.values import contents

P = np.random.default_rng(0).random((30, 20)) < 0.2
COINS = mj.availability.independent

# Each meets numbers too small, too large or undefined for floats.
FLOATS: dict[str, Callable[[], Any]] = {
    "account": lambda: mj.dp.account(
        mj.selection.bernoulli(50, 0.05), COINS(0.1), 99, 0.8, 1e-10
    ),
    "account of trials": lambda: mj.dp.account(
        mj.selection.uniform(24, 6), COINS(0.0), 50, 50.0, 1e-30, trials=50
    ),
    "amplification": lambda: mj.dp.amplification(24, 6, [1, 2, 3], 50, 1.0),
    "bounds": lambda: mj.secagg.reliability_bound(1000, 0.01, 0.4, 800),
    "distinguishability": lambda: mj.privacy.distinguishability(P, 1e-200, 1e-200, 0.0),
    "information": lambda: mj.privacy.information(P, 1e-8),
    "ledger": lambda: mj.dp.ledger(P, 0.1).epsilon(1e-300),
    "psnr": lambda: mj.attacks.psnr(np.zeros((1, 8, 8, 1)), np.zeros((1, 8, 8, 1))),
    "audit": lambda: mj.privacy.audit(P, effort=0.0),
    "study": lambda: mj.study.run(
        mj.study.SimulateConfig(
            rounds=3, trials=2, schemes=("uniform", "bernoulli:0.1")
        )
    ).to_dict(),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FLOATS)
def test_errors_of_floats_are_a_users_own(name: str) -> None:
    expected = FLOATS[name]()
    with np.errstate(all="raise"):
        assert contents(FLOATS[name]()) == contents(expected)
        with pytest.raises(FloatingPointError):  # outside of it, what was set holds
            np.exp(np.float64(-1e9))


# ---- Pictures.


def test_a_file_of_settings_changes_no_picture_and_a_program_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mpl.rc_context():
        with plotting.style():
            before = dict(mpl.rcParams)
        from_file: dict[Any, Any] = {"text.usetex": True, "axes.facecolor": "black"}
        for name, value in from_file.items():
            monkeypatch.setitem(cast(Any, mpl.rcParamsOrig), name, value)
            mpl.rcParams[name] = value
        with plotting.style():
            assert dict(mpl.rcParams) == before
        assert mpl.rcParams["text.usetex"]
        mpl.rcParams["axes.facecolor"] = "red"  # not as the file has it
        with plotting.style():
            assert mpl.rcParams["axes.facecolor"] == "red"
            assert not mpl.rcParams["text.usetex"]


def _fails(*values: Any, **options: Any) -> None:
    raise RuntimeError("no latex\nhere")


def test_a_picture_that_cannot_be_drawn_is_named(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    results = mj.study.run(
        mj.study.SimulateConfig(rounds=3, trials=2, schemes=("uniform",))
    )
    with monkeypatch.context() as changed:
        changed.setattr(saved, "_write", _fails)
        assert plotting.save_study_figures(results, tmp_path) == {}
    names = [record.getMessage().split()[1] for record in caplog.records]
    assert "fairness_gap" in names
    assert all(
        "(RuntimeError: no latex here)" in own.getMessage() for own in caplog.records
    )
    data = sorted(path.stem for path in tmp_path.glob("*.csv"))
    assert data == sorted(names)
    assert not list(tmp_path.rglob("*.png"))


def test_half_a_picture_is_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(drawn: Any, place: pathlib.Path, form: str) -> None:
        place.write_bytes(b"half")
        raise RuntimeError

    monkeypatch.setattr(saved, "_write", half)
    with pytest.raises(RuntimeError):
        plotting.save_figure(lambda ax: ax.plot([1]), tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [OSError("full"), mj.ConfigurationError("x"), MemoryError()]
)
def test_what_is_no_fault_of_drawing_is_raised(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)), saved.named_if_not_drawn("a"):
        fail()
    assert not caplog.records


@pytest.mark.long
def test_a_command_is_complete_without_its_pictures(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(saved, "_write", _fails)
    words = "simulate --rounds 3 --trials 2 --num-clients 6 --cohort-size 2 --schemes uniform"
    out = tmp_path / "out"
    with caplog.at_level(logging.WARNING):
        assert cli.main([*words.split(), "--json", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]
    assert (out / "report.html").is_file()
    assert mj.study.open_study(out).sizes["round"] == 3
    assert "figure fairness_gap could not be drawn" in caplog.text


@pytest.mark.long
def test_a_backend_that_there_is_not() -> None:
    code = (
        "import os, mrsa_jax as mj\n"
        "with mj.plotting.style():\n    import matplotlib\n"
        "print(os.environ['MPLBACKEND'], matplotlib.rcParams['figure.figsize'][0] > 0)"
    )
    for name in ("nosuch", "module://nosuch", "tkagg"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"MPLBACKEND": name},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == f"{name} True\n", done.stderr


def test_the_module_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "nosuch")
    assert styles._matplotlib() is mpl
    assert os.environ["MPLBACKEND"] == "nosuch"


# ---- Names.

NAMES = [
    "[bold]x[/]",
    "[/]",
    ":smile:",
    "[link=http://x]y[/link]",
    "a\\",
    "[red",
    "\\[bold]",
    "][",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_printed_as_they_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    tables.print_table(
        [name, "number"], [(name, "1"), (name, "2")], title=name, has_total=True
    )
    assert stream.getvalue().count(name) == 4
    consoles.print_words(consoles.output_console(), name)
    consoles.print_sentences(consoles.output_console(), [name])
    consoles.error_console().print(f"[bold red]error:[/] {consoles.escape(name)}")
    assert stream.getvalue().count(name) == 7


@pytest.mark.parametrize("name", NAMES)
def test_bars_show_names_as_they_are(name: str) -> None:
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, width=100, emoji=False, color_system=None
    )
    with consoles._board(console) as board:
        board.add_task(name, total=1, note=name)
    assert stream.getvalue().count(name) >= 2
