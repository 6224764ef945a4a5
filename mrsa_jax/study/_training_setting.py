"""What the trainings of a study share, and what each is given.

Its rounds, played beforehand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax import availability, federated, selection
from mrsa_jax._core.device import platform
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax.study import _build, _config, _segments, _trial
from mrsa_jax.study._build import code_dim
from mrsa_jax.study._config import Config, DemoConfig, Scheme, TrainConfig
from mrsa_jax.study._progress import Progress, note
from mrsa_watch._base.errors import require


def segments_of(
    config: DemoConfig | TrainConfig, selector: selection.Selector, dim: int
) -> _segments.SegmentStudy | None:
    """Return a scheme's groups and segments of updates of `dim` entries.

    None without any.
    """
    own = config.aggregation
    return _segments.build_segments(
        config.seed,
        config.hetero,
        selector,
        dim,
        config.protocol.threshold,
        own.modulus_bits if own.is_noisy else None,
    )


@dataclasses.dataclass(frozen=True)
class Played:
    """A scheme's rounds: what a server can know of them, and how they went.

    Attributes:
        history: What a server that keeps every sum can know.
        rounds: How clients were lost inside rounds; None where nobody is.
        rule: What is learnt of such rounds; None as above, and with segments.
        segments: The scheme's groups and segments; None without.
        cohorts: Whom the server asked, bool[J, N], with segments and after failed
            uploads; None where all of them are in their round's sum, or `rounds` has
            them.
        sums: With segments: what it has learnt of each, a `SegmentHistory`.
        weights: Integers [N], by which updates are multiplied in sums; None for 1 each.
    """

    history: _trial.History
    rounds: selection.RoundHistory | None
    rule: Any
    segments: _segments.SegmentStudy | None = None
    cohorts: Any = None
    sums: Any = None
    weights: np.ndarray | None = None

    @property
    def learnt(self) -> tuple[np.ndarray, np.ndarray]:
        """Return P of the learnt sums of whole updates, with their weights, and their rounds."""
        own = self.history.participation
        rows, rounds = own, np.arange(len(own))
        if self.rounds is not None:
            rows, rounds = selection.learnt_rows(self.rounds)
        return with_weights(rows, self.weights), rounds

    @property
    def to_train(self) -> Any:
        """Return what `federated.train` is to go through."""
        if self.rounds is not None:
            return self.rounds
        return self.history.participation if self.cohorts is None else self.cohorts

    @property
    def survivors(self) -> np.ndarray:
        """Return V0 to V4 of each round, bool[J, 5, N].

        V0 are those whom the server asked.
        """
        if self.rounds is not None:
            return np.asarray(self.rounds.survivors)
        return np.repeat(np.asarray(self.to_train)[:, None], 5, axis=1)

    @property
    def num_trained(self) -> int:
        """Return in how many rounds clients train, learnt or not."""
        if self.rounds is None:
            return _trial.rounds_with_sums(self.history.participation)
        return _trial.rounds_with_sums(np.asarray(self.rounds.survivors)[:, 0])

    @property
    def sent_and_summed(self) -> tuple[np.ndarray, np.ndarray]:
        """Return bool[J, 5, N], or bool[J, 1, N] where nobody is lost, and who is in each mean."""
        survivors = np.asarray(self.cohorts)[:, None]
        if self.rounds is not None:
            survivors = np.asarray(self.rounds.survivors)
        return survivors, np.asarray(self.history.participation)

    @property
    def updates_sent(self) -> np.ndarray:
        """Return int[rounds], how many clients send an update in each round that is trained."""
        if self.rounds is None:
            asked = sent = np.asarray(self.to_train)
        else:
            survivors = np.asarray(self.rounds.survivors)
            asked, sent = survivors[:, 0], survivors[:, 3]
        return np.asarray(sent[asked.any(axis=1)].sum(axis=1))


def lossy_rounds(
    config: Config,
    selector: selection.Selector,
    available: Any,
    rule: Any,
    **trials: Any,
) -> selection.RoundHistory:
    """Roll rounds out in which clients are lost."""
    steps = availability.independent_steps(config.protocol.step_dropout_rate)
    return selection.rollout_rounds(
        config.seed, selector, available, steps, config.rounds, rule=rule, **trials
    )


def play(
    setting: Setting,
    scheme: Scheme,
    available: Any,
    ready: Callable[[], object] = lambda: None,
    *,
    at_end: bool = False,
) -> Played:
    """Roll a scheme's rounds out and judge what a server can know of them.

    `ready` is called between the two; `at_end` is as for `_trial.analyse`.
    """
    config = setting.config
    selector = _build.build_selector(scheme, config.population)
    rule = _build.build_rule(config.protocol, selector)
    segments = segments_of(config, selector, setting.dim)
    if rule is None:
        cohorts = selection.rollout(config.seed, selector, available, config.rounds)
        if segments is None:
            sums = _trial.learnt_sums(cohorts)
            ready()
            return _judged(setting, sums, None, None, at_end=at_end)
        asked, rounds = np.asarray(cohorts), None
    else:
        rounds = lossy_rounds(config, selector, available, rule)
        if segments is None:
            return _judged(setting, None, rounds, rule, at_end=at_end)
        asked = np.asarray(rounds.survivors)[:, 0]
    history, learnt = _segments.play_segments(segments, asked, rounds, at_end=at_end)
    return Played(history, rounds, None, segments, asked, learnt)


def _judged(
    setting: Setting,
    sums: Any,
    rounds: selection.RoundHistory | None,
    rule: Any,
    *,
    at_end: bool,
) -> Played:
    """Return rounds of whole updates, with what their sums, as they are weighted, let one know."""
    how: dict[str, Any] = {"at_end": at_end, "weights": setting.weights}
    if rounds is None:
        history = _trial.analyse(sums, **how)
    else:
        history = _trial.analyse_rounds(rounds, **how)
    return Played(history, rounds, rule, weights=setting.weights)


def as_trained(
    setting: Setting,
    played: Played,
    result: federated.TrainingResult,
    *,
    at_end: bool = False,
) -> Played:
    """Return the rounds as a training went through them.

    Up to its end, less failed uploads.

    Args:
        setting: What the trainings of the study share.
        played: The rounds as they were rolled out.
        result: The training.
        at_end: As for `play`.
    """
    last = result.diverged_round
    if last is None and not result.failed_uploads.any():
        return played
    until = slice(None if last is None else last + 1)
    own, failed = result.participation[until], result.failed_uploads[until]
    survivors = played.survivors[until].copy()
    survivors[:, 3:] &= ~failed[:, None]
    rounds = played.rounds
    if rounds is not None:
        keys = rounds.assignment_keys
        changed: dict[str, Any] = {
            "survivors": survivors,
            "participation": own,
            "status": result.status[until],
            "assignment_keys": None if keys is None else keys[until],
            "components": result.components[until],
        }
        rounds = rounds._replace(**changed)
    asked = survivors[:, 0]
    if played.segments is None:
        actual = _judged(setting, own, rounds, played.rule, at_end=at_end)
        return dataclasses.replace(actual, cohorts=asked)
    history, learnt = _segments.judged(played.segments, survivors, at_end=at_end)
    return dataclasses.replace(
        played, history=history, rounds=rounds, cohorts=asked, sums=learnt
    )


def guaranteed(
    setting: Setting, scheme: Scheme, result: federated.TrainingResult | None = None
) -> int:
    """Return the weak T that lasts for any number of rounds of a training; 1 for none.

    Without a result that is of a training in which no upload fails. Weights scale what
    clients send, so that combinations of sums involve the same clients, less those who
    weigh nothing.
    """
    config = setting.config
    selector = _build.build_selector(scheme, config.population)
    loses = result is not None and bool(result.failed_uploads.any())
    kept = _build.guaranteed_privacy(
        selector, config.protocol, config.hetero, loses=loses
    )
    nothing = 0 if setting.weights is None else int((setting.weights == 0).sum())
    return max(1, kept - nothing)


@dataclasses.dataclass
class Setting:
    """What the trainings of all schemes share."""

    config: DemoConfig | TrainConfig
    dataset: Any
    clients: Any
    model: Any
    trainer: Any
    dim: int  # of what a client sends
    mesh: Any
    progress: Progress
    # peak bytes by slots
    stated: dict[int, int] = dataclasses.field(default_factory=dict)

    @property
    def samples(self) -> np.ndarray:
        return np.asarray(self.clients.sizes)

    @property
    def weights(self) -> np.ndarray | None:
        return self.samples if self.config.aggregation.weighted else None

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        return self.dataset.test_inputs, self.dataset.test_labels

    @property
    def memory_bytes(self) -> int | None:
        """The bound on each device's memory; those of a CPU share it."""
        bound = self.config.resources.memory_gib
        return None if bound is None else int(bound * 2**30 / self.sharing)

    @property
    def sharing(self) -> int:
        """How many of the devices share one memory."""
        on_cpu = self.mesh is not None and platform() == "cpu"
        return self.mesh.size if on_cpu else 1

    def peak_bytes(self, num_slots: int) -> int:
        """Return the peak memory of a training by its shapes.

        The CPU's, or each device's.
        """
        config = self.config
        sent = code_dim(config.aggregation, not config.hetero.is_plain, self.dim)
        return federated.memory_estimate(
            self.model,
            self.clients,
            trainer=self.trainer,
            cohort_size=num_slots,
            num_rounds=config.rounds,
            test=self.test,
            mesh=self.mesh,
            code_dim=sent,
        ).peak_bytes

    def stated_bytes(self, num_slots: int) -> int:
        """Return the same within the bound, of all devices that share a memory, and say it."""
        if num_slots not in self.stated:
            needed = self.peak_bytes(num_slots)
            bound = self.memory_bytes
            within = needed if bound is None else min(needed, bound)
            self.stated[num_slots] = within * self.sharing
            words = memory_words(
                self.stated[num_slots],
                "cohort_size",
                num_slots,
                "cohort_size or the model",
            )
            where = "" if self.mesh is None or self.sharing > 1 else " on each device"
            note(self.progress, f"training, {words}{where}")
        return self.stated[num_slots]


