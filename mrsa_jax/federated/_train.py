"""Federated training over a participation history that is known beforehand.

Selection does not look at the updates, so the history is rolled out first and only
rounds that were not skipped are trained: local training, secure aggregation, server
step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.traced import needs_values
from mrsa_jax.federated._checkpoint import Checkpoints, Store, fingerprint
from mrsa_jax.federated._json_lines import Callback
from mrsa_jax.federated._program import Programs, width_within
from mrsa_jax.federated._run import Run, TrainingResult, prepared_test
from mrsa_jax.federated._training import Training
from mrsa_jax.federated.programs import (
    Trained,
    held_where_gathered,
    in_buckets,
    replicated,
    trained_cohort,
)
from mrsa_watch._base.errors import require

Advance = Callable[[list[Run], int], None]

_QUICK_SECONDS = 1.0


@needs_values
def train(
    seed: int | Key[Array, ""],
    training: Training,
    *,
    memory_bytes: int | None = None,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, int], None] | None = None,
    callback: Callback | None = None,
) -> TrainingResult:
    """Train one global model over the rounds of a participation history.

    In each round, the cohort trains from the global model, the aggregator computes the
    mean update from the quantized sum, and the server steps along it. Skipped rounds
    (zero rows) leave the model alone and cost nothing; a round whose aggregation fails
    leaves it alone too.

    On accelerators the rounds up to the next evaluation or checkpoint are one program,
    if the aggregator is a pytree that JAX can trace and there is no `mesh`; on a CPU,
    whose compiled loops make the pads, and for any other aggregator each round goes by
    itself. The results are the same.

    Args:
        seed: Integer or key; initial model, shuffling and rounding come from it.
        training: Model, data, participation, trainer and aggregator (`Training`).
        memory_bytes: Bound on the memory of the training, beyond what the process holds
            already; it decides how many clients train side by side (`memory_estimate`).
            None: as suits the processor.
        mesh: Mesh of one axis, over whose devices each cohort's clients are spread;
            data and model are on all of them, and `memory_bytes` is then each device's.
            On a CPU, one device per core (`jax.config.update("jax_num_cpu_devices", 2)`
            before JAX starts) can be faster than one device with as many threads
            (benchmarks/README.md).
        checkpoints: Where to save the state and to continue from
            (`federated.checkpoints`).
        progress: Called after each trained round with (rounds done, rounds to train);
            where rounds run as one program (accelerators), for all of them once it is
            back, which takes a few seconds at most unless one round does.
        callback: Called for each round, in order, with its measures, before `progress`:
            a dictionary with `step` (the round, from 0), `status`, `cohort_size`
            (clients that the server asked), `summed_clients`, `wrapped`,
            `failed_uploads` (updates so far that were not finite and so in no sum);
            `clipped_fraction` if something was sent; `accuracy` and `loss` if the model
            was tested; `diverged` if it diverged. The compiled programs are the same
            with and without. `json_lines` makes such a function. Rounds after the
            newest checkpoint come again in a training that continues from it.

    Returns:
        The result. `status` holds the reason why a round failed; a diverged training
        ends and is reported in `diverged_round`. Neither raises.

    Raises:
        ConfigurationError: If not even one client at a time fits the memory, or the
            checkpoints are of another configuration.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> history = np.array([[True, False, True, False], [False] * 4])
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=100)
        >>> average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 2, 650)
        >>> result = mj.federated.train(
        ...     0, mj.federated.Training(model, clients, history, trainer, average)
        ... )
        >>> [mj.Status(code).name for code in result.status]
        ['OK', 'SKIPPED']

    Source: Multi-RoundSecAgg, eq. (2) with weights 1/K (its first version omits the
    normalisation) and Algorithm 1; skipped rounds as in Section 4.
    """
    check_trainings([training], "training", checkpoints)
    check_function(callback, "callback")
    test = prepared_test(training.test, training.sample_shape, training.trainer)
    run = Run(seed, training, test, callback)
    advance = one_run(run, memory_bytes, checked_mesh(mesh), checkpoints)
    drive([run], advance, checkpoints, progress)
    return run.result()


def drive(
    runs: list[Run],
    advance: Advance,
    checkpoints: Checkpoints | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Train all rounds of all runs.

    In each step the next round of every run that has one.

    Args:
        runs: The trainings.
        advance: Trains and logs the next rounds of some runs: one each, or several, but
            no more than the limit, and of a run none beyond its next evaluation.
        checkpoints: Where the state is saved, or None.
        progress: Called after each step with (rounds trained, rounds to train) of all
            runs: after step k when every run has trained k rounds, or all of its
            rounds.
    """
    check_function(progress, "progress")
    total = sum(len(run.to_train) for run in runs)
    store = _store(checkpoints, runs)
    if store is not None and (saved := store.latest([run.state() for run in runs])):
        for run, state in zip(runs, saved[1], strict=True):
            run.restore(state)
    step = _steps_through(runs)
    if step == 0:
        _test(runs)

    def tell(steps: range) -> None:
        for number in steps:
            if progress is not None:
                progress(sum(min(number, run.done) for run in runs), total)

    pace = Pace()
    while live := [run for run in runs if not run.is_over]:
        with pace:
            advance(
                live,
                pace.most if store is None else min(pace.most, store.until_due(step)),
            )
        before, step = step, _steps_through(runs)
        _test(live)
        # Steps before the last are reported at once; the last one only after a save
        # that is due, so that no report of a saved step precedes its checkpoint.
        tell(range(before + 1, step))
        if step > before:
            if store is not None and store.is_due(
                step, all(run.is_over for run in runs)
            ):
                store.save(step, [run.state() for run in runs])
            tell(range(step, step + 1))


