"""What a study tells of its trainings while they run, and where it is written.

Selection does not look at the updates: what a server can know after each round, and what noise
has cost by then, is worked out before the training, and told with it.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mrsa_jax import federated
from mrsa_jax.study import _noise
from mrsa_jax.study._config import DemoConfig, Scheme, TrackerName, TrainConfig
from mrsa_jax.study._training_setting import Played

Callback = Callable[[dict[str, Any]], None]

MAKERS: dict[TrackerName, Callable[[pathlib.Path], Any]] = {
    "json_lines": lambda folder: federated.json_lines(folder / "metrics.jsonl"),
    "tensorboard": lambda folder: federated.tensorboard(folder / "tensorboard"),
    "wandb": lambda folder: federated.wandb(folder),
}
_AFTER_EACH_ROUND = (
    "strong_privacy",
    "exposed_clients",
    "hidden_among_worst",
    "hidden_among_median",
    "fairness_gap",
    "aggregation_cardinality",
)


@contextlib.contextmanager
def trackers(names: Sequence[TrackerName], folder: pathlib.Path) -> Iterator[list[Callback]]:
    """Give what writes metrics into a folder, and close it at the end, however that comes.

    Raises:
        ConfigurationError: Before anything is written, if a library is not installed.
    """
    with contextlib.ExitStack() as stack:
        made = [MAKERS[name](folder) for name in names]
        for one in made:
            stack.callback(one.close)
        yield made


def teller(
    config: DemoConfig | TrainConfig,
    scheme: Scheme,
    played: Played,
    dim: int,
    note: Callback,
    callbacks: Sequence[Callback],
) -> Callback:
    """Return what tells callbacks all that is known of a scheme's rounds.

    Args:
        config: The study.
        scheme: The scheme that is trained.
        played: Its rounds.
        dim: d, length of an update.
        note: Is told of the training alone.
        callbacks: Each is given a dictionary of its own.
    """
    if not callbacks:
        return note
    history = played.history
    known = {name: np.asarray(getattr(history, name)) for name in _AFTER_EACH_ROUND}
    spent = _spent(config, played, dim)

    def tell(metrics: dict[str, Any]) -> None:
        note(metrics)
        index = metrics["step"]
        own = {name: path[index].item() for name, path in known.items()}
        own = {name: value for name, value in own.items() if not _is_missing(name, value)}
        who = {"step": index, "scheme": scheme.label, "seed": config.seed}
        for callback in callbacks:
            callback(who | metrics | own | spent.get(index, {}))

    return tell


def _is_missing(name: str, value: int | float) -> bool:
    """Return whether a round has no such value: nothing was learnt yet."""
    return bool(np.isnan(value)) or (name == "strong_privacy" and value < 1)


def _spent(
    config: DemoConfig | TrainConfig, played: Played, dim: int
) -> dict[int, dict[str, float]]:
    """Return the clients' epsilons after each tested round; none without noise."""
    if not config.aggregation.is_noisy:
        return {}
    every, last = config.training.evaluate_every, config.rounds - 1
    tests = np.union1d(np.arange(every - 1, config.rounds, every), [last])
    paths = zip(*_noise.over_tests(config, dim, played, tests), strict=True)
    return {
        int(index): dict(zip(_noise.BY_TEST, map(float, own), strict=True))
        for index, own in zip(tests, paths, strict=True)
    }
