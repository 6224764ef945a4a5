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
from mrsa_jax.study import _build, _measured
from mrsa_jax.study._config import (
    DataConfig,
    ResourceConfig,
    Scheme,
    TrainConfig,
    schemes_of,
    studied,
)
from mrsa_jax.study._load import to_dict
from mrsa_jax.study._progress import Silent
from mrsa_jax.study._runner import TRAJECTORIES, VARIABLES, Machine, Variable
from mrsa_jax.study._simulate_points import history_variables, known_of, of_point
from mrsa_jax.study._training_setting import (
    Played,
    Setting,
    as_trained,
    guaranteed,
    play,
    setting_of,
    training_of,
)

# Settings that are numbers of the compiled programs, or decide only who takes part in a
# round.
_TRACED = {
    "": ("seed", "scheme"),
    "population": ("dropout_rates", "assignment"),
    "aggregation": ("noise_multiplier", "clip_norm", "target_delta"),
    "training": ("learning_rate", "server_learning_rate", "decay_rounds", "decay_factor",
                 "evaluate_every"),
}  # fmt: skip
_END, _TESTS = VARIABLES["trained"], VARIABLES["tests"]


def group_of(config: TrainConfig) -> Hashable:
    """Return the settings that decide which programs train.

    The others are their numbers.
    """
    content = studied(to_dict(config))
    for table, names in _TRACED.items():
        part = content[table] if table else content
        for name in names:
            part.pop(name, None)
    return json.dumps(content, sort_keys=True), *_shapes(config)


def _shapes(config: TrainConfig) -> tuple[Hashable, ...]:
    """Return what else decides shapes.

    The schemes' classes, and draws that shapes depend on.
    """
    (scheme,) = schemes_of(config)
    population, data = config.population, config.data
    selector = _build.build_selector(scheme, population)
    program = program_of((selector, _build.build_rule(config.protocol, selector)))
    # a round has as many slots as the largest cohort, which only fixed sizes tell
    # beforehand
    drawn: tuple[Hashable, ...] = ()
    if cohort_size_of(selector) is None:
        drawn = (
            config.scheme,
            config.seed,
            population.dropout_rates,
            population.assignment,
        )
    largest = None  # samples of a client, as far as programs tell them apart
    if data.partition == "dirichlet" or (
        data.partition == "shards" and data.shards_per_client > 1
    ):
        largest = bucket(_most_samples(config.seed, data, population.num_clients))
    own = config.aggregation
    sums = own.clip_norm is not None, own.is_noisy
    return program, drawn, largest, sums, _build.build_server(config.training) is None


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
    """Return what is known of each training at its end, and on the way."""
    found = dict(_END)
    if any(config.training.measure_drift for config in configs):
        found |= _measured.OF_DRIFT
    is_bounded = any(config.aggregation.clip_norm is not None for config in configs)
    if is_bounded:
        found |= _measured.OF_NOISE
    found |= history_variables((), kept)
    if TRAJECTORIES in kept:
        found["evaluated_round"] = _TESTS["evaluated_round"]
        for name in _measured.BY_TEST if is_bounded else ():
            own, words = (
                _measured.OF_NOISE[name],
                f"{_measured.OF_NOISE[name].description}, at each test",
            )
            found[f"{name}_by_evaluation"] = dataclasses.replace(
                own, dims=("evaluation",), description=words
            )
        found |= _TESTS
    return found


def is_trained(name: str) -> bool:
    """Return whether a variable follows from trained numbers, which machines round differently."""
    return name.removesuffix("_by_evaluation") in {
        *_END,
        *_measured.OF_DRIFT,
        "wrapped",
    }


