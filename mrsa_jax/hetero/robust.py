"""Robust rules.

From the averages of a segment's blocks to one, although some blocks are bad.
HeteroSAg, Section V-A: the server sees the sums of a row's blocks, and so may combine
them by a rule that a minority of bad ones cannot move far. A rule is a small pytree
that takes values f32[blocks, d] and weights f32[blocks] (how many clients each block
sums; 0: absent).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float32

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax.hetero._robust_kernels import (
    coordinate_median_of,
    geometric_median_of,
    krum_of,
    present_blocks,
    trimmed_mean_of,
    unit_weights,
    weighted_mean_of,
)
from mrsa_watch._base.errors import check_finite, check_integer, require

_Values = ArrayLike | Sequence[Any]


@runtime_checkable
class RobustRule(Protocol):
    """A rule that combines the averages of a segment's blocks: a pytree for programs.

    A block is absent as a whole if its weight is not positive and finite, or if one of
    its values is not finite. If every block is absent, the result is 0. Every rule of
    this module does so.
    """

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        ...


@pytree
class WeightedMean:
    """The mean, no defence at all; built by `weighted_mean`."""

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        return weighted_mean_of(*_inputs(values, weights))


@pytree
class CoordinateMedian:
    """The median of each coordinate; built by `coordinate_median`.

    Attributes:
        weighted: Whether blocks count by their weight (static).
    """

    cites = "robust rule: yin2018byzantine"

    weighted: bool = static(default=True)

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        return coordinate_median_of(*_inputs(values, weights, self.weighted))


@pytree
class TrimmedMean:
    """The mean of each coordinate's middle; built by `trimmed_mean`.

    Attributes:
        trim: Share of the weight left out at each end, float32.
        weighted: Whether blocks count by their weight (static).
    """

    cites = "robust rule: yin2018byzantine"

    trim: Array
    weighted: bool = static(default=True)

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        return trimmed_mean_of(*_inputs(values, weights, self.weighted), self.trim)


@pytree
class GeometricMedian:
    """The point of least total distance; built by `geometric_median`.

    Attributes:
        num_iterations: Steps of Weiszfeld's iteration, int32.
        smoothing: Distances count as at least this, float32.
        weighted: Whether blocks count by their weight (static).
    """

    cites = "robust rule: pillutla2022robust"

    num_iterations: Array
    smoothing: Array
    weighted: bool = static(default=True)

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        checked = _inputs(values, weights, self.weighted)
        return geometric_median_of(*checked, self.num_iterations, self.smoothing)


@pytree
class Krum:
    """The blocks with the nearest neighbours; built by `krum`.

    Attributes:
        num_byzantine: f, how many blocks may be bad (static).
        num_selected: m, how many blocks are averaged (static).
    """

    cites = "robust rule: blanchard2017machine"

    num_byzantine: int = static()
    num_selected: int = static(default=1)

    def __call__(self, values: _Values, weights: _Values) -> Float32[Array, " dim"]:
        """Combine f32[blocks, dim] by f32[blocks] to f32[dim]."""
        checked, checked_weights = _inputs(values, weights)
        count = checked.shape[0]
        # Below 2 f + 3 blocks, Krum's guarantee does not hold.
        fewest = 2 * self.num_byzantine + 3
        rule = (
            f"must hold 2 f + 3 = {fewest} blocks or more for f = {self.num_byzantine}"
        )
        require(count >= fewest, "values", rule, count)
        most = count - self.num_byzantine
        rule = (
            f"must be at most n - f = {most} for {count} blocks, or the average "
            "includes a bad block"
        )
        require(self.num_selected <= most, "num_selected", rule, self.num_selected)
        return krum_of(
            checked,
            checked_weights,
            jnp.int32(self.num_byzantine),
            jnp.int32(self.num_selected),
        )


def weighted_mean() -> WeightedMean:
    """Return the weighted mean as a rule: what HeteroSAg does without attackers.

    It has no defence: one bad block of finite values moves it anywhere.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.hetero.robust.weighted_mean()([[1.0], [4.0]], [2.0, 1.0]).tolist()
        [2.0]

    Source: HeteroSAg, eq. (3), divided by the survivors.
    """
    return WeightedMean()


def coordinate_median(*, weighted: bool = True) -> CoordinateMedian:
    """Return the coordinate-wise median as a rule.

    The lower median of a coordinate is the least value v such that the blocks with a
    value of at most v weigh half of the total or more, the upper one the least v such
    that they weigh more than half; the median is the middle of the two. For equal
    weights it is the ordinary median. While bad blocks weigh less than half, it lies in
    the range of the others' values. Sums of weights are of float32 and a difference of
    blocks * 2**-24 of the total counts as none: counts of clients are exact.

    Time O(blocks^2 d), memory O(blocks d): for up to a hundred blocks faster than
    sorting (measured: 5 to 10 times).

    Args:
        weighted: Count blocks by the clients in them; otherwise each once, as in the
            paper.

    Returns:
        The rule.

    Examples:
        >>> import mrsa_jax as mj
        >>> robust = mj.hetero.robust
        >>> values = [[0.0], [1.0], [9.0]]
        >>> robust.coordinate_median()(values, [1, 1, 1]).tolist()
        [1.0]

        With half of the weight at 0 and 1, the median is the middle of 1 and the next:

        >>> robust.coordinate_median()(values, [1, 1, 2]).tolist()
        [5.0]

    Source: HeteroSAg, Section V-A; Yin et al., "Byzantine-robust distributed learning"
    (2018).
    """
    return CoordinateMedian(weighted)


def trimmed_mean(trim: float | int, *, weighted: bool = True) -> TrimmedMean:
    """Return the coordinate-wise trimmed mean as a rule.

    With Q the quantile function of a coordinate's values under the weights (total W),
    this is the mean of Q over the weight from trim W to (1 - trim) W: a block at the
    edge counts in part, so that the rule is exact for any share. For n equal weights
    and a whole trim n it is the ordinary trimmed mean. While bad blocks weigh at most
    trim W, it lies in the range of the others' values.

    A part of a block that is below blocks * 2**-24 of the total is rounding, and left
    out; where `trim` leaves no more than that, the result is the median, its limit.

    Args:
        trim: Share of the weight left out at each end, from 0 (the mean) to below 1/2.
        weighted: Count blocks by the clients in them; otherwise each once.

    Returns:
        The rule; `trim` is a leaf.

    Raises:
        ConfigurationError: If `trim` is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> rule = mj.hetero.robust.trimmed_mean(0.25)
        >>> rule([[0.0], [1.0], [3.0], [99.0]], [1, 1, 1, 1]).tolist()
        [2.0]
        >>> rule([[0.0], [6.0]], [1, 2]).tolist()  # 1/4 unit of weight at 0, 5/4 at 6
        [5.0]

    Source: HeteroSAg, Section V-A; Yin et al., "Byzantine-robust distributed learning"
    (2018).
    """
    share = check_finite(trim, "trim")
    require(0.0 <= share < 0.5, "trim", "must lie in [0, 0.5)", trim)
    return TrimmedMean(jnp.float32(share), weighted)


def geometric_median(
    num_iterations: int | np.integer = 100,
    smoothing: float | int = 1e-6,
    *,
    weighted: bool = True,
) -> GeometricMedian:
    """Return the geometric median as a rule: the y of least sum of w_i ||y - v_i||.

    Weiszfeld's iteration, y = sum of c_i v_i over the sum of c_i with
    c_i = w_i / max(||y - v_i||, smoothing), from the coordinate-wise median y0. Bad
    blocks that weigh less than half move it by a bounded distance only, at any distance
    from them: with a share a of the weight, and the others within r of a point c, the
    result lies within (2 (1 - a) (r + smoothing) + ||y0 - c||) / (1 - 2 a) of c. A
    block of less than 2**-60 of the weight is absent.

    Args:
        num_iterations: At least 1. The error falls by a constant factor a step; where
            the minimum is one of the blocks, or nearly, only like 1 / steps.
        smoothing: Positive, in the unit of the values. Keeps a y that meets a block
            from dividing by 0; well below the distances that matter.
        weighted: Count blocks by the clients in them; otherwise each once.

    Returns:
        The rule; its numbers are leaves.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> rule = mj.hetero.robust.geometric_median()
        >>> values = [[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]]
        >>> rule(values, [1, 1, 1, 1]).tolist()
        [0.0, 0.0]

    Source: Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning"
    (2019).
    """
    steps = check_integer(num_iterations, "num_iterations", 1, 2**31 - 1)
    least = check_finite(smoothing, "smoothing")
    rule = "must be a positive float32"
    require(
        bool(np.finfo(np.float32).tiny <= least < 3e38), "smoothing", rule, smoothing
    )
    return GeometricMedian(jnp.int32(steps), jnp.float32(least), weighted)


def krum(num_byzantine: int | np.integer, num_selected: int | np.integer = 1) -> Krum:
    """Return Krum as a rule, multi-Krum for several selected blocks.

    Of n present blocks, the score of each is the sum of its squared distances to its
    n - f - 2 nearest others; the m blocks of lowest score (the earlier one of equals)
    are averaged by their weights. Each block counts once in the scores, whose squares
    may be outside of float32.

    Args:
        num_byzantine: f, at least 0.
        num_selected: m, from 1 to n - f: more would average a bad block. Blanchard et
            al. take at most n - f - 2.

    Returns:
        The rule. Called with fewer than 2 f + 3 rows it raises (its guarantee needs so
        many; HeteroSAg's rows hold no more than G - 1 blocks in SC, (G + 1) / 2 in MC).
        Called with fewer than f + m rows it raises too. Where fewer are *present*, it
        takes the max(n - f - 2, 1) nearest (at most n - 1), averages at most max(n - f,
        1) blocks, and guarantees nothing.

    Raises:
        ConfigurationError: If an argument is out of range, or later, if there are too
            few rows.

    Examples:
        >>> import mrsa_jax as mj
        >>> values = [[0.0], [0.1], [0.2], [0.3], [50.0]]
        >>> chosen = mj.hetero.robust.krum(1, 2)(values, [1, 1, 1, 1, 1])
        >>> [round(v, 3) for v in chosen.tolist()]
        [0.15]

    Cost: O(blocks^2 d) operations, O(blocks d) memory.

    Source: Blanchard et al., "Machine learning with adversaries" (2017).
    """
    byzantine = check_integer(num_byzantine, "num_byzantine", 0, 2**30)
    return Krum(byzantine, check_integer(num_selected, "num_selected", 1, 2**31 - 1))


def _inputs(
    values: _Values, weights: _Values, weighted: bool = True
) -> tuple[Array, Array]:
    """Return values and weights as float32; absent blocks are 0 and weigh 0.

    Without `weighted`, each block that is present counts once.
    """
    rows, floats = on_device(values, jnp.float32), on_device(weights, jnp.float32)
    proper = rows.ndim == 2 and rows.shape[0] > 0
    require(
        proper, "values", "must have the shape [blocks, dim], with a block", rows.shape
    )
    fits = floats.shape == (rows.shape[0],)
    require(
        fits, "weights", "must have one entry for each block", floats.shape, rows.shape
    )
    return _present(rows, floats, weighted)


@functools.partial(one_program, static_argnums=2)
def _present(values: Array, weights: Array, weighted: bool) -> tuple[Array, Array]:
    """Return the values of the blocks that are present, and what each counts by."""
    present, shares = present_blocks(values, weights)
    counted = shares if weighted else (shares > jnp.float32(0)).astype(jnp.float32)
    return present, unit_weights(counted)
