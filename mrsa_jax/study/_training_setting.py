"""What the trainings of a study share, and what each is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax import federated
from mrsa_jax._device import platform
from mrsa_jax._memory import memory_words
from mrsa_jax._streams import as_key
from mrsa_jax.study import _build
from mrsa_jax.study._config import DemoConfig, Scheme, TrainConfig, secret_seed
from mrsa_jax.study._mechanism import code_dim
from mrsa_jax.study._played import Played
from mrsa_jax.study._progress import Progress, note


@dataclasses.dataclass
class Setting:
    """What the trainings of all schemes share."""

    config: DemoConfig | TrainConfig
    dataset: Any
    clients: Any
    model: Any
    trainer: Any
    dim: int
    mesh: Any
    progress: Progress
    stated: dict[int, int] = dataclasses.field(default_factory=dict)  # peak bytes by slots

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

    def stated_bytes(self, num_slots: int) -> int:
        """Return the peak memory of a training before it runs: the CPU's, or each device's."""
        if num_slots not in self.stated:
            needed = federated.memory_estimate(
                self.model, self.clients, trainer=self.trainer, cohort_size=num_slots,
                num_rounds=self.config.rounds, test=self.test, mesh=self.mesh,
                code_dim=code_dim(
                    self.config.aggregation, not self.config.hetero.is_plain, self.dim
                ),
            ).peak_bytes  # fmt: skip
            bound = self.memory_bytes
            within = needed if bound is None else min(needed, bound)
            self.stated[num_slots] = within * self.sharing
            words = memory_words(
                self.stated[num_slots], "cohort_size", num_slots, "cohort_size or the model"
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
    work = _build.work_of_round(config.population, clients, dim)
    return Setting(
        config=config,
        dataset=dataset,
        clients=clients,
        model=model,
        trainer=_build.build_trainer(config.training, model),
        dim=dim,
        mesh=_build.build_mesh(config.resources, work),
        progress=progress,
    )


def arguments(setting: Setting, scheme: Scheme, played: Played) -> dict[str, Any]:
    """Return what a training is given of its own, by the names of `federated.train`."""
    own = shared_arguments(setting, played.to_train, _aggregator(setting, scheme, played))
    return own | {"slot_order": None if played.segments is None else played.segments.order}


def shared_arguments(setting: Setting, participation: Any, aggregator: Any) -> dict[str, Any]:
    """Return what `federated.train` is given of a study's settings, and these two."""
    training = setting.config.training
    return {
        "seed": as_key(setting.config.seed),
        "client_data": setting.clients,
        "participation": participation,
        "trainer": setting.trainer,
        "aggregator": aggregator,
        "server": _build.build_server(training),
        "rate_schedule": _build.build_rate_schedule(training),
        "weights": setting.weights,
        "test": setting.test,
        "evaluate_every": training.evaluate_every,
    }


def num_slots(played: Played) -> int:
    """Return how many participants the aggregator of a scheme has room for."""
    if played.segments is not None:
        return int(played.segments.layout.num_participants)
    most = int(played.history.participation.sum(axis=1).max(initial=2))
    return most if played.rule is None else int(played.rule.num_participants)


def _aggregator(setting: Setting, scheme: Scheme, played: Played) -> Any:
    config = setting.config
    secret = secret_seed(config, scheme.label)
    if played.segments is not None:
        rule = _build.CLIP_RULES[config.aggregation.clip_rule](config.aggregation)
        return played.segments.aggregator(secret, config.aggregation, rule)
    return plain_aggregator(setting, num_slots(played), scheme.label, rule=played.rule)


def plain_aggregator(setting: Setting, num_slots: int, *names: str, rule: Any = None) -> Any:
    """Return the aggregator of a training without segments, with pads of these names."""
    config = setting.config
    return _build.build_aggregator(
        secret_seed(config, *names), config.aggregation, num_slots, setting.dim,
        rule=rule, samples=setting.samples, cohort_size=config.population.cohort_size,
    )  # fmt: skip
