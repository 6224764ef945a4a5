"""Verify a card: recompute a part of it, and name every field that differs."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Iterator
from typing import Any

from mrsa_jax._core.floats import usual_floats
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study.kinds import KINDS
from mrsa_jax.study.suite import _points
from mrsa_jax.study.suite._card import (
    Card,
    check_form,
    config_of,
    label_of,
    point_of,
    read_card,
    summary_of,
)
from mrsa_jax.study.suite._figures import figures_of
from mrsa_jax.study.suite._run import present_code
from mrsa_jax.study.suite._scenarios import Version, load_version
from mrsa_watch._base.errors import ConfigurationError, check_count

_PART = 3  # one in this number of cases is recomputed
_ROUNDING = 1e-12  # relative, of means and intervals over the seeds


@dataclasses.dataclass(frozen=True)
class Difference:
    """A field of a card that differs.

    Attributes:
        field: Its path in the card.
        stated: Its value in the card.
        recomputed: Its value here.
    """

    field: str
    stated: Any
    recomputed: Any

    def __str__(self) -> str:
        """Return the difference in words."""
        return f"{self.field} is {self.stated!r}, and {self.recomputed!r} here"


@dataclasses.dataclass(frozen=True)
class Verification:
    """What the verification of a card has shown.

    Attributes:
        differences: Fields that differ; none if the card holds.
        cases: Scenarios and seeds that were recomputed.
        num_cases: Number of scenarios and seeds in the card.
    """

    differences: tuple[Difference, ...]
    cases: tuple[tuple[str, int], ...]
    num_cases: int

    @property
    def holds(self) -> bool:
        """Whether no field differs."""
        return not self.differences


@usual_floats
def verify_card(
    card: Card | str | os.PathLike[str],
    *,
    every: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Verify a card: its form, its means and intervals, and recomputed points.

    Integers and digests of histories must be equal; floats must agree within the
    relative tolerance that the suite states.

    Args:
        card: A card, or its file.
        every: Recompute every point instead of a random third.
        seed: Of the choice of the third; from the operating system if None, so that
            whoever made the card cannot know it.
        progress: Receives how many points are done.

    Returns:
        All fields that differ. Fields of its version, code and means are compared
        first; if one differs, nothing is recomputed.

    Raises:
        ConfigurationError: If the card has another form, by the name of the field, or
            its scheme is unknown here.
    """
    if not isinstance(card, dict):
        card = read_card(card)
    check_form(card)
    if seed is not None:
        check_count(seed + 1, "seed", "must be an integer of at least 0")
    version = load_version(card["suite"])
    entries = {n: e for n, e in card["scenarios"].items() if "problem" not in e}
    cases = [
        (name, place) for name, entry in entries.items() for place in entry["seeds"]
    ]
    stated = tuple(_stated(card, version))
    if stated:
        return Verification(stated, (), len(cases))
    if not every:
        draws = random.SystemRandom() if seed is None else random.Random(seed)
        drawn = draws.sample(cases, -(-len(cases) // _PART))
        cases = [case for case in cases if case in drawn]
    total = sum(len(entry["seeds"]) for entry in entries.values())
    differences: list[Difference] = []
    progress = checked_progress(progress)
    progress.stage("verification", len(cases))
    for number, (name, place) in enumerate(cases):
        differences += _recomputed(card, version, name, place)
        progress.update(number + 1, len(cases))
    return Verification(tuple(differences), tuple(cases), total)


def _stated(card: Card, version: Version) -> Iterator[Difference]:
    """Compare all that needs no simulation."""
    yield from _differing("suite_sha256", card["suite_sha256"], version.digest)
    yield from _differing("label", card["label"], label_of(version, card["scheme"]))
    figures = figures_of(version.constants)
    for name, scenario in version.scenarios.items():
        entry, where = card["scenarios"][name], f"scenarios.{name}"
        if "problem" in entry:
            yield from _differing(
                f"{where}.problem", entry["problem"], _problem(card, name)
            )
            continue
        written = scenario.written(card["scheme"])
        yield from _differing(f"{where}.scheme", entry["scheme"], written)
        code = present_code(config_of(card, name, 0))
        yield from _differing("code", card["code"], dict(sorted(code.items())))
        for figure, about in figures.items():
            stated, path = entry["figures"][figure], f"{where}.figures.{figure}"
            yield from _differing(f"{path}.word", stated["word"], about.word)
            for part, value in summary_of(stated["values"]).items():
                yield from _differing(f"{path}.{part}", stated[part], value, _ROUNDING)


def _problem(card: Card, name: str) -> str | None:
    """Return why the scheme of a card cannot be built in a scenario; None if it can."""
    version = load_version(card["suite"])
    try:
        config = config_of(card, name, 0)
        scenario = version.scenarios[name]
        KINDS["simulate"].check(scenario.config(config.scheme, 0))
        _points.group_of(config)
    except ConfigurationError as error:
        return str(error)
    return None


def _recomputed(
    card: Card, version: Version, name: str, place: int
) -> Iterator[Difference]:
    """Measure a point again, and compare it."""
    point = point_of(_points.measure(config_of(card, name, place)), version)
    entry, where = card["scenarios"][name], f"scenarios.{name}"
    history = entry["histories"][place]
    yield from _differing(f"{where}.histories[{place}]", history, point["history"])
    tolerance = version.constants.relative_tolerance
    for figure, about in figures_of(version.constants).items():
        value = entry["figures"][figure]["values"][place]
        path = f"{where}.figures.{figure}.values[{place}]"
        margin = 0.0 if about.is_whole else tolerance
        yield from _differing(path, value, point[figure], margin)


def _differing(
    field: str, stated: Any, recomputed: Any, tolerance: float = 0.0
) -> Iterator[Difference]:
    if isinstance(stated, int | float) and isinstance(recomputed, int | float):
        is_same = math.isclose(stated, recomputed, rel_tol=tolerance, abs_tol=tolerance)
        # integers of any size are compared as such
        is_same = is_same if tolerance else stated == recomputed
    else:
        is_same = stated == recomputed
    if not is_same:
        yield Difference(field, stated, recomputed)
