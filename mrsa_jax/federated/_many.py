"""Many trainings side by side: seeds, learning rates and schemes of one table.

In each step every run trains its own next round, whichever that is. The slots of all
their cohorts are one flat list, trained by one executable with the model, rate and key
of each slot's run; so rounds that a run skips cost nothing. Where rounds can be one
program (`_program`), it holds all runs of one structure; otherwise aggregation and
server step go run by run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.traced import needs_values
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints
from mrsa_jax.federated._json_lines import Callback, Metrics
from mrsa_jax.federated._program import Programs, alike, runs_and_width_within
from mrsa_jax.federated._run import Run, TrainingResult, prepared_test
from mrsa_jax.federated._train import (
    Advance,
    check_function,
    check_trainings,
    drive,
    one_run,
)
from mrsa_jax.federated._training import Training
from mrsa_jax.federated.programs import (
    Slots,
    Trained,
    flat_updates,
    gathered,
    held_where_gathered,
    in_buckets,
    measured_width,
    replicated,
)
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
    cohorts of as many runs as fill the device train in one executable, compiled once;
    runs need not skip the same rounds. A run that diverges stops, the others continue.
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
            None. On a CPU that is one, whose cohort fills it: the runs then take turns,
            each as by `train`, as they do where clients keep state.
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
        >>> trainers = [mj.federated.local_sgd(model, rate, batch_size=100) for rate in (0.1, 0.01)]
        >>> results = mj.federated.train_many(0, [
        ...     mj.federated.Training(model, clients, np.ones((1, 4), bool), trainer, average)
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
    kind: Any = jax.tree.structure(first.trainer)
    # a test set that several share is prepared once
    tests: dict[tuple[int, ...], Any] = {}
    runs = []
    for number, (seed, training) in enumerate(zip(seeds, trainings, strict=True)):
        models = training.model, first.model
        rule = "must all train one model"
        require(models[0] == models[1], "trainings", rule, *models)
        is_same_kind = bool(jax.tree.structure(training.trainer) == kind)
        rule = "must have trainers that differ in their numbers only (learning rate, momentum)"
        require(is_same_kind, "trainings", rule, training.trainer, first.trainer)
        held = tuple(map(id, training.test or ())) + training.sample_shape
        if held not in tests:
            tests[held] = prepared_test(
                training.test, training.sample_shape, first.trainer
            )
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
        place = next(
            (i for i, pool in enumerate(pools) if _is_same_pool(pool, part)), len(pools)
        )
        if place == len(pools):
            pools.append(part)
            offsets.append(sum(len(pool.labels) for pool in pools[:-1]))
        firsts[id(part)] = sum(len(part_sizes) for part_sizes in sizes)
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


def _flat_slots(
    group: list[Run], first_rows: list[int], width: int, count: int
) -> Slots:
    """Lay out the next round of each run of a group in `count` slots."""
    run_of, row, member = (np.zeros(count, np.int32) for _ in range(3))
    slots = Slots(run_of, row, member, np.zeros(count, np.bool_))
    for number, (run, first) in enumerate(zip(group, first_rows, strict=True)):
        who = run.next_round
        place = slice(number * width, number * width + run.width)
        slots.run[place] = number
        slots.member[place] = who.members
        slots.row[place] = who.members + np.int32(first)
        slots.present[place] = who.sends
    return slots


@functools.partial(jax.jit, static_argnames="width")
def _of_run(
    out: tuple[Any, ...], first: Array, number: Array, *, width: int
) -> Trained:
    """Return the part of the slots that belongs to a run."""
    updates, is_finite, rounding_keys, place = out
    slots = first + jnp.arange(width, dtype=jnp.int32)
    slots = slots if place is None else place[slots]
    return Trained(updates[slots], is_finite[slots], rounding_keys[number])


def _all_runs(
    runs: list[Run],
    memory_bytes: int | None,
    mesh: Mesh | None,
    checkpoints: Checkpoints | None,
    side_by_side: int | None,
) -> Advance:
    """Return the function that trains any of these runs together."""
    slots = max(run.width for run in runs)
    dim = runs[0].training.dim
    most = side_by_side or at_once("trainings", 4 * dim * slots)
    together = min(most, len(runs))
    width = measured_width(dim)
    # of all clients of a run: too much side by side
    has_state = runs[0].carried.states is not None
    if len(runs) == 1 or has_state or (together == 1 and memory_bytes is None):
        return _one_after_another(runs, memory_bytes, mesh, checkpoints)
    pool, firsts = merged([run.training.client_data for run in runs])
    pool = in_buckets(pool, runs[0].training.trainer)
    first_of = {id(run): first for run, first in zip(runs, firsts, strict=True)}
    if memory_bytes is not None:
        fitting, width = runs_and_width_within(memory_bytes, runs, pool, mesh)
        together = min(together, fitting)
    num_slots = together * slots
    num_slots += 0 if mesh is None else -num_slots % mesh.size
    own_pool = pool if mesh is None else replicated(pool, mesh)
    for run in runs:
        run.carried = held_where_gathered(run.carried, mesh)
    programs = Programs(own_pool, None if memory_bytes is None else width, first_of)
    stretches = []
    for group in alike(runs) if mesh is None else []:
        length = programs.length(group[:together], checkpoints)
        if length > 1:
            stretches.append(
                ({id(run) for run in group}, length, min(together, len(group)))
            )

    def advance(live: list[Run], most: int) -> None:
        for runs_together, length, count in stretches:
            group = [run for run in live if id(run) in runs_together]
            live = [run for run in live if id(run) not in runs_together]
            for start in range(0, len(group), count):
                programs.run(
                    group[start : start + count], min(most, length), length, count
                )
        for start in range(0, len(live), together):
            group = live[start : start + together]
            rows = [first_of[id(run)] for run in group]
            shared = (*_stacked(group, together), own_pool)
            out = _trained_flat(
                shared, _flat_slots(group, rows, slots, num_slots), width, mesh
            )
            for number, run in enumerate(group):
                first = np.int32(number * slots)
                run.aggregate(_of_run(out, first, np.int32(number), width=run.width))
            for run in group:
                run.settle()

    return advance


def _one_after_another(
    runs: list[Run],
    memory_bytes: int | None,
    mesh: Mesh | None,
    checkpoints: Checkpoints | None,
) -> Advance:
    """Return the function that trains any of these runs as `train` does."""
    each = {id(run): one_run(run, memory_bytes, mesh, checkpoints) for run in runs}

    def advance(live: list[Run], most: int) -> None:
        for run in live:
            each[id(run)]([run], most)

    return advance


def _stacked(group: list[Run], count: int) -> tuple[Any, ...]:
    """Stack trainers, models, keys and round numbers up to a fixed count.

    The last one is repeated.
    """
    filled = group + group[-1:] * (count - len(group))
    trainers = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[r.next_trainer for r in filled]
    )
    rounds = on_device([run.round_index for run in filled], jnp.int32)
    parameters = jnp.stack([run.parameters for run in filled])
    return trainers, parameters, jnp.stack([run.key for run in filled]), rounds


def _trained_flat(
    shared: tuple[Any, ...], slots: Slots, width: int, mesh: Mesh | None
) -> Any:
    parts, pool = shared[:-1], shared[-1]
    trainers, parameters, keys, rounds = (
        parts if mesh is None else replicated(parts, mesh)
    )
    out = flat_updates(
        trainers, parameters, pool, keys, rounds, slots, width=width, mesh=mesh
    )
    return out if mesh is None else gathered(out, mesh)
