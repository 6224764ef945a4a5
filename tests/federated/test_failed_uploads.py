"""Trainings in which updates are not finite.

Those clients are lost before V3, and counted.
The oracle is the training over a history in which the same clients are lost there.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core.pytrees import pytree

_N, _K, _DIM, _ROUNDS = 6, 4, 6, 5
_BAD = 2  # the client whose updates are not finite
_MODEL = nn.Dense(1)
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(8 * _N, _DIM - 1)).astype(np.float32)
_Y = _X.sum(axis=1, keepdims=True)
_FIELDS = ("parameters", "status", "participation", "components", "aggregates", "wrapped",
           "clipped_fraction", "failed_uploads")  # fmt: skip


def _squares(outputs: Any, labels: Any) -> Any:
    return jnp.sum((outputs - labels) ** 2, axis=-1)


@functools.cache
def _clients() -> mj.data.ClientData:
    rows = np.arange(8 * _N, dtype=np.int32).reshape(_N, 8)
    sizes = np.full(_N, 8, np.int32)
    return mj.data.ClientData(*map(jnp.asarray, (_X, _Y, rows, sizes)), num_classes=0)


@pytree
class _Breaks:
    """Gradient descent, but for the clients whose first label is one of these.

    They break.
    """

    inner: Any
    labels: Any
    value: Any

    @property
    def loss(self) -> Any:
        return _squares

    def update(
        self, key: Any, parameters: Any, inputs: Any, labels: Any, size: Any
    ) -> Any:
        own = self.inner.update(key, parameters, inputs, labels, size)
        is_broken = jnp.any(labels[0, 0] == self.labels)
        return own.at[1].set(jnp.where(is_broken, self.value, own[1]))


def _trainer(*broken: int, value: float = np.nan) -> _Breaks:
    inner = mj.federated.local_sgd(_MODEL, 0.05, batch_size=4, loss=_squares)
    labels = (
        _Y[np.asarray(broken, int) * 8, 0] if broken else np.full(1, np.inf, np.float32)
    )
    return _Breaks(inner, jnp.asarray(labels), jnp.float32(value))


def _history() -> np.ndarray:
    history = np.zeros((_ROUNDS, _N), bool)
    for row, members in zip(
        history,
        [(0, 1, 2, 3), (2, 3, 4, 5), (), (0, 1, 4, 5), (1, 2, 3, 5)],
        strict=True,
    ):
        row[list(members)] = True
    return history


def _survivors(history: np.ndarray) -> np.ndarray:
    alive = np.repeat(history[:, None], 5, axis=1)
    alive[:, 3:, _BAD] = False
    return alive


def _train(trainer: Any, form: str = "loops", history: Any = None, **more: Any) -> Any:
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 1.0), _K, _DIM, fidelity="sets", max_weight=9
    )
    settings: dict[str, Any] = {
        "aggregator": average,
        "keep_aggregates": True,
        "weights": np.array([1, 2, 9, 3, 4, 5]),
    }
    call = {"callback": more.pop("callback", None)}
    rounds = _history() if history is None else history
    training = mj.federated.Training(
        _MODEL, _clients(), rounds, trainer=trainer, **settings | more
    )
    with mj.use_form(form):
        return mj.federated.train(0, training, **call)


@pytest.mark.long("nan-loops", "nan-xla")
@pytest.mark.parametrize("form", ["loops", "xla"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_training_is_that_without_the_client(form: str, value: float) -> None:
    told: list[int] = []
    found = _train(
        _trainer(_BAD, value=value),
        form,
        callback=lambda own: told.append(own["failed_uploads"]),
    )
    history = _history()
    alone = _train(_trainer(), survivors=_survivors(history))
    failed = history & (np.arange(_N) == _BAD)
    np.testing.assert_array_equal(found.failed_uploads, failed)
    assert not alone.failed_uploads.any()
    for field in _FIELDS[:-1]:
        np.testing.assert_array_equal(
            getattr(found, field), getattr(alone, field), field
        )
    assert found.diverged_round is alone.diverged_round is None
    assert told == failed.sum(axis=1).cumsum().tolist()
    assert "failed uploads: 3: updates that were not finite" in repr(found)
    assert "failed uploads" not in repr(alone)


@pytest.mark.long
def test_it_ends_where_no_update_is_finite() -> None:
    for form in ("loops", "xla"):
        found = _train(_trainer(*range(_N)), form)
        assert found.diverged_round == 0
        assert found.failed_uploads.sum() == _K
        assert found.status.tolist() == [
            mj.Status.TOO_FEW_SURVIVORS,
            mj.Status.NOT_RUN,
            mj.Status.SKIPPED,
            mj.Status.NOT_RUN,
            mj.Status.NOT_RUN,
        ]
        # one who is left alone does not end it: its sum is withheld, and the model
        # waits
        found = _train(_trainer(0, 1, 2), form)
        assert found.diverged_round is None
        assert found.status.tolist() == [
            mj.Status.TOO_FEW_SURVIVORS,
            0,
            mj.Status.SKIPPED,
            0,
            0,
        ]


@pytest.mark.long
def test_side_by_side_it_is_the_same() -> None:
    history = _history()
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 1.0), _K, _DIM, fidelity="sets"
    )
    trainings = [
        mj.federated.Training(_MODEL, _clients(), history, trainer, average)
        for trainer in (_trainer(_BAD, _BAD), _trainer(0, 4))
    ]
    many = mj.federated.train_many(0, trainings, side_by_side=2)
    for own, training in zip(many, trainings, strict=True):
        alone = mj.federated.train(0, training)
        assert alone.failed_uploads.any()
        for field in ("status", "participation", "components", "failed_uploads"):
            np.testing.assert_array_equal(
                getattr(own, field), getattr(alone, field), field
            )


def test_drift_is_of_what_was_sent() -> None:
    history = _history()
    found = _train(_trainer(_BAD), measure_drift=True, keep_aggregates=False)
    alone = _train(
        _trainer(),
        measure_drift=True,
        keep_aggregates=False,
        survivors=_survivors(history),
    )
    for field in dataclasses.fields(found.drift):
        own, other = (getattr(one.drift, field.name) for one in (found, alone))
        np.testing.assert_array_equal(own, other, field.name)


@pytest.mark.long
def test_clients_that_keep_state_keep_the_old() -> None:
    """One whose update breaks has the control variate that it had."""
    history = np.ones((3, _N), bool)
    x = _X.copy()
    x[8 * _BAD : 8 * (_BAD + 1)] = 3e38  # finite, but what is learnt from it is not
    rows = np.arange(8 * _N, dtype=np.int32).reshape(_N, 8)
    pool = x, _Y, rows, np.full(_N, 8, np.int32)
    clients = mj.data.ClientData(*map(jnp.asarray, pool), num_classes=0)
    trainer = mj.federated.scaffold(_MODEL, 0.05, batch_size=4, loss=_squares)
    average = mj.secagg.ring_average(mj.quantize.stochastic(2**20, 4.0), _N, 2 * _DIM)
    found = mj.federated.train(
        0, mj.federated.Training(_MODEL, clients, history, trainer, average)
    )
    assert found.failed_uploads.sum(axis=0).tolist() == [0, 0, 3, 0, 0, 0]
    assert np.isfinite(found.client_states).all()
    assert not found.client_states[_BAD].any()
    assert found.client_states[[0, 1, 3, 4, 5]].any(axis=1).all()


def test_an_aggregator_that_does_not_look_ends_at_the_first() -> None:
    """Closed world: what it would make of such an update is not known."""

    class Mean:
        def init(self) -> int:
            return 0

        def aggregate(
            self, key: Any, state: Any, updates: Any, members: Any, alive: Any
        ) -> Any:
            out = mj.secagg.averages.AggregateOut(
                jnp.zeros(_DIM),
                jnp.int32(0),
                None,
                jnp.float32(0),
                jnp.asarray(alive),
                0,
                0,
            )
            return out._replace(components=jnp.where(alive, 0, -1)), state

    found = _train(_trainer(_BAD), aggregator=Mean(), weights=None)
    assert found.diverged_round == 0
    assert not found.failed_uploads.any()


@pytest.mark.long
def test_server_keys_differ_between_seeds() -> None:
    server = optax.chain(optax.add_noise(0.01, 0.5, key=0), optax.sgd(1.0))
    history = _history()
    quiet, loud = (
        [_train_seed(seed, history, own).parameters for seed in (0, 1)]
        for own in (optax.sgd(1.0), server)
    )
    noise = [one - other for one, other in zip(loud, quiet, strict=True)]
    assert np.abs(noise[0]).max() > 1e-3
    assert np.abs(noise[0] - noise[1]).max() > 1e-3


def _train_seed(seed: int, history: np.ndarray, server: Any) -> Any:
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**20, 2.0), _K, _DIM, fidelity="sets"
    )
    still = mj.federated.local_sgd(_MODEL, 1e-9, batch_size=8, loss=_squares)
    training = mj.federated.Training(
        _MODEL,
        _clients(),
        history,
        still,
        average,
        server=server,
        initial_parameters=np.zeros(_DIM, np.float32),
    )
    return mj.federated.train(seed, training)
