"""Run a study from its configuration: roll out, analyse, train, attack, and write it down."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np

from mrsa_jax import federated, plotting, selection
from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax._streams import as_key
from mrsa_jax.study import _build, _report, _segments, _store, _summary, _trial
from mrsa_jax.study._config import (
    Config,
    DemoConfig,
    PopulationConfig,
    Scheme,
    SimulateConfig,
    TrainConfig,
    schemes_of,
)
from mrsa_jax.study._played import Played, play, segments_of
from mrsa_jax.study._validate import validate

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Progress", "SavedStudy", "check", "run", "run_and_save"]

_TRIALS_AT_ONCE = 25


@runtime_checkable
class Progress(Protocol):
    """Receives how far a study is; the command line draws it."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` steps."""
        ...

    def update(self, done: int, total: int) -> None:
        """Say how many steps of the stage are done."""
        ...


class _Silent:
    def stage(self, name: str, total: int) -> None:
        pass

    def update(self, done: int, total: int) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class SavedStudy:
    """A study that has run and is on disk.

    Attributes:
        results: Its data set.
        rows: Its table, a row for each scheme.
        sentences: What the table shows, in words.
        out: Its folder.
    """

    results: xr.Dataset
    rows: tuple[_summary.Row, ...]
    sentences: tuple[str, ...]
    out: pathlib.Path


def check(config: Config) -> None:
    """Reject everything that can be rejected before work: settings, data set, output folder.

    Raises:
        ConfigurationError: For a setting that breaks a rule or an unknown data set.
        DataNotFoundError: If the data set is not on this machine.
        OutputExistsError: If the output folder holds something else.
    """
    validate(config)
    _store.check_output(config)
    for scheme in schemes_of(config):
        _build.build_rule(config.protocol, scheme, config.population)
        if not isinstance(config, SimulateConfig):
            segments_of(config, scheme, dim=config.hetero.num_columns)
    if not isinstance(config, SimulateConfig):
        from mrsa_jax import data

        name = config.data.dataset
        known = (*data.SOURCES, "tfds:NAME")
        if name not in data.SOURCES and not name.startswith("tfds:"):
            raise ConfigurationError(
                f"`dataset` must be a known data set; got {name!r}; {nearest(name, known)}"
            )


def run(config: Config, progress: Progress | None = None) -> xr.Dataset:
    """Run a study and return its results, without writing anything.

    Args:
        config: `DemoConfig`, `SimulateConfig` or `TrainConfig`.
        progress: Receives how far it is.

    Returns:
        Data set with axes `scheme`, `round` (counted from 0), `client`, and `trial` (simulate) or
        `evaluation` (rounds after which the model was tested). Entry j of a trajectory is the
        state after round j.

    Raises:
        ConfigurationError: As `check`.

    Examples:
        >>> config = SimulateConfig(rounds=8, trials=2, schemes=("uniform",))
        >>> run(config).sizes["trial"]
        2
    """
    check(config)
    progress = progress or _Silent()
    if isinstance(config, SimulateConfig):
        return _simulate(config, progress)
    return _train_schemes(config, progress)


def run_and_save(config: Config, progress: Progress | None = None) -> SavedStudy:
    """Run a study and write store, figures with their data, and report to `config.out`.

    The folder appears complete or not at all. Arguments and errors as for `run`.
    """
    check(config)
    with _store.study_folder(config) as folder:
        results = run(config, progress)
        rows = _summary.summarise(results)
        words = _summary.sentences(results)
        folder.write_results(results)
        figures = plotting.save_study_figures(results, folder.path)
        _report.write_report(folder.path, folder.manifest, rows, words, figures)
    return SavedStudy(results, rows, words, config.out)


def _coordinates(schemes: tuple[Scheme, ...], rounds: int, num_clients: int) -> dict[str, Any]:
    return {
        "scheme": [scheme.label for scheme in schemes],
        "round": np.arange(rounds),
        "client": np.arange(num_clients),
    }


def _rates_and_expectations(
    seed: int, population: PopulationConfig, schemes: tuple[Scheme, ...]
) -> dict[str, Any]:
    rates = _build.build_rates(seed, population)
    expected = [_build.expected_cardinality(s, population, rates) for s in schemes]
    return {
        "dropout_rate": ("client", rates, {"units": "1"}),
        "expected_cardinality": ("scheme", np.array([mean for mean, _ in expected])),
        "cardinality_deviation": ("scheme", np.array([deviation for _, deviation in expected])),
    }


def _without_expectation(shared: dict[str, Any]) -> dict[str, Any]:
    """Return the shared variables, of C no expectation: losses inside rounds have none here."""
    names = ("expected_cardinality", "cardinality_deviation")
    return shared | {name: ("scheme", np.full_like(shared[name][1], np.nan)) for name in names}


