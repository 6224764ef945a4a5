from . import budgets as budgets, wrapping as wrapping
from ._lattice import (
    LatticeQuantizer as LatticeQuantizer,
    lattice as lattice,
    shortened as shortened,
)
from ._stochastic import (
    ClipRule as ClipRule,
    Quantizer as Quantizer,
    StochasticQuantizer as StochasticQuantizer,
    following_range as following_range,
    stochastic as stochastic,
)
from .budgets import budget as budget
from .wrapping import RingNoise as RingNoise
