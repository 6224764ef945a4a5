"""The gap of expected shares: enumeration in fractions, a limit by hand, and noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import jax
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, availability, privacy, selection
from mrsa_jax.selection import _shares, expected_fairness_gap

PAPER = (0.1, 0.2, 0.3, 0.4, 0.5)


def enumerated_gap(
    offline: Sequence[Fraction], cohort_size: int, block_size: int
) -> Fraction:
    """Add up each client's chance over every set of clients online."""
    n, chosen = len(offline), cohort_size // block_size
    shares = [Fraction(0)] * n
    for online in itertools.product((False, True), repeat=n):
        chance = math.prod(
            1 - rate if is_on else rate
            for rate, is_on in zip(offline, online, strict=True)
        )
        whole = [
            block
            for block in range(n // block_size)
            if all(online[block * block_size : (block + 1) * block_size])
        ]
        for block in whole if len(whole) >= chosen else ():
            for member in range(block * block_size, (block + 1) * block_size):
                shares[member] += chance * Fraction(chosen, len(whole))
    return max(shares) - min(shares)


@pytest.mark.parametrize(
    ("n", "k", "t"), [(5, 2, 1), (6, 1, 1), (6, 6, 1), (8, 4, 2), (9, 3, 3), (2, 1, 1)]
)
def test_exact_values_equal_enumeration_in_fractions(n: int, k: int, t: int) -> None:
    draw = np.random.default_rng([n, k, t])
    offline = [Fraction(int(part), 16) for part in draw.integers(0, 17, n)]
    online = availability.independent(np.array(offline, np.float64))
    schemes = [selection.batch_partitioning(n, k, t, "uniform")]
    schemes += [selection.uniform(n, k)] if t == 1 else []
    for scheme in schemes:
        gap = expected_fairness_gap(scheme, online)
        assert gap.is_exact
        assert gap.lower == gap.upper == gap.value
        assert gap.standard_error == 0
        expected = float(enumerated_gap(offline, k, t))
        assert gap.value == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("how", ["shuffled", "cyclic", "sorted"])
def test_random_selection_at_the_papers_sizes(how: str) -> None:
    rates = availability.assign_rates(3, PAPER, 120, how)  # type: ignore[arg-type]
    gap = expected_fairness_gap(
        selection.uniform(120, 12), availability.independent(rates)
    )
    assert round(gap.value, 4) == 0.0576
    # the same from each client's share, which another recursion computes
    shares = selection.uniform(120, 12).chances(rates.astype(np.float64))
    assert gap.value == pytest.approx(float(np.ptp(shares)), rel=1e-12)


def test_blocks_of_one_law_have_no_gap_under_any_rule() -> None:
    mixed = availability.independent([0.1, 0.5, 0.5, 0.1, 0.1, 0.5])
    for rule in ("least_used", "uniform", "greedy"):
        scheme = selection.batch_partitioning(6, 2, 2, rule)  # type: ignore[arg-type]
        assert expected_fairness_gap(scheme, mixed) == _shares.ExpectedGap(
            0.0, 0.0, 0.0, 0.0, is_exact=True
        )


def test_bernoulli_sampling_is_exact() -> None:
    online = availability.independent([0.0, 0.5, 0.25])
    gap = expected_fairness_gap(selection.bernoulli(3, 0.5), online)
    assert gap.is_exact
    assert gap.value == 0.25


def test_the_least_used_of_two_blocks_is_taken_whenever_it_is_there() -> None:
    """By hand: the rarer block in 1/4 of the rounds, the other in .81 x 3/4."""
    online = availability.independent([0.1, 0.1, 0.5, 0.5])
    gap = expected_fairness_gap(selection.partition(4, 2), online)
    assert not gap.is_exact
    assert gap.lower <= 0.81 * 0.75 - 0.25 <= gap.upper
    assert gap.value == pytest.approx(0.3575, abs=5 * gap.standard_error)
    assert "estimated" in str(gap)


def test_estimates_of_a_gap_that_is_computed_cover_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gap of all means is too large by noise; the estimate is not."""
    rates = np.tile(PAPER, 8)
    scheme, online = selection.uniform(40, 4), availability.independent(rates)
    truth = expected_fairness_gap(scheme, online).value
    monkeypatch.setattr(_shares, "exact_gap", lambda *_: None)
    size = {"num_rounds": 400, "num_trials": 16}
    gaps = [expected_fairness_gap(scheme, online, seed=s, **size) for s in range(30)]
    covered = sum(gap.lower <= truth <= gap.upper for gap in gaps)
    assert covered >= 27
    mean = float(np.mean([gap.value for gap in gaps]))
    plain = [
        float(
            np.ptp(
                np.asarray(selection.rollout_counts(s, scheme, online, 400, 16)).mean(0)
            )
        )
        / 400
        for s in range(30)
    ]
    assert float(np.mean(plain)) > truth + 0.01
    assert abs(mean - truth) < 0.005
    # where all shares are equal, noise is all that there is
    alike = availability.independent(0.3)
    noise = [expected_fairness_gap(scheme, alike, seed=s, **size) for s in range(20)]
    assert all(gap.lower == 0 for gap in noise[:15])
    assert float(np.mean([gap.value for gap in noise])) < 0.006


@pytest.mark.long
def test_absences_that_last_are_simulated() -> None:
    online = availability.markov([0.1, 0.1, 0.5, 0.5], 3.0)
    size = {"num_rounds": 400, "num_trials": 8}
    gap = expected_fairness_gap(selection.uniform(4, 2), online, **size)
    assert not gap.is_exact
    independent = availability.independent([0.1, 0.1, 0.5, 0.5])
    shares = expected_fairness_gap(selection.uniform(4, 2), independent)
    # a round of random selection looks at its own clients online alone
    assert gap.lower <= shares.value <= gap.upper


@pytest.mark.parametrize("argument", ["num_rounds", "num_trials"])
def test_sizes_that_give_no_error_are_refused(argument: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"`{argument}` must be at least 4; got 3"
    ):
        expected_fairness_gap(
            selection.weighted(4, 2), availability.independent(0.1), **{argument: 3}
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "how", "stated"),
    [
        # as docs/errata.md states
        (3, "shuffled", 0.000),
        (4, "shuffled", 0.025),
        (6, "shuffled", 0.045),
        (4, "sorted", 0.046),
        (6, "sorted", 0.137),
        (12, "sorted", 0.202),
    ],
)
def test_greedy_drives_the_gap_to_0_in_some_settings_only(
    target: int, how: str, stated: float
) -> None:
    rates = availability.assign_rates(1, PAPER, 120, how)  # type: ignore[arg-type]
    scheme = selection.batch_partitioning(120, 12, target, "greedy")
    gap = expected_fairness_gap(scheme, availability.independent(rates))
    assert gap.value == pytest.approx(stated, abs=0.001)
    least = selection.batch_partitioning(120, 12, target)
    other = expected_fairness_gap(least, availability.independent(rates))
    if target == 12:  # one block in a round: both rules are one
        assert gap == other
    else:
        assert gap.upper < other.lower


@pytest.mark.long
def test_greedy_is_never_less_fair_than_the_papers_rule() -> None:
    """Ten settings at random, with their errors; where both reach 0 they are equal."""
    generator = np.random.default_rng(0)
    smaller = 0
    for _ in range(10):
        target, per = (int(each) for each in generator.integers((1, 2), (4, 4)))
        num_clients = target * per * int(generator.integers(1, 5)) + target
        rates = generator.choice([0.05, 0.1, 0.3, 0.5, 0.7], num_clients)
        online = availability.independent(rates)
        greedy, papers = (
            expected_fairness_gap(
                selection.batch_partitioning(num_clients, target * per, target, rule),
                online,
            )
            for rule in ("greedy", "least_used")
        )
        assert greedy.lower <= papers.upper
        smaller += greedy.upper < papers.lower
    assert smaller >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "above", "mean", "cyclic", "ordered"),
    [
        (3, 151, 0.065, 0.029, 0.074),
        (4, 175, 0.082, 0.011, 0.117),
        (6, 187, 0.095, 0.009, 0.184),
    ],
)
def test_blocks_drawn_at_random_are_mostly_less_fair_than_random_selection(
    target: int, above: int, mean: float, cyclic: float, ordered: float
) -> None:
    """As docs/concepts/usefulness.md and the errata state of 200 assignments."""
    scheme = selection.batch_partitioning(120, 12, target)

    def gap(seed: int, how: str) -> _shares.ExpectedGap:
        rates = availability.assign_rates(seed, PAPER, 120, how)  # type: ignore[arg-type]
        return expected_fairness_gap(scheme, availability.independent(rates), seed=seed)

    random = 0.0576033
    gaps = [gap(seed, "shuffled") for seed in range(200)]
    assert sum(one.value > random for one in gaps) == above
    # noise decides few of them
    undecided = sum(one.lower <= random <= one.upper for one in gaps)
    assert undecided <= 8
    assert np.mean([one.value for one in gaps]) == pytest.approx(mean, abs=0.0006)
    assert gap(0, "cyclic").value == pytest.approx(cyclic, abs=0.0006)
    assert gap(0, "sorted").value == pytest.approx(ordered, abs=0.001)


def test_tied_blocks_are_drawn_and_not_the_cohorts_that_hold_one() -> None:
    """Two of four blocks are tied, and two are taken: 1/3, not 1/5 (docs/errata.md)."""
    scheme = selection.batch_partitioning(4, 2, 1)
    counts = np.array([0, 0, 1, 1], np.int32)
    trials = 4000
    state = scheme.init()._replace(counts=jax.numpy.tile(counts[:, None], (1, trials)))
    cohort, _ = scheme.select(
        jax.random.split(jax.random.key(0), trials),
        state,
        jax.numpy.ones((4, trials), bool),
    )
    both = float(np.asarray(cohort)[:2].all(axis=0).mean())
    # five standard errors of 4,000 trials
    assert abs(both - 1 / 3) < 5 * np.sqrt(2 / 9 / trials)
    # one of the two tied first, then one of the other three
    drawn = [{first, other} for first in (0, 1) for other in range(4) if other != first]
    listed = [pair for pair in itertools.combinations(range(4), 2) if {0, 1} & {*pair}]
    assert Fraction(drawn.count({0, 1}), len(drawn)) == Fraction(1, 3)
    assert Fraction(listed.count((0, 1)), len(listed)) == Fraction(1, 5)


def test_blocks_of_one_client_are_not_random_selection() -> None:
    """F of eq. (6) at cyclic rates: .028 with lambda = 1, .0576 with 0 (docs/errata.md)."""
    online = availability.independent(np.tile(PAPER, 24))
    least, any_of_them = (
        expected_fairness_gap(selection.batch_partitioning(120, 12, 1, rule), online)
        for rule in ("least_used", "uniform")
    )
    assert least.value == pytest.approx(0.028, abs=0.001)
    assert round(any_of_them.value, 4) == 0.0576


def test_two_sums_of_one_size_expose_no_client() -> None:
    """Cohorts of K clients, as eq. (3) has them; Figure 1 has 3 and 2 of them."""
    assert privacy.first_exposure([[1, 1, 1], [1, 1, 0]]).tolist() == [-1, -1, 1]
    rows = [
        [int(client in cohort) for client in range(4)]
        for cohort in itertools.combinations(range(4), 2)
    ]
    for pair in itertools.product(rows, repeat=2):
        assert (np.asarray(privacy.first_exposure(pair)) == -1).all()
    triangle = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert privacy.first_exposure(triangle).tolist() == [2, 2, 2]
