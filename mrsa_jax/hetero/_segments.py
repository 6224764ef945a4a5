"""Segment-selection matrices.

Which groups sum which segments of their updates together.
Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning", Section III and V-B, Algorithms 1 to 6 (2 and 5 are lost; reconstructed).
Symbols: segment l -> row, group g -> column, B(l, g) -> the smallest group of the
block, '*' -> -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Int32

from mrsa_jax._core.arrays import check_integers, host_array
from mrsa_jax._core.traced import needs_values
from mrsa_watch._base.errors import ConfigurationError, check_integer, nearest, require

SchemeName = Literal["sc", "mc", "hc"]
SCHEMES: tuple[SchemeName, ...] = ("sc", "mc", "hc")
ALONE = -1
_MOST_GROUPS = 2**15  # a matrix of 4 GiB


def segment_matrix(
    scheme: str,
    num_groups: int | np.integer,
    hybrid_threshold: int | np.integer | None = None,
) -> Int32[np.ndarray, "groups groups"]:
    """Return the segment-selection matrix B of a scheme for G groups and G segments.

    Args:
        scheme: "sc" (single chain), "mc" (multiple chains) or "hc" (hybrid chain).
        num_groups: G, at least 2.
        hybrid_threshold: T of "hc", 1 to G - 1 (the paper: 2 to G - 2; T = 1 is "mc"):
            the most segments that the server learns of any one group. None elsewhere.

    Returns:
        int32[G, G]: row l is a segment, column g a group. Groups with the same label in
        a row sum that segment together, quantized as the smallest of them; the label is
        that group's number. -1 ('*') marks a group that sums the segment by itself.

    Raises:
        ConfigurationError: If the scheme is unknown, G too small, or the threshold out
            of range, missing or not asked for.

    Examples:
        >>> import mrsa_jax as mj
        >>> print(mj.hetero.format_matrix(mj.hetero.segment_matrix("sc", 4)))
        0 0 * *
        * 1 1 *
        * * 2 2
        0 * * 0
        >>> print(mj.hetero.format_matrix(mj.hetero.segment_matrix("mc", 4)))
        0 0 2 2
        0 * 0 *
        0 1 1 0
        * 1 * 1

    Source: HeteroSAg, Algorithms 1 and 3; Algorithm 2 is lost and is the inner loop of
    Algorithm 3: in row l the partner of group i is (l + 1 - i) mod G.
    """
    size, threshold = check_scheme(scheme, num_groups, hybrid_threshold)
    require(size <= _MOST_GROUPS, "num_groups", f"must be at most {_MOST_GROUPS}", size)
    matrix = np.full((size, size), ALONE, np.int32)
    if scheme == "sc":
        for group in range(size):
            # Row g pairs g with its right neighbour. The last row wraps round to the
            # pair (0, G - 1), whose smallest group is 0: hence the label g mod (G - 1).
            matrix[group, [group, (group + 1) % size]] = group % (size - 1)
        return matrix
    # For "mc", T = 1: `first_of_chain` is G - 2, so all groups but the last two pair
    # with every later one, and the last pair falls into the same rule below.
    first_of_chain = size - threshold - 1
    for group in range(size - 1):
        if group < first_of_chain:
            for other in range(group + 1, size):
                # Pairs of one row have one sum g + h mod G, so no row meets a group
                # twice.
                matrix[(group + other - 1) % size, [group, other]] = group
        else:
            # The last T + 1 groups form a single chain: neighbours only, one pair per
            # row.
            matrix[(first_of_chain + group) % size, [group, group + 1]] = group
    return matrix


def check_scheme(
    scheme: str, num_groups: Any, hybrid_threshold: Any
) -> tuple[int, int]:
    """Return G and T (1 except for "hc") of a known scheme, or raise."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        hint = nearest(str(scheme), SCHEMES)
        raise ConfigurationError(
            f"`scheme` must be a known scheme; got {scheme!r}; {hint}"
        )
    size = check_integer(num_groups, "num_groups", 2)
    is_set = hybrid_threshold is not None
    require(
        is_set == (scheme == "hc"),
        "hybrid_threshold",
        'must be given for "hc" alone',
        scheme,
        hybrid_threshold,
    )
    if not is_set:
        return size, 1
    rule = "must lie in [1, num_groups - 1]"
    return size, check_integer(
        hybrid_threshold, "hybrid_threshold", 1, size - 1, rule=rule
    )


@needs_values
def segment_matrix_plus(
    scheme: str,
    subgroups: Sequence[int | np.integer] | np.ndarray,
    hybrid_threshold: int | np.integer | None = None,
) -> Int32[np.ndarray, "subgroups subgroups"]:
    """Return the matrix of a scheme over subgroups: SC+, MC+ or HC+.

    Args:
        scheme: "sc", "mc" or "hc".
        subgroups: L_g, at least 1: into how many subgroups each of the G groups is cut.
        hybrid_threshold: T of "hc", 1 to Z - 1.

    Returns:
        int32[Z, Z] with Z = sum of L_g: the base scheme over the subgroups in the order
        of their pairs (g, d), labelled by their place in that order (`format_matrix`
        shows the pairs).

    Raises:
        ConfigurationError: If a number of subgroups is below 1, or see
            `segment_matrix`.

    Examples:
        >>> import mrsa_jax as mj
        >>> matrix = mj.hetero.segment_matrix_plus("sc", [1, 2])
        >>> print(mj.hetero.format_matrix(matrix, [1, 2]))
        (0,0) (0,0)     *
            * (1,0) (1,0)
        (0,0)     * (0,0)

    Source: HeteroSAg, Algorithms 4 to 6 and Section V-B. The printed d_T = z_T mod
    Z_(g_T - 1) contradicts its own Example 5; with d_T = z_T - Z_(g_T - 1) the
    algorithms are this.
    """
    return segment_matrix(scheme, sum(check_subgroups(subgroups)), hybrid_threshold)


