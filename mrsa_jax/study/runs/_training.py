"""Train every scheme of a study on the same clients, and attack the sums of a demo."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import federated, selection
from mrsa_jax._core.threads import in_context
from mrsa_jax.study._progress import Meter, Progress, Silent
from mrsa_jax.study.runs import _build, _frozen, _measured, _trial
from mrsa_jax.study.runs._compiling import Compiling
from mrsa_jax.study.runs._history_variables import (
    EVERYTHING,
    coordinates,
    history_values,
    kept_variable,
    known_before,
    nan_if_negative,
    shares_variables,
    study_variables,
)
from mrsa_jax.study.runs._participation import log_of
from mrsa_jax.study.runs._training_setting import (
    Played,
    Setting,
    as_trained,
    guaranteed,
    num_slots,
    play,
    setting_of,
    training_of,
)
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._config import DemoConfig, Scheme, TrainConfig
from mrsa_jax.study.stores._run_folder import DivergedError
from mrsa_jax.study.stores._runner import VARIABLES

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.availability import Availability

Callback = Callable[[dict[str, Any]], None]

_AFTER_EACH_ROUND = (
    "strong_privacy",
    "exposed_clients",
    "hidden_among_worst",
    "hidden_among_median",
    "fairness_gap",
    "aggregation_cardinality",
)
_WEAK = VARIABLES["weak"]
# the variables of a scheme's training that a table shows before all are trained
_LEARNT = ("accuracy", "reconstruction_error")
_AXES = {
    "participation": ("scheme", "round", "client"),
    "status": ("scheme", "round"),
    "accuracy": ("scheme", "evaluation"),
    "loss": ("scheme", "evaluation"),
    "clipped_fraction": ("scheme", "round"),
    "failed_uploads": ("scheme", "round"),
    "reconstruction_error": ("scheme", "client"),
}


@dataclasses.dataclass
class _Entry:
    """A scheme of a study, before and after its training.

    Attributes:
        scheme: The scheme.
        played: Its rounds: as rolled out, then as they were trained.
        guaranteed: Weak T that lasts for any number of rounds.
        values: Its variables, bounds of weak T before the training.
        awaited: Variables that another thread computes.
    """

    scheme: Scheme
    played: Played
    guaranteed: int
    values: dict[str, Any]
    awaited: dict[str, Future[Any]] = dataclasses.field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return all(future.done() for future in self.awaited.values())

    def collect(self) -> None:
        """Wait for the variables of the other thread."""
        self.values |= {name: future.result() for name, future in self.awaited.items()}


def _reporter(
    setting: Setting, entry: _Entry, note: Callback, callbacks: Sequence[Callback]
) -> Callback:
    """Return a callback that adds privacy and noise to the measures of each round.

    Args:
        setting: Shared by the trainings of the study.
        entry: The scheme that is trained.
        note: Receives the measures of the training alone.
        callbacks: Each receives a separate dictionary.
    """
    if not callbacks:
        return note
    history = entry.played.history
    paths = {name: np.asarray(getattr(history, name)) for name in _AFTER_EACH_ROUND}
    # before the training, as uploads that fail are the exception
    spent = _measured.spent(setting, entry.played)
    training = {"scheme": entry.scheme.label, "seed": setting.config.seed}

    def report(metrics: dict[str, Any]) -> None:
        note(metrics)
        index = metrics["step"]
        record = {"step": index} | training | metrics
        # the sums are no longer those that were rolled out once an upload has failed
        if not metrics["failed_uploads"]:
            for name, path in paths.items():
                value = path[index].item()
                # strong T is -1 before the first sum, what clients are hidden among nan
                if not np.isnan(value) and (name != "strong_privacy" or value > 0):
                    record[name] = value
            record |= spent.get(index, {})
        for callback in callbacks:
            # a copy each, since a callback may change what it is given
            callback(dict(record))

    return report


def train_schemes(
    config: DemoConfig | TrainConfig,
    progress: Progress,
    checkpoints: Any = None,
    callbacks: Sequence[Callback] = (),
    early: Callable[[xr.Dataset], None] | None = None,
    logs: dict[str, str] | None = None,
) -> xr.Dataset:
    """Train every scheme of a study, and in a demo attack it.

    What a server can know of the participation does not depend on training: it is
    reported first.

    Args:
        config: The study.
        progress: Receives how far it is.
        checkpoints: Where a study of one scheme is saved and continued from, or None.
        callbacks: Each is called for every round of every scheme.
        early: Receives a data set before anything is trained, and again after each
            scheme; what is still to come is nan or missing.
        logs: Receives the participation log of each scheme, by label.

    Returns:
        The data set; how the trainings went is in its attribute `performance`, by
        scheme.

    Raises:
        DivergedError: If the learning rate makes a training diverge.
    """
    schemes = _config.schemes_of(config)
    labels = [scheme.label for scheme in schemes]
    axes = coordinates(labels, config.rounds, config.population.num_clients)
    entries: list[_Entry] = []
    with Compiling(config) as compiling:
        setting = setting_of(config, progress)
        available, rates = _build.build_online(
            config.seed, config.population, setting.clients
        )
        before = known_before(config, schemes, available, rates)
        # in the background, while the histories are rolled out
        compiling.rounds(setting, schemes)
        progress.stage("what the server can know", len(schemes))
        for scheme in schemes:
            played = play(setting, scheme, available, compiling.wait)
            entries.append(
                _Entry(
                    scheme,
                    played,
                    guaranteed(setting, scheme),
                    _quick_weak(config, played),
                )
            )
            progress.update(len(entries), len(schemes))
        _report_early(early, before, axes, entries, 0)
    finished = 0
    with contextlib.ExitStack() as stack:
        beside = ThreadPoolExecutor(1)  # a training leaves a core idle
        stack.callback(beside.shutdown, cancel_futures=True)
        _await_fairness(config, entries, available, beside)
        for number, entry in enumerate(entries, 1):
            is_last = number == len(entries)
            _train_one(setting, entry, checkpoints, callbacks, beside, is_last=is_last)
            if logs is not None:
                logs[entry.scheme.label] = log_of(setting, entry.played)
            # in order: a table shows the first schemes complete, not scattered ones
            while finished < number and (is_last or entries[finished].is_done):
                entries[finished].collect()
                finished += 1
                _report_early(early, before, axes, entries, finished)
    return _dataset(setting, entries, before, axes)


def _await_fairness(
    config: DemoConfig | TrainConfig,
    entries: Sequence[_Entry],
    available: Availability | None,
    beside: ThreadPoolExecutor,
) -> None:
    """Have F of eq. (6) computed of the schemes of which it takes about a second."""
    # it is unknown of clients who are lost inside rounds
    if available is None or not config.protocol.is_plain:
        return
    for entry in entries:
        selector = _build.build_selector(entry.scheme, config.population)
        if _build.is_fairness_quick(selector, available):
            entry.awaited["fairness"] = beside.submit(
                _build.expected_fairness, selector, available, config.seed
            )


def _fairness(columns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the variables of F of eq. (6); nan where it is not known, or not yet."""
    unknown = (np.nan, np.nan)
    return shares_variables([column.get("fairness", unknown) for column in columns])


