"""An app for `flwr run`; its run-config names a `folder`, and `settings` as JSON.

Clients crash where the plan says so, and each writes down that it did before it does,
and which node it is. The server writes the log, and `found.npz` with the means.
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import numpy as np
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

SIZE = 4
STAGES = {"setup": "setup", "share_keys": "share_keys", "collect_masked_vectors": "upload",
          "unmask": "unmask"}  # fmt: skip


def update(number: int, client: int) -> np.ndarray:
    return np.random.default_rng([number, client]).uniform(-1, 1, SIZE)


@functools.cache
def losses(text: str) -> dict[str, list[int]]:
    """Return the plan: "ROUND STAGE" -> clients, each lost in a round at most once."""
    settings = json.loads(text)
    draws, plan = np.random.default_rng(settings["seed"]), {}  # type: ignore[var-annotated]
    for number in range(1, settings["rounds"] + 1):
        for client in range(settings["clients"]):
            is_lost, place = draws.random() < settings["chance"], draws.integers(4)
            if is_lost:
                stage = (
                    "train"
                    if settings["workflow"] == "plain"
                    else [*STAGES.values()][place]
                )
                plan.setdefault(f"{number} {stage}", []).append(client)
    return plan


def crash(message: Any, context: Any, call_next: Any) -> Any:
    """Stand before the client's protocol: crash where the plan says so."""
    if message.metadata.message_type == "train":
        folder = pathlib.Path(context.run_config["folder"])
        records = message.content.config_records
        of = (
            records[RECORD_KEY_CONFIGS]["stage"]
            if RECORD_KEY_CONFIGS in records
            else "train"
        )
        key = f"{message.metadata.group_id} {STAGES.get(of, of)}"
        client = int(context.node_config["partition-id"])
        (folder / f"node {context.node_id}").write_text(str(client))
        if client in losses(context.run_config["settings"]).get(key, ()):
            (folder / f"lost {key} {client}").touch()
            raise RuntimeError(f"client {client} is gone: {key}")
    return call_next(message, context)


def secure(message: Any, context: Any, call_next: Any) -> Any:
    """Follow SecAgg+ where the server does."""
    is_secure = RECORD_KEY_CONFIGS in message.content.config_records
    return (secaggplus_mod if is_secure else lambda m, c, call: call(m, c))(
        message, context, call_next
    )


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


client = ClientApp(
    client_fn=lambda context: Client(
        int(context.node_config["partition-id"])
    ).to_client(),
    mods=[crash, secure],
)
server = ServerApp()


@server.main()
def main(grid: Any, context: Any) -> None:
    import mrsa_jax as mj
    from mrsa_jax.live import Recorder, flower

    folder = pathlib.Path(context.run_config["folder"])
    settings = json.loads(context.run_config["settings"])
    inside, kind = Keeps(), settings["workflow"]
    recorder = Recorder(
        folder / "log.jsonl",
        system=f"flower {flower.VERSION}",
        salt=b"",
        aggregation="plain" if kind == "plain" else "secagg+",
    )
    with recorder:
        strategy = flower.record(inside, recorder)
        if "scheme" in settings:
            scheme = mj.selection.Scheme.parse(settings["scheme"])
            selector = scheme.build(settings["clients"], settings["cohort"])
            strategy = flower.select(inside, recorder, selector)
        workflow: Any = None
        if kind == "stock":
            workflow = SecAggPlusWorkflow(1.0, 0.3, max_weight=10.0)
        elif kind != "plain":
            workflow = flower.SecAggPlus(1.0, 0.3, blocks=kind, max_weight=10.0)
        config = ServerConfig(num_rounds=settings["rounds"])
        DefaultWorkflow(workflow)(grid, LegacyContext(context, config, strategy))
        strategy.books.close()
    np.savez(folder / "found.npz", **inside.means)
