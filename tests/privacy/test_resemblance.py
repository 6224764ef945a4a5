"""Clients that are not alike: closed forms, today's figures where they are, and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import hidden_among

WORDS: list[dict[str, Any]] = [
    {},
    {"memory": 0.9, "share": 0.6},
    {"share": 0.5},
    {"noise": 0.5},
    {"memory": 0.7, "noise": 0.2, "each_round": True},
    {"memory": 0.9, "share": 0.3, "of": "lasting"},
    {"each_round": True},
]


def largest_gap(seed: int) -> float:
    """Return the largest difference of shares between C = I and clients that are alike."""
    rng = np.random.default_rng(seed)
    rounds, n = rng.integers(1, 10, 2)
    history = rng.integers(0, 2, (rounds, n))
    if seed % 5 == 0:
        history *= rng.integers(1, 4, (rounds, n))
    words = WORDS[seed % len(WORDS)]
    alike = hidden_among(history, **words)
    found = hidden_among(history, covariance=np.eye(n), **words)
    assert np.array_equal(np.isnan(alike), np.isnan(found))
    assert np.array_equal(np.isinf(alike), np.isinf(found))
    assert np.array_equal(alike == 1, found == 1)
    known = np.isfinite(alike)
    return float(np.abs(1 / alike[known] - 1 / found[known]).max(initial=0.0))


@pytest.mark.long
def test_clients_that_are_alike_are_the_case_of_one() -> None:
    assert max(largest_gap(seed) for seed in range(140)) <= 1e-12


@pytest.mark.slow
def test_clients_that_are_alike_are_the_case_of_one_1000_times() -> None:
    assert max(largest_gap(seed) for seed in range(1000, 2000)) <= 1e-12


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_block_alone(size: int) -> None:
    """Sizes: v_i over the sum of them. Equal resemblance k: (1 + (T - 1) k) / T."""
    sums = np.ones((5, size), int)
    lengths = np.random.default_rng(size).uniform(0.1, 10, size)
    shares = 1 / hidden_among(sums, covariance=np.diag(lengths))
    np.testing.assert_allclose(shares, lengths / lengths.sum(), rtol=1e-12)
    for k in (0.0, 0.4, 0.95):
        alike = np.full((size, size), k) + (1 - k) * np.eye(size)
        shares = 1 / hidden_among(sums, covariance=alike)
        np.testing.assert_allclose(shares, (1 + (size - 1) * k) / size, rtol=1e-12)


def test_the_scale_plays_no_part_without_noise() -> None:
    rng = np.random.default_rng(1)
    history = rng.integers(0, 2, (6, 5))
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T
    one = hidden_among(history, memory=0.8, share=0.4, covariance=covariance)
    other = hidden_among(history, memory=0.8, share=0.4, covariance=9 * covariance)
    np.testing.assert_allclose(one, other, rtol=1e-9)
    noisy = hidden_among(history, noise=0.3, covariance=covariance)
    scaled = hidden_among(history, noise=0.3 * 9, covariance=9 * covariance)
    spread = hidden_among(history, noise=0.3 * 4, spread=2.0, covariance=covariance)
    np.testing.assert_allclose(noisy, scaled, rtol=1e-9)
    np.testing.assert_allclose(noisy, spread, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_draws_are_estimated_as_well_as_it_says(number: int) -> None:
    """Updates drawn with resemblance, drift and noise; the best linear estimate of each."""
    rng = np.random.default_rng([11, number])
    rounds, n, draws = 6, 4, 20_000
    history = rng.integers(0, 2, (rounds, n))
    history[0, 0] = 1
    mixing = rng.normal(size=(n, n))
    covariance = mixing @ mixing.T + 0.1 * np.eye(n)
    rho, share = float(rng.uniform(0, 1)), float(rng.uniform(0, 1))
    noise = float(rng.uniform(0.05, 1))
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    over_rounds = np.linalg.cholesky(rho**lags + 1e-12 * np.eye(rounds))
    over_clients = np.linalg.cholesky(covariance)
    lasting = over_rounds @ rng.normal(size=(draws, rounds, n)) @ over_clients.T
    fresh = rng.normal(size=(draws, rounds, n)) * np.sqrt(np.diagonal(covariance))
    updates = np.sqrt(share) * lasting + np.sqrt(1 - share) * fresh
    sums = (updates * history).sum(axis=2)
    sums += np.sqrt(noise) * rng.normal(size=(draws, rounds))
    figures = hidden_among(
        history,
        memory=rho,
        share=share,
        noise=noise,
        covariance=covariance,
        each_round=True,
    )
    # regression on all sums, without the formula
    basis = np.linalg.qr(sums)[0]
    for at, client in zip(*np.nonzero(history), strict=True):
        target = updates[:, at, client]
        explained = np.square(basis.T @ target).sum() / np.square(target).sum()
        assert abs(explained - 1 / figures[at, client]) < 0.02
    worst = hidden_among(
        history, memory=rho, share=share, noise=noise, covariance=covariance
    )
    is_in = history.any(axis=0)
    np.testing.assert_allclose(worst[is_in], np.nanmin(figures[:, is_in], axis=0))


def test_who_is_exposed_is_exposed_whoever_resembles_it() -> None:
    history = [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    covariance = [[1, 0.5, 0], [0.5, 2, 0], [0, 0, 3]]
    assert hidden_among(history, covariance=covariance).tolist() == [1, 1, 1]
    drifting = hidden_among(history, memory=0.5, covariance=covariance)
    assert drifting[0] > 1
    assert drifting[1:].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(3), "must be numbers of shape"),
        (np.ones(2), "must be numbers of shape"),
        ("C.npy", "must be numbers of shape"),
        ([[1, 0.5], [0.4, 1]], "must be symmetric"),
        ([[1, 0], [0, 0]], "must have a positive diagonal"),
        ([[1, 2], [2, 1]], "must be positive semidefinite"),
        ([[1, np.nan], [np.nan, 1]], "must hold finite numbers"),
    ],
)
def test_misuse(covariance: Any, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=f"`covariance` {message}"):
        hidden_among([[1, 1]], covariance=covariance)


def test_what_cannot_be_said() -> None:
    with pytest.raises(mj.ConfigurationError, match="`coalition` must not be set with"):
        hidden_among([[1, 1, 1]], covariance=np.eye(3), coalition=[0])


# --- a training: what a server that knows C attains


def _centred_updates(
    dataset: str, rate: float, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Train softmax regression in blocks of 4, by one step on all local samples.

    Return who was in each sum, and every client's update of each round less their mean,
    each round divided by its own spread.
    """
    samples = mj.data.load(dataset, seed=0)
    data = mj.data.iid(0, samples, 120)
    model = mj.federated.logistic(10)
    trainer = mj.federated.local_sgd(model, rate, batch_size=50)
    selector = mj.selection.batch_partitioning(120, 12, 4)
    online = mj.availability.independent(np.zeros(120))
    cohorts = np.asarray(mj.selection.rollout(0, selector, online, rounds), bool)
    parameters = np.asarray(
        mj.federated.initial_parameters(0, model, samples.input_shape)
    )
    updates = []
    for number, cohort in enumerate(cohorts):
        start = parameters.astype(np.float32)
        sent = mj.federated.client_updates(
            0, model, start, data, trainer, round_index=number
        )
        updates.append(np.asarray(sent))
        parameters = parameters + updates[-1][cohort].mean(axis=0)
    centred = np.asarray(updates)
    centred -= centred.mean(axis=1, keepdims=True)
    squares = np.square(centred).sum(axis=(1, 2), keepdims=True, dtype=np.float64)
    spread = np.sqrt(squares / 120).astype(np.float32)
    return cohorts, centred / spread


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "rate"), [("digits", 0.1), ("mnist_5k", 0.01)])
def test_a_server_that_knows_who_resembles_whom_attains_the_prediction(
    dataset: str, rate: float
) -> None:
    """The last update of each client, estimated from the sums by the best linear rule."""
    cohorts, updates = _centred_updates(dataset, rate, 100)
    members = np.tile(np.arange(120), (100, 1))
    drift = mj.federated.measure_drift(updates, members, resemblance=True)
    assert drift.lasting == 1.0
    C = np.asarray(drift.resemblance)
    C = C / np.trace(C) * 120 + 1e-9 * np.eye(120)
    apart = np.abs(np.subtract.outer(np.arange(100), np.arange(100)))
    R = drift.memory**apart
    P = cohorts.astype(float)
    sums = np.einsum("rn,rnd->rd", P, updates)
    last = 99 - cohorts[::-1].argmax(axis=0)
    mean_errors = {}
    for name, covariance in (("alike", np.eye(120)), ("resembling", C)):
        inverse = np.linalg.pinv((P @ covariance @ P.T) * R + 1e-9 * np.eye(100))
        hidden = mj.privacy.hidden_among(
            cohorts, memory=drift.memory, covariance=covariance, each_round=True
        )
        predicted, attained = np.zeros(120), np.zeros(120)
        for client, number in enumerate(last):
            joint = (P @ covariance[:, client]) * R[:, number]
            truth = updates[number, client]
            error = truth - joint @ inverse @ sums
            attained[client] = 1 - (error**2).sum() / (truth**2).sum()
            predicted[client] = 1 / hidden[number, client]
        mean_errors[name] = abs(predicted.mean() - attained.mean())
        if name == "resembling":
            assert mean_errors[name] < 0.02
            assert abs(predicted.max() - attained.max()) < 0.03
            assert np.corrcoef(predicted, attained)[0, 1] > 0.95
        else:
            # the figure of alike clients is a mean: single clients are far from it
            assert attained.max() > 2 * predicted.max()


