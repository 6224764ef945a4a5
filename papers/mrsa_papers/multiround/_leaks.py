"""A figure of our own: weighted random selection leaks earlier than random.

Selecting the least used clients makes all counts of participation nearly equal after
every N/K rounds, so that the sums of two such stretches cancel on all but a few
clients. The witness has coefficients 1 and -1 and needs no certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mrsa_jax import selection
from mrsa_papers.harness import Check, Context, Found, Values, rows_to_frame, state
from mrsa_papers.harness._figures import by_scheme
from mrsa_papers.multiround._population import online_of
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, pd


def early_leaks(context: Context, settings: Values) -> Found:
    """Compare how early weighted random and random selection leak.

    At multiples of N/K rounds.
    """
    n, k, trials = settings.num_clients, settings.cohort_size, settings.num_trials
    rule = f"must divide num_clients, {n}, at least three times"
    require(n % k == 0 and n > 2 * k, "cohort_size", rule, k)
    context.begin()
    online = online_of(context, settings)
    selectors = {
        "Random": selection.uniform(n, k),
        "Weighted random": selection.weighted(n, k),
    }
    # of generic rows, rank = rounds: min(K, N - rank + 1)
    law = np.minimum(k, n - np.arange(n))
    rows, firsts, checks = [], {}, []
    for label, selector in context.steps("Early leaks", selectors.items()):
        history = np.asarray(
            selection.rollout_trials(context.seed, selector, online, n, trials)
        )
        upper = window_bounds(history)
        leaked = np.maximum.accumulate(upper < law, axis=1)
        firsts[label] = np.where(leaked[:, -1], leaked.argmax(axis=1) + 1, 0)
        for j in range(n):
            row = {
                "scheme": label,
                "epoch": n // k,
                "rounds": j + 1,
                "leaked": float(leaked[:, j].mean()),
            }
            rows.append(row | {"fewest": int(upper[:, j].min()), "law": int(law[j])})
        checks.append(_recounted(label, history, upper, k))
    return Found(
        (*_comparison(firsts, n // k), *checks),
        rows_to_frame(rows),
        f"N = {n}, K = {k}, {trials} trials: share in which some combination of the "
        "sums so far has fewer clients than min(K, N - rank + 1), the generic law. It "
        "is the sum of m rounds minus that of the m rounds before: a fact without any "
        "certificate.",
    )


def window_bounds(history: np.ndarray) -> np.ndarray:
    """Return int32[B, J].

    Fewest clients in a sum or a difference of two adjacent windows so far.
    The witness is 1 on m rounds and -1 on the next m: after t rounds its combination is
    2 f(t-m) - f(t) - f(t-2m), where f counts participations. Rounds must not all be
    skipped.
    """
    trials, rounds, clients = history.shape
    # participations up to each round, 0 at first
    counts = np.zeros((trials, rounds + 1, clients), np.int32)
    np.cumsum(history, axis=1, out=counts[:, 1:])
    best = _weights(history)
    for m in range(1, rounds // 2 + 1):
        # f(t-m) - f(t-2m) less f(t) - f(t-m)
        change = 2 * counts[:, m:-m] - counts[:, 2 * m :] - counts[:, : -2 * m]
        best[:, 2 * m - 1 :] = np.minimum(best[:, 2 * m - 1 :], _weights(change))
    return np.minimum.accumulate(best, axis=1)


def _weights(rows: np.ndarray) -> np.ndarray:
    """Return the number of non-zeros of each row.

    N + 1 for a zero row, which says nothing.
    """
    weights = (rows != 0).sum(axis=-1).astype(np.int32)
    return np.where(weights == 0, np.int32(rows.shape[-1] + 1), weights)


def window_witness(history: np.ndarray, clients: int) -> list[int] | None:
    """Return the first difference of windows with at most this many clients."""
    rounds = len(history)
    # participations up to each round, 0 at first
    counts = np.zeros((rounds + 1, history.shape[1]), np.int32)
    np.cumsum(history, axis=0, out=counts[1:])
    for t in range(2, rounds + 1):
        for m in range(1, t // 2 + 1):
            change = 2 * counts[t - m] - counts[t] - counts[t - 2 * m]
            if 0 < np.count_nonzero(change) <= clients:
                return [0] * (t - 2 * m) + [1] * m + [-1] * m + [0] * (rounds - t)
    return None


def recount(history: np.ndarray, witness: list[int]) -> int:
    """Count the clients in a combination of the sums, in plain Python integers."""
    rows = [
        (z, row)
        for z, row in zip(witness, history.astype(int).tolist(), strict=True)
        if z
    ]
    combined = [sum(z * row[i] for z, row in rows) for i in range(history.shape[1])]
    return sum(value != 0 for value in combined)


def _recounted(label: str, history: np.ndarray, upper: np.ndarray, k: int) -> Check:
    """Recount the trial that leaks most before the tail, without NumPy."""
    rounds = history.shape[2] - 2 * k
    middle = upper[:, rounds - 1]
    trial, fewest = int(middle.argmin()), int(middle.min())
    if fewest >= k:  # a single round's sum
        return state(f"{label}: clients in a single sum", fewest == k, ours=f"{fewest}")
    witness = window_witness(history[trial, :rounds], fewest)
    ours = -1 if witness is None else recount(history[trial, :rounds], witness)
    return state(
        f"{label}: fewest clients in a combination of {rounds} rounds, counted again",
        ours == fewest,
        ours=f"{ours}; by windows {fewest}",
        note="the witness z multiplied out in plain Python integers",
    )


def _comparison(firsts: dict[str, np.ndarray], epoch: int) -> Iterator[Check]:
    shares = {label: float((first > 0).mean()) for label, first in firsts.items()}
    leaks = firsts["Weighted random"][firsts["Weighted random"] > 0]
    at_epochs = float((leaks % epoch == 0).mean()) if leaks.size else 0.0
    yield state(
        "trials with T below the generic law",
        shares["Weighted random"] >= 2 * shares["Random"] > 0,
        ours=", ".join(
            f"{label} {100 * share:.0f} %" for label, share in shares.items()
        ),
        tolerance="at least twice as many",
        note="the least used clients are nearly the same after every N/K rounds",
    )
    yield state(
        f"weighted random: first such leak after a multiple of N/K = {epoch} rounds",
        at_epochs > 0.5,
        ours=f"{100 * at_epochs:.0f} % of the {leaks.size} trials that leak early",
        tolerance="most of them",
    )


def draw_early_leaks(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the share of trials that leaked early (columns scheme, rounds, leaked)."""
    for _, curve, look in by_scheme(data):
        ax.plot(curve["rounds"], 100 * curve["leaked"], drawstyle="steps-post", **look)
    epoch = int(data["epoch"].max())
    ax.set_xticks(range(0, int(data["rounds"].max()) + 1, epoch))
    ax.grid(axis="x", color="#bbbbbb", ls=":")
    ax.set_ylim(0)
