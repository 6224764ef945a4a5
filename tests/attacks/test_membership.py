"""Membership inference: above chance on overfitted models, at chance on padded ones."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.attacks import (
    _membership,
    _membership as inner,
    membership,
    membership_score,
)
from mrsa_jax.attacks._membership import true_logits
from mrsa_jax.attacks.views import MembershipView

SHAPE = (8, 8, 1)
MODEL = mj.federated.mlp(10, hidden_sizes=(32,))
SIZE = 40  # samples of a client
_trainer = functools.cache(
    lambda: mj.federated.local_sgd(MODEL, 0.5, batch_size=20, num_epochs=60)
)
METHODS = ("loss", "shadow", "likelihood_ratio")


@functools.cache
def _view() -> tuple[MembershipView, np.ndarray]:
    """A client's overfitted model, its samples and as many others, with noisy labels to learn."""
    dataset = mj.data.load("digits", seed=0)
    inputs = np.asarray(dataset.train_inputs[:800], np.float32)
    noise = np.random.default_rng(0)
    labels = np.where(
        noise.random(800) < 0.5, noise.integers(0, 10, 800), dataset.train_labels[:800]
    )
    pool = labels.astype(np.int32)
    start = mj.federated.initial_parameters(0, MODEL, SHAPE)
    client = mj.data.ClientData(
        inputs=on_device(inputs),
        labels=on_device(pool),
        indices=on_device(np.arange(SIZE, dtype=np.int32)[None]),
        sizes=on_device([SIZE], jnp.int32),
        num_classes=10,
    )
    update = mj.federated.client_updates(7, MODEL, start, client, _trainer())[0]
    view = MembershipView(
        MODEL,
        start + update,
        start,
        SHAPE,
        10,
        *map(on_device, (inputs[: 2 * SIZE], pool[: 2 * SIZE])),
        *map(on_device, (inputs[2 * SIZE :], pool[2 * SIZE :])),
    )
    return view, np.arange(2 * SIZE) < SIZE


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "guess"}, "`method` must be one of"),
        ({"num_shadows": 1}, "`num_shadows` must"),
        ({"shadow_size": 0}, "`shadow_size` must"),
    ],
)
def test_misuse_of_the_attack(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        inspect.unwrap(membership)(
            **({"method": "loss", "trainer": _trainer(), "shadow_size": 3} | settings)
        )


@pytest.mark.long(
    "changes0-`parameters` must have the model's 2410 entries",
    "changes1-`parameters` must be finite",
)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": np.ones(3)}, "`parameters` must have the model's 2410 entries"),
        ({"parameters": np.full(2410, np.nan)}, "`parameters` must be finite"),
        ({"start": np.ones(3)}, "`start` must have 2410 entries"),
        ({"labels": np.ones(3, np.int32)}, "`inputs` must be one for each label"),
        (
            {"own_labels": np.ones(3, np.int32)},
            "`own_inputs` must be one for each label",
        ),
    ],
)
def test_misuse_of_the_view(changes: dict[str, Any], message: str) -> None:
    attack = membership("loss", _trainer(), shadow_size=SIZE)
    with pytest.raises(mj.ConfigurationError, match=message):
        attack.run(
            0, dataclasses.replace(_view()[0], **jax.tree.map(jnp.asarray, changes))
        )


def test_the_adversary_needs_samples_of_its_own() -> None:
    attack = membership("shadow", _trainer(), shadow_size=720)
    with pytest.raises(
        mj.ConfigurationError, match=r"`shadow_size` must leave samples .*720 own"
    ):
        attack.run(0, _view()[0])
    other: Any = mj.attacks.views.ModelView(MODEL, jnp.ones(3), SHAPE, 10)
    with pytest.raises(
        mj.ConfigurationError, match="lacks start, inputs, labels, own_inputs"
    ):
        inspect.unwrap(_membership.Membership.run)(attack, 0, other)


@pytest.mark.long
def test_logits_of_the_true_label_by_their_definition() -> None:
    view, _ = _view()
    models = jnp.stack([jnp.asarray(view.parameters), jnp.asarray(view.start)])
    got = true_logits(MODEL, models, view.inputs, view.labels)
    for flat, own in zip(models, got, strict=True):
        logits = MODEL.apply(mj.federated.unflatten(MODEL, SHAPE, flat), view.inputs)
        chance = np.asarray(jax.nn.softmax(logits.astype(jnp.float32)), np.float64)
        chance = chance[np.arange(len(own)), np.asarray(view.labels)]
        moderate = (chance > 1e-4) & (chance < 1 - 1e-4)
        assert moderate.any()
        expected = np.log(chance / (1 - chance))
        np.testing.assert_allclose(
            own[moderate], expected[moderate], rtol=1e-3, atol=1e-3
        )
    huge = true_logits(MODEL, models[:1] * 1000, view.inputs, view.labels)
    assert np.isfinite(huge).all()


