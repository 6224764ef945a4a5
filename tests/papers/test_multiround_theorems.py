"""Multi-RoundSecAgg's Theorems 1 to 3 and Remark 6.

Exact chains, all families, right verdicts.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item

import mrsa_jax as mj
from mrsa_papers.harness import Context

fairness, convergence = inside("multiround.theorem1"), inside("multiround.theorem2")
necessity, theory = inside("multiround.remark6"), inside("multiround.theorem3")


@pytest.mark.smoke
def test_expected_gap_of_one_block_by_hand() -> None:
    """Two blocks, whole in 1/4 and 3/4 of the rounds, one of them in a round."""
    one = [Fraction(1, 4), Fraction(3, 4)]
    # both are whole in 3/16, then either; the first alone in 1/16, the second alone in
    # 9/16
    assert fairness.expected_gap(one, 1, 1, is_least=True) == Fraction(1, 2)
    # second round, both whole: whoever is behind goes first
    first, second = Fraction(5, 32), Fraction(21, 32)
    after = (
        first * Fraction(1, 16)
        + second * Fraction(1, 4)
        + Fraction(3, 16) * Fraction(5, 32)
    )
    rest = (
        first * Fraction(3, 4)
        + second * Fraction(9, 16)
        + Fraction(3, 16) * Fraction(21, 32)
    )
    wanted = (second + rest - first - after) / 2
    assert fairness.expected_gap(one, 1, 2, is_least=True) == wanted
    assert fairness.expected_gap(one, 1, 2, is_least=False) == Fraction(1, 2)


@pytest.mark.smoke("True")
@pytest.mark.parametrize("is_least", [True, False])
def test_expected_gap_against_a_plain_simulation(is_least: bool) -> None:
    rng, trials, rounds = random.Random(1), 3_000, 4
    available = [Fraction(1, 5), Fraction(1, 2), Fraction(9, 10)]
    total = Counter({0: 0, 1: 0, 2: 0})
    for _ in range(trials):
        used = [0, 0, 0]
        for _ in range(rounds):
            whole = [i for i in range(3) if rng.random() < available[i]]
            if len(whole) < 2:
                continue
            least = min(used[i] for i in whole)
            first = rng.choice(
                [i for i in whole if used[i] == least] if is_least else whole
            )
            for i in (first, rng.choice([i for i in whole if i != first])):
                used[i] += 1
                total[i] += 1
    simulated = (max(total.values()) - min(total.values())) / trials / rounds
    exact = float(fairness.expected_gap(available, 2, rounds, is_least=is_least))
    assert abs(simulated - exact) < 5 * 2 / (trials**0.5 * 2)


def test_f_is_0_for_equal_rates_and_not_for_unequal_ones() -> None:
    equal, mixed = fairness._exact_checks(4)
    assert (equal.verdict, equal.ours) == ("reproduced", "0")
    assert mixed.verdict == "our reading"
    floor = Fraction(81, 100) * Fraction(3, 4) - Fraction(1, 4)
    assert float(floor) == pytest.approx(0.3575)
    assert float(mixed.ours) >= float(floor)


@pytest.mark.parametrize(
    ("ends", "verdicts"),
    [
        ((0.12, 0.06), ["reproduced"] * 2),
        ((0.08, 0.09), ["reproduced", "differs"]),
        ((0.5, 0.15), ["differs", "reproduced"]),
    ],
)
def test_simulated_gaps_must_fall_and_end_small(
    ends: tuple, verdicts: list[str]
) -> None:
    frame = pd.DataFrame(
        {"setup": name, "rounds": rounds, "trial": trial, "gap": gap}
        for name in (fairness.EQUAL, fairness.LEAST, fairness.MIXED)
        for rounds, gap in zip((100, 400), ends, strict=True)
        for trial in range(3)
    )
    values = values_of_item("multiround.theorem1", fast=True)
    found = fairness._simulated_checks(frame, values)
    assert [check.verdict for check in found] == verdicts
    # one number of rounds, or numbers next to each other, decide nothing
    alone = frame[frame["rounds"] == 400]
    assert list(fairness._simulated_checks(alone, values))[1].verdict == "undecided"
    near = frame.replace({"rounds": {100: 399}})
    rises = list(fairness._simulated_checks(near, values))[1].verdict
    assert rises == ("undecided" if ends[1] > ends[0] else "reproduced")


# ---- Remark 6


def test_families_by_the_engines_strong_privacy() -> None:
    """All families of four clients, K = 2: the largest of strong privacy T or more."""
    rows = [row for row in itertools.product((0, 1), repeat=4) if sum(row) == 2]
    best = {1: 0, 2: 0}
    for chosen in itertools.product((False, True), repeat=len(rows)):
        family = list(itertools.compress(rows, chosen))
        for target in best if family else ():
            if (mj.privacy.strong_privacy(np.array(family, bool)) or 0) >= target:
                best[target] = max(best[target], len(family))
    assert best == {t: necessity.largest_family(4, 2, t) for t in (1, 2)}


def test_groupings_one_by_one() -> None:
    """Every partition of six clients, its unions that hold three, without counting by sums."""

    def partitions(clients: list[int]) -> list[list[list[int]]]:
        if not clients:
            return [[]]
        head, *rest = clients
        found = []
        for others in partitions(rest):
            found += [[[head], *others]]
            found += [
                [*others[:i], [head, *group], *others[i + 1 :]]
                for i, group in enumerate(others)
            ]
        return found

    for k, t in ((3, 1), (2, 1), (2, 2), (3, 3)):
        most, mixed = 0, False
        for count in range(7):
            for groups in partitions(list(range(count))):  # the others are in no cohort
                if any(len(group) < t for group in groups):
                    continue
                unions = [
                    chosen
                    for size in range(1, len(groups) + 1)
                    for chosen in itertools.combinations(groups, size)
                    if sum(map(len, chosen)) == k
                ]
                most, mixed = (
                    max(most, len(unions)),
                    mixed or len({len(u) for u in unions}) > 1,
                )
        assert necessity.largest_union_family(6, k, t) == (most, mixed)


def test_remark_6_and_its_proof() -> None:
    values = values_of_item("multiround.remark6", fast=True)
    found = necessity.necessity(Context(0, True), values)
    assert [check.verdict for check in found.checks] == ["reproduced"] * 3 + [
        "our reading"
    ]
    assert "first at N, K, T = 8, 4, 2" in found.checks[-1].ours


# ---- Theorems 2 and 3


def test_what_theorem_2_errs_in() -> None:
    """A constant added to all losses moves L* once and their sum N times."""
    made = Context(0, True), values_of_item("multiround.theorem2", fast=True)
    check = convergence._shifted(*made)
    assert check.verdict == "paper errs"
    assert float(check.ours.split(";")[0]) < 0
    assert convergence._drawn(*made).verdict == convergence._jensen(*made).verdict
    assert convergence._drawn(*made).verdict == "our reading"
    values = np.repeat(np.random.default_rng(0).normal(size=4), 2)
    means = [
        np.mean([values[2 * i], values[2 * i + 1], values[2 * j], values[2 * j + 1]])
        for i, j in itertools.combinations(range(4), 2)
    ]
    wanted = np.var(means) / np.var(values)
    assert convergence.drawing_variance(0, 8, 4, 2) == pytest.approx(wanted)
    assert wanted == pytest.approx(2 * (8 - 4) / (4 * (8 - 2)))


def test_equation_24_holds_with_t_as_the_next_step() -> None:
    """The worst of (23), in fractions, below (24) with t = j + 1, and not with j + 9."""
    generator = np.random.default_rng(1)
    is_sharp = False
    for _ in range(20):
        mu, ratio, start, variance = (
            Fraction(int(each), 10) for each in generator.integers(1, 40, 4)
        )
        gamma = 8 * (1 + ratio)  # 8 rho / mu, rho above mu
        distance = start
        for j in range(60):
            rate = 2 / (mu * (gamma + j))
            distance = (1 - rate * mu) * distance + variance * rate**2
            bound = 4 * variance / mu**2 + gamma * start
            assert distance <= bound / (gamma + (j + 1) - 1)
            is_sharp |= distance > bound / (gamma + (j + 9) + 8 - 1)
            # exact fractions grow: rounded upwards, which only raises what is bounded
            distance = Fraction(math.ceil(distance * 10**12), 10**12)
    assert is_sharp


@pytest.mark.parametrize(
    ("gap", "verdicts"),
    [
        (0.5, ["reproduced"] * 3),
        (3.0, ["differs", "reproduced", "reproduced"]),
        (9.0, ["differs"] * 2 + ["reproduced"]),
    ],
)
def test_training_must_stay_below_the_bound(gap: float, verdicts: list[str]) -> None:
    frame = pd.DataFrame(
        {
            "E": 1,
            "T": t,
            "p": p,
            "C": 4 - 2 * p,
            "rounds": rounds,
            "gap": gap * (1 + p),
            "error": 0.0,
            "printed": 2.0 * (1 + p),
            "corrected": 6.0 * (1 + p),
        }
        for t in (1, 2, 4)
        for p in (0.0, 0.5)
        for rounds in (10, 60)
    )
    values = values_of_item("multiround.theorem2", fast=True, local_steps=(1,))
    checks = itertools.islice(convergence._checks(Context(0, True), frame, values), 3)
    assert [check.verdict for check in checks] == verdicts


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.4, 0.1, 0.05), "reproduced"),  # four and eight steps: as many fewer rounds
        ((0.4, 0.11, 0.05), "undecided"),
        ((0.4, 0.4, 0.4), "our reading"),
    ],
)
def test_local_steps_count_as_rounds_where_the_gap_falls_as_they_say(
    gaps: tuple[float, ...], verdict: str
) -> None:
    frame = pd.DataFrame(
        {"E": steps, "T": t, "p": p, "C": 4.0, "rounds": rounds, "gap": gap}
        | {"error": 0.01, "corrected": 9.0}
        for steps, gap in zip((1, 4, 8), gaps, strict=True)
        for t, p in ((1, 0.0), (2, 0.5))
        for rounds in (10, 60)
    )
    values = values_of_item("multiround.theorem2", local_steps=(1, 4, 8))
    check = convergence._local_steps(frame, values)
    assert check.verdict == verdict
    assert "E = 4: " in check.ours


@pytest.mark.parametrize(
    ("singular", "draws", "verdict"),
    [
        ((0.4, 0.01), 3000, "reproduced"),
        ((0.4, 0.2), 3000, "differs"),
        ((0.4, 0.08), 300, "undecided"),
    ],
)
def test_equation_31_is_judged_by_how_fast_it_falls(
    singular: tuple, draws: int, verdict: str
) -> None:
    """From c' of N = 20, -log(.2)/20 = .08.

    At N = 40 at most 2 exp(-3.2) = .08 may be singular.
    """
    at_n = pd.DataFrame(
        {"N": [20, 40], "K": [4, 8], "full_rank": [1 - own for own in singular]}
    )
    assert theory._decays(at_n, draws).verdict == verdict
    assert theory._decays(at_n[:1], draws).verdict == "undecided"
