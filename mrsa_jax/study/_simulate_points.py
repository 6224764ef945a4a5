"""Points of a sweep over client selection.

Trials rolled out together, analysed exactly.
`simulate` is the sweep over its schemes, of one point each. What both need in memory
follows from their settings before anything runs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import jax
import numpy as np

from mrsa_jax import selection
from mrsa_jax._core.factories import program_of
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.status import Status
from mrsa_jax.availability import Availability
from mrsa_jax.study import _build, _config, _trial
from mrsa_jax.study._config import Config, SimulateConfig, TrainConfig
from mrsa_jax.study._runner import DETAILS, TRAJECTORIES, VARIABLES, Machine, Variable
from mrsa_jax.study._training_setting import lossy_rounds

# ---- Variables that the data sets of all studies and sweeps share: what is known of
# who took part.
#
# An integer that has no value (strong T before the first sum, the round that exposes
# who never is)
# is -1 in arrays and in the stores of sweeps, and nan in every data set.

_UPDATES = ("update_hidden_worst", "update_hidden_median")  # where a memory is given
_AT_END = VARIABLES["history"]
_AFTER_EACH_ROUND = (
    "strong_privacy",
    "hidden_among_worst",
    "hidden_among_median",
    *_UPDATES,
    "rank",
    "exposed_clients",
    "fairness_gap",
    "aggregation_cardinality",
)
EVERYTHING = (TRAJECTORIES, *DETAILS)
"""What a study keeps, and a sweep where it is asked to."""


def history_variables(
    dims: tuple[str, ...], kept: Collection[str], *, drifts: bool = False
) -> dict[str, Variable]:
    """Return what a sweep keeps of participation.

    At the end, by round, and in any number.
    """
    left_out = () if drifts else _UPDATES
    within = functools.partial(dataclasses.replace, dims=dims)
    found = {name: within(own) for name, own in _AT_END.items() if name not in left_out}
    found |= VARIABLES["before"]
    paths = [
        name for name in _AFTER_EACH_ROUND if name in found and TRAJECTORIES in kept
    ]
    for name in paths:
        own, words = _AT_END[name], f"{_AT_END[name].description}, after each round"
        found[f"{name}_by_round"] = within(
            own, dims=(*dims, "round"), description=words
        )
    for name, own in DETAILS.items():
        if name in kept:
            found[name] = within(own, dims=(*dims, *own.dims))
    return found


def known_of(
    history: _trial.History,
    kept: Collection[str],
    updates: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Return of histories [..., J, N] what `history_variables` says, except for statuses.

    `updates`: what is known of updates that drift, [..., J].
    """
    own = [name for name in _AFTER_EACH_ROUND if name not in _UPDATES]
    paths = {name: getattr(history, name) for name in own} | (updates or {})
    found = {name: path[..., -1] for name, path in paths.items()}
    first = history.first_exposure
    found["first_exposed_round"] = _trial.earliest(first, axis=-1)
    found["skipped_rounds"] = history.skipped.sum(axis=-1).astype(np.int32)
    if TRAJECTORIES in kept:
        found |= {f"{name}_by_round": path for name, path in paths.items()}
    details = {"first_exposure": first, "skipped": history.skipped}
    return found | {name: own for name, own in details.items() if name in kept}


def study_variables(
    points: Sequence[dict[str, np.ndarray]], *axes: str
) -> dict[str, Any]:
    """Return points that keep everything, a scheme each, as a study has them.

    Its trajectories have plain names, and `axes` lie behind `scheme`.
    """
    found: dict[str, Any] = {}
    for name in (*_AFTER_EACH_ROUND, *DETAILS):
        is_path = name in _AFTER_EACH_ROUND
        stored = f"{name}_by_round" if is_path else name
        if stored not in points[0]:
            continue
        values = np.stack([own[stored] for own in points])
        about = _AT_END[name] if is_path else DETAILS[name]
        if name in ("strong_privacy", "first_exposure"):
            values = nan_if_negative(values)
        found[name] = (
            ("scheme", *axes, *(about.dims or ("round",))),
            values,
            about.facts,
        )
    return found


def of_schemes(
    about: Mapping[str, Variable], found: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what was found of each scheme, by variable, as a study has it.

    Args:
        about: The variables.
        found: The variables of each scheme.
    """
    return {
        name: (
            ("scheme", *one.dims),
            np.stack([np.asarray(own[name]) for own in found]),
            one.facts,
        )
        for name, one in about.items()
    }


def nan_if_negative(values: Any) -> np.ndarray:
    """Return integers below 2**24 as float32, which holds them exactly.

    -1 would enter means.
    """
    own = np.asarray(values)
    return np.where(own >= 0, own, np.nan).astype(np.float32)


def coordinates(labels: list[str], rounds: int, num_clients: int) -> dict[str, Any]:
    """Return the axes of a study."""
    return {
        "scheme": labels,
        "round": np.arange(rounds),
        "client": np.arange(num_clients),
    }


def scheme_variables(
    rates: np.ndarray, expected: list[tuple[float, float]], kept: list[int]
) -> dict[str, Any]:
    """Return the clients' dropout rates, what C of each scheme is expected to be, and strong T."""
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": (
            "scheme",
            np.array([deviation for _, deviation in expected]),
        ),
    } | kept_variable(kept)


