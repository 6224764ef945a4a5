"""Compile the programs of a study in other threads, while its own has other work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from mrsa_jax import attacks, federated, privacy
from mrsa_jax._core.device import platform
from mrsa_jax._core.programs import LITTLE
from mrsa_jax._core.selector import cohort_size_of
from mrsa_jax._core.threads import in_context
from mrsa_jax.study.runs import _build, _trial
from mrsa_jax.study.runs._training_setting import (
    Setting,
    plain_aggregator,
    shared_training,
)
from mrsa_jax.study.settings._config import DemoConfig, Scheme, TrainConfig

_LATE = {
    attacks: "least_squares reconstruction_error",
    federated: "client_updates memory_estimate train",
    privacy: "strong_privacy_trajectory hidden_among_trajectory first_exposure "
    "information hidden_among hidden_among_mates",
}
"""Functions that a study uses of each family, which loads them at first use."""


class Compiling:
    """Compiles on other cores than the block's own, by work that is thrown away.

    First the programs that analyse a history, then those that train. An error there
    comes again where the result is needed. Where accelerators run many rounds as one
    program, or cohorts have no fixed size, the first round compiles.
    """

    def __init__(self, config: DemoConfig | TrainConfig) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._started: list[Future[Any]] = []
        is_plain = config.protocol.is_plain and config.hetero.is_plain
        self._is_of_use = platform() == "cpu" and is_plain
        rounds, clients = config.rounds, config.population.num_clients
        _import_all(config)
        if self._is_of_use and rounds * clients <= LITTLE:
            # the first history exposes a client, the second none; empty rounds take no
            # time
            few = np.zeros((rounds, clients), np.bool_)
            few[0, : config.population.cohort_size] = True
            few[-1, 0] = True
            self._start(privacy.first_exposure, _trial.filled_up(few[None]))
            self._start(_trial.analyse, np.ones_like(few))
        self._analysed = list(self._started)

    def _start(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._started.append(self._pool.submit(in_context(work), *arguments))

    def wait(self) -> None:
        """Wait for the programs of the analysis, and import xarray meanwhile."""
        import xarray as _xarray

        del _xarray
        wait(self._analysed)

    def rounds(self, setting: Setting, schemes: Sequence[Scheme]) -> None:
        """Compile the training of rounds, by one round of each size of a cohort."""
        if not self._is_of_use:
            return
        population = setting.config.population
        selectors = [_build.build_selector(scheme, population) for scheme in schemes]
        for size in {cohort_size_of(selector) for selector in selectors} - {None}:
            self._start(self._round, setting, size)

    def _round(self, setting: Setting, size: int) -> None:
        """Train one round as all rounds are trained."""
        wait(self._analysed)  # the cores are for the first table until then
        config = setting.config
        setting.stated_bytes(size)
        history = np.zeros((1, config.population.num_clients), np.bool_)
        history[0, :size] = True
        federated.train(
            config.seed,
            shared_training(
                setting, history, plain_aggregator(setting, size, "compiling")
            ),
            memory_bytes=setting.memory_bytes,
            mesh=setting.mesh,
        )

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is None:
            wait(self._started)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _import_all(config: DemoConfig | TrainConfig) -> None:
    """Import what loads at its first use.

    Two threads that import at once may break Python 3.11's parser.
    """
    from mrsa_jax._core import chacha20_loops as _chacha20_loops

    del _chacha20_loops
    _build.build_server(config.training)
    for family, names in _LATE.items():
        for name in names.split():
            getattr(family, name)
