"""A malicious server reads one client's update off the sum, unless pads are bound to the model."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.attacks import _inconsistency as inner, model_inconsistency
from mrsa_jax.attacks._inconsistency import silenced

SHAPE = (8, 8, 1)
MODEL = mj.federated.mlp(10, hidden_sizes=(12, 6))
_quantizer = functools.cache(
    lambda: mj.quantize.stochastic(2**16 + 1, 0.5)
)  # 0 is a level: silent clients add nothing
_trainer = functools.cache(
    lambda: mj.federated.local_sgd(MODEL, 0.2, batch_size=20, num_epochs=2)
)


@functools.cache
def _clients() -> tuple[mj.data.ClientData, jax.Array]:
    clients = mj.data.iid(0, mj.data.load("digits", seed=0), 30)
    return clients, mj.federated.initial_parameters(0, MODEL, SHAPE)


@pytest.mark.long
def test_misuse() -> None:
    clients, parameters = _clients()
    attack = model_inconsistency(MODEL, _trainer(), _quantizer())
    for cohort, target in (([3], 3), ([1, 1, 2], 1), ([1, 2], 3)):
        with pytest.raises(
            mj.ConfigurationError, match="`cohort` must be different clients"
        ):
            attack.run(0, parameters, clients, cohort, target)
    with pytest.raises(mj.ConfigurationError, match="`cohort` must"):
        attack.run(0, parameters, clients, [1, 30], 1)
    with pytest.raises(mj.ConfigurationError, match="`modulus_bits` must"):
        model_inconsistency(MODEL, _trainer(), _quantizer(), modulus_bits=33)
    flat = mj.federated.initial_parameters(0, mj.federated.logistic(10), SHAPE)
    with pytest.raises(mj.ConfigurationError, match="`model` must have hidden layers"):
        silenced(mj.federated.logistic(10), SHAPE, flat)


MODELS = [
    (MODEL, SHAPE),
    (mj.federated.lenet(10), (16, 16, 1)),
    (mj.federated.cnn(4), (8, 8, 1)),
]


@pytest.mark.long
@pytest.mark.parametrize(("model", "shape"), MODELS, ids=["mlp", "lenet", "cnn"])
def test_a_silenced_model_learns_its_last_bias_only(
    model: Any, shape: tuple[int, ...]
) -> None:
    start = mj.federated.initial_parameters(0, model, shape)
    dead, is_seen = silenced(model, shape, start)
    classes = int(
        model.apply(
            mj.federated.unflatten(model, shape, start), jnp.ones((1, *shape))
        ).size
    )
    assert int((~is_seen).sum()) == classes
    generator = np.random.default_rng(0)
    images = jnp.asarray(generator.random((10, *shape)), jnp.float32)
    labels = jnp.asarray(generator.integers(0, classes, 10), jnp.int32)
    trainer = mj.federated.local_sgd(model, 0.5, batch_size=5, num_epochs=2)
    update = np.asarray(
        trainer.update(jax.random.key(0), dead, images, labels, jnp.int32(10))
    )
    assert not update[is_seen].any()
    assert update[~is_seen].any()


def test_only_the_target_is_sent_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients who answer the model with half of it, and the silenced one with zeros."""
    model, dead = np.array([0.5, -0.25, 0.0], np.float32), np.full(3, 9, np.float32)
    answers = {model.tobytes(): model / 2, dead.tobytes(): np.zeros(3, np.float32)}

    def updates(_: Any, __: Any, sent: Any, *___: Any) -> Any:
        return [jax.device_put(answers[np.asarray(sent).tobytes()])]

    monkeypatch.setattr(inner, "client_updates", updates)
    monkeypatch.setattr(
        inner, "silenced", lambda *_: (jax.device_put(dead), np.ones(3, bool))
    )
    attack = model_inconsistency(MODEL, _trainer(), _quantizer())
    clients: Any = types.SimpleNamespace(num_clients=20, inputs=np.zeros((1, 2)))
    got = inspect.unwrap(inner.ModelInconsistency.run)(
        attack, 5, model, clients, [4, 9, 2], 9
    )
    assert got.status == mj.Status.OK
    np.testing.assert_array_equal(got.true_update, model / 2)
    # a step for each client
    np.testing.assert_allclose(got.update, model / 2, atol=3 / 2**16)


