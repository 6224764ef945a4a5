"""Analyse the participation of a trial: all that a server can know from its sums.

The participation history does not depend on the updates, so it is rolled out first, and
only rounds that were not skipped are trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mrsa_jax import modular, privacy, selection
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import bucket
from mrsa_jax._core.programs import LITTLE
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax.privacy.summary import keeps_little, summaries, what_never_changes

# Rounds x clients x clients whose weak T is proven in 15 s, or bounded in bulk in 30 s.
_MOST_PROVEN, _MOST_PRODUCTS = 10**7, 10**9
# Measured: copies of all trials' histories, and bytes for each entry of those being
# analysed.
_COPIES, _ENTRY_BYTES = 4, 96
# Measured at 10^6 x 50 to 400 and 10^5 x 1,000, whose parts are followed: 1.9 GiB, 10
# an entry.
_BLOCKS_BYTES, _LARGE_BYTES = 2**31, 12
# Measured at 10^6 x 60, 200 and 1,000 that are looked at only at the end: 0.46, 1.10 and
# 3.93 GB, of which the copies are 0.24, 0.80 and 4.00.
_LITTLE_BYTES = 3 * 2**27
_NINE_DIGITS = 1e-9  # precision of the sizes that clients are hidden among
# quantiles of the sizes that the clients are hidden among
WORST_AND_MEDIAN = (0.0, 0.5)


@dataclasses.dataclass(frozen=True)
class History:
    """Knowledge of a server that keeps every sum, from participation alone.

    Attributes:
        participation: bool[..., J, N], a row for each round, zero where it was skipped.
        strong_privacy: int32[..., J], strong T after each round; -1 before the first
            sum.
        rank: int32[..., J], rank of the participation matrix after each round.
        first_exposure: int32[..., N], round index at which a client's update first
            follows from the sums; -1 never.
        hidden_among_worst: float64[..., J], size of a single sum that would hide the
            worst client equally well, of those who took part, after each round; nan
            before the first sum.
        hidden_among_median: float64[..., J], the median client of those.
        fairness_gap: float32[..., J], F.
        aggregation_cardinality: float32[..., J], C.
    """

    participation: np.ndarray
    strong_privacy: np.ndarray
    rank: np.ndarray
    first_exposure: np.ndarray
    hidden_among_worst: np.ndarray
    hidden_among_median: np.ndarray
    fairness_gap: np.ndarray
    aggregation_cardinality: np.ndarray

    @property
    def exposed_clients(self) -> np.ndarray:
        """int32[..., J]: number of exposed clients after each round."""
        shape = self.participation.shape[:-1]
        first = self.first_exposure.reshape(-1, self.first_exposure.shape[-1])
        counts = np.zeros((len(first), shape[-1]), np.int32)
        trial, client = np.nonzero(first >= 0)
        # unbuffered: several clients may be exposed in one round of a trial
        np.add.at(counts, (trial, first[trial, client]), 1)
        return np.cumsum(counts, axis=1, dtype=np.int32).reshape(shape)

    @property
    def skipped(self) -> np.ndarray:
        """bool[..., J]: rounds in which no client was summed."""
        return np.asarray(~self.participation.any(-1))


def earliest(first: np.ndarray, axis: int) -> np.ndarray:
    """Return the earliest round along an axis, int32; -1 (never) if all are -1."""
    never = np.iinfo(np.int32).max
    # -1 would be the minimum, so never is replaced by the largest integer
    least = np.where(first >= 0, first, never).min(axis=axis)
    return np.where(least == never, -1, least).astype(np.int32)


def analyse(
    participation: Any,
    progress: Callable[[int, int], None] | None = None,
    *,
    at_end: bool = False,
    weights: np.ndarray | None = None,
) -> History:
    """Analyse histories of booleans or weights [..., J, N], in integers but F and C.

    Trials go through in parts, so that memory in addition to the history is bounded.

    Args:
        participation: The histories.
        progress: Called with (trials done, trials) after each part.
        at_end: Whether only the last entry of each path is needed, that after the last
            round: a small part of the work. There may be others.
        weights: Of the clients in every sum (`with_weights`); a client of weight 0
            counts in F and C.
    """
    history = np.asarray(participation)
    trials = history.reshape(-1, *history.shape[-2:])
    step = trials_at_once(*trials.shape)
    parts = []
    for start in range(0, len(trials), step):
        parts.append(_analyse(trials[start : start + step], at_end, weights))
        if progress is not None:
            progress(min(start + step, len(trials)), len(trials))
    lead = history.shape[:-2]
    return History(
        **{
            name: value.reshape(*lead, *value.shape[1:])
            for name, value in vars(joined(parts)).items()
        }
    )


def weak_bounds(
    history: History, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return bounds on weak T after each round of one history bool[J, N].

    They are -1 before the first sum. Proven ones if that takes seconds, else those in
    bulk; None if they take minutes.
    """
    P = with_weights(history.participation, weights)
    products = P.shape[0] * P.shape[1] ** 2
    if products > _MOST_PRODUCTS:
        return None
    method = "certified" if products <= _MOST_PROVEN else "bounds"
    bounds = privacy.weak_privacy_trajectory(P, method, effort=0.0)
    return np.asarray(bounds.lower), np.asarray(bounds.upper)


