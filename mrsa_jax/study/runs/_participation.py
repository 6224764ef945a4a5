"""Write the participation log of a training: each learnt sum, with its weights.

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
from mrsa_jax.study.runs._training_setting import Played, Setting
from mrsa_watch.logs import FORMAT, VERSION

Line = dict[str, Any]


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
    lines = list(_learnt(setting, played))
    with_sum = {line["round"] for line in lines}
    # a sum of clients of weight 0 reveals nothing
    lines += [
        {"round": index + 1, "sum": 0, "status": "aborted", "clients": []}
        for index in np.flatnonzero(played.cohorts.any(axis=1)).tolist()
        if index + 1 not in with_sum
    ]
    lines.sort(key=lambda line: line["round"])
    for line in lines:
        line["asked"] = _names(played.cohorts[line["round"] - 1])
    return "".join(json.dumps(line) + "\n" for line in [header, *lines])


def _learnt(setting: Setting, played: Played) -> Iterator[Line]:
    """Go through the learnt sums: of whole updates, or of each segment by itself."""
    if played.segments is None:
        yield from _sums(setting, *played.learnt, {})
        return
    sums = played.sums
    for rows, rounds, (start, stop) in zip(
        sums.participation, sums.rounds, sums.bounds, strict=True
    ):
        part = {"part": f"entries {start} to {stop - 1}"}
        yield from _sums(setting, rows, rounds, part)


def _sums(
    setting: Setting, P: np.ndarray, rounds: np.ndarray, more: Line
) -> Iterator[Line]:
    aggregation = setting.config.aggregation
    number = 0
    before = None
    for row, index in zip(P, rounds.tolist(), strict=True):
        if not row.any():
            continue
        number = number + 1 if index == before else 0
        before = index
        line: Line = {
            "round": index + 1,
            "sum": number,
            "status": "learnt",
            "clients": _names(row),
        }
        if P.dtype != np.bool_:
            line["weights"] = row[row != 0].tolist()
        if aggregation.is_noisy and aggregation.clip_norm is not None:
            # each client adds one in a cohort's clients of the variance
            share = np.count_nonzero(row) / setting.config.population.cohort_size
            multiplier = aggregation.noise_multiplier
            line["noise"] = multiplier * aggregation.clip_norm * math.sqrt(share)
            line["clip"] = aggregation.clip_norm
        yield line | more


def _names(row: np.ndarray) -> list[str]:
    return [str(client) for client in np.flatnonzero(row)]
