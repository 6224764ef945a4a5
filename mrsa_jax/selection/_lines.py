"""Selection by lines.

Sets of clients who move together, of which disjoint ones make a round's sum.
A family of lines is what a server may ever sum. Two lines that cross are in one
component; lines that never cross are of one class (the rows of a grid, its columns). A
round takes lines of one class in each component. Blocks are lines none of which cross;
crossing partitions are the rows and the columns of grids. Symbols: N `num_clients`, K
`cohort_size`, T `privacy_target`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mrsa_jax._core.array_types import Flags, Nested, TrialKeys
from mrsa_jax._core.arrays import binary_matrix, check_integers, on_device, zeros
from mrsa_jax._core.programs import one_program
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.selector import SelectorState
from mrsa_jax._core.streams import client_words
from mrsa_jax._core.traced import needs_values
from mrsa_jax.selection._ranking import device_steps, k_smallest, word_key
from mrsa_jax.selection.checks import Fairness, check_grids
from mrsa_watch._base.errors import check_known, check_size, require

_MOST_LINES = 16  # of a component whose subsets are enumerated: grids up to 8 x 8


@pytree
class LineSelection:
    """Choose disjoint available lines, some of them by least use.

    Build it with a factory.
    Lines are numbered (component, class, line); families with fewer lines somewhere
    have absent ones in between. A round in which no choice of classes offers enough
    available lines is skipped.

    Attributes:
        members: int32[lines, clients of each], N for those of an absent line.
        lines_of: int32[N, most], the lines that hold each client; their number where
            there are fewer.
        lines_per_cohort: int32 scalar, K over the clients of a line.
        least_used_lines: int32 scalar, how many of them are chosen by least use (ties
            uniform): by the sum of its clients' counts, which must stay below 2^31.
        block_size: int32 scalar, largest d for which no line parts the clients whose i
            // d agree.
        privacy_target: int32 scalar, weak T that the family is known to keep; 1 where
            it is not.
        num_clients: N, static.
        shape: Components, classes of each, lines of each; static.
    """

    members: Array
    lines_of: Array
    lines_per_cohort: Array
    least_used_lines: Array
    block_size: Array
    privacy_target: Array
    num_clients: int = static()
    shape: tuple[int, int, int] = static()
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False

    @property
    def cohort_size(self) -> Array:
        """int32 scalar, K."""
        return self.lines_per_cohort * jnp.int32(self.members.shape[-1])

    def _cells(self) -> np.ndarray:
        """Lines: a row each, whose clients take part together."""
        members = np.asarray(self.members)
        table = np.zeros((len(members), self.num_clients + 1), np.uint8)
        np.put_along_axis(table, members, 1, axis=1)
        return table[:, :-1]

    def cardinality(self, dropout_rates: np.ndarray) -> tuple[float, float]:
        """Return mean and standard deviation of the size of a round's sum, exactly.

        It is K where the components' largest numbers of available lines of one class
        add up to enough, else 0. Both are nan where a component has more than 16 lines,
        whose subsets would be too many.
        """
        size, wanted = self.members.shape[-1], int(self.lines_per_cohort)
        components = np.asarray(self.members).reshape(*self.shape, size)
        online = 1.0 - np.asarray(dropout_rates, np.float64)
        laws: dict[Any, np.ndarray] = {}
        # of the lines on offer, `wanted` standing for all from there on
        law = np.zeros(wanted + 1)
        law[0] = 1.0
        for lines in components:
            is_line = lines[..., 0] < self.num_clients
            if is_line.sum() > _MOST_LINES:
                return np.nan, np.nan
            clients, places = np.unique(lines[is_line], return_inverse=True)
            classes = np.nonzero(is_line)[0]
            # components that look alike have one law
            rates = online[clients]
            key = places.tobytes(), classes.tobytes(), rates.tobytes()
            if key not in laws:
                laws[key] = _largest_class(places.reshape(-1, size), classes, rates)
            sums = np.convolve(law, laws[key])
            law = np.append(sums[:wanted], sums[wanted:].sum())
        chance = min(max(float(law[-1]), 0.0), 1.0)
        deviation = float(np.sqrt(chance * (1 - chance)))
        return size * wanted * chance, size * wanted * deviation

    def init(self) -> SelectorState:
        """Return the state before the first round: nobody has taken part."""
        return SelectorState(zeros(self.num_clients, jnp.int32))

    @one_program
    def select(
        self,
        key: TrialKeys,
        state: SelectorState,
        available: Flags,
    ) -> tuple[Flags, SelectorState]:
        """Return a cohort of K available clients in whole disjoint lines, or nobody.

        The new state.
        Cost: a few passes over the lines and their members. Takes trials as trailing
        axes (of `counts` too).
        """
        wanted = self.lines_per_cohort
        steps = device_steps()
        components, classes, lines = self.shape
        total = components * classes * lines
        clients = state.counts.at[self.members].get(mode="fill", fill_value=0)
        use = jnp.sum(clients, axis=1, dtype=jnp.int32)
        free = available.at[self.members].get(mode="fill", fill_value=False).all(axis=1)
        table = free.reshape(*self.shape, *available.shape[1:])
        offered = jnp.sum(table, axis=2, dtype=jnp.int32)  # [components, classes, ...]
        best = jnp.max(offered, axis=1)
        spare = jnp.sum(best, axis=0, dtype=jnp.int32) - wanted  # negative: no cohort
        # A line is in some cohort exactly if its component can do with the line's
        # class.
        is_cheap = best[:, None] - offered <= spare[None, None]
        held = (table & is_cheap[:, :, None]).reshape(free.shape)
        works = (spare >= 0).astype(jnp.int32)
        least = jnp.where(self.least_used_lines > 0, use, 0)
        first = k_smallest(client_words(key, total), held, works, steps, least)
        is_first = first.reshape(table.shape).any(axis=2)
        # The first line decides on the class of its component; of the others the class
        # with most lines on offer is taken, ties by the smallest word.
        words = word_key(client_words(key, components * classes, 1))
        words = words.reshape(offered.shape)
        draw = jnp.where(offered == best[:, None], words, jnp.iinfo(jnp.int32).max)
        place = jax.lax.broadcasted_iota(jnp.int32, draw.shape, 1)
        largest = place == jnp.argmin(draw, axis=1).astype(jnp.int32)[:, None]
        taken = jnp.where(is_first.any(axis=1)[:, None], is_first, largest)
        rest = (table & taken[:, :, None]).reshape(free.shape) & ~first
        least = jnp.where(self.least_used_lines > 1, use, 0)
        words = client_words(key, total, 2)
        others = k_smallest(words, rest, works * (wanted - 1), steps, least)
        chosen = (first | others).at[self.lines_of].get(mode="fill", fill_value=False)
        cohort = chosen.any(axis=1)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))


def _largest_class(
    lines: np.ndarray,
    classes: np.ndarray,
    online: np.ndarray,
) -> np.ndarray:
    """Return the law of the largest number of available lines of one class.

    The chance that all lines of a set are available is the product over their clients;
    Moebius inversion over the sets that hold it gives that of exactly these.
    """
    sets = np.arange(1 << len(lines))
    chance = np.ones(len(sets))
    for client, q in enumerate(online):
        holds = np.flatnonzero((lines == client).any(axis=1))
        chance[(sets & (1 << holds).sum()) != 0] *= q
    counts = np.zeros((classes.max() + 1, len(sets)), np.int64)
    for line, kind in enumerate(classes):
        # the first half are sets without the line
        pairs = chance.reshape(-1, 2, 1 << line)
        pairs[:, 0] -= pairs[:, 1]
        counts[kind] += (sets >> line) & 1
    return np.bincount(counts.max(axis=0), np.maximum(chance, 0.0))


def _build(
    members: np.ndarray,
    classes: np.ndarray,
    num_clients: int,
    cohort_size: int,
    fairness: str,
    privacy_target: int = 1,
) -> LineSelection:
    """Return the selector of lines [L, size] with classes.

    Every client is in a line.
    """
    size = members.shape[1]
    per_cohort = cohort_size // size
    by_use = {"least_used": 1, "uniform": 0, "greedy": per_cohort}
    least_used = by_use[check_known(fairness, "fairness", by_use, "a known mode")]
    components = _components(members, num_clients)
    order = np.lexsort((classes, components))
    component = components[order]
    # a line's class within its component, and its place within that class, from 0
    rank = _places_within(component, classes[order])
    place = _places_within(component, rank, np.arange(len(order)))
    shape = (int(component[-1]) + 1, int(rank.max()) + 1, int(place.max()) + 1)
    flat = np.ravel_multi_index((component, rank, place), shape)
    table = np.full((math.prod(shape), size), num_clients, np.int32)
    table[flat] = members[order]
    lines_of = _lines_of(members[order], flat, num_clients, len(table))
    filled = np.zeros(shape, np.int64)
    filled.ravel()[flat] = 1
    largest = size * int(filled.sum(axis=2).max(axis=1).sum())
    require(
        cohort_size <= largest,
        "cohort_size",
        "must be at most what disjoint lines hold, one class in each component",
        cohort_size,
        largest,
    )
    parted = np.flatnonzero((lines_of[1:] != lines_of[:-1]).any(axis=1)) + 1
    block = int(np.gcd.reduce(np.append(parted, num_clients)))
    return LineSelection(
        on_device(table),
        on_device(lines_of),
        jnp.int32(per_cohort),
        jnp.int32(least_used),
        jnp.int32(block),
        jnp.int32(privacy_target),
        num_clients,
        shape,
    )


def _places_within(*columns: np.ndarray) -> np.ndarray:
    """Number distinct values of the last column from 0, within values of the others.

    Rows are in lexicographic order.
    """
    opens = np.zeros(len(columns[0]), np.bool_)
    for column in columns[:-1]:
        opens |= np.diff(column, prepend=-1) != 0
    starts = opens | (np.diff(columns[-1], prepend=-1) != 0)
    number = np.cumsum(starts)
    return number - np.maximum.accumulate(np.where(opens, number, 0))


def _lines_of(
    members: np.ndarray,
    flat: np.ndarray,
    num_clients: int,
    absent: int,
) -> np.ndarray:
    """Return the lines that hold each client, filled up with an absent one."""
    counts = np.bincount(members.ravel(), minlength=num_clients)
    lines = np.full((num_clients, int(counts.max())), absent, np.int32)
    by_client = np.argsort(members.ravel(), kind="stable")
    is_line = np.arange(lines.shape[1]) < counts[:, None]
    # row by row, so in the order of clients
    lines[is_line] = np.repeat(flat, members.shape[1])[by_client]
    return lines


def _components(members: np.ndarray, num_clients: int) -> np.ndarray:
    """Return each line's component, numbered from 0.

    Lines that share clients share it.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    lines = np.repeat(np.arange(len(members)), members.shape[1])
    ones = np.ones(members.size, np.int32)
    held = csr_matrix((ones, (lines, members.ravel())), (len(members), num_clients))
    crossing = held @ held.T
    return connected_components(crossing, directed=False)[1].astype(np.int64)


