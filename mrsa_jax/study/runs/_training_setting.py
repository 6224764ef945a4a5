"""Set the trainings of a study up, and play the rounds of each scheme in advance."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax import availability, federated, secagg, selection
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.device import platform
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.study._progress import Progress, note
from mrsa_jax.study.runs import _build, _segments, _trial
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._config import Config, DemoConfig, Scheme, TrainConfig
from mrsa_watch._base.errors import require


def segments_of(
    config: DemoConfig | TrainConfig, selector: selection.Selector, dim: int
) -> _segments.SegmentStudy | None:
    """Return a scheme's groups and segments of updates of `dim` entries, or None."""
    aggregation, rule = config.aggregation, None
    if not Graph.parse(config.protocol.graph).row.is_complete:
        rule = _build.build_rule(config.protocol, selector)
    return _segments.build_segments(
        config.seed,
        config.hetero,
        selector,
        dim,
        config.protocol.threshold,
        aggregation.modulus_bits if aggregation.is_noisy else None,
        rule,
    )


@dataclasses.dataclass(frozen=True)
class Played:
    """The rounds of a scheme, and what a server can know of them.

    Attributes:
        history: What a server that keeps every sum can know.
        cohorts: bool[J, N], the clients that train in each round.
        rounds: How clients were lost inside rounds; None if no client is.
        rule: The graph rule of such rounds; None as above, and with segments.
        segments: The scheme's groups and segments; None without.
        sums: With segments, the learnt sums of each, a `SegmentHistory`.
        weights: Integers [N], by which updates are multiplied in sums; None for 1 each.
    """

    history: _trial.History
    cohorts: np.ndarray
    rounds: selection.RoundHistory | None = None
    rule: secagg.GraphRule | None = None
    segments: _segments.SegmentStudy | None = None
    sums: Any = None
    weights: np.ndarray | None = None

    @property
    def is_plain(self) -> bool:
        """Whether no client is lost inside rounds, and updates are summed whole."""
        return self.rounds is None and self.segments is None

    @property
    def learnt(self) -> tuple[np.ndarray, np.ndarray]:
        """P of the learnt sums of whole updates, with weights, and their rounds."""
        rows = self.history.participation
        rounds = np.arange(len(rows))
        if self.rounds is not None:
            rows, rounds = selection.learnt_rows(self.rounds)
        return with_weights(rows, self.weights), rounds

    @property
    def to_train(self) -> np.ndarray | selection.RoundHistory:
        """The rounds as `federated.train` takes them."""
        return self.cohorts if self.rounds is None else self.rounds

    @property
    def survivors(self) -> np.ndarray:
        """V0 to V4 of each round, bool[J, 5, N]; V0 is the cohort."""
        return _survivors(self.cohorts, self.rounds)

    @property
    def segment_facts(self) -> dict[str, Any]:
        """Variables of the groups of these rounds (`SegmentStudy.facts`)."""
        assert self.segments is not None
        keys = None if self.rounds is None else self.rounds.assignment_keys
        participation = self.history.participation
        return self.segments.facts(self.survivors, participation, keys, self.sums)

    @property
    def updates_sent(self) -> np.ndarray:
        """int[rounds], number of updates sent in each round that is trained."""
        is_trained = self.cohorts.any(axis=1)
        return np.asarray(self.survivors[is_trained, 3].sum(axis=1))


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
    """Roll a scheme's rounds out and analyse what a server can know of them.

    `ready` is called between the two; `at_end` is as for `_trial.analyse`.
    """
    config = setting.config
    selector = _build.build_selector(scheme, config.population)
    rule = _build.build_rule(config.protocol, selector)
    segments = segments_of(config, selector, setting.dim)
    rounds = None
    if rule is None:
        rolled = selection.rollout(config.seed, selector, available, config.rounds)
        cohorts = np.asarray(rolled)
    else:
        rounds = lossy_rounds(config, selector, available, rule)
        # V0: the clients that the server asked
        cohorts = np.asarray(rounds.survivors)[:, 0]
    if segments is not None:
        keys = None if rounds is None else rounds.assignment_keys
        survivors = _survivors(cohorts, rounds)
        history, sums = segments.play(survivors, keys, at_end=at_end)
        return Played(history, cohorts, rounds, segments=segments, sums=sums)
    if rounds is None:
        cohorts = _trial.learnt_sums(cohorts)
        # what compiles the analysis must be done before it is called
        ready()
    return _whole(setting, cohorts, cohorts, rounds, rule, at_end=at_end)


