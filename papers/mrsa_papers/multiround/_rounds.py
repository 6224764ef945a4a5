"""Figures 4b, 4c and 5a of Multi-RoundSecAgg.

Fairness and cardinality over rounds, and T vs C.
All three read the same rollouts: six schemes (N = 120, K = 12 in the paper), over
several assignments of the dropout rates to clients, because the paper does not state
its assignment and C and F depend on it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting, selection
from mrsa_jax.availability import assign_rates, independent
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    rows_to_frame,
    state,
    targets_of,
)
from mrsa_papers.harness._figures import by_scheme
from mrsa_papers.harness._items import NOT_DISCUSSED
from mrsa_papers.harness._rows import printed_in
from mrsa_papers.multiround._population import check_population, schemes_of
from mrsa_papers.multiround._windows import label_of

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

# "Almost the same C": the share of K by which C may fall short of random selection's.
_ALMOST = 0.05
_MUCH_LOWER = 5  # points of accuracy


@dataclasses.dataclass(frozen=True)
class Curves:
    """F and C of one scheme under one way to assign the rates.

    Attributes:
        fairness: float32[A * B, J], trials of all assignments.
        cardinality: float32[A * B, J].
        expected: float64[A * B], expected C of each trial's assignment.
    """

    fairness: np.ndarray
    cardinality: np.ndarray
    expected: np.ndarray


def rollouts(context: Context, settings: Values) -> dict[str, dict[str, Curves]]:
    """Return the curves of every scheme.

    `"shuffled"` and `"cyclic"` -> label -> curves.
    """
    check_population(settings)
    context.begin()

    def made() -> dict[str, dict[str, Curves]]:
        curves: dict[str, dict[str, Curves]] = {"shuffled": {}, "cyclic": {}}
        jobs = itertools.product(curves, schemes_of(settings).items())
        for how, (label, selector) in context.steps(
            "Figures 4b, 4c, 5a: rollouts", jobs
        ):
            curves[how][label] = _curves(context, settings, selector, how)
        return curves

    values = tuple(settings[name] for name in _SETTINGS)
    return context.once(("rollouts", *values), made)


_SETTINGS = (
    "num_clients",
    "cohort_size",
    "privacy_targets",
    "dropout_rates",
    "num_rounds",
    "num_trials",
    "num_assignments",
)


def _curves(context: Context, settings: Values, selector: Any, how: str) -> Curves:
    clients, trials = settings.num_clients, settings.num_trials
    assignments = 1 if how == "cyclic" else settings.num_assignments
    parts, expected = [], []
    for i in range(assignments):
        # one assignment per seed
        seed = (context.seed + i) % 2**32
        rates = assign_rates(seed, settings.dropout_rates, clients, how=how)  # type: ignore[arg-type]
        parts.append(
            selection.rollout_metrics(
                seed, selector, independent(rates), settings.num_rounds, trials
            )
        )
        target = targets_of({"": selector})[""]
        size = expected_size(rates.astype(np.float64), target, settings.cohort_size)
        expected += [size] * trials
    fairness = np.concatenate([np.asarray(part.fairness_gap) for part in parts])
    cardinality = np.concatenate(
        [np.asarray(part.aggregation_cardinality) for part in parts]
    )
    return Curves(fairness, cardinality, np.array(expected))


def expected_size(offline: np.ndarray, block_size: int, cohort_size: int = 12) -> float:
    """Return C of K clients in whole blocks, from the law of the whole blocks.

    Multiplied out here, block by block, so that what is simulated is compared with
    something else than its own package.

    Args:
        offline: float64[N], dropout rates of the clients, blocks of neighbours.
        block_size: T.
        cohort_size: K.

    Examples:
        >>> round(expected_size(np.full(120, 0.1), 12), 10)
        11.5656630406
    """
    law = np.ones(1)
    for block in (1.0 - offline).reshape(-1, block_size):
        whole = float(block.prod())
        law = np.convolve(law, [1.0 - whole, whole])
    return cohort_size * float(law[cohort_size // block_size :].sum())


def fairness_over_rounds(context: Context, settings: Values) -> Found:
    """Return Figure 4b: the fairness gap F over rounds."""
    curves = rollouts(context, settings)
    rounds = curves["cyclic"]["Random"].fairness.shape[1]
    gaps = _expected_gaps(context, settings)
    checks = [
        check
        for target in settings.privacy_targets
        for check in _fairer(gaps, label_of(target))
    ]
    means = {
        label: float(np.mean([gap.value for gap in of_scheme["shuffled"]]))
        for label, of_scheme in gaps.items()
    }
    noisy = float(curves["shuffled"]["Random"].fairness[:, -1].mean())
    checks.append(
        state(
            "smallest F",
            min(means, key=lambda label: means[label]) == "Weighted random",
            paper="weighted random, which picks the least used clients (Section 3.3)",
            ours=", ".join(f"{label} {value:.4f}" for label, value in means.items()),
            tolerance="order of the means over shuffled assignments",
        )
    )
    checks.append(_accurate_if_fair(means))
    return Found(
        tuple(checks),
        _frame(curves["shuffled"], "fairness"),
        "Most minus least often summed client of one history, divided by the rounds. "
        "Mean over shuffled assignments of the dropout rates; bands 5 % to 95 % of the "
        "trials, which differ in the assignment too. A history adds its noise to F of "
        f"eq. (6): after {rounds} rounds, random selection shows {noisy:.3f} for "
        f"{means['Random']:.4f}. The claims are about F of eq. (6).",
    )


def _accurate_if_fair(means: dict[str, float]) -> Check:
    """Compare "much higher accuracy with small F" with the accuracies of Table 3."""
    printed = printed_in("multiround")
    labels = [label for label, *_ in printed["sizes"]]
    accuracies = dict(zip(labels, printed["accuracies"]["table3"][0], strict=True))
    known = [label for label in labels if label in means]
    against = [
        f"{fair} and {other}"
        for fair in known
        for other in known
        if means[fair] < means[other]
        and accuracies[fair] < accuracies[other] - _MUCH_LOWER
    ]
    table = ", ".join(f"{label} {accuracies[label]:.2f} %" for label in known)
    return state(
        "accuracy of schemes with a small F",
        not against,
        paper="much higher than with a large F (Section 3.2); Table 3, IID: " + table,
        ours="F of eq. (6): "
        + ", ".join(f"{label} {means[label]:.3f}" for label in known),
        tolerance=f"no scheme with a smaller F is {_MUCH_LOWER} points less accurate",
        otherwise="not stated",
        note=(
            "the paper does not say which clients get which dropout rate; with shuffled "
            "rates it is otherwise for "
            + ("; ".join(against) if against else "no two schemes")
        ),
    )


def _expected_gaps(
    context: Context, settings: Values
) -> dict[str, dict[str, list[selection.ExpectedGap]]]:
    """Return F of eq. (6) of each scheme, for each assignment of the rates."""
    rates, clients = settings.dropout_rates, settings.num_clients
    assignments = {
        how: [
            independent(
                assign_rates((context.seed + i) % 2**32, rates, clients, how=how)  # type: ignore[arg-type]
            )
            for i in range(count)
        ]
        for how, count in (("shuffled", settings.num_draws), ("cyclic", 1))
    }
    gaps: dict[str, dict[str, list[selection.ExpectedGap]]] = {}
    for label, selector in context.steps(
        "Figure 4b: expected shares", schemes_of(settings).items()
    ):
        gaps[label] = {
            how: [
                selection.expected_fairness_gap(
                    selector,
                    online,
                    seed=context.seed,
                    num_rounds=2048,
                    num_trials=32,
                )
                for online in models
            ]
            for how, models in assignments.items()
        }
    return gaps


def _fairer(
    gaps: dict[str, dict[str, list[selection.ExpectedGap]]], label: str
) -> Iterator[Check]:
    """Judge "a smaller fairness gap than random" under two ways to assign the rates."""
    random = gaps["Random"]["cyclic"][0].value
    (mixed,) = gaps[label]["cyclic"]
    claim = "smaller than random selection's"
    yield state(
        f"F of {label}, blocks that mix the dropout rates",
        # an interval on both sides decides nothing
        mixed.upper < random
        if (mixed.upper < random) == (mixed.lower < random)
        else None,
        paper=claim,
        ours=f"{mixed.value:.4f} against {random:.4f}",
        tolerance=f"95 % interval {mixed.lower:.4f} to {mixed.upper:.4f}",
        note="the rates are dealt out in turn",
    )
    drawn = gaps[label]["shuffled"]
    smaller = sum(gap.upper < random for gap in drawn)
    larger = sum(gap.lower > random for gap in drawn)
    mean = float(np.mean([gap.value for gap in drawn]))
    yield state(
        f"F of {label}, shuffled dropout rates",
        2 * smaller > len(drawn),
        paper=claim,
        ours=(
            f"smaller in {smaller} and larger in {larger} of {len(drawn)} assignments; "
            f"mean {mean:.3f} against {random:.4f}"
        ),
        tolerance="in most assignments, by 95 % intervals",
        note="the paper does not say which clients get which dropout rate",
    )


def cardinality_over_rounds(context: Context, settings: Values) -> Found:
    """Return Figure 4c: the aggregation cardinality C over rounds."""
    curves = rollouts(context, settings)["shuffled"]
    ends = {
        label: float(curve.cardinality[:, -1].mean()) for label, curve in curves.items()
    }
    rounds = curves["Random"].cardinality.shape[1]
    checks = [
        state(
            "lowest C",
            min(ends, key=lambda label: ends[label]) == "User partition",
            paper="user partition",
            ours=", ".join(f"{label} {value:.2f}" for label, value in ends.items()),
            tolerance="order of the means",
        )
    ]
    checks += [
        _as_expected(label, curve, rounds, settings) for label, curve in curves.items()
    ]
    return Found(
        tuple(checks),
        _frame(curves, "cardinality"),
        "Mean number of clients in a round's sum so far, skipped rounds counted as 0. "
        "Mean over shuffled assignments of the dropout rates; bands 5 % to 95 % of the "
        "trials.",
    )


def _as_expected(label: str, curve: Curves, rounds: int, settings: Values) -> Check:
    """Compare the simulated C with Theorem 1 for mixed rates (Poisson-binomial)."""
    k, schemes = settings.cohort_size, 3 + len(settings.privacy_targets)
    gap = float((curve.cardinality[:, -1] - curve.expected).mean())
    share = float(np.clip(curve.expected.mean() / k, 0.0, 1.0))
    total, log = rounds * len(curve.expected), math.log(2 * schemes / 1e-6)
    # Bernstein's bound on the mean of independent rounds
    slack = k * (
        math.sqrt(2 * share * (1 - share) * log / total) + 2 * log / (3 * total)
    )
    return state(
        f"C of {label} against its expectation",
        abs(gap) <= slack,
        depends=(),
        # the theorem is about equal rates
        paper="Theorem 1" if len(set(settings.dropout_rates)) == 1 else NOT_DISCUSSED,
        ours=f"simulated minus expected {gap:+.4f}",
        tolerance=f"{slack:.3f} (Bernstein's bound, chance 1e-6)",
        note=(
            "Theorem 1 is about equal rates; here C depends on who shares a block, so the "
            "expectation is multiplied out for each assignment"
        ),
    )


def tradeoff(context: Context, settings: Values) -> Found:
    """Return Figure 5a: guaranteed T against average C."""
    curves = rollouts(context, settings)["shuffled"]
    rows: list[dict[str, Any]] = []
    for label, target in targets_of(schemes_of(settings)).items():
        ends = curves[label].cardinality[:, -1]
        low, high = map(float, np.quantile(ends, (0.05, 0.95)))
        cardinality = {"C": float(ends.mean()), "C_low": low, "C_high": high}
        rows.append({"scheme": label, "T": target} | cardinality)
    mean = {row["scheme"]: row["C"] for row in rows}
    k = settings.cohort_size
    least = mean["Random"] - _ALMOST * k
    # T up to K/3; that of K/2 costs clients in the paper too
    small = [label_of(t) for t in settings.privacy_targets if 2 * t < k]
    checks = [
        state(
            f"C of {label}",
            mean[label] >= least,
            paper="almost the same as random selection's",
            ours=f"{mean[label]:.2f} against {mean['Random']:.2f}",
            tolerance=f"{100 * _ALMOST:.0f} % of K",
        )
        for label in small
    ]
    rows.sort(key=lambda row: row["T"])
    checks.append(
        state(
            "C against T over all schemes",
            bool((np.diff([row["C"] for row in rows]) <= 0.01).all()),
            paper="the more privacy, the lower C",
            ours=", ".join(f"T={row['T']}: {row['C']:.2f}" for row in rows),
            tolerance="0.01 clients",
        )
    )
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "T that each scheme keeps for ever (figure 4a measures it) and the mean number "
        "of clients in a sum; bars 5 % to 95 % of trials and assignments of the "
        "dropout rates.",
    )


def _frame(curves: dict[str, Curves], name: str) -> pd.DataFrame:
    """Return a metric's mean and 5 % to 95 % band by scheme and round.

    Rounds are thinned for the figure.
    """
    import pandas as pd

    parts = []
    for label, curve in curves.items():
        values = getattr(curve, name)
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        rounds = np.arange(1, values.shape[1] + 1)
        table = {
            "scheme": label,
            "rounds": rounds,
            "mean": values.mean(axis=0).astype(float),
        }
        with_band = pd.DataFrame(table | {"low": low, "high": high})
        # all of the first hundred rounds are shown, then every fifth
        parts.append(
            with_band[(with_band["rounds"] <= 100) | (with_band["rounds"] % 5 == 0)]
        )
    return pd.concat(parts, ignore_index=True)


def draw_metric(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a metric over rounds, one band per scheme.

    The columns are scheme, rounds, mean, low and high.
    """
    for _, curve, look in by_scheme(data):
        rounds, ends = curve["rounds"], (curve["low"], curve["high"])
        ax.fill_between(rounds, *ends, color=look["color"], alpha=0.13, lw=0)
        ax.plot(rounds, curve["mean"], **look)
    ax.set_ylim(0)


def draw_tradeoff(ax: Axes, data: pd.DataFrame) -> None:
    """Draw T against C."""
    plotting.plot_tradeoff(data, ax=ax)
