"""Weak privacy of one history: misuse, cases worked by hand, and properties."""

from __future__ import annotations

import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import row_space_oracle as oracle

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.privacy import strong_privacy, weak_privacy
from mrsa_jax.privacy._weak import weak_steps


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([[0.5, 1.0]], r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], r"`P` must hold bools or integers; got \[nan\]"),
        ([[np.inf, 1.0]], r"`P` must hold bools or integers; got \[inf\]"),
        ([["1", "0"]], r"`P` must hold bools or integers; got .*U1"),
        (np.array([["1", 0]], object), r"`P` must hold bools or integers; got .*"),
        (np.array([[1j, 0]]), r"`P` must hold bools or integers; got .*complex"),
        ([1, 0], r"`P` must have .*two axes|`P` must have at least 2 axes; got \(2,\)"),
        (1, r"`P` must have .*; got \(\)"),
        ([], r"`P` must .*; got \(0,\)"),
        (np.zeros((0, 4), bool), r"`P` must not be empty; got \(0, 4\)"),
        (np.zeros((4, 0), bool), r"`P` must not be empty; got \(4, 0\)"),
        (np.zeros((2, 3, 4), bool), r"`P` must have .*two axes; got \(2, 3, 4\)"),
        ("weights", r"`P` must .*; got"),
        (None, r"`P` must .*; got"),
    ],
)
def test_rejects_what_is_no_history(history, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        weak_privacy(history)


@pytest.mark.parametrize("effort", [-1.0, -0.001, float("nan"), "1", None, [1.0], True])
def test_rejects_an_effort_that_is_no_amount(effort):
    with pytest.raises(mj.ConfigurationError, match=r"`effort` must .*; got"):
        weak_privacy([[1, 1, 0]], effort=effort)


def test_effort_is_given_by_name():
    with pytest.raises(TypeError):
        weak_privacy([[1, 1, 0]], 1.0)


def test_a_history_in_which_nobody_took_part_has_no_privacy_to_report():
    found = weak_privacy(np.zeros((3, 4), bool))
    assert (found.lower, found.upper, found.rank, found.strong) == (None, None, 0, None)
    assert found.exposed == found.support == ()
    assert found.num_groups == 0


@pytest.mark.smoke("history3-2-support3")
@pytest.mark.parametrize(
    ("history", "expected", "support"),
    [
        ([[1, 1, 0], [1, 1, 1]], 1, (2,)),  # the second sum less the first
        ([[0, 1, 1, 0]], 2, (1, 2)),
        ([[2, 2, 2], [2, 2, 0], [0, 0, 0]], 1, (2,)),
        ([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], 2, (3, 4)),  # coefficients 1 and -1
        ([[-1, 1, 0], [0, 1, -1], [1, 0, 1]], 1, None),
    ],
)
def test_worked_cases(history, expected, support):
    found = weak_privacy(history)
    assert (found.lower, found.upper) == (expected, expected)
    assert found.certified
    assert support is None or found.support == support
    assert support is None or found.exposed == (support if expected == 1 else ())


def test_the_result_holds_plain_python_values():
    found = weak_privacy(on_device([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], bool))
    assert dataclasses.is_dataclass(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.lower = 3
    for name in ("lower", "upper", "rank", "num_groups", "strong"):
        assert type(getattr(found, name)) is int, name
    for name in ("exposed", "support", "witness"):
        assert type(getattr(found, name)) is tuple, name
        assert all(type(value) is int for value in getattr(found, name)), name
    assert type(found.certified) is bool
    assert type(found.lower_method) is type(found.upper_method) is str
    assert found == weak_privacy([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]])


def test_the_users_x64_setting_changes_nothing():
    history = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1]])
    plain = weak_privacy(history)
    with jax.enable_x64(True):
        assert weak_privacy(history) == plain
        assert weak_privacy(jnp.asarray(history, jnp.int64)) == plain


