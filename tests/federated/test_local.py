"""Local training against a plain loop with optax, and that padding changes nothing."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._streams import Stream, as_key, round_key
from mrsa_jax.federated import _cohort, _local
from mrsa_jax.federated._models import apply_flat

_SHAPE = (8, 8, 1)


@functools.cache
def _digits() -> mj.data.Dataset:
    return mj.data.load("digits", seed=0)


def _model() -> object:
    return mj.federated.logistic(10)


def _start(model: object) -> jax.Array:
    return mj.federated.initial_parameters(0, model, _SHAPE)


def _samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    return _digits().train_inputs[:count], _digits().train_labels[:count]


def _plain_loop(
    model: object,
    parameters: jax.Array,
    batches: list[np.ndarray],
    inputs: np.ndarray,
    labels: np.ndarray,
    optimizer: optax.GradientTransformation,
) -> np.ndarray:
    """Minibatch SGD with optax alone: `batches` are index arrays."""

    @jax.jit
    @jax.grad
    def gradient_of(vector: jax.Array, images: jax.Array, truth: jax.Array) -> jax.Array:
        logits = apply_flat(model, vector, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, truth).mean()

    state = optimizer.init(parameters)
    vector = parameters
    for batch in batches:
        gradient = gradient_of(vector, jnp.asarray(inputs[batch]), jnp.asarray(labels[batch]))
        moves, state = optimizer.update(gradient, state)
        vector = optax.apply_updates(vector, moves)
    return np.asarray(vector - parameters)


def _update(
    trainer: mj.federated.LocalSGD, key: jax.Array, inputs: object, labels: object, size: int
) -> np.ndarray:
    return np.asarray(
        trainer.update(
            key, _start(trainer.model), jnp.asarray(inputs), jnp.asarray(labels), jnp.int32(size)
        )
    )


@pytest.mark.parametrize("learning_rate", [0.0, -0.1, float("nan"), float("inf")])
def test_bad_learning_rate(learning_rate: float) -> None:
    with pytest.raises(mj.ConfigurationError, match="`learning_rate` must be"):
        mj.federated.local_sgd(_model(), learning_rate, batch_size=10)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_bad_momentum(momentum: float) -> None:
    with pytest.raises(mj.ConfigurationError, match="`momentum` must"):
        mj.federated.local_sgd(_model(), 0.1, batch_size=10, momentum=momentum)


def test_bad_counts_and_model() -> None:
    with pytest.raises(mj.ConfigurationError, match="`batch_size` must be a positive"):
        mj.federated.local_sgd(_model(), 0.1, batch_size=0)
    with pytest.raises(mj.ConfigurationError, match="`num_epochs` must be a positive"):
        mj.federated.local_sgd(_model(), 0.1, batch_size=1, num_epochs=0)


def test_bad_clients() -> None:
    clients = mj.data.iid(0, _digits(), 5)
    trainer = mj.federated.local_sgd(_model(), 0.1, batch_size=10)
    for chosen in ([5], [-1], [0.5], [[0]]):
        with pytest.raises(mj.ConfigurationError, match=r"client indices in \[0, 5\)"):
            mj.federated.client_updates(0, _model(), _start(_model()), clients, trainer, chosen)


def test_model_needs_an_output_for_each_class() -> None:
    clients = mj.data.iid(0, _digits(), 5)
    model = mj.federated.logistic(9)
    trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
    with pytest.raises(mj.ConfigurationError, match="9 outputs' and '10 classes"):
        mj.federated.client_updates(0, model, _start(model), clients, trainer)


def test_one_step_on_one_sample_by_hand() -> None:
    # Logistic regression from zero: every class has probability 1/10.
    model = _model()
    trainer = mj.federated.local_sgd(model, 0.5, batch_size=1)
    inputs, labels = _samples(1)
    update = trainer.update(
        as_key(0), jnp.zeros(650), jnp.asarray(inputs), jnp.asarray(labels), jnp.int32(1)
    )
    residual = np.full(10, 0.1)
    residual[labels[0]] -= 1.0
    expected = np.concatenate([residual, np.outer(inputs[0].ravel(), residual).ravel()]) * -0.5
    np.testing.assert_allclose(update, expected, atol=1e-6)


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("num_epochs", [1, 3])
def test_full_batches_equal_optax(momentum: float | None, num_epochs: int) -> None:
    inputs, labels = _samples(12)
    trainer = mj.federated.local_sgd(
        _model(), 0.3, batch_size=50, num_epochs=num_epochs, momentum=momentum
    )
    ours = _update(trainer, as_key(1), inputs, labels, 12)
    batches = [np.arange(12)] * num_epochs
    theirs = _plain_loop(
        _model(), _start(_model()), batches, inputs, labels, optax.sgd(0.3, momentum=momentum)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(("size", "steps"), [(33, 4), (30, 3), (7, 1)])
@pytest.mark.parametrize("momentum", [None, 0.5])
def test_minibatches_equal_optax_over_the_same_order(
    size: int, steps: int, momentum: float | None
) -> None:
    inputs, labels = _samples(40)
    key = as_key(2)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=10, num_epochs=2, momentum=momentum)
    order = np.asarray(_local._shuffled(key, 40, jnp.int32(size), 10, 2))
    batches = [
        order[epoch, start : min(start + 10, size)]
        for epoch in range(2)
        for start in range(0, size, 10)
    ]
    assert len(batches) == 2 * steps
    ours = _update(trainer, key, inputs, labels, size)
    theirs = _plain_loop(
        _model(), _start(_model()), batches, inputs, labels, optax.sgd(0.2, momentum=momentum)
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_each_epoch_shuffles_the_own_samples_anew() -> None:
    order = np.asarray(_local._shuffled(as_key(0), 20, jnp.int32(17), 8, 3))
    assert order.shape == (3, 24)
    np.testing.assert_array_equal(np.sort(order[:, :17], axis=1), [np.arange(17)] * 3)
    assert len({tuple(row[:17]) for row in order}) == 3
    wider = np.asarray(_local._shuffled(as_key(0), 50, jnp.int32(17), 8, 3))
    np.testing.assert_array_equal(order[:, :17], wider[:, :17])


@pytest.mark.parametrize("size", [0, 1, 10, 13])
def test_garbage_behind_the_own_samples_changes_nothing(size: int) -> None:
    inputs, labels = _samples(13)
    clean, garbage = inputs.copy(), inputs.copy()
    garbage[size:] = np.nan
    wrong = labels.copy()
    wrong[size:] = -7
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=10, momentum=0.5, num_epochs=2)
    expected = _update(trainer, as_key(3), clean, labels, size)
    np.testing.assert_array_equal(_update(trainer, as_key(3), garbage, wrong, size), expected)
    assert np.isfinite(expected).all()
    assert expected.any() == (size > 0)  # no samples, no update


def _ragged() -> mj.data.ClientData:
    clients = mj.data.dirichlet_by_class(0, _digits(), 40, concentration=0.1)
    sizes = np.asarray(clients.sizes).copy()
    sizes[3] = 0
    return dataclasses.replace(clients, sizes=jnp.asarray(sizes))


def test_ragged_cohort_equals_one_by_one() -> None:
    clients = _ragged()
    sizes = np.asarray(clients.sizes)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16, num_epochs=2)
    chosen = np.array([3, int(sizes.argmax()), 0, 17, int(np.flatnonzero(sizes == 1)[0])])
    together = mj.federated.client_updates(
        5, _model(), _start(_model()), clients, trainer, chosen, round_index=7
    )
    key = round_key(as_key(5), 7, Stream.LOCAL_TRAINING)
    for client, update in zip(chosen, np.asarray(together), strict=True):
        own = np.asarray(clients.indices)[client, : max(sizes[client], 1)]
        alone = _update(  # without any padding
            trainer,
            jax.random.fold_in(key, int(client)),
            _digits().train_inputs[own],
            _digits().train_labels[own],
            int(sizes[client]),
        )
        np.testing.assert_allclose(update, alone, atol=2e-6)
    assert not np.asarray(together)[0].any()


def test_a_client_does_not_depend_on_slot_company_or_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_cohort, "_ENTRIES_AT_ONCE_ON_CPU", 16 * 650)
    clients = _ragged()
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16)
    updates = functools.partial(
        mj.federated.client_updates, 0, _model(), _start(_model()), clients, trainer
    )
    everyone = np.asarray(updates())  # 40 clients, taken in three turns
    assert everyone.shape == (40, 650)
    for chosen in ([39, 5], [5, 11, 39]):
        np.testing.assert_allclose(np.asarray(updates(chosen)), everyone[chosen], atol=2e-6)
    # shuffling is by client and round
    assert not np.array_equal(everyone, np.asarray(updates(round_index=1)))


def test_absent_slots_are_zero_and_flags_are_right() -> None:
    clients = mj.data.iid(0, _digits(), 6)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16)
    start = _start(_model())
    arguments = (clients, as_key(0), jnp.int32(0), jnp.array([2, 0, 4], jnp.int32))
    present = jnp.array([True, False, True])
    updates, is_finite, _ = _local.cohort_updates(trainer, start, *arguments, present)
    assert not np.asarray(updates)[1].any()
    assert np.asarray(updates)[[0, 2]].any(axis=1).all()
    assert bool(is_finite)
    broken = start.at[3].set(jnp.nan)
    _, is_finite, _ = _local.cohort_updates(trainer, broken, *arguments, present)
    assert not bool(is_finite)


def test_numbers_compile_nothing_new_and_x64_changes_nothing() -> None:
    clients = mj.data.iid(0, _digits(), 6)
    start = _start(_model())

    def run(rate: float, seed: int, round_index: int, members: list[int]) -> np.ndarray:
        trainer = mj.federated.local_sgd(_model(), rate, batch_size=32, momentum=0.9)
        return np.asarray(
            mj.federated.client_updates(
                seed, _model(), start, clients, trainer, members, round_index=round_index
            )
        )

    reference = run(0.1, 0, 0, [0, 1])
    compiled = _local.cohort_updates._cache_size()
    run(0.2, 1, 5, [3, 4])
    assert _local.cohort_updates._cache_size() == compiled
    with jax.enable_x64(True):
        again = run(0.1, 0, 0, [0, 1])
    assert again.dtype == np.float32
    np.testing.assert_allclose(again, reference, atol=1e-6)


def test_trainers_stack_under_vmap() -> None:
    inputs, labels = _samples(12)
    rates = jnp.array([0.1, 0.4])
    trainer = mj.federated.local_sgd(_model(), 0.1, batch_size=12)
    stacked = dataclasses.replace(trainer, learning_rate=rates)
    key, start = as_key(0), _start(_model())
    updates = jax.vmap(
        lambda t: t.update(key, start, jnp.asarray(inputs), jnp.asarray(labels), jnp.int32(12))
    )(stacked)
    # one full-batch step is proportional to its learning rate
    np.testing.assert_allclose(updates[1], 4 * updates[0], atol=1e-6)


def test_lenet_cohort_equals_a_loop_over_clients() -> None:
    dataset = mj.data.load("mnist_5k", seed=0)
    clients = mj.data.iid(0, dataset, 500)
    model = mj.federated.lenet(10)
    start = mj.federated.initial_parameters(0, model, (28, 28, 1))
    trainer = mj.federated.local_sgd(model, 0.1, batch_size=8, num_epochs=2)
    together = mj.federated.client_updates(0, model, start, clients, trainer, [4, 9, 2])
    for slot, client in enumerate((4, 9, 2)):
        own = np.asarray(clients.indices)[client]
        theirs = _plain_loop(
            model,
            start,
            [np.arange(8)] * 2,
            dataset.train_inputs[own],
            dataset.train_labels[own],
            optax.sgd(0.1),
        )
        np.testing.assert_allclose(np.asarray(together)[slot], theirs, atol=1e-5)
