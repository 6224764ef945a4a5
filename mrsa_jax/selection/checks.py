"""The checks of N, K and T that factories and closed forms share."""

from __future__ import annotations

from typing import Any, Literal

from mrsa_watch._base.errors import check_size, require

Fairness = Literal["least_used", "uniform", "greedy"]


def check_sizes(
    num_clients: Any,
    cohort_size: Any,
    privacy_target: Any = 1,
) -> tuple[int, int, int]:
    """Return N, K and T as integers.

    Raise unless T divides K, T divides N and K <= N.
    """
    n = check_size(num_clients, "num_clients")
    k = check_size(cohort_size, "cohort_size")
    t = check_size(privacy_target, "privacy_target")
    require(k <= n, "cohort_size", "must be at most `num_clients`", k, n)
    require(k % t == 0, "cohort_size", "must be a multiple of `privacy_target`", k, t)
    require(n % t == 0, "num_clients", "must be a multiple of `privacy_target`", n, t)
    return n, k, t


def check_grids(
    num_clients: Any,
    cohort_size: Any,
    privacy_target: Any,
) -> tuple[int, int, int]:
    """Return N, K and T as `check_sizes` does.

    Raise unless there is a T x T grid of clients.
    """
    n, k, t = check_sizes(num_clients, cohort_size, privacy_target)
    require(
        n >= t * t, "num_clients", "must be at least `privacy_target` squared", n, t
    )
    return n, k, t
