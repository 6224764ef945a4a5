"""What a round of segments spends: the sums of all its blocks, released side by side.

Symbols: S -> `SegmentAverage.sensitivity`, g -> the coarsest step of a layout, v -> variance of one
client's noise, n -> the fewest survivors of the blocks that a client is in.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._errors import require
from mrsa_jax.dp._divergence import LEAST_SIGMA, renyi_bound
from mrsa_jax.dp._lattice_noise import LatticeNoise


@dataclasses.dataclass(frozen=True)
class BlockMechanism:
    """The mechanism of a round of blocks, in steps of the coarsest lattice.

    A client moves one sum of each segment l, by c_l in the Euclidean norm and in units of updates;
    sum of c_l^2 <= S^2, as S bounds the whole change. The noise of that sum, of n_l survivors, has
    variance n_l v. Blocks' noise is independent, so that what the server sees of the client is
    Gaussian with mu^2 = sum of c_l^2 / (n_l v) <= S^2 / (n v): a convex combination, largest where
    all of S is in the block with the fewest survivors, and reached there.

    Of the integers drawn, Renyi divergences of the blocks add up. Those of n_l > n draws are at
    most those of n, as more noise hides no less. Each term of `renyi_bound` for n draws, summed
    over the blocks, is at most that of one vector of all d coordinates on the coarsest lattice:
    a sum of c_l^2 is at most S^2, of c_l len_l^(1/2) at most S d^(1/2) (Cauchy, Schwarz), tau
    grows with the step, (a_l + b_l)^2 adds up as norms do (Minkowski), and a client's shift has
    l1 <= len^(1/2) l2.

    Attributes:
        noise: One client's, on that lattice.
        sensitivity: S / g.
        num_clients: The most of a block.
        dim: d.
    """

    noise: LatticeNoise
    sensitivity: float
    num_clients: int
    dim: int

    @staticmethod
    def of(average: Any) -> BlockMechanism:
        """Return the mechanism of what `hetero.segment_average` returned, or raise.

        Raises:
            ConfigurationError: If it adds no noise, does not bound updates, or has less of the
                discrete Gaussian's than the bound on its sums is proved for.
        """
        rule = (
            "must be a `hetero.segment_average` with `noise` and `clip_norm` for sums of segments"
        )
        parts = (getattr(average, name, None) for name in ("layout", "noise", "clip_norm"))
        require(all(part is not None for part in parts), "mechanism", rule, average)
        levels, laws = np.asarray(average.noise.levels), average.noise.laws
        coarsest = int(np.argmin(levels))
        law = laws[coarsest]
        sigma = math.sqrt(law.variance)
        rule = f"must leave a client's noise {LEAST_SIGMA} steps or more, for a bound on sums"
        proved = law.kind == "skellam" or sigma >= LEAST_SIGMA
        require(proved, "levels", rule, int(levels[coarsest]), sigma)
        own = average.quantizer
        step = (float(own.upper) - float(own.lower)) / (int(levels[coarsest]) - 1)
        most = max(len(block.members) for block in average.layout.blocks)
        # the lattice has its step in float32
        sensitivity = average.sensitivity / step * (1.0 + 2.0**-22)
        return BlockMechanism(law, sensitivity, most, average.layout.dim)

    def rdp(self, orders: Any, survivors: Any) -> Float64[np.ndarray, "sorts orders"]:
        """Return a bound on the divergence of each order, by the fewest survivors of a block."""
        return renyi_bound(
            self.noise.kind,
            orders,
            l2=self.sensitivity,
            l1=math.sqrt(self.dim) * self.sensitivity,
            dim=self.dim,
            variance=self.noise.variance,
            count=np.asarray(survivors)[:, None],
        )
