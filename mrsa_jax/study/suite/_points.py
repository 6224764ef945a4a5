"""Measure one point of the suite: a scheme in a scenario, with one seed.

The functions are those of a `Runner`, so a card is a sweep with a store that resumes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import attacks, dp, privacy, selection
from mrsa_jax._core.selector import cohort_size_of
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.streams import Stream, as_key, host_generator
from mrsa_jax.privacy.summary import what_never_changes
from mrsa_jax.selection.registry import BUILT_IN, OF_OTHERS, ROWS
from mrsa_jax.study.runs import _build, _train_points, _trial
from mrsa_jax.study.runs._simulate_points import simulate_bytes
from mrsa_jax.study.runs._training_setting import lossy_rounds
from mrsa_jax.study.settings._config import SimulateConfig, TrainConfig, schemes_of
from mrsa_jax.study.stores._runner import Machine, Variable
from mrsa_jax.study.suite._figures import figures_of
from mrsa_jax.study.suite._scenarios import (
    Constants,
    Scenario,
    SuiteConfig,
    load_version,
)
from mrsa_jax.study.suite._training import Curve, curves_of
from mrsa_watch._base.errors import require

_NODES = 100  # branches of each integer program on whole-number values
_DRAWS = 2  # of all values
_MOST_SEARCHED = 10_000  # clients, of which a search for weak T takes seconds
_DIGITS = 9  # of estimates: equal columns of a history are to give equal ones


class Sums(NamedTuple):
    """Sums of a history, and the clients of each round.

    Attributes:
        rows: bool[sums, N], the clients in each sum, in the order of the rounds.
        rounds: int[sums], the round of each.
        participation: bool[J, N], the clients in the sum of each round.
    """

    rows: np.ndarray
    rounds: np.ndarray
    participation: np.ndarray


def group_of(config: SuiteConfig) -> Hashable:
    """Return the scenario, whose seeds are measured one after the other."""
    _selector(_simulation(config))
    return config.scenario


def sizes(configs: Sequence[SuiteConfig]) -> dict[str, int]:
    """Return no inner dimensions: figures are numbers."""
    del configs
    return {}


def variables(
    configs: Sequence[SuiteConfig], kept: Collection[str]
) -> dict[str, Variable]:
    """Return the figures and the digest of the history as variables of a store."""
    del kept
    version = load_version(configs[0].suite if configs else "v1")
    kinds = {version.scenarios[config.scenario].trains for config in configs}
    figures = {
        name: Variable((), "float64", "1", f"{figure.label}, {figure.word}; nan: none")
        for trains in sorted(kinds)
        for name, figure in figures_of(version.constants, trains=trains).items()
    }
    words = "SHA-256 of the participation history, in hexadecimal digits"
    return figures | {"history": Variable((), "<U64", "1", words)}


def together(config: SuiteConfig, machine: Machine) -> int:
    """Return 1, or the number of trainings that fill the device.

    Other points are measured one by one, and each is kept when it is done.
    """
    if not _scenario(config).trains:
        return 1
    return _train_points.together(_training(config), machine)


def memory_bytes(
    config: SuiteConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about how many bytes a point needs."""
    if _scenario(config).trains:
        return _train_points.memory_bytes(_training(config), machine, count, kept)
    return simulate_bytes(_simulation(config), at_end=True)


