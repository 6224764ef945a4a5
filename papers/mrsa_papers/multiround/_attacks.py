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
    Values,
    interval,
    is_data_of,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import MARKERS, SHADES, scheme_colour, short
from mrsa_papers.harness._rows import DATA
from mrsa_papers.harness._settings import shown
from mrsa_papers.multiround import _windows as played
from mrsa_papers.multiround._windows import RANDOM, RECOVERED, Plan, label_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd


SMALL = 0.05
"""Mean relative squared error below which a server has the updates.

The paper found 6.7e-3.
"""

_FEW = 5
"""Seeds whose errors are written one by one."""

FROZEN = "updates that do not change"
OWN_RATE = "the training's own learning rate"

_LARGE = 2**20  # parameters from which on windows are solved one at a time

_REGIME = (
    "num_clients",
    "cohort_size",
    "dropout_rates",
    "rounds_before",
    "window",
    "batch_size",
    "partition",
    "model",
)
"""Settings that the paper's errors are of, whichever T are solved besides."""


def _slow_rate(factor: float) -> str:
    return f"learning rate {factor:g} times as large in the window"


def updates_over_a_window(context: Context, settings: Values) -> Found:
    """Return Figure 9.

    The error of each client's update, random selection against blocks.
    """
    lengths = (settings.window, settings.longer_window)
    rule = f"must be longer than window, {lengths[0]} rounds"
    require(lengths[0] < lengths[1], "longer_window", rule, lengths[1])
    plan = Plan.of(
        settings,
        DATA["cifar10"].samples,
        lengths=lengths,
        targets=settings.privacy_targets,
        decays=True,
        speeds=(1.0, settings.slow_factor),
    )
    frame = _solved(context, plan, "Figure 9")
    # a window of N rounds, as in the paper, and a longer one
    short, long = (
        _regimes(frame[frame["rounds"] == length], plan.speeds)
        for length in plan.lengths
    )
    number, hidden = (
        _printed(context, settings, "cifar10", printed)
        for printed in ("6.715e-3", "0.7829")
    )
    checks = [_recovered(means, words, number) for words, means in short.items()]
    for target in plan.targets[1:]:
        checks += [
            _hidden(means, words, target, hidden) for words, means in short.items()
        ]
    # the speed is a factor on the learning rate within the window
    moving = frame[(frame["rounds"] == plan.lengths[0]) & (frame["speed"] == 1.0)]
    slow = _slow_rate(settings.slow_factor)
    checks += [
        _longer(short[OWN_RATE], long[OWN_RATE], plan.lengths),
        _recovered(long[slow], f"{slow}, {plan.lengths[1]} rounds"),
        _regularised(_means(moving, "regularised"), plan.targets[1:]),
        _exposed(frame),
    ]
    words = _caption(context, plan, frame) + (
        " Updates that do not change: the sums that the server had seen, had every "
        "client sent its first update again."
    )
    words += _both_windows(context, plan, frame, settings.early_rounds)
    return Found(tuple(checks), frame, words)


def _regimes(
    window: pd.DataFrame, speeds: tuple[float, ...]
) -> dict[str, dict[str, list[float]]]:
    """Return each scheme's mean errors for constant, slow and moving updates."""
    moving, slow = (window[window["speed"] == speed] for speed in speeds)
    return {
        # tiny updates are rounding in float32, so those of the training are held still
        FROZEN: _means(moving, "frozen"),
        _slow_rate(speeds[1]): _means(slow),
        OWN_RATE: _means(moving),
    }


