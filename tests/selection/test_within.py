"""Blocks of clients who train the same parts: T in every part, whoever is left over."""

from __future__ import annotations

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, availability, selection
from mrsa_jax.privacy import strong_privacy

RANKS = np.array([8, 4, 8, 4, 8, 4, 4, 8, 8, 4, 8, 2, 8])  # 7, 5 and 1 clients
PARTS = np.stack([rank <= RANKS for rank in (1, 4, 8)], axis=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2]], 2, 2), "`parts`"),
        ((PARTS, 2, 0), "`privacy_target` must be"),
        ((PARTS, 3, 2), "`cohort_size`"),
        (
            (PARTS, 14, 2),
            "`cohort_size` must be at most the number of clients in blocks",
        ),
        # nothing in common
        (([[1, 0], [0, 1]], 2, 2), "`cohort_size` must be at most"),
    ],
)
def test_blocks_that_make_no_sense(arguments, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        selection.blocks_within(*arguments)


def test_who_is_left_over_trains_less_or_waits() -> None:
    found = selection.blocks_within(PARTS, 4, 2)
    assert found.blocks.tolist() == [0, 3, 0, 3, 1, 4, 4, 1, 2, 5, 2, -1, 5]
    trained = PARTS.copy()
    trained[12, 2] = False  # the last of seven, who makes the five a six
    trained[11] = False  # one alone
    np.testing.assert_array_equal(found.parts, trained)
    waits = selection.blocks_within(PARTS, 4, 2, left_over="wait")
    assert np.flatnonzero(waits.blocks < 0).tolist() == [9, 11, 12]
    np.testing.assert_array_equal(waits.parts, PARTS & (waits.blocks >= 0)[:, None])


def test_parts_that_are_no_chain_meet_in_what_they_share() -> None:
    parts = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0]])
    found = selection.blocks_within(parts, 2, 2)
    assert found.blocks.tolist() == [0, 0, -1, -1]
    assert found.parts[:2].astype(int).tolist() == [[0, 1, 0]] * 2


@pytest.mark.parametrize("seed", range(12))
def test_every_part_of_every_sum_is_of_whole_blocks(seed: int) -> None:
    draw = np.random.default_rng(seed)
    parts = draw.random((24, 3)) < 0.7
    t = int(draw.integers(2, 4))
    found = selection.blocks_within(parts, 2 * t, t, seed=seed)
    assert not (found.parts & ~parts).any()
    named, sizes = np.unique(found.blocks[found.blocks >= 0], return_counts=True)
    assert set(sizes) == {t}
    for block in named:
        assert len(np.unique(found.parts[found.blocks == block], axis=0)) == 1
        assert found.parts[found.blocks == block].any()
    assert not found.parts[found.blocks < 0].any()


@pytest.mark.long
def test_a_rollout_keeps_t_in_each_part_where_common_blocks_do_not() -> None:
    online = availability.independent(0.1)
    found = selection.blocks_within(PARTS, 4, 2)
    trials = np.asarray(selection.rollout_trials(3, found.selector, online, 40, 4))
    np.testing.assert_array_equal(
        trials[0], selection.rollout(3, found.selector, online, 40)
    )
    assert set(trials.sum(axis=-1).ravel()) <= {0, 4}
    assert not trials[..., found.blocks < 0].any()
    common = np.asarray(
        selection.rollout(3, selection.batch_partitioning(12, 4, 2), online, 40)
    )
    for part in range(PARTS.shape[1]):
        for history in trials:
            assert (strong_privacy(history & found.parts[:, part]) or 2) >= 2
    assert strong_privacy(common & PARTS[:12, 2]) == 1