def run_points(
    configs: Sequence[SuiteConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Measure points one after the other, and trainings of a scenario together."""
    del machine, kept, together
    trains = bool(configs) and _scenario(configs[0]).trains
    each = map(_trained, configs, trained(configs)) if trains else map(measure, configs)
    for values in each:
        digest = np.asarray(values.pop("history"))
        # float64 holds the integers exactly, and nan stands for no value
        numbers = {name: np.asarray(v, np.float64) for name, v in values.items()}
        yield numbers | {"history": digest}


def trained(configs: Sequence[SuiteConfig]) -> list[Curve]:
    """Train the models of points of one scenario."""
    return curves_of([_training(config) for config in configs])


def _trained(config: SuiteConfig, curve: Curve) -> dict[str, Any]:
    history = {"history": history_digest(curve.participation)}
    return history | curve.figures(_scenario(config).accuracy)


def measure(config: SuiteConfig) -> dict[str, Any]:
    """Return the figures of a point, and the digest of its history.

    Figures that the point does not have are None: those after more rounds than it has,
    those of assumptions that its scenario does not make, and epsilon where the
    selection may depend on clients' data.
    """
    scenario, constants = _scenario(config), load_version(config.suite).constants
    if scenario.trains:
        return _trained(config, *trained([config]))
    simulation = _simulation(config)
    selector = _selector(simulation)
    sums = _played(scenario, simulation, selector)
    values: dict[str, Any] = dict.fromkeys(figures_of(constants))
    values["history"] = history_digest(sums.rows)
    values |= _counted(sums)
    if sums.rows.any():
        values |= _decided(sums)
        values |= _hidden(scenario, simulation, sums, constants)
        is_attacked = sums.rounds < constants.attack_rounds
        values |= _attribute(sums.rows[is_attacked], config.seed, constants)
        # no epsilon unless the scheme states that clients' data do not decide
        if getattr(selector, "depends_on_data", None) is False:
            values["epsilon"] = _epsilon(sums.rows, constants)
    if simulation.values is not None and sums.rows.any():
        rate = privacy.determined_rate(
            sums.rows, simulation.values, _DRAWS, seed=config.seed, nodes=_NODES
        )
        values["determined_share"] = rate.rate
    return values


def history_digest(rows: np.ndarray) -> str:
    """Return the SHA-256 of a participation history, in hexadecimal digits.

    It is of the ASCII text "SUMS CLIENTS" and a line feed, and then of the bits of the
    matrix, one row per sum in the order of the rounds, row after row, eight bits per
    byte with the first bit highest, the last byte filled with zeros.

    Args:
        rows: bool[sums, clients].

    Examples:
        >>> import numpy as np
        >>> history_digest(np.eye(2, dtype=bool))[:8]
        'd1c8e496'
    """
    header = f"{rows.shape[0]} {rows.shape[1]}\n".encode("ascii")
    bits = np.packbits(np.ascontiguousarray(rows, np.bool_).ravel())
    return hashlib.sha256(header + bits.tobytes()).hexdigest()


def _scenario(config: SuiteConfig) -> Scenario:
    return load_version(config.suite).scenarios[config.scenario]


def _simulation(config: SuiteConfig) -> SimulateConfig:
    return _scenario(config).config(config.scheme, config.seed)


def _training(config: SuiteConfig) -> TrainConfig:
    return _scenario(config).training(config.scheme, config.seed)


def _selector(simulation: SimulateConfig) -> selection.Selector:
    (scheme,) = schemes_of(simulation)
    return _build.build_selector(scheme, simulation.population)


def _played(
    scenario: Scenario, simulation: SimulateConfig, selector: selection.Selector
) -> Sums:
    """Roll out the rounds of a point."""
    if scenario.server:
        rows = _chosen_by_server(scenario, simulation, selector)
        return Sums(rows, np.arange(len(rows)), rows)
    online, _ = _build.build_online(simulation.seed, simulation.population)
    rule = _build.build_rule(simulation.protocol, selector)
    if rule is None:
        shape = simulation.seed, selector, online, simulation.rounds
        cohorts = np.asarray(selection.rollout(*shape))
        _check_cohorts(cohorts, simulation, selector, cohort_size_of(selector))
        rows = _trial.learnt_sums(cohorts)
        return Sums(rows, np.arange(len(rows)), rows)
    played = lossy_rounds(simulation, selector, online, rule)
    participation = np.asarray(played.participation)
    _check_cohorts(participation, simulation, selector, None)
    return Sums(*selection.learnt_rows(played), participation)


def _check_cohorts(
    cohorts: np.ndarray,
    simulation: SimulateConfig,
    selector: selection.Selector,
    size: int | None,
) -> None:
    """Raise if a user's scheme selects offline clients, or another number than K.

    Args:
        cohorts: bool[J, N].
        simulation: Its settings.
        selector: The scheme.
        size: K, if each round has K clients or none.
    """
    (scheme,) = simulation.schemes
    own = {*ROWS} - {*BUILT_IN, *OF_OTHERS}
    if not own & {*scheme.split(":")}:
        return
    every = selection.bernoulli(selector.num_clients, 1.0)
    online, _ = _build.build_online(simulation.seed, simulation.population)
    available = selection.rollout(simulation.seed, every, online, len(cohorts))
    offline = int((cohorts & ~np.asarray(available)).sum())
    require(offline == 0, "scheme", "must select online clients only", scheme)
    sizes = cohorts.sum(axis=1)
    rule = f"must select {size} clients or none, as its `cohort_size` states"
    require(
        size is None or bool(np.isin(sizes, (0, size)).all()), "scheme", rule, scheme
    )


def _chosen_by_server(
    scenario: Scenario, simulation: SimulateConfig, selector: selection.Selector
) -> np.ndarray:
    """Return the sums that a server asks for, whatever the scheme would select.

    It knows the blocks of the scheme; clients that enforce these unmask unions of whole
    blocks only.
    """
    population = simulation.population
    block = _build.sizes_of(selector)[1]
    server = attacks.exposing_server(
        population.num_clients, population.cohort_size, blocks=block
    )

    def is_whole(listed: np.ndarray) -> bool:
        members = listed.reshape(-1, block).sum(axis=1)
        return bool(((members == 0) | (members == block)).all())

    accepts = is_whole if scenario.server == "enforced" else None
    played = server.play(simulation.seed, simulation.rounds, accepts)
    return np.asarray(played.participation, np.bool_)


def _counted(sums: Sums) -> dict[str, Any]:
    """Return C, F and skipped rounds, quotients of integers."""
    num_rounds = len(sums.participation)
    counts = sums.participation.sum(axis=0, dtype=np.int64)
    return {
        "skipped_rounds": int((~sums.participation.any(axis=1)).sum()),
        "cardinality": int(counts.sum()) / num_rounds,
        "fairness_gap": int(counts.max() - counts.min()) / num_rounds,
    }


def _decided(sums: Sums) -> dict[str, Any]:
    """Return strong T, exposed clients, and those bounds on weak T that are cheap."""
    rows, num_rounds = sums.rows, len(sums.participation)
    first = np.asarray(privacy.first_exposure(rows))
    is_exposed = first >= 0
    num_exposed = int(is_exposed.sum())
    strong = privacy.strong_privacy(rows)
    values = {
        "strong_privacy": strong,
        "exposed_clients": num_exposed,
        "rounds_unexposed": num_rounds,
        # any combination involves clients of equal columns together
        "weak_lower": 1 if num_exposed else max(2, strong or 2),
        "weak_upper": 1 if num_exposed else _lightest(rows),
    }
    if num_exposed:
        values["rounds_unexposed"] = int(sums.rounds[first[is_exposed].min()])
    elif rows.shape[1] <= _MOST_SEARCHED:
        bounds = privacy.weak_privacy(rows, effort=0.0)
        values |= {"weak_lower": bounds.lower, "weak_upper": bounds.upper}
    return values


def _lightest(rows: np.ndarray) -> int:
    """Return the fewest clients in a sum, or in the difference of two sums.

    Differences of equal sums are none.
    """
    members = rows[rows.any(axis=1)].astype(np.float32)  # counts below 2^24 are exact
    sizes = members.sum(axis=1)
    differences = sizes[:, None] + sizes - 2 * (members @ members.T)
    return int(min(sizes.min(), differences[differences > 0].min(initial=np.inf)))


def _hidden(
    scenario: Scenario, simulation: SimulateConfig, sums: Sums, constants: Constants
) -> dict[str, Any]:
    """Return among how many clients updates, and what lasts of them, are hidden."""
    values: dict[str, Any] = {}
    for rounds in constants.rounds:
        if rounds > simulation.rounds:
            continue
        is_past = sums.rounds < rounds
        rows, numbers = sums.rows[is_past], sums.rounds[is_past]
        took_part = rows.any(axis=0)
        if not took_part.any():
            continue
        for part, hidden in _sizes(scenario, simulation, rows, numbers).items():
            of_parts = hidden[took_part]
            # nan: floats do not know it to nine digits
            if np.isfinite(of_parts).all():
                values[f"{part}_hidden_worst_{rounds}"] = float(of_parts.min())
                values[f"{part}_hidden_median_{rounds}"] = float(np.median(of_parts))
    return values


def _sizes(
    scenario: Scenario,
    simulation: SimulateConfig,
    rows: np.ndarray,
    numbers: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the size that each client is hidden among, float64[N], by part."""
    if scenario.kinds:
        kinds = np.arange(rows.shape[1]) % scenario.kinds
        covariance = scenario.correlation * (kinds[:, None] == kinds).astype(np.float64)
        np.fill_diagonal(covariance, 1.0)
        hidden = privacy.hidden_among(rows, covariance=covariance)
        return {"update": np.asarray(hidden)}
    if simulation.memory is None:
        return {"update": np.asarray(privacy.hidden_among(rows))}
    drift = simulation.memory, simulation.share
    kernel = memory_kernel(numbers, *drift)
    update = privacy.hidden_among(rows, memory=kernel)
    never = what_never_changes(rows, numbers, simulation.share)
    lasting = privacy.hidden_among(rows, **never)
    return {"update": np.asarray(update), "lasting": np.asarray(lasting)}


def _attribute(rows: np.ndarray, seed: int, constants: Constants) -> dict[str, Any]:
    """Attack an attribute of each client, and bound any such attack.

    The server learns the number of clients with the attribute in each sum, with
    Gaussian noise, and solves all sums together.
    """
    generator = host_generator(as_key(seed), int(Stream.ATTACK))
    has = np.less(generator.random(rows.shape[1]), constants.prevalence)
    noise = generator.normal(0.0, constants.attribute_noise, len(rows))
    if not rows.any():
        return {}
    strong = privacy.strong_privacy(rows) or 1
    bound = privacy.attribute_bound(strong, constants.prevalence).auc
    values: dict[str, Any] = {"attribute_bound": bound if strong > 1 else 1.0}
    if has.all() or not has.any():
        return values
    attack = attacks.attribute(_Untrained(), prevalence=constants.prevalence)
    # of each client in a sum, as the attack counts noise
    variance = constants.attribute_noise**2 / np.maximum(rows.sum(axis=1), 1)
    totals = rows.astype(np.float64) @ has + noise
    estimates = attack.solve(rows, totals, variance).estimates
    score = attacks.membership_score(np.round(estimates, _DIGITS), has)
    return values | {"attribute_auc": float(score.auc)}


class _Untrained:
    """A local training that is never run: the attack starts from scored sums."""

    def update(self, *arguments: Any) -> Any:
        """Refuse to train."""
        raise NotImplementedError(f"{len(arguments)} arguments")


def _epsilon(rows: np.ndarray, constants: Constants) -> float:
    spent = dp.ledger(rows, constants.noise_multiplier)
    return float(np.max(spent.epsilon(constants.delta)))
