"""Clients with equal columns.

Merged exactly, and never hidden among fewer than they are.
"""

from fractions import Fraction

import flint
import numpy as np
import pytest

from mrsa_jax import availability, privacy, selection
from mrsa_jax.privacy import (
    _hidden as hidden,
    _leverage,
    audit,
    distinguishability,
    hidden_among,
    hidden_among_trajectory,
    information,
)
from mrsa_jax.privacy._equal_columns import (
    class_sizes,
    merge_equal_columns,
    wide_classes,
)


def ill_conditioned(blocks, size):
    """Return sums of blocks.

    The inverse of which blocks are in which sum grows by half a row.
    """
    chain = sum(np.eye(blocks, k=k, dtype=np.int64) for k in (0, 1, 3))
    return np.repeat(chain, size, axis=1)


def sizes_by_hand(P):
    """Return how many columns equal each, after each row."""
    rows = range(1, len(P) + 1)
    return np.array(
        [[(P[:r] == P[:r, [i]]).all(0).sum() for i in range(P.shape[1])] for r in rows]
    )


def exact(P):
    """Return among how many each client is hidden, by rational elimination.

    None in no sum.
    """
    rows = []
    for row in np.asarray(P).tolist():
        if flint.fmpz_mat([*rows, row]).rank() > len(rows):
            rows.append(row)
    whole = flint.fmpz_mat(rows)
    solved = (whole * whole.transpose()).solve(whole)
    shares = [
        sum((whole[k, i] * solved[k, i] for k in range(len(rows))), flint.fmpq(0))
        for i in range(whole.ncols())
    ]
    return [Fraction(int(h.q), int(h.p)) if h else None for h in shares]


def with_classes(rng):
    """Return a history whose columns come several times, some of them nearly equal."""
    rounds, clients, kinds = 5, 10, int(rng.integers(2, 6))  # one shape: one program
    kind = rng.integers(3)
    columns = rng.integers(0, 2, (rounds, kinds))
    if kind == 1:
        columns = rng.integers(-3, 10**6, (rounds, kinds))
    if kind == 2:
        columns = columns * 10**8
        columns[-1] += rng.integers(0, 2, kinds)
    columns[0, 0] = 1
    return columns[:, rng.integers(0, kinds, clients)]


def nearly_dependent():
    """Return two sums of three classes of clients; they differ in one part of 10^8."""
    much = 10**8
    return np.repeat([[much, much, 1], [much, much + 1, 3]], 3, axis=1)


def test_full_rank_blocks_are_hidden_among_exactly_their_size(monkeypatch):
    monkeypatch.setattr(hidden, "MOST_WORK", 0)  # floats alone
    P = ill_conditioned(40, 5)
    assert hidden_among(P).tolist() == [5.0] * 200
    assert hidden_among_trajectory(P)[-1].tolist() == [5.0] * 200
    assert distinguishability(P).mu == pytest.approx([0.5] * 200, rel=1e-12)
    assert information(P) == pytest.approx([0.5 * np.log2(5 / 4)] * 200, rel=1e-12)


def test_an_audit_passes_full_rank_blocks_of_the_least_size(monkeypatch):
    monkeypatch.setattr(hidden, "MOST_WORK", 0)  # floats alone
    found = audit(ill_conditioned(40, 5), effort=0)
    assert found.gate(5, "hidden").passed
    assert not found.gate(6, "hidden").passed


@pytest.mark.long("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
@pytest.mark.parametrize("seed", range(10))
def test_blocks_under_absences_in_spells(seed):
    scheme, online = (
        selection.batch_partitioning(1000, 50, 5),
        availability.markov(0.1, 5.0),
    )
    P = np.asarray(selection.rollout(seed, scheme, online, 200))
    assert privacy.strong_privacy(P) == 5
    found = hidden_among(P)
    assert found.min() >= 5
    assert found == pytest.approx(np.full(1000, 5.0), rel=1e-9)
    over_rounds = hidden_among_trajectory(P)
    assert not np.isnan(over_rounds).any()
    assert (
        over_rounds.min(axis=1) >= np.asarray(privacy.strong_privacy_trajectory(P))
    ).all()
    drifting = hidden_among(P, memory=0.999, share=0.9)
    assert (drifting >= found).all()


def test_a_rank_below_the_number_of_classes_is_enclosed():
    P = nearly_dependent()
    found = hidden_among(P)
    assert found == pytest.approx([float(value) for value in exact(P)], rel=1e-9)
    assert found.min() >= 3


def check_against_rationals(monkeypatch, trials, seed):
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        P = with_classes(rng)
        right = exact(P)
        sizes = sizes_by_hand(P)
        over_rounds = hidden_among_trajectory(P)
        with monkeypatch.context() as patch:
            patch.setattr(hidden, "MOST_WORK", 0)
            floats = hidden_among(P)
        every = (hidden_among(P), over_rounds[-1], floats)
        for place, found in enumerate(every):
            for value, true, size in zip(found.tolist(), right, sizes[-1], strict=True):
                if true is None:
                    assert value == np.inf
                    continue
                assert place == 2 or not np.isnan(value)
                assert np.isnan(value) or abs(Fraction(value) - true) <= true / 10**9
                assert np.isnan(value) or value >= size
        assert (over_rounds >= sizes).all()


def test_figures_with_classes_against_rationals(monkeypatch):
    check_against_rationals(monkeypatch, 25, 0)


@pytest.mark.slow
def test_many_figures_with_classes_against_rationals(monkeypatch):
    check_against_rationals(monkeypatch, 10**4, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": 1e-3},
        {"memory": 0.9},
        {"memory": 0.5, "share": 0.5},
        {"memory": 0.999, "noise": 0.1},
    ],
)
def test_no_figure_is_below_the_size_of_a_class(settings):
    rng = np.random.default_rng(2)
    for _ in range(10):
        P = rng.integers(0, 2, (5, 4))[:, rng.integers(0, 4, 9)]
        sizes = sizes_by_hand(P)
        assert (hidden_among(P, **settings) >= sizes[-1]).all()
        assert (hidden_among_trajectory(P, **settings) >= sizes).all()
        if "memory" in settings:
            each = hidden_among(P, each_round=True, **settings)
            assert (np.isnan(each) | (each >= sizes[-1])).all()


