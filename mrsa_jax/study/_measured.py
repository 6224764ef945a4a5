"""What a training leaves apart from its model.

What noise spends, and how updates drift.
The account of noise is of the sums that the server really learnt: a client's rounds are
those in whose sum it was, and a sum of fewer survivors than planned has less noise.
What a client is hidden among holds for updates that never change. A training's updates
do, and its page says how much: among how many the update of any one round is hidden
then, and how many bits the sums reveal of a whole history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import dp, privacy
from mrsa_jax._core.batches import at_once
from mrsa_jax.study._build import build_mechanism
from mrsa_jax.study._runner import VARIABLES
from mrsa_jax.study._simulate_points import of_schemes

if TYPE_CHECKING:
    from mrsa_jax.federated import Drift, TrainingResult
    from mrsa_jax.study._config import DemoConfig, TrainConfig
    from mrsa_jax.study._training_setting import Played, Setting

BY_TEST = ("epsilon_mean", "epsilon_worst")
"""What is known of noise at each test of the model."""
OF_NOISE = VARIABLES["noise_of_point"]
"""What a sweep keeps of a point with noise."""
OF_DRIFT = {
    name: dataclasses.replace(
        own, dims=(), description=own.description + ", at the end" * bool(own.dims)
    )
    for name, own in VARIABLES["drift"].items()
    if name.startswith(("update_", "bits_"))
}
"""What a sweep keeps of how a point's updates drift."""
_FITTED = ("spread", "memory", "lasting")
_TIMES = 10  # after so many of the rounds, evenly spread, bits are counted


