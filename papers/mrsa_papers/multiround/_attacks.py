"""Figure 9 of Multi-RoundSecAgg, Figure 8 of its 2021 text, and two new figures.

So, Ali, Guler, Jiao, Avestimehr, Appendix H.2: N = 40, K = 8, the sums of 40
consecutive rounds late in a training, solved by least squares. The 2021 text solves for
the clients' models, the AAAI text for their updates: models differ little, so their
relative error says little of a single one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Stated,
    interval,
    is_data_of,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import MARKERS, SHADES, scheme_colour, short
from mrsa_papers.multiround import _windows as played
from mrsa_papers.multiround._windows import RANDOM, RECOVERED, Plan, label_of

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd


SMALL = 0.05
"""Mean relative squared error below which a server has the updates.

The paper found 6.7e-3.
"""

SLOW = 0.001
FROZEN = "updates that do not change"
SLOW_RATE = f"learning rate {SLOW:g} times as large in the window"
OWN_RATE = "the training's own learning rate"

_LARGE = 2**20  # parameters from which on windows are solved one at a time

_BEFORE_UPDATES, _BEFORE_MODELS = 1_460, 260
"""Rounds before the window in Figure 9, and in Figure 8 of 2021."""

_UPDATES = Plan(
    "lenet",
    "shards_with_shared",
    50_000,
    50,
    0.03,
    True,
    60,
    (40, 60),
    3,
    (1, 2, 4),
    (1.0, SLOW),
)
_MODELS = Plan("cnn", "iid", 60_000, 100, 0.03, False, 40, (40,), 2, (1, 2))


def updates_over_a_window(context: Context) -> Found:
    """Return Figure 9.

    The error of each client's update, random selection against blocks.
    """
    plan = _UPDATES
    if context.fast:
        plan = dataclasses.replace(
            plan, model="logistic", before=40, seeds=2, targets=(1, 2)
        )
    frame = _solved(context, plan, "Figure 9")
    # a window of N rounds, as in the paper, and a longer one
    short, long = (
        _regimes(frame[frame["rounds"] == length]) for length in plan.lengths
    )
    number, hidden = (
        _printed(context, "cifar10", printed) for printed in ("6.715e-3", "0.7829")
    )
    checks = [_recovered(means, words, number) for words, means in short.items()]
    for target in plan.targets[1:]:
        checks += [
            _hidden(means, words, target, hidden) for words, means in short.items()
        ]
    # the speed is a factor on the learning rate within the window
    moving = frame[(frame["rounds"] == plan.lengths[0]) & (frame["speed"] == 1.0)]
    checks += [
        _longer(short[OWN_RATE], long[OWN_RATE], plan.lengths),
        _recovered(long[SLOW_RATE], f"{SLOW_RATE}, {plan.lengths[1]} rounds", number),
        _regularised(_means(moving, "regularised"), plan.targets[1:]),
        _exposed(frame),
    ]
    words = _caption(context, plan, frame) + (
        " Updates that do not change: the sums that the server had seen, had every "
        "client sent its first update again."
    )
    return Found(
        tuple(checks), frame, words, _stated(plan, _BEFORE_UPDATES, _UPDATES.model)
    )


def _stated(plan: Plan, before: int, model: str) -> tuple[Stated, ...]:
    """Return the settings that the paper states for a training up to its window."""
    return (
        Stated("rounds before the window", before, plan.before, is_least=True),
        Stated("model", model, plan.model),
    )


def _regimes(window: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    """Return each scheme's mean errors for constant, slow and moving updates."""
    moving, slow = (window[window["speed"] == speed] for speed in (1.0, SLOW))
    return {
        FROZEN: _means(slow, "frozen"),
        SLOW_RATE: _means(slow),
        OWN_RATE: _means(moving),
    }


