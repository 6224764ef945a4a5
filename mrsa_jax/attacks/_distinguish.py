"""Whether a client's updates were shifted: the best test on the sums of many rounds.

The server knows everything but the others' updates, which it takes for Gaussian, and
what the shift would be. The sums less all that is known of them are then N(0, M) or
N(shift p_i, M), with M = s^2 (P P^T - p_i p_i^T) o R + Omega: R says how much the
others' updates are alike from round to round, o is the product by entries, Omega the
noise. The likelihood ratio is monotone in p_i^T M^-1 y, so by Neyman and Pearson no
test does better than a threshold on it. What it attains is what
`privacy.distinguishability` says, where the others' updates do not change (R of ones).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Float64

from mrsa_jax._core.array_types import Floats, PRNGKey
from mrsa_jax._core.arrays import as_integers, host_array, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.noise import check_noise, check_spread
from mrsa_jax._core.streams import as_key, fold
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import checked_view
from mrsa_jax.attacks.views import AggregateView
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

_ROUNDING = 1e-12  # of an eigenvalue of M, relative to its largest
_NOTHING = 1e-7  # of a column's part in a direction without variance


@by_value
class BestTest(NamedTuple):
    """A linear statistic of the sums along the shift, and how well it tells.

    Attributes:
        weights: float64 [J]; the score is weights . y, less `middle`.
        mu: The score is N(0, 1) without the shift and N(mu, 1) with it; where mu is
            infinite, minus and plus infinity.
        middle: 0; where mu is infinite half of the shift.
    """

    weights: Float64[np.ndarray, " rounds"]
    mu: float
    middle: float = 0.0

    def scores(self, sums: Any) -> Floats:
        """Return scores of sums along the shift, [..., J], less their known part."""
        values = np.asarray(sums, np.float64) @ self.weights - self.middle
        certain = np.where(values > 0, np.inf, -np.inf)
        return np.asarray(certain if np.isinf(self.mu) else values, np.float64)


@dataclasses.dataclass(frozen=True)
@by_value
class Distinguish:
    """A test of whether a client's updates were shifted, built by `distinguish`.

    Attributes:
        client: Index of the client whose updates may be shifted.
        shift: float64 [d], the vector that is added to each of its updates.
        spread: Standard deviation of the others' updates along the shift, or None: they
            are known.
        noise: Variance or covariance of the sums' noise along the shift, as for
            `privacy.distinguishability`.
        kernel: float64 [J, J], the correlation R of updates over the J rounds; None if
            it is one everywhere.
    """

    client: int
    shift: np.ndarray
    spread: float | None
    noise: Any
    kernel: np.ndarray | None

    def test(self, participation: Any) -> BestTest:
        """Return the best test for a history of sums.

        Args:
            participation: bool or integer weights [J, N].

        Raises:
            ConfigurationError: If there is no such client, or the noise or the kernel
                does not fit the rounds.
        """
        weights, noise, kernel = self._parts(participation)
        column = weights[:, self.client]
        covariance = noise @ noise.T
        if kernel is not None:
            others = np.delete(weights, self.client, axis=1) * self.spread
            covariance = covariance + (others @ others.T) * (kernel @ kernel.T)
        return _best(column, covariance, float(np.linalg.norm(self.shift)))

    @needs_values
    def run(self, key: PRNGKey | None, view: AggregateView) -> float:
        """Return the score of what a server saw: high where the updates were shifted.

        Args:
            key: Nothing is drawn from it.
            view: Participation and sums [J, d], less what is known of them: the
                client's updates without the shift, and what is expected of the others'.

        Raises:
            ConfigurationError: If the view is of another type or does not fit.
        """
        del key
        seen = checked_view(view, AggregateView)
        sums = np.asarray(seen.aggregates, np.float64)
        test = self.test(seen.participation)
        shape = (len(test.weights), len(self.shift))
        require(
            sums.shape == shape and bool(np.isfinite(sums).all()),
            "aggregates",
            "must be finite, with a row for each round and the shift's entries",
            sums.shape,
            shape,
        )
        return float(test.scores(sums @ self.shift / np.linalg.norm(self.shift)))

    @needs_values
    def play(
        self,
        seed: int | PRNGKey,
        participation: Any,
        num_trials: int,
    ) -> tuple[Float64[np.ndarray, " trials"], Float64[np.ndarray, " trials"]]:
        """Return the scores of simulated histories, without the shift and with it.

        The others' updates along the shift and the noise are drawn, Gaussian, anew in
        each trial.

        Args:
            seed: JAX key or seed.
            participation: As of `test`.
            num_trials: Of each kind.

        Raises:
            ConfigurationError: As `test`; if the trials are no positive integer.
        """
        key, test = as_key(seed), self.test(participation)
        weights, noise, kernel = self._parts(participation)
        count = check_integer(num_trials, "num_trials", 1)
        others = np.delete(weights, self.client, axis=1) * (self.spread or 0.0)
        has_kernel = self.kernel is not None and kernel is not None
        arrays = (
            on_device(others, jnp.float32),
            on_device(noise, jnp.float32),
            on_device(kernel, jnp.float32) if has_kernel else None,
        )
        rounds, num_others = others.shape
        # floats of one history: fresh updates per round only where they change
        width = num_others * (rounds if has_kernel else 1) + rounds
        step = min(at_once("leverage", 8 * width), count)
        column = float(np.linalg.norm(self.shift)) * weights[:, self.client]
        scores = []
        for with_shift in (False, True):
            parts = []
            for i in range(-(-count // step)):
                sums = _sums(fold(key, int(with_shift), i), *arrays, step)
                shifted = np.asarray(sums, np.float64) + with_shift * column
                parts.append(test.scores(shifted))
            scores.append(np.concatenate(parts)[:count])
        return scores[0], scores[1]

    def _parts(
        self, participation: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the weights, and roots of the noise's covariance and of R.

        The root of R is None where the others' updates are known.
        """
        weights = np.asarray(as_integers(participation, "participation"))
        require(
            weights.ndim == 2,
            "participation",
            "must be [rounds, clients]",
            weights.shape,
        )
        rounds, clients = weights.shape
        require(
            self.client < clients,
            "client",
            f"must be one of the {clients} clients of `participation`",
            self.client,
        )
        noise = _root(self.noise, rounds, "noise")
        kernel = None
        if self.spread is not None:
            alike = np.ones((rounds, rounds)) if self.kernel is None else self.kernel
            kernel = _root(alike, rounds, "kernel")
        return weights.astype(np.float64), noise, kernel


