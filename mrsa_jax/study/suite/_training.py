"""Train a model in the rounds of a scheme, and count the rounds to an accuracy."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mrsa_jax import federated, selection
from mrsa_jax.study._progress import Silent
from mrsa_jax.study.runs import _build, _trial
from mrsa_jax.study.runs._training_setting import (
    plain_aggregator,
    setting_of,
    shared_training,
)
from mrsa_jax.study.settings._config import TrainConfig, schemes_of

_DIGITS = 6  # of accuracies, which are computed in float32


class Curve(NamedTuple):
    """The accuracy of a training.

    Attributes:
        participation: bool[J, N], the clients in the sum of each round.
        rounds: int[E], rounds after which the model was tested, counted from 1.
        accuracy: float64[E], nan after the training has diverged.
    """

    participation: np.ndarray
    rounds: np.ndarray
    accuracy: np.ndarray

    def rounds_to(self, accuracy: float) -> int | None:
        """Return the rounds to the first test of at least this; None if none is."""
        reached = self.rounds[self.accuracy >= accuracy]
        return int(reached[0]) if reached.size else None

    def figures(self, accuracy: float) -> dict[str, Any]:
        """Return the figures of a card, with rounds to this accuracy."""
        last = float(self.accuracy[-1])
        return {
            "accuracy": None if np.isnan(last) else last,
            "rounds_to_accuracy": self.rounds_to(accuracy),
        }


def curves_of(configs: Sequence[TrainConfig]) -> list[Curve]:
    """Train the models of some settings of one scenario side by side."""
    # trainings of one seed share their samples
    build = functools.cache(_build.build_clients)
    settings = [setting_of(config, Silent(), build) for config in configs]
    trainings = []
    for config, setting in zip(configs, settings, strict=True):
        (scheme,) = schemes_of(config)
        selector = _build.build_selector(scheme, config.population)
        online, _ = _build.build_online(config.seed, config.population)
        rolled = selection.rollout(config.seed, selector, online, config.rounds)
        rounds = _trial.learnt_sums(rolled)
        slots = int(rounds.sum(axis=1).max(initial=2))
        aggregator = plain_aggregator(setting, slots, scheme.label)
        trainings.append(shared_training(setting, rounds, aggregator))
    results = federated.train_many([config.seed for config in configs], trainings)
    return [
        Curve(
            np.asarray(result.participation),
            np.asarray(result.evaluated_rounds) + 1,
            np.round(np.asarray(result.accuracy, np.float64), _DIGITS),
        )
        for result in results
    ]
