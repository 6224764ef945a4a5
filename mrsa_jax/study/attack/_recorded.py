"""The recorded run of a training, whose rounds are repeated to attack their sums."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from mrsa_jax import attacks, data, federated
from mrsa_jax._core.pytrees import pytree
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.runs import _build
from mrsa_jax.study.settings._config import TrainConfig, parse_scheme, secret_seed
from mrsa_jax.study.settings._load import load_config
from mrsa_jax.study.stores._store import open_results
from mrsa_watch._base.errors import ConfigurationError, require


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run of `mrsa-jax train` whose sums follow from its settings.

    Attributes:
        settings: Of the run.
        label: Of its scheme.
        history: bool [rounds, clients], who was in each round's sum.
        dataset: Its data.
        clients: The samples of each client.
        model: Flax module.
        start: f32 [d], the first global model.
    """

    settings: TrainConfig
    label: str
    history: np.ndarray
    dataset: data.Dataset
    clients: data.ClientData
    model: Any
    start: Any

    @classmethod
    def read(cls, folder: pathlib.Path) -> RecordedRun:
        """Read the folder of a complete run.

        Raises:
            ConfigurationError: If it is none, or its sums depend on more than its
                settings.
        """
        history = stored_history(folder)
        settings = repeated_settings(folder)
        dataset, clients = _build.build_clients(
            settings.seed, settings.data, settings.population.num_clients
        )
        model = _build.build_model(settings.training, dataset)
        start = federated.initial_parameters(
            settings.seed, model, dataset.train_inputs.shape[1:]
        )
        label = parse_scheme(settings.scheme).label
        return cls(settings, label, history, dataset, clients, model, start)

    @property
    def trainer(self) -> Any:
        """Return how its clients train."""
        return _build.build_trainer(self.settings.training, self.model)

    @property
    def of_shadows(self) -> Any:
        """Return how shadow clients train: they clip their updates as clients do."""
        norm = self.settings.aggregation.clip_norm
        return self.trainer if norm is None else _Clipped(self.trainer, norm)

    def summed(self, progress: Progress, window: int | None = None) -> Any:
        """Repeat the rounds, as the store does not keep the sums.

        Args:
            progress: Receives how far it is.
            window: Keep only this many sums, the latest.
        """
        settings, history = self.settings, self.history
        width = max(2, int(history.sum(axis=1).max(initial=2)))
        aggregator = _build.build_aggregator(
            secret_seed(settings, self.label, "attack"),
            _build.for_attack(settings.aggregation),
            width,
            len(self.start),
            cohort_size=settings.population.cohort_size,
        )
        words = f"{self.label}: training again"
        progress.stage(words, int(history.any(axis=1).sum()))
        return attacks.summed_rounds(
            settings.seed,
            self.model,
            self.start,
            self.clients,
            history,
            trainer=self.trainer,
            aggregator=aggregator,
            # rounds before the window train the model, but their sums are not kept
            warm_up=0 if window is None else _window_start(history, window),
            rate_schedule=_build.build_rate_schedule(settings.training),
            progress=progress.update,
        )


@pytree
class _Clipped:
    """Local training whose update is shortened to a norm.

    Attributes:
        trainer: Local training.
        norm: The largest length of an update.
    """

    trainer: Any
    norm: Any

    def update(self, *of_client: Any) -> Any:
        """Return an update; arguments as of the trainer."""
        moved = self.trainer.update(*of_client)
        return moved * (self.norm / jnp.maximum(jnp.linalg.norm(moved), self.norm))

    def scaled(self, factor: float) -> _Clipped:
        """Return it with another learning rate."""
        return _Clipped(self.trainer.scaled(factor), self.norm)


def check_pixels(data: Any, argument: str) -> None:
    """Refuse data whose pixels do not lie between 0 and 1, where images are sought."""
    rule = "must be of data without --normalise: images are sought between 0 and 1"
    require(not data.normalise, argument, rule, data.normalise)


def settings_of(folder: pathlib.Path) -> TrainConfig:
    """Return the settings of a run.

    Raises:
        ConfigurationError: If the folder has none of a training.
    """
    try:
        return load_config(TrainConfig, folder / "config.toml")
    except ConfigurationError as error:
        why = str(error).replace("`config` must", "its config.toml must")
        raise ConfigurationError(
            f"`run` must be the folder of a complete run of `mrsa-jax train`: {why}"
        ) from error


