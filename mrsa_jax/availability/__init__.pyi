from ._given import cyclic as cyclic, diurnal as diurnal, replay as replay
from ._random import (
    Independent as Independent,
    assign_rates as assign_rates,
    independent as independent,
    markov as markov,
)
from ._steps import (
    Availability as Availability,
    IndependentSteps as IndependentSteps,
    StepDropout as StepDropout,
    independent_steps as independent_steps,
)
from .registry import register as register
