"""Stages of a study: roll histories out, analyse them, train on them, attack them.

The participation history does not depend on the updates, so it is rolled out first, and
only rounds that were not skipped are trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mrsa_jax import attacks, federated, modular, privacy, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.factories import bucket
from mrsa_jax._core.programs import LITTLE
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax._core.slots import padded_slots
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax._core.streams import Stream, as_key, fold, round_key
from mrsa_jax.privacy._summary import keeps_little, summaries

# Rounds x clients x clients whose weak T is proven in 15 s, or bounded in bulk in 30 s.
_MOST_PROVEN, _MOST_PRODUCTS = 10**7, 10**9
# Measured: copies of all trials' histories, and bytes for each entry of those being
# analysed.
_COPIES, _ENTRY_BYTES = 4, 96
# Measured at 10^6 x 50 to 400 and 10^5 x 1,000, whose parts are followed: 1.9 GiB, 10
# an entry; at 10^6 x 1,000 only at the end, less than one next to the history: 3.5 GiB
# in all.
_BLOCKS_BYTES, _LARGE_BYTES, _LAST_BYTES = 2**31, 12, 1
_NINE_DIGITS = 1e-9  # to which what clients are hidden among is known
# of the clients, as quantiles of what each is hidden among
WORST_AND_MEDIAN = (0.0, 0.5)


@dataclasses.dataclass(frozen=True)
class History:
    """What a server that keeps every sum can know from who took part.

    Attributes:
        participation: bool[..., J, N], a row for each round, zero where it was skipped.
        strong_privacy: int32[..., J], strong T after each round; -1 before the first
            sum.
        rank: int32[..., J], rank of the participation matrix after each round.
        first_exposure: int32[..., N], round index at which a client's own update first
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
        found = np.zeros((len(first), shape[-1]), np.int32)
        trial, client = np.nonzero(first >= 0)
        np.add.at(found, (trial, first[trial, client]), 1)
        return np.cumsum(found, axis=1, dtype=np.int32).reshape(shape)

    @property
    def skipped(self) -> np.ndarray:
        """bool[..., J]: rounds in which no client was summed."""
        return np.asarray(~self.participation.any(-1))


def earliest(first: np.ndarray, axis: int) -> np.ndarray:
    """Return the least of rounds along an axis, int32.

    -1, which is never, where all are.
    """
    never = np.iinfo(np.int32).max
    least = np.where(first >= 0, first, never).min(axis=axis)
    return np.where(least == never, -1, least).astype(np.int32)


def analyse(
    participation: Any,
    progress: Callable[[int, int], None] | None = None,
    *,
    at_end: bool = False,
    weights: np.ndarray | None = None,
) -> History:
    """Analyse a history of booleans or weights [..., J, N].

    All in integers but F and C.
    Trials go through in parts, so that memory in addition to the history is bounded;
    `progress` is called with (trials done, trials) after each. With `at_end`, the last
    entry of each path is that after the last round, and there need be no others: a
    small part of the work. `weights` are those of the clients in every sum
    (`with_weights`); a client of weight 0 counts in F and C.
    """
    history = np.asarray(participation)
    trials = history.reshape(-1, *history.shape[-2:])
    step, parts = trials_at_once(*trials.shape), []
    for at in range(0, len(trials), step):
        parts.append(_analyse(trials[at : at + step], at_end, weights))
        if progress is not None:
            progress(min(at + step, len(trials)), len(trials))
    found = joined(parts)
    lead = history.shape[:-2]
    own = {
        name: value.reshape(*lead, *value.shape[1:])
        for name, value in vars(found).items()
    }
    return History(**own)


