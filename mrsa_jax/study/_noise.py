"""What noise inside the ring leaves each client of a training: mu and epsilon, planned and real.

The account is of the sums that the server really learnt: a client's rounds are those in whose sum
it was, and a sum of fewer survivors than planned has less noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import dp, privacy
from mrsa_jax._core.device import at_once
from mrsa_jax.study._build import build_mechanism
from mrsa_jax.study._config import AggregationConfig
from mrsa_jax.study._runner import VARIABLES
from mrsa_jax.study._simulate_points import of_schemes

if TYPE_CHECKING:
    from mrsa_jax.federated import TrainingResult
    from mrsa_jax.study._training_setting import Played, Setting

BY_TEST = ("epsilon_mean", "epsilon_worst")
"""What is known at each test of the model."""
OF_POINT = VARIABLES["noise_of_point"]
"""What a sweep keeps of a point."""


def accounted(setting: Setting, result: TrainingResult, played: Played) -> dict[str, Any]:
    """Return what is reported about a training with noise, by variable.

    Args:
        setting: What the trainings of its study share.
        result: The training, which may have diverged.
        played: Its rounds.
    """
    delta = setting.config.aggregation.target_delta
    told, mechanism, sums, step, chance = _ledger(setting, result, played)
    # mu is of Gaussian noise with the sums' variance, which integers only come close to
    proven = dp.ledger(sums, mechanism=mechanism)
    mean, worst = _over_tests(told, result.evaluated_rounds, delta)
    return {
        "mu": told.mu,
        "epsilon": told.epsilon(delta),
        "planned_mu": told.planned_mu,
        "planned_epsilon": told.planned.epsilon(delta),
        "epsilon_proven": proven.epsilon(delta).max(),
        "epsilon_mean": mean,
        "epsilon_worst": worst,
        "wrapped": np.asarray(result.wrapped),
        "noise_step": step,
        "wrap_probability": chance,
    }


def spent(setting: Setting, played: Played) -> dict[int, dict[str, float]]:
    """Return the mean and the largest of the clients' epsilons by tested round; none without noise.

    Args:
        setting: What the trainings of the study share.
        played: The rounds, which a training that does not diverge goes through.
    """
    config = setting.config
    if not config.aggregation.is_noisy:
        return {}
    every, last = config.training.evaluate_every, config.rounds - 1
    tests = np.union1d(np.arange(every - 1, config.rounds, every), [last])
    told = _ledger(setting, None, played)[0]
    paths = zip(*_over_tests(told, tests, config.aggregation.target_delta), strict=True)
    return {
        int(index): dict(zip(BY_TEST, map(float, own), strict=True))
        for index, own in zip(tests, paths, strict=True)
    }


def _ledger(
    setting: Setting, result: TrainingResult | None, played: Played
) -> tuple[dp.Ledger, Any, Any, float, float]:
    """Return what sums have spent, what makes them private, these, the step, the chance to wrap.

    Without a result the sums are those that the rounds are to give.
    """
    own, segments = setting.config.aggregation, played.segments
    size = setting.config.population.cohort_size
    if segments is None:
        made: Any = build_mechanism(own, size, setting.dim)
        sums = played.to_train if result is None else result
        step, chance = float(made.quantizer.step), float(made.wrap_probability)
    else:
        last = None if result is None else result.diverged_round
        sums = played.sums if last is None else played.sums.until(last + 1)
        step, chance = segments.coarsest_step(own), segments.wrap_probability(own)
        made = segments.aggregator(b"", own, None)
    # rounding to the lattice lets a client add a little more than the clip norm
    multiplier = own.noise_multiplier * float(own.clip_norm or 0.0) / made.sensitivity
    return dp.ledger(sums, multiplier, planned=size), made, sums, step, chance


def _over_tests(told: dp.Ledger, tests: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the largest of the clients' epsilons after each tested round."""
    count = len(told.mu)
    mean, worst = np.zeros(len(tests)), np.zeros(len(tests))
    # five arrays of all rounds, while they are worked out, and what becomes of the tested ones
    step = at_once("columns", 6 * 8 * (1 + int(np.max(tests, initial=0))))
    for start in range(0, count, step):
        mu = told.trajectory(np.arange(start, min(start + step, count)))[tests]
        epsilon = privacy.Distinguishability(mu, 1.0, None).epsilon(delta)
        mean += epsilon.sum(axis=1) / count
        worst = np.maximum(worst, epsilon.max(axis=1))
    return mean, worst


def variables(aggregation: AggregationConfig, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is reported about schemes' trainings as variables of a data set."""
    kept = of_schemes(VARIABLES["noise"], found)
    for name, (_, _, facts) in kept.items():
        if "epsilon" in name:
            facts["delta"] = aggregation.target_delta
    return kept


def of_point(setting: Setting, result: TrainingResult, played: Played) -> dict[str, Any]:
    """Return what a sweep keeps of a training whose updates are bounded; without noise, inf."""
    own = setting.config.aggregation
    if own.clip_norm is None:
        return {}
    if not own.is_noisy:
        tests = np.full(len(result.evaluated_rounds), np.inf)
        without = dict.fromkeys(OF_POINT, np.inf) | {"wrapped": 0.0}
        return without | {f"{name}_by_evaluation": tests for name in BY_TEST}
    found = accounted(setting, result, played)
    ends = {name: found[name].max() for name in ("planned_epsilon", "epsilon", "mu")}
    return {
        "epsilon_mean": found["epsilon"].mean(),
        "epsilon_worst": ends["epsilon"],
        "epsilon_proven": found["epsilon_proven"],
        "planned_epsilon": ends["planned_epsilon"],
        "mu_worst": ends["mu"],
        "wrapped": float(found["wrapped"].sum()),
    } | {f"{name}_by_evaluation": found[name] for name in BY_TEST}
