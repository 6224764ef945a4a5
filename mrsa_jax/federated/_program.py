"""Memory that a training needs, and programs that train several rounds at once.

Where compiled loops make the pads (on a CPU) every round goes by itself, as it does for
an aggregator that cannot be traced: real messages, work on the host, a class of one's
own that is no pytree. All others run the rounds up to the next evaluation, checkpoint
or word of progress as one program, compiled once: what a shorter stretch does not need
of it is passed over. Trainings side by side share a program where they are of one
structure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from mrsa_jax._core.batches import at_once, within_memory
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints
from mrsa_jax.federated._evaluate import evaluation
from mrsa_jax.federated._models import check_model
from mrsa_jax.federated._run import Run, prepared_test
from mrsa_jax.federated._steps import loss_of
from mrsa_jax.federated.programs import (
    Fixed,
    LocalTrainer,
    StatefulTrainer,
    first_states,
    held_where_gathered,
    in_buckets,
    lowered_cohort_updates,
    measured_width,
    runs_program,
    trainer_at,
)
from mrsa_watch._base.errors import check_count, require

# XLA says what local training and evaluation need once they are compiled; that is the
# compilation which the training then uses. Aggregation is several executables and is
# counted by its arrays.
# Arrays as large as one cohort's updates (the updates, draws, codes, padded codes and
# copies of them) that a round of `ring_average` holds at its peak, measured as the
# growth of the process; and arrays as large as one model (total, mean, step, old and
# new parameters, optimizer state).
COHORTS_IN_AGGREGATION = 7
_MODELS_IN_AGGREGATION = 8


class MemoryEstimate(NamedTuple):
    """Memory of a training, beyond the memory that the process held before.

    Attributes:
        width: Clients side by side; None for what is right for the processor.
        data_bytes: All clients' samples, the test set, the model: there all the time.
        training_bytes: Work space and updates of one cohort's local training.
        aggregation_bytes: Updates, codes and sums of one round.
        evaluation_bytes: Work space of a test.
        host_bytes: Reports, and the sums that are kept.
    """

    width: int | None
    data_bytes: int
    training_bytes: int
    aggregation_bytes: int
    evaluation_bytes: int
    host_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most that is needed at once."""
        stages = (self.training_bytes, self.aggregation_bytes, self.evaluation_bytes)
        return self.data_bytes + self.host_bytes + max(stages)


def memory_estimate(
    model: nn.Module,
    client_data: ClientData,
    *,
    trainer: LocalTrainer | StatefulTrainer,
    cohort_size: int,
    width: int | None = None,
    num_rounds: int = 0,
    test: Any = None,
    keep_aggregates: bool = False,
    mesh: Mesh | None = None,
    code_dim: int | None = None,
) -> MemoryEstimate:
    """State how much memory `train` will need, before it runs.

    Compiles local training (and evaluation); where rounds go by themselves, `train`
    with the same arguments compiles nothing anew.

    Args:
        model: Flax module.
        client_data: All clients' samples.
        trainer: Local training.
        cohort_size: Slots of a round.
        width: Clients side by side; what is right for the processor if None.
        num_rounds: J, for the reports and the sums that are kept.
        test: Test inputs and labels, or None.
        keep_aggregates: As given to `train`.
        mesh: As given to `train`: what is stated is then the need of each device, its
            share of the slots and its own copy of the data.
        code_dim: Coordinates that a client sends, `aggregator.quantizer.padded_dim`
            where a lattice turns updates; as many as an update has if None.

    Returns:
        The parts and their `peak_bytes`. Beyond it the process holds JAX, the
        compiler's own memory, and whatever the caller holds.

    Raises:
        ConfigurationError: If a number is not positive, or model and data do not fit.

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=4)
        >>> model = mj.federated.logistic(10)
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=100)
        >>> needed = mj.federated.memory_estimate(
        ...     model, clients, trainer=trainer, cohort_size=2
        ... )
        >>> needed.peak_bytes > needed.data_bytes > 64 * 4 * int(clients.sizes.sum())
        True
    """
    dim = check_model(model, client_data, loss_of(trainer))
    check_count(cohort_size, "cohort_size")
    if width is not None:
        check_count(width, "width")
    check_count(num_rounds, "num_rounds", "must be an integer from 0", 0)
    if code_dim is not None:
        rule = f"must be an integer from {dim}, the update's length"
        check_count(code_dim, "code_dim", rule, dim)
    setting = _Setting(
        model,
        client_data,
        trainer,
        int(cohort_size),
        prepared_test(test, tuple(client_data.inputs.shape[1:]), trainer),
        dim,
        _host_bytes(int(num_rounds), client_data.num_clients, dim, keep_aggregates),
        checked_mesh(mesh),
        dim if code_dim is None else int(code_dim),
    )
    return setting.estimate(width)


