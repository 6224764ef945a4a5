"""Among how many the update of each round is hidden: exact rationals, by hand, Monte Carlo."""

from __future__ import annotations

import itertools
import pathlib
from fractions import Fraction
from typing import Any

import jax
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
        [F(share) * F(rho) ** abs(r - s) + (F(1) - F(share)) * (r == s) for s in range(rounds)]
        for r in range(rounds)
    ]


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve by elimination, exactly; a row of a singular system that says nothing is left out."""
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
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[k], strict=True)]
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
            sum(P[r][i] * P[s][i] for i in range(clients)) * R[r][s] + (omega[r][s] if omega else 0)
            for s in range(rounds)
        ]
        for r in range(rounds)
    ]
    found = [[F(0)] * clients for _ in range(rounds)]
    for r, i in itertools.product(range(rounds), range(clients)):
        if P[r][i]:
            c = [F(P[s][i]) * R[s][r] for s in range(rounds)]
            found[r][i] = sum((a * b for a, b in zip(c, solved(M, c), strict=True)), F(0))
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
    least = [min(found[r][i] for r in range(len(P)) if P[r][i]) for i in range(len(P[0]))]
    assert worst.tolist() == least


def test_the_oracle_knows_the_known_answers() -> None:
    """The values were derived by hand and computed by others' code; 0 stands for other rounds."""
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
    assert shares(A, kernel(F(1, 2), 1, 3), unit)[0][:3] == [F(69, 256), F(69, 256), F(199, 704)]
    weighted = shares([[1, 2, 1], [1, 2, 0]], kernel(F(1, 2), 1, 2))
    assert weighted == [[F(16, 95), F(64, 95), F(4, 19)], [F(1, 5), F(4, 5), 0]]


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
    assert hidden_among([[1], [1]], noise=noise, memory=0.0).tolist() == pytest.approx([19 / 10])


def test_sums_of_one_round_are_of_one_update() -> None:
    P = [[1, 1, 0], [0, 1, 1], [1, 1, 1]]
    R = np.asarray([[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]])
    expected = [[F(19, 28)] * 3, [F(19, 28)] * 3, [F(13, 28), F(5, 14), F(13, 28)]]
    _check(P, expected, memory=R)
    # a third sum of the round that the others add up to changes nothing and is in that round
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
    rounds, clients = rng.integers(1, 6), rng.integers(2, 7)
    P = (rng.random((rounds, clients)) < 0.6).astype(np.int64)
    if rng.random() < 0.5:
        P[:, 1] = P[:, 0]
    return P * rng.integers(1, 4, clients) if rng.random() < 0.3 else P


def test_random_histories_in_rationals() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        P = _random(rng)
        rho, share = F(int(rng.integers(0, 9)), 8), F(int(rng.integers(1, 4)), 4)
        R = kernel(rho, share, len(P))
        if (P.sum(axis=1) == 0).all():
            continue
        P = P[:, P.any(axis=0)]
        _check(P.tolist(), shares(P.tolist(), R), memory=float(rho), share=float(share))
        noise = [[F(r == s) * F(1 + r, 2) for s in range(len(P))] for r in range(len(P))]
        variances = [float(noise[r][r]) for r in range(len(P))]
        expected = shares(P.tolist(), R, noise)
        _check(P.tolist(), expected, memory=float(rho), share=float(share), noise=variances)


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


def test_inside_transformations_it_is_the_same() -> None:
    P = (np.random.default_rng(6).random((4, 6, 5)) < 0.4).astype(np.int32)
    P[0, :, 1] = 0  # in no sum: inf
    P[1, 2] = [0, 1, 0, 0, 0]  # alone: exactly 1

    def all_of(rows: Any, memory: Any) -> list[Any]:
        drift: dict[str, Any] = {"memory": memory, "share": 0.75, "noise": [0.5, 0, 0, 0, 0, 0]}
        return [
            hidden_among(rows, **drift),
            hidden_among(rows, each_round=True, **drift),
            hidden_among_trajectory(rows, **drift),
            hidden_among_trajectory(rows, quantiles=(0.0, 0.5), **drift),
        ]

    memories = np.asarray([0.0, 0.5, 0.96875])
    inside = jax.jit(jax.vmap(lambda rho: jax.vmap(lambda p: all_of(p, rho))(P)))(memories)
    for k, memory in enumerate(memories):
        for expected, found in zip(all_of(P, memory), inside, strict=True):
            np.testing.assert_allclose(found[k], expected, rtol=1e-6)
            assert np.array_equal(found[k] == 1, expected == 1)
    with pytest.raises(mj.ConfigurationError, match="`memory` must not be 1 between rows"):
        jax.jit(lambda p: hidden_among(p, memory=np.kron(np.eye(3), np.ones((2, 2)))))(P)


