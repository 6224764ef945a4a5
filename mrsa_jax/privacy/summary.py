"""Figures of histories at their end, decided once for all of them.

Classes, rank, leverages.
Clients with equal columns are one column of a smaller matrix Q: the smallest class is
strong T, Q has the rank of P, and only who is alone in its class can be exposed. One
elimination of Q modulo a drawn prime gives the rank and every first exposure. At full
rank the leverage of a client is one over the size of its class; otherwise it follows
from the Gram matrix of the rows that raise the rank. Exposure and rank are decided in
integers: what one prime does not prove is decided by as many as `first_exposure` takes,
with its chance of error. Where the columns are many, floats say first that no client
comes near exposure; they never say that one is exposed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.prime import minor_bits
from mrsa_jax._core.threads import over_ranges
from mrsa_jax.privacy._exposure import follow
from mrsa_jax.privacy._hidden import among
from mrsa_jax.privacy._leverage import (
    KNOWN,
    Request,
    follow_classes,
    goes_by_columns,
    last_of_wide,
    narrowed,
    quantiles_of,
)
from mrsa_jax.privacy._leverage_wide import Wide, errors_of, rest_of_one, rest_of_three
from mrsa_watch._base.primes import draw_primes, enough_primes

# of rounds times clients: from here on products of matrices and bounded memory win
_MOST_ENTRIES = 2**22
# What floats see as far from exposure: their bound of what they err by is a thousandth
# of it.
_FAR = 1e-6
_SIX_DIGITS = 1e-6
_ONCE = 0.9 * KNOWN  # largest error of one pass, without that of the rows that it makes
# so many times as many columns as rows: first looked at by their Gram matrix,
_WIDE = 1.1
# from so many entries on; elimination takes as long where there are fewer
_MOST_FOLLOWED = 2**16


def what_never_changes(P: np.ndarray, time: np.ndarray, share: float) -> dict[str, Any]:
    """Return the arguments of `hidden_among` for what is constant about each client.

    Client i sends sqrt(a) l_i + sqrt(1 - a) e_ir, with e fresh in each round: what
    lasts is of memory 1. Of several sums of a round the fresh parts are the same. For l
    the sums of all e are noise, of covariance (1 - a)/a (P P^T) between sums of one
    round, and 0 between others.

    Args:
        P: Weights of the clients in each sum, `[rows, clients]`.
        time: The round of each row.
        share: a, above 0 and below 1.
    """
    if len(np.unique(time)) == len(time):
        return {"memory": 1.0, "share": share, "of": "lasting"}
    rows = P.astype(np.float64)
    same = np.equal.outer(time, time)
    with np.errstate(over="ignore", invalid="ignore"):
        return {"noise": (1 - share) / share * np.where(same, rows @ rows.T, 0.0)}


class Summaries(NamedTuple):
    """Figures of histories, bool `[trials, rounds, clients]`.

    Attributes:
        strong_privacy: int32 `[trials, rounds]`, -1 before the first sum.
        rank: int32 `[trials, rounds]`.
        first_exposure: int32 `[trials, clients]`, -1 for never.
        hidden_among: float64 `[trials, quantiles]` over those in sums, after the last
            round.
        counts: int32 `[trials, clients]`, rounds of each client.
    """

    strong_privacy: np.ndarray
    rank: np.ndarray
    first_exposure: np.ndarray
    hidden_among: np.ndarray
    counts: np.ndarray


def summaries(history: np.ndarray, quantiles: tuple[float, ...]) -> Summaries | None:
    """Compute all figures of histories at once, as the function of each returns them.

    Args:
        history: bool `[trials, rounds, clients]`.
        quantiles: Of `hidden_among`.

    Returns:
        None where this is no way: on accelerators, of weights, of large histories of no
        more than twice as many clients as rounds.
    """
    trials, rounds, clients = history.shape
    has_loops = chosen_form(("loops", "xla")) == "loops"
    if not has_loops or history.dtype != np.bool_:
        return None
    # one type, to be compiled once
    history = np.require(history, requirements=["C", "W"])
    if rounds * clients > _MOST_ENTRIES:
        is_known = keeps_little(rounds, clients)
        return _summaries_of_wide(history, quantiles) if is_known else None
    primes = draw_primes(enough_primes(minor_bits(history), 4 * clients))
    strong, ranks = np.empty((2, trials, rounds), np.int32)
    first, counts = np.empty((2, trials, clients), np.int32)
    shares = np.empty((trials, clients))

    def part(some: slice) -> None:
        arrays = (each[some] for each in (strong, ranks, first, counts, shares))
        _follow(history[some], primes, *arrays)

    over_ranges("summaries", part, trials)
    hidden = quantiles_of(shares, quantiles, np)
    for b in np.flatnonzero(np.isnan(shares).any(axis=1)):
        hidden[b] = among(history[b], None, Request(quantiles), first[b])
    return Summaries(strong, ranks, first, hidden, counts)


def keeps_little(rounds: int, clients: int) -> bool:
    """Return whether a very large history is summed up in little memory next to it."""
    has_loops = chosen_form(("loops", "xla")) == "loops"
    is_large = rounds * clients > _MOST_ENTRIES
    return has_loops and is_large and goes_by_columns(rounds, clients)


def _summaries_of_wide(history: np.ndarray, quantiles: tuple[float, ...]) -> Summaries:
    """Compute the figures of very large histories, in little memory next to them."""
    from mrsa_jax.privacy._summary_loops import collapse

    trials, rounds, clients = history.shape
    strong, ranks = np.empty((2, trials, rounds), np.int32)
    first, counts = np.empty((2, trials, clients), np.int32)
    hidden = np.empty((trials, len(quantiles)))
    names, distinct = np.empty((1, clients), np.int32), np.empty((1, rounds), np.int32)
    for b in range(trials):
        trial = slice(b, b + 1)
        collapse(history[trial], names, strong[trial], distinct, counts[trial])
        wide = Wide(history[b], None)
        ranks[b], first[b] = wide.ranks, wide.first
        classes = narrowed(history[b])
        if classes is None:
            hidden[b] = quantiles_of(last_of_wide(wide), quantiles, np)
        else:  # to the bit as they are followed
            rows = np.empty((rounds, len(quantiles)))
            follow_classes(rows, history[b], classes, None, Request(quantiles, False))
            hidden[b] = rows[-1]
    return Summaries(strong, ranks, first, hidden, counts)


def hidden_by_round(
    history: np.ndarray, summary: Summaries, quantiles: tuple[float, ...]
) -> np.ndarray:
    """Return quantiles of `hidden_among` after each round of one history.

    Nothing is compiled for it.

    Rows that raise the rank are made orthonormal: leverages are sums of squares. To six
    digits, NaN where floats do not know that many. Integers say who is exposed.

    Args:
        history: bool `[rounds, clients]`.
        summary: What `summaries` returns of it alone.
        quantiles: Of those in sums.
    """
    ranks, first = summary.rank[0], summary.first_exposure[0]
    rows = history[np.diff(ranks, prepend=0) > 0].astype(np.float64)
    # `einsum` and loops, not BLAS, whose threads wait for one another on a busy
    # machine; the error is what their products differ from 0 and 1 by, and how far
    # rounding turns them out of the span
    inverse = np.triu(np.einsum("ic,jc->ij", rows, rows))
    is_known = _loops_of_rows()._inverse_factor(inverse)
    units = np.einsum("ji,jc->ic", inverse, rows)
    error = np.linalg.norm(np.einsum("ic,jc->ij", units, units) - np.eye(len(units)))
    error += (
        np.finfo(float).eps
        * units.size
        * np.linalg.norm(inverse)
        * np.linalg.norm(rows)
    )
    grown = np.zeros((len(units) + 1, history.shape[1]))
    np.cumsum(units**2, axis=0, out=grown[1:])
    below = np.minimum(grown[ranks], np.nextafter(1.0, 0.0))
    shares = np.where(np.logical_or.accumulate(history), below, 0.0)
    if not (is_known and error <= _SIX_DIGITS):
        shares = np.where(shares > 0, np.nan, shares)
    shares[(first >= 0) & (first <= np.arange(len(history))[:, None])] = 1.0
    return np.asarray(quantiles_of(shares, quantiles, np))


def _follow(
    history: np.ndarray,
    primes: tuple[int, ...],
    strong: np.ndarray,
    ranks: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Fill what is known of some trials; leverages that floats do not know are NaN."""
    from mrsa_jax.privacy import _summary_loops as loops

    names, distinct = np.empty_like(counts), np.empty_like(strong)
    loops.collapse(history, names, strong, distinct, counts)
    sizes = np.stack(
        [np.bincount(label, minlength=label.size + 1)[label] for label in names]
    )
    shares[:] = np.where(names > 0, 1 / sizes, 0.0)
    ranks[:], first[:] = np.cumsum(history.any(axis=2), axis=1), -1
    is_done = np.zeros(len(history), np.bool_)
    if history[0].size > _MOST_FOLLOWED:
        # many columns: full rank is proven modulo a prime, floats may say that nobody
        # is exposed
        is_done = distinct[:, -1] >= _WIDE * np.maximum(ranks[:, -1], 1)
        _loops_of_rows().regular_trials(history, ranks, is_done)
        _measure(history, ranks, is_done, shares)
        is_done &= shares.max(axis=1) < 1 - _FAR
    follow(history, primes, names, distinct, ranks, first, is_done.copy())
    is_due = ~is_done & (ranks[:, -1] < distinct[:, -1])
    _measure(history, ranks, is_due, shares)
    below = np.minimum(shares, np.nextafter(1.0, 0.0))
    shares[:] = np.where(first >= 0, 1.0, np.where(names > 0, below, 0.0))


def _measure(
    history: np.ndarray, ranks: np.ndarray, is_due: np.ndarray, shares: np.ndarray
) -> None:
    """Fill the leverages of trials by floats, NaN where they are not known.

    The rows that raise their ranks must be known to be independent.
    """
    if not is_due.any():  # and nothing is compiled for it
        return
    leverages, rows = np.zeros((2, *shares.shape))
    growth, sums = np.zeros((2, len(shares)))
    most = np.array([_ONCE / rest_of_one(int(rank), 1.0) for rank in ranks[:, -1]])
    filled = leverages, rows, growth, sums
    _loops_of_rows().leverage_trials(history, ranks, is_due, most, *filled)
    for b in np.flatnonzero(is_due):
        count, once = int(ranks[b, -1]), sums[b] <= most[b]
        last = (
            rest_of_one(count, sums[b]) if once else rest_of_three(count, rows.shape[1])
        )
        errors = errors_of(leverages[b], rows[b], growth[b], 0.0, count, last, np)
        shares[b] = np.where(errors <= KNOWN, leverages[b], np.nan)


def _loops_of_rows() -> Any:
    from mrsa_jax.privacy import _gram_loops

    return _gram_loops
