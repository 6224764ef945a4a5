"""No history turns a verdict.

Exhaustion in exact integers against everything that is decided.
"""

from __future__ import annotations

import hostile
import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax import modular
from mrsa_jax.privacy import (
    audit,
    first_exposure,
    hidden_among,
    unweighted_group,
    weak_privacy,
    weak_privacy_trajectory,
)


def check_many(count: int, seed: int) -> None:
    histories = hostile.small(count, seed)
    firsts = np.asarray(first_exposure(histories))
    ranks = np.asarray(modular.rank_trajectory(histories))
    bounds = weak_privacy_trajectory(histories, "bounds")
    for number, history in enumerate(histories):
        rows = history.tolist()
        truth, exposed = oracle.weak_privacy(rows), oracle.exposed(rows)
        found = weak_privacy(history, effort=0.02 * (number % 3))
        assert found.error_bits is None
        assert found.rank == oracle.rank(rows) == ranks[number, -1]
        assert (
            found.exposed
            == exposed
            == tuple(np.flatnonzero(firsts[number] >= 0).tolist())
        )
        assert found.exposed_since == tuple(firsts[number][list(exposed)].tolist())
        for j in {int(first) for first in found.exposed_since}:
            assert set(oracle.exposed(rows[: j + 1])) >= {
                i
                for i, first in zip(exposed, found.exposed_since, strict=True)
                if first == j
            }
            assert all(
                i not in oracle.exposed(rows[:j]) if j else True
                for i, first in zip(exposed, found.exposed_since, strict=True)
                if first == j
            )
        if truth is None:
            assert found.lower is None
            continue
        assert found.lower <= truth <= found.upper
        assert not found.certified or found.lower == found.upper
        assert bounds.lower[number, -1] <= truth <= bounds.upper[number, -1]
        combined = oracle.combination(found.witness, rows)
        assert [k for k, value in enumerate(combined) if value] == list(found.support)
        assert len(found.support) == found.upper
        if number % 5 == 0:
            proved = weak_privacy_trajectory(history, effort=0.02)
            for j, (low, high) in enumerate(oracle.trajectory(rows)):
                assert proved.rank[j] == low
                assert high is None or proved.lower[j] <= high <= proved.upper[j]
            group = unweighted_group(history, effort=0.01)
            smallest = oracle.unweighted_group(rows)
            assert not group.certified or group.upper == smallest


@pytest.mark.long
def test_small_histories_made_to_deceive_are_decided_by_exact_integers() -> None:
    check_many(240, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_histories_made_to_deceive(seed: int) -> None:
    check_many(1000, 100 + seed)


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [1_199_999_993, 2**31 - 1, 8191 * 8179, 1_199_999_993 * 1_199_999_963]
)
def test_rank_and_exposure_stand_where_known_primes_lose_them(number: int) -> None:
    history = hostile.beside(hostile.falling(number))
    # a square history of full rank, and three more
    exposed = tuple(range(history.shape[1] - 3))
    found = weak_privacy(history, effort=0.05)
    assert found.rank == len(history)
    assert found.exposed == exposed
    assert (found.lower, found.upper, found.certified) == (1, 1, True)
    assert found.error_bits is None
    firsts = np.asarray(first_exposure(history))
    assert (firsts >= 0).sum() == len(exposed)
    assert tuple(firsts[list(exposed)]) == found.exposed_since
    curve = weak_privacy_trajectory(history, "bounds")
    assert (curve.lower[0, -1] if curve.lower.ndim > 1 else curve.lower[-1]) == 1
    assert (hidden_among(history)[list(exposed)] == 1.0).all()
    assert hidden_among(history)[-3:].min() > 1.0
    told = audit(history, effort=0.05)
    assert not told.gate(2).passed
    assert told.hidden is not None
    assert told.hidden.least == 1.0
    assert len(told.exposed) == len(exposed)


@pytest.mark.long
def test_what_a_proof_would_cost_too_much_for_is_said_to_rest_on_chance() -> None:
    """Dependent rounds of many clients at no effort.

    Every verdict states its chance of error.
    """
    rng = np.random.default_rng(4)
    base = (rng.random((60, 400)) < 0.1).astype(np.int64)
    history = np.concatenate([base, base[:30] + base[30:]]) * rng.integers(
        1, 2**40, (1, 400)
    )
    found = audit(history, effort=0.0)
    assert found.weak.rank == 60
    assert found.weak.error_bits is not None
    assert found.weak.error_bits >= 30
    assert not found.weak.certified
    words = f"error chance below 2^-{found.weak.error_bits}"
    assert words in found.sentences()[0]
    assert found.gate(2).passed
    assert words in found.gate(2).reason
    proved = weak_privacy(history, effort=0.03)
    assert proved.error_bits is None
    assert proved.rank == 60