def crossing_partitions(
    num_clients: int,
    cohort_size: int,
    privacy_target: int,
    fairness: Fairness = "least_used",
) -> LineSelection:
    """Return selection by crossing partitions.

    Whole rows or whole columns of T x T grids.
    Clients stand on grids; a round sums lines of T clients, in each grid rows or
    columns but not both, K clients in all. Weak T is T in any number of rounds, as with
    `batch_partitioning`, and a grid has two chances to be available, so sums are less
    rare; the price is how well a client is hidden in the long run: as among T^2 / (2T -
    1) clients, not T, and strong T is 1. Clients that fill no grid are blocks.

    **Weak T stays at least T.** Nothing splits blocks. In each grid every sum is one of
    rows or one of columns, so any combination v of sums has there the form v_ij = r_i +
    c_j, whatever the sum held of the other grids: rows of one grid and columns of
    another may meet in one sum. Let v be non-zero in some grid. If one of its rows is
    all zero, c_j is the same for all j, so v depends on the row alone and its support
    is a number of whole rows: at least T clients. If no row is all zero, each of the T
    rows holds a client of the support.

    **Both directions of one grid in one sum would end it.** A row and a column cross in
    one client, who counts once in a sum over the union: row + column - union is that
    client alone, T = 1. A server that took only *disjoint* lines could not do it, as
    any row crosses any column.

    **How well hidden.** The span of a grid's lines has dimension 2T - 1 (the rows and
    the columns add up to the same), and all its T^2 clients are alike: the leverage of
    each is at most (2T - 1) / T^2, and this once all lines are known.

    Args:
        num_clients: N, a multiple of T, at least T^2. Client i is in row i // T; T rows
            are a grid.
        cohort_size: K, from T to N, a multiple of T.
        privacy_target: T >= 1; 1 is random selection.
        fairness: Which of the possible cohorts.
            "least_used": the first line is the least used (its clients' rounds, added
            up) that any possible cohort holds, ties uniform, the others uniform;
            "uniform": the first is any that a possible cohort holds, uniformly;
            "greedy": all by least use. In the grids of the other lines the direction
            with more available lines is taken, ties uniform.

    Returns:
        A selector; K and the fairness mode are data. A round is skipped only if no
        choice of directions offers K/T available lines.

    Raises:
        ConfigurationError: As `batch_partitioning`, or if there is no whole grid.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.crossing_partitions(32, 8, 4)
        >>> history = mj.selection.rollout(
        ...     0, selector, mj.availability.independent(0.3), 300
        ... )
        >>> mj.privacy.weak_privacy(history).lower, mj.privacy.strong_privacy(history)
        (4, 1)
        >>> sorted(set(history.sum(axis=1).tolist()))
        [0, 8]

    Source: none of the papers of this package, and no claim of novelty: Deer, Ali and
    Avestimehr (Asilomar 2022), whose text was not to be had, may contain it.
    """
    n, k, t = check_grids(num_clients, cohort_size, privacy_target)
    rows = np.arange(n).reshape(-1, t)
    whole = rows[: n // t**2 * t if t > 1 else 0]
    columns = whole.reshape(-1, t, t).swapaxes(1, 2).reshape(-1, t)
    classes = np.repeat([0, 1], [len(rows), len(columns)])
    return _build(np.concatenate([rows, columns]), classes, n, k, fairness, t)


@needs_values
def from_lines(
    lines: Nested,
    cohort_size: int,
    *,
    classes: Sequence[int] | None = None,
    fairness: Fairness = "least_used",
) -> LineSelection:
    """Return selection by any family of lines.

    Sets of clients of which disjoint ones are summed.
    A round takes disjoint lines, all of whose clients are available, until K clients
    are reached. A sum over disjoint lines is the sum of their rows, so whatever is ever
    learnt lies in the span of `lines`: its weak T, strong T and leverages bound those
    of every history (`mrsa_jax.design.judge`). Overlapping lines in one sum would leave
    the span, as a client counts once.

    Which lines may meet in a round: those of one class in each component. Components
    are what crossing lines connect; lines of one class are disjoint. So blocks are
    lines without crossings, and `crossing_partitions` is this with rows and columns as
    classes.

    Args:
        lines: bool[L, N] or 0 and 1, a row a line; all lines hold the same number of
            clients, and every client is in one.
        cohort_size: K, a multiple of the clients of a line.
        classes: Class of each line; None gives each line the first class in which it
            crosses nothing, in the order of `lines`: list a net class by class.
        fairness: As for `crossing_partitions`.

    Returns:
        A selector; K and the fairness mode are data. A round is skipped only if no
        choice of a class in each component offers enough available lines.

    Raises:
        ConfigurationError: If lines differ in size, a client is in none, lines of one
            class cross, K is no multiple of a line or more than disjoint lines can
            hold, or `fairness` is unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> triangle = [
        ...     [1, 1, 0],
        ...     [0, 1, 1],
        ...     [1, 0, 1],
        ... ]  # any two cross
        >>> selector = mj.selection.from_lines(triangle, 2)
        >>> history = mj.selection.rollout(
        ...     0, selector, mj.availability.independent(0.0), 6
        ... )
        >>> history.sum(axis=0).tolist()  # by least use
        [4, 4, 4]
        >>> mj.privacy.weak_privacy(
        ...     triangle
        ... ).lower  # (a + b + c) / 2 is known
        1

    Cost of building: a pass over `lines`; the selector holds a table of components x
    classes x lines, filled up to the largest class.
    """
    matrix = binary_matrix(lines, "lines")
    sizes = matrix.sum(axis=1)
    least = int(sizes.min())
    size = int(sizes.max())
    require(
        1 <= least == size,
        "lines",
        "must hold lines of one size, at least 1",
        least,
        size,
    )
    alone = np.flatnonzero(~matrix.any(axis=0)).tolist()
    require(not alone, "lines", "must hold every client; missing", *alone[:3])
    k = check_size(cohort_size, "cohort_size")
    require(
        k % size == 0,
        "cohort_size",
        "must be a multiple of the clients of a line",
        k,
        size,
    )
    members = np.nonzero(matrix)[1].reshape(-1, size)
    kinds = _first_classes(members, matrix.shape[1])
    if classes is not None:
        kinds = np.asarray(check_integers(classes, "classes", 0), np.int64)
        require(
            len(kinds) == len(members),
            "classes",
            "must be one for each line",
            len(kinds),
            len(members),
        )
        places = kinds[:, None] * matrix.shape[1] + members
        require(
            np.unique(places).size == places.size,
            "classes",
            "must hold lines of which none cross",
            list(classes),
        )
    return _build(members, kinds, matrix.shape[1], k, fairness)


def _first_classes(members: np.ndarray, num_clients: int) -> np.ndarray:
    """Return for each line the first class none of whose earlier lines it crosses."""
    used = [0] * num_clients  # bits: classes that hold the client
    classes = []
    for line in members.tolist():
        taken = 0
        for client in line:
            taken |= used[client]
        free = ~taken & (taken + 1)
        for client in line:
            used[client] |= free
        classes.append(free.bit_length() - 1)
    return np.asarray(classes, np.int64)
