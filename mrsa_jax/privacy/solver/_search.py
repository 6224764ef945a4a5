"""Proofs that no light vector exists, or one that does.

Two searches share the work, each where it is the cheaper one by a cost model: a walk
through sets of dual vectors (`_girth`) and lifting from the binary code (`_lifting`).

The row space's lattice modulo 4, which lifting starts from, comes first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from mrsa_jax._core.cores import num_cores
from mrsa_jax._core.prime import inverses
from mrsa_jax._core.threads import in_order
from mrsa_jax.privacy.solver._costs import girth_work, lifting_work, num_parts
from mrsa_jax.privacy.solver._ranks import kernel_of, residues_of
from mrsa_watch._base.primes import draw_primes

_ALL = np.uint64(2**64 - 1)


@dataclasses.dataclass(frozen=True)
class Checks:
    """Parity checks modulo 4 of the saturated lattice L of a row space.

    Attributes:
        digits: uint8 `[corank, columns]` in 0..3: v lies in L modulo 4 exactly if all
            checks vanish modulo 4.
        is_even: Whether every vector of L has an even number of odd entries.
    """

    digits: np.ndarray
    is_even: bool


def parity_checks(matrix: np.ndarray) -> Checks | None:
    """Return the parity checks of the integer vectors in the row space of rows.

    Rows are eliminated modulo 2**64, always with an entry that has the fewest factors
    2, so that every quotient is a 2-adic integer and nothing but the last digits of a
    row is lost: row i, divided by its pivot's factors 2, is known modulo 2**64 over
    those factors. The form's leading ones then span the saturated lattice, whatever
    powers of 2 divided the minors.

    Returns:
        None when fewer than two digits are left.
    """
    rows, columns = matrix.shape
    work = (
        (matrix % (1 << 64)).astype(np.uint64)
        if matrix.dtype == object
        else matrix.astype(np.int64).view(np.uint64).copy()
    )
    free = np.ones(columns, np.bool_)
    pivots = np.zeros(rows, np.int64)
    for i in range(rows):
        candidates = np.where(free, work[i:] & (~work[i:] + np.uint64(1)), np.uint64(0))
        lowest = np.where(candidates == 0, _ALL, candidates)
        place, column = divmod(int(lowest.argmin()), columns)
        power = int(lowest[place, column])
        if power >= 1 << 62:
            return None
        digits = power.bit_length() - 1
        work[[i, i + place]] = work[[i + place, i]]
        inverse = np.uint64(pow(int(work[i, column]) >> digits, -1, 1 << 64))
        factors = (work[i + 1 :, column] >> np.uint64(digits)) * inverse
        work[i + 1 :] -= factors[:, None] * work[i]
        # Divided by a power of two the row keeps its value only if that divides every
        # entry.
        work[i] = (work[i] >> np.uint64(digits)) * inverse
        free[column] = False
        pivots[i] = column
    for i in range(rows - 1, 0, -1):
        work[:i] -= work[:i, pivots[i], None] * work[i]
    rest = np.flatnonzero(free)
    checks = np.zeros((len(rest), columns), np.uint8)
    checks[np.arange(len(rest)), rest] = 1
    checks[:, pivots] = (-work[:, rest] & np.uint64(3)).T.astype(np.uint8)
    odd = (work[:, rest] & np.uint64(1)).sum(axis=1) + 1
    return Checks(checks, bool((odd % 2 == 0).all()))


_SMALL_PRIMES = (8191, 8179)
_MOST_COLUMNS = 4096
# A search goes in tasks about so long, so that it can be watched and interrupted.
_SECONDS_A_TASK = 1.0
_MOST_TASKS = 4096
_ATTEMPTS = 4
_MOST_BYTES = 1 << 30  # that a walk's vectors may take
# A search gives up where it has done so many times the work that was predicted, and
# some more.
_PATIENCE, _GRACE_SECONDS = 2.0, 1.0

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Duals:
    """Dual vectors of a row space.

    The columns of a kernel basis, modulo several primes.

    Attributes:
        weights: int64 `[groups]`, ascending.
        primes: uint64 `[2]`, two large ones drawn for these vectors.
        kernels: uint64 `[2, groups, corank]`, modulo the large primes.
        small: int64 `[2, groups, corank]`, modulo the small ones; None when the rank
            falls there.
        checks: The lattice modulo 4, if it could be computed.
    """

    weights: np.ndarray
    primes: np.ndarray
    kernels: np.ndarray
    small: np.ndarray | None
    checks: Checks | None

    @property
    def corank(self) -> int:
        """Dimension of the kernel."""
        return self.kernels.shape[2]

    def most_groups(self, limit: int) -> int:
        """Count the groups that a set of at most this weight can have."""
        return int(np.searchsorted(np.cumsum(self.weights), limit, side="right"))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A method to search a limit, and its predicted seconds on one core."""

    method: str
    limit: int
    seconds: float

    @property
    def budget(self) -> float:
        """The work after which the search gives up, in nanoseconds."""
        return 1e9 * (_PATIENCE * self.seconds + _GRACE_SECONDS)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a search.

    Attributes:
        is_proof: Whether no vector of weight at most the limit exists.
        subset: Columns that carry a vector within the limit (modulo two large primes),
            or None.
        method: Which search.
        work: What it did, counted in nanoseconds of a core.
    """

    is_proof: bool
    subset: tuple[int, ...] | None
    method: str
    work: float


def duals(matrix: np.ndarray, weights: np.ndarray) -> Duals | None:
    """Return the dual vectors of independent integer rows.

    None if a large prime loses rank.
    """
    primes = draw_primes(2)
    kernels = [kernel_of(residues_of(matrix, prime), prime) for prime in primes]
    corank = matrix.shape[1] - matrix.shape[0]
    if any(kernel.shape[1] != corank for kernel in kernels):
        return None
    small = [kernel_of(residues_of(matrix, prime), prime) for prime in _SMALL_PRIMES]
    whole = all(kernel.shape[1] == corank for kernel in small)
    return Duals(
        weights,
        np.asarray(primes, np.uint64),
        np.stack(kernels),
        np.stack(small).astype(np.int64) if whole else None,
        parity_checks(matrix) if whole else None,
    )


def plan(of: Duals, limit: int) -> Plan | None:
    """Return the cheaper search for vectors of limited weight, or None."""
    groups, most = len(of.weights), of.most_groups(limit)
    if of.small is None or groups > _MOST_COLUMNS or most > of.corank:
        return None
    depth = max(most, 3)
    work = girth_work(of.weights, limit, depth)
    if 4 * groups * depth * (depth - 2) > _MOST_BYTES:
        work = math.inf
    options = [Plan("girth", limit, 1e-4 + work / 1e9)]
    if of.checks is not None and most >= 4:
        work = lifting_work(of.weights, of.corank, limit, most, of.checks.is_even)
        options.append(Plan("lifting", limit, 1e-4 + work / 1e9))
    best = min(options, key=lambda option: option.seconds)
    return best if best.seconds < math.inf else None


def run(of: Duals, chosen: Plan, progress: Progress | None = None) -> Outcome:
    """Search as planned, on all cores; the same answer whatever their number."""
    from mrsa_jax.privacy.solver._girth import ANOMALY, NONE

    search = _girth_tasks if chosen.method == "girth" else _lifting_tasks
    work = 0.0
    for attempt in range(_ATTEMPTS):
        status, subset, spent = _first(search(of, chosen, attempt), chosen, progress)
        work += spent
        if status != ANOMALY:
            break
    return Outcome(status == NONE, subset, chosen.method, work)


# A status, the set found, and the work that was done
Found = tuple[int, tuple[int, ...], float]
Task = Callable[[], Found]


def _first(
    tasks: list[Task], chosen: Plan, progress: Progress | None
) -> tuple[int, tuple[int, ...] | None, float]:
    """Run tasks until one finds a set, or they exceed the plan's budget.

    They are taken in order, so that the answer does not depend on which ends first.
    """
    from mrsa_jax.privacy.solver._girth import FOUND, GAVE_UP, NONE

    label = f"{chosen.method}: weight up to {chosen.limit}, about"
    label += f" {chosen.seconds:.0f} core-s"
    worst, work = NONE, 0.0
    with contextlib.closing(in_order(tasks)) as results:
        for done, (status, subset, spent) in enumerate(results):
            work += spent
            if status == FOUND:
                return FOUND, subset, work
            if status == GAVE_UP or work > chosen.budget:
                return GAVE_UP, None, work
            worst = max(worst, status)
            if progress is not None and len(tasks) > 1:
                progress(label, done + 1, len(tasks))
    return worst, None, work


def _girth_tasks(of: Duals, chosen: Plan, attempt: int) -> list[Task]:
    from mrsa_jax.privacy.solver import _girth

    depth = max(of.most_groups(chosen.limit), 3)
    count = 1
    if depth >= 5 and chosen.seconds > _SECONDS_A_TASK / 4:
        count = max(
            4 * num_cores(),
            min(_MOST_TASKS, math.ceil(chosen.seconds / _SECONDS_A_TASK)),
        )
    vectors = _girth.Vectors(
        _folded(of, 0, depth, attempt),
        _folded(of, 1, depth, attempt),
        of.kernels,
        of.primes,
        of.weights,
        inverses(_SMALL_PRIMES[0]),
        inverses(_SMALL_PRIMES[1]),
    )

    def task(number: int) -> Found:
        subset, spent = np.zeros(depth, np.int64), np.zeros(1)
        status, size = _girth.search(
            vectors, chosen.limit, depth, number, count, subset, spent, chosen.budget
        )
        return status, tuple(int(k) for k in subset[:size]), float(spent[0])

    return [functools.partial(task, number) for number in range(count)]


def _lifting_tasks(of: Duals, chosen: Plan, attempt: int) -> list[Task]:
    from mrsa_jax.privacy.solver import _lifting, _words

    assert of.checks is not None
    assert of.small is not None
    most = of.most_groups(chosen.limit)
    keys, highs, bits = _mixed_checks(of.checks, attempt)
    small = _folded(of, 0, max(most, 3), attempt)
    table = _words.binomials(len(keys), (most + 1) // 2)
    again = inverses(_SMALL_PRIMES[1])
    prefix = np.concatenate([[0], np.cumsum(of.weights)])
    problem = (
        of.kernels,
        of.primes,
        of.weights,
        inverses(_SMALL_PRIMES[0]),
        again,
        of.small[0],
        of.small[1],
        prefix,
    )

    def task(size: int, parts: int, part: int, slots: int) -> Found:
        subset, spent = np.zeros(most + 1, np.int64), np.zeros(1)
        shift, starts, items = _buckets(keys, bits, parts)
        status, total = _lifting.words(
            keys,
            highs,
            small,
            problem,
            chosen.limit,
            size,
            np.uint64(shift),
            np.uint64(part),
            starts,
            items,
            slots,
            table,
            subset,
            spent,
            chosen.budget,
        )
        return status, tuple(int(k) for k in subset[:total]), float(spent[0])

    tasks: list[Task] = []
    for size in range(1, most + 1):
        if of.checks.is_even and size % 2:
            continue
        halves = math.comb(len(keys), size // 2)
        parts = num_parts(len(keys), of.corank, size)
        slots = max(
            8, min(bits - parts, math.ceil(math.log2(max(2, halves / 2**parts))), 24)
        )
        for part in range(1 << parts):
            tasks.append(functools.partial(task, size, parts, part, slots))
    return tasks


def _buckets(
    keys: np.ndarray, bits: int, parts: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Order columns by the leading bits of their keys.

    A single bucket when there are no parts.
    """
    shift = bits - parts if parts else 63
    lead = (keys >> np.uint64(shift)).astype(np.int64)
    items = np.argsort(lead, kind="stable")
    return shift, np.searchsorted(lead[items], np.arange((1 << parts) + 1)), items


