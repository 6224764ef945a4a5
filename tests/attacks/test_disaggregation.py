"""Disaggregation recovers who took part where that is all that fits, and says where it is not."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import as_key
from mrsa_jax.attacks import _disaggregation as inner, disaggregation
from mrsa_jax.attacks.views import CountView


def _rounds(
    num_rounds: int, num_blocks: int, in_each: int, block: int, seed: int
) -> np.ndarray:
    """Draw a history bool [J, N] of blocks that move together."""
    generator = np.random.default_rng(seed)
    blocks = np.zeros((num_rounds, num_blocks), bool)
    for row in blocks:
        row[generator.choice(num_blocks, in_each, replace=False)] = True
    return np.repeat(blocks, block, axis=1)


def _view(
    history: np.ndarray, length: int = 8, noise: float = 0.0, dim: int = 60
) -> CountView:
    generator = np.random.default_rng(100)
    updates = generator.normal(size=(history.shape[1], dim))
    sums = history.astype(int) @ updates
    sums += (
        noise
        * np.sqrt(history.sum(axis=1))[:, None]
        * generator.normal(size=sums.shape)
    )
    num = len(history) // length
    counts = history.reshape(num, length, -1).sum(axis=1)
    return CountView(sums, counts, np.full(num, length))


SOUND = _view(_rounds(16, 4, 2, 1, 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"aggregates": SOUND.aggregates[:15]},
            "add up to the rounds of `aggregates`; got .*15 r",
        ),
        ({"aggregates": np.full((16, 3), np.nan)}, "`aggregates` must be finite"),
        ({"aggregates": np.ones(16)}, r"`aggregates` must be real \[rounds, d\]"),
        (
            {"interval_lengths": np.array([16, 0])},
            "`interval_lengths` must be positive",
        ),
        ({"counts": SOUND.counts[:1]}, "`counts` must have a row for each interval"),
        ({"counts": SOUND.counts + 8}, "`counts` must lie between 0 and the interval"),
        ({"counts": SOUND.counts + 0.5}, "`counts` must hold bools or integers"),
    ],
)
def test_misuse_of_the_view(changes: dict[str, Any], message: str) -> None:
    fields = {name: getattr(SOUND, name) for name in SOUND.__dataclass_fields__}
    with pytest.raises(mj.ConfigurationError, match=message):
        disaggregation().run(0, CountView(**(fields | changes)))


def test_misuse_of_the_attack() -> None:
    for settings, message in (
        ({"tolerance": 1.0}, r"`tolerance` must lie in \(0, 1\)"),
        ({"seconds": -1.0}, "`seconds` must be a finite number from 0"),
        ({"num_steps": 0}, "`num_steps` must"),
        ({"restarts": 0}, "`restarts` must"),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            disaggregation(**settings)  # type: ignore[arg-type]
    other: Any = mj.attacks.views.AggregateView(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(mj.ConfigurationError, match="lacks counts, interval_lengths"):
        inspect.unwrap(inner.Disaggregation.run)(disaggregation(), 0, other)


@pytest.mark.parametrize("seed", range(4))
def test_without_noise_the_matrix_and_the_updates_are_recovered(seed: int) -> None:
    history = _rounds(24, 8, 3, 1, seed)
    view = _view(history)
    got = disaggregation().run(seed, view)
    assert got.rank == 8
    assert got.is_explained.all()
    assert not got.is_shared.any()
    # in any order among clients of equal counts
    for number in range(got.group.max() + 1):
        members = got.group == number
        own = {column.tobytes() for column in got.participation.T[members]}
        assert own == {
            column.tobytes() for column in np.ascontiguousarray(history.T)[members]
        }
    expected = np.linalg.lstsq(
        got.participation.astype(float), view.aggregates, rcond=None
    )[0]
    np.testing.assert_allclose(got.estimates, expected, atol=1e-9)


@pytest.mark.long
def test_clients_with_equal_counts_are_told_apart_but_not_named() -> None:
    history = _rounds(24, 6, 2, 1, 5)
    # the same count, another order, in every interval
    history[:8, 1] = history[:8, 0][::-1]
    history[8:16, 1] = np.roll(history[8:16, 0], 1)
    history[16:, 1] = np.roll(history[16:, 0], 3)
    got = disaggregation().run(1, _view(history))
    assert got.group[0] == got.group[1]
    columns = sorted(column.tobytes() for column in got.participation.T)
    assert columns == sorted(
        column.tobytes() for column in np.ascontiguousarray(history.T)
    )


def test_blocks_that_only_move_together_stay_together() -> None:
    history = _rounds(24, 5, 2, 3, 13)
    view = _view(history)
    # no two blocks have equal counts
    assert np.unique(view.counts, axis=1).shape[1] == 5
    got = disaggregation().run(0, view)
    np.testing.assert_array_equal(got.participation, history)
    assert got.rank == 5
    assert got.is_shared.all()
    # each member is estimated by its block's mean, which is all that the sums tell
    per_block = got.estimates.reshape(5, 3, -1)
    np.testing.assert_allclose(per_block, np.repeat(per_block[:, :1], 3, axis=1))
    np.testing.assert_allclose(
        history.astype(int) @ got.estimates, view.aggregates, atol=1e-9
    )


@pytest.mark.long
def test_sums_that_change_a_little() -> None:
    history = _rounds(40, 8, 3, 1, 7)
    got = disaggregation().run(0, _view(history, noise=0.05, dim=400))
    np.testing.assert_array_equal(got.participation, history)
    assert got.rank == 8
    assert got.is_explained.all()
    assert 0 < got.residual.max() < 0.1


@pytest.mark.long
def test_the_relaxation_alone_never_claims_what_it_did_not_find() -> None:
    history = _rounds(16, 12, 4, 1, 8)
    got = disaggregation(seconds=0.0, num_steps=20, restarts=1).run(
        0, _view(history, dim=200)
    )
    null = np.linalg.svd(_view(history, dim=200).aggregates)[0][:, 12:]
    for client in range(12):
        column = got.participation[:, client].astype(float)
        sine = np.linalg.norm(null.T @ column) / np.linalg.norm(column)
        assert got.residual[client] == pytest.approx(sine, abs=1e-9)
        assert got.is_explained[client] == (sine <= 0.1)


def test_too_few_rounds_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of as many dimensions as rounds.

    Any column lies in their space, the true one too.
    """
    history = _rounds(8, 10, 3, 1, 9)
    # clients of equal counts are searched as one
    columns = np.unique(history.sum(axis=0)).shape
    relaxed = np.zeros((*columns, 1, 8), np.bool_)
    monkeypatch.setattr(inner.Disaggregation, "_relaxed", lambda *_: relaxed)
    got = disaggregation().run(0, _view(history))
    assert got.rank == 8
    assert (got.residual < 1e-9).all()
    assert not got.is_explained.any()


