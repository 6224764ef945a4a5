"""Points of a sweep over client selection: trials rolled out together and analysed.

`simulate` is the sweep over its schemes, of one point each. The memory of both follows
from their settings before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mrsa_jax import privacy, selection
from mrsa_jax._core.batches import at_once, trials_at_once
from mrsa_jax._core.device import platform
from mrsa_jax._core.factories import program_of
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.status import Status
from mrsa_jax.study.runs import _build, _trial
from mrsa_jax.study.runs._history_variables import (
    LASTING,
    UPDATES,
    history_values,
    history_variables,
    point_values,
)
from mrsa_jax.study.runs._training_setting import lossy_rounds
from mrsa_jax.study.runs._weak import MEMORY_BYTES, weak_values, weak_variables
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._config import Config, SimulateConfig
from mrsa_jax.study.stores._runner import (
    SHARES,
    TRAJECTORIES,
    VARIABLES,
    Machine,
    Variable,
)

# bytes of a round with losses: five survivor flags, its sum, its component
_PER_CLIENT = 10 * 2
_PER_PAIR = 24  # and of each pair of its participants, in the graph of pads
_MOST_TOGETHER = 64
_VALUES = ("determined_share", "undecided_share")
# trials whose clients have whole-number values, and branches of each integer program
_VALUED_TRIALS, _NODES = 3, 100


def simulate_bytes(config: Config, together: int = 1, *, at_end: bool = False) -> int:
    """Return about how many bytes it takes to roll schemes out and analyse them."""
    population = config.population
    trials = config.trials if isinstance(config, SimulateConfig) else 1
    shape = config.rounds, population.num_clients
    if config.protocol.is_plain:
        rolled = _trial.rolled_bytes(trials, *shape)
        if at_end:
            # histories that wait keep their booleans only; one at a time is analysed
            return (together - 1) * rolled + _trial.known_bytes(trials, *shape)
        return together * rolled + _trial.analysed_bytes(trials, *shape)
    # the graph of a round has an edge for each pair of its cohort
    pairs = trials * min(population.cohort_size, population.num_clients) ** 2
    played = trials * shape[0] * shape[1] * _PER_CLIENT + pairs * _PER_PAIR
    # trials are analysed one by one, with a row for each round next to those of its
    # sums
    return played + 2 * _trial.analysed_bytes(1, *shape)


def stated_memory(config: Config) -> str:
    """Say how much memory a study needs; refuse more than the machine has.

    Raises:
        ConfigurationError: If memory does not suffice.
    """
    clients = config.population.num_clients
    sizes = f"{config.rounds} rounds"
    reduce = "num_clients or rounds"
    entries = len(_config.schemes_of(config)) * (config.rounds + clients)
    if isinstance(config, SimulateConfig):
        sizes = f"{sizes}, {config.trials} trials"
        reduce = "num_clients, rounds or trials"
        entries *= config.trials
    needed = simulate_bytes(config) + 32 * entries  # of all schemes' results
    if isinstance(config, SimulateConfig) and config.keep:
        needed += MEMORY_BYTES
    words = memory_words(needed, "num_clients", f"{clients} with {sizes}", reduce)
    return words + _chunk_words(config)


def _chunk_words(config: Config) -> str:
    """Say how many trials fill an accelerator, "" on a CPU, whose cores share them."""
    if not isinstance(config, SimulateConfig) or platform() == "cpu":
        return ""
    clients = config.population.num_clients
    most = trials_at_once(clients, config.rounds, clients)
    return f"; {min(most, config.trials):,} of {config.trials:,} trials at once"


def group_of(config: SimulateConfig) -> Hashable:
    """Return the program that rolls a point's trials out, with its shapes."""
    rule = _rule(config)
    # the seed changes numbers only, not the program
    online = _build.online_of_any_seed(config.seed, config.population)
    program = program_of((_selector(config), online, rule))
    return program, config.rounds, config.trials, rule is None


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
    """Return the variables of each trial: at its end, and after each round if kept."""
    drifts = any(config.memory is not None for config in configs)
    simulated = dict(VARIABLES["simulated"])
    if all(config.protocol.is_plain for config in configs):
        del simulated["failed_rounds"]
    if all(config.values is None for config in configs):
        simulated = {n: about for n, about in simulated.items() if n not in _VALUES}
    if SHARES in kept:
        simulated |= VARIABLES["shares"]
    lasts = any(map(_lasts, configs))
    ends = history_variables(("trial",), kept, drifts=drifts, lasts=lasts)
    return ends | weak_variables(("trial",), kept) | simulated


def together(config: SimulateConfig, machine: Machine) -> int:
    """Return the number of points whose histories fit the memory at once."""
    clients = config.population.num_clients
    rolled = _trial.rolled_bytes(config.trials, config.rounds, clients)
    bound = machine.memory_bytes
    count = at_once("results", rolled) if bound is None else bound // rolled
    # at least one, even if it alone exceeds the bound
    return max(1, min(_MOST_TOGETHER, count))


