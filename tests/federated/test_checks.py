"""What is refused before training: samples, labels and models that make no sense."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax.federated import _models
from mrsa_jax.federated._models import check_model


def _clients(**changes: Any) -> mj.data.ClientData:
    """Two clients with two of three samples each, of 2 x 2 pixels and two classes."""
    sound = mj.data.ClientData(
        inputs=on_device(np.ones((3, 2, 2, 1), np.float32)),
        labels=jnp.array([0, 1, 1], jnp.int32),
        indices=jnp.array([[0, 2], [1, 2]], jnp.int32),
        sizes=jnp.array([2, 2], jnp.int32),
        num_classes=2,
    )
    return dataclasses.replace(sound, **changes)


_POISONED = np.ones((3, 2, 2, 1), np.float32)
_POISONED[1, 0, 1] = np.nan
_INFINITE = np.ones((3, 2, 2, 1), np.float32)
_INFINITE[2, 1, 1] = -np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inputs": np.ones((3, 2, 2, 1), jnp.uint8)},
            r"inputs` must be float32 .*got 'uint8'",
        ),
        ({"inputs": np.ones((3, 2, 2, 1), jnp.bfloat16)}, "inputs` must be float32"),
        (
            {"inputs": np.ones(3)},
            r"inputs` must have shape \[samples, \.\.\.\]; got \(3,\)",
        ),
        ({"inputs": np.asarray(_POISONED)}, "inputs` must be finite; got 'nan or inf'"),
        ({"inputs": np.asarray(_INFINITE)}, "inputs` must be finite"),
        (
            {"inputs": np.ones((2, 2, 2, 1))},
            "labels` must be one integer for each of 2 samples",
        ),
        (
            {"labels": np.array([0, 2, 1], jnp.int32)},
            r"labels` must lie in \[0, 2\).*got 2",
        ),
        (
            {"labels": np.array([0, -1, 1], jnp.int32)},
            r"labels` must lie in \[0, 2\).*got -1",
        ),
        (
            {"labels": np.array([0, 1, 1], jnp.int16)},
            "labels` must be int32; got 'int16'",
        ),
        ({"indices": np.array([[0, 3], [1, 2]], jnp.int32)}, "indices` must lie in"),
        ({"sizes": np.array([3, 0], jnp.int32)}, "sizes` must lie in"),
        ({"sizes": np.array([-1, 0], jnp.int32)}, "sizes` must lie in"),
        (
            {"num_classes": 3},
            "an output for each class of the data; got '2 outputs' and '3 class",
        ),
    ],
)
def test_bad_samples(changes: dict[str, Any], message: str) -> None:
    made = {
        k: on_device(v) if isinstance(v, np.ndarray) else v for k, v in changes.items()
    }
    with pytest.raises(mj.ConfigurationError, match=message):
        check_model(mj.federated.logistic(2), _clients(**made))


def test_models_that_do_not_fit() -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`model` must be a flax module; got 'str'"
    ):
        # in the suite the annotation refuses
        inspect.unwrap(check_model)("lenet", _clients())
    with pytest.raises(
        mj.ConfigurationError, match="at least 12 x 12 pixels; got '2 x 2'"
    ):
        check_model(mj.federated.lenet(2), _clients())
    flat = _clients(inputs=on_device(np.ones((3, 784), np.float32)))
    with pytest.raises(mj.ConfigurationError, match=r"takes images .* shape \(784,\)"):
        check_model(mj.federated.lenet(2), flat)
    assert check_model(mj.federated.logistic(2), flat) == 784 * 2 + 2


def test_training_checks_first() -> None:
    model = mj.federated.logistic(2)
    clients = _clients(inputs=jnp.asarray(_POISONED))
    trainer = mj.federated.local_sgd(model, 0.1, batch_size=1)
    with pytest.raises(mj.ConfigurationError, match="must be finite"):
        mj.federated.client_updates(0, model, zeros(10, np.float32), clients, trainer)


def test_samples_are_looked_at_once_unless_they_can_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    finite = _models._all_finite

    def all_finite(values: Any) -> Any:
        looks.append(0)
        return finite(jnp.asarray(values))

    monkeypatch.setattr(_models, "_all_finite", all_finite)
    # its types refuse NumPy
    monkeypatch.setattr(_models, "_check_inputs", lambda inputs: None)
    model, sound = mj.federated.logistic(2), _clients()
    for _ in range(2):
        check_model(model, sound)
    assert len(looks) == 1
    pixels = np.ones_like(_POISONED)
    open_to_change = _clients(inputs=pixels)
    check_model(model, open_to_change)
    pixels[0] = np.nan
    with pytest.raises(mj.ConfigurationError, match="must be finite"):
        check_model(model, open_to_change)


def test_sound_samples_pass_and_traced_values_are_not_looked_at() -> None:
    model = mj.federated.logistic(2)
    assert check_model(model, _clients()) == 4 * 2 + 2
    # a client without samples is sound, and outputs that no class uses are too
    assert (
        check_model(
            mj.federated.logistic(5), _clients(sizes=jnp.array([0, 1], jnp.int32))
        )
        == 25
    )

    @jax.jit
    def inside(clients: mj.data.ClientData) -> jax.Array:
        return jnp.int32(check_model(model, clients))

    assert int(inside(_clients())) == 10
