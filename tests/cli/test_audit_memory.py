"""`mrsa-jax audit --memory`.

The update of any one round, against cases that were done by hand.
"""

from __future__ import annotations

import csv
import json
import pathlib
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import xarray as xr

from mrsa_jax.cli import main

A = [[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]]
NESTED = [[1, 1, 1, 1, 0], [1, 1, 1, 0, 1], [0, 0, 0, 1, 1]]
HALF = ["--memory", "0.5"]
# 1/h of each client's worst update: A, and A with half of the variance fresh
DRIFTS = [F(245, 88), F(245, 88), F(980, 527), F(980, 527)]
MIXED = [F(492, 167), F(492, 167), F(656, 333), F(656, 333)]


def audit(
    capsys: pytest.CaptureFixture[str], path: pathlib.Path, *words: str, status: int = 0
) -> Any:
    assert main(["audit", str(path), "--effort", "0", "--json", *words]) == status
    return json.loads(capsys.readouterr().out)


def saved(folder: pathlib.Path, rows: Any) -> pathlib.Path:
    path = folder / "log.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("rows", "flags", "expected"),
    [
        (A, HALF, DRIFTS),
        (A, [*HALF, "--share", "0.5"], MIXED),
        (A, ["--memory", "0"], [F(3), F(3), F(2), F(2)]),
        (A, ["--memory", "1"], [F(2), F(2), F(1), F(1)]),
        (
            [[1, 2, 1], [1, 2, 0]],
            [*HALF, "--layout", "matrix"],
            [F(5), F(5, 4), F(19, 4)],
        ),
        ([[1, 1], [1, 0]], HALF, [F(1), F(7, 4)]),
        (NESTED, HALF, [F(213, 56)] * 3 + [F(568, 301)] * 2),
        (NESTED, [*HALF, "--coalition", "0"], DRIFTS),
    ],
)
def test_known_answers(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    rows: Any,
    flags: list[str],
    expected: list[F],
) -> None:
    found = audit(capsys, saved(tmp_path, rows), *flags)["hidden_among_updates"]
    assert found["least"] == pytest.approx(float(min(expected)), rel=1e-9)
    assert (found["least"] == 1) == (min(expected) == 1)
    assert found["median"] == pytest.approx(float(np.median(np.array(expected, float))))
    others = sorted(float(size) for size in expected if size > 1)
    assert [one["hidden_among"] for one in found["worst"]] == pytest.approx(others[:5])


@pytest.mark.parametrize(
    ("bar", "flags", "status"),
    [
        ("1.8", HALF, 0),
        ("1.9", HALF, 3),
        ("1.8", [], 3),
        ("1.9", [*HALF, "--share", "0.5"], 0),
    ],
)
def test_the_gate_is_of_what_the_memory_says(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    bar: str,
    flags: list[str],
    status: int,
) -> None:
    """The clients that are exposed if updates never change are hidden among 1.86 and 1.97."""
    path = saved(tmp_path, A)
    gate = audit(capsys, path, *flags, "--fail-below-hidden", bar, status=status)[
        "gate_hidden"
    ]
    assert gate["passed"] == (status == 0)
    assert ("if updates drift with memory 0.5" in gate["reason"]) == bool(flags)


def test_what_floats_do_not_know_passes_no_gate(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = np.ones((100, 4), np.bool_)
    # no two clients have equal columns
    history[0, 0] = history[1, 1] = history[2, 2] = False
    np.save(tmp_path / "log.npy", history)
    words = (tmp_path / "log.npy", "--memory", "0.999999", "--fail-below-hidden", "1")
    found = audit(capsys, *words, status=3)
    assert "is not known to six digits" in found["gate_hidden"]["reason"]
    assert found["hidden_among_updates"]["least"] is None
    np.save(tmp_path / "log.npy", np.ones((100, 3), np.bool_))
    found = audit(capsys, *words, status=0)
    assert "every client is hidden among at least 3" in found["gate_hidden"]["reason"]
    assert found["hidden_among"]["least"] == pytest.approx(3)


def test_sums_of_one_round_are_of_one_update(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: two sums of round 1 and one of round 2.

    As three rounds they would tell less.
    """
    rows = [("1", "x", "ab"), ("1", "y", "bc"), ("2", "x", "abc")]
    lines = [f"{r},{part},{client}" for r, part, who in rows for client in who]
    (tmp_path / "log.csv").write_text("\n".join(("round,group,client", *lines)) + "\n")
    path, flags = tmp_path / "log.csv", (*HALF, "--sum-columns", "group")
    least = audit(capsys, path, *flags)["hidden_among_updates"]["least"]
    assert least == pytest.approx(28 / 19)


@pytest.mark.long
def test_it_is_said_kept_and_drawn(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = saved(tmp_path, A), tmp_path / "out"
    assert main(["audit", str(path), "--effort", "0", *HALF, "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "worst client hidden among 1 (client 2) float64, if updates never changed"
        in said
    )
    assert (
        "update of one round, worst client among 1.86 (client 2) float64, if updates "
        "dri" in said
    )
    assert (
        "The update of one round, if updates drift with memory 0.5 and clients are "
        "alike" in said
    )
    with (out / "clients.csv").open(newline="") as stream:
        sizes = [float(row["update_hidden_among"]) for row in csv.DictReader(stream)]
    assert sizes == pytest.approx([float(size) for size in DRIFTS])
    with (out / "rounds.csv").open(newline="") as stream:
        path_ = [float(row["update_hidden_worst"]) for row in csv.DictReader(stream)]
    # after two rounds M = [[3, 1], [1, 3]], and c = (1, 0) of a client in one of them
    assert path_ == pytest.approx([3, 8 / 3, 980 / 527])
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Worst hidden updates" in page
    assert "if updates drift with memory 0.5" in page


def test_drift_is_read_where_a_training_left_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two schemes the largest memory and share: what changes less is hidden worse."""
    run, names = tmp_path / "run", np.array(["one", "two"])
    run.mkdir()
    (run / "study.json").write_text(json.dumps({"schema": 1, "config_hash": "0"}))
    own = {
        "update_memory": ("scheme", [0.5, 0.4]),
        "update_lasting": ("scheme", [0.3, 0.5]),
    }
    results = xr.Dataset(own, {"scheme": names})
    results.to_zarr(run / "results.zarr", consolidated=False, zarr_format=2)
    path = saved(tmp_path, A)
    found = audit(capsys, path, "--drift", str(run))["hidden_among_updates"]
    assert (found["memory"], found["share"]) == (0.5, 0.5)
    assert found["least"] == pytest.approx(float(MIXED[2]))
    results.drop_vars(list(own)).to_zarr(
        run / "results.zarr", mode="w", consolidated=False, zarr_format=2
    )
    for folder in (run, tmp_path):
        assert main(["audit", str(path), "--drift", str(folder)]) == 2
        told = capsys.readouterr().err
        assert (
            "`drift` must be the folder of a training that measured how updates drift"
            in told
        )
