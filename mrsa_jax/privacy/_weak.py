"""Weak multi-round privacy of a history, exact or as a certified interval.

Weak privacy T (Multi-RoundSecAgg, Remark 1) is the fewest clients in any non-zero
combination of the learnt sums: the smallest support of the non-zero vectors of P's
rational row space. Finding it is NP-hard in general; lower bounds come from complete
searches modulo primes that cannot miss a vector, upper bounds from combinations of
rounds checked in exact integers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._core.arrays import host_array
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy.solver import (
    CHEAP_SECONDS,
    Alone,
    Groups,
    Progress,
    Ranks,
    Sieve,
    Space,
    Vector,
    collapse,
    few_rounds,
    information_sets,
    leverage_bound,
    leverage_seconds,
    program_seconds,
    ranks_of,
    sparse_remainder,
)
from mrsa_watch._base.errors import check_number, require
from mrsa_watch._base.html import brief, card, shown

# All searches of a history together may take this long on one core for each unit of
# effort.
SECONDS_PER_EFFORT = 90.0
# Time that proofs of exposure may take before the result is reported with a chance of
# error.
_SOON_SECONDS = 4.0
_INFORMATION_SETS = 120
_MOST_PROGRAMS = 60
# With more groups no kernel basis is built: single groups and pairs alone are decided.
_MOST_GROUPS = 3000


@dataclasses.dataclass(frozen=True)
class WeakPrivacy:
    """Weak privacy T of a history: an interval, and what proves it.

    Attributes:
        lower: No non-zero combination of the sums involves fewer clients; None when
            nobody took part.
        upper: `witness` involves this many; None when no client took part.
        certified: Whether lower equals upper, and what proves it does not rest on an
            unproven rank. Otherwise T is only known to lie in [lower, upper].
        rank: Rank of P over the rationals.
        exposed: Sorted indices of the clients whose own update is a combination of the
            sums.
        support: Sorted indices of the clients in the witness's combination.
        witness: One Python integer a round: witness . P is non-zero exactly on
            `support`, checked in Python integers.
        num_groups: Classes of clients with identical, non-zero columns.
        strong: Strong privacy, the smallest of those classes; None when no client took
            part.
        lower_method: What proves `lower`: "classes", "leverage", "girth", "lifting",
            "column basis" or "full rank".
        upper_method: What found the witness.
        exposed_since: For each exposed client the round from which on it is.
        error_bits: None where rank, exposed clients and `lower` are proven. Otherwise
            k: primes drawn for the call decided, and something is wrong with error
            chance below 2**-k, whatever P was made for. So it is where a proof would
            have cost more than the effort.
    """

    cites = "multi-round privacy: so2023securing"
    __repr__ = brief

    lower: int | None
    upper: int | None
    certified: bool
    rank: int
    exposed: tuple[int, ...]
    support: tuple[int, ...]
    witness: tuple[int, ...]
    num_groups: int
    strong: int | None
    lower_method: str
    upper_method: str
    exposed_since: tuple[int, ...] = ()
    error_bits: int | None = None

    @property
    def verdict(self) -> str:
        """The certainty of the interval, in words."""
        if self.certified:
            return "certified"
        if self.lower != self.upper:
            return "not decided"
        return "not certified" if self.error_bits is None else self.surety

    @property
    def surety(self) -> str:
        """The certainty of rank, exposed clients and the lower bound, in words."""
        return surety(self.error_bits)

    def _repr_html_(self) -> str:
        """Return the certificate for a notebook.

        The interval, who is exposed, and what proves it.

        Examples:
            >>> "certified" in weak_privacy([[1, 1, 0]])._repr_html_()
            True
        """
        if self.lower is None:
            return card("Weak privacy", [("T", "undefined: no client took part")])
        interval = (
            str(self.lower)
            if self.lower == self.upper
            else f"{self.lower} to {self.upper}"
        )
        rounds = [j for j, coefficient in enumerate(self.witness) if coefficient]
        rows = [
            ("T", f"{interval} ({self.verdict})"),
            ("strong T", shown(self.strong)),
            ("exposed clients", f"{len(self.exposed)} ({shown(self.exposed, 80)})"),
            (
                "rank of the sums",
                f"{self.rank} for {self.num_groups} groups of clients",
            ),
            ("attained by", f"{len(rounds)} rounds ({shown(rounds, 80)})"),
            ("on clients", shown(self.support, 80)),
            ("from below, above", f"{self.lower_method}, {self.upper_method}"),
        ]
        return card("Weak privacy", rows)


def weak_privacy(
    P: Any, *, effort: Any = 1.0, coalition: Any = (), progress: Progress | None = None
) -> WeakPrivacy:
    """Return the fewest clients that any combination of the learnt sums involves.

    Use it to say what a server that keeps all sums can solve for. T = 1 means that some
    client's update is known; T = 2 that the weighted sum of two is, and so on.
    `strong_privacy` is its cheaper sibling: never larger, always exact.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`; a row
            for each sum that the server learnt, skipped rounds being zero rows.
        effort: How much may be tried: 1.0 allows searches and proofs of 90 seconds of
            one core, all together, as predicted before each starts. More effort narrows
            the interval, never widens it. 0 does only what is cheap.
        coalition: Indices of clients who reveal their updates to the server, known and
            not all: they count as if they had taken no part.
        progress: Called with a search's name and predicted cost, the parts done and
            their number.

    Returns:
        Bounds with their certificate (`WeakPrivacy`).

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has not two axes or an
            empty one, `effort` is no finite number of at least 0, or a coalition is
            none.

    Edge cases: all-zero P gives None for both bounds, rank 0, and nothing exposed.
    Clients who never took part are in no combination.

    Examples:
        >>> import mrsa_jax as mj
        >>> # an odd cycle
        >>> found = mj.privacy.weak_privacy([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
        >>> found.upper, found.certified, found.exposed
        (1, True, (0, 1, 2))
        >>> mj.privacy.weak_privacy([[1, 1, 1, 1], [1, 1, 0, 0]]).upper
        2
        >>> mj.privacy.weak_privacy([[1, 1, 1, 1], [1, 1, 0, 0]], coalition=[0]).exposed
        (1,)

    Cost: NP-hard in general. Exact within seconds wherever T or the number of groups
    less the rank is small, and for block designs.

    Source:
        Multi-RoundSecAgg, Remark 1; the authors' published notebooks take the smallest
        row weight of a floating-point echelon form, which is only an upper bound.
    """
    *_, last = weak_steps(P, effort=effort, coalition=coalition, progress=progress)
    return last


def weak_steps(
    P: Any, *, effort: Any = 1.0, coalition: Any = (), progress: Progress | None = None
) -> Iterator[WeakPrivacy]:
    """Search step by step: yield ever narrower intervals of `weak_privacy`.

    The first comes after what costs least and matters most: who is exposed, and the
    lightest sum.
    """
    array = host_array(without(P, coalition), "P")
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    budget = Budget(SECONDS_PER_EFFORT * check_effort(effort))
    groups = collapse(array)
    if not groups.num_groups:
        yield WeakPrivacy(
            None, None, True, 0, (), (), (0,) * len(array), 0, None, "", ""
        )
        return
    most = max(budget.left, CHEAP_SECONDS)
    soon = Budget(min(budget.left, _SOON_SECONDS))
    state = _Known.of(groups, min(most, _SOON_SECONDS), progress)
    bound_seconds = leverage_seconds(state.space.rank, groups.num_groups)
    if soon.left < budget.left and (state.is_open or not soon.allows(bound_seconds)):
        yield state.answer(next(_narrow(state, soon, None)))
        state = _Known.of(groups, most, progress) if state.is_open else state
    for step in _narrow(state, budget, progress):
        yield state.answer(step)


class _Known(NamedTuple):
    """Findings before any search: the rounds that count, groups that stand alone."""

    groups: Groups
    ranks: Ranks
    space: Space
    sieve: Sieve
    alone: Alone

    @staticmethod
    def of(groups: Groups, seconds: float, progress: Progress | None) -> _Known:
        """Find them, each proof being allowed some predicted seconds of a core."""
        ranks = ranks_of(groups.matrix, seconds, progress)
        space = Space(groups.matrix[ranks.kept], groups.sizes)
        sieve = Sieve(groups, space.rows, ranks.minor_bits)
        single = [k for k in sieve.suspects if groups.sizes[k] == 1]
        alone = sieve.alone(single or sieve.suspects[:1], seconds)
        return _Known(groups, ranks, space, sieve, alone)

    @property
    def is_open(self) -> bool:
        """Whether primes drawn at random decided something that is not proven."""
        return not (self.ranks.error_bits is None and self.alone.error_bits is None)

    def answer(self, step: _Step) -> WeakPrivacy:
        """Return an interval with all else that is known."""
        groups, ranks, alone = self.groups, self.ranks, self.alone
        exposed = sorted(
            (int(groups.members[k][0]), int(ranks.kept[row]))
            for k, row in zip(alone.groups, alone.last_rows, strict=True)
            if groups.sizes[k] == 1
        )
        sure = [
            bits for bits in (ranks.error_bits, alone.error_bits) if bits is not None
        ]
        # T = 1 needs no more than its witness, and classes of equal columns no rank at
        # all.
        is_proven = ranks.error_bits is None or step.lower <= int(groups.sizes[0])
        return WeakPrivacy(
            lower=step.lower,
            upper=step.best.weight,
            certified=is_proven and step.lower == step.best.weight,
            rank=self.space.rank,
            exposed=tuple(client for client, _ in exposed),
            support=groups.clients(np.flatnonzero(step.best.columns)),
            witness=step.best.witness(ranks.kept, groups),
            num_groups=groups.num_groups,
            strong=int(groups.sizes[0]),
            lower_method=step.method,
            upper_method=step.best.method,
            exposed_since=tuple(first for _, first in exposed),
            error_bits=min(sure, default=None),
        )


def surety(error_bits: int | None) -> str:
    """Return in words how sure something is that primes drawn at random decided."""
    return "exact" if error_bits is None else f"error chance below 2^-{error_bits}"


def check_effort(effort: Any) -> float:
    """Return a finite number that is not negative."""
    return check_number(effort, "effort", "must be a finite number of at least 0", 0.0)


class Budget:
    """The predicted seconds of one core that a history's searches may still take."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def allows(self, seconds: float) -> bool:
        """Return whether so much may be spent; what is cheap always may."""
        return bool(seconds <= max(self.left, CHEAP_SECONDS))

    def spend(self, seconds: float) -> None:
        """Take note of what was spent."""
        self.left -= seconds


class _Step(NamedTuple):
    """An interval for T, and what is behind it."""

    lower: int
    method: str
    best: Vector


def _narrow(
    state: _Known, budget: Budget, progress: Progress | None
) -> Iterator[_Step]:
    """Yield narrower and narrower intervals: search up from below and down from above.

    Until both meet or what is left of the budget does not allow a step.
    """
    space, sieve, alone = state.space, state.sieve, state.alone
    best = min([space.lightest_row(), *alone.vectors], key=lambda vector: vector.weight)
    if alone.groups and not alone.vectors and budget.allows(sieve.single_seconds):
        single = sieve.lightest_single()
        best = (
            best
            if single is None
            else min(best, single, key=lambda vector: vector.weight)
        )
    # Whoever does not stand alone is hidden in two groups at least.
    sizes = sieve.sizes
    lower = min(
        [int(sizes[:2].sum()), *(int(sizes[k]) for k in sieve.suspects), best.weight]
    )
    method = "column basis" if lower > sizes[0] else "classes"
    lower = max(lower, int(sizes[0]))
    seconds = leverage_seconds(space.rank, len(sizes))
    if lower < best.weight and budget.allows(seconds):
        budget.spend(seconds)
        by_leverage = min(leverage_bound(space.rows, sizes), best.weight)
        if by_leverage > lower:
            lower, method = by_leverage, "leverage"
    first = _Step(lower, method, best)
    yield first
    steps = _by_pairs if len(sizes) > _MOST_GROUPS else _by_searches
    yield from steps(state, first, budget, progress)


def _by_searches(
    state: _Known, step: _Step, budget: Budget, progress: Progress | None
) -> Iterator[_Step]:
    space, sieve = state.space, state.sieve
    lower, method, best = step
    has_guessed = False
    has_duals = False
    while lower <= min(best.weight, space.singleton) - 1:
        target = min(best.weight, space.singleton) - 1
        if not has_duals and budget.allows(space.duals_seconds):
            has_duals = True
            budget.spend(space.duals_seconds)
        chosen = space.best_plan(lower, target, CHEAP_SECONDS) if has_duals else None
        if chosen is None:
            if not has_guessed:
                has_guessed = True
                for guess in guesses(space, best.weight, budget, progress):
                    best = guess
                    yield _Step(lower, method, best)
                continue
            chosen = space.best_plan(lower, target, budget.left) if has_duals else None
            if chosen is None:
                break
        budget.spend(chosen.seconds)
        is_proof, vector = space.search(chosen, progress)
        if is_proof:
            lower, method = chosen.limit + 1, chosen.method
        elif vector is not None and vector.weight < best.weight:
            best = vector
        else:
            break
        yield _Step(lower, method, best)
    if space.singleton < best.weight and budget.allows(sieve.single_seconds):
        counted = space.singleton_vector()
        if counted is not None and counted.weight < best.weight:
            best = counted
    if space.corank == 0:
        method = "full rank"
    yield _Step(min(lower, best.weight), method, best)


def _by_pairs(
    state: _Known, step: _Step, budget: Budget, progress: Progress | None
) -> Iterator[_Step]:
    """Decide single groups and pairs of them.

    Heavier vectors only by differences of rounds.
    """
    space, sieve = state.space, state.sieve
    lower, method, best = step
    vectors = [best]
    if budget.allows(_few_seconds(space)):
        budget.spend(_few_seconds(space))
        for coefficients in few_rounds(space.rows, space.weights):
            vector = space.combination(coefficients, "few rounds")
            if vector is not None:
                vectors.append(vector)
    if budget.allows(sieve.single_seconds):
        single = sieve.lightest_single()
        two, pair = sieve.lightest_pair()
        vectors += [vector for vector in (single, pair) if vector is not None]
        sizes = sieve.sizes
        three = int(sizes[:3].sum()) if len(sizes) > 2 else two
        proved = min([two, three, *(int(sizes[k]) for k in sieve.suspects)])
        if proved > lower:
            lower, method = proved, "column basis"
    best = min(vectors, key=lambda vector: vector.weight)
    yield _Step(min(lower, best.weight), method, best)


def guesses(
    space: Space, below: int, budget: Budget, progress: Progress | None
) -> Iterator[Vector]:
    """Yield exact vectors, each lighter than the last, from all sources of candidates.

    Each source takes at most a third of what is left.
    """
    share = max(budget.left / 3, CHEAP_SECONDS)
    sets = min(_INFORMATION_SETS, int(share / _set_seconds(space)))
    programs = min(_MOST_PROGRAMS, int(share / program_seconds(space.rows)))
    few = _few_seconds(space) <= share
    budget.spend(guess_seconds(space, sets, programs))
    yield from candidates(space, below, sets, 0, programs, few, progress)


def guess_seconds(space: Space, sets: int, programs: int) -> float:
    """Predict how long `candidates` take on one core."""
    return (
        _few_seconds(space)
        + sets * _set_seconds(space)
        + programs * program_seconds(space.rows)
    )


def _few_seconds(space: Space) -> float:
    return 8e-9 * min(space.rank, 400) ** 3


def _set_seconds(space: Space) -> float:
    """Predict an information set's time: an elimination and all pairs of its rows."""
    return 1e-5 + 4.2e-9 * space.rank**2 * space.groups.num_groups


def candidates(
    space: Space,
    below: int,
    attempts: int,
    seed: int,
    programs: int,
    few: bool = True,
    progress: Progress | None = None,
) -> Iterator[Vector]:
    """Yield exact vectors from all sources of guesses, each lighter than the last.

    `attempts` counts information sets, `programs` the last rows that an L1 program
    starts from; `few` is whether sums of few rounds are tried.
    """
    for coefficients in few_rounds(space.rows, space.weights) if few else ():
        combined = space.combination(coefficients, "few rounds")
        if combined is not None and combined.weight < below:
            below = combined.weight
            yield combined
    matrix, sizes = space.groups.matrix, space.groups.sizes
    newest = range(space.rank - 1, max(-1, space.rank - 1 - programs), -1)
    programmed = (sparse_remainder(matrix, sizes, row) for row in newest)
    sets = information_sets(matrix, sizes, below, attempts, seed)
    parts = (
        ("information sets", sets, attempts),
        ("linear program", programmed, programs),
    )
    for method, supports, total in parts:
        for done, support in enumerate(supports):
            if progress is not None:
                progress(
                    f"looking for light combinations: {method}", min(done, total), total
                )
            if support is not None and 0 < sizes[support].sum() < below:
                vector = space.vector(np.flatnonzero(support), method)
                if vector is not None and vector.weight < below:
                    below = vector.weight
                    yield vector
