"""Weak privacy after every round: in bulk by bounds, or proved.

The public face of two engines: `_bounds` (array code for thousands of histories) and `_curve`
(certificates for one history after the other).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.arrays import host_array, on_device
from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.device import at_once, in_order, is_traced
from mrsa_jax._core.prime import PRIMES, codes, fields, host_residues, residues
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._curve import WeakPrivacyTrajectory, certify
from mrsa_jax.privacy._weak import SECONDS_PER_EFFORT, check_effort
from mrsa_jax.privacy.solver import Groups, Progress, bounds, collapse, random_projection
from mrsa_watch._base.errors import check_integer, nearest, require
from mrsa_watch._base.primes import draw_primes

METHODS = ("certified", "bounds")
_ARRAYS = ("lower", "upper", "certified", "rank", "lower_method")
DEFAULT_MEMORY_BYTES = 1 << 29
# Residues, codes, their copies on the device and temporaries, for each entry of a history.
_BYTES_AN_ENTRY = 64
_ROUND_UP = 8
_NUM_PRIMES = 2  # of the bounds


def weak_privacy_trajectory(
    P: Any,
    method: Any = "certified",
    *,
    effort: Any = 1.0,
    coalition: Any = (),
    memory_bytes: Any = DEFAULT_MEMORY_BYTES,
    progress: Progress | None = None,
) -> WeakPrivacyTrajectory:
    """Return bounds on weak privacy T after every round of one or many histories.

    Choose "bounds" for thousands of histories: array code, microseconds to milliseconds
    each. The upper bound is the lightest row, the weighted Singleton bound and sets of up to
    three groups; block designs with up to four blocks a round come out tight. Two primes drawn
    for the call decide: rank and lower bound are wrong with error chance below 2**-30 for a 0/1
    history of up to 1000 x 1000. Choose "certified" for proof: it searches backwards from the
    ends of plateaus, and narrows what bounds leave open.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a row for
            each sum that the server learnt, skipped rounds being zero rows.
        method: "certified" or "bounds".
        effort: For "certified": how much may be tried for each history, as in `weak_privacy`.
        coalition: As in `weak_privacy`.
        memory_bytes: For "bounds": about how much may be used besides P and the result; histories
            run in chunks that fit, one at a time at least.
        progress: Called with what is done, parts done and their number.

    Returns:
        NumPy arrays (`WeakPrivacyTrajectory`). Neither bound ever rises from one round to
        the next. With "bounds" also inside `jit`, `vmap` and `shard_map`, as JAX's arrays: two
        primes that never change then decide, and clients with equal columns are not taken
        together beforehand, so that bounds for many clients may be looser.

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has fewer than two axes or an
            empty one, or `method`, `effort`, `coalition` or `memory_bytes` is not as above.

    Edge cases: while nobody took part the rank is 0 and both bounds are -1.

    Examples:
        >>> history = [[0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]]
        >>> found = weak_privacy_trajectory(history)
        >>> found.upper.tolist(), found.rank.tolist(), bool(found.certified.all())
        ([-1, 2, 2, 1], [0, 1, 2, 3], True)
        >>> weak_privacy_trajectory(history, method="bounds").lower.tolist()
        [-1, 2, 2, 1]

    Cost: "bounds" four products modulo p for each round and entry of a groups x groups basis.

    Source:
        Multi-RoundSecAgg, Remark 1 and Figure 4a. Differs from the paper: both of its definitions
        index rounds 0..t-1; entry j here is after rows 0..j, as for all other metrics.
    """
    history = without(P, coalition)
    known = isinstance(method, str) and method in METHODS
    hint = nearest(str(method), METHODS)
    require(known, "method", f"must be one of 'certified', 'bounds' ({hint})", method)
    seconds = SECONDS_PER_EFFORT * check_effort(effort)
    memory = check_integer(memory_bytes, "memory_bytes", 1)
    if method == "bounds" and is_traced(history):
        return _traced(on_device(history))
    array = host_array(history, "P")
    stacked = array.reshape((-1, *array.shape[-2:]))
    if method == "bounds":
        found = _bulk(stacked, memory, progress)
    else:
        found = _proved(stacked, seconds, progress)
    shape = array.shape[:-1]
    own = {name: getattr(found, name).reshape(shape) for name in _ARRAYS}
    return dataclasses.replace(found, **own)


def _traced(histories: Array) -> WeakPrivacyTrajectory:
    """Return the bounds of histories whose values only the program knows."""
    rounds, clients = histories.shape[-2:]
    stacked = histories.reshape((-1, rounds, clients))
    rows = jnp.stack([residues(stacked, prime) for prime in PRIMES], axis=1)
    weights = jnp.ones((stacked.shape[0], clients), jnp.int32)
    projection = random_projection(PRIMES, clients, seed=0)
    tile = at_once("eliminations", _BYTES_AN_ENTRY * clients * (rounds + clients))
    found = bounds(
        rows, stacked.astype(jnp.int32), weights, projection, fields(PRIMES),
        binary=stacked.dtype == jnp.bool_, tile=tile,
    )  # fmt: skip
    lower, upper, rank = (values.reshape(histories.shape[:-1]) for values in found)
    none = jnp.int32(-1)
    lower, upper = (jnp.where(rank > jnp.int32(0), own, none) for own in (lower, upper))
    return WeakPrivacyTrajectory(lower, upper, jnp.zeros_like(rank, jnp.bool_), rank, None, ())


def _proved(
    histories: np.ndarray, seconds: float, progress: Progress | None
) -> WeakPrivacyTrajectory:
    curves = []
    for trial, history in enumerate(histories):
        curves.append(certify(history, seconds, progress))
        if progress is not None and len(histories) > 1:
            progress("histories", trial + 1, len(histories))
    arrays: Any = {name: np.stack([getattr(own, name) for own in curves]) for name in _ARRAYS}
    return WeakPrivacyTrajectory(**arrays, witnesses=tuple(own.witnesses[0] for own in curves))


def _bulk(histories: np.ndarray, memory: int, progress: Progress | None) -> WeakPrivacyTrajectory:
    trials, rounds, _ = histories.shape
    lower, upper, rank = (np.full((trials, rounds), fill, np.int32) for fill in (-1, -1, 0))
    groups = [collapse(history) for history in histories]
    by_width: dict[int, list[int]] = {}
    for trial, group in enumerate(groups):
        if group.num_groups:
            by_width.setdefault(-(-group.num_groups // _ROUND_UP) * _ROUND_UP, []).append(trial)
    jobs = [
        (width, chunk)
        for width, members in by_width.items()
        for chunk in _chunks(members, rounds, width, memory)
    ]
    done = 0
    primes = draw_primes(_NUM_PRIMES)
    tasks = [functools.partial(_bounds_of, groups, rounds, primes, *job) for job in jobs]
    for (_, chunk), found in zip(jobs, in_order(tasks), strict=True):
        seen = found[2] > 0
        lower[chunk] = np.where(seen, found[0], -1)
        upper[chunk] = np.where(seen, found[1], -1)
        rank[chunk] = found[2]
        done += len(chunk)
        if progress is not None:
            progress("histories", done, trials)
    method = np.where(rank > 0, "bounds", "")
    return WeakPrivacyTrajectory(lower, upper, np.zeros_like(rank, np.bool_), rank, method, ())


def _chunks(members: list[int], rounds: int, width: int, memory: int) -> list[list[int]]:
    """Cut trials into parts that keep all cores busy within a share of the memory."""
    each = _BYTES_AN_ENTRY * width * (rounds + width)
    size = max(1, min(-(-len(members) // num_cores()), memory // num_cores() // each))
    size = 1 << (size.bit_length() - 1)  # what runs is padded to a power of two
    return [members[i : i + size] for i in range(0, len(members), size)]


def _bounds_of(
    groups: list[Groups], rounds: int, primes: Sequence[int], width: int, chunk: list[int]
) -> list[np.ndarray]:
    size = 1 << (len(chunk) - 1).bit_length()  # few sizes are ever compiled
    rows = np.zeros((size, len(primes), rounds, width), np.uint32)
    numbers = np.zeros((size, rounds, width), np.int32)
    weights = np.zeros((size, width), np.int32)
    binary = True
    for place, trial in enumerate(chunk):
        group = groups[trial]
        matrix, count = group.matrix, group.num_groups
        for which, prime in enumerate(primes):
            rows[place, which, :, :count] = host_residues(matrix, prime, np.uint32)
        numbers[place, :, :count] = codes(matrix)
        weights[place, :count] = group.sizes
        binary &= bool(((matrix == 0) | (matrix == 1)).all())
    tile = at_once("eliminations", _BYTES_AN_ENTRY * width * (rounds + width))
    with jax.enable_x64(False):  # whatever width of numbers a caller has on
        projection = random_projection(primes, width)
        found = bounds(rows, numbers, weights, projection, fields(primes), binary, tile)
    return [np.asarray(jax.device_get(values))[: len(chunk)] for values in found]
