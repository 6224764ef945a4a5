"""Hidden among.

Against exact rational projectors, singular values and a direct linear solve.
"""

from __future__ import annotations

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES, FANO

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.prime import PRIMES
from mrsa_jax.privacy import (
    _exposure,
    _leverage,
    first_exposure,
    hidden_among,
    hidden_among_trajectory,
)


def leverage(history, noise=0.0, spread=1.0):
    return np.asarray(1 / hidden_among(history, noise=noise, spread=spread))


def leverage_trajectory(history, noise=0.0, spread=1.0):
    return np.asarray(1 / hidden_among_trajectory(history, noise=noise, spread=spread))


def noisy_leverage(matrix, noise):
    """The definition by one linear solve."""
    rows = np.asarray(matrix, float)
    noise = np.broadcast_to(noise, len(rows)) if np.ndim(noise) < 2 else noise
    covariance = rows @ rows.T + (np.diag(noise) if noise.ndim == 1 else noise)
    return np.einsum("ji,ji->i", rows, np.linalg.solve(covariance, rows))


def entries(matrix):
    return [value for row in matrix for value in row]


@functools.cache
def simulated(num_clients=20, cohort_size=4, num_rounds=30, trials=3):
    online = mj.availability.independent(0.3)
    selector = mj.selection.weighted(num_clients, cohort_size)
    return np.asarray(
        mj.selection.rollout_trials(5, selector, online, num_rounds, trials)
    )


@pytest.mark.parametrize("function", [hidden_among, hidden_among_trajectory])
@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([[0.5, 1.0]], r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], r"`P` must hold bools or integers; got \[nan\]"),
        ([["1", "0"]], r"`P` must hold bools or integers; got"),
        ([1, 0], r"`P` must have at least 2 axes; got \(2,\)"),
        (np.zeros((0, 4), bool), r"`P` must not be empty; got \(0, 4\)"),
        (np.zeros((0, 2, 4), bool), r"`P` must not be empty; got \(0, 2, 4\)"),
    ],
)
def test_rejects_what_is_no_history(function, history, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        function(history)


@pytest.mark.parametrize("function", [hidden_among, hidden_among_trajectory])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": -0.1}, r"`noise` must hold no negative variance; got -0.1"),
        ({"noise": float("nan")}, r"`noise` must be finite; got nan"),
        (
            {"noise": [1.0, 1.0]},
            r"`noise` must be one number, or of shape \[1\] or \[1, 1\]",
        ),
        (
            {"noise": 1e-24},
            r"`noise` must be 0, or have a standard deviation of at least 1e-09",
        ),
        ({"noise": "1"}, r"`noise` must be a variance, one for each round"),
        ({"spread": 0.0}, r"`spread` must be positive and finite; got 0"),
        ({"spread": -1}, r"`spread` must be positive and finite; got -1"),
        ({"spread": None}, r"`spread` must be .*; got None"),
        ({"coalition": [0, 1]}, r"`coalition` must leave a client out; got 'all 2'"),
    ],
)
def test_rejects_noise_spread_and_coalitions_that_are_none(function, given, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        function([[1, 1]], **given)


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        (0.5, "`quantiles` must be numbers from 0 to 1; got 0.5"),
        ((), r"`quantiles` must be numbers from 0 to 1; got \(\)"),
        ((0.0, 1.5), "`quantiles` must be numbers from 0 to 1; got 1.5"),
    ],
)
def test_rejects_quantiles_that_are_none(quantiles, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        hidden_among_trajectory([[1, 1]], quantiles=quantiles)


@pytest.mark.long("history7-expected7")
@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([[0, 0, 0]], [0, 0, 0]),
        ([[1]], [1]),
        ([[1, 1, 1, 1, 0]], [1 / 4] * 4 + [0]),
        ([[2, 2, 0], [0, 0, 0], [-3, -3, 0]], [1 / 2, 1 / 2, 0]),
        ([[1, 1, 0], [0, 1, 1]], [2 / 3] * 3),  # rank 2, and the kernel is (1, -1, 1)
        ([[1, 1, 0], [1, 1, 1]], [1 / 2, 1 / 2, 1]),
        ([[3, 4]], [9 / 25, 16 / 25]),
        (FANO, [1] * 7),
    ],
)
def test_worked_cases(history, expected):
    found = leverage(history)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-15)
    assert (found == 1.0).tolist() == [value == 1 for value in expected]


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_families_against_exact_projectors(name):
    # histories made of the two primes of the exact ranks deceive them
    crafted = {
        v + unit for p in PRIMES for v in (p, PRIMES[0] * PRIMES[1]) for unit in (0, 1)
    }
    matrices = [m for m, _ in FAMILIES[name]() if crafted.isdisjoint(entries(m))]
    padded = np.zeros((80, 18, 16), object)  # one compiled program serves all
    assert 10 < len(matrices) <= 80
    for place, matrix in enumerate(matrices):
        padded[place, : len(matrix), : len(matrix[0])] = matrix
    for matrix, values in zip(padded.tolist(), leverage(padded), strict=True):
        exact = oracle.leverages(matrix)
        # beyond, floats cannot tell all rows apart
        if max(map(abs, entries(matrix))) < 2**40:
            np.testing.assert_allclose(values, [float(v) for v in exact], atol=1e-12)
        exposed = oracle.exposed(matrix)
        assert [v == 1 for v in exact] == [i in exposed for i in range(16)]
        assert (values == 1.0).tolist() == [v == 1 for v in exact]
        check_order(matrix, exact)


