"""Certificates: what an audit claims with short proofs in integers, for a checker of its own.

`mrsa_check.py` (the standard library only) checks them against the log.
"""

from __future__ import annotations

import hashlib
import math
import pathlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np

from mrsa_jax._version import __version__
from mrsa_jax.privacy._audit_found import Audit
from mrsa_jax.privacy._certificate_claims import Proofs, plain
from mrsa_watch import mrsa_check
from mrsa_watch._base.errors import DataNotFoundError, require
from mrsa_watch.logs import ParticipationLog

# ---- Integer vectors u with M u = 0: the proofs of what does not follow from sums.
#
# Small ones where the lattice of all of them can be reduced; solutions of linear systems elsewhere.

_MOST_REDUCED = 250  # classes of clients: the reduction takes seconds
_LEAST_REDUCED = 8  # of so few vectors large entries do no harm
_MOST_SOLVED = 400  # classes of clients whose whole basis is solved for
_LARGEST = 1000  # coefficient of a generic vector
_STEPS = 2**24  # of the coefficients of a vector that is as near as can be to a unit vector
_ATTEMPTS = 20


class Kernel:
    """The integer vectors that M makes zero.

    Args:
        matrix: M, integers `[rounds, classes]`.
        kept: Rows that are independent and span all.
        basis: Columns on which those are regular.
        sizes: Clients of each class.

    Attributes:
        vectors: A basis; empty where only generic vectors can be had, or there are none.
    """

    def __init__(
        self, matrix: np.ndarray, kept: np.ndarray, basis: np.ndarray, sizes: Sequence[int]
    ) -> None:
        self._matrix, self._kept, self._basis = matrix, kept, basis
        self._free = np.setdiff1d(np.arange(matrix.shape[1]), basis)
        self._sizes = np.asarray(sizes, np.float64)
        self.vectors: list[list[int]] = []
        classes, corank = matrix.shape[1], len(self._free)
        if corank > _LEAST_REDUCED and classes <= _MOST_REDUCED:
            self.vectors = _reduced(matrix, corank)
        if not self.vectors and corank and classes <= _MOST_SOLVED:
            self.vectors = self._solved(np.eye(corank, dtype=np.int64))
        if self.vectors:
            self._rows = np.array([_unit_sized(u) for u in self.vectors]) / np.sqrt(self._sizes)
            orthonormal, upper = np.linalg.qr(self._rows.T)
            self._factors = np.linalg.lstsq(upper, orthonormal.T, rcond=None)[0]

    def generic(self, count: int, wanted: Collection[int]) -> list[list[int]]:
        """Return combinations with random coefficients, no wanted place zero in all of them.

        Fewer, the whole basis, where there are no more; where a wanted place cannot be had, with
        it zero.
        """
        corank = len(self._free)
        if not corank:
            return []
        if len(self.vectors) == corank <= count:
            return self.vectors
        rng = np.random.default_rng(secrets.randbits(128))
        drawn: list[list[int]] = []
        for _ in range(_ATTEMPTS):
            factors = rng.integers(1, _LARGEST, (min(count, corank), corank))
            drawn = self._solved(factors.T) if not self.vectors else [
                _primitive([sum(int(a) * u[k] for a, u in zip(own, self.vectors, strict=True))
                            for k in range(self._matrix.shape[1])])
                for own in factors * rng.choice([-1, 1], factors.shape)
            ]  # fmt: skip
            if all(any(u[k] for u in drawn) for k in wanted):
                break
        return drawn

    def towards(self, k: int) -> list[int] | None:
        """Return a combination of the basis that is about the projection of a unit vector.

        In the metric in which the members of a class share what the class has. None without a
        basis.
        """
        if not self.vectors:
            return None
        factors = self._factors[:, k]
        largest = float(np.abs(factors).max())
        if not np.isfinite(largest) or not largest:
            return self.vectors[0]
        scales = np.array([float(max(map(abs, u)).bit_length()) for u in self.vectors])
        exact = [int(a) for a in np.rint(factors / largest * _STEPS)]
        top = int(scales.max())
        whole = [a << (top - int(own)) for a, own in zip(exact, scales, strict=True)]
        u = [sum(a * v[i] for a, v in zip(whole, self.vectors, strict=True))
             for i in range(self._matrix.shape[1])]  # fmt: skip
        return _primitive(u) if any(u) else self.vectors[0]

    def _solved(self, factors: np.ndarray) -> list[list[int]]:
        """Return vectors whose free places are columns of factors, each times a denominator."""
        import flint

        rows = self._matrix[self._kept].astype(object)
        square = flint.fmpz_mat(rows[:, self._basis].tolist())
        right = -(rows[:, self._free] @ factors.astype(object))
        numerators, divisor = cast(
            Any, square.solve(flint.fmpz_mat([[int(v) for v in row] for row in right.tolist()]))
        ).numer_denom()
        found = []
        for column, own in zip(numerators.transpose().tolist(), factors.T, strict=True):
            u = [0] * self._matrix.shape[1]
            for place, value in zip(self._basis, column, strict=True):
                u[place] = int(value)
            for place, value in zip(self._free, own, strict=True):
                u[place] = int(value) * int(divisor)
            found.append(_primitive(u))
        # the rows that were kept may span too little where a prime chose them
        whole = flint.fmpz_mat([[int(v) for v in row] for row in self._matrix])
        left = (whole * flint.fmpz_mat(found).transpose()).transpose().tolist()
        return [u for u, own in zip(found, left, strict=True) if not any(own)]