def drifting_exactly(P, kernel, noise):
    """Return among how many the worst update of each client is hidden, with 300 digits."""
    with flint.ctx.workprec(1000):
        covariance = flint.arb_mat(
            [
                [
                    flint.arb(int(P[a] @ P[b])) * kernel[a, b] + noise * (a == b)
                    for b in range(len(P))
                ]
                for a in range(len(P))
            ]
        )
        worst = []
        for column in P.T:
            own = np.flatnonzero(column)
            seen = flint.arb_mat(
                [
                    [flint.arb(int(column[a])) * kernel[a, r] for r in own]
                    for a in range(len(P))
                ]
            )
            shares = seen.transpose() * covariance.solve(seen)
            worst.append(max(float(shares[k, k].mid()) for k in range(len(own))))
        return 1 / np.array(worst)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_drifting_updates_of_nearly_dependent_sums_are_enclosed(monkeypatch, noise):
    # two sums of one round differ in one part of a million
    million = 10**6
    P = np.array(
        [
            [million] * 6 + [0, 0],
            [million] * 3 + [million + 1] * 3 + [0, 0],
            [1, 1, 1, 0, 0, 0, 1, 1],
            [0, 0, 0, 1, 1, 1, 1, 1],
        ]
    )
    time = np.array([0, 0, 1, 2])
    kernel = 0.9 ** np.abs(np.subtract.outer(time, time))
    found = hidden_among(P, memory=kernel, noise=noise)
    assert found == pytest.approx(drifting_exactly(P, kernel, noise), rel=1e-6)
    assert (found >= [3, 3, 3, 3, 3, 3, 2, 2]).all()
    over_sums = hidden_among_trajectory(P, memory=kernel, noise=noise)
    assert over_sums[-1] == pytest.approx(found, rel=1e-6)
    monkeypatch.setattr(hidden, "MOST_WORK", 0)
    assert np.isnan(hidden_among(P, memory=kernel, noise=noise)).all()


def test_a_gate_takes_equal_columns_where_nothing_else_is_known(monkeypatch):
    monkeypatch.setattr(hidden, "MOST_WORK", 0)
    found = audit(nearly_dependent(), effort=0)
    assert found.hidden.least is None
    verdict = found.gate(3, "hidden")
    assert verdict.passed
    assert verdict.reason == (
        "every client is hidden among at least 3, the fewest clients that are in "
        "exactly the same "
        "sums"
    )
    assert not found.gate(3.1, "hidden").passed


def test_columns_are_merged_by_what_they_hold():
    rng = np.random.default_rng(3)
    for kind in (np.bool_, np.int8, np.int64, object):
        P = rng.integers(0, 2, (3, 4, 10)).astype(kind)
        if kind is object:
            P = P * 2**70
        merged = merge_equal_columns(P)
        for b, history in enumerate(P):
            sizes = sizes_by_hand(history)
            assert (class_sizes(P, last_only=False)[b] == sizes).all()
            is_in = (history != 0).any(axis=0)
            assert (merged.sizes[b] == np.where(is_in, sizes[-1], 1)).all()
            assert (history[:, merged.owner[b]] == history).all()
            gram = (
                merged.histories[b] * merged.sizes[b].astype(int)
            ) @ merged.histories[b].T
            assert kind is np.bool_ or (gram == history @ history.T).all()


def test_very_many_clients_in_blocks_go_by_their_blocks(monkeypatch):
    P = ill_conditioned(40, 5)
    members, label = wide_classes(P)
    assert sorted(members) == list(range(0, 200, 5))
    assert (P[:, members[label]] == P).all()
    assert wide_classes(np.eye(3, dtype=int)) is None
    expected = hidden_among_trajectory(P)
    worst = hidden_among_trajectory(P, quantiles=(0.0,))
    spread = hidden_among_trajectory(P, quantiles=(0.0, 0.5))
    # of clients; of blocks there are fewer
    monkeypatch.setattr(_leverage, "_WIDE", 150 * 40)
    assert hidden_among(P).tolist() == [5.0] * 200
    np.testing.assert_allclose(hidden_among_trajectory(P), expected, rtol=1e-9)
    np.testing.assert_allclose(
        hidden_among_trajectory(P, quantiles=(0.0,)), worst, rtol=1e-9
    )
    np.testing.assert_allclose(
        hidden_among_trajectory(P, quantiles=(0.0, 0.5)), spread, rtol=1e-9
    )
