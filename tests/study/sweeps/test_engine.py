"""Sweeps against single studies, resumed, shared by processes, and on disks that fail."""

import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, OutputExistsError, study
from mrsa_jax.study import sweeps
from mrsa_jax.study.runs import _trial
from mrsa_jax.study.stores._records import Index
from mrsa_jax.study.sweeps import Machine, SweepStore, parse_sweep
from mrsa_jax.study.sweeps._store import _byte
from mrsa_watch._base.errors import StoreError

pytestmark = pytest.mark.long

SMALL = """
rounds = 12
trials = 3
out = {out!r}
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "partition", "batch_partitioning"]
privacy_target = [1, 2]
population.dropout_rates = [0.1, 0.5]
"""


def planned(folder, text=SMALL, machine=None, **changes):
    import dataclasses

    sweep = parse_sweep(text.format(out=str(folder)))
    return sweeps.plan_sweep(dataclasses.replace(sweep, **changes), machine)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    plan = planned(tmp_path_factory.mktemp("small") / "out")
    return plan, sweeps.run_sweep(plan).load()


def at(results, **place):
    return results.sel({"trial": slice(None), **place})


def test_each_cell_is_its_study_alone(small):
    _, results = small
    assert bool(results["done"].all())
    assert results["strong_privacy"].dims == (
        "scheme",
        "privacy_target",
        "dropout_rates",
        "trial",
    )
    for scheme, label, target in [
        ("uniform", "Random", 1),
        ("partition", "User partition", 2),
        ("batch_partitioning:2", "Multi-RoundSecAgg", 2),
    ]:
        for rate in (0.1, 0.5):
            alone = study.run(
                study.SimulateConfig(
                    rounds=12,
                    trials=3,
                    schemes=(scheme,),
                    population=study.PopulationConfig(
                        num_clients=12, cohort_size=4, dropout_rates=(rate,)
                    ),
                )
            ).isel(scheme=0)
            cell = results.sel(scheme=label, privacy_target=target, dropout_rates=rate)
            for name in ("strong_privacy", "rank", "exposed_clients"):
                assert (cell[name].values == alone[name].values[:, -1]).all(), name
            for name in ("fairness_gap", "aggregation_cardinality"):
                np.testing.assert_allclose(cell[name], alone[name][:, -1], rtol=3e-7)
            first = alone["first_exposure"].values
            expected = [
                min((r for r in own if r >= 0), default=np.nan)
                for own in first.tolist()
            ]
            np.testing.assert_array_equal(cell["first_exposed_round"].values, expected)
            assert (
                cell["skipped_rounds"].values == alone["skipped"].values.sum(-1)
            ).all()
            assert cell["expected_cardinality"] == alone["expected_cardinality"]


def test_equal_settings_are_computed_once(small):
    plan, results = small
    # 2 schemes without a target, 1 with two, each at 2 rates
    assert plan.num_computed == 2 * (1 + 1 + 2)
    assert plan.sweep.size == 12
    random = results.sel(scheme="Random")
    for name in ("rank", "fairness_gap", "exposed_clients"):
        both = random[name].values
        assert (both[0] == both[1]).all()
    blocks = results.sel(scheme="Multi-RoundSecAgg")["strong_privacy"].values
    assert (blocks[0] != blocks[1]).any()


def test_one_program_computes_all_targets_and_rates(small):
    plan, _ = small
    assert len(plan.groups) == 1
    shapes = planned(
        "unused",
        SMALL.replace(
            "privacy_target = [1, 2]", "population.num_clients = [12, 24]"
        ).replace('"batch_partitioning"]', '"bernoulli:0.5"]'),
    )
    # two sizes, and Bernoulli selection beside block selection
    assert sorted(len(group.numbers) for group in shapes.groups) == [2, 2, 4, 4]
    # four points of 3 trials, 12 rounds and 24 clients, a history in four forms, and
    # one analysed, whose trials are four to the program, at 96 bytes for each entry
    histories = 4 * 4 * 3 * 12 * 24
    assert shapes.memory_bytes == histories + 96 * 4 * 12 * 24