def check_order(matrix, exact):
    """In rationals.

    Strong T, the worst client, the clients it takes to add up to 1, weak T.
    """
    if any(exact):
        sums = itertools.accumulate(sorted(exact, reverse=True))
        fewest = next(count for count, total in enumerate(sums, 1) if total >= 1)
        strong, weak = oracle.strong_privacy(matrix), oracle.weak_privacy(matrix)
        assert strong <= 1 / max(exact) <= fewest <= weak


@pytest.mark.parametrize("weight", [10**7, 10**9, 1_199_999_993, 2**62, 2**80])
def test_nearly_exposed_is_not_exposed(weight):
    # e.g. 1 - h = 1e-14, or not to be told from 0 in floating point
    found = leverage(np.array([[weight, 1, 0], [0, 0, 1]], object))
    assert 1 - 1e-13 < found[0] < 1.0
    assert found[1] < 1e-13
    assert found[2] == 1.0


@pytest.mark.long
def test_inside_a_program_only_who_is_exposed_has_one():
    """Rounded to float32, in which 1 - 1e-14 would be 1."""
    history = jnp.asarray([[10**7, 1, 0], [0, 0, 1]], jnp.int32)
    for function in (hidden_among, hidden_among_trajectory):
        found = jax.jit(function)(history)
        assert found.dtype == jnp.float32
        outside = function(history)
        np.testing.assert_allclose(found, outside, rtol=1e-6)
        assert np.array_equal(np.asarray(found) == 1, outside == 1)
    with jax.enable_x64(True):
        wide = jax.jit(hidden_among)(history)
    assert wide.dtype == jnp.float64
    np.testing.assert_allclose(wide, hidden_among(history), rtol=1e-15)


@pytest.mark.long
def test_a_large_history_against_singular_values():
    history = simulated(60, 6, 70, 1)
    found = leverage_trajectory(history)[0]
    for j in (0, 12, 40, 55, 69):
        _, values, right = np.linalg.svd(history[0, : j + 1].astype(float))
        space = right[: (values > 1e-9).sum()]
        np.testing.assert_allclose(found[j], (space**2).sum(axis=0), atol=1e-12)