@needs_values
def format_matrix(
    matrix: ArrayLike | Sequence[Any],
    subgroups: Sequence[int | np.integer] | np.ndarray | None = None,
) -> str:
    """Return a matrix as the paper prints it: labels, and '*' for a group by itself.

    Args:
        matrix: int[segments, groups] (see `segment_matrix`).
        subgroups: L_g; with them labels are the paper's pairs (g, d).

    Returns:
        One line for each segment, columns aligned.

    Raises:
        ConfigurationError: If the matrix is none (`check_matrix`), or of other
            subgroups.

    Examples:
        >>> import mrsa_jax as mj
        >>> print(mj.hetero.format_matrix([[0, 0, -1], [-1, 1, 1]]))
        0 0 *
        * 1 1
    """
    values = check_matrix(matrix)
    names = [str(column) for column in range(values.shape[1])]
    if subgroups is not None:
        counts = check_subgroups(subgroups)
        pairs = [(group, d) for group, count in enumerate(counts) for d in range(count)]
        fits = len(pairs) == values.shape[1]
        require(
            fits, "subgroups", "must add up to the columns", len(pairs), values.shape[1]
        )
        names = [f"({group},{d})" for group, d in pairs]
    cells = [
        ["*" if label < 0 else names[label] for label in row] for row in values.tolist()
    ]
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in cells)


def check_matrix(
    matrix: ArrayLike | Sequence[Any],
) -> Int32[np.ndarray, "segments groups"]:
    """Return a segment-selection matrix as int32, or raise.

    Args:
        matrix: Integers [segments, groups], at least one each. -1 for a group by
            itself; otherwise the smallest group with this label in the row, held by two
            groups or more.

    Raises:
        ConfigurationError: If the matrix breaks a rule.

    Examples:
        >>> check_matrix([[0, 0], [-1, -1]]).dtype
        dtype('int32')
    """
    values = host_array(matrix, "matrix")
    require(
        values.dtype.kind in "iu",
        "matrix",
        "must hold integers",
        f"dtype {values.dtype}",
    )
    proper = values.ndim == 2 and values.size > 0
    require(proper, "matrix", "must have the shape [segments, groups]", values.shape)
    groups = values.shape[1]
    low, high = int(values.min()), int(values.max())
    require(
        low >= ALONE and high < groups,
        "matrix",
        "must hold -1 or labels of groups",
        low,
        high,
    )
    for segment, row in enumerate(values.tolist()):
        for label in sorted(set(row) - {ALONE}):
            members = [group for group, entry in enumerate(row) if entry == label]
            # A label of one group would be a block by itself, which must be written -1.
            good = members[0] == label and len(members) > 1
            rule = "must label two groups or more of a row by the smallest of them"
            require(good, "matrix", rule, f"label {label} in row {segment}")
    return values.astype(np.int32)


def blocks_of(
    matrix: ArrayLike | Sequence[Any],
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the blocks of each row: the groups that sum the segment together.

    Args:
        matrix: int[segments, groups].

    Returns:
        For each segment its blocks, each the ascending groups in it, by smallest group.

    Raises:
        ConfigurationError: If the matrix is none (`check_matrix`).

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.hetero.blocks_of([[0, 0, -1], [-1, 1, 1]])
        (((0, 1), (2,)), ((0,), (1, 2)))
    """
    rows = []
    for row in check_matrix(matrix).tolist():
        blocks: dict[int, list[int]] = {}
        for group, label in enumerate(row):
            # A label is the smallest group of its block, so insertion order is already
            # by smallest group, and the groups inside ascend.
            blocks.setdefault(group if label == ALONE else label, []).append(group)
        rows.append(tuple(tuple(block) for block in blocks.values()))
    return tuple(rows)


def check_subgroups(subgroups: Any, groups: int | None = None) -> list[int]:
    """Return the subgroups of each group, of a known number of groups, or raise."""
    counts = check_integers(subgroups, "subgroups", 1)
    require(len(counts) > 0, "subgroups", "must hold a number for each group", counts)
    if groups is not None:
        rule = "must be one number for each group"
        require(len(counts) == groups, "subgroups", rule, len(counts), groups)
    return counts


def check_levels(levels: Any, count: int, of: str) -> list[int]:
    """Return K of each column or group as integers, or raise."""
    numbers = check_integers(levels, "levels", 2)
    require(
        len(numbers) == count,
        "levels",
        f"must be one for each {of}",
        len(numbers),
        count,
    )
    require(
        numbers == sorted(numbers),
        "levels",
        "must not descend from slower to faster groups",
        numbers,
    )
    return numbers
