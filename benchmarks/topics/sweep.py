"""A sweep into its store against the same points without one, and against a NumPy script.

The script does what a user would write: all trials of a point at once, ranks and leverages from the
eigenvalues of the smaller Gram matrix, the first exposed round by bisection, with a tolerance.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tempfile
from typing import Any

import numpy as np

from mrsa_jax import availability, selection
from mrsa_jax.bench._selection import peer_of
from mrsa_jax.bench.harness import Case, Measurement, compare, one_thread
from mrsa_jax.selection import Scheme
from mrsa_jax.study._trial import analyse
from mrsa_jax.study.sweeps import Plan, plan_sweep, run_sweep, sweep_of
from mrsa_jax.study.sweeps._engine import computed as computed_of

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
    def stored() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            own = dataclasses.replace(plan.sweep, out=pathlib.Path(folder) / "store")
            return run_sweep(dataclasses.replace(plan, sweep=own)).load()

    def computed() -> dict[int, dict[str, np.ndarray]]:
        found: dict[int, dict[str, np.ndarray]] = {}
        for task in plan.tasks():
            found.update(zip(task.numbers, computed_of(plan, task), strict=True))
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


# ---- A user's own script.

_NEAR = 1e-6  # a leverage of this much less than 1 counts as exposure


def _leverages(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks of histories float64[B, J, N], and each client's leverage, [B, N]."""
    is_wide = rows.shape[1] < rows.shape[2]
    turned = rows.swapaxes(1, 2)
    values, vectors = np.linalg.eigh(rows @ turned if is_wide else turned @ rows)
    is_kept = values > 1e-8 * np.maximum(values[:, -1:], 1)
    if not is_wide:
        return is_kept.sum(axis=1), np.einsum("bnk,bk->bn", vectors**2, is_kept)
    scaled = vectors * np.where(is_kept, 1 / np.sqrt(np.where(is_kept, values, 1)), 0)[:, None]
    return is_kept.sum(axis=1), ((turned @ scaled) ** 2).sum(axis=2)


def _by_script(history: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a sweep keeps of histories bool[B, J, N]."""
    counts, rounds = history.sum(axis=1), history.shape[1]
    columns = [np.unique(np.packbits(own[:, own.any(axis=0)], axis=0), axis=1, return_counts=True)
               for own in history]  # fmt: skip
    rows = history.astype(np.float64)
    rank, leverage = _leverages(rows)
    with np.errstate(divide="ignore"):
        hidden = np.where(counts > 0, 1 / leverage, np.nan)
    hidden[~counts.any(axis=1)] = np.inf  # no client took part
    is_exposed = (leverage > 1 - _NEAR).any(axis=1)
    low, high = np.full(len(rows), -1), np.where(is_exposed, rounds - 1, -1)
    while (own := np.flatnonzero(high - low > 1)).size:
        middle = (low[own] + high[own]) // 2
        until = rows[own] * (np.arange(rounds) <= middle[:, None])[..., None]
        is_before = (_leverages(until)[1] > 1 - _NEAR).any(axis=1)
        high[own] = np.where(is_before, middle, high[own])
        low[own] = np.where(is_before, low[own], middle)
    return {
        "strong_privacy": np.array([min(sizes, default=-1) for _, sizes in columns]),
        "rank": rank,
        "exposed_clients": (leverage > 1 - _NEAR).sum(axis=1),
        "first_exposed_round": high,
        "hidden_among_worst": np.nanmin(hidden, axis=1),
        "hidden_among_median": np.nanmedian(hidden, axis=1),
        "skipped_rounds": (~history.any(axis=2)).sum(axis=1),
        "fairness_gap": (counts.max(axis=1) - counts.min(axis=1)) / rounds,
        "aggregation_cardinality": counts.sum(axis=1) / rounds,
    }


def _check_script(schemes: list[str], clients: int, rounds: int) -> None:
    """Raise unless the script finds in the same histories what we find.

    Its tolerance takes a client near exposure for exposed: its first round may be earlier.
    """
    for scheme in schemes:
        selector = Scheme.parse(scheme).build(clients, clients // 10)
        online = availability.independent(0.3)
        history = np.array(selection.rollout_trials(0, selector, online, rounds, 3))
        theirs, ours = _by_script(history), analyse(history, at_end=True)
        for name in ("strong_privacy", "rank", "hidden_among_worst", "hidden_among_median"):
            own = np.nan_to_num(getattr(ours, name)[:, -1], nan=np.inf)
            np.testing.assert_allclose(theirs[name], own, rtol=1e-5)
        first = ours.first_exposure.min(axis=1, where=ours.first_exposure >= 0, initial=rounds)
        gone = np.where(first < rounds, first, -1) - theirs["first_exposed_round"]
        assert ((gone >= 0) & (gone <= 2)).all(), gone


def _beside_script(
    clients: int, rounds: int, trials: int, rates: list[float], repeats: int
) -> Measurement:
    cohort = clients // 10
    schemes = ["uniform", "weighted", "partition"]
    schemes += [f"batch_partitioning:{size}" for size in (2, cohort // 2)]
    settings = {"rounds": rounds, "trials": trials}
    grid = {"scheme": schemes, "population": {"dropout_rates": rates}}
    sizes = {"num_clients": clients, "cohort_size": cohort}

    def ours() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            asked = sweep_of(settings | {"population": sizes, "grid": grid, "out": f"{folder}/own"})
            return run_sweep(plan_sweep(asked)).load()

    peers = [peer_of(Scheme.parse(name), clients, cohort) for name in schemes]

    def script() -> list[dict[str, np.ndarray]]:
        with one_thread():
            return [
                _by_script(peer.rollouts(np.full(clients, rate), trials, rounds))
                for peer in peers
                for rate in rates
                if peer is not None
            ]

    def check(results: Any, _: Any) -> None:
        assert bool(results["done"].all())
        _check_script(schemes, clients, rounds)

    return compare(
        ours,
        script,
        work=len(schemes) * len(rates),
        unit="points",
        peer_name="a NumPy script: all trials of a point at once, on one core",
        check=check,
        aim=5 if clients < 1000 else 3,
        repeats=repeats,
        note="planned and stored; the script keeps its arrays in memory, and its tolerance may see "
        "the first exposure up to two rounds early",
    )


def cases(quick: bool) -> list[Case]:
    """Return a sweep of schemes, rates and targets, and sweeps against a script."""
    rounds, trials, rates, repeats = (40, 2, 2, 1) if quick else (500, 100, 5, 2)
    name = f"6 schemes x {rates} rates x 3 targets x {trials} trials x {rounds} rounds"
    found = [Case(name, lambda: _measure(_planned(rounds, trials, rates), repeats))]
    for clients in (60,) if quick else (60, 120, 240, 1000):
        sizes = (clients, 40, 4, [0.3], 1) if quick else (clients, 150, 20, [0.1, 0.3, 0.5], 3)
        words = f"against a script: N = {clients}, {sizes[2]} trials x {sizes[1]} rounds"
        found.append(Case(words, functools.partial(_beside_script, *sizes)))
    return found