@dataclasses.dataclass
class _Setting:
    """Settings that decide the memory of a training."""

    model: nn.Module
    client_data: ClientData
    trainer: Any
    cohort_size: int
    test: Any
    dim: int
    host_bytes: int
    mesh: Mesh | None
    code_dim: int

    @property
    def slots_each(self) -> int:
        """Slots that one device trains."""
        return -(-self.cohort_size // (1 if self.mesh is None else self.mesh.size))

    def estimate(self, width: int | None) -> MemoryEstimate:
        parameters = held_where_gathered(jnp.zeros(self.dim, jnp.float32), self.mesh)
        states = first_states(self.trainer, self.dim, self.client_data.num_clients)
        data = in_buckets(self.client_data, self.trainer)
        cohort = lowered_cohort_updates(
            trainer_at(self.trainer, None, states),
            parameters,
            data,
            self.cohort_size,
            mesh=self.mesh,
            width=width,
        )
        testing = 0
        if self.test is not None:
            evaluated = self.model, parameters, *self.test
            testing = _needed(evaluation.lower(*evaluated, loss=loss_of(self.trainer)))
        # of the arrays of a cohort one has the updates, all others what becomes of them
        row = (COHORTS_IN_AGGREGATION - 1) * self.code_dim + self.dim
        models = _MODELS_IN_AGGREGATION * self.code_dim
        return MemoryEstimate(
            width=width,
            data_bytes=_size((data, self.test, parameters, states)),
            training_bytes=_needed(cohort),
            aggregation_bytes=4 * (self.slots_each * row + models),
            evaluation_bytes=testing,
            host_bytes=self.host_bytes,
        )


def width_within(memory_bytes: Any, run: Run, mesh: Mesh | None = None) -> int:
    """Return the number of a run's clients that fit side by side, or raise."""
    most = check_count(memory_bytes, "memory_bytes")
    setting = _setting_of([run], run.training.client_data, mesh)
    return largest_width(most, setting.slots_each, setting.estimate)


def _setting_of(runs: list[Run], pool: ClientData, mesh: Mesh | None) -> _Setting:
    """Return the setting of runs that train from one pool of clients."""
    first = runs[0].training
    dim = first.dim
    # several runs have copies of what one run carries
    copies = 4 * dim * len(runs) if len(runs) > 1 else 0
    return _Setting(
        first.model,
        pool,
        first.trainer,
        max(run.width for run in runs),
        runs[0].test,
        dim,
        sum(_of_host(run) for run in runs) + copies,
        mesh,
        max(_code_dim(run) for run in runs),
    )


def largest_width(
    memory_bytes: int, most: int, estimate: Callable[[int], MemoryEstimate]
) -> int:
    """Find the largest width within a bound by few estimates, as each one compiles."""
    single = estimate(1)
    peak = single.peak_bytes
    rule = "must hold the training of one client at a time; needed and given are"
    require(peak <= memory_bytes, "memory_bytes", rule, peak, memory_bytes)
    room = memory_bytes - single.data_bytes - single.host_bytes
    # work space grows at most in proportion to the width
    width = min(most, max(1, room // max(single.training_bytes, 1)))
    while width > 1 and estimate(width).peak_bytes > memory_bytes:
        width //= 2
    return width


def runs_and_width_within(
    memory_bytes: Any, runs: list[Run], pool: ClientData
) -> tuple[int, int]:
    """Choose the number of runs to train side by side, and of their clients.

    Or raise.
    Counted from what one client at a time needs: each run adds its model and its
    cohort's updates, each client its work space.
    """
    most = check_count(memory_bytes, "memory_bytes")
    setting = _setting_of(runs, pool, None)
    single = setting.estimate(1)
    largest_width(most, 1, lambda _: single)
    model = 4 * setting.dim
    updates = model * setting.slots_each
    work = max(single.training_bytes - updates, 1)
    room = most - single.data_bytes - single.host_bytes
    # Runs first, each with one client at work; then the rest of the room goes to
    # clients side by side.
    free = room - max(work, single.aggregation_bytes, single.evaluation_bytes)
    at_once = min(len(runs), max(1, free // (updates + model)))
    free = room - at_once * (updates + model)
    width = min(at_once * setting.slots_each, max(1, free // work))
    return at_once, min(width, measured_width(setting.dim))


def _code_dim(run: Run) -> int:
    """Return the number of coordinates that a client sends.

    A turned lattice's are padded.
    """
    quantizer = getattr(run.training.aggregator, "quantizer", None)
    return int(getattr(quantizer, "padded_dim", run.training.sent_dim))


def _needed(lowered: Any) -> int:
    """Return the bytes of work space and results of a program."""
    stats = lowered.compile().memory_analysis()
    if stats is None:  # a processor's compiler may not say
        return 0
    return int(stats.temp_size_in_bytes + stats.output_size_in_bytes)


def _of_host(run: Run) -> int:
    num_rounds, num_clients = run.training.history.cohorts.shape
    sketch_bytes = 0 if run.sketch is None else run.sketch.values.nbytes
    keep = run.training.keep_aggregates
    dim = run.training.dim
    return sketch_bytes + _host_bytes(num_rounds, num_clients, dim, keep)


def _host_bytes(
    num_rounds: int, num_clients: int, dim: int, keep_aggregates: bool
) -> int:
    reports = num_rounds * (6 * num_clients + 16)
    return reports + (4 * num_rounds * dim if keep_aggregates else 0)


def _size(tree: Any) -> int:
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(tree))


_MOST_ROUNDS = 64  # a round that is passed over costs little, but not nothing


def rounds_go_alone() -> bool:
    """Return whether compiled loops make the pads, which a program could not hold."""
    return chosen_form(("loops", "xla")) == "loops"


def alike(runs: list[Run]) -> list[list[Run]]:
    """Group the runs that train something into those that one program can train."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        if run.is_over:
            continue
        leaves, structure = jax.tree.flatten(
            (_fixed(run), run.carried, run.rounds(1, 1))
        )
        kinds = [
            (np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves
        ]
        # What decides the program: tree, shapes and types, and the server's static
        # function.
        key: Any = (structure, tuple(kinds), run.server.update)
        try:
            groups.setdefault(key, []).append(run)
        except TypeError:  # cannot be hashed, so not be traced either
            groups[id(run)] = [run]
    return list(groups.values())


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
    """Programs that train the rounds.

    Attributes:
        data: All clients' samples.
        width: Clients side by side; as many as are right for the processor if None.
        first_rows: By `id` of each run, where in the data its clients begin; 0 if not
            set.
    """

    data: ClientData
    width: int | None
    first_rows: Mapping[int, int] = dataclasses.field(default_factory=dict)

    def length(self, runs: list[Run], checkpoints: Checkpoints | None) -> int:
        """Return the number of rounds in a program of these runs.

        1 where each goes by itself.
        """
        if runs[0].is_over or rounds_go_alone():
            return 1
        report_bytes = 0
        for run in runs:
            sums = 4 * run.parameters.shape[0] if run.training.keep_aggregates else 0
            sketch_bytes = 0 if run.sketch is None else 4 * len(run.sketch.coordinates)
            report_bytes += (16 + sketch_bytes) * run.width + sums
        gaps = [
            np.diff(run.stops, prepend=0, append=len(run.to_train)).max()
            for run in runs
        ]
        # No longer than the longest way between two evaluations, nor than reports fit.
        most = min(_MOST_ROUNDS, int(max(gaps)), at_once("rounds", report_bytes))
        if checkpoints is not None:
            most = min(most, checkpoints.every)
        return most if most > 1 and self._are_traceable(runs, most) else 1

    def _are_traceable(self, runs: list[Run], length: int) -> bool:
        """Return whether the rounds can be traced as one program.

        Whatever is wrong otherwise shows, with a sentence, where rounds go by
        themselves.
        """
        try:
            arguments, static = self._call(runs, [1] * len(runs), length)
            runs_program.eval_shape(*arguments, **static)
        except Exception:
            return False
        return True

    def run(self, runs: list[Run], most: int, length: int, num_runs: int = 1) -> None:
        """Train and log the next rounds of each run by a program of `length`.

        A program of several runs is compiled for `num_runs`; the last fills it up.
        """
        # A program has a fixed number of runs: copies of the last run fill it, with no
        # round to run.
        filled = runs + runs[-1:] * (num_runs - len(runs))
        counts = [min(most, run.until_evaluation) for run in runs] + [0] * (
            num_runs - len(runs)
        )
        arguments, static = self._call(filled, counts, length)

        def at_width(width: int) -> Any:
            out = runs_program(*arguments, **(static | {"width": width}))
            return out[0], jax.device_get(out[1])  # the one wait for the device

        side_by_side = self.width or measured_width(runs[0].parameters.shape[0])
        slots = num_runs * runs[0].width
        what = f"training {slots} clients per round"
        after, reports = within_memory(
            at_width, min(side_by_side, slots), "memory_bytes", what
        )
        for number, (run, carried) in enumerate(zip(runs, after, strict=False)):
            run.carried = carried
            # Rounds that only filled the program, or came after a divergence, have no
            # report.
            for at in np.flatnonzero(reports.is_run[:, number]):
                run.log_round(
                    jax.tree.map(lambda leaf, at=(at, number): leaf[at], reports)
                )

    def _call(
        self, runs: list[Run], counts: list[int], length: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and the settings of these runs' program."""
        rounds = tuple(
            run.rounds(count, length) for run, count in zip(runs, counts, strict=True)
        )
        for run, count, places in zip(runs, counts, rounds, strict=True):
            check = getattr(run.training.aggregator, "checked_weights", None)
            if places.weights is not None and check is not None:
                for weights, alive in zip(
                    places.weights[:count], places.alive[:count], strict=True
                ):
                    # The first row is V0, with steps or without.
                    check(weights, alive.reshape(-1, alive.shape[-1])[0])
        first = runs[0]
        fixed, carried = tuple(map(_fixed, runs)), tuple(run.carried for run in runs)
        rows = [self.first_rows.get(id(run), 0) for run in runs]
        # a bound on memory counts the aggregation of one run
        cohort_bytes = (
            COHORTS_IN_AGGREGATION * 4 * first.width * first.parameters.shape[0]
        )
        tile = at_once("segments", cohort_bytes) if self.width is None else 1
        arguments = fixed, carried, rounds, np.asarray(rows, np.int32), self.data
        static = {
            "server": first.server,
            "keep": first.training.keep_aggregates,
            "width": self.width,
            "tile": min(tile, len(runs)),
        }
        return arguments, static


def _fixed(run: Run) -> Fixed:
    training = run.training
    trainer, aggregator = map(kept_apart, (training.trainer, training.aggregator))
    return Fixed(run.key, trainer, aggregator, run.coordinates)
