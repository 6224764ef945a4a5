"""Evaluate a training's noise and drift: what the noise spends, how updates drift.

The account of noise is of the sums that the server really learnt: a client's rounds are
those in whose sum it was, and a sum of fewer survivors than planned has less noise. The
size that a client is hidden among holds for updates that never change. A training's
updates do, and its report shows how much: the size that the update of any one round is
hidden among then, and the bits that the sums reveal of a whole history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax import dp, privacy
from mrsa_jax._core.batches import at_once
from mrsa_jax.privacy.summary import what_never_changes
from mrsa_jax.study.runs._build import build_mechanism
from mrsa_jax.study.runs._history_variables import stacked_by_scheme
from mrsa_jax.study.stores._runner import VARIABLES

if TYPE_CHECKING:
    from mrsa_jax.federated import Drift, TrainingResult
    from mrsa_jax.study.runs._training_setting import Played, Setting
    from mrsa_jax.study.settings._config import DemoConfig, TrainConfig

BY_TEST = ("epsilon_mean", "epsilon_worst")
"""The variables of noise at each test of the model."""
OF_NOISE = VARIABLES["noise_of_point"]
"""The variables that a sweep keeps of a point with noise."""
OF_DRIFT = {
    name: dataclasses.replace(
        about,
        dims=(),
        description=about.description + ", at the end" * bool(about.dims),
    )
    for name, about in VARIABLES["drift"].items()
    if name.startswith(("update_", "bits_"))
}
"""The variables that a sweep keeps of the drift of a point's updates."""
_FITTED = ("spread", "memory", "lasting")
_TIMES = 10  # evenly spread times after which bits are counted


