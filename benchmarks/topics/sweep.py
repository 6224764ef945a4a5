"""A sweep into its store against its points alone, and against a NumPy script.

Beside the script it is measured warm, in a process that has computed the same points
before, and cold: each side in a fresh process, with empty caches of programs and loops.
The last case changes the shape ten times after a sweep of the largest; its record says
what that compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import numpy_sweep
from benchmarks.topics.startup import cold_environment
from mrsa_jax import availability, selection
from mrsa_jax.bench.harness import (
    Measurement,
    ResultsDifferError,
    compare,
    kibibytes,
    one_thread,
)
from mrsa_jax.bench.selection import peer_of
from mrsa_jax.selection import Scheme
from mrsa_jax.study.runs._trial import analyse
from mrsa_jax.study.sweeps import plan_sweep, run_sweep, sweep_of
from mrsa_jax.study.sweeps._engine import computed as computed_of

_SCHEMES = [
    "uniform",
    "weighted",
    "partition",
    "batch_partitioning",
    "bernoulli:0.1",
    "bernoulli:0.2",
]


def stored(rounds: int, trials: int, num_rates: int) -> Measurement:
    """Time a sweep into its store against its points alone."""
    rates = {"linspace": [0.1, 0.5, num_rates]}
    grid = {
        "scheme": _SCHEMES,
        "population": {"dropout_rates": rates},
        "privacy_target": [3, 4, 6],
    }
    plan = plan_sweep(sweep_of({"rounds": rounds, "trials": trials, "grid": grid}))

    def swept() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            sweep = dataclasses.replace(plan.sweep, out=pathlib.Path(folder) / "store")
            return run_sweep(dataclasses.replace(plan, sweep=sweep)).load()

    def computed() -> dict[int, dict[str, np.ndarray]]:
        points: dict[int, dict[str, np.ndarray]] = {}
        for task in plan.tasks():
            points.update(zip(task.numbers, computed_of(plan, task), strict=True))
        return points

    def check(results: Any, apart: dict[int, dict[str, np.ndarray]]) -> None:
        assert bool(results["done"].all())
        for number, values in apart.items():
            index = np.unravel_index(number, plan.sweep.shape)
            for name, value in values.items():
                here = results[name].values[index]
                # -1 is read back as "none": NaN
                if np.issubdtype(value.dtype, np.integer):
                    here = np.nan_to_num(here, nan=-1)
                np.testing.assert_array_equal(here, value)

    return compare(
        swept,
        computed,
        work=plan.sweep.size,
        check=check,
        note=f"{plan.num_computed} points differ, in "
        f"{len(plan.groups)} compiled groups; aimed at: two minutes on two cores, "
        "and no more than 5 % for the store",
    )


class _Size(NamedTuple):
    """Points of five schemes at some dropout rates, with K = N / 10."""

    clients: int
    rounds: int
    trials: int
    rates: tuple[float, ...]

    @property
    def schemes(self) -> list[str]:
        blocks = [f"batch_partitioning:{size}" for size in (2, self.clients // 20)]
        return ["uniform", "weighted", "partition", *blocks]

    @property
    def points(self) -> int:
        return len(self.schemes) * len(self.rates)

    @property
    def study(self) -> str:
        """The file of the sweep."""
        return f"""
            rounds = {self.rounds}
            trials = {self.trials}
            population.num_clients = {self.clients}
            population.cohort_size = {self.clients // 10}
            [grid]
            scheme = {self.schemes}
            population.dropout_rates = {list(self.rates)}
        """

    @property
    def script(self) -> dict[str, Any]:
        """Arguments of `numpy_sweep.points`."""
        parsed = (Scheme.parse(name) for name in self.schemes)
        peers = [peer_of(scheme, self.clients, self.clients // 10) for scheme in parsed]
        selectors = [dataclasses.asdict(peer) for peer in peers if peer is not None]
        sizes = {"rates": self.rates, "trials": self.trials, "rounds": self.rounds}
        return {"selectors": selectors} | sizes


def _swept(size: _Size) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        study = tomllib.loads(size.study) | {"out": f"{folder}/own"}
        return run_sweep(plan_sweep(sweep_of(study))).load()


def _check_script(size: _Size) -> None:
    """Raise unless the script finds in the same histories what we find.

    Its tolerance takes a client near exposure for exposed: its first round may be
    earlier.
    """
    for scheme in size.schemes:
        selector = Scheme.parse(scheme).build(size.clients, size.clients // 10)
        online = availability.independent(0.3)
        history = np.array(
            selection.rollout_trials(0, selector, online, size.rounds, 3)
        )
        theirs, ours = numpy_sweep.analysed(history), analyse(history, at_end=True)
        for name in (
            "strong_privacy",
            "rank",
            "hidden_among_worst",
            "hidden_among_median",
        ):
            expected = np.nan_to_num(getattr(ours, name)[:, -1], nan=np.inf)
            np.testing.assert_allclose(theirs[name], expected, rtol=1e-5)
        first = ours.first_exposure.min(
            axis=1, where=ours.first_exposure >= 0, initial=size.rounds
        )
        # a tolerance may see exposure up to two rounds early
        gone = np.where(first < size.rounds, first, -1) - theirs["first_exposed_round"]
        assert ((gone >= 0) & (gone <= 2)).all(), gone


def warm(clients: int, rounds: int, trials: int, rates: list[float]) -> Measurement:
    """Time a sweep against a script in a process that has computed it before."""
    size = _Size(clients, rounds, trials, tuple(rates))
    arguments = size.script

    def script() -> list[dict[str, np.ndarray]]:
        with one_thread():
            return numpy_sweep.points(**arguments)

    def check(results: Any, theirs: list[dict[str, np.ndarray]]) -> None:
        assert bool(results["done"].all())
        assert len(theirs) == size.points
        _check_script(size)

    return compare(
        lambda: _swept(size),
        script,
        work=size.points,
        check=check,
    )


class _Ended(NamedTuple):
    """A program that has ended.

    What it printed, the most bytes that it held, what it compiled.
    """

    answer: dict[str, Any]
    memory: int
    compiled: dict[str, int]


def _most_memory(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process.

    Return the most bytes that it has held (0 where the system hides it).
    """
    most = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):  # the process has just ended
            most = kibibytes(pathlib.Path(f"/proc/{process.pid}"), "VmHWM:")
        time.sleep(0.01)
    return 1024 * most