def _survivors(
    cohorts: np.ndarray, rounds: selection.RoundHistory | None
) -> np.ndarray:
    """Return V0 to V4 of each round, bool[J, 5, N]: the cohort without losses."""
    if rounds is not None:
        return np.asarray(rounds.survivors)
    return np.repeat(cohorts[:, None], 5, axis=1)


def _whole(
    setting: Setting,
    cohorts: np.ndarray,
    participation: np.ndarray,
    rounds: selection.RoundHistory | None,
    rule: secagg.GraphRule | None,
    *,
    at_end: bool,
) -> Played:
    """Analyse rounds of whole updates, with the weights of their sums.

    `participation` are the clients in the sums, if no client is lost inside rounds.
    """
    weights = setting.weights
    if rounds is None:
        history = _trial.analyse(participation, at_end=at_end, weights=weights)
    else:
        history = _trial.analyse_rounds(rounds, at_end=at_end, weights=weights)
    return Played(history, cohorts, rounds, rule, weights=weights)


def as_trained(
    setting: Setting,
    played: Played,
    result: federated.TrainingResult,
    *,
    at_end: bool = False,
) -> Played:
    """Return the rounds as a training went through them.

    They end where it diverged, and failed uploads are in no sum.

    Args:
        setting: Shared by the trainings of the study.
        played: The rounds as they were rolled out.
        result: The training.
        at_end: As for `play`.
    """
    last = result.diverged_round
    if last is None and not result.failed_uploads.any():
        return played
    until = slice(None if last is None else last + 1)
    participation = result.participation[until]
    survivors = played.survivors[until].copy()
    # an upload that failed never arrived: out of V3 and V4
    survivors[:, 3:] &= ~result.failed_uploads[until, None]
    rounds = played.rounds
    if rounds is not None:
        keys = rounds.assignment_keys
        changed: dict[str, Any] = {
            "survivors": survivors,
            "participation": participation,
            "status": result.status[until],
            "assignment_keys": None if keys is None else keys[until],
            "components": result.components[until],
        }
        rounds = rounds._replace(**changed)
    cohorts = survivors[:, 0]
    if played.segments is not None:
        keys = None if rounds is None else rounds.assignment_keys
        history, sums = played.segments.play(survivors, keys, at_end=at_end)
        return dataclasses.replace(
            played, history=history, cohorts=cohorts, rounds=rounds, sums=sums
        )
    return _whole(setting, cohorts, participation, rounds, played.rule, at_end=at_end)


def guaranteed(
    setting: Setting, scheme: Scheme, result: federated.TrainingResult | None = None
) -> int:
    """Return the weak T that lasts for any number of rounds of a training; 1 for none.

    Without a result, no upload is assumed to fail. Weights scale what clients send, so
    that combinations of sums involve the same clients, less those of weight 0.
    """
    config = setting.config
    lasting = _build.guaranteed_privacy(
        _build.build_selector(scheme, config.population),
        config.protocol,
        config.hetero,
        loses=result is not None and bool(result.failed_uploads.any()),
    )
    # a client of weight 0 counts in a block, but hides no one
    nothing = 0 if setting.weights is None else int((setting.weights == 0).sum())
    return max(1, lasting - nothing)


