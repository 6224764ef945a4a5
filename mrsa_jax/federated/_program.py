"""When rounds go as one program, how many of them, and what comes back.

Where compiled loops make the pads (on a CPU) every round goes by itself, as it does for an
aggregator that cannot be traced: real messages, work on the host, a class of one's own that is no
pytree. All others run the rounds up to the next evaluation, checkpoint or word of progress as one
program, compiled once: what a shorter stretch does not need of it is passed over. Trainings side
by side share a program where they are of one structure.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mrsa_jax._core.device import at_once, chosen_form, within_memory
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints
from mrsa_jax.federated._memory import COHORTS_IN_AGGREGATION
from mrsa_jax.federated._run import Run
from mrsa_jax.federated.programs import Fixed, measured_width, rounds_program, runs_program

_MOST_ROUNDS = 64  # a round that is passed over costs little, but not nothing


def alike(runs: list[Run]) -> list[list[Run]]:
    """Sort runs that have something to train into those which one program can train together."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        if run.is_over:
            continue
        leaves, structure = jax.tree.flatten((_fixed(run), run.carried, run.rounds(1, 1)))
        kinds = [(np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves]
        key: Any = (structure, tuple(kinds), run.server.update)
        try:
            groups.setdefault(key, []).append(run)
        except TypeError:  # cannot be hashed, so not be traced either
            groups[id(run)] = [run]
    return list(groups.values())


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
    """How rounds go as programs.

    Attributes:
        data: All clients' samples.
        width: Clients side by side; as many as are right for the processor if None.
        first_rows: By `id` of each run, where several share a program: where in the data its
            clients begin.
    """

    data: ClientData
    width: int | None
    first_rows: dict[int, int] | None = None

    def length(self, runs: list[Run], checkpoints: Checkpoints | None) -> int:
        """Return how many rounds a program of these runs has; 1 where each goes by itself."""
        # where compiled loops make the pads, a program could not hold them
        if runs[0].is_over or chosen_form(("loops", "xla")) == "loops":
            return 1
        report_bytes = 0
        for run in runs:
            sums = 4 * run.parameters.shape[0] if run.training.keep_aggregates else 0
            kept = 0 if run.sketch is None else 4 * len(run.sketch.coordinates)
            report_bytes += (16 + kept) * run.width + sums
        gaps = [np.diff(run.stops, prepend=0, append=len(run.to_train)).max() for run in runs]
        most = min(_MOST_ROUNDS, int(max(gaps)), at_once("rounds", report_bytes))
        if checkpoints is not None:
            most = min(most, checkpoints.every)
        return most if most > 1 and self._are_traceable(runs, most) else 1

    def _are_traceable(self, runs: list[Run], length: int) -> bool:
        """Return whether the rounds can be traced as one program.

        Whatever is wrong otherwise shows, with a sentence, where rounds go by themselves.
        """
        try:
            program, arguments, static = self._call(runs, [1] * len(runs), length)
            program.eval_shape(*arguments, **static)
        except Exception:
            return False
        return True

    def run(self, runs: list[Run], most: int, length: int, num_runs: int = 1) -> None:
        """Train and log the next rounds, at most so many of each run, by a program of `length`.

        A program of several runs is compiled for `num_runs`; the last fills it up.
        """
        filled = runs + runs[-1:] * (num_runs - len(runs))
        counts = [min(most, run.until_evaluation) for run in runs] + [0] * (num_runs - len(runs))
        program, arguments, static = self._call(filled, counts, length)

        def at_width(width: int) -> Any:
            out = program(*arguments, **(static | {"width": width}))
            return out[0], jax.device_get(out[1])  # the one wait for the device

        side_by_side = self.width or measured_width(runs[0].parameters.shape[0])
        slots = num_runs * runs[0].width
        what = f"training {slots} clients a round"
        after, reports = within_memory(at_width, min(side_by_side, slots), "memory_bytes", what)
        if self.first_rows is None:
            after, reports = (after,), jax.tree.map(lambda leaf: leaf[:, None], reports)
        for number, (run, carried) in enumerate(zip(runs, after, strict=False)):
            run.carried = carried
            for at in np.flatnonzero(reports.is_run[:, number]):
                run.log_round(jax.tree.map(lambda leaf, at=(at, number): leaf[at], reports))

    def _call(
        self, runs: list[Run], counts: list[int], length: int
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the program of these runs, its arguments and its settings."""
        rounds = tuple(run.rounds(count, length) for run, count in zip(runs, counts, strict=True))
        for run, count, own in zip(runs, counts, rounds, strict=True):
            check = getattr(run.training.aggregator, "checked_weights", None)
            if own.weights is not None and check is not None:
                for weights, alive in zip(own.weights[:count], own.alive[:count], strict=True):
                    check(weights, alive.reshape(-1, alive.shape[-1])[0])
        first = runs[0]
        static = {
            "server": first.server,
            "keep": first.training.keep_aggregates,
            "width": self.width,
        }
        if self.first_rows is None:
            return rounds_program, (_fixed(first), first.carried, rounds[0], self.data), static
        fixed, carried = tuple(map(_fixed, runs)), tuple(run.carried for run in runs)
        rows = np.asarray([self.first_rows[id(run)] for run in runs], np.int32)
        # a bound on memory counts the aggregation of one run
        cohort_bytes = COHORTS_IN_AGGREGATION * 4 * first.width * first.parameters.shape[0]
        tile = at_once("segments", cohort_bytes) if self.width is None else 1
        static["tile"] = min(tile, len(runs))
        return runs_program, (fixed, carried, rounds, rows, self.data), static


def _fixed(run: Run) -> Fixed:
    return Fixed(run.key, run.training.trainer, run.training.aggregator, run.coordinates)
