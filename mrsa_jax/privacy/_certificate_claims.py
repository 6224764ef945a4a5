"""The claims of an audit, each with a proof in integers that `mrsa_check.py` follows.

M is the participation matrix with one column for each class of clients with equal
columns that are not zero, in the order of their first members: the order in which the
checker finds them.
"""

from __future__ import annotations

import collections
import functools
import math
import secrets
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

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


class _RowSpace(NamedTuple):
    """An elimination of M modulo a prime.

    Attributes:
        rows: Places of rows that are independent and span all.
        columns: Places of columns on which those are regular.
        prime: Modulo which it was found.
        kernel: The integer vectors that M makes zero.
    """

    rows: np.ndarray
    columns: np.ndarray
    prime: int
    kernel: Kernel


class _Vectors(NamedTuple):
    """The vectors of the kernel that a certificate holds.

    Attributes:
        limit: Sets of at most this many clients can be searched with the drawn ones.
        drawn: Random combinations, for searches and for clients who are not exposed.
        every: These, and the rest of a basis where the rank asks for one.
    """

    limit: int
    drawn: list[list[int]]
    every: list[list[int]]


class _Value(NamedTuple):
    """Among how many the members of a class are hidden, rounded down."""

    among: Fraction
    vector: list[int] | None


class Proofs:
    """The claims of an audit, one after another, and what they rest on.

    Args:
        log: The history that was audited, whole.
        audit: The findings.
    """

    def __init__(self, log: ParticipationLog, audit: Audit) -> None:
        self._log = log
        self._audit = audit
        others, names = log_without(log, audit.coalition)
        self.coalition = [i for i, name in enumerate(log.clients) if name in names]
        self._scales = log.scales or (Fraction(1),) * len(log.rounds)
        self._members = _classes(others.participation)
        self._sizes = [len(members) for members in self._members]
        self._class_of = {i: k for k, ids in enumerate(self._members) for i in ids}
        firsts = [members[0] for members in self._members]
        self._M = others.participation[:, firsts] * 1
        self.unproven: list[str] = []
        total = self._sum(audit.weak.witness)
        is_of = self._support(total) == audit.weak.support
        self._require_of(is_of, "another support of its witness")

    @functools.cached_property
    def _space(self) -> _RowSpace | None:
        """The elimination of M; None where it would take too long."""
        rank = self._audit.weak.rank
        if not rank or rank**2 * len(self._members) > _MOST_PRODUCTS:
            return None
        (prime,) = draw_primes(1)
        rows = np.flatnonzero(independent_rows(residues_of(self._M, prime), prime))
        transposed = residues_of(self._M[rows], prime).T
        columns = np.flatnonzero(independent_rows(transposed, prime))
        kernel = Kernel(self._M, rows, columns, self._sizes)
        return _RowSpace(rows, columns, prime, kernel)

    @functools.cached_property
    def _vectors(self) -> _Vectors:
        """The vectors of the kernel that the certificate's claims need."""
        if self._space is None:
            return _Vectors(0, [], [])
        limit = self._searchable()
        needed = 1 if limit < 2 else _most_classes(self._sizes, limit)
        exposed = {self._class_of[i] for i in self._audit.weak.exposed}
        hidden = set(range(len(self._sizes))) - exposed
        kernel = self._space.kernel
        drawn = kernel.generic(needed + _SPARE, hidden)
        is_short = len(self._space.rows) < self._plain_rank()
        rest = kernel.vectors[len(drawn) :] if is_short else []
        return _Vectors(limit, drawn, [*drawn, *rest])

    @property
    def vectors(self) -> list[list[int]]:
        """The vectors of the kernel that the certificate holds."""
        return self._vectors.every

    def _require_of(self, is_of: bool, difference: str) -> None:
        require(is_of, "found", "must be the audit of this log", difference)

    def _sum(self, witness: Sequence[int]) -> dict[int, int]:
        """Return z M where it is not zero."""
        total: dict[int, int] = collections.defaultdict(int)
        for z, row in zip(witness, self._M, strict=True):
            for k in np.flatnonzero(row) if z else ():
                total[int(k)] += z * int(row[k])
        return {k: value for k, value in total.items() if value}

    def _support(self, total: Collection[int]) -> tuple[int, ...]:
        """Return the sorted clients of some classes."""
        return tuple(sorted(i for k in total for i in self._members[k]))

    def _exposure(
        self, client: int, others: list[int], coefficients: Sequence[int] | None
    ) -> Claim | None:
        """Claim that a client is exposed by a combination of the independent rows.

        None unless it involves the client's class, and no class but those of `others`.
        """
        if coefficients is None or self._space is None:
            return None
        witness = [0] * len(self._M)
        for j, z in zip(self._space.rows.tolist(), coefficients, strict=True):
            witness[j] = z
        total = self._sum(witness)
        target = self._class_of[client]
        allowed = {target, *(self._class_of[i] for i in others)}
        if target not in total or not total.keys() <= allowed:
            return None
        return {
            "claim": "exposed",
            "clients": [client],
            "others": others,
            "combination": self.combination(witness),
        }

    def sums(self) -> list[list[list[Any]]]:
        """List the clients in each sum, and with which weight."""
        return [
            [
                [int(i), _weight(Fraction(int(row[i])) / scale)]
                for i in np.flatnonzero(row)
            ]
            for row, scale in zip(self._log.participation, self._scales, strict=True)
        ]

    def entries(self) -> dict[Any, Fraction]:
        """Return the same as the checker reads it from a log."""
        rounds = list(map(str, self._log.rounds))
        clients = list(map(str, self._log.clients))
        return {
            (rounds[j], clients[i]): Fraction(weight)
            for j, terms in enumerate(self.sums())
            for i, weight in terms
        }

    def combination(self, witness: Sequence[int]) -> list[list[Any]]:
        """Return z as the checker takes it: for rows of the smallest integers."""
        rows = self._log.participation
        used = [
            (j, z * _times(rows[j], self._scales[j]))
            for j, z in enumerate(witness)
            if z
        ]
        scale = math.lcm(*(z.denominator for _, z in used))
        whole = [int(z * scale) for _, z in used]
        common = math.gcd(*whole) or 1
        return [[j, exact(z // common)] for (j, _), z in zip(used, whole, strict=True)]

    def _plain_rank(self) -> int:
        """Return a number that the rank cannot exceed, without a proof."""
        rows = {tuple(row) for row in self._M.tolist() if any(row)}
        return min(len(rows), len(self._sizes))

    def _searchable(self) -> int:
        """Return the most clients in sets that are worth a search by the checker."""
        lower = self._audit.weak.lower or 1
        top = min(lower, sum(self._sizes)) - 1
        for limit in range(top, min(self._sizes) - 1, -1):
            if _steps(self._sizes, limit) <= _MOST_STEPS:
                return limit
        return 0

    def claims(self) -> Iterator[Claim]:
        """Yield the claims that have a proof, and note the others."""
        audit = self._audit
        yield {"claim": "strong T", "value": audit.strong}
        yield from self._rank()
        yield from self._exposed()
        at_least = 0
        if audit.weak.rank:
            yield {
                "claim": "weak T at most",
                "value": audit.weak.upper,
                "combination": self.combination(audit.weak.witness),
            }
            values = [self._value(k) for k in range(len(self._members))]
            yield from self._hidden(values)
            for claim in self._weak(values):
                at_least = claim["value"]
                yield claim
            lower = audit.weak.lower or 1
            if at_least < lower:
                self.unproven.append(f"weak T is at least {lower}")
        yield from self._plain_sum(at_least)
        yield from self._joining(at_least)
        self.unproven.append(
            "no client's value follows if all values are whole numbers of a known range"
        )
        if audit.noisy is not None:
            self.unproven.append("mu and epsilon of clients beneath noise: floats")
        if audit.pending:
            stages = ", ".join(audit.pending)
            self.unproven.append(f"nothing of what was not finished: {stages}")

    def _rank(self) -> Iterator[Claim]:
        if self._space is None:
            return
        rank = len(self._space.rows)
        is_whole = rank + len(self.vectors) == len(self._sizes)
        is_shown = is_whole or rank >= self._plain_rank()
        if rank != self._audit.weak.rank or not is_shown:
            self.unproven.append(f"the rank of the sums is {self._audit.weak.rank}")
            return
        yield {
            "claim": "rank",
            "value": rank,
            "rows": self._space.rows.tolist(),
            "columns": self._space.columns.tolist(),
            "modulus": self._space.prime,
        }

    def _exposed(self) -> Iterator[Claim]:
        exposed = self._audit.weak.exposed
        solved = self._solved(exposed)
        for i, coefficients in zip(exposed, solved, strict=bool(solved)):
            claim = self._exposure(i, [], coefficients)
            if claim is not None:
                yield claim
            else:
                self.unproven.append(f"client {self._log.clients[i]} is exposed")
        if exposed:
            what = "no client is exposed earlier"
            if not solved:
                what = "which clients are exposed"
            self.unproven.append(f"{what}, by the round that the audit names")
        others = set(range(len(self._log.clients))) - {*exposed, *self.coalition}
        free = [i for i in sorted(others) if self._is_free(i)]
        if free:
            yield {"claim": "not exposed", "clients": free}
        if len(free) < len(others):
            count = len(others) - len(free)
            self.unproven.append(f"{count} more clients are not exposed")

    def _solved(self, clients: Sequence[int]) -> list[list[int]]:
        """Return a combination for each exposed client; none where that is too much."""
        if not clients or self._space is None:
            return []
        rows, columns, _, _ = self._space
        num_digits = len(clients) * len(rows) * max(20, len(rows) // 2)  # about
        places = [np.flatnonzero(columns == self._class_of[i]) for i in clients]
        if num_digits > _MOST_DIGITS or not all(len(place) for place in places):
            return []
        each = [int(place[0]) for place in places]
        return solve_each(self._M[rows], columns, each) or []

    def _is_free(self, i: int) -> bool:
        k = self._class_of.get(i)
        if k is None or self._sizes[k] > 1:
            return True
        return any(vector[k] for vector in self.vectors)

    def _value(self, k: int) -> _Value:
        """Return among how many a class is hidden, rounded down to a millionth.

        With a vector u of the kernel its members are hidden among
        m + u_k^2 / sum over the other classes of u_l^2 / m_l, m clients in class k.
        """
        size = self._sizes[k]
        u = None
        if self._space is not None and (k + 1) * len(self._members) <= _MOST_ITEMS:
            u = self._space.kernel.towards(k)
        if u is None:
            return _Value(Fraction(size), None)
        rest = sum(Fraction(x * x, m) for x, m in zip(u, self._sizes, strict=True))
        rest -= Fraction(u[k] ** 2, size)
        more = math.floor(u[k] ** 2 / rest * 10**6) if rest else 0
        return _Value(size + Fraction(more, 10**6), u if more else None)

    def _hidden(self, values: Sequence[_Value]) -> Iterator[Claim]:
        """Claim among how many each class is hidden."""
        exposed = set(self._audit.weak.exposed)
        figures = self._audit.hidden
        unsure = 0
        for members, (among, vector) in zip(self._members, values, strict=True):
            first = members[0]
            figure = 1.0 if figures is None else float(figures.values[first])
            if figure > float(among) * (1 + 1e-5):
                unsure += len(members)
            if first not in exposed and among > 1:
                yield {
                    "claim": "hidden among at least",
                    "clients": members,
                    "value": str(among),
                    "vector": None if vector is None else plain(vector),
                }
        if unsure:
            self.unproven.append(
                f"{unsure} clients are hidden among as many as the audit says: floats"
            )
        self.unproven.append(
            "no client is hidden among more than the audit says: floats"
        )

    def _weak(self, values: Sequence[_Value]) -> Iterator[Claim]:
        """Claim ever larger lower bounds of weak T."""
        lower = self._audit.weak.lower or 1
        at_least = min(lower, *self._sizes)
        yield {"claim": "weak T at least", "value": at_least, "by": "classes"}
        limit, drawn, _ = self._vectors
        if drawn and limit + 1 > at_least:
            at_least = limit + 1
            steps = _steps(self._sizes, limit)
            half = _HALF_PRIME << 3 if steps > 10**7 else _HALF_PRIME
            yield {
                "claim": "weak T at least",
                "value": at_least,
                "by": "kernel",
                "modulus": _search_prime(half),
                "vectors": len(drawn),
                "steps": steps,
            }
        by_shares = min(lower, _fewest([value.among for value in values], self._sizes))
        if by_shares > at_least:
            yield {"claim": "weak T at least", "value": by_shares, "by": "hidden"}

    def _plain_sum(self, at_least: int) -> Iterator[Claim]:
        group = self._audit.group
        if group is None or group.upper is None:
            return
        total = self._sum(group.witness)
        is_plain = len(set(total.values())) == 1
        is_of = is_plain and self._support(total) == group.support
        self._require_of(is_of, "another plain sum")
        yield {
            "claim": "plain sum",
            "value": len(group.support),
            "combination": self.combination(group.witness),
        }
        if group.lower is not None and group.lower > at_least:
            self.unproven.append(
                f"a plain sum that follows is over at least {group.lower} clients"
            )

    def _joining(self, at_least: int) -> Iterator[Claim]:
        places = {str(name): i for i, name in enumerate(self._log.clients)}
        for joining in self._audit.joining:
            i = places[str(joining.client)]
            others = [places[str(name)] for name in joining.others]
            claim = None
            if self._space is not None:
                support = sorted({self._class_of[j] for j in [i, *others]})
                weights = np.asarray(self._sizes, np.int64)
                rows = self._M[self._space.rows]
                solved = combination_on(rows, support, weights, self._class_of[i])
                claim = self._exposure(i, others, solved and solved[0])
            if claim is None:
                self.unproven.append(joining.text)
                continue
            yield claim
            if joining.fewest > 1 and joining.fewest + 1 > at_least:
                self.unproven.append(
                    f"fewer than {joining.fewest} others do not expose client "
                    f"{joining.client}"
                )


def _classes(P: np.ndarray) -> list[list[int]]:
    """Return the clients of each class of equal columns, but zeros, by first member."""
    members: dict[Any, list[int]] = {}
    for i, column in enumerate(P.T):
        if column.any():
            key = tuple(column.tolist()) if P.dtype == object else column.tobytes()
            members.setdefault(key, []).append(i)
    return list(members.values())


def _times(row: np.ndarray, scale: Fraction) -> Fraction:
    """Return the factor between a row here and the checker's, of smallest integers."""
    weights = {Fraction(int(value)) / scale for value in row[np.flatnonzero(row)]}
    return scale / math.lcm(*(weight.denominator for weight in weights))


def _most_classes(sizes: Sequence[int], limit: int) -> int:
    return int(np.searchsorted(np.cumsum(sorted(sizes)), limit, side="right"))


def _steps(sizes: Sequence[int], limit: int) -> int:
    """Predict the steps of a search through sets of at most this many clients."""
    most = max(3, _most_classes(sizes, limit))
    # sets by their clients and by their classes
    counts = {(0, 0): 1}
    for size, copies in collections.Counter(sizes).items():
        more: dict[tuple[int, int], int] = collections.defaultdict(int)
        for (clients, classes), ways in counts.items():
            room = min(copies, (limit - clients) // size, most - 1 - classes)
            for taken in range(room + 1):
                place = (clients + taken * size, classes + taken)
                more[place] += ways * math.comb(copies, taken)
        counts = more
    return 3 * (sum(counts.values()) + len(sizes))


def _search_prime(half: int) -> int:
    """Draw a prime between a number and twice that.

    The larger, the fewer sets are on a line by chance, which the checker looks through
    at length.
    """
    while True:
        value = half + secrets.randbelow(half) | 1
        if all(value % d for d in range(3, math.isqrt(value) + 1, 2)):
            return value


def _fewest(among: Sequence[Fraction], sizes: Sequence[int]) -> int:
    """Return the fewest clients whose shares, 1 / among, add up to 1."""
    missing = Fraction(1)
    clients = 0
    for value, size in sorted(zip(among, sizes, strict=True)):
        taken = min(size, math.ceil(missing * value))
        missing -= taken / value
        clients += taken
        if missing <= 0:
            break
    return clients


def exact(value: int) -> int | str:
    """Return an integer as JSON holds it everywhere: as text where it is large."""
    return int(value) if abs(value) < _SAFE else digits(int(value))


def plain(vector: Sequence[int]) -> list[int | str]:
    """Return integers as JSON holds them everywhere."""
    return [exact(value) for value in vector]


def _weight(value: Fraction) -> int | str:
    return exact(value.numerator) if value.denominator == 1 else str(value)
