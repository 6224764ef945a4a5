"""Section on what known frameworks select and weigh."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import mrsa_jax as mj

# Park and Miller's generator, as TFF and FedJAX use it
LEHMER, PRIME = 16807, 2**31 - 1
# name, version, repository, file, commit at which the rule was read
SOURCES = (
    (
        "Flower",
        "1.41.0",
        "adap/flower",
        "framework/py/flwr/serverapp/strategy/strategy_utils.py",
        "17c5f79edd085a368547b072916efef8d7f5b533",
        "a uniform sample without replacement",
    ),
    (
        "NVFlare",
        "2.9.0",
        "NVIDIA/NVFlare",
        "nvflare/app_common/workflows/base_model_controller.py",
        "0079d86a8851a4f7570d2c14f066867ad2cbe935",
        "a shuffle, of which the first K",
    ),
    (
        "TFF",
        "0.87.0",
        "google-parfait/tensorflow-federated",
        "tensorflow_federated/python/simulation/sampling_utils.py",
        "0c51d424b6eadc46229cb975b5e317513e15c999",
        "a uniform sample, from a generator of the round",
    ),
    (
        "FedJAX",
        "0.0.17",
        "google/fedjax",
        "fedjax/core/client_samplers.py",
        "2598aedd30d4ab3d9b0c5758f2e14409c056154d",
        "the same as TFF",
    ),
    (
        "FedML",
        "0.9.6",
        "FedML-AI/FedML",
        "python/fedml/simulation/sp/fedavg/fedavg_api.py",
        "0a13406b05a2ea23db55fd889671d64d675e422a",
        "a uniform sample whose seed is the number of the round",
    ),
    (
        "pfl-research",
        "0.6.0",
        "apple/pfl-research",
        "pfl/data/sampling.py",
        "238775c3b9e38bd959620320736437ad7d0b93d8",
        "draws with replacement (random), or a cycle (minimize_reuse)",
    ),
)


def rules(num_clients: int, cohort: int, seed: int) -> dict[str, Callable[[int], Any]]:
    """Return the default rule of each framework.

    Round -> clients asked (sources in `SOURCES`).
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


def sources() -> dict[str, Any]:
    """Return each framework's rule with the place where it was read."""
    names = ("name", "release", "repository", "file", "commit", "rule")
    rows = {}
    for source in SOURCES:
        row = dict(zip(names, source, strict=True))
        short = row["commit"][:10]
        address = f"https://github.com/{row['repository']}/blob/{row['commit']}"
        link = f"[`{short}`]({address}/{row['file']})"
        rows[row["name"]] = row | {"link": link}
    return rows


def selectors(memory: float, share: float) -> dict[str, Any]:
    """Return what sums over frameworks' default cohorts reveal.

    Args:
        memory: Of updates that drift as they were measured to.
        share: The fraction of their variance that has this memory.
    """
    own: dict[str, Any] = {
        "clients": 120,
        "cohort": 12,
        "T": 4,
        "rounds": 200,
        "seeds": 5,
    }
    asked = (own["clients"], own["cohort"])
    found: dict[str, dict[str, Any]] = {}
    curves = {}

    def add(name: str, histories: list[np.ndarray]) -> None:
        first = np.array([mj.privacy.first_exposure(one) for one in histories]) + 1
        constant = [mj.privacy.hidden_among(one) for one in histories]
        lasting = [
            mj.privacy.hidden_among(one, memory=1.0, share=share, of="lasting")
            for one in histories
        ]
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
            "frozen": float(np.min(constant)),
            "lasting": float(np.min(lasting)),
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
    told = {"odd": odd, "rules": found, "curves": curves, "sources": sources()}
    return own | told


def weights() -> dict[str, Any]:
    """Return what weights by numbers of samples do to blocks.

    Clients have numbers of samples as a Dirichlet split by class of MNIST's 5,000
    deals them out.
    """
    own: dict[str, Any] = {"clients": 120, "T": 4, "seeds": 5}
    digits = mj.data.load("mnist_5k")
    blocks = np.arange(own["clients"]) // own["T"]
    worst: dict[str, list[float]] = {"equal": [], "drawn": [], "sorted": []}
    spread = []
    for seed in range(own["seeds"]):
        clients = mj.data.dirichlet_by_class(seed, digits, own["clients"])
        sizes = np.asarray(clients.sizes)
        spread.append(sizes.max() / sizes.min())
        for name, counted in (
            ("equal", np.ones_like(sizes)),
            ("drawn", sizes),
            ("sorted", np.sort(sizes)),
        ):
            hidden = mj.privacy.hidden_in_blocks(counted, blocks)
            worst[name].append(float(np.min(hidden)))
    rows = {
        name: {
            "label": label,
            "low": min(worst[name]),
            "high": max(worst[name]),
        }
        for name, label in (
            ("equal", "no weights"),
            ("drawn", "number of samples, blocks drawn"),
            ("sorted", "number of samples, blocks of similar sizes"),
        )
    }
    return own | {"rows": rows, "ratio": float(np.max(spread))}
