"""Attacks on models after several rounds, with momentum, and under CCESA's graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import federated
from mrsa_jax.study.attack import _model_inversion, _stage
from mrsa_jax.study.attacks_on_models import MembershipConfig, ModelInversionConfig

TINY: dict[str, Any] = {
    "dataset": "digits",
    "model": "logistic",
    "client_size": 8,
    "num_epochs": 1,
    "num_shadows": 2,
    "num_targets": 2,
    "num_summed": 4,
    "methods": ("loss",),
}


@pytest.mark.long
def test_models_of_later_rounds_are_those_of_a_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One person per client, and the mean of all models between rounds."""
    config = ModelInversionConfig(
        dataset="digits",
        partition="shards",
        num_clients=10,
        rounds=3,
        num_epochs=2,
        iterations=2,
        seen=("plain",),
        learning_rate=0.1,
        seed=4,
    )
    starts, people = [], []
    updates_of = federated.client_updates

    def noted(seed, model, parameters, clients, trainer, **more):
        starts.append(np.asarray(parameters))
        people.append(
            [
                set(np.asarray(clients.labels)[own[:size]])
                for own, size in zip(clients.indices, clients.sizes, strict=True)
            ]
        )
        noted.given = model, clients, trainer
        return updates_of(seed, model, parameters, clients, trainer, **more)

    monkeypatch.setattr(_model_inversion.federated, "client_updates", noted)
    mj.study.run(config)
    assert len(starts) == 3
    assert [len(labels) for labels in people[0]] == [1] * 10
    model, clients, trainer = noted.given
    trained = federated.train(
        4,
        federated.Training(
            model,
            clients,
            np.ones((2, 10), np.bool_),
            trainer,
            mj.secagg.ring_average(
                mj.quantize.stochastic(2**20, 1.0), 10, len(starts[0]), fidelity="sets"
            ),
        ),
    )
    np.testing.assert_allclose(starts[2], trained.parameters, atol=1e-4)


@pytest.mark.long
def test_membership_takes_momentum_and_a_sparse_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    staged = _stage.start_and_trainer

    def noted(*given: Any, **more: Any) -> Any:
        start, trainer = staged(*given, **more)
        seen.append(float(trainer.momentum))
        return start, trainer

    monkeypatch.setattr(_stage, "start_and_trainer", noted)
    found = mj.study.run(
        MembershipConfig(
            **TINY, momentum=0.75, connection_probability=0.05, seen=("sum", "padded")
        )
    )
    assert seen == [0.75]
    # hardly any client has a neighbour, so no sum of four can be unmasked
    assert [row["seen"] for row in found.summary] == ["padded"]
    assert "2 of 2 rounds failed: sums are not attacked." in found.sentences
    with pytest.raises(
        mj.ConfigurationError, match="`connection_probability` must not"
    ):
        mj.study.validate(
            MembershipConfig(**TINY, seen=("plain",), connection_probability=0.5)
        )
