"""Many configurations at once against each of them alone."""

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.factories import program_of
from mrsa_jax.availability import independent
from mrsa_jax.selection import (
    batch_partitioning,
    rollout_many,
    rollout_trials,
    uniform,
)


def picks(targets=(1, 2, 3)):
    return [batch_partitioning(12, 6, target) for target in targets]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ([], [], []),
            "`seeds` must be as many as the other lists, and at least one; got 0",
        ),
        (lambda: ([1], picks((2,)), []), "`seeds` must be as many as the other lists"),
        (
            lambda: ([1, 2], [uniform(12, 6), uniform(10, 5)], [independent(0.1)] * 2),
            "of one program",
        ),
    ],
)
def test_misuse(make, message):
    with pytest.raises(mj.ConfigurationError) as caught:
        rollout_many(*make(), 4, num_trials=2)
    assert message in str(caught.value)


# several configurations a call, and one in chunks
@pytest.mark.long
@pytest.mark.parametrize("trials", [3, 6000])
def test_each_is_what_it_is_alone(trials):
    online = [independent(rate) for rate in (0.05, 0.3, 0.6)]
    seeds = [7, 7, 9]
    found = rollout_many(seeds, picks(), online, 6, num_trials=trials)
    assert found.shape == (3, trials, 6, 12)
    for c in range(3):
        alone = rollout_trials(seeds[c], picks()[c], online[c], 6, trials)
        assert (found[c] == np.asarray(alone)).all()
    assert (found[0] != found[1]).any()


@pytest.mark.long
def test_fewer_than_the_width_share_the_program_of_more(compilations):
    online = [independent(rate) for rate in (0.05, 0.3, 0.6)]
    most = rollout_many([7, 8, 9], picks(), online, 6, num_trials=5)
    with compilations() as compiled:
        for count in (1, 2):
            own = rollout_many(
                [7, 8, 9][:count], picks()[:count], online[:count], 6, 5, width=3
            )
            assert (own == most[:count]).all()
    assert compiled == []
    with pytest.raises(
        mj.ConfigurationError, match="`width` must be at least 1; got 0"
    ):
        rollout_many([7], picks((2,)), online[:1], 6, 5, width=0)


@pytest.mark.long
def test_a_mesh_changes_nothing():
    """Two devices, a number of trials that they do not share evenly."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("trials",))
    online = [independent(rate) for rate in (0.05, 0.3)]
    alone = rollout_many([1, 2], picks((2, 3)), online, 6, num_trials=5)
    dealt = rollout_many([1, 2], picks((2, 3)), online, 6, num_trials=5, mesh=mesh)
    assert (alone == dealt).all()


@pytest.mark.long
def test_programs():
    """Numbers do not matter, sizes and classes do."""
    assert program_of(uniform(12, 6)) == program_of(batch_partitioning(12, 6, 3))
    assert program_of(uniform(12, 6)) != program_of(uniform(13, 6))
    greedy = batch_partitioning(12, 6, 3, fairness="greedy")
    assert program_of(greedy) != program_of(mj.selection.bernoulli(12, 0.5))
    assert len({program_of(pick) for pick in picks()}) == 1
