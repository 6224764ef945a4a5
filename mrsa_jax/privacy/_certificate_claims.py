"""The claims of an audit, each with a proof in integers that `mrsa_check.py` follows.

M is the participation matrix with one column for each class of clients with equal
columns that are not zero, in the order of their first members: the order in which the
checker finds them.
"""

from __future__ import annotations

import collections
import math
import secrets
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mrsa_jax.privacy._audit_found import Audit
from mrsa_jax.privacy._certificate_vectors import Kernel
from mrsa_jax.privacy._coalitions import log_without
from mrsa_jax.privacy._recipe import digits
from mrsa_jax.privacy.solver import (
    combination_on,
    independent_rows,
    residues_of,
    solve_each,
)
from mrsa_watch import mrsa_check
from mrsa_watch._base.errors import require
from mrsa_watch._base.primes import draw_primes
from mrsa_watch.logs import ParticipationLog

_MOST_STEPS = 2 * 10**8  # of a search that the checker repeats: most of what it allows
_MOST_DIGITS = 5 * 10**7  # of all combinations that expose clients
_MOST_ITEMS = mrsa_check.MOST_ITEMS // 4  # of the vectors of clients who are hidden
_MOST_PRODUCTS = 3 * 10**10  # of eliminations: a minute
_HALF_PRIME = 1 << 16  # primes of searches have 17 bits, those of long ones 20
_SPARE = 2  # vectors beyond those that a search needs: dependent by chance once in p**3
_SAFE = 2**53  # integers that every reader of JSON holds

Claim = dict[str, Any]


