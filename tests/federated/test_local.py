"""Local training against a plain loop with optax, and that padding changes nothing."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches, device as _device
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax.federated import programs

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


@functools.cache
def _gradient_of(model: object) -> Callable[..., jax.Array]:
    @jax.jit
    @jax.grad
    def gradient(vector: jax.Array, images: jax.Array, truth: jax.Array) -> jax.Array:
        logits = model.apply(
            mj.federated.unflatten(model, images.shape[1:], vector), images
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, truth).mean()

    return gradient


def _plain_loop(
    model: object,
    parameters: jax.Array,
    batches: list[np.ndarray],
    inputs: np.ndarray,
    labels: np.ndarray,
    optimizer: optax.GradientTransformation,
    proximal: float = 0.0,
) -> np.ndarray:
    """Minibatch SGD with optax alone: `batches` are index arrays."""
    state = optimizer.init(parameters)
    vector = parameters
    for batch in batches:
        gradient = _gradient_of(model)(vector, inputs[batch], labels[batch])
        # of proximal/2 |w - w_global|^2
        gradient = gradient + proximal * (vector - parameters)
        moves, state = optimizer.update(gradient, state, vector)
        vector = optax.apply_updates(vector, moves)
    return np.asarray(vector - parameters)


_jitted = jax.jit(lambda trainer, *given: trainer.update(*given))
_shuffled = jax.jit(programs.shuffled, static_argnums=(1, 3, 4))


def _update(
    trainer: mj.federated.LocalSGD,
    key: jax.Array,
    inputs: object,
    labels: object,
    size: int,
) -> np.ndarray:
    return np.asarray(
        _jitted(trainer, key, _start(trainer.model), inputs, labels, np.int32(size))
    )


@pytest.mark.parametrize("learning_rate", [0.0, -0.1, float("nan"), float("inf")])
def test_bad_learning_rate(learning_rate: float) -> None:
    with pytest.raises(mj.ConfigurationError, match="`learning_rate` must be"):
        mj.federated.local_sgd(_model(), learning_rate, batch_size=10)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_bad_momentum(momentum: float) -> None:
    with pytest.raises(mj.ConfigurationError, match="`momentum` must"):
        mj.federated.local_sgd(_model(), 0.1, batch_size=10, momentum=momentum)


@pytest.mark.parametrize("name", ["weight_decay", "proximal"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "0.1"])
def test_bad_penalties(name: str, value: object) -> None:
    # in the suite annotations refuse some of them
    build = inspect.unwrap(mj.federated.local_sgd)
    with pytest.raises(mj.ConfigurationError, match=f"`{name}` must"):
        build(_model(), 0.1, batch_size=10, **{name: value})


@pytest.mark.long
def test_updates_are_clipped_to_a_length() -> None:
    """Longer ones point the same way; a bound that none reaches changes no bit."""
    clients, build = _ragged(), functools.partial(mj.federated.local_sgd, _model(), 0.1)
    start = _start(_model())
    free, short, long = (
        np.asarray(mj.federated.client_updates(0, _model(), start, clients, own))
        for own in (
            build(batch_size=4),
            build(batch_size=4, clip_norm=0.01),
            build(batch_size=4, clip_norm=1e3),
        )
    )
    np.testing.assert_array_equal(free, long)
    sizes = np.linalg.norm(free, axis=1, keepdims=True)
    np.testing.assert_allclose(
        short, free * np.minimum(1, 0.01 / np.maximum(sizes, 1e-9)), 1e-5
    )
    assert (sizes > 0.01).any()
    with pytest.raises(mj.ConfigurationError, match="`clip_norm` must be positive"):
        build(batch_size=4, clip_norm=0.0)


def test_bad_compute_dtype_and_factor() -> None:
    for name in ("float16", "bf16"):
        with pytest.raises(
            mj.ConfigurationError, match="`compute_dtype` must be None or 'bf"
        ):
            mj.federated.local_sgd(_model(), 0.1, batch_size=10, compute_dtype=name)
    trainer = mj.federated.local_sgd(_model(), 0.1, batch_size=10)
    for factor in (-1.0, float("nan"), float("inf"), True):
        with pytest.raises(mj.ConfigurationError, match="`factor` must"):
            trainer.scaled(factor)


@pytest.mark.long
def test_products_on_accelerators_round_as_asked() -> None:
    """By itself JAX lets them round factors of float32 to 10 bits.

    A user's own word stands.
    """
    clients = _ragged()

    def precisions(dtype: str | None, kind: str = "cuda") -> set[str]:
        trainer = mj.federated.local_sgd(
            _model(), 0.1, batch_size=4, compute_dtype=dtype
        )
        arguments = (
            _start(_model()),
            clients.inputs[:8],
            clients.labels[:8],
            jnp.int32(8),
        )
        with _device.compiling_for(kind, 2**18, 2**33):
            program = str(jax.make_jaxpr(trainer.update)(jax.random.key(0), *arguments))
        return set(re.findall(r"precision=\(?(?:\w+\.)?(\w+)", program))

    assert precisions(None) == {"HIGHEST"}
    assert precisions("tf32") == {"TF32_TF32_F32"}
    assert precisions("tf32", "tpu") == {"HIGH"}
    assert not precisions("tf32", "cpu")
    with jax.default_matmul_precision("bfloat16"):
        assert precisions(None) == {"DEFAULT"}


def test_what_is_off_is_no_leaf() -> None:
    build = functools.partial(mj.federated.local_sgd, _model(), 0.1, batch_size=10)
    off = build(momentum=0.0, weight_decay=0.0, proximal=0.0, compute_dtype="float32")
    assert off == build()
    assert jax.tree.leaves(off) == [jnp.float32(0.1)]
    on = build(momentum=0.5, weight_decay=0.25, proximal=2.0, compute_dtype="bfloat16")
    assert jax.tree.leaves(on) == [jnp.float32(0.1), 0.5, 0.25, 2.0]
    assert {leaf.dtype for leaf in jax.tree.leaves(on)} == {jnp.dtype(jnp.float32)}


@pytest.mark.smoke
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
            mj.federated.client_updates(
                0, _model(), _start(_model()), clients, trainer, chosen
            )


def test_model_needs_an_output_for_each_class() -> None:
    clients = mj.data.iid(0, _digits(), 5)
    model = mj.federated.logistic(9)
    trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
    with pytest.raises(mj.ConfigurationError, match="9 outputs' and '10 classes"):
        mj.federated.client_updates(0, model, _start(model), clients, trainer)


def test_a_step_by_hand() -> None:
    """v <- momentum v + gradient + decay w + proximal (w - w_global); w <- w - rate v."""
    trainer = mj.federated.local_sgd(
        _model(), 0.5, batch_size=1, momentum=0.25, weight_decay=0.125, proximal=2.0
    )
    values = {"variables": 3.0, "velocity": 8.0, "gradient": 1.0, "start": 2.0}
    moved, velocity = trainer._moved(
        **{name: np.float32(own) for name, own in values.items()}
    )
    assert float(velocity) == 8 / 4 + 1 + 3 / 8 + 2 * (3 - 2)
    assert float(moved) == 3 - 5.375 / 2


@pytest.mark.long
def test_one_step_on_one_sample_by_hand() -> None:
    # Logistic regression from zero: every class has probability 1/10.
    model = _model()
    trainer = mj.federated.local_sgd(model, 0.5, batch_size=1)
    inputs, labels = _samples(1)
    update = trainer.update(
        as_key(0),
        jnp.zeros(650),
        jnp.asarray(inputs),
        jnp.asarray(labels),
        jnp.int32(1),
    )
    residual = np.full(10, 0.1)
    residual[labels[0]] -= 1.0
    expected = (
        np.concatenate([residual, np.outer(inputs[0].ravel(), residual).ravel()]) * -0.5
    )
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
        _model(),
        _start(_model()),
        batches,
        inputs,
        labels,
        optax.sgd(0.3, momentum=momentum),
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.long("None-30-3", "None-33-4")
@pytest.mark.parametrize(("size", "steps"), [(33, 4), (30, 3), (7, 1)])
@pytest.mark.parametrize("momentum", [None, 0.5])
def test_minibatches_equal_optax_over_the_same_order(
    size: int, steps: int, momentum: float | None
) -> None:
    inputs, labels = _samples(40)
    key = as_key(2)
    trainer = mj.federated.local_sgd(
        _model(), 0.2, batch_size=10, num_epochs=2, momentum=momentum
    )
    order = np.asarray(_shuffled(key, 40, np.int32(size), 10, 2))
    batches = [
        order[epoch, start : min(start + 10, size)]
        for epoch in range(2)
        for start in range(0, size, 10)
    ]
    assert len(batches) == 2 * steps
    ours = _update(trainer, key, inputs, labels, size)
    theirs = _plain_loop(
        _model(),
        _start(_model()),
        batches,
        inputs,
        labels,
        optax.sgd(0.2, momentum=momentum),
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("size", [0, 7, 33])
def test_local_steps_equal_a_loop_in_numpy(size: int, steps: int) -> None:
    """Softmax regression by hand: a new minibatch for each step, no epochs."""
    inputs, labels = _samples(40)
    key = as_key(2)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=10, num_steps=steps)
    order = np.asarray(_shuffled(key, 40, np.int32(size), 10, steps))
    weights = np.asarray(_start(_model()), np.float64)
    bias, kernel = weights[:10].copy(), weights[10:].reshape(64, 10).copy()
    for row in order if size else ():
        chosen = row[: min(size, 10)]
        assert len(set(chosen)) == len(chosen)
        flat = inputs[chosen].reshape(len(chosen), -1).astype(np.float64)
        scores = np.exp(flat @ kernel + bias)
        residual = scores / scores.sum(axis=1, keepdims=True)
        residual[np.arange(len(chosen)), labels[chosen]] -= 1
        kernel -= 0.2 * flat.T @ residual / len(chosen)
        bias -= 0.2 * residual.mean(axis=0)
    expected = np.concatenate([bias, kernel.ravel()]) - weights
    update = _update(trainer, key, inputs, labels, size)
    np.testing.assert_allclose(update, expected, atol=2e-6)


def test_minibatches_of_local_steps_are_drawn_alike() -> None:
    """Every sample of 7 is in 3/7 of minibatches of 3, whatever was drawn before."""
    order = np.asarray(_shuffled(as_key(5), 9, np.int32(7), 3, 4000))[:, :3]
    is_in = np.zeros((4000, 7))
    np.put_along_axis(is_in, order, 1, axis=1)
    assert (is_in.sum(axis=1) == 3).all()
    # deviation of a mean of 4000: .0078; of the covariance of two steps: .0039
    np.testing.assert_allclose(is_in.mean(axis=0), 3 / 7, atol=0.035)
    centred = is_in - 3 / 7
    np.testing.assert_allclose(centred[1:].T @ centred[:-1] / 3999, 0, atol=0.02)


def test_another_number_of_local_steps_compiles_nothing() -> None:
    model, clients = _model(), _small_clients()
    updates = [
        _cohort_of(
            mj.federated.local_sgd(model, 0.1, batch_size=8, num_steps=steps),
            clients,
            _start(model),
        )
        for steps in (1, 2)
    ]
    compiled = programs.cohort_updates._cache_size()
    _cohort_of(
        mj.federated.local_sgd(model, 0.1, batch_size=8, num_steps=9),
        clients,
        _start(model),
    )
    assert programs.cohort_updates._cache_size() == compiled
    assert not np.allclose(*updates)


@pytest.mark.parametrize(
    "build",
    [
        functools.partial(mj.federated.local_sgd, _model(), 0.1),
        functools.partial(mj.federated.scaffold, _model(), 0.1),
        functools.partial(mj.federated.local_optax, _model(), optax.sgd(0.1)),
    ],
)
def test_epochs_and_steps_exclude_each_other(
    build: Callable[..., object],
) -> None:
    trainer = build(batch_size=4, num_steps=3)
    assert (trainer.num_epochs, int(trainer.num_steps)) == (None, 3)
    for numbers, words in (
        ({"num_epochs": 1, "num_steps": 3}, "`num_epochs` must not be set together"),
        ({"num_steps": 0}, "`num_steps` must be"),
        ({"num_steps": 2**31}, "`num_steps` must be"),
    ):
        with pytest.raises(mj.ConfigurationError, match=words):
            build(batch_size=4, **numbers)


@pytest.mark.long
def test_each_epoch_shuffles_the_own_samples_anew() -> None:
    order = np.asarray(_shuffled(as_key(0), 20, np.int32(17), 8, 3))
    assert order.shape == (3, 24)
    np.testing.assert_array_equal(np.sort(order[:, :17], axis=1), [np.arange(17)] * 3)
    assert len({tuple(row[:17]) for row in order}) == 3
    wider = np.asarray(_shuffled(as_key(0), 50, np.int32(17), 8, 3))
    np.testing.assert_array_equal(order[:, :17], wider[:, :17])


@pytest.mark.long("0")
@pytest.mark.parametrize("size", [0, 1, 10, 13])
def test_garbage_behind_the_own_samples_changes_nothing(size: int) -> None:
    inputs, labels = _samples(13)
    clean, garbage = inputs.copy(), inputs.copy()
    garbage[size:] = np.nan
    wrong = labels.copy()
    wrong[size:] = -7
    trainer = mj.federated.local_sgd(
        _model(), 0.2, batch_size=10, momentum=0.5, num_epochs=2
    )
    expected = _update(trainer, as_key(3), clean, labels, size)
    np.testing.assert_array_equal(
        _update(trainer, as_key(3), garbage, wrong, size), expected
    )
    assert np.isfinite(expected).all()
    assert expected.any() == (size > 0)  # no samples, no update


def _ragged() -> mj.data.ClientData:
    clients = mj.data.dirichlet_by_class(0, _digits(), 40, concentration=0.1)
    sizes = np.asarray(clients.sizes).copy()
    sizes[3] = 0
    return dataclasses.replace(clients, sizes=jnp.asarray(sizes))


@pytest.mark.long
def test_ragged_cohort_equals_one_by_one() -> None:
    clients = _ragged()
    sizes = np.asarray(clients.sizes)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16, num_epochs=2)
    chosen = np.array(
        [3, int(sizes.argmax()), 0, 17, int(np.flatnonzero(sizes == 1)[0])]
    )
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


@pytest.mark.long
def test_a_client_does_not_depend_on_slot_company_or_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(_batches._WORK, "clients", _batches._Work(4 * 16 * 650, 0))
    clients = _ragged()
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16)
    updates = functools.partial(
        mj.federated.client_updates, 0, _model(), _start(_model()), clients, trainer
    )
    everyone = np.asarray(updates())  # 40 clients, taken in three turns
    assert everyone.shape == (40, 650)
    for chosen in ([39, 5], [5, 11, 39]):
        np.testing.assert_allclose(
            np.asarray(updates(chosen)), everyone[chosen], atol=2e-6
        )
    # shuffling is by client and round
    assert not np.array_equal(everyone, np.asarray(updates(round_index=1)))


_SIZES = (20, 0, 7, 1, 12)  # 3 minibatches of 8, none, one that is cut, one sample, 1.5
_OPTIONS = [
    ({"momentum": 0.9, "weight_decay": 0.3}, None),
    ({"proximal": 2.0}, 2),
    ({"momentum": 0.5, "weight_decay": 0.1, "proximal": 0.7}, 1),
]


def _small_clients(sizes: tuple[int, ...] = _SIZES) -> mj.data.ClientData:
    """Ragged clients whose unused indices point at samples that are not finite."""
    inputs, labels = _samples(sum(sizes))
    indices = np.full((len(sizes), max(sizes)), sum(sizes), np.int32)
    for row, last, size in zip(indices, np.cumsum(sizes), sizes, strict=True):
        row[:size] = np.arange(last - size, last)[::-1]
    # the last sample of the pool is nobody's
    return mj.data.ClientData(
        inputs=on_device(
            np.concatenate([inputs, np.full((1, *_SHAPE), np.nan, np.float32)])
        ),
        labels=on_device(np.append(labels, -3).astype(np.int32)),
        indices=on_device(indices),
        sizes=on_device(sizes, jnp.int32),
        num_classes=10,
    )


@functools.cache
def _small_orders(num_epochs: int, batch_size: int) -> list[list[np.ndarray]]:
    """Each client's minibatches, as indices of the pool, from its own key."""
    clients, orders = _small_clients(), []
    key = round_key(as_key(4), 2, Stream.LOCAL_TRAINING)
    shuffled = jax.jit(programs.shuffled, static_argnums=(1, 3, 4))
    for client, size in enumerate(_SIZES):
        own_key = jax.random.fold_in(key, client)
        order = np.asarray(
            shuffled(own_key, max(_SIZES), jnp.int32(size), batch_size, num_epochs)
        )
        own = np.asarray(clients.indices)[client]
        cuts = [
            row[cut : min(cut + batch_size, size)]
            for row in order
            for cut in range(0, size, batch_size)
        ]
        orders.append([own[cut] for cut in cuts])
    return orders