def quick_bounds(
    history: History, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return bounds on weak T as `weak_bounds` does, without a search.

    Any combination of the sums involves clients of equal columns together, so weak T is
    at least strong T; it is 1 if, and only if, a client is exposed; and in the lightest
    combination the client of the largest part is hidden among no more clients than
    exist. It is at most the lightest sum, or difference of two; and where the rank has
    reached the number of different columns, every such set is a combination by itself.
    Weights that are not 0 scale columns, and change neither the rank nor the clients in
    a combination.
    """
    P = with_weights(history.participation, weights) != 0
    # the larger of J^2 N and J N^2 bounds the products of rows below
    if max(P.shape) * P.size > _MOST_PRODUCTS:
        return None
    rows = P.astype(np.float32)  # counts below 2**24 are exact
    sizes = rows.sum(1)
    lightest = np.full(len(rows), np.inf, np.float32)
    # clients whose columns are equal so far have one name; a column of zeros has 0
    names = np.zeros(P.shape[1], np.intp)
    columns = np.zeros(len(rows), np.intp)  # numbers of different columns
    seen = np.zeros(P.shape[1], np.bool_)
    smallest = np.zeros(len(rows), np.int64)  # of the sets of equal columns
    for j, row in enumerate(rows):
        # sets of clients a and b differ in |a| + |b| - 2 |a and b| clients
        differences = sizes[:j] + sizes[j] - np.float32(2) * (rows[:j] @ row)
        involved = np.append(differences, sizes[j])
        lightest[j] = involved[involved > 0].min(initial=np.inf)
        # the bit of this round splits the sets, which `unique` numbers anew
        _, names, members = np.unique(
            2 * names + P[j], return_inverse=True, return_counts=True
        )
        seen |= P[j]
        # the first name is 0, of columns of zeros, unless each client has been in a sum
        smallest[j] = members[0 if seen.all() else 1 :].min(initial=P.shape[1])
        # names count from 0, so without zeros there is one set more
        columns[j] = names.max() + bool(seen.all())
    upper = np.minimum.accumulate(lightest)
    strong = history.strong_privacy
    is_exposed = history.exposed_clients > 0
    # the sums span all sets of equal columns, and the smallest is a combination
    upper = np.where(history.rank == columns, np.minimum(upper, smallest), upper)
    upper = np.where(is_exposed, 1, upper)
    # the precision is taken off before rounding up: 3.0000000001 is 3, not 4
    hidden = np.ceil(np.nan_to_num(history.hidden_among_worst) * (1 - _NINE_DIGITS))
    # 2, as without an exposed client no combination has a single client
    lower = np.where(is_exposed, 1, np.maximum(np.maximum(strong, hidden), 2))
    lower, upper = np.where(strong > 0, (lower, upper), -1).astype(np.int32)
    return lower, upper


def joined(
    parts: Sequence[History], join: Callable[..., np.ndarray] = np.concatenate
) -> History:
    """Join trials that were analysed in parts, or with `np.stack` one by one."""
    if len(parts) == 1 and join is np.concatenate:  # a large history is not copied
        return parts[0]
    return History(
        **{name: join([vars(part)[name] for part in parts]) for name in vars(parts[0])}
    )


def trials_at_once(trials: int, rounds: int, clients: int) -> int:
    """Return the number of trials of a shape that are analysed together."""
    return min(trials, at_once("analyses", _ENTRY_BYTES * rounds * clients))


def rolled_bytes(trials: int, rounds: int, clients: int) -> int:
    """Return about how many bytes histories need until they are analysed."""
    return _COPIES * trials * rounds * clients


def known_bytes(trials: int, rounds: int, clients: int) -> int:
    """Return about how many bytes rollout and analysis at the end need."""
    rolled = rolled_bytes(trials, rounds, clients)
    if keeps_little(rounds, clients):
        return rolled + _LITTLE_BYTES
    return rolled + analysed_bytes(trials, rounds, clients)


def analysed_bytes(trials: int, rounds: int, clients: int) -> int:
    """Return about how many bytes it takes to analyse the histories of a part."""
    # what runs is padded to a power of two of trials
    together = 1 << (trials_at_once(trials, rounds, clients) - 1).bit_length()
    entries = together * rounds * clients
    return min(_ENTRY_BYTES * entries, _BLOCKS_BYTES + _LARGE_BYTES * entries)


def _analyse(history: np.ndarray, at_end: bool, weights: np.ndarray | None) -> History:
    participation = history.astype(np.bool_, copy=False)  # F and C know no weights
    sums = with_weights(history, weights)
    summary = summaries(sums, WORST_AND_MEDIAN) if at_end else None
    if summary is None:
        return _analyse_each_round(sums, participation)
    counts = summary.counts
    rounds = np.float32(history.shape[1])
    # F: most less fewest participations, over the rounds
    spread = counts.max(axis=1, keepdims=True) - counts.min(axis=1, keepdims=True)
    total = counts.sum(axis=1, keepdims=True, dtype=np.int64)
    return History(
        participation=participation,
        strong_privacy=summary.strong_privacy,
        rank=summary.rank,
        first_exposure=summary.first_exposure,
        hidden_among_worst=summary.hidden_among[:, :1],
        hidden_among_median=summary.hidden_among[:, 1:],
        fairness_gap=spread.astype(np.float32) / rounds,
        aggregation_cardinality=total.astype(np.float32) / rounds,
    )


def filled_up(history: np.ndarray) -> np.ndarray:
    """Add empty rounds to histories `[trials, rounds, clients]`, up to a common number.

    So other numbers of rounds compile nothing. Long histories stay as they are: most of
    their time is not compilation.
    """
    trials, rounds, clients = history.shape
    more = bucket(rounds)
    if trials * more * clients > LITTLE:
        return history
    # empty rounds at the end change no path before them
    return np.pad(history, ((0, 0), (0, more - rounds), (0, 0)))


def _analyse_each_round(history: np.ndarray, participation: np.ndarray) -> History:
    rows, members = filled_up(history), filled_up(participation)
    hidden = np.asarray(
        privacy.hidden_among_trajectory(rows, quantiles=WORST_AND_MEDIAN)
    )
    paths = {
        "strong_privacy": privacy.strong_privacy_trajectory(rows),
        "rank": modular.rank_trajectory(rows),
        "hidden_among_worst": hidden[..., 0],
        "hidden_among_median": hidden[..., 1],
        "fairness_gap": selection.fairness_gap(members),
        "aggregation_cardinality": selection.aggregation_cardinality(members),
    }
    rounds = history.shape[1]
    return History(
        participation=participation,
        first_exposure=np.asarray(privacy.first_exposure(rows)),
        **{name: np.asarray(path)[:, :rounds] for name, path in paths.items()},
    )


def analyse_rounds(
    history: selection.RoundHistory,
    *,
    at_end: bool = False,
    weights: np.ndarray | None = None,
) -> History:
    """Analyse one trial of rounds with dropouts inside.

    Privacy is of every sum that was learnt, including sums over parts of a round and
    those that failed rounds revealed; F and C are of the sums of whole rounds.
    """
    rows, rounds = selection.learnt_rows(history)
    sums = with_weights(rows, weights)
    return analyse_sums(sums, rounds, np.asarray(history.participation), at_end=at_end)


def each_trial(played: selection.RoundHistory) -> Iterator[selection.RoundHistory]:
    """Go through trials of rounds with dropouts inside."""
    for b in range(len(played.status)):
        trial: Any = jax.tree.map(lambda leaf, b=b: leaf[b], played)
        yield trial


def analyse_sums(
    rows: np.ndarray,
    rounds: np.ndarray,
    participation: np.ndarray,
    *,
    at_end: bool = False,
) -> History:
    """Analyse any number of learnt sums per round.

    Args:
        rows: [sums, N], the clients in each learnt sum, or their weights there.
        rounds: int[sums], ascending, the round of each.
        participation: bool[J, N], the clients in the sum of each round.
        at_end: As for `analyse`.
    """
    num_rounds, clients = participation.shape
    # a row of zeros for each round keeps the order and changes no rank and no class of
    # columns; more of them at the end make the shapes, which decide the programs,
    # depend on J alone if rounds give no more than one sum each
    order = np.argsort(np.concatenate([rounds, np.arange(num_rounds)]), kind="stable")
    room = num_rounds * max(1, -(-len(rows) // num_rounds))
    empty = np.zeros((num_rounds, clients), rows.dtype)
    spare = np.zeros((room - len(rows), clients), rows.dtype)
    history = np.concatenate([np.concatenate([rows, empty])[order], spare])
    # the row of zeros that closes each round, where its paths are read
    ends = np.cumsum(1 + np.bincount(rounds, minlength=num_rounds)) - 1
    analysed = analyse(history, at_end=at_end)
    # the first end that is not before a row is that of its round
    round_of = np.searchsorted(ends, np.arange(len(history)))
    first = analysed.first_exposure
    # at the end there is one entry; else that after each round's last sum
    places: Any = slice(-1, None) if at_end else ends
    paths = ("strong_privacy", "rank", "hidden_among_worst", "hidden_among_median")
    return History(
        **{name: getattr(analysed, name)[places] for name in paths},
        participation=participation,
        first_exposure=np.where(first >= 0, round_of[first], -1).astype(np.int32),
        fairness_gap=np.asarray(selection.fairness_gap(participation)),
        aggregation_cardinality=np.asarray(
            selection.aggregation_cardinality(participation)
        ),
    )


def hidden_updates(
    rows: np.ndarray, rounds: np.ndarray, num_rounds: int, memory: float, share: float
) -> np.ndarray:
    """Return the size that the worst update so far is hidden among, after each round.

    Args:
        rows: bool[sums, N], the clients in each learnt sum.
        rounds: int[sums], ascending, the round of each: sums of one round are of one
            update.
        num_rounds: J.
        memory: Correlation of the lasting part with that of the round before.
        share: Fraction of an update's variance that lasts.

    Returns:
        float64[J, 2], of the worst and the median client of those in sums; nan before
        the first.
    """
    kernel = memory_kernel(rounds, memory, share) if len(rows) else 1.0
    return _after_each_round(rows, rounds, num_rounds, memory=kernel)


def hidden_lasting(
    rows: np.ndarray, rounds: np.ndarray, num_rounds: int, share: float
) -> np.ndarray:
    """Return the size that what lasts of updates is hidden among, after each round.

    Args:
        rows: As for `hidden_updates`.
        rounds: As for `hidden_updates`.
        num_rounds: J.
        share: Fraction of an update's variance that never changes, above 0, below 1.

    Returns:
        As `hidden_updates`.
    """
    settings = what_never_changes(rows, rounds, share)
    return _after_each_round(rows, rounds, num_rounds, **settings)


def _after_each_round(
    rows: np.ndarray, rounds: np.ndarray, num_rounds: int, **settings: Any
) -> np.ndarray:
    path = np.full((1, 2), np.nan)
    if len(rows):
        hidden = privacy.hidden_among_trajectory(
            rows, quantiles=WORST_AND_MEDIAN, **settings
        )
        # the first entry is for rounds before any sum
        path = np.concatenate([path, np.asarray(hidden)])
    # sums of a round count as soon as it is over, hence `right`
    sums_so_far = np.searchsorted(rounds, np.arange(num_rounds), side="right")
    return np.asarray(path[sums_so_far])


def learnt_sums(cohorts: Any) -> np.ndarray:
    """Return the participation bool[..., J, N]: cohorts whose sum the server learns.

    It differs from the cohorts only if a selector asks a single client (Bernoulli
    selection may): that round's sum is withheld.
    """
    history = np.asarray(cohorts, np.bool_)
    sizes = np.count_nonzero(history, axis=-1, keepdims=True)
    is_withheld = (sizes > 0) & (sizes < FEWEST_IN_A_SUM)
    # only then, as a large history is copied otherwise
    return np.where(is_withheld, False, history) if is_withheld.any() else history


def rounds_with_sums(history: np.ndarray) -> int:
    """Return the number of rounds of bool[J, N] with a client in them."""
    return int(history.any(-1).sum())
