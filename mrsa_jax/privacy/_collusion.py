"""The probability that a random coalition exposes a client.

By the sums, and by corrupt neighbours.

Two routes lead a server with corrupt clients to an honest client's update. By the sums:
what is left of them, once the corrupt clients' updates are subtracted, is that update
(`_coalitions`). By neighbours, where SecAgg+ (Bell et al., CCS 2020) makes the sums:
each client gives shares of its secrets to its neighbours in a round's graph, and as
many corrupt ones as the threshold recover them, so that its masks come off in that
round whatever the sums are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import as_key, host_generator
from mrsa_jax._core.threads import in_order
from mrsa_jax._core.traced import needs_values
from mrsa_jax.modular import rank_trajectory
from mrsa_jax.privacy._coalitions import as_history
from mrsa_jax.privacy._exposure import first_exposure
from mrsa_jax.privacy.solver import Progress
from mrsa_watch._base.errors import check_number, check_size, require
from mrsa_watch._base.values import by_value

_ROUTES = ("sums", "neighbours", "either")
_AT_ONCE = 256  # coalitions of a part, of which each core has one
_MOST_BYTES = 1 << 28  # of histories that go to a program at once
_STEP = np.uint64(0x9E3779B97F4A7C15)  # between the states of SplitMix64

# of bool [coalitions, clients], the members, and a seed for each: the clients that they
# expose
_Judge = Callable[[np.ndarray, np.ndarray], np.ndarray]


@by_value
class Chance(NamedTuple):
    """Chances that were counted, with exact 95 % intervals (Clopper-Pearson).

    Attributes:
        rate: float64, what was seen; nan where there was nothing to see.
        lower: float64, the interval's lower end.
        upper: Its upper end.
    """

    rate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclasses.dataclass(frozen=True)
@by_value
class Route:
    """Counts of the coalitions that exposed a client by one route.

    Attributes:
        exposing: int64 `[..., fractions]`, coalitions that expose somebody outside.
        exposed: int64 `[..., fractions, clients]`, coalitions that expose the client.
        honest: int64 `[..., fractions, clients]`, coalitions that it is not a member
            of.
        num_coalitions: That were drawn for each fraction.
    """

    exposing: np.ndarray
    exposed: np.ndarray
    honest: np.ndarray
    num_coalitions: int

    @property
    def any_client(self) -> Chance:
        """Chance `[..., fractions]` that a random coalition exposes anybody outside."""
        return _chance(self.exposing, np.full_like(self.exposing, self.num_coalitions))

    @property
    def each_client(self) -> Chance:
        """Chance `[..., fractions, clients]` that coalitions of others expose it."""
        return _chance(self.exposed, self.honest)


@dataclasses.dataclass(frozen=True)
@by_value
class CollusionRisk:
    """Probability of exposure for each fraction of clients that collude.

    `collusion_risk` returns it.

    Attributes:
        fractions: Fractions of clients, as requested.
        members: Number of clients in a coalition of each fraction.
        sums: Exposure by combinations of the sums.
        neighbours: Exposure by corrupt neighbours in a round; None without a graph.
        either: Exposure by either route, for the same coalitions.
    """

    fractions: tuple[float, ...]
    members: tuple[int, ...]
    sums: Route
    neighbours: Route | None
    either: Route


@needs_values
def collusion_risk(
    seed: Any,
    P: Any,
    fractions: Any,
    num_coalitions: Any = 2000,
    *,
    degree: Any = None,
    threshold: Any = None,
    progress: Progress | None = None,
) -> CollusionRisk:
    """Return the probability that clients who collude at random expose another.

    Use it together with `client_privacy`, which names the smallest coalition that
    exposes a client, to say how likely a coalition that nobody chose does. The history
    is as it is; coalitions are uniform among those of their size, and the same ones
    grow from fraction to fraction. A client's chance never falls as they do; that of
    anybody outside may, as who was exposed joins.

    Args:
        seed: Integer in [0, 2**32), or a key.
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`;
            leading axes are separate histories, each with separate coalitions.
        fractions: Of the clients that collude, in [0, 1), a number or a list; a
            coalition has as many members as is nearest, and leaves a client out.
        num_coalitions: For each history and fraction.
        degree: Neighbours of a client in a round's graph, among the clients of its sum,
            joined on a ring of random places (`graphs.harary`), anew in each round;
            None for sums alone.
        threshold: Shares that recover a client's secrets, at least 1; given with
            `degree`.
        progress: Called with what is done, coalitions done and their number.

    Returns:
        Counts and chances with exact intervals (`CollusionRisk`). Who is exposed by
        sums is decided modulo primes drawn for each part of the coalitions, wrong for
        one of them with error chance below 2**-30.

    Raises:
        ConfigurationError: If an argument is out of range, only one of `degree` and
            `threshold` is given, P is no history, or a coalition would be everybody.

    Edge cases: a coalition of nobody exposes whom the sums expose alone
    (`first_exposure`). Who is in no sum is never exposed. In rounds of at most
    `degree` + 1 clients all are neighbours. Rounds are taken to have no dropouts after
    shares were sent: neighbours that are lost would be corrupt all the same, and the
    graph is drawn among the clients of the sum.

    Examples:
        >>> import mrsa_jax as mj
        >>> P = [[1, 1, 0], [0, 1, 1]]
        >>> found = mj.privacy.collusion_risk(0, P, [0.0, 1 / 3], 200)
        >>> # of two others one pair is left, or none
        >>> found.sums.any_client.rate.tolist()
        [0.0, 1.0]

    Cost: a first exposure for each coalition, tens to hundreds of microseconds at
    N = 120, and for neighbours a few array operations per client of a sum. Memory is
    that of the history and of the counts.

    Source: Bell et al., Section 3, for the neighbours; the sums are this package's.
    """
    key = as_key(seed)
    history = host_array(as_history(P), "P")
    clients = history.shape[-1]
    shares = _check_fractions(fractions)
    members = tuple(round(share * clients) for share in shares)
    for share, size in zip(shares, members, strict=True):
        require(
            size < clients,
            "fractions",
            f"must leave one of {clients} clients out",
            share,
        )
    count = check_size(num_coalitions, "num_coalitions")
    graph = _check_graph(degree, threshold)
    stacked = history.reshape((-1, *history.shape[-2:]))
    total = len(stacked) * count
    counts = np.zeros((len(_ROUTES), len(stacked), len(members), clients + 1), np.int64)
    honest = np.zeros((len(stacked), len(members), clients), np.int64)
    for trial, rows in enumerate(stacked):
        judges = sums_judge(rows), _neighbours_judge(rows, graph)
        parts = [
            functools.partial(
                _part,
                judges,
                host_generator(key, trial, start),
                members,
                (min(_AT_ONCE, count - start), clients),
            )
            for start in range(0, count, _AT_ONCE)
        ]
        for done, (some, others) in enumerate(in_order(parts), 1):
            counts[:, trial] += some
            honest[trial] += others
            if progress is not None:
                progress(
                    "coalitions", trial * count + min(done * _AT_ONCE, count), total
                )
    shape = (*history.shape[:-2], len(members))
    honest = honest.reshape((*shape, clients))
    sums, near, either = (
        Route(
            rows[..., -1].reshape(shape),
            rows[..., :-1].reshape(honest.shape),
            honest,
            count,
        )
        for rows in counts
    )
    return CollusionRisk(shares, members, sums, None if graph is None else near, either)


def _check_fractions(fractions: Any) -> tuple[float, ...]:
    values = host_array(fractions, "fractions")
    rule = "must be a number in [0, 1), or a list of them"
    require(values.ndim <= 1 and values.size > 0, "fractions", rule, fractions)
    most = float(np.nextafter(1.0, 0.0))
    return tuple(
        check_number(v, "fractions", rule, 0.0, most) for v in values.ravel().tolist()
    )


def _check_graph(degree: Any, threshold: Any) -> tuple[int, int] | None:
    rule = "must be given together with `degree`"
    require(
        (degree is None) == (threshold is None), "threshold", rule, threshold, degree
    )
    if degree is None:
        return None
    return check_size(degree, "degree"), check_size(threshold, "threshold")


def _part(
    judges: tuple[_Judge, _Judge],
    draw: np.random.Generator,
    sizes: tuple[int, ...],
    shape: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Draw coalitions.

    Count by route, and by size, the clients exposed and the honest ones.
    A coalition of each size is the first clients of one random order, and its graphs
    are the same.
    """
    places = draw.random(shape).argsort(axis=1).argsort(axis=1)
    seeds = draw.integers(0, 2**64, shape[0], np.uint64)
    exposed, honest = [], []
    for size in sizes:
        members = places < size
        sums, near = (judge(members, seeds) for judge in judges)
        routes: Any = np.stack([sums, near, sums | near])
        exposed.append(
            np.append(routes, routes.any(axis=2, keepdims=True), axis=2).sum(axis=1)
        )
        honest.append((~members).sum(axis=0))
    return np.stack(exposed, axis=1), np.stack(honest)


def _nobody(members: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.zeros_like(members)


def sums_judge(history: np.ndarray) -> _Judge:
    """Return a function that finds the clients that the sums expose to coalitions."""
    rows = history[np.diff(np.asarray(rank_trajectory(history)), prepend=0) > 0]
    if not len(rows):
        return _nobody
    size = max(1, _MOST_BYTES // rows.nbytes)

    def judge(members: np.ndarray, _: np.ndarray) -> np.ndarray:
        exposed = np.empty_like(members)
        for start in range(0, len(members), size):
            part = members[start : start + size]
            others = np.where(part[:, None], rows.dtype.type(0), rows)
            exposed[start : start + size] = np.asarray(first_exposure(others)) >= 0
        return exposed

    return judge


def _neighbours_judge(history: np.ndarray, graph: tuple[int, int] | None) -> _Judge:
    """Return a function that finds the clients that corrupt neighbours expose.

    No client without a graph. In each round the clients of the sum are joined by a
    Harary graph: on a ring of random places those at most degree // 2 apart, for an odd
    degree and an even number also those opposite. It is complete if there are not more
    clients than the degree.
    """
    if graph is None:
        return _nobody
    degree, threshold = graph
    rounds = [np.flatnonzero(row) for row in history]

    def judge(members: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        exposed = np.zeros_like(members)
        each = np.arange(len(members))
        state = seeds
        for clients in rounds:
            size = clients.size
            ring = np.tile(clients, (len(members), 1))
            # Fisher and Yates' shuffle, of all coalitions at once
            for last in range(size - 1, 0, -1):
                state = state + _STEP
                place = ((_mixed(state) >> 32) * (last + 1) >> 32).astype(np.int64)
                ring[each, last], ring[each, place] = (
                    ring[each, place],
                    ring[each, last],
                )
            is_corrupt = members[each[:, None], ring]
            if degree >= size - 1:
                distances = list(range(1, size))
            else:
                near = range(1, degree // 2 + 1)
                distances = [*near, *(-distance for distance in near)]
                if degree % 2 == 1 and size % 2 == 0:
                    distances.append(size // 2)
            corrupt = np.zeros(ring.shape, np.int64)
            for distance in distances:
                corrupt += np.roll(is_corrupt, distance, axis=1)
            exposed[each[:, None], ring] |= (corrupt >= threshold) & ~is_corrupt
        return exposed

    return judge


def _mixed(state: np.ndarray) -> np.ndarray:
    """Return the word of each of SplitMix64's states."""
    word = (state ^ (state >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> 27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> 31))


def _chance(count: np.ndarray, trials: np.ndarray) -> Chance:
    """Return rates and exact intervals of counts, each pair of numbers once."""
    pairs, place = np.unique(
        np.stack([count.ravel(), trials.ravel()]), axis=1, return_inverse=True
    )
    ends = np.full((3, pairs.shape[1]), np.nan)
    for k, (seen, of) in enumerate(pairs.T.tolist()):
        if of:
            ends[:, k] = seen / of, *binomial_interval(seen, of)
    return Chance(*ends[:, place].reshape((3, *count.shape)))
