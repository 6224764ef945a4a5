"""One pass over histories against exhaustion in exact fractions, and against each figure's own."""

import math
from fractions import Fraction

import hostile
import numpy as np
import pytest
import row_space_oracle as oracle

import mrsa_jax as mj
from mrsa_jax.privacy import _leverage, summary
from mrsa_jax.privacy.summary import hidden_by_round, summaries

ENDS = (0.0, 0.5, 1.0)


def quantiles_of(leverages) -> list[float]:
    """Return the quantiles of 1 / leverage over those who have one, in proportion between two."""
    found = sorted(1 / share for share in leverages if share)
    if not found:
        return [np.nan] * len(ENDS)
    values = []
    for quantile in ENDS:
        place = quantile * (len(found) - 1)
        low, high = found[math.floor(place)], found[math.ceil(place)]
        values.append(float(low + Fraction(place % 1) * (high - low)))
    return values


def check(histories: np.ndarray, rtol: float = 1e-13) -> None:
    found = summaries(histories, ENDS)
    assert found is not None
    for b, history in enumerate(histories):
        rows = oracle.as_rows(history)
        exposed = [oracle.exposed(rows[: j + 1]) for j in range(len(rows))]
        first = [
            next((j for j, own in enumerate(exposed) if i in own), -1)
            for i in range(history.shape[1])
        ]
        assert found.first_exposure[b].tolist() == first
        strong = [oracle.strong_privacy(rows[: j + 1]) for j in range(len(rows))]
        assert found.strong_privacy[b].tolist() == [
            -1 if t is None else t for t in strong
        ]
        ranks = [oracle.rank(rows[: j + 1]) for j in range(len(rows))]
        assert found.rank[b].tolist() == ranks
        expected = quantiles_of(oracle.leverages(rows))
        np.testing.assert_allclose(found.hidden_among[b], expected, rtol)
        assert (found.hidden_among[b, 0] == 1) == bool(exposed[-1])
    np.testing.assert_array_equal(found.counts, histories.sum(axis=1))


@pytest.mark.parametrize(
    ("rounds", "clients"), [(4, 4), (7, 3), (3, 7), (2, 9), (1, 2), (3, 1)]
)
def test_small_histories_by_exhaustion(rounds: int, clients: int) -> None:
    rng = np.random.default_rng(10 * rounds + clients)
    check(rng.random((60, rounds, clients)) < rng.random((60, 1, 1)))


@pytest.mark.long
def test_histories_that_go_by_columns_by_exhaustion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summary, "_MOST_ENTRIES", 26)
    monkeypatch.setattr(_leverage, "_WIDE", 27)
    rng = np.random.default_rng(5)
    histories = rng.random((20, 3, 9)) < rng.random((20, 1, 1))
    histories[0], histories[1, 1] = False, False
    check(histories, 1e-9)


@pytest.mark.long
def test_a_very_large_history_is_known_as_where_it_is_followed() -> None:
    rng = np.random.default_rng(6)
    # ten clients a round: classes of one and of many
    history = rng.random((12, 2**20)) < 1e-5
    history[:, : 2**19] = False
    history[3:5] = rng.random((2, 2**20)) < 0.5
    found = summaries(history[None], (0.0, 0.5))
    assert found is not None
    assert (
        found.rank[0].tolist()
        == np.asarray(mj.modular.rank_trajectory(history)).tolist()
    )
    strong = np.asarray(mj.privacy.strong_privacy_trajectory(history))
    np.testing.assert_array_equal(found.strong_privacy[0], strong)
    first = np.asarray(mj.privacy.first_exposure(history))
    np.testing.assert_array_equal(found.first_exposure[0], first)
    paths = np.asarray(
        mj.privacy.hidden_among_trajectory(history, quantiles=(0.0, 0.5))
    )
    np.testing.assert_array_equal(found.hidden_among[0], paths[-1])


def test_blocks_equal_rounds_and_empty_ones_by_exhaustion() -> None:
    rng = np.random.default_rng(3)
    histories = np.repeat(rng.random((40, 6, 4)) < 0.5, 2, axis=2)  # blocks of two
    histories[::2, :, 7] = False  # one of which is without its second client
    histories[:, 3] = histories[:, 1]
    histories[::3, 2] = False
    histories[0] = False
    check(histories)


@pytest.mark.parametrize("many", [1, 12])
def test_who_differs_between_two_sums_is_exposed(many: int) -> None:
    history = np.zeros((1, 3, 2 + many), np.bool_)
    history[0, 0, :-1] = history[0, 1, 1:-1] = history[0, 2, ::2] = True
    check(history)  # whether columns are many or few


def test_a_client_near_exposure_is_not_exposed() -> None:
    # pairs (a, -a) of the null space's only vector grow like Fibonacci's numbers from 1
    # on
    steps = 17
    history = np.zeros((1, 2 * steps - 1, 2 * steps), np.bool_)
    for k in range(steps):
        history[0, 2 * k, [2 * k, 2 * k + 1]] = True
        if k:
            history[0, 2 * k - 1, [2 * k + 1, 2 * k - 2, 2 * max(k - 2, 0)]] = True
    found = summaries(history, (0.0,))
    assert found is not None
    assert found.rank[0, -1] == 2 * steps - 1
    assert (found.first_exposure == -1).all()
    least = min(1 / share for share in oracle.leverages(oracle.as_rows(history[0])))
    assert 1 < least < 1 + 1e-6
    np.testing.assert_allclose(found.hidden_among[0, 0], float(least), rtol=1e-9)
    assert found.hidden_among[0, 0] > 1


