"""A run of Flower's simulation on ray, as a program: `simulation.py FOLDER SETTINGS` (JSON).

Clients crash where the plan says so, and each writes down that it did before it does. The server
writes the log, `found.npz` with the means, and `nodes.json` with the client of each node.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys
from typing import Any

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}  # fmt: skip

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

FOLDER = pathlib.Path(sys.argv[1])
SETTINGS = json.loads(sys.argv[2])
NUM_CLIENTS, SIZE = SETTINGS["clients"], 4
STAGES = {"setup": "setup", "share_keys": "share_keys", "collect_masked_vectors": "upload",
          "unmask": "unmask"}  # fmt: skip


def update(number: int, client: int) -> np.ndarray:
    return np.random.default_rng([number, client]).uniform(-1, 1, SIZE)


def losses() -> dict[str, list[int]]:
    """Return the plan: "ROUND STAGE" -> clients, each lost in a round at most once."""
    draws, plan = np.random.default_rng(SETTINGS["seed"]), {}  # type: ignore[var-annotated]
    for number in range(1, SETTINGS["rounds"] + 1):
        for client in range(NUM_CLIENTS):
            is_lost, place = draws.random() < SETTINGS["chance"], draws.integers(4)
            if is_lost:
                stage = "train" if SETTINGS["workflow"] == "plain" else [*STAGES.values()][place]
                plan.setdefault(f"{number} {stage}", []).append(client)
    return plan


PLAN = losses()


def crash(message: Any, context: Any, call_next: Any) -> Any:
    """Stand before the client's protocol: crash where the plan says so."""
    if message.metadata.message_type == "train":
        records = message.content.config_records
        of = records[RECORD_KEY_CONFIGS]["stage"] if RECORD_KEY_CONFIGS in records else "train"
        key = f"{message.metadata.group_id} {STAGES.get(of, of)}"
        client = int(context.node_config["partition-id"])
        (FOLDER / f"node {context.node_id}").write_text(str(client))
        if client in PLAN.get(key, ()):
            (FOLDER / f"lost {key} {client}").touch()
            raise RuntimeError(f"client {client} is gone: {key}")
    return call_next(message, context)


class Client(NumPyClient):
    def __init__(self, client: int) -> None:
        self.client = client

    def fit(self, parameters: Any, config: Any) -> Any:
        return [update(config["round"], self.client)], self.client % 4 + 1, {}


class Keeps(FedAvg):
    def __init__(self) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters([np.zeros(SIZE)]),
            on_fit_config_fn=lambda number: {"round": number},
        )
        self.means: dict[str, np.ndarray] = {}

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        found = super().aggregate_fit(server_round, results, failures)
        if found[0] is not None:
            self.means[str(server_round)] = parameters_to_ndarrays(found[0])[0]
        return found


server = ServerApp()


@server.main()
def main(grid: Any, context: Any) -> None:
    import mrsa_jax as mj
    from mrsa_jax.live import Recorder, flower

    inside, kind = Keeps(), SETTINGS["workflow"]
    recorder = Recorder(
        FOLDER / "log.jsonl", system=f"flower {flower.VERSION}", salt=b"",
        aggregation="plain" if kind == "plain" else "secagg+")  # fmt: skip
    with recorder:
        strategy = flower.record(inside, recorder)
        if "scheme" in SETTINGS:
            scheme = mj.selection.Scheme.parse(SETTINGS["scheme"])
            selector = scheme.build(NUM_CLIENTS, SETTINGS["cohort"])
            strategy = flower.select(inside, recorder, selector)
        workflow: Any = None
        if kind == "stock":
            workflow = SecAggPlusWorkflow(1.0, 0.3, max_weight=10.0)
        elif kind != "plain":
            workflow = flower.SecAggPlus(1.0, 0.3, blocks=kind, max_weight=10.0)
        config = ServerConfig(num_rounds=SETTINGS["rounds"])
        DefaultWorkflow(workflow)(grid, LegacyContext(context, config, strategy))
        strategy.books.close()
    np.savez(FOLDER / "found.npz", **inside.means)


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    run_simulation(
        server_app=server,
        client_app=ClientApp(
            client_fn=lambda context: Client(int(context.node_config["partition-id"])).to_client(),
            mods=[crash] + [secaggplus_mod] * (SETTINGS["workflow"] != "plain"),
        ),
        num_supernodes=NUM_CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {
                "num_cpus": 2,
                "log_to_driver": False,
                "include_dashboard": False,
                "logging_level": logging.CRITICAL,
            },
        },
    )