def setting_of(
    config: DemoConfig | TrainConfig,
    progress: Progress,
    build: Callable[..., Any] = _build.build_clients,
) -> Setting:
    """Return what the trainings of a study share; `build` makes its clients."""
    dataset, clients = build(config.seed, config.data, config.population.num_clients)
    model = _build.build_model(config.training, dataset)
    dim = federated.num_parameters(model, dataset.input_shape)
    # a round's seconds on a CPU go by it
    work = float(dim * config.population.cohort_size * np.asarray(clients.sizes).mean())
    trainer = _build.build_trainer(config.training, model)
    sizes = getattr(trainer, "state_sizes", None)
    rule = "must be one without state in a demo, whose attack trains single clients"
    require(sizes is None or not isinstance(config, DemoConfig), "trainer", rule)
    return Setting(
        config=config,
        dataset=dataset,
        clients=clients,
        model=model,
        trainer=trainer,
        dim=dim if sizes is None else dim + sizes(dim)[0],
        mesh=_build.build_mesh(config.resources, work),
        progress=progress,
    )


def training_of(setting: Setting, scheme: Scheme, played: Played) -> federated.Training:
    """Return the training of a scheme."""
    order = None if played.segments is None else played.segments.order
    return shared_training(
        setting, played.to_train, _aggregator(setting, scheme, played), order
    )