def test_memories_are_traced() -> None:
    memories = np.asarray([0.5, 1.0])
    found = jax.vmap(lambda rho: hidden_among(A, memory=rho))(memories)
    np.testing.assert_allclose(found[0], hidden_among(A, memory=0.5), rtol=1e-6)
    assert np.isnan(found[1]).all()  # ranks decide where nothing changes, and they are not asked


def test_updates_that_never_change_are_the_worst_of_all_drifts_and_fresh_ones_the_best() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        P = (rng.random((8, 10)) < 0.4).astype(np.int64)
        constant = np.asarray(hidden_among(P))
        values = [np.asarray(hidden_among(P, memory=rho, share=0.9)) for rho in (0.9, 0.5, 0.0)]
        sizes = np.where(P, P.sum(axis=1, keepdims=True), 99).min(axis=0)
        fresh = np.where(P.any(axis=0), sizes, np.inf)
        for above, below in itertools.pairwise([constant, *values]):
            assert (above <= below * (1 + 1e-9)).all()
        np.testing.assert_allclose(np.asarray(hidden_among(P, memory=0.0)), fresh, rtol=1e-9)
        np.testing.assert_array_equal(
            np.asarray(hidden_among(P, each_round=True)),
            np.where(P, np.broadcast_to(constant, P.shape), np.nan),
        )


def test_mates_are_hidden_among_each_other_whatever_the_drift() -> None:
    """Strong T: clients of one column hide each other in each update, by any kernel they share."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        mates, rounds = int(rng.integers(2, 5)), int(rng.integers(1, 7))
        blocks = (rng.random((rounds, 4)) < 0.5).astype(np.int64)
        P = np.repeat(blocks, mates, axis=1)
        factors = rng.normal(size=(rounds, rounds))
        R = factors @ factors.T + 0.3 * np.eye(rounds)
        scale = np.sqrt(np.diagonal(R))
        R = R / scale[:, None] / scale
        R = (R + R.T) / 2
        np.fill_diagonal(R, 1.0)
        assert np.nanmin([*_hidden(P, memory=R).reshape(-1), np.inf]) >= mates * (1 - 1e-9)


def test_the_best_linear_estimate_attains_it() -> None:
    """Monte Carlo: the estimate's mean square error within 4 standard errors of 1 - h."""
    rng, draws = np.random.default_rng(4), 20_000
    P = np.asarray(A)
    R = np.asarray(kernel(F(1, 2), F(1, 2), 3), np.float64)
    updates = np.linalg.cholesky(R) @ rng.normal(size=(draws, 3, 4))
    sums = (P * updates).sum(axis=2)
    found = 1 / _hidden(A, memory=0.5, share=0.5)
    for r, i in itertools.product(range(3), range(4)):
        if P[r, i]:
            fit, *_ = np.linalg.lstsq(sums, updates[:, r, i], rcond=None)
            squares = (updates[:, r, i] - sums @ fit) ** 2
            error = 4 * squares.std() / np.sqrt(draws)
            assert squares.mean() == pytest.approx(1 - found[r, i], abs=error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": 0.5, "share": 1.5}, "`share` must be a number from 0 to 1; got 1.5"),
        ({"memory": 2}, "`memory` must be 1, or lie in"),
        ({"memory": -np.eye(2)}, "`memory` must be a number, or a kernel of shape"),
        ({"memory": [[1, -1, 0], [-1, 1, 0], [0, 0, 1]]}, "`memory` must be positive definite"),
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
            assert 1 / found[r, i] == pytest.approx(float(expected[r][i]), rel=1e-6, abs=0)
    assert 50 < told < 144  # some are too small to be known


def test_a_memory_of_almost_one_is_told_as_far_as_floats_know_it() -> None:
    P = np.tile(np.repeat(np.eye(3, dtype=np.int64), 2, axis=1), (30, 1))
    known = np.asarray(hidden_among(P, memory=0.99))
    assert (known >= 2 * (1 - 1e-9)).all()
    unknown = np.asarray(hidden_among(np.ones((300, 3), np.int64), memory=0.999999))
    assert np.isnan(unknown).all()


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
