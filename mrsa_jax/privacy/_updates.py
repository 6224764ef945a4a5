"""Among how many clients the update of each round is hidden, where updates drift.

The best linear estimate of client i's update x of round r from the sums y explains the
share

    h[i, r] = c^T M^-1 c,    c = D_i R e_r,    M = G o R + Omega / s^2

of its variance. P are the learnt sums, p_i its column of client i, D_i the diagonal
matrix of it, G = P P^T, R the kernel (correlation of one client's updates over the
rounds), Omega the noise's covariance, s the spread, o the entrywise product; M is the
covariance of the sums over s^2. With L the Cholesky factor of M the share is |L^-1
c|^2, and the first q entries of L^-1 c are those of the first q sums alone: what each
further sum tells comes for nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import is_chance, nan_unless
from mrsa_jax._core.matrices import correlations
from mrsa_jax._core.noise import check_in_spreads
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._enclosures import inverse_of_factor
from mrsa_jax.privacy._equal_columns import class_sizes
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._leverage import rounded
from mrsa_jax.privacy.solver import column_codes
from mrsa_watch._base.errors import check_number, require

MOST_MEMORY = 1 - 1e-6
_LEAST_EIGENVALUE = 1e-7
# what floats of 32 bits may take off the rules of a matrix that is traced
_TRACED_NEAR = 2e-6


def kernel_of(
    memory: Any, rounds: int, share: Any = 1.0
) -> Float64[np.ndarray, "rounds rounds"]:
    """Return R as a matrix, or raise.

    All but a share of the variance is fresh in each round.
    """
    kernel = _lasting(memory, rounds)
    lasting = check_number(share, "share", "must be a number from 0 to 1", 0.0, 1.0)
    is_one_round = np.eye(rounds) if np.ndim(memory) == 0 else kernel == 1
    return np.where(is_one_round, 1.0, lasting * kernel)


def _lasting(memory: Any, rounds: int) -> Float64[np.ndarray, "rounds rounds"]:
    """Return the kernel of what lasts, or raise."""
    array = host_array(memory, "memory")
    if array.ndim == 0:
        rule = (
            f"must be 1, or lie in [0, {MOST_MEMORY}], or be a kernel [rounds, rounds]"
        )
        rho = check_number(memory, "memory", rule, 0.0, 1.0)
        require(rho == 1.0 or rho <= MOST_MEMORY, "memory", rule, memory)
        return memory_kernel(np.arange(rounds), rho)
    rule = f"must be a number, or a kernel of shape [{rounds}, {rounds}]"
    good = array.shape == (rounds, rounds) and array.dtype.kind in "fiu"
    require(good, "memory", rule, f"{array.dtype}{list(array.shape)}")
    return correlations(array, "memory")


def traced_kernel(memory: Any, rounds: int, share: Any, dtype: Any) -> Array:
    """Return R of a memory or a share that is traced.

    All NaN where one of them is out of range.
    Values that are known are checked as `kernel_of` checks them.
    """
    if not is_traced(share):
        share = check_number(share, "share", "must be a number from 0 to 1", 0.0, 1.0)
    if not is_traced(memory):
        memory = _lasting(memory, rounds)
    lag_memory, lasting = jnp.asarray(memory, dtype), jnp.asarray(share, dtype)
    require(lasting.ndim == 0, "share", "must be one number", f"shape {lasting.shape}")
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    if lag_memory.ndim == 0:
        legal = ((lag_memory >= 0) & (lag_memory <= MOST_MEMORY)) | (lag_memory == 1)
        is_one_round = on_device(lags == 0)
        kernel = lag_memory ** on_device(lags, dtype)
    else:
        rule = f"must be a number, or a kernel of shape [{rounds}, {rounds}]"
        require(
            lag_memory.shape == (rounds, rounds),
            "memory",
            rule,
            f"shape {lag_memory.shape}",
        )
        kernel = (lag_memory + lag_memory.T) / 2
        gap = jnp.abs(jnp.diagonal(lag_memory) - 1).max()
        legal = is_nearly_semidefinite(lag_memory) & (gap <= _TRACED_NEAR)
        is_one_round = (kernel == 1) | on_device(lags == 0)
    legal &= is_chance(lasting)
    return nan_unless(
        legal, jnp.where(is_one_round, jnp.ones_like(kernel), lasting * kernel)
    )


def is_nearly_semidefinite(matrix: Array) -> Array:
    """Return whether a traced matrix is a covariance of variances of about 1.

    Symmetric and positive semidefinite, up to rounding of floats of 32 bits.
    """
    is_finite = jnp.isfinite(matrix)
    finite = jnp.where(is_finite, matrix, 0.0)
    is_symmetric = jnp.abs(finite - finite.T).max() <= _TRACED_NEAR
    least = jnp.linalg.eigvalsh((finite + finite.T) / 2)[0]
    return is_symmetric & (least >= -_TRACED_NEAR * len(matrix)) & is_finite.all()


def noise_of(
    noise: np.ndarray | None, rounds: int, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mark the sums that have noise, and return its covariance over s^2."""
    if noise is None:
        return np.zeros(rounds, np.bool_), np.zeros((rounds, rounds))
    check_in_spreads(noise, spread)
    if noise.ndim == 1:
        return noise != 0, np.diag(noise) / spread**2
    return (noise != 0).any(axis=1), noise @ noise.T / spread**2


