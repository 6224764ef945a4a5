"""Bits that follow from sums that expose nobody, and what is said of such claims."""

from __future__ import annotations

import itertools
import json
import pathlib

import numpy as np
import pytest

from mrsa_jax import privacy
from mrsa_jax.cli import main
from mrsa_watch import mrsa_check
from mrsa_watch.mrsa_check import KNOWN_RANGE, REALS

P = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1]])


def determined(sums: np.ndarray) -> int:
    """Return of how many clients all bits agree that have these sums."""
    every = np.array(list(itertools.product((0, 1), repeat=P.shape[1])))
    fitting = every[(every @ P.T == sums).all(axis=1)]
    return int((fitting == fitting[0]).all(axis=0).sum())


def test_bits_follow_from_sums_that_expose_nobody() -> None:
    """Over the reals nobody is exposed, and of these bits all six follow."""
    found = privacy.audit(P, effort=0)
    assert found.exposed == ()
    assert determined(P @ np.array([1, 1, 1, 0, 0, 1])) == 6
    said = found.sentences()
    assert (
        f"No client is exposed: no client's update follows from the sums {REALS}."
        in said
    )
    assert said.count(KNOWN_RANGE) == 1


@pytest.mark.parametrize("definition", ["weak", "strong"])
@pytest.mark.parametrize("target", [1, 2, 3])
def test_a_gate_that_passes_says_over_which_numbers(
    definition: str, target: int
) -> None:
    history = np.repeat(P, 2, axis=1)  # mates
    gate = privacy.audit(history, effort=0.01).gate(target, definition)  # type: ignore[arg-type]
    assert gate.passed == (target < 3 or definition == "weak")
    assert (REALS in gate.reason) == gate.passed


def test_exposed_clients_do_not_hide_the_sentence() -> None:
    assert KNOWN_RANGE in privacy.audit([[1, 1, 0], [1, 0, 0]], effort=0).sentences()


@pytest.mark.long
def test_certificate_checker_and_report_say_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{j},c{i}" for j, row in enumerate(P) for i in np.flatnonzero(row)]
    log, made = tmp_path / "log.csv", tmp_path / "made.json"
    log.write_text("round,client\n" + "\n".join(rows) + "\n")
    words = [
        "audit",
        str(log),
        "--effort",
        "0",
        "--certificate",
        str(made),
        "--fail-below",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert KNOWN_RANGE in printed
    assert f"PASSED: weak T is 3 {REALS}, at least 2" in printed
    unproven = json.loads(made.read_text())["no short proof"]
    assert any("whole numbers of a known range" in one for one in unproven)
    assert mrsa_check.main([str(made), str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith(f"6 clients are not exposed {REALS}") for line in lines)
    assert lines[-1] == f"note: {KNOWN_RANGE}"
    assert main(["report", str(tmp_path / "out")]) == 0
    assert f"so far, {REALS}" in (tmp_path / "out" / "report.html").read_text()
