"""What memory there is, and what each command says and refuses for want of it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax._core import device as _device, memory as _memory
from mrsa_jax.cli import main
from mrsa_jax.study import (
    DataConfig,
    PopulationConfig,
    SimulateConfig,
    TrainConfig,
    TrainingConfig,
)
from mrsa_jax.study.runs import _simulate_points, _trial
from mrsa_jax.study.runs._training_setting import setting_of
from mrsa_jax.study.stores._runner import Machine

UNITS = {"MiB": 2**20, "GiB": 2**30}


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the folder of a machine of which nothing is known."""
    monkeypatch.setattr(_memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(_memory, "_PROCESS", tmp_path / "self")
    monkeypatch.setattr(_memory, "_GROUPS", tmp_path / "groups")
    return tmp_path


def test_the_least_of_machine_and_groups_is_free(machine: pathlib.Path) -> None:
    assert _memory.free_bytes() is None
    assert _memory.memory_words(2**60, "n", 1, "n") == "memory: about 1,073,741,824 GiB"
    write(
        machine / "meminfo",
        "MemTotal: 9000 kB\nMemAvailable:    7000 kB\nSwapFree: 1 kB\n",
    )
    assert _memory.free_bytes() == 7000 * 1024
    # version 2: the group above is the tighter one, a group without a limit says
    # nothing
    write(machine / "self" / "cgroup", "0::/outer/inner\n")
    groups = machine / "groups"
    write(groups / "outer" / "inner" / "memory.max", "max\n")
    write(groups / "outer" / "inner" / "memory.current", "1000\n")
    write(groups / "outer" / "memory.max", "6000\n")
    write(groups / "outer" / "memory.current", "2500\n")
    assert _memory.free_bytes() == 3500
    write(groups / "outer" / "memory.stat", "anon 1500\ninactive_file 1000\n")
    assert _memory.free_bytes() == 4500
    write(groups / "outer" / "memory.current", "9000\n")
    assert _memory.free_bytes() == 0
    # version 1, beside groups of other things
    write(machine / "self" / "cgroup", "3:cpu:/outer\n2:memory:/one\n")
    write(groups / "memory" / "one" / "memory.limit_in_bytes", "5000\n")
    write(groups / "memory" / "one" / "memory.usage_in_bytes", "1200\n")
    assert _memory.free_bytes() == 3800


def test_work_is_refused_exactly_where_it_needs_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_memory, "free_bytes", lambda: 2**30)
    words = _memory.memory_words(2**30, "n", 5, "n or m")
    assert words == "memory: about 1 GiB of 1 GiB that are free"
    with pytest.raises(ConfigurationError) as caught:
        _memory.memory_words(2**30 + 1, "n", 5, "n or m")
    rule = "`n` must fit into memory: about 1 GiB of 1 GiB that are free; reduce n or m; got 5"
    assert str(caught.value) == rule


