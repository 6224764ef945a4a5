"""Figure 4a of Multi-RoundSecAgg with bounds and proofs, the printed estimate, leaks.

T is the weak privacy of Remark 1, as in the paper's figure: the fewest clients in any
non-zero combination of the sums so far.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import privacy, selection
from mrsa_papers.harness._context import Context, rows_to_frame, schemes_for, targets_of
from mrsa_papers.harness._figures import by_scheme, legend
from mrsa_papers.harness._items import Check, Found, Stated, state
from mrsa_papers.multiround._echelon import echelon_estimate

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_RANDOM = ("Random", "Weighted random")
_ALL = "all trials and rounds"
_CLIENTS = 120  # N in the paper


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Trials of one scheme with bounds of T after each round.

    Attributes:
        history: bool[B, J, N].
        lower: int32[B, J], -1 while no client took part.
        upper: int32[B, J].
    """

    history: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def bounded(context: Context) -> dict[str, Bounded]:
    """Return trials of the six schemes with bounds.

    The paper's, or half as many clients.
    """
    n, rounds, trials = (60, 90, 4) if context.fast else (_CLIENTS, 160, 20)

    def made() -> dict[str, Bounded]:
        bounds, online = {}, context.online(n)
        schemes = schemes_for(n).items()
        for label, selector in context.steps("Figure 4a: bounds of T", schemes):
            history = selection.rollout_trials(
                context.seed, selector, online, rounds, trials
            )
            curves = privacy.weak_privacy_trajectory(history, method="bounds")
            bounds[label] = Bounded(
                *map(np.asarray, (history, curves.lower, curves.upper))
            )
        return bounds

    return context.once("bounded", made)


def certified(context: Context) -> dict[str, Any]:
    """Return certified trajectories of the first trial of three schemes."""
    labels = (*_RANDOM, "Multi-RoundSecAgg (T=3)")
    histories = {label: bounded(context)[label].history[0] for label in labels}

    def made() -> dict[str, Any]:
        by_label: dict[str, Any] = {}
        for label, history in context.steps(
            "Figure 4a: certificates", histories.items()
        ):
            by_label[label] = privacy.weak_privacy_trajectory(
                history,
                method="certified",
                effort=0.2 if context.fast else 4.0,
                # a sign of life from inside a search, and where an interrupt is seen
                progress=lambda *_: context.progress.update(len(by_label), len(labels)),
            )
        return by_label

    return context.once("certified", made)


def privacy_over_rounds(context: Context) -> Found:
    """Return Figure 4a.

    T over rounds as proven intervals, the published estimate beside it.
    """
    trials = bounded(context)
    rows = []
    for label, bounds in trials.items():
        estimates = np.stack([echelon_estimate(history) for history in bounds.history])
        for panel, low, high in (
            ("bounds", bounds.lower, bounds.upper),
            ("echelon estimate", estimates, estimates),
        ):
            for j, (least, most) in enumerate(
                zip(_means(low), _means(high), strict=True)
            ):
                row = {"panel": panel, "scheme": label, "rounds": j + 1}
                rows.append(row | {"lower": least, "upper": most})
    for label, curve in certified(context).items():
        for j in np.flatnonzero(np.asarray(curve.upper) > 0).tolist():
            row = {"panel": "one history", "scheme": label, "rounds": j + 1}
            rows.append(
                row | {"lower": float(curve.lower[j]), "upper": float(curve.upper[j])}
            )
    n = trials["Random"].history.shape[-1]
    count = len(trials["Random"].history)
    checks = [_falls_to_one(label, trials[label], n) for label in _RANDOM]
    checks += [_falls_sharply(label, certified(context)[label], n) for label in _RANDOM]
    checks.append(_for_ever(trials["User partition"]))
    targets = targets_of(schemes_for()).items()
    checks += [_settles(label, t, trials[label]) for label, t in targets if 1 < t < 12]
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        f"Weak T at N = {n}, K = 12. Left: bounds over {count} trials, means; T lies "
        "in the band, a line is drawn where its edges meet; error chance below 2^-30 a "
        "history. Middle: one history each, with certificates. Right: the smallest row "
        "weight of a floating-point echelon form, as in the published notebooks.",
        (Stated("clients", _CLIENTS, n),),
    )


