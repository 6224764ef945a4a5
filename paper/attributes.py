"""Section "What the sums reveal of a client": attacks on an attribute, with intervals."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy import stats

import mrsa_jax as mj

SETTING: dict[str, Any] = {
    "clients": 120,
    "cohort": 12,
    "T": 4,
    "rounds": 200,
    "samples": 32,
    "held": 6,
    "batch": 16,
    "shadows": 64,
    "seeds": 5,
    "early": 50,
}
BLOCKS = f"batch_partitioning:{SETTING['T']}"
MEASURES = ("auc", "early", "accuracy", "update", "lasting", "counted")
NOISE = (0.25, 1.0, 4.0)  # multiples of the clip norm
DELTA_POWER = -5
LEVEL = 0.95


def breast_cancer(seed: int) -> mj.data.Dataset:
    """Return scikit-learn's copy of the diagnostic data of Wisconsin, standardised."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    order = np.random.default_rng(seed).permutation(len(table.target))
    inputs = (table.data - table.data.mean(axis=0)) / table.data.std(axis=0)
    inputs = inputs.astype(np.float32)[order][:, None, :, None]
    labels = table.target.astype(np.int32)[order]
    tested = len(labels) // 5
    return mj.data.Dataset(
        "breast_cancer",
        inputs[tested:],
        labels[tested:],
        inputs[:tested],
        labels[:tested],
        2,
    )


@functools.cache
def register() -> None:
    """Give the data set a name that settings may use."""
    mj.study.register("dataset", "breast_cancer", breast_cancer)


def interval(values: Any, most: float = np.inf) -> dict[str, float]:
    """Return the mean of a few independent values and its interval, by Student's t.

    Args:
        values: One per training.
        most: The largest value that is possible, where the interval ends.
    """
    each = np.asarray(values, float)
    quantile = stats.t.ppf(0.5 + LEVEL / 2, len(each) - 1)
    half = float(quantile * each.std(ddof=1) / np.sqrt(len(each)))
    mean = float(each.mean())
    return {"mean": mean, "low": mean - half, "high": min(mean + half, most)}


def one_training(scheme: str, seed: int, **changes: Any) -> Any:
    """Attack one training.

    Args:
        scheme: Selection scheme.
        seed: Of its data, clients, cohorts and shadow clients.
        changes: Settings of the attack, instead of those of `SETTING`.
    """
    from mrsa_jax.study.attacks_on_sums import AttributeConfig

    register()
    settings = {
        "num_clients": SETTING["clients"],
        "cohort_size": SETTING["cohort"],
        "rounds": SETTING["rounds"],
        "client_size": SETTING["samples"],
        "num_held": SETTING["held"],
        "batch_size": SETTING["batch"],
        "num_shadows": SETTING["shadows"],
        "estimators": ("joint",),
        **changes,
    }
    return mj.study.run(
        AttributeConfig(schemes=(scheme,), seed=seed, trainings=1, **settings)
    )


@functools.cache
def found(scheme: str, **changes: Any) -> dict[str, Any]:
    """Return what the attack attains in one training per seed, with intervals."""
    values: dict[str, list[float]] = {name: [] for name in MEASURES}
    curve = []
    for seed in range(SETTING["seeds"]):
        one = one_training(scheme, seed, **changes)
        (summary,) = one.summary
        points = [[row["rounds"], row["auc"]] for row in one.scores]
        last = one.scores[-1]
        curve += points
        values["auc"].append(summary["auc"])
        values["early"].append(dict(points)[SETTING["early"]])
        values["accuracy"].append(100 * summary["accuracy"])
        values["update"].append(last["hidden_among_worst"])
        values["lasting"].append(last["lasting_hidden_worst"])
        if summary["counted_auc"] is not None:
            values["counted"].append(summary["counted_auc"])
    most = {"auc": 1.0, "early": 1.0, "counted": 1.0, "accuracy": 100.0}
    intervals = {
        name: interval(each, most.get(name, np.inf))
        for name, each in values.items()
        if each
    }
    return intervals | {"bound": summary["bound_auc"], "curve": curve}


def attacked(label: str, scheme: str, **changes: Any) -> dict[str, Any]:
    """Return a row of a table: `found` with a label, without its curve."""
    row = found(scheme, **changes)
    counted = row.get("counted")
    return {
        "label": label,
        "bounded": "none",
        "counting": "-",
        **{name: value for name, value in row.items() if name != "curve"},
        **({} if row["bound"] is None else {"bounded": f"{row['bound']:.3f}"}),
        **({} if counted is None else {"counting": f"{counted['mean']:.3f}"}),
    }


def pair(label: str, **changes: Any) -> dict[str, Any]:
    """Return random selection and blocks of T under the same settings."""
    return {
        "label": label,
        "random": attacked("Random", "uniform", **changes),
        "blocks": attacked(f"Blocks of {SETTING['T']}", BLOCKS, **changes),
    }


