"""Make the report.

`numbers.json` by the package, figures and `paper.md` from that file alone.
    python paper/make.py            # all of it, into this folder (make paper)
    python paper/make.py --text     # figures and text only

The text is `paper.template.md`, filled in: `{section[name]:.2f}` is a number of the
file, and a line `%each section[names]: ...` is repeated for each entry, whose fields it
names.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mrsa_jax as mj

HERE = pathlib.Path(__file__).resolve().parent
# Park and Miller's generator, as TFF and FedJAX use it
LEHMER, PRIME = 16807, 2**31 - 1
MEMORIES = (1.0, 0.999, 0.99, 0.9, 0.5)


def worst_and_median(hidden: Any) -> dict[str, float]:
    """Return the ends of what a scheme is judged by."""
    return {"worst": float(np.nanmin(hidden)), "median": float(np.nanmedian(hidden))}


# ---- The numbers, a section each.


def certified() -> dict[str, Any]:
    """Return certified T and hidden among of three schemes, everybody online."""
    own = {"clients": 64, "cohort": 8, "T": 4, "rounds": 32}
    asked = (own["clients"], own["cohort"])
    online = mj.availability.independent(0.0)
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
        history = mj.selection.rollout(0, selector, online, own["rounds"])
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


def drift() -> dict[str, Any]:
    """Return among how many the update of each round is hidden, by memory."""
    own = {"clients": 120, "cohort": 12, "T": 4, "rounds": 200, "offline": 0.2}
    asked = (own["clients"], own["cohort"])
    away = mj.availability.independent(own["offline"])
    rows: dict[str, dict[str, Any]] = {str(rho): {"memory": rho} for rho in MEMORIES}
    for name, selector in (
        ("random", mj.selection.uniform(*asked)),
        ("blocks", mj.selection.batch_partitioning(*asked, own["T"])),
    ):
        history = mj.selection.rollout(0, selector, away, own["rounds"])
        for rho in MEMORIES:
            hidden = mj.privacy.hidden_among(history, memory=rho, each_round=True)
            rows[str(rho)][name] = worst_and_median(hidden)
    # two mates who are always summed together, one constant and one fresh: what mates
    # alone prove
    unlike = mj.privacy.hidden_among_mates([[1, 1]], memory=[1 - 1e-6, 0.0])
    return own | {"rows": rows, "unlike": float(np.max(unlike))}


def training() -> dict[str, Any]:
    """Return the drift of a training on digits, what it predicts, and what an attack attains."""
    from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig

    own = {"clients": 120, "cohort": 12, "T": 4, "rounds": 150}
    schemes = ("uniform", f"batch_partitioning:{own['T']}")
    results = mj.study.run(
        mj.study.DemoConfig(
            rounds=own["rounds"],
            schemes=schemes,
            population=mj.study.PopulationConfig(
                num_clients=own["clients"], cohort_size=own["cohort"]
            ),
            data=mj.study.DataConfig(dataset="digits"),
            training=mj.study.TrainingConfig(
                model="logistic", evaluate_every=own["rounds"]
            ),
            aggregation=mj.study.AggregationConfig(fidelity="sets"),
        )
    )
    first = results.isel(scheme=0)
    own |= {"memory": float(first.update_memory), "share": float(first.update_lasting)}
    found = {}
    for k, name in enumerate(("random", "blocks")):
        one = results.isel(scheme=k)
        found[name] = {
            "label": name.capitalize(),
            "accuracy": 100 * float(one.accuracy[-1]),
            "frozen_error": float(np.nanmedian(one.reconstruction_error)),
            "frozen_worst": float(one.hidden_among_worst[-1]),
            "worst": float(one.update_hidden_worst),
            "median": float(one.update_hidden_median),
            "mates": float(one.update_mates_worst),
        }
    attack = mj.study.run(
        LeastSquaresConfig(
            schemes=schemes,
            num_clients=own["clients"],
            cohort_size=own["cohort"],
            rounds=own["rounds"],
            warm_up=0,
            learning_rate=0.1,
            prior="mean",
            memory=round(own["memory"], 4),
            share=round(own["share"], 2),
        )
    )
    for name, row in zip(found, attack.summary, strict=True):
        errors = [
            one["error"] for one in attack.scores if one["scheme"] == row["scheme"]
        ]
        found[name] |= {
            "predicted": 1 - row["predicted_error"],
            "attained": 1 - row["mean_error"],
            "attained_median": 1 - row["median_error"],
            "tenth": 1 - np.quantile(errors, 0.1),
            "best": 1 - row["least_error"],
            "best_hidden": 1 / (1 - row["least_error"]),
        }
    blocks = results.isel(scheme=1)
    own |= {
        "kappa": float(blocks.update_mates_correlation),
        "cap": float(blocks.update_mates_cap),
    }
    lags = first.correlation.to_numpy()[: own["rounds"] // 3]
    return own | {"schemes": found, "correlation": lags.tolist()}


def one_norm() -> dict[str, Any]:
    """Return the same of updates that are all clipped to one norm, of a model that has settled.

    A training measures the drift of the last rounds, and a second one is attacked over
    them.
    """
    from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig

    own: dict[str, Any] = {
        "clients": 120,
        "cohort": 12,
        "T": 4,
        "warm_up": 150,
        "rounds": 150,
        "norm": 0.1,
        "rate": 0.1,
    }
    asked, digits = (own["clients"], own["cohort"]), mj.data.load("digits")
    clients, model = mj.data.iid(0, digits, own["clients"]), mj.federated.logistic(10)
    step = {"batch_size": 10, "clip_norm": own["norm"]}
    found: dict[str, dict[str, Any]] = {}
    for name, scheme, selector in (
        ("random", "uniform", mj.selection.uniform(*asked)),
        (
            "blocks",
            f"batch_partitioning:{own['T']}",
            mj.selection.batch_partitioning(*asked, own["T"]),
        ),
    ):
        rounds = own["warm_up"] + own["rounds"]
        history = mj.selection.rollout(
            0, selector, mj.availability.independent(0.0), rounds
        )
        updates = mj.quantize.stochastic(2**16, 1.0)
        training = mj.federated.Training(
            model,
            clients,
            history[: own["warm_up"]],
            mj.federated.local_sgd(model, own["rate"], **step),
            mj.secagg.ring_average(
                updates,
                own["cohort"],
                mj.federated.num_parameters(model, digits.input_shape),
                fidelity="sets",
            ),
        )
        start = mj.federated.train(0, training).parameters
        drift = mj.federated.train(
            1,
            dataclasses.replace(
                training,
                participation=history[own["warm_up"] :],
                initial_parameters=start,
                measure_drift=True,
            ),
        ).drift
        memory, share = min(round(drift.memory, 4), 0.9999), round(drift.lasting, 2)
        attack = mj.study.run(
            LeastSquaresConfig(
                schemes=(scheme,),
                num_clients=own["clients"],
                cohort_size=own["cohort"],
                rounds=own["rounds"],
                warm_up=own["warm_up"],
                learning_rate=own["rate"],
                prior="mean",
                memory=memory,
                share=share,
                clip_norm=own["norm"],
            )
        )
        (row,) = attack.summary
        found[name] = {
            "label": name.capitalize(),
            "memory": memory,
            "share": share,
            "predicted": 1 - row["predicted_error"],
            "attained": 1 - row["mean_error"],
            "median": 1 - row["median_error"],
            "best": 1 - min(one["error"] for one in attack.scores),
        }
    kappa, mates = drift.mates_correlation, own["T"]
    return own | {
        "schemes": found,
        "kappa": kappa,
        "cap": (1 + (mates - 1) * kappa) / mates,
    }


def enforced() -> dict[str, Any]:
    """Return what a server that chooses its sums exposes, and how often honest rounds work."""
    own: dict[str, Any] = {"clients": 24, "cohort": 12, "T": 3, "rounds": 40}

    def keeps_blocks(listed: np.ndarray) -> bool:
        members = listed.reshape(-1, own["T"]).sum(axis=1)
        return bool(((members == 0) | (members == own["T"])).all())

    server = mj.attacks.exposing_server(own["clients"], own["cohort"], own["T"])
    chance = mj.attacks.exposing_server(
        own["clients"], own["cohort"], own["T"], candidates=1
    )
    games = {
        "any sums, chosen to expose": server.play(0, own["rounds"]),
        "any sums, at random": chance.play(0, own["rounds"]),
        "whole blocks only": server.play(0, own["rounds"], keeps_blocks),
    }
    curves = {label: game.exposed.tolist() for label, game in games.items()}
    obeyed, _, kept = games.values()
    own |= {
        "exposed": int(obeyed.exposed[-1]),
        "kept_exposed": int(kept.exposed[-1]),
        "all_exposed": int(np.argmax(obeyed.exposed == own["clients"])) + 1,
        "refused": kept.refused,
        "kept_sums": int(kept.participation.any(axis=1).sum()),
        "kept_strong": mj.privacy.strong_privacy(kept.participation),
        "kept_weak": mj.privacy.weak_privacy(kept.participation).lower,
    }
    works = {}
    for blocks, size, threshold, loss, later in (
        (3, 4, 7, 0.05, 0.02),
        (3, 4, 7, 0.02, 0.01),
        (8, 3, 13, 0.05, 0.02),
        (10, 10, 51, 0.01, 0.005),
    ):
        rate = mj.secagg.failures.whole_blocks_rate(
            blocks, size, threshold, loss, 1 - (1 - later) ** 2
        )
        works[str(len(works))] = {
            "blocks": blocks,
            "T": size,
            "threshold": threshold,
            "loss": 100 * loss,
            "later": 100 * later,
            "works": rate,
            "insists": (1 - loss) ** (blocks * size),
        }
    return own | {"works": works, "curves": curves}


def two_models() -> dict[str, Any]:
    """Return how many clients a server reads from whole blocks by a model for one of them."""
    own: dict[str, Any] = {"clients": 6, "T": 3}
    model = mj.federated.mlp(10, hidden_sizes=(12, 6))
    trainer = mj.federated.local_sgd(model, 0.2, batch_size=20, num_epochs=2)
    quantizer = mj.quantize.stochastic(2**16 + 1, 0.5)
    data = mj.data.iid(0, mj.data.load("digits", seed=0), 30)
    start = mj.federated.initial_parameters(0, model, (8, 8, 1))

    def read(blocks: int | None) -> int:
        attack = mj.attacks.model_inconsistency(
            model, trainer, quantizer, blocks=blocks
        )
        clients = range(own["clients"])
        errors = [
            attack.run(5, start, data, clients, target).error for target in clients
        ]
        return sum(error < 0.01 for error in errors)

    return own | {"read": read(None), "kept_read": read(own["T"])}


def amplification() -> dict[str, Any]:
    """Return what blocks cost in amplification by sampling."""
    own = {"clients": 24, "cohort": 12, "rounds": 20, "noise": 4.0, "delta_power": -5}
    costs = mj.dp.amplification(
        own["clients"],
        own["cohort"],
        [1, 2, 4, 6],
        own["rounds"],
        own["noise"],
        10.0 ** own["delta_power"],
    )
    names = (
        "privacy_targets",
        "server",
        "blocks",
        "one_by_one",
        "chances",
        "cardinality",
        "hidden_among",
    )
    columns = [getattr(costs, name).tolist() for name in names]
    rows = {
        str(row[0]): dict(zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    }
    return own | {"rows": rows}


def rules(num_clients: int, cohort: int, seed: int) -> dict[str, Callable[[int], Any]]:
    """Return the default rule of each framework.

    Round -> clients asked (sources in the text).
    """
    python, legacy = random.Random(seed), np.random.RandomState(seed)
    start = np.random.RandomState(seed).randint(1, PRIME - 1)

    def shuffled(_: int) -> list[int]:
        order = list(range(num_clients))
        python.shuffle(order)
        return order[:cohort]

    def drawn(seed: int) -> Any:
        return np.random.RandomState(seed).choice(num_clients, cohort, replace=False)

    return {
        "Flower": lambda _: python.sample(range(num_clients), cohort),
        "NVFlare": shuffled,
        "TFF, FedJAX": lambda j: drawn(pow(LEHMER, j, PRIME) * int(start) % PRIME),
        "FedML": drawn,
        "pfl, random": lambda _: legacy.randint(0, num_clients, cohort),
        "pfl, minimize_reuse": lambda j: (
            np.arange(j * cohort, (j + 1) * cohort) % num_clients
        ),
    }


def replayed(rule: Callable[[int], Any], num_clients: int, rounds: int) -> np.ndarray:
    """Return the sums of some rounds, int[J, N]: whom a rule draws twice counts twice."""
    return np.array(
        [np.bincount(rule(j), minlength=num_clients) for j in range(rounds)]
    )


def selectors(memory: float, share: float) -> dict[str, Any]:
    """Return what sums over frameworks' default cohorts reveal, with the measured drift."""
    own: dict[str, Any] = {
        "clients": 120,
        "cohort": 12,
        "T": 4,
        "rounds": 200,
        "seeds": 3,
    }
    asked = (own["clients"], own["cohort"])
    found: dict[str, dict[str, Any]] = {}
    curves = {}

    def add(name: str, histories: list[np.ndarray]) -> None:
        first = np.array([mj.privacy.first_exposure(one) for one in histories]) + 1
        hidden = np.array([mj.privacy.hidden_among(one) for one in histories])
        path = [
            np.nanmin(
                mj.privacy.hidden_among_trajectory(one, memory=memory, share=share), 1
            )
            for one in histories
        ]
        found[name] = {
            "label": name,
            "exposed": int((first > 0).sum(axis=1).min()),
            "last": int(first.max()) or "never",
            "frozen": float(hidden.min()),
            "worst": float(min(one[-1] for one in path)),
        }
        curves[name] = path[0].tolist()

    seeded = [rules(*asked, seed) for seed in range(own["seeds"])]
    for name in seeded[0]:
        add(
            name, [replayed(one[name], own["clients"], own["rounds"]) for one in seeded]
        )
    odd = own["cohort"] + 2  # does not divide N
    cyclic = rules(own["clients"], odd, 0)["pfl, minimize_reuse"]
    add(
        f"pfl, minimize_reuse, K = {odd}",
        [replayed(cyclic, own["clients"], own["rounds"])],
    )
    blocks = mj.selection.batch_partitioning(*asked, own["T"])
    online = mj.availability.independent(0.0)
    add(
        "Multi-RoundSecAgg",
        [
            np.asarray(mj.selection.rollout(seed, blocks, online, own["rounds"]))
            for seed in range(own["seeds"])
        ],
    )
    return own | {"odd": odd, "rules": found, "curves": curves}