def models_of_2021(context: Context) -> Found:
    """Return Figure 8 of the 2021 text: the same for the clients' models."""
    plan = _MODELS
    if context.fast:
        plan = dataclasses.replace(plan, model="logistic", before=20)
    frame = _solved(context, plan, "Figure 8 of 2021", of_models=True)
    means, still, two = _means(frame), _means(frame, "frozen"), label_of(2)
    guess = _means(frame, "unattacked")[RANDOM]
    number = _printed(context, "mnist", "1.72e-3")
    checks = (
        *(
            state(
                f"mean error of random selection, {words}",
                max(frame_of_model[RANDOM]) < SMALL,
                paper=f"{number}reconstructed",
                ours=_words(frame_of_model[RANDOM]),
                tolerance="each seed under 0.05",
            )
            for words, frame_of_model in (
                ("models that do not change", still),
                (OWN_RATE, means),
            )
        ),
        state(
            "a small error of models shows that T = 1",
            min(still[two]) > SMALL,
            paper="so the server can reconstruct all local models, as T = 1",
            ours=f"T = 2, models that do not change: {_words(still[two])}",
            tolerance="each seed of T = 2 over 0.05",
            otherwise="undecided" if context.fast else "paper errs",
            note=(
                "models of a round are nearly one: the mean of a block is near each of "
                "its clients' models, which T = 2 hides; the AAAI text measures "
                "updates instead"
            ),
        ),
        state(
            "the attack finds models better than the global model does",
            max(means[RANDOM]) < min(guess),
            paper=f"{number}not discussed",
            ours=(
                f"least squares {_words(means[RANDOM])}; the global model instead of "
                f"each client's {_words(guess)}"
            ),
            tolerance="each seed",
            note=(
                "everybody has the global model: an error above its own shows nothing "
                "of a single client, and a small one needs no attack"
            ),
        ),
    )
    words = _caption(context, plan, frame) + (
        " Error: of the model that each client would send at the window's start. "
        "Dotted: the error of the global model, which the server has anyway. The "
        "paper's mean is 1.72e-3."
    )
    return Found(checks, frame, words, _stated(plan, _BEFORE_MODELS, _MODELS.model))


def _solved(
    context: Context, plan: Plan, name: str, *, of_models: bool = False
) -> pd.DataFrame:
    """Return a row for each client, scheme, speed, length and seed.

    Items that ask for the same plan share its trainings.
    """

    def made() -> pd.DataFrame:
        rows: list[dict[str, Any]] = []
        waiting: list[played.Window] = []
        start: Any = None
        # targets change fastest: all windows of a seed and a speed come in a row
        jobs = itertools.product(range(plan.seeds), plan.speeds, plan.targets)
        stage = f"{name}: windows of {plan.lengths[-1]} rounds"
        for trial, speed, target in context.steps(stage, jobs):
            # all windows of a seed start from one training
            if (speed, target) == (plan.speeds[0], plan.targets[0]):
                start = played.trained_start(context, plan, trial)
            window = played.played_window(context, plan, start, target, speed)
            waiting.append(played.of_models(window) if of_models else window)
            # small models are solved together, large ones as soon as they are there
            if target == plan.targets[-1] or len(start.parameters) >= _LARGE:
                for length in plan.lengths:
                    rows += played.rows_of(waiting, length, trial, start.accuracy)
                waiting.clear()
        return rows_to_frame(rows)

    return context.once(("windows", plan, of_models), made)


def _means(frame: pd.DataFrame, column: str = "error") -> dict[str, list[float]]:
    """Return each scheme's mean over clients, a value a seed."""
    table = frame.groupby(["scheme", "seed"], sort=False)[column].mean()
    return {str(name): table[name].tolist() for name in frame["scheme"].unique()}


def _words(values: list[float]) -> str:
    return interval(values).text(".3g")


def _printed(context: Context, data_name: str, number: str) -> str:
    """Return a printed number with its words, if ours is measured on the same data."""
    # a text times a truth value: empty unless it is the same data
    return f"{number}: " * is_data_of(context.images, data_name)


def _recovered(means: dict[str, list[float]], words: str, printed: str = "") -> Check:
    values = means[RANDOM]
    return state(
        f"mean error of random selection, {words}",
        max(values) < SMALL,
        paper=f"{printed}the server reconstructs all updates",
        ours=_words(values),
        tolerance="each seed under 0.05",
    )


def _hidden(
    means: dict[str, list[float]], words: str, target: int, printed: str = ""
) -> Check:
    values = means[label_of(target)]
    return state(
        f"mean error of T = {target}, {words}",
        min(values) > (1 - 1 / target) / 2,
        paper=f"{printed if target == 2 else ''}the server cannot",
        ours=_words(values),
        tolerance="each seed over half of 1 - 1/T",
        note=(
            "1 - 1/T holds of unrelated updates of equal length; it is less where a "
            "block's clients resemble each other, more where their lengths differ"
        )
        if target == 2
        else "",
    )


