"""Figures of a card: names, units, directions and the words for how sure they are."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mrsa_jax.study.suite._scenarios import Constants

Word = Literal["exact", "certified", "estimated"]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a history.

    Attributes:
        label: In tables.
        word: `exact` is decided in integers, perhaps with an error of probability below
            2^-30; `certified` is a bound, or a float whose error is bounded by nine
            digits; `estimated` depends on random draws beyond the history.
        better: Direction that protects or serves more, 1 or -1; 0 for neither.
        is_whole: Whether it is an integer.
    """

    label: str
    word: Word
    better: int
    is_whole: bool = False


OF_TRAININGS = {
    "accuracy": Figure("accuracy after all rounds", "estimated", 1),
    "rounds_to_accuracy": Figure("rounds to the accuracy", "estimated", -1, True),
}
"""Figures of a scenario in which clients train a model, by name."""


def figures_of(constants: Constants, *, trains: bool = False) -> dict[str, Figure]:
    """Return the figures of a scenario in a version of the suite, by name.

    Those of hiding exist for each number of rounds of the constants.

    Args:
        constants: Of the version.
        trains: Whether the scenario trains a model: it has other figures.
    """
    if trains:
        return OF_TRAININGS
    figures = {
        "strong_privacy": Figure("strong T", "exact", 1, True),
        "weak_lower": Figure("weak T, lower bound", "certified", 1, True),
        "weak_upper": Figure("weak T, upper bound", "certified", 1, True),
        "exposed_clients": Figure("exposed clients", "exact", -1, True),
        "rounds_unexposed": Figure("rounds before exposure", "exact", 1, True),
        "skipped_rounds": Figure("skipped rounds", "exact", -1, True),
        "cardinality": Figure("C", "exact", 1),
        "fairness_gap": Figure("F", "exact", -1),
    }
    for part, words in (("update", "an update"), ("lasting", "what lasts")):
        for which in ("worst", "median"):
            for rounds in constants.rounds:
                label = f"{words} hidden among, {which} client, {rounds} rounds"
                name = f"{part}_hidden_{which}_{rounds}"
                figures[name] = Figure(label, "certified", 1)
    return figures | {
        "attribute_auc": Figure("AUC of the attribute attack", "estimated", -1),
        "attribute_bound": Figure("bound on the AUC of any test", "certified", -1),
        "epsilon": Figure("epsilon of the worst client", "certified", -1),
        "determined_share": Figure("values determined", "estimated", -1),
    }
