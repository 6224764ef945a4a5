"""What a history leaks: exact questions, bounds in bulk, certificates, and coalitions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mrsa_jax import availability, modular, privacy, selection
from mrsa_jax.bench.harness import (
    Case,
    Measurement,
    ResultsDifferError,
    compare,
    one_thread,
)
from mrsa_jax.privacy._collusion import sums_judge

_CLIENTS, _COHORT = 120, 12


def _schemes(clients: int) -> dict[str, Any]:
    blocks = {
        f"T = {t}": selection.batch_partitioning(clients, _COHORT, t) for t in (6, 4, 3)
    }
    return {
        "random": selection.uniform(clients, _COHORT),
        "weighted": selection.weighted(clients, _COHORT),
        "partition": selection.partition(clients, _COHORT),
        **blocks,
    }


def _timed(
    run: Callable[[], Any], work: int, note: str, check: Callable[[Any, Any], None]
) -> Measurement:
    return compare(run, work=work, unit="histories", check=check, repeats=1, note=note)


def _history(selector: selection.Selector, rounds: int) -> np.ndarray:
    online = availability.independent(0.3)
    return np.asarray(selection.rollout(0, selector, online, rounds))


def _rolled(
    clients: int, rounds: int, trials: int, left_out: Sequence[str]
) -> dict[str, np.ndarray]:
    online = availability.independent(0.3)
    return {
        name: np.asarray(selection.rollout_trials(0, scheme, online, rounds, trials))
        for name, scheme in _schemes(clients).items()
        if name not in left_out
    }


def _certified(found: Any, _: None) -> None:
    for trajectory in found if isinstance(found, list) else [found]:
        if not np.all(trajectory.certified):
            raise ResultsDifferError("a round's T is not certified")


def _strong(rounds: int, clients: int) -> Measurement:
    history = np.random.default_rng(0).random((rounds, clients)) < 0.01
    # by its definition: the fewest clients who always move together
    columns = np.packbits(history[:, history.any(axis=0)], axis=0).T.copy()
    _, sizes = np.unique(
        columns.view(f"V{columns.shape[1]}").ravel(), return_counts=True
    )

    def check(found: int | None, _: None) -> None:
        if found != sizes.min():
            raise ResultsDifferError(f"T is {found}, not {sizes.min()}")

    note = "aim: 1 s; floor: reading and transposing 12.5 MB of bits"
    return _timed(lambda: privacy.strong_privacy(history), 1, note, check)


def _first_exposure(size: int) -> Measurement:
    history = _history(selection.uniform(size, size // 10), size)

    def check(found: Any, _: None) -> None:
        """Compare who is ever exposed with the diagonal of the pseudo-inverse's projection."""
        decomposed: Any = np.linalg.svd(history.astype(float))
        values = decomposed.S
        kept = decomposed.Vh[: (values > values[0] * size * 1e-15).sum()]
        leverage = (kept**2).sum(axis=0)
        np.testing.assert_array_equal(np.asarray(found) >= 0, leverage > 1 - 1e-6)

    return _timed(lambda: privacy.first_exposure(history), 1, "aim: 5 s", check)


def _ordered(found: list[Any], _: None) -> None:
    for trajectory in found:
        np.testing.assert_array_less(trajectory.lower, trajectory.upper + 1)


def _in_bulk(
    sizes: tuple[int, int, int],
    left_out: Sequence[str],
    method: str,
    note: str,
    check: Callable[[Any, Any], None],
) -> Measurement:
    rolled = _rolled(*sizes, left_out)

    def run() -> list[Any]:
        return [privacy.weak_privacy_trajectory(own, method) for own in rolled.values()]

    return _timed(run, len(rolled) * sizes[2], note, check)


def _hard(sizes: tuple[int, int, int], effort: float, note: str) -> Measurement:
    clients, cohort, rounds = sizes
    history = _history(selection.uniform(clients, cohort), rounds)
    run = functools.partial(privacy.weak_privacy_trajectory, history, effort=effort)
    return _timed(run, 1, note, _certified)