def _means(values: np.ndarray) -> list[float]:
    """Return the mean over trials after each round.

    Trials in which no client took part so far are omitted.
    """
    part = values > 0
    # -1 stands for trials without a sum
    sums = np.where(part, values, 0).sum(axis=0)
    counts = part.sum(axis=0)
    return [
        float(s / c) if c else float("nan") for s, c in zip(sums, counts, strict=True)
    ]


def _falls_to_one(label: str, bounds: Bounded, n: int) -> Check:
    is_one = bounds.upper == 1
    # 10**6 stands for never, and moves the median up
    first = np.where(is_one.any(axis=1), is_one.argmax(axis=1) + 1, 10**6)
    middle = float(np.median(first))
    return state(
        f"{label}: round from which T = 1",
        n <= middle <= 1.05 * n,
        paper=f"about N = {n} (Remarks 11 and 12)",
        ours=f"median {middle:.0f}, {first.min()} to {first.max()}",
        tolerance="median in [N, 1.05 N]",
        note=(
            "T = 1 is decided exactly: a client's own update is a combination of the "
            "sums"
        ),
    )


def _falls_sharply(label: str, curve: Any, n: int) -> Check:
    """Judge "drops sharply" on one certified history.

    From half of K to 1 within N / 5 rounds.
    """
    lower, upper = np.asarray(curve.lower), np.asarray(curve.upper)
    first_exposed = int(np.argmax(upper == 1)) if (upper == 1).any() else 10**6
    # from the last round with a proof of T >= 6
    width = first_exposed - int(np.flatnonzero(lower >= 6).max(initial=-1))
    # a witness has fewer than 6 clients
    least = first_exposed - int(np.argmax((upper > 0) & (upper < 6)))
    return state(
        f"{label}: rounds from T >= 6 to T = 1",
        width <= n / 5,
        paper="drops sharply",
        ours=f"{width} (after the last round with a proof of T >= 6)",
        tolerance=f"at most N / 5 = {n // 5}",
        otherwise="our reading" if n / 5 < least <= n else "differs",
        note="one history with certificates; the paper gives no number of rounds",
    )


def _for_ever(bounds: Bounded) -> Check:
    part = bounds.upper > 0
    least, most = (
        bounds.lower[part].min(initial=10**6),
        bounds.upper[part].max(initial=-1),
    )
    return state(
        "User partition: T",
        bool(least == most == 12),
        paper="12 for ever",
        ours=f"{least} to {most}" if part.any() else "nobody ever took part",
        tolerance=f"exact, {_ALL}",
    )


def _settles(label: str, target: int, bounds: Bounded) -> Check:
    part = bounds.upper > 0
    least, end = int(bounds.lower[part].min(initial=10**6)), bounds.upper[:, -1]
    return state(
        f"{label}: T never below its target, which it reaches",
        least == target and bool((end == target).all()),
        paper=f"{target}, above random and weighted random",
        ours=f"never below {least}; {int(end.min())} to {int(end.max())} at the end",
        tolerance=f"exact, {_ALL}",
    )


def echelon_against_truth(context: Context) -> Found:
    """Find errors of the published estimate of T, on histories with certificates."""
    rows, checks = [], []
    for label, curve in certified(context).items():
        estimate = echelon_estimate(bounded(context)[label].history[0])
        lower, upper = np.asarray(curve.lower), np.asarray(curve.upper)
        for j in np.flatnonzero(upper > 0):
            row = {"scheme": label, "rounds": int(j) + 1, "lower": int(lower[j])}
            rows.append(row | {"upper": int(upper[j]), "estimate": int(estimate[j])})
        over = (estimate > upper) & (upper > 0)
        worst = int(np.argmax(np.where(upper > 0, estimate - upper, -1)))
        checks.append(
            state(
                f"{label}: rounds in which the estimate is above a proven upper bound "
                "of T",
                not over.any(),
                paper="0, if it is to be T",
                ours=(
                    f"{int(over.sum())} of {int((upper > 0).sum())}; in round "
                    f"{worst + 1} {estimate[worst]} where T <= {upper[worst]}"
                ),
                otherwise="our reading",
                note=(
                    "the bound comes with a combination of sums that has so few "
                    "clients; the estimate is read from notebooks that the paper does "
                    "not cite"
                ),
            )
        )
    checks.append(_exhaustive(context))
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "One history a scheme: band proven bounds of T (a line where they meet), "
        "dashes the smallest row weight of a floating-point reduced row echelon form.",
    )