def _test(runs: list[Run]) -> None:
    """Test the models that are due, and report the finished rounds."""
    for run in runs:
        run.evaluate()
        run.tell()


def _steps_through(runs: list[Run]) -> int:
    """Return the number of steps that all runs have finished.

    Programs take some runs further ahead.
    """
    going = [run.done for run in runs if not run.is_over]
    return min(going) if going else max(run.done for run in runs)


class Pace:
    """Number of rounds per program, chosen so that it reports every few seconds.

    The first time tells nothing, as the program is compiled then.
    """

    def __init__(self) -> None:
        """Start with one."""
        self.most = 1

    def __enter__(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        """Take more rounds next time if this was quick, fewer if it was slow."""
        seconds = time.perf_counter() - self._start
        if seconds < _QUICK_SECONDS:
            self.most *= 2
        elif seconds > 4 * _QUICK_SECONDS:
            self.most = max(1, self.most // 2)


def check_trainings(
    trainings: Sequence[Any], argument: str, checkpoints: Checkpoints | None
) -> None:
    """Raise for what are no trainings or checkpoints, or must have none.

    Each step would hold sums.

    Args:
        trainings: Some.
        argument: Their name.
        checkpoints: Of all of them, or None.
    """
    for candidate in trainings:
        is_training = isinstance(candidate, Training)
        require(
            is_training,
            argument,
            "must be a `federated.Training`",
            type(candidate).__name__,
        )
    is_own = checkpoints is None or isinstance(checkpoints, Checkpoints)
    rule = "must be as `federated.checkpoints` gives them"
    require(is_own, "checkpoints", rule, checkpoints)
    rule = (
        "must not be set with `checkpoints`: every saved step would have to hold all "
        "the sums"
    )
    keep = any(training.keep_aggregates for training in trainings)
    require(not keep or checkpoints is None, "keep_aggregates", rule)


def check_function(value: Any, argument: str) -> None:
    """Raise for what cannot be called."""
    require(
        value is None or callable(value), argument, "must be a function, or None", value
    )


def _store(checkpoints: Checkpoints | None, runs: list[Run]) -> Store | None:
    """Open the checkpoints of exactly these runs."""
    if checkpoints is None:
        return None
    each = [run.identity() for run in runs]
    return Store(
        checkpoints,
        {name: fingerprint([parts[name] for parts in each]) for name in each[0]},
    )


def one_run(
    run: Run,
    memory_bytes: int | None,
    mesh: Mesh | None,
    checkpoints: Checkpoints | None,
) -> Advance:
    """Return the function that trains one run."""
    data = in_buckets(run.training.client_data, run.training.trainer)
    data = data if mesh is None else replicated(data, mesh)
    run.carried = held_where_gathered(run.carried, mesh)
    width = None if memory_bytes is None else width_within(memory_bytes, run, mesh)
    programs = Programs(data, width)
    length = programs.length([run], checkpoints) if mesh is None else 1

    def advance(runs: list[Run], most: int) -> None:
        if length > 1:
            programs.run([run], min(most, length), length)
            return
        who = run.next_round
        trained = trained_cohort(
            run.next_trainer,
            run.parameters,
            data,
            run.key,
            jnp.int32(run.round_index),
            on_device(who.members),
            on_device(who.sends),
            mesh=mesh,
            width=width,
        )
        run.finish(Trained(*trained))

    return advance
