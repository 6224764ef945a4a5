"""Attack as a malicious server: send one client the model, others a silent one."""

from __future__ import annotations

import math
from typing import Any

from mrsa_jax import attacks, federated, quantize
from mrsa_jax._core.streams import as_key
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress, steps
from mrsa_jax.study.attack import _stage
from mrsa_jax.study.attacks_on_models import InconsistencyConfig
from mrsa_jax.study.publishing._assets import text_of
from mrsa_jax.study.runs import _build


def run(
    config: InconsistencyConfig, report: AttackFindings, progress: Progress
) -> None:
    """Send a target the model and the others a silent one, by the real protocol."""
    report.title = "A malicious server: the target's update, read off a sum of several"
    dataset, clients = _build.build_clients(config.seed, config, config.cohort_size)
    shape = tuple(dataset.train_inputs.shape[1:])
    model = federated.mlp(dataset.num_classes, hidden_sizes=(config.hidden_size,))
    start, trainer = _stage.start_and_trainer(config, model, shape, batch_size=10)
    levels = 2**16 + 1  # 0 is a level: silent clients add nothing
    quantizer = quantize.stochastic(levels, 1.0)
    bits = (config.cohort_size * (levels - 1)).bit_length()
    for name in steps(progress, "rounds", config.pads):
        attack = attacks.model_inconsistency(
            model, trainer, quantizer, modulus_bits=bits, is_bound=name == "bound"
        )
        recovered = attack.run(
            as_key(config.seed),
            start,
            clients,
            range(config.cohort_size),
            config.target,
        )
        row = {
            "pads": "bound to the model" if name == "bound" else "plain SecAgg",
            "clients": config.cohort_size,
            "target": config.target,
            "status": recovered.status.name,
            "error": recovered.error,
            "recovered": recovered.error < 0.05,
        }
        report.scores.append(row)
        report.arrays[f"update_{name}"] = recovered.update
    report.sentences.append(text_of("inconsistency"))


def arrays(config: Any) -> int:
    """Return the arrays of the malicious server: real messages of all clients."""
    pool, shape, classes = _stage.data_of(config.dataset, config.directory, config.seed)
    dim = (
        math.prod(shape) * config.hidden_size
        + config.hidden_size * (1 + classes)
        + classes
    )
    return pool + 4 * dim * (_OF_SENDER * config.cohort_size + _OF_MESSAGES)


_OF_SENDER = 8  # arrays like the update, of each client
_OF_MESSAGES = 20  # and of the one whose message is made or undone
