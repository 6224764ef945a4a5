"""Random coalitions.

Verdicts against exact elimination, chances against enumeration and theory.
"""

import itertools
import math

import jax
import numpy as np
import pytest
import row_space_oracle as oracle
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.forms import use_form
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax.privacy import _collusion, collusion_risk, first_exposure
from mrsa_jax.privacy._collusion import sums_judge

P = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool)
SURE = 1 - 1e-7  # of intervals in tests


def subsets(clients):
    return np.array(list(itertools.product((False, True), repeat=clients))[:-1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"fractions": 1.0},
            r"`fractions` must be a number in \[0, 1\), or a list .*got 1.0",
        ),
        ({"fractions": [0.1, -0.1]}, r"`fractions` must be a number in .* got -0.1"),
        ({"fractions": []}, r"`fractions` must be a number in"),
        ({"fractions": "a"}, r"`fractions` must be a number in"),
        ({"fractions": 0.99}, "`fractions` must leave one of 4 clients out; got 0.99"),
        ({"num_coalitions": 0}, "`num_coalitions` must be at least 1; got 0"),
        (
            {"degree": 3},
            "`threshold` must be given together with `degree`; got None and 3",
        ),
        (
            {"threshold": 3},
            "`threshold` must be given together with `degree`; got 3 and None",
        ),
        ({"degree": 0, "threshold": 1}, "`degree` must be at least 1; got 0"),
        ({"degree": 2, "threshold": 0}, "`threshold` must be at least 1; got 0"),
        ({"P": [[0.5]]}, "`P` must hold bools or integers"),
        ({"seed": -1}, "`seed` must lie in"),
    ],
)
def test_rejects_what_makes_no_sense(changed, message):
    arguments = {"seed": 0, "P": P, "fractions": 0.25, "num_coalitions": 10} | changed
    with pytest.raises(mj.ConfigurationError, match=message):
        collusion_risk(**arguments)


def test_what_is_traced_is_refused():
    with pytest.raises(mj.ConfigurationError, match="`P` must be known, not traced"):
        jax.jit(lambda own: collusion_risk(0, own, 0.25, 10).sums.any_client.rate)(P)


def histories():
    draw = np.random.default_rng(0)
    for _ in range(30):
        matrix = (draw.random((7, 6)) < draw.uniform(0.2, 0.7)).astype(np.int64)
        matrix *= draw.integers(-2, 3, matrix.shape) if draw.random() < 0.3 else 1
        matrix[draw.integers(0, 7) :] = 0
        if draw.random() < 0.3:
            matrix[:, 1] = matrix[:, 4]
        yield matrix
    yield np.zeros((7, 6), np.int64)
    yield np.eye(6, dtype=np.int64)
    yield np.pad(
        [[10**12, 1, 1, 0, 0, 0], [10**12 + 1, 1, 1, 1, 0, 0]], ((0, 5), (0, 0))
    )


@pytest.mark.long
@pytest.mark.parametrize("form", ["loops", "xla"])
def test_verdicts_are_those_of_exact_elimination(form):
    members = subsets(6)
    for matrix in itertools.islice(
        histories(), None, None, 1 if form == "loops" else 8
    ):
        with use_form(form):
            found = sums_judge(matrix)(members, np.zeros(len(members), np.uint64))
        for own, exposed in zip(members, found, strict=True):
            others = np.flatnonzero(~own)
            expected = others[list(oracle.exposed(matrix[:, others]))]
            assert np.flatnonzero(exposed).tolist() == expected.tolist(), (matrix, own)


@pytest.mark.long
def test_verdicts_at_size_are_those_of_first_exposure():
    scheme = mj.selection.uniform(40, 6)
    history = np.asarray(
        mj.selection.rollout(0, scheme, mj.availability.independent(0.2), 34)
    )
    draw = np.random.default_rng(1)
    members = draw.random((40, 40)) < draw.random((40, 1)) * 0.6
    found = sums_judge(history)(members, np.zeros(40, np.uint64))
    left = np.where(members[:, None], False, history)
    assert found.any()
    assert not found.all(axis=1).any()
    np.testing.assert_array_equal(found, np.asarray(first_exposure(left)) >= 0)


