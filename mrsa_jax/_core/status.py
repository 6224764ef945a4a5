"""Name the steps of a round, and its outcomes: a failed round is data."""

from __future__ import annotations

import enum
from typing import Literal

FEWEST_IN_A_SUM = 2
"""Clients in the smallest sum that is revealed: one over fewer would be an input."""

ThresholdRule = Literal["majority", "remark4"]
"""Rules for the secret shares that rebuild a secret, t, by name."""

STEPS = ("advertise keys", "share keys", "masked input", "unmask")
"""Names of the four steps of a round, in order."""
CHECK = "check survivors"
"""Name of the step that the signed consistency check adds."""
STEPS_WITH_CHECK = (*STEPS[:3], CHECK, STEPS[3])
"""Names of the five steps of a round with it."""


class Status(enum.IntEnum):
    """Outcome of one round of secure aggregation.

    `OK` is 0, so `not status` reads "worked". `SKIPPED` is a round in which no cohort
    could be chosen (Multi-RoundSecAgg: fewer than K/T blocks fully available).
    `TOO_FEW_SURVIVORS` withholds a sum over fewer than two clients, which would be an
    input. `UNRELIABLE`: too few shares came back to remove every pad from the sum
    (CCESA, Theorem 1). `ABORTED`: a policy ended the round before unmasking, because a
    block had lost a member. `NOT_RUN`: clients were asked in a history, but the
    training had diverged before this round.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.Status.OK == 0, mj.Status(1).name
        (True, 'SKIPPED')
    """

    OK = 0
    SKIPPED = 1
    TOO_FEW_SURVIVORS = 2
    UNRELIABLE = 3
    ABORTED = 4
    NOT_RUN = 5
