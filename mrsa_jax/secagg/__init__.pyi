from . import costs as costs, failures as failures
from ._aggregator import RingAverage as RingAverage, ring_average as ring_average
from ._conditions import (
    check_round as check_round,
    is_private as is_private,
    is_reliable as is_reliable,
    learned_sets as learned_sets,
    unmasking_risk as unmasking_risk,
)
from ._four_step import aggregate as aggregate
from ._graph_rule import GraphRule as GraphRule, graph_rule as graph_rule
from ._ring_sum import pad_inputs as pad_inputs, ring_sum as ring_sum
from ._round_costs import (
    RoundCosts as RoundCosts,
    expected_costs as expected_costs,
    fedavg_costs as fedavg_costs,
    round_costs as round_costs,
)
from .averages import Aggregator as Aggregator
from .codes import noisy_codes as noisy_codes
from .failures._monte_carlo import (
    failure_rates as failure_rates,
    failure_rates_of as failure_rates_of,
)
from .failures._plan import (
    PlannedRound as PlannedRound,
    RoundPlan as RoundPlan,
    plan as plan,
)
from .failures._rare import rare_failure_rates as rare_failure_rates
from .failures._theory import (
    connection_probability as connection_probability,
    privacy_bound as privacy_bound,
    reliability_bound as reliability_bound,
)
from .lists import admitted as admitted
from .outcome import (
    AggregateResult as AggregateResult,
    PlanOutcome as PlanOutcome,
    StepReport as StepReport,
    Transcript as Transcript,
    plan_outcome as plan_outcome,
)
from .plans import (
    Block as Block,
    SegmentPlan as SegmentPlan,
    complete_plan as complete_plan,
    segment_plan as segment_plan,
)
from .seeds import (
    Seeds as Seeds,
    derive_seeds as derive_seeds,
    key_material as key_material,
)
from .thresholds import share_threshold as share_threshold