def _cohort_of(
    trainer: mj.federated.LocalTrainer,
    clients: mj.data.ClientData,
    start: jax.Array,
    width: int | None = None,
) -> np.ndarray:
    """Train everybody in round 2; the last slot is not present."""
    members = on_device([*range(clients.num_clients), 0], jnp.int32)
    present = jnp.arange(clients.num_clients + 1, dtype=jnp.int32) < clients.num_clients
    updates, is_finite, _ = programs.cohort_updates(
        trainer, start, clients, as_key(4), jnp.int32(2), members, present, width
    )
    assert bool(is_finite.all())
    assert not np.asarray(updates)[-1].any()
    return np.asarray(updates)[:-1]


@pytest.mark.long
@pytest.mark.parametrize(("options", "width"), _OPTIONS)
def test_ragged_cohort_equals_a_loop_over_clients_with_optax_alone(
    options: dict[str, float], width: int | None
) -> None:
    model = mj.federated.mlp(10, hidden_sizes=(8,))
    start, clients = _start(model), _small_clients()
    trainer = mj.federated.local_sgd(model, 0.2, batch_size=8, num_epochs=2, **options)
    together = _cohort_of(trainer, clients, start, width)
    optimizer = optax.sgd(0.2, momentum=options.get("momentum"))
    if "weight_decay" in options:
        optimizer = optax.chain(
            optax.add_decayed_weights(options["weight_decay"]), optimizer
        )
    inputs, labels = np.asarray(clients.inputs), np.asarray(clients.labels)
    for client, batches in enumerate(_small_orders(2, 8)):
        assert len(batches) == 2 * -(-_SIZES[client] // 8)
        alone = _plain_loop(
            model,
            start,
            batches,
            inputs,
            labels,
            optimizer,
            options.get("proximal", 0.0),
        )
        np.testing.assert_allclose(together[client], alone, atol=3e-6)
    moved = np.abs(together).max(axis=1)
    assert moved[1] == 0  # nothing to learn from, so no decay either
    assert (np.delete(moved, 1) > 1e-3).all()


@pytest.mark.long
def test_penalties_by_hand() -> None:
    # The gradient at a perfect fit is next to nothing: what is left is decay alone, and
    # from the second step on the pull back to where the round began.
    model = mj.federated.logistic(2)
    # only the biases matter
    inputs, labels = jnp.zeros((1, 1, 1)), jnp.zeros(1, jnp.int32)
    start = jnp.array([50.0, -50.0, 3.0, -2.0])  # biases, weights

    def after(steps: int, **options: float) -> np.ndarray:
        trainer = mj.federated.local_sgd(
            model, 0.5, batch_size=1, num_epochs=steps, **options
        )
        return np.asarray(
            _jitted(trainer, as_key(0), start, inputs, labels, np.int32(1))
        )

    np.testing.assert_allclose(after(1, weight_decay=0.5), -0.25 * start, rtol=1e-6)
    # w <- w - .25 w - .5 (w - w0), twice: .75 w0, then .75 (.75 w0) + .125 w0
    both = after(2, weight_decay=0.5, proximal=1.0)
    np.testing.assert_allclose(both, (0.75 * 0.75 + 0.125 - 1) * start, rtol=1e-5)
    np.testing.assert_array_equal(after(2, proximal=1.0), np.zeros(4))


@pytest.mark.long
def test_width_changes_rounding_only() -> None:
    model = mj.federated.mlp(10, hidden_sizes=(8,))
    start, clients = _start(model), _small_clients()
    trainer = mj.federated.local_sgd(model, 0.2, batch_size=8)
    alone, grouped = (_cohort_of(trainer, clients, start, width) for width in (1, 4))
    np.testing.assert_allclose(grouped, alone, atol=1e-6)
    assert programs.measured_width(10**9) == 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Summing:
    """A trainer with no more than `update`: sums its own labels and pixels."""

    def update(
        self,
        key: jax.Array,
        parameters: jax.Array,
        inputs: jax.Array,
        labels: jax.Array,
        size: jax.Array,
    ) -> jax.Array:
        own = jnp.arange(labels.shape[0], dtype=jnp.int32) < size
        pixels = jnp.where(own, jnp.sum(inputs, axis=(1, 2, 3)), jnp.float32(0))
        truths = jnp.where(own, labels, 0).astype(jnp.float32)
        return jnp.stack([jnp.sum(pixels), jnp.sum(truths), size.astype(jnp.float32)])


def test_a_trainer_of_ones_own_sees_its_clients_samples() -> None:
    clients = _small_clients()
    assert isinstance(_Summing(), mj.federated.LocalTrainer)
    updates = _cohort_of(_Summing(), clients, jnp.zeros(3), width=2)
    inputs, labels = _samples(sum(_SIZES))
    for update, last, size in zip(updates, np.cumsum(_SIZES), _SIZES, strict=True):
        own = slice(last - size, last)
        expected = [inputs[own].sum(), labels[own].sum(), size]
        np.testing.assert_allclose(update, expected, rtol=1e-5)


@pytest.mark.long
def test_scaled_multiplies_the_rate_and_compiles_nothing() -> None:
    clients, start = _small_clients(), _start(_model())
    trainer = mj.federated.local_sgd(_model(), 0.5, batch_size=20)
    whole = _cohort_of(trainer, clients, start)
    compiled = programs.cohort_updates._cache_size()
    for factor in (0.25, np.float64(0.25), jnp.float32(0.25)):
        # all clients take one step, which is proportional to its learning rate
        part = _cohort_of(trainer.scaled(factor), clients, start)
        np.testing.assert_allclose(part, 0.25 * whole, atol=1e-7)
    assert not _cohort_of(trainer.scaled(0), clients, start).any()
    assert programs.cohort_updates._cache_size() == compiled
    rates = jax.jit(lambda t, f: t.scaled(f).learning_rate)(trainer, jnp.float32(0.4))
    assert float(rates) == pytest.approx(0.2)


@pytest.mark.long
def test_bfloat16_is_close_and_keeps_float32_weights() -> None:
    model = mj.federated.mlp(10, hidden_sizes=(8,))
    start, clients = _start(model), _small_clients()
    build = functools.partial(mj.federated.local_sgd, model, batch_size=8, num_epochs=2)
    full = build(0.1, weight_decay=0.01, momentum=0.5)
    mixed = build(0.1, weight_decay=0.01, momentum=0.5, compute_dtype="bfloat16")
    exact, rough = (_cohort_of(trainer, clients, start) for trainer in (full, mixed))
    assert rough.dtype == np.float32
    has_samples = np.array(_SIZES) > 0
    errors = np.linalg.norm(rough - exact, axis=1)[has_samples]
    errors /= np.linalg.norm(exact, axis=1)[has_samples]
    # bfloat16 rounds to 2^-9: seen in the updates, but small
    assert (errors > 1e-5).all()
    assert (errors < 0.05).all()
    # Steps far below the spacing of bfloat16 numbers add up in float32 weights.
    tiny = _cohort_of(mixed.scaled(1e-5), clients, start)
    tiny_exact = _cohort_of(full.scaled(1e-5), clients, start)
    # flax begins them at zero: no rounding at all against the start
    biases = slice(0, 8)
    np.testing.assert_allclose(
        tiny[:, biases], tiny_exact[:, biases], atol=0.05 * np.abs(tiny_exact).max()
    )
    assert np.count_nonzero(tiny[0]) > 0.5 * np.count_nonzero(exact[0])


def test_bfloat16_is_what_the_products_run_in() -> None:
    model = mj.federated.mlp(10, hidden_sizes=(8,))
    trainer = mj.federated.local_sgd(model, 0.1, batch_size=8, compute_dtype="bfloat16")
    inputs, labels = _samples(8)
    text = str(
        jax.make_jaxpr(trainer.update)(
            as_key(0), _start(model), on_device(inputs), on_device(labels), jnp.int32(8)
        )
    )
    products = [line for line in text.splitlines() if "dot_general" in line]
    # two forward, three backward: the images need no gradient
    assert len(products) == 5
    assert all(re.search(r":bf16\[[0-9,]+\] = dot_general", line) for line in products)
    logarithms = [
        line for line in text.splitlines() if re.search(r"= (log|exp)\b", line)
    ]
    assert logarithms
    assert not any("bf16" in line for line in logarithms)


@pytest.mark.long
def test_absent_slots_are_zero_and_flags_are_right() -> None:
    clients = mj.data.iid(0, _digits(), 6)
    trainer = mj.federated.local_sgd(_model(), 0.2, batch_size=16)
    start = _start(_model())
    arguments = (clients, as_key(0), jnp.int32(0), jnp.array([2, 0, 4], jnp.int32))
    present = jnp.array([True, False, True])
    updates, is_finite, _ = programs.cohort_updates(trainer, start, *arguments, present)
    assert not np.asarray(updates)[1].any()
    assert np.asarray(updates)[[0, 2]].any(axis=1).all()
    assert bool(is_finite.all())
    broken = start.at[3].set(jnp.nan)
    _, is_finite, _ = programs.cohort_updates(trainer, broken, *arguments, present)
    assert is_finite.tolist() == [False, True, False]  # the absent one sends zeros


@pytest.mark.long
def test_rows_and_columns_that_fill_a_bucket_change_nothing() -> None:
    """To the bit; a batch that holds all of a client stays as it is, as do copied samples."""
    clients = mj.data.dirichlet_by_class(0, _digits(), 5, concentration=0.5)
    largest = clients.indices.shape[1]
    assert 256 < largest < 512
    trainer = mj.federated.local_sgd(
        _model(), 0.2, batch_size=30, num_epochs=2, momentum=0.5
    )
    filled = programs.in_buckets(clients, trainer)
    assert filled.indices.shape == (8, 512)
    slots = jnp.array([4, 0, 2], jnp.int32), jnp.array([True, True, False])
    ours, theirs = (
        programs.cohort_updates(
            trainer, _start(_model()), data, as_key(0), jnp.int32(3), *slots
        )
        for data in (filled, clients)
    )
    assert np.asarray(ours[0])[:2].any(axis=1).all()
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert programs.in_buckets(filled, trainer) is filled
    whole = dataclasses.replace(trainer, batch_size=largest)
    copied = mj.federated.local_optax(_model(), optax.sgd(0.1), batch_size=30)
    for other in (whole, copied):
        assert programs.in_buckets(clients, other).indices.shape == (8, largest)


@pytest.mark.long
def test_numbers_compile_nothing_new_and_x64_changes_nothing() -> None:
    clients = mj.data.iid(0, _digits(), 6)
    start = _start(_model())

    def run(rate: float, seed: int, round_index: int, members: list[int]) -> np.ndarray:
        trainer = mj.federated.local_sgd(_model(), rate, batch_size=32, momentum=0.9)
        return np.asarray(
            mj.federated.client_updates(
                seed,
                _model(),
                start,
                clients,
                trainer,
                members,
                round_index=round_index,
            )
        )

    reference = run(0.1, 0, 0, [0, 1])
    compiled = programs.cohort_updates._cache_size()
    run(0.2, 1, 5, [3, 4])
    assert programs.cohort_updates._cache_size() == compiled
    with jax.enable_x64(True):
        again = run(0.1, 0, 0, [0, 1])
    assert again.dtype == np.float32
    np.testing.assert_allclose(again, reference, atol=1e-6)


@pytest.mark.long
def test_trainers_stack_under_vmap() -> None:
    inputs, labels = _samples(12)
    rates = jnp.array([0.1, 0.4])
    trainer = mj.federated.local_sgd(_model(), 0.1, batch_size=12)
    stacked = dataclasses.replace(trainer, learning_rate=rates)
    key, start = as_key(0), _start(_model())
    updates = jax.vmap(
        lambda t: t.update(
            key, start, jnp.asarray(inputs), jnp.asarray(labels), jnp.int32(12)
        )
    )(stacked)
    # one full-batch step is proportional to its learning rate
    np.testing.assert_allclose(updates[1], 4 * updates[0], atol=1e-6)


@pytest.mark.long
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
