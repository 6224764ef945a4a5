"""Evaluation in batches and the server's step."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax.federated.programs import PLAIN_AVERAGE, server_step


def test_misuse() -> None:
    model = mj.federated.logistic(3)
    inputs, labels = np.zeros((4, 2, 2, 1), np.float32), np.zeros(3, np.int32)
    with pytest.raises(mj.ConfigurationError, match="as many as the labels"):
        mj.federated.evaluate(model, zeros(15, np.float32), inputs, labels)
    with pytest.raises(mj.ConfigurationError, match="as many as the labels"):
        mj.federated.evaluate(model, jnp.zeros(15), inputs[:0], labels[:0])
    for batch_size in (0, True):
        with pytest.raises(
            mj.ConfigurationError, match="`batch_size` must be a positive"
        ):
            mj.federated.evaluate(
                model, jnp.zeros(15), inputs[:3], labels, batch_size=batch_size
            )
    for label in (-1, 3):
        with pytest.raises(
            mj.ConfigurationError, match=rf"must lie in \[0, 3\); got {label}"
        ):
            mj.federated.evaluate(
                model, jnp.zeros(15), inputs[:1], np.array([label], np.int32)
            )
    with pytest.raises(
        mj.ConfigurationError, match="`parameters` must have the model's 15"
    ):
        mj.federated.evaluate(model, zeros(14, np.float32), inputs[:3], labels)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 500])
def test_evaluation_equals_the_definition(batch_size: int) -> None:
    digits = mj.data.load("digits")
    inputs, labels = digits.test_inputs[:50], digits.test_labels[:50]
    model = mj.federated.logistic(10)
    flat = jax.random.normal(jax.random.key(0), (650,))
    variables = mj.federated.unflatten(model, inputs.shape[1:], flat)
    logits = np.asarray(model.apply(variables, on_device(inputs)), np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    log_likelihood = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    accuracy, loss = mj.federated.evaluate(
        model, flat, inputs, labels, batch_size=batch_size
    )
    assert accuracy == pytest.approx(np.mean(logits.argmax(1) == labels), abs=1e-6)
    assert loss == pytest.approx(
        -log_likelihood[np.arange(50), labels].mean(), rel=1e-5
    )


def test_padding_is_neither_right_nor_wrong() -> None:
    """A model of zeros answers 0 to all of three samples, and to what fills the second batch."""
    labels = np.array([1, 2, 1], np.int32)
    inputs = np.ones((3, 2, 2, 1), np.float32)
    model, zeros = mj.federated.logistic(3), np.zeros(15, np.float32)
    accuracy, loss = mj.federated.evaluate(model, zeros, inputs, labels, batch_size=2)
    assert accuracy == 0.0
    assert loss == pytest.approx(np.log(3))


def test_plain_average_adds_the_mean_update() -> None:
    parameters, update = on_device([1.0, 2.0]), on_device([0.5, -1.0])
    state = PLAIN_AVERAGE.init(parameters)
    after, _, is_finite = server_step(
        PLAIN_AVERAGE.update, parameters, state, update, on_device(True)
    )
    np.testing.assert_array_equal(after, [1.5, 1.0])
    assert bool(is_finite)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optax.sgd(0.5, momentum=0.9),
        lambda: optax.adam(0.1, eps=1e-3),
        lambda: optax.sgd(optax.exponential_decay(1.0, 1, 0.5)),  # counts its steps
    ],
    ids=["momentum", "adam", "decaying"],
)
def test_any_optimizer_equals_optax_over_the_rounds_that_have_a_sum(
    make: Callable[[], optax.GradientTransformation],
) -> None:
    updates = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    is_learnt = [True, False, True, True, False]
    parameters = on_device(np.arange(6, dtype=np.float32))
    optimizer = make()
    ours, state = parameters, optimizer.init(parameters)
    alone = make()
    step_of = jax.jit(alone.update)
    theirs, their_state = np.asarray(parameters), alone.init(parameters)
    for update, learnt in zip(updates, is_learnt, strict=True):
        # what comes with a round without sum counts for nothing, whatever it is
        given = update if learnt else np.full(6, np.nan, np.float32)
        ours, state, is_finite = server_step(
            optimizer.update, ours, state, on_device(given), on_device(learnt)
        )
        assert bool(is_finite)
        if learnt:
            with jax.numpy_dtype_promotion("standard"):  # the suite's is strict
                step, their_state = step_of(-update, their_state, theirs)
            theirs = theirs + np.asarray(step)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5),
        state,
        their_state,
    )


@pytest.mark.smoke
def test_adam_by_hand() -> None:
    # Its first step has the length of the learning rate along each axis, its count is
    # one.
    optimizer = optax.adam(0.25, eps=0.0)
    parameters = jnp.zeros(3)
    update = on_device([3.0, -0.01, 40.0])
    after, state, _ = server_step(
        optimizer.update,
        parameters,
        optimizer.init(parameters),
        update,
        on_device(True),
    )
    np.testing.assert_allclose(after, [0.25, -0.25, 0.25], rtol=1e-5)
    assert int(state[0].count) == 1


def test_a_failed_round_changes_neither_model_nor_momentum() -> None:
    optimizer = optax.sgd(0.1, momentum=0.9)
    parameters = on_device([1.0, 2.0])
    _, moved, _ = server_step(
        optimizer.update,
        parameters,
        optimizer.init(parameters),
        jnp.ones(2),
        on_device(True),
    )
    after, state, _ = server_step(
        optimizer.update, parameters, moved, jnp.ones(2), on_device(False)
    )
    np.testing.assert_array_equal(after, parameters)
    jax.tree.map(np.testing.assert_array_equal, state, moved)


def test_not_finite_is_seen() -> None:
    parameters = jnp.zeros(2)
    state = PLAIN_AVERAGE.init(parameters)
    _, _, is_finite = server_step(
        PLAIN_AVERAGE.update,
        parameters,
        state,
        jnp.array([0.0, jnp.inf]),
        on_device(True),
    )
    assert not bool(is_finite)
