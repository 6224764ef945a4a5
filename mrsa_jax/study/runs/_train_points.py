"""Points of a sweep over trainings: as many side by side as fill the device."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax import federated
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import bucket, program_of
from mrsa_jax._core.memory import free_bytes
from mrsa_jax._core.selector import cohort_size_of
from mrsa_jax.study._progress import Silent
from mrsa_jax.study.runs import _build, _measured
from mrsa_jax.study.runs._history_variables import (
    history_values,
    history_variables,
    point_values,
)
from mrsa_jax.study.runs._training_setting import (
    Setting,
    as_trained,
    guaranteed,
    play,
    setting_of,
    training_of,
)
from mrsa_jax.study.settings._config import (
    DataConfig,
    ResourceConfig,
    TrainConfig,
    schemes_of,
    studied,
)
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.stores._runner import TRAJECTORIES, VARIABLES, Machine, Variable

# Settings that are numbers of the compiled programs, or decide only which clients take
# part in a round.
_TRACED = {
    "": ("seed", "scheme"),
    "population": ("dropout_rates", "assignment"),
    "aggregation": ("noise_multiplier", "clip_norm", "target_delta"),
    "training": ("learning_rate", "server_learning_rate", "decay_rounds",
                 "decay_factor", "evaluate_every"),
}  # fmt: skip
_END, _TESTS = VARIABLES["trained"], VARIABLES["tests"]


def group_of(config: TrainConfig) -> Hashable:
    """Return the settings that select the programs; the others are their numbers.

    Further entries decide shapes: the schemes' classes, and draws that change
    shapes.
    """
    content = studied(to_dict(config))
    for table, names in _TRACED.items():
        part = content[table] if table else content
        for name in names:
            part.pop(name, None)
    (scheme,) = schemes_of(config)
    population, data = config.population, config.data
    selector = _build.build_selector(scheme, population)
    program = program_of((selector, _build.build_rule(config.protocol, selector)))
    # a round has as many slots as the largest cohort, which only fixed sizes show in
    # advance
    drawn: tuple[Hashable, ...] = ()
    if cohort_size_of(selector) is None:
        rates = population.dropout_rates
        drawn = (config.scheme, config.seed, rates, population.assignment)
    largest = None  # samples of a client, as far as programs distinguish them
    is_uneven = data.partition == "shards" and data.shards_per_client > 1
    if data.partition == "dirichlet" or is_uneven:
        largest = bucket(_most_samples(config.seed, data, population.num_clients))
    aggregation = config.aggregation
    return (
        json.dumps(content, sort_keys=True),
        program,
        drawn,
        largest,
        (aggregation.clip_norm is not None, aggregation.is_noisy),
        _build.build_server(config.training) is None,
    )


@functools.cache
def _most_samples(seed: int, data: DataConfig, num_clients: int) -> int:
    return int(_build.build_clients(seed, data, num_clients)[1].indices.shape[1])


def sizes(configs: Sequence[TrainConfig]) -> dict[str, int]:
    """Return the most tests, rounds and clients of a point."""
    tests = [-(-config.rounds // config.training.evaluate_every) for config in configs]
    return {
        "evaluation": max(tests),
        "round": max(config.rounds for config in configs),
        "client": max(config.population.num_clients for config in configs),
    }


def variables(
    configs: Sequence[TrainConfig], kept: Collection[str]
) -> dict[str, Variable]:
    """Return the variables of each training at its end, and on the way."""
    found = dict(_END)
    if any(config.training.measure_drift for config in configs):
        found |= _measured.OF_DRIFT
    if any(not config.hetero.is_plain for config in configs):
        found |= VARIABLES["segments_of_point"]
    is_bounded = any(config.aggregation.clip_norm is not None for config in configs)
    if is_bounded:
        found |= _measured.OF_NOISE
    found |= history_variables((), kept)
    if TRAJECTORIES in kept:
        found["evaluated_round"] = _TESTS["evaluated_round"]
        for name in _measured.BY_TEST if is_bounded else ():
            about = _measured.OF_NOISE[name]
            words = f"{about.description}, at each test"
            found[f"{name}_by_evaluation"] = dataclasses.replace(
                about, dims=("evaluation",), description=words
            )
        found |= _TESTS
    return found


def is_trained(name: str) -> bool:
    """Return whether a variable follows from training, which machines round apart."""
    trained = {*_END, *_measured.OF_DRIFT, "wrapped"}
    return name.removesuffix("_by_evaluation") in trained


def together(config: TrainConfig, machine: Machine) -> int:
    """Return the number of trainings that fill the device within its memory.

    On a CPU one does. Fewer are lost if a process is killed.
    """
    setting = _setting(config, machine)
    count = at_once("trainings", 4 * setting.dim * config.population.cohort_size)
    bound = setting.config.resources.memory_gib
    room = free_bytes() if bound is None else int(bound * 2**30)
    if count == 1 or room is None:
        return count
    return max(1, min(count, room // memory_bytes(config, machine, 1)))


def memory_bytes(
    config: TrainConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return the peak bytes of trainings before they run, as `train` states them."""
    setting = _setting(config, machine)
    sharing = 1 if setting.mesh is None else setting.mesh.size
    needed = count * setting.peak_bytes(config.population.cohort_size) * sharing
    # a training keeps to its bound, or refuses itself
    bound = setting.config.resources.memory_gib
    return needed if bound is None else min(needed, int(bound * 2**30))


