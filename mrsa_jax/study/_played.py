"""A scheme's rounds before training: who was asked, who was lost, and which sums are learnt."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mrsa_jax import selection
from mrsa_jax.study import _build, _segments, _trial
from mrsa_jax.study._config import Config, DemoConfig, Scheme, SimulateConfig, TrainConfig


def segments_of(
    config: DemoConfig | TrainConfig, selector: selection.Selector, dim: int
) -> _segments.SegmentStudy | None:
    """Return a scheme's groups and segments of updates of `dim` entries; None without any."""
    own = config.aggregation
    return _segments.build_segments(
        config.seed, config.hetero, selector, dim, config.protocol.threshold,
        own.modulus_bits if own.is_noisy else None,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Played:
    """A scheme's rounds: what a server can know of them, and how they went."""

    history: _trial.History
    rounds: selection.RoundHistory | None  # None where nobody is lost inside rounds
    rule: Any
    segments: _segments.SegmentStudy | None = None
    cohorts: Any = None  # with segments: whom the server asked, bool[J, N]
    sums: Any = None  # with segments: what it has learnt of each, a `SegmentHistory`

    @property
    def to_train(self) -> Any:
        """Return what `federated.train` is to go through."""
        if self.rounds is not None:
            return self.rounds
        return self.history.participation if self.cohorts is None else self.cohorts

    @property
    def num_trained(self) -> int:
        """Return in how many rounds clients train, learnt or not."""
        if self.rounds is None:
            return _trial.rounds_with_sums(self.history.participation)
        return _trial.rounds_with_sums(np.asarray(self.rounds.survivors)[:, 0])

    @property
    def updates_sent(self) -> np.ndarray:
        """Return int[rounds], how many clients send an update in each round that is trained."""
        if self.rounds is None:
            asked = sent = np.asarray(self.to_train)
        else:
            survivors = np.asarray(self.rounds.survivors)
            asked, sent = survivors[:, 0], survivors[:, 3]
        return np.asarray(sent[asked.any(axis=1)].sum(axis=1))


def _lossy_rounds(
    config: Config, selector: selection.Selector, available: Any, rule: Any, **trials: Any
) -> selection.RoundHistory:
    steps = _build.build_steps(config.protocol)
    return selection.rollout_rounds(
        config.seed, selector, available, steps, config.rounds, rule=rule, **trials
    )


def lossy_trials(
    config: SimulateConfig, selector: selection.Selector, available: Any, rule: Any
) -> selection.RoundHistory:
    """Roll trials out in whose rounds clients are lost; NumPy arrays, without keys."""
    rounds = _lossy_rounds(config, selector, available, rule, num_trials=config.trials)
    played: selection.RoundHistory = jax.device_get(rounds._replace(assignment_keys=None))
    return played


def play(config: DemoConfig | TrainConfig, scheme: Scheme, available: Any, dim: int) -> Played:
    """Roll a scheme's rounds out and judge what a server can know of them."""
    selector = _build.build_selector(scheme, config.population)
    rule = _build.build_rule(config.protocol, selector)
    segments = segments_of(config, selector, dim)
    if rule is None:
        cohorts = selection.rollout(config.seed, selector, available, config.rounds)
        if segments is not None:
            return _with_segments(segments, np.asarray(cohorts), None)
        return Played(_trial.analyse(_trial.learnt_sums(cohorts)), None, None)
    rounds = _lossy_rounds(config, selector, available, rule)
    if segments is not None:
        return _with_segments(segments, np.asarray(rounds.survivors)[:, 0], rounds)
    return Played(_trial.analyse_rounds(rounds), rounds, rule)


def _with_segments(
    segments: _segments.SegmentStudy, cohorts: np.ndarray, rounds: selection.RoundHistory | None
) -> Played:
    history, sums = _segments.play_segments(segments, cohorts, rounds)
    return Played(history, rounds, None, segments, cohorts, sums)
