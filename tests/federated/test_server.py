"""Evaluation in batches and the server's step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax.federated._models import apply_flat
from mrsa_jax.federated._server import PLAIN_AVERAGE, server_step


def test_misuse() -> None:
    model = mj.federated.logistic(3)
    inputs, labels = np.zeros((4, 2, 2, 1), np.float32), np.zeros(3, np.int32)
    with pytest.raises(mj.ConfigurationError, match="as many as the labels"):
        mj.federated.evaluate(model, jnp.zeros(15), inputs, labels)
    with pytest.raises(mj.ConfigurationError, match="as many as the labels"):
        mj.federated.evaluate(model, jnp.zeros(15), inputs[:0], labels[:0])
    with pytest.raises(mj.ConfigurationError, match="`batch_size` must be a positive"):
        mj.federated.evaluate(model, jnp.zeros(15), inputs[:3], labels, batch_size=0)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 500])
def test_evaluation_equals_the_definition(batch_size: int) -> None:
    digits = mj.data.load("digits")
    inputs, labels = digits.test_inputs[:50], digits.test_labels[:50]
    model = mj.federated.logistic(10)
    flat = jax.random.normal(jax.random.key(0), (650,))
    logits = np.asarray(apply_flat(model, flat, jnp.asarray(inputs)), np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    log_likelihood = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    accuracy, loss = mj.federated.evaluate(model, flat, inputs, labels, batch_size=batch_size)
    assert accuracy == pytest.approx(np.mean(logits.argmax(1) == labels), abs=1e-6)
    assert loss == pytest.approx(-log_likelihood[np.arange(50), labels].mean(), rel=1e-5)


def test_plain_average_adds_the_mean_update() -> None:
    parameters, update = jnp.array([1.0, 2.0]), jnp.array([0.5, -1.0])
    state = PLAIN_AVERAGE.init(parameters)
    after, _, is_finite = server_step(PLAIN_AVERAGE, parameters, state, update, jnp.array(True))
    np.testing.assert_array_equal(after, [1.5, 1.0])
    assert bool(is_finite)


def test_a_failed_round_changes_neither_model_nor_momentum() -> None:
    optimizer = optax.sgd(0.1, momentum=0.9)
    parameters = jnp.array([1.0, 2.0])
    _, moved, _ = server_step(
        optimizer, parameters, optimizer.init(parameters), jnp.ones(2), jnp.array(True)
    )
    after, state, _ = server_step(optimizer, parameters, moved, jnp.ones(2), jnp.array(False))
    np.testing.assert_array_equal(after, parameters)
    jax.tree.map(np.testing.assert_array_equal, state, moved)


def test_not_finite_is_seen() -> None:
    parameters = jnp.zeros(2)
    state = PLAIN_AVERAGE.init(parameters)
    _, _, is_finite = server_step(
        PLAIN_AVERAGE, parameters, state, jnp.array([0.0, jnp.inf]), jnp.array(True)
    )
    assert not bool(is_finite)
