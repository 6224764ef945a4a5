"""Trainings of one's own.

Losses, labels of any kind, optax, SCAFFOLD, tests on each client.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import mrsa_jax as mj
from mrsa_jax.federated.programs import runs_program

_CLIENTS, _COHORT, _WIDTH = 5, 3, 4
_SIZES = np.array([7, 2, 5, 0, 6])
_MODEL = nn.Dense(1)
_DIM = _WIDTH + 1
_GRAIN = 8.0 / 2**22  # of the lattice that updates are rounded to
_RNG = np.random.default_rng(3)
_X = _RNG.standard_normal((_CLIENTS, _SIZES.max(), _WIDTH)).astype(np.float32)
_Y = (_X @ _RNG.standard_normal((_CLIENTS, _WIDTH, 1))).astype(np.float32)


def _squared(outputs: Any, labels: Any) -> Any:
    return jnp.sum((outputs - labels) ** 2, axis=-1) / 2


@functools.cache
def _clients() -> mj.data.ClientData:
    indices = np.arange(_CLIENTS * _SIZES.max(), dtype=np.int32).reshape(_CLIENTS, -1)
    pool = _X.reshape(-1, _WIDTH), _Y.reshape(-1, 1), indices, _SIZES.astype(np.int32)
    return mj.data.ClientData(*map(jnp.asarray, pool), num_classes=0)


def _survivors() -> np.ndarray:
    """Who is left in six rounds: the fourth has one update, whose sum is withheld."""
    asked = np.zeros((6, _CLIENTS), bool)
    for row, members in zip(
        asked, [(0, 1, 2), (1, 3, 4), (), (0, 2, 4), (2, 4), (0, 1, 4)], strict=True
    ):
        row[list(members)] = True
    alive = np.repeat(asked[:, None], 5, axis=1)
    alive[3, 2:] = False
    alive[3, 2:, 0] = True
    return alive


def _training(trainer: Any, **more: Any) -> mj.federated.Training:
    rounds = _survivors()
    many = 2 if hasattr(trainer, "state_sizes") else 1
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**22 + 1, 4.0), _COHORT, many * _DIM, fidelity="sets"
    )
    settings: dict[str, Any] = {"survivors": rounds, "evaluate_every": 2}
    settings |= {"initial_parameters": np.full(_DIM, 0.5, np.float32)} | more
    return mj.federated.Training(
        _MODEL, _clients(), rounds[:, 0], trainer, average, **settings
    )


def _scaffold(**more: Any) -> mj.federated.Scaffold:
    return mj.federated.scaffold(
        _MODEL, 0.1, **{"batch_size": 10, "num_epochs": 3, "loss": _squared} | more
    )


def _slope(flat: np.ndarray, client: int) -> np.ndarray:
    """Return the gradient of a client's mean loss; the bias is the first entry."""
    x, y = (part[client, : _SIZES[client]].astype(np.float64) for part in (_X, _Y))
    rest = x @ flat[1:, None] + flat[0] - y
    return np.concatenate([[rest.mean()], (rest * x).mean(axis=0)])


