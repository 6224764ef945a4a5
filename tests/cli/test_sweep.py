"""`mrsa-jax sweep` as its users call it.

Help, dry runs, every kind of point, exit statuses.
"""

import json

import numpy as np
import pytest

from mrsa_jax import secagg, study
from mrsa_jax.cli import main
from mrsa_jax.study.sweeps import parse_sweep, plan_sweep, run_sweep

STUDY = """
rounds = 8
trials = 2
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "batch_partitioning"]
privacy_target = [1, 2]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def results_of(text, folder):
    import dataclasses

    sweep = dataclasses.replace(parse_sweep(text), out=folder)
    return run_sweep(plan_sweep(sweep)).load()


def test_a_dry_run_computes_nothing(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", str(file), "--out", str(out), "--dry-run", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["axes"] == {"scheme": 2, "privacy_target": 2}
    assert (content["cells"], content["points"], content["groups"]) == (4, 3, [3])
    assert content["impossible"] == []
    # histories of three points together, and of one while it is analysed
    assert content["memory_bytes"] == (3 * 4 * 2 + 96 * 2) * 8 * 12
    assert not out.exists()
    assert main(["sweep", str(file), "--out", str(out), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "2 scheme x 2 privacy_target = 4 cells; 3 points to compute" in text
    assert "1 group, each compiled once" in text


@pytest.mark.long
def test_run_and_run_again(file, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["sweep", str(file), "--out", str(out)]
    assert main(words) == 0
    assert "4 of 4 cells are done" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["done"] == 4
    assert "4 of 4 points are there already" in again.err
    results = study.open_study(out)
    assert results.attrs["swept"] == "simulate"
    assert results.attrs["command"] == "sweep"
    assert [axis["name"] for axis in results.attrs["axes"]] == [
        "scheme",
        "privacy_target",
    ]
    assert results["rank"].attrs["units"] == "1"
    assert (out / "study.toml").read_text() == STUDY


def test_folders_are_merged(file, tmp_path, capsys):
    for seed in (0, 1):
        file.write_text(f"seed = {seed}\n{STUDY}")
        assert main(["sweep", str(file), "--out", str(tmp_path / str(seed))]) == 0
    words = ["sweep", "merge", str(tmp_path / "0"), str(tmp_path / "1")]
    assert main([*words, "--out", str(tmp_path / "both")]) == 0
    assert (
        f"8 of 8 cells are done; mrsa-jax report {tmp_path}" in capsys.readouterr().out
    )
    assert main([*words, "--out", str(tmp_path / "both"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 8
    for more, message in (
        ([], "`out` must be given: the folder of the result"),
        (
            ["--out", "x", "--dry-run"],
            "`study` must have no flags but --out and --json",
        ),
    ):
        assert main([*words, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["sweep", "marge", "a", "b"]) == 2
    assert "must be one file, or the word merge and folders" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "`study` must be an existing TOML file"),
        (["{file}", "--workers", "0"], "`workers` must be at least 1; got 0"),
        (
            ["{file}", "--workers", "2", "--scheduler", "tcp://x:1"],
            "`workers` must not be set",
        ),
        (["{file}", "--memory-gib", "-1"], "`memory_gib` must be positive; got -1"),
        (["{file}", "--devices", "0"], "`devices` must be at least 1; got 0"),
        (["{file}", "--out", "{file}"], "`out` must be a folder"),
    ],
)
def test_misuse(file, words, message, capsys):
    assert main(["sweep", *(word.format(file=file) for word in words)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_disk_that_cannot_be_written(file, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 1
    assert "no space is left on its disk" in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_failures_of_rounds(tmp_path):
    text = """
command = "secagg"
graph = "erdos_renyi"
trials = 400
num_clients = 20
[grid]
connection_probability = [0.3, 0.9]
step_dropout_rate = [0.0, 0.1]
"""
    results = results_of(text, tmp_path / "out")
    assert bool(results["done"].all())
    for p in (0.3, 0.9):
        t = secagg.share_threshold(20, p)
        for q in (0.0, 0.1):
            cell = results.sel(connection_probability=p, step_dropout_rate=q)
            alone = secagg.failure_rates(0, 20, p, q, t, 400)
            assert int(cell["threshold_used"]) == t
            assert int(cell["unreliable_count"]) == alone.unreliable.count
            assert int(cell["no_sum_count"]) == alone.no_sum.count
            assert float(cell["no_sum_lower"]) == alone.no_sum.lower
            assert float(cell["not_private_upper"]) == alone.not_private.upper
            log = secagg.reliability_bound(20, p, q, t) / np.log(10)
            assert float(cell["log10_unreliable_theorem_5"]) == pytest.approx(log)
    assert float(results["unreliable_rate"].max()) > float(
        results["unreliable_rate"].min()
    )


@pytest.mark.long
def test_attacks(tmp_path):
    text = """
