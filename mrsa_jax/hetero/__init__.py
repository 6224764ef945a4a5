"""HeteroSAg: clients of unequal bandwidth quantize unequally and still hide in secure sums."""

from mrsa_jax.hetero._advice import advise_num_groups
from mrsa_jax.hetero._aggregate import aggregate
from mrsa_jax.hetero._average import segment_average
from mrsa_jax.hetero._byzantine import (
    Byzantine,
    GaussianAverage,
    UniformResidues,
    collusion,
    gaussian_blocks,
    scaling,
    sign_flip,
    wrong_pads,
)
from mrsa_jax.hetero._coding import decode, encode
from mrsa_jax.hetero._cohorts import align_groups, cohort_layouts, fixed_groups, ranked_groups
from mrsa_jax.hetero._communication import communication_times
from mrsa_jax.hetero._costs import (
    expansion_factor,
    loss_probability,
    segment_costs,
    survival_probability,
)
from mrsa_jax.hetero._grouping import (
    levels_for_rates,
    rate_classes,
    rate_groups,
    slowed_rates,
)
from mrsa_jax.hetero._layout import SegmentLayout, segment_layout
from mrsa_jax.hetero._leakage import SegmentHistory, segment_leakage, segment_participation
from mrsa_jax.hetero._privacy import (
    claimed_privacy_level,
    privacy_level,
    privacy_report,
    scheme_privacy_level,
)
from mrsa_jax.hetero._robust import (
    RobustRule,
    coordinate_median,
    geometric_median,
    krum,
    trimmed_mean,
    weighted_mean,
)
from mrsa_jax.hetero._segments import (
    SCHEMES,
    blocks_of,
    format_matrix,
    segment_matrix,
    segment_matrix_plus,
)
from mrsa_jax.hetero._theory import quantization_error, quantization_error_bound, scheme_error_bound
from mrsa_jax.hetero._tolerance import tolerated_byzantine
from mrsa_jax.hetero._unequal import unequal_moduli_failures, unequal_moduli_tuples

__all__ = [
    "SCHEMES",
    "Byzantine",
    "GaussianAverage",
    "RobustRule",
    "SegmentHistory",
    "SegmentLayout",
    "UniformResidues",
    "advise_num_groups",
    "aggregate",
    "align_groups",
    "blocks_of",
    "claimed_privacy_level",
    "cohort_layouts",
    "collusion",
    "communication_times",
    "coordinate_median",
    "decode",
    "encode",
    "expansion_factor",
    "fixed_groups",
    "format_matrix",
    "gaussian_blocks",
    "geometric_median",
    "krum",
    "levels_for_rates",
    "loss_probability",
    "privacy_level",
    "privacy_report",
    "quantization_error",
    "quantization_error_bound",
    "ranked_groups",
    "rate_classes",
    "rate_groups",
    "scaling",
    "scheme_error_bound",
    "scheme_privacy_level",
    "segment_average",
    "segment_costs",
    "segment_layout",
    "segment_leakage",
    "segment_matrix",
    "segment_matrix_plus",
    "segment_participation",
    "sign_flip",
    "slowed_rates",
    "survival_probability",
    "tolerated_byzantine",
    "trimmed_mean",
    "unequal_moduli_failures",
    "unequal_moduli_tuples",
    "weighted_mean",
    "wrong_pads",
]
