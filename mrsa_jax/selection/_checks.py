"""Checks of sizes that factories and closed forms share."""

from __future__ import annotations

import numbers
from typing import Any, Literal

from mrsa_jax._errors import require

__all__ = ["Fairness", "check_count", "check_sizes"]

Fairness = Literal["least_used", "uniform", "greedy"]


def check_count(argument: str, value: Any) -> int:
    """Return a positive integer, or raise naming `argument`."""
    is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(is_count, argument, "must be an integer", value)
    require(int(value) >= 1, argument, "must be at least 1", value)
    require(int(value) < 2**31, argument, "must be below 2**31", value)
    return int(value)


def check_sizes(
    num_clients: Any, cohort_size: Any, privacy_target: Any = 1
) -> tuple[int, int, int]:
    """Return N, K and T as integers, or raise unless T divides K, T divides N and K <= N."""
    n = check_count("num_clients", num_clients)
    k = check_count("cohort_size", cohort_size)
    t = check_count("privacy_target", privacy_target)
    require(n < 2**31, "num_clients", "must be below 2**31", n)
    require(k <= n, "cohort_size", "must be at most `num_clients`", k, n)
    require(k % t == 0, "cohort_size", "must be a multiple of `privacy_target`", k, t)
    require(n % t == 0, "num_clients", "must be a multiple of `privacy_target`", n, t)
    return n, k, t
