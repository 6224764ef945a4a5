"""`mrsa-jax secagg`.

Misuse, rounds at each fidelity, what is said of them, failure studies.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.study import SecaggConfig
from mrsa_jax.study.secagg import Setting

SMALL = ["--num-clients", "8", "--dim", "6"]
STEPS = ["advertise keys", "share keys", "masked input", "unmask"]


def _run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(["secagg", *words])
    return status, capsys.readouterr().out


def _json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    _, printed = _run([*SMALL, *words, "--json"], capsys)
    return json.loads(printed, parse_constant=refuse)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-clients", "1"], "`num_clients` must be at least 2; got 1"),
        (["--dim", "0"], "`dim` must be at least 1; got 0"),
        (["--seed", "-1"], "`seed` must be at least 0; got -1"),
        (["--trials", "0"], "`trials` must be at least 1; got 0"),
        (["--threshold", "0"], "`threshold` must be at least 1; got 0"),
        (
            ["--step-dropout-rate", "1.5"],
            "`step_dropout_rate` must lie in [0, 1]; got 1.5",
        ),
        (
            ["--step-dropout-rate", "nan"],
            "`step_dropout_rate` must lie in [0, 1]; got nan",
        ),
        (
            ["--dropped-before-unmasking", "-0.1"],
            "`dropped_before_unmasking` must lie in [0, 1]",
        ),
        (["--modulus-bits", "33"], "`modulus_bits` must lie in [1, 32]; got 33"),
        (
            ["--modulus", "1"],
            "`modulus` must be a power of two from 2 to 2**32 or any integer",
        ),
        (["--modulus", "7", "--modulus-bits", "3"], "`modulus` must not be set if"),
        (
            ["--connection-probability", "0.5"],
            "must not be set unless `graph` is erdos_renyi; got",
        ),
        (
            ["--graph", "erdos_renyi", "--connection-probability", "0"],
            "`connection_probability` must lie in (0, 1]; got 0.0",
        ),
        (["--graph", "harary"], "`degree` must be given for harary and random_regular"),
        (
            ["--degree", "3"],
            "`degree` must be given for harary and random_regular, and for no",
        ),
        (["--graph", "harary", "--degree", "8"], "`degree` must lie in [0, 7]"),
        (["--up-mbits", "0"], "`up_mbits` must be positive; got 0.0"),
        (["--compute-slowdown", "inf"], "`compute_slowdown` must be positive; got inf"),
        (
            ["--trials", "5", "--fidelity", "real"],
            "`fidelity` must be sets with --trials",
        ),
        (
            ["--trials", "5", "--dropped-before-unmasking", "0.2"],
            "must not be set with --trials",
        ),
        (
            ["--trials", "5", "--up-mbits", "2"],
            "`up_mbits` must not be set with --trials",
        ),
        # p* of 8 clients is 1.44: say what to do about it
        (
            ["--graph", "erdos_renyi"],
            "must be given (or the clients be more, or --graph complete)",
        ),
        (
            ["--graph", "erdos_renyi", "--step-dropout-rate", "0.3"],
            "needs 3 clients and a total dropout rate below 0.5; got 8 and 0.7599",
        ),
        # 2 t = 8 <= 7 + 1 for all 8
        (
            ["--threshold", "4"],
            "`threshold` must be at least 5 in this graph, or CCESA's App",
        ),
        (["--threshold", "4"], "8 of 8 (--allow-unmasking-risk accepts that); got 4"),
        (
            ["--consistency", "--trials", "9"],
            "`consistency` must not be set with --trials",
        ),
        (
            ["--threshold", "4", "--trials", "9"],
            "`threshold` must be at least 5, or CCESA's App",
        ),
    ],
)
def test_misuse_is_answered_with_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["secagg", *SMALL, *flags]) == 2
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split())
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "words", [["--graph", "star"], ["--fidelity", "fake"], ["--dim", "x"]]
)
def test_flags_that_do_not_parse(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["secagg", *words]) == 2
    assert capsys.readouterr().err


@pytest.mark.long
def test_one_round_at_three_fidelities(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything but times is the same.

    Bytes are those of real messages by their formats.
    """
    words = ["--dropped-before-unmasking", "0.25"]
    real, array, sets = (
        _json([*words, "--fidelity", name], capsys)
        for name in ("real", "array", "sets")
    )
    times = ("client_seconds", "server_seconds")
    for found in (real, array, sets):
        assert found["status"] == "OK"
        assert found["survivors"] == [8, 8, 8, 6, 6]
        assert found["threshold"] == 5
        assert found["modulus"] == 2**16
        assert found["num_edges"] == 28
        assert [step["name"] for step in found["steps"]] == STEPS
        assert [step["num_clients"] for step in found["steps"]] == [8, 8, 6, 6]
        # a header of 8 bytes, an id of 4 and two keys of 32 bytes; 12 more and the
        # residues
        assert found["steps"][0]["bytes_up"] == 8 * (8 + 4 + 64)
        assert found["steps"][2]["bytes_up"] == 6 * (8 + 4 + 4 + 2 * 6)
        assert found["bytes"]["fedavg"] == 6 * 2 * 6
        assert found["bytes"]["round"] == found["bytes"]["complete_graph"]
        (learned,) = found["learned"]
        assert len(learned) == 6
    assert real["total_is_plain_sum"] is array["total_is_plain_sum"] is True
    assert sets["total_is_plain_sum"] is None
    assert all(step[name] is None for step in sets["steps"] for name in times)
    assert all(step[name] >= 0 for step in real["steps"] for name in times)
    for found in (real, array, sets):
        for step in found["steps"]:
            for name in times:
                step.pop(name)
        found.pop("fidelity")
        found.pop("total_is_plain_sum")
    assert real == array == sets


