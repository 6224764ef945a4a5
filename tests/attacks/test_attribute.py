"""Attribute inference from sums: closed forms, Gaussian updates, and real training."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import mrsa_jax as mj
from mrsa_jax import attacks, data, federated, privacy
from mrsa_jax._core.pytrees import pytree

DIM = 12


@pytree
class Gaussian:
    """Send the mean of the samples, and fresh noise."""

    scale: object

    def update(self, key, parameters, inputs, labels, size):
        del labels, size
        flat = inputs.reshape(inputs.shape[0], -1).mean(axis=0)
        return flat + parameters + self.scale * jax.random.normal(key, flat.shape)


@pytree
class Padded:
    """Send what `Gaussian` does, and zeros for all further parameters."""

    def update(self, key, parameters, inputs, labels, size):
        sent = Gaussian(1.0).update(key, parameters[:DIM], inputs, labels, size)
        return jnp.pad(sent, (0, parameters.size - DIM))


def _holders(has_attribute, step=1.0):
    """Return clients of one sample each, whose first entry is `step` or 0."""
    inputs = np.zeros((2, DIM, 1, 1), np.float32)
    inputs[1, 0] = step
    return data.ClientData(
        inputs=jnp.asarray(inputs),
        labels=jnp.zeros(2, jnp.int32),
        indices=jnp.asarray(has_attribute, jnp.int32)[:, None],
        sizes=jnp.ones(len(has_attribute), jnp.int32),
        num_classes=2,
    )


def _view(generator, history, has_attribute, *, shadows=4000, scale=1.0):
    rounds = len(history)
    fresh = generator.normal(size=(rounds, history.shape[1], DIM)) * scale
    fresh[:, has_attribute, 0] += 1.0
    models = generator.normal(size=(rounds, DIM)).astype(np.float32)
    sums = np.einsum("rn,rnd->rd", history, fresh + models[:, None])
    shadows_have = np.arange(shadows) % 2 == 0
    return attacks.views.AttributeView(
        history, sums, models, _holders(shadows_have), shadows_have
    )


def test_the_solution_is_the_best_linear_estimate():
    """Conditional mean and variance of s given z, from the joint covariance."""
    generator = np.random.default_rng(0)
    history = generator.integers(0, 2, (7, 5))
    noise = generator.uniform(0.5, 2, 7)
    totals = generator.normal(size=7)
    q = 0.3
    attack = attacks.attribute(Gaussian(1.0), prevalence=q)
    scores = attack.solve(history, totals, noise)
    prior = q * (1 - q) * np.eye(5)
    covariance = history @ prior @ history.T + np.diag(noise * history.sum(axis=1))
    gain = np.linalg.solve(covariance, history @ prior).T
    np.testing.assert_allclose(
        scores.estimates, q + gain @ (totals - q * history.sum(axis=1)), atol=1e-10
    )
    left = prior - gain @ history @ prior
    explained = 1 - np.diagonal(left) / np.diagonal(prior)
    np.testing.assert_allclose(scores.explained, explained, atol=1e-10)


@pytest.mark.parametrize("q", [0.5, 0.1])
def test_the_share_predicted_is_that_of_noisy_sums(q):
    history = np.random.default_rng(1).integers(0, 2, (9, 6))
    variance, noise = q * (1 - q), 0.7
    attack = attacks.attribute(Gaussian(1.0), prevalence=q)
    explained = attack.solve(history, np.zeros(9), np.full(9, noise)).explained
    ones = noise / variance * history.sum(axis=1)
    hidden = privacy.hidden_among(history, noise=ones)
    np.testing.assert_allclose(explained, 1 / hidden, atol=1e-9)


def test_rounds_without_a_working_score_count_nothing():
    generator = np.random.default_rng(2)
    history = generator.integers(0, 2, (6, 4))
    totals, noise = generator.normal(size=6), np.ones(6)
    noise[[1, 4]] = np.inf
    works = np.isfinite(noise)
    for method in ("joint", "prolin"):
        attack = attacks.attribute(Gaussian(1.0), method=method)
        every = attack.solve(history, totals, noise)
        some = attack.solve(history[works], totals[works], noise[works])
        np.testing.assert_allclose(every.estimates, some.estimates)
    nothing = attacks.attribute(Gaussian(1.0), prevalence=0.2).solve(
        history, totals, np.full(6, np.inf)
    )
    assert nothing.estimates.tolist() == [0.2] * 4
    assert nothing.explained.tolist() == [0.0] * 4


def test_scores_are_calibrated_on_gaussian_updates():
    """Unit difference of the classes, and tau^2 of the score along the attribute."""
    generator = np.random.default_rng(3)
    view = _view(generator, np.ones((60, 3), int), np.array([True, True, False]))
    scores = attacks.attribute(Gaussian(1.0)).run(0, view)
    # one entry differs by 1, with variance 1
    assert scores.noise == pytest.approx(np.ones(60), abs=0.4)
    assert scores.noise.mean() == pytest.approx(1.0, abs=0.08)
    assert scores.totals.mean() == pytest.approx(2.0, abs=4 * np.sqrt(3 / 60) + 0.1)


@pytest.mark.parametrize("method", ["joint", "prolin"])
def test_the_noise_of_sums_is_in_the_variance_that_a_score_states(method):
    """Over rounds in which all members are the same, totals vary by noise alone."""
    generator, rounds, scale = np.random.default_rng(10), 150, 3.0
    history = np.full((rounds, 2), 2)
    view = _view(generator, history, np.array([True, False]), shadows=400)
    noisy = view.aggregates + scale * generator.normal(size=view.aggregates.shape)
    view = dataclasses.replace(view, aggregates=noisy, sum_noise=scale)
    scores = attacks.attribute(Gaussian(1.0), method=method).run(0, view)
    works = np.isfinite(scores.noise)
    assert works.mean() > 0.9
    # weights of 2: a sum of squares of 8
    standard = (scores.totals - 2.0)[works] / np.sqrt(8 * scores.noise[works])
    assert np.square(standard).mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / rounds))
    # 1 of a member's own, and 9 / 8 of the sum's
    assert np.median(scores.noise) > 1 + scale**2 / 8 - 0.3


def test_a_linear_model_ignores_entries_that_are_always_zero():
    """Also where they make more entries than there are shadows to fit it to."""
    history = np.ones((4, 2), int)
    view = _view(
        np.random.default_rng(11), history, np.array([True, False]), shadows=32
    )
    more = {
        name: np.pad(getattr(view, name), ((0, 0), (0, 40)))
        for name in ("aggregates", "models")
    }
    attack = attacks.attribute(Padded(), method="prolin")
    scores = attack.run(0, view)
    padded = attack.run(0, dataclasses.replace(view, **more))
    np.testing.assert_allclose(padded.totals, scores.totals, rtol=1e-3)
    np.testing.assert_allclose(padded.noise, scores.noise, rtol=1e-3)


@pytest.mark.parametrize("method", ["joint", "prolin"])
def test_more_rounds_find_the_attribute(method):
    generator = np.random.default_rng(4)
    has_attribute = np.arange(30) % 2 == 0
    history = (generator.random((150, 30)) < 0.2).astype(int)
    history[:, 0] |= ~history.any(axis=1)
    view = _view(generator, history, has_attribute, shadows=400, scale=0.5)
    attack = attacks.attribute(Gaussian(0.5), method=method)
    scores = attack.run(0, view)
    few = attack.solve(history[:20], scores.totals[:20], scores.noise[:20])
    aucs = [
        attacks.membership_score(each.estimates, has_attribute).auc
        for each in (few, scores)
    ]
    assert aucs[1] > max(aucs[0], 0.97)
    if method == "joint":
        attained = 1 - np.square(scores.estimates - has_attribute).mean() / 0.25
        assert attained == pytest.approx(scores.explained.mean(), abs=0.1)


def test_a_score_that_does_not_work_is_left_out():
    generator = np.random.default_rng(5)
    view = _view(generator, np.ones((8, 2), int), np.array([True, False]), shadows=64)
    blind = attacks.views.AttributeView(
        view.participation,
        view.aggregates,
        view.models,
        _holders(np.zeros(64, int)),
        view.has_attribute,
    )
    scores = attacks.attribute(Gaussian(50.0)).run(0, blind)
    # shadows of both kinds are alike: a score works in less than half of the rounds
    assert np.isinf(scores.noise).sum() >= 4
    assert not scores.totals[np.isinf(scores.noise)].any()


def test_mates_of_a_block_share_one_estimate():
    generator = np.random.default_rng(6)
    blocks = np.kron(np.eye(4, dtype=int), np.ones(3, int))
    history = blocks[generator.integers(0, 4, 40)]
    view = _view(generator, history, generator.random(12) < 0.5, shadows=100)
    estimates = attacks.attribute(Gaussian(1.0)).run(0, view).estimates
    np.testing.assert_allclose(np.ptp(estimates.reshape(4, 3), axis=1), 0, atol=1e-9)


def test_the_best_estimate_in_a_block_attains_the_bound():
    """A server that learns the number of mates with the attribute, in the limit."""
    generator = np.random.default_rng(7)
    mates, blocks = 4, 20_000
    has_attribute = generator.random((blocks, mates)) < 0.5
    numbers = has_attribute.sum(axis=1, keepdims=True)
    attack = attacks.attribute(Gaussian(1.0))
    history = np.ones((1, mates), int)
    estimates = np.empty(has_attribute.shape)
    for number in range(mates + 1):
        scores = attack.solve(history, np.array([float(number)]), np.array([1e-9]))
        estimates[numbers[:, 0] == number] = scores.estimates
    groups = np.repeat(np.arange(blocks), mates)
    judged = attacks.membership_score(
        estimates.ravel().round(9), has_attribute.ravel(), groups=groups
    )
    bound = privacy.attribute_bound(mates).auc
    assert judged.auc == pytest.approx(bound, abs=4 * judged.auc_error)
    assert judged.auc_error < 0.003


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prevalence": 0.0}, "`prevalence` must be a number between 0 and 1"),
        ({"prevalence": 1.0}, "`prevalence` must be a number between 0 and 1"),
    ],
)
def test_rejects_bad_settings(settings, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        attacks.attribute(Gaussian(1.0), **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"participation": np.ones(3, int)},
            "`participation` must have at least 2 axes",
        ),
        ({"models": np.zeros((2, DIM), np.float32)}, "`models` must be"),
        ({"aggregates": np.zeros((3, DIM + 1))}, "`aggregates` must be of the models'"),
        ({"aggregates": np.full((3, DIM), np.nan)}, "`aggregates` must be finite"),
        ({"has_attribute": np.ones(3, bool)}, "`has_attribute` must be bool"),
        ({"has_attribute": np.ones(64, bool)}, "at least 8 shadows of each kind"),
        ({"sum_noise": -1.0}, "`sum_noise` must be finite, from 0"),
    ],
)
def test_rejects_views_that_do_not_fit(changes, message):
    generator = np.random.default_rng(8)
    view = _view(generator, np.ones((3, 2), int), np.array([True, False]), shadows=64)
    names = ("participation", "aggregates", "models", "shadows", "has_attribute")
    fields = {name: getattr(view, name) for name in names} | changes
    with pytest.raises(mj.ConfigurationError, match=message):
        attacks.attribute(Gaussian(1.0)).run(0, attacks.views.AttributeView(**fields))


@functools.cache
def _softmax_regression():
    """Return a trainer, the view of its rounds on digits, and the clients' attribute."""
    generator = np.random.default_rng(9)
    dataset = data.load("digits")
    labels = np.asarray(dataset.train_labels)
    model = federated.logistic(10)
    trainer = federated.local_sgd(model, 0.1, batch_size=4)
    zeros, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)

    def holders(have):
        indices = generator.choice(others, (len(have), 16))
        indices[have, :6] = generator.choice(zeros, (int(have.sum()), 6))
        return data.ClientData(
            inputs=jnp.asarray(dataset.train_inputs),
            labels=jnp.asarray(labels, jnp.int32),
            indices=jnp.asarray(indices, jnp.int32),
            sizes=jnp.full(len(have), 16, jnp.int32),
            num_classes=10,
        )

    has_attribute = np.arange(8) < 4
    history = np.array([[0, 1, 0, 1, 0, 1, 0, 1], [1, 0, 0, 1, 1, 0, 1, 0]] * 4)
    history = np.concatenate([history, np.eye(8, dtype=int)])
    clients, models, sums = holders(has_attribute), [], []
    flat = np.zeros(650, np.float32)
    keys = jax.random.split(jax.random.key(1), history.shape)
    update = jax.jit(jax.vmap(trainer.update, in_axes=(0, None, 0, 0, 0)))
    held = np.asarray(clients.indices)
    inputs, labels_held = dataset.train_inputs[held], labels[held].astype(np.int32)
    for row, own in zip(history, np.asarray(jax.random.key_data(keys)), strict=True):
        of_clients = jax.random.wrap_key_data(own)
        updates = update(of_clients, flat, inputs, labels_held, clients.sizes)
        total = row @ np.asarray(updates, np.float64)
        models.append(flat)
        sums.append(total)
        flat = flat + np.asarray(total / row.sum(), np.float32)
    shadows_have = np.arange(80) % 2 == 0
    view = attacks.views.AttributeView(
        history, np.stack(sums), np.stack(models), holders(shadows_have), shadows_have
    )
    return trainer, view, has_attribute


