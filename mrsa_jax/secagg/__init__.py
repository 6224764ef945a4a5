"""Secure aggregation as array operations: real pads, ring sums and the average they carry."""

from mrsa_jax.secagg._aggregator import (
    AggregateOut,
    Aggregator,
    AggregatorState,
    RingAverage,
    ring_average,
)
from mrsa_jax.secagg._conditions import (
    check_round,
    informative,
    is_private,
    is_reliable,
    learned_sets,
    learnt_components,
    unmasking_risk,
)
from mrsa_jax.secagg._masking import pad_inputs, ring_sum
from mrsa_jax.secagg._result import AggregateResult, StepReport, Transcript
from mrsa_jax.secagg._seeds import derive_seeds, key_material
from mrsa_jax.secagg._types import (
    Block,
    RingResult,
    Seeds,
    SegmentPlan,
    complete_plan,
    edge_index,
    segment_plan,
)

__all__ = [
    "AggregateOut",
    "AggregateResult",
    "Aggregator",
    "AggregatorState",
    "Block",
    "RingAverage",
    "RingResult",
    "Seeds",
    "SegmentPlan",
    "StepReport",
    "Transcript",
    "check_round",
    "complete_plan",
    "derive_seeds",
    "edge_index",
    "informative",
    "is_private",
    "is_reliable",
    "key_material",
    "learned_sets",
    "learnt_components",
    "pad_inputs",
    "ring_average",
    "ring_sum",
    "segment_plan",
    "unmasking_risk",
]