def _exposed(frame: pd.DataFrame) -> Check:
    """Judge the privacy engine's prediction on updates that do not change."""
    fallen = frame["frozen"] < RECOVERED
    hidden = frame.loc[~frame["exposed"], "frozen"]
    return state(
        "who is predicted exposed is who is recovered, updates that do not change",
        bool((fallen == frame["exposed"]).all()),
        paper="where P has full rank, all updates follow",
        ours=(
            f"{int(fallen.sum())} of {len(frame)} recovered, "
            f"{int(frame['exposed'].sum())} predicted; smallest error of the others "
            f"{hidden.min():.2g}"
        ),
        tolerance=f"exact; recovered: error under {RECOVERED:g}",
    )


def _longer(
    short: dict[str, list[float]],
    long: dict[str, list[float]],
    lengths: tuple[int, ...],
) -> Check:
    # paired by seed
    ratios = np.array(short[RANDOM]) / np.array(long[RANDOM])
    return state(
        f"random selection, sums of {lengths[1]} rounds instead of N = {lengths[0]}",
        bool((ratios > 1).all()),
        paper="not discussed: a window of N rounds",
        ours=(
            f"{_words(long[RANDOM])} instead of {_words(short[RANDOM])}, by factors of "
            f"{ratios.min():.2g} to {ratios.max():.2g}"
        ),
        tolerance="a smaller error in each seed",
        note=(
            "a square random matrix is nearly singular and multiplies what moves; some "
            "more rounds help the server although updates move on in them"
        ),
    )


def _regularised(means: dict[str, list[float]], targets: tuple[int, ...]) -> Check:
    random = np.array(means[RANDOM])
    # paired by seed, the nearest of all T
    worst = min(float((np.array(means[label_of(t)]) - random).min()) for t in targets)
    return state(
        "a regularised server learns more of random selection than of blocks, moving "
        "updates",
        worst > 0,
        ours=", ".join(f"{name} {_words(values)}" for name, values in means.items()),
        tolerance="in each seed, for each T",
        note="the best linear estimate for updates that change by their own deviation",
    )


def _caption(context: Context, plan: Plan, frame: pd.DataFrame) -> str:
    dataset = context.images
    learnt = frame.groupby("rounds")["sums"].agg(["min", "max"])
    sums = ", ".join(f"{low} to {high} of {w}" for w, (low, high) in learnt.iterrows())
    # .4 twice
    fall = " falling to .16 of itself" if plan.decays else ""
    speeds = ""
    if len(plan.speeds) > 1:
        rates = ", ".join(f"{speed:g}" for speed in plan.speeds)
        speeds = f" Learning rate in the window: times {rates}."
    return (
        f"{_MODELS_IN_WORDS[plan.model]} on {dataset.name} (accuracy "
        f"{100 * frame['accuracy'].mean():.0f} %), {plan.num_clients} clients "
        f"({plan.split.replace('_', ' ')}), {plan.cohort_size} per round, dropout "
        f"rates .1 to .5 shuffled over the clients by each seed, {plan.seeds} seeds. "
        f"{plan.before} rounds of random selection at the rate {plan.rate:g}{fall}; "
        f"from there every scheme goes on at a rate that stays.{speeds} Sums learnt: "
        f"{sums} rounds. Motion: by how much of its length a client's update changes "
        f"up to rounds {plan.lengths[-1] // 2} and {plan.lengths[-1]} of the window, "
        "root mean square. Rounding to the ring's codes adds "
        f"{frame['rounding'].max():.1g} of a sum's length, clipping "
        f"{100 * frame['clipped'].max():.2g} % of its entries at most."
    )


_MODELS_IN_WORDS = {
    "lenet": "LeNet",
    "cnn": "The CNN",
    "logistic": "Softmax regression",
}


def draw_errors(figure: Figure, data: pd.DataFrame) -> None:
    """Draw clients' errors by scheme: frozen, slow and moving, one row per window."""
    lengths = sorted(data["rounds"].unique())
    speeds = sorted(data["speed"].unique())
    figure.set_size_inches(4.6 * (1 + len(speeds)), 3.3 * len(lengths))
    grid = figure.subplots(
        len(lengths), 1 + len(speeds), squeeze=False, sharex=True, sharey=True
    )
    for axes, length in zip(grid, lengths, strict=True):
        rows = data[data["rounds"] == length]
        panels = [
            ("updates that do not change", rows[rows["speed"] == speeds[0]], "frozen")
        ]
        for speed in speeds:
            words = "own learning rate" if speed == 1 else f"learning rate x {speed:g}"
            panels.append((words, rows[rows["speed"] == speed], "error"))
        for ax, (words, panel, column) in zip(axes, panels, strict=True):
            plotting.plot_error_histogram(panel, column=column, ax=ax).legend(
                loc="best"
            )
            ax.set_title(f"{length} rounds, {words}")
            ax.set(xlabel=ax.get_xlabel() if length == lengths[-1] else "", ylabel="")
        axes[0].set_ylabel("clients (%)")


