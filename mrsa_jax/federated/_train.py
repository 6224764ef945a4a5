"""Federated training over a participation history that is known beforehand.

Selection does not look at the updates, so the history is rolled out first and only rounds that
were not skipped are trained: local training, secure aggregation, server step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.errors import require
from mrsa_jax._core.tracing import checked_mesh, needs_values
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints, Store, fingerprint
from mrsa_jax.federated._history import check_clients
from mrsa_jax.federated._local import RateSchedule
from mrsa_jax.federated._memory import width_within
from mrsa_jax.federated._program import Programs
from mrsa_jax.federated._run import Run, TrainingResult, prepared_test
from mrsa_jax.federated._tracking import Callback
from mrsa_jax.federated.programs import (
    LocalTrainer,
    Trained,
    held_where_gathered,
    replicated,
    trained_cohort,
)
from mrsa_jax.secagg import Aggregator
from mrsa_jax.selection import RoundHistory

Advance = Callable[[list[Run], int], None]

_QUICK_SECONDS = 1.0


@needs_values
def train(
    seed: int | Key[Array, ""],
    model: nn.Module,
    client_data: ClientData,
    participation: Bool[Array, "rounds clients"] | np.ndarray | RoundHistory,
    *,
    trainer: LocalTrainer,
    aggregator: Aggregator,
    server: optax.GradientTransformation | None = None,
    test: tuple[Any, Any] | None = None,
    evaluate_every: int = 10,
    initial_parameters: Float32[Array, " dim"] | np.ndarray | None = None,
    survivors: Bool[Array, "rounds 5 clients"] | np.ndarray | None = None,
    weights: ArrayLike | Sequence[int] | None = None,
    slot_order: ArrayLike | Sequence[int] | None = None,
    rate_schedule: RateSchedule | None = None,
    keep_aggregates: bool = False,
    measure_drift: bool = False,
    memory_bytes: int | None = None,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, int], None] | None = None,
    callback: Callback | None = None,
) -> TrainingResult:
    """Train one global model over the rounds of a participation history.

    In each round the cohort trains from the global model, the aggregator makes the mean of its
    updates from their quantized sum, and the server steps along it. Skipped rounds (zero rows)
    leave the model alone and cost nothing; a round whose aggregation fails leaves it alone too.

    On accelerators the rounds up to the next evaluation or checkpoint are one program, if the
    aggregator is a pytree that JAX can trace and there is no `mesh`; on a CPU, whose compiled
    loops make the pads, and for any other aggregator each round goes by itself. The results are
    the same.

    Args:
        seed: Integer or key; initial model, shuffling and rounding come from it.
        model: Flax module from images to logits.
        client_data: All clients' samples.
        participation: bool [J, N], whom the server asked, in rounds in which nobody is lost; or
            a `selection.RoundHistory`, whose rounds run with its survivors over its graphs: with
            the rule of its rollout in the aggregator, its sums are those that are learnt.
        trainer: Local training, e.g. `local_sgd`.
        aggregator: Secure aggregation, e.g. `mrsa_jax.secagg.ring_average` with as many
            participants as the largest cohort.
        server: `optax` optimizer that takes minus the mean update for a gradient; plain averaging
            if None.
        test: Test inputs and labels; without them nothing is evaluated.
        evaluate_every: Evaluate after rounds `evaluate_every - 1`, ... and after the last.
        initial_parameters: f32 [d] to start from; drawn from the seed if None.
        survivors: bool [J, 5, N], V0 to V4 of each round, whose V0 is `participation`; needs an
            aggregator that takes them, e.g. a `ring_average`. Only clients of V3 train.
        weights: Integers [N], e.g. `client_data.sizes`, for an aggregator of weighted means.
        slot_order: The clients 0 to N - 1 in the order in which they fill the aggregator's slots,
            e.g. slowest first for a `hetero.segment_average`, whose groups are slots; by number
            if None.
        rate_schedule: Factor on the trainer's learning rate by the index of the round, skipped
            rounds counted: an optax schedule, or `decay_at((400, 800), 0.4)`.
        keep_aggregates: Keep each round's sum, f32 [J', d] in host memory; not together with
            `checkpoints`, whose every step would have to hold them all.
        measure_drift: Measure spread and memory of the clients' updates (`Drift`), for
            `privacy.information`. Up to 64 coordinates of each layer are kept of every client in
            every round, drawn once from the seed: in host memory and in checkpoints, at most 16
            MiB, or one coordinate of each layer. The training stays as it is, bit for bit.
        memory_bytes: Bound on the memory of the training, beyond what the process holds already;
            how many clients train side by side follows from it (`memory_estimate`). What is
            right for the processor if None.
        mesh: Of one axis, over whose devices each cohort's clients are spread; data and model
            are on all of them, and `memory_bytes` is then each device's. On a CPU a device a
            core (`jax.config.update("jax_num_cpu_devices", 2)` before JAX starts) can be
            faster than one device with as many threads (benchmarks/README.md).
        checkpoints: Where to save the state and to go on from (`federated.checkpoints`).
        progress: Called after each trained round with (rounds done, rounds to train); where
            rounds run as one program (accelerators), for all of them once it is back, which
            takes a few seconds at most unless one round does.
        callback: Called for each round, in order, with what is known of it, before `progress`: a
            dictionary with `step` (the round, from 0), `status`, `cohort_size` (whom the server
            asked), `summed_clients`, `wrapped`; `clipped_fraction` where something was sent;
            `accuracy` and `loss` where the model was tested; `diverged` where that happened. The
            compiled programs are the same with and without. `json_lines`, `tensorboard` and
            `wandb` make such functions. Rounds after the newest checkpoint come again in a
            training that goes on from it.

    Returns:
        The result; a round that failed says why in `status`, a diverged training is reported in
        `diverged_round` and ends there: neither raises.

    Raises:
        ConfigurationError: If shapes, model and data do not fit, the history is not boolean, not
            even one client at a time fits the memory, or the checkpoints are of another
            configuration.

    Examples:
        >>> import mrsa_jax as mj
        >>> data = mj.data.load("digits")
        >>> clients = mj.data.iid(0, data, num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> history = np.array([[True, False, True, False], [False] * 4])
        >>> result = train(
        ...     0, model, clients, history,
        ...     trainer=mj.federated.local_sgd(model, 0.1, batch_size=100),
        ...     aggregator=mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 2, 650))
        >>> [mj.Status(code).name for code in result.status]
        ['OK', 'SKIPPED']

    Source: Multi-RoundSecAgg, eq. (2) with weights 1/K (its first version omits the
    normalisation) and Algorithm 1; skipped rounds as in Section 4.
    """
    check_kept(keep_aggregates, measure_drift, checkpoints)
    check_function(callback, "callback")
    check_clients(client_data)
    run = Run(
        seed,
        model,
        client_data,
        participation,
        prepared_test(test, tuple(client_data.inputs.shape)),
        trainer=trainer,
        aggregator=aggregator,
        server=server,
        evaluate_every=evaluate_every,
        initial_parameters=initial_parameters,
        survivors=survivors,
        weights=weights,
        rate_schedule=rate_schedule,
        slot_order=slot_order,
        keep_aggregates=keep_aggregates,
        measure_drift=measure_drift,
        callback=callback,
    )
    advance = one_run(run, memory_bytes, checked_mesh(mesh), checkpoints)
    drive([run], advance, checkpoints, progress)
    return run.result()


def drive(
    runs: list[Run],
    advance: Advance,
    checkpoints: Checkpoints | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Train all rounds of all runs: in each step the next round of every run that has one.

    Args:
        runs: The trainings.
        advance: Trains and logs the next rounds of some runs: one each, or several, but no more
            than it is told, and of a run none beyond its next evaluation.
        checkpoints: Where the state is saved, or None.
        progress: Called after each step with (rounds trained, rounds to train) of all runs: after
            step k when every run has trained k rounds, or all of its own.
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
            advance(live, pace.most if store is None else min(pace.most, store.until_due(step)))
        before, step = step, _steps_through(runs)
        _test(live)
        tell(range(before + 1, step))
        if step > before:
            is_last = all(run.is_over for run in runs)
            if store is not None and store.is_due(step, is_last):
                store.save(step, [run.state() for run in runs])
            tell(range(step, step + 1))


def _test(runs: list[Run]) -> None:
    """Test the models that are due, and tell what is known of the rounds that are over."""
    for run in runs:
        run.evaluate()
        run.tell()


def _steps_through(runs: list[Run]) -> int:
    """Return how many steps all runs are through with; programs take some runs further ahead."""
    going = [run.done for run in runs if not run.is_over]
    return min(going) if going else max(run.done for run in runs)


class Pace:
    """How many rounds go into a program, so that it says something every few seconds.

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


