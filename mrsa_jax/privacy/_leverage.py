"""Leverage: the share of each client's update that the learnt sums explain.

With p_i the i-th column of P and G = P P^T, client i's leverage is
h_i = p_i^T (G + Omega/s^2)^+ p_i: the best linear estimate of its update from the sums,
whose noise has covariance Omega, leaves 1 - h_i of its variance s^2 unexplained.
Without noise h_i is the squared length of unit vector e_i's projection on the row space
V of P, the largest v_i^2 / |v|^2 over the v in V, and 1 exactly for the exposed (weak
privacy T = 1 of Multi-RoundSecAgg, Remark 1). The sum over the clients is the rank.

Noise is seen as further columns: with F F^T = Omega the Gram matrix of [P, F/s] is G +
Omega/s^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64

from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.device import platform
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.programs import quick_for_little
from mrsa_jax._core.traced import is_traced
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._equal_columns import (
    Merged,
    class_sizes,
    least_hidden,
    merge_equal_columns,
    wide_classes,
)
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy._leverage_wide import (
    Wide,
    orthonormal,
    orthonormal_by_rows,
    relative_errors,
    rest_of_three,
)
from mrsa_watch._base.errors import require

_BYTES_AN_ENTRY = 8
_COPIES = 12  # of a history in float64 while it is worked on
# From so many entries on, and with so many more clients than rounds, a history goes by
# columns.
_WIDE, _WIDER = 2**23, 2
_HIGH = lax.Precision.HIGHEST
KNOWN = 1e-9  # relative: nine digits
_NOISY_KNOWN = 1e-6  # where rounding grows with the sums over their noise
# of 1 less a leverage, of which mu is a root and bits are a logarithm
_REST_KNOWN = 1e-4
_ROUNDINGS = 16 * 2.0**-53
_LEAST = 1e-290  # of a leverage: less has no nine digits


class Request(NamedTuple):
    """Which figures of histories to return.

    Attributes:
        quantiles: Instead of all clients', these quantiles of
            `hidden_among_trajectory`.
        last_only: Whether only what holds after the last round.
        of_rest: Whether 1 less the leverage must be known too, to four digits.
    """

    quantiles: tuple[float, ...] | None = None
    last_only: bool = True
    of_rest: bool = False


LAST_ROUND = Request()  # of all clients


def leverages(
    array: np.ndarray | Array,
    root: np.ndarray | None,
    request: Request,
    first: np.ndarray | None = None,
) -> np.ndarray | Array:
    """Return the leverages in histories.

    Args:
        array: Histories `[..., rounds, clients]`.
        root: Of the noise over the spread's square: None, standard deviations
            `[rounds]`, or F `[rounds, rounds]`.
        request: Which figures.
        first: int32 `[clients]`, from which round each is taken for exposed, -1 for
            never: for a caller who knows it, of a history that does not go by columns.
            None: found here, as where several clients have equal columns.

    Returns:
        float64 `[..., rounds, clients]`, without rounds for the last only; with
        quantiles these of 1 / leverage instead of the clients. Traced values are
        rounded as JAX is set. At most one over the size of a client's class of equal
        columns, and exactly that where the sum of the class follows from sums without
        noise. NaN where floats do not know it to nine digits, with noise to six.
    """
    rounds, clients = array.shape[-2:]
    quantiles, last_only, _ = request
    shape = () if last_only else (rounds,)
    shape = (*shape, clients if quantiles is None else len(quantiles))
    shape = (*array.shape[:-2], *shape)
    if is_traced(array):
        stacked = on_device(array).reshape(-1, rounds, clients)
        return _chunk(stacked, None, root, request, first).reshape(shape)
    histories = np.asarray(array).reshape(-1, rounds, clients)
    figures = np.empty((len(histories), *shape[array.ndim - 2 :]))
    if goes_by_columns(rounds, clients):
        for history, out in zip(histories, figures, strict=True):
            classes = narrowed(history)
            if classes is None:
                _follow_wide(np.atleast_2d(out), history, root, request)
            else:
                follow_classes(np.atleast_2d(out), history, classes, root, request)
        return figures.reshape(shape)
    # a sort takes XLA's programs for a CPU ten times as long as NumPy; and what floats
    # lose of larger integers is seen here
    has_large = array.dtype == object
    is_sorted_here = quantiles is not None and (platform() == "cpu" or has_large)
    inner = request._replace(quantiles=None) if is_sorted_here else request
    step = min(at_once("leverage", _BYTES_AN_ENTRY * rounds * clients), len(histories))
    for start in range(0, len(histories), step):
        part = histories[start : start + step]
        # a shorter last chunk is filled up, so that one program serves all
        whole = np.pad(part, ((0, step - len(part)), (0, 0), (0, 0)))
        merged = merge_equal_columns(whole)
        shares = np.asarray(_chunk(whole, merged, root, inner, first))[: len(part)]
        if np.isnan(shares).any() and (merged.sizes > 1).any():
            # as one column each, classes are better conditioned
            again = np.asarray(_chunk(whole, merged, root, inner, first, by_class=True))
            shares = np.where(np.isnan(shares), again[: len(part)], shares)
        if not last_only and inner.quantiles is None:
            # what is one column after some rounds may be several at the end
            sizes = class_sizes(part, last_only=False)
            shares = np.minimum(shares, least_hidden(sizes))
        if has_large:
            is_in = np.logical_or.accumulate(part != 0, axis=1)
            is_lost = (is_in[:, -1] if last_only else is_in) & (shares < _LEAST)
            shares = np.where(is_lost, np.nan, shares)
        if is_sorted_here and quantiles is not None:
            shares = quantiles_of(shares, quantiles, np)
        figures[start : start + len(part)] = shares
    return figures.reshape(shape)


def goes_by_columns(rounds: int, clients: int) -> bool:
    """Return whether a history's leverages are found piece by piece of its columns."""
    return rounds * clients >= _WIDE and clients >= _WIDER * rounds


