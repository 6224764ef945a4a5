"""HeteroSAg: clients of unequal bandwidth quantize unequally and still hide in secure sums."""

from mrsa_jax.hetero._layout import SegmentBlock, SegmentLayout, segment_layout
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
    "SegmentBlock",
    "SegmentLayout",
    "blocks_of",
    "check_matrix",
    "format_matrix",
    "segment_layout",
    "segment_matrix",
    "segment_matrix_plus",
    "subgroup_labels",
]