@pytest.mark.long
def test_who_never_or_always_took_part() -> None:
    history = _rounds(16, 4, 2, 1, 10)
    history = np.concatenate(
        [history, np.zeros((16, 1), bool), np.ones((16, 1), bool)], axis=1
    )
    got = disaggregation().run(0, _view(history))
    np.testing.assert_array_equal(got.participation[:, 4:], history[:, 4:])
    np.testing.assert_array_equal(got.estimates[4], 0)


def test_projected_sums_keep_their_column_space() -> None:
    view = _view(_rounds(16, 4, 2, 1, 11), dim=500)
    narrow = inner._narrowed(view.aggregates, as_key(0))
    assert narrow.shape == (16, 64)
    both = np.linalg.matrix_rank(np.concatenate([narrow, view.aggregates], axis=1))
    assert both == np.linalg.matrix_rank(narrow) == 4


@pytest.mark.long
@given(st.integers(0, 2**32 - 1))
def test_capped_entries_are_the_nearest(seed: int) -> None:
    """Against the optimality conditions: one multiplier an interval."""
    generator = np.random.default_rng(seed)
    interval = np.repeat(np.arange(3, dtype=np.int32), [2, 4, 3])
    values = generator.normal(0, 2, 9).astype(np.float32)
    counts = np.array([generator.integers(0, n + 1) for n in (2, 4, 3)], np.float32)
    got = np.asarray(
        inner._capped(jnp.asarray(values), jnp.asarray(counts), jnp.asarray(interval))
    )
    for m in range(3):
        own, given_ = got[interval == m], values[interval == m]
        assert own.sum() == pytest.approx(counts[m], abs=1e-4)
        assert ((own >= 0) & (own <= 1)).all()
        shift = given_ - own
        for i, j in itertools.permutations(range(len(own)), 2):
            # moving weight from i to j must not help: its gain is shift_j - shift_i
            if own[i] > 1e-5 and own[j] < 1 - 1e-5:
                assert shift[j] <= shift[i] + 1e-4


def test_rounding_by_hand() -> None:
    values = on_device([0.1, 0.9, 0.8, 0.3, 0.2, 0.7], jnp.float32)
    interval = on_device([0, 0, 0, 1, 1, 1], jnp.int32)
    got = inner._rounded(values, on_device([2.0, 1.0], jnp.float32), interval)
    assert got.tolist() == [False, True, True, False, False, True]


@pytest.mark.slow
def test_forty_clients() -> None:
    for seed, num_rounds in ((0, 80), (1, 120)):
        history = _rounds(num_rounds, 40, 8, 1, seed)
        got = disaggregation(seconds=120.0).run(seed, _view(history, dim=200))
        columns = sorted(column.tobytes() for column in got.participation.T)
        assert columns == sorted(
            column.tobytes() for column in np.ascontiguousarray(history.T)
        )
        assert got.is_explained.all()