@pytest.mark.long
def test_leverages_sum_to_the_rank_and_never_fall():
    histories = simulated()
    found = leverage_trajectory(histories)
    ranks = np.asarray(mj.modular.rank_trajectory(histories))
    np.testing.assert_allclose(found.sum(axis=-1), ranks, atol=1e-11)
    np.testing.assert_allclose(found.mean(axis=-1), ranks / 20, atol=1e-12)
    assert (np.diff(found, axis=1) >= -1e-15).all()
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.long
def test_exactly_one_from_the_first_exposure_on():
    histories = simulated()
    found = leverage_trajectory(histories)
    first = np.asarray(first_exposure(histories))
    rounds = np.arange(30)[None, :, None]
    expected = (first[:, None] >= 0) & (first[:, None] <= rounds)
    assert expected.any()
    assert not expected.all()
    assert np.array_equal(found == 1.0, expected)


@pytest.mark.long
def test_a_class_of_equal_columns_caps_its_members():
    online = mj.availability.independent(0.2)
    selector = mj.selection.batch_partitioning(30, 6, 3)
    found = leverage_trajectory(mj.selection.rollout(2, selector, online, 30))
    assert found.max() <= 1 / 3 + 1e-14
    assert found[-1].max() > 1 / 3 - 1e-14
    blocks = found.reshape(30, 10, 3)
    np.testing.assert_allclose(
        blocks, np.broadcast_to(blocks[..., :1], blocks.shape), atol=1e-15
    )


@pytest.mark.long
def test_clients_who_never_took_part_have_none():
    history = np.zeros((5, 9), bool)
    history[1, :4] = history[3, 2:6] = True
    assert (leverage(history)[6:] == 0.0).all()
    assert (leverage(history, noise=0.5)[6:] == 0.0).all()


@pytest.mark.long
@hypothesis.given(
    st.lists(
        st.lists(st.integers(-2, 2), min_size=6, max_size=6), min_size=7, max_size=7
    ),
    st.lists(st.sampled_from([-3, 1, 2, 2**70]), min_size=7, max_size=7),
)
def test_scaling_rows_changes_nothing(rows, scales):
    scaled = np.array(
        [[s * v for v in row] for s, row in zip(scales, rows, strict=True)],
        dtype=object,
    )
    np.testing.assert_allclose(leverage(scaled), leverage(np.array(rows)), atol=1e-12)
    variances = [float(s) ** 2 * 0.5 for s in scales]
    expected = leverage(np.array(rows), noise=0.5)
    np.testing.assert_allclose(leverage(scaled, noise=variances), expected, atol=1e-12)


@pytest.mark.long
def test_noise_with_fewer_rounds_than_clients_against_a_direct_solve():
    """Repeated rounds, weights and blocks among them."""
    generator = np.random.default_rng(4)
    for noise in (1e-6, 0.1, 900.0):
        for weights in (2, 9):
            history = generator.integers(0, weights, (9, 24)) * (
                generator.random((9, 24)) < 0.4
            )
            history[3] = 0
            history[7] = history[2]
            history[:, 20:] = history[:, 19:20]
            every = leverage_trajectory(history, noise=noise)
            for count in range(1, 10):
                expected = noisy_leverage(history[:count], noise)
                np.testing.assert_allclose(every[count - 1], expected, atol=1e-9)


@pytest.mark.long
def test_memory_with_noise_is_that_of_the_rounds_and_not_of_pairs_of_clients():
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((1, 20, 50_000), jnp.int32)
        program = jax.jit(functools.partial(hidden_among, noise=0.5)).lower(shape)
        needed = program.compile().memory_analysis()
    assert needed.temp_size_in_bytes + needed.output_size_in_bytes < 8 * 8 * np.prod(
        shape.shape
    )


