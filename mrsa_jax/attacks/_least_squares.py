"""Least-squares reconstruction of single clients' updates from the sums of many rounds.

The server knows P (who was in which sum) and the sums Y = P X + Z; where X hardly moves
between rounds, X is nearly the solution of a linear system. Every estimate here is a
fixed matrix times the sums, so the sums may be as long as they like: they are read in
pieces along d. Source: Multi-RoundSecAgg (So et al., AAAI version), appendix, eq. (33)
to (35), Fig. 9.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from mrsa_jax import modular, privacy
from mrsa_jax._core.array_types import Floats, PRNGKey
from mrsa_jax._core.arrays import as_integers, host_array
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.matrices import NEAR, check_covariance
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import check_finite_values, check_not_negative, checked_view
from mrsa_jax.attacks.views import AggregateView
from mrsa_watch._base.errors import check_number, require
from mrsa_watch._base.values import by_value

_PRIORS = ("zero", "mean")
_MOST_MEMORY = 1 - 1e-6


@by_value
@dataclasses.dataclass(frozen=True, eq=False)
class LeastSquares:
    """The attack of eq. (34), plain or regularised (built by `least_squares_attack`).

    Attributes:
        ridge: Weight of the penalty on the squared length of what is added to the
            prior.
        noise: How much an update changes from sum to sum, relative to its own
            deviation.
        prior: What a client is taken to send of which the sums say nothing.
        memory: rho of updates that drift; None asks for one update, the same in all
            rounds.
        share: What of their variance has this memory.
        covariance: C [clients, clients] of the updates, by a server that knows it; None
            for clients that are alike.
    """

    ridge: float
    noise: float
    prior: Literal["zero", "mean"]
    memory: float | None = None
    share: float = 1.0
    covariance: np.ndarray | None = None

    def estimator(self, participation: Any) -> Float64[np.ndarray, "clients rounds"]:
        """Return the matrix that turns the sums into estimates.

        Args:
            participation: bool or integer weights [J, N].
        """
        weights = _checked_participation(participation, ndim=2)
        if self.covariance is not None:
            C = check_covariance(self.covariance, weights.shape[1])
            inverse = _of_unlike(weights, C, self.memory, self.share)
        elif self.memory is not None:
            inverse = _of_last_rounds(weights, self.memory, self.share)
        elif self.noise > 0:  # sums of many clients carry the noise of many
            lengths = np.sqrt(np.square(weights.astype(np.float64)).sum(axis=1))
            scale = _inverse_of_positive(lengths)
            inverse = _damped(weights * scale[:, None], self.noise**2) * scale[None, :]
        elif self.ridge > 0:
            inverse = _damped(weights.astype(np.float64), self.ridge)
        else:
            inverse = _pseudo_inverse(weights)
        total = int(weights.sum())
        if self.prior == "zero" or total == 0:
            return inverse
        # what the sums do not explain of a client comes from the mean of all updates
        unexplained = 1.0 - inverse @ weights.sum(axis=1, dtype=np.float64)
        return inverse + unexplained[:, None] / total

    @needs_values
    def run(self, key: PRNGKey | None, view: AggregateView) -> Floats:
        """Return estimates float64 [..., N, d]; nothing is drawn from `key`."""
        del key
        seen = checked_view(view, AggregateView)
        return self.estimates(seen.participation, seen.aggregates)

    def estimates(
        self,
        participation: Any,
        aggregates: Any,
        out: np.ndarray | None = None,
    ) -> Floats:
        """Return estimates; arguments and result as for `least_squares`."""
        weights = _checked_participation(participation)
        sums = _checked_sums(aggregates, weights)
        shape = (*weights.shape[:-2], weights.shape[-1], sums.shape[-1])
        if out is None:
            out = np.empty(shape, np.float64)
        require(
            out.shape == shape and out.dtype == np.float64 and out.flags.writeable,
            "out",
            "must be a writeable float64 array of the estimates' shape",
            f"{out.dtype} {out.shape}",
            shape,
        )
        for index in np.ndindex(weights.shape[:-2]):
            for piece, part in self._pieces(weights[index], sums[index]):
                out[(*index, slice(None), piece)] = part
        return out

    def _pieces(
        self, weights: np.ndarray, sums: np.ndarray
    ) -> Iterator[tuple[slice, Float64[np.ndarray, "clients piece"]]]:
        """Yield the estimates of one history piece by piece along d."""
        inverse = self.estimator(weights)
        # sums and estimates of a piece, whichever are more
        width = at_once("estimates", 8 * max(inverse.shape))
        for start in range(0, sums.shape[1], width):
            piece = slice(start, min(start + width, sums.shape[1]))
            some = np.asarray(sums[:, piece], np.float64)
            check_finite_values(aggregates=some)
            yield piece, inverse @ some


def least_squares_attack(
    *,
    ridge: float = 0.0,
    noise: float = 0.0,
    prior: Literal["zero", "mean"] = "zero",
    memory: float | None = None,
    share: float = 1.0,
    covariance: Any = None,
) -> LeastSquares:
    """Return the least-squares attack, plain or regularised.

    Args:
        ridge: lambda >= 0 of (P^T P + lambda I)^-1 P^T; 0 for the pseudo-inverse.
        noise: sigma >= 0: client i sends x_i plus fresh noise of sigma times its
            deviation in each sum, and the estimate is the best linear one, P^T (P P^T +
            sigma^2 D)^-1 with D the rows' sums of squares. Not together with `ridge`.
        prior: `"zero"` (the solution of least norm), or `"mean"`: what the sums do not
            reveal of a client is taken from the mean update of all sums.
        memory: rho from 0 to 0.999999: updates drift as in `privacy.hidden_among`, one
            row after another, and what is estimated is the update of each client's last
            own row. Alone.
        share: The share of an update's variance that has this memory.
        covariance: C [clients, clients] of the clients' updates, as for
            `privacy.hidden_among`: the best linear estimate of a server that knows how
            long updates are and which resemble each other. Without `ridge` and `noise`.

    Returns:
        The attack, for `run` or `estimates`.

    Raises:
        ConfigurationError: If a number is out of range, more than one of `ridge`,
            `noise` and `memory` is given, the prior is unknown, or `covariance` is none
            or given with `ridge` or `noise`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> sums = np.array([[6.0]])
        >>> view = mj.attacks.views.AggregateView(np.array([[1, 1, 0]]), sums)
        >>> attack = mj.attacks.least_squares_attack(prior="mean")
        >>> attack.run(None, view).ravel().tolist()
        [3.0, 3.0, 3.0]
    """
    check_not_negative(ridge=ridge, noise=noise)
    require(ridge == 0 or noise == 0, "noise", "must be 0 with a `ridge`", noise, ridge)
    require(prior in _PRIORS, "prior", f"must be one of {_PRIORS}", prior)
    check_number(share, "share", "must be a number from 0 to 1", 0.0, 1.0)
    if memory is not None:
        rule = f"must lie in [0, {_MOST_MEMORY}]"
        rule += "; leave it out for updates that never change"
        check_number(memory, "memory", rule, 0.0, _MOST_MEMORY)
        require(
            ridge == noise == 0,
            "memory",
            "must stand without `ridge` and `noise`",
            memory,
        )
    if covariance is not None:
        rule = "must stand without `ridge` and `noise`"
        require(
            ridge == noise == 0, "covariance", rule, f"ridge {ridge}, noise {noise}"
        )
        covariance = check_covariance(covariance, len(np.atleast_1d(covariance)))
    return LeastSquares(
        float(ridge),
        float(noise),
        prior,
        memory,
        float(share),
        covariance,
    )


_PLAIN = least_squares_attack()


@needs_values
def least_squares(
    participation: Any,
    aggregates: Any,
    *,
    attack: LeastSquares = _PLAIN,
    out: np.ndarray | None = None,
) -> Floats:
    """Estimate every client's update from the sums by least squares of least norm.

    X_hat = P^+ Y. Where P has full column rank this is eq. (34), and it is exact if the
    updates did not change between the sums. Clients who only ever move together have
    equal columns in P; the solution of least norm gives each of a block of T the
    block's estimated sum / T, which the paper names as the server's best. A client who
    never took part gets zeros.

    The rank is computed exactly (modulo primes), not read off the singular values; the
    solution itself is float64. Cost: one singular value decomposition of the J x
    distinct-columns matrix, then J N d multiplications in pieces along d.

    Args:
        participation: bool or integer weights [..., J, N], one row for each sum that
            was learnt (a zero row, a skipped round, says nothing and does no harm).
            Leading axes are separate histories: windows, seeds, schemes.
        aggregates: Real [..., J, d], plain sums P @ X (not means), finite; read in
            pieces, so a `np.memmap` need not fit the memory.
        attack: A regularised variant (`least_squares_attack`).
        out: Where to write, float64 [..., N, d], e.g. a `np.memmap`; a new array if
            None.

    Returns:
        float64 [..., N, d].

    Raises:
        ConfigurationError: If weights are fractions, shapes do not fit or a sum is not
            finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> history = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
        >>> updates = np.array([[1.0], [3.0], [5.0], [5.0]])
        >>> estimates = mj.attacks.least_squares(history, history @ updates)
        >>> estimates.round(6).ravel().tolist()
        [2.0, 2.0, 5.0, 5.0]

    Source: Multi-RoundSecAgg, eq. (34). Differs from the paper in using the
    pseudo-inverse also where P has full column rank (the same solution), since random
    histories are singular at times.
    """
    return attack.estimates(participation, aggregates, out)


@needs_values
def predicted_error(
    participation: Any,
    *,
    noise: float = 0.0,
    memory: float | None = None,
    share: float = 1.0,
) -> Floats:
    """Return the error to expect for each client: 1 - 1/`privacy.hidden_among`.

    The mean of `reconstruction_error` over unrelated updates of equal length that do
    not change, or with `noise`, of the attack with that `noise` on updates that change
    by it: with R = P^+ P client i's estimate is sum_j R_ij x_j, whose expected relative
    squared error is (1 - R_ii)^2 + sum_{j != i} R_ij^2 = 1 - R_ii. Where updates
    resemble each other, the estimate of a block's mean is nearer than this.

    Args:
        participation: bool or integer weights [..., J, N].
        noise: As for `least_squares_attack`.
        memory: As for `least_squares_attack`: the error in the update of the last own
            row.
        share: As for `least_squares_attack`.

    Returns:
        float64 [..., N]: exactly 0 for those who are exposed without noise; 1 for those
        in no sum.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.attacks.predicted_error([[1, 1, 0], [0, 0, 1]]).round(6).tolist()
        [0.5, 0.5, 0.0]
    """
    P = host_array(as_integers(participation, "participation"), "participation")
    check_not_negative(noise=noise)
    if memory is not None:
        hidden = privacy.hidden_among(P, memory=memory, share=share, each_round=True)
        last = _last_rows(P)[..., None, :]
        hidden = np.take_along_axis(np.asarray(hidden), last, axis=-2)
        return 1.0 - np.where(P.any(axis=-2), 1 / hidden[..., 0, :], 0.0)
    if noise == 0:
        return 1.0 - 1.0 / np.asarray(privacy.hidden_among(P))
    among = []
    for history in P.reshape(-1, *P.shape[-2:]):
        squares = (history.astype(np.float64) ** 2).sum(axis=1)
        among.append(privacy.hidden_among(history, noise=noise**2 * squares))
    return 1.0 - 1.0 / np.reshape(among, (*P.shape[:-2], P.shape[-1]))


@needs_values
def reconstruction_error(true_updates: Any, estimates: Any) -> Floats:
    """Return each client's relative squared error, ||x_i - x_hat_i||^2 / ||x_i||^2.

    0 is a perfect reconstruction. A client who never took part has the estimate 0 and
    so the error 1; an estimate of the block's mean instead of one of T unrelated
    updates of equal norm has the error 1 - 1/T on average.

    Args:
        true_updates: Real [..., N, d].
        estimates: Real [..., N, d].

    Returns:
        float64 [..., N]; nan for a client whose true update is zero (there is nothing
        to scale by).

    Raises:
        ConfigurationError: If the shapes differ.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.attacks.reconstruction_error(
        ...     [[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]]
        ... ).tolist()
        [0.0, 1.0]

    Source: Multi-RoundSecAgg, eq. (35).
    """
    truth = np.asarray(true_updates, np.float64)
    guess = np.asarray(estimates, np.float64)
    require(
        truth.ndim >= 2 and truth.shape == guess.shape,
        "estimates",
        "must have the shape of `true_updates`, clients x dimensions",
        guess.shape,
        truth.shape,
    )
    wrong = np.square(truth - guess).sum(axis=-1)
    return _relative(wrong, np.square(truth).sum(axis=-1))


@needs_values
def streamed_errors(
    participation: Any,
    aggregates: Any,
    true_updates: Any,
    *,
    attack: LeastSquares = _PLAIN,
) -> Floats:
    """Return `reconstruction_error` of `least_squares` without holding the estimates.

    Args:
        participation: bool or integer weights [..., J, N].
        aggregates: Real [..., J, d], plain sums.
        true_updates: Real [..., N, d], e.g. a `np.memmap`.
        attack: A regularised variant (`least_squares_attack`).

    Returns:
        float64 [..., N].

    Raises:
        ConfigurationError: As `least_squares`; if `true_updates` does not fit.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> history, updates = np.eye(2, dtype=int), np.array([[1.0, 2.0], [3.0, 4.0]])
        >>> errors = mj.attacks.streamed_errors(history, history @ updates, updates)
        >>> errors.round(6).tolist()
        [0.0, 0.0]
    """
    weights = _checked_participation(participation)
    sums, truth = _checked_sums(aggregates, weights), np.asanyarray(true_updates)
    shape = (*weights.shape[:-2], weights.shape[-1], sums.shape[-1])
    require(
        truth.shape == shape,
        "true_updates",
        "must have a row for each client and the sums' length",
        truth.shape,
        shape,
    )
    errors = np.empty(shape[:-1], np.float64)
    for index in np.ndindex(shape[:-2]):
        wrong, size = np.zeros(shape[-2]), np.zeros(shape[-2])
        for piece, part in attack._pieces(weights[index], sums[index]):
            updates = np.asarray(truth[index][:, piece], np.float64)
            wrong += np.square(updates - part).sum(axis=1)
            size += np.square(updates).sum(axis=1)
        errors[index] = _relative(wrong, size)
    return errors


def _relative(squared_error: np.ndarray, squared_norm: np.ndarray) -> np.ndarray:
    errors = np.full(squared_norm.shape, np.nan)
    np.divide(squared_error, squared_norm, out=errors, where=squared_norm > 0)
    return errors


def _checked_participation(participation: Any, ndim: int | None = None) -> np.ndarray:
    integers = as_integers(participation, "participation", min_ndim=1)
    weights = host_array(integers, "participation")
    require(
        weights.ndim >= 2 if ndim is None else weights.ndim == ndim,
        "participation",
        "must have a row for each sum and a column for each client",
        weights.shape,
    )
    return weights.astype(np.int64)


def _checked_sums(aggregates: Any, weights: np.ndarray) -> np.ndarray:
    """Return the sums as they are (they may lie in a file).

    Whether they are finite shows later.
    """
    sums = host_array(aggregates, "aggregates")
    require(
        sums.ndim == weights.ndim and sums.shape[:-1] == weights.shape[:-1],
        "aggregates",
        "must have one row for each row of `participation`",
        sums.shape,
        weights.shape,
    )
    require(
        sums.dtype.kind in "fiu",
        "aggregates",
        "must be real numbers",
        f"dtype {sums.dtype}",
    )
    return sums


def _last_rows(P: np.ndarray) -> np.ndarray:
    """Return the last row `[..., N]` that each client is in.

    The last of all if in none.
    """
    return np.asarray(P.shape[-2] - 1 - np.argmax(P[..., ::-1, :] != 0, axis=-2))


def _of_last_rounds(weights: np.ndarray, memory: float, share: float) -> np.ndarray:
    """Return R[r, :] D_i ((P P^T) o R)^-1 [N, J], r the last row of each client."""
    P = weights.astype(np.float64)
    kernel = memory_kernel(np.arange(len(P)), memory, share)
    covariance = P @ P.T * kernel
    lengths = np.sqrt(np.diagonal(covariance))
    scale = _inverse_of_positive(lengths)
    # unit diagonal: rounds of many clients do not outweigh those of few
    ratios = covariance * scale[:, None] * scale
    np.fill_diagonal(ratios, 1.0)  # rows of nobody as well
    # correlation of each row's updates with those of the client's last row
    alike = P * kernel[:, _last_rows(weights)] * scale[:, None]
    return np.asarray(np.linalg.solve(ratios, alike).T * scale)


def _of_unlike(
    weights: np.ndarray,
    C: Float64[np.ndarray, "clients clients"],
    memory: float | None,
    share: float,
) -> Float64[np.ndarray, "clients rounds"]:
    """Return the best linear estimator of the update that each client sent last.

    Without a memory, updates never change. The model is that of
    `privacy.hidden_among` with a covariance.
    """
    P = weights.astype(np.float64)
    when = np.arange(len(P))
    lasting = np.ones((len(P), len(P)))
    fresh = np.zeros_like(lasting)
    if memory is not None:
        lasting = share * memory_kernel(when, memory)
        fresh = (1 - share) * np.eye(len(P))
    variances = np.diagonal(C)
    sums = (P @ C @ P.T) * lasting + ((P * variances) @ P.T) * fresh
    last = _last_rows(weights)
    joint = (P @ C) * lasting[:, last] + (P * variances) * fresh[:, last]
    scale = _inverse_of_positive(np.sqrt(np.diagonal(sums)))
    ratios = sums * scale[:, None] * scale
    # rounds of the same cohort say the same twice: no inverse, a pseudo-inverse
    inverse = np.linalg.pinv(ratios, rcond=NEAR, hermitian=True)
    return np.asarray((inverse @ (joint * scale[:, None])).T * scale)


def _inverse_of_positive(lengths: np.ndarray) -> np.ndarray:
    """Return 1 / lengths, 0 where a length is 0."""
    return np.divide(
        1.0,
        lengths,
        out=np.zeros(len(lengths)),
        where=lengths > 0,
    )


def _damped(weights: np.ndarray, penalty: float) -> np.ndarray:
    """Return (P^T P + penalty I)^-1 P^T [N, J]."""
    left, values, right = np.linalg.svd(weights, full_matrices=False)
    return (right.T * (values / (values**2 + penalty))) @ left.T


def _pseudo_inverse(weights: np.ndarray) -> np.ndarray:
    """Return P^+ [N, J], cutting the singular values at the exact rank.

    Equal columns are merged first: with multiplicity m, scaling the merged column by
    sqrt(m) keeps the solution of least norm, which it then shares out equally.
    """
    columns, of_client, counts = np.unique(
        weights, axis=1, return_inverse=True, return_counts=True
    )
    of_client = of_client.reshape(-1)
    # exact, so that no tolerance decides which singular values count
    rank = int(modular.rank(columns))
    if rank == 0:
        return np.zeros((weights.shape[1], weights.shape[0]))
    scale = np.sqrt(counts.astype(np.float64))
    left, values, right = np.linalg.svd(columns * scale[None, :], full_matrices=False)
    inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    return (inverse / scale[:, None])[of_client]
