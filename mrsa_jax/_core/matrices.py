"""Matrices whose rule holds exactly of numbers, and of floats only up to rounding.

`numpy.corrcoef` has 1 - 2e-16 on its diagonal, an inverse of a triangular matrix 1e-17
outside its triangle. What is within `NEAR` of such a rule is taken for rounding and set
to what the rule says; what is further from it is refused. The one place that does so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array
from mrsa_watch._base.errors import require

NEAR = 1e-9
"""Relative to what an entry is measured by: a matrix's diagonal, or its largest entry.
"""
_ROUNDINGS = 4  # of a type with fewer digits

Square = Float64[np.ndarray, "rows rows"]


def nearness(matrix: np.ndarray) -> float:
    """Return the largest difference that counts as rounding, by type.

    Examples:
        >>> nearness(np.eye(2)), nearness(np.eye(2, dtype=np.float32)) < 5e-7
        (1e-09, True)
    """
    if matrix.dtype.kind != "f":
        return NEAR
    return max(NEAR, _ROUNDINGS * float(np.finfo(matrix.dtype).eps))


def symmetrised(matrix: Square, argument: str, rule: str, near: float = NEAR) -> Square:
    """Return a matrix of entries about 1 in size as a symmetric one, or raise.

    Examples:
        >>> symmetrised(
        ...     np.array([[1.0, 0.5], [0.5 + 1e-12, 1.0]]), "C", "must be symmetric"
        ... )[1, 0]
        np.float64(0.5000000000005)
    """
    gap = float(np.abs(matrix - matrix.T).max(initial=0.0))
    require(gap <= near, argument, rule, f"entries that differ by {gap:.3g}")
    return np.asarray((matrix + matrix.T) / 2)


def check_semidefinite(
    values: Float64[np.ndarray, " rows"],
    argument: str,
    rule: str,
    near: float = NEAR,
) -> None:
    """Raise if an eigenvalue of a matrix with unit diagonal is negative."""
    least = float(values.min(initial=0.0))
    require(
        least >= -near, argument, f"{rule}; least eigenvalue of its correlations", least
    )


def correlations(matrix: np.ndarray, argument: str) -> Square:
    """Return correlations as float64 with a diagonal of ones, symmetric, or raise.

    Entries that are 1 up to rounding are 1: they join sums of one round.

    Args:
        matrix: Real numbers `[rows, rows]`.
        argument: Its name.

    Raises:
        ConfigurationError: If it is not finite, or further than rounding from such a
            matrix or from a positive semidefinite one.

    Examples:
        >>> rounded = np.array([[1 - 2e-16, 0.25], [0.25 + 1e-17, 1 + 2e-16]])
        >>> correlations(rounded, "memory").tolist()
        [[1.0, 0.25], [0.25, 1.0]]
    """
    near, checked = nearness(matrix), matrix.astype(np.float64)
    rule = "must be finite with a diagonal of ones"
    require(bool(np.isfinite(checked).all()), argument, rule)
    furthest = float(np.abs(np.diagonal(checked) - 1).max(initial=0.0))
    require(
        furthest <= near, argument, rule, f"one that differs from 1 by {furthest:.3g}"
    )
    checked = symmetrised(checked, argument, "must be a symmetric kernel", near)
    checked[np.abs(checked - 1) <= near] = 1.0
    values = np.linalg.eigvalsh(checked)
    check_semidefinite(values, argument, "must be positive semidefinite", near)
    return checked


def covariance_root(matrix: np.ndarray, argument: str) -> Square:
    """Return F with F F^T a covariance, by eigenvectors of its correlations.

    Correlations, so that rows of little variance next to others of much keep their
    digits. What rounding cannot tell from a combination of rows without variance is
    taken for one. Rows of F are exactly 0 for rows without variance.

    Args:
        matrix: Finite numbers `[rows, rows]`.
        argument: Its name.

    Raises:
        ConfigurationError: If a variance is negative, or it is further than rounding
            from a symmetric, positive semidefinite matrix.
    """
    near, covariance = nearness(matrix), matrix.astype(np.float64)
    variances = np.diagonal(covariance)
    largest = float(variances.max(initial=0.0))
    scale = np.sqrt(np.maximum(variances, 0.0))
    is_noisy = scale > 0
    rule = "must be a positive semidefinite covariance"
    beside = np.abs(covariance[~is_noisy]).max(initial=0.0)
    is_nothing = beside <= near * largest
    require(bool(is_nothing), argument, rule, "covariances of a round of variance 0")
    over = np.where(is_noisy, scale, 1.0)
    ratios = covariance / over[:, None] / over[None, :]
    ratios[~is_noisy] = 0.0
    ratios[:, ~is_noisy] = 0.0
    ratios = symmetrised(ratios, argument, "must be a symmetric covariance", near)
    values, vectors = np.linalg.eigh(ratios)
    check_semidefinite(values, argument, rule, near)
    rounding = _EIGENVALUE * len(values)
    root = scale[:, None] * vectors * np.sqrt(np.where(values > rounding, values, 0.0))
    return np.asarray(root)


_EIGENVALUE = 16.0 * float(np.finfo(np.float64).eps)


def lower_triangle(matrix: np.ndarray, argument: str, rule: str) -> Square:
    """Return a lower triangular matrix as float64; name an entry above.

    Examples:
        >>> lower_triangle(
        ...     np.array([[1.0, 1e-17], [0.5, 1.0]]), "C", "must be lower"
        ... ).tolist()
        [[1.0, 0.0], [0.5, 1.0]]
    """
    values = matrix.astype(np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    above = np.argwhere(np.abs(np.triu(values, 1)) > nearness(matrix) * largest)
    require(len(above) == 0, argument, rule, *map(tuple, above[:1].tolist()))
    return np.tril(values)


def smallest_variance(matrix: np.ndarray) -> Any:
    """Return a covariance's least variance, 0 if rounding made it negative."""
    variances = np.diagonal(matrix).astype(np.float64)
    least = float(variances.min())
    return (
        0.0
        if 0 > least >= -nearness(matrix) * float(np.abs(variances).max())
        else least
    )


def check_covariance(
    covariance: Any, clients: int
) -> Float64[np.ndarray, "clients clients"]:
    """Return the covariance of clients' updates as float64, or raise.

    Raises:
        ConfigurationError: If it is no symmetric positive semidefinite matrix [clients,
            clients] of finite numbers with a positive diagonal.
    """
    array = host_array(covariance, "covariance")
    rule = f"must be numbers of shape [{clients}, {clients}], by the clients"
    is_square = array.shape == (clients, clients) and array.dtype.kind in "fiu"
    require(is_square, "covariance", rule, f"{array.dtype}{list(array.shape)}")
    values = array.astype(np.float64)
    rule = "must hold finite numbers"
    require(bool(np.isfinite(values).all()), "covariance", rule, "NaN or inf")
    variances = np.diagonal(values)
    rule = "must have a positive diagonal, each client's variance"
    require(bool((variances > 0).all()), "covariance", rule, float(variances.min()))
    scales = np.sqrt(variances)
    ratios = values / scales[:, None] / scales
    rule = "must be symmetric"
    ratios = symmetrised(ratios, "covariance", rule, nearness(array))
    rule = "must be positive semidefinite"
    eigenvalues = np.linalg.eigvalsh(ratios)
    check_semidefinite(eigenvalues, "covariance", rule, nearness(array) * clients)
    return ratios * scales[:, None] * scales
