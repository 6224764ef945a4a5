"""HeteroSAg's Experiment 2 (Figure 3b).

A median over a segment's sums against an attacker.
Elkordy, Avestimehr, Section VI-C. The paper models the attacker (a user who pads
wrongly) by Gaussian segments; the real wrong pads are run beside its model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np

from mrsa_jax import data, hetero
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._context import Experiment, tests_of
from mrsa_papers.harness._figures import draw_seed_curves
from mrsa_papers.harness._intervals import bands, difference, late_by, spread
from mrsa_papers.heterosag import _training as training
from mrsa_papers.heterosag._training import Groups, layout_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Figure, pd

Attack = Literal["gaussian", "wrong pads"]

_CLEAN = "no attacker, mean"
_MEDIAN, _MEAN = "Gaussian, median", "Gaussian, mean"
_PADS, _PADS_MEAN = "wrong pads, median", "wrong pads, mean"
_CLEAN_MEDIAN = "no attacker, median"

# label -> whether the median combines the sums, and the attack
RUNS: dict[str, tuple[bool, Attack | None]] = {
    _CLEAN: (False, None),
    _CLEAN_MEDIAN: (True, None),
    _MEDIAN: (True, "gaussian"),
    _MEAN: (False, "gaussian"),
    _PADS: (True, "wrong pads"),
    _PADS_MEAN: (False, "wrong pads"),
}
"""The rules that Figure 3b compares; the paper shows the first and the third."""


def byzantine(context: Context, settings: Values) -> Found:
    """Return Experiment 2 over paired seeds, with a verdict on each claim."""
    groups, seeds = Groups.of(settings), settings.num_seeds
    who = _attackers(settings, groups)
    split = functools.partial(data.iid, num_clients=groups.num_clients)
    experiment = training.experiment_of(context, settings, split)
    experiment.check()
    context.begin()
    width = training.clip_of(settings, experiment)
    cohorts = np.ones((settings.num_rounds, groups.num_clients), np.bool_)
    layout = layout_of("MC", experiment.dim, groups)
    jobs = [(trial, label) for trial in range(seeds) for label in RUNS]
    frame = rows_to_frame(
        {"run": label, "seed": trial, "round": done, "accuracy": accuracy}
        for trial, label in context.steps("Figure 3b: trainings", jobs)
        for done, accuracy, _ in tests_of(
            experiment.train(
                trial, cohorts, _average(label, layout, width, who, settings.std)
            )
        )
    )
    name = context.images.name
    read = f"{seeds} paired seeds, {spread(seeds)}, t = {settings.num_rounds}"
    checks = tuple(_checks(frame, read, name, width, settings))
    return Found(checks, frame, _caption(settings, experiment, groups, width))


def _attackers(settings: Values, groups: Groups) -> np.ndarray:
    """Return which clients attack, bool[N], of the places that are set."""
    places, count = settings.byzantine_clients, groups.num_clients
    rule = f"must be different clients in [0, {count - 1}]"
    is_sound = len(set(places)) == len(places) and max(places) < count
    require(is_sound, "byzantine_clients", rule, places)
    return np.isin(np.arange(count), places)


def _caption(
    settings: Values, experiment: Experiment, groups: Groups, width: float
) -> str:
    places, seeds = settings.byzantine_clients, settings.num_seeds
    name = experiment.context.images.name
    users = ", ".join(str(place + 1) for place in places)
    theirs = ", ".join(map(str, sorted({place // groups.size for place in places})))
    is_one = len(places) == 1
    attack = f"User {users} (group {theirs}) attacks: by the paper's model its"
    if not is_one:
        attack = f"Users {users} (groups {theirs}) attack: by the paper's model their"
    measured = " (the largest entry of any user's first update)" * (not settings.clip)
    return (
        f"{name} (the paper: Fashion-MNIST; give its folder or name), "
        f"{groups.num_clients} users, IID, {groups.words}, {settings.model} model of "
        f"{experiment.dim} parameters, batch {settings.batch_size}, rate "
        f"{settings.learning_rate:g}, local epochs: {settings.num_epochs}, clip range "
        f"[-{width:g}, {width:g}]{measured}. {attack} {len(groups.levels)} sums become "
        f"N(0, {settings.std:g}²), by real wrong pads they are uniform on their rings. "
        f"Means of {seeds} seeds.{bands(seeds)}"
    )


def _average(
    label: str,
    layout: hetero.SegmentLayout,
    width: float,
    who: np.ndarray,
    std: float,
) -> Any:
    is_median, attack = RUNS[label]
    clients = jnp.asarray(who)
    byzantine_clients = None
    if attack == "gaussian":
        byzantine_clients = hetero.byzantine.gaussian_blocks(clients, std=std)
    elif attack:
        byzantine_clients = hetero.byzantine.wrong_pads(clients)
    return hetero.segment_average(
        layout,
        (-width, width),
        fidelity="sets",
        combine=hetero.robust.coordinate_median() if is_median else None,
        byzantine=byzantine_clients,
    )


def _checks(
    frame: pd.DataFrame, read: str, name: str, width: float, settings: Values
) -> Iterator[Check]:
    late = late_by(frame, "run")
    median, mean = (difference(late[_CLEAN], late[label]) for label in (_MEDIAN, _MEAN))
    pads, pads_mean = (
        difference(late[_CLEAN], late[label]) for label in (_PADS, _PADS_MEAN)
    )
    price = difference(late[_CLEAN], late[_CLEAN_MEDIAN])
    means = ", ".join(f"{label} {100 * late[label].mean():.1f} %" for label in RUNS)
    spread, count = width / np.sqrt(3), len(settings.byzantine_clients)
    yield state(
        f"n_B = {count}, median, against n_B = 0, mean (the attacker as the paper "
        "models it)",
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
        f"n_B = {count} with the mean",
        mean.exceeds(0),
        paper="distorted",
        ours=f"{mean} points below; with real wrong pads {pads_mean}",
        tolerance=f"95 % interval above 0; {read}",
        note=(
            "a sum spoilt by wrong pads is uniform on its ring, so its average lies in "
            f"the clip range, with a standard deviation of {spread:.2g}, not "
            f"{settings.std:g}"
        ),
    )


def draw_byzantine(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy with and without an attacker."""
    figure.set_size_inches(8.6, 4.2)
    ax = figure.subplots()
    draw_seed_curves(ax, data, curve="run")
    ax.set_title("Experiment 2: attackers and the median, MC")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