def kept_variable(kept: Sequence[int]) -> dict[str, Any]:
    """Return the weak T that lasts, of each scheme."""
    facts = VARIABLES["before"]["guaranteed_privacy"].facts
    return {"guaranteed_privacy": ("scheme", np.array(kept, np.int32), facts)}


def known_before(
    config: Config,
    schemes: tuple[_config.Scheme, ...],
    available: Availability | None,
    rates: np.ndarray,
) -> dict[str, Any]:
    """Return what is known of schemes before their rounds.

    Of C nothing is where clients are lost inside rounds, or rounds depend on each
    other.
    """
    segments = None if isinstance(config, SimulateConfig) else config.hetero
    selectors = [_build.build_selector(scheme, config.population) for scheme in schemes]
    is_known = config.protocol.is_plain and hasattr(available, "dropout_rates")
    own = rates if is_known else None
    return scheme_variables(
        rates,
        [_build.expected_cardinality(selector, own) for selector in selectors],
        [
            _build.guaranteed_privacy(one, config.protocol, segments)
            for one in selectors
        ],
    )


def of_point(
    config: SimulateConfig | TrainConfig, available: Availability | None, rates: Any
) -> dict[str, np.ndarray]:
    """Return what is known of a point before it is played.

    C expected, T that lasts, and N.
    """
    before = known_before(config, _config.schemes_of(config), available, rates)
    names = ("expected_cardinality", "guaranteed_privacy")
    own = {name: np.asarray(before[name][1][0]) for name in names}
    return own | {"largest_rank": np.asarray(config.population.num_clients)}


# ---- Points of a sweep over client selection: trials rolled out together, analysed
# exactly.

# bytes of a round with losses: five survivor flags, its sum, its component
_PER_CLIENT = 10 * 2
_PER_PAIR = 24  # and of each pair of its participants, in the graph of pads


def simulate_bytes(config: Config, together: int = 1, *, at_end: bool = False) -> int:
    """Return about what rolling several schemes' trials out together, to be analysed, needs."""
    population = config.population
    trials = config.trials if isinstance(config, SimulateConfig) else 1
    shape = config.rounds, population.num_clients
    if config.protocol.is_plain:
        rolled = _trial.rolled_bytes(trials, *shape)
        if at_end:
            return (together - 1) * rolled + _trial.known_bytes(trials, *shape)
        return together * rolled + _trial.analysed_bytes(trials, *shape)
    pairs = trials * min(population.cohort_size, population.num_clients) ** 2
    played = trials * shape[0] * shape[1] * _PER_CLIENT + pairs * _PER_PAIR
    # trials are analysed one by one, with a row for each round next to those of its
    # sums
    return played + 2 * _trial.analysed_bytes(1, *shape)


def stated_memory(config: Config) -> str:
    """Say what rolling out and analysing needs; refuse what the machine has not.

    Raises:
        ConfigurationError: If memory does not suffice.
    """
    clients = config.population.num_clients
    sizes, reduce = f"{config.rounds} rounds", "num_clients or rounds"
    entries = len(_config.schemes_of(config)) * (config.rounds + clients)
    if isinstance(config, SimulateConfig):
        sizes, reduce = (
            f"{sizes}, {config.trials} trials",
            "num_clients, rounds or trials",
        )
        entries *= config.trials
    needed = simulate_bytes(config) + 32 * entries  # of all schemes' results
    return memory_words(needed, "num_clients", f"{clients} with {sizes}", reduce)


_DEFAULT_BYTES = 2**28  # of the histories that are held at once


def group_of(config: SimulateConfig) -> Hashable:
    """Return what decides which program rolls a point's trials out."""
    schemes = (
        _selector(config),
        _build.online_of_any_seed(config.seed, config.population),
    )
    rule = _rule(config)
    return program_of((*schemes, rule)), config.rounds, config.trials, rule is None


def sizes(configs: Sequence[SimulateConfig]) -> dict[str, int]:
    """Return the most trials, rounds and clients of a point."""
    return {
        "trial": max(config.trials for config in configs),
        "round": max(config.rounds for config in configs),
        "client": max(config.population.num_clients for config in configs),
    }


def variables(
    configs: Sequence[SimulateConfig], kept: Collection[str]
) -> dict[str, Variable]:
    """Return what is known of each trial at its end, and after each round."""
    drifts = any(config.memory is not None for config in configs)
    found = history_variables(("trial",), kept, drifts=drifts)
    is_plain = all(config.protocol.is_plain for config in configs)
    left_out = ("failed_rounds",) if is_plain else ()
    return found | {
        n: own for n, own in VARIABLES["simulated"].items() if n not in left_out
    }


