"""Findings of an audit, round by round.

Who was exposed, and between which bounds weak T lay.

Everything follows from first exposures, classes of equal columns, the lightest sum so
far, the audit's own interval (a lower bound of weak T after the last round is one after
every round), and the bounds in bulk where the history is small enough for them, whose
primes are drawn for the call and err with a chance below 2**-30.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mrsa_jax._core.prime import minor_bits
from mrsa_jax.privacy._audit_hidden import Drifting, is_feasible
from mrsa_jax.privacy._hidden import hidden_among_trajectory
from mrsa_jax.privacy._strong import strong_privacy_trajectory
from mrsa_jax.privacy._trajectory import weak_privacy_trajectory
from mrsa_jax.privacy._weak import WeakPrivacy
from mrsa_jax.privacy.solver import Progress
from mrsa_watch._base.html import finding
from mrsa_watch._base.primes import ERROR_BITS, error_bits
from mrsa_watch.logs import ParticipationLog

# rounds x groups x groups of the bounds in bulk: half a minute of a core
_MOST_PRODUCTS = 10**9
_MOST_GROUPS = 1000
# of a history whose strong privacy is followed, at four bytes each
_MOST_ENTRIES = 2**26


@finding
class OverRounds:
    """Findings after each round of a log; all of `[rounds]`.

    Attributes:
        exposed: int32, clients whose own update could be solved for.
        strong: int32, strong T; -1 while no client took part. None for a log too large.
        lower: int32, weak T is at least this; -1 while no client took part.
        upper: int32, weak T is at most this; -1 while no client took part.
        hidden: float64, among how many the worst hidden client was, 1 from the first
            exposure on; nan while no client took part, and where it is not known to
            nine digits. None for a log too large.
        updates: float64, the same of the worst update so far if updates drift, nan
            where it is not known to six digits; None without a drift, or as above.
        lasting: float64, the same of what lasts of a client's updates; None where
            nothing or all of them lasts, or as above.
    """

    exposed: np.ndarray
    strong: np.ndarray | None
    lower: np.ndarray
    upper: np.ndarray
    hidden: np.ndarray | None
    updates: np.ndarray | None = None
    lasting: np.ndarray | None = None


class Part(NamedTuple):
    """The sums of one part of the vector.

    Attributes:
        name: Of the part.
        log: Its sums, of the clients who are in one of them.
        rows: Where they are in the whole log.
        clients: Where these are.
    """

    name: str
    log: ParticipationLog
    rows: list[int]
    clients: list[int]

    @staticmethod
    def all_of(log: ParticipationLog) -> list[Part]:
        """Return the parts of a log; none where its sums are of whole updates."""
        place = {name: j for j, name in enumerate(log.rounds)}
        column = {name: i for i, name in enumerate(log.clients)}
        return [
            Part(
                name,
                part_log,
                [place[row] for row in part_log.rounds],
                [column[client] for client in part_log.clients],
            )
            for name, part_log in log.by_part().items()
            if name is not None
        ]


def over_parts(
    first_rounds: Iterable[Hashable],
    log: ParticipationLog,
    parts: Sequence[tuple[Part, OverRounds]],
) -> OverRounds:
    """Merge the findings after each round of a log's parts: the worst of them.

    Args:
        first_rounds: For each client that a part exposes the name of the round from
            which on it is.
        log: The history of all parts.
        parts: Each with what is known of it after each of its rounds.
    """
    rounds = np.arange(len(log.rounds))
    exposed = _exposed(log, first_rounds)

    def worst(name: str, nothing: float, kind: type) -> np.ndarray | None:
        lowest = np.full(len(rounds), np.inf)
        for part, curves in parts:
            values = getattr(curves, name)
            if values is None:
                return None
            # NaN stands for what floats do not know, once a client took part
            values = np.append(np.where(curves.lower >= 0, values, np.inf), np.inf)
            # the last sum of the part so far; before there is one, the inf at the end
            last = np.searchsorted(part.rows, rounds, "right") - 1
            lowest = np.minimum(lowest, values[last])
        return np.where(lowest == np.inf, nothing, lowest).astype(kind)

    strong, lower, upper = (
        worst(name, -1.0, np.int32) for name in ("strong", "lower", "upper")
    )
    hidden, updates, lasting = (
        worst(name, np.nan, np.float64) for name in ("hidden", "updates", "lasting")
    )
    if hidden is not None:
        hidden = np.where(exposed > 0, 1.0, hidden)
    assert lower is not None
    assert upper is not None
    return OverRounds(exposed, strong, lower, upper, hidden, updates, lasting)


def over_rounds(
    log: ParticipationLog,
    first_rounds: Iterable[Hashable],
    weak: WeakPrivacy,
    progress: Progress | None = None,
    drifting: Drifting | None = None,
) -> OverRounds:
    """Return an audit's findings after every round of its log.

    Args:
        log: The history.
        first_rounds: For each exposed client the name of the round from which on it is.
        weak: Weak privacy after the last round.
        progress: Called with what is done, parts done and their number.
        drifting: How updates drift; None says nothing of that.
    """
    P = log.participation
    rounds = len(P)
    seen = np.maximum.accumulate((P != 0).any(axis=1))
    exposed = _exposed(log, first_rounds)
    strong = None
    if P.size <= _MOST_ENTRIES:
        strong = np.asarray(strong_privacy_trajectory(P))
    # Without an exposed client T is at least two, and T never rises.
    lower = np.where(exposed > 0, 1, np.maximum(2, weak.lower or 1))
    upper = np.minimum.accumulate(_sizes(P))
    upper = np.where(exposed > 0, 1, upper)
    used = [j for j, value in enumerate(weak.witness) if value]
    if used and weak.upper is not None:
        upper[used[-1] :] = np.minimum(upper[used[-1] :], weak.upper)
    if strong is not None:
        lower = np.maximum(lower, strong)
    groups = weak.num_groups
    is_small = 0 < groups <= _MOST_GROUPS and rounds * groups**2 <= _MOST_PRODUCTS
    if is_small and error_bits(minor_bits(P), 2) >= ERROR_BITS:
        bulk = weak_privacy_trajectory(P, method="bounds", progress=progress)
        lower = np.maximum(lower, bulk.lower)
        upper = np.where(seen, np.minimum(upper, bulk.upper), upper)
    lower = np.where(seen, lower, -1).astype(np.int32)
    upper = np.where(seen, upper, -1).astype(np.int32)
    hidden = None
    if is_feasible(P):
        worst = np.asarray(hidden_among_trajectory(P, quantiles=(0.0,)))[:, 0]
        hidden = np.where(exposed > 0, 1.0, np.maximum(worst, np.nextafter(1.0, 2.0)))
    updates = lasting = None
    if drifting is not None:
        updates = drifting.worst_over_rounds(log)
        if drifting.has_lasting_part:
            lasting = drifting.worst_lasting_over_rounds(log)
    return OverRounds(exposed, strong, lower, upper, hidden, updates, lasting)


def _exposed(log: ParticipationLog, first_rounds: Iterable[Hashable]) -> np.ndarray:
    """Count the exposed clients after each round."""
    row_of = {name: j for j, name in enumerate(log.rounds)}
    firsts = np.array([row_of[first] for first in first_rounds], np.int64)
    counts = np.bincount(firsts, minlength=len(log.rounds))
    return np.cumsum(counts).astype(np.int32)


def _sizes(P: np.ndarray) -> np.ndarray:
    """Count the clients of each sum; an empty round counts as a sum of all of them."""
    sizes = (P != 0).sum(axis=1)
    return np.where(sizes > 0, sizes, P.shape[1])
