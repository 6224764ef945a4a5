"""When rounds go as one program, how many of them, and what comes back.

Where compiled loops make the pads (on a CPU) every round goes by itself, as it does for an
aggregator that cannot be traced: real messages, work on the host, a class of one's own that is no
pytree. All others run the rounds up to the next evaluation, checkpoint or word of progress as one
program, compiled once: what a shorter stretch does not need of it is passed over.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mrsa_jax._device import at_once, chosen_form, within_memory
from mrsa_jax.data import ClientData
from mrsa_jax.federated._checkpoint import Checkpoints
from mrsa_jax.federated._cohort import measured_width
from mrsa_jax.federated._rounds import Fixed, rounds_program
from mrsa_jax.federated._run import Run

__all__ = ["program_length", "run_rounds"]

_MOST_ROUNDS = 64  # a round that is passed over costs little, but not nothing


def program_length(
    run: Run, data: ClientData, width: int | None, checkpoints: Checkpoints | None
) -> int:
    """Return how many rounds a program of this training has; 1 where each goes by itself."""
    if run.is_over or chosen_form(("loops", "xla")) == "loops":
        return 1
    dim = run.parameters.shape[0]
    report_bytes = 16 * run.width + (4 * dim if run.keep_aggregates else 0)
    gaps = np.diff(run.stops, prepend=0, append=len(run.to_train))
    most = min(_MOST_ROUNDS, int(gaps.max()), at_once("rounds", report_bytes))
    if checkpoints is not None:
        most = min(most, checkpoints.every)
    return most if most > 1 and _is_traceable(run, data, most, width) else 1


def _is_traceable(run: Run, data: ClientData, length: int, width: int | None) -> bool:
    """Return whether the rounds can be traced as one program.

    Whatever is wrong otherwise shows, with a sentence, where rounds go by themselves.
    """
    try:
        rounds_program.eval_shape(*_arguments(run, data, 1, length), **_settings(run, width))
    except Exception:
        return False
    return True


def run_rounds(run: Run, data: ClientData, most: int, length: int, width: int | None) -> None:
    """Train and log the next rounds, at most so many, by a program of `length`."""
    count = min(most, run.until_evaluation)
    arguments = _arguments(run, data, count, length)
    check = getattr(run.aggregator, "checked_weights", None)
    rounds = arguments[2]
    if rounds.weights is not None and check is not None:
        for weights, alive in zip(rounds.weights[:count], rounds.alive[:count], strict=True):
            check(weights, alive.reshape(-1, alive.shape[-1])[0])

    def at_width(width: int) -> Any:
        out = rounds_program(*arguments, **_settings(run, width))
        return out[0], jax.device_get(out[1])  # the one wait for the device

    side_by_side = measured_width(run.parameters.shape[0]) if width is None else width
    side_by_side = min(side_by_side, run.width)
    what = f"training {run.width} clients a round"
    run.carried, reports = within_memory(at_width, side_by_side, "memory_bytes", what)
    for number in np.flatnonzero(reports.is_run):
        run.log_round(jax.tree.map(lambda leaf, at=int(number): leaf[at], reports))


def _arguments(run: Run, data: ClientData, count: int, length: int) -> tuple[Any, ...]:
    fixed = Fixed(run.key, run.trainer, run.aggregator, data)
    return fixed, run.carried, run.rounds(count, length)


def _settings(run: Run, width: int | None) -> dict[str, Any]:
    return {"server": run.server, "keep": run.keep_aggregates, "width": width}