def shared_training(
    setting: Setting, participation: Any, aggregator: Any, slot_order: Any = None
) -> federated.Training:
    """Return a training of a study's settings over these rounds."""
    training = setting.config.training
    return federated.Training(
        model=setting.model,
        client_data=setting.clients,
        participation=participation,
        trainer=setting.trainer,
        aggregator=aggregator,
        server=_build.build_server(training),
        rate_schedule=_build.build_rate_schedule(training),
        weights=setting.weights,
        slot_order=slot_order,
        test=setting.test,
        evaluate_every=training.evaluate_every,
        measure_drift=training.measure_drift,
    )


def num_slots(played: Played) -> int:
    """Return how many participants the aggregator of a scheme has room for."""
    if played.segments is not None:
        return int(played.segments.layout.num_participants)
    most = int(played.history.participation.sum(axis=1).max(initial=2))
    return most if played.rule is None else int(played.rule.num_participants)


def _aggregator(setting: Setting, scheme: Scheme, played: Played) -> Any:
    config = setting.config
    secret = _config.secret_seed(config, scheme.label)
    if played.segments is not None:
        rule = _build.clip_rule(config.aggregation)
        return played.segments.aggregator(secret, config.aggregation, rule)
    return plain_aggregator(setting, num_slots(played), scheme.label, rule=played.rule)


def plain_aggregator(
    setting: Setting, num_slots: int, *names: str, rule: Any = None
) -> Any:
    """Return the aggregator of a training without segments, with pads of these names."""
    config = setting.config
    return _build.build_aggregator(
        _config.secret_seed(config, *names),
        config.aggregation,
        num_slots,
        setting.dim,
        rule=rule,
        samples=setting.samples,
        cohort_size=config.population.cohort_size,
    )
