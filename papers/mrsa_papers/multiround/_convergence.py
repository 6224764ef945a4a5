"""Theorem 2 of Multi-RoundSecAgg.

Its bound against training, and the steps of its proof.
Training is federated averaging on quadratic losses, whose constants are all known; what
the selection does to it is counted by enumeration of the cohorts. `convergence_bound`
has the bound as printed and as corrected (docs/errata.md).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import selection
from mrsa_jax.availability import independent
from mrsa_jax.federated import (
    convergence_bound,
    quadratic_problem,
    simulate_convergence,
)
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import COLOURS, in_turn
from mrsa_papers.harness._intervals import every
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

_START = (2.0, 2.0)
_SHIFT = 1000.0  # added to every loss, which changes no training
_MOST_COHORTS = 100_000  # that are gone through


def convergence(context: Context, settings: Values) -> Found:
    """Return Theorem 2: simulated training below its bound, and the bound's errors."""
    _check_sizes(settings)
    context.begin()
    rows: list[dict[str, Any]] = []
    first, *more = settings.local_steps
    every_pair = (settings.privacy_targets, settings.dropout_rates)
    jobs = [(first, *pair) for pair in itertools.product(*every_pair)]
    # further E where C is largest
    least = (min(settings.privacy_targets), min(settings.dropout_rates))
    jobs += [(steps, *least) for steps in more]
    for job in context.steps("Theorem 2: training on quadratic losses", jobs):
        rows += _trained(context, settings, *job)
    data = rows_to_frame(rows)
    return Found(
        tuple(_checks(context, data, settings)),
        data,
        f"Federated averaging on quadratic losses of {settings.num_clients} clients, "
        f"{settings.cohort_size} in a round, E = {first} (SGD steps) unless stated, "
        "with blocks of T that share their data's centre; equal dropout rates p, "
        f"{settings.num_trials} trials. Solid: "
        "mean gap to the least loss. Dashed: (8) as printed, C by Theorem 1; the t of "
        "(24), which the paper does not define, is read as j + 1.",
    )


def _check_sizes(settings: Values) -> None:
    """Raise unless blocks of T fit, and all cohorts can be gone through."""
    n, k, targets = (
        settings.num_clients,
        settings.cohort_size,
        settings.privacy_targets,
    )
    require(k < n, "cohort_size", f"must be less than num_clients, {n}", k)
    for target in targets:
        for name, size in (("num_clients", n), ("cohort_size", k)):
            rule = f"must divide {name}, {size}"
            require(size % target == 0, "privacy_targets", rule, target)
    blocks, chosen = n // min(targets), k // min(targets)
    is_small = blocks <= _MOST_COHORTS and math.comb(blocks, chosen) <= _MOST_COHORTS
    rule = f"must leave at most {_MOST_COHORTS:,} cohorts to go through"
    require(is_small, "num_clients", rule, n)


def _problem(context: Context, settings: Values, target: int) -> Any:
    # block_size: the case in which drawing whole blocks costs most
    words: dict[str, Any] = {"curvature": (1.0, 2.0), "noise": 0.2}
    n = settings.num_clients
    return quadratic_problem(context.seed, n, 2, block_size=target, **words)