def test_little_effort_still_gives_true_bounds():
    rng = np.random.default_rng(3)
    history = np.zeros((22, 40), bool)
    for row in history:
        row[rng.choice(40, 8, replace=False)] = True
    little, more = (
        weak_privacy(history, effort=0.001),
        weak_privacy(history, effort=0.02),
    )
    for found in (little, more):
        assert 1 <= found.lower <= found.upper <= 8
        assert found.certified == (found.lower == found.upper)
        sums = oracle.combination(found.witness, history.astype(int).tolist())
        assert tuple(j for j, value in enumerate(sums) if value) == found.support
    assert little.lower <= more.upper
    assert more.lower <= little.upper


@st.composite
def histories(draw, most_clients=9, entries=(0, 1)):
    """Some rounds of a few clients, with repeated, skipped and nested ones among them."""
    clients = draw(st.integers(1, most_clients))
    row = st.lists(st.sampled_from(entries), min_size=clients, max_size=clients)
    return draw(st.lists(row, min_size=1, max_size=9))


@hypothesis.given(histories(), st.randoms(use_true_random=False))
def test_relabelling_clients_and_rounds_changes_labels_alone(history, random):
    clients, rounds = len(history[0]), len(history)
    names, order = list(range(clients)), list(range(rounds))
    random.shuffle(names)
    random.shuffle(order)
    renamed = [[history[j][i] for i in names] for j in order]
    before, after = weak_privacy(history), weak_privacy(renamed)
    assert (before.lower, before.upper) == (after.lower, after.upper)
    assert before.certified
    assert after.certified
    assert sorted(names[i] for i in after.exposed) == list(before.exposed)


@pytest.mark.long
@hypothesis.given(histories())
def test_privacy_never_falls_when_a_round_is_removed(history):
    found = weak_privacy(history)
    for gone in range(len(history)):
        rest = history[:gone] + history[gone + 1 :]
        if not rest or not np.any(rest):
            continue
        assert weak_privacy(rest).lower >= found.upper


@hypothesis.given(
    histories(entries=(-2, -1, 0, 1, 3)), st.integers(2, 2**70), st.integers(-4, 4)
)
def test_rounds_that_tell_nothing_new_change_nothing(history, scale, factor):
    before = weak_privacy(history)
    first, last = history[0], history[-1]
    dependent = [a + factor * b for a, b in zip(first, last, strict=True)]
    longer = [[scale * value for value in first], *history, dependent, last]
    after = weak_privacy(np.array(longer, object))
    assert (before.lower, before.upper) == (after.lower, after.upper)
    assert before.exposed == after.exposed
    assert before.rank == after.rank
    sums = oracle.combination(after.witness, longer)
    assert tuple(i for i, value in enumerate(sums) if value) == after.support


@hypothesis.given(histories(most_clients=8, entries=(-2, -1, 0, 0, 1, 2)))
def test_weak_privacy_equals_the_oracle(history):
    found = weak_privacy(history)
    assert found.lower == found.upper == oracle.weak_privacy(history)
    assert found.certified
    assert found.exposed == oracle.exposed(history)


@hypothesis.given(histories())
def test_strong_at_most_weak_at_most_the_smallest_sum(history):
    found = weak_privacy(history)
    sizes = [sum(row) for row in history if any(row)]
    if not sizes:
        assert found.upper is None
        return
    assert found.strong == strong_privacy(history)
    assert found.strong <= found.lower <= found.upper <= min(sizes)
    assert (found.upper == 1) == bool(found.exposed)


def test_who_is_exposed_is_told_before_it_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where proofs take their time the first answer errs with a chance, and the last is proven."""
    rows = np.random.default_rng(3).random((9, 14)) < 0.5
    rows[:, 3] |= ~rows.any(axis=1)
    alone = np.vstack([rows, rows[0]])
    alone[-1, 5] ^= True  # client 5 follows from two rounds
    history = np.vstack([alone, alone[:4]])  # four rounds again: the rank is not full
    *_, usual = weak_steps(history)
    monkeypatch.setattr("mrsa_jax.privacy._weak._SOON_SECONDS", 0.0)
    first, *_, last = weak_steps(history)
    assert first.error_bits is not None
    assert first.error_bits >= 40
    assert not first.certified or first.lower == first.strong
    assert last == usual
    assert last.error_bits is None
    assert (first.exposed, first.exposed_since) == (last.exposed, last.exposed_since)
    assert 5 in last.exposed
