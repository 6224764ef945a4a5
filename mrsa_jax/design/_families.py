"""Families of lines: blocks, grids, rectangles of thicker cells, and nets of several directions.

A line is a set of clients of which a sum holds all or none. Lines come class by class, lines of one
class being disjoint, as `selection.from_lines` takes them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from mrsa_watch._base.errors import check_integer, check_size, require


def blocks(num_clients: int, size: int) -> Bool[np.ndarray, "lines clients"]:
    """Return blocks of neighbours, as of batch partitioning: weak and strong T are their size.

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
    """Return the rows and the columns of square grids: weak T is the side (`crossing_partitions`).

    Args:
        num_clients: N, a multiple of the side; clients that fill no grid are rows alone.
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

    A rectangle has `rows` rows of `size` clients, and as many strips of columns that together hold
    `size` clients each: a grid of cells of size / rows clients who always move together. One row is
    a block, `size` rows a grid. With w clients per cell and a = `rows`, weak T is a w = `size`,
    strong T is w, and every client is hidden among size a / (2a - 1): the proof for grids, with
    cells for clients.

    Args:
        num_clients: N, a multiple of `size`; clients that fill no rectangle are rows alone.
        size: Clients of a row, and of a strip.
        rows: Rows of a rectangle, a divisor of `size`.

    Returns:
        bool[lines, N]: all rows, then all strips.

    Raises:
        ConfigurationError: If a size is no positive integer or no divisor, or there is no whole
            rectangle.

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
    client, area = np.arange(n), size * count
    strip = client // area * count + client % size // (size // count)
    is_whole = (client // area < n // area) & (count > 1)
    return _lines(client // size, np.where(is_whole, strip, -1))


def nets(num_clients: int, side: int, directions: int) -> Bool[np.ndarray, "lines clients"]:
    """Return the lines of several directions of square grids: more chances, worse hidden.

    On a grid of q x q points, q prime, direction m + 1 has the lines y = m x + c modulo q and
    direction 0 the lines x = c: two lines of different directions cross in one client (an affine
    plane). One direction makes blocks, two make grids. With r of them the lines of a grid have rank
    r (q - 1) + 1 (each direction's add up to the same), and every client is hidden among
    q^2 / (r (q - 1) + 1); with all q + 1 everybody is exposed. From three directions on weak T may
    be below q: let `judge` say it.

    Args:
        num_clients: N, a multiple of the squared side.
        side: q: clients of a line; a prime where there are more than two directions.
        directions: r, from 1 to q + 1.

    Returns:
        bool[lines, N]: direction by direction.

    Raises:
        ConfigurationError: If a size is no positive integer or out of range, or the side no prime
            where it must be one.

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
    """Return the lines of classes: of each the line that every client is in, -1 for none."""
    count = [np.arange(own.max() + 1)[:, None] for own in classes]
    return np.concatenate([own[None] == of for own, of in zip(classes, count, strict=True)])
