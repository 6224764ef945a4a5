"""`mrsa-jax segments`: plans against the papers, rounds against each other, misuse."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import Any

import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.study import SegmentsConfig
from mrsa_jax.study.runs._segments import client_rates

EXAMPLE_5 = "--group-sizes 3 6 6 --group-levels 2 4 8 --subgroups 1 2 2"
SMALL = "--group-sizes 2 2 2 --group-levels 2 4 8 --dim 12"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["segments", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("flags", "bound"),
    [
        ("--segments sc", 771.3528888659841),
        ("--segments mc", 988.5915869580156),
        ("--segments hc --hybrid-threshold 2", 987.3820136741565),
        ("--segments hc --hybrid-threshold 3", 967.3004424059186),
    ],
)
def test_error_bounds_of_experiment_1(
    capsys: pytest.CaptureFixture[str], flags: str, bound: float
) -> None:
    """By another program, over (r2 - r1)^2, which is 1 at the default clip."""
    status, plan = run(capsys, *flags.split(), "--dim", "199210")
    assert status == 0
    assert plan["error_bounds"]["scheme"] == pytest.approx(bound, rel=1e-12)
    assert plan["error_bounds"]["slowest"] == pytest.approx(2490.125, rel=1e-12)
    assert plan["error_bounds"]["fastest"] == pytest.approx(20.579545454545, rel=1e-12)


def test_example_5_is_set_by_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """HeteroSAg, Section V-B: the matrix (15), and delta = .4."""
    status, plan = run(capsys, "--segments", "sc", *EXAMPLE_5.split())
    assert status == 0
    assert plan["matrix_as_printed"] == [
        "(0,0) (0,0)     *     *     *",
        "    * (1,0) (1,0)     *     *",
        "    *     * (1,1) (1,1)     *",
        "    *     *     * (2,0) (2,0)",
        "(0,0)     *     *     * (0,0)",
    ]
    assert plan["privacy_level"] == plan["claimed_privacy_level"] == "2/5"
    assert [group["num_clients"] for group in plan["groups"]] == [3] * 5
    assert [group["levels"] for group in plan["groups"]] == [2, 4, 4, 8, 8]
    assert len(plan["learned_segments"]) == 3


def test_a_level_that_the_paper_overstates_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--group-levels", *"234567", "--dim", "60"]
    assert main(["segments", *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Privacy level: 1/2; the server learns 3 of 6 segments" in text
    assert "The paper's theorem claims 2/3" in text


@pytest.mark.parametrize(
    "fidelity", ["sets", pytest.param("array", marks=pytest.mark.long), "real"]
)
def test_a_round_is_the_same_at_every_fidelity(
    capsys: pytest.CaptureFixture[str], fidelity: str
) -> None:
    words = [
        *SMALL.split(),
        "--fidelity",
        fidelity,
        "--combine",
        "median",
        "--seed",
        "3",
    ]
    status, plan = run(capsys, *words, "--step-dropout-rate", "0.05")
    round_ = plan["round"]
    assert status == (0 if round_["status"] == "OK" else 1)
    config = SegmentsConfig(
        group_sizes=(2, 2, 2),
        group_levels=(2, 4, 8),
        dim=12,
        fidelity="sets",
        combine="median",
        seed=3,
        step_dropout_rate=0.05,
    )
    same = mj.study.run(config).content["round"]
    alike = ("status", "survivors", "summed", "lonely", "squared_error")
    assert {name: round_[name] for name in alike} == {n: same[n] for n in alike}
    assert (round_["bytes"] is not None) == (fidelity == "real")


def test_a_round_without_a_sum_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL.split(), "--fidelity", "sets", "--step-dropout-rate", "1"]
    status, plan = run(capsys, *words)
    assert status == 1
    assert plan["round"]["status"] == "TOO_FEW_SURVIVORS"
    assert main(["segments", *words]) == 1
    assert "No sum was learnt." in capsys.readouterr().out


def test_a_mean_without_attack_is_within_the_error_of_rounding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "--group-sizes 8 8 --group-levels 4 8 --dim 4000 --fidelity sets"
    _, plan = run(capsys, *words.split())
    error = plan["round"]["squared_error"]
    # uniform values have two thirds of the variance of values halfway between levels
    assert error == pytest.approx(2 / 3 * plan["error_bounds"]["scheme"], rel=0.1)


def test_losses_are_those_of_round_rates(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--group-sizes", *"22222", "--trials", "300", "--combine", "trimmed"]
    status, plan = run(capsys, *words, "--step-dropout-rate", "0.05")
    assert status == 0
    layout = mj.hetero.segment_layout("mc", [2] * 5, [2, 4, 8, 10, 12], 10_000)
    rates = mj.hetero.round_rates(layout, 0.05, num_trials=300, trim=0.25)
    found = plan["losses"]
    assert found["levels"] == {str(level): n for level, n in rates.levels}
    assert found["tolerated"] == {str(most): n for most, n in rates.tolerated}
    assert found["no_sum"]["count"] == rates.no_sum.count
    assert main(["segments", *words, "--step-dropout-rate", "0.05"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Below the planned 4/5:" in text
    assert "of 300 rounds ended without a sum at q = 0.05 per step." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--fidelity real --trials 5", "`fidelity` must not be set with --trials"),
        ("--straggler-rate 0.1", "`straggler_rate` must not be set without --trials"),
        ("--attack scaling --num-byzantine 1", "`attack` must not be set without"),
        ("--step-dropout-rate 0.1", "`step_dropout_rate` must not be set without"),
        ("--threshold 3", "`threshold` must not be set without"),
        ("--threshold 21 --trials 5", "`threshold` must be at most the number"),
        ("--dim 4", "`dim` must be at least the number of segments"),
        ("--group-sizes 3 6 6", "`group_sizes` must be one number, at least 1"),
        ("--group-sizes 1 2 2 2 2", "`group_levels` must leave two clients"),
        ("--num-clients 1", "`num_clients` must be at least 2"),
        (f"{SMALL} --num-clients 7", "`group_sizes` must add up to the clients"),
        (f"{SMALL} --rate-boundaries 2 3", "must not be set with group_sizes"),
        ("--rate-boundaries 1 2 3", "must ascend, one fewer than `group_levels`"),
        ("--rate-boundaries 1 3 2 4", "must ascend, one fewer than `group_levels`"),
        ("--rate-boundaries 1 2 3 5", "must leave one of `client_rates` or more to"),
        ("--segments hc", "`hybrid_threshold` must be given for hc"),
        (
            "--fidelity sets --combine krum --attack scaling --num-byzantine 1",
            "krum needs",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert main(["segments", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_attack_within_the_tolerance_moves_the_median_little(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lies = "--fidelity sets --dim 500 --attack wrong_pads --byzantine-clients 19"
    errors = {}
    for rule in ("mean", "median"):
        _, plan = run(capsys, *lies.split(), "--combine", rule)
        errors[rule] = plan["round"]["squared_error"]
    assert plan["tolerated_byzantine"] == 1
    assert errors["median"] < errors["mean"]


@pytest.mark.parametrize("n", [12, 17, 33])
def test_groups_end_where_rates_do(capsys, n):
    words = f"--num-clients {n} --client-rates 1 2 3 4 4 --rate-boundaries 2 4"
    _, plan = run(capsys, *words.split(), "--group-levels", *"248", "--seed", "3")
    config = SegmentsConfig(client_rates=(1.0, 2.0, 3.0, 4.0, 4.0))
    rates = client_rates(3, config, n) / 1e6
    found = [group["num_clients"] for group in plan["groups"]]
    assert found == [
        int((rates < 2).sum()),
        int(((rates >= 2) & (rates < 4)).sum()),
        int((rates >= 4).sum()),
    ]
    assert [group["slowest_mbits"] for group in plan["groups"]] == [1.0, 2.0, 4.0]


@pytest.mark.long
def test_a_sweep_counts_what_the_command_counts(capsys, tmp_path):
    words = "--group-levels 2 4 8 --dim 12 --combine median --trials 200 --seed 5"
    study = tmp_path / "segments.toml"
    study.write_text(
        'command = "segments"\ncombine = "median"\ngroup_levels = [2, 4, 8]\n'
        "dim = 12\ntrials = 200\nseed = 5\n"
        "[grid]\nnum_clients = [6, 9]\nstep_dropout_rate = [0.0, 0.15]\n"
        'segments = ["sc", "mc"]\n'
    )
    assert main(["sweep", str(study), "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    with mj.study.open_study(tmp_path / "out") as results:
        assert bool(results["done"].all())
        for n, q, name in itertools.product((6, 9), (0.0, 0.15), ("sc", "mc")):
            cell = results.sel(num_clients=n, step_dropout_rate=q, segments=name)
            more = f"{words} --num-clients {n} --step-dropout-rate {q}".split()
            _, plan = run(capsys, "--segments", name, *more)
            losses = plan["losses"]
            levels = {Fraction(level): k for level, k in losses["levels"].items()}
            sums = 200 - losses["no_sum"]["count"]
            mean = sum(level * k for level, k in levels.items()) / sums
            for found, expected in (
                ("planned_level", Fraction(plan["privacy_level"])),
                ("privacy_level", min(levels)),
                ("mean_level", mean),
                ("below_plan_rate", losses["below_plan"]["rate"]),
                ("no_sum_rate", losses["no_sum"]["rate"]),
                ("error_bound", plan["error_bounds"]["scheme"]),
                ("expansion", max(group["expansion"] for group in plan["groups"])),
                ("planned_seconds", plan["round_seconds"]),
                ("tolerated_byzantine", min(map(int, losses["tolerated"]))),
                ("mean_summed", losses["mean_summed"]),
            ):
                assert float(cell[found]) == float(expected), found
    study.write_text('command = "segments"\ntrials = 9\n[grid]\nfidelity = ["sets"]')
    assert main(["sweep", str(study), "--dry-run"]) == 2
    assert "`fidelity` must not be set with --trials" in capsys.readouterr().err
