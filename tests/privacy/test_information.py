"""Bits about histories.

Against the definition in exact rationals, closed forms, and misuse.
"""

from __future__ import annotations

import fractions
import itertools
import math

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import information

ONES = [[1, 1, 1, 0], [0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"memory": -0.1},
            r"`memory` must be 1, or lie in \[0, 0.999999\], or be .*; got -0.1",
        ),
        ({"memory": 1.5}, r"`memory` must be 1, or lie in"),
        ({"memory": 0.9999999}, r"`memory` must be 1, or lie in .*; got 0.9999999"),
        ({"memory": math.nan}, r"`memory` must be 1, or lie in"),
        ({"memory": "long"}, r"`memory` must be 1, or lie in"),
        ({"memory": True}, r"`memory` must be 1, or lie in"),
        (
            {"memory": np.eye(3)},
            r"`memory` must be a number, or a kernel of shape \[2, 2\]; got",
        ),
        ({"memory": [1.0, 1.0]}, r"`memory` must be a number, or a kernel of shape"),
        (
            {"memory": [[1, 0], [0, 2]]},
            r"`memory` must be finite with a diagonal of ones",
        ),
        (
            {"memory": [[1, np.inf], [np.inf, 1]]},
            r"`memory` must be finite with a diagonal",
        ),
        ({"memory": [[1, 0.5], [0.4, 1]]}, r"`memory` must be a symmetric kernel"),
        (
            {"memory": [[1, 2], [2, 1]]},
            r"`memory` must be positive semidefinite; .*; got -1",
        ),
        (
            {"memory": [[1, -1], [-1, 1]]},
            r"`memory` must be positive definite .* sums without n",
        ),
        ({"spread": 0}, r"`spread` must be positive and finite; got 0"),
        ({"spread": -1.0}, r"`spread` must be positive and finite; got -1.0"),
        ({"noise": -1.0}, r"`noise` must hold no negative variance; got -1.0"),
        ({"noise": np.eye(3)}, r"`noise` must be one number, or of shape"),
        ({"coalition": range(4)}, r"`coalition` must leave a client out"),
        ({"coalition": [4]}, r"`coalition` must hold indices below 4"),
    ],
)
def test_rejects_what_makes_no_sense(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        information(ONES, **arguments)


def test_a_singular_kernel_will_do_where_every_sum_has_noise():
    alternating = np.array([[1.0, -1.0], [-1.0, 1.0]])
    found = information([[1, 0], [1, 1]], alternating, noise=[1, 3])
    # x_0 and x_1 are (x, -x): M = [[1+1, -1], [-1, 2+3]], M_0 = [[1, 0], [0, 1+3]]
    assert found == pytest.approx(
        [math.log2(9 / 4) / 2, math.log2(9 / 7) / 2], abs=1e-12
    )


@pytest.mark.smoke
def test_sums_known_from_others_but_for_rounding_are_refused():
    same = np.ones((3, 3))
    with pytest.raises(
        mj.ConfigurationError, match="`noise` must leave no sum known from the"
    ):
        information([[0, 0], [0, 0], [1, 1]], 0.5, noise=same)
    # a memory of 1 but for rounding is 1
    with pytest.raises(
        mj.ConfigurationError, match="`noise` must be 0, or have a standard dev"
    ):
        information(
            [[1, 1], [1, 1], [1, 1]], same - 1e-15 * (1 - np.eye(3)), noise=1e-30
        )


# ---- the definition, over the rationals


def _determinant(rows: list[list[fractions.Fraction]]) -> fractions.Fraction:
    rows, result = [list(row) for row in rows], fractions.Fraction(1)
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return fractions.Fraction(0)
        if pivot != k:
            rows[k], rows[pivot], result = rows[pivot], rows[k], -result
        result *= rows[k][k]
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return result


def _minor(matrix: list[list[fractions.Fraction]], at: list[int]) -> fractions.Fraction:
    return _determinant([[matrix[i][j] for j in at] for i in at])


def _basis(matrix: list[list[fractions.Fraction]]) -> list[int]:
    """Return rows whose principal minor is not 0 and as large as the rank.

    Of a PSD matrix.
    """
    chosen: list[int] = []
    for row in range(len(matrix)):
        if _minor(matrix, [*chosen, row]):
            chosen.append(row)
    return chosen


def _by_definition(P, kernel, noise, variance=1):
    """Return the bits.

    Infinite where knowing x_i lowers the rank of the sums' covariance.
    """
    P = [[int(value) for value in row] for row in P]
    span = range(len(P))

    def covariance(left_out):
        return [
            [
                noise[a][b]
                + variance
                * kernel[a][b]
                * sum(P[a][j] * P[b][j] for j in range(len(P[0])) if j != left_out)
                for b in span
            ]
            for a in span
        ]

    whole = covariance(None)
    basis = _basis(whole)
    ratios = [
        (_minor(whole, basis), _minor(covariance(i), basis)) for i in range(len(P[0]))
    ]
    return np.array([_log2(a / b) / 2 if b else math.inf for a, b in ratios])


def _log2(ratio):
    small = ratio < 2**500  # beyond, floats hold the logarithm but not the number
    return math.log2(ratio if small else ratio.numerator) - (
        0 if small else math.log2(ratio.denominator)
    )


def _process(rho, rounds):
    return [
        [fractions.Fraction(rho) ** abs(a - b) for b in range(rounds)]
        for a in range(rounds)
    ]


def _diagonal(values):
    size = range(len(values))
    return [
        [
            fractions.Fraction(values[a]) if a == b else fractions.Fraction(0)
            for b in size
        ]
        for a in size
    ]


def _floats(matrix):
    return np.array([[float(value) for value in row] for row in matrix])


@pytest.mark.long("0-1", "1/100-1", "mixed-1")
@pytest.mark.parametrize("rho", ["0", "1/3", "9/10", "999/1000", "1"])
@pytest.mark.parametrize("variance", ["0", "1/100", "mixed"])
def test_matches_the_definition(rho, variance):
    generator = np.random.default_rng(7)
    rounds, clients = 5, 4
    batch = generator.integers(0, 2, (40, rounds, clients))
    batch[20:] *= generator.integers(1, 50, (20, rounds, clients))
    values = [0, "1/4", 0, 2, "1/9"] if variance == "mixed" else [variance] * rounds
    noise, kernel = _diagonal(values), _process(rho, rounds)
    given = [float(fractions.Fraction(value)) for value in values]
    found = information(batch, float(fractions.Fraction(rho)), noise=given)
    assert found.shape == (40, clients)
    for history, bits in zip(batch, found, strict=True):
        right = _by_definition(history, kernel, noise)
        assert np.array_equal(np.isinf(bits), np.isinf(right)), history
        assert bits == pytest.approx(right, abs=1e-6 if rho == "1" else 1e-9), history


def test_every_small_history_without_noise():
    """All 2 ** 9 of three rounds and three clients.

    Infinite exactly where some is alone.
    """
    every = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    found = information(every, 0.5)
    kernel, none = _process("1/2", 3), _diagonal([0] * 3)
    right = np.array([_by_definition(history, kernel, none) for history in every])
    assert np.array_equal(np.isinf(found), np.isinf(right))
    assert found == pytest.approx(right, abs=1e-10)
    is_alone = (every & (every.sum(axis=2, keepdims=True) == 1)).any(axis=1)
    assert np.array_equal(np.isinf(found), is_alone)


def test_rounds_of_one_time_expose_together():
    """Sums of one time hold the same updates.

    What they expose is exposed, others are not.
    """
    time = [0, 0, 1, 1, 1]
    kernel = [[fractions.Fraction(1, 2) ** abs(a - b) for b in time] for a in time]
    histories = np.random.default_rng(3).integers(0, 2, (60, 5, 4))
    found = information(histories, _floats(kernel))
    right = [
        _by_definition(history, kernel, _diagonal([0] * 5)) for history in histories
    ]
    assert np.array_equal(np.isinf(found), np.isinf(right))
    assert 5 < np.isinf(right).sum() < 200
    assert found == pytest.approx(np.array(right), abs=1e-10)


def test_noise_may_be_correlated():
    root = np.array([[2, 0, 0], [1, 1, 0], [0, 1, 3]])
    noise = [[fractions.Fraction(int(v), 4) for v in row] for row in root @ root.T]
    for rho in ("1", "4/5"):
        found = information(
            [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
            float(fractions.Fraction(rho)),
            3.0,
            _floats(noise),
        )
        right = _by_definition(
            [[1, 1, 0], [0, 1, 1], [0, 0, 1]], _process(rho, 3), noise, variance=9
        )
        assert found == pytest.approx(right, abs=1e-10)


@pytest.mark.parametrize("weight", [10**4, 10**9, 10**40, 10**400])
def test_weights_of_all_sizes(weight):
    """One client far above another: finite bits, however near to alone it is."""
    history = np.array([[1, weight, 0], [1, weight, 0], [0, 1, 1]], object)
    right = _by_definition(history, _process("1/2", 3), _diagonal([0] * 3))
    assert information(history, 0.5) == pytest.approx(right, abs=1e-9)


# ---- closed forms


def _random(seed, clients, cohort, rounds):
    generator = np.random.default_rng(seed)
    order = generator.permuted(np.tile(np.arange(clients), (rounds, 1)), axis=1)
    return order < cohort


def _blocks(seed, clients, cohort, size, rounds):
    return np.repeat(
        _random(seed, clients // size, cohort // size, rounds), size, axis=1
    )


@pytest.mark.long
def test_updates_that_stay_are_hidden_as_among():
    history = _random(0, 12, 4, 9)
    for noise in (0.0, 0.3):
        among = np.asarray(mj.privacy.hidden_among(history, noise=noise, spread=2.0))
        right = -0.5 * np.log2(1 - 1 / among)
        for memory in (1.0, np.ones((9, 9))):
            assert information(history, memory, 2.0, noise) == pytest.approx(
                right, abs=1e-12
            )


def test_fresh_updates_add_up_over_rounds():
    history = _random(1, 12, 4, 30)
    right = history.sum(axis=0) * math.log2(4 / 3) / 2
    for memory in (0.0, np.eye(30)):
        assert information(history, memory) == pytest.approx(right, abs=1e-10)
    noisy = history.sum(axis=0) * math.log2((4 + 0.5) / (3 + 0.5)) / 2
    assert information(history, 0.0, 2.0, noise=2.0) == pytest.approx(noisy, abs=1e-10)


@pytest.mark.long
def test_blocks_cap_what_stays_and_nothing_else():
    history = _blocks(2, 24, 8, 4, 120)
    assert information(history).max() == pytest.approx(math.log2(4 / 3) / 2, abs=1e-12)
    so_far = history & (
        np.arange(120)[:, None] < np.array([30, 60, 120])[:, None, None]
    )
    drifting = information(so_far, 0.95).min(axis=1)
    assert drifting[0] < drifting[1] < drifting[2]
    assert drifting[2] > 3 * math.log2(4 / 3) / 2


def test_bits_grow_with_rounds_and_fall_with_noise():
    history = _random(3, 10, 4, 12)
    so_far = history & (np.arange(12)[:, None] <= np.arange(12)[:, None, None])
    by_round = information(so_far, 0.8, noise=0.1)
    assert (np.diff(by_round, axis=0) > -1e-12).all()
    noisy = information(history[None], 0.8, noise=10)
    assert (noisy < by_round[-1]).all()


def test_spread_and_noise_have_no_unit_of_their_own():
    history = _random(4, 10, 4, 8)
    one, other = (
        information(history, 0.7, 1.0, 0.5),
        information(history, 0.7, 3.0, 4.5),
    )
    assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.long
def test_coalitions_leave_the_others_more_to_lose():
    history = _random(5, 8, 4, 6)
    for memory in (1.0, 0.9):
        found = information(history, memory, noise=0.1, coalition=[2, 5])
        assert np.isnan(found[[2, 5]]).all()
        left = [i for i in range(8) if i not in (2, 5)]
        right = information(history[:, left], memory, noise=0.1)
        assert found[left] == pytest.approx(right, abs=1e-12)
        assert (
            found[left] >= information(history, memory, noise=0.1)[left] - 1e-12
        ).all()


def test_zero_rows_and_absent_clients():
    history = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]])
    found = information(history, 0.9)
    right = _by_definition(history, _process("9/10", 3), _diagonal([0] * 3))
    assert found == pytest.approx(right, abs=1e-12)
    assert found[3] == 0
    assert information(np.zeros((2, 3), int), 0.9).tolist() == [0, 0, 0]
    assert information(np.zeros((2, 3), int)).tolist() == [0, 0, 0]