def _trained(
    context: Context, settings: Values, steps: int, target: int, rate: float
) -> Iterator[dict[str, Any]]:
    n, k, last = settings.num_clients, settings.cohort_size, settings.num_rounds
    problem = _problem(context, settings, target)
    gaps = np.asarray(
        simulate_convergence(
            context.seed,
            problem,
            selection.batch_partitioning(n, k, target, "uniform"),
            independent(rate),
            last,
            settings.num_trials,
            local_steps=steps,
            initial=_START,
        ),
        np.float64,
    )
    constants = problem.constants(_START)
    cardinality = selection.expected_cardinality(n, k, target, rate)
    for rounds in sorted({-(-last * sixth // 6) for sixth in range(1, 7)}):
        final = gaps[:, rounds]
        printed, corrected = (
            convergence_bound(
                n,
                k,
                target,
                rounds,
                cardinality,
                constants,
                local_steps=steps,
                form=form,
            )
            for form in ("printed", "corrected")
        )
        yield {
            "E": steps,
            "T": target,
            "p": rate,
            "C": cardinality,
            "rounds": rounds,
            "gap": float(final.mean()),
            "error": float(final.std(ddof=1) / np.sqrt(settings.num_trials)),
            "printed": printed,
            "corrected": corrected,
        }


def _checks(context: Context, data: pd.DataFrame, settings: Values) -> Iterator[Check]:
    highest = data["gap"] + 5 * data["error"]
    for form in ("printed", "corrected"):
        bound = data[form]
        worst = data.iloc[int((highest - bound).to_numpy().argmax())]
        yield state(
            f"mean gap to the least loss over (8) as {form}",
            bool((highest <= bound).all()),
            paper="at most 1",
            ours=f"at most {float((highest / bound).max()):.2g}"
            if (bound > 0).all()
            else f"{worst['gap']:.2g} over {worst[form]:.2g}",
            tolerance=f"5 standard errors of {settings.num_trials} trials, every T, p, E",
            # no gap is negative
            otherwise="differs" if (bound >= 0).all() else "paper errs",
        )
    yield _falls(data[data["E"] == settings.local_steps[0]])
    if len(settings.local_steps) > 1:
        yield _local_steps(data, settings)
    yield _shifted(context, settings)
    yield _drawn(context, settings)
    yield _jensen(context, settings)


def _falls(data: pd.DataFrame) -> Check:
    """Judge Remark 8: with a smaller C the gap after the same rounds is larger."""
    last, target = data["rounds"].max(), data["T"].max()
    ends = data[data["rounds"] == last].sort_values("C", ascending=False)
    slow = ends[ends["T"] == target]
    rises, error = np.diff(slow["gap"]), slow["error"].to_numpy()
    # means as near as this decide nothing
    near = 5 * np.hypot(error[1:], error[:-1])
    holds: list[bool | None] = [
        True if rise > 0 else None if rise >= -within else False
        for rise, within in zip(rises, near, strict=True)
    ]
    holds += [bool(rise >= 0) for rise in np.diff(slow["printed"])]
    return state(
        f"gap after {last} rounds at T = {target}, from the larger C to the smaller",
        every(holds) if holds else None,
        paper="rises: C controls the rate (Remark 8)",
        ours=", ".join(
            f"C = {row['C']:.2f}: {row['gap']:.3g}" for _, row in slow.iterrows()
        ),
        tolerance="means, and the bound",
    )


def _local_steps(data: pd.DataFrame, settings: Values) -> Check:
    """Judge the E in front of J: whether E steps per round save rounds E-fold."""
    first, last = settings.local_steps[0], data["rounds"].max()
    least = (data["T"] == min(settings.privacy_targets)) & (
        data["p"] == min(settings.dropout_rates)
    )
    ends = data[least & (data["rounds"] == last)].set_index("E")
    early = data[least & (data["rounds"] == data["rounds"].min())]
    one = ends.loc[first]
    holds: list[bool | None] = []
    for steps, row in ends.drop(first).iterrows():
        over = row["gap"] - one["gap"] * first / steps
        near = 5 * math.hypot(row["error"], one["error"] * first / steps)
        holds.append(True if over <= 0 else None if over <= near else False)
    return state(
        f"gap after {last} rounds at C = {one['C']:.3g}, by the SGD steps E per round",
        every(holds),
        paper="E stands in front of J (Remark 8): E steps count as E rounds of one",
        ours=", ".join(
            f"E = {steps}: {row['gap']:.2g} (bound {row['corrected']:.3g})"
            for steps, row in ends.iterrows()
        ),
        tolerance="E-fold smaller, within 5 standard errors",
        otherwise="our reading",
        note=(
            "(8) holds, but its alpha and beta grow with E squared, so that the bound "
            "rises with E; K of N clients per round leave a variance that more local "
            f"steps do not lower. They help at first: after {early['rounds'].min()} "
            f"rounds {', '.join(f'{gap:.2g}' for gap in early['gap'])}"
        ),
    )


def _shifted(context: Context, settings: Values) -> Check:
    """Judge Gamma = L* - sum of L_i*.

    A constant added to every loss must change nothing.
    """
    n, k, rounds = settings.num_clients, settings.cohort_size, settings.num_rounds
    constants = _problem(context, settings, 1).constants(_START)
    moved = dataclasses.replace(
        constants,
        minimum=constants.minimum + _SHIFT,
        client_minima=tuple(least + _SHIFT for least in constants.client_minima),
    )
    bounds = {
        form: convergence_bound(
            n,
            k,
            1,
            rounds,
            float(k),
            moved,
            local_steps=settings.local_steps[0],
            form=form,
        )
        for form in ("printed", "corrected")
    }
    return state(
        f"(8) as printed, {_SHIFT:g} added to every loss",
        bounds["printed"] >= 0,
        paper="a bound on E[L] - L*, which is never negative",
        ours=f"{bounds['printed']:.4g}; with the mean of the L_i* in Gamma "
        f"{bounds['corrected']:.4g}",
        tolerance="at least 0",
        otherwise="paper errs",
        of_data=False,
        note=(
            "training is the same; Gamma is L* minus the mean of the L_i*, not their "
            "sum"
        ),
    )


def _drawn(context: Context, settings: Values) -> Check:
    """Judge beta's factor, the variance of a cohort's mean, over all cohorts."""
    n, k = settings.num_clients, settings.cohort_size
    ratios = {
        t: drawing_variance(context.seed, n, k, t) * k * (n - 1) / (n - k)
        for t in settings.privacy_targets
    }
    is_of_clients = max(ratios) == 1
    return state(
        "variance of a cohort's mean over (N - K)/(K(N - 1)), values that are equal in "
        "blocks",
        None if is_of_clients else max(ratios.values()) <= 1 + 1e-9,
        paper="at most 1 for every T: (22), from drawing clients one by one",
        ours=", ".join(f"T = {t}: {ratio:.4g}" for t, ratio in ratios.items()),
        tolerance="exact enumeration of all cohorts",
        otherwise="our reading",
        note=(
            "(22) does not name the factor. Drawing blocks is cluster sampling, with "
            "the factor T(N - K)/(K(N - T)); the bound is loose, and training stays "
            "below it all the same"
        ),
    )


def drawing_variance(seed: int, n: int, k: int, target: int) -> float:
    """Return the variance of cohorts' means over that of clients with equal blocks."""
    values = np.repeat(np.random.default_rng(seed).normal(size=n // target), target)
    means = selection.enumerate_family(n, k, target).astype(np.float64) @ values / k
    return float(((means - values.mean()) ** 2).mean() / values.var())


def _jensen(context: Context, settings: Values) -> Check:
    """Judge (26): the bound at the mean number of executed rounds, not its mean."""
    n, k, rounds = settings.num_clients, settings.cohort_size, settings.num_rounds
    constants = _problem(context, settings, 1).constants(_START)
    # printed and right Gamma are equal at 0
    least = float(np.mean(constants.client_minima))
    even = dataclasses.replace(
        constants, minimum=constants.minimum - least, client_minima=(0.0,) * n
    )
    cardinality = selection.expected_cardinality(n, k, 1, 0.8)
    printed, right = (
        convergence_bound(
            n,
            k,
            1,
            rounds,
            cardinality,
            even,
            local_steps=settings.local_steps[0],
            form=form,
        )
        for form in ("printed", "corrected")
    )
    return state(
        f"(26): the bound at the mean number of rounds, C = {cardinality:.2g}",
        printed >= right,
        paper="as large as the mean of the bound",
        ours=f"{printed:.4g}, and the mean of the bound is {right:.4g}",
        tolerance="exact binomial law of the rounds that are not skipped, T = 1",
        otherwise="our reading",
        note=(
            "(26) puts the mean number for a random one; the bound is convex in it, so "
            "that the mean of the bound is larger (Jensen)"
        ),
    )


def draw_convergence(ax: Axes, data: pd.DataFrame) -> None:
    """Draw mean gaps and (8) over rounds (columns E, T, p, rounds, gap, printed)."""
    first = data["E"].iloc[0]
    curves = in_turn(data, ["E", "T", "p"], color=COLOURS)
    for place, ((steps, target, rate), rows, look) in enumerate(curves):
        label = f"T = {target}, p = {rate:g}"
        if steps != first:
            label += f", E = {steps}"
            look |= {"marker": "os^v"[place % 4], "ms": 4}
        ax.plot(rows["rounds"], rows["gap"], **look | {"label": label})
        ax.plot(rows["rounds"], rows["printed"], ls="--", lw=1.0, color=look["color"])
    ax.plot([], [], color="#444444", ls="--", label="(8) as printed")
