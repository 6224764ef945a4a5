"""Figures 4b, 4c and 5a of Multi-RoundSecAgg: fairness and cardinality over rounds, and T vs C.

All three read the same rollouts: six schemes at N = 120, K = 12, over several assignments of the
dropout rates to clients, because the paper does not state its own and C and F depend on it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting, selection
from mrsa_jax.availability import assign_rates, independent
from mrsa_jax.reproduce.harness._context import Context, rows_to_frame, targets_of
from mrsa_jax.reproduce.harness._figures import legend, scheme_colour, scheme_line
from mrsa_jax.reproduce.harness._items import Check, Found, state
from mrsa_jax.study import _build

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "cardinality_over_rounds",
    "draw_cardinality",
    "draw_fairness",
    "draw_tradeoff",
    "fairness_over_rounds",
    "rollouts",
    "tradeoff",
]

_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
_BLOCKS = ("Multi-RoundSecAgg (T=6)", "Multi-RoundSecAgg (T=4)", "Multi-RoundSecAgg (T=3)")

# "Almost the same C": the share of K by which C may fall short of random selection's.
_ALMOST = 0.05


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


def rollouts(context: Context) -> dict[str, dict[str, Curves]]:
    """Return the curves of every scheme: `"shuffled"` and `"cyclic"` -> label -> curves."""
    if "rollouts" not in context.cache:
        assignments = 4 if context.fast else 20
        context.progress.stage("Figures 4b, 4c, 5a: rollouts", 12)
        done = 0
        found: dict[str, dict[str, Curves]] = {}
        for how, number in (("shuffled", assignments), ("cyclic", 1)):
            found[how] = {}
            for label in context.schemes:
                found[how][label] = _curves(context, label, how, number)
                done += 1
                context.progress.update(done, 12)
        context.cache["rollouts"] = found
    return context.cache["rollouts"]


def _curves(context: Context, label: str, how: str, assignments: int) -> Curves:
    trials, rounds = (6, 300) if context.fast else (20, 1000)
    selector = context.schemes[label]
    parts, expected = [], []
    for i in range(assignments):
        seed = (context.seed + i) % 2**32
        rates = np.asarray(assign_rates(seed, _RATES, 120, how=how))  # type: ignore[arg-type]
        parts.append(selection.rollout_metrics(seed, selector, independent(rates), rounds, trials))
        mean, _ = _build.expected_cardinality(selector, rates)
        expected += [float(mean)] * trials
    fairness = np.concatenate([np.asarray(part.fairness_gap) for part in parts])
    cardinality = np.concatenate([np.asarray(part.aggregation_cardinality) for part in parts])
    return Curves(fairness, cardinality, np.array(expected))


def fairness_over_rounds(context: Context) -> Found:
    """Return Figure 4b: the fairness gap F over rounds."""
    curves = rollouts(context)
    rounds = curves["cyclic"]["Random"].fairness.shape[1]
    ends = {
        how: {label: float(curve.fairness[:, -1].mean()) for label, curve in found.items()}
        for how, found in curves.items()
    }
    shuffled = ends["shuffled"]
    checks = [_fairer(ends, label, rounds) for label in _BLOCKS]
    checks.append(
        state(
            f"smallest F after {rounds} rounds",
            min(shuffled, key=lambda label: shuffled[label]) == "Weighted random",
            paper="weighted random, which picks the least used clients (Section 3.3)",
            ours=", ".join(f"{label} {value:.3f}" for label, value in shuffled.items()),
            tolerance="order of the means",
        )
    )
    return Found(
        tuple(checks),
        _frame(curves["shuffled"], "fairness"),
        "Most minus least often summed client, divided by the rounds. Mean over shuffled "
        "assignments of the dropout rates; bands 5 % to 95 % of the trials, which differ in the "
        "assignment too.",
    )


def _fairer(ends: dict[str, dict[str, float]], label: str, rounds: int) -> Check:
    """Judge "a smaller fairness gap than random selection" under the assignment that fits."""
    below = {how: found[label] < 0.95 * found["Random"] for how, found in ends.items()}
    return state(
        f"F of {label} after {rounds} rounds",
        below["cyclic"] or below["shuffled"],
        paper="smaller than random selection's",
        ours="; ".join(
            f"{how} rates {found[label]:.3f} against {found['Random']:.3f}"
            for how, found in ends.items()
        ),
        tolerance="means 5 % apart, under one of two assignments",
        note="the paper does not say which clients get which dropout rate; "
        + ("both agree" if all(below.values()) else "only where every block mixes all rates"),
    )


def cardinality_over_rounds(context: Context) -> Found:
    """Return Figure 4c: the aggregation cardinality C over rounds."""
    curves = rollouts(context)["shuffled"]
    ends = {label: float(curve.cardinality[:, -1].mean()) for label, curve in curves.items()}
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
    checks += [_as_expected(label, curve, rounds) for label, curve in curves.items()]
    return Found(
        tuple(checks),
        _frame(curves, "cardinality"),
        "Mean number of clients in a round's sum so far, skipped rounds counted as 0. Mean over "
        "shuffled assignments of the dropout rates; bands 5 % to 95 % of the trials.",
    )


def _as_expected(label: str, curve: Curves, rounds: int) -> Check:
    """Compare the simulated C with Theorem 1 for mixed rates (Poisson-binomial)."""
    gap = float((curve.cardinality[:, -1] - curve.expected).mean())
    share = float(np.clip(curve.expected.mean() / 12, 0.0, 1.0))
    total, log = rounds * len(curve.expected), math.log(2 * 6 / 1e-6)
    slack = 12 * (math.sqrt(2 * share * (1 - share) * log / total) + 2 * log / (3 * total))
    return state(
        f"C of {label} against its expectation",
        abs(gap) <= slack,
        paper="Theorem 1, extended to mixed rates",
        ours=f"simulated minus expected {gap:+.4f}",
        tolerance=f"{slack:.3f} (Bernstein's bound, chance 1e-6)",
        note="C depends on who shares a block, so the expectation is per assignment",
    )


def tradeoff(context: Context) -> Found:
    """Return Figure 5a: guaranteed T against average C."""
    curves = rollouts(context)["shuffled"]
    targets = targets_of(context.schemes)
    rows: list[dict[str, Any]] = []
    for label, curve in curves.items():
        ends = curve.cardinality[:, -1]
        low, high = np.quantile(ends, (0.05, 0.95))
        rows.append(
            {
                "scheme": label,
                "T": targets[label],
                "C": float(ends.mean()),
                "C_low": float(low),
                "C_high": float(high),
            }
        )
    mean = {row["scheme"]: row["C"] for row in rows}
    least = mean["Random"] - _ALMOST * 12
    checks = [
        state(
            f"C of {label}",
            mean[label] >= least,
            paper="almost the same as random selection's",
            ours=f"{mean[label]:.2f} against {mean['Random']:.2f}",
            tolerance=f"{100 * _ALMOST:.0f} % of K",
        )
        for label in _BLOCKS[1:]
    ]
    rows.sort(key=lambda row: row["T"])
    checks.append(
        state(
            "C against T over the six schemes",
            bool((np.diff([row["C"] for row in rows]) <= 0.01).all()),
            paper="the more privacy, the lower C",
            ours=", ".join(f"T={row['T']}: {row['C']:.2f}" for row in rows),
            tolerance="0.01 clients",
        )
    )
    return Found(
        tuple(checks),
        rows_to_frame(rows),
        "T that each scheme keeps for ever (figure 4a measures it) and the mean number of clients "
        "in a sum; bars 5 % to 95 % of trials and assignments of the dropout rates.",
    )


def _frame(curves: dict[str, Curves], name: str) -> pd.DataFrame:
    """Return mean and 5 % to 95 % band of a metric by scheme and round, thinned for the figure."""
    rows = []
    for label, curve in curves.items():
        values = getattr(curve, name)
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        mean = values.mean(axis=0)
        for j in _shown(values.shape[1]):
            rows.append(
                {
                    "scheme": label,
                    "rounds": j + 1,
                    "mean": float(mean[j]),
                    "low": float(low[j]),
                    "high": float(high[j]),
                }
            )
    return rows_to_frame(rows)


def _shown(rounds: int) -> list[int]:
    """Return the rounds that a figure shows: all of the first 100, then every fifth."""
    return [j for j in range(rounds) if j < 100 or (j + 1) % 5 == 0]


def draw_fairness(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the fairness gap over rounds."""
    title = "Most minus least often summed client, a round"
    _draw_metric(figure.subplots(), data, name="fairness gap F", title=title, top=0.5)


def draw_cardinality(figure: Figure, data: pd.DataFrame) -> None:
    """Draw the aggregation cardinality over rounds."""
    name, title = "aggregation cardinality C (clients)", "Mean number of clients in a sum"
    _draw_metric(figure.subplots(), data, name=name, title=title)


def _draw_metric(
    ax: Axes, data: pd.DataFrame, *, name: str, title: str, top: float | None = None
) -> None:
    """Draw a metric over rounds (columns scheme, rounds, mean, low, high), a band a scheme."""
    for label, curve in data.groupby("scheme", sort=False):
        colour = scheme_colour(str(label))
        ax.fill_between(
            curve["rounds"], curve["low"], curve["high"], color=colour, alpha=0.13, lw=0
        )
        ax.plot(
            curve["rounds"],
            curve["mean"],
            color=colour,
            ls=scheme_line(str(label)),
            label=str(label),
        )
    ax.set(xlabel="rounds", ylabel=name, title=title)
    ax.set_ylim(0, top)
    legend(ax)


def draw_tradeoff(figure: Figure, data: pd.DataFrame) -> None:
    """Draw T against C."""
    plotting.plot_tradeoff(data, ax=figure.subplots())