def _shares_of_mates(C: np.ndarray, block: list[int]) -> np.ndarray:
    """Explain each mate's update by the sum of its block alone."""
    among = C[np.ix_(block, block)]
    return np.square(among.sum(axis=1)) / np.diagonal(among) / among.sum()


def _least_resembling(C: np.ndarray, size: int, swaps: int) -> list[list[int]]:
    """Swap clients of blocks as long as this hides the best-known mates better."""
    rng = np.random.default_rng(0)
    blocks = np.arange(len(C)).reshape(-1, size).tolist()

    def cost(block: list[int]) -> float:
        return float((_shares_of_mates(C, block) ** 4).sum())

    for _ in range(swaps):
        first, second = rng.choice(len(blocks), 2, replace=False)
        one, other = list(blocks[first]), list(blocks[second])
        place, place_of_other = rng.integers(size, size=2)
        one[place], other[place_of_other] = other[place_of_other], one[place]
        before = cost(blocks[first]) + cost(blocks[second])
        if cost(one) + cost(other) < before:
            blocks[first], blocks[second] = one, other
    return blocks


@pytest.mark.slow
def test_blocks_of_clients_that_resemble_least() -> None:
    """Alone a block then hides its mates well; all blocks together hardly better."""
    _, updates = _centred_updates("digits", 0.1, 60)
    members = np.tile(np.arange(120), (60, 1))
    drift = mj.federated.measure_drift(updates, members, resemblance=True)
    C = np.asarray(drift.resemblance)
    C = C / np.trace(C) * 120
    as_they_come = np.arange(120).reshape(-1, 4).tolist()
    found = []
    for blocks in (as_they_come, _least_resembling(C, 4, 20_000)):
        alone = np.concatenate([_shares_of_mates(C, block) for block in blocks])
        sums = np.zeros((30, 120), int)
        for row, block in zip(sums, blocks, strict=True):
            row[block] = 1
        hidden = mj.privacy.hidden_among(sums, covariance=C + 1e-6 * np.eye(120))
        found += [alone.max(), (1 / np.asarray(hidden)).max()]
    np.testing.assert_allclose(found, [0.78, 0.94, 0.26, 0.88], atol=0.03)
