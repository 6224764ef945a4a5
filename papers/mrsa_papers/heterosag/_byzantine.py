"""HeteroSAg's Experiment 2 (Figure 3b).

A median over a segment's sums against an attacker.
Elkordy, Avestimehr, Section VI-C. The paper models the attacker (a user who pads
wrongly) by Gaussian segments; the real wrong pads are run beside its model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from mrsa_jax import data, federated, hetero
from mrsa_papers.harness import Check, Context, Found, rows_to_frame, state
from mrsa_papers.harness._context import tests_of
from mrsa_papers.harness._figures import draw_seed_curves
from mrsa_papers.harness._intervals import bands, difference, late_by, spread
from mrsa_papers.heterosag import _training as training

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Figure, pd

_FULL, _FAST = (100, 5, 5), (20, 4, 2)  # rounds, rounds between tests, seeds
_STD = 0.1  # of the paper's model of a distorted segment
_CLEAN = "no attacker, mean"
_MEDIAN, _MEAN = "Gaussian, median", "Gaussian, mean"
_PADS, _PADS_MEAN = "wrong pads, median", "wrong pads, mean"
_CLEAN_MEDIAN = "no attacker, median"

_GAUSSIAN = functools.partial(hetero.byzantine.gaussian_blocks, std=_STD)

# label -> combine and attack
RUNS: dict[str, tuple[Any, Callable[[Any], Any] | None]] = {
    _CLEAN: (None, None),
    _CLEAN_MEDIAN: (hetero.robust.coordinate_median(), None),
    _MEDIAN: (hetero.robust.coordinate_median(), _GAUSSIAN),
    _MEAN: (None, _GAUSSIAN),
    _PADS: (hetero.robust.coordinate_median(), hetero.byzantine.wrong_pads),
    _PADS_MEAN: (None, hetero.byzantine.wrong_pads),
}
"""The rules that Figure 3b compares; the paper shows the first and the third."""


def byzantine(context: Context) -> Found:
    """Return Experiment 2 over paired seeds, with a verdict on each claim."""
    rounds, every, seeds = _FAST if context.fast else _FULL
    split = functools.partial(data.iid, num_clients=training.NUM_CLIENTS)
    experiment = training.experiment_of(context, federated.logistic(10), split, every)
    width = training.clip_range(experiment.first_updates(0))
    cohorts = np.ones((rounds, training.NUM_CLIENTS), np.bool_)
    jobs = [(trial, label) for trial in range(seeds) for label in RUNS]
    frame = rows_to_frame(
        {"run": label, "seed": trial, "round": done, "accuracy": accuracy}
        for trial, label in context.steps("Figure 3b: trainings", jobs)
        for done, accuracy, _ in tests_of(
            experiment.train(trial, cohorts, _average(label, experiment.dim, width))
        )
    )
    name = context.images.name
    read = f"{seeds} paired seeds, {spread(seeds)}, t = {rounds}"
    return Found(
        tuple(_checks(frame, read, name, width)),
        frame,
        f"{name} (the paper: Fashion-MNIST; give its folder or name), "
        f"{training.NUM_CLIENTS} users, IID, G = 5 groups of four, logistic regression "
        f"of {experiment.dim} parameters, batch 50, rate .01, one local epoch, clip "
        f"range [-{width:g}, {width:g}] (the largest entry of any user's first "
        "update). User 1 (group 0) attacks: by the paper's model its five sums become "
        f"N(0, {_STD:g}²), by real wrong pads they are uniform on their rings. Means "
        f"of {seeds} seeds.{bands(seeds)}",
    )


def _average(label: str, dim: int, width: float) -> Any:
    combine, attack = RUNS[label]
    # user 1 is in group 0, whose quantizer is the coarsest
    who = jnp.arange(training.NUM_CLIENTS) == 0
    return hetero.segment_average(
        training.layout_of("MC", dim),
        (-width, width),
        fidelity="sets",
        combine=combine,
        byzantine=None if attack is None else attack(who),
    )


def _checks(frame: pd.DataFrame, read: str, name: str, width: float) -> Iterator[Check]:
    late = late_by(frame, "run")
    median, mean = (difference(late[_CLEAN], late[label]) for label in (_MEDIAN, _MEAN))
    pads, pads_mean = (
        difference(late[_CLEAN], late[label]) for label in (_PADS, _PADS_MEAN)
    )
    price = difference(late[_CLEAN], late[_CLEAN_MEDIAN])
    means = ", ".join(f"{label} {100 * late[label].mean():.1f} %" for label in RUNS)
    spread = width / np.sqrt(3)
    yield state(
        "n_B = 1, median, against n_B = 0, mean (the attacker as the paper models it)",
        (-median).reaches(-5),
        paper="very close",
        ours=f"{median} points below",
        tolerance=f"close: an interval at most 5 points below; {read}",
        note=f"{name}. {means}",
    )
    yield state(
        "the same with real wrong pads",
        (-pads).reaches(-5),
        paper="very close",
        ours=f"{pads} points below",
        tolerance=f"close: an interval at most 5 points below; {read}",
        note=f"without any attacker the median costs {price} points",
    )
    yield state(
        "n_B = 1 with the mean",
        mean.exceeds(0),
        paper="distorted",
        ours=f"{mean} points below; with real wrong pads {pads_mean}",
        tolerance=f"95 % interval above 0; {read}",
        note=(
            "a sum spoilt by wrong pads is uniform on its ring, so its average lies in "
            f"the clip range, with a standard deviation of {spread:.2g}, not {_STD:g}"
        ),
    )


def draw_byzantine(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy with and without an attacker."""
    figure.set_size_inches(8.6, 4.2)
    ax = figure.subplots()
    draw_seed_curves(ax, data, curve="run")
    ax.set_title("Experiment 2: one attacker of 20, MC")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
