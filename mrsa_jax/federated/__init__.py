"""Federated training in which a cohort's local training is one vectorised pure function.

What needs flax loads when first used: commands that train nothing do not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names

if TYPE_CHECKING:
    from mrsa_jax.federated._checkpoint import checkpoints
    from mrsa_jax.federated._convolutional import cnn, lenet, smooth_lenet, vgg11
    from mrsa_jax.federated._drift import Drift, measure_drift
    from mrsa_jax.federated._local import LocalSGD, LocalTrainer, client_updates, local_sgd
    from mrsa_jax.federated._many import train_many
    from mrsa_jax.federated._memory import memory_estimate
    from mrsa_jax.federated._models import (
        initial_parameters,
        logistic,
        mlp,
        num_parameters,
        unflatten,
    )
    from mrsa_jax.federated._run import TrainingResult
    from mrsa_jax.federated._schedule import RateSchedule, decay_at
    from mrsa_jax.federated._server import evaluate
    from mrsa_jax.federated._tracking import json_lines, tensorboard, wandb
    from mrsa_jax.federated._train import train

__all__ = [
    "Drift",
    "LocalSGD",
    "LocalTrainer",
    "RateSchedule",
    "TrainingResult",
    "checkpoints",
    "client_updates",
    "cnn",
    "decay_at",
    "evaluate",
    "initial_parameters",
    "json_lines",
    "lenet",
    "local_sgd",
    "logistic",
    "measure_drift",
    "memory_estimate",
    "mlp",
    "num_parameters",
    "smooth_lenet",
    "tensorboard",
    "train",
    "train_many",
    "unflatten",
    "vgg11",
    "wandb",
]

__getattr__, __dir__ = late_names(__name__)