def test_the_table_and_what_is_said_below(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--dropped-before-unmasking", "0.25", "--fidelity", "sets"]
    status, printed = _run([*words, "--up-mbits", "1"], capsys)
    assert status == 0
    said = " ".join(printed.split())
    places = [said.index(step) for step in STEPS]
    assert places == sorted(places)
    # the last row adds the steps up
    whole = _json(words[len(SMALL) :], capsys)["bytes"]["round"]
    numbers = said.split("all four")[1].split()
    # after "not measured" twice
    up, down = (int(word.replace(",", "")) for word in numbers[4:6])
    assert up + down == whole
    for part in (
        "8 clients, complete graph (SecAgg), t = 5",
        "28 edges, 6 residues modulo 2**16, fidelity sets, seed 0",
        "not measured",
        "OK: the sum was learnt.",
        "A curious server learns the sum over 6 clients, and of no part of them.",
        "Reliable (Theorem 1): yes. Private (Theorem 2): yes.",
        "times those of a plain sum",
        "Modelled at 1 Mbit/s:",
    ):
        assert part in said


def test_a_graph_that_falls_apart_leaks_sums_of_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With t = 1 each part's sum is learnt; a client without neighbours is exposed."""
    words = [
        "--graph",
        "erdos_renyi",
        "--connection-probability",
        "0.1",
        "--threshold",
        "1",
        "--allow-unmasking-risk",
        "--fidelity",
        "sets",
    ]
    found = _json(words, capsys)
    assert found["status"] == "OK"
    assert found["is_private"] is False
    assert found["clients_at_unmasking_risk"] > 0
    assert sorted(i for part in found["learned"] for i in part) == list(range(8))
    alone = [part[0] for part in found["learned"] if len(part) == 1]
    assert alone
    assert len(found["learned"]) > 1
    _, printed = _run([*SMALL, *words], capsys)
    said = " ".join(printed.split())
    assert f"learns {len(found['learned'])} sums over part of the 8 clients" in said
    assert f"exposed are the inputs of: {', '.join(map(str, alone))}." in said


@pytest.mark.long("array")
@pytest.mark.parametrize("fidelity", ["real", "array", "sets"])
def test_rounds_that_fail_leave_with_1(
    fidelity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half are lost, so that four shares come back and five are needed; then all are."""
    words = [*SMALL, "--fidelity", fidelity]
    status, printed = _run([*words, "--dropped-before-unmasking", "0.5"], capsys)
    assert status == 1
    assert "UNRELIABLE: too few shares came back" in printed
    assert "A curious server learns nothing." in printed
    status, printed = _run([*words, "--dropped-before-unmasking", "1"], capsys)
    assert status == 1
    assert "TOO_FEW_SURVIVORS: fewer than two padded inputs arrived" in printed


def test_a_wrong_total_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = mj.secagg.aggregate

    def off_by_one(*arguments: Any, **options: Any) -> mj.secagg.AggregateResult:
        result = honest(*arguments, **options)
        wrong = (result.total + np.uint32(1)) % np.uint32(2**16)
        return dataclasses.replace(result, totals=(wrong,))

    monkeypatch.setattr(mj.secagg, "aggregate", off_by_one)
    status, printed = _run([*SMALL, "--fidelity", "array"], capsys)
    assert status == 1
    assert "The total is the plain sum: NO." in printed


def test_the_default_threshold_of_each_graph() -> None:
    def threshold(**flags: Any) -> int:
        return Setting.of(SecaggConfig(num_clients=100, **flags)).threshold

    assert threshold() == 51
    assert threshold(graph="harary", degree=20) == 11  # 21 holders
    assert threshold(graph="random_regular", degree=7) == 5  # 8 holders
    setting = Setting.of(SecaggConfig(num_clients=100, graph="erdos_renyi"))
    assert setting.threshold == 43  # the paper's Table 2, as p
    assert setting.chance == pytest.approx(0.6362, abs=5e-5)
    assert setting.is_default_chance


def test_the_total_dropout_rate_is_that_of_both_kinds_of_loss() -> None:
    config = SecaggConfig(
        num_clients=100, step_dropout_rate=0.01, dropped_before_unmasking=0.1
    )
    assert Setting.of(config).total_dropout_rate == pytest.approx(1 - 0.99**4 * 0.9)


@pytest.mark.long
def test_a_round_is_trial_0_of_the_study() -> None:
    """The same graph and the same losses, hence the same verdict."""
    for seed in range(12):
        config = SecaggConfig(
            num_clients=12,
            graph="erdos_renyi",
            connection_probability=0.3,
            threshold=3,
            step_dropout_rate=0.08,
            seed=seed,
        )
        setting = Setting.of(config)
        found = mj.secagg.failure_rates(seed, 12, 0.3, 0.08, 3, num_trials=1)
        graph, alive = setting.adjacency(), setting.survivors()
        assert found.unreliable.count == (not mj.secagg.is_reliable(graph, alive, 3))
        assert found.mean_survivors == alive[3].sum()


def test_who_is_lost_is_drawn_from_those_who_shared_keys() -> None:
    drawn = set()
    for seed in range(4):
        config = SecaggConfig(
            num_clients=20,
            step_dropout_rate=0.1,
            dropped_before_unmasking=0.25,
            seed=seed,
        )
        plain = SecaggConfig(num_clients=20, step_dropout_rate=0.1, seed=seed)
        with_loss, without = (Setting.of(c).survivors() for c in (config, plain))
        np.testing.assert_array_equal(with_loss[:3], without[:3])
        lost = without[2] & ~with_loss[3]
        assert lost.sum() >= 5
        assert (with_loss[1:] <= with_loss[:-1]).all()
        drawn.add(tuple(np.flatnonzero(lost)))
    assert len(drawn) > 1


def test_any_ring(capsys: pytest.CaptureFixture[str]) -> None:
    for words, modulus in (
        (["--modulus", "37"], 37),
        (["--modulus-bits", "32"], 2**32),
    ):
        found = _json(words, capsys)
        assert found["modulus"] == modulus
        assert found["total_is_plain_sum"] is True


def test_modelled_seconds_grow_with_slower_links(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--fidelity", "sets", "--graph", "harary", "--degree", "2"]
    fast = _json([*words, "--up-mbits", "10"], capsys)["modelled_seconds"]
    slow = _json([*words, "--up-mbits", "0.001"], capsys)["modelled_seconds"]
    busy = _json([*words, "--up-mbits", "10", "--compute-slowdown", "1e4"], capsys)
    assert len(fast["steps"]) == 4
    assert sum(fast["steps"]) < fast["complete_graph"] < slow["complete_graph"]
    assert sum(fast["steps"]) < sum(slow["steps"])
    assert sum(fast["steps"]) < sum(busy["modelled_seconds"]["steps"])
    # the residues alone: 12 bytes and headers at 125 bytes a second
    assert slow["fedavg"] == pytest.approx(12 / 125 + 4 * 0.05, rel=0.01)


@pytest.mark.long
def test_a_failure_study_with_bounds_and_rare_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "--num-clients",
        "40",
        "--graph",
        "erdos_renyi",
        "--connection-probability",
        "0.9",
        "--step-dropout-rate",
        "0.01",
        "--trials",
        "300",
    ]
    found = _json(words, capsys)
    assert found["trials"] == 300
    for rate in found["rates"].values():
        assert rate["trials"] == 300
        assert rate["rate"] == rate["count"] / 300
        assert rate["lower"] <= rate["rate"] <= rate["upper"]
    bounds = found["log10_bounds"]
    assert bounds["not_private_theorem_6"] == pytest.approx(
        mj.secagg.privacy_bound(40, 0.9, 0.01) / math.log(10)
    )
    chance, lost = 10 ** bounds["no_sum_first_moment"], 1 - 0.99**3
    too_few = lost**40 + 40 * lost**39 * (1 - lost)
    assert chance == pytest.approx(10 ** bounds["unreliable_first_moment"] + too_few)
    assert bounds["disconnected_exact"] <= bounds["not_private_theorem_6"]
    assert bounds["unreliable_union"] <= bounds["unreliable_theorem_5"]
    assert found["rates"]["not_private"]["count"] == 0
    rare = found["rare"]["not_private"]
    assert rare["log10_lower"] <= rare["log10_rate"] <= rare["log10_upper"] < -30
    assert rare["log10_rate"] <= bounds["not_private_theorem_6"]
    status, printed = _run(words, capsys)
    said = " ".join(printed.split())
    assert status == 0
    assert "Theorem 6 10^-" in said
    assert "Chance of a round that is not private, too rare to count: 10^-" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--step-dropout-rate", "1"],
            "50 of 50 rounds ended without a sum, 50 of them with fewer than two "
            "inputs.",
        ),
        (
            ["--step-dropout-rate", "0.5", "--threshold", "8"],
            "50 of 50 rounds ended without a sum",
        ),
        (
            ["--step-dropout-rate", "0.001"],
            "Chance of a round without a sum: at most 10^-",
        ),
        ([], "Every round ends with a sum here."),
    ],
)
def test_the_outcome_of_rounds_comes_first(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, printed = _run([*SMALL, "--trials", "50", *more], capsys)
    lines = printed.splitlines()
    table = next(i for i, line in enumerate(lines) if "─" in line)
    assert "ends without its sum" in lines[table + 1]
    assert said in " ".join(printed.split())
    assert "unreliable cannot" not in printed
    rates = _json(["--trials", "50", *more], capsys)["rates"]
    assert next(iter(rates)) == "no_sum"
    assert rates["no_sum"]["count"] == (50 if said.startswith("50") else 0)


@pytest.mark.parametrize("fidelity", ["sets", "array"])
def test_theorems_are_no_outcome_of_a_round_without_inputs(
    fidelity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--step-dropout-rate", "1", "--fidelity", fidelity]
    status, printed = _run(words, capsys)
    assert status == 1
    assert "TOO_FEW_SURVIVORS" in printed
    assert "Theorems 1 and 2 speak of two inputs or more; 0 arrived." in printed
    assert "Reliable" not in printed


@pytest.mark.long
def test_studies_of_other_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    """Over the complete graph without losses nothing fails.

    Over a ring the theorems are mute.
    """
    complete = _json(["--trials", "20"], capsys)
    assert all(rate["count"] == 0 for rate in complete["rates"].values())
    assert set(complete["log10_bounds"].values()) == {None}  # logarithms of zero
    assert all(rate["is_impossible"] for rate in complete["rare"].values())
    ring = [
        "--trials",
        "20",
        "--graph",
        "harary",
        "--degree",
        "2",
        "--step-dropout-rate",
        "0.2",
    ]
    found = _json(ring, capsys)
    assert found["log10_bounds"] == {}
    assert found["rare"] is None
    assert found["rates"]["failed"]["count"] > 0
    _, printed = _run([*SMALL, *ring], capsys)
    assert (
        "The theorems speak of Erdős–Rényi and complete graphs only: no bounds."
        in printed
    )


def test_a_study_of_a_dangerous_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trials", "20", "--threshold", "4", "--allow-unmasking-risk"]
    assert _json(words, capsys)["rates"]["unmaskable"]["count"] == 20


def test_settings_may_come_from_a_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "round.toml"
    path.write_text(
        'num_clients = 8\ndim = 6\nfidelity = "sets"\ngraph = "erdos_renyi"\n'
        "connection_probability = 0.9\nthreshold = 6\njson = true\n"
    )
    assert main(["secagg", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["connection_probability"], found["threshold"]) == (0.9, 6)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["secagg", "--help"]) == 0
    text = capsys.readouterr().out
    for part in (
        "--fidelity",
        "--trials",
        "--allow-unmasking-risk",
        "--graph",
        "Exit status: 0",
        "mrsa-jax secagg --graph harary --degree 20 --up-mbits 10",
    ):
        assert part in text
    assert main(["--help"]) == 0
    # the list of commands stays short
    assert "--graph harary" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["--threshold", "0"]])
def test_help_and_misuse_need_no_jax(words: list[str]) -> None:
    code = (
        "import sys\nfrom mrsa_jax.cli import main\n"
        f"status = main(['secagg', *{words!r}])\n"
        "heavy = {'jax', 'numpy', 'flax'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 10 + status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (10 if words == ["--help"] else 12), done.stderr


@pytest.mark.long
def test_the_consistency_check_is_a_step_of_its_own_at_each_fidelity(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--consistency", "--dropped-before-unmasking", "0.25"]
    found = [
        _json([*words, "--fidelity", name], capsys)
        for name in ("real", "array", "sets")
    ]
    steps = [
        [
            (step["name"], step["num_clients"], step["bytes_up"], step["bytes_down"])
            for step in one["steps"]
        ]
        for one in found
    ]
    assert steps[0] == steps[1] == steps[2]
    assert [step[0] for step in steps[0]] == [*STEPS[:3], "check survivors", STEPS[3]]
    assert steps[0][3] == ("check survivors", 6, 6 * 76, 6 * (12 + 5 * 68))
    assert all(
        one["status"] == "OK" and one["total_is_plain_sum"] is not False
        for one in found
    )
    modelled = _json([*words, "--up-mbits", "1"], capsys)["modelled_seconds"]["steps"]
    assert len(modelled) == 5
    _, printed = _run([*SMALL, *words, "--fidelity", "sets"], capsys)
    assert "The consistency check: 12 messages, 2,568 bytes" in printed
    assert "all five" in printed
