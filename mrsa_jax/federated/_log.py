"""What a training has reported so far, and what of it is told round by round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mrsa_jax._status import Status
from mrsa_jax.federated._tracking import Metrics


class Log(NamedTuple):
    """What was reported so far, in host memory; written in place."""

    status: np.ndarray
    clipped_fraction: np.ndarray
    wrapped: np.ndarray
    participation: np.ndarray
    components: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray

    @classmethod
    def empty(cls, cohorts: np.ndarray, num_evaluations: int) -> Log:
        """Return the log of a training that is to begin: every round skipped."""
        num_rounds = len(cohorts)
        return cls(
            np.full(num_rounds, int(Status.SKIPPED), np.int32),
            np.full(num_rounds, np.nan, np.float32),
            np.zeros(num_rounds, np.int32),
            np.zeros(cohorts.shape, np.bool_),
            np.full(cohorts.shape, -1, np.int32),
            np.full(num_evaluations, np.nan, np.float32),
            np.full(num_evaluations, np.nan, np.float32),
        )

    def metrics(
        self, index: int, cohort_size: int, evaluated: np.ndarray, diverged: int
    ) -> Metrics:
        """Return what is known of a round that is over, as plain numbers.

        Args:
            index: The round.
            cohort_size: How many were asked.
            evaluated: int [E], the rounds after which the model is tested.
            diverged: The round in which the training diverged, after which nothing is tested; -1
                for none.
        """
        found: Metrics = {
            "step": index,
            "status": Status(int(self.status[index])).name,
            "cohort_size": cohort_size,
            "summed_clients": int(self.participation[index].sum()),
            "wrapped": int(self.wrapped[index]),
        }
        if not np.isnan(self.clipped_fraction[index]):
            found["clipped_fraction"] = float(self.clipped_fraction[index])
        if index == diverged:
            return found | {"diverged": True}
        tested = int(np.searchsorted(evaluated, index))
        if tested < len(evaluated) and evaluated[tested] == index:
            found |= {"accuracy": float(self.accuracy[tested]), "loss": float(self.loss[tested])}
        return found
