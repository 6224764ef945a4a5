"""Privacy that survives dropouts inside rounds, by policy for split blocks.

Multi-RoundSecAgg promises T for sums of whole blocks; here members leave between the
protocol's steps with chance q, and each policy of `selection.learnt_sums` is rolled out
and measured.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from mrsa_jax._core.round_rules import SplitPolicy
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability, independent_steps
from mrsa_jax.privacy._strong import strong_privacy_trajectory
from mrsa_jax.privacy._trajectory import weak_privacy_trajectory
from mrsa_jax.selection import Selector, rollout_rounds
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import finding, telling


@finding
class PolicyPrivacy:
    """Privacy under dropouts inside rounds, by policy, step dropout rate and trial.

    Attributes:
        policies: Names, the first axis of the arrays.
        step_dropout_rates: float64[R], q, the second axis.
        strong: int32[policies, R, B], strong T after the last round; -1 where nothing
            was learnt.
        weak_lower: int32[policies, R, B], proven bound of weak T from below; -1 as
            above.
        weak_upper: int32[policies, R, B], bound from above.
        rounds_kept: float64[policies, R, B], share of the rounds with a cohort that
            gave a sum.
        cardinality: float64[policies, R, B], mean number of clients in a sum over all
            rounds.
    """

    _repr_html_ = telling

    policies: tuple[str, ...]
    step_dropout_rates: np.ndarray
    strong: np.ndarray
    weak_lower: np.ndarray
    weak_upper: np.ndarray
    rounds_kept: np.ndarray
    cardinality: np.ndarray


@needs_values
def policy_privacy(
    seed: int | Key[Array, ""],
    selector: Selector,
    availability: Availability,
    step_dropout_rates: ArrayLike | Sequence[float | int],
    num_rounds: int,
    num_trials: int,
    *,
    blocks: ArrayLike | Sequence[int],
    threshold: ArrayLike = 2,
    policies: Sequence[SplitPolicy] = typing.get_args(SplitPolicy),
) -> PolicyPrivacy:
    """Measure the T that survives each policy for split blocks, over dropout rates.

    All policies and rates see the same trials: the same clients are online, and whoever
    leaves at a rate also leaves at a higher one if asked in the same round.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks.
        availability: Who is online.
        step_dropout_rates: q, a vector: the chance to leave at each of four steps.
        num_rounds: J.
        num_trials: B.
        blocks: T, or the number of each client's block.
        threshold: t, shares needed to unmask.
        policies: Which of them, in order.

    Returns:
        Privacy and what it costs, for each policy, rate and trial.

    Raises:
        ConfigurationError: If a rate, size or policy makes no sense.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.batch_partitioning(12, 4, 2)
        >>> online = mj.availability.independent(0.1)
        >>> found = mj.privacy.policy_privacy(
        ...     0, selector, online, [0.0], 9, 2, blocks=2, policies=["abort"]
        ... )
        >>> # without dropouts nothing is lost
        >>> found.strong.tolist(), found.rounds_kept.tolist()
        ([[[2, 2]]], [[[1.0, 1.0]]])

    Source: the policies are this package's; the paper has no such dropouts.
    """
    rates = np.atleast_1d(np.asarray(step_dropout_rates, np.float64))
    require(rates.ndim == 1, "step_dropout_rates", "must be a vector", rates.shape)
    policy_names = typing.get_args(SplitPolicy)
    unknown = [policy for policy in policies if policy not in policy_names]
    rule = f"must be known policies: {', '.join(policy_names)}"
    require(not unknown and len(policies) > 0, "policies", rule, *unknown[:1])
    models = [independent_steps(float(rate)) for rate in rates]
    histories = [
        rollout_rounds(
            seed,
            selector,
            availability,
            steps,
            num_rounds,
            policy=policy,
            blocks=blocks,
            threshold=threshold,
            num_trials=num_trials,
        )
        for policy in policies
        for steps in models
    ]
    P = jnp.concatenate([history.participation for history in histories])
    weak = weak_privacy_trajectory(P, method="bounds")
    shape = (len(policies), len(rates), num_trials)
    privacy = (
        np.asarray(curve)[:, -1].reshape(shape)
        for curve in (strong_privacy_trajectory(P), weak.lower, weak.upper)
    )
    measured = [_kept(history) for history in histories]
    costs = (
        np.concatenate(values).reshape(shape) for values in zip(*measured, strict=True)
    )
    return PolicyPrivacy(tuple(policies), rates, *privacy, *costs)


def _kept(history: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the fraction of rounds that gave a sum, and the mean size of sums."""
    is_begun = np.asarray(history.survivors[:, :, 0]).any(axis=-1)
    P = np.asarray(history.participation)
    fraction = (P.any(axis=-1)).sum(axis=1) / np.maximum(is_begun.sum(axis=1), 1)
    return fraction, P.sum(axis=-1).mean(axis=1)
