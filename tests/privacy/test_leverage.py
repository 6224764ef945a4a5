"""Leverage against exact rational projectors, singular values and a direct linear solve."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES, FANO

import mrsa_jax as mj
from mrsa_jax import _device
from mrsa_jax._prime import PRIMES
from mrsa_jax.privacy import first_exposure, leverage, leverage_trajectory


def exact_leverage(matrix) -> list[Fraction]:
    """Orthogonalise the rows over the rationals and add up the squares (Gram and Schmidt)."""
    total = [Fraction(0)] * len(matrix[0])
    basis: list[tuple[list[Fraction], Fraction]] = []
    for row in matrix:
        rest = [Fraction(int(value)) for value in row]
        for vector, squares in basis:
            factor = sum(a * b for a, b in zip(rest, vector, strict=True)) / squares
            rest = [a - factor * b for a, b in zip(rest, vector, strict=True)]
        squares = sum(value * value for value in rest)
        if squares:
            basis.append((rest, squares))
            total = [t + value * value / squares for t, value in zip(total, rest, strict=True)]
    return total


def noisy_leverage(matrix, sigma):
    """The definition by one linear solve; rounds without a sum are left out."""
    rows = np.asarray(matrix, float)
    rows = rows[(rows != 0).any(axis=1)]
    covariance = rows @ rows.T + sigma**2 * np.diag((rows * rows).sum(axis=1))
    return np.einsum("ji,ji->i", rows, np.linalg.solve(covariance, rows))


def entries(matrix):
    return [value for row in matrix for value in row]


@functools.cache
def simulated(num_clients=20, cohort_size=4, num_rounds=30, trials=3):
    online = mj.availability.independent(0.3)
    selector = mj.selection.weighted(num_clients, cohort_size)
    return np.asarray(mj.selection.rollout_trials(5, selector, online, num_rounds, trials))


@pytest.mark.parametrize("function", [leverage, leverage_trajectory])
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


@pytest.mark.parametrize("function", [leverage, leverage_trajectory])
@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (-0.1, r"`noise` must be 0 or lie in \[1e-09, 1e\+09\]; got -0.1"),
        (float("nan"), r"`noise` must be 0 or lie in .*; got nan"),
        (float("inf"), r"`noise` must be 0 or lie in .*; got inf"),
        (1e-12, r"`noise` must be 0 or lie in .*; got 1e-12"),
        ("1", r"`noise` must be a number; got '1'"),
        (None, r"`noise` must be a number; got None"),
        (True, r"`noise` must be a number; got True"),
        ([0.1], r"`noise` must be a number; got \[0.1\]"),
    ],
)
def test_rejects_a_noise_that_is_no_standard_deviation(function, noise, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        function([[1, 1]], noise=noise)


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


@pytest.mark.parametrize("name", FAMILIES)
def test_families_against_exact_projectors(name):
    # histories made of the two primes of the exact ranks deceive them
    crafted = {v + unit for p in PRIMES for v in (p, PRIMES[0] * PRIMES[1]) for unit in (0, 1)}
    matrices = [m for m, _ in FAMILIES[name]() if crafted.isdisjoint(entries(m))]
    padded = np.zeros((80, 18, 16), object)  # one compiled program serves all
    assert 10 < len(matrices) <= 80
    for place, matrix in enumerate(matrices):
        padded[place, : len(matrix), : len(matrix[0])] = matrix
    for matrix, values in zip(padded.tolist(), leverage(padded), strict=True):
        exact = exact_leverage(matrix)
        if max(map(abs, entries(matrix))) < 2**40:  # beyond, floats cannot tell all rows apart
            np.testing.assert_allclose(values, [float(v) for v in exact], atol=1e-12)
        exposed = oracle.exposed(matrix)
        assert [v == 1 for v in exact] == [i in exposed for i in range(16)]
        assert (values == 1.0).tolist() == [v == 1 for v in exact]


@pytest.mark.parametrize("weight", [10**7, 10**9, 1_199_999_993, 2**62, 2**80])
def test_nearly_exposed_is_not_exposed(weight):
    # e.g. 1 - h = 1e-14, or not to be told from 0 in floating point
    found = leverage(np.array([[weight, 1, 0], [0, 0, 1]], object))
    assert 1 - 1e-13 < found[0] < 1.0
    assert found[1] < 1e-13
    assert found[2] == 1.0


def test_inside_a_program_only_who_is_exposed_has_one():
    """Rounded to float32, in which 1 - 1e-14 would be 1."""
    history = jnp.asarray([[10**7, 1, 0], [0, 0, 1]], jnp.int32)
    for function in (leverage, leverage_trajectory):
        found = jax.jit(function)(history)
        assert found.dtype == jnp.float32
        outside = function(history)
        np.testing.assert_allclose(found, outside, rtol=1e-6, atol=1e-13)
        assert np.array_equal(np.asarray(found) == 1, outside == 1)
    with jax.enable_x64(True):
        wide = jax.jit(leverage)(history)
    assert wide.dtype == jnp.float64
    assert np.array_equal(wide, leverage(history))


def test_a_large_history_against_singular_values():
    history = simulated(60, 6, 70, 1)
    found = leverage_trajectory(history)[0]
    for j in (0, 12, 40, 55, 69):
        _, values, right = np.linalg.svd(history[0, : j + 1].astype(float))
        space = right[: (values > 1e-9).sum()]
        np.testing.assert_allclose(found[j], (space**2).sum(axis=0), atol=1e-12)


def test_leverages_sum_to_the_rank_and_never_fall():
    histories = simulated()
    found = leverage_trajectory(histories)
    ranks = np.asarray(mj.modular.rank_trajectory(histories))
    np.testing.assert_allclose(found.sum(axis=-1), ranks, atol=1e-11)
    np.testing.assert_allclose(found.mean(axis=-1), ranks / 20, atol=1e-12)
    assert (np.diff(found, axis=1) >= -1e-15).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_exactly_one_from_the_first_exposure_on():
    histories = simulated()
    found = leverage_trajectory(histories)
    first = np.asarray(first_exposure(histories))
    rounds = np.arange(30)[None, :, None]
    expected = (first[:, None] >= 0) & (first[:, None] <= rounds)
    assert expected.any()
    assert not expected.all()
    assert np.array_equal(found == 1.0, expected)


def test_a_class_of_equal_columns_caps_its_members():
    online = mj.availability.independent(0.2)
    selector = mj.selection.batch_partitioning(30, 6, 3)
    found = leverage_trajectory(mj.selection.rollout(2, selector, online, 30))
    assert found.max() <= 1 / 3 + 1e-14
    assert found[-1].max() > 1 / 3 - 1e-14
    blocks = found.reshape(30, 10, 3)
    np.testing.assert_allclose(blocks, np.broadcast_to(blocks[..., :1], blocks.shape), atol=1e-15)


def test_clients_who_never_took_part_have_none():
    history = np.zeros((5, 9), bool)
    history[1, :4] = history[3, 2:6] = True
    assert (leverage(history)[6:] == 0.0).all()
    assert (leverage(history, noise=0.5)[6:] == 0.0).all()


@hypothesis.given(
    st.lists(st.lists(st.integers(-2, 2), min_size=6, max_size=6), min_size=7, max_size=7),
    st.lists(st.sampled_from([-3, 1, 2, 2**70]), min_size=7, max_size=7),
)
def test_scaling_rows_changes_nothing(rows, scales):
    scaled = np.array(
        [[s * v for v in row] for s, row in zip(scales, rows, strict=True)], dtype=object
    )
    for noise in (0.0, 0.5):
        expected = leverage(np.array(rows), noise=noise)
        np.testing.assert_allclose(leverage(scaled, noise=noise), expected, atol=1e-12)


def test_noise_with_fewer_rounds_than_clients_against_a_direct_solve():
    """Repeated rounds, weights and blocks among them."""
    generator = np.random.default_rng(4)
    for noise in (1e-3, 0.1, 30.0):
        for weights in (2, 9):
            history = generator.integers(0, weights, (9, 24)) * (generator.random((9, 24)) < 0.4)
            history[3] = 0
            history[7] = history[2]
            history[:, 20:] = history[:, 19:20]
            every = leverage_trajectory(history, noise=noise)
            for count in range(1, 10):
                expected = noisy_leverage(history[:count], noise)
                np.testing.assert_allclose(every[count - 1], expected, atol=1e-9)


def test_memory_with_noise_is_that_of_the_rounds_and_not_of_pairs_of_clients():
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((1, 20, 50_000), jnp.int32)
        program = jax.jit(functools.partial(leverage, noise=0.5)).lower(shape)
        needed = program.compile().memory_analysis()
    assert needed.temp_size_in_bytes + needed.output_size_in_bytes < 4 * 8 * np.prod(shape.shape)


@pytest.mark.parametrize("noise", [1e-9, 1e-6, 1e-3, 0.1, 1.0, 30.0])
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


def test_noise_of_sums_of_one_size_is_that_of_the_cohort():
    # h_j = p_j^T (P P^T + sigma^2 K I)^-1 p_j
    rows = simulated()[2].astype(float)
    rows = np.where(rows.any(axis=1)[:, None], rows, rows[0])
    inverse = np.linalg.inv(rows @ rows.T + 0.04 * 4 * np.eye(30))
    expected = np.diag(rows.T @ inverse @ rows)
    np.testing.assert_allclose(leverage(rows, noise=0.2), expected, atol=1e-13)


def test_more_noise_explains_less_and_none_is_the_limit():
    history = simulated()[1]
    levels = [leverage(history, noise=noise) for noise in (0.0, 1e-9, 1e-2, 0.3, 2.0, 1e3)]
    np.testing.assert_allclose(levels[0], levels[1], atol=1e-9)
    for less, more in itertools.pairwise(levels[1:]):
        assert (more[less > 0] < less[less > 0]).all()
    assert levels[-1].max() < 1e-3


def test_with_noise_nobody_is_ever_explained_completely():
    repeated = np.array([[1, 0], [1, 1]] * 400)
    for noise in (1e-9, 1e-3, 0.5):
        every = leverage_trajectory(repeated, noise=noise)
        assert (every < 1.0).all()
        assert (np.diff(every, axis=0) >= -1e-15).all()
    # 400 sums of client 0 alone, as good as one with noise 0.5 / 20
    alone = leverage(np.ones((400, 1), int), noise=0.5)
    np.testing.assert_allclose(alone, 1 / (1 + 0.5**2 / 400), atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_row_of_a_batch_is_that_history_alone(monkeypatch, noise):
    histories = simulated()
    whole, every = leverage(histories, noise=noise), leverage_trajectory(histories, noise=noise)
    assert whole.shape == (3, 20)
    assert every.shape == (3, 30, 20)
    assert np.array_equal(every[:, -1], whole)
    assert np.array_equal(leverage(histories[2], noise=noise), whole[2])
    assert leverage(histories[None, :2], noise=noise).shape == (1, 2, 20)
    # two histories at a time, the last chunk half empty
    monkeypatch.setitem(_device._WORK, "leverage", _device._Work(8 * 2 * 30 * 20, 1))
    assert np.array_equal(leverage(histories, noise=noise), whole)
    assert np.array_equal(leverage_trajectory(histories, noise=noise), every)
    # all of a chunk side by side, as on an accelerator, which sums in another order
    monkeypatch.setitem(_device._WORK, "eliminations", _device._Work(2**30, 1))
    np.testing.assert_allclose(leverage(histories, noise=noise), whole, atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_array_library_and_x64_change_nothing(noise):
    history = simulated()[0]
    plain = leverage(history, noise=noise)
    assert np.array_equal(leverage(jnp.asarray(history), noise=noise), plain)
    assert np.array_equal(leverage(history.tolist(), noise=noise), plain)
    with jax.enable_x64(True):
        wide = leverage(jnp.asarray(history, jnp.int64), noise=noise)
    assert np.array_equal(wide, plain)
    assert leverage(history, noise=np.float32(0.5)).dtype == np.float64