def _setting(config: TrainConfig, machine: Machine, build: Any = None) -> Setting:
    """Set a training up within a sweep's resources, unless it sets these itself."""
    memory_gib = config.resources.memory_gib
    if memory_gib is None and machine.memory_bytes is not None:
        memory_gib = machine.memory_bytes / 2**30
    devices = config.resources.devices
    resources = ResourceConfig(
        memory_gib=memory_gib, devices=machine.devices if devices is None else devices
    )
    bounded = dataclasses.replace(config, resources=resources)
    return setting_of(bounded, Silent(), build)


def run_points(
    configs: Sequence[TrainConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Train points side by side.

    One that diverges has no accuracy, and is marked; its variables of participation are
    of the rounds that it ran. Without trajectories, rounds are analysed at their end.
    """
    at_end = TRAJECTORIES not in kept
    # points of one seed share their samples
    build = functools.cache(_build.build_clients)
    points = []
    for config in configs:
        setting = _setting(config, machine, build)
        (scheme,) = schemes_of(config)
        available, _ = _build.build_online(
            config.seed, config.population, setting.clients
        )
        points.append(
            (setting, scheme, play(setting, scheme, available, at_end=at_end))
        )
    results = federated.train_many(
        [config.seed for config in configs],
        [training_of(*point) for point in points],
        memory_bytes=points[0][0].memory_bytes,
        mesh=points[0][0].mesh,
    )
    for (setting, scheme, rolled), result in zip(points, results, strict=True):
        values: dict[str, Any] = point_values(setting.config, None, np.array(np.nan))
        del values["expected_cardinality"]  # which trainings have never kept
        values["guaranteed_privacy"] = guaranteed(setting, scheme, result)
        played = as_trained(setting, rolled, result, at_end=at_end)
        values |= {
            name: value
            for name, value in _measured.point_measures(setting, result, played).items()
            if not (at_end and name.endswith("_by_evaluation"))
        }
        values |= _learnt(result, at_end=at_end)
        if played.segments is not None:
            facts = played.segment_facts
            names = VARIABLES["segments_of_point"]
            values |= {name: facts[name] for name in names}
        if "status" in kept:
            values["status"] = result.status[: len(played.cohorts)]
        values |= history_values(played.history, kept)
        yield {name: np.asarray(value) for name, value in values.items()}


def _learnt(result: federated.TrainingResult, *, at_end: bool) -> dict[str, Any]:
    """Return the outcome of a training, with the quality of its model."""
    last = result.diverged_round
    clipped = result.clipped_fraction[~np.isnan(result.clipped_fraction)]
    values: dict[str, Any] = {
        "diverged": last is not None,
        "diverged_round": -1 if last is None else last,
        "clipped_fraction": clipped.mean() if clipped.size else np.nan,
        "failed_uploads": int(result.failed_uploads.sum()),
    }
    if last is not None:
        return values
    values |= {
        "accuracy": result.accuracy[-1],
        "best_accuracy": np.nanmax(result.accuracy),
        "loss": result.loss[-1],
    }
    if not at_end:
        values["accuracy_by_evaluation"] = result.accuracy
        values["loss_by_evaluation"] = result.loss
        values["evaluated_round"] = result.evaluated_rounds + 1
    return values
