"""Stages of a study against plain oracles."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import availability, selection, study
from mrsa_jax._core import batches as _batches
from mrsa_jax.selection import RoundHistory
from mrsa_jax.study import DataConfig, PopulationConfig, parse_scheme
from mrsa_jax.study.publishing._summary import summarise
from mrsa_jax.study.runs import _trial
from mrsa_jax.study.runs._build import (
    build_clients,
    build_rates,
    build_selector,
    expected_cardinality,
)


@pytest.mark.long
def test_a_history_is_analysed_round_by_round() -> None:
    """Worked by hand: rounds {0,1}, nobody, {1,2}, {0,2}.

    The odd cycle exposes everybody.
    """
    history = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 1]], bool)
    found = _trial.analyse(history)
    assert found.rank.tolist() == [1, 1, 2, 3]
    assert found.first_exposure.tolist() == [3, 3, 3]
    assert found.exposed_clients.tolist() == [0, 0, 0, 3]
    assert found.strong_privacy.tolist() == [2, 2, 1, 1]
    assert found.skipped.tolist() == [False, True, False, False]
    np.testing.assert_allclose(found.fairness_gap, [1, 1 / 2, 1 / 3, 0])
    np.testing.assert_allclose(found.aggregation_cardinality, [2, 1, 4 / 3, 3 / 2])


@pytest.mark.long
def test_trials_are_analysed_as_one_by_one() -> None:
    selector = mj.selection.uniform(8, 3)
    trials = mj.selection.rollout_trials(
        0, selector, mj.availability.independent(0.3), 12, 4
    )
    together = _trial.analyse(trials)
    for b in range(4):
        alone = _trial.analyse(np.asarray(trials)[b])
        for name in (
            "strong_privacy",
            "rank",
            "first_exposure",
            "exposed_clients",
            "skipped",
        ):
            np.testing.assert_array_equal(
                getattr(together, name)[b], getattr(alone, name)
            )


@pytest.mark.long
def test_parts_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = mj.selection.uniform(9, 2)
    shape = (2, 7, 15, 9)
    trials = np.asarray(
        mj.selection.rollout_trials(
            0, selector, mj.availability.independent(0.3), 15, 14
        )
    ).reshape(shape)
    whole = _trial.analyse(trials)
    first, rounds = whole.first_exposure[..., None, :], np.arange(15)[:, None]
    assert (first >= 0).any()
    expected = ((first >= 0) & (first <= rounds)).sum(axis=-1)  # from the definition
    np.testing.assert_array_equal(whole.exposed_clients, expected)
    for entries, size in ((1, 1), (4 * 15 * 9, 4), (10**9, 14)):
        monkeypatch.setitem(_batches._WORK, "analyses", _batches._Work(96 * entries, 1))
        assert _trial.trials_at_once(14, 15, 9) == size
        parts = _trial.analyse(trials)
        for name, values in vars(whole).items():
            own = getattr(parts, name)
            assert own.dtype == values.dtype
            np.testing.assert_allclose(
                own, values, rtol=1e-6 * (values.dtype.kind == "f")
            )


def _rank(rows: np.ndarray) -> int:
    """Gauss over the rationals."""
    left = [[Fraction(int(value)) for value in row] for row in rows]
    rank = 0
    for column in range(rows.shape[1]):
        pivot = next((row for row in left[rank:] if row[column]), None)
        if pivot is None:
            continue
        left.remove(pivot)
        left.insert(rank, pivot)
        for i in range(rank + 1, len(left)):
            factor = left[i][column] / pivot[column]
            left[i] = [a - factor * b for a, b in zip(left[i], pivot, strict=True)]
        rank += 1
    return rank


def _has_combination(P: np.ndarray, clients: tuple[int, ...]) -> bool:
    """Whether a non-zero combination of the rows involves none but these clients."""
    return _rank(P) > _rank(np.delete(P, clients, axis=1))


def _weak(P: np.ndarray) -> int:
    """From the definition, over all sets of clients; -1 without any sum."""
    n = P.shape[1]
    sets = (own for k in range(1, n + 1) for own in itertools.combinations(range(n), k))
    return next((len(own) for own in sets if _has_combination(P, own)), -1)


def _known(P: np.ndarray) -> _trial.History:
    """Return what bounds on weak T go by, from the definitions."""
    rounds, n = P.shape
    first, strong, rank = np.full(n, -1), np.full(rounds, -1), np.zeros(rounds, int)
    for j in range(rounds):
        now = P[: j + 1]
        rank[j] = _rank(now)
        columns = [tuple(column) for column in now.T if column.any()]
        strong[j] = min(map(columns.count, columns), default=-1)
        for i in range(n):
            if first[i] < 0 and _has_combination(now, (i,)):
                first[i] = j
    worst, nothing = np.full(rounds, np.nan), np.zeros(rounds)
    for j in np.flatnonzero(rank):
        now = P[: j + 1].astype(float)
        leverages = np.diag(np.linalg.pinv(now) @ now)
        worst[j] = 1 / leverages.max()
    return _trial.History(P, strong, rank, first, worst, nothing, nothing, nothing)


def _histories() -> list[np.ndarray]:
    """Small ones: of single clients, of blocks, with rounds of nobody or of everybody."""
    generator = np.random.default_rng(0)
    found = [np.zeros((2, 3), bool), np.ones((3, 4), bool), np.eye(4, dtype=bool)]
    for size in (1, 2, 3):
        for _ in range(8):
            blocks = generator.random((4, 6 // size)) < generator.choice(
                [0.2, 0.5, 0.8]
            )
            found.append(np.repeat(blocks, size, axis=1))
    return found


def test_quick_bounds_hold_weak_t_of_the_definition() -> None:
    widths = []
    for P in _histories():
        weak = [_weak(P[: j + 1]) for j in range(len(P))]
        found = _known(P)
        bounds = _trial.quick_bounds(found)
        assert bounds is not None
        for at, low, high, rank in zip(weak, *bounds, found.rank, strict=True):
            assert low <= at <= high
            assert (low < 0) == (high < 0) == (rank == 0)
            widths.append(high - low)
        is_exposed = found.exposed_clients > 0
        assert (np.asarray(bounds)[:, is_exposed] == 1).all()
        assert (bounds[0][~is_exposed] != 1).all()
    assert np.mean(widths) < 0.2  # else they say nothing


def test_quick_bounds_meet_where_all_blocks_can_be_told_apart() -> None:
    """Three blocks of two, of which each sum has two: an odd cycle, of full rank.

    After two sums each client has leverage 1/3, and so T is at least 3.
    """
    P = np.repeat(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool), 2, axis=1)
    bounds = _trial.quick_bounds(_known(P))
    assert bounds is not None
    assert [own.tolist() for own in bounds] == [[4, 3, 2], [4, 4, 2]]


def test_large_histories_have_no_quick_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trial, "_MOST_PRODUCTS", 3 * 3 * 4 - 1)
    P = np.ones((3, 4), bool)
    assert _trial.quick_bounds(_known(P)) is None


def test_a_sum_of_one_is_withheld() -> None:
    cohorts = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    assert _trial.learnt_sums(cohorts).tolist() == [
        [False] * 3,
        [True, True, False],
        [False] * 3,
    ]
    assert (_trial.analyse(_trial.learnt_sums(cohorts)).first_exposure == -1).all()


def test_one_label_shards_hold_one_label_and_equal_shards_may_hold_two() -> None:
    for single_label in (True, False):
        config = DataConfig(
            dataset="digits", partition="shards", single_label=single_label
        )
        _, clients = build_clients(0, config, 37)
        labels = (mj.data.class_counts(clients) > 0).sum(axis=1)
        assert (labels.max() == 1) == single_label


@pytest.mark.smoke("rates2")
@pytest.mark.parametrize("rates", [(0.0,), (0.2, 0.7), (0.0, 0.5, 1.0)])
def test_bernoulli_moments_equal_an_enumeration(rates: tuple[float, ...]) -> None:
    population = PopulationConfig(num_clients=5, cohort_size=2, dropout_rates=rates)
    assigned = build_rates(0, population)
    for probability in ("0.3", "1"):
        scheme = parse_scheme(f"bernoulli:{probability}")
        chances = (1 - assigned.astype(float)) * float(probability)
        mean = square = 0.0
        for joins in itertools.product((0, 1), repeat=5):
            weight = np.prod(np.where(joins, chances, 1 - chances))
            size = sum(joins) if sum(joins) >= 2 else 0
            mean, square = mean + weight * size, square + weight * size**2
        found = expected_cardinality(build_selector(scheme, population), assigned)
        np.testing.assert_allclose(
            found, (mean, np.sqrt(max(square - mean**2, 0))), atol=1e-9
        )


@pytest.mark.long("power_of_choice:6")
@pytest.mark.parametrize(
    "text",
    [
        "uniform",
        "weighted",
        "partition",
        "batch_partitioning:2",
        "bernoulli:0.4",
        "poisson:0.2:0.9",
        "power_of_choice:6",
    ],
)
def test_cardinality_lies_within_monte_carlo_error_of_its_expectation(
    text: str,
) -> None:
    """Mixed rates; five standard errors: a false failure has a chance of about 6e-7."""
    population = PopulationConfig(
        num_clients=12, cohort_size=4, dropout_rates=(0.2, 0.5)
    )
    rates = build_rates(1, population)
    scheme = parse_scheme(text)
    selector = build_selector(scheme, population)
    mean, deviation = expected_cardinality(selector, rates)
    trials = mj.selection.rollout_trials(
        2, selector, mj.availability.independent(rates), 100, 40
    )
    sizes = _trial.learnt_sums(trials).sum(axis=-1)
    assert abs(sizes.mean() - mean) <= 5 * deviation / np.sqrt(sizes.size) + 1e-9


@pytest.mark.long
def test_rounds_with_parts_are_analysed_sum_by_sum() -> None:
    """By hand: {0,1} + {2} in a round, nothing, then {0,1,2,3}, then a failed round's {3}."""
    parts = np.array([[0, 0, 2, -1], [-1] * 4, [0, 0, 0, 0], [-1, -1, -1, 3]], np.int32)
    own = np.array([[1, 1, 1, 0], [0] * 4, [1, 1, 1, 1], [0] * 4], bool)
    status = np.array([0, 1, 0, 3], np.int32)
    played = RoundHistory(np.zeros((4, 5, 4), bool), own, status, None, parts)
    found = _trial.analyse_rounds(played)
    assert found.rank.tolist() == [2, 2, 3, 3]
    assert found.first_exposure.tolist() == [-1, -1, 0, 2]
    assert found.strong_privacy.tolist() == [1, 1, 1, 1]
    assert found.exposed_clients.tolist() == [1, 1, 2, 2]
    assert found.skipped.tolist() == [False, True, False, True]
    np.testing.assert_allclose(found.aggregation_cardinality, [3, 1.5, 7 / 3, 7 / 4])
    ends = _trial.analyse_rounds(played, at_end=True)
    assert ends.first_exposure.tolist() == [-1, -1, 0, 2]
    for name in ("rank", "strong_privacy", "hidden_among_worst", "hidden_among_median"):
        path = getattr(found, name)
        np.testing.assert_allclose(getattr(ends, name), path[-1:], rtol=1e-12)
    whole = _trial.analyse_rounds(played._replace(components=None))
    plain = _trial.analyse(own)
    for name in (
        "rank",
        "first_exposure",
        "strong_privacy",
        "fairness_gap",
        "participation",
    ):
        np.testing.assert_array_equal(getattr(whole, name), getattr(plain, name))


