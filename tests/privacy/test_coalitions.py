"""Coalitions against exhaustion: the members' columns deleted, in exact integers."""

import itertools

import jax
import numpy as np
import pytest
import row_space_oracle as oracle

import mrsa_jax as mj
from mrsa_jax.privacy import (
    first_exposure,
    strong_privacy,
    strong_privacy_trajectory,
    weak_privacy,
    weak_privacy_trajectory,
)

P = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool)
FUNCTIONS = (
    first_exposure,
    strong_privacy,
    strong_privacy_trajectory,
    weak_privacy,
    weak_privacy_trajectory,
)


def small_histories(count, seed=0, clients=6, rounds=5):
    """Histories of one shape.

    Sparse and dense, of bools and weights, with equal columns.
    """
    draw = np.random.default_rng(seed)
    for _ in range(count):
        matrix = (draw.random((rounds, clients)) < draw.uniform(0.2, 0.8)).astype(int)
        if draw.random() < 0.3:
            matrix *= draw.integers(-3, 4, matrix.shape)
        if draw.random() < 0.4:
            matrix[:, draw.integers(clients)] = matrix[:, draw.integers(clients)]
        yield matrix


def coalitions(clients, sizes=None):
    for size in range(clients) if sizes is None else sizes:
        yield from itertools.combinations(range(clients), size)


@pytest.mark.parametrize(
    ("coalition", "message"),
    [
        (1, "must be a list of integers; got 1"),
        ("1", "must be a list of integers; got '1'"),
        ({1}, r"must be a list of integers; got \{1\}"),
        ([[1]], r"must be a list of integers; got \[\[1\]\]"),
        ([1.0], "must be an integer; got 1.0"),
        ([True], "must be an integer; got True"),
        (P[0], r"must be an integer; got np.True_"),
        ([-1], "must be at least 0; got -1"),
        ([4], "must hold indices below 4, the number of clients; got 4"),
        ([10**30], "must hold indices below 4, the number of clients; got 10"),
        ([2, 0, 2], "must name a client once; got 2"),
        ([0, 1, 2, 3], "must leave a client out; got 'all 4'"),
    ],
)
def test_rejects_what_is_no_coalition(coalition, message):
    for function in FUNCTIONS:
        with pytest.raises(mj.ConfigurationError, match=f"^`coalition` {message}"):
            function(P, coalition=coalition)


def test_a_coalition_is_not_traced():
    with pytest.raises(
        mj.ConfigurationError, match="`coalition` must be known, not traced"
    ):
        jax.jit(lambda members: first_exposure(P, coalition=members))(np.array([1]))


def test_each_kind_of_list_is_the_same_coalition():
    for coalition in (
        [3, 1],
        (1, 3),
        range(1, 4, 2),
        np.array([1, 3]),
        jax.numpy.array([3, 1]),
    ):
        assert first_exposure(P, coalition=coalition).tolist() == [0, -1, 1, -1]
    for function in FUNCTIONS:
        alone, none = (
            jax.tree.leaves(own) for own in (function(P), function(P, coalition=()))
        )
        assert all(np.array_equal(a, b) for a, b in zip(alone, none, strict=True))


@pytest.mark.long
def test_all_measures_are_those_of_the_others_columns():
    for matrix in [*small_histories(6), *small_histories(15, clients=3)]:
        for members in coalitions(matrix.shape[1]):
            others = [i for i in range(matrix.shape[1]) if i not in members]
            left = matrix[:, others]
            exposed = tuple(others[i] for i in oracle.exposed(left))
            found = weak_privacy(matrix, coalition=members)
            assert (found.lower, found.upper) == (oracle.weak_privacy(left),) * 2
            assert (found.exposed, found.rank) == (exposed, oracle.rank(left.tolist()))
            assert not set(found.support) & set(members)
            strong = oracle.strong_privacy(left)
            assert strong_privacy(matrix, coalition=members) == strong
            first = np.asarray(first_exposure(matrix, coalition=members))
            assert tuple(np.flatnonzero(first >= 0).tolist()) == exposed


@pytest.mark.long
def test_after_each_round():
    for matrix in small_histories(10, seed=1):
        members = (matrix.shape[1] // 2,)
        left = np.delete(matrix, members, axis=1)
        expected = oracle.trajectory(left)
        strong = strong_privacy_trajectory(matrix, coalition=members).tolist()
        assert strong == [
            oracle.strong_privacy(left[: j + 1]) or -1 for j in range(len(left))
        ]
        for method in ("certified", "bounds"):
            found = weak_privacy_trajectory(matrix, method, coalition=members)
            ranks, least = zip(*expected, strict=True)
            assert found.rank.tolist() == list(ranks)
            assert (found.lower <= least).all()
            assert (found.upper >= least).all()


@pytest.mark.long
def test_many_histories_and_inside_programs():
    many = np.random.default_rng(0).random((5, 6, 4)) < 0.5
    expected = [first_exposure(own, coalition=[2]).tolist() for own in many]
    assert first_exposure(many, coalition=[2]).tolist() == expected
    inside = jax.vmap(jax.jit(lambda own: first_exposure(own, coalition=[2])))(many)
    assert inside.tolist() == expected
    strong = jax.vmap(lambda own: strong_privacy(own, coalition=[2]))(many).tolist()
    assert strong == [strong_privacy(own, coalition=[2]) or -1 for own in many]


def test_integers_beyond_words_and_logs():
    huge = np.array([[10**40, 1, 0], [0, 1, 10**41]], object)
    found = weak_privacy(huge, coalition=[1])
    assert (found.exposed, found.upper) == ((0, 2), 1)
    assert first_exposure(huge, coalition=[1]).tolist() == [0, -1, 1]
    assert weak_privacy(huge).upper == 2


def test_members_who_never_took_part_change_nothing():
    wide = np.pad(P, ((0, 0), (0, 2)))
    for coalition in ([4], [4, 5]):
        assert weak_privacy(wide, coalition=coalition) == weak_privacy(wide)
    # no client took part but members
    alone = weak_privacy([[1, 1, 0]], coalition=[0, 1])
    assert (alone.lower, alone.rank, alone.exposed) == (None, 0, ())
    assert strong_privacy([[1, 1, 0]], coalition=[0, 1]) is None


@pytest.mark.long
def test_each_member_takes_one_from_the_least_t():
    """Over all coalitions of c < T members the least weak T is T - c."""
    seen = set()
    for matrix in [
        m for rounds in (2, 3) for m in small_histories(30, 2, rounds=rounds)
    ]:
        least = oracle.weak_privacy(matrix) or 0
        seen.add(least)
        for size in range(1, least):
            found = [
                weak_privacy(matrix, coalition=own).upper
                for own in coalitions(
                    matrix.shape[1], [size] if size < matrix.shape[1] else []
                )
            ]
            known = [t for t in found if t is not None]
            assert not found or min(known) == least - size
    assert {2, 3, 4} <= seen
