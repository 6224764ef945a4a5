"""Theorem 1 of Multi-RoundSecAgg.

The fairness gap F = 0, exactly for few blocks and simulated.
F is the gap between clients' expected shares of the rounds. Blocks move together, so F
is that of blocks: a Markov chain over how often each was used, whose steps are exact
fractions. What is simulated at the paper's size is F after J rounds of one history,
which shrinks where F is 0.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import selection
from mrsa_jax.availability import Availability, assign_rates, independent
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import COLOURS, MARKERS, in_turn
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd

EQUAL, LEAST, MIXED = (
    "equal rates, uniform",
    "equal rates, least used",
    "mixed rates, least used",
)


def fairness_gap(context: Context, settings: Values) -> Found:
    """Return Theorem 1's F.

    Exact expectations for few blocks, and simulated gaps over rounds.
    """
    n, k, t = settings.num_clients, settings.cohort_size, settings.privacy_target
    require(k <= n, "cohort_size", f"must be at most num_clients, {n}", k)
    require(t < n, "privacy_target", f"must be less than num_clients, {n}", t)
    for name, size in (("num_clients", n), ("cohort_size", k)):
        require(size % t == 0, "privacy_target", f"must divide {name}, {size}", t)
    context.begin()
    sizes, trials = sorted(settings.round_counts), settings.num_trials
    rows, setups = [], _setups(context, settings)
    for name, rounds in context.steps(
        "Theorem 1: gaps", itertools.product(setups, sizes)
    ):
        selector, online = setups[name]
        counts = np.asarray(
            selection.rollout_counts(context.seed, selector, online, rounds, trials)
        )
        gaps = (counts.max(axis=1) - counts.min(axis=1)) / rounds
        rows += [
            {"setup": name, "rounds": rounds, "trial": trial, "gap": float(gap)}
            for trial, gap in enumerate(gaps)
        ]
    data = rows_to_frame(rows)
    return Found(
        (*_exact_checks(settings.exact_rounds), *_simulated_checks(data, settings)),
        data,
        "Most minus least often summed client over the rounds, single histories of N = "
        f"{n}, K = {k}, T = {t}. Equal dropout rates ({settings.dropout_rate:g}), with "
        "the blocks drawn uniformly (lambda = 0) or the least used first (lambda = 1), "
        f"and rates of {', '.join(f'{rate:g}' for rate in settings.dropout_rates)} "
        "shuffled over the clients.",
    )


def _setups(
    context: Context, settings: Values
) -> dict[str, tuple[selection.Selector, Availability]]:
    n, k, t = settings.num_clients, settings.cohort_size, settings.privacy_target
    equal = independent(settings.dropout_rate)
    rates = assign_rates(context.seed, settings.dropout_rates, n)
    uniform = selection.batch_partitioning(n, k, t, "uniform")
    least = selection.batch_partitioning(n, k, t)
    mixed = independent(np.asarray(rates))
    return {EQUAL: (uniform, equal), LEAST: (least, equal), MIXED: (least, mixed)}


def _exact_checks(rounds: int) -> Iterator[Check]:
    """Judge exact expectations for blocks and T, at both values of lambda."""
    rate, others = Fraction(3, 10), (Fraction(1, 10), Fraction(5, 10))
    cases = [(2, 1, 2), (3, 2, 1), (4, 2, 2)]
    equal = [
        # a block is whole if none of its T clients is offline
        expected_gap([(1 - rate) ** target] * blocks, chosen, rounds, is_least=is_least)
        for blocks, chosen, target in cases
        for is_least in (True, False)
    ]
    yield state(
        f"exact F after {rounds} rounds, equal dropout rates, both values of lambda",
        max(equal) == 0,
        depends=(),
        paper="0",
        ours=f"{float(max(equal)):.3g}",
        tolerance="exact fractions; 2 to 4 blocks",
        note="an expectation: single histories have a gap that shrinks",
    )
    mixed = expected_gap([(1 - rate) ** 2 for rate in others], 1, rounds, is_least=True)
    yield state(
        f"exact F after {rounds} rounds, two blocks of T = 2 with rates of .1 and .5",
        mixed == 0,
        depends=(),
        paper="0, by the second component (Section 4)",
        ours=f"{float(mixed):.3f}",
        tolerance="exact fraction",
        otherwise="our reading",
        note=(
            "the theorem ends 'when all users have the dropout probability p', which "
            "may be meant of C alone or of F too: its proof, by symmetry, needs it. "
            "Here a block is whole in 1/4 of the rounds, and the other one is taken in "
            ".81 x 3/4 at least: F is .357 or more for ever"
        ),
    )


def _simulated_checks(data: pd.DataFrame, settings: Values) -> Iterator[Check]:
    means = data.groupby(["setup", "rounds"])["gap"].mean()
    sizes = np.array(sorted(set(data["rounds"])))
    first, last = int(sizes[0]), int(sizes[-1])
    ends = data[data["rounds"] == last]
    uniform = ends[ends["setup"] == EQUAL]["gap"]
    share, reach = _share(settings), _reach(last, len(uniform), settings)
    yield state(
        f"F of single histories after {last} rounds, {EQUAL}",
        # few participations are not nearly normal
        bool((uniform <= reach).all()) if share * last >= _ENOUGH else None,
        depends=(),
        paper="tends to 0",
        ours=f"{uniform.min():.4f} to {uniform.max():.4f}",
        tolerance=f"{reach:.4f}: the range of equal expectations' noise, chance 1e-3",
    )
    steps = [means[name].to_numpy() for name in (EQUAL, LEAST)]
    falls = all(bool(((np.diff(step) < 0) | (step[1:] == 0)).all()) for step in steps)
    # noise may raise a mean where rounds are few or near each other
    is_clear = share * first >= 5 and bool((sizes[1:] >= 4 * sizes[:-1]).all())
    yield state(
        "mean F over rounds, equal dropout rates",
        falls if len(sizes) > 1 and (falls or is_clear) else None,
        depends=(),
        paper="tends to 0",
        ours="; ".join(
            f"{name} {means[name].iloc[0]:.3f} to {means[name].iloc[-1]:.4f}"
            for name in (EQUAL, LEAST)
        ),
        tolerance=f"falls at each of {', '.join(map(str, sizes))} rounds",
    )


_ENOUGH = 30  # participations of a client whose counts are nearly normal


def _share(settings: Values) -> float:
    """Return C/N, the chance that a client is in a round."""
    n = settings.num_clients
    sizes = n, settings.cohort_size, settings.privacy_target
    return selection.expected_cardinality(*sizes, settings.dropout_rate) / n


def _reach(rounds: int, trials: int, settings: Values) -> float:
    """Return the gap that counts of equal expectation exceed with chance 1e-3.

    A block is in a round with chance s = C/N, and rounds are independent. K/T of the M
    blocks are in each round that is not skipped, so counts are nearly normal, with
    variance J s (1 - s), and nearly -1/(M - 1) correlated: their range is that of M
    independent ones, of variance larger by M / (M - 1).
    """
    from scipy import stats

    blocks, share = settings.num_clients // settings.privacy_target, _share(settings)
    deviation = math.sqrt(share * (1 - share) * blocks / (blocks - 1) / rounds)
    # of all trials together
    widest = stats.studentized_range.isf(1e-3 / trials, blocks, np.inf)
    return float(widest) * deviation


def expected_gap(
    available: Sequence[Fraction], chosen: int, rounds: int, *, is_least: bool
) -> Fraction:
    """Return F after so many rounds.

    The gap between blocks' expected shares, in fractions.

    Args:
        available: Chance that each block is whole.
        chosen: K/T, blocks in a round; with fewer that are whole the round is skipped.
        rounds: Rounds.
        is_least: Whether one of the least used among the whole blocks is forced
            (Algorithm 2).

    Examples:
        >>> expected_gap([Fraction(1, 2), Fraction(1, 2)], 1, 5, is_least=True)
        Fraction(0, 1)
    """
    count = len(available)
    states = {(0,) * count: Fraction(1)}
    total = [Fraction(0)] * count
    whole = [
        (
            which,
            math.prod(
                online if i in which else 1 - online
                for i, online in enumerate(available)
            ),
        )
        for size in range(chosen, count + 1)
        for which in itertools.combinations(range(count), size)
    ]
    for _ in range(rounds):
        following: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for used, chance in states.items():
            rest = chance
            for which, weight in whole:
                rest -= chance * weight
                for cohort, share in _cohorts(used, which, chosen, is_least).items():
                    step = chance * weight * share
                    after = [times + (i in cohort) for i, times in enumerate(used)]
                    # only differences matter, so states stay few
                    following[tuple(times - min(after) for times in after)] += step
                    for i in cohort:
                        total[i] += step
            following[used] += rest  # skipped
        states = following
    return (max(total) - min(total)) / rounds


def _cohorts(
    used: tuple[int, ...], which: tuple[int, ...], chosen: int, is_least: bool
) -> dict[tuple[int, ...], Fraction]:
    """Return the chance of each union of blocks among those that are whole."""
    least = min(used[i] for i in which)
    # Algorithm 2 forces one of the least used blocks
    firsts = [i for i in which if used[i] == least] if is_least else list(which)
    chances: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for first in firsts:
        rest = list(
            itertools.combinations([i for i in which if i != first], chosen - 1)
        )
        for others in rest:
            chances[tuple(sorted((first, *others)))] += Fraction(
                1, len(firsts) * len(rest)
            )
    return chances


def draw_fairness_gap(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the mean gap over rounds with its range.

    The columns are setup, rounds, trial and gap.
    """
    for _, rows, look in in_turn(data, "setup", "{}", color=COLOURS, marker=MARKERS):
        gaps = rows.groupby("rounds")["gap"]
        ax.plot(gaps.mean().index, gaps.mean(), ms=5, **look)
        ax.fill_between(
            gaps.mean().index, gaps.min(), gaps.max(), color=look["color"], alpha=0.15
        )
