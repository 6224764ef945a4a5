"""Items at settings that are not the paper's: each runs, and prints nothing of it.

A number of the paper stands only next to what was found at its settings, and settings
that make no sense together are refused in one sentence, before any work.
"""

from __future__ import annotations

from typing import Any

import pytest
from inside import values_of_item
from small import LONG, OTHERS, SLOW

import mrsa_jax as mj
from mrsa_papers import ITEMS, Item, check_targets, remake


def test_every_item_with_settings_is_tried() -> None:
    papers = ("ccesa", "heterosag")
    items = {f"{paper}.{name}" for paper in papers for name in ITEMS[paper]}
    assert {*OTHERS, *LONG} == items


@pytest.mark.parametrize("target", sorted(OTHERS))
def test_an_item_runs_at_other_values_of_all_its_settings(target: str) -> None:
    _check(target, OTHERS[target])


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=pytest.mark.slow) if target in SLOW else target
        for target in sorted(LONG)
    ],
)
def test_an_item_that_trains_runs_at_other_values(target: str) -> None:
    _check(target, LONG[target])


def _check(target: str, given: dict[str, Any]) -> None:
    ((paper, name),) = check_targets(target)
    settings = {each.name: each for each in ITEMS[paper][name].settings}
    assert set(given) == set(settings)
    chosen = values_of_item(
        target,
        **{
            key: tuple(value) if isinstance(value, list) else value
            for key, value in given.items()
        },
    )
    # each differs from the paper's, or the paper has none
    assert set(chosen.missed) == {
        each.name for each in settings.values() if each.paper is not None
    }
    words = {"dataset": "digits"} if ITEMS[paper][name].trains else {}
    (item,) = remake(target, fast=True, **words, **given)
    _prints_nothing_of_the_paper(item, set(chosen.missed))
    assert len(item.data) > 0
    assert ("Not at the paper's settings" in item.caption) == bool(chosen.missed)


def _prints_nothing_of_the_paper(item: Item, missed: set[str]) -> None:
    assert item.checks
    for check in item.checks:
        depends = missed if check.depends is None else missed & set(check.depends)
        has_number = any(letter.isdigit() for letter in check.paper)
        assert not (depends and has_number), check.claim
        assert check.verdict not in (
            ("reproduced", "differs", "paper errs", "holds on other data")
            if depends
            else ("other settings",)
        ), check.claim


@pytest.mark.parametrize(
    ("target", "given", "message"),
    [
        ("heterosag.matrices", {"subgroups": [1, 2]}, "`subgroups` must give at least"),
        (
            "heterosag.matrices",
            {"hybrid_threshold": 4},
            r"`hybrid_threshold` must lie in \[2, 3\]",
        ),
        ("heterosag.matrices", {"num_groups": [400]}, "`num_groups` must give matri"),
        (
            "heterosag.examples",
            {"ring_sizes": [2, 6]},
            "`ring_sizes` must have a size for each of the 3 users",
        ),
        (
            "heterosag.examples",
            {"levels": [2, 3, 7], "modulus": 12},
            "`ring_sizes` must hold the levels",
        ),
        ("heterosag.examples", {"modulus": 5}, "`modulus` must be above .*, 5; got 5"),
        (
            "heterosag.examples",
            {"ring_sizes": [90, 90, 90]},
            "`ring_sizes` must leave at most 100,000",
        ),
        ("heterosag.theorem1", {"num_groups": [41]}, "`num_groups` must be at most 40"),
        (
            "heterosag.theorem3",
            {"num_subgroups": [30], "most_groups": 10**9},
            "`num_subgroups` must leave at most 50,000",
        ),
        ("heterosag.error_bounds", {"levels": [4, 2]}, "`levels` must have two values"),
        (
            "heterosag.error_bounds",
            {"hybrid_thresholds": [4]},
            r"`hybrid_thresholds` must lie in \[2, 3\]",
        ),
        ("heterosag.error_bounds", {"most_groups": 6}, "`most_groups` must be at most"),
        (
            "heterosag.error_bounds",
            {"most_subgroups": 50},
            "`most_subgroups` must leave at most 5,000",
        ),
        ("heterosag.costs", {"num_clients": [10, 22]}, "`num_clients` must give two"),
        ("heterosag.costs", {"dims": [10]}, "`dims` must have two different values"),
        ("heterosag.byzantine_bound", {"most_groups": 999}, "`most_groups` must be at"),
        ("heterosag.fig3a", {"levels": [4, 4, 4]}, "`levels` must have a finer"),
        ("heterosag.fig3a", {"group_size": 2, "levels": [2, 4]}, "`group_size` must"),
        ("heterosag.fig3a", {"model": "mpl"}, "`model` must be .*'mlp'"),
        (
            "heterosag.fig3b",
            {"byzantine_clients": [20]},
            r"`byzantine_clients` must be different clients in \[0, 19\]",
        ),
        ("ccesa.remark4", {"num_sizes": [20]}, "`total_rates` must leave a p"),
        ("ccesa.table2", {"modulus_bits": 33}, r"`modulus_bits` must lie in \[1, 32\]"),
        ("ccesa.fig4", {"num_clients": 20}, "`total_rate` must leave a p"),
        ("ccesa.fig4", {"total_rate": 0.5}, "`total_rate` must be below 0.5"),
        ("ccesa.figb1", {"num_clients": 5}, "`num_clients` must be at least the 10"),
        ("ccesa.figb1", {"threshold": 41}, "`threshold` must be at most"),
        ("ccesa.fig2", {"num_clients": 20}, "`num_clients` must leave a p"),
        ("ccesa.table3", {"sum_sizes": [5]}, "`sum_sizes` must divide the 12 clients"),
    ],
)
def test_misuse_is_answered_before_any_work(
    target: str, given: dict[str, Any], message: str
) -> None:
    ((paper, name),) = check_targets(target)
    words = {"dataset": "digits"} if ITEMS[paper][name].trains else {}
    with pytest.raises(mj.ConfigurationError, match=message):
        remake(target, fast=True, **words, **given)