def test_an_accelerator_with_less_than_the_machine_is_named(
    machine: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(machine / "meminfo", "MemAvailable: 41943040 kB\n")
    assert _memory.accelerator_words() == ""
    stats = {"bytes_limit": 60 * 2**30, "bytes_in_use": 24 * 2**30}
    monkeypatch.setattr(_device, "memory_stats", lambda: stats)
    free = "of 36 GiB that are free on the accelerator"
    assert _memory.accelerator_words() == f" {free}"
    assert _memory.memory_words(3 * 2**30, "n", 5, "n") == f"memory: about 3 GiB {free}"
    with pytest.raises(
        ConfigurationError, match=f"fit into memory: about 37 GiB {free}"
    ):
        _memory.memory_words(37 * 2**30, "n", 5, "n")
    stats["bytes_in_use"] = 0
    assert _memory.memory_words(1, "n", 5, "n").endswith("of 40 GiB that are free")


def test_an_accelerator_is_filled_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_memory, "free_bytes", lambda: None)
    config = SimulateConfig(
        population=PopulationConfig(num_clients=120, cohort_size=12),
        rounds=200,
        trials=10**6,
    )
    with _device.compiling_for("cuda", 132 * 2048, 80 * 2**30):
        chunk = 2**14 * 132 * 2048 // (200 * 120)
        assert _simulate_points.stated_memory(config).endswith(
            f"; {chunk:,} of 1,000,000 trials at once"
        )
        few = dataclasses.replace(config, trials=30)
        assert _simulate_points.stated_memory(few).endswith("; 30 of 30 trials at once")
        # histories of 30 trials by point: a CPU holds 2^28 bytes of them
        on_gpu = _simulate_points.together(few, Machine())
    rolled = _trial.rolled_bytes(30, 200, 120)
    on_cpu = _simulate_points.together(few, Machine())
    assert on_cpu == min(64, 2**28 // rolled)
    assert on_gpu == min(64, 2**14 * 132 * 2048 // rolled) >= on_cpu
    bound = Machine(memory_bytes=3 * rolled)
    assert _simulate_points.together(few, bound) == 3
    assert "at once" not in _simulate_points.stated_memory(few)


@pytest.mark.long
def test_how_many_clients_train_side_by_side_on_an_accelerator() -> None:
    config = TrainConfig(
        population=PopulationConfig(num_clients=8, cohort_size=4),
        data=DataConfig(dataset="digits"),
        training=TrainingConfig(model="logistic"),
        rounds=2,
    )
    said: list[str] = []
    progress = mock.Mock(spec=["stage", "update", "say", "note"], say=said.append)
    setting = setting_of(config, progress)
    setting.stated_bytes(4)
    assert " at once" not in said[-1]
    setting.stated.clear()
    # 2^12 bytes for each lane, of 4 x 650 for a client
    with _device.compiling_for("cuda", 2, 2**30):
        setting.stated_bytes(4)
    assert said[-1].endswith("that are free on the accelerator; 3 of 4 clients at once")


STUDY = (
    "rounds = 3\ntrials = 2\n[population]\nnum_clients = 8\ncohort_size = 4\n[grid]\n"
)
SMALL = ["--num-clients", "8", "--cohort-size", "4"]
COMMANDS = {
    "simulate": ["--out", "{out}", "--schemes", "uniform", *SMALL],
    "demo": ["--out", "{out}", "--schemes", "uniform", *SMALL],
    "train": ["--out", "{out}", "--scheme", "uniform", *SMALL],
    "audit": ["{log}", "--out", "{out}"],
    "secagg": [],
    "secagg --trials": ["9"],
    "segments": [],
    "attack": ["disaggregation", "--out", "{out}", *SMALL],
    "sweep": ["{study}", "--out", "{out}"],
}


def test_every_command_refuses_what_the_machine_has_not(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "log").write_text("round,client\n1,a\n1,b\n2,b\n2,c\n")
    (tmp_path / "study").write_text(STUDY + 'scheme = ["uniform"]\n')
    places = {name: str(tmp_path / name) for name in ("log", "study", "out")}
    monkeypatch.setattr(_memory, "free_bytes", lambda: 512)
    for command, words in COMMANDS.items():
        assert main([*command.split(), *(word.format(**places) for word in words)]) == 2
        told = capsys.readouterr()
        assert told.err.count("error: `") == 1
        sentence = told.err[told.err.index("error: `") :].strip()
        assert re.fullmatch(
            r"error: `\w+` must fit into memory: about [\d.]+ [KM]iB of 0.5 KiB that "
            r"are free; "
            r"reduce [^;]+; got .+",
            sentence,
        ), sentence
        assert told.out == ""
        assert not (tmp_path / "out").exists()


def test_what_no_machine_has_is_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (
        ["simulate", "--num-clients", "1000000000000", "--schemes", "uniform"],
        ["train", "--num-clients", "1000000000000", "--scheme", "uniform"],
        ["secagg", "--num-clients", "10000000"],
        ["secagg", "--num-clients", "10000000", "--trials", "5"],
        ["secagg", "--num-clients", "100", "--dim", "1000000000000"],
        ["segments", "--group-sizes", *["1000000"] * 5],
        ["segments", "--trials", "4000000000"],
    ):
        assert main(words) == 2
        assert "must fit into memory: about " in capsys.readouterr().err


def test_need_grows_with_clients_and_not_with_pairs_of_them() -> None:
    def needed(clients: int, rounds: int = 20) -> int:
        population = PopulationConfig(num_clients=clients, cohort_size=100)
        return _simulate_points.simulate_bytes(
            SimulateConfig(rounds=rounds, trials=50, population=population)
        )

    assert needed(10**5) < 2**30
    assert needed(10**6) <= 10 * needed(10**5)
    assert needed(10**5, rounds=40) <= 2 * needed(10**5)
    # of very large histories a few bytes an entry, not the 96 of those that are looked
    # at at once
    large = [
        needed(10**6, rounds=rounds) - needed(10**6, 200) for rounds in (300, 1000)
    ]
    assert large[1] == pytest.approx(8 * large[0], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "rounds", "trials"), [(100_000, 20, 20), (20_000, 100, 4)]
)
def test_a_study_of_very_many_clients_keeps_to_what_it_states(
    clients: int, rounds: int, trials: int, tmp_path: pathlib.Path
) -> None:
    def run(*sizes: Any) -> tuple[int, str]:
        flags = ("--num-clients", "--cohort-size", "--rounds", "--trials")
        words = [
            word for pair in zip(flags, sizes, strict=True) for word in map(str, pair)
        ]
        out = tmp_path / "-".join(map(str, sizes))
        code = (
            "import sys; from mrsa_jax.cli import main; status = main(sys.argv[1:]); "
            # not getrusage, whose peak a child has from its parent
            "peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]; "
            "print(peak, file=sys.stderr); sys.exit(status)"
        )
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                code,
                "simulate",
                *words,
                "--out",
                str(out),
                "--schemes",
                "uniform",
                "weighted",
                "batch_partitioning:4",
                "--json",
            ],
            capture_output=True,
            check=True,
            text=True,
            env=dict(os.environ),
        )
        return int(done.stderr.split()[-1]) * 1024, done.stderr

    base, _ = run(120, 12, 9, 1)
    peak, told = run(clients, clients // 100, rounds, trials)
    stated = re.search(r"memory: about ([\d.]+) (\w+) of", told)
    assert stated is not None
    in_bytes = float(stated[1]) * UNITS[stated[2]]
    assert peak - base <= 1.2 * in_bytes
    assert in_bytes <= 5 * (peak - base)