def _exhaustive(context: Context) -> Check:
    """Count small random histories on which the estimate is wrong; T is exact."""
    n, k, trials = 24, 6, 4 if context.fast else 40
    words = (selection.uniform(n, k), context.online(n), n + 6, trials)
    histories = np.asarray(selection.rollout_trials(context.seed, *words))
    wrong = unproven = 0
    for history in histories:
        curve = privacy.weak_privacy_trajectory(history, method="certified", effort=0.1)
        is_exact = np.asarray(curve.certified) & (np.asarray(curve.upper) > 0)
        unproven += int((~is_exact).sum())
        wrong += bool(
            (
                echelon_estimate(history)[is_exact] > np.asarray(curve.upper)[is_exact]
            ).any()
        )
    return state(
        f"random histories at N = {n}, K = {k} in which the estimate is above T "
        "somewhere",
        wrong == 0,
        paper="0, if it is to be T",
        ours=f"{wrong} of {trials} ({unproven} rounds without certificate left out)",
        otherwise="our reading",
    )


def draw_privacy(figure: Figure, data: pd.DataFrame) -> None:
    """Draw bounds over trials, certificates of one history, and an estimate."""
    figure.set_size_inches(14, 3.9)
    first, middle, right = figure.subplots(1, 3)
    for axes, panel, title in (
        (first, "bounds", "Bounds of weak T, means over trials"),
        (middle, "one history", "One history each, with certificates"),
        (right, "echelon estimate", "Echelon-form estimate (dots: K)"),
    ):
        _draw_bounds(axes, data[data["panel"] == panel])
        axes.set_title(title)
    for axes in (first, middle):
        axes.get_legend().remove()
        axes.set(ylim=(0, 13))
    right.set(ylabel="estimate of weak T (clients)")
    right.axhline(12, color="#777777", lw=0.8, ls=":")


def _draw_bounds(ax: Axes, data: pd.DataFrame) -> None:
    """Draw bounds of weak privacy T over rounds.

    The columns are scheme, rounds, lower and upper.
    """
    for _, curve, look in by_scheme(data):
        rounds, lower, upper = _draw_band(ax, curve, look["color"], 0.22)
        ax.plot(rounds, upper, lw=0.6, color=look["color"], drawstyle="steps-post")
        exact = np.where(upper - lower < 1e-9, upper, np.nan)
        ax.plot(rounds, exact, drawstyle="steps-post", **look)
    ax.set(xlabel="rounds", ylabel="weak T (clients)", ylim=(0, None))
    ax.set_title("Proven bounds of weak T (line: they meet)")
    legend(ax)


def _draw_band(
    ax: Axes, curve: pd.DataFrame, colour: str, alpha: float
) -> tuple[np.ndarray, ...]:
    """Draw where T lies by its bounds, and the lower one.

    Return rounds and both bounds.
    """
    rounds, lower, upper = (
        curve[name].to_numpy(float) for name in ("rounds", "lower", "upper")
    )
    ax.fill_between(rounds, lower, upper, step="post", color=colour, alpha=alpha, lw=0)
    ax.plot(rounds, lower, lw=0.6, color=colour, drawstyle="steps-post")
    return rounds, lower, upper


def draw_echelon(ax: Axes, data: pd.DataFrame) -> None:
    """Draw an estimate of T over proven bounds.

    The columns are scheme, rounds, lower, upper and estimate.
    """
    for label, curve, look in by_scheme(data):
        rounds, _, upper = _draw_band(ax, curve, look["color"], 0.25)
        line = {"color": look["color"], "drawstyle": "steps-post"}
        ax.plot(rounds, upper, label=f"{label}: weak T at most", **line)
        words = f"{label}: estimate"
        ax.plot(rounds, curve["estimate"], ls=(0, (2, 1)), lw=1.4, label=words, **line)
    ax.set_yscale("log", base=2)
    ticks = (1, 2, 3, 6, 12, 24, 48)
    ax.set_yticks(ticks, [str(value) for value in ticks])
    ax.minorticks_off()
