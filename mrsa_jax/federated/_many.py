"""Many trainings side by side: seeds, learning rates and schemes of one table.

In each step every run trains its own next round, whichever that is, so rounds that a
run skips cost nothing. Where rounds can be one program (`_program`), it holds several
runs of one structure: the slots of all their cohorts are one flat list, with the model,
rate and key of each slot's run. Other runs take turns, each as `train` trains it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.traced import needs_values
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints
from mrsa_jax.federated._json_lines import Callback, Metrics
from mrsa_jax.federated._program import (
    Programs,
    alike,
    rounds_go_alone,
    runs_and_width_within,
)
from mrsa_jax.federated._run import Run, TrainingResult, prepared_test
from mrsa_jax.federated._train import (
    Advance,
    check_function,
    check_trainings,
    drive,
    one_run,
)
from mrsa_jax.federated._training import Training
from mrsa_jax.federated.programs import in_buckets
from mrsa_watch._base.errors import check_count, require


@needs_values
def train_many(
    seeds: Any,
    trainings: Training | Sequence[Training],
    *,
    memory_bytes: int | None = None,
    side_by_side: int | None = None,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, int], None] | None = None,
    callback: Callback | None = None,
) -> list[TrainingResult]:
    """Train B global models side by side: what B calls of `train` would give.

    For the papers' tables: seeds, learning rates and selection schemes in one go. The
    rounds of as many runs as fill the device are one program, compiled once, where
    `train` would have one for several rounds; other runs take turns. Runs need not skip
    the same rounds. A run that diverges stops, the others continue.
    Statuses and participation are equal to those of `train` bit for bit, floats to
    rounding, and bit for bit where runs take turns.

    Args:
        seeds: B integers or keys, or one for all.
        trainings: B of them, or one for all seeds. All have one model; their trainers
            may differ in their numbers (learning rate, momentum), their samples in
            anything but the shape.
        memory_bytes: As in `train`; how many runs train side by side follows from it
            too.
        side_by_side: Most runs that train at once; what is right for the device if
            None. On a CPU, whose cores one cohort fills, the runs take turns, each as
            by `train`, as they do with a `mesh` and where clients keep state.
        mesh: As in `train`: all runs' clients are spread over its devices.
        checkpoints: As in `train`, of all runs together.
        progress: Called after each step with (rounds trained, rounds to train) of all
            runs: with 3, 6, 9, 11 and 12 of 12 where three of them train 5, 3 and 4
            rounds. Where rounds run as programs several calls follow each other, as for
            `train`.
        callback: As in `train`, with `run`, a training's place among the B, in each
            dictionary: those of one run are in order, those of several take turns.

    Returns:
        B results, in order.

    Raises:
        ConfigurationError: As `train`; also if there are not as many seeds as
            trainings, or these have several models, or trainers that differ in more
            than numbers.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 4, 650)
        >>> trainers = [
        ...     mj.federated.local_sgd(model, rate, batch_size=100)
        ...     for rate in (0.1, 0.01)
        ... ]
        >>> rounds = np.ones((1, 4), bool)
        >>> results = mj.federated.train_many(0, [
        ...     mj.federated.Training(model, clients, rounds, trainer, average)
        ...     for trainer in trainers])
        >>> [mj.Status(result.status[0]).name for result in results]
        ['OK', 'OK']

    Source: Multi-RoundSecAgg, Section 5 (six schemes, seven learning rates, five
    seeds).
    """
    # not the named tuples, which are values
    is_several = type(seeds) in (list, tuple, range) or np.ndim(seeds) == 1
    each_seed = list(seeds) if is_several else [seeds]
    each_training: list[Any] = (
        list(trainings) if isinstance(trainings, list | tuple) else [trainings]
    )
    num_runs = max(len(each_seed), len(each_training))
    for name, values in (("seeds", each_seed), ("trainings", each_training)):
        rule = f"must be one, or {num_runs} as others are"
        require(len(values) in (1, num_runs), name, rule, len(values))
    # a single one serves every run
    each_seed = each_seed * (num_runs // len(each_seed))
    each_training = each_training * (num_runs // len(each_training))
    check_trainings(each_training, "trainings", checkpoints)
    check_function(callback, "callback")
    runs = _runs(each_seed, each_training, callback)
    if side_by_side is not None:
        check_count(side_by_side, "side_by_side")
    advance = _all_runs(
        runs, memory_bytes, checked_mesh(mesh), checkpoints, side_by_side
    )
    drive(runs, advance, checkpoints, progress)
    return [run.result() for run in runs]


def _tell_of(callback: Callback, number: int, metrics: Metrics) -> None:
    callback({"step": metrics["step"], "run": number} | metrics)


def _runs(
    seeds: list[Any], trainings: list[Training], callback: Callback | None
) -> list[Run]:
    first = trainings[0]
    kind: Any = jax.tree.structure(kept_apart(first.trainer))
    # a test set that several share is prepared once
    tests: dict[tuple[int, ...], Any] = {}
    runs = []
    for number, (seed, training) in enumerate(zip(seeds, trainings, strict=True)):
        models = training.model, first.model
        rule = "must all train one model"
        require(models[0] == models[1], "trainings", rule, *models)
        own: Any = jax.tree.structure(kept_apart(training.trainer))
        is_same_kind = bool(own == kind)
        rule = (
            "must have trainers that differ in their numbers only (learning rate, "
            "momentum)"
        )
        require(is_same_kind, "trainings", rule, training.trainer, first.trainer)
        held = tuple(map(id, training.test or ())) + training.sample_shape
        if held not in tests:
            tests[held] = prepared_test(
                training.test, training.sample_shape, first.trainer
            )
        # The run's number goes into each record, so that one callback can serve all.
        tell = callback and functools.partial(_tell_of, callback, number)
        runs.append(Run(seed, training, tests[held], tell))
    return runs


def merged(parts: Sequence[ClientData]) -> tuple[ClientData, list[int]]:
    """Return the clients of all runs over one pool, and each run's first row.

    A pool that several runs share is held once, also where they have copies of it.
    """
    pools: list[ClientData] = []
    firsts: dict[int, int] = {}
    rows: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    offsets: list[int] = []
    widest = max(part.indices.shape[1] for part in parts)
    for part in parts:
        if id(part) in firsts:
            continue
        # The pool that this part shares, or a new one at the end of the list.
        place = next(
            (i for i, pool in enumerate(pools) if _is_same_pool(pool, part)), len(pools)
        )
        if place == len(pools):
            pools.append(part)
            offsets.append(sum(len(pool.labels) for pool in pools[:-1]))
        firsts[id(part)] = sum(len(part_sizes) for part_sizes in sizes)
        # Indices into a part's pool become indices into all pools joined.
        places = np.asarray(part.indices) + np.int32(offsets[place])
        rows.append(np.pad(places, ((0, 0), (0, widest - places.shape[1]))))
        sizes.append(np.asarray(part.sizes))
    shapes = {tuple(pool.inputs.shape[1:]) for pool in pools}
    rule = "must all have samples of one shape"
    require(len(shapes) == 1, "client_data", rule, sorted(shapes))
    inputs, labels = pools[0].inputs, pools[0].labels
    if len(pools) > 1:
        inputs = jnp.concatenate([pool.inputs for pool in pools])
        labels = jnp.concatenate([pool.labels for pool in pools])
    pool = ClientData(
        inputs=inputs,
        labels=labels,
        indices=on_device(np.concatenate(rows)),
        sizes=on_device(np.concatenate(sizes)),
        num_classes=max(pool.num_classes for pool in pools),
    )
    return pool, [firsts[id(part)] for part in parts]


def _is_same_pool(first: ClientData, other: ClientData) -> bool:
    if first.inputs is other.inputs and first.labels is other.labels:
        return True
    return np.array_equal(first.labels, other.labels) and np.array_equal(
        first.inputs, other.inputs
    )


def _all_runs(
    runs: list[Run],
    memory_bytes: int | None,
    mesh: Mesh | None,
    checkpoints: Checkpoints | None,
    side_by_side: int | None,
) -> Advance:
    """Return the function that trains any of these runs."""
    first = runs[0]
    slots = max(run.width for run in runs)
    together = side_by_side or at_once("trainings", 4 * first.training.dim * slots)
    # states of all clients of several runs would be too much side by side
    has_state = first.carried.states is not None
    takes_turns = has_state or mesh is not None or rounds_go_alone()
    shared: list[tuple[Advance, set[int]]] = []
    if min(together, len(runs)) > 1 and not takes_turns:
        shared = _shared_programs(runs, memory_bytes, checkpoints, together)
    numbers = {number for _, group in shared for number in group}
    alone = {
        id(run): one_run(run, memory_bytes, mesh, checkpoints)
        for run in runs
        if id(run) not in numbers
    }

    def advance(live: list[Run], most: int) -> None:
        for train_together, group in shared:
            train_together([run for run in live if id(run) in group], most)
        for run in live:
            if id(run) in alone:
                alone[id(run)]([run], most)

    return advance


def _shared_programs(
    runs: list[Run],
    memory_bytes: int | None,
    checkpoints: Checkpoints | None,
    together: int,
) -> list[tuple[Advance, set[int]]]:
    """Return the programs that train several runs, and the `id` of each one's runs."""
    pool, firsts = merged([run.training.client_data for run in runs])
    pool = in_buckets(pool, runs[0].training.trainer)
    first_of = {id(run): first for run, first in zip(runs, firsts, strict=True)}
    width = None
    if memory_bytes is not None:
        fitting, width = runs_and_width_within(memory_bytes, runs, pool)
        together = min(together, fitting)
    programs = Programs(pool, width, first_of)
    shared: list[tuple[Advance, set[int]]] = []
    for group in alike(runs):
        length = programs.length(group[:together], checkpoints)
        count = min(together, len(group))
        if length > 1:
            train_together = functools.partial(_train_together, programs, length, count)
            shared.append((train_together, {id(run) for run in group}))
    return shared


def _train_together(
    programs: Programs, length: int, count: int, runs: list[Run], most: int
) -> None:
    for start in range(0, len(runs), count):
        programs.run(runs[start : start + count], min(most, length), length, count)