@pytest.mark.long
def test_what_the_project_found_of_drift():
    """Worst of 30 of 120 clients, cohorts of 12, noise of variance .01, after 120 | 200 rounds.

    Random: 3.65 | 5.20 bits with rho = 1 and 1.42 | 2.27 with .99; blocks of 4: .21 |
    .21 and 1.10 | 1.70; other seeds scatter around them.
    """
    random = np.stack([_random(seed, 120, 12, 200) for seed in (0, 1)])
    blocks = np.stack([_blocks(seed, 120, 12, 4, 200) for seed in (0, 1)])
    until = np.arange(200)[:, None] < np.array([120, 200])[:, None, None]
    histories = np.stack([random, blocks])[:, :, None] & until  # scheme, seed, until
    for memory, right, around in (
        (1.0, [[3.65, 5.20], [0.2075, 0.2075]], [[0.8], [1e-3]]),
        (0.99, [[1.42, 2.27], [1.10, 1.70]], [[0.4], [0.3]]),
    ):
        found = (
            information(histories, memory, noise=0.01)[..., :30]
            .max(axis=-1)
            .mean(axis=1)
        )
        assert (np.abs(found - right) < around).all(), (memory, found)


def test_a_row_of_a_batch_is_the_history_alone():
    batch = np.stack([_random(seed, 9, 3, 7) for seed in range(5)]).reshape(5, 1, 7, 9)
    together = information(batch, 0.6)
    assert together.shape == (5, 1, 9)
    assert together[3, 0] == pytest.approx(information(batch[3, 0], 0.6), abs=1e-12)


