"""The compiled programs of a training: a cohort's local training, the server's step, rounds.

What a round is told and reports, how cohorts spread over devices, and rounds of one training or
of several as one program. Everything here is traced; who calls it decides what is trained next.
"""

from mrsa_jax.federated.programs._cohort import (
    LocalTrainer,
    cohort_updates,
    measured_width,
    shuffled,
)
from mrsa_jax.federated.programs._flat import Slots, flat_updates, runs_program
from mrsa_jax.federated.programs._mesh import (
    gathered,
    held_where_gathered,
    lowered_cohort_updates,
    replicated,
    sharded,
    trained_cohort,
)
from mrsa_jax.federated.programs._rounds import (
    Carried,
    Fixed,
    Report,
    Round,
    Trained,
    aggregated,
    rounds_program,
    trainer_at,
)
from mrsa_jax.federated.programs._step import PLAIN_AVERAGE, server_step

__all__ = [
    "PLAIN_AVERAGE",
    "Carried",
    "Fixed",
    "LocalTrainer",
    "Report",
    "Round",
    "Slots",
    "Trained",
    "aggregated",
    "cohort_updates",
    "flat_updates",
    "gathered",
    "held_where_gathered",
    "lowered_cohort_updates",
    "measured_width",
    "replicated",
    "rounds_program",
    "runs_program",
    "server_step",
    "sharded",
    "shuffled",
    "trained_cohort",
    "trainer_at",
]