LARGE = """
import json, pathlib, sys
from mrsa_jax.bench.harness import kibibytes
from mrsa_jax.study.sweeps import parse_sweep, plan_sweep, run_sweep

def most():  # of this program; getrusage tells of the one that has started it, too
    return 1024 * kibibytes(pathlib.Path("/proc/self"), "VmHWM:")

plan = plan_sweep(parse_sweep(pathlib.Path(sys.argv[1]).read_text()))
before = most()
assert run_sweep(plan)["done"].all()
print(json.dumps([most() - before, plan.memory_bytes]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems count it in other units"
)
@pytest.mark.usefixtures("on_a_cpu")
def test_what_a_large_point_takes_is_stated(tmp_path):
    text = f"out = '{tmp_path}/out'\nrounds = 60\ntrials = 1\n"
    text += "population = { num_clients = 1_000_000, cohort_size = 1000 }\n"
    (tmp_path / "large.toml").write_text(text + "[grid]\nscheme = ['uniform']\n")
    words = [sys.executable, "-c", LARGE, str(tmp_path / "large.toml")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    peak, stated = json.loads(done.stdout.splitlines()[-1])
    assert stated / 2 < peak < stated


@pytest.mark.usefixtures("on_a_cpu")
def test_the_largest_point_is_stated_as_it_was_measured():
    pytest.importorskip(
        "numba", reason="without it trajectories are made for their ends"
    )
    assert 3.67 < _trial.known_bytes(1, 1000, 10**6) / 2**30 < 4.2
    assert 1.03 < _trial.known_bytes(1, 200, 10**6) / 2**30 < 1.3
    population = {"num_clients": 10**5, "cohort_size": 100}
    text = {
        "rounds": 1000,
        "trials": 1,
        "population": population,
        "grid": {"scheme": ["uniform"]},
    }
    ends, paths = (
        sweeps.plan_sweep(sweeps.sweep_of(text | {"trajectories": kept})).memory_bytes
        for kept in (False, True)
    )
    assert ends == _trial.known_bytes(1, 1000, 10**5)
    assert paths > ends + 8 * 10**8  # eight bytes for each client after each round


def test_memory_bounds_how_many_points_run_at_once(tmp_path):
    plan = planned(tmp_path / "out", machine=Machine(memory_bytes=2 * 4 * 3 * 12 * 12))
    assert plan.groups[0].together == 2
    assert [len(task.numbers) for task in plan.tasks()] == [2, 2, 2, 2]
    assert (
        planned(tmp_path / "out", machine=Machine(memory_bytes=1)).groups[0].together
        == 1
    )


def test_trials_on_two_devices_are_the_same(small, tmp_path):
    _, expected = small
    dealt = sweeps.run_sweep(
        planned(tmp_path / "out", machine=Machine(devices=2))
    ).load()
    for name in expected.data_vars:
        if name != "seconds":
            np.testing.assert_array_equal(dealt[name].values, expected[name].values)


def test_impossible_cells_are_listed_and_nothing_is_run(tmp_path):
    text = SMALL.replace("privacy_target = [1, 2]", "privacy_target = [3, 2]")
    with pytest.raises(ConfigurationError) as caught:
        planned(tmp_path / "out", text)
    message = str(caught.value)
    assert "2 of 12 do not (nothing was run" in message
    assert (
        "scheme = Multi-RoundSecAgg, privacy_target = 3 (2 cells, the first of which)"
        in message
    )
    assert (
        "`cohort_size` must be a multiple of `privacy_target`; got 4 and 3" in message
    )
    assert not (tmp_path / "out").exists()
    plan = planned(tmp_path / "out", text, skip_impossible=True)
    results = sweeps.run_sweep(plan).load()
    empty = results.sel(scheme="Multi-RoundSecAgg", privacy_target=3)
    assert not empty["done"].any()
    assert np.isnan(empty["rank"]).all()
    assert np.isnan(empty["fairness_gap"]).all()
    assert int(results["done"].sum()) == 10


def test_trajectories_end_in_the_ends_and_shorter_points_are_filled_up(tmp_path):
    text = """