command = "attack disaggregation"
num_clients = 8
cohort_size = 4
rounds = 24
interval = 4
dim = 100
dropout_rates = [0.1]
[grid]
schemes = ["uniform", "batch_partitioning:2"]
drift = [0.0, 3.0]
"""
    results = results_of(text, tmp_path / "out")
    assert results["mean_error"].dims == ("schemes", "drift", "row")
    assert results["schemes"].values.tolist() == ["Random", "Multi-RoundSecAgg (T=2)"]
    assert results["label"].sel(drift=0.0).values[:, 0].tolist() == [
        "Random",
        "Multi-RoundSecAgg (T=2)",
    ]
    still = results.sel(drift=0.0).isel(row=0)
    assert still["recovered"].values.tolist() == [8, 0]
    assert still["shared"].values.tolist() == [0, 8]
    assert (results.sel(drift=3.0)["recovered"] < 8).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "rows"),
    [
        (
            "least-squares",
            "rounds = 30\nwarm_up = 2\nschemes = ['uniform', 'partition']\n",
            2,
        ),
        ("distinguish", "rounds = 3\nwarm_up = 1\ntrials = 9\ntrainings = 2\n", 8),
        ("gradients", "iterations = 3\nmodel = 'logistic'\nrestarts = 1\n", 3),
        ("model-inversion", "dataset = 'digits'\nnum_clients = 3\niterations = 3\n", 3),
        (
            "membership",
            "num_shadows = 2\nnum_epochs = 1\nmethods = ['loss', 'shadow']\n",
            6,
        ),
        ("inconsistency", "cohort_size = 3\n", 2),
    ],
)
def test_each_attack_fills_its_variables(name, settings, rows, tmp_path):
    text = f'command = "attack {name}"\n{settings}[grid]\nseed = [0, 1]\n'
    results = results_of(text, tmp_path / "out")
    assert results.sizes["row"] == rows
    assert (results["label"] != "").all()
    for variable in results.data_vars.values():
        if variable.dtype.kind == "f":
            assert np.isfinite(variable).any(), variable.name


@pytest.mark.long
def test_an_axis_named_as_a_result_leaves_both(tmp_path):
    text = """
command = "attack gradients"
iterations = 3
model = "logistic"
seen = ["plain"]
[grid]
restarts = [1, 2]
"""
    results = results_of(text, tmp_path / "out")
    assert results["restarts"].dims == ("restarts",)
    assert results["restarts_found"].isel(row=0).values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "command = 'secagg'\ntrials = 0\n[grid]\nseed = [0]",
            "`trials` must be at least 1",
        ),
        (
            "command = 'secagg'\nthreshold = 2\n[grid]\nseed = [0]",
            "`threshold` must be at least",
        ),
        (
            "command = 'secagg'\n[grid]\ndegree = [4]",
            "`degree` must be given for harary",
        ),
        (
            "command = 'attack least-squares'\n[grid]\ncohort_size = [99]",
            "`cohort_size` must",
        ),
    ],
)
def test_cells_that_make_no_sense(text, message, tmp_path, capsys):
    path = tmp_path / "study.toml"
    path.write_text(text)
    assert main(["sweep", str(path), "--out", str(tmp_path / "out"), "--dry-run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_rules_for_thresholds_are_an_axis(tmp_path):
    text = """
command = "secagg"
graph = "erdos_renyi"
connection_probability = 0.4
trials = 200
step_dropout_rate = 0.03
[grid]
num_clients = [20, 30]
threshold = ["majority", "remark4", 19]
"""
    results = results_of(text, tmp_path / "out")
    assert results["threshold"].values.tolist() == ["majority", "remark4", "19"]
    for n in (20, 30):
        for name, t, used in (
            ("majority", "majority", 0),
            ("remark4", "remark4", secagg.share_threshold(n, 0.4)),
            ("19", 19, 19),
        ):
            cell = results.sel(num_clients=n, threshold=name)
            alone = secagg.failure_rates(0, n, 0.4, 0.03, t, 200)
            assert int(cell["no_sum_count"]) == alone.no_sum.count
            assert int(cell["threshold_used"]) == used
            assert np.isnan(cell["log10_unreliable_theorem_5"]) == (used == 0)
