from ._cohort import (
    LocalTrainer as LocalTrainer,
    cohort_updates as cohort_updates,
    measured_width as measured_width,
    shuffled as shuffled,
)
from ._mesh import (
    gathered as gathered,
    held_where_gathered as held_where_gathered,
    lowered_cohort_updates as lowered_cohort_updates,
    replicated as replicated,
    sharded as sharded,
    trained_cohort as trained_cohort,
)
from ._rounds import (
    PLAIN_AVERAGE as PLAIN_AVERAGE,
    Carried as Carried,
    Fixed as Fixed,
    Report as Report,
    Round as Round,
    Slots as Slots,
    Trained as Trained,
    aggregated as aggregated,
    flat_updates as flat_updates,
    rounds_program as rounds_program,
    runs_program as runs_program,
    server_step as server_step,
    trainer_at as trainer_at,
)
