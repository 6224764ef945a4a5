"""Federated training in which a cohort's local training is one vectorised pure function."""

from mrsa_jax.federated._local import LocalSGD, LocalTrainer, client_updates, local_sgd
from mrsa_jax.federated._models import (
    initial_parameters,
    lenet,
    logistic,
    mlp,
    num_parameters,
    unflatten,
)
from mrsa_jax.federated._server import Evaluation, evaluate
from mrsa_jax.federated._train import TrainingResult, train

__all__ = [
    "Evaluation",
    "LocalSGD",
    "LocalTrainer",
    "TrainingResult",
    "client_updates",
    "evaluate",
    "initial_parameters",
    "lenet",
    "local_sgd",
    "logistic",
    "mlp",
    "num_parameters",
    "train",
    "unflatten",
]
