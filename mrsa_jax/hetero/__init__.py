"""HeteroSAg: clients of unequal bandwidth quantize unequally and still hide in secure sums."""

from mrsa_jax.hetero._cohorts import (
    CohortGroups,
    SmallGroups,
    align_groups,
    cohort_layouts,
    fixed_groups,
    ranked_groups,
)
from mrsa_jax.hetero._layout import SegmentBlock, SegmentLayout, segment_layout
from mrsa_jax.hetero._leakage import (
    SegmentHistory,
    SegmentLeakage,
    SumLeakage,
    segment_leakage,
    segment_participation,
)
from mrsa_jax.hetero._segments import (
    SCHEMES,
    blocks_of,
    check_matrix,
    format_matrix,
    segment_matrix,
    segment_matrix_plus,
    subgroup_labels,
)

__all__ = [
    "SCHEMES",
    "CohortGroups",
    "SegmentBlock",
    "SegmentHistory",
    "SegmentLayout",
    "SegmentLeakage",
    "SmallGroups",
    "SumLeakage",
    "align_groups",
    "blocks_of",
    "check_matrix",
    "cohort_layouts",
    "fixed_groups",
    "format_matrix",
    "ranked_groups",
    "segment_layout",
    "segment_leakage",
    "segment_matrix",
    "segment_matrix_plus",
    "segment_participation",
    "subgroup_labels",
]
