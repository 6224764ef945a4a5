"""What a sweep of attacks says of its memory, against what processes take."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.study import KINDS
from mrsa_jax.study.sweeps import Machine, parse_sweep

NAMES = [name.removeprefix("attack ") for name in KINDS if name.startswith("attack")]


def attack_bytes(config):
    return KINDS["attack gradients"].runner().memory_bytes(config, Machine(), 1)


def config_of(name, settings=""):
    text = f'command = "attack {name}"\n{settings}\n[grid]\nseed = [0]\n'
    (point,) = parse_sweep(text).points()
    assert not point.problem
    return point.config


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_states_it(name, tmp_path, capsys):
    path = tmp_path / "study.toml"
    path.write_text(f'command = "attack {name}"\n[grid]\nseed = [0, 1]\n')
    assert main(["sweep", str(path), "--dry-run", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    # one at a time, however many there are
    assert content["memory_bytes"] == attack_bytes(config_of(name))
    assert content["memory_bytes"] > 2**27


@pytest.mark.parametrize(
    ("name", "small", "large", "least"),
    [
        # 100 more sums of 100,000 float64, and of a model's 650 parameters
        (
            "disaggregation",
            "rounds = 60\ndim = 100000",
            "rounds = 160\ndim = 100000",
            8e7,
        ),
        ("least-squares", "rounds = 80", "rounds = 180", 8 * 100 * 650),
        # 60 more models, each a vector of 7850
        # 1000 more trainings of 12 rounds and 24 clients
        ("distinguish", "trainings = 400", "trainings = 1400", 8 * 1000 * 12 * 24),
        # 100 more models and sums of 650 entries
        ("attribute", "rounds = 200", "rounds = 300", 2 * 4 * 100 * 650),
        ("model-inversion", "num_clients = 10", "num_clients = 70", 4 * 60 * 7850),
        ("membership", "num_shadows = 10", "num_shadows = 70", 4 * 60 * 4810),
        # gradients of 8 more starts, of a LeNet: three 5 x 5 convolutions of 12, 768 x
        # 10
        (
            "gradients",
            "restarts = 1",
            "restarts = 9",
            4 * 8 * (25 * 12 * (3 + 12 + 12) + 7680),
        ),
        # 64 x h weights and h biases, then h x 10 and 10
        ("inconsistency", "hidden_size = 10", "hidden_size = 1010", 4 * 8 * 75 * 1000),
    ],
)
def test_it_grows_with_the_arrays(name, small, large, least):
    grown = attack_bytes(config_of(name, large)) - attack_bytes(config_of(name, small))
    assert least <= grown <= 100 * least


@pytest.mark.smoke
def test_arrays_in_files_are_counted_by_their_shapes(tmp_path):
    files = {
        "aggregates": np.zeros((30, 20_000)),
        "participation": np.ones((30, 12), bool),
    }
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    settings = "\n".join(f"{name} = '{tmp_path}/{name}.npy'" for name in files)
    nothing = attack_bytes(config_of("least-squares", "model = 'logistic'\nrounds = 1"))
    found = attack_bytes(config_of("least-squares", settings))
    assert found - nothing == pytest.approx(8 * 20_000 * (30 + 12), rel=0.3)


_MEASURE = """
import json, pathlib, sys
import jax.numpy as jnp
from mrsa_jax.study import KINDS
from mrsa_jax.study.sweeps import Machine, parse_sweep

def peak():  # of this program; getrusage would start from its parent's
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

name, settings = sys.argv[1:]
text = f'command = "attack {name}"\\n{settings}\\n[grid]\\nseed = [0]\\n'
(point,) = parse_sweep(text).points()
jnp.zeros(3).block_until_ready()
points = KINDS["attack gradients"].runner()
estimate = points.memory_bytes(point.config, Machine(), 1)
before = peak()
list(points.run_points([point.config], Machine(), (), 1))
print(json.dumps({"estimate": estimate, "measured": peak() - before}))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not pathlib.Path("/proc/self/status").exists(), reason="needs Linux's /proc"
)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("disaggregation", "num_clients = 8\nrounds = 24\ncohort_size = 4"),
        (
            "disaggregation",
            "num_clients = 8\nrounds = 24\ncohort_size = 4\ndim = 500000",
        ),
        ("least-squares", "rounds = 20\nwarm_up = 2\nschemes = ['uniform']"),
        (
            "least-squares",
            "rounds = 40\nwarm_up = 2\nmodel = 'mlp'\nschemes = ['uniform']\n"
            "dataset = 'mnist_5k'",
        ),
        ("gradients", "iterations = 2\nrestarts = 1\nseen = ['plain']"),
        ("gradients", "iterations = 2\nrestarts = 8\nseen = ['sum']\nnum_images = 16"),
        ("model-inversion", "iterations = 3\nnum_epochs = 1"),
        ("model-inversion", "iterations = 3\nnum_epochs = 1\nnum_clients = 1000"),
        ("membership", "num_epochs = 1\nnum_shadows = 4\nmethods = ['loss', 'shadow']"),
        (
            "membership",
            "num_epochs = 1\nnum_shadows = 200\nmethods = ['loss']\n"
            "dataset = 'mnist_5k'",
        ),
        (
            "distinguish",
            "trainings = 16\ntrials = 1000\nwarm_up = 2\nschemes = ['uniform']",
        ),
        ("distinguish", "trials = 4000000\nothers = ['gaussian']"),
        ("attribute", "trainings = 1\nrounds = 30\nschemes = ['uniform']"),
        ("inconsistency", "cohort_size = 3"),
        ("inconsistency", "cohort_size = 4\nhidden_size = 20000"),
    ],
)
def test_it_is_about_what_a_process_takes(name, settings):
    """At most 3 times it, at least two thirds of it; programs on disk or compiled anew."""
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(mj.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, name, settings],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["estimate"] <= 3 * answer["measured"]
    assert answer["estimate"] >= answer["measured"] / 1.5