@pytest.mark.long
def test_the_sum_is_the_targets_update() -> None:
    clients, parameters = _clients()
    got = model_inconsistency(MODEL, _trainer(), _quantizer()).run(
        5, parameters, clients, [4, 9, 2, 17], 9
    )
    assert got.status == mj.Status.OK
    own = mj.federated.client_updates(5, MODEL, parameters, clients, _trainer(), [9])[0]
    np.testing.assert_array_equal(got.true_update, own)
    step = float(_quantizer().step)
    wrong = np.abs(got.update - np.asarray(own))
    # the target's own rounding, nobody else's
    assert wrong[got.is_seen].max() <= 1.01 * step
    assert wrong[~got.is_seen].max() > 5 * step
    assert got.error < 1e-3


@pytest.mark.long
def test_pads_bound_to_the_model_hide_it() -> None:
    clients, parameters = _clients()
    attack = model_inconsistency(MODEL, _trainer(), _quantizer(), is_bound=True)
    got = attack.run(5, parameters, clients, [4, 9, 2, 17], 9)
    assert got.error > 1e3
    # uniform in the ring, read as numbers around 0: mean and deviation of d such words
    words = got.update / float(_quantizer().step)
    spread = 2**32 / np.sqrt(12)
    assert abs(words.mean()) < 6 * spread / np.sqrt(len(words))
    assert words.std() == pytest.approx(spread, rel=0.1)


@pytest.mark.long
def test_whole_blocks_hide_nothing_unless_clients_sign_their_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six clients in blocks of three, each the target once, sums over all of them.

    First by clients who name the same model whatever they were sent: all are read. Then
    by those who name it, and at last by those whose pads alone depend on it.
    """
    clients, parameters = _clients()
    attack = model_inconsistency(MODEL, _trainer(), _quantizer(), blocks=3)

    def errors() -> tuple[list[float], set[mj.Status]]:
        rounds = [
            attack.run(5, parameters, clients, range(6), target) for target in range(6)
        ]
        return [got.error for got in rounds], {got.status for got in rounds}

    with monkeypatch.context() as alike:
        alike.setattr(mj.protocol, "model_digest", lambda _: b"one model")
        read, statuses = errors()
    assert statuses == {mj.Status.OK}
    assert max(read) < 2e-6
    refused, statuses = errors()
    assert statuses == {mj.Status.TOO_FEW_SURVIVORS}
    assert refused == [1.0] * 6  # nothing is known of them
    monkeypatch.setattr(mj.protocol.Terms, "check", lambda *_: None)
    noisy, statuses = errors()
    assert statuses == {mj.Status.OK}
    assert min(noisy) > 1e6


def test_bound_pads_cancel_where_all_have_one_model() -> None:
    inputs = np.arange(12, dtype=np.uint32).reshape(4, 3)
    complete, alive = ~np.eye(4, dtype=bool), np.ones((5, 4), bool)
    alive[3:, 1] = False  # its pads must be removed by the server
    same = [hashlib.sha256(b"model").digest()] * 4
    bound = mj.protocol.run(inputs, complete, alive, 2, 16, entropy=1, contexts=same)
    plain = mj.protocol.run(inputs, complete, alive, 2, 16, entropy=1)
    np.testing.assert_array_equal(bound.total, plain.total)
    assert (bound.seeds.pair_seed != plain.seeds.pair_seed).any()
    with pytest.raises(
        mj.ConfigurationError, match="`contexts` must be bytes, one for each"
    ):
        mj.protocol.run(inputs, complete, alive, 2, 16, contexts=same[:3])


def test_a_client_with_another_model_spoils_only_sums_that_it_is_in() -> None:
    """Dropped before its padded input, its pads come off the others' inputs like anybody's."""
    inputs = np.arange(12, dtype=np.uint32).reshape(4, 3)
    complete, alive = ~np.eye(4, dtype=bool), np.ones((5, 4), bool)
    contexts = [b"one", b"one", b"another", b"one"]
    spoilt = mj.protocol.run(
        inputs, complete, alive, 2, 16, entropy=1, contexts=contexts
    )
    assert (np.asarray(spoilt.total) != inputs.sum(axis=0)).any()
    alive[3:, 2] = False
    left = mj.protocol.run(inputs, complete, alive, 2, 16, entropy=1, contexts=contexts)
    np.testing.assert_array_equal(left.total, inputs[[0, 1, 3]].sum(axis=0))
