"""Sweeps on workers: the same numbers, also when a worker dies.

Clear errors without a cluster.
"""

import dataclasses
import os
import signal

import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.study.sweeps import Machine, _engine, parse_sweep, plan_sweep, run_sweep

TEXT = """
rounds = 10
trials = 2
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "batch_partitioning:2"]
seed = {range = [0, 8]}
"""


def planned(folder, machine=None):
    sweep = dataclasses.replace(parse_sweep(TEXT), out=folder)
    return plan_sweep(sweep, machine)


def equal_but_for_time(one, other):
    for name in one.data_vars:
        if name != "seconds":
            np.testing.assert_array_equal(
                one[name].values, other[name].values, err_msg=name
            )


@pytest.mark.long
def test_a_scheduler_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(_engine, "_SECONDS_TO_CONNECT", 0.2)
    with pytest.raises(
        ConfigurationError, match=r"`scheduler` must answer; got 'tcp://127"
    ):
        _engine.run_on_workers(planned(tmp_path / "out"), scheduler="tcp://127.0.0.1:9")
    with pytest.raises(
        ConfigurationError, match=r"`scheduler` must answer; got 'nowhere://x'"
    ):
        _engine.run_on_workers(planned(tmp_path / "out"), scheduler="nowhere://x")
    assert not (tmp_path / "out").exists()


def test_without_dask(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigurationError, match="pip install 'distributed>="):
        _engine.run_on_workers(planned(tmp_path / "out"), workers=1)


def test_tasks_are_enough_for_all_workers(tmp_path):
    plan = planned(tmp_path / "out")
    assert [len(task.numbers) for task in plan.tasks()] == [16]
    assert [len(task.numbers) for task in _engine._cut(plan, 2).tasks()] == [2] * 8
    assert [len(task.numbers) for task in _engine._cut(plan, 50).tasks()] == [1] * 16


def children():
    import psutil

    return [
        one.pid
        for one in psutil.Process().children(recursive=True)
        if "spawn_main" in " ".join(one.cmdline())
    ]


@pytest.mark.slow
def test_one_worker_and_three_and_one_that_is_killed(tmp_path):
    alone = run_sweep(planned(tmp_path / "alone")).load()
    one = _engine.run_on_workers(planned(tmp_path / "one"), workers=1).load()
    equal_but_for_time(alone, one)

    class Killer:
        killed = None

        def stage(self, name, total):
            pass

        def update(self, done, total):
            if 2 <= done < total - 2 and self.killed is None:
                self.killed = children()[0]
                os.kill(self.killed, signal.SIGKILL)

    killer = Killer()
    plan = planned(tmp_path / "three", Machine(memory_bytes=1))
    three = _engine.run_on_workers(plan, killer, workers=3).load()
    assert killer.killed is not None
    equal_but_for_time(alone, three)
    assert not children()
