"""The papers' grid of learning rates, and which of them is best.

Source: Multi-RoundSecAgg, Section 5: the best of seven rates for each scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax._errors import require

__all__ = ["LEARNING_RATES", "BestRate", "best_rate"]

LEARNING_RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)


class BestRate(NamedTuple):
    """The best of some learning rates.

    Attributes:
        rate: The rate.
        accuracy: Its mean final accuracy over its runs; nan if every rate diverged.
        chosen: Where its runs are in the list of results.
        accuracies: Mean final accuracy of each rate; nan where a run of it diverged.
    """

    rate: float
    accuracy: float
    chosen: tuple[int, ...]
    accuracies: dict[float, float]


def best_rate(rates: Sequence[float], results: Sequence[Any]) -> BestRate:
    """Return the learning rate with the highest final accuracy, averaged over its runs.

    A rate with a run that diverged loses against every rate without. Of equals, the first named
    wins.

    Args:
        rates: The learning rate of each run; runs of one rate (its seeds) need not be neighbours.
        results: The runs, evaluated at least once: `TrainingResult`, or anything with their
            `accuracy` and `diverged_round`.

    Returns:
        The best rate, its runs, and the accuracy of every rate.

    Raises:
        ConfigurationError: If there are none, not as many rates as results, or a result was
            never evaluated.

    Examples:
        >>> import types
        >>> def run(accuracy, diverged=None):
        ...     return types.SimpleNamespace(accuracy=[0.1, accuracy], diverged_round=diverged)
        >>> best = best_rate([0.1, 0.1, 0.01], [run(0.9), run(0.9, 7), run(0.8)])
        >>> best.rate, best.chosen
        (0.01, (2,))
    """
    require(len(rates) > 0, "rates", "must not be empty")
    fits = len(rates) == len(results)
    require(fits, "rates", "must be as many as the results", len(rates), len(results))
    runs: dict[float, list[int]] = {}
    for number, (rate, result) in enumerate(zip(rates, results, strict=True)):
        require(len(result.accuracy) > 0, "results", "must have been evaluated", f"run {number}")
        runs.setdefault(float(rate), []).append(number)
    accuracies = {
        rate: math.nan
        if any(results[number].diverged_round is not None for number in numbers)
        else float(np.mean([results[number].accuracy[-1] for number in numbers]))
        for rate, numbers in runs.items()
    }
    best = max(runs, key=lambda rate: -1.0 if math.isnan(accuracies[rate]) else accuracies[rate])
    return BestRate(best, accuracies[best], tuple(runs[best]), accuracies)
