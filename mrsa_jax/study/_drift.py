"""What the drift of clients' updates, as a training measures it, means for them.

What a client is hidden among holds for updates that never change. A training's updates do, and
its page says how much: among how many the update of any one round is hidden then, and how many
bits the sums reveal of a whole history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import privacy, selection
from mrsa_jax.study._runner import VARIABLES
from mrsa_jax.study._simulate_points import of_schemes
from mrsa_jax.study._training_setting import Played

if TYPE_CHECKING:
    from mrsa_jax.federated import Drift, TrainingResult

_TIMES = 10  # after so many of the rounds, evenly spread, bits are counted
OF_POINT = {
    name: dataclasses.replace(
        own, dims=(), description=own.description + ", at the end" * bool(own.dims)
    )
    for name, own in VARIABLES["drift"].items()
    if name.startswith(("update_", "bits_"))
}
"""What a sweep keeps of a point."""


def of_point(result: TrainingResult, played: Played, weights: np.ndarray | None) -> dict[str, Any]:
    """Return what a sweep keeps of a training that has not diverged."""
    if result.drift is None or result.diverged_round is not None:
        return {}
    found = measured(result.drift, played, weights, times=1)
    return {name: np.ravel(found[name])[-1] for name in OF_POINT}


def measured(
    drift: Drift, played: Played, weights: np.ndarray | None, times: int = _TIMES
) -> dict[str, Any]:
    """Return what a training has measured, by variable; and its layers, under `layer`.

    Args:
        drift: Of its updates.
        played: Its rounds.
        weights: Of the clients in a sum, or None.
        times: After how many of the rounds bits are counted.
    """
    longest = _lags(len(played.history.participation))[-1]
    correlation, pairs = np.full(longest, np.nan), np.zeros(longest)
    correlation[drift.lags - 1], pairs[drift.lags - 1] = drift.correlation, drift.pairs
    return {
        "update_spread": drift.spread,
        "update_memory": drift.memory,
        "update_lasting": drift.lasting,
        "layer_spread": drift.layer_spread,
        "layer_memory": drift.layer_memory,
        "layer_lasting": drift.layer_lasting,
        "correlation": correlation,
        "correlation_pairs": pairs,
        **_learnt(drift, played, weights, times),
        "layer": list(drift.layers),
    }


def variables(
    found: Sequence[dict[str, Any]], num_rounds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what schemes' trainings have measured as variables and coordinates of a data set."""
    axes = {
        "layer": np.asarray(found[0]["layer"], "U"),
        "lag": _lags(num_rounds),
        "rounds_done": _ends(num_rounds),
    }
    return of_schemes(VARIABLES["drift"], found), axes


def _lags(num_rounds: int) -> np.ndarray:
    return np.arange(1, max(2, num_rounds))


def _ends(num_rounds: int, times: int = _TIMES) -> np.ndarray:
    return np.ceil(np.linspace(0, num_rounds, min(times, num_rounds) + 1)[1:]).astype(np.int64)


def _learnt(drift: Drift, played: Played, weights: np.ndarray | None, times: int) -> dict[str, Any]:
    """Return bits of each client and over rounds, and among how many its worst update is hidden.

    All nan with segments, or where memory is unknown.
    """
    own = played.history.participation
    ends = _ends(len(own), times)
    rows, rounds = own, np.arange(len(own))
    if played.rounds is not None:
        rows, rounds = selection.learnt_rows(played.rounds)
    bits, hidden = np.full((len(ends), own.shape[1]), np.nan), np.full(1, np.nan)
    mates = capped = np.nan
    if played.segments is None and np.isfinite(drift.memory) and len(rows):
        weighted = rows if weights is None else rows * weights.astype(np.int64)
        so_far = weighted * (rounds < ends[:, None])[:, :, None]
        kernel = drift.kernel(rounds)
        bits = np.asarray(privacy.information(so_far, kernel))
        hidden = np.asarray(privacy.hidden_among(weighted, memory=kernel))
        hidden = hidden[~np.isinf(hidden)]
        mates = _by_mates(drift, weighted)
        capped = _capped(drift.mates_correlation, privacy.strong_privacy(weighted) or 1)
    seen = [row[row > 0] for row in bits]
    return {
        "update_hidden_worst": hidden.min(),
        "update_hidden_median": np.median(hidden),
        "update_mates_worst": mates,
        "update_mates_correlation": drift.mates_correlation,
        "update_mates_cap": capped,
        "bits": bits[-1],
        "bits_worst": np.array([row.max() if row.size else np.nan for row in seen]),
        "bits_median": np.array([np.median(row) if row.size else np.nan for row in seen]),
    }


def _capped(kappa: float, mates: int) -> float:
    """Return 1 over the share of an update that any estimate explains, of T who move together."""
    share = (1 + (mates - 1) * kappa) / mates if mates > 1 else 1.0
    return np.inf if share <= 0 else 1 / share


def _by_mates(drift: Drift, history: np.ndarray) -> float:
    """Return among how many mates alone hide the worst client; nan if a client's drift is unknown.

    A client who is in sums and came once counts as one whose drift is not known.
    """
    variance, memory, share = np.full((3, history.shape[1]), np.nan)
    is_known = drift.client_spread > 0
    known = drift.clients[is_known]
    variance[known] = drift.client_spread[is_known] ** 2
    memory[known], share[known] = drift.client_memory[is_known], drift.client_lasting[is_known]
    found = privacy.hidden_among_mates(history, memory=memory, share=share, variance=variance)
    return float(found.min())