@pytest.mark.long
def test_near_one_the_longer_way_keeps_the_digits():
    rho = fractions.Fraction(999_999, 10**6)
    history = _random(6, 5, 3, 8)
    right = _by_definition(history, _process(rho, 8), _diagonal([0] * 8))
    assert right.max() > 8
    assert information(history, float(rho)) == pytest.approx(right, abs=1e-7)


def test_in_a_program_it_is_the_same_and_has_its_slopes():
    histories = np.random.default_rng(0).random((2, 7, 6)) < 0.5

    def found(memory, spread, noise):
        return mj.privacy.information(histories, memory, spread, noise, coalition=[5])

    at = (0.6, 1.3, 0.2)
    with jax.enable_x64(True):
        traced = jax.jit(found)
        np.testing.assert_allclose(traced(*at), found(*at), rtol=1e-12)
        np.testing.assert_allclose(
            traced(1.0, 1.0, 0.01), found(1.0, 1.0, 0.01), rtol=1e-9
        )
        for place, own in enumerate(jax.jit(jax.jacobian(found, (0, 1, 2)))(*at)):
            step = np.eye(3)[place] * 1e-6
            slope = (found(*(at + step)) - found(*(at - step))) / 2e-6
            np.testing.assert_allclose(
                own[..., :5], slope[..., :5], rtol=1e-6, atol=1e-8
            )
    with pytest.raises(mj.ConfigurationError, match="`noise` must be positive where"):
        jax.jit(lambda memory: mj.privacy.information(histories, memory))(0.5)
    with pytest.raises(mj.ConfigurationError, match="`P` must be known"):
        jax.jit(lambda own: mj.privacy.information(own, 0.5, 1.0, own[0, 0]))(
            histories * 1.0
        )
