"""What rounds cost: the papers' bits, and seconds out of bytes and operations."""

from mrsa_jax.secagg._round_costs import CHECK, STEPS, STEPS_WITH_CHECK
from mrsa_jax.secagg.costs._bandwidth import (
    ccesa_bandwidth_bits,
    secagg_bandwidth_bits,
    turbo_aggregate_bandwidth_bits,
    wire_terms,
)
from mrsa_jax.secagg.costs._calibrate import calibrate
from mrsa_jax.secagg.costs._latency import (
    LatencyModel,
    OperationSeconds,
    latency_model,
    operation_seconds,
    round_latency,
)
from mrsa_jax.secagg.costs._stragglers import Slowdown, exponential_tail, lognormal, pareto, steady

__all__ = [
    "CHECK",
    "STEPS",
    "STEPS_WITH_CHECK",
    "LatencyModel",
    "OperationSeconds",
    "Slowdown",
    "calibrate",
    "ccesa_bandwidth_bits",
    "exponential_tail",
    "latency_model",
    "lognormal",
    "operation_seconds",
    "pareto",
    "round_latency",
    "secagg_bandwidth_bits",
    "steady",
    "turbo_aggregate_bandwidth_bits",
    "wire_terms",
]
