"""HeteroSAg's Experiment 1 (Figure 3a).

Accuracy of unequal quantizers against equal ones.
Elkordy, Avestimehr, Section VI-C. Open readings, stated in the item: the clip range,
which classes are in which group, how bits are counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax import data, federated, hetero
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._context import Experiment, tests_of
from mrsa_papers.harness._figures import draw_seed_curves
from mrsa_papers.harness._intervals import Interval, bands, difference, every, late_by
from mrsa_papers.heterosag import _training as training
from mrsa_papers.heterosag._training import Groups, equal, layout_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Figure, pd

_SLOWEST_RATE = 1e6  # bits per second of the slowest group
_SORTED, _SPREAD = "sorted classes", "spread classes"
_CLAIMED_ROUNDS = 100  # at which the paper compares the schemes


class _Names(NamedTuple):
    """The compared schemes: the coarsest quantizer for all, the finest, and between."""

    coarse: str
    fine: str

    @classmethod
    def of(cls, groups: Groups) -> _Names:
        """Return the names over groups."""
        return cls(equal(groups.levels[0]), equal(groups.levels[-1]))

    @property
    def every(self) -> tuple[str, ...]:
        """All four, in the order of curves."""
        return (self.coarse, "SC", "MC", self.fine)


def accuracy(context: Context, settings: Values) -> Found:
    """Return Experiment 1 over paired seeds, with a verdict on each claim."""
    groups = Groups.of(settings)
    rule = "must have a finer quantizer for the last group than for the first"
    require(groups.levels[0] < groups.levels[-1], "levels", rule, groups.levels)
    classes = context.images.num_classes
    rule = f"must give at least a client for each of the {classes} classes"
    users = f"{groups.num_clients} clients"
    require(groups.num_clients >= classes, "group_size", rule, users)
    names = _Names.of(groups)
    split = functools.partial(training.one_class_each, num_clients=groups.num_clients)
    experiment = training.experiment_of(context, settings, split)
    experiment.check()
    context.begin()
    width = training.clip_of(settings, experiment)
    jobs = [
        (_SORTED, scheme, 1.0, trial)
        for trial in range(settings.num_seeds)
        for scheme in names.every
    ]
    jobs += [
        (_SPREAD, scheme, 1.0, trial)
        for trial in range(min(settings.num_spread_seeds, settings.num_seeds))
        for scheme in ("SC", "MC")
    ]
    jobs += [
        (_SORTED, scheme, factor, trial)
        for factor in settings.clip_factors
        for trial in range(settings.num_clip_seeds)
        for scheme in names.every
    ]
    rows: list[dict[str, Any]] = []
    for job in context.steps("Figure 3a: trainings", jobs):
        rows += _rows(experiment, groups, settings.num_rounds, width, *job)
    frame = rows_to_frame(rows)
    is_long = settings.num_rounds >= _CLAIMED_ROUNDS
    judged = _accuracy_checks if is_long else _order_checks
    checks = (
        *judged(frame, settings, width),
        *_time_checks(experiment.dim, groups),
        _same_without_pads(experiment, groups, width),
    )
    caption = _caption(settings, experiment, groups, width)
    return Found(checks, frame, caption + _other_classes(frame))


def _caption(
    settings: Values, experiment: Experiment, groups: Groups, width: float
) -> str:
    dataset, seeds = experiment.context.images, settings.num_seeds
    each, rest = divmod(groups.num_clients, dataset.num_classes)
    shared = f" ({each} of each)" * (not rest and each > 1)
    measured = ": the largest entry of any user's first update" * (not settings.clip)
    return (
        f"{dataset.name}, {len(dataset.train_labels)} training samples, "
        f"{groups.num_clients} users of one class each{shared}, {groups.words}, "
        f"{settings.model} model of {experiment.dim} parameters, batch "
        f"{settings.batch_size}, rate {settings.learning_rate:g}, local epochs: "
        f"{settings.num_epochs}, {seeds} paired seeds.{bands(seeds)} Clip range "
        f"[-{width:g}, {width:g}]{measured}, the same for all. "
        "Sorted classes: the slowest group holds the first classes, the next those "
        "that follow; spread: neighbours differ in class. Times: the slowest group "
        "sends 1 Mbit/s, the others as much more as their quantizers have bits."
    )


def _trained(
    experiment: Experiment,
    groups: Groups,
    scheme: str,
    width: float,
    rounds: int,
    trial: int = 0,
    *,
    clients: data.ClientData | None = None,
    fidelity: Any = "sets",
) -> federated.TrainingResult:
    """Train with everybody in every round."""
    cohorts = np.ones((rounds, groups.num_clients), np.bool_)
    layout = layout_of(scheme, experiment.dim, groups)
    average = hetero.segment_average(layout, (-width, width), fidelity=fidelity)
    return experiment.train(trial, cohorts, average, clients)


def _rows(
    experiment: Experiment,
    groups: Groups,
    rounds: int,
    width: float,
    classes: str,
    scheme: str,
    factor: float,
    trial: int,
) -> Iterator[dict[str, Any]]:
    clip = width * factor
    clients = _spread(experiment.clients(trial)) if classes == _SPREAD else None
    result = _trained(experiment, groups, scheme, clip, rounds, trial, clients=clients)
    plain, encoded = seconds(scheme, experiment.dim, groups)
    clipped = float(np.nanmax(result.clipped_fraction))
    for done, accuracy, loss in tests_of(result):
        yield {
            "classes": classes,
            "scheme": scheme,
            "range": clip,
            "factor": factor,
            "seed": trial,
            "round": done,
            "accuracy": accuracy,
            "loss": loss,
            "seconds, plain bits": plain * done,
            "seconds, encoded bits": encoded * done,
            "most clipped": clipped,
        }


def _spread(clients: data.ClientData) -> data.ClientData:
    """Return clients so that consecutive ones differ in class.

    0 2 4 ... 18, 1 3 5 ... 19.
    """
    # two clients of a class are neighbours before
    places = np.arange(len(clients.sizes))
    return training.ordered(clients, np.concatenate([places[::2], places[1::2]]))


@functools.cache
def seconds(scheme: str, dim: int, groups: Groups) -> tuple[float, float]:
    """Return the seconds of one round's inputs.

    By plain bits of the codes, and as encoded and padded.
    A residue takes ceil(log2 R) bits, a plain code ceil(log2 K). Each user sends in
    proportion to the bits of its group's quantizer.
    """
    bits = np.repeat([_bits(levels) for levels in groups.levels], groups.size)
    # a round lasts as long as the slowest user
    times = hetero.costs.communication_times(
        layout_of(scheme, dim, groups), _SLOWEST_RATE / bits[0] * bits
    )
    return times.plain_round_seconds, times.round_seconds


def _bits(levels: int) -> int:
    """Return ceil(log2 K): the bits of a plain code."""
    return (levels - 1).bit_length()


def _late(
    frame: pd.DataFrame,
    *,
    classes: str = _SORTED,
    factor: float = 1.0,
    share: float = 0.1,
) -> dict[str, pd.Series]:
    """Return each scheme's accuracies at the end of training, one value per seed.

    The end is the last tenth of rounds, or another share.
    """
    tests = frame[(frame["classes"] == classes) & (frame["factor"] == factor)]
    return late_by(tests, "scheme", share=share)


def _accuracy_checks(
    frame: pd.DataFrame, settings: Values, width: float
) -> Iterator[Check]:
    late, names = _late(frame), _Names.of(Groups.of(settings))
    over = {s: difference(late[s], late[names.coarse]) for s in ("SC", "MC")}
    under = {s: difference(late[names.fine], late[s]) for s in ("SC", "MC")}
    between, end = (
        difference(accuracies["SC"], accuracies["MC"])
        for accuracies in (_late(frame, share=1.0), late)
    )
    seeds, rounds = settings.num_seeds, settings.num_rounds
    read = f"means of {seeds} paired seeds with 95 % intervals, t = {rounds}"
    means = ", ".join(f"{s} {100 * late[s].mean():.1f} %" for s in names.every)
    opened = f"clip range [-{width:g}, {width:g}]; the paper gives none. {means}"
    yield state(
        f"SC and MC above {names.coarse} after {rounds} rounds",
        every(i.exceeds(10) for i in over.values()),
        paper="far above",
        ours=_points(over),
        tolerance=f"intervals more than 10 points above; {read}",
        note=opened,
        # whose misses are explained, whatever the settings
        key=f"SC and MC above K = 2 after {_CLAIMED_ROUNDS} rounds",
    )
    yield state(
        f"SC and MC against {names.fine}",
        every((-i).reaches(-5) for i in under.values()),
        paper="close",
        ours=_points(under, " below"),
        tolerance=f"close: intervals at most 5 points below; {read}",
        note=_sweep(frame),
        key="SC and MC against K = 12",
    )
    yield state(
        "SC against MC",
        between.exceeds(0),
        paper="SC is better",
        ours=f"SC {between} points above over all tests, {end} at the end",
        tolerance=f"interval over all tests above 0; {read}",
    )


def _order_checks(
    frame: pd.DataFrame, settings: Values, width: float
) -> Iterator[Check]:
    """Judge the order of schemes after few rounds; the claims are about a hundred."""
    late, names = _late(frame), _Names.of(Groups.of(settings))
    best = every(
        difference(late[names.fine], late[s]).exceeds(0) for s in names.every[:-1]
    )
    yield state(
        f"the best scheme after {settings.num_rounds} rounds",
        best,
        paper="the finest quantizer for all",
        ours=", ".join(
            f"{s} {100 * accuracies.mean():.1f} %" for s, accuracies in late.items()
        ),
        tolerance=f"95 % intervals of {settings.num_seeds} paired seeds over 0; the "
        f"claims about t = {_CLAIMED_ROUNDS} need as many rounds",
        note=f"clip range [-{width:g}, {width:g}]; the paper gives none",
    )


def _points(gaps: dict[str, Interval], word: str = "") -> str:
    return ", ".join(f"{scheme} {gap} points{word}" for scheme, gap in gaps.items())


def _sweep(frame: pd.DataFrame) -> str:
    """Give the accuracies at other clip ranges, on which the claims depend."""
    parts = []
    for factor in frame["factor"].unique():
        if factor == 1:
            continue
        late = _late(frame, factor=factor)
        words = ", ".join(
            f"{s} {100 * accuracies.mean():.1f} %" for s, accuracies in late.items()
        )
        parts.append(f"at {factor:g} of the range: {words}")
    return "; ".join(parts)


def _other_classes(frame: pd.DataFrame) -> str:
    """Give the accuracies if classes are spread over groups, a case left open."""
    if _SPREAD not in set(frame["classes"]):
        return ""
    late, spread = _late(frame), _late(frame, classes=_SPREAD)
    gaps = {
        scheme: difference(accuracies, late[scheme][accuracies.index])
        for scheme, accuracies in spread.items()
    }
    higher = _points(gaps, " higher")
    seeds = frame[frame["classes"] == _SPREAD]["seed"].nunique()
    return f" Spread instead of sorted: {higher} ({seeds} seeds)."


def _time_checks(dim: int, groups: Groups) -> Iterator[Check]:
    names = _Names.of(groups)
    plain = {scheme: seconds(scheme, dim, groups)[0] for scheme in names.every}
    encoded = {scheme: seconds(scheme, dim, groups)[1] for scheme in names.every}
    hidden = {
        scheme: encoded[names.fine] / encoded[scheme] for scheme in names.every[:-1]
    }
    ratio = {scheme: plain[names.fine] / plain[scheme] for scheme in ("SC", "MC")}
    coarsest, finest = groups.levels[0], groups.levels[-1]
    # the slowest group sends codes of its own quantizer, or of the finest one
    times = _bits(finest) / _bits(coarsest)
    yield state(
        f"time of a round, SC and MC against {names.coarse}",
        plain["SC"] == plain["MC"] == plain[names.coarse],
        depends=("levels", "group_size"),
        paper="the same",
        ours=_ratios({s: plain[s] / plain[names.coarse] for s in ("SC", "MC")}),
        tolerance="exact; plain bits of the slowest group",
    )
    yield state(
        f"time of a round, {names.fine} against SC and MC",
        set(ratio.values()) == {times},
        depends=("levels", "group_size"),
        paper=f"{times:g} times",
        ours=_ratios(ratio),
        tolerance="exact; plain bits",
    )
    users, size = groups.num_clients, groups.size
    all_fine, all_coarse, two, one = (
        (count * (levels - 1)).bit_length()
        for count, levels in (
            (users, finest),
            (users, coarsest),
            (2 * size, coarsest),
            (size, coarsest),
        )
    )
    yield state(
        "the same in the bits that are really sent, ceil(log2 R) each",
        hidden["SC"] == hidden["MC"] == times,
        depends=("levels", "group_size"),
        paper=f"{times:g} times",
        ours=_ratios(hidden),
        tolerance="exact; eq. (6): residues mod R = |S| (K - 1) + 1",
        otherwise=(
            "paper errs" if hidden[names.coarse] == all_fine / all_coarse else "differs"
        ),
        of_data=False,
        note=(
            f"R = {users * (finest - 1) + 1} and {users * (coarsest - 1) + 1} for all "
            f"{users} users at {names.fine} and {names.coarse} ({all_fine} and "
            f"{all_coarse} bits), {2 * size * (coarsest - 1) + 1} for two groups of "
            f"{size} at {names.coarse} ({two} bits), {size * (coarsest - 1) + 1} for "
            f"one ({one} bits)"
        ),
    )


def _ratios(factors: dict[str, float]) -> str:
    return ", ".join(f"{value:.3g} ({scheme})" for scheme, value in factors.items())


def _same_without_pads(experiment: Experiment, groups: Groups, width: float) -> Check:
    """Train two rounds with real pads, whose sums equal those without, bit for bit."""
    padded, plain = (
        _trained(experiment, groups, "MC", width, 2, fidelity=fidelity)
        for fidelity in ("array", "sets")
    )
    is_same = bool(np.array_equal(padded.parameters, plain.parameters))
    return state(
        "trained without pads against with ChaCha20 pads",
        is_same,
        depends=(),
        paper="pads cancel",
        ours="bit-equal models" if is_same else "models differ",
        tolerance="bit for bit, MC, two rounds",
    )


def draw_accuracy(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds and over time, in encoded and in plain bits."""
    tests = data[(data["classes"] == "sorted classes") & (data["factor"] == 1)]
    figure.set_size_inches(13.5, 4.1)
    axes = figure.subplots(1, 3, sharey=True)
    axis = (
        ("round", "rounds"),
        ("seconds, encoded bits", "communication time (s), bits as sent"),
        ("seconds, plain bits", "communication time (s), plain bits"),
    )
    for ax, (x, label) in zip(axes, axis, strict=True):
        draw_seed_curves(ax, tests, curve="scheme", x=x, xlabel=label)
    for ax in axes[1:]:
        ax.set_ylabel("")
    axes[0].set_title("Experiment 1")
    axes[-1].legend(loc="lower right")