@pytest.mark.long("1e-06", "1e-12")
@pytest.mark.parametrize("noise", [1e-12, 1e-6, 0.1, 1.0, 900.0])
def test_noise_against_a_direct_solve(noise):
    weights = np.random.default_rng(1).integers(-3, 4, (30, 20))
    weights[4] = 0
    for history in (simulated()[1], weights):
        found = leverage(history, noise=noise)
        np.testing.assert_allclose(found, noisy_leverage(history, noise), atol=1e-9)
        every = leverage_trajectory(history, noise=noise)
        np.testing.assert_allclose(every[-1], found, atol=1e-14)
        half = noisy_leverage(history[: len(history) // 2], noise)
        np.testing.assert_allclose(every[len(history) // 2 - 1], half, atol=1e-9)


@pytest.mark.long
def test_more_noise_explains_less_and_none_is_the_limit():
    history = simulated()[1]
    levels = [
        leverage(history, noise=noise) for noise in (0.0, 1e-14, 1e-2, 0.3, 2.0, 1e5)
    ]
    np.testing.assert_allclose(levels[0], levels[1], atol=1e-9)
    for less, more in itertools.pairwise(levels[1:]):
        assert (more[less > 0] < less[less > 0]).all()
    assert levels[-1].max() < 1e-3


@pytest.mark.long
def test_with_noise_nobody_is_ever_explained_completely():
    repeated = np.array([[1, 0], [1, 1]] * 400)
    for noise in (1e-14, 1e-3, 0.5):
        every = leverage_trajectory(repeated, noise=noise)
        # floats do not know it of the least noise, and say so
        assert not np.isnan(every).any() or noise == 1e-14
        assert not (every >= 1.0).any()
        assert not (np.diff(every, axis=0) < -1e-15).any()
    # 400 sums of client 0 alone, as good as one with noise 0.5 / 20
    alone = leverage(np.ones((400, 1), int), noise=0.25)
    np.testing.assert_allclose(alone, 1 / (1 + 0.5**2 / 400), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_row_of_a_batch_is_that_history_alone(monkeypatch, noise):
    histories = simulated()
    whole, every = (
        leverage(histories, noise=noise),
        leverage_trajectory(histories, noise=noise),
    )
    assert whole.shape == (3, 20)
    assert every.shape == (3, 30, 20)
    np.testing.assert_allclose(every[:, -1], whole, rtol=1e-14)
    assert np.array_equal(leverage(histories[2], noise=noise), whole[2])
    assert leverage(histories[None, :2], noise=noise).shape == (1, 2, 20)
    # two histories at a time, the last chunk half empty
    monkeypatch.setitem(_batches._WORK, "leverage", _batches._Work(8 * 2 * 30 * 20, 1))
    assert np.array_equal(leverage(histories, noise=noise), whole)
    assert np.array_equal(leverage_trajectory(histories, noise=noise), every)
    # all of a chunk side by side, as on an accelerator, which sums in another order
    monkeypatch.setitem(_batches._WORK, "eliminations", _batches._Work(2**30, 1))
    np.testing.assert_allclose(leverage(histories, noise=noise), whole, atol=1e-12)


@pytest.mark.long("0.0")
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_array_library_and_x64_change_nothing(noise):
    history = simulated()[0]
    plain = hidden_among(history, noise=noise)
    assert np.array_equal(hidden_among(on_device(history), noise=noise), plain)
    assert np.array_equal(hidden_among(history.tolist(), noise=noise), plain)
    with jax.enable_x64(True):
        wide = hidden_among(on_device(history, jnp.int64), noise=noise)
    assert np.array_equal(wide, plain)
    assert hidden_among(history, noise=np.float32(0.5)).dtype == np.float64


@pytest.mark.long
def test_one_sum_of_k_hides_among_k_and_strong_worst_weak_are_in_order():
    for size in (1, 2, 7, 12):
        history = np.zeros((1, 12), int)
        history[0, :size] = 1
        expected = [float(size)] * size + [np.inf] * (12 - size)
        np.testing.assert_allclose(hidden_among(history), expected, rtol=1e-15)
    generator = np.random.default_rng(2)
    shape = (500, 5, 8)
    weights = generator.integers(1, 4, shape) * (generator.random((500, 1, 1)) < 0.5)
    histories = np.where(weights > 0, weights, 1) * (generator.random(shape) < 0.4)
    for history, values in zip(histories.tolist(), leverage(histories), strict=True):
        exact = oracle.leverages(history)
        np.testing.assert_allclose(values, [float(v) for v in exact], atol=1e-12)
        check_order(history, exact)


def test_of_one_client_alone_the_order_is_not_true():
    """The minima compare.

    A client may be hidden among more than are in a vector that it is in.
    """
    np.testing.assert_allclose(hidden_among([[1, 100]]), [10_001, 1.0001], rtol=1e-14)


def test_noise_of_any_covariance_against_its_definition():
    """Regular ones, some of rank 2 (by the pseudo-inverse), and with rounds that have none."""
    generator = np.random.default_rng(5)
    history = generator.random((12, 9)) < 0.4
    rows = history.astype(float)
    for rank in (12, 2):
        factor = generator.normal(size=(12, rank))
        factor[7] = 0
        covariance = factor @ factor.T
        for spread in (0.5, 1.7):
            every = leverage_trajectory(history, covariance, spread)
            for count in (1, 3, 12):
                own = rows[:count]
                middle = own @ own.T + covariance[:count, :count] / spread**2
                inverse = np.linalg.pinv(middle, rcond=1e-10, hermitian=True)
                expected = np.einsum("ji,ji->i", own, inverse @ own)
                np.testing.assert_allclose(every[count - 1], expected, atol=1e-10)


@pytest.mark.long
def test_sums_without_noise_among_others_with_it_expose_exactly():
    history = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1]])
    noise = [1.0, 1.0, 0.0]
    found = hidden_among(history, noise=noise)
    assert found[2] == 1.0
    middle = history @ history.T + np.diag(noise)
    expected = 1 / np.diag(history.T @ np.linalg.inv(middle) @ history)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
def test_many_more_rounds_than_clients_with_noise_of_each():
    """They go in blocks, some rounds being without noise."""
    generator = np.random.default_rng(6)
    history = generator.random((70, 9)) < 0.3
    noise = np.where(generator.random(70) < 0.9, generator.random(70), 0.0)
    noise[:20] = np.maximum(noise[:20], 1e-6)
    found = leverage_trajectory(history, noise)
    for count in (5, 9, 18, 19, 40, 70):
        own = history[:count].astype(float)
        inverse = np.linalg.pinv(
            own @ own.T + np.diag(noise[:count]), rcond=1e-12, hermitian=True
        )
        expected = np.einsum("ji,ji->i", own, inverse @ own)
        np.testing.assert_allclose(found[count - 1], expected, atol=1e-8)


def test_noise_beside_weights_whose_squares_are_no_floats():
    weights = np.array([[2**500, 1], [1, 1]], object)
    found = hidden_among(weights, noise=[2.0**1000, 1.0])
    # of [1, 0] and [1, 1]
    np.testing.assert_allclose(found, [5 / 3, 5 / 2], rtol=1e-12)
    with pytest.raises(
        mj.ConfigurationError, match="`noise` must be 0, or have a standard"
    ):
        hidden_among(weights, noise=1.0)
    with pytest.raises(
        mj.ConfigurationError, match=r"`P` must hold integers below 2\*\*1000"
    ):
        hidden_among(np.array([[2**1100, 1]], object), noise=1.0)


@pytest.mark.long
def test_a_coalition_is_left_out_and_has_no_figure():
    history = simulated()[0]
    members = [3, 11]
    found = hidden_among(history, coalition=members)
    assert np.isnan(found[members]).all()
    others = np.setdiff1d(np.arange(20), members)
    np.testing.assert_allclose(
        found[others], hidden_among(history[:, others]), rtol=1e-12
    )
    every = hidden_among_trajectory(history, coalition=members)
    assert np.array_equal(every[-1], found, equal_nan=True)


@pytest.mark.long
def test_quantiles_over_those_who_took_part():
    history = np.concatenate([np.zeros((2, 20), int), simulated()[0]])
    every = hidden_among_trajectory(history)
    found = hidden_among_trajectory(history, quantiles=(0.0, 0.25, 0.5, 1.0))
    assert np.isnan(found[:2]).all()
    for row, figures in zip(found[2:], every[2:], strict=True):
        seen = figures[np.isfinite(figures)]
        expected = (
            np.quantile(seen, (0.0, 0.25, 0.5, 1.0)) if len(seen) else [np.nan] * 4
        )
        np.testing.assert_allclose(row, expected, rtol=1e-13)
    traced = jax.jit(functools.partial(hidden_among_trajectory, quantiles=(0.0, 0.5)))
    np.testing.assert_allclose(
        traced(jnp.asarray(history)), found[:, [0, 2]], rtol=1e-6
    )


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_history_by_pieces_of_its_columns_is_the_same(monkeypatch, noise):
    """Many clients.

    Exposed ones, dependent, empty and nearly dependent rounds among them.
    """
    generator = np.random.default_rng(7)
    history = (generator.random((12, 300)) < 0.1).astype(np.int64)
    history[3] = 0
    history[5] = history[1] + history[2]
    history[6] = history[4]
    history[6, 17] += 1
    history[8] = 1000 * history[7]
    history[8, 30] += 1
    expected = hidden_among_trajectory(history, noise=noise)
    assert noise or (expected[6:, 17] == 1).all()
    monkeypatch.setattr(_leverage, "_WIDE", 1)
    monkeypatch.setattr(_exposure, "_WIDE", 1)
    monkeypatch.setitem(_batches._WORK, "columns", _batches._Work(8 * 12 * 70, 1))
    found = hidden_among_trajectory(history, noise=noise)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.array_equal(found == 1, expected == 1)
    np.testing.assert_allclose(
        hidden_among(history, noise=noise), expected[-1], rtol=1e-9
    )
    worst = hidden_among_trajectory(history, noise=noise, quantiles=(0.0,))
    np.testing.assert_allclose(worst[:, 0], expected.min(axis=1), rtol=1e-9)
    both = hidden_among_trajectory(history, noise=noise, quantiles=(0.0, 0.5))
    for row, figures in zip(both, expected, strict=True):
        seen = figures[np.isfinite(figures)]
        np.testing.assert_allclose(row, np.quantile(seen, (0.0, 0.5)), rtol=1e-9)
    bools = history[:3] > 0
    np.testing.assert_allclose(
        hidden_among(bools)[bools.any(axis=0)], 1 / exact_floats(bools), rtol=1e-12
    )


def exact_floats(history):
    shares = np.array([float(value) for value in oracle.leverages(history.tolist())])
    return shares[shares > 0]


@pytest.mark.long
def test_first_exposures_of_many_clients_by_their_gram_matrix(monkeypatch):
    generator = np.random.default_rng(8)
    for trial in range(30):
        history = (generator.random((10, 60)) < 0.15).astype(np.int64)
        for row in range(2, 10, 2):  # a round that differs from one before by a client
            history[row] = history[generator.integers(row)]
            history[row, generator.integers(60)] ^= 1
        history = history * (-1000) if trial % 3 == 0 else history
        expected = first_exposure(history)
        monkeypatch.setattr(_exposure, "_WIDE", 1)
        assert np.array_equal(first_exposure(history), expected)
        monkeypatch.undo()


@pytest.mark.long
def test_long_noisy_histories_leave_out_who_is_in_no_sum():
    """Far more rounds than clients go block by block, which mixes the clients."""
    rng = np.random.default_rng(8)
    history = rng.random((40, 6)) < 0.5
    history[:, 4], history[:25, 2] = False, False
    found = hidden_among_trajectory(history, noise=0.3)
    is_summed = np.cumsum(history, axis=0) > 0
    np.testing.assert_array_equal(np.isinf(found), ~is_summed)
    assert np.isinf(hidden_among(history, noise=0.3)[4])