@pytest.mark.parametrize("method", ["joint", "prolin"])
def test_training_with_shadows_of_a_model_finds_a_class(method):
    """Softmax regression on digits: who holds a class shows after a few rounds."""
    trainer, view, has_attribute = _softmax_regression()
    estimates = attacks.attribute(trainer, method=method).run(0, view).estimates
    assert attacks.membership_score(estimates, has_attribute).auc > 0.9


@pytest.mark.parametrize("method", ["joint", "prolin"])
def test_mates_get_one_value(method):
    """Else rounding decides the order of clients that no sum tells apart."""
    rng = np.random.default_rng(12)
    attack = attacks.attribute(Padded(), method=method)
    for _ in range(20):
        blocks = rng.permutation(np.repeat(np.arange(rng.integers(2, 31)), 4))
        rows = (rng.random((rng.integers(3, 90), blocks.max() + 1)) < 0.4)[:, blocks]
        totals = rng.normal(rows.sum(axis=1) / 2, 1.0)
        scores = attack.solve(rows, totals, rng.random(len(rows)) + 0.1)
        for values in (scores.estimates, scores.explained):
            apart = [np.unique(values[blocks == b]).size for b in np.unique(blocks)]
            assert set(apart) == {1}


def test_prolin_fits_blocks_as_well_as_their_clients():
    rng = np.random.default_rng(13)
    blocks = rng.permutation(np.repeat(np.arange(6), 4))
    rows = (rng.random((40, 6)) < 0.5)[:, blocks]
    totals = rng.normal(rows.sum(axis=1) / 2, 1.0)
    attack = attacks.attribute(Padded(), method="prolin")
    estimates = attack.solve(rows, totals, np.ones(40)).estimates
    best = optimize.lsq_linear(rows.astype(float), totals, bounds=(0.0, 1.0))
    residual = np.linalg.norm(rows @ estimates - totals)
    assert residual == pytest.approx(np.linalg.norm(rows @ best.x - totals), rel=1e-6)