def models_of_2021(context: Context, settings: Values) -> Found:
    """Return Figure 8 of the 2021 text: the same for the clients' models."""
    target = settings.privacy_target
    plan = Plan.of(
        settings,
        DATA["mnist"].samples,
        lengths=(settings.window,),
        targets=(target,),
    )
    frame = _solved(context, plan, "Figure 8 of 2021", of_models=True)
    means, still = _means(frame), _means(frame, "frozen")
    blocks = still[label_of(target)]
    guess = _means(frame, "unattacked")[RANDOM]
    number = _printed(context, settings, "mnist", "1.72e-3")
    checks = (
        *(
            state(
                f"mean error of random selection, {words}",
                max(frame_of_model[RANDOM]) < SMALL,
                paper=f"{number}reconstructed",
                ours=_words(frame_of_model[RANDOM]),
                tolerance="each seed under 0.05",
                depends=_REGIME,
            )
            for words, frame_of_model in (
                ("models that do not change", still),
                (OWN_RATE, means),
            )
        ),
        state(
            "a small error of models shows that T = 1",
            min(blocks) > SMALL,
            paper="so the server can reconstruct all local models",
            ours=f"T = {target}, models that do not change: {_words(blocks)}",
            tolerance=f"each seed of T = {target} over 0.05",
            otherwise="paper errs",
            note=(
                "models of a round are nearly one: the mean of a block is near each of "
                f"its clients' models, which T = {target} hides; the AAAI text "
                "measures updates instead"
            ),
            depends=_REGIME,
        ),
        state(
            "the attack finds models better than the global model does",
            max(means[RANDOM]) < min(guess),
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
        "Dotted: the error of the global model, which the server has anyway."
    )
    early = settings.early_rounds
    words += _both_windows(context, plan, frame, early, of_models=True)
    return Found(checks, frame, words)


def _solved(
    context: Context, plan: Plan, name: str, *, of_models: bool = False
) -> pd.DataFrame:
    """Return a row for each client, scheme, speed, length and seed.

    Items that ask for the same plan share its trainings.
    """
    plan.setting.experiment(context, plan.rate).check()
    context.begin()

    def made() -> pd.DataFrame:
        rows: list[dict[str, Any]] = []
        waiting: list[played.Window] = []
        start: Any = None
        # targets change fastest: all windows of a seed and a speed come in a row
        jobs = itertools.product(range(plan.seeds), plan.speeds, plan.targets)
        windows = len(plan.speeds) * len(plan.targets) * plan.lengths[-1]
        context.expect(plan.seeds * (plan.before + windows))
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


def _both_windows(
    context: Context,
    plan: Plan,
    frame: pd.DataFrame,
    early: int,
    *,
    of_models: bool = False,
) -> str:
    """Compare random selection's errors with those of a window that begins earlier."""
    if early in (0, plan.before):
        return ""
    sooner = dataclasses.replace(
        plan, before=early, lengths=plan.lengths[:1], targets=(1,), speeds=(1.0,)
    )
    other = _solved(context, sooner, "An earlier window", of_models=of_models)
    at_once = (frame["rounds"] == plan.lengths[0]) & (frame["speed"] == 1.0)
    parts = []
    for window, before in ((frame[at_once], plan.before), (other, early)):
        random = window[window["scheme"] == RANDOM].groupby("seed")
        errors = ", ".join(f"{value:.3g}" for value in random["error"].mean())
        motions = random["motion"].first()
        parts.append(
            f"{errors} in a window after {before:,} rounds (motion "
            f"{motions.min():.2g} to {motions.max():.2g}, gain of the inverse "
            f"{random['gain'].mean().min():.0f} to {random['gain'].mean().max():.0f})"
        )
    return (
        f" Mean errors of random selection over {plan.lengths[0]} rounds by seed, "
        f"{OWN_RATE}: {'; '.join(parts)}."
    )


def _means(frame: pd.DataFrame, column: str = "error") -> dict[str, list[float]]:
    """Return each scheme's mean over clients, a value a seed."""
    table = frame.groupby(["scheme", "seed"], sort=False)[column].mean()
    return {str(name): table[name].tolist() for name in frame["scheme"].unique()}


def _words(values: list[float]) -> str:
    """Return the values of few seeds, as verdicts of these items are of each seed."""
    if len(values) > _FEW:
        return interval(values).text(".3g")
    return ", ".join(f"{value:.3g}" for value in values)


def _printed(context: Context, settings: Values, data_name: str, number: str) -> str:
    """Return a printed number with its words, if ours is of the same data and settings."""
    is_same = settings.are_papers and is_data_of(context.images, data_name)
    return f"{number}: " if is_same else ""


def _recovered(means: dict[str, list[float]], words: str, printed: str = "") -> Check:
    values = means[RANDOM]
    return state(
        f"mean error of random selection, {words}",
        max(values) < SMALL,
        paper=f"{printed}the server reconstructs all updates",
        ours=_words(values),
        tolerance="each seed under 0.05",
        depends=_REGIME,
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
        depends=_REGIME,
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
        depends=(),
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
        paper="not discussed: one window",
        ours=(
            f"{_words(long[RANDOM])} instead of {_words(short[RANDOM])}, by factors of "
            f"{ratios.min():.3g} to {ratios.max():.3g}"
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
        ours="; ".join(f"{name} {_words(values)}" for name, values in means.items()),
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
        f"{100 * frame['accuracy'].mean():.0f} %), {plan.population}, {plan.seeds} "
        "seeds. "
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
    "smooth_lenet": "The small LeNet of Zhu et al.",
    "cnn": "The CNN",
    "vgg11": "VGG-11",
    "mlp": "An MLP",
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
            # of the training's own rate, as in the verdicts
            ("updates that do not change", rows[rows["speed"] == speeds[-1]], "frozen")
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


def error_against_motion(context: Context, settings: Values) -> Found:
    """Return the error against the speed of models, T and the window's length."""
    lengths, factors = settings.window_lengths, settings.rate_factors
    for name, values in (("window_lengths", lengths), ("rate_factors", factors)):
        is_sorted = tuple(sorted(set(values), reverse=name != "window_lengths"))
        rule = "must have two values or more, in order"
        require(is_sorted == values and len(values) > 1, name, rule, shown(values))
    rule = "must begin with 1, the training's own rate"
    require(factors[0] == 1.0, "rate_factors", rule, shown(factors))
    plan = Plan.of(
        settings,
        DATA["mnist"].samples,
        lengths=lengths,
        targets=settings.privacy_targets,
        speeds=factors,
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
    slowest = plan.speeds[-1]
    fast, slow = (window[window["speed"] == speed] for speed in (1.0, slowest))
    still = frame[(frame["rounds"] == last) & (frame["speed"] == slowest)]
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
    slowest = plan.speeds[-1]
    is_last = clients["rounds"] == plan.lengths[-1]
    slow = clients[is_last & (clients["speed"] == slowest)]
    fallen = slow["error"] < SMALL
    exposed, others = (
        float(fallen[slow["exposed"]].mean()),
        float(fallen[~slow["exposed"]].mean()),
    )
    return state(
        f"who is predicted exposed is who is recovered, {_slow_rate(slowest)}",
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
