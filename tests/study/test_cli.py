"""The command line as a user meets it: misuse, help, and small studies from end to end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import study
from mrsa_jax.cli import Bars, main
from mrsa_jax.study import open_study
from mrsa_jax.study._progress import Silent

SMALL = ["--num-clients", "12", "--cohort-size", "4", "--dropout-rates", "0.1", "0.2"]
FEW = study.PopulationConfig(num_clients=12, cohort_size=4, dropout_rates=(0.1, 0.2))
LEARN = ["--dataset", "digits", "--model", "logistic", "--evaluate-every", "5"]
SCHEMES = ["--schemes", "uniform", "partition", "batch_partitioning:2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dmeo"], "did you mean 'demo'"),
        (["demo", "--rounds", "0"], "`rounds` must be at least 1; got 0"),
        (
            ["demo", "--cohort-size", "121"],
            "`cohort_size` must lie in [2, num_clients]; got 121",
        ),
        (
            ["demo", "--dropout-rates", "0.5", "1.5"],
            "`dropout_rates` must lie in [0, 1]; got 1.5",
        ),
        (
            ["demo", "--dropout-rates", "nan"],
            "`dropout_rates` must lie in [0, 1]; got nan",
        ),
        (
            ["demo", "--schemes", "batch_partitioning:5"],
            "multiple of the privacy target of `schemes`; got 12",
        ),
        (["simulate", "--schemes", "unifrom"], "did you mean 'uniform'"),
        (["simulate", "--schemes", "random"], "got 'random'; did you mean 'uniform'?"),
        (
            ["demo", "--schemes", "uniform,weighted"],
            "separate several with spaces: uniform weighted",
        ),
        (
            ["demo", "--num-clients", "121"],
            "multiple of `cohort_size`; got 121 and 12, which the ",
        ),
        (["train", "--dataset", "minst_5k"], "did you mean 'mnist_5k'"),
        (["train", "--dataset", "idx", "--directory", "nowhere"], "nowhere"),
        (["demo", "--config"], "`config` must be followed by a file"),
        (["demo", "--config", "none.toml"], "`config` must be an existing TOML file"),
        (["--config", "none.toml"], "`config` must follow a command"),
    ],
)
def test_misuse_is_answered_in_one_line(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "results"])


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "--dropout-rates", "0.1,0.2"],
        ["train", "--group-levels", "2,4"],
        ["attack", "membership", "--methods", "loss,shadow"],
        ["train", "--decay-rounds=100,200"],
    ],
)
def test_values_joined_by_commas_are_told_of_blanks(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    hint = capsys.readouterr().err.splitlines()[-1]
    assert (
        hint
        == f"hint: separate several values with spaces: {words[-1].replace(',', ' ')}"
    )


@pytest.mark.parametrize(
    "words", [[], ["demo", "--rouns", "3"], ["demo", "--rounds", "three"]]
)
def test_flags_that_do_not_parse_exit_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "mrsa-jax demo" in capsys.readouterr().out
    assert main(["demo", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in (
        "--seed",
        "--out",
        "--rounds",
        "--json",
        "--fidelity",
        "--partition",
        "--model",
    ):
        assert flag in text
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for lesson in (
        "--resume",
        "--checkpoint-every",
        "McMahan's; 1,663,370",
        "400 800 in the papers' CIFAR runs",
        "FedProx's mu",
        "it decides how many clients train side by side",
    ):
        assert lesson in text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mrsa-jax ")


@pytest.mark.long
def test_simulate_writes_a_store_figures_and_a_report(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "simulate"
    words = [
        "simulate",
        *SMALL,
        *SCHEMES,
        "--rounds",
        "40",
        "--trials",
        "3",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "Random" in printed
    assert "Multi-RoundSecAgg (T=2)" in printed
    names = {path.name for path in out.iterdir()}
    assert {"results.zarr", "report.html", "study.json", "strong_privacy.png"} <= names
    for ending in ("svg", "pdf"):
        printed = {path.stem for path in (out / "figures").glob(f"*.{ending}")}
        assert printed == {path.stem for path in out.glob("*.png")}
    results = open_study(out)
    assert dict(results.sizes) == {"client": 12, "scheme": 3, "trial": 3, "round": 40}
    page = (out / "report.html").read_text()
    assert "<img" not in page
    # over the rounds, and what privacy costs
    assert page.count('class="plot"') == 5 + 2
    for fetched in ('src="http', "<link", "@import", "url("):
        assert fetched not in page
    assert ">Accuracy</th>" not in page


@pytest.mark.long
def test_simulate_repeats_exactly_and_other_seeds_differ() -> None:
    """What is computed; that the command prints the same is tested for every command."""

    def outcome(seed: int) -> Any:
        return study.run(
            study.SimulateConfig(
                seed=seed, rounds=20, trials=2, schemes=("uniform",), population=FEW
            )
        )

    first = outcome(3)
    assert first.equals(outcome(3))
    assert study.summarise(first) != study.summarise(outcome(4))


def test_a_simulation_shows_its_schemes_as_they_come() -> None:
    class Watching(Silent):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def stage(self, name: str, total: int) -> None:
            self.seen.append(name)

        def found(self, so_far: Any) -> None:
            self.seen.append(so_far)

    watching = Watching()
    schemes = ("uniform", "partition", "batch_partitioning:2")
    config = study.SimulateConfig(rounds=20, trials=2, schemes=schemes, population=FEW)
    rows = study.summarise(study.run(config, watching))
    names = [row.scheme for row in rows]
    assert [one for one in watching.seen if isinstance(one, str)] == names
    found = {i: one for i, one in enumerate(watching.seen) if not isinstance(one, str)}
    assert list(found) == [1, 3]  # before the second and the third scheme
    assert found[1].rows == rows[:1]
    assert found[3].rows == rows[:2]


@pytest.mark.long
def test_demo_tells_what_leaks(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 12 clients and 60 rounds random selection is solvable; blocks never are."""
    out = tmp_path / "demo"
    told: list[Any] = []  # stages by name, and what was found by then
    stage = Bars.stage
    monkeypatch.setattr(Bars, "stage", lambda *own: (told.append(own[1]), stage(*own)))
    monkeypatch.setattr(Bars, "found", lambda _, found: told.append(found))
    words = [
        "demo",
        *SMALL,
        *SCHEMES,
        *LEARN,
        "--rounds",
        "60",
        "--out",
        str(out),
        "--json",
    ]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    random, partition, blocks = content["rows"]
    assert random["exposed_clients"] == 12
    assert random["strong_privacy"] == 1
    assert random["reconstruction_error"] < 1e-2
    assert (partition["exposed_clients"], partition["strong_privacy"]) == (0, 4)
    assert (blocks["exposed_clients"], blocks["strong_privacy"]) == (0, 2)
    assert blocks["reconstruction_error"] > 0.05
    assert len(content["sentences"]) == 5
    _check_found(told, content["rows"])
    for row in content["rows"]:
        gap = abs(row["aggregation_cardinality"] - row["expected_cardinality"])
        assert gap <= 5 * row["cardinality_error"] + 1e-6
        assert row["accuracy"] > 0.5
    results = open_study(out)
    history = results["participation"].values
    assert (results["skipped"].values == ~history.any(-1)).all()
    page = (out / "report.html").read_text()
    assert "<img" not in page
    # of what was measured, and what privacy costs
    assert page.count('class="plot"') == 11 + 4
    assert '<th scope="col">Frozen error</th>' in page
    assert {p.name for p in out.glob("*.csv")} == {
        f"{p.stem}.csv" for p in out.glob("*.png")
    }


