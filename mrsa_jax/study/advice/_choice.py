"""Which option to take, by what is demanded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from mrsa_jax.study.advice._options import Option

_LEAST_SHARE = 0.8  # of random selection's mean sum, where nothing is demanded


@dataclasses.dataclass(frozen=True)
class Demands:
    """What a scheme must give; None where nothing is asked.

    Attributes:
        privacy: Weak T that must be kept for ever.
        hidden: Among how many every client must stay hidden for ever.
        cardinality: Clients in a mean sum.
    """

    privacy: int | None = None
    hidden: float | None = None
    cardinality: float | None = None

    def met_by(self, option: Option) -> bool:
        """Return whether an option gives all of it."""
        return (
            option.weak_lower >= (self.privacy or 1)
            and option.hidden_worst >= (self.hidden or 1.0) * (1 - 1e-12)
            and option.cardinality >= (self.cardinality or 0.0) * (1 - 1e-12)
        )

    def __str__(self) -> str:
        """Return it in words."""
        parts = []
        if self.privacy is not None:
            parts.append(f"weak T of {self.privacy} or more for ever")
        if self.hidden is not None:
            parts.append(f"every client hidden among {self.hidden:g} or more for ever")
        if self.cardinality is not None:
            parts.append(f"{self.cardinality:g} clients or more in a mean sum")
        return " and ".join(parts)


def mark_best(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options with what no other beats marked: in T, hidden among and cardinality."""
    every = list(options)
    return tuple(
        dataclasses.replace(
            one,
            is_best=one.cardinality >= 1.0 and not any(_beats(other, one) for other in every),
        )
        for one in every
    )


def _beats(one: Option, other: Option) -> bool:
    left = one.weak_lower, one.hidden_worst, one.cardinality
    right = other.weak_lower, other.hidden_worst, other.cardinality
    return left != right and all(a >= b for a, b in zip(left, right, strict=True))


def choose(options: Iterable[Option], demands: Demands) -> Option | None:
    """Return the option to take, or None if none gives what is demanded.

    Where T or hidden among is demanded, it is the one with the fullest sums of those that give it.
    Otherwise the one that hides best among those whose mean sum is as large as demanded, or is
    0.8 of that of random selection; and if there is none, the one with the fullest sums of all
    that keep a T above 1.
    """
    known = [one for one in options if not math.isnan(one.cardinality)]
    fitting = [one for one in known if demands.met_by(one)]
    if demands.privacy is not None or demands.hidden is not None:
        return max(fitting, key=_usefulness, default=None)
    kept = [one for one in fitting if one.weak_lower > 1]
    if demands.cardinality is not None:
        return max(kept, key=_protection, default=None)
    plain = max((one.cardinality for one in known if one.weak_lower == 1), default=0.0)
    cheap = [one for one in kept if one.cardinality >= _LEAST_SHARE * plain]
    return max(cheap, key=_protection, default=max(kept, key=_usefulness, default=None))


def _usefulness(one: Option) -> tuple[float | int, ...]:
    return round(one.cardinality, 9), one.hidden_worst, one.weak_lower


def _protection(one: Option) -> tuple[float | int, ...]:
    return one.hidden_worst, one.weak_lower, one.cardinality
