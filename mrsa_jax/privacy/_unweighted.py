"""The fewest clients whose plain sum, or sum with signs, the server can solve for.

Weak privacy (Multi-RoundSecAgg, Remark 1) allows any coefficients; near full rank its
witnesses need ones of 100 bits. What a server reads with little noise are sums with
coefficients 1, or 1 and -1: differences of clients' updates. This module finds the
smallest of those and proves that there is none smaller.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from mrsa_jax._core.threads import in_order
from mrsa_jax._core.traced import needs_values
from mrsa_jax.privacy._coalitions import as_history
from mrsa_jax.privacy.solver import CHEAP_SECONDS, Groups, collapse, ranks_of
from mrsa_watch._base.errors import POSITIVE, check_integer, check_number, require
from mrsa_watch._base.primes import draw_wide_primes

_SIGNS: dict[str, int] = {"plain": 1, "plus_minus": 2}

_SECONDS = 60.0  # of one core for an effort of 1, by the model below
_PREFIX_SECONDS = 2.5e-8  # to form a sum without its last number
# To put a sum into a table of this many bytes, or to look it up.
_TABLE_COSTS = ((2**20, 1.5e-8), (2**22, 2.5e-8), (2**24, 5.0e-8))
_MEMORY_SECONDS = 1.0e-7
_MOST_ENTRIES, _MOST_BITS = 2**22, 12  # 64 MiB for each core
# above, their sorted lists (the square of it) would take a gigabyte
_MOST_NUMBERS = 2**12
_MOST_BY_HAND = 20_000  # vectors that are tried before the search


@dataclasses.dataclass(frozen=True)
class UnweightedGroup:
    """The smallest group of clients that can be isolated as a plain sum, or with signs.

    Attributes:
        lower: No smaller group can be; None when no group at all can.
        upper: Size of the smallest group found; None when none was found.
        certified: Whether lower == upper, or both are None: proven, not only searched.
        support: The group's clients, sorted.
        signs: Their coefficients, 1 or -1.
        witness: J integers: witness . P is one constant times `signs` on `support`, 0
            elsewhere.
    """

    lower: int | None
    upper: int | None
    certified: bool
    support: tuple[int, ...]
    signs: tuple[int, ...]
    witness: tuple[int, ...]


@needs_values
def unweighted_group(
    P: Any, *, coefficients: Any = "plain", max_size: Any = None, effort: Any = 1.0
) -> UnweightedGroup:
    """Find the fewest clients whose plain sum, or sum with signs, the server learns.

    Use it together with weak privacy T, which is never larger: T says what is possible
    with any coefficients, this what can be read off. Where T's witness needs huge
    coefficients, every change of the updates between the rounds is multiplied by them,
    and the group found here is the practical threat.

    With V the row space of P: the smallest non-empty S with 1_S in V ("plain"), or with
    a vector in V that is 1 or -1 on S and 0 elsewhere ("plus_minus"). Clients with
    equal columns are in S together or not at all.

    Sets are searched through by size, completely (meet in the middle on one number for
    each class of clients: a random kernel vector of P modulo a 61-bit prime; a set in V
    sums to zero). None found is a proof, since the rank is computed exactly; what is
    found is confirmed in exact integers.

    Args:
        P: Participation matrix, bools or integer weights, `[rounds, clients]`; a row
            for each sum that the server learnt, skipped rounds being zero rows.
        coefficients: "plain" (1 only) or "plus_minus" (1 and -1).
        max_size: Largest size to search for, at least 1; None: as far as `effort` goes.
        effort: How long to search at most, as a multiple of about a minute of one core
            (all cores share it); positive. It is predicted, not measured, so results do
            not depend on the machine.

    Returns:
        The group and the proof's state. For 0/1 matrices there is always a group: a
        round's own.

    Raises:
        ConfigurationError: If P is no integer matrix of two axes, or an argument is out
            of range.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.privacy.unweighted_group([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]])
        >>> found.lower, found.upper, found.certified
        (3, 3, True)
        >>> found = mj.privacy.unweighted_group(
        ...     [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]], coefficients="plus_minus"
        ... )
        >>> found.support, found.signs, found.witness
        ((2, 3), (1, -1), (1, -1))

    Edge cases: no client took part, or weights allow no such sum (`[[1, 2]]`): lower
    and upper are None, certified if that was proven.

    Cost: about the square root of the number of sets of a size, at some 50 ns each; at
    N = 120 clients in different classes sets of 9 (8 with signs) take some 20 (25)
    seconds of one core.

    Source:
        Multi-RoundSecAgg, Remark 1, restricted to coefficients 0, 1 and -1; the
        restriction is this package's.
    """
    array = as_history(P)
    require(array.ndim == 2, "P", "must have two axes", array.shape)
    is_known = isinstance(coefficients, str) and coefficients in _SIGNS
    require(is_known, "coefficients", "must be 'plain' or 'plus_minus'", coefficients)
    largest = None if max_size is None else check_integer(max_size, "max_size", 1)
    rule, kind = "must be positive and finite", "must be a number"
    seconds = _SECONDS * check_number(effort, "effort", rule, POSITIVE, kind=kind)
    groups = collapse(np.asarray(array))
    if groups.num_groups == 0:
        return UnweightedGroup(None, None, True, (), (), ())
    return _Search(groups, _SIGNS[coefficients], largest, seconds).run()


@dataclasses.dataclass(frozen=True)
class _Vector:
    """A vector of V with entries 0, 1 and -1 for groups, and its combination."""

    size: int
    entries: tuple[int, ...]
    witness: tuple[int, ...]


class _Search:
    """One history's search: what is known so far, and what may still be spent."""

    def __init__(
        self, groups: Groups, signs: int, largest: int | None, seconds: float
    ) -> None:
        self.groups = groups
        self.signs = signs
        self.seconds = seconds
        self.weights = [int(size) for size in groups.sizes]
        self.system = _System(groups.matrix, seconds)
        self.best = _smallest_by_hand(groups, signs)
        self.largest = sum(self.weights) if largest is None else largest

    def run(self) -> UnweightedGroup:
        """Search by the number of groups until all heavier sets are too heavy."""
        for size in range(1, len(self.weights) + 2):
            least = sum(self.weights[:size])
            if size > len(self.weights) or least > self.limit:
                return self._result(least, finished=True)
            if not self._can_exclude(size):
                break
        return self._result(least, finished=False)

    @property
    def limit(self) -> int:
        """The largest weight of a set that would still be news."""
        if self.best is None:
            return self.largest
        return min(self.largest, self.best.size - 1)

    def _can_exclude(self, size: int) -> bool:
        """Take the best of all sets of `size` groups; False if that costs too much."""
        numbers = len(self.weights)
        while sum(self.weights[:size]) <= self.limit:
            if size > 1:
                self.seconds -= _plan(numbers, size, self.signs)[0]
                if self.seconds < 0 or numbers > _MOST_NUMBERS:
                    return False
            entries = self.system.find(self.weights, self.signs, size, self.limit)
            if entries is None:
                return True
            witness = self.system.solve(entries)
            # a sum that vanishes by accident: other numbers will not
            if witness is None:
                self.system.redraw()
                continue
            weight = sum(itertools.compress(self.weights, entries))
            self.best = _Vector(weight, tuple(entries), witness)
        return True

    def _result(self, least: int, *, finished: bool) -> UnweightedGroup:
        best = self.best
        is_proven = self.system.is_proven
        if best is None:
            lower: int | None = self.largest + 1 if finished else least
            is_none = finished and is_proven and self.largest >= sum(self.weights)
            if is_none:
                lower = None
            return UnweightedGroup(lower, None, is_none, (), (), ())
        lower = min(best.size, self.largest + 1 if finished else least)
        sign_of = {
            int(client): value
            for members, value in zip(self.groups.members, best.entries, strict=True)
            for client in members
            if value
        }
        support = tuple(sorted(sign_of))
        return UnweightedGroup(
            lower,
            best.size,
            lower == best.size and is_proven,
            support,
            tuple(sign_of[client] for client in support),
            best.witness,
        )