def _check_found(told: list[Any], rows: list[dict[str, Any]]) -> None:
    """What a server can know comes before training, a scheme's accuracy and error right after."""
    first, *later = (one for one in told if not isinstance(one, str))
    trainings = [i for i, one in enumerate(told) if str(one).endswith(": training")]
    assert told.index(first) < trainings[0]
    assert len(trainings) == len(later) == len(rows) == 3
    learnt = {
        "accuracy",
        "reconstruction_error",
        "reconstruction_tenth",
        "reconstruction_least",
        "failures",
        "update_spread",
        "update_memory",
        "update_lasting",
        "lasting_hidden_worst",
        "lasting_hidden_median",
        "update_hidden_worst",
        "update_hidden_median",
        "bits_worst",
        "bits_median",
        "update_mates_worst",
        "update_mates_correlation",
        "update_mates_cap",
        "clipped_fraction",
        "most_clipped",
        "failed_uploads",
        "expected_fairness_gap",
        "expected_fairness_error",
    }
    for count, found in enumerate([first, *later]):
        for place, (row, last) in enumerate(zip(found.rows, rows, strict=True)):
            own = dataclasses.asdict(row)
            same = set(own) - (learnt if place >= count else learnt - {"accuracy"})
            assert {name: own[name] for name in same} == {
                name: last[name] for name in same
            }
            assert (row.accuracy is None) == (place >= count)
            assert (row.expected_fairness_gap is None) == (place >= count)
            assert (row.reconstruction_error is None) == (place >= count)


