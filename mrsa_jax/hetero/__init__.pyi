from . import byzantine as byzantine, costs as costs, robust as robust
from ._aggregate import aggregate as aggregate
from ._average import segment_average as segment_average
from ._coding import decode as decode, encode as encode
from ._cohorts import (
    cohort_layouts as cohort_layouts,
    ranked_groups as ranked_groups,
)
from ._layout import SegmentLayout as SegmentLayout, segment_layout as segment_layout
from ._leakage import (
    SegmentHistory as SegmentHistory,
    segment_leakage as segment_leakage,
    segment_participation as segment_participation,
)
from ._privacy import (
    claimed_privacy_level as claimed_privacy_level,
    privacy_level as privacy_level,
    privacy_report as privacy_report,
    scheme_privacy_level as scheme_privacy_level,
)
from ._rates import round_rates as round_rates
from ._segments import (
    blocks_of as blocks_of,
    format_matrix as format_matrix,
    segment_matrix as segment_matrix,
    segment_matrix_plus as segment_matrix_plus,
)
from ._theory import (
    quantization_error as quantization_error,
    quantization_error_bound as quantization_error_bound,
    scheme_error_bound as scheme_error_bound,
)
from ._tolerance import tolerated_byzantine as tolerated_byzantine