class _System:
    """P's row space: its rank, a kernel vector modulo a prime, exact combinations.

    The prime is drawn at random, and again whenever a sum vanishes by accident: a set
    may be a combination modulo one prime for every kernel vector.
    """

    def __init__(self, matrix: np.ndarray, seconds: float) -> None:
        self.matrix = matrix
        self.rows = [[int(value) for value in row] for row in matrix]
        ranks = ranks_of(matrix, max(seconds, CHEAP_SECONDS))
        self.kept = ranks.kept.tolist()
        self.rank, self.is_proven = len(self.kept), ranks.error_bits is None
        self.redraw()

    def redraw(self) -> None:
        """Take another prime and a random kernel vector modulo it."""
        import flint

        entries = flint.fmpz_mat(self.rows)
        rank = -1
        while rank != self.rank:  # a prime may divide all minors of that size
            (self.prime,) = draw_wide_primes(1)
            form, rank = flint.nmod_mat(entries, self.prime).rref()
        rows = [[int(value) for value in row] for row in form.tolist()[:rank]]
        self.pivots = [next(k for k, value in enumerate(row) if value) for row in rows]
        self.values = [secrets.randbelow(self.prime) for _ in self.rows[0]]
        # a row of the reduced form has no other pivot column: the order does not matter
        for pivot, row in zip(self.pivots, rows, strict=True):
            row[pivot] = 0
            self.values[pivot] = -sum(map(int.__mul__, row, self.values)) % self.prime

    def find(
        self, weights: list[int], signs: int, size: int, limit: int
    ) -> list[int] | None:
        """Return entries 0, 1, -1 of a set of groups that may lie in V, or None."""
        if size == 1:
            hit = next((k for k, value in enumerate(self.values) if value == 0), None)
            if hit is None or weights[hit] > limit:
                return None
            return [int(k == hit) for k in range(len(weights))]
        chosen = _meet_in_the_middle(
            self.values, weights, signs, size, limit, self.prime
        )
        if chosen is None:
            return None
        entries = [0] * len(weights)
        for literal in chosen:
            entries[literal // signs] = -1 if literal % signs else 1
        return entries

    def solve(self, entries: list[int]) -> tuple[int, ...] | None:
        """Return coprime integers z with z P a positive multiple of `entries`."""
        import flint

        square = flint.fmpz_mat(
            [[self.rows[j][k] for j in self.kept] for k in self.pivots]
        )
        target = flint.fmpz_mat(self.rank, 1, [entries[k] for k in self.pivots])
        solution: Any = square.solve(target)
        numerators, scale = solution.numer_denom()
        values = [int(value) for value in numerators.entries()]
        divisor = math.gcd(int(scale), *values)
        witness = [0] * len(self.rows)
        for j, value in zip(self.kept, values, strict=True):
            witness[j] = value // divisor
        return tuple(witness) if _makes(witness, self.matrix, entries) else None


def _makes(witness: Sequence[int], matrix: np.ndarray, entries: Sequence[int]) -> bool:
    """Return whether z P is a positive multiple of the entries, in Python integers."""
    used = np.flatnonzero(np.asarray(witness, object))
    sums = np.asarray(witness, object)[used] @ matrix[used].astype(object)
    factor = max(map(abs, sums))
    return factor > 0 and sums.tolist() == [factor * value for value in entries]


def _smallest_by_hand(groups: Groups, signs: int) -> _Vector | None:
    """Return the smallest usable vector among rows, and sums and differences of two."""
    matrix = groups.matrix
    rounds = len(matrix)
    pairs = itertools.combinations(range(rounds), 2) if matrix.dtype != object else ()
    candidates = itertools.chain(
        ({i: 1} for i in range(rounds)),
        ({i: 1, j: factor} for i, j in pairs for factor in (-1, 1)),
    )
    best: _Vector | None = None
    for terms in itertools.islice(candidates, _MOST_BY_HAND):
        vector = sum(factor * matrix[j] for j, factor in terms.items())
        values = vector[vector != 0]
        size = int(groups.sizes[vector != 0].sum())
        if not size or (best is not None and size >= best.size):
            continue
        alike = abs(values) == abs(values[0]) if signs == 2 else values == values[0]
        if not alike.all():
            continue
        sign = 1 if values[0] > 0 else -1
        entries = tuple(np.sign(sign * vector).tolist())
        witness = tuple(sign * terms.get(j, 0) for j in range(rounds))
        if _makes(witness, matrix, entries):
            best = _Vector(size, entries, witness)
    return best


def _count(numbers: int, size: int, signs: int) -> int:
    """Count the sums of `size` numbers, the first one's sign being fixed."""
    return math.comb(numbers, size) * signs ** max(0, size - 1)


def _plan(numbers: int, size: int, signs: int) -> tuple[float, int]:
    """Predict the seconds of the sets of a size, and in how many parts they go.

    The parts are given as their log2. More parts mean smaller tables, but every sum
    without its last number is formed once a part.
    """
    front, back = size // 2, size - size // 2
    entries = _count(numbers, front, signs)
    sums = entries + _count(numbers, back, signs)
    prefixes = (
        sum(_count(numbers, max(0, half - 1), signs) for half in (front, back)) * signs
    )

    def seconds(bits: int) -> float:
        bytes_ = 16 * entries >> bits
        each = next(
            (cost for most, cost in _TABLE_COSTS if bytes_ <= most), _MEMORY_SECONDS
        )
        return 2**bits * prefixes * _PREFIX_SECONDS + sums * each

    possible = (
        bits for bits in range(_MOST_BITS + 1) if entries >> bits <= _MOST_ENTRIES
    )
    return min(((seconds(bits), bits) for bits in possible), default=(math.inf, 0))


def _meet_in_the_middle(
    values: list[int], weights: list[int], signs: int, size: int, limit: int, prime: int
) -> list[int] | None:
    """Return the literals of a set of `size` numbers that sums to zero, or None."""
    from mrsa_jax.privacy.solver import _subset_sums

    positive = np.asarray(values, np.uint64)
    negative = (prime - positive) % prime
    heavy = np.asarray(weights, np.int64)
    forward = np.stack([positive, negative][:signs], axis=1)
    backward = np.stack([negative, positive][:signs], axis=1)[::-1]
    sides = (
        _subset_sums.prepare(forward, heavy),
        _subset_sums.prepare(backward, heavy[::-1].copy()),
    )
    bits = _plan(len(values), size, signs)[1]
    # With signs a sum and its negative are one: half of the range.
    span = prime if signs == 1 else (prime + 1) // 2
    width = -(-span >> bits)
    entries = 2 * _count(len(values), size // 2, signs) >> bits
    length = 1 << max(6, entries.bit_length())
    is_weighted = len(set(weights)) > 1
    # memory is used again, not asked for by every part
    spare: list[_subset_sums.Scratch] = []

    def one(low: int) -> list[int] | None:
        end = min(width, span - low)
        part = _subset_sums.Part(
            signs, np.uint64(prime), np.uint64(low), np.uint64(end), limit
        )
        scratch = (
            spare.pop() if spare else _subset_sums.scratch(size, length, is_weighted)
        )
        literals = np.zeros(size, np.int64)
        while True:
            outcome = _subset_sums.search(part, *sides, size, scratch, literals)
            if outcome != _subset_sums.FULL:
                spare.append(scratch)
                return literals.tolist() if outcome == _subset_sums.FOUND else None
            longer = 4 * len(scratch.table)
            scratch = _subset_sums.scratch(size, longer, is_weighted)

    parts = [functools.partial(one, low) for low in range(0, span, width)]
    with contextlib.closing(in_order(parts)) as results:
        return next((found for found in results if found is not None), None)
