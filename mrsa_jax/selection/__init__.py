"""Whom the server asks in each round, and what that does to fairness and to the sums' sizes.

Modules load when first used: names of schemes, which the command line needs, load without JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax._round_rules import ThresholdRule
    from mrsa_jax._selector import Selector, SelectorState
    from mrsa_jax.selection._balls_in_bins import balls_in_bins
    from mrsa_jax.selection._bernoulli import BernoulliSelection, bernoulli
    from mrsa_jax.selection._blocks import batch_partitioning, partition, uniform, weighted
    from mrsa_jax.selection._bounds import family_size_bound, full_rank_probability_bound
    from mrsa_jax.selection._checks import Fairness
    from mrsa_jax.selection._counts import rollout_counts
    from mrsa_jax.selection._lines import crossing_partitions, from_lines
    from mrsa_jax.selection._many import rollout_many
    from mrsa_jax.selection._metrics import aggregation_cardinality, fairness_gap
    from mrsa_jax.selection._own_schemes import register
    from mrsa_jax.selection._poisson import poisson
    from mrsa_jax.selection._population import changing_population, form_blocks, rollout_population
    from mrsa_jax.selection._power_of_choice import power_of_choice
    from mrsa_jax.selection._registry import Scheme
    from mrsa_jax.selection._rollout import rollout, rollout_metrics, rollout_trials
    from mrsa_jax.selection._rounds import (
        RoundHistory,
        component_sums,
        learnt_rows,
        learnt_sums,
        rollout_rounds,
    )
    from mrsa_jax.selection._separation import minimum_separation
    from mrsa_jax.selection._theory import enumerate_family, expected_cardinality, family_size

__all__ = [
    "BernoulliSelection",
    "Fairness",
    "RoundHistory",
    "Scheme",
    "Selector",
    "SelectorState",
    "ThresholdRule",
    "aggregation_cardinality",
    "balls_in_bins",
    "batch_partitioning",
    "bernoulli",
    "changing_population",
    "component_sums",
    "crossing_partitions",
    "enumerate_family",
    "expected_cardinality",
    "fairness_gap",
    "family_size",
    "family_size_bound",
    "form_blocks",
    "from_lines",
    "full_rank_probability_bound",
    "learnt_rows",
    "learnt_sums",
    "minimum_separation",
    "partition",
    "poisson",
    "power_of_choice",
    "register",
    "rollout",
    "rollout_counts",
    "rollout_many",
    "rollout_metrics",
    "rollout_population",
    "rollout_rounds",
    "rollout_trials",
    "uniform",
    "weighted",
]

__getattr__, __dir__ = late_names(__name__)