trials = 2
trajectories = true
out = {out!r}
[population]
num_clients = 8
cohort_size = 4
[grid]
scheme = ["uniform"]
rounds = [5, 9]
trials = [1, 2]
"""
    results = sweeps.run_sweep(planned(tmp_path / "out", text)).load().isel(scheme=0)
    for rounds in (5, 9):
        for trials in (1, 2):
            cell = results.sel(rounds=rounds, trials=trials)
            for name in ("rank", "strong_privacy", "exposed_clients", "fairness_gap"):
                path = cell[f"{name}_by_round"].values
                np.testing.assert_array_equal(
                    path[:trials, rounds - 1], cell[name].values[:trials]
                )
                beyond = [path[:, rounds:], path[trials:], cell[name].values[trials:]]
                for part in beyond:
                    assert np.isnan(part).all()


def test_rounds_that_lose_clients(tmp_path):
    text = 'keep = ["first_exposure", "skipped", "status"]\n' + SMALL
    text += "\n[protocol]\nstep_dropout_rate = 0.2\n"
    results = sweeps.run_sweep(planned(tmp_path / "out", text)).load()
    alone = study.run(
        study.SimulateConfig(
            rounds=12,
            trials=3,
            schemes=("batch_partitioning:2",),
            population=study.PopulationConfig(
                num_clients=12, cohort_size=4, dropout_rates=(0.1,)
            ),
            protocol=study.ProtocolConfig(step_dropout_rate=0.2),
        )
    ).isel(scheme=0)
    cell = results.sel(scheme="Multi-RoundSecAgg", privacy_target=2, dropout_rates=0.1)
    assert (cell["rank"].values == alone["rank"].values[:, -1]).all()
    status = alone["status"].values
    assert cell["failed_rounds"].values.tolist() == (status > 1).sum(axis=1).tolist()
    assert cell["failed_rounds"].values.sum() > 0
    assert np.isnan(cell["expected_cardinality"])
    # as `simulate` has them, if asked for
    for name in ("first_exposure", "skipped", "status"):
        np.testing.assert_array_equal(cell[name].values, alone[name].values)
        assert cell[name].dims == alone[name].dims


def test_a_sweep_keeps_the_gap_of_expected_shares(tmp_path):
    text = 'keep = ["expected_fairness_gap"]\n' + SMALL
    text = text.replace("[0.1, 0.5]", "[[0.1, 0.5], [0.3]]")
    results = sweeps.run_sweep(planned(tmp_path / "out", text)).load()
    gaps, errors = (
        results[f"expected_fairness_{name}"].sel(scheme="Random", privacy_target=1)
        for name in ("gap", "error")
    )
    assert gaps.dims == ("dropout_rates",)
    assert float(gaps[0]) > 0 == float(gaps[1])
    assert (errors == 0).all()


def test_only_what_points_have_can_be_kept(tmp_path):
    with pytest.raises(
        ConfigurationError, match="`keep` must name what points of simulate can"
    ):
        planned(tmp_path / "out", 'keep = ["accuracy_by_client"]\n' + SMALL)
    with pytest.raises(ConfigurationError, match="`keep` must be a list of names"):
        planned(tmp_path / "out", 'keep = "status"\n' + SMALL)
    same = planned(tmp_path / "out", "keep = []\n" + SMALL).sweep
    assert study.config_hash(same.config) == study.config_hash(
        planned(tmp_path / "o").sweep.config
    )


# ---- going on


def equal_but_for_time(one, other):
    for name in one.data_vars:
        if name != "seconds":
            np.testing.assert_array_equal(
                one[name].values, other[name].values, err_msg=name
            )


class Stop(Exception):
    """Ends a run."""


def test_an_interruption_loses_only_the_points_in_flight(small, tmp_path):
    """Every number of written points is interrupted once.

    The rest is done by the next run.
    """
    _, expected = small

    class AfterSome:
        def __init__(self, most):
            self.most, self.seen = most, []

        def stage(self, name, total):
            assert total == 12

        def update(self, done, total):
            self.seen.append(done)
            if len(self.seen) > self.most:
                raise Stop

    plan = planned(tmp_path / "out", machine=Machine(memory_bytes=1))
    there = 0
    for _ in range(20):
        watcher = AfterSome(2)
        try:
            results = sweeps.run_sweep(plan, watcher)
        except Stop:
            assert watcher.seen[0] >= there
            there = watcher.seen[-1]
        else:
            break
    else:
        pytest.fail("never ended")
    assert watcher.seen[-1] == 12
    equal_but_for_time(expected, results.load())
    # and nothing is computed a third time
    before = {
        p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()
    }
    sweeps.run_sweep(plan)
    locks = ("points.lock", "layout.lock")
    changed = [p.name for p, at in before.items() if p.stat().st_mtime_ns != at]
    assert set(changed) <= set(locks)


def test_a_kill_while_the_store_is_laid_out(tmp_path, monkeypatch):
    plan = planned(tmp_path / "out")

    def killed(*_):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "replace", killed)
        with pytest.raises(Stop):
            plan.open_store()
    assert not (tmp_path / "out" / "study.json").exists()
    assert bool(sweeps.run_sweep(plan)["done"].all())


def test_another_study_is_not_touched(tmp_path):
    plan = planned(tmp_path / "out")
    sweeps.run_sweep(plan)
    other = planned(tmp_path / "out", SMALL.replace("rounds = 12", "rounds = 13"))
    words = r"points of .* that this one has not \(base\.rounds is 13 now and was 12\)"
    with pytest.raises(OutputExistsError, match=words):
        sweeps.run_sweep(other)
    replaced = planned(
        tmp_path / "out", SMALL.replace("rounds = 12", "rounds = 13"), overwrite=True
    )
    assert sweeps.run_sweep(replaced).attrs["config"]["base"]["rounds"] == 13
    manifest = tmp_path / "out" / "study.json"
    manifest.write_text(manifest.read_text().replace('"schema": 2', '"schema": 7'))
    with pytest.raises(
        ConfigurationError, match=r"must hold a store of schema 2; got 7"
    ):
        sweeps.run_sweep(other)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine.txt").write_text("x")
    with pytest.raises(OutputExistsError, match="holds other files"):
        sweeps.run_sweep(planned(notes))


@pytest.mark.parametrize(
    "lost", ["study.json", "cells", "half of the cells", "results.zarr"]
)
def test_what_is_lost_but_for_records_is_written_again(small, tmp_path, lost):
    _, expected = small
    shutil.copytree(small[0].sweep.out, tmp_path / "out")
    plan, (cells,) = planned(tmp_path / "out"), (tmp_path / "out").glob("cells-*")
    logs = {p: p.read_bytes() for p in (tmp_path / "out" / "log").iterdir()}
    if lost == "study.json":
        (tmp_path / "out" / lost).unlink()
    elif lost == "results.zarr":
        (tmp_path / "out" / lost / ".zattrs").write_text("[]")
    else:
        content = cells.read_bytes()
        cells.unlink()
        if lost != "cells":
            cells.write_bytes(content[: len(content) // 2])
        with pytest.raises(
            ConfigurationError, match="must hold a whole sweep, or be given to the"
        ):
            study.open_study(tmp_path / "out")
        with pytest.raises(
            ConfigurationError, match="must hold a whole sweep, or be given to the"
        ):
            planned(
                tmp_path / "out", SMALL.replace("rounds = 12", "rounds = 13")
            ).open_store()
    equal_but_for_time(expected, sweeps.run_sweep(plan))
    assert {p: p.read_bytes() for p in (tmp_path / "out" / "log").iterdir()} == logs


def test_records_are_not_replaced_by_a_sweep_that_is_to_use_them(small, tmp_path):
    out = pathlib.Path(shutil.copytree(small[0].sweep.out, tmp_path / "out"))
    with pytest.raises(
        ConfigurationError, match="`reuse` must not be the folder that is replaced"
    ):
        sweeps.run_sweep(planned(out, overwrite=True, reuse=tmp_path / "." / "out"))
    equal_but_for_time(small[1], study.open_study(out))
    elsewhere = (out / "log").rename(tmp_path / "elsewhere")
    (out / "log").symlink_to(elsewhere)
    equal_but_for_time(small[1], study.open_study(out))
    text = SMALL.replace("trials = 3", "trials = 1")
    assert sweeps.run_sweep(planned(out, text, overwrite=True))["done"].all()
    assert len(list(elsewhere.iterdir())) == 1
    assert not (out / "log").is_symlink()


def test_a_full_disk_leaves_the_store_sound(small, tmp_path, monkeypatch):
    _, expected = small
    plan = planned(tmp_path / "out", machine=Machine(memory_bytes=1))
    written = SweepStore.write
    calls = []

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(self, *of):
        calls.append(of)
        if len(calls) == 4:
            patch.setattr(os, "write", no_space)
        return written(self, *of)

    with monkeypatch.context() as patch:
        patch.setattr(SweepStore, "write", full)
        with pytest.raises(StoreError, match="no space is left on its disk"):
            sweeps.run_sweep(plan)
    assert int(study.open_study(tmp_path / "out")["done"].sum()) == 6  # of three points
    equal_but_for_time(expected, sweeps.run_sweep(plan).load())


# ---- processes

SWEEP = "import sys; from mrsa_jax.cli import main; sys.exit(main(sys.argv[1:]))"


def started(path, *words):
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, "sweep", str(path), "--json", *words],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    text = SMALL.format(out=str(tmp_path / "out")).replace("rounds = 12\n", "")
    path.write_text(text.replace("[grid]\n", "[grid]\nrounds = {range = [10, 20]}\n"))
    return path


LOGGED = """
import sys
from mrsa_jax.cli import main
from mrsa_jax.study.sweeps import SweepStore
write = SweepStore.write
def logged(self, identity, *of):
    with open(sys.argv[1], "a") as log:
        log.write(f"{identity.key}\\n")
    write(self, identity, *of)
