"""Verify a card: recompute a part of it, and name every field that differs."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_jax._core.floats import usual_floats
from mrsa_jax._core.registry import load_installed
from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study.suite import _points
from mrsa_jax.study.suite._card import (
    Card,
    check_form,
    config_of,
    label_of,
    point_of,
    read_card,
    scenarios_of,
    summary_of,
    version_figures,
)
from mrsa_jax.study.suite._compare import Row, rows_of
from mrsa_jax.study.suite._run import present_code
from mrsa_jax.study.suite._scenarios import SUITE, Version, load_version
from mrsa_jax.study.suite._training import Curve
from mrsa_watch._base.errors import ConfigurationError, check_count, require

_PART = 3  # one in this number of cases is recomputed
_SEED_BITS = 64
_FIRST_FRESH = 2**20  # above all seeds of cards
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
        seed: Of the choice of these; None if every one was recomputed, or none.
    """

    differences: tuple[Difference, ...]
    cases: tuple[tuple[str, int], ...]
    num_cases: int
    seed: int | None = None

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
    relative tolerance that the suite states, and accuracies within theirs.

    Args:
        card: A card, or its file.
        every: Recompute every point instead of a random third.
        seed: Of the choice of the third; from the operating system if None, so that
            the maker of the card cannot know it. The result states it.
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
        require(not every, "seed", "must not be set if every point is recomputed", seed)
    version = load_version(card["suite"])
    entries = {n: e for n, e in card["scenarios"].items() if "problem" not in e}
    cases = [
        (name, place) for name, entry in entries.items() for place in entry["seeds"]
    ]
    stated = tuple(_stated(card, version))
    if stated:
        return Verification(stated, (), len(cases))
    total = len(cases)
    if not every:
        seed = secrets.randbits(_SEED_BITS) if seed is None else seed
        drawn = random.Random(seed).sample(cases, -(-total // _PART))
        cases = [case for case in cases if case in drawn]
    differences: list[Difference] = []
    progress = checked_progress(progress)
    progress.stage("verification", len(cases))
    for number, (name, place) in enumerate(cases):
        differences += _recomputed(card, version, name, place)
        progress.update(number + 1, len(cases))
    return Verification(tuple(differences), tuple(cases), total, seed)


@usual_floats
def fresh_seeds(
    card: Card | str | os.PathLike[str],
    count: int,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Compare a card with the same scheme under other seeds.

    The seeds of a suite are public, so a selector can be written for them: it would
    know in advance which clients are offline. Such a card holds, but other seeds do not
    confirm it.

    Args:
        card: A card, or its file.
        count: Fresh seeds of each scenario, two or more.
        seed: Of the choice of the fresh seeds; from the operating system if None.
        progress: Receives how many points are done.

    Returns:
        A row for each figure with a value, with the entries of the card and of the
        fresh seeds. The card is suspect where `better` is ((0, 1),). Of honest cards,
        some of several hundred intervals do not overlap by chance.

    Raises:
        ConfigurationError: As `verify_card`.
    """
    if not isinstance(card, dict):
        card = read_card(card)
    check_form(card)
    check_count(count - 1, "count", "must be at least 2")
    version = load_version(card["suite"])
    draws = random.Random(secrets.randbits(_SEED_BITS) if seed is None else seed)
    names = [n for n, entry in card["scenarios"].items() if "problem" not in entry]
    progress = checked_progress(progress)
    progress.stage("fresh seeds", len(names))
    rows: list[Row] = []
    for number, name in enumerate(names):
        # none that a card may have
        fresh = [draws.randrange(_FIRST_FRESH, 2**31) for _ in range(count)]
        points = [
            point_of(_points.measure(config_of(card, name, one)), version, name)
            for one in fresh
        ]
        entries = card["scenarios"][name]["figures"]
        for figure, about in version_figures(version, name).items():
            others = summary_of([point[figure] for point in points])
            rows += rows_of(name, figure, about, (entries[figure], others))
        progress.update(number + 1, len(names))
    return tuple(rows)


def _stated(card: Card, version: Version) -> Iterator[Difference]:
    """Compare all that needs no simulation."""
    yield from _differing("suite_sha256", card["suite_sha256"], version.digest)
    _check_scheme(card["scheme"])
    yield from _differing("label", card["label"], label_of(version, card["scheme"]))
    for name, scenario in scenarios_of(card, version).items():
        figures = version_figures(version, name)
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


def _check_scheme(scheme: str) -> None:
    """Raise if no loaded code has the scheme of a card."""
    name = scheme.partition(":")[0]
    load_installed("scheme", name, ROWS.keys)
    rule = (
        "of a card must be known here: load the file that registers it with --plugin, "
        "or install its package"
    )
    require(name in ROWS, "scheme", rule, name)


def _problem(card: Card, name: str) -> str | None:
    """Return why the scheme of a card cannot be built in a scenario; None if it can."""
    try:
        config = config_of(card, name, 0)
        SUITE.check(config)
        _points.group_of(config)
    except ConfigurationError as error:
        return str(error)
    return None


def _recomputed(
    card: Card, version: Version, name: str, place: int
) -> Iterator[Difference]:
    """Measure a point again, and compare it."""
    config, trains = config_of(card, name, place), version.scenarios[name].trains
    entry, where = card["scenarios"][name], f"scenarios.{name}"
    stated = {
        f"{where}.figures.{figure}.values[{place}]": (figure, values["values"][place])
        for figure, values in entry["figures"].items()
    }
    if trains:
        (curve,) = _points.trained([config])
        digest = _points.history_digest(curve.participation)
    else:
        point = point_of(_points.measure(config), version, name)
        digest = point["history"]
    history = entry["histories"][place]
    yield from _differing(f"{where}.histories[{place}]", history, digest)
    for path, (figure, value) in stated.items():
        if trains:
            yield from _learnt(path, figure, value, curve, version, name)
            continue
        is_whole = version_figures(version, name)[figure].is_whole
        margin = 0.0 if is_whole else version.constants.relative_tolerance
        yield from _differing(path, value, point[figure], margin)


def _learnt(
    field: str, figure: str, stated: Any, curve: Curve, version: Version, name: str
) -> Iterator[Difference]:
    """Compare a figure of a training, whose accuracies rounding moves a little.

    Rounds are those of some curve within the tolerance of the recomputed one: they are
    no fewer than those to a little less accuracy, and no more than those to more.
    """
    margin = version.constants.accuracy_tolerance + _ROUNDING
    wanted = version.scenarios[name].accuracy
    recomputed = curve.figures(wanted)[figure]
    if figure == "accuracy":
        is_close = stated == recomputed
        if stated is not None and recomputed is not None:
            is_close = abs(stated - recomputed) <= margin
    else:
        first, last = (curve.rounds_to(wanted + by) for by in (-margin, margin))
        rounds = curve.rounds[np.isfinite(curve.accuracy)].tolist()
        is_close = (
            last is None
            if stated is None
            else first is not None
            and stated in rounds
            and first <= stated <= (last or stated)
        )
    if not is_close:
        yield Difference(field, stated, recomputed)


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
