"""Rates of correct guesses of an attack, over all models of a kind.

Membership inference: each model is asked about its own samples and as many others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from mrsa_jax._core.statistics import half_interval
from mrsa_papers.harness._intervals import binomial_interval

Method = Literal["shadow", "loss", "likelihood_ratio"]


@dataclasses.dataclass(frozen=True, eq=False)
class Guesses:
    """One attack on the models of one kind: scores [targets, 2 s], of members first."""

    size: int
    scheme: str
    method: Method
    scores: np.ndarray
    threshold: float

    @functools.cached_property
    def areas(self) -> Float[np.ndarray, " targets"]:
        """Return the area under each target's curve, by ranks (ties count half)."""
        from scipy import stats

        # Mann-Whitney: members' ranks less those among themselves
        ranks = stats.rankdata(self.scores, axis=1)[:, : self.size].sum(axis=1)
        return (ranks - self.size * (self.size + 1) / 2) / self.size**2


def _cases(guesses: Sequence[Guesses]) -> Iterator[tuple[Guesses, list[Guesses]]]:
    """Go through the guesses of all seeds that belong together."""
    cases: dict[tuple[int, str, str], list[Guesses]] = {}
    for guess in guesses:
        cases.setdefault((guess.size, guess.scheme, guess.method), []).append(guess)
    for together in cases.values():
        yield together[0], together


def score_rows(guesses: Sequence[Guesses]) -> list[dict[str, Any]]:
    """Return the rates of each training set, kind of model and attack.

    They are over all targets and seeds.

    Candidates called members are those who score at least the adversary's threshold;
    members found at a rate of false positives are those who score above all but so many
    of the others, in all models together.
    """
    rows = []
    for case, together in _cases(guesses):
        called = np.stack([guess.scores >= guess.threshold for guess in together])
        hits = int(called[..., : case.size].sum())
        number, trials = int(called.sum()), called.size
        right = 2 * hits - number + trials // 2  # members called, and others not called
        low, high = binomial_interval(right, trials)
        areas = np.concatenate([guess.areas for guess in together])
        middle, reach = float(areas.mean()), float(half_interval(areas))
        rates = _found(together, [trials // 2 // 1000, trials // 2 // 100])
        rows.append(
            {
                "size": case.size,
                "scheme": case.scheme,
                "method": case.method,
                "trials": trials,
                "right": right,
                "accuracy": right / trials,
                "lower": low,
                "upper": high,
                "called": number,
                "hits": hits,
                "precision": hits / number if number else float("nan"),
                "recall": 2 * hits / trials,
                "models": len(areas),
                "auc": middle,
                "auc low": middle - reach,
                "auc high": middle + reach,
                "auc half at 99.9 %": float(half_interval(areas, 0.999)),
                "found at 0.1 %": rates[0],
                "found at 1 %": rates[1],
            }
        )
    return rows


def curve_rows(guesses: Sequence[Guesses], method: Method) -> list[dict[str, Any]]:
    """Return points of an attack's curves, and the range of pure luck.

    The range holds 95 % of guesses at each point.

    Of n others k are called members by luck: their threshold is exceeded with a chance
    that is Beta(k + 1, n - k), and so is it by each of as many members.
    """
    from scipy import stats

    rows = []
    for case, together in _cases(
        [guess for guess in guesses if guess.method == method]
    ):
        others = case.size * sum(len(guess.scores) for guess in together)
        counts = np.unique(np.geomspace(1, others - 1, 60).round().astype(int))
        luck = stats.betabinom(others, counts + 1, others - counts)
        low, high = (
            np.asarray(luck.ppf(q), np.float64) / others for q in (0.025, 0.975)
        )
        rates = _found(together, counts.tolist())
        rows += [
            {
                "size": case.size,
                "scheme": case.scheme,
                "method": method,
                "fpr": float(counts[k]) / others,
                "tpr": rates[k],
                "chance low": float(low[k]),
                "chance high": float(high[k]),
            }
            for k in range(len(counts))
        ]
    return rows


def _found(together: Sequence[Guesses], allowed: Sequence[int]) -> list[float]:
    """Return the share of members who score above all but so many of the others."""
    size = together[0].size
    scores = np.stack([guess.scores for guess in together])
    members, others = (
        scores[..., :size].ravel(),
        np.sort(scores[..., size:].ravel())[::-1],
    )
    # so many of the others lie above that score: the false alarms that are allowed
    return [float((members > others[count]).mean()) for count in allowed]