@dataclasses.dataclass
class Setting:
    """Everything that the trainings of all schemes share."""

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
        """Number of samples of each client."""
        return np.asarray(self.clients.sizes)

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the sums; None for 1 each."""
        return self.samples if self.config.aggregation.weighted else None

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels that the model is tested on."""
        return self.dataset.test_inputs, self.dataset.test_labels

    @property
    def memory_bytes(self) -> int | None:
        """The bound on each device's memory; those of a CPU share it."""
        bound = self.config.resources.memory_gib
        return None if bound is None else int(bound * 2**30 / self.sharing)

    @property
    def sharing(self) -> int:
        """Number of devices that share one memory."""
        on_cpu = self.mesh is not None and platform() == "cpu"
        return self.mesh.size if on_cpu else 1

    def peak_bytes(self, num_slots: int) -> int:
        """Return the peak bytes of a training by its shapes, of a device or the CPU."""
        config = self.config
        return federated.memory_estimate(
            self.model,
            self.clients,
            trainer=self.trainer,
            cohort_size=num_slots,
            num_rounds=config.rounds,
            test=self.test,
            mesh=self.mesh,
            code_dim=_build.code_dim(
                config.aggregation, not config.hetero.is_plain, self.dim
            ),
        ).peak_bytes

    def stated_bytes(self, num_slots: int) -> int:
        """Return the peak of devices that share memory, within its bound; state it."""
        if num_slots not in self.stated:
            needed = self.peak_bytes(num_slots)
            # the training stays within its bound by computing fewer clients at once
            within = min(needed, self.memory_bytes or needed) * self.sharing
            self.stated[num_slots] = within
            words = memory_words(
                within, "cohort_size", num_slots, "cohort_size or the model"
            )
            where = "" if self.mesh is None or self.sharing > 1 else " on each device"
            if platform() != "cpu":
                most = at_once("clients", 4 * self.dim)
                where += f"; {min(most, num_slots):,} of {num_slots:,} clients at once"
            note(self.progress, f"training, {words}{where}")
        return self.stated[num_slots]


def setting_of(
    config: DemoConfig | TrainConfig,
    progress: Progress,
    build: Callable[..., Any] | None = None,
) -> Setting:
    """Load the data and build the model of a study; `build` makes its clients."""
    dataset, clients = (build or _build.build_clients)(
        config.seed, config.data, config.population.num_clients
    )
    model = _build.build("model", config.training.model, dataset.num_classes)
    dim = federated.num_parameters(model, dataset.input_shape)
    # a round's seconds on a CPU go by it
    work = float(dim * config.population.cohort_size * np.asarray(clients.sizes).mean())
    trainer = _build.build_trainer(config.training, model)
    # a trainer with state sends further numbers next to the update
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
    segments = played.segments
    if segments is None:
        aggregator = plain_aggregator(
            setting, num_slots(played), scheme.label, rule=played.rule
        )
        return shared_training(setting, played.to_train, aggregator)
    aggregation = setting.config.aggregation
    aggregator = segments.aggregator(
        _config.secret_seed(setting.config, scheme.label),
        aggregation,
        _build.clip_rule(aggregation),
    )
    return shared_training(setting, played.to_train, aggregator, segments.order)


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
    """Return the number of participants that a scheme's aggregator has room for."""
    if played.segments is not None:
        return int(played.segments.layout.num_participants)
    if played.rule is not None:
        return int(played.rule.num_participants)
    # at least 2, as a sum of fewer is withheld
    return int(played.history.participation.sum(axis=1).max(initial=2))


def plain_aggregator(
    setting: Setting, num_slots: int, name: str, rule: secagg.GraphRule | None = None
) -> secagg.RingAverage:
    """Return the aggregator of a training without segments, with pads of this name."""
    config = setting.config
    return _build.build_aggregator(
        _config.secret_seed(config, name),
        config.aggregation,
        num_slots,
        setting.dim,
        rule=rule,
        samples=setting.samples,
        cohort_size=config.population.cohort_size,
    )
