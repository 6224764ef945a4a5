from ._judging import draw_arrays as draw_arrays, judge_arrays as judge_arrays
from ._monte_carlo import FailureRates as FailureRates, Rate as Rate
from ._rare import RareRate as RareRate
from ._theory import (
    private_connection_threshold as private_connection_threshold,
    reliable_connection_threshold as reliable_connection_threshold,
)
from ._theory_exact import (
    exact_reliability_union_bound as exact_reliability_union_bound,
    log_disconnection_probability as log_disconnection_probability,
    log_reliability_first_moment as log_reliability_first_moment,
    unmasking_bound as unmasking_bound,
    whole_blocks_rate as whole_blocks_rate,
)