def distinguish(
    client: Any,
    shift: Any = 1.0,
    *,
    spread: Any = 1.0,
    noise: Any = 0.0,
    kernel: Any = None,
) -> Distinguish:
    """Return the best test of whether a client's updates were shifted.

    Args:
        client: Index of the client.
        shift: What is added to each of its updates: a vector [d], or for sums of one
            entry a number; not 0, finite.
        spread: Standard deviation of the others' updates along the shift, positive;
            None where they are known.
        noise: Variance of each sum's noise along the shift: a number, [J], or the
            covariance [J, J].
        kernel: R [J, J], how much an update of the others is alike from round to round,
            positive semidefinite (spread^2 R is its covariance); None where it does not
            change.

    Returns:
        The attack: `.test(P)` for weights and mu, `.run(None, view)` for a score, and
        `.play(seed, P, trials)` for scores of simulated rounds.

    Raises:
        ConfigurationError: If an argument is out of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> P = np.array([[1, 1, 1, 0], [0, 1, 1, 1]])
        >>> attack = mj.attacks.distinguish(0, shift=2.0)
        >>> # 2^2 (1, 0) M^-1 (1, 0)^T, M = [[2, 2], [2, 3]]
        >>> round(attack.test(P).mu ** 2, 12)
        6.0
        >>> (mj.privacy.distinguishability(P, shift=2.0).mu[0] ** 2).round(12).tolist()
        6.0
        >>> without, shifted = attack.play(0, P, 20_000)
        >>> bool(abs(shifted.mean() - without.mean() - attack.test(P).mu) < 0.05)
        True

    Source: Neyman, Pearson (1933); the statistic is that of
    `privacy.distinguishability`.
    """
    vector = np.atleast_1d(host_array(shift, "shift"))
    is_vector = vector.ndim == 1 and vector.dtype.kind in "fiu"
    require(
        is_vector and bool(np.isfinite(vector).all() and vector.any()),
        "shift",
        "must be a number or a vector, finite and not 0",
        shift,
    )
    number = check_integer(client, "client", 0)
    deviation = None if spread is None else check_spread(spread)
    noise = host_array(noise, "noise")
    _root(noise, noise.shape[0] if noise.ndim else 1, "noise")
    if kernel is not None:
        kernel = host_array(kernel, "kernel")
        require(
            kernel.ndim == 2,
            "kernel",
            "must be a matrix [rounds, rounds]",
            kernel.shape,
        )
        _root(kernel, len(kernel), "kernel")
    return Distinguish(number, vector.astype(np.float64), deviation, noise, kernel)


def _root(values: Any, rounds: int, argument: str) -> np.ndarray:
    noise = check_noise(values, rounds, argument)
    if noise is None:
        return np.zeros((rounds, rounds))
    return np.diag(np.sqrt(noise)) if noise.ndim == 1 else noise


def _best(column: np.ndarray, covariance: np.ndarray, shift: float) -> BestTest:
    """Return p^T M^-1 in units in which the score has variance 1.

    Where p leaves the range of M, what leaves it shows the shift as it is.
    """
    # rounds of many clients and of few differ by orders of magnitude: scale first
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / scale[:, None] / scale[None, :])
    parts = vectors.T @ (column / scale)
    varies = values > _ROUNDING * max(float(values.max()), 1.0)
    # in a direction without variance any shift shows itself
    bare = np.where(varies, 0.0, parts)
    if np.linalg.norm(bare) > _NOTHING * np.linalg.norm(parts):
        return BestTest(vectors @ bare / scale / (bare @ bare), np.inf, shift / 2)
    ratios = np.where(varies, parts / np.where(varies, values, 1.0), 0.0)
    size = float(np.sqrt(ratios @ parts))
    weights = vectors @ ratios / scale
    return BestTest(weights / size if size > 0 else weights, shift * size)


@functools.partial(jax.jit, static_argnames="count")
def _sums(
    key: Array,
    weights: Float32[Array, "rounds others"],
    noise: Float32[Array, "rounds rounds"],
    kernel: Float32[Array, "rounds rounds"] | None,
    count: int,
) -> Float32[Array, "{count} rounds"]:
    """Draw the unknown part of the sums along the shift, for `count` histories."""
    of_others, of_noise = jax.random.split(key)
    rounds, others = weights.shape
    product = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    if kernel is None:
        updates = jax.random.normal(of_others, (count, others), jnp.float32)
        sums = product("bn,jn->bj", updates, weights)
    else:
        steps = jax.random.normal(of_others, (count, others, rounds), jnp.float32)
        sums = product("jn,jk,bnk->bj", weights, kernel, steps)
    drawn = jax.random.normal(of_noise, (count, rounds), jnp.float32)
    return sums + product("jk,bk->bj", noise, drawn)