@pytest.mark.long
def test_primes_that_divide_do_not_decide_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = 1_199_999_993, 1_199_999_963
    history = hostile.falling(bad).astype(np.bool_)[None]
    monkeypatch.setattr(summary, "draw_primes", lambda count: (bad, good))
    found = summaries(history, (0.0,))
    monkeypatch.setattr(summary, "draw_primes", lambda count: (bad,))
    wrong = summaries(history, (0.0,))
    assert found is not None
    assert wrong is not None
    np.testing.assert_array_equal(
        found.rank[0], np.asarray(mj.modular.rank_trajectory(history[0]))
    )
    assert wrong.rank[0, -1] < found.rank[0, -1]
    exposed = np.asarray(mj.privacy.first_exposure(history[0]))
    np.testing.assert_array_equal(found.first_exposure[0], exposed)


def test_floats_that_do_not_know_six_digits_show_only_who_is_exposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]], np.bool_)
    found = summaries(history[None], (0.0, 0.5))
    assert found is not None
    hidden = hidden_by_round(history, found, (0.0, 0.5))
    np.testing.assert_allclose(hidden, [[2, 2], [1, 1], [1, 1.5]])
    monkeypatch.setattr(summary, "_SIX_DIGITS", 0.0)
    hidden = hidden_by_round(history, found, (0.0, 0.5))
    np.testing.assert_array_equal(
        np.isnan(hidden), [[True, True], [False, False], [False, True]]
    )


def test_what_is_no_binary_history_of_moderate_size_goes_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert summaries(np.ones((1, 2, 3), np.int64), (0.0,)) is None
    monkeypatch.setattr(summary, "_MOST_ENTRIES", 5)
    assert summaries(np.ones((1, 2, 3), np.bool_), (0.0,)) is None


@pytest.mark.long("24-6-15", "24-6-40", "48-6-12")
@pytest.mark.parametrize(
    ("clients", "cohort", "rounds"), [(24, 6, 40), (24, 6, 15), (48, 6, 12)]
)
def test_rollouts_are_known_as_by_the_functions_of_each_figure(
    clients: int, cohort: int, rounds: int
) -> None:
    online = mj.availability.independent(0.3)
    schemes = [
        mj.selection.uniform(clients, cohort),
        mj.selection.weighted(clients, cohort),
    ]
    schemes += [
        mj.selection.batch_partitioning(clients, cohort, size) for size in (2, 3)
    ]
    rolled = [mj.selection.rollout_trials(7, one, online, rounds, 3) for one in schemes]
    histories = np.concatenate([np.asarray(each) for each in rolled])
    found = summaries(histories, (0.0, 0.5))
    assert found is not None
    own = mj.privacy
    expected = (
        own.strong_privacy_trajectory(histories),
        mj.modular.rank_trajectory(histories),
        own.first_exposure(histories),
    )
    for mine, theirs in zip(found, expected, strict=False):
        np.testing.assert_array_equal(mine, np.asarray(theirs))
    paths = np.asarray(own.hidden_among_trajectory(histories, quantiles=(0.0, 0.5)))
    np.testing.assert_allclose(found.hidden_among, paths[:, -1], rtol=1e-12)


def nearly_dependent(rounds: int) -> np.ndarray:
    """Return a history of which combinations of rounds i, i + 1, i + 3 grow by 1.47 a step."""
    history = np.zeros((1, rounds, rounds + 4), np.bool_)
    for i in range(rounds):
        history[0, [j for j in (i, i + 1, i + 3) if j < rounds], i] = True
    for i in range(4):
        history[0, [rounds - 1 - i, rounds - 3 - i, rounds - 6 - i], rounds + i] = True
    return history


@pytest.mark.parametrize("most", [None, 0.0])
def test_rows_that_are_nearly_dependent_are_made_orthonormal_twice(
    monkeypatch: pytest.MonkeyPatch, most: float | None
) -> None:
    if most is not None:
        monkeypatch.setattr(summary, "_ONCE", most)
    monkeypatch.setattr(summary, "among", None)  # nothing is left to it
    history = nearly_dependent(20)
    found = summaries(history, ENDS)
    assert found is not None
    expected = quantiles_of(oracle.leverages(oracle.as_rows(history[0])))
    np.testing.assert_allclose(found.hidden_among[0], expected, rtol=1e-13)


def test_what_floats_do_not_know_after_the_last_round_balls_do() -> None:
    history = nearly_dependent(30)
    found = summaries(history, ENDS)
    assert found is not None
    expected = quantiles_of(oracle.leverages(oracle.as_rows(history[0])))
    np.testing.assert_allclose(found.hidden_among[0], expected, rtol=1e-9)