def _history_variables(histories: list[_trial.History], *axes: str) -> dict[str, Any]:
    def stack(name: str, *dims: str) -> tuple[tuple[str, ...], np.ndarray]:
        return (("scheme", *axes, *dims), np.stack([getattr(h, name) for h in histories]))

    return {
        "strong_privacy": stack("strong_privacy", "round"),
        "rank": stack("rank", "round"),
        "exposed_clients": stack("exposed_clients", "round"),
        "first_exposure": stack("first_exposure", "client"),
        "fairness_gap": stack("fairness_gap", "round"),
        "aggregation_cardinality": stack("aggregation_cardinality", "round"),
        "skipped": stack("skipped", "round"),
    }


def _simulate(config: SimulateConfig, progress: Progress) -> xr.Dataset:
    import xarray as xr

    schemes = schemes_of(config)
    population = config.population
    shared = _rates_and_expectations(config.seed, population, schemes)
    available = _build.build_availability(shared["dropout_rate"][1])
    histories, statuses = [], []
    for scheme in schemes:
        progress.stage(scheme.label, config.trials)
        selector = _build.build_selector(scheme, population)
        rule = _build.build_rule(config.protocol, scheme, population)
        if rule is not None:
            steps = _build.build_steps(config.protocol)
            rounds = jax.device_get(
                selection.rollout_rounds(
                    config.seed, selector, available, steps, config.rounds,
                    rule=rule, num_trials=config.trials,
                )._replace(assignment_keys=None)
            )  # fmt: skip
            statuses.append(rounds.status)
            histories.append(_analyse_trials(rounds, progress))
            continue
        participation = _trial.learnt_sums(
            selection.rollout_trials(config.seed, selector, available, config.rounds, config.trials)
        )
        parts = []
        for start in range(0, config.trials, _TRIALS_AT_ONCE):
            parts.append(_trial.analyse(participation[start : start + _TRIALS_AT_ONCE]))
            progress.update(min(start + _TRIALS_AT_ONCE, config.trials), config.trials)
        histories.append(_concatenate(parts))
    coordinates = _coordinates(schemes, config.rounds, population.num_clients)
    lossy: dict[str, Any] = {}
    if statuses:
        lossy["status"] = (("scheme", "trial", "round"), np.stack(statuses))
        shared = _without_expectation(shared)
    return xr.Dataset(
        shared | _history_variables(histories, "trial") | lossy,
        coords=coordinates | {"trial": np.arange(config.trials)},
    )


def _analyse_trials(rounds: selection.RoundHistory, progress: Progress) -> _trial.History:
    """Analyse trials one by one: how many sums a round gives differs."""
    trials = len(rounds.status)
    parts = []
    for b in range(trials):
        own: Any = jax.tree.map(lambda leaf, b=b: leaf[b], rounds)
        parts.append(_trial.analyse_rounds(own))
        progress.update(b + 1, trials)
    names = [field.name for field in dataclasses.fields(_trial.History)]
    return _trial.History(**{name: np.stack([getattr(p, name) for p in parts]) for name in names})