def _coalitions(clients: int, rounds: int, count: int, compared: int) -> Measurement:
    """Time random coalitions of a tenth and of 3 in 10 clients, both halves of the work."""
    history = _history(selection.uniform(clients, clients // 10), rounds)
    draw = np.random.default_rng(0)
    sizes = np.repeat([clients // 10, 3 * clients // 10], compared // 2)
    members = (
        draw.random((compared, clients)).argsort(axis=1).argsort(axis=1)
        < sizes[:, None]
    )

    def peer() -> np.ndarray:
        """Return whom each coalition exposes by a decomposition of what it leaves of the sums."""
        exposed = np.zeros_like(members)
        with one_thread():
            for own, found in zip(members, exposed, strict=True):
                decomposed: Any = np.linalg.svd(
                    history[:, ~own].astype(float), full_matrices=False
                )
                values = decomposed.S
                kept = decomposed.Vh[: (values > values[0] * rounds * 1e-15).sum()]
                found[~own] = (kept**2).sum(axis=0) > 1 - 1e-6
        return exposed

    def check(_: Any, theirs: np.ndarray) -> None:
        ours = sums_judge(history)(members, np.zeros(compared, np.uint64))
        np.testing.assert_array_equal(ours, theirs)

    return compare(
        lambda: privacy.collusion_risk(0, history, [0.1, 0.3], count // 2),
        peer,
        work=count,
        unit="coalitions",
        peer_work=compared,
        peer_name="numpy.linalg.svd, loop",
        check=check,
        repeats=3,
        note="aim: 2,000 coalitions a second on two cores",
    )


def _hidden(trials: int, rounds: int, clients: int, compared: int) -> Measurement:
    """Time the worst and the median client after every round of many histories."""
    online = availability.independent(0.3)
    selector = selection.uniform(clients, clients // 10)
    histories = np.asarray(
        selection.rollout_trials(0, selector, online, rounds, trials)
    )
    new = (
        np.diff(np.asarray(modular.rank_trajectory(histories[:compared])), prepend=0)
        > 0
    )

    def peer() -> np.ndarray:
        """Solve with the Gram matrix of each round's independent rows, which it is given."""
        found = np.full((compared, rounds, 2), np.nan)
        for history, is_new, figures in zip(
            histories[:compared], new, found, strict=True
        ):
            for j in range(rounds):
                own = history[: j + 1][is_new[: j + 1]].astype(float)
                if len(own):
                    shares = (own * np.linalg.solve(own @ own.T, own)).sum(axis=0)
                    seen = 1 / shares[shares > 1e-12]
                    figures[j] = seen.min(), np.median(seen)
        return found

    def check(ours: Any, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours[:compared], theirs, rtol=1e-6)

    return compare(
        lambda: privacy.hidden_among_trajectory(histories, quantiles=(0.0, 0.5)),
        peer,
        work=trials * rounds,
        unit="rounds",
        peer_work=compared * rounds,
        peer_name="numpy.linalg.solve for each round",
        check=check,
        aim=50,
        repeats=3,
        note="aim: 10 s for 1,000 x 200 rounds, ranks and exposures exact",
    )


def _hidden_wide(rounds: int, clients: int) -> Measurement:
    """Time the worst client after every round of one history of very many."""
    history = (
        np.random.default_rng(0)
        .integers(0, 2, (rounds, clients), np.uint8)
        .view(np.bool_)
    )

    def check(found: Any, _: None) -> None:
        """Compare the last round with a solve on some of the clients."""
        own = history.astype(np.float32)
        gram = (own @ own.T).astype(float)
        shares = (
            own[:, :1000] * np.linalg.solve(gram, own[:, :1000].astype(float))
        ).sum(axis=0)
        if not found[-1, 0] <= 1 / shares.max() * (1 + 1e-9):
            raise ResultsDifferError(
                f"the worst of all, {found[-1, 0]}, is better than of some"
            )

    note = "aim: 120 s and 4 GB for 10^6 clients x 1,000 rounds; floor: 3 J^2 N / 2 products"
    run = functools.partial(privacy.hidden_among_trajectory, history, quantiles=(0.0,))
    return compare(run, work=rounds, unit="rounds", check=check, repeats=1, note=note)


def _updates(rounds: int, clients: int, cohort: int) -> Measurement:
    """Time each client's worst update, where updates drift, against NumPy for some of them."""
    rng = np.random.default_rng(0)
    history = np.zeros((rounds, clients), np.bool_)
    for row in history:
        row[rng.choice(clients, cohort, replace=False)] = True
    compared, memory = max(1, clients // 50), 0.9
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))

    def peer() -> np.ndarray:
        rows = history.astype(np.float64)
        inverse = np.linalg.inv(rows @ rows.T * memory**lags)
        worst = np.zeros(compared)
        for i, column in enumerate(rows.T[:compared]):
            own = np.flatnonzero(column)
            known = column[:, None] * memory ** lags[:, own]
            shares = (known * (inverse @ known)).sum(axis=0)
            worst[i] = shares.max(initial=0)
        with np.errstate(divide="ignore"):
            return 1 / worst

    def check(ours: Any, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours[:compared], theirs, rtol=1e-6)

    return compare(
        lambda: privacy.hidden_among(history, memory=memory),
        peer,
        work=clients,
        unit="clients",
        peer_work=compared,
        peer_name="NumPy: one inverse, then each client",
        check=check,
        repeats=1,
        note="aim: 60 s for 10^5 clients x 500 rounds; floor: rounds x own rounds^2 products each",
    )


def cases(quick: bool) -> list[Case]:
    """Return exact questions, many histories at once, and the hardest single ones."""
    wide = (100, 2_000) if quick else (1000, 100_000)
    square = 60 if quick else 1000
    sizes = (36, 20, 3) if quick else (_CLIENTS, 200, 200)
    size = f"{sizes[2]} trials x [{sizes[1]}, {sizes[0]}]"
    # each shape compiles
    fewer = ("weighted", "partition", "T = 6", "T = 4") if quick else ()
    proven = (*fewer, "random", "weighted")
    schemes, blocks = (
        ("two", "one block scheme") if quick else ("six", "four block schemes")
    )
    exact = "aim: 300 s; every round exact"
    found = [
        Case(f"strong, [{wide[0]}, {wide[1]}]", lambda: _strong(*wide)),
        Case(f"first exposure, [{square}, {square}]", lambda: _first_exposure(square)),
        Case(
            f"bounds, {schemes} schemes x {size}",
            lambda: _in_bulk(sizes, fewer, "bounds", "aim: 60 s", _ordered),
        ),
        Case(
            f"certified, {blocks} x {size}",
            lambda: _in_bulk(sizes, proven, "certified", exact, _certified),
        ),
    ]
    coalitions = (36, 24, 512, 40) if quick else (_CLIENTS, 90, 20_000, 200)
    drawn = f"random coalitions, [{coalitions[1]}, {coalitions[0]}]"
    found.append(Case(drawn, lambda: _coalitions(*coalitions)))
    trials, rounds, clients, compared = (
        (8, 30, 24, 4) if quick else (1000, 200, _CLIENTS, 4)
    )
    many = (20, 20_000) if quick else (1000, 10**6)
    drifting = (20, 2_000, 200) if quick else (500, 10**5, 10**4)
    found += [
        Case(
            f"hidden among, {trials} trials x [{rounds}, {clients}]",
            lambda: _hidden(trials, rounds, clients, compared),
        ),
        Case(
            f"hidden among, worst, [{many[0]}, {many[1]}]",
            lambda: _hidden_wide(*many),
        ),
        Case(
            f"hidden among, updates that drift, [{drifting[0]}, {drifting[1]}]",
            lambda: _updates(*drifting),
        ),
    ]
    if quick:
        return found
    return [
        *found,
        Case(
            "certified, random, [60, 60], K = 10",
            lambda: _hard((60, 10, 60), 1.0, "aim: 300 s; every rank exact"),
        ),
        Case(
            "certified, random, [96, 120], K = 12",
            lambda: _hard(
                (_CLIENTS, _COHORT, 96), 4.0, "aim: 180 s; exact to rank 96; effort 4"
            ),
        ),
    ]