def together(config: TrainConfig, machine: Machine) -> int:
    """Return how many trainings fill the device, and no more than its memory.

    On a CPU one does.
    Fewer are lost where a process is killed.
    """
    setting = setting_of(_on(config, machine), Silent())
    count = at_once("trainings", 4 * setting.dim * config.population.cohort_size)
    bound = setting.config.resources.memory_gib
    room = free_bytes() if bound is None else int(bound * 2**30)
    if count == 1 or room is None:
        return count
    return max(1, min(count, room // memory_bytes(config, machine, 1)))


def memory_bytes(
    config: TrainConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return the peak memory of trainings before they run, as `mrsa-jax train` states one's."""
    setting = setting_of(_on(config, machine), Silent())
    sharing = 1 if setting.mesh is None else setting.mesh.size
    needed = count * setting.peak_bytes(config.population.cohort_size) * sharing
    # which training keeps to, or refuses itself
    bound = setting.config.resources.memory_gib
    return needed if bound is None else min(needed, int(bound * 2**30))


def _on(config: TrainConfig, machine: Machine) -> TrainConfig:
    """Return a training within what a sweep may use, where it does not set this itself."""
    own = config.resources
    gib = None if machine.memory_bytes is None else machine.memory_bytes / 2**30
    resources = ResourceConfig(
        memory_gib=gib if own.memory_gib is None else own.memory_gib,
        devices=machine.devices if own.devices is None else own.devices,
    )
    return dataclasses.replace(config, resources=resources)


def run_points(
    configs: Sequence[TrainConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Train points side by side.

    One that diverges has no accuracy, and is marked; what is known of who took part is
    of the rounds that it ran.
    """
    # points of one seed share their samples
    build = functools.cache(_build.build_clients)
    settings = [setting_of(_on(config, machine), Silent(), build) for config in configs]
    plays = [_played(setting, kept) for setting in settings]
    results = federated.train_many(
        [config.seed for config in configs],
        [
            training_of(setting, *own)
            for setting, own in zip(settings, plays, strict=True)
        ],
        memory_bytes=settings[0].memory_bytes,
        mesh=settings[0].mesh,
    )
    each = zip(configs, settings, plays, results, strict=True)
    for config, setting, (scheme, own), result in each:
        known = of_point(config, None, np.array(np.nan))
        del known["expected_cardinality"]  # which trainings have never kept
        known["guaranteed_privacy"] = np.asarray(guaranteed(setting, scheme, result))
        played = as_trained(setting, own, result, at_end=TRAJECTORIES not in kept)
        found = known | _found(setting, played, result, kept)
        yield {name: np.asarray(value) for name, value in found.items()}


def _played(setting: Setting, kept: Collection[str]) -> tuple[Scheme, Played]:
    """Return a point's scheme and its rounds, judged at their end alone where no more is kept."""
    config = setting.config
    (scheme,) = schemes_of(config)
    available, _ = _build.build_online(config.seed, config.population, setting.clients)
    return scheme, play(setting, scheme, available, at_end=TRAJECTORIES not in kept)


def _found(
    setting: Setting,
    played: Played,
    result: federated.TrainingResult,
    kept: Collection[str],
) -> dict[str, Any]:
    """Return what is known of a training: how it went, what it left, and who took part."""
    last, paths = result.diverged_round, TRAJECTORIES in kept
    more = _measured.of_point(setting, result, played)
    is_path = {name: name.endswith("_by_evaluation") for name in more}
    found: dict[str, Any] = {
        name: own for name, own in more.items() if paths or not is_path[name]
    }
    found |= {
        "diverged": last is not None,
        "diverged_round": -1 if last is None else last,
    }
    clipped = result.clipped_fraction[~np.isnan(result.clipped_fraction)]
    found["clipped_fraction"] = clipped.mean() if clipped.size else np.nan
    found["failed_uploads"] = int(result.failed_uploads.sum())
    if last is None:
        accuracy, loss = result.accuracy, result.loss
        found |= {
            "accuracy": accuracy[-1],
            "best_accuracy": np.nanmax(accuracy),
            "loss": loss[-1],
        }
        if paths:
            found |= {"accuracy_by_evaluation": accuracy, "loss_by_evaluation": loss}
            found["evaluated_round"] = result.evaluated_rounds + 1
    history = played.history
    if "status" in kept:
        found["status"] = np.asarray(result.status)[: len(history.participation)]
    return found | known_of(history, kept)
