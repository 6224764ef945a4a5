"""Figure 4a of Multi-RoundSecAgg with bounds and proofs, the printed estimate, leaks.

T is the weak privacy of Remark 1, as in the paper's figure: the fewest clients in any
non-zero combination of the sums so far.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mrsa_jax import privacy, selection
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import by_scheme, legend
from mrsa_papers.multiround._echelon import echelon_estimate
from mrsa_papers.multiround._population import check_population, online_of, schemes_of
from mrsa_papers.multiround._windows import label_of, selector_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

_RANDOM = ("Random", "Weighted random")
_ALL = "all trials and rounds"
_NEVER = 10**6  # a round that moves a median up


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


def _bounded(context: Context, settings: Values) -> dict[str, Bounded]:
    """Return trials of all schemes with bounds."""
    bounds, online = {}, online_of(context, settings)
    schemes = schemes_of(settings).items()
    for label, selector in context.steps("Figure 4a: bounds of T", schemes):
        history = selection.rollout_trials(
            context.seed, selector, online, settings.num_rounds, settings.num_trials
        )
        curves = privacy.weak_privacy_trajectory(history, method="bounds")
        bounds[label] = Bounded(*map(np.asarray, (history, curves.lower, curves.upper)))
    return bounds


class Certified(NamedTuple):
    """One history of a scheme, bool[J, N], and its certified trajectory."""

    history: np.ndarray
    curve: Any


def _certified(context: Context, settings: Values, target: int) -> dict[str, Certified]:
    """Return the first trial of random, weighted and block selection, certified."""
    n, k = settings.num_clients, settings.cohort_size
    selectors = {
        "Random": selection.uniform(n, k),
        "Weighted random": selection.weighted(n, k),
        label_of(target): selector_of(n, k, target),
    }
    online = online_of(context, settings)

    def made() -> dict[str, Certified]:
        by_label: dict[str, Certified] = {}
        for label, selector in context.steps(
            "Figure 4a: certificates", selectors.items()
        ):
            history = np.asarray(
                selection.rollout(context.seed, selector, online, settings.num_rounds)
            )
            curve = privacy.weak_privacy_trajectory(
                history,
                method="certified",
                effort=settings.effort,
                # a sign of life from inside a search, and where an interrupt is seen
                progress=lambda *_: context.progress.update(
                    len(by_label), len(selectors)
                ),
            )
            by_label[label] = Certified(history, curve)
        return by_label

    # two items show them, mostly of the same settings
    names = "dropout_rates", "assignment", "num_rounds", "effort"
    values = tuple(settings[name] for name in names)
    return context.once(("certified", n, k, target, *values), made)


def privacy_over_rounds(context: Context, settings: Values) -> Found:
    """Return Figure 4a.

    T over rounds as proven intervals, the published estimate beside it.
    """
    check_population(settings)
    context.begin()
    n, k = settings.num_clients, settings.cohort_size
    trials = _bounded(context, settings)
    certified = _certified(context, settings, min(settings.privacy_targets))
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
                row = {"K": k, "panel": panel, "scheme": label, "rounds": j + 1}
                rows.append(row | {"lower": least, "upper": most})
    for label, (_, curve) in certified.items():
        for j in np.flatnonzero(np.asarray(curve.upper) > 0).tolist():
            row = {"K": k, "panel": "one history", "scheme": label, "rounds": j + 1}
            rows.append(
                row | {"lower": float(curve.lower[j]), "upper": float(curve.upper[j])}
            )
    checks = [_falls_to_one(label, trials[label], n) for label in _RANDOM]
    checks += [_falls_sharply(label, certified[label].curve, n, k) for label in _RANDOM]
    checks.append(_for_ever(trials["User partition"], k))
    checks += [
        _settles(label_of(target), target, trials[label_of(target)])
        for target in settings.privacy_targets
    ]
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        f"Weak T at N = {n}, K = {k}. Left: bounds over {settings.num_trials} trials, "
        "means; T lies in the band, a line is drawn where its edges meet; error chance "
        "below 2^-30 a history. Middle: certificates of one history each of random and "
        f"weighted random selection and of blocks of {min(settings.privacy_targets)}; "
        "the other schemes keep whole blocks too, whose bounds on the left meet without "
        "the search that a certificate takes. Right: "
        "the smallest row weight of a floating-point echelon form, as in the published "
        "notebooks.",
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
    is_one, rounds = bounds.upper == 1, bounds.upper.shape[1]
    first = np.where(is_one.any(axis=1), is_one.argmax(axis=1) + 1, _NEVER)
    middle = float(np.median(first))
    is_too_short = rounds < 1.05 * n and middle > rounds
    return state(
        f"{label}: round from which T = 1",
        None if is_too_short else n <= middle <= 1.05 * n,
        paper=f"about N = {n} (Remarks 11 and 12)",
        ours=f"median {_round_words(middle, rounds)}, "
        f"{_round_words(int(first.min()), rounds)} to "
        f"{_round_words(int(first.max()), rounds)}",
        tolerance="median in [N, 1.05 N]",
        note=(
            "T = 1 is decided exactly: a client's own update is a combination of the "
            "sums"
        ),
    )


def _round_words(first: float | int, rounds: int) -> str:
    """State a round, or that it is later than the last.

    Examples:
        >>> _round_words(119.5, 160), _round_words(10**6, 160)
        ('120', 'after 160')
    """
    return f"{first:.0f}" if first <= rounds else f"after {rounds}"


def _falls_sharply(label: str, curve: Any, n: int, k: int) -> Check:
    """Judge "drops sharply" on one certified history.

    From half of K to 1 within N / 5 rounds.
    """
    lower, upper = np.asarray(curve.lower), np.asarray(curve.upper)
    half, is_exposed = max(2, (k + 1) // 2), bool((upper == 1).any())
    first_exposed = int(np.argmax(upper == 1)) if is_exposed else _NEVER
    # from the last round with a proof of T >= K/2
    width = first_exposed - int(np.flatnonzero(lower >= half).max(initial=-1))
    # a witness has fewer than K/2 clients
    least = first_exposed - int(np.argmax((upper > 0) & (upper < half)))
    is_too_short = len(upper) < 1.05 * n and not is_exposed
    return state(
        f"{label}: rounds from T >= {half} to T = 1",
        None if is_too_short else width <= n / 5,
        paper="drops sharply",
        ours=f"{width} (after the last round with a proof of T >= {half})"
        if is_exposed
        else f"T > 1 in all {len(upper)} rounds",
        tolerance=f"at most N / 5 = {n // 5}",
        otherwise="our reading" if n / 5 < least <= n else "differs",
        note="one history with certificates; the paper gives no number of rounds",
    )


def _for_ever(bounds: Bounded, k: int) -> Check:
    part = bounds.upper > 0
    least, most = (
        bounds.lower[part].min(initial=_NEVER),
        bounds.upper[part].max(initial=-1),
    )
    return state(
        "User partition: T",
        bool(least == most == k) if part.any() else None,
        paper=f"{k} for ever",
        ours=f"{least} to {most}" if part.any() else "nobody ever took part",
        tolerance=f"exact, {_ALL}",
    )


def _settles(label: str, target: int, bounds: Bounded) -> Check:
    part = bounds.upper > 0
    least, end = int(bounds.lower[part].min(initial=_NEVER)), bounds.upper[:, -1]
    # the target is reached once single blocks can be told apart
    is_early = least >= target and bool(((end > target) | (end < 0)).any())
    return state(
        f"{label}: T never below its target, which it reaches",
        None if is_early else least == target and bool((end == target).all()),
        paper=f"{target}, above random and weighted random",
        ours=f"never below {least}; {int(end.min())} to {int(end.max())} at the end"
        if part.any()
        else "nobody ever took part",
        tolerance=f"exact, {_ALL}",
    )


def echelon_against_truth(context: Context, settings: Values) -> Found:
    """Find errors of the published estimate of T, on histories with certificates."""
    n, k, target = (
        settings.num_clients,
        settings.cohort_size,
        settings.privacy_target,
    )
    require(k <= n, "cohort_size", f"must be at most num_clients, {n}", k)
    for name, size in (("num_clients", n), ("cohort_size", k)):
        rule = f"must divide {name}, {size}"
        require(size % target == 0, "privacy_target", rule, target)
    context.begin()
    rows, checks = [], []
    for label, (history, curve) in _certified(context, settings, target).items():
        estimate = echelon_estimate(history)
        lower, upper = np.asarray(curve.lower), np.asarray(curve.upper)
        for j in np.flatnonzero(upper > 0):
            row = {"scheme": label, "rounds": int(j) + 1, "lower": int(lower[j])}
            rows.append(row | {"upper": int(upper[j]), "estimate": int(estimate[j])})
        summed = int((upper > 0).sum())
        over = (estimate > upper) & (upper > 0)
        worst = int(np.argmax(np.where(upper > 0, estimate - upper, -1)))
        checks.append(
            state(
                f"{label}: rounds in which the estimate is above a proven upper bound "
                "of T",
                not over.any() if summed else None,
                depends=(),
                paper="0, if it is to be T",
                ours=(
                    f"{int(over.sum())} of {summed}; in round "
                    f"{worst + 1} {estimate[worst]} where T <= {upper[worst]}"
                )
                if summed
                else "no round has a sum",
                otherwise="our reading",
                note=(
                    "the bound comes with a combination of sums that has so few "
                    "clients; the estimate is read from notebooks that the paper does "
                    "not cite"
                ),
            )
        )
    checks.append(_exhaustive(context, settings.num_histories))
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        f"One history a scheme at N = {n}, K = {k}: band proven bounds of T (a line "
        "where they meet), dashes the smallest row weight of a floating-point reduced "
        "row echelon form.",
    )


def _exhaustive(context: Context, trials: int) -> Check:
    """Count small random histories on which the estimate is wrong; T is exact."""
    n, k = 24, 6
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
        depends=(),
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
        (middle, "one history", "Certificates: one history of three schemes"),
        (right, "echelon estimate", "Echelon-form estimate (dots: K)"),
    ):
        _draw_bounds(axes, data[data["panel"] == panel])
        axes.set_title(title)
    for axes in (first, middle):
        axes.get_legend().remove()
        axes.set(ylim=(0, int(data["K"].max()) + 1))
    right.set(ylabel="estimate of weak T (clients)")
    right.axhline(data["K"].max(), color="#777777", lw=0.8, ls=":")


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
