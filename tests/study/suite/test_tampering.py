"""No field of a card can be changed without being named by its verification."""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.study.suite import Version, _points, _verify, verify_card
from mrsa_jax.study.suite._card import card_of, point_of, summary_of, version_figures
from mrsa_jax.study.suite._training import Curve

Path = tuple[str | int, ...]
UNSEEN = "package"  # the version that made the card, which no computation shows
# fields that contradict others, which are named
ELSEWHERE = {"scheme": ("label",), "parts": ("scenarios.training",)}
ROUNDS = np.arange(5, 205, 5)
ACCURACY = np.linspace(0.1, 0.9, 40)  # a step of .02 in each test, twice the tolerance


def point(scenario: str, seed: int, version: Version) -> dict[str, Any]:
    """Return made-up figures, each of which another scenario or seed does not have."""
    places = list(version.scenarios)
    shift = 3 * places.index(scenario)
    figures = {
        name: k + shift + seed if about.is_whole else k + shift + (seed + 1) / 7
        for k, (name, about) in enumerate(version_figures(version, scenario).items())
    }
    figures["update_hidden_worst_1000"] = float("nan")
    history = hashlib.sha256(f"{scenario} {seed}".encode()).hexdigest()
    return figures | {"history": history}


def curve(seed: int) -> Curve:
    rows = np.eye(6, dtype=bool)[seed : seed + 1]
    return Curve(rows, ROUNDS, ACCURACY + seed / 50)


def learnt(seed: int) -> dict[str, Any]:
    history = _points.history_digest(curve(seed).participation)
    return {"history": history} | curve(seed).figures(0.8)