def memory_bytes(
    config: SimulateConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about how many bytes the histories of some points need."""
    # drifting updates are followed round by round, in any case
    at_end = TRAJECTORIES not in kept and config.memory is None
    weak = MEMORY_BYTES if _config.weak_wish(kept) is not None else 0
    return simulate_bytes(config, count, at_end=at_end) + weak


def run_points(
    configs: Sequence[SimulateConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
    progress: Callable[[int, int], None] | None = None,
    *,
    first: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Roll points of one program out together and analyse each, from trial `first`.

    `progress` receives (trials analysed, trials) of each point.
    """
    if _rule(configs[0]) is not None:
        for config in configs:
            yield _with_losses(config, kept, progress, first)
        return
    histories = _histories(configs, machine, together, first)
    at_end = TRAJECTORIES not in kept
    for config, cohorts in zip(configs, histories, strict=True):
        # rounds of one client are not learnt, and count as skipped
        history = _trial.learnt_sums(cohorts)
        rounds = np.arange(config.rounds)
        updates = _updates(config, ((rows, rounds) for rows in history))
        analysed = _trial.analyse(history, progress, at_end=at_end)
        online = _build.build_online(config.seed, config.population)
        values = history_values(analysed, kept, updates)
        values |= _determined(config, history, first)
        values |= _shares(config, online[0], kept)
        sums = ((rows, rounds) for rows in history)
        values |= weak_values(sums, config.rounds, kept, progress)
        yield values | point_values(config, *online)


def _shares(
    config: SimulateConfig, online: Any, kept: Collection[str]
) -> dict[str, np.ndarray]:
    """Return the gap of expected shares if it is kept; nan if clients are lost."""
    if SHARES not in kept:
        return {}
    gap = (np.nan, np.nan)
    if config.protocol.is_plain:
        gap = _build.expected_fairness(_selector(config), online, config.seed)
    return dict(zip(VARIABLES["shares"], map(np.asarray, gap), strict=True))


def _updates(
    config: SimulateConfig, trials: Iterable[tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the sizes that drifting updates are hidden among, [B, J].

    `trials` are the rows of their sums, and the round of each. The same of what lasts
    of updates, if a part of them does.
    """
    if config.memory is None:
        return {}
    each = list(trials)
    drift = config.memory, config.share
    paths = np.stack(
        [_trial.hidden_updates(*sums, config.rounds, *drift) for sums in each]
    )
    found = {name: paths[..., k] for k, name in enumerate(UPDATES)}
    if _lasts(config):
        paths = np.stack(
            [_trial.hidden_lasting(*sums, config.rounds, config.share) for sums in each]
        )
        found |= {name: paths[..., k] for k, name in enumerate(LASTING)}
    return found


def _determined(
    config: SimulateConfig, trials: Sequence[np.ndarray] | np.ndarray, first: int
) -> dict[str, np.ndarray]:
    """Return the shares of clients whose value sums determine, or are undecided, [B].

    `trials` are the rows of their sums, from trial `first`.
    """
    if config.values is None:
        return {}
    shares = np.full((2, len(trials)), np.nan)
    # the first trials of the point, whichever range is computed here
    for place, rows in enumerate(trials[: max(0, _VALUED_TRIALS - first)]):
        if not len(rows):
            continue
        # by the number of the trial, so that ranges can be computed apart
        seed = (config.seed + first + place) % 2**32
        rate = privacy.determined_rate(rows, config.values, 2, seed=seed, nodes=_NODES)
        shares[:, place] = rate.rate, rate.undecided
    return dict(zip(_VALUES, shares, strict=True))


def _lasts(config: SimulateConfig) -> bool:
    """Return whether a part of each update lasts, and the rest is fresh."""
    return config.memory is not None and 0.0 < config.share < 1.0


def _histories(
    configs: Sequence[SimulateConfig], machine: Machine, together: int, first: int
) -> Iterable[np.ndarray]:
    """Return the cohorts of each point's trials, bool[B, J, N]."""
    seeds = [config.seed for config in configs]
    selectors = [_selector(config) for config in configs]
    online = [
        _build.build_online(config.seed, config.population)[0] for config in configs
    ]
    shape = configs[0].rounds, configs[0].trials
    mesh = None  # trials are distributed over devices only if asked
    if machine.devices is not None:
        mesh = _build.build_mesh(_config.ResourceConfig(devices=machine.devices))
    if together == 1 and mesh is None:  # in whichever form is best for one
        return (
            np.asarray(selection.rollout_trials(*point, *shape, first=first))
            for point in zip(seeds, selectors, online, strict=True)
        )
    return selection.rollout_many(
        seeds, selectors, online, *shape, mesh=mesh, width=together, first=first
    )


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
    # typed keys have no NumPy form, and nothing here needs them
    played = jax.device_get(rounds._replace(assignment_keys=None))
    trials = list(_trial.each_trial(played))
    updates = _updates(config, map(selection.learnt_rows, trials))
    parts: list[_trial.History] = []
    # one by one: the number of sums per round differs
    for trial in trials:
        parts.append(_trial.analyse_rounds(trial, at_end=TRAJECTORIES not in kept))
        if progress is not None:
            progress(len(parts), config.trials)
    values = history_values(_trial.joined(parts, np.stack), kept, updates)
    learnt = list(map(selection.learnt_rows, trials))
    values |= _determined(config, [rows for rows, _ in learnt], first)
    values |= weak_values(learnt, config.rounds, kept, progress)
    # skipped rounds had no cohort, so nothing failed in them
    is_failed = ~np.isin(played.status, (Status.OK, Status.SKIPPED))
    values["failed_rounds"] = is_failed.sum(axis=1).astype(np.int32)
    if "status" in kept:
        values["status"] = np.asarray(played.status)
    values |= _shares(config, online, kept)
    return values | point_values(config, online, rates)


def _selector(config: SimulateConfig) -> selection.Selector:
    (scheme,) = _config.schemes_of(config)
    return _build.build_selector(scheme, config.population)


def _rule(config: SimulateConfig) -> Any:
    return _build.build_rule(config.protocol, _selector(config))