def _reduced(matrix: np.ndarray, corank: int) -> list[list[int]]:
    """Return a reduced basis of the lattice of all integer u with M u = 0; none if it fails.

    Of the lattice of all (u, c M u), with c so large that no short vector has M u other than zero.
    """
    import flint

    rows, columns = matrix.shape
    for bits in (60, 150, 400):
        whole = flint.fmpz_mat(columns, columns + rows)
        for k in range(columns):
            whole[k, k] = 1
            for j in np.flatnonzero(matrix[:, k]):
                whole[k, columns + int(j)] = int(matrix[j, k]) << bits
        found = [[int(value) for value in row] for row in cast(Any, whole.lll()).tolist()]
        short = [row[:columns] for row in found if not any(row[columns:])]
        if len(short) == corank:
            return short
    return []


def _primitive(u: list[int]) -> list[int]:
    common = math.gcd(*u) or 1
    return [value // common for value in u]


def _unit_sized(u: list[int]) -> list[float]:
    """Return a vector as floats, divided by a power of 2 about its largest entry."""
    size = 1 << max(map(abs, u)).bit_length()
    return [value / size for value in u]


# ---- Certificates: what an audit claims with short proofs in integers, for a checker of its own.


def certificate(log: ParticipationLog, found: Audit, file: str | pathlib.Path) -> dict[str, Any]:
    r"""Return what an audit claims with short proofs in integers, as plain values for JSON.

    Choose it where somebody who trusts neither you nor this package must believe an audit: write it
    to a file, and let them run `mrsa_check.py`, which needs Python alone. What has no short proof
    (a lower bound of weak T beyond what the checker can search, figures in floats) is listed under
    `"no short proof"`.

    Args:
        log: The log that was audited, whole: the audit's coalition is left out here.
        found: The audit of it.
        file: Where the log was read: the certificate is bound to its SHA-256. A text is read once
            more as the checker will read it; of other formats the checker has but the digest.

    Returns:
        Log, matrix, vectors of the kernel, claims with proofs, and claims without.

    Raises:
        ConfigurationError: If the audit is of another log, the log of another file, or larger than
            the checker holds (a million clients in sums).
        DataNotFoundError: If the file cannot be read.

    Examples:
        >>> import pathlib, tempfile
        >>> from mrsa_jax.privacy import audit, read_log
        >>> path = pathlib.Path(tempfile.mkdtemp(), "log.csv")
        >>> _ = path.write_text("round,client\n1,anna\n1,bob\n2,bob\n")
        >>> log = read_log(path)
        >>> made = certificate(log, audit(log, effort=0), path)
        >>> [claim["claim"] for claim in made["claims"]]
        ['strong T', 'rank', 'exposed', 'exposed', 'weak T at most', 'weak T at least']

    Cost: rank**2 times the classes of clients, and exact solutions of as many unknowns as the rank:
    seconds for 120 clients in 120 rounds, and for 2,000 in 500.

    Source: this package.
    """
    try:
        data = pathlib.Path(file).read_bytes()
    except OSError as error:
        raise DataNotFoundError(f"{file}: expected a log; found none that can be read") from error
    shape = (found.num_rounds, found.num_clients)
    is_of = log.participation.shape == shape and len(found.weak.witness) == shape[0]
    require(is_of, "found", "must be the audit of this log", *shape)
    entries, most = int(np.count_nonzero(log.participation)), mrsa_check.MOST_ENTRIES
    rule = f"must have at most {most} clients in sums, over all sums, as the checker can hold"
    require(entries <= most, "log", rule, entries)
    proofs = Proofs(log, found)
    reading = _reading(data, log, proofs.entries())
    claims = list(proofs.claims())
    return {
        "format": mrsa_check.FORMAT,
        "version": mrsa_check.VERSION,
        "made by": f"mrsa_jax {__version__}",
        "log": {"name": pathlib.Path(file).name, "sha256": hashlib.sha256(data).hexdigest()},
        "reading": reading,
        "clients": list(map(str, log.clients)),
        "rounds": list(map(str, log.rounds)),
        "sums": proofs.sums(),
        "coalition": proofs.coalition,
        "kernel": [plain(vector) for vector in proofs.vectors],
        "claims": claims,
        "no short proof": proofs.unproven,
    }


def _reading(data: bytes, log: ParticipationLog, wanted: dict[Any, Fraction]) -> Any:
    """Return how the checker reads the same from the file; None where it has no way to."""
    for reading in _readings(log):
        try:
            if mrsa_check.read_log(data, reading)[0] == wanted:
                return reading
        except Exception:  # a reading that does not fit, in one way or another
            continue
    return None


def _readings(log: ParticipationLog) -> Iterator[dict[str, Any]]:
    """Yield ways to read a text as a log."""
    yield {"layout": "lines"}
    used, where = list(log.columns_used), [[name, list(texts)] for name, texts in log.where]
    for delimiter in (",", ";", "\t", "|", " ", None):
        for header in (0, 1):
            own = {"delimiter": delimiter, "header": header}
            left_out = list(log.columns_ignored)
            for numbers in ([], used[:1]):  # of the rows, where a table wrote its index
                yield {"layout": "matrix", **own, "left_out": [*left_out, *numbers]}
            names = used if header else ["0", "1", "2"]
            for weight in {None, *names[2:3]}:
                columns = [*names[:2], weight]
                yield {"layout": "long", **own, "columns": columns, "where": where}
