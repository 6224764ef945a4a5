"""Points shared by several devices: the numbers stay the same."""

import os
import subprocess
import sys

import numpy as np
import pytest

from mrsa_jax import study

SWEEP = "import sys; from mrsa_jax.cli import main; sys.exit(main(sys.argv[1:]))"

SIMULATE = """
rounds = 20
trials = 7
[population]
num_clients = 12
cohort_size = 4
[grid]
scheme = ["uniform", "weighted", "batch_partitioning:2"]
population.dropout_rates = [0.1, 0.4]
"""

TRAIN = """
command = "train"
rounds = 4
trajectories = true
[population]
num_clients = 8
cohort_size = 4
[data]
dataset = "digits"
[training]
model = "logistic"
evaluate_every = 2
[grid]
scheme = ["uniform", "batch_partitioning:2"]
training.learning_rate = [0.01, 0.1]
"""


def started(path, out, *words, devices):
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, "sweep", str(path), "--out", str(out), *words],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(*processes):
    for one in processes:
        _, errors = one.communicate(timeout=400)
        assert one.returncode == 0, errors.decode()


def compared(one, other):
    """Integers to the bit, floats to rounding."""
    assert bool(one["done"].all())
    for name in one.data_vars:
        if name == "seconds":
            continue
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(
                one[name].values, other[name].values, rtol=1e-4, atol=1e-6, err_msg=name
            )
        else:
            np.testing.assert_array_equal(
                one[name].values, other[name].values, err_msg=name
            )


@pytest.mark.slow
@pytest.mark.parametrize("text", [SIMULATE, TRAIN], ids=["simulate", "train"])
def test_one_device_and_eight(text, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(text)
    single = started(path, tmp_path / "one", "--devices", "1", devices=1)
    finished(single)
    finished(started(path, tmp_path / "eight", "--devices", "8", devices=8))
    alone = study.open_study(tmp_path / "one").load()
    compared(alone, study.open_study(tmp_path / "eight").load())
    if text == TRAIN:
        assert (alone["accuracy"] > 0.3).any()
        assert alone["evaluated_round"].values[0, 0].tolist()[-1] == 4
