"""Weak multi-round privacy of a participation history, exact or as a certified interval.

Weak privacy T (Multi-RoundSecAgg, Remark 1) is the fewest clients in any non-zero combination of
the learnt sums: the smallest support of the non-zero vectors of P's rational row space. Finding
it is NP-hard in general; lower bounds come from complete searches modulo primes that cannot
miss a vector, upper bounds from combinations of rounds checked in exact integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax._errors import require
from mrsa_jax._html import card, shown
from mrsa_jax.privacy import _candidates
from mrsa_jax.privacy._exact import (
    PRIME,
    prefix_ranks,
    residues_of,
    support_of,
    unit_vectors,
)
from mrsa_jax.privacy._groups import Groups, collapse, column_codes
from mrsa_jax.privacy._history import as_history
from mrsa_jax.privacy._search import Progress
from mrsa_jax.privacy._sieve import Sieve, independent_by_mixing
from mrsa_jax.privacy._space import Space, Vector

__all__ = ["WeakPrivacy", "weak_privacy"]

# One search may take this long on one core for each unit of effort.
SECONDS_PER_EFFORT = 90.0
# Searches that cost less run before anything is guessed.
_CHEAP_SECONDS = 0.3
_INFORMATION_SETS = 120
_MOST_PROGRAMS = 60
# With more groups no kernel basis is built: single groups and pairs alone are decided.
_MOST_GROUPS = 3000


@dataclasses.dataclass(frozen=True)
class WeakPrivacy:
    """Weak privacy T of a history: an interval, and what proves it.

    Attributes:
        lower: No non-zero combination of the sums involves fewer clients; None when nobody took
            part.
        upper: `witness` involves this many; None when nobody took part.
        certified: Whether lower equals upper, the rank is proven, and the witness was
            checked in exact integers. Otherwise T is only known to lie in [lower, upper].
        rank: Rank of P over the rationals (a proven lower bound of it where not certified).
        exposed: Sorted indices of the clients whose own update is a combination of the sums.
        support: Sorted indices of the clients in the witness's combination.
        witness: One Python integer a round: witness . P is non-zero exactly on `support`.
        num_groups: Classes of clients with identical, non-zero columns.
        strong: Strong privacy, the smallest of those classes; None when nobody took part.
        lower_method: What proves `lower`: "classes", "girth", "lifting", "column basis" or
            "full rank".
        upper_method: What found the witness.
    """

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

    def _repr_html_(self) -> str:
        """Return the certificate for a notebook: the interval, who is exposed, and what proves it.

        Examples:
            >>> "certified" in weak_privacy([[1, 1, 0]])._repr_html_()
            True
        """
        if self.lower is None:
            return card("Weak privacy", [("T", "undefined: nobody took part")])
        interval = str(self.lower) if self.lower == self.upper else f"{self.lower} to {self.upper}"
        rounds = [j for j, coefficient in enumerate(self.witness) if coefficient]
        rows = [
            ("T", f"{interval} ({'certified' if self.certified else 'not decided'})"),
            ("strong T", shown(self.strong)),
            ("exposed clients", f"{len(self.exposed)} ({shown(self.exposed, 80)})"),
            ("rank of the sums", f"{self.rank} for {self.num_groups} groups of clients"),
            ("attained by", f"{len(rounds)} rounds ({shown(rounds, 80)})"),
            ("on clients", shown(self.support, 80)),
            ("from below, above", f"{self.lower_method}, {self.upper_method}"),
        ]
        return card("Weak privacy", rows)


def weak_privacy(P: Any, *, effort: Any = 1.0, progress: Progress | None = None) -> WeakPrivacy:
    """Return the fewest clients whose updates any combination of the learnt sums involves.

    Use it to say what a server that keeps all sums can solve for. T = 1 means that some client's
    update is known; T = 2 that the weighted sum of two is, and so on. `strong_privacy`
    is its cheaper sibling: never larger, always exact.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`; a row for each
            sum that the server learnt, skipped rounds being zero rows.
        effort: How long a search may take: 1.0 allows 90 seconds of one core for each
            (predicted before it starts). More effort narrows the interval, never
            widens it.
        progress: Called with a search's name and predicted cost, the parts done and their number.

    Returns:
        Bounds with their certificate (`WeakPrivacy`).

    Raises:
        ConfigurationError: If an entry is a fraction or NaN, P has not two axes or an empty one,
            or `effort` is no finite number of at least 0.

    Edge cases: all-zero P gives None for both bounds, rank 0, and nothing exposed. Clients who
    never took part are in no combination.

    Examples:
        >>> found = weak_privacy([[1, 1, 0], [0, 1, 1], [1, 0, 1]])  # an odd cycle
        >>> found.upper, found.certified, found.exposed
        (1, True, (0, 1, 2))
        >>> weak_privacy([[1, 1, 1, 1], [1, 1, 0, 0]]).upper
        2

    Cost: NP-hard in general. Exact within seconds wherever T or the number of groups less the
    rank is small, and for block designs.

    Source:
        Multi-RoundSecAgg, Remark 1; the authors' published notebooks take the smallest row
        weight of a floating-point echelon form, which is only an upper bound.
    """
    array = np.asarray(as_history(P))
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    seconds = SECONDS_PER_EFFORT * check_effort(effort)
    groups = collapse(array)
    if not groups.num_groups:
        return WeakPrivacy(None, None, True, 0, (), (), (0,) * len(array), 0, None, "", "")
    is_wide = groups.num_groups > _MOST_GROUPS
    if is_wide:
        kept = independent_by_mixing(groups.matrix)
        rank, is_proven = len(kept), len(kept) == most_rank(groups.matrix)
    else:
        kept = independent(groups.matrix)
        ranks, proven = prefix_ranks(groups.matrix)
        rank, is_proven = int(ranks[-1]), bool(proven[-1]) and len(kept) == ranks[-1]
    space = Space(groups.matrix[kept], groups.sizes)
    if is_wide:
        lower, lower_method, best, exposed = _narrow_wide(space, groups)
    else:
        lower, lower_method, best = _narrow(space, seconds, progress)
        exposed = _exposed(space, groups)
    witness = [0] * len(array)
    for j, z in zip(kept, best.coefficients, strict=True):
        witness[j] = z
    is_checked = _is_witness(witness, groups, best)
    return WeakPrivacy(
        lower=lower if is_proven else int(groups.sizes[0]),
        upper=best.weight,
        certified=is_proven and is_checked and lower == best.weight,
        rank=rank,
        exposed=exposed,
        support=groups.clients(np.flatnonzero(best.columns)),
        witness=tuple(witness),
        num_groups=groups.num_groups,
        strong=int(groups.sizes[0]),
        lower_method=lower_method if is_proven else "classes",
        upper_method=best.method,
    )


def check_effort(effort: Any) -> float:
    """Return a finite number that is not negative."""
    is_number = isinstance(effort, int | float | np.integer | np.floating)
    good = is_number and not isinstance(effort, bool) and math.isfinite(effort) and effort >= 0
    require(good, "effort", "must be a finite number of at least 0", effort)
    return float(effort)


def independent(matrix: np.ndarray) -> np.ndarray:
    """Return the rows that are no combinations of earlier ones (modulo the searches' prime)."""
    from mrsa_jax.modular import _elimination

    return np.flatnonzero(
        _elimination.independent_rows(residues_of(matrix, PRIME), np.uint64(PRIME))
    )


def _narrow(space: Space, seconds: float, progress: Progress | None) -> tuple[int, str, Vector]:
    """Search up from the lower bound and down from the upper one until they meet or cost stops."""
    lower, method = space.strong, "classes"
    best = space.lightest_row()
    has_guessed = False
    while True:
        target = min(best.weight, space.singleton) - 1
        if lower > target:
            break
        chosen = space.best_plan(target, _CHEAP_SECONDS)
        if chosen is None or chosen.limit < lower:
            if not has_guessed:
                has_guessed = True
                for guess in guesses(space, best.weight):
                    best = guess if guess.weight < best.weight else best
                continue
            chosen = space.best_plan(target, seconds)
            if chosen is None or chosen.limit < lower:
                break
        is_proof, vector = space.search(chosen, progress)
        if is_proof:
            lower, method = chosen.limit + 1, chosen.method
        elif vector is not None and vector.weight < best.weight:
            best = vector
        else:
            break
    if space.singleton < best.weight:
        counted = space.singleton_vector()
        if counted is not None and counted.weight < best.weight:
            best = counted
    if space.corank == 0:
        method = "full rank"
    return min(lower, best.weight), method, best


def most_rank(matrix: np.ndarray) -> int:
    """Return an upper bound of the rank: the distinct non-zero rows, or the columns."""
    codes = column_codes((matrix != 0).T if ((matrix == 0) | (matrix == 1)).all() else matrix.T)
    return min(matrix.shape[1], len(np.unique(codes[(matrix != 0).any(axis=1)])))


def _narrow_wide(space: Space, groups: Groups) -> tuple[int, str, Vector, tuple[int, ...]]:
    """Decide single groups and pairs of them; heavier vectors only by differences of rounds."""
    best = space.lightest_row()
    lower, method = int(groups.sizes[0]), "classes"
    for coefficients in _candidates.few_rounds(space.rows, space.weights):
        vector = space.combination(coefficients, "few rounds")
        if vector is not None and vector.weight < best.weight:
            best = vector
    sieve = Sieve(groups, space.rows)
    if not sieve.is_sound:
        return lower, method, best, ()
    exposed = groups.clients(k for k in sieve.alone if groups.sizes[k] == 1)
    single = sieve.lightest_single()
    if single is not None:
        best = min(best, single, key=lambda vector: vector.weight)
    two, pair = sieve.lightest_pair()
    if pair is not None:
        best = min(best, pair, key=lambda vector: vector.weight)
    singles = [int(groups.sizes[k]) for k in sieve.alone]
    three = int(groups.sizes[:3].sum()) if groups.num_groups > 2 else two
    proved = min([two, three, *singles])
    if proved > lower:
        lower, method = proved, "column basis"
    return min(lower, best.weight), method, best, exposed


def guesses(space: Space, below: int) -> list[Vector]:
    """Return exact vectors lighter than a bound from all sources of candidates."""
    found = []
    for vector in candidates(space, below, _INFORMATION_SETS, 0, _MOST_PROGRAMS):
        if vector.weight < below:
            below = vector.weight
            found.append(vector)
    return found


def candidates(
    space: Space, below: int, attempts: int, seed: int, programs: int
) -> Iterator[Vector]:
    """Return exact vectors from all sources of guesses that promise less than a weight.

    `attempts` counts information sets, `programs` the last rows that an L1 program starts from.
    """
    for coefficients in _candidates.few_rounds(space.rows, space.weights):
        combined = space.combination(coefficients, "few rounds")
        if combined is not None and combined.weight < below:
            below = combined.weight
            yield combined
    matrix, sizes = space.groups.matrix, space.groups.sizes
    last = space.rank - 1
    programmed = (
        _candidates.sparse_remainder(matrix, sizes, row)
        for row in range(last, max(-1, last - programs), -1)
    )
    sets = _candidates.information_sets(matrix, sizes, below, attempts, seed)
    for method, supports in (("information sets", sets), ("linear program", programmed)):
        for support in supports:
            if support is not None and 0 < sizes[support].sum() < below:
                vector = space.vector(np.flatnonzero(support), method)
                if vector is not None and vector.weight < below:
                    below = vector.weight
                    yield vector


def _is_witness(witness: list[int], groups: Groups, best: Vector) -> bool:
    """Check in Python integers that the witness is non-zero exactly on the vector's columns."""
    return bool((support_of(witness, groups.matrix) == best.columns).all())


def _exposed(space: Space, groups: Groups) -> tuple[int, ...]:
    """Return the clients alone in their group whose unit vector is in the space."""
    single = [k for k in range(groups.num_groups) if groups.sizes[k] == 1]
    return groups.clients(unit_vectors(space.rows, single))
