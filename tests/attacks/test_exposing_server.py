"""A server that chooses its sums.

Misuse, what it exposes by hand, and against real clients.
"""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import as_key, host_generator
from mrsa_jax.attacks import exposing_server
from mrsa_jax.attacks._exposing_server import _Span
from mrsa_jax.protocol import Terms, run
from mrsa_jax.protocol.errors import PartedBlockError

N, T = 12, 3


def keeps_blocks(listed):
    terms = Terms(
        [bytes(32)] * N, ~np.eye(N, dtype=bool), np.full(N, 7), np.arange(N) // T
    )
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


def as_fractions(rows):
    """Return the projector on a span by elimination over the rationals."""
    basis = []
    for row in rows:
        rest = [Fraction(int(value)) for value in row]
        for other in basis:
            share = sum(a * b for a, b in zip(rest, other, strict=True)) / sum(
                b * b for b in other
            )
            rest = [a - share * b for a, b in zip(rest, other, strict=True)]
        if any(rest):
            basis.append(rest)
    n = len(rows[0])
    lengths = [sum(b * b for b in other) for other in basis]
    return [
        [
            sum(
                (u[i] * u[j] / c for u, c in zip(basis, lengths, strict=True)),
                Fraction(0),
            )
            for j in range(n)
        ]
        for i in range(n)
    ]


def test_spans_are_those_of_rationals():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = rng.random((7, 6)) < 0.5
        # in the span
        rows[3] = rows[0] ^ rows[1] if (rows[0] & rows[1]).sum() == 0 else rows[0]
        span = _Span.of_nothing(6)
        for count, row in enumerate(rows, start=1):
            projector = as_fractions(rows[:count])
            leverages = [projector[i][i] for i in range(6)]
            worth = span.worth(row)
            assert worth == (leverages.count(1), sum(h * h for h in leverages))
            span = span.with_sum(row)
            found = [
                [Fraction(int(value), span.divisor) for value in line]
                for line in span.matrix
            ]
            assert found == projector


def test_it_takes_the_first_of_equals():
    """Four clients, sums of two.

    Each first list is as good, and rounding must not choose.
    """
    server = exposing_server(4, 2, 1, 16)
    for seed in range(5):
        rng = host_generator(as_key(seed))
        lists = [server._thought_of(rng, np.zeros((0, 4), bool)) for _ in range(16)]
        first = next(listed for listed in lists if listed.sum() == 2)
        assert (server.play(seed, 1).participation[0] == first).all()


PLAYED = """
import hashlib
import numpy as np
import mrsa_jax as mj
for n, size, blocks in ((12, 6, 3), (24, 8, 4), (24, 12, 1)):
    for seed in range(3):
        game = mj.attacks.exposing_server(n, size, blocks).play(seed, 40)
        print(hashlib.sha256(np.packbits(game.participation).tobytes()).hexdigest())
"""


@pytest.mark.long
def test_histories_are_the_same_on_every_processor():
    """OpenBLAS rounds otherwise on each.

    Where it does not know a name, or is not used, all do.
    """
    cores = ("Haswell", "SkylakeX", "Zen")
    played = [
        subprocess.run(
            [sys.executable, "-c", PLAYED],
            env=os.environ | {"OPENBLAS_CORETYPE": core},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for core in cores
    ]
    assert len(played[0].split()) == 9
    assert played[0] == played[1] == played[2]


def test_it_learns_what_clients_accept_and_no_more():
    server = exposing_server(N, 6, T, 8)
    obeyed, kept = (
        server.play(1, 20, policy).participation for policy in (None, keeps_blocks)
    )
    assert obeyed.any(axis=1).all()
    assert (obeyed.sum(axis=1) <= 6).all()
    assert np.linalg.matrix_rank(obeyed) == N
    assert all(keeps_blocks(row) for row in kept)
    assert len(np.unique(kept, axis=1).T) == N // T


@pytest.mark.long
@pytest.mark.parametrize("candidates", [1, 32])
def test_obedient_clients_are_exposed_and_those_who_keep_blocks_are_not(candidates):
    server = exposing_server(N, 6, T, candidates)
    obeyed, kept = (server.play(1, 40, policy) for policy in (None, keeps_blocks))
    assert obeyed.exposed[-1] == N
    assert obeyed.exposed.tolist() == sorted(obeyed.exposed)
    assert not kept.exposed.any()
    assert kept.refused > 0
    assert mj.privacy.strong_privacy(kept.participation) == T


@pytest.mark.long
def test_what_it_chooses_exposes_sooner_than_chance():
    chosen, random = (
        [
            int(
                np.argmax(
                    exposing_server(N, 6, T, count).play(seed, 30).exposed >= N // 2
                )
            )
            for seed in range(6)
        ]
        for count in (32, 1)
    )
    assert sum(chosen) < 0.8 * sum(random)


@pytest.mark.long
def test_real_clients_are_exposed_unless_they_keep_blocks():
    """Its lists are who is left in V3 of real rounds.

    Of parted blocks the rest is left out.
    """
    n, size = 6, 2
    asked = exposing_server(n, n, size).play(0, 12).participation
    learnt = {}
    for blocks in (None, size):
        rows = []
        for number, listed in enumerate(asked):
            survivors = np.stack([np.ones(n, bool)] * 3 + [listed] * 2)
            result = run(
                np.ones((n, 1), int),
                ~np.eye(n, dtype=bool),
                survivors,
                4,
                8,
                entropy=number,
                blocks=blocks,
                contexts=None if blocks is None else [b"one model"] * n,
            )
            rows += [*result.learned]
        learnt[blocks] = np.asarray(rows)
    assert (mj.privacy.first_exposure(learnt[None]) >= 0).sum() > 2
    assert (mj.privacy.first_exposure(learnt[size]) == -1).all()
    assert len(learnt[size]) > 0
