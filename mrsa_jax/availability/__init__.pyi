from ._cyclic import cyclic as cyclic, diurnal as diurnal
from ._independent import (
    Independent as Independent,
    assign_rates as assign_rates,
    independent as independent,
)
from ._markov import markov as markov
from ._registry import register as register
from ._replay import replay as replay
from ._steps import (
    IndependentSteps as IndependentSteps,
    StepDropout as StepDropout,
    independent_steps as independent_steps,
)
from ._types import Availability as Availability
