"""Whom the server asks in each round, and what that does to fairness and to the sums' sizes."""

from mrsa_jax.selection._bernoulli import BernoulliSelection, bernoulli
from mrsa_jax.selection._blocks import (
    BlockSelection,
    Fairness,
    batch_partitioning,
    partition,
    uniform,
    weighted,
)
from mrsa_jax.selection._metrics import aggregation_cardinality, fairness_gap
from mrsa_jax.selection._poisson import poisson
from mrsa_jax.selection._power_of_choice import (
    PowerOfChoice,
    PowerOfChoiceState,
    power_of_choice,
)
from mrsa_jax.selection._rollout import RolloutMetrics, rollout, rollout_metrics, rollout_trials
from mrsa_jax.selection._separation import (
    SeparatedSelection,
    SeparationState,
    minimum_separation,
)
from mrsa_jax.selection._theory import enumerate_family, expected_cardinality, family_size
from mrsa_jax.selection._types import Selector, SelectorState

__all__ = [
    "BernoulliSelection",
    "BlockSelection",
    "Fairness",
    "PowerOfChoice",
    "PowerOfChoiceState",
    "RolloutMetrics",
    "Selector",
    "SelectorState",
    "SeparatedSelection",
    "SeparationState",
    "aggregation_cardinality",
    "batch_partitioning",
    "bernoulli",
    "enumerate_family",
    "expected_cardinality",
    "fairness_gap",
    "family_size",
    "minimum_separation",
    "partition",
    "poisson",
    "power_of_choice",
    "rollout",
    "rollout_metrics",
    "rollout_trials",
    "uniform",
    "weighted",
]
