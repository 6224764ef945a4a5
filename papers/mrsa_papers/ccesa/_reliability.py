"""CCESA's Figures 4 and B.1.

Accuracy of sparse graphs against SecAgg's, and how rounds fail.
Choi, Sohn, Han, Moon, Section 5.2, Appendices B.1 and G. Open readings, stated in the
items: the minibatch, that everybody is asked, q_total of Figure B.1, what "sufficient"
allows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import data, federated, secagg
from mrsa_papers.ccesa._theory import TOTALS, bandwidth_share, step_rate
from mrsa_papers.ccesa._training import (
    Runs,
    are_photographs,
    first_samples,
    resolved_model,
)
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._context import model_of
from mrsa_papers.harness._figures import MARKERS, draw_seed_curves
from mrsa_papers.harness._intervals import Interval, bands, difference, late_accuracy
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
IID, OWN = "IID", "one class each"
_CLOSE = 1.0  # points below SecAgg that still count as its accuracy
_PRINTED_P = 0.3106


def objects(context: Context, settings: Values) -> Found:
    """Return Figure 4: n = 1000, q_total = .1, IID and two sorted shards each."""
    n, total = settings.num_clients, settings.total_rate
    threshold = _threshold_of(n, total)
    runs = _objects_runs(context, settings, threshold)
    runs.begin()
    frame = _measure(runs)
    largest = max(settings.probabilities)
    wanted = ((threshold, f"p* = {threshold:.4f}"), (largest, f"p = {largest:g}"))
    checks = (
        compare(
            f"p* at n = {n}, q_total = {total:g}",
            _PRINTED_P,
            threshold,
            tolerance=5e-5,
            depends=("num_clients", "total_rate"),
        ),
        *(
            _suffices(frame, runs, split, total, chance, name)
            for split in runs.splits
            for chance, name in wanted
        ),
        _degraded(frame, runs),
        _printed_shares(),
        _theorem_5(frame),
        _same(runs, threshold, "p*"),
    )
    return Found(
        checks,
        frame,
        _caption(
            runs, frame, "CIFAR-10, VGG-11 and 200 rounds", "t by Remark 4 at each p"
        ),
    )


def _threshold_of(n: int, total: float) -> float:
    """Return p*, which must be a probability."""
    rule = f"must leave a p* of at most 1 at n = {n}"
    require(total < 0.5, "total_rate", "must be below 0.5, where eq. (5) ends", total)
    threshold = secagg.connection_probability(n, total)
    require(threshold <= 1.0, "total_rate", rule, f"{total:g}: {threshold:.3f}")
    return threshold


def faces(context: Context, settings: Values) -> Found:
    """Return Figure B.1.

    N = 40, t = 21, each client the images of one class, two q_total.
    """
    check_classes(settings, context.images)
    n, chance = settings.num_clients, settings.sufficient_probability
    rule = "must be at most the number of clients"
    require(settings.threshold <= n, "threshold", rule, settings.threshold)
    runs = _faces_runs(context, settings)
    runs.begin()
    frame = _measure(runs)
    stars = ", ".join(_star(n, total) for total in runs.totals)
    checks = (
        compare(
            f"t by Remark 4 at n = {n}, p = {chance:g}",
            21,
            secagg.share_threshold(n, chance),
            note="and n/2 + 1, SecAgg's" if n == 40 else "",
            depends=("num_clients", "sufficient_probability"),
        ),
        *(
            _suffices(frame, runs, OWN, total, chance, f"p = {chance:g}")
            for total in runs.totals
        ),
        compare(
            f"bandwidth of CCESA({n}, {chance:g}) over SecAgg's (Appendix D.1)",
            0.7,
            bandwidth_share(n, chance),
            tolerance=0.01,
            depends=("num_clients", "sufficient_probability"),
        ),
        _theorem_5(frame),
        _same(runs, runs.chances[1], f"p = {runs.chances[1]:g}"),
    )
    return Found(
        checks,
        frame,
        _caption(
            runs,
            frame,
            "the AT&T faces of 40 people",
            f"t = {settings.threshold} for every p",
        )
        + " The paper's two q_total are lost with its figure; read: "
        f"{' and '.join(f'{total:g}' for total in runs.totals)}. Of rounds at p = "
        f"{chance:g} fail {_failing(runs, chance)}; p* is {stars}.",
    )


def _star(n: int, total: float) -> str:
    """Return p* in words."""
    if total >= 0.5:
        return f"not defined at q_total = {total:g}"
    star = secagg.connection_probability(n, total)
    return f"{star:.3f}{', no chance,' * (star > 1)} at q_total = {total:g}"


def _objects_runs(context: Context, settings: Values, threshold: float) -> Runs:
    """Return the paper's setting on 32x32 colour images, a small network's on others.

    Appendix G.2.1's training; minibatches of ten are a reading (McMahan's). What the
    images decide is set in the settings.
    """
    model = resolved_model(context, settings)
    if not settings.num_rounds:
        settings.resolve(num_rounds=200 if are_photographs(context) else 50)
    every = settings.evaluate_every or max(1, settings.num_rounds // 20)
    n, shards = settings.num_clients, settings.shards_per_client
    words = "two" if shards == 2 else str(shards)
    return Runs(
        context,
        num_clients=n,
        totals=(settings.total_rate,),
        splits={
            IID: functools.partial(data.iid, num_clients=n),
            f"{words} sorted shards each": functools.partial(
                data.shards, num_clients=n, shards_per_client=shards
            ),
        },
        chances=_descending((threshold, *settings.probabilities)),
        # failures are simulated at more values of p than are trained
        grid=_ascending(
            (threshold, *settings.probabilities, *settings.simulated_probabilities)
        ),
        threshold=None,
        rounds=settings.num_rounds,
        every=every,
        seeds=settings.num_seeds,
        trials=settings.num_trials,
        model=model,
        trainer=federated.local_sgd(
            model,
            settings.learning_rate,
            batch_size=settings.batch_size,
            num_epochs=settings.num_epochs,
            momentum=settings.momentum,
        ),
        clip=settings.clip,
    )


def _descending(chances: Sequence[float]) -> tuple[float, ...]:
    """Return p of the trainings, from SecAgg's 1 on."""
    return tuple(sorted({1.0, *chances}, reverse=True))