def together(config: SimulateConfig, machine: Machine) -> int:
    """Return how many points' histories fit the memory at once."""
    bound = machine.memory_bytes or _DEFAULT_BYTES
    shape = config.trials, config.rounds, config.population.num_clients
    return int(max(1, min(64, bound // _trial.rolled_bytes(*shape))))


def memory_bytes(
    config: SimulateConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about what the histories of some points need."""
    at_end = TRAJECTORIES not in kept and config.memory is None
    return simulate_bytes(config, count, at_end=at_end)


def run_points(
    configs: Sequence[SimulateConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
    progress: Callable[[int, int], None] | None = None,
    *,
    first: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Roll points of one program out together and analyse each, from a `first` trial on.

    `progress` receives (trials analysed, trials) of each point.
    """
    if _rule(configs[0]) is not None:
        for config in configs:
            yield _with_losses(config, kept, progress, first)
        return

    def analyse(config: SimulateConfig, history: np.ndarray) -> dict[str, np.ndarray]:
        at_end = TRAJECTORIES not in kept
        updates = _updates(config, ((own, np.arange(config.rounds)) for own in history))
        return known_of(_trial.analyse(history, progress, at_end=at_end), kept, updates)

    for config, cohorts in zip(
        configs, _histories(configs, machine, together, first), strict=True
    ):
        own = functools.partial(analyse, config)
        found = _on_all_hosts(own, _trial.learnt_sums(cohorts))
        online = _build.build_online(config.seed, config.population)
        yield found | of_point(config, *online)


def _updates(
    config: SimulateConfig, trials: Iterable[tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return among how many updates that drift are hidden, [B, J], of sums and their rounds."""
    if config.memory is None:
        return {}
    drift = config.rounds, config.memory, config.share
    paths = np.stack(
        [_trial.hidden_updates(rows, rounds, *drift) for rows, rounds in trials]
    )
    return {name: paths[..., k] for k, name in enumerate(_UPDATES)}


def _histories(
    configs: Sequence[SimulateConfig], machine: Machine, together: int, first: int
) -> Iterable[np.ndarray]:
    """Return whom the server asks in the trials of each point, bool[B, J, N]."""
    seeds = [config.seed for config in configs]
    schemes = (
        [_selector(config) for config in configs],
        [_build.build_online(one.seed, one.population)[0] for one in configs],
    )
    sizes, mesh = (configs[0].rounds, configs[0].trials), _mesh(machine)
    if together == 1 and mesh is None:  # in whatever form is best for one
        own = zip(seeds, *schemes, strict=True)
        return (
            np.asarray(selection.rollout_trials(*one, *sizes, first=first))
            for one in own
        )
    return selection.rollout_many(
        seeds, *schemes, *sizes, mesh=mesh, width=together, first=first
    )


def _mesh(machine: Machine) -> Any:
    """Return the devices that trials are dealt out to, those of all hosts.

    None for one.
    """
    if machine.devices in (None, 1):
        return None
    if jax.process_count() > 1:
        return jax.sharding.Mesh(np.asarray(jax.devices()), ("trials",))
    return _build.build_mesh(_config.ResourceConfig(devices=machine.devices))


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
    place = np.concatenate(
        [min(h * size, trials - size) + np.arange(size) for h in range(hosts)]
    )
    order = np.unique(place, return_index=True)[1]
    return {name: np.concatenate(list(parts))[order] for name, parts in found.items()}


def _with_losses(
    config: SimulateConfig,
    kept: Collection[str],
    progress: Callable[[int, int], None] | None,
    first: int,
) -> dict[str, np.ndarray]:
    """Play rounds in which clients are lost."""
    online, rates = _build.build_online(config.seed, config.population)
    rounds = lossy_rounds(
        config,
        _selector(config),
        online,
        _rule(config),
        num_trials=config.trials,
        first=first,
    )
    played = jax.device_get(rounds._replace(assignment_keys=None))
    updates = _updates(config, map(selection.learnt_rows, _trial.each_trial(played)))
    parts: list[_trial.History] = []
    # one by one: the number of sums per round differs
    for own in _trial.each_trial(played):
        parts.append(_trial.analyse_rounds(own, at_end=TRAJECTORIES not in kept))
        if progress is not None:
            progress(len(parts), config.trials)
    found = known_of(_trial.joined(parts, np.stack), kept, updates)
    status = np.asarray(played.status)
    failed = (
        ((status != Status.OK) & (status != Status.SKIPPED))
        .sum(axis=1)
        .astype(np.int32)
    )
    found |= {"failed_rounds": failed} | (
        {"status": status} if "status" in kept else {}
    )
    return found | of_point(config, online, rates)


def _selector(config: SimulateConfig) -> selection.Selector:
    (scheme,) = _config.schemes_of(config)
    return _build.build_selector(scheme, config.population)


def _rule(config: SimulateConfig) -> Any:
    return _build.build_rule(config.protocol, _selector(config))