def _concatenate(parts: list[_trial.History]) -> _trial.History:
    names = [field.name for field in dataclasses.fields(_trial.History)]
    return _trial.History(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def _train_schemes(config: DemoConfig | TrainConfig, progress: Progress) -> xr.Dataset:
    import xarray as xr

    schemes = schemes_of(config)
    population = config.population
    dataset, clients = _build.build_clients(config.seed, config.data, population.num_clients)
    model = _build.build_model(config.training, dataset)
    shared = _rates_and_expectations(config.seed, population, schemes)
    available = _build.build_availability(shared["dropout_rate"][1])
    dim = federated.num_parameters(model, dataset.train_inputs.shape[1:])
    played = [play(config, scheme, available, dim) for scheme in schemes]
    columns: list[dict[str, Any]] = []
    for scheme, one in zip(schemes, played, strict=True):
        columns.append(_train_one(config, scheme, one, dataset, clients, model, progress))
    evaluations = columns[0]["evaluated_rounds"] + 1
    trained = {
        "participation": (
            ("scheme", "round", "client"),
            np.stack([c["participation"] for c in columns]),
        ),
        "status": (("scheme", "round"), np.stack([c["status"] for c in columns])),
        "accuracy": (("scheme", "evaluation"), np.stack([c["accuracy"] for c in columns])),
        "loss": (("scheme", "evaluation"), np.stack([c["loss"] for c in columns])),
        "clipped_fraction": (("scheme", "round"), np.stack([c["clipped"] for c in columns])),
        "samples": ("client", np.asarray(clients.sizes)),
    }
    if isinstance(config, DemoConfig):
        errors = np.stack([column["reconstruction_error"] for column in columns])
        trained["reconstruction_error"] = (("scheme", "client"), errors)
    if not config.protocol.is_plain:
        learnt = np.stack([c["components"] for c in columns])
        trained["learnt_component"] = (("scheme", "round", "client"), learnt)
        shared = _without_expectation(shared)
    segmented = [one.segments for one in played if one.segments is not None]
    if segmented:
        facts = [own.facts() for own in segmented]
        trained |= {name: ("scheme", np.asarray([own[name] for own in facts])) for name in facts[0]}
        shared = shared | {"upload_rate": ("client", segmented[0].rates, {"units": "bit/s"})}
    coordinates = _coordinates(schemes, config.rounds, population.num_clients)
    return xr.Dataset(
        shared | _history_variables([one.history for one in played]) | trained,
        coords=coordinates | {"evaluation": evaluations},
    )


def _train_one(
    config: DemoConfig | TrainConfig,
    scheme: Scheme,
    played: Played,
    dataset: Any,
    clients: Any,
    model: Any,
    progress: Progress,
) -> dict[str, Any]:
    """Train and, in a demo, attack one scheme; return what goes into the data set."""
    trainer = _build.build_trainer(config.training, model)
    dim = federated.num_parameters(model, dataset.train_inputs.shape[1:])
    samples = np.asarray(clients.sizes)
    weights = samples if config.aggregation.weighted else None
    progress.stage(f"{scheme.label}: training", played.num_trained)
    result = federated.train(
        as_key(config.seed),
        model,
        clients,
        played.to_train,
        trainer=trainer,
        aggregator=_aggregator(config, played, dim, samples),
        slot_order=None if played.segments is None else played.segments.order,
        weights=weights,
        test=(dataset.test_inputs, dataset.test_labels),
        evaluate_every=config.training.evaluate_every,
        progress=progress.update,
    )
    if result.diverged_round is not None:
        raise ConfigurationError(
            f"`learning_rate` must let training converge; got {config.training.learning_rate:g}, "
            f"with which {scheme.label} diverged in round {result.diverged_round}"
        )
    column = {
        "evaluated_rounds": np.asarray(result.evaluated_rounds),
        "accuracy": np.asarray(result.accuracy),
        "loss": np.asarray(result.loss),
        "clipped": np.asarray(result.clipped_fraction),
        "status": np.asarray(result.status),
        "participation": result.participation,
        "components": result.components,
    }
    if isinstance(config, DemoConfig):
        column["reconstruction_error"] = _attack(
            config, scheme, played, clients, model, result.parameters, trainer, progress
        )
    return column


def _aggregator(
    config: DemoConfig | TrainConfig, played: Played, dim: int, samples: np.ndarray
) -> Any:
    if played.segments is not None:
        rule = _build.CLIP_RULES[config.aggregation.clip_rule](config.aggregation)
        return played.segments.aggregator(config.seed, config.aggregation, rule)
    most = int(played.history.participation.sum(axis=1).max(initial=2))
    width = most if played.rule is None else played.rule.num_participants
    return _build.build_aggregator(
        config.seed, config.aggregation, width, dim, rule=played.rule, samples=samples
    )


def _attack(
    config: DemoConfig,
    scheme: Scheme,
    played: Played,
    clients: Any,
    model: Any,
    parameters: Any,
    trainer: Any,
    progress: Progress,
) -> np.ndarray:
    """Attack what was learnt, with the trained model frozen."""
    rows, rounds = played.history.participation, None
    if played.segments is not None:
        progress.stage(f"{scheme.label}: attack", _trial.rounds_with_sums(rows))
        return _segments.attack_segments(
            config.seed, model, parameters, clients, played.segments, played.cohorts, played.sums,
            trainer=trainer, clip=config.aggregation.clip, progress=progress.update,
        )  # fmt: skip
    if played.rounds is not None:
        rows, rounds = selection.learnt_rows(played.rounds)
    progress.stage(f"{scheme.label}: attack", _trial.rounds_with_sums(rows))
    samples = np.asarray(clients.sizes)
    frozen = _build.for_attack(config.aggregation)
    return _trial.attack_frozen(
        config.seed,
        model,
        parameters,
        clients,
        rows,
        trainer=trainer,
        aggregator=_build.build_aggregator(
            config.seed, frozen, int(rows.sum(axis=1).max(initial=2)), len(parameters),
            samples=samples,
        ),
        rounds=rounds,
        weights=samples if config.aggregation.weighted else None,
        progress=progress.update,
    )  # fmt: skip