def variables(
    config: DemoConfig | TrainConfig, columns: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return variables and coordinates of a data set.

    What is known of each scheme's training.
    """
    found: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    if "noise" in columns[0]:
        found |= of_schemes(VARIABLES["noise"], [column["noise"] for column in columns])
        for name, (_, _, facts) in found.items():
            if "epsilon" in name:
                facts["delta"] = config.aggregation.target_delta
    if "drift" in columns[0]:
        measured = [column["drift"] for column in columns]
        found |= of_schemes(VARIABLES["drift"], measured)
        axes["layer"] = np.asarray(measured[0]["layer"], "U")
        axes |= {"lag": _lags(config.rounds), "rounds_done": _ends(config.rounds)}
    return found, axes


def of_point(
    setting: Setting, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return what a sweep keeps of a training.

    Drift where it has not diverged, and noise.
    """
    found: dict[str, Any] = {}
    if result.drift is not None and result.diverged_round is None:
        own = measured(result.drift, played, times=1)
        found = {name: np.ravel(own[name])[-1] for name in OF_DRIFT}
    return found | _noise_of_point(setting, result, played)


# ---- What noise inside the ring leaves each client: mu and epsilon, planned and real.


def _noise_of_point(
    setting: Setting, result: TrainingResult, played: Played
) -> dict[str, Any]:
    """Return what a sweep keeps of a training whose updates are bounded.

    Without noise, inf.
    """
    own = setting.config.aggregation
    if own.clip_norm is None:
        return {}
    if not own.is_noisy:
        tests = np.full(len(result.evaluated_rounds), np.inf)
        without = dict.fromkeys(OF_NOISE, np.inf) | {"wrapped": 0.0}
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


def accounted(
    setting: Setting, result: TrainingResult, played: Played
) -> dict[str, Any]:
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
    """Return the mean and the largest of the clients' epsilons by tested round.

    None without noise.

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


def _over_tests(
    told: dp.Ledger, tests: np.ndarray, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the largest of the clients' epsilons after each tested round."""
    count = len(told.mu)
    mean, worst = np.zeros(len(tests)), np.zeros(len(tests))
    # five arrays of all rounds, while they are worked out, and what becomes of the
    # tested ones
    step = at_once("columns", 6 * 8 * (1 + int(np.max(tests, initial=0))))
    for start in range(0, count, step):
        mu = told.trajectory(np.arange(start, min(start + step, count)))[tests]
        epsilon = privacy.Distinguishability(mu, 1.0, None).epsilon(delta)
        mean += epsilon.sum(axis=1) / count
        worst = np.maximum(worst, epsilon.max(axis=1))
    return mean, worst


# ---- What the drift of clients' updates, as measured, means for them.


def measured(drift: Drift, played: Played, times: int = _TIMES) -> dict[str, Any]:
    """Return what a training has measured, by variable; and its layers, under `layer`.

    Args:
        drift: Of its updates.
        played: Its rounds.
        times: After how many of the rounds bits are counted.
    """
    longest = _lags(len(played.history.participation))[-1]
    correlation, pairs = np.full(longest, np.nan), np.zeros(longest)
    correlation[drift.lags - 1], pairs[drift.lags - 1] = drift.correlation, drift.pairs
    return {
        **{f"update_{name}": getattr(drift, name) for name in _FITTED},
        **{f"layer_{name}": getattr(drift, f"layer_{name}") for name in _FITTED},
        "correlation": correlation,
        "correlation_pairs": pairs,
        **_learnt(drift, played, times),
        "layer": list(drift.layers),
    }


def _lags(num_rounds: int) -> np.ndarray:
    return np.arange(1, max(2, num_rounds))


def _ends(num_rounds: int, times: int = _TIMES) -> np.ndarray:
    return np.ceil(np.linspace(0, num_rounds, min(times, num_rounds) + 1)[1:]).astype(
        np.int64
    )


def _learnt(drift: Drift, played: Played, times: int) -> dict[str, Any]:
    """Return bits of each client and over rounds, and among how many its worst update is hidden.

    All nan with segments, or where memory is unknown.
    """
    own = played.history.participation
    ends = _ends(len(own), times)
    P, rounds = played.learnt
    bits, hidden = np.full((len(ends), own.shape[1]), np.nan), np.full(1, np.nan)
    mates = capped = np.nan
    if played.segments is None and np.isfinite(drift.memory) and len(P):
        so_far = P * (rounds < ends[:, None])[:, :, None]
        kernel = drift.kernel(rounds)
        bits = np.asarray(privacy.information(so_far, kernel))
        hidden = np.asarray(privacy.hidden_among(P, memory=kernel))
        hidden = hidden[~np.isinf(hidden)]
        mates = _by_mates(drift, P)
        capped = _capped(drift.mates_correlation, privacy.strong_privacy(P) or 1)
    seen = [row[row > 0] for row in bits]
    return {
        "update_hidden_worst": hidden.min(),
        "update_hidden_median": np.median(hidden),
        "update_mates_worst": mates,
        "update_mates_correlation": drift.mates_correlation,
        "update_mates_cap": capped,
        "bits": bits[-1],
        "bits_worst": np.array([row.max() if row.size else np.nan for row in seen]),
        "bits_median": np.array(
            [np.median(row) if row.size else np.nan for row in seen]
        ),
    }


def _capped(kappa: float, mates: int) -> float:
    """Return 1 over the share of an update that any estimate explains, of T who move together."""
    share = (1 + (mates - 1) * kappa) / mates if mates > 1 else 1.0
    return np.inf if share <= 0 else 1 / share


def _by_mates(drift: Drift, history: np.ndarray) -> float:
    """Return among how many mates alone hide the worst client.

    Nan if a client's drift is unknown.
    A client who is in sums and came once counts as one whose drift is not known.
    """
    variance, memory, share = np.full((3, history.shape[1]), np.nan)
    is_known = drift.client_spread > 0
    known = drift.clients[is_known]
    variance[known] = drift.client_spread[is_known] ** 2
    memory[known], share[known] = (
        drift.client_memory[is_known],
        drift.client_lasting[is_known],
    )
    found = privacy.hidden_among_mates(
        history, memory=memory, share=share, variance=variance
    )
    return float(found.min())
