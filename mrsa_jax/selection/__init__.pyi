from ._bernoulli import (
    balls_in_bins as balls_in_bins,
    bernoulli as bernoulli,
    poisson as poisson,
)
from ._blocks import (
    batch_partitioning as batch_partitioning,
    partition as partition,
    uniform as uniform,
    weighted as weighted,
)
from ._lines import crossing_partitions as crossing_partitions, from_lines as from_lines
from ._many import rollout_counts as rollout_counts, rollout_many as rollout_many
from ._metrics import (
    aggregation_cardinality as aggregation_cardinality,
    enumerate_family as enumerate_family,
    expected_cardinality as expected_cardinality,
    fairness_gap as fairness_gap,
    family_size as family_size,
)
from ._power_of_choice import power_of_choice as power_of_choice
from ._rollout import (
    rollout as rollout,
    rollout_metrics as rollout_metrics,
    rollout_trials as rollout_trials,
)
from ._rounds import (
    RoundHistory as RoundHistory,
    Selector as Selector,
    learnt_rows as learnt_rows,
    learnt_sums as learnt_sums,
    rollout_rounds as rollout_rounds,
)
from ._theory import (
    family_size_bound as family_size_bound,
    full_rank_bound as full_rank_bound,
)
from ._within import (
    blocks_within as blocks_within,
    minimum_separation as minimum_separation,
)
from .checks import Fairness as Fairness
from .registry import Scheme as Scheme, register as register
