"""Weights around the ends of 64 bits.

Figures are exhaustion's, and every witness holds.
Witnesses are held to their definition in Python integers; one that is none is never
returned.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax import MrsaError
from mrsa_jax.privacy import (
    _clients,
    _trajectory,
    client_privacy,
    unweighted_group,
    weak_privacy,
    weak_privacy_trajectory,
)
from mrsa_jax.privacy.solver import Vector, _space, _through

Matrix = list[list[int]]

KINDS: dict[type, tuple[int, int]] = {
    np.int64: (-(2**63), 2**63 - 1),
    np.uint64: (0, 2**64 - 1),
    object: (-(2**99), 2**99),
}
# Groups that exist only where integers of 64 bits wrap.
WRAPPED: list[Matrix] = [
    [[2**63 - 1, 0, 1], [2**63 - 3, 4, 3]],
    [[-(2**63), 5, 0], [-(2**63), 0, 5]],
]


def extreme(generator: random.Random, kind: type) -> Matrix:
    """Return a small history of a type's powers of two and their neighbours, with equal columns."""
    least, most = KINDS[kind]
    clients, rounds = generator.randint(2, 5), generator.randint(1, 4)
    near = [
        sign * 2**e + more
        for e in (0, 31, 61, 62, 63, 64)
        for more in (-1, 0, 1)
        for sign in (1, -1)
    ]
    values = [
        *(value for value in near if least <= value <= most),
        least,
        most,
        1,
        1,
        1,
    ]
    rows = [
        [
            generator.choice(values) if generator.random() < 0.7 else 0
            for _ in range(clients)
        ]
        for _ in range(rounds)
    ]
    if generator.random() < 0.4:  # a row but for its last digit
        rows.append(
            [
                min(most, max(least, value + generator.choice([-1, 0, 1])))
                if value
                else 0
                for value in rows[0]
            ]
        )
    return rows


def through(rows: Matrix, client: int) -> int:
    """Return the fewest clients in a vector of the row space that is not zero at one.

    Else -1.
    """
    others = [i for i in range(len(rows[0])) if i != client]
    for size in range(len(others) + 1):
        for own in itertools.combinations(others, size):
            outside = [i for i in others if i not in own]
            whole = oracle.rank([[row[i] for i in [client, *outside]] for row in rows])
            if whole > oracle.rank([[row[i] for i in outside] for row in rows]):
                return size + 1
    return -1


def check_witness(witness: Sequence[int], support: Sequence[int], rows: Matrix) -> None:
    assert all(type(z) is int for z in witness)
    combined = oracle.combination(witness, rows[: len(witness)])
    assert [i for i, value in enumerate(combined) if value] == list(support)


def check_all(rows: Matrix, kind: type) -> None:
    P, T = np.array(rows, kind), oracle.weak_privacy(rows)
    weak, each, curve = weak_privacy(P), client_privacy(P), weak_privacy_trajectory(P)
    assert (weak.lower, weak.upper, weak.certified) == (T, T, True)
    assert (weak.rank, weak.exposed) == (
        oracle.rank(rows),
        oracle.exposed(rows) if T else (),
    )
    check_witness(weak.witness, weak.support, rows)
    for client in range(len(rows[0])):
        own = through(rows, client)
        assert each.lower[client] == each.upper[client] == own
        assert bool(each.certified[client]) == (own > 0)
        if own > 0:
            assert client in each.supports[client]
            assert len(each.supports[client]) == own
            check_witness(each.witnesses[client], each.supports[client], rows)
    found = list(zip(curve.rank.tolist(), curve.upper.tolist(), strict=True))
    assert found == oracle.trajectory(rows)
    # 8191, by which its searches walk, is 2**13 - 1: powers of two may leave a round
    # undecided
    assert (curve.lower <= curve.upper).all()
    assert (curve.certified == (curve.lower == curve.upper)).all()
    for one in curve.witnesses[0]:
        check_witness(one.coefficients, one.support, rows)
    for coefficients, values in {"plain": (0, 1), "plus_minus": (-1, 0, 1)}.items():
        size = oracle.unweighted_group(rows, values) if T else None
        group = unweighted_group(P, coefficients=coefficients)
        assert (group.lower, group.upper, group.certified) == (size, size, True)
        if size is not None:
            signs = dict(zip(group.support, group.signs, strict=True))
            combined = oracle.combination(group.witness, rows)
            factor = abs(combined[group.support[0]])
            assert factor > 0
            assert combined == [factor * signs.get(i, 0) for i in range(len(combined))]


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_those_of_exhaustion(kind: type) -> None:
    generator = random.Random(f"{kind.__name__} 4")
    for _ in range(8):
        check_all(extreme(generator, kind), kind)


@pytest.mark.parametrize("rows", WRAPPED)
def test_groups_that_integers_of_64_bits_make_up(rows: Matrix) -> None:
    check_all(rows, np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_figures_are_those_of_exhaustion(kind: type) -> None:
    generator = random.Random(f"{kind.__name__} 500")
    for _ in range(500):
        check_all(extreme(generator, kind), kind)


HISTORY = np.array([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]])


@pytest.mark.smoke("columns-weak_privacy")
@pytest.mark.parametrize(
    "function", [weak_privacy, client_privacy, weak_privacy_trajectory]
)
@pytest.mark.parametrize("forged", ["columns", "weight", "coefficients"])
def test_a_witness_that_is_none_is_not_returned(
    function: Callable[..., Any], forged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function(HISTORY)

    def wrong(
        weight: int, columns: np.ndarray, coefficients: tuple[int, ...], method: str
    ) -> Vector:
        if forged == "columns":
            columns = np.roll(columns, 1)
        elif forged == "weight":
            weight -= 1
        else:
            coefficients = tuple(z + 1 for z in coefficients)
        return Vector(weight, columns, coefficients, method)

    for module in (_space, _through, _trajectory, _clients):
        monkeypatch.setattr(module, "Vector", wrong)
    with pytest.raises(
        MrsaError, match="a combination of the sums is not what it was found as"
    ):
        function(HISTORY)