def _known(before: dict[str, Any], entries: Sequence[_Entry]) -> dict[str, Any]:
    """Return the variables that do not depend on what was learnt."""
    histories = [history_values(entry.played.history, EVERYTHING) for entry in entries]
    lasting = kept_variable([entry.guaranteed for entry in entries])
    return before | lasting | study_variables(histories)


def _dataset(
    setting: Setting,
    entries: Sequence[_Entry],
    before: dict[str, Any],
    axes: dict[str, Any],
) -> xr.Dataset:
    """Return the data set of a study whose schemes are all trained."""
    import xarray as xr  # takes a second: not before the first round

    config = setting.config
    columns = [entry.values for entry in entries]
    variables = _known(before, entries)
    trained = _trained_variables(columns) | {"samples": ("client", setting.samples)}
    if setting.weights is not None:
        about = (
            "By how much each client's update was multiplied in the sums, and so in P"
        )
        trained["weights"] = ("client", setting.weights, {"description": about})
    if not config.protocol.is_plain:
        about = "Smallest client of the learnt sum that the client is in; nan: in none"
        trained["learnt_component"] = (
            ("scheme", "round", "client"),
            nan_if_negative(np.stack([column["components"] for column in columns])),
            {"description": about},
        )
    segments = entries[0].played.segments
    if segments is not None:
        trained |= segment_variables([entry.played for entry in entries])
        variables["upload_rate"] = ("client", segments.rates, {"units": "bit/s"})
    variables |= _fairness(columns)
    measured, more_axes = _measured.variables(config, columns)
    # the number of rounds that were done at each test
    evaluated = columns[0]["evaluated_rounds"] + 1
    return xr.Dataset(
        variables | trained | measured,
        coords=axes | more_axes | {"evaluation": evaluated},
        attrs={
            "performance": {
                entry.scheme.label: entry.values["performance"] for entry in entries
            }
        },
    )