def decided(
    histories: np.ndarray, kernel: np.ndarray, is_noisy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Decide which rows count, and which clients the rows of one time expose.

    Returns:
        bool `[batch, rounds]`; and `[batch, rounds, clients]`, from which row of its
        time on.
    """
    count, rounds, clients = histories.shape
    exact = histories * ~is_noisy[:, None]
    _, first, time = np.unique(
        kernel == 1, axis=0, return_index=True, return_inverse=True
    )
    if not is_noisy.all():
        least = float(np.linalg.eigvalsh(kernel[np.ix_(first, first)])[0])
        rule = (
            "must be positive definite where it is not 1, for sums without noise: "
            "eigenvalue"
        )
        require(least >= _LEAST_EIGENVALUE, "memory", rule, least)
    time = time.reshape(-1)
    sizes = np.bincount(time)
    if sizes.max() == 1:
        is_in = np.asarray(exact != 0, np.bool_)
        is_alone = is_in.sum(axis=-1, keepdims=True) == 1
        return is_noisy | is_in.any(axis=-1), np.asarray(is_in & is_alone)
    order = np.argsort(time, kind="stable")
    place = np.arange(rounds) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    groups = np.zeros((count, len(sizes), sizes.max(), clients), exact.dtype)
    groups[:, time[order], place] = exact[:, order]
    flat = groups.reshape(-1, *groups.shape[2:])
    is_new = np.diff(np.asarray(rank_trajectory(flat)), axis=-1, prepend=0) > 0
    first = np.asarray(first_exposure(flat)).reshape(count, len(sizes), clients)
    is_kept = np.empty((count, rounds), np.bool_)
    is_kept[:, order] = is_new.reshape(count, len(sizes), -1)[:, time[order], place]
    exposed = np.empty((count, rounds, clients), np.bool_)
    from_row = first[:, time[order]]
    exposed[:, order] = (from_row >= 0) & (from_row <= place[:, None])
    return is_noisy | is_kept, exposed


def exponents_of(histories: np.ndarray) -> np.ndarray:
    """Return the power of two that each row is divided by.

    Nothing is rounded, nothing overflows.
    """
    if histories.dtype == object:
        bits = np.frompyfunc(lambda value: int(value).bit_length(), 1, 1)(histories)
        return bits.max(axis=-1).astype(np.int64)
    ends = histories.max(axis=-1), histories.min(axis=-1)
    largest = np.maximum(ends[0].astype(np.float64), -ends[1].astype(np.float64))
    return np.frexp(largest)[1].astype(np.int64)


def as_floats(entries: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return entries as floats, each divided by its power of two."""
    if entries.dtype != object:
        return np.ldexp(entries.astype(np.float64), -exponents)
    divided = np.frompyfunc(lambda value, bits: int(value) / (1 << bits), 2, 1)
    return divided(entries, exponents).astype(np.float64)


def grams_of(histories: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return G of each history, a part of the clients after another."""
    count, rounds, clients = histories.shape
    grams = np.zeros((count, rounds, rounds))
    step = at_once("columns", 8 * count * rounds)
    for start in range(0, clients, step):
        part = as_floats(histories[..., start : start + step], exponents[..., None])
        grams += part @ part.swapaxes(1, 2)
    return grams


def participations(
    histories: np.ndarray, exponents: np.ndarray, is_kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each client in which rows it is, and with which weight.

    0 where it is in fewer.
    """
    count, rounds, clients = histories.shape
    is_in = (histories != 0) & is_kept[..., None]
    trial, client, row = np.nonzero(is_in.swapaxes(1, 2))
    owner = trial * clients + client
    sizes = np.bincount(owner, minlength=count * clients)
    # few sizes, as each is compiled
    most = min(rounds, -(-max(1, int(sizes.max())) // 8) * 8)
    at = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.zeros((count * clients, most), np.int32)
    weights = np.zeros((count * clients, most))
    places[owner, at] = row
    weights[owner, at] = as_floats(histories[trial, row, client], exponents[trial, row])
    return places.reshape(count, clients, -1), weights.reshape(count, clients, -1)


def covariances(
    grams: np.ndarray,
    exponents: np.ndarray,
    covariance: np.ndarray,
    is_kept: np.ndarray,
    kernel: np.ndarray,
) -> np.ndarray:
    """Return the covariances of the sums over s^2.

    Of rows that do not count, the identity.
    """
    scales = np.ldexp(1.0, -exponents)
    noise = covariance * scales[:, :, None] * scales[:, None, :]
    both = is_kept[:, :, None] & is_kept[:, None, :]
    return np.where(both, grams * kernel + noise, np.eye(len(kernel)))


_ROUNDING = 2.0**-53
MOST_ERROR = 5e-7  # of a share, relative to it: six digits
_BITS = 256  # of enclosures,
_RADIUS = 2.0**-60  # and their radius relative to the diagonal of the factor's inverse
_ABOVE = np.nextafter(1.0, 2.0)


def hidden_updates(
    histories: np.ndarray,
    kernel: np.ndarray,
    spread: float,
    noise: np.ndarray | None,
    how: str,
    *,
    lasting: np.ndarray | None = None,
    most_work: int,
) -> np.ndarray:
    """Return T of each update: a single sum of T clients would hide it equally well.

    Args:
        histories: Integers `[batch, rounds, clients]`.
        kernel: R `[rounds, rounds]`; 1 between sums of one round.
        spread: s.
        noise: Variances `[rounds]`, or a root of their covariance; None is none.
        how: "last" for each client's worst update after all sums, `[batch, clients]`;
            "sums" for that after each of them, `[batch, rounds, clients]`, of updates
            so far; "rounds" for each update after all sums, of the same shape, nan
            where a client is in no sum of the round.
        lasting: Covariance of what lasts of an update over the rounds, a R, to return
            how well that is hidden instead; None for the whole update.
        most_work: Cost of the factors that may be computed with enclosures, in all.

    Returns:
        float64; exactly 1 for those known exactly, inf for clients in no sum, nan where
        floats know fewer than six digits. At least the number of clients with the same
        column: one memory of all clients lets no estimate distinguish them.
    """
    count, rounds, clients = histories.shape
    is_noisy, covariance = noise_of(noise, rounds, spread)
    is_kept, exposed = decided(histories, kernel, is_noisy)
    target = kernel if lasting is None else lasting
    if lasting is not None:
        # what is fresh in a round stays in it, so sums never show exactly what lasts
        exposed = np.zeros_like(exposed)
    shares = np.zeros((count, clients) if how == "last" else histories.shape)
    budget = most_work
    for out, history, is_row in zip(shares, histories, is_kept, strict=True):
        # clients of one column are hidden alike, so each column is looked at once
        _, distinct, owner = np.unique(
            column_codes(history), return_index=True, return_inverse=True
        )
        sums = _Sums(history, kernel, covariance, is_row, target)
        whole = _Whole.of(sums, budget)
        budget -= whole.work
        by_column = np.zeros((*out.shape[:-1], len(distinct)))
        _fill(by_column, how, whole, sums, history[:, distinct])
        out[:] = by_column[..., owner]
    if how == "last":
        is_known = exposed.any(axis=1)
    elif how == "sums":
        is_known = np.logical_or.accumulate(exposed, axis=1)
    else:
        # sums of one round are of one update: what one tells, all tell
        same = kernel == 1
        shares, is_known = _over_round(shares, same), _over_round(exposed, same)
    with np.errstate(divide="ignore"):
        least = np.maximum(_least_of(histories, how), _ABOVE)
        hidden = np.where(is_known, 1.0, np.maximum(1 / shares, least))
    return np.where(histories != 0, hidden, np.nan) if how == "rounds" else hidden


def _over_round(values: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Return the largest value among the rows of each row's round."""
    groups, time = np.unique(same, axis=0, return_inverse=True)
    if len(groups) == len(same):
        return values
    largest = np.stack(
        [values[:, time == k].max(axis=1) for k in range(len(groups))], axis=1
    )
    return np.asarray(largest[:, time])


def _least_of(histories: np.ndarray, how: str) -> np.ndarray:
    """Count the clients with the column of each, in the shape of the result."""
    sizes = class_sizes(histories, last_only=how != "sums")
    return sizes[:, 0] if how == "last" else sizes


class _Sums(NamedTuple):
    """The learnt sums of a history.

    Attributes:
        history: Integers `[rounds, clients]`.
        kernel: R `[rounds, rounds]`.
        noise: Omega / s^2 `[rounds, rounds]`.
        is_kept: bool `[rounds]`, which rows count.
        target: Covariance of what is estimated with an update `[rounds, rounds]`, its
            own variance on the diagonal.
    """

    history: np.ndarray
    kernel: np.ndarray
    noise: np.ndarray
    is_kept: np.ndarray
    target: np.ndarray


class _Whole(NamedTuple):
    """The covariance of the learnt sums of a history over s^2, as its factor.

    Attributes:
        exponents: Which power of two each row is divided by, `[1, rounds]`.
        scales: What each sum is divided by, so that its variance is 1.
        inverse: L^-1 of the correlations.
        error: What shares are wrong by relative to them.
        least: The smallest share to be reported.
        work: What it cost, 0 where floats sufficed.
    """

    exponents: np.ndarray
    scales: np.ndarray
    inverse: np.ndarray
    error: float
    least: float
    work: int

    @staticmethod
    def of(sums: _Sums, most_work: int) -> _Whole:
        """Factor it, by enclosures where floats know fewer than six digits."""
        rows = sums.history[None]
        exponents = exponents_of(rows)
        grams = grams_of(rows, exponents)
        kept = sums.is_kept[None]
        (whole,) = covariances(grams, exponents, sums.noise, kept, sums.kernel)
        scales = 1 / np.sqrt(np.diagonal(whole))
        root = _inverse_root(whole * scales[:, None] * scales)
        work = 2 * int(sums.is_kept.sum()) ** 3
        if root[1] <= MOST_ERROR or work > most_work:
            return _Whole(exponents, scales, *root, work=0)
        exact = _enclosed_root(sums, np.ldexp(scales, -exponents[0]))
        return _Whole(exponents, scales, *(exact or root), work=work)


def _enclosed_root(
    sums: _Sums, divisors: np.ndarray
) -> tuple[np.ndarray, float, float] | None:
    """Return the results of `_inverse_root` for sums times divisors.

    None where balls are too wide. L^-1 is right to the last digit, and so is c to three
    roundings: with X = L^-1 the product X c errs by at most e = (t + 4) u |X|_F |c|,
    and |c| <= |L| |X c| <= sqrt(t) |X c|. So shares are wrong by 2 e + e^2 relative to
    them, and as much more as their sum is rounded by.
    """
    import flint

    used = np.flatnonzero(sums.is_kept)
    square = np.ix_(used, used)
    rows = [[int(value) for value in row] for row in sums.history[used]]
    with flint.ctx.workprec(_BITS):
        whole = flint.fmpz_mat(rows)
        gram = (whole * whole.transpose()).tolist()
        kernel = sums.kernel[square].tolist()
        noise = sums.noise[square].tolist()
        scales = [flint.arb(value) for value in divisors[used].tolist()]
        for j, row in enumerate(gram):
            for k, entry in enumerate(row):
                total = flint.arb(entry) * kernel[j][k] + noise[j][k]
                row[k] = total * scales[j] * scales[k]
        inverse = inverse_of_factor(gram)
        if inverse is None:
            return None
        for k, line in enumerate(inverse):
            if any(not entry.rad() <= _RADIUS * abs(line[k]) for entry in line):
                return None
        values = np.array([[float(entry.mid()) for entry in line] for line in inverse])
    rounds = len(sums.kernel)
    whole_inverse = np.eye(rounds)
    whole_inverse[square] = values
    length = float(np.linalg.norm(whole_inverse))
    error = (rounds + 4) * _ROUNDING * math.sqrt(rounds) * length
    return whole_inverse, 2 * error + error**2 + rounds * _ROUNDING, 0.0


def _fill(
    out: np.ndarray, how: str, whole: _Whole, sums: _Sums, columns: np.ndarray
) -> None:
    """Write the shares of columns of a history, those of many rounds first.

    NaN where a share is too small for floats to know it.
    """
    target = sums.target
    rounds = len(target)
    variance = float(target[0, 0])
    scales = whole.scales
    lines = np.ascontiguousarray(whole.inverse.T)
    sizes = np.count_nonzero(columns[sums.is_kept], axis=0)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        most = int(sizes[order[start]]) + 7
        step = at_once("leverage", 8 * 4 * most * (rounds + most))
        clients = order[start : start + step]
        start += step
        # the rows of each client, and its weights there, 0 behind the last
        ((places,), (weights,)) = participations(
            columns[None, :, clients], whole.exponents, sums.is_kept[None]
        )
        is_own = weights != 0
        covariance = target[places[:, :, None], places[:, None, :]]
        covariance *= (weights * scales[places])[:, :, None]
        seen = lines[places].swapaxes(1, 2) @ covariance  # L^-1 c of each own round
        np.square(seen, out=seen)
        seen /= variance
        if not whole.error <= MOST_ERROR:
            seen[:] = np.nan
        if how == "sums":
            is_past = is_own[:, None] & (places[:, None] <= np.arange(rounds)[:, None])
            shares = np.where(is_past, np.cumsum(seen, axis=1), 0.0).max(axis=2)
        else:
            shares = seen.sum(axis=1)
        if how == "last":
            shares = np.where(is_own, shares, 0.0).max(axis=1)
        is_small = (shares > 0) & (shares < whole.least)
        shares = np.where(is_small, np.nan, shares)
        if how == "rounds":
            client, place = np.nonzero(is_own)
            out[places[client, place], clients[client]] = shares[client, place]
        else:
            out[..., clients] = shares.T


def factor_of(whole: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return L^-1 of a covariance's correlations, scales, and the shares' error."""
    scales = 1 / np.sqrt(np.diagonal(whole))
    inverse, error, _ = _inverse_root(whole * scales[:, None] * scales)
    return inverse, scales, error


def _inverse_root(ratios: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return L^-1, the relative error of shares, and the smallest share to report.

    For a Cholesky factor and triangular solves (1 - e) M <= M + dM <= (1 + e) M, where
    e is (3 t (t + 1) + 8 t) u over the least eigenvalue q of the sums' correlations, t
    sums, u = 2^-53; rounding of c adds at most 4 u sqrt(t / q). Products by the inverse
    err alike, which tests show.
    """
    from scipy.linalg import solve_triangular

    rounds = len(ratios)
    smallest = float(np.linalg.eigvalsh(ratios)[0]) - rounds * _ROUNDING
    if smallest <= 0:  # above it the factor exists
        return np.zeros_like(ratios), np.inf, 0.0
    inverse = solve_triangular(np.linalg.cholesky(ratios), np.eye(rounds), lower=True)
    return inverse, *_errors(rounds, smallest, np)


def _errors(rounds: int, smallest: Any, library: Any) -> tuple[Any, Any]:
    """Return e, and the smallest share to be reported, by q or less."""
    error = (3 * rounds * (rounds + 1) + 8 * rounds) * _ROUNDING / smallest
    least = 4 * _ROUNDING * library.sqrt(rounds / smallest) / MOST_ERROR
    return error, least


def traced_updates(
    histories: Array,
    kernel: np.ndarray | Array,
    spread: float,
    noise: np.ndarray | None,
    how: str,
    lasting: np.ndarray | Array | None = None,
) -> Array:
    """Return `hidden_updates` of traced histories or kernels, R = 1 in no two rows.

    rounds^3 clients products, as which rounds are a client's own is not known.
    """
    is_noisy, covariance = noise_of(noise, histories.shape[1], spread)
    precision = jax.dtypes.canonicalize_dtype(np.float64)
    with jax.enable_x64(True):
        R, omega = on_device(kernel, jnp.float64), on_device(covariance, jnp.float64)
        rows = jnp.asarray(histories, jnp.float64)
        target = None if lasting is None else on_device(lasting, jnp.float64)
        sizes = jax.vmap(
            lambda history: _traced_shares(history, R, omega, is_noisy, how, target)
        )(rows)
        return rounded(sizes, precision, is_hidden=True)


def _traced_shares(
    P: Float64[Array, "rounds clients"],
    R: Array,
    omega: Array,
    is_noisy: np.ndarray,
    how: str,
    lasting: Array | None,
) -> Array:
    target = R if lasting is None else lasting
    is_in, rounds = P != 0, len(P)
    is_kept = is_in.any(axis=1) | is_noisy
    whole = jnp.where(
        is_kept[:, None] & is_kept[None], P @ P.T * R + omega, jnp.eye(rounds)
    )
    scales = lax.rsqrt(jnp.diagonal(whole))
    ratios = whole * scales[:, None] * scales[None]
    smallest = jnp.linalg.eigvalsh(ratios)[0] - rounds * _ROUNDING
    error, least = _errors(rounds, smallest, jnp)
    error = jnp.where(
        ((R == 1) & ~np.eye(rounds, dtype=np.bool_)).any(), jnp.inf, error
    )
    root = jnp.linalg.cholesky(ratios)
    inverse = lax.linalg.triangular_solve(
        root, jnp.eye(rounds), left_side=True, lower=True
    )
    weights = P * scales[:, None]

    def one_round(
        worst: Array, step: tuple[Array, Array, Array]
    ) -> tuple[Array, Array]:
        kernel, is_member, row = step
        seen = (inverse @ (weights * kernel[:, None])) ** 2 / target[0, 0]
        shares = jnp.where(is_member, seen.sum(axis=0), 0.0)
        if how == "sums":
            is_past = is_member[None] & (jnp.arange(rounds) >= row)[:, None]
            shares = jnp.where(is_past, jnp.cumsum(seen, axis=0), 0.0)
        shares = jnp.where(
            (shares > 0) & ((shares < least) | ~(error <= MOST_ERROR)), jnp.nan, shares
        )
        return jnp.maximum(worst, shares), shares

    nothing = jnp.zeros(P.shape if how == "sums" else P.shape[1:])
    worst, each = lax.scan(one_round, nothing, (target, is_in, jnp.arange(rounds)))
    exposed = is_in & (is_in.sum(axis=1, keepdims=True) == 1) & ~is_noisy[:, None]
    exposed &= lasting is None
    if how == "last":
        exposed = exposed.any(axis=0)
    elif how == "sums":
        exposed = lax.associative_scan(jnp.logical_or, exposed)
    hidden = jnp.where(
        exposed, 1.0, jnp.maximum(1 / (each if how == "rounds" else worst), _ABOVE)
    )
    hidden = nan_unless(jnp.isfinite(R).all(), hidden)
    return jnp.where(is_in, hidden, jnp.nan) if how == "rounds" else hidden