def _oracle(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """SCAFFOLD's Algorithm 1 with option II, full batches, three steps a round."""
    x, c, own = np.full(_DIM, 0.5), np.zeros(_DIM), np.zeros((_CLIENTS, _DIM))
    for rate, alive in zip(rates, _survivors(), strict=True):
        members = np.flatnonzero(alive[3])
        if len(members) < 2:  # no sum, or a withheld one
            continue
        moves, changes = [], []
        for i in members:
            y, steps = x.copy(), 3 * (_SIZES[i] > 0)
            for _ in range(steps):
                y = y - rate * (_slope(y, i) - own[i] + c)
            new = own[i] - c + (x - y) / (steps * rate) if steps else own[i]
            moves.append(y - x)
            changes.append(new - own[i])
            own[i] = new
        x, c = x + np.mean(moves, axis=0), c + np.sum(changes, axis=0) / _CLIENTS
    return x, c, own


@pytest.mark.long("False")
@pytest.mark.parametrize("decays", [False, True])
def test_scaffold_is_its_equations(decays: bool) -> None:
    """Clients of 0 to 7 samples, a skipped round, and one whose sum is withheld."""
    schedule = mj.federated.decay_at(2, 0.5) if decays else None
    result = mj.federated.train(0, _training(_scaffold(), rate_schedule=schedule))
    x, c, own = _oracle(np.where((np.arange(6) >= 2) & decays, 0.05, 0.1))
    assert [mj.Status(code).name for code in result.status[2:4]] == [
        "SKIPPED",
        "TOO_FEW_SURVIVORS",
    ]
    assert result.shared is not None
    assert result.client_states is not None
    np.testing.assert_allclose(result.parameters, x, atol=20 * _GRAIN)
    np.testing.assert_allclose(result.shared, c, atol=20 * _GRAIN)
    # 1 / (3 * 0.05)
    np.testing.assert_allclose(result.client_states, own, atol=400 * _GRAIN)
    np.testing.assert_allclose(
        result.shared, result.client_states.mean(axis=0), atol=9 * _GRAIN
    )
    assert not result.client_states[3].any()
    assert result.client_states[:3].all()


@pytest.mark.long
def test_state_corrects_drift() -> None:
    """Of clients who differ, averages of many local steps end elsewhere than SCAFFOLD does."""
    history = np.ones((150, _CLIENTS), bool)
    more = {"batch_size": 10, "num_epochs": 30, "loss": _squared}
    data = dataclasses.replace(_clients(), sizes=jnp.full(_CLIENTS, 7, jnp.int32))
    flat = np.concatenate([np.ones((_CLIENTS * 7, 1)), _X.reshape(-1, _WIDTH)], axis=1)
    best = np.linalg.lstsq(flat, _Y.reshape(-1), rcond=None)[0]
    far = []
    for trainer in (mj.federated.local_sgd(_MODEL, 0.1, **more), _scaffold(**more)):
        own = dataclasses.replace(
            _training(trainer),
            client_data=data,
            participation=history,
            survivors=None,
            aggregator=mj.secagg.ring_average(
                mj.quantize.stochastic(2**22 + 1, 4.0),
                _CLIENTS,
                _DIM * (1 + hasattr(trainer, "state_sizes")),
                fidelity="sets",
            ),
        )
        far.append(np.abs(mj.federated.train(0, own).parameters - best).max())
    assert far[1] < 1e-4 < 1e-2 < far[0]


@pytest.mark.long
def test_state_in_every_form(tmp_path: pathlib.Path) -> None:
    """As programs, over two devices, side by side and from a checkpoint: one training."""
    training = _training(_scaffold(batch_size=2))
    expected = mj.federated.train(0, training)
    before = runs_program._cache_size()
    with mj.use_form("xla"):
        programs = mj.federated.train(0, training)
    assert runs_program._cache_size() > before
    mesh = jax.make_mesh((2,), ("clients",))
    halves = [mj.federated.checkpoints(tmp_path, every=1) for _ in range(2)]

    with pytest.raises(KeyboardInterrupt):
        mj.federated.train(0, training, checkpoints=halves[0], progress=_stop_at(3))
    found = [
        programs,
        mj.federated.train(0, training, checkpoints=halves[1]),
        *mj.federated.train_many([1, 0], training, side_by_side=2)[1:],
        mj.federated.train(0, training, mesh=mesh),
    ]
    for result in found[:3]:
        for field in ("parameters", "shared", "client_states", "participation"):
            np.testing.assert_array_equal(
                getattr(result, field), getattr(expected, field)
            )
    for field in ("parameters", "shared"):
        spread = getattr(found[3], field), getattr(expected, field)
        np.testing.assert_allclose(*spread, atol=20 * _GRAIN)


def _stop_at(number: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done == number:
            raise KeyboardInterrupt

    return progress


@pytest.mark.long
def test_optax_takes_the_steps() -> None:
    """SGD of optax is `local_sgd`.

    Adam's steps are those of its own loop over full batches.
    """
    more: Any = {"batch_size": 3, "loss": _squared}
    plain = mj.federated.train(
        0, _training(mj.federated.local_sgd(_MODEL, 0.1, **more))
    )
    own = mj.federated.local_optax(_MODEL, optax.sgd(0.2), **more)
    schedule = mj.federated.decay_at(0, 0.5)
    found = mj.federated.train(0, _training(own, rate_schedule=schedule))
    np.testing.assert_allclose(found.parameters, plain.parameters, atol=4 * _GRAIN)
    adam = optax.adam(0.05)
    trainer = mj.federated.local_optax(
        _MODEL, adam, batch_size=9, num_epochs=4, loss=_squared
    )
    start = jnp.full(_DIM, 0.5)
    (update,) = mj.federated.client_updates(0, _MODEL, start, _clients(), trainer, [2])
    flat, state = start, adam.init(start)
    for _ in range(4):
        with jax.numpy_dtype_promotion("standard"):
            steps, state = adam.update(
                jnp.asarray(_slope(np.asarray(flat), 2), jnp.float32), state
            )
        flat = flat + steps
    np.testing.assert_allclose(start + update, flat, rtol=1e-5)


@pytest.mark.long
def test_tests_on_each_client_are_their_losses() -> None:
    inputs, labels = _X[0], _Y[0]
    trainer = mj.federated.local_sgd(_MODEL, 0.1, batch_size=4, loss=_squared)
    more = {"test": (inputs, labels), "client_test": _clients()}
    result = mj.federated.train(0, _training(trainer, **more))
    assert result.client_loss is not None
    assert result.client_loss.shape == (3, _CLIENTS)
    assert np.isnan(result.accuracy).all()
    assert "accuracy" not in repr(result)
    flat = result.parameters.astype(np.float64)
    each = ((_X @ flat[1:] + flat[0] - _Y[..., 0]) ** 2 / 2)[:, :]
    means = [
        own[:size].mean() if size else np.nan
        for own, size in zip(each, _SIZES, strict=True)
    ]
    np.testing.assert_allclose(result.client_loss[-1], means, rtol=1e-5)
    again = mj.federated.evaluate_clients(
        _MODEL, result.parameters, _clients(), loss=_squared
    )
    np.testing.assert_array_equal(again.loss, result.client_loss[-1])
    whole = mj.federated.evaluate(
        _MODEL, flat, inputs, labels, loss=_squared, batch_size=3
    )
    np.testing.assert_allclose([whole.loss, result.loss[-1]], means[0], rtol=1e-5)


class _NextToken(nnx.Module):
    """Bigrams: the inputs are whole numbers as float32."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.table = nnx.Embed(4, 4, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        return self.table(tokens.astype(jnp.int32))


@pytest.mark.long
def test_next_tokens_are_learnt_by_a_model_of_nnx() -> None:
    """Each token is followed by the next.

    A sequence's accuracy is the share of its tokens.
    """
    model = nnx.bridge.to_linen(_NextToken)
    tokens = (np.arange(20)[:, None] + np.arange(6)) % 4
    indices = np.arange(20, dtype=np.int32).reshape(4, 5)
    pool = (
        tokens[:, :-1].astype(np.float32),
        tokens[:, 1:],
        indices,
        np.full(4, 5, np.int32),
    )
    clients = mj.data.ClientData(*map(jnp.asarray, pool), num_classes=0)

    def loss(logits: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(
            axis=-1
        )

    training = mj.federated.Training(
        model,
        clients,
        np.ones((8, 4), bool),
        mj.federated.local_optax(model, optax.adam(0.2), batch_size=5, loss=loss),
        mj.secagg.ring_average(
            mj.quantize.stochastic(2**16, 1.0), 4, 16, fidelity="sets"
        ),
        test=pool[:2],
        client_test=clients,
    )
    result = mj.federated.train(0, training)
    assert result.accuracy[-1] == 1
    assert (result.client_accuracy == 1).all()
    wrong = tokens[:, 1:].copy()
    wrong[:, :2] += 1
    found = mj.federated.evaluate(
        model, result.parameters, pool[0], wrong % 4, loss=loss
    )
    assert found.accuracy == pytest.approx(0.6)


@pytest.mark.long
def test_cross_entropy_as_a_loss_of_one_s_own_is_the_default() -> None:
    data = mj.data.iid(0, mj.data.load("digits"), num_clients=30)
    model, loss = (
        mj.federated.logistic(10),
        optax.softmax_cross_entropy_with_integer_labels,
    )
    start = ravel_pytree(jnp.full(650, 0.01))[0]
    updates = [
        mj.federated.client_updates(
            0,
            model,
            start,
            data,
            mj.federated.local_sgd(model, 0.1, batch_size=16, loss=own),
        )
        for own in (None, loss)
    ]
    np.testing.assert_allclose(*updates, atol=1e-6)
    found = [
        mj.federated.evaluate_clients(model, start, data, loss=own)
        for own in (None, loss)
    ]
    np.testing.assert_allclose(*[own.loss for own in found], rtol=1e-6)
    np.testing.assert_allclose(*[own.accuracy for own in found], rtol=1e-6)


def test_misuse() -> None:
    data, sgd = (
        _clients(),
        functools.partial(mj.federated.local_sgd, _MODEL, 0.1, batch_size=2),
    )
    with pytest.raises(
        mj.ConfigurationError, match="`loss` must be given to a trainer for lab"
    ):
        _training(sgd())
    with pytest.raises(
        mj.ConfigurationError, match="`loss` must give one float for each sample"
    ):
        _training(sgd(loss=lambda outputs, labels: outputs))
    with pytest.raises((mj.ConfigurationError, TypeError), match="loss"):
        sgd(loss="squares")
    with pytest.raises(
        mj.ConfigurationError, match="`weights` must not be set if clients"
    ):
        _training(_scaffold(), weights=_SIZES)
    fewer = dataclasses.replace(data, indices=data.indices[:2], sizes=data.sizes[:2])
    with pytest.raises(
        mj.ConfigurationError, match=r"`client_test` must be .* with samples of 5"
    ):
        _training(sgd(loss=_squared), client_test=fewer)
    with pytest.raises(
        mj.ConfigurationError, match="`client_data` must have labels that are cl"
    ):
        mj.data.label_dropout_rates(data)
    unsound = dataclasses.replace(data, labels=data.labels.at[1].set(jnp.nan))
    with pytest.raises(mj.ConfigurationError, match="`labels` must be finite"):
        _training(sgd(loss=_squared), client_test=unsound)
    with pytest.raises((mj.ConfigurationError, TypeError), match="optimizer"):
        mj.federated.local_optax(_MODEL, 0.1, batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(mj.ConfigurationError, match="`learning_rate` must be positive"):
        mj.federated.scaffold(_MODEL, 0.0, batch_size=2)
