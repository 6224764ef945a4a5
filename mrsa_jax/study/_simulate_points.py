"""Points of a sweep over client selection: trials rolled out together, analysed exactly."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mrsa_jax import modular, privacy, selection
from mrsa_jax._status import Status
from mrsa_jax._tracing import program_of
from mrsa_jax.study import _build, _trial
from mrsa_jax.study._config import ResourceConfig, SimulateConfig, schemes_of
from mrsa_jax.study._memory import simulate_bytes
from mrsa_jax.study._played import lossy_trials
from mrsa_jax.study._runner import Machine, Variable, history_variables
from mrsa_jax.study._variables import first_exposed, known_of, of_point

_DEFAULT_BYTES = 2**28  # of the histories that are held at once


def group_of(config: SimulateConfig) -> Hashable:
    """Return what decides which program rolls a point's trials out."""
    schemes = _selector(config), _availability(config)
    rule = _rule(config)
    return program_of((*schemes, rule)), config.rounds, config.trials, rule is None


def sizes(configs: Sequence[SimulateConfig]) -> dict[str, int]:
    """Return the most trials and rounds of a point."""
    return {
        "trial": max(config.trials for config in configs),
        "round": max(config.rounds for config in configs),
    }


def variables(configs: Sequence[SimulateConfig], trajectories: bool) -> dict[str, Variable]:
    """Return what is known of each trial at its end, and after each round."""
    found = history_variables(("trial",), trajectories)
    words = "Expectation of C; none where clients are lost in rounds"
    found["expected_cardinality"] = Variable((), "float64", "clients", words)
    if not all(config.protocol.is_plain for config in configs):
        words = "Rounds that were begun and gave no sum"
        found["failed_rounds"] = Variable(("trial",), "int32", "rounds", words)
    return found


def together(config: SimulateConfig, machine: Machine) -> int:
    """Return how many points' histories fit the memory at once."""
    bound = machine.memory_bytes or _DEFAULT_BYTES
    shape = config.trials, config.rounds, config.population.num_clients
    return int(max(1, min(64, bound // _trial.rolled_bytes(*shape))))


def memory_bytes(config: SimulateConfig, machine: Machine, count: int) -> int:
    """Return about what the histories of some points need."""
    return simulate_bytes(config, count)


def run(
    configs: Sequence[SimulateConfig], machine: Machine, trajectories: bool, together: int
) -> Iterator[dict[str, np.ndarray]]:
    """Roll points of one program out together and analyse each."""
    if _rule(configs[0]) is not None:
        for config in configs:
            yield _with_losses(config, trajectories)
        return
    histories = selection.rollout_many(
        [config.seed for config in configs],
        [_selector(config) for config in configs],
        [_availability(config) for config in configs],
        configs[0].rounds,
        configs[0].trials,
        mesh=_mesh(machine),
        width=together,
    )
    for config, cohorts in zip(configs, histories, strict=True):
        learnt = _trial.learnt_sums(cohorts)
        found = _on_all_hosts(_all_rounds if trajectories else _at_ends, learnt)
        yield found | _of_point(config, _expected(config))


def _mesh(machine: Machine) -> Any:
    """Return the devices that trials are dealt out to, those of all hosts; None for one."""
    if machine.devices in (None, 1):
        return None
    if jax.process_count() > 1:
        return jax.sharding.Mesh(np.asarray(jax.devices()), ("trials",))
    return _build.build_mesh(ResourceConfig(devices=machine.devices))


def _on_all_hosts(
    analyse: Callable[[np.ndarray], dict[str, np.ndarray]], history: np.ndarray
) -> dict[str, np.ndarray]:
    """Analyse trials, each host its share, and give every host all of it."""
    hosts, trials = jax.process_count(), len(history)
    if hosts == 1:
        return analyse(history)
    from jax.experimental import multihost_utils

    # shares of one size: some trials are looked at twice
    size = -(-trials // hosts)
    start = min(jax.process_index() * size, trials - size)
    found = multihost_utils.process_allgather(analyse(history[start : start + size]))
    place = np.concatenate([min(h * size, trials - size) + np.arange(size) for h in range(hosts)])
    order = np.unique(place, return_index=True)[1]
    return {name: np.concatenate(list(parts))[order] for name, parts in found.items()}


def _all_rounds(history: np.ndarray) -> dict[str, np.ndarray]:
    return known_of(_trial.analyse(history), trajectories=True)


def _at_ends(history: np.ndarray) -> dict[str, np.ndarray]:
    """Analyse trials bool[B, J, N] after their last round, in parts."""
    parts = _trial.in_parts(_at_end, history)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _at_end(history: np.ndarray) -> dict[str, np.ndarray]:
    """Analyse trials bool[B, J, N] after their last round."""
    first = np.asarray(privacy.first_exposure(history))
    hidden = privacy.hidden_among_trajectory(history, quantiles=_trial.WORST_AND_MEDIAN)
    worst, median = np.moveaxis(np.asarray(hidden)[:, -1], -1, 0)
    strong = [privacy.strong_privacy(trial) for trial in history]
    return {
        "strong_privacy": np.asarray([-1 if t is None else t for t in strong], np.int32),
        "rank": np.asarray(modular.rank_trajectory(history))[:, -1],
        "hidden_among_worst": worst,
        "hidden_among_median": median,
        "exposed_clients": (first >= 0).sum(axis=1).astype(np.int32),
        "first_exposed_round": first_exposed(first),
        "skipped_rounds": (~history.any(axis=2)).sum(axis=1).astype(np.int32),
        "fairness_gap": np.asarray(selection.fairness_gap(history))[:, -1],
        "aggregation_cardinality": np.asarray(selection.aggregation_cardinality(history))[:, -1],
    }


def _with_losses(config: SimulateConfig, trajectories: bool) -> dict[str, np.ndarray]:
    """Play rounds in which clients are lost."""
    played = lossy_trials(config, _selector(config), _availability(config), _rule(config))
    found = known_of(_trial.analyse_played(played), trajectories)
    status = np.asarray(played.status)
    failed = ((status != Status.OK) & (status != Status.SKIPPED)).sum(axis=1).astype(np.int32)
    return found | {"failed_rounds": failed} | _of_point(config, np.asarray(np.nan))


def _of_point(config: SimulateConfig, expected: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is the same for all trials of a point."""
    (scheme,) = schemes_of(config)
    return of_point(config, scheme) | {"expected_cardinality": expected}


def _selector(config: SimulateConfig) -> selection.Selector:
    (scheme,) = schemes_of(config)
    return _build.build_selector(scheme, config.population)


def _availability(config: SimulateConfig) -> Any:
    return _build.build_online(config.seed, config.population)[0]


def _rule(config: SimulateConfig) -> Any:
    return _build.build_rule(config.protocol, _selector(config))


def _expected(config: SimulateConfig) -> np.ndarray:
    available, rates = _build.build_online(config.seed, config.population)
    known = rates if hasattr(available, "dropout_rates") else None
    return np.asarray(_build.expected_cardinality(_selector(config), known)[0])