@functools.cache
def _scores(method: str) -> tuple[Any, np.ndarray]:
    """Attack the plain model, and 20 that were read from padded uploads, in one call."""
    view, is_member = _view()
    spread = np.random.default_rng(5).uniform(
        -1e3, 1e3, (20, view.parameters.shape[-1])
    )
    models = np.concatenate([np.asarray(view.parameters)[None], spread]).astype(
        np.float32
    )
    chosen: Any = method
    attack = membership(chosen, _trainer(), num_shadows=8, shadow_size=SIZE)
    return attack.run(
        1, dataclasses.replace(view, parameters=jnp.asarray(models))
    ), is_member


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_plain_overfitted_models_give_their_members_away(method: str) -> None:
    got, is_member = _scores(method)
    assert got.scores.shape == (21, 2 * SIZE)
    score = membership_score(got.scores[0], is_member, threshold=got.threshold)
    assert score.auc > 0.85
    assert score.accuracy > 0.75
    np.testing.assert_array_equal(got.called, got.scores >= got.threshold)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_padded_models_give_nothing_away(method: str) -> None:
    """The scores of a model that is noise say nothing of who trained it."""
    got, is_member = _scores(method)
    wins = [membership_score(own, is_member).auc for own in got.scores[1:]]
    # one AUC of 40 x 40 deviates by at most sqrt((2 * 40 + 1) / (12 * 40 * 40)) = 0.065
    deviation = np.sqrt((2 * SIZE + 1) / (12 * SIZE**2) / len(wins))
    assert abs(np.mean(wins) - 0.5) < stats.norm.isf(5e-7) * deviation


def _answered(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Models whose parameters are their answers.

    Four shadow models of four samples, a target.
    """
    monkeypatch.setattr(
        inner, "true_logits", lambda _, parameters, *__: np.asarray(parameters)
    )
    known = np.array([[5, 1, 2, 0], [3, 0, 4, 1], [1, 4, 0, 7], [0, 2, 1, 5.0]])
    is_in = np.array([[1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 0]], bool)
    pool = types.SimpleNamespace(inputs=np.zeros(4), labels=np.zeros(4, np.int32))
    shadows = types.SimpleNamespace(parameters=known, is_member=is_in, clients=pool)
    view = types.SimpleNamespace(
        model=None, inputs=np.zeros(4, np.float32), labels=np.zeros(4, np.int32)
    )
    return view, shadows


def test_thresholds_of_given_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut with the largest difference of the two rates, by trying all.

    Here few are members.
    """
    view, shadows = _answered(monkeypatch)
    values = shadows.parameters
    members = shadows.is_member = np.isin(np.arange(16), [6, 9, 11]).reshape(4, 4)
    scores, threshold = inspect.unwrap(inner._by_loss)(view, values[:1], shadows)
    np.testing.assert_array_equal(scores, values[:1])

    def difference(cut: float) -> float:
        return float((values[members] >= cut).mean() - (values[~members] >= cut).mean())

    assert difference(threshold) == max(map(difference, values.ravel()))


def test_likelihood_ratio_of_given_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    view, shadows = _answered(monkeypatch)
    asked = np.array([[4.0, 1.0, 3.0, 2.0]])
    got, _ = inspect.unwrap(inner._by_likelihood_ratio)(view, asked, shadows)
    expected = np.zeros(4)
    for side, sign in ((shadows.is_member, 1), (~shadows.is_member, -1)):
        own = [shadows.parameters[side[:, i], i] for i in range(4)]
        means = [values.mean() for values in own]
        squares = sum(values.var() * len(values) for values in own)
        deviation = np.sqrt(squares / sum(len(values) - 1 for values in own))
        expected += sign * stats.norm.logpdf(asked[0], means, deviation)
    np.testing.assert_allclose(got[0], expected, rtol=1e-12)


@pytest.mark.long
def test_threshold_by_brute_force() -> None:
    view, _ = _view()
    attack = membership("loss", _trainer(), num_shadows=2, shadow_size=SIZE)
    shadows = attack._shadows(jax.random.key(0), view)
    pool = shadows.clients
    assert shadows.is_member.sum(axis=1).tolist() == [SIZE, SIZE]
    values = true_logits(MODEL, shadows.parameters, pool.inputs, pool.labels).ravel()
    members = shadows.is_member.ravel()
    _, threshold = inner._by_loss(view, jnp.asarray(view.parameters)[None], shadows)

    def balanced(cut: float) -> float:
        return float((values[members] >= cut).mean() - (values[~members] >= cut).mean())

    assert balanced(threshold) == pytest.approx(max(balanced(cut) for cut in values))


@pytest.mark.long
def test_likelihood_ratio_by_its_formula() -> None:
    view, _ = _view()
    attack = membership("likelihood_ratio", _trainer(), num_shadows=6, shadow_size=SIZE)
    shadows = attack._shadows(jax.random.key(2), view)
    count = len(view.labels)
    assert (shadows.is_member[:, :count].sum(axis=1) == count // 2).all()
    target = jnp.asarray(view.parameters)[None]
    got, _ = inner._by_likelihood_ratio(view, target, shadows)
    known = true_logits(MODEL, shadows.parameters, view.inputs, view.labels)
    asked = true_logits(MODEL, target, view.inputs, view.labels)[0]
    expected = np.zeros(count)
    for side, sign in (
        (shadows.is_member[:, :count], 1),
        (~shadows.is_member[:, :count], -1),
    ):
        squares, freedom = 0.0, 0
        means = np.full(count, known[side].mean())
        for i in range(count):
            own = known[side[:, i], i]
            if len(own):
                means[i] = own.mean()
                squares += np.square(own - own.mean()).sum()
                freedom += len(own) - 1
        deviation = np.sqrt(squares / freedom)
        expected += sign * stats.norm.logpdf(asked, means, deviation)
    np.testing.assert_allclose(got[0], expected, rtol=1e-6, atol=1e-6)
