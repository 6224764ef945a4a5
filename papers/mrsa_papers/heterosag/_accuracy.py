"""HeteroSAg's Experiment 1 (Figure 3a).

Accuracy of unequal quantizers against equal ones.
Elkordy, Avestimehr, Section VI-C. Open readings, stated in the item: the clip range,
which classes are in which group, how bits are counted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import data, federated, hetero
from mrsa_papers.harness import Check, Context, Found, Stated, rows_to_frame, state
from mrsa_papers.harness._context import Experiment, tests_of
from mrsa_papers.harness._figures import draw_seed_curves
from mrsa_papers.harness._intervals import Interval, bands, difference, every, late_by
from mrsa_papers.heterosag import _training as training
from mrsa_papers.heterosag._training import GROUP_SIZE, LEVELS, NUM_CLIENTS, layout_of

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Figure, pd

SCHEMES = ("K = 2", "SC", "MC", "K = 12")
_SLOWEST_RATE = 1e6  # bits per second of the slowest group
_SORTED, _SPREAD = "sorted classes", "spread classes"


@dataclasses.dataclass(frozen=True)
class _Size:
    """The size of the experiment."""

    rounds: int
    every: int
    seeds: int
    other_seeds: int  # of the second map of classes
    sweep_seeds: int  # of each other clip range
    factors: tuple[float, ...]


_FULL = _Size(100, 5, 5, 3, 1, (0.25, 2.0))
_FAST = _Size(20, 4, 2, 0, 0, ())


def accuracy(context: Context) -> Found:
    """Return Experiment 1 over paired seeds, with a verdict on each claim."""
    size = _FAST if context.fast else _FULL
    experiment = training.experiment_of(
        context, federated.mlp(10), training.one_class_each, size.every
    )
    width = training.clip_range(experiment.first_updates(0))
    jobs = [
        (_SORTED, scheme, 1.0, trial)
        for trial in range(size.seeds)
        for scheme in SCHEMES
    ]
    jobs += [
        (_SPREAD, scheme, 1.0, t)
        for t in range(size.other_seeds)
        for scheme in ("SC", "MC")
    ]
    jobs += [
        (_SORTED, scheme, factor, trial)
        for factor in size.factors
        for trial in range(size.sweep_seeds)
        for scheme in SCHEMES
    ]
    rows: list[dict[str, Any]] = []
    for job in context.steps("Figure 3a: trainings", jobs):
        rows += _rows(experiment, size.rounds, width, *job)
    frame = rows_to_frame(rows)
    judged = _order_checks if context.fast else _accuracy_checks
    checks = (
        *judged(frame, size, width),
        *_time_checks(experiment.dim),
        _same_without_pads(experiment, width),
    )
    caption = _caption(experiment, size, width) + _other_classes(frame, size)
    stated = (Stated("rounds", _FULL.rounds, size.rounds, is_least=True),)
    return Found(checks, frame, caption, stated)


def _caption(experiment: Experiment, size: _Size, width: float) -> str:
    dataset = experiment.context.images
    return (
        f"{dataset.name}, {len(dataset.train_labels)} training samples, {NUM_CLIENTS} "
        f"users of one class each (two of each), G = 5 groups of four, K = {LEVELS}, "
        f"MLP of {experiment.dim} parameters, batch 50, rate .01, one local epoch, "
        f"{size.seeds} paired seeds.{bands(size.seeds)} Clip range [-{width:g}, "
        f"{width:g}]: the largest entry of any user's first update, the same for all. "
        "Sorted classes: the slowest group holds classes 0 and 1, the next 2 and 3, "
        "and so on; spread: no class twice in a group. Times: the slowest group sends "
        "1 Mbit/s, the others as much more as their quantizers have bits."
    )


def _trained(
    experiment: Experiment,
    scheme: str,
    width: float,
    rounds: int,
    trial: int = 0,
    *,
    clients: data.ClientData | None = None,
    fidelity: Any = "sets",
) -> federated.TrainingResult:
    """Train with everybody in every round."""
    cohorts = np.ones((rounds, NUM_CLIENTS), np.bool_)
    layout = layout_of(scheme, experiment.dim)
    average = hetero.segment_average(layout, (-width, width), fidelity=fidelity)
    return experiment.train(trial, cohorts, average, clients)


def _rows(
    experiment: Experiment,
    rounds: int,
    width: float,
    classes: str,
    scheme: str,
    factor: float,
    trial: int,
) -> Iterator[dict[str, Any]]:
    clip = width * factor
    clients = _spread(experiment.clients(trial)) if classes == _SPREAD else None
    result = _trained(experiment, scheme, clip, rounds, trial, clients=clients)
    plain, encoded = seconds(scheme, experiment.dim)
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
    order = np.arange(NUM_CLIENTS).reshape(-1, 2).T.ravel()
    return training.ordered(clients, order)


@functools.cache
def seconds(scheme: str, dim: int) -> tuple[float, float]:
    """Return the seconds of one round's inputs.

    By plain bits of the codes, and as encoded and padded.
    A residue takes ceil(log2 R) bits, a plain code ceil(log2 K). Each user sends in
    proportion to the bits of its group's quantizer.
    """
    bits = np.repeat(np.ceil(np.log2(LEVELS)), GROUP_SIZE)
    # a round lasts as long as the slowest user
    times = hetero.costs.communication_times(
        layout_of(scheme, dim), _SLOWEST_RATE * bits
    )
    return times.plain_round_seconds, times.round_seconds


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


def _accuracy_checks(frame: pd.DataFrame, size: _Size, width: float) -> Iterator[Check]:
    late = _late(frame)
    over = {s: difference(late[s], late["K = 2"]) for s in ("SC", "MC")}
    under = {s: difference(late["K = 12"], late[s]) for s in ("SC", "MC")}
    between, end = (
        difference(accuracies["SC"], accuracies["MC"])
        for accuracies in (_late(frame, share=1.0), late)
    )
    read = f"means of {size.seeds} paired seeds with 95 % intervals, t = {size.rounds}"
    means = ", ".join(f"{s} {100 * late[s].mean():.1f} %" for s in SCHEMES)
    opened = f"clip range [-{width:g}, {width:g}]; the paper gives none. {means}"
    yield state(
        "SC and MC above K = 2 after 100 rounds",
        every(i.exceeds(10) for i in over.values()),
        paper="far above",
        ours=_points(over),
        tolerance=f"intervals more than 10 points above; {read}",
        note=opened,
    )
    yield state(
        "SC and MC against K = 12",
        every((-i).reaches(-5) for i in under.values()),
        paper="close",
        ours=_points(under, " below"),
        tolerance=f"close: intervals at most 5 points below; {read}",
        note=_sweep(frame, size),
    )
    yield state(
        "SC against MC",
        between.exceeds(0),
        paper="SC is better",
        ours=f"SC {between} points above over all tests, {end} at the end",
        tolerance=f"interval over all tests above 0; {read}",
    )


def _order_checks(frame: pd.DataFrame, size: _Size, width: float) -> Iterator[Check]:
    """Judge the order of schemes after few rounds; the claims are about a hundred."""
    late = _late(frame)
    best = every(difference(late["K = 12"], late[s]).exceeds(0) for s in SCHEMES[:-1])
    yield state(
        f"the best scheme after {size.rounds} rounds",
        best,
        paper="K = 12",
        ours=", ".join(
            f"{s} {100 * accuracies.mean():.1f} %" for s, accuracies in late.items()
        ),
        tolerance=f"95 % intervals of {size.seeds} paired seeds over 0; the claims "
        "about t = 100 need the full size",
        note=f"clip range [-{width:g}, {width:g}]; the paper gives none",
    )


def _points(gaps: dict[str, Interval], word: str = "") -> str:
    return ", ".join(f"{scheme} {gap} points{word}" for scheme, gap in gaps.items())


def _sweep(frame: pd.DataFrame, size: _Size) -> str:
    """Give the accuracies at other clip ranges, on which the claims depend."""
    parts = []
    for factor in size.factors:
        late = _late(frame, factor=factor)
        words = ", ".join(
            f"{s} {100 * accuracies.mean():.1f} %" for s, accuracies in late.items()
        )
        parts.append(f"at {factor:g} of the range: {words}")
    return "; ".join(parts)


def _other_classes(frame: pd.DataFrame, size: _Size) -> str:
    """Give the accuracies if classes are spread over groups, a case left open."""
    if not size.other_seeds:
        return ""
    late, spread = _late(frame), _late(frame, classes=_SPREAD)
    gaps = {
        scheme: difference(accuracies, late[scheme][accuracies.index])
        for scheme, accuracies in spread.items()
    }
    higher = _points(gaps, " higher")
    return f" Spread instead of sorted: {higher} ({size.other_seeds} seeds)."


def _time_checks(dim: int) -> Iterator[Check]:
    plain = {scheme: seconds(scheme, dim)[0] for scheme in SCHEMES}
    encoded = {scheme: seconds(scheme, dim)[1] for scheme in SCHEMES}
    hidden = {
        scheme: encoded["K = 12"] / encoded[scheme] for scheme in ("K = 2", "SC", "MC")
    }
    ratio = {scheme: plain["K = 12"] / plain[scheme] for scheme in ("SC", "MC")}
    yield state(
        "time of a round, SC and MC against K = 2",
        plain["SC"] == plain["MC"] == plain["K = 2"],
        paper="the same",
        ours=_ratios({s: plain[s] / plain["K = 2"] for s in ("SC", "MC")}),
        tolerance="exact; plain bits of the slowest group",
    )
    yield state(
        "time of a round, K = 12 against SC and MC",
        set(ratio.values()) == {4.0},
        paper="4 times",
        ours=_ratios(ratio),
        tolerance="exact; plain bits",
    )
    yield state(
        "the same in the bits that are really sent, ceil(log2 R) each",
        hidden["SC"] == hidden["MC"] == 4.0,
        paper="4 times",
        ours=_ratios(hidden),
        tolerance="exact; eq. (6): residues mod R = |S| (K - 1) + 1",
        otherwise="paper errs" if hidden["K = 2"] == 8 / 5 else "differs",
        of_data=False,
        note=(
            "R = 221 and 21 for all twenty users at K = 12 and K = 2 (8 and 5 bits), 9 "
            "for two groups of four at K = 2 (4 bits), 5 for one (3 bits)"
        ),
    )


def _ratios(factors: dict[str, float]) -> str:
    return ", ".join(f"{value:.3g} ({scheme})" for scheme, value in factors.items())


def _same_without_pads(experiment: Experiment, width: float) -> Check:
    """Train two rounds with real pads, whose sums equal those without, bit for bit."""
    padded, plain = (
        _trained(experiment, "MC", width, 2, fidelity=fidelity)
        for fidelity in ("array", "sets")
    )
    equal = bool(np.array_equal(padded.parameters, plain.parameters))
    return state(
        "trained without pads against with ChaCha20 pads",
        equal,
        paper="pads cancel",
        ours="bit-equal models" if equal else "models differ",
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