def numbers() -> dict[str, Any]:
    """Return every number of the report, to six digits."""
    measured = training()
    told = {
        "version": mj.__version__,
        "certified": certified(),
        "drift": drift(),
        "training": measured,
        "one_norm": one_norm(),
        "enforced": enforced(),
        "two_models": two_models(),
        "amplification": amplification(),
        "selectors": selectors(
            round(measured["memory"], 4), round(measured["share"], 2)
        ),
    }
    return json.loads(
        json.dumps(told), parse_float=lambda text: float(f"{float(text):.6g}")
    )


# ---- The figures and the text, from the numbers alone.


def figures(told: dict[str, Any], folder: pathlib.Path) -> None:
    """Draw the figures as SVG, the same bytes whenever they are drawn."""
    import pandas as pd

    def points(
        variable: str, x: str, hue: str, rows: list[tuple[Any, ...]]
    ) -> Callable[..., Any]:
        table = pd.DataFrame(rows, columns=[x, hue, variable])
        return lambda ax: mj.plotting.plot_points(table, variable, x=x, hue=hue, ax=ax)

    def over_rounds(curves: dict[str, list[float]]) -> list[tuple[Any, ...]]:
        return [
            (j + 1, label, y)
            for label, curve in curves.items()
            for j, y in enumerate(curve)
        ]

    amplified = told["amplification"]
    columns = {
        name: np.array([row[name] for row in amplified["rows"].values()])
        for name in amplified["rows"]["1"]
    }
    costs = mj.dp.Amplification(
        **columns,
        rounds=amplified["rounds"],
        noise_multiplier=amplified["noise"],
        delta=10.0 ** amplified["delta_power"],
    )
    by_memory = [
        (f"{row['memory']:g}", label, row[label][end])
        for row in told["drift"]["rows"].values()
        for label in ("random", "blocks")
        for end in ("worst", "median")
    ]
    hidden = "worst client hidden among"
    drawn = {
        "certified": points(
            hidden, "round", "scheme", over_rounds(told["certified"]["curves"])
        ),
        "drift": points("update hidden among", "memory", "selection", by_memory),
        "enforced": points(
            "exposed clients",
            "round",
            "clients unmask",
            over_rounds(told["enforced"]["curves"]),
        ),
        "amplification": lambda ax: mj.plotting.plot_amplification(costs, ax=ax),
        "selectors": points(
            "worst update hidden among",
            "round",
            "rule",
            over_rounds(told["selectors"]["curves"]),
        ),
    }
    folder.mkdir(exist_ok=True)
    for name, draw in drawn.items():
        mj.plotting.save_figure(draw, folder / name, formats=["svg"], apart=False)


def text(told: dict[str, Any], template: str) -> str:
    """Return the template filled in."""

    def lines() -> Iterator[str]:
        for line in template.splitlines():
            each = re.fullmatch(r"%each (\w+)\[(\w+)\]: (.*)", line)
            entries = told[each[1]][each[2]].values() if each else [{}]
            for one in entries:
                yield (each[3] if each else line).format(**told, **one)

    filled = "\n".join(lines()) + "\n"
    return re.sub(
        r"(?:^(?!```)[\w*`].*\n){2,}",
        lambda found: (
            textwrap.fill(found[0], 120, break_long_words=False, break_on_hyphens=False)
            + "\n"
        ),
        filled,
        flags=re.MULTILINE,
    )


def main(*flags: str) -> None:
    """Write the numbers unless only the text is asked for, then figures and text."""
    path = HERE / "numbers.json"
    if "--text" not in flags:
        path.write_text(json.dumps(numbers(), indent=1) + "\n", encoding="utf-8")
    told = json.loads(path.read_text(encoding="utf-8"))
    figures(told, HERE / "figures")
    template = (HERE / "paper.template.md").read_text(encoding="utf-8")
    (HERE / "paper.md").write_text(text(told, template), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