def attributes() -> dict[str, Any]:
    """Return the AUC of the attack by selection, data, split and model."""
    schemes = {"Random": "uniform"} | {
        f"Blocks of {target}": f"batch_partitioning:{target}" for target in (2, 4, 12)
    }
    rows = [attacked(label, scheme) for label, scheme in schemes.items()]
    selections = dict(zip(("random", "two", "four", "twelve"), rows, strict=True))
    data = {
        "digits": pair("digits, classes alike in law"),
        "dirichlet": pair("digits, Dirichlet mixtures", partition="dirichlet"),
        "shards": pair("digits, two other classes each", partition="shards"),
        "mnist": pair("MNIST", dataset="mnist_5k"),
        "cancer": pair("breast cancer", dataset="breast_cancer", num_shadows=200),
    }
    curves = {label: found(scheme)["curve"] for label, scheme in schemes.items()}
    widths = {
        "digits": mj.federated.num_parameters(mj.federated.logistic(10), (8, 8, 1)),
        "mnist": mj.federated.num_parameters(mj.federated.logistic(10), (28, 28, 1)),
        "cancer": mj.federated.num_parameters(mj.federated.logistic(2), (1, 30, 1)),
    }
    of_data = {"widths": widths, "pixels": 8, "images": 5000, "level": 100 * LEVEL}
    found_rows = {"selections": selections, "data": data, "curves": curves}
    return SETTING | of_data | found_rows


def cnn() -> dict[str, Any]:
    """Return the same of LeNet on MNIST, once; the intervals are over its clients."""
    own = {"model": "lenet", "dataset": "mnist_5k", "rounds": 60, "local_steps": 1}
    rows = {}
    for name, label, scheme in (
        ("random", "Random", "uniform"),
        ("blocks", f"Blocks of {SETTING['T']}", BLOCKS),
    ):
        (summary,) = one_training(scheme, 0, **own).summary
        rows[name] = {
            "label": label,
            "mean": summary["auc"],
            "low": summary["lower"],
            "high": summary["upper"],
            "bounded": "none",
            "counting": "-",
            "accuracy": 100 * summary["accuracy"],
        }
        if summary["bound_auc"] is not None:
            rows[name]["bounded"] = f"{summary['bound_auc']:.3f}"
            rows[name]["counting"] = f"{summary['counted_auc']:.3f}"
    width = mj.federated.num_parameters(mj.federated.lenet(10), (28, 28, 1))
    return own | {"rows": rows, "parameters": width}


def defences() -> dict[str, Any]:
    """Return what else hides an attribute, with its accuracy and what it costs."""
    clip = 0.1  # shorter than most updates
    blocks = f"Blocks of {SETTING['T']}"
    rows = {
        "random": attacked("Random", "uniform"),
        "prolin": attacked("Random, PROLIN", "uniform", estimators=("prolin",)),
        "larger": attacked("Random, K doubled", "uniform", cohort_size=24),
        "largest": attacked("Random, K four times", "uniform", cohort_size=48),
        "separated": attacked("Minimum separation", "minimum_separation:5:uniform"),
        "lotto": attacked("Coins of the clients, as Lotto's", "bernoulli:0.1"),
        "clipped": attacked("Random, clipped", "uniform", clip_norm=clip),
    }
    epsilons = {}
    for number, scale in enumerate(NOISE):
        name = f"noise{number}"
        noise = {"clip_norm": clip, "noise_multiplier": scale}
        rows[name] = attacked(f"Random, clipped, noise {scale:g}", "uniform", **noise)
        epsilons[name] = f"{epsilon(scale, clip):.3g}"
    rows["blocks"] = attacked(blocks, BLOCKS)
    rows["blocks_prolin"] = attacked(
        f"{blocks}, PROLIN", BLOCKS, estimators=("prolin",)
    )
    for name, row in rows.items():
        row["epsilon"] = epsilons.get(name, "-")
    least = rows["random"]["accuracy"]["mean"] - 1
    kept = [name for name in epsilons if rows[name]["accuracy"]["mean"] >= least]
    hidden = [
        name
        for name in epsilons
        if rows[name]["auc"]["mean"] <= rows["blocks"]["auc"]["mean"]
    ]
    lost = rows["random"]["accuracy"]["mean"] - rows[hidden[0]]["accuracy"]["mean"]
    selected = ("larger", "largest", "separated", "lotto")
    named = {
        "kept": rows[kept[-1]],
        "hidden": rows[hidden[0]],
        "lost": lost,
        "least": min(rows[name]["auc"]["mean"] for name in selected),
    }
    return {"clip": clip, "delta_power": DELTA_POWER, "rows": rows} | named


def epsilon(scale: float, clip: float) -> float:
    """Return the largest epsilon that noise of this scale leaves a client of random sums."""
    history = mj.selection.rollout(
        0,
        mj.selection.uniform(SETTING["clients"], SETTING["cohort"]),
        mj.availability.independent(0.0),
        SETTING["rounds"],
    )
    return float(np.max(mj.dp.ledger(history, scale, clip).epsilon(10.0**DELTA_POWER)))


def fresh() -> dict[str, Any]:
    """Return updates that are mostly new in each round, and what lasts of them."""
    few = {"batch_size": 4, "local_steps": 1, "num_shadows": 200}
    blocks = f"Blocks of {SETTING['T']}"
    rows = {
        "random": attacked("Random, one step on a minibatch", "uniform", **few),
        "blocks": attacked(f"{blocks}, one step on a minibatch", BLOCKS, **few),
        "random_all": attacked("Random, all samples", "uniform"),
        "blocks_all": attacked(f"{blocks}, all samples", BLOCKS),
    }
    own = {"batch": few["batch_size"], "shadows": few["num_shadows"]}
    return own | {"rows": rows}