def test_simulate_gives_the_gap_of_expected_shares_where_it_is_quick() -> None:
    """Exact of random selection, estimated of blocks, unknown of coins."""
    config = study.SimulateConfig(
        rounds=4,
        trials=2,
        schemes=("uniform", "batch_partitioning:2", "bernoulli:0.5"),
        population=study.PopulationConfig(
            num_clients=8, cohort_size=4, dropout_rates=(0.1, 0.5)
        ),
    )
    found = study.run(config)
    random, blocks, coins = found["expected_fairness_gap"].values
    errors = found["expected_fairness_error"].values
    rates = build_rates(0, config.population)
    scheme = selection.uniform(8, 4)
    online = availability.independent(rates)
    assert random == selection.expected_fairness_gap(scheme, online).value > 0
    assert errors[0] == 0 < errors[1]
    scheme = selection.batch_partitioning(8, 4, 2)
    assert blocks == selection.expected_fairness_gap(scheme, online).value
    assert np.isnan([coins, errors[2]]).all()
    row, *_ = summarise(found)
    assert row.expected_fairness == f"{random:.4f}"


@pytest.mark.long
def test_simulate_gives_no_gap_of_expected_shares_with_losses() -> None:
    config = study.SimulateConfig(
        rounds=4,
        trials=2,
        schemes=("uniform",),
        population=study.PopulationConfig(num_clients=8, cohort_size=4),
        protocol=study.ProtocolConfig(step_dropout_rate=0.2),
    )
    found = study.run(config)
    assert np.isnan(found["expected_fairness_gap"].values).all()