def _ascending(chances: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(set(chances)))


def _faces_runs(context: Context, settings: Values) -> Runs:
    model, n = model_of(settings.model, context.images), settings.num_clients
    enough, chances = settings.sufficient_probability, settings.probabilities
    images = settings.samples_per_client
    return Runs(
        context,
        num_clients=n,
        totals=settings.total_rates,
        splits={
            OWN: functools.partial(one_class, num_clients=n, samples_per_client=images)
        },
        chances=_descending((enough, *chances)),
        grid=_ascending((enough, *chances, *settings.simulated_probabilities)),
        threshold=settings.threshold,
        rounds=settings.num_rounds,
        every=settings.evaluate_every,
        seeds=settings.num_seeds,
        trials=settings.num_trials,
        model=model,
        trainer=faces_trainer(model, settings),
        clip=settings.clip,
    )


def one_class(
    key: Key[Array, ""],
    dataset: data.Dataset,
    num_clients: int,
    samples_per_client: int,
) -> data.ClientData:
    """Deal one class to each client, and at most so many images as AT&T has of each."""
    shards = data.shards(key, dataset, num_clients, single_label=True)
    return first_samples(shards, samples_per_client)


def check_classes(settings: Values, dataset: data.Dataset) -> None:
    """Raise unless there is a client for each class."""
    classes, number = dataset.num_classes, settings.num_clients
    rule = f"must be at least the {classes} classes of {dataset.name}"
    require(number >= classes, "num_clients", rule, number)


def faces_trainer(model: Any, settings: Values) -> federated.LocalSGD:
    """Return Appendix G.1's training.

    All of a client's images in one step is a reading.
    """
    return federated.local_sgd(
        model,
        settings.learning_rate,
        batch_size=settings.batch_size,
        num_epochs=settings.num_epochs,
    )


def _measure(runs: Runs) -> pd.DataFrame:
    rates = runs.rate_rows()
    return rows_to_frame([*runs.accuracy_rows(), *rates])


def _curve(
    frame: pd.DataFrame, split: str, total: float, chance: float
) -> pd.DataFrame:
    tests = frame[frame["measure"] == "accuracy"]
    return tests[
        (tests["split"] == split) & (tests["q_total"] == total) & (tests["p"] == chance)
    ]


def _below(frame: pd.DataFrame, split: str, total: float, chance: float) -> Interval:
    """Return by how many points p ends below SecAgg, over paired seeds."""
    whole, sparse = (
        late_accuracy(_curve(frame, split, total, p)) for p in (1.0, chance)
    )
    return difference(whole, sparse)


