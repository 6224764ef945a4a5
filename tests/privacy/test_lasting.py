"""How well what lasts of a client is hidden: dense solutions, draws, and programs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import hidden_among, hidden_among_trajectory


def history_of(rng: np.random.Generator, rounds: int, n: int) -> np.ndarray:
    history = rng.integers(0, 2, (rounds, n))
    history[rng.integers(rounds)] = 0  # a round without a sum
    history[:, -1] = 0  # a client in no sum
    return history


def kernels(rho: float, share: float, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariances over the rounds of an update, and of what lasts of it."""
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    lasting = share * rho**lags
    return np.where(lags == 0, 1.0, lasting), lasting


def by_solving(
    history: np.ndarray, rho: float, share: float, noise: float
) -> np.ndarray:
    """Return 1/h of the worst own round of each client, from the whole covariance."""
    rounds, clients = history.shape
    update, lasting = kernels(rho, share, rounds)
    whole = (history @ history.T) * update + noise * np.eye(rounds)
    inverse = np.linalg.pinv(whole, hermitian=True)
    hidden = np.full(clients, np.inf)
    for client in range(clients):
        for at in np.flatnonzero(history[:, client]):
            seen = history[:, client] * lasting[:, at]
            hidden[client] = min(hidden[client], share / (seen @ inverse @ seen))
    return hidden


SETTINGS = [
    (rho, share, noise)
    for rho in (1.0, 0.95, 0.5)
    for share in (0.9, 0.5, 0.1)
    for noise in (0.0, 0.7)
]


@pytest.mark.parametrize(("rho", "share", "noise"), SETTINGS)
def test_it_is_the_solution_of_the_whole(
    rho: float, share: float, noise: float
) -> None:
    rng = np.random.default_rng(int(1000 * rho * share))
    for rounds in (9, 9, 1, 2):
        history = history_of(rng, rounds, 7) if rounds > 1 else np.ones((1, 3), int)
        found = hidden_among(
            history, memory=rho, share=share, noise=noise, of="lasting"
        )
        np.testing.assert_allclose(found, by_solving(history, rho, share, noise), 1e-9)


def test_what_never_fades_is_a_client_under_fresh_noise() -> None:
    rng = np.random.default_rng(0)
    for share in (0.9, 0.5, 0.01):
        history = history_of(rng, 30, 12)
        fresh = (1 - share) / share * (history**2).sum(axis=1)
        np.testing.assert_allclose(
            hidden_among(history, share=share, of="lasting"),
            hidden_among(history, noise=fresh),
            rtol=1e-9,
        )


def test_it_lies_above_updates_that_never_change_and_falls_to_them() -> None:
    rng = np.random.default_rng(1)
    short = history_of(rng, 20, 8)
    never = hidden_among(short)
    figures = [
        hidden_among(np.tile(short, (times, 1)), share=0.5, of="lasting")
        for times in (1, 5, 20)
    ]
    for early, late in zip(figures, [*figures[1:], never], strict=True):
        assert (early[:-1] > late[:-1]).all()
    np.testing.assert_allclose(figures[-1], never, rtol=0.25)


def test_alone_or_not_what_lasts_is_never_exact() -> None:
    found = hidden_among([[1, 0], [1, 1]], share=0.5, of="lasting")
    assert (found > 1).all()
    assert hidden_among([[1, 0], [1, 1]], share=1.0, of="lasting").tolist() == [1, 1]


def test_mates_stay_hidden_among_their_number() -> None:
    blocks = np.kron(
        np.random.default_rng(2).integers(0, 2, (60, 5)), np.ones((1, 4), int)
    )
    for share in (1.0, 0.9, 0.2):
        found = hidden_among(blocks, memory=0.999, share=share, of="lasting")
        assert (found >= 4 - 1e-9).all()


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_draws_are_estimated_as_well_as_it_says(number: int) -> None:
    """The error of the best linear estimate over 20,000 draws of all clients."""
    rng = np.random.default_rng([7, number])
    rounds, n, draws = 8, 5, 20_000
    history = rng.integers(0, 2, (rounds, n))
    history[0, 0] = 1
    rho, share = float(rng.uniform(0, 1)), float(rng.uniform(0.1, 1))
    update, lasting = kernels(rho, share, rounds)
    root = np.linalg.cholesky(lasting + 1e-12 * np.eye(rounds))
    kept = np.einsum("rs,dsn->drn", root, rng.normal(size=(draws, rounds, n)))
    fresh = np.sqrt(1 - share) * rng.normal(size=(draws, rounds, n))
    noise = float(rng.uniform(0.01, 1))
    sums = ((kept + fresh) * history).sum(axis=2)
    sums += np.sqrt(noise) * rng.normal(size=(draws, rounds))
    whole = (history @ history.T) * update + noise * np.eye(rounds)
    own = np.flatnonzero(history[:, 0])
    errors = []
    for at in own:
        estimate = sums @ np.linalg.solve(whole, history[:, 0] * lasting[:, at])
        errors.append((estimate - kept[:, at, 0]) ** 2 / share)
    means = np.mean(errors, axis=1)
    least = int(means.argmin())
    deviation = np.std(errors[least]) / np.sqrt(draws)
    figures = hidden_among(
        history, memory=rho, share=share, noise=noise, of="lasting", each_round=True
    )[own, 0]
    predicted = 1 - 1 / figures
    assert abs(means[least] - predicted[least]) <= 3.5 * deviation
    worst = hidden_among(history, memory=rho, share=share, noise=noise, of="lasting")
    assert worst[0] == pytest.approx(figures.min(), rel=1e-9)


def test_in_programs_it_is_the_same() -> None:
    history = history_of(np.random.default_rng(3), 10, 6)
    shares = np.array([0.2, 0.8], np.float32)

    def figure(share: Any) -> Any:
        return hidden_among(history, memory=0.9, share=share, noise=0.1, of="lasting")

    inside = jax.jit(jax.vmap(figure))(shares)
    for row, share in zip(inside, shares, strict=True):
        np.testing.assert_allclose(row, figure(float(share)), 1e-5)
    traced = jax.jit(
        lambda rows: hidden_among(rows, memory=0.9, share=0.5, noise=0.1, of="lasting")
    )(history)
    known = hidden_among(history, memory=0.9, share=0.5, noise=0.1, of="lasting")
    np.testing.assert_allclose(traced, known, 1e-5)


def test_after_every_sum() -> None:
    history = history_of(np.random.default_rng(4), 12, 6)
    words: dict[str, Any] = {"memory": 0.9, "share": 0.4, "of": "lasting"}
    path = hidden_among_trajectory(history, **words)
    for sums in range(1, 13):
        np.testing.assert_allclose(
            path[sums - 1], hidden_among(history[:sums], **words), rtol=1e-9
        )


@pytest.mark.parametrize("of", ["lasts", "Update", None, 1])
def test_misuse(of: Any) -> None:
    with pytest.raises(mj.ConfigurationError, match='`of` must be "update" or'):
        hidden_among([[1, 1]], memory=0.5, of=of)


def test_nothing_lasts_of_a_share_of_zero() -> None:
    with pytest.raises(mj.ConfigurationError, match="`share` must be above 0"):
        hidden_among([[1, 1]], memory=0.5, share=0.0, of="lasting")