def draw_errors_of_models(figure: Figure, data: pd.DataFrame) -> None:
    """Draw errors of clients' models, frozen and moving, and of the global model."""
    figure.set_size_inches(10.4, 3.8)
    panels = (
        ("frozen", "models that do not change"),
        ("error", "models of the training"),
    )
    for ax, (column, words) in zip(
        figure.subplots(1, 2, sharey=True), panels, strict=True
    ):
        plotting.plot_error_histogram(data, column=column, ax=ax)
        guess = data["unattacked"].mean()
        ax.axvline(
            guess, color="#D55E00", ls=":", lw=1.6, label=f"global model: {guess:.2g}"
        )
        ax.legend(fontsize=8, loc="upper right")
        ax.set_title(words)


# A figure of our own: the error of least squares against motion, T and the
# window's length.

_MOTION = Plan(
    "logistic",
    "shards",
    60_000,
    100,
    0.03,
    False,
    100,
    (40, 45, 50, 60, 80),
    5,
    (1, 2, 4, 8),
    (1.0, 0.1, 0.01, SLOW),
)


def error_against_motion(context: Context) -> Found:
    """Return the error against the speed of models, T and the window's length."""
    plan = _MOTION
    if context.fast:
        plan = dataclasses.replace(
            plan,
            before=30,
            lengths=(40, 60),
            seeds=2,
            targets=(1, 2),
            speeds=(1.0, SLOW),
        )
    clients = _solved(context, plan, "Motion")
    each = ["scheme", "target", "speed", "rounds", "seed"]
    frame = clients.groupby(each, sort=False).mean(numeric_only=True).reset_index()
    return Found(
        (*_of_motion(frame, plan), _exposed_in_motion(clients, plan)),
        frame.drop(columns=["client"]),
        _caption(context, plan, clients)
        + " A small mark is a seed (mean over clients), a line "
        "joins means of logarithms over seeds; dashed: updates that do not change, "
        "which random "
        "selection gives away altogether.",
    )


def _of_motion(frame: pd.DataFrame, plan: Plan) -> Iterator[Check]:
    first, last = plan.lengths[0], plan.lengths[-1]
    window = frame[frame["rounds"] == first]
    fast, slow = (window[window["speed"] == speed] for speed in (1.0, SLOW))
    still = frame[(frame["rounds"] == last) & (frame["speed"] == SLOW)]
    frozen, ours = _means(still, "frozen"), _means(still)
    gaps = [
        abs(a - b)
        for name in ours
        for a, b in zip(ours[name], frozen[name], strict=True)
    ]
    blocks = frame[frame["target"] > 1].groupby(["target", "speed", "rounds", "seed"])
    least = blocks["error"].mean()
    short = _means(fast)
    long = _means(frame[(frame["rounds"] == last) & (frame["speed"] == 1.0)])
    yield state(
        f"where models hardly move, the error is that of frozen ones, sums of {last} "
        "rounds",
        max(gaps) < SMALL,
        paper="updates do not change much across the rounds",
        ours=f"largest difference {max(gaps):.2g} at a relative motion of "
        f"{slow['motion'].mean():.2g}",
        tolerance="within 0.05 for each scheme and seed",
    )
    yield state(
        f"where models move as in training, {first} rounds of random selection tell "
        "nothing",
        min(short[RANDOM]) > 1,
        ours=(
            f"{_words(short[RANDOM])} at a relative motion of "
            f"{fast['motion'].mean():.2g}"
        ),
        tolerance="error over 1, that of no estimate at all, in each seed",
        note=(
            f"the inverse of a {first} x {plan.num_clients} matrix multiplies the "
            f"motion's square by {_quantiles(window)}"
        ),
    )
    yield _longer(short, long, (first, last))
    yield _amplified(frame)
    yield state(
        "blocks of T hide their clients at any motion and length",
        bool((least > (1 - 1 / least.index.get_level_values("target")) / 2).all()),
        paper="the best the server can do is a block's sum",
        ours=f"smallest mean error {least.min():.2g}",
        tolerance="over half of 1 - 1/T in each seed",
    )