def _suffices(
    frame: pd.DataFrame, runs: Runs, split: str, total: float, chance: float, name: str
) -> Check:
    """Judge that CCESA(n, p) reaches SecAgg's accuracy."""
    # paired by seed, so differences vary less than the accuracies
    gap = _below(frame, split, total, chance)
    ends = [
        100 * float(late_accuracy(_curve(frame, split, total, p)).mean())
        for p in (1.0, chance)
    ]
    tail = _curve(frame, split, total, chance)
    learnt = tail[tail["round"] == runs.rounds]["learnt rounds"].mean()
    return state(
        f"{name} against SecAgg after {runs.rounds} rounds, {split}, q_total = "
        f"{total:g}",
        # the gap counts points below SecAgg, so its negative must reach -1
        (-gap).reaches(-_CLOSE),
        paper="SecAgg's accuracy",
        ours=f"{gap} points below ({ends[0]:.1f} % and {ends[1]:.1f} %)",
        tolerance=(
            f"95 % interval of {runs.seeds} paired seeds at most {_CLOSE:g} point below"
        ),
        note=(
            f"{learnt:.1f} of {runs.rounds} rounds learnt; "
            f"{_rate(frame, total, chance)}{_others(frame, runs, split, total, chance)}"
        ),
        key=f"{name} against SecAgg, {split}, q_total = {total:g}",
    )


def _rate(frame: pd.DataFrame, total: float, chance: float) -> str:
    """Say how often simulated rounds fail at p."""
    failures = frame[(frame["measure"] == "failure") & (frame["q_total"] == total)]
    row = failures[failures["p"] == chance].iloc[0]
    return (
        f"{int(row['count'])} of {int(row['trials'])} simulated rounds fail "
        f"({row['lower']:.2g} to {row['upper']:.2g}; Theorem 5: {row['theorem 5']:.2g})"
    )


def _failing(runs: Runs, chance: float) -> str:
    """Return the share of rounds that fail at p for each q_total of Figure 3."""
    n, t, seed = runs.num_clients, runs.shares(chance), runs.context.seed
    rates = {
        q: secagg.failure_rates(
            seed, n, chance, step_rate(q), t, runs.trials
        ).unreliable.rate
        for q in TOTALS
    }
    return ", ".join(
        f"{100 * rate:.0f} % (q_total = {total:g})" for total, rate in rates.items()
    )


def _others(
    frame: pd.DataFrame, runs: Runs, split: str, total: float, chance: float
) -> str:
    """Give the gaps of sparser graphs, where p itself is claimed to be enough."""
    parts = [
        f"p = {p:g}: {_below(frame, split, total, p)} points below"
        for p in runs.chances
        if p < chance
    ]
    return f". Sparser: {', '.join(parts)}" if parts else ""


def _degraded(frame: pd.DataFrame, runs: Runs) -> Check:
    """Judge that few classes of a client cost accuracy (Appendix G.2.1)."""
    even, skew = (
        late_accuracy(_curve(frame, split, runs.totals[0], 1.0))
        for split in runs.splits
    )
    gap = difference(even, skew)
    return state(
        f"SecAgg with {next(reversed(runs.splits))} against IID",
        gap.exceeds(0),
        key="SecAgg with two shards a client against IID",
        paper="degraded",
        ours=f"{gap} points below",
        tolerance="95 % interval above 0",
    )


def _printed_shares() -> Check:
    """Judge the two printed shares of resources by Appendix D.1's count."""
    enough, threshold = (100 * bandwidth_share(1000, p) for p in (0.25, _PRINTED_P))
    return state(
        "resources of CCESA(1000, 0.25) over SecAgg's",
        # the text and the caption contradict each other: either will do
        min(abs(enough - printed) for printed in (50, 75)) <= 1,
        depends=(),  # of n = 1000
        paper="50 % (text), 75 % (caption)",
        ours=f"{enough:.1f} % of the bandwidth (Appendix D.1)",
        tolerance="within 1 point of either",
        otherwise="paper errs",
        of_data=False,
        note=(
            "the two contradict each other and the paper's own count, in proportion to "
            f"n p; the caption's 75 % is what is saved. At p* it is {threshold:.1f} %"
        ),
    )


def _theorem_5(frame: pd.DataFrame) -> Check:
    """Judge the bound where it says anything: inside its domain, below 1."""
    bounded = frame[(frame["measure"] == "failure") & (frame["theorem 5"] < 1)]
    # a bound is refuted only where the interval lies above it
    above = bounded[bounded["lower"] > bounded["theorem 5"]]
    # rates of fewer than 20 events are too uncertain for a ratio
    ratio = (bounded["theorem 5"] / bounded["rate"])[bounded["count"] >= 20]
    spread = (
        f", {ratio.min():.1f} to {ratio.max():.0f} times the rate" if len(ratio) else ""
    )
    return state(
        "Theorem 5 over simulated rounds",
        above.empty,
        depends=(),
        paper="a bound on the chance of an unreliable round",
        ours=(
            f"above the rate at {len(bounded) - len(above)} of {len(bounded)} values "
            f"of p{spread}"
        ),
        tolerance="lower ends of 95 % intervals",
    )


