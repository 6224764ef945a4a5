"""Scores of attacks: distances of images, matched pairs, and members found.

Distances between images, matched pairs, and clients distinguished.
Wang, Bovik, Sheikh, Simoncelli, "Image quality assessment" (2004), for SSIM; Carlini et
al., "Membership inference attacks from first principles" (2022), for rates at few false
positives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Float64, Int64

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import check_finite_values
from mrsa_watch._base.errors import require
from mrsa_watch._base.values import by_value

_MAPS = 12  # of float32, that SSIM makes of an image
# Gaussian window of SSIM as published: side and standard deviation
_WINDOW, _WIDTH = 11, 1.5


@needs_values
def mean_squared_error(images: Any, truth: Any) -> Float64[np.ndarray, "*images"]:
    """Return each image's mean squared error over its pixels and channels.

    Args:
        images: Real [..., height, width, channels].
        truth: The originals, of the same shape.

    Returns:
        float64 [...].

    Raises:
        ConfigurationError: If the shapes differ, there are fewer than three axes, or a
            pixel is not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> ones, zeros = np.ones((2, 4, 4, 1)), np.zeros((2, 4, 4, 1))
        >>> mj.attacks.mean_squared_error(ones, zeros).tolist()
        [1.0, 1.0]
    """
    guesses, originals = _checked_images(images, truth)
    return np.asarray(np.square(guesses - originals).mean(axis=(-3, -2, -1)))


@needs_values
def psnr(
    images: Any,
    truth: Any,
    *,
    data_range: float = 1.0,
) -> Float64[np.ndarray, "*images"]:
    """Return each image's peak signal-to-noise ratio in decibels.

    Args:
        images: Real [..., height, width, channels].
        truth: The originals, of the same shape.
        data_range: Largest minus smallest possible value of a pixel.

    Returns:
        float64 [...], 10 log10(data_range^2 / mean squared error); infinite for equal
        images.

    Raises:
        ConfigurationError: As `mean_squared_error`; if `data_range` is not positive.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> grey, black = np.full((4, 4, 1), 0.1), np.zeros((4, 4, 1))
        >>> float(mj.attacks.psnr(grey, black).round(6))
        20.0
    """
    _check_range(data_range)
    error = mean_squared_error(images, truth)
    with np.errstate(divide="ignore"):
        return np.asarray(10 * np.log10(data_range**2 / error))


@needs_values
def ssim(
    images: Any,
    truth: Any,
    *,
    data_range: float = 1.0,
) -> Float64[np.ndarray, "*images"]:
    """Return each image's mean structural similarity: 1 for equal images, else less.

    Args:
        images: Real [..., height, width, channels]; channels are averaged.
        truth: The originals, of the same shape.
        data_range: Largest minus smallest possible value of a pixel.

    Returns:
        float64 [...], computed in float32. The window is Gaussian, of side 11 and
        standard deviation 1.5, or as large as fits where an image is smaller.

    Raises:
        ConfigurationError: As `psnr`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> board = np.indices((12, 12)).sum(axis=0)[..., None] % 2
        >>> inverse = mj.attacks.ssim(board, 1 - board)
        >>> float(mj.attacks.ssim(board, board)), bool(inverse < 0)
        (1.0, True)

    Source: Wang et al. (2004), with their constants 0.01 and 0.03.
    """
    _check_range(data_range)
    pairs = np.stack(_checked_images(images, truth))
    shape = pairs.shape[1:-3]
    pairs = pairs.reshape(2, -1, *pairs.shape[-3:])
    side = min(_WINDOW, *pairs.shape[2:4])
    parts = [np.empty(0)]
    step = at_once("images", 4 * _MAPS * math.prod(pairs.shape[2:]))
    for start in range(0, pairs.shape[1], step):
        some = pairs[:, start : start + step]
        both = on_device(some[0], jnp.float32), on_device(some[1], jnp.float32)
        parts.append(np.asarray(_similarity(*both, side, data_range), np.float64))
    return np.concatenate(parts).reshape(shape)


@partial(jax.jit, static_argnames=("side", "data_range"))
def _similarity(
    images: Float32[Array, "images height width channels"],
    other: Float32[Array, "images height width channels"],
    side: int,
    data_range: float,
) -> Float32[Array, " images"]:
    """Return SSIM, the mean over the places where the whole window fits."""
    # places of the window about its middle, in deviations
    places = (jnp.arange(side, dtype=jnp.float32) - (side - 1) / 2) / _WIDTH
    # separable: rows are filtered, then columns
    window = jnp.exp(-0.5 * places**2)
    window /= jnp.sum(window)
    filtered = jax.vmap(
        partial(jnp.convolve, v=window, mode="valid", precision="highest")
    )

    def mean(maps: Array) -> Array:
        for axis in (-2, -3):
            lines = jnp.moveaxis(maps, axis, -1)
            smooth = filtered(lines.reshape(-1, lines.shape[-1]))
            maps = jnp.moveaxis(smooth.reshape(*lines.shape[:-1], -1), -1, axis)
        return maps

    means, theirs = mean(images), mean(other)
    # rounding may leave a variance below 0, or a covariance beyond what variances allow
    least = jnp.finfo(jnp.float32).eps ** 2
    my_variance = jnp.maximum(least, mean(images**2) - means * means)
    their_variance = jnp.maximum(least, mean(other**2) - theirs * theirs)
    both = mean(images * other) - means * theirs
    both = jnp.sign(both) * jnp.minimum(
        jnp.sqrt(my_variance * their_variance), jnp.abs(both)
    )
    first, second = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    alike = (2 * (means * theirs) + first) * (2 * both + second)
    apart = (means * means + theirs * theirs + first) * (
        my_variance + their_variance + second
    )
    return jnp.mean(alike / apart, axis=(-3, -2, -1))


@needs_values
def matched_images(images: Any, truth: Any) -> Int64[np.ndarray, " originals"]:
    """Match each original to a reconstruction, by least total squared error.

    An attack on several images returns them in any order.

    Args:
        images: Real [m, height, width, channels], reconstructions.
        truth: Real [n, height, width, channels], originals, n <= m.

    Returns:
        int64 [n], indices into `images`, each used once.

    Raises:
        ConfigurationError: If shapes do not fit or a pixel is not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> truth = np.eye(3)[:, :, None, None]
        >>> mj.attacks.matched_images(truth[[2, 0, 1]], truth).tolist()
        [1, 2, 0]
    """
    from scipy.optimize import linear_sum_assignment

    guesses, originals = (np.asarray(each, np.float64) for each in (images, truth))
    for name, value in (("images", guesses), ("truth", originals)):
        require(
            value.ndim == 4,
            name,
            "must be [images, height, width, channels]",
            value.shape,
        )
    check_finite_values(images=guesses, truth=originals)
    is_alike = guesses.shape[1:] == originals.shape[1:]
    require(
        is_alike and len(guesses) >= len(originals),
        "images",
        "must be as many as the originals at least, of the same shape",
        guesses.shape,
        originals.shape,
    )
    flat = guesses.reshape(len(guesses), -1)
    cost = np.stack(
        [np.square(flat - image.ravel()).sum(axis=1) for image in originals]
    )
    return np.asarray(linear_sum_assignment(cost)[1], np.int64)


@by_value
class MembershipScore(NamedTuple):
    """Scores of an attack that tells members from non-members.

    Attributes:
        accuracy: Share told right at the threshold that is best for these scores.
        precision: Of those called members at that threshold, the share who are; nan if
            none is.
        recall: Share of the members called members at that threshold.
        auc: Chance that a member scores higher than a non-member, ties half.
        false_positive_rates: The bounds at which the next are taken.
        true_positive_rates: Largest share of members found with no more false
            positives.
        auc_error: Standard error of `auc` (DeLong et al. 1988; with groups Obuchowski
            1997); nan with a single sample or group of a kind.
    """

    accuracy: float
    precision: float
    recall: float
    auc: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]
    auc_error: float = math.nan


@needs_values
def membership_score(
    scores: Any,
    is_member: Any,
    *,
    threshold: float | None = None,
    false_positive_rates: Sequence[float] = (0.001, 0.01),
    groups: Any = None,
) -> MembershipScore:
    """Score an attack that gives each sample a number, higher for likely members.

    Args:
        scores: Real [m], finite.
        is_member: bool [m], the truth, with both kinds in it.
        threshold: Members are scores of at least this; None for the one of best
            accuracy, which the adversary could not know: chance is then above one half
            for few samples.
        false_positive_rates: Bounds in (0, 1); a bound below 1 / non-members finds
            those members who score above all non-members.
        groups: Integers [m]: samples of one group have related scores, such as clients
            of a block; None if all scores are independent. Only `auc_error` depends on
            it.

    Returns:
        The score.

    Raises:
        ConfigurationError: If lengths differ, a score is not finite, or one kind is
            missing.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.attacks.membership_score([3, 2, 1, 0], [True, True, False, False]).auc
        1.0
        >>> mj.attacks.membership_score(
        ...     [3, 0, 2, 1], [True, True, False, False], threshold=3.0
        ... ).recall
        0.5
    """
    values = np.asarray(scores, np.float64)
    members = np.asarray(is_member)
    require(
        values.ndim == 1 and len(values) > 0,
        "scores",
        "must be [samples]",
        values.shape,
    )
    check_finite_values(scores=values)
    fits = members.shape == values.shape and members.dtype == np.bool_
    received = f"{members.dtype} {members.shape}"
    require(
        fits,
        "is_member",
        "must be bool, one for each score",
        received,
        values.shape,
    )
    count = int(members.sum())
    require(
        0 < count < len(members),
        "is_member",
        "must hold members and others",
        count,
        len(members),
    )
    bounds = tuple(float(rate) for rate in false_positive_rates)
    require(
        all(0 < rate < 1 for rate in bounds),
        "false_positive_rates",
        "must lie in (0, 1)",
        bounds,
    )
    false_positives, hits, cuts = _curve(values, members)
    false_rate, true_rate = false_positives / false_positives[-1], hits / hits[-1]
    if threshold is None:
        right = true_rate * members.sum() + (1 - false_rate) * (~members).sum()
        threshold = float(cuts[np.argmax(right)])
    # a point on the line between its neighbours adds nothing to the area
    bends = (np.diff(false_positives[1:], 2) != 0) | (np.diff(hits[1:], 2) != 0)
    corners = np.concatenate([[0, 1], 2 + np.flatnonzero(bends), [len(hits) - 1]])
    # at the threshold, which need not be a point of the curve
    called = values >= threshold
    right = int((called & members).sum())
    return MembershipScore(
        accuracy=float((called == members).mean()),
        precision=right / int(called.sum()) if called.any() else float("nan"),
        recall=right / count,
        auc=float(np.trapezoid(true_rate[corners], false_rate[corners])),
        false_positive_rates=bounds,
        true_positive_rates=tuple(
            float(true_rate[false_rate <= rate].max(initial=0.0)) for rate in bounds
        ),
        auc_error=_auc_error(values, members, _checked_groups(groups, values)),
    )


def _checked_groups(groups: Any, values: np.ndarray) -> np.ndarray:
    """Return the group of each score, a separate one by default."""
    if groups is None:
        return np.arange(len(values))
    numbers = np.asarray(groups)
    fits = numbers.shape == values.shape and numbers.dtype.kind in "iu"
    rule = "must be integers, one for each score"
    require(fits, "groups", rule, f"{numbers.dtype} {numbers.shape}", values.shape)
    return np.unique(numbers, return_inverse=True)[1]


def _auc_error(values: np.ndarray, members: np.ndarray, groups: np.ndarray) -> float:
    """Return the standard error of the area under the curve.

    A member's placement is the share of non-members that it beats, a non-member's the
    share of members that beat it; both have the AUC as their mean. Placements are added
    up within groups, and groups are independent.
    """
    sums, numbers = [], []
    for kind, sign in ((members, 1), (~members, -1)):
        ordered = np.sort(sign * values[~kind])
        sides = [
            np.searchsorted(ordered, sign * values[kind], s) for s in ("left", "right")
        ]
        placements = (sides[0] + sides[1]) / 2 / len(ordered)
        centred = placements - placements.mean()
        sums.append(np.bincount(groups[kind], centred, groups.max() + 1) / kind.sum())
        numbers.append(len(np.unique(groups[kind])))
    if min(numbers) < 2:
        return math.nan
    count = int(groups.max()) + 1
    variance = sum(n / (n - 1) * (s @ s) for n, s in zip(numbers, sums, strict=True))
    variance += 2 * count / (count - 1) * (sums[0] @ sums[1])
    return float(np.sqrt(max(variance, 0.0)))


def _curve(
    values: np.ndarray, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return false and true positives at each distinct score from the highest down."""
    # equal scores are one step of the curve: a threshold cannot part them
    order = np.argsort(-values, kind="stable")
    # of each score
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    hits = np.cumsum(members[order])[last]
    starting = np.array([0])
    return (
        np.concatenate([starting, 1 + last - hits]),
        np.concatenate([starting, hits]),
        np.concatenate([[np.inf], values[order][last]]),
    )


def _checked_images(images: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    guesses, originals = (np.asarray(each, np.float64) for each in (images, truth))
    require(
        guesses.ndim >= 3,
        "images",
        "must be [..., height, width, channels]",
        guesses.shape,
    )
    require(
        guesses.shape == originals.shape,
        "truth",
        "must have the images' shape",
        originals.shape,
    )
    check_finite_values(images=guesses, truth=originals)
    return guesses, originals


def _check_range(data_range: float) -> None:
    require(
        bool(0 < data_range < np.inf),
        "data_range",
        "must be positive",
        data_range,
    )
