"""Changing populations.

Bad input, cases by hand, and which policy keeps the guarantee T.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.availability import independent, markov
from mrsa_jax.selection import (
    batch_partitioning,
    changing_population,
    form_blocks,
    rollout,
    rollout_population,
)

POLICIES = ("keep", "refill", "reform")
_always = functools.cache(lambda: independent(0.0))


def _raw(function: Callable) -> Callable:
    return inspect.unwrap(function)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: _change(num_clients=0), "`num_clients` must be at least 1; got 0"),
        (lambda: _change(num_rounds=2.0), "`num_rounds` must be an integer; got 2.0"),
        (
            lambda: _change(arrival_rate=-0.5),
            "`arrival_rate` must be one number, at least 0; got",
        ),
        (
            lambda: _change(arrival_rate=math.nan),
            "`arrival_rate` must be finite; got nan",
        ),
        (
            lambda: _change(departure_rate=1.5),
            r"`departure_rate` must be one number in \[0, 1\]",
        ),
        (
            lambda: _change(departure_rate=[0.1, 0.2]),
            r"`departure_rate` must be one number in",
        ),
        (lambda: _raw(form_blocks)([[0.5, 1.0]], 1), "`members` must be a boolean"),
        (lambda: _raw(form_blocks)([[0, 2]], 1), "`members` must be .* got 0 and 2"),
        (
            lambda: _raw(form_blocks)([0, 1], 1),
            r"`members` must be .* got 'shape \(2,\)'",
        ),
        (lambda: _raw(form_blocks)([[0, 1], [1]], 1), "`members` must be"),
        (
            lambda: _raw(form_blocks)([[1, 1]], 0),
            "`privacy_target` must be at least 1; got 0",
        ),
        (lambda: _raw(form_blocks)([[1, 1]], 1, "reforn"), "did you mean 'reform'"),
        (
            lambda: _roll([[1, 1]], 3, 2, _always()),
            "`cohort_size` must be a multiple of `privacy_tar",
        ),
        (
            lambda: _roll([[1, 1]], 2, 2, independent([0.1])),
            "`dropout_rate` must be one rate or 2",
        ),
        (lambda: _roll([[1, 1]], 2, 2, 0.1), "`availability` must have"),
    ],
)
def test_misuse(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


def _change(**changes: object) -> object:
    options = {
        "num_clients": 3,
        "num_rounds": 4,
        "arrival_rate": 0.5,
        "departure_rate": 0.1,
    }
    options |= changes
    sizes = (options.pop("num_clients"), options.pop("num_rounds"))
    return _raw(changing_population)(0, *sizes, **options)


def _roll(*arguments: object, **options: object) -> object:
    return _raw(rollout_population)(0, *arguments, **options)


# ---- who is a member


def test_arrivals_are_steady() -> None:
    members = changing_population(0, 2, 6, arrival_rate=0.5, departure_rate=0.0)
    assert members.shape == (6, 4)
    assert members.argmax(axis=0).tolist() == [0, 0, 2, 4]
    assert members.sum(axis=1).tolist() == [2, 2, 3, 3, 4, 4]
    many = changing_population(0, 1, 4, arrival_rate=2.0, departure_rate=0.0)
    assert many.argmax(axis=0).tolist() == [0, 1, 1, 2, 2, 3, 3]
    gone = changing_population(0, 2, 3, arrival_rate=1.0, departure_rate=1.0)
    assert gone.astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_stays_are_geometric() -> None:
    chance, n, rounds = 0.2, 20_000, 60
    members = changing_population(3, n, rounds, arrival_rate=0.0, departure_rate=chance)
    assert members[0].all()
    assert not (members[1:] & ~members[:-1]).any()  # nobody comes back
    stays = members.sum(axis=0)
    for s in (1, 2, 5, 20):
        longer, p = (stays > s).sum(), (1 - chance) ** s
        assert stats.binom.ppf(1e-7, n, p) <= longer <= stats.binom.isf(1e-7, n, p)


def test_a_stay_does_not_depend_on_the_others() -> None:
    few = changing_population(1, 3, 20, arrival_rate=0.0, departure_rate=0.2)
    many = changing_population(1, 9, 20, arrival_rate=0.3, departure_rate=0.2)
    assert (many[:, :3] == few).all()


# ---- blocks

MEMBERS = np.array(
    [  #  a  b  c  d  e  f  g
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],  # f joins
        [1, 0, 1, 1, 1, 1, 0],  # b leaves
        [1, 0, 1, 1, 1, 1, 1],  # g joins
        [1, 1, 1, 1, 1, 1, 1],  # b comes back
    ]
)


def test_blocks_by_hand() -> None:
    assert form_blocks(MEMBERS, 2, "keep").tolist() == [
        [0, 0, 1, 1, -1, -1, -1],
        [0, 0, 1, 1, 2, 2, -1],
        [-1, -1, 1, 1, 2, 2, -1],
        [-1, -1, 1, 1, 2, 2, -1],
        [0, 0, 1, 1, 2, 2, -1],
    ]
    assert form_blocks(MEMBERS, 2, "refill").tolist() == [
        [0, 0, 1, 1, -1, -1, -1],
        [0, 0, 1, 1, 2, 2, -1],
        [0, -1, 1, 1, 2, 2, -1],
        [0, -1, 1, 1, 2, 2, 0],
        [0, -1, 1, 1, 2, 2, 0],
    ]
    assert form_blocks(MEMBERS, 2, "reform").tolist() == [
        [0, 0, 1, 1, -1, -1, -1],
        [0, 0, 1, 1, 2, 2, -1],
        [0, -1, 0, 1, 1, -1, -1],
        [0, -1, 0, 1, 1, 2, 2],
        [0, -1, 0, 1, 1, 2, 2],  # b is a newcomer
    ]


def test_nobody_ever_there() -> None:
    for policy in POLICIES:
        assert (form_blocks(np.zeros((3, 4), bool), 2, policy) == -1).all()
        history = rollout_population(
            0, np.zeros((3, 4), bool), 2, 2, _always(), policy=policy
        )
        assert not history.any()


def _joined(members: np.ndarray) -> list[np.ndarray]:
    """Return the round in which each present client last joined, for each round."""
    return [
        np.array(
            [
                max((r + 1 for r in range(j + 1) if not members[r, i]), default=0)
                for i in clients
            ]
        )
        for j, clients in enumerate([range(members.shape[1])] * len(members))
    ]


histories = arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 9)))


@given(members=histories, t=st.integers(1, 4), policy=st.sampled_from(POLICIES))
def test_blocks_hold_present_clients_only(
    members: np.ndarray, t: int, policy: str
) -> None:
    labels = form_blocks(members, t, policy)
    assert labels.shape == members.shape
    assert not ((labels >= 0) & ~members).any()
    assert labels.max(initial=-1) < max(members.shape[1] / t, 1)
    for row in labels:
        sizes = Counter(row[row >= 0].tolist())
        assert all(size <= t for size in sizes.values())
        if policy != "refill":  # whole or not at all
            assert set(sizes.values()) <= {t}
    if policy == "keep":  # nobody is in two blocks
        assert all(len(set(column[column >= 0])) <= 1 for column in labels.T)
    if policy == "reform":
        assert ((labels >= 0).sum(1) == members.sum(1) // t * t).all()
        for row, now, joined in zip(labels, members, _joined(members), strict=True):
            order = sorted(np.flatnonzero(now), key=lambda i: (joined[i], i))
            assert row[order].tolist() == [
                i // t if i < len(order) // t * t else -1 for i in range(len(order))
            ]


# ---- rollouts


def test_a_population_that_stays_is_batch_partitioning() -> None:
    """Same law as on fixed clients; by policy and mode the same history."""
    members = np.ones((400, 12), bool)
    online = independent(0.2)
    first = rollout_population(3, members, 6, 3, online)
    for policy in POLICIES[1:]:
        assert (
            rollout_population(3, members, 6, 3, online, policy=policy) == first
        ).all()
    # T = 1: blocks are clients
    one = rollout(3, batch_partitioning(12, 6, 1), online, 400)
    assert (rollout_population(3, members, 6, 1, online) == one).all()
    blocks = np.asarray(first).reshape(400, 4, 3)
    assert (blocks.all(2) == blocks.any(2)).all()
    c = mj.selection.expected_cardinality(12, 6, 3, 0.2) / 6
    worked = blocks.any((1, 2)).sum()
    assert stats.binom.ppf(1e-6, 400, c) <= worked <= stats.binom.isf(1e-6, 400, c)


@pytest.mark.parametrize("policy", POLICIES)
def test_cohorts_are_whole_blocks_of_available_members(policy: str) -> None:
    members = changing_population(1, 14, 60, arrival_rate=0.4, departure_rate=0.03)
    labels = form_blocks(members, 2, policy)
    # Everybody is online: exactly the rounds with K/T whole blocks work.
    history = np.asarray(rollout_population(5, members, 6, 2, _always(), policy=policy))
    assert history.shape == members.shape
    for row, own in zip(history, labels, strict=True):
        sizes = Counter(own[own >= 0].tolist())
        whole = {block for block, size in sizes.items() if size == 2}
        assert row.sum() == (6 if len(whole) >= 3 else 0)
        assert all((row[own == block]).all() for block in set(own[row]))
        assert set(own[row]) <= whole
    assert set(history.sum(1)) >= {6}
    # Absent clients stay out, with memory in the availability as well.
    slow = markov(0.4, 3.0)
    history = np.asarray(rollout_population(5, members, 6, 2, slow, policy=policy))
    assert not (history & ~members).any()
    assert set(history.sum(1)) == {0, 6}


def test_least_used_blocks_come_first() -> None:
    """Four blocks, one a round.

    Everybody once in four rounds, newcomers first after that.
    """
    members = np.ones((9, 10), bool)
    members[:4, 8:] = False
    history = np.asarray(
        rollout_population(0, members, 2, 2, _always(), fairness="greedy")
    )
    assert (history[:4, :8].sum(0) == 1).all()
    assert history[4, 8:].all()
    assert (history.sum(0)[:8].max() - history.sum(0)[:8].min()) <= 1


def _weak_by_enumeration(history: np.ndarray) -> int:
    """The smallest support of a combination of rows, by the rank of the other columns."""
    rows = np.unique(history.astype(int), axis=0)
    rank = np.linalg.matrix_rank(rows)
    n = rows.shape[1]
    best = n
    for bits in range(1, 2**n):
        support = np.array([bits >> i & 1 for i in range(n)], bool)
        if support.sum() < best and np.linalg.matrix_rank(rows[:, ~support]) < rank:
            best = int(support.sum())
    return best


SEEDS = range(3)


def _population(seed: int) -> np.ndarray:
    return changing_population(seed, 24, 150, arrival_rate=0.25, departure_rate=0.01)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("t", [2, 3])
def test_kept_blocks_keep_the_guarantee(seed: int, t: int) -> None:
    members = _population(seed)
    history = rollout_population(seed, members, 6, t, independent(0.1))
    # some who took part have left
    assert (~members[-1] & np.asarray(history).any(0)).sum() >= 2
    strong = mj.privacy.strong_privacy(history)
    assert strong is not None
    assert strong >= t
    assert (np.asarray(mj.privacy.first_exposure(history)) == -1).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["refill", "reform"])
def test_other_policies_break_the_guarantee(seed: int, policy: str) -> None:
    """Single clients move alone.

    Strong privacy 1, though every cohort is of whole blocks.
    """
    history = rollout_population(
        seed, _population(seed), 6, 3, independent(0.1), policy=policy
    )
    assert mj.privacy.strong_privacy(history) == 1


def test_reforming_exposes_clients() -> None:
    """Not only columns of their own: updates that the server can solve for."""
    exposed = {}
    for policy in POLICIES:
        history = rollout_population(
            2, _population(2), 6, 3, independent(0.1), policy=policy
        )
        exposed[policy] = (np.asarray(mj.privacy.first_exposure(history)) >= 0).sum()
    assert exposed["keep"] == 0
    assert exposed["reform"] > 10


def test_one_leaver_by_hand() -> None:
    """Blocks ab, cd; b leaves, e has joined. What the sums of each policy give away."""
    members = np.array([[1, 1, 1, 1, 0]] * 6 + [[1, 0, 1, 1, 1]] * 6)
    seen = {
        policy: np.unique(
            np.asarray(rollout_population(0, members, 2, 2, _always(), policy=policy)),
            axis=0,
        )
        .astype(int)
        .tolist()
        for policy in POLICIES
    }
    ab, cd, ae, ac, de = (
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [1, 0, 0, 0, 1],
        [1, 0, 1, 0, 0],
        [0] * 5,
    )
    de[3] = de[4] = 1
    assert seen["keep"] == sorted([ab, cd])
    assert seen["refill"] == sorted([ab, cd, ae])
    assert seen["reform"] == sorted([ab, cd, ac, de])
    strong = {
        policy: mj.privacy.strong_privacy(np.array(rows))
        for policy, rows in seen.items()
    }
    assert strong == {"keep": 2, "refill": 1, "reform": 1}
    # Weak privacy survives these few rounds: b - e, and a - d, have two clients each.
    weak = {
        policy: _weak_by_enumeration(np.array(rows)) for policy, rows in seen.items()
    }
    assert weak == {"keep": 2, "refill": 2, "reform": 2}


def test_enumeration_of_weak_privacy_knows_a_case() -> None:
    """(a + b, b + c, a + c) gives a alone.

    Fraction(1, 2) of the first minus second plus third.
    """
    rows = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    half = Fraction(1, 2)
    alone = [half * (a - b + c) for a, b, c in zip(*rows.tolist(), strict=True)]
    assert alone == [1, 0, 0]
    assert _weak_by_enumeration(rows) == 1


def test_reforming_breaks_weak_privacy_too() -> None:
    """Small enough to enumerate: T = 2 kept, 1 after blocks were formed anew."""
    members = np.ones((60, 9), bool)
    members[20:, 1] = False
    members[40:, 4] = False
    kept, anew = (
        np.asarray(rollout_population(1, members, 4, 2, _always(), policy=policy))
        for policy in ("keep", "reform")
    )
    assert _weak_by_enumeration(kept) >= 2
    assert _weak_by_enumeration(anew) < 2


def test_new_numbers_compile_nothing_new(compilations: Any) -> None:
    members = np.ones((7, 12), bool)
    rollout_population(0, members, 4, 2, independent(0.1))
    with compilations() as compiled:
        rollout_population(1, members, 6, 2, independent(0.4), fairness="uniform")
    assert compiled == []


def test_large_populations() -> None:
    """Linear in M: 10^5 clients, nothing of M x M."""
    members = changing_population(
        0, 90_000, 20, arrival_rate=500.0, departure_rate=0.005
    )
    assert members.shape[1] == 99_500
    history = rollout_population(0, members, 1000, 10, independent(0.2))
    assert (history.sum(1) == 1000).all()
    assert (mj.privacy.strong_privacy(history) or 0) >= 10
