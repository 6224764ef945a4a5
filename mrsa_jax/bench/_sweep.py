"""A sweep into its store against the same points without one: what keeping results costs."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from typing import Any

import numpy as np

from mrsa_jax.bench._harness import Case, Measurement, compare
from mrsa_jax.study.sweeps import Plan, plan_sweep, run_sweep, sweep_of

_SCHEMES = [
    "uniform",
    "weighted",
    "partition",
    "batch_partitioning",
    "bernoulli:0.1",
    "bernoulli:0.2",
]


def _planned(rounds: int, trials: int, num_rates: int) -> Plan:
    return plan_sweep(
        sweep_of(
            {
                "rounds": rounds,
                "trials": trials,
                "grid": {
                    "scheme": _SCHEMES,
                    "population": {"dropout_rates": {"linspace": [0.1, 0.5, num_rates]}},
                    "privacy_target": [3, 4, 6],
                },
            }
        )
    )


def _measure(plan: Plan, repeats: int) -> Measurement:
    runner = plan.sweep.kind.runner()

    def stored() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            own = dataclasses.replace(plan.sweep, out=pathlib.Path(folder) / "store")
            return run_sweep(dataclasses.replace(plan, sweep=own)).load()

    def computed() -> dict[int, dict[str, np.ndarray]]:
        found: dict[int, dict[str, np.ndarray]] = {}
        for task in plan.tasks():
            configs = [plan.points[number].config for number in task]
            results = runner.run(configs, plan.machine, False, plan.together[task[0]])
            found.update(zip(task, results, strict=True))
        return found

    def check(results: Any, apart: dict[int, dict[str, np.ndarray]]) -> None:
        assert bool(results["done"].all())
        for number, values in apart.items():
            index = np.unravel_index(number, plan.sweep.shape)
            for name, value in values.items():
                here = results[name].values[index]
                if np.issubdtype(value.dtype, np.integer):  # -1 is read back as "none": NaN
                    here = np.nan_to_num(here, nan=-1)
                np.testing.assert_array_equal(here, value)

    return compare(
        stored,
        computed,
        work=plan.sweep.size,
        unit="cells",
        peer_name="the same points, not kept",
        check=check,
        aim=0.95,
        repeats=repeats,
        note=f"{plan.num_computed} points differ, in {len(plan.groups)} compiled groups; aimed at: "
        "two minutes on two cores, and no more than 5 % for the store",
    )


def cases(quick: bool) -> list[Case]:
    """Return the sweep of six schemes, five dropout rates and three privacy targets."""
    rounds, trials, rates, repeats = (40, 2, 2, 1) if quick else (500, 100, 5, 2)
    name = f"6 schemes x {rates} rates x 3 targets x {trials} trials x {rounds} rounds"
    return [Case(name, lambda: _measure(_planned(rounds, trials, rates), repeats))]
