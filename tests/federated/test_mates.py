"""Correlation of mates.

Its definition by loops, known values, and the bound, by enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import measure_drift

# ---- what is defined


def _by_loops(updates: np.ndarray, members: np.ndarray, blocks: Any) -> float:
    """Return kappa as `measure_drift` defines it, pair by pair."""
    mates, expected = [], []
    for row, who in zip(updates, members, strict=True):
        there = [slot for slot, client in enumerate(who) if client >= 0]
        pairs: dict[bool, list[float]] = {True: [], False: []}
        for i, j in itertools.combinations(there, 2):
            are = blocks[who[i]] == blocks[who[j]] >= 0
            pairs[are].append(float(np.mean((row[i] - row[j]) ** 2)) / 2)
        if pairs[True] and pairs[False]:
            scale = np.var(row[there], axis=0, ddof=1).mean()
            mates += [value / scale for value in pairs[True]]
            expected += [np.mean(pairs[False]) / scale] * len(pairs[True])
    return 1 - sum(mates) / sum(expected)


def test_it_is_what_it_is_said_to_be() -> None:
    rng = np.random.default_rng(0)
    blocks = np.array([0, 0, 0, 1, 1, -1, -1, 2])
    members = np.stack([rng.permutation(8)[:6] for _ in range(9)])
    members[2, 4:] = -1
    members[3, :3], members[3, 3:] = [0, 1, 2], -1  # a block alone says nothing
    updates = rng.normal(size=(9, 6, 5)) * np.arange(1, 10)[:, None, None]
    updates += rng.normal(size=(9, 1, 5)) * 100  # what all share
    found = measure_drift(updates, members, blocks=blocks, layers={"a": 2, "b": 3})
    assert found.mates_correlation == pytest.approx(_by_loops(updates, members, blocks))


def test_by_hand() -> None:
    """One coordinate: mates 0, 2 and 6, 8.

    Their half squares are 2, those of others 8, 18, 32.
    """
    updates = np.array([[[0.0], [2.0], [6.0], [8.0]]])
    others = np.mean([18, 32, 8, 18])
    found = measure_drift(updates, [range(4)], blocks=[0, 0, 1, 1]).mates_correlation
    assert found == pytest.approx(1 - 2 / others)


def test_mates_are_those_of_the_same_rounds_if_no_blocks_are_given() -> None:
    rng = np.random.default_rng(1)
    members = np.array([[0, 1, 2, 3], [0, 1, 4, 5], [2, 3, 4, 5]])
    updates = rng.normal(size=(3, 4, 6))
    blocks = [0, 0, 1, 1, 2, 2]
    found = measure_drift(updates, members).mates_correlation
    assert found == measure_drift(updates, members, blocks=blocks).mates_correlation
    members = np.array([[0, 1, 2], [0, 2, 3], [0, 1, 3]])  # nobody moves with another
    for who, own in (
        (members, None),
        (np.array([[0, 1]] * 3), None),
        (members, [-1] * 4),
    ):
        got = measure_drift(
            updates[:, : who.shape[1]], who, blocks=own
        ).mates_correlation
        assert math.isnan(got)


@pytest.mark.parametrize("blocks", [[0, 1], [[0, 1, 2, 3]], [0.0, 1, 2, 3], "text"])
def test_rejects_blocks_that_are_none(blocks: Any) -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`blocks` must hold an integer for each"
    ):
        measure_drift(np.zeros((1, 3, 4)), [[0, 1, 3]], blocks=blocks)


@pytest.mark.parametrize("kappa", [-0.2, 0.0, 0.3, 0.9])
def test_a_known_correlation_is_found_again(kappa: float) -> None:
    """Six blocks of four, two asked at a time, beside a large part that all share."""
    size, clients = 4, 24
    covariance = np.full((size, size), kappa) + (1 - kappa) * np.eye(size)
    root, found = np.linalg.cholesky(covariance), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        asked = np.stack([rng.permutation(6)[:2] for _ in range(40)])
        members = (asked[:, :, None] * size + np.arange(size)).reshape(40, -1)
        own = np.einsum("ij,rbjd->rbid", root, rng.normal(size=(40, 2, size, 40)))
        shared = rng.normal(size=(40, 1, 40)) * 5
        updates = (
            own.reshape(40, 2 * size, 40) * rng.uniform(0.1, 3, (40, 1, 1)) + shared
        )
        found.append(measure_drift(updates, members, blocks=np.arange(clients) // size))
    values = [one.mates_correlation for one in found]
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - kappa) < 5 * error + 0.004


# ---- what it bounds: every estimate of what T exchangeable mates sent, by enumeration

Law = list[tuple[Fraction, tuple[Any, ...]]]  # chance, and what each mate holds


def _share(
    law: Law, update: Callable[..., Fraction], view: Callable[..., Any]
) -> tuple[Any, Any]:
    """Return the share of mate 0's update that the best of all estimates explains, and its cap.

    Updates are about a centre that is public: a number for each view.
    """
    groups: dict[Any, list[tuple[Fraction, list[Fraction]]]] = {}
    for chance, held in law:
        seen = view(held)
        groups.setdefault(seen, []).append(
            (chance, [update(own, seen) for own in held])
        )
    explained = square = product = Fraction(0)
    for rows in groups.values():
        mass = sum(chance for chance, _ in rows)
        explained += sum(chance * z[0] for chance, z in rows) ** 2 / mass
        square += sum(chance * z[0] ** 2 for chance, z in rows)
        product += sum(chance * z[0] * z[1] for chance, z in rows)
    kappa, mates = product / square, len(law[0][1])
    return explained / square, (1 + (mates - 1) * kappa) / mates


def _mixtures(mates: int) -> Iterator[Law]:
    """Yield laws of mates who are alike given a coin.

    Bits of skewed chances, two rounds of them.
    A client's pair of bits is its update in two rounds, which may flip.
    """
    pairs = list(itertools.product((0, 1), repeat=2))
    rng = np.random.default_rng(mates)
    for _ in range(8 - 2 * mates + 1):
        laws = [[Fraction(int(n)) for n in rng.integers(1, 9, 4)] for _ in range(2)]
        coin = Fraction(int(rng.integers(1, 8)), 8)
        found: Law = []
        for held in itertools.product(range(4), repeat=mates):
            chance = sum(
                side * math.prod((own[k] / sum(own) for k in held), start=Fraction(1))
                for side, own in zip((coin, 1 - coin), laws, strict=True)
            )
            found.append((Fraction(chance), tuple(pairs[k] for k in held)))
        yield found


@pytest.mark.parametrize("mates", [2, 3, 4])
def test_no_estimate_explains_more_than_the_cap(mates: int) -> None:
    """Views: the sum of each round; both added to another client's.

    The first and a reaction.
    """
    views: list[Callable[[Any], Any]] = [
        lambda held: tuple(sum(own[r] for own in held) for r in (0, 1)),
        lambda held: sum(own[0] for own in held) + 2 * sum(own[1] for own in held),
        lambda held: (
            first := sum(own[0] for own in held),
            sum(own[1] for own in held) if first % 2 else None,
        ),
    ]
    tight = 0
    for law in _mixtures(mates):
        mean = sum(chance * held[0][0] for chance, held in law)
        for view in views:
            for centre in (
                lambda _, mean=mean: mean,
                lambda seen: Fraction(len(str(seen)) % 3, 3),
            ):
                share, cap = _share(
                    law, lambda own, seen, c=centre: own[0] - c(seen), view
                )
                assert share <= cap
                tight += share == cap
    assert tight > 0


def test_a_model_that_reacts_reaches_more_than_one_t_th() -> None:
    """Mates hold two of four values.

    The model answers 1 on the two that the sum revealed.
    """
    law = [(Fraction(1, 12), held) for held in itertools.permutations((1, 2, 4, 8), 2)]
    share, cap = _share(law, lambda own, seen: Fraction(int(bool(own & seen))), sum)
    assert share == cap == 1
    # a question that reacts to nothing
    fixed = sum(own for _, (own, _) in law) / Fraction(12)
    share, cap = _share(law, lambda own, _: own - fixed, sum)
    assert share == cap < Fraction(1, 2)
