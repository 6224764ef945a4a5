from ._given import cyclic as cyclic, diurnal as diurnal, replay as replay
from ._random import (
    Availability as Availability,
    Independent as Independent,
    IndependentSteps as IndependentSteps,
    StepDropout as StepDropout,
    assign_rates as assign_rates,
    independent as independent,
    independent_steps as independent_steps,
    markov as markov,
)
from .registry import register as register
