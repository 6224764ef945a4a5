"""Items at settings that are not the paper's: each runs, and prints nothing of it.

A number of the paper stands only next to what was found at its settings, and settings
that make no sense together are refused in one sentence, before any work.
"""

from __future__ import annotations

from typing import Any

import pytest
from inside import values_of_item

import mrsa_jax as mj
from mrsa_papers import ITEMS, Item, check_targets, remake

_SMALL_ROUNDS = {"num_sizes": [2], "largest_at_threshold_2": 3}
OTHERS: dict[str, dict[str, Any]] = {
    "ccesa.theorem1": _SMALL_ROUNDS,
    "ccesa.theorem2": _SMALL_ROUNDS,
    "ccesa.theorem3": {"num_sizes": [50, 500], "total_rates": [0.02]},
    "ccesa.theorem4": {"num_sizes": [50, 90], "total_rates": [0.02]},
    "ccesa.tableg2": {"num_sizes": [120], "total_rates": [0.02]},
    "ccesa.proposition1": {"num_sizes": [120], "total_rates": [0.02]},
    "ccesa.bandwidth": {"num_sizes": [120, 150]},
    "ccesa.remark4": {"num_sizes": [100, 200], "total_rates": [0.05]},
    "heterosag.matrices": {
        "num_groups": [4, 7],
        "subgroups": [2, 3],
        "hybrid_threshold": 3,
    },
    "heterosag.examples": {
        "levels": [2, 4],
        "ring_sizes": [4, 5],
        "modulus": 5,
        "subgroups": [2, 2, 1, 1],
        "subgroup_size": 4,
        "hybrid_threshold": 3,
    },
    "heterosag.theorem1": {"num_groups": [3, 7]},
    "heterosag.theorem3": {
        "num_subgroups": [3, 6],
        "most_groups": 2,
        "subgroups": [3, 2, 2],
        "hybrid_threshold": 4,
    },
    "heterosag.expansion": {"levels": [2, 5], "num_summed": [14, 100]},
    "heterosag.theorem4": {
        "subgroup_sizes": [3],
        "dropout_rates": [0.3],
        "num_subgroups": 2,
        "num_trials": 1_000,
    },
    "heterosag.byzantine_bound": {
        "most_groups": 9,
        "num_groups": 9,
        "num_byzantine": 2,
        "trim": 0.4,
        "hybrid_threshold": 4,
    },
    "heterosag.costs": {
        "num_clients": [30, 60],
        "subgroup_sizes": [3, 6],
        "dims": [1_000, 5_000],
        "subgroup_size": 3,
        "dim": 1_000,
    },
}
"""Another value of every setting of items that take less than a second."""

_TRAINING = {"num_rounds": 2, "num_seeds": 2, "learning_rate": 0.2, "batch_size": 5}
_EXPERIMENT = _TRAINING | {
    "levels": [2, 4, 8],
    "group_size": 5,
    "clip": 0.1,
    "num_epochs": 2,
    "evaluate_every": 1,
}
LONG: dict[str, dict[str, Any]] = {
    "ccesa.fig3": {"num_sizes": [120], "total_rates": [0.02], "num_trials": 500},
    "ccesa.table1": {
        "num_sizes": [60, 120],
        "total_rate": 0.05,
        "dim": 1_000,
        "num_trials": 4,
    },
    "ccesa.table2": {
        "num_sizes": [30],
        "total_rates": [0.0],
        "dim": 100,
        "modulus_bits": 20,
        "num_repeats": 1,
    },
    "ccesa.fig4": _TRAINING
    | {
        "num_clients": 120,
        "total_rate": 0.05,
        "probabilities": [0.7],
        "simulated_probabilities": [0.9],
        "model": "logistic",
        "evaluate_every": 1,
        "num_trials": 20,
        "shards_per_client": 1,
        "momentum": 0.3,
        "num_epochs": 1,
        "clip": 2.0,
    },
    "ccesa.figb1": _TRAINING
    | {
        "num_clients": 30,
        "total_rates": [0.05],
        "sufficient_probability": 0.8,
        "probabilities": [0.6],
        "simulated_probabilities": [0.95],
        "threshold": 12,
        "samples_per_client": 4,
        "model": "mlp",
        "num_rounds": 1,
        "num_seeds": 1,
        "evaluate_every": 1,
        "num_trials": 200,
        "num_epochs": 2,
        "clip": 2.0,
    },
    "ccesa.fig2": _TRAINING
    | {
        "num_clients": 30,
        "connection_probability": 0.6,
        "threshold": 12,
        "samples_per_client": 4,
        "num_seeds": 1,
        "num_steps": 10,
        "num_trials": 100,
        "smoothness": 0.0,
        "num_epochs": 20,
    },
    "ccesa.table3": {
        "num_clients": 6,
        "num_train": [5_000],
        "sum_sizes": [3],
        "connection_probability": 0.7,
        "num_seeds": 1,
        "model": "logistic",
        "num_epochs": 5,
        "momentum": 0.3,
        "num_shadows": 4,
        "num_ratio_shadows": 8,
        "learning_rate": 0.2,
        "batch_size": 5,
    },
    "heterosag.error_bounds": {
        "levels": [2, 4, 4, 16],
        "group_size": 3,
        "dim": 1_000,
        "hybrid_thresholds": [2],
        "equal_levels": [3],
        "num_trials": 10,
        "most_groups": 2,
        "most_subgroups": 2,
    },
    "heterosag.fig3a": _EXPERIMENT
    | {
        "num_spread_seeds": 1,
        "num_clip_seeds": 1,
        "clip_factors": [0.5],
        "model": "logistic",
    },
    "heterosag.fig3b": _EXPERIMENT
    | {
        "byzantine_clients": [0, 5],
        "std": 0.5,
        "model": "mlp",
        "num_seeds": 1,
        "batch_size": 40,
    },
}


_SLOW = ("ccesa.figb1", "heterosag.fig3b")  # ten seconds


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
        pytest.param(target, marks=pytest.mark.slow) if target in _SLOW else target
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