def _mixed_checks(checks: Checks, attempt: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return random combinations of the parity checks as bits of one word a column."""
    import flint

    corank = checks.digits.shape[0]
    bits = min(corank, 63)
    rng = np.random.default_rng([20_219, attempt])
    while True:
        mix = rng.integers(0, 2, (bits, corank))
        if (
            bits < corank
            or flint.nmod_mat(flint.fmpz_mat(mix.tolist()), 2).rank() == bits
        ):
            break
    digits = mix @ checks.digits.astype(np.int64) % 4
    places = np.uint64(1) << np.arange(bits, dtype=np.uint64)[:, None]
    keys = ((digits & 1).astype(np.uint64) * places).sum(axis=0, dtype=np.uint64)
    return (
        keys,
        ((digits >> 1).astype(np.uint64) * places).sum(axis=0, dtype=np.uint64),
        bits,
    )


def _folded(of: Duals, which: int, axes: int, attempt: int) -> np.ndarray:
    assert of.small is not None
    return folded(of.small[which], _SMALL_PRIMES[which], axes, attempt)


def folded(small: np.ndarray, prime: int, axes: int, attempt: int) -> np.ndarray:
    """Return dual vectors modulo a small prime on random axes, int32."""
    mix = np.random.default_rng([prime, attempt]).integers(
        0, prime, (small.shape[1], axes)
    )
    return np.ascontiguousarray(small @ mix % prime).astype(np.int32)
