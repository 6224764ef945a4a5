from . import budgets as budgets, wrapping as wrapping
from ._lattice import (
    LatticeQuantizer as LatticeQuantizer,
    lattice as lattice,
    shortened as shortened,
)
from ._noise import RingNoise as RingNoise
from ._stochastic import (
    ClipRule as ClipRule,
    Quantizer as Quantizer,
    StochasticQuantizer as StochasticQuantizer,
    following_range as following_range,
    stochastic as stochastic,
)
from .budgets import budget as budget