def last_of_wide(wide: Wide) -> np.ndarray:
    """Return the leverages after the last round, to the bit as they are followed."""
    parts = wide.shares(last_only=False)
    return np.concatenate(
        [
            _known(shares[-1], errors[-1], False, False, np)
            for _, shares, errors in parts
        ]
    )


def narrowed(history: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return `wide_classes` of a history that is narrow once they are merged."""
    classes = wide_classes(history)
    if classes is None or goes_by_columns(len(history), len(classes[0])):
        return None
    return classes


def follow_classes(
    out: np.ndarray,
    history: np.ndarray,
    classes: tuple[np.ndarray, np.ndarray],
    root: np.ndarray | None,
    request: Request,
) -> None:
    """Write the leverages of a history of very many clients in few classes."""
    members, label = classes
    narrow = history[None, :, members]
    sizes = np.where((narrow != 0).any(axis=1), np.bincount(label), 1.0)
    merged = Merged(narrow, sizes, np.arange(len(members), dtype=np.int32)[None])
    every = request._replace(quantiles=None)
    (by_column,) = np.asarray(_chunk(narrow, merged, root, every, None, by_class=True))
    shares = np.atleast_2d(by_column)
    if request.quantiles == (0.0,):
        out[:] = quantiles_of(shares, (0.0,), np)
        return
    for row, each in zip(out, shares, strict=True):
        row[:] = _figures(each[label], request)


def _follow_wide(
    out: np.ndarray, history: np.ndarray, root: np.ndarray | None, request: Request
) -> None:
    """Write the leverages of a history of very many clients, or quantiles of them."""
    parts = (
        (part, _known(shares, errors, root is not None, request.of_rest, np))
        for part, shares, errors in Wide(history, root).shares(request.last_only)
    )
    if request.quantiles == (0.0,):
        worst = np.zeros(len(out))
        for _, shares in parts:
            # of what is not known one is enough, and one who is exposed is known to be
            # the worst
            unknown = np.where(np.isnan(shares).any(axis=1), np.nan, 0.0)
            tops = np.fmax.reduce(shares, axis=1, initial=0.0), unknown, worst
            is_exposed = np.fmax.reduce(tops) == 1
            worst = np.where(is_exposed, 1.0, np.maximum.reduce(tops))
        out[:] = quantiles_of(worst[:, None], (0.0,), np)
        return
    every = np.empty((len(out), history.shape[1]))
    for part, shares in parts:
        every[:, part] = shares
    for row, shares in zip(out, every, strict=True):
        row[:] = _figures(shares, request)


def _figures(shares: np.ndarray, request: Request) -> Any:
    """Return the leverages of one round, or quantiles of their inverses."""
    if request.quantiles is None:
        return shares
    return quantiles_of(shares, request.quantiles, np)


def _chunk(
    histories: np.ndarray | Array,
    merged: Merged | None,
    root: np.ndarray | None,
    request: Request,
    first: np.ndarray | None,
    *,
    by_class: bool = False,
) -> Array:
    """Return the leverages of some histories.

    Args:
        histories: `[batch, rounds, clients]`.
        merged: The same with the classes of equal columns merged; None where they are
            traced.
        root: As for `leverages`.
        request: As for `leverages`.
        first: From which round each is taken for exposed, where no columns are equal.
        by_class: Whether floats see one column for each class, times the root of its
            size.
    """
    rounds, clients = histories.shape[1:]
    narrow = histories if merged is None else merged.histories
    # Exact arithmetic has no say in noisy rows: it sees zeros there. A client in their
    # span is explained completely, whatever the others are.
    exact = narrow
    is_noisy = np.zeros(rounds, np.bool_)
    if root is not None:
        is_noisy = (root != 0) if root.ndim == 1 else (root != 0).any(axis=1)
        library: Any = np if isinstance(narrow, np.ndarray) else jnp
        nothing = narrow.dtype.type(0) if narrow.dtype != object else 0
        exact = library.where(is_noisy[None, :, None], nothing, narrow)
    rises = _rises(rank_trajectory(exact))
    is_new = rises | is_noisy[None]
    is_sure = rises
    if root is not None and root.ndim == 2:
        is_sure = _rises(rank_trajectory(narrow))
    has_classes = merged is not None and bool((merged.sizes > 1).any())
    if first is None or has_classes:
        exposed_from = first_exposure(exact)
    else:
        exposed_from = on_device(np.broadcast_to(first, (len(histories), clients)))
    tile = at_once("eliminations", _COPIES * _BYTES_AN_ENTRY * rounds * clients)
    precision = jax.dtypes.canonicalize_dtype(np.float64)
    with jax.enable_x64(True):
        noise = None if root is None else on_device(root, jnp.float64)
        rows = as_floats(narrow if by_class else histories, is_scaled=root is None)
        classes = None
        if merged is not None:
            precision = np.dtype(np.float64)
            most = least_hidden(merged.sizes)
            shares = most if by_class else np.ones_like(most)
            classes = on_device(most), on_device(shares), on_device(merged.owner)
            rows = rows * np.sqrt(merged.sizes)[:, None, :] if by_class else rows
        by_blocks = root is not None and root.ndim == 1 and rounds > 2 * clients
        # all at once is dearer, and knows more
        if by_blocks and isinstance(rows, np.ndarray):
            share = float(_noise_share(rows, root, np))
            by_blocks = _ROUNDINGS * rounds < 1e-2 * _NOISY_KNOWN * share
        marks = (is_new, is_sure, exposed_from, classes)
        figures = _shares(rows, marks, noise, by_blocks, tile, request)
        return rounded(figures, precision, request.quantiles is not None)


def _rises(ranks: Array) -> Any:
    """Return in which rounds ranks rise, on the host where they are known."""
    library: Any = jnp if is_traced(ranks) else np
    return library.diff(ranks, axis=-1, prepend=np.int32(0)) > 0


def rounded(figures: Array, precision: np.dtype[Any], is_hidden: bool) -> Array:
    """Round so that only what is exactly 1 stays 1."""
    if precision == figures.dtype:
        return figures
    near = figures.astype(precision)
    beside = np.nextafter(precision.type(1), precision.type(2 if is_hidden else 0))
    return jnp.where(
        figures == 1, jnp.ones_like(near), jnp.where(near == 1, beside, near)
    )


def as_floats(histories: np.ndarray | Array, *, is_scaled: bool) -> np.ndarray | Array:
    """Return float64 rows.

    Those beyond floats are scaled, which changes nothing without noise.
    """
    if isinstance(histories, jax.Array) or histories.dtype != object:
        return histories.astype(np.float64)
    rows = []
    for row in histories.reshape(-1, histories.shape[-1]):
        excess = max(0, max(int(value).bit_length() for value in row) - 1000)
        require(
            is_scaled or not excess,
            "P",
            "must hold integers below 2**1000 where sums have noise",
            f"one of {1000 + excess} bits",
        )
        rows.append(
            [
                float(abs(int(value)) >> excess) * (-1 if value < 0 else 1)
                for value in row
            ]
        )
    return np.asarray(rows, np.float64).reshape(histories.shape)


@quick_for_little(
    lambda rows, *_: rows.size, static_argnames=("by_blocks", "tile", "request")
)
def _shares(
    rows: Float64[Array, "batch rounds clients"],
    marks: tuple[Any, ...],
    root: Array | None,
    by_blocks: bool,
    tile: int,
    request: Request,
) -> Array:
    """Return the leverages of histories, given which rows count and who is exposed."""
    quantiles, last_only, of_rest = request

    def one(history: tuple[Any, ...]) -> Array:
        rows, (is_new, is_sure, first, classes) = history
        shares, errors = _one_history(rows, is_new, is_sure, root, by_blocks, last_only)
        most = fraction = jnp.ones_like(shares[:1])
        if classes is not None:
            most, fraction, owner = classes[0][None], classes[1][None], classes[2]
            first = first[owner]
        is_in = jnp.cumsum(rows != 0, axis=0) > 0
        places = jnp.arange(len(rows), dtype=jnp.int32)[:, None]
        if last_only:
            is_in = is_in[-1:]
            places = places[-1:]
        shares = _known(shares * fraction, errors, root is not None, of_rest, jnp)
        shares = jnp.where(is_in, shares, 0.0)
        shares = decided(shares, (first >= 0)[None] & (first[None] <= places), most)
        shares = shares if classes is None else shares[:, owner]
        shares = shares if quantiles is None else quantiles_of(shares, quantiles, jnp)
        return shares[0] if last_only else shares

    return map_tiles(one, (rows, marks), tile)


def _known(
    shares: Any, errors: Any, has_noise: bool, of_rest: bool, library: Any
) -> Any:
    """Return leverages, NaN where their relative error is too large."""
    most = _NOISY_KNOWN if has_noise else KNOWN
    most = library.minimum(most, _REST_KNOWN * (1 / shares - 1)) if of_rest else most
    return library.where(errors <= most, shares, np.float64(np.nan))


def decided(shares: Array, is_exposed: Array, most: Array) -> Array:
    """Set leverages to the most that they can be where that is decided.

    Others stay below.
    """
    below = jnp.minimum(shares, jnp.nextafter(most, 0.0))
    return jnp.where(is_exposed, most, below)


def quantiles_of(shares: Any, quantiles: tuple[float, ...], library: Any) -> Any:
    """Return quantiles of 1 / leverage over those with any, `[..., rounds, quantiles]`.

    Between two of them in proportion; NaN where there are none, or one is not known:
    except the worst where a client is exposed. `library` is NumPy or JAX's.
    """
    is_unknown = library.isnan(shares)
    falling = -library.sort(-library.where(is_unknown, 0.0, shares), axis=-1)
    is_unknown = is_unknown.any(axis=-1, keepdims=True)
    shares = falling
    last = library.sum(shares > 0, axis=-1, keepdims=True, dtype=np.int32) - 1
    end = library.maximum(last, 0)
    columns = []
    for quantile in quantiles:
        place = quantile * end.astype(shares.dtype)
        low = library.floor(place).astype(np.int32)
        ends = [
            library.take_along_axis(falling, at, axis=-1)
            for at in (low, library.minimum(low + 1, end))
        ]
        below, above = (1 / library.where(share > 0, share, 1.0) for share in ends)
        value = below + (place - low.astype(shares.dtype)) * (above - below)
        is_told = ~is_unknown | ((value == 1) if quantile == 0 else False)
        columns.append(library.where((last >= 0) & is_told, value, np.nan))
    return library.concatenate(columns, axis=-1)


def _one_history(
    rows: Array,
    is_new: Array,
    is_sure: Array,
    root: Array | None,
    by_blocks: bool,
    last_only: bool,
) -> tuple[Array, Array]:
    """Return `[rounds, clients]`, or only the last of them as `[1, clients]`.

    And their errors.
    """
    rounds, clients = rows.shape
    rows = jnp.where(is_new[:, None], rows, 0.0)
    if root is None:
        units = orthonormal(
            rows[jnp.argsort(~is_new, stable=True)[: min(rounds, clients)]]
        )
    elif by_blocks:
        every, errors = _in_blocks(rows, root)
        return (every[-1:], errors[-1:]) if last_only else (every, errors)
    elif root.ndim == 1:
        units = orthonormal(jnp.concatenate([rows, jnp.diag(root)], axis=1))
    else:  # a covariance may be singular
        units = orthonormal_by_rows(jnp.concatenate([rows, root], axis=1), is_sure)
    last = rest_of_three(*units.rows.shape)
    clients_only = units._replace(
        values=units.values[:, :clients], rows=units.rows[:, :clients]
    )
    squares = clients_only.values * clients_only.values
    if last_only:
        # as `every` sums them
        shares = (
            jnp.sum(squares, axis=0)
            if root is None
            else jnp.cumsum(squares, axis=0)[-1]
        )
        shares = shares[None]
        return shares, relative_errors(clients_only, shares, last)
    every = jnp.cumsum(squares, axis=0)
    errors = relative_errors(clients_only, every, last)
    if root is None:
        at = jnp.cumsum(is_new, dtype=jnp.int32)
        every, errors = (
            jnp.concatenate([jnp.zeros((1, clients), jnp.float64), each])[at]
            for each in (every, errors)
        )
    return every, errors


def _in_blocks(rows: Array, deviations: Array) -> tuple[Array, Array]:
    """Follow many more rounds than clients, as many at a time as there are clients.

    What is still unexplained of the updates after a block has covariance E E^T, and its
    sums are those of updates that are not related: P E. It is known to rounding
    relative to 1, however little is left, and later sums see what is left by the
    inverse of their noise: so errors relative to a leverage are rounding, once a round,
    over it and over the least share of noise in a sum.
    """
    rounds, clients = rows.shape
    blocks = -(-rounds // clients)
    padded = jnp.pad(rows, ((0, blocks * clients - rounds), (0, 0)))
    noise = jnp.pad(deviations, (0, blocks * clients - rounds))

    def one_block(carry: tuple[Array, Array], step: tuple[Array, Array]) -> Any:
        (unknown, before), (part, noise) = carry, step
        sums = jnp.matmul(part, unknown, precision=_HIGH)
        units = orthonormal(jnp.concatenate([sums, jnp.diag(noise)], axis=1)).values[
            :, :clients
        ]
        gained = jnp.matmul(units, unknown.T, precision=_HIGH)
        every = before[None] + jnp.cumsum(gained * gained, axis=0)
        rest = jnp.eye(clients, dtype=jnp.float64) - jnp.matmul(
            units.T, units, precision=_HIGH
        )
        values, vectors = jnp.linalg.eigh(rest)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]
        return (jnp.matmul(unknown, root, precision=_HIGH), every[-1]), every

    start = jnp.eye(clients, dtype=jnp.float64), jnp.zeros(clients, jnp.float64)
    steps = padded.reshape(blocks, clients, clients), noise.reshape(blocks, clients)
    _, every = lax.scan(one_block, varying_like(start, rows), steps)
    # a block mixes clients, and who is in no sum is none of them to the last digit
    is_summed = jnp.cumsum(rows != 0, axis=0) > 0
    every = jnp.where(is_summed, every.reshape(-1, clients)[:rounds], 0.0)
    return every, _ROUNDINGS * rounds / _noise_share(rows, deviations, jnp) / every


def _noise_share(rows: Any, deviations: Any, library: Any) -> Any:
    """Return the least part of noise in the squared length of a row.

    1 where all are zero.
    """
    noise = deviations * deviations
    total = library.sum(rows * rows, axis=-1) + noise
    return library.min(
        library.where(total > 0, noise / library.where(total > 0, total, 1.0), 1.0)
    )