def _fresh(program: Sequence[str]) -> _Ended:
    """Run a program in a fresh process with empty caches, NumPy on one thread."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        names = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "JAX_LOG_COMPILES"
        process = subprocess.Popen(
            [sys.executable, "-m", *program],
            stdout=output,
            stderr=errors,
            cwd=folder,
            env=cold_environment(folder) | dict.fromkeys(names, "1"),
        )
        memory = _most_memory(process)
        errors.seek(0)
        words = errors.read()
        if process.returncode:
            raise ResultsDifferError(
                f"{program[0]} ended with an error: {words[-500:]}"
            )
        output.seek(0)
        # numba writes a file per compiled loop
        loops = sum(1 for _ in pathlib.Path(folder).rglob("*.nbc"))
        compiled = {"xla": words.count("Compiling "), "numba": loops}
        return _Ended(json.loads(output.read()), memory, compiled)


def cold(clients: int, rounds: int, trials: int, rates: list[float]) -> Measurement:
    """Time a sweep and a script from the start of a process to its end."""
    size = _Size(clients, rounds, trials, tuple(rates))
    with tempfile.TemporaryDirectory() as folder:
        study = pathlib.Path(folder) / "study.toml"
        study.write_text(size.study, encoding="utf-8")
        sweep = ["mrsa_jax", "sweep", str(study), "--out", "own", "--json"]
        script = ["benchmarks.numpy_sweep", json.dumps(size.script)]
        processes = []

        def ours() -> _Ended:
            processes.append(_fresh(sweep))
            return processes[-1]

        def check(ended: _Ended, theirs: _Ended) -> None:
            assert ended.answer["done"] == theirs.answer["done"] == size.points
            assert not theirs.answer["jax"], "the script has loaded JAX"

        measured = compare(
            ours,
            lambda: _fresh(script),
            work=size.points,
            check=check,
            is_elsewhere=True,
        )
    memory = min(ended.memory for ended in processes)
    compiled = processes[0].compiled
    return dataclasses.replace(measured, memory_bytes=memory, compiled=compiled)


def _below(largest: _Size) -> list[_Size]:
    """Return ten other shapes below the largest."""
    return [
        largest._replace(
            clients=100 - 20 * (i % 3),
            rounds=largest.rounds - 1 - i,
            trials=largest.trials - i % 4,
        )
        for i in range(10)
    ]


def changes(clients: int, rounds: int, trials: int, rates: list[float]) -> Measurement:
    """Time sweeps of other shapes after one of the largest."""
    largest = _Size(clients, rounds, trials, tuple(rates))
    changed = _below(largest)
    _swept(largest)

    def check(results: list[Any], _: None) -> None:
        for size, result in zip(changed, results, strict=True):
            assert result["done"].size == size.points
            assert bool(result["done"].all())

    return compare(
        lambda: [_swept(size) for size in changed],
        work=len(changed),
        check=check,
    )