def test_chances_are_those_of_all_coalitions(monkeypatch):
    monkeypatch.setattr(
        _collusion,
        "binomial_interval",
        lambda seen, of: binomial_interval(seen, of, SURE),
    )
    matrix = np.array(
        [[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 1, 1]]
    )
    sizes = (0, 1, 2, 3, 4, 5)
    found = collusion_risk(3, matrix, [size / 6 for size in sizes], 4000)
    assert found.members == sizes
    assert found.neighbours is None
    members = subsets(6)
    exposed = sums_judge(matrix)(members, np.zeros(len(members), np.uint64))
    for k, size in enumerate(sizes):
        of = members.sum(axis=1) == size
        anybody, each = found.sums.any_client, found.sums.each_client
        assert anybody.lower[k] <= exposed[of].any(axis=1).mean() <= anybody.upper[k]
        for i in range(6):
            exact = exposed[of][:, i][~members[of][:, i]].mean()
            assert each.lower[k, i] <= exact <= each.upper[k, i]
    rates = found.sums.any_client.rate
    least = oracle.weak_privacy(matrix)
    assert (rates[: least - 1] == 0).all()
    assert (rates[least - 1 :] > 0).all()


def test_blocks_are_exposed_by_their_own_members(monkeypatch):
    """Where every block is a sum, a client is exposed exactly by all others of its block."""
    monkeypatch.setattr(
        _collusion,
        "binomial_interval",
        lambda seen, of: binomial_interval(seen, of, SURE),
    )
    history = np.repeat(np.eye(10, dtype=bool), 3, axis=1)
    found = collusion_risk(4, history, [0.2, 0.5], 5000)
    each = found.sums.each_client
    for k, size in enumerate(found.members):
        exact = math.comb(27, size - 2) / math.comb(29, size)
        assert (each.lower[k] <= exact).all()
        assert (each.upper[k] >= exact).all()


@pytest.mark.parametrize(("degree", "threshold"), [(4, 2), (5, 3), (11, 5), (30, 5)])
def test_corrupt_neighbours_follow_the_hypergeometric_law(
    monkeypatch, degree, threshold
):
    monkeypatch.setattr(
        _collusion,
        "binomial_interval",
        lambda seen, of: binomial_interval(seen, of, SURE),
    )
    history = np.zeros((2, 15), bool)
    history[1, :12] = True  # one round of twelve, and three who are in none
    found = collusion_risk(5, history, 0.4, 6000, degree=degree, threshold=threshold)
    by_round = stats.hypergeom(14, 6, min(degree, 11)).sf(threshold - 1)
    each = found.neighbours.each_client
    assert (each.lower[0, :12] <= by_round).all()
    assert (each.upper[0, :12] >= by_round).all()
    assert (each.rate[0, 12:] == 0).all()
    assert (found.sums.any_client.rate <= found.either.any_client.rate).all()
    if degree >= 11:  # complete: all honest ones of the round at once
        chance = stats.hypergeom(15, 6, 12)
        own = found.neighbours.any_client
        assert own.lower[0] <= chance.sf(threshold - 1) <= own.upper[0]


def test_graphs_are_drawn_anew_in_each_round(monkeypatch):
    """For a coalition's size in the cohort, rounds are independent.

    Here it is always the same.
    """
    monkeypatch.setattr(
        _collusion,
        "binomial_interval",
        lambda seen, of: binomial_interval(seen, of, SURE),
    )
    history = np.ones((5, 10), bool)
    found = collusion_risk(6, history, 0.3, 6000, degree=2, threshold=2)
    once = stats.hypergeom(9, 3, 2).sf(1)
    each = found.neighbours.each_client
    expected = 1 - (1 - once) ** 5
    assert (each.lower[0] <= expected).all()
    assert (each.upper[0] >= expected).all()


def test_several_histories_and_the_same_answer_each_time():
    many = np.stack([P, np.eye(3, 4, dtype=bool)])
    found = collusion_risk(1, many, [0.25, 0.5], 700)
    assert found.sums.any_client.rate.shape == (2, 2)
    assert found.sums.each_client.rate.shape == (2, 2, 4)
    assert (found.sums.any_client.rate[1] > 0.9).all()
    assert found.sums.each_client.rate[1, :, 3].tolist() == [0, 0]
    again = collusion_risk(1, many, [0.25, 0.5], 700)
    np.testing.assert_array_equal(found.sums.exposed, again.sums.exposed)
    assert (
        collusion_risk(2, many, 0.5, 700).sums.exposed[0] != found.sums.exposed[0, 1]
    ).any()


def test_progress_and_a_single_client():
    seen = []
    alone = collusion_risk(
        0,
        [[1]],
        0.0,
        300,
        progress=lambda what, done, of: seen.append((what, done, of)),
    )
    assert seen == [("coalitions", 256, 300), ("coalitions", 300, 300)]
    assert alone.sums.any_client.rate.tolist() == [1.0]
    nothing = collusion_risk(0, [[0, 0]], 0.5, 10)
    chance = nothing.sums.any_client
    assert (chance.rate[0], chance.lower[0]) == (0.0, 0.0)
    assert math.isclose((1 - chance.upper[0]) ** 10, 0.025)
