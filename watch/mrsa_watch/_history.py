"""A history that grows by one learnt sum at a time, and what it leaks after each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mrsa_watch._base.errors import MrsaError
from mrsa_watch._base.primes import draw_wide_primes, wide_error_bits
from mrsa_watch._leverages import Kernel, Leverages, Rest, Step
from mrsa_watch._rows import Classes, Row, Rows
from mrsa_watch._vectors import lightest

_NUM_PRIMES = 2
_MOST_ENTRIES = 10**8  # of a matrix that is searched
_MOST_BY_BALLS = 10**5  # rows x rows x (rows + clients): some tenths of a second
_ABOVE = np.nextafter(1.0, 2.0)

# rows -> lower and upper bound on weak T
Search = Callable[[np.ndarray], tuple[int, int] | None]


@dataclasses.dataclass(frozen=True)
class Figures:
    """The leakage of a history.

    Attributes:
        lower: No combination of the sums involves fewer clients.
        upper: Some combination involves this many.
        strong: The fewest clients that always move together.
        exposed: bool `[clients]`.
        hidden: Size of a single sum that would hide each equally well, float64
            `[clients]`; None if it was not requested, or if floats do not know it to
            nine digits.
        is_searched: Whether cheap bounds did not decide weak T, so that it was
            searched.
    """

    lower: int
    upper: int
    strong: int
    exposed: np.ndarray
    hidden: np.ndarray | None
    is_searched: bool = False

    @property
    def least(self) -> int | None:
        """The client who is hidden worst."""
        return None if self.hidden is None else int(np.argmin(self.hidden))


class History:
    """The sums so far, of clients by their numbers.

    Attributes:
        names: Clients in the order in which they came.
        rank: Independent sums.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self._rows = Rows()
        self.classes = Classes.empty()
        self._leverages = Leverages()
        self._kernels = [Kernel(prime) for prime in draw_wide_primes(_NUM_PRIMES)]
        self._minor_bits = 0.0
        self._upper: int | None = None
        self._is_broken = False

    @property
    def rank(self) -> int:
        """The number of sums that are no combinations of earlier ones."""
        return len(self._rows.rows)

    @property
    def error_bits(self) -> int:
        """Some k such that a result on weak T or exposure errs with a chance < 2**-k.

        A rank that is too small, a client wrongly alone, two of all classes so far
        wrongly parallel: the primes err in one, or random vectors agree by chance.
        """
        cases = 1 + len(self.names) + len(self.classes.sizes) ** 2
        by_chance = int(2 * 59 - np.log2(cases)) - 1
        return min(wide_error_bits(self._minor_bits, _NUM_PRIMES, cases), by_chance)

    def fresh(self, names: Sequence[str]) -> list[str]:
        """Return clients without a number, in an order that fixes last digits."""
        return sorted(set(names).difference(self.numbers))

    def join(self, names: Sequence[str]) -> None:
        """Give clients numbers who have none."""
        for name in self.fresh(names):
            self.numbers[name] = len(self.names)
            self.names.append(name)
        count = len(self.names)
        self.classes = self.classes.joined(count)
        self._leverages.join(count)
        for kernel in self._kernels:
            kernel.join(count)

    def adds(self, row: Row) -> bool:
        """Return whether a row, of known clients or not, is independent so far."""
        self._refuse_if(self._is_broken)
        # a product that is not 0 modulo one prime is not 0, so that either kernel
        # suffices
        pairs = zip(self._kernels, self._extended(row), strict=True)
        return any(kernel.seen(row, vectors).any() for kernel, vectors in pairs)

    def add(self, row: Row) -> bool:
        """Take a row of known clients; return whether it says anything new."""
        if not self.adds(row):
            return False
        rest = self._leverages.rest(self._rows, row)
        for place, kernel in enumerate(self._kernels):
            step = self._step(kernel, row, _by_size(rest, kernel))
            if step is None:  # the prime divides what the other does not
                self._kernels[place], step = self._drawn_again(row, rest)
            self._kernels[place].take(row, step)
        # a row, and the difference of two, are combinations: weak T is at most their
        # clients
        bounds = [len(row.places), *self._differences(row, rest)]
        self._upper = min(bounds) if self._upper is None else min(self._upper, *bounds)
        # Hadamard: a minor is at most the product of the lengths of its rows
        self._minor_bits += row.bits + 1e-6
        self.classes = self.classes.split(row)
        self._leverages.take(rest)
        self._rows.append(row)
        return True

    def _refuse_if(self, is_broken: bool) -> None:
        """Raise, then and at every later call, where figures contradict each other."""
        if is_broken:
            self._is_broken = True
            raise MrsaError(
                "the figures of this history contradict each other, so no sum may be "
                "learnt on their word: this is a fault of mrsa-jax; audit the log with "
                "mrsa-jax audit"
            )

    def _step(self, kernel: Kernel, row: Row, pivots: Iterator[int]) -> Step | None:
        if not kernel.seen(row).any():
            return None
        steps = (kernel.step(self._rows, row, pivot) for pivot in pivots)
        return next((step for step in steps if step is not None), None)

    def _drawn_again(self, row: Row, rest: Rest) -> tuple[Kernel, Step]:
        """Return a kernel modulo a new prime that takes all rows, and its step."""
        # the rows are independent, so that only the few primes that divide a minor of
        # theirs fail here
        used = [kernel.value for kernel in self._kernels]
        while True:
            kernel = Kernel(*draw_wide_primes(1, used))
            kernel.join(len(self.names))
            for old in self._rows.rows:
                step = self._step(kernel, old, iter(old.places.tolist()))
                step = step or self._step(kernel, old, iter(range(len(self.names))))
                if step is None:
                    break
                kernel.take(old, step)
            else:
                step = self._step(kernel, row, _by_size(rest, kernel))
                if step is not None:
                    return kernel, step

    def _differences(self, row: Row, rest: Rest) -> list[int]:
        """Return the clients in the lightest difference of a row from one before."""
        is_plain = self._rows.held[: self.rank] < 0
        if row.weights is not None or not is_plain.any():
            return []
        # clients in exactly one of two rows: both sizes less twice the overlap
        sizes = len(row.places) + np.diff(self._rows.starts[: self.rank + 1])
        return [int((sizes - 2 * rest.overlaps)[is_plain].min())]

    def figures(self, search: Search | None = None, target: int = 0) -> Figures:
        """Return the leakage of the sums so far; there must be one.

        Args:
            search: Narrows weak T where cheap bounds do not say whether it is at least
                `target`.
            target: As for `search`.
        """
        figures = self._figures(self.classes, None, search, target)
        self._upper = figures.upper
        hidden = self._hidden(None, None, figures.exposed)
        return dataclasses.replace(figures, hidden=hidden)

    def figures_with(self, row: Row, search: Search | None, target: int) -> Figures:
        """Return the leakage with one more row that adds to them, `hidden` apart."""
        classes = self.classes.joined(int(row.places[-1]) + 1).split(row)
        return self._figures(classes, row, search, target)

    def hidden_with(
        self, rows: list[Row], exposed: list[np.ndarray]
    ) -> list[np.ndarray | None]:
        """Return the number that hides each client, with each of several rows."""
        most = max([len(self.names), *(int(row.places[-1]) + 1 for row in rows)])
        rests = self._leverages.rests(self._rows, rows, most)
        return [self._hidden(*each) for each in zip(rows, rests, exposed, strict=True)]

    def _hidden(
        self, row: Row | None, rest: Rest | None, exposed: np.ndarray
    ) -> np.ndarray | None:
        is_accurate = self._leverages.is_accurate(rest)
        if not is_accurate and not exposed.any():
            return self._by_balls(row)
        values = np.zeros(len(exposed))
        leverages = self._leverages.values[: len(exposed)]
        values[: len(leverages)] = leverages
        if rest is not None:
            values += rest.shares()[: len(exposed)]
        hidden = np.full(len(exposed), np.inf)
        np.divide(1.0, values, out=hidden, where=values > 0)
        # rounding must not show a client as exposed who is not
        hidden = np.maximum(hidden, _ABOVE)
        hidden[exposed] = 1.0
        return hidden

    def _by_balls(self, row: Row | None) -> np.ndarray | None:
        """Return the numbers that floats do not know; None where it would take long."""
        try:
            from mrsa_jax.privacy import hidden_among
        except ImportError:  # balls are of python-flint, which it brings
            return None
        rank = self.rank + (row is not None)
        if rank**2 * (rank + len(self.names)) > _MOST_BY_BALLS:
            return None
        matrix = self.matrix(row)
        if matrix is None:
            return None
        hidden = np.asarray(hidden_among(matrix))
        return None if np.isnan(hidden).any() else np.maximum(hidden, _ABOVE)

    def _extended(self, row: Row) -> list[np.ndarray]:
        """Return the kernel vectors with columns for clients whom only a row knows."""
        more = int(row.places[-1]) + 1 - len(self.names)
        if more <= 0:
            return [kernel.vectors for kernel in self._kernels]
        return [
            np.concatenate([kernel.vectors, kernel.drawn(more)], axis=1)
            for kernel in self._kernels
        ]

    def _figures(
        self, classes: Classes, row: Row | None, search: Search | None, target: int
    ) -> Figures:
        """Return the leakage without `hidden`, by light combinations or a search."""
        sizes = classes.sizes
        vectors = [None] * _NUM_PRIMES if row is None else self._extended(row)
        (first, alone_first), (second, alone_second) = [
            kernel.keys(classes.of, len(sizes), row, each)
            for kernel, each in zip(self._kernels, vectors, strict=True)
        ]
        alone = alone_first & alone_second
        *light, triple = lightest(first, second, alone, sizes)
        light = [weight for weight in light if weight >= 0]
        in_use = np.sort(sizes[sizes > 0])
        strong = int(in_use[0])
        # neither only if random numbers agree by chance
        lower = min(light + [triple] * (triple >= 0), default=strong)
        # rank conditions leave a vector on any classes one more than are not needed
        corank = len(in_use) - self.rank - (row is not None)
        self._refuse_if(corank < 0)
        singleton = int(in_use[: corank + 1].sum())
        known_upper = [] if self._upper is None else [self._upper]
        of_row = [] if row is None else [len(row.places)]
        upper = min([singleton, *light, *known_upper, *of_row])
        exposed = (alone & (sizes == 1))[classes.of]
        bounds = None
        if search is not None and lower < target <= upper:
            matrix = self.matrix(row)
            bounds = None if matrix is None else search(matrix)
        if bounds is not None:
            lower = max(lower, bounds[0])
            upper = min(upper, bounds[1])
        self._refuse_if(lower > upper)
        return Figures(lower, upper, strong, exposed, None, bounds is not None)

    def matrix(self, row: Row | None = None) -> np.ndarray | None:
        """Return the independent rows, and one more, as a matrix, or None.

        None means that the matrix would be too large.
        """
        rows = [*self._rows.rows, *([] if row is None else [row])]
        width = max(int(each.places[-1]) + 1 for each in rows)
        if len(rows) * width > _MOST_ENTRIES:
            return None
        is_plain = all(each.weights is None for each in rows)
        matrix = np.zeros((len(rows), width), np.bool_ if is_plain else object)
        for j, each in enumerate(rows):
            matrix[j, each.places] = True if each.weights is None else each.weights
        # True becomes 1 next to weights
        return matrix if is_plain else matrix + 0


def _by_size(rest: Rest, kernel: Kernel) -> Iterator[int]:
    """Yield clients, those with most in a rest first; most often the first will do."""
    size = np.abs(rest.values)
    size[kernel.pivots] = 0  # each is the pivot of one row, and can be no other's
    yield int(np.argmax(size))
    # sorted only where that is not enough
    yield from np.argsort(-size, kind="stable")[1:].tolist()
