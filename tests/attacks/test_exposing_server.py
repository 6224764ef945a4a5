"""A server that chooses its sums: misuse, what it exposes by hand, and against real clients."""

from __future__ import annotations

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.attacks import exposing_server
from mrsa_jax.attacks._exposing_server import _raises
from mrsa_jax.protocol import Terms, run
from mrsa_jax.protocol.errors import PartedBlockError

N, T = 12, 3


def keeps_blocks(listed):
    terms = Terms([bytes(32)] * N, ~np.eye(N, dtype=bool), np.full(N, 7), np.arange(N) // T)
    try:
        terms.check_list(np.flatnonzero(listed).tolist())
    except PartedBlockError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2), "`num_clients` must be at least 2"),
        ((4, 5), r"`cohort_size` must lie in \[2, 4\]"),
        ((4, 2, 0), "`blocks` must be at least 1"),
        ((4, 2, 2, 0), "`candidates` must be at least 1"),
    ],
)
def test_misuse(arguments, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        exposing_server(*arguments)
    with pytest.raises(mj.ConfigurationError, match="`num_rounds` must be at least 1"):
        exposing_server(4, 2).play(0, 0)


def test_leverages_rise_as_the_projection_says():
    rng = np.random.default_rng(0)
    rows = (rng.random((5, 8)) < 0.5).astype(float)
    basis = np.linalg.qr(rows[:4].T)[0].T
    raised = np.square(basis).sum(axis=0) + _raises(basis, rows[4])
    assert np.allclose(raised, np.diagonal(np.linalg.pinv(rows) @ rows))
    assert not _raises(basis, rows[0] + rows[1] - rows[2]).any()  # in the span


def test_it_learns_what_clients_accept_and_no_more():
    server = exposing_server(N, 6, T, 8)
    obeyed, kept = (server.play(1, 20, policy).participation for policy in (None, keeps_blocks))
    assert obeyed.any(axis=1).all()
    assert (obeyed.sum(axis=1) <= 6).all()
    assert np.linalg.matrix_rank(obeyed) == N
    assert all(keeps_blocks(row) for row in kept)
    assert len(np.unique(kept, axis=1).T) == N // T


@pytest.mark.parametrize("candidates", [1, 32])
def test_obedient_clients_are_exposed_and_those_who_keep_blocks_are_not(candidates):
    server = exposing_server(N, 6, T, candidates)
    obeyed, kept = (server.play(1, 40, policy) for policy in (None, keeps_blocks))
    assert obeyed.exposed[-1] == N
    assert obeyed.exposed.tolist() == sorted(obeyed.exposed)
    assert not kept.exposed.any()
    assert kept.refused > 0
    assert mj.privacy.strong_privacy(kept.participation) == T


def test_what_it_chooses_exposes_sooner_than_chance():
    chosen, random = (
        [int(np.argmax(exposing_server(N, 6, T, count).play(seed, 30).exposed >= N // 2))
         for seed in range(6)]
        for count in (32, 1)
    )  # fmt: skip
    assert sum(chosen) < 0.8 * sum(random)


def test_real_clients_are_exposed_unless_they_keep_blocks():
    """Its lists are who is left in V3 of real rounds; of parted blocks the rest is left out."""
    n, size = 6, 2
    asked = exposing_server(n, n, size).play(0, 12).participation
    learnt = {}
    for blocks in (None, size):
        rows = []
        for number, listed in enumerate(asked):
            survivors = np.stack([np.ones(n, bool)] * 3 + [listed] * 2)
            result = run(np.ones((n, 1), int), ~np.eye(n, dtype=bool), survivors, 4, 8,
                         entropy=number, blocks=blocks)  # fmt: skip
            rows += [*result.learned]
        learnt[blocks] = np.asarray(rows)
    assert (mj.privacy.first_exposure(learnt[None]) >= 0).sum() > 2
    assert (mj.privacy.first_exposure(learnt[size]) == -1).all()
    assert len(learnt[size]) > 0
