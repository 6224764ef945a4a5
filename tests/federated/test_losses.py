"""Losses and optimisers of one's own.

Each sample by itself, NaN, and random keys of optimisers.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import with_own_keys

_N, _DIM = 4, 6
_MODEL = nn.Dense(1)
_RNG = np.random.default_rng(1)
_X = _RNG.normal(size=(8 * _N, _DIM - 1)).astype(np.float32)
_Y = _X.sum(axis=1)  # [samples], while the model's outputs are [samples, 1]


@functools.cache
def _clients() -> mj.data.ClientData:
    rows = np.arange(8 * _N, dtype=np.int32).reshape(_N, 8)
    sizes = np.full(_N, 8, np.int32)
    return mj.data.ClientData(*map(jnp.asarray, (_X, _Y, rows, sizes)), num_classes=0)


def _each(outputs: Any, labels: Any) -> Any:
    with jax.numpy_rank_promotion("allow"):  # as outside of these tests
        return (outputs[:, 0] - labels) ** 2


def _table(outputs: Any, labels: Any) -> Any:
    with jax.numpy_rank_promotion("allow"):
        return (outputs - labels) ** 2  # [B, B]: outputs [B, 1] against labels [B]


def _second(outputs: Any) -> Any:
    """Return 0, whose gradient is that of the squared mean over the batch."""
    square = outputs.mean() ** 2
    return square - jax.lax.stop_gradient(square)


MIXED = {
    "mean of pairs": lambda o, y: _table(o, y).mean(axis=1),
    "sum of pairs": lambda o, y: _table(o, y).sum(axis=0),
    "largest of pairs": lambda o, y: _table(o, y).max(axis=-1),
    "mean over the batch": lambda o, y: jnp.broadcast_to(_each(o, y).mean(), y.shape),
    "centred": lambda o, y: (o[:, 0] - o.mean() - y) ** 2,
    "softmax over the batch": lambda o, y: -jax.nn.log_softmax(o[:, 0]) * y,
    "its neighbour's label": lambda o, y: (o[:, 0] - jnp.roll(y, 1)) ** 2,
    "gradient alone": lambda o, y: _each(o, y) + _second(o),
}
SOUND = {
    "of each": _each,
    "squeezed": lambda o, y: (o.squeeze() - y) ** 2,
    "only NaN": lambda o, y: _each(o, y) * jnp.nan,
    "NaN for some": lambda o, y: jnp.where(y > 0, _each(o, y), jnp.nan),
    "constant": lambda o, y: 0.0 * o[:, 0] + 3.0,
    "large": lambda o, y: 1e20 * _each(o, y),
    "of powers": lambda o, y: jnp.exp(-jnp.abs(o[:, 0]) * 30),
}


def _training(loss: Any, **more: Any) -> mj.federated.Training:
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 4.0), _N, _DIM, fidelity="sets"
    )
    trainer = mj.federated.local_sgd(_MODEL, 0.05, batch_size=4, loss=loss)
    history = np.ones((3, _N), bool)
    return mj.federated.Training(_MODEL, _clients(), history, trainer, average, **more)


@pytest.mark.parametrize("name", MIXED)
def test_a_loss_that_looks_at_other_samples_is_refused(name: str) -> None:
    rule = "`loss` must not depend on the other samples of a batch"
    with pytest.raises(mj.ConfigurationError, match=rule):
        _training(MIXED[name])
    with pytest.raises(mj.ConfigurationError, match=rule):
        mj.federated.evaluate(_MODEL, np.zeros(_DIM), _X, _Y, loss=MIXED[name])
    with pytest.raises(mj.ConfigurationError, match=rule):
        mj.federated.evaluate_clients(
            _MODEL, np.zeros(_DIM), _clients(), loss=MIXED[name]
        )


@pytest.mark.parametrize("name", SOUND)
def test_any_other_is_taken(name: str) -> None:
    _training(SOUND[name])


def test_labels_of_tests_have_the_shape_of_the_clients() -> None:
    """A loss that is right for labels [B] and wrong for those [B, 1] of a test set."""
    _training(_each, test=(_X, _Y))
    rule = "`loss` must give one float for each sample"
    with pytest.raises(mj.ConfigurationError, match=rule):
        _training(_each, test=(_X, _Y[:, None]))


def test_equal_labels_are_told_from_others() -> None:
    """The first samples may all have one label: later ones are looked at."""
    labels = np.where(np.arange(len(_Y)) < 20, np.float32(1), _Y)
    with pytest.raises(mj.ConfigurationError, match="`loss` must not depend"):
        mj.federated.evaluate(
            _MODEL,
            np.zeros(_DIM),
            _X,
            labels,
            loss=lambda o, y: (o[:, 0] - y.mean()) ** 2,
        )


@pytest.mark.long("loops", "xla")
@pytest.mark.parametrize("form", ["loops", "xla"])
def test_a_loss_of_nan_ends_a_training_whose_gradient_is_finite(form: str) -> None:
    def nothing(outputs: Any, labels: Any) -> Any:
        return _each(outputs, labels) + jax.lax.stop_gradient(jnp.nan)

    with mj.use_form(form):
        found = mj.federated.train(0, _training(nothing))
    assert found.diverged_round == 0
    assert found.failed_uploads[0].all()
    assert found.status[1:].tolist() == [mj.Status.NOT_RUN] * 2


@pytest.mark.long
def test_clients_whose_loss_is_nan_are_left_out() -> None:
    """A client with one such sample sends nothing; the others train as ever."""

    def partly(outputs: Any, labels: Any) -> Any:
        return _each(outputs, labels) + jnp.where(labels == _Y[9], jnp.nan, 0)

    found = mj.federated.train(0, _training(partly))
    np.testing.assert_array_equal(
        found.failed_uploads, np.tile(np.arange(_N) == 1, (3, 1))
    )
    assert found.diverged_round is None
    assert found.status.tolist() == [mj.Status.OK] * 3


@pytest.mark.long
def test_a_test_loss_of_nan_ends_a_training() -> None:
    def breaks(outputs: Any, labels: Any) -> Any:
        """NaN for a label that only the test set has."""
        return _each(outputs, labels) + jnp.where(labels > 1e6, jnp.nan, 0)

    test = _X, np.append(_Y[1:], np.float32(1e7))
    found = mj.federated.train(0, _training(breaks, test=test, evaluate_every=2))
    assert found.diverged_round == 1
    assert found.status.tolist() == [mj.Status.OK, mj.Status.OK, mj.Status.NOT_RUN]
    assert np.isnan(found.loss).all()
    assert np.isnan(found.accuracy).all()


def _noise(key: Any) -> np.ndarray:
    """Return what an optimiser adds to updates, by round and client."""
    optimiser = optax.noisy_sgd(0.1, eta=1.0, key=key)
    trainers = [
        mj.federated.local_optax(_MODEL, own, batch_size=8, loss=_each)
        for own in (optimiser, optax.sgd(0.1))
    ]
    start = np.zeros(_DIM, np.float32)
    noisy, plain = (
        np.stack(
            [
                mj.federated.client_updates(
                    seed, _MODEL, start, _clients(), own, round_index=index
                )
                for seed in (0, 1)
                for index in range(3)
            ]
        )
        for own in trainers
    )
    return noisy - plain


@pytest.mark.long
def test_noise_of_an_optimiser_is_fresh() -> None:
    """In every round, for every client and seed.

    Another key of the optimiser is other noise.
    """
    found = [
        _noise(0),
        _noise(jax.random.key(1)),
        _noise(jax.random.key(1, impl="rbg")),
    ]
    draws = np.concatenate([own.reshape(-1, _DIM) for own in found])
    apart = np.abs(draws[:, None] - draws[None, :]).max(axis=-1)
    assert apart[~np.eye(len(draws), dtype=bool)].min() > 1e-3
    # one step of a full batch: normal with standard deviation 0.1, to 1e-6 by its chi
    # square
    assert 0.08 < draws.std() < 0.12


@pytest.mark.long
def test_only_keys_change_in_a_state() -> None:
    key = jax.random.key(3)
    state = {
        "typed": jax.random.key(0),
        "several": jax.random.split(jax.random.key(0), 3),
        "words": jax.random.PRNGKey(0),
        "count": jnp.uint32(7),
        "moments": jnp.ones((2,)),
        "table": jnp.ones((2, 2), jnp.uint32),
    }
    found, again = with_own_keys(state, key), with_own_keys(state, key)
    other = with_own_keys(state, jax.random.key(4))
    for name, leaf in state.items():
        is_key = name in ("typed", "several", "words")
        assert found[name].dtype == leaf.dtype
        assert found[name].shape == leaf.shape
        assert bool(jnp.all(found[name] == leaf)) != is_key, name
        assert bool(jnp.all(found[name] == again[name]))
        assert bool(jnp.all(found[name] == other[name])) != is_key, name
    assert len(set(jax.random.key_data(found["several"])[:, 0].tolist())) == 3