def weak_bounds(
    history: History, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return bounds on weak T after each round of one history bool[J, N], -1 before the first sum.

    Proven ones where that takes seconds, else those in bulk; None where they take
    minutes.
    """
    P = with_weights(history.participation, weights)
    products = P.shape[0] * P.shape[1] ** 2
    if products > _MOST_PRODUCTS:
        return None
    method = "certified" if products <= _MOST_PROVEN else "bounds"
    found = privacy.weak_privacy_trajectory(P, method, effort=0.0)
    return np.asarray(found.lower), np.asarray(found.upper)


def quick_bounds(
    history: History, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return bounds on weak T as `weak_bounds` does, from what is known already.

    No search.
    Any combination of the sums involves clients of equal columns together, so weak T is
    at least strong T; it is 1 where, and only where, a client is exposed; and in the
    lightest combination the client of the largest part is hidden among no more clients
    than exist. It is at most the lightest sum, or difference of two; and where the rank
    has reached the number of different columns, every such set is a combination by
    itself. Weights that are not 0 scale columns, and change neither the rank nor which
    clients a combination involves.
    """
    P = with_weights(history.participation, weights) != 0
    if max(P.shape) * P.size > _MOST_PRODUCTS:
        return None
    rows = P.astype(np.float32)  # counts below 2**24 are exact
    sizes = rows.sum(1)
    lightest = np.full(len(rows), np.inf, np.float32)
    names, columns = np.zeros(P.shape[1], np.intp), np.zeros(len(rows), np.intp)
    seen = np.zeros(P.shape[1], np.bool_)
    smallest = np.zeros(len(rows), np.int64)  # of the sets of equal columns
    for j, row in enumerate(rows):
        apart = sizes[:j] + sizes[j] - np.float32(2) * (rows[:j] @ row)
        found = np.append(apart, sizes[j])
        lightest[j] = found[found > 0].min(initial=np.inf)
        # a column of zeros has the name 0
        _, names, members = np.unique(
            2 * names + P[j], return_inverse=True, return_counts=True
        )
        seen |= P[j]
        smallest[j] = members[0 if seen.all() else 1 :].min(initial=P.shape[1])
        columns[j] = names.max() + bool(seen.all())
    upper = np.minimum.accumulate(lightest)
    strong, is_exposed = history.strong_privacy, history.exposed_clients > 0
    upper = np.where(history.rank == columns, np.minimum(upper, smallest), upper)
    upper = np.where(is_exposed, 1, upper)
    hidden = np.ceil(np.nan_to_num(history.hidden_among_worst) * (1 - _NINE_DIGITS))
    lower = np.where(is_exposed, 1, np.maximum(np.maximum(strong, hidden), 2))
    lower, upper = (
        np.where(strong > 0, own, -1).astype(np.int32) for own in (lower, upper)
    )
    return lower, upper


def joined(
    parts: Sequence[History], join: Callable[..., np.ndarray] = np.concatenate
) -> History:
    """Return trials that were analysed in parts, or with `np.stack` one by one, all together."""
    if len(parts) == 1 and join is np.concatenate:  # a large history is not copied
        return parts[0]
    names = [field.name for field in dataclasses.fields(History)]
    return History(
        **{name: join([getattr(part, name) for part in parts]) for name in names}
    )


def trials_at_once(trials: int, rounds: int, clients: int) -> int:
    """Return how many trials of a shape are analysed together."""
    return min(trials, at_once("analyses", _ENTRY_BYTES * rounds * clients))


def rolled_bytes(trials: int, rounds: int, clients: int) -> int:
    """Return about what histories need until they are analysed."""
    return _COPIES * trials * rounds * clients


def known_bytes(trials: int, rounds: int, clients: int) -> int:
    """Return about what rolling histories out and then analysing their end needs."""
    rolled = rolled_bytes(trials, rounds, clients)
    analysed = analysed_bytes(trials, rounds, clients, at_end=True)
    if not keeps_little(rounds, clients):
        return rolled + analysed
    return max(rolled, rolled // _COPIES + analysed)  # one after the other


def analysed_bytes(
    trials: int, rounds: int, clients: int, *, at_end: bool = False
) -> int:
    """Return about what analysing histories needs, as many at once as there are in a part."""
    together = 1 << (trials_at_once(trials, rounds, clients) - 1).bit_length()
    entries = together * rounds * clients
    is_little = at_end and keeps_little(rounds, clients)
    large = _LAST_BYTES if is_little else _LARGE_BYTES
    return min(_ENTRY_BYTES * entries, _BLOCKS_BYTES + large * entries)


def _analyse(history: np.ndarray, at_end: bool, weights: np.ndarray | None) -> History:
    own = history.astype(np.bool_, copy=False)  # F and C know no weights
    sums = with_weights(history, weights)
    found = summaries(sums, WORST_AND_MEDIAN) if at_end else None
    if found is None:
        return _analyse_each_round(sums, own)
    counts, rounds = found.counts, np.float32(history.shape[1])
    spread = counts.max(axis=1, keepdims=True) - counts.min(axis=1, keepdims=True)
    total = counts.sum(axis=1, keepdims=True, dtype=np.int64)
    return History(
        participation=own,
        strong_privacy=found.strong_privacy,
        rank=found.rank,
        first_exposure=found.first_exposure,
        hidden_among_worst=found.hidden_among[:, :1],
        hidden_among_median=found.hidden_among[:, 1:],
        fairness_gap=spread.astype(np.float32) / rounds,
        aggregation_cardinality=total.astype(np.float32) / rounds,
    )


def filled_up(history: np.ndarray) -> np.ndarray:
    """Return histories `[trials, rounds, clients]` with empty rounds behind, one size for many.

    So other numbers of rounds compile nothing; where compiling is not most of the work,
    as it is.
    """
    trials, rounds, clients = history.shape
    more = bucket(rounds)
    is_little = trials * more * clients <= LITTLE
    return np.pad(history, ((0, 0), (0, more - rounds if is_little else 0), (0, 0)))


def _analyse_each_round(history: np.ndarray, own: np.ndarray) -> History:
    every, who, rounds = filled_up(history), filled_up(own), history.shape[1]
    hidden = np.asarray(
        privacy.hidden_among_trajectory(every, quantiles=WORST_AND_MEDIAN)
    )
    return History(
        participation=own,
        strong_privacy=np.asarray(privacy.strong_privacy_trajectory(every))[:, :rounds],
        rank=np.asarray(modular.rank_trajectory(every))[:, :rounds],
        first_exposure=np.asarray(privacy.first_exposure(every)),
        hidden_among_worst=hidden[:, :rounds, 0],
        hidden_among_median=hidden[:, :rounds, 1],
        fairness_gap=np.asarray(selection.fairness_gap(who))[:, :rounds],
        aggregation_cardinality=np.asarray(selection.aggregation_cardinality(who))[
            :, :rounds
        ],
    )


def analyse_rounds(
    history: selection.RoundHistory,
    *,
    at_end: bool = False,
    weights: np.ndarray | None = None,
) -> History:
    """Analyse one trial of rounds with dropouts inside.

    Privacy is of every sum that was learnt, those over parts of a round and those that
    failed rounds gave away included; F and C are of the rounds' own sums.
    """
    rows, rounds = selection.learnt_rows(history)
    sums = with_weights(rows, weights)
    return analyse_sums(sums, rounds, np.asarray(history.participation), at_end=at_end)


def each_trial(played: selection.RoundHistory) -> Iterator[selection.RoundHistory]:
    """Go through trials of rounds with dropouts inside."""
    for b in range(len(played.status)):
        own: Any = jax.tree.map(lambda leaf, b=b: leaf[b], played)
        yield own


def analyse_sums(
    rows: np.ndarray, rounds: np.ndarray, own: np.ndarray, *, at_end: bool = False
) -> History:
    """Analyse any number of learnt sums per round.

    Args:
        rows: [sums, N], who is in each learnt sum, or the weights there.
        rounds: int[sums], ascending, the round of each.
        own: bool[J, N], who is in the sum of each round.
        at_end: As for `analyse`.
    """
    num_rounds = len(own)
    # a row of zeros for each round keeps the order and changes no rank and no class of
    # columns; more of them at the end make the shapes, which decide what is compiled,
    # depend on J alone where rounds give no more than a sum each
    order = np.argsort(np.concatenate([rounds, np.arange(num_rounds)]), kind="stable")
    room = num_rounds * max(1, -(-len(rows) // num_rounds))
    spare = np.zeros((room - len(rows), own.shape[1]), rows.dtype)
    every = np.concatenate(
        [np.concatenate([rows, np.zeros(own.shape, rows.dtype)])[order], spare]
    )
    ends = np.cumsum(1 + np.bincount(rounds, minlength=num_rounds)) - 1
    found = analyse(every, at_end=at_end)
    round_of = np.searchsorted(ends, np.arange(len(every)))
    over: Any = slice(-1, None) if at_end else ends
    first = np.where(found.first_exposure >= 0, round_of[found.first_exposure], -1)
    paths = ("strong_privacy", "rank", "hidden_among_worst", "hidden_among_median")
    return History(
        **{name: getattr(found, name)[over] for name in paths},
        participation=own,
        first_exposure=first.astype(np.int32),
        fairness_gap=np.asarray(selection.fairness_gap(own)),
        aggregation_cardinality=np.asarray(selection.aggregation_cardinality(own)),
    )


def hidden_updates(
    rows: np.ndarray, rounds: np.ndarray, num_rounds: int, memory: float, share: float
) -> np.ndarray:
    """Return among how many the worst update so far is hidden if updates drift, after each round.

    Args:
        rows: bool[sums, N], who is in each learnt sum.
        rounds: int[sums], ascending, the round of each: sums of one round are of one
            update.
        num_rounds: J.
        memory: Correlation of what lasts with that of the round before.
        share: Of an update's variance that lasts.

    Returns:
        float64[J, 2], of the worst and the median client of those in sums; nan before
        the first.
    """
    kernel = memory_kernel(rounds, memory, share)
    found = np.full((1, 2), np.nan)
    if len(rows):
        path = privacy.hidden_among_trajectory(
            rows, memory=kernel, quantiles=WORST_AND_MEDIAN
        )
        found = np.concatenate([found, np.asarray(path)])
    return np.asarray(
        found[np.searchsorted(rounds, np.arange(num_rounds), side="right")]
    )


def learnt_sums(cohorts: Any) -> np.ndarray:
    """Return the participation bool[..., J, N].

    The cohorts whose sum the server learns.
    Differs from the cohorts only where a selector asks a single client (Bernoulli
    selection may): that round's sum is withheld.
    """
    history = np.asarray(cohorts, np.bool_)
    sizes = np.count_nonzero(history, axis=-1, keepdims=True)
    is_withheld = (sizes > 0) & (sizes < FEWEST_IN_A_SUM)
    return np.where(is_withheld, False, history) if is_withheld.any() else history


def rounds_with_sums(history: np.ndarray) -> int:
    """Return in how many rounds of bool[J, N] a sum was made."""
    return int(np.asarray(history).any(-1).sum())


def attack_frozen(
    seed: int,
    training: federated.Training,
    parameters: Any,
    participation: np.ndarray,
    aggregator: Any,
    progress: Callable[[int, int], None],
    *,
    rounds: np.ndarray | None = None,
    mesh: Any = None,
) -> np.ndarray:
    """Attack a history whose models are frozen, the worst case of Multi-RoundSecAgg's Fig 9.

    Every client trains once from the given model, and sends that update in every round
    in which it took part; each round's sum goes through the aggregator (fresh
    stochastic rounding each time), and the server solves P X = sums by least squares. P
    holds the weights of the sums.

    Args:
        seed: Seed of local training and rounding.
        training: Its model, data, trainer and weights.
        parameters: float32[d], the frozen model.
        participation: bool[J, N], or a row for each sum that was learnt.
        aggregator: As in training, but without a rule, as only learnt sums are asked of
            it; the ring sums may be of fidelity `sets`, bit-equal to `array`.
        progress: Called with (rounds done, rounds to do).
        rounds: int[J], the round of each row, where that is not its place: a client's
            rounding is the same in all sums of a round.
        mesh: As in training.

    Returns:
        float64[N], relative squared error of each client's reconstructed update (eq.
        (35)); nan for clients whose true update is zero.

    Source: Multi-RoundSecAgg (AAAI version), Appendix H.2, eq. (33) to (35).
    """
    key = fold(as_key(seed), int(Stream.ATTACK))
    trainer: Any = training.trainer  # without state: that of a demo
    weights: Any = training.weights
    rows = np.flatnonzero(participation.any(axis=1))
    largest = int(participation.sum(axis=1).max(initial=1))
    width = int(getattr(aggregator, "num_participants", largest))
    # a cohort at a time: by the program that has trained the rounds
    places = (
        np.arange(-(-participation.shape[1] // width) * width) % participation.shape[1]
    )
    updates = np.concatenate(
        [
            np.asarray(
                federated.client_updates(
                    key,
                    training.model,
                    parameters,
                    training.client_data,
                    trainer,
                    cohort,
                    mesh=mesh,
                )
            )
            for cohort in places.reshape(-1, width)
        ]
    )[: participation.shape[1]]
    state = aggregator.init()
    sums, learnt = [], []
    for done, row in enumerate(rows):
        members, present = padded_slots(participation[row], width)
        noise = round_key(
            key, int(row if rounds is None else rounds[row]), Stream.QUANTIZATION
        )
        # a client apart in its round's graph: its input is the sum
        if present.sum() == 1:
            learnt.append(row)
            sums.append(
                _alone(aggregator.quantizer, noise, updates, members[0], weights)
            )
            continue
        extras = (
            {}
            if weights is None
            else {"weights": np.where(present, weights[members], 0)}
        )
        placed = (
            jax.device_put(updates[members]),
            on_device(members),
            on_device(present),
        )
        out, state = aggregator.aggregate(noise, state, *placed, **extras)
        if int(out.status) == Status.OK:
            learnt.append(row)
            sums.append(np.asarray(out.update, np.float64) * float(out.total_weight))
        progress(done + 1, len(rows))
    if not sums:
        return np.full(participation.shape[1], np.nan)
    P = with_weights(participation[learnt], weights)
    estimates = attacks.least_squares(P, np.stack(sums))
    return np.asarray(attacks.reconstruction_error(updates, np.asarray(estimates)))


def _alone(
    quantizer: Any, noise: Any, updates: Any, member: Any, weights: Any
) -> np.ndarray:
    """Return what the server gets of a client who is alone in its sum."""
    codes = quantizer.encode(
        fold(noise, int(member)), jax.device_put(updates[int(member)])
    )
    weight = 1.0 if weights is None else float(weights[member])
    return np.asarray(quantizer.decode(codes, 1), np.float64) * weight