def segment_variables(plays: Sequence[Played]) -> dict[str, Any]:
    """Return the variables of groups and segments in the rounds of each scheme."""
    facts = [played.segment_facts for played in plays if played.segments is not None]
    variables: dict[str, Any] = {}
    for name in facts[0]:
        dims = ("scheme", "round") if name.endswith("_by_round") else ("scheme",)
        variables[name] = dims, np.stack([np.asarray(values[name]) for values in facts])
    return variables


def _quick_weak(
    config: DemoConfig | TrainConfig, played: Played
) -> dict[str, np.ndarray]:
    """Return bounds on weak T after each round that take no search, for a demo."""
    if not isinstance(config, DemoConfig) or not played.is_plain:
        return {}
    bounds = _trial.quick_bounds(played.history, played.weights)
    return {} if bounds is None else dict(zip(_WEAK, bounds, strict=True))


def _report_early(
    early: Callable[[xr.Dataset], None] | None,
    before: dict[str, Any],
    axes: dict[str, Any],
    entries: Sequence[_Entry],
    finished: int,
) -> None:
    """Report the variables of all schemes, and what the first of them have learnt."""
    if early is None:
        return
    import xarray as xr

    first = entries[0].values
    columns = []
    for number, entry in enumerate(entries):
        column = {name: entry.values[name] for name in _WEAK if name in entry.values}
        for name in _LEARNT if finished else ():
            if number < finished and name in first:
                column[name] = entry.values[name]
            elif name in first:
                column[name] = np.full_like(first[name], np.nan)
        columns.append(column)
    variables = _known(before, entries) | _trained_variables(columns)
    if finished:
        variables |= _fairness([entry.values for entry in entries])
    early(xr.Dataset(variables, coords=axes))


