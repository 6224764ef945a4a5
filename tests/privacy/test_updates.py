"""Among how many the update of each round is hidden.

Exact rationals, by hand, Monte Carlo.
"""

from __future__ import annotations

import itertools
import pathlib
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import hidden_among, hidden_among_trajectory

F = Fraction
A = [[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]]
CYCLE = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
NESTED = [[1, 1, 1, 1, 0], [1, 1, 1, 0, 1], [0, 0, 0, 1, 1]]


def kernel(rho: Any, share: Any, rounds: int) -> list[list[Fraction]]:
    return [
        [
            F(share) * F(rho) ** abs(r - s) + (F(1) - F(share)) * (r == s)
            for s in range(rounds)
        ]
        for r in range(rounds)
    ]


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve by elimination, exactly.

    A row of a singular system that says nothing is left out.
    """
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size, used = len(rows), []
    for column in range(size):
        pivot = next((k for k in range(len(used), size) if rows[k][column]), None)
        if pivot is None:
            continue
        k = len(used)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][column] for value in rows[k]]
        for j in range(size):
            if j != k and rows[j][column]:
                factor = rows[j][column]
                rows[j] = [
                    a - factor * b for a, b in zip(rows[j], rows[k], strict=True)
                ]
        used.append(column)
    assert all(row[-1] == 0 for row in rows[len(used) :])
    found = [F(0)] * size
    for row, column in zip(rows, used, strict=False):
        found[column] = row[-1]
    return found


def shares(P: Any, R: Any, omega: Any = None) -> list[list[Fraction]]:
    """Return h[r, i] from its definition; 0 where client i is in no sum of round r."""
    rounds, clients = len(P), len(P[0])
    M = [
        [
            sum(P[r][i] * P[s][i] for i in range(clients)) * R[r][s]
            + (omega[r][s] if omega else 0)
            for s in range(rounds)
        ]
        for r in range(rounds)
    ]
    found = [[F(0)] * clients for _ in range(rounds)]
    for r, i in itertools.product(range(rounds), range(clients)):
        if P[r][i]:
            c = [F(P[s][i]) * R[s][r] for s in range(rounds)]
            found[r][i] = sum(
                (a * b for a, b in zip(c, solved(M, c), strict=True)), F(0)
            )
    return found


def _hidden(P: Any, **settings: Any) -> np.ndarray:
    return np.asarray(hidden_among(np.asarray(P), each_round=True, **settings))


def _check(P: Any, expected: list[list[Any]], **settings: Any) -> None:
    found = _hidden(P, **settings)
    for r, i in itertools.product(range(len(P)), range(len(P[0]))):
        if not P[r][i]:
            assert np.isnan(found[r, i])
        else:
            assert 1 / found[r, i] == pytest.approx(float(expected[r][i]), rel=1e-9)
            assert (found[r, i] == 1) == (expected[r][i] == 1)
    worst = np.asarray(hidden_among(np.asarray(P), **settings))
    least = [
        min(found[r][i] for r in range(len(P)) if P[r][i]) for i in range(len(P[0]))
    ]
    assert worst.tolist() == least


def test_the_oracle_knows_the_known_answers() -> None:
    """The values were derived by hand and computed by others' code.

    0 stands for other rounds.
    """
    half = shares(A, kernel(F(1, 2), 1, 3))
    assert half == [
        [F(7, 20), F(7, 20), F(2, 5), 0],
        [F(88, 245), F(88, 245), 0, F(107, 245)],
        [0, 0, F(527, 980), F(527, 980)],
    ]
    assert shares(A, kernel(1, 0, 3))[1] == [F(1, 3), F(1, 3), 0, F(1, 3)]
    assert shares(A, kernel(F(1, 2), F(1, 2), 3))[1][3] == F(44, 123)
    assert shares(CYCLE, kernel(F(1, 2), 1, 3))[1] == [0, F(4, 7), F(4, 7)]
    nested = shares(NESTED, kernel(F(1, 2), 1, 3))
    assert nested[0] == [F(439, 1704)] * 3 + [F(181, 568), 0]
    unit = [[F(r == s) for s in range(3)] for r in range(3)]
    assert shares(A, kernel(F(1, 2), 1, 3), unit)[0][:3] == [
        F(69, 256),
        F(69, 256),
        F(199, 704),
    ]
    weighted = shares([[1, 2, 1], [1, 2, 0]], kernel(F(1, 2), 1, 2))
    assert weighted == [[F(16, 95), F(64, 95), F(4, 19)], [F(1, 5), F(4, 5), 0]]


ONES = {"memory": 1.0}
HALF = {"memory": 0.5}
GRID = [[1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 1],
        [1, 0, 0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 1, 0, 0, 1]]  # fmt: skip
# shares by rounds and clients, derived by hand; where a client is in no sum of a round
# is left out
ANSWERS: list[tuple[Any, dict[str, Any], str]] = [
    (A, ONES, "1/2 1/2 1 . / 1/2 1/2 . 1 / . . 1 1"),
    (A, {"memory": 0.0}, "1/3 1/3 1/3 . / 1/3 1/3 . 1/3 / . . 1/2 1/2"),
    (A, HALF, "7/20 7/20 2/5 . / 88/245 88/245 . 107/245 / . . 527/980 527/980"),
    (
        A,
        {**HALF, "share": 0.5},
        "221/656 221/656 57/164 . / 167/492 167/492 . 44/123 / . . 333/656 333/656",
    ),
    (CYCLE, HALF, "247/448 247/448 . / . 4/7 4/7 / 247/448 . 247/448"),
    (CYCLE, ONES, "1 1 . / . 1 1 / 1 . 1"),
    ([[1, 1], [1, 0]], HALF, "4/7 4/7 / 1 ."),
    ([[1, 2, 1], [1, 2, 0]], HALF, "16/95 64/95 4/19 / 1/5 4/5 ."),
    (
        A,
        {**HALF, "noise": 1.0},
        "69/256 69/256 199/704 . / 3/11 3/11 . 223/704 / . . 991/2816 1039/2816",
    ),
    ([[1], [1]], {**ONES, "noise": np.full((2, 2), 9.0)}, "1/10 / 1/10"),
    ([[1], [1]], {"memory": 0.0, "noise": np.full((2, 2), 9.0)}, "10/19 / 10/19"),
    (
        NESTED,
        HALF,
        "439/1704 439/1704 439/1704 181/568 . / 56/213 56/213 56/213 . 26/71 / . . . "
        "301/568 301/568",
    ),
    (
        NESTED,
        {**HALF, "coalition": [0]},
        ". 7/20 7/20 2/5 . / . 88/245 88/245 . 107/245 / . . . 527/980 527/980",
    ),
    (
        [[1, 1, 0], [0, 1, 1], [1, 1, 1]],
        {"memory": [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]]},
        "19/28 19/28 . / . 19/28 19/28 / 13/28 5/14 13/28",
    ),
    (
        GRID,
        ONES,
        " / ".join(" ".join("5/9" if own else "." for own in row) for row in GRID),
    ),
    ([[1, 2]], ONES, "1/5 4/5"),
]


@pytest.mark.parametrize("at", range(len(ANSWERS)))
def test_answers_by_hand(at: int) -> None:
    P, settings, answer = ANSWERS[at]
    found = 1 / _hidden(P, **settings)
    expected = [
        [float(F(own)) if own != "." else np.nan for own in row.split()]
        for row in answer.split(" / ")
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert ((found == 1) == (np.asarray(expected) == 1)).all()


def test_answers_of_the_grid() -> None:
    found = 1 / _hidden(GRID, memory=0.5)[:, 0]
    assert found[0] == pytest.approx(62879 / 187200, rel=1e-12)
    assert found[3] == pytest.approx(16271 / 46800, rel=1e-12)


def test_known_answers() -> None:
    for P in (A, CYCLE, NESTED, [[1, 1], [1, 0]], [[1, 2, 1], [1, 2, 0]]):
        for rho, share in ((F(1, 2), 1), (F(1, 2), F(1, 2)), (1, F(1, 3)), (0, 1)):
            expected = shares(P, kernel(rho, share, len(P)))
            _check(P, expected, memory=float(rho), share=float(share))
    unit = [[F(r == s) for s in range(3)] for r in range(3)]
    _check(A, shares(A, kernel(F(1, 2), 1, 3), unit), memory=0.5, noise=1.0)
    _check(A, shares(A, kernel(F(1, 2), 1, 3), unit), memory=0.5, noise=4.0, spread=2.0)
    _check(A, shares(A, kernel(F(1, 2), 1, 3), unit), memory=0.5, noise=np.eye(3))
    found = _hidden(NESTED, memory=0.5, coalition=[0])  # the coalition's column is gone
    expected = shares([row[1:] for row in NESTED], kernel(F(1, 2), 1, 3))
    assert np.isnan(found[:, 0]).all()
    assert 1 / found[0, 3] == pytest.approx(float(expected[0][2]))


def test_correlated_noise_of_sums_cancels_in_their_difference() -> None:
    noise = np.full((2, 2), 9.0)
    assert hidden_among([[1], [1]], noise=noise).tolist() == pytest.approx([10.0])
    assert hidden_among([[1], [1]], noise=noise, memory=0.0).tolist() == pytest.approx(
        [19 / 10]
    )


@pytest.mark.long
def test_sums_of_one_round_are_of_one_update() -> None:
    P = [[1, 1, 0], [0, 1, 1], [1, 1, 1]]
    R = np.asarray([[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]])
    expected = [[F(19, 28)] * 3, [F(19, 28)] * 3, [F(13, 28), F(5, 14), F(13, 28)]]
    _check(P, expected, memory=R)
    # a third sum of the round that the others add up to changes nothing and is in that
    # round
    more, K = [[1, 1, 0], [0, 1, 1], [1, 0, -1], [1, 1, 1]], np.ones((4, 4))
    K[3, :3] = K[:3, 3] = 0.5
    found = 1 / _hidden(more, memory=K)
    assert found[2, [0, 2]] == pytest.approx([19 / 28, 19 / 28])
    assert found[[0, 1, 3], 1] == pytest.approx([19 / 28, 19 / 28, 5 / 14])
    # of two rounds' halves of a difference: one round gives client 0 away, two do not
    parted = [[1, 1], [0, 1]]
    assert hidden_among(parted, memory=np.ones((2, 2))).tolist() == [1, 1]
    assert _hidden(parted, memory=0.5)[0, 0] == pytest.approx(7 / 4)


def _random(rng: np.random.Generator) -> Any:
    # each shape is programs of its own
    rounds, clients = rng.choice([(1, 3), (3, 6), (5, 4)])
    P = (rng.random((rounds, clients)) < 0.6).astype(np.int64)
    if rng.random() < 0.5:
        P[:, 1] = P[:, 0]
    return P * rng.integers(1, 4, clients) if rng.random() < 0.3 else P


@pytest.mark.long
@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_random_histories_in_rationals(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(count):
        P = _random(rng)
        rho, share = F(int(rng.integers(0, 9)), 8), F(int(rng.integers(1, 4)), 4)
        R = kernel(rho, share, len(P))
        if (P.sum(axis=1) == 0).all():
            continue
        P = P[:, P.any(axis=0)]
        _check(P.tolist(), shares(P.tolist(), R), memory=float(rho), share=float(share))
        noise = [
            [F(r == s) * F(1 + r, 2) for s in range(len(P))] for r in range(len(P))
        ]
        variances = [float(noise[r][r]) for r in range(len(P))]
        expected = shares(P.tolist(), R, noise)
        _check(
            P.tolist(), expected, memory=float(rho), share=float(share), noise=variances
        )


@pytest.mark.long
def test_trajectories_are_histories_cut_short() -> None:
    rng = np.random.default_rng(1)
    for memory in (0.0, 0.7, 1.0):
        P = (rng.random((3, 6, 5)) < 0.5).astype(np.int64)
        whole = np.asarray(hidden_among_trajectory(P, memory=memory, share=0.75))
        for q in range(6):
            cut = np.asarray(hidden_among(P[:, : q + 1], memory=memory, share=0.75))
            np.testing.assert_allclose(whole[:, q], cut, rtol=1e-9)
        worst = hidden_among_trajectory(P, memory=memory, share=0.75, quantiles=(0.0,))
        expected = np.where(np.isinf(whole).all(axis=-1), np.nan, whole.min(axis=-1))
        np.testing.assert_allclose(np.asarray(worst)[..., 0], expected, rtol=1e-9)
        whole = np.minimum(whole, 1e9)
        assert (np.diff(whole, axis=1) <= 1e-9).all()


@pytest.mark.long
def test_inside_transformations_it_is_the_same() -> None:
    P = (np.random.default_rng(6).random((4, 6, 5)) < 0.4).astype(np.int32)
    P[0, :, 1] = 0  # in no sum: inf
    P[1, 2] = [0, 1, 0, 0, 0]  # alone: exactly 1

    def all_of(rows: Any, memory: Any) -> list[Any]:
        drift: dict[str, Any] = {
            "memory": memory,
            "share": 0.75,
            "noise": [0.5, 0, 0, 0, 0, 0],
        }
        return [
            hidden_among(rows, **drift),
            hidden_among(rows, each_round=True, **drift),
            hidden_among_trajectory(rows, **drift),
            hidden_among_trajectory(rows, quantiles=(0.0, 0.5), **drift),
        ]

    memories = np.asarray([0.0, 0.5, 0.96875])
    inside = jax.jit(jax.vmap(lambda rho: jax.vmap(lambda p: all_of(p, rho))(P)))(
        memories
    )
    for k, memory in enumerate(memories):
        for expected, found in zip(all_of(P, memory), inside, strict=True):
            np.testing.assert_allclose(found[k], expected, rtol=1e-6)
            assert np.array_equal(found[k] == 1, expected == 1)
    with pytest.raises(
        mj.ConfigurationError, match="`memory` must not be 1 between rows"
    ):
        jax.jit(lambda p: hidden_among(p, memory=np.kron(np.eye(3), np.ones((2, 2)))))(
            P
        )


@pytest.mark.long
def test_memories_are_traced() -> None:
    memories = np.asarray([0.5, 1.0])
    found = jax.jit(jax.vmap(lambda rho: hidden_among(A, memory=rho)))(memories)
    np.testing.assert_allclose(found[0], hidden_among(A, memory=0.5), rtol=1e-6)
    # ranks decide where nothing changes, and they are not asked
    assert np.isnan(found[1]).all()


@pytest.mark.long("30")
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_histories_of_ones_and_of_fresh_updates(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(count):
        P = _random(rng)
        P[~P.any(axis=1), -1] = 1
        constant = shares(P.tolist(), [[F(1)] * len(P)] * len(P))
        found = np.asarray(hidden_among(P, memory=np.ones((len(P), len(P)))))
        for i in np.flatnonzero(P.any(axis=0)):
            expected = max(row[i] for row in constant)
            assert 1 / found[i] == pytest.approx(float(expected), rel=1e-12)
        squares = (P.astype(float) ** 2).sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            fresh = np.where(P != 0, squares / P.astype(float) ** 2, np.nan)
        np.testing.assert_allclose(_hidden(P, memory=0.0), fresh, rtol=1e-12)


@pytest.mark.long
def test_updates_that_never_change_are_the_worst_of_all_drifts_and_fresh_ones_the_best() -> (
    None
):
    rng = np.random.default_rng(2)
    for _ in range(20):
        P = (rng.random((8, 10)) < 0.4).astype(np.int64)
        constant = np.asarray(hidden_among(P))
        values = [
            np.asarray(hidden_among(P, memory=rho, share=0.9))
            for rho in (0.9, 0.5, 0.0)
        ]
        sizes = np.where(P, P.sum(axis=1, keepdims=True), 99).min(axis=0)
        fresh = np.where(P.any(axis=0), sizes, np.inf)
        for above, below in itertools.pairwise([constant, *values]):
            assert (above <= below * (1 + 1e-9)).all()
        np.testing.assert_allclose(
            np.asarray(hidden_among(P, memory=0.0)), fresh, rtol=1e-9
        )
        np.testing.assert_array_equal(
            np.asarray(hidden_among(jnp.asarray(P, bool), each_round=True)),
            np.where(P, np.broadcast_to(constant, P.shape), np.nan),
        )


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mates_are_hidden_among_each_other_whatever_the_drift(count: int) -> None:
    """Strong T: clients of one column hide each other in each update, by any kernel they share."""
    rng = np.random.default_rng(count)
    for _ in range(count):
        mates, rounds = int(rng.integers(2, 5)), int(rng.integers(1, 7))
        blocks = (rng.random((rounds, 4)) < 0.5).astype(np.int64)
        P = np.repeat(blocks, mates, axis=1)
        factors = rng.normal(size=(rounds, rounds))
        R = factors @ factors.T + 0.3 * np.eye(rounds)
        scale = np.sqrt(np.diagonal(R))
        R = R / scale[:, None] / scale
        R = (R + R.T) / 2
        np.fill_diagonal(R, 1.0)
        assert np.nanmin([*_hidden(P, memory=R).reshape(-1), np.inf]) >= mates * (
            1 - 1e-9
        )


@pytest.mark.long("20")
@pytest.mark.parametrize("settings", [1, 20])
def test_the_best_linear_estimate_attains_it(settings: int) -> None:
    """Monte Carlo: the estimate's mean square error is 1 - h.

    Of all settings' errors one in 100
    may be beyond 3 standard errors, none beyond 5.
    """
    rng, draws, beyond = np.random.default_rng(settings), 20_000, []
    for _ in range(settings):
        P = (rng.random((4, 5)) < 0.6).astype(np.int64)
        rho, share = rng.random(2).tolist()
        R = np.asarray(
            [
                [share * rho ** abs(r - q) + (1 - share) * (r == q) for r in range(4)]
                for q in range(4)
            ]
        )
        updates = np.linalg.cholesky(R) @ rng.normal(size=(draws, 4, 5))
        sums = (P * updates).sum(axis=2)
        found = 1 / _hidden(P, memory=rho, share=share)
        for r, i in zip(*np.nonzero(P), strict=True):
            fit, *_ = np.linalg.lstsq(sums, updates[:, r, i], rcond=None)
            squares = (updates[:, r, i] - sums @ fit) ** 2
            error = max(squares.std() / np.sqrt(draws), 1e-9)
            beyond.append(abs(squares.mean() - (1 - found[r, i])) / error)
    assert np.mean(np.asarray(beyond) > 3) <= 0.01
    assert max(beyond) < 5


@pytest.mark.parametrize("mates", [2, 3, 4])
def test_no_estimate_at_all_tells_more_than_one_T_th_of_skewed_bits(mates: int) -> None:
    """By enumeration of all that mates may send in 3 rounds.

    Bits that are rare and that flip.
    A stranger, in two of the sums, is what these leave open. The best estimate of all
    knows no less than the best linear one, and no more than one T-th.
    """
    P = np.asarray([[1] * mates + [0], [1] * mates + [1], [1] * mates + [1]])
    # the chances of rare bits stay
    rare, flips = 0.2, np.asarray([[0.85, 0.15], [0.6, 0.4]])
    assert np.allclose(np.asarray([1 - rare, rare]) @ flips, [1 - rare, rare])
    paths = np.asarray(list(itertools.product((0, 1), repeat=3)))
    chance = np.asarray([1 - rare, rare])[paths[:, 0]]
    chance = chance * flips[paths[:, 0], paths[:, 1]] * flips[paths[:, 1], paths[:, 2]]
    all_of = np.asarray(list(itertools.product(range(8), repeat=mates + 1)))
    weight = chance[all_of].prod(axis=1)
    sent = paths[all_of]  # [cases, clients, rounds]
    seen = np.einsum("ri,cir->cr", P, sent)
    _, view = np.unique(seen, axis=0, return_inverse=True)
    total = np.bincount(view, weight)
    memory = (flips[1, 1] - rare) / (1 - rare)
    linear = 1 / _hidden(P, memory=memory)
    for r in range(3):
        mean = np.bincount(view, weight * sent[:, 0, r]) / total
        share = (total * (mean - rare) ** 2).sum() / (rare * (1 - rare))
        assert linear[r, 0] - 1e-9 <= share <= 1 / mates + 1e-12
    assert share > linear[2, 0] + 1e-6  # another estimate than a linear one is the best


def test_a_weight_gives_the_other_away() -> None:
    """Of bits x and y the sum x + 2 y tells both.

    There is no cap but for linear estimates.
    """
    assert len({x + 2 * y for x, y in itertools.product((0, 1), repeat=2)}) == 4
    assert 1 / _hidden([[1, 2]], memory=0.5)[0] == pytest.approx([1 / 5, 4 / 5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"memory": 0.5, "share": 1.5},
            "`share` must be a number from 0 to 1; got 1.5",
        ),
        ({"memory": 2}, "`memory` must be 1, or lie in"),
        ({"memory": -np.eye(2)}, "`memory` must be a number, or a kernel of shape"),
        (
            {"memory": [[1, -1, 0], [-1, 1, 0], [0, 0, 1]]},
            "`memory` must be positive definite",
        ),
    ],
)
def test_what_is_no_drift(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        hidden_among(A, **settings)


def test_what_is_told_has_six_digits_where_weights_and_memory_are_extreme() -> None:
    rng, told = np.random.default_rng(5), 0
    for _ in range(12):
        P = 10 ** rng.integers(0, 11, (2, 6))
        memory = 1 - 2.0 ** -int(rng.integers(2, 19))
        expected = shares(P.tolist(), kernel(F(memory), 1, 2))
        found = _hidden(P, memory=memory)
        for r, i in zip(*np.nonzero(~np.isnan(found)), strict=True):
            told += 1
            assert 1 / found[r, i] == pytest.approx(
                float(expected[r][i]), rel=1e-6, abs=0
            )
    assert 50 < told < 144  # some are too small to be known


def test_a_memory_of_almost_one_is_told_as_far_as_floats_know_it() -> None:
    P = np.tile(np.repeat(np.eye(3, dtype=np.int64), 2, axis=1), (30, 1))
    known = np.asarray(hidden_among(P, memory=0.99))
    assert (known >= 2 * (1 - 1e-9)).all()
    unknown = np.asarray(hidden_among(np.ones((300, 3), np.int64), memory=0.999999))
    assert np.isnan(unknown).all()


@pytest.mark.long
def test_the_table_of_the_page() -> None:
    away = mj.availability.independent(0.2)
    schemes = mj.selection.uniform(120, 12), mj.selection.batch_partitioning(120, 12, 4)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "hidden_among.md").read_text()
    for name, scheme in zip(("random", "blocks of 4"), schemes, strict=True):
        P = np.asarray(mj.selection.rollout(0, scheme, away, 200))
        cells = []
        for memory in (1.0, 0.999, 0.99, 0.9, 0.5):
            found = np.asarray(hidden_among(P, memory=memory, each_round=True))
            worst, median = np.nanmin(found), np.nanmedian(found)
            cells.append(f"{worst:.2f} / {median:.{2 if median < 10 else 1}f}")
        assert f"| {name} | {' | '.join(cells)} |" in page
