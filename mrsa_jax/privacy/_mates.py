"""Lower bounds of hidden among by mates alone, for any number of further sums.

Clients i and j are mates where their columns of P are alike up to a weight. With v the
variance of an update and w the weight, let k_j be the largest k for which w_j^2 v_j
R_j - k w_i^2 v_i R_i is positive semidefinite. Then every sum holds, besides client i,
noise with its own correlation that is at least the sum of k_j as large, and no linear
estimate explains more than 1 / (1 + sum of k_j).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.traced import needs_values
from mrsa_jax.privacy._coalitions import without
from mrsa_jax.privacy._hidden import without_members
from mrsa_jax.privacy._updates import MOST_MEMORY
from mrsa_jax.privacy.solver import column_codes
from mrsa_watch._base.errors import require


@needs_values
def hidden_among_mates(
    P: Any, *, memory: Any, share: Any = 1.0, variance: Any = 1.0, coalition: Any = ()
) -> Float64[np.ndarray, "... clients"]:
    """Bound from below among how many clients each client is hidden, by mates alone.

    Mates are clients in the same sums, up to a weight. If the updates of all clients
    drift alike, `hidden_among` is at least T in a block of T. If the memories of mates
    differ, this is false: a client whose update never changes and a mate whose updates
    are fresh are both exposed in the limit. The bound is 1 + the sum over mates j of
    the smallest ratio, over all frequencies, of the spectra of their updates, w_j^2 v_j
    f_j / (w_i^2 v_i f_i). It holds for any number of rounds, any further sums, with
    noise and without, for linear estimates, and for all estimates if updates are
    Gaussian.

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`.
        memory: rho of each client's updates, from 0 to 0.999999: a number, or
            `[clients]`; NaN if it is not known, and then the client counts as no
            client's mate.
        share: Fraction of an update's variance that has this memory, from 0 to 1,
            likewise.
        variance: Of each client's updates, likewise; only ratios matter.
        coalition: Clients that reveal their updates to the server (indices).

    Returns:
        float64 `[..., clients]`: at least 1; inf for clients in no sum, NaN for members
        of the coalition and for clients whose drift is not known.

    Raises:
        ConfigurationError: If P is no history, a number is out of range, or a list has
            not one number per client.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.privacy.hidden_among_mates([[1, 1, 1, 1]], memory=0.9).tolist()
        [4.0, 4.0, 4.0, 4.0]
        >>> # the update of one client lasts, and that of its mate is fresh
        >>> found = mj.privacy.hidden_among_mates([[1, 1]], memory=[0.9, 0.0])
        >>> found.round(3).tolist()
        [1.053, 1.053]

    Source: this package's (`docs/hidden_among.md`).
    """
    array = np.asarray(without(P, coalition))
    clients = array.shape[-1]
    rule = f"must lie in [0, {MOST_MEMORY}], a number or one per client"
    rho = _per_client(memory, clients, "memory", rule, MOST_MEMORY)
    rule = "must lie in [0, 1], a number or one per client"
    lasting = _per_client(share, clients, "share", rule, 1.0)
    rule = "must be positive, a number or one per client"
    scale = _per_client(variance, clients, "variance", rule, np.inf)
    require(not (scale == 0).any(), "variance", rule, 0)
    bounds = np.empty((*array.shape[:-2], clients))
    for index in np.ndindex(array.shape[:-2]):
        bounds[index] = _of_history(array[index], rho, lasting, scale)
    return np.asarray(without_members(bounds, coalition))


def _per_client(
    values: Any, clients: int, name: str, rule: str, most: float
) -> np.ndarray:
    array = host_array(values, name)
    good = array.shape in ((), (clients,)) and array.dtype.kind in "fiu"
    require(good, name, rule, f"{array.dtype}{list(array.shape)}")
    numbers = np.broadcast_to(array.astype(np.float64), clients)
    outside = (numbers < 0) | (numbers > most) | np.isinf(numbers)
    require(
        not outside.any(), name, rule, numbers[outside][0] if outside.any() else None
    )
    return numbers


def _of_history(
    P: np.ndarray, rho: np.ndarray, share: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    divisors = np.maximum(
        np.gcd.reduce(P.astype(P.dtype if P.dtype == object else np.int64)), 1
    )
    first = np.take_along_axis(P, np.argmax(P != 0, axis=0)[None], axis=0)[0]
    weights = divisors * np.where(first < 0, -1, 1)
    sizes = np.asarray(divisors, np.float64) ** 2 * scale
    is_known = np.isfinite(rho + share + scale)
    bounds = np.where(P.any(axis=0), 1.0, np.inf)
    _, owner = np.unique(column_codes(P // weights), return_inverse=True)
    order = np.argsort(owner, kind="stable")
    for mates in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        mates = mates[is_known[mates]]
        if len(mates) > 1 and P[:, mates[0]].any():
            others = mates[:, None], mates[None]
            least = (
                _least_ratios(rho, share, *others)
                * sizes[mates]
                / sizes[mates][:, None]
            )
            bounds[mates] = least.sum(axis=1)  # its own ratio is 1
    return np.where(is_known | np.isinf(bounds), bounds, np.nan)


def _least_ratios(
    rho: np.ndarray, share: np.ndarray, client: Any, other: Any
) -> np.ndarray:
    """Return the least f_other / f_client of spectra f(x), x = 1 - cos(frequency).

    f(x) = (share (1 - rho^2) + (1 - share) d(x)) / d(x), d(x) = (1 - rho)^2 + 2 rho x.
    So the ratio is one of quadratic polynomials, least at an end or where its
    derivative is 0.
    """
    below = (1 - rho) ** 2, 2 * rho
    above = (
        share * (1 - rho) * (1 + rho) + (1 - share) * below[0],
        (1 - share) * below[1],
    )

    def product(first: Any, i: Any, second: Any, j: Any) -> tuple[Any, Any, Any]:
        (a, b), (c, d) = first, second
        return a[i] * c[j], a[i] * d[j] + b[i] * c[j], b[i] * d[j]

    top, bottom = (
        product(above, other, below, client),
        product(above, client, below, other),
    )
    n0, n1, n2 = top
    d0, d1, d2 = bottom
    # p x^2 + 2 q x + r = 0
    p, q, r = n2 * d1 - n1 * d2, n2 * d0 - n0 * d2, n1 * d0 - n0 * d1
    with np.errstate(divide="ignore", invalid="ignore"):
        root = -(q + np.copysign(np.sqrt(np.maximum(q * q - p * r, 0.0)), q))
        places = np.stack([0 * q, 0 * q + 2, root / p, r / root])
        places = np.where((places >= 0) & (places <= 2), places, 0.0)
        return np.asarray(
            (
                (n0 + places * (n1 + places * n2)) / (d0 + places * (d1 + places * d2))
            ).min(axis=0)
        )
