"""Points shared by several devices and by several processes: the numbers stay the same."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.sweeps import join_hosts

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("127.0.0.1:9", 2, 2),
            r"`process_index` must lie in \[0, num_processes\); got 2 and 2",
        ),
        (("127.0.0.1:9", 0, 0), "`num_processes` must be at least 1; got 0"),
    ],
)
def test_misuse(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        join_hosts(*arguments)


def started(path, out, *words, devices):
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, "sweep", str(path), "--out", str(out), *words],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


LOGGED = """
import os, sys, time
from mrsa_jax.cli import main
from mrsa_jax.study.sweeps import SweepStore
write = SweepStore.write
def logged(self, identity, *of):
    time.sleep(float(os.environ["SLOW"]))
    with open(sys.argv[1], "a") as log:
        log.write(f"{os.environ['WHO']} {identity.key}\\n")
    write(self, identity, *of)
SweepStore.write = logged
sys.exit(main(sys.argv[2:]))
"""


def logged(who, slow, log, path, out, *words):
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            LOGGED,
            str(log),
            "sweep",
            str(path),
            "--out",
            str(out),
            *words,
        ],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "WHO": who, "SLOW": str(slow)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(*processes):
    for one in processes:
        _, errors = one.communicate(timeout=400)
        assert one.returncode == 0, errors.decode()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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
def test_one_device_and_eight_and_two_processes(text, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(text)
    single = started(path, tmp_path / "one", "--devices", "1", devices=1)
    finished(single)
    finished(started(path, tmp_path / "eight", "--devices", "8", devices=8))
    address = f"127.0.0.1:{free_port()}"
    words = ["--coordinator", address, "--num-processes", "2", "--process-index"]
    finished(
        *(started(path, tmp_path / "two", *words, str(i), devices=2) for i in range(2))
    )
    alone = study.open_study(tmp_path / "one").load()
    compared(alone, study.open_study(tmp_path / "eight").load())
    compared(alone, study.open_study(tmp_path / "two").load())
    if text == TRAIN:
        assert (alone["accuracy"] > 0.3).any()
        assert alone["evaluated_round"].values[0, 0].tolist()[-1] == 4


@pytest.mark.slow
def test_two_hosts_beside_a_plain_process_do_each_point_once(tmp_path):
    """The plain one is slow, so that the others come while it works, and must wait for it."""
    path, log, out = tmp_path / "study.toml", tmp_path / "log", tmp_path / "out"
    path.write_text(SIMULATE + "seed = {range = [0, 8]}\n")
    plain = logged("plain", 0.7, log, path, out, "--memory-gib", "1e-9")
    while not log.exists() and plain.poll() is None:
        time.sleep(0.05)
    address = f"127.0.0.1:{free_port()}"
    words = ["--coordinator", address, "--num-processes", "2", "--process-index"]
    hosts = [logged(f"host{i}", 0, log, path, out, *words, str(i)) for i in range(2)]
    finished(plain, *hosts)
    results = study.open_study(out).load()
    assert bool(results["done"].all())
    assert np.isfinite(results["seconds"]).all()
    lines = log.read_text().splitlines()
    cells = [line.split(" ", 1)[1] for line in lines]
    assert len(cells) == len(set(cells)) == results["done"].size == 48
    assert {line.split(" ", 1)[0] for line in lines} == {"plain", "host0"}
    finished(started(path, tmp_path / "alone", devices=1))
    compared(study.open_study(tmp_path / "alone").load(), results)
