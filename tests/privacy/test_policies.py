"""How much of T survives dropouts inside rounds, by policy."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import policy_privacy, strong_privacy
from mrsa_jax.privacy._policies import PolicyPrivacy

pytestmark = pytest.mark.long

_selector = functools.cache(lambda: mj.selection.batch_partitioning(12, 6, 3))
_online = functools.cache(lambda: mj.availability.independent(0.05))
RATES = [0.0, 0.05]


def test_settings_that_make_no_sense() -> None:
    plain = inspect.unwrap(policy_privacy)
    with pytest.raises(
        ConfigurationError, match="`policies` must be known policies: ignore"
    ):
        plain(0, _selector(), _online(), RATES, 5, 2, blocks=3, policies=("drop",))
    with pytest.raises(ConfigurationError, match="`step_dropout_rate` must lie in"):
        plain(0, _selector(), _online(), [1.5], 5, 2, blocks=3)
    with pytest.raises(
        ConfigurationError, match="`step_dropout_rates` must be a vector"
    ):
        plain(0, _selector(), _online(), [[0.1]], 5, 2, blocks=3)
    with pytest.raises(
        ConfigurationError, match="`blocks` must be a block size, or 12"
    ):
        plain(0, _selector(), _online(), [0.1], 5, 2, blocks=[0, 1])


@pytest.fixture(scope="module")
def found() -> PolicyPrivacy:
    return policy_privacy(0, _selector(), _online(), RATES, 40, 3, blocks=3)


def test_only_ignoring_loses_the_target(found: PolicyPrivacy) -> None:
    assert found.policies == ("ignore", "abort", "drop_block")
    assert found.strong.shape == found.weak_lower.shape == (3, 2, 3)
    ignore, abort, drop = range(3)
    assert (found.strong[:, 0] == 3).all()  # nobody leaves
    assert (found.strong[ignore, 1] < 3).all()
    assert (found.weak_upper[ignore, 1] < 3).all()
    for policy in (abort, drop):
        assert (found.strong[policy, 1] >= 3).all()
        assert (found.weak_lower[policy, 1] >= 3).all()
    assert (found.strong <= found.weak_upper).all()
    assert (found.weak_lower <= found.weak_upper).all()


def test_what_it_costs(found: PolicyPrivacy) -> None:
    ignore, abort, drop = range(3)
    assert (found.rounds_kept[:, 0] == 1).all()
    assert (found.rounds_kept[drop, 1] > found.rounds_kept[abort, 1]).all()
    assert (found.rounds_kept[ignore, 1] >= found.rounds_kept[drop, 1]).all()
    assert (found.cardinality[ignore, 1] > found.cardinality[drop, 1]).all()
    assert (found.cardinality[drop, 1] > found.cardinality[abort, 1]).all()


def test_it_is_what_the_rollouts_say(found: PolicyPrivacy) -> None:
    for p, policy in enumerate(found.policies):
        for r, rate in enumerate(RATES):
            steps = mj.availability.independent_steps(rate)
            played = mj.selection.rollout_rounds(
                0,
                _selector(),
                _online(),
                steps,
                40,
                policy=policy,
                blocks=3,
                num_trials=3,
            )
            P, asked = (
                np.asarray(played.participation),
                np.asarray(played.survivors)[:, :, 0],
            )
            for b in range(3):
                assert (strong_privacy(P[b]) or -1) == found.strong[p, r, b]
                rounds = asked[b].any(axis=-1)
                assert found.rounds_kept[p, r, b] == P[b, rounds].any(axis=-1).mean()
                assert found.cardinality[p, r, b] == P[b].sum() / 40
