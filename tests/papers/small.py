"""Small values of all settings of the papers' items, none of which is the paper's."""

from __future__ import annotations

from typing import Any

from mrsa_papers import ITEMS, check_targets
from mrsa_papers.harness._settings import Setting

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


SLOW = ("ccesa.figb1", "heterosag.fig3b")  # ten seconds

_POPULATION = {
    "num_clients": 12,
    "cohort_size": 4,
    "privacy_targets": (2,),
    "dropout_rates": (0.0, 0.3),
    "num_rounds": 9,
}
_FEW = {"num_clients": 12, "cohort_size": 4, "dropout_rates": (0.1, 0.3)}
_TABLE: dict[str, Any] = _FEW | {
    "privacy_targets": (2,),
    "num_rounds": 5,
    "num_tests": 2,
    "learning_rates": (0.2,),
    "batch_size": 5,
    "model": "logistic",
    "num_seeds": 2,
}
_WINDOW: dict[str, Any] = _FEW | {
    "privacy_targets": (4,),
    "privacy_target": 4,
    "assignment": "cyclic",
    "rounds_before": 2,
    "early_rounds": 1,
    "window": 6,
    "longer_window": 8,
    "learning_rate": 0.05,
    "batch_size": 5,
    "partition": "iid",
    "model": "mlp",
    "num_seeds": 1,
    "num_trials": 2,
}
_IMAGES: dict[str, Any] = _FEW | {
    "privacy_targets": (4,),
    "privacy_target": 4,
    "dropout_rate": 0.2,
    "num_rounds": 40,
    "learning_rate": 0.2,
    "num_steps": 20,
    "num_seeds": 2,
}
# values that only some combinations of settings allow
_TOGETHER: dict[str, dict[str, Any]] = {
    "heterosag.matrices": {
        "num_groups": (4, 7),
        "subgroups": (2, 3),
        "hybrid_threshold": 3,
    },
    "ccesa.theorem3": {"num_sizes": (150, 300), "total_rates": (0.02,)},
    "ccesa.theorem4": {"num_sizes": (100, 300)},
    "ccesa.fig3": {"num_sizes": (150, 250), "total_rates": (0.02,)},
    "ccesa.tableg2": {"num_sizes": (150, 250), "total_rates": (0.02,)},
    "ccesa.proposition1": {"num_sizes": (150, 250), "total_rates": (0.02,)},
    "ccesa.table1": {"num_sizes": (150, 300), "total_rate": 0.05},
    "ccesa.bandwidth": {"num_sizes": (150, 250)},
    "multiround.table1": _POPULATION,
    "multiround.fig2": {"num_clients": 12, "cohort_size": 6, "privacy_target": 3},
    "multiround.fig3": _POPULATION,
    "multiround.theorem1": _POPULATION | {"privacy_target": 2},
    "multiround.theorem2": {"num_clients": 6, "cohort_size": 2, "num_rounds": 5}
    | {"privacy_targets": (2,)},
    "multiround.remark7": _POPULATION,
    "multiround.fig4a": _POPULATION,
    "multiround.echelon": _POPULATION | {"privacy_target": 2},
    "multiround.fig4b": _POPULATION,
    "multiround.fig4c": _POPULATION,
    "multiround.fig5a": _POPULATION,
    "multiround.theorem3": {"populations": ("6:2", "9:3")},
    "multiround.early_leaks": _POPULATION,
    "multiround.table3": _TABLE,
    "multiround.table4": _TABLE,
    "multiround.table5": _TABLE,
    "multiround.fig8": _TABLE | {"num_clients": (12, 8), "cohort_sizes": (4, 4)},
    "multiround.fig9": _WINDOW,
    "multiround.fig8_2021": _WINDOW | {"partition": "shards"},
    "multiround.motion": _WINDOW
    | {"window_lengths": (6, 8), "rate_factors": (1.0, 0.01)},
    "multiround.exposure": _WINDOW | {"num_rounds": (6, 8), "dim": 20},
    "multiround.fig10": _IMAGES,
    "multiround.image_motion": _IMAGES | {"server_rates": (1.0, 0.01)},
}


def small_values(target: str) -> dict[str, Any]:
    """Return a value of each setting of an item that is not its default."""
    ((paper, name),) = check_targets(target)
    return {
        each.name: _TOGETHER.get(target, {}).get(each.name, _small(each))
        for each in ITEMS[paper][name].settings
    }


def _small(setting: Setting) -> Any:
    """Return a legal value of a setting by its kind, other than the default."""
    if setting.kind == "flag":
        return not setting.value
    is_list = isinstance(setting.value, tuple)
    default = setting.value[0] if is_list else setting.value
    least = {"several": 2, "whole": 1, "natural": 0}.get(setting.kind, 0.25)
    low = least if setting.low is None else setting.low
    tried = (low, low + 1, low + 0.25) if not setting.choices else setting.choices
    value = next(one for one in tried if one != default)
    return (value,) if is_list else value


def smallest(target: str) -> dict[str, Any]:
    """Return small values of all settings of any item, with its cheapest model."""
    values = {**OTHERS, **LONG}.get(target) or small_values(target)
    ((paper, name),) = check_targets(target)
    cheap = {
        each.name: "logistic"
        for each in ITEMS[paper][name].settings
        if "logistic" in each.choices
    }
    return {**values, **cheap}
