"""Leakage of histories: exact questions, bounds in bulk, certificates, coalitions."""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from mrsa_jax import availability, modular, privacy, selection
from mrsa_jax.bench.harness import (
    Measurement,
    ResultsDifferError,
    compare,
    one_thread,
)
from mrsa_jax.privacy._collusion import sums_judge


def _history(selector: selection.Selector, rounds: int) -> np.ndarray:
    online = availability.independent(0.3)
    return np.asarray(selection.rollout(0, selector, online, rounds))


def _certified(trajectories: list[Any], _: None) -> None:
    for trajectory in trajectories:
        if not np.all(trajectory.certified):
            raise ResultsDifferError("a round's T is not certified")


def strong(rounds: int, clients: int) -> Measurement:
    """Time strong T of a large sparse history."""
    history = np.random.default_rng(0).random((rounds, clients)) < 0.01
    # by its definition: the fewest clients who always move together
    # T by its definition: the fewest clients of one column
    columns = np.packbits(history[:, history.any(axis=0)], axis=0).T.copy()
    _, sizes = np.unique(
        columns.view(f"V{columns.shape[1]}").ravel(), return_counts=True
    )

    def check(target: int | None, _: None) -> None:
        if target != sizes.min():
            raise ResultsDifferError(f"T is {target}, not {sizes.min()}")

    return compare(lambda: privacy.strong_privacy(history), work=1, check=check)


