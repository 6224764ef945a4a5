"""Among how many clients each one is hidden: a graded measure next to T.

The first functions decide the figures that floats do not know, by balls; the public
ones follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.matrices import check_covariance
from mrsa_jax._core.noise import check_in_spreads, check_noise, check_spread
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._coalitions import check_coalition, in_time, without
from mrsa_jax.privacy._enclosures import inverse_of_factor
from mrsa_jax.privacy._equal_columns import class_sizes
from mrsa_jax.privacy._leverage import (
    LAST_ROUND,
    Request,
    as_floats,
    leverages,
    quantiles_of,
)
from mrsa_jax.privacy._resemblance import hidden_with_covariance
from mrsa_jax.privacy._updates import (
    hidden_updates,
    kernel_of,
    traced_kernel,
    traced_updates,
)
from mrsa_jax.privacy.solver import column_codes
from mrsa_watch._base.errors import check_number, require

# Among how many clients each is hidden, where floats do not know it: integers and
# enclosures.
#
# The Gram matrix of the rows is exact, and what follows from it is computed with balls
# of as many bits as nine digits need: a midpoint and a proven bound of what it is wrong
# by (Arb, in python-flint). `work` bounds what it costs: a history too large is left
# open.

MOST_WORK = 5 * 10**8  # as `work` counts: some seconds on a core
_BITS = (192, 512, 2048)
_RADIUS = 1e-13  # of the figures, relative to them
_NOTHING = 1e-30


def work(rounds: int, columns: int, *, has_noise: bool) -> int:
    """Bound the cost of `excess`: rows x rows x (rows + distinct columns)."""
    rank = rounds if has_noise else min(rounds, columns)
    return rank**2 * (rank + columns)


def excess(
    history: np.ndarray, variances: np.ndarray | None, *, last_only: bool
) -> np.ndarray | None:
    """Return T - 1 of each client after each round, T among how many it is hidden.

    Args:
        history: Integers `[rounds, clients]`.
        variances: Of the noise over the spread's square, `[rounds]`.
        last_only: Whether only after the last round.

    Returns:
        float64 `[rounds, clients]`, or `[1, clients]`: right to nine digits and more,
        inf for those in no sum; 0 for the exposed, and who is not told from them. None
        if balls do not tell.
    """
    is_noisy = np.zeros(len(history), np.bool_) if variances is None else variances > 0
    quiet = np.asarray(history * ~is_noisy[:, None])
    is_new = is_noisy | (np.diff(np.asarray(rank_trajectory(quiet)), prepend=0) > 0)
    rank = int(is_new.sum())
    if not rank:
        return np.full((1 if last_only else len(history), history.shape[1]), np.inf)
    # clients of one column are hidden alike, so each column is looked at once
    _, first, owner = np.unique(
        column_codes(history[is_new]), return_index=True, return_inverse=True
    )
    rows = [[int(value) for value in row] for row in history[is_new]]
    columns = [[int(value) for value in row] for row in history[is_new][:, first]]
    noise = [0.0] * rank if variances is None else variances[is_new].tolist()
    for bits in _BITS:
        values = _enclosed(rows, columns, noise, bits, last_only)
        if values is not None:
            levels = np.cumsum(is_new)[-1:] if last_only else np.cumsum(is_new)
            values = np.concatenate([np.full((1, len(first)), np.inf), values])
            return np.asarray(values[1:] if last_only else values[levels])[:, owner]
    return None


def _enclosed(
    rows: list[list[int]],
    columns: list[list[int]],
    noise: list[float],
    bits: int,
    last_only: bool,
) -> np.ndarray | None:
    """Return T - 1 `[rank, columns]`, or only the last row.

    None where balls are too wide.
    """
    import flint

    with flint.ctx.workprec(bits):
        whole = flint.fmpz_mat(rows)
        gram = flint.arb_mat(whole * whole.transpose()).tolist()
        for k, variance in enumerate(noise):
            gram[k][k] += flint.arb(variance)
        inverse = inverse_of_factor(gram)
        if inverse is None:
            return None
        units = flint.arb_mat(inverse) * flint.arb_mat(flint.fmpz_mat(columns))
        values = []
        for entries, column in zip(
            units.transpose().tolist(), zip(*columns, strict=True), strict=True
        ):
            shares = _sums_of_squares(entries, column)
            wanted = shares[-1:] if last_only else shares
            values.append([_excess_of(share) for share in wanted])
    if any(None in each for each in values):
        return None
    return np.array(values, np.float64).T


def _sums_of_squares(entries: Sequence[Any], column: Sequence[int]) -> list[Any]:
    """Return the shares after each row.

    Exactly 0 before the first one that the column is in.
    """
    before = next((k for k, value in enumerate(column) if value), len(column))
    later = itertools.accumulate(entry * entry for entry in entries[before:])
    return [entries[0] * 0] * before + list(later)


def _excess_of(share: Any) -> float | None:
    """Return (1 - h)/h of a ball h; 0 for one that cannot be distinguished from 1."""
    if share == 0:
        return float("inf")
    if not share > 0:
        return None
    value = (1 - share) / share
    if value > 0 and value.rad() <= _RADIUS * value:
        return float(value)
    return 0.0 if abs(value) < _NOTHING else None


# floats see no smaller noise next to the sums
_LEAST_NOISE = 1e-9
_ABOVE = np.nextafter(1.0, 2.0)


def hidden_among(
    P: Any,
    *,
    noise: Any = 0.0,
    spread: Any = 1.0,
    coalition: Any = (),
    memory: Any = 1.0,
    share: Any = 1.0,
    of: Any = "update",
    covariance: Any = None,
    each_round: bool = False,
) -> (
    Float[np.ndarray | Array, "... clients"] | Float64[np.ndarray, "... rounds clients"]
):
    """Return for each client the size of one sum that would hide it equally well.

    Use it together with weak privacy T, which counts the clients in a combination but
    not how well they are hidden in it: a combination of twelve clients may be all but
    one client's update. It is cheap for any size, and shows which clients a history
    leaks.

    It is 1/h_i of the leverage h_i = p_i^T (P P^T + Omega/s^2)^+ p_i, where p_i is the
    i-th column of P: the share of the variance of client i's update that the best
    linear estimate from the sums explains. One sum of K clients has h = 1/K. Without
    noise h_i is the largest v_i^2/|v|^2 over the vectors v of P's row space. So over
    the clients that took part

        strong T <= the smallest <= weak T:

    in a class of m clients with equal columns v is constant, |v|^2 >= m v_i^2 and h_i
    <= 1/m; and of the w entries of a v of smallest support one has v_i^2 >= |v|^2/w.
    (Of one client alone that is not true: the first of v = (1, 100) is hidden among
    10,001, in a combination of two.) The leverages add up to the rank, whatever the
    scheme. No member of a class of m clients with equal columns is hidden among fewer
    than m, and each among exactly m where the sum of the class follows from the sums:
    integers decide that.

    **Where updates drift** (`memory`, `share`) the figure is of the update of one
    round: with R the correlation of a client's updates over the rounds, D_i = diag(p_i)
    and c = D_i R e_r, all sums explain the share h[i, r] = c^T ((P P^T) o R +
    Omega/s^2)^-1 c of the variance of client i's update of round r. What is returned is
    the worst over the client's own rounds, or each. Updates that never change are the
    worst of all drifts that clients share: h never falls as memory or share rises. R =
    1 gives the number of clients in the round.

    **What lasts** (`of="lasting"`) is the part of an update that has the memory,
    without what is fresh in each round: what a client *is* shows in it. Of its variance
    all sums explain the share h = c^T ((P P^T) o K + Omega/s^2)^-1 c / a with a the
    share that lasts, K = a R + (1 - a) I and c = a D_i R e_r. Fresh parts average out
    over many rounds, so what lasts comes to light although each update stays hidden.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a
            row for each sum that the server learnt, skipped rounds being zero rows.
            Leading axes are separate histories.
        noise: Variance of the noise in the sums: of each, `[rounds]`, or of all alike;
            or their covariance Omega `[rounds, rounds]`.
        spread: s, the standard deviation of clients' updates, in the unit of the noise.
            It plays no part without noise.
        coalition: Clients who tell the server their updates (indices).
        memory: rho of R = rho^|r - r'| over rows r: 1 (updates never change), or in [0,
            0.999999]; or R itself `[rounds, rounds]`, as for `information`, with 1
            between sums of one round. Zero rows count as time that passes.
        share: The share of an update's variance that has this memory; the rest is fresh
            each round.
        of: Whether the figure is of a client's `"update"` of a round, or of what is
            `"lasting"` in it.
        covariance: C [clients, clients], the covariance of clients' updates in squares
            of the spread, to return how well each is hidden from a server who knows who
            has long updates (the diagonal) and who resembles whom; None if all clients
            are alike, C = I.
        each_round: Whether to return the figure of each update, not the worst of each
            client.

    Returns:
        float64 `[..., clients]`: exactly 1.0 for the clients that are exposed by sums
        without noise (`first_exposure`), above 1 for all others, inf for those in no
        sum, NaN for members of the coalition, and where it is not known to nine digits
        (six with noise). Inside `jit`, `vmap` or `shard_map` an array of JAX's,
        computed in float64 and rounded to float32 unless 64-bit types are on; ranks and
        exposures are then those of two primes that never change. With `each_round`
        `[..., rounds, clients]`, NaN where a client is in no sum of the round. Where
        updates drift, to six digits, NaN where floats know fewer. `memory` and `share`
        may be traced numbers, as in
        `jax.vmap(lambda rho: hidden_among(P, memory=rho))(rhos)`; where both are
        exactly 1, or one is out of range, what comes out is NaN.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has fewer than two axes
            or an empty one, `noise` is negative, of another size or no covariance,
            `spread` is not positive, or the coalition has everybody; if `memory` or
            `share` is out of range, or R is singular other than by sums of one round
            (an eigenvalue below 1e-7) without noise; if it is 1 between two rows, and P
            is traced; if noise is above 1e153 spreads.

    Examples:
        >>> import mrsa_jax as mj
        >>> P = [[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
        >>> mj.privacy.hidden_among(P).round(6).tolist()
        [2.0, 2.0, 1.0, inf]
        >>> # as good as two clients more
        >>> mj.privacy.hidden_among([[1, 1]], noise=2.0).tolist()
        [4.0, 4.0]
        >>> # client 0 is alone later
        >>> mj.privacy.hidden_among([[1, 1], [1, 0]], memory=0.5).round(6).tolist()
        [1.0, 1.75]
        >>> apart = [[1, 1]] * 9 + [[1, 0]] * 9  # the second client is never alone
        >>> [
        ...     mj.privacy.hidden_among(apart, share=0.2, of=secret).round(2).tolist()
        ...     for secret in ("update", "lasting")
        ... ]
        [[1.0, 1.83], [1.36, 2.2]]

    Edge cases: a client's weights matter to its value only relative to others'; a row's
    scale does not without noise. Rows that depend on earlier ones are distinguished by
    exact ranks, never by a tolerance, save for noise that is given as a covariance:
    there floats decide, nobody is exactly at 1 by noisy sums, and a row closer than
    about 1e-11 to the span of those before counts as in it. Of near-dependent rows
    (weights that differ in their last digits) floats may know nothing: a bound of what
    they err by tells, and what is not known to nine digits is computed with proven
    bounds from the integers, up to some 600 independent rows. It is NaN for larger
    histories, and inside a transformation, where nothing is merged.

    Cost: three products of the min(J, N) independent rows with themselves and their
    factor, and the exact ranks; histories of very many clients go by pieces of their
    columns.

    Source: this package's (Multi-RoundSecAgg has no graded measure). Its use for a
    linear estimator is classical; see also audit expert (Chin, Ozsoyoglu 1982).
    """
    if covariance is not None:
        how = "rounds" if each_round else "last"
        require(not np.size(coalition), "coalition", _ALIKE_ONLY, coalition)
        return _of_unlike(P, covariance, memory, share, noise, spread, of, how)
    array = without(P if _never_changes(memory, share) else in_time(P), coalition)
    kernel = _drift(memory, share, array.shape[-2], of)
    lasting = _what_lasts(memory, share, array.shape[-2], of)
    sizes: Any
    if kernel is not None:
        how = "rounds" if each_round else "last"
        sizes = _of_updates(array, kernel, noise, spread, how, lasting)
    else:
        sizes = among(array, noise_root(noise, spread, array))
        if each_round:
            library: Any = jnp if is_traced(array) else np
            sizes = library.where(array.astype(bool), sizes[..., None, :], np.nan)
    return without_members(sizes, coalition)


_ALIKE_ONLY = (
    "must not be set with `covariance`, because the updates of its members also reveal "
    "clients that resemble them"
)


def _of_unlike(
    P: Any,
    covariance: Any,
    memory: Any,
    share: Any,
    noise: Any,
    spread: Any,
    of: Any,
    how: str,
) -> np.ndarray:
    """Return `hidden_among` of clients that are not alike; values must be known."""
    rule = "must be known: a traced history or drift has no figure with `covariance`"
    is_known = not is_traced(P, covariance, memory, share, noise, spread)
    require(is_known, "P", rule, "a traced value")
    array = np.asarray(without(P if _never_changes(memory, share) else in_time(P), ()))
    *lead, rounds, clients = array.shape
    kernel = kernel_of(memory, rounds)
    is_one_round = np.eye(rounds, dtype=bool) if np.ndim(memory) == 0 else kernel == 1
    lasting = check_number(share, "share", "must be a number from 0 to 1", 0.0, 1.0)
    is_lasting = _what_lasts(memory, lasting, rounds, of) is not None
    hidden = hidden_with_covariance(
        array.reshape(-1, rounds, clients),
        check_covariance(covariance, clients),
        kernel,
        is_one_round,
        lasting,
        check_spread(spread),
        check_noise(noise, rounds),
        how,
        is_lasting=is_lasting,
    )
    return hidden.reshape(*lead, *hidden.shape[1:])


def _never_changes(memory: Any, share: Any) -> bool:
    """Return whether updates are stated to never change, whatever the order of rows."""
    return type(memory) in (int, float) and memory == 1 and share == 1


def _drift(
    memory: Any, share: Any, rounds: int, of: Any = "update"
) -> np.ndarray | Array | None:
    """Return R; None if updates never change, which needs no matrix of all rounds."""
    if _never_changes(memory, share):
        return None
    if is_traced(memory, share):
        with jax.enable_x64(True):
            return traced_kernel(memory, rounds, share, jnp.float64)
    kernel = kernel_of(memory, rounds, share)
    return None if (kernel == 1).all() and of == "update" else kernel


def _what_lasts(
    memory: Any, share: Any, rounds: int, of: Any
) -> np.ndarray | Array | None:
    """Return the covariance a R of what lasts; None for whole updates."""
    rule = 'must be "update" or "lasting"'
    require(isinstance(of, str) and of in ("update", "lasting"), "of", rule, of)
    if of == "update" or _never_changes(memory, share):
        return None
    if is_traced(memory, share):
        with jax.enable_x64(True):
            whole = traced_kernel(memory, rounds, 1.0, jnp.float64)
            return jnp.asarray(share, jnp.float64) * whole
    require(share > 0, "share", 'must be above 0 with of="lasting"', share)
    return share * kernel_of(memory, rounds)


def _of_updates(
    array: Any,
    kernel: Any,
    noise: Any,
    spread: Any,
    how: str,
    lasting: Any = None,
) -> np.ndarray | Array:
    """Return `hidden_updates` of histories with any leading axes."""
    *lead, rounds, clients = array.shape
    setting = kernel, check_spread(spread), check_noise(noise, rounds), how
    if is_traced(array, kernel, lasting):
        alone = is_traced(kernel) or ((kernel == 1) == np.eye(rounds)).all()
        require(
            alone, "memory", "must not be 1 between rows inside a JAX transformation"
        )
        stacked = on_device(array).reshape(-1, rounds, clients)
        inside = traced_updates(stacked, *setting, lasting)
        return inside.reshape(*lead, *inside.shape[1:])
    histories = np.asarray(array).reshape(-1, rounds, clients)
    sizes = hidden_updates(histories, *setting, lasting=lasting, most_work=MOST_WORK)
    return sizes.reshape(*lead, *sizes.shape[1:])


def hidden_among_trajectory(
    P: Any,
    *,
    noise: Any = 0.0,
    spread: Any = 1.0,
    coalition: Any = (),
    memory: Any = 1.0,
    share: Any = 1.0,
    of: Any = "update",
    quantiles: Any = None,
) -> Float[np.ndarray | Array, "... rounds clients"]:
    """Return among how many clients each is hidden after every round.

    It never rises: a further sum only adds to what is known.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`;
            leading axes are separate histories.
        noise: As for `hidden_among`.
        spread: As for `hidden_among`.
        coalition: As for `hidden_among`.
        memory: As for `hidden_among`: the worst update so far of each client.
        share: As for `hidden_among`.
        of: As for `hidden_among`.
        quantiles: Instead of all clients, quantiles in [0, 1] over those who took part
            so far: (0.0, 0.5) are the worst and the median client. (0.0,) of a million
            clients and a thousand rounds takes a minute or two and little memory beyond
            the history; others hold all figures of one history. NaN where a value is
            not known, except the worst where a client is exposed.

    Returns:
        float64 `[..., rounds, clients]`: entry j after rows 0..j; the last is
        `hidden_among(P)`. With quantiles `[..., rounds, quantiles]`; NaN while no
        client took part. Inside `jit` as `hidden_among`.

    Raises:
        ConfigurationError: As `hidden_among`, or if a quantile is outside [0, 1].

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.hidden_among_trajectory([[1, 1, 0], [1, 1, 1]]).round(6).tolist()
        [[2.0, 2.0, inf], [2.0, 2.0, 1.0]]
        >>> P = [[1, 1, 0], [1, 1, 1]]
        >>> found = mj.privacy.hidden_among_trajectory(P, quantiles=(0.0, 0.5))
        >>> found.round(6).tolist()
        [[2.0, 2.0], [1.0, 2.0]]

    Cost: that of `hidden_among`; trials run in chunks, so memory beyond the result is
    bounded.
    """
    rule = "must be numbers from 0 to 1"
    if quantiles is not None:
        is_list = isinstance(quantiles, Sequence) and len(quantiles) > 0
        require(is_list, "quantiles", rule, quantiles)
        quantiles = tuple(
            check_number(each, "quantiles", rule, 0.0, 1.0) for each in quantiles
        )
    array = without(P if _never_changes(memory, share) else in_time(P), coalition)
    kernel = _drift(memory, share, array.shape[-2], of)
    sizes: Any
    if kernel is not None:
        lasting = _what_lasts(memory, share, array.shape[-2], of)
        sizes = _of_updates(array, kernel, noise, spread, "sums", lasting)
        library: Any = jnp if is_traced(sizes) else np
        sizes = (
            sizes if quantiles is None else quantiles_of(1 / sizes, quantiles, library)
        )
    else:
        request = Request(quantiles, last_only=False)
        sizes = among(array, noise_root(noise, spread, array), request)
    return sizes if quantiles is not None else without_members(sizes, coalition)


def without_members(figures: np.ndarray | Array, coalition: Any) -> np.ndarray | Array:
    """Return figures `[..., clients]`, NaN for members of the coalition."""
    clients = figures.shape[-1]
    is_member = np.zeros(clients, np.bool_)
    is_member[list(check_coalition(coalition, clients))] = True
    library: Any = np if isinstance(figures, np.ndarray) else jnp
    return library.where(is_member, np.nan, figures)


def among(
    array: np.ndarray | Array,
    root: np.ndarray | None,
    request: Request = LAST_ROUND,
    first: np.ndarray | None = None,
) -> np.ndarray | Array:
    """Return among how many each client is hidden, to nine digits, NaN if not known.

    Floats tell where they know it, and balls where histories are small enough for them.

    Args:
        array: As for `leverages`.
        root: Of the noise over the spread's square.
        request: Quantiles are of T, and of the rest T - 1 is returned to four digits.
        first: From which round each is taken for exposed.
    """
    quantiles, last_only, of_rest = request
    figures = leverages(array, root, request, first)
    if quantiles is None:
        with np.errstate(divide="ignore"):
            figures = 1 / figures - (1.0 if of_rest else 0.0)
    is_covariance = root is not None and root.ndim == 2
    if is_traced(array) or is_covariance or not np.isnan(figures).any():
        return figures
    histories = np.asarray(array).reshape(-1, *array.shape[-2:])
    out = np.array(figures)
    budget = MOST_WORK
    for history, rows in zip(
        histories, out.reshape(len(histories), -1, out.shape[-1]), strict=True
    ):
        is_begun = np.logical_or.accumulate((history != 0).any(axis=1))
        is_unknown = np.isnan(rows) & is_begun[-len(rows) :, None]
        if not is_unknown.any():
            continue
        columns = len(np.unique(column_codes(history)))
        budget -= work(len(history), columns, has_noise=root is not None)
        if budget < 0:
            continue
        exact: Any
        if quantiles is not None:
            every = among(history, root, request._replace(quantiles=None), first)
            exact = quantiles_of(1 / np.atleast_2d(every), quantiles, np)
        else:
            variances = None if root is None else root**2
            exact = excess(history, variances, last_only=last_only)
            if exact is None:
                continue
            # exact ranks told who is exposed, so nobody here is
            if of_rest:
                exact = np.where(exact > 0, exact, np.nan)
            else:
                sizes = class_sizes(history[None], last_only=last_only)[0]
                exact = np.maximum(1 + exact, np.maximum(sizes, _ABOVE))
        rows[:] = np.where(is_unknown, exact, rows)
    return out


def noise_root(noise: Any, spread: Any, P: np.ndarray | Array) -> np.ndarray | None:
    """Return the noise in spreads: deviations, or a root of its covariance."""
    deviation = check_spread(spread)
    checked = check_noise(noise, P.shape[-2])
    if checked is None:
        return None
    check_in_spreads(checked, deviation)
    if checked.ndim == 2:
        return np.asarray(checked / deviation)
    root = np.sqrt(checked) / deviation
    if not is_traced(P):
        rows = np.abs(as_floats(np.asarray(P), is_scaled=False))
        largest = rows.max(axis=-1, keepdims=True)  # its square may be no number
        lengths = np.linalg.norm(rows / np.maximum(largest, 1), axis=-1)
        lengths = (largest[..., 0] * lengths).reshape(-1, P.shape[-2]).max(axis=0)
        least = float((root / np.maximum(lengths, 1e-300))[root > 0].min())
        rule = (
            f"must be 0, or have a standard deviation of at least {_LEAST_NOISE:g} "
            "times the spread and the root of the sum of a row's squares"
        )
        require(least >= _LEAST_NOISE, "noise", rule, least)
    return root
