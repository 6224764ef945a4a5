"""How the clients' learning rate falls from round to round.

A schedule is what optax calls one, a function from an integer to a number; here it gives the
factor on the trainer's learning rate in round j, skipped rounds counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mrsa_jax._checks import check_count, check_number
from mrsa_jax._errors import require

RateSchedule = Callable[[int], Any]

_FACTOR = "must be a finite number from 0"


@dataclasses.dataclass(frozen=True)
class Decay:
    """The factor of a learning rate that falls at fixed rounds (`decay_at` builds it).

    Attributes:
        rounds: Ascending; each from which on the rate is lower.
        factor: By how much.
    """

    rounds: tuple[int, ...]
    factor: float

    def __call__(self, round_index: int) -> float:
        """Return the factor in a round."""
        return self.factor ** sum(round_index >= first for first in self.rounds)


def decay_at(rounds: int | Sequence[int], factor: float) -> Decay:
    """Return a schedule that multiplies the learning rate by `factor` at each of some rounds.

    Choose it over `optax.piecewise_constant_schedule`, which gives the same factors, where runs
    are stored or compared: it is a plain value without closures.

    Args:
        rounds: Rounds (from 0, skipped rounds counted) from which on the rate is lower.
        factor: Positive and finite.

    Returns:
        A function from the round's index to the factor.

    Raises:
        ConfigurationError: If a round is no integer from 0, or the factor is not positive.

    Examples:
        >>> papers = decay_at((400, 800), 0.4)
        >>> papers(399), papers(400), round(papers(800), 6)
        (1.0, 0.4, 0.16)

    Source: Multi-RoundSecAgg, Section 5 (CIFAR: 0.4 times the rate "every 400 and 800 rounds",
    read as at 400 and at 800).
    """
    own: tuple[Any, ...] = (rounds,) if np.ndim(rounds) == 0 else tuple(rounds)  # type: ignore[arg-type]
    for one in own:
        check_count(one, "rounds", "must be integers from 0", 0)
    check_number(factor, "factor", _FACTOR, 0.0)
    require(factor > 0, "factor", "must be positive", factor)
    return Decay(tuple(sorted(int(one) for one in own)), float(factor))


def factors_of(schedule: RateSchedule | None, rounds: np.ndarray) -> np.ndarray | None:
    """Return the factors f32 of these rounds; raise before any work where one is no factor."""
    if schedule is None:
        return None
    require(callable(schedule), "rate_schedule", "must be a function of the round", schedule)
    factors = [schedule(int(index)) for index in rounds]
    checked = [
        check_number(factor, f"rate_schedule({index})", _FACTOR, 0.0)
        for index, factor in zip(rounds, factors, strict=True)
    ]
    return np.asarray(checked, np.float32)
