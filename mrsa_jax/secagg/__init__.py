"""Secure aggregation as array operations: real pads, ring sums and the average they carry."""

from mrsa_jax.secagg._admission import admitted
from mrsa_jax.secagg._aggregator import RingAverage, ring_average
from mrsa_jax.secagg._aggregator_state import AggregateOut, Aggregator
from mrsa_jax.secagg._coding import noisy_codes
from mrsa_jax.secagg._conditions import (
    check_round,
    informative,
    is_private,
    is_reliable,
    learned_sets,
    learnt_components,
    unmasking_risk,
)
from mrsa_jax.secagg._four_step import aggregate
from mrsa_jax.secagg._graph_rule import GraphRule, graph_rule
from mrsa_jax.secagg._outcome import PlanOutcome, plan_outcome
from mrsa_jax.secagg._result import AggregateResult, StepReport, Transcript
from mrsa_jax.secagg._ring_sum import pad_inputs, ring_sum
from mrsa_jax.secagg._round_costs import RoundCosts, expected_costs, fedavg_costs, round_costs
from mrsa_jax.secagg._seeds import derive_seeds, key_material
from mrsa_jax.secagg._types import (
    Block,
    Seeds,
    SegmentPlan,
    complete_plan,
    edge_index,
    segment_plan,
)
from mrsa_jax.secagg.costs import (
    Slowdown,
    exponential_tail,
    latency_model,
    lognormal,
    operation_seconds,
    pareto,
    round_latency,
    steady,
)
from mrsa_jax.secagg.failures._monte_carlo import FailureRates, failure_rates, failure_rates_of
from mrsa_jax.secagg.failures._rare import rare_failure_rates
from mrsa_jax.secagg.failures._theory import (
    connection_probability,
    privacy_bound,
    private_connection_threshold,
    reliability_bound,
    reliable_connection_threshold,
    share_threshold,
    share_threshold_real,
)
from mrsa_jax.secagg.failures._theory_exact import (
    exact_reliability_union_bound,
    isolation_bound,
    log_disconnection_probability,
    log_reliability_first_moment,
    unmasking_bound,
)

__all__ = [
    "AggregateOut",
    "AggregateResult",
    "Aggregator",
    "Block",
    "FailureRates",
    "GraphRule",
    "PlanOutcome",
    "RingAverage",
    "RoundCosts",
    "Seeds",
    "SegmentPlan",
    "Slowdown",
    "StepReport",
    "Transcript",
    "admitted",
    "aggregate",
    "check_round",
    "complete_plan",
    "connection_probability",
    "derive_seeds",
    "edge_index",
    "exact_reliability_union_bound",
    "expected_costs",
    "exponential_tail",
    "failure_rates",
    "failure_rates_of",
    "fedavg_costs",
    "graph_rule",
    "informative",
    "is_private",
    "is_reliable",
    "isolation_bound",
    "key_material",
    "latency_model",
    "learned_sets",
    "learnt_components",
    "log_disconnection_probability",
    "log_reliability_first_moment",
    "lognormal",
    "noisy_codes",
    "operation_seconds",
    "pad_inputs",
    "pareto",
    "plan_outcome",
    "privacy_bound",
    "private_connection_threshold",
    "rare_failure_rates",
    "reliability_bound",
    "reliable_connection_threshold",
    "ring_average",
    "ring_sum",
    "round_costs",
    "round_latency",
    "segment_plan",
    "share_threshold",
    "share_threshold_real",
    "steady",
    "unmasking_bound",
    "unmasking_risk",
]
