"""Privacy of a family of lines for any number of rounds, and the cost of its sums.

Privacy whatever is ever summed, and what its sums cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from mrsa_jax import privacy
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import independent
from mrsa_jax.selection import Fairness, from_lines, rollout_metrics
from mrsa_watch._base.errors import check_integer, check_size, require
from mrsa_watch._base.html import telling, told
from mrsa_watch._base.values import by_value

# A line is a set of clients: a sum holds all of them or none. Lines come class by
# class, the lines of one class being disjoint, as `selection.from_lines` takes them.


def blocks(num_clients: int, size: int) -> Bool[np.ndarray, "lines clients"]:
    """Return blocks of neighbours, as of batch partitioning.

    Weak and strong T are their size.

    Args:
        num_clients: N.
        size: Clients of a block, a divisor of N.

    Returns:
        bool[N / size, N].

    Raises:
        ConfigurationError: If a size is no positive integer or does not divide N.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.design.blocks(4, 2).astype(int).tolist()
        [[1, 1, 0, 0], [0, 0, 1, 1]]
    """
    n, size = _sizes(num_clients, size, "size")
    return _lines(np.arange(n) // size)


def grids(num_clients: int, side: int) -> Bool[np.ndarray, "lines clients"]:
    """Return the rows and the columns of square grids.

    Weak T is the side (`crossing_partitions`).

    Args:
        num_clients: N, a multiple of the side; clients that fill no grid are rows
            alone.
        side: Clients of a row and of a column.

    Returns:
        bool[lines, N]: all rows, then all columns.

    Raises:
        ConfigurationError: If a size is no positive integer, or there is no whole grid.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.design.grids(4, 2).astype(int).tolist()
        [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    return rectangles(num_clients, side, side, _name="side")


def rectangles(
    num_clients: int, size: int, rows: int, *, _name: str = "size"
) -> Bool[np.ndarray, "lines clients"]:
    """Return rows and strips of rectangles: what lies between blocks and grids.

    A rectangle has `rows` rows of `size` clients, and as many strips of columns that
    together hold `size` clients each: a grid of cells of size / rows clients who always
    move together. One row is a block, `size` rows a grid. With w clients per cell and a
    = `rows`, weak T is a w = `size`, strong T is w, and every client is hidden among
    size a / (2a - 1): the proof for grids, with cells for clients.

    Args:
        num_clients: N, a multiple of `size`; clients that fill no rectangle are rows
            alone.
        size: Clients of a row, and of a strip.
        rows: Rows of a rectangle, a divisor of `size`.

    Returns:
        bool[lines, N]: all rows, then all strips.

    Raises:
        ConfigurationError: If a size is no positive integer or no divisor, or there is
            no whole rectangle.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.design.rectangles(8, 4, 2)[2:].astype(int).tolist()  # the strips
        [[1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0, 1, 1]]
    """
    n, size = _sizes(num_clients, size, _name)
    count = check_size(rows, "rows")
    require(size % count == 0, "rows", "must be a divisor of `size`", count, size)
    least = f"must be at least {size * count}, one whole rectangle"
    require(n >= size * count, "num_clients", least, n)
    # a cell of size / rows clients lies in one row and one strip
    client, area = np.arange(n), size * count
    strip = client // area * count + client % size // (size // count)
    is_whole = (client // area < n // area) & (count > 1)
    return _lines(client // size, np.where(is_whole, strip, -1))


def nets(
    num_clients: int, side: int, directions: int
) -> Bool[np.ndarray, "lines clients"]:
    """Return the lines of several directions of square grids.

    More chances, worse hidden.
    On a grid of q x q points, q prime, direction m + 1 has the lines y = m x + c modulo
    q and direction 0 the lines x = c: two lines of different directions cross in one
    client (an affine plane). One direction makes blocks, two make grids. With r of them
    the lines of a grid have rank r (q - 1) + 1 (each direction's add up to the same),
    and every client is hidden among q^2 / (r (q - 1) + 1); with all q + 1 everybody is
    exposed. From three directions on weak T may be below q: let `judge` say it.

    Args:
        num_clients: N, a multiple of the squared side.
        side: q: clients of a line; a prime where there are more than two directions.
        directions: r, from 1 to q + 1.

    Returns:
        bool[lines, N]: direction by direction.

    Raises:
        ConfigurationError: If a size is no positive integer or out of range, or the
            side no prime where it must be one.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.design.nets(4, 2, 3)[4:].astype(int).tolist()  # the two diagonals
        [[1, 0, 0, 1], [0, 1, 1, 0]]
    """
    n, q = _sizes(num_clients, side, "side")
    require(n % q**2 == 0, "num_clients", "must be a multiple of `side` squared", n, q)
    r = check_integer(directions, "directions", 1, q + 1)
    is_prime = q > 1 and all(q % d for d in range(2, int(q**0.5) + 1))
    rule = "must be a prime where there are more than two directions"
    require(is_prime or r <= 2, "side", rule, q)
    x, y = np.divmod(np.arange(n) % q**2, q)
    grid = np.arange(n) // q**2
    ways = [x, *((y - m * x) % q for m in range(r - 1))]
    return _lines(*(grid * q + way for way in ways))


def _sizes(num_clients: int, size: int, name: str) -> tuple[int, int]:
    n, size = check_size(num_clients, "num_clients"), check_size(size, name)
    require(n % size == 0, "num_clients", f"must be a multiple of `{name}`", n, size)
    return n, size


def _lines(*classes: np.ndarray) -> np.ndarray:
    """Return the lines of classes, each given by every client's line, -1 for none."""
    lines = [line == np.arange(line.max() + 1)[:, None] for line in classes]
    return np.concatenate(lines)


@dataclasses.dataclass(frozen=True, repr=False)
@by_value
class Judgement:
    """Privacy and costs of a family of lines.

    The figures of privacy are those of the span of all lines, which holds every
    combination of sums of disjoint lines: no history of any length has smaller ones,
    whoever is away and whatever the rounds were. A history that has not seen all lines
    may have larger ones.

    Attributes:
        num_clients: N.
        cohort_size: K.
        line_size: Clients of a line.
        num_lines: Lines.
        rank: Of the lines: the most that any history reaches; N - rank further sums are
            missing.
        weak_lower: Weak T, proven bound from below.
        weak_upper: From above, attained by a combination of lines.
        strong_privacy: Strong T: the least number of clients who always move together.
        hidden_worst: The least figure of `privacy.hidden_among` over clients.
        hidden_median: Its median over clients.
        cardinality: Mean number of clients in a round's sum, rounds without one counted
            as 0.
        cardinality_interval: That number twice where it is exact, else its 95 %
            interval.
        fairness_gap: F after the simulated rounds, mean over trials.
        num_rounds: Simulated rounds of a trial.
        num_trials: Simulated trials.
    """

    num_clients: int
    cohort_size: int
    line_size: int
    num_lines: int
    rank: int
    weak_lower: int
    weak_upper: int
    strong_privacy: int
    hidden_worst: float
    hidden_median: float
    cardinality: float
    cardinality_interval: tuple[float, float]
    fairness_gap: float
    num_rounds: int
    num_trials: int

    @property
    def certified(self) -> bool:
        """Whether weak T is known exactly."""
        return self.weak_lower == self.weak_upper

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The results, as names and texts."""
        low, high = self.cardinality_interval
        sure = "exact" if low == high else f"95 %: {low:.4g} to {high:.4g}"
        weak = f"{self.weak_lower} (certified)"
        if not self.certified:
            weak = f"{self.weak_lower} to {self.weak_upper} (bounds)"
        texts = {
            "weak T": weak,
            "hidden among": f"{self.hidden_worst:.4g} (worst), "
            f"{self.hidden_median:.4g} (median)",
            "strong T": str(self.strong_privacy),
            "mean clients per round": f"{self.cardinality:.4g} of {self.cohort_size} "
            f"({sure})",
            "fairness gap of a history": (
                f"{self.fairness_gap:.3g} after {self.num_rounds} rounds"
            ),
            "lines": f"{self.num_lines} of {self.line_size} clients",
            "rank": f"{self.rank} at most, of {self.num_clients} clients",
        }
        return list(texts.items())

    def _rows(self) -> list[tuple[str, str]]:
        return self.rows

    __repr__ = told
    _repr_html_ = telling


@needs_values
def judge(
    lines: ArrayLike | Sequence[Any],
    cohort_size: int,
    dropout_rate: ArrayLike | Sequence[float | int],
    *,
    classes: Sequence[int] | None = None,
    fairness: Fairness = "least_used",
    num_rounds: int = 300,
    num_trials: int = 40,
    seed: int = 0,
) -> Judgement:
    """Evaluate a family of lines: its privacy for any number of rounds, and its sums.

    Use it to choose a family before clients are asked at all. Weak T alone misleads:
    look at how well clients are hidden as well, and at how often there is a sum.

    Whatever rounds sum disjoint lines, their span lies in that of all lines. So weak T,
    strong T and `privacy.hidden_among` of the matrix `lines` are bounds from below for
    every history, and nothing needs to be simulated for them. They are worked out
    component by component, equal ones once: a combination of least support lies in one,
    and leverages of one do not depend on the others.

    Args:
        lines: bool[L, N], as `selection.from_lines` takes them.
        cohort_size: K.
        dropout_rate: p, the chance to be away in a round: a number, or one for each
            client.
        classes: As for `selection.from_lines`.
        fairness: As for `selection.from_lines`.
        num_rounds: Rounds that are simulated for F, and where needed for the mean
            clients per
        round.
        num_trials: Trials of them.
        seed: Of these.

    Returns:
        The judgement (`Judgement`). The mean number of clients is exact where
        components have at most 16 lines; otherwise it comes with the Clopper-Pearson
        interval of the chance of a sum, as rounds are independent of each other in
        whether they have one.

    Raises:
        ConfigurationError: As `selection.from_lines`, `availability.independent` and
            `selection.rollout_metrics`.

    Examples:
        >>> import mrsa_jax as mj
        >>> short = {"num_rounds": 50, "num_trials": 2}
        >>> found = mj.design.judge(mj.design.grids(32, 4), 8, 0.3, **short)
        >>> weak = found.weak_lower, found.certified
        >>> *weak, found.strong_privacy, round(found.hidden_worst, 4)
        (4, True, 1, 2.2857)
        >>> blocks = mj.design.judge(mj.design.blocks(32, 4), 8, 0.3, **short)
        >>> round(found.cardinality, 2), round(blocks.cardinality, 2)
        (6.4, 4.86)

    Cost: certificates of weak T are searches, cheap where components are small; the
    rest is linear in the size of `lines`.

    Source: this package's (docs/hidden_among.md).
    """
    selector = from_lines(lines, cohort_size, classes=classes, fairness=fairness)
    online = independent(dropout_rate).for_clients(selector.num_clients)
    metrics = rollout_metrics(seed, selector, online, num_rounds, num_trials)
    matrix = np.asarray(lines, np.bool_)
    lower, upper, rank, hidden = _privacy(selector, matrix.shape[1])
    rate = np.asarray(dropout_rate, np.float64)
    mean, _ = selector.cardinality(np.broadcast_to(rate, (selector.num_clients,)))
    interval = mean, mean
    if np.isnan(mean):
        sums = int((~np.asarray(metrics.skipped)).sum())
        rounds = num_rounds * num_trials
        k = int(selector.cohort_size)
        low, high = binomial_interval(sums, rounds)
        mean, interval = k * sums / rounds, (k * low, k * high)
    return Judgement(
        num_clients=selector.num_clients,
        cohort_size=int(selector.cohort_size),
        line_size=int(selector.members.shape[1]),
        num_lines=len(matrix),
        rank=rank,
        weak_lower=lower,
        weak_upper=upper,
        # never None: everybody is in a line
        strong_privacy=privacy.strong_privacy(matrix) or 1,
        hidden_worst=float(hidden.min()),
        hidden_median=float(np.median(hidden)),
        cardinality=mean,
        cardinality_interval=interval,
        fairness_gap=float(metrics.fairness_gap[:, -1].mean()),
        num_rounds=num_rounds,
        num_trials=num_trials,
    )


def _privacy(selector: Any, num_clients: int) -> tuple[int, int, int, np.ndarray]:
    """Return bounds of weak T, the rank, and among how many each client is hidden."""
    size = selector.members.shape[1]
    components: dict[Any, Any] = {}  # equal ones are worked out once
    hidden, rank = np.empty(num_clients), 0
    for lines in np.asarray(selector.members).reshape(selector.shape[0], -1, size):
        real = lines[lines[:, 0] < num_clients]  # others fill up the array
        clients, places = np.unique(real, return_inverse=True)
        rows = np.zeros((len(real), clients.size), np.bool_)
        np.put_along_axis(rows, places.reshape(-1, size), values=True, axis=1)
        key = rows.shape, rows.tobytes()
        if key not in components:
            components[key] = privacy.weak_privacy(rows), privacy.hidden_among(rows)
        weak, hidden[clients] = components[key]
        rank += weak.rank
    lower = min(weak.lower for weak, _ in components.values())
    upper = min(weak.upper for weak, _ in components.values())
    return lower, upper, rank, hidden
