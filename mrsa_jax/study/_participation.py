"""The participation log of a training.

Who is in each sum that was learnt, with its weights.
It is the log that systems in use record (`docs/participation_log.md`), so that
`mrsa-jax audit`, `watch` and `advise --log` read a training as they read those. Rounds
count from 1, as everywhere in what a training prints, and clients are called by their
numbers, from 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax._version import __version__
from mrsa_jax.study._training_setting import Played, Setting
from mrsa_watch.logs import FORMAT, VERSION


def log_of(setting: Setting, played: Played) -> str:
    """Return the lines of the log of a training's rounds, as they were trained."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "system": f"mrsa_jax {__version__}",
        "aggregation": "secagg",
        "pseudonyms": None,
        "run": 0,
    }
    asked = played.survivors[:, 0]
    learnt = list(_learnt(setting, played))
    seen = {line["round"] for line in learnt}
    # a sum of clients who weigh nothing teaches nothing
    aborted = [
        {"round": int(j) + 1, "sum": 0, "status": "aborted", "clients": []}
        for j in np.flatnonzero(asked.any(axis=1))
        if j + 1 not in seen
    ]
    lines = sorted(learnt + aborted, key=lambda line: line["round"])
    lines = [line | {"asked": _names(asked[line["round"] - 1])} for line in lines]
    return "".join(json.dumps(line) + "\n" for line in [header, *lines])


def _learnt(setting: Setting, played: Played) -> Iterator[dict[str, Any]]:
    """Go through the learnt sums: of whole updates, or of each segment by itself."""
    if played.segments is None:
        yield from _sums(setting, *played.learnt, {})
        return
    own = played.sums
    for rows, rounds, (start, stop) in zip(
        own.participation, own.rounds, own.bounds, strict=True
    ):
        yield from _sums(
            setting, rows, rounds, {"part": f"entries {start} to {stop - 1}"}
        )


def _sums(
    setting: Setting, P: np.ndarray, rounds: np.ndarray, more: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    number, before = 0, None
    for row, when in zip(P, rounds.tolist(), strict=True):
        if not row.any():
            continue
        number = number + 1 if when == before else 0
        before = when
        line = {
            "round": when + 1,
            "sum": number,
            "status": "learnt",
            "clients": _names(row),
        }
        if P.dtype != np.bool_:
            line["weights"] = row[row != 0].tolist()
        yield line | _noise(setting, int(np.count_nonzero(row))) | more


def _noise(setting: Setting, count: int) -> dict[str, float]:
    """Return the standard deviation of the noise that these clients added, and the clip norm."""
    own = setting.config.aggregation
    if not own.is_noisy or own.clip_norm is None:
        return {}
    share = count / setting.config.population.cohort_size
    return {
        "noise": own.noise_multiplier * own.clip_norm * math.sqrt(share),
        "clip": own.clip_norm,
    }


def _names(row: np.ndarray) -> list[str]:
    return [str(client) for client in np.flatnonzero(row)]
