"""Items in sweeps: settings are checked before any work, and each point has a figure."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small import smallest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_papers import ITEMS, Item, check_targets
from mrsa_papers._charts import LETTERS, PARTS, packed, unpacked
from mrsa_papers._config import ReproduceConfig, checked_settings
from mrsa_papers._driver import check_item
from mrsa_papers._functions import item_function
from mrsa_papers.harness import Context
from mrsa_watch._base.errors import ConfigurationError

EVERY = [f"{paper}.{name}" for paper, rows in ITEMS.items() for name in rows]


class _Working:
    """A progress that no check may have."""

    def stage(self, name: str, total: int) -> None:
        raise AssertionError(f"{name} has begun")

    def update(self, done: int, total: int) -> None:
        raise AssertionError("work has begun")


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(dataset="digits", progress=_Working(), only_checks=True)


def _ended_by_begin(
    target: str, given: dict[str, Any], context: Context, patch: pytest.MonkeyPatch
) -> int:
    """Check settings; return how often the item came to its work."""
    begun = []
    begin = Context.begin

    def watched(self: Context) -> None:
        begun.append(target)
        begin(self)

    patch.setattr(Context, "begin", watched)
    (place,) = check_targets(target)
    chosen = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
    }
    check_item(place, context, chosen, is_fast=True)
    return len(begun)


def _weighed(targets: Iterable[str]) -> list[Any]:
    """Mark items whose checks roll histories out."""
    dear = ("multiround.fig10", "multiround.image_motion")
    return [
        pytest.param(target, marks=[pytest.mark.long] * (target in dear))
        for target in targets
    ]


@pytest.mark.parametrize("target", _weighed(EVERY))
def test_each_item_ends_its_checks_before_any_work(
    target: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _ended_by_begin(target, smallest(target), context, monkeypatch) == 1


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "multiround.table1": {"cohort_size": 5},
    "multiround.fig2": {"privacy_target": 5},
    "multiround.fig3": {"privacy_targets": [5]},
    "multiround.theorem1": {"privacy_target": 5},
    "multiround.theorem2": {"privacy_targets": [5]},
    "multiround.remark7": {"cohort_size": 5},
    "multiround.fig4a": {"cohort_size": 5},
    "multiround.echelon": {"privacy_target": 5},
    "multiround.fig4b": {"cohort_size": 5},
    "multiround.fig4c": {"privacy_targets": [5]},
    "multiround.fig5a": {"cohort_size": 5},
    "multiround.theorem3": {"populations": ["6:7"]},
    "multiround.early_leaks": {"cohort_size": 5},
    "multiround.table3": {"cohort_size": 5},
    "multiround.table4": {"learning_rates": [0.1, 0.2]},
    "multiround.table5": {"privacy_targets": [5]},
    "multiround.fig8": {"cohort_sizes": [4]},
    "multiround.fig9": {"longer_window": 1},
    "multiround.fig10": {"privacy_targets": [5]},
    "multiround.fig8_2021": {"privacy_target": 5},
    "multiround.motion": {"rate_factors": [0.5, 0.1]},
    "multiround.exposure": {"num_rounds": [8, 6]},
    "multiround.image_motion": {"num_rounds": 1},
    "ccesa.theorem1": {"num_sizes": [5]},
    "ccesa.theorem2": {"num_sizes": [5]},
    "ccesa.theorem3": {"total_rates": [0.9]},
    "ccesa.theorem4": {"total_rates": [0.9]},
    "ccesa.table1": {"num_sizes": [100]},
    "ccesa.fig3": {"total_rates": [0.6]},
    "ccesa.remark4": {"total_rates": [0.6]},
    "ccesa.tableg2": {"total_rates": [0.6]},
    "ccesa.proposition1": {"total_rates": [0.6]},
    "ccesa.bandwidth": {"num_sizes": [5]},
    "ccesa.table2": {"modulus_bits": 33},
    "ccesa.fig4": {"total_rate": 0.6},
    "ccesa.figb1": {"threshold": 100},
    "ccesa.fig2": {"num_clients": 20},
    "ccesa.table3": {"sum_sizes": [5]},
    "heterosag.matrices": {"hybrid_threshold": 9},
    "heterosag.examples": {"modulus": 1},
    "heterosag.theorem1": {"num_groups": [41]},
    "heterosag.theorem3": {"hybrid_threshold": 9},
    "heterosag.error_bounds": {"levels": [4, 2]},
    "heterosag.byzantine_bound": {"most_groups": 999},
    "heterosag.costs": {"dims": [10]},
    "heterosag.fig3a": {"levels": [4, 4, 4]},
    "heterosag.fig3b": {"byzantine_clients": [999]},
}
"""Settings that each item refuses next to its small ones, each legal by itself."""
_ALL_LEGAL = {
    "multiround.remark6",
    "heterosag.expansion",
    "heterosag.theorem4",
}


def test_every_item_that_can_refuse_is_tried() -> None:
    assert {*IMPOSSIBLE} | _ALL_LEGAL == {*EVERY}


@pytest.mark.parametrize("target", _weighed(sorted(IMPOSSIBLE)))
def test_an_impossible_point_is_refused_before_the_first(
    target: str, tmp_path: pathlib.Path
) -> None:
    ((name, impossible),) = IMPOSSIBLE[target].items()
    possible = smallest(target)
    ((paper, item),) = check_targets(target)
    trains = {"dataset": "digits"} if ITEMS[paper][item].trains else {}
    study = {"command": f"reproduce {target}", "fast": True, **trains, **possible}
    study["grid"] = {name: [study.pop(name), impossible]}
    with pytest.raises(ConfigurationError, match=r"1 of 2 do not[\s\S]*`\w+` must"):
        mj.study.sweep(study, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


_USUAL = {field.name for field in dataclasses.fields(ReproduceConfig)}


def _draws(target: str, count: int) -> Iterator[dict[str, Any]]:
    """Go through settings of an item, some of them drawn, in range or not."""
    ((paper, name),) = check_targets(target)
    settings = ITEMS[paper][name].settings
    draw, usual = random.Random(target), smallest(target)
    counts, rates = (0, 1, 2, 3, 4, 6, 8, 12, 20, 100), (0.0, 0.1, 0.3, 0.5, 0.95, 1.5)
    for _ in range(count):
        drawn = dict(usual)
        for each in draw.sample(
            settings, min(len(settings), draw.choice((1, 1, 2, 3)))
        ):
            is_whole = each.kind in ("several", "whole", "natural")
            choices: tuple[Any, ...] = each.choices or (counts if is_whole else rates)
            if each.kind == "flag":
                choices = (True, False)
            elif each.kind == "text" and not each.choices:
                choices = ("x", "2:2", "7:3", "vgg11", "logistic")
            several = tuple(draw.choice(choices) for _ in range(draw.choice((1, 2, 3))))
            drawn[each.name] = several if isinstance(each.value, tuple) else several[0]
        yield drawn


@pytest.mark.parametrize("target", _weighed(EVERY))
def test_errors_name_settings_of_their_item(target: str, context: Context) -> None:
    ((paper, name),) = places = check_targets(target)
    own = {each.name for each in ITEMS[paper][name].settings} | _USUAL
    rules = set()
    for drawn in _draws(target, 30):
        try:
            chosen = checked_settings(places, drawn)
            check_item(places[0], context, chosen, is_fast=True)
        except ConfigurationError as error:
            rules.add(str(error).partition("; got")[0])
    assert rules
    named = {name for rule in rules for name in re.findall(r"`(\w+)`", rule)}
    assert named <= own, rules


_QUICK = ("ccesa.tableg2", "ccesa.fig3", "multiround.table1", "heterosag.expansion")


@pytest.mark.long
@pytest.mark.parametrize("target", _QUICK)
def test_what_is_not_refused_at_once_is_made(target: str, context: Context) -> None:
    places = check_targets(target)
    made = 0
    for drawn in _draws(target, 20):
        try:
            chosen = checked_settings(places, drawn)
            check_item(places[0], context, chosen, is_fast=True)
        except ConfigurationError:
            continue
        assert item_function(target)(fast=True, **drawn).checks
        made += 1
    assert made


def test_impossible_points_can_be_left_empty(tmp_path: pathlib.Path) -> None:
    study = {
        "command": "reproduce ccesa.tableg2",
        "skip_impossible": True,
        "grid": {"num_sizes": [[100], [100, 100]]},
    }
    found = mj.study.sweep(study, out=tmp_path / "out")
    assert found["done"].values.tolist() == [True, False]


def _item(rows: dict[str, Any], caption: str = "As drawn.") -> Item:
    return Item("fig3", "", (), pd.DataFrame(rows), caption)


def test_data_of_a_figure_come_back_as_they_were() -> None:
    values = np.random.default_rng(0).normal(size=50).tolist()
    rows = {"x": [*values, np.nan], "n": range(51), "name": ['a,b\n"c"'] * 51}
    found = unpacked(packed(_item(rows, "N = 48, as Δ.")))
    assert found is not None
    caption, data = found
    assert caption == "N = 48, as Δ."
    pd.testing.assert_frame_equal(data, pd.DataFrame(rows))
    # more than a part, and more than all of them
    values = np.random.default_rng(0).normal(size=PARTS * LETTERS // 8)
    some = packed(_item({"x": values[: LETTERS // 8]}))
    assert some.shape == (PARTS,)
    assert all(some[:2])
    again = unpacked(some)
    assert again is not None
    np.testing.assert_allclose(again[1]["x"], values[: LETTERS // 8], rtol=1e-14)
    nothing = packed(_item({"x": values}))
    assert not nothing.astype(bool).any()
    assert unpacked(nothing) is None


def test_a_sweep_draws_the_figure_of_each_point(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    study = {
        "command": "reproduce ccesa.tableg2",
        "grid": {"num_sizes": [[100, 150], [48]], "total_rates": [[0.01]]},
    }
    results = mj.study.sweep(study, out=out)
    # what a claim found is no number of a point
    assert "value" not in results.mrsa.table()
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figcaption>num sizes 100, 150, total rates 0.01. Eq. (5)") == 1
    assert page.count("<figcaption>num sizes 48, total rates 0.01. Eq. (5)") == 1
    names = sorted(path.name for path in (out / "figures").iterdir())
    assert [name for name in names if name.endswith(".png")] == [
        "tableg2-01-num-sizes-100-150-total-rates-0.01.png",
        "tableg2-02-num-sizes-48-total-rates-0.01.png",
    ]
    table = pd.read_csv(out / "figures" / names[-4])
    (item,) = _remade("ccesa.tableg2", num_sizes=[48], total_rates=[0.01])
    pd.testing.assert_frame_equal(table, item.data)
    # a page elsewhere has the figures in it, and leaves no other file
    target = results.mrsa.report(tmp_path / "page.html")
    assert target.read_text(encoding="utf-8").count("<figcaption>num sizes") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "page.html"]


def _remade(target: str, **settings: Any) -> list[Item]:
    from mrsa_papers import remake

    return remake(target, **settings)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"command": "reproduce fig4z"}, "^`command` must .*did you mean 'fig4'"),
        (
            {"command": "reproduce tableg2", "keep": ["weak_privacy"]},
            "^`keep` must not be set: points of reproduce ccesa.tableg2 keep nothing",
        ),
        (
            {"command": "secagg", "num_clients": 9, "keep": ["status"]},
            "^`keep` must not be set: points of secagg keep nothing else",
        ),
        (
            {"trials": 2, "rounds": 5, "keep": ["statuses"]},
            "can have: first_exposure, .*weak_privacy; got 'statuses'",
        ),
    ],
)
def test_a_sweep_names_what_it_can_have(
    study: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        mj.study.sweep(study | {"grid": {"seed": [0]}}, out=tmp_path / "out")


def test_a_table_that_a_sweep_has_not_is_named(tmp_path: pathlib.Path) -> None:
    study = {"command": "reproduce ccesa.fig3", "base": {"num_trials": 5}}
    with pytest.raises(
        ConfigurationError, match="stand at the top of the file"
    ) as error:
        mj.study.sweep(study | {"grid": {"seed": [0]}}, out=tmp_path / "out")
    assert "did you mean" not in str(error.value)
    study = {"command": "train", "populations": {}, "grid": {"seed": [0]}}
    with pytest.raises(ConfigurationError, match="did you mean 'population'"):
        mj.study.sweep(study, out=tmp_path / "out")