class Proofs:
    """The claims of an audit, one after another, and what they rest on."""

    def __init__(self, log: ParticipationLog, found: Audit) -> None:
        self.log, self.found = log, found
        others, _ = log_without(log, found.coalition)
        told = {str(name) for name in found.coalition}
        self.coalition = [i for i, name in enumerate(log.clients) if str(name) in told]
        scales = log.scales or (Fraction(1),) * len(log.rounds)
        # what a row of the checker's matrix, of the smallest integers, is multiplied by
        # here
        self.times = list(map(_times, log.participation, scales))
        self.members = _classes(others.participation)
        self.sizes = [len(own) for own in self.members]
        self.class_of = {i: k for k, own in enumerate(self.members) for i in own}
        self.M = others.participation[:, [own[0] for own in self.members]] * 1
        self.unproven: list[str] = []
        self.vectors: list[list[int]] = []
        self.at_least = 0  # weak T, with proof
        self.kept, self.basis, self.prime = (
            np.arange(0),
            np.arange(0),
            draw_primes(1)[0],
        )
        self.kernel: Kernel | None = None
        weak = found.weak
        self._check_witness()
        if weak.rank and weak.rank**2 * len(self.members) <= _MOST_PRODUCTS:
            rows = residues_of(self.M, self.prime)
            self.kept = np.flatnonzero(independent_rows(rows, self.prime))
            columns = residues_of(self.M[self.kept], self.prime).T
            self.basis = np.flatnonzero(independent_rows(columns, self.prime))
            self.kernel = Kernel(self.M, self.kept, self.basis, self.sizes)
            self._choose_vectors()

    def _check_witness(self) -> None:
        weak = self.found.weak
        support = sorted(i for k in self._sum(weak.witness) for i in self.members[k])
        is_of = tuple(support) == weak.support
        require(
            is_of,
            "found",
            "must be the audit of this log",
            "another support of its witness",
        )

    def _sum(self, witness: Sequence[int]) -> dict[int, int]:
        """Return z M where it is not zero."""
        total: dict[int, int] = collections.defaultdict(int)
        for z, row in zip(witness, self.M, strict=True):
            for k in np.flatnonzero(row) if z else ():
                total[int(k)] += z * int(row[k])
        return {k: value for k, value in total.items() if value}

    def _shows(
        self, witness: Sequence[int], own: int, others: Collection[int] = ()
    ) -> bool:
        """Return whether a combination involves a class, and besides it at most some others."""
        total = self._sum(witness)
        return own in total and total.keys() <= {own, *others}

    def _whole(self, coefficients: Sequence[int]) -> list[int]:
        """Return a coefficient for each row, given those of the rows that were kept."""
        witness = [0] * len(self.M)
        for j, z in zip(self.kept.tolist(), coefficients, strict=True):
            witness[j] = z
        return witness

    def sums(self) -> list[list[list[Any]]]:
        """Return who is in each sum, with which weight."""
        scales = self.log.scales or (Fraction(1),) * len(self.log.rounds)
        return [
            [
                [int(i), _weight(Fraction(int(row[i])) / scale)]
                for i in np.flatnonzero(row)
            ]
            for row, scale in zip(self.log.participation, scales, strict=True)
        ]

    def entries(self) -> dict[Any, Fraction]:
        """Return the same as the checker reads it from a log."""
        rounds, clients = (
            list(map(str, self.log.rounds)),
            list(map(str, self.log.clients)),
        )
        return {
            (rounds[j], clients[i]): Fraction(weight)
            for j, terms in enumerate(self.sums())
            for i, weight in terms
        }

    def combination(self, witness: Sequence[int]) -> list[list[Any]]:
        """Return z as the checker takes it: for rows of the smallest integers."""
        used = [(j, z * self.times[j]) for j, z in enumerate(witness) if z]
        scale = math.lcm(*(z.denominator for _, z in used))
        whole = [int(z * scale) for _, z in used]
        common = math.gcd(*whole) or 1
        return [[j, exact(z // common)] for (j, _), z in zip(used, whole, strict=True)]

    def _choose_vectors(self) -> None:
        """Take as many vectors as the searches need, and a basis where the rank asks for one."""
        assert self.kernel is not None
        self.limit = self._searched()
        needed = (
            1 + _SPARE
            if self.limit < 2
            else _most_classes(self.sizes, self.limit) + _SPARE
        )
        hidden = set(range(len(self.sizes))) - {
            self.class_of[i] for i in self.found.weak.exposed
        }
        self.drawn = self.kernel.generic(needed, hidden)
        basis = self.kernel.vectors if len(self.kept) < self._plain_rank() else []
        self.vectors = [*self.drawn, *basis[len(self.drawn) :]]

    def _plain_rank(self) -> int:
        """Return what the rank cannot exceed, without a proof."""
        return min(
            len({tuple(row) for row in self.M.tolist() if any(row)}), len(self.sizes)
        )

    def _searched(self) -> int:
        """Return the most clients in sets that the checker can look through, to be of use."""
        lower = self.found.weak.lower or 1
        for limit in range(min(lower, sum(self.sizes)) - 1, min(self.sizes) - 1, -1):
            if _steps(self.sizes, limit) <= _MOST_STEPS:
                return limit
        return 0

    def claims(self) -> Iterator[Claim]:
        """Yield the claims that have a proof, and note the others."""
        found = self.found
        yield {"claim": "strong T", "value": found.strong}
        if self.kernel is not None:
            yield from self._rank()
        yield from self._exposed()
        if found.weak.rank:
            yield {
                "claim": "weak T at most",
                "value": found.weak.upper,
                "combination": self.combination(found.weak.witness),
            }
            yield from self._hidden()
            yield from self._weak()
        yield from self._plain_sum()
        yield from self._joining()
        told = (
            "no client's value follows if all values are whole numbers of a known range"
        )
        self.unproven.append(told)
        if found.noisy is not None:
            self.unproven.append("mu and epsilon of clients beneath noise: floats")
        if found.pending:
            self.unproven.append(
                f"nothing of what was not finished: {', '.join(found.pending)}"
            )

    def _rank(self) -> Iterator[Claim]:
        rank = len(self.kept)
        is_whole = rank + len(self.vectors) == len(self.sizes)
        if rank != self.found.weak.rank or (rank < self._plain_rank() and not is_whole):
            self.unproven.append(f"the rank of the sums is {self.found.weak.rank}")
            return
        yield {
            "claim": "rank",
            "value": rank,
            "rows": self.kept.tolist(),
            "columns": self.basis.tolist(),
            "modulus": self.prime,
        }

    def _exposed(self) -> Iterator[Claim]:
        weak, clients = self.found.weak, range(len(self.log.clients))
        shown = list(weak.exposed)
        # digits, about
        size = len(shown) * len(self.kept) * max(20, len(self.kept) // 2)
        if self.kernel is None or size > _MOST_DIGITS:
            shown = []
        places = [np.flatnonzero(self.basis == self.class_of[i]) for i in shown]
        solved = None
        if shown and all(len(place) for place in places):
            solved = solve_each(
                self.M[self.kept], self.basis, [int(place[0]) for place in places]
            )
        for i, own in zip(shown, solved or (), strict=solved is not None):
            witness = self._whole(own)
            if not self._shows(witness, self.class_of[i]):
                self.unproven.append(f"client {self.log.clients[i]} is exposed")
                continue
            yield {
                "claim": "exposed",
                "clients": [i],
                "others": [],
                "combination": self.combination(witness),
            }
        if weak.exposed:
            told = (
                "which clients are exposed"
                if solved is None
                else "no client is exposed earlier"
            )
            self.unproven.append(f"{told}, by the round that the audit names")
        free = sorted(set(clients) - {*weak.exposed, *self.coalition})
        known = [i for i in free if self._is_free(i)]
        if known:
            yield {"claim": "not exposed", "clients": known}
        if len(known) < len(free):
            names = len(free) - len(known)
            self.unproven.append(f"{names} more clients are not exposed")

    def _is_free(self, i: int) -> bool:
        k = self.class_of.get(i)
        return (
            k is None or self.sizes[k] > 1 or any(vector[k] for vector in self.vectors)
        )

    def _hidden(self) -> Iterator[Claim]:
        """Claim among how many each class is hidden, in multiples of a millionth, rounded down."""
        exposed, figures = set(self.found.weak.exposed), self.found.hidden
        self.shares: list[tuple[Fraction, int]] = []
        unsure = 0
        for k, own in enumerate(self.members):
            is_shown = (k + 1) * len(self.members) <= _MOST_ITEMS
            u = self.kernel.towards(k) if self.kernel is not None and is_shown else None
            value = Fraction(len(own))
            if u is not None:
                rest = sum(
                    Fraction(x * x, m) for x, m in zip(u, self.sizes, strict=True)
                )
                rest -= Fraction(u[k] ** 2, len(own))
                value += (
                    Fraction(math.floor(u[k] ** 2 / rest * 10**6), 10**6) if rest else 0
                )
            self.shares.append((1 / value, len(own)))
            said = 1.0 if figures is None else float(figures.values[own[0]])
            unsure += len(own) * (said > float(value) * (1 + 1e-5))
            if own[0] not in exposed and value > 1:
                vector = None if u is None or value == len(own) else plain(u)
                yield {
                    "claim": "hidden among at least",
                    "clients": own,
                    "value": str(value),
                    "vector": vector,
                }
        if unsure:
            told = (
                f"{unsure} clients are hidden among as many as the audit says: floats"
            )
            self.unproven.append(told)
        self.unproven.append(
            "no client is hidden among more than the audit says: floats"
        )

    def _weak(self) -> Iterator[Claim]:
        lower, strong = self.found.weak.lower or 1, min(self.sizes)
        by_class = min(lower, strong)
        yield {"claim": "weak T at least", "value": by_class, "by": "classes"}
        self.at_least = by_class
        if self.kernel is not None and self.limit + 1 > self.at_least and self.drawn:
            self.at_least = self.limit + 1
            steps = _steps(self.sizes, self.limit)
            (prime,) = _search_primes(_HALF_PRIME << 3 * (steps > 10**7))
            yield {
                "claim": "weak T at least",
                "value": self.at_least,
                "by": "kernel",
                "modulus": prime,
                "vectors": len(self.drawn),
                "steps": steps,
            }
        by_shares = min(lower, _fewest(self.shares))
        if by_shares > self.at_least:
            self.at_least = by_shares
            yield {"claim": "weak T at least", "value": by_shares, "by": "hidden"}
        if self.at_least < lower:
            self.unproven.append(f"weak T is at least {lower}")

    def _plain_sum(self) -> Iterator[Claim]:
        group = self.found.group
        if group is None or group.upper is None:
            return
        total = self._sum(group.witness)
        support = sorted(i for k in total for i in self.members[k])
        is_of = tuple(support) == group.support and len(set(total.values())) == 1
        require(is_of, "found", "must be the audit of this log", "another plain sum")
        yield {
            "claim": "plain sum",
            "value": len(group.support),
            "combination": self.combination(group.witness),
        }
        if group.lower is not None and group.lower > self.at_least:
            self.unproven.append(
                f"a plain sum that follows is over at least {group.lower} clients"
            )

    def _joining(self) -> Iterator[Claim]:
        places = {str(name): i for i, name in enumerate(self.log.clients)}
        for own in self.found.joining:
            i, others = (
                places[str(own.client)],
                [places[str(name)] for name in own.others],
            )
            support = {self.class_of[j] for j in [i, *others]}
            solved = None
            if self.kernel is not None:
                rows, weights = self.M[self.kept], np.asarray(self.sizes, np.int64)
                solved = combination_on(
                    rows, sorted(support), weights, self.class_of[i]
                )
            witness = [] if solved is None else self._whole(solved[0])
            if solved is None or not self._shows(witness, self.class_of[i], support):
                self.unproven.append(own.text)
                continue
            yield {
                "claim": "exposed",
                "clients": [i],
                "others": others,
                "combination": self.combination(witness),
            }
            if own.fewest > 1 and own.fewest + 1 > self.at_least:
                told = (
                    f"fewer than {own.fewest} others do not expose client {own.client}"
                )
                self.unproven.append(told)


def _classes(P: np.ndarray) -> list[list[int]]:
    """Return the clients of each class of equal columns that are not zero, by first member."""
    found: dict[Any, list[int]] = {}
    for i, column in enumerate(P.T):
        if column.any():
            key = tuple(column.tolist()) if P.dtype == object else column.tobytes()
            found.setdefault(key, []).append(i)
    return list(found.values())


def _times(row: np.ndarray, scale: Fraction) -> Fraction:
    """Return by what the smallest integral multiple of a row of weights was multiplied."""
    weights = {Fraction(int(value)) / scale for value in row[np.flatnonzero(row)]}
    return scale / math.lcm(*(weight.denominator for weight in weights))


def _most_classes(sizes: Sequence[int], limit: int) -> int:
    return int(np.searchsorted(np.cumsum(sorted(sizes)), limit, side="right"))


def _steps(sizes: Sequence[int], limit: int) -> int:
    """Return about how many steps looking through sets of at most so many clients takes."""
    most = max(3, _most_classes(sizes, limit))
    counts = {(0, 0): 1}
    for size, many in collections.Counter(sizes).items():
        more: dict[tuple[int, int], int] = collections.defaultdict(int)
        for (clients, members), ways in counts.items():
            for own in range(
                min(many, (limit - clients) // size, most - 1 - members) + 1
            ):
                more[clients + own * size, members + own] += ways * math.comb(many, own)
        counts = more
    return 3 * (sum(counts.values()) + len(sizes))


def _search_primes(half: int) -> tuple[int, ...]:
    """Return a prime between a number and twice that, drawn for the call.

    The larger, the fewer sets are on a line by chance, which the checker looks through
    at length.
    """
    while True:
        value = half + secrets.randbelow(half) | 1
        if all(value % d for d in range(3, math.isqrt(value) + 1, 2)):
            return (value,)


def _fewest(shares: Sequence[tuple[Fraction, int]]) -> int:
    """Return how many clients it takes at least for their shares to add up to 1."""
    left, clients = Fraction(1), 0
    for share, size in sorted(shares, reverse=True):
        some = min(size, math.ceil(left / share))
        left, clients = left - some * share, clients + some
        if left <= 0:
            return clients
    return clients


def exact(value: int) -> int | str:
    """Return an integer as JSON holds it everywhere: as text where it is large."""
    return int(value) if abs(value) < _SAFE else digits(int(value))


def plain(vector: Sequence[int]) -> list[int | str]:
    """Return integers as JSON holds them everywhere."""
    return [exact(value) for value in vector]


def _weight(value: Fraction) -> int | str:
    return exact(value.numerator) if value.denominator == 1 else str(value)