SweepStore.write = logged
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_two_processes_at_once_do_each_point_once(file, tmp_path):
    log = tmp_path / "log"
    words = [str(log), "sweep", str(file), "--json", "--memory-gib", "1e-9"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", LOGGED, *words],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for one in both:
        _, errors = one.communicate(timeout=300)
        assert one.returncode == 0, errors
    results = study.open_study(tmp_path / "out").load()
    assert bool(results["done"].all())
    written = log.read_text().splitlines()
    assert len(written) == len(set(written)) == 80  # that differ
    alone = sweeps.run_sweep(
        sweeps.plan_sweep(parse_sweep(file.read_text().replace("/out", "/alone")))
    ).load()
    equal_but_for_time(alone, results)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(file, tmp_path):
    """Each run is killed somewhere; the last one ends.

    Nothing differs from one without kills.
    """
    generator = np.random.default_rng(0)

    def count():
        return len(Index(tmp_path / "out").refresh().records)

    for _ in range(20):
        before, more = count(), int(generator.integers(0, 2))
        process = started(file, "--memory-gib", "1e-9")
        while process.poll() is None and count() < before + more + 1:
            time.sleep(0.002)
        time.sleep(float(generator.uniform(0, 0.004)))  # a point takes about as long
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        done = int(study.open_study(tmp_path / "out")["done"].sum())
        assert before < done < 120 or before == 0
    last = started(file)
    _, errors = last.communicate(timeout=300)
    assert last.returncode == 0, errors
    results = study.open_study(tmp_path / "out").load()
    alone = sweeps.run_sweep(
        sweeps.plan_sweep(parse_sweep(file.read_text().replace("/out", "/alone")))
    ).load()
    equal_but_for_time(alone, results)


def test_a_damaged_point_is_named_and_computed_again(small, tmp_path):
    plan, expected = small
    shutil.copytree(plan.sweep.out, tmp_path / "out")
    plan = planned(tmp_path / "out")
    (log,) = (tmp_path / "out" / "log").iterdir()
    sound = log.read_bytes()
    spoilt = bytearray(sound)
    spoilt[len(sound) // 3] ^= 4
    log.write_bytes(spoilt)
    # the results were put together before, and have all of it; the log is what counts
    os.truncate(log, len(sound) - 1)
    assert int(study.open_study(tmp_path / "out")["done"].sum()) < 12
    with (
        pytest.warns(
            RuntimeWarning, match="bytes of .* are damaged: points that they held are"
        ),
        pytest.warns(
            RuntimeWarning, match="the last .* are no whole record: points that they"
        ),
    ):
        again = sweeps.run_sweep(plan).load()
    equal_but_for_time(expected, again)


def test_a_sweep_is_extended_and_given_more_trials(small, tmp_path):
    """Each cell is the one that is computed alone, and nothing that was there is computed."""
    shutil.copytree(small[0].sweep.out, tmp_path / "out")
    more = SMALL.replace("trials = 3", "trials = 5").replace(
        "[0.1, 0.5]", "[0.5, 0.3, 0.1]"
    )
    more = more.replace("[1, 2]", "[1, 2, 4]")
    plan = planned(tmp_path / "out", more)
    store = plan.open_store()
    store.index.refresh()
    tasks = {
        (task.first, task.count): len(task.numbers) for task in plan.tasks(store.index)
    }
    assert tasks == {(3, 2): 8, (0, 5): 7}
    store.close()
    fresh = sweeps.run_sweep(planned(tmp_path / "fresh", more)).load()
    equal_but_for_time(fresh, sweeps.run_sweep(plan).load())
    # taken from another folder, with fewer trials and cells
    plan = planned(tmp_path / "reused", reuse=tmp_path / "out")
    reused = sweeps.run_sweep(plan).load()
    equal_but_for_time(small[1], reused)
    np.testing.assert_array_equal(reused["seconds"].values, small[1]["seconds"].values)
    with pytest.raises(OutputExistsError, match=r"points of .* that this one has not"):
        sweeps.run_sweep(planned(tmp_path / "out"))
    with pytest.raises(
        ConfigurationError, match="`reuse` must be the folder of a sweep"
    ):
        sweeps.run_sweep(planned(tmp_path / "x", reuse=tmp_path / "nothing"))


def test_trajectories_are_asked_for_later(small, tmp_path):
    shutil.copytree(small[0].sweep.out, tmp_path / "out")
    text = "trajectories = true\n" + SMALL
    found = sweeps.run_sweep(planned(tmp_path / "out", text)).load()
    np.testing.assert_array_equal(
        found["rank_by_round"][..., -1].values, small[1]["rank"].values
    )
    with pytest.raises(OutputExistsError, match=r"points of .* that this one has not"):
        sweeps.run_sweep(planned(tmp_path / "out"))
    fewer = sweeps.run_sweep(planned(tmp_path / "ends", reuse=tmp_path / "out")).load()
    equal_but_for_time(small[1], fewer)


def test_failures_are_counted_further(tmp_path):
    text = """
command = "secagg"
trials = {trials}
out = {out!r}
num_clients = 8
graph = "erdos_renyi"
connection_probability = 0.6
[grid]
step_dropout_rate = [0.02, 0.1]
"""
    for trials in (30, 50):
        own = text.replace("{trials}", str(trials))
        found = sweeps.run_sweep(planned(tmp_path / "out", own)).load()
    fresh = sweeps.run_sweep(
        planned(tmp_path / "fresh", text.replace("{trials}", "50"))
    ).load()
    equal_but_for_time(fresh, found)
    assert (fresh["unreliable_count"] > 0).any()


def test_what_is_put_together_opens_without_the_package(small, tmp_path):
    import xarray as xr

    plan, expected = small
    plain = xr.open_dataset(plan.sweep.out / "results.zarr", engine="zarr")
    np.testing.assert_array_equal(plain["rank"].values, expected["rank"].values)
    files = [one for one in plan.sweep.out.rglob("*") if one.is_file()]
    assert len(files) < 80  # twelve cells, or thousands: those of the variables


def test_a_point_of_another_process_is_left_to_it(tmp_path):
    """While a process holds a point it is not computed here; when it dies, it is."""
    plan = planned(tmp_path / "out")
    plan.open_store().close()
    lock = tmp_path / "out" / "points.lock"
    keys = {number: own.key for number, own in plan.identities.items()}
    place = _byte(keys[0])
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl, time; f = open({str(lock)!r}, 'ab'); "
            f"fcntl.lockf(f, fcntl.LOCK_EX, 1, {place}); "
            "print('held', flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        store = plan.open_store()
        with store.claim({number: keys[number] for number in (0, 1)}) as own:
            assert own == [1]
        store.close()
        replacing = planned(tmp_path / "out", overwrite=True)
        with pytest.raises(OutputExistsError, match="must not be in use"):
            replacing.open_store()
        seen = []

        class Watch:
            def stage(self, name, total):
                pass

            def update(self, done, total):
                seen.append((done, time.monotonic()))
                # all but the held one and the cell that is like it
                if done == total - 2:
                    holder.kill()

        results = sweeps.run_sweep(plan, Watch())
        assert bool(results["done"].all())
        assert seen[-1][0] == 12
    finally:
        holder.kill()
        holder.communicate()


def test_from_python(small, tmp_path):
    """Plain values and a file give what the command gives, and the values are left as they were."""
    _, expected = small
    content = {
        "rounds": 12,
        "trials": 3,
        "population": {"num_clients": 12, "cohort_size": 4},
        "grid": {
            "scheme": ["uniform", "partition", "batch_partitioning"],
            "privacy_target": [1, 2],
            "population": {"dropout_rates": [0.1, 0.5]},
        },
    }
    before = repr(content)
    equal_but_for_time(expected, study.sweep(content, out=tmp_path / "values").load())
    assert repr(content) == before
    path = tmp_path / "study.toml"
    path.write_text(SMALL.format(out=str(tmp_path / "unused")))
    equal_but_for_time(expected, study.sweep(path, out=str(tmp_path / "file")).load())
    assert not (tmp_path / "unused").exists()
    with pytest.raises(OutputExistsError, match="must not hold another sweep"):
        study.sweep(content | {"rounds": 3}, out=tmp_path / "values")
    with pytest.raises(ConfigurationError, match=r"`grid\.rate` is not a field"):
        study.sweep({"grid": {"rate": [1]}}, out=tmp_path / "none")


def test_a_dry_run_says_what_is_there_and_why_the_rest_is_not(tmp_path):
    """Points of the folder, further trials, new values, and a trace that has changed."""
    trace, out = tmp_path / "trace.npy", tmp_path / "out"
    np.save(trace, np.ones((9, 12), bool))
    grid = {
        "rounds": 9,
        "trials": 2,
        "population": {"num_clients": 12, "cohort_size": 4},
        "grid": {
            "scheme": ["uniform"],
            "seed": [0, 1],
            "population": {"availability": ["independent", f"replay:{trace}"]},
        },
    }

    def asked(**changes):
        found = study.sweep(grid | changes, out=out, dry_run=True)
        assert found["points"] == found["there"] + found["new"] + sum(
            count for *_, count in found["more_trials"]
        )
        return found

    first = asked()
    assert (first["there"], first["new"], first["unknown"], first["seconds"]) == (
        0,
        4,
        4,
        0.0,
    )
    assert not out.exists()
    results = study.sweep(grid, out=out)
    again = asked()
    assert (again["there"], again["new"], again["unknown"], again["seconds"]) == (
        4,
        0,
        0,
        0.0,
    )
    assert abs(again["files"] - sum(path.is_file() for path in out.rglob("*"))) <= 4
    more = asked(trials=5)
    assert more["more_trials"] == [[2, 5, 4]]
    each = results["seconds"].values / 2
    by_group = np.median(each, axis=1) if len(more["groups"]) > 1 else np.median(each)
    assert more["seconds"] == pytest.approx(
        3 * np.sum(by_group * 4 / np.size(by_group))
    )
    np.save(trace, np.zeros((9, 12), bool))
    changed = asked()
    assert (changed["there"], changed["new"]) == (2, 2)
    assert changed["changed"] == [
        "trace.npy has changed (availability) since 2 points were computed: they are "
        "computed anew"
    ]
    reused = study.sweep(grid, out=tmp_path / "x", reuse=out, dry_run=True)
    assert (reused["there"], reused["new"]) == (2, 2)