def check_kept(keep_aggregates: bool, measure_drift: bool, checkpoints: Checkpoints | None) -> None:
    """Raise for what are no checkpoints, or must not be: each step would hold all the sums."""
    is_own = checkpoints is None or isinstance(checkpoints, Checkpoints)
    rule = "must be as `federated.checkpoints` gives them"
    require(is_own, "checkpoints", rule, checkpoints)
    for name, value in (("keep_aggregates", keep_aggregates), ("measure_drift", measure_drift)):
        require(isinstance(value, bool), name, "must be True or False", value)
    rule = "must be left out with `checkpoints`: every saved step would have to hold all the sums"
    require(not keep_aggregates or checkpoints is None, "keep_aggregates", rule)


def check_function(value: Any, argument: str) -> None:
    """Raise for what cannot be called."""
    require(value is None or callable(value), argument, "must be a function, or None", value)


def _store(checkpoints: Checkpoints | None, runs: list[Run]) -> Store | None:
    """Open the checkpoints of exactly these runs."""
    if checkpoints is None:
        return None
    each = [run.identity() for run in runs]
    return Store(checkpoints, {name: fingerprint([one[name] for one in each]) for name in each[0]})


def one_run(
    run: Run, memory_bytes: int | None, mesh: Mesh | None, checkpoints: Checkpoints | None
) -> Advance:
    """Return what trains one run."""
    data = run.client_data if mesh is None else replicated(run.client_data, mesh)
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
            run.next_trainer, run.parameters, data, run.key, jnp.int32(run.round_index),
            on_device(who.members), on_device(who.sends), mesh=mesh, width=width,
        )  # fmt: skip
        run.aggregate(Trained(*trained))
        run.settle()

    return advance