def _exposed_in_motion(clients: pd.DataFrame, plan: Plan) -> Check:
    """Judge the privacy engine's prediction on updates that hardly move."""
    slow = clients[(clients["rounds"] == plan.lengths[-1]) & (clients["speed"] == SLOW)]
    fallen = slow["error"] < SMALL
    exposed, others = (
        float(fallen[slow["exposed"]].mean()),
        float(fallen[~slow["exposed"]].mean()),
    )
    return state(
        f"who is predicted exposed is who is recovered, {SLOW_RATE}",
        exposed > 0.95 and others < 0.05,
        ours=f"{100 * exposed:.3g} % of {int(slow['exposed'].sum())} exposed clients, "
        f"{100 * others:.2g} % of {int((~slow['exposed']).sum())} others",
        tolerance=f"over 95 % and under 5 %; recovered: error under {SMALL:g}, sums of "
        f"{plan.lengths[-1]} rounds",
        note="two like clients in a block give each other away without being exposed",
    )


def _amplified(frame: pd.DataFrame) -> Check:
    """Judge what leverage and motion predict of random selection's error."""
    random = frame[frame["scheme"] == RANDOM]
    random = random.assign(
        expected=random["predicted"] + random["motion"] ** 2 * random["gain"]
    )
    # means over clients, as a single ratio varies by orders of magnitude
    means = random.groupby(["speed", "rounds", "seed"])[["error", "expected"]].mean()
    ratio = means["error"] / means["expected"]
    return state(
        "1 - leverage + motion^2 x gain of the inverse predicts random selection's "
        "error",
        bool(1 / 3 < ratio.median() < 3),
        ours=f"measured over predicted: {ratio.min():.2g} to {ratio.max():.2g}, median "
        f"{ratio.median():.2g}",
        tolerance="median over seeds, rates and lengths within a factor of 3",
        note=(
            "as if updates changed by independent noise from sum to sum; they drift, "
            "too"
        ),
    )


def _quantiles(window: pd.DataFrame) -> str:
    gains = window[window["scheme"] == RANDOM].groupby(["speed", "seed"])["gain"].mean()
    return f"{gains.min():.0f} to {gains.max():.0f}"


def draw_motion(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the error against motion by T, and for random selection by window length."""
    figure.set_size_inches(11.5, 4.2)
    by_target, right = figure.subplots(1, 2, sharex=True, sharey=True)
    first = data["rounds"].min()
    _draw_error(by_target, data[data["rounds"] == first])
    _draw_error(right, data[data["target"] == 1], by="rounds")
    by_target.set_title(f"Windows of {first} rounds (dashed: no motion)")
    right.set_ylabel("")
    right.set_title("Random selection, windows of other lengths")


def _draw_error(ax: Axes, data: pd.DataFrame, by: str = "scheme") -> None:
    """Draw the mean error against the motion of updates by scheme or window."""
    from matplotlib.ticker import NullFormatter

    for place, (value, rows) in enumerate(data.groupby(by, sort=False)):
        is_scheme, marker = by == "scheme", MARKERS[place % len(MARKERS)]
        colour = (
            scheme_colour(str(value)) if is_scheme else SHADES[-1 - place % len(SHADES)]
        )
        label = short(str(value)) if is_scheme else f"{value} rounds"
        seeds = rows.groupby(["speed", "seed"])[["motion", "error", "frozen"]].mean()
        # geometric means, as both axes are logarithmic
        logs = seeds[["motion", "error"]].transform(np.log)
        middle = logs.groupby("speed").mean().transform(np.exp)
        words: dict[str, Any] = {"color": colour, "marker": marker}
        ax.plot(middle["motion"], middle["error"], lw=1.4, ms=5, label=label, **words)
        ax.plot(seeds["motion"], seeds["error"], ls="", ms=2.5, alpha=0.4, **words)
        still = seeds["frozen"].mean()
        # errors of exposed clients are rounding, and would stretch the axis
        if still > 1e-6:
            ax.axhline(still, color=colour, ls="--", lw=0.9)
    ax.axhline(1, color="#777777", lw=0.8, ls=":")
    ax.set(
        xscale="log", yscale="log", xlabel="relative motion of an update in the window"
    )
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel("mean relative squared error")
    ax.legend(fontsize=8)
