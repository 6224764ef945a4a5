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
from mrsa_jax.study._config import AggregationConfig, DemoConfig, TrainConfig

if TYPE_CHECKING:
    from mrsa_jax.federated import TrainingResult
    from mrsa_jax.study._training_setting import Played

_HISTORY = "of a client's whole history of updates, against a server that knows who took part"
_FACTS = {
    "mu": (("client",), "1", f"Gaussian differential privacy {_HISTORY}, as realised"),
    "epsilon": (("client",), "1", f"Epsilon at target_delta {_HISTORY}, as realised"),
    "planned_mu": (("client",), "1", "mu if every sum had had all of its planned noise"),
    "planned_epsilon": (("client",), "1", "Epsilon if every sum had had all of it"),
    "epsilon_proven": (
        (),
        "1",
        "Bound on every client's epsilon that holds for the integers drawn",
    ),
    "epsilon_mean": (("evaluation",), "1", "Mean of the clients' epsilons"),
    "epsilon_worst": (("evaluation",), "1", "Epsilon of the worst client"),
    "wrapped": (("round",), "1", "Coordinates of the round's sum that left the ring's window"),
    "noise_step": ((), "1", "Step of the coarsest lattice, in units of updates"),
    "wrap_probability": ((), "1", "Bound on a coordinate's chance to leave the window in a round"),
}
BY_TEST = ("epsilon_mean", "epsilon_worst")
"""What is known at each test of the model."""

OF_POINT = {
    "epsilon_mean": ("float64", "1", "Mean of the clients' epsilons; inf: no noise"),
    "epsilon_worst": ("float64", "1", "Epsilon of the worst client; inf: no noise"),
    "epsilon_proven": ("float64", "1", "Bound on every client's epsilon for the integers drawn"),
    "planned_epsilon": ("float64", "1", "The worst client's if every sum had had all its noise"),
    "mu_worst": ("float64", "1", "mu of the worst client; inf: no noise"),
    "wrapped": ("float64", "1", "Coordinates of all sums that left the ring's window"),
}
"""What a sweep keeps of a point: type, units, description."""


def accounted(
    config: DemoConfig | TrainConfig, dim: int, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return what is reported about a training with noise, by variable.

    Args:
        config: Its study.
        dim: d, length of an update.
        result: The training, which may have diverged.
        played: Its rounds.
    """
    own = config.aggregation
    mechanism, sums, step, chance = _mechanism(config, dim, result, played)
    told = _ledger(config, mechanism, sums)
    # mu is of Gaussian noise with the sums' variance, which integers only come close to
    proven = dp.ledger(sums, mechanism=mechanism)
    mean, worst = _over_tests(told, result.evaluated_rounds, own.target_delta)
    return {
        "mu": told.mu,
        "epsilon": told.epsilon(own.target_delta),
        "planned_mu": told.planned_mu,
        "planned_epsilon": told.planned.epsilon(own.target_delta),
        "epsilon_proven": proven.epsilon(own.target_delta).max(),
        "epsilon_mean": mean,
        "epsilon_worst": worst,
        "wrapped": np.asarray(result.wrapped),
        "noise_step": step,
        "wrap_probability": chance,
    }


def over_tests(
    config: DemoConfig | TrainConfig, dim: int, played: Played, tests: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the largest of the clients' epsilons after each tested round.

    Args:
        config: The study.
        dim: d, length of an update.
        played: Its rounds, which a training that does not diverge goes through.
        tests: int [E], the tested rounds.
    """
    mechanism, sums, _, _ = _mechanism(config, dim, None, played)
    return _over_tests(_ledger(config, mechanism, sums), tests, config.aggregation.target_delta)


def _mechanism(
    config: DemoConfig | TrainConfig, dim: int, result: TrainingResult | None, played: Played
) -> tuple[Any, Any, float, float]:
    """Return what makes sums private, which sums there were, the step, and the chance to wrap.

    Without a result the sums are those that the rounds are to give.
    """
    own, segments = config.aggregation, played.segments
    if segments is None:
        made = build_mechanism(own, config.population.cohort_size, dim)
        sums = played.to_train if result is None else result
        return made, sums, float(made.quantizer.step), float(made.wrap_probability)
    last = None if result is None else result.diverged_round
    sums = played.sums if last is None else played.sums.until(last + 1)
    chance = segments.wrap_probability(own)
    return segments.aggregator(b"", own, None), sums, segments.coarsest_step(own), chance


def _ledger(config: DemoConfig | TrainConfig, mechanism: Any, sums: Any) -> dp.Ledger:
    """Return what sums have spent of each client's privacy."""
    own = config.aggregation
    # rounding to the lattice lets a client add a little more than the clip norm
    multiplier = own.noise_multiplier * float(own.clip_norm or 0.0) / mechanism.sensitivity
    return dp.ledger(sums, multiplier, planned=config.population.cohort_size)


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
    kept = {}
    for name, (axes, units, about) in _FACTS.items():
        facts: dict[str, Any] = {"units": units, "description": about}
        if "epsilon" in name:
            facts["delta"] = aggregation.target_delta
        values = np.stack([np.asarray(own[name]) for own in found])
        kept[name] = (("scheme", *axes), values, facts)
    return kept


def of_point(
    config: DemoConfig | TrainConfig, dim: int, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return what a sweep keeps of a training whose updates are bounded; without noise, inf."""
    if config.aggregation.clip_norm is None:
        return {}
    if not config.aggregation.is_noisy:
        tests = np.full(len(result.evaluated_rounds), np.inf)
        without = dict.fromkeys(OF_POINT, np.inf) | {"wrapped": 0.0}
        return without | {f"{name}_by_evaluation": tests for name in BY_TEST}
    found = accounted(config, dim, result, played)
    ends = {name: found[name].max() for name in ("planned_epsilon", "epsilon", "mu")}
    return {
        "epsilon_mean": found["epsilon"].mean(),
        "epsilon_worst": ends["epsilon"],
        "epsilon_proven": found["epsilon_proven"],
        "planned_epsilon": ends["planned_epsilon"],
        "mu_worst": ends["mu"],
        "wrapped": float(found["wrapped"].sum()),
    } | {f"{name}_by_evaluation": found[name] for name in BY_TEST}