@pytest.fixture
def card(
    suite_of: Callable[..., Version], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """An honest card of measurements that cost nothing."""
    version = suite_of("whole_numbers", "enforced_blocks", "training")
    monkeypatch.setattr(
        _points, "measure", lambda c: point(c.scenario, c.seed, version)
    )
    monkeypatch.setattr(_points, "trained", lambda cs: [curve(c.seed) for c in cs])
    monkeypatch.setattr(_verify, "present_code", lambda config: {})
    points = {
        name: [
            point_of(
                learnt(seed) if one.trains else point(name, seed, version),
                version,
                name,
            )
            for seed in range(one.seeds)
        ]
        for name, one in version.scenarios.items()
    }
    made = card_of(version, "uniform", points, {}, {})
    assert verify_card(made, every=True).holds
    return made


def fields(node: Any, path: Path = ()) -> Iterator[Path]:
    """Name every field, those that hold fields too."""
    if path:
        yield path
    if isinstance(node, dict):
        for name, below in node.items():
            yield from fields(below, (*path, name))
    elif isinstance(node, list):
        for k, below in enumerate(node):
            yield from fields(below, (*path, k))


def others(value: Any) -> list[Any]:
    """Return values that a field could have instead."""
    changed: list[Any] = [None, True, "", 7, 2.5, [value]]
    if isinstance(value, str):
        changed += [value[:-1], value + "0", value.swapcase(), "v0", "weighted"]
    elif isinstance(value, int | float):
        changed += [value + 1, value * 1.001, -value, str(value)]
    elif isinstance(value, list):
        changed += [value[:-1], [*value, *value[-1:]], value[::-1], value[1:]]
    elif isinstance(value, dict):
        changed += [value | {"more": 1}]
        changed += [{k: v for k, v in value.items() if k != name} for name in value]
    return [one for one in changed if one != value or type(one) is bool]


def written(path: Path) -> str:
    """Return a path as differences name it."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)[1:]


def named(card: dict[str, Any]) -> list[str]:
    """Return the fields that a verification names; none if the card holds."""
    try:
        return [one.field for one in verify_card(card, every=True).differences]
    except mj.ConfigurationError as error:
        return re.findall(r"`([^`]+)`", str(error))[:1]


def check_named(card: dict[str, Any], path: Path) -> None:
    """Change a field in all ways, and look for its name, or that of a field around it."""
    # a mean or an interval contradicts the values, whichever of them was changed
    figure = path[:4] if path[2:3] == ("figures",) else path
    for value in others(at(card, path)):
        tampered = copy.deepcopy(card)
        at(tampered, path[:-1])[path[-1]] = value
        found = named(tampered)
        assert found, (path, value)
        if path[0] in ELSEWHERE and found[0] in ELSEWHERE[path[0]]:
            continue
        parts = [written(path[:k]) for k in range(1, len(path) + 1)]
        assert any(
            name in parts or name.startswith(written(figure)) for name in found
        ), (path, value, found)


def at(node: Any, path: Path) -> Any:
    for name in path:
        node = node[name]
    return node


def kind_of(path: Path) -> tuple[str, ...]:
    """Return a path without names of scenarios and figures, or places in lists."""
    words = ["0" if isinstance(name, int) else name for name in path]
    if words[:1] == ["scenarios"]:
        words[1:2] = ["S"] * len(words[1:2])
        words[3:4] = ["F"] * len(words[3:4])
    return tuple(words)


def test_each_kind_of_field_is_named(card: dict[str, Any]) -> None:
    kinds = {kind_of(path): path for path in fields(card) if path != (UNSEEN,)}
    assert len(kinds) >= 20
    for path in kinds.values():
        check_named(card, path)


@pytest.mark.long
def test_every_field_is_named(card: dict[str, Any]) -> None:
    for path in fields(card):
        if path != (UNSEEN,):
            check_named(card, path)


@pytest.mark.long
def test_values_that_fit_their_means_are_named(card: dict[str, Any]) -> None:
    count = 0
    for name, entry in card["scenarios"].items():
        for figure, stated in entry["figures"].items():
            for k, value in enumerate(stated["values"]):
                wrong = 1 if value is None else value + max(1, round(abs(value)))
                tampered = copy.deepcopy(card)
                values = tampered["scenarios"][name]["figures"][figure]
                values["values"][k] = wrong
                values |= summary_of(values["values"])
                expected = [f"scenarios.{name}.figures.{figure}.values[{k}]"]
                assert named(tampered) == expected, figure
                count += 1
    assert count > 100


def test_swapped_digests_and_entries_are_named(card: dict[str, Any]) -> None:
    scenarios = card["scenarios"]
    for a, b in itertools.permutations(("whole_numbers", "enforced_blocks"), 2):
        tampered = copy.deepcopy(card)
        tampered["scenarios"][a]["histories"] = scenarios[b]["histories"]
        assert named(tampered) == [f"scenarios.{a}.histories[{k}]" for k in range(3)]
        tampered = copy.deepcopy(card)
        tampered["scenarios"][a] = copy.deepcopy(scenarios[b])
        assert all(name.startswith(f"scenarios.{a}.") for name in named(tampered))
        assert named(tampered)
    # of two seeds
    for name, entry in scenarios.items():
        tampered = copy.deepcopy(card)
        digests = tampered["scenarios"][name]["histories"]
        digests[:2] = entry["histories"][1::-1]
        assert named(tampered) == [f"scenarios.{name}.histories[{k}]" for k in (0, 1)]


def test_a_card_of_another_scheme_is_named(card: dict[str, Any]) -> None:
    """All that a card says of its scheme, and no history of it."""
    tampered = copy.deepcopy(card)
    tampered |= {"scheme": "weighted", "label": "Weighted random"}
    assert named(tampered) == [f"scenarios.{n}.scheme" for n in card["scenarios"]]
    for entry in tampered["scenarios"].values():
        entry["scheme"] = "weighted"
    # the measurements of this test do not look at the scheme, true ones do
    assert named(tampered) == []


def test_rounds_to_an_accuracy_may_move_with_its_tolerance(
    card: dict[str, Any],
) -> None:
    figures = card["scenarios"]["training"]["figures"]
    stated = figures["rounds_to_accuracy"]["values"]
    # the first test at .8 or more; one step of .02 before and after is another
    assert stated[0] == ROUNDS[np.argmax(ACCURACY >= 0.8)]
    version = mj.study.suite.load_version("v1")
    for rounds in (*ROUNDS.tolist(), None, 3, 0):
        reached = {*curve(0).rounds[np.abs(ACCURACY - 0.8) < 0.0101].tolist()}
        found = list(
            _verify._learnt(
                "f", "rounds_to_accuracy", rounds, curve(0), version, "training"
            )
        )
        assert (not found) == (rounds == stated[0] or rounds in reached), rounds
    for accuracy, holds in ((0.9, True), (0.91, True), (0.9101, False), (None, False)):
        found = list(
            _verify._learnt("f", "accuracy", accuracy, curve(0), version, "training")
        )
        assert (not found) == holds, accuracy


def test_the_draw_is_fresh_and_can_be_repeated(card: dict[str, Any]) -> None:
    first, second = verify_card(card), verify_card(card)
    assert first.seed != second.seed
    assert verify_card(card, seed=first.seed) == first
    assert len(first.cases) == 4  # of eleven
    # every point is drawn by some seed
    drawn = {case for seed in range(30) for case in verify_card(card, seed=seed).cases}
    assert len(drawn) == first.num_cases == 11
    with pytest.raises(mj.ConfigurationError, match="`seed`"):
        verify_card(card, every=True, seed=1)
