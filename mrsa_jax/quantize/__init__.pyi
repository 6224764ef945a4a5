from . import wrapping as wrapping
from ._budget import (
    budget as budget,
    check_fits as check_fits,
    check_weights as check_weights,
    largest_levels as largest_levels,
    largest_total_weight as largest_total_weight,
    required_modulus_bits as required_modulus_bits,
    ring_size as ring_size,
)
from ._lattice import (
    LatticeQuantizer as LatticeQuantizer,
    lattice as lattice,
    shortened as shortened,
)
from ._ranges import (
    ClipRule as ClipRule,
    RingNoise as RingNoise,
    following_range as following_range,
)
from ._stochastic import (
    Quantizer as Quantizer,
    StochasticQuantizer as StochasticQuantizer,
    stochastic as stochastic,
)
