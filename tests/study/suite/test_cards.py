"""Cards of the suite: what is frozen, summarised, verified and compared."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.study.suite import (
    compare_cards,
    load_version,
    read_card,
    verify_card,
)
from mrsa_jax.study.suite._card import card_of, summary_of, to_json, version_figures
from mrsa_jax.study.suite._compare import _is_better as is_better
from mrsa_jax.study.suite._points import history_digest

V1 = "39725d0d023134ad4f47549f50d5ec9423aa8de2d8b93d07510835f7ebfd2b3a"
KINDS = {
    "sizes": {(24, 6), (120, 12), (120, 60), (100_000, 1000)},
    "assignments": {None, "sorted", "cyclic"},
    "availabilities": {None, "markov:5", "diurnal:0.3:24"},
}


def made(
    shift: float = 0.0, *, trainings: bool = True, **problems: str
) -> dict[str, Any]:
    """Return a card of made-up points, whose figures grow with the seed."""
    version = load_version("v1")
    points = {
        name: [
            {"history": hashlib.sha256(bytes([seed])).hexdigest()}
            | {
                figure: int(seed + shift) if about.is_whole else seed / 4 + shift
                for figure, about in version_figures(version, name).items()
            }
            for seed in range(scenario.seeds)
        ]
        for name, scenario in version.scenarios_of(trainings=trainings).items()
        if name not in problems
    }
    return card_of(version, "uniform", points, problems, {}, trainings=trainings)


def test_a_version_never_changes() -> None:
    version = load_version("v1")
    assert version.digest == V1
    assert len(version.scenarios_of(trainings=False)) == 16
    assert [one.name for one in version.scenarios.values() if one.trains] == [
        "training"
    ]
    assert all(3 <= one.seeds <= 10 for one in version.scenarios.values())
    populations = [one.settings["population"] for one in version.scenarios.values()]
    sizes = {(one["num_clients"], one["cohort_size"]) for one in populations}
    assert sizes == KINDS["sizes"]
    assert {one.get("assignment") for one in populations} == KINDS["assignments"]
    assert {one.get("availability") for one in populations} == KINDS["availabilities"]
    servers = [one.server for one in version.scenarios.values()]
    assert servers.count("free") == servers.count("enforced") == 1


def test_each_scenario_is_a_valid_simulation() -> None:
    version = load_version("v1")
    for name, scenario in version.scenarios.items():
        for text in version.schemes.values():
            scheme = mj.selection.Scheme.parse(scenario.written(text))
            config = scenario.config(scheme.written, 3)
            assert config.seed == 3, name
            assert config.rounds == scenario.settings["rounds"]
            if scenario.trains:
                training = scenario.training(scheme.written, 3)
                assert (training.seed, training.rounds) == (3, config.rounds)
                assert training.population == config.population
    with pytest.raises(mj.ConfigurationError, match="no places but"):
        scenario.written("uniform:{rounds}")


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (3, 5), (4, 16)])
def test_the_digest_is_of_bits_in_the_stated_order(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(7).random(shape) < 0.5
    text = "".join("1" if bit else "0" for row in rows.tolist() for bit in row)
    text += "0" * (-len(text) % 8)
    packed = bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))
    expected = hashlib.sha256(b"%d %d\n" % shape + packed).hexdigest()
    assert history_digest(rows) == expected
    assert history_digest(np.asfortranarray(rows)) == expected
    # another shape of the same bits has another digest
    if shape[0] > 1:
        assert history_digest(rows.reshape(1, -1)) != expected


def test_the_interval_is_of_student_s_t() -> None:
    values = [3.0, 4.0, 7.0, 8.5]
    summary = summary_of(values)
    quantile = 3.182446305284263  # of 0.975, three degrees of freedom, from tables
    half = quantile * np.std(values, ddof=1) / 2
    low, high = np.mean(values) - half, np.mean(values) + half
    assert summary["value"] == pytest.approx(np.mean(values), rel=1e-15)
    assert (summary["low"], summary["high"]) == pytest.approx((low, high), rel=1e-12)
    assert summary_of([2.0]) == {"value": 2.0, "low": None, "high": None}
    assert summary_of([]) == summary_of([1.0, None]) == dict.fromkeys(summary)


def test_a_card_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    card = made(losses="`graph` must be complete")
    path = tmp_path / "card.json"
    path.write_text(to_json(card))
    assert read_card(path) == card
    path.write_text(to_json(card).replace('"value"', '"low"', 1))
    with pytest.raises(mj.ConfigurationError, match="occurs twice"):
        read_card(path)
    path.write_text(to_json(card).replace("0.25", "NaN", 1))
    with pytest.raises(mj.ConfigurationError, match="no number"):
        read_card(path)
    with pytest.raises(mj.ConfigurationError, match="existing file"):
        read_card(tmp_path / "none.json")


def at(card: Any, *path: Any) -> Any:
    for name in path:
        card = card[name]
    return card


FIGURES = ("scenarios", "markov", "figures", "strong_privacy")
MALFORMED = [
    (("format",), "card 2", "format"),
    (("suite",), "v0", "suite"),
    (("more",), 1, "more"),
    (("code",), [], "code"),
    (("parts",), [], "parts"),
    (("parts",), ["trainings"], "parts"),
    (("parts",), ["histories"], r"scenarios\.training"),
    (("scenarios", "other"), {}, r"scenarios\.other"),
    (("scenarios", "markov", "seeds"), [0, 1, 2, 3], r"scenarios\.markov\.seeds"),
    (("scenarios", "markov", "seeds"), [1, 2, 3, 4, 5], r"scenarios\.markov\.seeds"),
    (("scenarios", "markov", "histories"), ["0"], r"markov\.histories"),
    ((*FIGURES, "values"), [1, 1], r"strong_privacy\.values"),
    ((*FIGURES, "values", 2), 2.5, r"strong_privacy\.values\[2\]"),
    ((*FIGURES, "values", 2), True, r"strong_privacy\.values\[2\]"),
    ((*FIGURES, "low"), "1", r"strong_privacy\.low"),
    ((*FIGURES, "low"), float("inf"), r"strong_privacy\.low"),
    ((*FIGURES, "value"), 10**400, r"strong_privacy\.value"),
    ((*FIGURES, "values", 0), -(10**400), r"strong_privacy\.values\[0\]"),
    (("scheme",), "minimum_separation:1:" * 999 + "uniform", "scheme"),
    (("scheme",), "uniform{privacy_target:>999999999}", "scheme"),
    (("scheme",), "uniform{privacy_target.__class__}", "scheme"),
    (("label",), "\x1b[2J", "label"),
    (("scenarios", "markov"), {"problem": []}, r"markov\.problem"),
]


@pytest.mark.parametrize(("path", "value", "field"), MALFORMED)
def test_a_malformed_card_is_refused_by_its_field(
    path: tuple[Any, ...], value: Any, field: str
) -> None:
    card = made()
    at(card, *path[:-1])[path[-1]] = value
    with pytest.raises(mj.ConfigurationError, match=field):
        verify_card(card)


@pytest.mark.parametrize("name", ["label", "parts", "code", "scenarios"])
def test_a_card_lacks_no_field(name: str) -> None:
    card = made()
    del card[name]
    with pytest.raises(mj.ConfigurationError, match=f"`{name}`"):
        verify_card(card)


TAMPERED = [
    (("suite_sha256",), "0" * 64, "suite_sha256"),
    (("label",), "Best", "label"),
    (("code",), {"scheme uniform, mine": "0"}, "code"),
    (("scenarios", "markov", "scheme"), "weighted", "scenarios.markov.scheme"),
    ((*FIGURES, "value"), 3.0, "scenarios.markov.figures.strong_privacy.value"),
    ((*FIGURES, "low"), 2.0, "scenarios.markov.figures.strong_privacy.low"),
    ((*FIGURES, "word"), "certified", "scenarios.markov.figures.strong_privacy.word"),
    ((*FIGURES, "values", 0), 4, "scenarios.markov.figures.strong_privacy.value"),
    (
        ("scenarios", "losses"),
        {"problem": "too hard"},
        "scenarios.losses.problem",
    ),
]


@pytest.mark.parametrize(("path", "value", "field"), TAMPERED)
def test_a_tampered_card_names_the_field(
    path: tuple[Any, ...], value: Any, field: str
) -> None:
    card = made()
    at(card, *path[:-1])[path[-1]] = value
    result = verify_card(card)
    assert not result.holds
    assert result.cases == ()
    assert field in [one.field for one in result.differences]


def test_cards_are_compared_beyond_their_intervals() -> None:
    low, high = made(), made(100.0)
    rows = compare_cards([low, high])
    version = load_version("v1")
    figures = {name: version_figures(version, name) for name in version.scenarios}
    assert len(rows) == sum(map(len, figures.values()))
    for row in rows:
        about = figures[row.scenario][row.figure]
        expected = ((1, 0),) if about.better > 0 else ((0, 1),)
        assert row.better == expected, row
    # equal cards, and shifts within the intervals, are not better
    assert not any(row.better for row in compare_cards([low, copy.deepcopy(low)]))
    assert not any(row.better for row in compare_cards([low, made(0.5)]))


def test_only_comparable_cards_are_compared() -> None:
    card = made()
    with pytest.raises(mj.ConfigurationError, match="at least two"):
        compare_cards([card])
    other = made() | {"suite_sha256": "0" * 64}
    with pytest.raises(mj.ConfigurationError, match="one version"):
        compare_cards([card, other])
    # a scenario that one card lacks, and a value that is missing, give no row
    partial = made(markov="cannot be built")
    entry = partial["scenarios"]["losses"]["figures"]["epsilon"]
    entry |= {"value": None, "low": None, "high": None, "values": [None] * 5}
    rows = compare_cards([card, partial])
    assert "markov" not in {row.scenario for row in rows}
    assert ("losses", "epsilon") not in {(row.scenario, row.figure) for row in rows}
    # nor does a part that one card lacks
    rows = compare_cards([card, made(trainings=False)])
    assert {row.scenario for row in rows} == {*card["scenarios"]} - {"training"}


def test_compared_intervals_follow_from_their_ends() -> None:
    """Every pair of small intervals, in all directions."""
    ends = [(a, b) for a in range(4) for b in range(a, 4)]
    for first, second in itertools.product(ends, ends):
        entries = [{"low": low, "high": high} for low, high in (first, second)]
        inside = [range(low, high + 1) for low, high in (first, second)]
        above = all(a > b for a, b in itertools.product(*inside))
        assert is_better(*entries, 1) == above
        assert is_better(*reversed(entries), -1) == above
        assert not is_better(*entries, 0)
    assert not is_better({"low": None, "high": None}, {"low": 0, "high": 0}, 1)


def test_json_of_a_card_has_no_surprises() -> None:
    card = json.loads(to_json(made()))
    assert list(card)[:3] == ["format", "suite", "suite_sha256"]