def first_exposure(size: int) -> Measurement:
    """Time the first exposures of a square history."""
    history = _history(selection.uniform(size, size // 10), size)

    def check(first: Any, _: None) -> None:
        np.testing.assert_array_equal(np.asarray(first) >= 0, _exposed(history, size))

    return compare(lambda: privacy.first_exposure(history), work=1, check=check)


def _exposed(history: np.ndarray, size: int) -> np.ndarray:
    """Return exposed clients by the diagonal of the projection on the row space."""
    decomposed: Any = np.linalg.svd(history.astype(float), full_matrices=False)
    rank = (decomposed.S[0] * size * 1e-15 < decomposed.S).sum()
    return np.asarray((decomposed.Vh[:rank] ** 2).sum(axis=0) > 1 - 1e-6)


def _ordered(trajectories: list[Any], _: None) -> None:
    for trajectory in trajectories:
        np.testing.assert_array_less(trajectory.lower, trajectory.upper + 1)


def in_bulk(
    method: Literal["bounds", "certified"],
    schemes: str,
    clients: int,
    rounds: int,
    trials: int,
) -> Measurement:
    """Time weak T after every round of many histories of each scheme."""
    online = availability.independent(0.3)
    selectors = {
        "random": selection.uniform(clients, 12),
        "weighted": selection.weighted(clients, 12),
        "partition": selection.partition(clients, 12),
    }
    for target in (6, 4, 3):
        blocks = selection.batch_partitioning(clients, 12, target)
        selectors[f"T = {target}"] = blocks
    histories = [
        np.asarray(
            selection.rollout_trials(0, selectors[scheme], online, rounds, trials)
        )
        for scheme in schemes.split(", ")
    ]

    def run() -> list[Any]:
        return [privacy.weak_privacy_trajectory(each, method) for each in histories]

    check = _ordered if method == "bounds" else _certified
    return compare(run, work=len(histories) * trials, check=check)


def hard(clients: int, cohort: int, rounds: int, effort: float) -> Measurement:
    """Time weak T of one random history, certified after every round."""
    history = _history(selection.uniform(clients, cohort), rounds)

    def run() -> list[Any]:
        return [privacy.weak_privacy_trajectory(history, effort=effort)]

    return compare(run, work=1, check=_certified)


def coalitions(clients: int, rounds: int, count: int, compared: int) -> Measurement:
    """Time random coalitions of 1 in 10 and of 3 in 10 clients, both at once."""
    history = _history(selection.uniform(clients, clients // 10), rounds)
    draw = np.random.default_rng(0)
    sizes = np.repeat([clients // 10, 3 * clients // 10], compared // 2)
    members = (
        draw.random((compared, clients)).argsort(axis=1).argsort(axis=1)
        < sizes[:, None]
    )

    def peer() -> np.ndarray:
        exposed = np.zeros_like(members)
        with one_thread():
            for coalition, row in zip(members, exposed, strict=True):
                row[~coalition] = _exposed(history[:, ~coalition], rounds)
        return exposed

    def check(_: Any, theirs: np.ndarray) -> None:
        ours = sums_judge(history)(members, np.zeros(compared, np.uint64))
        np.testing.assert_array_equal(ours, theirs)

    return compare(
        lambda: privacy.collusion_risk(0, history, [0.1, 0.3], count // 2),
        peer,
        work=count,
        peer_work=compared,
        check=check,
    )


def hidden(trials: int, rounds: int, clients: int, compared: int) -> Measurement:
    """Time the worst and the median client after every round of many histories."""
    online = availability.independent(0.3)
    selector = selection.uniform(clients, clients // 10)
    histories = np.asarray(
        selection.rollout_trials(0, selector, online, rounds, trials)
    )
    ranks = np.asarray(modular.rank_trajectory(histories[:compared]))
    new = np.diff(ranks, prepend=0) > 0

    def peer() -> np.ndarray:
        # the Gram matrix of each round's independent rows, which the peer is given
        figures = np.full((compared, rounds, 2), np.nan)
        for trial, j in np.ndindex(compared, rounds):
            rows = histories[trial, : j + 1][new[trial, : j + 1]].astype(float)
            if len(rows):
                leverages = (rows * np.linalg.solve(rows @ rows.T, rows)).sum(axis=0)
                among = 1 / leverages[leverages > 1e-12]
                figures[trial, j] = among.min(), np.median(among)
        return figures

    def check(ours: Any, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours[:compared], theirs, rtol=1e-6)

    return compare(
        lambda: privacy.hidden_among_trajectory(histories, quantiles=(0.0, 0.5)),
        peer,
        work=trials * rounds,
        peer_work=compared * rounds,
        check=check,
    )


def hidden_wide(rounds: int, clients: int) -> Measurement:
    """Time the worst client after every round of one history of very many."""
    draw = np.random.default_rng(0)
    history = draw.integers(0, 2, (rounds, clients), np.uint8).view(np.bool_)

    def check(ours: Any, _: None) -> None:
        """Compare the last round with a solve on some of the clients."""
        rows = history.astype(np.float32)
        gram = (rows @ rows.T).astype(float)
        some = rows[:, :1000]
        leverages = (some * np.linalg.solve(gram, some.astype(float))).sum(axis=0)
        worst = ours[-1, 0]
        if not worst <= 1 / leverages.max() * (1 + 1e-9):
            raise ResultsDifferError(
                f"the worst of all, {worst}, is better than of some"
            )

    run = functools.partial(privacy.hidden_among_trajectory, history, quantiles=(0.0,))
    return compare(
        run,
        work=rounds,
        check=check,
    )


def updates(rounds: int, clients: int, cohort: int) -> Measurement:
    """Time each client's worst update, where updates drift, against NumPy for some."""
    rng = np.random.default_rng(0)
    history = np.zeros((rounds, clients), np.bool_)
    for row in history:
        row[rng.choice(clients, cohort, replace=False)] = True
    compared, memory = max(1, clients // 50), 0.9
    # updates of rounds j and k correlate by memory ** |j - k|
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))

    def peer() -> np.ndarray:
        rows = history.astype(np.float64)
        inverse = np.linalg.inv(rows @ rows.T * memory**lags)
        worst = np.zeros(compared)
        for i, column in enumerate(rows.T[:compared]):
            memories = column[:, None] * memory ** lags[:, np.flatnonzero(column)]
            leverages = (memories * (inverse @ memories)).sum(axis=0)
            worst[i] = leverages.max(initial=0)
        with np.errstate(divide="ignore"):
            return 1 / worst

    def check(ours: Any, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours[:compared], theirs, rtol=1e-6)

    return compare(
        lambda: privacy.hidden_among(history, memory=memory),
        peer,
        work=clients,
        peer_work=compared,
        check=check,
    )
