"""Sections on T, on drift, and on clients that are not alike."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from attributes import interval

import mrsa_jax as mj

NEAR, AGREES = 0.05, 0.9  # of a mean share, and a correlation: what counts as predicted


def worst_and_median(hidden: Any) -> dict[str, float]:
    """Return the ends of what a scheme is compared by."""
    return {"worst": float(np.nanmin(hidden)), "median": float(np.nanmedian(hidden))}


def bounds() -> dict[str, Any]:
    """Return the bound of a block on tests of an attribute, for common and rare ones."""
    rows = {}
    for target in (1, 2, 4, 8, 12, 32):
        common = mj.privacy.attribute_bound(target)
        rare = mj.privacy.attribute_bound(target, prevalence=0.01)
        rows[f"T{target}"] = {
            "target": target,
            "auc": common.auc,
            "advantage": common.advantage,
            "detected": common.true_positive_rate(0.01),
            "rare_auc": rare.auc,
            "rare_detected": rare.true_positive_rate(0.01),
        }
    needed = {
        f"{auc:g}": mj.privacy.smallest_target(max_auc=auc) for auc in (0.75, 0.7, 0.6)
    }
    return {"rows": rows, "needed": needed, "rare": 0.01, "alarms": 0.01}


def certified() -> dict[str, Any]:
    """Return certified T and hidden among of three schemes, every client online."""
    own = {"clients": 64, "cohort": 8, "T": 4, "rounds": 24}
    asked = (own["clients"], own["cohort"])
    schemes, curves = {}, {}
    for name, label, selector in (
        ("random", "Random", mj.selection.uniform(*asked)),
        ("blocks", "Blocks", mj.selection.batch_partitioning(*asked, own["T"])),
        (
            "crossing",
            "Crossing partitions",
            mj.selection.crossing_partitions(*asked, own["T"]),
        ),
    ):
        history = history_of(selector, own["rounds"])
        weak = mj.privacy.weak_privacy(history)
        assert weak.certified, name
        hidden = np.asarray(mj.privacy.hidden_among_trajectory(history))
        curves[label] = hidden.min(axis=1).tolist()
        schemes[name] = {
            "label": label,
            "weak": weak.lower,
            "strong": mj.privacy.strong_privacy(history),
            **worst_and_median(hidden[-1]),
        }
    return own | {"schemes": schemes, "curves": curves}


POPULATION = {
    "clients": 120,
    "cohort": 12,
    "T": 4,
    "rounds": 100,
    "before": 40,
    "seeds": 5,
}
ASKED = (POPULATION["clients"], POPULATION["cohort"])


def selectors() -> dict[str, mj.selection.Selector]:
    """Return random selection and blocks of T."""
    return {
        "random": mj.selection.uniform(*ASKED),
        "blocks": mj.selection.batch_partitioning(*ASKED, POPULATION["T"]),
    }


def history_of(selector: mj.selection.Selector, rounds: int) -> np.ndarray:
    """Return the cohorts of some rounds in which every client is online."""
    online = mj.availability.independent(0.0)
    return np.asarray(mj.selection.rollout(0, selector, online, rounds))


class OneStep(NamedTuple):
    """A training whose clients take one step per round.

    Attributes:
        label: Its name in tables.
        dataset: Its data, dealt out in equal parts.
        samples: Of the step.
        rate: The step size.
        is_drawn: Whether the samples are drawn again in each round, or all take part.
    """

    label: str
    dataset: str
    samples: int
    rate: float
    is_drawn: bool


TRAININGS = {
    "whole": OneStep("digits, all samples, step 0.1", "digits", 16, 0.1, False),
    "part": OneStep("digits, ten samples drawn, step 0.1", "digits", 10, 0.1, True),
    "few": OneStep("digits, four samples drawn, step 0.1", "digits", 4, 0.1, True),
    "mnist": OneStep("MNIST, all samples, step 0.01", "mnist_5k", 40, 0.01, False),
}


def measured(step: OneStep) -> mj.federated.Drift:
    """Return the drift of updates in a settled training under random selection."""
    samples = mj.data.load(step.dataset)
    model = mj.federated.logistic(samples.num_classes)
    width = mj.federated.num_parameters(model, samples.input_shape)
    rounds = POPULATION["before"] + POPULATION["rounds"]
    history = history_of(selectors()["random"], rounds)
    codes = mj.quantize.stochastic(2**16, 1.0)
    length = {"num_steps": 1} if step.is_drawn else {}
    training = mj.federated.Training(
        model,
        mj.data.iid(0, samples, POPULATION["clients"]),
        history[: POPULATION["before"]],
        mj.federated.local_sgd(model, step.rate, batch_size=step.samples, **length),
        mj.secagg.ring_average(codes, POPULATION["cohort"], width, fidelity="sets"),
    )
    settled = dataclasses.replace(
        training,
        participation=history[POPULATION["before"] :],
        initial_parameters=mj.federated.train(0, training).parameters,
        measure_drift=True,
    )
    return mj.federated.train(1, settled).drift


def drift() -> dict[str, Any]:
    """Return measured drift, and among how many updates and lasting parts are hidden."""
    rows = {}
    for name, step in TRAININGS.items():
        found = measured(step)
        memory, share = min(round(found.memory, 4), 0.9999), round(found.lasting, 2)
        rows[name] = {"label": step.label, "memory": memory, "share": share}
        for scheme, selector in selectors().items():
            history = history_of(selector, POPULATION["rounds"])
            update = mj.privacy.hidden_among(history, memory=memory, share=share)
            lasting = mj.privacy.hidden_among(
                history, memory=1.0, share=max(share, 0.01), of="lasting"
            )
            rows[name][scheme] = {
                "update": float(np.min(update)),
                "lasting": float(np.min(lasting)),
            }
    held = {
        name: len(mj.data.load(name).train_labels) // POPULATION["clients"]
        for name in ("digits", "mnist_5k")
    }
    return POPULATION | {"rows": rows, "held": held}


def unlike(drifts: dict[str, Any]) -> dict[str, Any]:
    """Return predicted and attained shares of single clients in blocks, with intervals.

    Args:
        drifts: What `drift` returned, for the memory and the share of each training.
    """
    rows: dict[str, dict[str, Any]] = {}
    verdicts: dict[str, str] = {}
    for name, step in TRAININGS.items():
        shares = [
            shares_of_clients(seed, step, drifts["rows"][name])
            for seed in range(POPULATION["seeds"])
        ]
        found = {key: interval([one[key] for one in shares]) for key in shares[0]}
        verdicts[name] = verdict(found)
        rows[name] = {"label": step.label, "verdict": verdicts[name]} | found
    counts = {
        word: list(verdicts.values()).count(word) for word in ("predicted", "undecided")
    }
    return {
        "near": NEAR,
        "agrees": AGREES,
        "rows": rows,
        "trainings": len(rows),
    } | counts


def verdict(found: dict[str, dict[str, float]]) -> str:
    """Return whether single clients are predicted, as far as the interval decides it."""
    gap = found["predicted_mean"]["mean"] - found["attained_mean"]["mean"]
    if abs(gap) > NEAR or found["correlation"]["high"] < AGREES:
        return "**not predicted**"
    return "predicted" if found["correlation"]["low"] >= AGREES else "undecided"


def shares_of_clients(
    seed: int, step: OneStep, known: dict[str, Any]
) -> dict[str, float]:
    """Attack the last updates of one training in blocks, by two estimators.

    The first takes clients for alike. The second knows the covariance of their updates,
    measured from the updates themselves.
    """
    from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig

    attack = mj.study.run(
        LeastSquaresConfig(
            seed=seed,
            schemes=(f"batch_partitioning:{POPULATION['T']}",),
            num_clients=POPULATION["clients"],
            cohort_size=POPULATION["cohort"],
            dropout_rates=(0.0,),
            rounds=POPULATION["rounds"],
            warm_up=POPULATION["before"],
            dataset=step.dataset,
            batch_size=step.samples,
            local_steps=1 if step.is_drawn else None,
            learning_rate=step.rate,
            prior="mean",
            memory=known["memory"],
            share=known["share"],
        )
    )
    explained = {
        key: 1 - np.array([row[column] for row in attack.scores])
        for key, column in (
            ("alike_predicted", "predicted_error"),
            ("alike_attained", "error"),
            ("predicted", "predicted_resemblance"),
            ("attained", "error_resemblance"),
        )
    }
    told = {f"{key}_mean": float(values.mean()) for key, values in explained.items()}
    told |= {f"{key}_worst": float(values.max()) for key, values in explained.items()}
    agreement = np.corrcoef(explained["predicted"], explained["attained"])[0, 1]
    return told | {
        "correlation": float(agreement),
        "above": float((explained["alike_attained"] > 1 / POPULATION["T"]).sum()),
    }


def memories() -> dict[str, Any]:
    """Return among how many the update of a round is hidden, by the memory of updates."""
    own = {"clients": 120, "cohort": 12, "T": 4, "rounds": 200, "offline": 0.2}
    away = mj.availability.independent(own["offline"])
    told = (1.0, 0.999, 0.99, 0.9, 0.5)
    rows: dict[str, dict[str, Any]] = {str(rho): {"memory": rho} for rho in told}
    for name, selector in selectors().items():
        history = mj.selection.rollout(0, selector, away, own["rounds"])
        for rho in told:
            hidden = mj.privacy.hidden_among(history, memory=rho, each_round=True)
            rows[str(rho)][name] = worst_and_median(hidden)
    # two mates who are always summed together, one constant and one fresh: what mates
    # alone prove
    mates = mj.privacy.hidden_among_mates([[1, 1]], memory=[1 - 1e-6, 0.0])
    return own | {"rows": rows, "unlike": float(np.max(mates))}