def variables(
    config: DemoConfig | TrainConfig, columns: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return variables and coordinates of each training's noise and drift."""
    found: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    if "noise" in columns[0]:
        spent = [column["noise"] for column in columns]
        found |= stacked_by_scheme(VARIABLES["noise"], spent)
        for name, (_, _, facts) in found.items():
            if "epsilon" in name:
                facts["delta"] = config.aggregation.target_delta
    if "drift" in columns[0]:
        drifts = [column["drift"] for column in columns]
        found |= stacked_by_scheme(VARIABLES["drift"], drifts)
        axes["layer"] = np.asarray(drifts[0]["layer"], "U")
        axes["lag"] = np.arange(1, max(2, config.rounds))
        axes["rounds_done"] = _ends(config.rounds)
    return found, axes


def point_measures(
    setting: Setting, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return the measures that a sweep keeps of a training.

    Drift unless it has diverged, and noise if updates are bounded: inf without noise.
    """
    measures: dict[str, Any] = {}
    if result.drift is not None and result.diverged_round is None:
        # one time, the end, as a point has one number each
        drift = measured(result.drift, played, times=1)
        measures = {name: np.ravel(drift[name])[-1] for name in OF_DRIFT}
    aggregation = setting.config.aggregation
    if aggregation.clip_norm is None:
        return measures
    if not aggregation.is_noisy:
        tests = np.full(len(result.evaluated_rounds), np.inf)
        measures |= dict.fromkeys(OF_NOISE, np.inf) | {"wrapped": 0.0}
        return measures | {f"{name}_by_evaluation": tests for name in BY_TEST}
    spent = accounted(setting, result, played)
    measures |= {
        "epsilon_mean": spent["epsilon"].mean(),
        "epsilon_worst": spent["epsilon"].max(),
        "epsilon_proven": spent["epsilon_proven"],
        "planned_epsilon": spent["planned_epsilon"].max(),
        "mu_worst": spent["mu"].max(),
        "wrapped": float(spent["wrapped"].sum()),
    }
    return measures | {f"{name}_by_evaluation": spent[name] for name in BY_TEST}


def accounted(
    setting: Setting, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return the report on a training with noise, by variable.

    Args:
        setting: Shared by the trainings of its study.
        result: The training, which may have diverged.
        played: Its rounds.
    """
    delta = setting.config.aggregation.target_delta
    account = _account(setting, result, played)
    ledger = account.ledger
    # mu is of Gaussian noise with the sums' variance, which integers only come close to
    proven = dp.ledger(account.sums, mechanism=account.mechanism)
    mean, worst = _over_tests(ledger, result.evaluated_rounds, delta)
    return {
        "mu": ledger.mu,
        "epsilon": ledger.epsilon(delta),
        "planned_mu": ledger.planned_mu,
        "planned_epsilon": ledger.planned.epsilon(delta),
        "epsilon_proven": proven.epsilon(delta).max(),
        "epsilon_mean": mean,
        "epsilon_worst": worst,
        "wrapped": result.wrapped,
        "noise_step": account.step,
        "wrap_probability": account.wrap_probability,
    }


def spent(setting: Setting, played: Played) -> dict[int, dict[str, float]]:
    """Return the mean and the largest of the clients' epsilons by tested round.

    It is empty without noise.

    Args:
        setting: Shared by the trainings of the study.
        played: The rounds of a training that does not diverge.
    """
    config = setting.config
    if not config.aggregation.is_noisy:
        return {}
    every, last = config.training.evaluate_every, config.rounds - 1
    # each tested round, and the last one in any case
    tests = np.union1d(np.arange(every - 1, config.rounds, every), [last])
    # without a result: of the sums that are planned
    ledger = _account(setting, None, played).ledger
    paths = _over_tests(ledger, tests, config.aggregation.target_delta)
    return {
        int(index): dict(zip(BY_TEST, map(float, epsilons), strict=True))
        for index, epsilons in zip(tests, np.transpose(paths), strict=True)
    }


class _Account(NamedTuple):
    """The privacy loss of sums, with its causes.

    Attributes:
        ledger: Spent by each client.
        mechanism: It makes the sums private.
        sums: As `dp.ledger` takes them.
        step: The largest of a lattice.
        wrap_probability: A bound, for a coordinate of any sum.
    """

    ledger: dp.Ledger
    mechanism: Any
    sums: Any
    step: float
    wrap_probability: float


def _account(
    setting: Setting, result: TrainingResult | None, played: Played
) -> _Account:
    """Return the account of sums; without a result, of those that are to be learnt."""
    aggregation, segments = setting.config.aggregation, played.segments
    size = setting.config.population.cohort_size
    mechanism: Any
    sums: Any
    if segments is None:
        mechanism = build_mechanism(aggregation, size, setting.dim)
        sums = played.to_train if result is None else result
        step = float(mechanism.quantizer.step)
        chance = float(mechanism.wrap_probability)
    else:
        last = None if result is None else result.diverged_round
        mechanism = segments.aggregator(b"", aggregation)
        # a training that diverged has spent only up to that round
        sums = played.sums if last is None else played.sums.until(last + 1)
        step = segments.coarsest_step(aggregation)
        chance = segments.wrap_probability(aggregation)
    # rounding to the lattice lets a client add a little more than the clip norm
    deviation = aggregation.noise_multiplier * float(aggregation.clip_norm or 0.0)
    # the ledger's unit is the sensitivity, not the clip norm
    multiplier = deviation / mechanism.sensitivity
    ledger = dp.ledger(sums, multiplier, planned=size)
    return _Account(ledger, mechanism, sums, step, chance)


def _over_tests(
    ledger: dp.Ledger, tests: np.ndarray, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the largest epsilon of clients after each tested round."""
    count = len(ledger.mu)
    mean = np.zeros(len(tests))
    worst = np.zeros(len(tests))
    # five arrays of all rounds, while they are computed, and one of the tested rounds
    step = at_once("columns", 6 * 8 * (1 + int(np.max(tests, initial=0))))
    for start in range(0, count, step):
        clients = np.arange(start, min(start + step, count))
        mu = ledger.trajectory(clients)[tests]
        epsilon = privacy.Distinguishability(mu, 1.0, None).epsilon(delta)
        mean += epsilon.sum(axis=1) / count
        worst = np.maximum(worst, epsilon.max(axis=1))
    return mean, worst


def measured(drift: Drift, played: Played, times: int = _TIMES) -> dict[str, Any]:
    """Return the effects of the updates' drift on clients, by variable.

    The names of the layers are under `layer`. With segments, or if memory is unknown,
    bits and sizes are nan.

    Args:
        drift: Of a training's updates, as measured.
        played: Its rounds.
        times: Number of times at which bits are counted.
    """
    participation = played.history.participation
    ends = _ends(len(participation), times)
    correlation = np.full(max(1, len(participation) - 1), np.nan)
    # lags count from 1; those that were not measured stay nan
    correlation[drift.lags - 1] = drift.correlation
    pairs = np.zeros(len(correlation))
    pairs[drift.lags - 1] = drift.pairs
    P, rounds = played.learnt
    bits = np.full((len(ends), participation.shape[1]), np.nan)
    hidden = np.full(1, np.nan)
    lasting = np.full(1, np.nan)
    mates = capped = np.nan
    if played.segments is None and np.isfinite(drift.memory) and len(P):
        # a copy of P for each end, with the later sums set to zero
        so_far = P * (rounds < ends[:, None])[:, :, None]
        kernel = drift.kernel(rounds)
        bits = np.asarray(privacy.information(so_far, kernel))
        hidden = np.asarray(privacy.hidden_among(P, memory=kernel))
        # inf: in no sum
        hidden = hidden[~np.isinf(hidden)]
        if 0.0 < drift.lasting < 1.0:
            # share 0 or 1 leaves nothing to separate
            constant = what_never_changes(P, rounds, drift.lasting)
            lasting = np.asarray(privacy.hidden_among(P, **constant))
            lasting = lasting[~np.isinf(lasting)]
        mates = _by_mates(drift, P)
        capped = _capped(drift.mates_correlation, privacy.strong_privacy(P) or 1)
    # clients about whom nothing is revealed yet do not count in the median
    seen = [row[row > 0] for row in bits]
    return {
        **{f"update_{name}": getattr(drift, name) for name in _FITTED},
        **{f"layer_{name}": getattr(drift, f"layer_{name}") for name in _FITTED},
        "correlation": correlation,
        "correlation_pairs": pairs,
        "update_hidden_worst": hidden.min(),
        "update_hidden_median": np.median(hidden),
        "lasting_hidden_worst": lasting.min(),
        "lasting_hidden_median": np.median(lasting),
        "update_mates_worst": mates,
        "update_mates_correlation": drift.mates_correlation,
        "update_mates_cap": capped,
        "bits": bits[-1],
        "bits_worst": np.array([row.max() if row.size else np.nan for row in seen]),
        "bits_median": np.array(
            [np.median(row) if row.size else np.nan for row in seen]
        ),
        "layer": list(drift.layers),
    }


def _ends(num_rounds: int, times: int = _TIMES) -> np.ndarray:
    """Return the numbers of rounds after which bits are counted."""
    ends = np.linspace(0, num_rounds, min(times, num_rounds) + 1)[1:]
    return np.ceil(ends).astype(np.int64)


def _capped(kappa: float, mates: int) -> float:
    """Return 1 over the share of an update that any estimate explains.

    Args:
        kappa: Correlation of the updates of mates.
        mates: T of the clients that always move together.
    """
    # variance of the mean of `mates` equally correlated updates, over that of one
    share = (1 + (mates - 1) * kappa) / mates if mates > 1 else 1.0
    return np.inf if share <= 0 else 1 / share


def _by_mates(drift: Drift, history: np.ndarray) -> float:
    """Return the size that the worst client is hidden among by its mates alone.

    It is nan if the drift of a client in the sums is unknown, as of one that came once.
    """
    variance, memory, share = np.full((3, history.shape[1]), np.nan)
    is_known = drift.client_spread > 0
    clients = drift.clients[is_known]
    # the others stay nan: their drift was not measured
    variance[clients] = drift.client_spread[is_known] ** 2
    memory[clients] = drift.client_memory[is_known]
    share[clients] = drift.client_lasting[is_known]
    hidden = privacy.hidden_among_mates(
        history, memory=memory, share=share, variance=variance
    )
    return float(hidden.min())