def _trained_variables(columns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    variables: dict[str, Any] = {
        name: (dims, np.stack([column[name] for column in columns]))
        for name, dims in _AXES.items()
        if name in columns[0]
    }
    for name, about in _WEAK.items():
        if name in columns[0]:
            bounds = nan_if_negative(np.stack([column[name] for column in columns]))
            variables[name] = (("scheme", *about.dims), bounds, about.facts)
    return variables


def _train_one(
    setting: Setting,
    entry: _Entry,
    checkpoints: Any,
    callbacks: Sequence[Callback],
    beside: ThreadPoolExecutor,
    *,
    is_last: bool,
) -> None:
    """Train and, in a demo, attack one scheme.

    Some variables are still computed `beside`, during the training of the next scheme.
    The rounds as they were trained are others than before if uploads have failed.
    """
    config, progress = setting.config, setting.progress
    label = entry.scheme.label
    training = training_of(setting, entry.scheme, entry.played)
    progress.stage(f"{label}: training", _trial.rounds_with_sums(entry.played.cohorts))
    stated = setting.stated_bytes(num_slots(entry.played))
    meter = Meter(progress, entry.played.updates_sent)
    result = federated.train(
        config.seed,
        training,
        memory_bytes=setting.memory_bytes,
        mesh=setting.mesh,
        checkpoints=checkpoints,
        progress=meter.update,
        callback=_reporter(setting, entry, meter.note_test, callbacks),
    )
    if result.diverged_round is not None:
        raise DivergedError(
            "`learning_rate` must let training converge; got "
            f"{config.training.learning_rate:g}, "
            f"with which {label} diverged in round {result.diverged_round + 1}",
            result.diverged_round,
            entry.played.history,
        )
    played = as_trained(setting, entry.played, result)
    # some uploads failed: what was computed before the training is of other sums
    if played is not entry.played:
        entry.played = played
        entry.guaranteed = guaranteed(setting, entry.scheme, result)
        entry.values = _quick_weak(config, played)
    entry.values |= {
        "evaluated_rounds": result.evaluated_rounds,
        "accuracy": result.accuracy,
        "loss": result.loss,
        "clipped_fraction": result.clipped_fraction,
        "failed_uploads": result.failed_uploads.sum(axis=1, dtype=np.int32),
        "status": result.status,
        "participation": result.participation,
        "components": result.components,
        "performance": meter.record(result.status, stated),
    }
    if config.aggregation.is_noisy:
        entry.values["noise"] = _measured.accounted(setting, result, played)
    if result.drift is not None:
        measure = in_context(_measured.measured)
        # one worker thread, so this is done before the attack that follows
        entry.awaited["drift"] = beside.submit(measure, result.drift, played)
    if isinstance(config, TrainConfig):
        if played.is_plain:
            progress.stage(f"{label}: weak T", 1)
            bounds = _trial.weak_bounds(played.history, played.weights)
            if bounds is not None:
                entry.values |= dict(zip(_WEAK, bounds, strict=True))
        return

    def attack(progress: Progress) -> np.ndarray:
        return _attack(setting, entry, training, result.parameters, progress)

    # two programs over all devices would wait for each other
    if is_last or setting.mesh is not None:
        entry.values["reconstruction_error"] = attack(progress)
    else:
        # silent: the next training reports its progress meanwhile
        future = beside.submit(in_context(attack), Silent())
        entry.awaited["reconstruction_error"] = future


def _attack(
    setting: Setting,
    entry: _Entry,
    training: federated.Training,
    parameters: np.ndarray,
    progress: Progress,
) -> np.ndarray:
    """Attack the learnt sums, with the trained model frozen."""
    config, played = setting.config, entry.played
    rows = played.history.participation
    rounds = None
    if played.rounds is not None and played.segments is None:
        # a round with dropouts may reveal several sums, or none
        rows, rounds = selection.learnt_rows(played.rounds)
    progress.stage(f"{entry.scheme.label}: attack", _trial.rounds_with_sums(rows))
    frozen = _frozen.Frozen(config.seed, training, parameters)
    if played.segments is not None:
        return _frozen.attack_segments(
            frozen,
            played.segments,
            played.cohorts,
            played.sums,
            config.aggregation,
            progress.update,
        )
    aggregator = _build.build_aggregator(
        _config.secret_seed(config, entry.scheme.label, "attack"),
        _build.for_attack(config.aggregation),
        int(rows.sum(axis=1).max(initial=2)),
        len(parameters),
        samples=setting.samples,
        cohort_size=config.population.cohort_size,
    )
    return _frozen.attack_whole(
        frozen, rows, aggregator, progress.update, rounds=rounds, mesh=setting.mesh
    )