def _same(runs: Runs, chance: float, name: str) -> Check:
    """Judge that a sum learnt over a sparse graph is SecAgg's."""
    rounds = 3
    same = runs.same_model(chance, rounds)
    return state(
        f"model after {rounds} learnt rounds at {name} and at p = 1",
        same,
        depends=(),
        paper="the same sum",
        ours="equal bits" if same else "differ",
        note="so trainings in which the same rounds are learnt are run once",
    )


def _caption(runs: Runs, frame: pd.DataFrame, printed_data: str, threshold: str) -> str:
    experiment, trainer = runs.experiment(next(iter(runs.splits))), runs.trainer
    sizes = experiment.clients(0).sizes
    momentum = (
        "" if trainer.momentum is None else f", momentum {float(trainer.momentum):g}"
    )
    clipped = float(frame["most clipped"].max())
    return (
        f"{runs.context.images.name} ({printed_data} in the paper): {runs.num_clients} "
        f"clients of {int(sizes.min())} to {int(sizes.max())} training samples, all "
        f"asked in every round; a model of {experiment.dim} parameters, "
        f"{trainer.num_epochs} local epochs, rate "
        f"{float(trainer.learning_rate):g}{momentum}, batch {trainer.batch_size}, "
        f"{runs.rounds} rounds, {runs.seeds} paired seeds, "
        f"{threshold}.{bands(runs.seeds)} A round whose sum cannot be unmasked leaves "
        "the model alone. Right: share of simulated rounds that fail, with "
        f"Clopper-Pearson 95 % intervals, {runs.trials} rounds each, a new graph in "
        f"each; triangles: none failed. At most {100 * clipped:.2g} % of a round's "
        "update entries were clipped."
    )


def draw_reliability(figure: Figure, data: pd.DataFrame) -> None:
    """Draw accuracy over rounds for several p, and the failure rates."""
    tests = data[data["measure"] == "accuracy"].copy()
    tests["curve"] = [_curve_name(p) for p in tests["p"]]
    panels = list(tests.groupby(["split", "q_total"], sort=False))
    figure.set_size_inches(4.4 * (len(panels) + 1) + 0.6, 4.1)
    *curve_axes, right = figure.subplots(1, len(panels) + 1)
    for k, (ax, ((split, total), rows)) in enumerate(
        zip(curve_axes, panels, strict=True)
    ):
        draw_seed_curves(ax, rows, curve="curve")
        ax.set_title(f"{split}, $q_{{total}}$ = {total:g}")
        if k:
            ax.set_ylabel("")
            ax.sharey(curve_axes[0])
    curve_axes[-1].legend(loc="center right")
    _draw_rates(right, data[data["measure"] == "failure"])
    right.set_title("Rounds that fail")


def _curve_name(p: float) -> str:
    if p == 1:
        return "SecAgg (p = 1)"
    return f"p = {p:g}" if round(p, 2) == p else f"p* = {p:.4f}"


def _draw_rates(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of simulated rounds that fail over p, and its bounds."""
    for i, (total, rows) in enumerate(data.groupby("q_total")):
        curve, colour = rows.sort_values("p"), _COLOURS[i % 6]
        # a rate of zero has no place on a log axis
        failed, none = curve[curve["count"] > 0], curve[curve["count"] == 0]
        # error bars are lengths from the rate, not ends
        reach = np.stack(
            [failed["rate"] - failed["lower"], failed["upper"] - failed["rate"]]
        )
        ax.errorbar(
            failed["p"],
            failed["rate"],
            yerr=reach,
            color=colour,
            ls="none",
            capsize=2.5,
            marker=MARKERS[i % 6],
            ms=5,
            lw=1.2,
            label=f"simulated, $q_{{total}}$ = {total:g}",
        )
        ax.plot(
            none["p"],
            none["upper"],
            marker=7,
            ls="none",
            ms=7,
            mfc="none",
            color=colour,
        )
        ax.plot(curve["p"], curve["exact union"], color=colour, lw=1.4)
        ax.plot(curve["p"], curve["theorem 5"], color=colour, lw=1.4, ls="--")
    for look, label in (("-", "exact union bound"), ("--", "Theorem 5")):
        ax.plot([], [], color="#444444", lw=1.4, ls=look, label=label)
    if (data["count"] == 0).any():
        label = "none failed: end of the interval"
        ax.plot(
            [], [], marker=7, ls="none", ms=7, mfc="none", color="#444444", label=label
        )
    ax.set_yscale("log")
    ax.set(
        xlabel="connection probability p",
        ylabel="share of rounds that fail (log axis)",
        ylim=(1e-5, 2),
    )
    ax.legend(loc="best")