@pytest.mark.long
def test_the_model_does_not_depend_on_the_fidelity() -> None:
    config = study.TrainConfig(
        rounds=10,
        scheme="batch_partitioning:2",
        population=FEW,
        data=study.DataConfig(dataset="digits"),
        training=study.TrainingConfig(model="logistic", evaluate_every=5),
    )
    first, second = (
        study.run(
            dataclasses.replace(
                config, aggregation=study.AggregationConfig(fidelity=fidelity)
            )
        )
        for fidelity in ("array", "sets")
    )
    for name in first.data_vars:
        np.testing.assert_array_equal(first[name].values, second[name].values)


@pytest.mark.long
def test_a_file_gives_defaults_that_flags_change(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'rounds = 15\ntrials = 2\nschemes = ["uniform"]\n'
        "[population]\nnum_clients = 8\ncohort_size = 2\n"
    )
    out = tmp_path / "out"
    assert (
        main(["simulate", "--config", str(path), "--trials", "3", "--out", str(out)])
        == 0
    )
    capsys.readouterr()
    sizes = open_study(out).sizes
    assert (sizes["round"], sizes["trial"], sizes["client"]) == (15, 3, 8)
    assert main(["simulate", f"--config={path}", "--seed", "1", "--out", str(out)]) == 2
    assert "must not hold another study" in capsys.readouterr().err


@pytest.mark.long
def test_a_diverging_learning_rate_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *SMALL, *LEARN, "--rounds", "5", "--learning-rate", "3e38"]
    assert main([*words, "--out", str(tmp_path / "out"), "--scheme", "uniform"]) == 2
    assert "`learning_rate` must let training converge" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_an_interrupt_in_mid_training_leaves_nothing_and_says_so(
    tmp_path: pathlib.Path,
) -> None:
    words = [
        "demo",
        *SMALL,
        *SCHEMES,
        "--rounds",
        "2000",
        "--out",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("device: ")
        assert "what the server can know" in process.stderr.readline()
        while "training (" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert "interrupted" in said
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_swallowed_interrupt_is_raised_again() -> None:
    with Bars() as bars:
        bars.stage("stage", 2)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            bars.update(1, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_for_a_compiler_to_return() -> None:
    was_struck_inside: list[bool] = []

    def traced(x: jax.Array) -> jax.Array:
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
            was_struck_inside.append(False)
        except KeyboardInterrupt:
            was_struck_inside.append(True)
        return x + 1

    def work() -> None:
        jax.jit(traced)(1)
        time.sleep(10)

    start = time.perf_counter()
    with Bars(), pytest.raises(KeyboardInterrupt):
        work()
    assert was_struck_inside == [False]
    assert time.perf_counter() - start < 9, "it was not woken"
    time.sleep(0.1)  # nothing comes after it


@pytest.mark.long
def test_bernoulli_selection_trains_whatever_the_cohorts(
    tmp_path: pathlib.Path,
) -> None:
    out = tmp_path / "out"
    words = ["train", *SMALL, *LEARN, "--scheme", "bernoulli:0.3", "--rounds", "12"]
    assert main([*words, "--partition", "dirichlet", "--out", str(out)]) == 0
    results = open_study(out).load()
    sizes = results["participation"].values.sum(-1)
    assert not (sizes == 1).any()
    assert len(set(sizes.ravel().tolist())) > 1
    # every training digit is held by one client
    assert int(results["samples"].sum()) == len(mj.data.load("digits").train_labels)
