"""What a ring mechanism's sums spend together: Renyi divergences added over a client's sums."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax import privacy
from mrsa_jax._core.device import at_once
from mrsa_jax.dp._lattice_noise import LatticeNoise
from mrsa_jax.dp._laws import check_sigma, renyi_bound
from mrsa_jax.dp._mechanism import ORDERS, RingMechanism
from mrsa_watch._base.errors import require

# ---- What a round of segments spends: the sums of all its blocks, released side by side.
#
# Symbols: S -> `SegmentAverage.sensitivity`, g -> the coarsest step of a layout, v -> variance of
# one client's noise, n -> the fewest survivors of the blocks that a client is in.


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
        check_sigma(law.kind, math.sqrt(law.variance), "levels", int(levels[coarsest]))
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


# ---- What a ring mechanism's sums spend together: Renyi divergences added over a client's sums.

_VAST = 1e250  # stands for an infinite divergence, of which a client may have none
_LEAST = 1.01  # no orders below it: 1 / (order - 1) takes their digits


@dataclasses.dataclass(frozen=True, eq=False)
class Composed:
    """Differential privacy of sums whose noise is a ring mechanism's.

    Attributes:
        counts: `[kinds, sorts]`, of each kind of client the sums of each sort.
        kinds: int `[clients]`, -1 for colluding clients.
        divergences: float64 `[sorts, orders]` of a sum of each sort.
    """

    counts: np.ndarray
    kinds: np.ndarray
    divergences: np.ndarray

    @staticmethod
    def of(
        mechanism: RingMechanism | BlockMechanism,
        rows: np.ndarray,
        added: np.ndarray,
        members: np.ndarray,
    ) -> Composed:
        """Return it for sums of which `added` clients' noise is unknown; `members` collude."""
        known = np.minimum(added, mechanism.num_clients)  # more noise hides no less
        sorts = np.unique(known[known > 0])
        each = np.stack(
            [np.count_nonzero(rows[known == sort], axis=0) for sort in sorts]
            or [np.zeros(rows.shape[1], np.int64)],
            axis=1,
        ).astype(np.int32)
        counts, kinds = np.unique(each, axis=0, return_inverse=True)
        kinds = kinds.reshape(-1).copy()
        kinds[members] = -1
        spent = mechanism.rdp(ORDERS, sorts) if sorts.size else np.zeros((1, len(ORDERS)))
        return Composed(counts, kinds, _usable(spent))

    def epsilon(self, delta: Any) -> Float64[np.ndarray, "*_"]:
        """Return the least epsilon of all orders at which delta is kept, of each client.

        Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy" (2020),
        Proposition 12; Bun, Steinke (2016) for delta^2 above 1 - exp(-divergence).
        """
        asked = self._asked(delta, "delta")
        order = np.asarray(ORDERS, np.float64)

        def least(spent: np.ndarray) -> np.ndarray:
            found = spent + np.log1p(-1 / order) - np.log(asked * order) / (order - 1)
            found = np.where(asked**2 + np.expm1(-spent) > 0, 0.0, found)
            return np.maximum(found.min(axis=-1), 0.0)

        return self._of_clients(asked, least, np.inf)

    def delta(self, epsilon: Any) -> Float64[np.ndarray, "*_"]:
        """Return the least delta of all orders at epsilon, of each client."""
        asked = self._asked(epsilon, "epsilon")
        order = np.asarray(ORDERS, np.float64)

        def least(spent: np.ndarray) -> np.ndarray:
            found = (order - 1) * (spent + np.log1p(-1 / order) - asked) - np.log(order)
            return np.exp(np.minimum(found.min(axis=-1), 0.0))

        return self._of_clients(asked, least, 1.0)

    def _asked(self, value: Any, name: str) -> np.ndarray:
        """Return what is asked, `[..., 1, 1]`, checked as it is of Gaussian noise."""
        check = privacy.Distinguishability(np.zeros(1), 1.0, None)
        (check.epsilon if name == "delta" else check.delta)(value)
        return np.asarray(value, np.float64)[..., None, None]

    def _of_clients(self, asked: np.ndarray, least: Any, most: float) -> np.ndarray:
        found = np.empty((*asked.shape[:-2], len(self.counts)))
        step = at_once("columns", 4 * 8 * len(ORDERS) * max(1, asked.size))
        for start in range(0, len(self.counts), step):
            some = slice(start, start + step)
            spent = self.counts[some] @ self.divergences
            is_bare = spent.min(axis=1) >= _VAST
            found[..., some] = np.where(is_bare, most, least(spent))
            nothing = ~self.counts[some].any(axis=1)
            found[..., some][..., nothing] = 0.0
        return np.where(self.kinds < 0, np.nan, found[..., self.kinds])


@dataclasses.dataclass(frozen=True, eq=False)
class RingLosses:
    """What a number of full sums cost together, any real number: mu is its square root.

    Attributes:
        divergences: float64 `[1, orders]` of one sum with all of its noise.
    """

    divergences: np.ndarray

    @staticmethod
    def of(mechanism: RingMechanism) -> tuple[RingLosses, np.ndarray, np.ndarray]:
        """Return it, and of how many full sums one of 0, 1, ... clients' noise costs as much.

        At least and at most, over the orders; nothing of none.
        """
        order = np.asarray(ORDERS, np.float64)
        each = mechanism.rdp(order, np.arange(1, mechanism.num_clients + 1))
        ratios = (each / each[-1])[:, order > _LEAST]
        below, above = (np.append(0.0, np.where(np.isfinite(own), own, _VAST))
                        for own in (ratios.min(axis=1), ratios.max(axis=1)))  # fmt: skip
        return RingLosses(_usable(each[-1:])), below, above

    def delta(self, mu: Any, epsilon: float) -> Float64[np.ndarray, "*_"]:
        """Return delta at one epsilon."""
        return self._of(mu).delta(epsilon).reshape(np.shape(mu))

    def epsilon(self, mu: Any, delta: float) -> Float64[np.ndarray, "*_"]:
        """Return the least epsilon with which delta is kept."""
        return self._of(mu).epsilon(delta).reshape(np.shape(mu))

    def _of(self, mu: Any) -> Composed:
        counts = np.square(np.asarray(mu, np.float64)).reshape(-1, 1)
        return Composed(counts, np.arange(len(counts)), self.divergences)


def _usable(divergences: np.ndarray) -> np.ndarray:
    usable = np.asarray(ORDERS) > _LEAST
    return np.where(usable, np.minimum(divergences, _VAST), _VAST)