def repeated_settings(folder: pathlib.Path) -> TrainConfig:
    """Return the settings of a run whose sums can be repeated, or raise."""
    settings = settings_of(folder)
    reasons = ", ".join(_not_repeated(settings))
    rule = (
        "must be of plain averaging over a complete graph to be repeated, because its "
        f"store keeps no sums, and this run has {reasons}; train a "
        "federated.Training(..., keep_aggregates=True), and attack its sums"
    )
    require(not reasons, "run", rule, str(folder))
    return settings


def bytes_to_repeat(folder: pathlib.Path) -> tuple[int, int, int]:
    """Return the bytes of a run's repeated rounds, its parameters and activations."""
    run = settings_of(folder)
    source = run.data.dataset, run.data.directory, run.seed
    pool, shape, classes = _stage.data_of(*source)
    dim = _stage.dim_of(run.training.model, shape, classes)
    # sums one by one and stacked; totals, means and squares of what was sent
    kept = 8 * dim * (2 * run.rounds + 3 * run.population.num_clients)
    trained = 4 * dim * _stage.IN_A_ROUND * run.population.cohort_size
    entries = _stage.activations(run.training.model, shape, classes)
    return pool + kept + trained, dim, entries


def stored_history(folder: pathlib.Path) -> np.ndarray:
    """Return who was in each round's sum of a run, with weights if it has them."""
    stored = open_results(folder)
    rule = (
        "must be the folder of a `mrsa-jax train`, which has `participation` in its "
        "store"
    )
    is_run = "participation" in stored and stored.sizes["scheme"] == 1
    require(is_run, "run", rule, str(folder))
    rows = np.asarray(stored["participation"].to_numpy()[0], np.bool_)
    return with_weights(
        rows, stored["weights"].to_numpy() if "weights" in stored else None
    )


def history_of_sums(folder: pathlib.Path) -> np.ndarray:
    """Return who was in each sum of a run, one for each round.

    Raises:
        ConfigurationError: If it is no run, or a round has several sums.
    """
    run = settings_of(folder)
    rule = (
        "must be of one sum per round: a round has several with segments, and with a "
        "graph that can become disconnected"
    )
    is_one = run.hetero.is_plain and _build.is_connected(run.protocol)
    require(is_one, "run", rule, str(folder))
    return stored_history(folder)


def labelled_history(folder: pathlib.Path) -> tuple[str, np.ndarray]:
    """Return the label of a run's scheme, and who was in each round's sum.

    Raises:
        ConfigurationError: If it is no run, a round has several sums, or they have
            weights.
    """
    history = history_of_sums(folder)
    rule = "must be of sums without weights"
    require(history.dtype == np.bool_, "run", rule, str(folder))
    return parse_scheme(settings_of(folder).scheme).label, history


def noise_of(folder: pathlib.Path) -> float:
    """Return the standard deviation of the noise in a sum of a run without losses.

    It is 0 without noise; the part of a client is one in the cohort's clients.
    """
    sums = settings_of(folder).aggregation
    return sums.noise_multiplier * float(sums.clip_norm or 0.0)


def noise_words(folder: pathlib.Path) -> list[str]:
    """Report the noise in the sums of a run, if it has any."""
    noise = noise_of(folder)
    return [text_of("noise_of_run").format(noise=noise)] if noise > 0 else []


def _not_repeated(trained: TrainConfig) -> list[str]:
    """Return the settings of a run whose sums do not follow from its settings alone."""
    training, aggregation = trained.training, trained.aggregation
    is_there = {
        "a graph, a threshold or lost clients": not trained.protocol.is_plain,
        f"segments = {trained.hetero.segments}": not trained.hetero.is_plain,
        "weighted = true": aggregation.weighted,
        f"clip_rule = {aggregation.clip_rule}": aggregation.clip_rule != "fixed",
        f"server = {training.server}": training.server != "average",
        f"server_learning_rate = {training.server_learning_rate}": (
            training.server_learning_rate not in (None, 1.0)
        ),
        f"trainer = {training.trainer}": training.trainer == "scaffold",
    }
    return [words for words, holds in is_there.items() if holds]


def _window_start(history: np.ndarray, length: int) -> int:
    """Return the round from which the last `length` sums are."""
    rows = np.flatnonzero(history.any(axis=1))
    require(
        length <= len(rows),
        "window",
        "must be no longer than the history",
        length,
        len(rows),
    )
    return int(rows[len(rows) - length])
