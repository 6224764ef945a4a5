"""What an audit says of every round, against exhaustion over each beginning of the history."""

from __future__ import annotations

import numpy as np
import pytest
import row_space_oracle as oracle

from mrsa_jax.privacy import ParticipationLog, audit


def named(P: np.ndarray) -> ParticipationLog:
    rounds, clients = P.shape
    return ParticipationLog(
        P, tuple(range(10, 10 + rounds)), tuple(f"c{i}" for i in range(clients))
    )


def exposed(P: np.ndarray) -> int:
    """How many unit vectors leave the rank as it is."""
    rows, clients = oracle.as_rows(P), P.shape[1]
    full = oracle.rank(rows)
    units = np.eye(clients, dtype=int).tolist()
    return sum(oracle.rank([*rows, unit]) == full for unit in units)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow each log round by round, as one that is too large for a program."""
    monkeypatch.setattr("mrsa_jax.privacy._audit_rounds._MOST_GROUPS", 0)
    monkeypatch.setattr("mrsa_jax.privacy._audit_rounds._MOST_ENTRIES", 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_bulk", [True, False])
def test_every_round_is_true(
    seed: int, is_bulk: bool, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(seed)
    P = rng.random((9, 7)) < 0.45
    P[0] = P[4] = False  # nobody yet, and a skipped round
    if not is_bulk:
        request.getfixturevalue("large")
    found = audit(named(P), effort=0.01)
    after = found.over_rounds(named(P))
    assert (after.strong is None) == (not is_bulk)
    for j in range(len(P)):
        part = P[: j + 1]
        if not part.any():
            assert after.lower[j] == after.upper[j] == -1
            assert after.exposed[j] == 0
            continue
        true = oracle.weak_privacy(part)
        assert after.lower[j] <= true <= after.upper[j], j
        assert after.exposed[j] == exposed(part), j
        assert (after.upper[j] == 1) == (after.exposed[j] > 0)
        if after.strong is not None:
            columns = [tuple(column) for column in part.T.tolist() if any(column)]
            assert after.strong[j] == min(columns.count(one) for one in columns)
    seen = after.upper > 0
    assert (np.diff(after.lower[seen]) <= 0).all()
    assert (np.diff(after.upper[seen]) <= 0).all()
    assert (after.lower[-1], after.upper[-1]) == (found.weak.lower, found.weak.upper)


@pytest.mark.long
def test_blocks_and_weights() -> None:
    blocks = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]], bool)
    after = audit(named(blocks), effort=0.01).over_rounds(named(blocks))
    assert after.lower.tolist() == after.upper.tolist() == [2, 2, 2]
    assert after.exposed.tolist() == [0, 0, 0]
    weights = np.array([[3, 2], [3, 4]])  # the difference is the second's
    after = audit(named(weights), effort=0.01).over_rounds(named(weights))
    assert after.exposed.tolist() == [0, 2]
    assert after.upper.tolist() == [2, 1]


@pytest.mark.long
def test_a_history_of_nobody() -> None:
    nobody = named(np.zeros((2, 3), bool))
    after = audit(nobody, effort=0.01).over_rounds(nobody)
    assert after.lower.tolist() == after.upper.tolist() == [-1, -1]
    assert after.exposed.tolist() == [0, 0]


def _share_of_what_lasts(P: np.ndarray, share: float) -> np.ndarray:
    """Explain l_i by sums of sqrt(a) l_i + sqrt(1 - a) e_ir, from their covariance."""
    sums = share * (P @ P.T) + (1 - share) * np.diag((P**2).sum(axis=1))
    joint = np.sqrt(share) * P
    return np.einsum("ri,rs,si->i", joint, np.linalg.pinv(sums, hermitian=True), joint)


@pytest.mark.usefixtures("large")
def test_what_lasts_is_followed_over_the_rounds() -> None:
    P = (np.random.default_rng(3).random((8, 6)) < 0.5).astype(int)
    P[0] = 0
    log = named(P)
    found = audit(log, effort=0.01, memory=0.9, share=0.4)
    after = found.over_rounds(log).lasting
    assert after is not None
    assert np.isnan(after[0])
    for j in range(1, len(P)):
        explained = _share_of_what_lasts(P[: j + 1], 0.4)
        assert after[j] == pytest.approx(1 / explained.max(), rel=1e-9)
    assert found.lasting is not None
    assert after[-1] == pytest.approx(found.lasting.least)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("memory", [{"memory": 0.9, "share": 1.0}, {}])
def test_of_an_update_that_is_all_new_or_never_changes_nothing_else_lasts(
    memory: dict[str, float],
) -> None:
    log = named(np.eye(3, dtype=int))
    assert audit(log, effort=0.01, **memory).over_rounds(log).lasting is None
